//! The merge, one rule at a time.

use std::ops::ControlFlow;

use super::order_tests::{DeliveredKind, got, record, stamp_of};
use super::sim::Producer;
use super::{DrainLimit, Drained, Item, Merge, RecordRun, RecordSink, Stamp};

/// Times and kinds of one drain.
fn drain(merge: &mut Merge, limit: DrainLimit) -> (Vec<(usize, u64, DeliveredKind)>, Drained) {
    let mut items = Vec::new();
    let drained = merge.drain(limit, stamp_of, |item| {
        let got = got(&item);
        items.push((
            got.ring,
            got.time,
            if let DeliveredKind::Record(_) = got.what { DeliveredKind::Record(0) } else { got.what },
        ));
        ControlFlow::Continue(())
    });
    (items, drained)
}

const RECORD: DeliveredKind = DeliveredKind::Record(0);

#[test]
fn holds_what_may_be_incomplete() {
    let mut kernel = [Producer::tiny(256).unwrap(), Producer::tiny(256).unwrap()];
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
    kernel[0].write(&record(24, 10, 0), 10);
    kernel[0].write(&record(24, 20, 0), 20);
    merge.load(15);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon), (vec![], Drained { held: true, ..Drained::default() }));
    kernel[1].write(&record(24, 5, 0), 5);
    merge.load(30);
    let (items, drained) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(1, 5, RECORD), (0, 10, RECORD)]);
    assert_eq!(drained, Drained { records: 2, bytes: 48, held: true, ..Drained::default() });
    merge.publish();
    assert_eq!((kernel[0].tail(), kernel[1].tail()), (24, 24));
    kernel[1].write(&record(24, 7, 0), 7);
    merge.load(40);
    let (items, drained) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(1, 7, RECORD), (0, 20, RECORD)]);
    assert_eq!(drained, Drained { records: 2, bytes: 48, late: 1, ..Drained::default() });
    assert_eq!((merge.backlog_peak(0), merge.backlog_peak(1), merge.backlog_peak(2)), (48, 24, 0));
}

#[test]
fn a_single_ring_waits_for_nobody() {
    let mut kernel = Producer::tiny(256).unwrap();
    let mut merge = Merge::new();
    merge.add(kernel.ring().unwrap());
    kernel.write(&record(24, 50, 0), 0);
    merge.load(1);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0, [(0, 50, RECORD)]);
}

#[test]
fn a_long_drain_gives_room_back() {
    let mut kernel = Producer::tiny(256).unwrap();
    let mut merge = Merge::new();
    merge.add(kernel.ring().unwrap());
    (0..10).for_each(|time| assert!(kernel.write(&record(24, time, 0), 0)));
    merge.load(0);
    let mut tails = Vec::new();
    merge.drain(DrainLimit::All, stamp_of, |_| {
        tails.push(kernel.tail());
        ControlFlow::Continue(())
    });
    assert_eq!(tails, [0, 0, 0, 72, 72, 72, 144, 144, 144, 216]);
}

#[test]
fn a_leaving_ring_is_emptied_first() {
    let mut kernel: Vec<Producer> = (0..3).map(|_| Producer::tiny(256).unwrap()).collect();
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 3));
    merge.load(1);
    kernel[1].write(&record(24, 5, 0), 0);
    merge.remove(1);
    merge.publish();
    assert_eq!(merge.len(), 3, "not loaded since");
    merge.load(10);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0, []);
    merge.publish();
    assert!(merge.has(1), "its record is above the horizon");
    merge.load(20);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0, [(1, 5, RECORD)]);
    merge.publish();
    assert!(!merge.has(1) && merge.has(2) && merge.len() == 2);
    let mut other = Producer::tiny(256).unwrap();
    assert_eq!(merge.add(other.ring().unwrap()), 1);
    other.write(&record(24, 15, 0), 0);
    merge.load(30);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0, [(1, 15, RECORD)]);
    merge.mark_gap(7, 0);
    merge.remove(7);
}

#[test]
fn bad_and_corrupt_records_are_passed_and_counted() {
    let mut kernel = [Producer::tiny(256).unwrap(), Producer::tiny(256).unwrap()];
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
    let mut bad = record(24, 3, 0);
    bad[0] = 77;
    kernel[0].write(&bad, 0);
    kernel[0].write(&record(24, 4, 0), 0);
    kernel[0].write_raw(&[0; 24], 24);
    kernel[1].write(&record(24, 6, 0), 0);
    merge.load(10);
    merge.load(12);
    while merge.next_near_full().is_some() {}
    let (items, drained) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(0, 4, RECORD), (0, 12, DeliveredKind::Corrupt), (1, 6, RECORD)]);
    assert_eq!((drained.records, merge.undecodable(), merge.corrupt(0)), (2, 1, 1));
    merge.publish();
    kernel[0].write(&record(24, 13, 0), 0);
    merge.load(20);
    merge.load(20);
    let (items, _) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(0, 20, DeliveredKind::Corrupt), (0, 13, RECORD)], "what was skipped may be as new as its load");
}

