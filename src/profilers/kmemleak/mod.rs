//! `kmemleak`: what was allocated and not freed, where, how much and how old.
//!
//! Events: those of `--alloc` and `--free`, or of a preset, period 1. An allocation is paired with its free by address,
//! and also by process where the addresses are user addresses. Cost: one record per allocation and per free.
//!
//! `sources` has the events, `field_source` those whose address and size are fields, `pointers` the table of live
//! allocations, `ledger` the accounts of all tables, `flows` the allocations and frees of each place, `trend` decides
//! whether the outstanding amount of a place grows, `ages` has how old it is, `report` makes the rows.

mod ages;
mod field_source;
pub mod flows;
pub mod ledger;
mod owners;
pub mod pointers;
mod report;
mod sources;
mod trend;

use anyhow::{Result, anyhow};
use rustc_hash::FxHashSet;

use crate::cli::CommonArgs;
use crate::cli::values::{self, Time};
use crate::digits::format_ns;
use crate::expr::Program;
use crate::perf::record::Innermost;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{Context, Event, LostWindow, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::kmemleak::field_source::FieldSource;
use crate::profilers::kmemleak::flows::CacheTag;
use crate::profilers::kmemleak::ledger::{Caller, Ledger, OURSELVES, OpenCall, PointerSpace};
use crate::profilers::kmemleak::owners::Owners;
use crate::profilers::kmemleak::report::OutstandingTerms;
use crate::profilers::kmemleak::sources::{AllocatorEvent, CallArgument, Preset, Role, WantedSource};
use crate::report::{TableSchema, Value, Verdict};
use crate::symbol::StackId;
use crate::task::TaskTable;
use crate::tep::filter::Filter;

/// What was allocated and not freed: where, how much, how old
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  What the kernel's slabs keep, with stacks, for ten seconds:
    perf-prof kmemleak slab -g --for 10
  Pages that are kept for over a minute, every ten seconds:
    perf-prof kmemleak page -g --than 60 -i 10s
  What a program leaks, from its start to its end, or one that runs:
    perf-prof kmemleak malloc -g -- ./server
    perf-prof kmemleak malloc -g -p nginx --for 10
  One tracepoint for each side:
    perf-prof kmemleak --alloc kmem:kmalloc --free kmem:kfree -g
  How many bytes, by another field; ptr= is the address, any expression will do:
    perf-prof kmemleak --alloc kmem:kmalloc//size=bytes_req/ --free kmem:kfree

What is not freed when the run ends need not be a leak: look for what grows, and
gets old. kill -USR1 reports at once, -i every so often.")]
pub struct KmemleakArgs {
    /// An allocator whose events are known
    #[arg(value_name = "PRESET", value_enum, conflicts_with_all = ["alloc", "free"])]
    preset: Option<Preset>,
    /// Events that allocate, sys:name//ptr=EXPR/size=EXPR/; key=EXPR for ptr= pairs other things
    #[arg(long, value_name = "EVENT,...", requires = "free")]
    alloc: Vec<String>,
    /// Events that free, sys:name//ptr=EXPR/
    #[arg(long, value_name = "EVENT,...", requires = "alloc")]
    free: Vec<String>,
    /// Only what is at least so old, in s, or as 500ms
    #[arg(long, value_name = "AGE", value_parser = values::time_s)]
    than: Option<Time>,
    /// So many rows at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    /// All rows in text
    #[arg(long, conflicts_with = "top")]
    all: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Why a preset whose events are user probes needs a selection of programs.
const IN_PROGRAMS: &str =
    "as in `kmemleak malloc -- ./program`; of all programs, each would pay several us for each malloc and free";
/// Time from a loss to the check which processes live, ns: records of exits may still be on the way.
const CHECK_AFTER_NS: u64 = 2_000_000_000;

/// The profiler behind [`KmemleakArgs`].
#[derive(Debug, Default)]
pub struct Kmemleak {
    wanted: Vec<WantedSource>,
    /// By the index of the event, minus `first`.
    sources: Vec<AllocatorEvent>,
    first: usize,
    /// The same events if each of them is a [`FieldSource`]; else empty.
    field_sources: Vec<FieldSource>,
    ledger: Ledger,
    owners: Owners,
    than: Option<Time>,
    /// Most places in text.
    most: usize,
    draws_flame_graph: bool,
    started_ns: Timestamp,
    /// When to check which processes live after a loss.
    check_at_ns: Option<Timestamp>,
}

impl ProfilerArgs for KmemleakArgs {
    const NAME: &'static str = "kmemleak";
    const TABLES: &'static [&'static dyn TableSchema] = &[&report::PLACES];
    // Bytes, or numbers of allocations where no event has a size.
    const WEIGHT: &'static str = "outstanding";
    const TRIAL: &'static [&'static str] = &["slab"];
    const NARROWINGS: &'static [&'static str] = &["-p PID"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.preset.is_some_and(Preset::is_in_programs) {
            self.common.require_tasks("whose memory is missing", IN_PROGRAMS)?;
        }
        let wanted = sources::wanted(self.preset, &self.alloc, &self.free)?;
        let most = if self.all { usize::MAX } else { usize::try_from(self.top).unwrap_or(usize::MAX) };
        Ok(Box::new(Kmemleak::new(wanted, self.than, most)))
    }
}

