//! A slow kernel "leak", next to a cache that keeps far more and does not grow.
//!
//! `hoard CACHED TURNS KEPT`: opens CACHED eventfds, a third of them immediately and the others in the first second.
//! From then on, like a cache, it opens 2000 per second and closes the oldest for each new one. Meanwhile it opens
//! 10 signalfds every 10 ms, TURNS times, and closes all but KEPT of them, spread evenly. The thread that does this has
//! the name `hoarder`. Prints `cached=N turned=N opened=N kept=N ms=N pid=N`, then keeps all of them until stdin
//! closes.

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

const TURN: Duration = Duration::from_millis(10);
const OPENED_PER_TURN: u64 = 10;
const CACHED_PER_TURN: usize = 20;

fn main() {
    let numbers: Option<Vec<u64>> = env::args().skip(1).map(|arg| arg.parse().ok()).collect();
    let Some(&[cached, turns, keep]) = numbers.as_deref().filter(|numbers| numbers.len() == 3) else {
        eprintln!("usage: hoard CACHED TURNS KEPT");
        process::exit(2);
    };
    let (cached, opened) = (cached as usize, turns * OPENED_PER_TURN);
    raise_fd_limit();
    let hoarder = move || hoard(cached, turns, opened, keep);
    let hoarder = thread::Builder::new().name("hoarder".to_owned()).spawn(hoarder).expect("a thread");
    let _held = hoarder.join().expect("it ends");
    io::copy(&mut io::stdin(), &mut io::sink()).expect("read from stdin");
}

/// Returns the descriptors that are open at the end.
fn hoard(cached: usize, turns: u64, opened: u64, keep: u64) -> (VecDeque<OwnedFd>, Vec<OwnedFd>) {
    let (mut cache, mut kept) = (VecDeque::new(), Vec::new());
    let (mut turned, start) = (0, Instant::now());
    cache.extend((0..cached / 3).map(|_| eventfd()));
    for turn in 0..turns {
        let due = start + TURN * turn as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let more = if cache.len() < cached { (cached - cache.len()).min(cached / 99) } else { 0 };
        for _ in 0..more.max(CACHED_PER_TURN) {
            if cache.len() >= cached {
                cache.pop_front();
                turned += 1;
            }
            cache.push_back(eventfd());
        }
        for index in turn * OPENED_PER_TURN..(turn + 1) * OPENED_PER_TURN {
            let fd = signalfd();
            if (index + 1) * keep / opened > index * keep / opened {
                kept.push(fd);
            }
        }
    }
    let (in_cache, in_leak) = (cache.len(), kept.len());
    let (ms, pid) = (start.elapsed().as_millis(), process::id());
    println!("cached={in_cache} turned={turned} opened={opened} kept={in_leak} ms={ms} pid={pid}");
    (cache, kept)
}

/// Takes ownership of a new descriptor; exits if the call failed.
fn owned(fd: i32) -> OwnedFd {
    if fd < 0 {
        eprintln!("hoard: {}", io::Error::last_os_error());
        process::exit(1);
    }
    // SAFETY: `fd` is open and new, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn eventfd() -> OwnedFd {
    // SAFETY: takes two integers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })
}

fn signalfd() -> OwnedFd {
    // SAFETY: an empty set of signals is all zeros.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` is ours.
    owned(unsafe { libc::signalfd(-1, &raw const none, libc::SFD_CLOEXEC) })
}

/// Raises the limit of open files as far as possible without privilege.
fn raise_fd_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
