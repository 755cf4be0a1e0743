//! Limits how often costly reports are made, since the rings are not read meanwhile.

use std::time::Duration;

use crate::digits::format_ns;
use crate::profiler::Timestamp;

/// The kinds of paced reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacedReport {
    Snapshots,
    /// The tables of a quiet interval.
    QuietTables,
}

impl PacedReport {
    /// Such reports may take 1/parts of a CPU on average.
    fn parts(self) -> u64 {
        match self {
            PacedReport::Snapshots => 50,
            PacedReport::QuietTables => 20,
        }
    }

    fn note(self, took_ns: u64, pause_ns: u64, interval: Duration) -> String {
        let (took, pause) = (format_ns(took_ns), format_ns(pause_ns));
        match self {
            PacedReport::Snapshots => format!(
                "what there is takes {took} of CPU time to sum up: it is shown every {pause}, at the end, and on SIGUSR1"
            ),
            PacedReport::QuietTables => {
                let interval = format_ns(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
                format!(
                    "the tables take {took} of CPU time to sum up: heat maps and metrics get them every {pause}, not every \
                     {interval}"
                )
            }
        }
    }
}

/// When the next report is due.
#[derive(Debug, Default)]
pub struct ReportPace {
    due_ns: Timestamp,
    /// The user has asked for the next report.
    asked: bool,
    told: bool,
}

impl ReportPace {
    /// Makes the next report due, regardless of its cost.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.asked || now >= self.due_ns
    }

    /// Notes that a report took this much CPU time. Returns a note for the user, once, if that is too much for every
    /// interval.
    pub fn made(
        &mut self,
        report: PacedReport,
        now: Timestamp,
        took_ns: u64,
        interval: Option<Duration>,
    ) -> Option<String> {
        self.asked = false;
        let pause_ns = took_ns.saturating_mul(report.parts());
        self.due_ns = now.saturating_add(pause_ns);
        let interval = interval.filter(|interval| u128::from(pause_ns) > interval.as_nanos())?;
        let is_told = std::mem::replace(&mut self.told, true);
        (!is_told).then(|| report.note(took_ns, pause_ns, interval))
    }
}

#[cfg(test)]
mod tests {
    use super::PacedReport::{QuietTables, Snapshots};
    use super::*;

    #[test]
    fn what_is_dear_is_made_seldom() {
        let mut pace = ReportPace::default();
        let second = Some(Duration::from_secs(1));
        assert!(pace.is_due(0));
        assert_eq!(pace.made(Snapshots, 1_000, 20_000_000, second), None, "a fiftieth of it");
        assert!(!pace.is_due(1_000_000_999) && pace.is_due(1_000_001_000));
        let told = pace.made(Snapshots, 0, 200_000_000, second);
        assert!(told.is_some_and(|line| line.contains(" 200.0ms ") && line.contains("every 10.00s")));
        assert_eq!(pace.made(Snapshots, 0, 300_000_000, second), None, "once");
        assert!(!pace.is_due(14_999_999_999));
        pace.ask();
        assert!(pace.is_due(1));
        pace.made(Snapshots, 1, 300_000_000, second);
        assert!(!pace.is_due(2));
    }

    #[test]
    fn quiet_tables_may_cost_more() {
        let (mut pace, tick) = (ReportPace::default(), Some(Duration::from_millis(50)));
        assert_eq!(pace.made(QuietTables, 0, 2_500_000, tick), None, "a twentieth");
        assert!(pace.is_due(50_000_000));
        let told = pace.made(QuietTables, 0, 10_000_000, tick);
        assert!(
            told.is_some_and(|line| line.contains(" 10.0ms ") && line.ends_with("every 200.0ms, not every 50.0ms"))
        );
        assert!(!pace.is_due(199_999_999) && pace.is_due(200_000_000));
    }
}
