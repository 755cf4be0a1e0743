//! page-faults: the same numbers as getrusage(2) has, with the functions that fault.

#[macro_use]
mod common;

use common::{Done, Load, Prog, example, load_number, run, run_over, start_watching};
use serde_json::Value;

const MINOR: u64 = 3000;
const MAJOR: u64 = 200;

/// A run over a program that faults between two lines of its input. Returns the run, and minor and major faults by
/// getrusage.
fn watched(options: &[&str], look: impl FnOnce(&Prog, &mut Load) -> String) -> (Done, [u64; 2]) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file");
    let path = file.path().to_str().expect("a path in UTF-8");
    watched_with_file(options, path, look)
}

/// The same, with the file that has the pages of the major faults.
fn watched_with_file(options: &[&str], path: &str, look: impl FnOnce(&Prog, &mut Load) -> String) -> (Done, [u64; 2]) {
    let mut load = Load::of(&example("faults"), &[&MINOR.to_string(), &MAJOR.to_string(), path]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let run = start_watching(&[&["page-faults", "-p", &pid], options].concat());
    let said = look(&run, &mut load);
    let done = run.interrupt().code(0);
    (done, ["minor", "major"].map(|key| load_number(&said, key)))
}

fn go(_: &Prog, load: &mut Load) -> String {
    load.tell("");
    load.says()
}

/// Rows of the function whose name ends with `name`.
fn of_function(done: &Done, name: &str) -> Vec<Value> {
    let rows = done.of_type("row").into_iter();
    rows.filter(|row| row["place"].as_str().is_some_and(|place| place.contains(name))).collect()
}

#[test]
fn counts_equal_those_of_getrusage() {
    need_events!();
    let (done, [minor, major]) = watched(&[], go);
    assert_eq!((done.sum("minor", |_| true), done.sum("major", |_| true)), (minor, major), "{done:#?}");
    assert!(minor >= MINOR, "{minor}");
    let touched = of_function(&done, "faults::touch");
    let [row] = &touched[..] else { panic!("one place: {touched:#?}") };
    assert_eq!((&row["minor"], &row["major"], &row["comm"]), (&MINOR.into(), &0.into(), &"faults".into()), "{row}");
    assert_eq!((&row["verdict"], row["stack"].as_array().map(Vec::len)), (&"exact".into(), Some(1)), "{row}");
    if major == 0 {
        skip!("no file here is on a disk");
    }
    assert_eq!(
        (major, of_function(&done, "read").iter().map(|row| common::number(row, "major")).sum()),
        (MAJOR, MAJOR)
    );
}

#[test]
fn major_faults_alone_are_asked_for() {
    need_events!();
    let (done, [_, major]) = watched(&["--major"], go);
    assert_eq!((done.sum("minor", |_| true), done.sum("major", |_| true)), (0, major), "{done:#?}");
    assert_eq!(done.total("samples"), major);
}

/// The rows of files, each with its file.
fn by_file(done: &Done) -> Vec<(Value, u64)> {
    let rows = done.of_type("row").into_iter().filter(|row| row["table"] == "files");
    rows.map(|row| (row["file"].clone(), common::number(&row, "faults"))).collect()
}

#[test]
fn major_faults_are_by_file_and_device() {
    need_events!();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // Longer than a line, and with bytes that a terminal must not see.
    let path = dir.path().join(format!("{}\u{1b}[31m data", "x".repeat(100)));
    let path = path.to_str().expect("a path in UTF-8");
    for options in [&["--major"][..], &["-i", "20"], &["-g"]] {
        let (done, [_, major]) = watched_with_file(options, path, go);
        let files = by_file(&done);
        let sum = |of: &str| files.iter().filter(|(file, _)| file == of).map(|(_, faults)| faults).sum::<u64>();
        let escaped = path.replace('\u{1b}', "\\x1b");
        assert_eq!(sum(&escaped), major, "{options:?}: {files:#?}");
        assert_eq!(files.iter().map(|(_, faults)| faults).sum::<u64>(), done.sum("major", |_| true), "{files:#?}");
        if major == 0 {
            skip!("no file here is on a disk");
        }
        let row = done.of_type("row").into_iter().find(|row| row["file"] == *escaped).expect("the file");
        let source = std::process::Command::new("df").args(["--output=source", path]).output().expect("df");
        let source = String::from_utf8(source.stdout).expect("UTF-8");
        assert_eq!((row["device"].as_str(), &row["comm"]), (source.lines().nth(1), &"faults".into()), "{row}");
    }
}

#[test]
fn without_major_faults_there_are_no_files() {
    need_events!();
    let done = run(&["page-faults", "--json", "--exclude-user", "--", "true"]).code(0);
    let has_files = done.of_type("row").iter().any(|row| row["table"] == "files");
    assert_eq!(has_files, done.sum("major", |_| true) > 0, "{done:#?}");
    let done = run(&["page-faults", "--exclude-user", "--", "true"]).code(0);
    assert!(!done.out.iter().any(|line| line == "nothing seen"), "{done:#?}");
}

#[test]
fn stacks_lead_to_the_fault() {
    need_events!();
    let options = ["page-faults", "-g", "--top", "10000", "--", &example("faults"), &MINOR.to_string()];
    let done = run(&options).code(0);
    let rows: Vec<usize> = (0..done.out.len()).filter(|&at| done.out[at].contains(" faults faults::touch")).collect();
    let counted: u64 = rows.iter().filter_map(|&at| done.out[at].split_whitespace().next()?.parse::<u64>().ok()).sum();
    assert_eq!(counted, MINOR + 1, "and one before, perhaps by another instruction: {done:#?}");
    // A stack of one frame is in the row itself; at least one row has a longer stack below it.
    let is_frame = |line: &String| line.starts_with("    0") && line.contains("faults::touch");
    assert!(done.out.iter().any(is_frame), "{done:#?}");
}

/// The whole run counts each fault once, and the limit of rows is for text only.
#[test]
fn intervals_add_up() {
    need_events!();
    let program = [&*example("faults"), "20000"];
    let done = run_over(&["page-faults", "--json", "-i", "5", "--top", "1"], &program);
    let intervals = done.of_type("interval").len();
    assert!(intervals > 1, "{intervals}");
    let of_places = |kind: &str| done.of_type(kind).into_iter().filter(|row| row["table"] == "places");
    let sum = |kind: &str| of_places(kind).map(|row| common::number(&row, "minor")).sum::<u64>();
    assert!(sum("total") == sum("row") && sum("row") > 20_000, "{done:#?}");
    assert_eq!(sum("row") + done.sum("major", |_| true), done.total("samples"));
    assert!(done.of_type("total").len() > 1, "JSON has all rows");
}

#[test]
fn the_rest_of_the_rows_is_summed_up() {
    need_events!();
    let done = run(&["page-faults", "--top", "2", "--", &example("faults"), "3000"]).code(0);
    let at = done.out.iter().position(|line| line.starts_with("minor major ")).expect("a heading");
    assert!(done.out[at + 3].starts_with("and ") && done.out[at + 3].contains(" more: "), "{done:#?}");
}

#[test]
fn losses_are_marked() {
    need_events!();
    let (done, [minor, _]) = watched(&["-m", "1"], |run, load| run.stopped(|| go(run, load)));
    let seen = done.sum("minor", |_| true) + done.sum("major", |_| true);
    assert!(seen < minor && done.total("lost") > 0, "{done:#?}");
    let rows = done.of_type("row");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["verdict"] == "lower_bound"), "{rows:#?}");
}
