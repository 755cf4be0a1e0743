//! Distributions by time: one per band (label value) of a table and per column (span of time), in bounded memory.

use crate::report::Value;
use crate::stats::Distribution;

/// Limit of columns. If there would be more, each two neighbours are merged: long runs have at least half as many.
const MAX_COLUMNS: usize = 512;
/// Used buckets of all bands and columns, 16 bytes each, from which on neighbouring columns are merged, too.
const MAX_CELLS: usize = 1 << 18;
/// Label values that have a band of their own. The values of all others are in one band.
const MAX_BANDS: usize = 64;

/// The number of a bucket of a distribution. Bucket 0 is for the value 0, bucket `i` for values above 2^((i-2)/16) up to
/// 2^((i-1)/16).
pub type BucketNumber = u16;

/// The buckets in use of a distribution, lowest first, each with the number of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseCounts(Vec<(BucketNumber, u64)>);

impl SparseCounts {
    pub fn of(values: &Distribution) -> SparseCounts {
        let zeros = Some((0, values.zeros())).filter(|(_, count)| *count > 0);
        let numbered = |(index, count): (i32, u64)| (BucketNumber::try_from(index + 1).unwrap_or(0), count);
        SparseCounts(zeros.into_iter().chain(values.scale_4().map(numbered)).collect())
    }

    pub fn add(&mut self, other: &SparseCounts) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        for (bucket, count) in &other.0 {
            match self.0.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
                Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(*count),
                Err(at) => self.0.insert(at, (*bucket, *count)),
            }
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (BucketNumber, u64)> {
        self.0.iter().copied()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The values of one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TimeColumn {
    time: ColumnTime,
    /// Number of reports in the column.
    ticks: u64,
    /// By band; bands at the end may be missing.
    counts: Vec<SparseCounts>,
}

impl TimeColumn {
    /// Adds the values of the next column.
    fn take(&mut self, next: &TimeColumn) {
        self.time.end_ns = self.time.end_ns.max(next.time.end_ns);
        self.time.has_losses |= next.time.has_losses;
        self.ticks += next.ticks;
        if self.counts.len() < next.counts.len() {
            self.counts.resize_with(next.counts.len(), SparseCounts::default);
        }
        self.counts.iter_mut().zip(&next.counts).for_each(|(sum, counts)| sum.add(counts));
    }
}

/// The time of a column, CLOCK_MONOTONIC in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnTime {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Records were lost in this time: values may be missing.
    pub has_losses: bool,
}

/// Columns with equal numbers of ticks. A tick is one report of the table; a column lasts as long as its ticks
/// together.
#[derive(Debug)]
pub struct TimeColumns {
    columns: Vec<TimeColumn>,
    ticks_per_column: u64,
    /// The label values of the bands. Values of labels that found no room are in one additional band.
    labels: Vec<Value>,
    has_others: bool,
    cells: usize,
}

/// One picture: the values of one label, or of several labels together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panel {
    /// None: several labels.
    pub label: Option<Value>,
    /// Number of labels in the panel; a lower bound if `or_more`.
    pub labels: usize,
    pub or_more: bool,
    /// By column.
    pub counts: Vec<SparseCounts>,
}

impl Panel {
    pub fn total(&self) -> u64 {
        self.counts.iter().map(SparseCounts::total).fold(0, u64::saturating_add)
    }
}

impl Default for TimeColumns {
    fn default() -> TimeColumns {
        TimeColumns { columns: Vec::new(), ticks_per_column: 1, labels: Vec::new(), has_others: false, cells: 0 }
    }
}

impl TimeColumns {
    /// Begins a tick. Calls of `add` that follow belong to it.
    pub fn tick(&mut self, start_ns: u64, end_ns: u64) {
        let ticks_per_column = self.ticks_per_column;
        if let Some(last) = self.columns.last_mut().filter(|last| last.ticks < ticks_per_column) {
            last.ticks += 1;
            last.time.end_ns = last.time.end_ns.max(end_ns);
            return;
        }
        let time = ColumnTime { start_ns, end_ns: end_ns.max(start_ns), has_losses: false };
        self.columns.push(TimeColumn { time, ticks: 1, counts: Vec::new() });
        if self.columns.len() > MAX_COLUMNS {
            self.halve();
        }
    }

