//! signal: what is sent is counted exactly, with its name, code, sender, target and fate.

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use common::{Done, Load, Prog, example, load_number, number, run, run_over, start_watching, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const COUNT: u64 = 7;

/// The load, which waits for a line to begin, and a run that watches it.
fn watched(options: &[&str]) -> (Load, Prog) {
    let mut command = Command::new(example("signals"));
    command.args([&COUNT.to_string(), "0"]).env("SIGNALS_GO", "stdin");
    let mut load = Load::start(command);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let run = start_watching(&[&["signal", "-p", &pid], options].concat());
    (load, run)
}

fn is(event: &Value, signal: &str, result: &str) -> bool {
    event["type"] == "event" && event["signal"] == signal && event["result"] == result
}

/// Runs the load until the fate of each signal is known. Returns its last line.
fn play(load: &mut Load, run: &mut Prog) -> String {
    load.tell("");
    run.object(|event| is(event, "SIGUSR2", "pending"));
    load.tell("");
    let line = load.says();
    let mut taken = 0;
    while taken < COUNT {
        run.object(|event| is(event, "SIGRTMIN+5", "taken"));
        taken += 1;
    }
    load.tell("");
    line
}

/// Number of events of each kind.
fn kinds(done: &Done) -> BTreeMap<(String, String, String), u64> {
    let mut kinds = BTreeMap::new();
    for event in done.of_type("event") {
        let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} in {event}")).to_owned();
        *kinds.entry((text("signal"), text("code"), text("result"))).or_default() += 1;
    }
    kinds
}

/// Nobody ignores it: the kernel drops it.
#[test]
fn a_second_sigkill_is_not_ignored_by_its_target() {
    need_events!();
    let script = "sleep 60 & kill -9 $!; kill -9 $!; wait";
    let done = run(&["signal", "--signal", "SIGKILL", "--", "sh", "-c", script]).code(0);
    let lines: Vec<&String> = done.out.iter().filter(|line| line.contains("SIGKILL  sh ")).collect();
    assert_eq!(lines.len(), 2, "{done:#?}");
    assert!(lines.iter().any(|line| line.contains(": without effect, the target is ending")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains(": ignored")), "{lines:#?}");
}

#[test]
fn a_sender_has_its_ancestors() {
    need_events!();
    let (load, mut run) = watched(&["--signal", "SIGWINCH,RTMIN+9"]);
    let pid = load.pid();
    // Each shell has another command to run: otherwise it would exec the program instead of forking.
    let script = format!("sh -c 'kill -WINCH {pid}; kill -USR1 {pid}; :'; read line");
    let mut outer = Load::start({
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    });
    let event = run.object(|event| event["type"] == "event");
    assert_eq!(event["signal"], "SIGWINCH", "the other one was not asked for: {event}");
    let lineage = event["lineage"].as_array().unwrap_or_else(|| panic!("{event}"));
    let pids: Vec<u64> = lineage.iter().map(|kin| number(kin, "pid")).collect();
    let want = [number(&event, "pid"), outer.pid() as u64, u64::from(std::process::id())];
    assert_eq!(pids[..3], want, "{event}");
    assert!(lineage[..2].iter().all(|kin| kin["comm"] == "sh"), "{event}");
    assert!(lineage[1]["command"].as_str().is_some_and(|line| line.starts_with("sh -c sh -c 'kill")), "{event}");
    outer.tell("");
    outer.stop();
    let rows = run.interrupt().code(0).of_type("row");
    assert!(rows.iter().all(|row| row["signal"] == "SIGWINCH"), "{rows:?}");
}

