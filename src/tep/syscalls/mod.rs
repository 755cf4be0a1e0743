//! System calls: the number behind each event of the system `syscalls`, and which of its fields the raw event records.
//!
//! `raw_syscalls:sys_enter` and `sys_exit` fire for all system calls alike and carry the number;
//! `syscalls:sys_enter_NAME` and `sys_exit_NAME` are the same records under a name. The kernel does not tell the number
//! of an event, so there is a table here.
//!
//! Source: kernel/trace/trace_syscalls.c, include/trace/events/syscalls.h.

pub mod call_id;
pub mod call_text;
pub mod compat_calls;
pub mod errnos;
pub mod syscall_strings;

use std::collections::BTreeSet;

use crate::tep::format::Format;
use crate::tep::format::field::{Field, FieldKind};

/// The tracepoint system of the events that have a system call in their name.
pub const SYSTEM: &str = "syscalls";

/// One end of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyscallEnd {
    Enter,
    Exit,
}

impl SyscallEnd {
    pub const BOTH: [SyscallEnd; 2] = [SyscallEnd::Enter, SyscallEnd::Exit];

    /// The event that fires at this end of every system call.
    pub fn raw(self) -> &'static str {
        match self {
            SyscallEnd::Enter => "raw_syscalls:sys_enter",
            SyscallEnd::Exit => "raw_syscalls:sys_exit",
        }
    }

    /// The event that fires at this end of the call with this name.
    pub fn event(self, call: &str) -> String {
        format!("{SYSTEM}:{}{call}", self.prefix())
    }

    fn prefix(self) -> &'static str {
        match self {
            SyscallEnd::Enter => "sys_enter_",
            SyscallEnd::Exit => "sys_exit_",
        }
    }
}

/// Which end of which system call `event`, such as `sys_enter_openat`, is about, by the numbers of the running
/// architecture. None for what is not in the table.
pub fn end_and_number(event: &str) -> Option<(SyscallEnd, u32)> {
    SyscallEnd::BOTH.into_iter().find_map(|end| Some((end, number(event.strip_prefix(end.prefix())?)?)))
}

/// Names that the event at the start of a system call may have; `call` is the name on its manual page.
pub fn entries(call: &str) -> impl Iterator<Item = String> + use<'_> {
    let functions = RENAMED.iter().filter(move |(_, name)| *name == call).map(|(function, _)| *function);
    std::iter::once(call).chain(functions).map(|function| format!("{SYSTEM}:{}{function}", SyscallEnd::Enter.prefix()))
}

/// The name of the system call whose start `event` marks.
pub fn entered_call(event: &str) -> Option<&str> {
    event.strip_prefix(SYSTEM)?.strip_prefix(':')?.strip_prefix(SyscallEnd::Enter.prefix())
}

/// The name of a system call by its number on the running architecture, as its manual page has it. None for what is not
/// in the table. A task in 32-bit mode has other numbers.
pub fn name(number: u64) -> Option<&'static str> {
    let number = libc::c_long::try_from(number).ok()?;
    let of_libc = FROM_LIBC.iter().copied().flatten().find(|(_, known)| *known == number);
    let late = || ARCH_RECENT.iter().chain(RECENT).find(|(_, known)| *known == number);
    of_libc.or_else(late).map(|(name, _)| name.trim_start_matches("SYS_"))
}

/// The name of a system call whose number is the same on all architectures and in all modes.
pub(super) fn recent(number: u64) -> Option<&'static str> {
    RECENT.iter().find(|(_, known)| u64::try_from(*known) == Ok(number)).map(|(name, _)| *name)
}

/// The number of a system call on the running architecture, by its name in the kernel or on its manual page.
pub fn number(function: &str) -> Option<u32> {
    let call = RENAMED.iter().find(|(name, _)| *name == function).map_or(function, |(_, call)| *call);
    let by_libc = FROM_LIBC.iter().copied().flatten().map(|(name, number)| (name.trim_start_matches("SYS_"), *number));
    let mut all = by_libc.chain(ARCH_RECENT.iter().chain(RECENT).copied());
    all.find(|(name, _)| *name == call).and_then(|(_, number)| u32::try_from(number).ok())
}

