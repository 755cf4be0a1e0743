//! Where results go: stdout or the file that the user named. Written in large pieces.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys;

/// Of files that we create: stacks show kernel addresses, and names are nobody else's business.
pub const PRIVATE: u32 = 0o600;

pub const STDOUT_IS_CLOSED: &str = "stdout is closed (`>&-`): nobody would see the results; `-o FILE` or `>/dev/null`";

/// How much is gathered before it is written.
const LARGE: usize = 64 * 1024;

/// A buffered writer that says whether the other end is still there.
#[derive(Debug)]
pub struct Sink {
    file: File,
    pub buffer: Vec<u8>,
    durable: bool,
    waits: Waits,
    /// What comes is dropped.
    is_over: bool,
}

/// How a sink gets on with its other end, for those who wait for it.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Written>);

#[derive(Debug, Default)]
struct Written {
    /// Since when it has been waiting: ns, 0 when it is not.
    since: AtomicU64,
    bytes: AtomicU64,
}

impl Waits {
    /// Its other end has taken nothing for so long that it does not read.
    pub fn for_nobody(&self) -> bool {
        const LONG_NS: u64 = 300_000_000;
        self.since().is_some_and(|since| sys::monotonic_ns().saturating_sub(since) >= LONG_NS)
    }

    /// Since when it has been waiting for its other end to take something, if it is.
    pub fn since(&self) -> Option<u64> {
        Some(self.0.since.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    /// What `work` writes takes as long as its reader, or its disk, likes.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.since.store(sys::monotonic_ns(), Ordering::Relaxed);
        let result = work();
        self.0.since.store(0, Ordering::Relaxed);
        result
    }

    /// How much was written so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

/// A last line for people, unless stderr does not take it at once.
pub fn tell_at_once(line: &str) {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

impl Sink {
    /// # Errors
    /// stdout is closed.
    pub fn stdout() -> Result<Sink> {
        if sys::stdio::stdout_was_closed() {
            bail!(STDOUT_IS_CLOSED);
        }
        let fd = io::stdout().as_fd().try_clone_to_owned().context("stdout is closed")?;
        Ok(Sink::new(fd.into()))
    }

    /// Appends to `path`, as a log does. A new file is for its owner alone: results tell kernel addresses and names.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn file(path: &Path) -> Result<Sink> {
        let file = OpenOptions::new().create(true).append(true).mode(PRIVATE).open(path);
        Ok(Sink::new(file.with_context(|| format!("cannot write to {}", path.display()))?))
    }

    fn new(file: File) -> Sink {
        Sink { file, buffer: Vec::with_capacity(2 * LARGE), durable: false, waits: Waits::default(), is_over: false }
    }

    pub fn waits(&self) -> Waits {
        self.waits.clone()
    }

    /// Tells others how it gets on.
    #[must_use]
    pub fn with_waits(self, waits: Waits) -> Sink {
        Sink { waits, ..self }
    }

    /// What is written goes through to the disk each time.
    #[must_use]
    pub fn durable(mut self) -> Sink {
        self.durable = true;
        self
    }

    /// Nobody takes any more: what comes is dropped.
    pub fn end(&mut self) {
        self.is_over = true;
        self.buffer = Vec::new();
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes when enough has gathered.
    ///
    /// # Errors
    /// As [`Sink::flush`].
    pub fn flush_large(&mut self) -> io::Result<()> {
        if self.buffer.len() >= LARGE { self.flush() } else { Ok(()) }
    }

    /// Writes all that has gathered.
    ///
    /// # Errors
    /// EPIPE when the reader has gone, ENOSPC on a full disk, and so on. What was not written is dropped.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut rest = if self.is_over { &[] } else { self.buffer.as_slice() };
        let mut result = Ok(());
        let syncs = self.durable && !rest.is_empty();
        while !rest.is_empty() {
            self.waits.0.since.store(sys::monotonic_ns(), Ordering::Relaxed);
            match self.file.write(rest) {
                Ok(0) => break,
                Ok(written) => {
                    rest = &rest[written..];
                    self.waits.0.bytes.fetch_add(written as u64, Ordering::Relaxed);
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                    // stdout may be a pipe that somebody made non-blocking.
                    let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut fds, PollTimeout::NONE);
                }
                Err(err) => {
                    result = Err(err);
                    break;
                }
            }
        }
        self.buffer.clear();
        if syncs {
            let _ = self.file.sync_data(); // EINVAL of a pipe or a terminal
        }
        self.waits.0.since.store(0, Ordering::Relaxed);
        result
    }

    /// As the last step of a command: writes all, and a reader that has gone is a normal end. Returns the exit code.
    ///
    /// # Errors
    /// As [`Sink::flush`], but for EPIPE.
    pub fn finish(&mut self) -> Result<u8> {
        match self.flush() {
            Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
                Err(anyhow::Error::new(err).context("cannot write to stdout"))
            }
            _ => Ok(0),
        }
    }
}
