//! CPUs that hide their idle tasks from events: decided between rounds, and told in one line.

use crate::host::{Host, cpu_ranges};
use crate::perf::Evlist;
use crate::profiler::Timestamp;
use crate::task::cpu_times::Reading;

/// Decides which CPUs hide their idle tasks.
#[derive(Debug, Default)]
pub struct IdleJudge {
    /// CPU times at the last check of CPUs that are never idle.
    cpu_times: Option<Reading>,
    hidden: HiddenCpus,
}

/// The CPUs whose idle tasks are hidden. Most are found within some rounds, as each becomes idle now and then, so the
/// line about them waits until their tests are over, or for a second. One that is found later is told at the end of the
/// run, in a line about all.
#[derive(Debug, Default)]
struct HiddenCpus {
    /// Sorted.
    cpus: Vec<u32>,
    /// When the first one was found.
    found_ns: Option<Timestamp>,
    /// Number of CPUs in the last line.
    told: usize,
}

impl HiddenCpus {
    fn add(&mut self, found: Vec<u32>, now: Timestamp) {
        if !found.is_empty() {
            self.found_ns.get_or_insert(now);
            self.cpus.extend(found);
            self.cpus.sort_unstable();
            self.cpus.dedup();
        }
    }

    /// The first line. `tests_any`: more CPUs may be found soon.
    fn first_line(&mut self, tests_any: bool, now: Timestamp) -> Option<String> {
        const SETTLE_NS: u64 = 1_000_000_000;
        let is_settled = !tests_any || now.saturating_sub(self.found_ns?) >= SETTLE_NS;
        if self.told == 0 && is_settled { self.line() } else { None }
    }

    /// A line about all of them, if some are untold.
    fn line(&mut self) -> Option<String> {
        if self.told == self.cpus.len() {
            return None;
        }
        self.told = self.cpus.len();
        let who = match &self.cpus[..] {
            [] => return None,
            [cpu] => {
                format!("CPU {cpu} hides its idle task from events, and the wake-ups in its interrupts: records of its")
            }
            cpus => format!(
                "CPUs {} hide their idle tasks from events, and the wake-ups in their interrupts: records of their",
                cpu_ranges(cpus)
            ),
        };
        Some(format!("{who} switches stand in, at about 1 µs each"))
    }
}

impl IdleJudge {
    /// Returns the line about CPUs whose idle tasks are hidden, when it is time for it. `missed_switches`: the CPU of
    /// each switch that went unseen.
    pub fn judge(&mut self, evlist: &mut Evlist, missed_switches: Vec<u32>, now: Timestamp) -> Option<String> {
        for cpu in missed_switches {
            evlist.missed_switch(cpu);
        }
        self.hidden.add(evlist.idle.judge(), now);
        self.hidden.first_line(evlist.idle.untested().next().is_some(), now)
    }

    /// The line at the end of the run, if there are CPUs that no line has named.
    pub fn last_line(&mut self) -> Option<String> {
        self.hidden.line()
    }

    /// CPUs that were never idle during the last test for a hidden idle task, and have been idle since, are tested again.
    pub fn retest(&mut self, evlist: &mut Evlist, host: &Host) {
        let busy: Vec<u32> = evlist.idle.never_idle().collect();
        if busy.is_empty() {
            self.cpu_times = None;
            return;
        }
        let now = Reading::now(host);
        let idle_ns = |times: &Reading, cpu| times.cpu(cpu).map(|times| times.idle_ns);
        if let Some(before) = &self.cpu_times {
            for cpu in busy {
                if idle_ns(&now, cpu) > idle_ns(before, cpu) {
                    evlist.idle.retest(cpu);
                }
            }
        }
        self.cpu_times = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn cpus_that_are_found_one_by_one_are_one_line() {
        let mut hidden = HiddenCpus::default();
        let mut lines = Vec::new();
        for (index, cpu) in [3, 11, 1, 2].into_iter().enumerate() {
            let now = SECOND + index as u64 * SECOND / 10;
            hidden.add(vec![cpu], now);
            lines.extend(hidden.first_line(true, now));
        }
        assert_eq!((hidden.first_line(true, 2 * SECOND - 1), lines), (None, Vec::new()));
        let line = hidden.first_line(true, 2 * SECOND).unwrap();
        assert!(line.starts_with("CPUs 1-3,11 hide their idle tasks from events"), "{line}");
        assert_eq!(hidden.line(), None, "all are told");
        hidden.add(vec![0, 3], 9 * SECOND);
        assert_eq!(hidden.first_line(false, 9 * SECOND), None, "once during the run");
        assert!(hidden.line().unwrap().starts_with("CPUs 0-3,11 hide"), "and once more at its end");
        assert_eq!(hidden.line(), None);
    }

    #[test]
    fn when_the_tests_are_over_the_line_comes_at_once() {
        let mut hidden = HiddenCpus::default();
        assert_eq!((hidden.first_line(false, SECOND), hidden.line()), (None, None), "no CPU hides its idle task");
        hidden.add(vec![1], SECOND);
        assert!(hidden.first_line(false, SECOND).unwrap().starts_with("CPU 1 hides its idle task"));
        let mut short_run = HiddenCpus::default();
        short_run.add(vec![1], SECOND);
        assert!(short_run.line().is_some(), "also of a run that ends before");
    }
}
