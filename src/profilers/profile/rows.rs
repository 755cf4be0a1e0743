//! The rows of the tables, in ns and samples, and what a reader sees of them: shares, of an interval or of the whole run.

use std::cmp::{Ordering, Reverse};

use crate::profilers::profile::shares::{Division, Left, Shares, hundredths, rounded, share_value};
use crate::report::{Column, Schema, Unit, Value, Verdict};
use crate::task::Comm;

/// Rows of a ranked table in text.
pub const LISTED: usize = 10;

/// One CPU.
#[derive(Clone, Debug)]
pub struct CpuRow {
    pub cpu: u32,
    pub division: Division,
    pub left: Left,
    /// In hard interrupts and softirqs, of the time of which /proc/stat tells.
    pub irq_ns: u64,
    pub softirq_ns: u64,
    pub told_ns: u64,
    pub samples: u64,
    /// Busy samples, and the time that these stand for: as far as that is known.
    pub timed_samples: u64,
    pub timed_ns: u64,
    pub wanted_hz: Option<u64>,
    pub period: Option<u64>,
    pub throttled: u64,
}

pub static CPUS: Schema<CpuRow> = Schema::<CpuRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::derived("user_pct", "user %", |row, _| share_value(row.shares().user)),
        Column::derived("kernel_pct", "kernel %", |row, _| share_value(row.shares().kernel)),
        Column::derived("guest_pct", "guest %", |row, _| share_value(row.shares().guest)),
        Column::derived("idle_pct", "idle %", |row, _| share_value(row.shares().idle)),
        Column::<CpuRow>::derived("irq_pct", "irq %", |row, _| row.interrupts(row.irq_ns)).if_any(),
        Column::<CpuRow>::derived("softirq_pct", "softirq %", |row, _| row.interrupts(row.softirq_ns)).if_any(),
        Column::counter("samples", "samples", |row| &mut row.samples),
        Column::derived("achieved_hz", "Hz", |row, _| {
            achieved_hz(row.timed_samples, row.timed_ns).map_or(Value::None, Value::Unsigned)
        }),
        Column::<CpuRow>::gauge("wanted_hz", "", |row| &mut row.wanted_hz).in_unit(Unit::Hz).json_only(),
        Column::<CpuRow>::gauge("period", "", |row| &mut row.period).json_only(),
        Column::<CpuRow>::counter("throttled", "", |row| &mut row.throttled).json_only(),
        Column::<CpuRow>::counter("user", "", |row| &mut row.division.user).hidden(),
        Column::<CpuRow>::counter("kernel", "", |row| &mut row.division.kernel).hidden(),
        Column::<CpuRow>::counter("guest", "", |row| &mut row.division.guest).hidden(),
        Column::<CpuRow>::counter("idle", "", |row| &mut row.division.idle).hidden(),
        Column::<CpuRow>::counter("unsampled", "", |row| &mut row.division.unsampled).hidden(),
        Column::<CpuRow>::counter("of", "", |row| &mut row.division.of).hidden(),
        Column::<CpuRow>::counter("irq_ns", "", |row| &mut row.irq_ns).ns().hidden(),
        Column::<CpuRow>::counter("softirq_ns", "", |row| &mut row.softirq_ns).ns().hidden(),
        Column::<CpuRow>::counter("told_ns", "", |row| &mut row.told_ns).ns().hidden(),
        Column::<CpuRow>::counter("timed_samples", "", |row| &mut row.timed_samples).hidden(),
        Column::<CpuRow>::counter("timed_ns", "", |row| &mut row.timed_ns).ns().hidden(),
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
]);

impl CpuRow {
    fn shares(&self) -> Shares {
        self.division.shares(self.left)
    }

    fn interrupts(&self, ns: u64) -> Value {
        share_value((self.told_ns > 0).then(|| hundredths(ns as f64 / self.told_ns as f64)))
    }
}

