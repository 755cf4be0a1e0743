//! Starting the workload, and the holder that takes the slow release of events off the user's prompt.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

/// A command that is forked but not yet executed.
#[derive(Debug)]
pub struct Workload {
    pid: Pid,
    name: String,
    go: Option<OwnedFd>,
    failure: OwnedFd,
    reaped: bool,
    told_to_end: bool,
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
        let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure_read, failure_write) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only async-signal-safe functions (close, prctl, sigemptyset, sigprocmask, signal,
        // read, execvp, write, _exit) on memory prepared above.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let byte = [0_u8; 1];
                // SAFETY: as above; every pointer is to memory prepared before the fork and still mapped, and
                // `pointers` ends with a null.
                unsafe {
                    // Its writing end must be closed here, or our own death would not be seen as an end of file.
                    libc::close(go_write.as_raw_fd());
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                    libc::sigemptyset(none.as_mut_ptr());
                    libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
                    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                    let got = libc::read(go_read.as_raw_fd(), byte.as_ptr().cast_mut().cast(), 1);
                    if got == 1 {
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
                told_to_end: false,
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

    /// Lets the child execute its command and waits until it has, or has failed to.
    ///
    /// # Errors
    /// Why `execvp` failed.
    pub fn release(&mut self) -> io::Result<()> {
        if let Some(go) = self.go.take() {
            std::fs::File::from(go).write_all(b"x")?;
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

    /// Tells the child to end, and behind it `others` that it has started: a shell that outlived its command would go on
    /// with the next.
    pub fn end(&mut self, others: &[OwnedFd]) {
        if self.told_to_end || self.ended() {
            return;
        }
        self.told_to_end = true;
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

/// Forks a process that holds the last references to `events` for as long as releasing them takes.
///
/// The kernel waits some 35 ms for every distinct tracepoint that is released. The holder does that after we have
/// returned to the prompt; it keeps no other descriptor, so a pipe behind us sees its end at once.
pub fn hand_over(events: &[RawFd]) {
    /// Descriptors opened after the last event: timers, pinned files.
    const MOST_LATER: RawFd = 1024;
    let mut keep: Vec<RawFd> = events.to_vec();
    keep.sort_unstable();
    // SAFETY: the child calls only setsid, close and _exit, all async-signal-safe.
    if let Ok(ForkResult::Child) = unsafe { fork() } {
        // SAFETY: system calls with integer arguments; no Rust value of the child is used after its descriptor is
        // closed, since the child ends here.
        unsafe {
            libc::setsid();
            // The terminal and pipes above all, which somebody may wait for the end of.
            for fd in 0..keep.last().copied().unwrap_or(0).saturating_add(MOST_LATER) {
                if keep.binary_search(&fd).is_err() {
                    libc::close(fd);
                }
            }
            libc::_exit(0);
        }
    }
}
