//! SWITCH records for CPUs whose idle task is hidden: on some virtual machines no event fires while that task is current, so
//! `sched:sched_switch` misses the switches from it. The SWITCH record of the next task is written when that task is current.
//!
//! These records cost the CPU some 96 bytes and a microsecond for each switch. So they are on until it is known whether events
//! see the idle task, which a counter of the switches from it tells. Where events see it the records end, and while a CPU is
//! never idle they pause.

use std::os::fd::{AsFd, OwnedFd};

use crate::perf::attr::Attr;
use crate::perf::classes::Class;
use crate::perf::cpu_events::{CpuEvents, SideFd};
use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::layouts::shared_bits;
use crate::sys;
use crate::sys::perf::Watch;

/// How the switches of a CPU are watched.
#[derive(Debug)]
pub struct IdleWatch {
    /// Writes the SWITCH records.
    pub(in crate::perf) switches: SideFd,
    /// Counts the switches from idle that events see. None: the test is over.
    pub(in crate::perf) seen: Option<OwnedFd>,
    switch_ins: SwitchInCounts,
    visibility: IdleVisibility,
    /// It was [`IdleVisibility::Hidden`] before the pause.
    hides: bool,
}

/// Whether events see an idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleVisibility {
    /// The test goes on.
    Testing,
    /// Events see it: SWITCH records add nothing.
    Seen,
    /// Events do not see it.
    Hidden,
    /// The CPU is never idle: no SWITCH records for now.
    Paused,
}

/// Switch-ins since the test began.
#[derive(Clone, Copy, Debug, Default)]
struct SwitchInCounts {
    all: u64,
    from_idle: u64,
    /// Switch-ins since the last one from idle.
    busy: u64,
}

impl SwitchInCounts {
    fn add(&mut self, from_idle: bool) {
        self.all += 1;
        self.from_idle += u64::from(from_idle);
        self.busy = if from_idle { 0 } else { self.busy + 1 };
    }

    /// A CPU whose idle task is hidden has been busy for so long that the records can pause. It may be idle for up to a tenth of a
    /// second before they are on again, which should be rare.
    fn can_pause(self) -> bool {
        self.busy >= 20_000
    }

    /// The result of the test. `seen`: how many of the switches from idle an event has seen.
    fn visibility(self, seen: impl FnOnce() -> u64) -> IdleVisibility {
        /// Switches from idle that suffice. One alone may go unseen by chance, as an event that fires inside of another one.
        const ENOUGH: u64 = 3;
        /// Switches without one from idle after which a CPU counts as never idle.
        const BUSY: u64 = 1000;
        if self.from_idle >= ENOUGH {
            if seen() == 0 { IdleVisibility::Hidden } else { IdleVisibility::Seen }
        } else if self.from_idle == 0 && self.all >= BUSY {
            IdleVisibility::Paused
        } else {
            IdleVisibility::Testing
        }
    }
}

impl IdleWatch {
    /// The counter comes first, as it must not miss a switch that has a record.
    pub(super) fn enable(&self) {
        for fd in self.seen.iter().chain([&self.switches.fd]) {
            let _ = sys::perf::enable(fd.as_fd());
        }
    }

    fn evaluate(&mut self) -> IdleVisibility {
        let seen = || {
            let mut values = [0_u64; 4];
            let read = self.seen.as_ref().map(|seen| sys::perf::read(seen.as_fd(), &mut values));
            // Without the counter, the idle task counts as seen.
            if matches!(read, Some(Ok(1..))) { values[0] } else { u64::MAX }
        };
        self.switch_ins.visibility(seen)
    }
}

impl Evlist {
    /// Switches from a hidden idle task will come as SWITCH records, in the ring of the event `switch`: `sched:sched_switch`.
    /// See [`Event::SwitchIn`](crate::profiler::Event::SwitchIn).
    pub fn watch_idle(&mut self, switch: EventId) {
        self.idle_switch.get_or_insert(switch);
        self.idle_watchers.push(self.evsel(switch).owner);
    }

    /// The views that asked for SWITCH records.
    pub fn idle_watchers(&self) -> &[usize] {
        &self.idle_watchers
    }

    /// Descriptors per CPU of an [`IdleWatch`].
    pub(super) fn idle_descriptors(&self) -> u64 {
        if self.idle_switch.is_some() && !self.with_counters { 2 } else { 0 }
    }

