//! The events of a run, as the profilers have added them, and the changes before they are opened. `shared` opens an
//! event once that several views want; `tested` is about events whose samples must pass a test; `halves` selects the
//! halves of callchains; `windows` adds copies of user stacks; `inherited` finds the uprobes that tasks inherit.

pub mod halves;
mod inherited;
mod shared;
mod tested;
pub mod windows;

use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result};

use crate::perf::event_id::EventId;
use crate::perf::evsel::{Binding, ChainUse, Evsel};

/// All events of a run, by their numbers.
#[derive(Debug, Default)]
pub struct Evsels {
    list: Vec<Evsel>,
    /// The views some of whose samples must pass a test: see [`Evsel::tested`]. Few, each once.
    tested_owners: Vec<usize>,
}

impl Deref for Evsels {
    type Target = [Evsel];

    fn deref(&self) -> &[Evsel] {
        &self.list
    }
}

impl DerefMut for Evsels {
    fn deref_mut(&mut self) -> &mut [Evsel] {
        &mut self.list
    }
}

impl Evsels {
    /// # Errors
    /// The run has more events than an [`EventId`] can number.
    pub(super) fn push(&mut self, evsel: Evsel) -> Result<EventId> {
        let id = EventId(u16::try_from(self.list.len()).context("more than 65,536 events")?);
        if evsel.test.is_some() && !self.tests_samples_of(evsel.owner) {
            self.tested_owners.push(evsel.owner);
        }
        self.list.push(evsel);
        Ok(id)
    }

    /// Removes events from the end, as long as `is_so` is true.
    pub(super) fn leave_out_last(&mut self, mut is_so: impl FnMut(&mut Evsel) -> bool) {
        while self.list.pop_if(&mut is_so).is_some() {}
    }

    /// Whether this holds for all events of the run: see
    /// [`Evlist::order_by_thread`](crate::perf::Evlist::order_by_thread).
    pub fn is_ordered_by_thread(&self) -> bool {
        self.list.iter().all(|evsel| evsel.is_ordered_by_thread)
    }

    /// Some event must be open on every CPU, even if the target has only some CPUs. An event that only takes what a
    /// program copies is where the copied one is.
    pub fn any_cpu_bound(&self) -> bool {
        self.list.iter().any(|evsel| evsel.binding == Binding::Cpu && !evsel.is_of_program())
    }

    /// The known inodes of files that have uprobes.
    pub fn probed_inodes(&self) -> impl Iterator<Item = u64> {
        self.list.iter().filter_map(|evsel| evsel.in_program?.inode)
    }

    /// Samples hold callchains that are shown.
    pub fn any_callchain(&self) -> bool {
        self.list.iter().any(|evsel| evsel.has_callchain() && evsel.chain_use == ChainUse::Shown)
    }

    /// As [`Evsels::any_callchain`], of the events of one view.
    pub fn any_callchain_of(&self, owner: usize) -> bool {
        let mut of_view = self.list.iter().filter(|evsel| evsel.owner == owner);
        of_view.any(|evsel| evsel.has_callchain() && evsel.chain_use == ChainUse::Shown)
    }

    /// Samples hold user addresses, which mean nothing without mappings.
    pub fn any_address(&self) -> bool {
        self.list.iter().any(Evsel::has_address)
    }

    /// Some event writes samples, and does not only count.
    pub fn any_samples(&self) -> bool {
        self.list.iter().any(|evsel| evsel.is_opened() && evsel.attr.samples())
    }
}
