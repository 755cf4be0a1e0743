//! Which process created which, and their names: from /proc when a process is first seen, then from side records.
//!
//! Pids are reused. So a process refers to its parent by an entry of this table, not by pid, and the entry of a process
//! that has exited stays while any process that it created is known.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::{Host, processes};
use crate::perf::Record;
use crate::task::comm::Comm;
use crate::task::procfs;

/// A process in the lineage of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    pub pid: i32,
    /// Its current name; of an exited process, its last one.
    pub comm: Comm,
    /// The arguments of the program that it, or the process that it was forked from, has executed: words separated by
    /// blanks. None: no exec was seen.
    pub executed: Option<Arc<[u8]>>,
}

/// Bytes kept of the arguments of a program.
const MAX_COMMAND_BYTES: usize = 512;
/// Processes that are about to execute a program. The exec of most follows at once.
const MAX_EXECUTING: usize = 4096;

/// Most ancestors in a lineage.
const MAX_ANCESTORS: usize = 8;
/// Most exited processes that are kept for their descendants: in a chain of processes each may create the next and
/// exit. Beyond that, the oldest are forgotten, and lineages end before them.
const MAX_RETAINED: usize = 1 << 14;

/// Key of an entry, never reused.
type ProcessId = u64;

#[derive(Clone, Debug)]
struct Process {
    pid: i32,
    comm: Comm,
    executed: Option<Arc<[u8]>>,
    /// None if the process has no parent, or an unknown one.
    parent: Option<ProcessId>,
    /// Number of entries with this parent.
    children: u32,
    ended: bool,
}

/// The table of processes.
#[derive(Debug)]
pub struct Ancestry {
    host: Host,
    last: ProcessId,
    processes: FxHashMap<ProcessId, Process>,
    by_pid: FxHashMap<i32, ProcessId>,
    /// Entries without a pid, kept for their children; the oldest first.
    retained: BTreeSet<ProcessId>,
    /// By pid, the arguments of the program that the process was last about to execute.
    executing: FxHashMap<i32, Arc<[u8]>>,
}

impl Ancestry {
    /// Reads all living processes from /proc.
    pub fn new(host: Host) -> Ancestry {
        let living = processes(&host);
        let mut ancestry = Ancestry {
            host,
            last: 0,
            processes: FxHashMap::default(),
            by_pid: FxHashMap::default(),
            retained: BTreeSet::new(),
            executing: FxHashMap::default(),
        };
        for pid in living {
            ancestry.find(pid, Comm::default());
        }
        ancestry
    }

    /// A process and its ancestors, parent first. `comm`: the name of the process if neither this table nor /proc has
    /// it.
    pub fn lineage(&mut self, pid: i32, comm: Comm) -> Vec<Ancestor> {
        let mut lineage = Vec::with_capacity(1 + MAX_ANCESTORS);
        let mut next = self.find(pid, comm);
        while lineage.len() <= MAX_ANCESTORS
            && let Some(process) = next.and_then(|id| self.processes.get(&id))
        {
            let Process { pid, comm, ref executed, .. } = *process;
            lineage.push(Ancestor { pid, comm, executed: executed.clone() });
            next = process.parent;
        }
        lineage
    }

    /// A process is about to execute a program with these arguments, each terminated by a NUL byte. `is_cut`: there are
    /// more arguments.
    pub fn executes(&mut self, pid: i32, words: &[u8], is_cut: bool) {
        let words = words.strip_suffix(b"\0").unwrap_or(words);
        let (words, is_cut) = match words.get(..MAX_COMMAND_BYTES) {
            Some(first) => (first, true),
            None => (words, is_cut),
        };
        let mut text: Vec<u8> = words.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect();
        text.extend_from_slice(if is_cut { b"..." } else { b"" });
        if self.executing.len() >= MAX_EXECUTING {
            self.executing.clear();
        }
        self.executing.insert(pid, text.into());
    }

