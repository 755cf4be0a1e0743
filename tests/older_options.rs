//! Options that scripts for older versions have: what they do, that they change nothing, or why they are refused.

#[macro_use]
mod common;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::waits::is_state;
use common::{Done, Load, example, getppid, getuid, number, own_tid, run, run_over, start_watching, until};
use serde_json::Value;

#[test]
fn what_is_always_so_is_accepted_and_told_with_v_alone() {
    need_events!();
    let args = ["trace", "-e", "sched:sched_process_exec", "--order", "--monotonic"];
    for (verbose, lines) in [(None, 0), (Some("-v"), 2)] {
        let done = run(&[&args[..], verbose.as_slice(), &["-N", "1", "--", "true"]].concat()).code(0);
        assert_eq!(done.err.iter().filter(|line| line.contains(" always ")).count(), lines, "{:#?}", done.err);
    }
    run(&["run", "--order", "--watermark", "25", "--for", "0.1", "page-faults", "task-state"]).code(0);
}

#[test]
fn what_is_gone_is_refused_with_what_to_use() {
    let cases: [(&[&str], &[&str]); 14] = [
        (&["trace", "-e", "a:b", "--tsc"], &["trace has no --tsc", "CLOCK_MONOTONIC"]),
        (&["profile", "--kvmclock", "UUID"], &["profile has no --kvmclock", "inside it"]),
        (&["profile", "--kvmclock=UUID"], &["profile has no --kvmclock"]),
        (&["task-state", "--clock-offset", "5"], &["no --clock-offset", "time_ns"]),
        (&["task-state", "--perfeval-cpus", "0"], &["no --perfeval-cpus", "--dry-run"]),
        (&["task-state", "--perfeval-pids", "1"], &["no --perfeval-pids", "--dry-run"]),
        (&["trace", "-e", "a:b", "--sampling-limit", "10"], &["no --sampling-limit", "-N"]),
        (&["kmemleak", "slab", "--usage-self", "1000"], &["no --usage-self", "-v", "USR2"]),
        (&["task-state", "--ptrace", "--", "true"], &["no --ptrace", "children"]),
        (&["trace", "-e", "a:b", "--exclude-user"], &["trace has no --exclude-user", "profile"]),
        (&["signal", "-G"], &["signal has no -G"]),
        (&["profile", "--prio", "0-98"], &["profile has no --prio", "task-state has"]),
        (&["run", "--tsc", "profile"], &["run has no --tsc"]),
        (&["run", "profile --tsc"], &["view 'profile --tsc'", "profile has no --tsc"]),
    ];
    for (args, words) in cases {
        run(args).code(2).says(words);
    }
    run(&["run", "--prio", "120", "task-state"]).code(2).says(&["--prio belongs to a view"]);
    run(&["run", "--no-kernel-callchain", "profile -g"]).code(2).says(&["belongs to a view"]);
    run(&["run", "profile --watermark 5"]).code(2).says(&["--watermark belongs to the whole run"]);
    run(&["list", "--tsc"]).code(2).says(&["there is no option --tsc of list"]);
}

#[test]
fn a_profiler_is_no_event() {
    let args = ["trace", "-e", "sched:sched_switch/prev_state==2/,profile/-F 99/"];
    let line = "perf-prof run 'trace -e sched:sched_switch/prev_state==2/' 'profile -F 99'";
    run(&args).code(2).says(&["profile is a profiler and no event", line]);
    run(&["trace", "-e", "task-state/-D --than 5/"]).code(2).says(&["`perf-prof task-state -D --than 5`"]);
    run(&["run", "trace -e profile"]).code(2).says(&["view 'trace -e profile'", "`perf-prof profile`"]);
}

