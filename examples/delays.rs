//! Delays of known length, to measure against.
//!
//! `delays COUNT MS [--wait]`: COUNT times sleeps for MS, 2 x MS and 3 x MS in turn, and measures each call of
//! clock_nanosleep. With `--wait` it prints `ready`, starts when it reads a line, and ends when it reads another one.
//! Prints `sleeps=N total_ns=N longest_ns=N asked_ns=N pid=N`.

use std::io::{self, BufRead};
use std::time::{Duration, Instant};
use std::{env, process, thread};

fn main() {
    let [count, ms] = [1, 2].map(|at| env::args().nth(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(1));
    let waits = env::args().nth(3).is_some();
    let line = || io::stdin().lock().lines().next();
    if waits {
        println!("ready");
        line();
    }
    let (mut total_ns, mut longest_ns, mut asked_ns) = (0, 0, 0);
    for number in 0..count {
        let length = Duration::from_millis(ms * (number % 3 + 1));
        let start = Instant::now();
        thread::sleep(length);
        let took_ns = start.elapsed().as_nanos();
        total_ns += took_ns;
        longest_ns = took_ns.max(longest_ns);
        asked_ns += length.as_nanos();
    }
    println!("sleeps={count} total_ns={total_ns} longest_ns={longest_ns} asked_ns={asked_ns} pid={}", process::id());
    if waits {
        line();
    }
}
