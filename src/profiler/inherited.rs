//! Decides how inherited events of uprobes are kept complete: see `perf/evlist/inherited.rs`.

use crate::host::processes;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Evsel, ProbeKeeping};
use crate::perf::target::Tasks;
use crate::profiler::Setup;
use crate::symbol::functions::binary::has_mapped_inode;
use crate::task::procfs;

impl Setup<'_> {
    /// Decides this for all events of the list that children of the target will inherit.
    pub fn keep_inherited_probes(&self, evlist: &mut Evlist) {
        if !matches!(self.target.tasks, Tasks::Workload(_) | Tasks::Processes(_)) {
            return;
        }
        self.mark_foreign_probes(evlist);
        let probes = evlist.evsels.inherited_probes(self.target);
        if probes.is_empty() || Evlist::can_keep_apart() {
            return;
        }
        let mut looked_at: Vec<(u64, bool)> = Vec::new();
        for (event, inode) in probes {
            let is_shared = match inode {
                None => true, // unknown inode: assume that others use the file
                Some(inode) => {
                    let known = looked_at.iter().find(|(known, _)| *known == inode).map(|(_, shared)| *shared);
                    known.unwrap_or_else(|| {
                        let shared = self.is_used_elsewhere(inode);
                        looked_at.push((inode, shared));
                        shared
                    })
                }
            };
            evlist.evsels.keep(event, if is_shared { ProbeKeeping::InDoubt } else { ProbeKeeping::Everywhere });
        }
    }

    /// Marks uprobes that other tools have defined, which are selected as tracepoints.
    fn mark_foreign_probes(&self, evlist: &mut Evlist) {
        let is_tracepoint = |evsel: &Evsel| evsel.is_opened() && evsel.attr().tracepoint_id().is_some();
        if !evlist.iter().any(|(_, evsel)| is_tracepoint(evsel)) {
            return;
        }
        let Ok(tracefs) = self.tracefs.get() else { return };
        match tracefs.uprobes() {
            Ok(names) => evlist.evsels.mark_in_programs(|evsel| is_tracepoint(evsel) && names.contains(evsel.name())),
            // Without permission to read the list a uprobe is recognised by its first field, which kprobes have, too.
            Err(_) => evlist.evsels.mark_in_programs(|evsel| {
                let has = |field: &str| self.format_of(evsel).is_ok_and(|format| format.field(field).is_some());
                is_tracepoint(evsel) && (has("__probe_ip") || has("__probe_func"))
            }),
        }
    }

    /// Whether a process outside of the target executes the file of this inode, as far as processes are visible.
    fn is_used_elsewhere(&self, inode: u64) -> bool {
        let own = std::process::id() as i32;
        let is_other = |pid: &i32| match &self.target.tasks {
            Tasks::Processes(pids) => *pid != own && !pids.contains(pid),
            Tasks::Workload(workload) => *pid != own && pid != workload,
            _ => true,
        };
        // If a process that does not answer uses the file, its calls cost it time once it runs again, but the numbers
        // stay right.
        let mut others = processes(self.host).into_iter().filter(is_other);
        procfs::is_nested(self.host) || others.any(|pid| has_mapped_inode(self.host, pid, inode) == Some(true))
    }
}