/// `event` without the fields that the raw event does not record: text that newer kernels copy from user space. The
/// print format becomes the one that the kernel makes of the arguments alone.
pub fn without_user_text(event: &Format) -> Format {
    let is_copy = |field: &Field| matches!(field.kind, FieldKind::DataLoc { .. } | FieldKind::RelLoc { .. });
    let mut bare = event.clone();
    bare.fields.retain(|field| field.is_common() || !is_copy(field));
    if bare.fields.len() == event.fields.len() {
        return bare;
    }
    // __set_enter_print_fmt: "%s: 0x%%0%zulx%s", sizeof(unsigned long)
    let names: Vec<&str> = bare.user_fields().skip(1).map(|field| field.name.as_str()).collect();
    let texts: Vec<String> = names.iter().map(|name| format!("{name}: 0x%08lx")).collect();
    let values: String = names.iter().map(|name| format!(", ((unsigned long)(REC->{name}))")).collect();
    bare.print_fmt = format!("\"{}\"{values}", texts.join(", "));
    bare
}

/// Whether the fields of an event [`without_user_text`] read the same from a record of `raw`: the number, then the
/// arguments in their order or the return value.
pub fn matches_raw_layout(bare: &Format, raw: &Format) -> bool {
    let Some(id) = number_field(raw) else { return false };
    let mut fields = bare.user_fields();
    // An int in the low half of the raw event's long.
    let number = fields.next().is_some_and(|field| {
        let names = ["__syscall_nr", "nr"]; // the latter before 4.6
        names.contains(&field.name.as_str()) && field.offset == id.offset && field.size <= id.size
    });
    let words: Vec<usize> = raw.user_fields().skip(1).flat_map(word_offsets).collect();
    let common = |format: &Format| -> Vec<(String, usize, usize)> {
        let common = format.fields.iter().filter(|field| field.is_common());
        common.map(|field| (field.name.clone(), field.offset, field.size)).collect()
    };
    cfg!(target_endian = "little")
        && number
        && fields
            .zip(words.iter().map(Some).chain(std::iter::repeat(None)))
            .all(|(field, at)| field.size == WORD_BYTES && Some(&field.offset) == at)
        && common(bare) == common(raw)
}

/// The field of a raw event that holds the number of the system call.
pub fn number_field(raw: &Format) -> Option<&Field> {
    raw.user_fields().next().filter(|field| field.name == "id" && field.size == WORD_BYTES)
}

/// Size of an argument or a return value.
const WORD_BYTES: usize = 8;

/// Offsets of the words in a field: a single word, or an array.
fn word_offsets(field: &Field) -> Vec<usize> {
    (0..field.size / WORD_BYTES).map(|index| field.offset.saturating_add(index * WORD_BYTES)).collect()
}

/// The fields that both events have at the same place, under the name of the raw event. A filter over these fields
/// means the same for both.
pub fn shared_fields(event: &Format, raw: &Format) -> Format {
    let mut shared = raw.clone();
    let same = |field: &Field| {
        event.field(&field.name).is_some_and(|other| {
            (other.offset, other.size, other.signed, other.kind) == (field.offset, field.size, field.signed, field.kind)
        })
    };
    shared.fields.retain(same);
    shared
}

