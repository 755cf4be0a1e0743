//! The subcommands: the profilers, which all run in the same way, and commands such as `list` and `doctor`.

pub mod completions;
pub mod doctor;
pub mod faults;
pub mod list;
pub mod man;
mod older;
pub mod run;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::cli::values::Time;
use crate::cli::{RunArgs, usage};
use crate::file;
use crate::host::Host;
use crate::outside;
use crate::profiler::{self, Profiler, ProfilerArgs};
use crate::profilers;
use crate::run::{Options, Outcome, Run, ViewOptions};
use crate::symbol;
use crate::sys;
use crate::sys::process::reap_all_within;
use crate::task::{self, procfs};

/// Columns of the help: enough for an example, and no more than any terminal has.
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
  Several of these at once?         perf-prof run -i 1000 'task-state' 'profile'
  Which events are there?           perf-prof list sched

`perf-prof COMMAND -h` has the options of a command and examples. Ctrl-C ends
a run with its last report. Nearly everything needs root.";

/// Who is stuck, who uses the CPUs, and why: live answers from perf events
#[derive(Debug, Parser)]
#[command(name = "perf-prof", version, max_term_width = WIDTH, arg_required_else_help = true, subcommand_required = true, subcommand_value_name = "COMMAND", after_help = QUESTIONS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Subcommand,
}

/// What each exit code means.
pub const EXIT_CODES: [(u8, &str); 4] = [
    (0, "The run ended as asked: Ctrl-C, -N, --for, the end of the command after --, or of the reader of a pipe."),
    (1, "A valid command that cannot run here, or had to stop: no such event, CPU or process, no privilege."),
    (2, "Text that does not parse: an option, number, unit, event or filter; or a missing option."),
    (3, "With --strict-loss: something was lost."),
];

