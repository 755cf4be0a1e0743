//! `expr`, and filters that are evaluated here: values of expressions over events of known loads.

#[macro_use]
mod common;

use common::shell::call;
use common::{Done, run, run_over, start};
use nix::sys::signal::Signal;

const EXEC: &str = "sched:sched_process_exec";

/// Tries an expression on the programs that a shell starts.
fn tried(event: &str, expression: &str, more: &[&str]) -> Done {
    let options = [&["expr", "--json", "-e", event, expression], more].concat();
    run(&[&options[..], &["--", "sh", "-c", "/bin/true; /bin/false; exit 0"]].concat()).code(0)
}

fn results(done: &Done) -> Vec<serde_json::Value> {
    done.of_type("event").iter().map(|event| event["result"].clone()).collect()
}

#[test]
fn values_are_those_of_the_records() {
    need_events!();
    let done = tried(EXEC, "filename", &[]).says(&["filename: text of filename (__data_loc char[])"]);
    let programs = results(&done);
    assert!(programs.len() == 3 && programs[1] == "/bin/true" && programs[2] == "/bin/false", "{done:?}");
    for event in done.of_type("event") {
        assert_eq!(event["fields"]["filename"], event["result"], "{event}");
    }
    let done = tried(EXEC, "pid == _pid && _tid == common_pid && old_pid > 0 && _time > 0 && _period == 1", &[]);
    assert_eq!(results(&done), [1, 1, 1], "{done:?}");
    let done = tried(EXEC, "filename ~ \"*/fal[!x]e\" ? -ENOENT : filename[1]", &[]);
    assert_eq!(results(&done)[1..], [i64::from(b'b'), -2], "{done:?}");
    let done = tried(EXEC, "comm_get(pid)", &["-N", "1"]);
    assert_eq!(results(&done), ["sh"], "{done:?}");
}

#[test]
fn it_ends_after_a_few_events() {
    need_events!();
    let load = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done";
    let done = run(&["expr", "-e", EXEC, "pid", "--", "sh", "-c", load]).code(0).says(&["expr: 5 events in "]);
    assert_eq!(done.out.iter().filter(|line| line.starts_with("    result: 0x")).count(), 5, "{done:?}");
}

#[test]
fn what_has_no_value_is_counted() {
    need_events!();
    let done = tried(EXEC, "1 / (pid - pid)", &[]).says(&["no value for 3 events: division by zero 3"]);
    assert_eq!(done.end()["no_value"], 3, "{done:?}");
    assert!(done.of_type("event").iter().all(|event| event["no_value"] == "division by zero"), "{done:?}");
    let done = tried(EXEC, "filename[5000]", &["-N", "1"]);
    assert_eq!(done.of_type("event")[0]["no_value"], "index out of bounds", "{done:?}");
}

#[test]
fn filters_that_the_kernel_does_not_know_are_evaluated_here() {
    need_events!();
    let shell = ["sh", "-c", "/bin/true; /bin/false; exit 0"];
    let traced = |filter: &str, more: &[&str]| {
        let event = format!("{EXEC}/{filter}/");
        run_over(&[&["trace", "--json", "-v", "-e", &event], more].concat(), &shell)
    };
    let programs = |done: &Done| -> Vec<String> {
        let text = |event: &serde_json::Value| event["fields"]["filename"].as_str().unwrap().to_owned();
        done.of_type("event").iter().map(text).collect()
    };
    // Events that are dropped do not count.
    let done = traced("(filename[5] == 102 && pid == _pid)", &["-N", "1"]).code(0);
    assert_eq!(programs(&done), ["/bin/false"], "{done:?}");
    let note = format!("{EXEC}: filter '(filename[5] == 102 && pid == _pid)' is evaluated here, not in the kernel");
    assert!(done.err().contains(&note), "{done:?}");
    // What has no value is dropped, and counted.
    let done = traced("(1 / (pid - pid))", &[]).code(0).says(&["the filter had no value for 3 events"]);
    assert!(programs(&done).is_empty() && done.end()["filter_no_value"] == 3, "{done:?}");
    // Names are numbers to the kernel.
    let done = traced("pid != SIGKILL", &[]).code(0);
    assert!(programs(&done).len() == 3 && !done.err().contains("evaluated here"), "{done:?}");
    assert!(done.err().contains("pid != 9"), "{done:?}");
}

#[test]
fn what_a_filter_cannot_judge_is_told_while_the_run_lasts() {
    need_events!();
    let mut run = start(&["kmemleak", "--alloc", "kmem:kmalloc/bytes_req % 0 == 1/", "--free", "kmem:kfree", "-v"]);
    run.err_line(|line| line.contains("ring buffer"));
    let is_told = |line: &str| line.starts_with("kmem:kmalloc: the filter had no value for ");
    // An interval without an allocation tells nothing.
    while !run.err.iter().any(|line| is_told(line)) {
        run.signal(Signal::SIGUSR1);
        run.line(|line| line.contains(", interval "));
    }
    run.signal(Signal::SIGINT);
    let done = run.finish().code(0);
    assert_eq!(done.err.iter().filter(|line| is_told(line)).count(), 2, "{done:?}");
}

/// The expressions of the documentation fit the events of this kernel.
#[test]
fn the_examples_can_be_run() {
    need_events!();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/expressions.md")).unwrap();
    let examples: Vec<Vec<String>> =
        page.lines().filter(|line| line.starts_with("perf-prof expr ")).filter_map(call).collect();
    assert!(examples.len() > 20, "{examples:?}");
    for words in examples {
        let event = words.iter().position(|word| word == "-e").and_then(|at| words.get(at + 1)).unwrap();
        if run(&["list", event]).out.is_empty() {
            skip_part!("no event {event}");
            continue;
        }
        let mut options: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        options.extend(["--for", "1ms"]);
        run(&options).code(0);
    }
}

#[test]
fn faults_are_pointed_at() {
    need_events!();
    let cases: [(&str, i32, &[&str]); 6] = [
        ("pid +", 2, &["a field or a number is missing", "  pid +\n       ^"]),
        ("filename + 1", 2, &["this is text"]),
        ("*(int *)8", 2, &["nothing is read through a pointer"]),
        ("printf(\"%s\\n\", pid)", 2, &["an expression prints nothing"]),
        ("system(\"reboot\")", 2, &["runs no commands"]),
        ("pidd", 1, &["no field `pidd`", "it has pid"]),
    ];
    for (text, code, words) in cases {
        run(&["expr", "-e", EXEC, text]).code(code).says(words);
    }
    run(&["expr", "-e", "sched:sched_wak*", "pid"]).code(1).says(&["an expression is about one"]);
    run(&["expr", "-e", "sched:sched_waking,sched:sched_wakeup", "pid"]).code(2).says(&["one event, and not 2"]);
}
