//! SWITCH records for CPUs whose idle task is hidden: on some virtual machines no event fires while that task is current, so
//! `sched:sched_switch` misses the switches from it. The SWITCH record of the next task is written when that task is current.
//!
//! These records cost the CPU some 96 bytes and a microsecond per switch. So on each CPU a counter of switches away
//! from the idle task first tests whether events see that task. If they do, the records end; if the idle task is
//! hidden, they go on; and while a CPU is never idle, they pause.

use std::os::fd::{AsFd, OwnedFd};

use crate::perf::attr::{Attr, MissingFeatures};
use crate::perf::classes::Class;
use crate::perf::cpu_events::{CpuEvents, SideFd};
use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::layouts::shared_bits;
use crate::perf::evsel::Evsel;
use crate::sys;
use crate::sys::perf::Watch;

/// The idle tasks of the CPUs of a run, and the events that watch them.
#[derive(Debug, Default)]
pub struct IdleWatches {
    /// `sched:sched_switch`, from which idle tasks may hide their switches. None: no idle task is watched.
    switch: Option<EventId>,
    /// The views that asked for SWITCH records.
    watchers: Vec<usize>,
    tasks: Vec<IdleTask>,
}

/// The idle task of a CPU.
#[derive(Debug)]
pub(super) struct IdleTask {
    cpu: u32,
    watch: Option<IdleWatch>,
    /// Number of the ring that the SWITCH records go to.
    ring: usize,
    /// SWITCH records lost by watches that are closed by now.
    lost: u64,
    /// Switches that went unseen though no record was lost.
    missed_switches: u64,
}

/// How the switches of a CPU are watched.
#[derive(Debug)]
struct IdleWatch {
    /// Writes the SWITCH records.
    switches: SideFd,
    /// Counts the switches away from the idle task that events see. None: the test is over.
    seen: Option<OwnedFd>,
    switch_ins: SwitchInCounts,
    visibility: IdleVisibility,
    /// The idle task was [`IdleVisibility::Hidden`] before the pause.
    hides: bool,
}

/// Whether events see an idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleVisibility {
    /// The test goes on.
    Testing,
    /// Events see the idle task: SWITCH records add nothing.
    Seen,
    /// Events do not see the idle task.
    Hidden,
    /// The CPU is never idle: no SWITCH records for now.
    Paused,
}

/// Counts of switch-ins since the test began, from SWITCH records.
#[derive(Clone, Copy, Debug, Default)]
struct SwitchInCounts {
    all: u64,
    from_idle: u64,
    /// Switch-ins since the last switch away from the idle task.
    busy: u64,
}

impl SwitchInCounts {
    fn add(&mut self, from_idle: bool) {
        self.all += 1;
        self.from_idle += u64::from(from_idle);
        self.busy = if from_idle { 0 } else { self.busy + 1 };
    }

    /// A CPU whose idle task is hidden has been busy for long enough to pause its SWITCH records. If the CPU becomes
    /// idle, up to 0.1 s passes before the records are on again.
    fn can_pause(self) -> bool {
        self.busy >= 20_000
    }

