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
use crate::escape::escape;
use crate::output::flame::FlameGraph;
use crate::perf::target::{Cgroup, Host, Target, Tasks, find_cgroup, parse_cpus, processes, threads};
use crate::profilers::Command;
use crate::run::{Options, forecast};
use crate::sys;
use crate::task::procfs;
use crate::tep::format::{likeness, nearest};

/// Wide enough for an example, narrow enough for any terminal.
const WIDTH: usize = 80;

const QUESTIONS: &str = "\
Which question?
  Who is stuck, and where?          perf-prof task-state -D --than 100 -g
  What do tasks spend time on?      perf-prof task-state -i 1000
  Who uses the CPUs, in what code?  perf-prof profile -i 1000
  Where does a command's time go?   perf-prof profile -g -- COMMAND
  What is allocated and not freed?  perf-prof kmemleak slab -g
  Who kills my process?             perf-prof signal --filter NAME
  Who keeps interrupts off?         perf-prof irq-off -g
  Is a CPU about to lock up?        perf-prof watchdog -g
  Who starts programs?              perf-prof trace -e sched:sched_process_exec
  Which events are there?           perf-prof list sched

`perf-prof COMMAND -h` has the options of a command and examples. Ctrl-C ends
a run with its last report. Nearly everything needs root.";

/// Who is stuck, who uses the CPUs, and why: live answers from perf events
#[derive(Debug, Parser)]
#[command(name = "perf-prof", version, max_term_width = WIDTH, arg_required_else_help = true, subcommand_required = true, subcommand_value_name = "COMMAND", after_help = QUESTIONS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What each exit code means.
pub const EXIT_CODES: [(u8, &str); 4] = [
    (0, "The run ended as asked: Ctrl-C, -N, --for, the end of the command after --, or of the reader of a pipe."),
    (1, "A valid command that cannot run here, or had to stop: no such event, CPU or process, no privilege."),
    (2, "Text that does not parse: an option, number, unit, event or filter; or a missing option."),
    (3, "With --strict-loss: something was lost."),
];

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
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommonArgs {
    /// These CPUs, 0-3,7 [default: all online]
    #[arg(short = 'C', long, alias = "cpu", value_name = "LIST", help_heading = "Target", value_parser = CpuList::parse)]
    cpus: Option<CpuList>,
    /// These processes, threads and children too; 'java*'
    #[arg(short = 'p', long, value_name = "PID|NAME,...", help_heading = "Target", value_parser = TaskList::parse)]
    pids: Option<TaskList>,
    /// These threads and no others
    #[arg(short = 't', long, value_name = "TID,...", help_heading = "Target", value_parser = TidList::parse, conflicts_with = "pids")]
    tids: Option<TidList>,
    /// These cgroups: path, unit or container id
    #[arg(long, value_name = "NAME,...", help_heading = "Target", value_parser = CgroupList::parse, conflicts_with_all = ["pids", "tids"])]
    cgroups: Option<CgroupList>,
    /// Report every so often, in ms, or as 1.5s
    #[arg(short = 'i', long, help_heading = "Run", value_name = "TIME", value_parser = values::time_ms)]
    interval: Option<Time>,
    /// Ring buffer per CPU, 1024 (pages) or 4M
    #[arg(short = 'm', long, help_heading = "Run", value_name = "PAGES|SIZE", value_parser = values::ring_size)]
    mmap_pages: Option<RingSize>,
    /// Stop after so many events
    #[arg(short = 'N', long = "exit-N", help_heading = "Run", value_name = "COUNT", value_parser = values::count)]
    exit_n: Option<u64>,
    /// Stop after so long, in s, or as 500ms
    #[arg(long = "for", help_heading = "Run", value_name = "TIME", value_parser = values::time_s)]
    duration: Option<Time>,
    /// Only tell what a run would cost, from 1 s
    #[arg(long, help_heading = "Run")]
    dry_run: bool,
    /// Show callchains
    #[arg(short = 'g', long = "call-graph", help_heading = "Output")]
    stacks: bool,
    /// Draw the stacks: FILE.svg, FILE.folded, -
    #[arg(long, value_name = "FILE|-", help_heading = "Output", value_parser = FlameGraph::parse)]
    flame_graph: Option<FlameGraph>,
    /// Append the results to a file
    #[arg(short = 'o', long, help_heading = "Output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Exit with code 3 if anything was lost
    #[arg(long, help_heading = "Run")]
    strict_loss: bool,
    /// C++ and Rust names as they are in the file
    #[arg(long, help_heading = "Output")]
    no_demangle: bool,
    /// Memory for symbols of files, 1G [default: 256M]
    #[arg(long, help_heading = "Output", value_name = "SIZE", value_parser = values::bytes)]
    symbol_memory: Option<u64>,
    /// Say what was opened, and what it cost
    #[arg(short = 'v', long, help_heading = "Output")]
    verbose: bool,
    /// A command to run and watch, with its children; its end ends the run
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "tids", "cgroups"])]
    workload: Vec<OsString>,
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

impl CommonArgs {
    pub fn strict_loss(&self) -> bool {
        self.strict_loss
    }

    pub fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// `-g`
    pub fn stacks(&self) -> bool {
        self.stacks
    }

    pub fn draws_stacks(&self) -> bool {
        self.flame_graph.is_some()
    }