    /// Adds values to the last tick.
    pub fn add(&mut self, label: Value, values: &Distribution) {
        let band = self.band(label);
        let Some(last) = self.columns.last_mut() else { return };
        if last.counts.len() <= band {
            last.counts.resize_with(band + 1, SparseCounts::default);
        }
        let Some(counts) = last.counts.get_mut(band) else { return };
        let before = counts.0.len();
        counts.add(&SparseCounts::of(values));
        self.cells += counts.0.len() - before;
        while self.cells > MAX_CELLS && self.columns.len() > 1 {
            self.halve();
        }
    }

    /// Marks the columns between two times, since records were lost there.
    pub fn lose(&mut self, start_ns: u64, end_ns: u64) {
        for column in &mut self.columns {
            let time = &mut column.time;
            time.has_losses |= time.start_ns <= end_ns && start_ns < time.end_ns;
        }
    }

    fn band(&mut self, label: Value) -> usize {
        if let Some(known) = self.labels.iter().position(|known| *known == label) {
            return known;
        }
        if self.labels.len() < MAX_BANDS {
            self.labels.push(label);
            return self.labels.len() - 1;
        }
        self.has_others = true;
        MAX_BANDS
    }

    /// Merges each two neighbouring columns.
    fn halve(&mut self) {
        let mut columns = std::mem::take(&mut self.columns).into_iter();
        while let Some(mut column) = columns.next() {
            if let Some(next) = columns.next() {
                column.take(&next);
            }
            self.columns.push(column);
        }
        self.ticks_per_column = self.ticks_per_column.saturating_mul(2);
        self.cells = self.columns.iter().flat_map(|column| &column.counts).map(|counts| counts.0.len()).sum();
    }

    pub fn times(&self) -> impl ExactSizeIterator<Item = ColumnTime> {
        self.columns.iter().map(|column| column.time)
    }

