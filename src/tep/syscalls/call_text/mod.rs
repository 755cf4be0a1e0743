//! A system call with its arguments as text, in the manner of strace: flags by name, descriptors with their files.
//!
//! `signatures` has the arguments of the most frequent calls, `flags` the names of their values.

mod flags;
mod signatures;
pub mod socket_address;
pub mod words;

use std::fmt::Write;
use std::sync::Arc;

use crate::tep::syscalls;
use crate::tep::syscalls::{compat_calls, errnos};
use flags::ValueNames;
use signatures::{ArgKind, CallSignature, ReturnKind};

/// A system call, as its records describe it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MadeCall {
    pub number: i32,
    /// A call of 32-bit mode: the number means another call.
    pub is_compat: bool,
    pub tid: i32,
    pub args: [u64; 6],
    /// The return value. None: the call has not returned.
    pub ret: Option<i64>,
    /// The bytes behind the arguments that are paths, addresses of sockets or lists of strings, in their order. None:
    /// they were not read.
    pub paths: [Option<Arc<[u8]>>; 2],
}

/// Look-ups about the thread of a call, made while the text is written: they give the state at that time.
pub trait CallLookUps {
    /// The file that a descriptor is open on; for `AT_FDCWD`, the current directory.
    fn file(&mut self, fd: i32) -> Option<CallFile>;
    /// The string at an address.
    fn string(&mut self, address: u64) -> Option<Vec<u8>>;
    /// The number and bytes of `count` memory parts (iovec), or of the parts of `count` messages, of a call that has
    /// not returned.
    fn parts(&mut self, address: u64, count: u64, of_messages: bool) -> Option<CallParts>;
}

/// The file of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFile {
    pub path: Vec<u8>,
    /// The device of the file's mount. None: the file is in no mount, or the device is not known.
    pub device: Option<Vec<u8>>,
}

/// The memory parts from or to which a call moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallParts {
    pub parts: u64,
    pub bytes: u64,
    /// There are further parts.
    pub is_cut: bool,
}

/// The directory that a relative path begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStart {
    Current,
    /// The directory of the descriptor in this argument.
    Descriptor(u8),
}

/// For the first two paths of the call with this number, where they begin. None: it has no such path, or it is not known.
pub fn path_starts(number: u64) -> [Option<PathStart>; 2] {
    let signature = syscalls::name(number).and_then(signatures::find);
    let mut starts = signature.iter().flat_map(CallSignature::path_starts).map(|(_, start)| start);
    [starts.next().flatten(), starts.next().flatten()]
}

/// The known arguments of a call, each as a text of its own.
#[derive(Clone, Copy, Debug)]
pub struct CallArguments(CallSignature);

impl CallArguments {
    /// The arguments of the call with this number.
    pub fn of(number: u32) -> Option<CallArguments> {
        syscalls::name(number.into()).and_then(signatures::find).map(CallArguments)
    }

    /// Appends the argument `index`. False: it is not known, or means nothing in this call.
    pub fn push(&self, index: usize, args: &[u64; 6], out: &mut String) -> bool {
        let CallArguments(signature) = self;
        let is_known = index < signature.shown(args);
        match is_known.then(|| signature.args[index]) {
            None => {}
            Some(ArgKind::DirFd) if args[index] as i32 == libc::AT_FDCWD => out.push_str("AT_FDCWD"),
            Some(_) => push_arg(signature, index, args, None::<&mut NoCallLookUps>, out),
        }
        is_known
    }
}

/// What a call returns.
#[derive(Clone, Copy, Debug)]
pub struct CallResult(ReturnKind);

impl CallResult {
    /// The result of the call with this number.
    pub fn of(number: u32) -> CallResult {
        let signature = syscalls::name(number.into()).and_then(signatures::find);
        CallResult(signature.map_or(ReturnKind::Number, |signature| signature.returns))
    }

    /// Appends the return value: a number, an address, or the error.
    pub fn push(self, ret: i64, out: &mut String) {
        push_result(self.0, ret, None::<&mut NoCallLookUps>, out);
    }
}

/// For text from a record alone.
enum NoCallLookUps {}

impl CallLookUps for NoCallLookUps {
    fn file(&mut self, _fd: i32) -> Option<CallFile> {
        None
    }

    fn string(&mut self, _address: u64) -> Option<Vec<u8>> {
        None
    }

