//! Who ran on a CPU in the meantime, each with its time.

use crate::task::Comm;

/// A task that had the CPU during a wait of another, or why none had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuRunner {
    pub who: RunnerKind,
    pub ran_ns: u64,
    /// Hundredths of a per cent of the wait.
    pub share: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunnerKind {
    Task {
        tid: i32,
        comm: Comm,
        priority: TaskPriority,
    },
    /// The CPU had nothing to do.
    Idle,
    /// Which task ran is not known.
    Unseen,
    /// So many further tasks together.
    Others(u32),
}

/// How a task competes for its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskPriority {
    /// Of SCHED_OTHER, SCHED_BATCH and SCHED_IDLE, -20 to 19.
    Nice(i32),
    /// FIFO, RR, or RT where it is not known which of the two; 1 to 99.
    RealTime(&'static str, i32),
    Deadline,
}

impl CpuRunner {
    /// The share of `ran_ns` in a wait of `wait_ns`.
    pub fn new(who: RunnerKind, ran_ns: u64, wait_ns: u64) -> CpuRunner {
        let share = u128::from(ran_ns) * 10_000 / u128::from(wait_ns.max(1));
        CpuRunner { who, ran_ns, share: u32::try_from(share).unwrap_or(u32::MAX) }
    }
}

impl TaskPriority {
    /// From the kernel's own number, in which less is more urgent (include/linux/sched/prio.h).
    pub fn of_kernel(prio: i32, policy: Option<u32>) -> TaskPriority {
        const SCHED_FIFO: u32 = 1;
        const SCHED_RR: u32 = 2;
        match prio {
            ..0 => TaskPriority::Deadline,
            0..100 => {
                let name = match policy {
                    Some(SCHED_FIFO) => "FIFO",
                    Some(SCHED_RR) => "RR",
                    _ => "RT",
                };
                TaskPriority::RealTime(name, 99 - prio)
            }
            _ => TaskPriority::Nice(prio.saturating_sub(120)),
        }
    }
}
