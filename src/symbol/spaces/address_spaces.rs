//! Executable mappings of each process: from /proc when a process is first seen, then from MMAP2, FORK and exec
//! records.
//!
//! The main thread keeps only a number per address space ([`crate::symbol::SpaceKeys`]) and passes the changes on in
//! order. The output thread opens files and reads /proc (`proc_maps`): opening a file of a stuck process may block the
//! reader, too.

mod proc_maps;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::{Host, threads};
use crate::symbol::budget::{Budget, Share};
use crate::symbol::perf_map::file::{MapProcess, PerfMapFile};
use crate::symbol::spaces::files::{DELETED_MARK, FileReach, WantedFile, room_for_files};
use crate::symbol::spaces::mappings::Mapping;
use crate::symbol::spaces::maps_line::FileKey;
use crate::symbol::spaces::module::{Content, Module, UPROBES, is_anonymous};
use crate::symbol::spaces::shared_maps::{NO_ROOM_FOR_MAPPINGS, SharedMappings, UNKNOWN_USER};
use crate::symbol::spaces::space_keys::SpaceChange;
use crate::symbol::spaces::unwind_tables;
use crate::symbol::unnamed::{
    DELETED, EXITED, JIT_NO_MAP, NO_ADDRESS, NO_ROOM, NOT_ELF, NOT_MAPPED, OUTSIDE, RETURN_PROBE, UnnamedReason,
};
use crate::task::procfs;
use crate::unwind::{MappedCode, SpaceCode};

/// What is known of one process.
#[derive(Clone, Debug, Default)]
struct AddressSpace {
    maps: SharedMappings,
    parent: Option<i32>,
    /// The user (uid), when last read.
    owner: Option<u32>,
    /// When the process exited, in the clock of records.
    exited_at: Option<u64>,
    /// The perf map; created when the process is first seen to run code without a file.
    perf_map: Option<Arc<PerfMapFile>>,
    /// Modules whose names come from this perf map.
    jit_modules: Vec<Arc<Module>>,
    /// When the mappings may be read from /proc again.
    reread_at: Option<Instant>,
    /// Number of searches for copies of code that found none, and when the next search may be: a copy may have been
    /// half made.
    copies_missed: u8,
    find_copies_at: Option<Instant>,
}

/// The address spaces of all processes seen.
#[derive(Debug)]
pub struct AddressSpaces {
    host: Host,
    spaces: FxHashMap<i32, AddressSpace>,
    /// Modules with an open file.
    modules: FxHashMap<(Vec<u8>, FileKey), Arc<Module>>,
    /// Modules without one, by path.
    unnamed_modules: FxHashMap<String, Vec<Arc<Module>>>,
    /// Files that were opened and found not to be ELF.
    not_elf: FxHashSet<(Vec<u8>, FileKey)>,
    exited: VecDeque<(u64, i32)>,
    began: std::time::SystemTime,
    /// For lists of mappings, and modules.
    budget: Budget,
    /// Files that are kept open.
    pinned: Budget,
    /// A file had no room since the last [`AddressSpaces::forget_unused`], and the reason that its frames get.
    refused_file: bool,
    why_no_file: UnnamedReason,
    /// Stands for modules for which the budget has no room.
    nameless: Arc<Module>,
}

/// Most bytes of lists of mappings, of all processes together. One with 100 executable mappings takes 9 KiB.
const MAPPINGS_BYTES: u64 = 96 << 20;
/// Most files that are kept open, where the limit of descriptors allows more. Half of them may be of one user.
const MAX_PINNED: usize = 4096;
/// Reason for a file that had no room although the limit of descriptors allows more.
const MANY_FILES: UnnamedReason = "too many files are mapped by its user";
/// Most paths of modules that have no open file.
const MAX_UNNAMED: usize = 2048;
/// Descriptors per file: a file may take as many again for copies of its tables, and /proc must stay readable.
const DESCRIPTORS_PER_FILE: usize = 3;
/// Most files that are remembered as not ELF.
const MAX_NOT_ELF: usize = 4096;
/// How long the mappings of a process that exited are kept, ns.
const KEEP_EXITED_NS: u64 = 2_000_000_000;
/// Ancestors whose root directories are tried for the files of an exited process.
const MAX_ANCESTORS: usize = 8;
/// What the kernel maps itself, such as `[vsyscall]`.
const SPECIAL: UnnamedReason = "no file";
/// Most modules per process that its perf map may name; usual are one or two.
const MAX_JIT_MODULES: usize = 16;

