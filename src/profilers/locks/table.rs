//! The tables of `locks`, and the line of a wait.

use std::cmp::Reverse;

use crate::profilers::locks::lock::{LockId, LockKind, LockOf, LockUser};
use crate::relation::PairSums;
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{
    Cell, CellLookUps, Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, TaskNames, Value,
};
use crate::stats::{Began, Latency, TaskKey};
use crate::symbol::StackId;

/// The sums of a row besides lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockSums {
    /// Most tasks that waited at once.
    pub most: Option<u64>,
}

/// A row: waits for a lock, or for locks that some code takes.
#[derive(Clone, Debug)]
pub struct LockRow {
    pub of: LockOf,
    /// The lock, if it has a row of its own.
    pub lock: Value,
    pub sums: PairSums<LockSums>,
    /// The tasks that waits were behind.
    pub owners: TaskNames,
    pub open: OpenWaits,
}

/// Waits that go on as the interval ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenWaits {
    pub count: Option<u64>,
    pub oldest_ns: Option<u64>,
    /// Their time until now.
    pub ns: u64,
}

impl OpenWaits {
    pub fn add(&mut self, age_ns: u64) {
        self.count = Some(self.count.unwrap_or(0) + 1);
        self.oldest_ns = self.oldest_ns.max(Some(age_ns));
        self.ns += age_ns;
    }
}

impl LatencyRow for LockRow {
    fn latency(&self) -> &Latency {
        &self.sums.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.sums.latency
    }
}

/// A lock of the kernel: by its name where it is a variable that /proc/kallsyms lists, else by its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelLock(pub u64);

impl Cell for KernelLock {
    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        Some(look_ups.kernel_data(self.0).map_or(Value::Address(self.0), Value::Text))
    }
}

const COLUMNS: [Column<LockRow>; 20] = [
    Column::label("kind", "kind", |row| row.of.kind.value()),
    Column::latency_count("waits"),
    Column::latency_total(),
    Column::<LockRow>::latency_min().json_only(),
    Column::<LockRow>::latency_mean().json_only(),
    Column::<LockRow>::latency_stddev().json_only(),
    Column::<LockRow>::latency_p50().json_only(),
    Column::<LockRow>::latency_p95().json_only(),
    Column::<LockRow>::latency_p99().json_only(),
    Column::latency_max(),
    Column::<LockRow>::greatest("most", "most", |row| &mut row.sums.own.most),
    Column::<LockRow>::gauge("now", "now", |row| &mut row.open.count).if_any(),
    Column::<LockRow>::gauge("oldest_ns", "oldest us", |row| &mut row.open.oldest_ns).us().if_any(),
    Column::<LockRow>::counter("than", "than", |row| &mut row.sums.than).if_any(),
    Column::<LockRow>::names("behind", "behind", |row| &mut row.owners).if_any(),
    Column::<LockRow>::label("pid", "pid", |row| match row.of.lock {
        Some(LockId::Futex { pid, .. }) => Value::Signed(pid.into()),
        _ => Value::None,
    })
    .if_any(),
    Column::<LockRow>::label("lock", "lock", |row| row.lock.clone()).if_any(),
    Column::<LockRow>::place("place", "taken in", |row| &mut row.of.place).if_any(),
    Column::<LockRow>::counter("no_start", "no start", |row| &mut row.sums.no_start).if_any(),
    Column::<LockRow>::counter("before", "before", |row| &mut row.sums.before).json_only(),
];

const MEANINGS: [Meaning; 11] = [
    ("kind", "the kind of lock, and how it is taken"),
    ("most", "most tasks that waited for the lock at once"),
    ("now", "waits that go on as the interval ends"),
    ("oldest_ns", "the longest of those so far"),
    ("than", "of these, those as long as the limit of `--than` or longer"),
    ("behind", "the tasks that waits were behind, as far as events tell, those first that made others wait longest"),
    ("pid", "the process of a futex"),
    (
        "lock",
        "with `--addresses` the name or address of a lock of the kernel; of a futex its address; of a file its path",
    ),
    ("place", "the code that takes the lock of the kernel"),
    ("no_start", "waits that ended, too, but whose beginning was not seen"),
    ("before", "of these, those that began before the interval"),
];

fn longest_first(one: &LockRow, other: &LockRow) -> std::cmp::Ordering {
    let ns = |row: &LockRow| row.sums.latency.distribution.sum() + u128::from(row.open.ns);
    let rank = |row: &LockRow| (Reverse(ns(row)), row.of);
    rank(one).cmp(&rank(other))
}

