//! `profile`: shares of processes against the accounting of the kernel's scheduler, for loads where samples alone would
//! be wrong.

#[macro_use]
mod common;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{
    Again, Attempted, Done, Load, attempts, example, hurry, load_number, number, or_again, own_tid, run, start,
};
use nix::sys::signal::Signal;
use perf_prof::sys::monotonic_ns;
use serde_json::Value;

/// A program of examples/ that shares the first CPU with the others of a test.
fn on_first_cpu(program: &str, args: &[&str]) -> Load {
    let cpu = common::online_cpus()[0].to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, &example(program)]).args(args);
    Load::start(command)
}

/// Rows of processes, as (interval, pid, row).
fn tasks(done: &Done) -> Vec<(u64, i64, Value)> {
    let rows = done.of_type("row").into_iter().filter(|row| row["pct_by"].is_string());
    rows.filter_map(|row| Some((number(&row, "interval"), row["pid"].as_i64()?, row))).collect()
}

/// Reads the run time of threads from the scheduler, again and again during a test.
struct Truth {
    ended: AtomicBool,
    pids: Vec<i32>,
}

/// When, and ns of each thread.
type Look = (u64, Vec<u64>);

impl Truth {
    fn watch(&self) -> Vec<Look> {
        let ran = |pid: &i32| -> u64 {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        hurry(own_tid());
        let mut looks = Vec::new();
        while !self.ended.load(Ordering::Relaxed) {
            looks.push((monotonic_ns(), self.pids.iter().map(ran).collect()));
            thread::sleep(Duration::from_millis(5)); // a series in time
        }
        looks
    }
}

/// Per cent of one CPU between two times, rounded to the nearest readings.
fn truth(looks: &[Look], which: usize, start_ns: u64, end_ns: u64) -> f64 {
    let at = |ns: u64| looks.iter().min_by_key(|(time, _)| time.abs_diff(ns)).expect("it was looked at");
    let ((start_ns, before), (end_ns, after)) = (at(start_ns), at(end_ns));
    100.0 * (after[which] - before[which]) as f64 / (end_ns - start_ns) as f64
}

/// A server that is woken 15,000 times a second, while the sampling timer expires 1000 times: always inside of its
/// work, or always outside.
#[test]
fn a_server_in_step_with_the_samples_has_its_share() {
    need_events!(alone);
    let mut loads = [on_first_cpu("alarms", &["60000", "15000", "3000"]), on_first_cpu("parts", &["60000"])];
    let truth_of = Truth { ended: AtomicBool::new(false), pids: loads.iter().map(Load::pid).collect() };
    assert_eq!(load_number(&loads[0].says(), "pid"), truth_of.pids[0] as u64);
    let (done, looks) = thread::scope(|scope| {
        let looks = scope.spawn(|| truth_of.watch());
        let done = run(&["profile", "--json", "-F", "1000", "-i", "1000", "--for", "4"]).code(0);
        truth_of.ended.store(true, Ordering::Relaxed);
        (done, looks.join().expect("the looks"))
    });
    let tasks = tasks(&done);
    for interval in done.of_type("interval") {
        let (index, span) =
            (number(&interval, "interval"), [number(&interval, "start_ns"), number(&interval, "end_ns")]);
        if span[1] - span[0] < 500_000_000 {
            continue;
        }
        for (which, pid) in truth_of.pids.iter().enumerate() {
            let of_it = tasks.iter().filter(|(at, of, _)| *at == index && of == &i64::from(*pid));
            let shown: Vec<&Value> = of_it.map(|(.., row)| row).collect();
            let want = truth(&looks, which, span[0], span[1]);
            let &[row] = shown.as_slice() else {
                panic!("{want} % of {pid} in interval {index}: {shown:?}");
            };
            assert_eq!(row["pct_by"], "account", "{row}");
            let pct = row["pct"].as_f64().unwrap();
            assert!((pct - want).abs() <= 2.0, "{want} % of {pid} in interval {index}, shown are {pct}: {row}");
        }
    }
}

/// The functions of a process add up to its share, even if another process is sampled too often.
#[test]
fn functions_and_flame_graphs_agree_with_the_tasks() {
    need_events!(alone);
    attempts(try_functions_and_flame_graphs);
}

fn try_functions_and_flame_graphs() -> Attempted {
    let mut loads = [on_first_cpu("alarms", &["60000", "15000", "3000"]), on_first_cpu("parts", &["60000"])];
    assert_eq!(load_number(&loads[0].says(), "pid"), loads[0].pid() as u64);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.folded");
    let graph = path.to_str().unwrap();
    let done = run(&["profile", "--json", "-F", "1000", "--for", "2", "--flame-graph", graph]).code(0);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(stack, ns)| (stack, ns.parse::<u64>().unwrap()))
        .collect();
    let interval = &done.of_type("interval")[0];
    let span = (number(interval, "end_ns") - number(interval, "start_ns")) as f64;
    for load in &loads {
        let rows = tasks(&done);
        let (.., row) = rows.iter().find(|(_, pid, _)| *pid == i64::from(load.pid())).expect("it has a row");
        let name = format!("{};", row["comm"].as_str().unwrap());
        let drawn: u64 = lines.iter().filter(|(stack, _)| stack.starts_with(&name)).map(|(_, ns)| ns).sum();
        let drawn = 100.0 * drawn as f64 / span;
        assert!((drawn - row["pct"].as_f64().unwrap()).abs() < 2.0, "{drawn} % are drawn of {row}");
    }
    let all: u64 = lines.iter().map(|(_, ns)| ns).sum();
    let of_parts = |stack: &str| stack.rsplit(';').next().is_some_and(|last| last.starts_with("parts::"));
    let parts: u64 = lines.iter().filter(|(stack, _)| of_parts(stack)).map(|(_, ns)| ns).sum();
    or_again(parts > 0, &[Again::NamesGivenUp(&done)], || format!("names of its own beside those of others: {text}"))?;
    let functions = done.rows_and_lists().into_iter();
    let functions = functions.filter(|row| row["symbol"].as_str().is_some_and(|name| name.starts_with("parts::")));
    let listed: f64 = functions.map(|row| row["pct"].as_f64().unwrap()).sum();
    let drawn = 100.0 * parts as f64 / all as f64;
    assert!((listed - drawn).abs() < 1.0, "{listed} % are listed, {drawn} % are drawn");
    Ok(())
}

