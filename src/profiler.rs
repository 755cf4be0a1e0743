//! What a profiler is: its calls, and what it is given in each of them; `samples` is how it is given many at once. `setup` is
//! what it has at hand when it asks for its events, `context` what while samples come. `tracefs` finds the files of events.
//! `probes` defines what `kprobe:` and `uprobe:` select, `code` finds the files and bytes of the latter, `inherited` has
//! children of the target seen by them. `bind` puts together what a selector asks for. `filters` says in the kernel's language
//! which tasks are asked for, `hits` what probes in programs cost these; `bare` what a name without its system stands for.

mod args;
mod bare;
mod bind;
pub mod code;
mod context;
pub mod filters;
pub mod hits;
mod inherited;
pub mod probes;
mod samples;
pub mod sampling;
mod scope;
mod setup;
mod tracefs;
pub mod user_stacks;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::output::LostSpan;
use crate::perf::evlist::{Counted, Evlist};
use crate::perf::evsel::EventId;
use crate::perf::{Record, Sample};
use crate::symbol::StackId;

pub use args::{ProfilerArgs, Trial};
pub use context::Context;
pub use samples::{Handler, Samples, Use};
pub use scope::Scope;
pub use setup::{Setup, Warning};
pub use tracefs::TracefsFinder;

pub use crate::report::Report;

/// ns, CLOCK_MONOTONIC.
pub type Timestamp = u64;

/// Records of one CPU are missing: every pair that was open before `end_ns` and closes after `start_ns` may be wrong.
pub type LostWindow = LostSpan;

/// One subcommand: which events it needs, what it makes of their samples, and what it reports.
pub trait Profiler {
    /// Adds the events, with their attributes and binding.
    ///
    /// # Errors
    /// An event or field that this kernel lacks; options that contradict each other.
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup) -> Result<()>;

    /// Sets what the kernel may drop before it costs a record.
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
    /// A record without its fields; it is counted, and the run goes on.
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use>;

    /// Takes samples that follow each other. By default they come to `sample` one by one, without a virtual call for each.
    /// A profiler that has a shorter way for most of them hands the rest to the same handler as `sample`.
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

    /// Between samples, with all events older than `now` seen: ten times a second, and sooner where an outcome asks for it.
    /// For what must be reported although no event comes, such as a wait that goes on. By default nothing is to be done.
    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let _ = (now, ctx);
        TickOutcome::default()
    }

    /// Takes what is rare. By default nothing of it matters.
    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        let _ = (event, ctx);
    }

    /// The stacks that it will show or weigh some time: all others may be forgotten now.
    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>);
}

/// What a profiler asks of the run after a tick.
#[derive(Clone, Debug, Default)]
pub struct TickOutcome {
    /// The profiler waits for a thread of its own, or for records up to now: the next tick is to come within 10 ms.
    pub is_urgent: bool,
    /// CPUs that may not run or wake a thread, until the next tick: a paced run keeps its own threads away from them.
    pub suspects: Vec<u32>,
    /// CPUs on which a switch went unseen though no record was lost, once for each.
    pub missed_switches: Vec<u32>,
}

impl TickOutcome {
    /// Adds what another profiler of the run asks for.
    pub fn merge(&mut self, other: TickOutcome) {
        self.is_urgent |= other.is_urgent;
        self.suspects.extend(other.suspects);
        self.missed_switches.extend(other.missed_switches);
    }
}

/// What happens in a run beside samples, and is rare.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Events are on; the names of tasks are known. It may be long since the first events: they are as old as
    /// [`Context::started_ns`].
    Started { now: Timestamp },
    /// A task was born, renamed or ended, on `cpu`; the tables of the context know it already.
    Task { record: &'a Record<'a>, time: Timestamp, cpu: u32 },
    /// `tid` has got `cpu`, from the task `prev` if that is told. Only where idle tasks are watched, see
    /// [`Evlist::watch_idle`]; the event of the same switch comes before, if it was seen.
    Came { tid: i32, prev: Option<i32>, time: Timestamp, cpu: u32 },
    /// Events are off and all were seen: the last moment to hand over an occurrence. Does not happen when `-N` ended the run.
    /// [`Profiler::deinit`] follows.
    Stopped { now: Timestamp },
    /// The kernel takes no samples on `cpu` for a while, since there were too many.
    Throttled { cpu: u32 },
    /// Before an interval's report: what `event` counted on `cpu` in it, once per task for a task-bound one. Its times are
    /// then those for which these tasks ran, as far as its attr asks for them. Only its own profiler is told.
    Counted { event: EventId, cpu: u32, counted: &'a Counted },
    /// Records of a CPU are missing: every pair that they may have closed is to be forgotten.
    Lost(&'a LostWindow),
    /// Only names, forks, exits and mappings may be missing. As bad as `Lost` for a profiler that follows tasks.
    LostSide(&'a LostWindow),
    /// Before weights of stacks are handed over, and before an interval's report: those of [`Context::weigh_later`] are to
    /// get their weight.
    WeighSamples,
}
