//! Stretches on a CPU: how long a thread uses the CPU until it waits by itself, however often it is preempted meanwhile.

use rustc_hash::FxHashMap;

use crate::sched::{MAX_THREADS, SchedState};

/// The stretches that go on, by thread.
#[derive(Debug, Default)]
pub struct CpuStretches(FxHashMap<i32, CpuStretch>);

#[derive(Clone, Copy, Debug, Default)]
struct CpuStretch {
    /// The end of its last period.
    until: u64,
    /// Time on a CPU, ns.
    ran_ns: u64,
}

impl CpuStretches {
    /// A period of `tid` ended. Returns how long the thread has used the CPU by then, if it ran.
    ///
    /// A period of which the beginning is not the end of the one before begins a new stretch: what was in between is not
    /// known.
    pub fn ended(&mut self, tid: i32, state: SchedState, (since, until): (u64, u64), preempted: bool) -> Option<u64> {
        let before = self.0.get(&tid).filter(|before| before.until == since).map_or(0, |before| before.ran_ns);
        let ran_ns = match state {
            SchedState::RUNNING => before.saturating_add(until.saturating_sub(since)),
            SchedState::RUN_DELAY if preempted => before,
            _ => 0,
        };
        if ran_ns == 0 {
            self.0.remove(&tid);
        } else if self.0.len() < MAX_THREADS || self.0.contains_key(&tid) {
            self.0.insert(tid, CpuStretch { until, ran_ns });
        }
        (state == SchedState::RUNNING).then_some(ran_ns)
    }

    /// How long `tid`, which runs since `since`, has used the CPU at `now`.
    pub fn ongoing(&self, tid: i32, since: u64, now: u64) -> u64 {
        let before = self.0.get(&tid).filter(|before| before.until == since).map_or(0, |before| before.ran_ns);
        before.saturating_add(now.saturating_sub(since))
    }

    pub fn forget(&mut self, tid: i32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_lasts_until_the_thread_waits() {
        let mut stretches = CpuStretches::default();
        let mut ended = |state, span, preempted| stretches.ended(7, state, span, preempted);
        assert_eq!(ended(SchedState::RUNNING, (10, 15), false), Some(5));
        assert_eq!(ended(SchedState::RUN_DELAY, (15, 100), true), None);
        assert_eq!(ended(SchedState::RUNNING, (100, 107), false), Some(12), "the time without a CPU does not count");
        assert_eq!(ended(SchedState::SLEEP, (107, 120), false), None);
        assert_eq!(ended(SchedState::RUN_DELAY, (120, 121), false), None);
        assert_eq!(ended(SchedState::RUNNING, (121, 124), false), Some(3), "it has waited");
        assert_eq!(ended(SchedState::RUNNING, (130, 132), false), Some(2), "what it did in between is not known");
        assert_eq!(stretches.ongoing(7, 132, 140), 10);
        assert_eq!(stretches.ongoing(7, 135, 140), 5);
        stretches.forget(7);
        assert_eq!((stretches.ongoing(7, 132, 140), stretches.ongoing(8, 132, 140)), (8, 8));
    }
}
