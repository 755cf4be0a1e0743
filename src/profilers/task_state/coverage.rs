//! The share of the tasks' lifetimes in the interval that a table covers.
//!
//! The rest of the lifetime is in no period, for whatever reason. Where a period was discarded whose beginning was
//! seen, the state in which it began is known.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::TaskState;
use crate::profilers::task_state::notes::WaitNotes;
use crate::sched::{Activity, Lifetimes, TrackedTask, UnseenTime};
use crate::stats::Began;
use crate::task::Comm;

/// A task that /proc reported neither waiting nor dead, and that has had no event since: its whole time is missing.
#[derive(Clone, Copy, Debug)]
pub struct EventlessTask {
    pub tid: i32,
    pub comm: Comm,
    pub since: u64,
}

/// The coverage of an interval.
#[derive(Debug, Default)]
pub struct TimeCoverage {
    /// Lifetimes of all tasks.
    pub of: Lifetimes,
    /// The part of these lifetimes that is in some period, ns.
    pub seen_ns: u64,
    pub unseen: UnseenTime,
    /// Lifetimes of tasks without any event.
    pub eventless_ns: u64,
    /// Number of tasks that ended.
    ended: u64,
}

impl TimeCoverage {
    /// The coverage of this interval and the next one together.
    #[must_use]
    pub fn then(self, next: &TimeCoverage) -> TimeCoverage {
        let mut unseen = self.unseen;
        unseen.hidden = unseen.hidden.saturating_add(next.unseen.hidden);
        for (sum, ns) in unseen.by_state.iter_mut().zip(next.unseen.by_state) {
            *sum = sum.saturating_add(ns);
        }
        TimeCoverage {
            // Tasks that live on are counted in the last interval.
            of: Lifetimes { tasks: self.ended + next.of.tasks, ns: self.of.ns.saturating_add(next.of.ns) },
            seen_ns: self.seen_ns.saturating_add(next.seen_ns),
            unseen,
            eventless_ns: self.eventless_ns.saturating_add(next.eventless_ns),
            ended: self.ended + next.ended,
        }
    }

    pub fn missing_ns(&self) -> u64 {
        self.of.ns.saturating_sub(self.seen_ns)
    }

