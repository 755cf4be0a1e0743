//! The tables of delays, of pairs, of waiting starts and of the worst cases; the line of one slow pair.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{Basis, Column, Detail, GroupBy, LatencyRow, OccurrenceSchema, Schema, Value};
use crate::stats::{Latency, WorstCase};
use crate::task::Comm;

/// The pairs of two events, with all keys or with one.
#[derive(Clone, Debug)]
pub struct DelayRow {
    /// None: all keys.
    pub key: Value,
    /// The name of the thread that is the key.
    pub comm: Value,
    pub start: Arc<str>,
    pub end: Arc<str>,
    pub latency: Latency,
    /// Pairs that took at least `--than`.
    pub than: u64,
    /// Pairs that began before the interval.
    pub before: u64,
}

impl LatencyRow for DelayRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

impl DelayRow {
    fn rank(&self) -> impl Ord + use<'_> {
        (Reverse(self.latency.distribution.sum()), &self.start, &self.end)
    }

    fn than_share(&self) -> Value {
        Value::share(self.than, self.latency.distribution.count())
    }
}

pub static DELAYS: Schema<DelayRow> = Schema::<DelayRow>::new(
    "delays",
    &[
        Column::<DelayRow>::label("key", "key", |row| row.key.clone()).if_any(),
        Column::<DelayRow>::label("comm", "comm", |row| row.comm.clone()).if_any(),
        Column::label("start", "start", |row| Value::Text(row.start.clone())),
        Column::label("end", "=> end", |row| Value::Text(row.end.clone())),
        Column::latency_count("count"),
        Column::latency_total(),
        Column::latency_min(),
        Column::<DelayRow>::latency_mean().json_only(),
        Column::<DelayRow>::latency_stddev().json_only(),
        Column::latency_p50(),
        Column::latency_p95(),
        Column::latency_p99(),
        Column::latency_max(),
        Column::<DelayRow>::counter("than", "than", |row| &mut row.than).if_any(),
        Column::<DelayRow>::derived("than_pct", "than %", |row, _| row.than_share()).if_any(),
        Column::<DelayRow>::counter("before", "before", |row| &mut row.before).if_any(),
    ],
)
.latencies()
.explained(&[
    ("key", "with `--perins`: what the events of the pairs have in common"),
    ("comm", "the name of the thread that is the key"),
    ("start", "the event that began the pairs"),
    ("end", "the event that ended them"),
    ("than", "pairs that took at least `--than`"),
    ("than_pct", "their share"),
    ("before", "pairs that began before the interval"),
])
.ordered(|one, other| one.rank().cmp(&other.rank()));

/// Number of pairs, with `--impl pair`.
#[derive(Clone, Debug)]
pub struct PairRow {
    pub start: Arc<str>,
    pub end: Arc<str>,
    pub paired: u64,
}

pub static PAIRS: Schema<PairRow> = Schema::<PairRow>::new(
    "pairs",
    &[
        Column::label("start", "start", |row| Value::Text(row.start.clone())),
        Column::label("end", "=> end", |row| Value::Text(row.end.clone())),
        Column::counter("paired", "paired", |row| &mut row.paired),
    ],
)
.explained(&[
    ("start", "the event that began the pairs"),
    ("end", "the event that ended them"),
    ("paired", "pairs that ended in the interval"),
])
.ordered(|one, other| {
    Reverse(one.paired)
        .cmp(&Reverse(other.paired))
        .then_with(|| (&one.start, &one.end).cmp(&(&other.start, &other.end)))
});

/// Starts that wait for their end.
#[derive(Clone, Debug)]
pub struct WaitingRow {
    pub start: Arc<str>,
    /// Number of these starts. Where events went unseen, the ends of some may be among them.
    pub open: u64,
    pub unseen: u64,
    /// The age of the oldest start, ns, with its key and task.
    pub oldest_ns: u64,
    pub key: Value,
    pub tid: i32,
    pub comm: Comm,
}

pub static WAITING: Schema<WaitingRow> = Schema::<WaitingRow>::new(
    "waiting",
    &[
        Column::label("start", "waiting since", |row| Value::Text(row.start.clone())),
        Column::counter("open", "open", |row| &mut row.open),
        Column::<WaitingRow>::counter("unseen", "unseen", |row| &mut row.unseen).if_any(),
        Column::<WaitingRow>::derived("oldest_ns", "oldest us", |row, _| Value::Us(row.oldest_ns)).us(),
        Column::derived("key", "its key", |row, _| row.key.clone()),
        Column::derived("tid", "tid", |row, _| Value::Signed(row.tid.into())),
        Column::derived("comm", "comm", |row, _| Value::Comm(row.comm)),
    ],
)
.snapshot()
.explained(&[
    ("start", "the event that would begin the pairs"),
    ("open", "how many have not ended yet"),
    ("unseen", "where events of the run went unseen: how many have not been seen to end"),
    ("oldest_ns", "the age of the oldest"),
    ("key", "its key"),
    ("tid", "its thread"),
    ("comm", "and the name of that"),
])
.ordered(|one, other| (Reverse(one.oldest_ns), &one.start).cmp(&(Reverse(other.oldest_ns), &other.start)));

