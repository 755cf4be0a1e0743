//! Maps two files executable, in turn at one address, and calls a function in each.
//!
//! `remaps DIR COUNT`: writes `first` and `second`, files of bare machine code, into DIR, maps them COUNT times in
//! total, and after each mapping calls the function in it: `getppid(1)` in the first file, `getppid(2)` in the second,
//! at most 16 calls per millisecond. Prints `calls=COUNT`. The record of each mapping has the whole path, so a long DIR
//! makes many bytes: a path of 3,000 bytes makes some 40 MB/s.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::{env, process, ptr, thread};

#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3]; // mov $110, %eax; syscall; ret
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[0xa8, 0x15, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6]; // mov x8, #173; svc #0; ret

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: remaps DIR COUNT");
        process::exit(2);
    };
    let [dir, count] = args.as_slice() else { usage() };
    let Ok(count) = count.parse::<usize>() else { usage() };
    let files = [("first", 1), ("second", 2)].map(|(name, number)| {
        let path = format!("{dir}/{name}");
        fs::write(&path, [&number_in_first_argument(number), CODE].concat()).expect("write a file");
        File::open(path).expect("open a file")
    });
    let mut at = ptr::null_mut();
    for (call, file) in files.iter().cycle().take(count).enumerate() {
        if call % 16 == 0 {
            thread::sleep(Duration::from_millis(1)); // otherwise the kernel would lose records
        }
        at = map(file, at);
        // SAFETY: at the start of the file there is a self-contained function.
        let function: extern "C" fn() = unsafe { std::mem::transmute(at) };
        function();
    }
    println!("calls={count}");
}

/// `mov $number, %edi` or `mov x0, #number`.
fn number_in_first_argument(number: u8) -> Vec<u8> {
    if cfg!(target_arch = "x86_64") { vec![0xbf, number, 0, 0, 0] } else { vec![number << 5, 0, 0x80, 0xd2] }
}

/// Maps over the mapping at `at`, or at any address if `at` is null.
fn map(file: &File, at: *mut libc::c_void) -> *mut libc::c_void {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping; it replaces the previous one, which is no longer in use.
    let mapped = unsafe { libc::mmap(at, 4096, protection, libc::MAP_PRIVATE | fixed, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "mmap");
    mapped
}
