//! The numbers that belong to no row of a table: totals of an interval, and totals of the run up to now.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::output::metrics::family::{FamilyKind, MetricFamily, MetricPoint, MetricUnit, MetricValue};
use crate::output::metrics::names::{self, MetricView};
use crate::report::{Report, Value};

/// How successive values of a total are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalKind {
    /// A number of one interval: the numbers of all intervals are added up.
    Interval,
    /// A number of the run, which only grows.
    Run,
    /// A number of the present, which may decrease.
    Now,
}

/// A total of a report.
#[derive(Clone, Copy, Debug)]
pub struct MeterTotal {
    pub key: &'static str,
    pub kind: TotalKind,
    pub number: u64,
}

impl MeterTotal {
    /// The totals of a report.
    pub fn all_of(report: &Report) -> Vec<MeterTotal> {
        let of_interval = report.totals.iter().map(|total| (total, TotalKind::Interval));
        let is_now = |key| report.now_keys.contains(&key);
        let of_run = report.run_totals.iter();
        let of_run = of_run.map(|total| (total, if is_now(total.0) { TotalKind::Now } else { TotalKind::Run }));
        let total = |((key, value), kind): (&(&'static str, Value), TotalKind)| match *value {
            Value::Unsigned(number) | Value::Ns(number) => Some(MeterTotal { key, kind, number }),
            _ => None,
        };
        of_interval.chain(of_run).filter_map(total).collect()
    }
}

/// By key and view, the combined value so far.
#[derive(Debug, Default)]
pub(super) struct TotalSums(BTreeMap<(&'static str, usize), (TotalKind, u64)>);

impl TotalSums {
    pub fn add(&mut self, view: usize, total: &MeterTotal) {
        let (_, number) = self.0.entry((total.key, view)).or_insert((total.kind, 0));
        *number = match total.kind {
            TotalKind::Interval => number.saturating_add(total.number),
            TotalKind::Run => total.number.max(*number),
            TotalKind::Now => total.number,
        };
    }

    pub fn push(&self, views: &[MetricView], families: &mut Vec<MetricFamily>) {
        for (&(key, index), &(kind, number)) in &self.0 {
            let Some(view) = views.get(index) else { continue };
            let (word, unit) = match key.strip_suffix("_ns") {
                Some(word) => (word, MetricUnit::Seconds),
                None => key.strip_suffix("_bytes").map_or((key, MetricUnit::None), |word| (word, MetricUnit::Bytes)),
            };
            // A column of the profiler's tables may have the same key, hence the word `run` in the name.
            let word = word.strip_prefix("total_").unwrap_or(word);
            let name = names::join(&[view.profiler, "run", word, unit.word().unwrap_or_default()]);
            let labels = view.name.iter().map(|name| (Arc::from("view"), name.clone())).collect();
            let point = MetricPoint { labels, value: MetricValue::Number(number) };
            if let Some(family) = families.iter_mut().find(|family| *family.name == *name) {
                family.points.push(point);
                continue;
            }
            let (kind, help) = match kind {
                TotalKind::Now => (FamilyKind::Gauge, "as of the last report"),
                TotalKind::Interval | TotalKind::Run => (FamilyKind::Counter, "since the start of the run"),
            };
            let mut family = MetricFamily::new(&name, kind, unit, &format!("{}, {help}", key.replace('_', " ")));
            family.points.push(point);
            families.push(family);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_intervals_add_up_and_those_of_the_run_do_not() {
        let view = |name: &str| MetricView { name: Some(name.into()), profiler: "kmemleak", main_table: "" };
        let mut sums = TotalSums::default();
        for (allocs, now) in [(5, 3), (9, 1)] {
            let mut report = Report::default();
            report.total("seen_ns", Value::Ns(1_500_000_000));
            report.total("word", Value::Word("no number"));
            report.run_total("total_allocs", Value::Unsigned(allocs));
            report.run_now("outstanding_bytes", Value::Unsigned(now));
            MeterTotal::all_of(&report).iter().for_each(|total| sums.add(0, total));
        }
        sums.add(1, &MeterTotal { key: "total_allocs", kind: TotalKind::Run, number: 7 });
        sums.add(2, &MeterTotal { key: "x", kind: TotalKind::Run, number: 7 }); // a view that does not exist
        let mut families = Vec::new();
        sums.push(&[view("a"), view("b")], &mut families);
        let told = |family: &MetricFamily| {
            let points =
                family.points.iter().map(|point| (point.labels[0].1.to_string(), point.value.as_f64(family.unit)));
            (family.name.to_string(), family.kind, points.collect::<Vec<_>>())
        };
        let want = [
            ("perf_prof_kmemleak_run_outstanding_bytes", FamilyKind::Gauge, vec![("a".to_owned(), 1.0)]),
            ("perf_prof_kmemleak_run_seen_seconds", FamilyKind::Counter, vec![("a".to_owned(), 3.0)]),
            ("perf_prof_kmemleak_run_allocs", FamilyKind::Counter, vec![("a".to_owned(), 9.0), ("b".to_owned(), 7.0)]),
        ];
        let told: Vec<_> = families.iter().map(told).collect();
        assert_eq!(told, want.map(|(name, kind, points)| (name.to_owned(), kind, points)));
    }
}
