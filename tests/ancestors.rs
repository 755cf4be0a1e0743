//! `trace --ancestors`: the ancestors of the process of each event.

#[macro_use]
mod common;

use std::path::Path;

use common::{Load, Prog, example, number, run, start, start_watching};
use serde_json::Value;

const EXEC: &str = "sched:sched_process_exec";
/// Each shell has another command to run: otherwise it would exec the program instead of forking.
const SCRIPT: &str = "sh -c '/bin/true; :'; :";

fn lineage(event: &Value) -> Vec<(u64, String)> {
    let kin = event["lineage"].as_array().unwrap_or_else(|| panic!("{event}"));
    kin.iter().map(|kin| (number(kin, "pid"), kin["comm"].as_str().expect("comm").to_owned())).collect()
}

/// The processes of the events.
fn pids(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| number(event, "pid")).collect()
}

#[test]
fn who_starts_programs() {
    need_events!();
    let trace = start(&["trace", "--json", "-e", EXEC, "--ancestors", "--", "sh", "-c", SCRIPT]);
    let ours = [(trace.pid() as u64, "perf-prof".to_owned()), (u64::from(std::process::id()), own_comm())];
    let done = trace.finish().code(0);
    let events = done.of_type("event");
    let [outer, inner, last] = pids(&events).try_into().unwrap_or_else(|pids| panic!("{pids:?}: {done:?}"));
    let want = [(last, "true"), (inner, "sh"), (outer, "sh")].map(|(pid, comm)| (pid, comm.to_owned()));
    for (event, skipped) in events.iter().zip([2, 1, 0]) {
        let told = lineage(event);
        let want: Vec<_> = want[skipped..].iter().chain(&ours).cloned().collect();
        assert_eq!(told[..want.len()], want, "{event}");
        assert!(told.len() <= 9, "{event}");
    }
    let kin = events[2]["lineage"].as_array().expect("lineage");
    let is_told = |kin: &&Value| kin["gone"] == true || kin["command"].is_string();
    assert!(kin[..3].iter().all(|kin| is_told(&kin)), "{kin:?}");
    // The test lives, and so do its own ancestors.
    assert!(kin[4]["command"].as_str().is_some_and(|line| line.contains("ancestors")), "{kin:?}");
    assert_eq!((done.total("lost"), done.total("lost_side")), (0, 0));
}

#[test]
fn a_line_below_the_event_has_the_ancestors() {
    need_events!();
    let done = run(&["trace", "-e", EXEC, "--ancestors", "--", "sh", "-c", SCRIPT]).code(0);
    let [first, .., event, below] = &done.out[..] else { panic!("{done:?}") };
    assert_eq!(done.out.len(), 6, "{done:?}");
    let pid = |line: &str| line.rsplit("old_pid=").next().expect("a field").to_owned();
    let (outer, inner, last) = (pid(first), pid(&done.out[2]), pid(event));
    // Whether they have ended depends on when /proc is read; what they executed is known all the same.
    let names: Vec<&str> = below.trim_start().split(" < ").collect();
    for (told, want) in names.iter().zip([format!("true {last}"), format!("sh {inner}"), format!("sh {outer}")]) {
        let behind = told.strip_prefix(&want).unwrap_or_else(|| panic!("{told} is not {want}"));
        assert!(behind.strip_prefix(" (gone)").unwrap_or(behind).starts_with(": "), "{below}");
    }
    assert!(below.starts_with("    true ") && names.len() > 3, "{below}");
}

#[test]
fn a_fork_has_the_ancestors_of_the_parent() {
    need_events!();
    let event = "sched:sched_process_fork";
    let done = run(&["trace", "--json", "-e", event, "--ancestors", "--", "sh", "-c", SCRIPT]).code(0);
    let forks = done.of_type("event");
    assert_eq!(forks.len(), 2, "{done:?}");
    let [first, second] = [lineage(&forks[0]), lineage(&forks[1])];
    assert_eq!((first[0].0, first[0].1.as_str()), (number(&forks[0]["fields"], "parent_pid"), "sh"), "{forks:?}");
    assert_eq!(second[0].0, number(&forks[0]["fields"], "child_pid"), "{forks:?}");
    assert_eq!(second[1..].first(), first.first(), "{forks:?}");
}

