//! `sched-migrate`: how often tasks migrate to another CPU, how far, and how long they then wait for it.
//!
//! Events: `sched:sched_migrate_task`, and for the waits for a CPU `sched_switch`, `sched_wakeup`, `sched_wakeup_new`
//! and `sched_waking`, period 1, on whole CPUs. Cost: three to four records per wait.

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::cli::values::{self, CommList};
use crate::cli::{CommonArgs, usage};
use crate::host::{CpuDistance, Topology, online_cpus};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use};
use crate::report::layout::{SUBJECT, detail, text};
use crate::report::{
    Column, Detail, LatencyRow, OccurrenceLayout, OccurrenceSchema, Schema, Subject, TableSchema, Value,
};
use crate::sched::{EndedWait, Migration, RunnableStacks, SchedModel, TaskWaits, WaitUser};
use crate::stats::{Began, KeyedSums, Latency, SumKey, TaskKey, TidMap, WorstCase};
use crate::symbol::StackId;
use crate::task::Comm;

/// How often tasks go to another CPU, how far, and what that costs
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  Every second: how far tasks went, and which went most:
    perf-prof sched-migrate -i 1000
  The migrations of one service beyond its cache, each with where it came from:
    perf-prof sched-migrate -p nginx --detail -g
  As a picture, what moves tasks:
    perf-prof sched-migrate --flame-graph moves.svg --for 10

`stayed` has the waits for a CPU of tasks that did not go to another one: what a
migration costs is the difference.")]
pub struct SchedMigrateArgs {
    /// Only tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    /// Show each migration to a CPU that does not share the last level of cache
    #[arg(long)]
    detail: bool,
    /// So many rows of tasks at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for SchedMigrateArgs {
    const NAME: &'static str = "sched-migrate";
    const TABLES: &'static [&'static dyn TableSchema] = &[&DISTANCES, &MIGRATED_TASKS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(MIGRATIONS.layout());
    const WEIGHT: &'static str = "migrations";
    const NARROWINGS: &'static [&'static str] = &[];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.common.stacks() && !self.detail {
            return Err(usage("-g shows the stacks of single migrations: add --detail"));
        }
        let rows = MigrationRows { args: self, ..MigrationRows::default() };
        Ok(Box::new(SchedMigrate { waits: TaskWaits::default(), rows }))
    }
}

/// How far a task migrated before it got a CPU. None: it did not migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct MigrationDistance(Option<CpuDistance>);

impl SumKey for MigrationDistance {
    fn others(&self) -> MigrationDistance {
        *self
    }
}

fn distance(of: MigrationDistance) -> Value {
    Value::Word(match of.0 {
        None => "stayed",
        Some(CpuDistance::Core) => "core",
        Some(CpuDistance::L2) => "L2",
        Some(CpuDistance::Llc) => "LLC",
        Some(CpuDistance::Node) => "node",
        Some(CpuDistance::Apart) => "apart",
        Some(CpuDistance::Unknown) => "unknown",
    })
}

/// Migrations of one distance, and the waits for a CPU that ended after them.
#[derive(Clone, Debug, Default)]
struct DistanceSum {
    migrations: u64,
    delays: Latency,
}

type DistanceRow = (MigrationDistance, DistanceSum);

impl LatencyRow for DistanceRow {
    fn latency(&self) -> &Latency {
        &self.1.delays
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.1.delays
    }
}

static DISTANCES: Schema<DistanceRow> = Schema::<DistanceRow>::new(
    "distances",
    &[
        Column::label("shared", "shared", |(moved, _)| distance(*moved)),
        Column::counter("migrations", "migrations", |(_, sum)| &mut sum.migrations),
        Column::latency_count("waits"),
        Column::latency_total(),
        Column::latency_min().json_only(),
        Column::latency_mean(),
        Column::latency_stddev().json_only(),
        Column::latency_p50(),
        Column::latency_p95().json_only(),
        Column::latency_p99(),
        Column::latency_max(),
    ],
)
.latencies()
.explained(&[
    (
        "shared",
        "the nearest that both CPUs share: `core`, `L2`, `LLC` (the last level of cache), `node` (of memory), `apart` if nothing; \
         `stayed`: the waits of tasks that did not go to another CPU",
    ),
    ("migrations", "how often a task went to another CPU"),
])
.titled("migrations, and the waits for a CPU after them")
.ordered(|(one, _), (other, _)| one.cmp(other));

