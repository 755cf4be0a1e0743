//! What the tests may excuse themselves with: a scenario is repeated, and a test skipped, only for a reason that holds.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use common::skips::{entries, is_allowed, test_of};
use common::{Again, CpuWatch, Done, again, attempts, loads_programs};

const NO_NUMBERS: &str = r#"{"type":"end","lost":0,"lost_side":0,"discarded":0}"#;

fn run_that_says(out: &str, err: &str) -> Done {
    Done::of("a run".to_owned(), ExitStatus::from_raw(0), out.as_bytes(), err.as_bytes())
}

/// Whether the reasons hold: a scenario without one fails.
fn excused(reasons: &[Again]) -> bool {
    catch_unwind(|| again::<()>(reasons, "fewer than there are").is_err()).unwrap_or(false)
}

#[test]
fn what_a_run_does_not_say_is_no_excuse() {
    let [lost, side, pairs] = ["lost", "lost_side", "discarded"]
        .map(|key| run_that_says(&NO_NUMBERS.replace(&format!(r#""{key}":0"#), &format!(r#""{key}":3"#)), ""));
    let nothing = run_that_says(NO_NUMBERS, "");
    let in_text =
        run_that_says("", "task-state: 226 events in 0.3 s, 5 lost, 1 pair discarded because an end is missing");
    let nothing_in_text = run_that_says("", "task-state: 226 events in 0.3 s, 0 lost");
    for (done, is_lost, is_discarded) in [
        (&lost, true, false),
        (&side, true, false),
        (&pairs, false, true),
        (&nothing, false, false),
        (&in_text, true, true),
        (&nothing_in_text, false, false),
    ] {
        assert_eq!(excused(&[Again::RecordsLost(done)]), is_lost, "{done:?}");
        assert_eq!(excused(&[Again::Discarded(done)]), is_discarded, "{done:?}");
        assert_eq!(excused(&[Again::RecordsLost(done), Again::Discarded(done)]), is_lost || is_discarded, "{done:?}");
        assert!(!excused(&[]) && !excused(&[Again::IdleHidden(done)]) && !excused(&[Again::NamesGivenUp(done)]));
    }
    let note = "CPU 1 hides its idle task from events, and the wake-ups in its interrupts";
    // Where a program can be the witness, it is none.
    assert_eq!(excused(&[Again::IdleHidden(&run_that_says(NO_NUMBERS, note))]), !loads_programs());
    let row = run_that_says(r#"{"type":"row","unknown":1}"#, "");
    assert!(excused(&[Again::TaskHidden(&row)]) && !excused(&[Again::TaskHidden(&nothing)]));
}

#[test]
fn the_numbers_of_a_load_are_looked_at() {
    let line = "waits=5 max_ns=100";
    assert!(excused(&[Again::LoadAbove(line, "max_ns", 99)]) && !excused(&[Again::LoadAbove(line, "max_ns", 100)]));
    assert!(excused(&[Again::LoadBelow(line, "waits", 6)]) && !excused(&[Again::LoadBelow(line, "waits", 5)]));
}

#[test]
fn no_time_is_stolen_that_was_not() {
    let watch = CpuWatch::of_account();
    assert!(!excused(&[Again::CpuStolen(&watch, Duration::from_secs(3600))]));
    assert!(!excused(&[Again::CpuBusy(&watch, Duration::from_secs(3600))]));
}

#[test]
fn a_wrong_result_is_no_second_attempt() {
    let nothing = run_that_says(NO_NUMBERS, "");
    let mut times = 0;
    let scenario = || {
        times += 1;
        again(&[Again::RecordsLost(&nothing)], "fewer than there are")
    };
    let failed = catch_unwind(AssertUnwindSafe(|| attempts(scenario)));
    assert_eq!((failed.is_err(), times), (true, 1));
}

#[test]
fn a_skip_is_allowed_by_test_and_reason() {
    let list = "# remark\n\nprobes::one: no kprobes\nprobes::two: no PMU\n";
    for (test, why, want) in [
        ("probes::one", "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)", true),
        ("probes::one", "no PMU", false),
        ("probes::two", "no PMU", true),
        ("probes::tw", "no PMU", false),
        ("signal::one", "no kprobes", false),
    ] {
        assert_eq!(is_allowed(list, test, why), want, "{test}: {why}");
    }
    assert_eq!(test_of(here!()), "excuses::a_skip_is_allowed_by_test_and_reason");
    let in_closure = || test_of(here!()).to_owned();
    assert_eq!(in_closure(), "excuses::a_skip_is_allowed_by_test_and_reason");
}

/// No entry outlives its test.
#[test]
fn each_test_that_may_be_skipped_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/may_skip.txt")).expect("the list");
    for (name, words) in entries(&list) {
        let (program, path) = name.split_once("::").unwrap_or_else(|| panic!("no program in {name}"));
        let test = path.rsplit("::").next().expect("a name");
        let dir = root.join(if program == "perf_prof" { "src".to_owned() } else { format!("tests/{program}.rs") });
        assert!(holds(&dir, &format!("fn {test}(")) && !words.is_empty(), "{name}");
    }
}

fn holds(path: &Path, text: &str) -> bool {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().any(|entry| holds(&entry.path(), text)),
        Err(_) => fs::read_to_string(path).is_ok_and(|source| source.contains(text)),
    }
}
