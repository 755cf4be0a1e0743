//! `multi-trace`: the time from one event to another, by what the two have in common.
//!
//! Events: those of the `-e` options, period 1, each a position; on the tasks of the answer. Cost: one record per event.
//! A start waits for the next event under its key in a table of bounded size.
//!
//! `event` is an event of a position, `scheduling` what it tells about who runs where. `relation` finds the pairs, `plain`
//! does so for events that need nothing else, and `rows` adds them up. `timeline` keeps records for `detail`, `report` has
//! the tables and lines, `slow` shows pairs that were asked for, `open` those that have not ended.

mod args;
mod cells;
mod detail;
mod event;
mod open;
mod plain;
mod relation;
mod report;
mod rows;
mod scheduling;
mod slow;
mod timeline;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustc_hash::{FxHashMap, FxHashSet};

pub use crate::profilers::multi_trace::args::MultiTraceArgs;

use crate::cli::usage;
use crate::event::{BoundEvent, EventKey, KeyExpr, KeyTexts, Selector};
use crate::expr::NoResultCounts;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{self, Context, Event, Profiler, Report, Samples, Setup, ShownKeys, TickOutcome, Timestamp, Use};
use crate::profilers::multi_trace::args::{Analysis, PairQuestion};
use crate::profilers::multi_trace::event::RelatedEvent;
use crate::profilers::multi_trace::relation::{PairPositions, PairStart, Positions, Relation, RelationKey, Unpaired};
use crate::profilers::multi_trace::report::{
    DELAYS, DelayRow, PAIRS, PairRow, WAITING, WORST, WORST_WITH_STACKS, WaitingRow, WorstRow,
};
use crate::profilers::multi_trace::rows::{DelayKey, PairRows, PairSums};
use crate::profilers::multi_trace::slow::{SlowPair, SlowPairs};
use crate::report::{Subject, Value, Verdict};
use crate::stats::WorstCase;
use crate::symbol::StackId;

/// The key of events without an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DefaultKey {
    #[default]
    Cpu,
    Thread,
}

impl DefaultKey {
    #[inline(always)]
    fn of(self, cpu: u32, tid: i32) -> RelationKey {
        match self {
            DefaultKey::Cpu => RelationKey::Cpu(cpu.into()),
            DefaultKey::Thread => RelationKey::thread(tid),
        }
    }
}

/// The event that ended a pair, and the task that was current.
#[derive(Clone, Copy, Debug)]
struct PairEnd {
    /// Its place among the events of the run.
    event: u16,
    time: u64,
    cpu: u32,
    pid: i32,
    tid: i32,
    /// Its number in the timeline.
    number: u64,
}

/// The profiler behind [`MultiTraceArgs`].
#[derive(Debug, Default)]
pub struct MultiTrace {
    /// The selectors of each position, until they are events.
    positions: Vec<Vec<Selector>>,
    question: PairQuestion,
    /// Pairs that take as long count as over the limit.
    than_ns: u64,
    /// Some pairs may have lines of their own.
    shows_any: bool,
    /// By the index of the event, minus `first`.
    events: Vec<RelatedEvent>,
    first: usize,
    /// The same events, if all of them are plain; else none.
    plain: Vec<plain::PlainEvent>,
    default_key: DefaultKey,
    /// Some of the events have callchains.
    has_stacks: bool,
    /// The keys are numbers of threads.
    keys_are_threads: bool,
    /// Events of some CPUs are not seen, and pairs may go through these.
    misses_cpus: bool,
    shown: Option<ShownKeys>,
    relation: Relation,
    running: scheduling::Running,
    texts: KeyTexts,
    slow: SlowPairs,
    rows: PairRows,
    /// The worst case of each row in the whole run.
    worst: FxHashMap<DelayKey, WorstCase>,
    /// Of the interval.
    counts: Unpaired,
    no_value: NoResultCounts,
    starts: u64,
    interval_start: Timestamp,
    wants_report: bool,
    /// Records were lost since starts that are in doubt were dropped.
    has_lost: bool,
    /// Intervals without a pair, and how many of them pass until the next word about it.
    silent: u32,
}

/// Rows of worst cases.
const MAX_WORST: usize = 1000;

