//! The state of the scheduler as its events report it: which task has each CPU and had it before, what each task waits
//! for, and since when.
//!
//! [`SchedulerEvents`] opens the events and reads their fields. [`Cpus`] follows the switches of each CPU, which is
//! enough to know the current task; [`CpuTurns`] derives whole turns from them, across hidden switches, new names and
//! losses. [`TaskStates`] follows the tasks: what each does, since when, and which periods end. [`SchedModel`] combines
//! both with the run queues: the waits for a CPU, in which queues, and why; [`TaskWaits`] feeds it. [`CpuHistory`]
//! keeps which tasks had a CPU lately.

mod cpus;
mod events;
mod fast_path;
mod history;
mod lives;
mod model;
mod run_queue;
mod side;
mod states;
mod tasks;
mod turns;
mod waits;

pub use cpus::{Cpu, CpuUser, Cpus, Switch, SwitchIn, TurnBegin, USUAL_PRIO};
pub use events::{RunnableStacks, SWITCH, SchedRecord, SchedulerEvents, SwitchFields};
pub use history::{CpuHistory, CpuUse};
pub use lives::{Lifetimes, MAX_THREADS, TaskLives, UnseenTime};
pub use model::{EndedWait, QueueWait, SchedModel};
pub use run_queue::RunQueue;
#[cfg(test)]
pub(crate) use states::tests as states_fixture;
pub use states::{Activity, RunDelayKind, STATES, SchedState, States, SwitchedOut};
pub use tasks::{Change, StatePeriod, TaskEvent, TaskStates, TrackedTask, UnseenPeriods, Wakeup};
pub use turns::{CpuTurn, CpuTurns, TurnUser};
pub use waits::{Migration, TaskWaits, WaitUser};
