//! Requests in rings: `io_uring`, by hand.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::file;
use crate::sys::{at, at_mut, call, close, map, open, unmap};

const ENTRIES: u32 = 8;
const IORING_OFF_SQES: usize = 0x1000_0000;
const GET_EVENTS: usize = 1;

/// The operations used here, from linux/io_uring.h.
const NOP: u8 = 0;
const READV: u8 = 1;
const FSYNC: u8 = 3;
const POLL_ADD: u8 = 6;
const TIMEOUT: u8 = 11;
const READ: u8 = 22;
const UNKNOWN: u8 = 250;

const LINK: u8 = 4;
const ASYNC: u8 = 16;

struct Ring {
    fd: isize,
    rings: usize,
    entries: usize,
    tail: usize, // offset of the tail of the submission queue, bytes
    mask: usize,
    array: usize,
}

pub fn all(dir: &Path) {
    let name = file(dir, "file");
    let _ = std::fs::write(&name, [1; 4096]);
    let target = open(&name, libc::O_RDWR);
    let mut bytes = [0u8; 512];
    let event = call(libc::SYS_eventfd2, [1, 0]);
    for flags in [0, 1 << 8 | 1 << 12 | 1 << 13] {
        let Some(ring) = Ring::new(flags) else { continue };
        ring.run(NOP, 0, -1, 0, 0);
        ring.run(READ, 0, target, at_mut(&mut bytes), bytes.len());
        ring.run(READ, ASYNC, target, at_mut(&mut bytes), bytes.len());
        ring.run(FSYNC, 0, target, 0, 0);
        ring.run(POLL_ADD, 0, event, 0, 0);
        ring.run(READV, 0, -1, 1, 1);
        ring.run(UNKNOWN, 0, -1, 0, 0);
        ring.push(READ, LINK, -1, 0, 0); // fails, and so do the requests linked to it
        ring.run(NOP, 0, -1, 0, 0);
        let soon = [0u64, 1_000_000];
        ring.run(TIMEOUT, 0, -1, at(&soon), 1);
        for number in 0..2 * ENTRIES + 4 {
            ring.push(NOP, 0, -1, 0, 0); // more than the completion queue has room for
            if number % 4 == 3 {
                ring.enter(0);
            }
        }
        ring.enter(0);
        call(libc::SYS_io_uring_register, [ring.fd as usize, 2, at(&[target as i32]), 1]);
    }
    close(event);
    close(target);
}

impl Ring {
    fn new(flags: u32) -> Option<Ring> {
        let mut parameters = [0u32; 30];
        parameters[2] = flags;
        let fd = call(libc::SYS_io_uring_setup, [ENTRIES as usize, at_mut(&mut parameters)]);
        if fd == -1 {
            return None;
        }
        let [_, tail, mask, _, _, _, array] = [10, 11, 12, 13, 14, 15, 16].map(|index| parameters[index] as usize);
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        let rings = map(4096, protection, shared, fd)?;
        let entries =
            call(libc::SYS_mmap, [0, 4096, protection as usize, shared as usize, fd as usize, IORING_OFF_SQES]);
        (entries != -1).then_some(Ring { fd, rings, entries: entries as usize, tail, mask, array })
    }

    /// Puts a request into the ring.
    fn push(&self, operation: u8, flags: u8, fd: isize, address: usize, len: usize) {
        let word = |offset: usize| {
            // SAFETY: the kernel gave these offsets of aligned words in the page mapped at `rings`.
            unsafe { AtomicU32::from_ptr((self.rings + offset) as *mut u32) }
        };
        let tail = word(self.tail).load(Ordering::Relaxed);
        let slot = tail & word(self.mask).load(Ordering::Relaxed);
        let mut entry = [0u64; 8];
        entry[0] = u64::from(operation) | u64::from(flags) << 8 | u64::from(fd as u32) << 32;
        entry[2] = address as u64;
        entry[3] = len as u64;
        if operation == POLL_ADD {
            entry[3] = 1 << 32; // POLLIN
        }
        entry[4] = 0x1234_5678_0000_0000 | u64::from(tail);
        // SAFETY: `slot` is one of the mapped entries, and the kernel reads it only after the tail has moved.
        unsafe { std::ptr::write_volatile((self.entries as *mut [u64; 8]).add(slot as usize), entry) };
        word(self.array + 4 * slot as usize).store(slot, Ordering::Relaxed);
        word(self.tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Submits the requests in the ring.
    fn enter(&self, wait: usize) {
        call(libc::SYS_io_uring_enter, [self.fd as usize, ENTRIES as usize, wait, GET_EVENTS, 0, 0]);
    }

    /// Runs one request to its end.
    fn run(&self, operation: u8, flags: u8, fd: isize, address: usize, len: usize) {
        self.push(operation, flags, fd, address, len);
        self.enter(1);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.entries, 4096);
        unmap(self.rings, 4096);
        close(self.fd);
    }
}
