//! The executable mappings of one process, and the parser of /proc/PID/maps.

use std::fs::File;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::symbol::budget::Share;
use crate::symbol::files::{FileKey, UnnamedReason};
use crate::symbol::perf_map_file::{JIT_NO_MAP, PerfMapFile};
use crate::unwind::{CodeKind, CodeRange, MappedCode, SpaceCode};

/// Most mappings kept per process: the process decides how many it makes.
pub(super) const MAX_MAPPINGS: usize = 16_384;

/// A mapped file, or something that has no file (`[vdso]`, `//anon`).
#[derive(Debug)]
pub struct Module {
    /// The path, as the process sees it.
    pub path: Arc<str>,
    pub content: Content,
    /// What the unwinder knows of its code.
    pub code: Arc<MappedCode>,
    /// Users (uids) whose processes have mapped it.
    users: Mutex<Vec<u32>>,
    /// Given back when nobody has the module any more.
    _paid: Vec<Share>,
}

/// Where the names of a module come from.
#[derive(Debug)]
pub enum Content {
    /// Opened when first mapped: it stays readable after it was replaced or its process exited.
    File(File),
    /// The vdso, which the kernel maps into every process. Its length differs among architectures.
    Vdso { len: u64 },
    /// No symbols, for this reason; a perf map of the process may name code that it generated.
    Unnamed { reason: UnnamedReason, map: Option<Arc<PerfMapFile>> },
}

impl Module {
    pub fn new(path: impl Into<Arc<str>>, content: Content) -> Module {
        let path = path.into();
        let kind = match content {
            Content::File(_) => CodeKind::File,
            Content::Vdso { .. } => CodeKind::Vdso,
            Content::Unnamed { .. } if *path == *"[uprobes]" => CodeKind::Trampoline,
            Content::Unnamed { reason, .. } if reason == JIT_NO_MAP => CodeKind::Anonymous,
            Content::Unnamed { .. } => CodeKind::NoTables,
        };
        Module { path, content, code: Arc::new(MappedCode::new(kind)), users: Mutex::default(), _paid: Vec::new() }
    }

    /// With what was paid for it.
    #[must_use]
    pub fn paid(self, shares: Vec<Share>) -> Module {
        Module { _paid: shares, ..self }
    }

    /// Notes that a process of this user has mapped it.
    pub fn used_by(&self, user: u32) {
        const LIMIT: usize = 16; // one of them is charged for its symbols
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.contains(&user) && users.len() < LIMIT {
            users.push(user);
        }
    }

    pub fn users(&self) -> Vec<u32> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    start: u64,
    end: u64,
    /// Offset of `start` in the file.
    offset: u64,
    module: Arc<Module>,
    /// How many were seen before, in its process.
    number: u32,
}

impl Mapping {
    pub fn new((start, end): (u64, u64), offset: u64, module: Arc<Module>) -> Mapping {
        // Memory without a file has a meaningless offset.
        let is_file = module.path.starts_with('/') && !is_anonymous(&module.path);
        Mapping { start, end, offset: if is_file { offset } else { 0 }, module, number: 0 }
    }
}

/// The mappings of a process, sorted and without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    all: Vec<Mapping>,
    /// How many were seen so far.
    seen: u32,
    /// Some were left out.
    is_partial: bool,
    /// Made when it is asked for.
    code: OnceLock<Arc<SpaceCode>>,
}

impl Mappings {
    /// Sorts the mappings by start. Where two overlap, the one with the higher start cuts the other.
    pub fn of(mut seen: Vec<Mapping>) -> Mappings {
        seen.sort_by_key(|mapping| mapping.start);
        let mut all = Mappings { all: Vec::with_capacity(seen.len()), ..Mappings::default() };
        seen.into_iter().for_each(|mapping| all.insert(mapping));
        all
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// There were more than are kept.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub fn set_partial(&mut self) {
        self.is_partial = true;
    }

    /// The memory that they take with [`Mappings::code`].
    pub fn bytes(&self) -> usize {
        size_of::<Mappings>() + self.all.capacity() * size_of::<Mapping>() + self.all.len() * size_of::<CodeRange>()
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.all.iter().map(|mapping| &*mapping.module)
    }

    /// The module mapped at an address, and the offset of the address in its file.
    pub fn find(&self, addr: u64) -> Option<(&Arc<Module>, u64)> {
        let at = self.all.partition_point(|mapping| mapping.start <= addr).checked_sub(1)?;
        let mapping = self.all.get(at).filter(|mapping| addr < mapping.end)?;
        Some((&mapping.module, (addr - mapping.start).wrapping_add(mapping.offset)))
    }

    /// The mappings as the unwinder needs them.
    pub fn code(&self) -> Arc<SpaceCode> {
        let range = |mapping: &Mapping| CodeRange {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            code: mapping.module.code.clone(),
        };
        self.code.get_or_init(|| Arc::new(SpaceCode::new(self.all.iter().map(range).collect()))).clone()
    }

