//! How much of the time of its tasks a table tells of: of their lives in the interval, and of what is missing in them.
//!
//! What is missing is what no period holds: the difference of the two is right whatever the reason. Where a period was
//! thrown away whose beginning was seen, the state in which it began is known too.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::machine::{Began, Doing, Task};
use crate::profilers::task_state::states::{STATES, State};
use crate::profilers::task_state::{MOST_THREADS, TaskState};
use crate::task::Comm;

/// The lives of tasks, as far as they lie in the interval and are known: from the first event of a task, or from when /proc
/// told that it waits.
#[derive(Debug, Default)]
pub struct Lives {
    /// When the interval began.
    pub from: u64,
    /// Those that have ended in it.
    ended: Lifetimes,
    /// They are kept apart, too.
    apart: bool,
    ended_apart: FxHashMap<i32, u64>,
}

/// Tasks, and the sum of their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    pub tasks: u64,
    pub ns: u64,
}

impl Lifetimes {
    pub fn add(&mut self, ns: u64) {
        self.tasks += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl Lives {
    /// Threads have rows of their own.
    pub fn keep_apart(&mut self) {
        self.apart = true;
    }

    /// A life is over, or nothing is known of it from `until` on.
    #[cold]
    pub fn ended(&mut self, tid: i32, task: &Task, until: u64) {
        let ns = self.in_interval(task, until);
        self.ended.add(ns);
        if self.apart && (self.ended_apart.len() < MOST_THREADS || self.ended_apart.contains_key(&tid)) {
            let sum = self.ended_apart.entry(tid).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// What lies in the interval of a life up to `until`.
    pub fn in_interval(&self, task: &Task, until: u64) -> u64 {
        until.saturating_sub(task.known_from.max(self.from))
    }

    /// Those that have ended; the next interval begins `now`.
    pub fn take(&mut self, now: u64) -> (Lifetimes, FxHashMap<i32, u64>) {
        self.from = now;
        (std::mem::take(&mut self.ended), std::mem::take(&mut self.ended_apart))
    }
}

/// Time of the interval that was thrown away, as far as more is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// By the state in which it began.
    pub by_state: [u64; STATES],
    /// Of tasks that had left their CPU and did not tell why.
    pub hidden: u64,
}

impl Unseen {
    /// What was believed of `task` ended unseen some time before `until`.
    #[cold]
    pub fn add(&mut self, task: &Task, until: u64, from: u64) {
        let ns = until.saturating_sub(task.since.max(from));
        match task.doing {
            Doing::Unknown | Doing::Hidden => {}
            Doing::Away => self.hidden = self.hidden.saturating_add(ns),
            Doing::Running => self.add_state(State::RUNNING, ns),
            Doing::Runnable { .. } => self.add_state(State::RUN_DELAY, ns),
            Doing::Blocked(state) => self.add_state(state, ns),
        }
    }

    pub fn add_state(&mut self, state: State, ns: u64) {
        let sum = &mut self.by_state[state.index()];
        *sum = sum.saturating_add(ns);
    }
}

/// A task that /proc found neither waiting nor dead, and that has had no event since: all its time is missing.
#[derive(Clone, Copy, Debug)]
pub struct Unmet {
    pub tid: i32,
    pub comm: Comm,
    pub since: u64,
}

/// Of an interval.
#[derive(Debug, Default)]
pub struct Coverage {
    /// All tasks, and how much of their time is in some period.
    pub of: Lifetimes,
    pub seen_ns: u64,
    pub unseen: Unseen,
    /// Of tasks without any event.
    pub unmet_ns: u64,
}

impl Coverage {
    pub fn missing_ns(&self) -> u64 {
        self.of.ns.saturating_sub(self.seen_ns)
    }

    /// What is to be said below a table. `in_rows`: its rows say what is missing of each state.
    pub fn line(&self, in_rows: bool) -> Option<String> {
        let by_state =
            if in_rows { self.unseen.by_state.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns)) } else { 0 };
        words(self.of.ns.saturating_sub(self.missing_ns().saturating_sub(by_state)), self.of.ns)?;
        let seen = words(self.seen_ns.min(self.of.ns), self.of.ns)?;
        let tasks = if self.of.tasks == 1 { "one task".to_owned() } else { format!("{} tasks", self.of.tasks) };
        let parts: Vec<String> = [
            (self.unmet_ns, "are of tasks without an event so far"),
            (self.unseen.hidden, "are of tasks that had left a CPU and hid why"),
        ]
        .into_iter()
        .filter(|(ns, _)| tenths(*ns) > 0)
        .map(|(ns, what)| format!("{} ms {what}", decimal(tenths(ns))))
        .collect();
        let rest = if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) };
        Some(format!("{seen} of the time of {tasks}{rest}"))
    }
}

/// `seen 171.0 of 1175.0 ms`. None: nothing is missing that could be read there.
pub fn words(seen_ns: u64, of_ns: u64) -> Option<String> {
    let (seen, of) = (tenths(seen_ns), tenths(of_ns));
    (seen < of).then(|| format!("seen {} of {} ms", decimal(seen), decimal(of)))
}

