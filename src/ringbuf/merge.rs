//! Many ring buffers as one stream of records in time order.

use std::ops::ControlFlow;

use super::RingBuf;
use super::due::Due;
use super::piece::Piece;
use super::turns::{Store, Taken, Turns};

/// How far a [`drain`](Merge::drain) goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Up to the clock reading of the previous round, below which all rings are known complete.
    /// With a single ring there is nothing to wait for, and this is `All`.
    Horizon,
    /// Everything in the snapshots: the last drain.
    All,
}

/// What the caller's function makes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// An ordinary record and its time.
    At(u64),
    /// A record about the drops before it, and its own time. The kernel stamps it *after* the
    /// record that follows it, so its place is the one it has in its ring.
    Here(u64),
    /// Not to be decoded: counted and skipped.
    Bad,
}

/// One delivery.
#[derive(Debug)]
pub struct Item<'a> {
    /// The index that [`Merge::add`] gave.
    pub ring: usize,
    /// The record's own stamp. Of a gap: the time up to which records may be missing.
    pub time: u64,
    /// Stamp of the `Stamp::At` record delivered before from this ring, 0 if there was none.
    /// With `time`, the window of a loss: every dropped record is stamped within it.
    /// (But an interrupted record that is dropped while its interrupter's is not: a bit earlier.)
    pub after: u64,
    /// A record with a higher stamp was delivered before, from this ring or another.
    /// Never set for gaps and `Stamp::Here`.
    pub late: bool,
    pub kind: ItemKind<'a>,
}

#[derive(Debug)]
pub enum ItemKind<'a> {
    Record(&'a [u8]),
    /// Records of this ring are missing here, as [`Merge::mark_gap`] was told.
    Gap,
    /// As `Gap`, but the ring's bytes could not be true and were skipped. No counter knows of it.
    Corrupt,
}

/// Where a [`drain`](Merge::drain_into) goes.
pub trait Sink {
    /// What a record is to the merge.
    fn stamp(&self, record: &[u8]) -> Stamp;

    /// Takes a delivery. `Break` ends the drain.
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()>;

    /// Takes deliveries off a piece, as many as it can. A record that is first in a piece and not taken comes to `take`.
    #[inline(always)]
    fn take_piece(&mut self, piece: &mut Piece<'_>) -> ControlFlow<()> {
        while let Some(item) = piece.next_item(|record| self.stamp(record)) {
            self.take(item)?;
        }
        ControlFlow::Continue(())
    }
}

/// Two functions: [`Sink::stamp`] and [`Sink::take`].
impl<S: Fn(&[u8]) -> Stamp, E: FnMut(Item<'_>) -> ControlFlow<()>> Sink for (S, E) {
    #[inline]
    fn stamp(&self, record: &[u8]) -> Stamp {
        (self.0)(record)
    }

    #[inline]
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        (self.1)(item)
    }
}

/// What a [`drain`](Merge::drain) did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Records delivered, late ones included. Gaps are none.
    pub records: u64,
    pub bytes: u64,
    pub late: u64,
    /// Something stays above the horizon: the next round should come soon.
    pub held: bool,
    /// The callback broke off. The record it broke off on counts as delivered.
    pub stopped: bool,
}

/// The time-ordered merge of ring buffers.
#[derive(Default)]
pub struct Merge {
    slots: Vec<Option<Slot>>, // by ring index; `None` is free
    rings: usize,             // that are not `None`
    now: u64,                 // of the last `load`
    horizon: u64,             // last moment before the `now` of the one before
    newest: u64,              // highest stamp delivered
    undecodable: u64,
    due: Due,          // the rings that have something up to the horizon
    store: Store,      // for the turns
    tight: Vec<usize>, // for `next_tight`
}

/// One ring, and what is known of its next item.
pub(super) struct Slot {
    ring: RingBuf,
    next: Next,
    time: u64,           // of `next`
    last: u64,           // stamp of the last record delivered
    gap: u64,            // position of the gap marked, `NO_GAP` if none
    until: u64,          // time of the gap marked
    corrupt: u64,        // `ring.corrupt()` when it was last turned into a gap
    skipped: bool,       // the gap is, or has in it, what was corrupt
    corrupt_since: bool, // since the last load: what was skipped may be newer than that
    tight: bool,
    leaving: Leaving,
}

