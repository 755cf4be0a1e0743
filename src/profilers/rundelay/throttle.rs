//! Waits of tasks whose cgroup has a CPU quota: throttled, or queued behind other tasks.
//!
//! No event reports throttling. While a cgroup is throttled on a CPU, none of its tasks has that CPU. So only the parts
//! of a wait in which a task of another cgroup, or no task, had the CPU may be throttled; cpu.stat says for how long
//! the cgroup was throttled, summed over CPUs. Where several tasks of the cgroup wait on a CPU, the time of the CPU
//! counts once for each of them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::profilers::rundelay::Showing;
use crate::profilers::rundelay::table::QuotaRow;
use crate::sched::{CpuUse, QueueWait, SchedModel};
use crate::stats::union_ns;
use crate::task::cpu_quota::{CpuQuota, QuotaHierarchies, ThrottledTime};

/// Shorter waits are ignored, ns: the period of a quota is long.
const LEAST_NS: u64 = 1_000_000;
/// Waits that are kept from tick to tick, tasks whose cgroup is known, and reads of /proc in a tick.
const MAX_WAITS: usize = 10_000;
const MAX_TASKS: usize = 50_000;
const MAX_LOOKS: usize = 200;
const MAX_GROUPS: usize = 1000;

#[derive(Debug, Default)]
pub struct Throttling {
    hierarchies: QuotaHierarchies,
    groups: Vec<QuotaGroup>,
    /// The cgroup of a task, as an index into `groups`. None: the task has no quota.
    of_task: FxHashMap<i32, Option<usize>>,
    /// Ended waits whose cgroup is not known yet.
    waits: Vec<(i32, QueueWait<Showing>, u64)>,
    /// Waits for which there was no room.
    left_out: u64,
}

#[derive(Debug)]
struct QuotaGroup {
    quota: CpuQuota,
    /// Since when the cgroup is known.
    known_from: u64,
    /// The counters of cpu.stat at the beginning of the interval.
    before: ThrottledTime,
    /// Waits that ended in the interval.
    waits: u64,
    waited_ns: u64,
    /// The part of `waited_ns` in which no task of the cgroup had the CPU, and the same time by CPU, without overlaps.
    apart_ns: u64,
    apart: Stretches,
}

/// Stretches of time of CPUs that may overlap, to be counted once.
#[derive(Debug, Default)]
struct Stretches {
    by_cpu: BTreeMap<u32, Vec<(u64, u64)>>,
}

impl Stretches {
    fn add(&mut self, cpu: u32, from: u64, until: u64) {
        self.by_cpu.entry(cpu).or_default().push((from, until));
    }

    /// Their total length without overlaps.
    fn take_ns(&mut self) -> u64 {
        let sum = self.by_cpu.values_mut().map(|stretches| union_ns(stretches)).fold(0, u64::saturating_add);
        self.by_cpu.clear();
        sum
    }
}

impl Throttling {
    pub fn new(host: &Host) -> Throttling {
        Throttling { hierarchies: QuotaHierarchies::new(host), ..Throttling::default() }
    }

    /// A wait of `tid` has ended.
    #[inline]
    pub fn ended(&mut self, tid: i32, wait: &QueueWait<Showing>, until: u64) {
        if until.saturating_sub(wait.since) < LEAST_NS || self.of_task.get(&tid) == Some(&None) {
            return;
        }
        if self.waits.len() < MAX_WAITS {
            self.waits.push((tid, *wait, until));
        } else {
            self.left_out += 1;
        }
    }

    /// The task may be in another cgroup from now on, or its tid may be reused.
    pub fn forget(&mut self, tid: i32) {
        self.of_task.remove(&tid);
    }

    /// Looks up the cgroups of the tasks whose waits have ended.
    pub fn tick(&mut self, model: &SchedModel<Showing>) {
        let mut looks = 0;
        for (tid, wait, until) in std::mem::take(&mut self.waits) {
            let group = match self.of_task.get(&tid) {
                Some(group) => *group,
                None if looks < MAX_LOOKS => {
                    looks += 1;
                    self.look_up(tid)
                }
                None => {
                    self.waits.push((tid, wait, until));
                    continue;
                }
            };
            if let Some(group) = group {
                self.add(group, &wait, until, model);
            }
        }
    }

