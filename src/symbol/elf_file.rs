//! What an ELF file says of itself: its segments, its build id, and where its symbol tables are.
//!
//! The file is somebody else's and may change, or shrink, while it is read: it is never mapped, every size is checked, and
//! what is read is bounded. See elf(5).

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Notes are a few hundred bytes.
const MOST_NOTE_BYTES: u64 = 64 << 10;
const MOST_NAMES_BYTES: u64 = 1 << 20;
const MOST_SECTIONS: u64 = 1 << 16;
/// `.gnu_debugdata` is a few per cent of its file.
const MOST_DEBUGDATA_BYTES: u64 = 32 << 20;

const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_DYNSYM: u32 = 11;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// Bytes that symbol tables may take in all.
#[derive(Clone, Debug)]
pub struct Budget(Arc<AtomicU64>);

impl Budget {
    pub fn new(bytes: u64) -> Budget {
        Budget(Arc::new(AtomicU64::new(bytes)))
    }

    /// False when so many are not left.
    pub fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// The headers of a file.
#[derive(Debug, Default)]
pub struct ElfFile {
    head: Vec<u8>,
    segments: Vec<Header>,
    sections: Vec<Header>,
    programs: Range,
    table: Range,
    names: usize,
}

/// A segment or a section.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    /// Of a section, where its name is.
    name: u32,
    kind: u32,
    address: u64,
    at: Range,
    /// Of a symbol table, the section of its names.
    link: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Range {
    offset: u64,
    len: u64,
}

/// True when a file starts as ELF files do.
pub fn is_elf(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

/// The build id in a file's notes.
pub fn build_id(file: &File) -> Option<Vec<u8>> {
    ElfFile::read(file)?.build_id(file)
}

impl ElfFile {
    /// None for what is no ELF file of a little-endian machine.
    pub fn read(file: &File) -> Option<ElfFile> {
        let mut head = vec![0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        let [0x7f, b'E', b'L', b'F', class @ 1..=2, 1, ..] = head[..] else { return None };
        let wide = class == 2;
        let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let place = |narrow: usize, wide_at: usize| if wide { long(&head, wide_at) } else { word(&head, narrow) };
        let counts = if wide { 0x36 } else { 0x2a };
        let (program_size, section_size) = if wide { (56, 64) } else { (32, 40) };
        let programs = Range { offset: place(0x1c, 0x20), len: half(counts + 2) * program_size };
        let mut table = Range { offset: place(0x20, 0x28), len: half(counts + 6) * section_size };
        if table.offset > 0 && table.len == 0 {
            // Too many for the header: the first section tells.
            let first = Range { len: section_size, ..table };
            let count = if wide { long(&read(file, first)?, 32) } else { word(&read(file, first)?, 20) };
            table.len = count.min(MOST_SECTIONS) * section_size;
        }
        let names = half(counts + 8) as usize;
        let segments = read(file, programs).unwrap_or_default();
        let segments =
            segments.chunks_exact(program_size as usize).map(|bytes| Header::of_segment(bytes, wide)).collect();
        let sections = read(file, table).unwrap_or_default();
        let sections =
            sections.chunks_exact(section_size as usize).map(|bytes| Header::of_section(bytes, wide)).collect();
        Some(ElfFile { head, segments, sections, programs, table, names })
    }

    /// The address that the linker gave to a byte of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
            let into = offset.checked_sub(segment.at.offset).filter(|into| *into < segment.at.len)?;
            segment.address.checked_add(into)
        })
    }

    pub fn has_symtab(&self) -> bool {
        self.sections.iter().any(|section| section.kind == SHT_SYMTAB && section.at.len > 0)
    }

    pub fn build_id(&self, file: &File) -> Option<Vec<u8>> {
        let notes = self.segments.iter().filter(|segment| segment.kind == PT_NOTE);
        let notes = notes.chain(self.sections.iter().filter(|section| section.kind == SHT_NOTE));
        notes.take(64).find_map(|note| build_id_of(&read(file, note.at.within(MOST_NOTE_BYTES)?)?))
    }

    /// `.gnu_debugdata`, compressed.
    pub fn debugdata(&self, file: &File) -> Option<Vec<u8>> {
        let names = read(file, self.sections.get(self.names)?.at.within(MOST_NAMES_BYTES)?)?;
        let is_it = |section: &&Header| {
            names.get(section.name as usize..).is_some_and(|name| name.starts_with(b".gnu_debugdata\0"))
        };
        read(file, self.sections.iter().find(is_it)?.at.within(MOST_DEBUGDATA_BYTES)?)
    }