/// The ancestors of a watched process are not watched, but their names are followed.
#[test]
fn names_are_those_at_the_time_of_the_event() {
    need_events!();
    let mut shell = Load::shell();
    let pid = shell.pid().to_string();
    let mut trace = start_watching(&["trace", "-p", &pid, "-e", EXEC, "--ancestors"]);
    let mut parent = |trace: &mut Prog| {
        shell.tell("/bin/true");
        let told = lineage(&trace.object(|event| event["type"] == "event"));
        assert_eq!((told[1].0.to_string(), told[1].1.as_str()), (pid.clone(), "sh"), "{told:?}");
        told[2].1.clone()
    };
    let before = own_comm();
    assert_eq!(parent(&mut trace), before);
    call_ourselves("other-name");
    let other = parent(&mut trace);
    call_ourselves(&before);
    assert_eq!(other, "other-name");
    assert_eq!(parent(&mut trace), before);
    trace.interrupt().code(0);
}

#[test]
fn hostile_names_are_escaped() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("\x1b[2J\n < init 1");
    std::fs::copy("/bin/true", &program).unwrap();
    let path = program.to_str().unwrap();
    let done = run(&["trace", "-e", EXEC, "--ancestors", "--", "sh", "-c", "\"$0\" \"$1\"; :", path, "\x1b]0;x\x07"]);
    assert!(done.out.iter().all(|line| !line.contains(|c: char| c.is_control())), "{done:?}");
    let below = done.out.iter().filter(|line| line.starts_with("    \\x1b[2J\\x0a \\x3c init 1 ")).count();
    assert_eq!((below, done.out.len()), (1, 4), "{done:?}");
}

/// The script that one looks for has ended when its line is written.
#[test]
fn what_was_executed_is_told_of_processes_that_have_ended() {
    need_events!();
    const SCRIPTS: &str = "i=0; while [ $i -lt 50 ]; do sh -c '/bin/true marked; :' script $i; i=$((i+1)); done";
    let done = run(&["trace", "--json", "-e", EXEC, "--ancestors", "--", "sh", "-c", SCRIPTS]).code(0);
    let events = done.of_type("event");
    let of = |event: &Value, at: usize| event["lineage"][at]["command"].as_str().unwrap_or_default().to_owned();
    let programs: Vec<&Value> = events.iter().filter(|event| event["comm"] == "true").collect();
    assert_eq!(programs.len(), 50, "{done:?}");
    for (number, event) in programs.iter().enumerate() {
        assert_eq!(of(event, 0), "/bin/true marked", "{event}");
        assert_eq!(of(event, 1), format!("sh -c /bin/true marked; : script {number}"), "{event}");
    }
    assert!(programs.iter().any(|event| event["lineage"][0]["gone"] == true), "none has ended: {done:?}");
}

/// Most processes have ended before /proc can be read.
#[test]
fn each_of_many_short_lived_processes_has_its_ancestors() {
    need_events!();
    let mut trace = start(&["trace", "--json", "-e", EXEC, "--ancestors", "--", &example("churn"), "400", "2"]);
    let first = trace.object(|event| event["type"] == "event");
    let starter = (number(&first, "pid"), "churn".to_owned());
    let done = trace.finish().code(0);
    let events = done.of_type("event");
    assert_eq!(events.len(), 801, "the starter and its 800");
    for event in events.iter().filter(|event| **event != first) {
        let told = lineage(event);
        assert_eq!(told[0], (number(event, "pid"), "churn".to_owned()), "{event}");
        assert_eq!(told[1], starter, "{event}");
    }
    assert_eq!((done.total("lost"), done.total("lost_side"), done.total("lost_output")), (0, 0, 0));
}

/// The task that an interrupt hits is not its cause.
#[test]
fn an_interrupt_has_no_ancestors() {
    need_events!();
    let event = "timer:hrtimer_expire_entry";
    // Its ticks hit it, and so do the timers of one that sleeps, if they share a CPU.
    let _loads = [Load::of(&example("parts"), &["300000"]), Load::of(&example("flood"), &["1000000000", "1000"])];
    let done = run(&["trace", "--json", "-e", event, "--ancestors", "-N", "20"]).code(0);
    let events = done.of_type("event");
    assert_eq!(events.len(), 20, "{done:?}");
    assert!(events.iter().all(|event| event.get("lineage").is_none()), "{done:?}");
}

fn own_comm() -> String {
    std::fs::read_to_string(own("comm")).expect("own name").trim_end().to_owned()
}

fn call_ourselves(name: &str) {
    std::fs::write(own("comm"), name).expect("own name");
}

fn own(file: &str) -> impl AsRef<Path> {
    format!("/proc/{0}/task/{0}/{file}", std::process::id())
}
