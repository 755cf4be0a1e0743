//! task-state against tasks that wait already: their stacks are read while they wait, to the start of the program.

#[macro_use]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::waits::still_waiting;
use common::{Load, start, state_letter, until};
use serde_json::Value;

/// Waits in `inner`, which `main` calls by `outer` and `middle`. Says so before.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int sum;

static __attribute__((noinline)) void inner(const char *how)
{
    char byte;
    if (!strcmp(how, "nanosleep")) {
        struct timespec long_time = { 1000, 0 };
        nanosleep(&long_time, NULL);
    } else if (!strcmp(how, "read")) {
        sum += read(0, &byte, 1);
    } else if (!strcmp(how, "vfork")) {
        /* As fork does, but the parent waits, in D, until the child is done. */
        if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
    }
    sum++;
}

static __attribute__((noinline)) int middle(const char *how)
{
    char bytes[3000];
    memset(bytes, sum, sizeof bytes);
    inner(how);
    return bytes[sum & 7] + 1;
}

/* Its frame is found by rbp, which nobody knows of a task that sleeps, but whom `middle` has saved it for. */
static __attribute__((noinline)) int by_pointer(const char *how, int size)
{
    char *bytes = alloca(size);
    memset(bytes, 1, size);
    return middle(how) + bytes[sum & 7];
}

static __attribute__((noinline)) int outer(const char *how, int depth)
{
    if (depth)
        return outer(how, depth - 1) + 1;
    return (how[0] == 'a' ? by_pointer(how + 1, sum + 100) : middle(how)) + 1;
}

int main(int argc, char **argv)
{
    puts("ready");
    fflush(stdout);
    return outer(argv[1], 3) + argc;
}
"#;

struct Built {
    dir: tempfile::TempDir,
}

impl Built {
    fn new() -> Built {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("sleeper.c");
        fs::write(&source, PROGRAM).expect("a file");
        let built = Command::new("cc")
            .args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-w", "-o"])
            .arg(dir.path().join("sleeper"))
            .arg(&source)
            .status();
        assert!(built.expect("cc").success());
        Built { dir }
    }

    /// One that waits in this way, in this state.
    fn start(&self, how: &str, state: char) -> Load {
        let program = self.dir.path().join("sleeper");
        let mut load = Load::of(program.to_str().expect("UTF-8"), &[how]);
        assert_eq!(load.says(), "ready");
        waits(&load, state);
        load
    }
}

/// Until it waits in a system call.
fn waits(load: &Load, state: char) {
    let pid = load.pid();
    let call = format!("/proc/{pid}/syscall");
    until("it waits", || {
        let is_in_call = fs::read_to_string(&call).is_ok_and(|line| line.split(' ').count() == 9);
        is_in_call && state_letter(pid as u64) == Some(state)
    });
}

/// A line about a task that waited at the start, with its stack. A machine that is busy may not read that in time for the
/// first line.
fn found_waiting(load: &Load) -> Value {
    let mut prof = start(&["task-state", "--than", "100", "-g", "-p", &load.pid().to_string(), "--json"]);
    let event = prof.object(|event| still_waiting(event) && !event["user_stack"].is_null());
    let events = prof.interrupt().code(0).of_type("event");
    assert!(events.iter().all(|event| event["since"] == "before_start"), "{events:?}");
    assert_eq!(event["user_stack"], "as_of_now", "{event}");
    event
}

