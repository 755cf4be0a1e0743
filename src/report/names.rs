//! The tasks that contributed to a row, ordered by their amounts.

use std::cmp::Reverse;

use crate::escape::escape;
use crate::report::Value;
use crate::task::Comm;

/// Number of names listed in text and JSON.
const LISTED: usize = 2;
/// Limit of the distinct tasks of a row.
const LIMIT: usize = 64;

/// A task by its process and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamedTask {
    pub pid: i32,
    pub comm: Comm,
}

/// What a task contributes to a row: compared by the first number, then by the second.
type TaskAmount = [u64; 2];

/// Tasks, each with its contribution to the row.
#[derive(Clone, Debug, Default)]
pub struct TaskNames {
    tasks: Vec<(Option<i32>, Comm, TaskAmount)>,
    /// Number of tasks for which there was no room.
    others: u64,
}

impl TaskNames {
    /// The contribution of a single task. `pid`: None if unknown.
    pub fn of(pid: Option<i32>, comm: Comm, amount: [u64; 2]) -> TaskNames {
        TaskNames { tasks: vec![(pid, comm, amount)], others: 0 }
    }

    /// Processes of one name.
    pub fn of_processes(pids: impl IntoIterator<Item = i32>, comm: Comm) -> TaskNames {
        let mut pids = pids.into_iter();
        let tasks = pids.by_ref().take(LIMIT).map(|pid| (Some(pid), comm, [0; 2])).collect();
        TaskNames { tasks, others: pids.count() as u64 }
    }

    /// Number of tasks. Of many, those of one merged with those of another are not told apart.
    pub fn count(&self) -> u64 {
        self.tasks.len() as u64 + self.others
    }

    /// The process, if there is one alone.
    pub fn only_pid(&self) -> Option<i32> {
        if let ([(pid, _, _)], 0) = (&self.tasks[..], self.others) { *pid } else { None }
    }

    pub fn merge(&mut self, other: &TaskNames) {
        self.others += other.others;
        for &(pid, comm, amount) in &other.tasks {
            let has_room = self.tasks.len() < LIMIT;
            match self.tasks.iter_mut().find(|(its_pid, its_comm, _)| (*its_pid, *its_comm) == (pid, comm)) {
                Some((_, _, sum)) => add(sum, amount),
                None if has_room => self.tasks.push((pid, comm, amount)),
                None => self.others += 1,
            }
        }
    }

    /// The name with the greatest amount.
    pub fn heaviest(&self) -> Option<Comm> {
        self.by_name().first().map(|(comm, _)| *comm)
    }

    /// The process with the greatest amount among those with the heaviest name.
    pub fn heaviest_pid(&self) -> Option<i32> {
        let comm = self.heaviest()?;
        let of_name = self.tasks.iter().filter(|(_, its_comm, _)| *its_comm == comm);
        of_name.max_by_key(|(pid, _, amount)| (*amount, Reverse(*pid)))?.0
    }

    /// The names with the greatest amounts, and the number of further ones: `nginx java +3`.
    pub fn words(&self) -> Value {
        let names = self.by_name();
        let more = names.len().saturating_sub(LISTED) as u64 + self.others;
        let mut words: Vec<String> = names.iter().take(LISTED).map(|(comm, _)| spelt(*comm)).collect();
        words.extend((more > 0).then(|| format!("+{more}")));
        Value::Words(words.into())
    }

    fn by_name(&self) -> Vec<(Comm, TaskAmount)> {
        let mut names: Vec<(Comm, TaskAmount)> = Vec::new();
        for &(_, comm, amount) in &self.tasks {
            match names.iter_mut().find(|(known, _)| *known == comm) {
                Some((_, sum)) => add(sum, amount),
                None => names.push((comm, amount)),
            }
        }
        names.sort_by_key(|(comm, amount)| (Reverse(*amount), *comm));
        names
    }

    pub fn heap_bytes(&self) -> usize {
        self.tasks.capacity() * size_of::<(Option<i32>, Comm, TaskAmount)>()
    }
}

fn add(sum: &mut TaskAmount, amount: TaskAmount) {
    sum.iter_mut().zip(amount).for_each(|(sum, amount)| *sum = sum.saturating_add(amount));
}

fn spelt(comm: Comm) -> String {
    if comm.is_empty() { "<gone>".to_owned() } else { escape(comm.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tasks: &[(i32, &str, u64)]) -> TaskNames {
        let mut names = TaskNames::default();
        for (pid, comm, amount) in tasks {
            names.merge(&TaskNames::of(Some(*pid), Comm::new(comm.as_bytes()), [*amount, 1]));
        }
        names
    }

    #[test]
    fn the_heaviest_come_first() {
        let mut all = names(&[(1, "a", 5), (2, "b", 4), (3, "b", 3), (4, "c\x1b", 6), (1, "a", 0)]);
        let words = |names: &TaskNames| match names.words() {
            Value::Words(words) => words.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!((all.heaviest(), all.heaviest_pid()), (Some(Comm::new(b"b")), Some(2)));
        assert_eq!(words(&all), "b c\\x1b +1");
        all.merge(&names(&[(3, "b", 2), (9, "", 90)]));
        assert_eq!((words(&all), all.heaviest_pid()), ("<gone> b +2".to_owned(), Some(9)));
        (0..100).for_each(|pid| all.merge(&TaskNames::of(Some(pid), Comm::new(b"z"), [0, 0])));
        assert_eq!(all.tasks.len(), LIMIT);
        assert!(names(&[]).heaviest().is_none());
    }

    #[test]
    fn processes_are_counted() {
        let of = |pids: std::ops::Range<i32>| TaskNames::of_processes(pids, Comm::new(b"sh"));
        let mut few = of(7..8);
        assert_eq!((few.count(), few.only_pid()), (1, Some(7)));
        few.merge(&of(7..9));
        assert_eq!((few.count(), few.only_pid(), of(0..0).only_pid()), (2, None, None));
        let mut many = of(0..1190);
        assert_eq!((many.count(), many.only_pid(), many.tasks.len()), (1190, None, LIMIT));
        many.merge(&of(2000..2010));
        assert_eq!(many.count(), 1200);
    }
}
