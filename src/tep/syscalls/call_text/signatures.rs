//! The arguments of the most frequent system calls. Source: their manual pages.

use super::flags as f;
use super::{Names, PathStart};

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// Signed, of 32 bits.
    Int,
    /// Signed, of 64 bits: an offset.
    Long,
    /// Unsigned.
    Size,
    /// A pointer to memory of the program.
    Pointer,
    /// A pointer to a path.
    Path,
    /// A pointer to the address of a socket.
    SocketAddress,
    /// A pointer to a list of strings.
    Words,
    /// A pointer to memory parts (iovec), as many as the next argument says; to a message of such parts; to as many
    /// messages as the next argument says.
    Parts,
    Message,
    Messages,
    /// Flags without names.
    Bits,
    /// Permissions.
    Mode,
    Fd,
    /// The directory that a path begins at.
    DirFd,
    Named(Names),
    /// An option, whose level is the argument before it.
    SocketOption,
    FcntlArgument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnKind {
    Number,
    Address,
    Fd,
}

/// The arguments of a call and what it returns.
#[derive(Clone, Copy, Debug)]
pub struct CallSignature {
    pub name: &'static str,
    pub args: &'static [ArgKind],
    pub returns: ReturnKind,
}

impl CallSignature {
    /// The arguments that are strings, with where they begin if they are paths of files.
    pub fn path_starts(&self) -> impl Iterator<Item = (usize, Option<PathStart>)> + '_ {
        let is_path = |(_, kind): &(usize, &ArgKind)| **kind == Path;
        self.args.iter().enumerate().filter(is_path).map(|(index, _)| (index, self.path_start(index)))
    }

    fn path_start(&self, index: usize) -> Option<PathStart> {
        // The target of a symbolic link is no file that the call uses, and the source of a mount may be no file.
        let is_text = self.name.starts_with("symlink") || self.name == "mount";
        if self.name == "memfd_create" || index == 0 && is_text {
            return None;
        }
        let before = index.checked_sub(1).and_then(|before| Some((before, self.args.get(before)?)));
        Some(match before {
            Some((before, DirFd)) => PathStart::Descriptor(before as u8),
            _ => PathStart::Current,
        })
    }

    /// Number of arguments that mean something: the mode of an open matters where it may create a file, the last one of
    /// fcntl if the command has one.
    pub fn shown(&self, args: &[u64; 6]) -> usize {
        const CREATES: u64 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64;
        let has_last = match self.name {
            "open" => args[1] & CREATES != 0,
            "openat" => args[2] & CREATES != 0,
            "fcntl" => !f::FCNTL_ALONE.contains(&(args[1] as i32)),
            _ => true,
        };
        self.args.len() - usize::from(!has_last)
    }
}

pub fn find(name: &str) -> Option<CallSignature> {
    SIGNATURES.iter().find(|signature| signature.name == name).copied()
}

use ArgKind::{
    Bits, DirFd, FcntlArgument, Fd, Int, Long, Message, Messages, Mode, Named, Parts, Path, Pointer, Size,
    SocketAddress, SocketOption, Words,
};

const fn call(name: &'static str, args: &'static [ArgKind]) -> CallSignature {
    CallSignature { name, args, returns: ReturnKind::Number }
}

const fn opens(name: &'static str, args: &'static [ArgKind]) -> CallSignature {
    CallSignature { name, args, returns: ReturnKind::Fd }
}

const fn maps(name: &'static str, args: &'static [ArgKind]) -> CallSignature {
    CallSignature { name, args, returns: ReturnKind::Address }
}

