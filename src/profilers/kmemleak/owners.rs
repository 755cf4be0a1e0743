//! The tasks that allocate, numbered.

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
    /// The last task that was looked up: events of one task often follow each other.
    latest: (NamedTask, u32),
}

impl Default for Owners {
    fn default() -> Owners {
        let nobody = NamedTask { pid: ANY_PID, comm: Comm::default() };
        let mut owners =
            Owners { tasks: vec![TaskOfRow::default()], numbers: FxHashMap::default(), latest: (nobody, 0) };
        owners.latest = (nobody, owners.add(nobody, Comm::default));
        owners
    }
}

impl Owners {
    /// The number of a task. `process`: the name of its process.
    #[inline(always)]
    pub fn number(&mut self, pid: i32, comm: Comm, process: impl FnOnce() -> Comm) -> u32 {
        let task = NamedTask { pid, comm };
        if self.latest.0 != task {
            let number = self.numbers.get(&task).copied().unwrap_or_else(|| self.add(task, process));
            self.latest = (task, number);
        }
        self.latest.1
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
}
