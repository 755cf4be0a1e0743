//! The rings that take turns while their records are handed over.

use super::due::Due;
use super::slot::Slot;

/// Which ring goes on when another one must wait.
pub(super) struct Turns<'a> {
    slots: &'a [Option<Slot>],
    due: &'a mut Due,
    /// The leaf of the ring whose turn it is.
    first: usize,
    ended: bool,
    lanes: Vec<Lane<'a>>, // by leaf; none before the second turn
    /// Of the piece of the ring that began.
    bytes: usize,
    store: &'a mut Store,
}

/// A ring's turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn<'a> {
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
struct Lane<'a> {
    ring: usize,
    /// Of the whole piece. 0: the ring had no turn yet.
    bytes: usize,
    /// As in [`Turn`].
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
    lanes: Vec<Lane<'static>>,
    touched: Vec<usize>, // leaves
    pub taken: Vec<Taken>,
}

impl<'a> Turns<'a> {
    /// Begins with the turn of the ring that is `first`, if it goes on with a piece.
    #[inline]
    pub fn new(
        slots: &'a [Option<Slot>],
        store: &'a mut Store,
        due: &'a mut Due,
        first: usize,
    ) -> Option<(Turns<'a>, Turn<'a>)> {
        let turn = first_turn(slots, due, first)?;
        let lanes = std::mem::take(&mut store.lanes);
        Some((Turns { slots, due, first, ended: false, lanes, bytes: turn.rest.len(), store }, turn))
    }

    /// The next record of the ring whose turn it is has the stamp `time`, and must wait. Gives the turn of the ring that is first
    /// now. None: that has something else than a piece, or nothing is due.
    #[inline(never)]
    pub fn next(&mut self, rest: &'a [u8], last: u64, time: u64) -> Option<Turn<'a>> {
        let before = self.first;
        self.ended = true;
        if self.lanes.is_empty() {
            self.begin();
        }
        let lane = self.lanes.get_mut(before)?;
        (lane.rest, lane.last, lane.next) = (rest, last, time);
        let first = self.due.replace(before, Some(time))?;
        let &Lane { ring, bytes, rest, last, .. } = self.lanes.get(first)?;
        let turn =
            if bytes > 0 { Turn { ring, rest, last, limit: self.due.limit(first) } } else { self.first_turn(first)? };
        (self.first, self.ended) = (first, false);
        Some(turn)
    }

    #[cold]
    fn begin(&mut self) {
        self.lanes.resize(self.due.len(), Lane::default());
        self.take_in(self.first, self.due.ring(self.first).unwrap_or_default(), self.bytes);
    }

    #[inline(never)]
    fn first_turn(&mut self, leaf: usize) -> Option<Turn<'a>> {
        let turn = first_turn(self.slots, self.due, leaf)?;
        self.take_in(leaf, turn.ring, turn.rest.len());
        Some(turn)
    }

    fn take_in(&mut self, leaf: usize, ring: usize, bytes: usize) {
        if let Some(lane) = self.lanes.get_mut(leaf) {
            (lane.ring, lane.bytes) = (ring, bytes);
            self.store.touched.push(leaf);
        }
    }

    /// Ends where the ring has so much left whose turn it is. `time`: stamp of its next record, if that is known. Gives its leaf,
    /// unless it was nobody's turn. What was taken is in the store.
    pub fn end(self, ring: usize, rest: usize, last: u64, time: Option<u64>) -> Option<usize> {
        let Turns { first, ended, mut lanes, bytes, store, .. } = self;
        let Store { touched, taken, .. } = store;
        let mut take_down = |ring, bytes: usize, rest: usize, last, next| {
            if bytes > rest {
                taken.push(Taken { ring, bytes: bytes - rest, rest, last, next });
            }
        };
        if !ended {
            take_down(ring, lanes.get(first).map_or(bytes, |lane| lane.bytes), rest, last, time);
        }
        for leaf in touched.drain(..).filter(|&leaf| ended || leaf != first) {
            if let Some(lane) = lanes.get(leaf) {
                take_down(lane.ring, lane.bytes, lane.rest.len(), lane.last, Some(lane.next));
            }
        }
        lanes.clear();
        // The memory stays where it is, and nothing is in it.
        store.lanes = lanes.into_iter().map(|_| Lane::default()).collect();
        (!ended).then_some(first)
    }
}

/// Of the first ring, which had none yet. None: its next record is no ordinary one.
#[inline]
fn first_turn<'a>(slots: &'a [Option<Slot>], due: &Due, first: usize) -> Option<Turn<'a>> {
    let ring = due.ring(first)?;
    let slot = slots.get(ring)?.as_ref()?;
    let limit = due.limit(first);
    Some(Turn { ring, rest: slot.piece()?, last: slot.last(), limit })
}
