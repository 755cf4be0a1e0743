//! Which task has each CPU, and since when, according to the switches that were seen.

use crate::sched::history::CpuUse;
use crate::task::Comm;

/// All CPUs, each with a value `T` that the profiler keeps for it. `U` is what is known of the current task:
/// [`CpuUse`], or only its tid where that is enough.
#[derive(Debug)]
pub struct Cpus<T, U = CpuUse> {
    by_number: Vec<Cpu<T, U>>,
    /// When the events were enabled, ns.
    watched_from: u64,
}

/// A CPU.
#[derive(Debug)]
pub struct Cpu<T, U = CpuUse> {
    /// The task that has the CPU, or idle; None when unknown.
    current: Option<U>,
    /// Since when `current` has it.
    since: u64,
    /// `current` got the CPU at `since`. Otherwise it may have had the CPU before.
    came: bool,
    /// From when on every switch would have been seen, ns; 0: the events are not enabled yet.
    watched_from: u64,
    pub kept: T,
}

/// What is known of the current task of a CPU.
pub trait CpuUser: Copy {
    /// The number of the task, 0 for an idle CPU. None: not known.
    fn tid(self) -> Option<i32>;
}

impl CpuUser for CpuUse {
    #[inline]
    fn tid(self) -> Option<i32> {
        CpuUse::tid(self)
    }
}

impl CpuUser for i32 {
    #[inline]
    fn tid(self) -> Option<i32> {
        Some(self)
    }
}

/// How long the task that leaves a CPU has had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnBegin<U = CpuUse> {
    /// The task got the CPU at this time.
    Seen(u64),
    /// It has had the CPU since before this time, from which on all switches are seen.
    Earlier(u64),
    /// A switch went unseen: this is the last task that was seen to get the CPU, and another one leaves it.
    Missed(U),
    Unknown,
}

/// A CPU goes from one task to another.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    pub at_ns: u64,
    pub cpu: u32,
    pub prev: CpuUse,
    pub prev_state: u64,
    pub next: CpuUse,
}

/// The contents of a SWITCH record: `tid` got `cpu`, and `prev` had it before, if the record has that field.
#[derive(Clone, Copy, Debug)]
pub struct SwitchIn {
    pub tid: i32,
    pub prev: Option<i32>,
    pub at_ns: u64,
    pub cpu: u32,
}

/// The priority of a task with nice value 0, used where no record has the priority.
pub const USUAL_PRIO: i32 = 120;

/// Limit of CPU numbers: they come from records, which may claim anything.
const MAX_CPUS: usize = 1 << 13;

impl<T, U> Default for Cpus<T, U> {
    fn default() -> Cpus<T, U> {
        Cpus { by_number: Vec::new(), watched_from: 0 }
    }
}

impl<T, U> Cpus<T, U> {
    /// The events are enabled from `now` on.
    pub fn started(&mut self, now: u64) {
        self.watched_from = now;
        self.by_number.iter_mut().for_each(|cpu| cpu.watched_from = now);
    }

    pub fn watched_from(&self) -> u64 {
        self.watched_from
    }

    pub fn get(&self, cpu: u32) -> Option<&Cpu<T, U>> {
        self.by_number.get(cpu as usize)
    }

    /// None: `cpu` is `MAX_CPUS` or greater.
    #[inline]
    pub fn get_or_add(&mut self, cpu: u32, new: impl Fn() -> T) -> Option<&mut Cpu<T, U>> {
        let index = cpu as usize;
        if index >= self.by_number.len() {
            self.add_up_to(index, new);
        }
        self.by_number.get_mut(index)
    }

    #[cold]
    fn add_up_to(&mut self, index: usize, new: impl Fn() -> T) {
        let watched_from = self.watched_from;
        let unknown = || Cpu { current: None, since: 0, came: false, watched_from, kept: new() };
        if index < MAX_CPUS {
            self.by_number.resize_with(index + 1, unknown);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Cpu<T, U>)> {
        (0..).zip(&self.by_number)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Cpu<T, U>)> {
        (0..).zip(&mut self.by_number)
    }
}

impl<T, U: CpuUser> Cpus<T, U> {
    /// Whether another task than `tid` is known to have `cpu`.
    #[inline]
    pub fn is_other(&self, cpu: u32, tid: i32) -> bool {
        self.get(cpu).and_then(Cpu::current_tid).is_some_and(|current| current != tid)
    }
}

impl Cpus<(), i32> {
    /// Whether `tid` is the last task known to have got `cpu`.
    pub fn has_come(&self, cpu: u32, tid: i32) -> bool {
        self.get(cpu).and_then(Cpu::current) == Some(tid)
    }

