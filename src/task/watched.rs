//! Which tasks the answer is about, kept true while they fork and exit.

use rustc_hash::FxHashSet;

use crate::perf::Record;
use crate::perf::target::{Host, Target, Tasks, threads};

/// The tasks the answer is about.
#[derive(Debug)]
pub enum Watched {
    All,
    /// These threads; `follow` adds what they create. `leaving` have said farewell and still switch away once.
    Some {
        tids: FxHashSet<i32>,
        leaving: FxHashSet<i32>,
        follow: bool,
        until_exit: bool,
    },
    /// A workload that has not executed its command yet: nothing before that is of interest.
    BeforeExec(i32),
}

impl Watched {
    fn some(tids: FxHashSet<i32>, follow: bool, until_exit: bool) -> Watched {
        Watched::Some { tids, leaving: FxHashSet::default(), follow, until_exit }
    }

    pub fn new(target: &Target, host: &Host) -> Watched {
        match &target.tasks {
            Tasks::All => Watched::All,
            Tasks::Threads(tids) => Watched::some(tids.iter().copied().collect(), false, true),
            Tasks::Processes(pids) => {
                let tids = pids.iter().flat_map(|&pid| threads(host, pid)).collect();
                Watched::some(tids, true, true)
            }
            Tasks::Cgroups(groups) => {
                let tids = groups.iter().flat_map(|group| group.threads()).collect();
                Watched::some(tids, true, false)
            }
            Tasks::Workload(pid) => Watched::BeforeExec(*pid),
        }
    }

    #[inline]
    pub fn contains(&self, tid: i32) -> bool {
        match self {
            Watched::All => true,
            Watched::Some { tids, leaving, .. } => tids.contains(&tid) || leaving.contains(&tid),
            Watched::BeforeExec(_) => false,
        }
    }

    pub fn is_all(&self) -> bool {
        matches!(self, Watched::All)
    }

    /// Threads that appeared between two looks at /proc, before the events were on.
    pub fn add(&mut self, more: impl IntoIterator<Item = i32>) {
        if let Watched::Some { tids, .. } = self {
            tids.extend(more);
        }
    }

    pub fn apply(&mut self, record: &Record<'_>) {
        match (&mut *self, record) {
            (Watched::BeforeExec(pid), Record::Comm { tid, exec: true, .. }) if tid == pid => {
                let tids = [*pid].into_iter().collect();
                *self = Watched::some(tids, true, true);
            }
            (Watched::Some { tids, leaving, follow, .. }, Record::Fork(fork)) => {
                leaving.remove(&fork.tid); // the number is used again
                if *follow && tids.contains(&fork.ptid) {
                    tids.insert(fork.tid);
                }
            }
            (Watched::Some { tids, leaving, .. }, Record::Exit(exit)) => leaving.extend(tids.take(&exit.tid)),
            _ => {}
        }
    }

    /// True when every task of the answer has exited.
    pub fn is_over(&self) -> bool {
        matches!(self, Watched::Some { tids, until_exit: true, .. } if tids.is_empty())
    }

    /// The threads, when they are known one by one and nothing joins them later.
    pub fn fixed(&self) -> Option<Vec<i32>> {
        match self {
            Watched::Some { tids, follow: false, .. } => {
                let mut tids: Vec<i32> = tids.iter().copied().collect();
                tids.sort_unstable();
                Some(tids)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Task;

    fn fork(tid: i32, ptid: i32) -> Record<'static> {
        Record::Fork(Task { pid: tid, ppid: ptid, tid, ptid, time: 0 })
    }

    fn exit(tid: i32) -> Record<'static> {
        Record::Exit(Task { pid: tid, ppid: 0, tid, ptid: 0, time: 0 })
    }

    #[test]
    fn a_workload_counts_from_its_exec() {
        let mut watched = Watched::BeforeExec(7);
        watched.apply(&Record::Comm { pid: 7, tid: 7, comm: b"x", exec: false });
        assert!(!watched.contains(7) && !watched.is_over());
        watched.apply(&Record::Comm { pid: 7, tid: 7, comm: b"x", exec: true });
        watched.apply(&fork(8, 7));
        watched.apply(&fork(9, 1));
        assert!(watched.contains(7) && watched.contains(8) && !watched.contains(9));
        watched.apply(&exit(7));
        assert!(watched.contains(7), "its last switch is still to come");
        watched.apply(&fork(7, 1));
        assert!(!watched.contains(7), "the number belongs to somebody else now");
        assert!(!watched.is_over());
        watched.apply(&exit(8));
        assert!(watched.is_over());
    }

    #[test]
    fn named_threads_are_not_followed() {
        let mut watched = Watched::some([7, 3].into_iter().collect(), false, true);
        watched.apply(&fork(8, 7));
        assert!(!watched.contains(8));
        assert_eq!(watched.fixed(), Some(vec![3, 7]));
        assert!(Watched::All.contains(1) && Watched::All.fixed().is_none());
    }
}