impl AddressSpaces {
    pub fn new(host: Host) -> AddressSpaces {
        let room = room_for_files(&host) / DESCRIPTORS_PER_FILE;
        AddressSpaces {
            host,
            spaces: FxHashMap::default(),
            modules: FxHashMap::default(),
            unnamed_modules: FxHashMap::default(),
            not_elf: FxHashSet::default(),
            exited: VecDeque::new(),
            began: std::time::SystemTime::now(),
            budget: Budget::halved(MAPPINGS_BYTES),
            pinned: Budget::halved(room.min(MAX_PINNED) as u64),
            refused_file: false,
            why_no_file: if room < MAX_PINNED { NO_ROOM } else { MANY_FILES },
            nameless: Arc::new(Module::new("//mapped", Content::Unnamed { reason: NO_ROOM_FOR_MAPPINGS, map: None })),
        }
    }

    /// Makes the budget for lists of mappings a part of `whole`.
    #[must_use]
    pub fn within(self, whole: &Budget) -> AddressSpaces {
        AddressSpaces { budget: self.budget.within(whole), ..self }
    }

    /// The module behind `addr` in `pid`, and the offset in its file.
    ///
    /// # Errors
    /// `addr` is in no mapping, for the reason given.
    pub fn locate(&mut self, pid: i32, addr: u64) -> Result<(Arc<Module>, u64), UnnamedReason> {
        const LOWEST: u64 = 1 << 16; // vm.mmap_min_addr
        const HIGHEST: u64 = 1 << 57; // of user space on any of our architectures
        let mut found = self.find(pid, addr);
        if found.as_ref().is_some_and(|(module, _)| !module.has_file()) && self.find_copies(pid) {
            found = self.find(pid, addr);
        }
        if found.is_none() && !(LOWEST..HIGHEST).contains(&addr) {
            return Err(NO_ADDRESS);
        }
        if found.is_none() {
            self.reread_maps(pid);
            found = self.find(pid, addr);
        }
        let Some((module, offset)) = found else {
            return Err(match pid {
                0 => OUTSIDE,
                // With known mappings, an address outside of them is not mapped, whether or not the process has exited.
                _ => match self.space(pid).maps.why_missing() {
                    Some(reason) => reason,
                    None if self.space(pid).maps.get().is_empty() && self.has_exited(pid) => EXITED,
                    None => NOT_MAPPED,
                },
            });
        };
        match module.content {
            Content::Unnamed { reason, .. } if reason != RETURN_PROBE => {
                Ok((self.jit_module(pid, &module, reason), offset))
            }
            _ => Ok((module, offset)),
        }
    }

    /// The file that `pid` executes: the kernel maps it below its libraries. None: nothing is known of its mappings.
    pub fn program(&mut self, pid: i32) -> Option<Arc<str>> {
        self.space(pid).maps.get().modules().find(|module| module.has_file()).map(Module::path_from_here)
    }

    /// The executable mappings of `pid`, for the unwinder. The same `Arc` until they change.
    pub fn space_code(&mut self, pid: i32) -> Arc<SpaceCode> {
        self.space(pid).maps.get().code()
    }

    /// Loads the unwind tables of code from its file, if it can have any. Afterwards [`MappedCode::tables`] is set.
    pub fn load_tables(&self, code: &MappedCode, budget: &Budget) {
        if code.tables().is_some() {
            return;
        }
        let vdsos = self.unnamed_modules.get(VDSO).into_iter().flatten();
        let module = self.modules.values().chain(vdsos).find(|module| module.code.id() == code.id());
        match module {
            Some(module) => unwind_tables::load(module, budget),
            None => code.set_tables(None),
        }
    }

