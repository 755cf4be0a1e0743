//! `syscalls`: how long system calls take, which of them fail, and which have not come back.
//!
//! Events: `raw_syscalls:sys_enter` and `raw_syscalls:sys_exit`, period 1, on the tasks of the run: both fire in the
//! task that makes the call. Cost: two records per call; the kernel applies `--calls`. With `--errors` only the ends of
//! failed calls, and the starts of calls with paths, have a record.
//!
//! `pairs` declares how starts and ends are paired, `table` and `errors` are the tables, `args` the options. `slow`
//! handles calls that have a line, which `line` lays out. `connects` keeps the connections still in progress when
//! connect returned. `plain` handles the samples if there are only tables.

mod args;
mod connects;
mod errors;
mod failed_call;
mod line;
mod pairs;
mod plain;
mod slow;
mod table;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::calls::before::{EarlierCalls, NewlyFound};
use crate::calls::{
    CallEvents, CallInFlight, CallKind, CallKinds, CallNumber, CallingThread, EndedCall, WantedCalls, paths,
};
use crate::cli::CommonArgs;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, Samples, Setup, TickOutcome, Timestamp, Use};
pub use crate::profilers::syscalls::args::SyscallsArgs;
use crate::profilers::syscalls::errors::{ERRORS, FailedCall, FailedCalls};
use crate::profilers::syscalls::line::SLOW;
use crate::profilers::syscalls::pairs::{CallKey, CallPairs, CallThread};
use crate::profilers::syscalls::table::{
    CALLS, CallRow, ENDINGS, EndingRow, LONGEST, LongestRow, OPEN, OpenRow, WAITS,
};
use crate::relation::{EventMoment, OpenStart, PairEnd, PairOutcome, Relation, RelationTerms};
use crate::report::{OccurrenceLayout, TableSchema, Value, Verdict};
use crate::sched::TaskEvent;
use crate::stats::{Began, WorstCase};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::syscalls::errnos;

impl ProfilerArgs for SyscallsArgs {
    const NAME: &'static str = "syscalls";
    const TABLES: &'static [&'static dyn TableSchema] = &[&CALLS, &WAITS, &LONGEST, &OPEN, &ENDINGS, &ERRORS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SLOW.layout());
    const WEIGHT: &'static str = "µs in system calls";

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Syscalls::new(self)))
    }
}

/// Memory for calls in progress: one for each of 100,000 threads.
const OPEN_BYTES: usize = 16 << 20;

/// Ends of calls that were not seen since the last interval, and reasons why more may be missing.
#[derive(Debug, Default)]
struct UnseenEnds {
    /// `-C`: a thread may end its call on a CPU that is not watched.
    misses_cpus: bool,
    /// Calls that ended with their task.
    cut_off: u64,
    /// Calls whose thread began another call.
    restarted: u64,
    /// Exits of tasks may have been lost.
    lost_exits: bool,
}

/// The profiler behind [`SyscallsArgs`].
#[derive(Debug)]
struct Syscalls {
    args: SyscallsArgs,
    events: Option<CallEvents>,
    kinds: CallKinds,
    relation: Relation<CallPairs>,
    /// None: calls on some CPUs are not seen, and the start of a call may be paired with the end of a later one.
    earlier: Option<EarlierCalls>,
    /// Present with `--errors`, and for calls that have lines.
    paths: Option<paths::CallPaths>,
    /// Present with `--than`.
    slow: Option<slow::SlowCalls>,
    endings: FxHashMap<CallNumber, u64>,
    errors: FailedCalls,
    unseen: UnseenEnds,
}

impl Syscalls {
    fn new(args: SyscallsArgs) -> Syscalls {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let terms = RelationTerms { lengths, draws_stacks, start_bytes: OPEN_BYTES, longest_ns: None };
        let relation = Relation::new(CallPairs { by_thread: args.perins }, terms);
        let (events, kinds, earlier, paths, slow) = Default::default();
        let (endings, errors, unseen) = Default::default();
        Syscalls { args, events, kinds, relation, earlier, paths, slow, endings, errors, unseen }
    }

    fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    #[inline(always)]
    fn entered(&mut self, at: EventMoment, call: CallNumber, stack: Option<StackId>, ctx: &mut Context) -> Use {
        if self.kinds.of(call) == CallKind::NeverReturns {
            return self.ends_task(at.tid, call);
        }
        if let Some(earlier) = &mut self.earlier {
            earlier.entered(at.tid);
        }
        let call = CallInFlight { call, began: Began::Exactly };
        self.relation.start(CallingThread(at.tid), at, ctx.tasks.comm(at.tid), stack, call);
        Use::Relevant
    }

    #[cold]
    fn ends_task(&mut self, tid: i32, call: CallNumber) -> Use {
        self.relation.forget(CallingThread(tid));
        *self.endings.entry(call).or_default() += 1;
        Use::Relevant
    }

    #[inline(always)]
    fn exited(&mut self, at: EventMoment, ended: EndedCall, ctx: &mut Context) -> Use {
        match self.relation.end(CallingThread(at.tid), &PairEnd { moment: at, own: ended }, ctx) {
            PairOutcome::Ended(start) => {
                if self.slow.is_some() {
                    let start = *start;
                    self.show(&start, ended, at, ctx);
                }
            }
            PairOutcome::Unfit => self.no_start(ended, at),
            PairOutcome::NoStart => self.unmatched(ended, at, ctx),
            PairOutcome::Doubtful => {}
        }
        Use::Relevant
    }

    /// Shows a call that has ended, if options ask for it.
    #[inline(never)]
    fn show(&mut self, start: &OpenStart<CallInFlight>, ended: EndedCall, at: EventMoment, ctx: &mut Context) {
        let Some(slow) = &mut self.slow else { return };
        let call = start.open.own.call;
        let paths = self.paths.as_mut().map_or_else(Default::default, |paths| paths.ended(at.tid, call));
        slow.ended(start, self.kinds.of(call), at, (ended.ret, paths), ctx);
    }

    /// The end of a call whose start was not seen. In the child of a fork, it belongs to no call of that task.
    #[cold]
    fn unmatched(&mut self, ended: EndedCall, at: EventMoment, ctx: &mut Context) {
        let is_birth = ended.ret == 0 && self.kinds.of(ended.call) == CallKind::Forks;
        if is_birth {
            return;
        }
        let earlier = self
            .earlier
            .as_mut()
            .and_then(|earlier| earlier.take(at.tid))
            .filter(|pair| pair.open.own.call == ended.call);
        if let (Some(pair), Some(slow)) = (earlier, &mut self.slow) {
            slow.ended(&pair, self.kinds.of(ended.call), at, (ended.ret, Default::default()), ctx);
        }
        self.no_start(ended, at);
    }

    /// The exec of a thread that was not the first of its process returns under the tid of the first thread.
    fn took_over(&mut self, old: i32, pid: i32) {
        self.relation.move_start(CallingThread(old), CallingThread(pid), |call| call.tid = pid);
        self.earlier.as_mut().and_then(|earlier| earlier.take(old));
        self.slow.iter_mut().for_each(|slow| slow.took_over(old, pid));
        self.paths.iter_mut().for_each(|paths| paths.took_over(old, pid));
    }

    #[cold]
    fn no_start(&mut self, ended: EndedCall, at: EventMoment) {
        let thread = self.args.perins.then_some(CallThread { tid: at.tid, comm: Comm::default() });
        self.relation.rows.sum(CallKey { thread, call: ended.call }).no_start += 1;
    }

    fn failed(&mut self, sample: &Sample<'_>, id: i64, ret: i64, ctx: &mut Context) -> Use {
        let errno = errnos::of_return(ret).filter(|errno| !errnos::is_restart(*errno));
        let Some(errno) = errno else { return Use::Ignored };
        let comm = ctx.tasks.comm(sample.tid);
        let stack = if self.takes_stacks() { ctx.stack(sample) } else { None };
        let call = CallNumber::new(id, sample.is_compat());
        let shown = stack.filter(|_| self.args.common.stacks());
        let descriptor = self.paths.as_ref().and_then(|paths| paths.descriptor(sample.tid, call));
        let paths = self.paths.as_mut().map_or_else(Default::default, |paths| paths.failed(sample.tid, call));
        let failed = FailedCall { call, errno, comm, paths, stack: shown };
        if connects::is_under_way(call, errno) {
            self.errors.goes_on(descriptor, connects::FailedConnect { failed, pid: sample.pid, stack });
            return Use::Ignored;
        }
        self.errors.add(failed, sample.pid, sample.tid);
        if self.args.common.draws_stacks() {
            ctx.weigh(sample.pid, comm, stack, 1);
        }
        Use::Relevant
    }

