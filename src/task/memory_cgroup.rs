//! Memory cgroups: which one a process is in, whose limit is next, how much of it is used, and how its tasks stall.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::{Host, MemoryPressure};
use crate::task::cgroup_mounts::{CgroupMounts, cgroup_dir, cgroup_in};

/// The hierarchy in which cgroups have limits of memory.
#[derive(Debug, Default)]
pub struct MemoryHierarchy {
    host: Host,
    mount: Option<PathBuf>,
    is_v1: bool,
}

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    /// The path of the cgroup in the hierarchy.
    pub name: Arc<str>,
    dir: PathBuf,
    is_v1: bool,
}

/// Counters of a cgroup since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCounters {
    /// None in a version 1 hierarchy.
    pub pressure: Option<MemoryPressure>,
    /// Pages that were reclaimed a short time ago, and are needed again.
    pub refaults: u64,
    /// Pages read from swap. None: this kernel does not tell it of a cgroup.
    pub swapped_in: Option<u64>,
    /// How often an allocation met the limit.
    pub at_limit: u64,
}

impl CgroupCounters {
    /// Those of a cgroup that was just created, as far as it has them.
    pub const NEW: CgroupCounters = CgroupCounters {
        pressure: Some(MemoryPressure { some_ns: 0, full_ns: 0 }),
        refaults: 0,
        swapped_in: Some(0),
        at_limit: 0,
    };

    /// What was counted since an earlier reading. None: that was of another cgroup of this name.
    pub fn since(self, before: CgroupCounters) -> Option<CgroupCounters> {
        let pressure = self.pressure.zip(before.pressure);
        if pressure.is_some_and(|(now, before)| now.some_ns < before.some_ns) {
            return None;
        }
        Some(CgroupCounters {
            pressure: pressure.map(|(now, before)| now.since(before)),
            refaults: self.refaults.checked_sub(before.refaults)?,
            swapped_in: self.swapped_in.zip(before.swapped_in).map(|(now, before)| now.saturating_sub(before)),
            at_limit: self.at_limit.checked_sub(before.at_limit)?,
        })
    }
}

/// The limit that a cgroup is nearest to: its own, or that of one above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The path of the cgroup that has the limit.
    pub of: Arc<str>,
    pub bytes: u64,
    pub used_bytes: u64,
}

/// Limit of the length of a path, in directories.
const MAX_LEVELS: usize = 64;

impl MemoryHierarchy {
    pub fn new(host: &Host) -> MemoryHierarchy {
        let CgroupMounts { v1, v2 } = CgroupMounts::of_controller("memory", host);
        MemoryHierarchy { host: host.clone(), is_v1: v1.is_some(), mount: v1.or(v2) }
    }

    pub fn is_v1(&self) -> bool {
        self.is_v1
    }

    /// The cgroup of a task. None: the task has exited, or is outside of our namespace.
    pub fn of_task(&self, tid: i32) -> Option<MemoryCgroup> {
        let text = fs::read_to_string(super::procfs::file(&self.host, tid, "cgroup")).ok()?;
        self.at(cgroup_in(&text, self.is_v1.then_some("memory"))?)
    }

    /// The cgroup of this path.
    pub fn at(&self, path: &Path) -> Option<MemoryCgroup> {
        let dir = cgroup_dir(self.mount.as_ref()?, path)?;
        Some(MemoryCgroup { name: path.to_string_lossy().into(), dir, is_v1: self.is_v1 })
    }

    /// All cgroups, the upper ones first, up to a number. Others make the tree.
    pub fn all(&self, limit: usize) -> Vec<MemoryCgroup> {
        let mut found: Vec<MemoryCgroup> = self.at(Path::new("/")).into_iter().collect();
        let mut next = 0;
        while let Some(parent) = found.get(next).cloned() {
            next += 1;
            for entry in fs::read_dir(&parent.dir).into_iter().flatten().flatten() {
                if found.len() >= limit {
                    return found;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = Path::new(&*parent.name).join(entry.file_name());
                    found.extend(self.at(&path));
                }
            }
        }
        found
    }
}

