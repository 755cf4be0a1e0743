//! For how long some task of a cgroup stalled, beside the kernel's own measure of it.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::{Host, MemoryPressure};
use crate::profilers::reclaim::table::{MachineFaults, PressureOf, PressureRow};
use crate::report::WordSet;
use crate::stats::union_ns;
use crate::task::memory_cgroup::{CgroupCounters, MemoryCgroup, MemoryHierarchy};

/// Cgroups with rows, cgroups that are looked at when the run starts, processes whose cgroup is known, reads of /proc
/// from count to count, and stalls that are kept as long.
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
    /// The counters of cgroups at the start of the run, for its first interval.
    before: FxHashMap<Arc<str>, CgroupCounters>,
    /// Stalls that have ended since the last count.
    ended: Vec<StalledStretch>,
    /// Stalls for which there was no room, or that count for no cgroup since too many were to be looked up.
    left_out: u64,
    /// Reads of /proc up to the next count.
    looks_left: usize,
    /// Stalls up to this time are counted.
    counted_to: u64,
    /// All tasks on all CPUs are watched.
    is_whole: bool,
    /// The stalls of all tasks that are watched.
    watched_ns: u64,
    machine_before: Option<MemoryPressure>,
}

/// The cgroup of a process as it was in an interval. None: it is not known.
#[derive(Clone, Debug)]
struct ProcessCgroup {
    name: Option<Arc<str>>,
    interval: u64,
}

/// The outcome of a look for the cgroup of a process.
enum CgroupLook {
    Known(Arc<str>),
    Unknown,
    /// Others have used up the reads of /proc.
    TooMany,
}

impl CgroupLook {
    fn of(name: Option<Arc<str>>) -> CgroupLook {
        name.map_or(CgroupLook::Unknown, CgroupLook::Known)
    }
}

#[derive(Debug)]
struct StalledCgroup {
    cgroup: MemoryCgroup,
    /// The counters as the interval began. None: they are not known.
    before: Option<CgroupCounters>,
    stalled_ns: u64,
    /// It was removed.
    is_gone: bool,
}

impl StalledCgroup {
    /// None: no task has stalled since the last call.
    fn take_row(&mut self) -> Option<PressureRow> {
        let now = self.cgroup.counters();
        self.is_gone = now.is_none();
        let before = std::mem::replace(&mut self.before, now);
        let counted = now.zip(before).and_then(|(now, before)| now.since(before));
        let stalled_ns = std::mem::take(&mut self.stalled_ns);
        let pressure = counted.and_then(|counted| counted.pressure);
        if stalled_ns == 0 && pressure.is_none_or(|pressure| pressure.some_ns == 0) {
            return None;
        }
        let limit = self.cgroup.limit();
        let mut limit_of = WordSet::default();
        if let Some(limit) = limit.as_ref().filter(|limit| limit.of != self.cgroup.name) {
            limit_of.add(limit.of.as_bytes());
        }
        Some(PressureRow {
            of: PressureOf::Cgroup(self.cgroup.name.clone()),
            stalled_ns,
            some_ns: pressure.map(|pressure| pressure.some_ns),
            full_ns: pressure.map(|pressure| pressure.full_ns),
            refaults: counted.map(|counted| counted.refaults),
            swapped_in: counted.and_then(|counted| counted.swapped_in),
            at_limit: counted.map(|counted| counted.at_limit),
            used_bytes: limit.as_ref().map(|limit| limit.used_bytes),
            limit_bytes: limit.as_ref().map(|limit| limit.bytes),
            limit_of,
        })
    }
}

impl StalledCgroups {
    /// Reads the counters of the machine and of all cgroups. `is_whole`: all tasks on all CPUs are watched.
    pub fn new(host: &Host, is_whole: bool) -> StalledCgroups {
        let hierarchy = MemoryHierarchy::new(host);
        let counted = |cgroup: MemoryCgroup| Some((cgroup.name.clone(), cgroup.counters()?));
        let before = hierarchy.all(MAX_GROUPS).into_iter().filter_map(counted).collect();
        let machine_before = MemoryPressure::of_machine(host);
        StalledCgroups { host: host.clone(), hierarchy, is_whole, before, machine_before, ..StalledCgroups::default() }
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
        let mut of_watched = Vec::new();
        self.looks_left = MAX_LOOKS;
        for StalledStretch { pid, since, until } in std::mem::take(&mut self.ended).into_iter().chain(open) {
            let stretch = (since.max(self.counted_to), until.min(now));
            if stretch.0 < stretch.1 {
                of_watched.push(stretch);
                match self.look_up(pid) {
                    CgroupLook::Known(name) => by_group.entry(name).or_default().push(stretch),
                    CgroupLook::Unknown => {}
                    CgroupLook::TooMany => self.left_out += 1,
                }
            }
        }
        self.watched_ns = self.watched_ns.saturating_add(union_ns(&mut of_watched));
        for (name, mut stretches) in by_group {
            if let Some(group) = self.group(name) {
                group.stalled_ns = group.stalled_ns.saturating_add(union_ns(&mut stretches));
            }
        }
        self.counted_to = self.counted_to.max(now);
    }

