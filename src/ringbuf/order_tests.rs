//! ORD-1: the merge against a model of CPUs that stamp, reserve, publish and drop records.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::sim::Producer;
use super::{DrainLimit, Item, ItemKind, Merge, RecordRun, RecordSink, Stamp};

const SAMPLE: u8 = 9;
const LOST: u8 = 2;
const MAX_ROUNDS: usize = if cfg!(miri) { 6 } else { 14 };
const MAX_WRITES: usize = if cfg!(miri) { 60 } else { 200 };

/// Fewer cases under Miri, where each takes seconds.
pub(super) fn config() -> ProptestConfig {
    let ordinary = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if cfg!(miri) { ProptestConfig { cases: 4, ..ordinary } } else { ordinary }
}

/// A record of `len` bytes, at least 24: header, stamp, serial number.
pub(super) fn record(len: usize, stamp: u64, serial: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = SAMPLE;
    bytes[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&stamp.to_ne_bytes());
    bytes[16..24].copy_from_slice(&serial.to_ne_bytes());
    bytes
}

fn word(record: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(record[offset..offset + 8].try_into().unwrap())
}

pub(super) fn stamp_of(record: &[u8]) -> Stamp {
    match record[0] {
        SAMPLE => Stamp::At(word(record, 8)),
        LOST => Stamp::Here(word(record, 24)),
        _ => Stamp::Bad,
    }
}