impl MemoryCgroup {
    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok()
    }

    /// None: the hierarchy is of version 1, or the cgroup was removed.
    pub fn pressure(&self) -> Option<MemoryPressure> {
        if self.is_v1 { None } else { MemoryPressure::read(&self.dir.join("memory.pressure")) }
    }

    /// None: the cgroup was removed.
    pub fn counters(&self) -> Option<CgroupCounters> {
        let stat = fs::read_to_string(self.dir.join("memory.stat")).ok()?;
        let (prefix, at_limit) = match self.is_v1 {
            true => ("total_workingset_refault", self.number("memory.failcnt").unwrap_or(0)),
            false => {
                let events = fs::read_to_string(self.dir.join("memory.events")).unwrap_or_default();
                ("workingset_refault", sum_of(&events, |key| key == "max" || key == "high"))
            }
        };
        let refaults = sum_of(&stat, |key| key.starts_with(prefix));
        let tells_swap = stat.lines().any(|line| line.starts_with("pswpin "));
        let swapped_in = (!self.is_v1 && tells_swap).then(|| sum_of(&stat, |key| key == "pswpin"));
        Some(CgroupCounters { pressure: self.pressure(), refaults, swapped_in, at_limit })
    }

    /// None: there is no limit.
    pub fn limit(&self) -> Option<MemoryLimit> {
        /// A version 1 cgroup without a limit has a greater one.
        const NO_LIMIT: u64 = 1 << 60;
        let (limits, usage): (&[&str], _) = match self.is_v1 {
            true => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
            false => (&["memory.max", "memory.high"], "memory.current"),
        };
        let of_level = |path: &Path, dir: &Path| {
            let level = MemoryCgroup { name: path.to_string_lossy().into(), dir: dir.to_path_buf(), is_v1: self.is_v1 };
            let bytes = limits.iter().filter_map(|name| level.number(name)).min().filter(|bytes| *bytes < NO_LIMIT)?;
            Some(MemoryLimit { bytes, used_bytes: level.number(usage)?, of: level.name })
        };
        let levels = Path::new(&*self.name).ancestors().zip(self.dir.ancestors()).take(MAX_LEVELS);
        let used = |limit: &MemoryLimit| u128::from(limit.used_bytes) * 1_000_000 / u128::from(limit.bytes.max(1));
        // Of equal ones the innermost: `max_by_key` takes the last.
        levels.filter_map(|(path, dir)| of_level(path, dir)).collect::<Vec<_>>().into_iter().rev().max_by_key(used)
    }
}

/// The sum of the numbers of some keys, of lines `key number`.
fn sum_of(text: &str, is_wanted: impl Fn(&str) -> bool) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(key, _)| is_wanted(key));
    lines.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two files: the mount table, and the cgroups of process 7.
    fn machine(
        kind: &str,
        options: &str,
        of_task: &str,
        files: &[(&str, &str)],
    ) -> (tempfile::TempDir, MemoryHierarchy) {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mount = dir.path().join("mount");
        write("proc/self/mounts", &format!("cgroup {} {kind} {options} 0 0\n", mount.display()));
        write("proc/7/task/7/cgroup", of_task);
        files.iter().for_each(|(path, text)| write(&format!("mount/{path}"), text));
        let host = Host { proc: dir.path().join("proc"), ..Host::default() };
        (dir, MemoryHierarchy::new(&host))
    }

    #[test]
    fn the_fullest_limit_counts() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "990\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "800\n"),
            ("a/b/memory.current", "400\n"),
            ("a/b/memory.stat", "anon 5\npswpin 6\nworkingset_refault_anon 2\nworkingset_refault_file 40\n"),
            ("a/b/memory.events", "low 0\nhigh 3\nmax 4\noom 9\n"),
            ("a/b/memory.pressure", "some avg10=0.00 total=7\nfull avg10=0.00 total=6\n"),
        ];
        let (_dir, hierarchy) = machine("cgroup2", "rw", "0::/a/b\n", &files);
        let cgroup = hierarchy.of_task(7).unwrap();
        assert_eq!(cgroup.limit(), Some(MemoryLimit { of: "/a".into(), bytes: 1000, used_bytes: 990 }));
        let pressure = Some(MemoryPressure { some_ns: 7000, full_ns: 6000 });
        assert_eq!(
            cgroup.counters(),
            Some(CgroupCounters { pressure, refaults: 42, swapped_in: Some(6), at_limit: 7 })
        );
        let names: Vec<Arc<str>> = hierarchy.all(10).into_iter().map(|cgroup| cgroup.name).collect();
        assert_eq!(names, ["/", "/a", "/a/b"].map(Arc::from));
        assert_eq!(hierarchy.all(2).len(), 2);
        assert_eq!(hierarchy.of_task(8), None);
    }

    #[test]
    fn version_1_has_files_of_its_own() {
        let files = [
            ("x/memory.limit_in_bytes", "4096\n"),
            ("x/memory.usage_in_bytes", "4096\n"),
            ("x/memory.failcnt", "12\n"),
            ("x/memory.stat", "workingset_refault_file 1\ntotal_workingset_refault_file 5\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "4096\n"),
        ];
        let (_dir, hierarchy) = machine("cgroup", "rw,memory", "4:memory:/x\n0::/other\n", &files);
        let cgroup = hierarchy.of_task(7).unwrap();
        assert_eq!(cgroup.limit(), Some(MemoryLimit { of: "/x".into(), bytes: 4096, used_bytes: 4096 }));
        assert_eq!(
            cgroup.counters(),
            Some(CgroupCounters { pressure: None, refaults: 5, swapped_in: None, at_limit: 12 })
        );
        assert_eq!(hierarchy.at(Path::new("/")).unwrap().limit(), None, "the root has none");
    }
}
