//! `doctor`: its verdicts compared with real runs, as root, as nobody, with CAP_PERFMON alone, and behind a seccomp
//! filter.

#[macro_use]
mod common;

use std::fs;
use std::io;
use std::process::Command;

use common::seccomp::{Refusal, refused};
use common::user::{Copy, NOBODY, PERFMON, turn};
use common::{Done, Prog, command, number, run, start_watching};
use nix::sys::signal::Signal;
use perf_prof::host::parse_cpus;
use serde_json::Value;

fn report(done: Done) -> Value {
    let mut objects = done.code(0).json();
    assert_eq!(objects.len(), 1);
    objects.remove(0)
}

#[track_caller]
fn verdict<'a>(report: &'a Value, name: &str) -> (&'a str, String) {
    let commands = report["commands"].as_array().expect("commands");
    let found =
        commands.iter().find(|command| command["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    (text("verdict"), format!("{}; cure: {}", text("why"), text("cure")))
}

fn level() -> i64 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("perf_event_paranoid");
    text.trim().parse().expect("a number")
}

/// The capability that perf_event_open needs. Levels from 3 on exist in some distributions only.
fn missing() -> &'static str {
    if level() > 2 { "CAP_SYS_ADMIN" } else { "CAP_PERFMON" }
}

#[test]
fn root_may_do_all() {
    need_events!();
    let report = report(run(&["doctor", "--json"]));
    for name in ["task-state", "trace", "expr", "list"] {
        assert_eq!(verdict(&report, name).0, "ok", "{report}");
    }
    let (profile, why) = verdict(&report, "profile");
    let has_pmu = report["machine"]["pmu"].as_bool().expect("pmu");
    assert_eq!(profile, if has_pmu { "ok" } else { "degraded" }, "{why}");
    assert_eq!(why.contains("CPU clock"), !has_pmu, "{why}");
    assert_eq!(number(&report["machine"], "cpus_online"), common::online_cpus().len() as u64);
    assert_eq!(number(&report["privileges"], "uid"), 0);
    assert_eq!(report["limits"]["perf_event_paranoid"].as_i64(), Some(level()));
    assert!(report["privileges"]["capabilities"].as_str().unwrap().contains("CAP_PERFMON"), "{report}");
    let mapping = report["mapping"].as_array().expect("mapping");
    let state = mapping.iter().find(|found| found["field"] == "prev_state").expect("prev_state");
    assert!(state["found"].as_str().unwrap().contains(" D=2 "), "{state}");
}

#[test]
fn the_text_fits_and_begins_with_the_verdicts() {
    need_events!();
    let done = run(&["doctor"]).code(0);
    assert_eq!(done.out[0], "Commands");
    assert!(done.out.iter().any(|line| line == "  task-state  OK"), "{done:?}");
    assert!(done.out.iter().all(|line| line.chars().count() <= 80), "{done:?}");
    for title in ["Machine", "Privileges", "Limits", "Event formats"] {
        assert!(done.out.iter().any(|line| line == title), "{title}: {done:?}");
    }
}

/// Those that a run finds out while it watches switches, unless they were busy all the time.
#[test]
fn cpus_that_hide_their_idle_tasks_are_named() {
    need_events!();
    let report = report(run(&["doctor", "--json"]));
    let cpus = |key: &str| -> Vec<u64> {
        let list = report["machine"][key].as_array().expect("a list of CPUs");
        list.iter().map(|cpu| cpu.as_u64().expect("a CPU")).collect()
    };
    let [hidden, unknown] = ["idle_hidden", "idle_unknown"].map(cpus);
    let online = common::online_cpus();
    assert!(hidden.iter().chain(&unknown).all(|cpu| online.contains(&(*cpu as u32))), "{report}");
    assert!(hidden.iter().all(|cpu| !unknown.contains(cpu)), "{report}");
    let states = run(&["task-state", "--for", "1s"]).code(0);
    let told = states.err.iter().filter_map(|line| {
        let (cpus, _) = line.split_once(" hide").filter(|(_, rest)| rest.contains(" idle task"))?;
        parse_cpus(cpus.strip_prefix("CPUs ").or(cpus.strip_prefix("CPU "))?).ok()
    });
    let told: Vec<u64> = told.flatten().map(u64::from).collect();
    assert!(told.iter().all(|cpu| hidden.contains(cpu) || unknown.contains(cpu)), "{told:?}: {report}");
    let text = run(&["doctor"]).code(0);
    assert!(text.out.iter().any(|line| line.starts_with("  idle tasks  ")), "{text:?}");
}

/// The descriptors and memory that doctor reports equal those of a default run.
#[test]
fn descriptors_and_memory_are_as_reported() {
    need_events!();
    let report = report(run(&["doctor", "--json"]));
    let runs: [(&str, &[&str]); 5] = [
        ("profile", &["profile"]),
        ("irq-off", &["irq-off"]),
        ("watchdog", &["watchdog"]),
        ("task-state", &["task-state"]),
        ("trace", &["trace", "-e", "sched:sched_process_exec"]),
    ];
    for (name, args) in runs {
        let prog = start_watching(args);
        let proc = format!("/proc/{}", prog.pid());
        let links = fs::read_dir(format!("{proc}/fd")).expect("descriptors");
        let is_event = |link: &io::Result<fs::DirEntry>| {
            link.as_ref().is_ok_and(|link| {
                fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[perf_event]")
            })
        };
        let events = links.filter(is_event).count() as u64;
        let maps = fs::read_to_string(format!("{proc}/maps")).expect("maps");
        let bytes: u64 = maps.lines().filter(|line| line.ends_with("anon_inode:[perf_event]")).map(mapped).sum();
        prog.signal(Signal::SIGINT);
        prog.finish().code(0);
        let commands = report["commands"].as_array().expect("commands");
        let told = commands.iter().find(|command| command["name"] == name).expect("the command");
        assert_eq!((number(told, "descriptors"), number(told, "locked_bytes")), (events, bytes), "{name}");
    }
}