    /// A copy of the headers and symbol tables, each where it is in the file, in memory of our own: whoever maps it is not
    /// hurt by what becomes of the file.
    ///
    /// # Errors
    /// The budget is spent, or there is no memory.
    pub fn symbols_only(&self, file: &File, budget: &Budget) -> io::Result<File> {
        let is_table = |section: &&Header| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM);
        let linked = |section: &Header| self.sections.get(section.link as usize).map(|names| names.at);
        let tables = self.sections.iter().filter(is_table).flat_map(|section| [Some(section.at), linked(section)]);
        let names = self.sections.get(self.names).map(|names| names.at);
        let ranges: Vec<Range> = tables.chain([names, Some(self.programs), Some(self.table)]).flatten().collect();
        let bytes = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.len));
        let len = file.metadata()?.len();
        if ranges.iter().any(|range| range.end() > len) || !budget.take(bytes) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let copy = memory_file()?;
        copy.set_len(len)?;
        copy.write_all_at(&self.head, 0)?;
        ranges.iter().try_for_each(|range| copy_range(file, &copy, *range))?;
        Ok(copy)
    }
}

impl Header {
    fn of_segment(bytes: &[u8], wide: bool) -> Header {
        let (offset, address, len) = if wide {
            (long(bytes, 8), long(bytes, 16), long(bytes, 32))
        } else {
            (word(bytes, 4), word(bytes, 8), word(bytes, 16))
        };
        Header { kind: word(bytes, 0) as u32, address, at: Range { offset, len }, ..Header::default() }
    }

    fn of_section(bytes: &[u8], wide: bool) -> Header {
        let (address, offset, len, link) = if wide {
            (long(bytes, 16), long(bytes, 24), long(bytes, 32), word(bytes, 40))
        } else {
            (word(bytes, 12), word(bytes, 16), word(bytes, 20), word(bytes, 24))
        };
        let (name, kind) = (word(bytes, 0) as u32, word(bytes, 4) as u32);
        Header { name, kind, address, at: Range { offset, len }, link: link as u32 }
    }
}

impl Range {
    /// None when it is longer than `most`.
    fn within(self, most: u64) -> Option<Range> {
        (self.len <= most).then_some(self)
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// The caller knows that the bytes are there.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 4).map_or(0, |bytes| u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) | word(bytes, at + 4) << 32
}

fn read(file: &File, range: Range) -> Option<Vec<u8>> {
    if range.end() > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(range.len).ok()?];
    file.read_exact_at(&mut bytes, range.offset).ok()?;
    Some(bytes)
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

/// A file without a name or a disk.
pub fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("perf-prof symbols", MFdFlags::MFD_CLOEXEC)?))
}

/// Stretches of zeros stay holes.
fn copy_range(from: &File, to: &File, range: Range) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    let mut at = range.offset;
    while at < range.end() {
        let len = (range.end() - at).min(chunk.len() as u64) as usize;
        from.read_exact_at(&mut chunk[..len], at)?;
        if chunk[..len].iter().any(|&byte| byte != 0) {
            to.write_all_at(&chunk[..len], at)?;
        }
        at += len as u64;
    }
    Ok(())
}

/// As [`memory_file`], with this content.
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
    fn notes_of_any_shape() {
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
    fn the_budget_is_kept() {
        let budget = Budget::new(10);
        assert!(budget.take(7) && !budget.take(4) && budget.take(3) && !budget.take(1));
    }

    #[test]
    fn a_file_that_claims_more_than_it_has_is_not_believed() {
        let own = File::open("/proc/self/exe").unwrap();
        let mut bytes = vec![0; 64];
        own.read_exact_at(&mut bytes, 0).unwrap();
        bytes[0x3c..0x3e].copy_from_slice(&[0xff, 0xff]); // e_shnum
        let lying = in_memory(&mut bytes.as_slice()).unwrap();
        let elf = ElfFile::read(&lying).unwrap();
        assert!(elf.sections.is_empty() && elf.segments.is_empty() && !elf.has_symtab());
        assert!(elf.symbols_only(&lying, &Budget::new(1 << 30)).is_err());
    }
}
