//! Names and processes of threads: from /proc at the start, then from side records.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::{Host, processes, threads};
use crate::perf::Record;
use crate::task::ancestry::{Ancestor, Ancestry};
use crate::task::comm::Comm;
use crate::task::procfs;

/// An entry of the table.
#[derive(Clone, Copy, Debug, Default)]
struct KnownTask {
    pid: i32,
    comm: Comm,
    exited: bool,
}

const RECENT: usize = 64;

#[derive(Clone, Copy, Debug)]
struct RecentTasks([(Option<i32>, KnownTask); RECENT]);

impl Default for RecentTasks {
    fn default() -> RecentTasks {
        RecentTasks([Default::default(); RECENT])
    }
}

impl RecentTasks {
    #[inline(always)]
    fn slot(&mut self, tid: i32) -> &mut (Option<i32>, KnownTask) {
        &mut self.0[tid as usize % RECENT]
    }

    /// Drops the cached entry of `tid`, which may have changed.
    fn forget(&mut self, tid: i32) {
        self.slot(tid).0 = None;
    }
}

/// All threads seen, by tid. Records must be applied in time order, so that names are those at the time of the event.
#[derive(Debug, Default)]
pub struct TaskTable {
    host: Host,
    /// perf-prof is in a nested pid namespace: tid 0 is the idle task, or any task outside of the namespace.
    nested: bool,
    tasks: FxHashMap<i32, KnownTask>,
    /// The last look-up for each value of the low bits of a tid: consecutive events often have the same few tasks.
    recent: RecentTasks,
    /// Exited threads, with time. A task still raises events after its EXIT record, so it is forgotten later.
    exited: VecDeque<(u64, i32)>,
    /// Present after [`TaskTable::follow_ancestry`].
    ancestry: Option<Ancestry>,
}

/// Name of tasks outside of our pid namespace.
const OUTSIDE: &[u8] = b"<outside>";

/// How long an exited thread keeps its name, ns.
const KEEP_EXITED_NS: u64 = 2_000_000_000;

impl TaskTable {
    pub fn new(host: Host) -> TaskTable {
        TaskTable { nested: procfs::is_nested(&host), host, ..TaskTable::default() }
    }

    /// Reads the names of all living threads. Entries from records are newer, and are not replaced.
    pub fn scan(&mut self) {
        for pid in processes(&self.host) {
            for tid in threads(&self.host, pid) {
                if let Some(comm) = procfs::comm(&self.host, tid) {
                    self.tasks.entry(tid).or_insert(KnownTask { pid, comm, exited: false });
                }
            }
        }
    }

    /// Corrects the table from /proc, because records were lost before `now`.
    pub fn correct(&mut self, now: u64) {
        let mut living = FxHashSet::default();
        for pid in processes(&self.host) {
            for tid in threads(&self.host, pid) {
                // Only the first thread of a process is still listed after it has exited.
                let is_alive = tid != pid || procfs::is_alive(&self.host, tid);
                if let Some(comm) = procfs::comm(&self.host, tid).filter(|_| is_alive) {
                    living.insert(tid);
                    self.tasks.insert(tid, KnownTask { pid, comm, exited: false });
                }
            }
        }
        // Records of exited threads may still arrive, so they expire later.
        for (&tid, task) in self.tasks.iter_mut().filter(|(tid, task)| **tid > 0 && !task.exited) {
            if !living.contains(&tid) {
                task.exited = true;
                self.exited.push_back((now, tid));
            }
        }
        self.recent = RecentTasks::default();
        if let Some(ancestry) = &mut self.ancestry {
            ancestry.correct();
        }
    }

