//! The memory of another process, read by workers only and without stopping the process: the holder of its memory lock,
//! or the supplier of a page, may never respond.
//!
//! Through /proc/TID/mem: a worker that waits for the memory lock there can be killed (`mem_rw`, fs/proc/base.c).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{Question, WorkerContext};
use crate::sys::monotonic_ns;
use crate::task::procfs::file;

/// Memory of one process. Reading is bounded, because the process chooses where its pointers lead.
#[derive(Debug)]
pub struct ProcessMemory {
    file: File,
    bytes_left: usize,
    reads_left: usize,
    until_ns: u64,
}

/// Most bytes read from one process.
const MAX_BYTES: usize = 4 << 20;
/// Most system calls for these reads.
const MAX_READS: usize = 20_000;
/// Longest time for these reads, ns: memory may have to be read from disk. Tests run on busy machines.
const MAX_NS: u64 = if cfg!(test) { 60_000_000_000 } else { 200_000_000 };

impl ProcessMemory {
    /// # Errors
    /// The thread has exited, or its memory may not be read.
    pub fn open(host: &Host, tid: i32) -> io::Result<ProcessMemory> {
        let file = File::open(file(host, tid, "mem"))?;
        Ok(ProcessMemory { file, bytes_left: MAX_BYTES, reads_left: MAX_READS, until_ns: monotonic_ns() + MAX_NS })
    }

    /// Reads up to `most` bytes at `addr`; fewer if the mapping ends before.
    pub fn up_to(&mut self, addr: u64, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let len = self.read(addr, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    /// Reads an array. None if not all of its bytes can be read.
    pub fn array<const N: usize>(&mut self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(addr, &mut bytes) == N).then_some(bytes)
    }

    pub fn word(&mut self, addr: u64) -> Option<u64> {
        self.array(addr).map(u64::from_ne_bytes)
    }

    pub fn half(&mut self, addr: u64) -> Option<u32> {
        self.array(addr).map(u32::from_ne_bytes)
    }

    pub fn byte(&mut self, addr: u64) -> Option<u8> {
        self.array(addr).map(|[byte]| byte)
    }

    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> usize {
        const LOWEST: u64 = 1 << 12;
        const HIGHEST: u64 = 1 << 57; // of user space on any of our architectures
        if !(LOWEST..HIGHEST).contains(&addr) || bytes.len() > self.bytes_left {
            return 0;
        }
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty() && self.reads_left > 0) {
            if monotonic_ns() > self.until_ns {
                break;
            }
            self.reads_left -= 1;
            match self.file.read_at(rest, addr + done as u64) {
                Ok(len @ 1..) => done += len,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.bytes_left -= done;
        done
    }
}

/// The strings at addresses of a process, each without its terminating NUL. None for a string that cannot be read, or
/// is longer than `PATH_MAX`.
#[derive(Debug, Serialize, Deserialize)]
pub struct StringsAt {
    pub tid: i32,
    pub addresses: Vec<u64>,
}

/// `PATH_MAX`, including the NUL.
const MAX_STRING_BYTES: usize = 4096;
/// Most strings of one question: a system call has six arguments, two of which are paths.
const MAX_STRINGS: usize = 8;

impl Question for StringsAt {
    type Answer = Vec<Option<Vec<u8>>>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<Option<Vec<u8>>> {
        let mut memory = ProcessMemory::open(&context.host, self.tid).ok();
        let mut read = |&address: &u64| {
            let mut text = memory.as_mut()?.up_to(address, MAX_STRING_BYTES);
            text.truncate(text.iter().position(|byte| *byte == 0)?);
            Some(text)
        };
        self.addresses.iter().take(MAX_STRINGS).map(&mut read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn reads_what_is_there_and_no_more() {
        let process = FixtureProcess::new(5);
        process.write("mem", &"x".repeat(0x1010));
        let mut memory = ProcessMemory::open(&process.host(), 5).unwrap();
        assert_eq!(memory.up_to(0x1008, 100), b"xxxxxxxx");
        assert_eq!((memory.array(0x100c), memory.array::<5>(0x100c)), (Some(*b"xxxx"), None));
        assert_eq!(memory.half(0x1000), Some(u32::from_ne_bytes(*b"xxxx")));
        for nowhere in [0, 8, 0xfff, 0x1010, 1 << 57, u64::MAX] {
            assert_eq!(memory.byte(nowhere), None, "{nowhere:#x}");
        }
        assert!(memory.up_to(0x1000, MAX_BYTES).is_empty(), "there is less left");
        let reads = (0..2 * MAX_READS).filter(|_| memory.byte(0x1000).is_some()).count();
        assert!(reads < MAX_READS && reads > MAX_READS / 2, "{reads}");
        assert!(ProcessMemory::open(&process.host(), 6).is_err());
    }

    #[test]
    fn reads_its_own() {
        let value = 0x0123_4567_89ab_cdef_u64;
        let mut memory = ProcessMemory::open(&Host::default(), nix::unistd::gettid().as_raw()).unwrap();
        assert_eq!(memory.word(&raw const value as usize as u64), Some(value));
    }
}
