//! Samples that are cut short, and samples with false sizes.

use super::*;

/// The first `len` bytes of a record, with that size in the header, followed by other bytes as in a ring.
fn cut(record: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = record[..len].to_vec();
    if let Some(size) = bytes.get_mut(6..8) {
        size.copy_from_slice(&(len as u16).to_ne_bytes());
    }
    bytes.resize(len + 300, 0xa5);
    bytes
}

#[test]
fn samples_cut_anywhere_are_refused() {
    for case in variants() {
        let (record, layout) = (case.encode(), case.layout());
        for len in 8..record.len() {
            assert!(layout.sample(&record[..len]).is_err(), "it claims more than there is");
            match layout.sample(&cut(&record, len)).and_then(|sample| sample.extra().map(drop)) {
                Err(Malformed::Short | Malformed::Length) => {}
                other => panic!("{other:?} at {len} of {}: {case:?}", record.len()),
            }
        }
    }
    // Without the rare fields, `sample` itself must notice.
    for bits in every_bit() {
        let case = Case::new(bits | SampleType::BASE.bits());
        let (record, layout) = (case.encode(), case.layout());
        for len in 0..record.len() {
            let got = layout.sample(&cut(&record, len)).and_then(|sample| sample.extra().map(drop));
            assert!(got.is_err(), "at {len} of {}: {case:?}", record.len());
        }
    }
}

/// Puts `value` over the word at `offset`.
fn lie(record: &mut [u8], offset: usize, value: u64) {
    record[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
}

#[test]
fn sizes_that_lie_are_refused() {
    let counts = [1, 1 << 29, 1 << 32, u64::MAX / 24 + 1, u64::MAX / 8 + 1, 1 << 61, 1 << 63, u64::MAX];
    let group = Case { read_format: u64::from(b::PERF_FORMAT_GROUP | b::PERF_FORMAT_ID), ..Case::new(0) };
    let branches = |branch_type: u32| Case { branch_type: branch_type.into(), branches: 0, ..Case::new(0) };
    // Each field ends with its count, so one more entry does not fit.
    let cases = [
        (b::PERF_SAMPLE_READ, Case { counts: Vec::new(), ..group.clone() }),
        (b::PERF_SAMPLE_CALLCHAIN, Case { chain: Vec::new(), ..Case::new(0) }),
        (b::PERF_SAMPLE_BRANCH_STACK, branches(0)),
        (b::PERF_SAMPLE_BRANCH_STACK, branches(b::PERF_SAMPLE_BRANCH_COUNTERS)),
        (b::PERF_SAMPLE_STACK_USER, Case { stack: Vec::new(), stack_filled: 0, ..Case::new(0) }),
        (b::PERF_SAMPLE_AUX, Case { aux: Vec::new(), ..Case::new(0) }),
    ];
    for (bit, case) in cases {
        for bits in [0, SampleType::BASE.bits()] {
            let case = Case { bits: bits | u64::from(bit), ..case.clone() };
            let layout = case.layout();
            for count in counts {
                let mut record = case.encode();
                lie(&mut record, case.fixed_len(), count);
                let got = layout.sample(&record).and_then(|sample| sample.extra().map(drop));
                assert!(got.is_err(), "{count:#x}: {case:?}");
            }
        }
    }
}

#[test]
fn raw_and_stack_sizes_that_lie_are_refused() {
    let case = Case::new(SampleType::BASE.bits() | u64::from(b::PERF_SAMPLE_RAW));
    let at = case.fixed_len();
    let record = case.encode();
    for size in [record.len() as u32 - at as u32 - 3, 1 << 16, 1 << 31, u32::MAX] {
        let mut record = record.clone();
        record[at..at + 4].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(case.layout().sample(&record).map(drop), Err(Malformed::Length), "{size}");
    }
    let case = Case::new(SampleType::BASE.bits() | u64::from(b::PERF_SAMPLE_STACK_USER));
    for filled in [33, 40, u64::MAX] {
        let mut record = case.encode();
        let last = record.len() - 8;
        lie(&mut record, last, filled);
        let layout = case.layout();
        assert_eq!(layout.sample(&record).unwrap().extra().map(drop), Err(Malformed::Length), "{filled}");
    }
}

/// `sample_of_kind` gives the same result as `sample`, or both refuse the record for the same reason; also with the
/// true size in the header, and with other records behind it. Returns whether the record was a sample.
fn short_is_the_same(layout: &Layout, record: &[u8]) -> bool {
    let fields = |sample: &Sample<'_>| {
        let extra = format!("{:?}", sample.extra());
        let chain: Vec<u64> = sample.callchain.iter().collect();
        let (raw, rest, record) = (sample.raw.to_vec(), sample.rest().len(), sample.record().to_vec());
        (sample.pid, sample.tid, sample.time, sample.cpu, sample.period(), chain, raw, rest, record, extra)
    };
    let same = |bytes: &[u8]| {
        let (short, long) = (layout.sample_of_kind(layout.kind(), bytes), layout.sample(bytes));
        assert_eq!(short.as_ref().map(fields), long.as_ref().map(fields), "{layout:?} {bytes:?}");
        short.is_ok()
    };
    let claims = cut(record, record.len());
    same(record) | same(&claims[..record.len()]) | same(&claims)
}

