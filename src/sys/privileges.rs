//! The privileges of this process, from /proc.

use std::fs;
use std::path::Path;

/// The capabilities that perf-prof needs or names in a cure: number and name, include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    DacReadSearch = 2,
    IpcLock = 14,
    SysPtrace = 19,
    SysAdmin = 21,
    Syslog = 34,
    Perfmon = 38,
}

impl Capability {
    pub const ALL: [Capability; 6] = [
        Capability::Perfmon,
        Capability::SysAdmin,
        Capability::Syslog,
        Capability::SysPtrace,
        Capability::IpcLock,
        Capability::DacReadSearch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Capability::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Syslog => "CAP_SYSLOG",
            Capability::Perfmon => "CAP_PERFMON",
        }
    }
}

/// User and capabilities of a process, and what limits them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// The effective user.
    pub uid: u32,
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// A seccomp filter may refuse any system call.
    pub seccomp: bool,
    /// The capabilities are those of a user namespace: most of the kernel's checks need capabilities in the initial
    /// one.
    pub user_namespace: bool,
}

impl Privileges {
    /// The privileges of this process; no privileges if /proc cannot be read.
    pub fn of_self(proc: &Path) -> Privileges {
        let read = |name: &str| fs::read_to_string(proc.join("self").join(name)).unwrap_or_default();
        Privileges::parse(&read("status"), &read("uid_map"))
    }

    /// `Uid:`, `CapEff:` and `Seccomp:` of /proc/PID/status, and /proc/PID/uid_map: proc(5), user_namespaces(7).
    fn parse(status: &str, uid_map: &str) -> Privileges {
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let uid = value("Uid:").and_then(|uids| uids.split_ascii_whitespace().nth(1)?.parse().ok());
        let map: Vec<&str> = uid_map.split_ascii_whitespace().collect();
        Privileges {
            uid: uid.unwrap_or(u32::MAX),
            effective: value("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0),
            seccomp: value("Seccomp:") == Some("2"),
            user_namespace: !map.is_empty() && map != ["0", "0", "4294967295"],
        }
    }

    /// Whether the capability is effective, perhaps only in a user namespace.
    pub fn holds(&self, capability: Capability) -> bool {
        self.effective & 1 << capability as u32 != 0
    }

    /// Whether the capability is effective in the initial user namespace.
    pub fn has(&self, capability: Capability) -> bool {
        self.holds(capability) && !self.user_namespace
    }

    /// The kernel's `perfmon_capable()`.
    pub fn may_monitor(&self) -> bool {
        self.has(Capability::Perfmon) || self.has(Capability::SysAdmin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_as_the_kernel_tells_them() {
        let status = "Name:\tx\nUid:\t0\t65534\t0\t0\nCapPrm:\tffff\nCapEff:\t0000004000000000\nSeccomp:\t2\n";
        let of = Privileges::parse(status, "         0          0 4294967295\n");
        let bits = 1 << 38;
        assert_eq!(of, Privileges { uid: 65534, effective: bits, seccomp: true, user_namespace: false });
        assert!(of.may_monitor() && of.has(Capability::Perfmon) && !of.has(Capability::Syslog));
        let mapped = Privileges::parse(status, "0 1000 1\n");
        assert!(mapped.holds(Capability::Perfmon) && !mapped.has(Capability::Perfmon) && !mapped.may_monitor());
        for broken in ["", "CapEff:\tzz\nUid:\t1\nSeccomp:", "CapEff:\t1ffffffffffffffff\n"] {
            let of = Privileges::parse(broken, "");
            assert_eq!((of.effective, of.uid, of.seccomp), (0, u32::MAX, false), "{broken:?}");
        }
    }
}
