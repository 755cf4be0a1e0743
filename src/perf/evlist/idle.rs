//! A second witness of switches, for CPUs whose idle task is hidden: on some virtual machines no event fires while that task
//! is current, so nobody sees who takes the CPU from it. The SWITCH record of the task that comes is written when it is current.
//!
//! They cost the CPU some 96 bytes and a microsecond for each switch. So they are on until it is known whether the idle task
//! is seen: a counter of the switches from it, beside, tells. Where it is seen they end, and while a CPU is never idle they
//! rest.

use std::os::fd::{AsFd, OwnedFd};

use crate::perf::attr::Attr;
use crate::perf::classes::Class;
use crate::perf::cpu_events::{CpuEvents, SideFd};
use crate::perf::evlist::{Evlist, shared_bits};
use crate::perf::evsel::EventId;
use crate::sys;
use crate::sys::perf::Watch;

/// How the switches of a CPU are watched.
#[derive(Debug)]
pub struct IdleWatch {
    /// Makes the SWITCH records.
    pub(in crate::perf) switches: SideFd,
    /// Counts the switches from idle that events see. None: that is settled.
    pub(in crate::perf) seen: Option<OwnedFd>,
    tally: Tally,
    sight: Sight,
    /// It was [`Sight::Hidden`] before it rested.
    hides: bool,
}

/// What is known of an idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Nothing yet.
    Asked,
    /// Events see it: SWITCH records say nothing new.
    Seen,
    /// They do not.
    Hidden,
    /// It has not run for long.
    Resting,
}

/// Tasks that came since the question was asked.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: u64,
    from_idle: u64,
    /// Since the last one from idle.
    busy: u64,
}

impl Tally {
    fn add(&mut self, from_idle: bool) {
        self.all += 1;
        self.from_idle += u64::from(from_idle);
        self.busy = if from_idle { 0 } else { self.busy + 1 };
    }

    /// Whether a CPU whose idle task is hidden has been busy for so long that the records are in vain. It may be idle for up
    /// to a tenth of a second before they are on again: that should be rare.
    fn is_in_vain(self) -> bool {
        self.busy >= 20_000
    }

    /// What they tell. `seen`: how many of those from idle an event has seen.
    fn sight(self, seen: impl FnOnce() -> u64) -> Sight {
        /// One that is not seen may be chance, as an event that fires inside of another one.
        const ENOUGH: u64 = 3;
        /// Without one from idle: the CPU has other things to do.
        const BUSY: u64 = 1000;
        if self.from_idle >= ENOUGH {
            if seen() == 0 { Sight::Hidden } else { Sight::Seen }
        } else if self.from_idle == 0 && self.all >= BUSY {
            Sight::Resting
        } else {
            Sight::Asked
        }
    }
}

impl IdleWatch {
    /// The counter first: it must not have missed what the records tell.
    pub(super) fn enable(&self) {
        for fd in self.seen.iter().chain([&self.switches.fd]) {
            let _ = sys::perf::enable(fd.as_fd());
        }
    }

    fn judge(&mut self) -> Sight {
        let seen = || {
            let mut values = [0_u64; 4];
            let read = self.seen.as_ref().map(|seen| sys::perf::read(seen.as_fd(), &mut values));
            // Who cannot tell does without.
            if matches!(read, Some(Ok(1..))) { values[0] } else { u64::MAX }
        };
        self.tally.sight(seen)
    }
}

impl Evlist {
    /// Switches from a hidden idle task are told as SWITCH records, in the ring of the event `switch`: `sched:sched_switch`.
    /// See [`Event::SwitchIn`](crate::profiler::Event::SwitchIn).
    pub fn watch_idle(&mut self, switch: EventId) {
        self.idle_switch = Some(switch);
    }

    /// Descriptors per CPU for that.
    pub(super) fn idle_descriptors(&self) -> u64 {
        if self.idle_switch.is_some() && !self.with_counters { 2 } else { 0 }
    }

    /// Opens what watches the idle task of `cpu`. A kernel that refuses leaves us with what the events see.
    ///
    /// Last of all, as events are enabled in the order in which they were opened: who is told to come must be seen to go.
    pub(super) fn open_idle_watch(&mut self, cpu: &mut CpuEvents) {
        let Some(switch) = self.idle_switch.filter(|_| !self.with_counters) else { return }; // a forecast counts samples
        let class = self.ring_of(switch);
        let watch = Watch::Cpu(cpu.cpu);
        let mut attr = Attr::dummy().with_sample_type(shared_bits(&self.evsels)).watermark(cpu.half).switches();
        let mut counter = self.evsels[switch.index()].attr.clone().counting().enable_on_exec(false);
        let Ok(seen) = self.missing.open(&mut counter, watch) else { return };
        if sys::perf::set_filter(seen.as_fd(), "prev_pid == 0").is_err() {
            return;
        }
        let Ok(switches) = self.missing.open(&mut attr, watch) else { return };
        let Some(owner) = cpu.owner(Class::Events(class)).filter(|_| attr.has_switches()) else { return };
        if sys::perf::set_output(switches.as_fd(), owner).is_err() {
            return;
        }
        cpu.idle = Some(IdleWatch {
            switches: SideFd::new(switches),
            seen: Some(seen),
            tally: Tally::default(),
            sight: Sight::Asked,
            hides: false,
        });
        cpu.idle_class = class;
    }