#[test]
fn every_signal_is_counted_once() {
    need_events!();
    let (mut load, mut run) = watched(&[]);
    let line = play(&mut load, &mut run);
    let done = run.finish().code(0);
    let n = COUNT;
    let want = [
        ("SIGALRM", "SI_TIMER", "delivered", n),
        ("SIGCHLD", "CLD_EXITED", "delivered", n),
        ("SIGCHLD", "CLD_KILLED", "delivered", 3 * n),
        ("SIGKILL", "SI_USER", "delivered", n),
        ("SIGRTMIN+4", "SI_QUEUE", "delivered", n),
        ("SIGRTMIN+5", "SI_QUEUE", "taken", n),
        ("SIGSEGV", "SEGV_MAPERR", "delivered", n),
        ("SIGTERM", "SI_USER", "delivered", n),
        ("SIGURG", "SI_USER", "ignored", n),
        ("SIGUSR1", "SI_TKILL", "delivered", n),
        ("SIGUSR1", "SI_USER", "delivered", n),
        ("SIGUSR2", "SI_USER", "merged", n),
        ("SIGUSR2", "SI_USER", "delivered", 1),
        ("SIGUSR2", "SI_USER", "pending", 1),
    ];
    let want = want.map(|(signal, code, result, count)| ((signal.into(), code.into(), result.into()), count));
    assert_eq!(kinds(&done), BTreeMap::from(want), "{done:#?}");
    assert_eq!((done.total("lost"), done.total("discarded")), (0, 0));
    details_are_right(&done, &line);
    rows_add_up(&done);
}

fn details_are_right(done: &Done, line: &str) {
    let pid = load_number(line, "pid");
    let handler = line.split(' ').find_map(|word| word.strip_prefix("handler=")).expect("handler=");
    let events = done.of_type("event");
    for event in &events {
        let (signal, result) = (event["signal"].as_str().unwrap(), event["result"].as_str().unwrap());
        let is_childs = matches!(signal, "SIGTERM" | "SIGKILL" | "SIGSEGV");
        assert_eq!(event["target"]["tid"] == pid, !is_childs, "{event}");
        assert_eq!(event["target"]["comm"], "signals", "{event}");
        // The interrupt of the timer hits any task.
        let current = event["tid"] == pid;
        assert!(current != matches!(signal, "SIGCHLD" | "SIGSEGV") || signal == "SIGALRM", "{event}");
        assert_eq!(event["interrupt"], signal == "SIGALRM", "{event}");
        let from = match signal {
            "SIGALRM" => "timer",
            "SIGCHLD" | "SIGSEGV" => "kernel",
            _ => "task",
        };
        assert_eq!(event["from"], from, "{event}");
        assert_eq!(event["group"], event["code"] != "SI_TKILL" && signal != "SIGSEGV", "{event}");
        if result == "delivered" {
            assert_eq!(event["action"], if is_childs { "default" } else { "handler" }, "{event}");
            assert_eq!(event["handler"].as_str(), (!is_childs).then_some(handler), "{event}");
        } else {
            assert!(event.get("duration_ns").is_none() && event.get("action").is_none(), "{event}");
        }
    }
    let find = |result: &str| events.iter().find(|event| is(event, "SIGUSR2", result)).expect("it was counted");
    let (pending, delivered) = (find("pending"), find("delivered"));
    assert_eq!(pending["why"], "blocked");
    assert_eq!(pending["time_ns"], delivered["time_ns"], "both tell when it was sent");
    let delay = number(delivered, "duration_ns");
    assert_eq!(delivered["delay_ns"], delivered["duration_ns"]);
    assert!(delay >= load_number(line, "blocked_ns"), "{delay}: {line}");
    assert!(delay <= number(&done.end(), "time_ns") - number(delivered, "time_ns"), "{delivered}");
}

