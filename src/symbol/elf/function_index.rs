//! The functions of a file by address, without the text of their names: 16 bytes each, in an in-memory file that a
//! worker makes.
//!
//! A program may have a gigabyte of names, of which a run prints a few thousand. So names stay in their file, and the
//! index has their offsets. Small string tables are copied behind the entries.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use memchr::memchr;
use serde::{Deserialize, Serialize};

use crate::symbol::elf::file::{ElfFile, ElfSymbol, FileRange, STT_FUNC};
use crate::symbol::unnamed::{GIVEN_UP, NO_ROOM, NOT_ELF, TOO_LARGE, TOO_SLOW, UnnamedReason};
use crate::sys;
use crate::sys::packets::sealed_len;
use crate::sys::unsealed::UnsealedMemory;

pub const UNREADABLE: UnnamedReason = "cannot be read";
/// Size of an entry.
const ENTRY_BYTES: usize = 16;
/// Entries that are read at once in a look-up. The address of the first one of each block is kept in this process.
const BLOCK_ENTRIES: u64 = 256;
/// Functions that begin before an address and are checked for reaching over it: a function may lie within others.
const MAX_ENCLOSING: u64 = 16;
/// Longest name that is read. A longer name is cut, and not demangled.
const MAX_NAME_BYTES: usize = 64 << 10;
/// String tables up to this size are copied into the index: for names of most files no further question is asked.
const MAX_COPIED_NAMES_BYTES: u64 = 1 << 20;
/// Symbol tables may be so many times as large as their index may be.
const MAX_TABLE_TIMES: u64 = 32;
const CHUNK_BYTES: u64 = 256 << 10;
/// CPU time for one index: a hundred million symbols take less.
const MAX_CPU_NS: u64 = 3_000_000_000;
/// Time for one index. What is read until then stays in the page cache, so that the next attempt gets further.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// An entry as a number, whose order is that of the entries. From the highest bit on: the address, 64 bits; six bits that tell
/// which of several symbols of one address is the better name; the complement of the size; offset of the name in its string table,
/// 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexEntry(u128);

/// Bits of an entry, shifted by [`FLAGS_SHIFT`]. A symbol without the flag is preferred.
mod flags {
    /// The symbol has no size. It reaches up to the next one.
    pub const UNSIZED: u32 = 1 << 5;
    /// The symbol is a label, data, or a function that chooses another one (STT_GNU_IFUNC): its resolver has a name of its own.
    pub const NO_FUNCTION: u32 = 1 << 4;
    pub const LOCAL: u32 = 1 << 3;
    /// The name begins with an underscore, as internal names of a C library do.
    pub const UNDERSCORE: u32 = 1 << 2;
    pub const WEAK: u32 = 1 << 1;
    /// The name is in `.dynstr`.
    pub const EXPORTED: u32 = 1;
}
const FLAGS_SHIFT: u32 = 58;
const SIZE_SHIFT: u32 = 32;
/// Larger functions are cut: their size has 26 bits.
const MAX_SIZE: u64 = (1 << (FLAGS_SHIFT - SIZE_SHIFT)) - 1;

/// Why there are no tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoTables {
    NotElf,
    TooLarge,
    /// The index takes too much CPU time.
    TooSlow,
    /// The file is slow, or perf-prof is about to end.
    NotYet,
    NoDescriptor,
    Unreadable,
}

impl From<NoTables> for UnnamedReason {
    fn from(why: NoTables) -> UnnamedReason {
        match why {
            NoTables::NotElf => NOT_ELF,
            NoTables::TooLarge => TOO_LARGE,
            NoTables::TooSlow => TOO_SLOW,
            NoTables::NotYet => GIVEN_UP,
            NoTables::NoDescriptor => NO_ROOM,
            NoTables::Unreadable => UNREADABLE,
        }
    }
}

impl From<io::Error> for NoTables {
    fn from(err: io::Error) -> NoTables {
        if sys::lacks_descriptors(&err) { NoTables::NoDescriptor } else { NoTables::Unreadable }
    }
}

/// Where a string table is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StringTable {
    pub range: FileRange,
    /// The table is in the file of the index, not in that of the symbols.
    pub is_copied: bool,
}

/// The content of an index's file, as the worker has made it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct IndexLayout {
    pub entries: u64,
    /// `.strtab`, `.dynstr`.
    pub names: [StringTable; 2],
}

