//! Names of the values and flags of system calls' arguments.

use super::put;

/// Names of an argument's values.
#[derive(Debug, PartialEq, Eq)]
pub struct ValueNames {
    /// Bits that together are one number.
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

/// `O_TMPFILE` and `O_SYNC` include the bits of other flags.
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
/// Commands without an argument.
pub const FCNTL_ALONE: [i32; 6] =
    [libc::F_GETFD, libc::F_GETFL, libc::F_GETOWN, libc::F_GETLEASE, libc::F_GETPIPE_SZ, libc::F_GET_SEALS];
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
/// Source: include/linux/socket.h.
#[rustfmt::skip]
pub const LEVEL: ValueNames = choices(&[
    ("SOL_SOCKET", SOL_SOCKET as u32), ("IPPROTO_IP", 0), ("IPPROTO_TCP", IPPROTO_TCP as u32), ("IPPROTO_UDP", 17),
    ("IPPROTO_IPV6", 41), ("IPPROTO_ICMPV6", 58), ("IPPROTO_SCTP", 132), ("IPPROTO_RAW", 255), ("SOL_PACKET", 263),
    ("SOL_NETLINK", 270), ("SOL_ALG", 279), ("SOL_TLS", 282), ("SOL_MPTCP", 284),
]);
/// Levels that have names for their options.
pub const SOL_SOCKET: i32 = libc::SOL_SOCKET;
pub const IPPROTO_TCP: i32 = libc::IPPROTO_TCP;
/// Source: include/uapi/asm-generic/socket.h.
#[rustfmt::skip]
pub const SOCKET_OPTION: ValueNames = choices(&[
    ("SO_DEBUG", 1), ("SO_REUSEADDR", 2), ("SO_TYPE", 3), ("SO_ERROR", 4), ("SO_DONTROUTE", 5), ("SO_BROADCAST", 6),
    ("SO_SNDBUF", 7), ("SO_RCVBUF", 8), ("SO_KEEPALIVE", 9), ("SO_OOBINLINE", 10), ("SO_NO_CHECK", 11), ("SO_PRIORITY", 12),
    ("SO_LINGER", 13), ("SO_BSDCOMPAT", 14), ("SO_REUSEPORT", 15), ("SO_PASSCRED", 16), ("SO_PEERCRED", 17),
    ("SO_RCVLOWAT", 18), ("SO_SNDLOWAT", 19), ("SO_RCVTIMEO", 20), ("SO_SNDTIMEO", 21), ("SO_BINDTODEVICE", 25),
    ("SO_ATTACH_FILTER", 26), ("SO_DETACH_FILTER", 27), ("SO_PEERNAME", 28), ("SO_TIMESTAMP", 29), ("SO_ACCEPTCONN", 30),
    ("SO_PEERSEC", 31), ("SO_SNDBUFFORCE", 32), ("SO_RCVBUFFORCE", 33), ("SO_PASSSEC", 34), ("SO_TIMESTAMPNS", 35),
    ("SO_MARK", 36), ("SO_TIMESTAMPING", 37), ("SO_PROTOCOL", 38), ("SO_DOMAIN", 39), ("SO_RXQ_OVFL", 40),
    ("SO_WIFI_STATUS", 41), ("SO_PEEK_OFF", 42), ("SO_NOFCS", 43), ("SO_LOCK_FILTER", 44), ("SO_SELECT_ERR_QUEUE", 45),
    ("SO_BUSY_POLL", 46), ("SO_MAX_PACING_RATE", 47), ("SO_BPF_EXTENSIONS", 48), ("SO_INCOMING_CPU", 49),
    ("SO_ATTACH_BPF", 50), ("SO_ATTACH_REUSEPORT_CBPF", 51), ("SO_ATTACH_REUSEPORT_EBPF", 52), ("SO_CNX_ADVICE", 53),
    ("SO_MEMINFO", 55), ("SO_INCOMING_NAPI_ID", 56), ("SO_COOKIE", 57), ("SO_PEERGROUPS", 59), ("SO_ZEROCOPY", 60),
    ("SO_TXTIME", 61), ("SO_BINDTOIFINDEX", 62), ("SO_TIMESTAMP_NEW", 63), ("SO_TIMESTAMPNS_NEW", 64),
    ("SO_TIMESTAMPING_NEW", 65), ("SO_RCVTIMEO_NEW", 66), ("SO_SNDTIMEO_NEW", 67), ("SO_DETACH_REUSEPORT_BPF", 68),
    ("SO_PREFER_BUSY_POLL", 69), ("SO_BUSY_POLL_BUDGET", 70), ("SO_NETNS_COOKIE", 71), ("SO_BUF_LOCK", 72),
    ("SO_RESERVE_MEM", 73), ("SO_TXREHASH", 74), ("SO_RCVMARK", 75), ("SO_PASSPIDFD", 76), ("SO_PEERPIDFD", 77),
]);
/// Source: include/uapi/linux/tcp.h.
#[rustfmt::skip]
pub const TCP_OPTION: ValueNames = choices(&[
    ("TCP_NODELAY", 1), ("TCP_MAXSEG", 2), ("TCP_CORK", 3), ("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6),
    ("TCP_SYNCNT", 7), ("TCP_LINGER2", 8), ("TCP_DEFER_ACCEPT", 9), ("TCP_WINDOW_CLAMP", 10), ("TCP_INFO", 11),
    ("TCP_QUICKACK", 12), ("TCP_CONGESTION", 13), ("TCP_MD5SIG", 14), ("TCP_USER_TIMEOUT", 18), ("TCP_REPAIR", 19),
    ("TCP_FASTOPEN", 23), ("TCP_TIMESTAMP", 24), ("TCP_NOTSENT_LOWAT", 25), ("TCP_ULP", 31), ("TCP_FASTOPEN_CONNECT", 30),
    ("TCP_ZEROCOPY_RECEIVE", 35), ("TCP_INQ", 36),
]);
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
/// Source: include/uapi/linux/memfd.h.
#[rustfmt::skip]
pub const MEMFD: ValueNames = flags(&[
    ("MFD_CLOEXEC", 1), ("MFD_ALLOW_SEALING", 2), ("MFD_HUGETLB", 4), ("MFD_NOEXEC_SEAL", 8), ("MFD_EXEC", 16),
]);
/// Source: include/uapi/linux/mman.h.
pub const MREMAP: ValueNames = flags(&[("MREMAP_MAYMOVE", 1), ("MREMAP_FIXED", 2), ("MREMAP_DONTUNMAP", 4)]);
/// Source: include/uapi/asm-generic/mman.h.
pub const MLOCKALL: ValueNames = flags(&[("MCL_CURRENT", 1), ("MCL_FUTURE", 2), ("MCL_ONFAULT", 4)]);
pub const MLOCK: ValueNames = flags(&[("MLOCK_ONFAULT", 1)]);
/// Source: include/uapi/linux/fadvise.h.
#[rustfmt::skip]
pub const FADVISE: ValueNames = choices(&[
    ("POSIX_FADV_NORMAL", 0), ("POSIX_FADV_RANDOM", 1), ("POSIX_FADV_SEQUENTIAL", 2), ("POSIX_FADV_WILLNEED", 3),
    ("POSIX_FADV_DONTNEED", 4), ("POSIX_FADV_NOREUSE", 5),
]);
/// Source: include/uapi/linux/fs.h.
#[rustfmt::skip]
pub const SYNC_RANGE: ValueNames = flags(&[
    ("SYNC_FILE_RANGE_WAIT_BEFORE", 1), ("SYNC_FILE_RANGE_WRITE", 2), ("SYNC_FILE_RANGE_WAIT_AFTER", 4),
]);
/// Source: include/uapi/linux/fs.h.
#[rustfmt::skip]
pub const READ_WRITE: ValueNames = flags(&[
    ("RWF_HIPRI", 1), ("RWF_DSYNC", 2), ("RWF_SYNC", 4), ("RWF_NOWAIT", 8), ("RWF_APPEND", 16), ("RWF_NOAPPEND", 32),
    ("RWF_ATOMIC", 64), ("RWF_DONTCACHE", 128),
]);
pub const EVENTFD: ValueNames =
    ValueNames { choice_mask: 0, choices: NONE, flags: &[("EFD_SEMAPHORE", 1), NONBLOCK, CLOEXEC] };
/// Flags of signalfd4, timerfd_create and inotify_init1: the kernel defines all of them by these two.
pub const NEW_FD: ValueNames = flags(&[NONBLOCK, CLOEXEC]);
const NONBLOCK: (&str, u32) = ("O_NONBLOCK", libc::O_NONBLOCK as u32);
const CLOEXEC: (&str, u32) = ("O_CLOEXEC", libc::O_CLOEXEC as u32);
/// Source: include/linux/timerfd.h.
pub const TIMERFD: ValueNames = flags(&[("TFD_TIMER_ABSTIME", 1), ("TFD_TIMER_CANCEL_ON_SET", 2)]);
/// Source: include/uapi/linux/close_range.h.
pub const CLOSE_RANGE: ValueNames = flags(&[("CLOSE_RANGE_UNSHARE", 2), ("CLOSE_RANGE_CLOEXEC", 4)]);
/// What waitid waits for. Source: include/uapi/linux/wait.h.
pub const WAIT_FOR: ValueNames = choices(&[("P_ALL", 0), ("P_PID", 1), ("P_PGID", 2), ("P_PIDFD", 3)]);
/// Whose priority. Source: include/uapi/linux/resource.h.
pub const PRIORITY_OF: ValueNames = choices(&[("PRIO_PROCESS", 0), ("PRIO_PGRP", 1), ("PRIO_USER", 2)]);
/// Source: include/uapi/linux/resource.h.
pub const USAGE_OF: ValueNames = choices(&[("RUSAGE_SELF", 0), ("RUSAGE_CHILDREN", u32::MAX), ("RUSAGE_THREAD", 1)]);
/// Source: include/uapi/asm-generic/resource.h.
#[rustfmt::skip]
pub const RESOURCE: ValueNames = choices(&[
    ("RLIMIT_CPU", 0), ("RLIMIT_FSIZE", 1), ("RLIMIT_DATA", 2), ("RLIMIT_STACK", 3), ("RLIMIT_CORE", 4), ("RLIMIT_RSS", 5),
    ("RLIMIT_NPROC", 6), ("RLIMIT_NOFILE", 7), ("RLIMIT_MEMLOCK", 8), ("RLIMIT_AS", 9), ("RLIMIT_LOCKS", 10),
    ("RLIMIT_SIGPENDING", 11), ("RLIMIT_MSGQUEUE", 12), ("RLIMIT_NICE", 13), ("RLIMIT_RTPRIO", 14), ("RLIMIT_RTTIME", 15),
]);
/// Source: include/uapi/linux/sched.h.
#[rustfmt::skip]
pub const POLICY: ValueNames = ValueNames {
    choice_mask: !SCHED_RESET_ON_FORK,
    choices: &[
        ("SCHED_OTHER", 0), ("SCHED_FIFO", 1), ("SCHED_RR", 2), ("SCHED_BATCH", 3), ("SCHED_IDLE", 5), ("SCHED_DEADLINE", 6),
        ("SCHED_EXT", 7),
    ],
    flags: &[("SCHED_RESET_ON_FORK", SCHED_RESET_ON_FORK)],
};
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
/// Source: include/uapi/linux/mount.h.
#[rustfmt::skip]
pub const MOUNT: ValueNames = flags(&[
    ("MS_RDONLY", 1), ("MS_NOSUID", 1 << 1), ("MS_NODEV", 1 << 2), ("MS_NOEXEC", 1 << 3), ("MS_SYNCHRONOUS", 1 << 4),
    ("MS_REMOUNT", 1 << 5), ("MS_MANDLOCK", 1 << 6), ("MS_DIRSYNC", 1 << 7), ("MS_NOSYMFOLLOW", 1 << 8),
    ("MS_NOATIME", 1 << 10), ("MS_NODIRATIME", 1 << 11), ("MS_BIND", 1 << 12), ("MS_MOVE", 1 << 13), ("MS_REC", 1 << 14),
    ("MS_SILENT", 1 << 15), ("MS_POSIXACL", 1 << 16), ("MS_UNBINDABLE", 1 << 17), ("MS_PRIVATE", 1 << 18),
    ("MS_SLAVE", 1 << 19), ("MS_SHARED", 1 << 20), ("MS_RELATIME", 1 << 21), ("MS_STRICTATIME", 1 << 24),
    ("MS_LAZYTIME", 1 << 25),
]);
/// Source: include/linux/fs.h.
pub const UMOUNT: ValueNames = flags(&[("MNT_FORCE", 1), ("MNT_DETACH", 2), ("MNT_EXPIRE", 4), ("UMOUNT_NOFOLLOW", 8)]);
/// Source: include/uapi/linux/prctl.h.
#[rustfmt::skip]
pub const PRCTL: ValueNames = choices(&[
    ("PR_SET_PDEATHSIG", 1), ("PR_GET_PDEATHSIG", 2), ("PR_GET_DUMPABLE", 3), ("PR_SET_DUMPABLE", 4), ("PR_GET_KEEPCAPS", 7),
    ("PR_SET_KEEPCAPS", 8), ("PR_SET_NAME", 15), ("PR_GET_NAME", 16), ("PR_GET_SECCOMP", 21), ("PR_SET_SECCOMP", 22),
    ("PR_CAPBSET_READ", 23), ("PR_CAPBSET_DROP", 24), ("PR_GET_SECUREBITS", 27), ("PR_SET_SECUREBITS", 28),
    ("PR_SET_TIMERSLACK", 29), ("PR_GET_TIMERSLACK", 30), ("PR_SET_MM", 35), ("PR_SET_CHILD_SUBREAPER", 36),
    ("PR_GET_CHILD_SUBREAPER", 37), ("PR_SET_NO_NEW_PRIVS", 38), ("PR_GET_NO_NEW_PRIVS", 39), ("PR_GET_TID_ADDRESS", 40),
    ("PR_SET_THP_DISABLE", 41), ("PR_GET_THP_DISABLE", 42), ("PR_CAP_AMBIENT", 47), ("PR_GET_SPECULATION_CTRL", 52),
    ("PR_SET_SPECULATION_CTRL", 53), ("PR_SCHED_CORE", 62), ("PR_SET_VMA", 0x53564d41), ("PR_SET_PTRACER", 0x59616d61),
]);
/// Source: include/uapi/linux/ptrace.h, arch/x86/include/uapi/asm/ptrace-abi.h.
#[rustfmt::skip]
pub const PTRACE: ValueNames = choices(&[
    ("PTRACE_TRACEME", 0), ("PTRACE_PEEKTEXT", 1), ("PTRACE_PEEKDATA", 2), ("PTRACE_PEEKUSR", 3), ("PTRACE_POKETEXT", 4),
    ("PTRACE_POKEDATA", 5), ("PTRACE_POKEUSR", 6), ("PTRACE_CONT", 7), ("PTRACE_KILL", 8), ("PTRACE_SINGLESTEP", 9),
    ("PTRACE_GETREGS", 12), ("PTRACE_SETREGS", 13), ("PTRACE_ATTACH", 16), ("PTRACE_DETACH", 17), ("PTRACE_SYSCALL", 24),
    ("PTRACE_SETOPTIONS", 0x4200), ("PTRACE_GETEVENTMSG", 0x4201), ("PTRACE_GETSIGINFO", 0x4202),
    ("PTRACE_SETSIGINFO", 0x4203), ("PTRACE_GETREGSET", 0x4204), ("PTRACE_SETREGSET", 0x4205), ("PTRACE_SEIZE", 0x4206),
    ("PTRACE_INTERRUPT", 0x4207), ("PTRACE_LISTEN", 0x4208), ("PTRACE_PEEKSIGINFO", 0x4209),
]);
/// Source: include/uapi/linux/time.h.
pub const ITIMER: ValueNames = choices(&[("ITIMER_REAL", 0), ("ITIMER_VIRTUAL", 1), ("ITIMER_PROF", 2)]);
/// The argument of F_SETFD.
pub const DESCRIPTOR: ValueNames = flags(&[("FD_CLOEXEC", 1)]);

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