    /// Opens the [`IdleWatch`] of `cpu`. On a kernel that refuses it, hidden switches stay unseen.
    ///
    /// Opened last, as events are enabled in the order in which they were opened: a task that is reported to come must be seen to
    /// go.
    pub(super) fn open_idle_watch(&mut self, cpu: &mut CpuEvents) {
        let Some(switch) = self.idle_switch.filter(|_| !self.with_counters) else { return }; // a forecast counts samples
        let class = self.ring_of(switch);
        let watch = Watch::Cpu(cpu.cpu);
        let mut attr =
            Attr::dummy().with_sample_type(shared_bits(&self.evsels)).watermark(cpu.watermark_of(class)).switches();
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
            switch_ins: SwitchInCounts::default(),
            visibility: IdleVisibility::Testing,
            hides: false,
        });
        cpu.idle_class = class;
    }

    /// A switch on `cpu` went unseen though no record was lost: some other task is hidden there. Where that happens again, or idle
    /// tasks are hidden too, the CPU has SWITCH records from now on.
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
        let is_watched = |idle: &IdleWatch| matches!(idle.visibility, IdleVisibility::Testing | IdleVisibility::Hidden);
        if events.missed_switches <= CHANCE && !hides || events.idle.as_ref().is_some_and(is_watched) {
            return;
        }
        if events.idle.is_none() {
            self.open_idle_watch(events);
        }
        match &mut events.idle {
            Some(idle) => {
                (idle.seen, idle.visibility, idle.hides, idle.switch_ins) =
                    (None, IdleVisibility::Hidden, true, SwitchInCounts::default());
                idle.enable();
            }
            None => self.idle_switch = None, // the kernel will refuse the next one too
        }
    }

    /// A SWITCH record reports a switch-in.
    pub fn count_switch_in(&mut self, cpu: u32, from_idle: bool) {
        let of_cpu = self.cpus.iter_mut().find(|events| events.cpu == cpu);
        if let Some(idle) = of_cpu.and_then(|events| events.idle.as_mut()) {
            idle.switch_ins.add(from_idle);
        }
    }

    /// Evaluates the tests of idle tasks. Returns the CPUs whose idle tasks were just found to be hidden.
    pub fn judge_idle(&mut self) -> Vec<u32> {
        let mut hidden = Vec::new();
        for events in &mut self.cpus {
            let Some(idle) = events.idle.as_mut() else { continue };
            match idle.visibility {
                IdleVisibility::Testing => idle.visibility = idle.evaluate(),
                IdleVisibility::Hidden if idle.switch_ins.can_pause() => idle.visibility = IdleVisibility::Paused,
                _ => continue,
            }
            match idle.visibility {
                IdleVisibility::Testing => {}
                IdleVisibility::Hidden => {
                    (idle.seen, idle.hides) = (None, true);
                    hidden.push(events.cpu);
                }
                IdleVisibility::Paused => drop(sys::perf::disable(idle.switches.fd.as_fd())),
                IdleVisibility::Seen => {
                    let lost = idle.switches.read();
                    events.idle_lost += lost;
                    events.idle = None;
                }
            }
        }
        hidden
    }

    /// The idle tasks of some CPUs are tested.
    pub fn tests_idle(&self) -> bool {
        self.cpus.iter().any(|events| events.idle.is_some())
    }

    /// CPUs whose tests have come to no result.
    pub fn idle_untested(&self) -> impl Iterator<Item = u32> + '_ {
        let is_open = |idle: &IdleWatch| !matches!(idle.visibility, IdleVisibility::Hidden | IdleVisibility::Seen);
        self.cpus.iter().filter(move |events| events.idle.as_ref().is_some_and(is_open)).map(|events| events.cpu)
    }

    /// CPUs that were never idle during their last test.
    pub fn never_idle(&self) -> impl Iterator<Item = u32> + '_ {
        let rests =
            |events: &&CpuEvents| events.idle.as_ref().is_some_and(|idle| idle.visibility == IdleVisibility::Paused);
        self.cpus.iter().filter(rests).map(|events| events.cpu)
    }

    /// Tests a CPU of [`Evlist::never_idle`] again, which has been idle since.
    pub fn retest_idle(&mut self, cpu: u32) {
        let of_cpu = self.cpus.iter_mut().find(|events| events.cpu == cpu);
        if let Some(idle) =
            of_cpu.and_then(|events| events.idle.as_mut()).filter(|idle| idle.visibility == IdleVisibility::Paused)
        {
            idle.switch_ins = SwitchInCounts::default();
            idle.visibility = if idle.hides { IdleVisibility::Hidden } else { IdleVisibility::Testing };
            idle.enable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_task_is_hidden_when_no_event_saw_its_switches() {
        let visibility = |all, from_idle, seen| SwitchInCounts { all, from_idle, busy: 0 }.visibility(|| seen);
        for (all, from_idle, seen, want) in [
            (0, 0, 0, IdleVisibility::Testing),
            (2, 2, 0, IdleVisibility::Testing),
            (3, 3, 0, IdleVisibility::Hidden),
            (3, 3, 1, IdleVisibility::Seen),
            (999, 0, 0, IdleVisibility::Testing),
            (1000, 0, 0, IdleVisibility::Paused),
            (5000, 2, 0, IdleVisibility::Testing),
            (5000, 3, 0, IdleVisibility::Hidden),
            (5000, 3, u64::MAX, IdleVisibility::Seen),
        ] {
            assert_eq!(visibility(all, from_idle, seen), want, "{all} {from_idle} {seen}");
        }
    }

    #[test]
    fn a_cpu_that_was_idle_lately_is_watched() {
        let mut counts = SwitchInCounts::default();
        for _ in 0..3 {
            (0..19_999).for_each(|_| counts.add(false));
            assert!(!counts.can_pause());
            counts.add(true);
        }
        (0..20_000).for_each(|_| counts.add(false));
        assert!(counts.can_pause());
        assert_eq!((counts.all, counts.from_idle), (80_000, 3));
    }
}
