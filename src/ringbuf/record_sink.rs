//! The consumer of the records of a merge.

use std::ops::ControlFlow;

use super::item::{Item, Stamp};
use super::record_run::RecordRun;

/// The consumer of a [`drain`](super::Merge::drain_into).
pub trait RecordSink {
    /// The stamp of a record of a ring.
    fn stamp(&self, ring: usize, record: &[u8]) -> Stamp;

    /// The function that gives the stamp and the order key of an ordinary record of `ring`. Records with equal keys,
    /// such as those of a thread, are delivered in time order; records of two rings with different keys may come in any
    /// order. None: the record must be delivered in order with all others.
    fn order_keys(&self, ring: usize) -> impl Fn(&[u8]) -> Option<(u64, u64)> {
        let _ = ring;
        |_| None
    }

    /// False: no record has an order key.
    fn has_order_keys(&self) -> bool {
        false
    }

    /// Takes a delivery. `Break` ends the drain.
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()>;

    /// Takes as many records from a run as it wants. If it takes none, the first record goes to `take`.
    #[inline(always)]
    fn take_run(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        while let Some(item) = piece.next_item(|ring, record| self.stamp(ring, record)) {
            self.take(item)?;
        }
        ControlFlow::Continue(())
    }
}

/// Two functions: [`RecordSink::stamp`] and [`RecordSink::take`].
impl<S: Fn(&[u8]) -> Stamp, E: FnMut(Item<'_>) -> ControlFlow<()>> RecordSink for (S, E) {
    #[inline]
    fn stamp(&self, _ring: usize, record: &[u8]) -> Stamp {
        (self.0)(record)
    }

    #[inline]
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        (self.1)(item)
    }
}
