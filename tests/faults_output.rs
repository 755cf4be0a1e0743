//! Faults of the output: a reader that stands still, a disk that is full. The rings are still read, and results that
//! are dropped are counted in one counter and no other.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::seccomp::hangs;
use common::{
    Again, Attempted, Done, GUARD, Load, Prog, attempts, command, ends_within, example, number, or_again, syscall,
    until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Twice as many calls as lines that wait for a blocked output. All fit into a ring of 64 MiB, so lines that are not
/// printed were dropped by the output.
const CALLS: u64 = 500_000;
/// A system call that no shell makes.
const NR: libc::c_long = libc::SYS_sched_yield;

/// A shell that makes the calls, and then creates a file: its stdout is the pipe that stands still.
fn load(done: &str) -> String {
    format!("{} {CALLS} 0 sched_yield > /dev/null; touch {done}", example("flood"))
}

#[derive(Debug, Default)]
struct Seen {
    events: u64,
    /// By thread, those of the load: how long it slept in all intervals, ns.
    slept_ns: BTreeMap<u64, u64>,
    /// The same from the rows of the whole run.
    slept_in_all_ns: BTreeMap<u64, u64>,
    intervals: Vec<Value>,
    end: Option<Value>,
}

fn read(from: impl std::io::Read) -> Seen {
    let mut seen = Seen::default();
    for line in BufReader::new(from).lines().map(|line| line.expect("UTF-8")) {
        if line.starts_with(r#"{"type":"event""#) {
            assert!(line.ends_with('}'), "a line that is not whole: {line}");
            seen.events += 1;
            continue;
        }
        let object: Value = serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line}"));
        match object["type"].as_str() {
            Some(kind @ ("row" | "total")) => {
                let of_load = object["comm"].as_str().is_some_and(|comm| comm.starts_with("thread-"));
                if of_load && object["state"] == "S" {
                    let slept_ns = if kind == "row" { &mut seen.slept_ns } else { &mut seen.slept_in_all_ns };
                    *slept_ns.entry(number(&object, "tid")).or_default() += number(&object, "total_ns");
                }
            }
            Some("interval") => seen.intervals.push(object),
            Some("end") => seen.end = Some(object),
            _ => panic!("{line}"),
        }
    }
    seen
}

/// The fault has changed the counter of the output and no other.
fn check(seen: &Seen) {
    let end = seen.end.as_ref().expect("an end");
    let of = |key: &str| number(end, key);
    assert_eq!((of("samples"), of("lost")), (CALLS, 0), "{end}");
    assert_eq!(of("samples"), seen.events + of("lost_output"), "{end}");
    assert!(of("lost_output") > 0 && seen.events > 0, "the output was never full: {end}");
    let sum = |key: &str| seen.intervals.iter().map(|interval| number(interval, key)).sum::<u64>();
    assert_eq!((sum("samples"), sum("lost")), (of("samples"), of("lost")));
    assert!(seen.intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]), "intervals join");
    for other in ["lost_side", "lost_stacks", "malformed", "discarded"] {
        assert_eq!(of(other), 0, "{other}: {end}");
    }
}

#[test]
fn a_pipe_that_nobody_reads_stops_no_ring() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let done = dir.path().join("done");
    let load = load(done.to_str().expect("UTF-8"));
    let event = syscall(NR);
    let mut trace = command(&["trace", "--json", "-m", "64M", "-i", "200", "-e", &event, "--", "sh", "-c", &load]);
    trace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut trace = trace.spawn().expect("perf-prof");
    until("the calls are made", || done.exists());
    // It still has results, and waits for a reader.
    assert!(!ends_within(trace.id() as i32, std::time::Duration::from_millis(50)));
    let seen = read(trace.stdout.take().expect("piped"));
    assert_eq!(trace.wait().expect("wait").code(), Some(0));
    check(&seen);
}

#[test]
fn a_reader_that_is_stopped_and_goes_on_gets_the_rest() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let (done, out) = (dir.path().join("done"), dir.path().join("out"));
    let mut reader = Command::new("cat");
    reader.stdin(Stdio::piped()).stdout(File::create(&out).expect("a file"));
    let mut reader = reader.spawn().expect("cat");
    let pid = Pid::from_raw(reader.id() as i32);
    let pipe = reader.stdin.take().expect("piped");
    let (event, load) = (syscall(NR), load(done.to_str().expect("UTF-8")));
    let mut trace = command(&["trace", "--json", "-m", "64M", "-i", "200", "-e", &event, "--", "sh", "-c", &load]);
    trace.stdin(Stdio::null()).stdout(pipe).stderr(Stdio::null());
    let mut child = trace.spawn().expect("perf-prof");
    drop(trace); // and with it our end of the pipe
    until("something is written", || fs::metadata(&out).is_ok_and(|meta| meta.len() > 0));
    kill(pid, Signal::SIGSTOP).expect("SIGSTOP");
    until("the calls are made", || done.exists());
    kill(pid, Signal::SIGCONT).expect("SIGCONT");
    let ended = ends_within(child.id() as i32, GUARD);
    let _ = child.kill();
    assert!(ended, "perf-prof hangs");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
    assert_eq!(reader.wait().expect("wait").code(), Some(0));
    check(&read(File::open(&out).expect("the output")));
}

