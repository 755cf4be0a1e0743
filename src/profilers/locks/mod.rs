//! `locks`: who waits for which lock, for how long, and behind whom: locks of the kernel, futexes, locks of files.
//!
//! Events: `lock:contention_begin` and `_end` on all CPUs, the futex calls of the target's threads, those of `filelock:`
//! and, if asked for, `sched:sched_waking`. A lock that is free when it is taken has no event, so this costs nothing
//! where nobody waits; a wait costs two records, one with the innermost frames of the kernel.
//!
//! How long a lock was held cannot be known. A wait is behind the task that the events tell: the one that had waited for
//! the lock before and got it meanwhile, that woke the waiter, or that had locked the file.
//!
//! `lock` has the kinds of locks and the keys, `events` what events say, `owners` who has a lock, `names` what it is
//! called, `earlier` the waits that began before the run, `table` the tables and lines.

mod earlier;
mod events;
mod lock;
mod names;
mod owners;
mod table;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::perf::record::Record;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TaskGrouping, TickOutcome, Timestamp, Use,
};
use crate::profilers::locks::earlier::EarlierWaits;
use crate::profilers::locks::events::{LockEvents, LockStep, WantedLocks};
use crate::profilers::locks::lock::{
    LockCode, LockGroup, LockId, LockKind, LockOf, LockOwner, LockUser, LockWait, WaitKey,
};
use crate::profilers::locks::names::LockNames;
use crate::profilers::locks::owners::LockOwners;
use crate::profilers::locks::table::{
    LOCKS, LockRow, LockSums, OpenWaits, SLOW_LOCK, SlowLock, WAITERS, WAITS, WaiterSum,
};
use crate::relation::{Declaration, EventMoment, OpenStart, PairEnd, PairOutcome, Relation, RelationTerms};
use crate::report::{OccurrenceLayout, Subject, TableSchema, TaskNames, TaskOfRow, Value};
use crate::stats::{Began, KeyedSums, TaskKey};
use crate::symbol::StackId;

/// Who waits for which lock, how long, and behind whom
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Which locks are waited for, of the kernel, of programs and of files?
    perf-prof locks -i 1000
  Each wait of 10 ms or more, with the task that it was behind:
    perf-prof locks --than 10ms
  Where a program's threads wait for each other:
    perf-prof locks --kinds futex -p mysqld -g
  One row for each lock of the kernel, rather than for the code that takes it:
    perf-prof locks --kinds sleep,spin --addresses

A lock that is free when it is taken has no event: only waits are seen. How long
a lock was held cannot be known.")]
pub struct LocksArgs {
    /// Only these: spin, sleep, futex, file
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',')]
    kinds: Vec<LockGroup>,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// A row for each lock of the kernel, not only for its users
    #[arg(long)]
    addresses: bool,
    /// Lines and all rows of futexes that may be no locks
    #[arg(long)]
    all_waits: bool,
    /// Also who wakes waiters: a record for each wake-up. As with --than
    #[arg(long)]
    wakers: bool,
    /// What has a row in the table of waiters
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = TaskGrouping::Process)]
    by: TaskGrouping,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for LocksArgs {
    const NAME: &'static str = "locks";
    const TABLES: &'static [&'static dyn TableSchema] = &[&LOCKS, &WAITS, &WAITERS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SLOW_LOCK.layout());
    const WEIGHT: &'static str = "us";
    const NARROWINGS: &'static [&'static str] = &["--kinds KIND"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let (lengths, draws_stacks) = (self.lengths, self.common.draws_stacks());
        let declared = LockWaits { by_address: self.addresses, ..LockWaits::default() };
        let relation = Relation::new(declared, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, code, words, scope, owners, earlier, names, behind, waiters, sleepers) = Default::default();
        Ok(Box::new(Locks {
            args: self,
            events,
            code,
            words,
            scope,
            relation,
            owners,
            earlier,
            names,
            behind,
            waiters,
            sleepers,
        }))
    }
}