    /// Handles the result of a background connection that a program has queried.
    fn take_connect(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Some(told) = self.errors.take_told(sample, ctx.tasks.comm(sample.tid)) else { return Use::Ignored };
        if self.args.common.draws_stacks() {
            ctx.weigh(told.pid, told.failed.comm, told.stack, 1);
        }
        Use::Relevant
    }

    /// Looks for calls that began before the start, or before a loss.
    fn look_for_earlier(&mut self, now: Timestamp, ctx: &mut Context) {
        let Syscalls { earlier: Some(earlier), relation, slow, args, .. } = self else { return };
        if earlier.is_due(now) {
            relation.forget_doubtful();
        }
        let found = earlier.look(now, args.calls.as_ref(), |tid| relation.since(CallingThread(tid)).is_some(), ctx);
        for NewlyFound { tid, since, args, state } in found {
            slow.iter_mut().for_each(|slow| slow.found(tid, since, args, state));
        }
    }

    /// Forgets threads whose exit was lost.
    fn forget_gone(&mut self, ctx: &Context) {
        let is_gone = |tid| ctx.tasks.has_exited(tid);
        let gone: Vec<_> = self.relation.iter().map(|(key, _)| *key).filter(|key| is_gone(key.0)).collect();
        for key in gone {
            self.relation.forget(key);
        }
        self.earlier.iter_mut().for_each(|earlier| earlier.retain(|tid| !is_gone(tid)));
        self.slow.iter_mut().for_each(|slow| slow.retain(|tid| !is_gone(tid)));
    }

    /// The rows of calls in progress, and their number by call.
    fn goes_on(&mut self, now: Timestamp) -> (Vec<OpenRow>, FxHashMap<CallKey, u64>) {
        let (mut rows, mut counts) = (Vec::new(), FxHashMap::default());
        let Syscalls { relation, earlier, kinds, args, .. } = self;
        let seen = relation.waiting(now).map(|(key, start)| (key.0, start));
        for (tid, OpenStart { since, open }) in seen.chain(earlier.iter().flat_map(EarlierCalls::iter)) {
            let CallInFlight { call, began } = open.own;
            let thread = CallThread { tid, comm: open.comm };
            let key = CallKey { thread: args.perins.then_some(thread), call };
            *counts.entry(key).or_default() += 1;
            rows.push(OpenRow {
                call,
                waits: kinds.of(call) == CallKind::Waits,
                pid: open.pid,
                thread,
                since: *since,
                age_ns: Some(now.saturating_sub(*since)),
                began,
                stack: open.stack,
            });
        }
        (rows, counts)
    }