#[test]
fn values_that_mean_nothing_are_refused() {
    for (args, word) in [
        (&["profile", "--watermark", "101"][..], "no more than 100 %"),
        (&["profile", "--watermark", "x"], "not a percentage"),
        (&["task-state", "--prio", "5-2"], "write 2-5"),
        (&["task-state", "--prio", "nice"], "-1 is deadline"),
        (&["profile", "-g", "--no-user-callchain", "--no-kernel-callchain"], "leave no stacks"),
        (&["profile", "--call-graph=dwarf", "--no-user-callchain"], "leave out one of the two"),
        (&["page-faults", "--exclude-user", "--exclude-kernel"], "choose one"),
        (&["split-lock", "--test", "--exclude-user"], "--exclude-user leaves out"),
        (&["kmemleak", "--alloc", "a:b//key=x/ptr=y/", "--free", "a:c"], "ptr= and key="),
        (&["profile", "--flame-graph", "/dev/null"], "it is no file"),
        (&["profile", "--flame-graph", "x.png"], ".svg or .folded"),
    ] {
        run(args).code(2).says(&[word]);
    }
}

/// Wake-ups of a run over calls that are 2 ms apart: the pause is the load.
fn wakeups(watermark: &str) -> u64 {
    const CALLS: u64 = 300;
    let (call, tid) = (common::syscall(libc::SYS_getppid), own_tid().to_string());
    let run = start_watching(&["trace", "-e", &call, "-t", &tid, "--watermark", watermark, "-N", "300"]);
    for _ in 0..CALLS {
        getppid();
        thread::sleep(Duration::from_millis(2));
    }
    let end = run.finish().code(0).end();
    assert_eq!(end["samples"], CALLS);
    number(&end["self"], "wakeups")
}

#[test]
fn each_event_wakes_the_reader_if_that_is_asked_for() {
    need_events!(alone);
    let [each, none] = ["0", "100"].map(wakeups);
    assert!(each > 3 * none, "{each} wake-ups, and {none} at the fullest");
}

/// The addresses of a stack in JSON: how many are of the kernel, and how many of programs.
fn halves(stack: &Value) -> (usize, usize) {
    let frames = stack.as_array().map_or(&[][..], Vec::as_slice);
    let addresses: Vec<&str> = frames.iter().filter_map(|frame| frame["addr"].as_str()).collect();
    let kernel = addresses.iter().filter(|addr| addr.starts_with("0xffff")).count();
    (kernel, addresses.len() - kernel)
}

/// Frames of the kernel and of programs in all stacks of a run.
fn all_halves(done: &Done) -> (usize, usize) {
    let objects = done.json();
    let stacks = objects.iter().map(|object| halves(&object["stack"]));
    stacks.fold((0, 0), |(kernel, user), (more_kernel, more_user)| (kernel + more_kernel, user + more_user))
}

#[test]
fn halves_of_stacks_are_left_out() {
    need_events!();
    let dstate = example("dstate");
    let waits: &[&str] = &[&dstate, "3", "300"];
    let cases: [(&[&str], &[&str]); 5] = [
        (&["trace", "-e", "sched:sched_switch", "-g"], waits),
        (&["trace", "-e", "sched:sched_process_exit", "--call-graph=fp"], &["sh", "-c", "true; true"]),
        (&["task-state", "-D", "--than", "1", "-g"], waits),
        (&["page-faults", "-g"], &["true"]),
        (&["kmemleak", "slab", "-g"], &["sh", "-c", "exec 3</dev/null"]),
    ];
    for (options, load) in cases {
        let with = |half: Option<&str>| all_halves(&run_over(&[options, half.as_slice(), &["--json"]].concat(), load));
        let (kernel, user) = with(None);
        assert!(kernel > 0 && user > 0, "{options:?}: {kernel} {user}");
        let (kernel, user) = with(Some("--no-kernel-callchain"));
        assert!(kernel == 0 && user > 0, "{options:?}: {kernel} {user}");
        let (kernel, user) = with(Some("--no-user-callchain"));
        assert!(kernel > 0 && user == 0, "{options:?}: {kernel} {user}");
    }
}

#[test]
fn stacks_of_the_kernel_alone_can_have_the_frames_of_programs() {
    need_events!();
    let load = Load::of("sh", &["-c", "while :; do /bin/true; done"]);
    let with = |half: Option<&str>| {
        let args = [&["kmemleak", "slab", "-g", "--all", "--json"], half.as_slice(), &["--for", "0.3"]].concat();
        all_halves(&run(&args).code(0))
    };
    // On a busy machine the load may not have its turn in that time.
    until("stacks", || {
        let (kernel, user) = with(None);
        assert_eq!(user, 0, "{kernel}");
        kernel > 0
    });
    until("stacks of both", || {
        let (kernel, user) = with(Some("--user-callchain"));
        kernel > 0 && user > 0
    });
    drop(load);
}

