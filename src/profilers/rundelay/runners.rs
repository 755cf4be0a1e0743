//! Who had a CPU while a task waited for it, with the shares of the wait.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profilers::rundelay::history::CpuUse;
use crate::profilers::rundelay::model::{QueueWait, SchedModel};
use crate::report::{CpuRunner, RunnerKind, TaskPriority};

/// The uses of CPUs during one wait, each with its time. Its memory is reused.
#[derive(Debug, Default)]
pub struct WaitShares {
    by_tid: FxHashMap<i32, (CpuUse, u64)>,
    longest_first: Vec<(CpuUse, u64)>,
}

impl WaitShares {
    /// Those during `wait`, which lasts until `until`. They add up to all of it.
    pub fn fill(&mut self, model: &SchedModel, wait: &QueueWait, until: u64) -> &[(CpuUse, u64)] {
        self.by_tid.clear();
        let by_tid = &mut self.by_tid;
        let mut add = |had_by: CpuUse, ns: u64| {
            let tid = match had_by {
                CpuUse::Task { tid, .. } => tid,
                CpuUse::Idle => 0,
                CpuUse::Unseen => -1,
            };
            let sum = &mut by_tid.entry(tid).or_insert((had_by, 0)).1;
            *sum = sum.saturating_add(ns);
        };
        wait.queues(until, |cpu, from, until| match cpu.and_then(|cpu| model.cpu(cpu)) {
            Some(queue) => queue.history.uses(from, until, &mut add),
            None if until > from => add(CpuUse::Unseen, until - from),
            None => {}
        });
        self.longest_first.clear();
        self.longest_first.extend(self.by_tid.values().copied().filter(|(_, ns)| *ns > 0));
        let tid = |had_by: &CpuUse| if let CpuUse::Task { tid, .. } = had_by { *tid } else { 0 };
        self.longest_first.sort_unstable_by_key(|(had_by, ns)| (Reverse(*ns), tid(had_by)));
        &self.longest_first
    }

    /// The same as they are shown: the longest ones, and the sum of the rest.
    pub fn shown(&self, policies: &Policies) -> Arc<[CpuRunner]> {
        const MOST: usize = 15;
        let all = &self.longest_first;
        let wait_ns = all.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let listed = if all.len() == MOST + 1 { MOST + 1 } else { MOST.min(all.len()) };
        let (listed, rest) = all.split_at(listed);
        let listed = listed.iter().map(|(had_by, ns)| CpuRunner::new(policies.runner(*had_by), *ns, wait_ns));
        let rest_ns = rest.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let others = RunnerKind::Others(u32::try_from(rest.len()).unwrap_or(u32::MAX));
        let rest = (!rest.is_empty()).then(|| CpuRunner::new(others, rest_ns, wait_ns));
        listed.chain(rest).collect()
    }
}

/// The scheduling policies of real-time tasks, which /proc tells, and events do not.
#[derive(Debug, Default)]
pub struct Policies {
    /// By tid, with the priority that goes with it.
    known: FxHashMap<i32, (i32, Option<u32>)>,
}

impl Policies {
    /// Asks for the policy of a real-time task that has none yet.
    #[inline]
    pub fn learn(&mut self, had_by: CpuUse, ask: impl FnOnce(i32) -> Option<u32>) {
        if let CpuUse::Task { tid, prio: prio @ 0..100, .. } = had_by {
            self.learn_real_time(tid, prio, ask);
        }
    }

    fn learn_real_time(&mut self, tid: i32, prio: i32, ask: impl FnOnce(i32) -> Option<u32>) {
        const MOST: usize = 4096;
        if self.known.get(&tid).is_some_and(|(known, _)| *known == prio) {
            return;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(tid, (prio, ask(tid)));
    }

    pub fn runner(&self, had_by: CpuUse) -> RunnerKind {
        match had_by {
            CpuUse::Task { tid, comm, prio } => {
                let policy = self.known.get(&tid).filter(|(known, _)| *known == prio).and_then(|(_, policy)| *policy);
                RunnerKind::Task { tid, comm, priority: TaskPriority::of_kernel(prio, policy) }
            }
            CpuUse::Idle => RunnerKind::Idle,
            CpuUse::Unseen => RunnerKind::Unseen,
        }
    }
}
