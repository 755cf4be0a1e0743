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

    let system = run(&["list", "sched:"]).code(0);
    assert_eq!(system.out, run(&["list", "sched:*"]).code(0).out);
    assert_eq!(run(&["list", "sched:sched_switch"]).code(0).out, ["sched:sched_switch"]);
}

#[test]
fn several_patterns_are_one_list() {
    need_events!();
    let done = run(&["list", "sched:sched_wak*", "sched_switch", "sched:sched_waking"]).code(0);
    let wakes = run(&["list", "sched:sched_wak*"]).code(0).out;
    assert!(done.out.is_sorted() && done.out.iter().any(|line| line == "sched:sched_switch"), "{done:?}");
    assert_eq!(done.out.iter().filter(|line| **line == "sched:sched_waking").count(), 1, "each once: {done:?}");
    assert!(wakes.iter().all(|line| done.out.contains(line)), "{done:?}");
    let fields = run(&["list", "-v", "sched:sched_switch", "sched:sched_process_exec"]).code(0);
    assert!(fields.out.iter().any(|line| line.trim_start().starts_with("prev_comm ")), "{fields:?}");
    assert!(fields.out.iter().any(|line| line.trim_start().starts_with("filename ")), "{fields:?}");
    // A pattern that matches nothing is an error, even if others match.
    run(&["list", "sched:sched_switch", "nosuch:*"]).code(1).says(&["no event matches", "nosuch:*"]);
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

#[test]
fn an_invalid_pattern() {
    for pattern in ["[", "sched:[", "*[", "a[z-a]"] {
        let done = run(&["list", pattern]).code(2).says(&["is no pattern for events"]);
        assert!(done.out.is_empty(), "{done:?}");
    }
    run(&["list", "--nonsense"]).code(2);
}

#[test]
fn shows_fields() {
    need_events!();
    let done = run(&["list", "-v", "sched:sched_switch"]).code(0);
    assert_eq!(done.out[0], "sched:sched_switch");
    let words: Vec<Vec<&str>> = done.out[1..].iter().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| words.iter().find(|words| words[0] == name).unwrap_or_else(|| panic!("{name}: {done:?}"));
    assert_eq!(row("prev_comm")[1..], ["char[16]", "16", "==", "!=", "~"]);
    assert_eq!(row("next_pid")[2..], ["4", "==", "!=", "<", "<=", ">", ">=", "&"]);
    assert!(done.out.iter().all(|line| line.len() <= 80 && !line.contains("common_")), "{done:?}");

    // Every event of some systems, with nothing left out.
    let names = run(&["list", "sched:*"]).code(0).out;
    let all = run(&["list", "-v", "sched:*"]).code(0).out;
    assert!(all.iter().filter(|line| !line.starts_with(' ')).eq(&names));
}

#[test]
fn json_has_the_same() {
    need_events!();
    let names = run(&["list", "sched:*"]).code(0).out;
    let rows = run(&["list", "--json", "sched:*"]).code(0).of_type("row");
    assert!(rows.iter().map(|row| row["event"].as_str().unwrap()).eq(names.iter().map(String::as_str)));
    assert!(rows.iter().all(|row| row["profiler"] == "list" && row["time_ns"].is_u64() && row.get("fields").is_none()));

    let rows = run(&["list", "--json", "-v", "sched:sched_process_exec"]).code(0).of_type("row");
    let fields = rows[0]["fields"].as_array().unwrap();
    let field = |name: &str| fields.iter().find(|field| field["name"] == name).unwrap();
    assert_eq!(
        *field("filename"),
        serde_json::json!({"name": "filename", "type": "__data_loc char[]", "size": 4, "filter": "text"})
    );
    assert_eq!(field("old_pid")["filter"], "number");
}