impl Kmemleak {
    fn new(wanted: Vec<WantedSource>, than: Option<Time>, most: usize) -> Kmemleak {
        let ledger = Ledger::new(than.map_or(0, |than| than.0));
        Kmemleak { wanted, ledger, than, most, ..Kmemleak::default() }
    }

    /// An allocation is complete.
    #[inline(always)]
    fn allocated(&mut self, at: usize, ptr: u64, bytes: u64, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Some(source) = self.sources.get(at) else { return Use::Malformed };
        let space = space(source, sample);
        let stack = match &source.call_site {
            _ if source.stacks => ctx.stack(sample),
            Some(field) => {
                let ip = field.read_u64(sample.raw).unwrap_or(0);
                ctx.stacks.intern_address(ip, false, Innermost::BehindTracepoint, sample.pid, &mut ctx.spaces)
            }
            None => None,
        };
        let cache = source.cache.map_or_else(CacheTag::default, |name| CacheTag::of(name, bytes, sample.raw));
        self.record_alloc(space, NewAllocation { ptr, bytes, stack, cache }, sample, ctx)
    }

    /// Records an allocation.
    #[inline(always)]
    fn record_alloc(
        &mut self,
        space: PointerSpace,
        new: NewAllocation<'_>,
        sample: &Sample<'_>,
        ctx: &mut Context,
    ) -> Use {
        let &Sample { pid, tid, time, .. } = sample;
        let NewAllocation { ptr, bytes, stack, cache } = new;
        let owner = match self.owners.recent(pid, tid) {
            Some(owner) => owner,
            None => self.find_owner(pid, tid, ctx),
        };
        let record = pointers::LiveAllocation { ptr, time, bytes, stack, owner };
        if !self.ledger.allocated(space, record, cache) {
            ctx.view.discarded += 1;
        }
        if owner == OURSELVES { Use::Ignored } else { Use::Relevant }
    }

    /// The number of a thread's task.
    #[inline(never)]
    fn find_owner(&mut self, pid: i32, tid: i32, ctx: &mut Context) -> u32 {
        let owner = if ctx.scope.is_own(tid) {
            OURSELVES
        } else {
            let comm = ctx.tasks.comm(tid);
            self.owners.number(pid, comm, || ctx.tasks.comm(pid))
        };
        self.owners.keep_recent(pid, tid, owner);
        owner
    }

    /// Removes the allocation that was freed at `ptr`.
    #[inline(always)]
    fn freed(&mut self, space: PointerSpace, ptr: u64, time: u64, tid: i32, cpu: u32, ctx: &Context) -> Use {
        match self.ledger.freed(space, ptr, time) {
            Some(record) if record.owner == OURSELVES => Use::Ignored,
            Some(_) => Use::Relevant,
            None if Kmemleak::counts(tid, cpu, ctx) => {
                self.ledger.counts.unmatched();
                Use::Relevant
            }
            None => Use::Ignored,
        }
    }

