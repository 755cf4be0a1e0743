//! One step outward from places all over ordinary files, against framehop, which reads the same tables in its own way.

#[macro_use]
mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf::file::ElfFile;
use perf_prof::symbol::spaces::unwind_tables::tables_of_file;
use perf_prof::unwind::{
    Arch, Broken, CodeKind, CodeRange, LoadNothing, MappedCode, SpaceCode, Unwinder, UnwoundChain, UserRegs,
    UserStackSample, Walked,
};

/// The start of the stack. It is code as well, so that each of its words can be a return address and a frame pointer.
const STACK: u64 = 0x7000_0000_0000;
const WORDS: u64 = 8192;
/// Where the file's first byte is mapped.
const BIAS: u64 = 0x5000_0000_0000;
/// Looked at of one file.
const MAX_FUNCTIONS: usize = 20_000;

/// Which word tells where it was read.
fn word(at: u64) -> u64 {
    STACK + 8 * ((at * 5 + 11) % WORDS)
}

/// A file to be walked by both.
struct Both {
    space: SpaceCode,
    unwinder: Unwinder,
    framehop: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    stack: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The caller's address and frame pointer.
    To(u64, u64),
    Start,
    NotKnown,
}

impl Both {
    /// With the functions of the file, but for that in which a program begins.
    fn of(path: &Path) -> Option<(Both, Vec<std::ops::Range<u64>>)> {
        let file = File::open(path).ok()?;
        let elf = ElfFile::read(&file)?;
        let tables = tables_of_file(&file, &Budget::default(), &[0])?;
        let (mut functions, mut ranges) = (Vec::new(), Vec::new());
        let code = MappedCode::new(CodeKind::File);
        for (at, address) in elf.code_segments() {
            assert!(address >= at.offset, "{path:?}");
            let mut offset = at.offset;
            while offset < at.end() && functions.len() < MAX_FUNCTIONS {
                let function = tables.function(offset);
                offset = function.as_ref().map_or(offset + 16, |function| function.end);
                functions.extend(
                    function.map(|function| function.start + address - at.offset..function.end + address - at.offset),
                );
            }
            ranges.push((BIAS + address, at));
        }
        functions.retain(|function| elf.entry_address().is_none_or(|entry| !function.contains(&entry)));
        code.set_tables(Some(tables));
        let code = Arc::new(code);
        let mut ranges: Vec<CodeRange> = ranges
            .into_iter()
            .map(|(start, at)| CodeRange { start, end: start + at.len, offset: at.offset, code: code.clone() })
            .collect();
        let anonymous = Arc::new(MappedCode::new(CodeKind::Anonymous));
        ranges.push(CodeRange { start: STACK - 8, end: STACK + 8 * WORDS, offset: 0, code: anonymous });
        let section = |name: &[u8]| {
            let [found] = elf.sections_named(&file, [name]);
            let (at, address) = found?;
            let mut bytes = vec![0; at.len as usize];
            file.read_exact_at(&mut bytes, at.offset).ok()?;
            Some((address..address + at.len, bytes))
        };
        let (eh_frame, eh_frame_hdr) = (section(b".eh_frame")?, section(b".eh_frame_hdr")?);
        let mut framehop = UnwinderX86_64::new();
        framehop.add_module(Module::new(
            "file".to_owned(),
            BIAS..BIAS + (1 << 32),
            BIAS,
            ExplicitModuleSectionInfo {
                base_svma: 0,
                eh_frame_svma: Some(eh_frame.0),
                eh_frame: Some(eh_frame.1),
                eh_frame_hdr_svma: Some(eh_frame_hdr.0),
                eh_frame_hdr: Some(eh_frame_hdr.1),
                ..ExplicitModuleSectionInfo::default()
            },
        ));
        let stack = (0..WORDS).flat_map(|at| word(at).to_le_bytes()).collect();
        let space = SpaceCode::new(ranges);
        Some((Both { space, unwinder: Unwinder::default(), framehop, cache: CacheX86_64::new(), stack }, functions))
    }

