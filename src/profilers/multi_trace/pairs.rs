//! How this profiler pairs events: by position and by a key that the user chose.

use crate::event::EventKey;
use crate::relation::{Chain, Declaration, OpenStart, PairEnd, PairPositions, RelationKey, RowKey};
use crate::stats::SumKey;
use crate::task::Comm;

/// Pairs of adjacent positions in a chain.
#[derive(Debug, Default)]
pub struct ChainDelays {
    pub chain: Chain,
    /// A row for each key.
    pub by_key: bool,
}

/// An event that may start a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayStart {
    /// The index of the event among the events of the run.
    pub event: u16,
    /// The position that ends the pair: the `-e` after that of the event, counted from 0.
    pub next: u16,
    /// The number of the record in the timeline.
    pub number: u64,
}

/// An event that may end a pair.
#[derive(Clone, Copy, Debug)]
pub struct DelayEnd {
    pub event: u16,
    pub part: PairPositions,
    pub number: u64,
}

/// The key of a row: the pairs of two events, with all keys or with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelayKey {
    /// None: all keys.
    pub key: Option<EventKey>,
    /// The indexes of both events among the events of the run.
    pub start: u16,
    pub end: u16,
}

impl SumKey for DelayKey {
    fn others(&self) -> DelayKey {
        DelayKey { key: self.key.map(|_| EventKey::OTHERS), ..*self }
    }
}

/// Each two events below this index have an index of their own as a pair.
const MAX_INDEXED: u16 = 16;

impl RowKey for DelayKey {
    #[inline(always)]
    fn index(&self) -> Option<usize> {
        let is_indexed = self.key.is_none() && self.start < MAX_INDEXED && self.end < MAX_INDEXED;
        is_indexed.then(|| usize::from(self.start * MAX_INDEXED + self.end))
    }

    fn at_index(index: usize) -> Option<DelayKey> {
        let index = u16::try_from(index).ok()?;
        Some(DelayKey { key: None, start: index / MAX_INDEXED, end: index % MAX_INDEXED })
    }
}

impl Declaration for ChainDelays {
    type Key = RelationKey;
    type Start = DelayStart;
    type End = DelayEnd;
    type Row = DelayKey;
    /// Name of the task of the last start.
    type Sums = Comm;

    #[inline(always)]
    fn row(&self, key: &RelationKey, start: &OpenStart<DelayStart>, end: &PairEnd<DelayEnd>) -> DelayKey {
        let key = if self.by_key { Some(key.event_key()) } else { None };
        DelayKey { key, start: start.open.own.event, end: end.own.event }
    }

    #[inline(always)]
    fn fits(&self, start: &DelayStart, end: &DelayEnd) -> bool {
        end.part.ends_at(start.next)
    }

    #[inline(always)]
    fn may_be_first(&self, _key: &RelationKey, end: &DelayEnd) -> bool {
        end.part.starts_first()
    }

    #[inline(always)]
    fn add(&self, comm: &mut Comm, start: &OpenStart<DelayStart>, _end: &PairEnd<DelayEnd>) {
        if self.by_key {
            *comm = start.open.comm;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_few_events_have_an_index() {
        let row = |key, start, end| DelayKey { key, start, end };
        for row in [row(None, 0, 0), row(None, 2, 1), row(None, 15, 15)] {
            assert_eq!(row.index().and_then(DelayKey::at_index), Some(row));
        }
        for row in [row(Some(EventKey::Number(0)), 0, 1), row(None, 16, 0), row(None, 0, 16)] {
            assert_eq!(row.index(), None);
        }
    }
}
