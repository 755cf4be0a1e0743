//! A limit on the CPU time of a thread that serves clients: a share of the elapsed time, plus short bursts.

use std::time::Duration;

/// The thread may use 1/SHARE of the elapsed time as CPU time.
const SHARE: u32 = 20;
/// The CPU time that a thread may use in one burst, after a long pause.
const BURST: Duration = Duration::from_millis(250);

/// The debt of used CPU time, which elapsed time pays back.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuAllowance {
    /// Used CPU time that is not yet paid back.
    owed: Duration,
    /// The arguments of the last call: elapsed time, CPU time of the thread.
    passed: Duration,
    used: Duration,
}

impl CpuAllowance {
    /// How long the thread must pause. `passed`: the time on any steady clock. `used`: CPU time of the thread.
    pub fn pause(&mut self, passed: Duration, used: Duration) -> Duration {
        let paid = passed.saturating_sub(self.passed) / SHARE;
        self.owed = self.owed.saturating_add(used.saturating_sub(self.used)).saturating_sub(paid);
        (self.passed, self.used) = (passed, used);
        self.owed.saturating_sub(BURST).saturating_mul(SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn much_work_is_followed_by_a_pause() {
        let mut allowance = CpuAllowance::default();
        assert_eq!(allowance.pause(1000 * MS, 50 * MS), Duration::ZERO, "a twentieth");
        assert_eq!(allowance.pause(1100 * MS, 300 * MS), Duration::ZERO, "a burst");
        assert_eq!(allowance.pause(1100 * MS, 315 * MS), 200 * MS);
        assert_eq!(allowance.pause(1200 * MS, 315 * MS), 100 * MS);
        assert_eq!(allowance.pause(1300 * MS, 315 * MS), Duration::ZERO);
        assert_eq!(allowance.pause(1300 * MS, 316 * MS), 20 * MS, "the burst is used up");
        assert_eq!(allowance.pause(9000 * MS, 316 * MS), Duration::ZERO);
        assert_eq!(allowance.pause(9000 * MS, 566 * MS), Duration::ZERO, "and is there again");
    }

    /// A thread that works whenever it is allowed to uses its share.
    #[test]
    fn in_the_long_run_it_is_a_share() {
        let mut allowance = CpuAllowance::default();
        let (mut passed, mut used) = (Duration::ZERO, Duration::ZERO);
        while passed < 100_000 * MS {
            let pause = allowance.pause(passed, used);
            passed += pause.max(3 * MS);
            used += if pause.is_zero() { 3 * MS } else { Duration::ZERO };
        }
        assert!((5000 * MS..5300 * MS).contains(&used), "{used:?}");
    }
}
