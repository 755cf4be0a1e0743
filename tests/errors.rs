//! Mistakes on the command line: each has an error of one sentence that names the cause and the cure, with exit code 2
//! for a text that does not parse and 1 for a run that is not possible here. Nothing is printed on stdout.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{Done, Prog, command, run};

const EXEC: &str = "sched:sched_process_exec";

/// One message: a sentence, and the text with a caret below it if the place matters.
#[track_caller]
fn assert_one_sentence(done: &Done, code: i32, words: &[&str]) {
    let what = format!("{done:?}");
    assert!(done.out.is_empty(), "stdout: {what}");
    let first = done.err.first().unwrap_or_else(|| panic!("nothing on stderr: {what}"));
    let sentence = first.strip_prefix("perf-prof: ").unwrap_or_else(|| panic!("no perf-prof: in {what}"));
    let caret = &done.err[1..];
    let is_caret = |lines: &[String]| lines.len() == 2 && lines[1].trim() == "^" && lines[0].starts_with("  ");
    assert!(caret.is_empty() || code > 0 && is_caret(caret), "more than one message: {what}");
    assert!(caret.iter().all(|line| line.chars().count() <= 80), "the caret wraps: {what}");
    assert!(!sentence.contains("perf-prof: "), "a prefix too many: {what}");
    assert!(!sentence.ends_with('.') && !sentence.starts_with(char::is_uppercase), "{what}");
    for word in ["panicked", "Error: ", "Os {", "Custom {", "RUST_BACKTRACE", "Err(", "Some(", "\x1b"] {
        assert!(!sentence.contains(word), "{word:?}: {what}");
    }
    assert!(first.len() <= 600, "{} bytes: {what}", first.len());
    for word in words {
        assert!(sentence.contains(word), "{word:?} is missing: {what}");
    }
}

