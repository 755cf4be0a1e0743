//! The names of files that were found so far. Rows share them, and look into them when they are printed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::file::{FileName, FoundBy, InodeKey};
use crate::host::BlockDevices;
use crate::sys::monotonic_ns;

/// Files whose names are remembered. A name takes some 150 bytes.
pub(super) const MAX_KNOWN: usize = 1 << 16;
/// How long a row waits for the name of its file, from when the file was seen.
const PATIENCE_NS: u64 = 600_000_000;

/// The names that are known, which rows share.
#[derive(Debug)]
pub(super) struct KnownNames {
    devices: BlockDevices,
    names: Mutex<FxHashMap<InodeKey, KnownName>>,
    has_news: Condvar,
}

#[derive(Clone, Debug)]
enum KnownName {
    /// The file was seen at this time, ns, and its question has no answer yet.
    Asked(u64),
    Told(Arc<FileName>),
}

impl KnownNames {
    pub fn new(devices: BlockDevices) -> KnownNames {
        KnownNames { devices, names: Mutex::default(), has_news: Condvar::new() }
    }

    fn names(&self) -> MutexGuard<'_, FxHashMap<InodeKey, KnownName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is asked about. False: there is no room for its name.
    pub fn expect(&self, key: InodeKey, time: u64) -> bool {
        let mut names = self.names();
        let has_room = names.len() < MAX_KNOWN || names.contains_key(&key);
        if has_room {
            names.entry(key).or_insert(KnownName::Asked(time));
        }
        has_room
    }

    pub fn tell(&self, key: InodeKey, name: FileName) {
        let mut names = self.names();
        let name = match names.get(&key) {
            // What a deleted file was called is still its name.
            Some(KnownName::Told(known)) if name.path.is_none() && known.path.is_some() => known.clone(),
            _ => Arc::new(name),
        };
        names.insert(key, KnownName::Told(name));
        drop(names);
        self.has_news.notify_all();
    }

    /// The name of a file. A file that was seen a moment ago has none yet: its answer is awaited.
    pub fn name(&self, key: InodeKey) -> Arc<FileName> {
        let mut names = self.names();
        loop {
            let since = match names.get(&key) {
                Some(KnownName::Told(name)) => return name.clone(),
                Some(KnownName::Asked(since)) => *since,
                None => return Arc::new(FileName::unknown(FoundBy::NotAsked)),
            };
            let left = (since + PATIENCE_NS).saturating_sub(monotonic_ns());
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
