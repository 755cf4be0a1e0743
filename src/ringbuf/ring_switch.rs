//! The rings that take turns while their records are handed over.

use super::loser_tree::LoserTree;
use super::slot::Slot;

/// Which ring goes on when another one must wait.
pub(super) struct RingSwitcher<'a> {
    slots: &'a [Option<Slot>],
    tree: &'a mut LoserTree,
    /// The leaf of the ring whose turn it is.
    first: usize,
    ended: bool,
    cursors: Vec<RingCursor<'a>>, // by leaf; none before the second turn
    /// Of the piece of the ring that began.
    bytes: usize,
    store: &'a mut Store,
}

/// A ring's turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingSwitch<'a> {
    pub ring: usize,
    /// What is left of its piece.
    pub rest: &'a [u8],
    /// Stamp of the last record taken.
    pub last: u64,
    /// The highest stamp that may be taken.
    pub limit: u64,
}

/// A ring's piece, and how far it was taken.
#[derive(Clone, Copy, Debug, Default)]
struct RingCursor<'a> {
    ring: usize,
    /// Of the whole piece. 0: the ring had no turn yet.
    bytes: usize,
    /// As in [`RingSwitch`].
    rest: &'a [u8],
    last: u64,
    /// Stamp of the next record.
    next: u64,
}

/// What was taken of a ring's piece.
pub(super) struct Taken {
    pub ring: usize,
    pub bytes: usize,
    /// Left of the piece.
    pub rest: usize,
    /// Stamp of the last record taken.
    pub last: u64,
    /// Of the next, if that is known.
    pub next: Option<u64>,
}

/// Memory that is used again and again.
#[derive(Default)]
pub(super) struct Store {
    cursors: Vec<RingCursor<'static>>,
    touched: Vec<usize>, // leaves
    pub taken: Vec<Taken>,
}

impl<'a> RingSwitcher<'a> {
    /// Begins with the turn of the ring that is `first`, if it goes on with a piece.
    #[inline]
    pub fn new(
        slots: &'a [Option<Slot>],
        store: &'a mut Store,
        tree: &'a mut LoserTree,
        first: usize,
    ) -> Option<(RingSwitcher<'a>, RingSwitch<'a>)> {
        let switch = first_switch(slots, tree, first)?;
        let cursors = std::mem::take(&mut store.cursors);
        Some((RingSwitcher { slots, tree, first, ended: false, cursors, bytes: switch.rest.len(), store }, switch))
    }

    /// The next record of the ring whose turn it is has the stamp `time`, and must wait. Gives the turn of the ring that is first
    /// now. None: that has something else than a piece, or nothing is due.
    #[inline(never)]
    pub fn next(&mut self, rest: &'a [u8], last: u64, time: u64) -> Option<RingSwitch<'a>> {
        let before = self.first;
        self.ended = true;
        if self.cursors.is_empty() {
            self.begin();
        }
        let cursor = self.cursors.get_mut(before)?;
        (cursor.rest, cursor.last, cursor.next) = (rest, last, time);
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
    fn begin(&mut self) {
        self.cursors.resize(self.tree.len(), RingCursor::default());
        self.take_in(self.first, self.tree.ring(self.first).unwrap_or_default(), self.bytes);
    }

    #[inline(never)]
    fn first_switch(&mut self, leaf: usize) -> Option<RingSwitch<'a>> {
        let switch = first_switch(self.slots, self.tree, leaf)?;
        self.take_in(leaf, switch.ring, switch.rest.len());
        Some(switch)
    }

    fn take_in(&mut self, leaf: usize, ring: usize, bytes: usize) {
        if let Some(cursor) = self.cursors.get_mut(leaf) {
            (cursor.ring, cursor.bytes) = (ring, bytes);
            self.store.touched.push(leaf);
        }
    }

    /// Ends where the ring has so much left whose turn it is. `time`: stamp of its next record, if that is known. Gives its leaf,
    /// unless it was nobody's turn. What was taken is in the store.
    pub fn end(self, ring: usize, rest: usize, last: u64, time: Option<u64>) -> Option<usize> {
        let RingSwitcher { first, ended, mut cursors, bytes, store, .. } = self;
        let Store { touched, taken, .. } = store;
        let mut take_down = |ring, bytes: usize, rest: usize, last, next| {
            if bytes > rest {
                taken.push(Taken { ring, bytes: bytes - rest, rest, last, next });
            }
        };
        if !ended {
            take_down(ring, cursors.get(first).map_or(bytes, |cursor| cursor.bytes), rest, last, time);
        }
        for leaf in touched.drain(..).filter(|&leaf| ended || leaf != first) {
            if let Some(cursor) = cursors.get(leaf) {
                take_down(cursor.ring, cursor.bytes, cursor.rest.len(), cursor.last, Some(cursor.next));
            }
        }
        cursors.clear();
        // The memory stays where it is, and nothing is in it.
        store.cursors = cursors.into_iter().map(|_| RingCursor::default()).collect();
        (!ended).then_some(first)
    }
}

/// Of the first ring, which had none yet. None: its next record is no ordinary one.
#[inline]
fn first_switch<'a>(slots: &'a [Option<Slot>], tree: &LoserTree, first: usize) -> Option<RingSwitch<'a>> {
    let ring = tree.ring(first)?;
    let slot = slots.get(ring)?.as_ref()?;
    let limit = tree.limit(first);
    Some(RingSwitch { ring, rest: slot.piece()?, last: slot.last(), limit })
}
