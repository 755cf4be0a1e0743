//! `multi-trace`: the time from one event to another, by what the two have in common.
//!
//! Events: those of the `-e` options, period 1, each option a position; on the tasks of the run. Cost: one record per
//! event. A start waits for the next event with its key in a table of bounded size.
//!
//! `event` is an event of a position, `scheduling` reads from it which task runs where. `pairs` declares what
//! [`Relation`] pairs, `plain` passes it events that need nothing else. `timeline` keeps records for `detail`, `report`
//! has the tables and lines, `tables` fills the tables, `slow` shows the pairs that options ask for.

mod args;
mod cells;
mod detail;
mod event;
mod pairs;
mod plain;
mod report;
mod scheduling;
mod slow;
mod tables;
mod timeline;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashSet;

pub use crate::profilers::multi_trace::args::MultiTraceArgs;

use crate::cli::usage;
use crate::event::{BoundEvent, EventKey, KeyExpr, KeyTexts, Selector};
use crate::expr::NoResultCounts;
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::{self, Context, Event, Profiler, Report, Samples, Setup, ShownKeys, TickOutcome, Timestamp, Use};
use crate::profilers::multi_trace::args::PairQuestion;
use crate::profilers::multi_trace::event::RelatedEvent;
use crate::profilers::multi_trace::pairs::{ChainDelays, DelayEnd, DelayKey, DelayStart};
use crate::profilers::multi_trace::slow::{SlowPair, SlowPairs};
use crate::relation::{
    Chain, EventMoment, OpenStart, PairEnd, PairOutcome, Positions, Relation, RelationKey, RelationTerms, WorstCases,
};
use crate::report::{Subject, Value};
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

/// The profiler behind [`MultiTraceArgs`].
#[derive(Debug, Default)]
pub struct MultiTrace {
    /// The selectors of each position, until they are resolved to events.
    positions: Vec<Vec<Selector>>,
    question: PairQuestion,
    /// Some pairs may have lines of their own.
    shows_any: bool,
    /// By the index of the event, minus `first`.
    events: Vec<RelatedEvent>,
    first: usize,
    /// The same events, if all of them are plain; otherwise empty.
    plain: Vec<plain::PlainEvent>,
    default_key: DefaultKey,
    /// Some of the events have callchains.
    has_stacks: bool,
    /// The keys are tids.
    keys_are_threads: bool,
    /// Events of some CPUs are not seen, and a pair may continue on these CPUs.
    misses_cpus: bool,
    shown: Option<ShownKeys>,
    relation: Relation<ChainDelays>,
    running: scheduling::Running,
    texts: KeyTexts,
    slow: SlowPairs,
    worst: WorstCases<DelayKey>,
    no_value: NoResultCounts,
    starts: u64,
    wants_report: bool,
    /// Number of intervals without a pair, and how many more pass until the next message about that.
    silent: u32,
}

impl MultiTrace {
    pub fn of(positions: Vec<Vec<Selector>>, question: PairQuestion) -> MultiTrace {
        let chain = Chain::new(positions.len() as u16, question.is_cycle);
        let terms = RelationTerms {
            lengths: question.lengths,
            draws_stacks: question.draws_stacks,
            longest_ns: question.expire_ns,
            ..RelationTerms::default()
        };
        let relation = Relation::new(ChainDelays { chain, by_key: question.by_key }, terms);
        let slow = SlowPairs::new(question.detail.clone());
        let shows_any = question.lengths.shows_any();
        MultiTrace { positions, question, shows_any, relation, slow, ..MultiTrace::default() }
    }

    /// The events of all positions; an event with several positions appears once.
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

    /// The key of an event. An event that is only shown with pairs needs no key.
    fn key_of(&self, bound: &mut BoundEvent) -> Result<Option<KeyExpr>> {
        match profiler::key_of(bound, self.question.key.as_ref()) {
            Err(_) if bound.attributes.has("untraced") => Ok(None),
            key => key,
        }
    }

    /// Whether both events of any pair are on one CPU.
    fn stays_on_cpu(&self) -> bool {
        let mut keys = self.events.iter().filter(|event| !event.is_untraced).map(|event| event.key.as_ref());
        keys.all(|key| key.map_or(self.default_key == DefaultKey::Cpu, |key| key.reads("_cpu")))
    }

    /// Checks that all pairs have the same kind of key.
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

    /// A record that may end a pair: returns the position at which it has ended one.
    #[inline(always)]
    fn end(&mut self, key: RelationKey, at: EventMoment, own: DelayEnd, ctx: &mut Context) -> Option<u16> {
        let end = PairEnd { moment: at, own };
        let PairOutcome::Ended(start) = self.relation.end(key, &end, ctx) else { return None };
        let position = start.open.own.next;
        if self.shows_any && self.question.lengths.shows(at.time.saturating_sub(start.since)) {
            let start = *start;
            self.show(&start, end, key, ctx);
        }
        Some(position)
    }

    /// Shows a pair in a line of its own.
    #[cold]
    fn show(&mut self, start: &OpenStart<DelayStart>, end: PairEnd<DelayEnd>, key: RelationKey, ctx: &mut Context) {
        let shown_key = if self.has_keys() { self.shown_key(key.event_key()) } else { Value::None };
        let names = [self.name(start.open.own.event), self.name(end.own.event)];
        let EventMoment { time, cpu, pid, tid } = end.moment;
        let subject = Subject { time, cpu, pid, tid, comm: ctx.tasks.comm(tid) };
        let thread = self.thread_of(key);
        let pair = SlowPair { start: *start, end: subject, number: end.own.number, key, shown_key, thread, names };
        self.slow.add(pair, &self.events, ctx);
    }

