//! Timers of every kind, and ways to wait for a while.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::sys::{at, at_mut, call, close};

const SOON: [u64; 4] = [0, 0, 0, 1_000_000];

pub fn all(_dir: &Path) {
    // SAFETY: no handlers are set: all signals are ignored.
    let ignored =
        [Signal::SIGALRM, Signal::SIGVTALRM, Signal::SIGPROF].map(|sort| unsafe { signal(sort, SigHandler::SigIgn) });
    if ignored.iter().any(Result::is_err) {
        return;
    }
    of_intervals();
    of_posix();
    of_descriptors();
    waits();
}

/// `setitimer`, whose times are seconds and microseconds.
fn of_intervals() {
    let soon = [0u64, 0, 0, 2000];
    for which in 0..3 {
        call(libc::SYS_setitimer, [which, at(&soon), 0]);
        call(libc::SYS_getitimer, [which, at_mut(&mut [0u64; 4])]);
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(12) {
        std::hint::spin_loop(); // timers of CPU time advance only here
    }
    let never = [0u64; 4];
    for which in 0..3 {
        call(libc::SYS_setitimer, [which, at(&never), 0]);
    }
}

fn of_posix() {
    let clocks = [
        libc::CLOCK_REALTIME,
        libc::CLOCK_MONOTONIC,
        libc::CLOCK_BOOTTIME,
        libc::CLOCK_PROCESS_CPUTIME_ID,
        libc::CLOCK_REALTIME_ALARM,
    ];
    for clock in clocks {
        let mut timer = 0i32;
        if call(libc::SYS_timer_create, [clock as usize, 0, at_mut(&mut timer)]) == 0 {
            let timer = timer as usize;
            call(libc::SYS_timer_settime, [timer, 0, at(&SOON), 0]);
            call(libc::SYS_timer_gettime, [timer, at_mut(&mut [0u64; 4])]);
            thread::sleep(Duration::from_millis(2));
            call(libc::SYS_timer_getoverrun, [timer]);
            call(libc::SYS_timer_delete, [timer]);
        }
        call(libc::SYS_clock_gettime, [clock as usize, at_mut(&mut [0u64; 2])]);
        call(libc::SYS_clock_getres, [clock as usize, at_mut(&mut [0u64; 2])]);
    }
}

fn of_descriptors() {
    let later = [0u64, 0, 1000, 0];
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME_ALARM, libc::CLOCK_BOOTTIME_ALARM] {
        let fd = call(libc::SYS_timerfd_create, [clock as usize, 0]);
        if fd != -1 {
            call(libc::SYS_timerfd_settime, [fd as usize, 0, at(&SOON), 0]);
            call(libc::SYS_timerfd_gettime, [fd as usize, at_mut(&mut [0u64; 4])]);
            call(libc::SYS_read, [fd as usize, at_mut(&mut 0u64), 8]);
            call(libc::SYS_timerfd_settime, [fd as usize, 0, at(&later), 0]); // a timer that never expires
            close(fd);
        }
    }
}

fn waits() {
    let soon = [0u64, 1_000_000];
    call(libc::SYS_nanosleep, [at(&soon), 0]);
    call(libc::SYS_clock_nanosleep, [libc::CLOCK_BOOTTIME as usize, 0, at(&soon), 0]);
    call(libc::SYS_clock_nanosleep, [libc::CLOCK_BOOTTIME_ALARM as usize, 0, at(&soon), 0]);
    call(libc::SYS_ppoll, [0, 0, at(&soon), 0, 8]);
    call(libc::SYS_pselect6, [0, 0, 0, 0, at(&soon), 0]);
    call(libc::SYS_adjtimex, [at_mut(&mut [0u64; 32])]);
    call(libc::SYS_gettimeofday, [at_mut(&mut [0u64; 2]), 0]);
    call(libc::SYS_times, [at_mut(&mut [0u64; 4])]);
}