/// A kernel filter that lets exactly the numbers `wanted` of `all` pass; numbers in neither may pass too. None: all are
/// wanted.
pub fn numbers_filter(field: &str, wanted: &BTreeSet<u32>, all: &BTreeSet<u32>) -> Option<String> {
    if wanted.is_superset(all) {
        return None;
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut broken = true;
    for number in all.union(wanted) {
        match runs.last_mut() {
            _ if !wanted.contains(number) => broken = true,
            Some((_, end)) if !broken => *end = *number,
            _ => {
                runs.push((*number, *number));
                broken = false;
            }
        }
    }
    Some(runs_filter(field, &runs))
}

/// A filter for runs of numbers. Of many, it halves the numbers again and again: the kernel tests them one by one, at
/// 3 ns each, for every system call of the machine.
fn runs_filter(field: &str, runs: &[(u32, u32)]) -> String {
    const MAX_TESTS: usize = 4;
    let test = |(first, last): &(u32, u32)| match first == last {
        true => format!("{field} == {first}"),
        false => format!("({field} >= {first} && {field} <= {last})"),
    };
    let (low, high) = runs.split_at(runs.len() / 2);
    match high.first() {
        Some((middle, _)) if runs.len() > MAX_TESTS => {
            let [low, high] = [low, high].map(|runs| runs_filter(field, runs));
            format!("({field} < {middle} && ({low})) || ({field} >= {middle} && ({high}))")
        }
        _ => runs.iter().map(test).collect::<Vec<_>>().join(" || "),
    }
}

/// Kernel functions whose name differs from that of their system call.
const RENAMED: [(&str, &str); 9] = [
    ("newstat", "stat"),
    ("newfstat", "fstat"),
    ("newlstat", "lstat"),
    ("newuname", "uname"),
    ("sendfile64", "sendfile"),
    ("umount", "umount2"),
    ("sysctl", "_sysctl"),
    ("fadvise64_64", "fadvise64"),        // arm64
    ("arm64_personality", "personality"), // arm64
];

type SyscallNumbers = &'static [(&'static str, libc::c_long)];

macro_rules! from_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name),)*] };
}

const FROM_LIBC: &[SyscallNumbers] = &[COMMON, ARCH];

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const COMMON: SyscallNumbers = from_libc! {
    SYS_accept SYS_accept4 SYS_acct SYS_add_key SYS_adjtimex SYS_bind SYS_bpf SYS_brk SYS_capget SYS_capset
    SYS_chdir SYS_chroot SYS_clock_adjtime SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep
    SYS_clock_settime SYS_clone SYS_close SYS_connect SYS_copy_file_range SYS_delete_module SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group
    SYS_faccessat SYS_fadvise64 SYS_fallocate SYS_fanotify_init SYS_fanotify_mark SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_finit_module SYS_flistxattr
    SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex
    SYS_get_mempolicy SYS_get_robust_list SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid
    SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority
    SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid SYS_getsockname
    SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr SYS_init_module SYS_inotify_add_watch
    SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel SYS_io_destroy SYS_io_getevents
    SYS_io_setup SYS_io_submit SYS_ioctl SYS_ioprio_get SYS_ioprio_set SYS_kcmp SYS_kexec_load SYS_keyctl
    SYS_kill SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lookup_dcookie
    SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_mbind SYS_membarrier SYS_memfd_create
    SYS_migrate_pages SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mount
    SYS_move_pages SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend
    SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall
    SYS_munmap SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_nfsservctl SYS_open_by_handle_at
    SYS_openat SYS_perf_event_open SYS_personality SYS_pipe2 SYS_pivot_root SYS_pkey_alloc SYS_pkey_free
    SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_vm_readv
    SYS_process_vm_writev SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_quotactl SYS_read
    SYS_readahead SYS_readlinkat SYS_readv SYS_reboot SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages
    SYS_removexattr SYS_renameat SYS_renameat2 SYS_request_key SYS_restart_syscall SYS_rt_sigaction
    SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval
    SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield
    SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_set_mempolicy SYS_set_robust_list SYS_set_tid_address SYS_setdomainname SYS_setfsgid SYS_setfsuid
    SYS_setgid SYS_setgroups SYS_sethostname SYS_setitimer SYS_setns SYS_setpgid SYS_setpriority SYS_setregid
    SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid SYS_setsockopt SYS_settimeofday SYS_setuid
    SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_socket
    SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_swapoff SYS_swapon SYS_symlinkat SYS_sync
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_syslog SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete
    SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask SYS_umount2 SYS_uname SYS_unlinkat
    SYS_unshare SYS_userfaultfd SYS_utimensat SYS_vhangup SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
};

