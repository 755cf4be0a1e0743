//! What perf-prof weighs: told once, with the event that weighs most, and with options that do make it lighter.

#[macro_use]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use common::{Done, Load, number, online_cpus, pin, run};

/// Two threads that yield one CPU to each other, until this is dropped.
struct Storm {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Storm {
    fn on(cpu: u32) -> Storm {
        let ends = Arc::new(AtomicBool::new(false));
        let yields = |ends: Arc<AtomicBool>| {
            thread::spawn(move || {
                assert!(pin(cpu));
                while !ends.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            })
        };
        let threads = (0..2).map(|_| yields(ends.clone())).collect();
        Storm { ends, threads }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a thread that yields"));
    }
}

/// Bytes per second that a run has read. The SWITCH records of the first moments, which test whether the idle task is hidden,
/// are part of that.
fn bytes_per_s(args: &[&str]) -> f64 {
    let done = run(&[args, &["--json", "--for", "1.5"]].concat()).code(0);
    done.end()["self"]["bytes_per_s"].as_f64().unwrap_or_else(|| panic!("{done:?}"))
}

fn lines_with<'a>(done: &'a Done, words: &str) -> Vec<&'a String> {
    done.err.iter().filter(|line| line.contains(words)).collect()
}

#[test]
fn a_storm_is_told_once_with_its_event_and_a_cure() {
    need_events!(alone);
    let storm = Storm::on(online_cpus()[0]);
    let done = run(&["task-state", "--json", "-i", "500", "--for", "3.5"]).code(0);
    drop(storm);
    let [line] = lines_with(&done, "of its events are")[..] else { panic!("one line: {done:#?}") };
    assert!(line.ends_with("% of its events are sched:sched_switch; cure: --filter COMM or -t TID"), "{line}");
    let weight = &done.end()["self"]["weight"];
    assert_eq!((&weight["event"], &weight["views"][0]["view"]), (&"sched:sched_switch".into(), &"task-state".into()));
    assert_eq!(weight["views"][0]["narrowed_by"], "--filter COMM, -t TID");
    let number = |key: &str| weight[key].as_f64().unwrap_or_else(|| panic!("no {key} in {weight}"));
    assert!(number("event_pct") > 90.0 && number("events_per_s") > 10_000.0, "{weight}");
    match weight["recording_cpu"].as_u64() {
        Some(cpu) => {
            assert_eq!(cpu, u64::from(online_cpus()[0]), "{weight}");
            let taken = number("events_per_s") * number("record_ns") / 1e7;
            assert!(number("recording_pct") > 5.0 && number("recording_pct") <= taken.min(100.0) + 0.01, "{weight}");
            assert_eq!(lines_with(&done, "recording slows CPU").len(), 1, "{done:#?}");
        }
        None => assert!(number("cpu_pct") > 5.0, "{weight}"),
    }
}

#[test]
fn of_several_views_each_is_told_what_to_do() {
    need_events!(alone);
    let storm = Storm::on(online_cpus()[0]);
    let done = run(&["run", "--json", "--for", "2.5", "task-state", "profile", "rundelay", "syscalls -N 1"]).code(0);
    drop(storm);
    let [line] = lines_with(&done, "of its events are")[..] else { panic!("one line: {done:#?}") };
    assert!(line.starts_with("run: perf-prof itself takes "), "{line}");
    assert!(line.contains("% of its events are sched:sched_switch for task-state, rundelay; cure: "), "{line}");
    assert!(line.ends_with("--filter COMM or -t TID for task-state, leave out rundelay"), "{line}");
    assert!(done.end()["self"]["weight"]["cpu_pct"].as_f64() > Some(5.0), "{done:#?}");
}

/// Each option that is told makes the kernel write fewer records, by far.
#[test]
fn the_cures_make_it_lighter() {
    need_events!(alone);
    let &[one, other, ..] = online_cpus().as_slice() else { skip!("needs two CPUs") };
    let sleeper = Load::of("sleep", &["600"]);
    let (other, pid) = (other.to_string(), sleeper.pid().to_string());
    let (cpus, process, thread, name) = (["-C", &other], ["-p", &pid], ["-t", &pid], ["--filter", "nobody"]);
    let switches = ["top", "-e", "sched:sched_switch"];
    let cases: [(&[&str], &[[&str; 2]]); 4] = [
        (&["task-state"], &[name, thread]),
        (&["oncpu"], &[cpus, name]),
        (&["syscalls"], &[process, cpus]),
        (&switches, &[process, cpus]),
    ];
    let _storm = Storm::on(one);
    for (profiler, cures) in cases {
        let wide = bytes_per_s(profiler);
        for cure in cures {
            let narrow = bytes_per_s(&[profiler, cure].concat());
            println!("{profiler:?}: {wide:.0} bytes/s, {narrow:.0} with {cure:?}");
            assert!(narrow < wide / 2.0, "{profiler:?} {cure:?}: {narrow} of {wide} bytes/s");
        }
    }
}

#[test]
fn a_light_run_is_not_told() {
    need_events!(alone);
    let done = run(&["trace", "-e", "sched:sched_process_exec", "--json", "--for", "2.2"]).code(0);
    assert!(lines_with(&done, "perf-prof itself").is_empty(), "{done:#?}");
    assert!(done.end()["self"]["weight"].is_null() && number(&done.end()["self"], "cpu_ns") > 0);
}
