//! Probes in programs: none is left behind, however a run ends.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/uprobes.rs"]
mod uprobes;

use std::fs::{self};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use common::{Load, command, example, load_number, number, run, start, start_watching, until};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;
use perf_prof::event::ProbePoint;
use uprobes::{Kernel, calls, fields, in_file, probe};

#[test]
fn nothing_is_left_after_an_end() {
    let kernel = need_uprobes!();
    let (add, text) = (probe("uprobe", "calls_add", ""), probe("uretprobe", "calls_text", ""));
    let both = format!("{add},{text}");
    let program = example("calls");
    let missing = format!("{add},{}", probe("uprobe", "no_such_function", ""));
    let refused = format!("{add},{}", probe("uprobe", "calls_add", "//args='a=@no_such'/"));
    let cases: [(&[&str], i32); 6] = [
        (&["-e", &both, "--", &program, "5"], 0),
        (&["-e", &both, "-N", "1", "--", &program, "5"], 0),
        (&["-e", &both, "--for", "1ms"], 0),
        (&["-e", &missing], 1),
        (&["-e", &refused], 1),
        (&["-e", &both, "--", "/nonexistent/command"], 1),
    ];
    for (options, code) in cases {
        let prog = start(&[&["trace"], options].concat());
        let pid = prog.pid();
        prog.finish().code(code);
        kernel.has_none_of(pid);
    }
}

/// The first byte of a function in a file, and in the memory of a process that has mapped it.
fn first_bytes(pid: i32, function: &str, path: &str) -> [u8; 2] {
    let place = ProbePoint { function: function.to_owned(), offset: 0, ret: false };
    let offset = in_file(&place, path).offset;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hex");
    let address = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (is_code, at) = (words.next()?.contains('x'), hex(words.next()?));
        let is_there = is_code && line.ends_with(path) && (at..at + hex(end) - hex(start)).contains(&offset);
        is_there.then(|| hex(start) + offset - at)
    });
    let byte = |path: &str, at: u64| {
        let mut byte = [0];
        fs::File::open(path).expect(path).read_exact_at(&mut byte, at).expect("a byte");
        byte[0]
    };
    [byte(path, offset), byte(&format!("/proc/{pid}/mem"), address.expect("mapped code"))]
}

#[test]
fn no_program_runs_into_a_probe_after_the_prompt() {
    let kernel = need_uprobes!();
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("calls"); // nobody else's probes are in it
    common::copy_program(example("calls"), &program);
    let program = program.to_str().expect("UTF-8");
    let mut load = Load::of(program, &["10", "--wait"]);
    load.says();
    let (pid, both) = (load.pid(), format!("uprobe:calls_add@\"{program}\",uretprobe:calls_text@\"{program}\""));
    let target = pid.to_string();
    for options in [&[][..], &["-p", &target]] {
        let watching = start_watching(&[&["trace", "-e", &both], options].concat());
        let own = watching.pid();
        for function in ["calls_add", "calls_text"] {
            let [file, memory] = first_bytes(pid, function, program);
            assert_ne!(file, memory, "{function} has a probe");
        }
        watching.interrupt().code(0);
        for function in ["calls_add", "calls_text"] {
            let [file, memory] = first_bytes(pid, function, program);
            assert_eq!(file, memory, "{function} has none any more");
        }
        kernel.has_none_of(own);
    }
}

#[test]
fn nothing_is_left_after_a_signal() {
    let kernel = need_uprobes!();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let prog = start_watching(&["trace", "-e", &probe("uprobe", "calls_add", "")]);
        let pid = prog.pid();
        kernel.has_of(pid, 1);
        prog.signal(signal);
        prog.finish().code(0);
        kernel.has_none_of(pid);
    }
}

