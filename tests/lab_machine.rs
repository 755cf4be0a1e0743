//! list, doctor and profile on other kernels: what works there, and whether the shares of a known load are right.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use std::time::Duration;

use common::{Again, Attempted, CpuWatch, Done, attempts, load_number, number, or_again};
use lab::{AMD64, Lab};
use serde_json::Value;

const SCRIPT: &str = "
    prof list list
    prof doctor doctor --json
    prof parts profile --json -F 499 -g -o /out/shares -- parts 2500";

/// More runs than the PMU has counters, over one load: each counts for a part of the time.
const MULTIPLEXED: &str = "
    taskset 1 parts 600000 >/dev/null &
    load=$!
    taskset -p 2 $$ >/dev/null
    for run in 1 2 3 4 5 6 7 8 9; do
        started $run profile --json -F 97 -C 0 --for 5
    done
    for run in 1 2 3 4 5 6 7 8 9; do
        ended $run
    done
    kill $load";

/// Cycles of a load that keeps one CPU busy: counted, sampled by period, sampled by frequency.
const CYCLES: &str = "
    prof counted split-lock --event cycles -T 0 --json -o /out/counted.rows -- taskset 1 parts 500
    prof period profile --json -c 1000000 -o /out/period.rows -- taskset 1 parts 500
    prof frequency profile --json -F 499 -o /out/frequency.rows -- taskset 1 parts 500";

/// All formats of this kernel can be read, and all texts except those that doctor names are the kernel's.
#[track_caller]
fn check_formats(doctor: &Value, list: &Done) {
    let count = |key: &str| number(doctor, key);
    assert!(count("formats") >= list.out.len() as u64 && list.out.len() > 1000, "{doctor}");
    assert_eq!((count("parsed"), count("compiled")), (count("formats"), count("formats")), "{doctor}");
    assert_eq!(doctor["fallback"], serde_json::json!([]));
}

/// The verdict of a profiler.
fn verdict<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let verdicts = doctor["commands"].as_array().expect("commands");
    verdicts.iter().find(|verdict| verdict["name"] == name).unwrap_or_else(|| panic!("no {name} in {doctor}"))
}

/// Shares of three to one, as the load itself measured. `Err` if not: a host that stops a guest in real time takes the
/// time from one of them, with one sample for all of it.
fn check_parts(rows: &[Value], load: &str, reasons: &[Again]) -> Attempted {
    let of = |name: &str| {
        let is = |row: &&Value| row["symbol"].as_str().is_some_and(|symbol| symbol.ends_with(&format!("::{name}")));
        rows.iter().find(is).and_then(|row| row["pct"].as_f64()).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
    };
    let (three, one) = (load_number(load, "three_ns") as f64, load_number(load, "one_ns") as f64);
    let (truth, share) =
        (100.0 * three / (three + one), 100.0 * of("three_parts") / (of("three_parts") + of("one_part")));
    println!("{share:.2} % of {truth:.2} %");
    let is_so = (share - truth).abs() < 4.0 && (truth - 75.0).abs() < 2.0;
    or_again(is_so, reasons, || format!("{share} of {truth}: {load}"))
}

/// Emulated CPUs that wait for a real one take too few samples.
fn is_busy(watch: &CpuWatch) -> Again<'_> {
    Again::CpuBusy(watch, Duration::from_millis(100))
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn machines_without_counters() {
    need_lab!();
    for series in AMD64 {
        attempts(|| {
            let watch = CpuWatch::of_account();
            let output = Lab::new(series).example("parts").run(SCRIPT);
            let doctor = &output.results("doctor").code(0).json()[0];
            assert_eq!(verdict(doctor, "profile")["verdict"], "degraded", "{doctor}");
            check_formats(doctor, &output.results("list").code(0));
            let parts = output.results("parts").code(0).says(&["sampling the CPU clock"]);
            check_parts(&objects(&output.file("shares")), parts.line_with("three_ns"), &[is_busy(&watch)])
        });
    }
}

