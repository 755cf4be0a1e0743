//! One run: open the events, wait, merge, dispatch, report, stop.
//!
//! [`Run::new`] turns options into open events; [`Run::start`] is the loop. `dispatcher` handles records, `finish` ends the
//! run, `forecast` is a dry run and `meter` weighs its samples, `idle_cpus` finds CPUs that hide idle tasks for `doctor`, and
//! `idle_judge` in a run, `intervals` closes intervals, `live` decides on the screen, `loss` keeps the losses, and `unseen` what
//! went unseen otherwise, `messages` has the texts for the user, `onlookers` finds others who watch the same events, `options`
//! has the options, `pace` keeps a run going beside a stuck CPU, `probed` tells what probes cost, `quiet` sends tables more often
//! than they are printed, `replay` plays recorded rings, `rings` and `ring_sizes` open rings and follow CPU hotplug, `routing`
//! takes samples to their views, past `task_filter`, `report_pace` limits how often dear reports are made, `setup` prepares the
//! start, `tell` answers signals in mid-run, `views` are the profilers of the run, `windows` adds copies of user stacks.

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
mod setup;
mod task_filter;
mod tell;
mod unseen;
mod views;
mod windows;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use crate::host::Host;
use crate::output::metrics::http::MetricsServer;
use crate::output::sink::Sink;
use crate::output::{Output, OutputSettings, flame, heatmap};
use crate::outside;
use crate::perf::evlist::Evlist;
use crate::profiler::hits::HitCost;
use crate::profiler::{Profiler, Setup, TracefsFinder};
use crate::report::Value;
use crate::ringbuf::DrainLimit;
use crate::run::dispatcher::Dispatcher;
pub use crate::run::idle_cpus::IdleCpus;
use crate::run::onlookers::Onlookers;
pub use crate::run::options::{Options, SEVERAL, ViewOptions};
use crate::run::pace::Pace;
use crate::run::quiet::QuietIntervals;
use crate::run::replay::ReplayedMachine;
use crate::run::report_pace::ReportPace;
pub use crate::run::ring_sizes::{default_ring_pages, side_ring_pages};
use crate::run::rings::Rings;
use crate::run::setup::{add_events, event_texts, halve_callchains, max_stack, start_workload, view_settings};
use crate::run::unseen::UnseenEvents;
use crate::run::windows::WindowPace;
use crate::stats::weights::Weighted;
use crate::symbol::Stacks;
use crate::symbol::budget::{RunBudget, SYMBOL_BYTES};
use crate::symbol::elf::{SymbolOptions, default_debug_dirs};
use crate::symbol::hidden::hidden;
use crate::sys;
use crate::sys::poll::{Poller, Signals, Ticker, Waker, ending_signals};
use crate::sys::process::Workload;
use crate::task::{Targets, Watched};
use crate::tep::strings::KernelStrings;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Samples and occurrences that are missing from the results.
    pub lost: u64,
    /// Not all results were written.
    pub unwritten: bool,
}

/// The longest time that a record waits in a ring while nothing else happens.
const LATENCY: Duration = Duration::from_millis(100);
/// The same at the beginning of a run.
const EAGER: Duration = Duration::from_millis(5);
/// The wait after a round that left records above the horizon.
const FOLLOW_UP: Duration = Duration::from_millis(2);
/// While a profiler waits for something that is about to come, see `TickOutcome::is_urgent`.
const URGENT: Duration = Duration::from_millis(10);
/// The time without samples after which a line says what the run waits for.
const SILENCE: Duration = Duration::from_secs(3);
/// The time between two checks for CPUs that came or went.
const HOTPLUG: Duration = Duration::from_millis(500);
/// Bytes that interned stacks may take.
const STACKS_LIMIT_BYTES: usize = 64 << 20;

const SIGNALS: u64 = 1 << 32;
const TICKER: u64 = SIGNALS + 1;
const WAKER: u64 = SIGNALS + 2;
const QUIET_TICKER: u64 = SIGNALS + 3;