#[derive(Debug, Clone, Copy)]
enum CpuStep {
    /// One record, published at once.
    Write { cpu: usize, len: usize },
    /// The stamp is taken, the record is published later: before the CPU's next one, and before
    /// the second next load.
    Stamp { cpu: usize, len: usize },
    /// An interrupt between stamp and reservation: the later stamp comes first in the ring.
    Interrupted { cpu: usize, len: usize },
    /// The clock advances.
    Wait(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrittenRecord {
    stamp: u64,
    serial: u64,
}

struct ModelCpu {
    ring: Producer,
    stamped: VecDeque<(u64, usize)>, // stamp and size of records that are not published yet
    written: Vec<WrittenRecord>,
    dropped: Vec<u64>, // the times of drops, see `Model::write`
    highest: u64,      // the highest stamp in the ring
}

/// The kernel's side: clock, CPUs, and the truth about all records.
struct Model {
    cpus: Vec<ModelCpu>,
    clock: u64,
    /// Length of a clock step in ns.
    step: u64,
    serial: u64,
}

impl Model {
    fn new(cpus: usize, bytes: usize) -> Model {
        let cpu = || ModelCpu {
            ring: Producer::tiny(bytes).unwrap(),
            stamped: VecDeque::new(),
            written: Vec::new(),
            dropped: Vec::new(),
            highest: 0,
        };
        Model { cpus: (0..cpus).map(|_| cpu()).collect(), clock: 1, step: 1, serial: 0 }
    }

    fn apply(&mut self, op: CpuStep) {
        let count = self.cpus.len();
        match op {
            CpuStep::Write { cpu, len } => {
                self.finish(cpu % count, u64::MAX);
                self.write(cpu % count, self.clock, len);
            }
            CpuStep::Stamp { cpu, len } => {
                self.finish(cpu % count, u64::MAX);
                self.cpus[cpu % count].stamped.push_back((self.clock, len));
            }
            CpuStep::Interrupted { cpu, len } => {
                self.finish(cpu % count, u64::MAX);
                let outer = self.clock;
                self.clock += 2 * self.step;
                self.write(cpu % count, self.clock, len);
                self.write(cpu % count, outer, len);
            }
            CpuStep::Wait(time) => self.clock += time * self.step,
        }
    }

    /// Publishes records stamped up to `until`.
    fn finish(&mut self, cpu: usize, until: u64) {
        while let Some(&(stamp, len)) = self.cpus[cpu].stamped.front()
            && stamp <= until
        {
            self.cpus[cpu].stamped.pop_front();
            self.write(cpu, stamp, len);
        }
    }

    fn finish_all(&mut self, until: u64) {
        (0..self.cpus.len()).for_each(|cpu| self.finish(cpu, until));
    }

    /// The time of a drop is the record's stamp, or the stamp of the record that interrupted it, if that one is in the
    /// ring.
    fn write(&mut self, cpu: usize, stamp: u64, len: usize) {
        self.serial += 1;
        let cpu = &mut self.cpus[cpu];
        if cpu.ring.write(&record(len, stamp, self.serial), self.clock) {
            cpu.written.push(WrittenRecord { stamp, serial: self.serial });
            cpu.highest = cpu.highest.max(stamp);
        } else {
            cpu.dropped.push(stamp.max(cpu.highest));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivered {
    pub ring: usize,
    pub time: u64,
    pub after: u64,
    pub late: bool,
    pub what: DeliveredKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveredKind {
    Record(u64), // serial number of the record
    Lost(u64),
    Gap,
    Corrupt,
}

pub(super) fn got(item: &Item<'_>) -> Delivered {
    let what = match item.kind {
        ItemKind::Gap => DeliveredKind::Gap,
        ItemKind::Corrupt => DeliveredKind::Corrupt,
        ItemKind::Record(bytes) if bytes[0] == LOST => DeliveredKind::Lost(word(bytes, 16)),
        ItemKind::Record(bytes) => {
            assert_eq!(word(bytes, 8), item.time);
            DeliveredKind::Record(word(bytes, 16))
        }
    };
    Delivered { ring: item.ring, time: item.time, after: item.after, late: item.late, what }
}

/// The steps of the CPUs at the six points of a round.
type Round = [Vec<CpuStep>; 6];

/// Takes from each piece as many records as the next of these numbers says, and all others one by one.
struct Taking<E, N> {
    each: E,
    most: N,
    /// Number of order keys.
    keys: Option<u64>,
}

/// The order key of a record by its serial number. Some have none.
fn key_of(serial: u64, keys: u64) -> Option<u64> {
    // Several records in a row have the same key.
    let hash = (serial / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (!hash.is_multiple_of(23)).then_some(hash % keys)
}

impl<E: FnMut(Item<'_>) -> ControlFlow<()>, N: Iterator<Item = u64>> RecordSink for Taking<E, N> {
    fn stamp(&self, _ring: usize, record: &[u8]) -> Stamp {
        stamp_of(record)
    }

    fn order_keys(&self, _ring: usize) -> impl Fn(&[u8]) -> Option<(u64, u64)> {
        let keys = self.keys.unwrap_or(1);
        move |record| {
            let Stamp::At(time) = stamp_of(record) else { return None };
            Some((time, key_of(word(record, 16), keys)?))
        }
    }

    fn has_order_keys(&self) -> bool {
        self.keys.is_some()
    }

    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        (self.each)(item)
    }

    fn take_run(&mut self, piece: &mut RecordRun<'_>) -> ControlFlow<()> {
        let most = self.most.next().unwrap_or(u64::MAX);
        while piece.records() < most
            && let Some(item) = piece.next_item(|_, record| stamp_of(record))
        {
            self.take(item)?;
        }
        ControlFlow::Continue(())
    }
}

/// Runs the rounds and a final one. `honest`: records are published as early as the horizon assumes. `pieces`: see
/// [`Taking`].
fn run(model: &RefCell<Model>, rounds: &[Round], honest: bool, pieces: &[u64]) -> Vec<Delivered> {
    run_with(model, rounds, honest, pieces, None, true)
}

/// `keys`: number of different order keys, if records have any. `stops`: the consumer ends some drains early.
fn run_with(
    model: &RefCell<Model>,
    rounds: &[Round],
    honest: bool,
    pieces: &[u64],
    keys: Option<u64>,
    stops: bool,
) -> Vec<Delivered> {
    let mut merge = Merge::new();
    merge.read_by_ring();
    for cpu in &model.borrow().cpus {
        merge.add(cpu.ring.ring().unwrap());
    }
    let apply = |ops: &[CpuStep]| ops.iter().for_each(|&op| model.borrow_mut().apply(op));
    let mut reader = Reader::new(model.borrow().cpus.len());
    let mut previous = 0;
    for (number, [before, clock, load, counters, during, publish]) in rounds.iter().enumerate() {
        apply(before);
        let now = model.borrow().clock;
        apply(clock);
        if honest {
            model.borrow_mut().finish_all(previous);
        }
        merge.load(now);
        previous = now;
        apply(load);
        reader.mark_gaps(&mut merge, &model.borrow());
        apply(counters);
        let mut during = during.iter();
        let stop_at = (stops && number % 5 == 4).then_some(3);
        let mut count = 0;
        let each = |item: Item<'_>| {
            let seen = got(&item);
            if let Some(&op) = during.next() {
                model.borrow_mut().apply(op);
                assert_eq!(got(&item), seen, "the head moves, the borrowed record stays");
            }
            reader.take(seen);
            count += 1;
            if stop_at == Some(count) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let drained =
            merge.drain_into(DrainLimit::Horizon, &mut Taking { each, most: pieces.iter().copied().cycle(), keys });
        assert_eq!(drained.stopped, stop_at.is_some_and(|stop| count == stop));
        apply(publish);
        merge.publish();
    }
    model.borrow_mut().finish_all(u64::MAX);
    let now = model.borrow().clock;
    merge.load(now);
    reader.mark_gaps(&mut merge, &model.borrow());
    let each = |item: Item<'_>| {
        reader.take(got(&item));
        ControlFlow::Continue(())
    };
    let drained = merge.drain_into(DrainLimit::All, &mut Taking { each, most: pieces.iter().copied().cycle(), keys });
    assert!(!drained.held && !drained.stopped);
    reader.delivered
}

/// How the caller of the merge handles loss.
struct Reader {
    delivered: Vec<Delivered>,
    counted: Vec<u64>, // drops by the lost counters of each ring
    told: Vec<u64>,    // drops by the ring's LOST records so far
}

impl Reader {
    fn new(rings: usize) -> Reader {
        Reader { delivered: Vec::new(), counted: vec![0; rings], told: vec![0; rings] }
    }

    fn mark_gaps(&mut self, merge: &mut Merge, model: &Model) {
        while let Some(ring) = merge.next_near_full() {
            self.counted[ring] = model.cpus[ring].ring.dropped();
            if self.counted[ring] > self.told[ring] {
                merge.mark_gap(ring, model.clock);
            }
        }
    }

    fn take(&mut self, got: Delivered) {
        match got.what {
            DeliveredKind::Lost(lost) => self.told[got.ring] += lost,
            DeliveredKind::Gap if self.counted[got.ring] <= self.told[got.ring] => return,
            _ => {}
        }
        self.delivered.push(got);
    }
}

/// (a) and (c): every written record once and in ring order, every other one in a LOST count.
fn check_complete(model: &Model, delivered: &[Delivered]) {
    for (ring, cpu) in model.cpus.iter().enumerate() {
        let of_ring = || delivered.iter().filter(|got| got.ring == ring);
        let records: Vec<WrittenRecord> = of_ring()
            .filter_map(|got| match got.what {
                DeliveredKind::Record(serial) => Some(WrittenRecord { stamp: got.time, serial }),
                _ => None,
            })
            .collect();
        assert_eq!(records, cpu.written, "ring {ring}");
        let told: u64 = of_ring().map(|got| if let DeliveredKind::Lost(lost) = got.what { lost } else { 0 }).sum();
        assert_eq!(told + cpu.ring.pending_lost(), cpu.dropped.len() as u64, "ring {ring}");
        assert_eq!(cpu.ring.dropped(), cpu.dropped.len() as u64);
    }
}

/// (d): late means below the highest stamp so far; `after` is the ring's record before.
fn check_flags(model: &Model, delivered: &[Delivered]) {
    let mut highest = 0;
    let mut last = vec![0; model.cpus.len()];
    for got in delivered {
        assert_eq!(got.after, last[got.ring], "{got:?}");
        if let DeliveredKind::Record(_) = got.what {
            assert_eq!(got.late, got.time < highest, "{got:?}");
            highest = highest.max(got.time);
            last[got.ring] = got.time;
        } else {
            assert!(!got.late);
        }
    }
}

/// (b): the order is that of a stable sort by stamp, of the rings one after the other. A record that
/// comes after a higher stamp in its own ring sorts right after that one.
fn check_sorted(model: &Model, delivered: &[Delivered]) {
    let mut want: Vec<(u64, u64)> = Vec::new();
    for cpu in &model.cpus {
        let mut highest = 0;
        for record in &cpu.written {
            highest = highest.max(record.stamp);
            want.push((highest, record.serial));
        }
    }
    want.sort_by_key(|&(key, _)| key);
    let want: Vec<u64> = want.into_iter().map(|(_, serial)| serial).collect();
    let order: Vec<u64> = delivered
        .iter()
        .filter_map(|got| if let DeliveredKind::Record(serial) = got.what { Some(serial) } else { None })
        .collect();
    assert_eq!(order, want);
}

/// (e): before any record stamped after a drop, one loss item whose window has the drop. So a pair
/// that spans the drop (open < drop < close) is known to touch a window when `close` arrives.
fn check_windows(model: &Model, delivered: &[Delivered]) {
    for (ring, cpu) in model.cpus.iter().enumerate() {
        for &drop in &cpu.dropped {
            let covers = |got: &Delivered| {
                got.ring == ring
                    && !matches!(got.what, DeliveredKind::Record(_))
                    && got.after <= drop
                    && drop <= got.time
            };
            let window = delivered.iter().position(covers);
            let beyond =
                delivered.iter().position(|got| matches!(got.what, DeliveredKind::Record(_)) && got.time > drop);
            let window = window.unwrap_or_else(|| panic!("ring {ring}: no window has the drop at {drop}"));
            assert!(beyond.is_none_or(|beyond| window < beyond), "ring {ring}: late window for the drop at {drop}");
        }
    }
}

fn op(with_interrupts: bool) -> impl Strategy<Value = CpuStep> {
    let len = (3usize..12).prop_map(|eights| eights * 8);
    (0usize..6, len, 0u8..10, 0u64..4).prop_map(move |(cpu, len, what, time)| match what {
        0..=3 => CpuStep::Write { cpu, len },
        4 => CpuStep::Stamp { cpu, len },
        5 if with_interrupts => CpuStep::Interrupted { cpu, len },
        _ => CpuStep::Wait(time),
    })
}

fn rounds(with_interrupts: bool) -> impl Strategy<Value = Vec<Round>> {
    let ops = move |most: usize| prop::collection::vec(op(with_interrupts), 0..most);
    prop::collection::vec((ops(30), ops(3), ops(4), ops(4), ops(20), ops(4)).prop_map(<Round>::from), 1..MAX_ROUNDS)
}

/// Most often all records of a piece.
fn pieces() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![0u64..6, Just(u64::MAX)], 0..5)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn premise_holds(cpus in 1usize..6, size in 8u32..13, rounds in rounds(false), pieces in pieces()) {
        let model = RefCell::new(Model::new(cpus, 1 << size));
        let delivered = run(&model, &rounds, true, &pieces);
        let model = model.into_inner();
        check_complete(&model, &delivered);
        check_flags(&model, &delivered);
        check_sorted(&model, &delivered);
        check_windows(&model, &delivered);
        prop_assert!(cpus == 1 || !delivered.iter().any(|got| got.late));
    }

    #[test]
    fn premise_holds_with_interrupts(cpus in 1usize..6, size in 8u32..13, rounds in rounds(true), pieces in pieces()) {
        let model = RefCell::new(Model::new(cpus, 1 << size));
        let delivered = run(&model, &rounds, true, &pieces);
        let model = model.into_inner();
        check_complete(&model, &delivered);
        check_flags(&model, &delivered);
        check_sorted(&model, &delivered);
        check_windows(&model, &delivered);
    }

    /// A record may be published rounds after its stamp: then it is delivered late and flagged.
    #[test]
    fn premise_broken(cpus in 1usize..6, size in 8u32..13, rounds in rounds(true), pieces in pieces()) {
        let model = RefCell::new(Model::new(cpus, 1 << size));
        let delivered = run(&model, &rounds, false, &pieces);
        let model = model.into_inner();
        check_complete(&model, &delivered);
        check_flags(&model, &delivered);
    }

    /// If records have order keys, a record without a key is delivered after the same records as in time order, and the
    /// records of each key are in time order.
    #[test]
    fn order_within_a_key(
        cpus in 2usize..6,
        size in 8u32..13,
        keys in 1u64..40,
        rounds in rounds(true),
        pieces in pieces(),
    ) {
        let rounds: Vec<Round> = rounds
            .into_iter()
            // If rings are read one by one, room is returned sooner.
            .map(|[before, clock, load, counters, ..]| [before, clock, load, counters, vec![], vec![]])
            .collect();
        let [by_key, by_time] = [Some(keys), None].map(|keys| {
            let mut model = Model::new(cpus, 1 << size);
            model.step = 5_000;
            let model = RefCell::new(model);
            let delivered = run_with(&model, &rounds, true, &pieces, keys, false);
            check_complete(&model.borrow(), &delivered);
            check_windows(&model.borrow(), &delivered);
            delivered
        });
        let key = |got: &Delivered| if let DeliveredKind::Record(serial) = got.what { key_of(serial, keys) } else { None };
        for wanted in 0..keys {
            let of_key = |all: &[Delivered]| -> Vec<Delivered> {
                all.iter().copied().filter(|got| key(got).is_none_or(|key| key == wanted)).collect()
            };
            prop_assert_eq!(of_key(&by_key), of_key(&by_time));
        }
    }

    #[test]
    fn premise_holds_with_keys(cpus in 1usize..6, size in 8u32..13, keys in 1u64..40, rounds in rounds(true), pieces in pieces()) {
        let mut model = Model::new(cpus, 1 << size);
        model.step = 5_000;
        let model = RefCell::new(model);
        let delivered = run_with(&model, &rounds, true, &pieces, Some(keys), true);
        let model = model.into_inner();
        check_complete(&model, &delivered);
        check_windows(&model, &delivered);
    }

    /// More rings than have due records in a round.
    #[test]
    fn many_rings(
        rounds in prop::collection::vec(prop::collection::vec((0usize..40, 0u64..3), 0..MAX_WRITES), 1..6),
        pieces in pieces(),
    ) {
        let model = RefCell::new(Model::new(40, 4096));
        let rounds: Vec<Round> = rounds
            .into_iter()
            .map(|writes| {
                let ops = writes.into_iter().flat_map(|(cpu, wait)| [CpuStep::Write { cpu, len: 24 }, CpuStep::Wait(wait)]);
                [ops.collect(), vec![], vec![], vec![], vec![], vec![]]
            })
            .collect();
        let delivered = run(&model, &rounds, true, &pieces);
        let model = model.into_inner();
        check_complete(&model, &delivered);
        check_flags(&model, &delivered);
        check_sorted(&model, &delivered);
        prop_assert!(!delivered.iter().any(|got| got.late));
    }
}
