//! The latest records, in order, in bounded memory: new records replace the oldest.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::relation::RelationKey;
use crate::symbol::StackId;
use crate::task::Comm;

/// A record that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// The index of the event among the events of the run.
    pub event: u16,
    pub time: u64,
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    /// None: the event has no key, or no value for it.
    pub key: Option<RelationKey>,
    pub stack: Option<StackId>,
    /// How long the task that leaves its CPU with this record has run.
    pub ran_ns: Option<NonZeroU64>,
}

#[derive(Debug)]
struct KeptEntry {
    record: KeptRecord,
    /// The bytes of the record: their offset among all bytes ever kept, and their number.
    offset: u64,
    len: u32,
}

/// Records with consecutive numbers.
#[derive(Debug)]
pub struct Timeline {
    entries: VecDeque<KeptEntry>,
    /// The bytes of all records, one after the other.
    raw: VecDeque<u8>,
    /// Number of the first entry.
    first: u64,
    /// Number of bytes that were dropped.
    dropped: u64,
    most_bytes: usize,
}

impl Timeline {
    pub fn new(most_bytes: usize) -> Timeline {
        Timeline { entries: VecDeque::new(), raw: VecDeque::new(), first: 0, dropped: 0, most_bytes }
    }

    /// Keeps a record and returns its number.
    pub fn keep(&mut self, record: KeptRecord, raw: &[u8]) -> u64 {
        let number = self.first + self.entries.len() as u64;
        let at = self.dropped + self.raw.len() as u64;
        self.raw.extend(raw);
        self.entries.push_back(KeptEntry { record, offset: at, len: raw.len() as u32 });
        while self.bytes() > self.most_bytes && self.entries.len() > 1 {
            self.drop_first();
        }
        number
    }

    /// Calls `each` for the records from `number` on that are still kept, with their numbers and bytes, until `each`
    /// returns false.
    pub fn each_from(&self, number: u64, mut each: impl FnMut(u64, &KeptRecord, &[u8]) -> bool) {
        let skip = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.entries.len());
        let mut bytes = Vec::new();
        for (number, entry) in (self.first + skip as u64..).zip(self.entries.range(skip..)) {
            let start = (entry.offset - self.dropped) as usize;
            bytes.clear();
            bytes.extend(self.raw.range(start..start + entry.len as usize));
            if !each(number, &entry.record, &bytes) {
                break;
            }
        }
    }

    /// Number of the first record at `time` or later.
    pub fn number_at(&self, time: u64) -> u64 {
        self.first + self.entries.partition_point(|entry| entry.record.time < time) as u64
    }

    /// Whether the record with this number is still kept.
    pub fn has(&self, number: u64) -> bool {
        (self.first..self.first + self.entries.len() as u64).contains(&number)
    }

    pub fn keys(&self) -> impl Iterator<Item = RelationKey> {
        self.entries.iter().filter_map(|entry| entry.record.key)
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.entries.iter().filter_map(|entry| entry.record.stack)
    }

    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<KeptEntry>() + self.raw.len()
    }

    fn drop_first(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.raw.drain(..entry.len as usize);
        self.dropped += u64::from(entry.len);
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(time: u64) -> KeptRecord {
        let comm = Comm::default();
        KeptRecord { event: 0, time, cpu: 0, pid: 1, tid: 1, comm, key: None, stack: None, ran_ns: None }
    }

    proptest! {
        /// Compared with a list of all records: the kept ones are the end of the list, within the limit, byte for byte.
        #[test]
        fn the_newest_are_kept(lens in prop::collection::vec(0_usize..40, 0..100), most_bytes in 0_usize..2000) {
            let mut timeline = Timeline::new(most_bytes);
            let all: Vec<Vec<u8>> = lens.iter().zip(0_u8..).map(|(len, byte)| vec![byte; *len]).collect();
            for (time, raw) in (0..).zip(&all) {
                prop_assert_eq!(timeline.keep(record(time), raw), time);
                prop_assert!(timeline.bytes() <= most_bytes || timeline.entries.len() == 1);
                prop_assert!(timeline.has(time) && !timeline.has(time + 1));
            }
            let mut kept = Vec::new();
            timeline.each_from(0, |number, record, raw| {
                kept.push((number, record.time, raw.to_vec()));
                true
            });
            let first = all.len() - kept.len();
            prop_assert_eq!(timeline.number_at(0), first as u64);
            let want: Vec<_> = (0..).zip(all).map(|(time, raw)| (time, time, raw)).skip(first).collect();
            prop_assert_eq!(kept, want);
        }
    }
}