/// A run with its events open, not yet enabled.
pub struct Run {
    options: Options,
    host: Host,
    core: Dispatcher,
    rings: Rings,
    poller: Poller,
    signals: Signals,
    ticker: Option<Ticker>,
    quiet: QuietIntervals,
    /// Serves the metrics as long as the run lasts.
    _server: Option<MetricsServer>,
    waker: Arc<Waker>,
    pace: Option<Pace>,
    onlookers: Onlookers,
    /// Cost of the run's own probes in programs.
    hit_cost: Option<HitCost>,
    workload: Option<Workload>,
    start_ns: u64,
    interval_start_ns: u64,
    intervals: u64,
    /// An interval is to be closed as soon as the output has room for its report.
    report_due: bool,
    snapshots: ReportPace,
    window_pace: WindowPace,
    wakeups: u64,
    /// It was told that a filter had no value for some samples.
    told_no_value: bool,
    /// Samples before this interval.
    samples_before: u64,
    /// The last reports of stacks, as long as the output is not done with them.
    reports_sent: Vec<Weak<Vec<Weighted>>>,
    /// Totals of the run as of the last interval.
    run_totals: Vec<(&'static str, Value)>,
    /// A signal ended the run.
    told_to_end: bool,
    /// The tasks whose end is reported.
    targets: Targets,
    tracefs: TracefsFinder, // a private mount, and probes, live as long as the run
}

/// Why the loop ends.
enum StopReason {
    /// Ctrl-C, `--for`, the workload's or the target's end.
    Asked,
    /// `-N`: no further sample may be shown.
    Enough,
    /// Nobody reads the output.
    Closed,
}

/// What woke the loop, beside the rings.
#[derive(Default)]
struct WakeReasons {
    signalled: bool,
    /// It is time for a report.
    ticked: bool,
}

impl Run {
    /// Opens everything.
    ///
    /// # Errors
    /// What cannot work here, in one sentence with the cure.
    pub fn new(options: Options, profilers: Vec<Box<dyn Profiler>>) -> Result<Run> {
        Run::over(options, profilers, None)
    }

