//! The source files of the package.

use std::fs;
use std::path::{Path, PathBuf};

/// All Rust files below a folder of the package, tests too: their path there, and their text.
pub fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut sources, mut folders) = (Vec::new(), vec![top.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path.strip_prefix(&top).unwrap().to_owned(), text));
            }
        }
    }
    sources
}
