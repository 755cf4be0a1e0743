//! The tasks that allocate, numbered.
//!
//! The numbers of recent threads are found without hashing. Whatever may change the name of a thread, or give its tid
//! to another one, ends that: see [`Owners::forget_recent`].

use rustc_hash::FxHashMap;

use crate::report::{NamedTask, TaskOfRow};
use crate::task::Comm;

/// Most tasks distinguished by process and name; as many more are distinguished by name alone.
const LIMIT: usize = 1 << 16;
/// The pid of tasks that are distinguished by name alone: the kernel gives no process this pid.
const ANY_PID: i32 = i32::MIN;

#[derive(Debug)]
pub struct Owners {
    /// By number; the first is [`OURSELVES`](super::ledger::OURSELVES).
    tasks: Vec<TaskOfRow>,
    numbers: FxHashMap<NamedTask, u32>,
    /// By tid: see [`Owners::recent`].
    recent: [RecentOwner; RECENT],
}

/// A thread that has allocated a moment ago, and its number.
#[derive(Clone, Copy, Debug)]
struct RecentOwner {
    tid: i32,
    pid: i32,
    number: u32,
}

/// Entries of the table of recent threads.
const RECENT: usize = 64;
/// An entry of no thread: the kernel gives no thread this tid.
const NO_OWNER: RecentOwner = RecentOwner { tid: i32::MIN, pid: i32::MIN, number: 0 };

impl Default for Owners {
    fn default() -> Owners {
        Owners { tasks: vec![TaskOfRow::default()], numbers: FxHashMap::default(), recent: [NO_OWNER; RECENT] }
    }
}

impl Owners {
    /// The number of a thread that was kept with [`Owners::keep_recent`].
    #[inline(always)]
    pub fn recent(&self, pid: i32, tid: i32) -> Option<u32> {
        let recent = &self.recent[tid as usize % RECENT];
        (recent.tid == tid && recent.pid == pid).then_some(recent.number)
    }

    /// Keeps the number of a thread.
    pub fn keep_recent(&mut self, pid: i32, tid: i32, number: u32) {
        self.recent[tid as usize % RECENT] = RecentOwner { tid, pid, number };
    }

    /// Forgets the numbers of recent threads: a thread may have begun, ended or changed its name.
    pub fn forget_recent(&mut self) {
        self.recent = [NO_OWNER; RECENT];
    }

    /// The number of a task. `process`: the name of its process.
    pub fn number(&mut self, pid: i32, comm: Comm, process: impl FnOnce() -> Comm) -> u32 {
        let task = NamedTask { pid, comm };
        self.numbers.get(&task).copied().unwrap_or_else(|| self.add(task, process))
    }

    #[cold]
    fn add(&mut self, task: NamedTask, process: impl FnOnce() -> Comm) -> u32 {
        let task = match self.tasks.len() {
            ..=LIMIT => task,
            len if len <= 2 * LIMIT => NamedTask { pid: ANY_PID, ..task },
            _ => NamedTask { pid: ANY_PID, comm: Comm::new(b"<others>") },
        };
        *self.numbers.entry(task).or_insert_with(|| {
            let NamedTask { pid, comm } = task;
            let process = if pid == ANY_PID { Comm::default() } else { process() };
            self.tasks.push(TaskOfRow { pid: Some(pid).filter(|&pid| pid != ANY_PID), comm, process });
            self.tasks.len() as u32 - 1
        })
    }

    /// The task with this number. For a task that is distinguished by name alone, neither process nor pid is known.
    pub fn task(&self, number: u32) -> TaskOfRow {
        self.tasks.get(number as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_apart_as_long_as_there_is_room() {
        let mut owners = Owners::default();
        let (a, b) = (Comm::new(b"a"), Comm::new(b"b"));
        let mut number = |pid, comm| owners.number(pid, comm, || b);
        let task = |pid, process| TaskOfRow { pid, comm: a, process };
        let [first, again, other] = [(1, a), (1, a), (2, a)].map(|(pid, comm)| number(pid, comm));
        assert!(first == again && first != other);
        for pid in 3..3 + LIMIT as i32 {
            number(pid, b);
        }
        let last = number(i32::MAX, a);
        assert_eq!(number(i32::MAX - 1, a), last);
        assert_eq!(
            [other, last, first].map(|number| owners.task(number)),
            [task(Some(2), b), task(None, Comm::default()), task(Some(1), b)]
        );
    }

    #[test]
    fn recent_threads_are_known_until_something_changes() {
        let mut owners = Owners::default();
        assert_eq!([0, -1, i32::MIN + 1].map(|tid| owners.recent(0, tid)), [None; 3]);
        owners.keep_recent(7, 8, 3);
        owners.keep_recent(0, 0, 4);
        let recent = |owners: &Owners| {
            [(7, 8), (0, 0), (6, 8), (7, 8 + RECENT as i32)].map(|(pid, tid)| owners.recent(pid, tid))
        };
        assert_eq!(recent(&owners), [Some(3), Some(4), None, None]);
        owners.keep_recent(7, 8 + RECENT as i32, 5);
        assert_eq!(recent(&owners), [None, Some(4), None, Some(5)]);
        owners.forget_recent();
        assert_eq!(recent(&owners), [None; 4]);
    }
}
