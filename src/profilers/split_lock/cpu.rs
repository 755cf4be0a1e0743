//! The event that counts split locks on this CPU, and the kernel's policy against them.

use std::fs;

use anyhow::{Result, bail};

use crate::host::{Host, sysctl};
use crate::perf::attr::Counter;

/// SQ_MISC.SPLIT_LOCK: Intel's manual, volume 3, performance monitoring events.
const INTEL: u64 = 0x10f4;
/// Retired lock instructions that lock the bus: PMCx025 in AMD's processor programming references.
const AMD: u64 = 0x0125;

/// The event that counts split locks.
pub fn split_locks(host: &Host) -> Result<Counter> {
    let info = cpuinfo(host);
    match value(&info, "vendor_id") {
        Some("GenuineIntel") => Ok(Counter::Raw(INTEL)),
        Some("AuthenticAMD") => Ok(Counter::Raw(AMD)),
        Some(other) => bail!(
            "split locks are counted by Intel and AMD CPUs only, this one is {other}; --event counts something else"
        ),
        None => bail!("split locks exist on Intel and AMD CPUs only; --event counts something else"),
    }
}

/// Refuses a kernel on which provoking a split lock ends in a signal.
pub fn refuse_if_fatal(host: &Host) -> Result<()> {
    if command_line(host).split_ascii_whitespace().any(|word| word == "split_lock_detect=fatal") {
        bail!("this kernel kills who makes a split lock (split_lock_detect=fatal): leave out --test");
    }
    Ok(())
}

/// True if the kernel delays a task for each split lock: handle_user_split_lock, arch/x86/kernel/cpu.
pub fn slows_down(host: &Host) -> bool {
    let info = cpuinfo(host);
    let detects = value(&info, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "split_lock_detect"));
    let off = command_line(host).split_ascii_whitespace().any(|word| word == "split_lock_detect=off");
    detects && !off && sysctl(host, "split_lock_mitigate") == Some(1)
}

fn cpuinfo(host: &Host) -> String {
    fs::read_to_string(host.proc.join("cpuinfo")).unwrap_or_default()
}

fn command_line(host: &Host) -> String {
    fs::read_to_string(host.proc.join("cmdline")).unwrap_or_default()
}

/// The value of a key in /proc/cpuinfo, of the first CPU.
fn value<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let values = info.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A /proc with these files.
    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let host = Host { proc: dir.path().into(), ..Host::default() };
        (dir, host)
    }

    #[test]
    fn events_are_the_vendors_own() {
        let cases = [
            ("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 207\n", Ok(0x10f4)),
            ("vendor_id\t: AuthenticAMD\n", Ok(0x0125)),
            ("vendor_id\t: HygonGenuine\n", Err("this one is HygonGenuine")),
            ("processor\t: 0\nCPU implementer\t: 0x41\n", Err("--event")),
            ("", Err("--event")),
        ];
        for (info, want) in cases {
            let (_dir, host) = host(&[("cpuinfo", info)]);
            match (split_locks(&host), want) {
                (Ok(counter), Ok(config)) => assert_eq!(counter, Counter::Raw(config)),
                (Err(err), Err(part)) => assert!(err.to_string().contains(part), "{err}"),
                (got, want) => panic!("{info}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn knows_what_the_kernel_does() {
        let flags = ("cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu split_lock_detect sse\n");
        let on = ("sys/kernel/split_lock_mitigate", "1\n");
        type Files<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Files<'_>, bool, bool); 5] = [
            (&[flags, on, ("cmdline", "quiet\n")], false, true),
            (&[flags, on, ("cmdline", "split_lock_detect=fatal quiet\n")], true, true),
            (&[flags, on, ("cmdline", "split_lock_detect=off\n")], false, false),
            (&[flags, ("sys/kernel/split_lock_mitigate", "0\n")], false, false),
            (&[on], false, false),
        ];
        for (files, fatal, slow) in cases {
            let (_dir, host) = host(files);
            assert_eq!((refuse_if_fatal(&host).is_err(), slows_down(&host)), (fatal, slow), "{files:?}");
        }
    }
}
