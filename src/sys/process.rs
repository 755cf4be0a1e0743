//! Starts the workload, and the holder process, which releases events slowly while the user has the prompt back.

use std::ffi::{CStr, CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::sys::poll::is_told_to_end;

/// A command that is forked but not yet executed.
#[derive(Debug)]
pub struct Workload {
    pid: Pid,
    name: String,
    go: Option<OwnedFd>,
    failure: OwnedFd,
    reaped: bool,
    /// SIGTERM was sent to the workload.
    is_ending: bool,
}

impl Workload {
    /// Forks; the child waits for [`Workload::release`] before it becomes `argv`.
    ///
    /// # Errors
    /// An argument with a NUL byte, no argument at all, or an error of `fork` or `pipe`.
    pub fn start(argv: &[OsString]) -> io::Result<Workload> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let args: Vec<CString> =
            argv.iter().map(|a| CString::new(a.as_bytes()).map_err(invalid)).collect::<Result<_, _>>()?;
        let Some(first) = argv.first() else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        let mut pointers: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // The workload gets perf-prof's original limit.
        let files = libc::rlimit { rlim_cur: super::given_open_files(), rlim_max: super::open_files().1 };
        let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure_read, failure_write) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only async-signal-safe functions (close, prctl, sigemptyset, sigprocmask, signal,
        // read, setrlimit, execvp, write, _exit) on memory prepared above.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let mut byte = [0_u8; 1];
                // SAFETY: as above; every pointer is to memory prepared before the fork and still mapped, or to a local
                // variable that may be written where the call writes, and `pointers` ends with a null.
                unsafe {
                    // The writing end must be closed here, or the child would not get an end of file when the parent
                    // dies.
                    libc::close(go_write.as_raw_fd());
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                    libc::sigemptyset(none.as_mut_ptr());
                    libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
                    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                    let got = libc::read(go_read.as_raw_fd(), byte.as_mut_ptr().cast(), 1);
                    if got == 1 {
                        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
                        libc::execvp(pointers[0], pointers.as_ptr());
                        let errno = (*errno_location()).to_ne_bytes();
                        libc::write(failure_write.as_raw_fd(), errno.as_ptr().cast(), errno.len());
                    }
                    libc::_exit(127)
                }
            }
            ForkResult::Parent { child } => Ok(Workload {
                pid: child,
                name: first.to_string_lossy().into_owned(),
                go: Some(go_write),
                failure: failure_read,
                reaped: false,
                is_ending: false,
            }),
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// The command as the user typed it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets the child execute its command and waits until it has done so or failed, or until this process is told to
    /// end: reading the command's file may hang.
    ///
    /// # Errors
    /// Why `execvp` failed.
    pub fn release(&mut self) -> io::Result<()> {
        if let Some(go) = self.go.take() {
            std::fs::File::from(go).write_all(b"x")?;
        }
        const SLICE_MS: u8 = 20;
        let is_over = || {
            let mut fds = [PollFd::new(self.failure.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(SLICE_MS)).is_ok_and(|ready| ready > 0)
        };
        while !is_over() {
            if is_told_to_end() {
                return Ok(());
            }
        }
        let mut errno = [0_u8; 4];
        let mut failure = std::fs::File::from(self.failure.try_clone()?);
        match failure.read_exact(&mut errno) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            Err(_) => Ok(()), // the exec closed the pipe
        }
    }

    /// True when the child has ended, and was reaped.
    pub fn ended(&mut self) -> bool {
        if !self.reaped {
            self.reaped = !matches!(waitpid(self.pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive));
        }
        self.reaped
    }

    /// Sends SIGTERM to the child first, then to its descendants `others`: a shell that outlives its command would run
    /// the next one.
    pub fn end(&mut self, others: &[OwnedFd]) {
        if self.is_ending || self.ended() {
            return;
        }
        self.is_ending = true;
        let _ = kill(self.pid, Signal::SIGTERM); // the pid is not reused until the child is reaped
        for other in others {
            // SAFETY: pidfd_send_signal(2) takes integers and no siginfo. A pidfd never refers to another process.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, other.as_raw_fd(), libc::SIGTERM, 0_usize, 0) };
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.end(&[]);
    }
}

#[cfg(target_os = "linux")]
fn errno_location() -> *mut libc::c_int {
    // SAFETY: the call returns the address of this thread's errno, which is always valid.
    unsafe { libc::__errno_location() }
}

/// Forks a child that runs `work` and exits. The child has the name `name`, its own session, the directory `/`, no
/// descriptor but `keep` (0 to 2 are /dev/null), and is killed when its parent ends.
///
/// # Errors
/// This process has several threads, whose locks could be held in the child for ever; or an error of fork(2).
pub fn fork_apart(name: &CStr, keep: BorrowedFd<'_>, work: impl FnOnce()) -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::ErrorKind::Deadlock.into());
    }
    let parent = std::process::id();
    let others = OtherDescriptors::except(&[keep.as_raw_fd()]);
    // SAFETY: this process has one thread, so no lock is held by another thread, and the child may call any function.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                std::panic::set_hook(Box::new(|_| {})); // nobody would read the message
                // SAFETY: system calls with integers and NUL-terminated texts. The closed descriptors belong to values
                // of the parent's code, to which the child does not return.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid().cast_unsigned() != parent {
                        return; // the parent has already ended
                    }
                    libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                    libc::setsid();
                    libc::chdir(c"/".as_ptr());
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    libc::signal(libc::SIGHUP, libc::SIG_IGN);
                    others.close();
                    for _ in 0..3 {
                        let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                        if fd > 2 {
                            libc::close(fd); // `keep` is one of 0 to 2
                        }
                    }
                }
                work();
            }));
            // SAFETY: ends the process without the parent's destructors.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
    }
}

