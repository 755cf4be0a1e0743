//! Threads that divide their time between CPU and sleep in a known ratio.
//!
//! `shares WALL_MS [THREADS]`: each of THREADS (1) threads, `share-0` and on, burns 10 ms of CPU, sleeps 10 ms and so
//! forth until WALL_MS have passed. Prints for each `thread=I tid=N start_ns=N end_ns=N cpu_ns=N sleep_ns=N`, then
//! `threads=N pid=N`. Start and end are CLOCK_MONOTONIC; cpu_ns is the kernel's CPU time of the thread between them,
//! sleep_ns the wall time of its sleeps; what is left to end - start is waiting for a CPU.

use std::{env, hint::black_box, process, thread, time::Duration};

const BURN_NS: u64 = 10_000_000;
const SLEEP: Duration = Duration::from_millis(10);

struct Share {
    tid: libc::c_long,
    start_ns: u64,
    end_ns: u64,
    cpu_ns: u64,
    sleep_ns: u64,
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let (wall_ms, count) = match numbers.as_deref() {
        Some(&[wall_ms]) => (wall_ms, 1),
        Some(&[wall_ms, count]) => (wall_ms, count),
        _ => {
            eprintln!("usage: shares WALL_MS [THREADS]");
            process::exit(2);
        }
    };
    let spawn = |index| {
        thread::Builder::new().name(format!("share-{index}")).spawn(move || share(wall_ms * 1_000_000)).expect("spawn")
    };
    let threads: Vec<_> = (0..count).map(spawn).collect();
    for (index, thread) in threads.into_iter().enumerate() {
        let Share { tid, start_ns, end_ns, cpu_ns, sleep_ns } = thread.join().expect("a thread failed");
        println!("thread={index} tid={tid} start_ns={start_ns} end_ns={end_ns} cpu_ns={cpu_ns} sleep_ns={sleep_ns}");
    }
    println!("threads={count} pid={}", process::id());
}

fn share(wall_ns: u64) -> Share {
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    let (start_ns, start_cpu_ns) = (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
    let mut sleep_ns = 0;
    while clock_ns(libc::CLOCK_MONOTONIC) - start_ns < wall_ns {
        burn(BURN_NS);
        let asleep_ns = clock_ns(libc::CLOCK_MONOTONIC);
        thread::sleep(SLEEP);
        sleep_ns += clock_ns(libc::CLOCK_MONOTONIC) - asleep_ns;
    }
    let cpu_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - start_cpu_ns;
    Share { tid, start_ns, end_ns: clock_ns(libc::CLOCK_MONOTONIC), cpu_ns, sleep_ns }
}

#[inline(never)]
fn burn(cpu_ns: u64) {
    let end_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) + cpu_ns;
    let mut value = 1_u64;
    while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < end_ns {
        for _ in 0..50_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    black_box(value);
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
