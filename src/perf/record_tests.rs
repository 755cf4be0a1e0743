//! [`decode`] and [`Layout::split_id`] against records written here, with every shape of their trailer.
//!
//! Order of the trailer: `perf_event__output_id_sample` in kernel/events/core.c; of the bodies: perf_event_open(2).

use perf_event_open_sys::bindings as b;

use crate::perf::decode::decode;
use crate::perf::layout::Layout;
use crate::perf::layout_tests::{RecordBytes, every_bit, pair};
use crate::perf::record::{Callchain, FileId, Malformed, Mmap, Record, SampleId, TaskRecord};
use crate::perf::sample_type::SampleType;

/// The trailer of every record that is no sample.
const TRAILER: SampleId = SampleId { pid: 21, tid: 22, time: 2_000, id: 77, cpu: 3 };

/// `perf_event__output_id_sample`: the order differs from that of a sample, and IDENTIFIER comes last.
fn trailer(bits: u64) -> (Vec<u8>, SampleId) {
    let mut out = RecordBytes::default();
    let words: [(u32, u64); 6] = [
        (b::PERF_SAMPLE_TID, pair(TRAILER.pid, TRAILER.tid)),
        (b::PERF_SAMPLE_TIME, TRAILER.time),
        (b::PERF_SAMPLE_ID, TRAILER.id),
        (b::PERF_SAMPLE_STREAM_ID, 78),
        (b::PERF_SAMPLE_CPU, pair(TRAILER.cpu as i32, -1)),
        (b::PERF_SAMPLE_IDENTIFIER, TRAILER.id),
    ];
    let has = |bit: u32| bits & u64::from(bit) != 0;
    for (bit, word) in words {
        if has(bit) {
            out.u64(word);
        }
    }
    let mut id = SampleId::default();
    if has(b::PERF_SAMPLE_TID) {
        (id.pid, id.tid) = (TRAILER.pid, TRAILER.tid);
    }
    if has(b::PERF_SAMPLE_TIME) {
        id.time = TRAILER.time;
    }
    if has(b::PERF_SAMPLE_ID | b::PERF_SAMPLE_IDENTIFIER) {
        id.id = TRAILER.id;
    }
    if has(b::PERF_SAMPLE_CPU) {
        id.cpu = TRAILER.cpu;
    }
    (out.0, id)
}

/// A record that is no sample, without its trailer.
struct Side {
    kind: u32,
    misc: u32,
    body: Vec<u8>,
    want: Record<'static>,
}

fn side(kind: u32, misc: u32, want: Record<'static>, body: impl FnOnce(&mut RecordBytes)) -> Side {
    let mut bytes = RecordBytes::default();
    body(&mut bytes);
    Side { kind, misc, body: bytes.0, want }
}