/// Kills a child that was not reaped yet.
pub fn kill_child(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// True when a child has ended. It is reaped then, and its pid may be reused. Does not wait.
pub fn has_ended(pid: i32) -> bool {
    !matches!(waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
}

/// Waits until these children have ended, and reaps them. False: some have not ended within `limit`.
pub fn reap_within(children: &mut Vec<i32>, limit: Duration) -> bool {
    wait_within(limit, || {
        children.retain(|pid| !has_ended(*pid));
        children.is_empty()
    })
}

/// As [`reap_within`], for all children of this process.
pub fn reap_all_within(limit: Duration) -> bool {
    wait_within(limit, || {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return false,
                Ok(_) => {} // one of several children
                Err(_) => return true,
            }
        }
    })
}

fn wait_within(limit: Duration, mut is_over: impl FnMut() -> bool) -> bool {
    const PAUSE: Duration = Duration::from_millis(1);
    let start = Instant::now();
    while !is_over() {
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Forks a process that holds the last references to `events` for as long as releasing them takes.
///
/// The kernel waits some 35 ms for every distinct tracepoint that is released. The holder does that after perf-prof has
/// exited. It keeps no other descriptor, so the reader of a pipe gets the end of file at once.
pub fn hand_over(events: &[RawFd]) {
    let others = OtherDescriptors::except(events);
    // SAFETY: the child calls only setsid, close_range, close and _exit, all async-signal-safe.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        // SAFETY: system calls with integer arguments; the child uses no Rust value whose descriptor was closed, since
        // it ends here.
        unsafe {
            libc::setsid();
            // Above all the terminal and pipes, whose end others may await.
            others.close();
            libc::_exit(0);
        }
    }
}

/// A probe whose definition must be removed when its event is released.
#[derive(Debug)]
pub struct HeldProbe<'a> {
    /// The probe's last open event.
    pub event: BorrowedFd<'a>,
    /// The kernel's list of such probes in tracefs, open for appending.
    pub list: BorrowedFd<'a>,
    /// The line that removes the probe from the list.
    pub line: &'a [u8],
}

