//! Keys of address spaces on the main thread: two user stacks may be equal only under the same key.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::perf::Record;
use crate::perf::record::{FileId, Mmap, TaskRecord};
use crate::symbol::spaces::maps_line::FileKey;

/// How long the key of an exited process is kept, ns.
const KEEP_EXITED_NS: u64 = 2_000_000_000;

/// A change of an address space, on its way to the output thread.
#[derive(Clone, Debug)]
pub enum SpaceChange {
    Map { pid: i32, start: u64, end: u64, offset: u64, path: Box<[u8]>, key: FileKey },
    Fork { parent: i32, child: i32 },
    Exec { pid: i32 },
    Exit { pid: i32, time: u64 },
}

/// A key per process. It changes with every new mapping: equal addresses under different keys may mean different code.
#[derive(Debug, Default)]
pub struct SpaceKeys {
    keys: FxHashMap<i32, u32>,
    last: u32,
    exited: VecDeque<(u64, i32)>,
    /// Mappings that records reported, by pid.
    told: FxHashMap<i32, KnownMappings>,
    /// Number of these mappings, including those that were forgotten since the last count.
    told_mappings: usize,
}

/// Mappings by start address: the end address, and a hash of file and offset.
type KnownMappings = BTreeMap<u64, (u64, u64)>;

