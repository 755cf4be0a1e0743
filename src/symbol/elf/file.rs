//! The headers of an ELF file: segments, build id, dynamic section, and where the symbol tables are.
//!
//! Files of other users may change or shrink while they are read. So they are never mapped, every size is checked, and
//! the number of bytes read is bounded. See elf(5).

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use crate::sys::packets::memory_file;

/// Most bytes of a note segment or section; usual are a few hundred.
const MAX_NOTE_BYTES: u64 = 64 << 10;
const MAX_NAMES_BYTES: u64 = 1 << 20;
const MAX_SECTIONS: u64 = 1 << 16;
const MAX_DYNAMIC_BYTES: u64 = 1 << 20;
pub const MAX_PATH_BYTES: usize = 4096; // PATH_MAX
/// Most files of one program: itself, and its libraries.
pub const MAX_FILES: usize = 256;
/// Most directories of DT_RUNPATH and DT_RPATH, per file.
const MAX_LIBRARY_DIRS: usize = 128;
/// Most PT_LOAD segments kept per file; linkers make four or five.
const MAX_LOADS: usize = 256;

const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
pub const STT_FUNC: u8 = 2;
pub const STT_GNU_IFUNC: u8 = 10;
const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const SHF_COMPRESSED: u64 = 0x800;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;

/// The headers of a file.
#[derive(Debug, Default)]
pub struct ElfFile {
    machine: u16,
    /// `e_entry`, the virtual address at which the program starts; 0 without one.
    entry: u64,
    /// ELFCLASS64.
    is_64_bit: bool,
    segments: Vec<ElfHeader>,
    sections: Vec<ElfHeader>,
    /// `e_shstrndx`, the section with the names of sections.
    names: usize,
}

/// The PT_LOAD segments of a file: bytes of the file, and the virtual address of the first one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadSegments(Vec<(FileRange, u64)>);

/// A program header (segment) or a section header.
#[derive(Clone, Copy, Debug, Default)]
struct ElfHeader {
    /// Sections only: offset of the name in the table of names.
    name: u32,
    kind: u32,
    address: u64,
    range: FileRange,
    /// `sh_link`; of a symbol table, the section with the names.
    link: u32,
    /// Segments only: PF_X is set.
    is_code: bool,
    /// Of a section: its bytes are in the file, and not compressed.
    is_plain: bool,
}

/// An entry of a symbol table.
#[derive(Clone, Copy, Debug)]
pub struct ElfSymbol<'a> {
    /// The string table, from the start of this name on. The end is not searched for each symbol: a hostile file could
    /// make that take long.
    pub names: &'a [u8],
    /// Offset of the name in the string table.
    pub name_at: u32,
    /// STT_FUNC, STT_OBJECT ...
    pub kind: u8,
    pub is_local: bool,
    pub is_weak: bool,
    /// False for a symbol that another file defines.
    pub is_defined: bool,
    pub address: u64,
    pub size: u64,
    /// Index in the symbol table.
    pub index: usize,
}

/// The libraries that a file needs, and the directories where the dynamic linker looks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamicSection {
    /// DT_NEEDED
    pub libraries: Vec<String>,
    /// DT_RUNPATH, DT_RPATH
    pub directories: Vec<String>,
}

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRange {
    pub offset: u64,
    pub len: u64,
}