/// An index in this process. Its file is sealed.
#[derive(Debug)]
pub struct FunctionIndex {
    file: File,
    layout: IndexLayout,
    /// Address of the first entry of each block.
    fences: Vec<u64>,
}

/// A function of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedFunction {
    pub start: u64,
    pub name: NamePlace,
}

/// Where the name of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamePlace {
    pub is_exported: bool,
    /// Offset in the string table.
    pub offset: u32,
}

impl IndexEntry {
    fn of(symbol: &ElfSymbol<'_>, is_exported: bool) -> IndexEntry {
        let size = match symbol.size {
            0 if is_exported => 1, // exports are sparse: what follows one without a size is seldom a part of it
            size => size.min(MAX_SIZE),
        };
        let has_underscore = symbol.names.first() == Some(&b'_') && symbol.names.get(1) != Some(&b'Z');
        let flags = u32::from(size == 0) * flags::UNSIZED
            + u32::from(symbol.kind != STT_FUNC) * flags::NO_FUNCTION
            + u32::from(symbol.is_local) * flags::LOCAL
            + u32::from(has_underscore) * flags::UNDERSCORE
            + u32::from(symbol.is_weak) * flags::WEAK
            + u32::from(is_exported) * flags::EXPORTED;
        IndexEntry::new(symbol.address, flags, size, symbol.name_at)
    }

    fn new(address: u64, flags: u32, size: u64, name: u32) -> IndexEntry {
        let low = u64::from(flags) << FLAGS_SHIFT | (MAX_SIZE - size) << SIZE_SHIFT | u64::from(name);
        IndexEntry(u128::from(address) << 64 | u128::from(low))
    }

    fn from_bytes(bytes: [u8; ENTRY_BYTES]) -> IndexEntry {
        IndexEntry(u128::from_le_bytes(bytes))
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        self.0.to_le_bytes()
    }

    fn address(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn has(self, flag: u32) -> bool {
        self.0 as u64 >> FLAGS_SHIFT & u64::from(flag) != 0
    }

    fn size(self) -> u64 {
        MAX_SIZE - (self.0 as u64 >> SIZE_SHIFT & MAX_SIZE)
    }

    fn covers(self, address: u64) -> bool {
        address.checked_sub(self.address()).is_some_and(|into| into < self.size())
    }

    /// The entry with a size up to `end`, where the next symbol begins.
    fn reaching_to(self, end: u64) -> IndexEntry {
        let size = end.saturating_sub(self.address()).min(MAX_SIZE);
        IndexEntry((self.0 | u128::from(MAX_SIZE << SIZE_SHIFT)) ^ u128::from(size << SIZE_SHIFT))
    }

    fn function(self) -> IndexedFunction {
        let name = NamePlace { is_exported: self.has(flags::EXPORTED), offset: self.0 as u32 };
        IndexedFunction { start: self.address(), name }
    }
}

/// What an index is made from: a file, and the linker's addresses of its code.
pub struct IndexSource<'a> {
    pub elf: &'a ElfFile,
    pub file: &'a File,
    pub code: &'a [Range<u64>],
    /// The file will be gone when a name is read.
    pub copies_names: bool,
}

