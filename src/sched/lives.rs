//! How long tasks were known in an interval, and how much of that time is in no period.

use rustc_hash::FxHashMap;

use crate::sched::states::{Activity, STATES, SchedState};

/// Most threads with a lifetime of their own in one interval: without intervals every thread that ever ran would be
/// kept.
pub const MAX_THREADS: usize = 50_000;

/// The lifetimes of tasks in the interval. A lifetime begins with the first event of the task, or when /proc said that
/// it waits.
#[derive(Debug, Default)]
pub struct TaskLives {
    /// When the interval began.
    pub from: u64,
    /// Lifetimes of tasks that ended in the interval.
    ended: Lifetimes,
    /// `ended_apart` is kept: threads have rows of their own.
    apart: bool,
    /// Lifetimes of ended tasks by thread, ns.
    ended_apart: FxHashMap<i32, u64>,
}

/// Number of tasks, and the sum of their lifetimes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    pub tasks: u64,
    pub ns: u64,
}

impl Lifetimes {
    pub fn add(&mut self, ns: u64) {
        self.tasks += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl TaskLives {
    /// Keeps lifetimes by thread: threads have rows of their own.
    pub fn keep_apart(&mut self) {
        self.apart = true;
    }

    /// A task that was known from `known_from` on ended at `until`, or became unknown then.
    #[cold]
    pub fn ended(&mut self, tid: i32, known_from: u64, until: u64) {
        let ns = self.in_interval(known_from, until);
        self.ended.add(ns);
        if self.apart && (self.ended_apart.len() < MAX_THREADS || self.ended_apart.contains_key(&tid)) {
            let sum = self.ended_apart.entry(tid).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// The part of a lifetime up to `until` that is in the interval, ns.
    fn in_interval(&self, known_from: u64, until: u64) -> u64 {
        until.saturating_sub(known_from.max(self.from))
    }

    /// Returns the lifetimes of ended tasks; the next interval begins at `now`.
    pub fn take(&mut self, now: u64) -> (Lifetimes, FxHashMap<i32, u64>) {
        self.from = now;
        (std::mem::take(&mut self.ended), std::mem::take(&mut self.ended_apart))
    }
}

/// Time of discarded periods in the interval, as far as it is known, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnseenTime {
    /// By the state in which the period began.
    pub by_state: [u64; STATES],
    /// Time of tasks that had left their CPU by a hidden switch.
    pub hidden: u64,
}

impl UnseenTime {
    /// What a task did since `since` ended, unseen, some time before `until`; the interval began at `from`.
    #[cold]
    pub fn add(&mut self, activity: Activity, since: u64, until: u64, from: u64) {
        let ns = until.saturating_sub(since.max(from));
        match activity {
            Activity::Away => self.hidden = self.hidden.saturating_add(ns),
            _ => activity.state().into_iter().for_each(|state| self.add_state(state, ns)),
        }
    }

    pub fn add_state(&mut self, state: SchedState, ns: u64) {
        let sum = &mut self.by_state[state.index()];
        *sum = sum.saturating_add(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_begin_and_end() {
        let mut lives = TaskLives::default();
        lives.keep_apart();
        lives.ended(7, 10, 25);
        lives.ended(7, 30, 31);
        lives.ended(8, 40, 30); // late
        assert_eq!(lives.take(100), (Lifetimes { tasks: 3, ns: 16 }, [(7, 16), (8, 0)].into_iter().collect()));
        lives.ended(9, 60, 130);
        assert_eq!(lives.take(200).0, Lifetimes { tasks: 1, ns: 30 });
    }
}