#[test]
fn names_the_rings_that_may_have_dropped() {
    let bytes = 256 * 1024;
    let mut kernel: Vec<Producer> = (0..3).map(|_| Producer::new(bytes / 4096).unwrap()).collect();
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 3));
    let near_full = |merge: &mut Merge| {
        let mut rings: Vec<usize> = std::iter::from_fn(|| merge.next_near_full()).collect();
        rings.sort();
        rings
    };
    let fill = |kernel: &mut Producer, time| while kernel.write(&record(4096, time, 0), time) {};
    merge.load(1);
    assert_eq!(near_full(&mut merge), [0usize; 0]);
    fill(&mut kernel[1], 1);
    merge.load(5);
    assert_eq!(near_full(&mut merge), [1], "full since the last publish");
    merge.load(6);
    fill(&mut kernel[2], 2);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).1.records, 63, "what came after the load is not there yet");
    merge.publish();
    merge.load(7);
    assert_eq!(near_full(&mut merge), [1, 2], "full until published, and full at the load");
    let mut refilled = false;
    merge.drain(DrainLimit::All, stamp_of, |_| {
        if kernel[2].tail() > 0 && !refilled {
            fill(&mut kernel[2], 8); // the room returned in the middle of a drain
            refilled = true;
        }
        ControlFlow::Continue(())
    });
    merge.publish();
    merge.load(9);
    assert_eq!(near_full(&mut merge), [2], "full in the middle of the drain");
    drain(&mut merge, DrainLimit::All);
    merge.publish();
    merge.load(10);
    assert_eq!(near_full(&mut merge), [0usize; 0]);
}

#[test]
fn a_record_that_was_skipped_is_forgotten() {
    let mut kernel = [Producer::tiny(256).unwrap(), Producer::tiny(256).unwrap()];
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
    (1..=3).for_each(|time| assert!(kernel[0].write(&record(24, time, 0), 0)));
    merge.load(2);
    merge.load(3);
    let (items, drained) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!((&items[..], drained.held), (&[(0, 1, RECORD)][..], true), "and the two after it are known");
    kernel[0].set_head(72 + 512);
    merge.load(10);
    kernel[0].write(&record(32, 8, 0), 0);
    merge.load(11);
    let (items, _) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(0, 11, DeliveredKind::Corrupt), (0, 8, RECORD)]);
}

#[test]
fn a_gap_comes_before_what_follows_it() {
    let mut kernel = [Producer::tiny(256).unwrap(), Producer::tiny(256).unwrap()];
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
    (4..=5).for_each(|time| assert!(kernel[0].write(&record(24, time, 0), 0)));
    merge.load(6);
    merge.mark_gap(0, 7);
    assert!(drain(&mut merge, DrainLimit::Horizon).1.held);
    (8..=9).for_each(|time| assert!(kernel[0].write(&record(24, time, 0), 0)));
    merge.load(20);
    merge.load(20);
    let (items, _) = drain(&mut merge, DrainLimit::Horizon);
    assert_eq!(items, [(0, 4, RECORD), (0, 5, RECORD), (0, 7, DeliveredKind::Gap), (0, 8, RECORD), (0, 9, RECORD)]);
}

/// A ring that overflows all the time is read late: its counters were read after records that are still to come, so a
/// gap up to that time would put all of these in doubt.
#[test]
fn a_lost_record_says_more_than_the_gap_in_its_place() {
    let mut kernel = [Producer::tiny(256).unwrap(), Producer::tiny(256).unwrap()];
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
    (1..=10).for_each(|time| assert!(kernel[0].write(&record(24, time, 0), time)));
    assert!(!kernel[0].write(&record(24, 11, 0), 11));
    merge.load(9);
    merge.load(12);
    merge.mark_gap(0, 25);
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0.len(), 8);
    merge.publish();
    (14..=15).for_each(|time| assert!(kernel[0].write(&record(24, time, 0), time)));
    merge.load(20);
    let (items, _) = drain(&mut merge, DrainLimit::Horizon);
    let mut want = vec![(0, 9, RECORD), (0, 10, RECORD), (0, 14, DeliveredKind::Lost(1))];
    assert_eq!(items, want);
    // The counters may have had more drops: a gap for them follows behind the known records.
    merge.load(30);
    want = vec![(0, 14, RECORD), (0, 15, RECORD), (0, 25, DeliveredKind::Gap)];
    assert_eq!(drain(&mut merge, DrainLimit::Horizon).0, want);
}

/// Takes a given number of records from each piece, and all others one by one.
struct Picky {
    most: u64,
    from_pieces: u64,
    times: Vec<u64>,
    stop_at: u64,
}

