//! What scheduler events show: which task runs on each CPU, and the state of one thread.

use std::cell::RefCell;

use crate::perf::Sample;
use crate::profilers::multi_trace::cells::ThreadNow;
use crate::sched::{Cpus, SchedState, States, SwitchedOut};
use crate::tep::{Field, Format, Int32};

/// What an event shows about the current task of a CPU.
#[derive(Debug)]
pub enum Scheduling {
    Nothing,
    Wakeup {
        pid: Int32,
        target_cpu: Int32,
    },
    Switch {
        prev_pid: Int32,
        prev_state: Field,
        next_pid: Int32,
        /// Decodes `prev_state`, and caches the decoded values.
        states: Box<RefCell<States>>,
        /// All switches of the CPU are seen.
        is_whole: bool,
    },
    Migration {
        pid: Int32,
        dest_cpu: Int32,
    },
}

impl Scheduling {
    /// `is_whole`: all records of the event on a CPU are seen.
    pub fn of(format: &Format, is_whole: bool) -> Scheduling {
        Scheduling::known(format, is_whole).unwrap_or(Scheduling::Nothing)
    }

    #[inline(always)]
    pub fn running(&self) -> RunningFields {
        match *self {
            Scheduling::Wakeup { pid, target_cpu } => RunningFields::Wakeup { pid, target_cpu },
            Scheduling::Switch { next_pid, is_whole, .. } => RunningFields::Switch { next_pid, is_whole },
            Scheduling::Nothing | Scheduling::Migration { .. } => RunningFields::Nothing,
        }
    }

    fn known(format: &Format, is_whole: bool) -> Option<Scheduling> {
        let int = |name: &str| format.field(name).and_then(|field| field.int32().ok());
        Some(match &*format.full_name() {
            "sched:sched_wakeup" | "sched:sched_wakeup_new" => {
                Scheduling::Wakeup { pid: int("pid")?, target_cpu: int("target_cpu")? }
            }
            "sched:sched_switch" => Scheduling::Switch {
                prev_pid: int("prev_pid")?,
                prev_state: format.field("prev_state")?.clone(),
                next_pid: int("next_pid")?,
                states: Box::new(RefCell::new(States::new(format)?)),
                is_whole,
            },
            "sched:sched_migrate_task" => Scheduling::Migration { pid: int("pid")?, dest_cpu: int("dest_cpu")? },
            _ => return None,
        })
    }
}

/// The fields of an event that show which task runs on a CPU.
#[derive(Clone, Copy, Debug)]
pub enum RunningFields {
    Nothing,
    Wakeup { pid: Int32, target_cpu: Int32 },
    Switch { next_pid: Int32, is_whole: bool },
}

/// The current task of each CPU, as far as switches show it.
#[derive(Debug, Default)]
pub struct Running {
    /// The last task that was switched to on each CPU; true if it still runs: no switch away from it was missed.
    cpus: Cpus<bool, i32>,
}

impl Running {
    /// Handles a record made by thread `current`. True: the wake-up of a task that runs, or of the current task: no
    /// switch to it follows.
    #[inline(always)]
    pub fn follow(&mut self, fields: RunningFields, raw: &[u8], time: u64, cpu: u32, current: i32) -> bool {
        match fields {
            RunningFields::Nothing => false,
            RunningFields::Switch { next_pid, is_whole } => {
                if let Ok(tid) = next_pid.read(raw)
                    && let Some(cpu) = self.cpus.get_or_add(cpu, || false)
                {
                    cpu.becomes(time, tid);
                    cpu.kept = is_whole;
                }
                false
            }
            RunningFields::Wakeup { pid, target_cpu } => {
                let Ok(woken) = pid.read(raw) else { return false };
                let target = target_cpu.read(raw).ok().and_then(|cpu| self.cpus.get(cpu.cast_unsigned()));
                woken == current || target.is_some_and(|cpu| cpu.kept && cpu.current() == Some(woken))
            }
        }
    }

    /// A task got a CPU, according to another source. Returns when a switch to it was last seen there, or 0.
    pub fn came(&mut self, cpu: u32, tid: i32, time: u64, is_whole: bool) -> u64 {
        let Some(cpu) = self.cpus.get_or_add(cpu, || false) else { return 0 };
        let seen = if cpu.current() == Some(tid) { cpu.since() } else { 0 };
        // The SWITCH record of a switch that was seen comes a moment after it.
        if seen == 0 || !cpu.kept {
            cpu.becomes(time, tid);
        }
        cpu.kept = is_whole;
        seen
    }

    /// How long the task that leaves its CPU with this record has run, ns; must be called before [`Running::follow`].
    /// None: the record is no switch, the idle task leaves, or the switch to the task was not seen.
    pub fn ran_ns(&self, scheduling: &Scheduling, sample: &Sample<'_>) -> Option<u64> {
        let Scheduling::Switch { prev_pid, .. } = scheduling else { return None };
        let cpu = self.cpus.get(sample.cpu).filter(|cpu| cpu.kept)?;
        let leaves = prev_pid.read(sample.raw).is_ok_and(|tid| tid > 0 && cpu.current() == Some(tid));
        leaves.then(|| sample.time.saturating_sub(cpu.since()))
    }

    /// Records of a CPU were lost until `end`.
    pub fn lost(&mut self, cpu: u32, end: u64) {
        if let Some(cpu) = self.cpus.get_or_add(cpu, || false) {
            cpu.lost(end);
        }
    }
}

/// The state of one thread, from record to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedThread {
    tid: i32,
    /// None: no record has shown its state yet.
    pub now: Option<ThreadNow>,
    /// The CPU on which it runs, or will run. None: it does not wait for a CPU, or no record has shown it.
    pub cpu: Option<u32>,
}