    /// A call returned `ptr`. Where the result is in memory, `ptr` is an errno, and the address is in the stack that
    /// the sample has copied.
    #[inline(never)]
    fn returned(&mut self, at: usize, open: OpenCall, ptr: u64, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Some(source) = self.sources.get(at) else { return Use::Malformed };
        let ptr = match source.result_in_memory {
            true if ptr != 0 => Some(0), // an errno
            true => sample.user_word(open.argument),
            false => Some(ptr),
        };
        match ptr {
            Some(0) => self.ledger.failed(open),
            Some(ptr) => return self.allocated(at, ptr, open.bytes, sample, ctx),
            None => self.ledger.counts.out_of_reach += 1,
        }
        Use::Relevant
    }

    fn on_event(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let at = event.index().wrapping_sub(self.first);
        let Some(source) = self.sources.get(at) else { return Err(without_source()) };
        let ptr = value(source.ptr.as_ref(), sample)?;
        match source.role {
            Role::Alloc => {
                let bytes = value(source.size.as_ref(), sample)?;
                if (ptr != 0 || source.is_keyed) && !(source.user && self.ledger.is_inside(sample.tid)) {
                    return Ok(self.allocated(at, ptr, bytes, sample, ctx));
                }
            }
            Role::Free => {
                if ptr == 0 && !source.is_keyed || source.user && self.ledger.is_inside(sample.tid) {
                    return Ok(Use::Relevant); // free(NULL), or memory of an allocator's own
                }
                let space = space(source, sample);
                return Ok(self.freed(space, ptr, sample.time, sample.tid, sample.cpu, ctx));
            }
            Role::Enter(pair) => {
                let bytes = value(source.size.as_ref(), sample)?;
                let argument = value(source.argument.as_ref().map(|(_, program)| program), sample)?;
                let caller = caller(source, sample);
                let is_outermost = self.ledger.enters(caller, OpenCall { pair, bytes, old: None, argument });
                if is_outermost && argument != 0 && matches!(source.argument, Some((CallArgument::Old, _))) {
                    let counts = Kmemleak::counts(sample.tid, sample.cpu, ctx);
                    self.ledger.reallocates(caller, space(source, sample), argument, sample.time, counts);
                }
            }
            Role::Leave(pair) => {
                if let Some(open) = self.ledger.leaves(caller(source, sample), pair) {
                    // A clone of the sample: only this cold call needs the sample in memory.
                    return Ok(self.returned(at, open, ptr, &sample.clone(), ctx));
                }
            }
        }
        Ok(Use::Relevant)
    }

    /// Whether a free without a known allocation is counted: frees of watched tasks, on the CPUs of `-C`.
    #[inline(never)]
    fn counts(tid: i32, cpu: u32, ctx: &Context) -> bool {
        ctx.watched.contains(tid) && ctx.scope.has_cpu(cpu)
    }
}

/// The value of an event's expression; 0 if the event has none.
#[inline(always)]
fn value(program: Option<&Program>, sample: &Sample<'_>) -> Result<u64> {
    match program.map_or(Some(0), |program| program.eval(sample)) {
        Some(value) => Ok(value),
        None => Err(without_fields()),
    }
}

#[cold]
fn without_source() -> anyhow::Error {
    anyhow!("an event of another profiler")
}

#[cold]
fn without_fields() -> anyhow::Error {
    anyhow!("a record without its fields")
}

#[inline(always)]
fn space(source: &AllocatorEvent, sample: &Sample<'_>) -> PointerSpace {
    if source.user { PointerSpace::Process(sample.pid) } else { PointerSpace::Kernel }
}

#[inline(always)]
fn caller(source: &AllocatorEvent, sample: &Sample<'_>) -> Caller {
    match sample.tid {
        tid if source.user => Caller::User(tid),
        tid @ 1.. => Caller::Kernel(tid),
        _ => Caller::Cpu(sample.cpu),
    }
}

