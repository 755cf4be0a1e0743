//! Combined targets, narrow terminals, hostile names, closed and full outputs, signals.

#[macro_use]
mod common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    Done, Load, Prog, command, ends_within, example, getppid, load_number, number, own_tid, run, start, start_watching,
    syscall, until,
};
use nix::sys::signal::Signal;
use perf_prof::sys;

const EXEC: &str = "sched:sched_process_exec";
const PERF_PROF: &str = env!("CARGO_BIN_EXE_perf-prof");

// Targets together

fn writes_of(done: &Done, comm: &str) -> usize {
    done.of_type("event").iter().filter(|event| event["comm"] == comm).count()
}

/// A shell that runs `ping` and `pong` on two CPUs, 500 writes each, watched on the first CPU by `target` of its pid.
fn pingpong_watched_on_one_cpu(target: impl Fn(&Load) -> Vec<String>) {
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let mut shell = Load::shell();
    let (cpu, event, target) = (one.to_string(), syscall(libc::SYS_write), target(&shell));
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    let trace = start_watching(&[&["trace", "-e", &event, "-C", &cpu], target.as_slice()].concat());
    shell.tell(&format!("{} 500 {one} {other}", example("pingpong")));
    assert!(shell.says().contains("switch_pairs=500"));
    shell.stop();
    let done = if target[0] == "--cgroups" { trace.interrupt() } else { trace.finish() }.code(0);
    assert!(done.of_type("event").iter().all(|event| event["cpu"] == one), "{done:?}");
    assert_eq!((writes_of(&done, "ping"), writes_of(&done, "pong")), (500, 0), "{done:?}");
}

#[test]
fn cpus_with_a_process() {
    need_events!();
    pingpong_watched_on_one_cpu(|shell| vec!["-p".into(), shell.pid().to_string()]);
}

#[test]
fn cpus_with_a_cgroup_that_has_a_blank_in_its_name() {
    need_events!();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(1)) else { skip!("no cgroup2 is mounted") };
    let name = format!("perf prof é {}", std::process::id());
    let path = std::path::Path::new(mount).join(&name);
    if let Err(err) = fs::create_dir(&path) {
        skip!("cannot create {}: {err}", path.display());
    }
    pingpong_watched_on_one_cpu(|shell| {
        fs::write(path.join("cgroup.procs"), shell.pid().to_string()).unwrap();
        vec!["--cgroups".into(), name.clone()]
    });
    until("the cgroup is empty", || fs::remove_dir(&path).is_ok());
}

