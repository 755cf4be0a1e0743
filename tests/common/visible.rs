//! CPUs whose idle task is traced, for tests of events that happen in its interrupts. On some virtual machines a few
//! system tasks are hidden from perf and ftrace alike, the idle task of a CPU that was offline once among them. The
//! states of tasks and their times are known there all the same: tests of those run on any CPU.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Checks of a CPU before its idle task is called hidden: a single check may fail because of other tasks.
const LOOKS: usize = 3;
/// Least idle time of a CPU during a check for a result, in ticks of 10 ms.
const IDLE_TICKS: u64 = 10;

/// Keeps this thread, and what it starts, on such CPUs; on all of them when there is none.
pub fn stay_visible() {
    static VISIBLE: OnceLock<Option<CpuSet>> = OnceLock::new();
    if let Some(cpus) = VISIBLE.get_or_init(visible) {
        let _ = sched_setaffinity(Pid::from_raw(0), cpus); // any CPU will do if these are refused
    }
}

fn visible() -> Option<CpuSet> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap_or(false);
    let is_good = |cpu: &usize| (0..LOOKS).any(|_| !hides_its_idle_task(*cpu));
    let good: Vec<usize> = (0..CpuSet::count()).filter(is_allowed).filter(is_good).collect();
    println!("CPUs whose idle task is traced: {good:?}");
    let mut set = CpuSet::new();
    good.iter().try_for_each(|&cpu| set.set(cpu)).ok()?;
    (!good.is_empty()).then_some(set)
}

/// The time that a CPU has been idle for, ticks.
fn idle(cpu: usize) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")));
    let words = line.into_iter().flat_map(|line| line.split(' ').skip(3).take(2)); // idle, iowait
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Whether the CPU was idle without an event that shows it.
fn hides_its_idle_task(cpu: usize) -> bool {
    let before = idle(cpu);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut only = CpuSet::new();
            if only.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok() {
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(2)); // the load: the CPU goes idle and comes back
                }
            }
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["trace", "-e", "sched:sched_switch/prev_pid==0/", "-N", "3", "--for", "1", "-C"]);
        let output = command.arg(cpu.to_string()).stderr(Stdio::null()).output();
        done.store(true, Ordering::Relaxed);
        let is_seen = output.is_ok_and(|output| output.stdout.split(|&byte| byte == b'\n').count() > 3);
        !is_seen && idle(cpu) > before + IDLE_TICKS
    })
}
