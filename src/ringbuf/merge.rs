//! Many ring buffers as one stream of records in time order.

use std::ops::ControlFlow;

use super::RingBuf;
use super::item::{Item, ItemKind, Stamp};
use super::loser_tree::LoserTree;
use super::record_run::RecordRun;
use super::record_sink::RecordSink;
use super::ring_switch::{RingSwitch, RingSwitcher, SwitchBuffers};
use super::slot::{Leaving, NO_GAP, NextItem, Slot};
use super::spans::{DeliveryOrder, SpanFinder, TurnsSeen};

/// The stamp up to which a [`drain`](Merge::drain) delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainLimit {
    /// Up to the clock reading of the previous round, below which the snapshots of all rings are complete. With a
    /// single ring this is `All`.
    Horizon,
    /// Everything in the snapshots: the last drain.
    All,
}

/// The outcome of a [`drain`](Merge::drain).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Records delivered, late ones included; gaps do not count.
    pub records: u64,
    pub bytes: u64,
    pub late: u64,
    /// Some records are above the horizon: the next round should come soon.
    pub held: bool,
    /// The consumer ended the drain. The record at which it did so counts as delivered.
    pub stopped: bool,
}

/// The time-ordered merge of ring buffers.
#[derive(Default)]
pub struct Merge {
    slots: Vec<Option<Slot>>, // by ring index; `None` is free
    rings: usize,             // number of slots that are not `None`
    now: u64,                 // the clock of the last `load`
    horizon: u64,             // last ns before the `now` of the `load` before that
    newest: u64,              // highest stamp delivered
    undecodable: u64,
    tree: LoserTree, // the rings that have an item up to the horizon
    buffers: SwitchBuffers,
    spans: SpanFinder,
    near_full: Vec<usize>, // for `next_near_full`
}

impl Merge {
    pub fn new() -> Merge {
        Merge::default()
    }

    /// Delivers ring by ring wherever that is possible, even if it is slower.
    #[cfg(test)]
    pub fn read_by_ring(&mut self) {
        self.spans = SpanFinder::persistent();
    }

    /// Adds a ring and returns its index, the lowest free one. The ring keeps it until it is unmapped.
    pub fn add(&mut self, ring: RingBuf) -> usize {
        let slot = Slot::new(ring);
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

    /// Removes a ring that no event writes to any more. The ring is loaded once more, and its records are delivered in
    /// order; the `publish` that finds it empty unmaps it and frees its index.
    pub fn remove(&mut self, ring: usize) {
        if let Some(slot) = self.slot_mut(ring)
            && slot.leaving == Leaving::No
        {
            slot.leaving = Leaving::Asked;
        }
    }

    /// Whether `ring` is still in the merge.
    pub fn has(&self, ring: usize) -> bool {
        self.slot(ring).is_some()
    }

    /// Number of rings in the merge.
    pub fn len(&self) -> usize {
        self.rings
    }

    pub fn is_empty(&self) -> bool {
        self.rings == 0
    }

    /// Begins a round: takes a snapshot of every ring. `now` is the ring clock, read just before.
    pub fn load(&mut self, now: u64) {
        // Strictly before: another CPU can still stamp a record with the very nanosecond of the reading.
        self.horizon = self.now.saturating_sub(1);
        self.now = now;
        self.near_full.clear();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            if slot.load(now) {
                self.near_full.push(index);
            }
        }
    }

    /// The next ring that was so full since this function last returned it that the kernel may have dropped a record.
    /// If its lost counters are read now, they include every drop up to this round's horizon.
    pub fn next_near_full(&mut self) -> Option<usize> {
        let ring = self.near_full.pop()?;
        if let Some(slot) = self.slot_mut(ring) {
            slot.near_full = false;
        }
        Some(ring)
    }

    /// To be called when the lost counters of `ring` count more drops than its LOST records *delivered so far*; `now`
    /// is the ring clock, read after the counters. Delivers an [`ItemKind::Gap`] after the last record of the snapshot.
    /// By then the LOST records of the snapshot have been delivered too: if these account for all counted drops, the
    /// gap can be ignored.
    pub fn mark_gap(&mut self, ring: usize, now: u64) {
        if let Some(slot) = self.slot_mut(ring) {
            slot.mark_gap(slot.ring.end(), now);
        }
    }