#[test]
fn cpus_with_a_thread() {
    need_events!();
    let cpus = common::online_cpus();
    let &[watched, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let pin = |cpu: u32| {
        let mut set = nix::sched::CpuSet::new();
        set.set(cpu as usize).unwrap();
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
    };
    let (cpu, tid, event) = (watched.to_string(), own_tid().to_string(), syscall(libc::SYS_getppid));
    pin(other);
    let trace = start_watching(&["trace", "-e", &event, "-t", &tid, "-C", &cpu]);
    for _ in 0..5 {
        pin(other);
        (0..7).for_each(|_| getppid());
        pin(watched);
        (0..3).for_each(|_| getppid());
    }
    let done = trace.interrupt().code(0);
    assert_eq!(done.shown(), 15, "{done:?}");
    assert!(done.of_type("event").iter().all(|event| event["cpu"] == watched), "{done:?}");
}

#[test]
fn cpus_and_names_with_a_process_in_task_state() {
    need_events!();
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus = common::online_cpus();
    let visible = cpus.iter().copied().find(|&cpu| allowed.is_set(cpu as usize).unwrap()).unwrap();
    let Some(other) = cpus.iter().copied().find(|&cpu| cpu != visible) else { skip!("needs two CPUs") };
    let mut shell = Load::shell();
    let pid = shell.pid().to_string();
    let watch = |cpu: u32, filter: &str| {
        // A page that is read from the disk is a voluntary switch, too.
        start_watching(&["task-state", "-S", "-D", "--perins", "-p", &pid, "-C", &cpu.to_string(), "--filter", filter])
    };
    let (ours, nobodys, elsewhere) = (watch(visible, "ping"), watch(visible, "nobody"), watch(other, "ping"));
    shell.tell(&format!("{} 500", example("pingpong")));
    let load = shell.says();
    shell.stop();
    let done = ours.finish().code(0);
    let ping = load_number(&load, "ping_tid");
    let waits = done.sum("count", |row| row["tid"] == ping && row["comm"] == "ping");
    let unknown = done.total("discarded") + done.total("lost");
    // If a side loses its CPU between its write and its read, the answer may be there before it waits.
    let slept = load_number(&load, "ping_nvcsw");
    assert!(waits + unknown >= slept && waits <= slept + 40, "{waits} waits, {unknown} unknown: {load} {done:#?}");
    assert_eq!(done.sum("count", |_| true), waits, "others than ping: {done:#?}");
    let done = nobodys.finish().code(0);
    assert_eq!(done.sum("count", |_| true), 0, "{done:#?}");
    // The program may have read a page there before it chose its CPU.
    let done = elsewhere.finish().code(0);
    assert_eq!(done.sum("count", |row| row["state"] != "D"), 0, "{done:#?}");
}

// Terminals

/// The output on a terminal of this width.
fn in_terminal(columns: usize, args: &str, env: &[(&str, &str)]) -> Option<String> {
    let mut script = Command::new("script");
    let line = format!("stty cols {columns} rows 24; exec {PERF_PROF} {args}");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env_remove("NO_COLOR").envs(env.iter().copied());
    let output = script.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

/// Without `ESC [ ... m`, the only escapes there may be.
fn without_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').expect("a colour").1)
}

#[test]
fn help_fits_a_narrow_terminal() {
    for columns in [40, 60] {
        for args in ["--help", "trace --help", "profile -h", "task-state --help", "list -h", "doctor -h"] {
            let Some(text) = in_terminal(columns, args, &[]) else { skip!("no script(1)") };
            let text = without_colour(&text);
            assert!(text.contains("Usage:"), "{text}");
            for line in text.lines() {
                // A line that cannot be broken may be longer: an example, or the names of an option.
                let word = line.trim_start().chars().take_while(|c| *c != ' ').count();
                let indent = line.len() - line.trim_start().len();
                let is_fixed = line.contains("perf-prof") || line.trim_start().starts_with('-');
                assert!(line.chars().count() <= columns || is_fixed || indent + word > columns, "{columns}: {line:?}");
            }
        }
    }
}

#[test]
fn colour_is_for_terminals_alone() {
    let Some(coloured) = in_terminal(80, "--help", &[]) else { skip!("no script(1)") };
    assert!(coloured.contains("\x1b["), "{coloured:?}");
    for args in ["--help", "trace --help", "--nosuch", "trace -C x"] {
        let plain = in_terminal(80, args, &[("NO_COLOR", "1")]).unwrap();
        assert!(!plain.contains('\x1b'), "{plain:?}");
        let done = run(&args.split(' ').collect::<Vec<_>>());
        assert!(!done.out.iter().chain(&done.err).any(|line| line.contains('\x1b')), "{done:?}");
    }
    let fault = in_terminal(80, "--nosuch", &[]).unwrap();
    assert!(fault.starts_with("perf-prof: there is no option --nosuch"), "{fault:?}");
}

#[test]
fn tables_are_whole_in_a_narrow_terminal() {
    need_events!();
    for (args, heading) in [("task-state --for 50ms", "state count"), ("profile --for 50ms", "CPU user %")] {
        let Some(narrow) = in_terminal(40, args, &[]) else { skip!("no script(1)") };
        assert!(!narrow.contains('\x1b'), "{narrow:?}");
        let line =
            narrow.lines().find(|line| line.trim_start().starts_with(heading)).unwrap_or_else(|| panic!("{narrow}"));
        assert!(line.len() > 40 && line.len() <= 80, "nothing is cut and nothing is wider than 80: {line:?}");
    }
}

// Names

/// Hostile comms: up to 15 bytes, none of them 0.
const HOSTILE: [&[u8]; 8] = [
    b"a\nb\tc",
    b"\x1b[31mred\x1b[0m",
    b"\xff\xfe\x80",
    "ééééééé".as_bytes().split_at(13).0, // cut inside a character
    b"a;b;c 12",
    b"\"quote\\",
    "進捗進捗".as_bytes(),
    "a\u{202e}b".as_bytes(),
];

#[test]
fn hostile_names_in_events_and_tables() {
    need_events!();
    let threads: Vec<_> = HOSTILE.iter().map(|name| Named::start(name)).collect();
    let tids: Vec<String> = threads.iter().map(|thread| thread.tid.to_string()).collect();
    let (tids, event) = (tids.join(","), syscall(libc::SYS_getppid));
    let call = || threads.iter().for_each(Named::call);

    let trace = start_watching(&["trace", "-e", &event, "-t", &tids]);
    call();
    let done = trace.interrupt().code(0);
    let comms: HashSet<String> =
        done.json().iter().filter_map(|object| object["comm"].as_str().map(str::to_owned)).collect();
    assert_eq!(comms.len(), HOSTILE.len(), "{comms:?}");
    assert!(comms.contains("a\\x0ab\\x09c") && comms.contains("進捗進捗"), "{comms:?}");
    assert!(comms.contains("\\x1b[31mred\\x1b[0") || comms.contains("\\x1b[31mred\\x1b[0m"), "{comms:?}");

    let mut trace = start(&["trace", "-e", &event, "-t", &tids]);
    let last = format!(" {} ", threads[HOSTILE.len() - 1].tid);
    trace.provoke(call, |line| line.contains(&last));
    assert_neutral(&trace.interrupt().code(0));

    let states = start_watching(&["task-state", "--perins", "-t", &tids]);
    call();
    let done = states.interrupt().code(0);
    done.json();
    let mut states = start(&["task-state", "--perins", "-t", &tids, "-v"]);
    states.err_line(|line| line.contains("ring buffer"));
    let pid = nix::unistd::Pid::from_raw(states.pid());
    let last = format!("{} ", threads[HOSTILE.len() - 1].tid);
    let report = || {
        call();
        nix::sys::signal::kill(pid, Signal::SIGUSR1).unwrap();
    };
    // Rows are marked if the switch from a hidden idle task went unseen.
    states.provoke(report, |line| line.trim_start_matches([' ', '~', '>', '=']).starts_with(&last));
    assert_neutral(&states.interrupt().code(0));
}

/// Asserts that every line has printable characters only.
#[track_caller]
fn assert_neutral(done: &Done) {
    for line in done.out.iter().chain(&done.err) {
        let bad = line.chars().find(|&c| c.is_control() || c == '\u{202e}' || c == '\u{fffd}');
        assert!(bad.is_none(), "{bad:?} in {line:?}");
    }
}

/// A thread with a name, which calls getppid when told to.
struct Named {
    tid: i32,
    go: std::sync::mpsc::Sender<()>,
    done: std::sync::mpsc::Receiver<()>,
}

impl Named {
    fn start(name: &'static [u8]) -> Named {
        let (go, told) = std::sync::mpsc::channel::<()>();
        let (says, done) = std::sync::mpsc::channel();
        let (tid_to, tid) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let name = std::ffi::CString::new(name).unwrap();
            // SAFETY: the kernel copies up to 16 bytes of a text that ends with 0.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            tid_to.send(own_tid()).unwrap();
            while told.recv().is_ok() {
                getppid();
                if says.send(()).is_err() {
                    return;
                }
            }
        });
        Named { tid: tid.recv().unwrap(), go, done }
    }

    fn call(&self) {
        self.go.send(()).unwrap();
        self.done.recv().unwrap();
    }
}

