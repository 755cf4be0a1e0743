//! The rows of the tables, in ns and samples. The shares that are shown, for an interval or the whole run, are derived.

use std::cmp::{Ordering, Reverse};

use rustc_hash::FxHashSet;

use crate::profilers::profile::shares::{Division, ExcludedModes, Shares, hundredths, rounded, share_value};
use crate::report::{Column, Schema, Unit, Value, Verdict};
use crate::task::Comm;
use crate::task::children::of_parent;

/// Most rows of a ranked table in text.
pub const LISTED: usize = 10;

/// One CPU.
#[derive(Clone, Debug)]
pub struct CpuUsageRow {
    pub cpu: u32,
    pub division: Division,
    pub excluded: ExcludedModes,
    /// Time in hard interrupts and softirqs, as parts of `told_ns`: the time for which /proc/stat is known.
    pub irq_ns: u64,
    pub softirq_ns: u64,
    pub told_ns: u64,
    pub samples: u64,
    /// Samples in busy time of known length, and that time.
    pub timed_samples: u64,
    pub timed_ns: u64,
    pub wanted_hz: Option<u64>,
    pub period: Option<u64>,
    pub throttled: u64,
}

pub static CPUS: Schema<CpuUsageRow> = Schema::<CpuUsageRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::derived("user_pct", "user %", |row, _| share_value(row.shares().user)),
        Column::derived("kernel_pct", "kernel %", |row, _| share_value(row.shares().kernel)),
        Column::derived("guest_pct", "guest %", |row, _| share_value(row.shares().guest)),
        Column::derived("idle_pct", "idle %", |row, _| share_value(row.shares().idle)),
        Column::<CpuUsageRow>::derived("irq_pct", "irq %", |row, _| row.interrupts(row.irq_ns)).if_any(),
        Column::<CpuUsageRow>::derived("softirq_pct", "softirq %", |row, _| row.interrupts(row.softirq_ns)).if_any(),
        Column::counter("samples", "samples", |row| &mut row.samples),
        Column::derived("achieved_hz", "Hz", |row, _| {
            achieved_hz(row.timed_samples, row.timed_ns).map_or(Value::None, Value::Unsigned)
        }),
        Column::<CpuUsageRow>::gauge("wanted_hz", "", |row| &mut row.wanted_hz).in_unit(Unit::Hz).json_only(),
        Column::<CpuUsageRow>::gauge("period", "", |row| &mut row.period).json_only(),
        Column::<CpuUsageRow>::counter("throttled", "", |row| &mut row.throttled).json_only(),
        Column::<CpuUsageRow>::counter("user", "", |row| &mut row.division.user).hidden(),
        Column::<CpuUsageRow>::counter("kernel", "", |row| &mut row.division.kernel).hidden(),
        Column::<CpuUsageRow>::counter("guest", "", |row| &mut row.division.guest).hidden(),
        Column::<CpuUsageRow>::counter("idle", "", |row| &mut row.division.idle).hidden(),
        Column::<CpuUsageRow>::counter("unsampled", "", |row| &mut row.division.unsampled).hidden(),
        Column::<CpuUsageRow>::counter("of", "", |row| &mut row.division.of).hidden(),
        Column::<CpuUsageRow>::counter("irq_ns", "", |row| &mut row.irq_ns).ns().hidden(),
        Column::<CpuUsageRow>::counter("softirq_ns", "", |row| &mut row.softirq_ns).ns().hidden(),
        Column::<CpuUsageRow>::counter("told_ns", "", |row| &mut row.told_ns).ns().hidden(),
        Column::<CpuUsageRow>::counter("timed_samples", "", |row| &mut row.timed_samples).hidden(),
        Column::<CpuUsageRow>::counter("timed_ns", "", |row| &mut row.timed_ns).ns().hidden(),
    ],
)
.explained(&[
    ("user_pct", "share of its time, or of the samples of the target on it, in programs; the four add up to 100"),
    ("kernel_pct", "in the kernel"),
    ("guest_pct", "in virtual machines that run here"),
    ("idle_pct", "idle, waiting for disks included"),
    ("irq_pct", "of its time, in hard interrupts, as /proc/stat says; in text where there was some"),
    ("softirq_pct", "the same in softirqs"),
    ("samples", "samples on that CPU, those of the idle task included"),
    ("achieved_hz", "samples per second of busy time; absent when that was under 0.3 s"),
    ("wanted_hz", "`-F`; absent with `-c`"),
    ("period", "`-c`; absent without"),
    ("throttled", "how often the kernel held back samples"),
    ("user", "part of `of` in programs"),
    ("kernel", "part of `of` in the kernel"),
    ("guest", "part of `of` in virtual machines"),
    ("idle", "part of `of` that was idle"),
    ("of", "what the parts are parts of: time in ns, or what the samples of the target stand for"),
]);

