//! The user's terminal: enters the screen, and restores the state from before the run.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::terminal::{TerminalModes, is_in_foreground, window_size};

/// Enters the alternate screen, clears it, and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// How long a thread that restores the terminal waits for another thread that is writing to it.
const PATIENCE: Duration = Duration::from_millis(500);

/// The terminal, shared by the threads of the run. Any of them may restore it.
#[derive(Debug)]
pub struct ScreenTerminal {
    keys: File,
    out: File,
    /// The terminal modes from before the run.
    modes: TerminalModes,
    is_on: AtomicBool,
    /// The screen is never entered again.
    is_over: AtomicBool,
    /// Held while something is written.
    writing: Mutex<()>,
}

impl ScreenTerminal {
    /// # Errors
    /// stdin or stdout is no terminal.
    pub fn open() -> Result<Arc<ScreenTerminal>> {
        let keys = io::stdin().as_fd().try_clone_to_owned().context("stdin is closed")?;
        let out = io::stdout().as_fd().try_clone_to_owned().context("stdout is closed")?;
        let modes = TerminalModes::of(&keys).context("stdin is no terminal")?;
        let terminal = Arc::new(ScreenTerminal {
            keys: keys.into(),
            out: out.into(),
            modes,
            is_on: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            writing: Mutex::new(()),
        });
        terminal.restore_on_panic();
        Ok(terminal)
    }

    /// Restores the terminal on a panic; otherwise the panic's message would vanish with the screen.
    fn restore_on_panic(self: &Arc<ScreenTerminal>) {
        let (this, before) = (Arc::downgrade(self), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if let Some(terminal) = Weak::upgrade(&this) {
                terminal.end();
            }
            before(panic);
        }));
    }

    pub fn keys(&self) -> &File {
        &self.keys
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Columns and lines that are drawn on.
    pub fn size(&self) -> (u16, u16) {
        drawn_size(window_size(&self.out))
    }

    /// Turns the screen on, if perf-prof is in the foreground. True when everything must be drawn.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn enter(&self) -> io::Result<bool> {
        if self.is_on() || self.is_over() || !is_in_foreground(&self.keys) {
            return Ok(false);
        }
        let guard = self.lock();
        if self.is_over() {
            return Ok(false); // another thread has restored the terminal meanwhile
        }
        self.modes.by_key().set(&self.keys);
        self.is_on.store(true, Ordering::Release);
        let written = (&self.out).write_all(ENTER);
        drop(guard);
        written.map(|()| true)
    }

    /// Writes a frame, if the screen is on and perf-prof is in the foreground.
    ///
    /// # Errors
    /// The terminal has hung up.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        let _guard = self.lock();
        if !self.is_on() {
            return Ok(());
        }
        if !is_in_foreground(&self.keys) {
            self.is_on.store(false, Ordering::Release); // the terminal shows another process
            return Ok(());
        }
        (&self.out).write_all(frame)
    }

    /// Marks the screen as overwritten: it will be entered again.
    pub fn forget(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    /// Restores the terminal. It may be entered again.
    pub fn leave(&self) {
        let _guard = self.lock();
        if !self.is_on.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut fds = [PollFd::new(self.out.as_fd(), PollFlags::POLLOUT)];
        let patience = PollTimeout::from(PATIENCE.as_millis() as u16);
        if poll(&mut fds, patience).is_ok_and(|ready| ready > 0) {
            let _ = (&self.out).write_all(LEAVE);
        }
        self.modes.set(&self.keys);
    }

    /// Restores the terminal for good.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.leave();
    }

    /// Waits for another thread that is writing, up to `PATIENCE`: its terminal may be blocked.
    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        const STEP: Duration = Duration::from_millis(1);
        for _ in 0..PATIENCE.as_millis() {
            match self.writing.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::park_timeout(STEP),
            }
        }
        None
    }
}

impl Drop for ScreenTerminal {
    fn drop(&mut self) {
        self.end();
    }
}

/// The size that is drawn on. It is limited, since the owner of a pseudo terminal may set 65,535 columns and lines, and
/// each cell is in memory twice.
fn drawn_size(window: Option<(u16, u16)>) -> (u16, u16) {
    const MAX_COLUMNS: u16 = 1000;
    const MAX_LINES: u16 = 500;
    let (columns, lines) = window.unwrap_or((80, 24));
    (columns.min(MAX_COLUMNS), lines.min(MAX_LINES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_terminal_is_drawn_on_in_part() {
        let cases = [
            (None, (80, 24)),
            (Some((640, 216)), (640, 216)),
            (Some((10_000, 10_000)), (1000, 500)),
            (Some((u16::MAX, 1)), (1000, 1)),
        ];
        cases.iter().for_each(|(window, want)| assert_eq!(drawn_size(*window), *want));
    }
}