fn sides() -> Vec<Side> {
    const EXEC: u32 = b::PERF_RECORD_MISC_COMM_EXEC;
    const BUILD_ID: u32 = b::PERF_RECORD_MISC_MMAP_BUILD_ID;
    const OUT: u32 = b::PERF_RECORD_MISC_SWITCH_OUT;
    const PREEMPT: u32 = b::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
    let comm = |exec| Record::Comm { pid: 5, tid: 6, comm: b"ping pong", exec };
    let task = TaskRecord { pid: 5, ppid: 4, tid: 6, ptid: 3, time: 1_999 };
    let task_body = |out: &mut RecordBytes| {
        out.u32(5).u32(4).u32(6).u32(3).u64(1_999);
    };
    let mmap = |file| {
        let path = b"/usr/lib/libc.so.6";
        Record::Mmap(Mmap { pid: 5, tid: 6, addr: 0x7f00_0000, len: 0x3000, offset: 0x1000, file, path })
    };
    let mmap_head = |out: &mut RecordBytes| {
        out.u32(5).u32(6).u64(0x7f00_0000).u64(0x3000).u64(0x1000);
    };
    let build_id = |len: u8| {
        move |out: &mut RecordBytes| {
            mmap_head(out);
            out.bytes(&[len, 0, 0, 0]).bytes(&[0xb1; 20]).u32(5).u32(2).name(b"/usr/lib/libc.so.6");
        }
    };
    let inode = FileId::Inode { major: 8, minor: 1, inode: 4_711 };
    let throttle = |out: &mut RecordBytes| {
        out.u64(1_999).u64(77).u64(78);
    };
    let switch = |out, preempted, other| Record::Switch { out, preempted, other };
    let ksymbol = |gone| Record::Ksymbol { addr: 0xffff_ffff_a000, len: 120, name: b"bpf_prog_1", gone };
    let ksymbol_body = |flags: u16| {
        move |out: &mut RecordBytes| {
            out.u64(0xffff_ffff_a000).u32(120).u16(1).u16(flags).name(b"bpf_prog_1");
        }
    };
    let deferred =
        |words| Record::DeferredCallchain { cookie: 0x2_0000_0000_0001, callchain: Callchain::from_bytes(words) };
    vec![
        side(b::PERF_RECORD_LOST, 0, Record::Lost { count: 9 }, |out| {
            out.u64(77).u64(9);
        }),
        side(b::PERF_RECORD_LOST_SAMPLES, 0, Record::LostSamples { count: 9 }, |out| {
            out.u64(9);
        }),
        side(b::PERF_RECORD_COMM, 0, comm(false), |out| {
            out.u32(5).u32(6).name(b"ping pong");
        }),
        side(b::PERF_RECORD_COMM, EXEC, comm(true), |out| {
            out.u32(5).u32(6).name(b"ping pong");
        }),
        side(b::PERF_RECORD_FORK, 0, Record::Fork(task), task_body),
        side(b::PERF_RECORD_EXIT, 0, Record::Exit(task), task_body),
        side(b::PERF_RECORD_MMAP, 0, mmap(FileId::Unknown), |out| {
            mmap_head(out);
            out.name(b"/usr/lib/libc.so.6");
        }),
        side(b::PERF_RECORD_MMAP2, 0, mmap(inode), |out| {
            mmap_head(out);
            out.u32(8).u32(1).u64(4_711).u64(1).u32(5).u32(2).name(b"/usr/lib/libc.so.6");
        }),
        side(b::PERF_RECORD_MMAP2, BUILD_ID, mmap(FileId::BuildId(&[0xb1; 20])), build_id(20)),
        side(b::PERF_RECORD_MMAP2, BUILD_ID, mmap(FileId::BuildId(&[0xb1; 16])), build_id(16)),
        side(b::PERF_RECORD_MMAP2, BUILD_ID, mmap(FileId::BuildId(&[])), build_id(0)),
        side(b::PERF_RECORD_MMAP2, BUILD_ID, mmap(FileId::BuildId(&[0xb1; 20])), build_id(255)), // false: it has 20
        side(b::PERF_RECORD_THROTTLE, 0, Record::Throttle { on: true }, throttle),
        side(b::PERF_RECORD_UNTHROTTLE, 0, Record::Throttle { on: false }, throttle),
        side(b::PERF_RECORD_SWITCH, 0, switch(false, false, None), |_| ()),
        side(b::PERF_RECORD_SWITCH, OUT, switch(true, false, None), |_| ()),
        side(b::PERF_RECORD_SWITCH, OUT | PREEMPT, switch(true, true, None), |_| ()),
        side(b::PERF_RECORD_SWITCH_CPU_WIDE, OUT, switch(true, false, Some(8)), |out| {
            out.u32(7).u32(8);
        }),
        side(b::PERF_RECORD_KSYMBOL, 0, ksymbol(false), ksymbol_body(0)),
        side(b::PERF_RECORD_KSYMBOL, 0, ksymbol(true), ksymbol_body(1)),
        side(b::PERF_RECORD_CGROUP, 0, Record::Cgroup { id: 31, path: b"/system.slice/nginx" }, |out| {
            out.u64(31).name(b"/system.slice/nginx");
        }),
        side(b::PERF_RECORD_CALLCHAIN_DEFERRED, 0, deferred(&[7; 16]), |out| {
            out.u64(0x2_0000_0000_0001).u64(2).bytes(&[7; 16]);
        }),
        side(b::PERF_RECORD_CALLCHAIN_DEFERRED, 0, deferred(&[]), |out| {
            out.u64(0x2_0000_0000_0001).u64(0);
        }),
        side(b::PERF_RECORD_ITRACE_START, 0, Record::Other(b::PERF_RECORD_ITRACE_START), |out| {
            out.u32(1).u32(2);
        }),
    ]
}

