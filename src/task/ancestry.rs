//! Which process has made which, and how they were called: from /proc at first sight, from side records after.
//!
//! A number is used again when its process has gone. So what a process has come from is not a number but an entry here,
//! and that of a process that has gone stays for as long as any that it made is known.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::host::{Host, processes};
use crate::perf::Record;
use crate::task::procfs;
use crate::task::table::Comm;

/// A process that an event leads back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    pub pid: i32,
    /// As it was called then.
    pub comm: Comm,
}

/// Processes in a lineage at most, beside the first.
const MOST_ANCESTORS: usize = 8;
/// Processes that have gone and are kept for those that they have made, at most: one after the other may make the next
/// and end. Then the oldest are forgotten, and lineages end in front of them.
const MOST_GONE: usize = 1 << 14;

/// An entry: it is never given to another process.
type Id = u64;

#[derive(Clone, Copy, Debug)]
struct Process {
    pid: i32,
    comm: Comm,
    /// None: nobody, or nobody knows.
    parent: Option<Id>,
    /// Entries that have it as their parent.
    children: u32,
    ended: bool,
}

#[derive(Debug)]
pub struct Ancestry {
    host: Host,
    last: Id,
    processes: FxHashMap<Id, Process>,
    by_pid: FxHashMap<i32, Id>,
    /// Those that have lost their number and are kept for others, the oldest first.
    gone: BTreeSet<Id>,
}

impl Ancestry {
    /// All processes that live now, as /proc has them.
    pub fn new(host: Host) -> Ancestry {
        let living = processes(&host);
        let mut ancestry = Ancestry {
            host,
            last: 0,
            processes: FxHashMap::default(),
            by_pid: FxHashMap::default(),
            gone: BTreeSet::new(),
        };
        for pid in living {
            ancestry.find(pid, Comm::default());
        }
        ancestry
    }

    /// A process and those that have made it, the next one first. `comm`: how it is called, if /proc knows nothing of it.
    pub fn lineage(&mut self, pid: i32, comm: Comm) -> Vec<Ancestor> {
        let mut lineage = Vec::with_capacity(1 + MOST_ANCESTORS);
        let mut next = self.find(pid, comm);
        while lineage.len() <= MOST_ANCESTORS
            && let Some(process) = next.and_then(|id| self.processes.get(&id))
        {
            lineage.push(Ancestor { pid: process.pid, comm: process.comm });
            next = process.parent;
        }
        lineage
    }

