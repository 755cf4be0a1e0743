//! task-state on other kernels, against a wait of a known length in the kernel.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::number;
use common::waits::{MS, still_waiting};
use lab::{AMD64, Lab};

/// The wait, between two readings of the clock.
const SCRIPT: &str = "
    watching waits task-state -D --than 100 -g
    sh -c 'exec 3>/proc/ppfault
        echo $$
        read before idle </proc/uptime
        echo dsleep 300 >&3
        read after idle </proc/uptime
        echo $before
        echo $after'
    stop waits";

/// One wait of 300 ms in state D, with the stack of the task that waits.
#[track_caller]
fn check(lab: Lab) {
    let version = lab.version();
    let output = lab.ppfault().run(SCRIPT);
    let done = output.results("waits").code(0);
    let said: Vec<f64> = output.done.out.iter().map(|line| line.parse().expect("a number")).collect();
    let [tid, before_s, after_s] = said[..] else { panic!("{said:?}") };
    let events = done.of_type("event");
    let ended = events.iter().filter(|event| event["tid"] == tid as u64 && !still_waiting(event));
    let [event] = ended.collect::<Vec<_>>()[..] else { panic!("{version}: not one wait: {done:#?}") };
    assert_eq!((&event["state"], &event["comm"]), (&"D".into(), &"sh".into()), "{event}");
    // A busy host makes the guest's waits longer; the guest's clock, in steps of 10 ms, shows by how much.
    let most_ns = (330 * MS).max(((after_s - before_s) * 1e9) as u64 + 20 * MS);
    let duration = number(event, "duration_ns");
    println!("{version}: {duration} ns, {} s by the clock", after_s - before_s);
    assert!((290 * MS..=most_ns).contains(&duration), "{version}: {event}");
    let frames = event["stack"].as_array().expect("a stack");
    let is = |name: &str| frames.iter().any(|frame| frame["symbol"] == name);
    assert!(is("schedule_timeout") && frames.iter().any(|frame| frame["module"] == "ppfault"), "{version}: {event}");
}

/// A wait long enough for a reading of /proc, in emulation, too.
const CALL: &str = "
    watching waits task-state -D --than 100
    sh -c 'exec 3>/proc/ppfault; echo dsleep 2500 >&3'
    stop waits";

/// The system call and its file, which depend on numbers, registers and /proc of the kernel and the architecture.
#[track_caller]
fn check_call(lab: Lab) {
    let version = lab.version();
    let output = lab.ppfault().run(CALL);
    let done = output.results("waits").code(0);
    let events: Vec<_> = done.of_type("event").into_iter().filter(|event| event["comm"] == "sh").collect();
    let (last, before) = events.split_last().expect("a wait");
    assert!(!still_waiting(last) && before.iter().any(still_waiting), "{version}: {done:#?}");
    let named: Vec<_> = events.iter().filter(|event| !event["syscall"].is_null()).collect();
    assert!(!named.is_empty(), "{version}: {done:#?}");
    for event in named {
        assert_eq!((&event["state"], &event["syscall"]), (&"D".into(), &"write".into()), "{version}: {event}");
        assert_eq!((&event["path"], &event["device"]), (&"/proc/ppfault".into(), &"proc".into()), "{version}: {event}");
    }
}

#[test]
fn a_call_and_its_file() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_call(Lab::new(series)));
}

#[test]
fn a_call_and_its_file_on_arm64() {
    need_lab!();
    check_call(Lab::arm64("6.12"));
}

#[test]
fn a_wait_in_the_kernel() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

#[test]
fn a_wait_on_arm64() {
    need_lab!();
    check(Lab::arm64("6.12"));
}

/// Reads completed by a device's timer, and sleeps, on a CPU that another task keeps busy.
const WAKERS: &str = "
    taskset 2 sh -c 'while :; do :; done' &
    spinner=$!
    watching waits task-state -S -D --than 10
    taskset 2 dd if=/dev/nullb0 of=/dev/null bs=4k count=20 iflag=direct
    for n in 1 2 3 4 5 6 7 8 9 10; do taskset 2 sleep 0.03; done
    stop waits
    kill $spinner
    echo $spinner";

/// The task that an interrupt hits is not the waker.
#[track_caller]
fn check_wakers(lab: Lab) {
    let version = lab.version();
    let output = lab.module("null_blk:irqmode=2,completion_nsec=20000000").run(WAKERS);
    let done = output.results("waits").code(0);
    let [spinner] = &output.done.out[..] else { panic!("{version}: {:?}", output.done) };
    let events = done.of_type("event");
    for (comm, state, fewest, source) in [("dd", "D", 20, "timer null_cmd_timer_expired"), ("sleep", "S", 10, "timer")]
    {
        let waits: Vec<_> = events.iter().filter(|event| event["comm"] == comm && event["state"] == state).collect();
        assert!(waits.len() >= fewest, "{version}: {comm}: {done:#?}");
        for event in waits {
            let waker = (&event["waker"]["interrupt"], &event["waker"]["source"], &event["waker"]["comm"]);
            assert_eq!(waker, (&true.into(), &source.into(), &serde_json::Value::Null), "{version}: {event}");
        }
    }
    let spinner: u64 = spinner.parse().expect("a pid");
    let blamed = |event: &&serde_json::Value| event["waker"]["tid"] == spinner;
    assert_eq!(events.iter().filter(blamed).count(), 0, "{version}: {done:#?}");
}

#[test]
fn the_task_hit_by_an_interrupt_is_not_the_waker() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check_wakers(Lab::new(series)));
    check_wakers(Lab::arm64("6.12"));
}
