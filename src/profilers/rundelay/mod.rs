//! `rundelay`: who waits for a CPU, how long, and behind whom.
//!
//! Events: `sched:sched_switch`, `sched_wakeup`, `sched_wakeup_new`, `sched_waking` and `sched_migrate_task`, period 1,
//! on whole CPUs and of all tasks: events of other tasks show whom a task waits for, and how long the queues are. Cost:
//! three to four records per wait.
//!
//! The room `sched` follows the tasks and CPUs. `runners` finds the tasks that had the CPU during a wait, `account`
//! counts waits that end, `ongoing` shows waits that go on, `confined` finds tasks that may not use an idle CPU,
//! `throttle` handles cgroups with a quota, `line` and `table` lay out the results.

mod account;
mod cells;
mod confined;
mod line;
mod ongoing;
mod runners;
mod table;
mod throttle;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::values::{self, CommList};
use crate::cli::{CommonArgs, LatencyArgs, usage};
use crate::host::online_cpus;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::rundelay::cells::ThreadProcess;
use crate::profilers::rundelay::line::DELAYS;
use crate::profilers::rundelay::runners::{Policies, WaitShares};
use crate::profilers::rundelay::table::{
    BEHIND, BehindKey, BehindSum, DELAYS_OF_ALL, DELAYS_OF_THREADS, DelaySum, LONGEST, LongestWaitRow, QUEUES, QUOTAS,
    RunDelayKey, WAITING,
};
use crate::profilers::rundelay::throttle::Throttling;
use crate::report::{OccurrenceLayout, TableSchema};
use crate::sched::{CpuHistory, RunnableStacks, TaskWaits};
use crate::stats::KeyedSums;
use crate::symbol::StackId;
use crate::task::Children;
use crate::task::thread_reader::{ThreadFacts, ThreadReader};

/// Who waits for a CPU, how long, and behind whom
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  Waits of a service for a CPU of 5 ms and more, each with whom it was behind:
    perf-prof rundelay --filter 'checkout*' --than 5ms
  Every second: how long tasks wait, behind whom, and how long the queues are:
    perf-prof rundelay -i 1000
  The threads of one process, those that waited most first:
    perf-prof rundelay -p nginx --perins --for 10
  As a picture, where preempted threads lost their CPU:
    perf-prof rundelay --flame-graph lost.svg --for 10

A task waits when it was woken, is new, was preempted, or yielded. The time of
interrupts counts for the task that they interrupt.")]
pub struct RundelayArgs {
    /// Only waits of tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// A row per thread, those that waited most first
    #[arg(long)]
    perins: bool,
    /// Without the run queues: the kernel then drops the wake-ups of other tasks than those of --filter or -t
    #[arg(long)]
    no_queues: bool,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "10")]
    top: u64,
    /// The events of older scripts, which are always taken
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", value_parser = TakenEvents::parse)]
    events: Vec<TakenEvents>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Events of `-e`, which rundelay opens anyway.
#[derive(Clone, Copy, Debug)]
struct TakenEvents;

impl TakenEvents {
    fn parse(text: &str) -> Result<TakenEvents, String> {
        const TAKEN: [&str; 4] =
            ["sched:sched_switch", "sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_wakeup*"];
        match values::list(text)?.into_iter().find(|event| !TAKEN.contains(&&**event)) {
            None => Ok(TakenEvents),
            Some(other) => Err(format!(
                "rundelay takes its own events, and has no use for `{other}`: leave out -e, or see `perf-prof trace`"
            )),
        }
    }
}

impl ProfilerArgs for RundelayArgs {
    const NAME: &'static str = "rundelay";
    const TABLES: &'static [&'static dyn TableSchema] =
        &[&DELAYS_OF_ALL, &DELAYS_OF_THREADS, &LONGEST, &BEHIND, &QUOTAS, &QUEUES, &WAITING];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(DELAYS.layout());
    const WEIGHT: &'static str = "µs of waiting for a CPU";
    const NARROWINGS: &'static [&'static str] = &[];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.common.stacks() && !self.lengths.shows_any() {
            return Err(usage("-g shows the stacks of waits over a limit: add the limit, as in --than 5ms"));
        }
        Ok(Box::new(Rundelay {
            account: DelayAccount { args: self, ..DelayAccount::default() },
            ..Rundelay::default()
        }))
    }
}

