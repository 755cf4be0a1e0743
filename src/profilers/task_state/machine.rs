//! The state machine: what every task does, and what a switch or a wake-up says of it.
//!
//! It trusts what it sees and repairs what it did not see. A task that is believed to run on a CPU where another one
//! runs was switched out unseen: the time in between is unknown, and is neither counted nor reported. A blocked one that
//! gets a CPU was woken unseen: its wait ended there at the latest.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::coverage::{Lives, Unseen};
use crate::profilers::task_state::states::{State, SwitchedOut};
use crate::stats::TidMap;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::context::Interruption;

/// What a task is believed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Not seen, or seen to contradict itself.
    Unknown,
    /// It has left its CPU, and only who came after it was seen: it may wait, or be ready.
    Away,
    Running,
    /// Ready, waiting for a CPU: after a wake-up, or because it was preempted.
    Runnable {
        woken: bool,
    },
    Blocked(State),
    /// It is left out. Only where a single table is made of all other tasks; else those are not asked for here.
    Hidden,
}

/// When a wait is known to have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    Exactly,
    /// It was waiting already when the run began: the time is that of the look at /proc.
    BeforeStart,
    /// The same after records were lost.
    BeforeLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    Task {
        tid: i32,
        comm: Comm,
    },
    /// A timer's for instance, with its stack where that is known. The task that it interrupted has no part in it.
    Interrupt(Interruption, Option<StackId>),
}

/// One task.
#[derive(Clone, Debug)]
pub struct Task {
    pub doing: Doing,
    /// ns, CLOCK_MONOTONIC.
    pub since: u64,
    /// The beginning of its life, or when it was seen first; `u64::MAX`: never.
    pub known_from: u64,
    pub began: Began,
    /// Where it runs, or was last.
    pub cpu: u32,
    /// Where it was when it was switched out.
    pub stack: Option<StackId>,
    pub comm: Comm,
    /// Who made it runnable, where that is shown.
    pub waker: Option<Waker>,
    /// It was woken by a waking, whose wake-up is still to come.
    pub asked: bool,
    /// When a wait that goes on is reported next.
    pub report_at: u64,
    /// CPU time it had used when /proc was looked at: as long as that does not change it does not run.
    pub ran_ns: Option<u64>,
    /// When /proc first contradicted what is believed; 0: never.
    pub doubted_at: u64,
    /// Up to when its wait was shown while it went on; 0: it was not.
    pub shown_until: u64,
    pub exited: bool,
}

impl Default for Task {
    fn default() -> Task {
        Task {
            doing: Doing::Unknown,
            since: 0,
            known_from: u64::MAX,
            began: Began::Exactly,
            cpu: 0,
            stack: None,
            comm: Comm::default(),
            waker: None,
            asked: false,
            report_at: u64::MAX,
            ran_ns: None,
            doubted_at: 0,
            shown_until: 0,
            exited: false,
        }
    }
}

impl Task {
    #[inline(always)]
    fn wakes_up(&mut self, seen: Seen, report_at: u64) {
        self.becomes(Doing::Runnable { woken: true }, seen, None, report_at);
    }

    #[inline(always)]
    pub(super) fn becomes(&mut self, doing: Doing, seen: Seen, stack: Option<StackId>, report_at: u64) {
        self.doing = doing;
        self.since = seen.at;
        self.known_from = self.known_from.min(seen.at); // it may have been found in /proc meanwhile
        self.began = Began::Exactly;
        self.cpu = seen.cpu;
        self.comm = seen.comm;
        self.stack = stack;
        self.waker = None;
        self.asked = false;
        self.report_at = report_at;
        self.ran_ns = None;
        self.doubted_at = 0;
        self.shown_until = 0;
    }

    /// An event older than what is known says nothing new.
    #[inline]
    fn is_stale(&self, at: u64) -> bool {
        self.began == Began::Exactly && at < self.since
    }
}

/// What is known of the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    Seen,
    /// It went unseen; a CPU that was idle took the task up: the wait holds the moment that the CPU needed for that.
    TakenUp,
    /// It went unseen, and the CPU did something else meanwhile: the wait holds a run delay of any length.
    Unseen,
}

/// A period that ended.
#[derive(Clone, Debug)]
pub struct Period {
    pub tid: i32,
    pub state: State,
    pub since: u64,
    pub until: u64,
    pub began: Began,
    pub cpu: u32,
    pub comm: Comm,
    pub stack: Option<StackId>,
    /// Who ended the wait, or made it runnable, where that is shown.
    pub waker: Option<Waker>,
    /// It was runnable when it left its CPU.
    pub preempted: bool,
    pub wakeup: Wakeup,
    /// See [`Task::shown_until`].
    pub shown_until: u64,
}

