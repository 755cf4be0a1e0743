//! Makes a known number of page faults: each page of a fresh mapping is touched once.
//!
//! `faults COUNT`: stays on one CPU, prints `ready`, awaits a line on stdin, makes COUNT faults and no other, prints
//! `faults=COUNT`, and awaits another line.

use std::io::{self, Write};
use std::{env, mem, process, ptr};

fn main() {
    let Some(count) = env::args().nth(1).and_then(|text| text.parse::<usize>().ok()) else {
        eprintln!("usage: faults COUNT");
        process::exit(2);
    };
    stay_here();
    // All that is needed later is in memory after this: code, buffers, the mapping's tables.
    let page_bytes = page_bytes();
    touch(fresh(page_bytes), page_bytes, 1);
    let pages = fresh(count * page_bytes);
    let done = format!("faults={count}");
    say("ready");
    await_line();
    touch(pages, page_bytes, count);
    say(&done);
    await_line();
}

fn say(text: &str) {
    println!("{text}");
    io::stdout().flush().expect("flush");
}

fn await_line() {
    let mut byte = [0_u8; 1];
    loop {
        // SAFETY: the kernel writes at most one byte, to a buffer of one.
        let got = unsafe { libc::read(0, byte.as_mut_ptr().cast(), 1) };
        if got != 1 || byte[0] == b'\n' {
            return;
        }
    }
}

/// Each fault is counted on one CPU.
fn stay_here() {
    // SAFETY: the set is initialised, and a CPU that we run on is in it.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

fn page_bytes() -> usize {
    // SAFETY: has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Memory that nobody has touched, in single pages.
fn fresh(bytes: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous mapping at an address that the kernel chooses, which is never unmapped.
    unsafe {
        let pages = libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert!(pages != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        libc::madvise(pages, bytes, libc::MADV_NOHUGEPAGE); // there may be no huge ones
        pages.cast()
    }
}

#[inline(never)]
fn touch(pages: *mut u8, page_bytes: usize, count: usize) {
    for page in 0..count {
        // SAFETY: the mapping has at least `count` pages.
        unsafe { pages.add(page * page_bytes).write_volatile(1) };
    }
}
