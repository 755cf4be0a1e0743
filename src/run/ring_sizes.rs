//! Default sizes of the rings of a run.

use crate::sys;

/// Bytes per CPU without -m: 1 M switches/s fill half of it in some 37 ms, the longest time that a busy machine keeps us from a
/// CPU.
const DEFAULT_BYTES: usize = 8 << 20;
/// Bytes for several rings per CPU: twice that, as the most frequent event must not have much less than if it were alone.
const DEFAULT_BYTES_SEVERAL: usize = 2 * DEFAULT_BYTES;
/// Limits of a ring for side records, which has an eighth of a ring of events. The mappings of 2,000 execs a second fill half of
/// the largest in some 60 ms.
const SIDE_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// The most bytes of all rings together.
pub const MOST_BYTES: usize = 512 << 20;

/// Data pages of each of the `rings` of events of a CPU, on `cpus` CPUs, without -m.
pub fn default_ring_pages(cpus: usize, rings: usize) -> usize {
    wanted_pages(rings).min(most_pages(cpus, rings))
}

/// Data pages of a ring for side records, where a ring of events has `data_pages`.
pub fn side_ring_pages(data_pages: usize) -> usize {
    let [least, most] = SIDE_BYTES.map(|bytes| (bytes / sys::page_size()).max(1));
    (data_pages / 8).clamp(least, most)
}

pub fn wanted_pages(rings: usize) -> usize {
    let bytes = if rings > 1 { floor_power_of_two(DEFAULT_BYTES_SEVERAL / rings) } else { DEFAULT_BYTES };
    (bytes / sys::page_size()).max(1)
}

pub fn most_pages(cpus: usize, rings: usize) -> usize {
    floor_power_of_two(MOST_BYTES / sys::page_size() / (cpus * rings).max(1)).max(1)
}

fn floor_power_of_two(value: usize) -> usize {
    if value == 0 { 0 } else { 1 << value.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two() {
        for (value, want) in [(0, 0), (1, 1), (3, 2), (1024, 1024), (1025, 1024)] {
            assert_eq!(floor_power_of_two(value), want);
        }
    }
}
