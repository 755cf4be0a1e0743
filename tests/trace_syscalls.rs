//! `trace` of many system calls by name: they come from the two raw events and must look as if each was opened itself.

#[macro_use]
mod common;

use std::collections::BTreeSet;

use common::{Done, example, load_number, number, own_tid, run, run_over, start, start_watching};
use perf_prof::tep::syscalls::end_and_number;
use serde_json::Value;

const CALLS: &str = "1000";
const TOLD: &str = "are told by raw_syscalls:";

/// The events of one name.
fn of(done: &Done, name: &str) -> Vec<Value> {
    done.of_type("event").into_iter().filter(|event| event["event"] == name).collect()
}

/// `trace --json` with these options over so many calls of getppid.
fn flood(options: &[&str]) -> Done {
    run_over(&[&["trace", "--json", "-v", "-m", "4M"], options].concat(), &[&example("flood"), CALLS])
}

/// Each call twice, at its entry and at its exit, nothing lost.
fn has_all(done: &Done) {
    assert_eq!(number(&done.end(), "lost"), 0, "{}", done.end());
    for end in ["enter", "exit"] {
        assert_eq!(
            of(done, &format!("syscalls:sys_{end}_getppid")).len() as u64,
            load_number(&done.load, "calls"),
            "{end}"
        );
    }
    assert_eq!(number(&done.end(), "samples"), done.of_type("event").len() as u64);
}

#[test]
fn every_call_of_every_name() {
    need_events!();
    // The second run starts while the kernel may still release what the first one opened.
    for _ in 0..2 {
        let done = flood(&["-e", "syscalls:*"]);
        has_all(&done);
        assert!(
            done.of_type("event").iter().all(|event| event["event"].as_str().unwrap().starts_with("syscalls:sys_"))
        );
        // The whole life of a process, from the exec that starts it.
        assert_eq!(of(&done, "syscalls:sys_exit_execve").len(), 1);
        assert_eq!(of(&done, "syscalls:sys_enter_exit_group").len(), 1);
        done.says(&[TOLD]);
    }
}

#[test]
fn chosen_twice_is_shown_once() {
    need_events!();
    has_all(&flood(&["-e", "syscalls:*", "-e", "syscalls:sys_e*_get*,syscalls:sys_enter_getppid"]));
    has_all(&flood(&["-e", "syscalls:sys_enter_getppid,syscalls:sys_e*_getppid"]));
}

#[test]
fn looks_as_if_opened_itself() {
    need_events!();
    let one = "syscalls:sys_enter_getsid//alias=one/,syscalls:sys_exit_getsid//alias=one/";
    let tid = own_tid().to_string();
    let trace = start_watching(&["trace", "-e", "syscalls:*", "-e", one, "-t", &tid]);
    for _ in 0..2 {
        // SAFETY: reads a number.
        unsafe { libc::syscall(libc::SYS_getsid, -2_i64, 0x1f_i64) };
    }
    let done = trace.interrupt().code(0);
    let shown: Vec<Value> =
        ["syscalls:sys_enter_getsid", "syscalls:sys_exit_getsid"].iter().flat_map(|name| of(&done, name)).collect();
    let (one, raw): (Vec<&Value>, Vec<&Value>) = shown.iter().partition(|event| event["alias"] == "one");
    assert_eq!((one.len(), raw.len()), (4, 4), "two calls and their ends: {done:?}");
    assert_eq!(one[0]["text"], "pid: -2", "{done:?}");
    for (one, raw) in one.iter().zip(raw) {
        for key in ["event", "text", "fields", "cpu", "pid", "tid", "comm"] {
            assert_eq!(one[key], raw[key], "{key}");
        }
    }
}

