//! Locks of files, as /proc/locks lists them.

use std::fs::File;
use std::io::Read;

use crate::host::{BlockDevice, Host};

/// Limit of what is read: some 60,000 locks.
const MAX_BYTES: u64 = 4 << 20;

/// A lock that a process has, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    pub pid: i32,
    pub device: BlockDevice,
    pub inode: u64,
    pub is_waiter: bool,
}

/// The locks of all files whose process is known: that of an OFD lock is not.
pub fn file_locks(host: &Host) -> Vec<FileLock> {
    let mut text = Vec::new();
    let file = File::open(host.proc.join("locks"));
    let _ = file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text)); // what was read counts
    text.split(|byte| *byte == b'\n').filter_map(|line| parse(std::str::from_utf8(line).ok()?)).collect()
}

/// `1: -> FLOCK  ADVISORY  WRITE 3402 fe:00:10011537 0 EOF`, `lock_get_status` in fs/locks.c.
fn parse(line: &str) -> Option<FileLock> {
    let (_, rest) = line.split_once(": ")?;
    let (is_waiter, rest) = match rest.trim_start().strip_prefix("-> ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let mut words = rest.split_ascii_whitespace().skip(3);
    let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let mut file = words.next()?.split(':');
    let mut hex = || u32::from_str_radix(file.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    let inode = file.next()?.parse().ok()?;
    Some(FileLock { pid, device: BlockDevice(major << 20 | minor & 0xf_ffff), inode, is_waiter })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_waiters_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let text = "\
1: FLOCK  ADVISORY  WRITE 777 fe:00:10011537 0 EOF
1: -> FLOCK  ADVISORY  WRITE 778 fe:00:10011537 0 EOF
2: POSIX  ADVISORY  READ  779 00:19:12 128 128
3: OFDLCK ADVISORY  WRITE -1 fe:00:5 0 EOF
4: POSIX  ADVISORY  WRITE 780 <none>:0 0 EOF
5: LEASE
";
        std::fs::write(dir.path().join("locks"), text).unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        let lock = |pid, device, inode, is_waiter| FileLock { pid, device: BlockDevice(device), inode, is_waiter };
        assert_eq!(
            file_locks(&host),
            [
                lock(777, 254 << 20, 10_011_537, false),
                lock(778, 254 << 20, 10_011_537, true),
                lock(779, 0x19, 12, false)
            ]
        );
        assert!(file_locks(&Host { proc: "/nowhere".into(), ..host }).is_empty());
    }
}
