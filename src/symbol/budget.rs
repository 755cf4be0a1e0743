//! Memory budget for files and mappings of others: bytes read of them at a time, and bytes kept. The owner of a process decides
//! what its files hold, so each user has a share, and cannot use up that of the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::symbol::vdso::ROOT;

/// Bytes for all users together, unless the command line says otherwise. Symbols of a large C++ program take 30 MiB.
pub const BUDGET_BYTES: u64 = 256 << 20;
/// One user may have 1/SHARES of the budget.
const SHARES: u64 = 4;

/// Bytes for symbol tables, perf maps and what is decompressed, shared by all files of a run. Another one is for lists of mappings,
/// and one for open files.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<Account>>);

/// What one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharingRule {
    /// 1/[`SHARES`] of the budget.
    Fixed,
    /// As much as is left for the others then. Root may have all that is left: it is no attacker.
    Half,
}

#[derive(Debug)]
struct Account {
    rule: SharingRule,
    most: u64,
    taken: u64,
    by_user: FxHashMap<u32, u64>,
}

/// Bytes taken from a budget, which are given back on drop: where files come and go, all tables that ever existed take
/// more than those that exist.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    user: u32,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(BUDGET_BYTES)
    }
}

impl Budget {
    pub fn new(bytes: u64) -> Budget {
        Budget::with(bytes, SharingRule::Fixed)
    }

    /// Of what most users need little of, and one may need much: open files, lists of mappings.
    pub fn halved(most: u64) -> Budget {
        Budget::with(most, SharingRule::Half)
    }

    fn with(most: u64, rule: SharingRule) -> Budget {
        Budget(Arc::new(Mutex::new(Account { rule, most, taken: 0, by_user: FxHashMap::default() })))
    }

    /// Takes bytes from the one of `users` who has most left. None when nobody has enough.
    pub fn take(&self, bytes: u64, users: &[u32]) -> Option<Share> {
        let mut account = self.account();
        let user = account.richest(users)?;
        account.add(user, bytes).then(|| Share { budget: self.clone(), user, bytes })
    }

    /// The most bytes that [`Budget::take`] would give.
    pub fn room(&self, users: &[u32]) -> u64 {
        let account = self.account();
        account.richest(users).map_or(0, |user| account.room(user))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // the numbers are consistent at any time
    }
}

impl Account {
    fn richest(&self, users: &[u32]) -> Option<u32> {
        users.iter().copied().max_by_key(|user| self.room(*user))
    }

    fn room(&self, user: u32) -> u64 {
        let of_user = self.by_user.get(&user).copied().unwrap_or(0);
        let left = self.most.saturating_sub(self.taken);
        match self.rule {
            SharingRule::Fixed => (self.most / SHARES).saturating_sub(of_user).min(left),
            SharingRule::Half if user == ROOT => left,
            SharingRule::Half => left.saturating_sub(of_user) / 2,
        }
    }

    fn add(&mut self, user: u32, bytes: u64) -> bool {
        let fits = bytes <= self.room(user);
        if fits {
            self.taken += bytes;
            *self.by_user.entry(user).or_default() += bytes;
        }
        fits
    }

    fn sub(&mut self, user: u32, bytes: u64) {
        self.taken -= bytes;
        if let Some(of_user) = self.by_user.get_mut(&user) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.by_user.remove(&user);
            }
        }
    }
}

impl Share {
    /// Takes more bytes. False, and no change, when not enough are left.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.budget.account().add(self.user, bytes);
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Takes or gives back so many that it has `bytes`. False, and no change, when not enough are left.
    pub fn set(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        self.shrink_to(bytes);
        true
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.account().sub(self.user, less);
        self.bytes -= less;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_quarter() {
        let budget = Budget::new(100);
        let (one, other) = ([1].as_slice(), [2].as_slice());
        let mut share = budget.take(20, one).unwrap();
        assert!(budget.take(6, one).is_none() && !share.grow(6) && share.grow(5));
        assert_eq!((budget.room(one), budget.room(other), budget.room(&[])), (0, 25, 0));
        share.shrink_to(10);
        assert_eq!(budget.room(one), 15);
        let _of_the_other = budget.take(25, &[1, 2]).unwrap();
        assert_eq!((budget.room(one), budget.room(other), budget.room(&[1, 2])), (15, 0, 15));
        drop(share);
        assert_eq!(budget.room(one), 25);
    }

    #[test]
    fn something_is_left_for_everybody() {
        let budget = Budget::halved(100);
        let mut shares = Vec::new();
        let mut take_all = |user: u32| {
            let before = shares.len();
            shares.extend(std::iter::from_fn(|| budget.take(1, &[user])));
            shares.len() - before
        };
        assert_eq!([1, 1, 2, 3].map(&mut take_all), [50, 0, 25, 12]);
        assert_eq!([ROOT, 4].map(&mut take_all), [13, 0]);
        drop(shares);
        assert_eq!(budget.room(&[ROOT]), 100);
    }

    #[test]
    fn all_users_together_have_the_whole_budget() {
        let budget = Budget::new(100);
        let shares: Vec<Share> = (0..10).map_while(|user| budget.take(25, &[user])).collect();
        assert_eq!((shares.len(), budget.room(&[10])), (4, 0));
        drop(shares);
        assert_eq!(budget.room(&[10]), 25);
        assert!(budget.account().by_user.is_empty());
    }
}