/// An allocation, without owner and time.
#[derive(Clone, Copy, Debug)]
struct NewAllocation<'a> {
    ptr: u64,
    bytes: u64,
    stack: Option<StackId>,
    cache: CacheTag<'a>,
}

/// Whether a thread of this process is known to live.
fn lives(tasks: &TaskTable, pid: i32) -> bool {
    tasks.living().any(|(_, of)| of == pid)
}

impl Profiler for Kmemleak {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.require_host_pids(
            "tasks outside of this pid namespace have no numbers in it, so that their memory cannot be told apart",
        )?;
        self.sources = sources::open(&self.wanted, evlist, setup)?;
        self.first = self.sources.first().map_or(0, |source| source.event.index());
        self.ledger.flows.has_sizes = self.has_sizes();
        self.draws_flame_graph = setup.flame_graph;
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let field_source = |source: &AllocatorEvent| FieldSource::new(source, evlist.evsel(source.event).chain_form());
        self.field_sources = self.sources.iter().map(field_source).collect::<Option<Vec<_>>>().unwrap_or_default();
        for source in &self.sources {
            // In the kernel, other tasks may free the memory of perf-prof, and perf-prof that of other tasks; in a
            // program they cannot.
            let ours = source.user.then(|| setup.not_ourselves(&source.format)).flatten();
            if let Some(filter) = Filter::all_of([source.filter.clone(), ours]) {
                evlist.set_filter(source.event, filter.text())?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        match self.field_sources.get(event.index().wrapping_sub(self.first)) {
            Some(&source) => self.on_field_event(source, sample, ctx),
            None => self.on_event(event, &sample.clone(), ctx),
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx);
        TickOutcome::default()
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { now } => {
                self.started_ns = now;
                self.ledger.flows.start(now);
            }
            Event::Task { record, time, .. } => self.on_task(record, time, ctx),
            Event::Lost(window, _) | Event::LostSide(window) => self.on_loss(window),
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.ledger.stacks());
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.ledger.flows.look(now);
        self.report("outstanding so far", now, report);
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.ledger.flows.look(now);
        self.report("outstanding", now, report);
        Ok(())
    }
}

impl Kmemleak {
    fn on_task(&mut self, record: &Record<'_>, time: Timestamp, ctx: &Context) {
        self.owners.forget_recent();
        match record {
            Record::Fork(fork) if fork.pid != fork.ppid => self.ledger.forked(fork.pid, time),
            Record::Comm { pid, exec: true, .. } => self.ledger.executed(*pid, time),
            Record::Exit(exit) => {
                self.ledger.thread_exited(exit.tid, exit.pid, time, |pid| lives(&ctx.tasks, pid));
            }
            _ => {}
        }
    }

    fn has_sizes(&self) -> bool {
        self.sources.iter().any(|source| source.size.is_some())
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &Context) {
        self.owners.forget_recent(); // after a loss the names of tasks are corrected at any time
        self.ledger.flows.look(now);
        self.ledger.expire(now, |pid| lives(&ctx.tasks, pid));
        if self.check_at_ns.is_some_and(|at| at <= now) {
            self.check_at_ns = None;
            let living: FxHashSet<i32> = ctx.tasks.living().map(|(_, pid)| pid).collect();
            self.ledger.only_live(&living, now);
        }
    }

    fn on_loss(&mut self, window: &LostWindow) {
        self.ledger.lost(window.end_ns);
        // Further losses do not delay the check.
        self.check_at_ns.get_or_insert(window.end_ns.saturating_add(CHECK_AFTER_NS));
    }

