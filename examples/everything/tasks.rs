//! Tasks: created, named, moved among CPUs and schedulers, joined, traced, made to wait for each other.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use nix::sys::wait::waitpid;

use crate::sys::{at, at_mut, call, child, close, text};

/// Argument with which this program exits immediately.
pub const CHILD: &str = "--child";

pub fn all(_dir: &Path) {
    programs();
    threads();
    policies();
    traced();
    futexes();
    boosted();
    namespaces();
    names();
    filtered();
}

/// Executes this program, which exits immediately, and a program that does not exist.
fn programs() {
    let Ok(own) = std::env::current_exe() else { return };
    let _ = Command::new(own).arg(CHILD).stdin(Stdio::null()).status();
    let _ = Command::new("/nonexistent/program").status();
    let Some(child) = child(|| ()) else { return };
    let fd = call(libc::SYS_pidfd_open, [child.as_raw() as usize, 0]);
    call(libc::SYS_pidfd_getfd, [fd as usize, 0, 0]);
    call(libc::SYS_pidfd_send_signal, [fd as usize, libc::SIGTERM as usize, 0, 0]);
    call(libc::SYS_waitid, [libc::P_PIDFD as usize, fd as usize, at_mut(&mut [0u8; 128]), libc::WEXITED as usize, 0]);
    call(libc::SYS_wait4, [usize::MAX, 0, libc::WNOHANG as usize, 0]);
    close(fd);
}

fn threads() {
    let handles: Vec<_> = (0..4)
        .map(|number| {
            thread::Builder::new().name(format!("thread {number}")).spawn(|| {
                thread::sleep(Duration::from_millis(1));
                thread::yield_now();
            })
        })
        .collect();
    handles.into_iter().flatten().for_each(|handle| drop(handle.join()));
}

fn policies() {
    for policy in [libc::SCHED_BATCH, libc::SCHED_IDLE, libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_OTHER] {
        let value = i32::from(matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR));
        call(libc::SYS_sched_setscheduler, [0, policy as usize, at(&value)]);
        call(libc::SYS_sched_yield, []);
        call(libc::SYS_sched_rr_get_interval, [0, at_mut(&mut [0u64; 2])]);
        call(libc::SYS_sched_getparam, [0, at_mut(&mut 0i32)]);
    }
    let mut attributes = [0u64; 16];
    call(libc::SYS_sched_getattr, [0, at_mut(&mut attributes), 128, 0]);
    call(libc::SYS_setpriority, [0, 0, 5]);
    call(libc::SYS_getpriority, [0, 0]);
    let mut before = [0u64; 16];
    call(libc::SYS_sched_getaffinity, [0, 128, at_mut(&mut before)]);
    for cpu in 0..2 {
        if before[0] & (1 << cpu) != 0 {
            let mut only = [0u64; 16];
            only[0] = 1 << cpu;
            call(libc::SYS_sched_setaffinity, [0, 128, at(&only)]);
            thread::sleep(Duration::from_millis(1));
        }
    }
    call(libc::SYS_sched_setaffinity, [0, 128, at(&before)]);
    call(libc::SYS_getcpu, [at_mut(&mut 0u32), at_mut(&mut 0u32), 0]);
    call(libc::SYS_getrusage, [0, at_mut(&mut [0u64; 32])]);
}

fn traced() {
    let child = child(|| {
        call(libc::SYS_ptrace, [0, 0, 0, 0]); // PTRACE_TRACEME
        let _ = raise(Signal::SIGSTOP);
        call(libc::SYS_getppid, []);
    });
    let Some(child) = child else { return };
    let _ = waitpid(child, None);
    let pid = child.as_raw() as usize;
    call(libc::SYS_kcmp, [std::process::id() as usize, pid, 0, 0, 0]);
    call(libc::SYS_ptrace, [libc::PTRACE_SYSCALL as usize, pid, 0, 0]);
    let _ = waitpid(child, None);
    call(libc::SYS_ptrace, [libc::PTRACE_DETACH as usize, pid, 0, 0]);
    let _ = waitpid(child, None);
}

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_REQUEUE: usize = 3;
const FUTEX_LOCK_PI: usize = 6;
const FUTEX_UNLOCK_PI: usize = 7;

fn futexes() {
    let word = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let soon = [0u64, 5_000_000];
            call(libc::SYS_futex, [at(&word), FUTEX_WAIT, 0, at(&soon)]);
        });
        thread::sleep(Duration::from_millis(1));
        call(libc::SYS_futex, [at(&word), FUTEX_WAKE, 1]);
        call(libc::SYS_futex, [at(&word), FUTEX_REQUEUE, 1, 1, at(&AtomicU32::new(0))]);
    });
    let mut list = [0usize; 3];
    call(libc::SYS_get_robust_list, [0, at_mut(&mut list), at_mut(&mut 0usize)]);
}

/// A thread that holds a lock for which a higher-priority thread waits.
fn boosted() {
    let lock = AtomicU32::new(0);
    let waits = AtomicU32::new(0);
    thread::scope(|scope| {
        call(libc::SYS_futex, [at(&lock), FUTEX_LOCK_PI, 0, 0]);
        scope.spawn(|| {
            let priority = 1i32;
            call(libc::SYS_sched_setscheduler, [0, libc::SCHED_FIFO as usize, at(&priority)]);
            waits.store(1, Ordering::Release);
            call(libc::SYS_futex, [at(&lock), FUTEX_LOCK_PI, 0, 0]);
            call(libc::SYS_futex, [at(&lock), FUTEX_UNLOCK_PI, 0, 0]);
        });
        while waits.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(2));
        call(libc::SYS_futex, [at(&lock), FUTEX_UNLOCK_PI, 0, 0]);
    });
}

fn namespaces() {
    let kinds = [
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUSER,
    ];
    for kind in kinds {
        let child = child(|| {
            if call(libc::SYS_unshare, [kind as usize]) == 0 && kind == libc::CLONE_NEWUTS {
                call(libc::SYS_sethostname, [at(b"everything"), 10]);
                call(libc::SYS_setdomainname, [at(b"everything"), 10]);
            }
        });
        let _ = child.map(|child| waitpid(child, None));
    }
    if let Ok(own) = fs::File::open("/proc/self/ns/uts") {
        use std::os::fd::AsRawFd;
        call(libc::SYS_setns, [own.as_raw_fd() as usize, 0]);
    }
}

fn names() {
    call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, text(c"a name = \"odd\" %d")]);
    let _ = fs::write("/proc/self/comm", "back");
    call(libc::SYS_prctl, [9999, 1, 2, 3, 4]);
    call(libc::SYS_setpgid, [0, 0]);
    call(libc::SYS_setsid, []);
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    let _ = fs::write("/proc/self/timerslack_ns", "60000");
}

/// A child with a system call that seccomp refuses.
fn filtered() {
    let child = child(|| {
        let code: [u64; 4] = [
            0x0000_0000_0000_0020,                                    // load the number
            0x0000_0000_0001_0015 | (libc::SYS_getppid as u64) << 32, // getppid?
            0x7fff_0000_0000_0006,                                    // no: allow
            0x0005_0001_0000_0006,                                    // yes: EPERM
        ];
        let program = [4usize, at(&code)];
        call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]);
        call(libc::SYS_seccomp, [1, 0, at(&program)]);
        call(libc::SYS_getppid, []);
    });
    let _ = child.map(|child| waitpid(child, None));
}
