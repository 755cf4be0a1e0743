//! Waiting times of a user: for the first line, for the prompt after Ctrl-C, and for the line of a lone event.
//!
//! Each is measured five times; the goals are those of the design.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, raise};

use common::{Background, Spread, interrupt, number_after, perf_prof};

const TIMES: usize = 5;
/// A run settles within this time.
const SETTLE: Duration = Duration::from_millis(700);

fn main() -> Result<()> {
    if !common::can_run() {
        return Ok(());
    }
    let mut first_line = Vec::new();
    let mut exit = Vec::new();
    for _ in 0..TIMES {
        let (first, end) = start_and_stop()?;
        first_line.push(first);
        exit.push(end);
    }
    let lone = lone_events()?;
    println!("{:<28} {:>9} {:>9} {:>9} {:>9}", "milliseconds", "median", "min", "max", "goal");
    for (what, values, goal) in
        [("start to first line", first_line, 120), ("SIGINT to exit", exit, 500), ("lone event to its line", lone, 150)]
    {
        let Spread { min, median, max } = Spread::of(&values);
        let verdict = if median <= f64::from(goal) { "" } else { "  missed" };
        println!("{what:<28} {median:>9.1} {min:>9.1} {max:>9.1} {goal:>9}{verdict}");
    }
    Ok(())
}

/// Under a load that never ends: ms from the start to the first line, and from SIGINT to the exit.
fn start_and_stop() -> Result<(f64, f64)> {
    let mut load = Command::new(common::example("flood")?);
    load.args(["1000000000", "2000"]).stdout(Stdio::null());
    let _load = Background(load.spawn()?);
    sleep(Duration::from_millis(100));
    let start = Instant::now();
    let mut child = perf_prof(&["trace", "-e", "sched:sched_switch"]).spawn()?;
    let mut lines = lines(&mut child)?;
    lines.next().context("it ended without a line")??;
    let first = millis(start.elapsed());
    let drain = std::thread::spawn(move || lines.count());
    sleep(SETTLE);
    let asked = Instant::now();
    interrupt(&child)?;
    let status = child.wait()?;
    let end = millis(asked.elapsed());
    let _ = drain.join();
    if !status.success() {
        bail!("perf-prof ended with {status}");
    }
    Ok((first, end))
}

/// One signal to the bench itself per second, which has no effect except its event: ms from the time of the event to
/// its line.
fn lone_events() -> Result<Vec<f64>> {
    let own = format!("signal:signal_generate/sig=={} && pid=={}/", Signal::SIGWINCH as i32, std::process::id());
    let mut child = perf_prof(&["trace", "--json", "-e", &own]).spawn()?;
    let mut lines = lines(&mut child)?;
    sleep(SETTLE);
    let mut latencies = Vec::new();
    for time in 0..TIMES {
        // Each at another time between two wake-ups of the reader: otherwise its timer would be in step with the
        // signals.
        sleep(Duration::from_millis(1000 + 20 * time as u64));
        raise(Signal::SIGWINCH)?;
        let line = lines.next().context("it ended without a line")??;
        let now_ns = perf_prof::sys::monotonic_ns();
        let time_ns = number_after(&line, "\"time_ns\":").with_context(|| format!("no time in {line}"))?;
        latencies.push(millis(Duration::from_nanos(now_ns.saturating_sub(time_ns))));
    }
    interrupt(&child)?;
    child.wait()?;
    Ok(latencies)
}

fn lines(child: &mut Child) -> Result<impl Iterator<Item = std::io::Result<String>> + Send + 'static> {
    Ok(BufReader::new(child.stdout.take().context("stdout is piped")?).lines())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
