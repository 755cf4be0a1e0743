//! The event formats of eight kernels, from `tests/data/formats.xz`.
#![allow(dead_code)] // each test binary uses a part

use std::fs;
use std::io::Read;
use std::path::Path;

/// The path of each format, `VERSION/events/SYSTEM/NAME/format`, and its text.
pub fn formats() -> Vec<(String, String)> {
    let packed = fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats.xz")).expect("data");
    let mut text = String::new();
    lzma_rust2::XzReader::new(packed, false).read_to_string(&mut text).expect("xz");
    // As `tail -v` writes it: a line `==> PATH <==` before each file.
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("==> ").and_then(|line| line.strip_suffix(" <==")) {
            Some(path) => all.push((path.to_owned(), String::new())),
            None => {
                let (_, format) = all.last_mut().expect("a path first");
                format.push_str(line);
                format.push('\n');
            }
        }
    }
    all
}

/// Unpacks the trees below `dir`, each event with the file `id` that a kernel gives it.
pub fn unpack(dir: &Path) {
    for (path, text) in formats() {
        let path = dir.join(path);
        let event = path.parent().expect("a directory");
        fs::create_dir_all(event).expect("a directory");
        if let Some(id) = text.lines().find_map(|line| line.strip_prefix("ID: ")) {
            fs::write(event.join("id"), format!("{id}\n")).expect("a file");
        }
        fs::write(path, text).expect("a file");
    }
}
