//! Records that follow each other in memory and in time.

use super::merge::{Item, ItemKind, Stamp};
use super::prefetch::{LINE_BYTES, prefetch};
use super::ring::first_record;

/// Records of one ring that lie in one piece, of which no other ring's come in between up to a limit.
///
/// Whoever is given one takes of it what he can, from its start on. To go to the next one takes a few instructions here, and
/// nobody needs to find out which ring is next.
pub struct Piece<'a> {
    ring: usize,
    rest: &'a [u8],
    ahead: isize, // bytes that are brought near before they are needed
    near: isize,  // bytes of `rest` that were
    limit: u64,   // the highest stamp that may be taken
    newest: u64,  // highest stamp delivered, from any ring
    last: u64,    // stamp of the last record taken, from this ring
    records: u64,
    late: u64,
    beyond: Option<u64>, // stamp of the next record, which is known to be beyond the limit
}

/// The next record of a piece, which is not taken yet.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    record: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Next<'a> {
    #[inline(always)]
    pub fn record(self) -> &'a [u8] {
        self.record
    }
}

/// A piece's records, one after the other: what a [`Piece`] has beside is brought up to date when it ends.
pub struct Walk<'a> {
    rest: &'a [u8],
    ahead: usize,
    limit: u64,
    newest: u64,
    beyond: Option<u64>,
}

impl<'a> Walk<'a> {
    /// The next record and all that lies behind it.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next record, an ordinary one of so many bytes, with this stamp. False when it is not whole, must wait or is
    /// late: then it is not taken. `LONG`: it may take more than two cache lines.
    #[inline(always)]
    pub fn take<const LONG: bool>(&mut self, bytes: usize, time: u64) -> bool {
        const LINE: usize = LINE_BYTES as usize;
        debug_assert!(LONG || bytes <= 2 * LINE);
        let Some(rest) = self.rest.get(bytes..) else { return false };
        if time > self.limit {
            self.beyond = Some(time);
            return false;
        }
        if time < self.newest {
            return false;
        }
        (self.rest, self.newest) = (rest, time);
        // Only those of the piece, up to its last byte: the kernel writes to the next.
        let near = rest.as_ptr().wrapping_add(self.ahead.min(rest.len())).wrapping_sub(1);
        prefetch(near);
        prefetch(near.wrapping_sub(LINE));
        if LONG {
            let mut behind = 2 * LINE;
            while behind < bytes {
                prefetch(near.wrapping_sub(behind));
                behind += LINE;
            }
        }
        true
    }
}

/// What was taken.
pub(super) struct Taken {
    pub rest: usize, // bytes left
    pub records: u64,
    pub late: u64,
    pub newest: u64,
    pub last: u64,
    pub beyond: Option<u64>,
}

impl<'a> Piece<'a> {
    pub(super) fn new(ring: usize, bytes: &'a [u8], ahead: u64, limit: u64, newest: u64, last: u64) -> Piece<'a> {
        let ahead = ahead as isize;
        Piece { ring, rest: bytes, ahead, near: ahead, limit, newest, last, records: 0, late: 0, beyond: None }
    }

    /// A record on its own, ordinary and due.
    #[inline(always)]
    pub fn of_one(record: &'a [u8], late: bool) -> Piece<'a> {
        let newest = if late { u64::MAX } else { 0 };
        Piece { near: isize::MAX, ..Piece::new(0, record, 0, u64::MAX, newest, 0) }
    }

    pub(super) fn taken(&self) -> Taken {
        let &Piece { rest, records, late, newest, last, beyond, .. } = self;
        Taken { rest: rest.len(), records, late, newest, last, beyond }
    }

    /// The next record, if it is whole and its size can be true.
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'a>> {
        first_record(self.rest).map(|(record, rest)| Next { record, rest })
    }

    /// Takes the record that was peeked at, an ordinary one with this stamp. Gives whether it is late, or None when it must
    /// wait: then it is not taken.
    #[inline(always)]
    pub fn take(&mut self, next: Next<'a>, time: u64) -> Option<bool> {
        debug_assert_eq!(next.record.len() + next.rest.len(), self.rest.len(), "peeked at before another was taken");
        if time > self.limit {
            self.beyond = Some(time);
            return None;
        }
        let late = time < self.newest;
        if late {
            self.late += 1;
        } else {
            self.newest = time;
        }
        self.last = time;
        self.records += 1;
        self.rest = next.rest;
        self.near -= next.record.len() as isize;
        if self.near < self.ahead {
            self.ask_for_more();
        }
        Some(late)
    }

    /// The next record and all that lies behind it.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// To go over records in the fewest steps.
    #[inline(always)]
    pub fn walk(&self) -> Walk<'a> {
        let &Piece { rest, limit, newest, .. } = self;
        Walk { rest, ahead: self.ahead.max(0) as usize, limit, newest, beyond: None }
    }

    /// Takes the records that a walk has taken since it left this piece.
    #[inline]
    pub fn follow(&mut self, walk: Walk<'a>, records: u64) {
        self.beyond = walk.beyond;
        if records > 0 {
            (self.rest, self.newest, self.last) = (walk.rest, walk.newest, walk.newest);
            self.near = self.ahead; // the walk asked for so much
            self.records += records;
        }
    }

    /// Brings more bytes near, some lines at a time: to ask for each when it is due would cost more than it brings.
    #[inline(never)]
    fn ask_for_more(&mut self) {
        const LINES: isize = 8;
        const LINE: isize = LINE_BYTES as isize;
        // Only those of the piece: the kernel writes to the next.
        let end = (self.rest.len() as isize).min(self.ahead + LINES * LINE);
        self.near = self.near.max(0); // a long record is passed already
        while self.near < end {
            prefetch(self.rest.as_ptr().wrapping_offset(self.near));
            self.near += LINE;
        }
        self.near = self.near.max(self.ahead);
    }

    /// Takes the next record as an item, if it is an ordinary one and need not wait.
    #[inline(always)]
    pub fn next_item(&mut self, stamp: impl Fn(&[u8]) -> Stamp) -> Option<Item<'a>> {
        let next = self.peek()?;
        let Stamp::At(time) = stamp(next.record) else { return None };
        let after = self.last;
        let late = self.take(next, time)?;
        Some(Item { ring: self.ring, time, after, late, kind: ItemKind::Record(next.record) })
    }

    /// It is known that the next record must wait.
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.beyond.is_some()
    }

    /// Records taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The stamp of the last record taken from this ring, 0 if there was none.
    pub fn last(&self) -> u64 {
        self.last
    }
}