/// The pairs of this profiler: waits for locks.
#[derive(Debug, Default)]
struct LockWaits {
    by_address: bool,
    /// Only some waits are followed, so an end may have no start.
    is_narrowed: bool,
}

impl Declaration for LockWaits {
    type Key = WaitKey;
    type Start = LockWait;
    type End = ();
    type Row = LockOf;
    type Sums = LockSums;

    fn row(&self, _key: &WaitKey, start: &OpenStart<LockWait>, _end: &PairEnd<()>) -> LockOf {
        self.row_of(start)
    }

    fn may_be_first(&self, _key: &WaitKey, _end: &()) -> bool {
        self.is_narrowed
    }

    fn add(&self, sums: &mut LockSums, start: &OpenStart<LockWait>, _end: &PairEnd<()>) {
        sums.most = sums.most.max(Some(start.open.own.waiters.into()));
    }

    /// Threads wait for conditions by design.
    fn waits_on(&self, key: &WaitKey) -> bool {
        !matches!(key, WaitKey::Call { is_lock: false, .. })
    }
}

impl LockWaits {
    fn row_of(&self, start: &OpenStart<LockWait>) -> LockOf {
        let LockWait { kind, lock, place, .. } = start.open.own;
        let is_told = self.by_address || !matches!(lock, LockId::Kernel(_));
        LockOf { kind, lock: is_told.then_some(lock), place }
    }
}

/// Limit of the futexes in text that may be no locks, without `--all-waits`.
const MAX_WAITS_IN_TEXT: usize = 5;

/// The profiler behind [`LocksArgs`].
#[derive(Debug)]
struct Locks {
    args: LocksArgs,
    events: LockEvents,
    code: LockCode,
    /// The callchain without the frames of the lock.
    words: Vec<[u8; 8]>,
    scope: RunScope,
    relation: Relation<LockWaits>,
    owners: LockOwners,
    earlier: EarlierWaits,
    names: LockNames,
    /// Waits of a row by the task that they were behind.
    behind: KeyedSums<LockOwner, [u64; 2]>,
    waiters: KeyedSums<TaskKey, WaiterSum>,
    /// The kernel locks for which threads sleep, to find who wakes them.
    sleepers: FxHashMap<i32, WaitKey>,
}

impl Locks {
    /// Whether the run is about waits of the current task.
    fn wants(&self, sample: &Sample<'_>, ctx: &Context) -> bool {
        let is_watched = ctx.watched.is_all() || ctx.watched.contains(sample.tid);
        is_watched && self.scope.has_cpu(sample.cpu)
    }

    fn begins(&mut self, key: WaitKey, kind: LockKind, lock: LockId, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        if !self.wants(sample, ctx) {
            return Use::Ignored;
        }
        let known = self.relation.get(key).map(|start| start.open.own.lock);
        // A mutex begins again when its waiter stops spinning.
        if known == Some(lock) && kind.group() == LockGroup::Sleep {
            return Use::Relevant;
        }
        known.into_iter().for_each(|lock| self.owners.leaves(lock));
        self.names.seen(lock, sample.time);
        let place = self.place(lock, kind, sample, ctx);
        let stack = place.filter(|_| self.takes_stacks());
        let wait = LockWait { kind, lock, place, waiters: self.owners.joins(lock), waker: None, began: Began::Exactly };
        if self.args.wakers && matches!(key, WaitKey::Kernel { .. }) && kind.group() == LockGroup::Sleep {
            self.sleepers.insert(sample.tid, key);
        }
        self.relation.start(key, EventMoment::of(sample), ctx.tasks.comm(sample.tid), stack, wait);
        Use::Relevant
    }

    fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    /// The code that takes the lock, and with callchains its callers.
    fn place(&mut self, lock: LockId, kind: LockKind, sample: &Sample<'_>, ctx: &mut Context) -> Option<StackId> {
        let takes_stacks = self.takes_stacks();
        if !matches!(lock, LockId::Kernel(_)) {
            return if takes_stacks { ctx.stack(sample) } else { None };
        }
        let callers = self.code.callers(sample.callchain, kind, &mut self.words);
        if takes_stacks {
            let mut outside = sample.clone();
            outside.callchain = callers;
            return ctx.stack(&outside);
        }
        callers.iter().nth(1).and_then(|address| ctx.kernel_caller(address))
    }

    fn ends(&mut self, key: WaitKey, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        if self.relation.get(key).is_some_and(|start| start.open.own.began != Began::Exactly) {
            return self.ends_earlier(key, sample, ctx);
        }
        let end = PairEnd { moment: EventMoment::of(sample), own: () };
        let PairOutcome::Ended(start) = self.relation.end(key, &end, ctx) else { return Use::Ignored };
        let start = *start;
        if self.sleepers.get(&sample.tid) == Some(&key) {
            self.sleepers.remove(&sample.tid);
        }
        let ns = sample.time.saturating_sub(start.since);
        let owner = self.owner(&start);
        if let Some(LockUser { pid, tid, comm, .. }) = owner {
            let of = self.relation.declared.row_of(&start);
            let [waits, sum_ns] = self.behind.sum(LockOwner { of, owner: TaskKey { pid, tid, comm } });
            *waits += 1;
            *sum_ns += ns;
        }
        if start.open.own.kind != LockKind::FutexWait {
            let sum = self.waiters.sum(self.args.by.key(start.open.tid, start.open.comm, &mut ctx.tasks));
            sum.waits += 1;
            sum.ns += ns;
            sum.longest_ns = sum.longest_ns.max(Some(ns));
        }
        if self.args.lengths.shows(ns) {
            self.show(&start, sample.time, false, ctx);
        }
        self.owners.leaves(start.open.own.lock);
        Use::Relevant
    }

    /// A wait ends that began before the run, so that its length is not known.
    fn ends_earlier(&mut self, key: WaitKey, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let Some(start) = self.relation.forget(key) else { return Use::Ignored };
        self.relation.rows.sum(self.relation.declared.row_of(&start)).no_start += 1;
        if self.args.lengths.is_over(sample.time.saturating_sub(start.since)) {
            self.show(&start, sample.time, false, ctx);
        }
        self.owners.leaves(start.open.own.lock);
        Use::Relevant
    }

    /// Adds the waits that /proc shows, at the start and after losses.
    fn look_for_earlier(&mut self, now: Timestamp, ctx: &mut Context) {
        let relation = &self.relation;
        let calls = |tid| [true, false].map(|is_lock| WaitKey::Call { tid, is_lock });
        let is_open = |tid| calls(tid).into_iter().any(|key| relation.since(key).is_some());
        for (key, mut start) in self.earlier.look(now, is_open, ctx) {
            let kind = start.open.own.kind;
            if self.args.kinds.is_empty() || self.args.kinds.contains(&kind.group()) {
                self.names.seen(start.open.own.lock, now);
                start.open.own.waiters = self.owners.joins(start.open.own.lock);
                self.relation.add_start(key, start);
            }
        }
    }

    /// The call in which the current thread may have waited has ended.
    fn call_ends(&mut self, result: i64, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        const CHANGED: i64 = -11; // EAGAIN
        for is_lock in [true, false] {
            let key = WaitKey::Call { tid: sample.tid, is_lock };
            match self.relation.since(key) {
                None => {}
                // The word had another value already: this was no wait.
                Some(_) if result == CHANGED => self.forget(key),
                Some(_) => return self.ends(key, sample, ctx),
            }
        }
        Use::Ignored
    }

    fn forget(&mut self, key: WaitKey) {
        if let Some(start) = self.relation.forget(key) {
            self.owners.leaves(start.open.own.lock);
        }
    }

