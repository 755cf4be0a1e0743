//! The cost of a frame of a user stack: with its rule in the cache, and with the rule made from the file's tables. The
//! file is the benchmark itself, the stack is made for it.

use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf::file::ElfFile;
use perf_prof::symbol::spaces::unwind_tables::tables_of_file;
use perf_prof::unwind::{
    Arch, CodeKind, CodeLoad, CodeRange, FrameSection, FrameSections, FrameTables, LoadNothing, MappedCode, SpaceCode,
    Unwinder, UnwoundChain, UserRegs, UserStackSample, Walked,
};

use super::{TURNS, report};

/// The start of the stack, which is code as well: each of its words can be a return address.
const STACK: u64 = 0x7000_0000_0000;
const WORDS: u64 = 4096;
const FRAMES: usize = 32;
const WALKS: u64 = 20_000;

/// A stack in a file's code.
struct Stack {
    space: SpaceCode,
    /// An instruction in the middle of each function.
    places: Vec<u64>,
}

/// Walks it.
pub fn walk() -> Result<()> {
    if Arch::NATIVE != Arch::X86_64 {
        println!("skipped: the stack is made for x86_64");
        return Ok(());
    }
    let stack = Stack::of_own_file()?;
    let (first, bytes) = stack.chain()?;
    let mut unwinder = Unwinder::default();
    let mut chain = UnwoundChain::default();
    report("a frame, its rule in the cache", WALKS * FRAMES as u64, || {
        for _ in 0..WALKS {
            black_box(stack.walk(&mut unwinder, black_box(first), &bytes, &mut chain));
        }
    });
    let found = chain.addresses().len();
    ensure!(found > FRAMES, "{found} frames");
    let mut unwinders: Vec<Unwinder> = (0..TURNS).map(|_| Unwinder::default()).collect();
    let places = stack.places.len() as u64;
    report("a frame, its rule made", places, || {
        let mut unwinder = unwinders.pop().unwrap_or_default();
        for &place in &stack.places {
            black_box(stack.walk(&mut unwinder, place, &[], &mut chain));
        }
        assert_eq!(unwinder.counts().made, places);
    });
    worst_walks();
    Ok(())
}

/// Walks through code whose owner wants them to take long: each return address is a new one of a file's single function, whose
/// tables have so many instructions that do nothing.
fn worst_walks() {
    const CODE_BYTES: u64 = 1 << 30;
    const WALKS: u64 = 100;
    const FRAMES: u64 = 505;
    for nops in [0, 8, 4000] {
        let mut eh_frame = Vec::new();
        // A version, no augmentation, the factors and the column of the return address; rsp + 8, and 8 below.
        let instructions = [0x0c, 7, 8, 0x90, 1].into_iter().chain(std::iter::repeat_n(0, nops));
        entry(&mut eh_frame, [0; 4].into_iter().chain([1, 0, 1, 0x78, 16]).chain(instructions));
        let to_cie = (eh_frame.len() as u32 + 4).to_le_bytes();
        entry(&mut eh_frame, to_cie.into_iter().chain([0; 8]).chain(CODE_BYTES.to_le_bytes()));
        let code = MappedCode::new(CodeKind::File);
        code.set_tables(Some(FrameTables::new(FrameSections {
            arch: Arch::X86_64,
            eh_frame: FrameSection { address: 1 << 40, bytes: eh_frame },
            loads: vec![CodeLoad { offset: 0, len: CODE_BYTES, address: 0 }],
            ..FrameSections::default()
        })));
        let space = SpaceCode::new(vec![CodeRange { start: 1 << 32, end: 1 << 33, offset: 0, code: Arc::new(code) }]);
        let mut unwinder = Unwinder::default();
        let (mut chain, mut next) = (UnwoundChain::default(), 1_u64 << 32);
        report(&format!("the worst walk, {nops} instructions a frame"), WALKS, || {
            for _ in 0..WALKS {
                let stack: Vec<u8> = (0..FRAMES).flat_map(|frame| (next + frame).to_le_bytes()).collect();
                next += FRAMES;
                let regs = UserRegs::new(next, STACK, 0, 0);
                let sample = UserStackSample { arch: Arch::X86_64, regs: &regs, stack: &stack, kernel_chain: &[] };
                black_box(unwinder.walk(&sample, &space, &mut LoadNothing, &mut chain));
            }
        });
    }
}

/// An entry of `.eh_frame`.
fn entry(section: &mut Vec<u8>, body: impl Iterator<Item = u8>) {
    let mut body: Vec<u8> = body.collect();
    body.resize(body.len().next_multiple_of(4), 0);
    section.extend((body.len() as u32).to_le_bytes());
    section.append(&mut body);
}

impl Stack {
    fn of_own_file() -> Result<Stack> {
        let file = File::open("/proc/self/exe")?;
        let elf = ElfFile::read(&file).context("an ELF file")?;
        let tables = tables_of_file(&file, &Budget::default(), &[0]).context("unwind tables")?;
        let mut places = Vec::new();
        let segments: Vec<_> = elf.code_segments().collect();
        for (at, _) in &segments {
            let mut offset = at.offset;
            while offset < at.end() {
                let function = tables.function(offset);
                offset = function.as_ref().map_or(offset + 16, |function| function.end);
                places.extend(function.map(|function| function.start + (function.end - function.start) / 2));
            }
        }
        let code = MappedCode::new(CodeKind::File);
        code.set_tables(Some(tables));
        let end = segments.iter().map(|(at, _)| at.end()).max().context("code")?;
        let anonymous = Arc::new(MappedCode::new(CodeKind::Anonymous));
        let ranges = vec![
            CodeRange { start: 0, end, offset: 0, code: Arc::new(code) },
            CodeRange { start: STACK - 8, end: STACK + 8 * WORDS, offset: 0, code: anonymous },
        ];
        Ok(Stack { space: SpaceCode::new(ranges), places })
    }

    fn walk(&self, unwinder: &mut Unwinder, pc: u64, stack: &[u8], chain: &mut UnwoundChain) -> Walked {
        let regs = UserRegs::new(pc, STACK, 0, 0);
        let sample = UserStackSample { arch: Arch::X86_64, regs: &regs, stack, kernel_chain: &[] };
        unwinder.walk(&sample, &self.space, &mut LoadNothing, chain)
    }

    /// The innermost instruction and the bytes: functions all over the file, each of which calls the one before.
    fn chain(&self) -> Result<(u64, Vec<u8>)> {
        let probe: Vec<u8> = (0..WORDS).flat_map(|at| (STACK + 8 * at).to_le_bytes()).collect();
        let mut unwinder = Unwinder::default();
        let mut words = vec![0_u64; WORDS as usize];
        let (mut first, mut top, mut frames) = (None, 0, 0);
        for &place in self.places.iter().step_by(self.places.len() / (3 * FRAMES)) {
            let mut chain = UnwoundChain::default();
            // A return address is that of the next instruction.
            self.walk(&mut unwinder, place, &probe, &mut chain);
            let Some(word) = chain.addresses().get(1).and_then(|caller| caller.checked_sub(STACK)) else { continue };
            if first.is_none() {
                first = Some(place);
            } else if frames <= FRAMES {
                words[top] = place + 1;
                top += 1;
            }
            top += (word / 8) as usize;
            frames += 1;
            ensure!(top < words.len(), "the frames are too large");
        }
        ensure!(frames > FRAMES, "{frames} frames");
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok((first.context("a function")?, bytes))
    }
}
