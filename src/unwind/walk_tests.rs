use std::sync::Arc;

use proptest::prelude::*;

use crate::unwind::fixture::{CODE, CODE_BYTES, Cfi};
use crate::unwind::{
    Arch, Broken, CodeKind, CodeRange, Cut, FrameSections, FrameTables, LoadNothing, MAX_FRAMES, MappedCode, SpaceCode,
    Unwinder, UnwoundChain, UserRegs, UserStackSample, Walked,
};

/// The address of the file's first byte, and the start of the stack.
const MAPPED: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;
const JIT: u64 = 0x6666_0000_0000;
const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

/// Functions of 0x100 bytes each, which push this many words.
const PUSHED: [u64; 3] = [0, 1, 4];
/// A function that has no caller.
const START: u64 = 0x300;
/// A function that keeps the frame pointer.
const WITH_FP: u64 = 0x400;
const SIGNAL: u64 = 0x500;
/// A function that addresses its frame by r10.
const BY_R10: u64 = 0x600;
/// A function that addresses its frame by rbx.
const BY_RBX: u64 = 0x800;
/// A function that pushes rbx.
const SAVES_RBX: u64 = 0x900;
/// A function with an empty frame, which is impossible if a call pushes an address.
const CLONE: u64 = 0x700;
/// Code from here on has no FDE.
const WITHOUT: u64 = 0x1000;

fn tables(arch: Arch) -> FrameTables {
    let mut cfi = Cfi::eh_frame(arch, "");
    let fixed = if arch == Arch::X86_64 { 8 } else { 0 };
    for (at, pushed) in (0..).zip(PUSHED) {
        let mut instructions = vec![0x0e, (fixed + 8 * pushed) as u8];
        if arch == Arch::Aarch64 && pushed > 0 {
            instructions.extend([0x9e, 1]);
        }
        cfi.function(CODE + at * 0x100, 0x100, false, &instructions);
    }
    let (end, with_fp): (&[u8], &[u8]) = match arch {
        Arch::X86_64 => (&[0x07, 16], &[0x0c, 6, 16, 0x86, 2]),
        Arch::Aarch64 => (&[0x07, 30], &[0x0c, 29, 16, 0x9d, 2, 0x9e, 1]),
    };
    cfi.function(CODE + START, 0x100, false, end);
    cfi.function(CODE + WITH_FP, 0x100, false, with_fp);
    cfi.function(CODE + BY_R10, 0x100, false, &[0x0c, 10, 8]);
    cfi.function(CODE + BY_RBX, 0x100, false, &[0x0c, 3, 8]);
    cfi.function(CODE + SAVES_RBX, 0x100, false, &[0x0e, 16, 0x83, 2]);
    cfi.function(CODE + CLONE, 0x100, false, &[0x0e, 0]);
    FrameTables::new(FrameSections { sigreturns: vec![CODE + SIGNAL], ..cfi.sections(arch) })
}

fn space(arch: Arch) -> SpaceCode {
    let code = MappedCode::new(CodeKind::File);
    code.set_tables(Some(tables(arch)));
    space_of(code)
}

fn space_of(code: MappedCode) -> SpaceCode {
    let range = |start, code| CodeRange { start, end: start + CODE_BYTES, offset: 0, code: Arc::new(code) };
    let trampoline = MappedCode::new(CodeKind::Trampoline);
    SpaceCode::new(vec![
        range(MAPPED, code),
        range(JIT, MappedCode::new(CodeKind::Anonymous)),
        CodeRange { end: TRAMPOLINE + 0x1000, ..range(TRAMPOLINE, trampoline) },
    ])
}

/// The result of a walk, and its chain as offsets from where the file is mapped.
fn walk(arch: Arch, regs: &UserRegs, words: &[u64], kernel: &[u64]) -> (Walked, Vec<u64>) {
    walk_with(&mut Unwinder::default(), arch, regs, words, kernel)
}

