//! A fault in a stage of the data path changes the counter of that stage and no other: the kernel's rings, for samples
//! and for side records; the analysis. A full table of stacks is in `faults_stacks`, the output in `faults_output`.

#[macro_use]
mod common;

use common::{Again, Attempted, Load, example, load_number, number, or_again, run_over, start_watching, syscall};
use nix::sys::signal::Signal;
use perf_prof::sys::monotonic_ns;
use serde_json::Value;

/// Events during the 5 s in which the reader is stopped.
const CALLS: u64 = 100_000;
const PER_S: u64 = 20_000;
const AFTERWARDS: u64 = 50;

#[track_caller]
fn none_but(end: &Value, counters: &[&str]) {
    for counter in ["lost", "lost_output", "lost_side", "lost_stacks", "malformed", "discarded"] {
        assert!(number(end, counter) == 0 || counters.contains(&counter), "{counter}: {end}");
    }
}

#[test]
fn a_reader_that_stood_still_loses_in_the_ring_and_goes_on() {
    need_events!();
    let mut shell = Load::shell();
    let event = syscall(libc::SYS_sched_yield);
    let mut run = start_watching(&["trace", "-e", &event, "-m", "16", "-p", &shell.pid().to_string()]);
    let stopped_ns = monotonic_ns();
    run.signal(Signal::SIGSTOP);
    let mut flood = |calls: u64, per_s: u64| {
        shell.tell(&format!("{} {calls} {per_s} sched_yield", example("flood")));
        load_number(&shell.says(), "pid")
    };
    let unseen = flood(CALLS, PER_S);
    run.signal(Signal::SIGCONT);
    let going_on_ns = monotonic_ns();
    // It has caught up.
    run.signal(Signal::SIGUSR1);
    run.object(|object| object["type"] == "interval" && number(object, "lost") > 0);
    let seen = flood(AFTERWARDS, 0);
    shell.stop();
    let done = run.finish().code(0);
    let end = done.end();
    none_but(&end, &["lost", "lost_side"]);
    assert_eq!(number(&end, "samples") + number(&end, "lost"), CALLS + AFTERWARDS, "{end}");
    let of = |pid: u64| done.of_type("event").iter().filter(|event| event["pid"] == pid).count() as u64;
    assert_eq!((of(unseen), of(seen)), (number(&end, "samples") - AFTERWARDS, AFTERWARDS), "{end}");
    assert!(number(&end, "lost") > CALLS / 2, "64 KiB hold much: {end}");
    let intervals = done.of_type("interval");
    let windows: Vec<&Value> =
        intervals.iter().flat_map(|interval| interval["lost_windows"].as_array().expect("a list")).collect();
    assert!(!windows.is_empty(), "{intervals:?}");
    for window in windows {
        // The window ends with the LOST record, which precedes the first record that fits again.
        assert!(number(window, "start_ns") >= stopped_ns && number(window, "start_ns") <= going_on_ns, "{window}");
    }
    let dark = |interval: &Value| interval["coverage"].as_f64().is_some_and(|coverage| coverage < 1.0);
    for interval in &intervals {
        assert!(number(interval, "lost") == 0 || dark(interval), "{interval}");
    }
    assert!(intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]), "intervals join");
}

#[test]
fn waits_are_right_after_a_reader_has_stood_still() {
    need_events!(alone);
    common::attempts(try_waits_are_right_after_a_reader_has_stood_still);
}

fn try_waits_are_right_after_a_reader_has_stood_still() -> Attempted {
    let mut shell = Load::shell();
    let pid = shell.pid().to_string();
    let mut run = start_watching(&["task-state", "-S", "--perins", "-m", "64", "-p", &pid]);
    run.signal(Signal::SIGSTOP);
    shell.tell(&format!("{} 100000", example("pingpong")));
    shell.says();
    run.signal(Signal::SIGCONT);
    run.signal(Signal::SIGUSR1);
    run.object(|object| object["type"] == "interval" && number(object, "lost") > 0);
    shell.tell(&format!("{} 1 500", example("threads")));
    let load = shell.says();
    shell.stop();
    let done = run.finish().code(0);
    let end = done.end();
    none_but(&end, &["lost", "lost_side", "discarded"]);
    let rows: Vec<Value> =
        done.of_type("row").into_iter().filter(|row| row["comm"].as_str() == Some("thread-0")).collect();
    let of = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
    assert!(of("total_ns") <= load_number(&load, "wall_ns"), "{rows:?}: {load}");
    // The five sleeps, and the waits before and after them.
    or_again(of("count") >= 5, &[Again::IdleHidden(&done), Again::TaskHidden(&done)], || {
        format!("an end of a sleep: {rows:?}: {end}")
    })?;
    assert!(of("total_ns") >= 500_000_000, "{rows:?}: {load}");
    Ok(())
}

#[test]
fn side_records_that_are_lost_are_no_samples() {
    need_events!();
    let cpus = common::online_cpus();
    let forks = 1500 * cpus.len() as u64;
    let mut shell = Load::shell();
    let mut run = start_watching(&["trace", "-e", "sched:sched_process_exec/pid==-1/", "-m", "1"]);
    run.signal(Signal::SIGSTOP);
    shell.tell(&format!("i=0; while [ $i -lt {forks} ]; do (:); i=$((i+1)); done; echo done"));
    assert_eq!(shell.says(), "done");
    run.signal(Signal::SIGCONT);
    run.signal(Signal::SIGUSR1);
    run.object(|object| object["type"] == "interval");
    shell.stop();
    // No later record can show the loss: the counters of the kernel are read.
    let done = run.interrupt().code(0);
    let (end, intervals) = (done.end(), done.of_type("interval"));
    none_but(&end, &["lost_side"]);
    assert_eq!(intervals.iter().map(|interval| number(interval, "lost_side")).sum::<u64>(), number(&end, "lost_side"));
    assert!(intervals.iter().all(|interval| interval["lost_windows"].as_array().is_some_and(Vec::is_empty)), "{end}");
    assert!(intervals.iter().any(|interval| interval["verdict"] != "exact"), "{intervals:?}");
    // The ring of 64 KiB holds at most 1,024 side records, whose minimum size is 64 bytes; each process has at least
    // two: its fork and its exit.
    assert!(number(&end, "lost_side") >= 2 * forks - 1024 * cpus.len() as u64, "{end}");
    assert_eq!(number(&end, "samples"), 0, "{end}");
}

#[test]
fn records_without_a_value_are_malformed() {
    need_events!();
    const COUNT: u64 = 1000;
    // Half of the numbers are even.
    let alloc = "syscalls:sys_enter_close/fd>=1048576/ptr=(fd/(fd&1))/";
    let free = format!("raw_syscalls:sys_enter/id=={}/ptr=id/", libc::SYS_getppid);
    let options = ["kmemleak", "--alloc", alloc, "--free", &free, "--json"];
    let end = run_over(&options, &[&example("turns"), &COUNT.to_string(), "21"]).end();
    none_but(&end, &["malformed"]);
    assert_eq!((number(&end, "malformed"), number(&end, "outstanding")), (COUNT / 2, COUNT / 2), "{end}");
}
