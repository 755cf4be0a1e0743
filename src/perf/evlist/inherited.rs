//! Inherited events of probes in programs, and what keeps them true.
//!
//! The kernel asks of each address space whether an event of the probe was opened for a task that lives in it, and puts the
//! breakpoint there or takes it out (`uprobe_perf_filter`, kernel/trace/trace_uprobe.c). But tasks whose events are all
//! copies of the same ones swap them when one follows the other on a CPU, since that is cheaper than to stop and start each
//! (`perf_event_context_sched_out`, kernel/events/core.c). An event counts for one task then, and speaks for the memory of
//! the other. When the one that has it exits, nobody speaks for the other any more: of a process that lives, all calls go
//! unseen from that moment on, and no record tells of it.
//!
//! Tasks do not swap where an inherited event is there whose samples hold counts: since such events are allowed (6.12), the
//! kernel keeps them with their task. So each task gets one that counts nothing and is never sampled. On older kernels one
//! event of a whole CPU, opened beside those of the tasks, keeps the breakpoint in every program that has the file: this is
//! done where no other has it, since they would pay for each call. Else the numbers are in doubt once a child is there.

use std::os::fd::OwnedFd;

use anyhow::Result;

use crate::perf::attr::{Attr, MissingFeatures};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Evsel, ProbeKeeping};
use crate::perf::opening::{is_gone, watch_error};
use crate::perf::plan::BoundTo;
use crate::perf::target::Target;
use crate::sys::perf::{Watch, open};

/// The descriptors that keep inherited events right.
#[derive(Debug, Default)]
pub(super) struct InheritedGuards {
    /// One per task.
    apart: Vec<OwnedFd>,
    /// One per probe. A probe cannot be removed while its descriptor is open.
    everywhere: Vec<OwnedFd>,
}

impl InheritedGuards {
    pub fn close_probes(&mut self) {
        self.everywhere.clear();
    }

    /// Puts the probe of an event in every program that has its file.
    fn hold_everywhere(&mut self, evsel: &Evsel, missing: &mut MissingFeatures) -> Result<()> {
        let cpu = nix::sched::sched_getcpu().map_or(0, |cpu| cpu as u32);
        let (mut attr, watch) = (evsel.attr.clone().counting(), Watch::Cpu(cpu));
        let fd = missing.open(&mut attr, watch).map_err(|err| watch_error(err, &evsel.name, &attr, watch))?;
        self.everywhere.push(fd);
        Ok(())
    }

    /// Keeps the events of these threads with them.
    fn hold_apart(&mut self, tids: &[i32]) -> Result<()> {
        for &tid in tids {
            let (attr, watch) = (Attr::stays_with_task(), Watch::Thread { tid });
            match open(&mut attr.raw(), watch) {
                Ok(fd) => self.apart.push(fd),
                Err(err) if is_gone(&err) => {}
                Err(err) => return Err(watch_error(err, "an event that keeps probes with their task", &attr, watch)),
            }
        }
        Ok(())
    }
}

impl Evlist {
    /// Whether the kernel knows events that keep tasks from swapping.
    pub fn can_keep_apart() -> bool {
        let own = nix::unistd::gettid().as_raw();
        open(&mut Attr::stays_with_task().raw(), Watch::Thread { tid: own }).is_ok()
    }

    /// Names of events whose calls in children may go unseen.
    pub fn in_doubt(&self) -> Vec<&str> {
        match self.plan.inherit && self.plan.bound.is_some() {
            true => self.evsels.inherited(ProbeKeeping::InDoubt).map(Evsel::name).collect(),
            false => Vec::new(),
        }
    }

    /// The warning about these events, before the run.
    pub(super) fn doubt(&self) -> Option<String> {
        let names = self.in_doubt();
        let (first, rest) = names.split_first()?;
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        Some(format!(
            "degraded: calls of {first}{more} in processes that the target starts may go unseen: before Linux 6.12 the \
             kernel takes a probe out of some, and for perf-prof to put it everywhere others use the same file; cure: a \
             newer kernel, or no target: then each call costs whoever uses the file"
        ))
    }

    /// Number of descriptors that keep inherited probes.
    pub(super) fn guard_descriptors(&self, target: &Target, bound: Option<&BoundTo>) -> u64 {
        let (Some(BoundTo::Threads(tids)), false) = (bound, self.evsels.inherited_probes(target).is_empty()) else {
            return 0;
        };
        let apart = self.evsels.inherited(ProbeKeeping::Apart).next().map_or(0, |_| tids.len());
        (apart + self.evsels.inherited(ProbeKeeping::Everywhere).count()) as u64
    }

    /// Opens the events that keep probes everywhere and tasks apart, before the events that tasks will inherit.
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`].
    pub(super) fn open_guards(&mut self) -> Result<()> {
        let Some(BoundTo::Threads(tids)) = self.plan.bound.clone().filter(|_| self.plan.inherit) else { return Ok(()) };
        for evsel in self.evsels.inherited(ProbeKeeping::Everywhere) {
            self.guards.hold_everywhere(evsel, &mut self.missing)?;
        }
        self.guard_apart(&tids)
    }

    /// Keeps the events of these threads with them, where they inherit some that need it.
    pub(super) fn guard_apart(&mut self, tids: &[i32]) -> Result<()> {
        if self.evsels.inherited(ProbeKeeping::Apart).next().is_none() {
            return Ok(());
        }
        self.guards.hold_apart(tids)
    }
}
