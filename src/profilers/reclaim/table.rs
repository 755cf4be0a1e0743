//! The tables of `reclaim`, and the line of a long stall.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::host::MemoryPressure;
use crate::profilers::reclaim::stall::StallKind;
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{
    Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, TaskKeyRow, Unit, Value, WordSet,
};
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
    pub fn new(task: TaskKey, cgroup: Option<Arc<str>>, kind: StallKind) -> StallRow {
        let (latency, now) = (Latency::default(), None);
        StallRow { task, cgroup, kind, latency, reclaimed_bytes: 0, throttled_ns: 0, than: 0, no_start: 0, now }
    }

    fn total_ns(&self) -> u64 {
        u64::try_from(self.latency.distribution.sum()).unwrap_or(u64::MAX)
    }
}

pub fn named(name: &Option<Arc<str>>) -> Value {
    name.clone().map_or(Value::None, |name| Value::Path(name.as_bytes().into()))
}

const STALL_MEANINGS: [Meaning; 8] = [
    (
        "kind",
        "`direct reclaim`: the machine is short of memory; `cgroup reclaim`: the task's cgroup, or one above, is at its limit; \
         `node reclaim`; `compaction`: free memory is in too small pieces",
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
        Column::<StallRow>::label("comm", "comm", |row| match row.task.comm.is_empty() {
            true => Value::None,
            false => Value::Comm(row.task.comm),
        })
        .if_any(),
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

/// Pages of the machine that had to be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineFaults {
    pub refaults: u64,
    pub swapped_in: u64,
}

/// Whose stalls a row of pressure has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureOf {
    Machine,
    /// All tasks that are watched, where these are not all of the machine.
    Watched,
    Cgroup(Arc<str>),
}

/// The pressure on the memory of the machine, or of a cgroup.
#[derive(Clone, Debug)]
pub struct PressureRow {
    pub of: PressureOf,
    /// Time in which at least one task stalled.
    pub stalled_ns: u64,
    pub some_ns: Option<u64>,
    pub full_ns: Option<u64>,
    pub refaults: Option<u64>,
    pub swapped_in: Option<u64>,
    pub at_limit: Option<u64>,
    pub used_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// The cgroups above that had the limit.
    pub limit_of: WordSet,
}

impl PressureRow {
    pub fn of_all(
        of: PressureOf,
        stalled_ns: u64,
        pressure: Option<MemoryPressure>,
        faults: Option<MachineFaults>,
    ) -> PressureRow {
        PressureRow {
            of,
            stalled_ns,
            some_ns: pressure.map(|pressure| pressure.some_ns),
            full_ns: pressure.map(|pressure| pressure.full_ns),
            refaults: faults.map(|faults| faults.refaults),
            swapped_in: faults.map(|faults| faults.swapped_in),
            at_limit: None,
            used_bytes: None,
            limit_bytes: None,
            limit_of: WordSet::default(),
        }
    }

    /// Some task has stalled.
    pub fn is_any(&self) -> bool {
        self.stalled_ns > 0 || self.some_ns.is_some_and(|ns| ns > 0)
    }
}

pub static PRESSURES: Schema<PressureRow> = Schema::<PressureRow>::new(
    "pressure",
    &[
        Column::<PressureRow>::counter("stalled_ns", "stalled ms", |row| &mut row.stalled_ns).ns(),
        Column::derived("pct", "%", |row, span_ns| Value::share(row.stalled_ns, span_ns)),
        Column::<PressureRow>::known_counter("some_ns", "PSI some", |row| &mut row.some_ns).ns().if_any(),
        Column::<PressureRow>::known_counter("full_ns", "PSI full", |row| &mut row.full_ns).ns().if_any(),
        Column::<PressureRow>::known_counter("refaults", "refaults", |row| &mut row.refaults).if_any(),
        Column::<PressureRow>::known_counter("swapped_in", "swap ins", |row| &mut row.swapped_in).if_any(),
        Column::<PressureRow>::known_counter("at_limit", "at limit", |row| &mut row.at_limit).if_any(),
        Column::<PressureRow>::gauge("used_bytes", "used", |row| &mut row.used_bytes).in_unit(Unit::Bytes).json_only(),
        Column::<PressureRow>::derived("used_pct", "used %", |row, _| match (row.used_bytes, row.limit_bytes) {
            (Some(used), Some(limit)) => Value::share(used, limit),
            _ => Value::None,
        })
        .if_any(),
        Column::<PressureRow>::gauge("limit_bytes", "limit", |row| &mut row.limit_bytes).in_unit(Unit::Bytes).if_any(),
        Column::<PressureRow>::words("limit_of", "limit of", |row| &mut row.limit_of).if_any(),
        Column::label("cgroup", "cgroup", |row| match &row.of {
            PressureOf::Cgroup(name) => Value::Path(name.as_bytes().into()),
            PressureOf::Machine => Value::Phrase { word: "", text: "(machine)" },
            PressureOf::Watched => Value::Phrase { word: "", text: "(all watched)" },
        }),
    ],
)
.explained(&[
    ("stalled_ns", "the time in which at least one task stalled: several at once count once"),
    ("pct", "that time in percent of the interval"),
    ("some_ns", "the kernel's own measure of it, PSI: `some` in `memory.pressure`; a cgroup of version 1 has none"),
    ("full_ns", "PSI: all tasks that had something to do stalled"),
    ("refaults", "pages that were reclaimed a short time ago, and are needed again: a sign of thrashing"),
    ("swapped_in", "pages read from swap"),
    ("at_limit", "how often an allocation met the limit"),
    ("used_bytes", "what is used of the limit as the interval ends"),
    ("used_pct", "the share of the limit that is used"),
    ("limit_bytes", "the fullest limit that applies"),
    ("limit_of", "the cgroup above that has this limit; of the whole run all that had"),
    (
        "cgroup",
        "the cgroup whose tasks stalled; empty: all tasks that are watched. The kernel's own numbers are of the whole \
         cgroup, or of the machine, and missing where the machine is watched in part",
    ),
])
.titled("pressure on memory")
.ordered(|one, other| {
    let rank = |row: &PressureRow| (matches!(row.of, PressureOf::Cgroup(_)), Reverse(row.stalled_ns), row.of.clone());
    rank(one).cmp(&rank(other))
});