    /// `replay`: what stands in for the machine.
    fn over(
        mut options: Options,
        mut profilers: Vec<Box<dyn Profiler>>,
        replay: Option<ReplayedMachine>,
    ) -> Result<Run> {
        let is_replay = replay.is_some();
        let ReplayedMachine { host, tracefs, sink, screen: replayed_screen, metrics: replayed_metrics, rings } =
            replay.unwrap_or_default();
        sys::ignore_sigpipe().context("cannot ignore SIGPIPE")?;
        let sink = match &options.output {
            _ if let Some(sink) = sink => sink,
            // The forecast goes to stdout, which must be open.
            _ if options.dry_run => Sink::stdout().and_then(|_| Sink::file(Path::new("/dev/null")))?,
            Some(path) => Sink::file(path)?,
            None if options.draws_to_stdout() => Sink::file(Path::new("/dev/null"))?,
            None => Sink::stdout()?,
        };
        for flame in options.views.iter().filter_map(|view| view.flame.as_ref()).filter(|_| !options.dry_run) {
            flame::check(flame)?;
        }
        for heatmap in options.views.iter().filter_map(|view| view.heatmap.as_ref()).filter(|_| !options.dry_run) {
            heatmap::check(heatmap)?;
        }
        let workload = start_workload(&mut options)?;
        sys::raise_open_files();
        let waker = Arc::new(Waker::new().context("cannot wait for events")?);
        let is_served = !options.dry_run && !is_replay;
        let server = options.metrics.filter(|_| is_served).map(|at| MetricsServer::start(at.0)).transpose()?;
        let (mut output, settle) = Output::start(sink, waker.clone())?;
        let (handle, screen) = if is_replay { (None, replayed_screen) } else { live::open(&options)?.unzip() };
        output.screen = handle;
        let watched = Watched::new(&options.target, &host);
        let targets = Targets::new(&options.target.tasks, &host);
        let mut evlist = Evlist::new();
        evlist.watermark = options.watermark;
        let mut setup = Setup {
            command: options.workload.first().map(OsString::as_os_str),
            interval: options.interval,
            ..Setup::new(&tracefs, &options.target, &host, &watched, [sys::thread_id(), output.tid()])
        };
        if let Some(server) = &server {
            setup.scope = setup.scope.with_server(server.tid());
        }
        if let Some(screen) = &output.screen {
            setup.scope = setup.scope.with_keyboard(screen.tid);
        }
        if options.paced {
            evlist.leave_unread();
        } else if options.dry_run {
            evlist.with_counters();
        }
        add_events(&mut profilers, &mut options.views, &mut evlist, &mut setup)?;
        if evlist.is_empty() {
            bail!("{} has no event to open", options.name);
        }
        for profiler in &mut profilers {
            profiler.filter(&mut evlist, &setup)?;
        }
        setup.keep_inherited_probes(&mut evlist);
        halve_callchains(&mut evlist, &options, &setup)?;
        evlist.share_events();
        let windows = windows::add(&mut evlist, &options)?;
        if !options.dry_run && !is_replay {
            setup.copy_idle_records(&mut evlist);
        }
        if options.paced {
            evlist.keep_idle_copiers();
        }
        setup.degrade_outsiders();
        let notes = setup.notes.take();
        let poller = Poller::new().context("cannot wait for events")?;
        poller.add(&*waker, WAKER).context("cannot wait for the output")?;
        let events = event_texts(&evlist, &setup)?;
        let budget = RunBudget::new(options.symbol_memory.unwrap_or(SYMBOL_BYTES));
        let settings = OutputSettings {
            name: options.name.clone(),
            views: view_settings(&options, &evlist),
            json: options.json,
            events,
            strings: tracefs.get().map(|tracefs| KernelStrings::open(tracefs.root())).unwrap_or_default(),
            host: host.clone(),
            callchains: evlist.any_callchain(),
            symbols: SymbolOptions {
                demangle: options.demangle,
                debug_dirs: default_debug_dirs(),
                budget: budget.symbols,
            },
            budget: budget.whole.clone(),
            coverage: options.verbose && evlist.any_address(),
            prompt: options.paced,
            durable: options.durable,
            metrics: server.as_ref().map(MetricsServer::snapshots).or(replayed_metrics),
            screen,
        };
        let mut rings = match rings {
            Some(rings) => Rings::of_replay(rings, &mut evlist, &options.target, &host, &poller)?,
            None => Rings::open(&mut evlist, &options.target, &host, options.ring, &poller)?,
        };
        if !options.dry_run {
            rings.note_shrunk(&evlist); // a forecast tells of the rings of the run itself
        }
        // Until here a Ctrl-C ends the process at once.
        let wanted: Vec<Signal> = ending_signals()
            .chain([Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGCHLD])
            .chain(live::signals(&output))
            .filter(|_| !is_replay)
            .collect();
        let signals = Signals::block(&wanted).context("cannot receive signals")?;
        poller.add(&signals, SIGNALS).context("cannot wait for signals")?;
        settle.send(settings);
        let scope = setup.scope.clone();
        if let Some(server) = &server {
            output.note(format!("{}: metrics at http://{}/metrics", options.name, server.address()));
        }
        let warnings = setup.warnings.take().into_iter().map(|warning| warning.to_string());
        let words = std::mem::take(&mut options.notes).into_iter().chain(messages::watching(&options, rings.cpus()));
        words.chain(warnings).chain(rings.take_notes()).for_each(|note| output.note(note));
        if evlist.any_address() && !is_replay {
            hidden(&host).into_iter().for_each(|reason| output.note(format!("degraded: {reason}")));
        }
        if options.verbose {
            let lines = messages::describe(&evlist, &rings, &tracefs, notes).into_iter();
            lines.chain(windows::describe(&windows, &options)).for_each(|line| output.note(line));
        }
        let stacks = Stacks::new(STACKS_LIMIT_BYTES, max_stack(&host)).within(&budget.whole);
        let evlist_has_windows = evlist.any_windows();
        let mut core = Dispatcher::new(evlist, profilers, watched, scope, stacks, host.clone(), output);
        core.filter.turn(rings.filter_in_user);
        core.ctx.user_stacks.turn(evlist_has_windows);
        core.unseen = UnseenEvents::of(&core.evlist);
        for (view, options) in core.views.iter_mut().zip(&options.views).filter(|_| !options.dry_run) {
            view.limit = options.samples;
        }
        let ends_windows = windows.companions > 0 && windows::any_auto(&options);
        let window_pace = WindowPace::new(ends_windows, rings.ring_bytes());
        let mut run = Run {
            options,
            host,
            core,
            rings,
            poller,
            signals,
            ticker: None,
            quiet: QuietIntervals::default(),
            _server: server,
            waker,
            pace: None,
            onlookers: Onlookers::default(),
            hit_cost: None,
            workload,
            start_ns: 0,
            interval_start_ns: 0,
            intervals: 0,
            report_due: false,
            snapshots: ReportPace::default(),
            window_pace,
            wakeups: 0,
            told_no_value: false,
            samples_before: 0,
            reports_sent: Vec::new(),
            run_totals: Vec::new(),
            told_to_end: false,
            targets,
            tracefs,
        };
        run.look_for_onlookers();
        run.tell_hit_cost();
        Ok(run)
    }