    /// Records in the order of time.
    pub fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::Comm { pid, tid, comm, .. } if pid == tid => self.called(pid, Comm::new(comm)),
            Record::Fork(fork) if fork.pid > 0 && fork.pid != fork.ppid => self.made(fork.pid, fork.ppid),
            Record::Exit(exit) if exit.pid == exit.tid => {
                if let Some(process) = self.by_pid.get(&exit.pid).and_then(|id| self.processes.get_mut(id)) {
                    process.ended = true;
                }
            }
            _ => {}
        }
    }

    /// A thread that has exited is forgotten.
    pub fn expire(&mut self, tid: i32) {
        let process = self.by_pid.get(&tid).and_then(|id| self.processes.get(id));
        if process.is_some_and(|process| process.ended) {
            self.leave(tid);
        }
    }

    /// Records were lost: /proc says how processes are called, and whether their numbers are those of others by now.
    pub fn correct(&mut self) {
        let mut living = FxHashMap::default();
        for pid in processes(&self.host) {
            if let Some(stat) = procfs::stat(&self.host, pid).filter(procfs::Stat::is_alive) {
                living.insert(pid, stat);
            }
        }
        let known: Vec<(i32, Id)> = self.by_pid.iter().map(|(&pid, &id)| (pid, id)).collect();
        for (pid, id) in known {
            let Some(process) = self.processes.get(&id).copied() else { continue };
            let Some(stat) = living.get(&pid) else {
                self.leave(pid);
                continue;
            };
            // Whose parent has gone reports to another one. Who reports to another one though his parent lives is not he.
            let parent = process.parent.and_then(|id| self.processes.get(&id)).map(|parent| parent.pid);
            let is_other = parent.is_some_and(|parent| parent != stat.parent && living.contains_key(&parent));
            if is_other || process.ended {
                self.leave(pid);
            } else {
                self.processes.entry(id).and_modify(|process| process.comm = stat.comm);
            }
        }
        for pid in living.into_keys() {
            self.find(pid, Comm::default());
        }
    }

    fn called(&mut self, pid: i32, comm: Comm) {
        let id = self.find(pid, comm);
        if let Some(process) = id.and_then(|id| self.processes.get_mut(&id)) {
            // A thread that executes a program takes the place of the first one, which has exited.
            (process.comm, process.ended) = (comm, false);
        }
    }

    fn made(&mut self, pid: i32, by: i32) {
        let parent = self.find(by, Comm::default());
        if let Some(id) = self.by_pid.get(&pid).copied() {
            // /proc had it before the record came.
            if self.processes.get(&id).is_some_and(|process| !process.ended && process.parent == parent) {
                return;
            }
            self.leave(pid);
        }
        let comm = parent.and_then(|id| self.processes.get(&id)).map_or(Comm::default(), |parent| parent.comm);
        self.enter(pid, comm, parent);
    }

    /// A process by its number; one never seen is asked of /proc, with those that have made it.
    fn find(&mut self, pid: i32, comm: Comm) -> Option<Id> {
        let mut unknown = Vec::new();
        let mut next = pid;
        // Whoever has no number is nobody, or outside of our pid namespace.
        while next > 0 && !self.by_pid.contains_key(&next) && unknown.iter().all(|(pid, _)| *pid != next) {
            let stat = procfs::stat(&self.host, next);
            unknown.push((next, stat.map_or(comm, |stat| stat.comm)));
            next = stat.map_or(0, |stat| stat.parent);
        }
        let mut found = self.by_pid.get(&next).copied();
        for (pid, comm) in unknown.into_iter().rev() {
            found = Some(self.enter(pid, comm, found));
        }
        found
    }

    fn enter(&mut self, pid: i32, comm: Comm, parent: Option<Id>) -> Id {
        self.last += 1;
        if let Some(parent) = parent.and_then(|id| self.processes.get_mut(&id)) {
            parent.children += 1;
        }
        self.processes.insert(self.last, Process { pid, comm, parent, children: 0, ended: false });
        self.by_pid.insert(pid, self.last);
        self.last
    }

    /// A process loses its number.
    fn leave(&mut self, pid: i32) {
        let Some(id) = self.by_pid.remove(&pid) else { return };
        self.gone.insert(id);
        self.forget_unneeded(id);
        if self.gone.len() > MOST_GONE
            && let Some(oldest) = self.gone.first().copied()
            && let Some(parent) = self.remove(oldest)
        {
            self.forget_unneeded(parent);
        }
    }

    /// Forgets a process that has gone when none that it has made is known; then those that have made it.
    fn forget_unneeded(&mut self, id: Id) {
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| self.gone.contains(id))
            && self.processes.get(&id).is_none_or(|process| process.children == 0)
        {
            next = self.remove(id);
        }
    }

    /// Returns its parent.
    fn remove(&mut self, id: Id) -> Option<Id> {
        self.gone.remove(&id);
        let parent = self.processes.remove(&id)?.parent?;
        if let Some(parent) = self.processes.get_mut(&parent) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(parent)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::perf::record::Task;

    fn put(root: &Path, pid: i32, stat: &str) {
        let task = root.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("stat"), stat).unwrap();
    }

    /// An init and a cron.
    fn start() -> (tempfile::TempDir, Ancestry) {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 1, "1 (init) S 0 1");
        put(dir.path(), 5, "5 (cron) S 1 5");
        let ancestry = Ancestry::new(Host { proc: dir.path().into(), cpu: dir.path().into() });
        (dir, ancestry)
    }

    fn fork(pid: i32, ppid: i32) -> Record<'static> {
        Record::Fork(Task { pid, ppid, tid: pid, ptid: ppid, time: 0 })
    }

    fn exit(pid: i32) -> Record<'static> {
        Record::Exit(Task { pid, ppid: 0, tid: pid, ptid: 0, time: 0 })
    }

    fn exec(pid: i32, comm: &[u8]) -> Record<'_> {
        Record::Comm { pid, tid: pid, comm, exec: true }
    }

    fn lineage(ancestry: &mut Ancestry, pid: i32) -> String {
        let name = |known: Ancestor| format!("{} {}", String::from_utf8_lossy(known.comm.as_bytes()), known.pid);
        ancestry.lineage(pid, Comm::new(b"?")).into_iter().map(name).collect::<Vec<_>>().join(" < ")
    }

    #[test]
    fn ancestors_are_those_that_made_them() {
        let (_dir, mut ancestry) = start();
        let thread = Record::Fork(Task { pid: 9, ppid: 9, tid: 10, ptid: 9, time: 0 });
        for record in [fork(7, 5), exec(7, b"cleanup.sh"), fork(9, 7), exec(9, b"pkill"), thread, exit(7)] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 9), "pkill 9 < cleanup.sh 7 < cron 5 < init 1");
        assert_eq!(lineage(&mut ancestry, 1), "init 1");
        assert_eq!(lineage(&mut ancestry, 70), "? 70", "nobody knows it");
        assert_eq!((lineage(&mut ancestry, 0), lineage(&mut ancestry, -1)), (String::new(), String::new()));
        for record in [fork(20, 21), fork(21, 20)] {
            ancestry.apply(&record);
        }
        assert!(lineage(&mut ancestry, 20).starts_with(" 20 <  21"), "nonsense, but records");
    }

    #[test]
    fn one_that_has_gone_is_known_while_what_it_has_made_is() {
        let (_dir, mut ancestry) = start();
        for record in [fork(7, 5), exec(7, b"start.sh"), fork(9, 7), exec(9, b"daemon"), exit(7)] {
            ancestry.apply(&record);
        }
        ancestry.expire(7);
        assert_eq!(lineage(&mut ancestry, 9), "daemon 9 < start.sh 7 < cron 5 < init 1");
        // Its number is another's by now.
        for record in [fork(7, 1), exec(7, b"other"), fork(8, 7)] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 9), "daemon 9 < start.sh 7 < cron 5 < init 1");
        assert_eq!(lineage(&mut ancestry, 8), "other 8 < other 7 < init 1");
        for pid in [9, 8, 7] {
            ancestry.apply(&exit(pid));
            ancestry.expire(pid);
        }
        assert_eq!((ancestry.processes.len(), ancestry.by_pid.len(), ancestry.gone.len()), (2, 2, 0));
    }

    #[test]
    fn a_thread_that_executes_a_program_is_its_process() {
        let (_dir, mut ancestry) = start();
        for record in [fork(7, 5), exit(7), exec(7, b"new")] {
            ancestry.apply(&record);
        }
        ancestry.expire(7);
        assert_eq!(lineage(&mut ancestry, 7), "new 7 < cron 5 < init 1");
    }

    #[test]
    fn what_proc_had_first_is_not_made_twice() {
        let (dir, mut ancestry) = start();
        put(dir.path(), 8, "8 (child) S 7 8");
        put(dir.path(), 7, "7 (sh) S 5 7");
        assert_eq!(lineage(&mut ancestry, 8), "child 8 < sh 7 < cron 5 < init 1");
        for record in [fork(7, 5), exec(7, b"make")] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 8), "child 8 < make 7 < cron 5 < init 1", "it is called so now");
    }

    #[test]
    fn a_chain_of_those_that_have_gone_is_bounded() {
        let (_dir, mut ancestry) = start();
        let first = 10;
        ancestry.apply(&fork(first, 5));
        let last = first + MOST_GONE as i32 + 100;
        for pid in first..last {
            ancestry.apply(&fork(pid + 1, pid));
            ancestry.apply(&exit(pid));
            ancestry.expire(pid);
        }
        assert_eq!((ancestry.gone.len(), ancestry.by_pid.len()), (MOST_GONE, 3));
        assert_eq!(ancestry.processes.len(), MOST_GONE + 3);
        assert_eq!(ancestry.lineage(last, Comm::default()).len(), 1 + MOST_ANCESTORS);
    }

    #[test]
    fn proc_corrects_what_lost_records_left_wrong() {
        let (dir, mut ancestry) = start();
        for record in [fork(7, 5), fork(8, 7), fork(9, 8), fork(6, 5), exec(6, b"old")] {
            ancestry.apply(&record);
        }
        put(dir.path(), 7, "7 (sh) S 5 7");
        put(dir.path(), 8, "8 (other) S 1 8"); // though 7 lives: not the one that 7 has made
        put(dir.path(), 9, "9 (child) S 8 9");
        put(dir.path(), 10, "10 (unseen) S 9 10");
        ancestry.correct();
        assert_eq!(lineage(&mut ancestry, 8), "other 8 < init 1");
        assert_eq!(lineage(&mut ancestry, 7), "sh 7 < cron 5 < init 1");
        assert!(!ancestry.by_pid.contains_key(&6), "it has gone");
        assert!(lineage(&mut ancestry, 10).starts_with("unseen 10 < child 9 < "));
    }
}