/// Most mappings remembered per process. A process with more gets a new key more often than necessary.
const MAX_TOLD: usize = 4096;
/// Most mappings remembered of all processes together: some 10 MiB.
const MAX_TOLD_OF_ALL: usize = 1 << 18;

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

    /// Forgets all mappings. Every process gets a new key, and its mappings are passed on again.
    pub fn renew_all(&mut self) {
        self.keys.clear();
        self.told.clear();
    }

    /// Updates the keys by a record, and returns the change for the output thread, if there is one.
    pub fn apply(&mut self, record: &Record<'_>, time: u64) -> Option<SpaceChange> {
        match record {
            // Tasks of other pid namespaces have no pid in ours, so the mapping belongs to no process that we know.
            Record::Mmap(Mmap { pid: ..=0, .. }) | Record::Comm { pid: ..=0, .. } => None,
            Record::Fork(TaskRecord { pid: ..=0, .. }) | Record::Exit(TaskRecord { pid: ..=0, .. }) => None,
            // A run-time compiler changes the permissions of the same pages over and over.
            Record::Mmap(mmap) if self.knows(mmap) => None,
            Record::Mmap(mmap) => {
                self.renew(mmap.pid);
                Some(SpaceChange::of(mmap))
            }
            Record::Fork(fork) if fork.pid != fork.ppid => {
                let key = self.key(fork.ppid);
                self.keys.insert(fork.pid, key);
                self.told.remove(&fork.pid); // those of an earlier process with this pid
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

    /// Forgets processes that exited 2 s before `now`. A pid that is seen again gets a new key.
    pub fn expire(&mut self, now: u64) {
        while let Some((_, pid)) = self.exited.pop_front_if(|(time, _)| time.saturating_add(KEEP_EXITED_NS) < now) {
            self.keys.remove(&pid);
            self.told.remove(&pid);
        }
    }

    /// True for a mapping that was reported before and not overlapped since. Else the mapping is remembered.
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
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        self.told_mappings += 1;
        let overlaps = |(start, (end, _)): (&u64, &(u64, u64))| (*end > mmap.addr).then_some(*start);
        let before = told.range(..mmap.addr).next_back().and_then(overlaps);
        let within: Vec<u64> = told.range(mmap.addr..new.0).map(|(start, _)| *start).collect();
        for start in before.into_iter().chain(within) {
            told.remove(&start);
        }
        told.insert(mmap.addr, new);
        if self.told_mappings >= MAX_TOLD_OF_ALL {
            self.forget_largest();
        }
        false
    }

    /// Counts the mappings anew. If there are too many, the processes with most mappings lose theirs until half of
    /// [`MAX_TOLD_OF_ALL`] is left.
    #[cold]
    fn forget_largest(&mut self) {
        let count = |told: &FxHashMap<i32, KnownMappings>| told.values().map(BTreeMap::len).sum();
        self.told_mappings = count(&self.told);
        if self.told_mappings > MAX_TOLD_OF_ALL / 2 {
            let most = MAX_TOLD_OF_ALL / 2 / self.told.len();
            self.told.retain(|_, told| told.len() <= most);
            self.told_mappings = count(&self.told);
        }
    }
}

impl SpaceChange {
    /// The process whose mappings must be read to apply the change.
    pub fn pid(&self) -> i32 {
        match self {
            SpaceChange::Map { pid, .. } | SpaceChange::Exec { pid } | SpaceChange::Exit { pid, .. } => *pid,
            SpaceChange::Fork { parent, .. } => *parent,
        }
    }

    /// Heap memory of the change, in bytes.
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
    use crate::perf::record::TaskRecord;

    #[test]
    fn a_repeated_mapping_changes_nothing() {
        let mut keys = SpaceKeys::default();
        let file = FileId::Inode { major: 0, minor: 0, inode: 7 };
        let mut map = |pid, addr, len, path: &str| {
            let mmap = Mmap { pid, tid: pid, addr, len, offset: 0, file, path: path.as_bytes() };
            keys.apply(&Record::Mmap(mmap), 1).is_some()
        };
        assert!(map(5, 0x1000, 0x1000, "//anon") && !map(5, 0x1000, 0x1000, "//anon"));
        assert!(map(6, 0x1000, 0x1000, "//anon"), "another process");
        assert!(map(5, 0x3000, 0x1000, "/lib/a") && !map(5, 0x1000, 0x1000, "//anon"));
        assert!(map(5, 0x1800, 0x100, "/lib/a"), "it overlaps a part");
        assert!(map(5, 0x1000, 0x1000, "//anon") && map(5, 0x1000, 0x800, "//anon"));
        let before = keys.key(5);
        assert!(keys.apply(&Record::Comm { pid: 5, tid: 5, comm: b"x", exec: true }, 2).is_some());
        assert_ne!(keys.key(5), before);
        let mmap = Mmap { pid: 5, tid: 5, addr: 0x1000, len: 0x800, offset: 0, file, path: b"//anon" };
        assert!(keys.apply(&Record::Mmap(mmap), 3).is_some(), "exec forgets all mappings");
        let outside = Mmap { pid: 0, tid: 0, ..mmap };
        assert!(keys.apply(&Record::Mmap(outside), 3).is_none(), "its process is unknown");
        let fork = TaskRecord { pid: 5, ppid: 4, tid: 5, ptid: 4, time: 4 };
        assert!(keys.apply(&Record::Fork(fork), 4).is_some());
        assert!(keys.apply(&Record::Mmap(mmap), 5).is_some(), "a reused pid is another process");
    }

    #[test]
    fn those_who_map_most_are_forgotten_first() {
        let mut keys = SpaceKeys::default();
        let mut map = |pid, page: u64| {
            let file = FileId::Inode { major: 0, minor: 0, inode: 7 };
            let mmap = Mmap { pid, tid: pid, addr: page << 12, len: 0x1000, offset: 0, file, path: b"/lib/a" };
            keys.apply(&Record::Mmap(mmap), 1).is_some()
        };
        assert!((0..50).all(|page| map(1, page)));
        assert!((2..300).all(|pid| (0..MAX_TOLD as u64).all(|page| map(pid, page))));
        assert!((0..50).all(|page| !map(1, page)), "a small process is remembered");
        let bounded = keys.told.values().map(BTreeMap::len).sum::<usize>();
        assert!((1000..=MAX_TOLD_OF_ALL).contains(&bounded), "{bounded}");
    }
}
