//! `oncpu`: which tasks have the CPUs, and for how long.
//!
//! Events: `sched:sched_switch`, period 1, on whole CPUs, filtered to the target's tasks; and the CPU clock ten times a
//! second, which shows the task on a CPU that has no switch at all. Cost: one record per switch.

use std::collections::BTreeMap;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::cli::values::{self, CommList, PriorityList};
use crate::cli::{CommonArgs, usage};
use crate::host::online_cpus;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use};
use crate::report::{Column, Schema, TableSchema, Value};
use crate::sched::{CpuTurn, CpuTurns, CpuUse, TurnUser};
use crate::stats::{KeyedSums, SumKey};
use crate::symbol::StackId;
use crate::task::Comm;

/// Which tasks have the CPUs, for how long, and how often
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Every second: which threads have used the CPUs, and how busy each CPU was:
    perf-prof oncpu -i 1000
  The processes that used CPU 3 in ten seconds:
    perf-prof oncpu -C 3 --by process --for 10
  On which CPUs the threads of one process ran:
    perf-prof oncpu -p nginx --per-cpu -i 1000
  Real-time tasks, and their longest stretch on a CPU:
    perf-prof oncpu --prio 0-99 -i 1000

The times are exact: from switch to switch. What interrupts take counts for the
task that they interrupt. `profile` tells in which code the time goes.")]
pub struct OncpuArgs {
    /// What has a row
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = RowTask::Thread)]
    by: RowTask,
    /// As --by comm: one row for all threads of a name
    #[arg(long, conflicts_with = "by")]
    only_comm: bool,
    /// A row for each CPU on which it ran
    #[arg(long)]
    per_cpu: bool,
    /// Only tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    /// Only tasks of these priorities, as events have them: 0-98 real-time, 100-139
    #[arg(long, value_name = "LIST", value_parser = values::priorities)]
    prio: Option<PriorityList>,
    /// So many rows of tasks at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RowTask {
    Thread,
    Process,
    Comm,
}

impl ProfilerArgs for OncpuArgs {
    const NAME: &'static str = "oncpu";
    const TABLES: &'static [&'static dyn TableSchema] = &[&ON_CPU, &BUSY];
    const NARROWINGS: &'static [&'static str] = &["-C CPUS", "--filter COMM"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(mut self) -> Result<Box<dyn Profiler>> {
        if self.common.stacks() {
            return Err(usage("oncpu tells how long tasks run, not where: profile -g does"));
        }
        if self.only_comm {
            self.by = RowTask::Comm;
        }
        let (scope, tasks, cpus) = (RunScope::default(), KeyedSums::default(), BTreeMap::new());
        Ok(Box::new(Oncpu {
            turns: CpuTurns::default(),
            rows: OnCpuRows { args: self, scope, tasks, cpus },
            is_narrowed: false,
            online: Vec::new(),
        }))
    }
}

/// The key of a row: the task or CPU whose time it has. Numbers that do not apply to a row are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OnCpuKey {
    pid: i32,
    tid: i32,
    comm: Comm,
    cpu: Option<u32>,
}

impl SumKey for OnCpuKey {
    fn others(&self) -> OnCpuKey {
        OnCpuKey { comm: Comm::new(b"<others>"), cpu: self.cpu, ..OnCpuKey::default() }
    }
}

/// CPU time and runs.
#[derive(Clone, Copy, Debug, Default)]
struct OnCpuSum {
    ns: u64,
    /// Turns on a CPU that ended.
    runs: u64,
    longest_ns: Option<u64>,
}

type OnCpuRow = (OnCpuKey, OnCpuSum);

