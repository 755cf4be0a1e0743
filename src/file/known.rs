//! The names of files that were found so far. Rows share them, and look into them when they are printed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::file::{FileName, FoundBy, InodeKey};
use crate::host::BlockDevices;
use crate::sys::monotonic_ns;

/// Files whose names are remembered.
pub(super) const MAX_KNOWN: usize = 1 << 16;
/// Bytes of all paths that are remembered. Most paths are short, but other users choose them.
const MAX_PATH_BYTES: usize = 16 << 20;
/// How long a row waits for the name of its file, from when the file was asked about.
const PATIENCE_NS: u64 = 600_000_000;

/// The names that are known, which rows share.
#[derive(Debug)]
pub(super) struct KnownNames {
    devices: BlockDevices,
    names: Mutex<NamesByInode>,
    has_news: Condvar,
}

/// The newest names, within the limits.
#[derive(Debug, Default)]
struct NamesByInode {
    names: FxHashMap<InodeKey, KnownName>,
    /// The files in `names`, the one that is to be forgotten first in front.
    order: VecDeque<InodeKey>,
    path_bytes: usize,
}

#[derive(Clone, Debug)]
struct KnownName {
    /// None: the question has no answer yet.
    name: Option<Arc<FileName>>,
    /// When the file was asked about first, ns.
    asked_ns: u64,
    /// It was asked about again since it came to the end of the order.
    is_in_use: bool,
}

impl KnownName {
    fn path_bytes(&self) -> usize {
        self.name.as_ref().and_then(|name| name.path.as_ref()).map_or(0, |path| path.0.len())
    }
}

impl NamesByInode {
    fn expect(&mut self, key: InodeKey, now_ns: u64) {
        if let Some(known) = self.names.get_mut(&key) {
            known.is_in_use = true;
            return;
        }
        self.names.insert(key, KnownName { name: None, asked_ns: now_ns, is_in_use: false });
        self.order.push_back(key);
        self.shrink();
    }

    fn tell(&mut self, key: InodeKey, name: FileName) {
        // It may have been forgotten meanwhile.
        let Some(known) = self.names.get_mut(&key) else { return };
        // What a deleted file was called is still its name.
        if name.path.is_none() && known.path_bytes() > 0 {
            return;
        }
        self.path_bytes -= known.path_bytes();
        known.name = Some(Arc::new(name));
        self.path_bytes += known.path_bytes();
        self.shrink();
    }

    /// Forgets names beyond the limits: the oldest, but later those that are still asked about.
    fn shrink(&mut self) {
        while self.names.len() > MAX_KNOWN || self.path_bytes > MAX_PATH_BYTES {
            let Some(key) = self.order.pop_front() else { return };
            if self.names.get_mut(&key).is_some_and(|known| std::mem::take(&mut known.is_in_use)) {
                self.order.push_back(key);
            } else {
                self.path_bytes -= self.names.remove(&key).map_or(0, |known| known.path_bytes());
            }
        }
    }
}

impl KnownNames {
    pub fn new(devices: BlockDevices) -> KnownNames {
        KnownNames { devices, names: Mutex::default(), has_news: Condvar::new() }
    }

    fn names(&self) -> MutexGuard<'_, NamesByInode> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is about to be asked about.
    pub fn expect(&self, key: InodeKey) {
        self.names().expect(key, monotonic_ns());
    }

    pub fn tell(&self, key: InodeKey, name: FileName) {
        self.names().tell(key, name);
        self.has_news.notify_all();
    }

    /// The name of a file. A file that was seen a moment ago has none yet: its answer is awaited.
    pub fn name(&self, key: InodeKey) -> Arc<FileName> {
        self.name_by(key, u64::MAX)
    }

    /// As [`KnownNames::name`], with a deadline, ns.
    pub fn name_by(&self, key: InodeKey, deadline_ns: u64) -> Arc<FileName> {
        let mut names = self.names();
        loop {
            let asked_ns = match names.names.get(&key) {
                Some(KnownName { name: Some(name), .. }) => return name.clone(),
                Some(KnownName { asked_ns, .. }) => *asked_ns,
                None => return Arc::new(FileName::unknown(FoundBy::NotAsked)),
            };
            let left = deadline_ns.min(asked_ns.saturating_add(PATIENCE_NS)).saturating_sub(monotonic_ns());
            if left == 0 {
                return Arc::new(FileName::unknown(FoundBy::NoAnswer));
            }
            let waited = self.has_news.wait_timeout(names, Duration::from_nanos(left.min(PATIENCE_NS)));
            names = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `vda`
    pub fn device_name(&self, key: InodeKey) -> String {
        self.devices.name(key.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FilePath;
    use crate::host::BlockDevice;

    fn key(inode: usize) -> InodeKey {
        InodeKey { device: BlockDevice(8 << 20), inode: inode as u64 }
    }

    fn named(path: Vec<u8>) -> FileName {
        FileName { path: Some(FilePath(path)), ..FileName::unknown(FoundBy::Inode) }
    }

    #[test]
    fn the_newest_names_are_known() {
        let known = KnownNames::new(BlockDevices::default());
        for inode in 0..MAX_KNOWN + 10 {
            known.expect(key(inode));
            known.tell(key(inode), named(b"/a".to_vec()));
            if inode == MAX_KNOWN - 1 {
                known.expect(key(3)); // an old one, which is still seen
            }
        }
        let found = |inode| known.name(key(inode)).found;
        assert_eq!([0, 2, 4].map(found), [FoundBy::NotAsked; 3]);
        assert_eq!([3, 11, MAX_KNOWN + 9].map(found), [FoundBy::Inode; 3]);
        assert_eq!(known.names().names.len(), MAX_KNOWN);
        known.tell(key(0), named(b"/late".to_vec()));
        assert_eq!(found(0), FoundBy::NotAsked, "an answer about a forgotten file");
    }

    #[test]
    fn long_paths_are_bounded_too() {
        let known = KnownNames::new(BlockDevices::default());
        let bytes = |known: &KnownNames| known.names().names.values().map(KnownName::path_bytes).sum::<usize>();
        for inode in 0..2 * MAX_PATH_BYTES / 4096 {
            known.expect(key(inode));
            for length in [10, 4096] {
                known.tell(key(inode), named(vec![b'/'; length]));
                known.tell(key(inode), FileName::unknown(FoundBy::Freed));
            }
        }
        assert_eq!(bytes(&known), MAX_PATH_BYTES);
        assert_eq!(known.names().path_bytes, MAX_PATH_BYTES);
        assert_eq!(known.names().order.len(), MAX_PATH_BYTES / 4096);
    }
}
