//! The sums of calls by name, and the calls in progress.

use std::cmp::Reverse;

use crate::calls::kinds::CallNumber;
use crate::profilers::syscalls::pairs::{CallErrors, CallKey, CallThread};
use crate::relation::PairSums;
use crate::report::{Column, LatencyRow, Meaning, Schema, Value};
use crate::stats::{Began, Latency, WorstCase};
use crate::symbol::StackId;

/// A row of the tables of calls.
#[derive(Clone, Debug)]
pub struct CallRow {
    pub key: CallKey,
    pub sum: PairSums<CallErrors>,
    /// A limit was given.
    pub has_limit: bool,
    /// Number of calls in progress.
    pub now: Option<u64>,
}

impl LatencyRow for CallRow {
    fn latency(&self) -> &Latency {
        &self.sum.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.sum.latency
    }
}

impl CallRow {
    fn total_ns(&self) -> u128 {
        self.sum.latency.distribution.sum()
    }

    fn than(&self) -> Value {
        if self.has_limit { Value::Unsigned(self.sum.than) } else { Value::None }
    }

    /// The share of calls over the limit, in hundredths of a per cent.
    fn than_pct(&self) -> Value {
        let count = self.sum.latency.distribution.count();
        if !self.has_limit || count == 0 {
            return Value::None;
        }
        Value::share(self.sum.than, count)
    }
}

const COLUMNS: [Column<CallRow>; 20] = [
    Column::<CallRow>::label("tid", "tid", |row| {
        row.key.thread.map_or(Value::None, |thread| Value::Signed(thread.tid.into()))
    })
    .if_any(),
    Column::<CallRow>::label("comm", "comm", |row| {
        row.key.thread.map_or(Value::None, |thread| Value::Comm(thread.comm))
    })
    .if_any(),
    Column::label("call", "call", |row| row.key.call.value()),
    Column::latency_count("calls"),
    Column::latency_total(),
    Column::latency_min(),
    Column::<CallRow>::latency_mean().json_only(),
    Column::<CallRow>::latency_stddev().json_only(),
    Column::latency_p50(),
    Column::latency_p95(),
    Column::latency_p99(),
    Column::latency_max(),
    Column::counter("errors", "errors", |row| &mut row.sum.own.errors),
    Column::<CallRow>::derived("than", "than", |row, _| row.than()).if_any().additive(),
    Column::<CallRow>::derived("than_pct", "than %", |row, _| row.than_pct()).if_any(),
    Column::<CallRow>::counter("interrupted", "interrupted", |row| &mut row.sum.own.interrupted).if_any(),
    Column::<CallRow>::counter("earlier", "earlier", |row| &mut row.sum.before).if_any(),
    Column::<CallRow>::counter("no_start", "no start", |row| &mut row.sum.no_start).if_any(),
    Column::<CallRow>::gauge("now", "now", |row| &mut row.now).if_any(),
    Column::<CallRow>::counter("than_count", "", |row| &mut row.sum.than).hidden(),
];

const MEANINGS: [Meaning; 9] = [
    ("call", "its name; `sys_N` for a number without a known name, `32-bit NAME` for one of 32-bit mode"),
    ("tid", "the thread, with `--perins`"),
    ("errors", "of these, those that failed"),
    ("than", "of these, those as long as the limit of `--than` or longer"),
    ("than_pct", "their share"),
    ("interrupted", "of these, those that a signal ended before they were done; most are made once more"),
    ("earlier", "of these, those that began before the interval"),
    (
        "no_start",
        "ended, too, but their start was not seen, so neither is their length: they began before the run, or seccomp refused \
         them",
    ),
    ("now", "calls that go on as the interval ends"),
];

fn longest_first(one: &CallRow, other: &CallRow) -> std::cmp::Ordering {
    (Reverse(one.total_ns()), one.key).cmp(&(Reverse(other.total_ns()), other.key))
}

pub static CALLS: Schema<CallRow> =
    Schema::<CallRow>::new("calls", &COLUMNS).latencies().titled("calls").explained(&MEANINGS).ordered(longest_first);
pub static WAITS: Schema<CallRow> = Schema::<CallRow>::new("waits", &COLUMNS)
    .latencies()
    .titled("calls that wait by design")
    .explained(&MEANINGS)
    .ordered(longest_first);

/// The longest call of one name in an interval.
#[derive(Clone, Debug)]
pub struct LongestRow {
    pub call: CallNumber,
    pub stack: Option<StackId>,
    pub case: Option<WorstCase>,
}

pub static LONGEST: Schema<LongestRow> = Schema::<LongestRow>::new(
    "longest",
    &[
        Column::label("call", "call", |row| row.call.value()),
        Column::<LongestRow>::derived("max_ns", "max us", |row, _| {
            row.case.map_or(Value::None, |case| Value::Us(case.ns))
        })
        .us(),
        Column::derived("max_time_ns", "at", |row, _| row.case.map_or(Value::None, |case| Value::Moment(case.at_ns))),
        Column::derived("max_cpu", "CPU", |row, _| {
            row.case.map_or(Value::None, |case| Value::Unsigned(case.cpu.into()))
        }),
        // The thread of the longest call only: a row for each thread that ever made the longest call would let the sums
        // of a run grow without limit.
        Column::derived("tid", "tid", |row, _| row.case.map_or(Value::None, |case| Value::Signed(case.tid.into()))),
        Column::derived("comm", "comm", |row, _| row.case.map_or(Value::None, |case| Value::Comm(case.comm))),
        Column::<LongestRow>::place("place", "function", |row| &mut row.stack).if_any(),
        Column::worst("worst", |row| &mut row.case),
    ],
)
.titled("the longest of each")
.explained(&[
    ("call", "its name"),
    ("max_ns", "the longest call of this name in an interval"),
    ("max_time_ns", "when it ended"),
    ("max_cpu", "on which CPU"),
    ("tid", "of which thread"),
    ("place", "the function that made it, with `-g`; in JSON `stack` has all frames"),
])
.ordered(|one, other| {
    let length = |row: &LongestRow| Reverse(row.case.map_or(0, |case| case.ns));
    (length(one), one.call).cmp(&(length(other), other.call))
});

