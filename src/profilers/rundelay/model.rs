//! What every task and every CPU does, by switches, wake-ups and migrations: who waits for which CPU, and since when.
//!
//! It trusts what it sees. A wait whose end went unseen is discarded and counted. A task that waited before anything
//! was seen of it is taken from /proc; its wait is at least as long as it is known.
//!
//! After a loss nothing is known of a task until its next event. No task is looked at for that: what began before the
//! horizon is taken for unknown whenever it is asked for, and dropped with the next event of its task or by
//! [`SchedModel::drop_doubtful`].

use crate::profilers::rundelay::cpu_queue::CpuQueue;
use crate::profilers::rundelay::history::CpuUse;
use crate::stats::{Began, LossHorizon, TidMap};
use crate::symbol::StackId;
use crate::task::Comm;

/// Why a task waits for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunDelayKind {
    Woken,
    /// It has not run yet.
    New,
    /// It lost its CPU and wants to go on.
    Preempted,
    /// It gave its CPU away, and wants to go on.
    Yielded,
    /// It was found waiting.
    Found,
}

/// A wait for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct QueueWait {
    pub kind: RunDelayKind,
    pub since: u64,
    pub began: Began,
    /// In whose queue the task is; of a task that was found, where it ran last.
    pub cpu: u32,
    /// Since when it is in that queue.
    cpu_since: u64,
    /// The queues before that one, the latest first, each with the time since which it was in it.
    earlier: [(u32, u64); EARLIER],
    /// How often it went from one queue to another.
    pub moves: u32,
    /// Where it lost its CPU.
    pub stack: Option<StackId>,
    /// When it is shown next while it goes on.
    pub report_at: u64,
    /// Up to when it was shown; 0: it was not.
    pub shown_until: u64,
    /// The answer is about it.
    pub is_ours: bool,
    /// The task may have had a CPU all the time, and been woken in vain.
    is_doubtful: bool,
}

/// Earlier queues that are remembered of one wait.
const EARLIER: usize = 3;