/// Of a ms.
fn tenths(ns: u64) -> u64 {
    ns / 100_000
}

fn decimal(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl TaskState {
    /// A task does not wait, says /proc.
    pub(super) fn meet_later(&mut self, unmet: Unmet, letter: u8, began: Began) {
        let counts = letter == b'R' && began == Began::BeforeStart && !self.narrowed;
        if counts && !self.machine.knows(unmet.tid) {
            self.unmet.push(unmet);
        }
    }

    /// What there is to see in the interval that ends `now`, and how long each thread has lived in it where they have rows.
    pub(super) fn cover(&mut self, now: u64) -> (Coverage, FxHashMap<i32, (Comm, u64)>) {
        let mut coverage = Coverage { unseen: self.unseen(now), ..Coverage::default() };
        let lives = self.lives(now, &mut coverage);
        (coverage, lives)
    }

    /// Time that is missing, and of which more is known.
    fn unseen(&mut self, now: u64) -> Unseen {
        let mut unseen = std::mem::take(&mut self.machine.unseen_time);
        for (sum, ns) in unseen.by_state.iter_mut().zip(self.all.unseen) {
            *sum = sum.saturating_add(ns);
        }
        let from = self.told_until;
        let elsewhere = |task: &Task| !self.scope.has_cpu(task.cpu);
        for (_, task) in self.machine.iter().filter(|(_, task)| !task.exited && !elsewhere(task)) {
            if !self.horizon.saw_all_since(task.since) || task.doing == Doing::Away {
                unseen.add(task, now, from);
            }
        }
        unseen
    }

    fn lives(&mut self, now: u64, coverage: &mut Coverage) -> FxHashMap<i32, (Comm, u64)> {
        let (ended, ended_apart) = self.machine.lives.take(now);
        let from = self.told_until;
        let mut apart: FxHashMap<i32, (Comm, u64)> =
            ended_apart.into_iter().map(|(tid, ns)| (tid, (Comm::default(), ns))).collect();
        coverage.of = ended;
        let mut add = |tid: i32, comm: Comm, since: u64, until: u64| {
            let ns = until.saturating_sub(since.max(from));
            coverage.of.add(ns);
            if self.args.perins {
                let sum = apart.entry(tid).or_default();
                *sum = (comm, sum.1.saturating_add(ns));
            }
            ns
        };
        for (tid, task) in self.machine.iter() {
            // What an exited one does until it leaves its CPU for good is not told.
            add(tid, task.comm, task.known_from, if task.exited { task.since } else { now });
        }
        self.unmet.retain(|unmet| !self.machine.knows(unmet.tid));
        let unmet = self.unmet.iter().map(|unmet| add(unmet.tid, unmet.comm, unmet.since, now));
        coverage.unmet_ns = unmet.fold(0, u64::saturating_add);
        apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_and_nothing_else() {
        const MS: u64 = 1_000_000;
        assert_eq!(words(171 * MS, 1_175_200_000).as_deref(), Some("seen 171.0 of 1175.2 ms"));
        assert_eq!(words(MS, MS), None);
        assert_eq!(words(1_000_000, 1_040_000), None, "it would read as seen 1.0 of 1.0 ms");
        let mut coverage =
            Coverage { of: Lifetimes { tasks: 3, ns: 100 * MS }, seen_ns: 100 * MS, ..Default::default() };
        assert_eq!((coverage.line(true), coverage.missing_ns()), (None, 0));
        coverage.seen_ns = 90 * MS;
        coverage.unseen.add_state(State::SLEEP, 10 * MS);
        assert_eq!(coverage.line(true), None, "the row of S says it");
        assert_eq!(coverage.line(false).as_deref(), Some("seen 90.0 of 100.0 ms of the time of 3 tasks"));
        coverage.seen_ns = 60 * MS;
        (coverage.unmet_ns, coverage.unseen.hidden) = (12 * MS, 5 * MS);
        let want = "seen 60.0 of 100.0 ms of the time of 3 tasks; 12.0 ms are of tasks without an event so far, \
                    5.0 ms are of tasks that had left a CPU and hid why";
        assert_eq!(coverage.line(true).as_deref(), Some(want));
    }

    #[test]
    fn lives_begin_and_end() {
        let mut lives = Lives::default();
        lives.keep_apart();
        let task = |known_from| Task { since: known_from + 5, known_from, ..Task::default() };
        lives.ended(7, &task(10), 25);
        lives.ended(7, &task(30), 31);
        lives.ended(8, &task(40), 30); // late
        assert_eq!(lives.take(100), (Lifetimes { tasks: 3, ns: 16 }, [(7, 16), (8, 0)].into_iter().collect()));
        lives.ended(9, &task(60), 130);
        assert_eq!(lives.take(200).0, Lifetimes { tasks: 1, ns: 30 });
    }
}
