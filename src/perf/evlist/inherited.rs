//! Inherited events of uprobes, and how their counts are kept right.
//!
//! For each address space the kernel checks whether an event of the uprobe was opened for a task in it, and inserts or
//! removes the breakpoint (`uprobe_perf_filter`, kernel/trace/trace_uprobe.c). But two tasks that inherited the same
//! events swap them when one follows the other on a CPU, since that is cheaper than stopping and starting each event
//! (`perf_event_context_sched_out`, kernel/events/core.c). After a swap, an event counts for one task but keeps the
//! breakpoint in the address space of the other. When the task that has the event exits, the kernel removes the
//! breakpoint from the other, living process: all its calls go unseen from then on, and no record says so.
//!
//! Tasks do not swap events if one of these is an inherited event whose samples hold counts: since 6.12, which allows
//! such events, the kernel keeps them with their task. So each task gets such an event, which counts nothing and is
//! never sampled. On older kernels one additional event of a whole CPU keeps the breakpoint in every process that maps
//! the file. This is done only if no other process maps it, since that process would pay for each call. Otherwise the
//! numbers are in doubt once a child exists.

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
    /// One event per task, which prevents swapping.
    apart: Vec<OwnedFd>,
    /// One event of a whole CPU per probe. A probe cannot be removed while its descriptor is open.
    everywhere: Vec<OwnedFd>,
}

impl InheritedGuards {
    pub fn close_probes(&mut self) {
        self.everywhere.clear();
    }

    /// Keeps the probe of an event in every process that maps its file.
    fn hold_everywhere(&mut self, evsel: &Evsel, missing: &mut MissingFeatures) -> Result<()> {
        let cpu = nix::sched::sched_getcpu().map_or(0, |cpu| cpu as u32);
        let (mut attr, watch) = (evsel.attr.clone().counting(), Watch::Cpu(cpu));
        let fd = missing.open(&mut attr, watch).map_err(|err| watch_error(err, &evsel.name, &attr, watch))?;
        self.everywhere.push(fd);
        Ok(())
    }

    /// Prevents the kernel from swapping the events of these threads.
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
    /// Whether the kernel allows the events that prevent swapping.
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

    /// Number of descriptors that keep inherited probes working.
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

    /// Prevents the swapping of these threads' events, if they inherit events of uprobes.
    pub(super) fn guard_apart(&mut self, tids: &[i32]) -> Result<()> {
        if self.evsels.inherited(ProbeKeeping::Apart).next().is_none() {
            return Ok(());
        }
        self.guards.hold_apart(tids)
    }
}