#[test]
fn nothing_is_left_without_a_reader() {
    let kernel = need_uprobes!();
    // A pipe that is full keeps the last report waiting, until a second Ctrl-C.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = command(&["trace", "-e", &probe("uprobe", "calls_add", "")]);
    command.stdout(writer).stderr(std::process::Stdio::null()).stdin(std::process::Stdio::null());
    let mut child = command.spawn().expect("perf-prof");
    drop(command);
    let pid = child.id() as i32;
    until("the probe is there", || kernel.asked_for_by(pid) == 1);
    let calls = || {
        let mut load = Load::of(&example("calls"), &["20000"]);
        load.says();
    };
    // The first call may have come before the event was enabled.
    until("lines come", || {
        calls();
        let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::ZERO).expect("poll") > 0
    });
    calls();
    let interrupt = || nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGINT).expect("signal");
    interrupt();
    until("the probe is gone", || kernel.probes_of(pid) == 0);
    assert!(child.try_wait().expect("wait").is_none(), "the output was not blocked");
    until("it ends", || {
        interrupt();
        child.try_wait().is_ok_and(|end| end.is_some())
    });
    drop(reader);
}

#[test]
fn the_next_run_sweeps_after_a_kill() {
    let kernel = need_uprobes!();
    let other = Own::define(&kernel, "sweeptest");
    let living = start_watching(&["trace", "-e", &probe("uprobe", "calls_text", "")]);
    let killed = start_watching(&["trace", "-e", &probe("uprobe", "calls_add", "")]);
    let pid = killed.pid();
    kernel.has_of(pid, 1);
    killed.signal(Signal::SIGKILL);
    drop(killed); // reaps it
    // The kernel may still be releasing its events; a later run finds them gone.
    until("the next run sweeps", || {
        run(&["trace", "-e", &probe("uprobe", "calls_add", ""), "--for", "1ms"]).code(0);
        kernel.probes_of(pid) == 0
    });
    kernel.has_of(living.pid(), 1);
    assert!(kernel.probes().iter().any(|line| line.contains(&other.name)), "others keep theirs");
    living.interrupt().code(0);
}

#[test]
fn two_runs_do_not_disturb_each_other() {
    let kernel = need_uprobes!();
    let selector = probe("uprobe", "calls_add", "//args='a=$arg1:u64'/");
    let mut first = start_watching(&["trace", "-e", &selector]);
    let second = calls(&[&selector], 100);
    assert_eq!(second.of_type("event").len(), 100);
    // Probes of a run are not listed.
    let done = run(&["trace", "-e", "perf_prof_*:*", "--for", "1ms"]).code(1);
    done.says(&["no event matches"]);
    let mut load = Load::of(&example("calls"), &["50"]);
    let line = load.says();
    let pid = load_number(&line, "pid");
    for i in 0..50 {
        let event = first.object(|object| object["type"] == "event" && object["pid"] == pid);
        assert_eq!(number(&event["fields"], "a"), i);
    }
    let pid = first.pid();
    let done = first.interrupt().code(0);
    assert!(done.of_type("event").len() >= 50, "both loads: {done:#?}");
    kernel.has_none_of(pid);
}

/// A probe defined by the user.
struct Own<'a> {
    kernel: &'a Kernel,
    name: String,
}

impl<'a> Own<'a> {
    fn define(kernel: &'a Kernel, name: &str) -> Own<'a> {
        let place = ProbePoint { function: "calls_add".to_owned(), offset: 0, ret: false };
        let spot = in_file(&place, &example("calls"));
        let own = Own { kernel, name: format!("uprobes/{name}{}", std::process::id()) };
        let register = if cfg!(target_arch = "aarch64") { "%x1" } else { "%si" };
        let line = format!("p:{} {}:{:#x} b={register}:u64", own.name, spot.file.path, spot.offset);
        kernel.tell(&line).expect("a probe");
        own
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        // The process that releases the events of a run may still use the probe.
        let line = format!("-:{}", self.name);
        until("the probe is free", || self.kernel.tell(&line).is_ok());
    }
}

#[test]
fn probes_of_the_user_are_tracepoints() {
    let kernel = need_uprobes!();
    let own = Own::define(&kernel, "mine");
    let name = own.name.replace('/', ":");
    let done = run(&["list", "-v", &name]).code(0);
    assert!(done.out.iter().any(|line| line.trim_start().starts_with("b ")), "{done:#?}");
    let done = calls(&[&format!("{name}/b < 20/")], 100);
    assert_eq!(fields(&done, &name).len(), 10);
    assert!(kernel.probes().iter().any(|line| line.contains(&own.name)), "it stays");
}
