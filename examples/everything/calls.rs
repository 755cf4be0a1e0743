//! Every system call, with arguments that almost all calls refuse.

use std::path::Path;

use crate::sys::{BAD, call};

/// Upper limit: beyond the last system call of current kernels.
const NUMBERS: std::ops::Range<libc::c_long> = 0..480;

/// Calls left out: they end, stop or suspend the caller, fork it, or affect the whole machine.
const NEVER: &[libc::c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_kill,
    libc::SYS_reboot,
    libc::SYS_vhangup,
    libc::SYS_kexec_load,
    libc::SYS_sync,
    libc::SYS_restart_syscall,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    335, // uretprobe: a SIGILL for any caller but a probe
    #[cfg(target_arch = "x86_64")]
    336, // uprobe
];

/// Runs in a new IPC namespace: `msgget` and similar calls create objects with any arguments.
pub fn all(_dir: &Path) {
    if call(libc::SYS_unshare, [libc::CLONE_NEWIPC as usize]) != 0 {
        return;
    }
    for number in NUMBERS {
        if !NEVER.contains(&number) {
            call(number, [BAD; 6]);
        }
    }
    harmless();
}

/// Calls that succeed and change nothing permanently.
fn harmless() {
    // SAFETY: takes no arguments and cannot fail.
    let own = unsafe { libc::getpid() } as usize;
    call(libc::SYS_kill, [own, 0]);
    call(libc::SYS_tgkill, [own, own, 0]);
    call(libc::SYS_umask, [0o22]);
    call(libc::SYS_clone, [BAD, 0, 0, 0, 0]);
    call(libc::SYS_rt_sigsuspend, [BAD, BAD]);
    call(libc::SYS_getpgid, [0]);
    call(libc::SYS_sched_yield, []);
    call(libc::SYS_sched_getscheduler, [0]);
    call(libc::SYS_sched_get_priority_max, [1]);
    call(libc::SYS_sched_get_priority_min, [1]);
    call(libc::SYS_setfsuid, [0]);
    call(libc::SYS_setfsgid, [0]);
    call(libc::SYS_ioprio_get, [1, 0]);
    call(libc::SYS_membarrier, [0, 0, 0]);
}
