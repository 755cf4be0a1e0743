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

/// A task behind a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOfRow {
    /// None: not known.
    pub pid: Option<i32>,
    pub comm: Comm,
    /// The name of its process. Empty: not known.
    pub process: Comm,
}

/// What a task contributes to a row: compared by the first number, then by the second.
type TaskAmount = [u64; 2];

/// Tasks, each with its contribution to the row.
#[derive(Clone, Debug, Default)]
pub struct TaskNames {
    tasks: Vec<(TaskOfRow, TaskAmount)>,
    /// Number of tasks for which there was no room.
    others: u64,
}

impl TaskNames {
    /// A single task.
    pub fn of(task: TaskOfRow, amount: [u64; 2]) -> TaskNames {
        TaskNames { tasks: vec![(task, amount)], others: 0 }
    }

    /// Processes of one name.
    pub fn of_processes(pids: impl IntoIterator<Item = i32>, comm: Comm) -> TaskNames {
        let mut pids = pids.into_iter();
        let tasks =
            pids.by_ref().take(LIMIT).map(|pid| (TaskOfRow { pid: Some(pid), comm, process: comm }, [0; 2])).collect();
        TaskNames { tasks, others: pids.count() as u64 }
    }

    /// Number of tasks. Of many, those of one merged with those of another are not told apart.
    pub fn count(&self) -> u64 {
        self.tasks.len() as u64 + self.others
    }

    /// The process, if there is one alone.
    pub fn only_pid(&self) -> Option<i32> {
        if let ([(task, _)], 0) = (&self.tasks[..], self.others) { task.pid } else { None }
    }

    pub fn merge(&mut self, other: &TaskNames) {
        self.others += other.others;
        for &(task, amount) in &other.tasks {
            let has_room = self.tasks.len() < LIMIT;
            match self.tasks.iter_mut().find(|(known, _)| (known.pid, known.comm) == (task.pid, task.comm)) {
                Some((_, sum)) => add(sum, amount),
                None if has_room => self.tasks.push((task, amount)),
                None => self.others += 1,
            }
        }
    }

    /// The name with the greatest amount.
    pub fn heaviest(&self) -> Option<Comm> {
        self.by_name().first().map(|(comm, _)| *comm)
    }

    /// The task with the greatest amount among those with the heaviest name.
    pub fn heaviest_task(&self) -> Option<TaskOfRow> {
        let comm = self.heaviest()?;
        let of_name = self.tasks.iter().filter(|(task, _)| task.comm == comm);
        of_name.max_by_key(|(task, amount)| (*amount, Reverse(task.pid))).map(|(task, _)| *task)
    }

    /// The names with the greatest amounts, and the number of further ones: `nginx java +3`.
    pub fn words(&self) -> Value {
        let (names, more) = self.listed();
        let mut words: Vec<String> = names.iter().map(|comm| spelt(*comm)).collect();
        words.extend((more > 0).then(|| format!("+{more}")));
        Value::Words(words.into())
    }

    /// The name with the greatest amount, with its process, and the number of other names: `nginx 7`, `worker of java 8 +3`,
    /// `sh ×3` of three processes.
    pub fn with_process(&self) -> String {
        let (names, more) = self.listed();
        let Some(&comm) = names.first() else { return String::new() };
        let tasks: Vec<TaskOfRow> = self.tasks.iter().map(|(task, _)| *task).filter(|task| task.comm == comm).collect();
        let mut text = spelt(comm);
        if let Some(TaskOfRow { pid, process, .. }) = tasks.first() {
            let is_other = !process.is_empty() && *process != comm;
            if is_other && tasks.iter().all(|task| task.process == *process) {
                text += &format!(" of {}", spelt(*process));
            }
            match (pid, tasks.len()) {
                (Some(pid @ 1..), 1) => text += &format!(" {pid}"),
                (_, 1) => {}
                (_, many) => text += &format!(" ×{many}"),
            }
        }
        match more + names.len() as u64 - 1 {
            0 => text,
            others => format!("{text} +{others}"),
        }
    }

    /// The names with the greatest amounts, and the number of further ones.
    fn listed(&self) -> (Vec<Comm>, u64) {
        let names = self.by_name();
        let more = names.len().saturating_sub(LISTED) as u64 + self.others;
        (names.into_iter().take(LISTED).map(|(comm, _)| comm).collect(), more)
    }

    fn by_name(&self) -> Vec<(Comm, TaskAmount)> {
        let mut names: Vec<(Comm, TaskAmount)> = Vec::new();
        for &(task, amount) in &self.tasks {
            match names.iter_mut().find(|(known, _)| *known == task.comm) {
                Some((_, sum)) => add(sum, amount),
                None => names.push((task.comm, amount)),
            }
        }
        names.sort_by_key(|(comm, amount)| (Reverse(*amount), *comm));
        names
    }

    pub fn heap_bytes(&self) -> usize {
        self.tasks.capacity() * size_of::<(TaskOfRow, TaskAmount)>()
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

    fn task(pid: i32, comm: &str, process: &str) -> TaskOfRow {
        let [comm, process] = [comm, process].map(|name| Comm::new(name.as_bytes()));
        TaskOfRow { pid: Some(pid), comm, process }
    }

    fn names(tasks: &[(i32, &str, u64)]) -> TaskNames {
        let mut names = TaskNames::default();
        for (pid, comm, amount) in tasks {
            names.merge(&TaskNames::of(task(*pid, comm, ""), [*amount, 1]));
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
        let pid = |names: &TaskNames| names.heaviest_task().and_then(|task| task.pid);
        assert_eq!((all.heaviest(), pid(&all)), (Some(Comm::new(b"b")), Some(2)));
        assert_eq!(words(&all), "b c\\x1b +1");
        all.merge(&names(&[(3, "b", 2), (9, "", 90)]));
        assert_eq!((words(&all), pid(&all)), ("<gone> b +2".to_owned(), Some(9)));
        (0..100).for_each(|pid| all.merge(&TaskNames::of(task(pid, "z", ""), [0, 0])));
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

    #[test]
    fn a_name_has_its_process() {
        let text = |tasks: &[TaskOfRow]| {
            let mut names = TaskNames::default();
            (0..).zip(tasks).for_each(|(less, task)| names.merge(&TaskNames::of(*task, [100 - less, 1])));
            names.with_process()
        };
        let nameless = TaskOfRow { pid: None, ..task(0, "sh", "") };
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[task(7, "nginx", "nginx")]), "nginx 7");
        assert_eq!(text(&[task(7, "pool-1", "ja\x1bva"), task(8, "sh", "")]), "pool-1 of ja\\x1bva 7 +1");
        assert_eq!(text(&[task(7, "pool-1", "java"), task(8, "pool-1", "java")]), "pool-1 of java ×2");
        assert_eq!(text(&[task(7, "pool-1", "java"), task(8, "pool-1", "node")]), "pool-1 ×2");
        assert_eq!(text(&[task(0, "swapper/0", "swapper/0")]), "swapper/0");
        assert_eq!(text(&[nameless, task(0, "swapper/0", "swapper/0"), task(9, "", "")]), "sh +2");
    }
}
