//! Burns CPU in code of given files.
//!
//! `burn FILE...`: maps each file's second page, or the page at OFFSET of `FILE@OFFSET`, and calls the loop in it, one
//! file after the other, until it is killed. For `-` the loop is in memory without a file. Prints `ready pid=N` first.
//! The loop is [`LOOP`].

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::{env, process, ptr};

const PAGE: usize = 4096;

/// A loop of about 16 million iterations.
#[cfg(target_arch = "x86_64")]
const LOOP: &[u8] = &[0xb9, 0, 0, 0, 1, 0xff, 0xc9, 0x75, 0xfc, 0xc3]; // mov ecx, 1 << 24; dec ecx; jnz; ret
#[cfg(target_arch = "aarch64")]
const LOOP: &[u8] = &[0, 0x20, 0xa0, 0xd2, 0, 4, 0, 0x71, 0xe1, 0xff, 0xff, 0x54, 0xc0, 3, 0x5f, 0xd6]; // mov w0, 1 << 24; subs w0, w0, 1; b.ne; ret

type Function = extern "C" fn();

fn main() {
    let functions: Vec<Function> = env::args().skip(1).map(|path| map(&path)).collect();
    let mut out = io::stdout();
    writeln!(out, "ready pid={}", process::id()).and_then(|()| out.flush()).expect("stdout");
    loop {
        functions.iter().for_each(|function| function());
    }
}

fn map(path: &str) -> Function {
    let page = path.rsplit_once('@').and_then(|(path, offset)| Some((path, offset.parse().ok()?)));
    let (path, offset) = page.unwrap_or((path, PAGE as i64));
    let file = (path != "-").then(|| File::open(path).unwrap_or_else(|err| panic!("{path}: {err}")));
    let (flags, fd, offset) = match &file {
        Some(file) => (libc::MAP_PRIVATE, file.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    let protection = libc::PROT_READ | libc::PROT_EXEC | if file.is_none() { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, fd, offset) };
    assert_ne!(at, libc::MAP_FAILED, "{path}: {}", io::Error::last_os_error());
    if file.is_none() {
        // SAFETY: the page is ours, writable, and larger than the loop.
        unsafe { ptr::copy_nonoverlapping(LOOP.as_ptr(), at.cast(), LOOP.len()) };
    }
    // SAFETY: the caller who gave the file guarantees that a function is there.
    unsafe { std::mem::transmute::<*mut libc::c_void, Function>(at) }
}