    /// Applies a record. Records must be in time order.
    pub fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::Comm { pid, tid, comm, exec: true } if pid == tid => {
                self.set_comm(pid, Comm::of_task(comm));
                let executed = self.executing.remove(&pid);
                if let Some(process) = self.by_pid.get(&pid).and_then(|id| self.processes.get_mut(id)) {
                    process.executed = executed;
                }
            }
            Record::Comm { pid, tid, comm, .. } if pid == tid => self.set_comm(pid, Comm::of_task(comm)),
            Record::Fork(fork) if fork.pid > 0 && fork.pid != fork.ppid => self.add_child(fork.pid, fork.ppid),
            Record::Exit(exit) if exit.pid == exit.tid => {
                if let Some(process) = self.by_pid.get(&exit.pid).and_then(|id| self.processes.get_mut(id)) {
                    process.ended = true;
                }
            }
            _ => {}
        }
    }

    /// Forgets an exited thread.
    pub fn expire(&mut self, tid: i32) {
        let process = self.by_pid.get(&tid).and_then(|id| self.processes.get(id));
        if process.is_some_and(|process| process.ended) {
            self.release_pid(tid);
        }
    }

    /// Corrects names and reused pids from /proc after records were lost.
    pub fn correct(&mut self) {
        self.executing.clear();
        let mut living = FxHashMap::default();
        for pid in processes(&self.host) {
            if let Some(stat) = procfs::brief(&self.host, pid).filter(procfs::BriefStatus::is_alive) {
                living.insert(pid, stat);
            }
        }
        let known: Vec<(i32, ProcessId)> = self.by_pid.iter().map(|(&pid, &id)| (pid, id)).collect();
        for (pid, id) in known {
            let Some(process) = self.processes.get(&id).cloned() else { continue };
            let Some(stat) = living.get(&pid) else {
                self.release_pid(pid);
                continue;
            };
            // An orphan gets another parent. A process whose parent changed although the old parent lives is a new
            // process.
            let parent = process.parent.and_then(|id| self.processes.get(&id)).map(|parent| parent.pid);
            let is_other = parent.is_some_and(|parent| parent != stat.parent && living.contains_key(&parent));
            if is_other || process.ended {
                self.release_pid(pid);
            } else {
                self.processes.entry(id).and_modify(|process| process.comm = stat.comm);
            }
        }
        for pid in living.into_keys() {
            self.find(pid, Comm::default());
        }
    }

    fn set_comm(&mut self, pid: i32, comm: Comm) {
        let id = self.find(pid, comm);
        if let Some(process) = id.and_then(|id| self.processes.get_mut(&id)) {
            // A thread that calls exec takes over the pid of the first thread, which has exited.
            (process.comm, process.ended) = (comm, false);
        }
    }

    fn add_child(&mut self, pid: i32, by: i32) {
        self.executing.remove(&pid); // from an earlier process with this pid
        let parent = self.find(by, Comm::default());
        if let Some(id) = self.by_pid.get(&pid).copied() {
            // The process was read from /proc before the record arrived.
            if self.processes.get(&id).is_some_and(|process| !process.ended && process.parent == parent) {
                return;
            }
            self.release_pid(pid);
        }
        let of_parent = parent.and_then(|id| self.processes.get(&id));
        let (comm, executed) = of_parent.map_or_else(Default::default, |of| (of.comm, of.executed.clone()));
        let id = self.enter(pid, comm, parent);
        self.processes.entry(id).and_modify(|process| process.executed = executed);
    }

    /// The entry of a pid. An unknown one is read from /proc, with its ancestors.
    fn find(&mut self, pid: i32, comm: Comm) -> Option<ProcessId> {
        let mut unknown = Vec::new();
        let mut next = pid;
        // Pid 0 is no process, or one outside of our pid namespace.
        while next > 0 && !self.by_pid.contains_key(&next) && unknown.iter().all(|(pid, _)| *pid != next) {
            let stat = procfs::brief(&self.host, next);
            unknown.push((next, stat.map_or(comm, |stat| stat.comm)));
            next = stat.map_or(0, |stat| stat.parent);
        }
        let mut found = self.by_pid.get(&next).copied();
        for (pid, comm) in unknown.into_iter().rev() {
            found = Some(self.enter(pid, comm, found));
        }
        found
    }

    fn enter(&mut self, pid: i32, comm: Comm, parent: Option<ProcessId>) -> ProcessId {
        self.last += 1;
        if let Some(parent) = parent.and_then(|id| self.processes.get_mut(&id)) {
            parent.children += 1;
        }
        self.processes.insert(self.last, Process { pid, comm, executed: None, parent, children: 0, ended: false });
        self.by_pid.insert(pid, self.last);
        self.last
    }

    /// Takes the pid from its entry.
    fn release_pid(&mut self, pid: i32) {
        let Some(id) = self.by_pid.remove(&pid) else { return };
        self.retained.insert(id);
        self.remove_unreferenced(id);
        if self.retained.len() > MAX_RETAINED
            && let Some(oldest) = self.retained.first().copied()
            && let Some(parent) = self.remove(oldest)
        {
            self.remove_unreferenced(parent);
        }
    }

    /// Forgets an exited process that has no known children, then its exited ancestors that have none any more.
    fn remove_unreferenced(&mut self, id: ProcessId) {
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| self.retained.contains(id))
            && self.processes.get(&id).is_none_or(|process| process.children == 0)
        {
            next = self.remove(id);
        }
    }

    /// Removes an entry, and returns its parent.
    fn remove(&mut self, id: ProcessId) -> Option<ProcessId> {
        self.retained.remove(&id);
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
    use crate::perf::record::TaskRecord;
    use crate::task::fixture::write_stat;

    fn put(root: &Path, pid: i32, stat: &str) {
        let task = root.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        write_stat(&task, stat);
    }

    /// Init (pid 1) and cron (pid 5).
    fn start() -> (tempfile::TempDir, Ancestry) {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 1, "1 (init) S 0 1");
        put(dir.path(), 5, "5 (cron) S 1 5");
        let ancestry = Ancestry::new(Host { proc: dir.path().into(), cpu: dir.path().into() });
        (dir, ancestry)
    }

    fn fork(pid: i32, ppid: i32) -> Record<'static> {
        Record::Fork(TaskRecord { pid, ppid, tid: pid, ptid: ppid, time: 0 })
    }

    fn exit(pid: i32) -> Record<'static> {
        Record::Exit(TaskRecord { pid, ppid: 0, tid: pid, ptid: 0, time: 0 })
    }

    fn exec(pid: i32, comm: &[u8]) -> Record<'_> {
        Record::Comm { pid, tid: pid, comm, exec: true }
    }

    fn lineage(ancestry: &mut Ancestry, pid: i32) -> String {
        let name = |known: Ancestor| format!("{} {}", String::from_utf8_lossy(known.comm.as_bytes()), known.pid);
        ancestry.lineage(pid, Comm::new(b"?")).into_iter().map(name).collect::<Vec<_>>().join(" < ")
    }

    #[test]
    fn ancestors_are_the_creating_processes() {
        let (_dir, mut ancestry) = start();
        let thread = Record::Fork(TaskRecord { pid: 9, ppid: 9, tid: 10, ptid: 9, time: 0 });
        for record in [fork(7, 5), exec(7, b"cleanup.sh"), fork(9, 7), exec(9, b"pkill"), thread, exit(7)] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 9), "pkill 9 < cleanup.sh 7 < cron 5 < init 1");
        assert_eq!(lineage(&mut ancestry, 1), "init 1");
        assert_eq!(lineage(&mut ancestry, 70), "? 70", "it is unknown");
        assert_eq!((lineage(&mut ancestry, 0), lineage(&mut ancestry, -1)), (String::new(), String::new()));
        for record in [fork(20, 21), fork(21, 20)] {
            ancestry.apply(&record);
        }
        assert!(lineage(&mut ancestry, 20).starts_with(" 20 <  21"), "a loop made by odd records");
    }

    #[test]
    fn what_was_executed_is_known_of_those_that_have_ended() {
        let (_dir, mut ancestry) = start();
        ancestry.apply(&fork(7, 5));
        ancestry.executes(7, b"/missing/sh\0-c\0x\0", false); // there is no such program
        ancestry.executes(7, b"sh\0/opt/job\0", false);
        for record in [exec(7, b"sh"), fork(8, 7), fork(9, 7)] {
            ancestry.apply(&record);
        }
        ancestry.executes(9, &[b"rm\0".as_slice(), &[b'x'; 600]].concat(), false);
        for record in [exec(9, b"rm"), exit(9), exit(7)] {
            ancestry.apply(&record);
        }
        let mut executed = |pid| {
            let lineage = ancestry.lineage(pid, Comm::new(b"?"));
            let text =
                |known: &Ancestor| known.executed.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
            lineage.iter().map(text).collect::<Vec<_>>()
        };
        let script = Some("sh /opt/job".to_owned());
        assert_eq!(executed(8), [script.clone(), script.clone(), None, None], "a copy of its parent");
        let long = executed(9)[0].clone().unwrap();
        assert!(long.starts_with("rm xxx") && long.ends_with("x...") && long.len() == MAX_COMMAND_BYTES + 3, "{long}");
        assert_eq!(executed(9)[1], script);
        // The pid is reused.
        ancestry.executes(70, b"other\0", false);
        for record in [fork(70, 5), exec(70, b"new")] {
            ancestry.apply(&record);
        }
        assert_eq!(ancestry.lineage(70, Comm::new(b"?"))[0].executed, None);
        for pid in 0..2 * MAX_EXECUTING as i32 {
            ancestry.executes(pid, b"x\0", false);
        }
        assert!(ancestry.executing.len() <= MAX_EXECUTING);
    }

    #[test]
    fn an_exited_process_is_kept_for_its_children() {
        let (_dir, mut ancestry) = start();
        for record in [fork(7, 5), exec(7, b"start.sh"), fork(9, 7), exec(9, b"daemon"), exit(7)] {
            ancestry.apply(&record);
        }
        ancestry.expire(7);
        assert_eq!(lineage(&mut ancestry, 9), "daemon 9 < start.sh 7 < cron 5 < init 1");
        // Its pid is reused.
        for record in [fork(7, 1), exec(7, b"other"), fork(8, 7)] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 9), "daemon 9 < start.sh 7 < cron 5 < init 1");
        assert_eq!(lineage(&mut ancestry, 8), "other 8 < other 7 < init 1");
        for pid in [9, 8, 7] {
            ancestry.apply(&exit(pid));
            ancestry.expire(pid);
        }
        assert_eq!((ancestry.processes.len(), ancestry.by_pid.len(), ancestry.retained.len()), (2, 2, 0));
    }

    #[test]
    fn a_thread_that_calls_exec_is_its_process() {
        let (_dir, mut ancestry) = start();
        for record in [fork(7, 5), exit(7), exec(7, b"new")] {
            ancestry.apply(&record);
        }
        ancestry.expire(7);
        assert_eq!(lineage(&mut ancestry, 7), "new 7 < cron 5 < init 1");
    }

    #[test]
    fn a_process_known_from_proc_is_not_added_twice() {
        let (dir, mut ancestry) = start();
        put(dir.path(), 8, "8 (child) S 7 8");
        put(dir.path(), 7, "7 (sh) S 5 7");
        assert_eq!(lineage(&mut ancestry, 8), "child 8 < sh 7 < cron 5 < init 1");
        for record in [fork(7, 5), exec(7, b"make")] {
            ancestry.apply(&record);
        }
        assert_eq!(lineage(&mut ancestry, 8), "child 8 < make 7 < cron 5 < init 1", "its current name");
    }

    #[test]
    fn a_chain_of_exited_processes_is_bounded() {
        let (_dir, mut ancestry) = start();
        let first = 10;
        ancestry.apply(&fork(first, 5));
        let last = first + MAX_RETAINED as i32 + 100;
        for pid in first..last {
            ancestry.apply(&fork(pid + 1, pid));
            ancestry.apply(&exit(pid));
            ancestry.expire(pid);
        }
        assert_eq!((ancestry.retained.len(), ancestry.by_pid.len()), (MAX_RETAINED, 3));
        assert_eq!(ancestry.processes.len(), MAX_RETAINED + 3);
        assert_eq!(ancestry.lineage(last, Comm::default()).len(), 1 + MAX_ANCESTORS);
    }

    #[test]
    fn proc_corrects_what_lost_records_left_wrong() {
        let (dir, mut ancestry) = start();
        for record in [fork(7, 5), fork(8, 7), fork(9, 8), fork(6, 5), exec(6, b"old")] {
            ancestry.apply(&record);
        }
        put(dir.path(), 7, "7 (sh) S 5 7");
        put(dir.path(), 8, "8 (other) S 1 8"); // its parent changed although 7 lives: it is not the child of 7
        put(dir.path(), 9, "9 (child) S 8 9");
        put(dir.path(), 10, "10 (unseen) S 9 10");
        ancestry.correct();
        assert_eq!(lineage(&mut ancestry, 8), "other 8 < init 1");
        assert_eq!(lineage(&mut ancestry, 7), "sh 7 < cron 5 < init 1");
        assert!(!ancestry.by_pid.contains_key(&6), "it has exited");
        assert!(lineage(&mut ancestry, 10).starts_with("unseen 10 < child 9 < "));
    }
}
