//! Tasks that have a part in a row, by what they have of it.

use std::cmp::Reverse;

use crate::escape::escape;
use crate::report::Value;
use crate::task::Comm;

/// Names listed in text and JSON.
const LISTED: usize = 2;
/// Tasks told apart in one row.
const MOST: usize = 64;

/// A task by its process and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamedTask {
    pub pid: i32,
    pub comm: Comm,
}

/// The part of a task in a row: compared by the first number, and then by the second.
type Part = [u64; 2];

/// Tasks, each with its part of the row.
#[derive(Clone, Debug, Default)]
pub struct Names {
    tasks: Vec<(Option<i32>, Comm, Part)>,
    /// Those without room.
    others: u64,
}

impl Names {
    /// One task, which has all. `pid`: if that is known.
    pub fn of(pid: Option<i32>, comm: Comm, part: [u64; 2]) -> Names {
        Names { tasks: vec![(pid, comm, part)], others: 0 }
    }

    pub fn merge(&mut self, other: &Names) {
        self.others += other.others;
        for &(pid, comm, part) in &other.tasks {
            let has_room = self.tasks.len() < MOST;
            match self.tasks.iter_mut().find(|(its_pid, its_comm, _)| (*its_pid, *its_comm) == (pid, comm)) {
                Some((_, _, sum)) => add(sum, part),
                None if has_room => self.tasks.push((pid, comm, part)),
                None => self.others += 1,
            }
        }
    }

    /// The name that has most.
    pub fn heaviest(&self) -> Option<Comm> {
        self.by_name().first().map(|(comm, _)| *comm)
    }

    /// The process that has most of those of that name.
    pub fn heaviest_pid(&self) -> Option<i32> {
        let comm = self.heaviest()?;
        let of_name = self.tasks.iter().filter(|(_, its_comm, _)| *its_comm == comm);
        of_name.max_by_key(|(pid, _, part)| (*part, Reverse(*pid)))?.0
    }

    /// The names, those with most first, and how many more there are.
    pub fn words(&self) -> Value {
        let names = self.by_name();
        let more = names.len().saturating_sub(LISTED) as u64 + self.others;
        let mut words: Vec<String> = names.iter().take(LISTED).map(|(comm, _)| spelt(*comm)).collect();
        words.extend((more > 0).then(|| format!("+{more}")));
        Value::Words(words.into())
    }

    fn by_name(&self) -> Vec<(Comm, Part)> {
        let mut names: Vec<(Comm, Part)> = Vec::new();
        for &(_, comm, part) in &self.tasks {
            match names.iter_mut().find(|(known, _)| *known == comm) {
                Some((_, sum)) => add(sum, part),
                None => names.push((comm, part)),
            }
        }
        names.sort_by_key(|(comm, part)| (Reverse(*part), *comm));
        names
    }

    pub fn heap_bytes(&self) -> usize {
        self.tasks.capacity() * size_of::<(Option<i32>, Comm, Part)>()
    }
}

fn add(sum: &mut Part, part: Part) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.saturating_add(part));
}

fn spelt(comm: Comm) -> String {
    if comm.is_empty() { "<gone>".to_owned() } else { escape(comm.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tasks: &[(i32, &str, u64)]) -> Names {
        let mut names = Names::default();
        for (pid, comm, part) in tasks {
            names.merge(&Names::of(Some(*pid), Comm::new(comm.as_bytes()), [*part, 1]));
        }
        names
    }

    #[test]
    fn the_heaviest_come_first() {
        let mut all = names(&[(1, "a", 5), (2, "b", 4), (3, "b", 3), (4, "c\x1b", 6), (1, "a", 0)]);
        let words = |names: &Names| match names.words() {
            Value::Words(words) => words.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!((all.heaviest(), all.heaviest_pid()), (Some(Comm::new(b"b")), Some(2)));
        assert_eq!(words(&all), "b c\\x1b +1");
        all.merge(&names(&[(3, "b", 2), (9, "", 90)]));
        assert_eq!((words(&all), all.heaviest_pid()), ("<gone> b +2".to_owned(), Some(9)));
        (0..100).for_each(|pid| all.merge(&Names::of(Some(pid), Comm::new(b"z"), [0, 0])));
        assert_eq!(all.tasks.len(), MOST);
        assert!(names(&[]).heaviest().is_none());
    }
}