    fn parts(&mut self, _address: u64, _count: u64, _of_messages: bool) -> Option<CallParts> {
        None
    }
}

/// Number of arguments that are shown of a call without a known signature.
const SHOWN_OF_UNKNOWN: usize = 3;

impl MadeCall {
    /// The text of the call. Strings of the program are in it unescaped.
    pub fn text(&self, mut look_ups: impl CallLookUps) -> String {
        let mut out = String::new();
        let name = if self.is_compat { None } else { u64::try_from(self.number).ok().and_then(syscalls::name) };
        match name {
            Some(name) => out.push_str(name),
            None if self.is_compat => out.push_str(&compat_calls::text(self.number)),
            None => put(&mut out, format_args!("sys_{}", self.number)),
        }
        out.push('(');
        let signature = name.and_then(signatures::find);
        match &signature {
            Some(signature) => {
                let count = signature.shown(&self.args);
                for index in 0..count {
                    out.push_str(if index > 0 { ", " } else { "" });
                    self.push_argument(signature, index, &mut look_ups, &mut out);
                }
            }
            None => {
                for (index, arg) in self.args.iter().take(SHOWN_OF_UNKNOWN).enumerate() {
                    put(&mut out, format_args!("{}{arg:#x}", if index > 0 { ", " } else { "" }));
                }
                out.push_str(", ...");
            }
        }
        out.push(')');
        if let Some(ret) = self.ret {
            out.push_str(" = ");
            let kind = signature.map_or(ReturnKind::Number, |signature| signature.returns);
            push_result(kind, ret, Some(&mut look_ups), &mut out);
        }
        out
    }

    /// Appends the argument `index`, which the signature has.
    fn push_argument(
        &self,
        signature: &CallSignature,
        index: usize,
        look_ups: &mut impl CallLookUps,
        out: &mut String,
    ) {
        let (kind, arg) = (signature.args[index], self.args[index]);
        let [first, second] = &self.paths;
        match (kind, first, second) {
            (ArgKind::Path, ..) => self.push_path(signature, index, look_ups, out),
            (ArgKind::SocketAddress, Some(address), _) => socket_address::push(address, out),
            (ArgKind::Words, _, Some(list)) => words::push(list, out),
            (ArgKind::DirFd, ..) if arg as i32 == libc::AT_FDCWD => {
                out.push_str("AT_FDCWD");
                if self.begins_at(signature, index) {
                    push_file(libc::AT_FDCWD, look_ups, out);
                }
            }
            (ArgKind::Parts | ArgKind::Message | ArgKind::Messages, ..) => {
                push_arg(signature, index, &self.args, None::<&mut NoCallLookUps>, out);
                if let (ArgKind::Message, Some(address)) = (kind, first) {
                    out.push_str(if signature.name == "sendmsg" { " to " } else { " from " });
                    socket_address::push(address, out);
                }
                self.push_parts(kind, index, look_ups, out);
            }
            _ => {
                let named = self.names_file(Some(signature.name), index).then_some(look_ups);
                push_arg(signature, index, &self.args, named, out);
            }
        }
    }

    /// The path in an argument.
    fn push_path(&self, signature: &CallSignature, index: usize, look_ups: &mut impl CallLookUps, out: &mut String) {
        let mut starts = signature.path_starts().zip(&self.paths);
        let (start, path) = starts
            .find(|((at, _), _)| *at == index)
            .map_or((None, None), |((_, start), path)| (start, path.as_deref()));
        let address = self.args.get(index).copied().unwrap_or(0);
        match path {
            Some(path) => {
                put(out, format_args!("\"{}\"", String::from_utf8_lossy(path)));
                let is_here = start == Some(PathStart::Current) && is_relative(path) && !self.has_moved(signature.name);
                if let Some(dir) = is_here.then(|| look_ups.file(libc::AT_FDCWD)).flatten() {
                    put(out, format_args!(" (in {})", String::from_utf8_lossy(&dir.path)));
                }
            }
            None if address == 0 => out.push_str("NULL"),
            None => {
                match Some(address).filter(|_| !self.has_moved(signature.name)).and_then(|at| look_ups.string(at)) {
                    Some(late) => put(out, format_args!("\"{}\" (read late)", String::from_utf8_lossy(&late))),
                    None => out.push_str("path unread"),
                }
            }
        }
    }