/// True when a file starts with the magic number of ELF.
pub fn is_elf(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

/// The build id in a file's notes.
pub fn build_id(file: &File) -> Option<Vec<u8>> {
    ElfFile::read(file)?.build_id(file)
}

impl ElfFile {
    /// Reads the headers. None for a file that is not ELF, or not little-endian.
    pub fn read(file: &File) -> Option<ElfFile> {
        let mut head = vec![0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        let [0x7f, b'E', b'L', b'F', class @ 1..=2, 1, ..] = head[..] else { return None };
        let is_64_bit = class == 2;
        let half = |offset: usize| u64::from(u16::from_le_bytes([head[offset], head[offset + 1]]));
        let place = |narrow: usize, wide_at: usize| if is_64_bit { long(&head, wide_at) } else { word(&head, narrow) };
        let counts = if is_64_bit { 0x36 } else { 0x2a };
        let (program_size, section_size) = if is_64_bit { (56, 64) } else { (32, 40) };
        let programs = FileRange { offset: place(0x1c, 0x20), len: half(counts + 2) * program_size };
        let mut table = FileRange { offset: place(0x20, 0x28), len: half(counts + 6) * section_size };
        if table.offset > 0 && table.len == 0 {
            // Too many sections for `e_shnum`: the first section header has their number.
            let first = FileRange { len: section_size, ..table };
            let count = if is_64_bit { long(&first.read(file)?, 32) } else { word(&first.read(file)?, 20) };
            table.len = count.min(MAX_SECTIONS) * section_size;
        }
        let names = half(counts + 8) as usize;
        let segments = programs.read(file).unwrap_or_default();
        let segments =
            segments.chunks_exact(program_size as usize).map(|bytes| ElfHeader::of_segment(bytes, is_64_bit)).collect();
        let sections = table.read(file).unwrap_or_default();
        let sections =
            sections.chunks_exact(section_size as usize).map(|bytes| ElfHeader::of_section(bytes, is_64_bit)).collect();
        let (machine, entry) = (word(&head, 0x12) as u16, place(0x18, 0x18));
        Some(ElfFile { machine, entry, is_64_bit, segments, sections, names })
    }

    /// The PT_LOAD segments, for callers that keep nothing else of the file.
    pub fn loads(&self) -> LoadSegments {
        let loads = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        LoadSegments(loads.take(MAX_LOADS).map(|segment| (segment.range, segment.address)).collect())
    }

    /// The executable PT_LOAD segments: bytes of the file, and the virtual address of the first one.
    pub fn code_segments(&self) -> impl Iterator<Item = (FileRange, u64)> {
        let code = self.segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.is_code);
        code.take(MAX_LOADS).map(|segment| (segment.range, segment.address))
    }

    /// The virtual address of the program's entry point.
    pub fn entry_address(&self) -> Option<u64> {
        (self.entry != 0).then_some(self.entry)
    }

    /// The offset in the file of the program's entry point.
    pub fn entry(&self) -> Option<u64> {
        self.code_offset(self.entry).filter(|_| self.entry != 0)
    }

    /// The offset in the file of a virtual address, if that is in an executable segment.
    pub fn code_offset(&self, address: u64) -> Option<u64> {
        self.offset(address, |segment| segment.is_code)
    }

    fn offset(&self, address: u64, wanted: impl Fn(&ElfHeader) -> bool) -> Option<u64> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD && wanted(segment)).find_map(|segment| {
            let into = address.checked_sub(segment.address).filter(|into| *into < segment.range.len)?;
            segment.range.offset.checked_add(into)
        })
    }

    /// `e_machine`.
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// ELFCLASS64.
    pub fn is_64_bit(&self) -> bool {
        self.is_64_bit
    }

    /// True for a file of the same machine and class.
    pub fn is_like(&self, other: &ElfFile) -> bool {
        (self.machine(), self.is_64_bit) == (other.machine(), other.is_64_bit)
    }

    /// The path of the dynamic linker (PT_INTERP). None for a static program or a library.
    pub fn interpreter(&self, file: &File) -> Option<String> {
        let segment = self.segments.iter().find(|segment| segment.kind == PT_INTERP)?;
        let path = segment.range.within(MAX_PATH_BYTES as u64)?.read(file)?;
        Some(text_at(&path, 0))
    }

    /// The libraries and their directories. None for a file without a dynamic segment.
    pub fn dynamic(&self, file: &File) -> Option<DynamicSection> {
        const NEEDED: u64 = 1;
        const STRTAB: u64 = 5;
        const STRSZ: u64 = 10;
        const RPATH: u64 = 15;
        const RUNPATH: u64 = 29;
        let segment = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let bytes = segment.range.within(MAX_DYNAMIC_BYTES)?.read(file)?;
        let half = if self.is_64_bit { 8 } else { 4 };
        let number = |bytes: &[u8], offset| if self.is_64_bit { long(bytes, offset) } else { word(bytes, offset) };
        let entries = bytes.chunks_exact(2 * half).map(|entry| (number(entry, 0), number(entry, half)));
        let entries: Vec<(u64, u64)> = entries.take_while(|(tag, _)| *tag != 0).collect();
        let value = |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        let names = FileRange { offset: self.offset(value(STRTAB)?, |_| true)?, len: value(STRSZ)? };
        let names = names.within(MAX_NAMES_BYTES)?.read(file)?;
        let mut dynamic = DynamicSection::default();
        for (tag, offset) in entries {
            let text = || text_at(&names, usize::try_from(offset).unwrap_or(usize::MAX));
            match tag {
                NEEDED if dynamic.libraries.len() < MAX_FILES => dynamic.libraries.push(text()),
                RPATH | RUNPATH if dynamic.directories.len() < MAX_LIBRARY_DIRS => {
                    dynamic.directories.extend(text().split(':').map(str::to_owned));
                    dynamic.directories.truncate(MAX_LIBRARY_DIRS);
                }
                _ => {}
            }
        }
        Some(dynamic)
    }

    /// Whether an exported symbol is an old version, kept for programs that were linked against it. `index`: its
    /// [`ElfSymbol::index`].
    pub fn is_old_version(&self, file: &File, index: usize) -> bool {
        const HIDDEN: u16 = 0x8000; // VERSYM_HIDDEN
        let Some(section) = self.sections.iter().find(|section| section.kind == SHT_GNU_VERSYM) else { return false };
        let offset = (index as u64).saturating_mul(2);
        let mut entry = [0; 2];
        let is_there = section.range.len.saturating_sub(offset) >= 2;
        is_there
            && file.read_exact_at(&mut entry, section.range.offset.saturating_add(offset)).is_ok()
            && u16::from_le_bytes(entry) & HIDDEN != 0
    }

    /// Number of segments and sections.
    pub fn headers(&self) -> usize {
        self.segments.len() + self.sections.len()
    }

    pub fn has_symtab(&self) -> bool {
        self.sections.iter().any(|section| section.kind == SHT_SYMTAB && section.range.len > 0)
    }

    pub fn build_id(&self, file: &File) -> Option<Vec<u8>> {
        let notes = self.segments.iter().filter(|segment| segment.kind == PT_NOTE);
        let notes = notes.chain(self.sections.iter().filter(|section| section.kind == SHT_NOTE));
        notes.take(64).find_map(|note| build_id_of(&note.range.within(MAX_NOTE_BYTES)?.read(file)?))
    }

    /// The section `.gnu_debugdata`, a compressed ELF file.
    pub fn debugdata(&self, file: &File) -> Option<FileRange> {
        let [found] = self.sections_named(file, [b".gnu_debugdata"]);
        Some(found?.0)
    }

    /// The sections of these names, with their addresses. None for a section that is missing, not in the file, or compressed.
    pub fn sections_named<const N: usize>(&self, file: &File, wanted: [&[u8]; N]) -> [Option<(FileRange, u64)>; N] {
        let names = self.sections.get(self.names).and_then(|section| section.range.within(MAX_NAMES_BYTES)?.read(file));
        let names = names.unwrap_or_default();
        wanted.map(|wanted| {
            let is_it = |section: &&ElfHeader| {
                let name = names.get(section.name as usize..).and_then(|name| name.strip_prefix(wanted));
                section.is_plain && name.is_some_and(|rest| rest.first() == Some(&0))
            };
            let section = self.sections.iter().find(is_it)?;
            Some((section.range.in_file(file)?, section.address))
        })
    }

    /// `.eh_frame_hdr` and `.eh_frame` by the program headers, with their addresses, for a file without section
    /// headers. No header gives the end of `.eh_frame`: the range goes up to the end of the segment. None: there is no
    /// `.eh_frame_hdr`, or it has no search table, without which entries cannot be told from the bytes behind them.
    pub fn unwind_segments(&self, file: &File) -> Option<[(FileRange, u64); 2]> {
        const PLACE_AT: u64 = 4; // offset of the address of .eh_frame in the header
        let header = self.segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        let start = FileRange { len: 8, ..header.range.in_file(file)? }.read(file)?;
        let [1, encoding, 0x03, 0x3b, a, b, c, d] = start[..] else { return None };
        let place = i64::from(i32::from_le_bytes([a, b, c, d]));
        let address = match encoding {
            0x1b => header.address.checked_add(PLACE_AT)?.checked_add_signed(place)?, // DW_EH_PE_pcrel | DW_EH_PE_sdata4
            0x3b => header.address.checked_add_signed(place)?,                        // DW_EH_PE_datarel
            0x03 => place as u32 as u64,                                              // DW_EH_PE_udata4
            _ => return None,
        };
        let loads = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let (load, into) = loads.take(MAX_LOADS).find_map(|load| {
            let into = address.checked_sub(load.address).filter(|into| *into < load.range.len)?;
            Some((load.range, into))
        })?;
        let frames = FileRange { offset: load.offset.checked_add(into)?, len: load.len - into };
        Some([(header.range, header.address), (frames.in_file(file)?, address)])
    }

    /// The entries and the string table of `.dynsym` (`exported`) or `.symtab`.
    pub fn symbol_table(&self, file: &File, exported: bool) -> Option<(FileRange, FileRange)> {
        let wanted = if exported { SHT_DYNSYM } else { SHT_SYMTAB };
        let table = self.sections.iter().find(|section| section.kind == wanted)?;
        let names = self.sections.get(table.link as usize)?;
        Some((table.range.in_file(file)?, names.range.in_file(file)?))
    }

    /// Size of an entry in a symbol table.
    pub fn symbol_bytes(&self) -> u64 {
        if self.is_64_bit { 24 } else { 16 }
    }

    /// Parses an entry of [`ElfFile::symbol_bytes`] bytes.
    pub fn symbol<'a>(&self, entry: &[u8], names: &'a [u8], index: usize) -> ElfSymbol<'a> {
        ElfSymbol::of(entry, self.is_64_bit, names, index)
    }

    /// True for the mapping symbols of ARM (`$x`, `$d`), which tell code from data and name nothing.
    pub fn is_mapping_symbol(&self, symbol: &ElfSymbol<'_>) -> bool {
        const ARM: [u16; 2] = [40, 183]; // EM_ARM, EM_AARCH64
        ARM.contains(&self.machine) && symbol.kind == STT_NOTYPE && symbol.is_local && symbol.size == 0
    }
}

