//! The descriptors of one CPU, and what they say: how much was counted, and how much of that was lost.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::perf::evsel::{EventId, Evsel};
use crate::sys;

/// The descriptors of one CPU, which share its ring.
#[derive(Debug)]
pub struct CpuEvents {
    pub cpu: u32,
    /// Half the ring, in bytes: the watermark.
    pub(super) half: u32,
    /// Side records and no events.
    pub(super) side_alone: bool,
    pub(super) owner: OwnedFd,
    pub(super) side: Vec<OwnedFd>,
    pub(super) events: Vec<EventFd>,
}

/// One event, where it is open.
#[derive(Debug)]
pub struct EventFd {
    pub(super) fd: OwnedFd,
    pub(super) event: EventId,
    /// Samples lost, as of the last reading.
    lost: u64,
    /// As of the last reading, and how much of that was taken already.
    read: Counted,
    taken: Counted,
}

/// What a counter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub count: u64,
    /// How long the event was wanted, and how long it really counted. Only what its attr asks for.
    pub enabled_ns: u64,
    pub running_ns: u64,
}

impl Counted {
    fn since(&self, before: &Counted) -> Counted {
        Counted {
            count: self.count.saturating_sub(before.count),
            enabled_ns: self.enabled_ns.saturating_sub(before.enabled_ns),
            running_ns: self.running_ns.saturating_sub(before.running_ns),
        }
    }
}

impl EventFd {
    pub(super) fn new(fd: OwnedFd, event: EventId) -> EventFd {
        EventFd { fd, event, lost: 0, read: Counted::default(), taken: Counted::default() }
    }

    /// Asks the kernel what was counted, and how many samples were lost since the last time.
    fn read(&mut self, evsels: &[Evsel]) -> u64 {
        let Some(attr) = evsels.get(self.event.index()).map(|evsel| &evsel.attr) else { return 0 };
        // {value, time_enabled, time_running, lost}, the latter three as read_format says
        let mut values = [0_u64; 4];
        let Ok(count) = sys::perf::read(self.fd.as_fd(), &mut values) else { return 0 };
        let mut rest = values.iter().take(count);
        let read = &mut self.read;
        for (there, field) in [
            (true, &mut read.count),
            (attr.counts_time_enabled(), &mut read.enabled_ns),
            (attr.counts_time(), &mut read.running_ns),
        ] {
            if there && let Some(value) = rest.next() {
                *field = *value;
            }
        }
        if !attr.counts_lost() {
            return 0;
        }
        let lost = rest.next().copied().unwrap_or(self.lost);
        let more = lost.saturating_sub(self.lost);
        self.lost = self.lost.max(lost);
        more
    }
}

impl CpuEvents {
    /// What the events have lost since the last call.
    pub(super) fn take_lost(&mut self, evsels: &[Evsel]) -> u64 {
        self.events.iter_mut().map(|event| event.read(evsels)).sum()
    }

    /// What was counted from the last call to the last reading.
    pub(super) fn take_counted(&mut self) -> Vec<(u32, EventId, Counted)> {
        let cpu = self.cpu;
        let take = |event: &mut EventFd| event.read.since(&std::mem::replace(&mut event.taken, event.read));
        let of = |event: &mut EventFd| (cpu, event.event, take(event));
        self.events.iter_mut().map(of).filter(|(_, _, counted)| *counted != Counted::default()).collect()
    }

    /// Closes the events of the run's own probes.
    pub(super) fn close_probes(&mut self, evsels: &[Evsel]) {
        self.events.retain(|event| !evsels.get(event.event.index()).is_some_and(|evsel| evsel.is_probe));
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.side.iter().chain([&self.owner]).chain(self.events.iter().map(|event| &event.fd)).map(AsRawFd::as_raw_fd)
    }
}
