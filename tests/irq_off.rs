//! irq-off on this machine, which cannot switch its interrupts off: nothing that it does may be called so. What it says
//! of interrupts that are off is tested in the lab.

#[macro_use]
mod common;

use std::process::Command;
use std::time::Duration;

use common::{
    Again, Attempted, CpuWatch, Done, Load, again, attempts, number, online_cpus, or_again, run, run_over, start,
    start_watching, stay_visible,
};
use serde_json::Value;

const KINDS: [&str; 6] = ["timer late", "machine stopped", "stolen", "idle", "sampling hole", "not sampled"];
const MS: u64 = 1_000_000;

fn rows(done: &Done) -> Vec<Value> {
    done.of_type("row")
}

#[track_caller]
fn row_of(done: &Done, cpu: u32) -> Value {
    let found = rows(done).into_iter().find(|row| row["cpu"] == cpu);
    found.unwrap_or_else(|| panic!("no row of CPU {cpu}: {done:?}"))
}

/// Checks every line and row of a run. None may have the verdict `interrupts off`: no load here switches interrupts off, but a
/// host that lets a CPU wait looks the same if it does not report stolen time. The watch was on for as long.
fn innocent(done: &Done, watch: &CpuWatch) -> Attempted {
    for event in done.of_type("event") {
        let kind = event["kind"].as_str().expect("a kind");
        if kind == "interrupts off" || kind == "silent" {
            return again(&[Again::CpuStolen(watch, half_of(&event))], &event);
        }
        assert!(KINDS.contains(&kind) && event["still_silent"] == false, "{event}");
        assert!(number(&event, "duration_ns") <= number(&event, "at_most_ns"), "{event}");
        assert_eq!(event["latency_ns"], event["duration_ns"]);
    }
    for row in rows(done) {
        assert_eq!(number(&row, "count"), 0, "{row}");
        assert!(row.get("max_ns").is_none(), "{row}");
    }
    Ok(())
}

/// The watch may have begun to wait in the middle of it.
fn half_of(silence: &Value) -> Duration {
    Duration::from_nanos(number(silence, "duration_ns") / 2)
}

/// A loop on a CPU that shows what it does.
fn spinner() -> (Load, u32) {
    stay_visible();
    let cpu = (0..nix::sched::CpuSet::count())
        .find(|&cpu| {
            nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).is_ok_and(|set| set.is_set(cpu) == Ok(true))
        })
        .expect("a CPU");
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "sh", "-c", "echo on; while :; do :; done"]);
    let mut load = Load::start(command);
    load.says();
    (load, cpu as u32)
}

#[test]
fn a_cpu_without_samples_was_not_watched() {
    need_events!();
    let done = run(&["irq-off", "-L", "60s", "--json", "--for", "0.2"]).code(0);
    let rows = rows(&done);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["samples"] == 0), "{rows:?}");
    assert!(rows.iter().all(|row| row["verdict"] == "lower_bound"), "{rows:?}");
    done.says(&["no CPU was watched", "30.00s apart", "--period"]);
}

#[test]
fn the_timer_of_a_busy_cpu_is_on_time() {
    need_events!(alone);
    let (_load, cpu) = spinner();
    attempts(|| {
        let watch = CpuWatch::by_clock();
        let done = run(&["irq-off", "--period", "5ms", "--than", "50ms", "--for", "2", "--json"]).code(0);
        innocent(&done, &watch)?;
        let interval = &done.of_type("interval")[0];
        let beats = (number(interval, "end_ns") - number(interval, "start_ns")) / (5 * MS);
        let samples = number(&row_of(&done, cpu), "samples");
        assert!(samples <= beats + 2, "{samples} samples, {beats} periods");
        let missing = Duration::from_millis(5 * beats.saturating_sub(samples) / 2);
        let reasons = [Again::CpuStolen(&watch, missing)];
        or_again(samples >= beats / 2, &reasons, || format!("{samples} samples, {beats} periods"))
    });
}

