//! Which task waits for which CPU, and since when: the state of every task, the CPUs, their run queues, and migrations.
//!
//! The model trusts the events that it sees. A wait whose end went unseen is discarded and counted. A task that already
//! waited before its first event is taken from /proc; its wait is at least as long as it is known.
//!
//! After a loss nothing is known of a task until its next event. The loss itself visits no task: a state that began
//! before the horizon is treated as unknown when it is read, and dropped with the next event of its task or by
//! [`SchedModel::drop_doubtful`].

use crate::perf::{EventId, Record};
use crate::profiler::{Context, Event};
use crate::sched::cpus::{Cpu, Cpus, Switch, SwitchIn, TurnBegin};
use crate::sched::history::CpuUse;
use crate::sched::run_queue::RunQueue;
use crate::sched::states::{Activity, RunDelayKind, SwitchedOut};
use crate::sched::tasks::{Change, TaskEvent, TaskStates, TrackedTask};
use crate::stats::{Began, LossHorizon};
use crate::symbol::StackId;
use crate::task::Comm;

/// A wait for a CPU. `K` is what the profiler keeps for a wait while it goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueWait<K = ()> {
    pub kind: RunDelayKind,
    pub since: u64,
    pub began: Began,
    /// The CPU in whose queue the task is; for a task that was found in /proc, the CPU on which it ran last.
    pub cpu: u32,
    /// Since when the task is in that queue.
    cpu_since: u64,
    /// The queues before that one, the latest first: each CPU with the time at which the task entered its queue.
    earlier: [(u32, u64); EARLIER],
    /// How often the task moved to another queue.
    pub moves: u32,
    /// The stack with which the task lost its CPU.
    pub stack: Option<StackId>,
    pub kept: K,
    /// The task is one of those that the run is about.
    pub is_ours: bool,
    /// The task may have had a CPU all the time, and the wake-up been without effect.
    is_doubtful: bool,
}

/// Earlier queues that are kept for one wait.
const EARLIER: usize = 3;

impl<K: Copy + Default> QueueWait<K> {
    fn new(kind: RunDelayKind, since: u64, cpu: u32) -> QueueWait<K> {
        QueueWait {
            kind,
            since,
            began: Began::Exactly,
            cpu,
            cpu_since: since,
            earlier: [(0, 0); EARLIER],
            moves: 0,
            stack: None,
            kept: K::default(),
            is_ours: true,
            is_doubtful: false,
        }
    }

    fn moved(&mut self, at: u64, cpu: u32) {
        self.earlier.rotate_right(1);
        self.earlier[0] = (self.cpu, self.cpu_since);
        self.moves = self.moves.saturating_add(1);
        (self.cpu, self.cpu_since) = (cpu, at.max(self.cpu_since));
    }

    /// Calls `each` with the CPUs in whose queues the task waited, the latest first, and from when to when. The CPU is
    /// None for times before the oldest kept queue.
    pub fn queues(&self, until: u64, mut each: impl FnMut(Option<u32>, u64, u64)) {
        each(Some(self.cpu), self.cpu_since, until);
        let mut until = self.cpu_since;
        for &(cpu, since) in self.earlier.iter().take(self.moves as usize) {
            each(Some(cpu), since, until);
            until = since;
        }
        if until > self.since {
            each(None, self.since, until);
        }
    }
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedWait<K = ()> {
    pub tid: i32,
    pub comm: Comm,
    /// The CPU that the task got.
    pub cpu: u32,
    pub until: u64,
    pub wait: QueueWait<K>,
}

/// All tasks and CPUs.
#[derive(Debug, Default)]
pub struct SchedModel<K = ()> {
    states: TaskStates<QueueWait<K>>,
    cpus: Cpus<RunQueue>,
    /// Stretches kept for each CPU.
    history_limit: usize,
    /// Waits whose end went unseen.
    discarded: u64,
    /// Tasks that the run is about that got a CPU although no wake-up was seen.
    unwoken: u64,
    /// Anything that a task did before the horizon may have ended: see [`doubt`].
    horizon: LossHorizon,
    /// The horizon at the last pass over all tasks.
    dropped_until: LossHorizon,
    /// The end of the last loss of exit records; 0: none since the last search for exited tasks.
    exits_lost_at: u64,
    next_sweep: u64,
}

impl<K: Copy + Default> SchedModel<K> {
    /// Keeps this many of the latest switches of each CPU.
    pub fn new(history_limit: usize) -> SchedModel<K> {
        SchedModel { history_limit, ..SchedModel::default() }
    }