/// In text; in JSON `fields` has the numbers.
#[test]
fn arguments_have_names() {
    need_events!();
    let calls = "kill,fcntl,dup2";
    let done = run_over(&["trace", "--json", "-e", calls], &["sh", "-c", "kill -s CONT $$; true 2>&1"]);
    let kill = &of(&done, "syscalls:sys_enter_kill")[0];
    assert_eq!(kill["text"], format!("pid: {}, sig: SIGCONT", kill["pid"]));
    assert_eq!((&kill["fields"]["pid"], kill["fields"]["sig"].as_i64()), (&kill["pid"], Some(18)));
    let dup = &of(&done, "syscalls:sys_enter_dup2")[0];
    assert_eq!(dup["text"], format!("oldfd: {}, newfd: {}", dup["fields"]["oldfd"], dup["fields"]["newfd"]));
    let commands = of(&done, "syscalls:sys_enter_fcntl");
    assert!(commands.iter().any(|event| event["text"].as_str().unwrap().contains("cmd: F_DUPFD")), "{commands:#?}");
}

/// The raw events as they are.
#[test]
fn calls_of_raw_events_have_names() {
    need_events!();
    let options = ["-e", "raw_syscalls:*"];
    let done = flood(&options);
    let exits = of(&done, "raw_syscalls:sys_exit");
    let of_call = exits.iter().filter(|event| event["call"] == "getppid").count() as u64;
    assert_eq!(of_call, load_number(&done.load, "calls"), "{done:?}");
    let text = run(&[&["trace", "-m", "4M"], &options[..], &["--", "/bin/true"]].concat()).code(0);
    let last = text.out.iter().rev().find(|line| line.contains("raw_syscalls:sys_enter")).unwrap();
    assert!(last.contains("NR 231 (") && last.ends_with(") (exit_group)") || !cfg!(target_arch = "x86_64"), "{last}");
}

#[test]
fn few_are_opened_themselves() {
    need_events!();
    let done = flood(&["-e", "syscalls:sys_e*_getp[pg]*"]);
    let is_filter =
        |line: &String| line.starts_with("kernel filter of ") && line.contains("syscalls:sys_enter_getppid");
    assert!(!done.err().contains(TOLD) && done.err.iter().any(is_filter), "{done:?}");
    has_all(&done);
}

#[test]
fn one_end_alone() {
    need_events!();
    let done = flood(&["-e", "syscalls:sys_exit_*"]);
    assert_eq!(of(&done, "syscalls:sys_exit_getppid").len() as u64, load_number(&done.load, "calls"));
    assert!(
        done.of_type("event").iter().all(|event| event["event"].as_str().unwrap().starts_with("syscalls:sys_exit_"))
    );
    assert!(!done.err().contains("raw_syscalls:sys_enter"), "{done:?}");
}

#[test]
fn a_part_of_them_is_filtered_by_number() {
    need_events!();
    let done = flood(&["-e", "syscalls:sys_*_[h-z]*"]);
    assert!(of(&done, "syscalls:sys_enter_getppid").is_empty());
    assert!(!of(&done, "syscalls:sys_enter_write").is_empty());
    assert_eq!(number(&done.end(), "samples"), done.of_type("event").len() as u64);
    let filter = done.err.iter().find(|line| line.starts_with("kernel filter of raw_syscalls:sys_enter")).unwrap();
    assert!(filter.contains("id == ") && filter.contains("common_pid != "), "{filter}");
}

