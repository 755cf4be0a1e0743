use proptest::prelude::*;

use crate::unwind::fixture::{CODE, CODE_BYTES, Cfi, EH_FRAME};
use crate::unwind::rules::{Base, Cfa, FrameRule, ReturnAddress, Rule, Saved};
use crate::unwind::{Arch, FrameSection, FrameSections, FrameTables};

fn frame(cfa: Cfa, fp: Saved, return_address: ReturnAddress) -> Rule {
    Rule::Frame(FrameRule { cfa, fp, return_address })
}

/// A rule as in compiled code for x86_64: the return address is just below the canonical frame address.
fn x86_64(cfa: Cfa, fp: Saved) -> Rule {
    frame(cfa, fp, ReturnAddress::Cfa(-1))
}

fn rule_of(arch: Arch, augmentation: &str, instructions: &[u8], into: u64) -> Rule {
    let mut cfi = Cfi::eh_frame(arch, augmentation);
    cfi.function(CODE, 0x100, augmentation.starts_with('z'), instructions);
    FrameTables::new(cfi.sections(arch)).rule(CODE + into)
}

#[test]
fn instructions_add_up_to_rules() {
    use Base::{Fp, General, Sp};
    // push %rbp; mov %rsp,%rbp; ...; leave
    let with_fp = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x40, 0x0c, 7, 8];
    // A function with two epilogues.
    let remembering = [0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x44, 0xc6, 0x0e, 8, 0x44, 0x0b, 0x44, 0x0e, 32];
    let plt = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let cases: [(&[u8], u64, Rule); 25] = [
        (&[], 0, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        (&[], 0xff, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        (&[], 0x100, Rule::Missing),
        (&with_fp, 0, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        (&with_fp, 1, x86_64(Cfa::At(Sp, 16), Saved::Cfa(-2))),
        (&with_fp, 4, x86_64(Cfa::At(Fp, 16), Saved::Cfa(-2))),
        (&with_fp, 0x43, x86_64(Cfa::At(Fp, 16), Saved::Cfa(-2))),
        (&with_fp, 0x44, x86_64(Cfa::At(Sp, 8), Saved::Cfa(-2))),
        (&remembering, 4, x86_64(Cfa::At(Sp, 16), Saved::Cfa(-2))),
        (&remembering, 5, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        (&remembering, 9, x86_64(Cfa::At(Sp, 16), Saved::Cfa(-2))),
        (&remembering, 13, x86_64(Cfa::At(Sp, 32), Saved::Cfa(-2))),
        (&plt, 0x1a, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        (&plt, 0x1b, x86_64(Cfa::At(Sp, 16), Saved::Kept)),
        (&plt, 0x20, x86_64(Cfa::At(Sp, 8), Saved::Kept)),
        // A realigned frame: *(rbp - 8), and the caller's rbp is saved where rbp points to.
        (&[0x0f, 3, 0x76, 0x78, 6, 0x10, 6, 2, 0x76, 0], 0, x86_64(Cfa::Behind(Fp, -8, 0), Saved::Fp(0))),
        (&[0x0f, 5, 0x77, 48, 6, 0x23, 8], 0, x86_64(Cfa::Behind(Sp, 48, 8), Saved::Kept)),
        (&[0x0d, 10], 0, x86_64(Cfa::At(General(10), 8), Saved::Kept)),
        (&[0x0c, 17, 8], 0, Rule::Missing),
        (&[0x07, 16], 0, Rule::End),
        (&[0x07, 6], 0, x86_64(Cfa::At(Sp, 8), Saved::Lost)),
        (&[0x09, 6, 3], 0, x86_64(Cfa::At(Sp, 8), Saved::Lost)), // in another register
        (&[0x10, 16, 2, 0x77, 24], 0, frame(Cfa::At(Sp, 8), Saved::Kept, ReturnAddress::Sp(3))),
        (&[0x0f, 3, 0x2f, 0xfd, 0xff], 0, Rule::Missing), // DW_OP_skip -3
        (&[0x0e, 16, 0x3f], 0, Rule::Missing),            // an unknown instruction
    ];
    for (instructions, into, want) in cases {
        for augmentation in ["", "z"] {
            assert_eq!(rule_of(Arch::X86_64, augmentation, instructions, into), want, "{instructions:x?} {into:#x}");
        }
    }
}

#[test]
fn functions_without_a_frame_are_in_the_link_register() {
    // stp x29, x30, [sp, #-32]!; mov x29, sp; ...; with a signed return address
    let signed = [0x2d, 0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x41, 0x0d, 29];
    let cases: [(&[u8], u64, Rule); 4] = [
        (&[], 0, frame(Cfa::At(Base::Sp, 0), Saved::Kept, ReturnAddress::Kept)),
        (&signed, 0, frame(Cfa::At(Base::Sp, 0), Saved::Kept, ReturnAddress::Kept)),
        (&signed, 4, frame(Cfa::At(Base::Sp, 32), Saved::Cfa(-4), ReturnAddress::Cfa(-3))),
        (&signed, 8, frame(Cfa::At(Base::Fp, 32), Saved::Cfa(-4), ReturnAddress::Cfa(-3))),
    ];
    for (instructions, into, want) in cases {
        assert_eq!(rule_of(Arch::Aarch64, "", instructions, into), want, "{into:#x}");
    }
    assert_eq!(rule_of(Arch::Aarch64, "", &[0x07, 30], 0), Rule::End);
    assert_eq!(rule_of(Arch::X86_64, "", &[0x2d], 0), Rule::Missing, "another's instruction");
}

#[test]
fn the_entry_of_a_signal_is_known() {
    // As in glibc's signal trampoline: the frame address is *(rsp + 160), rbp at rsp + 120, rip at rsp + 168.
    let glibc = [0x0f, 4, 0x77, 0xa0, 1, 6, 0x10, 6, 3, 0x77, 0xf8, 0, 0x10, 16, 3, 0x77, 0xa8, 1];
    assert_eq!(rule_of(Arch::X86_64, "S", &glibc, 0), Rule::Signal);
    assert_eq!(rule_of(Arch::X86_64, "zS", &glibc, 0), Rule::Signal);
    assert!(matches!(rule_of(Arch::X86_64, "", &glibc, 0), Rule::Frame(_)), "it does not say that it is one");
    let interrupted = frame(Cfa::At(Base::Sp, 16), Saved::Kept, ReturnAddress::Interrupted(-1));
    assert_eq!(rule_of(Arch::X86_64, "S", &[0x0e, 16], 0), interrupted);
    for (arch, len) in [(Arch::X86_64, 9), (Arch::Aarch64, 8)] {
        let sigreturns = vec![CODE + 0x100];
        let tables = FrameTables::new(FrameSections { sigreturns, ..Cfi::eh_frame(arch, "").sections(arch) });
        let is_signal = |into| tables.rule(CODE + into) == Rule::Signal;
        assert!(is_signal(0xff) && is_signal(0x100) && is_signal(0x107) && !is_signal(0xfe) && !is_signal(0x100 + len));
    }
}

#[test]
fn more_than_compilers_make_is_too_much() {
    let nops = |count: usize| [vec![0; count], vec![0x0e, 16]].concat();
    let deeper = x86_64(Cfa::At(Base::Sp, 16), Saved::Kept);
    assert_eq!(rule_of(Arch::X86_64, "", &nops(4000), 0), deeper);
    assert_eq!(rule_of(Arch::X86_64, "", &nops(4096), 0), Rule::Missing);
    assert_eq!(rule_of(Arch::X86_64, "", &nops(70_000), 0), Rule::Missing);
    let remembered = |count: usize| [vec![0x0a; count], vec![0x0e, 16]].concat();
    assert_eq!(rule_of(Arch::X86_64, "", &remembered(8), 0), deeper);
    assert_eq!(rule_of(Arch::X86_64, "", &remembered(9), 0), Rule::Missing);
    assert_eq!(rule_of(Arch::X86_64, "", &[0x0b], 0), Rule::Missing);
    // An offset that is too large for any frame.
    let far = [0x86, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(rule_of(Arch::X86_64, "", &far, 0), Rule::Missing);
}

#[test]
fn what_entries_refer_to_takes_as_long_for_all() {
    let rule = |augmentation: &str| {
        let mut cfi = Cfi::eh_frame(Arch::X86_64, augmentation);
        cfi.function(CODE, 0x100, true, &[]);
        FrameTables::new(cfi.sections(Arch::X86_64)).rule(CODE)
    };
    // gimli reads each of these letters.
    assert_eq!(rule(&format!("z{}", "S".repeat(5))), frame_of_signal());
    for count in [16, 100, 31_000, 60_000] {
        assert_eq!(rule(&format!("z{}", "S".repeat(count))), Rule::Missing, "{count}");
    }
}

/// The rule of a function whose FDE marks a signal trampoline.
fn frame_of_signal() -> Rule {
    frame(Cfa::At(Base::Sp, 8), Saved::Kept, ReturnAddress::Interrupted(-1))
}

#[test]
fn to_find_an_entry_is_paid_for() {
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    many(&mut cfi, 20);
    let tables = FrameTables::new(cfi.sections(Arch::X86_64));
    let found = |budget: usize| {
        let mut left = budget;
        let count = std::iter::from_fn(|| tables.rule_within(CODE + 0x30, &mut left)).take(1000).count();
        let mut left = budget;
        (count, std::iter::from_fn(|| tables.saved_within(CODE + 0x30, 3, &mut left)).take(1000).count())
    };
    // There is no function at this address, and no instruction is executed.
    assert_eq!(found(1600), (100, 100));
    assert_eq!(found(15), (0, 0));
}

/// Functions of 0x20 bytes with gaps of the same size; each has a different frame.
fn many(cfi: &mut Cfi, count: u64) {
    for number in 0..count {
        let at = (number * 7) % count; // count is no multiple of 7
        cfi.function(CODE + at * 0x40, 0x20, false, &[0x0e, 8 * (at % 15) as u8 + 8]);
    }
}

fn finds_all(tables: &FrameTables, count: u64) {
    for at in 0..count {
        let want = x86_64(Cfa::At(Base::Sp, 8 * (at % 15) as i32 + 8), Saved::Kept);
        let start = CODE + at * 0x40;
        let rules = [0, 0x1f, 0x20, 0x3f].map(|into| tables.rule(start + into));
        assert_eq!(rules, [want, want, Rule::Missing, Rule::Missing], "{at}");
        assert_eq!(tables.function(start - CODE + 3), Some(at * 0x40..at * 0x40 + 0x20));
        assert_eq!(tables.function(start - CODE + 0x30), None);
    }
    assert_eq!(
        (tables.rule(0), tables.rule(CODE - 1), tables.rule(u64::MAX)),
        (Rule::Missing, Rule::Missing, Rule::Missing)
    );
}

#[test]
fn an_address_finds_its_entry_with_a_header_and_without() {
    const COUNT: u64 = 300;
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    many(&mut cfi, COUNT);
    let sections = cfi.sections(Arch::X86_64);
    let without = FrameTables::new(sections.clone());
    finds_all(&without, COUNT);
    let with = FrameTables::new(FrameSections { eh_frame_hdr: cfi.header(), ..sections.clone() });
    finds_all(&with, COUNT);
    assert!(without.bytes() >= cfi.bytes.len() + COUNT as usize * 8, "{}", without.bytes());
    assert!(with.bytes() >= cfi.bytes.len() + cfi.header().bytes.len(), "{}", with.bytes());
    let mut debug = Cfi::debug_frame(Arch::X86_64);
    many(&mut debug, COUNT);
    finds_all(&FrameTables::new(debug.sections(Arch::X86_64)), COUNT);
}

#[test]
fn both_sections_are_asked() {
    let (mut eh_frame, mut debug_frame) = (Cfi::eh_frame(Arch::X86_64, ""), Cfi::debug_frame(Arch::X86_64));
    eh_frame.function(CODE, 0x20, false, &[0x0e, 16]);
    debug_frame.function(CODE + 0x20, 0x20, false, &[0x0e, 24]);
    debug_frame.function(CODE, 0x20, false, &[0x0e, 32]);
    let debug_frame = debug_frame.sections(Arch::X86_64).debug_frame;
    for eh_frame_hdr in [FrameSection::default(), eh_frame.header()] {
        let sections = eh_frame.sections(Arch::X86_64);
        let tables = FrameTables::new(FrameSections { debug_frame: debug_frame.clone(), eh_frame_hdr, ..sections });
        let cfa = |into| match tables.rule(CODE + into) {
            Rule::Frame(frame) => Some(frame.cfa),
            _ => None,
        };
        assert_eq!((cfa(0), cfa(0x20), cfa(0x40)), (Some(Cfa::At(Base::Sp, 16)), Some(Cfa::At(Base::Sp, 24)), None));
    }
}

#[test]
fn a_program_begins_at_its_entry() {
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    cfi.function(CODE + 0x40, 0x100, false, &[]);
    let sections = cfi.sections(Arch::X86_64);
    let of = |entry| FrameTables::new(FrameSections { entry, ..sections.clone() });
    let bare = of(Some(CODE + 0x200));
    let rules = [0x1ff, 0x200, 0x23f, 0x240, 0x80].map(|into| bare.rule(CODE + into) == Rule::End);
    assert_eq!(rules, [false, true, true, false, false]);
    let covered = of(Some(CODE + 0x40));
    assert!([0x40, 0x13f].iter().all(|into| covered.rule(CODE + into) == Rule::End));
    assert_eq!(covered.rule(CODE + 0x140), Rule::Missing);
    assert_eq!(of(None).rule(CODE), Rule::Missing);
}

#[test]
fn a_header_that_lies_finds_nothing_else() {
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    many(&mut cfi, 20);
    let header = cfi.header();
    let rules = |bytes: Vec<u8>| {
        let eh_frame_hdr = FrameSection { bytes, ..header.clone() };
        let tables = FrameTables::new(FrameSections { eh_frame_hdr, ..cfi.sections(Arch::X86_64) });
        (0..20).map(|at| tables.rule(CODE + at * 0x40)).collect::<Vec<_>>()
    };
    let right = rules(header.bytes.clone());
    for at in 0..header.bytes.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = header.bytes.clone();
            bytes[at] = byte;
            let wrong = |(rule, right): (&Rule, &Rule)| rule != right && *rule != Rule::Missing;
            assert!(!rules(bytes).iter().zip(&right).any(wrong), "{at} {byte:#x}");
        }
    }
    for cut in 0..header.bytes.len() {
        assert_eq!(rules(header.bytes[..cut].to_vec()), right, "an index stands for a header that was cut at {cut}");
    }
}

#[test]
fn entries_that_all_refer_to_the_longest_one_do_not_add_up() {
    let mut cfi = Cfi::eh_frame(Arch::X86_64, "");
    let first = cfi.bytes.len();
    let padded = cfi.bytes.clone();
    // Two CIEs of 60 KB, to which FDEs refer alternately.
    cfi.bytes.clear();
    let mut cies = Vec::new();
    for _ in 0..2 {
        cies.push(cfi.bytes.len());
        cfi.bytes.extend(60_000_u32.to_le_bytes());
        cfi.bytes.extend(&padded[4..first]);
        cfi.bytes.resize(cies[cies.len() - 1] + 60_004, 0);
    }
    for number in 0..40_000_u64 {
        let at = cfi.bytes.len();
        let cie = cies[number as usize % 2];
        cfi.bytes.extend(20_u32.to_le_bytes());
        cfi.bytes.extend(((at + 4 - cie) as u32).to_le_bytes());
        cfi.bytes.extend((CODE + number).to_le_bytes());
        cfi.bytes.extend(1_u64.to_le_bytes());
    }
    let sections = cfi.sections(Arch::X86_64);
    let len = sections.eh_frame.bytes.len();
    let tables = FrameTables::new(sections);
    let found = (0..40_000).filter(|at| tables.function(*at).is_some()).count();
    assert!((1..=8 * len / 60_000 + 1).contains(&found), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn damaged_tables_are_survived(
        damage in proptest::collection::vec((0_usize..4096, any::<u8>()), 0..12),
        cut in 0_usize..5000,
        header in any::<bool>(),
        arch in prop_oneof![Just(Arch::X86_64), Just(Arch::Aarch64)],
        address in prop_oneof![Just(EH_FRAME), any::<u64>()],
        augmentation in "z[RPLSe]{0,20}",
    ) {
        let mut cfi = Cfi::eh_frame(arch, &augmentation);
        many(&mut cfi, 50);
        let mut sections = cfi.sections(arch);
        if header {
            sections.eh_frame_hdr = cfi.header();
        }
        for (at, byte) in damage {
            let of_header = at % 4 == 0;
            let bytes = if of_header { &mut sections.eh_frame_hdr.bytes } else { &mut sections.eh_frame.bytes };
            let len = bytes.len();
            if len > 0 {
                bytes[at % len] = byte;
            }
        }
        sections.eh_frame.bytes.truncate(cut);
        sections.eh_frame.address = address;
        sections.debug_frame = sections.eh_frame.clone();
        let tables = FrameTables::new(sections);
        for at in (0..CODE_BYTES).step_by(0x40).chain([u64::MAX]) {
            tables.rule(CODE.wrapping_add(at));
            tables.function(at);
        }
    }
}