/// Samples per second of busy time, when that was long enough to say.
pub fn achieved_hz(busy_samples: u64, busy_ns: u64) -> Option<u64> {
    const ENOUGH_NS: u64 = 300_000_000; // /proc/stat counts in steps of 10 ms
    (busy_ns >= ENOUGH_NS).then(|| (busy_samples as f64 * 1e9 / busy_ns as f64).round() as u64)
}

/// Whose CPU time a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// A process, by a name that it had.
    Process { pid: i32, comm: Comm },
    /// A thread, by the last name that it had in the interval.
    Thread { pid: i32, tid: i32, comm: Comm },
    /// Short-lived processes, by the name of who has made them.
    ChildrenOf(Comm),
}

/// A process, a thread, or children.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pub who: Who,
    /// CPU time. None: nobody knows.
    pub ns: Option<u64>,
    /// What of it was sampled.
    pub user_ns: u64,
    pub kernel_ns: u64,
    pub guest_ns: u64,
    pub left: Left,
    pub samples: u64,
    /// How many there are, of children.
    pub children: u64,
    /// In how many intervals it was measured by its account, and by samples.
    pub by_account: u64,
    pub by_samples: u64,
    /// In how many its samples stand for an unknown time, which `ns` lacks.
    pub unmeasured: u64,
}

