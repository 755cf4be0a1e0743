//! signal on other kernels: the same counts as here.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::collections::BTreeMap;

use common::{load_number, number};
use lab::{AMD64, Lab};

const COUNT: u64 = 5;

/// The load waits at points where it could be faster than perf-prof.
const SCRIPT: &str = "
    mkfifo /tmp/go
    SIGNALS_GO=stdin signals 5 0 </tmp/go >/tmp/said &
    pid=$!
    exec 5>/tmp/go
    await grep -q ready /tmp/said
    watching sent signal -p $pid
    echo >&5
    await is_on sent 'SIGUSR2.*\"pending\",\"why\"' /out/sent
    echo >&5
    await is_on sent 'SIGRTMIN+5.*\"taken\"' /out/sent
    await grep -q blocked_ns /tmp/said
    cat /tmp/said
    echo >&5
    ended sent";

#[track_caller]
fn check(lab: Lab) {
    let version = lab.version();
    let output = lab.example("signals").run(SCRIPT);
    let done = output.results("sent").code(0);
    let line = output.done.out.last().expect("the load's last line");
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in done.of_type("event") {
        let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} in {event}")).to_owned();
        *kinds.entry((text("signal"), text("result"))).or_default() += 1;
    }
    let n = COUNT;
    let want = [
        ("SIGALRM", "delivered", n),
        ("SIGCHLD", "delivered", 4 * n),
        ("SIGKILL", "delivered", n),
        ("SIGRTMIN+4", "delivered", n),
        ("SIGRTMIN+5", "taken", n),
        ("SIGSEGV", "delivered", n),
        ("SIGTERM", "delivered", n),
        ("SIGURG", "ignored", n),
        ("SIGUSR1", "delivered", 2 * n),
        ("SIGUSR2", "merged", n),
        ("SIGUSR2", "delivered", 1),
        ("SIGUSR2", "pending", 1),
    ];
    let want = want.map(|(signal, result, count)| ((signal.to_owned(), result.to_owned()), count));
    assert_eq!(kinds, BTreeMap::from(want), "{version}: {done:#?}");
    let events = done.of_type("event");
    let waited = events.iter().find(|event| event["signal"] == "SIGUSR2" && event["result"] == "delivered");
    let delay = number(waited.expect("it was counted"), "duration_ns");
    println!("{version}: {} events, the blocked one {delay} ns", events.len());
    assert!(delay >= load_number(line, "blocked_ns"), "{version}: {delay}: {line}");
}

#[test]
fn every_signal_is_counted_once() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

#[test]
fn every_signal_is_counted_once_on_arm64() {
    need_lab!();
    check(Lab::arm64("6.12"));
}