impl IndexSource<'_> {
    /// Makes the index, in a sealed file of up to `max_bytes`.
    ///
    /// # Errors
    /// The index would be larger, or take too long, or the file cannot be read.
    pub fn index(&self, max_bytes: u64) -> Result<(File, IndexLayout), NoTables> {
        let limit =
            WorkLimit { max_bytes, until: Instant::now() + MAX_WAIT, until_ns: sys::thread_cpu_ns() + MAX_CPU_NS };
        let mut memory = UnsealedMemory::new()?;
        let tables = [false, true].map(|exported| self.elf.symbol_table(self.file, exported));
        let mut copies = [const { Vec::new() }; 2];
        let mut layout = IndexLayout::default();
        for (is_exported, table) in [false, true].into_iter().zip(tables) {
            let Some((entries, names)) = table else { continue };
            if entries.len / MAX_TABLE_TIMES > max_bytes {
                return Err(NoTables::TooLarge);
            }
            let is_copied = self.copies_names || names.len <= MAX_COPIED_NAMES_BYTES;
            let copy = &mut copies[usize::from(is_exported)];
            if is_copied {
                if memory.len() + names.len > max_bytes {
                    return Err(NoTables::TooLarge);
                }
                *copy = names.read(self.file).ok_or(NoTables::Unreadable)?;
            }
            layout.names[usize::from(is_exported)] = StringTable { range: names, is_copied };
            self.append(entries, names.len, copy, is_exported, &mut memory, &limit)?;
        }
        memory.rework(|bytes| sort(bytes.as_chunks_mut().0, self.code) * ENTRY_BYTES)?;
        layout.entries = memory.len() / ENTRY_BYTES as u64;
        for (table, copy) in layout.names.iter_mut().zip(&copies).filter(|(table, _)| table.is_copied) {
            table.range.offset = memory.len();
            memory.append(copy)?;
        }
        if memory.len() > max_bytes {
            return Err(NoTables::TooLarge);
        }
        Ok((memory.sealed()?, layout))
    }

    /// Appends the functions of a table, in its order.
    fn append(
        &self,
        entries: FileRange,
        names_len: u64,
        names: &[u8],
        is_exported: bool,
        memory: &mut UnsealedMemory,
        limit: &WorkLimit,
    ) -> Result<(), NoTables> {
        let size = self.elf.symbol_bytes();
        let (mut bytes, mut found) = (Vec::new(), Vec::new());
        for chunk in entries.chunks(CHUNK_BYTES / size * size) {
            bytes.resize(chunk.len as usize, 0);
            self.file.read_exact_at(&mut bytes, chunk.offset)?;
            found.clear();
            for entry in bytes.chunks_exact(size as usize) {
                let symbol = self.elf.symbol(entry, names, 0);
                if self.is_wanted(&symbol) && u64::from(symbol.name_at) < names_len {
                    found.extend_from_slice(&IndexEntry::of(&symbol, is_exported).to_bytes());
                }
            }
            limit.check(memory.len() + found.len() as u64)?;
            memory.append(&found)?;
        }
        Ok(())
    }

    fn is_wanted(&self, symbol: &ElfSymbol<'_>) -> bool {
        let is_in_code = || self.code.iter().any(|code| code.contains(&symbol.address));
        symbol.name_at != 0
            && symbol.may_be_code()
            && (symbol.is_function() || is_in_code() && !self.elf.is_mapping_symbol(symbol))
    }
}

/// Sorts entries, and keeps the best name of each address. Returns the number of entries that are left.
fn sort(entries: &mut [[u8; ENTRY_BYTES]], code: &[Range<u64>]) -> usize {
    entries.sort_unstable_by_key(|entry| IndexEntry::from_bytes(*entry));
    let mut kept = 0;
    let mut last_address = None;
    for index in 0..entries.len() {
        let entry = IndexEntry::from_bytes(entries[index]);
        if last_address != Some(entry.address()) {
            last_address = Some(entry.address());
            entries[kept] = entries[index];
            kept += 1;
        }
    }
    let mut next_address = u64::MAX;
    for bytes in entries[..kept].iter_mut().rev() {
        let entry = IndexEntry::from_bytes(*bytes);
        if entry.has(flags::UNSIZED) {
            let end = code.iter().find(|code| code.contains(&entry.address())).map_or(u64::MAX, |code| code.end);
            *bytes = entry.reaching_to(end.min(next_address)).to_bytes();
        }
        next_address = entry.address();
    }
    kept
}

/// Limits of the memory and the time for an index.
struct WorkLimit {
    max_bytes: u64,
    until: Instant,
    /// In CPU time of this thread.
    until_ns: u64,
}

impl WorkLimit {
    fn check(&self, bytes: u64) -> Result<(), NoTables> {
        if bytes > self.max_bytes {
            return Err(NoTables::TooLarge);
        }
        if sys::thread_cpu_ns() >= self.until_ns {
            return Err(NoTables::TooSlow);
        }
        if Instant::now() >= self.until { Err(NoTables::NotYet) } else { Ok(()) }
    }
}

impl FunctionIndex {
    /// The index in a file that a worker has made.
    ///
    /// # Errors
    /// The file is not sealed, or shorter than it should be.
    pub fn open(file: File, layout: IndexLayout) -> io::Result<FunctionIndex> {
        let len = sealed_len(&file)?;
        let names = layout.names.iter().filter(|table| table.is_copied).map(|table| table.range.end());
        if layout.entries.saturating_mul(ENTRY_BYTES as u64).max(names.max().unwrap_or(0)) > len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut index = FunctionIndex { file, layout, fences: Vec::new() };
        for first in (0..layout.entries).step_by(BLOCK_ENTRIES as usize) {
            index.fences.push(index.read(first..first + 1)?.first().map_or(0, |entry| entry.address()));
        }
        Ok(index)
    }

