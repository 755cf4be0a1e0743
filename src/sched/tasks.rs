//! What every task does, and how switches and wake-ups change it.
//!
//! The events that are seen are trusted, and unseen ones are inferred. A task that is believed to run on a CPU where
//! another task runs was switched out unseen: the time in between is unknown, and is neither counted nor reported. A
//! blocked task that gets a CPU was woken unseen: its wait ended there at the latest.

use rustc_hash::FxHashMap;

use crate::sched::lives::{TaskLives, UnseenTime};
use crate::sched::states::{Activity, SchedState, SwitchedOut};
use crate::stats::{Began, TidMap};
use crate::task::Comm;

/// One task. `K` is what the profiler keeps for the task while its activity lasts.
#[derive(Clone, Debug)]
pub struct TrackedTask<K> {
    pub activity: Activity,
    /// ns, CLOCK_MONOTONIC.
    pub since: u64,
    /// When the task was born, or first seen; `u64::MAX`: never.
    pub known_from: u64,
    pub began: Began,
    /// The CPU on which it runs, or ran last.
    pub cpu: u32,
    pub comm: Comm,
    /// A `sched_waking` has ended its wait, and the `sched_wakeup` is still to come.
    pub awaits_wakeup: bool,
    pub exited: bool,
    pub kept: K,
}

impl<K: Default> Default for TrackedTask<K> {
    fn default() -> TrackedTask<K> {
        TrackedTask {
            activity: Activity::Unknown,
            since: 0,
            known_from: u64::MAX,
            began: Began::Exactly,
            cpu: 0,
            comm: Comm::default(),
            awaits_wakeup: false,
            exited: false,
            kept: K::default(),
        }
    }
}

impl<K: Copy + Default> TrackedTask<K> {
    #[inline(always)]
    fn set_woken(&mut self, seen: TaskEvent, kept: K) {
        self.set_activity(Activity::Runnable { woken: true }, seen, kept);
    }

    /// A `sched_waking` was seen: its wake-up follows.
    #[inline(always)]
    pub(super) fn set_waking(&mut self, seen: TaskEvent, kept: K) {
        self.set_woken(seen, kept);
        self.awaits_wakeup = true;
    }

    #[inline(always)]
    pub(super) fn set_activity(&mut self, activity: Activity, seen: TaskEvent, kept: K) {
        self.activity = activity;
        self.since = seen.at_ns;
        self.known_from = self.known_from.min(seen.at_ns); // /proc may have reported the task later than this event
        self.began = Began::Exactly;
        self.cpu = seen.cpu;
        self.comm = seen.comm;
        self.awaits_wakeup = false;
        self.kept = kept;
    }

    /// Whether an event at `at` is older than what is known.
    #[inline]
    fn is_stale(&self, at: u64) -> bool {
        self.began == Began::Exactly && at < self.since
    }

    /// The task left its CPU. `kept` belongs to the wait that begins. The caller must remove dead tasks.
    #[inline(always)]
    pub fn leaves(&mut self, seen: TaskEvent, how: SwitchedOut, kept: K, unseen: &mut UnseenPeriods) -> Change<K> {
        if self.is_stale(seen.at_ns) {
            return Change::Stale;
        }
        let change = match self.activity {
            Activity::Running if self.cpu == seen.cpu => Change::Ended(period(self, seen, SchedState::RUNNING)),
            // Its switch-in was not seen.
            Activity::Running | Activity::Runnable { .. } | Activity::Blocked(_) | Activity::Away => {
                unseen.missed(self, seen.at_ns, seen.cpu);
                Change::Nothing
            }
            Activity::Unknown => Change::Nothing,
            Activity::Hidden => return Change::Hidden,
        };
        match how {
            SwitchedOut::Blocked(state) => self.set_activity(Activity::Blocked(state), seen, kept),
            SwitchedOut::Runnable { .. } => self.set_activity(Activity::Runnable { woken: false }, seen, kept),
            SwitchedOut::Dead => unseen.lives.ended(seen.tid, self.known_from, seen.at_ns),
        }
        change
    }

    /// The task got its CPU, which may have been idle.
    #[inline(always)]
    pub fn comes(&mut self, seen: TaskEvent, from_idle: bool, unseen: &mut UnseenPeriods) -> Change<K> {
        if self.is_stale(seen.at_ns) {
            return Change::Stale;
        }
        let change = match self.activity {
            Activity::Runnable { woken } => {
                let run_delay = period(self, seen, SchedState::RUN_DELAY);
                Change::Ended(StatePeriod { cpu: seen.cpu, preempted: !woken, ..run_delay })
            }
            // Its wake-up was not seen. It has not run since it was switched out, or another switch would have been
            // seen: it waited until now, except for a run delay of unknown length.
            Activity::Blocked(state) => {
                Change::Ended(StatePeriod { wakeup: Wakeup::of_switch(from_idle), ..period(self, seen, state) })
            }
            Activity::Running => {
                unseen.missed(self, seen.at_ns, self.cpu);
                Change::Nothing
            }
            Activity::Away => {
                unseen.lapsed(seen.tid, self, seen.at_ns);
                Change::Nothing
            }
            Activity::Unknown => Change::Nothing,
            Activity::Hidden => return Change::Hidden,
        };
        self.set_activity(Activity::Running, seen, K::default());
        change
    }

