//! A thread that reads keys.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use crossbeam_channel::{Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::output::screen::ScreenEvent;
use crate::output::screen::keys::KeyParser;
use crate::output::screen::terminal::ScreenTerminal;
use crate::sys::poll::{Waker, block_signals};

/// How long the rest of a torn sequence may take.
const TORN_MS: u16 = 50;
/// How often a thread that may not read looks whether it may.
const AGAIN_MS: u16 = 100;

/// Starts the thread. Returns its tid. `stop` ends it.
///
/// # Errors
/// The thread cannot be started.
pub fn start(terminal: Arc<ScreenTerminal>, events: Sender<ScreenEvent>, stop: Arc<Waker>) -> Result<i32> {
    let (tell_tid, tid) = bounded::<i32>(1);
    let work = move || {
        block_signals(); // the reading thread handles them
        let _ = tell_tid.send(nix::unistd::gettid().as_raw());
        let _ = read_keys(&terminal, &events, &stop);
    };
    std::thread::Builder::new()
        .name("keyboard".into())
        .spawn(work)
        .context("cannot start the thread that reads keys")?;
    tid.recv().context("the thread that reads keys ended at once")
}

/// Reads until the terminal hangs up, or nobody takes the keys.
fn read_keys(terminal: &ScreenTerminal, events: &Sender<ScreenEvent>, stop: &Waker) -> io::Result<()> {
    let (mut parser, mut bytes) = (KeyParser::default(), [0; 256]);
    loop {
        // While the screen is off, the keys are for others.
        let is_on = terminal.is_on();
        let timeout = match parser.is_waiting() {
            _ if !is_on => PollTimeout::from(AGAIN_MS),
            true => PollTimeout::from(TORN_MS),
            false => PollTimeout::NONE,
        };
        let mut fds =
            [PollFd::new(stop.as_fd(), PollFlags::POLLIN), PollFd::new(terminal.keys().as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds[..if is_on { 2 } else { 1 }], timeout)?;
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        if is_ready(&fds[0]) {
            return Ok(());
        }
        let keys = if ready == 0 {
            parser.flush().into_iter().collect()
        } else if is_on && is_ready(&fds[1]) && terminal.is_on() {
            match terminal.keys().read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(len) => parser.feed(&bytes[..len]),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
                // EIO: it is in the background, or has hung up.
                Err(_) => {
                    poll(&mut fds[..1], PollTimeout::from(AGAIN_MS))?;
                    continue;
                }
            }
        } else {
            continue;
        };
        for key in keys {
            if events.send(ScreenEvent::Key(key)).is_err() {
                return Ok(());
            }
        }
    }
}