#[test]
fn samples_cut_anywhere_are_the_same_in_short() {
    let of = |bits: &[SampleType]| bits.iter().fold(0, |all, bit| all | bit.bits());
    let others = of(&[SampleType::IP, SampleType::ADDR, SampleType::ID, SampleType::STREAM_ID, SampleType::READ]);
    let (period, callchain) = (SampleType::PERIOD, SampleType::CALLCHAIN);
    for (without, kind) in [
        (of(&[]), SampleLayoutKind::PeriodAndCallchain),
        (of(&[period]), SampleLayoutKind::Callchain),
        (of(&[callchain]), SampleLayoutKind::Period),
        (of(&[period, callchain]), SampleLayoutKind::Plain),
    ] {
        for case in variants() {
            let case = Case { bits: case.bits & !others & !without, ..case };
            let (layout, record) = (case.layout(), case.encode());
            assert_eq!(layout.kind(), kind);
            let sound = (0..=record.len()).filter(|&len| short_is_the_same(&layout, &record[..len])).count();
            assert!(sound > 0, "{case:?}");
        }
    }
    assert!(variants().iter().all(|case| case.layout().kind() == SampleLayoutKind::Other));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn samples_of_random_bytes_are_the_same_in_short(
        bits in prop::collection::vec(prop::sample::select(SampleType::ALL), 0..3),
        // Small words are plausible sizes.
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..24, (0_u64..100).prop_map(|low| low | 7 << 32)], 0..24),
        tail in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let base = SampleType::BASE.with(SampleType::RAW);
        let layout = Layout::new(bits.into_iter().fold(base, |all, (_, bit)| all.with(bit)), 0);
        let mut body = RecordBytes::default();
        body.words(&words).bytes(&tail);
        short_is_the_same(&layout, &body.0);
        body.0.truncate(words.len() * 8);
        short_is_the_same(&layout, &body.0);
    }

    /// Samples of tracepoints whose lengths are sometimes right.
    #[test]
    fn samples_of_random_lengths_are_the_same_in_short(
        kind in prop::sample::select(&[SampleLayoutKind::Plain, SampleLayoutKind::Period, SampleLayoutKind::Callchain, SampleLayoutKind::PeriodAndCallchain][..]),
        filling in prop::collection::vec(any::<u8>(), 512),
        words in 5_usize..40,
        chain in 0_u64..30,
        padding in 0_usize..12,
    ) {
        let mut bits = SampleType::BASE.with(SampleType::RAW);
        bits = if kind.has_period() { bits.with(SampleType::PERIOD) } else { bits };
        bits = if kind.has_callchain() { bits.with(SampleType::CALLCHAIN) } else { bits };
        let (mut record, layout) = (filling[..words * 8].to_vec(), Layout::new(bits, 0));
        let mut at = if kind.has_period() { 48 } else { 40 };
        if kind.has_callchain() && at < record.len() {
            lie(&mut record, at, chain);
            at += 8 + 8 * chain as usize;
        }
        let raw = record.len().checked_sub(at + 4 + padding);
        if let (Some(raw), Some(size)) = (raw, record.get_mut(at..at + 4)) {
            size.copy_from_slice(&(raw as u32).to_ne_bytes());
        }
        prop_assert!(layout.kind() == kind && (short_is_the_same(&layout, &record) || raw.is_none()));
    }

    /// Samples of tracepoints with an ABI behind RAW.
    #[test]
    fn samples_with_an_abi_are_the_same_in_short(
        filling in prop::collection::vec(any::<u8>(), 512),
        words in 6_usize..40,
        behind in prop_oneof![Just(8_usize), Just(16), 0_usize..40],
    ) {
        let bits = SampleType::BASE.with(SampleType::RAW).with(SampleType::REGS_USER);
        let (mut record, layout) = (filling[..words * 8].to_vec(), Layout::full(bits, 0, 0, 1, 0));
        prop_assert_eq!(layout.kind(), SampleLayoutKind::Abi);
        let raw = record.len().saturating_sub(44 + behind) as u32;
        record[40..44].copy_from_slice(&raw.to_ne_bytes());
        short_is_the_same(&layout, &record);
        let two = Layout::full(bits, 0, 0, 3, 0);
        prop_assert!(two.kind() == SampleLayoutKind::Plain, "other records are decoded at length");
        short_is_the_same(&two, &record);
    }

    #[test]
    fn random_bytes_do_no_harm(
        bits in any::<u64>(),
        read_format in 0_u64..32,
        branch_type in any::<u64>(),
        masks in any::<(u64, u64)>(),
        // Small words are plausible sizes.
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..64], 0..80),
        tail in prop::collection::vec(any::<u8>(), 0..8),
        kind in 0_u32..24,
        true_size in any::<bool>(),
    ) {
        let layout = Layout::full(SampleType::from_bits(bits), read_format, branch_type, masks.0, masks.1);
        let mut body = RecordBytes::default();
        body.words(&words).bytes(&tail);
        let mut record = body.record(kind, 0);
        if !true_size {
            record[6..8].copy_from_slice(&[1, 0xff]);
        }
        for record in [&record[..], &body.0] {
            let _ = layout.sample_time(record);
            let _ = layout.side_time(record);
            let _ = layout.extra(record).map(|extra| format!("{extra:?}"));
            let _ = layout.split_id(record);
            let _ = decode(record, &layout);
            if let Ok(sample) = layout.sample(record) {
                let _ = sample.extra();
                prop_assert!(sample.callchain.iter().count() * 8 + sample.raw.len() + sample.rest().len() <= record.len());
                prop_assert!(sample.read().values().count() * 8 <= record.len());
            }
        }
    }
}
