//! Writes three files at known ratios, each in a folder of its own: `one/data`, `two/data` and `five/data`.
//!
//! `file_shares FOLDER HOW`: makes the files, prints `pid=N`, and waits for a line on stdin. Then writes 8, 16 and 40
//! blocks of 256 KiB, in turns, prints `done`, and waits for another line. HOW: `direct` with O_DIRECT, `fsync` through the page cache with an
//! fsync at the end, `later` without: at the end the whole file system is told to write, which its own threads do. With
//! `deleted` the files have no name any more when they are written with O_DIRECT.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process,
};

const BLOCK: usize = 256 << 10;
const FILES: [(&str, u64); 3] = [("one", 8), ("two", 16), ("five", 40)];

/// A buffer as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, how] = &args[..] else { usage() };
    let flags = match how.as_str() {
        "direct" | "deleted" => libc::O_DIRECT,
        "fsync" | "later" => 0,
        _ => usage(),
    };
    let block = Box::new(Aligned([b'x'; BLOCK]));
    let open = |name: &str| -> File {
        let folder = Path::new(folder).join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("data");
        let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&path);
        let file = file.expect("a file");
        if how == "deleted" {
            fs::remove_file(path).expect("it was there");
        }
        file
    };
    let files = FILES.map(|(name, blocks)| (open(name), blocks));
    println!("pid={}", process::id());
    io::stdout().flush().expect("flush");
    io::stdin().read_line(&mut String::new()).expect("a line");
    for number in 0..FILES[2].1 {
        for (file, _) in files.iter().filter(|(_, blocks)| number < *blocks) {
            file.write_all_at(&block.0, number * BLOCK as u64).expect("a write");
        }
    }
    for (file, _) in &files {
        match how.as_str() {
            "fsync" => file.sync_all().expect("fsync"),
            "later" => nix::unistd::syncfs(file).expect("syncfs"),
            _ => {}
        }
    }
    println!("done");
    io::stdout().flush().expect("flush");
    // Until then it has the files open.
    io::stdin().read_line(&mut String::new()).expect("a line");
}

fn usage() -> ! {
    eprintln!("usage: file_shares FOLDER direct|fsync|later|deleted");
    process::exit(2);
}