impl LoadSegments {
    /// The virtual address of an offset in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.0.iter().find_map(|(range, address)| {
            let into = offset.checked_sub(range.offset).filter(|into| *into < range.len)?;
            address.checked_add(into)
        })
    }
}

impl ElfHeader {
    fn of_segment(bytes: &[u8], is_64_bit: bool) -> ElfHeader {
        let (offset, address, len) = if is_64_bit {
            (long(bytes, 8), long(bytes, 16), long(bytes, 32))
        } else {
            (word(bytes, 4), word(bytes, 8), word(bytes, 16))
        };
        let flags = word(bytes, if is_64_bit { 4 } else { 24 }) as u32;
        let is_code = flags & PF_X != 0;
        ElfHeader {
            kind: word(bytes, 0) as u32,
            address,
            range: FileRange { offset, len },
            is_code,
            ..ElfHeader::default()
        }
    }

    fn of_section(bytes: &[u8], is_64_bit: bool) -> ElfHeader {
        let (address, offset, len, link) = if is_64_bit {
            (long(bytes, 16), long(bytes, 24), long(bytes, 32), word(bytes, 40))
        } else {
            (word(bytes, 12), word(bytes, 16), word(bytes, 20), word(bytes, 24))
        };
        let (name, kind) = (word(bytes, 0) as u32, word(bytes, 4) as u32);
        let flags = if is_64_bit { long(bytes, 8) } else { word(bytes, 8) };
        let is_plain = kind != SHT_NOBITS && flags & SHF_COMPRESSED == 0;
        let range = FileRange { offset, len };
        ElfHeader { name, kind, address, range, link: link as u32, is_plain, ..ElfHeader::default() }
    }
}

