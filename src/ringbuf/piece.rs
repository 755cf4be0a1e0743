//! Records that follow each other in time, and in pieces of memory.

use super::item::{Item, ItemKind, Stamp};
use super::prefetch::{LINE_BYTES, prefetch};
use super::ring::first_record;
use super::turns::{Turn, Turns};

/// Records that lie in one piece, of which no other ring's come in between up to a limit; behind the limit [`Piece::turn`]
/// goes on with the piece of another ring.
///
/// Whoever is given one takes of it what he can, from its start on. To go to the next one takes a few instructions here, and
/// to another ring some dozens.
pub struct Piece<'a> {
    ring: usize,
    rest: &'a [u8],
    near: isize,  // bytes of `rest` that were brought near
    last: u64,    // stamp of the last record taken, from this ring
    limit: u64,   // the highest stamp that may be taken
    newest: u64,  // highest stamp delivered, from any ring
    records: u64, // of all rings
    late: u64,
    ahead: isize,        // bytes that are brought near before they are needed
    beyond: Option<u64>, // stamp of the next record, which is known to be beyond the limit
    turns: Option<Turns<'a>>,
    trail: Option<Trail<'a>>,
}

/// What was taken.
struct Trail<'a> {
    pieces: Vec<&'a [u8]>,
    /// Where the piece that has not ended began.
    start: &'a [u8],
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

/// What was taken of all rings.
pub(super) struct Taken {
    pub records: u64,
    pub late: u64,
    pub newest: u64,
    /// The leaf of the ring whose turn it is still.
    pub first: Option<usize>,
}

impl<'a> Piece<'a> {
    #[inline(always)]
    pub(super) fn new(turns: Option<Turns<'a>>, turn: Turn<'a>, newest: u64) -> Piece<'a> {
        let Turn { ring, rest, near, last, limit } = turn;
        let (records, late, beyond, trail) = (0, 0, None, None);
        Piece { ring, rest, near, last, limit, newest, records, late, ahead: near, beyond, turns, trail }
    }

    /// Records on their own, ordinary and due.
    #[inline(always)]
    pub fn of(records: &'a [u8], late: bool) -> Piece<'a> {
        let turn = Turn { rest: records, limit: u64::MAX, ..Turn::default() };
        let piece = Piece::new(None, turn, if late { u64::MAX } else { 0 });
        Piece { near: isize::MAX, ..piece }
    }

    /// No more is taken.
    pub(super) fn end(self) -> Taken {
        let Piece { ring, rest, last, beyond, records, late, newest, turns, .. } = self;
        let first = turns.and_then(|turns| turns.end(ring, rest.len(), last, beyond));
        Taken { records, late, newest, first }
    }

    /// When the next record must wait: goes on with the ring that is first now. False if there is nothing to go on with, and
    /// then nothing is left to be taken, or if it need not wait.
    #[inline(always)]
    pub fn turn(&mut self) -> bool {
        let Some(time) = self.beyond.take() else { return false };
        if self.trail.is_some() { self.noted_turn(time) } else { self.turn_before(time) }
    }

    /// The ring's next record has this stamp.
    #[inline(always)]
    fn turn_before(&mut self, time: u64) -> bool {
        match self.turns.as_mut().and_then(|turns| turns.next(self.rest, self.near, self.last, time)) {
            Some(Turn { ring, rest, near, last, limit }) => {
                (self.ring, self.rest, self.near) = (ring, rest, near);
                (self.last, self.limit) = (last, limit);
                true
            }
            None => {
                self.rest = &[];
                false
            }
        }
    }

    #[cold]
    fn noted_turn(&mut self, time: u64) -> bool {
        self.note();
        let goes_on = self.turn_before(time);
        self.trail.iter_mut().for_each(|trail| trail.start = self.rest);
        goes_on
    }

    fn note(&mut self) {
        if let Some(Trail { pieces, start }) = &mut self.trail {
            let taken = start.len().saturating_sub(self.rest.len());
            pieces.push(start.get(..taken).unwrap_or_default());
        }
    }

    /// From here on it is noted what is taken.
    pub fn leave_trail(&mut self) {
        self.trail = Some(Trail { pieces: Vec::new(), start: self.rest });
    }

    /// What was taken since `leave_trail`, in pieces.
    pub fn take_trail(&mut self) -> Vec<&'a [u8]> {
        self.note();
        self.trail.take().map_or_else(Vec::new, |trail| trail.pieces)
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
        self.records += 1;
        (self.last, self.rest) = (time, next.rest);
        self.near -= next.record.len() as isize;
        if self.near < self.ahead {
            self.ask_for_more();
        }
        Some(late)
    }

    /// To go over records in the fewest steps.
    #[inline(always)]
    pub fn walk(&self) -> Walk<'a> {
        let &Piece { rest, ahead, limit, newest, .. } = self;
        Walk { rest, ahead: ahead.max(0) as usize, limit, newest, beyond: None }
    }

    /// Takes the records that a walk has taken since it left this piece.
    #[inline(always)]
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

    /// Takes the next record as an item, if it is an ordinary one.
    #[inline(always)]
    pub fn next_item(&mut self, stamp: impl Fn(&[u8]) -> Stamp) -> Option<Item<'a>> {
        loop {
            let next = self.peek()?;
            let Stamp::At(time) = stamp(next.record) else { return None };
            let after = self.last;
            match self.take(next, time) {
                Some(late) => {
                    return Some(Item { ring: self.ring, time, after, late, kind: ItemKind::Record(next.record) });
                }
                None if self.turn() => {}
                None => return None,
            }
        }
    }

    /// Records taken, of all rings.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The stamp of the last record taken from the ring whose turn it is, 0 if there was none.
    pub fn last(&self) -> u64 {
        self.last
    }
}
