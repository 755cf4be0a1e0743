//! Very many stacks, and very deep ones: they are counted or marked as cut, and never mixed up.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::fs;

use common::{Done, example, number, run_over};
use serde_json::Value;

/// The calls of examples/turns, none of the C library's.
const CALLS: &str = "syscalls:sys_enter_close/fd>=1048576/";
const FIRST: u64 = 1 << 20;
/// Most addresses of a stack, the default of `kernel.perf_event_max_stack`.
const DEPTH: u64 = 127;

/// The number that the functions of a stack, outermost first, encode: see examples/turns.
fn spelt<'a>(functions: impl Iterator<Item = &'a str>) -> u64 {
    functions.fold(0, |spelt, function| match function {
        "turn_left" => spelt << 1,
        "turn_right" => spelt << 1 | 1,
        _ => spelt,
    })
}

/// The lines of a file of folded stacks, with their weights.
fn folded(text: &str) -> Vec<(Vec<&str>, u64)> {
    text.lines()
        .map(|line| {
            let (stack, weight) = line.rsplit_once(' ').expect("a weight");
            (stack.split(';').collect(), weight.parse().expect("a weight"))
        })
        .collect()
}

/// Asserts that `counter` is the only counter of faults that is not 0.
#[track_caller]
fn only_counter(end: &Value, counter: Option<&str>) {
    for other in ["lost", "lost_output", "lost_side", "lost_stacks", "malformed", "discarded"] {
        assert_eq!(number(end, other) > 0, counter == Some(other), "{other}: {end}");
    }
}

fn turns(options: &[&str], count: u64, depth: u64) -> Done {
    run_over(options, &[&example("turns"), &count.to_string(), &depth.to_string()])
}

#[test]
fn fifty_thousand_stacks_are_kept_apart() {
    need_events!();
    const COUNT: u64 = 50_000;
    let dir = tempfile::tempdir().expect("a directory");
    let drawn = dir.path().join("turns.folded");
    let options = ["trace", "-e", CALLS, "--json", "-m", "64M", "--flame-graph", drawn.to_str().expect("UTF-8")];
    let end = turns(&options, COUNT, 21).end();
    assert_eq!(number(&end, "samples"), COUNT, "{end}");
    for counter in ["lost", "lost_stacks", "malformed"] {
        assert_eq!(number(&end, counter), 0, "{counter}: {end}");
    }
    let text = fs::read_to_string(&drawn).expect("folded lines");
    let mut numbers = BTreeSet::new();
    for (stack, weight) in folded(&text) {
        assert_eq!((weight, stack[0], stack[1]), (1, "turns", "turns_begin"), "{stack:?}");
        assert!(numbers.insert(spelt(stack.into_iter())), "one stack, two lines");
    }
    assert!(numbers.into_iter().eq(FIRST..FIRST + COUNT));
}

#[test]
fn stacks_that_find_no_room_are_counted() {
    need_events!();
    const COUNT: u64 = 24_000; // of 4 KiB each, more than 64 MiB
    // Outstanding allocations keep their stacks in use.
    let alloc = format!("{CALLS}ptr=fd/");
    let free = format!("raw_syscalls:sys_enter/id=={}/ptr=id/", libc::SYS_getppid);
    let options = ["kmemleak", "--alloc", &alloc, "--free", &free, "-g", "--json", "-m", "64M"];
    let done = turns(&options, COUNT, 100);
    let end = done.end();
    only_counter(&end, Some("lost_stacks"));
    assert_eq!(number(&end, "outstanding"), COUNT, "{end}");
    let (mut numbers, mut without) = (BTreeSet::new(), 0);
    for row in done.rows_and_lists() {
        let frames = row["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
        if frames.is_empty() {
            without += number(&row, "allocs");
            continue;
        }
        assert_eq!(number(&row, "allocs"), 1, "two stacks are taken for one: {row}");
        assert!(numbers.insert(spelt(frames.iter().rev().filter_map(|frame| frame["symbol"].as_str()))), "{row}");
    }
    assert_eq!(without, number(&end, "lost_stacks"), "{end}");
    assert_eq!(numbers.len() as u64 + without, COUNT, "{end}");
    // The first stacks are kept.
    assert!(numbers.len() > 5000 && numbers.iter().copied().eq(FIRST..FIRST + numbers.len() as u64));
}

#[test]
fn a_stack_that_was_cut_has_another_root() {
    need_events!();
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").expect("perf_event_max_stack");
    if limit.trim() != DEPTH.to_string() {
        skip!("kernel.perf_event_max_stack is not {DEPTH}");
    }
    let of_depth = |depth: u64| {
        let dir = tempfile::tempdir().expect("a directory");
        let drawn = dir.path().join("turns.folded");
        let options =
            ["trace", "-e", CALLS, "--call-graph=fp", "--json", "--flame-graph", drawn.to_str().expect("UTF-8")];
        let done = turns(&options, 2, depth);
        (done, fs::read_to_string(&drawn).expect("folded lines"))
    };
    let (done, _) = of_depth(21);
    let events = done.of_type("event");
    let whole = events[0]["stack"].as_array().expect("a stack").len() as u64;
    // Kernel frames and the two end frames are part of the depth. A stack of exactly that depth may have gone on.
    let fits = DEPTH - (whole - 21) - 1;
    for (depth, is_cut) in [(fits, false), (fits + 1, true), (fits + 2, true), (2 * DEPTH, true)] {
        let (done, text) = of_depth(depth);
        for event in done.of_type("event") {
            let stack = event["stack"].as_array().expect("a stack");
            let addresses = stack.iter().filter(|frame| frame["addr"].is_string()).count() as u64;
            assert_eq!(addresses, (whole - 21 + depth).min(DEPTH), "{depth}: {event}");
            let root = stack.last().and_then(|frame| frame["symbol"].as_str());
            assert_eq!(root, Some(if is_cut { "[truncated]" } else { "turns_begin" }), "{depth}: {event}");
        }
        for (stack, weight) in folded(&text) {
            assert_eq!((weight, stack[1] == "[truncated]"), (1, is_cut), "{depth}: {stack:?}");
        }
        assert_eq!(folded(&text).len(), 2, "{depth}: {text}");
    }
}
