//! Names that this process lacks the privileges to see, and what would show them.

use std::fs::File;
use std::io::Read;

use crate::host::{Host, processes, sysctl};
use crate::perf::refusal::Reason;
use crate::sys::privileges::{Capability, Privileges};
use crate::task::procfs;

/// Why some frames will have no names. Empty for root.
pub fn hidden(host: &Host) -> Vec<Reason> {
    let privileges = Privileges::of_self(&host.proc);
    let restrict = sysctl(host, "kptr_restrict").unwrap_or(0);
    let mut reasons = Vec::new();
    if !shows_addresses(host) {
        reasons.push(kernel_names(privileges.has(Capability::Syslog), restrict));
    }
    if !privileges.has(Capability::SysPtrace) && hides_maps(host, privileges.uid) {
        reasons.push(Reason::new(
            "no names for functions of other users' programs",
            "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or run as root",
        ));
    }
    reasons
}

/// Why kallsyms shows no addresses, by kallsyms_show_value() in kernel/ksyms_common.c.
fn kernel_names(has_syslog: bool, restrict: i64) -> Reason {
    const WHY: &str = "no names for kernel functions";
    match restrict {
        2.. => Reason::new(format!("{WHY} (kernel.kptr_restrict is {restrict})"), "sysctl kernel.kptr_restrict=1"),
        _ if has_syslog => Reason::incurable(format!("{WHY}: the kernel has no /proc/kallsyms with addresses")),
        0 => {
            Reason::new(format!("{WHY} (CAP_SYSLOG is missing)"), "CAP_SYSLOG, or sysctl kernel.perf_event_paranoid=1")
        }
        _ => Reason::new(format!("{WHY} (CAP_SYSLOG is missing)"), "CAP_SYSLOG, or sysctl kernel.kptr_restrict=0"),
    }
}

/// Whether any of the first symbols has an address; hidden ones are all zero.
fn shows_addresses(host: &Host) -> bool {
    let mut start = String::new();
    let Ok(file) = File::open(host.proc.join("kallsyms")) else { return false };
    // A page that is not UTF-8 counts as hidden.
    let read = file.take(4096).read_to_string(&mut start);
    let address = |line: &str| line.split(' ').next().is_some_and(|word| word.bytes().any(|byte| byte != b'0'));
    read.is_ok() && start.lines().any(address)
}

/// Whether the mappings of some process of another user may not be read.
fn hides_maps(host: &Host, uid: u32) -> bool {
    processes(host)
        .iter()
        .any(|pid| procfs::owner(host, *pid).is_some_and(|owner| owner != uid) && procfs::is_closed_to_us(host, *pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_no_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        let cases = [
            ("0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n", true),
            ("0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n", false),
            ("", false),
        ];
        assert!(!shows_addresses(&host));
        for (text, want) in cases {
            std::fs::write(dir.path().join("kallsyms"), text).unwrap();
            assert_eq!(shows_addresses(&host), want, "{text:?}");
        }
    }

    #[test]
    fn the_cure_is_one_that_works() {
        let cases = [
            (false, 0, Some("CAP_SYSLOG, or sysctl kernel.perf_event_paranoid=1")),
            (false, 1, Some("CAP_SYSLOG, or sysctl kernel.kptr_restrict=0")),
            (true, 2, Some("sysctl kernel.kptr_restrict=1")),
            (true, 1, None),
        ];
        for (has_syslog, restrict, want) in cases {
            assert_eq!(kernel_names(has_syslog, restrict).cure.as_deref(), want, "{has_syslog} {restrict}");
        }
    }
}