    fn report_calls(&mut self, now: Timestamp, report: &mut Report) {
        let (open, mut now_open) = self.goes_on(now);
        let sums = self.relation.rows.take();
        let has_limit = self.args.lengths.than_ns().is_some();
        let mut rows: Vec<CallRow> = sums
            .into_iter()
            .map(|(key, sum)| CallRow { key, sum, has_limit, now: Some(now_open.remove(&key).unwrap_or(0)) })
            .collect();
        rows.extend(now_open.into_iter().map(|(key, count)| CallRow {
            key,
            sum: Default::default(),
            has_limit,
            now: Some(count),
        }));
        // With a row per thread, only the longest call over all threads is kept.
        let mut longest: FxHashMap<CallNumber, WorstCase> = FxHashMap::default();
        for (call, case) in rows.iter().filter_map(|row| Some((row.key.call, row.sum.latency.worst?))) {
            let known = longest.entry(call).or_insert(case);
            *known = if case.ns > known.ns { case } else { *known };
        }
        let row = |(call, case): (CallNumber, WorstCase)| LongestRow { call, stack: case.stack, case: Some(case) };
        let longest: Vec<LongestRow> = longest.into_iter().map(row).collect();
        let in_text = !self.args.lengths.only_than() || rows.iter().any(|row| row.sum.than > 0);
        let (waits, works): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| self.kinds.of(row.key.call) == CallKind::Waits);
        let top = self.args.top as usize;
        let verdict = if self.unseen.misses_cpus { Verdict::Unsure } else { Verdict::Exact };
        let (any_works, any_waits) = (!works.is_empty(), !waits.is_empty());
        // If both tables are empty, one of them says so.
        let has_calls = any_works || !any_waits;
        report.delta(&CALLS, works).judged(verdict).text_rows(top).in_text(in_text && has_calls);
        report.delta(&WAITS, waits).judged(verdict).text_rows(top).in_text(in_text && any_waits);
        report.delta(&LONGEST, longest).judged(verdict).text_rows(top).in_text(in_text && self.args.worst);
        let endings: Vec<EndingRow> = self.endings.drain().map(|(call, count)| EndingRow { call, count }).collect();
        let any_ends = !endings.is_empty();
        report.delta(&ENDINGS, endings).in_text(in_text && any_ends);
        let in_flight = open.len() as u64;
        report.snapshot(&OPEN, open).text_rows(top).in_text(in_text && in_flight > 0);
        if !report.is_quiet {
            report.run_now("in_flight", Value::Unsigned(in_flight));
            report.total("cut_off", Value::Unsigned(std::mem::take(&mut self.unseen.cut_off)));
            report.total("restarted", Value::Unsigned(std::mem::take(&mut self.unseen.restarted)));
        }
    }
}

