//! Whether stdout was closed when the program began (`>&-`).
//!
//! Rust's start-up opens /dev/null in place of closed standard descriptors, which then looks as if the user had
//! redirected stdout to /dev/null. So the check runs earlier: the C library calls the functions in `.init_array` first.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn check_stdout() {
    // SAFETY: F_GETFD takes no further argument and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: `.init_array` is a list of pointers to functions, which the C library calls once, before `main`, with
// arguments that this one ignores. It needs nothing that Rust's start-up sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;

/// The program was started with its stdout closed.
pub fn stdout_was_closed() -> bool {
    std::hint::black_box(&CHECK_STDOUT); // otherwise a linker might drop it
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}
