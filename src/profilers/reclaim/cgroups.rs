//! For how long some task of a cgroup stalled, beside the kernel's own measure of it.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::{Host, MemoryPressure};
use crate::profilers::reclaim::table::{MachineFaults, PressureRow};
use crate::stats::union_ns;
use crate::task::memory_cgroup::{CgroupCounters, MemoryCgroup, MemoryHierarchy};

/// Cgroups with rows, cgroups that are looked at when the run starts, processes whose cgroup is known, reads of /proc
/// from tick to tick, and stalls that are kept as long.
const MAX_GROUPS: usize = 1000;
const MAX_PROCESSES: usize = 50_000;
const MAX_LOOKS: usize = 200;
const MAX_STRETCHES: usize = 100_000;

/// Time in which a process stalls.
#[derive(Clone, Copy, Debug)]
pub struct StalledStretch {
    pub pid: i32,
    pub since: u64,
    pub until: u64,
}

/// The stalls of the machine and of each cgroup, without overlaps.
#[derive(Debug, Default)]
pub struct StalledCgroups {
    host: Host,
    hierarchy: MemoryHierarchy,
    /// By name.
    groups: FxHashMap<Arc<str>, StalledCgroup>,
    /// The cgroups of processes.
    of_process: FxHashMap<i32, ProcessCgroup>,
    /// Number of the interval.
    interval: u64,
    /// The pressure of cgroups at the start of the run.
    before: FxHashMap<Arc<str>, Option<MemoryPressure>>,
    /// Stalls that have ended since the last count.
    ended: Vec<StalledStretch>,
    /// Stalls for which there was no room.
    left_out: u64,
    /// Stalls up to this time are counted.
    counted_to: u64,
    machine_ns: u64,
    machine_before: Option<MemoryPressure>,
}

/// The cgroup of a process as it was in an interval. None: it is not known.
#[derive(Clone, Debug)]
struct ProcessCgroup {
    name: Option<Arc<str>>,
    interval: u64,
}

#[derive(Debug)]
struct StalledCgroup {
    cgroup: MemoryCgroup,
    before: CgroupCounters,
    stalled_ns: u64,
    /// It was removed.
    is_gone: bool,
}

impl StalledCgroup {
    /// None: no task has stalled since the last call.
    fn take_row(&mut self) -> Option<PressureRow> {
        let now = self.cgroup.counters();
        self.is_gone = now.is_none();
        let before = self.before;
        self.before = now.unwrap_or(before);
        let stalled_ns = std::mem::take(&mut self.stalled_ns);
        let pressure = now.and_then(|now| now.pressure).zip(before.pressure).map(|(now, before)| now.since(before));
        if stalled_ns == 0 && pressure.is_none_or(|pressure| pressure.some_ns == 0) {
            return None;
        }
        let limit = self.cgroup.limit();
        let is_own = limit.as_ref().is_none_or(|limit| limit.of == self.cgroup.name);
        let swapped_in = now.and_then(|now| now.swapped_in).zip(before.swapped_in);
        Some(PressureRow {
            cgroup: Some(self.cgroup.name.clone()),
            stalled_ns,
            some_ns: pressure.map(|pressure| pressure.some_ns),
            full_ns: pressure.map(|pressure| pressure.full_ns),
            refaults: now.map(|now| now.refaults.saturating_sub(before.refaults)),
            swapped_in: swapped_in.map(|(now, before)| now.saturating_sub(before)),
            at_limit: now.map(|now| now.at_limit.saturating_sub(before.at_limit)),
            used_bytes: limit.as_ref().map(|limit| limit.used_bytes),
            limit_bytes: limit.as_ref().map(|limit| limit.bytes),
            limit_of: limit.filter(|_| !is_own).map(|limit| limit.of),
        })
    }
}

impl StalledCgroups {
    /// Reads the counters of the machine and of all cgroups.
    pub fn new(host: &Host) -> StalledCgroups {
        let hierarchy = MemoryHierarchy::new(host);
        let with_pressure = |cgroup: MemoryCgroup| (cgroup.name.clone(), cgroup.pressure());
        let before = hierarchy.all(MAX_GROUPS).into_iter().map(with_pressure).collect();
        let machine_before = MemoryPressure::of_machine(host);
        StalledCgroups { host: host.clone(), hierarchy, before, machine_before, ..StalledCgroups::default() }
    }

    pub fn started(&mut self, now: u64) {
        self.counted_to = now;
    }

    /// A stall has ended.
    pub fn ended(&mut self, stretch: StalledStretch) {
        if self.ended.len() < MAX_STRETCHES {
            self.ended.push(stretch);
        } else {
            self.left_out += 1;
        }
    }