impl<'a> ElfSymbol<'a> {
    fn of(entry: &[u8], is_64_bit: bool, names: &'a [u8], index: usize) -> ElfSymbol<'a> {
        const LOCAL: u8 = 0; // STB_LOCAL
        const WEAK: u8 = 2; // STB_WEAK
        let (info, section, address, size) = if is_64_bit {
            (entry[4], word(entry, 4) >> 16, long(entry, 8), long(entry, 16))
        } else {
            (entry[12], word(entry, 12) >> 16, word(entry, 4), word(entry, 8))
        };
        ElfSymbol {
            names: names.get(word(entry, 0) as usize..).unwrap_or_default(),
            name_at: word(entry, 0) as u32,
            kind: info & 0xf,
            is_local: info >> 4 == LOCAL,
            is_weak: info >> 4 == WEAK,
            is_defined: section != 0,
            address,
            size,
            index,
        }
    }

    /// True for a symbol that its file calls code.
    pub fn is_function(&self) -> bool {
        matches!(self.kind, STT_FUNC | STT_GNU_IFUNC)
    }

    /// True for a symbol with an address in this file that may be code.
    pub fn may_be_code(&self) -> bool {
        self.is_defined && matches!(self.kind, STT_NOTYPE | STT_OBJECT | STT_FUNC | STT_GNU_IFUNC)
    }

    /// The name without its version. None when it is longer than `most`, or than `left`, from which the bytes read are
    /// subtracted.
    pub fn name_within(&self, most: usize, left: &mut usize) -> Option<&'a [u8]> {
        let text = &self.names[..self.names.len().min(most.saturating_add(1)).min(*left)];
        let len = text.iter().position(|byte| matches!(byte, 0 | b'@'));
        *left -= len.map_or(text.len(), |len| len + 1);
        len.map(|len| &text[..len])
    }
}