/// As [`hand_over`], for probes: the holder also removes them from the kernel's lists. The holder begins when the
/// returned descriptor is dropped. Before that, the caller must close the events: the process that closes an event last
/// waits for its release. None: there is no holder.
pub fn hand_over_probes(probes: &[HeldProbe<'_>]) -> Option<OwnedFd> {
    /// In a container, the exit of its first process would kill the holder.
    const INIT: libc::pid_t = 1;
    if std::process::id() == INIT as u32 {
        return None;
    }
    let (begins, go) = pipe2(OFlag::O_CLOEXEC).ok()?;
    let mut keep: Vec<RawFd> =
        probes.iter().flat_map(|probe| [probe.event, probe.list]).map(|fd| fd.as_raw_fd()).collect();
    keep.push(begins.as_raw_fd());
    let others = OtherDescriptors::except(&keep);
    // SAFETY: the child calls only setsid, close_range, close, read, write, nanosleep and _exit, all async-signal-safe.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // SAFETY: system calls with integer arguments, and a line that is the caller's; the child uses no Rust
            // value whose descriptor was closed, since it ends here.
            unsafe {
                libc::setsid();
                others.close();
                libc::read(begins.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1); // returns when the parent closes its end
                for probe in probes {
                    libc::close(probe.event.as_raw_fd());
                    remove_probe(probe);
                }
                libc::_exit(0);
            }
        }
        Ok(ForkResult::Parent { .. }) => Some(go),
        Err(_) => None,
    }
}

/// Removes a probe from its list; Repeats while the kernel says EBUSY: the event is still being released, or open
/// elsewhere. Async-signal-safe.
fn remove_probe(probe: &HeldProbe<'_>) {
    const TRIES: u32 = 400;
    static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..TRIES {
        // SAFETY: the line outlives the call; errno belongs to this thread.
        let is_busy = unsafe {
            libc::write(probe.list.as_raw_fd(), probe.line.as_ptr().cast(), probe.line.len()) < 0
                && *errno_location() == libc::EBUSY
        };
        if !is_busy {
            return; // also when another process has removed the probe
        }
        // SAFETY: nanosleep reads only its first argument.
        unsafe { libc::nanosleep(&raw const PAUSE, std::ptr::null_mut()) };
    }
}

/// All descriptors except some, to be closed after a fork. The list is prepared before the fork.
enum OtherDescriptors {
    /// First and last of each range.
    Ranges(Vec<(libc::c_uint, libc::c_uint)>),
    /// Single descriptors, for kernels before 5.9 and seccomp filters that do not know close_range(2).
    Each(Vec<RawFd>),
}

impl OtherDescriptors {
    fn except(keep: &[RawFd]) -> OtherDescriptors {
        let mut keep: Vec<RawFd> = keep.to_vec();
        keep.sort_unstable();
        keep.dedup();
        const LAST: libc::c_uint = libc::c_uint::MAX;
        // SAFETY: the call takes integers, and there is no descriptor with this number.
        if unsafe { close_range(LAST, LAST) } {
            OtherDescriptors::Ranges(gaps(&keep))
        } else {
            OtherDescriptors::listed(&keep)
        }
    }

    /// The open descriptors without `keep`, which is sorted.
    fn listed(keep: &[RawFd]) -> OtherDescriptors {
        /// Without /proc, descriptors up to this one are closed.
        const LIMIT: RawFd = 1 << 20;
        let named = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let mut open: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
            Ok(entries) => entries.filter_map(named).collect(),
            Err(_) => (0..RawFd::try_from(super::open_files().0).unwrap_or(LIMIT).min(LIMIT)).collect(),
        };
        open.retain(|fd| keep.binary_search(fd).is_err());
        OtherDescriptors::Each(open)
    }

    /// # Safety
    /// No code of this process may use these descriptors any more.
    unsafe fn close(&self) {
        match self {
            OtherDescriptors::Ranges(ranges) => ranges.iter().for_each(|&(first, last)| {
                // SAFETY: the call takes integers; the caller guarantees that the descriptors are unused.
                let _ = unsafe { close_range(first, last) };
            }),
            // SAFETY: the same.
            OtherDescriptors::Each(open) => open.iter().for_each(|&fd| _ = unsafe { libc::close(fd) }),
        }
    }
}

