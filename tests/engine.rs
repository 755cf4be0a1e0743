//! The engine behind every profiler, run through `trace`: losses, signals, output. Targets are in `targets`.

#[macro_use]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Again, CpuWatch, Done, GUARD, Load, Prog, command, ends_within, example, getppid, getuid, hurry, number, or_again,
    own_tid, run, run_over, start, start_watching, syscall,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const EXEC: &str = "sched:sched_process_exec";

// Losses

#[test]
fn a_flood_through_one_page_is_counted_to_the_last_call() {
    need_events!();
    const CALLS: u64 = 1_000_000;
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    for round in 0..10 {
        let options = ["trace", "--json", "-m", "1", "-i", "50", "-e", &event];
        let done = run_over(&options, &[&flood, "1000000"]);
        let end = done.end();
        let (seen, lost, unprinted) = (number(&end, "samples"), number(&end, "lost"), number(&end, "lost_output"));
        assert_eq!(seen + lost, CALLS, "round {round}: {end}");
        assert!(lost > 0, "round {round}: a flood fits one page? {end}");
        assert_eq!(done.shown() + unprinted, seen, "round {round}: {end}");
        let intervals: Vec<Value> = done
            .out
            .iter()
            .filter(|line| line.starts_with(r#"{"type":"interval""#))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(intervals.iter().map(|interval| number(interval, "lost")).sum::<u64>(), lost, "round {round}");
        assert_eq!(intervals.iter().map(|interval| number(interval, "samples")).sum::<u64>(), seen, "round {round}");
        assert_eq!(intervals.len() as u64, number(&end, "intervals"), "round {round}");
        for interval in &intervals {
            let coverage = interval["coverage"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&coverage), "{interval}");
            assert!(
                number(interval, "lost") == 0 || interval["lost_windows"].as_array().is_some_and(|w| !w.is_empty()),
                "{interval}"
            );
        }
    }
}

#[test]
fn the_cure_for_a_loss_cures_it() {
    need_events!(alone);
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    // Both at a high priority: a load that had to wait for a CPU catches up, at a higher frequency than the first time.
    let trace = |pages: &str, interval: &str| {
        let mut command = Command::new("chrt");
        command.args([
            "-f",
            "1",
            env!("CARGO_BIN_EXE_perf-prof"),
            "trace",
            "-m",
            pages,
            "-i",
            interval,
            "-o",
            "/dev/null",
        ]);
        command.args(["-e", &event, "--", &flood, "200000", "200000"]);
        Prog::spawn(command).finish().code(0)
    };
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let small = trace("1", "200");
        let lines: Vec<&String> = small.err.iter().filter(|line| line.contains("would have sufficed")).collect();
        assert!(!lines.is_empty(), "{small:?}");
        for line in &lines {
            assert!(line.starts_with("trace: lost ") && line.contains("KiB") | line.contains("MiB"), "{line}");
        }
        let advised = lines.last().unwrap().split("-m ").nth(1).unwrap().split(' ').next().unwrap();
        let large = trace(advised, "200");
        let is_cured = !large.err().contains("would have sufficed") && large.err().contains(" 0 lost");
        assert!(!is_cured || large.err().contains("200000 events in"), "-m {advised}: {large:?}");
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(5))];
        or_again(is_cured, &reasons, || format!("-m {advised}: {large:?}"))
    });
}

#[test]
fn there_is_one_loss_line_per_interval() {
    need_events!();
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    // No interval ends within the run: the last one, partial, is the only one.
    let mut args = vec!["trace", "-m", "1", "-i", "100s", "-o", "/dev/null", "-e", &event];
    args.extend(["--", &flood, "1000000"]);
    let done = run(&args).code(0);
    assert_eq!(done.err.iter().filter(|line| line.starts_with("trace: lost ")).count(), 1, "{done:?}");
}