    /// The result of the test. `seen`: how many switches away from the idle task an event has seen.
    fn visibility(self, seen: impl FnOnce() -> u64) -> IdleVisibility {
        /// Switches away from the idle task that decide the test. A single one may go unseen by chance, such as an
        /// event inside of another event.
        const ENOUGH: u64 = 3;
        /// Switches, none of them from the idle task, after which a CPU counts as never idle.
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
    /// The counter is enabled first: it must not miss a switch that has a record.
    fn enable(&self) {
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

impl IdleTask {
    fn new(cpu: u32) -> IdleTask {
        IdleTask { cpu, watch: None, ring: 0, lost: 0, missed_switches: 0 }
    }

    pub fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.watch.iter().flat_map(|watch| watch.seen.iter().chain([&watch.switches.fd]))
    }

    /// Opens the watch. If the kernel refuses the watch, hidden switches stay unseen.
    fn open(
        &mut self,
        events: &CpuEvents,
        ring: usize,
        switch: &Evsel,
        mut switches: Attr,
        kernel: &mut MissingFeatures,
    ) {
        let watch = Watch::Cpu(events.cpu);
        let mut counter = switch.attr.clone().counting().enable_on_exec(false);
        let Ok(seen) = kernel.open(&mut counter, watch) else { return };
        if sys::perf::set_filter(seen.as_fd(), "prev_pid == 0").is_err() {
            return;
        }
        let Ok(fd) = kernel.open(&mut switches, watch) else { return };
        let Some(owner) = events.owner(Class::Events(ring)).filter(|_| switches.has_switches()) else { return };
        if sys::perf::set_output(fd.as_fd(), owner).is_err() {
            return;
        }
        self.watch = Some(IdleWatch {
            switches: SideFd::new(fd),
            seen: Some(seen),
            switch_ins: SwitchInCounts::default(),
            visibility: IdleVisibility::Testing,
            hides: false,
        });
        self.ring = ring;
    }
}

impl IdleWatches {
    /// The views that asked for SWITCH records.
    pub fn watchers(&self) -> &[usize] {
        &self.watchers
    }

    /// Descriptors that the watches need per CPU.
    pub(super) fn descriptors_per_cpu(&self) -> u64 {
        if self.switch.is_some() { 2 } else { 0 }
    }

    /// Gives up the watches. False: there were none to give up.
    pub(super) fn leave_out(&mut self) -> bool {
        self.switch.take().is_some()
    }

    /// Starts the watch of a CPU.
    pub(super) fn enable(&self, cpu: u32) {
        self.watches_of(cpu).for_each(IdleWatch::enable);
    }

    /// SWITCH records of the idle watch of `cpu` that the ring has lost since the last call.
    pub(super) fn take_lost(&mut self, cpu: u32, class: Class) -> u64 {
        let of_ring = |task: &&mut IdleTask| task.cpu == cpu && Class::Events(task.ring) == class;
        let Some(task) = self.tasks.iter_mut().find(of_ring) else { return 0 };
        task.watch.as_mut().map_or(0, |watch| watch.switches.read()) + std::mem::take(&mut task.lost)
    }

    /// Removes the watch of a CPU that went offline.
    pub(super) fn take(&mut self, cpu: u32) -> Vec<IdleTask> {
        self.tasks.extract_if(.., |task| task.cpu == cpu).collect()
    }

    /// The open descriptors of the watches, of one CPU or of all.
    pub(super) fn fds(&self, cpu: Option<u32>) -> impl Iterator<Item = &OwnedFd> {
        let tasks = self.tasks.iter().filter(move |task| cpu.is_none_or(|cpu| task.cpu == cpu));
        tasks.flat_map(IdleTask::fds)
    }

    fn watches_of(&self, cpu: u32) -> impl Iterator<Item = &IdleWatch> {
        self.tasks.iter().filter(move |task| task.cpu == cpu).filter_map(|task| task.watch.as_ref())
    }

    fn watch_mut(&mut self, cpu: u32) -> Option<&mut IdleWatch> {
        self.tasks.iter_mut().find(|task| task.cpu == cpu)?.watch.as_mut()
    }

    /// The entry of a CPU whose events are open.
    fn task_mut(&mut self, cpu: u32) -> &mut IdleTask {
        let known = self.tasks.iter().position(|task| task.cpu == cpu);
        let index = known.unwrap_or_else(|| {
            self.tasks.push(IdleTask::new(cpu));
            self.tasks.len() - 1
        });
        &mut self.tasks[index]
    }

    /// Counts a switch-in that a SWITCH record reports.
    pub fn count_switch_in(&mut self, cpu: u32, from_idle: bool) {
        if let Some(watch) = self.watch_mut(cpu) {
            watch.switch_ins.add(from_idle);
        }
    }

    /// Evaluates the tests of idle tasks. Returns the CPUs whose idle tasks were just found to be hidden.
    pub fn judge(&mut self) -> Vec<u32> {
        let mut hidden = Vec::new();
        for task in &mut self.tasks {
            let Some(watch) = task.watch.as_mut() else { continue };
            match watch.visibility {
                IdleVisibility::Testing => watch.visibility = watch.evaluate(),
                IdleVisibility::Hidden if watch.switch_ins.can_pause() => watch.visibility = IdleVisibility::Paused,
                _ => continue,
            }
            match watch.visibility {
                IdleVisibility::Testing => {}
                IdleVisibility::Hidden => {
                    (watch.seen, watch.hides) = (None, true);
                    hidden.push(task.cpu);
                }
                IdleVisibility::Paused => drop(sys::perf::disable(watch.switches.fd.as_fd())),
                IdleVisibility::Seen => {
                    task.lost += watch.switches.read();
                    task.watch = None;
                }
            }
        }
        hidden
    }

    /// The tests of some CPUs still go on.
    pub fn tests_any(&self) -> bool {
        self.tasks.iter().any(|task| task.watch.is_some())
    }

    /// CPUs whose tests have no result yet.
    pub fn untested(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus_of(|watch| !matches!(watch.visibility, IdleVisibility::Hidden | IdleVisibility::Seen))
    }

    /// CPUs that were never idle during their last test.
    pub fn never_idle(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus_of(|watch| watch.visibility == IdleVisibility::Paused)
    }

    fn cpus_of(&self, is_one: fn(&IdleWatch) -> bool) -> impl Iterator<Item = u32> + '_ {
        self.tasks.iter().filter(move |task| task.watch.as_ref().is_some_and(is_one)).map(|task| task.cpu)
    }

    /// Tests a CPU of [`IdleWatches::never_idle`] again, because it has been idle since.
    pub fn retest(&mut self, cpu: u32) {
        if let Some(watch) = self.watch_mut(cpu).filter(|watch| watch.visibility == IdleVisibility::Paused) {
            watch.switch_ins = SwitchInCounts::default();
            watch.visibility = if watch.hides { IdleVisibility::Hidden } else { IdleVisibility::Testing };
            watch.enable();
        }
    }
}

impl Evlist {
    /// Asks for SWITCH records of the switches away from hidden idle tasks, in the ring of the event `switch`:
    /// `sched:sched_switch`. See [`Event::SwitchIn`](crate::profiler::Event::SwitchIn).
    pub fn watch_idle(&mut self, switch: EventId) {
        // A forecast needs counts of samples only.
        if !self.with_counters {
            self.idle.switch.get_or_insert(switch);
        }
        let owner = self.evsel(switch).owner;
        self.idle.watchers.push(owner);
    }

