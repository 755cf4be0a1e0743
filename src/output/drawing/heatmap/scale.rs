//! The scales of a heat map: which values a row of cells stands for, and how dark a count is.

use crate::digits::format_ns;
use crate::output::drawing::heatmap::columns::{BucketNumber, Panel, SparseCounts};
use crate::report::Unit;

/// Buckets per power of two.
const PARTS: f64 = 16.0;
/// Empty buckets above and below the used ones, so that a narrow range of values does not fill the whole height.
const MARGIN: BucketNumber = 16;
/// Number of decades from which on an axis has labels only at powers of ten.
const MANY_DECADES: f64 = 2.0;

/// Rows of cells, each with the values of some neighbouring buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueScale {
    /// The first row is for the value 0, which has no place on a logarithmic scale.
    has_zero: bool,
    /// The lowest bucket of the row above.
    first: BucketNumber,
    buckets_per_row: BucketNumber,
    rows: usize,
}

impl ValueScale {
    /// The finest scale of at most `most_rows` rows that covers all values of a panel.
    pub fn of(panel: &Panel, most_rows: usize) -> ValueScale {
        let used = || panel.counts.iter().filter(|counts| !counts.is_empty());
        let lowest =
            used().filter_map(|counts| counts.iter().map(|(bucket, _)| bucket).find(|bucket| *bucket > 0)).min();
        let highest =
            used().filter_map(|counts| counts.iter().next_back()).map(|(bucket, _)| bucket).max().unwrap_or(0);
        let has_zero = used().any(|counts| counts.iter().next().is_some_and(|(bucket, _)| bucket == 0));
        let most_rows = most_rows.saturating_sub(usize::from(has_zero)).max(1);
        let (low, high) = (lowest.unwrap_or(1).saturating_sub(MARGIN).max(1), highest.max(1).saturating_add(MARGIN));
        let mut buckets_per_row: BucketNumber = 1;
        loop {
            let first = low / buckets_per_row * buckets_per_row;
            let rows = usize::from((high - first) / buckets_per_row) + 1;
            if rows <= most_rows || buckets_per_row > high {
                return ValueScale { has_zero, first, buckets_per_row, rows: rows + usize::from(has_zero) };
            }
            buckets_per_row = buckets_per_row.saturating_mul(2);
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The row of a bucket, counted from below.
    fn row_of(&self, bucket: BucketNumber) -> usize {
        if bucket == 0 {
            return 0;
        }
        usize::from(bucket.saturating_sub(self.first) / self.buckets_per_row) + usize::from(self.has_zero)
    }

    /// The rows in use of a column, lowest first, each with its number of values.
    pub fn cells(&self, counts: &SparseCounts) -> Vec<(usize, u64)> {
        let mut cells: Vec<(usize, u64)> = Vec::new();
        for (bucket, count) in counts.iter() {
            let row = self.row_of(bucket);
            match cells.last_mut().filter(|(last, _)| *last == row) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => cells.push((row, count)),
            }
        }
        cells
    }

    /// The values of a row: above the first bound, up to the second.
    fn bounds(&self, row: usize) -> (f64, f64) {
        if self.has_zero && row == 0 {
            return (0.0, 0.0);
        }
        let row = row - usize::from(self.has_zero);
        let edge = |row: usize| {
            let bucket = f64::from(self.first) + row as f64 * f64::from(self.buckets_per_row);
            ((bucket - 2.0) / PARTS).exp2()
        };
        (edge(row), edge(row + 1))
    }

    /// `18.3ms to 19.1ms`
    pub fn words(&self, row: usize, unit: Unit) -> String {
        match self.bounds(row) {
            (_, 0.0) => value_text(0.0, unit),
            (low, high) => format!("{} to {}", value_text(low, unit), value_text(high, unit)),
        }
    }

    /// The height of a value, in rows above the lower end of the lowest row.
    fn position(&self, value: f64) -> f64 {
        let bucket = value.log2() * PARTS + 2.0 - f64::from(self.first);
        bucket / f64::from(self.buckets_per_row) + f64::from(u8::from(self.has_zero))
    }

    /// The labels of the axis, lowest first: where they are, and their text.
    pub fn labels(&self, unit: Unit) -> Vec<(f64, String)> {
        let zero = self.has_zero.then(|| (0.5, value_text(0.0, unit)));
        let low = self.bounds(usize::from(self.has_zero)).0;
        let high = self.bounds(self.rows - 1).1;
        let steps: &[f64] = if (high / low).log10() >= MANY_DECADES { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = (0..20).map(|decade| 10_f64.powi(decade));
        let values = decades.flat_map(|decade| steps.iter().map(move |step| step * decade));
        let inside = values.filter(|value| (low..=high).contains(value));
        zero.into_iter().chain(inside.map(|value| (self.position(value), value_text(value, unit)))).collect()
    }
}

/// A value with its unit, without zeros at its end: `20ms`.
fn value_text(value: f64, unit: Unit) -> String {
    let whole = value.round() as u64;
    match unit {
        Unit::Ns | Unit::Us | Unit::Age => {
            let text = format_ns(whole);
            match text.split_once('.') {
                Some((whole, rest)) => {
                    let (digits, unit) =
                        rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len()));
                    let digits = digits.trim_end_matches('0');
                    format!("{whole}{}{digits}{unit}", if digits.is_empty() { "" } else { "." })
                }
                None => text,
            }
        }
        Unit::Bytes => format!("{whole} B"),
        Unit::Hz => format!("{whole} Hz"),
        Unit::Count => whole.to_string(),
    }
}

