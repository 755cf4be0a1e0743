//! Whether stdout was closed when the program began (`>&-`).
//!
//! Rust's start-up opens /dev/null in place of closed standard descriptors. Afterwards nobody can tell that from a
//! /dev/null that somebody asked for, so it is looked at before: the C library calls the functions of `.init_array` first.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes no further argument and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: `.init_array` is a list of pointers to functions, which the C library calls once, before `main`, with arguments
// that this one ignores. It needs nothing that Rust's start-up would have set up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// True when the program was started with its stdout closed.
pub fn stdout_was_closed() -> bool {
    std::hint::black_box(&LOOK_AT_STDOUT); // or a linker may leave it out
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}