impl CpuUsageRow {
    fn shares(&self) -> Shares {
        self.division.shares(self.excluded)
    }

    fn interrupts(&self, ns: u64) -> Value {
        share_value((self.told_ns > 0).then(|| hundredths(ns as f64 / self.told_ns as f64)))
    }
}

/// Samples per second of busy time, if the busy time was long enough.
pub fn achieved_hz(busy_samples: u64, busy_ns: u64) -> Option<u64> {
    const ENOUGH_NS: u64 = 300_000_000; // /proc/stat counts in steps of 10 ms
    (busy_ns >= ENOUGH_NS).then(|| (busy_samples as f64 * 1e9 / busy_ns as f64).round() as u64)
}

/// The task or tasks to which the CPU time of a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuTimeOwner {
    /// A process, by one of its names.
    Process { pid: i32, comm: Comm },
    /// A thread, by its last name in the interval.
    Thread { pid: i32, tid: i32, comm: Comm },
    /// Short-lived processes, by the name of their parent. `comm`: the name that all of them have.
    Children { comm: Option<Comm>, parent: Comm },
}

impl CpuTimeOwner {
    /// The name; for children with several names, the name of their parent.
    pub fn comm(&self) -> Comm {
        match *self {
            CpuTimeOwner::Process { comm, .. } | CpuTimeOwner::Thread { comm, .. } => comm,
            CpuTimeOwner::Children { comm, parent } => comm.unwrap_or(parent),
        }
    }
}

/// A process, a thread, or children.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pub who: CpuTimeOwner,
    /// CPU time. None: unknown.
    pub ns: Option<u64>,
    /// The sampled part of the CPU time, by mode.
    pub user_ns: u64,
    pub kernel_ns: u64,
    pub guest_ns: u64,
    /// The time of softirqs that interrupted the task: a part of `kernel_ns`, unless the account leaves it out. None:
    /// samples do not tell it.
    pub softirq_ns: Option<u64>,
    pub excluded: ExcludedModes,
    pub samples: u64,
    /// Number of short-lived children.
    pub children: u64,
    /// Intervals in which the account measured the task, and in which samples did.
    pub by_account: u64,
    pub by_samples: u64,
    /// Intervals in which its samples stand for an unknown time, which `ns` does not include.
    pub unmeasured: u64,
}

const TID: Column<TaskRow> = Column::label("tid", "tid", |row| match row.who {
    CpuTimeOwner::Thread { tid, .. } => Value::Signed(tid.into()),
    _ => Value::None,
});
const PID: Column<TaskRow> = Column::label("pid", "pid", |row| match row.who {
    CpuTimeOwner::Process { pid, .. } | CpuTimeOwner::Thread { pid, .. } => Value::Signed(pid.into()),
    CpuTimeOwner::Children { .. } => Value::None,
});
const COMM: Column<TaskRow> = Column::<TaskRow>::label("comm", "", |row| Value::Comm(row.who.comm())).json_only();
const PARENT: Column<TaskRow> = Column::<TaskRow>::label("parent", "", |row| match row.who {
    CpuTimeOwner::Children { parent, .. } => Value::Comm(parent),
    _ => Value::None,
})
.json_only();
const NAME: Column<TaskRow> = Column::<TaskRow>::label("name", "comm", |row| match row.who {
    CpuTimeOwner::Process { comm, .. } | CpuTimeOwner::Thread { comm, .. } => Value::Comm(comm),
    CpuTimeOwner::Children { comm: Some(comm), parent } => Value::Text(of_parent(comm, parent).into()),
    CpuTimeOwner::Children { comm: None, parent } => {
        Value::Text(format!("children of {}", String::from_utf8_lossy(parent.as_bytes())).into())
    }
})
.text_only();
const CPU: Column<TaskRow> =
    Column::<TaskRow>::derived("pct", "CPU %", |row, span_ns| share_value(row.share(span_ns))).additive();
