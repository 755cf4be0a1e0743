//! A run of records that follow each other in time, and mostly in memory.

use super::item::{Item, ItemKind, Stamp};
use super::prefetch::{LINE_BYTES, prefetch};
use super::ring::{AHEAD_BYTES, first_record};
use super::ring_switch::{RingSwitch, RingSwitcher};
use super::slot::TakenPiece;

/// Records that lie in one piece of memory and may be taken up to a time limit; after the limit [`RecordRun::go_on`]
/// finds the next piece.
///
/// The consumer takes records from the start on and may stop early; records that were not taken stay in the ring. The
/// next record of a piece costs a few instructions, the next piece some dozens.
pub struct RecordRun<'a> {
    ring: usize,
    rest: &'a [u8],
    last: u64,    // stamp of the last record taken, from this ring
    limit: u64,   // the highest stamp that may be taken
    newest: u64,  // highest stamp delivered, from any ring
    records: u64, // records taken, of all rings
    late: u64,
    beyond: Option<u64>, // stamp of the next record, if known to be beyond the limit
    ahead: usize,        // prefetched bytes behind the last record taken
    switcher: Option<RingSwitcher<'a>>,
}

/// A walk over the records of a piece: a copy of the state that changes with each record, so that it can stay in registers.
/// [`RecordRun::follow`] takes the state back when the walk ends.
#[derive(Clone, Copy)]
pub struct RecordWalk<'a> {
    rest: &'a [u8],
    limit: u64,
    newest: u64,
    beyond: Option<u64>,
    ahead: usize,
}

impl<'a> RecordWalk<'a> {
    /// The next record and all bytes behind it.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next record, an ordinary one with this stamp. `behind`: the part of [`RecordWalk::rest`] after the
    /// record, which the caller has split off. False: the record must wait or is late, and was not taken.
    #[inline(always)]
    pub fn take(&mut self, behind: &'a [u8], time: u64) -> bool {
        if time > self.limit {
            self.beyond = Some(time);
            return false;
        }
        if time < self.newest {
            return false;
        }
        let bytes = self.rest.len() - behind.len();
        (self.rest, self.newest) = (behind, time);
        prefetch_behind(behind, self.ahead, bytes);
        true
    }
}

/// Prefetches `bytes` bytes, the number just taken, `ahead` bytes from the start of `rest`. Nothing beyond the end of
/// `rest`, where the kernel writes.
#[inline(always)]
pub(super) fn prefetch_behind(rest: &[u8], ahead: usize, bytes: usize) {
    const LINE: usize = LINE_BYTES as usize;
    if rest.len() < ahead {
        return;
    }
    let near = rest.as_ptr().wrapping_add(ahead).wrapping_sub(1);
    prefetch(near);
    prefetch(near.wrapping_sub(LINE));
    // Most records end here or after two lines more. The compiler unrolls the loop, which costs a dozen instructions before its first
    // turn; a function of its own would cost as many, in registers that must be saved.
    if bytes > 2 * LINE {
        prefetch(near.wrapping_sub(2 * LINE));
        prefetch(near.wrapping_sub(3 * LINE));
        let mut behind = 4 * LINE;
        while behind < bytes {
            prefetch(near.wrapping_sub(behind));
            behind += LINE;
        }
    }
}

/// What a run took from all rings.
pub(super) struct RunTotals {
    pub records: u64,
    pub late: u64,
    pub newest: u64,
    /// The leaf of the ring that the run ended in. None: that ring has been replaced in the tree.
    pub first: Option<usize>,
}

