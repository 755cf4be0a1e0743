//! Waits in D state for known times: the parent of a `vfork` is uninterruptible (`TASK_KILLABLE`) until the child
//! exits.
//!
//! `dstate COUNT WAIT_MS [NAME] [PAUSE_MS]`: COUNT waits of WAIT_MS, with PAUSE_MS (20) of sleep between them, under
//! the comm NAME. With a WAIT_MS of 0 each wait lasts until a byte is read from stdin. Prints `ready tid=N` first, then
//! waits for a line on stdin if the environment has `DSTATE_GO=stdin`. At the end prints `waits=N wait_ms=N min_ns=N
//! max_ns=N total_ns=N tid=N`, measured around each wait with CLOCK_MONOTONIC. A measured time includes the creation of
//! the child, so it is a little longer than the time in D state.

use std::{
    env,
    ffi::{CString, c_int, c_void},
    io::{self, Write},
    process, ptr, thread,
    time::{Duration, Instant},
};

/// The child calls two functions; a page would be enough.
const STACK_BYTES: usize = 64 << 10;

/// A stack for the child. The ABIs require its top to be aligned to 16.
#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let number = |index: usize, default: Option<u64>| match args.get(index) {
        Some(text) => text.parse().ok(),
        None => default,
    };
    let (Some(count), Some(wait_ms), Some(pause_ms)) = (number(0, None), number(1, None), number(3, Some(20))) else {
        eprintln!("usage: dstate COUNT WAIT_MS [NAME] [PAUSE_MS]");
        process::exit(2);
    };
    if let Some(name) = args.get(2) {
        let name = CString::new(name.as_str()).expect("an argument holds no NUL");
        // SAFETY: `name` ends in a NUL; the kernel copies at most 15 bytes of it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    println!("ready tid={tid}");
    io::stdout().flush().expect("flush");
    if env::var("DSTATE_GO").is_ok_and(|value| value == "stdin") {
        io::stdin().read_line(&mut String::new()).expect("read from stdin");
    }
    let mut stack = Box::new(Stack([0; STACK_BYTES]));
    let mut waits = Vec::new();
    for index in 0..count {
        if index > 0 {
            thread::sleep(Duration::from_millis(pause_ms));
        }
        waits.push(wait(wait_ms, &mut stack).as_nanos());
    }
    println!(
        "waits={count} wait_ms={wait_ms} min_ns={} max_ns={} total_ns={} tid={tid}",
        waits.iter().min().unwrap_or(&0),
        waits.iter().max().unwrap_or(&0),
        waits.iter().sum::<u128>()
    );
}

/// One wait in D state. Returns its length.
fn wait(wait_ms: u64, stack: &mut Stack) -> Duration {
    let mut time = libc::timespec { tv_sec: (wait_ms / 1000) as _, tv_nsec: (wait_ms % 1000 * 1_000_000) as _ };
    let child = if wait_ms == 0 { read_and_exit } else { sleep_and_exit };
    let start = Instant::now();
    // SAFETY: CLONE_VM shares our memory with the child, but CLONE_VFORK keeps this thread from running, and so from
    // touching `stack` and `time` or returning, until the child has exited. The child runs on `stack`, whose end is its
    // top, aligned to 16. It makes two raw system calls: no lock, no allocation, nothing dropped. There is no other
    // thread.
    let pid = unsafe {
        libc::clone(
            child,
            (&raw mut stack.0).cast::<u8>().add(STACK_BYTES).cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut time).cast::<c_void>(),
        )
    };
    let took = start.elapsed();
    assert!(pid > 0, "clone: {}", io::Error::last_os_error());
    // SAFETY: `pid` is our child, and its status is not requested.
    let reaped = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    assert_eq!(reaped, pid, "waitpid: {}", io::Error::last_os_error());
    took
}

/// The child. `time` is its timespec; an interrupted sleep stores the remaining time there.
extern "C" fn sleep_and_exit(time: *mut c_void) -> c_int {
    // SAFETY: `time` points to a timespec of the parent, which waits. errno is shared with it, and read by neither
    // before the exit.
    unsafe {
        while libc::syscall(libc::SYS_nanosleep, time, time) != 0 {}
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}

/// The child reads a byte, which it stores at the address of the time.
extern "C" fn read_and_exit(time: *mut c_void) -> c_int {
    // SAFETY: `time` points to memory of the parent, which waits, and a byte fits.
    unsafe {
        libc::syscall(libc::SYS_read, 0, time, 1);
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}