    /// Memory that the index takes, in its file and in this process.
    pub fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len()) + 8 * self.fences.len() as u64
    }

    /// The function around an address: the innermost one with a size, else a symbol without one.
    pub fn find(&self, address: u64) -> Option<IndexedFunction> {
        let block = self.fences.partition_point(|first| *first <= address).checked_sub(1)? as u64;
        let first = (block * BLOCK_ENTRIES).saturating_sub(MAX_ENCLOSING);
        let entries = self.read(first..((block + 1) * BLOCK_ENTRIES).min(self.layout.entries)).ok()?;
        let before = entries.partition_point(|entry| entry.address() <= address);
        let before = entries[..before].iter().rev().take(MAX_ENCLOSING as usize);
        let mut around = before.filter(|entry| entry.covers(address));
        let nearest = around.next()?;
        let enclosing =
            if nearest.has(flags::UNSIZED) { around.find(|entry| !entry.has(flags::UNSIZED)) } else { None };
        Some(enclosing.unwrap_or(nearest).function())
    }

    /// The string table of a name, from the name on. None: there is no such table, or no such offset.
    pub fn text(&self, name: NamePlace) -> Option<StringTable> {
        let StringTable { range, is_copied } = self.layout.names[usize::from(name.is_exported)];
        let len = range.len.checked_sub(name.offset.into()).filter(|len| *len > 0)?;
        Some(StringTable { range: FileRange { offset: range.offset.checked_add(name.offset.into())?, len }, is_copied })
    }

    /// True when the index's file has all names, and the file of the symbols need not be read.
    pub fn has_all_names(&self) -> bool {
        self.layout.names.iter().all(|table| table.is_copied || table.range.len == 0)
    }

    /// The file of the index, for names that were copied into it.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn read(&self, indexes: Range<u64>) -> io::Result<Vec<IndexEntry>> {
        let mut bytes = vec![0; (indexes.end - indexes.start) as usize * ENTRY_BYTES];
        self.file.read_exact_at(&mut bytes, indexes.start * ENTRY_BYTES as u64)?;
        Ok(bytes.as_chunks().0.iter().map(|entry| IndexEntry::from_bytes(*entry)).collect())
    }
}

