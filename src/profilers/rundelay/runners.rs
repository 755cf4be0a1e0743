//! Which tasks had a CPU while another one waited for it, with their shares of the wait.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profilers::rundelay::Showing;
use crate::profilers::rundelay::cells::{CpuRunner, RunnerKind, TaskPriority, ThreadProcess};
use crate::sched::{CpuUse, QueueWait, SchedModel};

/// The uses of CPUs during one wait, each with its time. The memory is reused for the next wait.
#[derive(Debug, Default)]
pub struct WaitShares {
    /// Each stretch with the tid of its task and its index, the latest stretch first.
    stretches: Vec<(i32, usize, CpuUse, u64)>,
    longest_first: Vec<(CpuUse, u64)>,
}

impl WaitShares {
    /// Finds the uses during `wait`, which lasts until `until`. Their times sum up to the wait.
    pub fn fill(&mut self, model: &SchedModel<Showing>, wait: &QueueWait<Showing>, until: u64) -> &[(CpuUse, u64)] {
        let tid = |had_by: &CpuUse| match had_by {
            CpuUse::Task { tid, .. } => *tid,
            CpuUse::Idle => 0,
            CpuUse::Unseen => -1,
        };
        let stretches = &mut self.stretches;
        stretches.clear();
        let mut add = |had_by: CpuUse, ns: u64| {
            if ns > 0 {
                stretches.push((tid(&had_by), stretches.len(), had_by, ns));
            }
        };
        wait.queues(until, |cpu, from, until| match cpu.and_then(|cpu| model.queue(cpu)) {
            Some(queue) => queue.history.uses(from, until, &mut add),
            None if until > from => add(CpuUse::Unseen, until - from),
            None => {}
        });
        // The stretches of a task are then adjacent; name and priority are taken from the latest one.
        self.stretches.sort_unstable_by_key(|&(tid, at, ..)| (tid, at));
        self.longest_first.clear();
        for &(of, _, had_by, ns) in &self.stretches {
            match self.longest_first.last_mut() {
                Some((known, sum)) if tid(known) == of => *sum = sum.saturating_add(ns),
                _ => self.longest_first.push((had_by, ns)),
            }
        }
        self.longest_first.sort_unstable_by_key(|(had_by, ns)| (Reverse(*ns), tid(had_by)));
        &self.longest_first
    }

    /// The task that had a CPU longest.
    pub fn longest_tid(&self) -> Option<i32> {
        self.longest_first.first().and_then(|(had_by, _)| had_by.tid()).filter(|tid| *tid > 0)
    }

    /// The uses as they are shown: the longest ones, and the sum of the rest.
    /// `process` gives the process of a thread.
    pub fn shown(
        &self,
        policies: &Policies,
        mut process: impl FnMut(i32) -> Option<ThreadProcess>,
    ) -> Arc<[CpuRunner]> {
        const LIMIT: usize = 15;
        let all = &self.longest_first;
        let wait_ns = all.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let listed = if all.len() == LIMIT + 1 { LIMIT + 1 } else { LIMIT.min(all.len()) };
        let (listed, rest) = all.split_at(listed);
        let listed = listed.iter().map(|(had_by, ns)| {
            let process = had_by.tid().and_then(&mut process);
            CpuRunner::new(policies.runner(*had_by, process), *ns, wait_ns)
        });
        let rest_ns = rest.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let others = RunnerKind::Others(u32::try_from(rest.len()).unwrap_or(u32::MAX));
        let rest = (!rest.is_empty()).then(|| CpuRunner::new(others, rest_ns, wait_ns));
        listed.chain(rest).collect()
    }
}

/// The scheduling policies of real-time tasks, which /proc has, and events do not.
#[derive(Debug, Default)]
pub struct Policies {
    /// By tid: the priority at which the policy was looked up, and the policy.
    known: FxHashMap<i32, (i32, Option<u32>)>,
}

impl Policies {
    /// Looks up the policy of a real-time task that has none yet.
    #[inline]
    pub fn learn(&mut self, had_by: CpuUse, ask: impl FnOnce(i32) -> Option<u32>) {
        if let CpuUse::Task { tid, prio: prio @ 0..100, .. } = had_by {
            self.learn_real_time(tid, prio, ask);
        }
    }

    fn learn_real_time(&mut self, tid: i32, prio: i32, ask: impl FnOnce(i32) -> Option<u32>) {
        const LIMIT: usize = 4096;
        if self.known.get(&tid).is_some_and(|(known, _)| *known == prio) {
            return;
        }
        if self.known.len() >= LIMIT {
            self.known.clear();
        }
        self.known.insert(tid, (prio, ask(tid)));
    }

    pub fn runner(&self, had_by: CpuUse, process: Option<ThreadProcess>) -> RunnerKind {
        match had_by {
            CpuUse::Task { tid, comm, prio } => {
                let policy = self.known.get(&tid).filter(|(known, _)| *known == prio).and_then(|(_, policy)| *policy);
                RunnerKind::Task { tid, comm, process, priority: TaskPriority::of_kernel(prio, policy) }
            }
            CpuUse::Idle => RunnerKind::Idle,
            CpuUse::Unseen => RunnerKind::Unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::Event;
    use crate::sched::TaskEvent;
    use crate::task::Comm;

    #[test]
    fn a_task_has_one_share_under_its_latest_name() {
        let task = |tid, name: &[u8]| CpuUse::Task { tid, comm: Comm::new(name), prio: 120 };
        let seen = |at, tid| TaskEvent { at_ns: at, cpu: 0, tid, comm: Comm::default() };
        let mut model = SchedModel::<Showing>::new(16);
        model.on(&Event::Started { now: 1 }, &[]);
        model.cpu_switched(5, 0, CpuUse::Idle, task(1, b"old"));
        model.woken(seen(10, 9), false, true, Showing::default());
        model.cpu_switched(20, 0, task(1, b"old"), task(2, b"other"));
        model.cpu_switched(50, 0, task(2, b"other"), task(1, b"new"));
        model.cpu_switched(65, 0, task(1, b"new"), task(9, b"waits"));
        let ended = model.came(seen(65, 9), true).expect("it waited");
        let mut shares = WaitShares::default();
        let of_wait = shares.fill(&model, &ended.wait, ended.until);
        assert_eq!(of_wait, [(task(2, b"other"), 30), (task(1, b"new"), 25)]);
        let of_its_begin = shares.fill(&model, &ended.wait, 30);
        assert_eq!(of_its_begin, [(task(1, b"old"), 10), (task(2, b"other"), 10)]);
    }
}
