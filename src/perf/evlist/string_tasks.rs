//! The tasks whose strings are copied: if the kernel can recognise the target's tasks, other tasks pay nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::bpf::tasks::{CopiedTasks, TaskMap};
use crate::host::{Host, online_cpus};
use crate::perf::attr::{Attr, MissingFeatures};
use crate::perf::evlist::Evlist;
use crate::perf::target::{Target, Tasks};
use crate::sys::perf::Watch;

/// The map of tasks in the kernel, and the event that keeps it up to date. Without it strings are copied for all tasks.
#[derive(Debug)]
pub(super) struct StringTasks {
    pub map: TaskMap,
    /// A counting event that keeps the program on the fork tracepoint attached.
    pub forks: Option<OwnedFd>,
}

/// The tracepoint that fires when a task starts another one.
#[derive(Clone, Copy, Debug)]
pub struct ForkEvent {
    pub id: u32,
    /// Offset of the child's pid in the record.
    pub child: u16,
}

impl StringTasks {
    /// None: strings are to be copied for all tasks.
    fn of(
        target: &Target,
        numbers: Option<&[i32]>,
        host: &Host,
        forks: impl FnOnce() -> io::Result<ForkEvent>,
        missing: &mut MissingFeatures,
    ) -> io::Result<Option<StringTasks>> {
        let workload;
        let pids = match &target.tasks {
            Tasks::All | Tasks::Cgroups(_) => return Ok(None),
            Tasks::Threads(tids) => {
                let map = TaskMap::new(CopiedTasks::Threads(numbers.unwrap_or(tids)))?;
                return Ok(Some(StringTasks { map, forks: None }));
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
        // This happens before any other event is opened, so that no child is missed.
        let event = missing.open(&mut Attr::tracepoint(forks.id).counting(), Watch::Cpu(cpu))?;
        map.attach(event.as_fd())?;
        Ok(Some(StringTasks { map, forks: Some(event) }))
    }
}

impl Evlist {
    /// Strings are copied for the tasks of `target` only, and for the processes that they start from now on. To be
    /// called before [`Evlist::copy_strings`]; a second call changes nothing. `numbers`: for a target of threads, the
    /// tids that they have and may get.
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
        if self.strings.tasks.is_none() && !self.with_counters {
            self.strings.tasks = StringTasks::of(target, numbers, host, forks, &mut self.missing)?;
        }
        Ok(())
    }
}
