//! `trace`: selection and output of events.

#[macro_use]
mod common;

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use common::{Done, Load, example, getppid, load_number, number, own_tid, run, run_over, start, syscall};
use serde_json::Value;

const EXEC: &str = "sched:sched_process_exec";

/// Names of the events that were shown, each once, sorted.
fn names(done: &Done) -> Vec<String> {
    let mut names: Vec<String> =
        done.of_type("event").iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Runs /bin/true in a shell under `trace --json` with these options.
fn execs(options: &[&str]) -> Done {
    run(&[&["trace", "--json"], options, &["--", "sh", "-c", "/bin/true"]].concat()).code(0)
}

// Selection

#[test]
fn patterns_lists_and_repeats() {
    need_events!();
    let (exec, exit) = (EXEC.to_owned(), "sched:sched_process_exit".to_owned());
    let cases: [(&[&str], &[&String]); 4] = [
        (&["-e", EXEC], &[&exec]),
        (&["-e", &format!("{EXEC},{exit}")], &[&exec, &exit]),
        (&["-e", EXEC, "-e", &exit], &[&exec, &exit]),
        (&["-e", "sched:sched_process_ex[ei][ct]"], &[&exec, &exit]),
    ];
    for (options, want) in cases {
        let done = execs(options);
        assert_eq!(names(&done).iter().collect::<Vec<_>>(), want, "{options:?}");
        let of = |name: &String| done.of_type("event").iter().filter(|event| event["event"] == *name).count();
        assert!(want.iter().all(|name| of(name) == 2), "{options:?}: {done:?}");
    }
}

#[test]
fn a_name_alone_is_that_of_one_event() {
    need_events!();
    let done = execs(&["-e", "sched_process_exec"]).says(&["sched_process_exec: sched:sched_process_exec"]);
    assert_eq!(names(&done), [EXEC], "{done:?}");
    let alone = |line: &&String| line.contains("sched_process_exec: ");
    // Chosen twice: one line on stderr, and each event shown once.
    let done = execs(&["-e", "sched_process_exec,sched_process_exec", "-e", EXEC]);
    assert_eq!((done.err.iter().filter(alone).count(), done.of_type("event").len()), (1, 2), "{done:?}");
    if run(&["list", "syscalls:sys_enter_execve"]).out.is_empty() {
        skip!("this kernel has no events of system calls");
    }
    let done = execs(&["-e", "execve"]).says(&["execve: syscalls:sys_enter_execve"]);
    assert_eq!(names(&done), ["syscalls:sys_enter_execve"], "{done:?}");
}

#[test]
fn a_picture_alone_prints_no_events() {
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.svg");
    let options = ["trace", "-e", EXEC, "--flame-graph", path.to_str().unwrap()];
    let done = run(&[&options[..], &["--", "true"]].concat()).code(0).says(&["trace: 1 event in "]);
    assert!(done.out.is_empty(), "{done:?}");
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.contains("perf-prof trace: true, sched:sched_process_exec, ") && svg.contains("<title>true (1 events"));
    // Options that ask for events print them.
    for more in [&["-g"][..], &["--json"]] {
        let done = run(&[&options[..], more, &["--", "true"]].concat()).code(0);
        assert!(done.out.iter().any(|line| line.contains(EXEC)), "{more:?}: {done:?}");
    }
}

#[test]
fn verbose_lists_the_events_of_a_pattern() {
    need_events!();
    let done = run(&["trace", "-v", "-e", "sched:sched_wak*", "--for", "1ms"]).code(0);
    let line = done.err.iter().find(|line| line.starts_with("sched:sched_wak* is ")).expect("the expansion");
    let names: Vec<&str> = line.rsplit(" is ").next().unwrap().split(' ').collect();
    assert!(names.contains(&"sched:sched_wakeup") && names.contains(&"sched:sched_waking"), "{line}");
}