/// A reader that is stopped while it opens its events starts with an interval that is already over.
#[test]
fn a_reader_that_was_stopped_shows_no_more_than_can_be() {
    need_events!(alone);
    let load = on_first_cpu("parts", &["60000"]);
    let pid = load.pid().to_string();
    for target in [&["-p", &pid][..], &[]] {
        let prog = start(&[&["profile", "--json", "-F", "997", "-i", "100", "--for", "1"], target].concat());
        let fds = format!("/proc/{}/fd", prog.pid());
        let has_timer =
            |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|link| link.ends_with("anon_inode:[timerfd]"));
        common::until("it has its timer", || {
            fs::read_dir(&fds).is_ok_and(|fds| fds.flatten().any(|fd| has_timer(&fd)))
        });
        for _ in 0..3 {
            prog.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(250)); // it has no CPU for so long
            prog.signal(Signal::SIGCONT);
            thread::sleep(Duration::from_millis(20));
        }
        let done = prog.finish().code(0);
        let rows = tasks(&done);
        let of_load: Vec<f64> = rows
            .iter()
            .filter(|(_, of, _)| *of == i64::from(load.pid()))
            .map(|(.., row)| row["pct"].as_f64().unwrap())
            .collect();
        // Steps of a hundredth.
        assert!(!of_load.is_empty() && of_load.iter().all(|pct| *pct < 100.02), "{of_load:?}");
        let most = 100.0 * common::online_cpus().len() as f64 + 0.02;
        assert!(rows.iter().all(|(.., row)| row["pct"].is_null() || row["pct"].as_f64().unwrap() < most), "{rows:?}");
    }
}