fn frames(event: &Value) -> &[Value] {
    event["stack"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn symbol(frame: &Value) -> &str {
    frame["symbol"].as_str().unwrap_or("-")
}

/// The frames of the user part: of functions that lie in a file.
fn user_part(event: &Value) -> Vec<&Value> {
    let is_user = |frame: &&Value| frame["module"].as_str().is_some_and(|module| module.starts_with('/'));
    frames(event).iter().filter(is_user).collect()
}

const CHAIN: [&str; 7] = ["inner", "middle", "outer", "outer", "outer", "outer", "main"];

fn of_program<'a>(event: &'a Value, name: &str) -> Vec<&'a str> {
    let is_of = |frame: &&Value| frame["module"].as_str().is_some_and(|module| module.ends_with(name));
    user_part(event).into_iter().filter(is_of).map(symbol).collect()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_sleeper_has_its_whole_stack() {
    need_events!();
    let built = Built::new();
    for (how, state, call) in [("nanosleep", 'S', "clock_nanosleep"), ("read", 'S', "read"), ("vfork", 'D', "syscall")]
    {
        let load = built.start(how, state);
        let event = found_waiting(&load);
        assert_eq!(event["state"], state.to_string(), "{event}");
        let user = user_part(&event);
        assert!(symbol(user[0]).contains(call), "{how}: {event:#}");
        let of_program = of_program(&event, "/sleeper");
        assert_eq!(of_program[..CHAIN.len()], CHAIN, "{how}: {event:#}");
        // The kernel's part is before it.
        assert!(frames(&event)[0]["module"] == "[kernel]" && frames(&event).len() > user.len(), "{event:#}");
        let outermost = symbol(user[user.len() - 1]);
        assert!(outermost == "_start", "{how}: {event:#}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_frame_by_a_lost_pointer_is_not_made_up() {
    need_events!();
    let load = Built::new().start("aread", 'S');
    let event = found_waiting(&load);
    let of_program = of_program(&event, "/sleeper");
    let whole = ["inner", "middle", "by_pointer", "outer", "outer", "outer", "outer", "main"];
    let len = of_program.len().min(whole.len());
    assert!(len >= 3 && of_program[..len] == whole[..len], "{event:#}");
}

#[test]
fn a_line_says_when_the_stack_was_read() {
    need_events!();
    let load = Built::new().start("read", 'S');
    let mut prof = start(&["task-state", "--than", "100", "-g", "-p", &load.pid().to_string()]);
    let line = prof.line(|line| line.contains("still waiting") && line.contains(", user stack as of now"));
    prof.interrupt().code(0);
    assert!(line.contains(" in read(0, "), "{line}");
}

const SCRIPT: &str = "
import os, sys, time
class Waiter:
    def inner(self, n):
        if n:
            return self.inner(n - 1)
        return time.sleep(1000) if 'sleep' in sys.argv else os.read(0, 100)
def by_c(n):
    w = Waiter()
    return max([1], key=lambda x: w.inner(n))
print('ready', flush=True)
while by_c(2): pass
";

/// Interpreters that are known, where they are installed.
fn pythons() -> Vec<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let all =
        path.split(':').flat_map(|dir| (11..=13).map(move |minor| Path::new(dir).join(format!("python3.{minor}"))));
    let runs = |program: &PathBuf| {
        let output = Command::new(program).args(["-c", "print(1)"]).stderr(std::process::Stdio::null()).output();
        output.is_ok_and(|output| output.stdout == b"1\n")
    };
    let mut pythons: Vec<PathBuf> = all.filter(|program| program.exists() && runs(program)).collect();
    pythons.sort();
    pythons.dedup_by_key(|program| program.canonicalize().ok());
    pythons
}

fn start_python(python: &Path, dir: &Path, arg: &str) -> Load {
    let script = dir.join("wait\x1b.py");
    fs::write(&script, SCRIPT).expect("a file");
    let mut load = Load::of(python.to_str().expect("UTF-8"), &[script.to_str().expect("UTF-8"), arg]);
    assert_eq!(load.says(), "ready");
    waits(&load, 'S');
    load
}

fn python_frames(event: &Value) -> Vec<String> {
    let is_python = |frame: &&Value| frame["module"].as_str().is_some_and(|module| module.ends_with("/wait\\x1b.py"));
    let shown = |frame: &Value| format!("{} {}", symbol(frame), frame["line"]);
    frames(event).iter().filter(is_python).map(shown).collect()
}

const FUNCTIONS: [&str; 6] =
    ["Waiter.inner 7", "Waiter.inner 6", "Waiter.inner 6", "by_c.<locals>.<lambda> 10", "by_c 10", "<module> 12"];

#[test]
fn python_shows_its_functions() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let pythons = pythons();
    let Some(first) = pythons.first() else { skip!("no python3.11, python3.12 or python3.13") };
    for python in &pythons {
        let load = start_python(python, dir.path(), "sleep");
        let event = found_waiting(&load);
        assert_eq!(python_frames(&event), FUNCTIONS, "{python:?} {event:#}");
        if cfg!(target_arch = "x86_64") {
            assert!(frames(&event).iter().all(|frame| symbol(frame) != "_PyEval_EvalFrameDefault"), "{event:#}");
        }
    }
    let load = start_python(first, dir.path(), "read");
    let mut prof = start(&["task-state", "--than", "100", "-g", "-p", &load.pid().to_string()]);
    prof.line(|line| line.contains("still waiting"));
    prof.line(|line| line == "    Waiter.inner (wait\\x1b.py:7)");
    prof.line(|line| line == "    <module> (wait\\x1b.py:12)");
    prof.interrupt().code(0);
}

/// One that began after the start, whose record has what the kernel found.
#[test]
fn python_shows_its_functions_in_a_wait_that_was_recorded() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let Some(python) = pythons().into_iter().next() else { skip!("no python3.11, python3.12 or python3.13") };
    let mut load = start_python(&python, dir.path(), "read");
    let mut prof = start(&["task-state", "--than", "100", "-g", "-p", &load.pid().to_string(), "--json"]);
    prof.object(still_waiting);
    load.tell("on");
    let event = prof.object(|event| still_waiting(event) && event["since"].is_null() && !event["user_stack"].is_null());
    prof.interrupt().code(0);
    assert_eq!(python_frames(&event), FUNCTIONS, "{event:#}");
}
