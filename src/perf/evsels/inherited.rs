//! Events of probes in programs that tasks inherit.

use crate::perf::event_id::EventId;
use crate::perf::evsel::{Binding, Evsel, ProbeKeeping};
use crate::perf::evsels::Evsels;
use crate::perf::target::{Target, Tasks};

impl Evsels {
    /// The events of probes in programs that children of the target's tasks will inherit, each with the inode of its file.
    pub fn inherited_probes(&self, target: &Target) -> Vec<(EventId, Option<u64>)> {
        if !matches!(target.tasks, Tasks::Workload(_) | Tasks::Processes(_)) {
            return Vec::new();
        }
        let of_task = |evsel: &&Evsel| evsel.is_opened() && evsel.binding == Binding::Task;
        let events = self.list.iter().enumerate().filter(|(_, evsel)| of_task(evsel));
        events.filter_map(|(index, evsel)| Some((EventId(index as u16), evsel.in_program?.inode))).collect()
    }

    /// Marks the probe events of other tools that are uprobes.
    pub fn mark_in_programs(&mut self, is_in_program: impl Fn(&Evsel) -> bool) {
        for evsel in self.list.iter_mut().filter(|evsel| evsel.in_program.is_none() && is_in_program(evsel)) {
            evsel.mark_in_program(None);
        }
    }

    /// Sets how an inherited uprobe is kept working on a kernel that cannot prevent swapping.
    pub fn keep(&mut self, event: EventId, keeping: ProbeKeeping) {
        if let Some(in_program) = &mut self.list[event.index()].in_program {
            in_program.keeping = keeping;
        }
    }

    /// Events of uprobes that tasks inherit and that are kept in this way.
    pub(in crate::perf) fn inherited(&self, keeping: ProbeKeeping) -> impl Iterator<Item = &Evsel> {
        let is = move |evsel: &&Evsel| {
            let is_so = evsel.in_program.is_some_and(|in_program| in_program.keeping == keeping);
            is_so && evsel.is_opened() && evsel.binding == Binding::Task
        };
        self.list.iter().filter(is)
    }
}
