//! RING-2: the reader on a synthetic ring.

use proptest::prelude::*;

use super::RingBuf;
use super::order_tests::config;
use super::ring::page_bytes;
use super::sim::{LOST_BYTES, Producer};

const MAX_STEPS: usize = if cfg!(miri) { 120 } else { 300 };
const MAX_ROUNDS: usize = if cfg!(miri) { 8 } else { 20 };

/// A record of `size` bytes, filled so that each byte depends on its place and on `seed`.
fn record(size: usize, seed: u8) -> Vec<u8> {
    let turn: Vec<u8> = (0..=u8::MAX).take(size).map(|at| at.wrapping_mul(31) ^ seed).collect();
    let mut bytes = turn.repeat(size.div_ceil(256));
    bytes.truncate(size);
    bytes[..4].copy_from_slice(&9u32.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
    bytes
}

fn next(ring: &mut RingBuf) -> Option<Vec<u8>> {
    let record = ring.peek()?.to_vec();
    assert_eq!(ring.peek().unwrap(), record, "peeking twice gives the same");
    ring.advance();
    Some(record)
}

#[test]
fn reads_every_size_at_every_offset() {
    let size = 256;
    let (len_step, offset_step) = if cfg!(miri) { (40, 24) } else { (8, 8) };
    for len in (8..size).step_by(len_step) {
        for offset in (0..size as u64).step_by(offset_step) {
            let mut kernel = Producer::tiny(size).unwrap();
            kernel.start_at(offset);
            let mut ring = kernel.ring().unwrap();
            assert!(kernel.write(&record(len, 7), 0), "{len} at {offset}");
            assert_eq!(next(&mut ring), None, "not loaded yet");
            ring.load();
            assert_eq!(ring.backlog(), len as u64);
            assert_eq!(next(&mut ring), Some(record(len, 7)), "{len} at {offset}");
            assert_eq!(next(&mut ring), None);
            assert_eq!((kernel.tail(), ring.corrupt()), (offset, 0));
            ring.publish();
            assert_eq!(kernel.tail(), offset + len as u64);
        }
    }
}

#[test]
fn reads_every_size_there_is() {
    let mut kernel = Producer::new(32).unwrap();
    kernel.start_at(u64::MAX - 0xffff); // positions wrap around at 2^64
    let mut ring = kernel.ring().unwrap();
    for len in (8..=0xfff8).step_by(if cfg!(miri) { 0xff8 } else { 8 }) {
        let mut record = vec![len as u8; len];
        record[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
        assert!(kernel.write(&record, 0));
        ring.load();
        assert_eq!(next(&mut ring), Some(record));
        ring.publish();
    }
    assert_eq!(ring.corrupt(), 0);
}

#[test]
fn a_moving_head_waits_for_the_next_snapshot() {
    let mut kernel = Producer::tiny(256).unwrap();
    let mut ring = kernel.ring().unwrap();
    kernel.write(&record(64, 1), 0);
    ring.load();
    assert_eq!(ring.peek().unwrap(), record(64, 1));
    kernel.write(&record(64, 2), 0);
    assert_eq!(next(&mut ring), Some(record(64, 1)));
    kernel.write(&record(64, 3), 0);
    assert_eq!(next(&mut ring), None);
    ring.load();
    assert!(!kernel.write(&record(64, 4), 0), "nothing was given back, and one byte stays free");
    assert_eq!(next(&mut ring), Some(record(64, 2)));
    ring.publish();
    assert_eq!((kernel.tail(), kernel.dropped()), (128, 1));
    assert!(kernel.write(&record(64, 5), 77));
    ring.load();
    assert_eq!(next(&mut ring), Some(record(64, 3)));
    let lost = next(&mut ring).unwrap();
    assert_eq!((lost.len(), lost[16], lost[24]), (LOST_BYTES, 1, 77));
    assert_eq!(next(&mut ring), Some(record(64, 5)));
    assert_eq!(ring.backlog_peak(), 192);
}

/// Reader and writer run at the same time, as with the kernel on another CPU: Miri and sanitizers check the order of
/// their accesses.
#[test]
fn a_writer_on_another_cpu() {
    let count = if cfg!(miri) { 40 } else { 20_000 };
    let mut kernel = Producer::tiny(256).unwrap();
    let mut ring = kernel.ring().unwrap();
    let sizes = |number: u64| (number as usize % 9 + 2) * 8;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                while !kernel.write(&record(sizes(number), number as u8), number) {
                    std::thread::yield_now();
                }
            }
        });
        let mut number = 0;
        while number < count {
            ring.load();
            while let Some(got) = next(&mut ring) {
                if got[0] == 9 {
                    assert_eq!(got, record(sizes(number), number as u8));
                    number += 1;
                }
            }
            ring.publish();
            std::thread::yield_now();
        }
    });
    assert_eq!(ring.corrupt(), 0);
}