    /// The name of a process's cgroup. In each interval it is read anew, since a process may go to another one, or its
    /// pid be reused; of a process that has exited the last one counts.
    fn look_up(&mut self, pid: i32) -> CgroupLook {
        let known = self.of_process.get(&pid);
        if let Some(known) = known.filter(|known| known.interval == self.interval) {
            return CgroupLook::of(known.name.clone());
        }
        let last = known.and_then(|known| known.name.clone());
        let Some(looks_left) = self.looks_left.checked_sub(1) else {
            return last.map_or(CgroupLook::TooMany, CgroupLook::Known);
        };
        self.looks_left = looks_left;
        let name = self.hierarchy.of_task(pid).map(|cgroup| cgroup.name).or(last);
        if self.of_process.len() >= MAX_PROCESSES {
            self.of_process.clear();
        }
        self.of_process.insert(pid, ProcessCgroup { name: name.clone(), interval: self.interval });
        CgroupLook::of(name)
    }

    fn group(&mut self, name: Arc<str>) -> Option<&mut StalledCgroup> {
        if !self.groups.contains_key(&name) {
            let cgroup = self.hierarchy.at(Path::new(&*name)).filter(|_| self.groups.len() < MAX_GROUPS)?;
            let at_start = self.before.get(&name).copied();
            // In the first interval, what was created since the start of the run had counted nothing then.
            let is_new = self.interval == 0 && self.before.len() < MAX_GROUPS;
            let before = at_start.or_else(|| is_new.then_some(CgroupCounters::NEW));
            self.groups.insert(name.clone(), StalledCgroup { cgroup, before, stalled_ns: 0, is_gone: false });
        }
        self.groups.get_mut(&name)
    }

    /// The name of a process's cgroup. None: it is not known, or it is not read, since others were up to this count.
    pub fn name_of(&mut self, pid: i32) -> Option<Arc<str>> {
        match self.look_up(pid) {
            CgroupLook::Known(name) => Some(name),
            CgroupLook::Unknown | CgroupLook::TooMany => None,
        }
    }