fn walk_with(
    unwinder: &mut Unwinder,
    arch: Arch,
    regs: &UserRegs,
    words: &[u64],
    kernel: &[u64],
) -> (Walked, Vec<u64>) {
    let (walked, chain) = walk_to(unwinder, arch, regs, words, kernel);
    (walked, from_mapped(&chain))
}

fn walk_to(
    unwinder: &mut Unwinder,
    arch: Arch,
    regs: &UserRegs,
    words: &[u64],
    kernel: &[u64],
) -> (Walked, UnwoundChain) {
    let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let kernel: Vec<[u8; 8]> = kernel.iter().map(|word| word.to_ne_bytes()).collect();
    let mut chain = UnwoundChain::innermost(7);
    let sample = UserStackSample { arch, regs, stack: &stack, kernel_chain: &kernel };
    let walked = unwinder.walk(&sample, &space(arch), &mut LoadNothing, &mut chain);
    (walked, chain)
}

fn from_mapped(chain: &UnwoundChain) -> Vec<u64> {
    chain.addresses().iter().map(|addr| addr.wrapping_sub(MAPPED)).collect()
}

/// A sample without a kernel callchain.
fn sample<'a>(arch: Arch, regs: &'a UserRegs, stack: &'a [u8]) -> UserStackSample<'a> {
    UserStackSample { arch, regs, stack, kernel_chain: &[] }
}

fn at(pc: u64) -> UserRegs {
    UserRegs::new(MAPPED + pc, STACK, 0, 0)
}

const END: u64 = MAPPED + START + 9;

#[test]
fn a_chain_is_followed_to_its_end() {
    let words = [MAPPED + 0x110, 7, MAPPED + 0x2ff, 7, 7, 7, 7, MAPPED + 0x100, END];
    // A return address at the first byte of a function belongs to a call that is the last instruction of the function
    // before.
    assert_eq!(walk(Arch::X86_64, &at(0), &words, &[]), (Walked::Whole, vec![0, 0x110, 0x2ff, 0x100, START + 9]));
    let words = [MAPPED + 0x210, 7, 7, 7, MAPPED + 0x101, END];
    assert_eq!(walk(Arch::Aarch64, &at(0x180), &words, &[]), (Walked::Whole, vec![0x180, 0x210, 0x101, START + 9]));
    assert_eq!(walk(Arch::X86_64, &at(START), &[], &[]), (Walked::Whole, vec![START]));
    // The outermost return address of the thread is 0.
    assert_eq!(walk(Arch::X86_64, &at(0), &[0], &[]), (Walked::Whole, vec![0]));
}

#[test]
fn the_link_register_is_the_innermost_functions() {
    let leaf = UserRegs { lr: 0x0028_0000_0000_0000 | (MAPPED + 0x110), ..at(0x10) };
    assert_eq!(walk(Arch::Aarch64, &leaf, &[END], &[]), (Walked::Whole, vec![0x10, 0x110, START + 9]));
    let nobody = UserRegs { lr: MAPPED + 0x10, fp: 8, ..at(0x20) };
    assert_eq!(walk(Arch::Aarch64, &nobody, &[END], &[]), (Walked::Broken(Broken::NotRising), vec![0x20, 0x10]));
    assert_eq!(walk(Arch::X86_64, &nobody, &[END], &[]), (Walked::Whole, vec![0x20, START + 9]));
}

#[test]
fn the_frame_pointer_is_restored_or_kept() {
    let regs = UserRegs { fp: STACK + 24, ..at(WITH_FP) };
    // A frame pointer that a function in between preserves.
    let words = [0, 0, 0, STACK + 64, MAPPED + 0x110, 7, MAPPED + WITH_FP + 4, 7, 0, END];
    let want = vec![WITH_FP, 0x110, WITH_FP + 4, START + 9];
    assert_eq!(walk(Arch::X86_64, &regs, &words, &[]), (Walked::Whole, want));
}

