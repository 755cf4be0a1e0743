//! The tables: waits by kind, the tasks they were behind, the queue of each CPU, and the tasks that wait now.

use std::sync::Arc;

use crate::host::cpu_ranges;
use crate::profilers::rundelay::cells::{CpuRunner, RunnerKind, Runners, TaskPriority, ThreadProcess};
use crate::profilers::rundelay::confined::ConfinedWait;
use crate::profilers::rundelay::line::{kind, since};
use crate::report::{Column, LatencyRow, Meaning, Schema, Value};
use crate::sched::{CpuUse, RunDelayKind};
use crate::stats::{Began, Latency, SumKey};
use crate::task::children::of_parent;
use crate::task::{Children, Comm};

/// Waits of one kind, with `--perins` of one kind and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunDelayKey {
    pub kind: RunDelayKind,
    pub thread: Option<(i32, Comm)>,
}

impl SumKey for RunDelayKey {
    fn others(&self) -> RunDelayKey {
        RunDelayKey { kind: self.kind, thread: Some((-1, Comm::new(b"<others>"))) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct DelaySum {
    pub latency: Latency,
    /// Waits of `--than` or longer.
    pub than: u64,
    /// Waits that began in an earlier interval.
    pub earlier: u64,
    /// With `--perins`: the process of the thread.
    pub process: Option<ThreadProcess>,
}

#[derive(Clone, Debug)]
pub struct RunDelayRow {
    pub key: RunDelayKey,
    pub sum: DelaySum,
    /// Tasks that wait now.
    pub now: Option<u64>,
}

impl LatencyRow for RunDelayRow {
    fn latency(&self) -> &Latency {
        &self.sum.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.sum.latency
    }
}

const KIND: Column<RunDelayRow> = Column::label("kind", "kind", |row| kind(row.key.kind));
const THAN: Column<RunDelayRow> = Column::<RunDelayRow>::counter("than", "than", |row| &mut row.sum.than).if_any();
const EARLIER: Column<RunDelayRow> =
    Column::<RunDelayRow>::counter("earlier", "earlier", |row| &mut row.sum.earlier).if_any();
const NOW: Column<RunDelayRow> = Column::<RunDelayRow>::gauge("now", "now", |row| &mut row.now).if_any();

const MEANINGS: [Meaning; 6] = [
    ("pid", "its process, where it is not the first thread of that"),
    ("process", "the name of that process"),
    ("kind", "`woken`, `new`, `preempted` or `yielded`: why the task waited for a CPU"),
    ("than", "waits of `--than` or longer"),
    ("earlier", "waits that began in an earlier interval"),
    ("now", "tasks that wait at the end of the interval"),
];

/// The first four columns are about a thread.
const COLUMNS: &[Column<RunDelayRow>] = &[
    Column::label("tid", "tid", |row| row.key.thread.map_or(Value::None, |(tid, _)| tid_or_none(tid))),
    Column::label("comm", "comm", |row| row.key.thread.map_or(Value::None, |(_, comm)| Value::Comm(comm))),
    Column::<RunDelayRow>::derived("pid", "pid", |row, _| pid(row.sum.process)).if_any(),
    Column::<RunDelayRow>::derived("process", "process", |row, _| process(row.sum.process)).if_any(),
    KIND,
    Column::latency_count("count"),
    Column::latency_total(),
    Column::latency_min(),
    Column::latency_mean().json_only(),
    Column::latency_stddev().json_only(),
    Column::latency_p50(),
    Column::latency_p95(),
    Column::latency_p99(),
    Column::latency_max(),
    THAN,
    EARLIER,
    NOW,
];

pub static DELAYS_OF_ALL: Schema<RunDelayRow> = Schema::<RunDelayRow>::new("delays", COLUMNS.split_at(4).1)
    .latencies()
    .explained(MEANINGS.split_at(2).1)
    .settled(settle)
    .titled("waits for a CPU")
    .ordered(|one, other| one.key.cmp(&other.key));

pub static DELAYS_OF_THREADS: Schema<RunDelayRow> = Schema::<RunDelayRow>::new("threads", COLUMNS)
    .latencies()
    .explained(&MEANINGS)
    .settled(settle)
    .titled("waits for a CPU")
    .ordered(|one, other| {
        let total = |row: &RunDelayRow| row.sum.latency.distribution.sum();
        total(other).cmp(&total(one)).then(one.key.cmp(&other.key))
    });

/// Where the last interval has no row of a kind, no task is in such a wait.
fn settle(rows: &mut [RunDelayRow]) {
    rows.iter_mut().for_each(|row| row.now = row.now.or(Some(0)));
}

fn pid(process: Option<ThreadProcess>) -> Value {
    process.map_or(Value::None, |process| Value::Signed(process.pid.into()))
}

fn process(process: Option<ThreadProcess>) -> Value {
    process.map_or(Value::None, |process| Value::Comm(process.comm))
}

fn tid_or_none(tid: i32) -> Value {
    if tid < 0 { Value::None } else { Value::Signed(tid.into()) }
}

/// The use of the CPU while tasks waited for it. None: other tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BehindKey(pub Option<CpuUse>);

impl SumKey for BehindKey {
    fn others(&self) -> BehindKey {
        BehindKey(None)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct BehindSum {
    pub waits: u64,
    pub ns: u64,
}

/// How long others waited behind a task.
#[derive(Clone, Copy, Debug)]
pub struct BehindRow {
    pub who: RunnerKind,
    pub sum: BehindSum,
    /// Of short-lived processes, which share a row: the name of their parent, and their number.
    pub parent: Option<Comm>,
    pub children: u64,
}

pub static BEHIND: Schema<BehindRow> = Schema::<BehindRow>::new(
    "behind",
    &[
        Column::<BehindRow>::counter("waited_ns", "waited us", |row| &mut row.sum.ns).us(),
        Column::counter("waits", "waits", |row| &mut row.sum.waits),
        Column::label("tid", "tid", |row| match row.who {
            RunnerKind::Task { tid, .. } if row.parent.is_none() => Value::Signed(tid.into()),
            _ => Value::None,
        }),
        Column::<BehindRow>::label("comm", "", |row| runner(row.who)).json_only(),
        Column::<BehindRow>::label("name", "behind", |row| match (row.who, row.parent) {
            (RunnerKind::Task { comm, .. }, Some(parent)) => Value::Text(of_parent(comm, parent).into()),
            (who, _) => runner(who),
        })
        .text_only(),
        Column::<BehindRow>::label("parent", "", |row| row.parent.map_or(Value::None, Value::Comm)).json_only(),
        Column::<BehindRow>::derived("children", "short-lived", |row, _| {
            row.parent.map_or(Value::None, |_| Value::Unsigned(row.children))
        })
        .if_any(),
        Column::<BehindRow>::counter("count", "", |row| &mut row.children).hidden(),
        Column::<BehindRow>::derived("pid", "pid", |row, _| pid(row.who.process())).if_any(),
        Column::<BehindRow>::derived("process", "process", |row, _| process(row.who.process())).if_any(),
        Column::label("policy", "policy", |row| match priority(row.who).0 {
            Some(policy) => Value::Word(policy),
            None => Value::None,
        }),
        Column::label("priority", "priority", |row| match priority(row.who).1 {
            Some(priority) => Value::Signed(priority.into()),
            None => Value::None,
        }),
    ],
)
.explained(&[
    ("waited_ns", "time for which tasks waited while this one had their CPU; they add up to the waits of the interval"),
    ("waits", "in how many waits it had a part"),
    ("tid", "the thread that had the CPU"),
    ("comm", "its name; `<idle>`: none had it, `<unseen>`: not known"),
    ("name", "the same; `cc1, of make`: short-lived processes of one name, and who has made them"),
    ("parent", "of short-lived processes, the name of who has made them"),
    ("children", "the number of short-lived processes that share the row"),
    ("pid", "its process, where it is not the first thread of that"),
    ("process", "the name of that process"),
    ("policy", "`nice`, `FIFO`, `RR`, `RT` (one of these two) or `DEADLINE`"),
    ("priority", "its nice value, or its real-time priority"),
])
.titled("behind whom")
.ordered(|one, other| other.sum.ns.cmp(&one.sum.ns).then(order(one.who).cmp(&order(other.who))));

fn runner(who: RunnerKind) -> Value {
    match who {
        RunnerKind::Task { comm, .. } => Value::Comm(comm),
        RunnerKind::Idle => Value::Word("<idle>"),
        RunnerKind::Unseen => Value::Word("<unseen>"),
        RunnerKind::Others(_) => Value::Word("<others>"),
    }
}

/// Short-lived processes of one name and parent, and of one priority, have one row.
pub fn fold_short_lived(rows: impl Iterator<Item = BehindRow>, children: &Children) -> Vec<BehindRow> {
    let pid = |row: &BehindRow| match row.who {
        RunnerKind::Task { tid, process, .. } => process.map_or(tid, |process| process.pid),
        _ => -1,
    };
    let group = |row: &BehindRow, parent| match row.who {
        RunnerKind::Task { comm, priority, .. } => (RunnerKind::Task { tid: 0, comm, process: None, priority }, parent),
        who => (who, parent),
    };
    children.fold(rows, pid, group, |(who, parent), rows, children| {
        let add = |sum: BehindSum, row: &BehindRow| BehindSum {
            waits: sum.waits + row.sum.waits,
            ns: sum.ns.saturating_add(row.sum.ns),
        };
        let sum = rows.iter().fold(BehindSum::default(), add);
        BehindRow { who, sum, parent: Some(parent), children }
    })
}

fn priority(who: RunnerKind) -> (Option<&'static str>, Option<i32>) {
    match who {
        RunnerKind::Task { priority: TaskPriority::Nice(nice), .. } => (Some("nice"), Some(nice)),
        RunnerKind::Task { priority: TaskPriority::RealTime(policy, priority), .. } => (Some(policy), Some(priority)),
        RunnerKind::Task { priority: TaskPriority::Deadline, .. } => (Some("DEADLINE"), None),
        _ => (None, None),
    }
}

fn order(who: RunnerKind) -> (i32, Option<i32>) {
    match who {
        RunnerKind::Task { tid, .. } => (tid, priority(who).1),
        RunnerKind::Idle => (0, None),
        RunnerKind::Unseen => (-1, None),
        RunnerKind::Others(_) => (-2, None),
    }
}

/// The queue of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    pub cpu: u32,
    pub now: Option<u64>,
    pub most: Option<u64>,
    /// The number of waiting tasks integrated over time, ns.
    pub waited_ns: u64,
}

pub static QUEUES: Schema<QueueRow> = Schema::<QueueRow>::new(
    "queue",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::gauge("waiting", "waiting now", |row| &mut row.now),
        Column::greatest("most", "at most", |row| &mut row.most),
        // `Pct` prints a number with two decimals.
        Column::derived("average", "on average", |row, span_ns| {
            Value::Pct((u128::from(row.waited_ns) * 100 / u128::from(span_ns.max(1))) as u32)
        }),
        Column::<QueueRow>::counter("waited_ns", "waited us", |row| &mut row.waited_ns).us().json_only(),
    ],
)
.explained(&[
    ("waiting", "tasks that wait for the CPU at the end of the interval, without the one that runs"),
    ("most", "how many waited at once"),
    ("average", "how many waited, on average over time"),
    ("waited_ns", "the sum of their time"),
])
.titled("run queues")
.ordered(|one, other| one.cpu.cmp(&other.cpu));

/// A task that waits when the interval ends.
#[derive(Clone, Debug)]
pub struct WaitingTaskRow {
    pub tid: i32,
    pub comm: Comm,
    pub process: Option<ThreadProcess>,
    pub cpu: u32,
    pub kind: RunDelayKind,
    pub began: Began,
    pub waited_ns: u64,
    /// The tasks that have had the CPU so far.
    pub ran: Arc<[CpuRunner]>,
}

pub static WAITING: Schema<WaitingTaskRow> = Schema::<WaitingTaskRow>::new(
    "waiting",
    &[
        Column::<WaitingTaskRow>::derived("waited_ns", "waited us", |row, _| Value::Us(row.waited_ns)).us(),
        Column::label("tid", "tid", |row| Value::Signed(row.tid.into())),
        Column::label("comm", "comm", |row| Value::Comm(row.comm)),
        Column::<WaitingTaskRow>::derived("pid", "pid", |row, _| pid(row.process)).if_any(),
        Column::<WaitingTaskRow>::derived("process", "process", |row, _| process(row.process)).if_any(),
        Column::derived("cpu", "CPU", |row, _| Value::Unsigned(row.cpu.into())),
        Column::derived("kind", "kind", |row, _| kind(row.kind)),
        Column::<WaitingTaskRow>::derived("since", "since", |row, _| since(row.began)).json_only(),
        Column::derived("ran", "behind", |row, _| Value::cell(Runners(row.ran.clone()))),
    ],
)
.explained(&[
    ("waited_ns", "how long it has waited so far"),
    ("pid", "its process, where it is not the first thread of that"),
    ("process", "the name of that process"),
    ("cpu", "the CPU that it waits for"),
    ("kind", "why it waits; not known of a task that was found waiting"),
    ("since", "`before_start` or `before_loss`: it has waited at least so long"),
    ("ran", "who has had the CPU so far, as in the lines"),
])
.titled("waiting now")
.ordered(|one, other| other.waited_ns.cmp(&one.waited_ns).then(one.tid.cmp(&other.tid)))
.snapshot();

/// The longest wait of a kind in the run so far.
#[derive(Clone, Debug)]
pub struct LongestWaitRow {
    pub waited_ns: u64,
    pub until: u64,
    pub kind: RunDelayKind,
    pub tid: i32,
    pub comm: Comm,
    pub process: Option<ThreadProcess>,
    pub cpu: u32,
    pub confined: Option<ConfinedWait>,
    pub ran: Arc<[CpuRunner]>,
}

pub static LONGEST: Schema<LongestWaitRow> = Schema::<LongestWaitRow>::new(
    "longest",
    &[
        Column::<LongestWaitRow>::derived("waited_ns", "waited us", |row, _| Value::Us(row.waited_ns)).us(),
        Column::derived("until", "until", |row, _| Value::Moment(row.until)),
        Column::label("kind", "kind", |row| kind(row.kind)),
        Column::derived("tid", "tid", |row, _| Value::Signed(row.tid.into())),
        Column::derived("comm", "comm", |row, _| Value::Comm(row.comm)),
        Column::<LongestWaitRow>::derived("pid", "pid", |row, _| pid(row.process)).if_any(),
        Column::<LongestWaitRow>::derived("process", "process", |row, _| process(row.process)).if_any(),
        Column::derived("cpu", "CPU", |row, _| Value::Unsigned(row.cpu.into())),
        Column::<LongestWaitRow>::derived("allowed_cpus", "allowed", |row, _| {
            row.confined.as_ref().map_or(Value::None, |confined| Value::Text(cpu_ranges(&confined.cpus).into()))
        })
        .if_any(),
        Column::derived("ran", "behind", |row, _| Value::cell(Runners(row.ran.clone()))),
    ],
)
.explained(&[
    ("waited_ns", "the longest wait of its kind in the run so far"),
    ("until", "when it ended"),
    ("kind", "why it waited"),
    ("pid", "the process of the thread, where it is not the first one of that"),
    ("process", "the name of that process"),
    ("cpu", "the CPU that the task got"),
    ("allowed_cpus", "the CPUs that the task may use, where another one was idle meanwhile"),
    ("ran", "who had the CPU in the meantime, as in the lines"),
])
.titled("longest waits so far")
.ordered(|one, other| other.waited_ns.cmp(&one.waited_ns).then(one.kind.cmp(&other.kind)))
.snapshot();

/// A cgroup with a CPU quota whose tasks have waited.
#[derive(Clone, Debug)]
pub struct QuotaRow {
    pub cgroup: Arc<str>,
    pub quota_ns: u64,
    pub period_ns: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub throttled_ns: u64,
    pub queued_ns: u64,
    /// Periods in which the cgroup was throttled.
    pub times: u64,
}

pub static QUOTAS: Schema<QuotaRow> = Schema::<QuotaRow>::new(
    "quotas",
    &[
        Column::counter("waits", "waits", |row| &mut row.waits),
        Column::<QuotaRow>::counter("waited_ns", "waited us", |row| &mut row.waited_ns).us(),
        Column::<QuotaRow>::counter("throttled_ns", "throttled us", |row| &mut row.throttled_ns).us(),
        Column::<QuotaRow>::counter("queued_ns", "queued us", |row| &mut row.queued_ns).us(),
        Column::counter("times", "times", |row| &mut row.times),
        Column::<QuotaRow>::label("quota_ns", "quota ms", |row| Value::Ns(row.quota_ns)),
        Column::<QuotaRow>::label("period_ns", "of ms", |row| Value::Ns(row.period_ns)),
        Column::label("cgroup", "cgroup", |row| Value::Text(row.cgroup.clone())),
    ],
)
.explained(&[
    ("waits", "waits of a millisecond or longer of its tasks"),
    ("waited_ns", "their sum"),
    ("throttled_ns", "the part of that for which the cgroup had used up its quota"),
    ("queued_ns", "the rest: others had the CPU"),
    ("times", "periods in which it was throttled, by cpu.stat"),
    ("quota_ns", "CPU time that it may use in each period"),
    ("period_ns", "the period"),
    ("cgroup", "the nearest cgroup of these tasks that has a quota"),
])
.titled("cgroups with a CPU quota")
.ordered(|one, other| other.waited_ns.cmp(&one.waited_ns).then_with(|| one.cgroup.cmp(&other.cgroup)));