/// Bytes of a line of `maps`: `7f00-7f10 rw-s ...`.
fn mapped(line: &str) -> u64 {
    let range = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let number = |hex| u64::from_str_radix(hex, 16).expect("an address");
    number(range.1) - number(range.0)
}

#[test]
fn an_unprivileged_user_learns_what_is_missing() {
    need_events!();
    if level() < 2 {
        skip!("kernel.perf_event_paranoid is below 2");
    }
    let (copy, turn) = (Copy::of(NOBODY), turn());
    let report = report(copy.run(&turn, &[], &["doctor", "--json"]));
    for name in ["task-state", "trace", "list"] {
        let (verdict, why) = verdict(&report, name);
        assert_eq!(verdict, "impossible");
        assert!(why.contains("tracefs is not") && why.contains("cure: CAP_"), "{why}");
    }
    let (profile, why) = verdict(&report, "profile");
    let missing = missing();
    assert!(why.contains(&format!("{missing} is missing")), "{why}");
    if level() == 2 {
        assert_eq!(profile, "degraded", "{why}");
        assert!(why.starts_with("your own processes only"), "{why}");
    }
    assert_eq!(report["privileges"]["capabilities"], "");
    assert!(report["machine"].get("kprobes").is_none() && report["machine"].get("no_uprobes").is_none(), "{report}");
    // A real run is refused, too.
    copy.run(&turn, &[], &["task-state", "--for", "1"]).code(1).says(&["tracefs is not", "cure: CAP_"]);
    let refused = copy.run(&turn, &[], &["profile", "--for", "1"]).code(1);
    let error = format!("kernel.perf_event_paranoid is {} and {missing} is missing; cure: {missing} (setcap", level());
    refused.says(&[&error, "kernel.perf_event_paranoid=0"]);
}

#[test]
fn a_readable_tracefs_is_not_enough() {
    need_events!();
    if level() < 0 {
        skip!("kernel.perf_event_paranoid is below 0");
    }
    let (copy, turn) = (Copy::of(NOBODY), turn());
    let report = report(copy.with_tracefs(&turn, &[], &["doctor", "--json"]));
    assert_eq!(verdict(&report, "list").0, "ok");
    for name in ["task-state", "trace"] {
        let (verdict, why) = verdict(&report, name);
        assert_eq!(verdict, "impossible", "{why}");
        let last = "kernel.perf_event_paranoid=-1"; // 0 lets CPUs be watched, but not tracepoints
        assert!(why.contains(&format!("{} is missing", missing())) && why.ends_with(last), "{why}");
    }
    let refused = copy.with_tracefs(&turn, &[], &["task-state", "--for", "1"]).code(1);
    refused.says(&[&format!("{} is missing", missing()), "kernel.perf_event_paranoid=-1"]);
}

#[test]
fn perfmon_and_a_readable_tracefs_are_enough() {
    need_events!();
    if level() > 2 {
        skip!("kernel.perf_event_paranoid is above 2");
    }
    let (copy, turn) = (Copy::of(NOBODY), turn());
    let report = report(copy.with_tracefs(&turn, &PERFMON, &["doctor", "--json"]));
    for name in ["profile", "task-state", "trace"] {
        let (verdict, why) = verdict(&report, name);
        assert_eq!(verdict, "degraded", "{why}");
        assert!(why.contains("no names for functions of other users' programs"), "{why}");
    }
    assert_eq!(report["privileges"]["capabilities"], "CAP_PERFMON");
    let runs: [&[&str]; 3] = [
        &["profile", "-F", "199", "--for", "1"],
        &["task-state", "--for", "1"],
        &["trace", "-e", "sched:sched_switch", "-g", "-N", "10"],
    ];
    for args in runs {
        let done = copy.with_tracefs(&turn, &PERFMON, &[args, &["--json"]].concat()).code(0);
        assert!(number(&done.end(), "samples") > 0, "{args:?}: {done:?}");
        let degraded: Vec<&String> = done.err.iter().filter(|line| line.starts_with("degraded: ")).collect();
        let count = |text: &str| degraded.iter().filter(|line| line.contains(text)).count();
        let takes_addresses = usize::from(args[0] != "task-state");
        assert_eq!(count("no names for functions of other users"), takes_addresses, "{args:?}: {done:?}");
        assert!(count("mlock limit") <= 1, "{args:?}: {done:?}");
        let told = verdict(&report, args[0]).1;
        assert_eq!(count("mlock limit") == 1, told.contains("mlock limit"), "{args:?}: {told}: {done:?}");
    }
}

#[test]
fn a_seccomp_filter_is_recognised() {
    need_events!();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let report = report(Prog::spawn(filtered(&["doctor", "--json"], errno)).finish());
        for name in ["profile", "task-state", "trace"] {
            let (verdict, why) = verdict(&report, name);
            assert_eq!(verdict, "impossible", "{why}");
            assert!(why.contains("a seccomp filter refuses perf_event_open"), "{why}");
        }
        assert_eq!((&report["privileges"]["seccomp"], verdict(&report, "list").0), (&true.into(), "ok"));
        let done = Prog::spawn(filtered(&["task-state", "--for", "1"], errno)).finish().code(1);
        done.says(&["a seccomp filter refuses perf_event_open", "cure: "]);
    }
}

/// perf-prof behind a filter that answers perf_event_open with `errno`.
fn filtered(args: &[&str], errno: i32) -> Command {
    refused(command(args), &[Refusal::of(libc::SYS_perf_event_open, errno)])
}
