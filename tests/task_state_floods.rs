//! Floods of waits in text: few lines that count every wait. The loads know the number of waits.

#[macro_use]
mod common;

use std::collections::HashMap;

use common::waits::MS;
use common::{
    Again, Attempted, Done, Load, attempts, example, load_number, or_again, run_over, start_watching_in_text,
};

/// A line on waits.
#[derive(Debug)]
struct Waits<'a> {
    line: &'a str,
    count: u64,
    longest_ms: f64,
    total_ms: f64,
    still: bool,
    /// The stack that it has or refers to.
    stack: Option<&'a str>,
    /// Frames of that stack stand below it.
    has_frames: bool,
}

/// The lines on waits, and the frames of the stacks by their numbers.
fn waits(done: &Done) -> (Vec<Waits<'_>>, HashMap<&str, Vec<&str>>) {
    let mut stacks: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut all: Vec<Waits> = Vec::new();
    for line in &done.out {
        if line.starts_with("    ") {
            let last = all.last().unwrap_or_else(|| panic!("a frame before any wait: {done:#?}"));
            assert!(last.has_frames, "frames of no stack: {line}");
            stacks.entry(last.stack.expect("a number")).or_default().push(line.trim());
        } else if let Some(of_line) = wait(line) {
            all.push(of_line);
        }
    }
    (all, stacks)
}

fn wait(line: &str) -> Option<Waits<'_>> {
    let number = |text: &str| text.split([' ', ':', ';', ',']).next()?.parse::<f64>().ok();
    if let Some((_, rest)) = line.split_once("and ").filter(|_| line.contains(" more wait")) {
        panic!("the load has few places: {rest}");
    }
    let (before, after) = line.split_once(" ms  ")?;
    let longest_ms = before.rsplit(' ').next()?.parse().ok()?;
    let count = after.strip_prefix("longest of ").map_or(Some(1.0), number)? as u64;
    let sum = after.split_once("; ").and_then(|(_, sum)| number(sum));
    let still = after.contains(" still waiting");
    assert_eq!(sum.is_some(), count > 1 && !still, "{line}");
    let stack =
        after.rsplit_once(", stack ").map(|(_, number)| number.trim_end_matches(":").trim_end_matches(" above"));
    let (total_ms, has_frames) = (sum.unwrap_or(longest_ms), after.ends_with(':'));
    Some(Waits { line, count, longest_ms, total_ms, still, stack, has_frames })
}

/// Waits that were not seen from start to end, by the summary.
fn discarded(done: &Done) -> u64 {
    let parts = done.err.iter().flat_map(|line| line.split(", "));
    parts
        .filter(|part| part.contains(" discarded"))
        .filter_map(|part| part.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Behind one lock: thousands of waits at two places.
#[test]
fn a_convoy_is_a_few_lines() {
    need_events!(alone);
    attempts(try_a_convoy_is_a_few_lines);
}

fn try_a_convoy_is_a_few_lines() -> Attempted {
    // Waits of any length: the lines add up to the table.
    let done = run_over(&["task-state", "-S", "--than", "1ns", "-g"], &[&example("convoy"), "30", "60", "1000"]);
    let (waits, stacks) = waits(&done);
    let ended = || waits.iter().filter(|wait| !wait.still);
    let told: u64 = ended().map(|wait| wait.count).sum();
    let row = done
        .out
        .iter()
        .rev()
        .find(|line| line.trim_start_matches([' ', '~', '>', '=']).starts_with("S "))
        .expect("a row");
    // The seen time may follow the cells.
    let row = row.split(" seen ").next().expect("a row");
    let cells: Vec<f64> = row.split_ascii_whitespace().filter_map(|cell| cell.parse().ok()).collect();
    let &[count, total_ms, _min, .., longest_ms, _now] = &cells[..] else { panic!("{row}") };
    assert_eq!(told, count as u64, "{done:#?}");
    // Each line drops fractions of a µs.
    let sum: f64 = ended().map(|wait| wait.total_ms).sum();
    assert!(
        sum <= total_ms + 0.001 && sum + 0.002 * waits.len() as f64 >= total_ms,
        "{sum} of {total_ms} ms: {done:#?}"
    );
    let longest = ended().map(|wait| wait.longest_ms).fold(0.0, f64::max);
    assert!((longest - longest_ms).abs() < 0.001, "{longest} of {longest_ms} ms: {done:#?}");

    let asleep = |stack: &str| stacks[stack].iter().any(|frame| frame.contains("nanosleep"));
    let sleeps: u64 = ended().filter(|wait| wait.stack.is_some_and(asleep)).map(|wait| wait.count).sum();
    let truth = load_number(&done.load, "sleeps");
    assert!(sleeps <= truth, "{sleeps} sleeps, but {}", done.load);
    let is_hidden = [Again::IdleHidden(&done)];
    or_again(sleeps + discarded(&done) >= truth, &is_hidden, || format!("{} sleeps: {done:#?}", truth - sleeps))?;
    // 20 single ones, and a few groups each second, most with a stack that stands above.
    let seconds = load_number(&done.load, "wall_ns") / (1000 * MS);
    let most = 250 + 60 * seconds as usize;
    assert!(done.out.len() < most, "{} lines in {seconds} s: {done:#?}", done.out.len());
    Ok(())
}

/// Many tasks that are stuck at one place.
#[test]
fn tasks_behind_one_cause_are_one_group() {
    need_events!(alone);
    attempts(try_tasks_behind_one_cause_are_one_group);
}

fn try_tasks_behind_one_cause_are_one_group() -> Attempted {
    let mut prof = start_watching_in_text(&["task-state", "-D", "--than", "500", "--filter", "flood_*", "-g"]);
    // perf-prof starts first, so that it knows the mappings without reading /proc of stuck tasks.
    let load = |name| Load::of(&example("dstate"), &["1", "0", name]);
    let mut loads: Vec<Load> = (0..31).map(|n| load(if n < 28 { "flood_dd" } else { "flood_cp" })).collect();
    loads.iter_mut().for_each(|load| drop(load.says()));
    loads.iter_mut().for_each(|load| load.tell("")); // it begins
    prof.line(|line| line.contains("longest of 31 tasks"));
    loads.iter_mut().for_each(|load| load.tell(""));
    loads.iter_mut().for_each(|load| drop(load.says()));
    let done = prof.interrupt().code(0);
    let (waits, stacks) = waits(&done);
    let ended: u64 = waits.iter().filter(|wait| !wait.still).map(|wait| wait.count).sum();
    assert!(ended <= 31, "{done:#?}");
    let is_hidden = [Again::Discarded(&done), Again::IdleHidden(&done)];
    or_again(ended == 31, &is_hidden, || format!("the end of {} waits: {done:#?}", 31 - ended))?;
    let group = waits.iter().find(|wait| wait.still && wait.count == 31);
    let group = group.unwrap_or_else(|| panic!("31 tasks at once: {done:#?}"));
    assert!(group.line.contains("longest of 31 tasks: flood_dd × 28 ("), "{group:?}");
    assert!(group.line.contains(", +25), flood_cp × 3 still waiting"), "{group:?}");
    assert!(group.longest_ms >= 500.0);
    // All of them are at one place, and it is printed once.
    let printed: Vec<&Waits> = waits.iter().filter(|wait| wait.has_frames).collect();
    assert_eq!((printed.len(), stacks.len()), (1, 1), "{done:#?}");
    assert!(waits.iter().all(|wait| wait.stack == Some("1") || wait.still && wait.stack.is_none()), "{waits:#?}");
    assert!(waits.len() < 50, "{waits:#?}");
    Ok(())
}
