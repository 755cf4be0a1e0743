//! `run`: several profilers over one set of events.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches};

use crate::cli::{RunArgs, usage};
use crate::commands::{Cli, Subcommand, execute, faults, start_workers};
use crate::profiler::Profiler;
use crate::run::{Options, SEVERAL, ViewOptions};

const EXAMPLES: &str = "\
Examples:
  perf-prof run -i 1000 'task-state' 'profile -F 99' 'signal'
  perf-prof run -p nginx --for 10 'task-state -D --than 20 -g' 'profile -g'
  perf-prof run --json 'name=disk task-state -D' 'name=late rundelay --than 5ms'
  perf-prof run -i 1000 'task-state --perins' 'page-faults' -- make -j8

Options of the run (-p, -C, -i, -m, -o, --json, --for) stand outside of the
views; -N, --than, -g and all others of a profiler in its view.";

/// Several profilers at once, over one set of events
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RunViewsArgs {
    /// Command lines of profilers, each in quotes; name=NAME in front gives a view a name of its own
    #[arg(required = true, value_name = "VIEW")]
    views: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// Limit of the views of a run.
const MAX_VIEWS: usize = 64;

impl RunViewsArgs {
    /// Runs the views to the end. Returns the exit code.
    ///
    /// # Errors
    /// A view that does not parse; what cannot work here.
    pub fn run(self) -> Result<u8> {
        let _forked = start_workers();
        let (options, profilers) = self.into_run()?;
        execute(options, profilers)
    }

    pub(super) fn into_run(self) -> Result<(Options, Vec<Box<dyn Profiler>>)> {
        let RunViewsArgs { mut run, views } = self;
        if views.len() > MAX_VIEWS {
            return Err(usage(format!("there are {} views, a run has up to {MAX_VIEWS}", views.len())));
        }
        let in_view = |text: &String| format!("view '{text}'");
        let parsed: Vec<(&String, ParsedView)> = views
            .iter()
            .map(|text| Ok((text, ParsedView::parse(text).with_context(|| in_view(text))?)))
            .collect::<Result<_>>()?;
        // All views report together, at the shortest default interval among them.
        run.interval = run.interval.or(parsed.iter().filter_map(|(_, view)| view.profiler.default_interval()).min());
        let built: Vec<(ViewOptions, Box<dyn Profiler>)> = parsed
            .into_iter()
            .map(|(text, view)| view.build(&run).with_context(|| in_view(text)))
            .collect::<Result<_>>()?;
        let (options, profilers): (Vec<ViewOptions>, Vec<Box<dyn Profiler>>) = built.into_iter().unzip();
        check_names(&options)?;
        Ok((Options::new(run, options)?, profilers))
    }
}

/// The command line of a view.
#[derive(Debug)]
struct ParsedView {
    /// None: the view has the name of the profiler.
    name: Option<String>,
    profiler: Subcommand,
}

impl ParsedView {
    fn parse(text: &str) -> Result<ParsedView> {
        let mut words = shlex::split(text).ok_or_else(|| usage("a quote or a backslash at the end has no partner"))?;
        let name = words.first().and_then(|word| word.strip_prefix("name=")).map(str::to_owned);
        if name.is_some() {
            words.remove(0);
        }
        let args: Vec<OsString> = ["perf-prof".to_owned()].into_iter().chain(words).map(OsString::from).collect();
        let matches = faults::parse_inner(Cli::command(), &args)?;
        refuse_run_options(&matches)?;
        Ok(ParsedView { name, profiler: Subcommand::from_arg_matches(&matches)? })
    }

    /// The profiler, with its options.
    fn build(self, run: &RunArgs) -> Result<(ViewOptions, Box<dyn Profiler>)> {
        let Some((options, profiler)) = self.profiler.into_view(run)? else {
            return Err(usage("it is no profiler"));
        };
        Ok((ViewOptions { name: self.name.unwrap_or(options.name), ..options }, profiler))
    }
}

/// Refuses options of the run in the command line of a view.
fn refuse_run_options(matches: &ArgMatches) -> Result<()> {
    let Some((profiler, matches)) = matches.subcommand() else { return Ok(()) };
    let of_run = RunArgs::augment_args(Command::new("x"));
    let is_given =
        |id: &str| matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine);
    let Some(given) = of_run.get_arguments().find(|arg| is_given(arg.get_id().as_str())) else { return Ok(()) };
    let option = match (given.get_short(), given.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (_, Some(long)) => format!("--{long}"),
        _ => "a command behind --".to_owned(),
    };
    Err(usage(format!("{option} belongs to the whole run: `perf-prof run {option} ... '{profiler} ...'`")))
}

/// Refuses views that would have the same name.
fn check_names(views: &[ViewOptions]) -> Result<()> {
    for (at, view) in views.iter().enumerate() {
        let name = &view.name;
        if name.is_empty() || name == SEVERAL || name.chars().any(char::is_control) {
            return Err(usage(format!("name={name} names no view: it is empty, a word of perf-prof, or not text")));
        }
        if views[..at].iter().any(|other| other.name == *name) {
            return Err(usage(format!(
                "two views are named {name}: give one of them another, as in 'name={name}2 {} ...'",
                view.profiler
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str, run: &RunArgs) -> Result<(ViewOptions, Box<dyn Profiler>)> {
        ParsedView::parse(text)?.build(run)
    }

    fn fault(text: &str) -> String {
        view(text, &RunArgs::default()).err().map_or_else(String::new, |err| format!("{err:#}"))
    }

    #[test]
    fn a_view_is_a_command_line() {
        let (options, _) = view("name='my disk' task-state -D --than 100 -g -N 3", &RunArgs::default()).unwrap();
        assert_eq!((options.name.as_str(), options.profiler), ("my disk", "task-state"));
        assert_eq!((options.shows_stacks, options.samples), (true, Some(3)));
        assert_eq!(view("profile", &RunArgs::default()).unwrap().0.name, "profile");
    }

    #[test]
    fn what_is_no_view_is_told_in_a_sentence() {
        let cases = [
            ("", "the name of a profiler is missing"),
            ("task-state 'x", "a quote or a backslash at the end has no partner"),
            ("tarce", "there is no subcommand 'tarce'; did you mean trace?"),
            ("task-state -D -i 100", "-i belongs to the whole run: `perf-prof run -i ... 'task-state ...'`"),
            ("profile -- make", "a command behind -- belongs to the whole run"),
            ("profile --json", "--json belongs to the whole run"),
            ("list sched", "it is no profiler"),
            ("run profile", "it is no profiler"),
            ("watchdog", "watchdog runs alone"),
            ("irq-off", "irq-off runs alone"),
            ("profile -h", "help is not given here"),
        ];
        for (text, want) in cases {
            assert!(fault(text).starts_with(want), "{text:?}: {}", fault(text));
        }
    }

    #[test]
    fn names_of_views_differ() {
        let named = |names: &[&str]| {
            let views = names.iter().map(|name| view(&format!("name={name} profile"), &RunArgs::default()).unwrap().0);
            check_names(&views.collect::<Vec<_>>()).map_err(|err| err.to_string())
        };
        assert!(named(&["a", "b"]).is_ok());
        assert!(named(&["a", "b", "a"]).unwrap_err().contains("two views are named a"));
        assert!(named(&["run"]).is_err() && named(&["''"]).is_err());
    }
}