#[test]
fn a_register_that_is_not_known_is_not_made_up() {
    let partial = |pc| UserRegs::partial(MAPPED + pc, STACK);
    let words = [MAPPED + 0x110, 7, MAPPED + 0x2ff, 7, 7, 7, 7, MAPPED + 0x100, END];
    let want = vec![0, 0x110, 0x2ff, 0x100, START + 9];
    assert_eq!(walk(Arch::X86_64, &partial(0), &words, &[]), (Walked::Whole, want));
    let broken = |pc| (Walked::Broken(Broken::NoRegister), vec![pc]);
    assert_eq!(walk(Arch::X86_64, &partial(WITH_FP), &[END; 4], &[]), broken(WITH_FP));
    assert_eq!(walk(Arch::Aarch64, &partial(0x10), &[END], &[]), broken(0x10));
}

#[test]
fn general_registers_are_for_the_innermost_function() {
    let regs = at(BY_R10);
    assert_eq!(walk(Arch::X86_64, &regs, &[END], &[]).0, Walked::Broken(Broken::NoRegister));
    let regs = regs.with_general(10, STACK + 8);
    assert_eq!(walk(Arch::X86_64, &regs, &[7, END], &[]), (Walked::Whole, vec![BY_R10, START + 9]));
    let outer = at(0).with_general(10, STACK + 16);
    assert_eq!(walk(Arch::X86_64, &outer, &[MAPPED + BY_R10 + 4, 7, END], &[]).0, Walked::Broken(Broken::NoRegister));
}

/// As in glibc's _dl_runtime_resolve, which addresses its frame by rbx, and calls functions that save rbx.
#[test]
fn a_register_that_functions_save_is_followed() {
    let outer = MAPPED + BY_RBX + 4;
    let want = |chain: &[u64]| (Walked::Whole, [chain, &[BY_RBX + 4, START + 9]].concat());
    let kept = [outer, 7, 7, END];
    let regs = at(0).with_general(3, STACK + 24);
    assert_eq!(walk(Arch::X86_64, &regs, &kept, &[]), want(&[0]));
    let saved = [STACK + 32, outer, 7, 7, END];
    let regs = at(SAVES_RBX).with_general(3, 1);
    assert_eq!(walk(Arch::X86_64, &regs, &saved, &[]), want(&[SAVES_RBX]));
    let saved = [[MAPPED + SAVES_RBX + 8, STACK + 40].as_slice(), &[outer, 7, 7, END]].concat();
    assert_eq!(walk(Arch::X86_64, &at(0), &saved, &[]), want(&[0, SAVES_RBX + 8]), "whatever it was before");
    assert_eq!(walk(Arch::X86_64, &at(0), &kept, &[]).0, Walked::Broken(Broken::NoRegister));
    assert_eq!(walk(Arch::X86_64, &regs, &[], &[]).0, Walked::Truncated(Cut::Window));
    // The same state, interrupted by a signal.
    let mut words = signal(Arch::X86_64, MAPPED, STACK + 256, 0, &[(16, STACK + 272)]);
    words.extend([outer, 7, END]);
    assert_eq!(walk(Arch::X86_64, &at(SIGNAL), &words, &[]), want(&[SIGNAL, 0]));
}

/// The words of a signal frame at the start of the stack.
fn signal(arch: Arch, pc: u64, sp: u64, fp: u64, others: &[(usize, u64)]) -> Vec<u64> {
    let (pc_at, sp_at, fp_at, len) = match arch {
        Arch::X86_64 => (21, 20, 15, 32),
        Arch::Aarch64 => (71, 70, 68, 80),
    };
    let mut words = vec![7; len];
    (words[pc_at], words[sp_at], words[fp_at]) = (pc, sp, fp);
    others.iter().for_each(|(at, word)| words[*at] = *word);
    words
}