    /// [`drain_into`](Merge::drain_into), with two functions as the consumer.
    pub fn drain(
        &mut self,
        limit: DrainLimit,
        stamp: impl Fn(&[u8]) -> Stamp,
        each: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Drained {
        self.drain_into(limit, &mut (stamp, each))
    }

    /// Delivers the records of the snapshots in time order, each ring in its own order.
    pub fn drain_into(&mut self, limit: DrainLimit, sink: &mut impl RecordSink) -> Drained {
        let horizon = if limit == DrainLimit::All || self.rings < 2 { u64::MAX } else { self.horizon };
        let Merge { slots, tree, buffers, spans, .. } = self;
        let mut run = Drain { now: self.now, newest: self.newest, undecodable: 0, drained: Drained::default(), sink };
        let mut flow = ControlFlow::Continue(());
        let mut first = run.settle_all(slots);
        while flow.is_continue()
            && let Some(key) = first.filter(|key| *key <= horizon)
        {
            let has_keys = run.sink.has_order_keys();
            let next =
                if has_keys { spans.next(slots, key, horizon, run.sink) } else { DeliveryOrder::ByTime(horizon) };
            flow = match next {
                DeliveryOrder::ByRing(until) => run.deliver_by_ring(slots, until),
                DeliveryOrder::ByTime(until) => {
                    let (records, switches) = (run.drained.records, buffers.switches);
                    let flow = run.deliver_by_time(slots, buffers, tree, until);
                    spans.saw(TurnsSeen {
                        records: run.drained.records - records,
                        switches: buffers.switches - switches,
                    });
                    flow
                }
            };
            first = run.settle_all(slots);
        }
        run.drained.stopped = flow.is_break();
        run.drained.held = slots.iter().flatten().any(|slot| slot.key().is_some_and(|key| key > horizon));
        self.newest = run.newest;
        self.undecodable += run.undecodable;
        run.drained
    }

    /// Ends a round: returns the room of all delivered records to the kernel.
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

    /// A ring is so full after its `publish` that it may overflow before its watermark wakes the reader.
    pub fn is_backlogged(&self) -> bool {
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

/// The state of one drain.
struct Drain<'a, S> {
    now: u64,
    newest: u64,
    undecodable: u64,
    drained: Drained,
    sink: &'a mut S,
}

impl<S: RecordSink> Drain<'_, S> {
    /// Finds the next item of each ring. Returns the lowest key.
    fn settle_all(&mut self, slots: &mut [Option<Slot>]) -> Option<u64> {
        let slots = slots.iter_mut().enumerate().filter_map(|(ring, slot)| Some((ring, slot.as_mut()?)));
        slots.filter_map(|(ring, slot)| self.settle(slot, ring)).min()
    }

    /// Delivers the items of all rings up to a time, in time order.
    fn deliver_by_time(
        &mut self,
        slots: &mut [Option<Slot>],
        buffers: &mut SwitchBuffers,
        tree: &mut LoserTree,
        until: u64,
    ) -> ControlFlow<()> {
        tree.clear(until);
        for (index, slot) in slots.iter().enumerate() {
            if let Some(key) = slot.as_ref().and_then(Slot::key) {
                tree.push(index, key);
            }
        }
        tree.build(self.now);
        while let Some(first) = tree.first() {
            self.deliver(slots, buffers, tree, first)?;
        }
        ControlFlow::Continue(())
    }

    /// Delivers the records of each ring up to a time, one ring after the other.
    fn deliver_by_ring(&mut self, slots: &mut [Option<Slot>], until: u64) -> ControlFlow<()> {
        let (before, mut newest) = (self.newest, self.newest);
        let mut flow = ControlFlow::Continue(());
        for (ring, slot) in slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            self.newest = before; // records are not late because of the rings delivered before
            let from = slot.ring.position();
            while flow.is_continue() && slot.next == NextItem::Record && slot.time <= until {
                flow = self.deliver_piece(slot, ring, until);
                self.settle(slot, ring);
            }
            newest = newest.max(self.newest);
            slot.visit_bytes = slot.ring.position().wrapping_sub(from) as usize;
            slot.publish_early();
        }
        self.newest = newest;
        flow
    }

    /// Delivers the records of a ring's piece up to a time, or its next record alone.
    #[inline]
    fn deliver_piece(&mut self, slot: &mut Slot, ring: usize, until: u64) -> ControlFlow<()> {
        if let Some(rest) = slot.piece() {
            let bytes = rest.len();
            let switch = RingSwitch { ring, rest, last: slot.last(), limit: until };
            let mut run = RecordRun::new(None, switch, self.newest);
            run.prefetch_from(slot.visit_bytes); // the memory has arrived by the next visit
            let flow = self.sink.take_run(&mut run);
            let (piece, taken) = run.end_of_piece(bytes);
            if taken.records > 0 {
                self.drained.records += taken.records;
                self.drained.late += taken.late;
                self.drained.bytes += piece.bytes as u64;
                self.newest = taken.newest;
                slot.pass(&piece);
                return flow;
            }
            flow?;
        }
        self.deliver_one(slot, ring)
    }