    fn find(&mut self, pid: i32, addr: u64) -> Option<(Arc<Module>, u64)> {
        self.space(pid).maps.get().find(addr).map(|(module, offset)| (module.clone(), offset))
    }

    pub fn apply(&mut self, change: SpaceChange) {
        match change {
            SpaceChange::Map { pid, start, end, offset, path, key } => {
                self.space(pid);
                let owner = self.spaces.get(&pid).and_then(|space| space.owner);
                let module = self.module(pid, owner, (start, end), &path, key);
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.exited_at = None; // its threads live on, or the FORK record of a new process was lost
                    let mapping = Mapping::new((start, end), offset, module);
                    space.maps.change(&self.budget, payer(space.owner), |maps| maps.insert(mapping));
                }
            }
            SpaceChange::Fork { parent, child } => {
                let space = self.space(parent);
                let (maps, owner) = (space.maps.clone(), space.owner);
                self.spaces
                    .insert(child, AddressSpace { maps, owner, parent: Some(parent), ..AddressSpace::default() });
            }
            SpaceChange::Exec { pid } => {
                let (parent, owner) = self.spaces.get(&pid).map_or((None, None), |space| (space.parent, space.owner));
                self.spaces.insert(pid, AddressSpace { parent, owner, ..AddressSpace::default() });
            }
            SpaceChange::Exit { pid, time } => {
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.exited_at = Some(time);
                    self.exited.push_back((time, pid));
                }
                self.expire(time);
            }
        }
    }

    /// Forgets processes that exited 2 s before `now`. A process whose threads live on is checked again after another 2
    /// s.
    fn expire(&mut self, now: u64) {
        let is_over = |(time, _): &mut (u64, i32)| time.saturating_add(KEEP_EXITED_NS) < now;
        while let Some((time, pid)) = self.exited.pop_front_if(is_over) {
            let Some(space) = self.spaces.get_mut(&pid).filter(|space| space.exited_at == Some(time)) else { continue };
            if threads(&self.host, pid).is_empty() {
                self.spaces.remove(&pid);
            } else {
                space.exited_at = Some(now);
                self.exited.push_back((now, pid));
            }
        }
    }

    /// Forgets all processes, because changes were dropped. Mappings are read again when an address is next looked up.
    pub fn forget_processes(&mut self) {
        self.spaces.clear();
        self.exited.clear();
    }

    fn has_exited(&self, pid: i32) -> bool {
        !self.host.proc.join(pid.to_string()).exists()
    }

    /// True when files had no room since the last [`AddressSpaces::forget_unused`].
    pub fn is_full(&self) -> bool {
        self.refused_file
    }

    /// Closes files of modules that nobody else refers to.
    pub fn forget_unused(&mut self) {
        self.refused_file = false;
        self.modules.retain(|_, module| Arc::strong_count(module) > 1);
    }

    /// Reads the mappings of a process and opens its perf map while it is alive.
    pub fn preload(&mut self, pid: i32) {
        // Most processes of a machine are threads of the kernel, which execute no file: this takes a tenth of reading theirs.
        if procfs::has_no_program(&self.host, pid) {
            return;
        }
        // The kernel's own, such as [vsyscall], is in every process.
        let makes_code = |module: &Module| match module.content {
            Content::Unnamed { reason, .. } => ![SPECIAL, RETURN_PROBE].contains(&reason),
            Content::File(_) | Content::Vdso { .. } => false,
        };
        if self.space(pid).maps.get().modules().any(makes_code) {
            let _ = self.perf_map(pid).find(); // the map stays open
        }
    }

    fn space(&mut self, pid: i32) -> &AddressSpace {
        if !self.spaces.contains_key(&pid) {
            let (maps, owner) = self.first_maps(pid);
            self.spaces.insert(pid, AddressSpace { maps, owner, ..AddressSpace::default() });
        }
        &self.spaces[&pid]
    }

    fn perf_map(&mut self, pid: i32) -> Arc<PerfMapFile> {
        let space = self.space(pid);
        if let Some(known) = &space.perf_map {
            return known.clone();
        }
        let (owner, has_exited) = (space.owner, space.exited_at.is_some());
        // The pid of an exited process may belong to another one by now.
        let started = if has_exited { None } else { procfs::start_ticks(&self.host, pid) };
        let ancestors = self.ancestors(pid);
        let maps = ancestors.iter().filter_map(|ancestor| self.spaces.get(ancestor)?.perf_map.as_ref());
        let inherited = maps.map(Arc::downgrade).collect();
        let process = MapProcess { pid, started, owner, ancestors };
        let map = Arc::new(PerfMapFile::new(&self.host, process, inherited, self.began));
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.perf_map = Some(map.clone());
        }
        map
    }

    /// The module of this process that is equal to `module` but has the perf map of the process.
    fn jit_module(&mut self, pid: i32, module: &Arc<Module>, reason: UnnamedReason) -> Arc<Module> {
        let map = self.perf_map(pid);
        let fresh = || {
            let content = Content::Unnamed { reason, map: Some(map) };
            Arc::new(Module::new(module.path.clone(), content))
        };
        let Some(space) = self.spaces.get_mut(&pid) else { return fresh() };
        let same = |known: &&Arc<Module>| {
            matches!(known.content, Content::Unnamed { reason: other, .. } if other == reason)
                && known.path == module.path
        };
        if let Some(known) = space.jit_modules.iter().find(same) {
            return known.clone();
        }
        if space.jit_modules.len() >= MAX_JIT_MODULES {
            space.jit_modules.clear(); // stacks keep the modules that they refer to
        }
        let module = fresh();
        space.jit_modules.push(module.clone());
        module
    }

    /// The module of a mapping. `owner`: uid of the process.
    fn module(
        &mut self,
        pid: i32,
        owner: Option<u32>,
        (start, end): (u64, u64),
        path: &[u8],
        key: FileKey,
    ) -> Arc<Module> {
        let is_deleted = path.ends_with(DELETED_MARK);
        let raw = path.strip_suffix(DELETED_MARK).unwrap_or(path);
        let path = String::from_utf8_lossy(raw);
        if path == VDSO {
            let same = |known: &Arc<Module>| matches!(known.content, Content::Vdso { len } if len == end.saturating_sub(start));
            let vdso = || Content::Vdso { len: end.saturating_sub(start) };
            return self.unnamed_module(owner, &path, same, vdso);
        }
        if is_anonymous(&path) {
            return self.unnamed(owner, &path, JIT_NO_MAP);
        }
        if path == UPROBES {
            return self.unnamed(owner, &path, RETURN_PROBE);
        }
        if !path.starts_with('/') {
            return self.unnamed(owner, &path, SPECIAL);
        }
        let path_and_key = (raw.to_vec(), key);
        if let Some(known) = self.modules.get(&path_and_key) {
            owner.into_iter().for_each(|owner| known.used_by(owner));
            return known.clone();
        }
        if self.not_elf.contains(&path_and_key) {
            return self.unnamed(owner, &path, NOT_ELF);
        }
        let Some(place) = self.pinned.take(1, &[payer(owner)]) else {
            self.refused_file = true;
            return self.unnamed(owner, &path, self.why_no_file);
        };
        let ancestors = self.ancestors(pid);
        let file_path = Path::new(OsStr::from_bytes(raw));
        let wanted = WantedFile { pid, start, end, path: file_path, key: &path_and_key.1, ancestors: &ancestors };
        let (content, maker, reach) = match wanted.open(&self.host) {
            // For a process that exited too soon, the owner of the file stands for the user who ran it.
            Ok((file, opened)) if opened.is_elf => (Content::File(file), opened.owner, opened.reach),
            Ok(_) if path.starts_with("/memfd:") => return self.unnamed(owner, &path, JIT_NO_MAP),
            Ok(_) => {
                self.remember_not_elf(path_and_key);
                return self.unnamed(owner, &path, NOT_ELF);
            }
            // The kernel says that the file is deleted; the paths that were tried may have failed for lesser reasons.
            Err(_) if is_deleted => return self.unnamed(owner, &path, DELETED),
            Err(reason) => return self.unnamed(owner, &path, reason),
        };
        let Some(paid) = self.pay_for_module(owner, &path, reach.as_ref()) else {
            return self.unnamed(owner, &path, NO_ROOM_FOR_MAPPINGS);
        };
        let module = Arc::new(Module::new(path, content).reached_by(reach).paid(vec![place, paid]));
        owner.or(maker).into_iter().for_each(|user| module.used_by(user));
        self.modules.insert(path_and_key, module.clone());
        module
    }

    /// Remembers a file that is not ELF: else each process that maps it, and each reading of /proc, would open it
    /// again.
    fn remember_not_elf(&mut self, path_and_key: (Vec<u8>, FileKey)) {
        if path_and_key.1 == FileKey::Unknown {
            return;
        }
        if self.not_elf.len() >= MAX_NOT_ELF {
            self.not_elf.clear();
        }
        self.not_elf.insert(path_and_key);
    }

    fn unnamed(&mut self, owner: Option<u32>, path: &str, reason: UnnamedReason) -> Arc<Module> {
        let same =
            |known: &Arc<Module>| matches!(known.content, Content::Unnamed { reason: other, .. } if other == reason);
        self.unnamed_module(owner, path, same, || Content::Unnamed { reason, map: None })
    }

    /// A module without a file, shared by all processes that map it.
    fn unnamed_module(
        &mut self,
        owner: Option<u32>,
        path: &str,
        same: impl Fn(&Arc<Module>) -> bool,
        content: impl FnOnce() -> Content,
    ) -> Arc<Module> {
        let known = self.unnamed_modules.get(path).into_iter().flatten();
        if let Some(known) = known.into_iter().find(|known| same(known)) {
            return known.clone();
        }
        let Some(paid) = self.pay_for_module(owner, path, None) else { return self.nameless.clone() };
        if self.unnamed_modules.len() >= MAX_UNNAMED {
            self.unnamed_modules.clear(); // stacks keep the modules that they refer to
        }
        let module = Arc::new(Module::new(path, content()).paid(vec![paid]));
        self.unnamed_modules.entry(path.to_owned()).or_default().push(module.clone());
        module
    }

    /// Takes memory for a module and its place in a table.
    fn pay_for_module(&self, owner: Option<u32>, path: &str, reach: Option<&FileReach>) -> Option<Share> {
        let reach_bytes = reach.map_or(0, |reach| size_of::<FileReach>() + 2 * reach.path.len());
        let bytes = size_of::<Module>() + size_of::<MappedCode>() + 3 * path.len() + reach_bytes;
        self.budget.take(bytes as u64, &[payer(owner)])
    }

    fn ancestors(&self, pid: i32) -> Vec<i32> {
        let parent = |pid: &i32| self.spaces.get(pid)?.parent;
        std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS).collect()
    }
}

