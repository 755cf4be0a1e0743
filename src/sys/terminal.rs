//! The terminal: its size, its foreground process, its settings for single keys; and how a program stops itself on
//! Ctrl-Z.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// Columns and lines. None: it is no terminal, or its size is unknown.
pub fn window_size(terminal: impl AsFd) -> Option<(u16, u16)> {
    let mut size = MaybeUninit::<libc::winsize>::uninit();
    // SAFETY: `size` is a local variable, and the call writes all of it when it returns 0.
    let size = unsafe {
        if libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) != 0 {
            return None;
        }
        size.assume_init()
    };
    Some((size.ws_col, size.ws_row)).filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

/// Whether the process is in the foreground of its terminal, and gets the keys.
pub fn is_in_foreground(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal) == Ok(getpgrp())
}

/// The modes of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct TerminalModes(libc::termios);

impl TerminalModes {
    /// # Errors
    /// The descriptor is no terminal.
    pub fn of(terminal: impl AsFd) -> io::Result<TerminalModes> {
        Ok(TerminalModes(tcgetattr(terminal)?.into()))
    }

    /// These modes, but with every key delivered at once and without echo. Ctrl-C and Ctrl-Z still send signals.
    #[must_use]
    pub fn by_key(&self) -> TerminalModes {
        let mut modes = self.0;
        modes.c_lflag &= !(libc::ICANON | libc::ECHO);
        modes.c_cc[libc::VMIN] = 1;
        modes.c_cc[libc::VTIME] = 0;
        TerminalModes(modes)
    }

    /// Sets these modes, unless the process is in the background: then another process owns the terminal.
    pub fn set(&self, terminal: impl AsFd) {
        // The process may just have moved to the background, where tcsetattr would stop it with SIGTTOU.
        let mut stops = SigSet::empty();
        stops.add(Signal::SIGTTOU);
        let before = stops.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        if is_in_foreground(&terminal) {
            let _ = tcsetattr(terminal, SetArg::TCSANOW, &Termios::from(self.0)); // fails if the terminal has hung up
        }
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
    }
}

/// Stops the process, as the terminal's SIGTSTP would have if this thread did not block it; returns when it is
/// continued. The kernel does not stop a process of an orphaned process group, which nobody could continue.
pub fn stop_self() {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    let _ = raise(Signal::SIGTSTP);
    let _ = stop.thread_unblock(); // the process stops in this call
    let _ = stop.thread_block();
}