impl QueueWait {
    fn new(kind: RunDelayKind, since: u64, cpu: u32) -> QueueWait {
        QueueWait {
            kind,
            since,
            began: Began::Exactly,
            cpu,
            cpu_since: since,
            earlier: [(0, 0); EARLIER],
            moves: 0,
            stack: None,
            report_at: 0,
            shown_until: 0,
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

    /// Calls `each` with the CPUs it waited for, the latest first, and from when to when. What is too long ago has none.
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

/// What a task does, by all that is known.
#[derive(Clone, Copy, Debug, Default)]
enum SchedActivity {
    #[default]
    Unknown,
    Running,
    Blocked,
    /// `sched_waking` was seen, the wake-up was not yet.
    Waking,
    Waiting(QueueWait),
    /// /proc says that it is runnable: it runs, or waits. Whether it is ours.
    Runnable(Began, bool),
}

#[derive(Clone, Debug, Default)]
struct SchedTask {
    activity: SchedActivity,
    /// Since when, ns.
    since: u64,
    /// Where it runs, or was last.
    cpu: u32,
    comm: Comm,
    exited: bool,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedWait {
    pub tid: i32,
    pub comm: Comm,
    /// The CPU that it got.
    pub cpu: u32,
    pub until: u64,
    pub wait: QueueWait,
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftCpu {
    Waits(RunDelayKind),
    Blocks,
    Dies,
}

/// One side of a switch, or the task of a wake-up.
#[derive(Clone, Copy, Debug)]
pub struct SchedSide {
    pub at: u64,
    pub cpu: u32,
    pub tid: i32,
    pub comm: Comm,
    /// The answer is about it.
    pub is_ours: bool,
}

/// All tasks and CPUs.
#[derive(Debug, Default)]
pub struct SchedModel {
    tasks: TidMap<SchedTask>,
    cpus: Vec<CpuQueue>,
    /// Stretches kept of each CPU.
    history_most: usize,
    /// When events were on.
    watched_from: u64,
    /// Waits whose end went unseen.
    discarded: u64,
    /// Tasks that got a CPU without a wake-up that was seen.
    unwoken: u64,
    /// CPUs on which a switch went unseen.
    missed_on: Vec<u32>,
    /// What a task did before, it may not do any more: see [`SchedTask::doubt`].
    horizon: LossHorizon,
    /// The horizon up to which all tasks were gone through.
    dropped_until: LossHorizon,
}

/// The number of a CPU comes from a record.
const MAX_CPUS: usize = 1 << 13;

impl SchedModel {
    pub fn new(history_most: usize) -> SchedModel {
        SchedModel { history_most, ..SchedModel::default() }
    }

    /// Events are on.
    pub fn started(&mut self, now: u64) {
        self.watched_from = now;
        for queue in &mut self.cpus {
            queue.watched_from = now;
        }
    }

    pub fn cpus_mut(&mut self) -> impl Iterator<Item = (u32, &mut CpuQueue)> {
        (0..).zip(&mut self.cpus)
    }

    pub fn cpu(&self, cpu: u32) -> Option<&CpuQueue> {
        self.cpus.get(cpu as usize)
    }

    pub fn tids(&self) -> impl Iterator<Item = i32> {
        self.tasks.iter().map(|(tid, _)| tid)
    }

    /// The tasks that are known to wait, in no order.
    pub fn waits(&self) -> impl Iterator<Item = (i32, Comm, &QueueWait)> {
        self.tasks.iter().filter_map(|(tid, task)| Some((tid, task.comm, task.wait(self.horizon)?)))
    }

    pub fn wait(&self, tid: i32) -> Option<(Comm, &QueueWait)> {
        let task = self.tasks.get(tid)?;
        Some((task.comm, task.wait(self.horizon)?))
    }

    pub fn wait_mut(&mut self, tid: i32) -> Option<&mut QueueWait> {
        let horizon = self.horizon;
        match &mut self.tasks.get_mut(tid).filter(|task| horizon.saw_all_since(task.since))?.activity {
            SchedActivity::Waiting(wait) => Some(wait),
            _ => None,
        }
    }

    /// Waits whose end went unseen, since the last call.
    pub fn take_discarded(&mut self) -> u64 {
        std::mem::take(&mut self.discarded)
    }

    /// Tasks of ours that got a CPU without a wake-up that was seen, since the last call.
    pub fn take_unwoken(&mut self) -> u64 {
        std::mem::take(&mut self.unwoken)
    }

    /// The CPUs on which a switch went unseen, since the last call.
    pub fn take_missed_on(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.missed_on)
    }

    fn queue(&mut self, cpu: u32) -> Option<&mut CpuQueue> {
        let at = cpu as usize;
        if at >= self.cpus.len() && at < MAX_CPUS {
            let (watched_from, most) = (self.watched_from, self.history_most);
            self.cpus.resize_with(at + 1, || CpuQueue::new(watched_from, most));
        }
        self.cpus.get_mut(at)
    }

    /// A task that waits since `since` is in the queue of `cpu` from `at` on. Queues count waits that are certain only.
    #[inline]
    fn enter(&mut self, cpu: u32, at: u64, since: u64) {
        if self.horizon.saw_all_since(since)
            && let Some(queue) = self.queue(cpu)
        {
            queue.enter(at);
        }
    }

    #[inline]
    fn leave(&mut self, cpu: u32, at: u64, since: u64) {
        if self.horizon.saw_all_since(since)
            && let Some(queue) = self.queue(cpu)
        {
            queue.leave(at);
        }
    }

    /// `current` has `cpu` at `at`, by the head of a record.
    #[inline]
    pub fn saw_current(&mut self, at: u64, cpu: u32, current: CpuUse) {
        let Some(queue) = self.queue(cpu) else { return };
        if queue.current.is_none() && queue.watched_from <= at && queue.watched_from > 0 {
            queue.current = tid_of(current);
            let from = queue.watched_from;
            queue.history.push(from, current);
        }
    }

    /// `cpu` goes from `prev` to `next`.
    #[inline]
    pub fn cpu_switched(&mut self, at: u64, cpu: u32, prev: CpuUse, next: CpuUse) {
        self.saw_current(at, cpu, prev);
        let Some(queue) = self.queue(cpu) else { return };
        let believed = std::mem::replace(&mut queue.current, tid_of(next));
        queue.history.update_latest(prev);
        if believed != tid_of(prev) && believed.is_some() {
            queue.history.doubt_latest();
            self.note_missed(cpu);
            self.lost_cpu(believed, at, cpu);
        }
        if let Some(queue) = self.queue(cpu) {
            queue.history.push(at, next);
        }
    }

    /// `tid` was believed to have `cpu`, where another task was seen.
    #[cold]
    fn lost_cpu(&mut self, tid: Option<i32>, at: u64, cpu: u32) {
        if let Some(task) = tid.and_then(|tid| self.tasks.get_mut(tid))
            && matches!(task.activity, SchedActivity::Running)
            && task.cpu == cpu
            && task.since <= at
        {
            task.activity = SchedActivity::Unknown;
        }
    }

    #[cold]
    fn note_missed(&mut self, cpu: u32) {
        const LIMIT: usize = 64; // it is emptied at each tick
        if self.missed_on.len() < LIMIT && !self.missed_on.contains(&cpu) {
            self.missed_on.push(cpu);
        }
    }

    /// Whether `tid` is the last task known to have got `cpu`.
    pub fn has_come(&self, cpu: u32, tid: i32) -> bool {
        self.cpu(cpu).is_some_and(|queue| queue.current == Some(tid))
    }

    /// `seen` leaves its CPU. `stack`: where.
    #[inline]
    pub fn left(&mut self, seen: SchedSide, how: LeftCpu, stack: Option<StackId>, report_at: u64) {
        if how == LeftCpu::Dies {
            return self.died(seen);
        }
        let task = self.tasks.get_or_default(seen.tid);
        self.discarded += task.doubt(self.horizon);
        if task.since > seen.at {
            return;
        }
        let activity = match how {
            LeftCpu::Waits(kind) => SchedActivity::Waiting(QueueWait {
                stack,
                report_at,
                is_ours: seen.is_ours,
                ..QueueWait::new(kind, seen.at, seen.cpu)
            }),
            LeftCpu::Blocks | LeftCpu::Dies => SchedActivity::Blocked,
        };
        let before = task.set(activity, seen);
        self.ended_unseen(before, seen.at);
        if matches!(activity, SchedActivity::Waiting(_)) {
            self.enter(seen.cpu, seen.at, seen.at);
        }
    }

    #[cold]
    fn died(&mut self, seen: SchedSide) {
        if let Some(mut task) = self.tasks.remove(seen.tid) {
            self.discarded += task.doubt(self.horizon);
            self.ended_unseen(task.activity, seen.at);
        }
    }

    /// A task did `before` up to now, as far as was known; now it is seen to leave a CPU, or to be woken.
    #[inline]
    fn ended_unseen(&mut self, before: SchedActivity, at: u64) {
        if let SchedActivity::Waiting(wait) = before {
            if wait.began == Began::Exactly && !wait.is_doubtful {
                self.discarded += 1;
                self.note_missed(wait.cpu);
            }
            self.leave(wait.cpu, at, wait.since);
        }
    }

    /// `seen` gets its CPU.
    #[inline]
    pub fn came(&mut self, seen: SchedSide) -> Option<EndedWait> {
        let task = self.tasks.get_or_default(seen.tid);
        self.discarded += task.doubt(self.horizon);
        if task.since > seen.at {
            return None;
        }
        let (since, cpu) = (task.since, task.cpu);
        let before = task.set(SchedActivity::Running, seen);
        let wait = match before {
            SchedActivity::Waiting(wait) => {
                self.leave(wait.cpu, seen.at, wait.since);
                // An idle CPU has just taken it from the queue of another.
                let mut wait = wait;
                if wait.cpu != seen.cpu {
                    wait.moved(seen.at, seen.cpu);
                }
                wait
            }
            // The wake-up itself happened where events are not seen.
            SchedActivity::Waking => QueueWait::new(RunDelayKind::Woken, since, seen.cpu),
            SchedActivity::Runnable(began, _) if cpu == seen.cpu => {
                QueueWait { began, ..QueueWait::new(RunDelayKind::Found, since, cpu) }
            }
            SchedActivity::Blocked => {
                self.unwoken += u64::from(seen.is_ours);
                return None;
            }
            SchedActivity::Running | SchedActivity::Unknown | SchedActivity::Runnable(..) => return None,
        };
        Some(EndedWait { tid: seen.tid, comm: seen.comm, cpu: seen.cpu, until: seen.at, wait })
    }

    /// `sched_waking` of `seen`, by its waker: the wake-up follows, perhaps unseen.
    #[inline]
    pub fn waking(&mut self, seen: SchedSide) {
        if let Some(task) = self.tasks.get_mut(seen.tid)
            && task.since <= seen.at
            && self.horizon.saw_all_since(task.since)
            && matches!(task.activity, SchedActivity::Blocked)
        {
            task.set(SchedActivity::Waking, SchedSide { cpu: task.cpu, ..seen });
        }
    }

    /// `seen` is in the queue of its CPU from now on, if it was not before.
    #[inline]
    pub fn woken(&mut self, seen: SchedSide, is_new: bool, report_at: u64) {
        let task = self.tasks.get_or_default(seen.tid);
        self.discarded += task.doubt(self.horizon);
        if task.since > seen.at {
            return;
        }
        let is_elsewhere = |cpu: u32| {
            let current = self.cpus.get(cpu as usize).and_then(|queue| queue.current);
            current.is_some_and(|tid| tid != seen.tid)
        };
        let waits = match task.activity {
            _ if is_new => true,
            SchedActivity::Blocked | SchedActivity::Waking => true,
            SchedActivity::Unknown | SchedActivity::Runnable(..) => true,
            // A task on its way to sleep that is woken goes on.
            SchedActivity::Running => is_elsewhere(task.cpu),
            SchedActivity::Waiting(wait) => matches!(wait.kind, RunDelayKind::Woken | RunDelayKind::New),
        };
        if !waits {
            return;
        }
        let kind = if is_new { RunDelayKind::New } else { RunDelayKind::Woken };
        // If it gets a CPU next, it had none.
        let is_unknown = matches!(task.activity, SchedActivity::Unknown | SchedActivity::Runnable(..));
        let is_doubtful = is_unknown && !is_new && !is_elsewhere(seen.cpu);
        let is_ours = seen.is_ours;
        let wait = QueueWait { report_at, is_ours, is_doubtful, ..QueueWait::new(kind, seen.at, seen.cpu) };
        let before = task.set(SchedActivity::Waiting(wait), seen);
        task.exited &= !is_new;
        self.ended_unseen(before, seen.at);
        self.enter(seen.cpu, seen.at, seen.at);
    }

    /// `tid` goes to another CPU: when it waits, its wait goes with it.
    #[inline]
    pub fn migrated(&mut self, at: u64, tid: i32, cpu: u32) {
        let Some(task) = self.tasks.get_mut(tid).filter(|task| task.since <= at) else { return };
        match &mut task.activity {
            SchedActivity::Waiting(wait) if wait.cpu != cpu => {
                let (before, since) = (wait.cpu, wait.since);
                wait.moved(at, cpu);
                self.leave(before, at, since);
                self.enter(cpu, at, since);
            }
            SchedActivity::Waiting(_) => {}
            _ => task.cpu = cpu,
        }
    }

    /// /proc says that `seen` is runnable, and nothing else is known of it.
    pub fn found(&mut self, seen: SchedSide, began: Began) {
        let task = self.tasks.get_or_default(seen.tid);
        self.discarded += task.doubt(self.horizon);
        if matches!(task.activity, SchedActivity::Unknown) && task.since <= seen.at {
            task.set(SchedActivity::Runnable(began, seen.is_ours), seen);
        }
    }

    /// Of the tasks that were found runnable, those wait on whose CPU another one is known to run ever since.
    pub fn settle_found(&mut self, report_at: impl Fn(u64) -> u64) {
        let mut waiting = Vec::new();
        for (tid, task) in self.tasks.iter() {
            let SchedActivity::Runnable(began, is_ours) = task.activity else { continue };
            if !self.horizon.saw_all_since(task.since) {
                continue;
            }
            let Some(queue) = self.cpus.get(task.cpu as usize) else { continue };
            if queue.current.is_some_and(|current| current != tid && current != 0) && queue.watched_from > 0 {
                waiting.push((tid, task.since, task.cpu, began, is_ours));
            }
        }
        for (tid, since, cpu, began, is_ours) in waiting {
            let found = QueueWait::new(RunDelayKind::Found, since, cpu);
            let wait = QueueWait { began, is_ours, report_at: report_at(since), ..found };
            if let Some(task) = self.tasks.get_mut(tid) {
                task.activity = SchedActivity::Waiting(wait);
            }
            self.enter(cpu, since, since);
        }
    }

    /// Records of `cpu` were lost from `start` to `end`: any task may have done anything in between.
    ///
    /// Losses come fastest when there is no time for them: this takes as long whether there are ten tasks or a million.
    pub fn lost(&mut self, cpu: u32, start: u64, end: u64) {
        self.horizon.lost_until(end);
        for queue in &mut self.cpus {
            queue.set_waiting(start, 0);
        }
        if let Some(queue) = self.queue(cpu) {
            queue.current = None;
            queue.watched_from = end;
            queue.history.push(start, CpuUse::Unseen);
        }
    }

    /// Drops what became doubtful since the last call, and counts the queues anew. Goes through all tasks.
    pub fn drop_doubtful(&mut self, now: u64) {
        if std::mem::replace(&mut self.dropped_until, self.horizon) == self.horizon {
            return;
        }
        let mut waiting = vec![0; self.cpus.len()];
        for (_, task) in self.tasks.iter_mut() {
            self.discarded += task.doubt(self.horizon);
            if let Some(wait) = task.wait(self.horizon) {
                waiting.get_mut(wait.cpu as usize).into_iter().for_each(|waiting| *waiting += 1);
            }
        }
        for (queue, waiting) in self.cpus.iter_mut().zip(waiting) {
            queue.set_waiting(now, waiting);
        }
    }

    pub fn renamed(&mut self, tid: i32, comm: Comm) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.comm = comm;
            task.exited = false;
        }
    }

    /// The thread `old`, which runs on `cpu`, goes on under the number `new`.
    pub fn took_over(&mut self, old: i32, new: i32, at: u64, cpu: u32) {
        let runs = |task: &SchedTask| matches!(task.activity, SchedActivity::Running) && task.cpu == cpu;
        let Some(task) = self.tasks.remove(old).filter(runs) else { return }; // or the switch that followed was seen
        let before = std::mem::replace(self.tasks.get_or_default(new), task);
        self.ended_unseen(before.activity, at);
        if let Some(queue) = self.queue(cpu).filter(|queue| queue.current == Some(old)) {
            queue.current = Some(new);
        }
    }

    /// The task's exit record came; it still runs for a moment.
    pub fn exited(&mut self, tid: i32) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.exited = true;
        }
    }

