//! Pairs that `--than` or `--lower` selects: their lines, and the records around them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::event::EventKey;
use crate::profiler::Context;
use crate::profilers::multi_trace::cells::{PairOffset, ThreadNow};
use crate::profilers::multi_trace::detail::{DetailArgs, RecordMarks};
use crate::profilers::multi_trace::event::RelatedEvent;
use crate::profilers::multi_trace::pairs::DelayStart;
use crate::profilers::multi_trace::report::{DELAY, DELAY_WITH_RECORDS, ShownDelay};
use crate::profilers::multi_trace::scheduling::FollowedThread;
use crate::profilers::multi_trace::timeline::{KeptRecord, Timeline};
use crate::relation::{OpenStart, RelationKey};
use crate::report::{Subject, Value};
use crate::symbol::StackId;

/// Most memory for records around slow pairs.
const RECORD_BYTES: usize = 16 << 20;
/// Most records that are shown with one pair.
const MAX_RECORDS: usize = 200;
/// Most records that are examined between two ticks: the workload decides how many pairs are slow, and how long they
/// take.
const MAX_LOOKED_AT: u64 = 200_000;
/// Most slow pairs that wait for the records after their end.
const MAX_PENDING: usize = 10_000;

/// A pair to be shown.
#[derive(Clone, Debug)]
pub struct SlowPair {
    pub start: OpenStart<DelayStart>,
    /// The task, time and CPU of the end.
    pub end: Subject,
    /// Number of the end in the timeline.
    pub number: u64,
    pub key: RelationKey,
    pub shown_key: Value,
    /// The thread that is the key. None: the key is something else.
    pub thread: Option<i32>,
    /// Names of the two events.
    pub names: [Arc<str>; 2],
}

/// Shows slow pairs; with `--detail`, together with the records around them.
#[derive(Debug)]
pub struct SlowPairs {
    detail: Option<DetailArgs>,
    timeline: Timeline,
    /// Pairs that wait for the records after their end, the oldest first.
    pending: VecDeque<SlowPair>,
    /// The end of the last loss.
    lost_until_ns: u64,
    /// Number of records that may still be examined before the next tick.
    may_look_at: Cell<u64>,
}

impl Default for SlowPairs {
    fn default() -> SlowPairs {
        SlowPairs::new(None)
    }
}

impl SlowPairs {
    pub fn new(detail: Option<DetailArgs>) -> SlowPairs {
        let (timeline, pending) = (Timeline::new(RECORD_BYTES), VecDeque::new());
        let may_look_at = Cell::new(MAX_LOOKED_AT);
        SlowPairs { detail, timeline, pending, lost_until_ns: 0, may_look_at }
    }

