//! A kernel "leak" of known size: eventfds, of which some are kept open.
//!
//! `kalloc TOTAL KEEP [--exit]`: opens TOTAL eventfds and closes all but KEEP of them, spread evenly. Prints `opened=N
//! kept=N closed=N pid=N`, then keeps the rest until stdin closes, or ends immediately with `--exit`.

use std::{
    env, io,
    os::fd::{FromRawFd, OwnedFd},
    process,
};

fn main() {
    let mut args: Vec<String> = env::args().skip(1).collect();
    let exit = args.last().is_some_and(|arg| arg == "--exit");
    args.truncate(args.len() - usize::from(exit));
    let numbers: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[total, keep]) = numbers.as_deref().filter(|numbers| matches!(numbers, [total, keep] if keep <= total))
    else {
        eprintln!("usage: kalloc TOTAL KEEP [--exit], KEEP at most TOTAL");
        process::exit(2);
    };
    raise_fd_limit();
    let mut kept = Vec::new();
    for index in 0..u128::from(total) {
        // SAFETY: takes two integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            eprintln!("kalloc: eventfd {index}: {}", io::Error::last_os_error());
            process::exit(1);
        }
        // SAFETY: `fd` is open and new, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let kept_before = |index: u128| index * u128::from(keep) / u128::from(total);
        if kept_before(index + 1) > kept_before(index) {
            kept.push(fd);
        }
    }
    println!("opened={total} kept={} closed={} pid={}", kept.len(), total - keep, process::id());
    if !exit {
        io::copy(&mut io::stdin(), &mut io::sink()).expect("read from stdin");
    }
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
