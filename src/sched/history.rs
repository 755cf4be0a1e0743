//! Which tasks ran on a CPU, for a bounded number of switches.

use std::collections::VecDeque;

use crate::task::Comm;

/// How a CPU was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuUse {
    Task {
        tid: i32,
        comm: Comm,
        /// The kernel's internal priority.
        prio: i32,
    },
    Idle,
    /// Unknown: no switch was seen yet, records were lost, or the time is before the oldest kept stretch.
    Unseen,
}

impl CpuUse {
    /// The use by the task `tid`; 0 is the number of every idle task.
    #[inline]
    pub fn of(tid: i32, comm: Comm, prio: i32) -> CpuUse {
        if tid == 0 { CpuUse::Idle } else { CpuUse::Task { tid, comm, prio } }
    }

    /// The number of the task, 0 for an idle CPU. None: not known.
    #[inline]
    pub fn tid(self) -> Option<i32> {
        match self {
            CpuUse::Task { tid, .. } => Some(tid),
            CpuUse::Idle => Some(0),
            CpuUse::Unseen => None,
        }
    }
}

/// The use of a CPU from one switch to the next.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    had_by: CpuUse,
}

/// The latest stretches of one CPU, in memory that is allocated once.
#[derive(Debug)]
pub struct CpuHistory {
    stretches: VecDeque<Stretch>,
    most: usize,
}

impl CpuHistory {
    pub const ENTRY_BYTES: usize = size_of::<Stretch>();

    pub fn new(most: usize) -> CpuHistory {
        CpuHistory { stretches: VecDeque::with_capacity(most), most: most.max(1) }
    }

    /// From `at` on the CPU is used by `had_by`. A use that began before the latest stretch came too late and is
    /// ignored.
    #[inline]
    pub fn push(&mut self, at: u64, had_by: CpuUse) {
        if self.stretches.back().is_some_and(|latest| latest.from > at) {
            return;
        }
        if self.stretches.len() >= self.most {
            self.stretches.pop_front();
        }
        self.stretches.push_back(Stretch { from: at, had_by });
    }

    /// Another task ran during the latest stretch, too: the use of the CPU in it becomes unknown.
    pub fn doubt_latest(&mut self) {
        if let Some(latest) = self.stretches.back_mut() {
            latest.had_by = CpuUse::Unseen;
        }
    }

    /// The latest stretch ends: name and priority of its task may have changed since it began.
    #[inline]
    pub fn update_latest(&mut self, had_by: CpuUse) {
        if let Some(latest) = self.stretches.back_mut()
            && let (CpuUse::Task { tid: known, .. }, CpuUse::Task { tid, .. }) = (latest.had_by, had_by)
            && known == tid
        {
            latest.had_by = had_by;
        }
    }

    /// Calls `each` with the uses of the CPU from `from` to `until` and their times, whose sum is the whole span.
    pub fn uses(&self, from: u64, until: u64, mut each: impl FnMut(CpuUse, u64)) {
        let mut until = until;
        for stretch in self.stretches.iter().rev() {
            if until <= from {
                return;
            }
            let start = stretch.from.max(from);
            if start < until {
                each(stretch.had_by, until - start);
                until = start;
            }
        }
        if until > from {
            each(CpuUse::Unseen, until - from);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(tid: i32) -> CpuUse {
        CpuUse::Task { tid, comm: Comm::default(), prio: 120 }
    }

    fn uses(history: &CpuHistory, from: u64, until: u64) -> Vec<(CpuUse, u64)> {
        let mut uses = Vec::new();
        history.uses(from, until, |had_by, ns| uses.push((had_by, ns)));
        uses
    }

    #[test]
    fn what_is_not_known_is_unseen() {
        let mut history = CpuHistory::new(2);
        assert_eq!(uses(&history, 3, 10), [(CpuUse::Unseen, 7)]);
        history.push(5, task(1));
        assert_eq!(uses(&history, 3, 10), [(task(1), 5), (CpuUse::Unseen, 2)]);
        history.push(7, CpuUse::Idle);
        history.push(6, task(9)); // late
        assert_eq!(uses(&history, 6, 8), [(CpuUse::Idle, 1), (task(1), 1)]);
        history.push(8, task(2)); // the first is too long ago
        assert_eq!(uses(&history, 6, 9), [(task(2), 1), (CpuUse::Idle, 1), (CpuUse::Unseen, 1)]);
        history.doubt_latest();
        assert_eq!(uses(&history, 8, 9), [(CpuUse::Unseen, 1)]);
        history.push(10, task(3));
        let urgent = CpuUse::Task { tid: 3, comm: Comm::default(), prio: 49 };
        history.update_latest(urgent);
        history.update_latest(task(4));
        assert_eq!(uses(&history, 10, 12), [(urgent, 2)]);
        assert_eq!((uses(&history, 9, 9), uses(&history, 9, 8)), (vec![], vec![]));
    }

    proptest! {
        /// Compared with a list of the task of each nanosecond.
        #[test]
        fn every_nanosecond_has_its_user(
            steps in prop::collection::vec((0_u64..5, 1_i32..4), 0..30),
            most in 1_usize..40,
            from in 0_u64..60,
            len in 0_u64..60,
        ) {
            let (mut history, mut plain, mut at) = (CpuHistory::new(most), vec![CpuUse::Unseen; 200], 0);
            let mut starts = Vec::new();
            for (after, tid) in steps {
                at += after;
                history.push(at, task(tid));
                plain[at as usize..].fill(task(tid));
                starts.push(at);
            }
            if let Some(oldest) = starts.len().checked_sub(most).and_then(|at| starts.get(at)) {
                plain[..*oldest as usize].fill(CpuUse::Unseen);
            }
            let mut times = vec![0; 5];
            let index = |had_by| match had_by {
                CpuUse::Task { tid, .. } => tid as usize,
                _ => 0,
            };
            history.uses(from, from + len, |had_by, ns| times[index(had_by)] += ns);
            let mut want = vec![0; 5];
            plain[from as usize..(from + len) as usize].iter().for_each(|had_by| want[index(*had_by)] += 1);
            prop_assert_eq!(times, want);
        }
    }
}
