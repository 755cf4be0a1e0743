//! Signs of life of a CPU besides its events: interrupts of its timer, and the growth of its idle time.

use std::fs;

use crate::host::Host;
use crate::sys::monotonic_ns;

/// Counters of one CPU at one moment. Only differences between two readings are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeSigns {
    /// Interrupts of the local timer. None: /proc/interrupts does not list them separately.
    pub timer_interrupts: Option<u64>,
    /// Idle time in ticks.
    pub idle: u64,
    /// When the files were read.
    pub at_ns: u64,
}

/// Reads the two files once for all CPUs, when they are first needed: many CPUs may be stuck at once.
#[derive(Debug, Default)]
pub struct LifeSignReader {
    read: Option<(String, String, u64)>,
}

impl LifeSignReader {
    /// The signs of a CPU. Reading the files needs no answer from the CPU.
    pub fn of(&mut self, host: &Host, cpu: u32) -> LifeSigns {
        let read = |name: &str| fs::read_to_string(host.proc.join(name)).unwrap_or_default();
        let (interrupts, stat, at) =
            self.read.get_or_insert_with(|| (read("interrupts"), read("stat"), monotonic_ns()));
        LifeSigns {
            timer_interrupts: timer_interrupts(interrupts, cpu),
            idle: idle(stat, cpu).unwrap_or(0),
            at_ns: *at,
        }
    }
}

impl LifeSigns {
    /// True if the CPU took a timer interrupt since `before`. `hides_idle`: the idle task is hidden from events, so
    /// growth of the idle time counts, too. Otherwise it does not count, since a CPU that is stuck on its way to sleep
    /// would look idle.
    pub fn show_life_since(&self, before: &LifeSigns, hides_idle: bool) -> bool {
        self.timer_interrupts != before.timer_interrupts || hides_idle && self.idle != before.idle
    }
}

/// The sum over the rows of local timers: `LOC:` on x86, `arch_timer` and similar elsewhere.
fn timer_interrupts(text: &str, cpu: u32) -> Option<u64> {
    let mut lines = text.lines();
    // The heading has a column per online CPU: `CPU0 CPU1`.
    let column = lines
        .next()?
        .split_ascii_whitespace()
        .position(|word| word.strip_prefix("CPU").and_then(|number| number.parse().ok()) == Some(cpu))?;
    let row = |line: &str| {
        let (label, counts) = line.split_once(':')?;
        let is_timer = label.trim() == "LOC" || line.split_ascii_whitespace().next_back()?.ends_with("timer");
        let count: u64 = counts.split_ascii_whitespace().nth(column)?.parse().ok()?;
        is_timer.then_some(count)
    };
    lines.filter_map(row).reduce(u64::wrapping_add)
}

/// `cpuN user nice system idle iowait`: the kernel includes an ongoing idle period.
fn idle(text: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
    let mut ticks = line.split_ascii_whitespace().skip(3).map(|word| word.parse::<u64>().unwrap_or(0));
    Some(ticks.next()?.wrapping_add(ticks.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "           CPU0       CPU2
  0:         20          0   IO-APIC   2-edge      timer
  4:          9        100   IO-APIC   4-edge      ttyS0
LOC:     100000     200000   Local timer interrupts
NMI:          7          8   Non-maskable interrupts
";
    const ARM: &str = "           CPU0       CPU1
 10:       3000       4000     GICv3  27 Level     arch_timer
 23:         11         12     GICv3  23 Level     arm-pmu
IPI0:         5          6       Rescheduling interrupts
";

    #[test]
    fn counts_timers_alone() {
        assert_eq!([0, 1, 2].map(|cpu| timer_interrupts(X86, cpu)), [Some(100_020), None, Some(200_000)]);
        assert_eq!([0, 1].map(|cpu| timer_interrupts(ARM, cpu)), [Some(3000), Some(4000)]);
        for broken in ["", "CPU0", "CPU0\nLOC:", "CPU0\nLOC: x", "CPU0\n: :"] {
            assert_eq!(timer_interrupts(broken, 0), None, "{broken:?}");
        }
    }

    #[test]
    fn idleness_counts_where_idle_is_hidden() {
        let stat = "cpu  9 9 9 9\ncpu0 1 2 3 40 5 6\ncpu1 1 2 3 4\ncpu10 1 1 1 1\n";
        assert_eq!([0, 1, 10, 2].map(|cpu| idle(stat, cpu)), [Some(45), Some(4), Some(1), None]);
        let at = |timer_interrupts, idle| LifeSigns { timer_interrupts, idle, at_ns: 0 };
        let before = at(Some(5), 7);
        let cases = [(at(Some(5), 7), false, false), (at(Some(6), 7), true, true), (at(Some(5), 8), false, true)];
        for (now, seen, hidden) in cases {
            assert_eq!(
                (now.show_life_since(&before, false), now.show_life_since(&before, true)),
                (seen, hidden),
                "{now:?}"
            );
        }
    }
}
