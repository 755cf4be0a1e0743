//! Makes a known number of page faults: each page of a fresh mapping is touched once, and each page of a file that is
//! not in memory.
//!
//! `faults MINOR [MAJOR FILE]`: stays on one CPU, writes FILE, which must be on a disk, prints `ready`, waits for a
//! line on stdin, makes MINOR minor faults, MAJOR major ones and no others, prints `faults=MINOR`, and, with FILE, in
//! the same line the counts of getrusage(2): `minor=N major=N`. Then it waits for another line.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::{env, mem, process, ptr};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<usize>().ok());
    let (minor, major, path) = match (number(0), number(1), args.get(2)) {
        (Some(minor), Some(major), Some(path)) => (minor, major, Some(path)),
        (Some(minor), None, None) => (minor, 0, None),
        _ => {
            eprintln!("usage: faults MINOR [MAJOR FILE]");
            process::exit(2);
        }
    };
    stay_here();
    // After this, everything that is needed later is in memory: code, buffers, page tables of the mapping.
    let page_bytes = page_bytes();
    touch(fresh(page_bytes), page_bytes, 1);
    let pages = fresh(minor * page_bytes);
    let file = path.map(|path| on_disk(path, (major + 1) * page_bytes));
    if let Some(file) = file {
        // SAFETY: the last page of the file's mapping, whose fault is not counted.
        read(unsafe { file.add(major * page_bytes) }, page_bytes, 1);
    }
    let told = |before: [i64; 2], after: [i64; 2]| match file {
        Some(_) => format!("faults={minor} minor={} major={}", after[0] - before[0], after[1] - before[1]),
        None => format!("faults={minor}"),
    };
    drop(told(usage(), usage()));
    say("ready");
    await_line();
    let before = usage();
    touch(pages, page_bytes, minor);
    if let Some(file) = file {
        read(file, page_bytes, major);
    }
    say(&told(before, usage()));
    await_line();
}

/// Minor and major faults so far.
fn usage() -> [i64; 2] {
    // SAFETY: the kernel fills the structure, for which all zeros is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    [usage.ru_minflt, usage.ru_majflt]
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

/// Stays on one CPU, so that one counter counts all faults.
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

/// Memory that was never touched, in small pages.
fn fresh(bytes: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous mapping at an address that the kernel chooses, which is never unmapped.
    unsafe {
        let pages = libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert!(pages != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        libc::madvise(pages, bytes, libc::MADV_NOHUGEPAGE); // without huge pages, if the machine has any
        pages.cast()
    }
}

/// A new file, mapped, of which no page is in memory. The kernel reads only pages that are touched.
fn on_disk(path: &str, bytes: usize) -> *const u8 {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path).expect("create");
    file.write_all(&vec![1; bytes]).and_then(|()| file.sync_all()).expect("write");
    // SAFETY: a mapping of our own file at an address that the kernel chooses, which is never unmapped.
    unsafe {
        let pages = libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert!(pages != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        assert_eq!(libc::madvise(pages, bytes, libc::MADV_RANDOM), 0); // no readahead
        assert_eq!(libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED), 0);
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

#[inline(never)]
fn read(pages: *const u8, page_bytes: usize, count: usize) {
    for page in 0..count {
        // SAFETY: the mapping has at least `count` pages.
        unsafe { pages.add(page * page_bytes).read_volatile() };
    }
}
