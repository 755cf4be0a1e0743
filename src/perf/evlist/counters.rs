//! Counters beside the events of a run, for a forecast.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};

use crate::perf::cpu_events::EventFd;
use crate::perf::event_id::EventId;
use crate::perf::evlist::{BoundTo, Evlist, is_gone, watch_error};
use crate::perf::evsel::Binding;
use crate::sys;
use crate::sys::perf::Watch;

/// Counters of all events that are open, without a ring.
#[derive(Debug, Default)]
pub struct EventCounters(Vec<EventCounter>);

#[derive(Debug)]
struct EventCounter {
    fd: OwnedFd,
    cpu: u32,
    event: EventId,
    /// The value at the last read.
    count: u64,
}

impl Evlist {
    /// Announces that counters will be opened for the events: [`Evlist::plan`] checks that there are descriptors for
    /// both.
    pub fn with_counters(&mut self) {
        self.with_counters = true;
        self.idle.leave_out(); // a forecast needs no SWITCH records, only counts of samples
    }

    /// Opens a counter for each event that is open, with the same filter and target. The counters are disabled until
    /// [`EventCounters::enable`].
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`].
    pub fn open_counters(&mut self) -> Result<EventCounters> {
        let mut counters = Vec::new();
        for cpu in &self.cpus {
            let mut events: Vec<EventId> = cpu.events.iter().map(|event| event.event).collect();
            events.sort_unstable();
            events.dedup();
            for event in events {
                let evsel = &self.evsels[event.index()];
                let watches = match &self.plan.bound {
                    Some(BoundTo::Threads(_) | BoundTo::Cgroups(_)) if evsel.binding == Binding::Task => {
                        self.plan.watches(cpu.cpu)
                    }
                    _ => vec![Watch::Cpu(cpu.cpu)],
                };
                for watch in watches {
                    let fd = match self.missing.open(&mut evsel.attr.clone().counting().enable_on_exec(false), watch) {
                        Ok(fd) => fd,
                        Err(err) if is_gone(&err) => continue,
                        Err(err) => return Err(watch_error(err, &evsel.name, &evsel.attr, watch)),
                    };
                    if let Some(filter) = &evsel.filter {
                        sys::perf::set_filter(fd.as_fd(), filter)
                            .with_context(|| format!("the kernel refuses the filter of {}: {filter}", evsel.name))?;
                    }
                    counters.push(EventCounter { fd, cpu: cpu.cpu, event, count: 0 });
                }
            }
        }
        Ok(EventCounters(counters))
    }

    /// The number of the ring, among those of a CPU, that takes the records of an event.
    pub fn ring_of(&self, event: EventId) -> usize {
        self.plan.classes.get(event.index()).copied().unwrap_or(0)
    }

    /// The counts of the events so far, by CPU and event, always in the same order.
    pub fn read_counts(&self) -> Vec<(u32, EventId, u64)> {
        let events = self.cpus.iter().flat_map(|cpu| cpu.events.iter().map(|event| (cpu.cpu, event)));
        let read = |(cpu, event): (u32, &EventFd)| {
            let mut values = [0_u64; 4];
            let _ = sys::perf::read(event.fd.as_fd(), &mut values); // fails if the task has exited
            (cpu, event.event, values[0])
        };
        events.map(read).collect()
    }

    /// Enables or disables the events. Side records go on.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn enable_samples(&self, on: bool) -> io::Result<()> {
        let turn = if on { sys::perf::enable } else { sys::perf::disable };
        self.cpus.iter().flat_map(|cpu| &cpu.events).try_for_each(|event| turn(event.fd.as_fd()))
    }
}

impl EventCounters {
    /// Enables or disables all counters.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn enable(&self, on: bool) -> io::Result<()> {
        let turn = if on { sys::perf::enable } else { sys::perf::disable };
        self.0.iter().try_for_each(|counter| turn(counter.fd.as_fd()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The counts since the last call, by CPU and event.
    pub fn take(&mut self) -> Vec<(u32, EventId, u64)> {
        let read = |counter: &mut EventCounter| {
            let mut values = [0_u64; 4];
            sys::perf::read(counter.fd.as_fd(), &mut values).ok().filter(|read| *read > 0)?;
            let before = std::mem::replace(&mut counter.count, values[0]);
            Some((counter.cpu, counter.event, values[0].saturating_sub(before)))
        };
        self.0.iter_mut().filter_map(read).collect()
    }
}
