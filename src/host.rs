//! The machine as the kernel describes it under /proc and /sys: CPUs, disks, settings and processes.

mod block_devices;
mod file_locks;
mod topology;

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use block_devices::{AskedDevice, BlockDevice, BlockDevices};
pub use file_locks::{FileLock, file_locks};
pub use topology::{CpuDistance, Topology};

/// Directories in which the kernel describes the machine. Tests pass their own.
#[derive(Clone, Debug)]
pub struct Host {
    pub proc: PathBuf,
    pub cpu: PathBuf,
}

impl Default for Host {
    fn default() -> Host {
        Host { proc: "/proc".into(), cpu: "/sys/devices/system/cpu".into() }
    }
}

/// The CPUs that run tasks now.
///
/// # Errors
/// `online` below `host.cpu` cannot be read or is no CPU list.
pub fn online_cpus(host: &Host) -> Result<Vec<u32>> {
    let path = host.cpu.join("online");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_cpus(text.trim()).map_err(anyhow::Error::msg).with_context(|| format!("in {}", path.display()))
}

/// The CPUs whose time is accounted without ticks (`nohz_full`); none on most machines.
pub fn tickless_cpus(host: &Host) -> Vec<u32> {
    let text = fs::read_to_string(host.cpu.join("nohz_full")).unwrap_or_default();
    parse_cpus(text.trim()).unwrap_or_default()
}

/// The machine is a virtual one. x86 says so among the flags of a CPU; elsewhere the firmware does.
pub fn is_virtual(host: &Host) -> bool {
    /// Enough for the first CPU of the file.
    const HEAD_BYTES: u64 = 8192;
    let mut cpuinfo = Vec::new();
    let head = fs::File::open(host.proc.join("cpuinfo")).map(|file| file.take(HEAD_BYTES).read_to_end(&mut cpuinfo));
    let cpuinfo = String::from_utf8_lossy(if head.is_ok() { &cpuinfo } else { &[] });
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
        || Path::new("/sys/hypervisor/type").exists()
        || Path::new("/proc/device-tree/hypervisor").exists()
        || ["QEMU", "Amazon EC2", "VMware, Inc."].contains(&vendor.trim())
}

/// The number in the file `name` below /proc/sys/kernel.
pub fn sysctl(host: &Host, name: &str) -> Option<i64> {
    fs::read_to_string(host.proc.join("sys/kernel").join(name)).ok()?.trim().parse().ok()
}

/// Limit of CPU numbers, greater than any kernel's NR_CPUS.
const MAX_CPU: u32 = (1 << 20) - 1;

/// Sorted numbers as `0-3,7`.
pub fn cpu_ranges(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Reads `0-3,7` into sorted numbers, each once.
///
/// # Errors
/// A part that is no number or range, a range that runs backwards, a number above `MAX_CPU`.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (cpu(first)?, cpu(last)?);
        if first > last {
            return Err(format!("the range `{part}` runs backwards, write {last}-{first}"));
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let mut cpus = Vec::new();
    for (first, last) in ranges {
        let next = cpus.last().map_or(0, |&cpu| cpu + 1); // overlapping ranges give each CPU once
        cpus.extend(first.max(next)..=last);
    }
    Ok(cpus)
}

fn cpu(text: &str) -> Result<u32, String> {
    match (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse()) {
        None if text.is_empty() => Err("the number of a CPU is missing, write a list as in 0-3,7".to_owned()),
        None => Err(format!("`{text}` is not a CPU, write a list as in 0-3,7")),
        Some(Ok(cpu)) if cpu <= MAX_CPU => Ok(cpu),
        Some(_) => Err(format!("CPU {text} is out of range, the last is {MAX_CPU}")),
    }
}

/// The threads of a process. Empty when the process has ended.
pub fn threads(host: &Host, pid: i32) -> Vec<i32> {
    numeric_entries(&host.proc.join(pid.to_string()).join("task"))
}

/// Memory of the machine in bytes. `u64::MAX`: it is not known.
pub fn memory_bytes(host: &Host) -> u64 {
    let text = fs::read_to_string(host.proc.join("meminfo")).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    total.map_or(u64::MAX, |kib: u64| kib.saturating_mul(1024))
}

/// The names of disks and partitions, by major and minor number as `254,0`. Empty: there are none, or they are not known.
///
/// Source: `/proc/partitions`, `show_partition` in block/genhd.c.
pub fn disks(host: &Host) -> HashMap<String, String> {
    let text = fs::read_to_string(host.proc.join("partitions")).unwrap_or_default();
    let disk = |line: &str| match *line.split_whitespace().collect::<Vec<_>>() {
        [major, minor, _blocks, name] => Some((format!("{major},{minor}"), name.to_owned())),
        _ => None,
    };
    text.lines().filter_map(disk).collect()
}

/// Every process id.
pub fn processes(host: &Host) -> Vec<i32> {
    numeric_entries(&host.proc)
}

fn numeric_entries(dir: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut ids: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cpu_lists() {
        let cases: [(&str, &[u32]); 5] = [
            ("0", &[0]),
            ("0-3,7", &[0, 1, 2, 3, 7]),
            ("7,0-1,1", &[0, 1, 7]),
            ("1,1", &[1]),
            ("1048575", &[1_048_575]),
        ];
        for (text, want) in cases {
            assert_eq!(parse_cpus(text).as_deref(), Ok(want), "{text:?}");
        }
        for text in ["", "2-0", "0,x", "0,", "-1", "1-", "1-2-3", "+1", "0, 1", "1048576", "0-4294967296"] {
            assert!(parse_cpus(text).is_err(), "{text:?}");
        }
        let repeated = "0-1048575,".repeat(20) + "0";
        assert_eq!(parse_cpus(&repeated).unwrap().len(), 1_048_576);
    }

    #[test]
    fn lists_cpus_as_users_type_them() {
        for (cpus, want) in [(&[0, 1, 2, 5][..], "0-2,5"), (&[7], "7"), (&[], "")] {
            assert_eq!(cpu_ranges(cpus), want);
        }
    }
}