impl MultiTrace {
    pub fn of(positions: Vec<Vec<Selector>>, question: PairQuestion) -> MultiTrace {
        let relation = Relation::new(positions.len() as u16, question.is_cycle, question.expire_ns);
        let slow = SlowPairs::new(question.detail.clone());
        let than_ns = question.lengths.than_ns().unwrap_or(u64::MAX);
        let shows_any = question.lengths.shows_any();
        MultiTrace { positions, question, than_ns, shows_any, relation, slow, ..MultiTrace::default() }
    }

    /// The events of all positions; one that stands in several is one event.
    fn select(&mut self, setup: &Setup<'_>) -> Result<Vec<(BoundEvent, Positions)>> {
        let mut selected: Vec<(BoundEvent, Positions, Option<String>)> = Vec::new();
        for (position, selectors) in (0_u16..).zip(std::mem::take(&mut self.positions)) {
            let at = Positions::one(position);
            for selector in selectors {
                for bound in setup.bind(&selector, None)? {
                    let same = selected.iter_mut().find(|(other, _, filter)| {
                        other.format.id == bound.format.id
                            && *filter == selector.filter
                            && other.attributes == bound.attributes
                    });
                    match same {
                        Some((_, positions, _)) => *positions = positions.and(at),
                        None => selected.push((bound, at, selector.filter.clone())),
                    }
                }
            }
        }
        Ok(selected.into_iter().map(|(bound, positions, _)| (bound, positions)).collect())
    }

    /// The key of an event. One that is only shown beside pairs needs none.
    fn key_of(&self, bound: &mut BoundEvent) -> Result<Option<KeyExpr>> {
        match profiler::key_of(bound, self.question.key.as_ref()) {
            Err(_) if bound.attributes.has("untraced") => Ok(None),
            key => key,
        }
    }

    /// Both events of any pair are on one CPU.
    fn stays_on_cpu(&self) -> bool {
        let mut keys = self.events.iter().filter(|event| !event.is_untraced).map(|event| event.key.as_ref());
        keys.all(|key| key.map_or(self.default_key == DefaultKey::Cpu, |key| key.reads("_cpu")))
    }

    /// Pairs have one kind of key.
    fn check_keys(&self) -> Result<()> {
        let traced = || self.events.iter().filter(|event| !event.is_untraced);
        if let (Some(with), Some(without)) =
            (traced().find(|event| event.key.is_some()), traced().find(|event| event.key.is_none()))
        {
            return Err(usage(format!(
                "-e: {} has a key, and {} has none: give both one, or all of them with -k",
                with.name, without.name
            )));
        }
        Ok(())
    }

    /// The key as it is shown.
    fn shown_key(&self, key: EventKey) -> Value {
        self.shown.as_ref().map_or(Value::None, |shown| shown.value(key, &self.texts))
    }

    fn name(&self, event: u16) -> Arc<str> {
        self.events.get(usize::from(event)).map_or_else(|| "".into(), |event| event.name.clone())
    }

    /// A record that may end a pair: the position in which it has ended one.
    #[inline(always)]
    fn end(&mut self, key: RelationKey, part: PairPositions, end: PairEnd, ctx: &mut Context) -> Option<u16> {
        let (start, position) = self.relation.end(key, part, end.time)?;
        let ns = end.time.saturating_sub(start.time);
        let by_key = self.question.by_key;
        let sums = match by_key {
            true => self.rows.of_key(key.event_key(), start.event, end.event),
            false => self.rows.of_all_keys(start.event, end.event),
        };
        sums.latency.record(ns, end.time, || start.case(ns, end.time, end.cpu));
        sums.than += u64::from(ns >= self.than_ns);
        sums.before += u64::from(start.time < self.interval_start);
        if by_key {
            sums.comm = start.comm;
        }
        if self.question.draws_stacks {
            ctx.weigh(start.pid, start.comm, start.stack, ns / 1000);
        }
        if self.shows_any && self.question.lengths.shows(ns) {
            let start = *start;
            self.show(&start, end, key, ctx);
        }
        Some(position)
    }

    /// Shows a pair in a line of its own.
    #[cold]
    fn show(&mut self, start: &PairStart, end: PairEnd, key: RelationKey, ctx: &mut Context) {
        let shown_key = if self.has_keys() { self.shown_key(key.event_key()) } else { Value::None };
        let names = [self.name(start.event), self.name(end.event)];
        let PairEnd { time, cpu, pid, tid, number, .. } = end;
        let subject = Subject { time, cpu, pid, tid, comm: ctx.tasks.comm(tid) };
        let thread = self.thread_of(key);
        let pair = SlowPair { start: *start, end: subject, number, key, shown_key, thread, names };
        self.slow.add(pair, &self.events, ctx);
    }