#[test]
fn a_small_ring_is_emptied_again_and_again() {
    need_events!(alone);
    // Bursts of about 200 calls a millisecond. A page holds 30 to 40 of them; a reader that sleeps for 100 ms while
    // records stay above the horizon sees about ten pages a second. Both run at a high priority: late
    // bursts are larger, and a late reader finds one page again.
    common::attempts(|| {
        let watch = CpuWatch::by_clock();
        let mut shell = Load::shell();
        let event = syscall(libc::SYS_getppid);
        let run = start_watching(&["trace", "-m", "1", "-e", &event, "-p", &shell.pid().to_string()]);
        [run.pid(), shell.pid()].into_iter().for_each(hurry);
        shell.tell(&format!("{} 400000 200000", example("flood")));
        shell.says();
        let end = run.interrupt().code(0).end();
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(100))];
        or_again(number(&end, "samples") > 2_500, &reasons, || end.to_string())
    });
}

#[test]
fn a_flood_hides_no_rare_event() {
    need_events!();
    const EXECS: usize = 50; // records of as many fit a ring
    let script = format!(
        "{} 100000 >/dev/null & for _ in $(seq {EXECS}); do /bin/true; done; wait; echo done",
        example("flood")
    );
    let rare =
        ["sched:sched_process_exec", "sched:sched_process_fork", "sched:sched_process_exit", "signal:signal_generate"];
    // One event with a ring of its own; four events that share one.
    for rare in [&rare[..1], &rare[..]] {
        let mut shell = Load::shell();
        let pid = shell.pid().to_string();
        let mut args = vec!["trace", "-m", "16", "-p", &pid, "-e", "raw_syscalls:sys_enter"];
        args.extend(rare.iter().flat_map(|event| ["-e", event]));
        let run = start_watching(&args);
        run.stopped(|| {
            shell.tell(&script);
            shell.says();
        });
        let done = run.interrupt().code(0);
        let end = done.end();
        assert!(number(&end, "lost") > 10_000 && number(&end, "lost_side") == 0, "{end}");
        let execs = done.out.iter().filter(|line| line.contains(r#""filename":"/bin/true""#)).count();
        assert_eq!(execs, EXECS, "{end}");
    }
}

#[test]
fn strict_loss_is_an_exit_code() {
    need_events!();
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    let trace = |pages: &str, calls: &str| {
        run(&["trace", "--strict-loss", "-m", pages, "-o", "/dev/null", "-e", &event, "--", &flood, calls])
    };
    trace("1", "300000").code(3);
    trace("64", "100").code(0).says(&["100 events in", " 0 lost"]);
}

// Lines, reports and the end of a run

#[test]
fn a_lone_event_is_shown_at_once() {
    need_events!();
    let event = format!("raw_syscalls:sys_enter/id=={}||id=={}/", libc::SYS_getppid, libc::SYS_getuid);
    let mut trace = start(&["trace", "--json", "-e", &event, "-t", &own_tid().to_string()]);
    trace.provoke(getppid, |line| line.contains(r#""event""#));
    let before = Instant::now();
    getuid();
    let nr = format!("\"id\":{}", libc::SYS_getuid);
    trace.line(|line| line.contains(&nr));
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    let done = trace.interrupt().code(0);
    assert_eq!(done.out.iter().filter(|line| line.contains(&nr)).count(), 1, "{done:?}");
}

/// A trace of the calling thread's getppid calls that has printed one line.
fn tracing(more: &[&str]) -> Prog {
    let (event, tid) = (syscall(libc::SYS_getppid), own_tid().to_string());
    let mut args = vec!["trace", "-e", &event, "-t", &tid];
    args.extend(more);
    let mut trace = start(&args);
    trace.provoke(getppid, |line| line.contains("sys_enter"));
    trace
}

#[test]
fn signals_end_the_run_with_a_summary() {
    need_events!();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let trace = tracing(&[]);
        trace.signal(signal);
        trace.finish().code(0).says(&["trace: ", " in ", ", 0 lost"]);
        let trace = tracing(&["--json"]);
        trace.signal(signal);
        let done = trace.finish().code(0);
        let end = done.end();
        assert_eq!(number(&end, "samples"), done.shown(), "{signal}: {end}");
        assert_eq!(done.err(), "", "{signal}");
    }
}

#[test]
fn sigusr1_reports_an_interval_and_goes_on() {
    need_events!();
    let mut trace = tracing(&["--json"]);
    trace.signal(Signal::SIGUSR1);
    trace.line(|line| line.contains(r#""type":"interval""#));
    trace.provoke(getppid, |line| line.contains("sys_enter"));
    let done = trace.interrupt().code(0);
    let intervals = done.of_type("interval");
    assert_eq!(intervals.len(), 2);
    assert_eq!(number(&done.end(), "intervals"), 2);
    assert_eq!(intervals[0]["end_ns"], intervals[1]["start_ns"], "intervals join");
    let sum: u64 = intervals.iter().map(|interval| number(interval, "samples")).sum();
    assert_eq!(sum, number(&done.end(), "samples"));
}

#[test]
fn sigusr2_reports_the_cost_of_the_run_and_goes_on() {
    need_events!();
    let mut trace = tracing(&[]);
    for _ in 0..2 {
        trace.signal(Signal::SIGUSR2);
        let cost = trace.err_line(|line| line.contains("self: "));
        let backlog = trace.err_line(|line| line.contains("backlog: "));
        assert!(
            cost.starts_with("trace: self: 0.") && cost.contains(" s CPU, ") && cost.contains(" events/s"),
            "{cost}"
        );
        assert!(
            backlog.contains("the fullest ring has held ") && backlog.contains(" 0 lines were dropped"),
            "{backlog}"
        );
    }
    trace.provoke(getppid, |line| line.contains("sys_enter"));
    let done = trace.interrupt().code(0).says(&["0 lost"]);
    assert!(!done.err().contains("interval"), "{done:?}");
}

#[test]
fn a_second_interrupt_ends_a_run_whose_reader_sleeps() {
    need_events!();
    second_interrupt(&[]);
    // The run has ended by itself and waits for its reader: a first interrupt does not count as a second.
    second_interrupt(&["-N", "50000"]);
}

/// A reader that reads gets everything, even after a second interrupt.
#[test]
fn a_second_interrupt_takes_nothing_from_a_reader_that_reads() {
    need_events!();
    let profile = start_watching(&["profile", "-g"]);
    let pid = profile.pid();
    profile.signal(Signal::SIGINT);
    common::until("the first SIGINT to be taken", || !pending(pid, Signal::SIGINT));
    profile.signal(Signal::SIGINT);
    let done = profile.finish().code(0);
    assert!(!done.of_type("row").is_empty(), "{done:?}");
    done.end();
}

fn second_interrupt(options: &[&str]) {
    let (event, tid) = (syscall(libc::SYS_getppid), own_tid().to_string());
    let mut command = command(&[&["trace", "-e", &event, "-t", &tid], options].concat());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as i32;
    let stdout = child.stdout.take().unwrap();
    let until = Instant::now() + GUARD;
    // No reader: the pipe fills to the last byte.
    while unread(&stdout) < 60_000 {
        assert!(
            Instant::now() < until && !ends_within(pid, Duration::ZERO),
            "the pipe never filled: {}",
            unread(&stdout)
        );
        (0..1000).for_each(|_| getppid());
    }
    (0..100_000).for_each(|_| getppid());
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told =
        |line: &String| line.contains("the output has been at a standstill for 2 s: nobody takes what it writes");
    // A run that has ended by itself waits silently.
    assert!(options == ["-N", "50000"] || err.any(|line| told(&line)), "it did not say so");
    let interrupt = || nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGINT).unwrap();
    interrupt();
    // Two equal pending signals are merged into one.
    while pending(pid, Signal::SIGINT) {
        assert!(Instant::now() < until, "the first SIGINT is not taken");
        thread::yield_now();
    }
    assert!(!ends_within(pid, Duration::from_millis(300)), "the results were thrown away at the first SIGINT");
    interrupt();
    let ended = ends_within(pid, Duration::from_secs(10));
    let _ = child.kill();
    assert!(ended, "the second SIGINT was ignored");
    assert_eq!(child.wait().unwrap().code(), Some(1), "results are missing");
    let err: Vec<String> = err.collect();
    let dropped = "trace: told to end again: results that nobody had read yet are dropped";
    assert!(err.iter().any(|line| line.contains(dropped)), "{err:?}");
}

fn unread(pipe: &impl std::os::fd::AsRawFd) -> i32 {
    let mut bytes = 0;
    // SAFETY: FIONREAD stores one int.
    unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    bytes
}

fn pending(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .any(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & (1 << (signal as u64 - 1)) != 0))
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    need_events!();
    for json in [&["--json"][..], &[]] {
        let (event, tid) = (syscall(libc::SYS_getppid), own_tid().to_string());
        let mut command = command(&["trace", "-e", &event, "-t", &tid]);
        command.args(json).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = child.id() as i32;
        drop(child.stdout.take());
        let until = Instant::now() + GUARD;
        while !ends_within(pid, Duration::from_millis(10)) && Instant::now() < until {
            getppid();
        }
        let _ = child.kill();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
        assert!(!err.contains("perf-prof:") && !err.contains("ipe"), "{err}");
    }
}

#[test]
fn n_events_are_n_lines() {
    need_events!();
    let (event, tid) = (syscall(libc::SYS_getppid), own_tid().to_string());
    let mut trace = start(&["trace", "-e", &event, "-t", &tid, "-N", "3", "--json"]);
    let many = || (0..10).for_each(|_| getppid());
    trace.provoke(many, |line| line.contains(r#""end""#));
    let done = trace.finish().code(0);
    assert_eq!(done.shown(), 3, "{done:?}");
    assert_eq!(number(&done.end(), "samples"), 3);
    // Events after the third were not read.
    let (events, intervals) = (done.of_type("event"), done.of_type("interval"));
    assert_eq!(intervals[0]["end_ns"], events[2]["time_ns"], "{done:?}");
}

#[test]
fn a_run_for_a_time_ends() {
    need_events!(alone);
    // Its last interval ends with it.
    common::attempts(|| {
        let watch = CpuWatch::of_account();
        let done = run(&["trace", "-e", EXEC, "--for", "1", "-i", "500", "--json"]).code(0);
        // On a machine that stands still there may be fewer intervals, or the last one is short.
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(1))];
        or_again(done.of_type("interval").len() == 2, &reasons, || format!("{done:?}"))
    });
    let before = Instant::now();
    let done = run(&["trace", "-e", EXEC, "--for", "300ms", "--json"]).code(0);
    assert!(before.elapsed() >= Duration::from_millis(300));
    let interval = &done.of_type("interval")[0];
    let span = number(interval, "end_ns") - number(interval, "start_ns");
    assert!((300_000_000..10_000_000_000).contains(&span), "{interval}");
    run(&["trace", "-e", EXEC, "--for", "1"]).code(0).says(&["0 lost"]);
}

#[test]
fn after_silence_a_line_names_the_awaited_events() {
    need_events!();
    let mut trace = start(&["trace", "-e", "sched:sched_process_exec/pid==-1/"]);
    trace.err_line(|line| line.contains("nothing seen yet") && line.contains("sched:sched_process_exec /"));
    trace.interrupt().code(0).says(&["0 events in"]);
}

#[test]
fn verbose_names_filters_and_the_cost_of_the_run() {
    need_events!();
    let (event, cpus) = (syscall(libc::SYS_getppid), common::online_cpus().len());
    let done = run(&["trace", "-v", "-e", &event, "-m", "4", "--for", "1ms"]).code(0);
    let done = done.says(&[
        "a ring buffer of 4 pages",
        "tracefs",
        &format!("id=={}", libc::SYS_getppid),
        "self: ",
        " s CPU, ",
        " KiB peak memory, ",
        " KiB rings, ",
        " wake-ups, ",
        " events/s, ",
        " bytes/s, ",
    ]);
    assert!(done.err.last().is_some_and(|line| line.starts_with("self: ")), "{done:?}");
    // Of the event, and of side records: 64 KiB and a page.
    let locked = cpus as u64 * (6 * perf_prof::sys::page_size() as u64 + (64 << 10));
    let done = run(&["trace", "--json", "-e", &event, "-m", "4", "--for", "1ms"]).code(0);
    let end = done.end();
    assert_eq!(number(&end["self"], "locked_bytes"), locked);
    for key in ["cpu_ns", "rss_peak_bytes", "wakeups", "events_per_s", "bytes_per_s"] {
        assert!(end["self"][key].is_number(), "{key}: {end}");
    }
}

// Output

#[test]
fn a_file_is_appended_to() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, "before\n").unwrap();
    let path = path.to_str().unwrap();
    for round in 1..=2 {
        let done = run(&["trace", "-e", EXEC, "-o", path, "--", "true"]).code(0);
        assert!(done.out.is_empty(), "{done:?}");
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with('\n'), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(EXEC)).count(), round, "{text}");
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    need_events!();
    let path = "/nonexistent/dir/file";
    run(&["trace", "-e", EXEC, "-o", path]).code(1).says(&[path, "No such file"]);
    run(&["trace", "-e", EXEC, "-o", "/dev/full", "--", "true"]).code(1).says(&["/dev/full", "No space left"]);
    run(&["trace", "-e", EXEC, "-o", "/"]).code(1).says(&["cannot write to /", "directory"]);
}