#[test]
fn who_was_interrupted_by_a_signal_is_found() {
    let mut unwinder = Unwinder::default();
    for pc in [0, 0x100, 0x180] {
        let mut words = signal(Arch::X86_64, MAPPED + pc, STACK + 256, 0, &[]);
        if pc > 0 {
            words.push(7);
        }
        words.push(END);
        let want = vec![SIGNAL, pc, START + 9];
        let (walked, chain) = walk_to(&mut unwinder, Arch::X86_64, &at(SIGNAL), &words, &[]);
        assert_eq!((walked, from_mapped(&chain)), (Walked::Whole, want));
        assert_eq!((chain.interrupted(), chain.guessed_from()), (&[1][..], None));
        assert_eq!([0, 1, 2].map(|at| chain.is_behind_call(at)), [false, false, true]);
    }
    // In the handler, which returns to the trampoline.
    let words =
        [vec![MAPPED + SIGNAL], signal(Arch::X86_64, MAPPED + 0x100, STACK + 264, 0, &[]), vec![7, END]].concat();
    assert_eq!(walk(Arch::X86_64, &at(0), &words, &[]), (Walked::Whole, vec![0, SIGNAL, 0x100, START + 9]));
    // Restored registers are those at the interruption: the link register, r10.
    let words = signal(Arch::Aarch64, MAPPED + 0x10, STACK + 640, 0, &[(69, END)]);
    assert_eq!(walk(Arch::Aarch64, &at(SIGNAL), &words, &[]), (Walked::Whole, vec![SIGNAL, 0x10, START + 9]));
    let mut words = signal(Arch::X86_64, MAPPED + BY_R10, STACK + 256, 0, &[(7, STACK + 264)]);
    words.extend([7, END]);
    assert_eq!(walk(Arch::X86_64, &at(SIGNAL), &words, &[]), (Walked::Whole, vec![SIGNAL, BY_R10, START + 9]));
    // The handler ran on an alternate stack, above or below.
    for sp in [STACK - 0x1000, STACK + 0x10_0000] {
        let words = signal(Arch::X86_64, MAPPED + 0x10, sp, 0, &[]);
        let cut = (Walked::Truncated(Cut::Window), vec![SIGNAL, 0x10]);
        assert_eq!(walk(Arch::X86_64, &at(SIGNAL), &words, &[]), cut, "{sp:#x}");
    }
}

#[test]
fn where_no_table_helps_it_is_a_guess() {
    let regs = UserRegs { pc: JIT + 0x40, fp: STACK + 8, ..at(0) };
    let words = [0, STACK + 32, JIT + 0x80, 0, 0, MAPPED + 0x100, END];
    let want = (Walked::Guessed, vec![JIT + 0x40 - MAPPED, JIT + 0x80 - MAPPED, 0x100, START + 9]);
    assert_eq!(walk(Arch::X86_64, &regs, &words, &[]), want);
    let (_, chain) = walk_to(&mut Unwinder::default(), Arch::X86_64, &regs, &words, &[]);
    assert_eq!(chain.guessed_from(), Some(1));
    for fp in [0, STACK - 8, STACK + 9] {
        let broken = walk(Arch::X86_64, &UserRegs { fp, ..regs }, &words, &[]);
        assert_eq!(broken, (Walked::Broken(Broken::NoRule), vec![JIT + 0x40 - MAPPED]), "{fp:#x}");
    }
    let nowhere = UserRegs { fp: STACK + 16, ..regs };
    assert_eq!(walk(Arch::X86_64, &nowhere, &words, &[]).0, Walked::Broken(Broken::NoRule), "no address, but a caller");
    assert_eq!(walk(Arch::X86_64, &nowhere, &[0, 0, 8, 9], &[]).0, Walked::Broken(Broken::NotCode));
    let far = UserRegs { fp: STACK + (1 << 40), ..regs };
    assert_eq!(walk(Arch::X86_64, &far, &words, &[]).0, Walked::Broken(Broken::NoRule));
    let farther = UserRegs { fp: STACK + (1 << 20), ..regs };
    assert_eq!(walk(Arch::X86_64, &farther, &words, &[]).0, Walked::Truncated(Cut::Window));
    // The ABIs mark the outermost frame by a frame pointer of 0.
    let outermost = UserRegs { pc: MAPPED, fp: 0, ..regs };
    assert_eq!(walk(Arch::X86_64, &outermost, &[MAPPED + WITHOUT + 5], &[]), (Walked::Whole, vec![0, WITHOUT + 5]));
}