/// Stacks that are unwound by tables have no frames of the kernel either, and those of whole machines may have frames of
/// programs.
#[test]
fn halves_of_folded_stacks() {
    need_events!();
    let parts = example("parts");
    let lines = |options: &[&str]| {
        let args = [&["profile", "-F", "997", "--flame-graph", "-"], options, &["--", &parts, "300"]].concat();
        let done = run(&args).code(0);
        let of_load: Vec<String> = done.out.iter().filter(|line| line.starts_with("parts;")).cloned().collect();
        assert!(!of_load.is_empty(), "{:#?}", done.out);
        of_load
    };
    for how in ["--call-graph=fp", "--call-graph=dwarf"] {
        let left = lines(&[how, "--no-kernel-callchain"]);
        assert!(left.iter().all(|line| !line.contains("_[k]")), "{left:#?}");
        assert!(left.iter().any(|line| line.contains("parts::")), "{left:#?}");
    }
    let left = lines(&["--no-user-callchain"]);
    assert!(left.iter().all(|line| !line.contains("parts::")), "{left:#?}");
}

#[test]
fn a_choice_without_stacks_is_told() {
    need_events!();
    let args = ["page-faults", "--no-user-callchain", "--", "true"];
    run(&args).code(0).says(&["page-faults: a half of the stacks is chosen, but there are no stacks without -g"]);
}

/// The states with rows in a run over `dstate`, which sleeps and waits.
fn states(options: &[&str]) -> Vec<String> {
    let dstate = example("dstate");
    let args = [&["task-state", "--json"], options, &["--", &dstate, "4", "15"]].concat();
    let rows = run(&args).code(0).of_type("row");
    let mut states: Vec<String> = rows.iter().filter_map(|row| Some(row["state"].as_str()?.to_owned())).collect();
    states.dedup();
    states
}

#[test]
fn sleep_can_be_left_out() {
    need_events!();
    for (options, sleeps, waits) in [
        (&["--interruptible"][..], true, false),
        (&["--no-interruptible"], false, true),
        (&["-S", "--no-interruptible"], false, true),
        (&["--no-interruptible", "-S"], true, false),
        (&["-D", "--no-interruptible"], false, true),
    ] {
        let states = states(options);
        let has = |state: &str| states.iter().any(|other| other == state);
        assert_eq!((has("S"), has("D")), (sleeps, waits), "{options:?}: {states:?}");
    }
    let lines = |options: &[&str]| {
        let dstate = example("dstate");
        let args = [&["task-state", "--than", "5", "--json"], options, &["--", &dstate, "4", "15"]].concat();
        let done = run(&args).code(0);
        done.of_type("event").iter().filter(|event| is_state(event, "S")).count()
    };
    assert!(lines(&[]) > 0);
    assert_eq!(lines(&["--no-interruptible"]), 0);
}

#[test]
fn tasks_are_told_apart_by_priority() {
    need_events!();
    let dstate = example("dstate");
    let both = format!("{dstate} 4 15 usual & nice -n 7 {dstate} 4 15 nicer & wait");
    let names = |list: &str| {
        let args = ["task-state", "-D", "--perins", "--prio", list, "--json", "--", "sh", "-c", &both];
        let rows = run(&args).code(0).of_type("row");
        let count = |name: &str| rows.iter().filter(|row| row["comm"] == name).map(|row| number(row, "count")).sum();
        let counts: [u64; 2] = ["usual", "nicer"].map(count);
        counts
    };
    let [usual, nicer] = names("127");
    assert!(usual == 0 && nicer > 0, "{usual} {nicer}");
    let [usual, nicer] = names("0-120");
    assert!(usual > 0 && nicer == 0, "{usual} {nicer}");
    let [usual, nicer] = names("120,127");
    assert!(usual > 0 && nicer > 0, "{usual} {nicer}");
}

