//! What being watched costs: a load alone, under the floor, and under perf-prof, in turn.
//!
//! The load runs on CPU 1, the reader on CPU 0. Every figure is a ratio within one round; the median of all rounds is
//! printed, with the least and the greatest.

mod common;

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use common::{
    Spread, children_cpu, example, floor, interrupt, number_after, peak_kib, perf_prof, spawn_on, wait_until_armed,
};

const ROUNDS: usize = 5;
const LOAD_CPU: usize = 1;
const READER_CPU: usize = 0;
/// From the end of a load to the end of its reader; and from there to the next, as the kernel takes that long to
/// release the events.
const SETTLE: Duration = Duration::from_millis(400);
/// Makes this program the floor, when it starts itself.
const AS_FLOOR: &str = "--as-floor";

struct Load {
    example: &'static str,
    args: &'static [&'static str],
    /// The subcommand that is measured.
    profiler: &'static str,
    events: &'static str,
    /// perf-prof leaves its own threads out of these events in the kernel, so the floor has a filter too.
    filtered: bool,
}

const LOADS: [Load; 3] = [
    Load {
        example: "pingpong",
        args: &["300000", "1", "1"],
        profiler: "task-state",
        events: "sched:sched_switch,sched:sched_wakeup",
        filtered: false,
    },
    Load {
        example: "pingpong",
        args: &["300000", "1", "1"],
        profiler: "trace",
        events: "sched:sched_switch,sched:sched_wakeup",
        filtered: false,
    },
    Load { example: "flood", args: &["1000000"], profiler: "trace", events: "raw_syscalls:sys_enter", filtered: true },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Floor,
    PerfProf,
}

/// One load under one reader.
#[derive(Clone, Copy, Debug)]
struct Run {
    load_ns: f64,
    samples: f64,
    /// By the kernel, for want of room in the ring.
    lost: f64,
    /// By the output, which could not keep up.
    dropped: f64,
    cpu_ns: f64,
    peak_kib: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == AS_FLOOR) {
        return be_floor(args.get(at + 1).map_or("", String::as_str), args.get(at + 2).map(String::as_str));
    }
    if !common::can_run() {
        return Ok(());
    }
    for load in &LOADS {
        measure(load)?;
    }
    Ok(())
}

fn be_floor(events: &str, filtered: Option<&str>) -> Result<()> {
    let own = format!("common_pid != {}", std::process::id());
    let events: Vec<&str> = events.split(',').collect();
    let read = floor::read(&events, filtered.map(|_| own.as_str()), None)?;
    eprintln!("floor: {} events, {} lost", read.samples, read.lost);
    Ok(())
}

fn measure(load: &Load) -> Result<()> {
    let mut rounds: Vec<(Run, Run, f64)> = Vec::new();
    for _ in 0..ROUNDS {
        let alone = load_alone(load)?;
        let floor = watched(load, Reader::Floor)?;
        let ours = watched(load, Reader::PerfProf)?;
        rounds.push((floor, ours, alone));
    }
    println!("{} {} under {} of {}", load.example, load.args.join(" "), load.profiler, load.events);
    let print = |what: &str, value: &dyn Fn(&(Run, Run, f64)) -> f64| {
        println!("  {what:<44} {}", Spread::of(&rounds.iter().map(value).collect::<Vec<_>>()));
    };
    print("load under the floor / alone", &|(floor, _, alone)| floor.load_ns / alone);
    print("load under perf-prof / alone", &|(_, ours, alone)| ours.load_ns / alone);
    print("load under perf-prof / under the floor", &|(floor, ours, _)| ours.load_ns / floor.load_ns);
    print("own CPU of the floor / time of the load", &|(floor, ..)| floor.cpu_ns / floor.load_ns);
    print("own CPU of perf-prof / time of the load", &|(_, ours, _)| ours.cpu_ns / ours.load_ns);
    print("own CPU per event, perf-prof / floor", &|(floor, ours, _)| per_event(ours) / per_event(floor));
    print("lost / events, floor", &|(floor, ..)| floor.lost / (floor.samples + floor.lost));
    print("lost / events, perf-prof", &|(_, ours, _)| ours.lost / (ours.samples + ours.lost));
    print("printed lines dropped / events, perf-prof", &|(_, ours, _)| ours.dropped / (ours.samples + ours.lost));
    print("peak memory, perf-prof / floor", &|(floor, ours, _)| ours.peak_kib / floor.peak_kib);
    Ok(())
}

fn per_event(run: &Run) -> f64 {
    run.cpu_ns / run.samples.max(1.0)
}

/// Its own measure of its time, in ns.
fn load_alone(load: &Load) -> Result<f64> {
    let mut command = Command::new(example(load.example)?);
    command.args(load.args).stdout(Stdio::piped());
    let output = spawn_on(LOAD_CPU, &mut command)?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wall = number_after(&text, "wall_ns=").with_context(|| format!("{} printed {text:?}", load.example))?;
    Ok(wall as f64)
}

fn watched(load: &Load, reader: Reader) -> Result<Run> {
    let mut child = start(load, reader)?;
    wait_until_armed(child.id());
    let load_ns = load_alone(load)?;
    sleep(SETTLE);
    let peak_kib = peak_kib(child.id()).context("the reader ended early")?;
    let before = children_cpu();
    interrupt(&child)?;
    let mut text = String::new();
    child.stderr.take().context("stderr is piped")?.read_to_string(&mut text)?;
    if !child.wait()?.success() {
        bail!("{reader:?} failed: {text}");
    }
    let cpu_ns = (children_cpu() - before).as_nanos() as f64;
    sleep(SETTLE);
    let (samples, lost) = counts(&text).with_context(|| format!("{reader:?} printed {text:?}"))?;
    let dropped = text.lines().find(|line| line.contains(" lines dropped")).and_then(|line| number_after(line, ": "));
    let dropped = dropped.unwrap_or(0) as f64;
    Ok(Run { load_ns, samples, lost, dropped, cpu_ns, peak_kib: peak_kib as f64 })
}

fn start(load: &Load, reader: Reader) -> Result<Child> {
    let mut command = match reader {
        Reader::PerfProf if load.profiler == "task-state" => {
            perf_prof(&["task-state", "-m", floor::RING, "-o", "/dev/null"])
        }
        Reader::PerfProf => perf_prof(&["trace", "-e", load.events, "-m", floor::RING, "-o", "/dev/null"]),
        Reader::Floor => {
            let mut command = Command::new(env::current_exe()?);
            command.args([AS_FLOOR, load.events]).args(load.filtered.then_some("filtered"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        }
    };
    spawn_on(READER_CPU, &mut command)
}

/// Samples and lost of `NAME: 5 events in 1.0 s, 3 lost`.
fn counts(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find(|line| line.contains(" lost") && !line.contains(": lost "))?;
    let samples = number_after(line, ": ")?;
    let lost: u64 = line.split(", ").find_map(|part| part.strip_suffix(" lost"))?.parse().ok()?;
    Some((samples as f64, lost as f64))
}
