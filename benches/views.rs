//! Many views of one run, next to each profiler alone, under two tasks that wake each other.
//!
//! The load runs on CPU 1, the reader on CPU 0, with rings of the default sizes. Ratios are within a round, to the profiler that costs most alone; the
//! medians of all rounds are printed.

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use common::{Spread, example_with, installed, interrupt, perf_prof, spawn_on, wait_until_armed};

const ROUNDS: usize = 5;
const VIEWS: [&str; 4] = ["task-state", "profile -F 99", "signal", "trace -e sched:sched_process_exec"];

/// What a reader cost.
#[derive(Clone, Copy, Debug, Default)]
struct ViewCost {
    load_ns: f64,
    cpu_ns: f64,
}

fn main() -> Result<()> {
    if !common::can_run() {
        return Ok(());
    }
    let mut readers: Vec<Vec<&str>> = VIEWS.iter().map(|view| vec![*view]).collect();
    readers.push(VIEWS.to_vec());
    let mut rounds: Vec<Vec<ViewCost>> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(readers.iter().map(|views| watched(views)).collect::<Result<_>>()?);
    }
    println!("| views                             | own CPU, x dearest  | load, x dearest     |");
    println!("| ---                               | ---                 | ---                 |");
    for (at, views) in readers.iter().enumerate() {
        let name = if let [view] = views[..] { view } else { "all of them" };
        let spread = |cost: fn(&ViewCost) -> f64| {
            let ratio = |round: &Vec<ViewCost>| {
                let dearest = round.iter().take(VIEWS.len()).map(cost).fold(0.0, f64::max);
                cost(&round[at]) / dearest
            };
            Spread::of(&rounds.iter().map(ratio).collect::<Vec<_>>()).to_string()
        };
        println!("| {name:<33} | {:<19} | {:<19} |", spread(|cost| cost.cpu_ns), spread(|cost| cost.load_ns));
    }
    Ok(())
}

/// The load while a run of these views watches it.
fn watched(views: &[&str]) -> Result<ViewCost> {
    let mut command = perf_prof(&[&["run", "-o", "/dev/null"], views].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = spawn_on(0, &mut command)?;
    wait_until_armed(reader.id());
    let (before, start) = (cpu_ns(reader.id())?, Instant::now());
    ensure!(spawn_on(1, &mut load()?)?.wait()?.success(), "the load failed");
    let load_ns = start.elapsed().as_nanos() as f64;
    let cpu_ns = cpu_ns(reader.id())? - before;
    interrupt(&reader)?;
    reader.wait()?;
    Ok(ViewCost { load_ns, cpu_ns })
}

fn load() -> Result<Command> {
    let mut command = if installed("perf") {
        let mut command = Command::new("perf");
        command.args(["bench", "sched", "pipe", "-l", "1000000"]);
        command
    } else {
        example_with("pingpong", &["1000000", "1", "1"])?
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// CPU time of all threads of a process so far.
fn cpu_ns(pid: u32) -> Result<f64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("the reader ended early")?;
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Ok(tasks.filter_map(of_task).sum::<u64>() as f64)
}
