//! Unwind tables, registers and stacks that lie: a walk ends, within its bounds, and is the same when its rules come from
//! the cache.

use std::sync::Arc;

use perf_prof::unwind::{
    Arch, CodeKind, CodeLoad, CodeRange, FrameSection, FrameSections, FrameTables, LoadNothing, MAX_FRAMES, MappedCode,
    SpaceCode, Unwinder, UnwoundChain, UserRegs, UserStackSample, Walked,
};

use super::input::Input;

/// The linker's addresses.
const CODE: u64 = 0x1000;
const CODE_BYTES: u64 = 0x1_0000;
const EH_FRAME: u64 = 0x2_0000;
const HEADER: u64 = 0x3_0000;
/// Where the file's first byte, code without a file, the trampoline of return probes and the stack are.
const MAPPED: u64 = 0x5555_0000_0000;
const ANONYMOUS: u64 = 0x6666_0000_0000;
const TRAMPOLINE: u64 = 0x7777_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.u8();
    let arch = if flags & 1 == 0 { Arch::X86_64 } else { Arch::Aarch64 };
    let mut section = |address| {
        let len = input.u16();
        FrameSection { address, bytes: input.bytes(len.into()).to_vec() }
    };
    let sections = FrameSections {
        arch,
        eh_frame: section(EH_FRAME),
        eh_frame_hdr: section(HEADER),
        debug_frame: section(0),
        loads: vec![CodeLoad { offset: 0, len: CODE_BYTES, address: CODE }],
        entry: (flags & 2 > 0).then_some(CODE + 0x800),
        sigreturns: vec![CODE + 0x900],
    };
    let mut pointer = || word(input.u64());
    let general = pointer();
    let regs = UserRegs::new(pointer(), STACK, pointer(), pointer());
    let regs = (0..16).fold(regs, |regs, number| regs.with_general(number, general));
    let kernel: Vec<[u8; 8]> = (0..flags >> 4).map(|_| pointer().to_ne_bytes()).collect();
    let stack: Vec<u8> = input.0.chunks(3).flat_map(|bytes| word(small(bytes)).to_le_bytes()).collect();
    let tables = FrameTables::new(sections);
    assert!(tables.bytes() <= 4096 + 8 * data.len());
    for offset in (0..CODE_BYTES).step_by(0x100) {
        assert!(tables.function(offset).is_none_or(|function| function.contains(&offset)));
    }
    let space = space(tables);
    let mut unwinder = Unwinder::default();
    let sample = UserStackSample { arch, regs: &regs, stack: &stack, kernel_chain: &kernel };
    let mut walk = |chain: &mut UnwoundChain| {
        let walked = unwinder.walk(&sample, &space, &mut LoadNothing, chain);
        (walked, unwinder.counts())
    };
    let (mut chain, mut again) = (UnwoundChain::default(), UnwoundChain::innermost(7));
    let (walked, counts) = walk(&mut chain);
    let first = chain.addresses();
    assert!((1..=MAX_FRAMES).contains(&first.len()) && !matches!(walked, Walked::NoTables(_)));
    assert!(counts.made <= 2 * MAX_FRAMES as u64, "{counts:?}");
    assert_eq!(walk(&mut again).0, walked);
    assert_eq!(again, chain);
    assert!(first.iter().skip(1).all(|address| space.find(*address).or(space.find(*address - 1)).is_some()));
}

/// Three bytes, in another order than numbers have: what they lead to comes first.
fn small(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Mostly an address that means something.
fn word(number: u64) -> u64 {
    let low = number & 0xffff;
    match number >> 16 & 7 {
        0..=2 => MAPPED + low,
        3 | 4 => STACK + 8 * (low & 0x3ff),
        5 => ANONYMOUS + low,
        6 if low == 0 => TRAMPOLINE,
        _ => number,
    }
}

fn space(tables: FrameTables) -> SpaceCode {
    let range =
        |start, kind| CodeRange { start, end: start + CODE_BYTES, offset: 0, code: Arc::new(MappedCode::new(kind)) };
    let file = range(MAPPED, CodeKind::File);
    file.code.set_tables(Some(tables));
    SpaceCode::new(vec![file, range(ANONYMOUS, CodeKind::Anonymous), range(TRAMPOLINE, CodeKind::Trampoline)])
}
