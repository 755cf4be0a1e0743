//! The options that all profilers share, and what the texts of options mean.

mod call_graph;
mod callchain_halves;
mod latency;
pub mod values;
mod wait_states;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

pub use crate::cli::call_graph::CallGraph;
pub use crate::cli::callchain_halves::CallchainArgs;
pub use crate::cli::latency::LatencyArgs;
use crate::cli::values::{PidOrName, RingSize, Time};
pub use crate::cli::wait_states::WaitStateArgs;
use crate::destination::{FlameGraph, Heatmap, MetricsAddress};
use crate::host::parse_cpus;

/// Text from the user that does not parse: exit code 2.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A [`UsageError`].
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(UsageError(message.to_string()))
}

/// Options that mean the same in every profiler
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommonArgs {
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub view: ViewArgs,
}

/// The options that belong to a whole run, however many profilers it has
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RunArgs {
    /// These CPUs, 0-3,7 [default: all online]
    #[arg(short = 'C', long, alias = "cpu", value_name = "LIST", help_heading = "Target", value_parser = CpuList::parse)]
    pub cpus: Option<CpuList>,
    /// These processes, later threads and children too; 'java*'
    #[arg(short = 'p', long, value_name = "PID|NAME,...", help_heading = "Target", value_parser = TaskList::parse)]
    pub pids: Option<TaskList>,
    /// With -p: also their children that live already
    #[arg(long, help_heading = "Target", requires = "pids")]
    pub children: bool,
    /// These threads and no others
    #[arg(short = 't', long, value_name = "TID,...", help_heading = "Target", value_parser = TidList::parse, conflicts_with = "pids")]
    pub tids: Option<TidList>,
    /// These cgroups: path, unit or container id
    #[arg(long, value_name = "NAME,...", help_heading = "Target", value_parser = CgroupList::parse, conflicts_with_all = ["pids", "tids"])]
    pub cgroups: Option<CgroupList>,
    /// Report every so often, in ms, or as 1.5s
    #[arg(short = 'i', long, help_heading = "Run", value_name = "TIME", value_parser = values::time_ms)]
    pub interval: Option<Time>,
    /// Ring buffer per CPU, 1024 (pages) or 4M
    #[arg(short = 'm', long, help_heading = "Run", value_name = "PAGES|SIZE", value_parser = values::ring_size)]
    pub mmap_pages: Option<RingSize>,
    /// Wake at so many per cent of a ring, 0 at each event [default: 50]
    #[arg(long, help_heading = "Run", value_name = "PCT", value_parser = values::watermark)]
    pub watermark: Option<u8>,
    /// Events in the order of their times: always so
    #[arg(long, help_heading = "Run", hide = true)]
    pub order: bool,
    /// Times of CLOCK_MONOTONIC: always so
    #[arg(long, help_heading = "Run", hide = true)]
    pub monotonic: bool,
    /// Stop after so long, in s, or as 500ms
    #[arg(long = "for", help_heading = "Run", value_name = "TIME", value_parser = values::time_s)]
    pub duration: Option<Time>,
    /// Only tell what a run would cost, from 1 s
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,
    /// Append the results to a file
    #[arg(short = 'o', long, help_heading = "Output", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Serve the tables as metrics: 9100, 0.0.0.0:9100
    #[arg(long, help_heading = "Output", value_name = "[ADDR:]PORT", value_parser = MetricsAddress::parse)]
    pub metrics: Option<MetricsAddress>,
    /// Tables in place on the terminal, which needs -i; the default where it is possible
    #[arg(long, help_heading = "Output")]
    pub live: bool,
    /// Tables below each other, also on a terminal
    #[arg(long, help_heading = "Output", conflicts_with = "live")]
    pub no_live: bool,
    /// Exit with code 3 if anything was lost
    #[arg(long, help_heading = "Run")]
    pub strict_loss: bool,
    /// C++ and Rust names as they are in the file
    #[arg(long, help_heading = "Output")]
    pub no_demangle: bool,
    /// Memory for symbols of files, 1G [default: 256M]
    #[arg(long, help_heading = "Output", value_name = "SIZE", value_parser = values::bytes)]
    pub symbol_memory: Option<u64>,
    /// Say what was opened, and what it cost
    #[arg(short = 'v', long, help_heading = "Output")]
    pub verbose: bool,
    /// A command to run and watch, with its children; its end ends the run
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "tids", "cgroups"])]
    pub workload: Vec<OsString>,
}

