//! Waits for a mutex of a module, by name, and for a locked file, whose events have other fields on older kernels.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, load_number, number};
use lab::{AMD64, Lab};
use serde_json::Value;

const HOLD_MS: u64 = 200;
const HOLD_NS: u64 = HOLD_MS * 1_000_000;
const WAITERS: u64 = 2;

fn script() -> String {
    format!(
        r"
    watching locks locks --than 50ms --addresses
    (echo; echo) | lock_convoy flock {WAITERS} {HOLD_MS} /tmp/locked >/out/flock
    (echo; echo) | lock_convoy mutex {WAITERS} {HOLD_MS} >/out/mutex
    holders=
    for number in $(seq {WAITERS}); do
        sh -c 'echo mutex {HOLD_MS} >/proc/ppfault' &
        holders=$holders' '$!
    done
    sh -c 'echo mutex {HOLD_MS} >/proc/ppfault'
    wait $holders
    stop locks"
    )
}

/// The lines of waits of one kind that have ended, the shortest first.
fn lines(done: &Done, kind: &str, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut lines = done.of_type("event");
    lines.retain(|line| line["kind"] == kind && line["still_open"] == false && is_wanted(line));
    lines.sort_by_key(|line| line["duration_ns"].as_u64());
    lines
}

/// As many waits as there are waiters, the second twice as long as the first, each behind the one before.
#[track_caller]
fn check_convoy(lines: &[Value], owner: Option<u64>, done: &Done) {
    assert_eq!(lines.len() as u64, WAITERS, "{lines:#?}\n{done:#?}");
    let mut owner = owner;
    for (line, number_of_holders) in lines.iter().zip(1..) {
        // Guest time comes in ticks.
        assert!(number(line, "duration_ns") >= HOLD_NS * number_of_holders - 20_000_000, "{line:#}");
        assert!(owner.is_none() || line["owner"]["tid"].as_u64() == owner, "{owner:?}: {line:#}\n{done:#?}");
        owner = line["tid"].as_u64();
    }
}

fn check(lab: Lab) {
    let output = lab.ppfault().example("lock_convoy").run(&script());
    let done = output.results("locks").code(0);
    assert_eq!(done.total("lost"), 0, "{done:#?}");
    for (kind, load) in [("flock", "flock"), ("futex", "mutex")] {
        let said = output.file(load);
        let said = said.lines().last().expect("a line");
        let owner = load_number(said, "owner");
        let of_load = lines(&done, kind, |line| line["comm"] == "lock_convoy");
        // musl waits for the end of a thread at a word with the value of a lock.
        let convoy = of_load.iter().find(|line| line["others"] == 1).map(|line| line["lock"].clone());
        let of_lock: Vec<Value> = of_load.into_iter().filter(|line| Some(&line["lock"]) == convoy.as_ref()).collect();
        check_convoy(&of_lock, Some(owner), &done);
    }
    let of_module = |row: &Value| row["lock"] == "contended";
    check_convoy(&lines(&done, "mutex", of_module), None, &done);
    let row = |row: &Value| row["type"] == "row" && row["table"] == "locks" && of_module(row);
    assert_eq!((done.sum("count", row), done.sum("most", row)), (WAITERS, WAITERS), "{done:#?}");
    let rows: Vec<Value> = done.json().into_iter().filter(row).collect();
    assert!(rows.iter().all(|row| row["place"].as_str().is_some_and(|place| place.contains("ppfault"))), "{rows:#?}");
}

#[test]
fn locks_have_names_and_owners() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

#[test]
fn locks_have_names_and_owners_on_arm64() {
    need_lab!();
    check(Lab::arm64("6.12"));
}
