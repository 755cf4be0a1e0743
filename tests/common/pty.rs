//! A program on a terminal of its own: what is on its screen, and keys for it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};

use super::ends_within;

/// Longer than anything but a hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// What turns the alternate screen on, and off.
const ENTER: &[u8] = b"\x1b[?1049h";
const LEAVE: &[u8] = b"\x1b[?1049l";

pub struct Pty {
    child: Child,
    master: File,
    /// Kept open, or the terminal would hang up with the program.
    slave: File,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All that was written to the terminal.
    pub raw: Vec<u8>,
    modes: LocalFlags,
    until: Instant,
}

/// A program that has ended.
pub struct PtyDone {
    pub status: ExitStatus,
    pub raw: Vec<u8>,
    /// The terminal has the modes that it had before.
    pub is_restored: bool,
}

impl PtyDone {
    /// The screen was left after it was last entered.
    pub fn left_screen(&self) -> bool {
        let last = |sequence: &[u8]| self.raw.windows(sequence.len()).rposition(|bytes| bytes == sequence);
        last(LEAVE).is_some() && last(LEAVE) > last(ENTER)
    }

    /// The text since the screen was left, or all of it.
    pub fn text(&self) -> String {
        let left = self.raw.windows(LEAVE.len()).rposition(|bytes| bytes == LEAVE);
        String::from_utf8_lossy(&self.raw[left.map_or(0, |at| at + LEAVE.len())..]).replace("\r\n", "\n")
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Pty {
    /// Starts a command as the leader of a session on a new terminal.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Pty {
        let pty = openpty(&size(columns, rows), None).expect("a pseudo terminal");
        let copy = || pty.slave.try_clone().expect("a copy");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        // SAFETY: between fork and exec only these two system calls are made, which take numbers.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let modes = tcgetattr(&pty.slave).expect("the modes").local_flags;
        let child = command.spawn().unwrap_or_else(|err| panic!("{command:?}: {err}"));
        let (sender, bytes) = channel();
        let mut reader = File::from(pty.master.try_clone().expect("a copy"));
        thread::spawn(move || {
            let mut some = [0; 16384];
            while let Ok(len @ 1..) = reader.read(&mut some) {
                if sender.send(some[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let number = |number| NonZeroU16::new(number).expect("not 0");
        Pty {
            child,
            master: OwnedFd::into(pty.master),
            slave: OwnedFd::into(pty.slave),
            bytes,
            screen: vt100::Parser::new(number(rows), number(columns), 0),
            raw: Vec::new(),
            modes,
            until: Instant::now() + PATIENCE,
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("signal");
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// The terminal takes no more output, as after Ctrl-S.
    pub fn stand_still(&mut self) {
        tcflow(&self.slave, FlowArg::TCOOFF).expect("a terminal");
    }

    pub fn go_on(&mut self) {
        tcflow(&self.slave, FlowArg::TCOON).expect("a terminal");
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let (new, number) = (size(columns, rows), |number| NonZeroU16::new(number).expect("not 0"));
        // SAFETY: `new` lives as long as the call, which only reads it.
        let done = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const new) };
        assert_eq!(done, 0);
        self.screen.screen_mut().set_size(number(rows), number(columns));
    }

    /// Lines of the screen, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        let columns = screen.size().1.get();
        screen.rows(0, columns).map(|line| line.trim_end().to_owned()).collect()
    }

    pub fn is_alternate(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// The terminal has the modes that it had at the beginning.
    pub fn is_restored(&self) -> bool {
        tcgetattr(&self.slave).expect("the modes").local_flags == self.modes
    }

    /// Reads until the screen is as wanted, and returns it.
    #[track_caller]
    pub fn wait(&mut self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.wait_for(what, |pty| wanted(&pty.lines()));
        self.lines()
    }

    #[track_caller]
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Pty) -> bool) {
        while !wanted(self) {
            assert!(Instant::now() < self.until, "not seen: {what}; the screen:\n{}", self.lines().join("\n"));
            self.receive(what);
        }
    }

    #[track_caller]
    fn receive(&mut self, what: &str) {
        match self.bytes.recv_timeout(Duration::from_millis(20)) {
            Ok(bytes) => {
                self.screen.process(&bytes);
                self.raw.extend_from_slice(&bytes);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("hung up before: {what}"),
        }
    }

    /// Waits for the end of the program and reads the rest.
    #[track_caller]
    pub fn finish(mut self) -> PtyDone {
        const MARK: &[u8] = b"<the end of the test>";
        let pid = self.pid();
        while !ends_within(pid, Duration::ZERO) {
            assert!(Instant::now() < self.until, "hangs; the screen:\n{}", self.lines().join("\n"));
            self.receive("the end");
        }
        let status = self.child.wait().expect("wait");
        let is_restored = self.is_restored();
        self.slave.write_all(MARK).expect("a terminal");
        let has_mark = |raw: &[u8]| raw.windows(MARK.len()).rposition(|bytes| bytes == MARK);
        while has_mark(&self.raw).is_none() {
            assert!(Instant::now() < self.until, "the end does not come");
            self.receive("the mark");
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.truncate(has_mark(&raw).expect("it was seen"));
        PtyDone { status, raw, is_restored }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill(); // after a panic; else it has ended
        let _ = self.child.wait();
    }
}