    /// Counts the stalls up to `now`: those that have ended, and the part of the `open` ones that is not yet counted.
    pub fn count(&mut self, now: u64, open: impl Iterator<Item = (i32, u64)>) {
        let open = open.map(|(pid, since)| StalledStretch { pid, since, until: now });
        let mut by_group: FxHashMap<Arc<str>, Vec<(u64, u64)>> = FxHashMap::default();
        let (mut of_machine, mut looks) = (Vec::new(), 0);
        for StalledStretch { pid, since, until } in std::mem::take(&mut self.ended).into_iter().chain(open) {
            let stretch = (since.max(self.counted_to), until.min(now));
            if stretch.0 < stretch.1 {
                of_machine.push(stretch);
                if let Some(name) = self.look_up(pid, &mut looks) {
                    by_group.entry(name).or_default().push(stretch);
                }
            }
        }
        self.machine_ns = self.machine_ns.saturating_add(union_ns(&mut of_machine));
        for (name, mut stretches) in by_group {
            if let Some(group) = self.group(name) {
                group.stalled_ns = group.stalled_ns.saturating_add(union_ns(&mut stretches));
            }
        }
        self.counted_to = self.counted_to.max(now);
    }

    /// The name of a process's cgroup. In each interval it is read anew, since a process may go to another one, or its
    /// pid be reused; of a process that has exited the last one counts.
    fn look_up(&mut self, pid: i32, looks: &mut usize) -> Option<Arc<str>> {
        let known = self.of_process.get(&pid);
        if let Some(known) = known.filter(|known| known.interval == self.interval) {
            return known.name.clone();
        }
        let last = known.and_then(|known| known.name.clone());
        *looks += 1;
        if *looks > MAX_LOOKS {
            return last;
        }
        let name = self.hierarchy.of_task(pid).map(|cgroup| cgroup.name).or(last);
        if self.of_process.len() >= MAX_PROCESSES {
            self.of_process.clear();
        }
        self.of_process.insert(pid, ProcessCgroup { name: name.clone(), interval: self.interval });
        name
    }

    fn group(&mut self, name: Arc<str>) -> Option<&mut StalledCgroup> {
        if !self.groups.contains_key(&name) {
            let cgroup = self.hierarchy.at(Path::new(&*name)).filter(|_| self.groups.len() < MAX_GROUPS)?;
            let now = cgroup.counters().unwrap_or_default();
            // What was created since the start of the run had counted nothing then.
            let before = match self.before.get(&name) {
                Some(pressure) => CgroupCounters { pressure: pressure.or(now.pressure), ..now },
                None if self.before.len() < MAX_GROUPS => CgroupCounters {
                    pressure: now.pressure.map(|_| MemoryPressure::default()),
                    swapped_in: now.swapped_in.map(|_| 0),
                    ..CgroupCounters::default()
                },
                None => now,
            };
            self.groups.insert(name.clone(), StalledCgroup { cgroup, before, stalled_ns: 0, is_gone: false });
        }
        self.groups.get_mut(&name)
    }

    /// The name of a process's cgroup. None: it is not known.
    pub fn name_of(&mut self, pid: i32) -> Option<Arc<str>> {
        self.look_up(pid, &mut 0)
    }

    /// The machine, and the cgroups whose tasks have stalled, since the last call.
    pub fn take_rows(&mut self, faults: Option<MachineFaults>) -> Vec<PressureRow> {
        let now = MemoryPressure::of_machine(&self.host);
        let pressure = now.zip(self.machine_before).map(|(now, before)| now.since(before));
        self.machine_before = now.or(self.machine_before);
        let stalled_ns = std::mem::take(&mut self.machine_ns);
        let mut rows = vec![PressureRow::of_machine(stalled_ns, pressure, faults)];
        rows.extend(self.groups.values_mut().filter_map(StalledCgroup::take_row));
        self.groups.retain(|_, group| !group.is_gone);
        self.of_process.retain(|_, known| known.interval == self.interval);
        self.interval += 1;
        rows
    }

    /// Number of stalls that were left out since the last call, because there was no room.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(since: u64, until: u64) -> StalledStretch {
        StalledStretch { pid: 1, since, until }
    }

    fn nowhere() -> StalledCgroups {
        StalledCgroups::new(&Host { proc: "/nonexistent".into(), ..Host::default() })
    }

    /// What goes on at a count is counted up to it; its rest follows later, and stalls at the same time count once.
    #[test]
    fn each_moment_counts_once() {
        let mut cgroups = nowhere();
        cgroups.started(100);
        cgroups.ended(stretch(50, 110));
        cgroups.ended(stretch(105, 120));
        cgroups.count(200, [(1, 150), (2, 190)].into_iter());
        assert_eq!(cgroups.machine_ns, 20 + 50, "what was before the run does not count");
        cgroups.ended(stretch(150, 230));
        cgroups.ended(stretch(190, 199));
        cgroups.count(300, std::iter::empty());
        assert_eq!(cgroups.machine_ns, 20 + 50 + 30);
        let rows = cgroups.take_rows(None);
        assert_eq!((rows.len(), rows[0].stalled_ns, rows[0].some_ns), (1, 100, None));
        assert_eq!(cgroups.take_rows(None)[0].stalled_ns, 0);
    }

    #[test]
    fn stalls_are_bounded() {
        let mut cgroups = nowhere();
        (0..MAX_STRETCHES as u64 + 3).for_each(|at| cgroups.ended(stretch(at * 2, at * 2 + 1)));
        assert_eq!((cgroups.take_left_out(), cgroups.ended.len()), (3, MAX_STRETCHES));
    }
}
