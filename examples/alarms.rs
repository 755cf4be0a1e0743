//! A server that a timer wakes, so that it runs in step with other timers, or between them.
//!
//! `alarms WALL_MS HZ WORK_NS`: until WALL_MS have passed it waits for a timer that expires HZ times a second, and
//! works for WORK_NS of wall time each time. Prints `pid=P` at once.

use std::{env, hint::black_box, io, process};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[wall_ms, hz, work_ns]) = numbers.as_deref() else {
        eprintln!("usage: alarms WALL_MS HZ WORK_NS");
        process::exit(2);
    };
    println!("pid={}", process::id());
    if let Err(err) = serve_until(now_ns() + wall_ms * 1_000_000, 1_000_000_000 / hz.max(1), work_ns) {
        eprintln!("alarms: {err}");
        process::exit(1);
    }
}

fn serve_until(end_ns: u64, period_ns: u64, work_ns: u64) -> io::Result<()> {
    // SAFETY: takes two integers.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    let period = libc::timespec {
        tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
    };
    let times = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: `times` is ours for the call; the old times are not requested.
    if unsafe { libc::timerfd_settime(timer, 0, &raw const times, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    while now_ns() < end_ns {
        let mut expired = 0_u64;
        // SAFETY: it writes at most the eight bytes of `expired`.
        if unsafe { libc::read(timer, (&raw mut expired).cast(), size_of::<u64>()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        serve(work_ns);
    }
    Ok(())
}

#[inline(never)]
fn serve(work_ns: u64) {
    let end_ns = now_ns() + work_ns;
    while now_ns() < end_ns {
        black_box(());
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
