//! Many rings, some of them hostile, as one stream: flags and counts hold whatever is in the rings.

use std::ops::ControlFlow;

use perf_prof::ringbuf::{DrainLimit, ItemKind, Merge, Stamp};

use super::input::Input;
use super::ring::{Hostile, RING_BYTES, record};

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut rings: Vec<Hostile> = (0..=input.u8() % 12).map(|_| Hostile::new()).collect();
    let mut merge = Merge::new();
    rings.iter().for_each(|ring| assert!(merge.add(ring.kernel.ring().expect("a ring")) < rings.len()));
    let (mut model, mut now) = (Model::new(rings.len()), 0u64);
    while !input.is_empty() {
        let which = usize::from(input.u8()) % rings.len();
        let ring = &mut rings[which];
        match input.u8() % 10 {
            0..=2 => {
                let record = record(&mut input);
                ring.write(&record, now);
            }
            3..=5 => {
                let (len, claim) = (input.u8(), input.u8());
                ring.append(input.bytes(len.into()), u64::from(claim) * 8);
            }
            6 => now = now.saturating_add(input.u16().into()),
            7 => merge.mark_gap(which, now),
            8 => merge.remove(which),
            _ => model.round(&mut merge, now, DrainLimit::Horizon, input.u8()),
        }
    }
    model.round(&mut merge, now, DrainLimit::All, u8::MAX);
    let left = (0..rings.len()).filter(|&ring| merge.has(ring)).count();
    assert_eq!(left, merge.len());
}

/// What has been delivered.
struct Model {
    newest: u64,
    last: Vec<u64>, // stamp of each ring's last record
}

impl Model {
    fn new(rings: usize) -> Model {
        Model { newest: 0, last: vec![0; rings] }
    }

    /// One round, broken off behind `most` deliveries.
    fn round(&mut self, merge: &mut Merge, now: u64, limit: DrainLimit, most: u8) {
        merge.load(now);
        while let Some(ring) = merge.next_near_full() {
            assert!(ring < self.last.len());
        }
        let (mut records, mut items, mut late) = (0, 0u64, 0);
        let most = if limit == DrainLimit::All { u64::MAX } else { u64::from(most).max(1) };
        let drained = merge.drain(limit, stamp_of, |item| {
            assert_eq!(item.after, self.last[item.ring]);
            items += 1;
            match item.kind {
                ItemKind::Record(bytes) => {
                    records += 1;
                    assert_eq!(bytes.len(), usize::from(u16::from_ne_bytes([bytes[6], bytes[7]])));
                    match stamp_of(bytes) {
                        Stamp::At(time) => {
                            assert_eq!((time, time < self.newest), (item.time, item.late));
                            self.newest = self.newest.max(time);
                            self.last[item.ring] = time;
                            late += u64::from(item.late);
                        }
                        Stamp::Here(time) => assert_eq!((time, item.late), (item.time, false)),
                        Stamp::Bad => panic!("delivered what cannot be decoded"),
                    }
                }
                ItemKind::Gap | ItemKind::Corrupt => assert!(!item.late),
            }
            if items < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!((drained.records, drained.late, drained.stopped), (records, late, items == most));
        assert!(records <= self.last.len() as u64 * RING_BYTES / 8);
        assert!(limit == DrainLimit::Horizon || !drained.held);
        merge.publish();
    }
}

fn stamp_of(record: &[u8]) -> Stamp {
    let word = |at| record.get(at..at + 8).map(|word: &[u8]| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    match (record[0], word(8)) {
        (9, Some(time)) => Stamp::At(time),
        (2, Some(time)) => Stamp::Here(time),
        _ => Stamp::Bad,
    }
}
