//! The unwind tables of mapped files, for [`crate::unwind`]: copies of their sections, within the budget of the users
//! who have the files mapped.

use std::fs::File;

use crate::symbol::budget::{Budget, ROOT};
use crate::symbol::elf::file::in_memory;
use crate::symbol::elf::questions::unwind_sections;
use crate::symbol::elf::vdso::own_vdso;
use crate::symbol::spaces::module::{Content, Module};
use crate::unwind::{FrameSections, FrameTables};

/// Loads the unwind tables of a module from its file, unless they are set or it can have none. Afterwards they are set.
pub fn load(module: &Module, budget: &Budget) {
    if module.code.tables().is_none() {
        module.code.set_tables(tables_of(module, budget));
    }
}

/// None: the module has no file with code, its tables are not understood, or the budget of its users is spent.
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

/// The unwind tables of an ELF file, which may be open as a place only (O_PATH), within the budget of the users who
/// have it mapped. None: its code is of an unknown machine, the budget is spent, or the file does not answer.
pub fn tables_of_file(file: &File, budget: &Budget, users: &[u32]) -> Option<FrameTables> {
    let sections = unwind_sections(file, users, budget.room(users))?;
    let mut share = budget.take(cost(&sections), users)?;
    let tables = FrameTables::new(sections);
    let bytes = tables.bytes() as u64;
    share.shrink_to(bytes);
    Some(tables.keeping(Box::new(share)))
}

/// Memory that making tables from these sections takes: the copied sections, an index of half their size, and as much
/// again.
fn cost(sections: &FrameSections) -> u64 {
    let sections = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame];
    2 * sections.iter().map(|section| section.bytes.len() as u64).sum::<u64>()
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
