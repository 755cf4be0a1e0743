//! Names that cannot be found: invalid files, a kernel that hides its addresses. The output says so, the cost is small,
//! and other frames keep their names.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Done, Load, Prog, example, run, syscall};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::Value;

/// All frames of the events.
fn frames(done: &Done) -> Vec<Value> {
    let stack = |event: &Value| event["stack"].as_array().cloned().unwrap_or_default();
    done.of_type("event").iter().flat_map(stack).collect()
}

#[test]
fn an_invalid_file_that_is_mapped_executable_is_opened_once() {
    need_events!();
    const FILES: usize = 20;
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_str().expect("UTF-8");
    // Each process looks for the files of its own mappings.
    let loads = [(); 3].map(|()| {
        let mut load = Load::of(&example("mappings"), &[at, &FILES.to_string(), "rubbish"]);
        load.says();
        load
    });
    let pids = loads.each_ref().map(|load| load.pid().to_string()).join(",");
    let opened = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify");
    opened.add_watch(dir.path(), AddWatchFlags::IN_OPEN).expect("a watch");
    let event = syscall(libc::SYS_getppid);
    let done = run(&["trace", "-g", "--json", "-i", "100", "-e", &event, "-p", &pids, "-N", "1000"]).code(0);
    let mut reasons: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for frame in frames(&done) {
        if let Some(module) = frame["module"].as_str().filter(|module| module.starts_with(at)) {
            reasons.entry(module.to_owned()).or_default().push(frame["reason"].clone());
        }
    }
    assert_eq!(reasons.len(), FILES, "{reasons:?}");
    assert!(reasons.values().flatten().all(|reason| reason == "non-elf"), "{reasons:?}");
    let mut opens: BTreeMap<String, usize> = BTreeMap::new();
    while let Ok(events) = opened.read_events() {
        for name in events.into_iter().filter_map(|event| event.name?.into_string().ok()) {
            *opens.entry(name).or_default() += 1;
        }
    }
    assert_eq!(opens.len(), FILES, "{opens:?}");
    assert!(opens.values().all(|&count| count == 1), "{opens:?}");
}

/// perf-prof in a mount namespace in which these files of /proc have other contents.
fn with_proc(files: &[(&str, &str)], args: &[&str]) -> Done {
    let dir = tempfile::tempdir().expect("a directory");
    let mut script = String::new();
    for (index, (path, content)) in files.iter().enumerate() {
        let file = dir.path().join(index.to_string());
        fs::write(&file, content).expect("a file");
        script += &format!("mount --bind {} /proc/{path} || exit 99; ", file.display());
    }
    script += r#"exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_perf-prof")]).args(args);
    Prog::spawn(command).finish()
}

/// /proc/kallsyms as kernel.kptr_restrict=2 makes it.
fn without_addresses() -> String {
    let text = fs::read_to_string("/proc/kallsyms").expect("kallsyms");
    let hidden = |line: &str| line.split_once(' ').map(|(_, rest)| format!("0000000000000000 {rest}\n"));
    text.lines().filter_map(hidden).collect()
}

#[test]
fn hidden_kernel_addresses_are_reported_once() {
    need_events!();
    let kallsyms = without_addresses();
    let restricted = [("kallsyms", kallsyms.as_str()), ("sys/kernel/kptr_restrict", "2\n")];
    let places = example("places");
    let event = syscall(libc::SYS_getppid);
    let args = ["trace", "-g", "--json", "-e", &event, "--", &places, "own", "10"];
    let done = with_proc(&restricted, &args).code(0);
    let told: Vec<&String> = done.err.iter().filter(|line| line.starts_with("degraded: ")).collect();
    let text =
        "degraded: no names for kernel functions (kernel.kptr_restrict is 2); cure: sysctl kernel.kptr_restrict=1";
    assert_eq!(told, [text], "{done:#?}");
    let in_kernel: Vec<Value> = frames(&done).into_iter().filter(|frame| frame["module"] == "[kernel]").collect();
    assert!(!in_kernel.is_empty(), "{done:#?}");
    for frame in in_kernel {
        assert_eq!(frame["reason"], "no-perm: kernel.kptr_restrict hides addresses", "{frame}");
    }
    let own = |event: &Value| {
        let stack = event["stack"].as_array().expect("a stack");
        let is_own =
            |frame: &&Value| frame["module"].as_str().is_some_and(|module| Path::new(module) == Path::new(&places));
        stack.iter().find(is_own).is_some_and(|frame| frame["symbol"] == "call_from_own")
    };
    let events = done.of_type("event");
    assert!(events.len() == 10 && events.iter().all(own), "programs keep their names: {events:?}");
    // The watchdog must know one function.
    let done = with_proc(&restricted, &["watchdog", "--for", "1ms"]).code(1);
    assert!(done.out.is_empty() && done.err.len() == 1, "{done:#?}");
    done.says(&["perf-prof: ", "kptr_restrict"]);
    // A run that needs no names says nothing.
    let done = with_proc(&restricted, &["trace", "-e", &event, "--", &places, "own", "10"]).code(0);
    assert!(!done.err().contains("degraded"), "{done:#?}");
}