impl<'a> RecordRun<'a> {
    #[inline(always)]
    pub(super) fn new(switcher: Option<RingSwitcher<'a>>, switch: RingSwitch<'a>, newest: u64) -> RecordRun<'a> {
        let RingSwitch { ring, rest, last, limit } = switch;
        RecordRun {
            ring,
            rest,
            last,
            limit,
            newest,
            records: 0,
            late: 0,
            beyond: None,
            ahead: AHEAD_BYTES as usize,
            switcher,
        }
    }

    /// A run of ordinary, due records that belong to no merge.
    #[inline(always)]
    pub fn of(records: &'a [u8], late: bool) -> RecordRun<'a> {
        let switch = RingSwitch { rest: records, limit: u64::MAX, ..RingSwitch::default() };
        RecordRun::new(None, switch, if late { u64::MAX } else { 0 })
    }

    /// Prefetches at least `bytes` bytes ahead.
    pub(super) fn prefetch_from(&mut self, bytes: usize) {
        self.ahead = self.ahead.max(bytes);
    }

    /// Ends a run over one ring's piece of `bytes` bytes. Returns how much of the piece was taken.
    pub(super) fn end_of_piece(self, bytes: usize) -> (TakenPiece, RunTotals) {
        let RecordRun { ring, rest, last, beyond, records, late, newest, .. } = self;
        let taken = TakenPiece { ring, bytes: bytes - rest.len(), rest: rest.len(), last, next: beyond };
        (taken, RunTotals { records, late, newest, first: None })
    }

    /// Ends the run.
    pub(super) fn end(self) -> RunTotals {
        let RecordRun { ring, rest, last, beyond, records, late, newest, switcher, .. } = self;
        let first = switcher.and_then(|switcher| switcher.end(ring, rest.len(), last, beyond));
        RunTotals { records, late, newest, first }
    }

    /// If the next record must wait, goes on with the ring whose record is first now. False: the next record need not
    /// wait, or the run has ended and is empty.
    #[inline(always)]
    pub fn go_on(&mut self) -> bool {
        let (Some(time), Some(switcher)) = (self.beyond, &mut self.switcher) else { return false };
        self.beyond = None;
        match switcher.next(self.rest, self.last, time) {
            Some(RingSwitch { ring, rest, last, limit }) => {
                (self.ring, self.rest, self.last, self.limit) = (ring, rest, last, limit);
                true
            }
            None => {
                self.rest = &[];
                false
            }
        }
    }

    /// The next record, if it is complete and its size is possible.
    #[inline(always)]
    pub fn next_record(&self) -> Option<&'a [u8]> {
        first_record(self.rest).map(|(record, _)| record)
    }

    /// The records that follow the next one in the same piece, due or not.
    pub fn records_behind(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = first_record(self.rest).map_or(&[][..], |(_, rest)| rest);
        std::iter::from_fn(move || {
            let (record, behind) = first_record(rest)?;
            rest = behind;
            Some(record)
        })
    }

    /// Starts a walk at the next record.
    #[inline(always)]
    pub fn walk(&self) -> RecordWalk<'a> {
        let &RecordRun { rest, limit, newest, ahead, .. } = self;
        RecordWalk { rest, limit, newest, beyond: None, ahead }
    }

    /// Takes over the state of a walk that began at the next record and has taken `records` records.
    #[inline(always)]
    pub fn follow(&mut self, walk: RecordWalk<'a>, records: u64) {
        self.beyond = walk.beyond;
        if records > 0 {
            (self.rest, self.newest, self.last) = (walk.rest, walk.newest, walk.newest);
            self.records += records;
        }
    }

    /// Takes the next record, an ordinary one of `bytes` bytes with this stamp. Returns whether it is late. None: the
    /// record must wait, and was not taken.
    #[inline]
    pub fn take(&mut self, bytes: usize, time: u64) -> Option<bool> {
        let rest = self.rest.get(bytes..)?;
        if time > self.limit {
            self.beyond = Some(time);
            return None;
        }
        let is_late = time < self.newest;
        self.late += u64::from(is_late);
        self.newest = self.newest.max(time);
        (self.rest, self.last) = (rest, time);
        self.records += 1;
        prefetch_behind(rest, self.ahead, bytes);
        Some(is_late)
    }

    /// Takes the next record as an item, if it is ordinary.
    #[inline(always)]
    pub fn next_item(&mut self, stamp: impl Fn(usize, &[u8]) -> Stamp) -> Option<Item<'a>> {
        loop {
            let record = self.next_record()?;
            let Stamp::At(time) = stamp(self.ring, record) else { return None };
            let (ring, after) = (self.ring, self.last);
            match self.take(record.len(), time) {
                Some(late) => return Some(Item { ring, time, after, late, kind: ItemKind::Record(record) }),
                None if self.go_on() => {}
                None => return None,
            }
        }
    }

    /// Records taken, of all rings.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The stamp of the record before the next one in its ring, 0 if there was none.
    pub fn last(&self) -> u64 {
        self.last
    }
}
