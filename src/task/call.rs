//! The system call that a thread waits in, and its file descriptors.
//!
//! /proc/TID/syscall has the number, six arguments, the stack pointer and the program counter as the thread left user
//! mode (`proc_pid_syscall`, fs/proc/base.c). The number depends on the ABI, which is read from the auxiliary vector:
//! that vector is in the kernel's memory, while reading the file of the program may hang.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::task::descriptor::{Mounts, OpenFile};
use crate::task::procfs::read_start;
use crate::tep::syscalls;

/// A name of [`syscalls`].
pub type CallName = &'static str;

/// A system call in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCall {
    #[serde(with = "call_name")]
    pub name: CallName,
    /// The files that the call works on.
    pub files: Vec<Descriptor>,
}

/// A file descriptor among the arguments of a system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    pub fd: i32,
    /// None when the descriptor is closed, or cannot be read.
    pub file: Option<OpenFile>,
}

/// Number and arguments of a system call, from /proc/TID/syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnteredCall {
    pub number: u64,
    pub args: [u64; 6],
    /// The stack pointer of the program.
    pub stack: u64,
}

/// Serialises the name of a system call as its number.
mod call_name {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::tep::syscalls;

    pub fn serialize<S: Serializer>(name: &&'static str, to: S) -> Result<S::Ok, S::Error> {
        syscalls::number(name).unwrap_or(u32::MAX).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<&'static str, D::Error> {
        let number = u32::deserialize(from)?;
        syscalls::name(number.into()).ok_or_else(|| D::Error::custom("no system call"))
    }
}

/// The call that a thread is in. None when it is in no call, runs, has another ABI than the native one, or cannot be
/// read.
pub fn call(host: &Host, tid: i32, mounts: &mut Mounts) -> Option<SystemCall> {
    let entered = entered_call(host, tid)?;
    let name = syscalls::name(entered.number)?;
    if !is_native(host, tid) {
        return None;
    }
    let fd = |index: &usize| entered.args.get(*index).map(|arg| *arg as i32).filter(|fd| *fd >= 0); // the kernel takes an int
    let files = descriptors(name).iter().filter_map(fd);
    let files = files.map(|fd| Descriptor { fd, file: mounts.open_file(host, tid, fd) }).collect();
    Some(SystemCall { name, files })
}

/// Number, in the thread's ABI, and arguments of the call that a thread is in. None when it is in no call, runs, or
/// cannot be read. The read may hang where the thread is in an exec.
pub fn entered_call(host: &Host, tid: i32) -> Option<EnteredCall> {
    const MAX_BYTES: u32 = 512;
    let line = read_start(host, tid, "syscall", MAX_BYTES)?;
    parse_entered(std::str::from_utf8(&line).ok()?)
}

/// Parses /proc/TID/syscall. None for `running`, and for -1, an exception such as a page fault; also for a thread that
/// was never in user mode (kernel thread, io_uring worker), whose registers are 0.
fn parse_entered(line: &str) -> Option<EnteredCall> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut register = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = register()?;
    }
    let (stack, program) = (register()?, register()?);
    (stack != 0 && program != 0).then_some(EnteredCall { number, args, stack })
}

/// Whether the program of a thread has the native ABI: system calls have other numbers in 32-bit mode.
pub fn is_native(host: &Host, tid: i32) -> bool {
    const MAX_BYTES: u32 = 4096;
    read_start(host, tid, "auxv", MAX_BYTES).is_some_and(|bytes| is_native_vector(&bytes))
}

/// Whether an auxiliary vector is native. Its words are as wide as those of the program, and AT_PHENT, the size of a
/// program header, differs by width.
fn is_native_vector(bytes: &[u8]) -> bool {
    const AT_PHENT: u64 = 4;
    const PROGRAM_HEADER_BYTES: u64 = 56; // Elf64_Phdr
    let (words, _) = bytes.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().map(|pair| pair.map(u64::from_ne_bytes)).any(|pair| pair == [AT_PHENT, PROGRAM_HEADER_BYTES])
}

/// The arguments of a system call that are file descriptors, by index.
fn descriptors(name: &str) -> &'static [usize] {
    let known = DESCRIPTORS.iter().find(|(_, names)| names.contains(&name));
    known.map_or(&[], |(indexes, _)| indexes)
}

