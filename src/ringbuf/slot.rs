//! One ring of a merge.

use super::RingBuf;

/// One ring, and what is known of its next item.
pub struct Slot {
    pub ring: RingBuf,
    pub next: NextItem,
    pub time: u64,       // stamp of the next item
    pub last: u64,       // stamp of the last record delivered
    pub gap: u64,        // position of the marked gap, `NO_GAP` if none
    pub until: u64,      // time up to which the marked gap reaches
    pub corrupt: u64,    // `ring.corrupt()` when skipped bytes last led to a gap
    pub skipped: bool,   // the gap is, or includes, skipped corrupt bytes
    corrupt_since: bool, // bytes were skipped since the last load, and may be newer than its clock
    pub near_full: bool,
    pub leaving: Leaving,
    pub visit_bytes: usize, // bytes passed when the ring was last read alone
}

pub const NO_GAP: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NextItem {
    /// Not looked at yet, or the snapshot had no further item.
    Unknown,
    Record,
    Here,
    Gap,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    No,
    Asked,
    Loaded, // its last load is done
}

/// How much of a ring's piece was taken.
pub(super) struct TakenPiece {
    pub ring: usize,
    pub bytes: usize,
    /// Bytes of the piece that were not taken.
    pub rest: usize,
    /// Stamp of the last record taken.
    pub last: u64,
    /// Stamp of the next record, if known.
    pub next: Option<u64>,
}

impl Slot {
    pub fn new(ring: RingBuf) -> Slot {
        let corrupt = ring.corrupt();
        Slot {
            ring,
            next: NextItem::Unknown,
            time: 0,
            last: 0,
            gap: NO_GAP,
            until: 0,
            corrupt,
            skipped: false,
            corrupt_since: false,
            near_full: false,
            leaving: Leaving::No,
            visit_bytes: 0,
        }
    }

    /// Takes a new snapshot. Returns whether a record may have been dropped.
    pub fn load(&mut self, now: u64) -> bool {
        self.near_full |= self.ring.load();
        if self.next == NextItem::Gap {
            self.next = NextItem::Unknown; // a LOST record may have arrived
        }
        if self.leaving == Leaving::Asked {
            self.leaving = Leaving::Loaded;
        }
        if self.corrupt_since {
            self.corrupt_since = false;
            self.skipped = true;
            self.mark_gap(self.ring.position(), now);
        }
        if self.ring.corrupt() != self.corrupt {
            self.next = NextItem::Unknown; // the next record was skipped
            self.mark_corrupt(now);
        }
        self.near_full
    }

    /// The next record and the contiguous bytes behind it, up to a gap. None: the next record is not ordinary.
    #[inline]
    pub fn piece(&self) -> Option<&[u8]> {
        if self.next != NextItem::Record {
            return None;
        }
        // At most a quarter of the ring, so that it does not overflow during a long drain.
        let most = (self.ring.size() / 4 + 1).saturating_sub(self.ring.passed());
        Some(self.ring.piece(most.min(self.gap.saturating_sub(self.ring.position()))))
    }

    /// The snapshot ends with this piece.
    pub fn ends_with(&self, piece: &[u8]) -> bool {
        piece.len() as u64 == self.ring.backlog() && self.gap == NO_GAP
    }

    /// The place of the next item in time order, if it is known.
    #[inline]
    pub fn key(&self) -> Option<u64> {
        match self.next {
            NextItem::Unknown => None,
            NextItem::Record => Some(self.time),
            // A LOST record or a gap belongs right after the record before it.
            NextItem::Here | NextItem::Gap => Some(self.last),
        }
    }

    /// Stamp of the last record delivered.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Passes the records that were taken from the piece.
    #[inline]
    pub fn pass(&mut self, taken: &TakenPiece) {
        self.ring.pass(taken.bytes as u64, taken.rest as u64);
        (self.next, self.last) = (NextItem::Unknown, taken.last);
        // The record is peeked, like that of a settled slot: only then does a later load keep it.
        if let Some(time) = taken.next.filter(|_| self.ring.peek().is_some()) {
            (self.next, self.time) = (NextItem::Record, time);
        }
        self.publish_in_time();
    }

    pub fn publish(&mut self) {
        if self.ring.passed() > 0 {
            self.near_full |= self.ring.publish();
        }
    }

    /// Returns room to the kernel during a long drain, so that the ring does not overflow.
    #[inline]
    pub fn publish_in_time(&mut self) {
        if self.ring.passed() > self.ring.size() / 4 {
            self.publish();
        }
    }

    /// Returns room to the kernel before the limit in `piece` would shorten the next piece.
    pub fn publish_early(&mut self) {
        if self.ring.passed() > self.ring.size() / 8 {
            self.publish();
        }
    }

    /// Two gaps are merged into one that covers both: the earlier position, the later time.
    pub fn mark_gap(&mut self, position: u64, until: u64) {
        self.gap = self.gap.min(position);
        self.until = self.until.max(until);
    }

    /// Skipped bytes are a loss that no counter includes. The gap reaches up to `now`, the limit of other rings in this
    /// round, and after the next load up to that round's clock.
    pub fn mark_corrupt(&mut self, now: u64) {
        self.corrupt = self.ring.corrupt();
        self.corrupt_since = true;
        self.skipped = true;
        self.mark_gap(self.ring.position(), now);
    }

    pub fn has_left(&self) -> bool {
        let drained = self.ring.backlog() == 0 && self.gap == NO_GAP && !self.corrupt_since;
        self.leaving == Leaving::Loaded && drained
    }
}
