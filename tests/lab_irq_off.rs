//! irq-off on other kernels, against interrupts that are off for a known time, and against all that only looks like it.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::fs;
use std::thread;
use std::time::Duration;

use common::{Done, number, until};
use lab::{AMD64, Lab};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A fault on CPU 1, between two looks at the clock, while perf-prof is kept on CPU 0.
fn script(fault: &str, options: &str) -> String {
    format!(
        "taskset -p 1 $$ >/dev/null
        watching run irq-off --all -g {options}
        taskset 2 sh -c 'exec 3>/proc/ppfault
            read before idle </proc/uptime
            echo {fault} >&3
            read after idle </proc/uptime
            echo $before
            echo $after'
        stop run"
    )
}

/// What was found, and how long the fault took by the guest's own clock, in steps of 10 ms.
fn provoke(lab: Lab, fault: &str, options: &str) -> (Done, u64) {
    let output = lab.ppfault().run(&script(fault, options));
    let said: Vec<f64> = output.done.out.iter().map(|line| line.parse().expect("a number")).collect();
    let [before_s, after_s] = said[..] else { panic!("{said:?}") };
    (output.results("run").code(0), ((after_s - before_s) * 1e9) as u64)
}

/// The finished gaps in which `symbol` was interrupted, or is the function that took so long.
fn gaps_in(done: &Done, symbol: &str) -> Vec<Value> {
    let is_in = |event: &Value| {
        let stack = event["stack"].as_array().into_iter().flatten();
        { stack }.any(|frame| frame["symbol"] == symbol)
    };
    let events = done.of_type("event").into_iter();
    events.filter(|event| event["still_silent"] == false && is_in(event)).collect()
}

/// Interrupts that are off for `ms`, or longer where a busy host makes the guest slow.
#[track_caller]
fn check_off(lab: Lab, fault: &str, ms: u64, symbol: &str) {
    let version = lab.version();
    let (done, took_ns) = provoke(lab, &format!("{fault} {ms}"), "-L 60ms --period 6ms");
    let [event] = &gaps_in(&done, symbol)[..] else { panic!("{version}: not one gap: {done:#?}") };
    assert_eq!((&event["kind"], &event["cpu"]), (&"interrupts off".into(), &1.into()), "{version}: {event}");
    let (least, most) = (number(event, "latency_ns"), number(event, "at_most_ns"));
    println!("{version}: {fault} {ms}: {least} to {most} ns, {took_ns} ns by the clock");
    let longest = (ms * MS * 11 / 10).max(took_ns + 20 * MS);
    assert!(least >= ms * MS * 9 / 10 && least <= longest, "{version}: {event}");
    assert!(most >= ms * MS * 99 / 100 && most <= longest + 10 * MS, "{version}: {event}");
    let row = done.of_type("row").into_iter().rfind(|row| row["cpu"] == 1).expect("a row");
    assert!(number(&row, "count") >= 1 && number(&row, "max_ns") >= least, "{version}: {row}");
}

#[test]
fn interrupts_off() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_off(Lab::new(series), "irqoff", 200, "ppfault_run"));
}

#[test]
fn interrupts_off_on_arm64() {
    need_lab!();
    check_off(Lab::arm64("6.12"), "irqoff", 200, "ppfault_run");
}

#[test]
fn a_long_handler_keeps_interrupts_off() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_off(Lab::new(series), "hardirq", 150, "ppfault_hrtimer"));
}

/// The timer fires meanwhile, so there is nothing to report, least of all interrupts that are off.
#[test]
fn what_leaves_interrupts_on_is_not_found() {
    need_lab!();
    for series in AMD64 {
        for fault in ["preemptoff 200", "softirq 200"] {
            let lab = Lab::new(series);
            let version = lab.version();
            let (done, took_ns) = provoke(lab, fault, "-L 60ms --period 6ms");
            assert!(took_ns >= 180 * MS, "{version}: the fault took {took_ns} ns");
            let found = gaps_in(&done, "ppfault_run").into_iter().chain(gaps_in(&done, "ppfault_timer"));
            // A host that was busy may have stopped the guest for a while; but not for all of it.
            let all = found.filter(|event| event["kind"] == "interrupts off" && number(event, "at_most_ns") > 150 * MS);
            assert_eq!(all.collect::<Vec<_>>(), [] as [Value; 0], "{version}: {fault}: {done:#?}");
        }
    }
}

/// A CPU that is silent is shown while it is, with the task that runs there.
#[test]
fn a_silence_is_shown_while_it_lasts() {
    need_lab!();
    let (done, _) = provoke(Lab::new("6.12"), "irqoff 2500", "-L 60ms");
    let events = done.of_type("event");
    let on_cpu1 = |event: &&Value| event["cpu"] == 1;
    let silent: Vec<&Value> = events.iter().filter(on_cpu1).filter(|event| event["still_silent"] == true).collect();
    assert!(silent.len() >= 2, "{done:#?}");
    assert!(silent.iter().all(|event| event["kind"] == "silent"), "{silent:?}");
    let names = |event: &Value, comm: &str| {
        let runnable = event["runnable"].as_array().into_iter().flatten().filter_map(Value::as_str);
        event["comm"] == comm || { runnable }.any(|name| name.starts_with(&format!("{comm}:")))
    };
    assert!(silent.iter().any(|event| names(event, "sh")), "{silent:?}");
    let [ended] = &gaps_in(&done, "ppfault_run")[..] else { panic!("{done:#?}") };
    assert_eq!(ended["kind"], "interrupts off");
    let longest = silent.iter().map(|event| number(event, "at_most_ns")).max();
    assert!(longest <= Some(number(ended, "at_most_ns")), "{longest:?} {ended}");
}

/// A guest that the host stops for 300 ms: neither of its CPUs had its interrupts off.
#[test]
fn a_stopped_guest() {
    need_lab!();
    let dir = tempfile::tempdir().expect("a directory");
    let (pid, console) = (dir.path().join("pid"), dir.path().join("console"));
    let text = |path: &std::path::Path| path.to_str().expect("a path in UTF-8").to_owned();
    let lab = Lab::new("6.12").qemu("-pidfile").qemu(&text(&pid)).console(&text(&console));
    // The guest says when it is watched, and goes on when the silence is told.
    let script = r#"
        watching run irq-off --all -L 100ms --period 5ms
        echo lab: go >/dev/ttyS0
        await grep -qE '"at_most_ns":([0-9]{10}|[3-9][0-9]{8}|2[5-9][0-9]{7}),' /out/run
        stop run"#;
    let stopper = thread::spawn(move || {
        until("the guest is watched", || fs::read_to_string(&console).is_ok_and(|text| text.contains("lab: go")));
        let pid: i32 = fs::read_to_string(&pid).expect("a pid file").trim().parse().expect("a pid");
        let pid = Pid::from_raw(pid);
        kill(pid, Signal::SIGSTOP).expect("a guest to stop");
        thread::sleep(Duration::from_millis(300)); // the fault itself
        kill(pid, Signal::SIGCONT).expect("a guest to go on");
    });
    let done = lab.run(script).results("run").code(0);
    stopper.join().expect("the host's part");
    let long: Vec<Value> =
        done.of_type("event").into_iter().filter(|event| number(event, "at_most_ns") >= 250 * MS).collect();
    let stopped = |event: &&Value| event["kind"] == "machine stopped";
    println!("{long:?}");
    assert_eq!(long.iter().filter(stopped).count(), 2, "both CPUs: {done:#?}");
    assert!(long.iter().all(|event| event["kind"] != "interrupts off"), "{long:#?}");
}