#[test]
fn hostile_paths_in_stacks() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(OsStr::from_bytes(b"x \x1b[1m;\ny"));
    common::copy_program(example("places"), &path);
    let run = |options: &[&str]| {
        let mut command = command(&["trace", "-e", &syscall(libc::SYS_getppid)]);
        command.args(options).arg("--").arg(&path).args(["own", "3"]);
        Prog::spawn(command).finish().code(0)
    };
    let done = run(&["-g", "--json"]);
    let modules: HashSet<String> = done
        .of_type("event")
        .iter()
        .flat_map(|event| event["stack"].as_array().cloned().unwrap_or_default())
        .filter_map(|frame| frame["module"].as_str().map(str::to_owned))
        .collect();
    assert!(modules.iter().any(|module| module.contains("\\x1b[1m;\\x0ay")), "{modules:?}");
    let done = run(&["-g"]);
    assert!(done.out.iter().any(|line| line.contains("(x \\x1b[1m;\\x0ay)")), "{done:?}");
    assert_neutral(&done);
    let folded = dir.path().join("x.folded");
    run(&["--flame-graph", folded.to_str().unwrap()]);
    for line in fs::read_to_string(folded).unwrap().lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        assert!(weight.parse::<u64>().is_ok() && !stack.chars().any(char::is_control), "{line:?}");
        assert!(stack.starts_with("x \\x1b[1m:\\x0ay;"), "a semicolon of a name divides nothing: {line:?}");
    }
}

