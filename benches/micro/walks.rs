//! The cost of a frame of a user stack: with its rule in the cache, and with the rule made from the file's tables. The
//! file is the benchmark itself, the stack is made for it.

use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf_file::ElfFile;
use perf_prof::symbol::unwind_tables::tables_of_file;
use perf_prof::unwind::{
    Arch, CodeKind, CodeRange, LoadNothing, MappedCode, SpaceCode, Unwinder, UnwoundChain, UserRegs, UserStackSample,
    Walked,
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
    Ok(())
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
