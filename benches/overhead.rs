//! The cost of being watched: a load alone, under the floor, under perf-prof and under the peers that are installed, in
//! turn. Prints a table for each load.
//!
//! The load runs on CPU 1, the reader on CPU 0. Every ratio is within a round; the medians of all rounds are
//! printed.

mod common;
#[path = "common/reader.rs"]
mod reader;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use common::{Spread, floor, installed};
use reader::{Reader, Run, run};

const ROUNDS: usize = 5;
/// Argument with which this program, started by itself, is the floor.
pub const AS_FLOOR: &str = "--as-floor";
/// Behind its events.
pub const FILTERED: &str = "filtered";
pub const AHEAD: &str = "ahead";
/// Argument with which this program executes another one that sees tracefs where peers look for it.
pub const WITH_TRACEFS: &str = "--with-tracefs";

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Two tasks that wake each other: 1.2 million switches and wake-ups a second.
    Pipe,
    /// Nothing but system calls, as fast as possible.
    Flood,
    /// A million eventfds opened and closed: nine million allocations and frees.
    Kalloc,
    /// A compiler: some of everything.
    Compile,
}

/// One load, and the readers that watch it.
#[derive(Debug)]
pub struct Case {
    pub load: Load,
    /// Arguments of perf-prof.
    pub args: &'static [&'static str],
    /// Events of the floor: those that perf-prof opens for `args`.
    pub events: &'static str,
    /// perf-prof leaves its own threads out of these events in the kernel, so the floor has a filter too.
    pub filtered: bool,
    /// Arguments of `perf record` for the same records.
    pub perf: &'static [&'static str],
    /// The text of `perf script` counts as the work of perf.
    pub perf_prints: bool,
    /// The bpftrace program that answers the same question.
    pub bpftrace: &'static str,
}

const SCHED: &str = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new";
const WAKEUPS: &str = "sched:sched_wakeup,sched:sched_switch";
const CALLS: &str = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
const FILE: &str = reader::OUTPUT_FILE;

