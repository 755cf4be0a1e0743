//! The line of one wait for a CPU, and its JSON keys.

use std::sync::Arc;

use crate::host::cpu_ranges;
use crate::profilers::rundelay::cells::{CpuRunner, RunnerKind, Runners, ThreadProcess};
use crate::profilers::rundelay::confined::ConfinedWait;
use crate::report::layout::{SUBJECT, detail, text, unless, when};
use crate::report::{Detail, GroupBy, OccurrenceSchema, Value};
use crate::sched::RunDelayKind;
use crate::stats::Began;

/// A wait for a CPU that has ended or goes on, as its line shows it.
#[derive(Debug)]
pub struct ShownRunDelay {
    pub kind: RunDelayKind,
    pub duration_ns: u64,
    pub still_waiting: bool,
    pub began: Began,
    pub moves: u32,
    /// The process of the thread that waits.
    pub process: Option<ThreadProcess>,
    pub confined: Option<ConfinedWait>,
    /// The tasks that had the CPU, the longest time first.
    pub ran: Arc<[CpuRunner]>,
}

impl ShownRunDelay {
    fn confined(&self, value: fn(&ConfinedWait) -> Value) -> Value {
        self.confined.as_ref().map_or(Value::None, value)
    }

    /// The task that ran longest.
    fn behind(&self, value: fn(i32, crate::task::Comm) -> Value) -> Value {
        match self.ran.first().map(|runner| runner.who) {
            Some(RunnerKind::Task { tid, comm, .. }) => value(tid, comm),
            _ => Value::None,
        }
    }
}

pub static DELAYS: OccurrenceSchema<ShownRunDelay> = OccurrenceSchema::<ShownRunDelay>::new(
    &[
        Detail::new("state", |_| Value::Word("RD")),
        Detail::new("duration_ns", |wait| Value::Ns(wait.duration_ns)),
        Detail::new("still_waiting", |wait| Value::Bool(wait.still_waiting)),
        Detail::new("since", |wait| since(wait.began)),
        Detail::new("kind", |wait| kind(wait.kind)),
        Detail::new("moves", |wait| match wait.moves {
            0 => Value::None,
            moves => Value::Unsigned(moves.into()),
        }),
        Detail::new("process", |wait| wait.process.map_or(Value::None, |process| Value::Comm(process.comm))),
        Detail::text_only("of process", |wait| match wait.process {
            None => Value::None,
            Some(process) => {
                let mut text = Vec::new();
                process.push_text(&mut text);
                Value::Text(String::from_utf8_lossy(&text).into())
            }
        }),
        Detail::new("allowed_cpus", |wait| wait.confined(|confined| Value::Text(cpu_ranges(&confined.cpus).into()))),
        Detail::new("idle_cpu", |wait| wait.confined(|confined| Value::Unsigned(confined.idle_cpu.into()))),
        Detail::text_only("confined", |wait| wait.confined(|confined| Value::Text(confined.text().into()))),
        Detail::new("behind.tid", |wait| wait.behind(|tid, _| Value::Signed(tid.into()))),
        Detail::new("behind.comm", |wait| wait.behind(|_, comm| Value::Comm(comm))),
        Detail::new("ran", |wait| match wait.ran.is_empty() {
            true => Value::None,
            false => Value::cell(Runners(wait.ran.clone())),
        }),
    ],
    &[
        detail("state").wide(2),
        text(" "),
        detail("duration_ns").wide(11),
        text(" ms  "),
        detail("kind").between("", "  "),
        SUBJECT,
        detail("of process").after(", of "),
        when("still_waiting", &[text(" still waiting")]),
        detail("since").between(" (at least: ", ")"),
        detail("moves").between(", moved ", " times"),
        detail("ran").after(", behind "),
        detail("confined").after(", "),
        // A line for several waits shows only the values that these have in common.
        unless("ran", &[detail("behind.comm").after(", behind ")]),
    ],
)
.grouped(GroupBy {
    noun: "wait",
    same: &["still_waiting", "since", "kind", "behind.comm"],
    place: "behind.comm",
    duration: "duration_ns",
    goes_on: "still_waiting",
});

pub fn kind(kind: RunDelayKind) -> Value {
    Value::Word(match kind {
        RunDelayKind::Woken => "woken",
        RunDelayKind::New => "new",
        RunDelayKind::Preempted => "preempted",
        RunDelayKind::Yielded => "yielded",
        RunDelayKind::Found => return Value::None,
    })
}

/// Why a duration is a lower bound.
pub fn since(began: Began) -> Value {
    match began {
        Began::Exactly => Value::None,
        Began::BeforeStart => Value::Phrase { word: "before_start", text: "it began before the start" },
        Began::BeforeLoss => Value::Phrase { word: "before_loss", text: "records were lost" },
    }
}