#[test]
fn skips_what_cannot_be_true() {
    let sizes = (0..8).chain([9, 12, 15, 23, 25, 40, 248, 0xfff8, 0xffff]);
    for size in sizes {
        let mut kernel = Producer::tiny(256).unwrap();
        kernel.start_at(248);
        let mut ring = kernel.ring().unwrap();
        kernel.write(&record(64, 1), 0);
        let mut lie = record(32, 2);
        lie[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
        kernel.write_raw(&lie, 32);
        ring.load();
        assert_eq!(next(&mut ring), Some(record(64, 1)), "{size}");
        assert_eq!((next(&mut ring), ring.corrupt()), (None, 1), "{size}");
        assert_eq!((next(&mut ring), ring.corrupt()), (None, 1), "counted once");
        ring.publish();
        assert_eq!(kernel.tail(), 248 + 96);
        kernel.write(&record(48, 3), 0);
        ring.load();
        assert_eq!(next(&mut ring), Some(record(48, 3)), "goes on after {size}");
    }
}

#[test]
fn survives_a_head_that_cannot_be_true() {
    let heads = [0, 8, 63, 65, 127, 64 + 257, 64 + 264, 1 << 40, u64::MAX, u64::MAX - 7];
    for head in heads {
        let mut kernel = Producer::tiny(256).unwrap();
        kernel.start_at(64);
        let mut ring = kernel.ring().unwrap();
        kernel.write(&record(64, 1), 0);
        ring.load();
        assert!(ring.peek().is_some());
        kernel.set_head(head);
        assert!(ring.load());
        assert_eq!((next(&mut ring), ring.corrupt()), (None, 1), "{head}");
        assert_eq!((ring.backlog(), kernel.tail()), (0, head & !7));
        kernel.set_head(head & !7);
        kernel.write(&record(64, 2), 0);
        ring.load();
        assert_eq!(next(&mut ring), Some(record(64, 2)), "goes on after {head}");
    }
}

#[test]
fn room_not_given_back_is_not_written_to() {
    for (ahead, good) in [(256, true), (264, false)] {
        let mut kernel = Producer::tiny(256).unwrap();
        let mut ring = kernel.ring().unwrap();
        kernel.write(&record(64, 1), 0);
        ring.load();
        next(&mut ring).unwrap();
        kernel.set_head(ahead);
        ring.load();
        assert_eq!(ring.corrupt() == 0, good, "{ahead} bytes past the tail");
    }
}

#[test]
fn refuses_impossible_maps() {
    let page = page_bytes().unwrap() as u64;
    let cases =
        [(0, 0, true), (page, page, true), (0, page, true), (page, 64, true), (page + 8, page, false), (8, 64, false)];
    let more =
        [(page, page * 2, false), (page, 24, false), (page, 4, false), (u64::MAX, 8, false), (page, u64::MAX, false)];
    for (offset, size, good) in cases.into_iter().chain(more) {
        let mut kernel = Producer::new(1).unwrap();
        kernel.set_data_area(offset, size);
        assert_eq!(kernel.ring().is_ok(), good, "{offset} {size}");
    }
    let kernel = Producer::new(2).unwrap();
    kernel.ring().unwrap();
    for pages in [0, 3, usize::MAX, 1 << 63] {
        assert!(RingBuf::map(kernel.fd(), pages).is_err(), "{pages}");
    }
}

#[test]
fn near_full_when_a_record_may_not_have_fitted() {
    let size = 256 * 1024;
    for used in [0, 64 * 1024, 128 * 1024, size - 65536 - 72, size - 65528 - 72 - 8, size - 65528 - 72, size - 65536] {
        let mut kernel = Producer::new(size / page_bytes().unwrap()).unwrap();
        let mut ring = kernel.ring().unwrap();
        let mut left = used;
        while left > 0 {
            let len = left.min(4096);
            assert!(kernel.write(&record(len, 0), 0));
            left -= len;
        }
        let near_full = used >= size - 65528 - 72;
        assert_eq!(ring.publish(), near_full, "{used}: what is not loaded counts too");
        assert_eq!(ring.load(), near_full, "{used}");
        while next(&mut ring).is_some() {}
        assert_eq!(ring.publish(), near_full, "{used}");
        assert!(!ring.publish(), "{used}: only since the tail moved");
    }
    let kernel = Producer::new(1).unwrap();
    assert!(kernel.ring().unwrap().publish(), "small rings always");
}

proptest! {
    #![proptest_config(config())]

    /// Each record arrives once and unchanged, or is in the count of a LOST record in its place.
    #[test]
    fn every_record_arrives_or_is_counted(
        steps in prop::collection::vec((1usize..24, 0u8..4, 0usize..12), 1..MAX_STEPS),
        offset in 0u64..32,
    ) {
        let mut kernel = Producer::tiny(256).unwrap();
        kernel.start_at(offset * 8);
        let mut ring = kernel.ring().unwrap();
        let mut want: Vec<Option<Vec<u8>>> = Vec::new(); // `None` is a drop
        let mut got: Vec<Option<Vec<u8>>> = Vec::new();
        let read = |ring: &mut RingBuf, got: &mut Vec<_>, most: usize| {
            for _ in 0..most {
                let Some(record) = next(ring) else { break };
                if record[0] == 2 {
                    got.extend((0..record[16]).map(|_| None));
                } else {
                    got.push(Some(record));
                }
            }
        };
        for (seed, (eights, what, most)) in steps.into_iter().enumerate() {
            let record = record(eights * 8, seed as u8);
            want.push(kernel.write(&record, 0).then_some(record));
            match what {
                0 => { ring.load(); }
                1 => { ring.publish(); }
                _ => {}
            }
            read(&mut ring, &mut got, most);
        }
        ring.load();
        read(&mut ring, &mut got, usize::MAX);
        got.extend((0..kernel.pending_lost()).map(|_| None));
        prop_assert_eq!(got, want);
        prop_assert_eq!(ring.corrupt(), 0);
    }

    /// With any bytes and any head, the reader does not panic, and ends at the head.
    #[test]
    fn hostile_bytes_do_no_harm(
        rounds in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..256), any::<u64>(), 0u64..64), 1..MAX_ROUNDS),
    ) {
        let mut kernel = Producer::tiny(256).unwrap();
        let mut ring = kernel.ring().unwrap();
        for (bytes, head, claim) in rounds {
            if head % 4 == 0 {
                kernel.set_head(head >> 2);
            }
            kernel.write_raw(&bytes, claim * 8);
            ring.load();
            while let Some(record) = next(&mut ring) {
                prop_assert!(record.len() >= 8 && record.len() <= 256);
            }
            ring.publish();
            prop_assert_eq!(kernel.tail(), kernel.head() & !7);
        }
    }
}