    /// `cpu` switches from `prev` to `next`. Returns the task that was believed to run there if it is neither of the
    /// two, for [`TaskStates::replaced`](crate::sched::TaskStates::replaced).
    #[inline(always)]
    #[must_use]
    pub fn switched(&mut self, at: u64, cpu: u32, prev: i32, next: i32) -> Option<i32> {
        let cpu = self.get_or_add(cpu, || ())?;
        // Nearly all switches leave the task that was believed to run. Whether it was seen to come does not matter here.
        if let Some(current) = cpu.current.as_mut().filter(|current| **current == prev) {
            (*current, cpu.since) = (next, at);
            return None;
        }
        match cpu.switched(at, prev, next) {
            TurnBegin::Missed(believed) if believed > 0 && believed != next => Some(believed),
            _ => None,
        }
    }
}

impl<T, U: CpuUser> Cpu<T, U> {
    /// What has the CPU, if that is known.
    #[inline]
    pub fn current(&self) -> Option<U> {
        self.current
    }

    /// Since when `current` has the CPU, or was seen on it, ns: the beginning of its turn as far as the CPU was
    /// watched.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Records were lost until `end`: the current task is unknown, unless it got the CPU after `end`.
    pub fn lost(&mut self, end: u64) {
        if self.since < end {
            self.current = None;
            self.watched_from = self.watched_from.max(end);
        }
    }

    /// `current` has the CPU from `at` on although no switch was seen: its name or tid changed, or the switch was
    /// hidden.
    pub fn becomes(&mut self, at: u64, current: U) {
        (self.current, self.since, self.came) = (Some(current), self.since.max(at), true);
    }

    /// The thread that has the CPU, 0 when it is idle.
    #[inline]
    pub fn current_tid(&self) -> Option<i32> {
        self.current.and_then(U::tid)
    }

    pub fn is_watched(&self) -> bool {
        self.watched_from > 0
    }

    /// The CPU goes from `prev` to `next`.
    #[inline]
    pub fn switched(&mut self, at: u64, prev: U, next: U) -> TurnBegin<U> {
        let next = Some(next).filter(|next| next.tid().is_some());
        let believed = std::mem::replace(&mut self.current, next);
        let since = std::mem::replace(&mut self.since, at);
        let has_come = std::mem::replace(&mut self.came, true);
        match believed {
            Some(believed) if believed.tid() != prev.tid() => TurnBegin::Missed(believed),
            Some(_) if has_come => TurnBegin::Seen(since),
            Some(_) => TurnBegin::Earlier(since),
            None if self.is_watched() && self.watched_from <= at => TurnBegin::Earlier(self.watched_from),
            None => TurnBegin::Unknown,
        }
    }
}

impl<T> Cpu<T> {
    /// A record of another event says that `current` has the CPU at `at`. Returns since when it has the CPU; None if
    /// the current task was known already, or the beginning cannot be determined.
    #[inline]
    pub fn saw_current(&mut self, at: u64, current: CpuUse) -> Option<u64> {
        let is_news = self.current.is_none() && self.watched_from <= at && self.is_watched();
        is_news.then(|| {
            (self.current, self.since, self.came) = (Some(current), self.watched_from, false);
            self.watched_from
        })
    }

    /// The switch that a SWITCH record reports. None: the sample of this switch was seen; it comes before the SWITCH
    /// record.
    pub fn hidden_switch(&self, switch_in: SwitchIn, mut comm: impl FnMut(i32) -> Comm) -> Option<Switch> {
        let SwitchIn { tid, prev, at_ns, cpu } = switch_in;
        if self.current_tid() == Some(tid) {
            return None;
        }
        let known = self.current.filter(|current| current.tid() == prev);
        let mut usual = |tid: i32| CpuUse::of(tid, comm(tid), USUAL_PRIO);
        let prev = known.or(prev.map(&mut usual)).unwrap_or(CpuUse::Unseen);
        Some(Switch { at_ns, cpu, prev, prev_state: 0, next: usual(tid) })
    }