    /// A switch on `cpu` went unseen, and no record was lost: some other task is hidden there. Where that happens again, or
    /// idle tasks are hidden too, it is watched from now on.
    pub fn missed_switch(&mut self, cpu: u32) {
        let is_hidden = |events: &CpuEvents| events.idle.as_ref().is_some_and(|idle| idle.hides);
        let hides = self.cpus.iter().any(is_hidden);
        let Some(at) = self.cpus.iter().position(|events| events.cpu == cpu) else { return };
        let mut cpus = std::mem::take(&mut self.cpus);
        self.watch_hidden(&mut cpus[at], hides);
        self.cpus = cpus;
    }

    fn watch_hidden(&mut self, events: &mut CpuEvents, hides: bool) {
        const CHANCE: u64 = 2;
        events.missed_switches += 1;
        let is_watched = |idle: &IdleWatch| matches!(idle.sight, Sight::Asked | Sight::Hidden);
        if events.missed_switches <= CHANCE && !hides || events.idle.as_ref().is_some_and(is_watched) {
            return;
        }
        if events.idle.is_none() {
            self.open_idle_watch(events);
        }
        match &mut events.idle {
            Some(idle) => {
                (idle.seen, idle.sight, idle.hides, idle.tally) = (None, Sight::Hidden, true, Tally::default());
                idle.enable();
            }
            None => self.idle_switch = None, // it will not be allowed the next time either
        }
    }

    /// A SWITCH record told that somebody came.
    pub fn count_switch_in(&mut self, cpu: u32, from_idle: bool) {
        let of_cpu = self.cpus.iter_mut().find(|events| events.cpu == cpu);
        if let Some(idle) = of_cpu.and_then(|events| events.idle.as_mut()) {
            idle.tally.add(from_idle);
        }
    }

    /// Settles what the records up to now tell of idle tasks. Returns the CPUs whose are hidden, as is known from now on.
    pub fn judge_idle(&mut self) -> Vec<u32> {
        let mut hidden = Vec::new();
        for events in &mut self.cpus {
            let Some(idle) = events.idle.as_mut() else { continue };
            match idle.sight {
                Sight::Asked => idle.sight = idle.judge(),
                Sight::Hidden if idle.tally.is_in_vain() => idle.sight = Sight::Resting,
                _ => continue,
            }
            match idle.sight {
                Sight::Asked => {}
                Sight::Hidden => {
                    (idle.seen, idle.hides) = (None, true);
                    hidden.push(events.cpu);
                }
                Sight::Resting => drop(sys::perf::disable(idle.switches.fd.as_fd())),
                Sight::Seen => {
                    let lost = idle.switches.read();
                    events.idle_lost += lost;
                    events.idle = None;
                }
            }
        }
        hidden
    }

    /// CPUs that were never idle when that was asked last.
    pub fn never_idle(&self) -> impl Iterator<Item = u32> + '_ {
        let rests = |events: &&CpuEvents| events.idle.as_ref().is_some_and(|idle| idle.sight == Sight::Resting);
        self.cpus.iter().filter(rests).map(|events| events.cpu)
    }

    /// Such a CPU has been idle: asks again.
    pub fn retest_idle(&mut self, cpu: u32) {
        let of_cpu = self.cpus.iter_mut().find(|events| events.cpu == cpu);
        if let Some(idle) = of_cpu.and_then(|events| events.idle.as_mut()).filter(|idle| idle.sight == Sight::Resting) {
            idle.tally = Tally::default();
            idle.sight = if idle.hides { Sight::Hidden } else { Sight::Asked };
            idle.enable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_task_is_hidden_when_nobody_saw_it_go() {
        let sight = |all, from_idle, seen| Tally { all, from_idle, busy: 0 }.sight(|| seen);
        for (all, from_idle, seen, want) in [
            (0, 0, 0, Sight::Asked),
            (2, 2, 0, Sight::Asked),
            (3, 3, 0, Sight::Hidden),
            (3, 3, 1, Sight::Seen),
            (999, 0, 0, Sight::Asked),
            (1000, 0, 0, Sight::Resting),
            (5000, 2, 0, Sight::Asked),
            (5000, 3, 0, Sight::Hidden),
            (5000, 3, u64::MAX, Sight::Seen),
        ] {
            assert_eq!(sight(all, from_idle, seen), want, "{all} {from_idle} {seen}");
        }
    }

    #[test]
    fn a_cpu_that_was_idle_lately_is_watched() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            (0..19_999).for_each(|_| tally.add(false));
            assert!(!tally.is_in_vain());
            tally.add(true);
        }
        (0..20_000).for_each(|_| tally.add(false));
        assert!(tally.is_in_vain());
        assert_eq!((tally.all, tally.from_idle), (80_000, 3));
    }
}
