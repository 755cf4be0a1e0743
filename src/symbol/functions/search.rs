//! Searches symbol tables for names. The tables come from other users' files, so the bytes read and the memory are
//! bounded.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memchr::memchr;

use crate::escape::{escape, unescape};
use crate::outside::WorkerPlace;
use crate::symbol::elf::file::{ElfFile, ElfSymbol, FileRange};
use crate::sys;

/// Most bytes read of a file that the user has named: the tables of a library of two million functions with long names, twice.
pub const MAX_OF_FILE_BYTES: u64 = 4 << 30;
/// Most bytes read of all files that the processes of a target have mapped, which choose the files.
pub const MAX_OF_TARGET_BYTES: u64 = 512 << 20;

const CHUNK_BYTES: u64 = 256 << 10;
/// Symbols whose names are read in one pass over a string table: 48 MiB of them.
const MAX_IN_PASS: usize = 1 << 20;
/// Bytes that are read behind the first one of a name; longer names are cut.
const MAX_NAME_BYTES: u64 = 8 << 10;
/// CPU time for demangling, ns. A million names take a few seconds.
const MAX_NAMES_NS: u64 = 10_000_000_000;
/// Most offsets of a name in a string table: it may be the end of other names, as `free` of `xfree`.
const MAX_OFFSETS: usize = 1 << 20;
/// Most files listed as not searched.
const MAX_LISTED: usize = 3;

/// The bounds of one search in any number of files, its current file, and the files that it could not search.
#[derive(Debug)]
pub struct Search {
    /// Where relative paths begin.
    directory: PathBuf,
    place: WorkerPlace,
    /// The process whose files are searched; 0: the files belong to no process.
    pid: Cell<i32>,
    /// Bytes that may still be read.
    left: Cell<u64>,
    /// CPU time of this thread at which no more names are read.
    names_until_ns: Cell<Option<u64>>,
    /// Paths of files that were not searched to their end.
    left_out: RefCell<Vec<String>>,
}

impl Search {
    /// A search that reads up to `bytes`.
    pub fn within(bytes: u64) -> Search {
        Search {
            directory: PathBuf::new(),
            place: WorkerPlace::default(),
            pid: Cell::new(0),
            left: Cell::new(bytes),
            names_until_ns: Cell::default(),
            left_out: RefCell::default(),
        }
    }

    /// The search in a worker, which records the file that it reads. `directory`: where relative paths begin.
    pub fn in_worker(self, place: WorkerPlace, directory: PathBuf) -> Search {
        Search { directory, place, ..self }
    }

    /// Records the process whose mappings and files are read next.
    pub fn at_process(&self, pid: i32) {
        self.pid.set(pid);
        self.place.tell(pid, Path::new(""));
    }

    /// Records the file that is opened or read next. Returns the path to open.
    pub fn at_file(&self, path: &Path) -> PathBuf {
        self.place.tell(self.pid.get(), path);
        self.directory.join(path)
    }

    /// False when the CPU time for names is used up.
    pub fn has_time(&self) -> bool {
        let now_ns = sys::thread_cpu_ns();
        let until_ns = self.names_until_ns.get().unwrap_or(now_ns.saturating_add(MAX_NAMES_NS));
        self.names_until_ns.set(Some(until_ns));
        now_ns < until_ns
    }