    /// Delivers a run of records that begins with the `first` ring, or only the next item of that ring.
    #[inline]
    fn deliver(
        &mut self,
        slots: &mut [Option<Slot>],
        buffers: &mut SwitchBuffers,
        tree: &mut LoserTree,
        first: usize,
    ) -> ControlFlow<()> {
        let mut next = Some(first);
        let mut records = 0;
        if let Some((switcher, switch)) = RingSwitcher::new(slots, buffers, tree, first) {
            let mut piece = RecordRun::new(Some(switcher), switch, self.newest);
            let flow = self.sink.take_run(&mut piece);
            let taken = piece.end();
            (next, records, self.newest) = (taken.first, taken.records, taken.newest);
            self.drained.records += taken.records;
            self.drained.late += taken.late;
            for taken in buffers.taken.drain(..) {
                self.drained.bytes += taken.bytes as u64;
                if let Some(Some(slot)) = slots.get_mut(taken.ring) {
                    slot.pass(&taken);
                }
            }
            flow?;
        }
        let Some(leaf) = next else { return ControlFlow::Continue(()) };
        let Some(ring) = tree.ring(leaf) else { return ControlFlow::Break(()) };
        let Some(Some(slot)) = slots.get_mut(ring) else { return ControlFlow::Break(()) };
        if records == 0 {
            self.deliver_one(slot, ring)?;
        }
        let key = self.settle(slot, ring);
        tree.replace(leaf, key);
        ControlFlow::Continue(())
    }

    /// Delivers the next item of a ring.
    #[inline]
    fn deliver_one(&mut self, slot: &mut Slot, ring: usize) -> ControlFlow<()> {
        let (time, after) = (slot.time, slot.last);
        let mut late = false;
        let kind = match slot.next {
            NextItem::Record => {
                late = time < self.newest;
                self.newest = self.newest.max(time);
                self.drained.late += u64::from(late);
                slot.last = time;
                slot.ring.peek().map(ItemKind::Record)
            }
            NextItem::Here => slot.ring.peek().map(ItemKind::Record),
            NextItem::Gap if slot.skipped => Some(ItemKind::Corrupt),
            NextItem::Gap => Some(ItemKind::Gap),
            NextItem::Unknown => None,
        };
        let gap = slot.next == NextItem::Gap;
        let flow = match kind {
            Some(kind) => self.sink.take(Item { ring, time, after, late, kind }),
            None => ControlFlow::Continue(()), // impossible: a settled slot has an item
        };
        if gap {
            (slot.gap, slot.skipped) = (NO_GAP, false);
        } else {
            self.drained.bytes += slot.ring.advance();
            self.drained.records += 1;
            slot.publish_in_time();
        }
        slot.next = NextItem::Unknown;
        flow
    }

    /// Finds the next item of `slot`, and its key in the tree.
    #[inline(always)]
    fn settle(&mut self, slot: &mut Slot, ring: usize) -> Option<u64> {
        while slot.next == NextItem::Unknown {
            if slot.ring.position() >= slot.gap {
                if !slot.skipped && slot.last > slot.until {
                    slot.gap = NO_GAP; // LOST records account for all drops that the counters had
                    continue;
                }
                // A LOST record at this place says when the loss ended; further drops in the counters belong to a later
                // loss. In a ring that overflows all the time, the counters were read long after the records that
                // follow here.
                if !slot.skipped
                    && let Some(Stamp::Here(time)) = slot.ring.peek().map(|bytes| self.sink.stamp(ring, bytes))
                {
                    slot.gap = slot.ring.end();
                    (slot.next, slot.time) = (NextItem::Here, time);
                    break;
                }
                slot.next = NextItem::Gap;
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
            match self.sink.stamp(ring, bytes) {
                Stamp::At(time) => (slot.next, slot.time) = (NextItem::Record, time),
                Stamp::Here(time) => (slot.next, slot.time) = (NextItem::Here, time),
                Stamp::Bad => {
                    self.undecodable += 1;
                    slot.ring.advance();
                }
            }
        }
        slot.key()
    }
}
