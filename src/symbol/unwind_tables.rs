//! The unwind tables of mapped files, for [`crate::unwind`]: copies of their sections, within the budget of those who have
//! the files mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::symbol::budget::Budget;
use crate::symbol::elf_file::{ElfFile, FileRange, in_memory};
use crate::symbol::file_tables::unwind_sections;
use crate::symbol::mappings::{Content, Module};
use crate::symbol::vdso::{ROOT, own_vdso};
use crate::unwind::{Arch, CodeLoad, FrameSection, FrameSections, FrameTables};

/// Code that is looked through for the end of signal handlers.
const MAX_SCANNED_BYTES: u64 = 32 << 20;
const CHUNK_BYTES: u64 = 64 << 10;
/// A C library has one or two.
const MAX_SIGRETURNS: usize = 16;

/// Gives the code of a module its tables, if nobody has and it can have any: that reads its file. Afterwards they are set.
pub fn load(module: &Module, budget: &Budget) {
    if module.code.tables().is_none() {
        module.code.set_tables(tables_of(module, budget));
    }
}

/// None: the module has no code of a file, or none with tables that are understood, or the budget of its users is spent.
fn tables_of(module: &Module, budget: &Budget) -> Option<FrameTables> {
    match &module.content {
        Content::File(file) => tables_of_file(file, budget, &module.users()),
        Content::Vdso { len } => {
            let bytes = own_vdso().filter(|bytes| bytes.len() as u64 == *len)?;
            tables_of_file(&in_memory(&mut bytes.as_slice()).ok()?, budget, &[ROOT])
        }
        Content::Unnamed { .. } => None,
    }
}

/// The unwind tables of an ELF file, which may be open as a place only (O_PATH), within the budget of the users who have it mapped.
/// None: it has no code of a machine that is known, the budget is spent, or the file does not answer.
pub fn tables_of_file(file: &File, budget: &Budget, users: &[u32]) -> Option<FrameTables> {
    let sections = unwind_sections(file, users, budget.room(users))?;
    let mut share = budget.take(cost(&sections), users)?;
    let tables = FrameTables::new(sections);
    let bytes = tables.bytes() as u64;
    share.shrink_to(bytes);
    Some(tables.keeping(Box::new(share)))
}

/// Memory for tables of these sections while they are made: an index of ours takes half of what it is of, and as much again.
fn cost(sections: &FrameSections) -> u64 {
    let sections = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame];
    2 * sections.iter().map(|section| section.bytes.len() as u64).sum::<u64>()
}

/// Copies the sections of unwind tables. None: the file has no code of a machine that is known, or tables of them would take more
/// than `max_bytes`.
pub(super) fn sections_of_file(file: &File, max_bytes: u64) -> Option<FrameSections> {
    let elf = ElfFile::read(file)?;
    let arch = arch(&elf)?;
    let sections = elf.sections_named(file, [b".eh_frame", b".eh_frame_hdr", b".debug_frame"]);
    let [mut eh_frame, mut eh_frame_hdr, debug_frame] = sections;
    if eh_frame.is_none()
        && let Some([header, frames]) = elf.unwind_segments(file)
    {
        (eh_frame_hdr, eh_frame) = (Some(header), Some(frames));
    }
    let len = |section: Option<(FileRange, u64)>| section.map_or(0, |(at, _)| at.len);
    let bytes = [eh_frame, eh_frame_hdr, debug_frame].into_iter().map(len).fold(0, u64::saturating_add);
    if bytes.saturating_mul(2) > max_bytes {
        return None;
    }
    let copy = |section: Option<(FileRange, u64)>| match section {
        Some((at, address)) => Some(FrameSection { address, bytes: read(file, at)? }),
        None => Some(FrameSection::default()),
    };
    Some(FrameSections {
        arch,
        eh_frame: copy(eh_frame)?,
        eh_frame_hdr: copy(eh_frame_hdr)?,
        debug_frame: copy(debug_frame)?,
        loads: elf.code_segments().map(|(at, address)| CodeLoad { offset: at.offset, len: at.len, address }).collect(),
        entry: elf.entry_address(),
        sigreturns: sigreturns(&elf, file, arch),
    })
}

