//! The `Profiler` trait, and the arguments of its calls: `setup` while the profiler adds events, `context` while it
//! handles samples, `samples` for many samples at once. `tracefs` finds the files of events. `probes` defines kprobes
//! and uprobes; `code` finds the files and offsets of uprobes, in a worker that `function_search` asks; `inherited`
//! makes uprobes see the children of the target. `bind` resolves a selector to events with their filters and
//! expressions, `bare` a name without a system. `keys` has the keys of all events of a run, and shows them with their
//! names. `call_strings` joins the strings of system calls to their records, `socket_errors` tells how connections end
//! that are made in the background, `executed` what programs are executed with. `shown` is for events that are shown
//! one by one, `filters` makes kernel filters by task, `task_grouping`
//! says which tasks share a row, `hits` measures what uprobes cost the probed programs.

mod args;
mod bare;
mod bind;
pub mod call_strings;
pub mod code;
mod context;
mod executed;
pub mod filters;
mod function_search;
pub mod hits;
mod inherited;
mod keys;
mod lineage;
mod outcome;
pub mod probes;
mod returned_addresses;
mod samples;
pub mod sampling;
mod scope;
mod setup;
mod shown;
mod socket_errors;
mod task_grouping;
mod tracefs;
pub mod user_stacks;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::outside::QuestionHandler;
use crate::perf::evlist::{Counted, Evlist};
use crate::perf::{EventId, Record, Sample};
use crate::symbol::StackId;

pub use args::{ProfilerArgs, Trial};
pub use context::{Context, ViewSums};
pub use executed::ExecutedPrograms;
pub use keys::{ShownKeys, key_of};
pub use lineage::{Lineage, LineageProcess};
pub use outcome::ExprOutcome;
pub use returned_addresses::ReturnedAddresses;
pub use samples::{Gate, Handler, Samples, Use};
pub use scope::RunScope;
pub use setup::{Setup, Warning, WarningKind};
pub use shown::ShownEvent;
pub use socket_errors::SocketErrors;
pub use task_grouping::TaskGrouping;
pub use tracefs::TracefsFinder;

pub use crate::report::Report;
pub use crate::stats::LostWindow;

/// The questions that workers answer before a run.
pub const QUESTIONS: &[QuestionHandler] = &[QuestionHandler::of::<function_search::FunctionSearch>()];

/// ns, CLOCK_MONOTONIC.
pub type Timestamp = u64;

/// One subcommand: the events it needs, what it computes from their samples, and what it reports.
pub trait Profiler {
    /// Adds the events, with their attributes and binding.
    ///
    /// # Errors
    /// An event or field that this kernel lacks; options that contradict each other.
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup) -> Result<()>;

    /// Sets kernel filters: what they drop costs no records.
    ///
    /// # Errors
    /// A filter that does not fit the event.
    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup) -> Result<()> {
        let _ = (evlist, setup);
        Ok(())
    }

    /// Takes one sample: the hot path. No text, no symbols, no look-up by name.
    ///
    /// # Errors
    /// The record lacks a field. It is counted, and the run goes on.
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use>;

    /// Takes consecutive samples. By default `sample` gets them one by one, without a virtual call for each. A profiler
    /// with a shorter path for most samples passes the rest to the handler that `sample` uses.
    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        samples.each(self, ctx);
    }

    /// Reports an interval and starts the next. `now` is its end.
    ///
    /// # Errors
    /// None known; an error ends the run.
    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()>;

    /// Reports the last, partial interval.
    ///
    /// # Errors
    /// As [`Profiler::interval`].
    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.interval(now, report)
    }

    /// Called between samples, after all events older than `now`: ten times a second, or sooner if an outcome asks for
    /// it. For what must be reported without an event, such as an ongoing wait. Does nothing by default.
    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let _ = (now, ctx);
        TickOutcome::default()
    }

    /// Takes rare events. By default they are ignored.
    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        let _ = (event, ctx);
    }

    /// Adds the stacks that the profiler may still show or weigh: all others may be forgotten.
    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>);
}

/// What a profiler asks of the run after a tick.
#[derive(Clone, Debug, Default)]
pub struct TickOutcome {
    /// The profiler waits for one of its own threads, or for records up to now: the next tick must come within 10 ms.
    pub is_urgent: bool,
    /// CPUs that may be unable to run or wake a thread, until the next tick: a paced run keeps its own threads off
    /// these CPUs.
    pub suspects: Vec<u32>,
    /// A report is wanted now, besides those of intervals.
    pub wants_report: bool,
    /// The CPU of each switch that went unseen although no record was lost.
    pub missed_switches: Vec<u32>,
}

impl TickOutcome {
    /// Adds the requests of another profiler of the run.
    pub fn merge(&mut self, other: TickOutcome) {
        self.is_urgent |= other.is_urgent;
        self.wants_report |= other.wants_report;
        self.suspects.extend(other.suspects);
        self.missed_switches.extend(other.missed_switches);
    }
}

/// Rare events of a run besides samples.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Events are enabled, and the names of tasks are known. The first samples may be much older, back to
    /// [`Context::started_ns`].
    Started { now: Timestamp },
    /// A task was created, renamed or has exited, on `cpu`. The tables of the context are up to date.
    Task { record: &'a Record<'a>, time: Timestamp, cpu: u32 },
    /// The thread `old`, which is not the first of its process, executes a program on `cpu`, and continues with the tid
    /// `pid` of the first thread, which has ended. The Exit of `old`, which the run makes up, and then the Comm record
    /// follow.
    TookOver { old: i32, pid: i32, time: Timestamp, cpu: u32 },
    /// A SWITCH record: `tid` was switched in on `cpu`, after the task `prev` if the record has it. Only if idle tasks
    /// are watched, see [`Evlist::watch_idle`]. The sample of the same switch comes before, if there is one.
    SwitchIn { tid: i32, prev: Option<i32>, time: Timestamp, cpu: u32 },
    /// Events are disabled and all records were read: the last chance to hand over an occurrence. Left out if `-N`
    /// ended the run. [`Profiler::deinit`] follows.
    Stopped { now: Timestamp },
    /// The kernel throttled an event on `cpu`: it takes no samples for a while, since there were too many.
    Throttled { cpu: u32 },
    /// Before the report of an interval: what `event` counted on `cpu` in it, once per task for a task-bound event. The
    /// times are then those in which these tasks ran, if the attr asks for times. Only the profiler of the event gets
    /// this.
    Counted { event: EventId, cpu: u32, counted: &'a Counted },
    /// Records of a CPU were lost: every pair that one of them may have closed must be forgotten.
    Lost(&'a LostWindow, LostKinds<'a>),
    /// Only names, forks, exits and mappings were lost. As bad as `Lost` for a profiler that follows tasks.
    LostSide(&'a LostWindow),
    /// Comes before weights of stacks are handed over, and before the report of an interval: the samples of
    /// [`Context::weigh_later`] must get their weights now.
    WeighSamples,
}

/// Which events the lost records may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostKinds<'a> {
    Any,
    /// Only of these events of the profiler.
    Events(&'a [EventId]),
}

impl LostKinds<'_> {
    /// Whether a record of one of `events` may be among the lost ones.
    pub fn include(self, events: &[EventId]) -> bool {
        match self {
            LostKinds::Any => true,
            LostKinds::Events(lost) => events.iter().any(|event| lost.contains(event)),
        }
    }
}
