//! trace on other kernels: system calls by their names. Its texts: tests/lab_oracle.rs.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{load_number, number};
use lab::{AMD64, Lab};

fn check(lab: Lab) {
    let version = lab.version();
    let script = "prof calls trace --json -m 4M -e 'syscalls:*' -o /out/called -- flood 1000";
    let output = lab.example("flood").run(script);
    let flood = output.results("calls").code(0);
    let called = output.file("called");
    let objects: Vec<serde_json::Value> =
        called.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let end = objects.last().expect("an end");
    assert_eq!((&end["type"], number(end, "lost")), (&"end".into(), 0), "{version}: {end}");
    let count = |name: &str| objects.iter().filter(|object| object["event"] == name).count() as u64;
    let calls = load_number(flood.line_with("calls"), "calls");
    assert_eq!((count("syscalls:sys_enter_getppid"), count("syscalls:sys_exit_getppid")), (calls, calls), "{version}");
    assert_eq!((count("syscalls:sys_exit_execve"), count("syscalls:sys_enter_exit_group")), (1, 1), "{version}");
}

#[test]
fn system_calls() {
    need_lab!();
    AMD64.into_iter().for_each(|series| check(Lab::new(series)));
}

#[test]
fn system_calls_on_arm64() {
    need_lab!();
    check(Lab::arm64("6.12"));
}
