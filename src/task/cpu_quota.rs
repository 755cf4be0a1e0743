//! CPU quotas: which cgroup limits a task, how much it may use, and for how long it was throttled.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::task::cgroup_mounts::{CgroupMounts, cgroup_dir, cgroup_in};

/// The hierarchies in which cgroups have CPU quotas.
#[derive(Debug, Default)]
pub struct QuotaHierarchies {
    host: Host,
    mounts: CgroupMounts,
}

/// A cgroup with a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    dir: PathBuf,
    /// The path of the cgroup in the hierarchy.
    pub name: String,
    /// CPU time that the cgroup may use in each period.
    pub quota_ns: u64,
    pub period_ns: u64,
}

/// Counters of cpu.stat since the creation of the cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottledTime {
    /// Number of periods in which it was throttled.
    pub times: u64,
    /// Summed over CPUs.
    pub ns: u64,
}

impl QuotaHierarchies {
    pub fn new(host: &Host) -> QuotaHierarchies {
        QuotaHierarchies { host: host.clone(), mounts: CgroupMounts::of_controller("cpu", host) }
    }

    /// The nearest cgroup of a task that has a quota. None: there is no such cgroup, or the task has exited.
    pub fn of_task(&self, tid: i32) -> Option<CpuQuota> {
        const MAX_LEVELS: usize = 64;
        let text = fs::read_to_string(super::procfs::file(&self.host, tid, "cgroup")).ok()?;
        for (is_v1, mount) in [(true, &self.mounts.v1), (false, &self.mounts.v2)] {
            let (Some(mount), Some(path)) = (mount, cgroup_in(&text, is_v1.then_some("cpu"))) else { continue };
            let levels = path.ancestors().take(MAX_LEVELS);
            if let Some(quota) = levels.into_iter().find_map(|level| quota(mount, level, is_v1)) {
                return Some(quota);
            }
        }
        None
    }
}

fn quota(mount: &Path, path: &Path, is_v1: bool) -> Option<CpuQuota> {
    let dir = cgroup_dir(mount, path)?;
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    let (quota_us, period_us) = if is_v1 {
        (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?) // -1 is no limit
    } else {
        limit(&fs::read_to_string(dir.join("cpu.max")).ok()?)?
    };
    let name = path.to_string_lossy().into_owned();
    Some(CpuQuota { dir, name, quota_ns: quota_us.checked_mul(1000)?, period_ns: period_us.checked_mul(1000)? })
}

/// The text of cpu.max: `20000 100000`, or `max 100000` without a limit.
fn limit(text: &str) -> Option<(u64, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

impl CpuQuota {
    /// None: the cgroup was removed.
    pub fn throttled(&self) -> Option<ThrottledTime> {
        parse_stat(&fs::read_to_string(self.dir.join("cpu.stat")).ok()?)
    }
}

fn parse_stat(text: &str) -> Option<ThrottledTime> {
    let number = |key: &str| {
        let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        text.lines().find_map(value)
    };
    let ns = number("throttled_usec").map(|us| us.saturating_mul(1000)).or_else(|| number("throttled_time"))?;
    Some(ThrottledTime { times: number("nr_throttled")?, ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_versions() {
        let v1 = "nr_periods 9\nnr_throttled 7\nthrottled_time 5000\nnr_bursts 0\n";
        let v2 = "usage_usec 1\nnr_periods 9\nnr_throttled 7\nthrottled_usec 5\n";
        let want = Some(ThrottledTime { times: 7, ns: 5000 });
        assert_eq!((parse_stat(v1), parse_stat(v2)), (want, want));
        assert_eq!((parse_stat("usage_usec 1\n"), parse_stat("throttled_time x\n")), (None, None));
    }

    #[test]
    fn the_nearest_quota_counts() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().join("proc"), ..Host::default() };
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let [v1, v2] = ["v1", "v2"].map(|name| dir.path().join(name).display().to_string());
        write("proc/self/mounts", &format!("cgroup {v1} cgroup rw,cpu,cpuacct 0 0\ncgroup2 {v2} cgroup2 rw 0 0\n"));
        write("proc/7/task/7/cgroup", "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/b/c/d\n");
        write("v1/a/cpu.cfs_quota_us", "-1\n");
        write("v1/a/cpu.cfs_period_us", "100000\n");
        write("v2/b/cpu.max", "20000 100000\n");
        write("v2/b/cpu.stat", "nr_throttled 1\nthrottled_usec 2\n");
        write("v2/b/c/cpu.max", "max 100000\n");
        let quotas = QuotaHierarchies::new(&host);
        let found = quotas.of_task(7).unwrap();
        assert_eq!((&*found.name, found.quota_ns, found.period_ns), ("/b", 20_000_000, 100_000_000));
        assert_eq!(found.throttled(), Some(ThrottledTime { times: 1, ns: 2000 }));
        write("v1/a/cpu.cfs_quota_us", "50000\n");
        assert_eq!(quotas.of_task(7).unwrap().name, "/a");
        assert_eq!((quotas.of_task(8), quotas.of_task(7).unwrap().throttled()), (None, None));
        for text in ["", "max", "20000", "x 1", "1 x"] {
            assert_eq!(limit(text), None, "{text}");
        }
    }
}