    /// The `sched_waking` of the task was seen: see [`TaskStates::waking`].
    pub fn starts_to_wake(&mut self, seen: TaskEvent, kept: K, unseen: &mut UnseenPeriods) -> Change<K> {
        if self.is_stale(seen.at_ns) {
            return Change::Stale;
        }
        let change = match self.activity {
            Activity::Blocked(state) => Change::Ended(period(self, seen, state)),
            // No task is woken twice without having run in between.
            Activity::Runnable { woken: true } => {
                unseen.missed(self, seen.at_ns, self.cpu);
                Change::Nothing
            }
            Activity::Away => {
                unseen.lapsed(seen.tid, self, seen.at_ns);
                Change::Nothing
            }
            // The task has not been switched out yet, or was preempted on its way to that: the wake-up event decides.
            Activity::Runnable { woken: false } | Activity::Running | Activity::Unknown => return Change::Stale,
            Activity::Hidden => return Change::Hidden,
        };
        self.set_waking(seen, kept);
        change
    }

    /// The task was made runnable. The current task need not be the waker. `has_other`: whether another task has this
    /// CPU.
    #[inline(always)]
    pub fn wakes(
        &mut self,
        seen: TaskEvent,
        is_new: bool,
        kept: K,
        has_other: impl Fn(u32) -> bool,
        unseen: &mut UnseenPeriods,
    ) -> Change<K> {
        if self.is_stale(seen.at_ns) {
            return Change::Stale;
        }
        let change = match self.activity {
            Activity::Hidden => return Change::Hidden,
            Activity::Blocked(state) if !is_new => Change::Ended(period(self, seen, state)),
            // Waking a task that runs, or waits for its CPU already, changes nothing.
            Activity::Running if !is_new && !has_other(self.cpu) => return Change::Stale,
            Activity::Runnable { woken: false } if !is_new => return Change::Stale,
            // Its `sched_waking` was seen.
            Activity::Runnable { .. } if std::mem::take(&mut self.awaits_wakeup) && !is_new => return Change::Stale,
            // No task is woken twice without having run in between.
            Activity::Running | Activity::Runnable { woken: true } if !is_new => {
                unseen.missed(self, seen.at_ns, self.cpu);
                Change::Nothing
            }
            Activity::Away if !is_new => {
                unseen.lapsed(seen.tid, self, seen.at_ns);
                Change::Nothing
            }
            _ => Change::Nothing, // unknown so far, or a new task with a number used before
        };
        if is_new {
            // The end of the task that had the tid before was not seen.
            if self.activity != Activity::Unknown {
                unseen.lives.ended(seen.tid, self.known_from, self.since);
            }
            self.known_from = seen.at_ns;
            self.exited = false;
        }
        self.set_woken(seen, kept);
        change
    }
}

/// How certain the end of a wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    Seen,
    /// Not seen; an idle CPU took the task: the wait includes the latency of that CPU.
    TakenUp,
    /// Not seen, and the CPU ran something else meanwhile: the wait includes a run delay of any length.
    Unseen,
}

impl Wakeup {
    /// For a wait that a switch ended.
    fn of_switch(from_idle: bool) -> Wakeup {
        if from_idle { Wakeup::TakenUp } else { Wakeup::Unseen }
    }
}

/// A period in one state that ended.
#[derive(Clone, Debug)]
pub struct StatePeriod<K> {
    pub tid: i32,
    pub state: SchedState,
    pub since: u64,
    pub until: u64,
    pub began: Began,
    pub cpu: u32,
    pub comm: Comm,
    pub kept: K,
    /// The task was runnable when it left its CPU.
    pub preempted: bool,
    pub wakeup: Wakeup,
}

/// The effect of an event on a task.
#[derive(Clone, Debug)]
pub enum Change<K> {
    Ended(StatePeriod<K>),
    /// No known period ended.
    Nothing,
    /// The event is older than the known state, or changes nothing.
    Stale,
    /// The task is excluded.
    Hidden,
}

impl<K> Change<K> {
    #[inline(always)]
    pub fn ended(self) -> Option<StatePeriod<K>> {
        if let Change::Ended(period) = self { Some(period) } else { None }
    }
}