/// A task's migrations, how many of these were within the last level of cache, and its waits after them.
#[derive(Clone, Copy, Debug, Default)]
struct MigrationSum {
    migrations: u64,
    /// None: not known.
    within_llc: Option<u64>,
    within_node: Option<u64>,
    waits: u64,
    waited_ns: u64,
}

impl MigrationSum {
    /// Counts a migration of this distance. Not `is_new`: only notes, for a wait after an earlier migration, that
    /// distances are known.
    fn add(&mut self, distance: CpuDistance, is_new: bool) {
        let count = |within: bool| u64::from(is_new && within);
        self.migrations += count(true);
        if distance != CpuDistance::Unknown {
            *self.within_llc.get_or_insert(0) += count(distance <= CpuDistance::Llc);
            *self.within_node.get_or_insert(0) += count(distance <= CpuDistance::Node);
        }
    }
}

type MigratedTaskRow = (TaskKey, MigrationSum);

static MIGRATED_TASKS: Schema<MigratedTaskRow> = Schema::<MigratedTaskRow>::new(
    "tasks",
    &[
        Column::counter("migrations", "migrations", |(_, sum)| &mut sum.migrations),
        Column::known_counter("within_llc", "in LLC", |(_, sum)| &mut sum.within_llc),
        Column::known_counter("within_node", "in node", |(_, sum)| &mut sum.within_node),
        Column::counter("waits", "waits", |(_, sum)| &mut sum.waits),
        Column::<MigratedTaskRow>::counter("waited_ns", "waited us", |(_, sum)| &mut sum.waited_ns).us(),
        Column::TASK[0],
        Column::TASK[1],
        Column::TASK[2],
    ],
)
.explained(&[
    ("migrations", "how often the thread went to another CPU"),
    ("within_llc", "to one that shares the last level of cache, or more"),
    ("within_node", "to one of the same node of memory, those included"),
    ("waits", "waits for a CPU after a migration that have ended"),
    ("waited_ns", "their sum"),
])
.titled("tasks that went to other CPUs")
.ordered(|(one, few), (other, many)| {
    let far = |sum: &MigrationSum| sum.migrations - sum.within_llc.unwrap_or(0);
    far(many).cmp(&far(few)).then(many.migrations.cmp(&few.migrations)).then(one.cmp(other))
});

/// The occurrence that reports a migration.
#[derive(Debug)]
struct ShownMigration {
    from: u32,
    to: u32,
    moved: MigrationDistance,
}

static MIGRATIONS: OccurrenceSchema<ShownMigration> = OccurrenceSchema::<ShownMigration>::new(
    &[
        Detail::new("from_cpu", |migration| Value::Unsigned(migration.from.into())),
        Detail::new("to_cpu", |migration| Value::Unsigned(migration.to.into())),
        Detail::new("shared", |migration| distance(migration.moved)),
    ],
    &[
        SUBJECT,
        text(" goes from CPU "),
        detail("from_cpu"),
        text(" to "),
        detail("to_cpu"),
        detail("shared").between(", shared: ", ""),
    ],
);

/// The rows of the interval.
#[derive(Debug, Default)]
struct MigrationRows {
    args: SchedMigrateArgs,
    scope: RunScope,
    topology: Topology,
    /// How far each task has migrated that has not got a CPU since then.
    moved: TidMap<Option<CpuDistance>>,
    distances: KeyedSums<MigrationDistance, DistanceSum>,
    tasks: KeyedSums<TaskKey, MigrationSum>,
}

impl WaitUser for MigrationRows {
    type Kept = ();

