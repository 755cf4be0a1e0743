//! What may hang in the hands of others: it stalls nobody, and leaves nothing behind.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{Load, Prog, example, start, until};
use nix::sys::signal::Signal;

/// A process whose memory does not answer, and its pid; with the directory that was mounted for a moment.
fn stalled() -> (tempfile::TempDir, Load, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut load = Load::of(&example("stalled"), &[dir.path().to_str().expect("UTF-8")]);
    let pid = load.says();
    (dir, load, pid)
}

/// The processes of a run that ask about others: the one that forks them, and its children.
fn helpers(run: &Prog) -> BTreeSet<i32> {
    let children = |pid: i32| -> Vec<i32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let forks = children(run.pid());
    forks.iter().copied().chain(forks.iter().flat_map(|pid| children(*pid))).collect()
}

fn is_alive(pid: &i32) -> bool {
    common::state_letter(*pid as u64).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[test]
fn memory_that_does_not_answer_stalls_nobody() {
    need_events!();
    if !Path::new("/dev/fuse").exists() {
        skip!("this kernel has no FUSE");
    }
    let mut run = start(&["trace", "-e", "syscalls:sys_enter_openat", "-v"]);
    run.err_line(|line| line.contains("ring buffer"));
    let see = |run: &mut Prog, path: &str| run.provoke(|| drop(std::fs::File::open(path)), |line| line.contains(path));
    see(&mut run, "/nowhere/before");
    let (_dir, load, pid) = stalled();
    let about = format!("no answer about process {pid} ");
    run.err_line(|line| line.contains(&about));
    see(&mut run, "/nowhere/after");
    let helpers = helpers(&run);
    let done = run.interrupt().code(0);
    assert!(done.out.iter().any(|line| line.contains(&format!(" {pid} ")) || line.contains(&pid)), "{pid}");
    // Its server goes, and with it what the worker waits for.
    drop(load);
    until("nobody is left", || !helpers.iter().any(is_alive));
}

#[test]
fn a_run_that_is_killed_leaves_no_process() {
    need_events!();
    let mut run = start(&["profile", "-g", "-v"]);
    run.err_line(|line| line.contains("ring buffer"));
    let helpers = helpers(&run);
    assert!(helpers.len() > 1, "{helpers:?}");
    run.signal(Signal::SIGKILL);
    assert_eq!(run.finish().signal(), Some(Signal::SIGKILL as i32));
    until("nobody is left", || !helpers.iter().any(is_alive));
}
