//! The options of a profiler, for those that know no particular one: the command line, and `doctor`, which tries them
//! all.

use anyhow::Result;

use crate::cli::CommonArgs;
use crate::cli::values::Time;
use crate::profiler::Profiler;
use crate::report::{OccurrenceLayout, TableSchema};

/// The options of a subcommand that is a profiler.
pub trait ProfilerArgs {
    const NAME: &'static str;
    /// The layout of its occurrences, for the documentation. None: it has none of its own kind.
    const OCCURRENCES: Option<&'static OccurrenceLayout> = None;
    /// Its tables, for the documentation.
    const TABLES: &'static [&'static dyn TableSchema] = &[];
    /// The unit of the widths in its flame graph.
    const WEIGHT: &'static str = "samples";
    /// The options that `doctor` tries it with: as few as possible, and a common event where one must be named.
    const TRIAL: &'static [&'static str] = &[];

    /// Its answer is wanted while a CPU is stuck: the run keeps its threads off such CPUs, needs no answer from any
    /// CPU, and writes each line at once.
    const PACED: bool = false;
    /// Its lines, which are few, must survive a crash of the machine: each is synced to the disk.
    const DURABLE: bool = false;

    /// `-i`, where it is not given. None: it reports once, at the end.
    const INTERVAL: Option<Time> = None;

    /// It has tables, not only lines for occurrences.
    const REPORTS: bool = true;

    fn common(&mut self) -> &mut CommonArgs;

    /// The profiler with its own options.
    ///
    /// # Errors
    /// Options that contradict each other, or that do not parse.
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