    /// Runs until it is told to end, and reports.
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
        // Read before they are enabled, so that no share of the run's time is above 100 %.
        self.start_ns = sys::monotonic_ns();
        self.interval_start_ns = self.start_ns;
        self.onlookers.begin(self.start_ns);
        self.core.ctx.started_ns = self.start_ns;
        self.core.evlist.enable()?;
        if let Some(interval) = self.options.interval {
            self.tick_every(interval)?;
        }
        self.begin_quiet_intervals()?;
        self.core.ctx.tasks.scan();
        // Threads created between the first look and the opening of their parent's events.
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

    /// Starts the interval timer. Not before the events are on: opening them may take longer than an interval.
    fn tick_every(&mut self, interval: Duration) -> Result<()> {
        let ticker = Ticker::every(interval).context("cannot start the interval timer")?;
        self.poller.add(&ticker, TICKER).context("cannot wait for the interval timer")?;
        self.ticker = Some(ticker);
        Ok(())
    }

    fn observe(&mut self) -> Result<StopReason> {
        let deadline = self.options.duration.map(|duration| self.start_ns.saturating_add(duration.as_nanos() as u64));
        let mut follow_up = false;
        let mut next_hotplug = self.start_ns;
        let mut silence_said = false;
        loop {
            let now = sys::monotonic_ns();
            // The user waits for the first line: short rounds at first.
            let age = Duration::from_nanos(now - self.start_ns).max(EAGER);
            let mut timeout = if follow_up { FOLLOW_UP } else { LATENCY.min(age) };
            if self.core.last_tick.is_urgent {
                timeout = timeout.min(URGENT);
            }
            if let Some(deadline) = deadline {
                timeout = timeout.min(Duration::from_nanos(deadline.saturating_sub(now)));
            }
            let WakeReasons { signalled, ticked } = self.wait(timeout)?;
            self.report_due |= ticked || self.missed_its_timer();
            self.wakeups += 1;
            let held = self.round(DrainLimit::Horizon);
            self.core.compare_counts(self.rings.complete_to());
            // One follow-up delivers the records that were held; under a flood there are more, and a small ring would fill in 100 ms.
            follow_up = held && (!follow_up || self.rings.is_backlogged());
            if self.core.has_enough() {
                return Ok(StopReason::Enough);
            }
            self.core.judge_idle();
            self.core.tick(self.rings.complete_to());
            self.report_due |= self.core.last_tick.wants_report;
            self.window_pace.check(&mut self.core, sys::monotonic_ns());
            if let Some(pace) = &mut self.pace {
                pace.avoid(&self.core.last_tick.suspects);
            }
            self.core.ctx.output.flush_round(sys::monotonic_ns());
            self.core.ctx.output.report_standstill(&self.options.name);
            if signalled && let Some(stop) = self.take_signals()? {
                return Ok(stop);
            }
            let ends = |now: u64| deadline.is_some_and(|deadline| now >= deadline);
            // An interval that ends with the run is closed by its end.
            let ends_soon = ends(sys::monotonic_ns().saturating_add(self.short_ns()));
            if (self.report_due || self.quiet.is_due) && !ends_soon && self.core.ctx.output.has_room_for_report() {
                self.report()?;
            }
            if self.core.ctx.output.is_closed() {
                return Ok(StopReason::Closed);
            }
            let now = sys::monotonic_ns();
            let mut is_over = self.core.ctx.watched.is_over();
            if is_over || now >= next_hotplug {
                self.follow_names(now);
                let is_named = !self.options.names.is_empty();
                is_over = self.core.ctx.watched.is_over() && !(is_named && self.targets.may_be_succeeded(now));
            }
            if is_over || ends(now) {
                return Ok(StopReason::Asked);
            }
            if now >= next_hotplug {
                next_hotplug = now + HOTPLUG.as_nanos() as u64;
                self.rings.follow_hotplug(&mut self.core, &self.options.target, &self.host, &self.poller);
                let notes = self.rings.take_notes().into_iter().chain(outside::take_notes());
                notes.for_each(|note| self.core.ctx.output.note(note));
                self.look_for_onlookers();
                self.core.idle.retest(&mut self.core.evlist, &self.host);
                self.core.check_tasks(now);
                self.core.expire(now);
                self.tell_ended();
                if self.workload.as_mut().is_some_and(Workload::ended) {
                    return Ok(StopReason::Asked);
                }
            }
            if !silence_said
                && self.core.samples() == 0
                && !self.core.ctx.output.has_shown()
                && self.core.evlist.any_samples()
                && now - self.start_ns > SILENCE.as_nanos() as u64
            {
                silence_said = true;
                let line = messages::waiting_for(&self.options.name, &self.core.evlist);
                self.core.ctx.output.note(line);
            }
        }
    }