#[test]
fn a_thread_may_start_in_a_frame_that_cannot_be() {
    let clone = MAPPED + CLONE + 5;
    assert_eq!(walk(Arch::X86_64, &at(0), &[clone, END], &[]), (Walked::Whole, vec![0, CLONE + 5]));
    let unmarked = UserRegs { fp: 8, ..at(0) };
    assert_eq!(walk(Arch::X86_64, &unmarked, &[clone, END], &[]).0, Walked::Broken(Broken::NotRising));
    assert_eq!(walk(Arch::X86_64, &at(CLONE), &[END], &[]).0, Walked::Broken(Broken::NotRising));
}

#[test]
fn short_assembly_pushes_nothing() {
    let regs = UserRegs { fp: STACK + 8, ..at(WITHOUT) };
    let words = [END, STACK + 64, JIT];
    assert_eq!(walk(Arch::X86_64, &regs, &words, &[]), (Walked::Guessed, vec![WITHOUT, START + 9]));
    let words = [MAPPED + WITHOUT + 8, 0, END];
    assert_eq!(walk(Arch::X86_64, &regs, &words, &[]), (Walked::Guessed, vec![WITHOUT, START + 9]), "by its frame");
    let regs = UserRegs { lr: END, ..at(WITHOUT) };
    assert_eq!(walk(Arch::Aarch64, &regs, &[], &[]), (Walked::Guessed, vec![WITHOUT, START + 9]));
}

#[test]
fn a_return_probe_hides_what_only_the_kernel_knows() {
    let regs = UserRegs { fp: STACK, ..at(WITH_FP) };
    let words = [0, TRAMPOLINE, END];
    let chain = |kernel: &[u64]| walk(Arch::X86_64, &regs, &words, kernel);
    assert_eq!(chain(&[]), (Walked::Broken(Broken::ReturnProbe), vec![WITH_FP]));
    assert_eq!(chain(&[MAPPED + WITH_FP, TRAMPOLINE]).0, Walked::Broken(Broken::ReturnProbe), "before 6.11");
    let kernel = [MAPPED + WITH_FP, MAPPED + 0x10, END];
    assert_eq!(chain(&kernel), (Walked::Whole, vec![WITH_FP, 0x10, START + 9]));
    // If the function was not found by a frame pointer, the kernel's callchain may lack a caller.
    let words = [TRAMPOLINE, END];
    let kernel = [MAPPED + 8, MAPPED + 0x10, END];
    assert_eq!(walk(Arch::X86_64, &at(8), &words, &kernel), (Walked::Guessed, vec![8, 0x10, START + 9]));
}

/// Nothing tells where in the hidden function the thread is, but who called that is found by the tables.
#[test]
fn callers_of_those_whom_return_probes_hide_are_found() {
    let hidden = TRAMPOLINE - MAPPED;
    let chain = |words: &[u64]| walk(Arch::X86_64, &at(8), words, &[]);
    // The function pushes any number of words, and some look like code.
    for pushed in [&[][..], &[7, 0], &[JIT + 8, MAPPED + WITHOUT + 8, MAPPED + 0x110, STACK, 7]] {
        let words = [&[TRAMPOLINE], pushed, &[MAPPED + 0x108, 7, END]].concat();
        assert_eq!(chain(&words), (Walked::Guessed, vec![8, hidden, 0x108, START + 9]), "{pushed:x?}");
    }
    let (_, found) = walk_to(&mut Unwinder::default(), Arch::X86_64, &at(8), &[TRAMPOLINE, 7, END], &[]);
    let want = UnwoundChain::of(&[MAPPED + 8, TRAMPOLINE, END], &[1], Some(2));
    assert_eq!(found, want);
    // Two probes, one behind the other, and two with a caller between them that is not hidden.
    let words = [TRAMPOLINE, 7, TRAMPOLINE, 7, MAPPED + 0x108, 7, END];
    assert_eq!(chain(&words), (Walked::Guessed, vec![8, hidden, hidden, 0x108, START + 9]));
    let words = [TRAMPOLINE, 7, MAPPED + 0x108, 7, TRAMPOLINE, 7, END];
    assert_eq!(chain(&words), (Walked::Guessed, vec![8, hidden, 0x108, hidden, START + 9]));
    // Nobody is found.
    let broken = Walked::Broken(Broken::ReturnProbe);
    for words in [&[TRAMPOLINE][..], &[TRAMPOLINE, 7, MAPPED + 0x108, 7, 7], &[TRAMPOLINE; 2000]] {
        assert_eq!(chain(words), (broken, vec![8, hidden]));
    }
    let words = [&[TRAMPOLINE][..], &[MAPPED + 0x8; 2000], &[7]].concat();
    assert_eq!(chain(&words), (broken, vec![8, hidden]), "trials are bounded");
}

