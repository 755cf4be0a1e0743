//! How a run of records goes on from ring to ring.

use super::loser_tree::LoserTree;
use super::slot::{Slot, TakenPiece};

/// Finds the ring that goes on when the next record of another ring must wait.
pub(super) struct RingSwitcher<'a> {
    slots: &'a [Option<Slot>],
    tree: &'a mut LoserTree,
    /// The leaf of the current ring.
    first: usize,
    /// No ring can go on.
    ended: bool,
    cursors: Vec<RingCursor<'a>>, // by leaf; empty before the first switch
    /// Size of the first ring's piece, in bytes.
    bytes: usize,
    buffers: &'a mut SwitchBuffers,
}

/// The ring with which the run goes on, and where in its piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingSwitch<'a> {
    pub ring: usize,
    /// The bytes of the ring's piece that were not taken yet.
    pub rest: &'a [u8],
    /// Stamp of the last record taken.
    pub last: u64,
    /// The highest stamp that may be taken.
    pub limit: u64,
}

/// The piece of a ring, and how much of it was taken.
#[derive(Clone, Copy, Debug, Default)]
struct RingCursor<'a> {
    ring: usize,
    /// Size of the whole piece. 0: the run has not reached this ring yet.
    bytes: usize,
    /// As in [`RingSwitch`].
    rest: &'a [u8],
    last: u64,
    /// Stamp of the next record.
    next: u64,
}

/// Memory that is reused by each run.
#[derive(Default)]
pub(super) struct SwitchBuffers {
    cursors: Vec<RingCursor<'static>>,
    touched: Vec<usize>, // leaves
    pub taken: Vec<TakenPiece>,
    /// Number of switches to another ring.
    pub switches: u64,
}

impl<'a> RingSwitcher<'a> {
    /// A switcher that begins with the ring of the leaf `first`. None: the next record of that ring is not ordinary.
    #[inline]
    pub fn new(
        slots: &'a [Option<Slot>],
        buffers: &'a mut SwitchBuffers,
        tree: &'a mut LoserTree,
        first: usize,
    ) -> Option<(RingSwitcher<'a>, RingSwitch<'a>)> {
        let switch = first_switch(slots, tree, first)?;
        let cursors = std::mem::take(&mut buffers.cursors);
        Some((RingSwitcher { slots, tree, first, ended: false, cursors, bytes: switch.rest.len(), buffers }, switch))
    }

    /// Switches away from the current ring, whose next record has the stamp `time` and must wait. None: no ring has a
    /// due record, or the next record of the first ring is not ordinary.
    #[inline(never)]
    pub fn next(&mut self, rest: &'a [u8], last: u64, time: u64) -> Option<RingSwitch<'a>> {
        let before = self.first;
        self.ended = true;
        if self.cursors.is_empty() {
            self.start_cursors();
        }
        let cursor = self.cursors.get_mut(before)?;
        (cursor.rest, cursor.last, cursor.next) = (rest, last, time);
        self.buffers.switches += 1;
        let first = self.tree.replace(before, Some(time))?;
        let &RingCursor { ring, bytes, rest, last, .. } = self.cursors.get(first)?;
        let switch = if bytes > 0 {
            RingSwitch { ring, rest, last, limit: self.tree.limit(first) }
        } else {
            self.first_switch(first)?
        };
        (self.first, self.ended) = (first, false);
        Some(switch)
    }

    #[cold]
    fn start_cursors(&mut self) {
        self.cursors.resize(self.tree.len(), RingCursor::default());
        self.add_cursor(self.first, self.tree.ring(self.first).unwrap_or_default(), self.bytes);
    }

    #[inline(never)]
    fn first_switch(&mut self, leaf: usize) -> Option<RingSwitch<'a>> {
        let switch = first_switch(self.slots, self.tree, leaf)?;
        self.add_cursor(leaf, switch.ring, switch.rest.len());
        Some(switch)
    }

    fn add_cursor(&mut self, leaf: usize, ring: usize, bytes: usize) {
        if let Some(cursor) = self.cursors.get_mut(leaf) {
            (cursor.ring, cursor.bytes) = (ring, bytes);
            self.buffers.touched.push(leaf);
        }
    }

    /// Ends the run with `rest` bytes left in the current ring's piece. `time`: stamp of its next record, if known.
    /// Returns the leaf of the current ring, or None if no ring could go on. The buffers keep how much of each piece
    /// was taken.
    pub fn end(self, ring: usize, rest: usize, last: u64, time: Option<u64>) -> Option<usize> {
        let RingSwitcher { first, ended, mut cursors, bytes, buffers, .. } = self;
        let SwitchBuffers { touched, taken, .. } = buffers;
        let mut push_taken = |ring, bytes: usize, rest: usize, last, next| {
            if bytes > rest {
                taken.push(TakenPiece { ring, bytes: bytes - rest, rest, last, next });
            }
        };
        if !ended {
            push_taken(ring, cursors.get(first).map_or(bytes, |cursor| cursor.bytes), rest, last, time);
        }
        for leaf in touched.drain(..).filter(|&leaf| ended || leaf != first) {
            if let Some(cursor) = cursors.get(leaf) {
                push_taken(cursor.ring, cursor.bytes, cursor.rest.len(), cursor.last, Some(cursor.next));
            }
        }
        cursors.clear();
        // Reuses the allocation.
        buffers.cursors = cursors.into_iter().map(|_| RingCursor::default()).collect();
        (!ended).then_some(first)
    }
}

/// The switch to a ring that the run has not reached yet. None: the next record of that ring is not ordinary.
#[inline]
fn first_switch<'a>(slots: &'a [Option<Slot>], tree: &LoserTree, first: usize) -> Option<RingSwitch<'a>> {
    let ring = tree.ring(first)?;
    let slot = slots.get(ring)?.as_ref()?;
    let limit = tree.limit(first);
    Some(RingSwitch { ring, rest: slot.piece()?, last: slot.last(), limit })
}
