//! `reclaim`: who stalls for memory, for how long, and on whose limit.
//!
//! Events: the pairs of `vmscan:` and `compaction:` in which a task reclaims or compacts memory itself before it goes
//! on, period 1, on all CPUs. Cost: two records per stall, which takes a hundred times as long as they do.
//!
//! `stall` has the kinds of stalls and their events, `cgroups` the time in which some task of a cgroup stalls,
//! `workers` what the kernel's threads do for memory, `oom` the kills when there is none left, `table` the tables and lines.

mod cgroups;
mod oom;
mod stall;
mod table;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::host::Host;
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TaskGrouping, TickOutcome, Timestamp, Use,
};
use crate::profilers::reclaim::cgroups::{StalledCgroups, StalledStretch};
use crate::profilers::reclaim::oom::OomKills;
use crate::profilers::reclaim::stall::{EVENTS, Stall, StallKind, StallStep, StalledAllocation};
use crate::profilers::reclaim::table::{
    LONG_STALL, LongStall, PRESSURES, PressureRow, STALLS, StallRow, WORKERS, WorkerRow,
};
use crate::profilers::reclaim::workers::ReclaimWorkers;
use crate::relation::{
    Declaration, EventMoment, OpenStart, PairEnd, PairOutcome, Relation, RelationKey, RelationTerms, RowKey,
};
use crate::report::{OccurrenceLayout, Subject, TableSchema};
use crate::stats::{SumKey, TaskKey};
use crate::symbol::StackId;
use crate::tep::{Field, FlagTable, PrintFmt, drift};

/// Who stalls for memory, for how long, and on whose limit
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Which processes stall for memory, and why, every second:
    perf-prof reclaim -i 1000
  Stalls of 10 ms or more, each with its allocation and stack:
    perf-prof reclaim --than 10ms -g
  The stalls of one service, thread by thread:
    perf-prof reclaim -p postgres --by thread -i 1000

A task stalls that has to free memory itself before it gets any: since the
machine is short of it (direct reclaim), since its cgroup is at a limit (cgroup
reclaim), or since free memory is in too small pieces (compaction).")]
pub struct ReclaimArgs {
    #[command(flatten)]
    lengths: LatencyArgs,
    /// What has a row in the table of stalls
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = StallGrouping::Process)]
    by: StallGrouping,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for ReclaimArgs {
    const NAME: &'static str = "reclaim";
    const TABLES: &'static [&'static dyn TableSchema] = &[&STALLS, &PRESSURES, &WORKERS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(LONG_STALL.layout());
    const WEIGHT: &'static str = "us";
    const NARROWINGS: &'static [&'static str] = &["-p PID", "-C CPUS"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Reclaim::new(self)))
    }
}

/// What has a row in the table of stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StallGrouping {
    Thread,
    Process,
    Comm,
    Cgroup,
}

impl StallGrouping {
    fn of_tasks(self) -> TaskGrouping {
        match self {
            StallGrouping::Thread => TaskGrouping::Thread,
            StallGrouping::Process | StallGrouping::Cgroup => TaskGrouping::Process,
            StallGrouping::Comm => TaskGrouping::Comm,
        }
    }
}

/// The task, or the cgroup of several, and the kind of a row's stalls.
type RowName = (TaskKey, Option<Arc<str>>, StallKind);

#[derive(Debug)]
struct StallEvent {
    event: EventId,
    step: StallStep,
    /// Order and flags of the allocation.
    allocation: Option<(Field, Field)>,
    /// Pages that were reclaimed, or us that were slept.
    amount: Option<Field>,
}

/// A row: stalls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct StallsOf {
    task: TaskKey,
    kind: StallKind,
}

impl SumKey for StallsOf {
    fn others(&self) -> StallsOf {
        StallsOf { task: self.task.others(), ..*self }
    }
}

impl RowKey for StallsOf {}

#[derive(Clone, Copy, Debug, Default)]
struct StallSums {
    reclaimed_pages: u64,
    throttled_ns: u64,
}

#[derive(Debug)]
struct Stalls;

impl Declaration for Stalls {
    /// The thread.
    type Key = RelationKey;
    type Start = Stall;
    /// Pages that were reclaimed.
    type End = u64;
    type Row = StallsOf;
    type Sums = StallSums;

    fn row(&self, _key: &RelationKey, start: &OpenStart<Stall>, _end: &PairEnd<u64>) -> StallsOf {
        let Stall { task, kind, .. } = start.open.own;
        StallsOf { task, kind }
    }

    /// A stall that began before the run: `no_start` of its row counts it.
    fn may_be_first(&self, _key: &RelationKey, _end: &u64) -> bool {
        true
    }

