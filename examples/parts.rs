//! A program that divides its CPU time between two functions in a known ratio.
//!
//! `parts WALL_MS`: spends three parts of its time in `three_parts` and one part in `one_part`, in turns of 6 and 2 ms
//! of CPU time, until WALL_MS have passed. Prints `pid=N three_ns=N one_ns=N`: the CPU time of each.

use std::{env, hint::black_box, process};

const TURN_NS: u64 = 2_000_000;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [wall_ms] = args.iter().filter_map(|arg| arg.parse::<u64>().ok()).collect::<Vec<u64>>()[..] else {
        eprintln!("usage: parts WALL_MS");
        process::exit(2);
    };
    let end_ns = clock_ns(libc::CLOCK_MONOTONIC) + wall_ms * 1_000_000;
    let (mut three_ns, mut one_ns) = (0, 0);
    // Each turn corrects the overrun of the last one.
    while clock_ns(libc::CLOCK_MONOTONIC) < end_ns {
        three_ns += three_parts(3 * (one_ns + TURN_NS) - three_ns);
        one_ns += one_part(three_ns / 3 - one_ns.min(three_ns / 3));
    }
    println!("pid={} three_ns={three_ns} one_ns={one_ns}", process::id());
}

/// The loop of both functions, inlined into each.
#[inline(always)]
fn burn(cpu_ns: u64) -> u64 {
    let start_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut value = 1_u64;
    loop {
        // No calls, not even in a debug build: the time must count for the function itself.
        let mut count = 0;
        while count < 100_000 {
            value ^= value << 13;
            value ^= value >> 7;
            value ^= value << 17;
            count += 1;
        }
        let spent_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - start_ns;
        if spent_ns >= cpu_ns {
            black_box(value);
            return spent_ns;
        }
    }
}

#[inline(never)]
fn three_parts(cpu_ns: u64) -> u64 {
    black_box(burn(black_box(cpu_ns)))
}

#[inline(never)]
fn one_part(cpu_ns: u64) -> u64 {
    black_box(burn(black_box(cpu_ns)) + black_box(0))
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
