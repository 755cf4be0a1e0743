//! What a profiler's options are to those that know no profiler: the command line, and whoever tries each of them.

use anyhow::Result;

use crate::cli::CommonArgs;
use crate::profiler::Profiler;
use crate::report::{OccurrenceLayout, TableSchema};

/// The options of a subcommand that is a profiler.
pub trait ProfilerArgs {
    const NAME: &'static str;
    /// What its occurrences are, for the documentation. None: it has none of a kind of its own.
    const OCCURRENCES: Option<&'static OccurrenceLayout> = None;
    /// Its tables, for the documentation.
    const TABLES: &'static [&'static dyn TableSchema] = &[];
    /// What the widths of its flame graph are.
    const WEIGHT: &'static str = "samples";
    /// The options of the run that `doctor` tries: as few as possible, a usual event where one must be named.
    const TRIAL: &'static [&'static str] = &[];

    /// Its answer is wanted while a CPU is stuck: the run has its threads looked after, asks nothing of any CPU, and writes
    /// each line at once.
    const PACED: bool = false;
    /// Its lines, which are few, are to survive a crash of the machine: each goes through to the disk.
    const DURABLE: bool = false;

    /// It has tables, not only lines as things happen.
    const REPORTS: bool = true;

    fn common(&self) -> &CommonArgs;

    /// The profiler with its own options.
    ///
    /// # Errors
    /// Options that contradict each other, or a text among them that does not parse.
    fn build(self) -> Result<Box<dyn Profiler>>;
}

/// A profiler as `doctor` tries it.
pub struct Trial {
    pub name: &'static str,
    /// The options it is tried with.
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