    fn add(&self, sums: &mut StallSums, start: &OpenStart<Stall>, end: &PairEnd<u64>) {
        sums.reclaimed_pages += end.own;
        sums.throttled_ns += start.open.own.throttled_ns;
    }
}

/// A stall that has ended and gets a line as soon as the cgroup of its task is known.
#[derive(Clone, Debug)]
struct EndedStall {
    start: OpenStart<Stall>,
    until: u64,
    reclaimed_pages: u64,
    cgroup: Option<Arc<str>>,
}

/// The profiler behind [`ReclaimArgs`].
#[derive(Debug)]
struct Reclaim {
    args: ReclaimArgs,
    events: Vec<StallEvent>,
    host: Host,
    scope: RunScope,
    relation: Relation<Stalls>,
    cgroups: StalledCgroups,
    workers: ReclaimWorkers,
    lines: Vec<EndedStall>,
    kills: OomKills,
    /// What the kernel calls flags of allocations.
    gfp_names: Option<FlagTable>,
    /// The allocations for which threads are about to compact memory.
    asked: FxHashMap<i32, StalledAllocation>,
    page_bytes: u64,
}

impl Reclaim {
    fn new(args: ReclaimArgs) -> Reclaim {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation = Relation::new(Stalls, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, host, scope, cgroups, workers, lines, kills) = Default::default();
        let (gfp_names, asked, page_bytes) = (None, FxHashMap::default(), crate::sys::page_size() as u64);
        Reclaim { args, events, host, scope, relation, cgroups, workers, lines, kills, gfp_names, asked, page_bytes }
    }

    /// Adds an event, if this kernel has it. Without compaction, cgroups or nodes of memory it has no events of these.
    fn add_event(&mut self, name: &str, step: StallStep, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let is_needed = matches!(step, StallStep::Begins(StallKind::Direct) | StallStep::Ends(StallKind::Direct));
        let (evsel, format) = match setup.tracepoint(name) {
            Err(_) if !is_needed => return Ok(()),
            found => found?,
        };
        let flags = format.field("gfp_flags").or_else(|| format.field("gfp_mask"));
        if let (None, Some(flags)) = (&self.gfp_names, flags) {
            self.gfp_names = PrintFmt::compile(&format).ok().and_then(|print| print.flag_table(&flags.name));
        }
        let allocation = format.field("order").cloned().zip(flags.cloned());
        let amount = match step {
            StallStep::Ends(StallKind::Compaction) => None,
            StallStep::Ends(_) => Some(drift::require(&format, "nr_reclaimed")?.clone()),
            StallStep::Throttled => Some(drift::require(&format, "usec_delayed")?.clone()),
            StallStep::Begins(_) | StallStep::Asks => None,
        };
        let takes_stack = setup.stacks && matches!(step, StallStep::Begins(_));
        let event = evlist.add(evsel.binding(Binding::Cpu).callchain_if(takes_stack, 0))?;
        self.events.push(StallEvent { event, step, allocation, amount });
        Ok(())
    }

    /// Whether the current task is watched. Nobody waits for the kernel's own threads.
    fn wants(&self, sample: &Sample<'_>, ctx: &Context) -> bool {
        let is_ours = ctx.watched.is_all() || ctx.is_ours(sample.tid);
        is_ours
            && !self.scope.is_own(sample.tid)
            && self.scope.has_cpu(sample.cpu)
            && !self.workers.has_thread(sample.tid)
    }

    fn begins(
        &mut self,
        kind: StallKind,
        allocation: Option<StalledAllocation>,
        sample: &Sample<'_>,
        ctx: &mut Context,
    ) -> Use {
        let key = RelationKey::thread(sample.tid);
        if self.relation.get(key).is_some_and(|start| start.open.own.kind != kind) {
            self.relation.hide(key); // its end was not seen
        }
        if !self.wants(sample, ctx) {
            return Use::Ignored;
        }
        let allocation = allocation.or_else(|| self.asked.get(&sample.tid).copied());
        let (comm, stack) = (ctx.tasks.comm(sample.tid), ctx.stack(sample));
        let task = self.args.by.of_tasks().key(sample.tid, comm, &mut ctx.tasks);
        let stall = Stall { task, kind, allocation, throttled_ns: 0 };
        self.relation.start(key, EventMoment::of(sample), comm, stack, stall);
        Use::Relevant
    }

