//! What is learnt of tasks otherwise than by a switch or a wake-up: from side records, and from /proc.

use crate::profilers::task_state::machine::{Began, Doing, Machine, Seen, Task};
use crate::profilers::task_state::states::State;
use crate::task::Comm;

impl Machine {
    /// /proc says that a task of which nothing is known waits in `state`.
    pub fn found(&mut self, seen: Seen, state: State, began: Began, report_at: u64) {
        let known_from = match self.tasks.get(seen.tid) {
            Some(task) if task.doing != Doing::Unknown => return,
            Some(task) => task.known_from,
            None => seen.at,
        };
        let task = Task {
            doing: Doing::Blocked(state),
            since: seen.at,
            known_from,
            began,
            cpu: seen.cpu,
            comm: seen.comm,
            report_at,
            ..Task::default()
        };
        *self.tasks.get_or_default(seen.tid) = task;
    }

    /// The workload executes its command: it runs from now on, whatever was before.
    pub fn executes(&mut self, seen: Seen) {
        let task = self.tasks.get_or_default(seen.tid);
        if task.doing == Doing::Hidden {
            return;
        }
        task.becomes(Doing::Running, seen, task.stack, u64::MAX);
        task.exited = false;
    }

    /// A task with a new name lives: an exec by another thread of its process makes the leader's farewell void.
    pub fn renamed(&mut self, tid: i32, comm: Comm) {
        if let Some(task) = self.get_mut(tid) {
            task.comm = comm;
            task.exited = false;
        }
    }

    /// Records were lost since it was seen last: nothing is known of it now.
    pub fn doubt(&mut self, tid: i32) {
        if let Some(task) = self.get_mut(tid) {
            task.doing = Doing::Unknown;
            task.report_at = u64::MAX;
        }
    }

    /// Something was seen of it.
    pub fn knows(&self, tid: i32) -> bool {
        self.tasks.get(tid).is_some()
    }

    /// Leaves a task out, for good.
    pub fn hide(&mut self, tid: i32) {
        self.tasks.get_or_default(tid).doing = Doing::Hidden;
    }

    pub fn forget(&mut self, tid: i32) {
        if self.tasks.get(tid).is_some_and(|task| task.doing != Doing::Hidden)
            && let Some(task) = self.tasks.remove(tid)
        {
            self.lives.ended(tid, &task, task.since);
        }
    }

    /// What a task was believed to do ended unseen.
    pub fn discard(&mut self, tid: i32) {
        let blocked_only = self.blocked_only;
        let Some(task) = self.get_mut(tid) else { return };
        let counts = task.began == Began::Exactly && !matches!(task.doing, Doing::Unknown | Doing::Away);
        task.doing = Doing::Unknown;
        task.report_at = u64::MAX;
        self.unseen += u64::from(counts);
        if blocked_only {
            self.tasks.remove(tid);
        }
    }

    /// The task has said its farewell; it still runs for a moment.
    pub fn exited(&mut self, tid: i32) {
        if self.blocked_only {
            self.forget(tid);
        } else if let Some(task) = self.get_mut(tid) {
            task.exited = true;
        }
    }

    /// Those of the tasks not seen since `at` whose farewell was lost.
    pub fn outlived(&mut self, at: u64, has_exited: impl Fn(i32) -> bool) {
        let gone = |(tid, task): (i32, &Task)| (!task.exited && task.since < at && has_exited(tid)).then_some(tid);
        let gone: Vec<i32> = self.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|tid| self.exited(tid));
    }

    /// Drops tasks whose last switch was not seen though they exited before `at`, and those that are not ours any more.
    pub fn expire(&mut self, at: u64, is_ours: impl Fn(i32) -> bool) {
        let lives = &mut self.lives;
        self.tasks.retain(|tid, task| {
            let stays = is_ours(tid) && !(task.exited && task.since < at);
            if !stays && task.doing != Doing::Hidden {
                lives.ended(tid, task, task.since);
            }
            stays
        });
    }
}
