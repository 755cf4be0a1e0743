//! sched-migrate: migrations against the kernel's own count.

#[macro_use]
mod common;

use std::fs;
use std::thread;

use common::{Again, attempts, number, online_cpus, or_again, own_tid, run, start_watching};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;

/// Goes to `cpu`.
fn pin(cpu: u32) {
    let mut set = CpuSet::new();
    set.set(cpu as usize).expect("a CPU");
    sched_setaffinity(Pid::from_raw(0), &set).expect("it is online");
}

/// How often the calling thread went to another CPU, by the kernel. None: it does not tell.
fn migrations() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/sched").ok()?;
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

/// Rows of a table.
fn of<'a>(table: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |row| row["table"] == table
}

#[test]
fn migrations_are_those_that_the_kernel_counts() {
    need_events!();
    let cpus = online_cpus();
    let [one, .., other] = cpus[..] else { return }; // one CPU
    attempts(|| {
        let pid = std::process::id().to_string();
        let prog = start_watching(&["sched-migrate", "-p", &pid, "--detail", "-m", "1024"]);
        let walk = thread::spawn(move || {
            pin(one);
            let before = migrations();
            for _ in 0..100 {
                pin(other);
                pin(one);
            }
            (own_tid(), before.zip(migrations()))
        });
        let (tid, counts) = walk.join().expect("it walks");
        let done = prog.interrupt().code(0);
        or_again(done.total("lost") == 0, &[Again::RecordsLost(&done)], || format!("{:#?}", done.err))?;
        let truth = counts.map_or(200, |(before, after)| after - before);
        let of_thread = |row: &Value| of("tasks")(row) && row["tid"] == tid;
        let (told, waits) = (done.sum("migrations", of_thread), done.sum("waits", of_thread));
        // Those before the first reading: to the first CPU, and when it was born.
        assert!((truth..=truth + 3).contains(&told), "{told} migrations of {truth}: {done:#?}");
        assert!(waits <= told, "{waits} waits after {told} migrations: {done:#?}");
        or_again(waits + 3 >= told, &[Again::Discarded(&done), Again::IdleHidden(&done)], || {
            format!("{waits} waits after {told} migrations: {done:#?}")
        })?;
        let by_distance = done.sum("migrations", of("distances"));
        assert_eq!(by_distance, done.sum("migrations", of("tasks")), "{done:#?}");
        let within = done.sum("within_llc", of_thread);
        let lines: Vec<Value> = done.of_type("event").into_iter().filter(|event| event["tid"] == tid).collect();
        assert_eq!(within + lines.len() as u64, told, "a line for each that leaves the cache: {done:#?}");
        Ok(())
    });
}

#[test]
fn a_task_that_stays_waits_without_a_migration() {
    need_events!();
    let cpu = online_cpus()[0].to_string();
    let yields = "for i in $(seq 20); do sleep 0.001; done";
    let done = run(&["sched-migrate", "--json", "--", "taskset", "-c", &cpu, "sh", "-c", yields]).code(0);
    let stayed = |row: &Value| of("distances")(row) && row["shared"] == "stayed";
    assert!(done.sum("count", stayed) >= 20 && done.sum("migrations", stayed) == 0, "{done:#?}");
}

#[test]
fn stacks_are_those_of_lines() {
    let done = run(&["sched-migrate", "-g", "--for", "1"]).code(2);
    assert!(done.err().contains("add --detail"), "{done:#?}");
    need_events!();
    // A task that goes from CPU to CPU, as a picture.
    let dir = tempfile::tempdir().expect("a folder");
    let graph = dir.path().join("moves.folded");
    let graph = graph.to_str().expect("a path");
    let walk = "for i in 0 1 0 1 0 1; do taskset -pc $i $$ >/dev/null 2>&1; done";
    let done = run(&["sched-migrate", "--json", "--flame-graph", graph, "--", "sh", "-c", walk]).code(0);
    let folded = fs::read_to_string(graph).expect("it was written");
    let samples: u64 = folded.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(samples, done.sum("migrations", of("tasks")), "{folded}: {done:#?}");
    assert!(number(&done.end(), "samples") >= samples, "{done:#?}");
}