type DescriptorArgs = (&'static [usize], &'static [&'static str]);

#[rustfmt::skip]
const DESCRIPTORS: &[DescriptorArgs] = &[
    (&[0], &[
        // Reading and writing.
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "lseek",
        "fsync", "fdatasync", "sync_file_range", "syncfs", "ftruncate", "fallocate", "fadvise64", "readahead",
        "vmsplice", "cachestat",
        // Files.
        "close", "ioctl", "fcntl", "flock", "dup", "dup2", "dup3", "fstat", "fstatfs", "getdents", "getdents64", "fchdir",
        "fchmod", "fchown", "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr", "quotactl_fd", "finit_module",
        // Below a directory.
        "openat", "openat2", "newfstatat", "statx", "faccessat", "faccessat2", "unlinkat", "mkdirat", "mknodat", "fchownat",
        "fchmodat", "fchmodat2", "readlinkat", "utimensat", "futimesat", "name_to_handle_at", "open_by_handle_at",
        "execveat", "open_tree", "file_getattr", "file_setattr",
        // Sockets.
        "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4", "connect", "bind", "listen",
        "shutdown", "getsockopt", "setsockopt",
        // Descriptors of events, queues and processes.
        "epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "io_uring_enter", "io_uring_register", "mq_timedsend",
        "mq_timedreceive", "inotify_add_watch", "timerfd_settime", "setns", "pidfd_send_signal", "fsconfig", "fsmount",
    ]),
    (&[1], &["symlinkat"]),
    (&[4], &["mmap"]),
    (&[0, 1], &["sendfile", "tee"]),
    (&[0, 2], &["splice", "copy_file_range", "linkat", "renameat", "renameat2", "move_mount"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    /// Arguments 0 to 5, the stack pointer and the program counter.
    pub const READ_OF_7: &str = "0x7 0x7ffc5e29b050 0x10 0x0 0x0 0x0 0x7ffc5e29af30 0x7ff2b23a2aec";

    #[test]
    fn parses_lines_of_threads_in_a_call() {
        let cases: [(&str, Option<(u64, u64)>); 14] = [
            ("0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", Some((0, 7))),
            ("270 0xffffffffffffff9c 0x1 0x2 0x3 0x4 0x5 0x1 0x1", Some((270, u64::MAX - 99))),
            ("running\n", None),
            ("-1 0x7ffc 0x7ff2\n", None), // an exception
            ("-1 0x0 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", None), // a kernel thread
            ("426 0x7 0x1 0x2 0x3 0x4 0x5 0x0 0x0\n", None), // a worker of io_uring
            ("0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc\n", None),
            ("0 7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("0 0x7 0x1 0x2 0x3 0x4 0xfffffffffffffffff 0x7ffc 0x7ff2\n", None),
            ("99999999999999999999 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("0x0 0x7 0x1 0x2 0x3 0x4 0x5 0x7ffc 0x7ff2\n", None),
            ("\n", None),
            ("", None),
        ];
        for (line, want) in cases {
            let got = parse_entered(line).map(|entered| (entered.number, entered.args[0]));
            assert_eq!(got, want, "{line:?}");
        }
    }

    #[test]
    fn the_abi_is_in_the_auxiliary_vector() {
        let wide = |pairs: &[(u64, u64)]| -> Vec<u8> {
            pairs.iter().flat_map(|(key, value)| [key.to_ne_bytes(), value.to_ne_bytes()].concat()).collect()
        };
        let narrow = |pairs: &[(u32, u32)]| -> Vec<u8> {
            pairs.iter().flat_map(|(key, value)| [key.to_ne_bytes(), value.to_ne_bytes()].concat()).collect()
        };
        assert!(is_native_vector(&wide(&[(33, 0x7ffc_0000), (4, 56), (0, 0)])));
        for bytes in [
            wide(&[(33, 0x7ffc_0000), (4, 32), (0, 0)]), // x32
            wide(&[(56, 4), (0, 0)]),
            narrow(&[(32, 0xf7f0_0000), (4, 32), (3, 0x0804_8034), (4, 56), (0, 0)]),
            wide(&[(4, 56)])[..15].to_vec(),
            Vec::new(), // a kernel thread
        ] {
            assert!(!is_native_vector(&bytes), "{bytes:?}");
        }
    }

    #[test]
    fn descriptors_are_known_by_call() {
        let cases: [(&str, &[usize]); 8] = [
            ("read", &[0]),
            ("mmap", &[4]),
            ("splice", &[0, 2]),
            ("sendfile", &[0, 1]),
            ("openat", &[0]),
            ("symlinkat", &[1]),
            ("futex", &[]),
            ("vfork", &[]),
        ];
        for (name, want) in cases {
            assert_eq!(descriptors(name), want, "{name}");
        }
        let mut all: Vec<&str> = DESCRIPTORS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "each once: {all:?}");
        if cfg!(target_arch = "x86_64") {
            let known: Vec<&str> = (0..600).filter_map(syscalls::name).collect();
            let unknown: Vec<&&str> = all.iter().filter(|name| !known.contains(name)).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_call_has_its_file() {
        let process = FixtureProcess::new(5);
        process.auxv(56).write("syscall", &format!("0 {READ_OF_7}\n")).descriptor(7, "/var/log/x", "mnt_id:\t40\n");
        process.write("mountinfo", "40 1 254:16 / /var rw - ext4 /dev/vdb rw\n");
        let call = |process: &FixtureProcess| call(&process.host(), 5, &mut Mounts::default());
        let got = call(&process).unwrap();
        assert_eq!((got.name, got.files.len(), got.files[0].fd), ("read", 1, 7));
        let file = got.files[0].file.clone().unwrap();
        assert_eq!((&file.path[..], file.device.as_deref()), (&b"/var/log/x"[..], Some(&b"/dev/vdb"[..])));
        // A closed descriptor has no file.
        process.write("syscall", &format!("0 {}\n", READ_OF_7.replacen("0x7 ", "0x8 ", 1)));
        assert_eq!(call(&process).unwrap().files, [Descriptor { fd: 8, file: None }]);
        process.write("syscall", &format!("257 {}\n", READ_OF_7.replacen("0x7 ", "0xffffff9c ", 1)));
        assert_eq!(call(&process), Some(SystemCall { name: "openat", files: Vec::new() }), "AT_FDCWD");
        process.write("syscall", &format!("202 {READ_OF_7}\n"));
        assert_eq!(call(&process), Some(SystemCall { name: "futex", files: Vec::new() }));
        // In 32-bit mode 7 is waitpid, in native mode poll.
        process.auxv(32);
        assert_eq!(call(&process), None);
    }
}