/// False if the kernel does not know the call.
///
/// # Safety
/// No code of this process may use these descriptors any more.
unsafe fn close_range(first: libc::c_uint, last: libc::c_uint) -> bool {
    // SAFETY: the call takes integers; the caller guarantees that the descriptors are unused.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

/// The ranges between sorted numbers, and behind the last one.
fn gaps(keep: &[RawFd]) -> Vec<(libc::c_uint, libc::c_uint)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for &fd in keep {
        let Ok(fd) = libc::c_uint::try_from(fd) else { continue };
        if next < fd {
            gaps.push((next, fd - 1));
        }
        next = fd + 1;
    }
    gaps.push((next, libc::c_uint::MAX));
    gaps
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn gaps_are_all_descriptors_except_the_kept() {
        const MAX: u32 = u32::MAX;
        type Case<'a> = (&'a [RawFd], &'a [(u32, u32)]);
        let cases: [Case<'_>; 5] = [
            (&[], &[(0, MAX)]),
            (&[0, 1], &[(2, MAX)]),
            (&[3, 4, 7], &[(0, 2), (5, 6), (8, MAX)]),
            (&[-1, 2], &[(0, 1), (3, MAX)]),
            (&[RawFd::MAX], &[(0, RawFd::MAX as u32 - 1), (RawFd::MAX as u32 + 1, MAX)]),
        ];
        for (keep, want) in cases {
            assert_eq!(gaps(keep), want, "{keep:?}");
        }
    }

    #[test]
    fn a_holder_takes_probes_off_when_it_is_alone() {
        let (mut reader, writer) = io::pipe().unwrap(); // stands for an event: its release shows as end of file
        let list = tempfile::NamedTempFile::new().unwrap();
        let append = File::options().append(true).open(list.path()).unwrap();
        let lines = [&b"-:g/a\n"[..], b"-:g/b\n"];
        let held = lines.map(|line| HeldProbe { event: writer.as_fd(), list: append.as_fd(), line });
        let holder = hand_over_probes(&held).expect("a process");
        let read = || std::fs::read(list.path()).unwrap();
        assert!(read().is_empty(), "it waits");
        drop(writer);
        drop(holder);
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 0, "nobody has the event any more");
        while read().len() < lines.concat().len() {
            std::thread::yield_now();
        }
        assert_eq!(read(), lines.concat());
    }

    #[test]
    fn a_holder_keeps_what_it_is_to_hold_and_nothing_else() {
        // High descriptor numbers, as after thousands of files were opened.
        let far = |least: RawFd| {
            let null = File::open("/dev/null").unwrap();
            let fd = nix::fcntl::fcntl(&null, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(least));
            fd.unwrap_or_else(|_| null.into_raw_fd()) // if the limit is low
        };
        let (kept, last) = (File::open("/dev/null").unwrap().into_raw_fd(), far(900));
        super::super::raise_open_files();
        let (between, behind) = (far(800), far(4000));
        let keep = [last, kept];
        for others in [
            OtherDescriptors::except(&keep),
            OtherDescriptors::listed(&{
                let mut sorted = keep;
                sorted.sort_unstable();
                sorted
            }),
        ] {
            // SAFETY: the child calls only close_range, close, fcntl and _exit, all async-signal-safe, on memory that was
            // prepared before.
            let child = match unsafe { fork() }.unwrap() {
                ForkResult::Parent { child } => child,
                // SAFETY: as above; the child uses no descriptor.
                ForkResult::Child => unsafe {
                    others.close();
                    let is_open = |fd: RawFd| libc::fcntl(fd, libc::F_GETFD) >= 0;
                    let is_right =
                        is_open(kept) && is_open(last) && ![0, 1, 2, between, behind].into_iter().any(is_open);
                    libc::_exit(i32::from(!is_right))
                },
            };
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
}
