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
/// Bytes of a ring for steady events, whose samples take a second to fill half of it. The kernel allocates all pages of
/// a ring at once, some 0.2 ms a MiB: a larger ring would cost more than the samples.
const STEADY_BYTES: usize = 1 << 20;
/// Least and greatest size of a ring for side records, which is otherwise an eighth of a ring of events. The mappings
/// of 2,000 execs a second fill half of the largest one in some 60 ms.
const SIDE_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// Limit of the bytes of all rings together.
pub const MAX_BYTES: usize = 512 << 20;

/// Data pages of each ring of events of a CPU without -m, by the load of the rings (`demands`), on `cpus` CPUs.
pub fn default_ring_pages(cpus: usize, demands: &[RingLoad]) -> Vec<usize> {
    let number = |demand| demands.iter().filter(|other| **other == demand).count();
    // If there are only rare events, their rings may take all the room.
    let beside = number(RingLoad::Any) > 0;
    let full = number(if beside { RingLoad::Any } else { RingLoad::Rare });
    let share = if full > 1 { floor_power_of_two(DEFAULT_BYTES_SEVERAL / full) } else { DEFAULT_BYTES };
    let bytes = |demand: &RingLoad| match demand {
        RingLoad::Steady => STEADY_BYTES.min(share),
        RingLoad::Rare if beside => RARE_BYTES.min(share),
        RingLoad::Rare | RingLoad::Any => share,
    };
    let most = most_pages(cpus, demands.len());
    demands.iter().map(|demand| (bytes(demand) / sys::page_size()).clamp(1, most)).collect()
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
        let cases: [(usize, &[RingLoad], &[usize]); 9] = [
            (2, &[], &[]),
            (2, &[Any], &[8]),
            (2, &[Rare], &[8]),
            (2, &[Steady], &[1]),
            (2, &[Any, Any], &[8, 8]),
            (2, &[Any, Any, Any, Any], &[4, 4, 4, 4]),
            (2, &[Any, Steady, Rare, Rare], &[8, 1, 2, 2]),
            (2, &[Rare, Rare, Steady], &[8, 8, 1]),
            (128, &[Any, Steady, Rare, Rare], &[1, 1, 1, 1]),
        ];
        for (cpus, demands, want) in cases {
            let want: Vec<usize> = want.iter().map(|size| size * mib).collect();
            assert_eq!(default_ring_pages(cpus, demands), want, "{cpus} {demands:?}");
        }
    }

    #[test]
    fn powers_of_two() {
        for (value, want) in [(0, 0), (1, 1), (3, 2), (1024, 1024), (1025, 1024)] {
            assert_eq!(floor_power_of_two(value), want);
        }
    }
}