#[test]
fn whatever_has_a_key_can_be_paired() {
    need_events!();
    let tid = own_tid().to_string();
    let opens = "syscalls:sys_exit_openat/ret>=0/key=ret/";
    let args = ["kmemleak", "--alloc", opens, "--free", "syscalls:sys_enter_close//key=fd/", "-t", &tid];
    let run = start_watching(&args);
    let mut files: Vec<fs::File> = (0..20).map(|_| fs::File::open("/dev/null").expect("a file")).collect();
    files.truncate(7);
    let done = run.interrupt().code(0);
    assert_eq!((done.total("total_allocs"), done.total("total_frees")), (20, 13), "{:#?}", done.out);
    assert_eq!(done.sum("allocs", |row| row["comm"].is_string()), 7);
    // 0 is a key as any other.
    let (alloc, free) = ("syscalls:sys_enter_getppid//key=0/", "syscalls:sys_enter_getuid//key=0/");
    for calls in [1, 2] {
        let run = start_watching(&["kmemleak", "--alloc", alloc, "--free", free, "-t", &tid]);
        getppid();
        (1..calls).for_each(|_| getuid());
        let done = run.interrupt().code(0);
        assert_eq!(done.sum("allocs", |row| row["comm"].is_string()), 2 - calls, "{:#?}", done.out);
    }
}

#[test]
fn faults_are_told_apart_by_who_takes_them() {
    need_events!();
    // The kernel writes into a buffer that nobody has touched.
    let load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=1"];
    let faults = |option: &str| {
        let rows = run(&[&["page-faults", "-g", "--json", option, "--"][..], &load].concat()).code(0).of_type("row");
        let by = |in_kernel: bool| {
            let innermost = |row: &&Value| row["stack"][0]["addr"].as_str().map(|addr| addr.starts_with("0xffff"));
            let of_half = rows.iter().filter(|row| innermost(row) == Some(in_kernel));
            of_half.map(|row| number(row, "minor") + number(row, "major")).sum::<u64>()
        };
        (by(true), by(false))
    };
    let (kernel, user) = faults("--exclude-user");
    assert!(kernel >= 256 && user == 0, "{kernel} {user}");
    let (kernel, user) = faults("--exclude-kernel");
    assert!(kernel == 0 && user > 0, "{kernel} {user}");
}

/// A virtual machine that shares its CPUs is silent for 40 us often enough. A loop has this CPU for itself.
#[test]
fn silences_that_end_in_user_code_are_left_out() {
    need_events!(alone);
    let cpu = common::online_cpus()[0].to_string();
    let mut spin = Command::new("taskset");
    spin.args(["-c", &cpu, "sh", "-c", "while :; do :; done"]);
    let _load = Load::start(spin);
    let args = ["irq-off", "--period", "20us", "--than", "40us", "--all", "-g", "--user-callchain", "--json"];
    let silences = |option: &[&str]| {
        // Not its exit code: the names of so many stacks may take too long.
        let done = run(&[&args[..], option, &["-C", &cpu, "--for", "0.5"]].concat());
        let stacks: Vec<Value> = done.of_type("event").into_iter().map(|event| event["stack"].clone()).collect();
        let known = |stack: &&Value| halves(stack) != (0, 0); // others were left out for lack of time
        (stacks.iter().filter(known).filter(|stack| halves(stack).0 == 0).count(), stacks.len())
    };
    until("silences that end in user code", || silences(&[]).0 > 0);
    until("silences that end in the kernel", || {
        let (in_user_code, all) = silences(&["--exclude-user"]);
        assert_eq!(in_user_code, 0, "of {all}");
        all > 0
    });
}

#[test]
fn a_name_without_an_ending_is_that_of_folded_stacks() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    for name in ["cpu", "web1.2026-11-25"] {
        let path = dir.path().join(name);
        let load = ["profile", "-F", "997", "--flame-graph", path.to_str().unwrap(), "--", &example("parts"), "100"];
        run(&load).code(0);
        let folded = fs::read_to_string(dir.path().join(format!("{name}.folded"))).unwrap();
        assert!(folded.lines().any(|line| line.starts_with("parts;")), "{folded}");
        assert!(!path.exists());
    }
    let out = Command::new(env!("CARGO_BIN_EXE_perf-prof"))
        .args(["profile", "-F", "997", "--flame-graph", "", "--", &example("parts"), "100"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).lines().any(|line| line.starts_with("parts;")), "{out:?}");
}
