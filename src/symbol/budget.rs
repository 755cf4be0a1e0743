//! Memory budget for what is read and kept of other processes' files and mappings. The owner of a process decides what
//! its files hold, so each user has a share, and cannot use up the shares of other users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// Bytes for symbols, unless the command line says otherwise. Symbols of a large C++ program take 30 MiB.
pub const SYMBOL_BYTES: u64 = 256 << 20;
/// Bytes for all data whose size other programs decide: symbols, lists of mappings and stacks, of all views of a run
/// together. With the rings and everything else a run stays below 256 MiB. What the command line gives symbols beyond
/// [`SYMBOL_BYTES`] is added.
const WHOLE_BYTES: u64 = 136 << 20;
/// The user charged for what belongs to no single user: the vdso, the table of stacks.
pub const ROOT: u32 = 0;
/// One user may have 1/SHARES of the budget.
const SHARES: u64 = 4;

/// Bytes that may be taken. A run has one budget for everything, and parts of it for symbol tables, perf maps and
/// decompressed data, for lists of mappings, and for stacks. Open files have a budget of their own.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<Account>>);

/// The budget of a run, and its part for symbols.
#[derive(Clone, Debug)]
pub struct RunBudget {
    pub whole: Budget,
    pub symbols: Budget,
}

/// How much of a budget one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharingRule {
    /// 1/[`SHARES`] of the budget.
    Fixed,
    /// A user's share may grow until it is as large as the bytes left for the other users. Root may have all that is
    /// left: it is no attacker.
    Half,
}

#[derive(Debug)]
struct Account {
    rule: SharingRule,
    most: u64,
    taken: u64,
    by_user: FxHashMap<u32, u64>,
    /// The budget of which this one is a part. Bytes taken here are taken there, too.
    whole: Option<Budget>,
}

/// Bytes taken from a budget, which are given back on drop: files come and go, and all tables that ever existed take
/// more than those that exist.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    user: u32,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(SYMBOL_BYTES)
    }
}

impl RunBudget {
    pub fn new(symbol_bytes: u64) -> RunBudget {
        let whole = Budget::halved(WHOLE_BYTES + symbol_bytes.saturating_sub(SYMBOL_BYTES));
        let symbols = Budget::new(symbol_bytes).within(&whole);
        RunBudget { whole, symbols }
    }
}

impl Budget {
    pub fn new(bytes: u64) -> Budget {
        Budget::with(bytes, SharingRule::Fixed)
    }

    /// A budget of which most users need little, and one may need much: open files, lists of mappings.
    pub fn halved(most: u64) -> Budget {
        Budget::with(most, SharingRule::Half)
    }

    fn with(most: u64, rule: SharingRule) -> Budget {
        Budget(Arc::new(Mutex::new(Account { rule, most, taken: 0, by_user: FxHashMap::default(), whole: None })))
    }

    /// Makes this budget a part of `whole`.
    #[must_use]
    pub fn within(self, whole: &Budget) -> Budget {
        self.account().whole = Some(whole.clone()); // locked after the part, never before
        self
    }

    /// Takes bytes from the share of the one of `users` who has most left. None when no user has enough.
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
        let room = match self.rule {
            SharingRule::Fixed => (self.most / SHARES).saturating_sub(of_user).min(left),
            SharingRule::Half if user == ROOT => left,
            SharingRule::Half => left.saturating_sub(of_user) / 2,
        };
        self.whole.as_ref().map_or(room, |whole| room.min(whole.account().room(user)))
    }

    fn add(&mut self, user: u32, bytes: u64) -> bool {
        let fits = bytes <= self.room(user) && self.whole.as_ref().is_none_or(|whole| whole.account().add(user, bytes));
        if fits {
            self.taken += bytes;
            *self.by_user.entry(user).or_default() += bytes;
        }
        fits
    }

    fn sub(&mut self, user: u32, bytes: u64) {
        self.whole.iter().for_each(|whole| whole.account().sub(user, bytes));
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
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes. False, and no change, when not enough are left.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.budget.account().add(self.user, bytes);
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Takes or gives back bytes until the share is `bytes`. False, and no change, when not enough are left.
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
    fn parts_share_the_whole() {
        let whole = Budget::halved(100);
        let parts = [Budget::new(100).within(&whole), Budget::halved(60).within(&whole)];
        let rooms = |user: u32| parts.each_ref().map(|part| part.room(&[user]));
        assert_eq!((rooms(1), rooms(ROOT)), ([25, 30], [25, 60]));
        let mut share = parts[0].take(25, &[1]).unwrap();
        assert_eq!(
            (rooms(1), rooms(2), rooms(ROOT)),
            ([0, 25], [25, 30], [25, 60]),
            "half of the whole, less what it has"
        );
        let other = parts[1].take(25, &[1]).unwrap();
        assert!(!share.grow(1) && parts[1].take(1, &[1]).is_none());
        assert_eq!((rooms(1), rooms(2), rooms(ROOT)), ([0, 0], [25, 17], [25, 35]));
        let of_root = whole.take(50, &[ROOT]).unwrap();
        assert_eq!([rooms(1), rooms(2), rooms(ROOT)], [[0; 2]; 3], "others have the whole");
        drop(of_root);
        share.shrink_to(5);
        drop(other);
        assert_eq!((rooms(1), whole.room(&[ROOT])), ([20, 30], 95));
    }

    #[test]
    fn a_run_has_what_the_command_line_says_for_symbols() {
        let rooms = |mib: u64| {
            let RunBudget { whole, symbols } = RunBudget::new(mib << 20);
            [symbols.room(&[1]), whole.room(&[1]), whole.room(&[ROOT])].map(|room| room >> 20)
        };
        assert_eq!(rooms(SYMBOL_BYTES >> 20), [64, 68, 136]);
        assert_eq!(rooms(32), [8, 68, 136]);
        assert_eq!(rooms(1024), [256, 452, 904]);
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
