//! oncpu: time on CPUs, against the scheduler's own accounting and loads that are known.

#[macro_use]
mod common;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Again, Attempted, CpuWatch, Done, Load, attempts, becomes_real_time, copy_program, number, online_cpus, or_again,
    own_tid, pin, run, run_over, start_watching,
};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use serde_json::Value;

const MS: u64 = 1_000_000;

/// Time that the calling thread has had a CPU, and how often it got one, by the scheduler.
fn ran() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().expect("a number"));
    let ns = numbers.next().expect("the time");
    (ns, numbers.nth(1).expect("the count"))
}

fn work(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Rows of tasks.
fn is_task(row: &Value) -> bool {
    row["table"] == "tasks"
}

fn all_seen(done: &Done) -> Attempted {
    or_again(done.total("lost") == 0, &[Again::RecordsLost(done)], || format!("{:#?}", done.err))
}

#[test]
fn times_are_those_of_the_scheduler() {
    need_events!();
    attempts(|| {
        let steals = CpuWatch::by_clock();
        let pid = std::process::id().to_string();
        let prog = start_watching(&["oncpu", "-p", &pid, "-m", "1024"]);
        // One that works in one go, one that sleeps between, and one that gives its CPU away.
        let loads: [fn(); 3] = [
            || work(Duration::from_millis(300)),
            || {
                (0..60).for_each(|_| {
                    work(Duration::from_millis(2));
                    thread::sleep(Duration::from_millis(1));
                });
            },
            || {
                let end = Instant::now() + Duration::from_millis(150);
                while Instant::now() < end {
                    thread::yield_now();
                }
            },
        ];
        let threads = loads.map(|load| {
            thread::spawn(move || {
                let before = ran();
                load();
                let after = ran();
                (own_tid(), after.0 - before.0, after.1 - before.1)
            })
        });
        let truths = threads.map(|thread| thread.join().expect("it works"));
        let done = prog.interrupt().code(0);
        all_seen(&done)?;
        for (tid, ns, runs) in truths {
            let rows = |row: &Value| is_task(row) && row["tid"] == tid;
            let (told, told_runs) = (done.sum("cpu_ns", rows), done.sum("runs", rows));
            // Outside of the two readings the thread is born, and ends. A stolen CPU counts here only.
            let is_right = told + MS >= ns && told <= ns + ns / 100 + 2 * MS;
            or_again(is_right, &[Again::CpuStolen(&steals, Duration::from_millis(1))], || {
                format!("{told} ns, but the scheduler says {ns}: {done:#?}")
            })?;
            assert!(told_runs >= runs && told_runs <= runs + 3, "{told_runs} runs of {runs}: {done:#?}");
        }
        Ok(())
    });
}

#[test]
fn a_task_that_is_never_switched_has_its_time() {
    need_events!(alone);
    let cpu = online_cpus()[0];
    attempts(|| {
        let over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                assert!(pin(cpu));
                let is_permitted = becomes_real_time(0, 50);
                tell.send((own_tid(), is_permitted)).expect("it waits");
                // Longer, and the kernel throttles it.
                let end = Instant::now() + Duration::from_millis(900);
                while !over.load(Ordering::Relaxed) && Instant::now() < end {
                    std::hint::spin_loop();
                }
            });
            let (tid, is_permitted) = told.recv().expect("it says");
            if !is_permitted {
                over.store(true, Ordering::Relaxed);
                return Ok(());
            }
            let (pid, cpu_list) = (std::process::id().to_string(), cpu.to_string());
            let prio = "1-98";
            let options = ["oncpu", "-p", &pid, "-C", &cpu_list, "--prio", prio, "--per-cpu", "--json", "--for", "0.2"];
            let done = run(&options).code(0);
            over.store(true, Ordering::Relaxed);
            let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["tid"] == tid).collect();
            let [row] = &rows[..] else { panic!("one row: {done:#?}") };
            let interval = &done.of_type("interval")[0];
            let span_ns = number(interval, "end_ns") - number(interval, "start_ns");
            let is_whole = number(row, "cpu_ns") + span_ns / 20 >= span_ns && row["runs"] == 0;
            assert!(row["cpu"] == cpu && number(row, "max_ns") <= span_ns, "{row:#?}");
            // It had ended before, on a slow machine.
            or_again(is_whole, &[Again::RecordsLost(&done)], || format!("{span_ns} ns: {done:#?}"))
        })
    });
}