    /// The threads that have not exited, as (tid, pid).
    pub fn living(&self) -> impl Iterator<Item = (i32, i32)> + '_ {
        self.tasks.iter().filter(|(_, task)| !task.exited).map(|(&tid, task)| (tid, task.pid))
    }

    /// True for a known thread that has exited.
    pub fn has_exited(&self, tid: i32) -> bool {
        self.tasks.get(&tid).is_some_and(|task| task.exited)
    }

    /// The threads of a process that are known to live although its first thread has ended. If there is one when the
    /// process executes a program, that thread gets the tid of the first, and its own tid ends without a record:
    /// `de_thread`, fs/exec.c.
    pub fn left_of(&self, pid: i32) -> Vec<i32> {
        if self.tasks.get(&pid).is_some_and(|first| !first.exited) {
            return Vec::new();
        }
        self.living().filter(|&(tid, process)| process == pid && tid != pid).map(|(tid, _)| tid).collect()
    }

    /// The name of `tid`. For an unknown tid, /proc is read once. Empty if there is no such thread.
    #[inline(always)]
    pub fn comm(&mut self, tid: i32) -> Comm {
        self.task(tid).comm
    }

    /// Like [`TaskTable::comm`], for a number that may be no tid: the task that raises an event chooses these numbers,
    /// so numbers of no task are not remembered.
    pub fn comm_if_any(&mut self, tid: i32) -> Comm {
        let is_task = tid == 0 || self.tasks.contains_key(&tid) || procfs::comm(&self.host, tid).is_some();
        if is_task { self.comm(tid) } else { Comm::default() }
    }

    /// The process of `tid`; `tid` itself if it is unknown.
    #[inline(always)]
    pub fn pid(&mut self, tid: i32) -> i32 {
        self.task(tid).pid
    }

    /// Keeps track of parents of processes from now on.
    pub fn follow_ancestry(&mut self) {
        if self.ancestry.is_none() {
            self.ancestry = Some(Ancestry::new(self.host.clone()));
        }
    }

    /// See [`Ancestry::executes`].
    pub fn executes(&mut self, pid: i32, words: &[u8], is_cut: bool) {
        if let Some(ancestry) = &mut self.ancestry {
            ancestry.executes(pid, words, is_cut);
        }
    }

    /// A process and its ancestors, parent first, with their current names, see [`TaskTable::follow_ancestry`]. Empty
    /// for pid 0.
    pub fn lineage(&mut self, pid: i32) -> Vec<Ancestor> {
        let comm = self.comm(pid);
        self.ancestry.as_mut().map_or_else(Vec::new, |ancestry| ancestry.lineage(pid, comm))
    }

    #[inline(always)]
    fn task(&mut self, tid: i32) -> &KnownTask {
        if self.recent.slot(tid).0 != Some(tid) {
            self.look_up(tid);
        }
        &self.recent.slot(tid).1
    }

    #[inline(never)]
    fn look_up(&mut self, tid: i32) {
        let known = self.tasks.get(&tid).copied();
        let task = known.unwrap_or_else(|| self.read_task(tid));
        *self.recent.slot(tid) = (Some(tid), task);
    }

    #[cold]
    fn read_task(&mut self, tid: i32) -> KnownTask {
        let comm = match tid {
            0 if self.nested => Comm::new(OUTSIDE),
            0 => Comm::new(b"swapper"),
            1.. => procfs::comm(&self.host, tid).unwrap_or_default(),
            _ => Comm::default(),
        };
        let pid = if tid > 0 { procfs::pid_of(&self.host, tid).unwrap_or(tid) } else { tid };
        let task = KnownTask { pid, comm, exited: false };
        self.tasks.insert(tid, task);
        task
    }

    pub fn apply(&mut self, record: &Record<'_>, time: u64) {
        match *record {
            Record::Comm { pid, tid: tid @ 1.., comm, .. } => {
                self.recent.forget(tid);
                self.tasks.insert(tid, KnownTask { pid, comm: Comm::of_task(comm), exited: false });
            }
            // The parent of a task that enters this pid namespace is outside of it; the name of the task is in /proc.
            Record::Fork(fork) if fork.tid > 0 && fork.ptid > 0 => {
                let comm = self.comm(fork.ptid);
                self.recent.forget(fork.tid);
                self.tasks.insert(fork.tid, KnownTask { pid: fork.pid, comm, exited: false });
            }
            Record::Exit(exit) if exit.tid > 0 => {
                if let Some(task) = self.tasks.get_mut(&exit.tid) {
                    self.recent.forget(exit.tid);
                    task.exited = true;
                    self.exited.push_back((time, exit.tid));
                }
            }
            _ => {}
        }
        if let Some(ancestry) = &mut self.ancestry {
            ancestry.apply(record);
        }
    }

    /// Forgets threads that exited 2 s before `now`.
    pub fn expire(&mut self, now: u64) {
        while let Some(&(time, tid)) = self.exited.front()
            && time.saturating_add(KEEP_EXITED_NS) < now
        {
            self.exited.pop_front();
            self.recent.forget(tid);
            if self.tasks.get(&tid).is_some_and(|task| task.exited) {
                self.tasks.remove(&tid);
            }
            if let Some(ancestry) = &mut self.ancestry {
                ancestry.expire(tid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::TaskRecord;
    use crate::task::fixture::{FixtureProcess, write_stat};

    fn nowhere() -> TaskTable {
        TaskTable::new(Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() })
    }

    fn fork(pid: i32, tid: i32, ptid: i32) -> Record<'static> {
        Record::Fork(TaskRecord { pid, ppid: ptid, tid, ptid, time: 0 })
    }

    #[test]
    fn tasks_outside_of_a_nested_namespace_have_no_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[4026532000]", dir.path().join("self/ns/pid")).unwrap();
        for mut table in [TaskTable::new(Host { proc: dir.path().into(), cpu: dir.path().into() }), nowhere()] {
            let name = if table.nested { OUTSIDE } else { b"swapper" };
            table.apply(&Record::Comm { pid: 0, tid: 0, comm: b"rustc", exec: true }, 1);
            table.apply(&fork(0, 0, 0), 2);
            assert_eq!((table.comm(0).as_bytes(), table.pid(0)), (name, 0));
            table.apply(&fork(7, 7, 0), 3);
            assert_eq!(table.comm(7), Comm::default(), "its parent is outside");
            table.apply(&Record::Exit(TaskRecord { pid: 0, ppid: 0, tid: 0, ptid: 0, time: 4 }), 4);
            assert_eq!((table.comm(0).as_bytes(), table.exited.len()), (name, 0));
        }
    }

    /// Threads that share a slot of the recent look-ups, and a name that changes after it was looked up.
    #[test]
    fn recent_names_are_those_of_the_moment() {
        let mut table = nowhere();
        let other = 7 + RECENT as i32;
        let rename = |table: &mut TaskTable, tid, comm| {
            table.apply(&Record::Comm { pid: 7, tid, comm, exec: false }, 1);
        };
        rename(&mut table, 7, b"a");
        rename(&mut table, other, b"b");
        assert_eq!([table.comm(7), table.comm(other), table.comm(7)], [b"a", b"b", b"a"].map(|name| Comm::new(name)));
        rename(&mut table, other, b"c");
        rename(&mut table, 7, b"d");
        assert_eq!([table.comm(7), table.comm(other)], [b"d", b"c"].map(|name| Comm::new(name)));
        table.apply(&fork(7, other, 7), 2);
        assert_eq!(table.comm(other), Comm::new(b"d"), "that of its parent");
        table.apply(&Record::Exit(TaskRecord { pid: 7, ppid: 0, tid: 7, ptid: 0, time: 3 }), 3);
        table.expire(4 + KEEP_EXITED_NS);
        assert_eq!(table.comm(7), Comm::default());
    }

    #[test]
    fn a_thread_that_executes_a_program_in_place_of_the_first_one() {
        let mut table = nowhere();
        let exit = |tid| Record::Exit(TaskRecord { pid: 5, ppid: 1, tid, ptid: 1, time: 0 });
        for (record, left) in [
            (fork(5, 5, 1), &[][..]),
            (fork(5, 6, 5), &[]),
            (fork(5, 7, 5), &[]),
            (fork(8, 8, 1), &[]),
            (exit(5), &[6, 7]),
            (exit(6), &[7]),
            (Record::Comm { pid: 5, tid: 5, comm: b"sleep", exec: true }, &[]),
        ] {
            table.apply(&record, 1);
            let mut living = table.left_of(5);
            living.sort_unstable();
            assert_eq!(living, left, "{record:?}");
        }
    }

    #[test]
    fn numbers_of_no_task_are_not_remembered() {
        let process = FixtureProcess::new(7);
        process.write("comm", "sh\n");
        let mut table = TaskTable::new(process.host());
        let names = [7, 8, -1, i32::MAX, 0, 7].map(|tid| table.comm_if_any(tid));
        assert_eq!(names.each_ref().map(Comm::as_bytes), [b"sh", b"", b"", b"", b"swapper", b"sh"] as [&[u8]; 6]);
        let mut known: Vec<i32> = table.tasks.keys().copied().collect();
        known.sort_unstable();
        assert_eq!(known, [0, 7]);
    }

    #[test]
    fn names_are_those_of_the_moment() {
        let mut table = nowhere();
        table.apply(&Record::Comm { pid: 5, tid: 5, comm: b"sh", exec: false }, 1);
        table.apply(&fork(9, 9, 5), 2);
        assert_eq!(table.comm(9).as_bytes(), b"sh");
        table.apply(&Record::Comm { pid: 9, tid: 9, comm: b"ls", exec: true }, 3);
        assert_eq!((table.comm(9).as_bytes(), table.comm(5).as_bytes()), (&b"ls"[..], &b"sh"[..]));
        assert_eq!(table.pid(9), 9);
        table.apply(&fork(8, 9, 9), 4); // an odd record: a task that is its own parent
        assert_eq!((table.pid(9), table.comm(9).as_bytes()), (8, &b"ls"[..]));
    }

    #[test]
    fn proc_corrects_what_lost_records_left_wrong() {
        let dir = tempfile::tempdir().unwrap();
        for (tid, stat) in [(5, "5 (new) S 1"), (6, "6 (zombie) Z 1"), (7, "7 (unseen) D 1")] {
            let task = dir.path().join(format!("{tid}/task/{tid}"));
            std::fs::create_dir_all(&task).unwrap();
            write_stat(&task, stat);
        }
        let mut table = TaskTable::new(Host { proc: dir.path().into(), cpu: dir.path().into() });
        for tid in [5, 6, 8] {
            table.apply(&Record::Comm { pid: tid, tid, comm: b"old", exec: false }, 1);
        }
        table.correct(2);
        let mut living: Vec<(i32, i32)> = table.living().collect();
        living.sort_unstable();
        assert_eq!(living, [(5, 5), (7, 7)]);
        assert_eq!((table.comm(5).as_bytes(), table.comm(7).as_bytes()), (&b"new"[..], &b"unseen"[..]));
        assert_eq!(table.comm(8).as_bytes(), b"old", "its last records may still arrive");
        table.expire(3 + KEEP_EXITED_NS);
        assert_eq!(table.tasks.len(), 2);
    }

    #[test]
    fn exited_threads_keep_their_name_for_a_while() {
        let mut table = nowhere();
        table.apply(&Record::Comm { pid: 5, tid: 6, comm: b"worker", exec: false }, 1);
        table.apply(&Record::Exit(TaskRecord { pid: 5, ppid: 1, tid: 6, ptid: 5, time: 10 }), 10);
        table.expire(11);
        assert_eq!(table.comm(6).as_bytes(), b"worker");
        table.apply(&fork(6, 6, 1), 12); // the tid was used again
        table.expire(10 + KEEP_EXITED_NS + 1);
        assert!(table.tasks.contains_key(&6));
    }
}