impl FollowedThread {
    /// None for tid 0, which the idle tasks of all CPUs share.
    pub fn of(tid: i32) -> Option<FollowedThread> {
        (tid > 0).then_some(FollowedThread { tid, now: None, cpu: None })
    }

    /// Handles a record made by `current` on `cpu`.
    pub fn follow(&mut self, scheduling: &Scheduling, raw: &[u8], cpu: u32, current: i32) {
        let is_it = |field: &Int32| field.read(raw).is_ok_and(|tid| tid == self.tid);
        let to = |field: &Int32| field.read(raw).ok().and_then(|cpu| u32::try_from(cpu).ok());
        let told = match scheduling {
            Scheduling::Switch { next_pid, .. } if is_it(next_pid) => Some((ThreadNow::Running, Some(cpu))),
            Scheduling::Switch { prev_pid, prev_state, states, .. } if is_it(prev_pid) => {
                prev_state.read_u64(raw).ok().map(|state| match states.borrow_mut().decode(state) {
                    SwitchedOut::Runnable { .. } => (ThreadNow::Preempted, Some(cpu)),
                    SwitchedOut::Blocked(SchedState::SLEEP) => (ThreadNow::Sleeping, None),
                    SwitchedOut::Blocked(SchedState::DISK) => (ThreadNow::Blocked, None),
                    SwitchedOut::Blocked(_) | SwitchedOut::Dead => (ThreadNow::Stopped, None),
                })
            }
            Scheduling::Switch { .. } => None,
            Scheduling::Wakeup { pid, target_cpu } if is_it(pid) => Some((ThreadNow::Woken, to(target_cpu))),
            Scheduling::Migration { pid, dest_cpu } if is_it(pid) => Some((ThreadNow::Moved, to(dest_cpu))),
            _ => (current == self.tid).then_some((ThreadNow::Running, Some(cpu))),
        };
        if let Some((now, cpu)) = told {
            (self.now, self.cpu) = (Some(now), cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::states_fixture::{self, NEW};
    use crate::tep::fixture;

    #[test]
    fn a_hidden_switch_is_newer_than_the_last_one_seen() {
        let mut running = Running::default();
        assert_eq!(running.came(1, 7, 100, true), 0);
        assert_eq!(running.came(1, 7, 200, true), 100, "the same switch");
        assert_eq!(running.came(1, 7, 300, true), 100);
        assert_eq!(running.came(1, 8, 300, true), 0, "of another one");
        assert_eq!(running.came(0, 8, 400, true), 0, "elsewhere");
        running.lost(1, 301);
        assert_eq!(running.came(1, 8, 500, true), 0);
        assert_eq!(running.came(u32::MAX, 8, 600, true), 0, "no such CPU");
    }

    #[test]
    fn a_thread_is_followed_over_cpus() {
        let int = |name| (name, 8, 4, true);
        let wakeup = fixture::format("sched:sched_wakeup", &[int("int pid"), ("int target_cpu", 12, 4, true)]);
        let migration = fixture::format("sched:sched_migrate_task", &[int("int pid"), ("int dest_cpu", 12, 4, true)]);
        let [wakeup, migration] = [wakeup, migration].map(|format| Scheduling::of(&format, true));
        let switch = Scheduling::Switch {
            prev_pid: fixture::format("a:b", &[int("int prev_pid")]).field("prev_pid").unwrap().int32().unwrap(),
            prev_state: fixture::format("a:b", &[("long prev_state", 16, 8, true)])
                .field("prev_state")
                .unwrap()
                .clone(),
            next_pid: fixture::format("a:b", &[("int next_pid", 12, 4, true)])
                .field("next_pid")
                .unwrap()
                .int32()
                .unwrap(),
            states: Box::new(States::new(&states_fixture::sched_switch(NEW.0, NEW.1)).unwrap().into()),
            is_whole: true,
        };
        let record = |first: i32, second: i32, state: u64| {
            [&[0; 8], &first.to_ne_bytes()[..], &second.to_ne_bytes(), &state.to_ne_bytes()].concat()
        };
        let mut thread = FollowedThread::of(7).unwrap();
        let mut after = |scheduling: &Scheduling, raw: &[u8], cpu, current| {
            thread.follow(scheduling, raw, cpu, current);
            (thread.now, thread.cpu)
        };
        use ThreadNow::{Blocked, Moved, Preempted, Running, Sleeping, Stopped, Woken};
        assert_eq!(after(&wakeup, &record(8, 3, 0), 0, 1), (None, None), "of another thread");
        assert_eq!(after(&wakeup, &record(7, 3, 0), 0, 1), (Some(Woken), Some(3)));
        assert_eq!(after(&migration, &record(7, 2, 0), 0, 1), (Some(Moved), Some(2)));
        assert_eq!(after(&switch, &record(1, 7, 1), 2, 1), (Some(Running), Some(2)));
        assert_eq!(after(&switch, &record(1, 5, 1), 0, 1), (Some(Running), Some(2)), "of others");
        assert_eq!(after(&switch, &record(7, 5, 0), 2, 7), (Some(Preempted), Some(2)));
        assert_eq!(after(&switch, &record(7, 5, 1), 2, 7), (Some(Sleeping), None));
        assert_eq!(after(&switch, &record(7, 5, 2), 2, 7), (Some(Blocked), None));
        assert_eq!(after(&switch, &record(7, 5, 4), 2, 7), (Some(Stopped), None));
        assert_eq!(after(&Scheduling::Nothing, &[], 1, 7), (Some(Running), Some(1)));
        assert_eq!(after(&wakeup, &[], 1, 2), (Some(Running), Some(1)), "a record without its fields");
        assert_eq!(FollowedThread::of(0), None);
    }
}