/// `sample_type`s whose trailers differ: none, BASE, all, and each field alone.
fn trailer_types() -> impl Iterator<Item = u64> {
    every_bit().chain([0, SampleType::BASE.bits(), every_bit().sum()])
}

impl Side {
    fn encode(&self, bits: u64) -> (Vec<u8>, SampleId) {
        let (trailer, id) = trailer(bits);
        let mut bytes = RecordBytes::default();
        bytes.bytes(&self.body).bytes(&trailer);
        (bytes.record(self.kind, self.misc), id)
    }
}

#[test]
fn side_records_with_every_trailer() {
    for side in sides() {
        for bits in trailer_types() {
            let layout = Layout::new(SampleType::from_bits(bits), 0);
            let (record, id) = side.encode(bits);
            assert_eq!(decode(&record, &layout), Ok((side.want, id)), "type {bits:#x}");
            assert_eq!(layout.split_id(&record), Ok((&side.body[..], id)), "type {bits:#x}");
            let time = if bits & u64::from(b::PERF_SAMPLE_TIME) != 0 { Some(TRAILER.time) } else { None };
            assert_eq!(layout.side_time(&record), time, "{:?}, type {bits:#x}", side.want);
        }
    }
}

#[test]
fn side_records_cut_anywhere_are_refused() {
    for side in sides() {
        for bits in trailer_types() {
            let layout = Layout::new(SampleType::from_bits(bits), 0);
            let (record, _) = side.encode(bits);
            for len in 0..record.len() {
                let cut = &record[..len];
                assert!(decode(cut, &layout).is_err(), "{:?} at {len} of {}", side.want, record.len());
                assert!(layout.split_id(cut).is_err(), "{:?} at {len} of {}", side.want, record.len());
                let _ = (layout.side_time(cut), layout.sample_time(cut));
            }
        }
    }
}

/// The header has the size of the cut record, so only the fields can show that it was cut.
#[test]
fn side_records_that_claim_to_be_short() {
    for side in sides() {
        let layout = Layout::new(SampleType::BASE, 0);
        let fixed = match side.want {
            Record::Lost { .. } | Record::Ksymbol { .. } => 16,
            Record::LostSamples { .. } | Record::Comm { .. } | Record::Cgroup { .. } => 8,
            Record::Fork(_) | Record::Exit(_) => 24,
            Record::Mmap(Mmap { file: FileId::Unknown, .. }) => 32,
            Record::Mmap(_) => 64,
            Record::Switch { other: Some(_), .. } => 8,
            Record::DeferredCallchain { callchain, .. } => 16 + 8 * callchain.len(),
            Record::Throttle { .. } | Record::Switch { .. } | Record::Other(_) => 0,
        };
        let (record, _) = side.encode(SampleType::BASE.bits());
        for len in 0..record.len() {
            let mut cut = record[..len].to_vec();
            if let Some(size) = cut.get_mut(6..8) {
                size.copy_from_slice(&(len as u16).to_ne_bytes());
            }
            let got = decode(&cut, &layout);
            assert_eq!(got.is_err(), len < 8 + fixed + 32, "{:?} at {len}: {got:?}", side.want);
        }
    }
}

#[test]
fn more_words_than_a_deferred_callchain_has() {
    let layout = Layout::new(SampleType::BASE, 0);
    let (trailer, _) = trailer(SampleType::BASE.bits());
    for count in [3, 1 << 61, u64::MAX] {
        let mut bytes = RecordBytes::default();
        bytes.u64(1).u64(count).bytes(&[7; 16]).bytes(&trailer);
        let record = bytes.record(b::PERF_RECORD_CALLCHAIN_DEFERRED, 0);
        assert_eq!(decode(&record, &layout), Err(Malformed::Length), "{count}");
    }
}

