//! Prepared before the events of a run are opened: the workload, the events of the profilers, and their formats.

use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::host::{Host, sysctl};
use crate::output::EventText;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::no_tracefs::NoTracefs;
use crate::perf::target::Tasks;
use crate::profiler::{Profiler, Setup};
use crate::run::Options;
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
pub(super) fn add_events(profilers: &mut [Box<dyn Profiler>], evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
    let added: Result<()> = profilers.iter_mut().enumerate().try_for_each(|(index, profiler)| {
        evlist.adding_for(index);
        profiler.init(evlist, setup)
    });
    added.map_err(|err| match err.downcast::<NoTracefs>() {
        Ok(none) => none.for_events(setup.host).into(),
        Err(err) => err,
    })
}

/// The formats of the events that may be printed. Events without a format are left out.
pub(super) fn event_texts(evlist: &Evlist, setup: &Setup<'_>) -> Result<Vec<Option<EventText>>> {
    let text = |evsel: &Evsel| -> Result<Option<EventText>> {
        let Some(alias) = evsel.shown_as() else { return Ok(None) };
        let format = setup.format_of(evsel)?;
        // What is not opened is a system call's event, told by the raw one: there is no more in the record.
        let format = if evsel.is_opened() { format } else { Arc::new(syscalls::without_user_text(&format)) };
        Ok(Some(EventText::new(evsel.name(), alias, format)))
    };
    evlist.iter().map(|(_, evsel)| text(evsel)).collect()
}

pub(super) fn max_stack(host: &Host) -> usize {
    sysctl(host, "perf_event_max_stack").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(127)
}