    /// The thread that a key stands for. None: it is no thread.
    fn thread_of(&self, key: RelationKey) -> Option<i32> {
        match key {
            RelationKey::Number(number) if self.keys_are_threads => i32::try_from(number.cast_signed()).ok(),
            _ => None,
        }
    }

    /// A task got a CPU. The switch may have been hidden with the idle task before it.
    fn came(&mut self, tid: i32, time: Timestamp, cpu: u32, ctx: &mut Context) {
        let key = RelationKey::thread(tid);
        let is_whole = self.events.iter().any(|event| event.is_switch_in && event.is_whole);
        let seen = self.running.came(cpu, tid, time, is_whole);
        for at in 0..self.events.len() {
            let Some(RelatedEvent { is_switch_in: true, is_whole, positions, .. }) = self.events.get(at) else {
                continue;
            };
            let (is_whole, part) = (*is_whole, self.relation.part(*positions));
            let waits = self.relation.since(key).is_some_and(|since| since > seen);
            if !waits || !part.ends.is_any() {
                continue;
            }
            if !is_whole {
                self.relation.hide(key);
                continue;
            }
            // Before it, the idle task was current.
            let end = PairEnd { event: at as u16, time, cpu, pid: 0, tid: 0, number: u64::MAX };
            self.end(key, part, end, ctx);
        }
    }

    /// The key says more than the CPU or thread of the line.
    fn has_keys(&self) -> bool {
        self.events.iter().any(|event| event.key.is_some())
    }

    /// Counts what was in no pair since the last call, up to `now`.
    fn take_counts(&mut self, now: Timestamp, ctx: &mut Context) {
        if std::mem::take(&mut self.has_lost) {
            self.relation.drop_doubtful(now);
        }
        let new = self.relation.take_counts();
        ctx.view.discarded += new.pairs.doubtful;
        ctx.view.untracked += new.pairs.no_room;
        self.counts = self.counts.and(new);
    }

    fn rows(&mut self) -> Vec<DelayRow> {
        let rows = self.rows.take();
        let is_thread = self.question.by_key && self.default_key == DefaultKey::Thread && !self.has_keys();
        let row = |(of, sums): (DelayKey, PairSums)| DelayRow {
            key: of.key.map_or(Value::None, |key| self.shown_key(key)),
            comm: if is_thread { Value::Comm(sums.comm) } else { Value::None },
            start: self.name(of.start),
            end: self.name(of.end),
            latency: sums.latency,
            than: sums.than,
            before: sums.before,
        };
        rows.into_iter().map(row).collect()
    }

    /// Takes the worst cases of the interval over into those of the run.
    fn remember_worst(&mut self) {
        for (key, sums) in self.rows.iter() {
            let Some(case) = sums.latency.worst else { continue };
            if self.worst.len() < MAX_WORST || self.worst.contains_key(&key) {
                let known = self.worst.entry(key).or_insert(case);
                *known = WorstCase::worse(Some(*known), Some(case)).unwrap_or(case);
            }
        }
    }

    /// `any_unseen`: events may have gone unseen.
    fn waiting(&mut self, now: Timestamp, any_unseen: bool) -> Vec<WaitingRow> {
        let mut oldest: FxHashMap<u16, (u64, RelationKey, PairStart)> = FxHashMap::default();
        for (key, start) in self.relation.waiting(now) {
            let (count, at, old) = oldest.entry(start.event).or_insert((0, *key, *start));
            *count += 1;
            if start.time < old.time {
                (*at, *old) = (*key, *start);
            }
        }
        let row = |(event, (count, key, start)): (u16, (u64, RelationKey, PairStart))| WaitingRow {
            start: self.name(event),
            open: if any_unseen { 0 } else { count },
            unseen: if any_unseen { count } else { 0 },
            oldest_ns: now.saturating_sub(start.time),
            key: self.shown_key(key.event_key()),
            tid: start.tid,
            comm: start.comm,
        };
        oldest.into_iter().map(row).collect()
    }

    /// Forgets the texts and names of keys that nothing has any more.
    fn forget_keys(&mut self, now: Timestamp) {
        let mut used: FxHashSet<EventKey> = self.slow.keys().collect();
        used.extend(self.relation.waiting(now).map(|(key, _)| key.event_key()));
        used.extend(self.worst.keys().filter_map(|row| row.key));
        self.texts.retain(|place| used.contains(&EventKey::Text(place)));
        self.shown.iter_mut().for_each(|shown| shown.retain(|key| used.contains(&key)));
    }

