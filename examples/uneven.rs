//! Two threads that divide the CPU time of their process 3:1, however busy the machine is.
//!
//! `uneven WALL_MS`: the threads `heavy` and `light` take turns until WALL_MS have passed; a turn of `heavy` burns 30
//! ms of CPU time, a turn of `light` 10 ms. Prints `pid=N heavy=TID heavy_ns=N light=TID light_ns=N`: the CPU time of
//! each.

use std::{
    env,
    hint::black_box,
    process,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some(wall_ms) = args.first().filter(|_| args.len() == 1).and_then(|arg| arg.parse().ok()) else {
        eprintln!("usage: uneven WALL_MS");
        process::exit(2);
    };
    let end = Instant::now() + Duration::from_millis(wall_ms);
    let (to_light, of_light) = mpsc::channel();
    let (to_heavy, of_heavy) = mpsc::channel();
    to_heavy.send(()).expect("nobody has gone yet");
    let spawn = |name: &str, burn_ns, turns: mpsc::Receiver<()>, next: mpsc::Sender<()>, ends: bool| {
        let run = move || {
            // Both threads have the same number of turns: `light` has the last one.
            while turns.recv().is_ok() {
                burn(burn_ns);
                if ends && Instant::now() >= end || next.send(()).is_err() {
                    break;
                }
            }
            // SAFETY: takes no arguments.
            (unsafe { libc::syscall(libc::SYS_gettid) }, cpu_ns())
        };
        thread::Builder::new().name(name.into()).spawn(run).expect("spawn")
    };
    let heavy = spawn("heavy", 30_000_000, of_heavy, to_light, false);
    let light = spawn("light", 10_000_000, of_light, to_heavy, true);
    let [(heavy, heavy_ns), (light, light_ns)] = [heavy, light].map(|thread| thread.join().expect("a thread failed"));
    println!("pid={} heavy={heavy} heavy_ns={heavy_ns} light={light} light_ns={light_ns}", process::id());
}

#[inline(never)]
fn burn(ns: u64) {
    let end_ns = cpu_ns() + ns;
    let mut value = 1_u64;
    while cpu_ns() < end_ns {
        for _ in 0..50_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    black_box(value);
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