const USER: Column<TaskRow> =
    Column::derived("user_pct", "user %", |row, span_ns| share_value(row.parts(span_ns).user));
const KERNEL: Column<TaskRow> =
    Column::derived("kernel_pct", "kernel %", |row, span_ns| share_value(row.parts(span_ns).kernel));
const GUEST: Column<TaskRow> =
    Column::derived("guest_pct", "guest %", |row, span_ns| share_value(row.parts(span_ns).guest));
const SOFTIRQ: Column<TaskRow> =
    Column::<TaskRow>::derived("softirq_pct", "softirq %", |row, span_ns| share_value(row.softirqs(span_ns))).if_any();
const SAMPLES: Column<TaskRow> = Column::counter("samples", "samples", |row| &mut row.samples);
const MEASURED_BY: Column<TaskRow> = Column::derived("pct_by", "CPU % by", |row, _| {
    Value::Word(match (row.by_account, row.by_samples) {
        (0, _) => "samples",
        (_, 0) => "account",
        _ => "both",
    })
});
const CHILDREN: Column<TaskRow> = Column::<TaskRow>::derived("children", "short-lived", |row, _| match row.who {
    CpuTimeOwner::Children { .. } => Value::Unsigned(row.children),
    _ => Value::None,
})
.if_any();
const CPU_NS: Column<TaskRow> = Column::<TaskRow>::known_counter("cpu_ns", "", |row| &mut row.ns).ns().json_only();
const USER_NS: Column<TaskRow> = Column::<TaskRow>::counter("user_ns", "", |row| &mut row.user_ns).ns().hidden();
const KERNEL_NS: Column<TaskRow> = Column::<TaskRow>::counter("kernel_ns", "", |row| &mut row.kernel_ns).ns().hidden();
const GUEST_NS: Column<TaskRow> = Column::<TaskRow>::counter("guest_ns", "", |row| &mut row.guest_ns).ns().hidden();
const SOFTIRQ_NS: Column<TaskRow> =
    Column::<TaskRow>::known_counter("softirq_ns", "", |row| &mut row.softirq_ns).ns().hidden();
const COUNT: Column<TaskRow> = Column::<TaskRow>::counter("count", "", |row| &mut row.children).hidden();
const BY_ACCOUNT: Column<TaskRow> = Column::<TaskRow>::counter("by_account", "", |row| &mut row.by_account).hidden();
const BY_SAMPLES: Column<TaskRow> = Column::<TaskRow>::counter("by_samples", "", |row| &mut row.by_samples).hidden();
const UNMEASURED: Column<TaskRow> = Column::<TaskRow>::counter("unmeasured", "", |row| &mut row.unmeasured).hidden();

/// Explanations of the columns of threads; tasks lack the first column.
const MEANINGS: &[(&str, &str)] = &[
    ("tid", "the thread"),
    ("pid", "the process; absent for short-lived children"),
    (
        "comm",
        "its name when the samples were taken: there is a row before and one after an exec; of children of several names that of who has made them",
    ),
    ("parent", "of short-lived children, the name of who has made them"),
    ("name", "the same; `cc1, of make` where all children of the row have one name, else `children of make`"),
    ("pct", "CPU time, in per cent of one CPU: a process with four busy threads has 400"),
    ("user_pct", "what of it was in programs"),
    ("kernel_pct", "in the kernel"),
    ("guest_pct", "in virtual machines"),
    ("samples", "samples"),
    ("pct_by", "where the share comes from: `account`, `samples` or `both`"),
    ("children", "how many short-lived children the row is about; absent in others"),
    (
        "softirq_pct",
        "in softirqs that interrupted it, as sampled: a part of that in the kernel, unless the account leaves it out; absent where samples have no callchain",
    ),
    ("cpu_ns", "CPU time"),
    ("user_ns", "CPU time in programs, as sampled"),
    ("kernel_ns", "CPU time in the kernel, as sampled"),
    ("guest_ns", "CPU time in virtual machines, as sampled"),
    ("softirq_ns", "time in softirqs, as sampled"),
];