    /// The line below a table. `in_rows`: the rows already show the missing time of each state.
    pub fn line(&self, in_rows: bool) -> Option<String> {
        let by_state =
            if in_rows { self.unseen.by_state.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns)) } else { 0 };
        words(self.of.ns.saturating_sub(self.missing_ns().saturating_sub(by_state)), self.of.ns)?;
        let seen = words(self.seen_ns.min(self.of.ns), self.of.ns)?;
        let tasks = if self.of.tasks == 1 { "one task".to_owned() } else { format!("{} tasks", self.of.tasks) };
        let parts: Vec<String> = [
            (self.eventless_ns, "are of tasks without an event so far"),
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

/// `seen 171.0 of 1175.0 ms`. None: both numbers would read the same.
pub fn words(seen_ns: u64, of_ns: u64) -> Option<String> {
    let (seen, of) = (tenths(seen_ns), tenths(of_ns));
    (seen < of).then(|| format!("seen {} of {} ms", decimal(seen), decimal(of)))
}

/// ns in tenths of a ms.
fn tenths(ns: u64) -> u64 {
    ns / 100_000
}

fn decimal(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl TaskState {
    /// /proc says that a task is not waiting.
    pub(super) fn add_eventless(&mut self, eventless: EventlessTask, letter: u8, began: Began) {
        let counts = letter == b'R' && began == Began::BeforeStart && !self.narrowed;
        if counts && !self.machine.knows(eventless.tid) {
            self.eventless.push(eventless);
        }
    }

    /// The coverage of the interval that ends at `now`, and with `--perins` the lifetime of each thread in it.
    pub(super) fn cover(&mut self, now: u64) -> (TimeCoverage, FxHashMap<i32, (Comm, u64)>) {
        let mut coverage = TimeCoverage { unseen: self.unseen(now), ..TimeCoverage::default() };
        let lives = self.lives(now, &mut coverage);
        (coverage, lives)
    }

    /// Time of periods that were discarded in the interval, or are going to be.
    fn unseen(&mut self, now: u64) -> UnseenTime {
        let mut unseen = std::mem::take(&mut self.machine.unseen.time);
        for (sum, ns) in unseen.by_state.iter_mut().zip(self.all.unseen) {
            *sum = sum.saturating_add(ns);
        }
        let from = self.reported_until;
        let elsewhere = |task: &TrackedTask<WaitNotes>| !self.scope.has_cpu(task.cpu);
        for (_, task) in self.machine.iter().filter(|(_, task)| !task.exited && !elsewhere(task)) {
            if !self.horizon.saw_all_since(task.since) || task.activity == Activity::Away {
                unseen.add(task.activity, task.since, now, from);
            }
        }
        unseen
    }

    fn lives(&mut self, now: u64, coverage: &mut TimeCoverage) -> FxHashMap<i32, (Comm, u64)> {
        let (ended, ended_apart) = self.machine.unseen.lives.take(now);
        let from = self.reported_until;
        let mut apart: FxHashMap<i32, (Comm, u64)> =
            ended_apart.into_iter().map(|(tid, ns)| (tid, (Comm::default(), ns))).collect();
        (coverage.of, coverage.ended) = (ended, ended.tasks);
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
            // The time of an exited task until its last switch is not counted.
            add(tid, task.comm, task.known_from, if task.exited { task.since } else { now });
        }
        self.eventless.retain(|eventless| !self.machine.knows(eventless.tid));
        let eventless = self.eventless.iter().map(|eventless| add(eventless.tid, eventless.comm, eventless.since, now));
        coverage.eventless_ns = eventless.fold(0, u64::saturating_add);
        apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::SchedState;

    #[test]
    fn what_is_missing_is_told_and_nothing_else() {
        const MS: u64 = 1_000_000;
        assert_eq!(words(171 * MS, 1_175_200_000).as_deref(), Some("seen 171.0 of 1175.2 ms"));
        assert_eq!(words(MS, MS), None);
        assert_eq!(words(1_000_000, 1_040_000), None, "it would read as seen 1.0 of 1.0 ms");
        let mut coverage =
            TimeCoverage { of: Lifetimes { tasks: 3, ns: 100 * MS }, seen_ns: 100 * MS, ..Default::default() };
        assert_eq!((coverage.line(true), coverage.missing_ns()), (None, 0));
        coverage.seen_ns = 90 * MS;
        coverage.unseen.add_state(SchedState::SLEEP, 10 * MS);
        assert_eq!(coverage.line(true), None, "the row of S says it");
        assert_eq!(coverage.line(false).as_deref(), Some("seen 90.0 of 100.0 ms of the time of 3 tasks"));
        coverage.seen_ns = 60 * MS;
        (coverage.eventless_ns, coverage.unseen.hidden) = (12 * MS, 5 * MS);
        let want = "seen 60.0 of 100.0 ms of the time of 3 tasks; 12.0 ms are of tasks without an event so far, \
                    5.0 ms are of tasks that had left a CPU and hid why";
        assert_eq!(coverage.line(true).as_deref(), Some(want));
    }

    #[test]
    fn a_task_that_lives_on_is_one_task() {
        let part = |tasks, ended, ns, seen_ns| {
            let of = Lifetimes { tasks, ns };
            TimeCoverage { of, seen_ns, ended, eventless_ns: 1, ..TimeCoverage::default() }
        };
        let both = part(5, 2, 100, 80).then(&part(4, 1, 60, 60));
        assert_eq!((both.of, both.seen_ns, both.eventless_ns), (Lifetimes { tasks: 6, ns: 160 }, 140, 2));
        assert_eq!(TimeCoverage::default().then(&both).of, Lifetimes { tasks: 4 + 2, ns: 160 });
    }
}
