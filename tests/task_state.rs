//! task-state against loads whose waits, sleeps and CPU times are known: how long, how often, in which state.
//!
//! On some machines events raised while a system task is current are not delivered. What perf-prof then cannot pair it
//! counts as discarded, and bounds on counts and sums are wider by so many; no bound on a printed wait is.
//!
//! Two tests sleep, where that is what is measured: while a task is stopped, and in a service that works and sleeps.

#[macro_use]
mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use common::waits::{MS, assert_within_window, is_state, still_waiting};
use common::{
    Again, Attempted, CpuWatch, Done, GUARD, Load, attempts, example, load_number, number, online_cpus, or_again,
    own_tid, run, start, start_watching, state_letter, stolen_ns, until,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use perf_prof::sys::monotonic_ns;
use serde_json::Value;

/// Longest time in one state of a thread of `shares`, with a margin for the machine.
const PER_DISCARDED_NS: u64 = 12 * MS;

fn symbols(event: &Value) -> Vec<&str> {
    event["stack"].as_array().into_iter().flatten().filter_map(|frame| frame["symbol"].as_str()).collect()
}

/// A frame in which a parent awaits its vfork's child.
fn awaits_vfork(event: &Value) -> bool {
    symbols(event).iter().any(|symbol| ["kernel_clone", "_do_fork", "wait_for_vfork_done"].contains(symbol))
}

#[test]
fn long_waits_are_reported_once_each_with_stack_and_waker() {
    need_events!(alone);
    attempts(try_long_waits_are_reported_once_each_with_stack_and_waker);
}

fn try_long_waits_are_reported_once_each_with_stack_and_waker() -> Attempted {
    let mut load = Load::of(&example("dstate"), &["5", "150", "ts_five"]);
    load.says();
    let prof = start_watching(&["task-state", "-D", "--than", "100", "--filter", "ts_five", "-g"]);
    load.tell("");
    let truth = load.says();
    let ended = prof.interrupt().code(0);
    // On a busy machine a wait may become so long that it is shown while it goes on.
    let (ongoing, events): (Vec<Value>, Vec<Value>) = ended.of_type("event").into_iter().partition(still_waiting);
    let is_long = |event| (200 * MS..=load_number(&truth, "max_ns")).contains(&number(event, "duration_ns"));
    assert!(ongoing.iter().all(is_long), "{truth} but {ended:#?}");
    assert!(events.len() <= 5, "{ended:#?}");
    or_again(events.len() == 5, &[Again::Discarded(&ended), Again::IdleHidden(&ended)], || {
        format!("the end of a wait: {ended:#?}")
    })?;
    for event in &events {
        assert_eq!((&event["state"], &event["comm"]), (&"D".into(), &"ts_five".into()), "{event}");
        assert_eq!(number(event, "tid"), load_number(&truth, "tid"));
        assert!(!still_waiting(event) && event.get("since").is_none_or(Value::is_null), "{event}");
        // The child may have slept for a moment already when the parent began to wait.
        let duration = number(event, "duration_ns");
        assert!(duration > 125 * MS && duration <= load_number(&truth, "max_ns"), "{truth} but {event}");
        assert!(awaits_vfork(event), "{event}");
        assert_eq!(event["waker"]["comm"], "ts_five", "{event}");
        assert_ne!(number(&event["waker"], "tid"), load_number(&truth, "tid"), "the child wakes the parent: {event}");
    }
    let total: u64 = events.iter().map(|event| number(event, "duration_ns")).sum();
    assert!(total > 5 * 140 * MS && total <= load_number(&truth, "total_ns"), "{total}, but {truth}");
    assert!(ended.sum("count", |row| is_state(row, "D")) >= 5, "{ended:#?}");
    assert!(ended.of_type("row").iter().all(|row| is_state(row, "D")), "{ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn waits_below_the_limit_are_counted_only() {
    need_events!(alone);
    attempts(try_waits_below_the_limit_are_counted_only);
}

fn try_waits_below_the_limit_are_counted_only() -> Attempted {
    let dstate = example("dstate");
    let args = ["task-state", "-D", "--than", "100", "--filter", "ts_short", "--json", "--"];
    let ended = run(&[&args[..], &[&dstate, "5", "50", "ts_short"]].concat()).code(0);
    let truth = ended.line_with("max_ns");
    or_again(ended.of_type("event").is_empty(), &[Again::LoadAbove(truth, "max_ns", 100 * MS)], || {
        format!("{ended:#?}")
    })?;
    let longest = load_number(truth, "max_ns");
    assert!(ended.of_type("row").iter().all(|row| number(row, "max_ns") <= longest), "{ended:#?}");
    assert!(ended.sum("count", |row| is_state(row, "D")) + ended.total("discarded") >= 5, "{ended:#?}");
    Ok(())
}

#[test]
fn a_wait_is_shown_while_it_lasts() {
    need_events!(alone);
    attempts(try_a_wait_is_shown_while_it_lasts);
}

fn try_a_wait_is_shown_while_it_lasts() -> Attempted {
    let steal = CpuWatch::of_account();
    let mut load = Load::of(&example("dstate"), &["1", "2500", "ts_long"]);
    load.says();
    let args = ["task-state", "-D", "--than", "100", "--filter", "ts_long"];
    let mut by_default = start_watching(&args);
    let often = start_watching(&[&args[..], &["-i", "300"]].concat());
    load.tell("");
    by_default.object(|event| event["type"] == "event" && still_waiting(event));
    let truth = load.says();
    let ended_at = Instant::now();
    let end = |event: &Value| event["type"] == "event" && !still_waiting(event);
    let has_ended = by_default.object_within(Duration::from_secs(4), end).is_some();
    let is_in_time = ended_at.elapsed() < Duration::from_secs(2);
    for ended in [by_default.interrupt(), often.interrupt()] {
        let events = ended.of_type("event");
        let (last, before) = events.split_last().expect("events");
        let is_hidden = [Again::Discarded(&ended), Again::IdleHidden(&ended)];
        or_again(has_ended && !still_waiting(last), &is_hidden, || format!("the end of the wait: {ended:#?}"))?;
        let is_late = [Again::CpuStolen(&steal, Duration::from_millis(500)), Again::IdleHidden(&ended)];
        or_again(is_in_time, &is_late, || format!("the end of a wait in time: {ended:#?}"))?;
        assert!((1..=3).contains(&before.len()) && before.iter().all(still_waiting), "{ended:#?}");
        assert!(!still_waiting(last) && number(last, "duration_ns") <= load_number(&truth, "max_ns"), "{last}");
        assert!(number(last, "duration_ns") > 2_450 * MS, "{last}");
        assert_eq!(last["waker"]["comm"], "ts_long");
        let began = number(last, "time_ns") - number(last, "duration_ns");
        for event in before {
            assert!(event["waker"].is_null() && event["wchan"].is_string(), "{event}");
            assert_eq!(number(event, "time_ns") - number(event, "duration_ns"), began, "{event}");
        }
        assert!(ended.sum("count", |row| is_state(row, "D")) >= 1, "{ended:#?}");
        // A wait counts once, however many intervals it spans. Short waits in D in the kernel, for a lock, may be
        // added.
        let (lasted, told) = (number(last, "duration_ns"), ended.sum("total_ns", |row| is_state(row, "D")));
        assert!((lasted..lasted + 50 * MS).contains(&told), "{told} of {lasted} ns: {ended:#?}");
        assert_within_window(&ended);
    }
    Ok(())
}

#[test]
fn a_wait_takes_up_the_intervals_in_which_it_goes_on() {
    need_events!();
    for options in [&["-p"][..], &["--perins", "-p"], &["-D", "-p"]] {
        check_wait_takes_up_intervals(options);
    }
}

fn check_wait_takes_up_intervals(options: &[&str]) {
    let mut load = Load::of(&example("dstate"), &["1", "0", "ts_goes_on"]);
    let tid = load_number(&load.says(), "tid");
    load.tell("");
    until("the load waits in D", || state_letter(tid) == Some('D'));
    let args = ["task-state", "-i", "100", "--for", "500ms", "--json"];
    let ended = run(&[&args[..], options, &[&tid.to_string()]].concat()).code(0);
    assert_eq!(state_letter(tid), Some('D'));
    let intervals = ended.of_type("interval");
    assert!(intervals.len() >= 2, "{ended:#?}");
    for interval in &intervals[1..] {
        let rows = ended.of_type("row").into_iter().filter(|row| row["interval"] == interval["interval"]);
        let rows: Vec<Value> = rows.filter(|row| is_state(row, "D")).collect();
        let [row] = &rows[..] else { panic!("one row: {ended:#?}") };
        let spans = number(interval, "end_ns") - number(interval, "start_ns");
        assert_eq!((number(row, "count"), number(row, "ongoing"), number(row, "total_ns")), (0, 1, spans), "{row}");
        assert!(number(row, "max_ns") == number(row, "ongoing_ns") && number(row, "max_ns") > spans, "{row}");
    }
}

#[test]
fn a_sleep_from_before_the_start_to_the_end_is_shown_and_drawn() {
    need_events!();
    let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
    let tid = u64::from(sleeper.id());
    // The waits while its program is loaded are others.
    let sleeps = || fs::read_to_string(format!("/proc/{tid}/wchan")).is_ok_and(|place| place.contains("nanosleep"));
    until("it sleeps", sleeps);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("waits.folded");
    let drawing = ["--flame-graph", path.to_str().expect("UTF-8"), "-p", &tid.to_string()];
    let ended = run(&[&["task-state", "--perins", "--for", "300ms", "--json"], &drawing[..]].concat()).code(0);
    let mut prof = start_watching(&["task-state", "-p", &tid.to_string()]);
    prof.signal(Signal::SIGUSR1);
    let first = prof.object(|object| object["type"] == "interval");
    sleeper.kill().and_then(|()| sleeper.wait()).expect("it ends");
    let woken = prof.interrupt().code(0);
    let slept = |ended: &Done, last: bool| {
        ended.sum("total_ns", |row| is_state(row, "S") && (!last || row["interval"] != first["interval"]))
    };
    assert!(slept(&ended, false) >= 200 * MS, "{ended:#?}");
    // Also for a sleep that ends, whose length is unknown.
    assert!(slept(&woken, true) > 0, "{woken:#?}");
    assert_eq!(woken.sum("count", |row| is_state(row, "S")), 0, "{woken:#?}");
    let drawn = fs::read_to_string(&path).expect("a file");
    let width = drawn.lines().next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(drawn.starts_with("sleep") && width.is_some_and(|us| us >= 200_000), "{drawn:?}");
}

#[test]
fn a_wait_from_before_the_start_is_shown_at_once() {
    need_events!(alone);
    attempts(try_a_wait_from_before_the_start_is_shown_at_once);
}

fn try_a_wait_from_before_the_start_is_shown_at_once() -> Attempted {
    let mut load = Load::of(&example("dstate"), &["1", "0", "ts_before"]);
    let tid = load_number(&load.says(), "tid");
    load.tell("");
    until("the load waits in D", || state_letter(tid) == Some('D'));
    let mut prof = start(&["task-state", "-D", "--than", "100", "--filter", "ts_before", "-g", "--json"]);
    let [first, _] = [(); 2].map(|()| prof.object(|object| object["type"] == "event")); // a second apart
    load.tell("");
    let truth = load.says();
    let end = prof.object_within(Duration::from_secs(4), |event| event["type"] == "event" && !still_waiting(event));
    let ended = prof.interrupt().code(0);
    assert!(still_waiting(&first) && first["since"] == "before_start", "{first}");
    assert!(first["wchan"].is_string() && awaits_vfork(&first), "{first}");
    or_again(end.is_some(), &[Again::Discarded(&ended), Again::IdleHidden(&ended)], || {
        format!("the end of the wait: {ended:#?}")
    })?;
    let events = ended.of_type("event");
    let last = events.last().expect("events");
    let seen = number(last, "time_ns") - number(&first, "time_ns");
    assert!(seen > 500 * MS, "{ended:#?}");
    assert_eq!((&last["since"], &last["waker"]["comm"]), (&"before_start".into(), &"ts_before".into()), "{last}");
    assert!(number(last, "duration_ns") < load_number(&truth, "max_ns") && awaits_vfork(last), "{last}");
    assert_eq!(events.iter().filter(|event| !still_waiting(event)).count(), 1, "{ended:#?}");
    // Its length is unknown, so it is not counted; the time in which it was seen is in the totals.
    let told = ended.sum("total_ns", |_| true);
    assert!((seen..load_number(&truth, "max_ns")).contains(&told), "{told} ns, seen for {seen}: {truth}, {ended:#?}");
    assert_within_window(&ended);
    Ok(())
}

/// Counts of pingpong's two threads against the kernel's own.
fn assert_pingpong(args: &[&str]) {
    let pingpong = example("pingpong");
    let ended = run(&[&["task-state", "--perins", "--json", "--", &pingpong], args].concat()).code(0);
    let truth = ended.line_with("switch_pairs");
    let wall = load_number(truth, "wall_ns");
    let unknown = ended.total("discarded") + ended.total("lost");
    for side in ["ping", "pong"] {
        let of = |key: &str| load_number(truth, &format!("{side}_{key}"));
        let tid = of("tid");
        let count =
            |states: &[&str]| ended.sum("count", |row| row["tid"] == tid && states.iter().any(|s| is_state(row, s)));
        let total = |state: &str| ended.sum("total_ns", |row| row["tid"] == tid && is_state(row, state));
        // A thread may wait a few times before and after the rounds.
        let near = |got: u64, want: u64| got + unknown >= want && got <= want + 40;
        let (blocked, ran) = (count(&["S", "D"]), count(&["R"]));
        assert!(near(blocked, of("nvcsw")), "{side} waited {blocked} times, {unknown} unknown: {truth}");
        assert!(near(ran, of("nvcsw") + of("nivcsw")), "{side} ran {ran} times, {unknown} unknown: {truth}");
        let sum: u64 = ["R", "S", "D", "RD"].map(total).iter().sum();
        assert!(sum <= wall + 50 * MS, "{side}: {sum} ns, but {truth}");
        assert!(sum + unknown * load_number(truth, "max_round_ns") + 50 * MS >= wall, "{side}: {sum} ns, but {truth}");
    }
    for row in ended.of_type("row") {
        let values = ["min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns", "total_ns"].map(|key| row[key].as_u64());
        let ordered = values.is_sorted() && values[4].is_none_or(|max| max <= wall + 50 * MS);
        assert!(ordered || number(&row, "count") == 0, "{row}");
    }
    assert_within_window(&ended);
}

#[test]
fn switches_on_two_cpus_are_counted_as_the_kernel_counts_them() {
    need_events!(alone);
    if online_cpus().len() < 2 {
        skip!("needs two CPUs");
    }
    assert_pingpong(&["300000", "0", "1"]);
}

#[test]
fn switches_on_one_cpu_are_counted_as_the_kernel_counts_them() {
    need_events!(alone);
    assert_pingpong(&["300000"]);
}

#[test]
fn the_time_of_a_thread_splits_without_rest() {
    need_events!(alone);
    attempts(time_splits);
}

/// Stolen time is not CPU time, and the kernel may account it at another time.
fn time_splits() -> Attempted {
    let shares = example("shares");
    let (stolen, watch) = (stolen_ns(), CpuWatch::by_clock());
    let ended = run(&["task-state", "--perins", "--json", "--", &shares, "1500", "3"]).code(0);
    let stolen = stolen_ns() - stolen + 20 * MS;
    let truth: Vec<&String> = ended.out.iter().filter(|line| line.starts_with("thread=")).collect();
    assert_eq!(truth.len(), 3);
    let unknown = ended.total("discarded") * PER_DISCARDED_NS;
    for line in truth {
        let tid = load_number(line, "tid");
        let total = |key: &str, states: &[&str]| {
            ended.sum(key, |row| row["tid"] == tid && states.iter().any(|state| is_state(row, state)))
        };
        let (ran, cpu) = (total("total_ns", &["R"]), load_number(line, "cpu_ns"));
        // At each switch the scheduler reads its clock some microseconds before the event is raised.
        let slack = (cpu / 50).max(5 * MS) + 5_000 * total("count", &["R"]);
        assert!(ran + slack + unknown >= cpu, "ran {ran} ns, {unknown} unknown: {line}");
        let excess = Duration::from_nanos(ran.saturating_sub(cpu + slack) / 2);
        or_again(ran <= cpu + slack + stolen, &[Again::CpuStolen(&watch, excess)], || {
            format!("ran {ran} ns, {stolen} stolen: {line}")
        })?;
        let all = ["R", "S", "D", "RD"];
        let sum = total("total_ns", &all);
        let life = load_number(line, "end_ns") - load_number(line, "start_ns");
        let slack = life / 100 + 5 * MS; // it lived a little before and after
        // The thread may have waited for its first CPU.
        let longest = ended.of_type("row").into_iter().filter(|row| row["tid"] == tid && is_state(row, "RD"));
        let birth = longest.map(|row| number(&row, "max_ns")).max().unwrap_or(0);
        assert!(sum + slack + unknown >= life, "{sum} of {life} ns, {unknown} unknown: {line}");
        assert!(sum <= life + slack + birth, "{sum} of {life} ns, {birth} for a turn: {line}");
        assert!(total("total_ns", &["S"]) + unknown + 5 * MS >= load_number(line, "sleep_ns") / 2, "{line}");
    }
    assert_within_window(&ended);
    Ok(())
}

/// When which thread was seen to be idle.
fn idle_threads(ended: &AtomicBool) -> Vec<(u64, u64)> {
    let mut looks = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let pids = fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        looks.extend(pids.filter(|pid| state_letter(*pid) == Some('I')).map(|pid| (monotonic_ns(), pid)));
        thread::sleep(Duration::from_millis(50)); // a series in time
    }
    looks
}

#[test]
fn idle_kernel_threads_do_not_wait_in_d() {
    need_events!();
    let ended = AtomicBool::new(false);
    let (done, looks) = thread::scope(|scope| {
        let looks = scope.spawn(|| idle_threads(&ended));
        let done = run(&["task-state", "-D", "--than", "1s", "--for", "2200ms", "--json"]);
        ended.store(true, Ordering::Relaxed);
        (done.code(0), looks.join().expect("the looks"))
    });
    // A worker may write to a slow disk for so long, but then it is not idle meanwhile.
    for event in done.of_type("event") {
        let (tid, until_ns) = (number(&event, "tid"), number(&event, "time_ns"));
        let wait = until_ns - number(&event, "duration_ns")..until_ns;
        assert!(!looks.iter().any(|look| wait.contains(&look.0) && look.1 == tid), "it was idle: {event}");
    }
    let ended = run(&["task-state", "--for", "300ms", "--json"]);
    assert!(ended.sum("ongoing", |row| is_state(row, "I")) > 0, "{ended:#?}");
}

#[test]
fn losses_make_no_long_waits() {
    need_events!(alone);
    check_losses_make_no_long_waits(&[]);
    if online_cpus().len() < 2 {
        skip!("needs two CPUs");
    }
    check_losses_make_no_long_waits(&["0", "1"]);
}

fn check_losses_make_no_long_waits(cpus: &[&str]) {
    let pingpong = example("pingpong");
    let load = [&["task-state", "-m", "1", "--perins", "--json", "--", &pingpong, "100000"], cpus].concat();
    let ended = run(&load).code(0);
    let truth = ended.line_with("switch_pairs");
    // Most of the events.
    assert!(ended.total("lost") > 0 && ended.total("discarded") > 0, "{}", ended.end());
    let longest = load_number(truth, "max_round_ns") + 30 * MS;
    let tids = [load_number(truth, "ping_tid"), load_number(truth, "pong_tid")];
    for row in ended.of_type("row").iter().filter(|row| row["tid"].as_u64().is_some_and(|tid| tids.contains(&tid))) {
        let wait = ["S", "RD"].iter().any(|state| is_state(row, state));
        assert!(!wait || row["max_ns"].as_u64().is_none_or(|max| max <= longest), "{truth} but {row}");
    }
    for interval in ended.of_type("interval") {
        let coverage = interval["coverage"].as_f64().expect("coverage");
        assert!((0.0..1.0).contains(&coverage), "{interval}");
    }
    assert_within_window(&ended);
}

#[test]
fn a_stuck_task_is_shown_in_spite_of_losses() {
    need_events!(alone);
    let prof = start_watching(&["task-state", "-m", "1", "--than", "300"]);
    let mut load = Load::of(&example("dstate"), &["1", "5000", "ts_lossy"]);
    let tid = load_number(&load.says(), "tid");
    load.tell("");
    // Records from the start of the wait are lost, perhaps more later.
    prof.stopped(|| {
        let mut pingpong = Load::of(&example("pingpong"), &["20000"]);
        pingpong.says();
        until("the load waits in D", || state_letter(tid) == Some('D'));
    });
    let noise = Load::of(&example("pingpong"), &["100000000"]);
    let truth = load.says();
    drop(noise);
    let ended = prof.interrupt().code(0);
    assert!(ended.total("lost") > 0, "{ended:#?}");
    let events: Vec<Value> = ended.of_type("event").into_iter().filter(|event| event["tid"] == tid).collect();
    assert!(events.iter().any(|event| still_waiting(event) && is_state(event, "D")), "{:#?}", ended.out);
    for event in &events {
        assert!(number(event, "duration_ns") <= load_number(&truth, "max_ns"), "{truth} but {event}");
        assert!(is_state(event, "D") || number(event, "duration_ns") < 500 * MS, "{event}");
    }
    assert_within_window(&ended);
}

/// Number of live threads.
fn living() -> u64 {
    let tasks = |pid: fs::DirEntry| fs::read_dir(pid.path().join("task")).map_or(0, Iterator::count);
    fs::read_dir("/proc").expect("/proc").filter_map(Result::ok).map(tasks).sum::<usize>() as u64
}

#[test]
fn tasks_whose_end_was_lost_are_not_believed_to_go_on() {
    need_events!();
    let mut prof = start_watching(&["task-state", "-m", "1", "-i", "200"]);
    let mut noise = Load::shell();
    prof.stopped(|| {
        noise.tell(&format!("{} 20000; for _ in $(seq 200); do /bin/true; done; echo done", example("pingpong")));
        while noise.says() != "done" {}
    });
    noise.stop();
    let mut seen = Vec::new();
    let start = Instant::now();
    loop {
        let interval = prof.object(|object| object["type"] == "interval")["interval"].clone();
        let rows = prof.rows_of(&interval);
        let believed: u64 = rows.iter().map(|row| number(row, "ongoing")).sum();
        seen.push((believed, living()));
        if believed < living() + 20 {
            break;
        }
        // /proc is read once per second.
        assert!(start.elapsed() < GUARD, "believed and living tasks: {seen:?}");
    }
    assert!(prof.interrupt().total("lost") > 0);
}

#[test]
fn a_stopped_task_is_in_state_t() {
    need_events!(alone);
    attempts(try_a_stopped_task_is_in_state_t);
}

fn try_a_stopped_task_is_in_state_t() -> Attempted {
    let load = Load::of("sleep", &["30"]);
    let tid = load.pid() as u64;
    let pid = Pid::from_raw(load.pid());
    until("the load sleeps", || state_letter(tid) == Some('S'));
    let prof = start_watching(&["task-state", "-p", &pid.to_string()]);
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
    let ended = prof.finish().code(0); // with its target
    or_again(ended.total("discarded") == 0, &[Again::Discarded(&ended)], || {
        format!("the end of the stop: {ended:#?}")
    })?;
    let rows = ended.of_type("row");
    let stops: Vec<&Value> = rows.iter().filter(|row| is_state(row, "T") && number(row, "count") > 0).collect();
    assert!(stops.len() == 1 && number(stops[0], "count") == 1, "{rows:#?}");
    let time = Duration::from_nanos(number(stops[0], "total_ns"));
    assert!(shortest <= time && time <= longest, "{shortest:?} <= {time:?} <= {longest:?}");
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn events_of_other_tasks_do_not_count() {
    need_events!();
    let idle = Load::of("sleep", &["1000"]);
    until("it sleeps", || state_letter(idle.pid() as u64) == Some('S'));
    let _busy = Load::of(&example("flood"), &["1000000000", "100"]);
    let pid = idle.pid().to_string();
    // Only for the latter does the kernel filter out all other tasks.
    for target in ["-p", "-t"] {
        let mut states = start(&["task-state", "--json", "--than", "1s", target, &pid, "-N", "1"]);
        // Time with many events of other tasks.
        (0..2).for_each(|_| drop(states.object(|object| object["still_waiting"] == true)));
        let ended = states.interrupt().code(0);
        assert_eq!(ended.total("samples"), 0, "{ended:#?}");
    }
}

/// Rounds of a service on a CPU of its own: 2 ms of work, 3 ms of sleep.
const WORK_NS: u64 = 2 * MS;
const SLEEP: Duration = Duration::from_millis(3);
const ROUNDS: u64 = 100;

/// CPU time that the calling thread has used, as the scheduler accounts for it.
fn own_run_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|ran| ran.parse().ok()).expect("a number")
}

