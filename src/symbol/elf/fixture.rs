//! ELF files for tests.

use proptest::prelude::*;

use crate::symbol::elf::vdso::own_vdso;

/// A small ELF file with random bytes changed, cut at a random length.
pub fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = proptest::collection::vec((0_usize..4096, any::<u8>()), 1..20);
    (damage, 0_usize..9000).prop_map(|(damage, cut)| {
        let mut bytes = own_vdso().expect("every process has one");
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        bytes.truncate(cut.max(64));
        bytes
    })
}

/// A symbol of [`file_with`]: name, address, size, `st_info`.
pub type SymbolSpec<'a> = (&'a str, u64, u64, u8);
/// Kinds and bindings of `st_info`.
pub const GLOBAL_FUNCTION: u8 = 0x12;
pub const LOCAL_FUNCTION: u8 = 0x02;
pub const WEAK_FUNCTION: u8 = 0x22;
pub const GLOBAL_LABEL: u8 = 0x10;
pub const GLOBAL_OBJECT: u8 = 0x11;

/// Code of [`file_with`] reaches up to here.
pub const CODE_END: u64 = 1 << 20;

/// An ELF file with these symbols in `.symtab` and `.dynsym`, whose offsets and addresses are the same. So many bytes of zeros follow
/// the names in each string table.
pub fn file_with(symtab: &[SymbolSpec<'_>], dynsym: &[SymbolSpec<'_>], padding: usize) -> Vec<u8> {
    const HEADER_BYTES: usize = 64;
    const SEGMENT_BYTES: usize = 56;
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(HEADER_BYTES + SEGMENT_BYTES, 0);
    let mut sections = vec![0; 64];
    for (index, (kind, symbols)) in [(2_u32, symtab), (11, dynsym)].into_iter().enumerate() {
        let (mut entries, mut names) = (vec![0; 24], vec![0]);
        for (name, address, size, info) in symbols {
            entries.extend((names.len() as u32).to_le_bytes());
            entries.extend([*info, 0, 1, 0]);
            entries.extend([*address, *size].map(u64::to_le_bytes).concat());
            names.extend(name.as_bytes());
            names.push(0);
        }
        names.resize(names.len() + padding, 0);
        for (kind, content, link) in [(kind, entries, 2 * index as u32 + 2), (3, names, 0)] {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            sections.extend(header);
            bytes.extend(content);
        }
    }
    let sections_at = bytes.len() as u64;
    bytes.extend(sections);
    let mut put =
        |at: usize, number: u64, len: usize| bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
    for (at, number, len) in [(0x20, 64, 8), (0x28, sections_at, 8), (0x38, 1, 2), (0x3c, 5, 2)] {
        put(at, number, len); // e_phoff, e_shoff, e_phnum, e_shnum
    }
    for (at, number, len) in [(64, 1, 4), (68, 5, 4), (96, CODE_END, 8)] {
        put(at, number, len); // PT_LOAD, read and execute, p_filesz
    }
    bytes
}