macro_rules! commands {
    ($($name:ident($module:ident::$args:ident),)*) => {
        #[derive(Debug, clap::Subcommand)]
        #[allow(clippy::large_enum_variant)] // one value, parsed once
        pub enum Subcommand {
            $($name(profilers::$module::$args),)*
            Run(run::RunViewsArgs),
            List(list::ListArgs),
            Doctor(doctor::DoctorArgs),
            Completions(completions::CompletionsArgs),
            Man(man::ManArgs),
        }

        impl Subcommand {
            /// Runs the subcommand. Returns the exit code.
            ///
            /// # Errors
            /// The command cannot work on this machine; the error says what to do.
            pub fn run(self) -> Result<u8> {
                match self {
                    $(Subcommand::$name(args) => run(args),)*
                    Subcommand::Run(args) => args.run(),
                    Subcommand::List(args) => args.run(),
                    Subcommand::Doctor(args) => args.run(),
                    Subcommand::Completions(args) => args.run(),
                    Subcommand::Man(args) => args.run(),
                }
            }

            /// The profiler's default for `-i`. None: the profiler reports once, or the subcommand is no profiler.
            fn default_interval(&self) -> Option<Time> {
                match self {
                    $(Subcommand::$name(_) => <profilers::$module::$args>::INTERVAL,)*
                    _ => None,
                }
            }

            /// The options and the profilers of the run that the subcommand starts. None: it starts no run.
            ///
            /// # Errors
            /// Options that contradict each other; a target that does not exist.
            fn into_run(self) -> Result<Option<(Options, Vec<Box<dyn Profiler>>)>> {
                match self {
                    $(Subcommand::$name(args) => into_run(args).map(Some),)*
                    Subcommand::Run(args) => args.into_run().map(Some),
                    _ => Ok(None),
                }
            }

            /// The profiler as a view of a run with these options. None: the subcommand is no profiler.
            ///
            /// # Errors
            /// Options that contradict each other, or a profiler that must run alone.
            fn into_view(self, run: &RunArgs) -> Result<Option<(ViewOptions, Box<dyn Profiler>)>> {
                match self {
                    $(Subcommand::$name(args) => view(args, run).map(Some),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

profilers::profilers!(commands);

/// Runs a profiler to its end. Returns the exit code.
fn run<A: ProfilerArgs>(args: A) -> Result<u8> {
    let _forked = start_workers();
    let (options, profilers) = into_run(args)?;
    execute(options, profilers)
}

fn into_run<A: ProfilerArgs>(mut args: A) -> Result<(Options, Vec<Box<dyn Profiler>>)> {
    let run = &mut args.common().run;
    run.interval = run.interval.or(A::INTERVAL);
    let (run, view) = (run.clone(), view_options(&mut args)?);
    let profiler = args.build()?; // reports text that does not parse before a target that does not exist
    Ok((options::<A>(run, view)?, vec![profiler]))
}

/// The options and the profilers of a command line.
///
/// # Errors
/// The command line does not parse, or starts no run.
pub fn parse_run(args: &[&str]) -> Result<(Options, Vec<Box<dyn Profiler>>)> {
    let cli = Cli::try_parse_from([&["perf-prof"], args].concat())?;
    cli.command.into_run()?.context("it is no run")
}

/// Guard of the processes that a command has forked: dropping it ends them.
#[must_use]
struct ForkedProcesses;

impl Drop for ForkedProcesses {
    fn drop(&mut self) {
        /// How long the end of these processes is awaited: releasing a few tracepoints or probes takes less.
        const HOLDERS_END: Duration = Duration::from_millis(500);
        outside::stop();
        // The first process of a container may not reap children, so they are awaited here. Elsewhere processes that
        // release events and probes are not awaited.
        if procfs::is_nested(&Host::default()) {
            reap_all_within(HOLDERS_END);
        }
    }
}

/// Forks the worker processes. Must be called before there is any thread or event.
fn start_workers() -> ForkedProcesses {
    sys::raise_open_files(); // the workload gets perf-prof's original limit
    outside::start(&[task::QUESTIONS, symbol::QUESTIONS, profiler::QUESTIONS, file::QUESTIONS]);
    ForkedProcesses
}

/// Runs profilers, one for each view, to the end. Returns the exit code.
fn execute(options: Options, profilers: Vec<Box<dyn Profiler>>) -> Result<u8> {
    const UNWRITTEN: u8 = 1;
    const STRICT_LOSS: u8 = 3;
    let (strict, dry_run) = (options.strict_loss, options.dry_run);
    let run = Run::new(options, profilers)?;
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

/// The options of a run, with the settings that the profiler makes.
fn options<A: ProfilerArgs>(run: RunArgs, view: ViewOptions) -> Result<Options> {
    let options = Options::new(run, vec![view])?;
    Ok(Options { paced: A::PACED, durable: A::DURABLE, ..options })
}

/// A profiler as one of several views. The view must not have options that belong to the run.
fn view<A: ProfilerArgs>(mut args: A, run: &RunArgs) -> Result<(ViewOptions, Box<dyn Profiler>)> {
    if A::PACED {
        return Err(usage(format!("{} runs alone: its answer must not wait for what other views do", A::NAME)));
    }
    args.common().run = run.clone();
    let options = view_options(&mut args)?;
    Ok((options, args.build()?))
}

fn view_options<A: ProfilerArgs>(args: &mut A) -> Result<ViewOptions> {
    let main_table = A::TABLES.first().map_or("", |table| table.head().table);
    let of_view = &args.common().view;
    of_view.callchains.check(of_view.call_graph)?;
    let view = ViewOptions::new(of_view, A::NAME, A::WEIGHT);
    let view = ViewOptions { reports: A::REPORTS, main_table, narrowings: A::NARROWINGS, ..view };
    if view.heatmap.is_some() && !profilers::has_distribution(A::TABLES) {
        let others = profilers::trials().into_iter().filter(|other| profilers::has_distribution(other.tables));
        let others: Vec<&str> = others.map(|other| other.name).collect();
        let others = others.join(", ");
        return Err(usage(format!("--heatmap draws distributions, and {} has none: {others} have", A::NAME)));
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::profilers::{irq_off, profile, watchdog};

    #[test]
    fn the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A longer line is wrapped once more, in the middle of a sentence.
    #[test]
    fn help_has_short_lines() {
        for command in Cli::command().get_subcommands() {
            let text = command.get_after_help().map(|help| help.to_string()).unwrap_or_default();
            let long = text.lines().find(|line| line.chars().count() > WIDTH);
            assert_eq!(long, None, "{}", command.get_name());
        }
    }

    fn paced_and_durable<A: ProfilerArgs + clap::Args>() -> (bool, bool) {
        let command = A::augment_args(clap::Command::new(A::NAME).no_binary_name(true));
        let mut args = A::from_arg_matches(&command.try_get_matches_from(A::TRIAL).unwrap()).unwrap();
        let view = view_options(&mut args).unwrap();
        let options = options::<A>(args.common().run.clone(), view).unwrap();
        (options.paced, options.durable)
    }

    #[test]
    fn only_watchdog_waits_for_the_disk() {
        assert_eq!(paced_and_durable::<watchdog::WatchdogArgs>(), (true, true));
        assert_eq!(paced_and_durable::<irq_off::IrqOffArgs>(), (true, false));
        assert_eq!(paced_and_durable::<profile::ProfileArgs>(), (false, false));
    }
}