#[test]
fn filters_of_what_both_have() {
    need_events!();
    let options = ["trace", "--json", "-v", "-e", "syscalls:*/ret < 0/"];
    let done = run_over(&options, &["sh", "-c", "exec 2>&-; cat /nonexistent; true"]).says(&[
        "left out of syscalls:*, without the fields that are asked for: ",
        "syscalls:sys_enter_read",
        "kernel filter of raw_syscalls:sys_exit: ret < 0 && ",
    ]);
    let events = done.of_type("event");
    assert!(!of(&done, "syscalls:sys_exit_openat").is_empty(), "{done:?}");
    assert!(events.iter().all(|event| event["fields"]["ret"].as_i64().unwrap() < 0), "{done:?}");

    let done = flood(&["-e", "syscalls:*", "--filter", r#"comm == "flood""#]).says(&[TOLD]);
    has_all(&done);
}

#[test]
fn attributes_hold_for_all() {
    need_events!();
    let done = flood(&["-e", "syscalls:*//max-stack=2/alias=call/"]);
    has_all(&done);
    for event in of(&done, "syscalls:sys_enter_getppid") {
        let frames = event["stack"].as_array().unwrap();
        assert!(event["alias"] == "call" && frames.iter().any(|frame| frame["addr"].is_string()), "{event}");
    }
    let &[one, other, ..] = common::online_cpus().as_slice() else { skip!("needs two CPUs") };
    let event = format!("syscalls:*//cpus={one}/");
    let done = run_over(
        &["trace", "--json", "-e", &event],
        &[&example("pingpong"), "100", &one.to_string(), &other.to_string()],
    );
    let writes =
        |name: &str| of(&done, "syscalls:sys_enter_write").iter().filter(|event| event["comm"] == name).count();
    assert_eq!((writes("ping"), writes("pong")), (100, 0));
}

/// The kernel's events have the numbers, so the table can be checked where names and system calls differ.
#[test]
fn numbers_are_the_kernels() {
    need_events!();
    let all = run(&["list", "syscalls:sys_*"]).code(0);
    let unknown: Vec<&String> = all.out.iter().filter(|line| call_of(line).is_none()).collect();
    assert!(unknown.is_empty() && all.out.len() > 500, "not in the table: {unknown:?}");

    let other_names =
        ["newstat", "newfstat", "newlstat", "newuname", "sendfile64", "umount", "fadvise64", "fadvise64_64"];
    let of_these = |line: &&String| other_names.iter().any(|name| line.ends_with(&format!(":sys_enter_{name}")));
    let events: Vec<&String> = all.out.iter().filter(of_these).collect();
    let numbers: BTreeSet<u64> = events.iter().filter_map(|line| call_of(line)).collect();
    let tid = own_tid().to_string();
    let list = events.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(",");
    let mut trace = start(&["trace", "--json", "-e", &list, "-t", &tid]);
    let mut seen = BTreeSet::new();
    while seen != numbers {
        let call_all = || {
            for number in &numbers {
                // SAFETY: all of these fail for a path, a buffer or a descriptor of -1.
                unsafe { libc::syscall(*number as libc::c_long, -1_i64, -1_i64, -1_i64, -1_i64) };
            }
        };
        let line = trace.provoke(call_all, |line| line.contains("sys_enter_"));
        let event: Value = serde_json::from_str(&line).expect("JSON");
        let number = number(&event["fields"], "__syscall_nr");
        assert_eq!(call_of(event["event"].as_str().unwrap()), Some(number), "{event}");
        seen.insert(number);
    }
    trace.interrupt().code(0);
}

/// The number of `syscalls:sys_enter_NAME`.
fn call_of(event: &str) -> Option<u64> {
    end_and_number(event.split_once(':')?.1).map(|(_, number)| u64::from(number))
}

/// A 32-bit program: getppid as often as told, by its number there, then exit.
#[cfg(target_arch = "x86_64")]
fn getppid32(calls: u32) -> Vec<u8> {
    let mut code = vec![0xbe]; // mov esi, calls
    code.extend(calls.to_le_bytes());
    code.extend([0xb8, 64, 0, 0, 0, 0xcd, 0x80, 0x4e, 0x75, 0xf6]); // mov eax, 64; int 0x80; dec esi; jnz
    code.extend([0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80]); // mov eax, 1; xor ebx, ebx; int 0x80
    common::elf32(&code)
}

/// Number 64 is getppid in a 32-bit program and semget in any other.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_32_bit_programs_get_no_false_names() {
    use std::os::unix::fs::PermissionsExt;
    need_events!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("getppid32");
    std::fs::write(&path, getppid32(1000)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    if !std::process::Command::new(&path).status().is_ok_and(|status| status.success()) {
        skip!("no 32-bit programs here");
    }
    let events = "syscalls:*,raw_syscalls:sys_enter/id==64/";
    let done = run_over(&["trace", "--json", "-e", events], &[path.to_str().unwrap()]);
    assert_eq!(of(&done, "raw_syscalls:sys_enter").len(), 1000);
    assert!(done.of_type("event").iter().all(|event| event["event"] == "raw_syscalls:sys_enter"), "{done:?}");
}