const NO_GAP: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Not looked at yet, or nothing there when it was.
    Unknown,
    Record,
    Here,
    Gap,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    Asked,
    Loaded, // for the last time
}

impl Merge {
    pub fn new() -> Merge {
        Merge::default()
    }

    /// Takes a ring in and gives its index, the lowest free one. It stays the ring's until the
    /// ring has left.
    pub fn add(&mut self, ring: RingBuf) -> usize {
        let corrupt = ring.corrupt();
        let slot = Slot {
            ring,
            next: Next::Unknown,
            time: 0,
            last: 0,
            gap: NO_GAP,
            until: 0,
            corrupt,
            skipped: false,
            corrupt_since: false,
            tight: false,
            leaving: Leaving::No,
        };
        self.rings += 1;
        match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = Some(slot);
                free
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    /// Lets a ring go that nothing writes to any more. It is loaded once again, and what it still
    /// holds is delivered in order; the `publish` that finds it empty unmaps it and frees its index.
    pub fn remove(&mut self, ring: usize) {
        if let Some(slot) = self.slot_mut(ring)
            && slot.leaving == Leaving::No
        {
            slot.leaving = Leaving::Asked;
        }
    }

    /// Whether `ring` has not left yet.
    pub fn has(&self, ring: usize) -> bool {
        self.slot(ring).is_some()
    }

    /// Rings that have not left yet.
    pub fn len(&self) -> usize {
        self.rings
    }

    pub fn is_empty(&self) -> bool {
        self.rings == 0
    }

    /// Begins a round: takes a snapshot of every ring. `now` is the ring clock, read just before.
    pub fn load(&mut self, now: u64) {
        // Strictly before: another CPU can still stamp the very nanosecond of the reading.
        self.horizon = self.now.saturating_sub(1);
        self.now = now;
        self.tight.clear();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            if slot.load(now) {
                self.tight.push(index);
            }
        }
    }

    /// A ring that was so full since it was last named here that the kernel may have dropped a
    /// record. Whoever reads its lost counters now knows of every drop up to this round's horizon.
    pub fn next_tight(&mut self) -> Option<usize> {
        let ring = self.tight.pop()?;
        if let Some(slot) = self.slot_mut(ring) {
            slot.tight = false;
        }
        Some(ring)
    }

    /// More records of `ring` were dropped than its LOST records *delivered so far* tell of; `now`
    /// is the ring clock, read after the counters that say so. Delivers an [`ItemKind::Gap`] after
    /// the last record of the snapshot. By then the LOST records of the snapshot have been
    /// delivered too: if they told of all drops counted, nothing is missing, and the gap can be ignored.
    pub fn mark_gap(&mut self, ring: usize, now: u64) {
        if let Some(slot) = self.slot_mut(ring) {
            slot.mark_gap(slot.ring.end(), now);
        }
    }

    /// As [`drain_into`](Merge::drain_into), with a function for each delivery.
    pub fn drain(
        &mut self,
        limit: Limit,
        stamp: impl Fn(&[u8]) -> Stamp,
        each: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Drained {
        self.drain_into(limit, &mut (stamp, each))
    }

    /// Delivers the records of the snapshots in time order, each ring in its own order.
    pub fn drain_into(&mut self, limit: Limit, sink: &mut impl Sink) -> Drained {
        let horizon = if limit == Limit::All || self.rings < 2 { u64::MAX } else { self.horizon };
        let Merge { slots, due, store, .. } = self;
        let mut run = Run { now: self.now, newest: self.newest, undecodable: 0, drained: Drained::default(), sink };
        due.clear(horizon);
        for (index, slot) in slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            if let Some(key) = run.settle(slot) {
                run.drained.held |= !due.push(index, key);
            }
        }
        due.build(self.now);
        while let Some(first) = due.first() {
            if run.deliver(slots, store, due, first).is_break() {
                run.drained.stopped = true;
                break;
            }
        }
        self.newest = run.newest;
        self.undecodable += run.undecodable;
        run.drained
    }