#[test]
fn a_machine_with_counters() {
    need_lab!();
    attempts(|| {
        let watch = CpuWatch::of_account();
        let output = Lab::arm64("6.12").example("parts").run(SCRIPT);
        let doctor = &output.results("doctor").code(0).json()[0];
        check_formats(doctor, &output.results("list").code(0));
        let parts = output.results("parts").code(0);
        assert!(!parts.err().contains("CPU clock"), "{parts:?}");
        assert_eq!(verdict(doctor, "profile")["verdict"], "ok", "{doctor}");
        assert_eq!(doctor["machine"]["pmu"], true, "{doctor}");
        check_parts(&objects(&output.file("shares")), parts.line_with("three_ns"), &[is_busy(&watch)])
    });
}

#[test]
fn cycles_by_period_and_by_frequency() {
    need_lab!();
    const PERIOD: u64 = 1_000_000;
    let output = Lab::arm64("6.12").virtual_time().example("parts").run(CYCLES);
    let rows_of = |name: &str| objects(&output.file(&format!("{name}.rows")));
    let used_ns = |name: &str| {
        let done = output.results(name).code(0);
        let line = done.line_with("three_ns");
        (load_number(line, "three_ns") + load_number(line, "one_ns")) as f64
    };
    let sum = |name: &str, key: &str| -> u64 {
        let rows = rows_of(name);
        rows.iter().filter(|row| row["type"] == "row" && row["cpu"].is_u64()).map(|row| number(row, key)).sum()
    };
    let cycles_per_ns = sum("counted", "delta") as f64 / used_ns("counted");
    let samples = sum("period", "samples");
    let share = (samples * PERIOD) as f64 / (used_ns("period") * cycles_per_ns);
    println!("{cycles_per_ns:.3} cycles per ns; {samples} samples stand for {share:.3} of the cycles");
    assert!((share - 1.0).abs() < 0.2, "{samples} samples, {share} of the cycles");
    let per_second = sum("frequency", "samples") as f64 * 1e9 / used_ns("frequency");
    println!("{per_second:.0} samples per second");
    assert!((per_second - 499.0).abs() < 100.0, "{per_second} samples per second");
    for (name, has, lacks) in [("period", "period", "wanted_hz"), ("frequency", "wanted_hz", "period")] {
        let rows = rows_of(name);
        let mut cpus = rows.iter().filter(|row| row["type"] == "row" && row["cpu"].is_u64());
        assert!(cpus.all(|row| row[has].is_u64() && row[lacks].is_null()), "{name}: {rows:?}");
        check_parts(&rows, output.results(name).line_with("three_ns"), &[]).expect("the shares, in virtual time");
    }
}

#[test]
fn more_events_than_counters() {
    need_lab!();
    attempts(try_more_events_than_counters);
}

fn try_more_events_than_counters() -> Attempted {
    let watch = CpuWatch::of_account();
    let output = Lab::arm64("6.12").example("parts").run(MULTIPLEXED);
    let (mut three, mut one, mut least_hz) = (0, 0, u64::MAX);
    for run in 1..=9 {
        let done = output.results(&run.to_string()).code(0);
        let samples = |name: &str| {
            let is = |row: &Value| row["symbol"].as_str().is_some_and(|symbol| symbol.ends_with(&format!("::{name}")));
            done.of_type("total").into_iter().filter(is).map(|row| number(&row, "samples")).sum::<u64>()
        };
        three += samples("three_parts");
        one += samples("one_part");
        let cpus = done.of_type("row").into_iter().filter(|row| row["cpu"] == 0).collect::<Vec<_>>();
        least_hz = least_hz.min(number(&cpus[0], "achieved_hz"));
        assert_eq!(done.total("lost"), 0, "{run}: {done:#?}");
        assert!(cpus[0]["idle_pct"].as_f64().is_some_and(|idle| idle < 10.0), "{run}: a spinning load: {cpus:?}");
    }
    let share = 100.0 * three as f64 / (three + one) as f64;
    println!("{three} and {one} samples: {share:.2} %");
    let is_so = (share - 75.0).abs() < 4.0 && three + one > 1000 && least_hz >= 48;
    or_again(is_so, &[is_busy(&watch)], || format!("{three} and {one}, {least_hz} Hz"))
}