    fn ends(&mut self, kind: StallKind, reclaimed_pages: u64, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let key = RelationKey::thread(sample.tid);
        let known = self.relation.get(key).map(|start| start.open.own.kind);
        if known.is_some_and(|known| known != kind) || known.is_none() && !self.wants(sample, ctx) {
            return Use::Ignored; // its beginning was not seen, or nobody watches it
        }
        let end = PairEnd { moment: EventMoment::of(sample), own: reclaimed_pages };
        match self.relation.end(key, &end, ctx) {
            PairOutcome::Ended(start) => {
                /// Stalls that wait for their lines, at most: text has a line for a group of them.
                const MAX_LINES: usize = 10_000;
                let (start, until) = (*start, sample.time);
                self.cgroups.ended(StalledStretch { pid: start.open.pid, since: start.since, until });
                if self.args.lengths.shows(until.saturating_sub(start.since)) {
                    if self.lines.len() >= MAX_LINES {
                        self.show_ended(ctx);
                    }
                    self.lines.push(EndedStall { start, until, reclaimed_pages, cgroup: None });
                }
            }
            // Where only some CPUs are watched, it may have begun on another one.
            PairOutcome::NoStart if self.scope.cpus().is_none() => {
                let comm = ctx.tasks.comm(sample.tid);
                let task = self.args.by.of_tasks().key(sample.tid, comm, &mut ctx.tasks);
                self.relation.rows.sum(StallsOf { task, kind }).no_start += 1;
            }
            PairOutcome::NoStart => return Use::Ignored,
            PairOutcome::Doubtful | PairOutcome::Unfit => {}
        }
        Use::Relevant
    }

    /// Hands over the occurrences of the stalls that have ended.
    fn show_ended(&mut self, ctx: &mut Context) {
        for EndedStall { start, until, reclaimed_pages, cgroup } in std::mem::take(&mut self.lines) {
            self.show(&start, until, Some(reclaimed_pages), cgroup, ctx);
        }
    }

    /// Counts the time in which tasks stall up to `now`, and shows those that have ended, and those that are due.
    fn settle(&mut self, now: Timestamp, due: &[(RelationKey, OpenStart<Stall>)], ctx: &mut Context) {
        self.count(now);
        ctx.view.untracked += self.cgroups.take_left_out() + self.kills.take_left_out();
        self.show_ended(ctx);
        for (_, start) in due {
            let cgroup = self.cgroups.name_of(start.open.pid);
            self.show(start, now, None, cgroup, ctx);
        }
    }

    /// Counts the time in which tasks stall, and finds the cgroups of those that have ended: soon they may be gone.
    fn count(&mut self, now: Timestamp) {
        self.cgroups.count(now, self.relation.iter().map(|(_, start)| (start.open.pid, start.since)));
        for line in self.lines.iter_mut().filter(|line| line.cgroup.is_none()) {
            line.cgroup = self.cgroups.name_of(line.start.open.pid);
        }
    }

    /// Hands over the occurrence of a stall. `reclaimed_pages`: None if it goes on.
    fn show(
        &self,
        start: &OpenStart<Stall>,
        time: u64,
        reclaimed_pages: Option<u64>,
        cgroup: Option<Arc<str>>,
        ctx: &mut Context,
    ) {
        let OpenStart { since, open } = start;
        let Stall { kind, allocation, throttled_ns, .. } = open.own;
        let stall = LongStall {
            ns: time.saturating_sub(*since),
            kind,
            order: allocation.map(|allocation| allocation.order),
            gfp_flags: allocation.map(|allocation| self.gfp_text(allocation.gfp_flags)),
            reclaimed_bytes: reclaimed_pages
                .filter(|_| kind != StallKind::Compaction)
                .map(|pages| pages.saturating_mul(self.page_bytes)),
            throttled_ns,
            cgroup,
            goes_on: reclaimed_pages.is_none(),
        };
        let subject = Subject { time, cpu: open.cpu, pid: open.pid, tid: open.tid, comm: open.comm };
        ctx.emit(&LONG_STALL, subject, &stall, open.stack);
    }

    fn gfp_text(&self, flags: u64) -> Arc<str> {
        let mut text = Vec::new();
        match &self.gfp_names {
            Some(names) => names.render(flags, &mut text),
            None => text.extend(format!("{flags:#x}").bytes()),
        }
        String::from_utf8_lossy(&text).into()
    }

    /// The rows of the interval: stalls that ended, and those that go on.
    fn rows(&mut self, now: Timestamp) -> Vec<StallRow> {
        let page_bytes = self.page_bytes;
        let mut rows: BTreeMap<RowName, StallRow> = BTreeMap::new();
        for (StallsOf { task, kind }, sums) in self.relation.rows.take() {
            let row = self.row(&mut rows, task, kind);
            row.latency.merge(&sums.latency);
            row.reclaimed_bytes += sums.own.reclaimed_pages.saturating_mul(page_bytes);
            row.throttled_ns += sums.own.throttled_ns;
            row.than += sums.than;
            row.no_start += sums.no_start;
        }
        let waiting = self.relation.waiting_by(now, |_, start| (start.open.own.task, start.open.own.kind));
        for ((task, kind), open) in waiting {
            let row = self.row(&mut rows, task, kind);
            row.now = Some(row.now.unwrap_or(0) + open.count);
        }
        rows.into_values().collect()
    }