    fn report_tables(&mut self, waiting: Vec<WaitingRow>, report: &mut Report) {
        let rows = self.rows();
        let is_shown = !self.question.lengths.only_than() || rows.iter().any(|row| row.than > 0);
        let below = self.counts.in_words();
        let verdict = match self.misses_cpus {
            true => Verdict::Unsure,
            false if self.counts.pairs.doubtful > 0 => Verdict::Discarded,
            false => Verdict::Exact,
        };
        let table = if self.question.analysis == Analysis::Pair {
            let pair = |row: DelayRow| {
                let paired = row.latency.distribution.count();
                PairRow { start: row.start, end: row.end, paired }
            };
            report.delta(&PAIRS, rows.into_iter().map(pair).collect())
        } else {
            report.delta(&DELAYS, rows).text_rows(self.question.most_rows)
        };
        table.judged(verdict).below(below).in_text(is_shown);
        if !report.is_quiet && report.takes_snapshots {
            let is_any = !waiting.is_empty();
            report.snapshot(&WAITING, waiting).in_text(is_shown && is_any);
            if self.question.shows_worst {
                let row = |(of, case): (&DelayKey, &WorstCase)| WorstRow {
                    key: of.key.map_or(Value::None, |key| self.shown_key(key)),
                    start: self.name(of.start),
                    end: self.name(of.end),
                    case: *case,
                };
                let worst = self.worst.iter().map(row).collect();
                let schema = if self.has_stacks { &WORST_WITH_STACKS } else { &WORST };
                report.snapshot(schema, worst).text_rows(self.question.most_rows).in_text(is_shown);
            }
        }
    }

    /// Says why there are no pairs, if there are starts and ends: after 1, 2, 4, ... intervals without any.
    fn tell_silence(&mut self, had_pairs: bool, report: &mut Report) {
        let ends = self.counts.pairs.unmatched;
        if had_pairs || report.is_quiet || self.starts == 0 || ends == 0 {
            self.silent = 0;
            return;
        }
        self.silent += 1;
        if self.silent.is_power_of_two() {
            let starts = self.starts;
            report.note(format!(
                "no pair: {starts} starting and {ends} ending events, under different keys or out of order"
            ));
        }
    }
}