#[test]
fn a_cpu_is_busy_idle_or_unseen() {
    need_events!();
    attempts(each_cpu_is_accounted_for);
}

fn each_cpu_is_accounted_for() -> Attempted {
    let done = run(&["oncpu", "--json", "-i", "200", "--for", "0.6", "--by", "process"]).code(0);
    let intervals: Vec<u64> = done
        .of_type("interval")
        .iter()
        .map(|interval| number(interval, "end_ns") - number(interval, "start_ns"))
        .collect();
    let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "cpus").collect();
    assert!(rows.len() >= intervals.len(), "{done:#?}");
    for row in rows {
        let span_ns = intervals[number(&row, "interval") as usize - 1];
        let sum = ["busy_ns", "idle_ns", "unseen_ns"].map(|key| number(&row, key)).iter().sum::<u64>();
        assert!(sum.abs_diff(span_ns) <= 6 * MS, "{sum} of {span_ns}: {row:#?}");
    }
    let cpus = online_cpus().len();
    let in_first = |row: &Value| row["table"] == "cpus" && row["interval"] == 1;
    assert_eq!(done.of_type("row").into_iter().filter(in_first).count(), cpus, "a row for each CPU: {done:#?}");
    let seen = done.sum("busy_ns", |row| row["table"] == "cpus") + done.sum("idle_ns", |row| row["table"] == "cpus");
    let all = intervals.iter().sum::<u64>() * cpus as u64;
    let reasons = [Again::RecordsLost(&done), Again::Discarded(&done), Again::IdleHidden(&done)];
    // Who has a CPU at the start is known at the first tick of the clock.
    or_again(seen + all / 20 >= all, &reasons, || format!("{seen} of {all} ns: {done:#?}"))?;
    let tasks = done.sum("cpu_ns", is_task);
    let busy = done.sum("busy_ns", |row| row["table"] == "cpus");
    assert!(tasks > 0 && tasks <= busy + MS, "{tasks} of {busy}: {done:#?}");
    assert!(done.of_type("row").iter().filter(|row| is_task(row)).all(|row| row["tid"].is_null()), "{done:#?}");
    Ok(())
}

#[test]
fn each_cpu_has_a_row_and_a_name_its_sum() {
    need_events!();
    let cpus = online_cpus();
    let [one, .., other] = cpus[..] else {
        return; // one CPU
    };
    let pid = std::process::id().to_string();
    let prog = start_watching(&["oncpu", "-p", &pid, "--per-cpu", "--only-comm"]);
    let meet = Barrier::new(2);
    thread::scope(|scope| {
        for (name, shares) in [("walks", [60_u64, 20]), ("walks", [10, 0])] {
            let meet = &meet;
            thread::Builder::new()
                .name(name.to_owned())
                .spawn_scoped(scope, move || {
                    meet.wait();
                    for (cpu, ms) in [one, other].into_iter().zip(shares) {
                        assert!(pin(cpu));
                        let until = ran().0 + ms * MS;
                        while ran().0 < until {
                            std::hint::spin_loop();
                        }
                    }
                })
                .expect("a thread");
        }
    });
    let done = prog.interrupt().code(0);
    let on = |cpu: u32| done.sum("cpu_ns", |row| is_task(row) && row["comm"] == "walks" && row["cpu"] == cpu);
    let [first, last] = [one, other].map(on);
    assert!((70 * MS..85 * MS).contains(&first) && (19 * MS..30 * MS).contains(&last), "{first} {last}: {done:#?}");
}

