//! Who has a lock, as far as events tell, and how many wait for it.

use rustc_hash::FxHashMap;

use crate::profilers::locks::lock::{LockId, LockUser};

/// Limit of the locks whose waiters are counted.
const MAX_WAITED_FOR: usize = 1 << 16;
/// Limit of the files whose owner is known.
const MAX_FILES: usize = 1 << 16;

/// The waiters of locks, and their owners.
#[derive(Debug, Default)]
pub struct LockOwners {
    /// The locks that somebody waits for.
    waited_for: FxHashMap<LockId, WaitedLock>,
    /// The processes that lock files: of several the last.
    of_files: FxHashMap<LockId, FileOwner>,
}

/// A lock that somebody waits for.
#[derive(Clone, Copy, Debug, Default)]
struct WaitedLock {
    waiters: u32,
    /// The task that got the lock last, or woke who waits for it.
    last: Option<LockUser>,
}

#[derive(Clone, Copy, Debug)]
struct FileOwner {
    user: LockUser,
    /// When it gave back the lock.
    until_ns: Option<u64>,
}

impl LockOwners {
    /// A task waits for a lock. Returns the number of its waiters.
    pub fn joins(&mut self, lock: LockId) -> u32 {
        if self.waited_for.len() >= MAX_WAITED_FOR && !self.waited_for.contains_key(&lock) {
            return 1;
        }
        let waited = self.waited_for.entry(lock).or_default();
        waited.waiters += 1;
        waited.waiters
    }

    /// A task waits no longer.
    pub fn leaves(&mut self, lock: LockId) {
        if let Some(waited) = self.waited_for.get_mut(&lock) {
            waited.waiters = waited.waiters.saturating_sub(1);
            if waited.waiters == 0 {
                self.waited_for.remove(&lock);
            }
        }
    }

    /// A task got the lock, or wakes who waits for it.
    pub fn took(&mut self, lock: LockId, user: LockUser) {
        if let LockId::File(_) = lock {
            if self.of_files.len() >= MAX_FILES && !self.of_files.contains_key(&lock) {
                self.of_files.retain(|_, owner| owner.until_ns.is_none());
            }
            if self.of_files.len() < MAX_FILES || self.of_files.contains_key(&lock) {
                self.of_files.insert(lock, FileOwner { user, until_ns: None });
            }
        } else if let Some(waited) = self.waited_for.get_mut(&lock) {
            waited.last = Some(user);
        }
    }

    /// A process gives back its locks of a file.
    pub fn gave_back(&mut self, lock: LockId, pid: i32, now: u64) {
        if let Some(owner) = self.of_files.get_mut(&lock).filter(|owner| owner.user.pid == pid) {
            owner.until_ns = Some(now);
        }
    }

    /// The owner of a lock during a wait that began at `since`. A lock that is no file's had this owner only if it got
    /// the lock meanwhile: who got it before may have given it back.
    pub fn of(&self, lock: LockId, since: u64) -> Option<LockUser> {
        match lock {
            LockId::File(_) => {
                let owner = self.of_files.get(&lock)?;
                owner.until_ns.is_none_or(|until| until >= since).then_some(owner.user)
            }
            _ => self.waited_for.get(&lock)?.last.filter(|user| user.at_ns >= since),
        }
    }

    /// Records were lost.
    pub fn forget(&mut self) {
        *self = LockOwners::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::InodeKey;
    use crate::host::BlockDevice;
    use crate::task::Comm;

    fn file(inode: u64) -> LockId {
        LockId::File(InodeKey { device: BlockDevice(1), inode })
    }
    const LOCK: LockId = LockId::Kernel(7);

    fn user(tid: i32, at_ns: u64) -> LockUser {
        LockUser { at_ns, pid: tid, tid, comm: Comm::default() }
    }

    #[test]
    fn who_got_a_lock_meanwhile_is_its_owner() {
        let mut owners = LockOwners::default();
        owners.took(LOCK, user(1, 5));
        assert_eq!([owners.joins(LOCK), owners.joins(LOCK)], [1, 2]);
        assert_eq!(owners.of(LOCK, 0), None, "nobody waited then");
        owners.took(LOCK, user(2, 10));
        owners.leaves(LOCK);
        assert_eq!([owners.of(LOCK, 10), owners.of(LOCK, 11)], [Some(user(2, 10)), None]);
        owners.leaves(LOCK);
        owners.leaves(LOCK);
        assert_eq!(owners.of(LOCK, 0), None);
        owners.joins(LOCK);
        owners.forget();
        owners.leaves(LOCK);
        assert_eq!(owners.joins(LOCK), 1);
    }

    #[test]
    fn the_owner_of_a_file_is_known_without_waiters() {
        let mut owners = LockOwners::default();
        owners.took(file(2), user(1, 5));
        assert_eq!(owners.of(file(2), 90), Some(user(1, 5)));
        owners.gave_back(file(2), 2, 100);
        assert_eq!(owners.of(file(2), 101), Some(user(1, 5)), "2 had none");
        owners.gave_back(file(2), 1, 100);
        assert_eq!([owners.of(file(2), 100), owners.of(file(2), 101)], [Some(user(1, 5)), None]);
        owners.took(file(2), user(2, 110));
        assert_eq!(owners.of(file(2), 101), Some(user(2, 110)));
    }

    #[test]
    fn owners_are_bounded() {
        let mut owners = LockOwners::default();
        for number in 0..100_000_u64 {
            owners.joins(LockId::Kernel(number));
            owners.took(file(number), user(1, number));
            if number < 1000 {
                owners.gave_back(file(number), 1, number);
            }
        }
        assert!(owners.waited_for.len() <= MAX_WAITED_FOR && owners.of_files.len() <= MAX_FILES);
        assert!(owners.of_files.contains_key(&file(1 << 16)), "in place of a free one");
    }
}
