//! `trace`: selected events, one line each, as they happen.
//!
//! Events: those of `-e`, period 1, on the tasks of the answer. Cost: one record per event.

use anyhow::{Context as _, Result, bail};

use crate::cli::{CommonArgs, FlameArgs, usage};
use crate::event::selector::{self, Head, Selector};
use crate::output::flame::FlameGraph;
use crate::perf::Sample;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{EventId, FILTER_MAX};
use crate::profiler::{Context, Profiler, Report, Setup, Timestamp};
use crate::profilers::ProfilerArgs;
use crate::stats::value::Subject;
use crate::tep::filter::Filter;
use crate::tep::format::Format;

/// Show events as they happen, with their fields
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who starts what:
    perf-prof trace -e sched:sched_process_exec
  Who sends SIGKILL, with the stack:
    perf-prof trace -e 'signal:signal_generate/sig==9/' -g
  Several events of one process, a stack for one of them only:
    perf-prof trace -e 'block:*,sched:sched_wakeup//stack/' -p nginx
  From where the kernel allocates pages, as a picture:
    perf-prof trace -e kmem:mm_page_alloc --flame-graph pages.svg --for 5 -o /dev/null
  The first ten D waits of a command:
    perf-prof trace -e 'sched:sched_switch/prev_state==2/' -N 10 -- ./job

An event is sys:name[/FILTER/ATTR/...]; `perf-prof list` shows what there is.
Attributes: stack, max-stack=N, alias=NAME, cpus=LIST.")]
pub struct TraceArgs {
    /// The events: sys:name[/FILTER/ATTR/...], patterns, comma lists
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", required = true)]
    events: Vec<String>,
    /// A condition for every event of -e, such as 'pid==1'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Show the callchain of each event
    #[arg(short = 'g', long = "call-graph")]
    stacks: bool,
    #[command(flatten)]
    flame: FlameArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// The system of ftrace's own records, which have formats but no tracepoint.
const NO_TRACEPOINTS: &str = "ftrace:";

/// Of these, an event bound to a task shows only those in which it is the current one.
const HALF_SEEN: [&str; 4] =
    ["sched:sched_switch", "sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_waking"];

/// What is kept per event.
#[derive(Debug)]
struct Traced {
    event: EventId,
    format: std::sync::Arc<Format>,
    /// As typed, not yet with ours.
    filter: Option<Filter>,
    /// Evaluated here because the kernel does not take so long a text.
    here: Option<Filter>,
    /// Its callchain is shown, not only drawn.
    shows_stack: bool,
}

/// The profiler behind [`TraceArgs`].
#[derive(Debug)]
pub struct Trace {
    selectors: Vec<Selector>,
    filter: Option<String>,
    /// `-g`
    shows_stacks: bool,
    draws_stacks: bool,
    traced: Vec<Traced>,
    /// Events of a pattern that the filter does not fit.
    unfit: Vec<String>,
}

impl ProfilerArgs for TraceArgs {
    const NAME: &'static str = "trace";
    const WEIGHT: &'static str = "events";

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn stacks(&self) -> bool {
        self.stacks
    }

