//! What may hang in the hands of others: it stalls nobody, and leaves nothing behind.

#[macro_use]
mod common;

use std::path::Path;
use std::process::Command;

use common::{Load, Prog, children, example, start, until};
use nix::sys::signal::Signal;

/// A process that has mapped a file that does not answer, and its pid; with the directory that was mounted for a moment. `kind`: see
/// examples/stalled.rs.
fn stalled(kind: &str) -> (tempfile::TempDir, Load, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut load = Load::of(&example("stalled"), &[dir.path().to_str().expect("UTF-8"), kind]);
    let pid = load.says();
    (dir, load, pid)
}

/// Skips the test if files cannot be made to hang.
macro_rules! need_fuse {
    () => {
        if !Path::new("/dev/fuse").exists() {
            skip!("this kernel has no FUSE");
        }
    };
}

fn is_alive(pid: &i32) -> bool {
    common::state_letter(*pid as u64).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a process waits for a page of a file, by itself or behind another one.
fn hangs(pid: &i32) -> bool {
    let place = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    ["request_wait", "folio_"].iter().any(|word| place.contains(word))
}

/// SIGINT is blocked in the process.
fn holds_interrupt(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    blocked.is_some_and(|signals| signals & 1 << (Signal::SIGINT as i32 - 1) != 0)
}

#[test]
fn memory_that_does_not_answer_stalls_nobody() {
    need_events!();
    need_fuse!();
    let mut run = start(&["trace", "-e", "syscalls:sys_enter_openat", "-v"]);
    run.err_line(|line| line.contains("ring buffer"));
    let see = |run: &mut Prog, path: &str| run.provoke(|| drop(std::fs::File::open(path)), |line| line.contains(path));
    see(&mut run, "/nowhere/before");
    let (_dir, load, pid) = stalled("memory");
    let about = format!("no answer about process {pid} ");
    run.err_line(|line| line.contains(&about));
    see(&mut run, "/nowhere/after");
    let helpers = run.helpers();
    let done = run.interrupt().code(0);
    assert!(done.out.iter().any(|line| line.contains(&format!(" {pid} ")) || line.contains(&pid)), "{pid}");
    // Its server goes, and with it what the worker waits for.
    drop(load);
    until("nobody is left", || !helpers.iter().any(is_alive));
}

#[test]
fn a_search_for_functions_ends_at_a_file_that_does_not_answer() {
    need_events!();
    need_fuse!();
    let (_dir, load, pid) = stalled("code");
    let run = start(&["trace", "-e", "uprobe:malloc_of_nobody", "-p", &pid]);
    until("it searches", || run.helpers().len() > 1);
    let helpers = run.helpers();
    let done = run.finish().code(1);
    done.says(&["uprobe:malloc_of_nobody: no answer from /file, which process ", &pid]);
    // Also one that is ended before it gives up.
    let run = start(&["trace", "-e", "uprobe:malloc_of_nobody", "-p", &pid]);
    until("a worker hangs", || run.helpers().iter().any(hangs));
    let others = run.helpers();
    assert_eq!(run.interrupt().signal(), Some(Signal::SIGINT as i32));
    // With a probe defined, which must not be left behind, the signal is held.
    let first = format!("trace -e 'uprobe:main@\"{}\"'", example("calls"));
    let run = start(&["run", "-p", &pid, &first, "name=second trace -e uprobe:malloc_of_nobody"]);
    until("the signal is held", || holds_interrupt(run.pid()));
    until("a worker hangs", || run.helpers().iter().any(hangs));
    let more = run.helpers();
    run.interrupt().code(1).says(&["uprobe:malloc_of_nobody: told to end before the function was found"]);
    drop(load);
    until("nobody is left", || !helpers.iter().chain(&others).chain(&more).any(is_alive));
}

#[test]
fn a_command_whose_file_does_not_answer_can_be_ended() {
    need_events!();
    need_fuse!();
    let (_dir, load, pid) = stalled("code");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let line = maps.lines().find(|line| line.ends_with(" /file")).expect("the file");
    let command = format!("/proc/{pid}/map_files/{}", line.split(' ').next().expect("addresses"));
    let run = start(&["trace", "-e", "sched:sched_process_exec", "--", &command]);
    until("the command hangs", || run.helpers().iter().any(hangs));
    let helpers = run.helpers();
    run.signal(Signal::SIGINT);
    assert!(common::ends_within(run.pid(), common::GUARD), "it ends");
    drop(load); // the command has the output open as long as it hangs
    run.finish().code(0);
    until("nobody is left", || !helpers.iter().any(is_alive));
}

#[test]
fn a_run_that_is_killed_leaves_no_process() {
    need_events!();
    let mut run = start(&["profile", "-g", "-v"]);
    run.err_line(|line| line.contains("ring buffer"));
    let helpers = run.helpers();
    assert!(helpers.len() > 1, "{helpers:?}");
    run.signal(Signal::SIGKILL);
    assert_eq!(run.finish().signal(), Some(Signal::SIGKILL as i32));
    until("nobody is left", || !helpers.iter().any(is_alive));
}

/// As in a container without an init: what a run leaves behind stays for good.
#[test]
fn a_run_leaves_no_zombies_where_nobody_reaps_them() {
    need_events!();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", r#""$0" "$@" & exec sleep 1000"#]);
    command.args([env!("CARGO_BIN_EXE_perf-prof"), "trace", "-e", "sched:sched_switch", "--for", "100ms", "-v"]);
    let mut run = Prog::spawn(command);
    let first = run.err_line(|line| line.contains("ring buffer") || line.starts_with("unshare:"));
    if first.starts_with("unshare:") {
        skip!("{first}");
    }
    let [init] = children(run.pid())[..] else { panic!("unshare has one child") };
    let left = || -> Vec<String> {
        let text = |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        children(init).into_iter().map(|pid| text(pid, "comm").trim().to_owned()).collect()
    };
    until("the run has ended", || children(init).iter().all(|pid| !is_alive(pid)));
    assert_eq!(left(), ["perf-prof"], "the run itself, which is a child of the first process");
    run.signal(Signal::SIGKILL);
    run.finish();
}
