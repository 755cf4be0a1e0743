//! The names of metrics and labels, by the convention: a prefix, words, the unit, and `_total` for what only grows.

use std::sync::Arc;

use crate::output::metrics::family::{FamilyKind, MetricUnit};
use crate::report::{ColumnHead, ColumnKind, Unit};

/// Prefix of all names.
const PREFIX: &str = "perf_prof";

/// The parts that a view adds to the names of its series.
#[derive(Debug)]
pub struct MetricView {
    /// None: the run has only one view.
    pub name: Option<Arc<str>>,
    pub profiler: &'static str,
    /// The table whose name is left out of metric names.
    pub main_table: &'static str,
}

/// `perf_prof_` and the parts, without characters that a name may not have.
pub fn join(parts: &[&str]) -> String {
    let mut name = PREFIX.to_owned();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        name.push('_');
        name.extend(part.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    }
    name
}

/// The name of a label: a word.
pub fn label(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The kind of metric of a column. None: the column is no number that adds up, or is derived from others.
pub fn kind(column: &ColumnHead, is_snapshot: bool) -> Option<FamilyKind> {
    match column.kind {
        // A count in a snapshot may decrease.
        ColumnKind::Counter if !is_snapshot => Some(FamilyKind::Counter),
        ColumnKind::Counter | ColumnKind::Gauge | ColumnKind::Greatest | ColumnKind::Least => Some(FamilyKind::Gauge),
        ColumnKind::Distribution => Some(FamilyKind::Histogram),
        ColumnKind::Label | ColumnKind::Names | ColumnKind::Stack | ColumnKind::Place | ColumnKind::Derived => None,
    }
}

pub fn unit(column: &ColumnHead) -> MetricUnit {
    match column.unit {
        Unit::Count => MetricUnit::None,
        Unit::Bytes => MetricUnit::Bytes,
        Unit::Hz => MetricUnit::Hertz,
        Unit::Ns | Unit::Us | Unit::Age => MetricUnit::Seconds,
    }
}

/// The name of the family of a column. The name of a profiler's first table is left out. A key that contains the `unit`
/// does not get it twice; a key that only means "count", "duration" or "sum of times" takes its noun from the table.
pub fn family(profiler: &str, table: Option<&str>, column: &ColumnHead, unit: MetricUnit, kind: FamilyKind) -> String {
    let key = ["_ns", "_bytes", "_hz"].iter().find_map(|suffix| column.key.strip_suffix(suffix)).unwrap_or(&column.key);
    let word = match (key, kind) {
        ("count", FamilyKind::Counter) | ("duration", FamilyKind::Histogram) => "",
        ("total", FamilyKind::Counter) => "time",
        ("bytes", _) if unit == MetricUnit::Bytes => "",
        (key, _) => key,
    };
    join(&[profiler, table.unwrap_or_default(), word, unit.word().unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_by_the_convention() {
        let column = |key, kind, unit| ColumnHead { kind, unit, ..ColumnHead::plain(key) };
        let cases = [
            (
                "task-state",
                None,
                column("duration_ns", ColumnKind::Distribution, Unit::Ns),
                "perf_prof_task_state_seconds",
            ),
            (
                "task-state",
                None,
                column("total_ns", ColumnKind::Counter, Unit::Ns),
                "perf_prof_task_state_time_seconds",
            ),
            (
                "task-state",
                Some("threads"),
                column("max_ns", ColumnKind::Greatest, Unit::Ns),
                "perf_prof_task_state_threads_max_seconds",
            ),
            ("signal", None, column("count", ColumnKind::Counter, Unit::Count), "perf_prof_signal"),
            ("kmemleak", None, column("bytes", ColumnKind::Counter, Unit::Bytes), "perf_prof_kmemleak_bytes"),
            ("profile", None, column("wanted_hz", ColumnKind::Gauge, Unit::Hz), "perf_prof_profile_wanted_hertz"),
        ];
        for (profiler, table, column, want) in cases {
            let kind = kind(&column, false).unwrap();
            assert_eq!(family(profiler, table, &column, unit(&column), kind), want);
        }
        assert_eq!(label("running.comm"), "running_comm");
        let counter = column("x", ColumnKind::Counter, Unit::Count);
        assert_eq!(kind(&counter, true), Some(FamilyKind::Gauge));
    }
}
