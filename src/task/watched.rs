//! Which tasks the answer is about, kept true while they fork and exit.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::{Host, threads};
use crate::perf::Record;
use crate::perf::target::{Target, Tasks};
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
    /// Whom /proc is asked about, and when each was started, once that is known: the same number may belong to another later.
    /// Processes when threads and children are followed, else the threads that were named.
    asked: FxHashMap<i32, Option<u64>>,
    /// Have said farewell and still switch away once. So many looks at /proc ago.
    leaving: FxHashMap<i32, u32>,
    /// Not in /proc at the last look: their last records may still be on the way.
    absent: FxHashSet<i32>,
    /// Of those asked about, the ones without a living thread there: their numbers will be used again.
    absent_asked: FxHashSet<i32>,
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
            Tasks::Threads(tids) => Members { asked: unseen(tids), until_exit: true, ..Members::default() },
            Tasks::Processes(pids) => {
                Members { asked: unseen(pids), follow: true, until_exit: true, ..Members::default() }
            }
            Tasks::Cgroups(_) => Members { follow: true, ..Members::default() },
        };
        members.strike_out_reused(host);
        members.tids = members.living(target, host);
        Watched::Some(members)
    }

    #[inline]
    pub fn contains(&self, tid: i32) -> bool {
        match self {
            Watched::All => true,
            Watched::Some(members) => members.tids.contains(&tid) || members.leaving.contains_key(&tid),
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

    /// True for a process whose threads and children belong to the answer.
    pub fn has_process(&self, pid: i32) -> bool {
        match self {
            Watched::Some(members) => members.asked.contains_key(&pid) || members.tids.contains(&pid),
            _ => self.contains(pid),
        }
    }

    /// A process that belongs to the answer from now on.
    pub fn join(&mut self, pid: i32, host: &Host) {
        if let Watched::Some(members) = self {
            members.asked.insert(pid, procfs::start_ticks(host, pid));
            for tid in living_threads(host, pid) {
                members.leaving.remove(&tid); // the number is used again
                members.tids.insert(tid);
            }
        }
    }

    /// True when every task of the answer has exited.
    pub fn is_over(&self) -> bool {
        matches!(self, Watched::Some(members) if members.until_exit && members.tids.is_empty())
    }

    /// The threads as they are now. None: whoever runs.
    pub fn now(&self) -> Option<Vec<i32>> {
        match self {
            Watched::All => None,
            Watched::Some(members) => Some(members.tids.iter().copied().collect()),
            Watched::BeforeExec(pid) | Watched::Released { pid, .. } => Some(vec![*pid]),
        }
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

/// Looks at /proc for which one that has exited still counts, at two a second: its last records may be on the way.
const LAST_LOOKS: u32 = 1;

impl Members {
    /// Processes of a workload: what they create belongs to them, and with the last of them it is over.
    fn of_workload(pids: &[i32]) -> Members {
        let tids = pids.iter().copied().collect();
        Members { tids, asked: unseen(pids), follow: true, until_exit: true, ..Members::default() }
    }

    fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Fork(fork) => {
                self.leaving.remove(&fork.tid); // the number is used again
                if self.follow && self.tids.contains(&fork.ptid) {
                    self.tids.insert(fork.tid);
                    let started = self.asked.entry(fork.pid).or_default();
                    if fork.pid == fork.tid {
                        *started = None; // another one of ours may have had the number before
                    }
                }
            }
            Record::Exit(exit) => {
                self.leaving.extend(self.tids.take(&exit.tid).map(|tid| (tid, 0)));
                if !self.follow {
                    self.asked.remove(&exit.tid);
                }
            }
            // Whichever thread executes, it goes on under the number of its process.
            Record::Comm { pid, tid, exec: true, .. } if self.follow && self.asked.contains_key(pid) => {
                self.leaving.remove(tid);
                self.tids.insert(*tid);
            }
            _ => {}
        }
    }

    fn living(&self, target: &Target, host: &Host) -> FxHashSet<i32> {
        match &target.tasks {
            Tasks::Cgroups(groups) => groups.iter().flat_map(|group| group.threads()).collect(),
            _ => self.asked.keys().flat_map(|&number| self.living_of(host, number)).collect(),
        }
    }

    /// The living threads of one that /proc is asked about.
    fn living_of(&self, host: &Host, number: i32) -> Vec<i32> {
        match self.follow {
            true => living_threads(host, number),
            false => Some(number).filter(|&tid| procfs::is_alive(host, tid)).into_iter().collect(),
        }
    }

    fn refresh(&mut self, target: &Target, host: &Host) {
        self.strike_out_reused(host);
        let gone: FxHashSet<i32> =
            self.asked.keys().copied().filter(|&number| self.living_of(host, number).is_empty()).collect();
        self.asked.retain(|number, _| !(gone.contains(number) && self.absent_asked.contains(number)));
        self.absent_asked = gone;
        let living = self.living(target, host);
        self.leaving.retain(|tid, looks| {
            *looks += 1;
            *looks <= LAST_LOOKS && !living.contains(tid)
        });
        let missing: FxHashSet<i32> = self.tids.difference(&living).copied().collect();
        for tid in missing.intersection(&self.absent) {
            self.tids.remove(tid);
            // One that lives has been moved out of the target, or is another that has got the number.
            if !procfs::is_alive(host, *tid) {
                self.leaving.insert(*tid, 0);
            }
        }
        self.absent = missing;
        self.tids.extend(living);
    }

    /// Strikes out those whose numbers belong to others now. Even an exec by another thread keeps the time of the start.
    fn strike_out_reused(&mut self, host: &Host) {
        let Members { asked, tids, leaving, .. } = self;
        asked.retain(|number, known| {
            let started = procfs::start_ticks(host, *number);
            let is_same = known.is_none() || started.is_none() || *known == started;
            if !is_same {
                tids.remove(number);
                leaving.remove(number);
            }
            *known = known.or(started);
            is_same
        });
    }
}

/// Nothing is known yet of when they were started.
fn unseen(numbers: &[i32]) -> FxHashMap<i32, Option<u64>> {
    numbers.iter().map(|&number| (number, None)).collect()
}

pub(super) fn living_threads(host: &Host, pid: i32) -> Vec<i32> {
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
        Watched::Some(Members {
            tids: tids.iter().copied().collect(),
            asked: unseen(tids),
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

    /// Puts a task into a fixture of /proc, or another in its place.
    fn put(host: &Host, tid: i32, state: char, start: u64) {
        let task = host.proc.join(format!("{tid}/task/{tid}"));
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("stat"), format!("{tid} (x) {state}{} {start} 0", " 0".repeat(18))).unwrap();
    }

    fn remove(host: &Host, tid: i32) {
        std::fs::remove_dir_all(host.proc.join(tid.to_string())).unwrap();
    }

    #[test]
    fn the_last_records_of_one_that_exited_count_and_no_later_ones() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]);
        let target = Target { wanted: None, tasks: Tasks::Processes(vec![7, 8]) };
        let mut watched = Watched::new(&target, &host);
        watched.apply(&exit(8));
        remove(&host, 8);
        watched.refresh(&target, &host);
        assert!(watched.contains(8), "its last switch may be on the way");
        // The record of the fork that uses the number again was lost.
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && !watched.contains(8));
        // Its own exit was lost.
        remove(&host, 7);
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && watched.is_over());
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(7));
    }

    #[test]
    fn who_left_the_target_alive_does_not_count() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]);
        // A cgroup without tasks, which both have left.
        let target = Target { wanted: None, tasks: Tasks::Cgroups(Vec::new()) };
        let mut watched = members(&[7, 8], true);
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && watched.contains(8), "what they did inside may be on the way");
        remove(&host, 8);
        watched.refresh(&target, &host);
        assert!(!watched.contains(7) && watched.contains(8));
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(8));
    }

    #[test]
    fn a_number_that_is_used_again_is_somebody_else() {
        for tasks in [Tasks::Threads(vec![7, 8]), Tasks::Processes(vec![7, 8])] {
            let (_dir, host) = proc(&[]);
            put(&host, 7, 'S', 100);
            put(&host, 8, 'S', 100);
            let target = Target { wanted: None, tasks };
            let mut watched = Watched::new(&target, &host);
            // Seen to exit, or not.
            for (exits, tid) in [(true, 7), (false, 8)] {
                assert!(watched.contains(tid) && !watched.is_over(), "{target:?}");
                if exits {
                    watched.apply(&exit(tid));
                    watched.apply(&fork(tid, 1));
                }
                put(&host, tid, 'S', 200);
                watched.refresh(&target, &host);
                assert!(!watched.contains(tid), "{target:?}: {watched:?}");
                watched.refresh(&target, &host);
                assert!(!watched.contains(tid), "{target:?}: {watched:?}");
            }
            assert!(watched.is_over(), "{target:?}: {watched:?}");
        }
    }

    #[test]
    fn a_thread_that_exited_is_not_asked_for_again() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]); // when they were started cannot be read
        let target = Target { wanted: None, tasks: Tasks::Threads(vec![7, 8]) };
        let mut watched = Watched::new(&target, &host);
        watched.apply(&exit(7));
        watched.apply(&fork(7, 1));
        watched.refresh(&target, &host);
        assert!(watched.contains(8) && !watched.contains(7));
        remove(&host, 8);
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        put(&host, 8, 'S', 100);
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(8));
    }

    #[test]
    fn a_number_that_one_of_ours_uses_again_is_ours() {
        let (_dir, host) = proc(&[]);
        put(&host, 7, 'S', 100);
        put(&host, 8, 'S', 100);
        let target = Target { wanted: None, tasks: Tasks::Processes(vec![7, 8]) };
        let mut watched = Watched::new(&target, &host);
        watched.apply(&exit(8));
        watched.apply(&fork(8, 7));
        put(&host, 8, 'S', 200);
        watched.refresh(&target, &host);
        assert!(watched.contains(8), "{watched:?}");
    }

    #[test]
    fn those_of_now_are_for_a_cpu_that_comes_online() {
        let mut watched = members(&[7], true);
        watched.apply(&fork(8, 7));
        watched.apply(&exit(7));
        assert_eq!(watched.now(), Some(vec![8]));
        assert_eq!((Watched::All.now(), Watched::BeforeExec(7).now()), (None, Some(vec![7])));
    }
}
