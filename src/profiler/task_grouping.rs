//! Whether a row is about a thread, a process, or all tasks of a name.

use crate::stats::TaskKey;
use crate::task::{Comm, TaskTable};

/// What has a row: the values of `--by` of tables of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TaskGrouping {
    Thread,
    Process,
    Comm,
}

impl TaskGrouping {
    /// The row of the thread `tid` with the name `comm`.
    pub fn key(self, tid: i32, comm: Comm, tasks: &mut TaskTable) -> TaskKey {
        match self {
            TaskGrouping::Thread => TaskKey { pid: tasks.pid(tid), tid, comm },
            TaskGrouping::Process => {
                let pid = tasks.pid(tid);
                TaskKey { pid, tid: 0, comm: if pid == tid { comm } else { tasks.comm(pid) } }
            }
            TaskGrouping::Comm => TaskKey { comm, ..TaskKey::default() },
        }
    }
}