/// The worst case of a row since the start of the run, with `--worst`.
#[derive(Clone, Debug)]
pub struct WorstRow {
    pub key: Value,
    pub start: Arc<str>,
    pub end: Arc<str>,
    pub case: WorstCase,
}

/// With callchains each row has the stack of the start.
pub static WORST: Schema<WorstRow> = worst(WORST_COLUMNS.split_at(8).0);
pub static WORST_WITH_STACKS: Schema<WorstRow> = worst(WORST_COLUMNS);

const WORST_COLUMNS: &[Column<WorstRow>] = &[
    Column::<WorstRow>::label("key", "key", |row| row.key.clone()).if_any(),
    Column::label("start", "worst of", |row| Value::Text(row.start.clone())),
    Column::label("end", "=> end", |row| Value::Text(row.end.clone())),
    Column::<WorstRow>::derived("max_ns", "max us", |row, _| Value::Us(row.case.ns)).us(),
    Column::derived("max_time_ns", "at", |row, _| Value::Moment(row.case.at_ns)),
    Column::derived("cpu", "cpu", |row, _| Value::Unsigned(row.case.cpu.into())),
    Column::derived("tid", "tid", |row, _| Value::Signed(row.case.tid.into())),
    Column::derived("comm", "comm", |row, _| Value::Comm(row.case.comm)),
    Column::stack(|row| &mut row.case.stack),
];

const fn worst(columns: &'static [Column<WorstRow>]) -> Schema<WorstRow> {
    Schema::<WorstRow>::new("worst", columns)
        .snapshot()
        .rests_on(Basis::Run)
        .explained(&[
            ("key", "with `--perins`: what the two events have in common"),
            ("start", "the event that began it"),
            ("end", "the event that ended it"),
            ("max_ns", "the longest of the run so far"),
            ("max_time_ns", "when it ended"),
            ("cpu", "the CPU on which it ended"),
            ("tid", "the thread that was current at the start"),
            ("comm", "and its name"),
        ])
        .ordered(|one, other| (Reverse(one.case.ns), one.case.at_ns).cmp(&(Reverse(other.case.ns), other.case.at_ns)))
}

/// One pair that `--than` or `--lower` selects.
#[derive(Debug)]
pub struct ShownDelay {
    pub delay_ns: u64,
    pub start: Arc<str>,
    pub end: Arc<str>,
    pub key: Value,
    /// The end has not come yet.
    pub is_open: bool,
    /// The task that was current at the end, and its CPU.
    pub ended_by: Option<(i32, Comm, u32)>,
    /// Records around the pair are not kept any more.
    pub is_truncated: bool,
}

pub static DELAY: OccurrenceSchema<ShownDelay> = OccurrenceSchema::<ShownDelay>::new(DETAILS, LINE).grouped(GroupBy {
    noun: "delay",
    same: &["start", "end", "still_open"],
    place: "start",
    duration: "delay_ns",
    goes_on: "still_open",
});

/// A pair whose records follow: it is not folded with others.
pub static DELAY_WITH_RECORDS: OccurrenceSchema<ShownDelay> = OccurrenceSchema::<ShownDelay>::new(DETAILS, LINE);

const DETAILS: &[Detail<ShownDelay>] = &[
    Detail::new("delay_ns", |delay| Value::Us(delay.delay_ns)),
    Detail::new("start", |delay| Value::Text(delay.start.clone())),
    Detail::new("end", |delay| if delay.is_open { Value::None } else { Value::Text(delay.end.clone()) }),
    Detail::new("key", |delay| delay.key.clone()),
    Detail::new("still_open", |delay| Value::Bool(delay.is_open)),
    Detail::new("ended_by.tid", |delay| delay.ended_by.map_or(Value::None, |(tid, ..)| Value::Signed(tid.into()))),
    Detail::new("ended_by.comm", |delay| delay.ended_by.map_or(Value::None, |(_, comm, _)| Value::Comm(comm))),
    Detail::new("ended_by.cpu", |delay| delay.ended_by.map_or(Value::None, |(.., cpu)| Value::Unsigned(cpu.into()))),
    Detail::new("truncated", |delay| match delay.is_truncated {
        true => Value::Phrase { word: "truncated", text: "some of its records are not shown" },
        false => Value::None,
    }),
];

const LINE: &[crate::report::layout::LinePart] = &[
    detail("delay_ns").wide(12),
    text(" us  "),
    SUBJECT,
    text("  "),
    detail("start"),
    text(" => "),
    detail("end"),
    when("still_open", &[text("still open")]),
    detail("key").after(", key "),
    detail("ended_by.comm").after(", ended by "),
    detail("ended_by.tid").after(" "),
    detail("ended_by.cpu").between(" [", "]"),
    detail("truncated").after(", "),
];
