//! Starting the workload, and the holder process that releases events slowly while the user has the prompt back.

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
    /// SIGTERM was sent.
    is_ending: bool,
}

impl Workload {
    /// Forks; the child waits for [`Workload::release`] before it becomes `argv`.
    ///
    /// # Errors
    /// An argument with a NUL byte, no argument at all, or what `fork` and `pipe` say.
    pub fn start(argv: &[OsString]) -> io::Result<Workload> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let args: Vec<CString> =
            argv.iter().map(|a| CString::new(a.as_bytes()).map_err(invalid)).collect::<Result<_, _>>()?;
        let Some(first) = argv.first() else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        let mut pointers: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // It keeps the limit that we were given.
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
                    // The writing end must be closed here, or the parent's death would not be seen as an end of file.
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

    /// Lets the child execute its command and waits until it has, or has failed to, or this process is told to end: the file of the
    /// command may not answer.
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
            Err(_) => Ok(()), // closed by the exec
        }
    }

    /// True when the child has ended; it is reaped then.
    pub fn ended(&mut self) -> bool {
        if !self.reaped {
            self.reaped = !matches!(waitpid(self.pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive));
        }
        self.reaped
    }

    /// Sends SIGTERM to the child first, then to `others` that it has started: a shell that outlives its command would go on with
    /// the next.
    pub fn end(&mut self, others: &[OwnedFd]) {
        if self.is_ending || self.ended() {
            return;
        }
        self.is_ending = true;
        let _ = kill(self.pid, Signal::SIGTERM); // it is ours until it is reaped
        for other in others {
            // SAFETY: pidfd_send_signal(2) takes integers and no siginfo. The descriptor cannot come to mean another process.
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
    // SAFETY: returns the address of this thread's errno, always valid.
    unsafe { libc::__errno_location() }
}

/// Forks a child that runs `work` and exits. It is named `name`, has a session of its own, `/` as its directory, no descriptor but
/// `keep` (0 to 2 lead to /dev/null), and is killed when its parent ends.
///
/// # Errors
/// This process has several threads, whose locks the child would find taken for ever; or what fork(2) says.
pub fn fork_apart(name: &CStr, keep: BorrowedFd<'_>, work: impl FnOnce()) -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::ErrorKind::Deadlock.into());
    }
    let parent = std::process::id();
    let others = OtherDescriptors::except(&[keep.as_raw_fd()]);
    // SAFETY: this process has one thread, so that no lock is held by another one, and the child may do what it likes.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                std::panic::set_hook(Box::new(|_| {})); // nobody reads what it would print
                // SAFETY: system calls with integers and texts that end with a zero. The descriptors that are closed belong to
                // values of the parent's code, to which the child does not return.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid().cast_unsigned() != parent {
                        return; // it has ended before
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
                            libc::close(fd); // `keep` is one of them
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

/// Kills a child that nobody has waited for yet.
pub fn kill_child(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// True when a child has ended; it is reaped then, and its number may be another's. Does not wait.
pub fn has_ended(pid: i32) -> bool {
    !matches!(waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
}

/// Waits until these children have ended, and reaps them. False: not all have within `limit`.
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
                Ok(_) => {} // one of several
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
/// The kernel waits some 35 ms for every distinct tracepoint that is released. The holder does that after we have
/// returned to the prompt; it keeps no other descriptor, so a pipe behind us sees its end at once.
pub fn hand_over(events: &[RawFd]) {
    let others = OtherDescriptors::except(events);
    // SAFETY: the child calls only setsid, close_range, close and _exit, all async-signal-safe.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        // SAFETY: system calls with integer arguments; no Rust value of the child is used after its descriptor is
        // closed, since the child ends here.
        unsafe {
            libc::setsid();
            // Above all the terminal and pipes, for whose end somebody may wait.
            others.close();
            libc::_exit(0);
        }
    }
}

/// A probe whose definition is to be removed when its event is released.
#[derive(Debug)]
pub struct HeldProbe<'a> {
    /// The probe's last open event.
    pub event: BorrowedFd<'a>,
    /// The kernel's list of such probes, open for appending.
    pub list: BorrowedFd<'a>,
    /// The line that removes the probe from the list.
    pub line: &'a [u8],
}

/// As [`hand_over`], for probes: the holder also removes them from the kernel's lists. It begins when the returned descriptor is
/// dropped, after their events were closed here: whoever closes an event last waits for its release. None: there is no holder.
pub fn hand_over_probes(probes: &[HeldProbe<'_>]) -> Option<OwnedFd> {
    /// A lone process of a container would take the holder with it.
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
            // SAFETY: system calls with integer arguments, and a line that is the caller's; no Rust value of the child is
            // used after its descriptor is closed, since the child ends here.
            unsafe {
                libc::setsid();
                others.close();
                libc::read(begins.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1); // returns when the other side is closed
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

/// Removes a probe from its list; EBUSY while its event is still being released, or open elsewhere. Safe between fork and exit.
fn remove_probe(probe: &HeldProbe<'_>) {
    const TRIES: u32 = 400;
    static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..TRIES {
        // SAFETY: the line is there for as long as this takes; errno is this thread's own.
        let is_busy = unsafe {
            libc::write(probe.list.as_raw_fd(), probe.line.as_ptr().cast(), probe.line.len()) < 0
                && *errno_location() == libc::EBUSY
        };
        if !is_busy {
            return; // also when somebody else has removed it
        }
        // SAFETY: reads its first argument only.
        unsafe { libc::nanosleep(&raw const PAUSE, std::ptr::null_mut()) };
    }
}

/// All descriptors but some, to be closed after a fork: the list is prepared before.
enum OtherDescriptors {
    /// First and last of each range.
    Ranges(Vec<(libc::c_uint, libc::c_uint)>),
    /// For kernels before 5.9, and seccomp filters that do not know close_range(2).
    Each(Vec<RawFd>),
}

impl OtherDescriptors {
    fn except(keep: &[RawFd]) -> OtherDescriptors {
        let mut keep: Vec<RawFd> = keep.to_vec();
        keep.sort_unstable();
        keep.dedup();
        const LAST: libc::c_uint = libc::c_uint::MAX;
        // SAFETY: the call takes integers, and no descriptor has this number.
        if unsafe { close_range(LAST, LAST) } {
            OtherDescriptors::Ranges(gaps(&keep))
        } else {
            OtherDescriptors::listed(&keep)
        }
    }

    /// `keep` is sorted.
    fn listed(keep: &[RawFd]) -> OtherDescriptors {
        /// Highest descriptor that is closed without /proc.
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
    /// Nobody in this process uses any of these descriptors any more.
    unsafe fn close(&self) {
        match self {
            OtherDescriptors::Ranges(ranges) => ranges.iter().for_each(|&(first, last)| {
                // SAFETY: integers; the caller says that the descriptors are not used.
                let _ = unsafe { close_range(first, last) };
            }),
            // SAFETY: the same.
            OtherDescriptors::Each(open) => open.iter().for_each(|&fd| _ = unsafe { libc::close(fd) }),
        }
    }
}

/// False where the call is not known.
///
/// # Safety
/// Nobody in this process uses these descriptors any more.
unsafe fn close_range(first: libc::c_uint, last: libc::c_uint) -> bool {
    // SAFETY: the call takes integers; the caller says that the descriptors are not used.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

/// The ranges between sorted numbers, and behind the last.
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
        let (mut reader, writer) = io::pipe().unwrap(); // stands for an event: its end is seen
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
        // Far behind the others, as descriptors are that were opened after thousands of files were pinned.
        let far = |least: RawFd| {
            let null = File::open("/dev/null").unwrap();
            let fd = nix::fcntl::fcntl(&null, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(least));
            fd.unwrap_or_else(|_| null.into_raw_fd()) // where the limit is low
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
                // SAFETY: the same; nothing of the child uses a descriptor.
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
