//! The set of tasks that a run is about, updated as they fork and exit.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::{Host, threads};
use crate::perf::Record;
use crate::perf::target::{Target, Tasks};
use crate::sys;
use crate::task::procfs;

/// The tasks that a run is about.
#[derive(Debug)]
pub enum Watched {
    All,
    Some(WatchedTasks),
    /// A workload before the exec of its command; it does not count yet.
    BeforeExec(i32),
    /// A workload that has executed its command, but whose COMM record has not arrived, or was lost. `looks`: refreshes
    /// since the exec.
    Released {
        pid: i32,
        looks: u32,
    },
}

/// A set of threads, updated by records and corrected from /proc at times.
#[derive(Debug, Default)]
pub struct WatchedTasks {
    tids: FxHashSet<i32>,
    /// Tasks that are looked up in /proc: processes with `follow`, else the given threads. With their start time once
    /// it is known, since ids are reused.
    targets: FxHashMap<i32, Option<u64>>,
    /// Threads whose EXIT record has arrived, but that have one more switch to come; with the number of refreshes since
    /// then.
    leaving: FxHashMap<i32, u32>,
    /// The processes of the given threads: a thread that executes a program gets the tid of its first thread.
    processes: FxHashMap<i32, ProcessOfThread>,
    /// Threads missing in /proc at the last refresh, whose last records may still arrive.
    absent: FxHashSet<i32>,
    /// Tasks of `targets` without a living thread at the last refresh; their ids will be reused.
    absent_targets: FxHashSet<i32>,
    /// The earliest time of the next refresh of the whole set from /proc.
    next_refresh_ns: u64,
    /// New threads and children of these tasks join the set.
    follow: bool,
    /// The run ends when the last task of the set has exited.
    until_exit: bool,
}

/// The process of a given thread.
#[derive(Clone, Copy, Debug)]
struct ProcessOfThread {
    pid: i32,
    /// The thread has executed a program, and has the tid `pid` now.
    took_over: bool,
}

impl Watched {
    pub fn new(target: &Target, host: &Host) -> Watched {
        let mut members = match &target.tasks {
            Tasks::All => return Watched::All,
            Tasks::Workload(pid) => return Watched::BeforeExec(*pid),
            Tasks::Threads(tids) => WatchedTasks {
                targets: without_start_time(tids),
                processes: tids.iter().filter_map(|&tid| Some((tid, procfs::pid_of(host, tid)?.into()))).collect(),
                until_exit: true,
                ..WatchedTasks::default()
            },
            Tasks::Processes(pids) => WatchedTasks::of_processes(pids),
            Tasks::Cgroups(_) => WatchedTasks { follow: true, ..WatchedTasks::default() },
        };
        members.remove_reused(host);
        members.tids = members.living(target, host);
        Watched::Some(members)
    }

