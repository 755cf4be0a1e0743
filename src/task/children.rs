//! Short-lived processes. A build or a script creates thousands of them, each with a little of everything: they share
//! rows under the name of their parent.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::Record;
use crate::task::Comm;

/// A process with a shorter life is short-lived, ns.
const MOMENT_NS: u64 = 1_000_000_000;
/// Most processes that are followed at a time; further ones have rows of their own.
const LIMIT: usize = 1 << 16;
/// Most short-lived ancestors of a process that are skipped: records may name two processes as each other's parents.
const MAX_ANCESTORS: usize = 32;

/// A process that was born in this run.
#[derive(Clone, Copy, Debug)]
struct ProcessLife {
    comm: Comm,
    born_ns: u64,
    ended_ns: Option<u64>,
    parent: i32,
    /// The name of the parent at the birth of the process.
    parent_comm: Comm,
}

impl ProcessLife {
    fn was_short(&self) -> bool {
        self.ended_ns.is_some_and(|ended_ns| ended_ns.saturating_sub(self.born_ns) < MOMENT_NS)
    }
}

/// `gzip, of sh`. The text is escaped when it is printed, as all text is.
pub fn of_parent(comm: Comm, parent: Comm) -> String {
    let text = |comm: &Comm| String::from_utf8_lossy(comm.as_bytes()).into_owned();
    format!("{}, of {}", text(&comm), text(&parent))
}

/// The processes born in this run. A process is kept until the end of the interval in which it ends.
#[derive(Debug, Default)]
pub struct Children {
    lives: FxHashMap<i32, ProcessLife>,
    uncertain: bool,
}

impl Children {
    /// A task was born, renamed or ended at `time`. `name` gives the name of a process.
    pub fn apply(&mut self, record: &Record<'_>, time: u64, mut name: impl FnMut(i32) -> Comm) {
        match *record {
            Record::Fork(fork) if fork.pid > 0 && fork.pid == fork.tid && fork.pid != fork.ppid => {
                if self.lives.len() >= LIMIT && !self.lives.contains_key(&fork.pid) {
                    return;
                }
                let (comm, parent_comm) = (name(fork.pid), name(fork.ppid));
                let life = ProcessLife { comm, born_ns: time, ended_ns: None, parent: fork.ppid, parent_comm };
                self.lives.insert(fork.pid, life);
            }
            Record::Exit(exit) if exit.pid == exit.tid => {
                if let Some(life) = self.lives.get_mut(&exit.pid) {
                    life.ended_ns = Some(time);
                }
            }
            Record::Comm { pid, tid, comm, .. } if pid == tid => {
                if let Some(life) = self.lives.get_mut(&pid) {
                    // A thread that executes a program gets the tid of the first thread, which has exited.
                    (life.comm, life.ended_ns) = (Comm::of_task(comm), None);
                }
            }
            _ => {}
        }
    }

    /// Records of births and exits may be missing.
    pub fn lost(&mut self) {
        self.uncertain = true;
    }

    /// The name of the parent under which a process is summed. None: it was not short-lived.
    pub fn parent_of(&self, pid: i32) -> Option<Comm> {
        self.lives.get(&pid).filter(|life| life.was_short()).map(|life| self.lasting_ancestor(life))
    }