    fn ours(&mut self, pc: u64, fp: u64) -> Step {
        let (walked, chain) = self.walk(&UserRegs::new(BIAS + pc, STACK, fp, 0));
        let out = chain.addresses();
        match (walked, out.get(1)) {
            (Walked::Whole, None) => Step::Start,
            // What is next is found by its frame pointer.
            (_, Some(caller)) => Step::To(*caller, out.get(2).copied().unwrap_or_default()),
            _ => Step::NotKnown,
        }
    }

    /// False where only a frame pointer could help.
    fn has_rule(&mut self, pc: u64) -> bool {
        let (walked, chain) = self.walk(&UserRegs::new(BIAS + pc, STACK, 1, 0));
        !(matches!(walked, Walked::Broken(Broken::NoRule | Broken::NoRegister)) && chain.addresses().len() == 1)
    }

    fn walk(&mut self, regs: &UserRegs) -> (Walked, UnwoundChain) {
        let sample = UserStackSample { arch: Arch::X86_64, regs, stack: &self.stack, kernel_chain: &[] };
        let mut chain = UnwoundChain::default();
        let walked = self.unwinder.walk(&sample, &self.space, &mut LoadNothing, &mut chain);
        (walked, chain)
    }

    fn theirs(&mut self, pc: u64, fp: u64) -> Step {
        let mut regs = UnwindRegsX86_64::new(BIAS + pc, STACK, fp);
        let mut read = |address: u64| match address.checked_sub(STACK) {
            // What was saved there was restored before.
            None => Ok(fp),
            Some(into) => (into / 8 < WORDS).then(|| word(into / 8)).ok_or(()),
        };
        let from = FrameAddress::from_instruction_pointer(BIAS + pc);
        match self.framehop.unwind_frame(from, &mut regs, &mut self.cache, &mut read) {
            Ok(Some(caller)) => {
                let next = regs.bp().checked_sub(STACK).map(|into| word(into / 8 + 1));
                let is_walked = regs.bp() >= regs.sp() && regs.bp().is_multiple_of(8);
                Step::To(caller, next.filter(|_| is_walked).unwrap_or_default())
            }
            Ok(None) => Step::Start,
            Err(_) => Step::NotKnown,
        }
    }
}

#[test]
fn callers_are_where_another_unwinder_finds_them() {
    if !cfg!(target_arch = "x86_64") {
        skip!("needs files of x86_64");
    }
    let own = std::env::current_exe().expect("own path");
    let libraries = ["libc.so.6", "libstdc++.so.6", "libcrypto.so.3", "libm.so.6"];
    let libraries = libraries.map(|name| Path::new("/usr/lib/x86_64-linux-gnu").join(name));
    let programs = ["/usr/bin/python3", "/usr/bin/bash", "/usr/bin/perl"].map(Into::into);
    let mut faults = Vec::new();
    let (mut compared, mut guessed) = (0, 0);
    for path in std::iter::once(own).chain(libraries).chain(programs) {
        let Some((mut both, functions)) = Both::of(&path) else { continue };
        let (mut all, mut without) = (0, 0);
        for (number, function) in functions.iter().enumerate() {
            let len = function.end - function.start;
            let places = [0, 1, 4, len / 3, len / 2 + number as u64 % 5, len - 2.min(len), len - 1];
            for pc in places.map(|into| function.start + into.min(len - 1)) {
                all += 1;
                if !both.has_rule(pc) {
                    without += 1;
                    continue;
                }
                let fp = STACK + 8 * (64 + number as u64 % 100);
                let (ours, theirs) = (both.ours(pc, fp), both.theirs(pc, fp));
                // What it does not understand, it guesses by the frame pointer and does not say so.
                let is_guess = matches!(theirs, Step::To(caller, _) if caller == word((fp - STACK) / 8 + 1));
                if ours != theirs && is_guess {
                    guessed += 1;
                } else if ours != theirs {
                    faults.push(format!("{}: {pc:#x} in {function:x?}: {ours:x?}, not {theirs:x?}", path.display()));
                }
            }
        }
        println!("{}: {} functions, {all} places, {without} without a rule", path.display(), functions.len());
        compared += all - without;
        assert!(without * 50 < all, "{without} of {all}");
    }
    assert!(compared > 10_000 && guessed * 1000 < compared, "{guessed} of {compared}");
    assert!(faults.is_empty(), "{} of {compared}:\n{}", faults.len(), faults[..faults.len().min(40)].join("\n"));
}