    /// Ends a round: gives the room of all delivered records back to the kernel.
    pub fn publish(&mut self) {
        for slot in &mut self.slots {
            let Some(ring) = slot else { continue };
            ring.publish();
            if ring.has_left() {
                *slot = None;
                self.rings -= 1;
            }
        }
    }

    /// A ring is so full after its `publish` that it may overflow before its half-full watermark wakes anybody.
    pub fn is_crowded(&self) -> bool {
        self.slots.iter().flatten().any(|slot| slot.ring.backlog() > slot.ring.size() / 4)
    }

    /// The most bytes ever seen waiting in a ring, 0 if there is no such ring.
    pub fn backlog_peak(&self, ring: usize) -> u64 {
        self.slot(ring).map_or(0, |slot| slot.ring.backlog_peak())
    }

    /// How often the rest of a ring's snapshot was skipped, see [`ItemKind::Corrupt`].
    pub fn corrupt(&self, ring: usize) -> u64 {
        self.slot(ring).map_or(0, |slot| slot.ring.corrupt())
    }

    /// Records that were `Stamp::Bad`.
    pub fn undecodable(&self) -> u64 {
        self.undecodable
    }

    fn slot(&self, ring: usize) -> Option<&Slot> {
        self.slots.get(ring)?.as_ref()
    }

    fn slot_mut(&mut self, ring: usize) -> Option<&mut Slot> {
        self.slots.get_mut(ring)?.as_mut()
    }
}

/// What one `drain` carries from ring to ring.
struct Run<'a, S> {
    now: u64,
    newest: u64,
    undecodable: u64,
    drained: Drained,
    sink: &'a mut S,
}

impl<S: Sink> Run<'_, S> {
    /// Hands records over in pieces, as long as they are taken so. Else delivers the next item of the ring that is `first`.
    #[inline]
    fn deliver(
        &mut self,
        slots: &mut [Option<Slot>],
        store: &mut Store,
        due: &mut Due,
        first: usize,
    ) -> ControlFlow<()> {
        let mut whose = Some(first);
        let mut records = 0;
        if let Some((turns, turn)) = Turns::new(slots, store, due, first) {
            let mut piece = Piece::new(Some(turns), turn, self.newest);
            let flow = self.sink.take_piece(&mut piece);
            let taken = piece.end();
            (whose, records, self.newest) = (taken.first, taken.records, taken.newest);
            self.drained.records += taken.records;
            self.drained.late += taken.late;
            for taken in store.taken.drain(..) {
                self.drained.bytes += taken.bytes as u64;
                self.drained.held |= taken.next.is_some_and(|time| time > due.horizon());
                if let Some(Some(slot)) = slots.get_mut(taken.ring) {
                    slot.pass(&taken);
                }
            }
            flow?;
        }
        let Some(leaf) = whose else { return ControlFlow::Continue(()) };
        let Some(ring) = due.ring(leaf) else { return ControlFlow::Break(()) };
        let Some(Some(slot)) = slots.get_mut(ring) else { return ControlFlow::Break(()) };
        if records == 0 {
            self.deliver_one(slot, ring)?;
        }
        let key = self.settle(slot);
        self.drained.held |= key.is_some_and(|key| key > due.horizon());
        due.replace(leaf, key);
        ControlFlow::Continue(())
    }

    /// Delivers the next item of a ring.
    #[inline]
    fn deliver_one(&mut self, slot: &mut Slot, ring: usize) -> ControlFlow<()> {
        let (time, after) = (slot.time, slot.last);
        let mut late = false;
        let kind = match slot.next {
            Next::Record => {
                late = time < self.newest;
                self.newest = self.newest.max(time);
                self.drained.late += u64::from(late);
                slot.last = time;
                slot.ring.peek().map(ItemKind::Record)
            }
            Next::Here => slot.ring.peek().map(ItemKind::Record),
            Next::Gap if slot.skipped => Some(ItemKind::Corrupt),
            Next::Gap => Some(ItemKind::Gap),
            Next::Unknown => None,
        };
        let gap = slot.next == Next::Gap;
        let flow = match kind {
            Some(kind) => self.sink.take(Item { ring, time, after, late, kind }),
            None => ControlFlow::Continue(()), // a settled slot has its item
        };
        if gap {
            (slot.gap, slot.skipped) = (NO_GAP, false);
        } else {
            self.drained.bytes += slot.ring.advance();
            self.drained.records += 1;
            slot.publish_in_time();
        }
        slot.next = Next::Unknown;
        flow
    }

    /// Finds out what comes next from `slot`, and its key: its time among the rings.
    #[inline(always)]
    fn settle(&mut self, slot: &mut Slot) -> Option<u64> {
        while slot.next == Next::Unknown {
            if slot.ring.position() >= slot.gap {
                slot.next = Next::Gap;
                slot.time = slot.until;
                break;
            }
            let Some(bytes) = slot.ring.peek() else {
                if slot.ring.corrupt() == slot.corrupt {
                    return None;
                }
                slot.mark_corrupt(self.now);
                continue;
            };
            match self.sink.stamp(bytes) {
                Stamp::At(time) => (slot.next, slot.time) = (Next::Record, time),
                Stamp::Here(time) => (slot.next, slot.time) = (Next::Here, time),
                Stamp::Bad => {
                    self.undecodable += 1;
                    slot.ring.advance();
                }
            }
        }
        // What tells of a loss belongs right after the record before it.
        Some(if slot.next == Next::Record { slot.time } else { slot.last })
    }
}

