//! One run: open the events, wait, merge, dispatch, report, stop.
//!
//! [`Run::new`] turns options into open events; [`Run::start`] is the run, and `observe` has its loop, `wake` the
//! sources that wake it. The start: `options` has the options, `setup` the output and the workload, `run_events` the
//! events; `rings` and `ring_sizes` open rings and follow CPU hotplug, `windows` adds copies of user stacks, `live`
//! decides on the screen. Records: `dispatcher` handles them, `routing` passes samples to their views, `task_filter`
//! drops those of other tasks, `views` has the profilers of the run. Missing data: `loss` counts losses, `unseen` other
//! unseen events, `onlookers` finds BPF programs of other tools on the same events, `idle_judge` finds CPUs that hide
//! idle tasks, and `idle_cpus` does so for `doctor`. Reports: `intervals` closes intervals, `quiet` sends tables more
//! often than they are printed, `report_pace` limits how often costly reports are made, `finish` ends the run,
//! `messages` has the texts for the user, `tell` notes during the run, `weight` what the run weighs, `probed` texts about the
//! cost of probes. `pace`
//! keeps a run going while a CPU is stuck. `forecast` is a dry run, whose samples `meter` measures; `replay` replays
//! recorded rings.

mod dispatcher;
mod finish;
pub mod forecast;
mod idle_cpus;
mod idle_judge;
mod intervals;
mod live;
mod loss;
mod messages;
mod meter;
#[cfg(test)]
mod model_tests;
mod observe;
mod onlookers;
mod options;
mod pace;
mod probed;
mod quiet;
pub mod replay;
mod report_pace;
mod ring_sizes;
mod rings;
mod routing;
mod run_events;
mod setup;
mod task_filter;
mod tell;
mod unseen;
mod views;
mod wake;
mod weight;
mod windows;

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::host::Host;
use crate::output::metrics::http::MetricsServer;
use crate::profiler::Profiler;
use crate::run::dispatcher::Dispatcher;
pub use crate::run::idle_cpus::IdleCpus;
use crate::run::intervals::{CurrentInterval, ReportsMade};
use crate::run::onlookers::Onlookers;
pub use crate::run::options::{Options, SEVERAL, ViewOptions};
use crate::run::pace::Pace;
use crate::run::probed::RunProbes;
use crate::run::quiet::QuietIntervals;
use crate::run::replay::ReplayedMachine;
pub use crate::run::ring_sizes::{default_ring_pages, side_ring_pages};
use crate::run::rings::Rings;
use crate::run::run_events::RunEvents;
use crate::run::setup::{OpenedOutput, check_drawing_files, max_stack, open_sink, start_workload};
use crate::run::wake::WakeSources;
use crate::run::weight::RunScales;
use crate::run::windows::WindowPace;
use crate::symbol::Stacks;
use crate::sys;
use crate::sys::process::Workload;
use crate::task::{Targets, Watched};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Samples and occurrences that are missing from the results.
    pub lost: u64,
    /// Some results were not written.
    pub unwritten: bool,
}

/// The longest time that a record waits in a ring while nothing else happens.
const LATENCY: Duration = Duration::from_millis(100);
/// The same limit at the beginning of a run.
const EAGER: Duration = Duration::from_millis(5);
/// The wait after a round that left records above the horizon.
const FOLLOW_UP: Duration = Duration::from_millis(2);
/// The wait while a profiler expects something soon: see `TickOutcome::is_urgent`.
const URGENT: Duration = Duration::from_millis(10);
/// The time without samples after which a line says what the run waits for.
const SILENCE: Duration = Duration::from_secs(3);
/// The time between two checks for CPUs that came online or went offline.
const HOTPLUG: Duration = Duration::from_millis(500);
/// Bytes that interned stacks may take.
const STACKS_LIMIT_BYTES: usize = 64 << 20;

/// A run with its events open, not yet enabled.
pub struct Run {
    options: Options,
    host: Host,
    core: Dispatcher,
    rings: Rings,
    wake: WakeSources,
    interval: CurrentInterval,
    reports: ReportsMade,
    quiet: QuietIntervals,
    /// Serves the metrics as long as the run lasts.
    _server: Option<MetricsServer>,
    pace: Option<Pace>,
    onlookers: Onlookers,
    window_pace: WindowPace,
    workload: Option<Workload>,
    start_ns: u64,
    wakeups: u64,
    scales: RunScales,
    /// A signal has asked the run to end.
    told_to_end: bool,
    /// The reading thread was given priority, or this is not possible.
    precedes: bool,
    /// The tasks whose end is reported.
    targets: Targets,
    probes: RunProbes, // owns a private mount and probes, which live as long as the run
}

