//! Targets that go while they are looked for, and a target of a thousand threads.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use common::{Load, example, number, run, start, syscall, until};

#[test]
fn a_target_that_goes_at_any_moment() {
    need_events!();
    let event = syscall(libc::SYS_getppid);
    let (mut gone, mut ended) = (0, 0);
    for step in 0..60 {
        let load = Load::of("sleep", &["100"]);
        let pid = load.pid().to_string();
        let args: &[&str] = match step % 3 {
            0 => &["trace", "-e", &event, "-p", &pid],
            1 => &["task-state", "-p", &pid],
            _ => &["trace", "-g", "-e", &event, "-t", &pid],
        };
        let run = start(args);
        // The target exits at any time from before perf-prof first reads /proc to after its last reading.
        let moment = Instant::now() + Duration::from_micros(500 * step);
        while Instant::now() < moment {
            std::thread::yield_now();
        }
        drop(load);
        let done = run.finish();
        if done.err().contains("perf-prof: ") {
            let done = done.code(1);
            assert_eq!((done.out.len(), done.err.len()), (0, 1), "{done:?}");
            assert!(done.err[0].contains(&pid) || done.err[0].contains("the target has gone"), "{done:?}");
            gone += 1;
        } else {
            done.code(0).says(&[" 0 lost"]);
            ended += 1;
        }
    }
    println!("{gone} were gone, {ended} ended the run");
    assert!(gone > 0 && ended > 0, "{gone} were gone, {ended} ended the run");
}

#[test]
fn children_that_go_while_they_are_looked_for() {
    need_events!();
    let mut shell = Load::shell();
    shell.tell("while :; do (:); (:) & done");
    let pid = shell.pid().to_string();
    for _ in 0..30 {
        let done = run(&["trace", "-e", &syscall(libc::SYS_sched_yield), "-p", &pid, "--for", "1ms"]).code(0);
        // Perhaps children live, which are not watched.
        let notes = done.err.iter().filter(|line| !line.starts_with("-p: ")).count();
        assert!(notes == 1 && done.err.len() <= 2 && done.out.is_empty(), "{done:?}");
    }
}

#[test]
fn a_thousand_threads_are_attached_to() {
    need_events!();
    const THREADS: usize = 1000;
    // All threads start five sleeps, at the same times.
    let load = Load::of(&example("threads"), &[&THREADS.to_string(), "10000"]);
    let pid = load.pid().to_string();
    until("all threads live", || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > THREADS));
    let event = syscall(libc::SYS_clock_nanosleep);
    // Even if first sleeps are missed, twice as many calls include at least one whole round.
    let done = run(&["trace", "--json", "-e", &event, "-p", &pid, "-N", &(2 * THREADS).to_string()]).code(0);
    let threads: BTreeSet<u64> = done.of_type("event").iter().map(|event| number(event, "tid")).collect();
    assert_eq!((threads.len(), done.shown()), (THREADS, 2 * THREADS as u64), "{:?}", done.err);
    assert_eq!(done.total("lost"), 0);
}