type Case<'a> = (&'a [&'a str], &'a [&'a str]);

/// Runs `head` with each of the faults.
#[track_caller]
fn refused(head: &[&str], code: i32, cases: &[Case<'_>]) {
    for (args, words) in cases {
        let done = run(&[head, args].concat()).code(code);
        assert_one_sentence(&done, code, words);
    }
}

#[test]
fn options_that_all_profilers_share() {
    let cases: &[Case<'_>] = &[
        (&["-C", "0-"], &["'0-'", "--cpus", "number of a CPU is missing", "0-3,7"]),
        (&["-C", "5-1"], &["`5-1` runs backwards", "write 1-5"]),
        (&["-C", "0,,1"], &["'0,,1'", "missing"]),
        (&["-C", ""], &["--cpus", "missing"]),
        (&["-C", "-1"], &["'-1'", "--cpus"]),
        (&["-C", "a"], &["`a` is not a CPU", "0-3,7"]),
        (&["-C", "99999999999"], &["99999999999", "the last is"]),
        (&["-C", "０"], &["`０` is not a CPU"]),
        (&["-C", "0", "-C", "1"], &["--cpus", "twice"]),
        (&["-C"], &["--cpus", "missing"]),
        (&["-p", "0"], &["`0` is not an id", "from 1"]),
        (&["-p", "-1"], &["`-1` is not an id"]),
        (&["-p", ""], &["--pids", "empty"]),
        (&["-p", "1,,"], &["'1,,'", "empty"]),
        (&["-p", "2147483648"], &["2147483648", "2147483647"]),
        (&["-t", "0"], &["`0` is not an id"]),
        (&["-t", "-1"], &["`-1` is not an id"]),
        (&["-t", "a b"], &["`a b` is not an id", "1,22"]),
        (&["-p", "1", "-t", "1"], &["--pids", "--tids", "choose one"]),
        (&["-p", "1", "--cgroups", "x"], &["--pids", "--cgroups", "choose one"]),
        (&["-t", "1", "--cgroups", "x"], &["--tids", "--cgroups", "choose one"]),
        (&["-p", "1", "--", "true"], &["--pids", "COMMAND", "choose one"]),
        (&["--cgroups", "x", "--", "true"], &["--cgroups", "COMMAND", "choose one"]),
        (&["--cgroups", ""], &["--cgroups", "empty"]),
        (&["--cgroups", "a,,b"], &["'a,,b'", "empty"]),
        (&["-m", "3"], &["'3'", "power of two", "the next is 4"]),
        (&["-m", "0"], &["'0'", "at least 1"]),
        (&["-m", "-1"], &["'-1'", "--mmap-pages"]),
        (&["-m", "4Q"], &["unknown unit `Q`", "K, M or G"]),
        (&["-m", ""], &["--mmap-pages", "as in 256"]),
        (&["-m", "99999999999999999999"], &["too large", "4M"]),
        (&["-i", "0"], &["-i 0ns", "1ms"]),
        (&["-i", "0.5us"], &["-i 500ns", "1ms"]),
        (&["-i", "-1"], &["'-1'", "--interval", "1.5ms"]),
        (&["-i", "abc"], &["'abc'", "--interval", "1.5ms"]),
        (&["-i", "1µs"], &["unknown unit `µs`", "ns, us, ms or s"]),
        (&["-i", "99999999999999999999"], &["too long", "584 years"]),
        (&["--for", "0"], &["--for 0", "10s"]),
        (&["--for", "-1"], &["'-1'", "--for"]),
        (&["--for", "."], &["not a time"]),
        (&["--for", "1e9"], &["unknown unit `e9`"]),
        (&["--for", "10min"], &["unknown unit `min`"]),
        (&["--dry-run", "--for", "99ms"], &["--dry-run", "100 ms at least", "--for"]),
        (&["--dry-run=5"], &["--dry-run", "no value", "'5'"]),
        (&["--dry-run", "--dry-run"], &["--dry-run", "twice"]),
        (&["--dryrun"], &["--dryrun", "did you mean --dry-run?"]),
        (&["-N", "0"], &["'0'", "--exit-N", "at least 1"]),
        (&["-N", "-1"], &["'-1'", "--exit-N"]),
        (&["-N", "1.5"], &["'1.5'", "not a number"]),
        (&["-N", "99999999999999999999"], &["'99999999999999999999'", "too large"]),
        (&["-o", ""], &["--output", "missing"]),
        (&["--json=x"], &["--json", "no value", "'x'"]),
        (&["--json", "--json"], &["--json", "twice"]),
        (&["--jsn"], &["--jsn", "did you mean --json?"]),
        (&["--intervall", "1"], &["--intervall", "did you mean --interval?"]),
        (&["-Q"], &["-Q", "--help"]),
        (&["extra"], &["'extra'", "-- extra"]),
        (&["\x1b[31m"], &["'\\x1b[31m'"]),
        (&["-t", "a\nb"], &["a\\x0ab"]),
    ];
    for head in [
        &["trace", "-e", EXEC][..],
        &["task-state"],
        &["profile"],
        &["signal"],
        &["split-lock"],
        &["irq-off"],
        &["watchdog"],
    ] {
        refused(head, 2, cases);
    }
}

#[test]
fn targets_that_are_not_there() {
    need_events!();
    let cases: &[Case<'_>] = &[
        (&["-C", "99999"], &["99999", "online"]),
        (&["-p", "99999999"], &["no process 99999999", "ps -e"]),
        (&["-t", "99999999"], &["no thread 99999999", "ps -eL"]),
        (&["-p", "no such\tname"], &["'no such\\x09name'", "ps -eo comm"]),
        (&["-p", "é"], &["'é'"]),
        (&["--cgroups", "no-such-group"], &["\"no-such-group\"", "its path"]),
        (&["--cgroups", "../.."], &["\"../..\""]),
        (&["-o", "/nonexistent/x"], &["cannot write to /nonexistent/x", "No such file"]),
        (&["-o", "/"], &["cannot write to /", "directory"]),
        (&["--", "/nonexistent/command"], &["cannot execute \"/nonexistent/command\"", "No such file"]),
        (&["--", "/etc/passwd"], &["cannot execute \"/etc/passwd\"", "Permission denied"]),
        (&["--", ""], &["cannot execute \"\""]),
    ];
    for head in [&["trace", "-e", EXEC][..], &["task-state"], &["signal"]] {
        refused(head, 1, cases);
    }
    // The line about the CPU clock in place of cycles comes before the workload is started.
    refused(&["profile"], 1, &cases[..9]);
}

#[test]
fn a_misspelt_process_gets_the_nearest_names() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quite-a-daemon");
    std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
    let shell = common::Load::start(Command::new(&path));
    let done = run(&["trace", "-e", EXEC, "-p", "quiet-a-daemon"]).code(1);
    assert_one_sentence(&done, 1, &["'quiet-a-daemon'", "did you mean quite-a-daemon?"]);
    shell.stop();
}

#[test]
fn events_that_do_not_parse() {
    need_events!();
    let deep = "(".repeat(20_000);
    let long = format!("{}:{}é", "s".repeat(5000), "e".repeat(5000));
    let cases: &[Case<'_>] = &[
        (&["-e", ""], &["-e", "missing", "sched:sched_switch"]),
        (&["-e", ":"], &["-e", "name is missing"]),
        (&["-e", "a:b:c"], &["unexpected character"]),
        (&["-e", "sched"], &["`sched` is not an event", "SYSTEM:NAME", "sched:*"]),
        (&["-e", "sched_*"], &["`sched_*` is not an event", "*:sched_*"]),
        (&["-e", "sched_swich"], &["`sched_swich` is not an event", "did you mean sched:sched_switch"]),
        (&["-e", "cycles"], &["`cycles` is not an event", "perf-prof profile"]),
        (&["-e", "page-faults"], &["`page-faults` is not an event", "split-lock --event page-faults"]),
        (&["-e", "vfs_write"], &["`vfs_write` is not an event", "did you mean kprobe:vfs_write?"]),
        (&["-e", "sched_switch//args='a=$arg1'/"], &["args are for probes"]),
        (&["-e", "sched:"], &["name is missing"]),
        (&["-e", "sched:sched_switch,"], &["event is missing"]),
        (&["-e", "/"], &["-e", "SYSTEM:NAME"]),
        (&["-e", "sched:*/("], &["`(` is never closed"]),
        (&["-e", "sched:sched_switch/prev_comm~\"a/"], &["quote is never closed"]),
        (&["-e", "sched:sched_switch/"], &["second `/` is missing"]),
        (&["-e", "sched:sched_switch//bogus/"], &["\"bogus\"", "known: stack"]),
        (&["-e", "sched:sched_switch//cpus=5-1/"], &["5-1"]),
        (&["-e", "sched:\x1b[31m"], &["unexpected character"]),
        (&["-e", &long], &["unexpected character"]),
        (&["-e", "sched:sched_switch/prev_pid ==/"], &["sched:sched_switch", "expected"]),
        (&["-e", "sched:sched_switch/prev_pid==\"a\"/"], &["`prev_pid` is a number", "no quotes"]),
        (&["-e", "sched:sched_switch/prev_comm>5/"], &["`prev_comm`"]),
        (
            &["-e", "sched:sched_switch/prev_pid==99999999999999999999/"],
            &["`prev_pid` holds -2147483648 to 2147483647"],
        ),
        (&["-e", EXEC, "--filter", ""], &["filter is empty"]),
        (&["-e", EXEC, "--filter", "pid=="], &["value expected"]),
        (&["-e", EXEC, "--filter", &deep], &["too many parentheses"]),
        (&["-e"], &["--event", "missing"]),
        (&[], &["--event", "missing", "trace --help"]),
    ];
    refused(&["trace"], 2, cases);
}

#[test]
fn events_that_are_not_there() {
    need_events!();
    let cases: &[Case<'_>] = &[
        (&["-e", "sched:sched_swich"], &["sched:sched_swich", "did you mean sched:sched_switch?"]),
        (&["-e", "shced:sched_switch"], &["shced:sched_switch", "did you mean sched:sched_switch?"]),
        (&["-e", "zzzz:zzzzzzzzzz"], &["zzzz:zzzzzzzzzz", "perf-prof list"]),
        (&["-e", "function:vfs_write"], &["function:vfs_write", "did you mean kprobe:vfs_write?"]),
        (&["-e", "nosuch*:*"], &["nosuch*:*", "perf-prof list"]),
        (&["-e", "uprobe:x@\"/nonexistent\""], &["uprobe:x@", "cannot open /nonexistent"]),
        (&["-e", "sched:sched_switch/prev_pdi==5/"], &["`prev_pdi`", "prev_pid"]),
        (&["-e", "sched:sched_switch//cpus=99999/"], &["sched:sched_switch", "cpus=", "(watched: 0"]),
    ];
    refused(&["trace"], 1, cases);
}

#[test]
fn options_of_profile() {
    refused(
        &["profile"],
        2,
        &[
            (&["-F", "0"], &["'0'", "--freq", "at least 1"]),
            (&["-F", "-1"], &["'-1'", "--freq"]),
            (&["-F", "abc"], &["'abc'", "not a number"]),
            (&["-F", "99999999999999999999"], &["too large"]),
            (&["-c", "0"], &["'0'", "--count", "at least 1"]),
            (&["-c", "1k"], &["'1k'", "--count", "not a number"]),
            (&["-c", "9223372036854775808"], &["'9223372036854775808'", "--count", "too large", "9223372036854775807"]),
            (&["-c", "1000000", "-F", "99"], &["--count", "--freq", "choose one"]),
            (&["--than", "101"], &["'101'", "no share is over 100 %"]),
            (&["--than", "-5"], &["'-5'", "as in 90"]),
            (&["--than", "1e9"], &["'1e9'", "as in 90"]),
            (&["--than", "12.345"], &["'12.345'", "two digits"]),
            (&["--max-stack", "0"], &["'0'", "--max-stack", "at least 1"]),
            (&["--print-stack", "x"], &["'x'", "--print-stack"]),
            (&["--flame-graph", "x.png"], &["'x.png'", ".svg or .folded"]),
            (&["--flame-graph", "/"], &["'/'", "it is no file"]),
            (&["--flame-graph", "-", "--json"], &["--flame-graph -", "-o"]),
            (&["--flame-graph", "x.svg", "-o", "x.svg"], &["-o and --flame-graph", "same file"]),
            (&["--exclude-user", "--exclude-kernel"], &["--exclude-user", "--exclude-kernel"]),
            (&["--exclude-host", "--exclude-guest"], &["--exclude-host", "--exclude-guest"]),
        ],
    );
    need_events!();
    refused(
        &["profile"],
        1,
        &[
            (&["-F", "10000000"], &["-F 10000000", "kernel.perf_event_max_sample_rate", "sysctl"]),
            (&["--max-stack", "99999"], &["--max-stack 99999", "kernel.perf_event_max_stack", "sysctl"]),
            (&["--flame-graph", "/nonexistent/x.svg"], &["/nonexistent/x.svg", "No such file"]),
        ],
    );
}

#[test]
fn options_of_signal_and_split_lock() {
    refused(
        &["signal"],
        2,
        &[
            (&["--filter", ""], &["--filter", "empty"]),
            (&["--filter", "a,,b"], &["'a,,b'", "nginx,java*"]),
            (&["--than", "1"], &["--than"]),
            (&["-F", "1"], &["-F"]),
        ],
    );
    refused(
        &["split-lock"],
        2,
        &[
            (&["-T", "x"], &["'x'", "--trigger", "as in 10"]),
            (&["-T", "-1"], &["'-1'", "--trigger"]),
            (&["-T", "1.5"], &["'1.5'", "not a number"]),
            (&["-T", "99999999999999999999"], &["too large"]),
            (
                &["-T", "9223372036854775808"],
                &["'9223372036854775808'", "--trigger", "too large", "9223372036854775807"],
            ),
            (&["-T", "0", "-g"], &["-T 0", "no samples", "-g"]),
            (&["-T", "0", "--flame-graph", "-"], &["-T 0", "no samples", "--flame-graph"]),
            (&["--event", "x"], &["'x'", "--event", "page-faults", "r10f4"]),
            (&["--event", ""], &["--event"]),
            (&["--event", "rx"], &["'rx'", "r10f4"]),
            (&["--event", "r11111111111111111"], &["too large", "64 bits"]),
            (&["--event", "page-faults", "--test"], &["--event", "--test", "choose one"]),
            (&["--event", "page-faults", "-G"], &["-G", "page-faults", "leave out -G"]),
            (&["--test", "-p", "1"], &["--test", "-p leaves out", "choose one"]),
            (&["--test", "-t", "1"], &["--test", "-t leaves out", "choose one"]),
            (&["--test", "--cgroups", "/"], &["--test", "--cgroups leaves out", "choose one"]),
            (&["--test", "-G"], &["--test", "-G leaves out", "choose one"]),
            (&["--test", "--", "true"], &["--test", "a command leaves out", "choose one"]),
            (&["--filter", "x"], &["--filter"]),
        ],
    );
}

#[test]
fn options_of_watchdog() {
    refused(
        &["watchdog"],
        2,
        &[
            (&["-F", "0"], &["'0'", "--freq", "at least 1"]),
            (&["-F", "x"], &["'x'", "not a number"]),
            (&["-p", "1"], &["-p names tasks", "-C"]),
            (&["-p", "no such process"], &["-p names tasks"]),
            (&["-t", "1"], &["-t names tasks", "-C"]),
            (&["--cgroups", "/"], &["--cgroups names tasks", "-C"]),
            (&["--than", "5"], &["--than", "watchdog --help"]),
        ],
    );
    need_events!();
    refused(
        &["watchdog"],
        1,
        &[
            (&["-F", "10000000"], &["-F 10000000", "kernel.perf_event_max_sample_rate", "sysctl"]),
            (&["-C", "99999"], &["none of these CPUs", "watchdog_cpumask"]),
        ],
    );
}

#[test]
fn options_of_task_state_list_and_doctor() {
    refused(
        &["task-state"],
        2,
        &[
            (&["--than", "abc"], &["'abc'", "--than", "1.5ms"]),
            (&["--than", "-5"], &["'-5'", "--than"]),
            (&["--than", "1e9"], &["unknown unit `e9`"]),
            (&["--than", ""], &["--than"]),
            (&["--filter", ""], &["--filter", "empty", "nginx,java*"]),
            (&["--filter", "a,"], &["'a,'", "empty"]),
            (&["-g"], &["-g", "--than 100ms"]),
            (&["-S", "-S"], &["--interruptible", "twice"]),
        ],
    );
    refused(
        &["list"],
        2,
        &[(&["["], &["`[`", "unclosed"]), (&["\x1b["], &["\\x1b["]), (&["--nonsense"], &["--nonsense", "list --help"])],
    );
    refused(
        &["doctor"],
        2,
        &[(&["extra"], &["'extra'", "doctor --help"]), (&["--formats"], &["--formats", "missing"])],
    );
    refused(
        &["doctor", "--formats"],
        1,
        &[(&["/nonexistent"], &["/nonexistent", "No such file"]), (&["/etc/passwd"], &["/etc/passwd"])],
    );
    need_events!();
    refused(
        &["list"],
        1,
        &[
            (&["sched:sched_swich"], &["sched:sched_swich", "did you mean sched:sched_switch?"]),
            (&["zzzzzzzzzz"], &["zzzzzzzzzz", "perf-prof list"]),
        ],
    );
}

#[test]
fn options_of_irq_off() {
    refused(
        &["irq-off"],
        2,
        &[
            (&["-L", "abc"], &["'abc'", "--latency", "1.5ms"]),
            (&["-L", "-5"], &["'-5'", "--latency"]),
            (&["-L", "0"], &["0ns is too short", "20us"]),
            (&["-L", "19"], &["19.0us is too short", "20us"]),
            (&["-L", "99999999999999999999"], &["too long"]),
            (&["--than", "20"], &["'20'", "--than", "the unit is missing", "20ms"]),
            (&["--period", "5"], &["'5'", "--period", "the unit is missing"]),
            (&["--period", "9us"], &["--period 9.0us", "10us"]),
            (&["--period", "0ms"], &["--period 0ns", "10us"]),
            (&["--period", "20ms"], &["--period 20.0ms", "shorter than the limit, 20.0ms"]),
            (&["--period", "50ms", "--than", "10ms"], &["--period 50.0ms", "10.0ms"]),
            (&["-L", "5", "--than", "5ms"], &["--latency", "--than", "choose one"]),
            (&["--precise", "--period", "1ms"], &["--precise", "--period", "choose one"]),
            (&["-p", "1"], &["-p", "watches whole CPUs", "-C"]),
            (&["-t", "1"], &["-t", "watches whole CPUs", "-C"]),
            (&["--cgroups", "x"], &["--cgroups", "watches whole CPUs", "-C"]),
            (&["-F", "99"], &["-F", "irq-off --help"]),
        ],
    );
}

#[test]
fn options_of_kmemleak() {
    let free: &[&str] = &["--free", "kmem:kfree"];
    refused(
        &["kmemleak"],
        2,
        &[
            (&[], &["what to watch is missing", "kmemleak slab", "--alloc and --free"]),
            (&["malloc"], &["whose memory", "-p PID", "-t TID", "--cgroups NAME", "kmemleak malloc -- ./program"]),
            (&["malloc", "-C", "0", "-g"], &["whose memory", "-p PID"]),
            (&["slub"], &["'slub'", "slab, page, percpu, vmalloc, malloc"]),
            (&["slab", "page"], &["'page'", "-- page"]),
            (&["--alloc", "kmem:kmalloc"], &["--free", "missing"]),
            (free, &["--alloc", "missing"]),
            (&["slab", "--than", "old"], &["'old'", "--than", "1.5ms"]),
            (&["slab", "--than", "-1"], &["'-1'", "--than"]),
            (&["slab", "--all", "--all"], &["--all", "twice"]),
        ],
    );
    let lists: &[Case<'_>] = &[
        (&["--alloc", ""], &["--alloc", "an event is missing"]),
        (&["--alloc", "kmem:kmalloc//size=1+/"], &["--alloc: size of kmem:kmalloc", "missing"]),
        (&["--alloc", "kmem:kmalloc//ptr=(1/"], &["`(` is never closed"]),
        (&["--alloc", "kmem:*"], &["kmem:* has a wildcard", "in full"]),
        (&["--alloc", "kmem:kmalloc//by=1/"], &["unknown attribute \"by\"", "ptr=EXPR, key=EXPR, size=EXPR"]),
    ];
    for (list, words) in lists {
        refused(&[&["kmemleak"], *list, free].concat(), 2, &[(&[], words)]);
    }
    need_events!();
    let absent: &[Case<'_>] = &[
        (&["--alloc", "kmem:kmalock"], &["there is no event kmem:kmalock", "did you mean"]),
        (&["--alloc", "kmem:mm_page_alloc"], &["no field `ptr`", "//ptr=EXPR/", "pfn"]),
        (&["--alloc", "kmem:kmalloc//size=bytes/"], &["kmem:kmalloc has no field `bytes`", "bytes_req"]),
        (&["--alloc", "kmem:kmalloc,kmem:kmalloc"], &["kmem:kmalloc is given twice", "double"]),
        (&["--alloc", "kmem:mm_page_alloc//size=1/"], &["the return", "must come next"]),
        (&["--alloc", "kmem:kmalloc/nonsense==1/"], &["nonsense"]),
    ];
    for (list, words) in absent {
        refused(&[&["kmemleak"], *list, free].concat(), 1, &[(&[], words)]);
    }
}

#[test]
fn unknown_subcommands() {
    let cases: &[Case<'_>] = &[
        (&["tarce"], &["'tarce'", "did you mean trace?"]),
        (&["task_state"], &["'task_state'", "did you mean task-state?"]),
        (&["TRACE"], &["'TRACE'", "did you mean trace?"]),
        (&["zzzzzzzz"], &["'zzzzzzzz'", "there are", "task-state, top, trace"]),
        (&[""], &["''", "there are"]),
        (&["\x1b[31m"], &["'\\x1b[31m'"]),
        (&["help", "nosuch"], &["'nosuch'"]),
        (&["--nosuch"], &["--nosuch", "perf-prof --help"]),
        (&["-p", "1"], &["-p", "perf-prof --help"]),
    ];
    refused(&[], 2, cases);
    let long = "x".repeat(100_000);
    refused(&[], 2, &[(&[&long], &["xxx...xxx"])]);
}

#[test]
fn help_and_version() {
    for args in [&["--help"][..], &["-h"], &["help"], &["help", "trace"], &["trace", "-h"], &["list", "--help"]] {
        let done = run(args).code(0);
        assert!(done.err.is_empty() && done.out.iter().any(|line| line.starts_with("Usage: perf-prof")), "{done:?}");
    }
    for args in ["--version", "-V"] {
        assert_eq!(run(&[args]).code(0).out, [format!("perf-prof {}", env!("CARGO_PKG_VERSION"))]);
    }
    let done = run(&[]).code(2);
    assert!(done.out.is_empty() && done.err.iter().any(|line| line.starts_with("Usage: perf-prof")), "{done:?}");
}

#[test]
fn an_argument_that_is_not_utf_8_is_named() {
    let bad = std::ffi::OsStr::from_bytes(b"a\xffb");
    for option in ["-C", "-p", "-e", "--cgroups", "--filter", "-i"] {
        let mut command = command(&["trace", "-e", EXEC, option]);
        command.arg(bad);
        assert_one_sentence(&Prog::spawn(command).finish().code(2), 2, &["'a\\xffb'", "not UTF-8"]);
    }
}

// Runs that this machine refuses

const NOBODY: u32 = 65534;

/// A copy of the program that the user `nobody` may execute: the build directory may be closed to that user.
fn open_copy(dir: &Path) -> std::path::PathBuf {
    let open = |path: &Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let exe = dir.join("perf-prof");
    common::copy_program(env!("CARGO_BIN_EXE_perf-prof"), &exe);
    open(dir);
    open(&exe);
    exe
}

#[test]
fn the_user_nobody_is_told_to_be_root() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let exe = open_copy(dir.path());
    let cases: [&[&str]; 6] = [
        &["trace", "-e", EXEC],
        &["trace", "-e", "sched:*"],
        &["trace", "-e", "nosuch:event"],
        &["task-state"],
        &["list"],
        &["list", "sched:sched_switch"],
    ];
    for args in cases {
        let mut command = Command::new(&exe);
        command.args(args).uid(NOBODY).gid(NOBODY);
        assert_one_sentence(&Prog::spawn(command).finish().code(1), 1, &["root"]);
    }
    // A text that does not parse is an error for every user.
    let mut command = Command::new(&exe);
    command.args(["trace", "-e", "nosuch"]).uid(NOBODY).gid(NOBODY);
    assert_one_sentence(&Prog::spawn(command).finish().code(2), 2, &["`nosuch` is not an event"]);
}

#[test]
fn profilers_that_need_all_pids_refuse_a_nested_pid_namespace() {
    need_events!();
    for args in [&["kmemleak", "slab"][..], &["irq-off"], &["signal"], &["task-state"]] {
        let mut command = Command::new("unshare");
        command.args(["-p", "-f", "--mount-proc", env!("CARGO_BIN_EXE_perf-prof")]).args(args).args(["--for", "1ms"]);
        let done = Prog::spawn(command).finish();
        if done.err().contains("unshare:") {
            skip!("{}", done.err());
        }
        assert_one_sentence(&done.code(1), 1, &["pid namespace", "--pid=host"]);
    }
}

#[test]
fn a_hidden_tracefs_is_mounted_privately() {
    need_events!();
    let script = r#"mount -t tmpfs none /sys/kernel/tracing && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_perf-prof")]);
    command.args(["trace", "-e", EXEC, "--", "true"]);
    let done = Prog::spawn(command).finish();
    if done.err().contains("unshare:") || done.err().contains("mount:") {
        skip!("{}", done.err());
    }
    let done = done.code(0).says(&["trace: 1 event in ", "0 lost"]);
    assert!(done.out.iter().any(|line| line.contains(EXEC)), "{done:?}");
}
