//! `list`: names, patterns, words.

#[macro_use]
mod common;

use std::process::Stdio;

use common::{command, run};

#[test]
fn lists_names() {
    need_events!();
    let all = run(&["list"]).code(0);
    assert!(all.out.iter().any(|line| line == "sched:sched_switch"));
    assert!(all.out.is_sorted(), "in order");
    let halves =
        |line: &String| line.split_once(':').is_some_and(|(system, name)| !system.is_empty() && !name.is_empty());
    assert!(all.out.iter().all(halves));

    let wakes = run(&["list", "sched:sched_wak*"]).code(0);
    assert!(wakes.out.iter().any(|line| line == "sched:sched_waking"));
    assert!(wakes.out.iter().all(|line| line.starts_with("sched:sched_wak") && all.out.contains(line)), "{wakes:?}");

    let words = run(&["list", "process_ex"]).code(0);
    assert!(words.out.iter().any(|line| line == "sched:sched_process_exec"), "{words:?}");
    assert!(words.out.iter().all(|line| line.contains("process_ex")), "{words:?}");

    assert_eq!(run(&["list", "sched:sched_switch"]).code(0).out, ["sched:sched_switch"]);
}

#[test]
fn nothing_matches() {
    need_events!();
    for pattern in ["no-such-event", "nosuch:*", "../*:*"] {
        let done = run(&["list", pattern]).code(1).says(&["no event matches", pattern]);
        assert!(done.out.is_empty(), "{done:?}");
    }
}

#[test]
fn a_closed_pipe_is_fine() {
    need_events!();
    let mut command = command(&["list"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
}