    /// Appends the memory parts of a call that has not returned: its thread waits, so they can still be read.
    fn push_parts(&self, kind: ArgKind, index: usize, look_ups: &mut impl CallLookUps, out: &mut String) {
        let (address, next) = (self.args[index], self.args.get(index + 1).copied().unwrap_or(0));
        let count = if kind == ArgKind::Message { 1 } else { next };
        let is_there = self.ret.is_none() && address != 0;
        let parts = is_there.then(|| look_ups.parts(address, count, kind != ArgKind::Parts)).flatten();
        if let Some(CallParts { parts, bytes, is_cut }) = parts {
            let least = if is_cut { ">= " } else { "" };
            put(out, format_args!(" ({least}{parts} parts, {least}{bytes} bytes)"));
        }
    }

    /// Whether the current directory, which this argument stands for, is where a relative path of the call begins.
    fn begins_at(&self, signature: &CallSignature, index: usize) -> bool {
        let mut starts = signature.path_starts().zip(&self.paths);
        let is_it = |start| start == Some(PathStart::Descriptor(index as u8));
        starts.any(|((_, start), path)| is_it(start) && path.as_deref().is_some_and(is_relative))
            && !self.has_moved(signature.name)
    }

    /// Whether the call itself has changed the current directory, or the memory of the process.
    fn has_moved(&self, name: &str) -> bool {
        self.ret == Some(0) && matches!(name, "chdir" | "fchdir" | "chroot" | "execve" | "execveat")
    }

    /// False for a descriptor that is no longer what it was in the call.
    fn names_file(&self, name: Option<&str>, index: usize) -> bool {
        let is_bad = self.ret == Some(-i64::from(libc::EBADF));
        let is_closed = matches!(name, Some("close" | "close_range")) && self.ret.is_some();
        let is_replaced = matches!(name, Some("dup2" | "dup3")) && index == 1;
        !is_bad && !is_closed && !is_replaced
    }
}

/// Writing to a String cannot fail.
fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(args);
}

/// False for an empty path, too: it names nothing, or the descriptor in the argument before it.
pub fn is_relative(path: &[u8]) -> bool {
    path.first().is_some_and(|first| *first != b'/')
}

/// Appends a descriptor with its file and the device of that file.
fn push_fd(fd: i32, look_ups: Option<&mut impl CallLookUps>, out: &mut String) {
    put(out, format_args!("{fd}"));
    if let Some(look_ups) = look_ups.filter(|_| fd >= 0)
        && let Some(device) = push_file(fd, look_ups, out)
    {
        put(out, format_args!(" on {}", String::from_utf8_lossy(&device)));
    }
}

/// Appends the file of a descriptor, and returns its device.
fn push_file(fd: i32, look_ups: &mut impl CallLookUps, out: &mut String) -> Option<Vec<u8>> {
    let CallFile { path, device } = look_ups.file(fd)?;
    put(out, format_args!("<{}>", String::from_utf8_lossy(&path)));
    device
}

/// Appends the argument `index`, which the signature has.
fn push_arg(
    signature: &CallSignature,
    index: usize,
    args: &[u64; 6],
    look_ups: Option<&mut impl CallLookUps>,
    out: &mut String,
) {
    let (arg, before) = (args[index], args[index.saturating_sub(1)] as i32);
    match signature.args[index] {
        ArgKind::Int => put(out, format_args!("{}", arg as i32)),
        ArgKind::Long => put(out, format_args!("{}", arg.cast_signed())),
        ArgKind::Size => put(out, format_args!("{arg}")),
        ArgKind::Pointer
        | ArgKind::Path
        | ArgKind::SocketAddress
        | ArgKind::Words
        | ArgKind::Parts
        | ArgKind::Message
        | ArgKind::Messages => match arg {
            0 => out.push_str("NULL"),
            address => put(out, format_args!("{address:#x}")),
        },
        ArgKind::Bits => put(out, format_args!("{arg:#x}")),
        ArgKind::Mode => put(out, format_args!("0{:o}", arg as u32 & 0o7777)),
        ArgKind::Fd => push_fd(arg as i32, look_ups, out),
        ArgKind::DirFd => {
            put(out, format_args!("{}", arg as i32));
            look_ups.filter(|_| arg as i32 >= 0).and_then(|look_ups| push_file(arg as i32, look_ups, out));
        }
        ArgKind::Named(names) => names.push(arg as u32, out),
        ArgKind::SocketOption => match before {
            flags::SOL_SOCKET => flags::SOCKET_OPTION.push(arg as u32, out),
            flags::IPPROTO_TCP => flags::TCP_OPTION.push(arg as u32, out),
            _ => put(out, format_args!("{}", arg as i32)),
        },
        ArgKind::FcntlArgument => match before {
            libc::F_SETFL => flags::OPEN.push(arg as u32, out),
            libc::F_SETFD => flags::DESCRIPTOR.push(arg as u32, out),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETPIPE_SZ | libc::F_SETOWN => {
                put(out, format_args!("{}", arg as i32));
            }
            _ => put(out, format_args!("{arg:#x}")),
        },
    }
}

