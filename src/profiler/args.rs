//! The options of a profiler, for code that handles all profilers alike: the command line, and `doctor`.

use anyhow::Result;

use crate::cli::CommonArgs;
use crate::cli::values::Time;
use crate::profiler::Profiler;
use crate::report::{OccurrenceLayout, TableSchema};

/// The options of a subcommand that is a profiler.
pub trait ProfilerArgs {
    const NAME: &'static str;
    /// The layout of the profiler's occurrences, for the documentation. None: it has no occurrences of its own kind.
    const OCCURRENCES: Option<&'static OccurrenceLayout> = None;
    /// The profiler's tables, for the documentation.
    const TABLES: &'static [&'static dyn TableSchema] = &[];
    /// The unit of the widths in the profiler's flame graph.
    const WEIGHT: &'static str = "samples";
    /// The options with which `doctor` tries the profiler: as few as possible, with a common event if one must be
    /// named.
    const TRIAL: &'static [&'static str] = &[];

    /// The profiler must report while a CPU is stuck: the run keeps its threads off such CPUs, waits for no CPU, and
    /// writes each line at once.
    const PACED: bool = false;
    /// The profiler's few lines must survive a crash of the machine: each is synced to the disk.
    const DURABLE: bool = false;

    /// The default of `-i`. None: the profiler reports once, at the end.
    const INTERVAL: Option<Time> = None;

    /// Options with which the kernel writes fewer samples of the most frequent event, the one that keeps most of the
    /// answer first.
    const NARROWINGS: &'static [&'static str] = &["-p PID", "-C CPUS"];

    /// The profiler has tables, not only lines for occurrences.
    const REPORTS: bool = true;

    fn common(&mut self) -> &mut CommonArgs;

    /// Makes the profiler from its options.
    ///
    /// # Errors
    /// Options that contradict each other, or that do not parse.
    fn build(self) -> Result<Box<dyn Profiler>>;
}

/// A profiler that `doctor` tries.
pub struct Trial {
    pub name: &'static str,
    /// The options of the trial.
    pub options: &'static [&'static str],
    pub occurrences: Option<&'static OccurrenceLayout>,
    pub tables: &'static [&'static dyn TableSchema],
    /// Makes the profiler from its options.
    pub build: fn(&[&str]) -> Result<Box<dyn Profiler>>,
}

impl Trial {
    pub fn of<A: ProfilerArgs + clap::Args>() -> Trial {
        let build = |options: &[&str]| {
            let command = A::augment_args(clap::Command::new(A::NAME).no_binary_name(true));
            A::from_arg_matches(&command.try_get_matches_from(options)?)?.build()
        };
        Trial { name: A::NAME, options: A::TRIAL, occurrences: A::OCCURRENCES, tables: A::TABLES, build }
    }
}