#[cfg(target_arch = "x86_64")]
const ARCH: SyscallNumbers = from_libc! {
    SYS__sysctl SYS_access SYS_afs_syscall SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2
    SYS_epoll_create SYS_epoll_ctl_old SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat
    SYS_get_thread_area SYS_getdents SYS_getpgrp SYS_getpmsg SYS_inotify_init SYS_ioperm SYS_iopl
    SYS_kexec_file_load SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause
    SYS_pipe SYS_poll SYS_putpmsg SYS_readlink SYS_rename SYS_rmdir SYS_security SYS_select SYS_set_thread_area
    SYS_signalfd SYS_stat SYS_symlink SYS_sysfs SYS_time SYS_tuxcall SYS_unlink SYS_uselib SYS_ustat SYS_utime
    SYS_utimes SYS_vfork SYS_vserver
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const COMMON: SyscallNumbers = &[];
#[cfg(not(target_arch = "x86_64"))]
const ARCH: SyscallNumbers = &[];

/// System calls of x86_64 that the C library's list lacks. Source: arch/x86/entry/syscalls/syscall_64.tbl.
#[cfg(target_arch = "x86_64")]
const ARCH_RECENT: SyscallNumbers = &[("io_pgetevents", 333), ("rseq", 334), ("uretprobe", 335), ("uprobe", 336)];
/// System calls of aarch64 that the C library's list lacks. Source: scripts/syscall.tbl.
#[cfg(target_arch = "aarch64")]
const ARCH_RECENT: SyscallNumbers = &[("io_pgetevents", 292), ("rseq", 293)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH_RECENT: SyscallNumbers = &[];

/// From Linux 5.1 on, new system calls have the same number on all architectures.
#[rustfmt::skip]
const RECENT: SyscallNumbers = &[
    ("pidfd_send_signal", 424), ("io_uring_setup", 425), ("io_uring_enter", 426), ("io_uring_register", 427),
    ("open_tree", 428), ("move_mount", 429), ("fsopen", 430), ("fsconfig", 431), ("fsmount", 432), ("fspick", 433),
    ("pidfd_open", 434), ("clone3", 435), ("close_range", 436), ("openat2", 437), ("pidfd_getfd", 438),
    ("faccessat2", 439), ("process_madvise", 440), ("epoll_pwait2", 441), ("mount_setattr", 442),
    ("quotactl_fd", 443), ("landlock_create_ruleset", 444), ("landlock_add_rule", 445),
    ("landlock_restrict_self", 446), ("memfd_secret", 447), ("process_mrelease", 448), ("futex_waitv", 449),
    ("set_mempolicy_home_node", 450), ("cachestat", 451), ("fchmodat2", 452), ("map_shadow_stack", 453),
    ("futex_wake", 454), ("futex_wait", 455), ("futex_requeue", 456), ("statmount", 457), ("listmount", 458),
    ("lsm_get_self_attr", 459), ("lsm_set_self_attr", 460), ("lsm_list_modules", 461), ("mseal", 462),
    ("setxattrat", 463), ("getxattrat", 464), ("listxattrat", 465), ("removexattrat", 466), ("open_tree_attr", 467),
    ("file_getattr", 468), ("file_setattr", 469), ("listns", 470),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_events() {
        let cases = [
            ("sys_enter_openat", Some((SyscallEnd::Enter, libc::SYS_openat))),
            ("sys_exit_openat", Some((SyscallEnd::Exit, libc::SYS_openat))),
            ("sys_enter_newfstat", Some((SyscallEnd::Enter, libc::SYS_fstat))),
            ("sys_exit_newuname", Some((SyscallEnd::Exit, libc::SYS_uname))),
            ("sys_enter_sendfile64", Some((SyscallEnd::Enter, libc::SYS_sendfile))),
            ("sys_enter_umount", Some((SyscallEnd::Enter, libc::SYS_umount2))),
            ("sys_enter_fadvise64", Some((SyscallEnd::Enter, libc::SYS_fadvise64))),
            ("sys_enter_rt_sigreturn", Some((SyscallEnd::Enter, libc::SYS_rt_sigreturn))),
            ("sys_enter_file_setattr", Some((SyscallEnd::Enter, 469))),
            ("sys_enter_nosuch", None),
            ("sys_enter_", None),
            ("sys_enter_SYS_read", None),
            ("sys_enter", None),
            ("openat", None),
        ];
        for (event, want) in cases {
            let got = end_and_number(event).map(|(end, number)| (end, libc::c_long::from(number)));
            assert_eq!(got, want, "{event}");
        }
    }

    #[test]
    fn names_of_numbers() {
        // arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl
        #[cfg(target_arch = "x86_64")]
        let own = [(0, "read"), (1, "write"), (58, "vfork"), (74, "fsync"), (202, "futex"), (232, "epoll_wait")];
        #[cfg(target_arch = "aarch64")]
        let own = [(63, "read"), (64, "write"), (82, "fsync"), (98, "futex"), (22, "epoll_pwait"), (220, "clone")];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let own = [];
        for (number, want) in own.into_iter().chain([(426, "io_uring_enter"), (435, "clone3"), (470, "listns")]) {
            assert_eq!(name(number), Some(want), "{number}");
        }
        for number in [400, 9999, 1 << 30, u64::MAX] {
            assert_eq!(name(number), None, "{number}");
        }
    }

    #[test]
    fn each_name_and_number_is_listed_once() {
        let all: Vec<(&str, libc::c_long)> =
            FROM_LIBC.iter().copied().chain([ARCH_RECENT, RECENT]).flatten().copied().collect();
        assert!(all.len() > 300);
        let names: BTreeSet<&str> = all.iter().map(|(name, _)| name.trim_start_matches("SYS_")).collect();
        let numbers: BTreeSet<libc::c_long> = all.iter().map(|(_, number)| *number).collect();
        assert_eq!((names.len(), numbers.len()), (all.len(), all.len()));
        assert!(RECENT.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "a gap");
        // Where the C library knows them, it agrees.
        let checked = from_libc! {
            SYS_pidfd_send_signal SYS_io_uring_setup SYS_open_tree SYS_fspick SYS_pidfd_open SYS_clone3 SYS_openat2
            SYS_faccessat2 SYS_epoll_pwait2 SYS_quotactl_fd SYS_landlock_restrict_self SYS_memfd_secret SYS_futex_waitv
            SYS_set_mempolicy_home_node SYS_mseal
        };
        for (name, number) in checked {
            let known = RECENT.iter().find(|(late, _)| late == &name.trim_start_matches("SYS_"));
            assert_eq!(known.map(|(_, number)| number), Some(number), "{name}");
        }
    }

    const COMMON_FIELDS: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    /// Declaration, offset, size, signed.
    type FieldLine<'a> = (&'a str, usize, usize, bool);

    fn format(name: &str, fields: &[FieldLine<'_>], print: &str) -> Format {
        let field = |(declaration, offset, size, signed): &FieldLine<'_>| {
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};\n", u8::from(*signed))
        };
        let fields: String = fields.iter().map(field).collect();
        Format::parse("s", &format!("name: {name}\nID: 1\nformat:\n{COMMON_FIELDS}{fields}\nprint fmt: {print}\n"))
            .unwrap()
    }

    fn raw_enter() -> Format {
        format("sys_enter", &[("long id", 8, 8, true), ("unsigned long args[6]", 16, 48, false)], "\"\"")
    }

    fn raw_exit() -> Format {
        format("sys_exit", &[("long id", 8, 8, true), ("long ret", 16, 8, true)], "\"\"")
    }

    const NR: FieldLine<'static> = ("int __syscall_nr", 8, 4, true);

    #[test]
    fn layouts_are_compared() {
        let cases: [(&[FieldLine<'_>], bool); 9] = [
            (&[NR], true),
            (&[("int nr", 8, 4, true)], true),
            (&[NR, ("int dfd", 16, 8, false), ("const char * filename", 24, 8, false)], true),
            (&[NR, ("int dfd", 24, 8, false)], false),
            (&[NR, ("int dfd", 16, 4, false)], false),
            (&[("int __syscall_nr", 12, 4, true)], false),
            (&[("int fd", 8, 4, true)], false),
            (&[NR, ("long g", 64, 8, false)], false),
            (&[], false),
        ];
        for (fields, want) in cases {
            assert_eq!(matches_raw_layout(&format("sys_enter_x", fields, "\"\""), &raw_enter()), want, "{fields:?}");
        }
        let exit = format("sys_exit_x", &[NR, ("long ret", 16, 8, true)], "\"\"");
        assert!(matches_raw_layout(&exit, &raw_exit()));
        let seven = (0..7).map(|index| ("long a", 16 + 8 * index, 8, false));
        let seven: Vec<_> = [NR].into_iter().chain(seven).collect();
        assert!(!matches_raw_layout(&format("sys_enter_x", &seven, "\"\""), &raw_enter()), "more than six arguments");
        assert!(!matches_raw_layout(&exit, &exit), "no raw event");
    }

    #[test]
    fn copies_of_user_text_are_left_out() {
        let fields = [NR, ("int dfd", 16, 8, false), ("const char * filename", 24, 8, false)];
        let plain = format("sys_enter_x", &fields, r#""dfd: 0x%08lx", REC->dfd"#);
        assert_eq!(without_user_text(&plain).print_fmt, plain.print_fmt);
        let copy = ("__data_loc char[] __filename_val", 32, 4, false);
        let text = r#""dfd: 0x%08lx, filename: 0x%08lx \"%s\"", REC->dfd, REC->filename, __get_str(__filename_val)"#;
        let bare = without_user_text(&format("sys_enter_x", &[&fields[..], &[copy]].concat(), text));
        let want =
            r#""dfd: 0x%08lx, filename: 0x%08lx", ((unsigned long)(REC->dfd)), ((unsigned long)(REC->filename))"#;
        assert_eq!(bare.print_fmt, want);
        assert!(matches_raw_layout(&bare, &raw_enter()));
        assert!(bare.field("__filename_val").is_none());
    }

    #[test]
    fn finds_shared_fields() {
        let exit = format("sys_exit_x", &[NR, ("long ret", 16, 8, true)], "\"\"");
        let names = |format: &Format| format.fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&shared_fields(&exit, &raw_exit())), ["common_type", "common_pid", "ret"]);
        let enter = format("sys_enter_x", &[NR, ("int id", 16, 8, false)], "\"\"");
        assert_eq!(names(&shared_fields(&enter, &raw_enter())), ["common_type", "common_pid"]);
    }

    #[test]
    fn numbers_become_ranges() {
        let set = |numbers: &[u32]| numbers.iter().copied().collect::<BTreeSet<u32>>();
        let all = set(&[0, 1, 2, 5, 6, 9]);
        let cases: [(&[u32], Option<&str>); 7] = [
            (&[0, 1, 2, 5, 6, 9], None),
            (&[0], Some("id == 0")),
            (&[0, 1, 2], Some("(id >= 0 && id <= 2)")),
            (&[2, 5, 6, 9], Some("(id >= 2 && id <= 9)")),
            (&[0, 2, 5], Some("id == 0 || (id >= 2 && id <= 5)")),
            (&[1, 6], Some("id == 1 || id == 6")),
            (&[1, 6, 40], Some("id == 1 || id == 6 || id == 40")),
        ];
        for (wanted, want) in cases {
            assert_eq!(numbers_filter("id", &set(wanted), &all).as_deref(), want, "{wanted:?}");
        }
        let many = numbers_filter("id", &set(&[0, 2, 4, 6, 8]), &(0..10).collect());
        let halves = "(id < 4 && (id == 0 || id == 2)) || (id >= 4 && (id == 4 || id == 6 || id == 8))";
        assert_eq!(many.as_deref(), Some(halves));
    }
}