    /// Opens the watch of the idle task of a CPU.
    ///
    /// The watch is opened last, since events are enabled in the order in which they were opened: the switch-out of a
    /// task whose switch-in was reported must be seen, too.
    pub(super) fn open_idle_watch(&mut self, events: &CpuEvents) {
        let Some(switch) = self.idle.switch else { return };
        let ring = self.ring_of(switch);
        let records = Attr::dummy().with_sample_type(shared_bits(&self.evsels)).watermark(events.watermark_of(ring));
        let (evsel, kernel) = (&self.evsels[switch.index()], &mut self.missing);
        self.idle.task_mut(events.cpu).open(events, ring, evsel, records.switches(), kernel);
    }

    /// A switch on `cpu` went unseen though no record was lost: some task other than the idle task is hidden there. If
    /// that happens again, or the idle task is hidden as well, the CPU has SWITCH records from now on.
    pub fn missed_switch(&mut self, cpu: u32) {
        const CHANCE: u64 = 2;
        let Some(index) = self.cpus.iter().position(|events| events.cpu == cpu) else { return };
        let hides = self.idle.tasks.iter().any(|task| task.watch.as_ref().is_some_and(|watch| watch.hides));
        let task = self.idle.task_mut(cpu);
        task.missed_switches += 1;
        let is_watched =
            |watch: &IdleWatch| matches!(watch.visibility, IdleVisibility::Testing | IdleVisibility::Hidden);
        if task.missed_switches <= CHANCE && !hides || task.watch.as_ref().is_some_and(is_watched) {
            return;
        }
        if task.watch.is_none() {
            let cpus = std::mem::take(&mut self.cpus);
            self.open_idle_watch(&cpus[index]);
            self.cpus = cpus;
        }
        match self.idle.watch_mut(cpu) {
            Some(watch) => {
                (watch.seen, watch.visibility, watch.hides, watch.switch_ins) =
                    (None, IdleVisibility::Hidden, true, SwitchInCounts::default());
                watch.enable();
            }
            None => self.idle.switch = None, // the kernel will refuse the watches of further CPUs, too
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