/// All tasks.
#[derive(Debug, Default)]
pub struct TaskStates<K> {
    pub(super) tasks: TidMap<TrackedTask<K>>,
    /// Only blocked periods are wanted, and their events seen: a task is forgotten when it wakes.
    pub(super) blocked_only: bool,
    pub unseen: UnseenPeriods,
    /// First threads that have exited, with time: an exec in another thread of the process takes over their tid.
    pub(super) ended_leaders: FxHashMap<i32, u64>,
}

/// Periods whose beginning or end is unknown, and how long tasks are known.
#[derive(Debug, Default)]
pub struct UnseenPeriods {
    /// Periods whose beginning or end was not seen.
    pub(super) count: u64,
    /// CPUs on which switches were not seen, each with the time since which another state was believed.
    missed_on: Vec<(u32, u64)>,
    /// By task, how often it came back from [`Activity::Away`]: periods whose state is unknown.
    lapses: FxHashMap<i32, u64>,
    pub lives: TaskLives,
    /// Time of discarded periods.
    pub time: UnseenTime,
}

impl UnseenPeriods {
    /// The activity of `task` ended some time before `at`, by an unseen switch on `cpu`.
    #[cold]
    fn missed<K>(&mut self, task: &TrackedTask<K>, at: u64, cpu: u32) {
        self.count += u64::from(task.began == Began::Exactly);
        self.time.add(task.activity, task.since, at, self.lives.from);
        if task.began == Began::Exactly {
            self.missed_on(cpu, task.since);
        }
    }

    /// A switch on `cpu` after `since` went unseen.
    #[cold]
    pub(super) fn missed_on(&mut self, cpu: u32, since: u64) {
        const LIMIT: usize = 64; // it is emptied at each tick
        if self.missed_on.len() < LIMIT {
            self.missed_on.push((cpu, since));
        }
    }

    /// The task `tid`, which was away, is seen again.
    #[cold]
    fn lapsed<K>(&mut self, tid: i32, task: &TrackedTask<K>, at: u64) {
        *self.lapses.entry(tid).or_default() += 1;
        self.time.add(task.activity, task.since, at, self.lives.from);
    }
}

/// One of the two tasks of a switch, or the woken task of a wake-up.
#[derive(Clone, Copy, Debug)]
pub struct TaskEvent {
    pub at_ns: u64,
    pub cpu: u32,
    pub tid: i32,
    pub comm: Comm,
}

impl TaskEvent {
    /// For a task whose name does not matter.
    #[inline(always)]
    pub fn unnamed(at_ns: u64, cpu: u32, tid: i32) -> TaskEvent {
        TaskEvent { at_ns, cpu, tid, comm: Comm::default() }
    }
}

impl<K: Copy + Default> TaskStates<K> {
    pub fn new(blocked_only: bool) -> TaskStates<K> {
        TaskStates { blocked_only, ..TaskStates::default() }
    }

    /// Number of periods whose end was not seen, since the last call.
    #[inline]
    pub fn take_unseen(&mut self) -> u64 {
        std::mem::take(&mut self.unseen.count)
    }

