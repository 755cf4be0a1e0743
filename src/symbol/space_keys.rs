//! Which stacks of a process may share a name: the reading side's part of address spaces.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::perf::Record;
use crate::perf::record::{FileId, Mmap, Task};
use crate::symbol::files::FileKey;

/// How long the number of a process that exited is kept, ns.
const KEEP_EXITED_NS: u64 = 2_000_000_000;

/// A change of an address space, on its way to the output thread.
#[derive(Clone, Debug)]
pub enum SpaceChange {
    Map { pid: i32, start: u64, end: u64, offset: u64, path: Box<[u8]>, key: FileKey },
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
    /// What records told of, by pid.
    told: FxHashMap<i32, KnownMappings>,
}

/// Mappings by start: their end, and what is mapped there.
type KnownMappings = BTreeMap<u64, (u64, u64)>;

/// Mappings remembered per process; one with more gets a new number more often than it must.
const MOST_TOLD: usize = 4096;

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

    /// Nothing of what was told counts any more: every process gets a new number, and its mappings are told of again.
    pub fn renew_all(&mut self) {
        self.keys.clear();
        self.told.clear();
    }

    /// What the record means for the output thread.
    pub fn apply(&mut self, record: &Record<'_>, time: u64) -> Option<SpaceChange> {
        match record {
            // Tasks of other pid namespaces have no number here: whose mapping it is nobody knows.
            Record::Mmap(Mmap { pid: ..=0, .. }) | Record::Comm { pid: ..=0, .. } => None,
            Record::Fork(Task { pid: ..=0, .. }) | Record::Exit(Task { pid: ..=0, .. }) => None,
            // A run-time compiler changes the rights of the same pages over and over.
            Record::Mmap(mmap) if self.knows(mmap) => None,
            Record::Mmap(mmap) => {
                self.renew(mmap.pid);
                Some(SpaceChange::of(mmap))
            }
            Record::Fork(fork) if fork.pid != fork.ppid => {
                let key = self.key(fork.ppid);
                self.keys.insert(fork.pid, key);
                self.told.remove(&fork.pid); // of another one that had this number
                Some(SpaceChange::Fork { parent: fork.ppid, child: fork.pid })
            }
            Record::Comm { pid, exec: true, .. } => {
                self.renew(*pid);
                self.told.remove(pid);
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
            self.told.remove(&pid);
        }
    }

    /// True for a mapping that was told of before, with nothing else in its place since; else it is remembered.
    fn knows(&mut self, mmap: &Mmap<'_>) -> bool {
        let mut hasher = FxHasher::default();
        (mmap.offset, mmap.path).hash(&mut hasher);
        match mmap.file {
            FileId::Inode { major, minor, inode } => (major, minor, inode).hash(&mut hasher),
            FileId::BuildId(id) => id.hash(&mut hasher),
            FileId::Unknown => {}
        }
        let new = (mmap.addr.saturating_add(mmap.len), hasher.finish());
        let told = self.told.entry(mmap.pid).or_default();
        if told.get(&mmap.addr) == Some(&new) {
            return true;
        }
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        let overlaps = |(start, (end, _)): (&u64, &(u64, u64))| (*end > mmap.addr).then_some(*start);
        let before = told.range(..mmap.addr).next_back().and_then(overlaps);
        let within: Vec<u64> = told.range(mmap.addr..new.0).map(|(start, _)| *start).collect();
        for start in before.into_iter().chain(within) {
            told.remove(&start);
        }
        told.insert(mmap.addr, new);
        false
    }
}

impl SpaceChange {
    /// The process whose mappings are looked at.
    pub fn pid(&self) -> i32 {
        match self {
            SpaceChange::Map { pid, .. } | SpaceChange::Exec { pid } | SpaceChange::Exit { pid, .. } => *pid,
            SpaceChange::Fork { parent, .. } => *parent,
        }
    }

    /// What it takes beside its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            SpaceChange::Map { path, key: FileKey::BuildId(id), .. } => path.len() + id.len(),
            SpaceChange::Map { path, .. } => path.len(),
            _ => 0,
        }
    }

    fn of(mmap: &Mmap<'_>) -> SpaceChange {
        let key = match mmap.file {
            FileId::Inode { major, minor, inode } => FileKey::Inode { major, minor, inode },
            FileId::BuildId(id) => FileKey::BuildId(id.into()),
            FileId::Unknown => FileKey::Unknown,
        };
        let end = mmap.addr.saturating_add(mmap.len);
        SpaceChange::Map { pid: mmap.pid, start: mmap.addr, end, offset: mmap.offset, path: mmap.path.into(), key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Task;

    #[test]
    fn a_mapping_told_again_changes_nothing() {
        let mut keys = SpaceKeys::default();
        let file = FileId::Inode { major: 0, minor: 0, inode: 7 };
        let mut map = |pid, addr, len, path: &str| {
            let mmap = Mmap { pid, tid: pid, addr, len, offset: 0, file, path: path.as_bytes() };
            keys.apply(&Record::Mmap(mmap), 1).is_some()
        };
        assert!(map(5, 0x1000, 0x1000, "//anon") && !map(5, 0x1000, 0x1000, "//anon"));
        assert!(map(6, 0x1000, 0x1000, "//anon"), "another process");
        assert!(map(5, 0x3000, 0x1000, "/lib/a") && !map(5, 0x1000, 0x1000, "//anon"));
        assert!(map(5, 0x1800, 0x100, "/lib/a"), "it covers a part");
        assert!(map(5, 0x1000, 0x1000, "//anon") && map(5, 0x1000, 0x800, "//anon"));
        let before = keys.key(5);
        assert!(keys.apply(&Record::Comm { pid: 5, tid: 5, comm: b"x", exec: true }, 2).is_some());
        assert_ne!(keys.key(5), before);
        let mmap = Mmap { pid: 5, tid: 5, addr: 0x1000, len: 0x800, offset: 0, file, path: b"//anon" };
        assert!(keys.apply(&Record::Mmap(mmap), 3).is_some(), "after an exec all is new");
        let outside = Mmap { pid: 0, tid: 0, ..mmap };
        assert!(keys.apply(&Record::Mmap(outside), 3).is_none(), "of nobody knows whom");
        let fork = Task { pid: 5, ppid: 4, tid: 5, ptid: 4, time: 4 };
        assert!(keys.apply(&Record::Fork(fork), 4).is_some());
        assert!(keys.apply(&Record::Mmap(mmap), 5).is_some(), "a number that is used again is of another process");
    }
}