    fn flame_graph(&self) -> Option<FlameGraph> {
        self.flame.flame_graph.clone()
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let mut selectors = Vec::new();
        for text in &self.events {
            selectors.extend(selector::parse(text).map_err(|err| usage(format!("-e: {err}")))?);
        }
        Ok(Box::new(Trace {
            selectors,
            filter: self.filter,
            shows_stacks: self.stacks,
            draws_stacks: false,
            traced: Vec::new(),
            unfit: Vec::new(),
        }))
    }
}

impl Trace {
    fn add(&mut self, name: &str, selector: &Selector, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        if name.starts_with(NO_TRACEPOINTS) {
            bail!("{name} belongs to ftrace itself: it is no tracepoint that could be opened");
        }
        let (mut evsel, format) = setup.tracepoint(name)?;
        let text = both(selector.filter.as_deref(), self.filter.as_deref());
        let filter = match text.as_deref().map(|text| Filter::parse(text, &format)).transpose() {
            // A pattern means those of its events that the filter fits.
            Err(err) if selector.has_wildcard() && err.is_unknown_field() => {
                self.unfit.push(name.to_owned());
                return Ok(());
            }
            filter => filter.map_err(|err| setup.filter_error(err, &format))?,
        };
        if HALF_SEEN.contains(&name) && !setup.watched.is_all() {
            setup.warn(format!(
                "{name} is shown where a watched task is the current one: for its other half use task-state, or a filter on \
                 a pid field without -p"
            ));
        }
        if setup.stacks || selector.attrs.stack {
            evsel = evsel.callchain(selector.attrs.max_stack.unwrap_or(0));
        }
        evsel = evsel
            .optional(selector.has_wildcard())
            .cpus(selector.attrs.cpus.clone())
            .printed(selector.attrs.alias.clone());
        let event = evlist.add(evsel)?;
        let shows_stack = self.shows_stacks || selector.attrs.stack;
        self.traced.push(Traced { event, format, filter, here: None, shows_stack });
        Ok(())
    }
}

/// Two conditions, either of which may be absent.
fn both(one: Option<&str>, other: Option<&str>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("({one} ) && ({other} )")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

impl Profiler for Trace {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.draws_stacks = setup.flame_graph;
        for selector in std::mem::take(&mut self.selectors) {
            let Head::Tracepoint { system, name } = &selector.head else {
                bail!("{}: probes are not supported yet, only tracepoints (system:name)", selector.head);
            };
            let pattern = format!("{system}:{name}");
            if !selector.has_wildcard() {
                self.add(&pattern, &selector, evlist, setup)?;
                continue;
            }
            let mut names = setup.tracefs.get()?.matching(&pattern)?;
            names.retain(|name| !name.starts_with(NO_TRACEPOINTS));
            if names.is_empty() {
                bail!("no event matches {pattern:?}; `perf-prof list` shows what there is");
            }
            setup.note(format!("{pattern} is {}", names.join(" ")));
            let count = names.len();
            for name in names {
                self.add(&name, &selector, evlist, setup)?;
            }
            let unfit = std::mem::take(&mut self.unfit);
            if unfit.len() == count {
                bail!("no event of {pattern:?} has the fields that the filter asks for");
            }
            if !unfit.is_empty() {
                setup.warn(format!("left out of {pattern}, without the fields of the filter: {}", unfit.join(" ")));
            }
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        for traced in &mut self.traced {
            let ours = if has_second_party(&traced.format) { None } else { Some(setup.not_ourselves()) };
            let text = match (&traced.filter, ours) {
                // The blank: the kernel reads a function name (.function) up to the next one.
                (Some(filter), Some(ours)) => format!("({} ) && {ours}", filter.text()),
                (Some(filter), None) => filter.text().to_owned(),
                (None, Some(ours)) => ours,
                (None, None) => continue,
            };
            if text.len() > FILTER_MAX {
                setup.note(format!(
                    "{}: the filter is too long for the kernel, it is evaluated here",
                    traced.format.full_name()
                ));
                traced.here = traced.filter.take();
                if !has_second_party(&traced.format) {
                    evlist.set_filter(traced.event, setup.not_ourselves())?;
                }
            } else {
                evlist.set_filter(traced.event, text)?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context<'_>) -> Result<()> {
        let comm = ctx.tasks.comm(sample.tid);
        let first = self.traced.first().map_or(0, |traced| traced.event.index());
        let at = event.index().checked_sub(first).context("an event of another profiler")?;
        let traced = self.traced.get(at).context("an event of another profiler")?;
        if let Some(filter) = &traced.here
            && filter.matches(sample.raw, comm.as_bytes(), sample.cpu) == Some(false)
        {
            ctx.ignored = true;
            return Ok(());
        }
        let stack = ctx.stack(sample);
        if self.draws_stacks {
            ctx.weigh(sample.pid, comm, stack, 1);
        }
        let stack = stack.filter(|_| traced.shows_stack);
        let subject = Subject { time: sample.time, cpu: sample.cpu, pid: sample.pid, tid: sample.tid, comm };
        ctx.emit_event(subject, event, sample.raw, stack);
        Ok(())
    }

    fn interval(&mut self, _now: Timestamp, _report: &mut Report) -> Result<()> {
        Ok(()) // every event was shown when it came
    }
}

/// An event about another task than the current one must be seen even when we cause it.
fn has_second_party(format: &Format) -> bool {
    format
        .user_fields()
        .any(|field| field.name == "pid" || field.name.ends_with("_pid") || field.name == "tid" || field.name == "comm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_joined() {
        let cases = [
            (None, None, None),
            (Some("a==1"), None, Some("a==1")),
            (None, Some("b"), Some("b")),
            (Some("a||b"), Some("c"), Some("(a||b ) && (c )")),
        ];
        for (one, other, want) in cases {
            assert_eq!(both(one, other).as_deref(), want);
        }
    }

    #[test]
    fn knows_events_about_others() {
        let parse = |field: &str| {
            Format::parse(
                "x",
                &format!(
                    "name: y\nID: 1\nformat:\n\tfield:int {field};\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n"
                ),
            )
            .unwrap()
        };
        for (field, want) in [("pid", true), ("next_pid", true), ("nr", false)] {
            assert_eq!(has_second_party(&parse(field)), want, "{field}");
        }
    }
}