    /// The current thread gets a new tid.
    pub fn renumber(&mut self, old: i32, new: i32) {
        if let Some(CpuUse::Task { tid, .. }) = &mut self.current
            && *tid == old
        {
            *tid = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(tid: i32) -> CpuUse {
        CpuUse::of(tid, Comm::default(), 120)
    }

    #[test]
    fn a_turn_begins_where_it_was_seen_to() {
        let mut cpus: Cpus<()> = Cpus::default();
        let cpu = cpus.get_or_add(3, || ()).unwrap();
        assert_eq!(cpu.switched(5, task(1), task(2)), TurnBegin::Unknown, "events are not on");
        cpus.started(10);
        let cpu = cpus.get_or_add(3, || ()).unwrap();
        assert_eq!(cpu.switched(20, task(2), task(0)), TurnBegin::Seen(5));
        assert_eq!(cpu.switched(30, task(0), task(7)), TurnBegin::Seen(20));
        assert_eq!(cpu.switched(40, task(8), task(9)), TurnBegin::Missed(task(7)));
        cpu.lost(35); // reported late: the task that got the CPU after the loss stays known
        assert_eq!(cpu.switched(50, task(9), task(1)), TurnBegin::Seen(40));
        cpu.lost(55);
        assert_eq!((cpu.current(), cpu.saw_current(60, task(2))), (None, Some(55)));
        assert_eq!(cpu.switched(70, task(2), task(3)), TurnBegin::Earlier(55));
        cpu.renumber(3, 4);
        assert_eq!(cpu.switched(80, task(4), CpuUse::Unseen), TurnBegin::Seen(70));
        assert_eq!(cpu.current_tid(), None);
        assert!(cpus.get_or_add(u32::MAX, || ()).is_none(), "no machine has so many CPUs");
    }

    #[test]
    fn a_switch_record_is_news_where_the_switch_was_hidden() {
        let mut cpus: Cpus<()> = Cpus::default();
        cpus.started(1);
        let cpu = cpus.get_or_add(0, || ()).unwrap();
        cpu.switched(10, task(0), CpuUse::of(7, Comm::new(b"seven"), 98));
        let switch_in = |tid, prev| SwitchIn { tid, prev, at_ns: 11, cpu: 0 };
        assert!(cpu.hidden_switch(switch_in(7, Some(0)), |_| Comm::default()).is_none());
        let hidden = cpu.hidden_switch(switch_in(8, Some(7)), |_| Comm::new(b"eight")).unwrap();
        assert_eq!(hidden.prev, CpuUse::of(7, Comm::new(b"seven"), 98), "as the switch to it had it");
        assert_eq!(hidden.next, CpuUse::of(8, Comm::new(b"eight"), USUAL_PRIO));
        assert_eq!(cpu.hidden_switch(switch_in(8, None), |_| Comm::default()).unwrap().prev, CpuUse::Unseen);
    }

    #[derive(Clone, Copy, Debug)]
    enum TurnStep {
        Switch(i32),
        Clock,
        /// The records of this many steps are lost, and then the loss is reported.
        Lose(u32),
    }

    proptest! {
        /// Compared with a list of the task of each nanosecond: turns called seen or earlier are, and without a loss
        /// none is missing.
        #[test]
        fn turns_are_those_of_the_scheduler(
            steps in prop::collection::vec((1_u64..5, prop_oneof![
                8 => (0..4_i32).prop_map(TurnStep::Switch),
                2 => Just(TurnStep::Clock),
                1 => (1..5_u32).prop_map(TurnStep::Lose),
            ]), 0..80),
            first in 0..4_i32,
        ) {
            let mut cpus: Cpus<()> = Cpus::default();
            cpus.started(10);
            let cpu = cpus.get_or_add(0, || ()).unwrap();
            let (mut now, mut running, mut came, mut losing, mut any_loss) = (10, first, 0, 0, false);
            let (mut told_ns, mut had) = (0, vec![first; 1000]);
            for (later, step) in steps {
                now += later;
                match step {
                    TurnStep::Switch(next) if next != running => {
                        if losing == 0 {
                            let from = match cpu.switched(now, task(running), task(next)) {
                                TurnBegin::Seen(from) => {
                                    prop_assert_eq!(from, came);
                                    Some(from)
                                }
                                TurnBegin::Earlier(from) => Some(from),
                                other => {
                                    prop_assert!(any_loss, "{:?}", other);
                                    None
                                }
                            };
                            if let Some(from) = from {
                                prop_assert!(had[from as usize..now as usize].iter().all(|tid| *tid == running));
                                told_ns += now - from;
                            }
                        }
                        (running, came) = (next, now);
                        had[now as usize..].fill(next);
                    }
                    TurnStep::Clock if losing == 0 => drop(cpu.saw_current(now, task(running))),
                    TurnStep::Lose(steps) if losing == 0 => (losing, any_loss) = (steps + 1, true),
                    TurnStep::Switch(_) | TurnStep::Clock | TurnStep::Lose(_) => {}
                }
                if losing > 0 {
                    losing -= 1;
                    if losing == 0 {
                        cpu.lost(now + 1);
                        now += 1;
                    }
                }
            }
            if let Some(current) = cpu.current() {
                prop_assert!(losing > 0 || current == task(running));
                told_ns += now - cpu.since();
            }
            prop_assert!(any_loss || came == 0 || told_ns == now - 10, "{} of {}", told_ns, now - 10);
        }
    }
}
