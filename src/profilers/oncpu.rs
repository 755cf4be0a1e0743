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
use crate::perf::target::Tasks;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TaskGrouping, TickOutcome, Timestamp, Use,
};
use crate::report::{Column, Schema, TableSchema, TaskKeyRow, Value};
use crate::sched::{CpuTurn, CpuTurns, CpuUse, TurnUser};
use crate::stats::{KeyedSums, SumKey, TaskKey};
use crate::symbol::StackId;
use crate::task::children::of_parent;
use crate::task::{Children, Comm};

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
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = TaskGrouping::Thread)]
    by: TaskGrouping,
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
            self.by = TaskGrouping::Comm;
        }
        let (scope, tasks, cpus) = (RunScope::default(), KeyedSums::default(), BTreeMap::new());
        Ok(Box::new(Oncpu {
            turns: CpuTurns::default(),
            rows: OnCpuRows { args: self, scope, tasks, cpus },
            children: None,
            is_narrowed: false,
            online: Vec::new(),
        }))
    }
}

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct OnCpuKey {
    task: TaskKey,
    /// The CPU, with `--per-cpu`.
    cpu: Option<u32>,
}

impl SumKey for OnCpuKey {
    fn others(&self) -> OnCpuKey {
        OnCpuKey { task: self.task.others(), cpu: self.cpu }
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

#[derive(Clone, Copy, Debug)]
struct OnCpuRow {
    key: OnCpuKey,
    sum: OnCpuSum,
    /// Of short-lived processes, which share a row: the name of their parent, and their number.
    parent: Option<Comm>,
    children: u64,
}

impl TaskKeyRow for OnCpuRow {
    fn task(&self) -> &TaskKey {
        &self.key.task
    }
}

static ON_CPU: Schema<OnCpuRow> = Schema::<OnCpuRow>::new(
    "tasks",
    &[
        Column::<OnCpuRow>::counter("cpu_ns", "CPU ms", |row| &mut row.sum.ns).ns(),
        Column::<OnCpuRow>::derived("pct", "%", |row, span_ns| Value::share(row.sum.ns, span_ns)).additive(),
        Column::counter("runs", "runs", |row| &mut row.sum.runs),
        Column::<OnCpuRow>::greatest("max_ns", "max us", |row| &mut row.sum.longest_ns).us(),
        Column::<OnCpuRow>::label("cpu", "CPU", |row| {
            row.key.cpu.map_or(Value::None, |cpu| Value::Unsigned(cpu.into()))
        })
        .if_any(),
        Column::TASK[0],
        Column::TASK[1],
        Column::<OnCpuRow>::derived("children", "short-lived", |row, _| {
            row.parent.map_or(Value::None, |_| Value::Unsigned(row.children))
        })
        .if_any(),
        Column::<OnCpuRow>::counter("count", "", |row| &mut row.children).hidden(),
        Column::TASK[2].json_only(),
        Column::<OnCpuRow>::label("parent", "", |row| row.parent.map_or(Value::None, Value::Comm)).json_only(),
        Column::<OnCpuRow>::label("name", "comm", |row| match row.parent {
            Some(parent) => Value::Text(of_parent(row.key.task.comm, parent).into()),
            None => Value::Comm(row.key.task.comm),
        })
        .text_only(),
    ],
)
.explained(&[
    ("cpu_ns", "time on a CPU"),
    ("pct", "that time in percent of one CPU's"),
    ("runs", "how often a stretch on a CPU ended"),
    ("max_ns", "the longest stretch, also of one that began before the interval, or goes on"),
    ("cpu", "with `--per-cpu`, the CPU"),
    ("children", "the number of short-lived processes that share the row"),
    ("parent", "of short-lived processes, the name of who has made them"),
    ("name", "the same as `comm`; `gzip, of sh`: short-lived processes of one name, and who has made them"),
    ("comm", "the name of the thread, with `--by process` that of the process"),
])
.titled("time on CPUs")
.ordered(|one, other| other.sum.ns.cmp(&one.sum.ns).then((one.key, one.parent).cmp(&(other.key, other.parent))));

/// Short-lived processes of one name and parent have one row.
fn fold_short_lived(rows: impl Iterator<Item = OnCpuRow>, children: &Children) -> Vec<OnCpuRow> {
    let group = |row: &OnCpuRow, parent| {
        let task = TaskKey { comm: row.key.task.comm, ..TaskKey::default() };
        (OnCpuKey { task, ..row.key }, parent)
    };
    children.fold(
        rows,
        |row| row.key.task.pid,
        group,
        |(key, parent), rows, children| {
            let add = |sum: OnCpuSum, row: &OnCpuRow| OnCpuSum {
                ns: sum.ns + row.sum.ns,
                runs: sum.runs + row.sum.runs,
                longest_ns: sum.longest_ns.max(row.sum.longest_ns),
            };
            let sum = rows.iter().fold(OnCpuSum::default(), add);
            OnCpuRow { key, sum, parent: Some(parent), children }
        },
    )
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
        Column::derived("pct", "%", |row, span_ns| Value::share(row.busy_ns, span_ns)),
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
        Some(OnCpuKey { task: self.args.by.key(tid, comm, &mut ctx.tasks), cpu })
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
    /// None: each process has rows of its own.
    children: Option<Children>,
    /// Only turns of the target's tasks are seen.
    is_narrowed: bool,
    /// The CPUs that have a row, even if nothing is known of them.
    online: Vec<u32>,
}

impl Profiler for Oncpu {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.rows.scope = setup.scope.clone();
        self.online = online_cpus(setup.host)?;
        let names_tasks = matches!(setup.target.tasks, Tasks::Processes(_) | Tasks::Threads(_));
        self.children = (!names_tasks).then(Children::default);
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
        match (event, &mut self.children) {
            (Event::Task { record, time, .. }, Some(children)) => {
                children.apply(record, time, |pid| ctx.tasks.comm(pid));
            }
            (Event::LostSide(_), Some(children)) => children.lost(),
            _ => {}
        }
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.turns.tell_all(now, &mut self.rows);
        for cpu in &self.online {
            self.rows.cpus.entry(*cpu).or_default();
        }
        let OnCpuRows { args, scope, tasks, cpus } = &mut self.rows;
        let rows = tasks.drain().map(|(key, sum)| OnCpuRow { key, sum, parent: None, children: 0 });
        let rows = match &mut self.children {
            Some(children) => {
                let rows = fold_short_lived(rows, children);
                children.next_interval();
                rows
            }
            None => rows.collect(),
        };
        report.delta(&ON_CPU, rows).text_rows(args.top as usize);
        let cpus = std::mem::take(cpus).into_iter().filter(|(cpu, _)| scope.has_cpu(*cpu));
        if !self.is_narrowed {
            report.delta(&BUSY, cpus.map(|(cpu, time)| CpuTime { cpu, ..time }).collect());
        }
        Ok(())
    }

    fn stacks_in_use(&self, _used: &mut FxHashSet<StackId>) {}
}
