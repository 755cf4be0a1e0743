//! Keys, read from the terminal while the screen is on it.

use std::io::{self, Read};

use crate::output::screen::keys::{Key, KeyParser};
use crate::output::screen::terminal::ScreenTerminal;
use crate::sys;

/// How long the rest of an incomplete sequence may take to arrive.
const TORN_NS: u64 = 50_000_000;
/// How long no keys are read after an error: the process is in the background, or the terminal has hung up.
const AGAIN_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub struct Keyboard {
    parser: KeyParser,
    /// When an incomplete sequence will be taken for a key, CLOCK_MONOTONIC in ns.
    torn_ns: u64,
    /// No keys are read before this time, CLOCK_MONOTONIC in ns.
    not_before_ns: u64,
}

impl Keyboard {
    /// Keys may be read at this time.
    pub fn is_open(&self, now_ns: u64) -> bool {
        now_ns >= self.not_before_ns
    }

    /// When the keyboard needs attention although no key is pressed, CLOCK_MONOTONIC in ns.
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        let torn_ns = if self.parser.is_waiting() { self.torn_ns } else { u64::MAX };
        let open_ns = if self.is_open(now_ns) { u64::MAX } else { self.not_before_ns };
        torn_ns.min(open_ns)
    }

    /// Reads the keys that have been pressed. The terminal must be readable.
    pub fn read(&mut self, terminal: &ScreenTerminal) -> Vec<Key> {
        let mut bytes = [0; 256];
        let now_ns = sys::monotonic_ns();
        self.torn_ns = now_ns + TORN_NS;
        match terminal.keys().read(&mut bytes) {
            Ok(0) => self.not_before_ns = u64::MAX,
            Ok(len) => return self.parser.feed(&bytes[..len]),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.not_before_ns = now_ns + AGAIN_NS,
        }
        Vec::new()
    }

    /// The key that an incomplete sequence stands for, if its rest did not arrive in time.
    pub fn take_torn(&mut self) -> Option<Key> {
        let is_torn = self.parser.is_waiting() && sys::monotonic_ns() >= self.torn_ns;
        if is_torn { self.parser.flush() } else { None }
    }
}
