//! Limits how often snapshots are made: meanwhile nobody reads the rings.

use std::time::Duration;

use crate::digits::format_ns;
use crate::profiler::Timestamp;

/// Of a CPU, over time.
const MOST_SHARE: u64 = 50; // a fiftieth

/// When the next snapshot is due.
#[derive(Debug, Default)]
pub struct SnapshotPace {
    due_ns: Timestamp,
    /// A snapshot was asked for.
    asked: bool,
    told: bool,
}

impl SnapshotPace {
    /// Makes the next snapshot due, whatever it costs.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.asked || now >= self.due_ns
    }

    /// A snapshot was made and took so much CPU time. Returns a note, once, if that is too much for each interval.
    pub fn made(&mut self, now: Timestamp, took_ns: u64, interval: Option<Duration>) -> Option<String> {
        self.asked = false;
        let pause_ns = took_ns.saturating_mul(MOST_SHARE);
        self.due_ns = now.saturating_add(pause_ns);
        let is_seldom = interval.is_some_and(|interval| u128::from(pause_ns) > interval.as_nanos());
        if !is_seldom || std::mem::replace(&mut self.told, true) {
            return None;
        }
        Some(format!(
            "what there is takes {} of CPU time to sum up: it is shown every {}, at the end, and on SIGUSR1",
            format_ns(took_ns),
            format_ns(pause_ns)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_is_made_seldom() {
        let mut pace = SnapshotPace::default();
        let second = Some(Duration::from_secs(1));
        assert!(pace.is_due(0));
        assert_eq!(pace.made(1_000, 20_000_000, second), None, "a fiftieth of it");
        assert!(!pace.is_due(1_000_000_999) && pace.is_due(1_000_001_000));
        let told = pace.made(0, 200_000_000, second);
        assert!(told.is_some_and(|line| line.contains(" 200.0ms ") && line.contains("every 10.00s")));
        assert_eq!(pace.made(0, 300_000_000, second), None, "once");
        assert!(!pace.is_due(14_999_999_999));
        pace.ask();
        assert!(pace.is_due(1));
        pace.made(1, 300_000_000, second);
        assert!(!pace.is_due(2));
    }
}
