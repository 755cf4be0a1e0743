//! Copies of what happens while a hidden idle task is current: only virtual machines are known to hide it.

use crate::host::is_virtual;
use crate::perf::evlist::Evlist;
use crate::perf::target::Tasks;
use crate::profiler::Setup;
use crate::run::Options;

/// Has the records of idle tasks copied, if the answer may be about them.
pub(super) fn copy(evlist: &mut Evlist, options: &Options, setup: &Setup<'_>) {
    if options.dry_run || !is_virtual(setup.host) {
        return;
    }
    let any_task = matches!(options.target.tasks, Tasks::All);
    for event in evlist.idle_candidates(any_task) {
        let Ok(format) = setup.format_of(evlist.evsel(event)) else { continue };
        if let Err(reason) = evlist.copy_idle_records(event, &format, setup.host) {
            setup.note(format!("what happens on idle CPUs may be unseen: {reason}"));
            break;
        }
    }
}
