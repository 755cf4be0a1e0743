//! What every process has mapped executable: from /proc at first sight, from MMAP2, FORK and exec records after.
//!
//! The reading side only keeps a [`SpaceKeys`] number per address space and passes the changes on in order. The files and
//! /proc are for the output thread's [`Spaces`]: opening a file of a process that is stuck may get us stuck too.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::perf::Record;
use crate::perf::record::{FileId, Mmap};
use crate::perf::target::{Host, threads};

/// A mapped file, or something that has no file (`[vdso]`, `//anon`).
#[derive(Debug)]
pub struct Module {
    /// As the process names it.
    pub path: Arc<str>,
    /// Opened when first mapped, so that it can still be read after it was replaced or its process has gone.
    pub file: Option<File>,
}

impl Module {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    /// Of `start`, in the file.
    offset: u64,
    module: Arc<Module>,
}

/// A change of an address space, on its way to the output thread.
#[derive(Clone, Debug)]
pub enum SpaceChange {
    Map { pid: i32, start: u64, end: u64, offset: u64, path: Box<[u8]>, inode: u64, build_id: Box<[u8]> },
    Fork { parent: i32, child: i32 },
    Exec { pid: i32 },
    Exit { pid: i32, time: u64 },
}

/// A number per address space. It changes with every new mapping: equal addresses under different numbers may mean
/// different code.
#[derive(Debug, Default)]
pub struct SpaceKeys {
    keys: FxHashMap<i32, u32>,
    last: u32,
    exited: VecDeque<(u64, i32)>,
}

impl SpaceKeys {
    pub fn key(&mut self, pid: i32) -> u32 {
        match self.keys.get(&pid) {
            Some(key) => *key,
            None => self.renew(pid),
        }
    }

    fn renew(&mut self, pid: i32) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.keys.insert(pid, self.last);
        self.last
    }

    /// What the record means for the output thread.
    pub fn apply(&mut self, record: &Record<'_>, time: u64) -> Option<SpaceChange> {
        match record {
            Record::Mmap(mmap) => {
                self.renew(mmap.pid);
                Some(SpaceChange::of(mmap))
            }
            Record::Fork(fork) if fork.pid != fork.ppid => {
                let key = self.key(fork.ppid);
                self.keys.insert(fork.pid, key);
                Some(SpaceChange::Fork { parent: fork.ppid, child: fork.pid })
            }
            Record::Comm { pid, exec: true, .. } => {
                self.renew(*pid);
                Some(SpaceChange::Exec { pid: *pid })
            }
            Record::Exit(exit) if exit.pid == exit.tid => {
                self.exited.push_back((time, exit.pid));
                Some(SpaceChange::Exit { pid: exit.pid, time })
            }
            _ => None,
        }
    }

    /// Forgets processes that exited a while before `now`. One that is seen again gets a new number.
    pub fn expire(&mut self, now: u64) {
        while let Some((_, pid)) = self.exited.pop_front_if(|(time, _)| time.saturating_add(KEEP_EXITED_NS) < now) {
            self.keys.remove(&pid);
        }
    }
}