/// The table agrees with the events.
fn rows_add_up(done: &Done) {
    for signal in ["SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGKILL", "SIGURG", "SIGALRM", "SIGRTMIN+5"] {
        let sum = |key: &str| done.sum(key, |row| row["signal"] == signal);
        let events: Vec<Value> = done.of_type("event").into_iter().filter(|event| event["signal"] == signal).collect();
        let count = |result: &str| events.iter().filter(|event| event["result"] == result).count() as u64;
        assert_eq!(sum("count"), events.len() as u64 - count("pending"), "{signal}: {done:#?}");
        for result in ["delivered", "ignored", "merged", "taken"] {
            assert_eq!(sum(result), count(result), "{signal} {result}: {done:#?}");
        }
    }
    let senders: Vec<_> = done.of_type("row").into_iter().filter(|row| row["signal"] == "SIGALRM").collect();
    assert!(senders.iter().all(|row| row["sender"] == "<interrupt>"), "{senders:#?}");
}

#[test]
fn a_workload_is_watched_with_its_children() {
    need_events!();
    let load = [&*example("signals"), "3", "1"];
    let done = run_over(&["signal", "--json"], &load);
    let count = |signal: &str| done.sum("count", |row| row["signal"] == signal);
    let want = [("SIGTERM", 3), ("SIGKILL", 3), ("SIGSEGV", 3), ("SIGCHLD", 12), ("SIGUSR1", 6), ("SIGUSR2", 4)];
    for (signal, want) in want {
        assert_eq!(count(signal), want, "{signal}: {done:#?}");
    }
    // Signals of its end may have no known fate yet: each is shown all the same.
    let shown = done.of_type("event").iter().filter(|event| event["signal"] == "SIGRTMIN+5").count();
    assert_eq!(shown, 3, "{done:#?}");
}

