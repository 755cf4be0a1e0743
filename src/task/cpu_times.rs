//! Times of each CPU from /proc/stat: idle, in interrupts, stolen.

use std::fs;

use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::sys;

/// A tick of /proc/stat: USER_HZ is 100 on x86_64 and aarch64, whatever the HZ of the kernel
/// (include/asm-generic/param.h).
const TICK_NS: u64 = 10_000_000;

/// Times since the CPU came online, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Idle, including iowait.
    pub idle_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    pub softirq_ns: u64,
    /// Time in which the hypervisor ran other guests.
    pub steal_ns: u64,
    /// Sum of all times except steal: it grows while the CPU handles interrupts, or is idle.
    pub own_ns: u64,
}

/// The times of all CPUs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    at_ns: u64,
    cpus: FxHashMap<u32, CpuTimes>,
}

/// Shares of the time of a CPU, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuShares {
    pub idle: f64,
    pub irq: f64,
    pub softirq: f64,
}

impl Reading {
    /// Reads /proc/stat.
    pub fn now(host: &Host) -> Reading {
        let text = fs::read_to_string(host.proc.join("stat")).unwrap_or_default();
        Reading::of(sys::monotonic_ns(), &text)
    }

    /// Parses the content of /proc/stat.
    pub fn of(at_ns: u64, text: &str) -> Reading {
        Reading { at_ns, cpus: parse(text) }
    }

    /// The CPUs that are online, sorted.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.cpus.keys().copied().collect();
        cpus.sort_unstable();
        cpus
    }

    /// True when any CPU has steal time.
    pub fn any_stolen(&self) -> bool {
        self.cpus.values().any(|times| times.steal_ns > 0)
    }

    /// When the times were read, CLOCK_MONOTONIC.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The times of a CPU. None when it is offline.
    pub fn cpu(&self, cpu: u32) -> Option<&CpuTimes> {
        self.cpus.get(&cpu)
    }

    /// How `cpu` spent the time from `before` to this reading. None when it was offline, or the span is below a tick.
    pub fn since(&self, before: &Reading, cpu: u32) -> Option<CpuShares> {
        let (old, new) = (before.cpus.get(&cpu)?, self.cpus.get(&cpu)?);
        let span = self.at_ns.checked_sub(before.at_ns).filter(|&span| span >= TICK_NS)? as f64;
        // Some of these counters step back a little at times.
        let part = |old: u64, new: u64| (new.saturating_sub(old) as f64 / span).min(1.0);
        Some(CpuShares {
            idle: part(old.idle_ns, new.idle_ns),
            irq: part(old.irq_ns, new.irq_ns),
            softirq: part(old.softirq_ns, new.softirq_ns),
        })
    }
}

/// Lines `cpuN user nice system idle iowait irq softirq ...`, in ticks.
fn parse(text: &str) -> FxHashMap<u32, CpuTimes> {
    let line = |line: &str| {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let cpu: u32 = cpu.parse().ok()?; // the line of the sum has no number
        let words = rest.split_ascii_whitespace();
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let ns = |index: usize| ticks.get(index).copied().unwrap_or(0).saturating_mul(TICK_NS);
        ticks.get(3)?;
        let sum = |from: usize, to: usize| (from..=to).fold(0_u64, |sum, index| sum.saturating_add(ns(index)));
        let (irq_ns, softirq_ns) = (ns(5), ns(6));
        Some((cpu, CpuTimes { idle_ns: sum(3, 4), irq_ns, softirq_ns, steal_ns: ns(7), own_ns: sum(0, 6) }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_lines_of_cpus() {
        let text = "cpu  9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu12 1 2 3 4\ncpux 1 2 3 4\ncpu3 1 2\nintr 5\n";
        let got = parse(text);
        let times = |idle, irq, softirq, steal, own| {
            let ticks = [idle, irq, softirq, steal, own];
            let [idle_ns, irq_ns, softirq_ns, steal_ns, own_ns] = ticks.map(|ticks: u64| ticks * TICK_NS);
            CpuTimes { idle_ns, irq_ns, softirq_ns, steal_ns, own_ns }
        };
        assert_eq!(got.len(), 2);
        assert_eq!((got[&0], got[&12]), (times(45, 6, 7, 8, 64), times(4, 0, 0, 0, 10)));
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let times = |idle_ns| CpuTimes { idle_ns, ..CpuTimes::default() };
        let reading = |at_ns, idle_ns| Reading { at_ns, cpus: [(0, times(idle_ns))].into_iter().collect() };
        let idle = |before: &Reading, now: &Reading| now.since(before, 0).map(|parts| parts.idle);
        let start = reading(0, 1_000);
        assert_eq!(idle(&start, &reading(100_000_000, 25_001_000)), Some(0.25));
        assert_eq!(idle(&start, &reading(100_000_000, 900_000_000)), Some(1.0));
        assert_eq!(idle(&start, &reading(100_000_000, 0)), Some(0.0));
        assert_eq!(idle(&start, &reading(1, 5_000)), None);
        assert_eq!(start.since(&start, 7), None);
    }
}