    /// The task that a wait is behind, as far as something tells.
    fn owner(&self, start: &OpenStart<LockWait>) -> Option<LockUser> {
        let LockWait { lock, waker, .. } = start.open.own;
        let waker = waker.filter(|waker| waker.at_ns >= start.since);
        waker.or_else(|| self.owners.of(lock, start.since)).filter(|owner| owner.tid != start.open.tid)
    }

    fn woken(&mut self, tid: i32, sample: &Sample<'_>, ctx: &mut Context) {
        let Some(key) = self.sleepers.get(&tid) else { return };
        let waker = user(sample, ctx);
        self.relation.move_start(*key, *key, |start| start.own.waker = Some(waker));
    }

    fn show(&self, start: &OpenStart<LockWait>, time: u64, goes_on: bool, ctx: &mut Context) {
        let OpenStart { since, open } = start;
        let LockWait { kind, lock, place, waiters, began, .. } = open.own;
        if kind == LockKind::FutexWait && !self.args.all_waits {
            return;
        }
        let (ns, owner) = (time.saturating_sub(*since), self.owner(start));
        let place = place.filter(|_| matches!(lock, LockId::Kernel(_)));
        let slow = SlowLock {
            ns,
            kind,
            lock: self.names.value(lock),
            place,
            others: waiters.saturating_sub(1),
            owner,
            began,
            goes_on,
        };
        let subject = Subject { time, cpu: open.cpu, pid: open.pid, tid: open.tid, comm: open.comm };
        ctx.emit(&SLOW_LOCK, subject, &slow, open.stack);
    }

    /// The rows of the interval, with those that go on.
    fn rows(&mut self, now: Timestamp) -> Vec<LockRow> {
        let mut open: FxHashMap<LockOf, OpenWaits> = FxHashMap::default();
        for (_, start) in self.relation.iter() {
            let of = self.relation.declared.row_of(start);
            let age_ns = now.saturating_sub(start.since);
            open.entry(of).or_default().add(age_ns);
            if let Some(LockUser { pid, tid, comm, .. }) = self.owner(start) {
                self.behind.sum(LockOwner { of, owner: TaskKey { pid, tid, comm } })[1] += age_ns;
            }
        }
        let mut owners: FxHashMap<LockOf, TaskNames> = FxHashMap::default();
        for (LockOwner { of, owner }, amount) in self.behind.drain() {
            let task = TaskOfRow { pid: Some(owner.pid), comm: owner.comm, ..TaskOfRow::default() };
            owners.entry(of).or_default().merge(&TaskNames::of(task, amount));
        }
        let mut sums: FxHashMap<LockOf, _> = self.relation.rows.take().into_iter().collect();
        for of in open.keys() {
            sums.entry(*of).or_default();
        }
        let row = |(of, sums): (LockOf, _)| LockRow {
            of,
            lock: of.lock.map_or(Value::None, |lock| self.names.value(lock)),
            sums,
            owners: owners.remove(&of).unwrap_or_default(),
            open: open.get(&of).copied().unwrap_or_default(),
        };
        sums.into_iter().map(row).collect()
    }
}

/// The current task of a sample as the user of a lock.
fn user(sample: &Sample<'_>, ctx: &mut Context) -> LockUser {
    let comm = ctx.tasks.comm(sample.tid);
    LockUser { at_ns: sample.time, pid: sample.pid, tid: sample.tid, comm }
}

