//! Spans of time in which the rings need no order among each other.
//!
//! The records of one thread must be delivered in time order; records of two threads need not, if the consumer says so
//! ([`RecordSink::order_keys`]). Then a whole span of time is delivered ring by ring: the next record is the next one
//! in memory, and needs no tournament. A span ends
//!
//! - where the contiguous piece of a ring ends, although the ring has more records;
//! - before an item that has no key: a side record, a loss or a gap must come after all older records, and before all
//!   others;
//! - before a key appears in a second ring: a thread has migrated, and its records there come after those in the first
//!   ring.
//!
//! So within a span all records of a key are in one ring, in whose order they are delivered, and every item without a
//! key is delivered between two spans. Exchanging neighbours with different keys changes nothing for the consumer, and
//! turns this order into time order.

use rustc_hash::FxHashMap;

use super::Stamp;
use super::record_run::prefetch_behind;
use super::record_sink::RecordSink;
use super::ring::{AHEAD_BYTES, first_record};
use super::slot::Slot;

/// Records of a span, if nothing ends it sooner. Each record is read twice and should still be in the cache the second
/// time; and each ring must have enough records to be worth a visit.
const RECORDS: u64 = 2048;
const RECORDS_OF_RING: u64 = 64;

/// With fewer records for each ring a span costs more than the tournament.
const MIN_RECORDS_OF_RING: u64 = 8;

/// Average records in a row from one ring, in tenths, above which the tournament costs less: it is played only when a
/// ring's row ends.
const MAX_RECORDS_IN_A_ROW: u64 = 25;

/// Number of spans after which the frequency of alternation is measured again.
const SPANS: u32 = 16;
/// Records needed to measure how often the rings alternate.
const MIN_RECORDS_SEEN: u64 = 64;

const MIN_LENGTH_NS: u64 = 1_000;
const MAX_LENGTH_NS: u64 = 100_000_000;

/// How the records from here on are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryOrder {
    /// Ring by ring, up to this time.
    ByRing(u64),
    /// In time order, up to this time.
    ByTime(u64),
}

/// Finds spans.
#[derive(Debug)]
pub(super) struct SpanFinder {
    /// By key, the ring and the time of its first record in the span.
    firsts: FxHashMap<u64, (usize, u64)>,
    /// Length of the next span, if nothing ends it sooner.
    length_ns: u64,
    /// Number of spans until records are next delivered in time order, to measure the alternation.
    left: u32,
    pause_ns: u64,
    seen: TurnsSeen,
}

/// How often the rings alternated while records were delivered in time order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnsSeen {
    pub records: u64,
    pub switches: u64,
}

/// The span found so far.
struct FoundSpan {
    until: u64,
    rings: u64,
    records: u64,
}

impl Default for SpanFinder {
    fn default() -> SpanFinder {
        SpanFinder {
            firsts: FxHashMap::default(),
            length_ns: MIN_LENGTH_NS,
            left: 0,
            pause_ns: MIN_LENGTH_NS,
            seen: TurnsSeen::default(),
        }
    }
}

impl SpanFinder {
    /// Decides the delivery from `first` on, the lowest key of the settled `slots`.
    pub fn next(&mut self, slots: &[Option<Slot>], first: u64, horizon: u64, sink: &impl RecordSink) -> DeliveryOrder {
        let due = slots.iter().flatten().filter(|slot| slot.key().is_some_and(|key| key <= horizon));
        if due.take(2).count() < 2 {
            return DeliveryOrder::ByTime(horizon);
        }
        if self.left > 0 {
            self.left -= 1;
            let until = self.find(slots, first, horizon, sink);
            if until >= first {
                return DeliveryOrder::ByRing(until);
            }
        }
        DeliveryOrder::ByTime(first.saturating_add(self.pause_ns.max(self.length_ns)).min(horizon))
    }

    /// Takes the measurement of a delivery in time order.
    pub fn saw(&mut self, turns: TurnsSeen) {
        self.seen.records += turns.records;
        self.seen.switches += turns.switches;
        if self.seen.records < MIN_RECORDS_SEEN {
            return;
        }
        if self.seen.records * 10 < self.seen.switches * MAX_RECORDS_IN_A_ROW {
            self.left = SPANS;
        } else {
            self.pause_longer();
        }
        self.seen = TurnsSeen::default();
    }