    /// The thread that a key stands for. None: the key stands for something else.
    fn thread_of(&self, key: RelationKey) -> Option<i32> {
        match key {
            RelationKey::Number(number) if self.keys_are_threads => i32::try_from(number.cast_signed()).ok(),
            _ => None,
        }
    }

    /// A task got a CPU. Its switch may have been hidden together with the previous idle task.
    fn came(&mut self, tid: i32, time: Timestamp, cpu: u32, ctx: &mut Context) {
        let key = RelationKey::thread(tid);
        let is_whole = self.events.iter().any(|event| event.is_switch_in && event.is_whole);
        let seen = self.running.came(cpu, tid, time, is_whole);
        for at in 0..self.events.len() {
            let Some(RelatedEvent { is_switch_in: true, is_whole, positions, .. }) = self.events.get(at) else {
                continue;
            };
            let (is_whole, part) = (*is_whole, self.relation.declared.chain.part(*positions));
            let waits = self.relation.since(key).is_some_and(|since| since > seen);
            if !waits || !part.ends.is_any() {
                continue;
            }
            if !is_whole {
                self.relation.hide(key);
                continue;
            }
            // Before the switch, the idle task was current.
            let moment = EventMoment { time, cpu, pid: 0, tid: 0 };
            self.end(key, moment, DelayEnd { event: at as u16, part, number: u64::MAX }, ctx);
        }
    }

    /// Whether the key is not already in the line, as CPU or thread are.
    fn has_keys(&self) -> bool {
        self.events.iter().any(|event| event.key.is_some())
    }

    /// Forgets the texts and names of keys that are no longer used.
    fn forget_keys(&mut self, now: Timestamp) {
        let mut used: FxHashSet<EventKey> = self.slow.keys().collect();
        used.extend(self.relation.waiting(now).map(|(key, _)| key.event_key()));
        used.extend(self.worst.iter().filter_map(|(row, _)| row.key));
        self.texts.retain(|place| used.contains(&EventKey::Text(place)));
        self.shown.iter_mut().for_each(|shown| shown.retain(|key| used.contains(&key)));
    }

    /// Explains why there are no pairs, if there are starts, and `ends` without a start: after 1, 2, 4, ... intervals
    /// without pairs.
    fn tell_silence(&mut self, had_pairs: bool, ends: u64, report: &mut Report) {
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
        self.shown = Some(ShownKeys::of(keys, print.as_ref(), default, setup.host)?);
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
        self.plain =
            if takes_more { Vec::new() } else { plain::PlainEvent::all(&self.events, self.relation.declared.chain) };
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let at = event.index().checked_sub(self.first).context("an event of another profiler")?;
        let related = self.events.get(at).context("an event of another profiler")?;
        // Task names are looked up only where they are needed: ends of pairs do not need them.
        if !related.shown.passes_all() && !related.shown.passes(sample, ctx.tasks.comm(sample.tid)) {
            return Ok(Use::Ignored);
        }
        let ran_ns = if self.slow.keeps() { self.running.ran_ns(&related.scheduling, sample) } else { None };
        let moment @ EventMoment { time, cpu, pid, tid } = EventMoment::of(sample);
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
        let part = self.relation.declared.chain.part(related.positions);
        let mut ended = None;
        if role.ends && part.ends.is_any() {
            ended = self.end(key, moment, DelayEnd { event: at, part, number }, ctx);
        }
        if role.starts
            && !has_no_end
            && let Some(position) = part.start(ended)
        {
            self.starts += 1;
            self.shown.iter_mut().for_each(|shown| shown.meet(key.event_key(), pid, ctx));
            let comm = ctx.tasks.comm(tid);
            self.relation.start(
                key,
                moment,
                comm,
                stack,
                DelayStart { event: at, next: self.relation.declared.chain.next(position), number },
            );
        }
        self.slow.flush(time, &self.events, ctx);
        Ok(Use::Relevant)
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.plain.is_empty() { samples.each(self, ctx) } else { self.relate_plainly(samples, ctx) }
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        match event {
            Event::SwitchIn { tid, time, cpu, .. } => self.came(tid, time, cpu, ctx),
            Event::Lost(window, _) => {
                self.running.lost(window.cpu, window.end_ns);
                self.slow.lost(window.end_ns);
            }
            Event::Task { record: Record::Exit(task), .. } if self.default_key == DefaultKey::Thread => {
                self.relation.forget(self.default_key.of(0, task.tid));
            }
            Event::Stopped { now } => {
                self.slow.flush(u64::MAX, &self.events, ctx);
                let due = self.relation.open_lines_at_end(now, ctx);
                due.iter().for_each(|(key, start)| self.show_open(*key, start, now, ctx));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.slow.tick();
        self.slow.flush(now, &self.events, ctx);
        let due = self.relation.tick(now, ctx);
        due.iter().for_each(|(key, start)| self.show_open(*key, start, now, ctx));
        TickOutcome { wants_report: std::mem::take(&mut self.wants_report), ..TickOutcome::default() }
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let had_pairs = !self.relation.rows.is_empty();
        self.worst.remember(&self.relation.rows);
        let waiting = self.waiting(now, report.unseen > 0);
        let unpaired = self.relation.end_interval(now, report);
        self.tell_silence(had_pairs, unpaired.pairs.unmatched, report);
        self.report_tables(waiting, unpaired, report);
        unpaired.report(report);
        if self.no_value.total() > 0 {
            report.note(format!("no key for {} events: {}", self.no_value.total(), self.no_value));
            self.no_value = NoResultCounts::default();
        }
        self.starts = 0;
        if self.texts.are_many() || self.shown.as_ref().is_some_and(ShownKeys::are_many) {
            self.forget_keys(now);
        }
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks().chain(self.slow.stacks()).chain(self.worst.stacks()));
    }
}