    fn report(&self, what: &'static str, now: Timestamp, report: &mut Report) {
        if !report.takes_snapshots {
            return;
        }
        let sums = self.ledger.sums(now);
        let sizes = self.has_sizes();
        let outstanding = report::outstanding(&sums);
        let age = self.than.map_or(String::new(), |than| format!(", at least {} old", format_ns(than.0)));
        let mut lines = vec![report::amount(outstanding, sizes) + &age];
        lines.extend(report::balance(self.ledger.counts));
        if sums.values().any(|sum| sum.unsure > 0) {
            let until = self.ledger.horizon().end_ns().saturating_sub(self.started_ns);
            lines.push(format!(
                "unsure: allocated before events were lost, {} into the run; may have been freed",
                format_ns(until)
            ));
        }
        if sums.values().any(|sum| sum.exited > 0) {
            lines.push("exited: left by a process that has ended since, with the age at its end".to_owned());
        }
        let has_places = self.sources.iter().any(|source| source.stacks || source.call_site.is_some());
        let span = self.ledger.flows.span(now);
        lines.extend((!sums.is_empty()).then(|| report::span_line(span)));
        lines.extend(report::age_line(&sums));
        let flow = |key| self.ledger.flows.of(key);
        let terms = OutstandingTerms { has_sizes: sizes, span };
        let rows = report::rows(&sums, terms, |owner| self.owners.task(owner), flow);
        let schema = if has_places { &report::PLACES } else { &report::OWNERS };
        let counts = self.ledger.counts;
        let verdict = match () {
            () if counts.left_out() > 0 => Verdict::LowerBound,
            () if self.ledger.replaced_anywhere() => Verdict::Discarded,
            () => Verdict::Exact,
        };
        report.snapshot(schema, rows).titled(what).above(lines).text_rows(self.most).judged(verdict);
        if self.draws_flame_graph {
            for (&ledger::AllocOrigin { stack, owner }, sum) in sums.iter() {
                let weight = if sizes { sum.bytes } else { sum.allocs };
                report.weigh(-1, self.owners.task(owner).comm, stack, weight);
            }
        }
        report.run_total("total_allocs", Value::Unsigned(counts.allocs));
        report.run_total("total_frees", Value::Unsigned(counts.frees));
        report.run_total("unmatched_frees", Value::Unsigned(counts.unmatched));
        report.run_total("unfinished_calls", Value::Unsigned(counts.unfinished));
        report.run_total("out_of_reach", Value::Unsigned(counts.out_of_reach));
        report.run_now("outstanding", Value::Unsigned(outstanding.0));
        if sizes {
            report.run_now("outstanding_bytes", Value::Unsigned(outstanding.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_makes_the_rest_a_lower_bound() {
        let mut kmemleak = Kmemleak::new(Vec::new(), None, 20);
        let reported = |kmemleak: &Kmemleak| {
            let mut report = Report::default();
            kmemleak.report("outstanding", 10, &mut report);
            let total = report.run_totals.iter().find(|(key, _)| *key == "out_of_reach");
            (report.tables[0].verdict, total.map(|(_, value)| value.clone()))
        };
        assert_eq!(reported(&kmemleak), (Verdict::Exact, Some(Value::Unsigned(0))));
        kmemleak.ledger.counts.out_of_reach = 3;
        assert_eq!(reported(&kmemleak), (Verdict::LowerBound, Some(Value::Unsigned(3))));
        // Calls in the kernel may stay unfinished without a loss.
        kmemleak.ledger.counts = ledger::AllocCounts { unfinished: 1, ..ledger::AllocCounts::default() };
        assert_eq!(reported(&kmemleak), (Verdict::LowerBound, Some(Value::Unsigned(0))));
        let mut report = Report { takes_snapshots: false, ..Report::default() };
        kmemleak.report("outstanding", 10, &mut report);
        assert!(report.tables.is_empty() && report.run_totals.is_empty());
    }

    #[test]
    fn losses_in_a_row_do_not_delay_the_check_of_who_lives() {
        let mut kmemleak = Kmemleak::new(Vec::new(), None, 20);
        for end_ns in [1_000, 2_000, 3_000] {
            kmemleak.on_loss(&LostWindow { cpu: 0, start_ns: 0, end_ns, count: 1 });
        }
        assert_eq!(kmemleak.check_at_ns, Some(1_000 + CHECK_AFTER_NS));
        assert_eq!(kmemleak.ledger.horizon().end_ns(), 3_000);
    }
}
