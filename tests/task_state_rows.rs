//! task-state: which tasks and states have rows, and how these are laid out.
//!
//! As in `task_state`, bounds on counts are wider by the number of discarded periods. Sleeps in this file are loads.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::waits::{MS, assert_within_window, is_state, still_waiting};
use common::{
    Again, Attempted, Done, Load, attempts, example, load_number, number, or_again, own_tid, run, run_over, start,
    start_watching, state_letter, until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The names that threads of examples/threads have in the rows.
fn thread_names(ended: &Done) -> BTreeSet<String> {
    let rows = ended.of_type("row");
    let names = rows.iter().filter_map(|row| row["comm"].as_str()).filter(|comm| comm.starts_with("thread-"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_thousand_threads_are_all_seen() {
    need_events!();
    let threads = example("threads");
    let ended = run(&["task-state", "-S", "--perins", "--json", "--", &threads, "1000", "1000"]).code(0);
    assert_eq!(thread_names(&ended).len(), 1000);
    let rows = ended.of_type("row");
    let of_threads = rows.iter().filter(|row| row["comm"].as_str().is_some_and(|comm| comm.starts_with("thread-")));
    let missing: u64 = of_threads.map(|row| 5_u64.saturating_sub(number(row, "count"))).sum();
    let unknown = ended.total("discarded") + ended.total("lost");
    assert!(missing <= unknown, "{missing} sleeps are missing, {unknown} unknown");
}

/// The thread that executes a program has the number of the first one from then on, and no row under its own.
#[test]
fn a_thread_that_executes_a_program_leaves_no_other_behind() {
    need_events!();
    let takeover = example("takeover");
    attempts(|| {
        let options = ["task-state", "--perins", "--json", "-i", "100"];
        let ended = run_over(&options, &[&takeover, "250", "sleep", "0.55"]);
        let [pid, tid] = ["pid", "tid"].map(|key| load_number(&ended.load, key));
        let rows = ended.of_type("row");
        assert!(rows.iter().any(|row| row["tid"] == tid && row["state"] == "S"), "{rows:#?}");
        let of_program = rows.iter().filter(|row| row["comm"] == "sleep").map(|row| number(row, "interval"));
        let since = of_program.min().expect("the program");
        let late: Vec<&Value> = rows.iter().filter(|row| number(row, "interval") > since).collect();
        assert!(late.iter().any(|row| row["tid"] == pid && row["state"] == "S"), "{late:#?}");
        assert!(late.iter().all(|row| row["tid"] != tid), "{late:#?}");
        let missing = rows.iter().any(|row| row["state"] == "?" || !row["of_ns"].is_null());
        let reasons = [Again::Discarded(&ended), Again::TaskHidden(&ended)];
        or_again(ended.total("discarded") == 0 && !missing, &reasons, || format!("{ended:#?}"))
    });
}

/// Also of those that had begun before the start, whose true length is not known.
#[test]
fn sleeps_below_the_limit_have_no_line() {
    need_events!();
    let load = Load::of("sh", &["-c", "while :; do sleep 0.25; done"]);
    let pid = load.pid().to_string();
    let ended = run(&["task-state", "-S", "--than", "500", "-p", &pid, "--for", "1500ms", "--json"]).code(0);
    let events = ended.of_type("event");
    assert!(events.iter().all(|event| number(event, "duration_ns") >= 500 * MS), "{events:#?}");
    assert!(ended.total("samples") > 0, "{ended:#?}");
}

/// A wait in D that had begun before the start: its true length is not known, and it is not seen for as long as the limit.
#[test]
fn a_wait_from_before_the_start_has_no_line_below_the_limit() {
    need_events!();
    let mut load = Load::of(&example("dstate"), &["1", "0", "ts_below"]);
    let tid = load_number(&load.says(), "tid");
    load.tell("");
    until("the load waits in D", || state_letter(tid) == Some('D'));
    let options = ["-D", "--than", "1000s", "--filter", "ts_below", "--for", "600ms", "--json"];
    let ended = run(&[&["task-state"], &options[..]].concat()).code(0);
    load.tell("");
    assert!(ended.of_type("event").is_empty(), "{ended:#?}");
    assert!(ended.of_type("row").iter().any(|row| row["state"] == "D" && row["ongoing"] == 1), "{ended:#?}");
}

#[test]
fn many_threads_can_be_attached_to() {
    need_events!();
    let load = Load::of(&example("threads"), &["801", "4000"]);
    let pid = load.pid().to_string();
    let tids = || -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the load lives");
        let mut tids: Vec<i32> =
            tasks.filter_map(|task| task.ok()?.file_name().into_string().ok()?.parse().ok()).collect();
        tids.sort_unstable();
        tids.iter().map(i32::to_string).collect()
    };
    until("all threads live", || tids().len() == 802);
    let every_second: Vec<String> = tids().into_iter().skip(1).step_by(2).collect();
    let process = start(&["task-state", "-p", &pid, "--perins", "--json", "-v"]);
    let some = start(&["task-state", "-t", &every_second.join(","), "--perins", "--json", "-v"]);
    let process = process.finish().code(0); // with its target
    assert_eq!(thread_names(&process).len(), 801);
    let some = some.finish().code(0);
    let seen: BTreeSet<String> =
        some.of_type("row").iter().filter_map(|row| Some(row["tid"].as_u64()?.to_string())).collect();
    assert_eq!(seen, every_second.into_iter().collect());
    assert!(some.err.iter().any(|line| line.contains("evaluated here")), "{:#?}", some.err);
}

/// The states with rows in a run over `dstate`, which sleeps and waits.
fn states_with(name: &str, options: &[&str]) -> (BTreeSet<String>, Done) {
    let dstate = example("dstate");
    let args = [&["task-state", "--json", "-v"], options, &["--", &dstate, "4", "15", name]].concat();
    let ended = run(&args).code(0);
    let states = ended.of_type("row").iter().filter_map(|row| Some(row["state"].as_str()?.to_owned())).collect();
    (states, ended)
}

#[test]
fn only_the_states_asked_for_have_rows() {
    need_events!();
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["-S"], &["S"], "prev_state & 1"),
        (&["-D"], &["D"], "prev_state & 2"),
        (&["-S", "-D"], &["D", "S"], "prev_state & 3"),
        (&[], &["D", "R", "RD", "S"], ""),
    ];
    for (options, want, filter) in cases {
        let (states, ended) = states_with("ts_states", options);
        assert_eq!(states.iter().collect::<Vec<_>>(), want, "{options:?}");
        let said = ended
            .err
            .iter()
            .any(|line| line.contains("kernel filter of sched:sched_switch: ") && line.contains(filter));
        assert!(said || filter.is_empty(), "{options:?}: {:#?}", ended.err);
        for (state, fewest) in [("D", 4), ("S", 3)] {
            let count = ended.sum("count", |row| is_state(row, state));
            assert!(count + ended.total("discarded") >= fewest || !want.contains(&state), "{options:?}: {ended:#?}");
        }
    }
}

#[test]
fn names_may_be_patterns_and_go_with_pids() {
    need_events!();
    for (filter, count, said) in [
        ("ts_glo*", 4, r#"prev_comm ~ "ts_glo*""#),
        ("nobody,ts_glob", 4, r#"prev_comm == "nobody""#),
        ("ts_glo", 0, ""),
    ] {
        let (_, ended) = states_with("ts_glob", &["-D", "--filter", filter]);
        let got = ended.sum("count", |_| true);
        // The kernel's own short waits in D, for a lock, are under the name too.
        assert!(got + ended.total("discarded") >= count && (count > 0 || got == 0), "{filter}: {ended:#?}");
        assert!(ended.err.iter().any(|line| line.contains(said)), "{filter}: {:#?}", ended.err);
    }
    let mut loads = [(); 2].map(|()| Load::of(&example("dstate"), &["3", "30", "ts_both"]));
    loads.iter_mut().for_each(|load| drop(load.says()));
    let pid = loads[0].pid().to_string();
    let watch = |filter: &str| start_watching(&["task-state", "-D", "-p", &pid, "--filter", filter, "--perins"]);
    let (ours, nobodys) = (watch("ts_both"), watch("ts_other"));
    loads[1].tell("");
    loads[1].says();
    loads[0].tell("");
    loads[0].says();
    let ended = ours.finish();
    let own = ended.sum("count", |row| row["tid"] == pid.parse::<u64>().expect("a pid"));
    assert!(own + ended.total("discarded") >= 3, "{ended:#?}");
    let other = loads[1].pid() as u64;
    assert_eq!(ended.sum("count", |row| row["tid"] == other), 0, "the other process is none of ours: {ended:#?}");
    assert_eq!(nobodys.finish().of_type("row").len(), 0);
}

#[test]
fn a_workload_is_followed_to_its_end() {
    need_events!();
    attempts(try_a_workload_is_followed_to_its_end);
}

fn try_a_workload_is_followed_to_its_end() -> Attempted {
    let ended = run(&["task-state", "--perins", "--json", "--", "sh", "-c", "sleep 0.3 & sleep 0.2; wait"]).code(0);
    let rows = ended.of_type("row");
    let sleeps: BTreeSet<u64> =
        rows.iter().filter(|row| row["comm"] == "sleep").map(|row| number(row, "tid")).collect();
    or_again(ended.total("discarded") == 0, &[Again::Discarded(&ended)], || format!("an end of a sleep: {ended:#?}"))?;
    assert_eq!(sleeps.len(), 2, "{rows:#?}");
    let longest = |row: &&Value| is_state(row, "S") && row["comm"] == "sleep";
    let mut slept: Vec<u64> = rows.iter().filter(longest).map(|row| number(row, "max_ns")).collect();
    slept.sort_unstable();
    assert!(slept[0] >= 200 * MS && slept[1] >= 300 * MS, "{rows:#?}");
    assert!(rows.iter().any(|row| row["comm"] == "sh"), "{rows:#?}");
    let own = rows.iter().map(|row| number(row, "tid")).collect::<BTreeSet<_>>();
    assert!(own.len() <= 3, "nobody else's: {rows:#?}");
    assert_eq!(rows.iter().filter_map(|row| row["ongoing"].as_u64()).sum::<u64>(), 0, "all have ended: {rows:#?}");
    assert_within_window(&ended);

    let ended = run(&["task-state", "--", "/nonexistent/command"]).code(1);
    ended.says(&["/nonexistent/command", "No such file"]);
    Ok(())
}

fn rename(tid: u64, name: &str) {
    fs::write(format!("/proc/self/task/{tid}/comm"), name).expect("rename a thread");
}

/// A thread that is renamed out of the filter as it sleeps, by another, and by itself as it runs.
fn renamed(options: &[&str], name: &'static str) -> Attempted {
    let (to_thread, orders) = channel::<bool>();
    let (to_us, answers) = channel::<u64>();
    let thread = thread::spawn(move || {
        to_us.send(own_tid() as u64).expect("the test lives");
        for inside in orders {
            if inside {
                rename(own_tid() as u64, name);
                (0..3).for_each(|_| thread::sleep(Duration::from_millis(20))); // the load
                rename(own_tid() as u64, "ts_outside");
            }
            to_us.send(0).expect("the test lives");
        }
    });
    let tid = answers.recv().expect("a tid");
    let mut prof = start_watching(&[&["task-state", "--filter", name, "--perins", "--than", "50"], options].concat());
    to_thread.send(true).expect("the thread lives"); // in and out as it runs
    answers.recv().expect("an answer");
    until("it sleeps", || state_letter(tid) == Some('S'));
    rename(tid, name); // in as it sleeps: since when is not known
    to_thread.send(false).expect("the thread lives");
    answers.recv().expect("an answer");
    until("it sleeps", || state_letter(tid) == Some('S'));
    rename(tid, "ts_outside"); // out as it sleeps
    to_thread.send(false).expect("the thread lives");
    answers.recv().expect("an answer");
    until("it sleeps", || state_letter(tid) == Some('S'));
    // A wrong wait would be reported after a second, as is that of a thread that began to wait later.
    let (to_witness, witness_waits) = channel::<()>();
    let (to_us, witness) = channel::<u64>();
    let waiting = thread::spawn(move || {
        rename(own_tid() as u64, name);
        to_us.send(own_tid() as u64).expect("the test lives");
        let _ = witness_waits.recv();
    });
    let witness = witness.recv().expect("a tid");
    prof.object(|event| event["type"] == "event" && event["tid"] == witness && still_waiting(event));
    prof.signal(Signal::SIGUSR1);
    prof.object(|object| object["type"] == "interval");
    let ended = prof.interrupt();
    drop(to_thread);
    drop(to_witness);
    thread.join().expect("the thread ends");
    waiting.join().expect("the witness ends");
    let rows: Vec<Value> = ended.of_type("row").into_iter().filter(|row| row["tid"] != witness).collect();
    let last = ended.total("intervals");
    let believed: Vec<&Value> =
        rows.iter().filter(|row| number(row, "interval") >= last - 1 && number(row, "ongoing") > 0).collect();
    assert!(believed.is_empty(), "{options:?}: {believed:#?}");
    let count = ended.sum("count", |row| row["tid"] == tid && is_state(row, "S"));
    or_again(count >= 3, &[Again::Discarded(&ended), Again::IdleHidden(&ended)], || {
        format!("the end of a sleep: {rows:#?}")
    })?;
    assert!(count <= 4, "{options:?}: {rows:#?}");
    let events = ended.of_type("event").into_iter().filter(|event| event["tid"] != witness);
    let longest = events.map(|event| number(&event, "duration_ns")).max();
    assert!(longest < Some(1000 * MS), "{ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn a_task_renamed_out_of_the_filter_is_forgotten() {
    need_events!(alone);
    attempts(|| renamed(&[], "ts_inside"));
    attempts(|| renamed(&["-S"], "ts_inside_s"));
}

#[test]
fn intervals_follow_each_other() {
    need_events!(alone);
    let mut run = start(&["task-state", "-i", "200", "--json"]);
    (0..4).for_each(|_| drop(run.object(|object| object["type"] == "interval")));
    let ended = run.interrupt().code(0);
    let intervals = ended.of_type("interval");
    let span = number(intervals.last().expect("an interval"), "end_ns") - number(&intervals[0], "start_ns");
    assert!((4..=span / (200 * MS) + 1).contains(&(intervals.len() as u64)), "{intervals:#?}");
    assert_eq!(ended.total("intervals"), intervals.len() as u64);
    for (index, interval) in intervals.iter().enumerate() {
        assert_eq!(number(interval, "interval"), index as u64 + 1);
        assert!(number(interval, "start_ns") <= number(interval, "end_ns"), "{interval}");
    }
    for pair in intervals.windows(2) {
        assert_eq!(number(&pair[0], "end_ns"), number(&pair[1], "start_ns"));
    }
    let seen: u64 = intervals.iter().map(|interval| number(interval, "samples")).sum();
    assert_eq!(seen, ended.total("samples"));
}

#[test]
fn a_signal_reports_now() {
    need_events!();
    let mut prof = start_watching(&["task-state", "-D"]); // one interval by then
    prof.signal(Signal::SIGUSR1);
    prof.object(|object| object["type"] == "interval" && object["interval"] == 2);
    let ended = prof.interrupt().code(0);
    assert_eq!(ended.of_type("interval").len(), 3);
}

/// Where each heading begins and ends. Headings are words, the unit after a blank among them.
fn columns(heading: &str) -> Vec<(usize, usize)> {
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for word in heading.split_whitespace() {
        let from = columns.last().map_or(0, |(_, end)| *end);
        let begin = from + heading[from..].find(word).expect("a word of the heading");
        match columns.last_mut() {
            Some((_, end)) if word == "ms" => *end = begin + word.len(),
            _ => columns.push((begin, begin + word.len())),
        }
    }
    columns
}

#[test]
fn tables_are_aligned_and_fit_a_terminal() {
    need_events!();
    let dstate = example("dstate");
    for options in [&["-i", "100"][..], &["--perins"]] {
        let workload = ["--", &dstate, "4", "30", "ts_table"];
        let ended = run(&[&["task-state"], options, &workload].concat()).code(0);
        let is_table = |line: &&String| {
            !line.contains('=')
                && !line.contains("interval")
                && !line.contains("whole run")
                && !line.starts_with(" ~ but for")
                && *line != "nothing seen"
        };
        let mut heading = Vec::new();
        let mut rows = 0;
        // Marks of rows have a column of their own, where there are any.
        let width = if ended.out.iter().any(|line| line.starts_with(" ~ ")) { 83 } else { 80 };
        for line in ended.out.iter().filter(is_table) {
            assert!(line.len() <= width, "{line:?}");
            if line.contains("total ms") {
                heading = columns(line);
                continue;
            }
            rows += 1;
            let bytes = line.as_bytes();
            let at = |index: usize| bytes.get(index).copied().unwrap_or(b' ');
            for &(begin, end) in &heading {
                // The last cells of a row may be empty.
                let cell = line.get(begin..end.min(line.len())).unwrap_or("");
                let name = cell.starts_with(|letter: char| letter.is_ascii_alphabetic());
                // A name begins where its heading does, a number ends there; an empty cell does neither.
                let aligned = if name {
                    begin == 0 || at(begin - 1) == b' '
                } else {
                    at(end) == b' ' && (at(end - 1) != b' ' || cell.trim().is_empty())
                };
                assert!(aligned, "{line:?} at {begin}..{end} of {heading:?}");
            }
        }
        assert!(rows >= 3, "{ended:#?}");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let cases: [(&[&str], &str); 4] =
        [(&["-g"], "--than"), (&["--than", "abc"], "abc"), (&["--than", ""], "--than"), (&["-i", "0"], "-i")];
    for (options, named) in cases {
        let ended = run(&[&["task-state", "--for", "10ms"], options].concat()).code(2);
        assert!(ended.err.iter().any(|line| line.contains(named)), "{options:?}: {ended:#?}");
        assert!(ended.out.is_empty(), "{options:?}");
    }
}
