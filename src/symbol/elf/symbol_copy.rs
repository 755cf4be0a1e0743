//! Copies the symbol tables of a file into a small ELF file of our own, so that the symbolizer reads only checked data:
//! headers, section names and offsets are ours, and each entry was checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::symbol::elf::file::{ElfFile, ElfSymbol, FileRange};
use crate::sys::packets::{memory_file, seal};

/// Size of an entry in the copy, Elf64_Sym.
const ENTRY_BYTES: u64 = 24;
/// Memory per entry in the index of the symbolizer.
const INDEX_BYTES: u64 = 8;
const SECTION_BYTES: usize = 64;
const HEADER_BYTES: u64 = 64;
/// Fixed size of the copy: headers, section names, and alignment.
const FIXED_BYTES: u64 = 512;
/// Longest name; looking for the end of a longer one would take time at each look-up.
const MAX_NAME_BYTES: usize = 64 << 10;
const SECTION_NAMES: &[u8] = b"\0.symtab\0.strtab\0.dynsym\0.dynstr\0.names\0";
const CHUNK_BYTES: u64 = 64 << 10;

const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_DYNSYM: u32 = 11;

/// Copies symbols with an address that may be code, and the string tables, into a sealed file in memory. Returns it with the memory
/// that it takes, and its index. A table that reaches beyond the end of the file is left out.
///
/// # Errors
/// QuotaExceeded when that would be more than `max_bytes`. Otherwise memory or descriptors are short, or the file cannot be read.
pub fn copy(elf: &ElfFile, file: &File, max_bytes: u64) -> io::Result<(File, u64)> {
    let found = [false, true].map(|exported| elf.symbol_table(file, exported));
    let cost = |(entries, names): &(FileRange, FileRange)| {
        let entries = entries.len / elf.symbol_bytes();
        entries.saturating_mul(ENTRY_BYTES + INDEX_BYTES).saturating_add(names.len)
    };
    let bytes = found.iter().flatten().map(cost).fold(FIXED_BYTES, u64::saturating_add);
    if bytes > max_bytes {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    let copy = memory_file()?;
    let mut end = HEADER_BYTES;
    let mut kept = FIXED_BYTES;
    let mut headers = vec![[0; SECTION_BYTES]];
    for (kind, name, tables) in [(SHT_SYMTAB, 1, found[0]), (SHT_DYNSYM, 17, found[1])] {
        let (entries, names) = tables.unwrap_or_default();
        let len = copy_entries(elf, file, entries, &copy, end)?;
        let (names_at, link) = (end + len, headers.len() as u32 + 1);
        headers.push(section_header(name, kind, FileRange { offset: end, len }, link));
        let names_len = copy_names(file, names, &copy, names_at)?;
        headers.push(section_header(name + 8, SHT_STRTAB, FileRange { offset: names_at, len: names_len }, 0));
        end = (names_at + names_len).next_multiple_of(8);
        kept += len / ENTRY_BYTES * (ENTRY_BYTES + INDEX_BYTES) + names_len;
    }
    let at = FileRange { offset: end, len: SECTION_NAMES.len() as u64 };
    copy.write_all_at(SECTION_NAMES, end)?;
    headers.push(section_header(33, SHT_STRTAB, at, 0));
    let headers_at = at.end().next_multiple_of(8);
    copy.write_all_at(headers.as_flattened(), headers_at)?;
    copy.write_all_at(&file_header(elf.machine(), headers_at, headers.len() as u16), 0)?;
    seal(&copy)?;
    Ok((copy, kept))
}

/// Writes the entries that may be code to `to` as Elf64_Sym, from `start` on. Returns their length in bytes.
fn copy_entries(elf: &ElfFile, file: &File, entries: FileRange, to: &File, start: u64) -> io::Result<u64> {
    let size = elf.symbol_bytes();
    let mut at = start;
    let mut copied = Vec::new();
    for chunk in entries.chunks(CHUNK_BYTES / size * size) {
        let mut bytes = vec![0; chunk.len as usize];
        file.read_exact_at(&mut bytes, chunk.offset)?;
        copied.clear();
        for entry in bytes.chunks_exact(size as usize) {
            let symbol = elf.symbol(entry, &[], 0);
            if symbol.may_be_code() && !elf.is_mapping_symbol(&symbol) {
                copied.extend(entry_of(&symbol));
            }
        }
        to.write_all_at(&copied, at)?;
        at += copied.len() as u64;
    }
    Ok(at - start)
}

fn entry_of(symbol: &ElfSymbol<'_>) -> [u8; ENTRY_BYTES as usize] {
    const ANY_SECTION: u16 = 1; // any nonzero section: the symbol is defined
    let mut entry = [0; ENTRY_BYTES as usize];
    entry[..4].copy_from_slice(&symbol.name_at.to_le_bytes());
    entry[4] = symbol.kind;
    entry[6..8].copy_from_slice(&ANY_SECTION.to_le_bytes());
    entry[8..16].copy_from_slice(&symbol.address.to_le_bytes());
    entry[16..].copy_from_slice(&symbol.size.min(u64::MAX - symbol.address).to_le_bytes());
    entry
}

/// Copies a string table, in which each name ends with a zero, also the last one. Zero chunks stay holes. Returns the
/// length in bytes.
fn copy_names(file: &File, names: FileRange, to: &File, start: u64) -> io::Result<u64> {
    let mut at = start;
    let mut in_name = 0;
    for chunk in names.chunks(CHUNK_BYTES) {
        let mut bytes = vec![0; chunk.len as usize];
        file.read_exact_at(&mut bytes, chunk.offset)?;
        in_name = end_long_names(&mut bytes, in_name);
        if bytes.iter().any(|&byte| byte != 0) {
            to.write_all_at(&bytes, at)?;
        }
        at += chunk.len;
    }
    to.write_all_at(b"\0", at)?;
    Ok(at + 1 - start)
}

/// Cuts names that are too long. `in_name`: length of the first name in the chunks before. Returns that of the last one
/// so far.
fn end_long_names(bytes: &mut [u8], mut in_name: usize) -> usize {
    for byte in bytes {
        if in_name == MAX_NAME_BYTES {
            *byte = 0;
        }
        in_name = if *byte == 0 { 0 } else { in_name + 1 };
    }
    in_name
}

/// A section header, Elf64_Shdr. `link`: of a table of symbols, the section with their names.
fn section_header(name: u32, kind: u32, bytes: FileRange, link: u32) -> [u8; SECTION_BYTES] {
    let mut header = [0; SECTION_BYTES];
    for (at, number) in [(0, name), (4, kind), (40, link)] {
        header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let entry_bytes = if link > 0 { ENTRY_BYTES } else { 0 };
    for (at, number) in [(24, bytes.offset), (32, bytes.len), (48, 8), (56, entry_bytes)] {
        header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    header
}

/// The file header, Elf64_Ehdr.
fn file_header(machine: u16, sections_at: u64, sections: u16) -> [u8; HEADER_BYTES as usize] {
    const ET_DYN: u16 = 3;
    let mut header = [0; HEADER_BYTES as usize];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[0x28..0x30].copy_from_slice(&sections_at.to_le_bytes());
    let halves =
        [(0x10, ET_DYN), (0x12, machine), (0x14, 1), (0x34, 64), (0x3a, 64), (0x3c, sections), (0x3e, sections - 1)];
    for (at, number) in halves {
        header[at..at + 2].copy_from_slice(&number.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::file::in_memory;
    use crate::symbol::elf::vdso::own_vdso;
    use crate::symbol::functions::search::Search;
    use crate::sys::packets::sealed_len;

    #[test]
    fn long_names_are_cut() {
        let ended = |len: usize, before: usize| {
            let mut bytes = vec![b'x'; len];
            let rest = end_long_names(&mut bytes, before);
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0);
            (ends.map(|(at, _)| at).collect::<Vec<usize>>(), rest)
        };
        assert_eq!(ended(MAX_NAME_BYTES, 0), (vec![], MAX_NAME_BYTES));
        assert_eq!(ended(MAX_NAME_BYTES + 3, 0), (vec![MAX_NAME_BYTES], 2));
        assert_eq!(ended(10, MAX_NAME_BYTES - 4), (vec![4], 5));
        let mut bytes = *b"a\0b\0";
        assert_eq!((end_long_names(&mut bytes, 5), &bytes), (0, b"a\0b\0"));
    }

    #[test]
    fn the_copy_has_what_the_file_has() {
        let file = in_memory(&mut own_vdso().expect("every process has one").as_slice()).unwrap();
        let elf = ElfFile::read(&file).unwrap();
        let (copy, _) = copy(&elf, &file, u64::MAX).unwrap();
        let of = |elf: &ElfFile, file: &File, exported| {
            let mut all = Vec::new();
            Search::within(u64::MAX).each_symbol(elf, file, exported, |symbol| {
                if symbol.may_be_code() {
                    let name = symbol.names.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
                    all.push((name, symbol.address, symbol.size, symbol.kind));
                }
            });
            all
        };
        let copied = ElfFile::read(&copy).unwrap();
        assert!(!of(&elf, &file, true).is_empty());
        for exported in [false, true] {
            assert_eq!(of(&copied, &copy, exported), of(&elf, &file, exported));
        }
    }

    #[test]
    fn a_copy_is_bounded() {
        let file = in_memory(&mut own_vdso().expect("every process has one").as_slice()).unwrap();
        let elf = ElfFile::read(&file).unwrap();
        let (copied, kept) = copy(&elf, &file, 1 << 20).unwrap();
        assert!(copied.metadata().unwrap().len() <= kept && sealed_len(&copied).is_ok());
        let refused = copy(&elf, &file, FIXED_BYTES).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    }
}
