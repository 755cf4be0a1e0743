//! Default sizes of the rings of a run.

use crate::perf::classes::RingLoad;
use crate::sys;

/// Bytes of a CPU's ring without -m: 1 M switches/s fill half of it in some 37 ms, the longest time for which a busy
/// machine keeps perf-prof off the CPU.
const DEFAULT_BYTES: usize = 8 << 20;
/// Bytes of a CPU's rings if there are several: twice as much, as the most frequent event must not have much less room
/// than with a single ring.
const DEFAULT_BYTES_SEVERAL: usize = 2 * DEFAULT_BYTES;
/// Bytes of a ring for rare events, besides other rings: 100 k signals/s, sent and delivered, fill half of it in the
/// same time.
const RARE_BYTES: usize = 2 << 20;
/// Least bytes of a ring for steady events, which holds the samples of a second. The kernel allocates all pages of a ring at
/// once, some 0.2 ms a MiB: larger rings cost more than the samples.
const STEADY_BYTES: usize = 1 << 20;
/// Least and greatest size of a ring for side records, which is otherwise an eighth of a ring of events. The mappings
/// of 2,000 execs a second fill half of the largest one in some 60 ms.
const SIDE_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// Limit of the bytes of all rings together.
pub const MAX_BYTES: usize = 512 << 20;
/// The same without -m, if that is less than the given share of the machine's memory.
const MAX_DEFAULT_BYTES: usize = 128 << 20;
const MEMORY_SHARE: u64 = 100;

/// Data pages of each ring of events of a CPU, by what it has to hold, on `cpus` CPUs, without -m, on a machine with
/// `memory_bytes`.
pub fn default_ring_pages(cpus: usize, demands: &[RingLoad], memory_bytes: u64) -> Vec<usize> {
    let number = |demand| demands.iter().filter(|other| **other == demand).count();
    // If there are only rare events, their rings may take all the room.
    let beside = number(RingLoad::Any) > 0;
    let full = number(if beside { RingLoad::Any } else { RingLoad::Rare });
    let share = if full > 1 { floor_power_of_two(DEFAULT_BYTES_SEVERAL / full) } else { DEFAULT_BYTES };
    let bytes = |demand: &RingLoad| match demand {
        RingLoad::Steady(bytes_per_s) => {
            (*bytes_per_s as usize).next_power_of_two().clamp(STEADY_BYTES.min(share), share)
        }
        RingLoad::Rare if beside => RARE_BYTES.min(share),
        RingLoad::Rare | RingLoad::Any => share,
    };
    let mut sizes: Vec<usize> = demands.iter().map(bytes).collect();
    let limit = usize::try_from(memory_bytes / MEMORY_SHARE).unwrap_or(usize::MAX).min(MAX_DEFAULT_BYTES);
    // The largest give first: a ring that is small already has what it needs.
    while sizes.iter().sum::<usize>().saturating_mul(cpus) > limit
        && let Some(largest) = sizes.iter_mut().max().filter(|largest| **largest > sys::page_size())
    {
        *largest /= 2;
    }
    let most = most_pages(cpus, demands.len());
    sizes.iter().map(|bytes| (bytes / sys::page_size()).clamp(1, most)).collect()
}

/// Data pages of a ring for side records, if a ring of events has `data_pages`.
pub fn side_ring_pages(data_pages: usize) -> usize {
    let [least, most] = SIDE_BYTES.map(|bytes| (bytes / sys::page_size()).max(1));
    (data_pages / 8).clamp(least, most)
}

pub fn most_pages(cpus: usize, rings: usize) -> usize {
    floor_power_of_two(MAX_BYTES / sys::page_size() / (cpus * rings).max(1)).max(1)
}

fn floor_power_of_two(value: usize) -> usize {
    if value == 0 { 0 } else { 1 << value.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_what_they_hold() {
        use RingLoad::{Any, Rare, Steady};
        let mib = (1 << 20) / sys::page_size();
        const GIB: u64 = 1 << 30;
        let cases: [(usize, &[RingLoad], u64, &[usize]); 14] = [
            (2, &[], 64, &[]),
            (2, &[Any], 64, &[8]),
            (2, &[Rare], 64, &[8]),
            (2, &[Steady(1000)], 64, &[1]),
            (2, &[Steady(3 << 20)], 64, &[4]),
            (2, &[Any, Any], 64, &[8, 8]),
            (2, &[Any, Any, Any, Any], 64, &[4, 4, 4, 4]),
            (2, &[Any, Steady(1), Rare, Rare], 64, &[8, 1, 2, 2]),
            (2, &[Rare, Rare, Steady(1)], 64, &[8, 8, 1]),
            (16, &[Any], 64, &[8]),
            (16, &[Any, Any], 64, &[4, 4]),
            (64, &[Any, Steady(1)], 64, &[1, 1]),
            (2, &[Any], 1, &[4]),
            (128, &[Any, Steady(1), Rare, Rare], 2, &[0, 0, 0, 0]),
        ];
        for (cpus, demands, gib, want) in cases {
            let sizes = default_ring_pages(cpus, demands, gib * GIB);
            assert_eq!(sizes.iter().map(|pages| pages / mib).collect::<Vec<_>>(), want, "{cpus} {demands:?}");
            assert!(sizes.iter().all(|pages| *pages > 0));
        }
    }

    #[test]
    fn powers_of_two() {
        for (value, want) in [(0, 0), (1, 1), (3, 2), (1024, 1024), (1025, 1024)] {
            assert_eq!(floor_power_of_two(value), want);
        }
    }
}
