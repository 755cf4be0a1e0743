//! Calls of functions with known arguments and results, for probes.
//!
//! `calls COUNT [--wait]`: COUNT times, with `i` from 0, calls `calls_add(i, 2 * i)`, which returns 3 * i,
//! `calls_text("word-I", i)`, which returns -i, `calls_many(i, 1, 2, 3, 4, 5, 6 * i, 7, 8, 9 * i)`, which returns the
//! sum, and getppid(3) of the C library. Of functions with mangled names it calls `words::count` with the first
//! `5 + i % 3` bytes of `"word-I/"`, `words::skip` twice, and `words::weigh` for two types. With `--wait` it prints
//! `ready`, and starts when it reads a line. Prints `calls=COUNT pid=N`.

use std::ffi::{CString, c_char};
use std::hint::black_box;
use std::io::{self, BufRead};
use std::{env, process};

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn calls_add(a: u64, b: u64) -> u64 {
    black_box(a) + black_box(b)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn calls_text(text: *const c_char, number: i32) -> i32 {
    black_box(text);
    -black_box(number)
}

#[inline(never)]
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // the last ones are passed on the stack
extern "C" fn calls_many(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64) -> u64 {
    black_box([a, b, c, d, e, f, g, h, i, j]).iter().sum()
}

mod words {
    use std::hint::black_box;

    /// Text with a length, without a terminating NUL.
    #[inline(never)]
    pub fn count(text: &str) -> usize {
        black_box(text).len()
    }

    #[inline(never)]
    pub fn skip(words: u64) -> u64 {
        black_box(words) + 7
    }

    #[inline(never)]
    pub fn weigh<T: Into<u64>>(weight: T) -> u64 {
        black_box(weight.into()) * size_of::<T>() as u64
    }
}

fn main() {
    let mut args = env::args().skip(1);
    let Some(count) = args.next().and_then(|count| count.parse::<i32>().ok()) else {
        eprintln!("usage: calls COUNT [--wait]");
        process::exit(2);
    };
    if args.next().is_some_and(|arg| arg == "--wait") {
        println!("ready");
        io::stdin().lock().read_line(&mut String::new()).expect("read from stdin");
    }
    for i in 0..count {
        let n = i as u64;
        let text = CString::new(format!("word-{i}")).expect("no NUL");
        black_box(calls_add(n, 2 * n));
        black_box(calls_text(text.as_ptr(), i));
        black_box(calls_many(n, 1, 2, 3, 4, 5, 6 * n, 7, 8, 9 * n));
        black_box(words::count(&format!("word-{i}/")[..5 + i as usize % 3]));
        black_box(words::skip(n) + words::skip(2 * n));
        black_box(words::weigh(i as u32) + words::weigh(n));
        // SAFETY: takes no arguments and cannot fail.
        unsafe { libc::getppid() };
    }
    println!("calls={count} pid={}", process::id());
}