    /// Whether records are kept and shown.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.detail.is_some()
    }

    /// Keeps a record, and returns its number. `ran_ns`: how long the task that leaves its CPU has run.
    pub fn keep(
        &mut self,
        event: u16,
        subject: &Subject,
        key: Option<RelationKey>,
        stack: Option<StackId>,
        ran_ns: Option<u64>,
        raw: &[u8],
    ) -> u64 {
        let Subject { time, cpu, pid, tid, comm } = *subject;
        let ran_ns = ran_ns.and_then(NonZeroU64::new);
        self.timeline.keep(KeptRecord { event, time, cpu, pid, tid, comm, key, stack, ran_ns }, raw)
    }

    /// Records were lost up to `end_ns`.
    pub fn lost(&mut self, end_ns: u64) {
        self.lost_until_ns = self.lost_until_ns.max(end_ns);
    }

    /// Called at each tick.
    pub fn tick(&mut self) {
        self.may_look_at.set(MAX_LOOKED_AT);
    }

    /// Shows a pair, at once or when the records after its end have come.
    pub fn add(&mut self, pair: SlowPair, events: &[RelatedEvent], ctx: &mut Context) {
        let waits = self.detail.as_ref().is_some_and(|detail| detail.after_ns.is_some());
        if waits && self.pending.len() < MAX_PENDING {
            self.pending.push_back(pair);
        } else {
            self.show(&pair, events, ctx);
        }
    }

    /// Shows the pairs for which the following records have come by `now`.
    #[inline]
    pub fn flush(&mut self, now: u64, events: &[RelatedEvent], ctx: &mut Context) {
        while let Some(pair) = self.pending.front() {
            let after_ns = self.detail.as_ref().and_then(|detail| detail.after_ns).unwrap_or(0);
            if pair.end.time.saturating_add(after_ns) >= now {
                break;
            }
            if let Some(pair) = self.pending.pop_front() {
                self.show(&pair, events, ctx);
            }
        }
    }

    /// The keys of all records that are kept.
    pub fn keys(&self) -> impl Iterator<Item = EventKey> {
        self.timeline.keys().chain(self.pending.iter().map(|pair| pair.key)).map(RelationKey::event_key)
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.timeline.stacks().chain(self.pending.iter().filter_map(|pair| pair.start.open.stack))
    }

    fn show(&self, pair: &SlowPair, events: &[RelatedEvent], ctx: &mut Context) {
        let SlowPair { start: OpenStart { since, open: start }, end, names: [start_name, end_name], .. } = pair;
        let records = self.detail.as_ref().map(|detail| self.records(pair, detail, events));
        let delay = ShownDelay {
            delay_ns: end.time.saturating_sub(*since),
            start: start_name.clone(),
            end: end_name.clone(),
            key: pair.shown_key.clone(),
            is_open: false,
            ended_by: Some((end.tid, end.comm, end.cpu)),
            is_truncated: records.as_ref().is_some_and(|records| records.is_truncated),
        };
        // The line has the task that was current at the start, and the time of the end.
        let subject = Subject { time: end.time, cpu: start.cpu, pid: start.pid, tid: start.tid, comm: start.comm };
        let Some(records) = records else {
            return ctx.emit(&DELAY, subject, &delay, start.stack);
        };
        ctx.emit(&DELAY_WITH_RECORDS, subject, &delay, None);
        for shown in records.shown {
            let KeptRecord { event, time, cpu, pid, tid, comm, stack, ran_ns, .. } = shown.record;
            let Some(related) = events.get(usize::from(event)) else { continue };
            let ns = time.cast_signed().wrapping_sub(since.cast_signed());
            let offset = Value::cell(PairOffset { ns, hidden: shown.hidden, ran_ns, thread: shown.thread });
            let stack = stack.filter(|_| related.shown.shows_stack);
            ctx.emit_event(Subject { time, cpu, pid, tid, comm }, related.shown.event, &shown.raw, Some(offset), stack);
        }
    }

    /// The records that are shown with a pair.
    fn records(&self, pair: &SlowPair, detail: &DetailArgs, events: &[RelatedEvent]) -> PairRecords {
        let marks = |record: &KeptRecord, raw: &[u8]| {
            let related = events.get(usize::from(record.event));
            related.map_or_else(RecordMarks::default, |event| event.marks(raw, record.cpu, record.pid, record.tid))
        };
        let (from, until) = (pair.start.since.saturating_sub(detail.before_ns.unwrap_or(0)), pair.end.time);
        let until = until.saturating_add(detail.after_ns.unwrap_or(0));
        let is_kept = self.timeline.has(pair.start.open.own.number);
        let mut ends = [RecordMarks::default(), RecordMarks::default()];
        for (number, marks_of) in [pair.start.open.own.number, pair.number].into_iter().zip(&mut ends) {
            self.timeline.each_from(number, |at, record, raw| {
                if at == number {
                    *marks_of = marks(record, raw);
                }
                false
            });
        }
        let mut records = PairRecords { shown: Vec::new(), is_truncated: !is_kept || from < self.lost_until_ns };
        let first = if detail.before_ns.is_some() { self.timeline.number_at(from) } else { pair.start.open.own.number };
        let [start, end] = ends;
        let mut thread = pair.thread.and_then(FollowedThread::of);
        let (mut hidden, mut last_ns) = (0, 0);
        let mut left = self.may_look_at.get();
        self.timeline.each_from(first, |number, record, raw| {
            if left == 0 {
                records.is_truncated = true;
                return false;
            }
            left -= 1;
            let is_end = [pair.start.open.own.number, pair.number].contains(&number);
            if record.time > until {
                return false;
            }
            let has_key = record.key == Some(pair.key);
            let cpu_before = thread.and_then(|thread| thread.cpu);
            if let (Some(thread), Some(event)) = (&mut thread, events.get(usize::from(record.event))) {
                thread.follow(&event.scheduling, raw, record.cpu, record.tid);
            }
            let cpus = [cpu_before, thread.and_then(|thread| thread.cpu)];
            if !is_end && !detail.shows(&marks(record, raw), &start, &end, has_key, cpus) {
                return true;
            }
            let is_close = detail.hide_ns.is_some_and(|hide| record.time.saturating_sub(last_ns) < hide);
            last_ns = record.time;
            if !is_end && (is_close || records.shown.len() >= MAX_RECORDS && number < pair.number) {
                hidden += 1;
                return true;
            }
            let (raw, hidden) = (raw.to_vec(), std::mem::take(&mut hidden));
            let thread = thread.and_then(|thread| thread.now);
            records.shown.push(ShownRecord { record: *record, raw, hidden, thread });
            records.shown.len() < 2 * MAX_RECORDS
        });
        self.may_look_at.set(left);
        records
    }
}

struct PairRecords {
    shown: Vec<ShownRecord>,
    is_truncated: bool,
}

struct ShownRecord {
    record: KeptRecord,
    raw: Vec<u8>,
    /// Number of records before it that were left out.
    hidden: u32,
    /// The state after it of the thread that is the key.
    thread: Option<ThreadNow>,
}
