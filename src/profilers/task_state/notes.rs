//! What is kept of what a task does, beyond what the model of the scheduler knows.

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
    /// Of a timer for instance, with its stack where that is known. The interrupted task has no part in it.
    Interrupt(Interruption, Option<StackId>),
}

/// What is kept of a task while it goes on doing what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitNotes {
    /// The task's stack when it was switched out.
    pub stack: Option<StackId>,
    /// What ended its wait, or made it runnable, where that is shown.
    pub waker: Option<WaitWaker>,
    /// When a wait that goes on is reported next.
    pub report_at_ns: u64,
    /// CPU time that it had used when /proc was read: while that does not change, it does not run.
    pub ran_ns: Option<u64>,
    /// When /proc first contradicted what the records say; 0: never.
    pub doubted_at_ns: u64,
    /// Up to when its wait was shown while it went on; 0: never shown.
    pub shown_until: u64,
}

impl Default for WaitNotes {
    fn default() -> WaitNotes {
        WaitNotes::new(None, u64::MAX)
    }
}

impl WaitNotes {
    /// Of a wait that begins, and is first reported at `report_at_ns`.
    #[inline(always)]
    pub fn new(stack: Option<StackId>, report_at_ns: u64) -> WaitNotes {
        WaitNotes { stack, waker: None, report_at_ns, ran_ns: None, doubted_at_ns: 0, shown_until: 0 }
    }
}
