//! Names of the values and flags of system calls' arguments.

use super::put;

/// Names of an argument's values.
#[derive(Debug, PartialEq, Eq)]
pub struct ValueNames {
    /// Bits that are one number.
    choice_mask: u32,
    choices: &'static [(&'static str, u32)],
    /// Bits that have a meaning each.
    flags: &'static [(&'static str, u32)],
}

impl ValueNames {
    /// `O_RDWR|O_CLOEXEC|0x8000000`
    pub fn push(&self, value: u32, out: &mut String) {
        let start = out.len();
        let choice = value & self.choice_mask;
        let mut rest = value & !self.choice_mask;
        match self.choices.iter().find(|(_, known)| *known == choice) {
            Some((name, _)) => out.push_str(name),
            None => rest = value,
        }
        for (name, bits) in self.flags {
            if *bits != 0 && rest & bits == *bits {
                rest &= !bits;
                out.push_str(if out.len() > start { "|" } else { "" });
                out.push_str(name);
            }
        }
        if rest != 0 || out.len() == start {
            out.push_str(if out.len() > start { "|" } else { "" });
            match (rest, self.flags.is_empty()) {
                (0, _) => out.push('0'),
                (rest, true) => put(out, format_args!("{}", rest.cast_signed())),
                (rest, false) => put(out, format_args!("{rest:#x}")),
            }
        }
    }
}

macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u32)),*] };
}

const fn choices(choices: &'static [(&'static str, u32)]) -> ValueNames {
    ValueNames { choice_mask: u32::MAX, choices, flags: &[] }
}

const fn flags(flags: &'static [(&'static str, u32)]) -> ValueNames {
    ValueNames { choice_mask: 0, choices: &[], flags }
}

const NONE: &[(&str, u32)] = &[];

/// The bits of `O_TMPFILE` and `O_SYNC` hold those of others.
#[rustfmt::skip]
pub const OPEN: ValueNames = ValueNames {
    choice_mask: libc::O_ACCMODE as u32,
    choices: of_libc![O_RDONLY O_WRONLY O_RDWR],
    flags: of_libc![
        O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT O_TMPFILE O_DIRECTORY O_NOFOLLOW
        O_NOATIME O_CLOEXEC O_PATH
    ],
};
pub const PROT: ValueNames = ValueNames {
    choice_mask: 0,
    choices: NONE,
    flags: of_libc![PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP],
};
pub const MAP: ValueNames = ValueNames {
    choice_mask: libc::MAP_TYPE as u32,
    choices: of_libc![MAP_SHARED MAP_PRIVATE MAP_SHARED_VALIDATE],
    flags: of_libc![
        MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE MAP_LOCKED MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK
        MAP_HUGETLB MAP_FIXED_NOREPLACE
    ],
};
pub const AT: ValueNames =
    flags(of_libc![AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH]);
