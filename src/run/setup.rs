//! What is prepared before the events of a run are opened: the outputs, and the workload.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::host::{Host, sysctl};
use crate::output::drawing::flame::FlameWriter;
use crate::output::drawing::heatmap::HeatmapWriter;
use crate::output::drawing::{flame, heatmap};
use crate::output::event_text::EventText;
use crate::output::metrics::SnapshotCell;
use crate::output::metrics::http::MetricsServer;
use crate::output::screen::ScreenPort;
use crate::output::settings::{OutputSettings, ViewSettings};
use crate::output::sink::Sink;
use crate::output::{Output, SettingsSender};
use crate::perf::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::target::Tasks;

use crate::profiler::{RunScope, Setup};
use crate::run::replay::ReplayedMachine;
use crate::run::{Options, ViewOptions, live, messages};
use crate::symbol::budget::RunBudget;
use crate::symbol::elf::debug_files::default_debug_dirs;
use crate::symbol::elf::symbols::SymbolOptions;
use crate::sys::poll::Waker;
use crate::sys::process::Workload;
use crate::tep::syscalls;
use crate::tep::tracefs::strings::KernelStrings;

/// Where the results go.
pub(super) fn open_sink(options: &Options) -> Result<Sink> {
    match &options.output {
        // The forecast goes to stdout, which must be open.
        _ if options.dry_run => Sink::stdout().and_then(|_| Sink::file(Path::new("/dev/null"))),
        Some(path) => Sink::file(path),
        None if options.draws_to_stdout() => Sink::file(Path::new("/dev/null")),
        None => Sink::stdout(),
    }
}

/// Refuses drawings that could not be written at the end.
pub(super) fn check_drawing_files(options: &Options) -> Result<()> {
    let views = || options.views.iter().filter(|_| !options.dry_run);
    views().filter_map(|view| view.flame.as_ref()).try_for_each(flame::check)?;
    views().filter_map(|view| view.heatmap.as_ref()).try_for_each(heatmap::check)
}

/// The output of a run, whose thread waits for its settings, and further outputs.
pub(super) struct OpenedOutput {
    pub output: Output,
    pub settle: SettingsSender,
    pub server: Option<MetricsServer>,
    /// Lets the output thread wake the run.
    pub waker: Arc<Waker>,
    screen: Option<ScreenPort>,
    /// The cell in which a replay publishes metrics.
    metrics: Option<SnapshotCell>,
}

impl OpenedOutput {
    pub fn start(
        options: &Options,
        sink: Sink,
        machine: &mut ReplayedMachine,
        is_replay: bool,
    ) -> Result<OpenedOutput> {
        let waker = Arc::new(Waker::new().context("cannot wait for events")?);
        let is_served = !options.dry_run && !is_replay;
        let server =
            options.metrics.filter(|_| is_served).map(|address| MetricsServer::start(address.0)).transpose()?;
        let (mut output, settle) = Output::start(sink, waker.clone())?;
        let (handle, screen) = if is_replay { (None, machine.screen.take()) } else { live::open(options)?.unzip() };
        output.screen = handle;
        Ok(OpenedOutput { output, settle, server, waker, screen, metrics: machine.metrics.take() })
    }

    /// The target's tasks, without the threads that serve results.
    pub fn leave_out(&self, mut scope: RunScope) -> RunScope {
        if let Some(server) = &self.server {
            scope = scope.with_server(server.tid());
        }
        if let Some(screen) = &self.output.screen {
            scope = scope.with_keyboard(screen.tid);
        }
        scope
    }

    /// The settings that the output thread waits for.
    pub fn settings(
        &mut self,
        options: &Options,
        evlist: &Evlist,
        setup: &Setup<'_>,
        budget: &RunBudget,
    ) -> Result<OutputSettings> {
        Ok(OutputSettings {
            name: options.name.clone(),
            views: view_settings(options, evlist),
            json: options.json,
            events: event_texts(evlist, setup)?,
            strings: setup.tracefs.get().map(|tracefs| KernelStrings::open(tracefs.root())).unwrap_or_default(),
            host: setup.host.clone(),
            callchains: evlist.evsels.any_callchain(),
            symbols: SymbolOptions {
                demangle: options.demangle,
                debug_dirs: default_debug_dirs(),
                budget: budget.symbols.clone(),
            },
            budget: budget.whole.clone(),
            coverage: options.verbose && evlist.evsels.any_address(),
            prompt: options.paced,
            durable: options.durable,
            metrics: self.server.as_ref().map(MetricsServer::snapshots).or(self.metrics.take()),
            screen: self.screen.take(),
        })
    }
}

/// Forks the command, which waits for its release. The command is the target, if the user named no other.
pub(super) fn start_workload(options: &mut Options) -> Result<Option<Workload>> {
    if options.workload.is_empty() {
        return Ok(None);
    }
    let workload = Workload::start(&options.workload)
        .with_context(|| format!("cannot start {:?}", options.workload[0].to_string_lossy()))?;
    if matches!(options.target.tasks, Tasks::All) {
        options.target.tasks = Tasks::Workload(workload.pid());
    }
    Ok(Some(workload))
}

/// The settings of the output of each view.
fn view_settings(options: &Options, evlist: &Evlist) -> Vec<ViewSettings> {
    let settings = |(owner, view): (usize, &ViewOptions)| {
        let has_chains = evlist.evsels.any_callchain_of(owner);
        let flame = view.flame.clone().filter(|_| !options.dry_run);
        let heatmap = view.heatmap.clone().filter(|_| !options.dry_run);
        ViewSettings {
            name: view.name.clone(),
            profiler: view.profiler,
            stacks: has_chains && (view.shows_stacks || view.flame.is_none()),
            flame: flame
                .map(|flame| FlameWriter::new(flame, messages::about(options, owner, evlist), view.weight.clone())),
            heatmap: heatmap.map(|map| HeatmapWriter::new(map, &view.name, messages::about(options, owner, evlist))),
            main_table: view.main_table,
        }
    };
    options.views.iter().enumerate().map(settings).collect()
}

/// The formats of events that may be printed; None for events without a format.
fn event_texts(evlist: &Evlist, setup: &Setup<'_>) -> Result<Vec<Option<EventText>>> {
    let text = |evsel: &Evsel| -> Result<Option<EventText>> {
        let Some(alias) = evsel.shown_as() else { return Ok(None) };
        let format = setup.format_of(evsel)?;
        // An unopened event is that of a system call, made from a record of `raw_syscalls`, which lacks user text.
        let format = if evsel.is_wanted() { format } else { Arc::new(syscalls::without_user_text(&format)) };
        Ok(Some(EventText::new(evsel.name(), alias, format).with_strings(evsel.has_strings())))
    };
    evlist.iter().map(|(_, evsel)| text(evsel)).collect()
}

pub(super) fn max_stack(host: &Host) -> usize {
    sysctl(host, "perf_event_max_stack").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(127)
}