    /// The CPUs on which switches went unseen since the last call, each with the time since which another task was
    /// believed to run there.
    pub fn take_missed_on(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.unseen.missed_on)
    }

    /// By task, the number of periods of unknown state since the last call.
    pub fn take_lapses(&mut self) -> FxHashMap<i32, u64> {
        let mut lapses = std::mem::take(&mut self.unseen.lapses);
        for (tid, _) in self.iter().filter(|(_, task)| task.activity == Activity::Away && !task.exited) {
            *lapses.entry(tid).or_default() += 1;
        }
        lapses
    }

    /// `seen` left its CPU. `kept` belongs to the wait that begins.
    #[inline(always)]
    pub fn switched_out(&mut self, seen: TaskEvent, how: SwitchedOut, kept: K) -> Change<K> {
        let change = self.tasks.get_or_default(seen.tid).leaves(seen, how, kept, &mut self.unseen);
        if how == SwitchedOut::Dead && !matches!(change, Change::Hidden | Change::Stale) {
            self.tasks.remove(seen.tid);
        }
        change
    }

    /// `seen` got its CPU, which may have been idle.
    #[inline(always)]
    pub fn switched_in(&mut self, seen: TaskEvent, from_idle: bool) -> Change<K> {
        if self.blocked_only {
            return self.switched_in_blocked(seen, Wakeup::of_switch(from_idle));
        }
        self.tasks.get_or_default(seen.tid).comes(seen, from_idle, &mut self.unseen)
    }

    fn switched_in_blocked(&mut self, seen: TaskEvent, wakeup: Wakeup) -> Change<K> {
        let Some(task) = self.tasks.get(seen.tid).filter(|task| !task.is_stale(seen.at_ns)) else {
            return Change::Nothing;
        };
        let Activity::Blocked(state) = task.activity else { return Change::Nothing };
        let ended = StatePeriod { wakeup, ..period(task, seen, state) };
        self.tasks.remove(seen.tid);
        Change::Ended(ended)
    }

    /// `prev` has just left `cpu`, on which `believed` was believed to run.
    #[cold]
    pub fn replaced(&mut self, believed: i32, prev: i32, at: u64, cpu: u32) -> Option<StatePeriod<K>> {
        // Only an exec in another thread brings back the tid of an ended task. The record of the exec comes a moment
        // later.
        let is_new = |tid| self.tasks.get(tid).is_some_and(|task| task.known_from == at);
        if self.ended_leaders.contains_key(&prev) && is_new(prev) {
            return self.took_over(believed, at, cpu);
        }
        self.lose_running(believed, at, cpu);
        None
    }

    /// `seen` lost its CPU, as the record of the task that got the CPU says.
    pub fn left(&mut self, seen: TaskEvent) -> Change<K> {
        let Some(task) = self.tasks.get_mut(seen.tid).filter(|task| !task.is_stale(seen.at_ns)) else {
            return Change::Nothing;
        };
        if task.activity != Activity::Running || task.cpu != seen.cpu {
            return Change::Nothing;
        }
        let ended = period(task, TaskEvent { comm: task.comm, ..seen }, SchedState::RUNNING);
        task.set_activity(Activity::Away, TaskEvent { comm: task.comm, ..seen }, K::default());
        Change::Ended(ended)
    }

    /// `tid` was believed to run on `cpu`, but another task was seen there.
    pub(super) fn lose_running(&mut self, tid: i32, at: u64, cpu: u32) {
        if let Some(task) = self.tasks.get_mut(tid)
            && task.activity == Activity::Running
            && task.cpu == cpu
            && task.since <= at
        {
            self.unseen.missed(task, at, cpu);
            task.set_activity(Activity::Unknown, TaskEvent { at_ns: at, cpu, tid, comm: task.comm }, K::default());
        }
    }

    /// `sched_waking` of `seen`. The kernel raises this event in the context of the waker, while another CPU may
    /// perform the wake-up itself in any interrupt: so the wait ends here, and the current task is the waker.
    pub fn waking(&mut self, seen: TaskEvent, kept: K) -> Change<K> {
        let Some(task) = self.tasks.get_mut(seen.tid) else { return Change::Nothing };
        let change = task.starts_to_wake(seen, kept, &mut self.unseen);
        if self.blocked_only && task.awaits_wakeup {
            self.tasks.remove(seen.tid);
        }
        change
    }

    /// `seen` was made runnable. The current task need not be the waker. `has_other`: whether another task has this
    /// CPU.
    #[inline(always)]
    pub fn woken(&mut self, seen: TaskEvent, is_new: bool, kept: K, has_other: impl Fn(u32) -> bool) -> Change<K> {
        if self.blocked_only {
            return self.woken_blocked(seen);
        }
        if is_new {
            self.ended_leaders.remove(&seen.tid);
        }
        self.tasks.get_or_default(seen.tid).wakes(seen, is_new, kept, has_other, &mut self.unseen)
    }

    fn woken_blocked(&mut self, seen: TaskEvent) -> Change<K> {
        match self.tasks.remove(seen.tid) {
            Some(task) if !task.is_stale(seen.at_ns) => match task.activity {
                Activity::Blocked(state) => Change::Ended(period(&task, seen, state)),
                _ => Change::Nothing,
            },
            _ => Change::Nothing,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, &TrackedTask<K>)> {
        self.tasks.iter().filter(|(_, task)| task.activity != Activity::Hidden)
    }

    pub fn get(&self, tid: i32) -> Option<&TrackedTask<K>> {
        self.tasks.get(tid).filter(|task| task.activity != Activity::Hidden)
    }

    pub fn get_mut(&mut self, tid: i32) -> Option<&mut TrackedTask<K>> {
        self.tasks.get_mut(tid).filter(|task| task.activity != Activity::Hidden)
    }
}

#[inline(always)]
pub(super) fn period<K: Copy>(task: &TrackedTask<K>, seen: TaskEvent, state: SchedState) -> StatePeriod<K> {
    StatePeriod {
        tid: seen.tid,
        state,
        since: task.since,
        until: seen.at_ns,
        began: task.began,
        cpu: task.cpu,
        comm: seen.comm,
        kept: task.kept,
        preempted: false,
        wakeup: Wakeup::Seen,
    }
}

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
