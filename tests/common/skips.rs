//! What a test does not check here, because this machine cannot. Every skip is told, noted in the directory that
//! PERF_PROF_TESTS_NOTES names, and, with PERF_PROF_TESTS=strict, a failure unless `tests/may_skip.txt` allows it.
//! The unit tests of `src/` have this file, too.
#![allow(dead_code, unused_macros)] // each test binary uses a part

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Lines of `NAME: WHY`: the test as `cargo test` names it, behind its program's name; and words of the reason.
const MAY_SKIP: &str = include_str!("../may_skip.txt");

/// The path of the function that this is in.
macro_rules! here {
    () => {{
        fn here() {}
        std::any::type_name_of_val(&here)
    }};
}

/// Skips the test because the machine lacks something.
macro_rules! skip {
    ($($why:tt)*) => {{
        skip_part!($($why)*);
        return;
    }};
}

/// Tells of a part of the test that the machine cannot run.
macro_rules! skip_part {
    ($($why:tt)*) => {
        $crate::common::skips::skipped(here!(), format_args!($($why)*))
    };
}

/// `here`: of the function that is the test.
#[track_caller]
pub fn skipped(here: &str, why: impl Display) {
    let (test, why) = (test_of(here), why.to_string());
    println!("skipped: {why}");
    note("skips", &format!("{test}: {why}"));
    assert!(
        !strict() || is_allowed(MAY_SKIP, test, &why),
        "PERF_PROF_TESTS=strict, and tests/may_skip.txt lacks {test}: {why}"
    );
}

/// The same for one that runs in another stage of `.ci/run`, where it calls [`not_left`].
pub fn left_to_the_lab(here: &str) {
    println!("skipped: the lab is its own stage, see lab/README.md");
    note("left", test_of(here));
}

pub fn not_left(here: &str) {
    note("not_left", test_of(here));
}

pub fn strict() -> bool {
    std::env::var("PERF_PROF_TESTS").is_ok_and(|value| value == "strict")
}

/// Adds a line to a file of notes: a test that passes prints nothing.
pub fn note(file: &str, line: &str) {
    let Some(notes) = std::env::var_os("PERF_PROF_TESTS_NOTES") else { return };
    let file = OpenOptions::new().append(true).create(true).open(Path::new(&notes).join(file));
    // One write: other threads and programs have the file open, too.
    let line = format!("{}\n", line.replace('\n', " "));
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("PERF_PROF_TESTS_NOTES");
}

pub fn test_of(here: &str) -> &str {
    let here = here.strip_suffix("::here").unwrap_or(here);
    here.split("::{{closure}}").next().unwrap_or(here)
}

pub fn is_allowed(list: &str, test: &str, why: &str) -> bool {
    entries(list).any(|(name, words)| name == test && why.contains(words))
}

pub fn entries(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("NAME: WHY instead of {line:?}")))
}