#[test]
fn under_a_storm_of_forks_nothing_is_called_interrupts_off() {
    need_events!(alone);
    stay_visible();
    let storm = "i=0; while [ $i -lt 1500 ]; do /bin/true; (:); i=$((i + 1)); done";
    attempts(|| {
        let watch = CpuWatch::by_clock();
        let done = run_over(&["irq-off", "--than", "30ms", "--all", "--json"], &["sh", "-c", storm]).code(0);
        let holes: u64 = rows(&done).iter().map(|row| number(row, "sampling_holes")).sum();
        let lines = done.of_type("event").iter().filter(|event| event["kind"] == "sampling hole").count() as u64;
        println!("{holes} sampling holes");
        assert_eq!(holes, lines, "{done:?}");
        innocent(&done, &watch)
    });
}

#[test]
fn idle_cpus_are_not_reported() {
    need_events!(alone);
    attempts(|| {
        let watch = CpuWatch::of_account();
        let done = run(&["irq-off", "-L", "50000", "--for", "1500ms", "--json"]).code(0);
        let cpus: Vec<u64> = rows(&done).iter().map(|row| number(row, "cpu")).collect();
        let online: Vec<u64> = online_cpus().into_iter().map(u64::from).collect();
        assert_eq!(cpus, online, "a row for each CPU");
        // A CPU that the host does not run is silent, too.
        let events = done.of_type("event");
        let mut silences = events.iter().filter(|event| event["kind"] == "silent" || event["kind"] == "idle");
        silences.try_for_each(|silence| again(&[Again::CpuStolen(&watch, half_of(silence))], format!("{done:?}")))
    });
}

#[test]
fn only_the_cpus_that_were_asked_for_have_rows() {
    need_events!(alone);
    let cpu = online_cpus()[0];
    let mut run = start(&["irq-off", "-C", &cpu.to_string(), "-i", "100", "--json"]);
    (0..4).for_each(|_| drop(run.object(|object| object["type"] == "interval")));
    let done = run.interrupt().code(0);
    let rows = rows(&done);
    assert!(rows.len() >= 4 && rows.iter().all(|row| row["cpu"] == cpu), "{done:?}");
    let samples: u64 = rows.iter().map(|row| number(row, "samples")).sum();
    let ours: u64 = done.of_type("end").iter().map(|end| number(end, "samples")).sum();
    assert!(samples > 0 && samples <= ours, "{samples} of {ours}");
}

#[test]
fn finer_periods_bring_more_samples() {
    need_events!(alone);
    let (_load, cpu) = spinner();
    let samples = |period_ms: u64, args: &[&str]| {
        let done = run(&[&["irq-off", "--for", "1", "--json", "-L", "100ms"], args].concat()).code(0);
        let interval = &done.of_type("interval")[0];
        let periods = (number(interval, "end_ns") - number(interval, "start_ns")) / (period_ms * MS);
        let samples = number(&row_of(&done, cpu), "samples");
        assert!((1..=periods + 2).contains(&samples), "every {period_ms} ms, {periods} periods: {samples}");
        samples
    };
    attempts(|| {
        let watch = CpuWatch::by_clock();
        let (usual, precise) = (samples(50, &[]), samples(5, &["--precise"]));
        // A machine that stands still takes one sample for all of that time: for half of the second.
        let reasons = [Again::CpuStolen(&watch, Duration::from_millis(300))];
        or_again(precise > 4 * usual, &reasons, || format!("every 5 ms: {precise}, every 50 ms: {usual}"))
    });
}

#[test]
fn the_table_has_a_line_for_each_cpu() {
    need_events!();
    let done = run(&["irq-off", "--for", "300ms"]).code(0).says(&["irq-off: ", " lost"]);
    let at = done.out.iter().position(|line| line.trim_start().starts_with("CPU off")).expect("a heading");
    // Below the table, the mark of a CPU without samples is explained.
    let lines = done.out[at + 1..].iter().filter(|line| !line.starts_with(">= at least"));
    assert_eq!(lines.count(), online_cpus().len(), "{done:?}");
    assert!(done.out[at..].iter().all(|line| line.chars().count() <= 80), "{done:?}");
}

#[test]
fn it_ends_at_once_on_a_signal() {
    need_events!();
    let run = start_watching(&["irq-off", "-g", "--period", "1ms", "--than", "100ms"]);
    assert_eq!(run.interrupt().code(0).of_type("end").len(), 1);
    let done = start(&["irq-off", "-v", "--for", "100ms"]).finish().code(0);
    assert!(done.err().contains("ring buffer"), "{done:?}");
}