static ON_CPU: Schema<OnCpuRow> = Schema::<OnCpuRow>::new(
    "tasks",
    &[
        Column::<OnCpuRow>::counter("cpu_ns", "CPU ms", |(_, sum)| &mut sum.ns).ns(),
        Column::<OnCpuRow>::derived("pct", "%", |(_, sum), span_ns| share(sum.ns, span_ns)).additive(),
        Column::counter("runs", "runs", |(_, sum)| &mut sum.runs),
        Column::<OnCpuRow>::greatest("max_ns", "max us", |(_, sum)| &mut sum.longest_ns).us(),
        Column::<OnCpuRow>::label("cpu", "CPU", |(key, _)| match key.cpu {
            Some(cpu) => Value::Unsigned(cpu.into()),
            None => Value::None,
        })
        .if_any(),
        Column::<OnCpuRow>::label("pid", "pid", |(key, _)| number(key.pid)).if_any(),
        Column::<OnCpuRow>::label("tid", "tid", |(key, _)| number(key.tid)).if_any(),
        Column::label("comm", "comm", |(key, _)| Value::Comm(key.comm)),
    ],
)
.explained(&[
    ("cpu_ns", "time on a CPU"),
    ("pct", "that time in percent of one CPU's"),
    ("runs", "how often a stretch on a CPU ended"),
    ("max_ns", "the longest stretch, also of one that began before the interval, or goes on"),
    ("cpu", "with `--per-cpu`, the CPU"),
    ("comm", "the name of the thread, with `--by process` that of the process"),
])
.titled("time on CPUs")
.ordered(|(one, few), (other, many)| many.ns.cmp(&few.ns).then(one.cmp(other)));

/// In hundredths of a percent.
fn share(ns: u64, span_ns: u64) -> Value {
    Value::Pct(u32::try_from(u128::from(ns) * 10_000 / u128::from(span_ns.max(1))).unwrap_or(u32::MAX))
}

/// The number as a cell; blank for 0, which is no task with a row.
fn number(number: i32) -> Value {
    if number == 0 { Value::None } else { Value::Signed(number.into()) }
}

/// How a CPU spent the interval.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTime {
    cpu: u32,
    busy_ns: u64,
    idle_ns: u64,
    /// Turns of tasks, and of the idle task, that ended.
    runs: u64,
}

static BUSY: Schema<CpuTime> = Schema::<CpuTime>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::<CpuTime>::counter("busy_ns", "busy ms", |row| &mut row.busy_ns).ns(),
        Column::derived("pct", "%", |row, span_ns| share(row.busy_ns, span_ns)),
        Column::<CpuTime>::counter("idle_ns", "idle ms", |row| &mut row.idle_ns).ns(),
        Column::<CpuTime>::derived("unseen_ns", "unseen ms", |row, span_ns| Value::Ns(row.unseen_ns(span_ns)))
            .ns()
            .if_any(),
        Column::counter("runs", "runs", |row| &mut row.runs),
    ],
)
.explained(&[
    ("busy_ns", "time for which some task had the CPU, perf-prof too"),
    ("pct", "that time in percent of the interval"),
    ("idle_ns", "time for which none had it"),
    ("unseen_ns", "time of which it is not known who had the CPU"),
    ("runs", "how often a stretch of one task, or without any, ended"),
])
.titled("CPUs")
.ordered(|one, other| one.cpu.cmp(&other.cpu));

impl CpuTime {
    fn unseen_ns(&self, span_ns: u64) -> u64 {
        /// Unknown time up to which a CPU counts as fully known: events are enabled a moment after the interval begins.
        const NOTHING_NS: u64 = 5_000_000;
        let unseen_ns = span_ns.saturating_sub(self.busy_ns.saturating_add(self.idle_ns));
        if unseen_ns < NOTHING_NS { 0 } else { unseen_ns }
    }
}

/// The rows of the interval.
#[derive(Debug)]
struct OnCpuRows {
    args: OncpuArgs,
    scope: RunScope,
    tasks: KeyedSums<OnCpuKey, OnCpuSum>,
    /// The times of CPUs, by CPU number.
    cpus: BTreeMap<u32, CpuTime>,
}

