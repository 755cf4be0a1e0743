//! locks: convoys of known shape, whose waits the load itself measures.

#[macro_use]
mod common;

use std::os::unix::fs::MetadataExt;

use common::{Again, Done, Load, attempts, example, load_number, or_again, run, start_watching};
use serde_json::Value;

const WAITERS: u64 = 3;
const HOLD_MS: u64 = 30;
const HOLD_NS: u64 = HOLD_MS * 1_000_000;

/// What a convoy measured of itself.
struct Convoy {
    pid: u64,
    wait_ns: u64,
    /// The thread that was first.
    owner: u64,
}

/// Watches a convoy from its start to its end.
fn watch(kind: &str, path: Option<&str>, more: &[&str]) -> (Convoy, Done) {
    let (waiters, hold) = (WAITERS.to_string(), HOLD_MS.to_string());
    let args: Vec<&str> = [kind, &waiters, &hold].into_iter().chain(path).collect();
    let mut load = Load::of(&example("lock_convoy"), &args);
    let pid = load_number(&load.says(), "pid");
    let prog = start_watching(&[&["locks", "-m", "1024"], more].concat());
    load.tell("go");
    let said = load.says();
    let done = prog.interrupt().code(0);
    load.tell("end");
    (Convoy { pid, wait_ns: load_number(&said, "wait_ns"), owner: load_number(&said, "owner") }, done)
}

fn is_of(table: &'static str, kind: &'static str) -> impl Fn(&Value) -> bool {
    move |row| row["type"] == "row" && row["table"] == table && (kind.is_empty() || row["kind"] == kind)
}

/// The lines of the waits that ended, the shortest first.
fn lines(done: &Done, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut lines: Vec<Value> = done.of_type("event").into_iter().filter(is_wanted).collect();
    lines.retain(|line| line["still_open"] == false);
    lines.sort_by_key(|line| line["duration_ns"].as_u64());
    lines
}

/// Whether `told` is what the load measured around its calls: a wait is within its call, and the calls do little else.
fn is_measured(told_ns: u64, convoy: &Convoy) -> bool {
    told_ns <= convoy.wait_ns && told_ns >= convoy.wait_ns - convoy.wait_ns / 20
}

/// The waits of a convoy whose tasks have the lock for the same time one after the other: 1, 2 and 3 times that long.
fn is_convoy(lines: &[Value]) -> bool {
    let mut numbered = lines.iter().zip(1..);
    lines.len() as u64 == WAITERS
        && numbered.all(|(line, number)| line["duration_ns"].as_u64().is_some_and(|ns| ns >= HOLD_NS * number))
}

fn unlucky(done: &Done) -> [Again<'_>; 3] {
    [Again::RecordsLost(done), Again::Discarded(done), Again::IdleHidden(done)]
}

/// Each of the waiters is behind the one before, the first behind the thread that had the lock at the beginning.
fn are_behind_each_other(lines: &[Value], first: u64, done: &Done) {
    let mut owner = Some(first);
    for line in lines {
        assert_eq!(line["owner"]["tid"].as_u64(), owner, "{line:#}\n{done:#?}");
        owner = line["tid"].as_u64();
    }
}

#[test]
fn threads_wait_for_a_mutex_one_behind_the_other() {
    need_events!();
    attempts(|| {
        let (convoy, done) = watch("mutex", None, &["--kinds", "futex", "--than", "10ms"]);
        let of_convoy = |line: &Value| line["kind"] == "futex" && line["pid"] == convoy.pid;
        let lines = lines(&done, of_convoy);
        or_again(is_convoy(&lines), &unlucky(&done), || format!("{lines:#?}\n{done:#?}"))?;
        are_behind_each_other(&lines, convoy.owner, &done);
        let others: Vec<u64> = lines.iter().map(|line| line["others"].as_u64().unwrap_or(0)).collect();
        assert_eq!(others, [0, 1, 2], "{done:#?}");
        let locks: std::collections::HashSet<&str> = lines.iter().filter_map(|line| line["lock"].as_str()).collect();
        assert_eq!(locks.len(), 1, "one lock: {lines:#?}");
        let of_lock = |row: &Value| is_of("locks", "futex")(row) && locks.contains(row["lock"].as_str().unwrap_or(""));
        let told = done.sum("total_ns", of_lock);
        or_again(is_measured(told, &convoy), &unlucky(&done), || format!("{told} of {}: {done:#?}", convoy.wait_ns))?;
        assert_eq!((done.sum("count", of_lock), done.sum("most", of_lock)), (WAITERS, WAITERS), "{done:#?}");
        let of_process = |row: &Value| is_of("waiters", "")(row) && row["pid"] == convoy.pid;
        assert_eq!(done.sum("total_ns", of_process), told, "no other lock of that process: {done:#?}");
        let by_design = |row: &Value| is_of("waits", "futex wait")(row) && row["pid"] == convoy.pid;
        assert!(done.sum("count", by_design) > 0, "it waits for the ends of its threads: {done:#?}");
        assert!(done.of_type("event").iter().all(|line| line["kind"] != "futex wait"), "{done:#?}");
        Ok(())
    });
}

