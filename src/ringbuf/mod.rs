//! The path of a record from the kernel's memory to the decoder.
//!
//! The kernel writes records into one ring buffer per CPU and moves `data_head`. A [`RingBuf`] maps
//! one ring: `load` takes a snapshot of the head, `peek` lends the next record where it lies, and
//! `publish` moves `data_tail` once for all passed records, which returns their room to the kernel. A [`Merge`] makes
//! one stream in time order out of many rings, without copying a record. Its caller runs rounds:
//!
//! ```text
//! let now = clock();                       // before the heads
//! merge.load(now);                         // all heads
//! while let Some(ring) = merge.next_near_full() {
//!     if counters_of(ring) > told_by_lost_records_so_far(ring) { merge.mark_gap(ring, clock()); }
//! }
//! let drained = merge.drain(DrainLimit::Horizon, stamp_of, each);
//! merge.publish();                         // all tails; again within 2 ms when `drained.held`
//! ```
//!
//! **The horizon.** A record is stamped a moment before it is published, so a snapshot may lack
//! a record that is older than one it has. But what was stamped before the *previous* round read
//! its clock has been published by the time *this* round loads the heads: those moments are
//! microseconds, rounds are milliseconds apart. So up to the previous `now` every snapshot is complete, and later
//! records wait in their rings. A record that is late nevertheless (a virtual CPU was stopped between the two; an
//! interrupt reserved its record inside that of another) is delivered at once, with its own stamp and `late` set.
//!
//! **Many rings.** A tournament over one small array finds the first ring. The memory of a ring is prefetched a
//! kilobyte ahead. So a record costs little more with 128 rings than with 16.
//!
//! **Switching rings.** The consumer gets the records that the first ring has in one piece as a [`RecordRun`], with the
//! time up to which that ring stays first. After that time the run goes on with the ring that is first then
//! ([`RecordRun::go_on`]): the consumer need not return to the merge, whether one CPU is busy or the rings alternate at
//! every record. A piece ends where its ring wraps, at a gap, and at a quarter of the ring, so that room is returned in
//! time. Records that are not ordinary, not contiguous or not taken from the run are delivered as an [`Item`] each.
//!
//! **Ring by ring.** A consumer may need time order only among the records of each thread ([`RecordSink::order_keys`]).
//! If the rings alternate at nearly every record, a span of time is then delivered ring by ring. The span ends at the
//! next record or loss that must keep its place among all records, or at a thread's first record in a second ring. All
//! records of the span are checked first, which costs less than the tournament. `spans` has the argument.
//!
//! **Loss.** A record that does not fit is dropped. The kernel reports it only when the next record fits, by a LOST
//! record before that one, so a drop lies between the record delivered before from that ring ([`Item::after`]) and the
//! LOST record's own time. That can be too late, since other rings are delivered meanwhile. So a ring that was near
//! full (`next_near_full`) has its lost counters read, and a gap is marked where its snapshot ends. Either way one item
//! with the window comes before every record stamped after the drop. A profiler that pairs records must drop every pair
//! with `open < time && close > after`. Rings of up to 64 KiB are always near full, since one record can be that long.

mod item;
mod loser_tree;
mod memory;
mod merge;
mod prefetch;
mod record_run;
mod record_sink;
mod ring;
mod ring_switch;
pub mod sim;
mod slot;
mod spans;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod ring_tests;

pub use item::{Item, ItemKind, Stamp};
pub use merge::{DrainLimit, Drained, Merge};
pub use record_run::{RecordRun, RecordWalk};
pub use record_sink::RecordSink;
pub use ring::RingBuf;