pub const ACCESS: ValueNames = ValueNames {
    choice_mask: u32::MAX,
    choices: &[
        ("F_OK", 0),
        ("X_OK", 1),
        ("W_OK", 2),
        ("W_OK|X_OK", 3),
        ("R_OK", 4),
        ("R_OK|X_OK", 5),
        ("R_OK|W_OK", 6),
        ("R_OK|W_OK|X_OK", 7),
    ],
    flags: NONE,
};
pub const WHENCE: ValueNames = choices(of_libc![SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE]);
#[rustfmt::skip]
pub const SIGNAL: ValueNames = choices(of_libc![
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM
    SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR
    SIGSYS
]);
#[rustfmt::skip]
pub const FUTEX: ValueNames = ValueNames {
    choice_mask: 0x7f,
    choices: of_libc![
        FUTEX_WAIT FUTEX_WAKE FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI
        FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_WAIT_REQUEUE_PI FUTEX_CMP_REQUEUE_PI FUTEX_LOCK_PI2
    ],
    flags: of_libc![FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME],
};
#[rustfmt::skip]
pub const FCNTL: ValueNames = choices(of_libc![
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW
    F_SETLEASE F_GETLEASE F_NOTIFY F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
]);
pub const FLOCK: ValueNames = flags(of_libc![LOCK_SH LOCK_EX LOCK_NB LOCK_UN]);
pub const EPOLL_OP: ValueNames = choices(of_libc![EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD]);
pub const EPOLL_CREATE: ValueNames = flags(of_libc![EPOLL_CLOEXEC]);
#[rustfmt::skip]
pub const MADVISE: ValueNames = choices(of_libc![
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK MADV_DOFORK
    MADV_MERGEABLE MADV_UNMERGEABLE MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK
    MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
]);
pub const MSYNC: ValueNames = flags(of_libc![MS_ASYNC MS_INVALIDATE MS_SYNC]);
#[rustfmt::skip]
pub const FAMILY: ValueNames = choices(of_libc![
    AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_ALG AF_VSOCK AF_XDP AF_BLUETOOTH AF_CAN AF_TIPC
]);
pub const SOCKET: ValueNames = ValueNames {
    choice_mask: 0xf,
    choices: of_libc![SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_DCCP],
    flags: of_libc![SOCK_NONBLOCK SOCK_CLOEXEC],
};
pub const ACCEPT: ValueNames = flags(of_libc![SOCK_NONBLOCK SOCK_CLOEXEC]);
#[rustfmt::skip]
pub const MESSAGE: ValueNames = flags(of_libc![
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL MSG_CONFIRM MSG_ERRQUEUE MSG_NOSIGNAL
    MSG_MORE MSG_WAITFORONE MSG_CMSG_CLOEXEC MSG_FASTOPEN
]);
pub const SHUTDOWN: ValueNames = choices(of_libc![SHUT_RD SHUT_WR SHUT_RDWR]);
pub const LEVEL: ValueNames = choices(of_libc![SOL_SOCKET IPPROTO_IP IPPROTO_TCP IPPROTO_UDP IPPROTO_IPV6]);
#[rustfmt::skip]
pub const CLONE: ValueNames = ValueNames {
    choice_mask: 0xff, // the signal for the parent
    choices: &[("0", 0), ("SIGCHLD", libc::SIGCHLD as u32)],
    flags: of_libc![
        CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT CLONE_THREAD CLONE_NEWNS
        CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID
        CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO
    ],
};
pub const WAIT: ValueNames = flags(of_libc![WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT __WALL __WCLONE __WNOTHREAD]);
#[rustfmt::skip]
pub const CLOCK: ValueNames = choices(of_libc![
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID CLOCK_MONOTONIC_RAW
    CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
]);
pub const TIMER: ValueNames = flags(of_libc![TIMER_ABSTIME]);
/// Source: include/uapi/linux/fs.h.
pub const RENAME: ValueNames = flags(&[("RENAME_NOREPLACE", 1), ("RENAME_EXCHANGE", 2), ("RENAME_WHITEOUT", 4)]);
/// Source: include/uapi/linux/falloc.h.
#[rustfmt::skip]
pub const FALLOCATE: ValueNames = flags(&[
    ("FALLOC_FL_KEEP_SIZE", 1), ("FALLOC_FL_PUNCH_HOLE", 2), ("FALLOC_FL_COLLAPSE_RANGE", 8), ("FALLOC_FL_ZERO_RANGE", 16),
    ("FALLOC_FL_INSERT_RANGE", 32), ("FALLOC_FL_UNSHARE_RANGE", 64),
]);
pub const RANDOM: ValueNames = flags(of_libc![GRND_NONBLOCK GRND_RANDOM]);
pub const SPLICE: ValueNames = flags(of_libc![SPLICE_F_MOVE SPLICE_F_NONBLOCK SPLICE_F_MORE SPLICE_F_GIFT]);
pub const SIGMASK: ValueNames = choices(of_libc![SIG_BLOCK SIG_UNBLOCK SIG_SETMASK]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_names_and_the_rest_is_a_number() {
        let cases = [
            (&OPEN, libc::O_RDONLY as u32, "O_RDONLY"),
            (&OPEN, (libc::O_RDWR | libc::O_SYNC) as u32, "O_RDWR|O_SYNC"),
            (&OPEN, (libc::O_RDWR | libc::O_DIRECTORY | 1 << 30) as u32, "O_RDWR|O_DIRECTORY|0x40000000"),
            (&AT, 0, "0"),
            (&WHENCE, 9, "9"),
            (&SIGNAL, 0, "0"),
            (&SIGNAL, 34, "34"),
            (&CLONE, libc::SIGCHLD as u32, "SIGCHLD"),
            (&CLONE, (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u32, "SIGCHLD|CLONE_VM|CLONE_VFORK"),
            (&MAP, 0x22, "MAP_PRIVATE|MAP_ANONYMOUS"),
            (&WAIT, 1, "WNOHANG"),
            (&ACCESS, 4, "R_OK"),
        ];
        for (names, value, want) in cases {
            let mut text = "(".to_owned();
            names.push(value, &mut text);
            assert_eq!(text, format!("({want}"));
        }
    }
}
