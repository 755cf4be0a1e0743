//! A program on an event that copies what the event's own record lacks, into records of another event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::bpf::copier::Copier;
use crate::perf::attr::MissingFeatures;
use crate::perf::event_id::EventId;
use crate::perf::evsel::Evsel;
use crate::sys::perf::Watch;

/// The program, and what it writes through.
#[derive(Debug)]
pub struct EventCopier {
    pub(super) copier: Copier,
    /// The event that it is attached to.
    pub(super) of: EventId,
    pub(super) output: EventId,
    /// An event that counts, and keeps the program attached. None: it is not attached yet.
    pub(super) attached: Option<OwnedFd>,
    /// The first refusal after the program was loaded.
    refused: Option<io::Error>,
}

impl EventCopier {
    pub(super) fn new(copier: Copier, of: EventId, output: EventId) -> EventCopier {
        EventCopier { copier, of, output, attached: None, refused: None }
    }

    /// What is written through the event `output` goes to the ring of `event`, on a CPU.
    pub(super) fn write_through(&mut self, output: EventId, cpu: u32, event: BorrowedFd<'_>) {
        if self.output == output
            && let Err(err) = self.copier.write_through(cpu, event)
        {
            self.refused.get_or_insert(err);
        }
    }

    /// Attaches the program on `cpu`. `evsel` is its event.
    ///
    /// # Errors
    /// The first refusal since the program was loaded.
    pub(super) fn attach(&mut self, evsel: &Evsel, missing: &mut MissingFeatures, cpu: u32) -> io::Result<()> {
        let refused = self.refused.take();
        // An event of its own: those that record are closed as their CPUs go offline.
        let mut counter = evsel.attr.clone().counting().enable_on_exec(false).inherit(false);
        let event = missing.open(&mut counter, Watch::Cpu(cpu))?;
        self.copier.attach(event.as_fd())?;
        if refused.is_none() {
            self.attached = Some(event);
        }
        refused.map_or(Ok(()), Err)
    }
}
