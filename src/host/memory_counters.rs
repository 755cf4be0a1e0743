//! The kernel's counters of memory that is short: pressure, and what was scanned and freed.

use std::fs;
use std::path::Path;

use crate::host::Host;

/// For how long tasks have stalled for memory, since the machine was started or the cgroup was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPressure {
    /// At least one task.
    pub some_ns: u64,
    /// All tasks that had something to do.
    pub full_ns: u64,
}

impl MemoryPressure {
    pub fn of_machine(host: &Host) -> Option<MemoryPressure> {
        MemoryPressure::read(&host.proc.join("pressure/memory"))
    }

    /// None: the kernel measures no pressure, or not there.
    pub fn read(path: &Path) -> Option<MemoryPressure> {
        MemoryPressure::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<MemoryPressure> {
        let total_ns = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
            let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
            total.parse::<u64>().ok()?.checked_mul(1000)
        };
        Some(MemoryPressure { some_ns: total_ns("some ")?, full_ns: total_ns("full ").unwrap_or(0) })
    }

    /// The time since an earlier reading.
    #[must_use]
    pub fn since(self, before: MemoryPressure) -> MemoryPressure {
        MemoryPressure {
            some_ns: self.some_ns.saturating_sub(before.some_ns),
            full_ns: self.full_ns.saturating_sub(before.full_ns),
        }
    }
}

/// Pages that one kind of reclaim has scanned and freed since the start of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimedPages {
    pub scanned: u64,
    pub reclaimed: u64,
}

/// Counters of /proc/vmstat. What memory cgroups do on their own is not in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounters {
    pub direct: ReclaimedPages,
    pub kswapd: ReclaimedPages,
    pub khugepaged: ReclaimedPages,
    /// Pages that were reclaimed a short time ago, and are needed again.
    pub refaults: u64,
    /// Pages that kcompactd has scanned for pages to move.
    pub compacted: u64,
    /// Huge pages that khugepaged has made.
    pub collapsed: u64,
    pub swapped_in: u64,
}

impl ReclaimCounters {
    pub fn read(host: &Host) -> Option<ReclaimCounters> {
        Some(ReclaimCounters::parse(&fs::read_to_string(host.proc.join("vmstat")).ok()?))
    }

    fn parse(text: &str) -> ReclaimCounters {
        let mut counters = ReclaimCounters::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let field = match key {
                "pgscan_direct" => &mut counters.direct.scanned,
                "pgsteal_direct" => &mut counters.direct.reclaimed,
                "pgscan_kswapd" => &mut counters.kswapd.scanned,
                "pgsteal_kswapd" => &mut counters.kswapd.reclaimed,
                "pgscan_khugepaged" => &mut counters.khugepaged.scanned,
                "pgsteal_khugepaged" => &mut counters.khugepaged.reclaimed,
                // Up to 5.8 one counter, then one each for anonymous memory and files.
                "workingset_refault" | "workingset_refault_anon" | "workingset_refault_file" => &mut counters.refaults,
                "compact_daemon_migrate_scanned" => &mut counters.compacted,
                "thp_collapse_alloc" => &mut counters.collapsed,
                "pswpin" => &mut counters.swapped_in,
                _ => continue,
            };
            *field = field.saturating_add(value.trim().parse().unwrap_or(0));
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_total() {
        let text = "some avg10=0.00 avg60=0.12 avg300=0.00 total=5\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=3\n";
        let want = MemoryPressure { some_ns: 5000, full_ns: 3000 };
        assert_eq!(MemoryPressure::parse(text), Some(want));
        assert_eq!(
            MemoryPressure::parse(text.lines().next().unwrap()).map(|it| (it.some_ns, it.full_ns)),
            Some((5000, 0))
        );
        for text in ["", "some avg10=0.00", "some total=x", "some total=18446744073709551615", "full total=1"] {
            assert_eq!(MemoryPressure::parse(text), None, "{text:?}");
        }
        assert_eq!(MemoryPressure::default().since(want), MemoryPressure::default(), "never less than nothing");
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "pgscan_direct 7\npgscan_direct_throttle 99\npgsteal_kswapd 5\nworkingset_refault_anon 2\n\
                    workingset_refault_file 3\nbroken\npswpin x\n";
        let counters = ReclaimCounters::parse(text);
        assert_eq!((counters.direct.scanned, counters.kswapd.reclaimed, counters.refaults), (7, 5, 5));
        assert_eq!(counters.swapped_in, 0);
    }
}