impl SpaceChange {
    fn of(mmap: &Mmap<'_>) -> SpaceChange {
        let (inode, build_id) = match mmap.file {
            FileId::Inode { inode, .. } => (inode, &[][..]),
            FileId::BuildId(id) => (0, id),
            FileId::Unknown => (0, &[][..]),
        };
        SpaceChange::Map {
            pid: mmap.pid,
            start: mmap.addr,
            end: mmap.addr.saturating_add(mmap.len),
            offset: mmap.offset,
            path: mmap.path.into(),
            inode,
            build_id: build_id.into(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Space {
    maps: Arc<Vec<Mapping>>,
    gone: bool,
}

/// The address spaces of all processes seen.
#[derive(Debug, Default)]
pub struct Spaces {
    host: Host,
    spaces: FxHashMap<i32, Space>,
    modules: FxHashMap<ModuleKey, Arc<Module>>,
    open_files: usize,
    exited: VecDeque<(u64, i32)>,
}

/// Files of the same path differ when their inode or build id does.
type ModuleKey = (String, u64, Box<[u8]>);

/// Descriptors spent on pinned files at most.
const MOST_PINNED: usize = 512;
/// Mappings kept of one process at most: the list is not ours.
const MOST_MAPPINGS: usize = 16_384;
/// How long the mappings of a process that exited are kept, ns.
const KEEP_EXITED_NS: u64 = 2_000_000_000;

impl Spaces {
    pub fn new(host: Host) -> Spaces {
        Spaces { host, ..Spaces::default() }
    }

    /// The file behind `addr` in `pid`, and the offset in it.
    pub fn locate(&mut self, pid: i32, addr: u64) -> Option<(Arc<Module>, u64)> {
        let maps = &self.space(pid).maps;
        let at = maps.partition_point(|mapping| mapping.start <= addr).checked_sub(1)?;
        let mapping = maps.get(at).filter(|mapping| addr < mapping.end)?;
        Some((mapping.module.clone(), (addr - mapping.start).wrapping_add(mapping.offset)))
    }

    pub fn apply(&mut self, change: SpaceChange) {
        match change {
            SpaceChange::Map { pid, start, end, offset, path, inode, build_id } => {
                let path = String::from_utf8_lossy(&path).into_owned();
                let module = self.module(pid, start, end, (path, inode, build_id));
                self.space(pid);
                if let Some(space) = self.spaces.get_mut(&pid) {
                    insert(Arc::make_mut(&mut space.maps), Mapping { start, end, offset, module });
                }
            }
            SpaceChange::Fork { parent, child } => {
                let maps = self.space(parent).maps.clone();
                self.spaces.insert(child, Space { maps, gone: false });
            }
            SpaceChange::Exec { pid } => {
                self.spaces.insert(pid, Space::default());
            }
            SpaceChange::Exit { pid, time } => {
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.gone = true;
                    self.exited.push_back((time, pid));
                }
                self.expire(time);
            }
        }
    }

    /// Forgets processes that exited a while before `now`, unless threads of theirs live on.
    fn expire(&mut self, now: u64) {
        while let Some((_, pid)) = self.exited.pop_front_if(|(time, _)| time.saturating_add(KEEP_EXITED_NS) < now) {
            if self.spaces.get(&pid).is_some_and(|space| space.gone) && threads(&self.host, pid).is_empty() {
                self.spaces.remove(&pid);
            }
        }
    }

    fn space(&mut self, pid: i32) -> &Space {
        if !self.spaces.contains_key(&pid) {
            let maps = Arc::new(self.read_maps(pid));
            self.spaces.insert(pid, Space { maps, gone: false });
        }
        &self.spaces[&pid]
    }

    fn read_maps(&mut self, pid: i32) -> Vec<Mapping> {
        let text = fs::read(self.host.proc.join(pid.to_string()).join("maps")).unwrap_or_default();
        let mut maps = Vec::new();
        for line in text.split(|&byte| byte == b'\n').filter_map(parse_maps_line).take(MOST_MAPPINGS) {
            let path = String::from_utf8_lossy(line.path).into_owned();
            let module = self.module(pid, line.start, line.end, (path, line.inode, Box::default()));
            maps.push(Mapping { start: line.start, end: line.end, offset: line.offset, module });
        }
        maps.sort_by_key(|mapping| mapping.start);
        maps
    }

    fn module(&mut self, pid: i32, start: u64, end: u64, key: ModuleKey) -> Arc<Module> {
        if let Some(module) = self.modules.get(&key) {
            return module.clone();
        }
        let file =
            if key.0.starts_with('/') && !key.0.starts_with("//") { self.pin(pid, start, end, &key.0) } else { None };
        let module = Arc::new(Module { path: key.0.as_str().into(), file });
        self.modules.insert(key, module.clone());
        module
    }

    /// Opens the file of a mapping while it can be reached: by the mapping itself, else by its path as its process
    /// sees it.
    fn pin(&mut self, pid: i32, start: u64, end: u64, path: &str) -> Option<File> {
        if self.open_files >= MOST_PINNED {
            return None;
        }
        let process = self.host.proc.join(pid.to_string());
        let by_mapping = process.join(format!("map_files/{start:x}-{end:x}"));
        let in_root = process.join("root").join(path.trim_start_matches('/'));
        let file = [by_mapping, in_root, PathBuf::from(path)].iter().find_map(|path| open_regular(path))?;
        self.open_files += 1;
        Some(file)
    }
}

fn open_regular(path: &Path) -> Option<File> {
    // A path that has become a fifo or a device must not block us or do anything.
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    if is_file { File::open(path).ok() } else { None }
}

/// Adds a mapping; what it overlaps is cut.
fn insert(maps: &mut Vec<Mapping>, new: Mapping) {
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
}

struct MapsLine<'a> {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: &'a [u8],
}

/// One executable line of /proc/PID/maps.
fn parse_maps_line(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let hex = |bytes: &[u8]| u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok();
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let permissions = words.next()?;
    let offset = hex(words.next()?)?;
    words.next()?; // device
    let inode = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim_ascii();
    let path = if path.is_empty() { b"//anon" } else { path };
    (permissions.get(2) == Some(&b'x') && start < end).then_some(MapsLine { start, end, offset, inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces() -> Spaces {
        Spaces::new(Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() })
    }

    fn mmap(pid: i32, addr: u64, len: u64, offset: u64, path: &str) -> Record<'_> {
        let file = FileId::Inode { major: 0, minor: 0, inode: 7 };
        Record::Mmap(Mmap { pid, tid: pid, addr, len, offset, file, path: path.as_bytes() })
    }

    fn apply(spaces: &mut Spaces, record: &Record<'_>) {
        spaces.apply(SpaceKeys::default().apply(record, 0).unwrap());
    }

    fn at(spaces: &mut Spaces, pid: i32, addr: u64) -> Option<(String, u64)> {
        spaces.locate(pid, addr).map(|(module, offset)| (module.name().to_owned(), offset))
    }

    #[test]
    fn finds_the_file_and_offset() {
        let mut spaces = spaces();
        apply(&mut spaces, &mmap(5, 0x1000, 0x1000, 0x200, "/no/a"));
        apply(&mut spaces, &mmap(5, 0x4000, 0x1000, 0, "/no/b"));
        let cases = [
            (0xfff, None),
            (0x1000, Some(("a", 0x200))),
            (0x1fff, Some(("a", 0x11ff))),
            (0x2000, None),
            (0x4001, Some(("b", 1))),
        ];
        for (addr, want) in cases {
            assert_eq!(at(&mut spaces, 5, addr), want.map(|(name, offset)| (name.to_owned(), offset)), "{addr:#x}");
        }
    }

    #[test]
    fn a_later_mapping_cuts_an_earlier_one() {
        let mut spaces = spaces();
        apply(&mut spaces, &mmap(5, 0x1000, 0x3000, 0, "/no/a"));
        apply(&mut spaces, &mmap(5, 0x2000, 0x1000, 0, "/no/b"));
        for (addr, name, offset) in [(0x1fff, "a", 0xfff), (0x2000, "b", 0), (0x3000, "a", 0x2000)] {
            assert_eq!(at(&mut spaces, 5, addr), Some((name.to_owned(), offset)), "{addr:#x}");
        }
    }

    #[test]
    fn fork_copies_exec_clears_and_keys_change() {
        let (mut spaces, mut keys) = (spaces(), SpaceKeys::default());
        let task = |pid, tid| crate::perf::record::Task { pid, ppid: 5, tid, ptid: 5, time: 2 };
        let records = [mmap(5, 0x1000, 0x1000, 0, "/no/a"), Record::Fork(task(6, 6))];
        for record in &records {
            spaces.apply(keys.apply(record, 1).unwrap());
        }
        assert_eq!(keys.key(5), keys.key(6));
        assert_eq!(at(&mut spaces, 6, 0x1000), Some(("a".to_owned(), 0)));
        let exec = Record::Comm { pid: 6, tid: 6, comm: b"x", exec: true };
        spaces.apply(keys.apply(&exec, 3).unwrap());
        assert_ne!(keys.key(5), keys.key(6));
        assert_eq!(at(&mut spaces, 6, 0x1000), None);
        let before = keys.key(5);
        keys.apply(&records[0], 4);
        assert_ne!(keys.key(5), before, "a new mapping may change what an address means");
    }

    #[test]
    fn parses_maps_lines() {
        let line = parse_maps_line(b"7f00-7f10 r-xp 00001000 fe:00 42                 /usr/lib/a b.so").unwrap();
        assert_eq!(
            (line.start, line.end, line.offset, line.inode, line.path),
            (0x7f00, 0x7f10, 0x1000, 42, &b"/usr/lib/a b.so"[..])
        );
        for bad in ["", "7f00-7f10 rw-p 0 0 0 /a", "zz-1 r-xp 0 0 0 /a", "10-0 r-xp 0 0:0 0 /a", "1-2 r-xp"] {
            assert!(parse_maps_line(bad.as_bytes()).is_none(), "{bad}");
        }
        assert_eq!(parse_maps_line(b"1-2 r-xp 0 00:00 0").unwrap().path, b"//anon");
    }
}
