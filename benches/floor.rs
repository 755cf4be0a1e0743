//! The floor on its own, for a profiler to be run on it: `cargo bench --bench floor -- [EVENT,...] [SECONDS]`.
//! Prints the cost of a second of sched_switch and sched_wakeup for a reader that does nothing with them.

mod common;

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};

use common::floor;

fn main() -> Result<()> {
    if !common::can_run() {
        return Ok(());
    }
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let events = args.first().map_or("sched:sched_switch,sched:sched_wakeup", String::as_str);
    let seconds = args.get(1).map_or(Ok(1.0), |text| text.parse()).context("SECONDS is a number")?;
    let events: Vec<&str> = events.split(',').collect();
    let duration = Duration::try_from_secs_f64(seconds).context("SECONDS is a number")?;
    // Wakes tasks twice a round, so that there is something to read.
    let mut load = std::process::Command::new(common::example("pingpong")?);
    load.arg("1000000000").stdout(std::process::Stdio::null());
    let load = common::Background(load.spawn()?);
    let (before_ns, _) = perf_prof::sys::self_usage();
    let read = floor::read(&events, None, false, Some(duration))?;
    let (after_ns, rss) = perf_prof::sys::self_usage();
    drop(load);
    println!(
        "samples={} others={} bytes={} lost={} wakeups={} cpu_ns_per_record={:.1} cpu_pct={:.1} rss_peak_bytes={rss}",
        read.samples,
        read.others,
        read.bytes,
        read.lost,
        read.wakeups,
        (after_ns - before_ns) as f64 / (read.samples + read.others).max(1) as f64,
        (after_ns - before_ns) as f64 / duration.as_nanos() as f64 * 100.0,
    );
    Ok(())
}