/// What an event of a task ended.
#[derive(Clone, Debug)]
pub enum Change {
    Ended(Period),
    /// Nothing that is known.
    Nothing,
    /// The task is left out.
    Hidden,
}

impl Change {
    #[inline(always)]
    pub fn ended(self) -> Option<Period> {
        if let Change::Ended(period) = self { Some(period) } else { None }
    }
}

/// All tasks, and which one runs on each CPU.
#[derive(Debug, Default)]
pub struct Machine {
    pub(super) tasks: TidMap<Task>,
    /// By CPU; [`UNKNOWN`] when it is not known.
    current: Vec<i32>,
    /// Only blocked periods are of interest and seen: a task is forgotten when it wakes.
    pub(super) blocked_only: bool,
    /// Periods whose beginning or end was not seen.
    pub(super) unseen: u64,
    /// Where that was, and since when something else was believed.
    missed_on: Vec<(u32, u64)>,
    /// How often a task came back that was [`Doing::Away`].
    lapses: FxHashMap<i32, u64>,
    pub(super) lives: Lives,
    pub(super) unseen_time: Unseen,
}

/// No task has this number.
const UNKNOWN: i32 = -1;

/// One side of a switch, or a wake-up.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at: u64,
    pub cpu: u32,
    pub tid: i32,
    pub comm: Comm,
}

impl Machine {
    pub fn new(blocked_only: bool) -> Machine {
        Machine { blocked_only, ..Machine::default() }
    }

    /// Periods with an end that was not seen, since the last call.
    #[inline]
    pub fn take_unseen(&mut self) -> u64 {
        std::mem::take(&mut self.unseen)
    }