// Outputs that are closed or full

fn shell(line: &str) -> Done {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"exec "$0" {line}"#), PERF_PROF]);
    Prog::spawn(shell).finish()
}

#[test]
fn closed_descriptors_do_no_harm() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    let file = file.to_str().unwrap();
    let trace = format!("trace -e {EXEC} -- true");
    let said = |done: &Done| done.err().contains("trace: 1 event");
    assert!(said(&shell(&format!("{trace} <&-")).code(0)));
    // Output to a closed descriptor could end up in the first file that is opened.
    let dry = format!("trace -e {EXEC} --dry-run");
    for args in [&*trace, &dry, "list sched:*", "doctor", "--help", "profile --flame-graph - -- true"] {
        let done = shell(&format!("{args} >&-")).code(1).says(&["perf-prof: stdout is closed (`>&-`)"]);
        assert_eq!(done.err.len(), 1, "{args}: {done:?}");
    }
    for null in [">/dev/null", "1<>/dev/null"] {
        assert!(said(&shell(&format!("{trace} {null}")).code(0)));
    }
    assert_eq!(shell(&format!("{trace} 2>&-")).code(0).out.len(), 1);
    shell(&format!("trace -e {EXEC} -o {file} -- true <&- >&- 2>&-")).code(0);
    assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 1);
    for (line, code) in [("trace -e x 2>&-", 2), ("--nosuch 2>&-", 2), ("list nosuchevent 2>&-", 1)] {
        shell(line).code(code);
    }
}

/// Output with a place of its own is complete when the reader of stdout has gone.
#[test]
fn a_flame_graph_and_a_summary_outlive_the_reader() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let events = "raw_syscalls:sys_enter";
    for (args, name) in [
        (format!("trace -e {events}"), "a.folded"),
        (format!("trace -e {events} --json"), "b.svg"),
        ("profile -F 997 -i 20".to_owned(), "c.folded"),
    ] {
        let path = dir.path().join(name);
        let flood = example("flood");
        let mut shell = Command::new("sh");
        let line = format!(
            r#"{{ "$0" {args} --flame-graph "$1" -- {flood} 300000 >&3; echo code=$? >&2; }} 3>&1 | head -n 1"#
        );
        shell.args(["-c", &line, PERF_PROF]).arg(&path);
        let done = Prog::spawn(shell).finish().code(0);
        let profiler = args.split(' ').next().unwrap();
        let has_summary = args.contains("--json") || done.err().contains(&format!("{profiler}: "));
        assert!(done.err().contains("code=0") && has_summary, "{done:?}");
        let graph = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{name}: {err}; {done:?}"));
        assert!(graph.contains("flood"), "{name}: {graph}");
        assert_eq!(done.out.len(), 1, "{done:?}");
    }
}

