//! The command line: the option groups that all profilers share, and how an error becomes an exit code.

mod error;
pub mod values;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};

use crate::cli::values::{PidOrName, RingSize, Time};
use crate::output::escape::escape;
use crate::output::flame::FlameGraph;
use crate::perf::target::{Cgroup, Host, Target, Tasks, find_cgroup, parse_cpus, processes, threads};
use crate::profilers::Command;
use crate::run::Options;
use crate::task::procfs;
use crate::tep::format::{likeness, nearest};

const EXAMPLES: &str = "\
Examples:
  Who is stuck in D state, with stacks:
    perf-prof task-state -D --than 100 -g
  What all tasks spend their time on, every second:
    perf-prof task-state -i 1000
  Who starts what:
    perf-prof trace -e sched:sched_process_exec";

/// Live answers from perf events: who is stuck, who burns the CPU, what leaks, why a task is late
#[derive(Debug, Parser)]
#[command(name = "perf-prof", version, max_term_width = 100, arg_required_else_help = true, subcommand_required = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// A text of the user's that does not parse: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the kind [`Usage`].
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(message.to_string()))
}

/// Options that mean the same in every profiler
#[derive(Debug, Default, clap::Args)]
pub struct CommonArgs {
    /// Watch these CPUs, 0-3,7 [default: all that are online]
    #[arg(short = 'C', long, alias = "cpu", value_name = "LIST", help_heading = "Target", value_parser = CpuList::parse)]
    cpus: Option<CpuList>,
    /// Watch these processes, by pid or name, with their threads and children
    #[arg(short = 'p', long, value_name = "PID|NAME,...", help_heading = "Target", value_parser = TaskList::parse)]
    pids: Option<TaskList>,
    /// Watch these threads and no others
    #[arg(short = 't', long, value_name = "TID,...", help_heading = "Target", value_parser = TidList::parse, conflicts_with = "pids")]
    tids: Option<TidList>,
    /// Watch the tasks of these cgroups: a path, a unit (nginx.service), or the start of a container id
    #[arg(long, value_name = "NAME,...", help_heading = "Target", value_parser = CgroupList::parse, conflicts_with_all = ["pids", "tids"])]
    cgroups: Option<CgroupList>,
    /// Report every so often; a bare number is milliseconds
    #[arg(short = 'i', long, value_name = "TIME", value_parser = values::time_ms)]
    interval: Option<Time>,
    /// Ring buffer per CPU: pages, a power of two, or a size such as 4M
    #[arg(short = 'm', long, value_name = "PAGES|SIZE", value_parser = values::ring_size)]
    mmap_pages: Option<RingSize>,
    /// Stop after so many events
    #[arg(short = 'N', long = "exit-N", value_name = "COUNT", value_parser = values::count)]
    exit_n: Option<u64>,
    /// Stop after so long; a bare number is seconds
    #[arg(long = "for", value_name = "TIME", value_parser = values::time_s)]
    duration: Option<Time>,
    /// Append the results to a file instead of printing them
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Exit with code 3 when anything was lost
    #[arg(long)]
    strict_loss: bool,
    /// Show the names of C++ and Rust functions as their compilers wrote them
    #[arg(long)]
    no_demangle: bool,
    /// Say what was opened, filtered and left out, and what the run itself cost
    #[arg(short = 'v', long)]
    verbose: bool,
    /// A command to run and watch, with its children; its end ends the run
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "tids", "cgroups"])]
    workload: Vec<OsString>,
}

/// The option of profilers that know stacks
#[derive(Debug, Default, clap::Args)]
pub struct FlameArgs {
    /// Draw the stacks: a picture for the browser, folded lines, or folded lines on stdout in place of the results
    #[arg(long, value_name = "FILE.svg|FILE.folded|-", value_parser = FlameGraph::parse)]
    pub flame_graph: Option<FlameGraph>,
}

// clap takes a field of type Vec for an option that repeats; these lists are one value.
macro_rules! list_value {
    ($name:ident, $item:ty, $parse:expr) => {
        #[derive(Clone, Debug)]
        struct $name(Vec<$item>);

        impl $name {
            fn parse(text: &str) -> Result<$name, String> {
                $parse(text).map($name)
            }
        }
    };
}

list_value!(CpuList, u32, parse_cpus);
list_value!(TaskList, PidOrName, values::task_list);
list_value!(TidList, i32, values::pid_list);
list_value!(CgroupList, String, values::list);

/// What a profiler's options say of stacks.
#[derive(Debug)]
pub struct StackOptions {
    /// `-g`
    pub asked: bool,
    pub flame: Option<FlameGraph>,
    /// What the widths of its flame graph are.
    pub weight: &'static str,
}

impl CommonArgs {
    pub fn strict_loss(&self) -> bool {
        self.strict_loss
    }

    pub fn interval(&self) -> Option<Duration> {
        self.interval.map(|time| Duration::from_nanos(time.0))
    }