    fn look_up(&mut self, tid: i32) -> Option<usize> {
        let group = self.hierarchies.of_task(tid).and_then(|quota| self.group(quota));
        if self.of_task.len() >= MAX_TASKS {
            self.of_task.clear();
        }
        self.of_task.insert(tid, group);
        group
    }

    fn group(&mut self, quota: CpuQuota) -> Option<usize> {
        if let Some(known) = self.groups.iter().position(|group| group.quota.name == quota.name) {
            self.groups[known].quota = quota; // it may have changed
            return Some(known);
        }
        if self.groups.len() >= MAX_GROUPS {
            return None;
        }
        let known_from = crate::sys::monotonic_ns();
        let before = quota.throttled()?;
        let (waits, waited_ns, apart_ns, apart) = (0, 0, 0, Stretches::default());
        self.groups.push(QuotaGroup { quota, known_from, before, waits, waited_ns, apart_ns, apart });
        Some(self.groups.len() - 1)
    }

    fn add(&mut self, at: usize, wait: &QueueWait<Showing>, until: u64, model: &SchedModel<Showing>) {
        let Throttling { groups, of_task, .. } = self;
        let Some(group) = groups.get_mut(at).filter(|group| group.known_from <= wait.since) else { return };
        group.waits += 1;
        group.waited_ns = group.waited_ns.saturating_add(until.saturating_sub(wait.since));
        wait.queues(until, |cpu, from, until| {
            let Some((cpu, queue)) = cpu.and_then(|cpu| Some((cpu, model.queue(cpu)?))) else { return };
            let mut end = until;
            queue.history.uses(from, until, |had_by, ns| {
                let start = end.saturating_sub(ns);
                let is_own = matches!(had_by, CpuUse::Task { tid, .. } if of_task.get(&tid) == Some(&Some(at)));
                if !is_own {
                    group.apart_ns = group.apart_ns.saturating_add(ns);
                    group.apart.add(cpu, start, end);
                }
                end = start;
            });
        });
    }

    /// The cgroups whose tasks have waited, or that were throttled, since the last call.
    pub fn take_rows(&mut self) -> Vec<QuotaRow> {
        let mut rows = Vec::new();
        self.of_task.clear(); // a task may go to another cgroup
        for group in &mut self.groups {
            let now = group.quota.throttled().unwrap_or(group.before);
            let before = std::mem::replace(&mut group.before, now);
            let cpu_ns = now.ns.saturating_sub(before.ns);
            let apart = group.apart.take_ns();
            // Each task that waited on a throttled CPU waited for the whole throttled time.
            let share = u128::from(group.apart_ns) * u128::from(cpu_ns.min(apart)) / u128::from(apart.max(1));
            let throttled_ns = u64::try_from(share).unwrap_or(u64::MAX);
            let waited_ns = std::mem::take(&mut group.waited_ns);
            group.apart_ns = 0;
            let row = QuotaRow {
                cgroup: group.quota.name.as_str().into(),
                quota_ns: group.quota.quota_ns,
                period_ns: group.quota.period_ns,
                waits: std::mem::take(&mut group.waits),
                waited_ns,
                throttled_ns,
                queued_ns: waited_ns.saturating_sub(throttled_ns),
                times: now.times.saturating_sub(before.times),
            };
            if row.waits > 0 || row.times > 0 {
                rows.push(row);
            }
        }
        rows
    }

    /// Number of waits that were left out since the last call, because there was no room.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let mut stretches = Stretches::default();
        for (cpu, from, until) in [(0, 10, 20), (0, 12, 15), (0, 18, 30), (1, 10, 20), (0, 40, 41)] {
            stretches.add(cpu, from, until);
        }
        assert_eq!((stretches.take_ns(), stretches.take_ns()), (20 + 10 + 1, 0));
    }
}
