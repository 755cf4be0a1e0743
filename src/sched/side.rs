//! Changes to tasks by other sources than switches and wake-ups: side records, and /proc.

use crate::sched::states::{Activity, SchedState};
use crate::sched::tasks::{StatePeriod, TaskEvent, TaskStates, TrackedTask, period};
use crate::stats::Began;
use crate::task::Comm;

impl<K: Copy + Default> TaskStates<K> {
    /// /proc says that a task of which nothing is known waits in `state`.
    pub fn found(&mut self, seen: TaskEvent, state: SchedState, began: Began, kept: K) {
        let known_from = match self.tasks.get(seen.tid) {
            Some(task) if task.activity != Activity::Unknown => return,
            Some(task) => task.known_from,
            None => seen.at_ns,
        };
        let task = TrackedTask {
            activity: Activity::Blocked(state),
            since: seen.at_ns,
            known_from,
            began,
            cpu: seen.cpu,
            comm: seen.comm,
            kept,
            ..TrackedTask::default()
        };
        *self.tasks.get_or_default(seen.tid) = task;
    }

    /// The workload executes its command: it runs from now on, whatever was before.
    pub fn executes(&mut self, seen: TaskEvent) {
        let task = self.tasks.get_or_default(seen.tid);
        if task.activity == Activity::Hidden {
            return;
        }
        task.set_activity(Activity::Running, seen, K::default());
        task.exited = false;
    }

    /// The thread `old`, on `cpu`, gets another tid: returns the period for which it ran under its old one.
    pub fn took_over(&mut self, old: i32, at: u64, cpu: u32) -> Option<StatePeriod<K>> {
        let task = self.get(old)?;
        let runs = task.activity == Activity::Running && task.cpu == cpu && task.since <= at;
        let seen = TaskEvent { at_ns: at, cpu, tid: old, comm: task.comm };
        let ended = runs.then(|| period(task, seen, SchedState::RUNNING));
        let task = self.tasks.remove(old)?;
        self.unseen.lives.ended(old, task.known_from, if runs { at } else { task.since });
        ended
    }

    /// The first thread of a process has exited.
    pub fn leader_exited(&mut self, pid: i32, at: u64) {
        if !self.blocked_only {
            self.ended_leaders.insert(pid, at);
        }
    }

    /// Another thread has taken over the pid of its process, whose first thread has ended.
    pub fn leader_replaced(&mut self, pid: i32) {
        self.ended_leaders.remove(&pid);
        if self.get(pid).is_some_and(|task| task.exited) {
            self.forget(pid);
        }
    }

    /// A task got a new name, so it lives.
    pub fn renamed(&mut self, tid: i32, comm: Comm) {
        if let Some(task) = self.get_mut(tid) {
            task.comm = comm;
            task.exited = false;
        }
    }

    /// Records were lost since the last event of this task: its state becomes unknown.
    pub fn doubt(&mut self, tid: i32) {
        if let Some(task) = self.get_mut(tid) {
            task.activity = Activity::Unknown;
            task.kept = K::default();
        }
    }

    /// Whether anything is known of `tid`.
    pub fn knows(&self, tid: i32) -> bool {
        self.tasks.get(tid).is_some()
    }

    /// Excludes a task for the rest of the run.
    pub fn hide(&mut self, tid: i32) {
        self.tasks.get_or_default(tid).activity = Activity::Hidden;
    }

    pub fn forget(&mut self, tid: i32) {
        if self.tasks.get(tid).is_some_and(|task| task.activity != Activity::Hidden)
            && let Some(task) = self.tasks.remove(tid)
        {
            self.unseen.lives.ended(tid, task.known_from, task.since);
        }
    }

    /// The period of a task ended without an event.
    pub fn discard(&mut self, tid: i32) {
        let blocked_only = self.blocked_only;
        let Some(task) = self.get_mut(tid) else { return };
        let counts = task.began == Began::Exactly && !matches!(task.activity, Activity::Unknown | Activity::Away);
        task.activity = Activity::Unknown;
        task.kept = K::default();
        self.unseen.count += u64::from(counts);
        if blocked_only {
            self.tasks.remove(tid);
        }
    }

    /// The task's exit record came; it still runs for a moment.
    pub fn exited(&mut self, tid: i32) {
        if self.blocked_only {
            self.forget(tid);
        } else if let Some(task) = self.get_mut(tid) {
            task.exited = true;
        }
    }

    /// Marks the tasks without an event since `at` whose exit record was lost.
    pub fn outlived(&mut self, at: u64, has_exited: impl Fn(i32) -> bool) {
        let gone =
            |(tid, task): (i32, &TrackedTask<K>)| (!task.exited && task.since < at && has_exited(tid)).then_some(tid);
        let gone: Vec<i32> = self.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|tid| self.exited(tid));
    }

    /// Drops tasks that exited before `at` and whose last switch was not seen, and those that are not watched any more.
    pub fn expire(&mut self, at: u64, is_ours: impl Fn(i32) -> bool) {
        self.ended_leaders.retain(|_, exited_at| *exited_at >= at);
        let lives = &mut self.unseen.lives;
        self.tasks.retain(|tid, task| {
            let stays = is_ours(tid) && !(task.exited && task.since < at);
            if !stays && task.activity != Activity::Hidden {
                lives.ended(tid, task.known_from, task.since);
            }
            stays
        });
    }
}