/// The user (uid) who is charged for the mappings of a process.
fn payer(owner: Option<u32>) -> u32 {
    owner.unwrap_or(UNKNOWN_USER)
}

const VDSO: &str = "[vdso]";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::perf::Record;
    use crate::perf::record::{FileId, Mmap};
    use crate::symbol::SpaceKeys;

    fn spaces() -> AddressSpaces {
        AddressSpaces::new(Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() })
    }

    fn mmap(pid: i32, addr: u64, len: u64, offset: u64, path: &str) -> Record<'_> {
        let file = FileId::Inode { major: 0, minor: 0, inode: 7 };
        Record::Mmap(Mmap { pid, tid: pid, addr, len, offset, file, path: path.as_bytes() })
    }

    fn apply(spaces: &mut AddressSpaces, record: &Record<'_>) {
        spaces.apply(SpaceKeys::default().apply(record, 0).unwrap());
    }

    fn at(spaces: &mut AddressSpaces, pid: i32, addr: u64) -> Option<(String, u64)> {
        spaces.locate(pid, addr).ok().map(|(module, offset)| (module.name().to_owned(), offset))
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
    fn overlapping_lines_of_proc_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("5")).unwrap();
        let lines = "10000-90000 r-xp 0 0:0 1 /no/a\n30000-40000 r-xp 0 0:0 2 /no/b\n20000-22000 r-xp 0 0:0 3 /no/c\n";
        fs::write(dir.path().join("5/maps"), lines).unwrap();
        let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        let cases = [(0x1ffff, "a"), (0x21fff, "c"), (0x22000, "a"), (0x30000, "b"), (0x40000, "a"), (0x8ffff, "a")];
        for (addr, name) in cases {
            assert_eq!(at(&mut spaces, 5, addr).map(|found| found.0).as_deref(), Some(name), "{addr:#x}");
        }
        apply(&mut spaces, &mmap(5, 0x21000, 0x10000, 0, "/no/d"));
        for (addr, name) in [(0x20fff, "c"), (0x21000, "d"), (0x30fff, "d"), (0x31000, "b"), (0x50000, "a")] {
            assert_eq!(at(&mut spaces, 5, addr).map(|found| found.0).as_deref(), Some(name), "{addr:#x}");
        }
    }

    /// A directory like /proc with processes 5 and 6 of users 7 and 8, which have files of their own mapped, one after the other
    /// from 64 KiB on.
    fn two_users(files: u64) -> (tempfile::TempDir, AddressSpaces) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, user) in [(5, 7), (6, 8)] {
            let own = dir.path().join(pid.to_string());
            fs::create_dir(&own).unwrap();
            let mut lines = String::new();
            for number in 1..=files {
                let path = own.join(format!("file{number}"));
                fs::write(&path, b"\x7fELF\x02\x01").unwrap();
                let meta = fs::metadata(&path).unwrap();
                let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
                let (inode, path) = (meta.ino(), path.display());
                lines += &format!("{number:x}0000-{number:x}1000 r-xp 0 {major:x}:{minor:x} {inode} {path}\n");
            }
            fs::write(own.join("maps"), lines).unwrap();
            let status = format!("State:\tS\nUid:\t{user}\t{user}\nVmSize:\t1 kB\nThreads:\t1\n");
            fs::write(own.join("status"), status).unwrap();
        }
        let spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        (dir, spaces)
    }

    #[test]
    fn files_of_one_user_leave_room_for_those_of_others() {
        let (_dir, mut spaces) = two_users(16);
        (spaces.pinned, spaces.why_no_file) = (Budget::halved(12), MANY_FILES);
        let found = |spaces: &mut AddressSpaces, pid| {
            let modules: Vec<Arc<Module>> =
                (1..=16).map(|number| spaces.locate(pid, number << 16).unwrap().0).collect();
            let is_open = |module: &&Arc<Module>| matches!(module.content, Content::File(_));
            let is_refused = |module: &&Arc<Module>| matches!(module.content, Content::Unnamed { reason, .. } if reason == MANY_FILES);
            (modules.iter().filter(is_open).count(), modules.iter().filter(is_refused).count())
        };
        assert_eq!(found(&mut spaces, 5), (6, 10));
        assert!(spaces.is_full());
        assert_eq!(found(&mut spaces, 6), (3, 13), "half of what is left");
        spaces.forget_unused();
        assert!(!spaces.is_full(), "so far");
        assert_eq!(found(&mut spaces, 5), (6, 10));
        spaces.forget_processes();
        spaces.forget_unused();
        assert_eq!(found(&mut spaces, 6), (6, 10), "nobody else has any now");
    }

    #[test]
    fn mappings_of_one_user_leave_room_for_those_of_others() {
        let (_dir, mut spaces) = two_users(16);
        spaces.budget = Budget::halved(40 << 10);
        assert_eq!(at(&mut spaces, 5, 0x1_0000).map(|found| found.0).as_deref(), Some("file1"));
        // The process forks, and maps one page more after each fork.
        for child in 100..200 {
            spaces.apply(SpaceChange::Fork { parent: 5, child });
            apply(&mut spaces, &mmap(5, 0x100_0000 + child as u64 * 0x1000, 0x1000, 0, "/no/a"));
        }
        let missing = (100..200).filter_map(|child| spaces.locate(child, 0x1_0000).err());
        let missing: Vec<UnnamedReason> = missing.collect();
        assert!((50..100).contains(&missing.len()), "{}", missing.len());
        assert!(missing.iter().all(|reason| *reason == NO_ROOM_FOR_MAPPINGS));
        assert_eq!(at(&mut spaces, 6, 0x1_0000).map(|found| found.0).as_deref(), Some("file1"), "another user");
    }

    #[test]
    fn fork_copies_exec_clears_and_keys_change() {
        let (mut spaces, mut keys) = (spaces(), SpaceKeys::default());
        let task = |pid, tid| crate::perf::record::TaskRecord { pid, ppid: 5, tid, ptid: 5, time: 2 };
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
        keys.apply(&mmap(5, 0x1000, 0x1000, 0, "/no/b"), 4);
        assert_ne!(keys.key(5), before, "a new mapping may change what an address means");
    }

    #[test]
    fn a_process_ends_with_its_last_thread() {
        const S: u64 = 1_000_000_000;
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("5/task");
        fs::create_dir_all(task.join("6")).unwrap();
        let mut spaces = AddressSpaces::new(Host { proc: dir.path().into(), cpu: "/nonexistent".into() });
        apply(&mut spaces, &mmap(5, 0x1000, 0x1000, 0, "/no/a"));
        spaces.apply(SpaceChange::Exit { pid: 5, time: S });
        for time in [4 * S, 10 * S] {
            spaces.apply(SpaceChange::Exit { pid: 7, time });
            assert_eq!(at(&mut spaces, 5, 0x1000), Some(("a".to_owned(), 0)), "one of its threads lives");
            assert_eq!(spaces.exited.iter().filter(|(_, pid)| *pid == 5).count(), 1);
        }
        fs::remove_dir_all(task).unwrap();
        spaces.apply(SpaceChange::Exit { pid: 7, time: 11 * S });
        assert!(spaces.spaces.contains_key(&5), "it is checked again later");
        spaces.apply(SpaceChange::Exit { pid: 7, time: 13 * S });
        assert!(!spaces.spaces.contains_key(&5));
    }

    #[test]
    fn an_address_in_no_mapping_has_exited_only_if_none_was_seen() {
        let mut spaces = spaces();
        apply(&mut spaces, &mmap(5, 0x10000, 0x1000, 0, "/no/a"));
        let why = [5, 6].map(|pid| spaces.locate(pid, 0x20000).err());
        assert_eq!(why, [Some(NOT_MAPPED), Some(EXITED)], "neither of them is in /proc");
    }

    #[test]
    fn a_mapping_after_an_exit_belongs_to_another_process() {
        let (mut spaces, mut keys) = (spaces(), SpaceKeys::default());
        let exit = |pid| Record::Exit(crate::perf::record::TaskRecord { pid, ppid: 1, tid: pid, ptid: 1, time: 0 });
        let map = |addr| mmap(5, addr, 0x1000, 0, "/no/a");
        const S: u64 = 1_000_000_000;
        let records = [
            (0, map(0x10000)),
            (1, exit(5)),
            (4, map(0x20000)),
            (5, exit(6)), // processes that exited 2 s ago are forgotten
            (6, map(0x20000)),
            (7, exit(5)),
            (8, exit(6)),
            (9, map(0x30000)),
        ];
        for (time, record) in records {
            keys.expire(time * S);
            keys.apply(&record, time * S).into_iter().for_each(|change| spaces.apply(change));
        }
        assert_eq!(at(&mut spaces, 5, 0x20000), Some(("a".to_owned(), 0)), "its record came only once");
        spaces.apply(SpaceChange::Exit { pid: 5, time: 10 * S });
        spaces.apply(SpaceChange::Exit { pid: 6, time: 13 * S });
        assert!(!spaces.spaces.contains_key(&5), "it is forgotten in the end");
    }
}
