//! A BPF program on an event: it copies data that the event's own record lacks into records of an output event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::bpf::copier::Copier;
use crate::perf::attr::MissingFeatures;
use crate::perf::event_id::EventId;
use crate::perf::evsel::Evsel;
use crate::sys::perf::Watch;

/// The program, and the events that it writes to.
#[derive(Debug)]
pub struct EventCopier {
    pub(super) copier: Copier,
    /// The event that the program is attached to.
    pub(super) of: EventId,
    pub(super) output: EventId,
    /// A counting event that keeps the program attached. None: the program is not attached yet.
    pub(super) attached: Option<OwnedFd>,
    /// The first refusal after the program was loaded.
    refused: Option<io::Error>,
}

impl EventCopier {
    pub(super) fn new(copier: Copier, of: EventId, output: EventId) -> EventCopier {
        EventCopier { copier, of, output, attached: None, refused: None }
    }

    /// On `cpu`, output of the program goes through `event` if `output` is the program's output event.
    pub(super) fn write_through(&mut self, output: EventId, cpu: u32, event: BorrowedFd<'_>) {
        if self.output == output
            && let Err(err) = self.copier.write_through(cpu, event)
        {
            self.refused.get_or_insert(err);
        }
    }

    /// Attaches the program through an event on `cpu`. `evsel`: the event that it is attached to.
    ///
    /// # Errors
    /// The first refusal since the program was loaded.
    pub(super) fn attach(&mut self, evsel: &Evsel, missing: &mut MissingFeatures, cpu: u32) -> io::Result<()> {
        let refused = self.refused.take();
        // The program has an event of its own, since recording events are closed when their CPUs go offline.
        let mut counter = evsel.attr.clone().counting().enable_on_exec(false).inherit(false);
        let event = missing.open(&mut counter, Watch::Cpu(cpu))?;
        self.copier.attach(event.as_fd())?;
        if refused.is_none() {
            self.attached = Some(event);
        }
        refused.map_or(Ok(()), Err)
    }
}
