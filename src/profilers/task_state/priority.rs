//! `--prio`: tasks of some priorities. A task's priority may change with any event: the current period still counts to
//! its end, and the task is followed again from the first event in which its priority is in the list.

use crate::cli::values::PriorityList;
use crate::perf::Sample;
use crate::profilers::task_state::TaskState;
use crate::tep::{Int32, ReadError};

/// Whether a task is followed, by the priority that an event has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityMatch {
    Inside,
    /// Its priority has left the list: its period ends with this event, and it is not followed any more.
    Leaves,
    Outside,
}

/// The priority in a record. None: `--prio` is not given.
#[inline(always)]
pub fn read(field: Option<&Int32>, sample: &Sample<'_>) -> Result<Option<i32>, ReadError> {
    field.map(|field| field.read(sample.raw)).transpose()
}

impl TaskState {
    /// `priority`: the priority in the event. None: the event has no priority, or `--prio` is not given.
    #[inline(always)]
    pub(super) fn by_priority(&self, tid: i32, priority: Option<i32>) -> PriorityMatch {
        match &self.args.prio {
            None => PriorityMatch::Inside,
            Some(list) => self.in_list(list, tid, priority),
        }
    }

    #[inline(never)]
    fn in_list(&self, list: &PriorityList, tid: i32, priority: Option<i32>) -> PriorityMatch {
        let is_followed = self.machine.get(tid).is_some();
        match priority {
            Some(priority) if list.contains(priority) => PriorityMatch::Inside,
            None if is_followed => PriorityMatch::Inside,
            Some(_) if is_followed => PriorityMatch::Leaves,
            _ => PriorityMatch::Outside,
        }
    }

    /// Called after an event of the task was handled.
    #[inline(always)]
    pub(super) fn forget_if_it_leaves(&mut self, tid: i32, priority: PriorityMatch) {
        if priority == PriorityMatch::Leaves {
            self.machine.forget(tid);
        }
    }
}