/// A read from a pipe has the pipe's mutex while it waits for its memory.
#[test]
fn writers_wait_for_the_mutex_of_a_pipe() {
    need_events!();
    attempts(|| {
        let (convoy, done) = watch("pipe", None, &["--kinds", "sleep", "--than", "10ms"]);
        let lines = lines(&done, |line| line["pid"] == convoy.pid && line["kind"] == "mutex");
        or_again(lines.len() as u64 == WAITERS, &unlucky(&done), || format!("{lines:#?}\n{done:#?}"))?;
        let place = |line: &Value| line["place"].as_str().unwrap_or("").to_owned();
        assert!(lines.iter().all(|line| place(line).contains("pipe_write")), "not in the mutex itself: {lines:#?}");
        let told: u64 = lines.iter().filter_map(|line| line["duration_ns"].as_u64()).sum();
        or_again(is_measured(told, &convoy), &unlucky(&done), || format!("{told} of {}: {done:#?}", convoy.wait_ns))?;
        let owners: Vec<u64> = lines.iter().filter_map(|line| line["owner"]["tid"].as_u64()).collect();
        assert!(owners.contains(&convoy.owner), "the reader woke the first writer: {lines:#?}\n{done:#?}");
        let row = |row: &Value| is_of("locks", "mutex")(row) && place(row).contains("pipe_write");
        assert!(done.sum("count", row) >= WAITERS && done.sum("total_ns", row) >= told, "{done:#?}");
        Ok(())
    });
}

/// Three kinds of locks of a file, each with processes behind one that has it.
#[test]
fn processes_wait_for_the_lock_of_a_file() {
    need_events!();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locked");
    std::fs::write(&path, "x").expect("it is written");
    for (load, kind) in [("flock", "flock"), ("fcntl", "fcntl"), ("ofd", "fcntl ofd")] {
        attempts(|| {
            let (convoy, done) = watch(load, path.to_str(), &["--kinds", "file", "--than", "10ms"]);
            let is_file = |row: &Value| row["lock"].as_str() == path.to_str();
            let lines = lines(&done, |line| line["kind"] == kind && is_file(line));
            or_again(is_convoy(&lines), &unlucky(&done), || format!("{lines:#?}\n{done:#?}"))?;
            are_behind_each_other(&lines, convoy.owner, &done);
            let row = |row: &Value| is_of("locks", "")(row) && row["kind"] == kind && is_file(row);
            let told = done.sum("total_ns", row);
            or_again(is_measured(told, &convoy), &unlucky(&done), || {
                format!("{kind}: {told} of {}: {done:#?}", convoy.wait_ns)
            })?;
            assert_eq!(done.sum("count", row), WAITERS, "{done:#?}");
            Ok(())
        });
    }
}

/// Who was stuck before the run began has no event, but a line, and who has the file locked is known.
#[test]
fn a_wait_from_before_the_start_is_told() {
    need_events!();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locked");
    let path = path.to_str().expect("a path in UTF-8");
    // Its waiters stay in line for as long as the first has the lock.
    let mut load = Load::of(&example("lock_convoy"), &["flock", "1", "3000", path]);
    let pid = load_number(&load.says(), "pid");
    load.tell("go");
    let waits = || {
        std::fs::read_to_string("/proc/locks").is_ok_and(|locks| {
            let inode = std::fs::metadata(path).map_or(0, |file| file.ino());
            locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
        })
    };
    while !waits() {
        std::thread::yield_now();
    }
    let done = start_watching(&["locks", "--kinds", "file", "--than", "50ms", "-i", "100"]);
    std::thread::sleep(std::time::Duration::from_millis(400));
    let done = done.interrupt().code(0);
    let line = done.of_type("event").into_iter().find(|line| line["owner"]["pid"] == pid);
    let line = line.unwrap_or_else(|| panic!("no line: {done:#?}"));
    assert_eq!((&line["since"], &line["still_open"]), (&"before_start".into(), &true.into()), "{line:#}");
    assert_eq!((&line["kind"], &line["lock"]), (&"flock".into(), &path.into()), "{line:#}");
    let is_open = |row: &Value| is_of("locks", "flock")(row) && row["now"] == 1;
    assert!(done.json().iter().any(is_open), "{done:#?}");
    drop(load);
}

#[test]
fn unknown_kinds_are_refused() {
    run(&["locks", "--kinds", "semaphore"]).code(2).says(&["semaphore", "spin, sleep, futex, file"]);
}