#[test]
fn behind_the_window_the_kernels_chain_may_go_on() {
    let words = [MAPPED + 0x110];
    let cut = |kernel: &[u64]| walk(Arch::X86_64, &at(0), &words, kernel);
    let truncated = Walked::Truncated(Cut::Window);
    assert_eq!(cut(&[]), (truncated, vec![0, 0x110]));
    assert_eq!(cut(&[MAPPED, MAPPED + 0x110, MAPPED + 0x20, END]), (Walked::Guessed, vec![0, 0x110, 0x20, START + 9]));
    assert_eq!(cut(&[MAPPED + 0x110, MAPPED + 0x20]), (truncated, vec![0, 0x110, 0x20]), "nor does it end there");
    assert_eq!(cut(&[MAPPED + 0x110, 7, END]), (truncated, vec![0, 0x110]));
    let kernel = [MAPPED + 0x110, MAPPED + 0x20, END];
    let (_, chain) = walk_to(&mut Unwinder::default(), Arch::X86_64, &at(0), &words, &kernel);
    assert_eq!(chain.guessed_from(), Some(2));
    assert_eq!(cut(&[MAPPED + 0x110, MAPPED + 0x110, END]), (truncated, vec![0, 0x110]), "a recursion");
}

#[test]
fn what_cannot_be_is_broken() {
    let broken = |why| Walked::Broken(why);
    assert_eq!(walk(Arch::X86_64, &at(0), &[7], &[]), (broken(Broken::NotCode), vec![0]));
    assert_eq!(walk(Arch::X86_64, &UserRegs { pc: 7, ..at(0) }, &[END], &[]).0, broken(Broken::NotCode));
    let sinking = UserRegs { fp: STACK - 64, ..at(WITH_FP) };
    assert_eq!(walk(Arch::X86_64, &sinking, &[END; 4], &[]).0, broken(Broken::NotRising));
    let standing = UserRegs { fp: STACK - 16, ..at(WITH_FP) };
    assert_eq!(walk(Arch::X86_64, &standing, &[END; 4], &[]).0, broken(Broken::NotRising));
    let wrapping = UserRegs { sp: u64::MAX - 4, ..at(0) };
    assert_eq!(walk(Arch::X86_64, &wrapping, &[END; 4], &[]).0, broken(Broken::NotRising));
}

#[test]
fn a_chain_has_a_most() {
    let words = vec![MAPPED + 8; 2 * MAX_FRAMES];
    let (walked, chain) = walk(Arch::X86_64, &at(0), &words, &[]);
    assert_eq!((walked, chain.len()), (Walked::Truncated(Cut::Frames), MAX_FRAMES));
}

