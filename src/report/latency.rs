//! The columns of a table of latencies: number, total, percentiles, and the worst case with its time and task.

use crate::report::{Column, Meaning, Schema, Value};
use crate::stats::{Latency, WorstCase};

/// A row about latencies.
pub trait LatencyRow: 'static {
    fn latency(&self) -> &Latency;
    fn latency_mut(&mut self) -> &mut Latency;
}

/// The meanings of the columns of a [`LatencyRow`].
const LATENCY_MEANINGS: [Meaning; 14] = [
    ("count", "how many ended in the interval"),
    ("total_ns", "their sum"),
    ("min_ns", "the shortest"),
    ("mean_ns", "the average"),
    ("stddev_ns", "the standard deviation: the root of the variance"),
    ("p50_ns", "half of them were no longer; off by 2.2 % at most, as all percentiles"),
    ("p95_ns", "95 of 100"),
    ("p99_ns", "99 of 100"),
    ("max_ns", "the longest"),
    ("max_time_ns", "when the longest ended"),
    ("max_cpu", "on which CPU"),
    ("max_tid", "of which thread"),
    ("max_comm", "and its name"),
    ("duration_ns", "how long they took"),
];

/// In text, durations are in us.
impl<R: LatencyRow> Column<R> {
    pub const fn latency_count(heading: &'static str) -> Column<R> {
        Column::<R>::derived("count", heading, |row, _| Value::Unsigned(row.latency().distribution.count())).additive()
    }

    pub const fn latency_total() -> Column<R> {
        let total = |row: &R, _| Value::Us(u64::try_from(row.latency().distribution.sum()).unwrap_or(u64::MAX));
        Column::<R>::derived("total_ns", "total us", total).us().additive()
    }

    pub const fn latency_min() -> Column<R> {
        Column::<R>::derived("min_ns", "min us", |row, _| measured(row, |latency| latency.distribution.min())).us()
    }

    pub const fn latency_mean() -> Column<R> {
        Column::<R>::derived("mean_ns", "mean us", |row, _| measured(row, |latency| latency.distribution.mean())).us()
    }

    pub const fn latency_stddev() -> Column<R> {
        let stddev = |row: &R, _| measured(row, |latency| latency.distribution.standard_deviation().round() as u64);
        Column::<R>::derived("stddev_ns", "stddev us", stddev).us()
    }

    pub const fn latency_p50() -> Column<R> {
        let quantile = |row: &R, _| measured(row, |latency| latency.distribution.quantile(0.50));
        Column::<R>::derived("p50_ns", "p50 us", quantile).us()
    }

    pub const fn latency_p95() -> Column<R> {
        let quantile = |row: &R, _| measured(row, |latency| latency.distribution.quantile(0.95));
        Column::<R>::derived("p95_ns", "p95 us", quantile).us()
    }

    pub const fn latency_p99() -> Column<R> {
        let quantile = |row: &R, _| measured(row, |latency| latency.distribution.quantile(0.99));
        Column::<R>::derived("p99_ns", "p99 us", quantile).us()
    }

    pub const fn latency_max() -> Column<R> {
        Column::<R>::derived("max_ns", "max us", |row, _| measured(row, |latency| latency.distribution.max())).us()
    }

    /// Four columns of JSON: the time, CPU and task of the longest latency. Two hidden ones, by which rows are added up.
    pub const LONGEST_LATENCY: [Column<R>; 6] = [
        Column::<R>::derived("max_time_ns", "at", |row, _| worst(row, |case| Value::Moment(case.at_ns))).json_only(),
        Column::<R>::derived("max_cpu", "cpu", |row, _| worst(row, |case| Value::Unsigned(case.cpu.into())))
            .json_only(),
        Column::<R>::derived("max_tid", "tid", |row, _| worst(row, |case| Value::Signed(case.tid.into()))).json_only(),
        Column::<R>::derived("max_comm", "comm", |row, _| worst(row, |case| Value::Comm(case.comm))).json_only(),
        Column::<R>::distribution("duration_ns", |row| &mut row.latency_mut().distribution).us(),
        Column::worst("worst", |row| &mut row.latency_mut().worst),
    ];
}

impl<R: LatencyRow> Schema<R> {
    /// Adds the columns by which latencies are added up, those of the longest latency for JSON, and the meanings of all
    /// columns of latencies.
    #[must_use]
    pub const fn latencies(mut self) -> Schema<R> {
        self.last_columns = const { &Column::<R>::LONGEST_LATENCY };
        self.last_meanings = &LATENCY_MEANINGS;
        self
    }
}

fn measured<R: LatencyRow>(row: &R, ns: fn(&Latency) -> u64) -> Value {
    let latency = row.latency();
    if latency.distribution.is_empty() { Value::None } else { Value::Us(ns(latency)) }
}

fn worst<R: LatencyRow>(row: &R, value: fn(&WorstCase) -> Value) -> Value {
    row.latency().worst.as_ref().map_or(Value::None, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, TypedRows};
    use crate::task::Comm;

    #[derive(Clone, Debug, Default)]
    struct NamedLatency {
        name: &'static str,
        latency: Latency,
    }

    impl LatencyRow for NamedLatency {
        fn latency(&self) -> &Latency {
            &self.latency
        }

        fn latency_mut(&mut self) -> &mut Latency {
            &mut self.latency
        }
    }

    static LATENCIES: Schema<NamedLatency> = Schema::<NamedLatency>::new(
        "latencies",
        &[
            Column::label("name", "name", |row| Value::Word(row.name)),
            Column::latency_count("count"),
            Column::latency_total(),
            Column::latency_min(),
            Column::latency_mean(),
            Column::latency_stddev(),
            Column::latency_p50(),
            Column::latency_max(),
        ],
    )
    .latencies();

    /// Durations are in us in text and in ns in JSON; the worst case of two intervals is the worse one.
    #[test]
    fn rows_of_two_intervals_are_one() {
        let interval = |cases: &[(u64, u64, i32)]| {
            let mut row = NamedLatency { name: "a", ..NamedLatency::default() };
            for &(ns, at, tid) in cases {
                let case = WorstCase { ns, at_ns: at, cpu: 0, tid, comm: Comm::default(), stack: None };
                row.latency.record(ns, at, || case);
            }
            TypedRows::new(&LATENCIES, vec![row])
        };
        let mut rows = interval(&[(1500, 10, 1), (500, 11, 2)]);
        rows.add(0, &mut interval(&[(1500, 20, 3), (2500, 21, 4), (2500, 22, 5)]), 0);
        let want = [
            Value::Word("a"),
            Value::Unsigned(5),
            Value::Us(8500),
            Value::Us(500),
            Value::Us(1700),
            Value::Us(748), // the root of (200² x 2 + 1200² + 800² x 2) / 5
            Value::Us(rows.rows()[0].latency.distribution.quantile(0.5)),
            Value::Us(2500),
            Value::Moment(21),
            Value::Unsigned(0),
            Value::Signed(4),
            Value::Comm(Comm::default()),
            Value::None,
            Value::None,
        ];
        assert_eq!(rows.cells(0, 1), want);
        let none = TypedRows::new(&LATENCIES, vec![NamedLatency::default()]).cells(0, 1);
        assert_eq!(none[1..4], [Value::Unsigned(0), Value::Us(0), Value::None]);
    }
}