    /// What the run needs to know.
    ///
    /// # Errors
    /// A process, thread or cgroup that does not exist; an interval of zero.
    pub fn options(self, profiler: &'static str, stacks: StackOptions) -> Result<Options> {
        const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
        let interval = self.interval();
        if let Some(interval) = interval.filter(|interval| *interval < SHORTEST_INTERVAL) {
            let asked = values::format_ns(interval.as_nanos() as u64);
            return Err(usage(format!("-i {asked} is too short: the shortest interval is 1ms")));
        }
        if self.duration.is_some_and(|time| time.0 == 0) {
            return Err(usage("--for 0 would show nothing: give it a time, as in 10s"));
        }
        if self.json && self.output.is_none() && stacks.flame == Some(FlameGraph::Stdout) {
            return Err(usage("--flame-graph - and --json both want stdout: send the JSON lines to a file with -o"));
        }
        let host = Host::default();
        let tasks = if let Some(TaskList(list)) = &self.pids {
            Tasks::Processes(resolve_processes(&host, list)?)
        } else if let Some(TidList(tids)) = &self.tids {
            if let Some(tid) = tids.iter().find(|&&tid| procfs::comm(&host, tid).is_none()) {
                bail!("no thread {tid}: it may have exited, `ps -eL` lists those that live");
            }
            Tasks::Threads(tids.clone())
        } else if let Some(CgroupList(names)) = &self.cgroups {
            let mut groups: Vec<Cgroup> = names.iter().map(|name| find_cgroup(&host, name)).collect::<Result<_>>()?;
            // A group's events are those of the groups below it too: each must be seen once.
            groups.sort_by(|a, b| a.path.cmp(&b.path));
            groups.dedup_by(|below, above| below.path.starts_with(&above.path));
            Tasks::Cgroups(groups)
        } else {
            Tasks::All
        };
        Ok(Options {
            profiler,
            target: Target { wanted: self.cpus.map(|CpuList(cpus)| cpus), tasks },
            interval,
            ring: self.mmap_pages,
            stacks: stacks.asked || stacks.flame.is_some(),
            shows_stacks: stacks.asked,
            flame: stacks.flame,
            weight: stacks.weight,
            samples: self.exit_n,
            duration: self.duration.map(|time| Duration::from_nanos(time.0)),
            output: self.output,
            json: self.json,
            demangle: !self.no_demangle,
            verbose: self.verbose,
            workload: self.workload,
        })
    }
}

fn resolve_processes(host: &Host, list: &[PidOrName]) -> Result<Vec<i32>> {
    let own = std::process::id() as i32;
    let mut pids = Vec::new();
    for word in list {
        match word {
            PidOrName::Pid(pid) if threads(host, *pid).is_empty() => {
                bail!("no process {pid}: it may have exited, `ps -e` lists those that live");
            }
            PidOrName::Pid(pid) => pids.push(*pid),
            PidOrName::Name(name) => {
                let named = |pid: &i32| {
                    *pid != own && procfs::comm(host, *pid).is_some_and(|comm| comm.as_bytes() == cut(name))
                };
                let before = pids.len();
                pids.extend(processes(host).into_iter().filter(named));
                if pids.len() == before {
                    bail!("no process is named '{}'; {}", escape(name.as_bytes()), like(host, name));
                }
            }
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The names of processes that are most like one that none has.
fn like(host: &Host, name: &str) -> String {
    let own = std::process::id() as i32;
    let others = processes(host).into_iter().filter(|pid| *pid != own);
    let mut names: Vec<String> = others.filter_map(|pid| Some(escape(procfs::comm(host, pid)?.as_bytes()))).collect();
    names.sort_unstable();
    names.dedup();
    let alike = names.iter().map(String::as_str).filter(|other| likeness(name, other) > 0);
    match nearest(name, alike, 3).as_slice() {
        [] => "`ps -eo comm` lists the names".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    }
}

/// The kernel keeps 15 bytes of a name.
fn cut(name: &str) -> &[u8] {
    let bytes = name.as_bytes();
    &bytes[..bytes.len().min(15)]
}

/// Parses, runs, and returns the exit code.
pub fn main() -> u8 {
    let args: Vec<OsString> = std::env::args_os().collect();
    let cli: Cli = match error::parse(Cli::command(), &args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.command.run() {
        Ok(code) => code,
        Err(err) => {
            error::tell(&message(&err));
            u8::from(err.chain().any(|cause| cause.is::<Usage>())) + 1
        }
    }
}

/// What failed and why, once each: a context often ends with its cause already.
fn message(err: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in err.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn messages_do_not_repeat_themselves() {
        let err = anyhow::anyhow!("no such file").context("cannot open x");
        assert_eq!(message(&err), "cannot open x: no such file");
        let err = anyhow::anyhow!("y").context("x: y");
        assert_eq!(message(&err), "x: y");
    }
}