impl TurnUser for OnCpuRows {
    /// The row of a task. None: the task has no row.
    type Kept = Option<OnCpuKey>;

    fn uses_priority(&self) -> bool {
        self.args.prio.is_some()
    }

    fn is_wanted(&self, kept: &Option<OnCpuKey>) -> bool {
        kept.is_some()
    }

    fn begins(&mut self, of: CpuUse, cpu: u32, ctx: &mut Context) -> Option<OnCpuKey> {
        let CpuUse::Task { tid, comm, prio } = of else { return None };
        let is_asked = self.scope.asks_for(tid, &comm, &ctx.watched, self.args.filter.as_ref());
        if !is_asked || !self.scope.has_cpu(cpu) || self.args.prio.as_ref().is_some_and(|list| !list.contains(prio)) {
            return None;
        }
        let cpu = self.args.per_cpu.then_some(cpu);
        Some(match self.args.by {
            RowTask::Comm => OnCpuKey { comm, cpu, ..OnCpuKey::default() },
            RowTask::Thread => OnCpuKey { pid: ctx.tasks.pid(tid), tid, comm, cpu },
            RowTask::Process => {
                let pid = ctx.tasks.pid(tid);
                OnCpuKey { pid, tid: 0, comm: if pid == tid { comm } else { ctx.tasks.comm(pid) }, cpu }
            }
        })
    }

    fn had(&mut self, turn: &CpuTurn<Option<OnCpuKey>>) -> Use {
        let time = self.cpus.entry(turn.cpu).or_default();
        *(if turn.had_by == CpuUse::Idle { &mut time.idle_ns } else { &mut time.busy_ns }) += turn.part_ns;
        time.runs += u64::from(turn.is_whole);
        let Some(key) = turn.kept else { return Use::Ignored };
        let sum = self.tasks.sum(key);
        sum.ns += turn.part_ns;
        sum.runs += u64::from(turn.is_whole);
        sum.longest_ns = sum.longest_ns.max(Some(turn.until_ns.saturating_sub(turn.from_ns)));
        Use::Relevant
    }
}

/// The profiler behind [`OncpuArgs`].
#[derive(Debug)]
struct Oncpu {
    turns: CpuTurns<Option<OnCpuKey>>,
    rows: OnCpuRows,
    /// Only turns of the target's tasks are seen.
    is_narrowed: bool,
    /// The CPUs that have a row, even if nothing is known of them.
    online: Vec<u32>,
}

impl Profiler for Oncpu {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.rows.scope = setup.scope.clone();
        self.online = online_cpus(setup.host)?;
        self.turns.open(evlist, setup)
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let tasks = TaskMatch::new(self.rows.args.filter.as_ref(), setup);
        self.is_narrowed = self.turns.narrow(&tasks, evlist, setup)?;
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        self.turns.sample(event, sample, ctx, &mut self.rows)
    }

    fn tick(&mut self, _now: Timestamp, _ctx: &mut Context) -> TickOutcome {
        TickOutcome { missed_switches: self.turns.take_missed_on(), ..TickOutcome::default() }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.turns.on(&event, ctx, &mut self.rows);
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.turns.tell_all(now, &mut self.rows);
        for cpu in &self.online {
            self.rows.cpus.entry(*cpu).or_default();
        }
        let OnCpuRows { args, scope, tasks, cpus } = &mut self.rows;
        report.delta(&ON_CPU, tasks.drain().collect()).text_rows(args.top as usize);
        let cpus = std::mem::take(cpus).into_iter().filter(|(cpu, _)| scope.has_cpu(*cpu));
        if !self.is_narrowed {
            report.delta(&BUSY, cpus.map(|(cpu, time)| CpuTime { cpu, ..time }).collect());
        }
        Ok(())
    }

    fn stacks_in_use(&self, _used: &mut FxHashSet<StackId>) {}
}
