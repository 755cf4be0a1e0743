//! The notes of this profiler about each task, besides the state in the scheduler model.

use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::context::Interruption;

/// Who made a task runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitWaker {
    Task {
        tid: i32,
        comm: Comm,
    },
    /// For instance a timer interrupt, with its stack where that is known. The interrupted task is not the waker.
    Interrupt(Interruption, Option<StackId>),
}

/// Notes about a task that are kept while its state lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitNotes {
    /// The task's stack when it was switched out.
    pub stack: Option<StackId>,
    /// The waker that ended its wait, where that is shown.
    pub waker: Option<WaitWaker>,
    /// When a wait that goes on is reported next.
    pub report_at_ns: u64,
    /// CPU time that the task had used when /proc was read, ns: while this does not change, the task does not run.
    pub ran_ns: Option<u64>,
    /// When /proc first contradicted what the records say; 0: never.
    pub doubted_at_ns: u64,
    /// Up to when its wait was shown while it went on; 0: it was not shown.
    pub shown_until: u64,
}

impl Default for WaitNotes {
    fn default() -> WaitNotes {
        WaitNotes::new(None, u64::MAX)
    }
}

impl WaitNotes {
    /// Notes about a wait that begins, and is first reported at `report_at_ns`.
    #[inline(always)]
    pub fn new(stack: Option<StackId>, report_at_ns: u64) -> WaitNotes {
        WaitNotes { stack, waker: None, report_at_ns, ran_ns: None, doubted_at_ns: 0, shown_until: 0 }
    }
}