const CASES: [Case; 12] = [
    Case {
        load: Load::Pipe,
        args: &["task-state", "-o", "/dev/null"],
        events: SCHED,
        filtered: false,
        perf: &["-e", SCHED],
        perf_prints: false,
        bpftrace: "tracepoint:sched:sched_switch {
                if (@on[args->prev_pid]) { @run = hist(nsecs - @on[args->prev_pid]); }
                if (@ready[args->next_pid]) { @delay = hist(nsecs - @ready[args->next_pid]); delete(@ready[args->next_pid]); }
                if (@off[args->next_pid]) { @sleep = hist(nsecs - @off[args->next_pid]); }
                @off[args->prev_pid] = nsecs; @on[args->next_pid] = nsecs; }
            tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @ready[args->pid] = nsecs; }",
    },
    Case {
        load: Load::Pipe,
        args: &["trace", "-e", "sched:sched_switch,sched:sched_wakeup", "-o", FILE],
        events: "sched:sched_switch,sched:sched_wakeup",
        filtered: false,
        perf: &["-e", "sched:sched_switch,sched:sched_wakeup"],
        perf_prints: true,
        bpftrace: "",
    },
    Case {
        load: Load::Flood,
        args: &["trace", "-e", CALLS, "-o", FILE],
        events: CALLS,
        filtered: true,
        perf: &["-e", CALLS, "--exclude-perf"],
        perf_prints: true,
        bpftrace: "",
    },
    Case {
        load: Load::Flood,
        args: &["trace", "-e", CALLS, "-o", "/dev/null"],
        events: CALLS,
        filtered: true,
        perf: &["-e", CALLS, "--exclude-perf"],
        perf_prints: true,
        bpftrace: "",
    },
    Case {
        load: Load::Flood,
        args: &["syscalls", "-o", "/dev/null"],
        events: CALLS,
        filtered: true,
        perf: &["-e", CALLS, "--exclude-perf"],
        perf_prints: false,
        bpftrace: "tracepoint:raw_syscalls:sys_enter { @since[tid] = nsecs; }
            tracepoint:raw_syscalls:sys_exit /@since[tid]/ { @lengths[args->id] = hist(nsecs - @since[tid]); delete(@since[tid]); }",
    },
    Case {
        load: Load::Kalloc,
        args: &["kmemleak", "slab", "-g", "-o", "/dev/null"],
        events: "kmem:kmalloc/g,kmem:kmem_cache_alloc/g,kmem:kfree,kmem:kmem_cache_free",
        filtered: false,
        perf: &["-e", "kmem:kmalloc/call-graph=fp/,kmem:kmem_cache_alloc/call-graph=fp/,kmem:kfree,kmem:kmem_cache_free"],
        perf_prints: false,
        bpftrace: "tracepoint:kmem:kmalloc, tracepoint:kmem:kmem_cache_alloc { @live[args->ptr] = (args->bytes_alloc, kstack, ustack); }
            tracepoint:kmem:kfree, tracepoint:kmem:kmem_cache_free { delete(@live[args->ptr]); }",
    },
    Case {
        load: Load::Pipe,
        args: &["multi-trace", "-e", "sched:sched_wakeup//key=pid/", "-e", "sched:sched_switch//key=next_pid/", "-o", "/dev/null"],
        events: WAKEUPS,
        filtered: false,
        perf: &["-e", WAKEUPS],
        perf_prints: false,
        bpftrace: "tracepoint:sched:sched_wakeup { @since[args->pid] = nsecs; }
            tracepoint:sched:sched_switch /@since[args->next_pid]/ {
                @delays = hist(nsecs - @since[args->next_pid]); delete(@since[args->next_pid]); }",
    },
    Case {
        load: Load::Pipe,
        args: &["multi-trace", "-e", "sched:sched_switch", "--cycle", "-o", "/dev/null"],
        events: "sched:sched_switch",
        filtered: false,
        perf: &["-e", "sched:sched_switch"],
        perf_prints: false,
        bpftrace: "tracepoint:sched:sched_switch {
                if (@since[cpu]) { @delays = hist(nsecs - @since[cpu]); } @since[cpu] = nsecs; }",
    },
    Case {
        load: Load::Flood,
        args: &["multi-trace", "-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "-k", "common_pid", "-o", "/dev/null"],
        events: CALLS,
        filtered: true,
        perf: &["-e", CALLS, "--exclude-perf"],
        perf_prints: false,
        bpftrace: "",
    },
    Case {
        load: Load::Kalloc,
        args: &["multi-trace", "-e", "kmem:kmalloc", "-e", "kmem:kfree", "-k", "ptr", "-o", "/dev/null"],
        events: "kmem:kmalloc,kmem:kfree",
        filtered: true,
        perf: &["-e", "kmem:kmalloc,kmem:kfree"],
        perf_prints: false,
        bpftrace: "tracepoint:kmem:kmalloc { @since[args->ptr] = nsecs; }
            tracepoint:kmem:kfree /@since[args->ptr]/ {
                @delays = hist(nsecs - @since[args->ptr]); delete(@since[args->ptr]); }",
    },
    Case {
        load: Load::Compile,
        args: &["task-state", "-o", "/dev/null"],
        events: SCHED,
        filtered: false,
        perf: &["-e", SCHED],
        perf_prints: false,
        bpftrace: "",
    },
    Case {
        load: Load::Compile,
        args: &["profile", "-F", "997", "-g", "-o", "/dev/null"],
        events: "profile@997/g",
        filtered: false,
        perf: &["-F", "997", "-g"],
        perf_prints: false,
        bpftrace: "profile:hz:997 { @[kstack, ustack, comm] = count(); }",
    },
];

fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(AS_FLOOR) => return be_floor(args.get(2).map_or("", String::as_str), args.get(3..).unwrap_or_default()),
        Some(WITH_TRACEFS) => return be_with_tracefs(args.get(2..).unwrap_or_default()),
        _ => {}
    }
    if !common::can_run() {
        return Ok(());
    }
    let only: Vec<&String> = args.iter().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for case in &CASES {
        let title = format!("{} under {}", case.load.name(), reader::without_output(case.args).join(" "));
        if only.is_empty() || only.iter().any(|word| title.contains(word.as_str())) {
            measure(case, &title)?;
        }
    }
    Ok(())
}

fn be_floor(events: &str, how: &[String]) -> Result<()> {
    let own = format!("common_pid != {}", std::process::id());
    let events: Vec<&str> = events.split(',').collect();
    let is = |word: &str| how.iter().any(|other| other == word);
    let read = floor::read(&events, is(FILTERED).then_some(own.as_str()), is(AHEAD), None)?;
    eprintln!("floor: {} events, {} lost", read.samples, read.lost);
    Ok(())
}

