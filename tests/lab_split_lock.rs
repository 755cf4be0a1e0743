//! split-lock on other kernels, with stand-ins for split locks; on arm64 also with a hardware counter.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use lab::{AMD64, Lab};

const FAULTS: u64 = 3000;

const SCRIPT: &str = "
    mkfifo /tmp/go
    faults 3000 </tmp/go >/tmp/said &
    pid=$!
    exec 5>/tmp/go
    await grep -q ready /tmp/said
    watching faults split-lock --event page-faults -T 100 -p $pid
    echo >&5
    await grep -q faults= /tmp/said
    stop faults
    prof refused split-lock";

#[track_caller]
fn check(lab: Lab, refusal: &str, more: &str) -> lab::Output {
    let version = lab.version();
    let output = lab.example("faults").run(&format!("{SCRIPT}\n{more}"));
    let done = output.results("faults").code(0);
    println!("{version}: {} faults, {} samples", done.sum("delta", |_| true), done.shown());
    assert_eq!(done.sum("delta", |_| true), FAULTS, "{version}: {done:#?}");
    assert_eq!(done.shown(), FAULTS / 100, "{version}: {done:#?}");
    for event in done.of_type("event") {
        let symbol = event["stack"][0]["symbol"].as_str().unwrap_or_default();
        assert!(event["mode"] == "user" && symbol.contains("touch"), "{version}: {event}");
    }
    output.results("refused").code(1).says(&[refusal]);
    output
}

#[test]
fn faults_are_counted_and_sampled() {
    need_lab!();
    for series in AMD64 {
        check(Lab::new(series), "there is no hardware counter", "");
    }
}

#[test]
fn cycles_are_counted_and_sampled_on_arm64() {
    need_lab!();
    let cycles = "prof cycles split-lock --event cycles -T 1000000 --json -- sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'";
    let output = check(Lab::arm64("6.12"), "split locks exist on Intel and AMD CPUs only", cycles);
    let done = output.results("cycles").code(0);
    let (counted, samples) = (done.sum("delta", |_| true), done.shown());
    println!("{counted} cycles, {samples} samples");
    // Each task's counter begins its own million on each CPU.
    assert!(samples > 0 && counted >= samples * 1_000_000, "{done:#?}");
}
