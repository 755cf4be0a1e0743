//! list, doctor and profile on other kernels: what works there, and whether the shares of a known load are right.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, load_number, number};
use lab::{AMD64, Lab};
use serde_json::Value;

const SCRIPT: &str = "
    prof list list
    prof doctor doctor --json
    prof parts profile --json -F 499 -g -o /out/shares -- parts 2500";

/// All formats of this kernel can be read, and all but what doctor names are shown as the kernel does.
#[track_caller]
fn check_formats(doctor: &Value, list: &Done) {
    let count = |key: &str| number(doctor, key);
    assert!(count("formats") >= list.out.len() as u64 && list.out.len() > 1000, "{doctor}");
    assert_eq!((count("parsed"), count("compiled")), (count("formats"), count("formats")), "{doctor}");
    assert_eq!(doctor["fallback"], serde_json::json!([]));
}

/// What a profiler's verdict is.
fn verdict<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let verdicts = doctor["commands"].as_array().expect("commands");
    verdicts.iter().find(|verdict| verdict["command"] == name).unwrap_or_else(|| panic!("no {name} in {doctor}"))
}

/// Three parts to one, as the load itself measured.
#[track_caller]
fn check_parts(rows: &[Value], load: &str) {
    let of = |name: &str| {
        let is = |row: &&Value| row["symbol"].as_str().is_some_and(|symbol| symbol.ends_with(&format!("::{name}")));
        rows.iter().find(is).and_then(|row| row["pct"].as_f64()).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
    };
    let (three, one) = (load_number(load, "three_ns") as f64, load_number(load, "one_ns") as f64);
    let (truth, share) =
        (100.0 * three / (three + one), 100.0 * of("three_parts") / (of("three_parts") + of("one_part")));
    println!("{share:.2} % of {truth:.2} %");
    assert!((share - truth).abs() < 4.0 && (truth - 75.0).abs() < 2.0, "{share} of {truth}: {load}");
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn machines_without_counters() {
    need_lab!();
    for series in AMD64 {
        let output = Lab::new(series).example("parts").run(SCRIPT);
        let doctor = &output.results("doctor").code(0).json()[0];
        println!("{doctor}");
        check_formats(doctor, &output.results("list").code(0));
        let parts = output.results("parts").code(0);
        check_parts(&objects(&output.file("shares")), parts.line_with("three_ns"));
        parts.says(&["sampling the CPU clock"]);
    }
}

#[test]
fn a_machine_with_counters() {
    need_lab!();
    let output = Lab::arm64("6.12").example("parts").run(SCRIPT);
    let doctor = &output.results("doctor").code(0).json()[0];
    println!("{doctor}");
    check_formats(doctor, &output.results("list").code(0));
    let parts = output.results("parts").code(0);
    check_parts(&objects(&output.file("shares")), parts.line_with("three_ns"));
    println!("{}", output.file("shares"));
    assert!(!parts.err().contains("CPU clock"), "{parts:?}");
}
