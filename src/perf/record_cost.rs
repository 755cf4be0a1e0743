//! What writing a record costs the task that raises the event: measured with page faults of perf-prof itself, which are
//! like any other event, but which no other task takes part in.

use std::hint::black_box;
use std::io;
use std::os::fd::AsFd;

use memmap2::MmapMut;
use perf_event_open_sys::bindings::PERF_COUNT_SW_PAGE_FAULTS_MIN;

use crate::perf::attr::{Attr, Counter, MissingFeatures};
use crate::ringbuf::RingBuf;
use crate::sys;
use crate::sys::perf::Watch;

/// Pages that are touched in a round, each for the first time.
const PAGES: usize = 64;
/// The fastest of so many rounds counts: slower ones may have been interrupted.
const ROUNDS: usize = 4;
/// Data pages of the ring: room for the records of a round, with callchains.
const RING_PAGES: usize = 64;

/// CPU time in ns that a record adds to its event. `callchain`: the record has one. None: the faults that were taken
/// have not all written a record.
///
/// # Errors
/// The kernel refuses the event, the ring, or memory.
pub fn record_ns(callchain: bool) -> io::Result<Option<u64>> {
    let attr = Attr::counter(Counter::Software(PERF_COUNT_SW_PAGE_FAULTS_MIN.into()), 1);
    let mut attr = if callchain { attr.callchain(0) } else { attr };
    let fd = MissingFeatures::default().open(&mut attr, Watch::Thread { tid: sys::thread_id() })?;
    let mut ring = RingBuf::map(fd.as_fd(), RING_PAGES)?;
    let (mut unrecorded_ns, mut recorded_ns) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        sys::perf::disable(fd.as_fd())?;
        unrecorded_ns = unrecorded_ns.min(touch_fresh_pages()?);
        take_records(&mut ring); // mapping the pages may have faulted, too
        sys::perf::enable(fd.as_fd())?;
        let round_ns = touch_fresh_pages()?;
        if take_records(&mut ring) >= PAGES {
            recorded_ns = recorded_ns.min(round_ns);
        }
    }
    Ok((recorded_ns < u64::MAX).then(|| recorded_ns.saturating_sub(unrecorded_ns) / PAGES as u64))
}

/// Touches pages of new memory. Returns the CPU time that the faults took.
fn touch_fresh_pages() -> io::Result<u64> {
    let page_bytes = sys::page_size();
    let mut memory = MmapMut::map_anon(PAGES * page_bytes)?;
    let start_ns = sys::thread_cpu_ns();
    memory.chunks_mut(page_bytes).for_each(|page| *black_box(&mut page[0]) = 1);
    Ok(sys::thread_cpu_ns().saturating_sub(start_ns))
}

/// Empties the ring. Returns how many records it had.
fn take_records(ring: &mut RingBuf) -> usize {
    ring.load();
    let mut records = 0;
    while ring.peek().is_some() {
        ring.advance();
        records += 1;
    }
    ring.publish();
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_costs_something_and_a_callchain_costs_more() {
        let Ok(Some(plain_ns)) = record_ns(false) else { return }; // no permission, or large pages
        let with_chain_ns = record_ns(true).unwrap().unwrap();
        assert!((10..100_000).contains(&plain_ns), "{plain_ns}");
        assert!(with_chain_ns > plain_ns, "{with_chain_ns} {plain_ns}");
    }

    #[test]
    fn each_touched_page_is_new() {
        assert!(touch_fresh_pages().unwrap() > 0);
    }
}
