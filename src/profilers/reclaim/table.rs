//! The tables of `reclaim`, and the line of a long stall.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::profilers::reclaim::stall::StallKind;
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, TaskKeyRow, Unit, Value};
use crate::stats::{Latency, TaskKey};

/// Stalls of one kind of a task, or of all tasks of a process, name or cgroup.
#[derive(Clone, Debug)]
pub struct StallRow {
    pub task: TaskKey,
    pub cgroup: Option<Arc<str>>,
    pub kind: StallKind,
    pub latency: Latency,
    pub reclaimed_bytes: u64,
    pub throttled_ns: u64,
    pub than: u64,
    pub no_start: u64,
    /// Stalls that go on.
    pub now: Option<u64>,
}

impl LatencyRow for StallRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

impl TaskKeyRow for StallRow {
    fn task(&self) -> &TaskKey {
        &self.task
    }
}

impl StallRow {
    fn total_ns(&self) -> u64 {
        u64::try_from(self.latency.distribution.sum()).unwrap_or(u64::MAX)
    }
}

fn named(name: &Option<Arc<str>>) -> Value {
    name.clone().map_or(Value::None, |name| Value::Path(name.as_bytes().into()))
}

const STALL_MEANINGS: [Meaning; 8] = [
    (
        "kind",
        "`direct reclaim`: the machine is short of memory; `cgroup reclaim`: the task's cgroup, or one above, is at its limit; \
         `soft limit`, `node reclaim`; `compaction`: free memory is in too small pieces",
    ),
    ("pct", "their time in percent of the interval: threads that stall at once count each"),
    ("reclaimed_bytes", "what they took from others, or from their cgroup"),
    ("throttled_ns", "of their time, that slept because reclaim made no progress"),
    ("cgroup", "the cgroup whose memory limit applies"),
    ("than", "of these, those as long as the limit of `--than` or longer"),
    ("no_start", "ended, too, but their beginning was not seen"),
    ("now", "stalls that go on as the interval ends"),
];

pub static STALLS: Schema<StallRow> = Schema::<StallRow>::new(
    "stalls",
    &[
        Column::label("kind", "kind", |row| row.kind.value()),
        Column::latency_count("count"),
        Column::latency_total(),
        Column::<StallRow>::derived("pct", "%", |row, span_ns| Value::share(row.total_ns(), span_ns)).additive(),
        Column::<StallRow>::latency_min().json_only(),
        Column::<StallRow>::latency_mean().json_only(),
        Column::<StallRow>::latency_stddev().json_only(),
        Column::<StallRow>::latency_p50().json_only(),
        Column::<StallRow>::latency_p95().json_only(),
        Column::<StallRow>::latency_p99().json_only(),
        Column::latency_max(),
        Column::<StallRow>::counter("reclaimed_bytes", "reclaimed", |row| &mut row.reclaimed_bytes)
            .in_unit(Unit::Bytes),
        Column::<StallRow>::counter("throttled_ns", "slept us", |row| &mut row.throttled_ns).us().if_any(),
        Column::<StallRow>::counter("than", "than", |row| &mut row.than).if_any(),
        Column::<StallRow>::counter("no_start", "no start", |row| &mut row.no_start).if_any(),
        Column::<StallRow>::gauge("now", "now", |row| &mut row.now).if_any(),
        Column::TASK[0],
        Column::TASK[1],
        Column::TASK[2],
        Column::<StallRow>::label("cgroup", "cgroup", |row| named(&row.cgroup)).if_any(),
    ],
)
.latencies()
.explained(&STALL_MEANINGS)
.titled("who stalls for memory")
.settled(|rows| rows.iter_mut().for_each(|row| row.now = row.now.or(Some(0))))
.ordered(|one, other| {
    let rank = |row: &StallRow| (Reverse(row.latency.distribution.sum()), row.task, row.cgroup.clone(), row.kind);
    rank(one).cmp(&rank(other))
});

/// The occurrence of a stall that `--than` or `--lower` selects.
#[derive(Debug)]
pub struct LongStall {
    pub ns: u64,
    pub kind: StallKind,
    pub order: Option<i64>,
    pub gfp_flags: Option<Arc<str>>,
    pub reclaimed_bytes: Option<u64>,
    pub throttled_ns: u64,
    pub cgroup: Option<Arc<str>>,
    pub goes_on: bool,
}

pub static LONG_STALL: OccurrenceSchema<LongStall> = OccurrenceSchema::<LongStall>::new(
    &[
        Detail::new("duration_ns", |stall| Value::Us(stall.ns)),
        Detail::new("kind", |stall| stall.kind.value()),
        Detail::new("order", |stall| stall.order.map_or(Value::None, Value::Signed)),
        Detail::new("gfp_flags", |stall| stall.gfp_flags.clone().map_or(Value::None, Value::Text)),
        Detail::new("reclaimed_bytes", |stall| stall.reclaimed_bytes.map_or(Value::None, Value::Unsigned)),
        Detail::new("throttled_ns", |stall| match stall.throttled_ns {
            0 => Value::None,
            ns => Value::Us(ns),
        }),
        Detail::new("cgroup", |stall| named(&stall.cgroup)),
        Detail::new("still_open", |stall| Value::Bool(stall.goes_on)),
    ],
    &[
        detail("duration_ns").wide(12),
        text(" us  "),
        SUBJECT,
        text("  "),
        detail("kind"),
        detail("order").after(", order "),
        detail("gfp_flags").after(" "),
        detail("reclaimed_bytes").between(", ", " bytes reclaimed"),
        detail("throttled_ns").between(", slept ", " us"),
        detail("cgroup").after(", in "),
        when("still_open", &[text(", goes on")]),
    ],
)
.grouped(GroupBy {
    noun: "stall",
    same: &["kind", "order", "cgroup", "still_open"],
    place: "kind",
    duration: "duration_ns",
    goes_on: "still_open",
});