impl Slot {
    /// Takes a new snapshot. Gives whether a record may have been dropped.
    fn load(&mut self, now: u64) -> bool {
        self.tight |= self.ring.load();
        if self.leaving == Leaving::Asked {
            self.leaving = Leaving::Loaded;
        }
        if self.corrupt_since {
            self.corrupt_since = false;
            self.skipped = true;
            self.mark_gap(self.ring.position(), now);
        }
        if self.ring.corrupt() != self.corrupt {
            self.next = Next::Unknown; // it was skipped
            self.mark_corrupt(now);
        }
        self.tight
    }

    /// The next record and what lies behind it, up to a gap, if it is an ordinary one.
    #[inline]
    pub(super) fn piece(&self) -> Option<&[u8]> {
        if self.next != Next::Record {
            return None;
        }
        // No more, as a long drain must not let the ring overflow.
        let most = (self.ring.size() / 4 + 1).saturating_sub(self.ring.passed());
        Some(self.ring.piece(most.min(self.gap.saturating_sub(self.ring.position()))))
    }

    /// Stamp of the last record delivered.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// See [`RingBuf::ahead`].
    #[inline]
    pub(super) fn ahead(&self) -> isize {
        self.ring.ahead() as isize
    }

    /// Passes what was taken of the piece.
    #[inline]
    fn pass(&mut self, taken: &Taken) {
        self.ring.pass(taken.bytes as u64, taken.rest as u64);
        (self.next, self.last) = (Next::Unknown, taken.last);
        // Peeked at, as a settled one is: only then it is known not to be taken back.
        if let Some(time) = taken.next.filter(|_| self.ring.peek().is_some()) {
            (self.next, self.time) = (Next::Record, time);
        }
        self.publish_in_time();
    }

    fn publish(&mut self) {
        if self.ring.passed() > 0 {
            self.tight |= self.ring.publish();
        }
    }

    /// A long drain must not let the ring overflow.
    #[inline]
    fn publish_in_time(&mut self) {
        if self.ring.passed() > self.ring.size() / 4 {
            self.publish();
        }
    }

    /// Two gaps become one that covers both: the earlier place, the later time.
    fn mark_gap(&mut self, position: u64, until: u64) {
        self.gap = self.gap.min(position);
        self.until = self.until.max(until);
    }

    /// What was skipped is a loss that no counter has: up to `now`, as far as other rings are
    /// delivered in this round, and up to the next round's clock after that.
    fn mark_corrupt(&mut self, now: u64) {
        self.corrupt = self.ring.corrupt();
        self.corrupt_since = true;
        self.skipped = true;
        self.mark_gap(self.ring.position(), now);
    }

    fn has_left(&self) -> bool {
        let drained = self.ring.backlog() == 0 && self.gap == NO_GAP && !self.corrupt_since;
        self.leaving == Leaving::Loaded && drained
    }
}