/// The text at an offset of `names`, up to a zero or [`MAX_PATH_BYTES`].
fn text_at(names: &[u8], offset: usize) -> String {
    let text = names.get(offset..).unwrap_or_default();
    let text = &text[..text.len().min(MAX_PATH_BYTES)];
    let len = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..len]).into_owned()
}

impl FileRange {
    /// None for a range longer than `most`.
    fn within(self, most: u64) -> Option<FileRange> {
        (self.len <= most).then_some(self)
    }

    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// None for a range that reaches beyond the end of the file.
    fn in_file(self, file: &File) -> Option<FileRange> {
        (self.end() <= file.metadata().ok()?.len()).then_some(self)
    }

    /// The bytes. None for a range that reaches beyond the end of the file.
    pub fn read(self, file: &File) -> Option<Vec<u8>> {
        let range = self.in_file(file)?;
        let mut bytes = vec![0; usize::try_from(range.len).ok()?];
        file.read_exact_at(&mut bytes, range.offset).ok()?;
        Some(bytes)
    }

    /// The range in parts of up to `bytes`.
    pub fn chunks(self, bytes: u64) -> impl Iterator<Item = FileRange> {
        let starts = std::iter::successors(Some(self.offset), move |offset| offset.checked_add(bytes));
        let starts = starts.take_while(move |offset| *offset < self.end());
        starts.map(move |offset| FileRange { offset, len: bytes.min(self.end() - offset) })
    }
}

/// Reads 32 bits; 0 when `bytes` ends before.
fn word(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..offset + 4)
        .map_or(0, |bytes| u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    word(bytes, offset) | word(bytes, offset + 4) << 32
}