    /// Adds a mapping, and cuts those that it overlaps. Where there are too many now, a quarter is left out: no record tells
    /// what was unmapped.
    pub fn insert(&mut self, new: Mapping) {
        let maps = &mut self.all;
        if new.start >= new.end {
            return;
        }
        let new = Mapping { number: self.seen, ..new };
        self.seen = self.seen.wrapping_add(1);
        let first = maps.partition_point(|old| old.end <= new.start);
        let last = maps.partition_point(|old| old.start < new.end);
        let mut pieces = Vec::with_capacity(3);
        for old in &maps[first..last] {
            if old.start < new.start {
                pieces.push(Mapping { end: new.start, ..old.clone() });
            }
            if old.end > new.end {
                pieces.push(Mapping {
                    start: new.end,
                    offset: old.offset.wrapping_add(new.end - old.start),
                    ..old.clone()
                });
            }
        }
        pieces.push(new);
        pieces.sort_by_key(|mapping| mapping.start);
        maps.splice(first..last, pieces);
        if maps.len() > MAX_MAPPINGS {
            maps.sort_unstable_by_key(|mapping| mapping.number);
            leave_last_of_each(maps, MAX_MAPPINGS / 4 * 3, |mapping| Arc::as_ptr(&mapping.module));
            maps.sort_unstable_by_key(|mapping| mapping.start);
            self.is_partial = true;
        }
        self.code.take();
    }

    /// Adds those of `others` that overlap no mapping.
    pub fn fill(&mut self, others: Mappings) {
        self.is_partial |= others.is_partial;
        for mapping in others.all {
            let first = self.all.partition_point(|old| old.end <= mapping.start);
            if self.all.get(first).is_none_or(|old| old.start >= mapping.end) {
                self.insert(mapping);
            }
        }
    }
}

/// Leaves at most `most`: of each kind the last ones, and equally many of those kinds that are not left whole. A program maps the
/// file with its own code once, and those with code that it makes any number of times.
pub(super) fn leave_last_of_each<T, K: Eq + Hash>(all: &mut Vec<T>, most: usize, kind: impl Fn(&T) -> K) {
    if all.len() <= most {
        return;
    }
    let mut counts: FxHashMap<K, usize> = FxHashMap::default();
    let mut ranked = Vec::with_capacity(all.len());
    for one in all.drain(..).rev() {
        let behind = counts.entry(kind(&one)).or_default();
        ranked.push((*behind, one));
        *behind += 1;
    }
    ranked.sort_by_key(|(behind, _)| *behind); // stable
    ranked.truncate(most);
    all.extend(ranked.into_iter().map(|(_, one)| one));
}

/// True for the names that the kernel and prctl(PR_SET_VMA_ANON_NAME) give to memory without a file.
pub(super) fn is_anonymous(path: &str) -> bool {
    const PREFIXES: [&str; 8] =
        ["//anon", "[anon", "[heap]", "[stack", "/dev/zero", "/SYSV", "/anon_hugepage", "anon_inode:"];
    PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// One executable line of /proc/PID/maps.
pub struct MapsLine<'a> {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub key: FileKey,
    /// As in the line, see [`path_of_line`](crate::symbol::files::path_of_line).
    pub path: &'a [u8],
}

/// Parses a line of /proc/PID/maps. None for a malformed one, or a mapping that is not executable.
pub(super) fn parse_maps_line(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let hex = |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok();
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let permissions = words.next()?;
    let offset = hex(words.next()?)?;
    let device = words.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let (major, minor) = (hex(&device[..colon])? as u32, hex(&device[colon + 1..])? as u32);
    let inode = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let key = FileKey::Inode { major, minor, inode };
    let path = words.next().unwrap_or_default().trim_ascii_start();
    let path = if path.is_empty() { b"//anon" } else { path };
    (permissions.get(2) == Some(&b'x') && start < end).then_some(MapsLine { start, end, offset, key, path })
}