impl Profiler for MultiTrace {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.find_functions(self.positions.iter().flatten().map(|selector| (selector, true)))?;
        if !setup.watched.is_all() || setup.command.is_some() {
            self.default_key = DefaultKey::Thread;
        }
        let (mut print, mut misses_cpus) = (None, setup.scope.cpus().is_some());
        for (mut bound, positions) in self.select(setup)? {
            print = print.or_else(|| bound.attributes.print_key.clone());
            let key = self.key_of(&mut bound)?;
            let has_cpus = bound.attributes.cpus.is_some() && !bound.attributes.has("untraced");
            let event = RelatedEvent::add(bound, positions, key, evlist, setup)?;
            if self.events.is_empty() {
                self.first = event.shown.event.index();
            }
            self.has_stacks |= event.shown.shows_stack;
            misses_cpus |= has_cpus;
            if event.is_switch_in {
                evlist.watch_idle(event.shown.event);
            }
            self.events.push(event);
        }
        self.check_keys()?;
        let keys = self.events.iter().filter(|event| !event.is_untraced).filter_map(|event| event.key.as_ref());
        self.keys_are_threads = match self.has_keys() {
            true => keys.clone().all(KeyExpr::is_thread),
            false => self.default_key == DefaultKey::Thread,
        };
        let default = if self.default_key == DefaultKey::Cpu { "cpu" } else { "tid" };
        self.shown = Some(ShownKeys::of(keys, print.as_ref(), default)?);
        self.rows = PairRows::of_events(self.events.len());
        self.misses_cpus = misses_cpus && !self.stays_on_cpu();
        if self.misses_cpus {
            setup.degrade_pairs();
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.events.iter_mut().try_for_each(|event| event.narrow(evlist, setup))?;
        let takes_more = setup.stacks
            || self.has_stacks
            || self.slow.keeps()
            || self.shown.as_ref().is_some_and(ShownKeys::have_names);
        self.plain = if takes_more { Vec::new() } else { plain::PlainEvent::all(&self.events, &self.relation) };
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let at = event.index().checked_sub(self.first).context("an event of another profiler")?;
        let related = self.events.get(at).context("an event of another profiler")?;
        // Names of tasks are looked up where they are needed: ends of pairs have no use for them.
        if !related.shown.passes_all() && !related.shown.passes(sample, ctx.tasks.comm(sample.tid)) {
            return Ok(Use::Ignored);
        }
        let ran_ns = if self.slow.keeps() { self.running.ran_ns(&related.scheduling, sample) } else { None };
        let Sample { time, cpu, pid, tid, .. } = *sample;
        let has_no_end = self.running.follow(related.scheduling.running(), sample.raw, time, cpu, tid);
        if !related.is_watched(sample, &ctx.watched) {
            return Ok(Use::Ignored);
        }
        let key = match &related.key {
            Some(expr) => expr.key(sample, &mut self.texts).map(RelationKey::from),
            None => Ok(self.default_key.of(cpu, tid)),
        };
        let stack = ctx.stack(sample);
        let at = at as u16;
        let number = match self.slow.keeps() {
            true => self.slow.keep(at, &ctx.subject(sample), key.ok(), stack, ran_ns, sample.raw),
            false => 0,
        };
        self.wants_report |= related.is_trigger;
        if related.is_untraced {
            return Ok(Use::Relevant);
        }
        let (key, role) = match key.and_then(|key| Ok((key, related.role(sample)?))) {
            Ok(both) => both,
            Err(reason) => {
                self.no_value.add(reason, 1);
                return Ok(Use::Relevant);
            }
        };
        let part = self.relation.part(related.positions);
        let mut ended = None;
        if role.ends && part.ends.is_any() {
            ended = self.end(key, part, PairEnd { event: at, time, cpu, pid, tid, number }, ctx);
        }
        if role.starts
            && !has_no_end
            && let Some(position) = part.start(ended)
        {
            self.starts += 1;
            self.shown.iter_mut().for_each(|shown| shown.meet(key.event_key(), pid, ctx));
            let comm = ctx.tasks.comm(tid);
            self.relation.start(key, PairStart { event: at, position, time, cpu, pid, tid, comm, stack, number });
        }
        self.slow.flush(time, &self.events, ctx);
        Ok(Use::Relevant)
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.plain.is_empty() { samples.each(self, ctx) } else { self.relate_plainly(samples, ctx) }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { .. } => self.interval_start = ctx.started_ns,
            Event::SwitchIn { tid, time, cpu, .. } => self.came(tid, time, cpu, ctx),
            Event::Lost(window, _) => {
                self.relation.lost(window.cpu, window.end_ns);
                self.running.lost(window.cpu);
                self.has_lost = true;
                self.slow.lost(window.end_ns);
            }
            Event::Task { record: Record::Exit(task), .. } if self.default_key == DefaultKey::Thread => {
                self.relation.forget(self.default_key.of(0, task.tid));
            }
            Event::Stopped { now } => {
                self.slow.flush(u64::MAX, &self.events, ctx);
                self.take_counts(now, ctx);
                self.show_open_at_end(now, ctx);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.slow.tick();
        self.slow.flush(now, &self.events, ctx);
        self.take_counts(now, ctx);
        self.show_open(now, ctx);
        TickOutcome { wants_report: std::mem::take(&mut self.wants_report), ..TickOutcome::default() }
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let had_pairs = !self.rows.is_empty();
        self.remember_worst();
        let waiting = self.waiting(now, report.unseen > 0);
        self.counts = self.counts.and(self.relation.take_counts()); // those that have expired
        self.tell_silence(had_pairs, report);
        self.report_tables(waiting, report);
        self.counts.report(report);
        if self.no_value.total() > 0 {
            report.note(format!("no key for {} events: {}", self.no_value.total(), self.no_value));
            self.no_value = NoResultCounts::default();
        }
        self.counts = Unpaired::default();
        self.starts = 0;
        if !report.is_quiet {
            self.interval_start = now;
        }
        if self.texts.are_many() || self.shown.as_ref().is_some_and(ShownKeys::are_many) {
            self.forget_keys(now);
        }
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks().chain(self.slow.stacks()));
        used.extend(self.rows.stacks());
        used.extend(self.worst.values().filter_map(|case| case.stack));
    }
}
