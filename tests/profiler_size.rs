//! Limits the lines of a profiler that are not about its subject, so that adding a profiler takes little code.
//!
//! The rule: at most 70 lines of a profiler are `use` declarations and construction (`new` and `Default`) in the file
//! of the profiler itself, and in any of its files the struct of its options and the impl of `ProfilerArgs`. Comments,
//! help texts, empty lines and tests do not count; nor does `use` in other files, so that a subject of its own may have
//! one. What is the same in two profilers belongs to what they are given: `Setup`, `Context`, `Scope`, `Evsel`,
//! `report::Schema`.
//!
//! Schemas are counted and told, but apart: what a column says of a row is what the profiler is for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const LIMIT: usize = 70;

/// Code that does not belong to the subject of a profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Uses,
    Options,
    Tables,
    Args,
    Construction,
}

/// The files of each profiler that are no tests. The first has the profiler itself.
fn profilers() -> BTreeMap<String, Vec<PathBuf>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/profilers");
    let mut profilers: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let inside = path.strip_prefix(&top).unwrap();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let name = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name != "mod" && stem != "tests" && !stem.ends_with("_tests") {
                let files = profilers.entry(name.clone()).or_default();
                let at = if stem == "mod" || stem == name { 0 } else { files.len() };
                files.insert(at, path);
            }
        }
    }
    profilers
}

/// The lines that count, without the tests at the end.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    code.lines().filter(is_code).map(str::to_owned).collect()
}

/// The part that a line begins, at the depth of an item or of a function of an impl. `is_first`: in the file of the
/// profiler itself.
fn begins(line: &str, is_first: bool) -> Option<Part> {
    let item = line.strip_prefix("pub(super) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let is_table = || item.contains("Schema<") || item.contains("Column<");
    match item {
        _ if is_first && item.starts_with("use ") => Some(Part::Uses),
        _ if (item.starts_with("static ") || item.starts_with("const ")) && is_table() => Some(Part::Tables),
        _ if item.starts_with("impl ProfilerArgs for ") => Some(Part::Args),
        _ if item.starts_with("struct ") && item.ends_with("Args {") => Some(Part::Options),
        _ if is_first && item.starts_with("impl Default for ") => Some(Part::Construction),
        _ if is_first && line.trim_start().starts_with("fn new(") && line.starts_with("    ") => {
            Some(Part::Construction)
        }
        _ => None,
    }
}

/// Number of lines of the item that begins at the first: rustfmt puts its end at the same depth.
fn length(lines: &[String]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let depth = indent(&lines[0]);
    let without_comment = |line: &String| line.split(" // ").next().unwrap_or_default().trim_end().to_owned();
    let is_end = |line: &String| indent(line) == depth && without_comment(line).ends_with([';', '}']);
    lines.iter().position(is_end).map_or(lines.len(), |end| end + 1)
}

fn count(files: &[PathBuf]) -> BTreeMap<Part, usize> {
    let mut counts = BTreeMap::new();
    for (number, path) in files.iter().enumerate() {
        let lines = lines(path);
        let mut at = 0;
        while at < lines.len() {
            match begins(&lines[at], number == 0) {
                Some(part) => {
                    let length = length(&lines[at..]);
                    *counts.entry(part).or_default() += length;
                    at += length;
                }
                None => at += 1,
            }
        }
    }
    counts
}

#[test]
fn profilers_are_about_their_subjects() {
    let mut faults = Vec::new();
    for (name, files) in profilers() {
        let counts = count(&files);
        let sum: usize = counts.iter().filter(|(part, _)| **part != Part::Tables).map(|(_, lines)| lines).sum();
        println!("{name}: {sum} {counts:?}");
        if sum > LIMIT {
            faults.push(format!("{name}: {sum} lines, {LIMIT} at most: {counts:?}"));
        }
    }
    assert!(faults.is_empty(), "not about their subjects:\n{}", faults.join("\n"));
}

#[test]
fn parts_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mod.rs");
    let text = "//! x\nuse a::b;\nuse c::{\n    d,\n};\n\n/// Options\npub struct XArgs {\n    /// Help\n    a: u8,\n}\n\
        impl ProfilerArgs for XArgs {\n    fn build() {}\n}\nstatic T: Schema<R> = Schema::new(\n    1,\n)\n.titled();\n\
        impl X {\n    fn new() -> X {\n        X\n    }\n    fn other() {}\n}\n#[cfg(test)]\nmod tests {\nuse q;\n}\n";
    fs::write(&path, text).unwrap();
    let counts: Vec<(Part, usize)> = count(&[path]).into_iter().collect();
    let want = [(Part::Uses, 4), (Part::Options, 3), (Part::Tables, 4), (Part::Args, 3), (Part::Construction, 3)];
    assert_eq!(counts, want);
}