    /// /proc contradicts the wait of `tid`: its end went unseen.
    pub fn discard(&mut self, tid: i32, at: u64) {
        if let Some(task) = self.tasks.get_mut(tid) {
            self.discarded += task.doubt(self.horizon);
            let before = std::mem::take(&mut task.activity);
            self.ended_unseen(before, at);
        }
    }

    /// Drops tasks that exited before `at` and whose last switch was not seen.
    pub fn expire(&mut self, at: u64) {
        let gone = |(tid, task): (i32, &SchedTask)| (task.exited && task.since < at).then_some(tid);
        let gone: Vec<i32> = self.tasks.iter().filter_map(gone).collect();
        for tid in gone {
            self.discard(tid, at);
            self.tasks.remove(tid);
        }
    }
}

impl SchedTask {
    /// Its wait, if it is known to wait.
    fn wait(&self, horizon: LossHorizon) -> Option<&QueueWait> {
        match &self.activity {
            SchedActivity::Waiting(wait) if horizon.saw_all_since(self.since) => Some(wait),
            _ => None,
        }
    }

    /// Forgets what it did since before `horizon`. Returns how many waits are discarded with that.
    #[inline]
    fn doubt(&mut self, horizon: LossHorizon) -> u64 {
        if horizon.saw_all_since(self.since) {
            return 0;
        }
        match std::mem::take(&mut self.activity) {
            SchedActivity::Waiting(wait) => u64::from(wait.began == Began::Exactly),
            _ => 0,
        }
    }

    /// Returns what it did before.
    #[inline]
    fn set(&mut self, activity: SchedActivity, seen: SchedSide) -> SchedActivity {
        (self.since, self.cpu, self.comm) = (seen.at, seen.cpu, seen.comm);
        std::mem::replace(&mut self.activity, activity)
    }
}

fn tid_of(had_by: CpuUse) -> Option<i32> {
    match had_by {
        CpuUse::Task { tid, .. } => Some(tid),
        CpuUse::Idle => Some(0),
        CpuUse::Unseen => None,
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
