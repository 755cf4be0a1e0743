//! Many threads that wait for one lock, whose holder sleeps.
//!
//! `convoy THREADS TURNS HOLD_US`: each thread takes the lock TURNS times and sleeps for HOLD_US while it has it. All
//! have the name `convoy`. Prints `threads=N sleeps=N pid=N wall_ns=N`.

use std::{
    env, process,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// A waiting thread needs little stack, and there may be thousands of threads.
const STACK_BYTES: usize = 64 << 10;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<u32>> = args.iter().map(|arg| arg.parse().ok()).collect();
    let Some(&[threads, turns, hold_us]) = numbers.as_deref() else {
        eprintln!("usage: convoy THREADS TURNS HOLD_US");
        process::exit(2);
    };
    let (lock, start) = (Mutex::new(()), Instant::now());
    let take_turns = || {
        for _ in 0..turns {
            let _held = lock.lock();
            thread::sleep(Duration::from_micros(hold_us.into()));
        }
    };
    thread::scope(|scope| {
        for index in 0..threads {
            let builder = thread::Builder::new().name("convoy".to_owned()).stack_size(STACK_BYTES);
            if let Err(err) = builder.spawn_scoped(scope, take_turns) {
                // Threads that were already started end with the process.
                eprintln!("convoy: cannot start thread {index}: {err}");
                process::exit(1);
            }
        }
    });
    let sleeps = u64::from(threads) * u64::from(turns);
    println!("threads={threads} sleeps={sleeps} pid={} wall_ns={}", process::id(), start.elapsed().as_nanos());
}
