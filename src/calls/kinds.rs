//! Properties of system calls by number: the name, whether the call waits by design, whether it returns.

use std::sync::Arc;

use crate::report::Value;
use crate::tep::syscalls;
use crate::tep::syscalls::compat_calls;

/// A system call by its number. Numbers of 32-bit mode mean other calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallNumber {
    pub number: i32,
    pub is_compat: bool,
}

/// Stands for all calls without a row of their own.
pub const OTHERS: CallNumber = CallNumber { number: i32::MIN, is_compat: false };

/// How a call ends, and what its length means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The call works; a long one deserves attention.
    Works,
    /// The call exists to wait: for an event, a time, a task, a signal.
    Waits,
    /// The call ends its task.
    NeverReturns,
    /// The call returns twice: in the parent and in the child.
    Forks,
}

/// Calls that do nothing but wait if there is nothing to do. Reads of a pipe or a socket may wait too, but a read
/// depends on its descriptor, so reads count as work.
#[rustfmt::skip]
const WAITING: &[&str] = &[
    "futex", "futex_wait", "futex_waitv", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6",
    "nanosleep", "clock_nanosleep", "wait4", "waitid", "pause", "rt_sigsuspend", "rt_sigtimedwait", "io_getevents",
    "io_pgetevents", "restart_syscall", "io_uring_enter", "accept", "accept4", "semop", "semtimedop", "msgrcv",
    "mq_timedreceive",
    // In 32-bit mode:
    "_newselect", "sigsuspend", "waitpid",
];
const ENDING: &[&str] = &["exit", "exit_group"];
const FORKING: &[&str] = &["clone", "clone3", "fork", "vfork"];

/// Size of the table of call numbers; no architecture has more calls.
const LIMIT: usize = 1024;

/// Kinds of the running architecture's calls, by number, and of those of 32-bit mode.
#[derive(Debug)]
pub struct CallKinds {
    native: Vec<CallKind>,
    compat: Vec<CallKind>,
}

impl Default for CallKinds {
    fn default() -> CallKinds {
        let kind = |number: usize| syscalls::name(number as u64).map_or(CallKind::Works, CallKind::of_name);
        CallKinds { native: (0..LIMIT).map(kind).collect(), compat: (0..LIMIT).map(compat_kind).collect() }
    }
}

impl CallKind {
    fn of_name(name: &str) -> CallKind {
        match name.trim_end_matches("_time64") {
            name if WAITING.contains(&name) => CallKind::Waits,
            name if ENDING.contains(&name) => CallKind::NeverReturns,
            name if FORKING.contains(&name) => CallKind::Forks,
            _ => CallKind::Works,
        }
    }
}

impl CallKinds {
    #[inline]
    pub fn of(&self, call: CallNumber) -> CallKind {
        let kinds = if call.is_compat { &self.compat } else { &self.native };
        let known = usize::try_from(call.number).ok().and_then(|number| kinds.get(number));
        known.copied().unwrap_or(CallKind::Works)
    }
}

/// Where calls of 32-bit mode have no names, only those are listed that affect the pairing. Source:
/// arch/arm/tools/syscall.tbl.
fn compat_kind(number: usize) -> CallKind {
    match (compat_calls::name(number as u64), number) {
        (Some(name), _) => CallKind::of_name(name),
        (None, 1 | 248) => CallKind::NeverReturns,
        (None, 2 | 120 | 190 | 435) => CallKind::Forks,
        (None, _) => CallKind::Works,
    }
}

impl CallNumber {
    #[inline]
    pub fn new(id: i64, is_compat: bool) -> CallNumber {
        // The kernel takes an int.
        CallNumber { number: id as i32, is_compat }
    }

    /// The name on its manual page, as far as it is known.
    pub fn name(self) -> Option<&'static str> {
        if self.is_compat { None } else { syscalls::name(u64::try_from(self.number).ok()?) }
    }

    pub fn value(self) -> Value {
        match self.name() {
            Some(name) => Value::Word(name),
            None if self == OTHERS => Value::Word("<others>"),
            None if self.is_compat => Value::Text(Arc::from(compat_calls::text(self.number))),
            None => Value::Text(Arc::from(format!("sys_{}", self.number))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(number: libc::c_long) -> CallNumber {
        CallNumber::new(number, false)
    }

    #[test]
    fn kinds_and_names() {
        let kinds = CallKinds::default();
        let cases = [
            (libc::SYS_read, CallKind::Works, "read"),
            (libc::SYS_futex, CallKind::Waits, "futex"),
            (libc::SYS_exit_group, CallKind::NeverReturns, "exit_group"),
            (libc::SYS_clone, CallKind::Forks, "clone"),
        ];
        for (number, kind, name) in cases {
            assert_eq!((kinds.of(native(number)), native(number).name()), (kind, Some(name)));
        }
        assert_eq!(kinds.of(native(-1)), CallKind::Works);
        assert_eq!(kinds.of(native(1 << 40)), kinds.of(native(0)), "the kernel takes an int");
        assert_eq!(native(9999).value(), Value::Text("sys_9999".into()));
        assert_eq!(CallNumber::new(64, true).value(), Value::Text(compat_calls::text(64).into()));
        let waits = if cfg!(target_arch = "x86_64") { CallKind::Waits } else { CallKind::Works };
        assert_eq!([7, 240, 422].map(|number| kinds.of(CallNumber::new(number, true))), [waits; 3], "waitpid, futex");
        assert_eq!(kinds.of(CallNumber::new(1, true)), CallKind::NeverReturns);
        assert_eq!(OTHERS.value(), Value::Word("<others>"));
    }

    #[test]
    fn names_of_kinds_are_calls() {
        for name in WAITING.iter().chain(ENDING).chain(FORKING) {
            // aarch64 lacks the older calls.
            let in_32_bits = || (0..LIMIT as u64).any(|number| compat_calls::name(number) == Some(name));
            assert!(syscalls::number(name).is_some() || in_32_bits() || cfg!(not(target_arch = "x86_64")), "{name}");
        }
    }
}
