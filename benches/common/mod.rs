//! Shared code of the benches: finding and pinning processes, and medians.

#![allow(dead_code)] // every bench uses a part of it

pub mod floor;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program under test, built in the same profile.
pub const PERF_PROF: &str = env!("CARGO_BIN_EXE_perf-prof");

/// A program of `examples/`, which `cargo bench` does not build: they are built here when they are missing.
///
/// # Errors
/// It cannot be built.
pub fn example(name: &str) -> Result<PathBuf> {
    let path = Path::new(PERF_PROF).with_file_name("examples").join(name);
    if !path.exists() {
        let args =
            ["build", "--release", "--examples", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")];
        let built = Command::new(env!("CARGO")).args(args).status()?;
        ensure!(built.success() && path.exists(), "cannot build {}", path.display());
    }
    Ok(path)
}

/// The same, ready to start.
///
/// # Errors
/// As [`example`].
pub fn example_with(name: &str, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(example(name)?);
    command.args(args);
    Ok(command)
}

/// Whether a program is installed.
pub fn installed(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// `cargo test --benches` runs these programs too, and `cargo bench` passes `--bench`: only the latter is meant.
/// Says why when the benches cannot run.
pub fn can_run() -> bool {
    if !env::args().any(|arg| arg == "--bench") {
        println!("skipped: run it with `cargo bench`");
        return false;
    }
    if !perf_prof::sys::is_root() {
        println!("skipped: events of all CPUs need root");
        return false;
    }
    true
}

/// Starts `command` on one CPU: a child runs where its parent could when it was started.
///
/// # Errors
/// There is no such CPU, or no such program.
pub fn spawn_on(cpu: usize, command: &mut Command) -> Result<Child> {
    let own = Pid::from_raw(0);
    let before = sched_getaffinity(own)?;
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(own, &only).with_context(|| format!("cannot run on CPU {cpu}"))?;
    let child = command.spawn();
    sched_setaffinity(own, &before)?;
    child.with_context(|| format!("cannot start {:?}", command.get_program()))
}

/// Starts `perf-prof` with these arguments, all its outputs piped.
///
/// # Errors
/// It cannot be started.
pub fn perf_prof(args: &[&str]) -> Command {
    let mut command = Command::new(PERF_PROF);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn interrupt(child: &Child) -> io::Result<()> {
    Ok(kill(Pid::from_raw(child.id() as i32), Signal::SIGINT)?)
}

/// CPU time of all children that were waited for.
pub fn children_cpu() -> Duration {
    let time = |t: nix::sys::time::TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000);
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|used| time(used.user_time()) + time(used.system_time()))
        .unwrap_or_default()
}

/// Peak resident memory of a living process, in KiB.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    number_after(&status, "VmHWM:")
}

/// Waits until a reader has enabled its events: then it sleeps in poll or epoll. At most ten seconds, where that cannot
/// be seen.
pub fn wait_until_armed(pid: u32) {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..1000 {
        let wchan = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        if wchan.contains("poll") {
            break;
        }
        std::thread::sleep(STEP);
    }
}

/// The first number behind `key`.
pub fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.split_once(key)?.1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A load that runs until it is dropped.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Spread { min: at(0), median: at(sorted.len() / 2), max: at(sorted.len().saturating_sub(1)) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.median.is_nan() {
            return f.pad("-");
        }
        f.pad(&format!("{:.2} ({:.2} to {:.2})", self.median, self.min, self.max))
    }
}
