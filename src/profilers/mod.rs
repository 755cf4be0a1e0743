//! The subcommands. Adding one means its file, its line in `profilers!`, its docs page and its tests.

pub mod completions;
pub mod doctor;
pub mod irq_off;
pub mod kmemleak;
pub mod list;
pub mod man;
pub mod profile;
pub mod signal;
pub mod split_lock;
pub mod task_state;
pub mod trace;
pub mod watchdog;

use anyhow::Result;

use crate::cli::CommonArgs;
use crate::profiler::Profiler;
use crate::run::{Options, Outcome, Run};

/// The options of a subcommand that is a profiler.
pub trait ProfilerArgs {
    const NAME: &'static str;
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

/// Runs a profiler to its end. Returns the exit code.
fn run<A: ProfilerArgs>(args: A) -> Result<u8> {
    const UNWRITTEN: u8 = 1;
    const STRICT_LOSS: u8 = 3;
    let common = args.common().clone();
    let strict = common.strict_loss();
    let dry_run = common.dry_run();
    let profiler = args.build()?;
    let run = Run::new(options::<A>(common)?, vec![profiler])?;
    if dry_run {
        return run.forecast();
    }
    let outcome = run.start()?;
    Ok(match outcome {
        Outcome { unwritten: true, .. } => UNWRITTEN,
        Outcome { lost: 1.., .. } if strict => STRICT_LOSS,
        _ => 0,
    })
}

/// The options of a run, with what the profiler asks of it.
fn options<A: ProfilerArgs>(common: CommonArgs) -> Result<Options> {
    let options = common.options(A::NAME, A::WEIGHT)?;
    Ok(Options { paced: A::PACED, durable: A::DURABLE, reports: A::REPORTS, ..options })
}

/// A profiler as `doctor` tries it.
pub struct Trial {
    pub name: &'static str,
    /// The options it is tried with.
    pub options: &'static [&'static str],
    /// Makes the profiler from its options.
    pub build: fn(&[&str]) -> Result<Box<dyn Profiler>>,
}

impl Trial {
    fn of<A: ProfilerArgs + clap::Args>() -> Trial {
        let build = |options: &[&str]| {
            let command = A::augment_args(clap::Command::new(A::NAME).no_binary_name(true));
            A::from_arg_matches(&command.try_get_matches_from(options)?)?.build()
        };
        Trial { name: A::NAME, options: A::TRIAL, build }
    }
}

macro_rules! profilers {
    ($($(#[$attr:meta])* $name:ident($args:ty),)*) => {
        #[derive(Debug, clap::Subcommand)]
        #[allow(clippy::large_enum_variant)] // there is one of it, parsed once
        pub enum Command {
            $($(#[$attr])* $name($args),)*
            List(list::ListArgs),
            Doctor(doctor::DoctorArgs),
            Completions(completions::CompletionsArgs),
            Man(man::ManArgs),
        }

        /// Every profiler.
        pub fn trials() -> Vec<Trial> {
            vec![$(Trial::of::<$args>(),)*]
        }

        impl Command {
            /// Runs the subcommand. Returns the exit code.
            ///
            /// # Errors
            /// What cannot work here, with the cure.
            pub fn run(self) -> Result<u8> {
                match self {
                    $(Command::$name(args) => run(args),)*
                    Command::List(args) => args.run(),
                    Command::Doctor(args) => args.run(),
                    Command::Completions(args) => args.run(),
                    Command::Man(args) => args.run(),
                }
            }
        }
    };
}

profilers! {
    IrqOff(irq_off::IrqOffArgs),
    Kmemleak(kmemleak::KmemleakArgs),
    Profile(profile::ProfileArgs),
    Signal(signal::SignalArgs),
    SplitLock(split_lock::SplitLockArgs),
    TaskState(task_state::TaskStateArgs),
    Trace(trace::TraceArgs),
    Watchdog(watchdog::WatchdogArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced_and_durable<A: ProfilerArgs + clap::Args>() -> (bool, bool) {
        let command = A::augment_args(clap::Command::new(A::NAME).no_binary_name(true));
        let args = A::from_arg_matches(&command.try_get_matches_from(A::TRIAL).unwrap()).unwrap();
        let options = options::<A>(args.common().clone()).unwrap();
        (options.paced, options.durable)
    }

    #[test]
    fn only_lines_that_are_few_wait_for_the_disk() {
        assert_eq!(paced_and_durable::<watchdog::WatchdogArgs>(), (true, true));
        assert_eq!(paced_and_durable::<irq_off::IrqOffArgs>(), (true, false));
        assert_eq!(paced_and_durable::<profile::ProfileArgs>(), (false, false));
    }
}
