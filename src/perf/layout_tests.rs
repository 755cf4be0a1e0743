//! [`Layout`] against samples that an encoder of this file writes.
//!
//! The order is that of `perf_output_sample` in kernel/events/core.c, written here a second time, so that the code
//! under test is not compared with itself.

#[path = "layout_damage_tests.rs"]
mod damage;

use perf_event_open_sys::bindings as b;
use proptest::prelude::*;

use crate::perf::Sample;
use crate::perf::decode::decode;
use crate::perf::layout::{Layout, SampleLayoutKind};
use crate::perf::record::{Branches, Extra, Malformed};
use crate::perf::sample_type::SampleType;

const MISC: u16 = 2; // PERF_RECORD_MISC_USER
const REGS_USER: u64 = 0b1011;
const REGS_INTR: u64 = 0b1_0000_0000_0001;

/// Appends words and smaller things.
#[derive(Default)]
pub(super) struct RecordBytes(pub Vec<u8>);

impl RecordBytes {
    pub fn u64(&mut self, value: u64) -> &mut RecordBytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut RecordBytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut RecordBytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn words(&mut self, words: &[u64]) -> &mut RecordBytes {
        for &word in words {
            self.u64(word);
        }
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut RecordBytes {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A name as the kernel writes it: NUL-terminated and filled up to whole words.
    pub fn name(&mut self, name: &[u8]) -> &mut RecordBytes {
        self.bytes(name).bytes(&[0]);
        while !self.0.len().is_multiple_of(8) {
            self.bytes(&[0]);
        }
        self
    }

    pub fn record(&self, kind: u32, misc: u32) -> Vec<u8> {
        let mut out = RecordBytes::default();
        let size = u16::try_from(self.0.len() + 8).unwrap();
        out.u32(kind).u16(misc as u16).u16(size).bytes(&self.0);
        out.0
    }
}

fn le_words(words: &[u64]) -> Vec<u8> {
    let mut out = RecordBytes::default();
    out.words(words);
    out.0
}

/// What an event asks for, and what its sample carries.
#[derive(Clone, Debug)]
struct Case {
    bits: u64,
    read_format: u64,
    branch_type: u64,
    /// Enabled, running, then one count per event of the group.
    times: (u64, u64),
    counts: Vec<u64>,
    chain: Vec<u64>,
    /// As the tracepoint wrote it; in the record it is padded.
    raw: Vec<u8>,
    branches: usize,
    abi_user: u64,
    abi_intr: u64,
    stack: Vec<u8>,
    stack_filled: usize,
    aux: Vec<u8>,
}

impl Case {
    fn new(bits: u64) -> Case {
        Case {
            bits,
            read_format: 0,
            branch_type: 0,
            times: (900, 800),
            counts: vec![5_000_000_000],
            chain: vec![b::PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0001, b::PERF_CONTEXT_USER, 0x40_0001],
            raw: (0..13).collect(),
            branches: 2,
            abi_user: 2,
            abi_intr: 2,
            stack: (0..32).collect(),
            stack_filled: 20,
            aux: vec![7; 16],
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.bits & u64::from(bit) != 0
    }

    fn reads(&self, bit: u32) -> bool {
        self.read_format & u64::from(bit) != 0
    }

    fn branches_have(&self, bit: u32) -> bool {
        self.branch_type & u64::from(bit) != 0
    }

    fn layout(&self) -> Layout {
        Layout::full(SampleType::from_bits(self.bits), self.read_format, self.branch_type, REGS_USER, REGS_INTR)
    }

    /// RAW without its size field, padded so that both together are a multiple of 8 bytes.
    fn padded_raw(&self) -> Vec<u8> {
        let mut raw = self.raw.clone();
        while !(raw.len() + 4).is_multiple_of(8) {
            raw.push(0);
        }
        raw
    }

    fn branch_words(&self) -> Vec<u64> {
        (0..self.branches as u64 * 3).map(|word| 0xb000 + word).collect()
    }

    /// Length of the record up to its variable fields.
    fn fixed_len(&self) -> usize {
        let fixed = b::PERF_SAMPLE_IDENTIFIER
            | b::PERF_SAMPLE_IP
            | b::PERF_SAMPLE_TID
            | b::PERF_SAMPLE_TIME
            | b::PERF_SAMPLE_ADDR
            | b::PERF_SAMPLE_ID
            | b::PERF_SAMPLE_STREAM_ID
            | b::PERF_SAMPLE_CPU
            | b::PERF_SAMPLE_PERIOD;
        8 + 8 * (self.bits & u64::from(fixed)).count_ones() as usize
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = RecordBytes::default();
        let fixed: [(u32, u64); 9] = [
            (b::PERF_SAMPLE_IDENTIFIER, 77),
            (b::PERF_SAMPLE_IP, 0x40_0000),
            (b::PERF_SAMPLE_TID, pair(11, 12)),
            (b::PERF_SAMPLE_TIME, 1_000),
            (b::PERF_SAMPLE_ADDR, 0xadd),
            (b::PERF_SAMPLE_ID, 77),
            (b::PERF_SAMPLE_STREAM_ID, 78),
            (b::PERF_SAMPLE_CPU, pair(3, -1)), // `reserved` is not promised to be 0
            (b::PERF_SAMPLE_PERIOD, 4_000),
        ];
        for (bit, word) in fixed {
            if self.has(bit) {
                out.u64(word);
            }
        }
        if self.has(b::PERF_SAMPLE_READ) {
            self.encode_read(&mut out);
        }
        if self.has(b::PERF_SAMPLE_CALLCHAIN) {
            out.u64(self.chain.len() as u64).words(&self.chain);
        }
        if self.has(b::PERF_SAMPLE_RAW) {
            let raw = self.padded_raw();
            out.u32(raw.len() as u32).bytes(&raw);
        }
        if self.has(b::PERF_SAMPLE_BRANCH_STACK) {
            out.u64(self.branches as u64);
            if self.branches_have(b::PERF_SAMPLE_BRANCH_HW_INDEX) {
                out.u64(31);
            }
            out.words(&self.branch_words());
            if self.branches_have(b::PERF_SAMPLE_BRANCH_COUNTERS) {
                out.words(&vec![9; self.branches]);
            }
        }
        let regs = |out: &mut RecordBytes, abi: u64, words: &[u64]| {
            out.u64(abi).words(if abi == 0 { &[] } else { words });
        };
        if self.has(b::PERF_SAMPLE_REGS_USER) {
            regs(&mut out, self.abi_user, &[1, 2, 3]);
        }
        if self.has(b::PERF_SAMPLE_STACK_USER) {
            out.u64(self.stack.len() as u64).bytes(&self.stack);
            if !self.stack.is_empty() {
                out.u64(self.stack_filled as u64);
            }
        }
        if self.has(b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT) {
            out.u64(0x0002_0003_0000_0001);
        }
        for (bit, word) in [(b::PERF_SAMPLE_DATA_SRC, 0xd5), (b::PERF_SAMPLE_TRANSACTION, 0x7a)] {
            if self.has(bit) {
                out.u64(word);
            }
        }
        if self.has(b::PERF_SAMPLE_REGS_INTR) {
            regs(&mut out, self.abi_intr, &[4, 5]);
        }
        for (bit, word) in [
            (b::PERF_SAMPLE_PHYS_ADDR, 0xfa),
            (b::PERF_SAMPLE_CGROUP, 0xc6),
            (b::PERF_SAMPLE_DATA_PAGE_SIZE, 4096),
            (b::PERF_SAMPLE_CODE_PAGE_SIZE, 2 << 20),
        ] {
            if self.has(bit) {
                out.u64(word);
            }
        }
        if self.has(b::PERF_SAMPLE_AUX) {
            out.u64(self.aux.len() as u64).bytes(&self.aux);
        }
        out.record(b::PERF_RECORD_SAMPLE, u32::from(MISC))
    }

    fn encode_read(&self, out: &mut RecordBytes) {
        let times = |out: &mut RecordBytes| {
            for (bit, time) in
                [(b::PERF_FORMAT_TOTAL_TIME_ENABLED, self.times.0), (b::PERF_FORMAT_TOTAL_TIME_RUNNING, self.times.1)]
            {
                if self.reads(bit) {
                    out.u64(time);
                }
            }
        };
        let id_and_lost = |out: &mut RecordBytes| {
            for (bit, word) in [(b::PERF_FORMAT_ID, 0x1d), (b::PERF_FORMAT_LOST, 0x105)] {
                if self.reads(bit) {
                    out.u64(word);
                }
            }
        };
        if self.reads(b::PERF_FORMAT_GROUP) {
            out.u64(self.counts.len() as u64);
            times(out);
            for &count in &self.counts {
                out.u64(count);
                id_and_lost(out);
            }
        } else {
            out.u64(self.counts[0]);
            times(out);
            id_and_lost(out);
        }
    }

    /// Decodes the record and compares every field with what went in.
    fn check(&self) {
        let record = self.encode();
        let layout = self.layout();
        let sample = layout.sample(&record).unwrap_or_else(|err| panic!("{err}: {self:?}"));
        let word = |bit, value| if self.has(bit) { value } else { 0 };
        let got = (sample.misc(), sample.ip(), sample.time, sample.addr(), sample.stream_id(), sample.period());
        let want = (
            MISC,
            word(b::PERF_SAMPLE_IP, 0x40_0000),
            word(b::PERF_SAMPLE_TIME, 1_000),
            word(b::PERF_SAMPLE_ADDR, 0xadd),
            word(b::PERF_SAMPLE_STREAM_ID, 78),
            word(b::PERF_SAMPLE_PERIOD, 4_000),
        );
        assert_eq!(got, want, "{self:?}");
        let (pid, tid) = if self.has(b::PERF_SAMPLE_TID) { (11, 12) } else { (0, 0) };
        let id = word(b::PERF_SAMPLE_IDENTIFIER | b::PERF_SAMPLE_ID, 77);
        let cpu = word(b::PERF_SAMPLE_CPU, 3) as u32;
        assert_eq!((sample.pid, sample.tid, sample.id(), sample.cpu), (pid, tid, id, cpu), "{self:?}");
        let time = if self.has(b::PERF_SAMPLE_TIME) { Some(1_000) } else { None };
        assert_eq!(layout.sample_time(&record), time, "{self:?}");

        let read = self.has(b::PERF_SAMPLE_READ);
        let group = self.reads(b::PERF_FORMAT_GROUP);
        let counts = if group { &self.counts[..] } else { &self.counts[..1] };
        assert_eq!(sample.read().values().collect::<Vec<_>>(), if read { counts } else { &[] }, "{self:?}");
        let timed = |bit, time| if read && self.reads(bit) { time } else { 0 };
        assert_eq!(sample.read().enabled, timed(b::PERF_FORMAT_TOTAL_TIME_ENABLED, self.times.0), "{self:?}");
        assert_eq!(sample.read().running, timed(b::PERF_FORMAT_TOTAL_TIME_RUNNING, self.times.1), "{self:?}");

        let chain = if self.has(b::PERF_SAMPLE_CALLCHAIN) { &self.chain[..] } else { &[] };
        assert_eq!(sample.callchain.iter().collect::<Vec<_>>(), chain, "{self:?}");
        assert_eq!((sample.callchain.len(), sample.callchain.is_empty()), (chain.len(), chain.is_empty()), "{self:?}");
        let raw = if self.has(b::PERF_SAMPLE_RAW) { self.padded_raw() } else { Vec::new() };
        assert_eq!(sample.raw, raw, "{self:?}");
        self.check_extra(&sample.extra().unwrap_or_else(|err| panic!("{err}: {self:?}")));
    }

    fn check_extra(&self, extra: &Extra<'_>) {
        let word = |bit, value| if self.has(bit) { Some(value) } else { None };
        let entries = le_words(&self.branch_words());
        let hw_index = if self.branches_have(b::PERF_SAMPLE_BRANCH_HW_INDEX) { Some(31) } else { None };
        let (user, intr) = (le_words(&[1, 2, 3]), le_words(&[4, 5]));
        let regs = |bit, abi, words| if self.has(bit) && abi != 0 { Some(words) } else { None };
        let want = Extra {
            branches: word(b::PERF_SAMPLE_BRANCH_STACK, 0).map(|_| Branches { hw_index, entries: &entries }),
            regs_user: regs(b::PERF_SAMPLE_REGS_USER, self.abi_user, &user[..]),
            stack_user: match word(b::PERF_SAMPLE_STACK_USER, 0) {
                Some(_) => &self.stack[..self.stack_filled],
                None => &[],
            },
            stack_reserved: if self.has(b::PERF_SAMPLE_STACK_USER) { self.stack.len() } else { 0 },
            weight: word(b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT, 0x0002_0003_0000_0001),
            data_src: word(b::PERF_SAMPLE_DATA_SRC, 0xd5),
            transaction: word(b::PERF_SAMPLE_TRANSACTION, 0x7a),
            regs_intr: regs(b::PERF_SAMPLE_REGS_INTR, self.abi_intr, &intr[..]),
            phys_addr: word(b::PERF_SAMPLE_PHYS_ADDR, 0xfa),
            cgroup: word(b::PERF_SAMPLE_CGROUP, 0xc6),
            data_page_size: word(b::PERF_SAMPLE_DATA_PAGE_SIZE, 4096),
            code_page_size: word(b::PERF_SAMPLE_CODE_PAGE_SIZE, 2 << 20),
            aux: if self.has(b::PERF_SAMPLE_AUX) { &self.aux } else { &[] },
        };
        assert_eq!(*extra, want, "{self:?}");
    }
}

/// Two halves of a word, in memory order.
pub(super) fn pair(first: i32, second: i32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Every bit of `perf_event_attr.sample_type` that Linux 7.2 knows.
pub(super) fn every_bit() -> impl Iterator<Item = u64> {
    (0..64).map(|shift| 1 << shift).take_while(|bit| *bit < u64::from(b::PERF_SAMPLE_MAX))
}

/// Only one of the two weights may be asked for.
fn all_bits() -> u64 {
    every_bit().sum::<u64>() & !u64::from(b::PERF_SAMPLE_WEIGHT)
}

fn read_formats() -> impl Iterator<Item = u64> {
    (0..1 << 5).map(|bits| {
        [
            b::PERF_FORMAT_TOTAL_TIME_ENABLED,
            b::PERF_FORMAT_TOTAL_TIME_RUNNING,
            b::PERF_FORMAT_ID,
            b::PERF_FORMAT_GROUP,
            b::PERF_FORMAT_LOST,
        ]
        .into_iter()
        .enumerate()
        .filter(|(at, _)| bits >> at & 1 == 1)
        .map(|(_, bit)| u64::from(bit))
        .sum()
    })
}

/// One case per way in which a field's length can vary, each with all other fields around it.
fn variants() -> Vec<Case> {
    let base = Case::new(all_bits());
    let index = u64::from(b::PERF_SAMPLE_BRANCH_HW_INDEX);
    let counters = u64::from(b::PERF_SAMPLE_BRANCH_COUNTERS);
    let mut cases = vec![
        base.clone(),
        Case { bits: base.bits ^ u64::from(b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT), ..base.clone() },
        Case { abi_user: 0, ..base.clone() },
        Case { abi_intr: 0, ..base.clone() },
        Case { abi_user: 1, abi_intr: 0, ..base.clone() },
        Case { stack: Vec::new(), stack_filled: 0, ..base.clone() },
        Case { stack_filled: 0, ..base.clone() },
        Case { stack_filled: 32, ..base.clone() },
        Case { aux: Vec::new(), ..base.clone() },
        Case { chain: Vec::new(), ..base.clone() },
        Case { branches: 0, ..base.clone() },
    ];
    cases.extend((0..=16).map(|len| Case { raw: vec![0xee; len], ..base.clone() }));
    cases.extend([index, counters, index | counters].map(|branch_type| Case { branch_type, ..base.clone() }));
    for read_format in read_formats() {
        let case = Case { read_format, ..base.clone() };
        cases.push(Case { counts: vec![1, u64::MAX, 3], ..case.clone() });
        if case.reads(b::PERF_FORMAT_GROUP) {
            cases.push(Case { counts: Vec::new(), ..case.clone() });
        }
        cases.push(case);
    }
    cases
}

#[test]
fn the_table_knows_every_bit() {
    let known: u64 = SampleType::ALL.iter().map(|(_, bit)| bit.bits()).sum();
    assert_eq!(known, every_bit().sum::<u64>());
}

#[test]
fn every_field_alone_and_with_base() {
    for bit in every_bit() {
        Case::new(bit).check();
        Case::new(bit | SampleType::BASE.bits()).check();
        for other in every_bit() {
            Case::new(bit | other | SampleType::BASE.bits()).check();
        }
    }
    Case::new(0).check();
}

#[test]
fn every_read_format() {
    for read_format in read_formats() {
        for counts in [vec![9], vec![1, u64::MAX, 3]] {
            let bits = u64::from(b::PERF_SAMPLE_READ | b::PERF_SAMPLE_RAW);
            Case { read_format, counts, ..Case::new(bits) }.check();
        }
    }
}

#[test]
fn all_fields_together() {
    variants().iter().for_each(Case::check);
}