impl RecordSink for Picky {
    fn stamp(&self, _ring: usize, record: &[u8]) -> Stamp {
        stamp_of(record)
    }

    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        self.times.push(item.time);
        if item.time == self.stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn take_run(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        while piece.records() < self.most
            && let Some(item) = piece.next_item(|_, record| stamp_of(record))
        {
            self.from_pieces += 1;
            self.take(item)?;
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn what_is_left_of_a_piece_is_delivered() {
    for most in 0..5 {
        let mut kernel = [Producer::tiny(1024).unwrap(), Producer::tiny(1024).unwrap()];
        let mut merge = Merge::new();
        kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
        for time in 1..=30 {
            assert!(kernel[usize::from(time > 8 && time < 21)].write(&record(24, time, 0), 0));
        }
        merge.load(40);
        let mut sink = Picky { most, from_pieces: 0, times: Vec::new(), stop_at: 25 };
        let drained = merge.drain_into(DrainLimit::All, &mut sink);
        assert_eq!((drained.records, drained.bytes, drained.stopped), (25, 25 * 24, true), "{most}");
        sink.stop_at = 0;
        assert_eq!(merge.drain_into(DrainLimit::All, &mut sink).records, 5, "{most}");
        assert!(sink.times.iter().copied().eq(1..=30), "{most}: {:?}", sink.times);
        assert_eq!(sink.from_pieces > 0, most > 0, "{most}");
    }
}

#[test]
fn stamps_that_are_no_times_come_to_an_end() {
    let mut kernel: Vec<Producer> = (0..3).map(|_| Producer::tiny(1024).unwrap()).collect();
    let mut merge = Merge::new();
    kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 3));
    let far = u64::MAX - 9;
    for (ring, time) in [(0, 1), (0, far), (1, 2), (1, far + 1), (1, u64::MAX), (2, far + 2), (2, 3), (0, far + 3)] {
        assert!(kernel[ring].write(&record(24, time, 0), 0));
    }
    merge.load(40);
    let (items, drained) = drain(&mut merge, DrainLimit::All);
    let times: Vec<(usize, u64)> = items.iter().map(|&(ring, time, _)| (ring, time)).collect();
    // Keys of the far future are all treated as equal.
    let far = [(0, far), (0, far + 3), (1, far + 1), (1, u64::MAX), (2, far + 2), (2, 3)];
    assert_eq!((&times[..2], &times[2..]), (&[(0, 1), (1, 2)][..], &far[..]));
    assert_eq!((drained.records, drained.held), (8, false));
}

/// Takes all records. The serial number of a record is its order key; 0 means no key.
#[derive(Default)]
struct ByKey(Vec<(u64, bool)>);

impl RecordSink for ByKey {
    fn stamp(&self, _ring: usize, record: &[u8]) -> Stamp {
        stamp_of(record)
    }

    fn order_keys(&self, _ring: usize) -> impl Fn(&[u8]) -> Option<(u64, u64)> {
        |record| {
            let Stamp::At(time) = stamp_of(record) else { return None };
            let key = u64::from_ne_bytes(*record[16..].first_chunk()?);
            (key > 0).then_some((time, key))
        }
    }

    fn has_order_keys(&self) -> bool {
        true
    }

    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        self.0.push((item.time / 1000, item.late));
        ControlFlow::Continue(())
    }
}

#[test]
fn rings_are_read_one_after_the_other_up_to_what_needs_an_order() {
    type Records = &'static [(u64, u64)]; // time in µs, key
    let cases: [(Records, Records, &[u64]); 5] = [
        (&[(1, 7), (3, 7), (5, 7)], &[(2, 8), (4, 8)], &[1, 3, 5, 2, 4]),
        // A key comes in the other ring.
        (&[(1, 7), (3, 8), (9, 8)], &[(2, 9), (4, 9), (6, 7), (8, 7)], &[1, 3, 2, 4, 9, 6, 8]),
        (&[(5, 7), (7, 8)], &[(2, 7), (3, 9), (6, 9)], &[2, 3, 5, 7, 6]),
        // A record without a key.
        (&[(1, 7), (3, 7), (4, 0), (5, 7)], &[(2, 8), (6, 8)], &[1, 3, 2, 4, 5, 6]),
        // The third record of the first ring is late, and comes right behind the record before it.
        (&[(1, 7), (4, 7), (2, 0), (5, 7)], &[(3, 8), (6, 8)], &[1, 3, 4, 2, 5, 6]),
    ];
    for (one, other, want) in cases {
        let mut kernel = [Producer::tiny(1024).unwrap(), Producer::tiny(1024).unwrap()];
        let mut merge = Merge::new();
        merge.read_by_ring();
        kernel.iter().for_each(|kernel| assert!(merge.add(kernel.ring().unwrap()) < 2));
        for (kernel, records) in kernel.iter_mut().zip([one, other]) {
            records.iter().for_each(|&(us, key)| assert!(kernel.write(&record(24, us * 1000, key), 0)));
        }
        merge.load(1 << 20);
        merge.load(1 << 20);
        let mut sink = ByKey::default();
        merge.drain_into(DrainLimit::Horizon, &mut sink);
        let times: Vec<u64> = sink.0.iter().map(|&(us, _)| us).collect();
        assert_eq!(times, want);
        let late: Vec<u64> = sink.0.iter().filter(|(_, late)| *late).map(|&(us, _)| us).collect();
        assert_eq!(late, if one.contains(&(2, 0)) { vec![2] } else { vec![] }, "{times:?}");
    }
}
