//! As known_chains.c, in Rust: MODE ACTION TIMES.

use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn tick(value: usize) -> usize {
    black_box(value) + 1
}

#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn probed(value: usize) -> usize {
    black_box(value) + 2
}

#[inline(never)]
fn leaf(action: u8, at: usize) -> usize {
    match action {
        b'b' => {
            (0..20).for_each(|i| _ = black_box(tick(i)));
        }
        b's' => {
            black_box(probed(at));
            std::thread::sleep(Duration::from_millis(2));
        }
        _ => std::mem::forget(black_box(Vec::<u8>::with_capacity(100))),
    }
    black_box(at) + 1
}

#[inline(never)]
fn inner(action: u8, text: &mut [u8]) -> usize {
    let at = leaf(action, text.len());
    text[0] = black_box(1);
    at + text.len()
}

#[inline(never)]
fn outer(action: u8) -> usize {
    let mut text = black_box([0u8; 300]);
    inner(action, &mut text) + usize::from(text[0])
}

struct Guard(u8);

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(outer(self.0));
    }
}

#[inline(never)]
fn unwinds(action: u8) -> usize {
    let guard = black_box(Guard(action));
    if black_box(true) {
        resume_unwind(Box::new(7));
    }
    usize::from(guard.0)
}

#[inline(never)]
fn swallows(action: u8) -> usize {
    usize::from(catch_unwind(|| unwinds(action)).is_err()) + black_box(1)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, action, times] = &args[..] else { std::process::exit(2) };
    let (action, times) = (action.as_bytes()[0], times.parse::<u64>().expect("a number"));
    let call = if mode == "cleanup" { swallows } else { outer };
    let start = Instant::now();
    let mut done = 0;
    while if action == b'b' { start.elapsed() < Duration::from_millis(times) } else { done < times } {
        black_box(black_box(call)(action));
        done += 1;
    }
}