    /// When the first column begins, and the last one ends.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.columns.first()?.time.start_ns, self.columns.last()?.time.end_ns))
    }

    /// Panels of the `most` bands with most values; if there are more bands, the last panel has all remaining ones.
    pub fn panels(&self, most: usize) -> Vec<Panel> {
        let band =
            |band: usize| self.columns.iter().map(move |column| column.counts.get(band).cloned().unwrap_or_default());
        let alone = |(at, label): (usize, &Value)| Panel {
            label: Some(label.clone()),
            labels: 1,
            or_more: false,
            counts: band(at).collect(),
        };
        let mut panels: Vec<Panel> = self.labels.iter().enumerate().map(alone).collect();
        panels.sort_by_cached_key(|panel| std::cmp::Reverse(panel.total()));
        if panels.len() <= most && !self.has_others {
            return panels;
        }
        let folded = panels.split_off(most.saturating_sub(1).min(panels.len()));
        let counts =
            if self.has_others { band(MAX_BANDS).collect() } else { vec![SparseCounts::default(); self.columns.len()] };
        let labels = folded.len() + usize::from(self.has_others);
        let mut others = Panel { label: None, labels, or_more: self.has_others, counts };
        for counts in folded.iter().map(|panel| &panel.counts) {
            others.counts.iter_mut().zip(counts).for_each(|(sum, counts)| sum.add(counts));
        }
        panels.push(others);
        panels
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        distribution
    }

    fn sum(counts: &[SparseCounts]) -> SparseCounts {
        let mut sum = SparseCounts::default();
        counts.iter().for_each(|counts| sum.add(counts));
        sum
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// After any number of merges, each band has all of its values, in the column of their time.
        #[test]
        fn columns_add_up_to_the_whole(
            ticks in prop::collection::vec(
                prop::collection::vec((0_u64..4, prop::collection::vec(0_u64..1 << 40, 0..4)), 0..3), 1..1500,
            ),
        ) {
            let mut columns = TimeColumns::default();
            let mut whole: BTreeMap<u64, Distribution> = BTreeMap::new();
            for (at, bands) in ticks.iter().enumerate() {
                columns.tick(at as u64 * 10, at as u64 * 10 + 10);
                for (label, values) in bands {
                    columns.add(Value::Unsigned(*label), &of(values));
                    whole.entry(*label).or_default().merge(&of(values));
                }
            }
            let times: Vec<ColumnTime> = columns.times().collect();
            prop_assert!(times.len() <= MAX_COLUMNS && times.len() >= ticks.len().min(MAX_COLUMNS / 2));
            prop_assert!(times.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
            prop_assert_eq!(columns.span_ns(), Some((0, ticks.len() as u64 * 10)));
            let panels = columns.panels(8);
            prop_assert_eq!(panels.len(), whole.len());
            for panel in &panels {
                let Some(Value::Unsigned(label)) = panel.label else { panic!("{panel:?}") };
                prop_assert_eq!(sum(&panel.counts), SparseCounts::of(&whole[&label]));
                for (time, counts) in times.iter().zip(&panel.counts) {
                    let mut values = Distribution::new();
                    for tick in time.start_ns / 10..time.end_ns / 10 {
                        let bands = ticks[tick as usize].iter().filter(|band| band.0 == label);
                        bands.for_each(|band| values.merge(&of(&band.1)));
                    }
                    prop_assert_eq!(counts, &SparseCounts::of(&values));
                }
            }
            prop_assert!(panels.windows(2).all(|pair| pair[0].total() >= pair[1].total()));
        }
    }

    #[test]
    fn labels_that_find_no_room_are_added_up() {
        let mut columns = TimeColumns::default();
        for tick in 0..3 {
            columns.tick(tick, tick + 1);
            for label in 0..1000 {
                columns.add(Value::Unsigned(label), &of(&vec![7; if label < 9 { 2 } else { 1 }]));
            }
        }
        let panels = columns.panels(8);
        let labels: Vec<usize> = panels.iter().map(|panel| panel.labels).collect();
        assert_eq!(labels, [1, 1, 1, 1, 1, 1, 1, MAX_BANDS - 7 + 1]);
        let Some(others) = panels.last() else { panic!() };
        assert!(others.label.is_none() && others.or_more);
        assert_eq!(panels.iter().map(Panel::total).sum::<u64>(), 3 * 1009);
        let few = columns.panels(1);
        assert_eq!((few.len(), few[0].total()), (1, 3 * 1009));
    }

    #[test]
    fn cells_are_limited() {
        let mut columns = TimeColumns::default();
        let all: Vec<u64> =
            (0..64).flat_map(|bit| (0..32).map(move |part| (1_u64 << bit).saturating_mul(32 + part) / 32)).collect();
        for tick in 0..400_u64 {
            columns.tick(tick, tick + 1);
            (0..4).for_each(|label| columns.add(Value::Unsigned(label), &of(&all)));
        }
        assert!(columns.cells <= MAX_CELLS && columns.columns.len() >= 25, "{}", columns.columns.len());
        assert_eq!(columns.panels(8).iter().map(Panel::total).sum::<u64>(), 4 * 400 * all.len() as u64);
    }

    #[test]
    fn columns_with_losses_are_marked() {
        let mut columns = TimeColumns::default();
        for tick in 0..=MAX_COLUMNS as u64 {
            columns.tick(tick * 10, tick * 10 + 10);
            if tick == 20 {
                columns.lose(95, 115);
                columns.lose(200, 200);
            }
        }
        let marked: Vec<(u64, u64)> =
            columns.times().filter(|time| time.has_losses).map(|time| (time.start_ns, time.end_ns)).collect();
        assert_eq!(marked, [(80, 100), (100, 120), (200, 220)]);
    }
}