/// The service gets the CPU from the idle task each time, which some virtual machines hide from events.
#[test]
fn run_time_is_right_on_every_cpu() {
    need_events!(alone);
    online_cpus().into_iter().for_each(check_run_time_is_right);
}

fn check_run_time_is_right(cpu: u32) {
    let (go, told_to_go) = channel();
    let (born, tid) = channel();
    let service = thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(cpu as usize).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)).expect("a CPU of its own");
        born.send(own_tid()).expect("the test waits");
        told_to_go.recv().expect("the test lives");
        let before = own_run_time();
        for _ in 0..ROUNDS {
            let until = own_run_time() + WORK_NS;
            while own_run_time() < until {}
            thread::sleep(SLEEP); // the load
        }
        own_run_time() - before
    });
    let tid = tid.recv().expect("a thread").to_string();
    let all = start_watching(&["task-state"]);
    let prof = start_watching(&["task-state", "-t", &tid, "--perins"]);
    let named = start_watching(&["task-state", "-S", "-t", &tid]);
    go.send(()).expect("the service waits");
    let truth = service.join().expect("it works");
    let [ended, named, all] = [prof, named, all].map(|prof| prof.interrupt().code(0));
    let what = |ended: &Done| format!("CPU {cpu}: {truth} ns in {ROUNDS} rounds, but {ended:#?}");
    assert_eq!(ended.total("lost"), 0, "{}", what(&ended));
    let ran = ended.sum("total_ns", |row| is_state(row, "R"));
    assert!(ran.abs_diff(truth) <= truth / 20, "{}", what(&ended));
    for ended in [&ended, &named] {
        let (slept, sleeps) =
            (ended.sum("total_ns", |row| is_state(row, "S")), ended.sum("count", |row| is_state(row, "S")));
        let least = ROUNDS * SLEEP.as_nanos() as u64 / 100 * 95;
        assert!(sleeps >= ROUNDS - 1 && slept >= least, "{slept} ns asleep in {sleeps} sleeps, {}", what(ended));
    }
    let ran = all.sum("total_ns", |row| is_state(row, "R"));
    assert!(ran >= truth / 100 * 95, "{ran} ns of all, {}", what(&all));
}