/// The switch to a task that will have the name is no event of `--filter`: it has its name from its exec on.
#[test]
fn a_task_counts_from_when_it_gets_its_name() {
    need_events!();
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("ocburn");
    copy_program("/bin/sh", &program);
    attempts(|| {
        let prog = start_watching(&["oncpu", "--filter", "ocburn", "--by", "process", "-m", "1024"]);
        let before = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage");
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let status = Command::new(&program).args(["-c", count]).status().expect("it runs");
        assert!(status.success());
        let after = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage");
        let done = prog.interrupt().code(0);
        all_seen(&done)?;
        let us = |usage: &Usage| {
            let times = [usage.user_time(), usage.system_time()];
            times.iter().map(|time| time.tv_sec() * 1_000_000 + time.tv_usec()).sum::<i64>()
        };
        let truth_ns = (us(&after) - us(&before)).cast_unsigned() * 1000;
        let told_ns = done.sum("cpu_ns", is_task);
        assert!(told_ns + 5 * MS + truth_ns / 20 >= truth_ns, "{told_ns} of {truth_ns} ns: {done:#?}");
        assert!(done.of_type("row").iter().any(|row| is_task(row) && row["comm"] == "ocburn"), "{done:#?}");
        Ok(())
    });
}

/// Records of names and of hidden switches come from all CPUs, and those of others are no news.
/// Twenty short-lived processes of a script are one row with the time of all; with `-p` each has its own.
#[test]
fn short_lived_processes_of_a_name_are_one_row() {
    need_events!();
    const SCRIPT: &str = "for i in {1..20}; do /bin/true; done; echo";
    attempts(|| {
        for by in ["thread", "process"] {
            let done = run_over(&["oncpu", "--json", "--by", by, "-m", "1024"], &["bash", "-c", SCRIPT]);
            let rows: Vec<Value> = done.of_type("row").into_iter().filter(is_task).collect();
            let all_known = number(&done.end(), "lost_side") == 0 && done.total("lost") == 0;
            or_again(all_known, &[Again::RecordsLost(&done)], || format!("{rows:#?}"))?;
            let of = |comm: &str| rows.iter().filter(|row| row["comm"] == comm).collect::<Vec<&Value>>();
            let [of_true] = of("true")[..] else { panic!("one row: {rows:#?}") };
            assert_eq!((&of_true["parent"], number(of_true, "children")), (&"bash".into(), 20), "{rows:#?}");
            assert!(of_true["pid"].is_null() && of_true["tid"].is_null(), "{of_true}");
            assert!(number(of_true, "runs") >= 20 && number(of_true, "cpu_ns") > 0, "{of_true}");
            // The script, and what it was in each of its children before they executed the program.
            let mut children: Vec<Option<u64>> = of("bash").iter().map(|row| row["children"].as_u64()).collect();
            children.sort_unstable();
            assert_eq!(children, [None, Some(20)], "{rows:#?}");
        }
        let mut shell = Load::shell();
        let prog = start_watching(&["oncpu", "-p", &shell.pid().to_string(), "-m", "1024"]);
        shell.tell("/bin/true; /bin/true; echo");
        shell.says();
        let done = prog.interrupt().code(0);
        let rows: Vec<Value> = done.of_type("row").into_iter().filter(is_task).collect();
        let of_true: Vec<&Value> = rows.iter().filter(|row| row["comm"] == "true").collect();
        all_seen(&done)?;
        assert!(of_true.len() == 2 && of_true.iter().all(|row| row["pid"].is_u64()), "{rows:#?}");
        Ok(())
    });
}

#[test]
fn one_cpu_is_watched_alone() {
    need_events!(alone);
    let cpus = online_cpus();
    attempts(|| {
        let done = run(&["oncpu", "--json", "-C", &cpus[0].to_string(), "--for", "0.5"]).code(0);
        let rows: Vec<Value> = done.of_type("row").into_iter().filter(|row| row["table"] == "cpus").collect();
        assert!(rows.len() == 1 && rows[0]["cpu"] == cpus[0], "{done:#?}");
        // A machine that hides idle tasks hides some others too, a few times on each CPU before it is watched.
        let hidden = if done.err().contains(" idle task") { 20 } else { 0 };
        assert!(done.total("discarded") <= hidden, "{done:#?}");
        all_seen(&done)
    });
}