/// A cookie may be any number.
#[test]
fn the_cookie_of_a_deferred_callchain_is_no_address() {
    const KERNEL: [u64; 2] = [b::PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0001];
    let deferred = b::PERF_CONTEXT_USER_DEFERRED;
    let cases: [(&[u64], &[u64]); 6] = [
        (&[KERNEL[0], KERNEL[1], deferred, 0x2_0000_0000_0001], &KERNEL),
        (&[KERNEL[0], KERNEL[1], deferred, b::PERF_CONTEXT_USER], &KERNEL),
        (&[deferred, 5], &[]),
        (&[deferred], &[deferred]), // no kernel writes that
        (&[KERNEL[0], KERNEL[1]], &KERNEL),
        (&[], &[]),
    ];
    let with = SampleType::BASE.with(SampleType::CALLCHAIN);
    for (chain, want) in cases {
        for sample_type in [with, with.with(SampleType::RAW)] {
            let mut bytes = RecordBytes::default();
            bytes.u64(1).u64(pair(21, 22)).u64(2_000).u64(3); // BASE
            bytes.u64(chain.len() as u64).words(chain).u32(4).u32(9);
            let mut record = bytes.record(b::PERF_RECORD_SAMPLE, 0);
            if sample_type == with {
                record = record[..record.len() - 8].to_vec(); // no RAW
                let size = record.len() as u16;
                record[6..8].copy_from_slice(&size.to_ne_bytes());
            }
            let layout = Layout::full(sample_type, 0, 0, 0, 0);
            let callchain = layout.sample(&record).unwrap().callchain;
            assert_eq!(callchain.iter().collect::<Vec<u64>>(), want, "{chain:x?}");
        }
    }
}

#[test]
fn samples_tell_32_bit_tasks() {
    use b::{PERF_SAMPLE_REGS_ABI_32, PERF_SAMPLE_REGS_ABI_64, PERF_SAMPLE_REGS_ABI_NONE};
    let with = SampleType::RAW.with(SampleType::REGS_USER);
    let cases = [
        (with, Some(PERF_SAMPLE_REGS_ABI_32), true),
        (with, Some(PERF_SAMPLE_REGS_ABI_64), false),
        (with, Some(PERF_SAMPLE_REGS_ABI_NONE), false),
        (with, None, false),
        (SampleType::RAW, Some(PERF_SAMPLE_REGS_ABI_32), false),
    ];
    for (sample_type, abi, want) in cases {
        let mut bytes = RecordBytes::default();
        bytes.bytes(&12_u32.to_ne_bytes()).bytes(&[7; 12]); // RAW
        if let Some(abi) = abi {
            bytes.u64(u64::from(abi)).u64(0xabc);
        }
        let record = bytes.record(b::PERF_RECORD_SAMPLE, 0);
        let layout = Layout::full(sample_type, 0, 0, 1, 0);
        assert_eq!(layout.sample(&record).map(|sample| sample.is_compat()), Ok(want), "{sample_type:?} {abi:?}");
    }
}

#[test]
fn words_of_a_stack_are_as_wide_as_the_program_has_them() {
    use b::{PERF_SAMPLE_REGS_ABI_32, PERF_SAMPLE_REGS_ABI_64};
    let layout = Layout::full(SampleType::REGS_USER.with(SampleType::STACK_USER), 0, 0, 1, 0);
    let word = |abi: u32, address: u64| {
        let mut bytes = RecordBytes::default();
        bytes.u64(u64::from(abi)).u64(0x1000); // the stack pointer
        bytes.u64(16).u64(0x1111_2222_3333_4444).u64(0x5555_6666_7777_8888).u64(16);
        let record = bytes.record(b::PERF_RECORD_SAMPLE, 0);
        layout.sample(&record).unwrap().user_word(address)
    };
    for (address, wide) in [(0x1008, Some(0x5555_6666_7777_8888)), (0x100c, None), (0x1010, None), (0xff8, None)] {
        assert_eq!(word(PERF_SAMPLE_REGS_ABI_64, address), wide, "{address:#x}");
    }
    let [low, high] =
        if cfg!(target_endian = "little") { [0x7777_8888, 0x5555_6666] } else { [0x5555_6666, 0x7777_8888] };
    for (address, narrow) in [(0x1008, Some(low)), (0x100c, Some(high)), (0x100e, None), (0x1010, None)] {
        assert_eq!(word(PERF_SAMPLE_REGS_ABI_32, address), narrow, "{address:#x}");
    }
}