const SIGNATURES: &[CallSignature] = &[
    // Reading and writing.
    call("read", &[Fd, Pointer, Size]),
    call("write", &[Fd, Pointer, Size]),
    call("pread64", &[Fd, Pointer, Size, Long]),
    call("pwrite64", &[Fd, Pointer, Size, Long]),
    call("readv", &[Fd, Parts, Int]),
    call("writev", &[Fd, Parts, Int]),
    call("preadv", &[Fd, Parts, Int, Long]),
    call("pwritev", &[Fd, Parts, Int, Long]),
    call("preadv2", &[Fd, Parts, Int, Long, Long, Named(&f::READ_WRITE)]),
    call("pwritev2", &[Fd, Parts, Int, Long, Long, Named(&f::READ_WRITE)]),
    call("vmsplice", &[Fd, Parts, Size, Named(&f::SPLICE)]),
    call("tee", &[Fd, Fd, Size, Named(&f::SPLICE)]),
    call("readahead", &[Fd, Long, Size]),
    call("getdents", &[Fd, Pointer, Size]),
    call("lseek", &[Fd, Long, Named(&f::WHENCE)]),
    call("sendfile", &[Fd, Fd, Pointer, Size]),
    call("splice", &[Fd, Pointer, Fd, Pointer, Size, Named(&f::SPLICE)]),
    call("copy_file_range", &[Fd, Pointer, Fd, Pointer, Size, Bits]),
    call("getdents64", &[Fd, Pointer, Size]),
    // To the disk.
    call("fsync", &[Fd]),
    call("fdatasync", &[Fd]),
    call("sync", &[]),
    call("syncfs", &[Fd]),
    call("sync_file_range", &[Fd, Long, Long, Named(&f::SYNC_RANGE)]),
    call("fallocate", &[Fd, Named(&f::FALLOCATE), Long, Long]),
    call("ftruncate", &[Fd, Long]),
    call("truncate", &[Path, Long]),
    call("fadvise64", &[Fd, Long, Long, Named(&f::FADVISE)]),
    // Descriptors.
    opens("open", &[Path, Named(&f::OPEN), Mode]),
    opens("openat", &[DirFd, Path, Named(&f::OPEN), Mode]),
    opens("openat2", &[DirFd, Path, Pointer, Size]),
    opens("creat", &[Path, Mode]),
    call("close", &[Fd]),
    call("close_range", &[Int, Int, Named(&f::CLOSE_RANGE)]),
    opens("dup", &[Fd]),
    opens("dup2", &[Fd, Fd]),
    opens("dup3", &[Fd, Fd, Named(&f::NEW_FD)]),
    call("pipe", &[Pointer]),
    call("pipe2", &[Pointer, Named(&f::NEW_FD)]),
    opens("eventfd2", &[Int, Named(&f::EVENTFD)]),
    opens("signalfd4", &[Int, Pointer, Size, Named(&f::NEW_FD)]),
    opens("timerfd_create", &[Named(&f::CLOCK), Named(&f::NEW_FD)]),
    call("timerfd_settime", &[Fd, Named(&f::TIMERFD), Pointer, Pointer]),
    opens("inotify_init1", &[Named(&f::NEW_FD)]),
    call("inotify_add_watch", &[Fd, Path, Bits]),
    opens("pidfd_open", &[Int, Bits]),
    opens("pidfd_getfd", &[Fd, Int, Bits]),
    call("fcntl", &[Fd, Named(&f::FCNTL), FcntlArgument]),
    call("ioctl", &[Fd, Bits, Bits]),
    call("flock", &[Fd, Named(&f::FLOCK)]),
    opens("memfd_create", &[Path, Named(&f::MEMFD)]),
    // Files by path.
    call("stat", &[Path, Pointer]),
    call("lstat", &[Path, Pointer]),
    call("fstat", &[Fd, Pointer]),
    call("newfstatat", &[DirFd, Path, Pointer, Named(&f::AT)]),
    call("statx", &[DirFd, Path, Named(&f::AT), Bits, Pointer]),
    call("statfs", &[Path, Pointer]),
    call("fstatfs", &[Fd, Pointer]),
    call("mount", &[Path, Path, Pointer, Named(&f::MOUNT), Pointer]),
    call("umount2", &[Path, Named(&f::UMOUNT)]),
    call("access", &[Path, Named(&f::ACCESS)]),
    call("faccessat", &[DirFd, Path, Named(&f::ACCESS)]),
    call("faccessat2", &[DirFd, Path, Named(&f::ACCESS), Named(&f::AT)]),
    call("readlink", &[Path, Pointer, Size]),
    call("readlinkat", &[DirFd, Path, Pointer, Size]),
    call("mkdir", &[Path, Mode]),
    call("mkdirat", &[DirFd, Path, Mode]),
    call("rmdir", &[Path]),
    call("unlink", &[Path]),
    call("unlinkat", &[DirFd, Path, Named(&f::AT)]),
    call("rename", &[Path, Path]),
    call("renameat", &[DirFd, Path, DirFd, Path]),
    call("renameat2", &[DirFd, Path, DirFd, Path, Named(&f::RENAME)]),
    call("link", &[Path, Path]),
    call("linkat", &[DirFd, Path, DirFd, Path, Named(&f::AT)]),
    call("symlink", &[Path, Path]),
    call("symlinkat", &[Path, DirFd, Path]),
    call("chmod", &[Path, Mode]),
    call("fchmod", &[Fd, Mode]),
    call("fchmodat", &[DirFd, Path, Mode]),
    call("chown", &[Path, Int, Int]),
    call("fchown", &[Fd, Int, Int]),
    call("fchownat", &[DirFd, Path, Int, Int, Named(&f::AT)]),
    call("lchown", &[Path, Int, Int]),
    call("mknod", &[Path, Mode, Size]),
    call("mknodat", &[DirFd, Path, Mode, Size]),
    call("chdir", &[Path]),
    call("chroot", &[Path]),
    call("fchdir", &[Fd]),
    call("getcwd", &[Pointer, Size]),
    call("utimensat", &[DirFd, Path, Pointer, Named(&f::AT)]),
    // Memory.
    maps("mmap", &[Pointer, Size, Named(&f::PROT), Named(&f::MAP), Fd, Long]),
    call("munmap", &[Pointer, Size]),
    call("mprotect", &[Pointer, Size, Named(&f::PROT)]),
    maps("mremap", &[Pointer, Size, Size, Named(&f::MREMAP)]),
    call("madvise", &[Pointer, Size, Named(&f::MADVISE)]),
    call("msync", &[Pointer, Size, Named(&f::MSYNC)]),
    call("mlock", &[Pointer, Size]),
    call("mlock2", &[Pointer, Size, Named(&f::MLOCK)]),
    call("mlockall", &[Named(&f::MLOCKALL)]),
    call("munlock", &[Pointer, Size]),
    maps("brk", &[Pointer]),
    // Waiting.
    call("futex", &[Pointer, Named(&f::FUTEX), Int, Pointer]),
    call("poll", &[Pointer, Size, Int]),
    call("ppoll", &[Pointer, Size, Pointer, Pointer]),
    call("select", &[Int, Pointer, Pointer, Pointer, Pointer]),
    call("pselect6", &[Int, Pointer, Pointer, Pointer, Pointer, Pointer]),
    call("epoll_wait", &[Fd, Pointer, Int, Int]),
    call("epoll_pwait", &[Fd, Pointer, Int, Int, Pointer]),
    call("epoll_ctl", &[Fd, Named(&f::EPOLL_OP), Fd, Pointer]),
    opens("epoll_create1", &[Named(&f::EPOLL_CREATE)]),
    call("nanosleep", &[Pointer, Pointer]),
    call("clock_nanosleep", &[Named(&f::CLOCK), Named(&f::TIMER), Pointer, Pointer]),
    call("wait4", &[Int, Pointer, Named(&f::WAIT), Pointer]),
    call("waitid", &[Named(&f::WAIT_FOR), Int, Pointer, Named(&f::WAIT), Pointer]),
    call("io_uring_enter", &[Fd, Size, Size, Bits]),
    // Sockets.
    opens("socket", &[Named(&f::FAMILY), Named(&f::SOCKET), Int]),
    call("connect", &[Fd, SocketAddress, Int]),
    opens("accept", &[Fd, SocketAddress, Pointer]),
    opens("accept4", &[Fd, SocketAddress, Pointer, Named(&f::ACCEPT)]),
    call("bind", &[Fd, SocketAddress, Int]),
    call("listen", &[Fd, Int]),
    call("sendto", &[Fd, Pointer, Size, Named(&f::MESSAGE), SocketAddress, Int]),
    call("recvfrom", &[Fd, Pointer, Size, Named(&f::MESSAGE), SocketAddress, Pointer]),
    call("sendmsg", &[Fd, Message, Named(&f::MESSAGE)]),
    call("recvmsg", &[Fd, Message, Named(&f::MESSAGE)]),
    call("sendmmsg", &[Fd, Messages, Size, Named(&f::MESSAGE)]),
    call("recvmmsg", &[Fd, Messages, Size, Named(&f::MESSAGE), Pointer]),
    call("shutdown", &[Fd, Named(&f::SHUTDOWN)]),
    call("socketpair", &[Named(&f::FAMILY), Named(&f::SOCKET), Int, Pointer]),
    call("getsockname", &[Fd, SocketAddress, Pointer]),
    call("getpeername", &[Fd, SocketAddress, Pointer]),
    call("setsockopt", &[Fd, Named(&f::LEVEL), SocketOption, Pointer, Int]),
    call("getsockopt", &[Fd, Named(&f::LEVEL), SocketOption, Pointer, Pointer]),
    // Tasks and signals.
    call("clone", &[Named(&f::CLONE), Pointer]),
    call("clone3", &[Pointer, Size]),
    call("fork", &[]),
    call("vfork", &[]),
    call("execve", &[Path, Words, Pointer]),
    call("execveat", &[DirFd, Path, Words, Pointer, Named(&f::AT)]),
    call("kill", &[Int, Named(&f::SIGNAL)]),
    call("tkill", &[Int, Named(&f::SIGNAL)]),
    call("tgkill", &[Int, Int, Named(&f::SIGNAL)]),
    call("rt_sigqueueinfo", &[Int, Named(&f::SIGNAL), Pointer]),
    call("rt_tgsigqueueinfo", &[Int, Int, Named(&f::SIGNAL), Pointer]),
    call("pidfd_send_signal", &[Fd, Named(&f::SIGNAL), Pointer, Bits]),
    call("rt_sigtimedwait", &[Pointer, Pointer, Pointer, Size]),
    call("rt_sigsuspend", &[Pointer, Size]),
    call("rt_sigaction", &[Named(&f::SIGNAL), Pointer, Pointer, Size]),
    call("rt_sigprocmask", &[Named(&f::SIGMASK), Pointer, Pointer, Size]),
    call("rt_sigreturn", &[]),
    call("sched_yield", &[]),
    call("getpid", &[]),
    call("getppid", &[]),
    call("gettid", &[]),
    call("getuid", &[]),
    call("getpgid", &[Int]),
    call("setpgid", &[Int, Int]),
    call("getsid", &[Int]),
    call("setsid", &[]),
    call("ptrace", &[Named(&f::PTRACE), Int, Pointer, Pointer]),
    call("prctl", &[Named(&f::PRCTL), Bits, Bits, Bits, Bits]),
    call("unshare", &[Named(&f::CLONE)]),
    call("setns", &[Fd, Named(&f::CLONE)]),
    call("getpriority", &[Named(&f::PRIORITY_OF), Int]),
    call("setpriority", &[Named(&f::PRIORITY_OF), Int, Int]),
    call("sched_setscheduler", &[Int, Named(&f::POLICY), Pointer]),
    call("sched_getscheduler", &[Int]),
    call("sched_setparam", &[Int, Pointer]),
    call("sched_getparam", &[Int, Pointer]),
    call("sched_setattr", &[Int, Pointer, Bits]),
    call("sched_getattr", &[Int, Pointer, Size, Bits]),
    call("sched_setaffinity", &[Int, Size, Pointer]),
    call("sched_getaffinity", &[Int, Size, Pointer]),
    call("sched_rr_get_interval", &[Int, Pointer]),
    call("prlimit64", &[Int, Named(&f::RESOURCE), Pointer, Pointer]),
    call("getrlimit", &[Named(&f::RESOURCE), Pointer]),
    call("setrlimit", &[Named(&f::RESOURCE), Pointer]),
    call("getrusage", &[Named(&f::USAGE_OF), Pointer]),
    call("setitimer", &[Named(&f::ITIMER), Pointer, Pointer]),
    call("getitimer", &[Named(&f::ITIMER), Pointer]),
    call("process_vm_readv", &[Int, Pointer, Size, Pointer, Size, Bits]),
    call("process_vm_writev", &[Int, Pointer, Size, Pointer, Size, Bits]),
    call("move_pages", &[Int, Size, Pointer, Pointer, Pointer, Bits]),
    call("migrate_pages", &[Int, Size, Pointer, Pointer]),
    call("kcmp", &[Int, Int, Int, Size, Size]),
    call("get_robust_list", &[Int, Pointer, Pointer]),
    call("getrandom", &[Pointer, Size, Named(&f::RANDOM)]),
    call("umask", &[Mode]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::syscalls;

    #[test]
    fn signatures_are_of_calls() {
        for (index, signature) in SIGNATURES.iter().enumerate() {
            let name = signature.name;
            // aarch64 lacks the older ones.
            assert!(syscalls::number(name).is_some() || cfg!(not(target_arch = "x86_64")), "{name}");
            assert!(signature.args.len() <= 6, "{name}");
            assert!(SIGNATURES[..index].iter().all(|other| other.name != name), "{name} is there twice");
            assert!(signature.args.iter().filter(|kind| **kind == Path).count() <= 2, "{name}");
        }
        assert!(SIGNATURES.len() > 60);
    }
}