/// The columns of threads; tasks lack the first column.
const COLUMNS: &[Column<TaskRow>] = &[
    TID,
    PID,
    COMM,
    NAME,
    CPU,
    USER,
    KERNEL,
    GUEST,
    SAMPLES,
    MEASURED_BY,
    CHILDREN,
    SOFTIRQ,
    CPU_NS,
    USER_NS,
    KERNEL_NS,
    GUEST_NS,
    SOFTIRQ_NS,
    COUNT,
    BY_ACCOUNT,
    BY_SAMPLES,
    UNMEASURED,
    PARENT,
];

/// Rows by process, the greatest CPU time first.
pub static TASKS: Schema<TaskRow> = Schema::<TaskRow>::new("tasks", COLUMNS.split_at(1).1)
    .titled("tasks, % of one CPU")
    .explained(MEANINGS.split_at(1).1)
    .ordered(rank)
    .judged(TaskRow::verdict);

/// Rows by thread, the greatest CPU time first.
pub static THREADS: Schema<TaskRow> = Schema::<TaskRow>::new("threads", COLUMNS)
    .titled("threads, % of one CPU")
    .explained(MEANINGS)
    .ordered(rank)
    .judged(TaskRow::verdict);

fn rank(one: &TaskRow, other: &TaskRow) -> Ordering {
    let rank = |row: &TaskRow| (Reverse(row.ns), Reverse(row.samples), row.who);
    rank(one).cmp(&rank(other))
}

/// Whether several busy threads of one process are among the threads of an interval: then its row in the table of
/// processes does not tell which of them to look at.
pub fn share_a_process(threads: &[TaskRow], span_ns: u64) -> bool {
    let mut seen = FxHashSet::default();
    let mut busy = threads.iter().filter(|row| row.is_busy(span_ns));
    busy.any(|row| matches!(row.who, CpuTimeOwner::Thread { pid, .. } if pid > 0 && !seen.insert(pid)))
}

impl TaskRow {
    /// Whether it used a tenth of a CPU, if that is known, and not by chance.
    fn is_busy(&self, span_ns: u64) -> bool {
        const SHARE: u64 = 10;
        const SOME_SAMPLES: u64 = 5;
        self.samples >= SOME_SAMPLES && self.ns.is_none_or(|ns| ns.saturating_mul(SHARE) >= span_ns)
    }

    fn share(&self, span_ns: u64) -> Option<u32> {
        self.ns.filter(|_| span_ns > 0).map(|ns| hundredths(ns as f64 / span_ns as f64))
    }

    /// The whole CPU time, divided like its sampled part: so the parts add up to the whole. Where no sample stands for
    /// any of the time, as when the account did not grow in the only interval with samples, the parts are unknown.
    fn parts(&self, span_ns: u64) -> Shares {
        let Some(scale) = self.scale(span_ns) else { return Shares::default() };
        let parts = [self.user_ns, self.kernel_ns, self.guest_ns].map(|ns| ns as f64 * scale);
        let [user, kernel, guest] = rounded(parts, span_ns as f64);
        let unless = |is_excluded: bool, share: u32| (!is_excluded).then_some(share);
        let ExcludedModes { user: no_user, kernel: no_kernel, guest: no_guest } = self.excluded;
        Shares {
            user: unless(no_user, user),
            kernel: unless(no_kernel, kernel),
            guest: unless(no_guest, guest),
            idle: None,
        }
    }

    fn softirqs(&self, span_ns: u64) -> Option<u32> {
        Some(hundredths(self.softirq_ns? as f64 * self.scale(span_ns)? / span_ns as f64))
    }

    /// The factor from the sampled part of the CPU time to the whole.
    fn scale(&self, span_ns: u64) -> Option<f64> {
        let sampled = [self.user_ns, self.kernel_ns, self.guest_ns].map(|ns| ns as f64).iter().sum::<f64>();
        let ns = self.ns.filter(|_| span_ns > 0 && self.samples > 0)? as f64;
        if sampled > 0.0 { Some(ns / sampled) } else { (ns == 0.0).then_some(0.0) }
    }

    /// If the time is unknown in some intervals of a run, the time of the other intervals is a lower bound.
    fn verdict(&self) -> Verdict {
        if self.unmeasured > 0 && self.ns.is_some() { Verdict::LowerBound } else { Verdict::Exact }
    }

    /// Whether the row is about a thread other than the first of its process: the table of processes has no such row.
    pub fn is_other_thread(&self) -> bool {
        matches!(self.who, CpuTimeOwner::Thread { pid, tid, .. } if pid != tid)
    }
}