#[test]
fn rules_are_made_once() {
    let mut unwinder = Unwinder::default();
    let space = space(Arch::X86_64);
    let stack: Vec<u8> = [MAPPED + 0x10, END].iter().flat_map(|word| word.to_le_bytes()).collect();
    for _ in 0..3 {
        let mut chain = UnwoundChain::default();
        let walked = unwinder.walk(&sample(Arch::X86_64, &at(0x10), &stack), &space, &mut LoadNothing, &mut chain);
        assert_eq!((walked, chain.addresses().len()), (Walked::Whole, 3));
    }
    let counts = unwinder.counts();
    assert_eq!((counts.rules, counts.made), (9, 3), "the pc's own, that before the return address, and the end");
}

#[test]
fn tables_are_loaded_when_they_are_needed() {
    let code = MappedCode::new(CodeKind::File);
    let id = code.id();
    let space = space_of(code);
    let mut unwinder = Unwinder::default();
    let stack = END.to_le_bytes();
    let mut chain = UnwoundChain::innermost(5);
    let regs = at(0);
    let of_moment = sample(Arch::X86_64, &regs, &stack);
    let none = unwinder.walk(&of_moment, &space, &mut LoadNothing, &mut chain);
    assert_eq!((none, &chain), (Walked::NoTables(id), &UnwoundChain::default()));
    let mut loads = 0;
    let mut load = |code: &Arc<MappedCode>| {
        loads += 1;
        code.set_tables(Some(tables(Arch::X86_64)));
    };
    for _ in 0..2 {
        let walked = unwinder.walk(&of_moment, &space, &mut load, &mut chain);
        assert_eq!((walked, chain.addresses().len()), (Walked::Whole, 2));
    }
    assert_eq!(loads, 1);
    // Tables of another architecture are not used.
    let regs = UserRegs { fp: 1, ..at(0) };
    let of_moment = sample(Arch::Aarch64, &regs, &stack);
    let walked = Unwinder::default().walk(&of_moment, &space, &mut LoadNothing, &mut chain);
    assert_eq!(walked, Walked::Broken(Broken::NoRule));
}

/// A meaningful address, or any word.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..0x800_u64).prop_map(|into| MAPPED + into),
        4 => (0..128_u64).prop_map(|at| STACK + at * 8),
        1 => (0..0x100_u64).prop_map(|into| JIT + into),
        1 => Just(TRAMPOLINE),
        1 => Just(0),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn stacks_that_lie_are_survived(
        regs in [word(), word(), word(), word()],
        words in proptest::collection::vec(word(), 0..130),
        kernel in proptest::collection::vec(word(), 0..20),
        arch in prop_oneof![Just(Arch::X86_64), Just(Arch::Aarch64)],
    ) {
        let regs = UserRegs::new(regs[0], regs[1], regs[2], regs[3]).with_general(10, regs[3]);
        let mut unwinder = Unwinder::default();
        let (walked, chain) = walk_with(&mut unwinder, arch, &regs, &words, &kernel);
        prop_assert!((1..=MAX_FRAMES).contains(&chain.len()), "{:?}", walked);
        prop_assert!(unwinder.counts().made <= 2 * MAX_FRAMES as u64);
    }
}

/// Tables that take long to execute, and a stack that leads through ever new addresses of these.
#[test]
fn tables_do_not_decide_how_long_a_walk_takes() {
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    cfi.function(CODE, 0x1000, false, &[vec![0; 4000], vec![0x0e, 8]].concat());
    let code = MappedCode::new(CodeKind::File);
    code.set_tables(Some(FrameTables::new(cfi.sections(Arch::X86_64))));
    let space = space_of(code);
    let mut unwinder = Unwinder::default();
    let stack: Vec<u8> = (1..100).flat_map(|at: u64| (MAPPED + 8 * at).to_le_bytes()).collect();
    for made in [4, 8, 12] {
        let mut chain = UnwoundChain::default();
        let walked = unwinder.walk(&sample(Arch::X86_64, &at(0), &stack), &space, &mut LoadNothing, &mut chain);
        assert_eq!(walked, Walked::Broken(Broken::Budget));
        // Rules made before are in the cache, and cost nothing.
        assert_eq!((chain.addresses().len(), unwinder.counts().made), (made + 1, made as u64 + made as u64 / 4));
    }
}
