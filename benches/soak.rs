//! Memory of runs that go on for an hour, beside processes that come and go: `cargo bench --bench soak -- SECONDS`.
//! What grows by process, path or stack shows here.
//!
//! The load starts 200 processes a second, and all runs watch all of the machine at once. The first fifth of the time is for warming up.

mod common;

use std::env;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use common::{Background, example_with, interrupt, number_after, perf_prof};

const MIN_S: u64 = 60;
const PROCESSES_PER_S: &str = "200";
/// Time between two readings.
const STEP: Duration = Duration::from_secs(5);
const READERS: [&[&str]; 5] = [
    &["syscalls"],
    &["profile", "-g"],
    &["task-state", "-g", "--than", "20ms"],
    &["signal"],
    &["run", "task-state", "profile -g", "signal", "trace -e sched:sched_process_exec", "--metrics", "127.0.0.1:0"],
];

fn main() -> Result<()> {
    if !common::can_run() {
        return Ok(());
    }
    let Some(seconds) = env::args().find_map(|arg| arg.parse::<u64>().ok()) else {
        println!("skipped: it takes long; `cargo bench --bench soak -- 3600`");
        return Ok(());
    };
    ensure!(seconds >= MIN_S, "less than {MIN_S} s tell nothing");
    let in_all = Duration::from_secs(seconds);
    let mut load = example_with("churn", &[PROCESSES_PER_S, &(seconds + MIN_S).to_string()])?;
    let _load = Background(load.stdout(Stdio::null()).spawn()?);
    let readers: Vec<Background> = READERS.iter().map(|args| started(args)).collect::<Result<_>>()?;
    let start = Instant::now();
    let mut warm: Vec<Vec<f64>> = vec![Vec::new(); readers.len()];
    while start.elapsed() < in_all {
        thread::sleep(STEP);
        if start.elapsed() >= in_all / 5 {
            for ((reader, args), warm) in readers.iter().zip(READERS).zip(&mut warm) {
                warm.push(anonymous_mib(reader).with_context(|| args.join(" "))?);
            }
        }
    }
    readers.iter().try_for_each(|reader| interrupt(&reader.0))?;
    println!("| run | MiB, warm | at the end | growth |");
    println!("| --- | ---: | ---: | ---: |");
    for ((mut reader, args), warm) in readers.into_iter().zip(READERS).zip(warm) {
        ensure!(reader.0.wait()?.success(), "{} failed", args.join(" "));
        // What is kept and forgotten in turns goes up and down: the means of the first and the last quarter.
        let quarter = warm.len() / 4;
        let mean = |readings: &[f64]| readings.iter().sum::<f64>() / readings.len().max(1) as f64;
        let (first, last) = (mean(&warm[..quarter]), mean(&warm[warm.len() - quarter..]));
        println!("| {} | {first:.1} | {last:.1} | {:.1} |", args.join(" "), last - first);
    }
    Ok(())
}

fn started(args: &[&str]) -> Result<Background> {
    let common = ["-i", "1000", "--no-live", "-o", "/dev/null"];
    let mut command = perf_prof(&[args, &common].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.map(Background).with_context(|| format!("cannot start {}", args.join(" ")))
}

/// Resident memory of a process that belongs to no file: rings are not in it.
fn anonymous_mib(process: &Background) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id()))?;
    Ok(number_after(&status, "RssAnon:").context("a reader ended early")? as f64 / 1024.0)
}
