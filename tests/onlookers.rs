//! BPF programs of others on the events of a run: those that may hide events are reported, and no number is exact then.

#[macro_use]
mod common;

use common::bpf::{OnTracepoint, Returns};
use common::seccomp::{Refusal, refused};
use common::{Done, Prog, command, number, run, start_watching};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Skips the test if the kernel does not load BPF programs.
macro_rules! attach {
    ($event:expr, $name:expr, $returns:expr) => {
        match OnTracepoint::attach($event, $name, $returns) {
            Ok(attached) => attached,
            Err(err) => skip!("no BPF program can be attached to {}: {err}", $event),
        }
    };
}

/// A rare system call by this thread.
fn call(nr: libc::c_long) {
    // SAFETY: these take numbers alone, and with a 0 they ask about the caller.
    unsafe { libc::syscall(nr, 0, 0, 0) };
}

fn is_interval(object: &Value) -> bool {
    object["type"] == "interval"
}

fn events(run: &Prog) -> usize {
    run.out.iter().filter(|line| line.starts_with(r#"{"type":"event""#)).count()
}

/// The next interval, which covers only the time after this call.
fn next_interval(run: &mut Prog) -> Value {
    run.signal(Signal::SIGUSR1);
    run.object(is_interval);
    run.signal(Signal::SIGUSR1);
    run.object(is_interval)
}

#[test]
fn a_program_that_hides_events_is_reported_while_attached() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_getpgid";
    let calls = || call(libc::SYS_getpgid);
    let mut run = start_watching(&["trace", "-e", EVENT]);
    run.provoke(calls, |line| line.contains(r#""event":"syscalls:sys_enter_getpgid""#));
    assert_eq!(next_interval(&mut run)["verdict"], "exact");
    let seen = events(&run);

    let program = attach!(EVENT, "hides_it", Returns::Zero);
    let told = format!("{EVENT}: filtered by BPF prog id {} hides_it: events may be hidden from us", program.id);
    run.err_line(|line| line == told);
    (0..100).for_each(|_| calls());
    let interval = next_interval(&mut run);
    assert_eq!(interval["verdict"], "lower_bound", "{interval}");
    assert_eq!(interval["lost"], 0, "{interval}");
    assert!(interval["coverage"].as_f64().is_some_and(|covered| covered < 0.5), "{interval}"); // it is a short one
    let filtered = &interval["filtered_by"];
    assert_eq!((number(&filtered[0], "program"), &filtered[0]["name"]), (program.id, &"hides_it".into()));
    assert_eq!(filtered[0]["events"], serde_json::json!([EVENT]));
    assert_eq!(events(&run), seen, "nothing is hidden by a program that returns 0?");

    let gone = format!("{EVENT}: no longer filtered by BPF prog id {} hides_it", program.id);
    drop(program);
    run.err_line(|line| line == gone);
    let after = next_interval(&mut run);
    assert_eq!((&after["verdict"], after.get("filtered_by")), (&"exact".into(), None), "{after}");
    run.provoke(calls, |line| line.contains(r#""event":"syscalls:sys_enter_getpgid""#));

    let done = run.interrupt().code(0);
    assert_eq!(done.end()["filtered_by"], *filtered, "{done:?}");
    let told = |line: &&String| line.contains("filtered by BPF prog");
    assert_eq!(done.err.iter().filter(told).count(), 2, "{done:?}"); // it came and went
}

/// A view without the event misses nothing.
#[test]
fn only_views_of_the_event_are_in_doubt() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_getpgrp";
    let calls = || call(libc::SYS_getpgrp);
    let hidden = format!("name=hidden trace -e {EVENT}");
    let mut run = start_watching(&["run", "name=calm task-state -S --than 3600s", &hidden]);
    run.provoke(calls, |line| line.contains(r#""event":"syscalls:sys_enter_getpgrp""#));
    let program = attach!(EVENT, "hides_it", Returns::Zero);
    let told = format!("{EVENT}: filtered by BPF prog id {} hides_it: events may be hidden from us", program.id);
    run.err_line(|line| line == told);
    run.signal(Signal::SIGUSR1);
    for view in ["calm", "hidden"] {
        let interval = run.object(|object| is_interval(object) && object["view"] == view);
        let is_covered = interval["coverage"].as_f64() == Some(1.0);
        assert_eq!(is_covered, view == "calm", "{interval}");
        assert!(is_covered || interval["verdict"] == "lower_bound", "{interval}");
    }
    run.interrupt().code(0);
}

#[test]
fn a_program_that_returns_a_constant_1_hides_nothing() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_getsid";
    let program = attach!(EVENT, "looks_on", Returns::One);
    let mut run = start_watching(&["trace", "-e", EVENT]);
    run.provoke(|| call(libc::SYS_getsid), |line| line.starts_with(r#"{"type":"event""#));
    assert_eq!(next_interval(&mut run)["verdict"], "exact");
    let done = run.interrupt().code(0);
    let told = format!("{EVENT}: BPF prog id {} looks_on looks on and hides nothing by itself", program.id);
    assert_eq!(done.err.iter().filter(|line| line.contains("BPF")).collect::<Vec<_>>(), [&told], "{done:?}");
    assert!(done.of_type("interval").iter().all(|interval| interval.get("filtered_by").is_none()), "{done:?}");
    // It is named with -v only.
    let done = common::run(&["trace", "-e", EVENT, "--for", "0.01"]).code(0);
    assert!(!done.err().contains("BPF"), "{done:?}");
}

/// While one program runs on a CPU the kernel runs no other, and drops the event that has it: one of a timer, in an interrupt.
#[test]
fn an_event_inside_another_program_is_dropped_and_counted() {
    need_events!();
    const OUTER: &str = "syscalls:sys_enter_getsid";
    const INNER: &str = "timer:hrtimer_expire_exit";
    let inner = attach!(INNER, "inner", Returns::One);
    let mut run = start_watching(&["top", "-e", INNER]);
    let outer = attach!(OUTER, "outer", Returns::OneAfterLong);
    let interval = loop {
        (0..200).for_each(|_| call(libc::SYS_getsid));
        run.signal(Signal::SIGUSR1);
        let interval = run.object(is_interval);
        if interval.get("filtered_by").is_some() {
            break interval;
        }
    };
    drop((outer, inner));
    let by = &interval["filtered_by"][0];
    assert_eq!((&by["name"], &by["hides_nothing"]), (&"inner".into(), &false.into()), "{interval}");
    assert!(number(by, "missed") > 0 && interval["verdict"] == "lower_bound", "{interval}");
    let done = run.interrupt().code(0);
    let missed = number(&done.end()["filtered_by"][0], "missed");
    assert!(missed >= number(by, "missed"), "{done:?}");
}

/// A program that is not known to hide nothing makes rows and the end inexact.
#[test]
fn rows_are_not_exact_beside_one_that_may_hide_events() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_sched_get_priority_max";
    let _program = attach!(EVENT, "who_knows", Returns::SumOfOne);
    let alloc = format!("{EVENT}//ptr=policy+4096/");
    let free = "syscalls:sys_enter_sched_get_priority_min//ptr=policy+4096/";
    let options = ["kmemleak", "--alloc", &alloc, "--free", free, "-i", "10s", "--strict-loss"];
    let mut run = start_watching(&options);
    let pid = Pid::from_raw(run.pid());
    let call_and_ask = || {
        call(libc::SYS_sched_get_priority_max);
        kill(pid, Signal::SIGUSR1).expect("signal");
    };
    run.provoke(call_and_ask, |line| line.starts_with(r#"{"type":"row""#));
    let done = run.interrupt().code(3);
    let rows = done.of_type("row");
    assert!(rows.iter().all(|row| ["lower_bound", "unsure"].contains(&row["verdict"].as_str().unwrap())), "{rows:?}");
    let text = common::run(&[&options[..], &["--for", "0.01"]].concat()).code(3);
    text.says(&["kmemleak: more events may have been hidden from us by BPF prog id", " who_knows"]);
}

/// If the kernel refuses name and instructions, the program counts as one that may hide events.
#[test]
fn a_refusal_is_reported_once() {
    need_events!();
    const EVENT: &str = "syscalls:sys_enter_sched_rr_get_interval";
    let program = attach!(EVENT, "secret", Returns::One);
    let options = ["trace", "-e", EVENT, "--for", "0.01", "--json"];
    let done = Prog::spawn(refused(command(&options), &[Refusal::of(libc::SYS_bpf, libc::EPERM)])).finish().code(0);
    let told = format!("filtered by BPF prog id {}: events may be hidden from us (", program.id);
    let lines: Vec<&String> = done.err.iter().filter(|line| line.contains("BPF")).collect();
    assert!(lines.len() == 1 && lines[0].contains(&told) && lines[0].contains("CAP_SYS_ADMIN"), "{done:?}");
    assert_eq!(done.of_type("interval")[0]["verdict"], "lower_bound", "{done:?}");
    assert!(done.end()["filtered_by"][0].get("name").is_none(), "{done:?}");
}

/// The program of this test hides nothing, since other tests watch the same event.
#[test]
fn doctor_lists_the_programs_on_the_events_of_profilers() {
    need_events!();
    const EVENT: &str = "sched:sched_process_exec";
    let program = attach!(EVENT, "looks_on", Returns::One);
    let report = run(&["doctor", "--json"]).code(0).json().remove(0);
    let listed = report["machine"]["bpf_programs"].as_array().expect("a list").clone();
    let ours = listed.iter().find(|listed| number(listed, "program") == program.id).expect("the program");
    assert_eq!((&ours["name"], &ours["hides_nothing"]), (&"looks_on".into(), &true.into()), "{ours}");
    assert_eq!(ours["events"], serde_json::json!([EVENT]));
    let words = |done: Done| done.out.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ");
    let told = format!("{EVENT}: BPF prog id {} looks_on looks on and hides nothing", program.id);
    let all = words(run(&["doctor", "-v"]).code(0));
    assert!(all.contains(&told), "{told}: {all}");
    assert!(!words(run(&["doctor"]).code(0)).contains("looks_on"));
}

/// The free of an object that is still listed may have been hidden, also in later reports.
#[test]
fn an_object_whose_end_may_be_hidden_is_in_doubt() {
    need_events!();
    const FREE: &str = "syscalls:sys_enter_sched_getscheduler";
    let alloc = "syscalls:sys_enter_sched_getparam//ptr=pid+4096/";
    let mut run = start_watching(&["kmemleak", "--alloc", alloc, "--free", &format!("{FREE}//ptr=pid+4096/")]);
    let pid = Pid::from_raw(run.pid());
    let alloc_and_ask = || {
        call(libc::SYS_sched_getparam);
        kill(pid, Signal::SIGUSR1).expect("signal");
    };
    let row: Value =
        serde_json::from_str(&run.provoke(alloc_and_ask, |line| line.contains(r#""type":"row""#))).unwrap();
    assert_eq!(row["verdict"], "exact", "{row}");
    let program = attach!(FREE, "hides_frees", Returns::Zero);
    run.err_line(|line| line.contains("hides_frees: events may be hidden from us"));
    call(libc::SYS_sched_getscheduler);
    drop(program);
    run.err_line(|line| line.contains("no longer filtered by BPF prog"));
    let last = next_interval(&mut run);
    let rows = run.rows_of(&last["interval"]);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["verdict"] == "unsure"), "{rows:?}");
    run.interrupt().code(0);
}