#[test]
fn a_pattern_leaves_out_what_the_kernel_refuses() {
    need_events!();
    // arch/x86/include/asm/trace/irq_vectors.h: sampling irq_work_exit would raise the next irq_work.
    if run(&["list", "irq_vectors:irq_work_exit"]).out.is_empty() {
        skip!("only x86 has irq_vectors:irq_work_exit");
    }
    let done = run(&["trace", "-e", "irq_vectors:irq_work_*", "--for", "1ms"]).code(0);
    done.says(&["left out", "irq_vectors:irq_work_exit"]);
    let done = run(&["trace", "-e", "irq_vectors:irq_work_exit", "--for", "1ms"]).code(1);
    assert!(!done.err().contains("run as root"), "{done:?}");
}

#[test]
fn a_filter_for_one_and_for_all() {
    need_events!();
    let both = format!("{EXEC},sched:sched_process_exit");
    let done = execs(&["-e", &both, "--filter", r#"common_pid > 0 && comm == "true""#]);
    // The exec event has a field `filename` and no `comm` of its own; COMM is still the old name.
    assert!(done.of_type("event").iter().all(|event| event["comm"] == "true"), "{done:?}");
    assert!(names(&done).contains(&"sched:sched_process_exit".to_owned()), "{done:?}");

    let one = format!(r#"{EXEC}/filename ~ "*true"/,sched:sched_process_exit"#);
    let done = execs(&["-e", &one]);
    let execs: Vec<Value> = done.of_type("event").into_iter().filter(|event| event["event"] == EXEC).collect();
    assert_eq!(execs.len(), 1, "{done:?}");
    assert_eq!(execs[0]["fields"]["filename"], "/bin/true");
    assert_eq!(done.of_type("event").len(), 3, "{done:?}");
}

#[test]
fn a_stack_only_where_it_was_asked_for() {
    need_events!();
    let event = format!("{EXEC}//stack/,sched:sched_process_exit");
    for event_of_ours in execs(&["-e", &event]).of_type("event") {
        let frames = event_of_ours["stack"].as_array().map_or(0, Vec::len);
        assert_eq!(frames > 0, event_of_ours["event"] == EXEC, "{event_of_ours}");
    }
    for event in execs(&["-g", "-e", EXEC]).of_type("event") {
        let frames = event["stack"].as_array().unwrap();
        let named = frames.iter().filter_map(|frame| frame["symbol"].as_str()).collect::<Vec<_>>();
        assert!(named.iter().any(|name| name.contains("execve")), "{event}");
        for frame in frames {
            assert!(frame["addr"].as_str().is_some_and(|addr| addr.starts_with("0x")), "{frame}");
            assert!(frame["symbol"].is_string() != frame["reason"].is_string(), "{frame}");
        }
    }
    for event in execs(&["-e", &format!("{EXEC}//max-stack=2/")]).of_type("event") {
        let frames = event["stack"].as_array().unwrap();
        let addresses = frames.iter().filter(|frame| frame["addr"].is_string()).count();
        assert_eq!((addresses, &frames[frames.len() - 1]["symbol"]), (2, &Value::from("[truncated]")), "{event}");
    }
    assert!(execs(&["-e", EXEC]).of_type("event").iter().all(|event| event["stack"].is_null()));
}

#[test]
fn an_alias_is_shown() {
    need_events!();
    let event = format!("{EXEC}//alias=start of it/");
    let done = run(&["trace", "-e", &event, "--", "true"]).code(0);
    assert!(done.out[0].contains("] start of it: filename="), "{done:?}");
    let shown = &execs(&["-e", &event]).of_type("event")[0];
    assert_eq!((&shown["event"], &shown["alias"]), (&EXEC.into(), &"start of it".into()));
}

#[test]
fn an_event_on_some_cpus() {
    need_events!();
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let (pingpong, nr) = (example("pingpong"), libc::SYS_write);
    let event = format!("raw_syscalls:sys_enter/id=={nr}/cpus={one}/");
    let done = run_over(&["trace", "--json", "-e", &event], &[&pingpong, "1000", &one.to_string(), &other.to_string()]);
    let of = |name: &str| done.of_type("event").iter().filter(|event| event["comm"] == name).count();
    assert_eq!((of("ping"), of("pong")), (1000, 0));
}

// Refusals

/// The line with the caret, and the one it points into.
fn caret(done: &Done) -> (String, String) {
    let at = done.err.iter().position(|line| line.trim() == "^").unwrap_or_else(|| panic!("no caret: {done:?}"));
    (done.err[at - 1].clone(), done.err[at].clone())
}

#[test]
fn texts_that_do_not_parse_get_a_caret() {
    need_events!();
    // (option, text, what follows the caret)
    let cases = [
        ("-e", "sched:sched_switch/", ""),
        ("-e", "sched:sched_switch//foo/", "foo/"),
        ("-e", "sched:sched_switch//stack=1/", "1/"),
        ("-e", "sched:sched_switch//cpus=2-0/", "2-0/"),
        ("-e", "sched:sched_switch,,", ",,"),
        ("-e", "word", "word"),
        ("-e", "sched:sched_switch/prev_pid==/", ""),
        ("-e", "sched:sched_switch/prev_pid==1 &&/", ""),
        ("-e", "sched:sched_switch/(prev_pid==1/", "(prev_pid==1/"),
        ("--filter", "prev_pid==", ""),
        ("--filter", "prev_pid == 0x", "0x"),
        ("--filter", "prev_pid === 1", "= 1"),
    ];
    for (option, text, rest) in cases {
        let mut args = vec!["trace", option, text];
        if option != "-e" {
            args.extend(["-e", "sched:sched_switch"]);
        }
        let done = run(&args).code(2);
        let (shown, mark) = caret(&done);
        let after = shown.chars().skip(mark.chars().count() - 1).collect::<String>();
        let at_fault = if rest == ",," { after == "," } else { after == rest };
        assert!(at_fault, "{text:?}: the caret is before {after:?}: {done:?}");
        assert!(done.err[0].starts_with("perf-prof: ") && done.out.is_empty(), "{done:?}");
    }
}

#[test]
fn options_that_do_not_parse() {
    let cases: [(&[&str], &[&str]); 11] = [
        (&["-C", "2-0"], &["2-0", "--cpus"]),
        (&["-C", ""], &["--cpus"]),
        (&["-m", "3"], &["power of two", "4"]),
        (&["-m", "0"], &["at least 1"]),
        (&["-i", "abc"], &["abc", "--interval"]),
        (&["-i", "0"], &["-i", "1ms"]),
        (&["--for", "1x"], &["1x", "`x`"]),
        (&["-N", "x"], &["--exit-N"]),
        (&["-t", "bash"], &["bash"]),
        (&["--bogus"], &["--bogus"]),
        (&["-p", "1", "-t", "1"], &["--pids", "--tids"]),
    ];
    for (options, said) in cases {
        let done = run(&[&["trace", "-e", EXEC], options].concat()).code(2).says(said);
        assert!(done.out.is_empty(), "{options:?}: {done:?}");
    }
    run(&["trace"]).code(2).says(&["--event"]);
    run(&["trase"]).code(2).says(&["trace"]);
    assert!(run(&["trace", "--help"]).code(0).out.iter().any(|line| line.contains("Examples:")));
}

#[test]
fn events_and_fields_that_are_not_there() {
    need_events!();
    let cases: [(&[&str], &[&str]); 5] = [
        (&["-e", "sched:sched_swich"], &["sched:sched_swich", "did you mean sched:sched_switch"]),
        (&["-e", "nosuch:event"], &["nosuch:event"]),
        (&["-e", "nosuch:*"], &["nosuch:*"]),
        (&["-e", "sched:sched_switch/prev_pidd==1/"], &["prev_pidd", "prev_pid"]),
        (&["-e", "sched:sched_switch", "--filter", "nofield==1"], &["nofield", "next_comm"]),
    ];
    for (options, said) in cases {
        let done = run(&[&["trace"], options].concat()).code(1).says(said);
        assert!(done.err[0].starts_with("perf-prof: ") && done.out.is_empty(), "{done:?}");
    }
}

// Output

#[test]
fn json_keeps_its_contract() {
    need_events!();
    let before = SystemTime::now();
    let done = execs(&["-e", EXEC]);
    let after = SystemTime::now();
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    done.end();
    for object in done.json() {
        assert_eq!(object["profiler"], "trace");
        assert!(number(&object, "time_ns") > 0);
        let wall: jiff::Timestamp = object["wall"].as_str().unwrap().parse().expect("RFC 3339");
        let wall = wall.as_nanosecond() as f64 / 1e9;
        assert!((seconds(before) - 1.0..seconds(after) + 1.0).contains(&wall), "{object}");
    }
    let has = |object: &Value, keys: &[&str]| {
        let missing: Vec<&&str> = keys.iter().filter(|key| object.get(**key).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?} not in {object}");
    };
    for event in done.of_type("event") {
        has(&event, &["type", "profiler", "time_ns", "wall", "cpu", "pid", "tid", "comm", "event", "text", "fields"]);
        let fields: Vec<&String> = event["fields"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["filename", "old_pid", "pid"], "no common_ fields"); // serde_json sorts them
        let filename = event["fields"]["filename"].as_str().unwrap();
        let pid = number(&event, "pid");
        assert_eq!(event["text"], format!("filename={filename} pid={pid} old_pid={pid}"));
        assert_eq!(number(&event["fields"], "pid"), pid);
    }
    let keys = ["interval", "start_ns", "end_ns", "samples", "lost", "lost_windows", "discarded", "coverage"];
    has(&done.of_type("interval")[0], &keys);
    has(&done.end(), &["samples", "lost", "discarded", "late", "intervals", "self"]);
    has(&done.end()["self"], &["cpu_ns", "rss_peak_bytes", "locked_bytes", "wakeups"]);
}

#[test]
fn the_text_is_the_kernels_own() {
    need_events!();
    // kernel/trace/trace_syscalls.c and include/trace/events/syscalls.h: "NR %ld (%lx, %lx, %lx, %lx, %lx, %lx)", "NR
    // %ld = %ld"
    const NR: libc::c_long = libc::SYS_getsid;
    let events = format!("raw_syscalls:sys_enter/id=={NR}/,raw_syscalls:sys_exit/id=={NR}/");
    let mut trace = start(&["trace", "-e", &events, "-t", &own_tid().to_string()]);
    let call = || {
        // SAFETY: reads a number; the kernel ignores the further arguments.
        unsafe { libc::syscall(NR, -1_i64, 0x1f_i64, 10_i64, 0xabcdef_i64, 5_i64, 6_i64) };
    };
    let exit = trace.provoke(call, |line| line.contains("sys_exit"));
    // Behind the kernel's text stands the name of the call.
    assert!(exit.ends_with(&format!("raw_syscalls:sys_exit: NR {NR} = -{} (getsid)", libc::ESRCH)), "{exit}");
    let enter = trace.out.iter().find(|line| line.contains("sys_enter")).unwrap();
    let want = format!("raw_syscalls:sys_enter: NR {NR} (ffffffffffffffff, 1f, a, abcdef, 5, 6) (getsid)");
    assert!(enter.ends_with(&want), "{enter}");
    trace.interrupt().code(0);
}

#[test]
fn names_cannot_steer_the_terminal() {
    need_events!();
    std::thread::Builder::new()
        .spawn(|| {
            // SAFETY: the kernel copies up to 16 bytes of a text that ends with 0.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"\x1b[31m\"\xff\n\\x".as_ptr()) };
            for (json, want) in [(false, r#"\x1b[31m"\xff\x0a\x"#), (true, r#"\x1b[31m"\xff\x0a\x"#)] {
                let (tid, event) = (own_tid().to_string(), syscall(libc::SYS_getppid));
                let mut args = vec!["trace", "-e", &event, "-t", &tid];
                args.extend(json.then_some("--json"));
                let mut trace = start(&args);
                let line = trace.provoke(getppid, |line| line.contains("sys_enter"));
                assert!(!line.contains('\x1b'), "{line:?}");
                if json {
                    let event: Value = serde_json::from_str(&line).expect("JSON");
                    assert_eq!(event["comm"], want);
                } else {
                    assert!(line.contains(want), "{line}");
                }
                trace.interrupt().code(0);
            }
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn a_task_with_an_empty_name_is_not_gone() {
    need_events!();
    let kill = syscall(libc::SYS_kill);
    let load = ["sh", "-c", r"printf '\0' > /proc/$$/comm; kill -0 $$"];
    let done = run_over(&["trace", "-e", &kill, "--json"], &load);
    let named = done.of_type("event");
    assert!(!named.is_empty() && named.iter().all(|event| event["comm"] == "<empty>"), "{named:#?}");
    // By the fields of a switch.
    let load = ["sh", "-c", r"printf '\0' > /proc/$$/comm; sleep 0.2 & wait"];
    let text = run_over(&["task-state", "-S", "--than", "100ms"], &load).out.join("\n");
    assert!(text.contains("<empty>") && !text.contains("<gone>"), "{text}");
}

// Order

#[test]
fn switches_on_two_cpus_come_in_order() {
    need_events!();
    const ROUNDS: &str = "20000";
    let cpus = common::online_cpus();
    let &[one, other, ..] = cpus.as_slice() else { skip!("needs two CPUs") };
    let any = ["prev_comm", "next_comm"].map(|field| format!(r#"{field}=="ping" || {field}=="pong""#)).join(" || ");
    let event = format!("sched:sched_switch/{any}/");
    let mut trace = start(&["trace", "--json", "-m", "16M", "-e", &event]);
    let pingpong = |rounds: &str| {
        let mut command = std::process::Command::new(example("pingpong"));
        command.args([rounds, &one.to_string(), &other.to_string()]);
        let mut load = Load::start(command);
        let line = load.says();
        load.stop();
        line
    };
    trace.provoke(|| drop(pingpong("5")), |line| line.contains("sched_switch"));
    let load = pingpong(ROUNDS);
    let done = trace.interrupt().code(0);
    let end = done.end();
    assert_eq!((number(&end, "lost"), number(&end, "lost_output")), (0, 0), "{end}");

    let mut switches = done.of_type("event");
    let times: Vec<u64> = switches.iter().map(|event| number(event, "time_ns")).collect();
    let decreases = times.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    assert!(decreases <= number(&end, "late"), "{decreases} decreases, {end}");
    assert!(number(&end, "late") * 1000 <= number(&end, "samples"), "{end}");
    switches.sort_by_key(|event| number(event, "time_ns")); // late ones have their own times

    let sides = ["ping_tid", "pong_tid"].map(|key| load_number(&load, key));
    let known: HashSet<u64> = sides.into();
    let mut running: HashMap<u64, u64> = HashMap::new(); // CPU to the side that was switched to
    let mut away: HashMap<u64, u64> = HashMap::new();
    for event in &switches {
        let (cpu, prev, next) =
            (number(event, "cpu"), number(&event["fields"], "prev_pid"), number(&event["fields"], "next_pid"));
        if let Some(side) = running.remove(&cpu) {
            assert_eq!(side, prev, "who was switched to on CPU {cpu} is switched away from next: {event}");
        }
        if known.contains(&next) {
            assert!(!running.values().any(|&side| side == next), "{next} runs on two CPUs: {event}");
            running.insert(cpu, next);
        }
        if known.contains(&prev) {
            *away.entry(prev).or_default() += 1;
        }
    }
    for (side, name) in sides.iter().zip(["ping", "pong"]) {
        let counted = load_number(&load, &format!("{name}_nvcsw")) + load_number(&load, &format!("{name}_nivcsw"));
        let seen = away.get(side).copied().unwrap_or(0);
        // Before the rounds each side starts, moves to its CPU and waits; after them it exits.
        assert!((counted..counted + 20).contains(&seen), "{name}: {seen} seen, {counted} counted by the kernel");
    }
}

#[test]
fn a_filter_chooses_among_the_events_of_a_pattern() {
    need_events!();
    let some = run(&["trace", "-e", "sched:*", "--filter", "oldprio>0", "--for", "0.2"]).code(0);
    some.says(&["left out of sched:*, without the fields that are asked for: ", "sched:sched_switch"]);
    let none = run(&["trace", "-e", "sched:*", "--filter", "nosuch==1", "--for", "0.2"]).code(1);
    none.says(&["no event of \"sched:*\" has the fields"]);
}

#[test]
fn half_seen_events_say_so() {
    need_events!();
    let tid = own_tid().to_string();
    let done = run(&["trace", "-e", "sched:sched_switch", "-t", &tid, "--for", "0.1"]).code(0);
    done.says(&["sched:sched_switch is shown where a watched task is the current one"]);
}
