//! The executable mappings of one process, and the parser of /proc/PID/maps.

use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::symbol::files::{FileKey, UnnamedReason};
use crate::symbol::perf_map_file::{JIT_NO_MAP, PerfMapFile};
use crate::unwind::{CodeKind, CodeRange, MappedCode, SpaceCode};

/// Most mappings kept per process: the process decides how many it makes.
pub(super) const MOST_MAPPINGS: usize = 16_384;

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
        Module { path, content, code: Arc::new(MappedCode::new(kind)), users: Mutex::default() }
    }

    /// Notes that a process of this user has mapped it.
    pub fn used_by(&self, user: u32) {
        const MOST: usize = 16; // one of them is charged for its symbols
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.contains(&user) && users.len() < MOST {
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
}

impl Mapping {
    pub fn new((start, end): (u64, u64), offset: u64, module: Arc<Module>) -> Mapping {
        // Memory without a file has a meaningless offset.
        let is_file = module.path.starts_with('/') && !is_anonymous(&module.path);
        Mapping { start, end, offset: if is_file { offset } else { 0 }, module }
    }
}

/// The mappings of a process, sorted and without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    all: Vec<Mapping>,
    /// Made when it is asked for.
    code: OnceLock<Arc<SpaceCode>>,
}

impl Mappings {
    /// Sorts the mappings by start. Where two overlap, the one with the higher start cuts the other.
    pub fn of(mut seen: Vec<Mapping>) -> Mappings {
        seen.sort_by_key(|mapping| mapping.start);
        let mut all = Mappings { all: Vec::with_capacity(seen.len()), code: OnceLock::new() };
        seen.into_iter().for_each(|mapping| all.insert(mapping));
        all
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
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

    /// Adds a mapping, and cuts those that it overlaps.
    pub fn insert(&mut self, new: Mapping) {
        let maps = &mut self.all;
        if new.start >= new.end || maps.len() >= MOST_MAPPINGS {
            return;
        }
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
        self.code.take();
    }

    /// Adds those of `others` that overlap no mapping.
    pub fn fill(&mut self, others: Mappings) {
        for mapping in others.all {
            let first = self.all.partition_point(|old| old.end <= mapping.start);
            if self.all.get(first).is_none_or(|old| old.start >= mapping.end) {
                self.insert(mapping);
            }
        }
    }
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
}
