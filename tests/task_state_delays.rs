//! task-state: waits for a CPU, against the scheduler's own accounting.

#[macro_use]
mod common;

use std::fs;

use common::waits::{MS, assert_within_window, is_state};
use common::{Again, Attempted, Done, attempts, example, load_number, number, online_cpus, or_again, run};
use serde_json::Value;

const NAMES: [&str; 4] = ["hog-a", "hog-b", "yields", "serves"];

/// examples/queue under task-state with `options`: the run and the line of the load.
fn queue(options: &[&str], cpu: u32) -> (Done, String) {
    let (program, cpu) = (example("queue"), cpu.to_string());
    let ended = run(&[&["task-state", "--json"], options, &["--", &program, "700", &cpu]].concat()).code(0);
    let truth = ended.line_with("hog-a_tid").to_owned();
    (ended, truth)
}

/// From the line of the load: tid and run delay of a thread.
fn told(truth: &str, name: &str) -> (u64, u64) {
    (load_number(truth, &format!("{name}_tid")), load_number(truth, &format!("{name}_delay_ns")))
}

#[track_caller]
fn check(what: &str, sum: u64, truth: u64, ended: &Done) {
    // A thread that has read its run delay still waits for a CPU before it ends.
    let is_right = sum.abs_diff(truth) <= truth / 25 + 8 * MS;
    assert!(is_right, "{what}: {sum} ns, but the scheduler says {truth}: {ended:#?}");
}

#[test]
fn run_delay_is_what_the_scheduler_says() {
    need_events!(alone);
    for cpu in online_cpus() {
        attempts(|| try_run_delay_is_right(cpu));
    }
}

fn try_run_delay_is_right(cpu: u32) -> Attempted {
    let (ended, truth) = queue(&["-R", "--perins"], cpu);
    assert_eq!(ended.total("lost"), 0, "{ended:#?}");
    assert!(ended.of_type("row").iter().all(|row| is_state(row, "RD")), "{ended:#?}");
    for name in NAMES {
        let (tid, delay_ns) = told(&truth, name);
        check(name, ended.sum("total_ns", |row| row["tid"] == tid), delay_ns, &ended);
    }
    let (tid, _) = told(&truth, "yields");
    let yields = ended.sum("count", |row| row["tid"] == tid);
    // On a busy machine it has its turn less often.
    or_again(yields >= 50, &[Again::LoadBelow(&truth, "yields_nivcsw", 60)], || {
        format!("{yields} yields: {truth}, {ended:#?}")
    })?;
    assert_within_window(&ended);
    Ok(())
}

#[test]
fn each_run_delay_has_its_line() {
    need_events!(alone);
    attempts(try_each_run_delay_has_its_line);
}

fn try_each_run_delay_has_its_line() -> Attempted {
    let cpu = online_cpus()[0];
    // With stacks, switches come from two events.
    let (ended, truth) = queue(&["-R", "--than", "10us", "-g", "--filter", "hog-?,serves,yields", "-v"], cpu);
    assert_eq!(ended.total("lost"), 0, "{ended:#?}");
    let filters: Vec<&String> =
        ended.err.iter().filter(|line| line.contains("filter of sched:sched_switch: ")).collect();
    assert!(filters.len() == 2 && filters[1].contains("!("), "{filters:#?}");
    let asks = ended.err.iter().any(|line| line.contains("sched_waking"));
    assert!(asks, "{:#?}", ended.err);
    let events: Vec<Value> =
        ended.of_type("event").into_iter().filter(|event| event["still_waiting"] == false).collect();
    for name in NAMES {
        let (tid, delay_ns) = told(&truth, name);
        let of_thread: Vec<&Value> = events.iter().filter(|event| event["tid"] == tid).collect();
        let (woken, preempted): (Vec<&Value>, Vec<&Value>) =
            of_thread.iter().partition(|event| event["preempted"] == false);
        check(name, of_thread.iter().map(|event| number(event, "duration_ns")).sum(), delay_ns, &ended);
        assert!(preempted.iter().all(|event| event.get("waker").is_none()), "{preempted:#?}");
        let has_stack = |event: &&Value| event["stack"].as_array().is_some_and(|frames| !frames.is_empty());
        assert!(preempted.iter().all(has_stack), "{preempted:#?}");
        assert!(!woken.iter().any(has_stack), "{woken:#?}");
        if name == "serves" {
            let by_asks = woken.iter().filter(|event| event["waker"]["comm"] == "asks").count();
            let few = [Again::LoadBelow(&truth, "serves_nvcsw", 10)];
            or_again(by_asks >= 5 && by_asks * 10 >= woken.len() * 9, &few, || {
                format!("{by_asks} of {} waits woken by the other thread: {woken:#?}", woken.len())
            })?;
        } else {
            let few = format!("{name}_nivcsw");
            or_again(preempted.len() >= woken.len(), &[Again::LoadBelow(&truth, &few, 10)], || {
                format!("{name} was woken {} times: {woken:#?}", woken.len())
            })?;
        }
    }
    Ok(())
}

#[test]
fn run_delay_goes_with_other_states() {
    need_events!();
    let dstate = example("dstate");
    let cases: [(&[&str], &[&str]); 3] =
        [(&["-R"], &["RD"]), (&["-R", "-D"], &["D", "RD"]), (&["-R", "-S", "-D"], &["D", "RD", "S"])];
    for (options, want) in cases {
        let ended =
            run(&[&["task-state", "--json"], options, &["--", &dstate, "4", "15", "ts_delay"]].concat()).code(0);
        let mut states: Vec<String> =
            ended.of_type("row").iter().filter_map(|row| Some(row["state"].as_str()?.to_owned())).collect();
        states.sort();
        assert_eq!(states, want, "{options:?}");
        let waits = ended.sum("count", |row| is_state(row, "D"));
        assert!(waits + ended.total("discarded") >= 4 || !want.contains(&"D"), "{options:?}: {ended:#?}");
    }
}

#[test]
fn run_delay_has_its_flame_graph() {
    need_events!(alone);
    let path = std::env::temp_dir().join(format!("perf-prof-delays-{}.folded", std::process::id()));
    let (ended, truth) = queue(&["-R", "--flame-graph", path.to_str().expect("ASCII")], online_cpus()[0]);
    let folded = fs::read_to_string(&path).expect("it was written");
    let _ = fs::remove_file(&path);
    let (_, delay_ns) = told(&truth, "hog-a");
    let of_hog = folded.lines().filter(|line| line.starts_with("hog-a;"));
    let us: u64 = of_hog.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(ended.total("lost"), 0, "{ended:#?}");
    assert!((us * 1000).abs_diff(delay_ns) < delay_ns / 10 + 8 * MS, "{us} µs of {delay_ns} ns: {folded}");
}
