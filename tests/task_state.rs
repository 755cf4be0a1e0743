//! task-state against loads whose waits, sleeps and CPU times are known.
//!
//! On some machines events raised while a system task is current are not delivered. What perf-prof then cannot pair it
//! counts as discarded, and bounds on counts and sums are wider by so many; no bound on a printed wait is.

mod task_state_support;

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use task_state_support::{
    Ended, Load, PerfProf, attempts, can_trace, example, number, online_cpus, run, skip, state_letter, until,
};

const MS: u64 = 1_000_000;
/// The longest that a share thread does one thing, with what the machine adds.
const PER_DISCARDED_NS: u64 = 12 * MS;

fn ns(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("no {key} in {object}"))
}

fn is_state(row: &Value, state: &str) -> bool {
    row["state"] == state
}

fn still_waiting(event: &Value) -> bool {
    event["still_waiting"] == true
}

fn symbols(event: &Value) -> Vec<&str> {
    event["stack"].as_array().into_iter().flatten().filter_map(|frame| frame["symbol"].as_str()).collect()
}

/// A frame in which a parent awaits its vfork's child.
fn awaits_vfork(event: &Value) -> bool {
    symbols(event).iter().any(|symbol| ["kernel_clone", "_do_fork", "wait_for_vfork_done"].contains(symbol))
}

/// When the run's first interval began.
fn start_of(ended: &Ended) -> u64 {
    ended.of_type("interval").iter().map(|interval| ns(interval, "start_ns")).min().expect("an interval")
}

/// No wait that is printed is longer than the run had lasted by then.
fn assert_within_window(ended: &Ended) {
    let start = start_of(ended);
    for event in ended.events() {
        assert!(ns(&event, "duration_ns") <= ns(&event, "time_ns") - start, "{event}");
    }
    let end = ended.total("time_ns");
    for row in ended.of_type("row") {
        assert!(row["max_ns"].as_u64().is_none_or(|max| max <= end - start), "{row}");
    }
}

#[test]
fn long_waits_are_reported_once_each_with_stack_and_waker() {
    if can_trace() {
        attempts(try_long_waits_are_reported_once_each_with_stack_and_waker);
    }
}

