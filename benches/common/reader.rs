//! Readers of a load, started and measured: CPU time from the moment it is armed to the end of the load.

use std::env;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::common::{children_cpu, floor, installed, interrupt, number_after, peak_kib, spawn_on, wait_until_armed};
use crate::{AHEAD, AS_FLOOR, Case, FILTERED, WITH_TRACEFS};

const LOAD_CPU: usize = 1;
const READER_CPU: usize = 0;
/// From the end of a load to the end of its reader; and from there to the next, as the kernel takes that long to
/// release the events.
const SETTLE: Duration = Duration::from_millis(400);
/// Stands in a case's arguments for a file that is removed afterwards.
pub const OUTPUT_FILE: &str = "FILE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Alone,
    Floor,
    /// It prefetches memory.
    FloorAhead,
    PerfProf,
    Perf,
    /// The text of what `perf record` wrote: nothing is watched, only the printing is measured.
    PerfScript,
    Bpftrace,
}

/// One load under one reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    pub load_ns: f64,
    /// Samples read or lost; 0: the reader does not report them.
    pub events: f64,
    /// Samples that were read.
    pub seen: Option<f64>,
    pub cpu_ns: f64,
    pub peak_kib: f64,
}

impl Run {
    /// The share of events that did not reach this reader; NaN if it does not report them.
    pub fn unseen_of(&self, floor: &Run) -> f64 {
        let events = if self.events > 0.0 { self.events } else { floor.events };
        self.seen.map_or(f64::NAN, |seen| (1.0 - seen / events).max(0.0))
    }
}