/// The bytes of a file from the start of the range on up to a zero, and `MAX_NAME_BYTES` at most. Empty: they cannot be read.
pub fn name_at(file: &File, range: FileRange) -> Vec<u8> {
    const FIRST_BYTES: usize = 128;
    let max_bytes = usize::try_from(range.len).unwrap_or(usize::MAX).min(MAX_NAME_BYTES);
    let (mut name, mut len) = (Vec::new(), FIRST_BYTES);
    loop {
        name.resize(len.min(max_bytes), 0);
        if file.read_exact_at(&mut name, range.offset).is_err() {
            return Vec::new();
        }
        let end = memchr(0, &name);
        if end.is_some() || name.len() == max_bytes {
            name.truncate(end.unwrap_or(max_bytes));
            return name;
        }
        len *= 8;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::symbol::elf::file::in_memory;
    use crate::symbol::elf::fixture::{
        CODE_END, GLOBAL_FUNCTION, GLOBAL_LABEL, GLOBAL_OBJECT, LOCAL_FUNCTION, SymbolSpec, WEAK_FUNCTION, file_with,
    };

    fn index_of(file: &File, max_bytes: u64) -> Result<FunctionIndex, NoTables> {
        let elf = ElfFile::read(file).ok_or(NoTables::NotElf)?;
        let code: Vec<Range<u64>> = elf.code_segments().map(|(range, at)| at..at + range.len).collect();
        let (memory, layout) = IndexSource { elf: &elf, file, code: &code, copies_names: false }.index(max_bytes)?;
        Ok(FunctionIndex::open(memory, layout).unwrap())
    }

    /// The name at an address, and the distance from its start.
    fn named(index: &FunctionIndex, file: &File, address: u64) -> Option<(String, u64)> {
        let found = index.find(address)?;
        let table = index.text(found.name)?;
        let name = name_at(if table.is_copied { index.file() } else { file }, table.range);
        Some((String::from_utf8(name).unwrap(), address - found.start))
    }

    #[track_caller]
    fn assert_names(symtab: &[SymbolSpec<'_>], dynsym: &[SymbolSpec<'_>], want: &[(u64, Option<(&str, u64)>)]) {
        for padding in [0, MAX_COPIED_NAMES_BYTES as usize] {
            let file = in_memory(&mut &*file_with(symtab, dynsym, padding)).unwrap();
            let index = index_of(&file, 1 << 24).unwrap();
            assert_eq!(index.layout.names[0].is_copied, padding == 0);
            for (address, want) in want {
                let found = named(&index, &file, *address);
                assert_eq!(found.as_ref().map(|(name, into)| (&**name, *into)), *want, "{address}");
            }
        }
    }

    #[test]
    fn a_function_reaches_from_its_first_byte_to_its_last() {
        let symbols = [
            ("outer", 200, 50, GLOBAL_FUNCTION),
            ("two", 120, 10, GLOBAL_FUNCTION),
            ("one", 100, 20, GLOBAL_FUNCTION),
            ("inner", 210, 10, GLOBAL_FUNCTION),
            ("label", 205, 0, GLOBAL_LABEL),
            ("unsized", 140, 0, GLOBAL_FUNCTION),
            ("last", 300, 0, GLOBAL_LABEL),
            ("data", 150, 8, 0x16), // thread-local
        ];
        let want = [
            (99, None),
            (100, Some(("one", 0))),
            (119, Some(("one", 19))),
            (120, Some(("two", 0))),
            (129, Some(("two", 9))),
            (130, None),
            (139, None),
            (140, Some(("unsized", 0))),
            (199, Some(("unsized", 59))),
            (200, Some(("outer", 0))),
            (207, Some(("outer", 7))),
            (210, Some(("inner", 0))),
            (219, Some(("inner", 9))),
            (220, Some(("outer", 20))),
            (249, Some(("outer", 49))),
            (250, None),
            (300, Some(("last", 0))),
            (CODE_END - 1, Some(("last", CODE_END - 301))),
            (CODE_END, None),
            (u64::MAX, None),
        ];
        assert_names(&symbols, &[], &want);
    }

    #[test]
    fn the_best_name_of_an_address() {
        let symbols = [
            ("__impl_work", 100, 20, LOCAL_FUNCTION),
            ("__weak_work", 100, 20, WEAK_FUNCTION),
            ("work", 100, 20, GLOBAL_FUNCTION),
            ("text_start", 200, 0, GLOBAL_LABEL),
            ("table", 200, 40, GLOBAL_OBJECT),
            ("first", 200, 20, WEAK_FUNCTION),
        ];
        assert_names(&symbols, &[], &[(110, Some(("work", 10))), (210, Some(("first", 10))), (230, None)]);
        // The names of a C library: those that programs use are weak.
        let symbols = [("__read", 100, 20, GLOBAL_FUNCTION), ("read", 100, 20, WEAK_FUNCTION)];
        let file = in_memory(&mut &*file_with(&symbols, &[], 0)).unwrap();
        assert_eq!(named(&index_of(&file, 1 << 20).unwrap(), &file, 100).unwrap().0, "read");
    }

    #[test]
    fn exports_add_to_the_table_of_a_file() {
        let exported = [("exported", 100, 20, GLOBAL_FUNCTION), ("sparse", 130, 0, GLOBAL_FUNCTION)];
        let own = [("own", 150, 10, LOCAL_FUNCTION)];
        let want = [
            (100, Some(("exported", 0))),
            (119, Some(("exported", 19))),
            (130, Some(("sparse", 0))),
            (131, None),
            (150, Some(("own", 0))),
        ];
        assert_names(&own, &exported, &want);
        assert_names(&[], &exported, &want[..4]);
    }

    #[test]
    fn an_index_is_bounded() {
        let names: Vec<String> = (0..1000).map(|number| format!("f{number}")).collect();
        let symbols: Vec<SymbolSpec<'_>> =
            names.iter().zip(0..).map(|(name, number)| (name.as_str(), 8 * number, 8, GLOBAL_FUNCTION)).collect();
        let file = in_memory(&mut &*file_with(&symbols, &[], 0)).unwrap();
        let whole = index_of(&file, 1 << 20).unwrap();
        assert!(whole.bytes() < 1000 * 16 + 5000 + 100, "{}", whole.bytes());
        assert_eq!(index_of(&file, 1000 * 16).err(), Some(NoTables::TooLarge));
        let same: Vec<SymbolSpec<'_>> = symbols.iter().map(|symbol| (symbol.0, 8, 8, GLOBAL_FUNCTION)).collect();
        let file = in_memory(&mut &*file_with(&same, &[], 0)).unwrap();
        assert_eq!(index_of(&file, 1 << 20).unwrap().layout.entries, 1, "one address");
        // A table that is much larger than an index may be is not read.
        let mut bytes = file_with(&symbols, &[], 0);
        let sections_at = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
        bytes[sections_at + 64 + 32..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        let file = in_memory(&mut &*bytes).unwrap();
        file.set_len(1 << 41).unwrap();
        assert_eq!(index_of(&file, 1 << 20).err(), Some(NoTables::TooLarge));
    }

    #[test]
    fn symbols_that_lie_are_survived() {
        let symbols = [
            ("all", 0, u64::MAX, GLOBAL_FUNCTION),
            ("end", u64::MAX, u64::MAX, GLOBAL_FUNCTION),
            ("near", u64::MAX - 3, 0, GLOBAL_FUNCTION),
            ("", 100, 10, GLOBAL_FUNCTION),
        ];
        let mut bytes = file_with(&symbols, &[], 0);
        let file = in_memory(&mut &*bytes).unwrap();
        let index = index_of(&file, 1 << 20).unwrap();
        for address in [0, 1, 100, MAX_SIZE - 1, MAX_SIZE, u64::MAX - 4, u64::MAX - 1, u64::MAX] {
            named(&index, &file, address);
        }
        assert_eq!(named(&index, &file, MAX_SIZE - 1).unwrap().0, "all");
        assert_eq!(named(&index, &file, u64::MAX).unwrap().0, "end");
        // Names outside of their table, and a file that is shorter than its tables when these are read.
        bytes[120 + 24..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let file = in_memory(&mut &*bytes).unwrap();
        assert_eq!(named(&index_of(&file, 1 << 20).unwrap(), &file, 1), None);
        let elf = ElfFile::read(&file).unwrap();
        let long = FileRange { offset: 120, len: 24 << 10 };
        let limit = WorkLimit { max_bytes: 1 << 20, until: Instant::now() + MAX_WAIT, until_ns: u64::MAX };
        let source = IndexSource { elf: &elf, file: &file, code: &[], copies_names: false };
        let mut memory = UnsealedMemory::new().unwrap();
        assert_eq!(source.append(long, 1, &[], false, &mut memory, &limit), Err(NoTables::Unreadable));
        let over = WorkLimit { until: Instant::now(), ..limit };
        assert_eq!(over.check(0), Err(NoTables::NotYet));
        assert_eq!(WorkLimit { until_ns: 0, ..over }.check(0), Err(NoTables::TooSlow));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        /// Against a search through all functions.
        #[test]
        fn finds_the_innermost_function(
            functions in prop::collection::vec((0_u64..3000, 1_u64..40), 1..700),
            addresses in prop::collection::vec(0_u64..3100, 40),
        ) {
            let names: Vec<String> = (0..functions.len()).map(|number| format!("f{number}")).collect();
            let symbols: Vec<SymbolSpec<'_>> = functions
                .iter()
                .zip(&names)
                .map(|((address, size), name)| (name.as_str(), *address, *size, GLOBAL_FUNCTION))
                .collect();
            let file = in_memory(&mut &*file_with(&symbols, &[], 0)).unwrap();
            let index = index_of(&file, 1 << 20).unwrap();
            // The longest one of an address counts, and 16 that begin before it may reach over it.
            let mut longest = std::collections::BTreeMap::new();
            functions.iter().for_each(|(start, size)| {
                let known = longest.entry(*start).or_insert(0);
                *known = (*known).max(*size);
            });
            for address in addresses {
                let before = longest.range(..=address).rev().take(MAX_ENCLOSING as usize);
                let want = before.filter(|(start, size)| address - *start < **size).map(|(start, _)| *start).next();
                prop_assert_eq!(index.find(address).map(|found| found.start), want, "{}", address);
            }
        }
    }
}