    /// Sleeps until a ring is half full, a signal or timer comes, or the timeout is over.
    fn wait(&mut self, timeout: Duration) -> Result<WakeReasons> {
        self.beat();
        let mut woken = WakeReasons::default();
        for token in self.poller.wait(timeout).context("cannot wait for events")? {
            match token {
                SIGNALS => woken.signalled = true,
                TICKER => woken.ticked = self.ticker.as_ref().is_some_and(Ticker::expired),
                QUIET_TICKER => self.quiet.tick(),
                WAKER => self.waker.clear(),
                _ => {} // a ring
            }
        }
        self.beat();
        Ok(woken)
    }

    /// Length of an interval that is too short for a report of its own.
    fn short_ns(&self) -> u64 {
        self.options.interval.map_or(0, |interval| interval.as_nanos() as u64 / 20)
    }

    fn beat(&self) {
        self.pace.iter().for_each(Pace::beat);
    }

    /// The interval timer is late: it runs on the CPU where it was last read, which may be stuck.
    fn missed_its_timer(&self) -> bool {
        const SLACK: Duration = Duration::from_millis(150);
        let interval = self.options.interval.filter(|_| self.pace.is_some());
        let age = sys::monotonic_ns().saturating_sub(self.interval_start_ns);
        interval.is_some_and(|interval| Duration::from_nanos(age) > interval + SLACK)
    }

    fn round(&mut self, limit: DrainLimit) -> bool {
        self.rings.round(limit, &mut self.core)
    }

    fn take_signals(&mut self) -> Result<Option<StopReason>> {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP => {
                    self.told_to_end = true;
                    return Ok(Some(StopReason::Asked));
                }
                Signal::SIGUSR1 => {
                    self.report_due = true;
                    self.snapshots.ask();
                }
                Signal::SIGUSR2 => self.tell_own_cost(),
                Signal::SIGTSTP | Signal::SIGCONT | Signal::SIGWINCH => live::obey(signal, &self.core.ctx.output),
                _ => {
                    if self.workload.as_mut().is_some_and(Workload::ended) {
                        return Ok(Some(StopReason::Asked));
                    }
                }
            }
        }
        Ok(None)
    }
}