impl Reader {
    pub const ALL: [Reader; 7] = [
        Reader::Alone,
        Reader::Floor,
        Reader::FloorAhead,
        Reader::PerfProf,
        Reader::Perf,
        Reader::PerfScript,
        Reader::Bpftrace,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Reader::Alone => "none",
            Reader::Floor => "floor",
            Reader::FloorAhead => "floor ahead",
            Reader::PerfProf => "perf-prof",
            Reader::Perf => "perf record",
            Reader::PerfScript => "perf script",
            Reader::Bpftrace => "bpftrace",
        }
    }

    pub fn can_run(self, case: &Case) -> bool {
        match self {
            Reader::Alone | Reader::Floor | Reader::FloorAhead | Reader::PerfProf => true,
            Reader::Perf => !case.perf.is_empty() && installed("perf"),
            Reader::PerfScript => case.perf_prints && installed("perf"),
            Reader::Bpftrace => !case.bpftrace.is_empty() && installed("bpftrace"),
        }
    }

    fn command(self, case: &Case) -> Result<Command> {
        let itself = || env::current_exe().map(Command::new);
        let mut command = match self {
            Reader::Floor | Reader::FloorAhead => {
                let mut command = itself()?;
                command.args([AS_FLOOR, case.events]).args(case.filtered.then_some(FILTERED));
                command.args((self == Reader::FloorAhead).then_some(AHEAD));
                command
            }
            Reader::Perf => {
                let mut command = itself()?;
                command.args([WITH_TRACEFS, "perf", "record", "-q", "-a", "-B", "-N", "-m", floor::RING, "-o"]);
                command.arg(scratch("overhead.data")).args(case.perf);
                command
            }
            Reader::Bpftrace => {
                let mut command = itself()?;
                command.args([WITH_TRACEFS, "bpftrace", "-q", "-e", case.bpftrace]);
                command.env("BPFTRACE_MAP_KEYS_MAX", "4000000");
                command
            }
            Reader::Alone | Reader::PerfProf | Reader::PerfScript => {
                let mut command = Command::new(crate::common::PERF_PROF);
                let file = scratch("overhead.txt");
                for arg in case.args {
                    if *arg == OUTPUT_FILE {
                        command.arg(&file)
                    } else {
                        command.arg(arg)
                    };
                }
                command.args(["-m", floor::RING]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// The arguments of a case, without where its output goes unless that is a file.
pub fn without_output(args: &[&'static str]) -> Vec<&'static str> {
    args.strip_suffix(&["-o", "/dev/null"]).unwrap_or(args).to_vec()
}

/// Where benches write; cargo cleans it.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// # Errors
/// The reader or the load failed.
pub fn run(reader: Reader, case: &Case) -> Result<Run> {
    match reader {
        Reader::Alone => Ok(Run { load_ns: load(case)?, ..Run::default() }),
        Reader::PerfScript => print_recorded(),
        _ => watched(reader, case).with_context(|| format!("{} failed", reader.name())),
    }
}

/// The time that the load takes, in ns.
fn load(case: &Case) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..case.load.times() {
        let ended = spawn_on(LOAD_CPU, &mut case.load.command()?)?.wait()?;
        ensure!(ended.success(), "the load failed");
    }
    Ok(start.elapsed().as_nanos() as f64)
}

fn watched(reader: Reader, case: &Case) -> Result<Run> {
    let mut child = spawn_on(READER_CPU, &mut reader.command(case)?)?;
    wait_until_armed(child.id());
    let before = cpu_ns(child.id())?;
    let load_ns = load(case)?;
    sleep(SETTLE);
    let cpu_ns = cpu_ns(child.id())? - before;
    let peak_kib = peak_kib(child.id()).context("it ended early")? as f64;
    let text = end(&mut child)?;
    sleep(SETTLE);
    let mut run = Run { load_ns, cpu_ns, peak_kib, ..Run::default() };
    match reader {
        Reader::Perf => run.seen = Some(recorded()?),
        Reader::Bpftrace => {}
        _ => {
            let (seen, lost) = counts(&text).with_context(|| format!("it printed {text:?}"))?;
            let dropped = text.lines().find(|line| line.contains(" lines dropped"));
            let dropped = dropped.and_then(|line| number_after(line, ": ")).unwrap_or(0) as f64;
            (run.seen, run.events) = (Some(seen - dropped), seen + lost);
        }
    }
    Ok(run)
}

/// Ends a reader. Returns its stderr.
fn end(child: &mut Child) -> Result<String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    // Repeated: bpftrace sleeps on after a signal that came just before it fell asleep.
    while child.try_wait()?.is_none() {
        interrupt(child)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE && child.try_wait()?.is_none() {
            sleep(Duration::from_millis(10));
        }
    }
    let mut text = String::new();
    child.stderr.take().context("stderr is piped")?.read_to_string(&mut text)?;
    Ok(text)
}

/// CPU time of all threads of a process so far.
fn cpu_ns(pid: u32) -> Result<f64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("it ended early")? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum as f64)
}

/// Samples and lost of `NAME: 5 events in 1.0 s, 3 lost`.
fn counts(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find(|line| line.contains(" lost") && !line.contains(": lost "))?;
    let samples = number_after(line, ": ")?;
    let lost: u64 = line.split(", ").find_map(|part| part.strip_suffix(" lost"))?.parse().ok()?;
    Some((samples as f64, lost as f64))
}

/// Samples in the file that `perf record` wrote.
fn recorded() -> Result<f64> {
    let output = Command::new("perf")
        .args(["report", "--stats", "-i"])
        .arg(scratch("overhead.data"))
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let samples = number_after(&text, "SAMPLE events:").with_context(|| format!("perf report printed {text:?}"))?;
    Ok(samples as f64)
}

/// `perf script` of the file that the run of `perf record` before left behind.
fn print_recorded() -> Result<Run> {
    let file = scratch("overhead.data");
    let mut command = Command::new(env::current_exe()?);
    command.args([WITH_TRACEFS, "perf", "script", "-i"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let before = children_cpu();
    ensure!(spawn_on(READER_CPU, &mut command)?.wait()?.success(), "perf script failed");
    let cpu_ns = (children_cpu() - before).as_nanos() as f64;
    let seen = recorded()?;
    fs::remove_file(file)?;
    Ok(Run { cpu_ns, events: seen, seen: Some(seen), load_ns: f64::NAN, peak_kib: f64::NAN })
}
