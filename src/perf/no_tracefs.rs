//! Why the formats of tracepoints cannot be read: tracefs is not mounted, closed to this user, or locked down.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::perf::refusal::Reason;
use crate::perf::target::Host;

/// tracefs is mounted nowhere that we can read, and cannot be mounted by us.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NoTracefs {
    pub reason: Reason,
}

impl NoTracefs {
    pub fn new(err: io::Error, host: &Host) -> NoTracefs {
        NoTracefs { reason: no_tracefs(err.raw_os_error().unwrap_or(0), host) }
    }
}

/// What the kernel closes to everybody, kernel_lockdown(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    Confidentiality,
    /// Events and tracefs are open.
    Less,
}

impl Lockdown {
    pub fn now() -> Lockdown {
        Lockdown::parse(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())
    }

    fn parse(text: &str) -> Lockdown {
        if text.contains("[confidentiality]") { Lockdown::Confidentiality } else { Lockdown::Less }
    }
}

/// Why neither a mounted tracefs was found nor one of our own could be mounted: mount(2) said `errno`.
pub fn no_tracefs(errno: i32, host: &Host) -> Reason {
    let mounts = fs::read_to_string(host.proc.join("self/mounts")).unwrap_or_default();
    not_found(errno, &mounts, &Lockdown::now())
}

fn not_found(errno: i32, mounts: &str, lockdown: &Lockdown) -> Reason {
    let mut entries = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mounted = entries.find(|entry| entry.get(2) == Some(&"tracefs")).and_then(|entry| entry.get(1).copied());
    match (mounted, errno) {
        (_, libc::EMFILE | libc::ENFILE) => {
            Reason::new("no file descriptor is left for a look at tracefs", "raise `ulimit -n`")
        }
        (Some(root), _) => unreadable(Path::new(root), Path::new(root), lockdown),
        (None, libc::ENODEV) => Reason::incurable("this kernel has no tracefs (CONFIG_TRACING)"),
        (None, _) if *lockdown == Lockdown::Confidentiality => locked_down(),
        (None, _) => Reason::new(
            format!("tracefs is not mounted, and this process may not mount it ({:?})", Errno::from_raw(errno)),
            "CAP_SYS_ADMIN, or have it mounted for a group of yours: \
             mount -t tracefs -o gid=GROUP,mode=755 nodev /sys/kernel/tracing, or run as root",
        ),
    }
}

/// Why `path` in the tracefs at `root` cannot be read.
pub fn unreadable(path: &Path, root: &Path, lockdown: &Lockdown) -> Reason {
    if *lockdown == Lockdown::Confidentiality {
        return locked_down();
    }
    Reason::new(
        format!("tracefs is not readable ({})", path.display()),
        format!(
            "CAP_DAC_READ_SEARCH, or for a group of yours: mount -o remount,gid=GROUP,mode=755 {}, or run as root",
            root.display()
        ),
    )
}

fn locked_down() -> Reason {
    Reason::new(
        "the kernel is locked down (confidentiality), and tracefs is closed to root, too",
        "boot with lockdown=integrity",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTED: &str = "proc /proc proc rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n";

    #[test]
    fn every_obstacle_has_its_own_cure() {
        let less = Lockdown::parse("[none] integrity confidentiality\n");
        let locked = Lockdown::parse("none integrity [confidentiality]\n");
        let cases = [
            (libc::EPERM, MOUNTED, less, "is not readable (/sys/kernel/tracing)", Some("CAP_DAC_READ_SEARCH, or ")),
            (libc::EPERM, MOUNTED, locked, "locked down", Some("boot with lockdown=integrity")),
            (libc::EPERM, "proc /proc proc rw 0 0\n", less, "is not mounted", Some("CAP_SYS_ADMIN, or ")),
            (libc::EPERM, "", locked, "locked down", Some("boot ")),
            (libc::ENODEV, "x", less, "this kernel has no tracefs", None),
            (libc::EMFILE, MOUNTED, less, "no file descriptor", Some("raise `ulimit -n`")),
        ];
        for (errno, mounts, lockdown, why, cure) in cases {
            let reason = not_found(errno, mounts, &lockdown);
            assert!(reason.why.contains(why), "{reason}");
            assert_eq!(reason.cure.is_some(), cure.is_some(), "{reason}");
            assert!(reason.cure.iter().all(|text| text.starts_with(cure.unwrap())), "{reason}");
        }
    }
}
