//! The opened events of a run, which its profilers have added, with the rings for their records.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use crate::output::Output;
use crate::output::metrics::http::MetricsServer;
use crate::output::settings::OutputSettings;
use crate::perf::Evlist;
use crate::perf::evsels::windows::WindowsAdded;
use crate::perf::no_tracefs::NoTracefs;
use crate::profiler::{Profiler, RunScope, Setup, Warning};
use crate::run::replay::ReplayedMachine;
use crate::run::rings::Rings;
use crate::run::setup::OpenedOutput;
use crate::run::wake::WakeSources;
use crate::run::windows::WindowPace;
use crate::run::{Options, ViewOptions, live, messages, windows};
use crate::symbol::budget::{RunBudget, SYMBOL_BYTES};
use crate::symbol::kernel::hidden::hidden;
use crate::sys;
use crate::sys::poll::{Poller, ending_signals};
use crate::task::Watched;

/// The events of a run with their rings, and what the rest of the run must know of them.
pub(super) struct RunEvents {
    pub evlist: Evlist,
    pub rings: Rings,
    pub wake: WakeSources,
    pub window_pace: WindowPace,
    pub scope: RunScope,
    pub budget: RunBudget,
    pub settings: OutputSettings,
    /// Lines for the user.
    pub lines: Vec<String>,
}

impl RunEvents {
    /// When this returns, signals no longer end the process.
    ///
    /// # Errors
    /// A profiler or the kernel refuses a request.
    pub fn open(
        options: &mut Options,
        profilers: &mut [Box<dyn Profiler>],
        machine: &mut ReplayedMachine,
        is_replay: bool,
        watched: &Watched,
        opened: &mut OpenedOutput,
    ) -> Result<RunEvents> {
        let ReplayedMachine { host, tracefs, rings, .. } = machine;
        let mut setup = Setup {
            command: options.workload.first().map(OsString::as_os_str),
            interval: options.interval,
            ..Setup::new(tracefs, &options.target, host, watched, [sys::thread_id(), opened.output.tid()])
        };
        setup.scope = opened.leave_out(setup.scope);
        let mut evlist = new_evlist(options);
        add_events(profilers, &mut options.views, &mut evlist, &mut setup)?;
        let windows = settle_events(profilers, &mut evlist, options, &setup, is_replay)?;
        let notes = setup.notes.take();
        let poller = Poller::new().context("cannot wait for events")?;
        let budget = RunBudget::new(options.symbol_memory.unwrap_or(SYMBOL_BYTES));
        let settings = opened.settings(options, &evlist, &setup, &budget)?;
        let mut rings = match rings.take() {
            Some(rings) => Rings::of_replay(rings, &mut evlist, &options.target, host, &poller)?,
            None => Rings::open(&mut evlist, &options.target, host, options.ring, &poller)?,
        };
        if !options.dry_run {
            rings.note_shrunk(&evlist); // a forecast reports on the rings of the real run
        }
        // Up to this point Ctrl-C ends the process at once.
        let wanted = if is_replay { Vec::new() } else { wanted_signals(&opened.output) };
        let wake = WakeSources::new(poller, opened.waker.clone(), &wanted)?;
        let (scope, warnings) = (setup.scope.clone(), setup.warnings.take());
        let mut lines = start_lines(options, opened.server.as_ref(), &mut rings, warnings);
        if evlist.evsels.any_address() && !is_replay {
            lines.extend(hidden(host).into_iter().map(|reason| format!("degraded: {reason}")));
        }
        if options.verbose {
            lines.extend(messages::describe(&evlist, &rings, tracefs, notes));
            lines.extend(windows::describe(&windows, options));
        }
        let window_pace = WindowPace::new(windows.may_end && windows::any_auto(options), rings.ring_bytes());
        Ok(RunEvents { evlist, rings, wake, window_pace, scope, budget, settings, lines })
    }
}

/// Adds the events of the profilers.
fn add_events(
    profilers: &mut [Box<dyn Profiler>],
    views: &mut [ViewOptions],
    evlist: &mut Evlist,
    setup: &mut Setup<'_>,
) -> Result<()> {
    let is_alone = views.len() == 1;
    let added: Result<()> = profilers.iter_mut().zip(views).enumerate().try_for_each(|(index, (profiler, view))| {
        evlist.adding_for(index);
        (setup.stacks, setup.flame_graph) = (view.stacks(), view.flame.is_some());
        let named = |err: anyhow::Error| if is_alone { err } else { err.context(format!("view '{}'", view.name)) };
        profiler.init(evlist, setup).map_err(named)?;
        setup.weight.take().into_iter().for_each(|weight| view.weight = weight);
        Ok(())
    });
    added.map_err(|err| match err.downcast::<NoTracefs>() {
        Ok(none) => none.for_events(setup.host).into(),
        Err(err) => err,
    })
}

/// An empty list of events for a run.
fn new_evlist(options: &Options) -> Evlist {
    let mut evlist = Evlist::new();
    evlist.watermark = options.watermark;
    if options.paced {
        evlist.leave_unread();
    } else if options.dry_run {
        evlist.with_counters();
    }
    evlist
}

/// Decides how the events that the profilers have added are opened. Returns the windows of user stacks.
fn settle_events(
    profilers: &mut [Box<dyn Profiler>],
    evlist: &mut Evlist,
    options: &Options,
    setup: &Setup<'_>,
    is_replay: bool,
) -> Result<WindowsAdded> {
    if evlist.is_empty() {
        bail!("{} has no event to open", options.name);
    }
    for profiler in profilers {
        profiler.filter(evlist, setup)?;
    }
    setup.keep_inherited_probes(evlist);
    halve_callchains(evlist, options, setup)?;
    evlist.evsels.share();
    let windows = windows::add(evlist, options)?;
    if !options.dry_run && !is_replay {
        setup.copy_idle_records(evlist);
    }
    if options.paced {
        evlist.idle_records.keep_attached();
    }
    setup.degrade_outsiders();
    Ok(windows)
}

/// Limits callchains to the halves that each view wants. A view without callchains gets a note.
fn halve_callchains(evlist: &mut Evlist, options: &Options, setup: &Setup<'_>) -> Result<()> {
    let halves: Vec<_> = options.views.iter().map(|view| view.halves).collect();
    for owner in evlist.evsels.halve_callchains(&halves)? {
        let name = options.views.get(owner).map_or("", |view| view.name.as_str());
        setup.warn(format!("{name}: a half of the stacks is chosen, but there are no stacks without -g"));
    }
    Ok(())
}

/// The signals that a run takes.
fn wanted_signals(output: &Output) -> Vec<Signal> {
    ending_signals().chain([Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGCHLD]).chain(live::signals(output)).collect()
}

/// The lines for the user once the events are open.
fn start_lines(
    options: &mut Options,
    server: Option<&MetricsServer>,
    rings: &mut Rings,
    warnings: Vec<Warning>,
) -> Vec<String> {
    let served = server.map(|server| format!("{}: metrics at http://{}/metrics", options.name, server.address()));
    let mut lines: Vec<String> = served.into_iter().collect();
    lines.append(&mut options.notes);
    lines.extend(messages::watching(options, rings.cpus()));
    lines.extend(warnings.iter().map(Warning::to_string));
    lines.append(&mut rings.take_notes());
    lines
}
