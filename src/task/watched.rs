//! Which tasks the answer is about, kept true while they fork and exit.

use rustc_hash::FxHashSet;

use crate::perf::Record;
use crate::perf::target::{Host, Target, Tasks, threads};
use crate::task::procfs;

/// The tasks the answer is about.
#[derive(Debug)]
pub enum Watched {
    All,
    Some(Members),
    /// A workload that has not executed its command yet: nothing before that is of interest.
    BeforeExec(i32),
    /// One that has executed it: the record of that is on the way, or was lost. So often was it looked for.
    Released {
        pid: i32,
        looks: u32,
    },
}

/// Threads one by one, kept by records and now and then corrected by /proc.
#[derive(Debug, Default)]
pub struct Members {
    tids: FxHashSet<i32>,
    /// Their processes, when threads and children are followed.
    pids: FxHashSet<i32>,
    /// Have said farewell and still switch away once.
    leaving: FxHashSet<i32>,
    /// Not in /proc at the last look: their last records may still be on the way.
    absent: FxHashSet<i32>,
    /// Processes without a thread there: their numbers will be used again.
    absent_pids: FxHashSet<i32>,
    /// What they create belongs to them.
    follow: bool,
    /// Their end is the end of the run.
    until_exit: bool,
}

impl Watched {
    pub fn new(target: &Target, host: &Host) -> Watched {
        let mut members = match &target.tasks {
            Tasks::All => return Watched::All,
            Tasks::Workload(pid) => return Watched::BeforeExec(*pid),
            Tasks::Threads(_) => Members { until_exit: true, ..Members::default() },
            Tasks::Processes(pids) => {
                Members { pids: pids.iter().copied().collect(), follow: true, until_exit: true, ..Members::default() }
            }
            Tasks::Cgroups(_) => Members { follow: true, ..Members::default() },
        };
        members.tids = members.living(target, host);
        Watched::Some(members)
    }

    #[inline]
    pub fn contains(&self, tid: i32) -> bool {
        match self {
            Watched::All => true,
            Watched::Some(members) => members.tids.contains(&tid) || members.leaving.contains(&tid),
            Watched::BeforeExec(_) | Watched::Released { .. } => false,
        }
    }

    pub fn is_all(&self) -> bool {
        matches!(self, Watched::All)
    }

    pub fn apply(&mut self, record: &Record<'_>) {
        match (&mut *self, record) {
            (Watched::BeforeExec(pid) | Watched::Released { pid, .. }, Record::Comm { tid, exec: true, .. })
                if tid == pid =>
            {
                *self = Watched::Some(Members::of_workload(&[*pid]));
            }
            (Watched::Some(members), record) => members.apply(record),
            _ => {}
        }
    }

    /// Corrects the set by what lives now: a lost record, an exec by a thread that is not its process's first, a task
    /// that was moved between cgroups would leave it wrong for ever.
    pub fn refresh(&mut self, target: &Target, host: &Host) {
        match self {
            Watched::Some(members) => members.refresh(target, host),
            Watched::Released { pid, looks: 0 } => *self = Watched::Released { pid: *pid, looks: 1 },
            // Half a second later: it must have been lost.
            Watched::Released { pid, .. } => {
                let mut pids = procfs::family(host, *pid);
                pids.push(*pid);
                *self = Watched::Some(Members::of_workload(&pids));
                self.refresh(target, host);
            }
            Watched::All | Watched::BeforeExec(_) => {}
        }
    }

    /// The workload has executed its command.
    pub fn released(&mut self) {
        if let Watched::BeforeExec(pid) = *self {
            *self = Watched::Released { pid, looks: 0 };
        }
    }

    /// True while the record of the workload's exec is missing: nothing is known of its tasks.
    pub fn awaits_exec(&self) -> bool {
        matches!(self, Watched::Released { .. })
    }

    /// True when every task of the answer has exited.
    pub fn is_over(&self) -> bool {
        matches!(self, Watched::Some(members) if members.until_exit && members.tids.is_empty())
    }

    /// The threads, when they are known one by one and nothing joins them later.
    pub fn fixed(&self) -> Option<Vec<i32>> {
        match self {
            Watched::Some(members) if !members.follow => {
                let mut tids: Vec<i32> = members.tids.iter().copied().collect();
                tids.sort_unstable();
                Some(tids)
            }
            _ => None,
        }
    }
}

impl Members {
    /// Processes of a workload: what they create belongs to them, and with the last of them it is over.
    fn of_workload(pids: &[i32]) -> Members {
        let pids: FxHashSet<i32> = pids.iter().copied().collect();
        Members { tids: pids.clone(), pids, follow: true, until_exit: true, ..Members::default() }
    }

    fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Fork(fork) => {
                self.leaving.remove(&fork.tid); // the number is used again
                if self.follow && self.tids.contains(&fork.ptid) {
                    self.tids.insert(fork.tid);
                    self.pids.insert(fork.pid);
                }
            }
            Record::Exit(exit) => self.leaving.extend(self.tids.take(&exit.tid)),
            // Whichever thread executes, it goes on under the number of its process.
            Record::Comm { pid, tid, exec: true, .. } if self.follow && self.pids.contains(pid) => {
                self.leaving.remove(tid);
                self.tids.insert(*tid);
            }
            _ => {}
        }
    }

    fn living(&self, target: &Target, host: &Host) -> FxHashSet<i32> {
        match &target.tasks {
            Tasks::Threads(tids) => tids.iter().copied().filter(|&tid| procfs::is_alive(host, tid)).collect(),
            Tasks::Cgroups(groups) => groups.iter().flat_map(|group| group.threads()).collect(),
            _ => self.pids.iter().flat_map(|&pid| living_threads(host, pid)).collect(),
        }
    }

    fn refresh(&mut self, target: &Target, host: &Host) {
        let gone: FxHashSet<i32> =
            self.pids.iter().copied().filter(|&pid| living_threads(host, pid).is_empty()).collect();
        self.pids.retain(|pid| !(gone.contains(pid) && self.absent_pids.contains(pid)));
        self.absent_pids = gone;
        let living = self.living(target, host);
        let missing: FxHashSet<i32> = self.tids.difference(&living).copied().collect();
        // One that was missing the last time too has had its last records delivered.
        self.leaving.extend(missing.intersection(&self.absent));
        self.tids.retain(|tid| !(missing.contains(tid) && self.absent.contains(tid)));
        self.leaving.retain(|tid| !living.contains(tid));
        self.absent = missing;
        self.tids.extend(living);
    }
}

fn living_threads(host: &Host, pid: i32) -> Vec<i32> {
    // Of a process whose threads have all exited a zombie leader may be left.
    threads(host, pid).into_iter().filter(|&tid| tid != pid || procfs::is_alive(host, pid)).collect()
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

    /// A fixture of /proc: process, state, children.
    fn proc(processes: &[(i32, char, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, state, children) in processes {
            let task = dir.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("stat"), format!("{pid} (x) {state} 1 7 1")).unwrap();
            std::fs::write(task.join("children"), children).unwrap();
        }
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        (dir, host)
    }

    #[test]
    fn a_workload_whose_exec_was_lost_is_found_in_proc() {
        let (_dir, host) = proc(&[(7, 'S', "8 9"), (8, 'R', ""), (9, 'Z', ""), (10, 'S', "")]);
        let target = Target { tasks: Tasks::Workload(7), ..Target::everything() };
        let mut watched = Watched::BeforeExec(7);
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(7) && !watched.awaits_exec(), "it has not executed yet");
        watched.released();
        watched.refresh(&target, &host);
        assert!(!watched.contains(7) && watched.awaits_exec(), "its record may be on the way");
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && watched.contains(8) && !watched.contains(10) && !watched.awaits_exec());
        watched.apply(&exit(8));
        watched.apply(&exit(7));
        watched.apply(&exit(9));
        assert!(watched.is_over());
    }

    #[test]
    fn a_workload_whose_exec_comes_late() {
        let mut watched = Watched::BeforeExec(7);
        watched.released();
        watched.apply(&Record::Comm { pid: 7, tid: 7, comm: b"x", exec: true });
        assert!(watched.contains(7) && !watched.awaits_exec());
    }

    fn members(tids: &[i32], follow: bool) -> Watched {
        let tids: FxHashSet<i32> = tids.iter().copied().collect();
        Watched::Some(Members {
            pids: if follow { tids.clone() } else { FxHashSet::default() },
            tids,
            follow,
            until_exit: true,
            ..Members::default()
        })
    }

    #[test]
    fn named_threads_are_not_followed() {
        let mut watched = members(&[7, 3], false);
        watched.apply(&fork(8, 7));
        assert!(!watched.contains(8));
        assert_eq!(watched.fixed(), Some(vec![3, 7]));
        assert!(Watched::All.contains(1) && Watched::All.fixed().is_none());
    }

    #[test]
    fn an_exec_by_another_thread_keeps_the_process() {
        let mut watched = members(&[7, 8], true); // 8 is a thread of 7
        watched.apply(&exit(7));
        watched.apply(&Record::Comm { pid: 7, tid: 7, comm: b"x", exec: true });
        watched.apply(&fork(9, 7));
        assert!(watched.contains(7) && watched.contains(9));
    }

    #[test]
    fn proc_corrects_the_set_at_the_second_look() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        for tid in ["7", "8"] {
            let task = dir.path().join("7/task").join(tid);
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("stat"), format!("{tid} (x) S 1")).unwrap();
        }
        let target = Target { wanted: None, tasks: Tasks::Processes(vec![7]) };
        let mut watched = members(&[7, 99], true); // 99 is gone, 8 was never seen
        watched.refresh(&target, &host);
        assert!(watched.contains(8) && watched.contains(99));
        std::fs::write(dir.path().join("7/task/7/stat"), "7 (x) Z 1").unwrap();
        std::fs::remove_dir_all(dir.path().join("7/task/8")).unwrap();
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(watched.is_over(), "{watched:?}");
    }
}