    #[inline]
    pub fn contains(&self, tid: i32) -> bool {
        match self {
            Watched::All => true,
            Watched::Some(members) => members.contain(tid),
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
                *self = Watched::Some(WatchedTasks::of_processes(&[*pid]));
            }
            (Watched::Some(members), record) => members.apply(record),
            _ => {}
        }
    }

    /// The thread `old` has executed a program, and gets the tid `pid`. There is no EXIT record for `old`.
    pub fn took_over(&mut self, old: i32, pid: i32) {
        if let Watched::Some(members) = self
            && members.tids.contains(&old)
        {
            members.leaving.remove(&pid); // the first thread has already ended
            members.tids.insert(pid);
            if !members.follow {
                members.targets.insert(pid, None);
                members.processes.insert(old, ProcessOfThread { pid, took_over: true });
            }
        }
    }

    /// The living given threads of a process whose first thread is not among them: if the process executes a program,
    /// one of these did so. For runs that only see records of the given threads.
    pub fn left_of(&self, pid: i32) -> Vec<i32> {
        let Watched::Some(members) = self else { return Vec::new() };
        let is_of = |tid: &i32| members.processes.get(tid).is_some_and(|process| process.pid == pid);
        let is_left = |tid: &i32| is_of(tid) && !members.tids.contains(&pid);
        members.tids.iter().copied().filter(is_left).collect()
    }

    /// The current tid of a given thread: an exec may have changed it.
    pub fn number_of(&self, tid: i32) -> i32 {
        let Watched::Some(members) = self else { return tid };
        members.processes.get(&tid).filter(|process| process.took_over).map_or(tid, |process| process.pid)
    }

    /// True for a task of the set that is not known to have ended.
    pub fn is_living(&self, tid: i32) -> bool {
        matches!(self, Watched::Some(members) if members.tids.contains(&tid))
    }

    /// Like [`refresh`](Watched::refresh), unless that would take more than 5 % of the time, as with thousands of
    /// processes.
    pub fn refresh_in_time(&mut self, target: &Target, host: &Host) {
        let now = sys::monotonic_ns();
        if !matches!(self, Watched::Some(members) if now < members.next_refresh_ns) {
            self.refresh(target, host);
        }
        if let Watched::Some(members) = self {
            members.next_refresh_ns = members.next_refresh_ns.max(next_refresh_ns(now, sys::monotonic_ns()));
        }
    }

    /// Corrects the set from /proc. Otherwise a lost record or a move between cgroups would leave it wrong.
    pub fn refresh(&mut self, target: &Target, host: &Host) {
        match self {
            Watched::Some(members) => members.refresh(target, host),
            Watched::Released { pid, looks: 0 } => *self = Watched::Released { pid: *pid, looks: 1 },
            // After half a second, the record must have been lost.
            Watched::Released { pid, .. } => {
                let mut pids = procfs::descendants(host, *pid);
                pids.push(*pid);
                *self = Watched::Some(WatchedTasks::of_processes(&pids));
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

    /// True while the record of the workload's exec is missing, so that its tasks are unknown.
    pub fn awaits_exec(&self) -> bool {
        matches!(self, Watched::Released { .. })
    }

    /// True for a process whose threads and children belong to the set.
    pub fn has_process(&self, pid: i32) -> bool {
        match self {
            Watched::Some(members) => members.targets.contains_key(&pid) || members.tids.contains(&pid),
            _ => self.contains(pid),
        }
    }

    /// Adds a process to the set.
    pub fn join(&mut self, pid: i32, host: &Host) {
        if let Watched::Some(members) = self {
            members.targets.insert(pid, procfs::start_ticks(host, pid));
            for tid in living_threads(host, pid) {
                members.leaving.remove(&tid); // the tid is reused
                members.tids.insert(tid);
            }
        }
    }

    /// True when all tasks of the set have exited.
    pub fn is_over(&self) -> bool {
        matches!(self, Watched::Some(members) if members.until_exit && members.tids.is_empty())
    }

    /// The current threads of the set. None: all tasks of the machine.
    pub fn now(&self) -> Option<Vec<i32>> {
        match self {
            Watched::All => None,
            Watched::Some(members) => Some(members.tids.iter().copied().collect()),
            Watched::BeforeExec(pid) | Watched::Released { pid, .. } => Some(vec![*pid]),
        }
    }

    /// The sorted tids that the threads of the set have and may get, if no other task can join: a thread that executes
    /// a program gets the tid of its first thread. Otherwise None.
    pub fn fixed(&self) -> Option<Vec<i32>> {
        match self {
            Watched::Some(members) if !members.follow => {
                let mut tids: Vec<i32> = members.tids.iter().copied().collect();
                tids.extend(members.processes.values().map(|process| process.pid));
                tids.sort_unstable();
                tids.dedup();
                Some(tids)
            }
            _ => None,
        }
    }
}

impl From<i32> for ProcessOfThread {
    fn from(pid: i32) -> ProcessOfThread {
        ProcessOfThread { pid, took_over: false }
    }
}

/// When the next refresh may begin after one that took from `began` to `ended`.
fn next_refresh_ns(began: u64, ended: u64) -> u64 {
    const MAX_SHARE: u64 = 20;
    began.saturating_add(ended.saturating_sub(began).saturating_mul(MAX_SHARE))
}

/// Refreshes, two per second, during which an exited thread still counts: its last records may still arrive.
const MAX_REFRESHES: u32 = 1;

impl WatchedTasks {
    #[inline(never)]
    fn contain(&self, tid: i32) -> bool {
        self.tids.contains(&tid) || self.leaving.contains_key(&tid)
    }

    /// The first threads of processes. Children join, and the run ends when the last task has exited.
    fn of_processes(pids: &[i32]) -> WatchedTasks {
        let tids = pids.iter().copied().collect();
        WatchedTasks {
            tids,
            targets: without_start_time(pids),
            follow: true,
            until_exit: true,
            ..WatchedTasks::default()
        }
    }

    fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Fork(fork) => {
                self.leaving.remove(&fork.tid); // the tid is reused
                if self.follow && self.tids.contains(&fork.ptid) {
                    self.tids.insert(fork.tid);
                    let started = self.targets.entry(fork.pid).or_default();
                    if fork.pid == fork.tid {
                        *started = None; // an earlier process of the set may have had this pid
                    }
                }
            }
            Record::Exit(exit) => {
                self.leaving.extend(self.tids.take(&exit.tid).map(|tid| (tid, 0)));
                if !self.follow {
                    self.targets.remove(&exit.tid);
                }
            }
            // A thread that calls exec gets the pid of its process as tid.
            Record::Comm { pid, tid, exec: true, .. } if self.follow && self.targets.contains_key(pid) => {
                self.leaving.remove(tid);
                self.tids.insert(*tid);
            }
            _ => {}
        }
    }

    fn living(&self, target: &Target, host: &Host) -> FxHashSet<i32> {
        match &target.tasks {
            Tasks::Cgroups(groups) => groups.iter().flat_map(|group| group.threads()).collect(),
            _ => self.targets.keys().flat_map(|&number| self.living_of(host, number)).collect(),
        }
    }

    /// The living threads of a task in `targets`.
    fn living_of(&self, host: &Host, number: i32) -> Vec<i32> {
        match self.follow {
            true => living_threads(host, number),
            false => Some(number).filter(|&tid| procfs::is_alive(host, tid)).into_iter().collect(),
        }
    }

    fn refresh(&mut self, target: &Target, host: &Host) {
        self.remove_reused(host);
        let gone: FxHashSet<i32> =
            self.targets.keys().copied().filter(|&number| self.living_of(host, number).is_empty()).collect();
        self.targets.retain(|number, _| !(gone.contains(number) && self.absent_targets.contains(number)));
        self.absent_targets = gone;
        let living = self.living(target, host);
        self.leaving.retain(|tid, looks| {
            *looks += 1;
            *looks <= MAX_REFRESHES && !living.contains(tid)
        });
        let missing: FxHashSet<i32> = self.tids.difference(&living).copied().collect();
        for tid in missing.intersection(&self.absent) {
            self.tids.remove(tid);
            // A missing thread that still lives has left the target, or its tid is reused.
            if !procfs::is_alive(host, *tid) {
                self.leaving.insert(*tid, 0);
            }
        }
        self.absent = missing;
        self.tids.extend(living);
    }

    /// Removes tasks whose ids are reused. They are recognised by their start time, which an exec in another thread
    /// keeps.
    fn remove_reused(&mut self, host: &Host) {
        let WatchedTasks { targets, tids, leaving, .. } = self;
        targets.retain(|number, known| {
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

/// Targets whose start time is not known yet.
fn without_start_time(numbers: &[i32]) -> FxHashMap<i32, Option<u64>> {
    numbers.iter().map(|&number| (number, None)).collect()
}

/// The living threads of a process.
pub(super) fn living_threads(host: &Host, pid: i32) -> Vec<i32> {
    // The first thread remains as a zombie while other threads live, or until the process is reaped.
    threads(host, pid).into_iter().filter(|&tid| tid != pid || procfs::is_alive(host, pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::TaskRecord;
    use crate::task::fixture::write_stat;

    fn fork(tid: i32, ptid: i32) -> Record<'static> {
        Record::Fork(TaskRecord { pid: tid, ppid: ptid, tid, ptid, time: 0 })
    }

    fn exit(tid: i32) -> Record<'static> {
        Record::Exit(TaskRecord { pid: tid, ppid: 0, tid, ptid: 0, time: 0 })
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
        assert!(watched.contains(7), "its last switch may still arrive");
        watched.apply(&fork(7, 1));
        assert!(!watched.contains(7), "the tid is reused");
        assert!(!watched.is_over());
        watched.apply(&exit(8));
        assert!(watched.is_over());
    }

    #[test]
    fn proc_is_asked_in_time() {
        assert_eq!([(5, 5), (5, 6), (6, 5)].map(|(began, ended)| next_refresh_ns(began, ended)), [5, 25, 6]);
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]);
        let target = Target { tasks: Tasks::Processes(vec![7]), ..Target::everything() };
        let mut watched = Watched::new(&target, &host);
        watched.apply(&fork(9, 7));
        let next_refresh = |at: u64, watched: &mut Watched| {
            let Watched::Some(members) = watched else { unreachable!("it has tasks") };
            members.next_refresh_ns = at;
            watched.refresh_in_time(&target, &host);
        };
        (0..2).for_each(|_| next_refresh(u64::MAX, &mut watched));
        assert!(watched.contains(9) && watched.has_process(9));
        (0..2).for_each(|_| next_refresh(0, &mut watched));
        assert!(!watched.has_process(9), "/proc does not have it");
    }

    /// A fixture of /proc with these processes: pid, state, children.
    fn proc(processes: &[(i32, char, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, state, children) in processes {
            let task = dir.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            write_stat(&task, &format!("{pid} (x) {state} 1 7 1"));
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
        assert!(!watched.contains(7) && !watched.awaits_exec(), "it has not called exec yet");
        watched.released();
        watched.refresh(&target, &host);
        assert!(!watched.contains(7) && watched.awaits_exec(), "its record may still arrive");
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

    #[test]
    fn a_thread_that_executes_a_program_is_followed() {
        let given = |tids: &[i32]| {
            let Watched::Some(mut members) = members(tids, false) else { unreachable!() };
            members.processes = tids.iter().map(|&tid| (tid, 7.into())).collect();
            Watched::Some(members)
        };
        let mut watched = given(&[8]);
        assert_eq!(watched.fixed(), Some(vec![7, 8]), "filters of the kernel pass both numbers");
        assert!(!watched.contains(7) && watched.left_of(9).is_empty());
        assert_eq!(watched.left_of(7), [8]);
        watched.took_over(8, 7);
        watched.apply(&exit(8));
        assert!(watched.is_living(7) && !watched.is_living(8) && !watched.is_over());
        assert_eq!((watched.number_of(8), watched.number_of(9)), (7, 9));
        watched.apply(&exit(7));
        assert!(watched.is_over());
        // The first thread is given, too: it has ended before another thread takes over its tid.
        let mut both = given(&[7, 8]);
        assert!(both.left_of(7).is_empty(), "it is the one that executes the program");
        both.apply(&exit(7));
        assert_eq!(both.left_of(7), [8]);
        both.took_over(8, 7);
        both.apply(&exit(8));
        assert_eq!(both.now(), Some(vec![7]));
        // Another thread than the given one executes the program.
        let mut first = given(&[7]);
        first.apply(&exit(7));
        first.took_over(8, 7);
        assert!(first.is_over());
    }

    fn members(tids: &[i32], follow: bool) -> Watched {
        Watched::Some(WatchedTasks {
            tids: tids.iter().copied().collect(),
            targets: without_start_time(tids),
            follow,
            until_exit: true,
            ..WatchedTasks::default()
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
    fn proc_corrects_the_set_at_the_second_refresh() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        for tid in ["7", "8"] {
            let task = dir.path().join("7/task").join(tid);
            std::fs::create_dir_all(&task).unwrap();
            write_stat(&task, &format!("{tid} (x) S 1"));
        }
        let target = Target { wanted: None, tasks: Tasks::Processes(vec![7]) };
        let mut watched = members(&[7, 99], true); // 99 is gone, 8 was never seen
        watched.refresh(&target, &host);
        assert!(watched.contains(8) && watched.contains(99));
        write_stat(&dir.path().join("7/task/7"), "7 (x) Z 1");
        std::fs::remove_dir_all(dir.path().join("7/task/8")).unwrap();
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(watched.is_over(), "{watched:?}");
    }

    /// Writes a task into a fixture of /proc.
    fn put(host: &Host, tid: i32, state: char, start: u64) {
        let task = host.proc.join(format!("{tid}/task/{tid}"));
        std::fs::create_dir_all(&task).unwrap();
        write_stat(&task, &format!("{tid} (x) {state}{} {start} 0", " 0".repeat(18)));
    }

    fn remove(host: &Host, tid: i32) {
        std::fs::remove_dir_all(host.proc.join(tid.to_string())).unwrap();
    }

    #[test]
    fn the_last_records_of_an_exited_thread_count_and_no_later_ones() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]);
        let target = Target { wanted: None, tasks: Tasks::Processes(vec![7, 8]) };
        let mut watched = Watched::new(&target, &host);
        watched.apply(&exit(8));
        remove(&host, 8);
        watched.refresh(&target, &host);
        assert!(watched.contains(8), "its last switch may still arrive");
        // The record of the fork that reuses the tid was lost.
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && !watched.contains(8));
        // The EXIT record was lost.
        remove(&host, 7);
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && watched.is_over());
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(7));
    }

    #[test]
    fn a_task_that_left_the_target_does_not_count() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]);
        // Both threads have left the cgroup.
        let target = Target { wanted: None, tasks: Tasks::Cgroups(Vec::new()) };
        let mut watched = members(&[7, 8], true);
        watched.refresh(&target, &host);
        assert!(watched.contains(7) && watched.contains(8), "records from before they left may still arrive");
        remove(&host, 8);
        watched.refresh(&target, &host);
        assert!(!watched.contains(7) && watched.contains(8));
        watched.refresh(&target, &host);
        watched.refresh(&target, &host);
        assert!(!watched.contains(8));
    }

    #[test]
    fn a_reused_id_is_another_task() {
        for tasks in [Tasks::Threads(vec![7, 8]), Tasks::Processes(vec![7, 8])] {
            let (_dir, host) = proc(&[]);
            put(&host, 7, 'S', 100);
            put(&host, 8, 'S', 100);
            let target = Target { wanted: None, tasks };
            let mut watched = Watched::new(&target, &host);
            // With EXIT record, or without.
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
    fn an_exited_thread_is_not_looked_up_again() {
        let (_dir, host) = proc(&[(7, 'S', ""), (8, 'S', "")]); // their start time cannot be read
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
    fn an_id_reused_within_the_set_stays_in_it() {
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
    fn lists_the_current_threads() {
        let mut watched = members(&[7], true);
        watched.apply(&fork(8, 7));
        watched.apply(&exit(7));
        assert_eq!(watched.now(), Some(vec![8]));
        assert_eq!((Watched::All.now(), Watched::BeforeExec(7).now()), (None, Some(vec![7])));
    }
}