#[test]
fn a_full_device_is_reported_once() {
    need_events!();
    for line in [
        &*format!("trace -e {EXEC} -- true"),
        &format!("trace --json -e {EXEC} -- true"),
        "task-state --for 50ms",
        "task-state --json -i 10",
        "profile --for 50ms",
        "profile --json -i 10",
        "watchdog --for 50ms",
        "watchdog --json -i 10",
        "list",
        "doctor",
        "--help",
    ] {
        let done = shell(&format!("{line} >/dev/full")).code(1);
        let told: Vec<&String> = done.err.iter().filter(|line| line.starts_with("perf-prof: ")).collect();
        assert_eq!(told.len(), 1, "{line}: {done:?}");
        assert!(told[0].contains("cannot write") && told[0].contains("No space left on device"), "{line}: {done:?}");
    }
    // With stderr full, too, there is no message.
    for (line, code) in [("trace -e x", 2), ("--nosuch", 2), ("list nosuchevent", 1)] {
        shell(&format!("{line} 2>/dev/full")).code(code);
    }
    assert_eq!(shell(&format!("trace -e {EXEC} -- true 2>/dev/full")).code(0).out.len(), 1);
}

/// A lack of memory is an error of one sentence, wherever it occurs.
#[test]
fn a_lack_of_memory_is_reported() {
    need_events!();
    let limited = |kib: u32, line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!(r#"ulimit -v {kib}; exec "$0" {line}"#), PERF_PROF]);
        Prog::spawn(shell).finish()
    };
    let starts = |kib: &u32| limited(*kib, "--version").status.success();
    let least = (4_000..200_000).step_by(2_000).find(starts).expect("it needs less than 200 MB to start");
    let mut refused = 0;
    for (line, step) in [("task-state --for 20ms", 3), ("trace -g -e sched:sched_switch --for 20ms", 4)] {
        for kib in (0..10).map(|n| least + n * step * 1000) {
            let done = limited(kib, line);
            if done.status.success() {
                continue;
            }
            refused += 1;
            let done = done.code(1);
            let told = done.err.iter().filter(|line| line.starts_with("perf-prof: ")).count();
            assert_eq!(told, 1, "{kib} KiB: {done:?}");
        }
    }
    assert!(refused > 0, "there was always enough");
}

// Signals

#[test]
fn a_storm_of_signals_loses_no_event() {
    need_events!();
    let (event, tid) = (syscall(libc::SYS_getppid), own_tid().to_string());
    let trace = start_watching(&["trace", "-e", &event, "-t", &tid]);
    for _ in 0..1000 {
        trace.signal(Signal::SIGUSR1);
        getppid();
    }
    let done = trace.interrupt().code(0);
    assert_eq!(done.shown() + done.total("lost") + done.total("lost_output"), 1000);
    let intervals = done.of_type("interval");
    assert_eq!(number(&done.end(), "intervals"), intervals.len() as u64);
    assert!(intervals.windows(2).all(|pair| pair[0]["end_ns"] == pair[1]["start_ns"]), "intervals join");
}

#[test]
fn two_interrupts_at_once_end_it() {
    need_events!();
    for args in [&["task-state", "-i", "50"][..], &["profile", "-g"], &["trace", "-e", "sched:*"], &["watchdog", "-g"]]
    {
        let run = start_watching(args);
        let pid = run.pid();
        let before = Instant::now();
        run.signal(Signal::SIGINT);
        run.signal(Signal::SIGTERM);
        // Either everything is written, or the second signal cut the output short and a line says so.
        let done = run.finish();
        let is_cut = done.err().contains("told to end again: results are dropped");
        done.code(i32::from(is_cut));
        assert!(ends_within(pid, Duration::ZERO) && before.elapsed() < common::GUARD);
    }
}

// Time namespaces