    /// Handles the rare events. `switches` are the ids of the switch events.
    pub fn on(&mut self, event: &Event<'_>, switches: &[EventId]) {
        match *event {
            Event::Started { now } => self.cpus.started(now),
            Event::Task { record: Record::Comm { tid, comm, .. }, .. } => {
                self.states.renamed(*tid, Comm::of_task(comm));
            }
            Event::Task { record: Record::Exit(exit), .. } => self.states.exited(exit.tid),
            Event::TookOver { old, pid, time, cpu } => self.took_over(old, pid, time, cpu),
            // An unseen wake-up or migration shows at the next switch.
            Event::Lost(window, kinds) if kinds.include(switches) => {
                self.lost(window.cpu, window.start_ns, window.end_ns);
            }
            Event::LostSide(window) => self.exits_lost_at = window.end_ns,
            _ => {}
        }
    }

    /// Once per second at most, drops doubtful waits and exited tasks. True if it did.
    pub fn sweep(&mut self, now: u64, ctx: &Context) -> bool {
        const SWEEP_NS: u64 = 1_000_000_000;
        const GONE_NS: u64 = 2_000_000_000;
        const AFTER_NS: u64 = 5_000_000_000; // /proc has been asked by then which tasks live
        /// Passes over all tasks take at most 1 / `MAX_SHARE` of the time, however many tasks there are.
        const MAX_SHARE: u64 = 20;
        if now < self.next_sweep {
            return false;
        }
        let began = crate::sys::monotonic_ns();
        self.drop_doubtful(now);
        if self.exits_lost_at > 0 && now > self.exits_lost_at.saturating_add(AFTER_NS) {
            self.exits_lost_at = 0;
            let gone: Vec<i32> =
                self.states.iter().map(|(tid, _)| tid).filter(|tid| ctx.tasks.has_exited(*tid)).collect();
            gone.into_iter().for_each(|tid| self.states.exited(tid));
        }
        self.expire(now.saturating_sub(GONE_NS));
        let pause_ns = crate::sys::monotonic_ns().saturating_sub(began).saturating_mul(MAX_SHARE);
        self.next_sweep = now.saturating_add(SWEEP_NS.max(pause_ns));
        true
    }

    /// The end of the time in which anything may have happened unseen.
    pub fn horizon(&self) -> LossHorizon {
        self.horizon
    }

    pub fn queues_mut(&mut self) -> impl Iterator<Item = (u32, &mut RunQueue)> {
        self.cpus.iter_mut().map(|(number, cpu)| (number, &mut cpu.kept))
    }

    pub fn queue(&self, cpu: u32) -> Option<&RunQueue> {
        self.cpus.get(cpu).map(|cpu| &cpu.kept)
    }

    /// The numbers of the CPUs that were seen, or are below one that was.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().map(|(number, _)| number)
    }

    /// The tasks that are known to wait, in no order.
    pub fn waits(&self) -> impl Iterator<Item = (i32, Comm, &QueueWait<K>)> {
        self.states.tasks.iter().filter_map(|(tid, task)| Some((tid, task.comm, wait_of(task, self.horizon)?)))
    }

    pub fn wait(&self, tid: i32) -> Option<(Comm, &QueueWait<K>)> {
        let task = self.states.get(tid)?;
        Some((task.comm, wait_of(task, self.horizon)?))
    }

