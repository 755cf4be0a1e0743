//! The descriptors of one CPU, and their counts of events and lost records.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::perf::classes::Class;
use crate::perf::event_id::EventId;
use crate::perf::evsel::Evsel;
use crate::sys;

/// The descriptors of one CPU, which share its rings.
#[derive(Debug)]
pub struct CpuEvents {
    pub cpu: u32,
    /// The watermarks of the events' rings in bytes, by class.
    pub(super) watermarks: Vec<u32>,
    /// The owners of the events' rings, by class. Empty: there are only side records.
    pub(super) owners: Vec<OwnedFd>,
    /// The owner of the ring of side records.
    pub(super) side_owner: Option<SideFd>,
    /// True: side records have a ring of their own. False: they go to the first ring of events.
    pub(super) side_ring: bool,
    pub(super) side_half: u32,
    pub(super) side: Vec<SideFd>,
    pub(super) events: Vec<EventFd>,
}

/// A dummy event that writes side records, or only owns their ring.
#[derive(Debug)]
pub struct SideFd {
    pub(super) fd: OwnedFd,
    /// The kernel's count of lost records at the last read(2).
    lost: u64,
}

/// Lost records, as counted by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub samples: u64,
    pub side: u64,
    /// Lost SWITCH records, which share a ring with samples but are none.
    pub switches: u64,
}

/// One open descriptor of an event.
#[derive(Debug)]
pub struct EventFd {
    pub(super) fd: OwnedFd,
    pub(super) event: EventId,
    class: usize,
    /// The kernel's count of lost samples at the last read(2).
    lost: u64,
    /// The values of the last read(2).
    read: CounterReading,
    /// The reading at the last `take_counted`.
    taken: CounterReading,
}

/// What a counter counted in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub count: u64,
    /// Times enabled and running; 0 where the attr does not ask for them.
    pub enabled_ns: u64,
    pub running_ns: u64,
    /// Lower bound of the length of the span: the reader may have been delayed between reading its clock and the
    /// counter.
    pub span_ns: u64,
}

/// The values of a counter, with the clock before and after the read(2).
#[derive(Clone, Copy, Debug, Default)]
struct CounterReading {
    count: u64,
    enabled_ns: u64,
    running_ns: u64,
    asked_ns: u64,
    told_ns: u64,
}

impl CounterReading {
    fn since(&self, before: &CounterReading) -> Counted {
        Counted {
            count: self.count.saturating_sub(before.count),
            enabled_ns: self.enabled_ns.saturating_sub(before.enabled_ns),
            running_ns: self.running_ns.saturating_sub(before.running_ns),
            span_ns: self.told_ns.saturating_sub(before.asked_ns),
        }
    }
}

impl Counted {
    fn is_nothing(&self) -> bool {
        self.count == 0 && self.enabled_ns == 0 && self.running_ns == 0
    }
}

impl EventFd {
    pub(super) fn new(fd: OwnedFd, event: EventId, class: usize) -> EventFd {
        let mut event = EventFd { fd, event, class, lost: 0, read: Default::default(), taken: Default::default() };
        event.begin();
        event
    }

    /// Takes the present values as the start of the count.
    pub(super) fn begin(&mut self) {
        self.taken.asked_ns = sys::monotonic_ns();
    }

    /// Reads the counter. Returns the samples lost since the last read.
    fn read(&mut self, evsels: &[Evsel]) -> u64 {
        let Some(attr) = evsels.get(self.event.index()).map(|evsel| &evsel.attr) else { return 0 };
        // {value, time_enabled, time_running, lost}; read_format decides which of the last three the kernel writes
        let mut values = [0_u64; 4];
        let asked_ns = sys::monotonic_ns();
        let Ok(count) = sys::perf::read(self.fd.as_fd(), &mut values) else { return 0 };
        (self.read.asked_ns, self.read.told_ns) = (asked_ns, sys::monotonic_ns());
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

impl SideFd {
    pub(super) fn new(fd: OwnedFd) -> SideFd {
        SideFd { fd, lost: 0 }
    }

    /// Returns the records lost since the last read.
    pub(super) fn read(&mut self) -> u64 {
        // {value, lost}; kernels that do not count lost records give the value alone
        let mut values = [0_u64; 2];
        let lost = match sys::perf::read(self.fd.as_fd(), &mut values) {
            Ok(2) => values[1],
            _ => self.lost,
        };
        let more = lost.saturating_sub(self.lost);
        self.lost = self.lost.max(lost);
        more
    }
}

impl CpuEvents {
    pub(super) fn new(cpu: u32) -> CpuEvents {
        CpuEvents {
            cpu,
            watermarks: Vec::new(),
            owners: Vec::new(),
            side_owner: None,
            side_ring: false,
            side_half: 0,
            side: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The watermark of a ring of events.
    pub(super) fn watermark_of(&self, class: usize) -> u32 {
        self.watermarks.get(class).or(self.watermarks.last()).copied().unwrap_or(0)
    }

    /// The descriptor that a ring was mapped from.
    pub(super) fn owner(&self, class: Class) -> Option<BorrowedFd<'_>> {
        let owner = match class {
            Class::Side => self.side_owner.as_ref().filter(|_| self.side_ring).map(|side| &side.fd),
            Class::Events(class) => self.owners.get(class),
        };
        owner.map(AsFd::as_fd)
    }

    /// The owner of the ring that side records go to.
    pub(super) fn side_target(&self) -> Option<BorrowedFd<'_>> {
        self.owner(Class::Side).or_else(|| self.owner(Class::Events(0)))
    }

    /// Records that a ring has lost since the last call, without SWITCH records of idle tasks.
    pub(super) fn take_lost(&mut self, class: Class, evsels: &[Evsel]) -> Lost {
        let has_side = class == if self.side_ring { Class::Side } else { Class::Events(0) };
        let side = self.side.iter_mut().chain(&mut self.side_owner).filter(|_| has_side);
        let of = self.events.iter_mut().filter(|event| Class::Events(event.class) == class);
        Lost { switches: 0, side: side.map(SideFd::read).sum(), samples: of.map(|event| event.read(evsels)).sum() }
    }

    /// Total count, as of the last read, of the events that write a sample each time; and the time of that read.
    pub(super) fn happened(&self, evsels: &[Evsel]) -> (u64, u64) {
        let is_sampled = |event: &&EventFd| evsels.get(event.event.index()).is_some_and(Evsel::is_sampled_each_time);
        let of = |event: &EventFd| (event.read.count, event.read.told_ns);
        let sampled = self.events.iter().filter(is_sampled).map(of);
        sampled.fold((0, 0), |(all, last), (count, told_ns)| (all + count, last.max(told_ns)))
    }

    /// By event, counts from the last call to the last read.
    pub(super) fn take_counted(&mut self) -> Vec<(u32, EventId, Counted)> {
        let cpu = self.cpu;
        let take = |event: &mut EventFd| event.read.since(&std::mem::replace(&mut event.taken, event.read));
        let of = |event: &mut EventFd| (cpu, event.event, take(event));
        let read = self.events.iter_mut().filter(|event| event.read.told_ns > 0);
        read.map(of).filter(|(_, _, counted)| !counted.is_nothing()).collect()
    }

    /// Closes the events of probes that this run has defined.
    pub(super) fn close_probes(&mut self, evsels: &[Evsel]) {
        self.events.retain(|event| !evsels.get(event.event.index()).is_some_and(|evsel| evsel.is_probe));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        let events = self.events.iter().map(|event| &event.fd);
        let side = self.side.iter().chain(&self.side_owner).map(|side| &side.fd);
        side.chain(&self.owners).chain(events)
    }
}