fn try_long_waits_are_reported_once_each_with_stack_and_waker() -> Result<(), String> {
    let mut load = Load::start(&example("dstate"), &["5", "150", "ts_five"]);
    load.line();
    let prof = PerfProf::start_and_watch(&["task-state", "-D", "--than", "100", "--filter", "ts_five", "-g"]);
    load.go();
    let truth = load.line();
    let ended = prof.stop();
    ended.assert_success();
    let events = ended.events();
    assert!(events.len() <= 5, "{ended:#?}");
    if events.len() < 5 {
        return Err(format!("the end of a wait: {ended:#?}"));
    }
    for event in &events {
        assert_eq!((&event["state"], &event["comm"]), (&"D".into(), &"ts_five".into()), "{event}");
        assert_eq!(ns(event, "tid"), number(&truth, "tid"));
        assert!(!still_waiting(event) && event.get("since").is_none_or(Value::is_null), "{event}");
        // The child may have slept for a moment already when the parent began to wait.
        let duration = ns(event, "duration_ns");
        assert!(duration > 125 * MS && duration <= number(&truth, "max_ns"), "{truth} but {event}");
        assert!(awaits_vfork(event), "{event}");
        assert_eq!(event["waker"]["comm"], "ts_five", "{event}");
        assert_ne!(ns(&event["waker"], "tid"), number(&truth, "tid"), "the child wakes the parent: {event}");
    }
    let total: u64 = events.iter().map(|event| ns(event, "duration_ns")).sum();
    assert!(total > 5 * 140 * MS && total <= number(&truth, "total_ns"), "{total}, but {truth}");
    assert!(ended.sum("count", |row| is_state(row, "D")) >= 5, "{ended:#?}");
    assert!(ended.of_type("row").iter().all(|row| is_state(row, "D")), "{ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn waits_below_the_limit_are_counted_only() {
    if !can_trace() {
        return;
    }
    let dstate = example("dstate");
    let args = ["task-state", "-D", "--than", "100", "--filter", "ts_short", "--json", "--"];
    let ended = run(&[&args[..], &[&dstate, "5", "50", "ts_short"]].concat());
    ended.assert_success();
    if number(ended.line_with("max_ns"), "max_ns") > 100 * MS {
        return skip("the machine stood still");
    }
    assert_eq!(ended.events().len(), 0, "{ended:#?}");
    let longest = number(ended.line_with("max_ns"), "max_ns");
    assert!(ended.of_type("row").iter().all(|row| ns(row, "max_ns") <= longest), "{ended:#?}");
    assert!(ended.sum("count", |row| is_state(row, "D")) + ended.total("discarded") >= 5, "{ended:#?}");
}

#[test]
fn a_wait_is_shown_while_it_lasts() {
    if can_trace() {
        attempts(try_a_wait_is_shown_while_it_lasts);
    }
}

fn try_a_wait_is_shown_while_it_lasts() -> Result<(), String> {
    let mut load = Load::start(&example("dstate"), &["1", "2500", "ts_long"]);
    load.line();
    let args = ["task-state", "-D", "--than", "100", "--filter", "ts_long"];
    let mut by_default = PerfProf::start_and_watch(&args);
    let often = PerfProf::start_and_watch(&[&args[..], &["-i", "300"]].concat());
    load.go();
    by_default.wait(|event| event["type"] == "event" && still_waiting(event));
    let truth = load.line();
    let ended_at = Instant::now();
    let end = |event: &Value| event["type"] == "event" && !still_waiting(event);
    if by_default.wait_for(Duration::from_secs(4), end).is_none() {
        return Err("the end of the wait".to_owned());
    }
    assert!(ended_at.elapsed() < Duration::from_secs(2), "the end of a wait is told in time");
    for (ended, fewest) in [(by_default.stop(), 1), (often.stop(), 4)] {
        let events = ended.events();
        let (last, before) = events.split_last().expect("events");
        if still_waiting(last) {
            return Err("the end of the wait".to_owned());
        }
        assert!(before.len() >= fewest && before.iter().all(still_waiting), "{ended:#?}");
        assert!(!still_waiting(last) && ns(last, "duration_ns") <= number(&truth, "max_ns"), "{last}");
        assert!(ns(last, "duration_ns") > 2_450 * MS, "{last}");
        assert_eq!(last["waker"]["comm"], "ts_long");
        let began = ns(last, "time_ns") - ns(last, "duration_ns");
        for event in before {
            assert!(event["waker"].is_null() && event["wchan"].is_string(), "{event}");
            assert_eq!(ns(event, "time_ns") - ns(event, "duration_ns"), began, "{event}");
        }
        assert!(ended.sum("count", |row| is_state(row, "D")) >= 1, "{ended:#?}");
        assert_within_window(&ended);
    }
    Ok(())
}

#[test]
fn a_wait_from_before_the_start_is_shown_at_once() {
    if can_trace() {
        attempts(try_a_wait_from_before_the_start_is_shown_at_once);
    }
}

fn try_a_wait_from_before_the_start_is_shown_at_once() -> Result<(), String> {
    let mut load = Load::start(&example("dstate"), &["1", "2500", "ts_before"]);
    let tid = number(&load.line(), "tid");
    load.go();
    until("the load waits in D", || state_letter(tid) == Some('D'));
    let mut prof = PerfProf::start(&["task-state", "-D", "--than", "100", "--filter", "ts_before", "-g", "--json"]);
    let first = prof.wait(|object| object["type"] == "event");
    let truth = load.line();
    let end = prof.wait_for(Duration::from_secs(4), |event| event["type"] == "event" && !still_waiting(event));
    let ended = prof.stop();
    ended.assert_success();
    assert!(still_waiting(&first) && first["since"] == "before_start", "{first}");
    assert!(first["wchan"].is_string() && awaits_vfork(&first), "{first}");
    if end.is_none() {
        return Err("the end of the wait".to_owned());
    }
    let events = ended.events();
    let last = events.last().expect("events");
    assert!(ns(last, "time_ns") - ns(&first, "time_ns") > 500 * MS, "{first} is late");
    assert_eq!((&last["since"], &last["waker"]["comm"]), (&"before_start".into(), &"ts_before".into()), "{last}");
    assert!(ns(last, "duration_ns") < number(&truth, "max_ns") && awaits_vfork(last), "{last}");
    assert_eq!(events.iter().filter(|event| !still_waiting(event)).count(), 1, "{ended:#?}");
    assert_eq!(ended.sum("count", |_| true), 0, "how long it took is not known: {ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

/// Counts of pingpong's two threads against the kernel's own.
fn assert_pingpong(args: &[&str]) {
    let pingpong = example("pingpong");
    let ended = run(&[&["task-state", "--perins", "--json", "--", &pingpong], args].concat());
    ended.assert_success();
    let truth = ended.line_with("switch_pairs");
    let wall = number(truth, "wall_ns");
    let unknown = ended.total("discarded") + ended.total("lost");
    for side in ["ping", "pong"] {
        let of = |key: &str| number(truth, &format!("{side}_{key}"));
        let tid = of("tid");
        let count =
            |states: &[&str]| ended.sum("count", |row| row["tid"] == tid && states.iter().any(|s| is_state(row, s)));
        let total = |state: &str| ended.sum("total_ns", |row| row["tid"] == tid && is_state(row, state));
        // Before and after the rounds a thread may wait a few times.
        let near = |got: u64, want: u64| got + unknown >= want && got <= want + 40;
        let (blocked, ran) = (count(&["S", "D"]), count(&["R"]));
        assert!(near(blocked, of("nvcsw")), "{side} waited {blocked} times, {unknown} unknown: {truth}");
        assert!(near(ran, of("nvcsw") + of("nivcsw")), "{side} ran {ran} times, {unknown} unknown: {truth}");
        let sum: u64 = ["R", "S", "D", "RD"].map(total).iter().sum();
        assert!(sum <= wall + 50 * MS, "{side}: {sum} ns, but {truth}");
        assert!(sum + unknown * number(truth, "max_round_ns") + 50 * MS >= wall, "{side}: {sum} ns, but {truth}");
    }
    for row in ended.of_type("row") {
        let values = ["min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns", "total_ns"].map(|key| row[key].as_u64());
        let ordered = values.is_sorted() && values[4].is_none_or(|max| max <= wall + 50 * MS);
        assert!(ordered || ns(&row, "count") == 0, "{row}");
    }
    assert_within_window(&ended);
}

#[test]
fn switches_on_two_cpus_are_counted_as_the_kernel_counts_them() {
    if !can_trace() {
        return;
    }
    if online_cpus() < 2 {
        return skip("one CPU");
    }
    assert_pingpong(&["300000", "0", "1"]);
}

#[test]
fn switches_on_one_cpu_are_counted_as_the_kernel_counts_them() {
    if can_trace() {
        assert_pingpong(&["300000"]);
    }
}

/// Time that the hypervisor took from all CPUs since boot.
fn stolen_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let ticks: u64 = text.split_whitespace().nth(8).and_then(|word| word.parse().ok()).unwrap_or(0);
    ticks * 10 * MS
}

#[test]
fn the_time_of_a_thread_splits_without_rest() {
    if !can_trace() {
        return;
    }
    let shares = example("shares");
    let stolen = stolen_ns();
    let ended = run(&["task-state", "--perins", "--json", "--", &shares, "1500", "3"]);
    let stolen = stolen_ns() - stolen + 20 * MS;
    ended.assert_success();
    let truth: Vec<&String> = ended.out.iter().filter(|line| line.starts_with("thread=")).collect();
    assert_eq!(truth.len(), 3);
    let unknown = ended.total("discarded") * PER_DISCARDED_NS;
    for line in truth {
        let tid = number(line, "tid");
        let total = |key: &str, states: &[&str]| {
            ended.sum(key, |row| row["tid"] == tid && states.iter().any(|state| is_state(row, state)))
        };
        let (ran, cpu) = (total("total_ns", &["R"]), number(line, "cpu_ns"));
        // At each switch the scheduler reads its clock some microseconds before the event is raised.
        let slack = (cpu / 50).max(5 * MS) + 5_000 * total("count", &["R"]);
        assert!(ran + slack + unknown >= cpu, "ran {ran} ns, {unknown} unknown: {line}");
        assert!(ran <= cpu + slack + stolen, "ran {ran} ns, {stolen} stolen: {line}"); // what is stolen is no CPU time
        let all = ["R", "S", "D", "RD"];
        let sum = total("total_ns", &all) + total("ongoing_ns", &all);
        let life = number(line, "end_ns") - number(line, "start_ns");
        let slack = life / 100 + 5 * MS; // it lived a little before and after
        assert!(sum + slack + unknown >= life && sum <= life + slack, "{sum} of {life} ns, {unknown} unknown: {line}");
        assert!(total("total_ns", &["S"]) + unknown + 5 * MS >= number(line, "sleep_ns") / 2, "{line}");
    }
    assert_within_window(&ended);
}

/// The names that threads of examples/threads have in the rows.
fn thread_names(ended: &Ended) -> BTreeSet<String> {
    let rows = ended.of_type("row");
    let names = rows.iter().filter_map(|row| row["comm"].as_str()).filter(|comm| comm.starts_with("thread-"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_thousand_threads_are_all_seen() {
    if !can_trace() {
        return;
    }
    let threads = example("threads");
    let ended = run(&["task-state", "-S", "--perins", "--json", "--", &threads, "1000", "1000"]);
    ended.assert_success();
    assert_eq!(thread_names(&ended).len(), 1000);
    let rows = ended.of_type("row");
    let of_threads = rows.iter().filter(|row| row["comm"].as_str().is_some_and(|comm| comm.starts_with("thread-")));
    let missing: u64 = of_threads.map(|row| 5_u64.saturating_sub(ns(row, "count"))).sum();
    let unknown = ended.total("discarded") + ended.total("lost");
    assert!(missing <= unknown, "{missing} sleeps are missing, {unknown} unknown");
}

#[test]
fn many_threads_can_be_attached_to() {
    if !can_trace() {
        return;
    }
    let load = Load::start(&example("threads"), &["801", "4000"]);
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
    let process = PerfProf::start(&["task-state", "-p", &pid, "--perins", "--json", "-v"]);
    let some = PerfProf::start(&["task-state", "-t", &every_second.join(","), "--perins", "--json", "-v"]);
    let process = process.end(); // with its target
    process.assert_success();
    assert_eq!(thread_names(&process).len(), 801);
    let some = some.end();
    some.assert_success();
    let seen: BTreeSet<String> =
        some.of_type("row").iter().filter_map(|row| Some(row["tid"].as_u64()?.to_string())).collect();
    assert_eq!(seen, every_second.into_iter().collect());
    assert!(some.err.iter().any(|line| line.contains("evaluated here")), "{:#?}", some.err);
}

/// The states that a run over `dstate`, which sleeps and waits, has rows of.
fn states_with(name: &str, options: &[&str]) -> (BTreeSet<String>, Ended) {
    let dstate = example("dstate");
    let args = [&["task-state", "--json", "-v"], options, &["--", &dstate, "4", "15", name]].concat();
    let ended = run(&args);
    ended.assert_success();
    let states = ended.of_type("row").iter().filter_map(|row| Some(row["state"].as_str()?.to_owned())).collect();
    (states, ended)
}

#[test]
fn only_the_states_asked_for_have_rows() {
    if !can_trace() {
        return;
    }
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
    if !can_trace() {
        return;
    }
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
    let mut loads = [(); 2].map(|()| Load::start(&example("dstate"), &["3", "30", "ts_both"]));
    loads.iter_mut().for_each(|load| drop(load.line()));
    let pid = loads[0].pid().to_string();
    let watch =
        |filter: &str| PerfProf::start_and_watch(&["task-state", "-D", "-p", &pid, "--filter", filter, "--perins"]);
    let (ours, nobodys) = (watch("ts_both"), watch("ts_other"));
    loads[1].go();
    loads[1].line();
    loads[0].go();
    loads[0].line();
    let ended = ours.end();
    let own = ended.sum("count", |row| row["tid"] == pid.parse::<u64>().expect("a pid"));
    assert!(own + ended.total("discarded") >= 3, "{ended:#?}");
    assert_eq!(ended.sum("count", |_| true), own, "the other process is none of ours: {ended:#?}");
    assert_eq!(nobodys.end().of_type("row").len(), 0);
}

#[test]
fn idle_kernel_threads_do_not_wait_in_d() {
    if !can_trace() {
        return;
    }
    let idle = |tid: u64| state_letter(tid) == Some('I');
    let ended = run(&["task-state", "-D", "--than", "1s", "--for", "2200ms", "--json"]);
    ended.assert_success();
    let wrong: Vec<Value> =
        ended.events().into_iter().filter(|event| still_waiting(event) && idle(ns(event, "tid"))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let ended = run(&["task-state", "--for", "300ms", "--json"]);
    assert!(ended.sum("ongoing", |row| is_state(row, "I")) > 0, "{ended:#?}");
}

#[test]
fn a_workload_is_followed_to_its_end() {
    if can_trace() {
        attempts(try_a_workload_is_followed_to_its_end);
    }
}

fn try_a_workload_is_followed_to_its_end() -> Result<(), String> {
    let ended = run(&["task-state", "--perins", "--json", "--", "sh", "-c", "sleep 0.3 & sleep 0.2; wait"]);
    ended.assert_success();
    let rows = ended.of_type("row");
    let sleeps: BTreeSet<u64> = rows.iter().filter(|row| row["comm"] == "sleep").map(|row| ns(row, "tid")).collect();
    if ended.total("discarded") > 0 {
        return Err("an end of a sleep".to_owned());
    }
    assert_eq!(sleeps.len(), 2, "{rows:#?}");
    let longest = |row: &&Value| is_state(row, "S") && row["comm"] == "sleep";
    let mut slept: Vec<u64> = rows.iter().filter(longest).map(|row| ns(row, "max_ns")).collect();
    slept.sort_unstable();
    assert!(slept[0] >= 200 * MS && slept[1] >= 300 * MS, "{rows:#?}");
    assert!(rows.iter().any(|row| row["comm"] == "sh"), "{rows:#?}");
    let own = rows.iter().map(|row| ns(row, "tid")).collect::<BTreeSet<_>>();
    assert!(own.len() <= 3, "nobody else's: {rows:#?}");
    assert_eq!(rows.iter().filter_map(|row| row["ongoing"].as_u64()).sum::<u64>(), 0, "all have ended: {rows:#?}");
    assert_within_window(&ended);

    let ended = run(&["task-state", "--", "/nonexistent/command"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.err.iter().any(|line| line.contains("/nonexistent/command") && line.contains("No such file")),
        "{ended:?}"
    );
    Ok(())
}

#[test]
fn intervals_follow_each_other() {
    if !can_trace() {
        return;
    }
    let ended = run(&["task-state", "-i", "200", "--for", "1s", "--json"]);
    ended.assert_success();
    let intervals = ended.of_type("interval");
    assert!((4..=6).contains(&intervals.len()), "{intervals:#?}");
    assert_eq!(ended.total("intervals"), intervals.len() as u64);
    for (index, interval) in intervals.iter().enumerate() {
        assert_eq!(ns(interval, "interval"), index as u64 + 1);
        assert!(ns(interval, "start_ns") <= ns(interval, "end_ns"), "{interval}");
    }
    for pair in intervals.windows(2) {
        assert_eq!(ns(&pair[0], "end_ns"), ns(&pair[1], "start_ns"));
    }
    let seen: u64 = intervals.iter().map(|interval| ns(interval, "samples")).sum();
    assert_eq!(seen, ended.total("samples"));
}

#[test]
fn a_signal_reports_now() {
    if !can_trace() {
        return;
    }
    let mut prof = PerfProf::start_and_watch(&["task-state", "-D"]); // one interval by then
    prof.signal(Signal::SIGUSR1);
    prof.wait(|object| object["type"] == "interval" && object["interval"] == 2);
    let ended = prof.stop();
    ended.assert_success();
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
    if !can_trace() {
        return;
    }
    let dstate = example("dstate");
    for options in [&["-i", "100"][..], &["--perins"]] {
        let workload = ["--", &dstate, "4", "30", "ts_table"];
        let ended = run(&[&["task-state"], options, &workload].concat());
        ended.assert_success();
        let is_table = |line: &&String| !line.contains('=') && !line.contains("interval");
        let mut heading = Vec::new();
        let mut rows = 0;
        for line in ended.out.iter().filter(is_table) {
            assert!(line.len() <= 80, "{line:?}");
            if line.contains("total ms") {
                heading = columns(line);
                continue;
            }
            rows += 1;
            let bytes = line.as_bytes();
            let at = |index: usize| bytes.get(index).copied().unwrap_or(b' ');
            for &(begin, end) in &heading {
                let name = line[begin..].starts_with(|letter: char| letter.is_ascii_alphabetic());
                // A name begins where its heading does, a number ends there; an empty cell does neither.
                let aligned = if name {
                    begin == 0 || at(begin - 1) == b' '
                } else {
                    at(end) == b' ' && (at(end - 1) != b' ' || line[begin..end.min(line.len())].trim().is_empty())
                };
                assert!(aligned, "{line:?} at {begin}..{end} of {heading:?}");
            }
        }
        assert!(rows >= 3, "{ended:#?}");
    }
}

#[test]
fn losses_make_no_long_waits() {
    if !can_trace() {
        return;
    }
    let pingpong = example("pingpong");
    for cpus in [&[][..], &["0", "1"]] {
        if cpus.len() > online_cpus() {
            return skip("one CPU");
        }
        let load = [&["task-state", "-m", "1", "--perins", "--json", "--", &pingpong, "200000"], cpus].concat();
        let ended = run(&load);
        ended.assert_success();
        let truth = ended.line_with("switch_pairs");
        assert!(ended.total("lost") > 0 && ended.total("discarded") > 0, "{ended:#?}");
        let longest = number(truth, "max_round_ns") + 30 * MS;
        let tids = [number(truth, "ping_tid"), number(truth, "pong_tid")];
        for row in ended.of_type("row").iter().filter(|row| row["tid"].as_u64().is_some_and(|tid| tids.contains(&tid)))
        {
            let wait = ["S", "RD"].iter().any(|state| is_state(row, state));
            assert!(!wait || row["max_ns"].as_u64().is_none_or(|max| max <= longest), "{truth} but {row}");
        }
        for interval in ended.of_type("interval") {
            let coverage = interval["coverage"].as_f64().expect("coverage");
            assert!((0.0..1.0).contains(&coverage), "{interval}");
        }
        assert_within_window(&ended);
    }
}

#[test]
fn a_stuck_task_is_shown_in_spite_of_losses() {
    if !can_trace() {
        return;
    }
    let prof = PerfProf::start_and_watch(&["task-state", "-m", "1", "--than", "300"]);
    let noise = Load::start(&example("pingpong"), &["100000000"]);
    let mut load = Load::start(&example("dstate"), &["1", "5000", "ts_lossy"]);
    let tid = number(&load.line(), "tid");
    load.go();
    let truth = load.line();
    drop(noise);
    let ended = prof.stop();
    ended.assert_success();
    if ended.total("lost") == 0 {
        return skip("nothing was lost");
    }
    let events: Vec<Value> = ended.events().into_iter().filter(|event| event["tid"] == tid).collect();
    assert!(events.iter().any(|event| still_waiting(event) && is_state(event, "D")), "{:#?}", ended.out);
    for event in &events {
        assert!(ns(event, "duration_ns") <= number(&truth, "max_ns"), "{truth} but {event}");
        assert!(is_state(event, "D") || ns(event, "duration_ns") < 500 * MS, "{event}");
    }
    assert_within_window(&ended);
}

/// Threads that live now.
fn living() -> u64 {
    let tasks = |pid: fs::DirEntry| fs::read_dir(pid.path().join("task")).map_or(0, Iterator::count);
    fs::read_dir("/proc").expect("/proc").filter_map(Result::ok).map(tasks).sum::<usize>() as u64
}

#[test]
fn tasks_whose_end_was_lost_are_not_believed_to_go_on() {
    if !can_trace() {
        return;
    }
    let mut prof = PerfProf::start_and_watch(&["task-state", "-m", "1"]);
    let noise = Load::start(&example("pingpong"), &["100000000"]);
    for _ in 0..200 {
        std::process::Command::new("true").status().expect("true is a command");
    }
    drop(noise);
    let mut seen = Vec::new();
    let start = Instant::now();
    loop {
        prof.signal(Signal::SIGUSR1);
        let interval = prof.wait(|object| object["type"] == "interval")["interval"].clone();
        let rows = prof.rows_of(&interval);
        let believed: u64 = rows.iter().map(|row| ns(row, "ongoing")).sum();
        seen.push((believed, living()));
        if believed < living() + 20 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(15), "believed and living tasks: {seen:?}");
        thread::sleep(Duration::from_millis(200)); // it looks once per second
    }
    assert!(prof.stop().total("lost") > 0);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let cases: [(&[&str], &str); 4] =
        [(&["-g"], "--than"), (&["--than", "abc"], "abc"), (&["--than", ""], "--than"), (&["-i", "0"], "-i")];
    for (options, named) in cases {
        let ended = run(&[&["task-state", "--for", "10ms"], options].concat());
        assert_eq!(ended.status.code(), Some(2), "{options:?}: {ended:#?}");
        assert!(ended.err.iter().any(|line| line.contains(named)), "{options:?}: {ended:#?}");
        assert!(ended.out.is_empty(), "{options:?}");
    }
}

#[test]
fn a_stopped_task_is_in_state_t() {
    if can_trace() {
        attempts(try_a_stopped_task_is_in_state_t);
    }
}

fn try_a_stopped_task_is_in_state_t() -> Result<(), String> {
    let load = Load::start("sleep", &["30"]);
    let tid = u64::from(load.pid());
    let pid = Pid::from_raw(load.pid() as i32);
    until("the load sleeps", || state_letter(tid) == Some('S'));
    let prof = PerfProf::start_and_watch(&["task-state", "-p", &pid.to_string()]);
    let longest = Instant::now();
    kill(pid, Signal::SIGSTOP).expect("the load lives");
    until("the load is stopped", || state_letter(tid) == Some('T'));
    let shortest = Instant::now();
    thread::sleep(Duration::from_millis(200)); // the time that is measured
    let shortest = shortest.elapsed();
    kill(pid, Signal::SIGCONT).expect("the load lives");
    until("the load sleeps again", || state_letter(tid) == Some('S'));
    let longest = longest.elapsed();
    drop(load);
    let ended = prof.end(); // with its target
    ended.assert_success();
    if ended.total("discarded") > 0 {
        return Err("the end of the stop".to_owned());
    }
    let rows = ended.of_type("row");
    let stops: Vec<&Value> = rows.iter().filter(|row| is_state(row, "T") && ns(row, "count") > 0).collect();
    assert!(stops.len() == 1 && ns(stops[0], "count") == 1, "{rows:#?}");
    let time = Duration::from_nanos(ns(stops[0], "total_ns"));
    assert!(shortest <= time && time <= longest, "{shortest:?} <= {time:?} <= {longest:?}");
    assert_within_window(&ended);
    Ok(())
}

/// The tid of the calling thread.
fn own_tid() -> u64 {
    nix::unistd::gettid().as_raw() as u64
}

fn rename(tid: u64, name: &str) {
    fs::write(format!("/proc/self/task/{tid}/comm"), name).expect("rename a thread");
}

/// A thread that is renamed out of the filter as it sleeps, by another, and by itself as it runs.
fn renamed(options: &[&str], name: &'static str) -> Result<(), String> {
    let (to_thread, orders) = channel::<bool>();
    let (to_us, answers) = channel::<u64>();
    let thread = thread::spawn(move || {
        to_us.send(own_tid()).expect("the test lives");
        for inside in orders {
            if inside {
                rename(own_tid(), name);
                (0..3).for_each(|_| thread::sleep(Duration::from_millis(20)));
                rename(own_tid(), "ts_outside");
            }
            to_us.send(0).expect("the test lives");
        }
    });
    let tid = answers.recv().expect("a tid");
    let mut prof =
        PerfProf::start_and_watch(&[&["task-state", "--filter", name, "--perins", "--than", "50"], options].concat());
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
    thread::sleep(Duration::from_millis(1500)); // what is believed to wait is reported after a second
    prof.signal(Signal::SIGUSR1);
    prof.wait(|object| object["type"] == "interval");
    let ended = prof.stop();
    drop(to_thread);
    thread.join().expect("the thread ends");
    let rows = ended.of_type("row");
    let last = ended.total("intervals");
    let believed: Vec<&Value> =
        rows.iter().filter(|row| ns(row, "interval") >= last - 1 && ns(row, "ongoing") > 0).collect();
    assert!(believed.is_empty(), "{options:?}: {believed:#?}");
    let count = ended.sum("count", |row| row["tid"] == tid && is_state(row, "S"));
    if count < 3 {
        return Err(format!("the end of a sleep: {rows:#?}"));
    }
    assert!(count <= 4, "{options:?}: {rows:#?}");
    let longest = ended.events().iter().map(|event| ns(event, "duration_ns")).max();
    assert!(longest < Some(1000 * MS), "{ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn a_task_renamed_out_of_the_filter_is_forgotten() {
    if can_trace() {
        attempts(|| renamed(&[], "ts_inside"));
        attempts(|| renamed(&["-S"], "ts_inside_s"));
    }
}