/// Tables with a row per thread, many times a second, into a pipe that is not read before the threads have ended:
/// intervals grow longer, and no count is missing.
#[test]
fn unread_tables_take_bounded_memory_and_are_complete() {
    need_events!();
    attempts(try_unread_tables);
}

fn try_unread_tables() -> Attempted {
    const MAX_BYTES: u64 = 40 << 20;
    const SLEPT_NS: u64 = 4_000_000_000;
    let dir = tempfile::tempdir().expect("a directory");
    let done = dir.path().join("done");
    // Threads that sleep to the end have rows in the last table, too.
    let load = format!("{} 1000 4000 > /dev/null; touch {}; exec sleep 600", example("threads"), done.display());
    let args = ["task-state", "--perins", "--json", "-i", "10", "--", "sh", "-c", &load];
    let mut waits =
        command(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("perf-prof");
    until("the threads have ended", || done.exists());
    kill(Pid::from_raw(waits.id() as i32), Signal::SIGINT).expect("SIGINT");
    let seen = read(waits.stdout.take().expect("piped"));
    assert_eq!(waits.wait().expect("wait").code(), Some(0));
    let end = seen.end.as_ref().expect("an end");
    assert_eq!(number(end, "lost_output"), 0, "{end}");
    let peak = number(&end["self"], "rss_peak_bytes");
    assert!(peak < MAX_BYTES, "{peak} bytes");
    let intervals = number(end, "intervals");
    assert!(seen.intervals.iter().map(|interval| number(interval, "interval")).eq(1..=intervals), "{end}");
    assert!(seen.intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]), "intervals join");
    let span_ns = |interval: &Value| number(interval, "end_ns") - number(interval, "start_ns");
    let longest_ns = seen.intervals.iter().map(span_ns).max().expect("intervals");
    assert!(longest_ns > SLEPT_NS / 10, "the output was never full: {longest_ns} ns");
    assert_eq!(number(end, "lost"), 0, "{end}");
    assert_eq!(seen.slept_in_all_ns, seen.slept_ns, "the whole run is what its intervals add up to");
    let least = seen.slept_ns.iter().min_by_key(|(_, ns)| **ns).expect("threads");
    let is_whole = seen.slept_ns.len() == 1000 && *least.1 >= SLEPT_NS;
    or_again(is_whole, &[Again::EndUnseen(end)], || format!("{} threads, {least:?}: {end}", seen.slept_ns.len()))
}

#[test]
fn strict_loss_counts_dropped_lines() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let done = dir.path().join("done");
    let load = load(done.to_str().expect("UTF-8"));
    let event = syscall(NR);
    let mut trace = command(&["trace", "--json", "--strict-loss", "-m", "64M", "-e", &event, "--", "sh", "-c", &load]);
    let mut trace = trace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("perf-prof");
    until("the calls are made", || done.exists());
    let seen = read(trace.stdout.take().expect("piped"));
    assert!(number(&seen.end.expect("an end"), "lost_output") > 0);
    assert_eq!(trace.wait().expect("wait").code(), Some(3));
}

/// Runs perf-prof with a result file on a file system of 64 KiB. stdout has the output of perf-prof, then the file.
fn on_a_small_disk(args: &str) -> Done {
    const SCRIPT: &str = r#"dir=$1; shift; mount -t tmpfs -o size=64k none "$dir" || exit 99
        exec 3>&1; eval "$@"; code=$?; cat "$dir/out" >&3; exit $code"#;
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let mut command = Command::new("unshare");
    let line = format!("{} {}", env!("CARGO_BIN_EXE_perf-prof"), args.replace("OUT", &format!("{place}/out")));
    command.args(["-m", "sh", "-c", SCRIPT, "sh", place, &line]);
    Prog::spawn(command).finish()
}

