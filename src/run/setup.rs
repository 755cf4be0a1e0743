//! Prepared before the events of a run are opened: the workload, the events of the profilers, and their formats.

use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::host::{Host, sysctl};
use crate::output::drawing::flame::FlameWriter;
use crate::output::drawing::heatmap::HeatmapWriter;
use crate::output::event_text::EventText;
use crate::output::settings::ViewSettings;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::no_tracefs::NoTracefs;
use crate::perf::target::Tasks;
use crate::profiler::{Profiler, Setup};
use crate::run::{Options, ViewOptions, messages};
use crate::sys::process::Workload;
use crate::tep::syscalls;

/// Forks the command, which waits for its release. It is the target, if none was named.
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

/// Adds the events of the profilers.
pub(super) fn add_events(
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

/// Leaves the halves of callchains that each view wants. A view without callchains is told so.
pub(super) fn halve_callchains(evlist: &mut Evlist, options: &Options, setup: &Setup<'_>) -> Result<()> {
    let halves: Vec<_> = options.views.iter().map(|view| view.halves).collect();
    for owner in evlist.halve_callchains(&halves)? {
        let name = options.views.get(owner).map_or("", |view| view.name.as_str());
        setup.warn(format!("{name}: a half of the stacks is chosen, but there are no stacks without -g"));
    }
    Ok(())
}

/// The settings of the output of each view.
pub(super) fn view_settings(options: &Options, evlist: &Evlist) -> Vec<ViewSettings> {
    let settings = |(owner, view): (usize, &ViewOptions)| {
        let has_chains = evlist.any_callchain_of(owner);
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

/// The formats of the events that may be printed. Events without a format are left out.
pub(super) fn event_texts(evlist: &Evlist, setup: &Setup<'_>) -> Result<Vec<Option<EventText>>> {
    let text = |evsel: &Evsel| -> Result<Option<EventText>> {
        let Some(alias) = evsel.shown_as() else { return Ok(None) };
        let format = setup.format_of(evsel)?;
        // What is not opened is a system call's event, told by the raw one: there is no more in the record.
        let format = if evsel.is_wanted() { format } else { Arc::new(syscalls::without_user_text(&format)) };
        Ok(Some(EventText::new(evsel.name(), alias, format).with_strings(evsel.has_strings())))
    };
    evlist.iter().map(|(_, evsel)| text(evsel)).collect()
}

pub(super) fn max_stack(host: &Host) -> usize {
    sysctl(host, "perf_event_max_stack").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(127)
}
