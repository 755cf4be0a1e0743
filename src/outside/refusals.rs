//! The processes and users that have made workers hang: nothing more is asked about them. Others are not affected.

use rustc_hash::{FxHashMap, FxHashSet};

/// Number of hangs after which nothing is asked any more about any process of the same user. Root has a higher limit:
/// incidents are about root's tasks, and root need not attack perf-prof.
const MAX_HANGS: usize = 2;
const MAX_HANGS_OF_ROOT: usize = 5;
/// Most workers that hang and cannot be killed. The last place is kept for users whose processes have hung no worker.
pub const MAX_STUCK: usize = 8;

#[derive(Debug, Default)]
pub struct Refusals {
    processes: FxHashSet<i32>,
    /// Number of hangs by user, and whether the questions were about files alone.
    hangs: FxHashMap<(u32, bool), usize>,
}

/// The processes that are refused after a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterHang {
    /// The process that the question was about.
    Process,
    /// All processes of its user; after a hang at a file, all files of that user.
    User,
}

impl Refusals {
    /// True while no worker has hung.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.hangs.is_empty()
    }

    /// Whether a question about a process, or with pid 0 about a file, is allowed. `stuck`: number of workers that hang
    /// now. `user`: the uid, if the process lives.
    pub fn may_ask(&self, pid: i32, user: Option<u32>, stuck: usize) -> bool {
        let hangs = user.and_then(|user| self.hangs.get(&(user, pid == 0))).copied().unwrap_or(0);
        let most = if user == Some(0) { MAX_HANGS_OF_ROOT } else { MAX_HANGS };
        !self.processes.contains(&pid) && hangs < most && stuck < MAX_STUCK - usize::from(hangs > 0)
    }

    /// Records that a worker did not answer in time about this process, or with pid 0 about a file.
    pub fn hung(&mut self, pid: i32, user: Option<u32>) -> AfterHang {
        self.processes.extend((pid != 0).then_some(pid));
        let Some(user) = user else { return AfterHang::Process };
        let hangs = self.hangs.entry((user, pid == 0)).or_default();
        *hangs += 1;
        let most = if user == 0 { MAX_HANGS_OF_ROOT } else { MAX_HANGS };
        if *hangs >= most { AfterHang::User } else { AfterHang::Process }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hangs_is_asked_no_more() {
        let mut refusals = Refusals::default();
        assert!(refusals.is_empty() && refusals.may_ask(7, Some(1000), 0));
        assert_eq!(refusals.hung(7, Some(1000)), AfterHang::Process);
        assert!(!refusals.may_ask(7, Some(1000), 1) && refusals.may_ask(8, Some(1000), 1));
        assert_eq!(refusals.hung(8, Some(1000)), AfterHang::User);
        assert!(!refusals.may_ask(9, Some(1000), 0), "the whole user");
        assert!(refusals.may_ask(9, Some(1001), 2) && refusals.may_ask(9, Some(0), 2), "nobody else");
        assert_eq!(refusals.hung(10, None), AfterHang::Process, "it has gone meanwhile");
        assert!(refusals.may_ask(0, Some(1000), 0), "its files are another matter");
        assert_eq!([0, 0].map(|pid| refusals.hung(pid, Some(1000))), [AfterHang::Process, AfterHang::User]);
        assert!(!refusals.may_ask(0, Some(1000), 0) && refusals.may_ask(0, Some(1001), 0));
    }

    #[test]
    fn a_place_is_kept_for_those_who_have_hung_nothing() {
        let mut refusals = Refusals::default();
        refusals.hung(7, Some(1000));
        assert!(refusals.may_ask(8, Some(1000), MAX_STUCK - 2) && !refusals.may_ask(8, Some(1000), MAX_STUCK - 1));
        assert!(refusals.may_ask(8, Some(1001), MAX_STUCK - 1) && !refusals.may_ask(8, Some(1001), MAX_STUCK));
    }

    #[test]
    fn root_has_more_patience() {
        let mut refusals = Refusals::default();
        let outcomes: Vec<AfterHang> = (1..=MAX_HANGS_OF_ROOT as i32).map(|pid| refusals.hung(pid, Some(0))).collect();
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == AfterHang::User).count(), 1);
        assert!(!refusals.may_ask(99, Some(0), 0));
    }
}
