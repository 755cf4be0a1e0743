//! split-lock: counts and samples, of page faults in place of split locks, which many machines cannot count; and the
//! error without hardware counters.

#[macro_use]
mod common;

use common::{Done, Load, can_trace, example, run, start_watching};
use perf_prof::perf::Attr;
use perf_prof::perf::attr::{Counter, MissingFeatures};
use perf_prof::sys::perf::Watch;
use serde_json::Value;

const FAULTS: u64 = 3000;

/// A run over the faults of a program, which waits before and after them.
fn counted(options: &[&str]) -> Done {
    let mut load = Load::of(&example("faults"), &[&FAULTS.to_string()]);
    assert_eq!(load.says(), "ready");
    let pid = load.pid().to_string();
    let run = start_watching(&[&["split-lock", "--event", "page-faults", "-p", &pid], options].concat());
    load.tell("");
    assert_eq!(load.says(), format!("faults={FAULTS}"));
    let done = run.interrupt().code(0);
    drop(load);
    done
}

#[test]
fn every_event_is_counted() {
    need_events!();
    let done = counted(&["-T", "0"]);
    assert_eq!(done.sum("delta", |_| true), FAULTS, "{done:#?}");
    assert_eq!((done.shown(), done.total("samples")), (0, 0), "{done:#?}");
    let rows = done.of_type("row");
    let [row] = &rows[..] else { panic!("one CPU: {rows:#?}") };
    assert_eq!(row["count"], FAULTS, "{row}");
    assert_eq!(row["run_pct"], 100.0, "a software event has its counter for itself: {row}");
    assert!(row.get("estimate").is_none(), "{row}");
}

/// An interval that ends with the run counts, however short.
#[test]
fn the_last_faults_are_counted() {
    need_events!();
    let done = counted(&["-T", "0", "-i", "1000000"]);
    assert_eq!(done.sum("delta", |_| true), FAULTS, "{done:#?}");
}

#[test]
fn every_nth_event_is_a_sample() {
    need_events!();
    let done = counted(&["-T", "100"]);
    let events = done.of_type("event");
    assert_eq!((events.len() as u64, done.total("samples")), (FAULTS / 100, FAULTS / 100), "{done:#?}");
    for event in &events {
        assert_eq!((&event["count"], &event["mode"], &event["comm"]), (&100.into(), &"user".into(), &"faults".into()));
        let frames = event["stack"].as_array().expect("the place");
        assert!(frames.len() == 1 && frames[0]["addr"] == event["addr"], "{event}");
        assert!(frames[0]["symbol"].as_str().is_some_and(|name| name.contains("touch")), "{event}");
    }
    assert_eq!(done.sum("delta", |_| true), FAULTS, "{done:#?}");
    let places: Vec<Value> = done.of_type("row").into_iter().filter(|row| row.get("place").is_some()).collect();
    assert!(places.iter().all(|row| row["place"].as_str().is_some_and(|name| name.contains("touch"))), "{places:#?}");
    assert_eq!(done.sum("events", |_| true), FAULTS, "{places:#?}");
}

#[test]
fn stacks_lead_to_the_place() {
    need_events!();
    let done = counted(&["-T", "1000", "-g"]);
    let events = done.of_type("event");
    assert_eq!(events.len() as u64, FAULTS / 1000);
    for event in &events {
        let frames = event["stack"].as_array().expect("a stack");
        let innermost = frames[0]["symbol"].as_str().unwrap_or_default();
        assert!(innermost.contains("touch"), "{event}"); // a leaf may have no frame, and its caller is not seen then
    }
}

#[test]
fn tables_are_read_at_a_glance() {
    need_events!();
    let faults = [&*example("faults"), "3000"];
    let done = run(&[&["split-lock", "--event", "page-faults", "-T", "1000", "--"], &faults[..]].concat()).code(0);
    let heading = |text: &str| done.out.iter().any(|line| line.contains(text) && line.len() <= 80);
    assert!(heading("samples events mode") && heading("CPU since start counted % of time"), "{done:#?}");
}

/// True if split locks can be counted here.
fn has_counters() -> bool {
    let watch = Watch::Cpu(common::online_cpus()[0]);
    MissingFeatures::default().open(&mut Attr::counter(Counter::Raw(0x10f4), 0), watch).is_ok()
}

#[test]
fn without_counters_one_sentence_says_so() {
    need_events!();
    if has_counters() {
        skip!("this machine has counters");
    }
    for options in [&[][..], &["--test"], &["-T", "0", "-i", "1000"], &["-G"]] {
        let done = run(&[&["split-lock"], options].concat()).code(1);
        assert_eq!((done.out.len(), done.err.len()), (0, 1), "{done:#?}");
        let known = ["there is no hardware counter", "split locks exist on", "split locks are counted by", "kills who"];
        assert!(known.iter().any(|why| done.err().contains(why)), "{done:#?}");
    }
}

#[test]
fn split_locks_are_counted_where_they_can_be() {
    if can_trace().is_err() || !has_counters() {
        skip!("no counters here");
    }
    let done = run(&["split-lock", "--test", "--for", "2", "--json", "-T", "100"]).code(0);
    assert!(done.sum("delta", |_| true) >= 100, "{done:#?}");
    let of_test = done.of_type("event").into_iter().filter(|event| event["comm"] == "split-lock-test");
    let named = |event: &Value| event["stack"][0]["symbol"].as_str().is_some_and(|name| name.ends_with("add_across"));
    assert!(of_test.into_iter().any(|event| named(&event)), "{done:#?}");
}