/// Shades for counts: each is for a range of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountShades {
    /// The least count of each shade, the lightest first.
    from: Vec<u64>,
    most: u64,
    shades: usize,
}

impl CountShades {
    /// At most `shades` shades for counts of 1 to `most`, equally wide on a logarithmic scale.
    pub fn new(most: u64, shades: usize) -> CountShades {
        let most = most.max(1);
        let least = |shade: usize| (most as f64).powf(shade as f64 / shades as f64).ceil() as u64;
        let mut from: Vec<u64> = (0..shades).map(least).filter(|from| *from <= most).collect();
        from.dedup();
        CountShades { from, most, shades }
    }

    /// The shade of a count, `shades - 1` being the darkest. With fewer counts than shades the light shades are left
    /// out, so that a single value is visible.
    pub fn shade(&self, count: u64) -> usize {
        let at = self.from.partition_point(|from| *from <= count).max(1) - 1;
        at + self.shades.saturating_sub(self.from.len())
    }

    /// Each shade with its counts, `2-4`, the lightest first.
    pub fn legend(&self) -> impl Iterator<Item = (usize, String)> {
        let ends = self.from.iter().skip(1).map(|next| next - 1).chain([self.most]);
        self.from.iter().zip(ends).map(|(from, end)| {
            let words = if *from >= end { from.to_string() } else { format!("{from}-{end}") };
            (self.shade(*from), words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Distribution;

    /// A panel of one column.
    fn panel(values: &[u64]) -> Panel {
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        Panel { label: None, labels: 1, or_more: false, counts: vec![SparseCounts::of(&distribution)] }
    }

    #[test]
    fn each_value_is_in_the_row_that_says_so() {
        let values = [0, 1, 2, 3, 17, 900, 1_000, 20_000_000, 20_500_000, 1 << 40, u64::MAX];
        for most_rows in [1, 2, 3, 8, 20, 40, 2000] {
            let parts = (0..values.len()).flat_map(|from| (from + 1..=values.len()).map(move |to| from..to));
            for all in parts.map(|part| &values[part]) {
                let scale = ValueScale::of(&panel(all), most_rows);
                assert!(scale.rows() <= most_rows.max(2), "{all:?}, {most_rows}: {scale:?}");
                for value in all {
                    let (bucket, _) = panel(&[*value]).counts[0].iter().next().unwrap();
                    let row = scale.row_of(bucket);
                    let (low, high) = scale.bounds(row);
                    let value = *value as f64;
                    let is_inside = low <= value * 1.000_001 && value <= high * 1.000_001;
                    assert!(row < scale.rows() && is_inside, "{value} in {low} to {high}, {scale:?}");
                }
                let labels = scale.labels(Unit::Ns);
                let inside = |position: &f64| (0.0..=scale.rows() as f64).contains(position);
                assert!(labels.iter().all(|(position, _)| inside(position)), "{labels:?} of {scale:?}");
            }
        }
    }

    #[test]
    fn few_values_have_neighbours_and_labels() {
        let scale = ValueScale::of(&panel(&[20_000_000]), 40);
        let labels: Vec<String> = scale.labels(Unit::Ns).into_iter().map(|(_, text)| text).collect();
        assert_eq!((scale.rows(), labels), (33, ["10ms", "20ms"].map(str::to_owned).to_vec()));
        let wide = ValueScale::of(&panel(&[0, 1_500, 2_000_000_000]), 40);
        let labels: Vec<String> = wide.labels(Unit::Ns).into_iter().map(|(_, text)| text).collect();
        assert_eq!(labels, ["0ns", "1us", "10us", "100us", "1ms", "10ms", "100ms", "1s"]);
        assert_eq!(wide.words(0, Unit::Ns), "0ns");
        assert_eq!([Unit::Count, Unit::Bytes, Unit::Hz].map(|unit| value_text(20.0, unit)), ["20", "20 B", "20 Hz"]);
    }

    #[test]
    fn a_count_has_the_shade_of_the_legend() {
        for most in [1, 2, 3, 5, 6, 7, 100, 12_345, u64::MAX] {
            for shades in [1, 4, 6] {
                let scale = CountShades::new(most, shades);
                let legend: Vec<(usize, String)> = scale.legend().collect();
                assert_eq!((legend[0].1.split('-').next(), scale.shade(most)), (Some("1"), shades - 1), "{most}");
                for (shade, words) in legend {
                    let ends = words.split('-').map(|number| number.parse::<u64>().unwrap());
                    ends.for_each(|count| assert_eq!(scale.shade(count), shade, "{count} of {most}"));
                }
            }
        }
        assert_eq!(CountShades::new(1, 6).legend().collect::<Vec<_>>(), [(5, "1".to_owned())]);
    }
}