    /// All tasks that are watched, and the cgroups of which some have stalled, since the last call. What the kernel
    /// counts for the machine stands only beside the stalls of the whole machine.
    pub fn take_rows(&mut self, faults: Option<MachineFaults>) -> Vec<PressureRow> {
        let now = MemoryPressure::of_machine(&self.host);
        let pressure = now.zip(self.machine_before).map(|(now, before)| now.since(before));
        self.machine_before = now.or(self.machine_before);
        let stalled_ns = std::mem::take(&mut self.watched_ns);
        let mut rows = vec![match self.is_whole {
            true => PressureRow::of_all(PressureOf::Machine, stalled_ns, pressure, faults),
            false => PressureRow::of_all(PressureOf::Watched, stalled_ns, None, None),
        }];
        rows.extend(self.groups.values_mut().filter_map(StalledCgroup::take_row));
        self.groups.retain(|_, group| !group.is_gone);
        self.of_process.retain(|_, known| known.interval == self.interval);
        self.before = FxHashMap::default();
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
    use std::fs;

    use super::*;

    fn stretch(since: u64, until: u64) -> StalledStretch {
        StalledStretch { pid: 1, since, until }
    }

    fn nowhere() -> StalledCgroups {
        StalledCgroups::new(&Host { proc: "/nonexistent".into(), ..Host::default() }, true)
    }

    /// A machine with cgroups of version 2, in which each process is in the cgroup `/PID`.
    struct CgroupMachine(tempfile::TempDir);

    impl CgroupMachine {
        fn new() -> CgroupMachine {
            let machine = CgroupMachine(tempfile::tempdir().unwrap());
            let mount = machine.0.path().join("mount");
            machine.write("proc/self/mounts", &format!("cgroup2 {} cgroup2 rw 0 0\n", mount.display()));
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Lets the cgroup of a process have this pressure.
        fn stalls(&self, pid: i32, some_us: u64, refaults: u64) {
            self.write(&format!("proc/{pid}/task/{pid}/cgroup"), &format!("0::/{pid}\n"));
            self.write(&format!("mount/{pid}/memory.stat"), &format!("workingset_refault_file {refaults}\n"));
            self.write(&format!("mount/{pid}/memory.pressure"), &format!("some total={some_us}\nfull total=0\n"));
        }

        fn cgroups(&self) -> StalledCgroups {
            StalledCgroups::new(&Host { proc: self.0.path().join("proc"), ..Host::default() }, false)
        }
    }

    /// What the first cgroup with a row has in it of PSI, in us, and refaults.
    fn of_kernel(cgroups: &mut StalledCgroups) -> (Option<u64>, Option<u64>) {
        let rows = cgroups.take_rows(None);
        let row = rows.get(1).expect("a cgroup");
        (row.some_ns.map(|ns| ns / 1000), row.refaults)
    }

    /// A cgroup whose first stall is not in the first interval has counted before that interval, too.
    #[test]
    fn a_row_has_no_more_than_its_interval() {
        let machine = CgroupMachine::new();
        machine.stalls(1, 1000, 10);
        machine.stalls(2, 1000, 10);
        let mut cgroups = machine.cgroups();
        machine.stalls(1, 1300, 13);
        cgroups.count(100, [(1, 0)].into_iter());
        assert_eq!(of_kernel(&mut cgroups), (Some(300), Some(3)), "since the start of the run");
        for (pid, now) in [(2, 200), (3, 300)] {
            machine.stalls(pid, 50_000, 500);
            cgroups.count(now, [(pid, now - 50)].into_iter());
            assert_eq!(of_kernel(&mut cgroups), (None, None), "{pid}: not known");
            machine.stalls(pid, 50_040, 504);
            assert_eq!(of_kernel(&mut cgroups), (Some(40), Some(4)), "{pid}");
        }
        machine.stalls(3, 7, 1);
        cgroups.count(400, [(3, 350)].into_iter());
        assert_eq!(of_kernel(&mut cgroups), (None, None), "another cgroup of the same name");
    }

    #[test]
    fn a_new_cgroup_had_counted_nothing() {
        let machine = CgroupMachine::new();
        let mut cgroups = machine.cgroups();
        machine.stalls(1, 300, 3);
        cgroups.count(100, [(1, 0)].into_iter());
        assert_eq!(of_kernel(&mut cgroups), (Some(300), Some(3)));
    }

    /// What goes on at a count is counted up to it; its rest follows later, and stalls at the same time count once.
    #[test]
    fn each_moment_counts_once() {
        let mut cgroups = nowhere();
        cgroups.started(100);
        cgroups.ended(stretch(50, 110));
        cgroups.ended(stretch(105, 120));
        cgroups.count(200, [(1, 150), (2, 190)].into_iter());
        assert_eq!(cgroups.watched_ns, 20 + 50, "what was before the run does not count");
        cgroups.ended(stretch(150, 230));
        cgroups.ended(stretch(190, 199));
        cgroups.count(300, std::iter::empty());
        assert_eq!(cgroups.watched_ns, 20 + 50 + 30);
        let rows = cgroups.take_rows(None);
        assert_eq!((rows.len(), rows[0].stalled_ns, rows[0].some_ns), (1, 100, None));
        assert_eq!(cgroups.take_rows(None)[0].stalled_ns, 0);
    }

    /// The pressure on the machine is not that on the tasks that are watched.
    #[test]
    fn only_the_machine_has_the_counters_of_the_machine() {
        let machine = CgroupMachine::new();
        machine.write("proc/pressure/memory", "some total=100\nfull total=0\n");
        let host = Host { proc: machine.0.path().join("proc"), ..Host::default() };
        let faults = || Some(MachineFaults { refaults: 5, swapped_in: 6 });
        for (is_whole, of, some_ns, refaults) in
            [(true, PressureOf::Machine, Some(0), Some(5)), (false, PressureOf::Watched, None, None)]
        {
            let row = StalledCgroups::new(&host, is_whole).take_rows(faults()).remove(0);
            assert_eq!((row.of, row.some_ns, row.refaults), (of, some_ns, refaults));
            assert_eq!(row.swapped_in.is_some(), is_whole);
        }
    }

    /// Reads of /proc are bounded between counts, whoever asks; what is not read is told.
    #[test]
    fn looks_are_bounded() {
        let machine = CgroupMachine::new();
        let last = MAX_LOOKS as i32 + 2;
        (1..=last).for_each(|pid| machine.stalls(pid, 0, 0));
        let mut cgroups = machine.cgroups();
        cgroups.count(100, (3..=last).map(|pid| (pid, 50)));
        assert_eq!((cgroups.take_left_out(), cgroups.name_of(1)), (0, None), "none is left");
        assert_eq!(cgroups.name_of(3).as_deref(), Some("/3"), "known");
        cgroups.count(200, (1..=last).map(|pid| (pid, 50)));
        assert_eq!((cgroups.take_left_out(), cgroups.name_of(1).as_deref()), (0, Some("/1")));
        let mut cgroups = machine.cgroups();
        cgroups.count(100, (1..=last).map(|pid| (pid, 50)));
        assert_eq!(cgroups.take_left_out(), 2);
        assert_eq!(cgroups.take_rows(None).len(), 1 + MAX_LOOKS);
    }

    #[test]
    fn stalls_are_bounded() {
        let mut cgroups = nowhere();
        (0..MAX_STRETCHES as u64 + 3).for_each(|at| cgroups.ended(stretch(at * 2, at * 2 + 1)));
        assert_eq!((cgroups.take_left_out(), cgroups.ended.len()), (3, MAX_STRETCHES));
    }
}