    fn asks_for(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool {
        self.scope.asks_for(tid, comm, &ctx.watched, self.args.filter.as_ref())
    }

    fn waited(&mut self, ended: &EndedWait, _model: &SchedModel, ctx: &mut Context) -> Use {
        let EndedWait { tid, comm, cpu, until: at, wait } = *ended;
        let moved = MigrationDistance(self.moved.remove(tid).flatten());
        if wait.began != Began::Exactly || !self.scope.has_cpu(cpu) {
            return Use::Ignored;
        }
        let ns = at.saturating_sub(wait.since);
        self.distances.sum(moved).delays.record(ns, at, || WorstCase { ns, at_ns: at, cpu, tid, comm, stack: None });
        if let Some(distance) = moved.0 {
            let sum = self.tasks.sum(TaskKey { pid: ctx.tasks.pid(tid), tid, comm });
            sum.waits += 1;
            sum.waited_ns = sum.waited_ns.saturating_add(ns);
            sum.add(distance, false);
        }
        Use::Ignored
    }

    fn came(&mut self, tid: i32) {
        self.moved.remove(tid);
    }

    fn migrated(&mut self, Migration { tid, from, to }: Migration, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let comm = ctx.tasks.comm(tid);
        if !self.asks_for(tid, &comm, ctx) || !(self.scope.has_cpu(from) || self.scope.has_cpu(to)) {
            return Use::Ignored;
        }
        let distance = self.topology.distance(from, to);
        let moved = self.moved.get_or_default(tid);
        *moved = (*moved).max(Some(distance));
        self.distances.sum(MigrationDistance(Some(distance))).migrations += 1;
        let pid = ctx.tasks.pid(tid);
        let sum = self.tasks.sum(TaskKey { pid, tid, comm });
        sum.add(distance, true);
        let is_shown = self.args.detail && distance > CpuDistance::Llc;
        let takes_stack = self.args.common.draws_stacks() || is_shown && self.args.common.stacks();
        let stack = if takes_stack { ctx.stack(sample) } else { None };
        if self.args.common.draws_stacks() {
            ctx.weigh(pid, comm, stack, 1);
        }
        if is_shown {
            let shown = ShownMigration { from, to, moved: MigrationDistance(Some(distance)) };
            let subject = Subject { time: sample.time, cpu: to, pid, tid, comm };
            ctx.emit(&MIGRATIONS, subject, &shown, stack.filter(|_| self.args.common.stacks()));
        }
        Use::Relevant
    }
}

/// The profiler behind [`SchedMigrateArgs`].
#[derive(Debug, Default)]
struct SchedMigrate {
    waits: TaskWaits,
    rows: MigrationRows,
}

impl Profiler for SchedMigrate {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.rows.scope = setup.scope.clone();
        self.rows.topology = Topology::read(setup.host, &online_cpus(setup.host)?);
        if !self.rows.topology.has_caches() {
            setup.warn("this machine does not tell which CPUs share caches: how far tasks go is unknown".to_owned());
        }
        self.waits.open(RunnableStacks::None, setup.stacks, evlist, setup)
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.waits.narrow(&TaskMatch::new(self.rows.args.filter.as_ref(), setup), true, evlist, setup)
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        self.waits.sample(event, sample, ctx, &mut self.rows)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        if self.waits.sweep(now, ctx) {
            self.rows.moved.retain(|tid, _| !ctx.tasks.has_exited(tid));
        }
        TickOutcome { missed_switches: self.waits.model.take_missed_on(), ..TickOutcome::default() }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.waits.on(&event, ctx, &mut self.rows);
        if matches!(event, Event::Lost(..)) {
            self.rows.moved.retain(|_, _| false); // any of these tasks may have got its CPU
        }
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        let MigrationRows { args, distances, tasks, .. } = &mut self.rows;
        report.delta(&DISTANCES, distances.drain().collect());
        report.delta(&MIGRATED_TASKS, tasks.drain().collect()).text_rows(args.top as usize);
        Ok(())
    }

    fn stacks_in_use(&self, _used: &mut FxHashSet<StackId>) {}
}
