//! Calls about files whose numbers, bytes and page cache are known.
//!
//! `file_calls DIR KIND` prints `pid=N`, waits for a line on stdin, works, prints what it has done as `key=N ...`, and
//! waits for another line, or the end of stdin.
//! KIND is one of
//! - `cache`: writes `DIR/data` in 256 writes of 16 KiB, then fsync; drops its pages; reads it cold in 64 reads of 64 KiB
//!   without readahead, warm in 256 reads of 16 KiB, and, without the cache, in 8 reads of 64 KiB by O_DIRECT. The time
//!   is measured around each call.
//! - `map`: drops the pages of `DIR/data`, which it has written before the line, maps it, and touches every 16th of its
//!   1024 pages without readahead.
//! - `names`: 37 opens of `DIR/missing`, 20 stats of `DIR/data` by a path below the current directory, 3 listings of DIR,
//!   5 ftruncates, and 10 writes of 100 bytes by a descriptor that was open before the line.
//! - `lab`: two threads for 1 s: one reads `DIR/small` 4 KiB at a time, every ms; the other writes 1 MiB to `DIR/burst`
//!   and calls fsync, every 200 ms.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

const FILE: usize = 4 << 20;
const PAGE: usize = 4096;

#[repr(align(4096))]
struct Aligned([u8; 64 << 10]);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, kind] = &args[..] else { usage() };
    let dir = Path::new(dir);
    let open = match kind.as_str() {
        "map" | "names" => {
            let mut file = create(&dir.join("data"));
            file.write_all(&vec![b'x'; FILE]).expect("a write");
            file.sync_all().expect("fsync");
            Some(file)
        }
        _ => None,
    };
    fs::write(dir.join("small"), vec![b's'; 64 << 10]).expect("a write");
    println!("pid={}", process::id());
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");
    match (kind.as_str(), &open) {
        ("cache", _) => cache(&dir.join("data")),
        ("map", Some(file)) => map(file),
        ("names", Some(file)) => names(dir, file),
        ("lab", _) => lab(dir),
        _ => usage(),
    }
    // What descriptors are open on is asked of living processes.
    io::stdin().read_line(&mut String::new()).expect("a line, or the end");
}

fn usage() -> ! {
    eprintln!("usage: file_calls DIR cache|map|names|lab");
    process::exit(2);
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a new file")
}

fn advise(file: &File, advice: i32) {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) }, 0);
}

/// Removes the pages of a file, which must be clean, from the page cache.
fn drop_pages(file: &File) {
    file.sync_all().expect("fsync");
    advise(file, libc::POSIX_FADV_DONTNEED);
}

/// The time that some calls take, each.
fn timed(count: usize, mut call: impl FnMut(usize)) -> u128 {
    let one = |number| {
        let start = Instant::now();
        call(number);
        start.elapsed().as_nanos()
    };
    (0..count).map(one).sum()
}

fn cache(path: &Path) {
    let mut block = Box::new(Aligned([b'x'; 64 << 10]));
    let (small, large) = (16 << 10, 64 << 10);
    let mut file = create(path);
    let write_ns = timed(256, |_| file.write_all(&block.0[..small]).expect("a write"));
    let sync_ns = timed(1, |_| file.sync_all().expect("fsync"));
    drop_pages(&file);
    let reader = File::open(path).expect("it is there");
    advise(&reader, libc::POSIX_FADV_RANDOM);
    let cold_ns = timed(64, |number| {
        reader.read_exact_at(&mut block.0[..], (number * large) as u64).expect("a read");
    });
    let warm = &mut File::open(path).expect("it is there");
    let warm_ns = timed(256, |_| warm.read_exact(&mut block.0[..small]).expect("a read"));
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let directs = direct.map_or(0, |direct| {
        (0..8).filter(|number| direct.read_at(&mut block.0[..], number * large as u64).is_ok()).count()
    });
    println!("write_ns={write_ns} sync_ns={sync_ns} cold_ns={cold_ns} warm_ns={warm_ns} directs={directs}");
}

fn map(file: &File) {
    drop_pages(file);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), FILE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0).cast::<u8>()
    };
    assert!(!start.is_null() && start.cast() != libc::MAP_FAILED);
    // SAFETY: the mapping is as long.
    assert_eq!(unsafe { libc::madvise(start.cast(), FILE, libc::MADV_RANDOM) }, 0);
    let mut sum = 0_u64;
    let mut touched = 0;
    for page in (0..FILE / PAGE).step_by(16) {
        // SAFETY: within the mapping of a file that nobody shortens.
        sum += u64::from(unsafe { start.add(page * PAGE).read_volatile() });
        touched += 1;
    }
    println!("touched={touched} sum={sum}");
}

fn names(dir: &Path, mut file: &File) {
    for _ in 0..37 {
        File::open(dir.join("missing")).expect_err("it is not there");
    }
    std::env::set_current_dir(dir).expect("the folder");
    for _ in 0..20 {
        fs::metadata("data").expect("it is there");
    }
    for _ in 0..3 {
        assert!(fs::read_dir(".").expect("it can be listed").count() > 0);
    }
    for bytes in 0..5 {
        file.set_len(FILE as u64 - bytes).expect("ftruncate");
    }
    for _ in 0..10 {
        file.write_all(&[b'y'; 100]).expect("a write");
    }
    println!("failed=37 stats=20 writes=10");
}

fn lab(dir: &Path) {
    let end = Instant::now() + Duration::from_secs(1);
    let (small, burst) = (dir.join("small"), dir.join("burst"));
    let writer = std::thread::Builder::new().name("burst".into()).spawn(move || {
        let (mut writes, mut file) = (0, create(&burst));
        while Instant::now() < end {
            file.write_all(&vec![b'b'; 1 << 20]).expect("a write");
            file.sync_all().expect("fsync");
            writes += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
        writes
    });
    let reader = File::open(small).expect("it is there");
    let mut reads = 0_u64;
    while Instant::now() < end {
        reader.read_exact_at(&mut [0; PAGE], reads % 16 * PAGE as u64).expect("a read");
        reads += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let writes: u64 = writer.expect("a thread").join().expect("it ends");
    println!("reads={reads} writes={writes}");
}