/// A thread of the kernel that frees or joins memory, by the start of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReclaimWorker {
    Kswapd,
    Kcompactd,
    Khugepaged,
}

impl ReclaimWorker {
    pub const ALL: [ReclaimWorker; 3] = [ReclaimWorker::Kswapd, ReclaimWorker::Kcompactd, ReclaimWorker::Khugepaged];

    pub fn word(self) -> &'static str {
        match self {
            ReclaimWorker::Kswapd => "kswapd",
            ReclaimWorker::Kcompactd => "kcompactd",
            ReclaimWorker::Khugepaged => "khugepaged",
        }
    }
}

/// What tasks, or the kernel's threads, did to free memory.
#[derive(Clone, Debug)]
pub struct WorkerRow {
    /// None: the tasks that stall for it.
    pub worker: Option<ReclaimWorker>,
    pub cpu_ns: Option<u64>,
    pub scanned_bytes: Option<u64>,
    pub reclaimed_bytes: Option<u64>,
    /// Huge pages.
    pub made: Option<u64>,
}

impl WorkerRow {
    /// It has looked for memory.
    pub fn is_any(&self) -> bool {
        [self.scanned_bytes, self.made].iter().flatten().any(|number| *number > 0)
    }
}

pub static WORKERS: Schema<WorkerRow> = Schema::<WorkerRow>::new(
    "workers",
    &[
        Column::label("worker", "worker", |row| Value::Word(row.worker.map_or("direct reclaim", ReclaimWorker::word))),
        Column::<WorkerRow>::known_counter("cpu_ns", "CPU ms", |row| &mut row.cpu_ns).ns(),
        Column::derived("pct", "%", |row, span_ns| row.cpu_ns.map_or(Value::None, |ns| Value::share(ns, span_ns))),
        Column::<WorkerRow>::known_counter("scanned_bytes", "scanned", |row| &mut row.scanned_bytes)
            .in_unit(Unit::Bytes),
        Column::<WorkerRow>::known_counter("reclaimed_bytes", "reclaimed", |row| &mut row.reclaimed_bytes)
            .in_unit(Unit::Bytes),
        Column::derived("efficiency_pct", "efficiency %", |row, _| match (row.reclaimed_bytes, row.scanned_bytes) {
            (Some(reclaimed), Some(scanned)) => Value::share(reclaimed, scanned),
            _ => Value::None,
        }),
        Column::<WorkerRow>::known_counter("made", "huge pages", |row| &mut row.made).if_any(),
    ],
)
.explained(&[
    ("worker", "`direct reclaim`: the tasks that stall; `kswapd`, `kcompactd`, `khugepaged`: threads of the kernel"),
    ("cpu_ns", "CPU time of the threads"),
    ("pct", "that time in percent of one CPU's"),
    ("scanned_bytes", "memory that they looked at, for the machine: what cgroups reclaim of their own is not in it"),
    ("reclaimed_bytes", "of it, what they freed"),
    ("efficiency_pct", "the share of it: where it is small, memory is in use"),
    ("made", "huge pages that khugepaged made"),
])
.titled("who frees memory for the machine")
.ordered(|one, other| one.worker.cmp(&other.worker));

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