/// The options that each view of a run may have
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ViewArgs {
    /// Stop after so many events
    #[arg(short = 'N', long = "exit-N", help_heading = "Run", value_name = "COUNT", value_parser = values::count)]
    pub exit_n: Option<u64>,
    /// Show callchains; of programs by frame pointers (=fp) or unwind tables (=dwarf,BYTES) [default: what fits]
    #[arg(short = 'g', long, help_heading = "Output", value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_missing_value = "auto", value_parser = CallGraph::parse)]
    pub call_graph: Option<CallGraph>,
    #[command(flatten)]
    pub callchains: CallchainArgs,
    /// Draw the stacks: FILE.svg, FILE.folded, -
    #[arg(long, value_name = "FILE|-", help_heading = "Output", value_parser = FlameGraph::parse)]
    pub flame_graph: Option<FlameGraph>,
    /// Draw the lengths over time: FILE.svg, or - as text
    #[arg(long, value_name = "FILE|-", help_heading = "Output", value_parser = Heatmap::parse)]
    pub heatmap: Option<Heatmap>,
}

// clap takes a field of type Vec for an option that repeats; these lists are one value.
macro_rules! list_value {
    ($name:ident, $item:ty, $parse:expr) => {
        #[derive(Clone, Debug)]
        pub struct $name(pub Vec<$item>);

        impl $name {
            pub fn parse(text: &str) -> Result<$name, String> {
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
    /// `-g`
    pub fn stacks(&self) -> bool {
        self.view.call_graph.is_some()
    }

    pub fn draws_stacks(&self) -> bool {
        self.view.flame_graph.is_some()
    }

    /// True when only a flame graph is wanted: no option asks for other output.
    pub fn only_draws(&self) -> bool {
        let draws = self.view.flame_graph.as_ref().is_some_and(|flame| flame.path().is_some());
        draws && !self.stacks() && !self.run.json && self.run.output.is_none()
    }

    /// `-v`
    pub fn verbose(&self) -> bool {
        self.run.verbose
    }

    /// The option that was given to select tasks.
    pub fn names_tasks(&self) -> Option<&'static str> {
        let given = [
            ("-p", self.run.pids.is_some()),
            ("-t", self.run.tids.is_some()),
            ("--cgroups", self.run.cgroups.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// True when a command to run was given.
    pub fn runs_command(&self) -> bool {
        !self.run.workload.is_empty()
    }

    /// Refuses options that select tasks, for a profiler that watches whole CPUs.
    ///
    /// # Errors
    /// Such an option was given.
    pub fn refuse_tasks(&self, profiler: &str) -> Result<()> {
        match self.names_tasks() {
            None => Ok(()),
            Some(option) => {
                Err(usage(format!("{option} names tasks, but {profiler} watches whole CPUs: choose those with -C")))
            }
        }
    }

    /// Requires a target, for a profiler that cannot watch all tasks. `what`: subject of the error message; `reason`:
    /// the rest of the sentence.
    ///
    /// # Errors
    /// No option names tasks, and there is no command.
    pub fn require_tasks(&self, what: &str, reason: &str) -> Result<()> {
        if self.names_tasks().is_some() || self.runs_command() {
            return Ok(());
        }
        Err(usage(format!("{what}: -p PID or NAME, -t TID, --cgroups NAME, or a program to run, {reason}")))
    }
}

impl RunArgs {
    pub fn interval(&self) -> Option<Duration> {
        self.interval.map(|time| Duration::from_nanos(time.0))
    }

    /// A sentence for each given option that has no effect, since it names what perf-prof always does.
    pub fn always_so(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (self.order, "--order: events are always in the order of their times"),
            (self.monotonic, "--monotonic: times are always those of CLOCK_MONOTONIC"),
        ];
        given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, line)| line)
    }
}