/// A call in progress.
#[derive(Clone, Debug)]
pub struct OpenRow {
    pub call: CallNumber,
    /// The call waits by design.
    pub waits: bool,
    pub pid: i32,
    pub thread: CallThread,
    pub since: u64,
    pub age_ns: Option<u64>,
    /// Unless the beginning is known exactly, the call has lasted at least this long.
    pub began: Began,
    pub stack: Option<StackId>,
}

pub static OPEN: Schema<OpenRow> = Schema::<OpenRow>::new(
    "open",
    &[
        Column::label("call", "call", |row| row.call.value()),
        Column::<OpenRow>::gauge("age_ns", "age", |row| &mut row.age_ns).in_unit(crate::report::Unit::Age),
        Column::label("pid", "pid", |row| Value::Signed(row.pid.into())),
        Column::label("tid", "tid", |row| Value::Signed(row.thread.tid.into())),
        Column::label("comm", "comm", |row| Value::Comm(row.thread.comm)),
        Column::<OpenRow>::label("since_ns", "since", |row| {
            if row.began == Began::Exactly { Value::Moment(row.since) } else { Value::None }
        }),
        Column::<OpenRow>::label("since", "", |row| match row.began {
            Began::Exactly => Value::None,
            Began::BeforeStart => Value::Phrase { word: "before_start", text: "before the start" },
            Began::BeforeLoss => Value::Phrase { word: "before_loss", text: "before a loss" },
        })
        .if_any(),
        Column::label("waits", "", |row| if row.waits { Value::Word("waits by design") } else { Value::None }),
        Column::<OpenRow>::place("place", "function", |row| &mut row.stack).if_any(),
    ],
)
.titled("calls that go on")
.explained(&[
    ("call", "its name"),
    ("age_ns", "how long it has lasted when the interval ends"),
    ("since_ns", "when it began"),
    ("since", "`before_start` or `before_loss`: `age_ns` is a lower bound"),
    ("waits", "it waits by design"),
    ("place", "the function that made it, with `-g`; in JSON `stack` has all frames"),
])
.snapshot()
.ordered(|one, other| (one.waits, one.since, one.thread.tid).cmp(&(other.waits, other.since, other.thread.tid)));

/// Calls that end their task, by name.
#[derive(Clone, Debug)]
pub struct EndingRow {
    pub call: CallNumber,
    pub count: u64,
}

pub static ENDINGS: Schema<EndingRow> = Schema::<EndingRow>::new(
    "endings",
    &[Column::label("call", "call", |row| row.call.value()), Column::counter("count", "calls", |row| &mut row.count)],
)
.titled("calls that do not return")
.explained(&[("call", "its name"), ("count", "threads that have ended with it")])
.ordered(|one, other| (Reverse(one.count), one.call).cmp(&(Reverse(other.count), other.call)));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relation::PairRows;
    use crate::report::{Rows, TypedRows};
    use crate::task::Comm;

    fn call(number: i32, is_compat: bool) -> CallNumber {
        CallNumber { number, is_compat }
    }

    #[test]
    fn sums_are_by_call_and_thread() {
        let mut sums: PairRows<CallKey, CallErrors> = PairRows::default();
        let thread = CallThread { tid: 7, comm: Comm::new(b"a") };
        for (number, is_compat, thread) in
            [(3, false, None), (3, true, None), (3, false, Some(thread)), (-1, false, None), (5000, false, None)]
        {
            sums.sum(CallKey { thread, call: call(number, is_compat) }).no_start += 1;
            sums.sum(CallKey { thread, call: call(number, is_compat) }).no_start += 1;
        }
        let taken = sums.take();
        assert_eq!(taken.len(), 5);
        assert!(taken.iter().all(|(_, sum)| sum.no_start == 2));
        assert!(sums.take().is_empty());
    }

    #[test]
    fn distinct_numbers_are_bounded() {
        let mut sums: PairRows<CallKey, CallErrors> = PairRows::default();
        for number in 0..20_000 {
            sums.sum(CallKey { thread: None, call: call(2000 + number, false) }).no_start += 1;
        }
        let taken = sums.take();
        assert!(taken.len() <= 10_001, "{}", taken.len());
        assert_eq!(taken.iter().map(|(_, sum)| sum.no_start).sum::<u64>(), 20_000);
    }

    #[test]
    fn shares_have_a_base() {
        let key = CallKey { thread: None, call: call(0, false) };
        let mut row = CallRow { key, sum: PairSums::default(), has_limit: true, now: None };
        let cell = |row: &CallRow, key: &str| {
            let mut rows = TypedRows::new(&CALLS, vec![row.clone()]);
            let at = rows.columns().iter().position(|column| column.key == key).unwrap();
            rows.cell(0, at, 1)
        };
        assert_eq!(cell(&row, "than_pct"), Value::None);
        for ns in [1, 2, 3, 4] {
            row.sum.latency.distribution.record(ns);
        }
        row.sum.than = 1;
        assert_eq!((cell(&row, "than"), cell(&row, "than_pct")), (Value::Unsigned(1), Value::Pct(2500)));
        row.has_limit = false;
        assert_eq!((cell(&row, "than"), cell(&row, "than_pct")), (Value::None, Value::None));
    }
}
