//! Records of any event: what is decoded lies within the record, and agrees with the short cuts of the hot path.

use perf_prof::perf::Sample;
use perf_prof::perf::decode::decode;
use perf_prof::perf::layout::Layout;
use perf_prof::perf::record::{FileId, Record, record_type, sample_identifier};
use perf_prof::perf::sample_type::SampleType;

use super::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let sample_type = SampleType::from_bits(input.u64());
    let layout = Layout::full(sample_type, input.u64(), input.u64(), input.u64(), input.u64());
    let claims_its_size = input.u8() & 1 == 1;
    let mut record = input.0.to_vec();
    if claims_its_size && record.len() >= 8 {
        let size = record.len() as u16;
        record[6..8].copy_from_slice(&size.to_ne_bytes());
    }
    let _ = (record_type(&record), sample_identifier(&record));
    sample(&record, &layout, sample_type);
    in_a_ring(&record, &layout);
    side(&record, &layout, sample_type);
}

fn sample(record: &[u8], layout: &Layout, sample_type: SampleType) {
    let time = layout.sample_time(record);
    let Ok(sample) = layout.sample(record) else {
        return assert!(layout.sample_of_kind(layout.kind(), record).is_err());
    };
    let short = layout.sample_of_kind(layout.kind(), record).expect("the long way has decoded it");
    let parts = |sample: &Sample<'_>| (sample.pid, sample.tid, sample.time, sample.cpu, sample.callchain.len());
    assert_eq!(parts(&short), parts(&sample));
    assert!(std::ptr::eq(short.raw, sample.raw) && short.rest().len() == sample.rest().len());
    if sample_type.contains(SampleType::TIME) {
        assert_eq!(time, Some(sample.time));
    }
    if sample_type.contains(SampleType::IDENTIFIER) && record_type(record) == 9 {
        assert_eq!(sample_identifier(record), Some(sample.id()));
    }
    let words = sample.callchain.len() + sample.read().values().count();
    assert!(sample.callchain.iter().count() == sample.callchain.len() && words <= record.len() / 8);
    is_within(record, sample.raw);
    is_within(record, sample.rest());
    let _ = (sample.is_compat(), sample.chain_form());
    for address in [0, sample.addr(), u64::MAX, 1 << 47] {
        let _ = sample.user_word(address);
    }
    let Ok(extra) = sample.extra() else { return };
    let parts = [Some(extra.stack_user), Some(extra.aux), extra.regs_user, extra.regs_intr];
    parts.into_iter().flatten().for_each(|part| is_within(record, part));
    extra.branches.iter().for_each(|branches| is_within(record, branches.entries));
}

/// The record with other records behind it, as in a ring.
fn in_a_ring(record: &[u8], layout: &Layout) {
    let mut rest = record.to_vec();
    rest.resize(record.len() + 400, 0xa5);
    let Ok(sample) = layout.sample_of_kind(layout.kind(), &rest) else { return };
    let whole = &rest[..sample.record().len()];
    let alone = layout.sample(whole).expect("it was decoded with others behind it");
    let fixed = |sample: &Sample<'_>| (sample.pid, sample.tid, sample.time, sample.cpu, sample.rest().len());
    assert_eq!(fixed(&sample), fixed(&alone));
    assert!(std::ptr::eq(sample.raw, alone.raw) && sample.callchain.words() == alone.callchain.words());
    is_within(whole, sample.raw);
}

fn side(record: &[u8], layout: &Layout, sample_type: SampleType) {
    let Ok((decoded, id)) = decode(record, layout) else { return };
    if sample_type.contains(SampleType::TIME) {
        assert_eq!(layout.side_time(record), Some(id.time));
    }
    match decoded {
        Record::Comm { comm: text, .. } | Record::Ksymbol { name: text, .. } | Record::Cgroup { path: text, .. } => {
            is_within(record, text);
            assert!(!text.contains(&0));
        }
        Record::Mmap(mmap) => {
            is_within(record, mmap.path);
            if let FileId::BuildId(id) = mmap.file {
                is_within(record, id);
                assert!(id.len() <= 20);
            }
        }
        _ => {}
    }
}

fn is_within(record: &[u8], part: &[u8]) {
    let (all, part_at) = (record.as_ptr_range(), part.as_ptr_range());
    assert!(part.is_empty() || all.start <= part_at.start && part_at.end <= all.end);
}