    /// The short-lived processes that ended in the interval, each with the name under which it is summed.
    pub fn ended(&self) -> impl Iterator<Item = (i32, Comm)> + '_ {
        let short = self.lives.iter().filter(|(_, life)| life.was_short());
        short.map(|(&pid, life)| (pid, self.lasting_ancestor(life)))
    }

    /// Merges the rows of short-lived processes of one group, if these are several. `pid` gives the process of a row,
    /// `group` the group that it belongs to under the name of a parent, and `merge` makes the row of a group from the rows of
    /// so many processes.
    pub fn fold<R, G: Eq + Hash>(
        &self,
        rows: impl Iterator<Item = R>,
        pid: impl Fn(&R) -> i32,
        group: impl Fn(&R, Comm) -> G,
        merge: impl Fn(G, Vec<R>, u64) -> R,
    ) -> Vec<R> {
        let (mut all, mut groups) = (Vec::new(), FxHashMap::<G, Vec<R>>::default());
        for row in rows {
            match self.parent_of(pid(&row)) {
                Some(parent) => groups.entry(group(&row, parent)).or_default().push(row),
                None => all.push(row),
            }
        }
        for (group, rows) in groups {
            match rows.iter().map(&pid).collect::<FxHashSet<i32>>().len() {
                1 => all.extend(rows),
                processes => all.push(merge(group, rows, processes as u64)),
            }
        }
        all
    }

    /// The name of the nearest ancestor that is not short-lived: make, not the shell or gcc between make and cc1.
    fn lasting_ancestor(&self, life: &ProcessLife) -> Comm {
        let mut life = life;
        for _ in 0..MAX_ANCESTORS {
            // If the process with the parent's pid was born later, the parent has ended, and its pid was reused.
            let parent = self.lives.get(&life.parent).filter(|parent| parent.born_ns <= life.born_ns);
            match parent {
                Some(parent) if parent.was_short() => life = parent,
                Some(parent) => return parent.comm,
                None => return life.parent_comm,
            }
        }
        life.parent_comm
    }

    /// Forgets the processes that have ended; all of them after a loss.
    pub fn next_interval(&mut self) {
        let uncertain = std::mem::take(&mut self.uncertain);
        self.lives.retain(|_, life| !uncertain && life.ended_ns.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::TaskRecord;

    const MS: u64 = 1_000_000;

    fn name(pid: i32) -> Comm {
        Comm::new(format!("p{pid}").as_bytes())
    }

    fn task(pid: i32, ppid: i32) -> TaskRecord {
        TaskRecord { pid, ppid, tid: pid, ptid: ppid, time: 0 }
    }

    fn born(children: &mut Children, pid: i32, ppid: i32, ms: u64) {
        children.apply(&Record::Fork(task(pid, ppid)), ms * MS, name);
    }

    fn ends(children: &mut Children, pid: i32, ms: u64) {
        children.apply(&Record::Exit(task(pid, 0)), ms * MS, name);
    }

    fn parent(children: &Children, pid: i32) -> Option<Comm> {
        children.parent_of(pid)
    }

    #[test]
    fn short_lived_processes_belong_to_the_nearest_lasting_ancestor() {
        let mut children = Children::default();
        born(&mut children, 10, 2, 0); // lives on
        born(&mut children, 11, 10, 100);
        born(&mut children, 12, 11, 110);
        children.apply(&Record::Comm { pid: 11, tid: 11, comm: b"gcc", exec: true }, 120 * MS, name);
        born(&mut children, 13, 2, 130);
        born(&mut children, 14, 2, 140);
        ends(&mut children, 12, 200);
        assert_eq!(parent(&children, 12), Some(Comm::new(b"gcc")), "nobody knows how long it will live");
        for (pid, ms) in [(11, 300), (13, 1129), (14, 1140)] {
            ends(&mut children, pid, ms);
        }
        assert_eq!([12, 11, 13].map(|pid| parent(&children, pid)), [name(10), name(10), name(2)].map(Some));
        assert_eq!([14, 10, 2, 99].map(|pid| parent(&children, pid)), [None; 4], "long, alive, old, unknown");
        let mut ended: Vec<(i32, Comm)> = children.ended().collect();
        ended.sort_unstable();
        assert_eq!(ended, [(11, name(10)), (12, name(10)), (13, name(2))]);
        children.next_interval();
        assert_eq!(children.lives.keys().collect::<Vec<_>>(), [&10]);
    }

    #[test]
    fn rows_of_short_lived_processes_are_merged() {
        let mut children = Children::default();
        (11..=15).for_each(|pid| born(&mut children, pid, 2, 0));
        (11..=14).for_each(|pid| ends(&mut children, pid, 100));
        // Process, kind and amount: 11 has two rows of one kind, 14 is alone with its kind, 15 lives, 9 is old.
        let rows = [
            (11, 'a', 1),
            (11, 'a', 2),
            (12, 'a', 4),
            (13, 'b', 8),
            (12, 'b', 16),
            (14, 'c', 32),
            (15, 'a', 64),
            (9, 'a', 128),
        ];
        let sum = |rows: &[(i32, char, u64)]| rows.iter().map(|row| row.2).sum::<u64>();
        let merge = |(kind, parent): (char, Comm), rows: Vec<(i32, char, u64)>, processes: u64| {
            assert_eq!(parent, name(2));
            (-(processes as i32), kind, sum(&rows))
        };
        let mut merged = children.fold(rows.into_iter(), |row| row.0, |row, parent| (row.1, parent), merge);
        merged.sort_unstable();
        assert_eq!(merged, [(-2, 'a', 7), (-2, 'b', 24), (9, 'a', 128), (14, 'c', 32), (15, 'a', 64)]);
    }

    #[test]
    fn numbers_are_used_again_and_records_are_lost() {
        let mut children = Children::default();
        born(&mut children, 11, 10, 0);
        born(&mut children, 10, 5, 100); // another process than the parent of 11
        ends(&mut children, 11, 200);
        ends(&mut children, 10, 200);
        assert_eq!((parent(&children, 11), parent(&children, 10)), (Some(name(10)), Some(name(5))));
        born(&mut children, 11, 6, 300);
        assert_eq!(parent(&children, 11), None, "it lives again");
        children.apply(&Record::Comm { pid: 10, tid: 10, comm: b"x", exec: true }, 300 * MS, name);
        assert_eq!(parent(&children, 10), None, "another thread of it took its place");
        children.lost();
        children.next_interval();
        assert!(children.lives.is_empty());
        // Records may name two processes as each other's parents.
        born(&mut children, 20, 21, 0);
        born(&mut children, 21, 20, 0);
        [20, 21].into_iter().for_each(|pid| ends(&mut children, pid, 1));
        assert!(parent(&children, 20).is_some());
        (0..i32::try_from(LIMIT).unwrap() + 10).for_each(|pid| born(&mut children, pid + 100, 2, 0));
        assert_eq!(children.lives.len(), LIMIT);
    }
}