impl Profiler for Locks {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.args.wakers |= self.args.lengths.shows_any();
        let wanted = WantedLocks { groups: &self.args.kinds, wakers: self.args.wakers };
        self.events.open(&wanted, evlist, setup)?;
        self.relation.declared.is_narrowed = !self.args.kinds.is_empty() || !setup.watched.is_all();
        if self.args.kinds.is_empty() || self.args.kinds.iter().any(|kind| kind.is_in_calls()) {
            self.earlier = EarlierWaits::new(setup)?;
        }
        if self.args.kinds.is_empty() || self.args.kinds.contains(&LockGroup::File) {
            self.names = LockNames::with_files(setup)?;
        }
        let threads = self.earlier.thread().into_iter().chain(self.names.thread());
        self.scope = setup.scope.clone().without(&threads.collect::<Vec<_>>());
        self.code = LockCode::of(setup.host);
        if !self.code.is_known() {
            setup.warn(
                "/proc/kallsyms has no addresses: the code that takes a lock may be a part of the lock".to_owned(),
            );
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        // A task that has exited takes its last locks, and has no number any more.
        if sample.tid < 0 || self.scope.is_own(sample.tid) {
            return Ok(Use::Ignored);
        }
        let step = self.events.step(event, sample)?;
        if step.is_of_call() {
            self.earlier.saw(sample.tid);
        }
        Ok(match step {
            LockStep::Begins { key, kind, lock } => self.begins(key, kind, lock, sample, ctx),
            LockStep::Ends { key, lock, took } => {
                let is_relevant = self.ends(key, sample, ctx);
                if took {
                    self.owners.took(lock, user(sample, ctx));
                }
                is_relevant
            }
            LockStep::CallEnds { result } => self.call_ends(result, sample, ctx),
            LockStep::Uses { lock, took: true } => {
                self.owners.took(lock, user(sample, ctx));
                Use::Ignored
            }
            LockStep::Uses { lock, took: false } => {
                self.owners.gave_back(lock, sample.pid, sample.time);
                Use::Ignored
            }
            LockStep::Wakes { lock } => {
                self.owners.took(lock, user(sample, ctx));
                Use::Ignored
            }
            LockStep::WakesTask { tid } => {
                self.woken(tid, sample, ctx);
                Use::Ignored
            }
            LockStep::Nothing => Use::Ignored,
        })
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        match event {
            Event::Task { record: Record::Exit(exit), .. } => {
                [true, false].into_iter().for_each(|is_lock| self.forget(WaitKey::Call { tid: exit.tid, is_lock }));
            }
            Event::Started { now } => {
                for (lock, owner) in self.earlier.owners(now, ctx) {
                    self.owners.took(lock, owner);
                }
                self.look_for_earlier(now, ctx);
            }
            Event::Lost(window, _) => {
                self.earlier.lost(window.end_ns);
                self.owners.forget();
                self.sleepers.clear();
            }
            Event::Stopped { now } => {
                let due = self.relation.open_lines_at_end(now, ctx);
                due.iter().for_each(|(_, start)| self.show(start, now, true, ctx));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.look_for_earlier(now, ctx);
        let due = self.relation.tick(now, ctx);
        due.iter().for_each(|(_, start)| self.show(start, now, true, ctx));
        TickOutcome::default()
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let unpaired = self.relation.end_interval(now, report);
        let rows = self.rows(now);
        let in_text = rows.iter().any(|row| row.sums.than > 0) || !self.args.lengths.only_than();
        let (waits, locks): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.of.kind == LockKind::FutexWait);
        let (verdict, top) = (unpaired.verdict(false), self.args.top as usize);
        let any_waits = !waits.is_empty();
        let waits_top = if self.args.all_waits { top } else { top.min(MAX_WAITS_IN_TEXT) };
        let table = report.delta(&LOCKS, locks).judged(verdict).below(unpaired.in_words());
        table.text_rows(top).in_text(in_text);
        let waiters: Vec<_> = self.waiters.drain().collect();
        let any_waiters = !waiters.is_empty();
        report.delta(&WAITERS, waiters).judged(verdict).text_rows(top).in_text(in_text && any_waiters);
        report.delta(&WAITS, waits).judged(verdict).text_rows(waits_top).in_text(in_text && any_waits);
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.relation.iter().filter_map(|(_, start)| start.open.own.place));
        used.extend(self.relation.rows.iter().filter_map(|(of, _)| of.place));
        used.extend(self.behind.iter().filter_map(|(behind, _)| behind.of.place));
    }
}