#[test]
fn a_disk_that_becomes_full_keeps_what_was_written() {
    need_events!();
    let (flood, event) = (example("flood"), syscall(libc::SYS_getppid));
    let done = on_a_small_disk(&format!("trace --json -e '{event}' -o OUT -- {flood} 5000 100000")).code(1);
    let told: Vec<&String> = done.err.iter().filter(|line| line.contains("No space left")).collect();
    assert!(told.len() == 1 && told[0].starts_with("perf-prof: cannot write to /"), "{:?}", done.err);
    assert_eq!(done.err.len(), 1, "told once: {:?}", done.err);
    let lines: Vec<&String> = done.out.iter().filter(|line| line.starts_with('{')).collect();
    let (last, whole) = lines.split_last().expect("what fits is there");
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    assert!(bytes >= 60_000, "{bytes} of 64 KiB are used");
    let times: Vec<u64> = whole
        .iter()
        .map(|line| number(&serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}")), "time_ns"))
        .collect();
    // The lines show arguments that happened to be in registers.
    let longest = whole.iter().map(|line| line.len()).max().expect("a line");
    assert!(times.is_sorted() && last.len() <= longest + 8, "{last}");
}

#[test]
fn a_full_disk_ends_tables_too() {
    need_events!();
    for args in [
        "task-state --perins --json -i 10 -o OUT",
        "profile --json -i 10 -o OUT",
        "trace -g -e sched:sched_switch -o OUT",
        "watchdog --json -i 2 -o OUT",
    ] {
        let done = on_a_small_disk(&format!("{args} --for 50")).code(1);
        let told = done.err.iter().filter(|line| line.contains("No space left")).count();
        assert_eq!(told, 1, "{args}: {:?}", done.err);
        assert!(done.out.len() > 10, "{args}: {} lines", done.out.len());
    }
}

/// Results contain kernel addresses, and names of other users' tasks.
#[test]
fn only_the_owner_may_read_new_files() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let mode = |name: &str| fs::metadata(path(name)).expect(name).permissions().mode() & 0o777;
    for name in ["old", "old.svg"] {
        fs::write(path(name), "").expect("a file");
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o644)).expect("a mode");
    }
    for (out, graph) in [("new", "new.folded"), ("old", "old.svg")] {
        let args = ["trace", "-e", "sched:sched_process_exec", "-o", &path(out), "--flame-graph", &path(graph)];
        common::run(&[&args[..], &["--", "true"]].concat()).code(0);
        assert!([out, graph].iter().all(|name| fs::metadata(path(name)).expect("a file").len() > 0));
    }
    assert_eq!(["new", "new.folded"].map(mode), [0o600, 0o600]);
    assert_eq!(["old", "old.svg"].map(mode), [0o644, 0o644], "as somebody wanted them");
}

/// A file that does not answer when its tables are copied is told, and costs the run nothing but its names.
#[test]
fn a_file_that_does_not_answer_is_told_and_left_out() {
    need_events!();
    let dir = tempfile::tempdir().expect("a directory");
    let mut load = Load::of(&example("mappings"), &[dir.path().to_str().expect("UTF-8"), "1", "elf"]);
    load.says();
    let (event, pid) = (syscall(libc::SYS_getppid), load.pid().to_string());
    // The tables of each file are copied with this system call.
    let hung = |options: &[&str]| {
        let args = [&["trace", "-g", "-e", &event, "-p", &pid], options].concat();
        Prog::spawn(hangs(command(&args), libc::SYS_memfd_create))
    };
    const TOLD: &str = "degraded: no answer from a file that a program of user ";
    const UNNAMED: &str = "(its file does not answer)";
    let mut trace = hung(&[]);
    trace.line(|line| line.contains(UNNAMED));
    trace.err_line(|line| line.contains(TOLD));
    trace.interrupt().code(0);
    for options in [&["--for", "100ms"], &["-N", "10"]] {
        let done = hung(options).finish().code(0).says(&[TOLD]);
        assert!(done.out.iter().any(|line| line.contains(UNNAMED)), "{done:#?}");
    }
}

/// Mappings that wait for a blocked output take bounded memory, and no stack is named by mappings from before or after
/// its time.
#[test]
fn a_storm_of_mappings_takes_little_memory() {
    need_events!();
    attempts(try_a_storm_of_mappings);
}

fn try_a_storm_of_mappings() -> Attempted {
    const CALLS: u64 = 40_000; // 120 MB of paths
    const MAX_KIB: u64 = 110 << 10;
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join([&*"d".repeat(200); 14].join("/"));
    fs::create_dir_all(&dir).expect("a long path");
    let done = root.path().join("done");
    let load = format!("{} {} {CALLS} > /dev/null; touch {}", example("remaps"), dir.display(), done.display());
    let event = syscall(libc::SYS_getppid);
    let mut trace = command(&["trace", "--json", "-g", "-i", "200", "-e", &event, "--", "sh", "-c", &load]);
    trace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let trace = trace.spawn().expect("perf-prof");
    until("the calls are made", || done.exists());
    let status = fs::read_to_string(format!("/proc/{}/status", trace.id())).expect("it waits for its reader");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < MAX_KIB, "{kib} KiB");
    let ended = trace.wait_with_output().expect("its output");
    let done = Done::of("trace".to_owned(), ended.status, &ended.stdout, &[]).code(0);
    let (objects, end) = (done.json(), done.end());
    or_again(number(&end, "lost_side") == 0, &[Again::RecordsLost(&done)], || end.to_string())?;
    let mut seen = [0; 2];
    for event in objects.iter().filter(|object| object["type"] == "event") {
        let Some(argument) = event["fields"]["args"][0].as_u64().filter(|number| (1..=2).contains(number)) else {
            continue;
        };
        let frames = event["stack"].as_array().expect("a stack");
        let mut modules = frames.iter().filter_map(|frame| frame["module"].as_str());
        if let Some(mapped) = modules.find(|module| module.ends_with("/first") || module.ends_with("/second")) {
            assert_eq!(mapped.ends_with("/first"), argument == 1, "{event}");
            seen[argument as usize - 1] += 1;
        }
    }
    assert!(seen.iter().all(|&calls| calls > 0), "{seen:?} of {end}");
    Ok(())
}