    /// The row of a task, or of its cgroup.
    fn row<'r>(
        &mut self,
        rows: &'r mut BTreeMap<RowName, StallRow>,
        task: TaskKey,
        kind: StallKind,
    ) -> &'r mut StallRow {
        let cgroup = if task.pid == 0 { None } else { self.cgroups.name_of(task.pid) };
        let task = if self.args.by == StallGrouping::Cgroup { TaskKey::default() } else { task };
        rows.entry((task, cgroup.clone(), kind)).or_insert_with(|| StallRow::new(task, cgroup, kind))
    }
}

impl Profiler for Reclaim {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.scope = setup.scope.clone();
        let is_whole = setup.watched.is_all() && self.scope.cpus().is_none();
        self.cgroups = StalledCgroups::new(setup.host, is_whole);
        self.host = setup.host.clone();
        EVENTS.into_iter().try_for_each(|(name, step)| self.add_event(name, step, evlist, setup))?;
        self.kills.add_event(evlist, setup)
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(of) = self.events.iter().find(|of| of.event == event) else {
            return self.kills.sample(event, sample, ctx);
        };
        let allocation = match &of.allocation {
            Some((order, flags)) => {
                Some(StalledAllocation { order: order.read_i64(sample.raw)?, gfp_flags: flags.read_u64(sample.raw)? })
            }
            None => None,
        };
        let amount = of.amount.as_ref().map_or(Ok(0), |field| field.read_u64(sample.raw))?;
        Ok(match of.step {
            StallStep::Begins(kind) => self.begins(kind, allocation, sample, ctx),
            StallStep::Ends(kind) => self.ends(kind, amount, sample, ctx),
            StallStep::Asks => {
                /// Threads that ask for compaction at once, at most.
                const MAX_ASKED: usize = 10_000;
                if self.asked.len() >= MAX_ASKED {
                    self.asked.clear();
                }
                self.asked.extend(allocation.map(|allocation| (sample.tid, allocation)));
                Use::Ignored // the stall counts
            }
            StallStep::Throttled => {
                let key = RelationKey::thread(sample.tid);
                let ns = amount.saturating_mul(1000);
                match self.relation.move_start(key, key, |start| start.own.throttled_ns += ns) {
                    true => Use::Relevant,
                    false => Use::Ignored,
                }
            }
        })
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        match event {
            Event::Started { .. } => {
                self.cgroups.started(ctx.started_ns);
                let tids: Vec<i32> = ctx.tasks.living().map(|(tid, _)| tid).collect();
                let named = tids.into_iter().map(|tid| (tid, ctx.tasks.comm_if_any(tid)));
                self.workers = ReclaimWorkers::new(&self.host, self.page_bytes, named);
            }
            Event::Stopped { now } => {
                let due = self.relation.open_lines_at_end(now, ctx);
                self.settle(now, &due, ctx);
                self.kills.show(now, true, self.page_bytes, ctx);
            }
            Event::Task { record: Record::Exit(task), .. } => {
                self.asked.remove(&task.tid);
            }
            Event::Lost(..) => self.asked.clear(),
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let due = self.relation.tick(now, ctx);
        self.settle(now, &due, ctx);
        self.kills.show(now, false, self.page_bytes, ctx);
        TickOutcome::default()
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.count(now);
        let unpaired = self.relation.end_interval(now, report);
        let verdict = unpaired.verdict(false);
        let rows = self.rows(now);
        let in_text = rows.iter().any(|row| row.than > 0) || !self.args.lengths.only_than();
        let top = self.args.top as usize;
        let table = report.delta(&STALLS, rows).judged(verdict).below(unpaired.in_words());
        table.text_rows(top).in_text(in_text);
        let (workers, faults) = self.workers.take_rows();
        let pressures = self.cgroups.take_rows(faults);
        let (any_pressure, any_work) =
            (pressures.iter().any(PressureRow::is_any), workers.iter().any(WorkerRow::is_any));
        let table = report.delta(&PRESSURES, pressures).judged(verdict);
        table.text_rows(top).in_text(in_text && any_pressure);
        report.delta(&WORKERS, workers).in_text(in_text && any_work);
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.kills.stacks());
        used.extend(self.lines.iter().filter_map(|line| line.start.open.stack));
    }
}
