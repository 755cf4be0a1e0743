//! What happens to nearly all tasks, in a few steps: see `plain`. `machine` knows the rest.

use crate::profilers::task_state::machine::{Began, Doing, Machine};
use crate::profilers::task_state::states::{State, SwitchedOut};

impl Machine {
    /// What happens to nearly all tasks that leave their CPU, if that is what happens to this one: gives since when it ran.
    /// None: see [`Machine::switched_out`].
    #[inline(always)]
    pub fn usual_out(&mut self, tid: i32, at: u64, cpu: u32, how: SwitchedOut) -> Option<u64> {
        let becomes = match how {
            SwitchedOut::Blocked(state) => Doing::Blocked(state),
            SwitchedOut::Runnable => Doing::Runnable { woken: false },
            SwitchedOut::Dead => return None,
        };
        let task = self.tasks.get_recent(tid)?;
        let is_usual = task.doing == Doing::Running && task.cpu == cpu && task.since <= at;
        is_usual.then(|| {
            task.doing = becomes;
            std::mem::replace(&mut task.since, at)
        })
    }

    /// The same of tasks that get a CPU: gives since when it waited for one. None: see [`Machine::switched_in`].
    #[inline(always)]
    pub fn usual_in(&mut self, tid: i32, at: u64, cpu: u32) -> Option<u64> {
        let task = self.tasks.get_recent(tid)?;
        let is_usual = matches!(task.doing, Doing::Runnable { .. }) && task.since <= at;
        is_usual.then(|| {
            task.doing = Doing::Running;
            task.cpu = cpu;
            std::mem::replace(&mut task.since, at)
        })
    }

    /// The same of tasks that are woken: gives what it was in, and since when. None: see [`Machine::woken`].
    #[inline(always)]
    pub fn usual_wakeup(&mut self, tid: i32, at: u64, cpu: u32) -> Option<(State, u64)> {
        let task = self.tasks.get_recent(tid)?;
        match task.doing {
            Doing::Blocked(state) if task.began == Began::Exactly && task.since <= at => {
                task.doing = Doing::Runnable { woken: true };
                task.cpu = cpu;
                Some((state, std::mem::replace(&mut task.since, at)))
            }
            _ => None,
        }
    }
}