/// Where tracefs is not mounted, it is for this process alone.
fn be_with_tracefs(command: &[String]) -> Result<()> {
    const AT: &str = "/sys/kernel/tracing";
    if !Path::new(AT).join("events").exists() {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("tracefs"), AT, Some("tracefs"), MsFlags::empty(), None::<&str>)?;
    }
    let (program, args) = command.split_first().context("no command")?;
    Err(Command::new(program).args(args).exec().into())
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::Pipe if installed("perf") => "perf bench sched pipe",
            Load::Pipe => "pingpong",
            Load::Flood => "flood of getppid",
            Load::Kalloc => "a million eventfds",
            Load::Compile => "ten times rustc",
        }
    }

    /// Number of repetitions, so that the load takes a second.
    pub fn times(self) -> usize {
        if let Load::Compile = self { 10 } else { 1 }
    }

    /// # Errors
    /// Its program is missing and cannot be built.
    pub fn command(self) -> Result<Command> {
        let mut command = match self {
            Load::Pipe if installed("perf") => {
                let mut command = Command::new("perf");
                command.args(["bench", "sched", "pipe", "-l", "500000"]);
                command
            }
            Load::Pipe => common::example_with("pingpong", &["500000", "1", "1"])?,
            Load::Flood => common::example_with("flood", &["2000000"])?,
            Load::Kalloc => common::example_with("kalloc", &["1000000", "0", "--exit"])?,
            Load::Compile => {
                let mut command = Command::new("rustc");
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stats/distribution.rs");
                command.args(["--edition", "2024", "--crate-type", "lib", "-O", "--emit", "obj", "-o"]);
                command.arg(reader::scratch("overhead.o")).arg(source);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

fn measure(case: &Case, title: &str) -> Result<()> {
    let readers: Vec<Reader> = Reader::ALL.into_iter().filter(|reader| reader.can_run(case)).collect();
    let mut rounds: Vec<Vec<Run>> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(readers.iter().map(|reader| run(*reader, case)).collect::<Result<_>>()?);
    }
    println!("\n{title}\n");
    let line = |cells: [&str; 7]| {
        let [reader, load, cpu, each, floor, unseen, peak] = cells;
        println!("| {reader:<11} | {load:<19} | {cpu:>6} | {each:>12} | {floor:<22} | {unseen:>10} | {peak:>8} |");
    };
    line(["reader", "load / alone", "CPU %", "ns per event", "x floor", "not seen %", "peak MiB"]);
    line(["---", "---", "---:", "---:", "---", "---:", "---:"]);
    let floor = readers.iter().position(|reader| *reader == Reader::Floor).unwrap_or(0);
    for (index, reader) in readers.iter().enumerate() {
        let spread = |value: &dyn Fn(&Run, &Run, &Run) -> f64| {
            let values =
                rounds.iter().filter_map(|round| Some(value(round.get(index)?, round.first()?, round.get(floor)?)));
            Spread::of(&values.collect::<Vec<_>>())
        };
        let median = |digits: usize, value: &dyn Fn(&Run, &Run, &Run) -> f64| {
            let median = spread(value).median;
            if median.is_nan() { "-".to_owned() } else { format!("{median:.digits$}") }
        };
        if *reader == Reader::Alone {
            let events = median(1, &|_, _, floor| floor.events / 1e6);
            let seconds = median(2, &|run, _, _| run.load_ns / 1e9);
            line([reader.name(), &format!("{events} M events, {seconds} s"), "-", "-", "-", "-", "-"]);
            continue;
        }
        line([
            reader.name(),
            &spread(&|run, alone, _| run.load_ns / alone.load_ns).to_string(),
            &median(2, &|run, _, _| run.cpu_ns / run.load_ns * 100.0),
            &median(1, &|run, _, floor| run.cpu_ns / floor.events),
            &spread(&|run, _, floor| run.cpu_ns / floor.cpu_ns).to_string(),
            &median(2, &|run, _, floor| run.unseen_of(floor) * 100.0),
            &median(1, &|run, _, _| run.peak_kib / 1024.0),
        ]);
    }
    let _ = fs::remove_file(reader::scratch("overhead.o"));
    Ok(())
}