    /// The CPUs on which switches went unseen since the last call, each with the time since which something else was believed.
    pub fn take_missed_on(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.missed_on)
    }

    /// By task, the periods since the last call of which nobody knows what they were.
    pub fn take_lapses(&mut self) -> FxHashMap<i32, u64> {
        let mut lapses = std::mem::take(&mut self.lapses);
        for (tid, _) in self.iter().filter(|(_, task)| task.doing == Doing::Away && !task.exited) {
            *lapses.entry(tid).or_default() += 1;
        }
        lapses
    }

    #[cold]
    fn misses(missed_on: &mut Vec<(u32, u64)>, task: &Task, cpu: u32) {
        const MOST: usize = 64; // it is looked at soon
        if task.began == Began::Exactly && missed_on.len() < MOST {
            missed_on.push((cpu, task.since));
        }
    }

    /// `seen` left its CPU. `report_at` is when a wait that begins here is reported first.
    #[inline(always)]
    pub fn switched_out(&mut self, seen: Seen, how: SwitchedOut, stack: Option<StackId>, report_at: u64) -> Change {
        let task = self.tasks.get_or_default(seen.tid);
        if task.is_stale(seen.at) {
            return Change::Nothing;
        }
        let change = match task.doing {
            Doing::Running if task.cpu == seen.cpu => Change::Ended(period(task, seen, State::RUNNING)),
            Doing::Running | Doing::Runnable { .. } | Doing::Blocked(_) => {
                // It was switched in unseen.
                self.unseen += u64::from(task.began == Began::Exactly);
                self.unseen_time.add(task, seen.at, self.lives.from);
                Machine::misses(&mut self.missed_on, task, seen.cpu);
                Change::Nothing
            }
            Doing::Away => {
                self.unseen += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Machine::misses(&mut self.missed_on, task, seen.cpu);
                Change::Nothing
            }
            Doing::Unknown => Change::Nothing,
            Doing::Hidden => return Change::Hidden,
        };
        match how {
            SwitchedOut::Blocked(state) => {
                task.becomes(Doing::Blocked(state), seen, stack, report_at);
            }
            SwitchedOut::Runnable => {
                task.becomes(Doing::Runnable { woken: false }, seen, stack, report_at);
            }
            SwitchedOut::Dead => {
                self.lives.ended(seen.tid, task, seen.at);
                self.tasks.remove(seen.tid);
            }
        }
        change
    }

    /// `seen` got its CPU, which may have been idle.
    #[inline(always)]
    pub fn switched_in(&mut self, seen: Seen, from_idle: bool) -> Change {
        let wakeup = if from_idle { Wakeup::TakenUp } else { Wakeup::Unseen };
        if self.blocked_only {
            return self.switched_in_blocked(seen, wakeup);
        }
        let task = self.tasks.get_or_default(seen.tid);
        if task.is_stale(seen.at) {
            return Change::Nothing;
        }
        let change = match task.doing {
            Doing::Runnable { woken } => {
                let run_delay = period(task, seen, State::RUN_DELAY);
                Change::Ended(Period { cpu: seen.cpu, waker: task.waker, preempted: !woken, ..run_delay })
            }
            // Woken unseen. It cannot have run since it was switched out, or that would have been followed by another
            // switch: it waited up to here, but for a run delay that nobody knows.
            Doing::Blocked(state) => Change::Ended(Period { wakeup, ..period(task, seen, state) }),
            Doing::Running => {
                self.unseen += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Machine::misses(&mut self.missed_on, task, task.cpu);
                Change::Nothing
            }
            Doing::Away => {
                *self.lapses.entry(seen.tid).or_default() += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Change::Nothing
            }
            Doing::Unknown => Change::Nothing,
            Doing::Hidden => return Change::Hidden,
        };
        task.becomes(Doing::Running, seen, None, u64::MAX);
        change
    }

    fn switched_in_blocked(&mut self, seen: Seen, wakeup: Wakeup) -> Change {
        let Some(task) = self.tasks.get(seen.tid).filter(|task| !task.is_stale(seen.at)) else {
            return Change::Nothing;
        };
        let Doing::Blocked(state) = task.doing else { return Change::Nothing };
        let ended = Period { wakeup, ..period(task, seen, state) };
        self.tasks.remove(seen.tid);
        Change::Ended(ended)
    }

    /// Whether `tid` was the last to come on `cpu`, as far as is known.
    pub fn has_come(&self, cpu: u32, tid: i32) -> bool {
        self.current.get(cpu as usize) == Some(&tid)
    }

    /// On `cpu`, `prev` gave way to `next`: whoever else was believed to run there does not.
    #[inline(always)]
    pub fn changed_hands(&mut self, at: u64, cpu: u32, prev: i32, next: i32) {
        let Some(current) = self.current.get_mut(cpu as usize) else { return self.first_switch(cpu, next) };
        let believed = std::mem::replace(current, next);
        if believed != prev && believed > 0 && believed != next {
            self.lose_sight(believed, at, cpu);
        }
    }

    #[cold]
    fn first_switch(&mut self, cpu: u32, next: i32) {
        const MOST_CPUS: usize = 1 << 16; // the number comes from a record
        let index = cpu as usize;
        if index < MOST_CPUS {
            self.current.resize(index + 1, UNKNOWN);
            self.current[index] = next;
        }
    }

    /// `seen` gave its CPU to somebody who told so.
    pub fn left(&mut self, seen: Seen) -> Change {
        let Some(task) = self.tasks.get_mut(seen.tid).filter(|task| !task.is_stale(seen.at)) else {
            return Change::Nothing;
        };
        if task.doing != Doing::Running || task.cpu != seen.cpu {
            return Change::Nothing;
        }
        let ended = period(task, Seen { comm: task.comm, ..seen }, State::RUNNING);
        task.becomes(Doing::Away, Seen { comm: task.comm, ..seen }, None, u64::MAX);
        Change::Ended(ended)
    }

    /// `tid` was believed to run on `cpu`, where another task was seen.
    #[cold]
    fn lose_sight(&mut self, tid: i32, at: u64, cpu: u32) {
        if let Some(task) = self.tasks.get_mut(tid)
            && task.doing == Doing::Running
            && task.cpu == cpu
            && task.since <= at
        {
            Machine::misses(&mut self.missed_on, task, cpu);
            self.unseen_time.add(task, at, self.lives.from);
            task.becomes(Doing::Unknown, Seen { at, cpu, tid, comm: task.comm }, task.stack, u64::MAX);
            self.unseen += 1;
        }
    }

    /// Somebody wakes `seen`. This runs in the waker's own context, unlike the wake-up that follows, which another CPU may
    /// perform in anybody's interrupt: so the wait ends here, and whose event it is has ended it.
    pub fn waking(&mut self, seen: Seen, report_at: u64) -> Change {
        let Some(task) = self.tasks.get_mut(seen.tid).filter(|task| !task.is_stale(seen.at)) else {
            return Change::Nothing;
        };
        let change = match task.doing {
            Doing::Blocked(state) => Change::Ended(period(task, seen, state)),
            // Nobody is woken twice without having run in between.
            Doing::Runnable { woken: true } => {
                self.unseen += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Machine::misses(&mut self.missed_on, task, task.cpu);
                Change::Nothing
            }
            Doing::Away => {
                *self.lapses.entry(seen.tid).or_default() += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Change::Nothing
            }
            // It has not been switched out yet, or was preempted on its way there: the wake-up will tell.
            Doing::Runnable { woken: false } | Doing::Running | Doing::Unknown => return Change::Nothing,
            Doing::Hidden => return Change::Hidden,
        };
        if self.blocked_only {
            self.tasks.remove(seen.tid);
        } else {
            task.wakes_up(seen, report_at);
            task.asked = true;
        }
        change
    }

    /// `seen` was made runnable. Who performs the wake-up need not be who asked for it.
    #[inline(always)]
    pub fn woken(&mut self, seen: Seen, is_new: bool, report_at: u64) -> Change {
        if self.blocked_only {
            return self.woken_blocked(seen);
        }
        let runs_elsewhere =
            |task: &Task| self.current.get(task.cpu as usize).is_some_and(|&tid| tid != UNKNOWN && tid != seen.tid);
        let task = self.tasks.get_or_default(seen.tid);
        if task.is_stale(seen.at) {
            return Change::Nothing;
        }
        let change = match task.doing {
            Doing::Hidden => return Change::Hidden,
            Doing::Blocked(state) if !is_new => Change::Ended(period(task, seen, state)),
            // Waking what runs, or waits for its CPU already, changes nothing.
            Doing::Running if !is_new && !runs_elsewhere(task) => return Change::Nothing,
            Doing::Runnable { woken: false } if !is_new => return Change::Nothing,
            // Its waking was seen.
            Doing::Runnable { .. } if std::mem::take(&mut task.asked) && !is_new => return Change::Nothing,
            // Nobody is woken twice without having run in between.
            Doing::Running | Doing::Runnable { woken: true } if !is_new => {
                self.unseen += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Machine::misses(&mut self.missed_on, task, task.cpu);
                Change::Nothing
            }
            Doing::Away if !is_new => {
                *self.lapses.entry(seen.tid).or_default() += 1;
                self.unseen_time.add(task, seen.at, self.lives.from);
                Change::Nothing
            }
            _ => Change::Nothing, // unknown so far, or a new task with a number used before
        };
        if is_new {
            // The end of the one that had the number before was not seen, nor anything since it was last.
            if task.doing != Doing::Unknown {
                self.lives.ended(seen.tid, task, task.since);
            }
            task.known_from = seen.at;
            task.exited = false;
        }
        task.wakes_up(seen, report_at);
        change
    }

    fn woken_blocked(&mut self, seen: Seen) -> Change {
        match self.tasks.remove(seen.tid) {
            Some(task) if !task.is_stale(seen.at) => match task.doing {
                Doing::Blocked(state) => Change::Ended(period(&task, seen, state)),
                _ => Change::Nothing,
            },
            _ => Change::Nothing,
        }
    }

    /// Notes who made `tid` runnable at `at`, if that is what happened then.
    pub fn woken_by(&mut self, tid: i32, at: u64, waker: Option<Waker>) {
        if waker.is_some()
            && let Some(task) = self.get_mut(tid)
            && task.doing == (Doing::Runnable { woken: true })
            && task.since == at
        {
            task.waker = waker;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, &Task)> {
        self.tasks.iter().filter(|(_, task)| task.doing != Doing::Hidden)
    }

    pub fn get(&self, tid: i32) -> Option<&Task> {
        self.tasks.get(tid).filter(|task| task.doing != Doing::Hidden)
    }

    pub fn get_mut(&mut self, tid: i32) -> Option<&mut Task> {
        self.tasks.get_mut(tid).filter(|task| task.doing != Doing::Hidden)
    }
}

#[inline(always)]
fn period(task: &Task, seen: Seen, state: State) -> Period {
    Period {
        tid: seen.tid,
        state,
        since: task.since,
        until: seen.at,
        began: task.began,
        cpu: task.cpu,
        comm: seen.comm,
        stack: task.stack,
        waker: None,
        preempted: false,
        wakeup: Wakeup::Seen,
        shown_until: task.shown_until,
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
