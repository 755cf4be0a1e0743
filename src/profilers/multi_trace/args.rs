//! The options of `multi-trace`.

use anyhow::Result;

use crate::cli::values::{self, Time};
use crate::cli::{CommonArgs, LatencyArgs, usage};
use crate::event::{RELATION_ATTRS, Selector, selector};
use crate::expr::Expr;
use crate::profiler::{Profiler, ProfilerArgs};
use crate::profilers::multi_trace::detail::{self, DetailArgs};
use crate::profilers::multi_trace::{MultiTrace, report};
use crate::relation::Positions;
use crate::report::{OccurrenceLayout, TableSchema};

/// How long it takes from one event to another
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  How long block requests of one disk take; of several, -k '(dev<<36)+sector':
    perf-prof multi-trace -e block_rq_insert -e block_rq_complete -k sector
  Softirqs that take over 100 us, and what happened meanwhile on that CPU:
    perf-prof multi-trace -e softirq_entry -e softirq_exit --than 100us --detail
  The longest life of a process so far, and who started it:
    perf-prof multi-trace -e task_newtask -e sched_process_exit -k pid --worst
  The time from one timer interrupt to the next on each CPU:
    perf-prof multi-trace -e local_timer_entry --cycle --perins -i 1000
  How long a function of a program takes:
    perf-prof multi-trace -e uprobe:malloc -e uretprobe:malloc -p nginx --for 10

Each -e is a position: an event of one that is followed by one of the next,
under the same key, is a pair. Events have the same key if -k, or their
attribute key=, has the same value; without one it is the CPU, with -p and -t
the thread.
Attributes: key=EXPR, printkey=EXPR, role=EXPR (1 may start, 2 may end a pair),
untraced (only shown with --detail), trigger (reports now), alias=NAME, stack,
max-stack=N, cpus=LIST.")]
pub struct MultiTraceArgs {
    /// The events of a position, sys:name[/FILTER/ATTR/...]
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", required = true)]
    events: Vec<String>,
    /// What events of a pair have in common, as an expression over their fields
    #[arg(short = 'k', long, value_name = "EXPR")]
    key: Option<String>,
    /// What is asked: delay (how long), pair (how many)
    #[arg(long = "impl", value_name = "WHAT", value_parser = analysis, default_value = "delay")]
    analysis: Analysis,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// And the records between the two: -10us, +10us, samecpu, samepid, sametid, samekey, 1, 2, hide<10us
    #[arg(long, value_name = "WHICH,...", value_parser = detail::parse, num_args = 0..=1, require_equals = true,
        default_missing_value = "", allow_hyphen_values = true)]
    detail: Option<DetailArgs>,
    /// A row for each key
    #[arg(long)]
    perins: bool,
    /// The first position follows the last
    #[arg(long)]
    cycle: bool,
    /// Also the longest of each row in the whole run, with its stack
    #[arg(long)]
    worst: bool,
    /// Pairs that take longer are not waited for, in s, or as 500ms
    #[arg(long, value_name = "TIME", value_parser = values::time_s)]
    expire: Option<Time>,
    /// List all rows, not only the 20 with the most time
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// What is computed from the pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Analysis {
    #[default]
    Delay,
    Pair,
}

fn analysis(text: &str) -> Result<Analysis, String> {
    match text {
        "delay" => Ok(Analysis::Delay),
        "pair" => Ok(Analysis::Pair),
        "syscalls" => Err("use `perf-prof syscalls`".to_owned()),
        "kmemprof" => Err("use `perf-prof kmemleak`, or `perf-prof top` with top-by=".to_owned()),
        _ => Err("one of delay, pair".to_owned()),
    }
}

/// The options about pairs.
#[derive(Clone, Debug, Default)]
pub struct PairQuestion {
    pub key: Option<Expr>,
    pub analysis: Analysis,
    pub lengths: LatencyArgs,
    pub detail: Option<DetailArgs>,
    pub by_key: bool,
    pub is_cycle: bool,
    pub shows_worst: bool,
    pub expire_ns: Option<u64>,
    /// Most rows in text.
    pub most_rows: usize,
    pub draws_stacks: bool,
}

/// Most rows in text without `--all`.
const ROWS: usize = 20;

impl ProfilerArgs for MultiTraceArgs {
    const NAME: &'static str = "multi-trace";
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(report::DELAY.layout());
    const TABLES: &'static [&'static dyn TableSchema] =
        &[&report::DELAYS, &report::PAIRS, &report::WAITING, &report::WORST];
    const WEIGHT: &'static str = "us";
    const TRIAL: &'static [&'static str] = &["-e", "sched:sched_process_exec", "-e", "sched:sched_process_exit"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(MultiTrace::of(self.positions()?, self.question()?)))
    }
}

impl MultiTraceArgs {
    /// The selectors of each position.
    fn positions(&self) -> Result<Vec<Vec<Selector>>> {
        let mut positions: Vec<Vec<Selector>> = Vec::new();
        for text in &self.events {
            let selectors = selector::parse_with(text, &RELATION_ATTRS).map_err(|err| usage(format!("-e: {err}")))?;
            if selectors.iter().all(|selector| selector.attrs.has("untraced")) {
                return Err(usage(format!("-e {text}: all of its events are untraced, and nothing is left to pair")));
            }
            positions.push(selectors);
        }
        if positions.len() > usize::from(Positions::LIMIT) {
            return Err(usage(format!("-e: {} positions, the limit is {}", positions.len(), Positions::LIMIT)));
        }
        if positions.len() == 1 && !(self.cycle && self.analysis == Analysis::Delay) {
            return Err(usage(
                "-e: one position has no pairs: give the event that ends them with another -e, or --cycle for the time \
                 from each event to the next",
            ));
        }
        Ok(positions)
    }

    fn question(self) -> Result<PairQuestion> {
        if self.detail.is_some() && !self.lengths.shows_any() {
            return Err(usage("--detail: of which pairs? add --than TIME, --only-than TIME or --lower TIME"));
        }
        let key = self.key.as_deref().map(Expr::parse).transpose().map_err(|err| usage(format!("-k: {err}")))?;
        Ok(PairQuestion {
            key,
            analysis: self.analysis,
            lengths: self.lengths,
            detail: self.detail,
            by_key: self.perins,
            is_cycle: self.cycle,
            shows_worst: self.worst,
            expire_ns: self.expire.map(|time| time.0),
            most_rows: if self.all { usize::MAX } else { ROWS },
            draws_stacks: self.common.draws_stacks(),
        })
    }
}