#[test]
fn names_are_filtered_and_minus_n_stops() {
    need_events!();
    let mut target = Load::start({
        let dir = tempfile::tempdir().expect("a directory").keep();
        let path = dir.join("sig_filter_it");
        std::os::unix::fs::symlink("/bin/sh", &path).expect("a link");
        Command::new(path)
    });
    let mut other = Load::shell();
    for shell in [&mut target, &mut other] {
        shell.tell("trap : USR1; echo ready");
        assert_eq!(shell.says(), "ready");
    }
    let mut run = start_watching(&["signal", "--filter", "nobody,sig_filt*", "-N", "3"]);
    for _ in 0..3 {
        for shell in [&mut other, &mut target] {
            kill(Pid::from_raw(shell.pid()), Signal::SIGUSR1).expect("kill");
            shell.tell("echo again"); // the trap has run by then
            assert_eq!(shell.says(), "again");
        }
    }
    run.object(|object| object["type"] == "end");
    let done = run.finish().code(0);
    assert_eq!(done.shown(), 3, "{done:#?}");
    for event in done.of_type("event") {
        assert_eq!(event["target"]["tid"], target.pid(), "{event}");
        assert_eq!(event["pid"], std::process::id(), "{event}");
    }
    assert!(done.err.iter().any(|line| line.contains(r#"comm == "nobody" || comm ~ "sig_filt*""#)), "{done:#?}");
    target.stop();
    other.stop();
}

#[test]
fn signals_that_are_not_delivered_have_a_reason() {
    need_events!();
    let mut shell = Load::shell();
    shell.tell("echo ready");
    assert_eq!(shell.says(), "ready");
    let pid = Pid::from_raw(shell.pid());
    let mut run = start_watching(&["signal", "-p", &shell.pid().to_string()]);
    kill(pid, Signal::SIGSTOP).expect("kill");
    until("it stops", || common::state_letter(shell.pid() as u64) == Some('T'));
    kill(pid, Signal::SIGTERM).expect("kill");
    let pending = run.object(|event| is(event, "SIGTERM", "pending"));
    assert_eq!(pending["why"], "stopped");
    kill(pid, Signal::SIGKILL).expect("kill");
    run.object(|event| is(event, "SIGKILL", "delivered"));
    // A signal that is pending when its process ends never arrives.
    let ended = run.object(|event| event["type"] == "event" && event["signal"] == "SIGTERM");
    assert_eq!(ended["result"], "target_ended", "{ended}");
    drop(shell);
    run.finish().code(0);
}

#[test]
fn stacks_are_those_of_the_sender() {
    need_events!();
    let done = run_over(&["signal", "-g", "--json"], &[&example("signals"), "1", "1"]);
    let events = done.of_type("event");
    let sent = events.iter().find(|event| event["signal"] == "SIGUSR1").unwrap_or_else(|| panic!("{done:#?}"));
    let frames = sent["stack"].as_array().expect("a stack");
    let named = |name: &str| frames.iter().any(|frame| frame["symbol"].as_str().is_some_and(|at| at.contains(name)));
    assert!(named("kill"), "{sent:#}");
    assert_eq!(sent["function"], "signals::handler+0x0 signals", "{sent:#}");
}

#[test]
fn text_has_a_line_per_signal() {
    need_events!();
    let done = run(&["signal", "--", "sh", "-c", "trap : USR1; kill -USR1 $$"]).code(0);
    let line = done.out.iter().find(|line| line.contains(" SIGUSR1 ") && line.contains(" -> ")).expect("a line");
    let (_, what) = line.split_once("SIGUSR1  sh ").unwrap_or_else(|| panic!("{line}"));
    assert!(what.contains("] -> sh ") && what.contains(", SI_USER: delivered after "), "{line}");
    let latency = what.split("delivered after ").nth(1).and_then(|text| text.split_once(" ms, handler 0x"));
    assert!(latency.is_some_and(|(ms, _)| ms.parse::<f64>().is_ok()), "{line}");
    let heading = done.out.iter().find(|line| line.starts_with("signal ")).expect("a table");
    assert!(heading.ends_with("max ms") && heading.len() <= 80, "{heading}");
}

#[test]
fn a_loss_makes_no_false_pairs() {
    need_events!();
    const MANY: u64 = 5000;
    let mut shell = Load::shell();
    let flood = format!("i=0; while [ $i -lt {MANY} ]; do kill -USR1 $$; i=$((i+1)); done; echo done");
    shell.tell("trap : USR1; echo ready");
    assert_eq!(shell.says(), "ready");
    let mut run = start_watching(&["signal", "-p", &shell.pid().to_string(), "-m", "1"]);
    // The rings fill while perf-prof is stopped: perhaps with signals of other tasks, and none of the load is seen.
    let fill = |_| {
        run.signal(Signal::SIGSTOP);
        shell.tell(&flood);
        assert_eq!(shell.says(), "done");
        run.signal(Signal::SIGCONT);
        let ours = |event: &Value| is(event, "SIGUSR1", "unknown") || is(event, "SIGUSR1", "delivered");
        run.object_within(Duration::from_secs(5), ours).is_some()
    };
    assert!((0..10).any(fill), "nothing is seen of ten floods");
    run.signal(Signal::SIGUSR1);
    let interval = run.object(|object| object["type"] == "interval" && number(object, "lost") > 0);
    let rows = run.rows_of(&interval["interval"]);
    let sum = |key: &str| rows.iter().map(|row| number(row, key)).sum::<u64>();
    // Records of other tasks are among the lost ones.
    assert!(sum("count") < MANY && sum("delivered") <= sum("count"), "{interval}: {rows:#?}");
    assert_eq!(sum("taken"), 0, "what is missing was lost: {rows:#?}");
    // The loss is over, except that a busy machine may fill rings of one page again.
    let is_delivered = |_| {
        kill(Pid::from_raw(shell.pid()), Signal::SIGUSR1).expect("kill");
        let ours = |event: &Value| event["type"] == "event" && event["pid"] == std::process::id();
        run.object_within(Duration::from_secs(5), ours).is_some_and(|event| event["result"] == "delivered")
    };
    assert!((0..10).any(is_delivered), "ten signals, none told right");
    let done = run.interrupt().code(0);
    let unknown = done.of_type("event").iter().filter(|event| event["result"] == "unknown").count();
    assert_eq!(unknown as u64, done.total("discarded"), "{done:#?}");
    shell.stop();
}
