//! Sends signals of every kind, each a known number of times, to itself and to its children.
//!
//! `signals COUNT BLOCKED_MS`: COUNT each of kill, tgkill and sigqueue to its own handlers, of SIGURG, which is
//! ignored, of SIGALRM from a POSIX timer, of children that exit, and of children that die of SIGSEGV, SIGTERM and
//! SIGKILL; then one SIGUSR2 that is blocked for BLOCKED_MS, and COUNT more that are merged into it; then COUNT of
//! SIGRTMIN+5 that no handler sees, since sigwaitinfo takes them. If the environment has `SIGNALS_GO=stdin`, it waits
//! for a line on stdin at its start, instead of BLOCKED_MS, and at its end. Prints `ready`, `pid=N handler=0xN
//! blocked_ns=N`: the last is the minimum time that the first SIGUSR2 was pending.

use std::ffi::{c_int, c_void};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, mem, process, ptr};

/// SIGRTMIN+5 of glibc; musl begins one later.
const REAL_TIME: c_int = 34 + 5;

/// Signals handled so far.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signo: c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn main() {
    let args: Vec<u64> = env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [count, blocked_ms] = args[..] else {
        eprintln!("usage: signals COUNT BLOCKED_MS");
        process::exit(2);
    };
    println!("ready");
    go_on();
    // SAFETY: take no arguments.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let real_time = REAL_TIME;
    for signo in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGCHLD, real_time - 1] {
        handle(signo);
    }
    for _ in 0..count {
        // SAFETY: system calls with integer arguments and, for sigqueue, a union of an integer.
        unsafe {
            each("kill", || libc::kill(pid, libc::SIGUSR1));
            each("tgkill", || libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) as c_int);
            let value = libc::sigval { sival_ptr: ptr::null_mut() };
            each("sigqueue", || libc::sigqueue(pid, real_time - 1, value));
            assert_eq!(libc::kill(pid, libc::SIGURG), 0); // ignored by default
        }
    }
    timer(count);
    for signo in [0, libc::SIGSEGV, libc::SIGTERM, libc::SIGKILL] {
        (0..count).for_each(|_| child(signo));
    }
    let blocked = blocked(count, Duration::from_millis(blocked_ms));
    taken(pid, real_time, count);
    println!("pid={pid} handler={:#x} blocked_ns={}", handler as *const () as usize, blocked.as_nanos());
    go_on();
}

/// Waits for a line, if the environment asks for that.
fn go_on() -> bool {
    let asked = env::var("SIGNALS_GO").is_ok_and(|value| value == "stdin");
    if asked {
        io::stdout().flush().expect("flush");
        io::stdin().read_line(&mut String::new()).expect("read from stdin");
    }
    asked
}

fn handle(signo: c_int) {
    // SAFETY: `action` is initialised; the handler only touches an atomic.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signo, &raw const action, ptr::null_mut()), 0);
    }
}

/// Sends a signal, and waits until the handler has run.
fn each(what: &str, send: impl Fn() -> c_int) {
    let before = HANDLED.load(Ordering::SeqCst);
    assert_eq!(send(), 0, "{what}: {}", io::Error::last_os_error());
    wait_beyond(before);
}

fn wait_beyond(handled: u64) {
    while HANDLED.load(Ordering::SeqCst) <= handled {
        std::hint::spin_loop();
    }
}

/// A timer that expires `count` times, one after the other.
fn timer(count: u64) {
    // SAFETY: the structures are initialised and outlive the calls.
    unsafe {
        let mut event: libc::sigevent = mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGALRM;
        let mut timer: libc::timer_t = ptr::null_mut();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let mut once: libc::itimerspec = mem::zeroed();
        once.it_value.tv_nsec = 1_000_000;
        for _ in 0..count {
            each("timer_settime", || libc::timer_settime(timer, 0, &raw const once, ptr::null_mut()));
        }
        assert_eq!(libc::timer_delete(timer), 0);
    }
}

/// A child that exits, dies of a fault, or waits to be killed.
fn child(signo: c_int) {
    let before = HANDLED.load(Ordering::SeqCst);
    // SAFETY: the child only makes system calls, and a write to an unmapped address.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::signal(signo.max(1), libc::SIG_DFL); // std handles this signal to detect stack overflows
            match signo {
                libc::SIGSEGV => ptr::without_provenance_mut::<u8>(8).write_volatile(1),
                0 => {}
                _ => assert_eq!(libc::pause(), -1),
            }
            libc::_exit(0);
        }
        assert!(child > 0, "fork: {}", io::Error::last_os_error());
        if signo == libc::SIGTERM || signo == libc::SIGKILL {
            assert_eq!(libc::kill(child, signo), 0);
        }
        wait_beyond(before); // the SIGCHLD
        assert_eq!(libc::waitpid(child, ptr::null_mut(), 0), child);
    }
}

/// One SIGUSR2 that stays pending while it is blocked, and others that are merged into it.
fn blocked(count: u64, time: Duration) -> Duration {
    // SAFETY: the sets are initialised.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR2);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        assert_eq!(libc::kill(libc::getpid(), libc::SIGUSR2), 0);
        let start = Instant::now();
        (0..count).for_each(|_| assert_eq!(libc::kill(libc::getpid(), libc::SIGUSR2), 0));
        if !go_on() {
            std::thread::sleep(time);
        }
        let (took, before) = (start.elapsed(), HANDLED.load(Ordering::SeqCst));
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        wait_beyond(before);
        took
    }
}

/// Real-time signals that no handler sees.
fn taken(pid: c_int, signo: c_int, count: u64) {
    // SAFETY: the set is initialised; the other pointers are null, which is allowed.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signo);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        let value = libc::sigval { sival_ptr: ptr::null_mut::<c_void>() };
        for _ in 0..count {
            assert_eq!(libc::sigqueue(pid, signo, value), 0);
        }
        for _ in 0..count {
            assert_eq!(libc::sigwaitinfo(&raw const set, ptr::null_mut()), signo);
        }
    }
}
