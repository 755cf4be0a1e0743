//! The run queue of a CPU: which tasks had the CPU lately, and how many wait for it.

use crate::sched::history::CpuHistory;

/// A queue.
#[derive(Debug)]
pub struct RunQueue {
    pub history: CpuHistory,
    /// Tasks that wait for it.
    pub waiting: u32,
    pub most_waiting: u32,
    /// The number of waiting tasks integrated over time, ns, up to `summed_until`.
    waited_ns: u64,
    summed_until: u64,
}

impl RunQueue {
    pub fn new(watched_from: u64, history_most: usize) -> RunQueue {
        RunQueue {
            history: CpuHistory::new(history_most),
            waiting: 0,
            most_waiting: 0,
            waited_ns: 0,
            summed_until: watched_from,
        }
    }

    #[inline]
    fn sum_up(&mut self, at: u64) {
        let span = at.saturating_sub(self.summed_until);
        self.waited_ns = self.waited_ns.saturating_add(span.saturating_mul(self.waiting.into()));
        self.summed_until = self.summed_until.max(at);
    }

    #[inline]
    pub fn enter(&mut self, at: u64) {
        self.sum_up(at);
        self.waiting += 1;
        self.most_waiting = self.most_waiting.max(self.waiting);
    }

    /// From `at` on this many tasks wait for the CPU.
    pub fn set_waiting(&mut self, at: u64, waiting: u32) {
        self.sum_up(at);
        self.waiting = waiting;
        self.most_waiting = self.most_waiting.max(waiting);
    }

    #[inline]
    pub fn leave(&mut self, at: u64) {
        self.sum_up(at);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// The number of waiting tasks integrated over time since the last call, and its maximum; the next span begins at
    /// `now`.
    pub fn take(&mut self, now: u64) -> (u64, u32) {
        self.sum_up(now);
        let most = std::mem::replace(&mut self.most_waiting, self.waiting);
        (std::mem::take(&mut self.waited_ns), most)
    }
}