// Limits

/// perf-prof in a shell that has set a limit first.
fn limited(ulimit: &str, args: &[&str]) -> Done {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"ulimit {ulimit} && exec "$0" "$@""#), env!("CARGO_BIN_EXE_perf-prof")]);
    shell.args(args);
    Prog::spawn(shell).finish()
}

#[test]
fn the_error_for_too_few_descriptors_has_numbers() {
    need_events!();
    const FEW: &str = "64";
    let args = ["trace", "-e", "sched:*", "--for", "1ms"];
    let done = limited(&format!("-n {FEW}"), &args).code(1);
    let words: Vec<&str> = done.err[0].split(' ').collect();
    let before = |word: &str| words[words.iter().position(|other| *other == word).expect(word) - 1];
    assert_eq!((before("are"), done.err.len()), ("descriptors", 1), "{done:?}");
    let needed: usize = before("file").parse().expect("a number");
    let events = run(&["list", "sched:*"]).code(0).out.len();
    assert!(needed > events * common::online_cpus().len() && needed < 1000, "{needed} for {events} events: {done:?}");
    done.says(&["perf-prof: ", &format!("needed, {FEW} are allowed"), "ulimit -n"]);
    // The soft limit is raised as far as the hard one allows.
    limited(&format!("-S -n {FEW}"), &args).code(0);
}