    /// A picture is all that is wanted: no option asks for anything beside it.
    pub fn only_draws(&self) -> bool {
        let draws = self.flame_graph.as_ref().is_some_and(|flame| flame.path().is_some());
        draws && !self.stacks && !self.json && self.output.is_none()
    }

    /// `-v`
    pub fn verbose(&self) -> bool {
        self.verbose
    }

    /// The option that names tasks.
    pub fn names_tasks(&self) -> Option<&'static str> {
        let given = [("-p", self.pids.is_some()), ("-t", self.tids.is_some()), ("--cgroups", self.cgroups.is_some())];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// There is a command to run.
    pub fn runs_command(&self) -> bool {
        !self.workload.is_empty()
    }

    /// For a profiler that watches CPUs.
    ///
    /// # Errors
    /// An option names tasks.
    pub fn refuse_tasks(&self, profiler: &str) -> Result<()> {
        match self.names_tasks() {
            None => Ok(()),
            Some(option) => {
                Err(usage(format!("{option} names tasks, but {profiler} watches whole CPUs: choose those with -C")))
            }
        }
    }

    pub fn interval(&self) -> Option<Duration> {
        self.interval.map(|time| Duration::from_nanos(time.0))
    }

    /// What the run needs to know. `weight`: what the widths of a flame graph are.
    ///
    /// # Errors
    /// A process, thread or cgroup that does not exist; an interval of zero.
    pub fn options(self, profiler: &'static str, weight: &'static str) -> Result<Options> {
        const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
        let interval = self.interval();
        if let Some(interval) = interval.filter(|interval| *interval < SHORTEST_INTERVAL) {
            let asked = crate::digits::format_ns(interval.as_nanos() as u64);
            return Err(usage(format!("-i {asked} is too short: the shortest interval is 1ms")));
        }
        if self.duration.is_some_and(|time| time.0 == 0) {
            return Err(usage("--for 0 would show nothing: give it a time, as in 10s"));
        }
        if self.dry_run && self.duration.is_some_and(|time| Duration::from_nanos(time.0) < forecast::SHORTEST) {
            return Err(usage("--dry-run counts for 100 ms at least: give --for more, or leave it out for a second"));
        }
        if self.json && !self.dry_run && self.output.is_none() && self.flame_graph == Some(FlameGraph::Stdout) {
            return Err(usage("--flame-graph - and --json both want stdout: send the JSON lines to a file with -o"));
        }
        if self
            .flame_graph
            .as_ref()
            .is_some_and(|flame| flame.path().is_some() && flame.path() == self.output.as_deref())
        {
            return Err(usage("-o and --flame-graph name the same file: give each its own"));
        }
        let host = Host::default();
        let mut notes = Vec::new();
        let tasks = if let Some(TaskList(list)) = &self.pids {
            Tasks::Processes(resolve_processes(&host, list, &mut notes)?)
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
            stacks: self.stacks || self.flame_graph.is_some(),
            shows_stacks: self.stacks,
            flame: self.flame_graph,
            weight,
            samples: self.exit_n,
            duration: self.duration.map(|time| Duration::from_nanos(time.0)),
            output: self.output,
            json: self.json,
            demangle: !self.no_demangle,
            symbol_memory: self.symbol_memory,
            verbose: self.verbose,
            workload: self.workload,
            dry_run: self.dry_run,
            paced: false,
            durable: false,
            reports: true,
            notes,
        })
    }
}

/// The processes of a list. A name that nobody has is a note where others are found.
fn resolve_processes(host: &Host, list: &[PidOrName], notes: &mut Vec<String>) -> Result<Vec<i32>> {
    let own = std::process::id() as i32;
    let (mut pids, mut absent) = (Vec::new(), Vec::new());
    for word in list {
        match word {
            PidOrName::Pid(pid) if threads(host, *pid).is_empty() => {
                bail!("no process {pid}: it may have exited, `ps -e` lists those that live");
            }
            PidOrName::Pid(pid) => pids.push(*pid),
            PidOrName::Name(name) => {
                let named = |pid: &i32| {
                    *pid != own && procfs::comm(host, *pid).is_some_and(|comm| name.matches(comm.as_bytes()))
                };
                let before = pids.len();
                pids.extend(processes(host).into_iter().filter(named));
                if pids.len() == before {
                    absent.push(name);
                }
            }
        }
    }
    for name in absent {
        let nobody = format!("no process is named '{}'", escape(name.typed().as_bytes()));
        if pids.is_empty() {
            bail!("{nobody}; {}", like(host, name.typed()));
        }
        notes.push(format!("{nobody}: the others are watched, one that starts later is not"));
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
    // The many places that open a file need not know about this.
    if err.chain().any(lacks_descriptors) && !text.contains("ulimit -n") {
        text = format!("{text}; cure: raise `ulimit -n` (it is {})", sys::open_files().0);
    }
    text
}

fn lacks_descriptors(cause: &(dyn std::error::Error + 'static)) -> bool {
    let errno = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    errno == Some(libc::EMFILE) || cause.downcast_ref() == Some(&nix::errno::Errno::EMFILE)
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
        let err = anyhow::Error::new(std::io::Error::from_raw_os_error(libc::EMFILE)).context("cannot read x");
        assert!(message(&err).starts_with("cannot read x: ") && message(&err).contains("raise `ulimit -n`"));
    }
}