/// Appends what a call has returned.
fn push_result(kind: ReturnKind, ret: i64, look_ups: Option<&mut impl CallLookUps>, out: &mut String) {
    match errnos::of_return(ret) {
        // The kernel's own codes never reach the program.
        Some(errno) if errnos::is_restart(errno) => {
            put(out, format_args!("? {}", errnos::name(errno).unwrap_or("interrupted")));
        }
        Some(errno) => match errnos::name(errno) {
            Some(name) => put(out, format_args!("-1 {name}")),
            None => put(out, format_args!("-1 errno {errno}")),
        },
        None => match kind {
            ReturnKind::Number => put(out, format_args!("{ret}")),
            ReturnKind::Address => put(out, format_args!("{ret:#x}")),
            ReturnKind::Fd => push_fd(ret as i32, look_ups, out),
        },
    }
}

/// See [`flags`].
pub(super) type Names = &'static ValueNames;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: libc::c_long, args: &[u64], ret: Option<i64>) -> MadeCall {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        MadeCall { number: number as i32, is_compat: false, tid: 1, args: all, ret, paths: [None, None] }
    }

    /// A thread with one open file and one string.
    struct Thread;

    impl CallLookUps for Thread {
        fn file(&mut self, fd: i32) -> Option<CallFile> {
            let of = |path: &str, device: Option<&str>| {
                Some(CallFile { path: path.into(), device: device.map(|device| device.into()) })
            };
            match fd {
                libc::AT_FDCWD => of("/srv", None),
                3 => of("/tmp/x", None),
                7 => of("/var/log", Some("/dev/vdb")),
                _ => None,
            }
        }

        fn string(&mut self, address: u64) -> Option<Vec<u8>> {
            (address == 0x100).then(|| b"late".to_vec())
        }

        fn parts(&mut self, address: u64, count: u64, of_messages: bool) -> Option<CallParts> {
            (address == 0x100).then_some(CallParts { parts: count, bytes: 8192, is_cut: of_messages })
        }
    }

    fn text(call: &MadeCall) -> String {
        call.text(Thread)
    }

    const CWD: u64 = libc::AT_FDCWD as u64;

    #[test]
    fn calls_read_as_strace_shows_them() {
        let cloexec = (libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC) as u64;
        let cases = [
            (call(libc::SYS_read, &[3, 0x7000, 10], Some(10)), "read(3</tmp/x>, 0x7000, 10) = 10"),
            (call(libc::SYS_read, &[4, 0, 10], Some(-11)), "read(4, NULL, 10) = -1 EAGAIN"),
            (call(libc::SYS_read, &[3, 0, 10], Some(-9)), "read(3, NULL, 10) = -1 EBADF"),
            (call(libc::SYS_close, &[3], Some(0)), "close(3) = 0"),
            (call(libc::SYS_writev, &[4, 0x100, 3], None), "writev(4, 0x100 (3 parts, 8192 bytes), 3)"),
            (call(libc::SYS_writev, &[4, 0x100, 3], Some(8192)), "writev(4, 0x100, 3) = 8192"),
            (call(libc::SYS_writev, &[4, 0x200, 3], None), "writev(4, 0x200, 3)"),
            (call(libc::SYS_sendmsg, &[4, 0x100, 0], None), "sendmsg(4, 0x100 (>= 1 parts, >= 8192 bytes), 0)"),
            (call(libc::SYS_fsync, &[7], Some(0)), "fsync(7</var/log> on /dev/vdb) = 0"),
            (call(libc::SYS_close, &[3], None), "close(3</tmp/x>)"),
            (
                call(libc::SYS_openat, &[CWD, 1, cloexec, 0o644], Some(3)),
                "openat(AT_FDCWD, path unread, O_WRONLY|O_CREAT|O_CLOEXEC, 0644) = 3</tmp/x>",
            ),
            (call(libc::SYS_openat, &[3, 1, 0, 7], Some(-2)), "openat(3</tmp/x>, path unread, O_RDONLY) = -1 ENOENT"),
            (
                call(libc::SYS_mmap, &[0, 4096, 3, 0x22, u64::MAX, 0], Some(0x7000)),
                "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7000",
            ),
            (call(libc::SYS_kill, &[5, 9], Some(0)), "kill(5, SIGKILL) = 0"),
            (
                call(libc::SYS_futex, &[0x10, 0x80, 2, 0], Some(-512)),
                "futex(0x10, FUTEX_WAIT|FUTEX_PRIVATE_FLAG, 2, NULL) = ? ERESTARTSYS",
            ),
            (call(libc::SYS_getppid, &[1, 2], Some(7)), "getppid() = 7"),
            (
                call(libc::SYS_getsockopt, &[3, 1, 4, 0x10, 0x20], Some(0)),
                "getsockopt(3</tmp/x>, SOL_SOCKET, SO_ERROR, 0x10, 0x20) = 0",
            ),
            (
                call(libc::SYS_setsockopt, &[4, 6, 1, 0x10, 4], Some(0)),
                "setsockopt(4, IPPROTO_TCP, TCP_NODELAY, 0x10, 4) = 0",
            ),
            (call(libc::SYS_setsockopt, &[4, 41, 26, 0, 4], Some(0)), "setsockopt(4, IPPROTO_IPV6, 26, NULL, 4) = 0"),
            (call(libc::SYS_fcntl, &[4, 4, 0x802], Some(0)), "fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0"),
            (call(libc::SYS_fcntl, &[4, 2, 1], Some(0)), "fcntl(4, F_SETFD, FD_CLOEXEC) = 0"),
            (call(libc::SYS_fcntl, &[4, 1, 77], Some(1)), "fcntl(4, F_GETFD) = 1"),
            (call(libc::SYS_prctl, &[38, 1], Some(0)), "prctl(PR_SET_NO_NEW_PRIVS, 0x1, 0x0, 0x0, 0x0) = 0"),
            (call(libc::SYS_prlimit64, &[0, 7, 0, 0x10], Some(0)), "prlimit64(0, RLIMIT_NOFILE, NULL, 0x10) = 0"),
            (
                call(libc::SYS_sched_setscheduler, &[77, 0x4000_0001, 0x10], Some(-1)),
                "sched_setscheduler(77, SCHED_FIFO|SCHED_RESET_ON_FORK, 0x10) = -1 EPERM",
            ),
            (call(libc::SYS_lseek, &[3, u64::MAX, 2], Some(0)), "lseek(3</tmp/x>, -1, SEEK_END) = 0"),
            (call(9999, &[1, 2], Some(-38)), "sys_9999(0x1, 0x2, 0x0, ...) = -1 ENOSYS"),
            (call(libc::SYS_read, &[1], Some(-4000)), "read(1, NULL, 0) = -1 errno 4000"),
        ];
        for (call, want) in cases {
            assert_eq!(text(&call), want);
        }
        let compat = MadeCall { is_compat: true, ..call(libc::SYS_read, &[3], Some(0)) };
        assert_eq!(text(&compat), format!("{}(0x3, 0x0, 0x0, ...) = 0", compat_calls::text(libc::SYS_read)));
    }

    #[test]
    fn paths_are_shown_where_they_are_known() {
        let mut renames = call(libc::SYS_renameat2, &[CWD, 1, CWD, 2, 1], Some(0));
        renames.paths = [Some(b"/a b".as_slice().into()), None];
        assert_eq!(text(&renames), "renameat2(AT_FDCWD, \"/a b\", AT_FDCWD, path unread, RENAME_NOREPLACE) = 0");
        assert_eq!(text(&call(libc::SYS_openat, &[CWD, 0, 0], None)), "openat(AT_FDCWD, NULL, O_RDONLY)");
    }

    #[test]
    fn addresses_of_sockets_are_shown() {
        let mut connects = call(libc::SYS_connect, &[9, 0x10, 16], Some(-115));
        assert_eq!(text(&connects), "connect(9, 0x10, 16) = -1 EINPROGRESS");
        let address = [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0x15, 0x38, 10, 0, 0, 5]].concat();
        connects.paths[0] = Some(address.clone().into());
        assert_eq!(text(&connects), "connect(9, 10.0.0.5:5432, 16) = -1 EINPROGRESS");
        let mut sends = call(libc::SYS_sendmsg, &[4, 0x100, 0], None);
        sends.paths[0] = Some(address.into());
        assert_eq!(text(&sends), "sendmsg(4, 0x100 to 10.0.0.5:5432 (>= 1 parts, >= 8192 bytes), 0)");
        let mut executes = call(libc::SYS_execve, &[0x10, 0x20, 0x30], Some(0));
        executes.paths = [Some(b"/bin/ls".as_slice().into()), Some(b"ls\0-l\0".as_slice().into())];
        assert_eq!(text(&executes), "execve(\"/bin/ls\", [\"ls\", \"-l\"], 0x30) = 0");
    }

    #[test]
    fn relative_paths_are_shown_with_their_directory() {
        let with = |number, args: &[u64], ret, paths: [Option<&str>; 2]| {
            let paths = paths.map(|path| path.map(|path| Arc::from(path.as_bytes())));
            text(&MadeCall { paths, ..call(number, args, ret) })
        };
        let cases = [
            (libc::SYS_openat, &[CWD, 1, 0][..], -2, ["a", ""], "openat(AT_FDCWD</srv>, \"a\", O_RDONLY) = -1 ENOENT"),
            (libc::SYS_openat, &[CWD, 1, 0], -2, ["/a", ""], "openat(AT_FDCWD, \"/a\", O_RDONLY) = -1 ENOENT"),
            (libc::SYS_openat, &[3, 1, 0], -2, ["a", ""], "openat(3</tmp/x>, \"a\", O_RDONLY) = -1 ENOENT"),
            (
                libc::SYS_renameat,
                &[3, 1, CWD, 1],
                0,
                ["a", "b"],
                "renameat(3</tmp/x>, \"a\", AT_FDCWD</srv>, \"b\") = 0",
            ),
            (libc::SYS_symlinkat, &[1, CWD, 1], 0, ["a", "/b"], "symlinkat(\"a\", AT_FDCWD, \"/b\") = 0"),
            (libc::SYS_chdir, &[1], -2, ["a", ""], "chdir(\"a\" (in /srv)) = -1 ENOENT"),
            (libc::SYS_chdir, &[1], 0, ["a", ""], "chdir(\"a\") = 0"),
            (libc::SYS_memfd_create, &[1, 0], 3, ["a", ""], "memfd_create(\"a\", 0) = 3</tmp/x>"),
        ];
        for (number, args, ret, paths, want) in cases {
            assert_eq!(with(number, args, Some(ret), paths.map(Some)), want);
        }
        let late = "openat(AT_FDCWD, \"late\" (read late), O_RDONLY)";
        assert_eq!(with(libc::SYS_openat, &[CWD, 0x100, 0], None, [None; 2]), late);
        assert!(with(libc::SYS_execve, &[0x100, 0, 0], Some(0), [None; 2]).starts_with("execve(path unread, NULL"));
        assert!(
            with(libc::SYS_execve, &[0x100, 0, 0], Some(-2), [None; 2]).starts_with("execve(\"late\" (read late), ")
        );
        let starts = |number: libc::c_long| path_starts(number as u64);
        assert_eq!(starts(libc::SYS_openat), [Some(PathStart::Descriptor(0)), None]);
        assert_eq!(starts(libc::SYS_symlinkat), [None, Some(PathStart::Descriptor(1))]);
        assert_eq!(starts(libc::SYS_chdir), [Some(PathStart::Current), None]);
        assert_eq!([starts(libc::SYS_read), starts(libc::SYS_memfd_create), starts(9999)], [[None; 2]; 3]);
    }

    /// Any numbers, also those that no kernel has.
    #[test]
    fn no_call_is_too_strange() {
        for number in -3..600 {
            for args in [[0; 6], [u64::MAX; 6], [1 << 63; 6], [0x5555_5555_5555_5555; 6]] {
                let strange = MadeCall {
                    number,
                    is_compat: false,
                    tid: -1,
                    args,
                    ret: Some(args[0].cast_signed()),
                    paths: [None, None],
                };
                let text = text(&strange);
                assert!(text.len() < 1000 && text.contains(") = "), "{text}");
            }
        }
    }
}
