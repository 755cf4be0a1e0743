//! The occurrence that reports a lockup.

use std::sync::Arc;

use crate::report::layout::{CPU, detail, seconds, text, unless, when};
use crate::report::{Detail, OccurrenceSchema, Value};
use crate::task::Comm;

/// The task that an event of any kind has shown on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenTask {
    pub at_ns: u64,
    pub tid: i32,
    pub comm: Comm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockupKind {
    Soft,
    Hard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockupPhase {
    Predicted,
    Ongoing,
    Recovered,
}

/// A finding to report about a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockupFinding {
    pub kind: LockupKind,
    pub phase: LockupPhase,
    pub stuck_ns: u64,
    /// There are no samples either: nothing at all comes from the CPU.
    pub dark: bool,
}

/// The occurrence: a finding on a CPU, and the state of the CPU.
#[derive(Debug)]
pub struct Lockup {
    pub finding: LockupFinding,
    /// Duration at which the kernel reports the lockup. None: it does not report it.
    pub limit_ns: Option<u64>,
    pub running: (i32, Comm),
    /// Age of the last expiry of the timer. The following fields: age of the last run of the stop task, and of the last
    /// sample.
    pub timer_ns: Option<u64>,
    pub stop_ns: Option<u64>,
    pub sampled: Option<SeenTask>,
    pub sampled_ns: Option<u64>,
    /// The tasks that run on the CPU or wait for it, if they were read from /proc.
    pub runnable: Arc<[String]>,
}

pub static LOCKUPS: OccurrenceSchema<Lockup> = OccurrenceSchema::new(
    &[
        Detail::new("kind", |lockup| match lockup.finding.kind {
            LockupKind::Soft => Value::Word("soft lockup"),
            LockupKind::Hard => Value::Word("hard lockup"),
        }),
        Detail::new("phase", |lockup| match lockup.finding.phase {
            LockupPhase::Predicted => Value::Phrase { word: "predicted", text: "ahead:" },
            LockupPhase::Ongoing => Value::Phrase { word: "ongoing", text: "goes on:" },
            LockupPhase::Recovered => Value::Phrase { word: "recovered", text: "is over: recovered after" },
        }),
        Detail::aliased("duration_ns", "stuck_ns", |lockup| Value::Ns(lockup.finding.stuck_ns)),
        Detail::new("kernel_limit_ns", |lockup| ns(lockup.limit_ns)),
        Detail::new("dark", |lockup| Value::Bool(lockup.finding.dark)),
        Detail::new("running.tid", |lockup| Value::Signed(lockup.running.0.into())),
        Detail::new("running.comm", |lockup| Value::Comm(lockup.running.1)),
        Detail::new("last_timer_ns", |lockup| ns(lockup.timer_ns)),
        Detail::new("last_watchdog_ns", |lockup| ns(lockup.stop_ns)),
        Detail::new("last_sample_ns", |lockup| ns(lockup.sampled_ns)),
        Detail::new("sampled.tid", |lockup| {
            lockup.last_sampled().map_or(Value::None, |seen| Value::Signed(seen.tid.into()))
        }),
        Detail::new("sampled.comm", |lockup| lockup.last_sampled().map_or(Value::None, |seen| Value::Comm(seen.comm))),
        Detail::new("runnable", |lockup| lockup.runnable(1)),
        Detail::text_only("several", |lockup| lockup.runnable(2)),
        Detail::text_only("missing", |lockup| match lockup.finding.kind {
            _ if !lockup.goes_on() => Value::None,
            LockupKind::Soft => Value::Word(" without its stop task"),
            LockupKind::Hard => Value::Word(" without a timer interrupt"),
        }),
    ],
    &[
        text("CPU "),
        CPU,
        text(": "),
        detail("kind"),
        text(" "),
        detail("phase"),
        text(" "),
        seconds("duration_ns"),
        text(" s"),
        when(
            "missing",
            &[
                detail("missing"),
                seconds("kernel_limit_ns").between(", the kernel reports at ", " s"),
                unless("kernel_limit_ns", &[text(", the kernel will not report it")]),
                when(
                    "dark",
                    &[
                        text("; dark"),
                        seconds("last_watchdog_ns").between(", last stop task ", " s ago"),
                        unless("last_sample_ns", &[text(", never sampled")]),
                        seconds("last_sample_ns").between(", last sample ", " s ago of "),
                        when("last_sample_ns", &[detail("sampled.comm"), text(" "), detail("sampled.tid")]),
                    ],
                ),
                text("; running "),
                detail("running.comm"),
                text(" "),
                detail("running.tid"),
                detail("several").after("; runnable there: "),
            ],
        ),
    ],
);

impl Lockup {
    pub fn goes_on(&self) -> bool {
        self.finding.phase != LockupPhase::Recovered
    }

    /// The last task that was sampled on the CPU, for an ongoing lockup.
    fn last_sampled(&self) -> Option<SeenTask> {
        self.sampled.filter(|_| self.goes_on())
    }

    /// The runnable tasks, if there are at least `least`.
    fn runnable(&self, least: usize) -> Value {
        if self.runnable.len() < least { Value::None } else { Value::Words(self.runnable.clone()) }
    }
}

fn ns(time: Option<u64>) -> Value {
    time.map_or(Value::None, Value::Ns)
}
