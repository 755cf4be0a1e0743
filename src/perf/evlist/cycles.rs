//! The frequency of the CPUs, in cycles per second.

use std::fs;
use std::os::fd::AsFd;

use perf_event_open_sys::bindings as b;

use crate::host::Host;
use crate::perf::attr::{Attr, Counter, Exclude};
use crate::perf::evlist::Evlist;
use crate::sys;
use crate::sys::affinity::current_cpu;
use crate::sys::perf::Watch;

/// Number of words in a reading of the counter: count, time enabled, time running, lost records.
const VALUES: usize = 4;

impl Evlist {
    /// Cycles per second of a busy CPU: the highest frequency measured in a few short spans, about 1 ms in all, or the
    /// nominal frequency if that is higher, since a CPU that was idle may still be slow. None: cycles cannot be
    /// counted.
    ///
    /// Counts on a whole CPU if that is allowed, as [`Evlist::probe`] does.
    pub fn cycles_per_s(&mut self, host: &Host) -> Option<u64> {
        const LOOKS: usize = 3; // measurements: in one the thread may migrate, or the virtual machine pause
        const LOOK_NS: u64 = 400_000;
        let attr = Attr::counter(Counter::Hardware(b::PERF_COUNT_HW_CPU_CYCLES.into()), 0);
        let cpu = current_cpu()?;
        let task = Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu };
        // Without the right to count kernel cycles, only user mode is counted.
        let user = attr.clone().exclude(Exclude { kernel: true, ..Exclude::default() });
        let mut tries = [(attr.clone(), Watch::Cpu(cpu)), (attr, task), (user, task)].into_iter();
        let fd = tries.find_map(|(mut attr, watch)| self.missing.open(&mut attr, watch).ok())?;
        sys::perf::enable(fd.as_fd()).ok()?;
        let read = || {
            let mut values = [0; VALUES];
            let got = sys::perf::read(fd.as_fd(), &mut values).ok()?;
            (got >= 3).then_some((values[0], values[2]))
        };
        let look = |_| {
            let (cycles, ns) = read()?;
            let until = sys::monotonic_ns().saturating_add(LOOK_NS);
            while sys::monotonic_ns() < until {
                (0..1000).for_each(|_| std::hint::spin_loop()); // reading the clock may be a system call
            }
            let (after, after_ns) = read()?;
            let per_s = per_s(after.saturating_sub(cycles), after_ns.saturating_sub(ns));
            per_s.filter(|_| current_cpu() == Some(cpu)) // else the counter may have counted an idle CPU
        };
        let seen = (0..LOOKS).filter_map(look).max()?;
        Some(seen.max(nominal(host, cpu).unwrap_or(0)))
    }
}

fn per_s(cycles: u64, ns: u64) -> Option<u64> {
    const LEAST_NS: u64 = 50_000;
    const SLOWEST: u64 = 100_000_000; // Hz: no CPU with a PMU is slower
    let per_s = u128::from(cycles) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(per_s).ok().filter(|per_s| ns >= LEAST_NS && *per_s >= SLOWEST)
}

/// The nominal (sustained) frequency of the CPU in Hz. Few cpufreq drivers report it.
fn nominal(host: &Host, cpu: u32) -> Option<u64> {
    let dir = host.cpu.join(format!("cpu{cpu}"));
    let hz =
        |name: &str, unit: u64| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok()?.checked_mul(unit);
    hz("cpufreq/base_frequency", 1000).or_else(|| hz("acpi_cppc/nominal_freq", 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_time() {
        assert_eq!(per_s(1_000_000, 400_000), Some(2_500_000_000));
        assert_eq!(per_s(1_000, 1_000), None);
        assert_eq!(per_s(0, 400_000), None);
        assert_eq!(per_s(39_000, 400_000), None, "it was idle");
        assert_eq!(per_s(u64::MAX, 50_000), None);
    }

    #[test]
    fn a_cpu_says_what_it_is_made_for() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { cpu: dir.path().into(), ..Host::default() };
        assert_eq!(nominal(&host, 3), None);
        let files = dir.path().join("cpu3");
        fs::create_dir_all(files.join("cpufreq")).unwrap();
        fs::create_dir_all(files.join("acpi_cppc")).unwrap();
        for (name, text, want) in [
            ("cpufreq/cpuinfo_max_freq", "4700000\n", None),
            ("acpi_cppc/nominal_freq", "2800\n", Some(2_800_000_000)),
            ("cpufreq/base_frequency", "2400000\n", Some(2_400_000_000)),
            ("cpufreq/base_frequency", "99999999999999999999\n", Some(2_800_000_000)),
            ("acpi_cppc/nominal_freq", "18446744073709551615\n", None),
        ] {
            fs::write(files.join(name), text).unwrap();
            assert_eq!(nominal(&host, 3), want, "{name} {text}");
        }
    }

    #[test]
    fn a_cpu_that_counts_cycles_has_some_hundred_million() {
        match Evlist::new().cycles_per_s(&Host::default()) {
            Some(per_s) => assert!((100_000_000..20_000_000_000).contains(&per_s), "{per_s}"),
            None => skip!("no cycles are counted here"),
        }
    }
}