    pub fn wait_mut(&mut self, tid: i32) -> Option<&mut QueueWait<K>> {
        let horizon = self.horizon;
        let task = self.states.get_mut(tid)?;
        wait_of(task, horizon)?;
        Some(&mut task.kept)
    }

    /// Waits whose end went unseen, since the last call.
    pub fn take_discarded(&mut self) -> u64 {
        std::mem::take(&mut self.discarded)
    }

    /// Tasks that the run is about that got a CPU although no wake-up was seen, since the last call.
    pub fn take_unwoken(&mut self) -> u64 {
        std::mem::take(&mut self.unwoken)
    }

    /// The CPUs on which a switch went unseen, since the last call.
    pub fn take_missed_on(&mut self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.states.take_missed_on().into_iter().map(|(cpu, _)| cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    #[inline]
    fn cpu_mut(&mut self, cpu: u32) -> Option<&mut Cpu<RunQueue>> {
        let (watched_from, limit) = (self.cpus.watched_from(), self.history_limit);
        self.cpus.get_or_add(cpu, || RunQueue::new(watched_from, limit))
    }

    /// A task that waits since `since` is in the queue of `cpu` from `at` on. Queues count only waits that are certain.
    #[inline]
    fn enter(&mut self, cpu: u32, at: u64, since: u64) {
        if self.horizon.saw_all_since(since)
            && let Some(cpu) = self.cpu_mut(cpu)
        {
            cpu.kept.enter(at);
        }
    }

    #[inline]
    fn leave(&mut self, cpu: u32, at: u64, since: u64) {
        if self.horizon.saw_all_since(since)
            && let Some(cpu) = self.cpu_mut(cpu)
        {
            cpu.kept.leave(at);
        }
    }

    /// The header of a record says that `current` has `cpu` at `at`.
    #[inline]
    pub fn saw_current(&mut self, at: u64, cpu: u32, current: CpuUse) {
        if let Some(cpu) = self.cpu_mut(cpu)
            && let Some(from) = cpu.saw_current(at, current)
        {
            cpu.kept.history.push(from, current);
        }
    }

    /// `cpu` goes from `prev` to `next`.
    #[inline(always)]
    pub fn cpu_switched(&mut self, at: u64, cpu: u32, prev: CpuUse, next: CpuUse) {
        let Some(known) = self.cpu_mut(cpu) else { return };
        if let Some(from) = known.saw_current(at, prev) {
            known.kept.history.push(from, prev);
        }
        let turn = known.switched(at, prev, next);
        let history = &mut known.kept.history;
        history.update_latest(prev);
        if matches!(turn, TurnBegin::Missed(..)) {
            history.doubt_latest();
        }
        history.push(at, next);
        if let TurnBegin::Missed(believed) = turn {
            self.states.unseen.missed_on(cpu, at);
            self.states.lose_running(believed.tid().unwrap_or(0), at, cpu);
        }
    }

    /// Handles a switch. `left` is how `prev` left the CPU, if that is known, with its stack and the value kept for the
    /// wait that begins. Returns the wait of `next`, which ends: `next` leaves the queue before `prev` enters it.
    #[inline(always)]
    pub fn switched(
        &mut self,
        switch: &Switch,
        [prev_is_ours, next_is_ours]: [bool; 2],
        left: Option<(SwitchedOut, Option<StackId>, K)>,
    ) -> Option<EndedWait<K>> {
        let Switch { at_ns, cpu, prev, next, .. } = *switch;
        let side = |of: CpuUse| match of {
            CpuUse::Task { tid, comm, .. } if tid > 0 => Some(TaskEvent { at_ns, cpu, tid, comm }),
            _ => None,
        };
        self.cpu_switched(at_ns, cpu, prev, next);
        let ended = side(next).and_then(|next| self.came(next, next_is_ours));
        if let Some(prev) = side(prev)
            && let Some((how, stack, kept)) = left
        {
            self.left(prev, prev_is_ours, how, stack, kept);
        }
        ended
    }

    /// See [`Cpu::hidden_switch`].
    pub fn hidden_switch(&mut self, switch_in: SwitchIn, comm: impl FnMut(i32) -> Comm) -> Option<Switch> {
        self.cpu_mut(switch_in.cpu)?.hidden_switch(switch_in, comm)
    }

    /// `seen` leaves its CPU, with this stack.
    #[inline]
    pub fn left(&mut self, seen: TaskEvent, is_ours: bool, how: SwitchedOut, stack: Option<StackId>, kept: K) {
        let task = self.states.tasks.get_or_default(seen.tid);
        self.discarded += doubt(task, self.horizon);
        if task.since > seen.at_ns {
            return;
        }
        let before = Queued::of(task);
        let wait = match how {
            SwitchedOut::Runnable { yields } => {
                let kind = if yields { RunDelayKind::Yielded } else { RunDelayKind::Preempted };
                QueueWait { stack, kept, is_ours, ..QueueWait::new(kind, seen.at_ns, seen.cpu) }
            }
            SwitchedOut::Blocked(_) | SwitchedOut::Dead => QueueWait::default(),
        };
        task.leaves(seen, how, wait, &mut self.states.unseen);
        if how == SwitchedOut::Dead {
            self.states.tasks.remove(seen.tid);
        }
        self.ended_unseen(before, seen.at_ns);
        if matches!(how, SwitchedOut::Runnable { .. }) {
            self.enter(seen.cpu, seen.at_ns, seen.at_ns);
        }
    }

    /// The wait `before` ended unseen: its task is now seen to leave a CPU, or to be woken.
    #[inline]
    fn ended_unseen(&mut self, before: Queued, at: u64) {
        if let Queued::In { cpu, since, counts } = before {
            self.discarded += u64::from(counts);
            self.leave(cpu, at, since);
        }
    }

    /// `seen` gets its CPU.
    #[inline]
    pub fn came(&mut self, seen: TaskEvent, is_ours: bool) -> Option<EndedWait<K>> {
        let task = self.states.tasks.get_or_default(seen.tid);
        self.discarded += doubt(task, self.horizon);
        if task.since > seen.at_ns {
            return None;
        }
        let (activity, since, cpu, awaits_wakeup) = (task.activity, task.since, task.cpu, task.awaits_wakeup);
        let mut wait = task.kept;
        task.comes(seen, false, &mut self.states.unseen);
        match activity {
            // The wake-up itself was made where events are not seen.
            Activity::Runnable { .. } if awaits_wakeup => {
                wait = QueueWait { is_ours, ..QueueWait::new(RunDelayKind::Woken, since, seen.cpu) };
            }
            Activity::Runnable { .. } => {
                self.leave(wait.cpu, seen.at_ns, since);
                // An idle CPU has just pulled the task from the queue of another CPU.
                if wait.cpu != seen.cpu {
                    wait.moved(seen.at_ns, seen.cpu);
                }
            }
            Activity::Unknown if wait.kind == RunDelayKind::Found && cpu == seen.cpu => {}
            Activity::Blocked(_) => {
                self.unwoken += u64::from(is_ours);
                return None;
            }
            _ => return None,
        }
        Some(EndedWait { tid: seen.tid, comm: seen.comm, cpu: seen.cpu, until: seen.at_ns, wait })
    }

    /// `sched_waking` of `seen`, in the context of its waker: the wake-up follows, and may go unseen.
    #[inline]
    pub fn waking(&mut self, seen: TaskEvent) {
        if let Some(task) = self.states.tasks.find(seen.tid)
            && task.since <= seen.at_ns
            && self.horizon.saw_all_since(task.since)
            && matches!(task.activity, Activity::Blocked(_))
        {
            task.set_waking(TaskEvent { cpu: task.cpu, ..seen }, QueueWait::default());
        }
    }

    /// `seen` is in the queue of its CPU from now on, unless it already was.
    #[inline]
    pub fn woken(&mut self, seen: TaskEvent, is_new: bool, is_ours: bool, kept: K) {
        let task = self.states.tasks.get_or_default(seen.tid);
        self.discarded += doubt(task, self.horizon);
        if task.since > seen.at_ns {
            return;
        }
        let (before, cpus) = (Queued::of(task), &self.cpus);
        let has_other = |cpu: u32| cpus.is_other(cpu, seen.tid);
        // If the task gets a CPU next, it had none before.
        let is_doubtful = task.activity == Activity::Unknown && !is_new && !has_other(seen.cpu);
        let kind = if is_new { RunDelayKind::New } else { RunDelayKind::Woken };
        let wait = QueueWait { kept, is_ours, is_doubtful, ..QueueWait::new(kind, seen.at_ns, seen.cpu) };
        if std::mem::take(&mut task.awaits_wakeup) && !is_new {
            (task.since, task.cpu, task.kept) = (seen.at_ns, seen.cpu, wait);
        } else {
            if task.kept.is_doubtful {
                task.activity = Activity::Unknown;
            }
            if matches!(task.wakes(seen, is_new, wait, has_other, &mut self.states.unseen), Change::Stale) {
                return;
            }
        }
        self.ended_unseen(before, seen.at_ns);
        self.enter(seen.cpu, seen.at_ns, seen.at_ns);
    }

    /// `tid` migrates to another CPU: if it waits, its wait moves to the queue of that CPU.
    #[inline]
    pub fn migrated(&mut self, at: u64, tid: i32, cpu: u32) {
        let Some(task) = self.states.tasks.find(tid).filter(|task| task.since <= at) else { return };
        match task.activity {
            Activity::Runnable { .. } if !task.awaits_wakeup => {
                let (before, since) = (task.kept.cpu, task.since);
                if before != cpu {
                    task.kept.moved(at, cpu);
                    self.leave(before, at, since);
                    self.enter(cpu, at, since);
                }
            }
            Activity::Running => {} // its CPU is taken from its next switch
            _ => task.cpu = cpu,
        }
    }

    /// /proc says that `seen` is runnable, and nothing else is known of it: it runs, or waits.
    pub fn found(&mut self, seen: TaskEvent, is_ours: bool, began: Began) {
        let task = self.states.tasks.get_or_default(seen.tid);
        self.discarded += doubt(task, self.horizon);
        if task.activity == Activity::Unknown && task.since <= seen.at_ns {
            let wait = QueueWait { began, is_ours, ..QueueWait::new(RunDelayKind::Found, seen.at_ns, seen.cpu) };
            task.set_activity(Activity::Unknown, seen, wait);
        }
    }

    /// Of the tasks that were found runnable, those wait on whose CPU another task is known to have run since then.
    pub fn settle_found(&mut self, kept: impl Fn(u64) -> K) {
        let mut waiting = Vec::new();
        for (tid, task) in self.states.tasks.iter_mut() {
            let is_found = task.activity == Activity::Unknown && task.kept.kind == RunDelayKind::Found;
            if !is_found || !self.horizon.saw_all_since(task.since) {
                continue;
            }
            let Some(cpu) = self.cpus.get(task.cpu) else { continue };
            if cpu.current_tid().is_some_and(|current| current != tid && current != 0) && cpu.is_watched() {
                task.activity = Activity::Runnable { woken: false };
                (task.kept.cpu, task.kept.cpu_since) = (task.cpu, task.since);
                task.kept.kept = kept(task.since);
                waiting.push((task.cpu, task.since));
            }
        }
        waiting.into_iter().for_each(|(cpu, since)| self.enter(cpu, since, since));
    }

    /// Records of `cpu` were lost from `start` to `end`: any task may have done anything in between.
    ///
    /// Losses come fastest when there is no CPU time to handle them: this takes equally long for ten tasks and for a
    /// million.
    fn lost(&mut self, cpu: u32, start: u64, end: u64) {
        self.horizon.lost_until(end);
        self.queues_mut().for_each(|(_, queue)| queue.set_waiting(start, 0));
        if let Some(cpu) = self.cpu_mut(cpu) {
            cpu.lost(end);
            cpu.kept.history.push(start, CpuUse::Unseen);
        }
    }

    /// Drops what became doubtful since the last call, and recounts the queues. Passes over all tasks.
    pub fn drop_doubtful(&mut self, now: u64) {
        if std::mem::replace(&mut self.dropped_until, self.horizon) == self.horizon {
            return;
        }
        let mut waiting = vec![0; self.cpus.iter().count()];
        for (_, task) in self.states.tasks.iter_mut() {
            self.discarded += doubt(task, self.horizon);
            if let Some(wait) = wait_of(task, self.horizon) {
                waiting.get_mut(wait.cpu as usize).into_iter().for_each(|waiting| *waiting += 1);
            }
        }
        for ((_, queue), waiting) in self.queues_mut().zip(waiting) {
            queue.set_waiting(now, waiting);
        }
    }

    /// The thread `old`, which runs on `cpu`, gets the tid `new`.
    fn took_over(&mut self, old: i32, new: i32, at: u64, cpu: u32) {
        let Some(comm) = self.states.get(old).map(|task| task.comm) else { return };
        if self.states.took_over(old, at, cpu).is_none() {
            return; // the switch after the exec was already seen
        }
        let task = self.states.tasks.get_or_default(new);
        self.discarded += doubt(task, self.horizon);
        let before = Queued::of(task);
        self.states.executes(TaskEvent { at_ns: at, cpu, tid: new, comm });
        self.ended_unseen(before, at);
        if let Some(cpu) = self.cpu_mut(cpu) {
            cpu.renumber(old, new);
        }
    }

    /// /proc contradicts the wait of `tid`: its end went unseen.
    pub fn discard(&mut self, tid: i32, at: u64) {
        let Some(task) = self.states.get_mut(tid) else { return };
        let discarded = doubt(task, self.horizon);
        let before = Queued::of(task);
        self.discarded += discarded;
        self.states.discard(tid);
        self.ended_unseen(before, at);
    }

    /// Drops tasks that exited before `at` and whose last switch was not seen.
    fn expire(&mut self, at: u64) {
        let gone = |(tid, task): (i32, &TrackedTask<_>)| (task.exited && task.since < at).then_some(tid);
        let gone: Vec<i32> = self.states.tasks.iter().filter_map(gone).collect();
        for tid in gone {
            self.discard(tid, at);
            self.states.forget(tid);
        }
    }
}

/// Where a task waits.
#[derive(Clone, Copy, Debug)]
enum Queued {
    /// `counts`: the wait is counted as discarded if its end is not seen.
    In {
        cpu: u32,
        since: u64,
        counts: bool,
    },
    Nowhere,
}

impl Queued {
    #[inline]
    fn of<K>(task: &TrackedTask<QueueWait<K>>) -> Queued {
        match task.activity {
            Activity::Runnable { .. } if !task.awaits_wakeup => {
                let counts = task.kept.began == Began::Exactly && !task.kept.is_doubtful;
                Queued::In { cpu: task.kept.cpu, since: task.since, counts }
            }
            _ => Queued::Nowhere,
        }
    }
}

/// The wait of a task, if it is known to wait.
fn wait_of<K>(task: &TrackedTask<QueueWait<K>>, horizon: LossHorizon) -> Option<&QueueWait<K>> {
    let waits = matches!(task.activity, Activity::Runnable { .. }) && !task.awaits_wakeup;
    (waits && horizon.saw_all_since(task.since)).then_some(&task.kept)
}

/// Forgets what a task did since before `horizon`. Returns the number of waits that this discards.
#[inline]
fn doubt<K: Copy + Default>(task: &mut TrackedTask<QueueWait<K>>, horizon: LossHorizon) -> u64 {
    if horizon.saw_all_since(task.since) {
        return 0;
    }
    let waits = matches!(task.activity, Activity::Runnable { .. }) && !task.awaits_wakeup;
    let discarded = waits && task.kept.began == Began::Exactly;
    (task.activity, task.kept) = (Activity::Unknown, QueueWait::default());
    u64::from(discarded)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
