//! Waiting with epoll for rings, signals, timers, the exit of a child and a wake-up from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// An epoll set whose members have tokens that the caller chooses.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    ready: Vec<EpollEvent>,
}

impl Poller {
    /// # Errors
    /// EMFILE: no descriptor is left.
    pub fn new() -> io::Result<Poller> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Poller { epoll, ready: vec![EpollEvent::empty(); 64] })
    }

    /// Reports `fd` as `token` once per change (edge-triggered): a perf event whose task has exited reports HUP for
    /// ever.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn add_edge(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, token))?)
    }

    /// Reports `fd` as `token` as long as it is readable.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))?)
    }

    /// Reports `fd` as `token` as long as it is writable.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn add_writable(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLOUT, token))?)
    }

    /// # Errors
    /// ENOENT when `fd` is no member.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(self.epoll.delete(fd)?)
    }

    /// Waits until a member is ready or `timeout` has passed, whichever is first.
    ///
    /// # Errors
    /// None are known: EINTR counts as no member ready.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<impl Iterator<Item = u64> + '_> {
        // Rounded up: otherwise the last fraction of a millisecond would be a busy loop.
        let millis = timeout.as_micros().div_ceil(1000).min(60_000) as u16;
        let count = match self.epoll.wait(&mut self.ready, EpollTimeout::from(millis)) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(err) => return Err(err.into()),
        };
        Ok(self.ready[..count].iter().map(EpollEvent::data))
    }
}

/// Signals that are read from a descriptor. They are blocked in this thread and in all threads that it starts later.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// # Errors
    /// The kernel's errno.
    pub fn block(signals: &[Signal]) -> io::Result<Signals> {
        let mut set = SigSet::empty();
        signals.iter().for_each(|&signal| set.add(signal));
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next pending signal, if one is.
    pub fn take(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok()??;
        Signal::try_from(info.ssi_signo as i32).ok()
    }
}

/// Blocks all signals in this thread, so that they go to the thread that reads them.
pub fn block_signals() {
    let _ = SigSet::all().thread_block(); // cannot fail for a valid set
}

/// From now on SIGINT and SIGTERM end the process, even if they were ignored as it started. A shell without job control
/// ignores SIGINT in its background processes, and a script may end a run there with `kill -INT`.
pub fn obey_ending_signals() {
    for ending in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: SIG_DFL installs no handler, so no code runs in signal context.
        let _ = unsafe { signal(ending, SigHandler::SigDfl) }; // cannot fail for these signals
    }
}

/// The signals that end a run: SIGINT, SIGTERM, and SIGHUP unless the run was started to outlive its terminal (`nohup`).
pub fn ending_signals() -> impl Iterator<Item = Signal> {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .filter(|&signal| signal != Signal::SIGHUP || !is_ignored(signal))
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: zeros are a valid sigaction, and the call only writes to it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is a local variable; without a new action nothing is changed.
    let asked = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Blocks [`ending_signals`] until [`Signals`] are read, while something exists (such as probes) that must not be left
/// behind.
pub fn hold_ending_signals() {
    let mut set = SigSet::empty();
    ending_signals().for_each(|signal| set.add(signal));
    let _ = set.thread_block(); // cannot fail for a valid set
}

/// Whether one of [`ending_signals`] is blocked and pending.
pub fn is_told_to_end() -> bool {
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `pending` is a local variable, and the call writes all of it when it returns 0.
    let pending = unsafe {
        if libc::sigpending(pending.as_mut_ptr()) != 0 {
            return false;
        }
        pending.assume_init()
    };
    // SAFETY: `pending` is a set that the kernel has written.
    ending_signals().any(|signal| unsafe { libc::sigismember(&raw const pending, signal as i32) == 1 })
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer that expires every `period`.
#[derive(Debug)]
pub struct Ticker(TimerFd);

impl Ticker {
    /// # Errors
    /// The kernel's errno; EINVAL for a period of zero.
    pub fn every(period: Duration) -> io::Result<Ticker> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        timer.set(Expiration::Interval(TimeSpec::from_duration(period)), TimerSetTimeFlags::empty())?;
        Ok(Ticker(timer))
    }

    /// True when at least one period ended since the last call.
    pub fn expired(&self) -> bool {
        self.0.wait().is_ok()
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets another thread end a [`Poller::wait`].
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    /// # Errors
    /// EMFILE: no descriptor is left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    pub fn wake(&self) {
        let _ = self.0.write(1); // a full counter means that a wake-up is pending already
    }

    pub fn clear(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that becomes readable when the process exits.
///
/// # Errors
/// ESRCH, or ENOSYS before Linux 5.3.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers; it returns a descriptor that nothing else owns.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(<OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as i32))
    }
}
