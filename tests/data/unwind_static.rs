//! Sleeps and formats for ever, with a C library whose only unwind table is .debug_frame where it is static.

use std::hint::black_box;
use std::io::Write;

#[inline(never)]
#[unsafe(no_mangle)]
fn waits(times: u64) -> u64 {
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut sum = times;
    loop {
        std::thread::sleep(std::time::Duration::from_micros(50));
        let text = format!("{sum}");
        sum += black_box(text).len() as u64;
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
fn caller(x: u64) -> u64 {
    black_box(waits(x)) + 1
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("thread") {
        std::thread::spawn(|| caller(3)).join().unwrap();
    } else {
        black_box(caller(2));
    }
}
