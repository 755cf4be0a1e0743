//! The tasks whose strings are copied: where the kernel can tell those of the answer, other tasks pay nothing for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::bpf::tasks::{CopiedTasks, TaskMap};
use crate::host::{Host, online_cpus};
use crate::perf::attr::Attr;
use crate::perf::evlist::Evlist;
use crate::perf::target::{Target, Tasks};
use crate::sys::perf::Watch;

/// The tasks in the kernel, and what keeps them up to date. Without them strings are copied for all.
#[derive(Debug)]
pub(super) struct StringTasks {
    pub map: TaskMap,
    /// An event that counts, and keeps the program at forks attached.
    pub forks: Option<OwnedFd>,
}

/// The tracepoint that fires when a task starts another one.
#[derive(Clone, Copy, Debug)]
pub struct ForkEvent {
    pub id: u32,
    /// Offset of the child's number in the record.
    pub child: u16,
}

impl Evlist {
    /// Strings are copied for the tasks of `target` only, and for the processes that they start from now on. To be called
    /// before [`Evlist::copy_strings`]; a second call changes nothing. `numbers`: those that the given threads have and may get.
    ///
    /// # Errors
    /// The kernel's errno: the strings of all tasks will be copied.
    pub fn limit_strings(
        &mut self,
        target: &Target,
        numbers: Option<&[i32]>,
        host: &Host,
        forks: impl FnOnce() -> io::Result<ForkEvent>,
    ) -> io::Result<()> {
        if self.string_tasks.is_some() || self.with_counters {
            return Ok(());
        }
        let workload;
        let pids = match &target.tasks {
            Tasks::All | Tasks::Cgroups(_) => return Ok(()),
            Tasks::Threads(tids) => {
                let map = TaskMap::new(CopiedTasks::Threads(numbers.unwrap_or(tids)))?;
                self.string_tasks = Some(StringTasks { map, forks: None });
                return Ok(());
            }
            Tasks::Processes(pids) => &pids[..],
            Tasks::Workload(pid) => {
                workload = [*pid];
                &workload
            }
        };
        let forks = forks()?;
        let cpu = online_cpus(host).map(|online| target.cpus(&online).0.first().copied());
        let cpu = cpu.ok().flatten().ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))?;
        let map = TaskMap::new(CopiedTasks::Processes { pids, child: forks.child })?;
        // Before any event is opened: what a child inherits is known then.
        let event = self.missing.open(&mut Attr::tracepoint(forks.id).counting(), Watch::Cpu(cpu))?;
        map.attach(event.as_fd())?;
        self.string_tasks = Some(StringTasks { map, forks: Some(event) });
        Ok(())
    }

    /// The strings of a process that is watched from now on are copied, too.
    pub(super) fn copy_strings_of(&self, pid: i32) -> io::Result<()> {
        self.string_tasks.as_ref().map_or(Ok(()), |tasks| tasks.map.insert(pid))
    }
}
