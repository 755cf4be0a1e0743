//! What is summed up for each row: the pairs of two events, of all keys or of one.

use crate::event::EventKey;
use crate::stats::{KeyedSums, Latency, SumKey};
use crate::symbol::StackId;
use crate::task::Comm;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelayKey {
    /// None: all keys.
    pub key: Option<EventKey>,
    /// The two events, by their places among the events of the run.
    pub start: u16,
    pub end: u16,
}

impl SumKey for DelayKey {
    fn others(&self) -> DelayKey {
        DelayKey { key: self.key.map(|_| EventKey::OTHERS), ..*self }
    }
}

/// What is summed up for a row.
#[derive(Clone, Debug, Default)]
pub struct PairSums {
    pub latency: Latency,
    pub than: u64,
    /// Pairs that began before the interval.
    pub before: u64,
    /// Name of the task of the last start.
    pub comm: Comm,
}

/// The sums of all rows. A row has at least one pair.
#[derive(Debug, Default)]
pub struct PairRows {
    /// Those of all keys, by the place of the start and then by that of the end: the usual case, without hashing.
    of_all: Vec<PairSums>,
    /// Number of events in `of_all`.
    events: u16,
    rest: KeyedSums<DelayKey, PairSums>,
}

/// Events up to here have a row for each two of them from the beginning.
const MAX_EVENTS: u16 = 16;

impl PairRows {
    /// Rows for the pairs of so many events.
    pub fn of_events(events: usize) -> PairRows {
        let events = u16::try_from(events).ok().filter(|events| *events <= MAX_EVENTS).unwrap_or(0);
        let of_all = vec![PairSums::default(); usize::from(events) * usize::from(events)];
        PairRows { of_all, events, rest: KeyedSums::default() }
    }

    /// The sums of the pairs of two events, to which one is added.
    #[inline(always)]
    pub fn of_all_keys(&mut self, start: u16, end: u16) -> &mut PairSums {
        let at = usize::from(start) * usize::from(self.events) + usize::from(end);
        // An event beyond the number of events would have the row of others.
        if end < self.events && at < self.of_all.len() {
            return &mut self.of_all[at];
        }
        self.of_rest(DelayKey { key: None, start, end })
    }

    /// The same for those of one key.
    #[inline(never)]
    pub fn of_key(&mut self, key: EventKey, start: u16, end: u16) -> &mut PairSums {
        self.of_rest(DelayKey { key: Some(key), start, end })
    }

    fn of_rest(&mut self, row: DelayKey) -> &mut PairSums {
        self.rest.sum(row)
    }

    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = (DelayKey, &PairSums)> {
        let of_all = self.of_all.iter().enumerate().filter(|(_, sums)| sums.latency.worst.is_some());
        let of_all = of_all.map(|(at, sums)| (row_at(at, self.events), sums));
        of_all.chain(self.rest.iter().map(|(row, sums)| (*row, sums)))
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes all sums out, in the order of their rows.
    pub fn take(&mut self) -> Vec<(DelayKey, PairSums)> {
        let events = self.events;
        let of_all = self.of_all.iter_mut().enumerate().filter(|(_, sums)| sums.latency.worst.is_some());
        let mut rows: Vec<_> = of_all.map(|(at, sums)| (row_at(at, events), std::mem::take(sums))).collect();
        rows.extend(self.rest.drain());
        rows.sort_unstable_by_key(|(row, _)| *row);
        rows
    }

    /// The stacks of the worst cases.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.iter().filter_map(|(_, sums)| sums.latency.worst.and_then(|case| case.stack))
    }
}

/// The row at a place of [`PairRows::of_all`].
fn row_at(at: usize, events: u16) -> DelayKey {
    let events = usize::from(events.max(1));
    DelayKey { key: None, start: (at / events) as u16, end: (at % events) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::WorstCase;

    /// Few events, which have their rows from the beginning, and many: the rows are the same.
    #[test]
    fn rows_are_by_events_and_key() {
        let key = |number| Some(EventKey::Number(number));
        let rows = [(None, 0, 1), (None, 1, 0), (None, 2, 2), (key(7), 0, 1), (key(8), 0, 1)];
        let rows = rows.map(|(key, start, end)| DelayKey { key, start, end });
        for events in [3, 1000] {
            let mut all = PairRows::of_events(events);
            assert!(all.is_empty());
            for (ns, row) in (1..).zip(rows.iter().chain(&rows)) {
                let (tid, comm, stack) = (1, Comm::default(), None);
                let DelayKey { key, start, end } = *row;
                let sums = match key {
                    Some(key) => all.of_key(key, start, end),
                    None => all.of_all_keys(start, end),
                };
                sums.latency.record(ns, ns, || WorstCase { ns, at: ns, cpu: 0, tid, comm, stack });
            }
            assert!(!all.is_empty());
            assert_eq!(all.iter().count(), rows.len());
            let taken = all.take();
            assert_eq!(taken.iter().map(|(row, _)| *row).collect::<Vec<_>>(), rows);
            assert!(taken.iter().all(|(_, sums)| sums.latency.distribution.count() == 2));
            assert!(all.is_empty() && all.take().is_empty());
        }
    }
}
