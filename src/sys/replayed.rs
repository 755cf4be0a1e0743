//! The machine of a replay: its clock has the times of a recording, no operation takes time, and there are no tasks to
//! look up and no events to open. So a replay prints the same on every machine, under any load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// CLOCK_MONOTONIC of the replay in ns. 0: there is no replay.
static CLOCK_NS: AtomicU64 = AtomicU64::new(0);
/// All threads share one clock, so replays take turns.
static TURN: Mutex<()> = Mutex::new(());
/// CLOCK_REALTIME minus CLOCK_MONOTONIC: midnight of 2026-01-01, UTC, in ns since the epoch.
const WALL_OFFSET_NS: u64 = 1_767_225_600_000_000_000;
/// The tid of every thread of this process in a replay: no task has it.
pub const THREAD_ID: i32 = i32::MAX;

/// The clock of a replay, which stands still until it is set. Dropping it restores the real clock.
#[derive(Debug)]
pub struct ReplayedClock(#[allow(dead_code)] MutexGuard<'static, ()>);

impl ReplayedClock {
    /// Starts the clock. Waits for other replays of this process.
    pub fn start(now_ns: u64) -> ReplayedClock {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = ReplayedClock(turn);
        clock.set(now_ns);
        clock
    }

    pub fn set(&self, now_ns: u64) {
        CLOCK_NS.store(now_ns.max(1), Ordering::Release);
    }
}

impl Drop for ReplayedClock {
    fn drop(&mut self) {
        CLOCK_NS.store(0, Ordering::Release);
    }
}

/// CLOCK_MONOTONIC in ns. None: this is no replay.
#[inline]
pub fn monotonic_ns() -> Option<u64> {
    Some(CLOCK_NS.load(Ordering::Acquire)).filter(|now_ns| *now_ns != 0)
}

pub fn realtime_ns() -> Option<u64> {
    monotonic_ns().map(|now_ns| now_ns + WALL_OFFSET_NS)
}

/// Whether this is a replay.
pub fn is_on() -> bool {
    monotonic_ns().is_some()
}
