//! Where results go: stdout or the file that the user named, written in large chunks.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys;
use crate::sys::packets::memory_file;

/// Mode of files that perf-prof creates: stacks contain kernel addresses, and names of tasks are private.
pub const PRIVATE: u32 = 0o600;

pub const STDOUT_IS_CLOSED: &str = "stdout is closed (`>&-`): nobody would see the results; `-o FILE` or `>/dev/null`";

/// Bytes buffered before a write.
const LARGE: usize = 64 * 1024;

/// A buffered writer whose progress other threads can watch.
#[derive(Debug)]
pub struct Sink {
    file: File,
    pub buffer: Vec<u8>,
    durable: bool,
    waits: SinkProgress,
    /// Flushed bytes that are kept here for the screen.
    diverted: Option<Vec<u8>>,
    /// The sink has ended: appended bytes are dropped.
    is_over: bool,
    /// Lines for stderr are written into the sink instead.
    takes_notes: bool,
}

/// The progress of a sink, for the thread that waits for its end.
#[derive(Clone, Debug, Default)]
pub struct SinkProgress(Arc<SinkCounters>);

#[derive(Debug, Default)]
struct SinkCounters {
    /// Start of the write in progress, CLOCK_MONOTONIC in ns; 0: none.
    since: AtomicU64,
    bytes: AtomicU64,
}

impl SinkProgress {
    /// True when the write in progress has taken so long that the reader must have stopped reading.
    pub fn is_reader_stuck(&self) -> bool {
        const LONG_NS: u64 = 300_000_000;
        self.since().is_some_and(|since| sys::monotonic_ns().saturating_sub(since) >= LONG_NS)
    }

    /// Start of the write in progress, CLOCK_MONOTONIC in ns.
    pub fn since(&self) -> Option<u64> {
        Some(self.0.since.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    /// Runs `work`, which writes, and counts its time as a wait for the reader or the disk.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.since.store(sys::monotonic_ns(), Ordering::Relaxed);
        let result = work();
        self.0.since.store(0, Ordering::Relaxed);
        result
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

/// Prints a last line on stderr, unless that would block.
pub fn print_to_stderr_at_once(line: &str) {
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

    /// Appends to `path`, as a log does. A new file has mode `PRIVATE`.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or another user has put it there.
    pub fn file(path: &Path) -> Result<Sink> {
        let file = sys::shared_dir::append_to(path, PRIVATE);
        Ok(Sink::new(file.with_context(|| format!("cannot write to {}", path.display()))?))
    }

    fn new(file: File) -> Sink {
        Sink {
            file,
            buffer: Vec::with_capacity(2 * LARGE),
            durable: false,
            waits: SinkProgress::default(),
            diverted: None,
            is_over: false,
            takes_notes: false,
        }
    }

    /// A sink into memory, which also takes lines for stderr; and the file with what was written.
    ///
    /// # Errors
    /// The memory file cannot be made.
    pub fn memory() -> Result<(Sink, File)> {
        let file = memory_file().context("no memory for the output")?;
        let sink = Sink::new(file.try_clone().context("no memory for the output")?);
        Ok((Sink { takes_notes: true, ..sink }, file))
    }

    /// Writes lines for stderr at once.
    pub fn note(&self, lines: &str) {
        let written = |to: &mut dyn Write| writeln!(to, "{lines}");
        let _ =
            self.waits.during(|| if self.takes_notes { written(&mut &self.file) } else { written(&mut io::stderr()) });
    }

    pub fn waits(&self) -> SinkProgress {
        self.waits.clone()
    }

    /// Shares progress with another sink.
    #[must_use]
    pub fn with_progress(self, waits: SinkProgress) -> Sink {
        Sink { waits, ..self }
    }

    /// Syncs the file to the disk after each write.
    #[must_use]
    pub fn durable(mut self) -> Sink {
        self.durable = true;
        self
    }

    /// Ends the sink: everything appended from now on is dropped.
    pub fn end(&mut self) {
        self.is_over = true;
        self.buffer = Vec::new();
    }

    /// From now on, flushed bytes are kept and not written.
    pub fn divert(&mut self) {
        self.diverted = Some(Vec::new());
    }

    /// The bytes flushed since the last call.
    pub fn take_diverted(&mut self) -> Vec<u8> {
        self.diverted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends [`Sink::divert`].
    pub fn end_diversion(&mut self) {
        self.diverted = None;
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes the buffer when it is large enough.
    ///
    /// # Errors
    /// As [`Sink::flush`].
    pub fn flush_large(&mut self) -> io::Result<()> {
        if self.buffer.len() >= LARGE { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// EPIPE when the reader has closed the pipe, ENOSPC on a full disk, and others. Bytes not written are dropped.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(diverted) = &mut self.diverted {
            diverted.append(&mut self.buffer);
            return Ok(());
        }
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
            let _ = self.file.sync_data(); // EINVAL for a pipe or a terminal
        }
        self.waits.0.since.store(0, Ordering::Relaxed);
        result
    }

    /// The last step of a command: writes the buffer and returns the exit code. A reader that has closed the pipe is a
    /// normal end.
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