/// A lock that many threads wait for has many waits; idle threads have few long ones.
fn most_first(one: &LockRow, other: &LockRow) -> std::cmp::Ordering {
    let waits = |row: &LockRow| Reverse(row.sums.latency.distribution.count());
    waits(one).cmp(&waits(other)).then_with(|| longest_first(one, other))
}

pub static LOCKS: Schema<LockRow> = Schema::<LockRow>::new("locks", &COLUMNS)
    .latencies()
    .titled("waits for locks")
    .explained(&MEANINGS)
    .ordered(longest_first);

pub static WAITS: Schema<LockRow> = Schema::<LockRow>::new("waits", &COLUMNS)
    .latencies()
    .titled("waits at futexes that may be no locks: conditions, semaphores, timers")
    .explained(&MEANINGS)
    .ordered(most_first);

/// The waits of a task for locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaiterSum {
    pub waits: u64,
    pub ns: u64,
    pub longest_ns: Option<u64>,
}

type WaiterRow = (TaskKey, WaiterSum);

pub static WAITERS: Schema<WaiterRow> = Schema::<WaiterRow>::new(
    "waiters",
    &[
        Column::counter("waits", "waits", |(_, sum)| &mut sum.waits),
        Column::<WaiterRow>::counter("total_ns", "total us", |(_, sum)| &mut sum.ns).us(),
        Column::<WaiterRow>::derived("pct", "%", |(_, sum), span_ns| Value::share(sum.ns, span_ns)).additive(),
        Column::<WaiterRow>::greatest("max_ns", "max us", |(_, sum)| &mut sum.longest_ns).us(),
        Column::TASK[0],
        Column::TASK[1],
        Column::TASK[2],
    ],
)
.explained(&[
    ("waits", "waits for locks that ended"),
    ("total_ns", "their time: those of several threads at once count each"),
    ("pct", "that time in percent of the interval"),
    ("max_ns", "the longest"),
])
.titled("who waited")
.ordered(|(one, less), (other, more)| more.ns.cmp(&less.ns).then(one.cmp(other)));

/// The occurrence of a wait that `--than` or `--lower` selects. Its subject is the waiter.
#[derive(Debug)]
pub struct SlowLock {
    pub ns: u64,
    pub kind: LockKind,
    pub lock: Value,
    pub place: Option<StackId>,
    /// Tasks that waited for the lock as this one began to.
    pub others: u32,
    pub owner: Option<LockUser>,
    pub began: Began,
    pub goes_on: bool,
}

pub static SLOW_LOCK: OccurrenceSchema<SlowLock> = OccurrenceSchema::<SlowLock>::new(
    &[
        Detail::new("duration_ns", |slow| Value::Us(slow.ns)),
        Detail::new("kind", |slow| slow.kind.value()),
        Detail::new("lock", |slow| slow.lock.clone()),
        Detail::new("place", |slow| slow.place.map_or(Value::None, Value::Place)),
        Detail::new("owner.tid", |slow| slow.owner.map_or(Value::None, |owner| Value::Signed(owner.tid.into()))),
        Detail::new("owner.pid", |slow| slow.owner.map_or(Value::None, |owner| Value::Signed(owner.pid.into()))),
        Detail::new("owner.comm", |slow| slow.owner.map_or(Value::None, |owner| Value::Comm(owner.comm))),
        Detail::new("others", |slow| if slow.others == 0 { Value::None } else { Value::Unsigned(slow.others.into()) }),
        Detail::new("still_open", |slow| Value::Bool(slow.goes_on)),
        Detail::new("since", |slow| Value::beginning(slow.began)),
    ],
    &[
        detail("duration_ns").wide(12),
        text(" us  "),
        SUBJECT,
        text("  "),
        detail("kind"),
        detail("lock").after(" "),
        detail("place").after(" in "),
        detail("owner.comm").after(", behind "),
        detail("owner.tid").after(" "),
        detail("others").between(", ", " more waiting"),
        when("still_open", &[text(", goes on")]),
        detail("since").between(" (at least: ", ")"),
    ],
)
.grouped(GroupBy {
    noun: "wait",
    same: &["kind", "lock", "still_open"],
    place: "place",
    duration: "duration_ns",
    goes_on: "still_open",
});