fn build_id_of(mut notes: &[u8]) -> Option<Vec<u8>> {
    while notes.len() >= 12 {
        let (name_len, len, kind) = (word(notes, 0) as usize, word(notes, 4) as usize, word(notes, 8) as u32);
        let name_end = 12_usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let end = name_end.checked_add(len)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..12 + name_len)? == b"GNU\0" {
            return notes.get(name_end..end).filter(|id| !id.is_empty()).map(<[u8]>::to_vec);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

/// A file in memory with this content.
pub fn in_memory(content: &mut dyn io::Read) -> io::Result<File> {
    let mut file = memory_file()?;
    io::copy(content, &mut file)?;
    file.flush()?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_build_id_in_notes() {
        let note = |name: &[u8], kind: u32, id: &[u8]| {
            let mut bytes = Vec::new();
            for number in [name.len() as u32, id.len() as u32, kind] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(id);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let other = note(b"stapsdt\0", 3, b"abc");
        let own = note(b"GNU\0", 3, b"0123456789");
        assert_eq!(build_id_of(&own).as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(build_id_of(&[other.clone(), own.clone()].concat()).as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(build_id_of(&other), None);
        for cut in 0..own.len() - 2 {
            assert_eq!(build_id_of(&own[..cut]), None, "{cut}");
        }
        assert_eq!(build_id_of(&[0xff; 64]), None);
    }

    #[test]
    fn headers_beyond_the_end_of_the_file_are_ignored() {
        let own = File::open("/proc/self/exe").unwrap();
        let mut bytes = vec![0; 64];
        own.read_exact_at(&mut bytes, 0).unwrap();
        bytes[0x3c..0x3e].copy_from_slice(&[0xff, 0xff]); // e_shnum
        let lying = in_memory(&mut bytes.as_slice()).unwrap();
        let elf = ElfFile::read(&lying).unwrap();
        assert!(elf.sections.is_empty() && elf.segments.is_empty() && !elf.has_symtab());
        assert!([false, true].iter().all(|exported| elf.symbol_table(&lying, *exported).is_none()));
    }

    /// A 64-bit file with these sections (kind, offset, length, link), and one segment over the whole file.
    fn generated(sections: &[(u32, u64, u64, u32)], dynamic: FileRange, content: &[(u64, &[u8])], len: u64) -> File {
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let table = bytes.len() as u64;
        for (at, number) in [(0x20, 64), (0x28, table), (0x60, len), (0x80, dynamic.offset), (0x98, dynamic.len)] {
            bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(number));
        }
        (bytes[0x38], bytes[0x40], bytes[0x78]) = (2, PT_LOAD as u8, PT_DYNAMIC as u8);
        bytes[0x3c..0x3e].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        for &(kind, offset, len, link) in sections {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&len.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            bytes.extend(header);
        }
        let file = in_memory(&mut bytes.as_slice()).unwrap();
        file.set_len(len).unwrap();
        content.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file
    }

    #[test]
    fn names_without_an_end_are_bounded() {
        const NAMES: usize = 64 << 10;
        let tags = |tag: u64, count: usize| [tag.to_le_bytes(), 0_u64.to_le_bytes()].concat().repeat(count);
        let pair = |tag: u64, value: u64| [tag.to_le_bytes(), value.to_le_bytes()].concat();
        let (at, names_at) = (4096, 1 << 20);
        let head = [pair(5, names_at), pair(10, NAMES as u64)].concat(); // DT_STRTAB, DT_STRSZ
        let entries = [head, tags(1, 10_000), tags(29, 10_000), tags(15, 10_000)].concat();
        for (byte, lengths) in [(b'x', MAX_PATH_BYTES), (b':', 0)] {
            let names = vec![byte; NAMES];
            let dynamic = FileRange { offset: at, len: entries.len() as u64 };
            let file = generated(&[], dynamic, &[(at, &entries), (names_at, &names)], 2 << 20);
            let found = ElfFile::read(&file).unwrap().dynamic(&file).unwrap();
            assert_eq!((found.libraries.len(), found.directories.len()), (MAX_FILES, MAX_LIBRARY_DIRS));
            assert!(found.libraries.iter().all(|name| name.len() == MAX_PATH_BYTES));
            assert!(found.directories.iter().all(|name| name.len() == lengths));
        }
    }

    #[test]
    fn names_end_before_their_version() {
        let symbol = |names: &'static [u8]| ElfSymbol { names, ..ElfSymbol::of(&[0; 24], true, &[], 0) };
        let name = |names, most, mut left| (symbol(names).name_within(most, &mut left), left);
        assert_eq!(name(b"memcpy\0next\0", 6, 100), (Some(&b"memcpy"[..]), 93));
        assert_eq!(name(b"memcpy@@GLIBC_2.14\0", 60, 100), (Some(&b"memcpy"[..]), 93));
        assert_eq!(name(b"memcpy\0", 5, 100), (None, 94));
        assert_eq!(name(b"memcpy\0", 60, 3), (None, 0));
        assert_eq!(name(b"memcpy", 60, 100), (None, 94));
        for (names, want) in [(&b"f\0"[..], true), (b"f@V\0", true), (b"f", false), (b"fg\0", false), (b"\0", false)] {
            assert_eq!(name(names, 60, 100).0 == Some(b"f"), want, "{names:?}");
        }
        assert_eq!((name(b"\0", 60, 100).0, name(b"f@V\0", 60, 100).0), (Some(&b""[..]), Some(&b"f"[..])));
    }
}