    /// Takes `bytes` from what may be read. False when fewer are left.
    pub fn spend(&self, bytes: u64) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(self.left.get()));
        left.is_some()
    }

    pub fn left_bytes(&self) -> u64 {
        self.left.get()
    }

    /// Notes a file that was not searched to its end.
    pub fn leave_out(&self, path: &str) {
        let mut left_out = self.left_out.borrow_mut();
        if left_out.last().is_none_or(|last| last != path) {
            left_out.push(path.to_owned());
        }
    }

    /// The message on files that were not searched. None when all were.
    pub fn left_out(&self) -> Option<String> {
        let left_out = self.left_out.borrow();
        let some: Vec<String> = left_out.iter().take(MAX_LISTED).map(|path| escape(path.as_bytes())).collect();
        let more = left_out.len().checked_sub(MAX_LISTED).filter(|more| *more > 0);
        let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
        (!some.is_empty()).then(|| format!("not searched for want of room: {}{more}", some.join(", ")))
    }

    /// Calls `take` for the symbols of a name in `.dynsym` (`exported`) or `.symtab`; their `names` are empty. `memcpy`
    /// also finds `memcpy@@GLIBC_2.14`. Bytes that are no UTF-8 are written as they are shown, `\xe9`. False when the search was cut
    /// short.
    pub fn each_named(
        &self,
        elf: &ElfFile,
        file: &File,
        exported: bool,
        name: &str,
        mut take: impl FnMut(&ElfSymbol<'_>),
    ) -> bool {
        let Some((entries, names)) = elf.symbol_table(file, exported) else { return true };
        if !self.spend(entries.len.saturating_add(names.len)) {
            return false;
        }
        let Some(offsets) = name_offsets(file, names, &unescape(name)) else { return false };
        offsets.is_empty()
            || each_entry(elf, file, entries, |symbol| {
                if offsets.binary_search(&symbol.name_at).is_ok() {
                    take(symbol);
                }
            })
    }

    /// Calls `take` for all symbols of a table that are wanted, with their names, in no order. False when the search was cut short.
    pub fn each_symbol(
        &self,
        elf: &ElfFile,
        file: &File,
        exported: bool,
        wants: impl Fn(&ElfSymbol<'_>) -> bool,
        mut take: impl FnMut(&ElfSymbol<'_>),
    ) -> bool {
        let Some((entries, names)) = elf.symbol_table(file, exported) else { return true };
        if !self.spend(entries.len) {
            return false;
        }
        let (mut wanted, mut is_whole) = (Vec::new(), true);
        let is_read = each_entry(elf, file, entries, |symbol| {
            if is_whole && wants(symbol) {
                wanted.push(*symbol);
                if wanted.len() == MAX_IN_PASS {
                    is_whole = self.with_names(file, names, &mut wanted, &mut take);
                }
            }
        });
        is_read && is_whole && self.with_names(file, names, &mut wanted, &mut take)
    }

    /// Gives symbols their names, in the order of a string table, and takes them out of `symbols`.
    fn with_names(
        &self,
        file: &File,
        names: FileRange,
        symbols: &mut Vec<ElfSymbol<'static>>,
        take: &mut impl FnMut(&ElfSymbol<'_>),
    ) -> bool {
        symbols.sort_unstable_by_key(|symbol| symbol.name_at);
        let (mut rest, mut bytes) = (&symbols[..], Vec::new());
        while let Some(first) = rest.first() {
            let start = u64::from(first.name_at);
            let len = names.len.saturating_sub(start).min(CHUNK_BYTES + MAX_NAME_BYTES);
            if !self.spend(len) || !self.has_time() {
                return false;
            }
            let offset = names.offset.saturating_add(start.min(names.len));
            if read(file, FileRange { offset, len }, &mut bytes).is_none() {
                return false;
            }
            let (here, behind) =
                rest.split_at(rest.partition_point(|symbol| u64::from(symbol.name_at) - start < CHUNK_BYTES));
            for symbol in here {
                let names = bytes.get((symbol.name_at - first.name_at) as usize..).unwrap_or_default();
                take(&ElfSymbol { names, ..*symbol });
            }
            rest = behind;
        }
        symbols.clear();
        true
    }
}

/// Calls `take` for all entries of a table, without their names. False when the file cannot be read.
fn each_entry(elf: &ElfFile, file: &File, entries: FileRange, mut take: impl FnMut(&ElfSymbol<'static>)) -> bool {
    let size = elf.symbol_bytes();
    let (mut bytes, mut index) = (Vec::new(), 0);
    for chunk in entries.chunks(CHUNK_BYTES / size * size) {
        if read(file, chunk, &mut bytes).is_none() {
            return false;
        }
        for entry in bytes.chunks_exact(size as usize) {
            take(&elf.symbol(entry, &[], index));
            index += 1;
        }
    }
    true
}

/// Offsets in a string table at which `wanted` stands before a zero or a version, ascending; also at the end of other
/// names. None when the table cannot be read, or there are too many.
fn name_offsets(file: &File, names: FileRange, wanted: &[u8]) -> Option<Vec<u32>> {
    let mut offsets = Vec::new();
    let Some(first) = wanted.first().filter(|_| !wanted.contains(&b'@')) else { return Some(offsets) };
    let mut bytes = Vec::new();
    for chunk in names.chunks(CHUNK_BYTES) {
        // A name that starts in the chunk may end behind it.
        let len = chunk.len.saturating_add(wanted.len() as u64).min(names.end() - chunk.offset);
        read(file, FileRange { len, ..chunk }, &mut bytes)?;
        let mut at = 0;
        while let Some(next) = memchr(*first, bytes.get(at..chunk.len as usize)?) {
            at += next;
            if matches!(bytes[at..].strip_prefix(wanted), Some([0 | b'@', ..])) {
                offsets.push(u32::try_from(chunk.offset - names.offset + at as u64).ok()?);
            }
            at += 1;
        }
        if offsets.len() > MAX_OFFSETS {
            return None;
        }
    }
    Some(offsets)
}

fn read(file: &File, range: FileRange, bytes: &mut Vec<u8>) -> Option<()> {
    bytes.resize(usize::try_from(range.len).ok()?, 0);
    file.read_exact_at(bytes, range.offset).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::symbol::elf::file::in_memory;

    const SYMTAB: u32 = 2;
    const ENTRY_BYTES: usize = 24;

    /// A file with a `.symtab`; `entries` are the offsets of the names. The string table ends with a hole of `holes`
    /// bytes.
    fn file_of(names: &[u8], entries: &[u32], holes: u64) -> File {
        let table: Vec<u8> =
            entries.iter().flat_map(|&at| [&at.to_le_bytes()[..], &[2; ENTRY_BYTES - 4]].concat()).collect();
        let (table_at, names_at) = (64 + 3 * 64, (64 + 3 * 64 + table.len()) as u64);
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(table_at, 0);
        let mut put =
            |at: usize, number: u64, len: usize| bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
        put(0x28, 64, 8); // e_shoff
        put(0x3c, 3, 2); // e_shnum
        let sections = [(SYMTAB, table_at as u64, table.len() as u64, 2), (3, names_at, names.len() as u64 + holes, 0)];
        for (number, (kind, at, len, link)) in (1..).zip(sections) {
            let header = 64 + 64 * number;
            put(header + 4, u64::from(kind), 4);
            put(header + 24, at, 8);
            put(header + 32, len, 8);
            put(header + 40, link, 4);
        }
        bytes.extend(&table);
        bytes.extend(names);
        let file = in_memory(&mut bytes.as_slice()).unwrap();
        file.set_len(bytes.len() as u64 + holes).unwrap();
        file
    }

    fn indexes(search: &Search, file: &File, name: &str) -> (Vec<usize>, bool) {
        let (elf, mut all) = (ElfFile::read(file).unwrap(), Vec::new());
        let is_whole = search.each_named(&elf, file, false, name, |symbol| all.push(symbol.index));
        (all, is_whole)
    }

    #[test]
    fn a_name_is_found_wherever_its_text_is() {
        let names = b"\0xfree\0free@@V1\0freed\0free";
        let file = file_of(names, &[1, 2, 7, 16, 22, 0, 99], 0);
        let found = |name| indexes(&Search::within(1 << 20), &file, name).0;
        assert_eq!(
            found("free"),
            [1, 2],
            "at the end of another, with a version; not before another, nor without an end"
        );
        assert_eq!((found("xfree"), found("freed")), (vec![0], vec![3]));
        for name in ["", "fre", "free@@V1", "nothing"] {
            assert!(found(name).is_empty(), "{name}");
        }
        // A name across two chunks.
        for at in [CHUNK_BYTES - 3, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES - 5] {
            let mut names = vec![0; at as usize];
            names.extend(b"malloc\0");
            let file = file_of(&names, &[at as u32, at as u32 + 1, 0], 0);
            assert_eq!(indexes(&Search::within(1 << 30), &file, "malloc"), (vec![0], true), "{at}");
        }
    }

    #[test]
    fn more_than_may_be_read_is_left_out() {
        let small = file_of(b"\0main\0", &[1], 0);
        let large = file_of(b"\0main\0", &[1], 1 << 40);
        let search = Search::within(100);
        assert_eq!(indexes(&search, &large, "main"), (vec![], false));
        assert_eq!(search.left_bytes(), 100, "nothing was read");
        assert_eq!(indexes(&search, &small, "main"), (vec![0], true));
        assert_eq!(search.left_bytes(), 100 - 24 - 6);
        (0..4).for_each(|_| _ = indexes(&search, &small, "main"));
        assert_eq!(indexes(&search, &small, "main"), (vec![], false), "the limit is that of all files together");
        // Of a terabyte of names only those of the symbols are read, within the limit.
        let elf = ElfFile::read(&large).unwrap();
        let names_within = |bytes| {
            let mut all = Vec::new();
            let is_whole = Search::within(bytes).each_symbol(
                &elf,
                &large,
                false,
                |_| true,
                |symbol| all.extend(symbol.name_within(9, &mut usize::MAX.clone()).map(<[u8]>::to_vec)),
            );
            (all, is_whole)
        };
        assert_eq!(names_within(1 << 20), (vec![b"main".to_vec()], true));
        assert_eq!(names_within(1 << 10), (vec![], false));
        let repeated = file_of(&b"main\0".repeat(MAX_OFFSETS + 2), &[1], 0);
        assert!(!indexes(&Search::within(1 << 30), &repeated, "main").1);
    }

    #[test]
    fn names_far_apart_and_across_windows_are_read() {
        let offsets = [1, CHUNK_BYTES - 3, CHUNK_BYTES, CHUNK_BYTES + 5, 7 * CHUNK_BYTES + 3, 20 * CHUNK_BYTES - 9];
        let mut names = vec![0; 20 * CHUNK_BYTES as usize];
        for (number, offset) in offsets.iter().enumerate() {
            names[*offset as usize..][..2].copy_from_slice(&[b'a' + number as u8, b'0']);
        }
        let entries: Vec<u32> = offsets.iter().rev().map(|offset| *offset as u32).chain([u32::MAX]).collect();
        let file = file_of(&names, &entries, 0);
        let (elf, mut found) = (ElfFile::read(&file).unwrap(), Vec::new());
        let search = Search::within(10 * CHUNK_BYTES);
        let is_whole = search.each_symbol(
            &elf,
            &file,
            false,
            |symbol| symbol.index != 1,
            |symbol| {
                let name = symbol
                    .name_within(9, &mut usize::MAX.clone())
                    .map(|name| String::from_utf8(name.to_vec()).unwrap());
                found.push((symbol.index, name));
            },
        );
        assert!(is_whole && search.left_bytes() > 5 * CHUNK_BYTES, "gaps are not read: {}", search.left_bytes());
        let want =
            [(5, "a0"), (4, "b0"), (3, "c0"), (2, "d0"), (0, "f0")].map(|(index, name)| (index, Some(name.to_owned())));
        assert_eq!(found[..5], want);
        assert_eq!(found[5..], [(6, None)], "outside of the table");
    }

    #[test]
    fn lists_files_that_were_not_searched() {
        let search = Search::within(0);
        assert_eq!(search.left_out(), None);
        search.leave_out("/a");
        search.leave_out("/a");
        search.leave_out("/b\n");
        assert_eq!(search.left_out().unwrap(), "not searched for want of room: /a, /b\\x0a");
        ["/c", "/d", "/e"].into_iter().for_each(|path| search.leave_out(path));
        assert_eq!(search.left_out().unwrap(), "not searched for want of room: /a, /b\\x0a, /c and 2 more");
    }

    proptest! {
        /// Against the names themselves.
        #[test]
        fn finds_all_symbols_of_a_name(
            names in prop::collection::vec(prop::sample::select(b"ab@\0".to_vec()), 0..40),
            entries in prop::collection::vec(0_u32..45, 0..10),
            name in prop::sample::select(vec!["a", "ab", "ba", "aab", "", "a@"]),
        ) {
            let file = file_of(&names, &entries, 0);
            let mut want = Vec::new();
            let elf = ElfFile::read(&file).unwrap();
            let is_whole = Search::within(1 << 20).each_symbol(&elf, &file, false, |_| true, |symbol| {
                if !name.is_empty() && symbol.name_within(name.len(), &mut usize::MAX.clone()) == Some(name.as_bytes()) {
                    want.push(symbol.index);
                }
            });
            prop_assert!(is_whole);
            want.sort_unstable();
            prop_assert_eq!(indexes(&Search::within(1 << 20), &file, name), (want, true));
        }
    }
}