/// How far an ongoing wait was shown.
#[derive(Clone, Copy, Debug, Default)]
struct Showing {
    /// When it is shown next, ns.
    again_at_ns: u64,
    /// Up to when it was shown; 0: it was not shown yet.
    until_ns: u64,
}

/// Sums over waits that have ended.
#[derive(Debug, Default)]
struct DelayAccount {
    args: RundelayArgs,
    scope: RunScope,
    delays: KeyedSums<RunDelayKey, DelaySum>,
    behind: KeyedSums<BehindKey, BehindSum>,
    /// The processes of the threads in `behind`.
    of_threads: FxHashMap<i32, ThreadProcess>,
    /// The longest wait of each kind in the run so far.
    longest: Vec<LongestWaitRow>,
    shares: WaitShares,
    policies: Policies,
    /// The processes of threads that wait now, and of those that they wait for, as of the last look.
    processes: FxHashMap<i32, ThreadProcess>,
    throttling: Throttling,
    /// The end of the last interval.
    reported_until: u64,
}

/// The profiler behind [`RundelayArgs`].
#[derive(Debug, Default)]
struct Rundelay {
    waits: TaskWaits<Showing>,
    account: DelayAccount,
    /// Reads from /proc what tasks do that had no event.
    threads: ThreadReader,
    children: Children,
    next_look: u64,
}

/// Switches that are kept for each CPU: the memory is fixed, and divided among few or many CPUs.
fn history_limit(cpus: usize) -> usize {
    const ALL_BYTES: usize = 16 << 20;
    (ALL_BYTES / CpuHistory::ENTRY_BYTES / cpus.max(1)).clamp(128, 4096)
}

impl Profiler for Rundelay {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.threads = ThreadReader::start(setup.host, ThreadFacts::State)?;
        self.account.scope = setup.scope.clone().without(self.threads.thread().as_slice());
        self.account.throttling = Throttling::new(setup.host);
        self.waits = TaskWaits::new(history_limit(online_cpus(setup.host).map_or(1, |cpus| cpus.len())));
        let stacks = if setup.stacks { RunnableStacks::Whole } else { RunnableStacks::Yields };
        self.waits.open(stacks, false, evlist, setup)?;
        if !self.waits.tells_yields() {
            setup.warn("kernel symbols are hidden: tasks that yield their CPU count as preempted".to_owned());
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let tasks = TaskMatch::new(self.account.args.filter.as_ref(), setup);
        self.waits.narrow(&tasks, self.account.args.no_queues, evlist, setup)
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        self.waits.sample(event, sample, ctx, &mut self.account)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx);
        TickOutcome { missed_switches: self.waits.model.take_missed_on(), ..TickOutcome::default() }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.waits.on(&event, ctx, &mut self.account);
        match &event {
            Event::Task { record, time, .. } => self.children.apply(record, *time, |pid| ctx.tasks.comm(pid)),
            Event::LostSide(_) => self.children.lost(),
            _ => {}
        }
        match event {
            Event::Started { now } => {
                self.account.reported_until = ctx.started_ns;
                self.look_at_proc(now, ctx);
            }
            Event::Task { record: Record::Exit(exit), .. } => {
                self.account.throttling.forget(exit.tid);
                self.threads.saw(exit.tid);
            }
            Event::TookOver { old, .. } => self.threads.saw(old),
            Event::Stopped { now } => {
                self.waits.model.drop_doubtful(now);
                ctx.view.discarded += self.waits.model.take_discarded();
                self.show_ongoing(now, true, ctx);
            }
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.waits.model.waits().filter_map(|(.., wait)| wait.stack));
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.report_tables(now, report);
        self.account.reported_until = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_older_scripts_are_taken() {
        for text in ["sched:sched_wakeup*,sched:sched_switch", "sched:sched_switch", "sched:sched_wakeup_new"] {
            assert!(TakenEvents::parse(text).is_ok(), "{text}");
        }
        for text in ["sched:sched_stat_wait", "sched:sched_switch//untraced/", "", "sched:sched_switch,x"] {
            assert!(TakenEvents::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_history_is_bounded() {
        assert_eq!([1, 2, 1 << 20].map(history_limit), [4096, 4096, 128]);
        for cpus in [8, 128, 512, 4096] {
            let bytes = cpus * history_limit(cpus) * CpuHistory::ENTRY_BYTES;
            assert!((1 << 20..=24 << 20).contains(&bytes), "{cpus} CPUs: {bytes} bytes");
        }
    }
}
