//! How long a thread of this process waited for a CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reader of the second number of schedstat: time for which the thread was runnable and waited, ns.
#[derive(Debug)]
pub struct RunDelay {
    /// None on a kernel without schedstat.
    file: Option<File>,
    taken_ns: u64,
}

impl RunDelay {
    /// For the calling thread, counting from this call.
    pub fn open() -> RunDelay {
        RunDelay::of(nix::unistd::gettid().as_raw())
    }

    /// For a thread of this process, counting from this call.
    pub fn of(tid: i32) -> RunDelay {
        let mut delay = RunDelay { file: File::open(format!("/proc/self/task/{tid}/schedstat")).ok(), taken_ns: 0 };
        delay.take();
        delay
    }

    /// Wait time since the last call, ns.
    pub fn take(&mut self) -> u64 {
        let Some(total) = self.read() else { return 0 };
        let before = std::mem::replace(&mut self.taken_ns, total);
        total.saturating_sub(before)
    }

    fn read(&self) -> Option<u64> {
        let mut text = [0; 64];
        let len = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(text.get(..len)?)
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(parse(b"110936 2520 4\n"), Some(2520));
        for text in [&b""[..], b"1\n", b"1 x 2\n", b"\xff 1 1", b"1 -1 1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(RunDelay { file: None, taken_ns: 7 }.take(), 0);
    }
}
