//! Names that stand for numbers: errors, signals, system calls, task states.

use crate::tep::syscalls::errnos::{ERRNOS, KERNEL_ERRNOS};
use crate::tep::{Format, drift, syscalls};

macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u32)),*] };
}

#[rustfmt::skip]
const SIGNALS: &[(&str, u32)] = of_libc![
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM
    SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO
    SIGPWR SIGSYS
];
/// Names of task states, with the letter of each in the kernel's table.
const STATES: [(&str, &str); 9] = [
    ("TASK_RUNNING", "R"),
    ("TASK_INTERRUPTIBLE", "S"),
    ("TASK_UNINTERRUPTIBLE", "D"),
    ("TASK_STOPPED", "T"),
    ("TASK_TRACED", "t"),
    ("EXIT_DEAD", "X"),
    ("EXIT_ZOMBIE", "Z"),
    ("TASK_PARKED", "P"),
    ("TASK_IDLE", "I"),
];
/// Task states with the same number in all kernels: include/linux/sched.h.
const FIXED_STATES: [(&str, u32); 5] = [("R", 0), ("S", 1), ("D", 2), ("T", 4), ("t", 8)];

/// The number that `name` stands for in an expression over an event of `format`.
pub fn value(name: &str, format: &Format) -> Option<u64> {
    let lists = [ERRNOS, KERNEL_ERRNOS, SIGNALS];
    let listed = lists.iter().copied().flatten().find(|(known, _)| *known == name).map(|(_, value)| u64::from(*value));
    listed.or_else(|| state(name, format)).or_else(|| syscall(name, format))
}

/// All names but those of system calls.
pub fn names() -> impl Iterator<Item = &'static str> {
    let listed = [ERRNOS, KERNEL_ERRNOS, SIGNALS].into_iter().flatten().map(|(name, _)| *name);
    listed.chain(STATES.iter().map(|(name, _)| *name))
}

/// The number of a task state, from the event's own table if it has one.
fn state(name: &str, format: &Format) -> Option<u64> {
    let (_, letter) = STATES.iter().find(|(known, _)| *known == name)?;
    let fixed = || FIXED_STATES.iter().find(|(known, _)| known == letter).map(|(_, value)| u64::from(*value));
    match drift::task_states(format) {
        Some(table) if *letter != "R" => {
            table.entries.iter().find(|(_, known)| known == letter).map(|(mask, _)| *mask).or_else(fixed)
        }
        _ => fixed(),
    }
}

/// The number of a system call. Only for events of system calls may `__NR_` be left out: elsewhere a name such as
/// `time` or `link` is more likely a misspelt field.
fn syscall(name: &str, format: &Format) -> Option<u64> {
    let is_about_calls = matches!(format.system.as_str(), "syscalls" | "raw_syscalls");
    let call = name.strip_prefix("__NR_").or_else(|| name.strip_prefix("SYS_"));
    syscalls::number(call.or_else(|| is_about_calls.then_some(name))?).map(u64::from)
}