fn arch(elf: &ElfFile) -> Option<Arch> {
    const EM_X86_64: u16 = 62;
    const EM_AARCH64: u16 = 183;
    match elf.machine() {
        EM_X86_64 if elf.is_64_bit() => Some(Arch::X86_64),
        EM_AARCH64 if elf.is_64_bit() => Some(Arch::Aarch64),
        _ => None,
    }
}

fn read(file: &File, at: FileRange) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(at.len).ok()?];
    file.read_exact_at(&mut bytes, at.offset).ok()?;
    Some(bytes)
}

/// Where signal handlers return to, by the code. Only files that need no other have it: C libraries, which may have no table
/// for it, static programs and the vdso.
fn sigreturns(elf: &ElfFile, file: &File, arch: Arch) -> Vec<u64> {
    if elf.dynamic(file).is_some_and(|dynamic| !dynamic.libraries.is_empty()) {
        return Vec::new();
    }
    // rt_sigreturn is system call 15 here and 139 there.
    let codes: &[&[u8]] = match arch {
        Arch::X86_64 => &[&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]],
        Arch::Aarch64 => &[&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]],
    };
    let mut found = Vec::new();
    let mut left = MAX_SCANNED_BYTES;
    for (at, address) in elf.code_segments() {
        let at = FileRange { len: at.len.min(left), ..at };
        left -= at.len;
        for chunk in at.chunks(CHUNK_BYTES) {
            // The code may go on in the next one.
            let chunk = FileRange { len: (chunk.len + 16).min(at.end() - chunk.offset), ..chunk };
            let Some(bytes) = read(file, chunk) else { return found };
            let start = address.saturating_add(chunk.offset - at.offset);
            for code in codes {
                found.extend(positions(&bytes, code).map(|at| start.saturating_add(at as u64)));
            }
            found.sort_unstable();
            found.dedup();
            if found.len() >= MAX_SIGRETURNS {
                found.truncate(MAX_SIGRETURNS);
                return found;
            }
        }
    }
    found
}

fn positions<'a>(bytes: &'a [u8], code: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    memchr::memmem::find_iter(bytes, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vdso with these bytes, its tables, and where its first function is in the file.
    fn vdso(change: impl Fn(&mut Vec<u8>)) -> Option<FrameTables> {
        let mut bytes = own_vdso().expect("every process has one");
        change(&mut bytes);
        let file = in_memory(&mut bytes.as_slice()).expect("memory");
        tables_of_file(&file, &Budget::default(), &[0])
    }

    /// As `strip --strip-section-headers` does.
    fn without_sections(bytes: &mut [u8]) {
        bytes[0x28..0x30].fill(0); // e_shoff
        bytes[0x3a..0x40].fill(0); // e_shentsize, e_shnum, e_shstrndx
    }

    /// Where the program header of the unwind tables is.
    fn eh_frame_segment(bytes: &[u8]) -> usize {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        (0..20).map(|number| 64 + 56 * number).find(|&at| word(at) == 0x6474_e550).expect("PT_GNU_EH_FRAME")
    }

    #[test]
    fn files_without_section_headers_have_tables() {
        let functions = |tables: &FrameTables| (0..0x2000).filter_map(|at| tables.function(at)).collect::<Vec<_>>();
        let whole = vdso(|_| ()).expect("tables");
        let found = vdso(|bytes| without_sections(bytes)).expect("tables");
        assert_eq!(functions(&found), functions(&whole));
        assert!(functions(&whole).len() > 100);
    }

    #[test]
    fn program_headers_that_lie_are_survived() {
        for (at, values) in [
            (8, [0, 1, u64::MAX, u64::MAX - 8, 1 << 40]),  // its offset
            (16, [0, 1, u64::MAX, u64::MAX - 8, 1 << 40]), // its address
            (32, [0, 1, 7, 1 << 40, u64::MAX]),            // its length
        ] {
            for value in values {
                let tables = vdso(|bytes| {
                    without_sections(bytes);
                    let at = eh_frame_segment(bytes) + at;
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                });
                if let Some(tables) = tables {
                    assert!(tables.bytes() < 100_000);
                    (0..0x2000)
                        .for_each(|at| assert!(tables.function(at).is_none_or(|function| function.contains(&at))));
                }
            }
        }
    }
}