/// With whole CPUs in place of tasks, records show which task an event is of; counters do not.
#[test]
fn too_few_descriptors_for_each_task() {
    need_events!();
    let load = Load::of(&example("threads"), &["200", "1000000"]);
    let pid = load.pid().to_string();
    common::until("200 threads", || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 200));
    let counting = ["split-lock", "--event", "page-faults", "-T", "0", "-p", &pid, "--for", "1ms"];
    let done = limited("-n 300", &counting).code(1);
    assert!(done.out.is_empty() && done.err.len() == 1, "{done:?}");
    done.says(&["perf-prof: counting page-faults of each task takes", "300 are allowed", "ulimit -n"]);
    let recording = ["trace", "-e", "sched:sched_switch", "-p", &pid, "--for", "1ms"];
    limited("-n 300", &recording).code(0).says(&[
        "degraded: opening each task's events takes",
        "whole CPUs",
        "ulimit -n",
    ]);
}

// Side effects

#[test]
fn no_mount_table_changes() {
    need_events!();
    let mounts = |pid: &str| fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    let before = mounts("self");
    let trace = tracing(&[]);
    let pid = trace.pid().to_string();
    assert_eq!(mounts("self"), before);
    assert_eq!(mounts(&pid), before);
    trace.interrupt().code(0);
    assert_eq!(mounts("self"), before);
}
