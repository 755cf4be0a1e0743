//! task-state on other kernels, against a wait of a known length in the kernel.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::number;
use common::waits::{MS, still_waiting};
use lab::{AMD64, Lab};

/// The wait, between two looks at the clock.
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

/// One wait of 300 ms in state D, with the stack of who waits.
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
    // A busy host makes the guest's waits longer; its clock, in steps of 10 ms, tells.
    let most_ns = (330 * MS).max(((after_s - before_s) * 1e9) as u64 + 20 * MS);
    let duration = number(event, "duration_ns");
    println!("{version}: {duration} ns, {} s by the clock", after_s - before_s);
    assert!((290 * MS..=most_ns).contains(&duration), "{version}: {event}");
    let frames = event["stack"].as_array().expect("a stack");
    let is = |name: &str| frames.iter().any(|frame| frame["symbol"] == name);
    assert!(is("schedule_timeout") && frames.iter().any(|frame| frame["module"] == "ppfault"), "{version}: {event}");
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
