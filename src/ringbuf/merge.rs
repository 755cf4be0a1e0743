//! Many ring buffers as one stream of records in time order.

use std::ops::ControlFlow;

use super::RingBuf;
use super::due::Due;
use super::piece::Piece;

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

    /// Takes deliveries off a piece, as many as it can; the first of those that are left comes to `take`.
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
    tight: Vec<usize>, // for `next_tight`
}

/// One ring, and what is known of its next item.
struct Slot {
    ring: RingBuf,
    next: Next,
    time: u64,           // of `next`
    ahead: Option<u64>,  // time of the ordinary record that comes after `next`
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

/// A ring that stays first so many times is in a run of records. To find out how long it can go on costs more than it
/// saves in shorter runs, and two records are usual: a wake-up and the switch after it.
const STAYS_FIRST: u64 = 2;

/// Of so many rings each goes on as long as it is first: that is soon found out.
const FEW: usize = 4;

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
            ahead: None,
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
        let mut run = Run { now: self.now, newest: self.newest, undecodable: 0, drained: Drained::default(), sink };
        self.due.clear(horizon);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            if let Some(key) = run.settle(slot) {
                run.drained.held |= !self.due.push(index, key);
            }
        }
        self.due.build(self.now);
        let are_few = self.due.len() <= FEW;
        let (mut before, mut stayed) = (usize::MAX, 0_u64);
        while let Some(first) = self.due.first() {
            let Some(Some(slot)) = self.slots.get_mut(first.ring) else {
                break;
            };
            stayed = if first.ring == before { stayed + 1 } else { 0 };
            before = first.ring;
            // One of few, or who has stayed first, goes on as long as it is first. Else the next turn is settled before this
            // item is used: what it takes to find out goes on meanwhile.
            let limit = (are_few || stayed >= STAYS_FIRST).then(|| self.due.limit(first));
            let replaced = limit.is_none() && self.due.replace_known(first);
            let ControlFlow::Continue(key) = run.deliver(slot, first.ring, limit) else {
                run.drained.stopped = true;
                break;
            };
            run.drained.held |= key.is_some_and(|key| key > horizon);
            if !replaced {
                self.due.replace(first, key);
            }
            self.due.look_ahead(first, if are_few { None } else { run.look_ahead(slot) });
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
    /// Delivers the next item of `slot`, and those that follow as long as their key is not above `limit`.
    /// Gives the key of the next, if there is one.
    #[inline]
    fn deliver(&mut self, slot: &mut Slot, ring: usize, limit: Option<u64>) -> ControlFlow<(), Option<u64>> {
        loop {
            if let Some(limit) = limit
                && slot.next == Next::Record
                && slot.gap == NO_GAP
                && self.deliver_piece(slot, ring, limit)?
            {
                match self.settle(slot) {
                    Some(key) if key <= limit => continue,
                    key => return ControlFlow::Continue(key),
                }
            }
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
            flow?;
            match (self.settle(slot), limit) {
                (Some(key), Some(limit)) if key <= limit => {}
                (key, _) => return ControlFlow::Continue(key),
            }
        }
    }

    /// Hands over what lies in one piece from the settled record of `slot` on, up to `limit`. False if nothing of it was taken.
    #[inline]
    fn deliver_piece(&mut self, slot: &mut Slot, ring: usize, limit: u64) -> ControlFlow<(), bool> {
        // No more, as a long drain must not let the ring overflow.
        let most = (slot.ring.size() / 4 + 1).saturating_sub(slot.ring.passed());
        let bytes = slot.ring.piece(most);
        let mut piece = Piece::new(ring, bytes, slot.ring.ahead(), limit, self.newest, slot.last);
        let flow = self.sink.take_piece(&mut piece);
        let taken = piece.taken();
        if taken.records > 0 {
            let passed = (bytes.len() - taken.rest) as u64;
            slot.ring.pass(passed, taken.rest as u64);
            (slot.next, slot.ahead, slot.last, self.newest) = (Next::Unknown, None, taken.last, taken.newest);
            // Peeked at, as a settled one is: only then it is known not to be taken back.
            if let Some(time) = taken.beyond.filter(|_| slot.ring.peek().is_some()) {
                (slot.next, slot.time) = (Next::Record, time);
            }
            self.drained.records += taken.records;
            self.drained.bytes += passed;
            self.drained.late += taken.late;
            slot.publish_in_time();
        }
        flow.map_continue(|()| taken.records > 0)
    }

    /// Finds out what comes next from `slot`, and its key: its time among the rings.
    #[inline(always)]
    fn settle(&mut self, slot: &mut Slot) -> Option<u64> {
        while slot.next == Next::Unknown {
            if let Some(time) = slot.ahead.take() {
                (slot.next, slot.time) = (Next::Record, time);
                break;
            }
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

    /// Finds out what comes after the settled record of `slot`, if that is an ordinary record too. Gives its key.
    #[inline]
    fn look_ahead(&mut self, slot: &mut Slot) -> Option<u64> {
        if slot.next != Next::Record || slot.ring.second_position() >= slot.gap {
            return None;
        }
        if let Stamp::At(time) = self.sink.stamp(slot.ring.peek_second()?) {
            slot.ahead = Some(time);
        }
        slot.ahead
    }
}

impl Slot {
    /// Takes a new snapshot. Gives whether a record may have been dropped.
    fn load(&mut self, now: u64) -> bool {
        self.tight |= self.ring.load();
        self.ahead = None;
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
