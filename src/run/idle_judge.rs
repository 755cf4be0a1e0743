//! CPUs that hide their idle tasks from events: decided between rounds, and reported once.

use crate::host::{Host, cpu_ranges};
use crate::perf::Evlist;
use crate::task::cpu_times::Reading;

/// Decides which CPUs hide their idle tasks.
#[derive(Debug, Default)]
pub struct IdleJudge {
    /// CPU times at the last check of CPUs that are never idle.
    cpu_times: Option<Reading>,
}

impl IdleJudge {
    /// Returns a line about the CPUs whose idle tasks were just found to be hidden. `missed_switches`: the CPU of each
    /// switch that went unseen.
    pub fn judge(&self, evlist: &mut Evlist, missed_switches: Vec<u32>) -> Option<String> {
        for cpu in missed_switches {
            evlist.missed_switch(cpu);
        }
        let mut hidden = evlist.idle.judge();
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
