//! CPUs that hide their idle tasks from events: decided between rounds, and said in one line.

use crate::host::{Host, cpu_ranges};
use crate::perf::Evlist;
use crate::sys;
use crate::task::cpu_times::Reading;

/// CPUs are found one after the other, as they fall idle: they are told of when there was no other one for so long.
const SETTLED_NS: u64 = 1_000_000_000;

/// Decides which CPUs hide their idle tasks.
#[derive(Debug, Default)]
pub struct IdleJudge {
    /// CPU times at the last look at CPUs that are never idle.
    cpu_times: Option<Reading>,
    /// CPUs that hide their idle tasks, and were not told of yet.
    untold: Vec<u32>,
    /// When the last one of them was found.
    found_ns: u64,
}

impl IdleJudge {
    /// Notes the CPUs whose idle tasks were just found to be hidden. `missed_switches`: a CPU for each switch that went unseen.
    pub fn judge(&mut self, evlist: &mut Evlist, missed_switches: Vec<u32>) {
        for cpu in missed_switches {
            evlist.missed_switch(cpu);
        }
        let hidden = evlist.idle.judge();
        if !hidden.is_empty() {
            self.untold.extend(hidden);
            self.found_ns = sys::monotonic_ns();
        }
    }

    /// Returns a line about the CPUs that were found since the last one, if all seem to be known. `at_once`: in any case.
    pub fn take_line(&mut self, at_once: bool) -> Option<String> {
        let is_due = || at_once || sys::monotonic_ns().saturating_sub(self.found_ns) >= SETTLED_NS;
        if self.untold.is_empty() || !is_due() {
            return None;
        }
        let mut hidden = std::mem::take(&mut self.untold);
        hidden.sort_unstable();
        let who = match &hidden[..] {
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

    #[test]
    fn all_cpus_are_told_of_in_one_line() {
        let mut judge = IdleJudge { untold: vec![3, 1], found_ns: sys::monotonic_ns(), ..IdleJudge::default() };
        assert_eq!(judge.take_line(false), None, "others may follow");
        judge.untold.push(2);
        let line = judge.take_line(true).unwrap();
        assert!(line.starts_with("CPUs 1-3 hide their idle tasks from events, "), "{line}");
        assert_eq!(judge.take_line(true), None, "once");
        judge.untold.push(7);
        judge.found_ns = sys::monotonic_ns().saturating_sub(SETTLED_NS);
        assert!(judge.take_line(false).is_some_and(|line| line.starts_with("CPU 7 hides its idle task")));
    }
}