impl Profiler for Syscalls {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let with_paths = !self.args.no_paths && (self.args.errors || self.args.lengths.shows_any());
        let calls = match with_paths {
            true => paths::calls_with_strings(self.args.calls.as_ref(), !self.args.errors, setup)?,
            false => Vec::new(),
        };
        let wanted =
            WantedCalls { only_errors: self.args.errors, paths: !calls.is_empty(), stacks: self.takes_stacks() };
        let mut events = CallEvents::open(wanted, evlist, setup)?;
        self.slow = slow::SlowCalls::open(&self.args, events.exit, evlist, setup)?;
        if let Some((enter, _)) = &events.enter {
            self.paths = paths::CallPaths::ask(*enter, &calls, evlist, setup)?;
        }
        if self.args.errors && paths::has_connect(&calls) {
            self.errors.follow_connects(events.exit, evlist, setup)?;
        }
        if self.is_plain() {
            evlist.order_by_thread(events.of_calls()); // a call is made by one thread, and no call has a line
        }
        events.starts = if self.args.errors { paths::filter_of(&calls) } else { None };
        self.events = Some(events);
        if self.args.errors && self.args.common.draws_stacks() {
            setup.weighs("failed calls");
        }
        // With a subset of the CPUs, a thread may end its call on an unwatched CPU.
        self.unseen.misses_cpus = setup.scope.cpus().is_some();
        match self.unseen.misses_cpus {
            _ if self.args.errors => {}
            true => setup.degrade_pairs(),
            false => self.earlier = Some(EarlierCalls::new(setup)?),
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        if let Some(slow) = &self.slow {
            slow.filter(evlist, setup)?;
        }
        let looks: Vec<i32> = self.earlier.iter().filter_map(EarlierCalls::thread).collect();
        let scope = setup.scope.clone().without(&looks);
        self.events.as_ref().map_or(Ok(()), |events| events.filter(self.args.calls.as_ref(), &scope, evlist, setup))
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(events) = &self.events else { return Ok(Use::Ignored) };
        if let Some((enter, fields)) = &events.enter
            && *enter == event
        {
            let id = fields.id.read(sample.raw)?.cast_signed();
            if let Some(paths) = &mut self.paths {
                paths.entered(CallNumber::new(id, sample.is_compat()), sample);
                if self.args.errors {
                    return Ok(Use::Ignored);
                }
            }
            if let Some(slow) = &mut self.slow {
                slow.entered(TaskEvent::unnamed(sample.time, sample.cpu, sample.tid), fields.args(sample.raw)?);
            }
            let stack = if self.takes_stacks() { ctx.stack(sample) } else { None };
            let call = CallNumber::new(id, sample.is_compat());
            return Ok(self.entered(EventMoment::of(sample), call, stack, ctx));
        }
        if event != events.exit {
            if self.paths.as_mut().is_some_and(|paths| paths.take(event, sample)) {
                return Ok(Use::Ignored);
            }
            if self.errors.is_told_by(event) {
                return Ok(self.take_connect(sample, ctx));
            }
            let Some(slow) = &mut self.slow else { return Ok(Use::Ignored) };
            slow.sched(event, sample, ctx)?;
            return Ok(Use::Ignored);
        }
        let id = events.exited.id.read(sample.raw)?.cast_signed();
        let ret = events.exited.ret.read(sample.raw)?.cast_signed();
        if self.args.errors {
            return Ok(self.failed(sample, id, ret, ctx));
        }
        self.slow.iter_mut().for_each(|slow| slow.call_ends(sample));
        Ok(self.exited(EventMoment::of(sample), EndedCall::of(id, sample.is_compat(), ret), ctx))
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.is_plain() { self.count_plainly(samples, ctx) } else { samples.each(self, ctx) }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        ctx.look_up(self.errors.take_look_ups());
        self.unseen.restarted += self.relation.count_unpaired(ctx).pairs.reopened;
        if std::mem::take(&mut self.unseen.lost_exits) {
            self.forget_gone(ctx);
        }
        self.look_for_earlier(now, ctx);
        let Syscalls { slow: Some(slow), relation, earlier, kinds, paths, .. } = self else {
            return TickOutcome::default();
        };
        let open =
            relation.iter().map(|(key, start)| (key.0, start)).chain(earlier.iter().flat_map(EarlierCalls::iter));
        slow.show_open(open, |call| kinds.of(call.call), paths.as_ref(), now, ctx);
        TickOutcome::default()
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { now } => self.look_for_earlier(now, ctx),
            Event::Task { record: Record::Exit(exit), .. } => {
                self.unseen.cut_off += u64::from(self.relation.forget(CallingThread(exit.tid)).is_some());
                self.earlier.as_mut().and_then(|earlier| earlier.take(exit.tid));
                self.slow.iter_mut().for_each(|slow| slow.forget(exit.tid));
                self.paths.iter_mut().for_each(|paths| paths.forget(exit.tid));
            }
            Event::TookOver { old, pid, .. } => self.took_over(old, pid),
            Event::SwitchIn { tid, time, cpu, .. } => {
                self.slow.iter_mut().for_each(|slow| slow.came(TaskEvent::unnamed(time, cpu, tid)));
            }
            // Only scheduler records were lost: calls are still known.
            Event::Lost(window, kinds)
                if !self.events.as_ref().is_some_and(|events| kinds.include(&events.of_calls())) =>
            {
                self.slow.iter_mut().for_each(|slow| slow.lost(window.end_ns));
            }
            Event::Lost(window, _) => {
                self.earlier.iter_mut().for_each(|earlier| earlier.lost(window.end_ns));
                self.relation.lost(window);
                self.paths.iter_mut().for_each(|paths| paths.lost(window.cpu));
                self.slow.iter_mut().for_each(|slow| slow.forget_address(window.cpu));
                self.errors.lost();
            }
            Event::LostSide(_) => self.unseen.lost_exits = true,
            Event::Stopped { now } => drop(self.tick(now, ctx)),
            _ => {}
        }
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        if self.args.errors {
            report.delta(&ERRORS, self.errors.take()).text_rows(self.args.top as usize);
        } else {
            self.report_calls(now, report);
        }
        self.relation.begin_interval(now, report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.errors.stacks());
        used.extend(self.relation.stacks());
        used.extend(self.slow.iter().flat_map(slow::SlowCalls::stacks_in_use));
    }
}
