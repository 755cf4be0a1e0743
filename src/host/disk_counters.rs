//! What the kernel counts of each disk, in /proc/diskstats.

use std::fs;

use rustc_hash::FxHashMap;

use crate::host::{BlockDevice, Host};

/// The counters of a disk since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads, writes, discards and flushes that are done.
    pub requests: u64,
    /// The time in which it had requests, ns.
    pub busy_ns: u64,
    /// The time of all requests together, ns: those that went on at once count each.
    pub queued_ns: u64,
}

/// The counters of all disks. Empty where /proc has none.
///
/// Source: `diskstats_show` in block/genhd.c.
pub fn disk_counters(host: &Host) -> FxHashMap<BlockDevice, DiskCounters> {
    let text = fs::read_to_string(host.proc.join("diskstats")).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(BlockDevice, DiskCounters)> {
    const MS: u64 = 1_000_000;
    let mut words = line.split_ascii_whitespace();
    let device = BlockDevice::parse(&format!("{}:{}", words.next()?, words.next()?))?;
    let numbers: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
    // Discards are counted since 4.18, flushes since 5.5.
    let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
    let [reads, writes, busy_ms, queued_ms] = [0, 4, 9, 10].map(|index| numbers.get(index).copied());
    Some((
        device,
        DiskCounters {
            requests: reads?.saturating_add(writes?).saturating_add(number(11)).saturating_add(number(15)),
            busy_ns: busy_ms?.saturating_mul(MS),
            queued_ns: queued_ms?.saturating_mul(MS),
        },
    ))
}

impl DiskCounters {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &DiskCounters) -> DiskCounters {
        DiskCounters {
            requests: self.requests.saturating_sub(before.requests),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            queued_ns: self.queued_ns.saturating_sub(before.queued_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_old_and_new_kernels() {
        let cases = [
            ("   8   0 sda 10 1 2 3 20 4 5 6 0 70 80 5 1 2 3 7 9", Some((42, 70, 80))),
            ("   8   0 sda 10 1 2 3 20 4 5 6 0 70 80 5 1 2 3", Some((35, 70, 80))),
            ("   8   0 sda 10 1 2 3 20 4 5 6 0 70 80", Some((30, 70, 80))),
            ("   8   0 sda 10 1 2 3", None),
            ("   8   x sda 10 1 2 3 20 4 5 6 0 70 80", None),
            ("", None),
        ];
        for (line, want) in cases {
            let got = parse(line).map(|(device, counters)| {
                assert_eq!(device, BlockDevice(8 << 20));
                (counters.requests, counters.busy_ns / 1_000_000, counters.queued_ns / 1_000_000)
            });
            assert_eq!(got, want, "{line:?}");
        }
    }
}
