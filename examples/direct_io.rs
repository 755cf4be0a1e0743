//! Reads and writes of a file past the page cache, as requests to its disk whose number and bytes are known.
//!
//! `direct_io PATH READS WRITES`: writes PATH in full, prints `pid=N`, and waits for a line on stdin. Then writes the
//! first WRITES blocks of 16 KiB of it one after another, and reads READS times 4 KiB, no two of them next to each
//! other. At the end prints `reads=N read_ns=N writes=N write_ns=N`, the time measured around each call. PATH stays:
//! to remove it may be a request, too.

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    process,
    time::Instant,
};

const WRITE: usize = 16 << 10;
const READ: usize = 4 << 10;

/// A buffer as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; WRITE]);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [path, reads, writes] = &args[..] else { usage() };
    let (Ok(reads), Ok(writes)) = (reads.parse::<u64>(), writes.parse::<u64>()) else { usage() };
    let mut block = Box::new(Aligned([b'x'; WRITE]));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("a file for direct I/O");
    let blocks = writes.max(reads * 2 * READ as u64 / WRITE as u64 + 1);
    // So that no write of the measured ones has to find a place for its block.
    for number in 0..blocks {
        file.write_all_at(&block.0, number * WRITE as u64).expect("a write");
    }
    file.sync_all().expect("fsync");
    println!("pid={}", process::id());
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");
    let timed = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos()
    };
    let write_ns: u128 = (0..writes)
        .map(|number| timed(&mut || file.write_all_at(&block.0, number * WRITE as u64).expect("a write")))
        .sum();
    let read_ns: u128 = (0..reads)
        .map(|number| {
            timed(&mut || file.read_exact_at(&mut block.0[..READ], number * 2 * READ as u64).expect("a read"))
        })
        .sum();
    println!("reads={reads} read_ns={read_ns} writes={writes} write_ns={write_ns}");
}

fn usage() -> ! {
    eprintln!("usage: direct_io PATH READS WRITES");
    process::exit(2);
}