const TID: Column<TaskRow> = Column::label("tid", "tid", |row| match row.who {
    Who::Thread { tid, .. } => Value::Signed(tid.into()),
    _ => Value::None,
});
const PID: Column<TaskRow> = Column::label("pid", "pid", |row| match row.who {
    Who::Process { pid, .. } | Who::Thread { pid, .. } => Value::Signed(pid.into()),
    Who::ChildrenOf(_) => Value::None,
});
const COMM: Column<TaskRow> = Column::<TaskRow>::label("comm", "", |row| match row.who {
    Who::Process { comm, .. } | Who::Thread { comm, .. } | Who::ChildrenOf(comm) => Value::Comm(comm),
})
.json_only();
const NAME: Column<TaskRow> = Column::<TaskRow>::label("name", "comm", |row| match row.who {
    Who::Process { comm, .. } | Who::Thread { comm, .. } => Value::Comm(comm),
    // Whoever prints it escapes it, as any text.
    Who::ChildrenOf(comm) => Value::Text(format!("children of {}", String::from_utf8_lossy(comm.as_bytes())).into()),
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
const SAMPLES: Column<TaskRow> = Column::counter("samples", "samples", |row| &mut row.samples);
const MEASURED_BY: Column<TaskRow> = Column::derived("pct_by", "CPU % by", |row, _| {
    Value::Word(match (row.by_account, row.by_samples) {
        (0, _) => "samples",
        (_, 0) => "account",
        _ => "both",
    })
});
const CHILDREN: Column<TaskRow> = Column::<TaskRow>::derived("children", "short-lived", |row, _| match row.who {
    Who::ChildrenOf(_) => Value::Unsigned(row.children),
    _ => Value::None,
})
.if_any();
const CPU_NS: Column<TaskRow> = Column::<TaskRow>::known_counter("cpu_ns", "", |row| &mut row.ns).ns().json_only();
const USER_NS: Column<TaskRow> = Column::<TaskRow>::counter("user_ns", "", |row| &mut row.user_ns).ns().hidden();
const KERNEL_NS: Column<TaskRow> = Column::<TaskRow>::counter("kernel_ns", "", |row| &mut row.kernel_ns).ns().hidden();
const GUEST_NS: Column<TaskRow> = Column::<TaskRow>::counter("guest_ns", "", |row| &mut row.guest_ns).ns().hidden();
const COUNT: Column<TaskRow> = Column::<TaskRow>::counter("count", "", |row| &mut row.children).hidden();
const BY_ACCOUNT: Column<TaskRow> = Column::<TaskRow>::counter("by_account", "", |row| &mut row.by_account).hidden();
const BY_SAMPLES: Column<TaskRow> = Column::<TaskRow>::counter("by_samples", "", |row| &mut row.by_samples).hidden();
const UNMEASURED: Column<TaskRow> = Column::<TaskRow>::counter("unmeasured", "", |row| &mut row.unmeasured).hidden();

/// What the columns of threads mean; those of tasks lack the first.
const MEANINGS: &[(&str, &str)] = &[
    ("tid", "the thread"),
    ("pid", "the process; absent for short-lived children"),
    (
        "comm",
        "its name when the samples were taken: there is a row before and one after an exec; of children that of who has made them",
    ),
    ("name", "the same; `children of make`"),
    ("pct", "CPU time, in per cent of one CPU: a process with four busy threads has 400"),
    ("user_pct", "what of it was in programs"),
    ("kernel_pct", "in the kernel"),
    ("guest_pct", "in virtual machines"),
    ("samples", "samples"),
    ("pct_by", "where the share comes from: `account`, `samples` or `both`"),
    ("children", "how many short-lived children the row is about; absent in others"),
    ("cpu_ns", "CPU time"),
];

/// Those of threads; tasks lack the first.
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
    CPU_NS,
    USER_NS,
    KERNEL_NS,
    GUEST_NS,
    COUNT,
    BY_ACCOUNT,
    BY_SAMPLES,
    UNMEASURED,
];

/// Those first that took most.
pub static TASKS: Schema<TaskRow> = Schema::<TaskRow>::new("tasks", COLUMNS.split_at(1).1)
    .titled("tasks, % of one CPU")
    .explained(MEANINGS.split_at(1).1)
    .ordered(rank)
    .judged(TaskRow::verdict);

/// The same by thread.
pub static THREADS: Schema<TaskRow> = Schema::<TaskRow>::new("threads", COLUMNS)
    .titled("threads, % of one CPU")
    .explained(MEANINGS)
    .ordered(rank)
    .judged(TaskRow::verdict);

fn rank(one: &TaskRow, other: &TaskRow) -> Ordering {
    let rank = |row: &TaskRow| (Reverse(row.ns), Reverse(row.samples), row.who);
    rank(one).cmp(&rank(other))
}

impl TaskRow {
    fn share(&self, span_ns: u64) -> Option<u32> {
        self.ns.filter(|_| span_ns > 0).map(|ns| hundredths(ns as f64 / span_ns as f64))
    }

    /// All of its CPU time, divided as what was sampled of it is: so the parts add up to the whole. Where no sample stands for
    /// any of it, as when the account had grown by nothing in the only interval with samples, nobody knows the parts.
    fn parts(&self, span_ns: u64) -> Shares {
        let parts = [self.user_ns, self.kernel_ns, self.guest_ns].map(|ns| ns as f64);
        let sampled: f64 = parts.iter().sum();
        let Some(ns) = self.ns.filter(|_| span_ns > 0 && self.samples > 0) else { return Shares::default() };
        if sampled == 0.0 && ns > 0 {
            return Shares::default();
        }
        let scale = if sampled > 0.0 { ns as f64 / sampled } else { 0.0 };
        let [user, kernel, guest] = rounded(parts.map(|part| part * scale), span_ns as f64);
        let unless = |is_left: bool, share: u32| (!is_left).then_some(share);
        let Left { user: no_user, kernel: no_kernel, guest: no_guest } = self.left;
        Shares {
            user: unless(no_user, user),
            kernel: unless(no_kernel, kernel),
            guest: unless(no_guest, guest),
            idle: None,
        }
    }

    /// Of a run whose time is not known in some intervals, that of the others is the least that it can be.
    fn verdict(&self) -> Verdict {
        if self.unmeasured > 0 && self.ns.is_some() { Verdict::LowerBound } else { Verdict::Exact }
    }

    /// A thread that is not the first of its process: of such ones the table of processes does not tell.
    pub fn is_other_thread(&self) -> bool {
        matches!(self.who, Who::Thread { pid, tid, .. } if pid != tid)
    }
}
