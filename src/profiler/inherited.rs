//! Decides how inherited events of probes in programs are kept complete: see `perf/evlist/inherited.rs`.

use crate::host::processes;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Evsel, ProbeKeeping};
use crate::perf::target::Tasks;
use crate::profiler::Setup;
use crate::symbol::functions::binary::has_mapped_inode;
use crate::task::procfs;

impl Setup<'_> {
    /// Decides it for all events of the list that children of the target will inherit.
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
                None => true, // as far as anybody knows
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

    /// Marks the probes in programs that others have defined: for us they are tracepoints.
    fn mark_foreign_probes(&self, evlist: &mut Evlist) {
        let is_tracepoint = |evsel: &Evsel| evsel.is_opened() && evsel.attr().tracepoint_id().is_some();
        if !evlist.iter().any(|(_, evsel)| is_tracepoint(evsel)) {
            return;
        }
        let Ok(tracefs) = self.tracefs.get() else { return };
        match tracefs.uprobes() {
            Ok(names) => evlist.evsels.mark_in_programs(|evsel| is_tracepoint(evsel) && names.contains(evsel.name())),
            // Without permission to read the list a probe is known by its first field. So are probes in the kernel.
            Err(_) => evlist.evsels.mark_in_programs(|evsel| {
                let has = |field: &str| self.format_of(evsel).is_ok_and(|format| format.field(field).is_some());
                is_tracepoint(evsel) && (has("__probe_ip") || has("__probe_func"))
            }),
        }
    }

    /// Whether a process outside of the target executes the file of this inode, as far as we see processes.
    fn is_used_elsewhere(&self, inode: u64) -> bool {
        let own = std::process::id() as i32;
        let is_other = |pid: &i32| match &self.target.tasks {
            Tasks::Processes(pids) => *pid != own && !pids.contains(pid),
            Tasks::Workload(workload) => *pid != own && pid != workload,
            _ => true,
        };
        // If one that does not answer has the file, its calls only cost it time once it goes on: the numbers are right all the
        // same.
        let mut others = processes(self.host).into_iter().filter(is_other);
        procfs::is_nested(self.host) || others.any(|pid| has_mapped_inode(self.host, pid, inode) == Some(true))
    }
}