/// A clock that is ahead of the machine's, or behind it, moves no time and lengthens no wait.
#[test]
fn a_time_namespace_shifts_nothing() {
    need_events!();
    let behind = sys::monotonic_ns() / 1_000_000_000 / 2;
    for offset in ["86400".to_owned(), format!("-{behind}")] {
        let [begin_ns, begin] = [sys::monotonic_ns(), sys::realtime_ns()];
        let mut command = Command::new("unshare");
        command.args(["-T", "--monotonic", &offset, "--boottime", &offset, "-f", PERF_PROF]);
        command.args(["task-state", "--json", "--perins", "--than", "100", "-i", "100", "--", "sleep", "0.3"]);
        let done = Prog::spawn(command).finish();
        if done.err().contains("unshare:") {
            skip!("{}", done.err());
        }
        let done = done.code(0);
        let [end_ns, end] = [sys::monotonic_ns(), sys::realtime_ns()];
        let is_within = |at: u64| (begin_ns..=end_ns).contains(&at);
        for object in done.json() {
            assert!(is_within(number(&object, "time_ns")), "{begin_ns} {object} {end_ns}");
            let wall: jiff::Timestamp = object["wall"].as_str().and_then(|wall| wall.parse().ok()).expect("a time");
            // The two clocks are read one after the other, and the wall clock may be adjusted.
            let wall = u64::try_from(wall.as_nanosecond()).expect("after 1970");
            assert!((begin - 1_000_000_000..end + 1_000_000_000).contains(&wall), "{begin} {object} {end}");
        }
        let intervals = done.of_type("interval");
        assert!(intervals.len() > 1 && intervals.iter().all(|interval| is_within(number(interval, "start_ns"))));
        let rows = done.of_type("row");
        assert!(rows.iter().any(|row| row["state"] == "S" && row["comm"] == "sleep"), "{done:#?}");
        assert!(rows.iter().all(|row| row["max_ns"].as_u64().is_none_or(|ns| ns < end_ns - begin_ns)), "{rows:#?}");
    }
}

// Messages

#[test]
fn silence_is_reported_once_and_on_stderr() {
    need_events!();
    let never = "sched:sched_process_exec/pid==-1/";
    for (args, said) in [
        (&["trace", "-e", never][..], "trace: nothing seen yet; waiting for sched:sched_process_exec /pid==-1/"),
        (&["trace", "-e", never, "--json"], "trace: nothing seen yet; waiting for sched:sched_process_exec /pid==-1/"),
        (&["task-state", "--filter", "nobody-is-it", "--json"], "task-state: nothing seen yet; waiting for sched:"),
    ] {
        let mut run = start(args);
        run.err_line(|line| line.contains(said));
        let done = run.interrupt().code(0);
        assert_eq!(done.err.iter().filter(|line| line.contains("nothing seen yet")).count(), 1, "{done:?}");
        if args.contains(&"--json") {
            assert!(done.json().iter().all(|object| object["type"] != "event"), "{done:?}");
        }
    }
}

#[test]
fn no_message_comes_twice() {
    need_events!();
    let cpu = common::online_cpus()[0];
    let cpus = format!("{cpu},99998,99999");
    let long = "a-name-of-more-than-15-bytes";
    for args in [
        &["trace", "-v", "-e", "sched:*,sched:sched_switch", "-C", &cpus, "-m", "1G", "--for", "50ms"][..],
        &["task-state", "-v", "--filter", long, "-C", &cpus, "-m", "1G", "-i", "10", "--for", "50ms"],
        &["profile", "-v", "-C", &cpus, "-m", "1G", "-i", "10", "--for", "50ms", "-g"],
        &["watchdog", "-v", "-C", &cpus, "-m", "1G", "-i", "10", "--for", "50ms", "-g"],
    ] {
        let done = run(args).code(0);
        let different: HashSet<&String> = done.err.iter().collect();
        assert!(!done.err.is_empty() && different.len() == done.err.len(), "{done:#?}");
    }
}
