//! `doctor --formats`: the formats of eight kernels, and hostile trees. No privilege needed.

#[macro_use]
mod common;
#[path = "common/corpus.rs"]
mod corpus;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::run;
use serde_json::Value;

/// Most formats of a thousand that may be shown as field=value.
const FALLBACK_PERMILLE: u64 = 5;

fn doctor(dir: &Path, more: &[&str]) -> common::Done {
    run(&[&["doctor", "--formats", dir.to_str().unwrap()], more].concat())
}

/// `incomplete TREE EVENT REASON`, sorted.
fn findings(object: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in ["fallback", "incomplete", "unparsed"] {
        for found in object[kind].as_array().unwrap() {
            let word = |key: &str| found[key].as_str().unwrap();
            lines.push(format!("{kind} {} {} {}", word("tree"), word("event"), word("reason")));
        }
    }
    // Depends on the tick of the machine that runs the test: see functions.rs.
    lines.retain(|line| !line.contains("jiffies_to_msecs"));
    lines.sort_unstable();
    lines
}

#[test]
fn the_formats_of_eight_kernels() {
    let dir = tempfile::tempdir().unwrap();
    corpus::unpack(dir.path());
    let done = doctor(dir.path(), &["--json"]).code(0);
    assert_eq!(done.out.len(), 1);
    let object = &done.json()[0];
    assert_eq!(
        (&object["type"], &object["formats"], &object["parsed"]),
        (&"doctor".into(), &10_492.into(), &10_492.into())
    );
    let fallback = object["fallback"].as_array().unwrap().len() as u64;
    assert_eq!(object["compiled"].as_u64().unwrap() + fallback, 10_492);
    assert!(fallback * 1000 <= 10_492 * FALLBACK_PERMILLE, "{fallback} fall back");
    let sum =
        |key: &str| object["trees"].as_array().unwrap().iter().map(|tree| tree[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((object["trees"].as_array().unwrap().len(), sum("formats"), sum("fallback")), (8, 10_492, fallback));

    let got = findings(object).join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats.txt");
    if std::env::var("PERF_PROF_WRITE").is_ok_and(|value| value == "1") {
        fs::write(&path, &got).unwrap();
    }
    let want = fs::read_to_string(&path).unwrap();
    let (got, want): (Vec<_>, Vec<_>) = (got.lines().collect(), want.lines().collect());
    let new: Vec<_> = got.iter().filter(|line| !want.contains(line)).collect();
    let gone: Vec<_> = want.iter().filter(|line| !got.contains(line)).collect();
    assert!(new.is_empty() && gone.is_empty(), "not as in {}; new: {new:#?}; gone: {gone:#?}", path.display());

    let text = doctor(dir.path(), &["-v"]).code(0);
    assert!(text.out.iter().all(|line| line.chars().count() <= 80), "80 columns");
    let all = text.out.iter().find(|line| line.starts_with("all ")).unwrap();
    let numbers: Vec<u64> = all.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
    assert_eq!((numbers[0], numbers[1], numbers[4]), (10_492, 10_492, fallback));
}

#[test]
fn hostile_trees() {
    let dir = tempfile::tempdir().unwrap();
    let event = |name: &str| {
        let path = dir.path().join("events/sys").join(name);
        fs::create_dir_all(&path).unwrap();
        path.join("format")
    };
    fs::write(event("good"), "name: good\nID: 1\nformat:\n\nprint fmt: \"x\"\n").unwrap();
    fs::write(event("rubbish"), (0..=255u8).cycle().take(100_000).collect::<Vec<_>>()).unwrap();
    fs::File::create(event("huge")).unwrap().set_len(1 << 40).unwrap(); // a sparse file
    fs::write(event("bad\x1b[31m"), "name: x\nID: 1\nprint fmt: \"%d\"\n").unwrap();
    symlink("/dev/zero", event("zero")).unwrap();
    nix::unistd::mkfifo(&event("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink(dir.path(), dir.path().join("events/loop")).unwrap();
    let before = fs::read_dir(dir.path()).unwrap().count();

    let done = doctor(dir.path(), &["--json"]).code(0);
    let object = &done.json()[0];
    assert_eq!((&object["formats"], &object["parsed"], &object["compiled"]), (&6.into(), &2.into(), &1.into()));
    let lines = findings(object);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("fallback ") && line.contains("bad\\x1b[31m")), "{lines:#?}");
    assert_eq!(object["troubles"], serde_json::json!(["1 symbolic links were not followed"]));
    let text = doctor(dir.path(), &[]).code(0);
    assert!(text.out.iter().all(|line| !line.contains('\x1b')), "{text:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "nothing is written there");
}

#[test]
fn what_cannot_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    doctor(dir.path(), &[]).code(1).says(&["no event format below", "events/SYSTEM/EVENT/format"]);
    doctor(&dir.path().join("gone"), &[]).code(1).says(&["cannot read", "gone", "No such file"]);
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    doctor(&file, &["--json"]).code(1).says(&["cannot read", "Not a directory"]);
    run(&["doctor", "--formats"]).code(2);
    run(&["doctor", "--nonsense"]).code(2);
    run(&["doctor", "something"]).code(2);
}

#[test]
fn the_running_kernel() {
    need_events!();
    let object = &run(&["doctor", "--json"]).code(0).json()[0];
    let count = |key: &str| object[key].as_u64().unwrap();
    let listed = run(&["list"]).code(0).out.len() as u64;
    // `list` leaves out events without an id; a few events of ftrace itself have a format of another kind.
    assert!(count("formats") >= listed && count("formats") - listed < 40, "{} and {listed}", count("formats"));
    assert_eq!(count("parsed"), count("formats"), "{:?}", object["unparsed"]);
    assert_eq!(count("compiled") + object["fallback"].as_array().unwrap().len() as u64, count("parsed"));
}