/// The offset in its file of an executable address, by the content of /proc/PID/maps.
pub fn offset_in_file(maps: &[u8], address: u64) -> Option<u64> {
    let mut lines = maps.split(|&byte| byte == b'\n').filter_map(parse_maps_line);
    let line = lines.find(|line| (line.start..line.end).contains(&address))?;
    let is_file = line.path.starts_with(b"/") && !line.path.starts_with(b"//");
    is_file.then(|| address - line.start + line.offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_a_byte_of_a_file() {
        let maps =
            b"5000-6000 r--p 0 fe:00 42 /bin/a\n6000-8000 r-xp 00001000 fe:00 42 /bin/a\n9000-a000 r-xp 0 0:0 0\n";
        let cases = [(0x5000, None), (0x6000, Some(0x1000)), (0x7fff, Some(0x2fff)), (0x8000, None), (0x9000, None)];
        for (address, want) in cases {
            assert_eq!(offset_in_file(maps, address), want, "{address:#x}");
        }
    }

    fn module(path: &str) -> Arc<Module> {
        Arc::new(Module::new(path, Content::Unnamed { reason: "", map: None }))
    }

    fn page(number: u64, module: &Arc<Module>) -> Mapping {
        let start = 0x10_0000 + number * 0x2000;
        Mapping::new((start, start + 0x1000), 0, module.clone())
    }

    /// A program may map one page after the other, at ever new addresses and at old ones, and unmap them: that is not told.
    #[test]
    fn a_mapping_beyond_the_most_cuts_the_earlier_ones() {
        let [code, made, later] = ["/code", "/made", "/later"].map(module);
        let mut maps = Mappings::default();
        maps.insert(page(0, &code));
        (1..=3 * MAX_MAPPINGS as u64).for_each(|number| maps.insert(page(number, &made)));
        let name = |maps: &Mappings, number: u64| {
            maps.find(0x10_0000 + number * 0x2000).map(|(module, _)| module.path.to_string())
        };
        let last = 3 * MAX_MAPPINGS as u64;
        assert!(maps.all.len() <= MAX_MAPPINGS && maps.is_partial());
        assert!(maps.all.is_sorted_by(|one, next| one.end <= next.start));
        assert_eq!((name(&maps, 0).as_deref(), name(&maps, last).as_deref()), (Some("/code"), Some("/made")));
        assert_eq!(name(&maps, 1), None, "rather no name than a wrong one");
        for number in [0, 7, last, last + 1] {
            maps.insert(page(number, &later));
            assert_eq!(name(&maps, number).as_deref(), Some("/later"), "{number}");
        }
        assert!(maps.all.len() <= MAX_MAPPINGS);
    }

    #[test]
    fn those_of_many_are_left_out() {
        let left = |text: &str, most| {
            let mut all: Vec<(usize, char)> = text.chars().enumerate().collect();
            leave_last_of_each(&mut all, most, |(_, kind)| *kind);
            all.sort_unstable();
            all.into_iter().map(|(at, kind)| format!("{at}{kind}")).collect::<String>()
        };
        assert_eq!(left("abaac", 5), "0a1b2a3a4c");
        assert_eq!(left("abaac", 4), "1b2a3a4c");
        assert_eq!(left("abaac", 3), "1b3a4c");
        assert_eq!(left("aabbcc", 2), "3b5c", "the last ones of all");
        assert_eq!(left("aabb", 0), "");
    }

    #[test]
    fn parses_maps_lines() {
        let line = parse_maps_line(b"7f00-7f10 r-xp 00001000 fe:00 42                 /usr/lib/a b.so").unwrap();
        assert_eq!(
            (line.start, line.end, line.offset, line.key, line.path),
            (0x7f00, 0x7f10, 0x1000, FileKey::Inode { major: 0xfe, minor: 0, inode: 42 }, &b"/usr/lib/a b.so"[..])
        );
        for bad in ["", "7f00-7f10 rw-p 0 0 0 /a", "zz-1 r-xp 0 0 0 /a", "10-0 r-xp 0 0:0 0 /a", "1-2 r-xp"] {
            assert!(parse_maps_line(bad.as_bytes()).is_none(), "{bad}");
        }
        assert_eq!(parse_maps_line(b"1-2 r-xp 0 00:00 0").unwrap().path, b"//anon");
    }

    proptest! {
        /// Against a page table: the last mapping of a page has it.
        #[test]
        fn the_last_mapping_of_a_page_has_it(
            maps in prop::collection::vec((0_u64..24, 0_u64..9, 0_u64..1000), 0..40),
            fills in prop::collection::vec((0_u64..24, 1_u64..9), 0..6),
        ) {
            const PAGE: u64 = 0x1000;
            let (mut all, mut pages) = (Mappings::default(), [None; 40]);
            let files: Vec<Arc<Module>> = (0..48).map(|number| module(&format!("/{number}"))).collect();
            for (number, (start, len, offset)) in maps.into_iter().enumerate() {
                all.insert(Mapping::new((start * PAGE, (start + len) * PAGE), offset * PAGE, files[number].clone()));
                (0..len).for_each(|page| pages[(start + page) as usize] = Some((number, (offset + page) * PAGE)));
            }
            // What was read later adds what overlaps nothing.
            for (number, (start, len)) in (40..).zip(fills) {
                let file = &files[number];
                all.fill(Mappings::of(vec![Mapping::new((start * PAGE, (start + len) * PAGE), 0, file.clone())]));
                let new = start as usize..(start + len) as usize;
                if pages[new.clone()].iter().all(Option::is_none) {
                    new.for_each(|page| pages[page] = Some((number, (page as u64 - start) * PAGE)));
                }
            }
            for (page, want) in pages.into_iter().enumerate() {
                let found = all.find(page as u64 * PAGE + 5);
                let want = want.map(|(number, offset)| (&files[number], offset + 5));
                prop_assert_eq!(found.map(|(file, offset)| (&file.path, offset)), want.map(|(file, offset)| (&file.path, offset)));
            }
        }
    }
}