    /// A finder that always looks for spans.
    #[cfg(test)]
    pub fn persistent() -> SpanFinder {
        SpanFinder { left: u32::MAX, length_ns: 20 * MIN_LENGTH_NS, ..SpanFinder::default() }
    }

    fn pause_longer(&mut self) {
        self.pause_ns = (self.pause_ns * 2).min(MAX_LENGTH_NS);
    }

    /// The end of the span that begins with `first`. An end before `first`: there is no span.
    fn find(&mut self, slots: &[Option<Slot>], first: u64, horizon: u64, sink: &impl RecordSink) -> u64 {
        let wanted = first.saturating_add(self.length_ns).min(horizon);
        let span = self.look(slots, first, wanted, sink);
        let is_cut = span.until < wanted;
        self.length_ns = if is_cut {
            span.until.saturating_sub(first) * 2
        } else if span.records > RECORDS.max(RECORDS_OF_RING * span.rings) {
            self.length_ns / 2
        } else {
            self.length_ns * 2
        }
        .clamp(MIN_LENGTH_NS, MAX_LENGTH_NS);
        if span.until < first || is_cut && span.records < MIN_RECORDS_OF_RING * span.rings {
            self.left = self.left.saturating_sub(SPANS);
            self.pause_longer();
        } else {
            self.pause_ns = (self.pause_ns / 2).max(MIN_LENGTH_NS);
        }
        span.until
    }

    /// The longest span from `first` up to `wanted` at most.
    fn look(&mut self, slots: &[Option<Slot>], first: u64, wanted: u64, sink: &impl RecordSink) -> FoundSpan {
        let mut span = FoundSpan { until: wanted, rings: 0, records: 0 };
        self.firsts.clear();
        for (ring, slot) in slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            if span.until >= first && slot.key().is_some_and(|key| key <= span.until) {
                let (until, records) = self.look_at(ring, slot, span.until, sink);
                span.until = span.until.min(until);
                span.rings += 1;
                span.records += records;
            }
        }
        span
    }

    /// The end of a span up to `until` after looking at `slot`, and the number of the slot's records in it.
    fn look_at(&mut self, ring: usize, slot: &Slot, mut until: u64, sink: &impl RecordSink) -> (u64, u64) {
        let Some(piece) = slot.piece() else { return (slot.key().map_or(until, before), 0) };
        let order_key = sink.order_keys(ring);
        let (mut rest, mut newest, mut key, mut records) = (piece, slot.time, None, 0);
        while let Some((record, behind)) = first_record(rest) {
            let Some((time, of_record)) = order_key(record) else {
                match sink.stamp(ring, record) {
                    Stamp::At(time) if time > until => return (until, records),
                    Stamp::At(time) => newest = newest.max(time),
                    Stamp::Here(_) | Stamp::Bad => {} // delivered right behind the record before it
                }
                break;
            };
            if time > until {
                return (until, records);
            }
            newest = newest.max(time); // a late record comes right behind the record before it
            if key != Some(of_record) {
                key = Some(of_record);
                until = until.min(self.end_of_key(of_record, ring, newest));
                if newest > until {
                    return (until, records);
                }
            }
            records += 1;
            prefetch_behind(behind, AHEAD_BYTES as usize, record.len());
            rest = behind;
        }
        (if rest.is_empty() && slot.ends_with(piece) { until } else { before(newest) }, records)
    }

    /// The end that the key of a record in `ring` at `time` sets to the span.
    fn end_of_key(&mut self, key: u64, ring: usize, time: u64) -> u64 {
        let first = self.firsts.entry(key).or_insert((ring, time));
        if first.0 == ring {
            return u64::MAX;
        }
        let second = first.1.max(time);
        *first = if time < first.1 { (ring, time) } else { *first };
        before(second)
    }
}

/// The end of a span that stops before `time`.
fn before(time: u64) -> u64 {
    time.saturating_sub(1)
}
