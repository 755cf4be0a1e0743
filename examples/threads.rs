//! Many threads alive at once, each blocking and waking a few times.
//!
//! `threads N MS`: N threads that start together, sleep 5 times for MS / 5, and end together. Prints `threads=N
//! sleeps=N pid=N wall_ns=N`.

use std::{
    env, process,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

const SLEEPS: u32 = 5;
/// A sleeping thread needs little stack, and there may be thousands of threads.
const STACK_BYTES: usize = 64 << 10;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u32>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[count, ms]) = numbers.as_deref() else {
        eprintln!("usage: threads N MS");
        process::exit(2);
    };
    let start = Instant::now();
    let together = Barrier::new(count as usize);
    thread::scope(|scope| {
        for index in 0..count {
            let builder = thread::Builder::new().name(format!("thread-{index}")).stack_size(STACK_BYTES);
            let run = || {
                together.wait();
                (0..SLEEPS).for_each(|_| thread::sleep(Duration::from_millis(ms.into()) / SLEEPS));
                together.wait();
            };
            if let Err(err) = builder.spawn_scoped(scope, run) {
                // The threads already started would wait for the missing ones for ever.
                eprintln!("threads: cannot start thread {index}: {err}");
                process::exit(1);
            }
        }
    });
    let sleeps = u64::from(count) * u64::from(SLEEPS);
    println!("threads={count} sleeps={sleeps} pid={} wall_ns={}", process::id(), start.elapsed().as_nanos());
}