/// Why the loop ends.
enum StopReason {
    /// Ctrl-C, `--for`, the workload's or the target's end.
    Asked,
    /// `-N` samples were shown: no further one may be.
    Enough,
    /// The reader has closed the output.
    Closed,
}

impl Run {
    /// Opens the outputs and events of the run.
    ///
    /// # Errors
    /// One sentence about what cannot work on this machine, with the cure.
    pub fn new(options: Options, profilers: Vec<Box<dyn Profiler>>) -> Result<Run> {
        Run::over(options, profilers, None)
    }

    /// `replay`: what replaces parts of the machine.
    fn over(
        mut options: Options,
        mut profilers: Vec<Box<dyn Profiler>>,
        replay: Option<ReplayedMachine>,
    ) -> Result<Run> {
        let is_replay = replay.is_some();
        let mut machine = replay.unwrap_or_default();
        sys::ignore_sigpipe().context("cannot ignore SIGPIPE")?;
        let sink = machine.sink.take().map_or_else(|| open_sink(&options), Ok)?;
        check_drawing_files(&options)?;
        let workload = start_workload(&mut options)?;
        sys::raise_open_files();
        let mut opened = OpenedOutput::start(&options, sink, &mut machine, is_replay)?;
        let watched = Watched::new(&options.target, &machine.host);
        let targets = Targets::new(&options.target.tasks, &machine.host);
        let events = RunEvents::open(&mut options, &mut profilers, &mut machine, is_replay, &watched, &mut opened)?;
        let RunEvents { evlist, rings, wake, window_pace, scope, budget, settings, lines } = events;
        opened.settle.send(settings);
        let mut output = opened.output;
        lines.into_iter().for_each(|line| output.note(line));
        let ReplayedMachine { host, tracefs, .. } = machine;
        let stacks = Stacks::new(STACKS_LIMIT_BYTES, max_stack(&host)).within(&budget.whole);
        let mut core = Dispatcher::new(evlist, profilers, watched, scope, stacks, host.clone(), output);
        core.filter.turn(rings.filter_in_user);
        core.ctx.user_stacks.turn(core.evlist.evsels.any_windows());
        for (view, options) in core.views.iter_mut().zip(&options.views).filter(|_| !options.dry_run) {
            view.limit = options.samples;
        }
        let mut run = Run {
            options,
            host,
            core,
            rings,
            wake,
            interval: CurrentInterval::default(),
            reports: ReportsMade::default(),
            quiet: QuietIntervals::default(),
            _server: opened.server,
            pace: None,
            onlookers: Onlookers::default(),
            window_pace,
            workload,
            start_ns: 0,
            wakeups: 0,
            scales: RunScales::default(),
            told_to_end: false,
            precedes: false,
            targets,
            probes: RunProbes::new(tracefs),
        };
        run.look_for_onlookers();
        run.tell_hit_cost();
        Ok(run)
    }

    /// Runs until the end is asked for, and reports.
    ///
    /// # Errors
    /// The workload cannot be executed; the output cannot be written.
    pub fn start(mut self) -> Result<Outcome> {
        self.begin()?;
        let stop = self.observe()?;
        self.finish(stop)
    }

    /// Enables the events and releases the workload.
    fn begin(&mut self) -> Result<()> {
        // The clock is read before events are enabled, so that no share of the run's time exceeds 100 %.
        self.start_ns = sys::monotonic_ns();
        self.interval.start_ns = self.start_ns;
        self.onlookers.begin(self.start_ns);
        self.begin_weighing();
        self.core.ctx.started_ns = self.start_ns;
        self.core.evlist.enable()?;
        if let Some(interval) = self.options.interval {
            self.wake.tick_every(interval)?;
        }
        self.begin_quiet_intervals()?;
        self.core.ctx.tasks.scan();
        // Finds threads created after the first look, but before their parent's events were opened.
        self.core.ctx.watched.refresh(&self.options.target, &self.host);
        self.core.started(sys::monotonic_ns());
        if self.options.paced {
            self.keep_pace();
        }
        if self.core.any_address {
            self.core.ctx.output.send_live_pids(self.core.watched_processes());
        }
        if let Some(workload) = &mut self.workload {
            let failed = workload.release();
            failed.with_context(|| format!("cannot execute {:?}", workload.name()))?;
            self.core.ctx.watched.released();
        }
        Ok(())
    }
}
