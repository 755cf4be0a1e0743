//! Starts that have waited for `--than` already: their lines while they wait.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::profiler::{Context, Timestamp};
use crate::profilers::multi_trace::MultiTrace;
use crate::profilers::multi_trace::relation::{PairStart, RelationKey};
use crate::profilers::multi_trace::report::{DELAY, ShownDelay};
use crate::report::{Subject, Value};
use crate::stats::TopK;

/// Starts that have had a line.
#[derive(Debug, Default)]
pub struct OpenLines {
    /// By key: the time of the start, and the age at which it has its next line.
    told: FxHashMap<RelationKey, ToldStart>,
    next_look: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct ToldStart {
    since: u64,
    next_age_ns: u64,
}

impl OpenLines {
    /// How old a start must be for a line now. None: it has had its last one.
    fn due_age(&self, key: RelationKey, since: u64) -> Option<u64> {
        self.told.get(&key).filter(|told| told.since == since).map(|told| told.next_age_ns)
    }
}

impl MultiTrace {
    /// Shows the starts that have waited long, once a second, each again when its age has doubled.
    pub(super) fn show_open(&mut self, now: Timestamp, ctx: &mut Context) {
        const PAUSE_NS: u64 = 1_000_000_000;
        const LIMIT: usize = 16;
        if now >= self.slow.open.next_look {
            self.slow.open.next_look = now.saturating_add(PAUSE_NS);
            self.show_due(now, LIMIT, |due_age, age_ns| due_age.is_none_or(|due| due <= age_ns), ctx);
        }
    }

    /// Shows, as the run ends, the starts that have had no line.
    pub(super) fn show_open_at_end(&mut self, now: Timestamp, ctx: &mut Context) {
        const LIMIT: usize = 100;
        self.show_due(now, LIMIT, |due_age, _| due_age.is_none(), ctx);
    }

    /// Shows the oldest starts that have waited for `--than` at `now` and of which `is_due` says so, by the age of the next
    /// line, and their age.
    fn show_due(&mut self, now: Timestamp, most: usize, is_due: impl Fn(Option<u64>, u64) -> bool, ctx: &mut Context) {
        let Some(than) = self.question.lengths.than_ns() else { return };
        // Others choose how many are due: only those that get a line are kept.
        let mut due = TopK::new(most);
        let mut still_told = FxHashMap::default();
        for (key, start) in self.relation.waiting(now) {
            let age_ns = now.saturating_sub(start.time);
            let due_age = self.slow.open.due_age(*key, start.time);
            if let Some(told) = self.slow.open.told.get(key).filter(|_| due_age.is_some()) {
                still_told.insert(*key, *told);
            }
            if age_ns >= than && is_due(due_age, age_ns) {
                due.offer(Reverse((start.time, start.tid)), (*key, *start));
            }
        }
        self.slow.open.told = still_told;
        for (_, (key, start)) in due.into_sorted() {
            let next_age_ns = now.saturating_sub(start.time).saturating_mul(2);
            self.slow.open.told.insert(key, ToldStart { since: start.time, next_age_ns });
            self.show_start(&start, key, now, ctx);
        }
    }

    fn show_start(&self, start: &PairStart, key: RelationKey, now: Timestamp, ctx: &mut Context) {
        let delay = ShownDelay {
            delay_ns: now.saturating_sub(start.time),
            start: self.name(start.event),
            end: "".into(),
            key: if self.has_keys() { self.shown_key(key.event_key()) } else { Value::None },
            is_open: true,
            ended_by: None,
            is_truncated: false,
        };
        let subject = Subject { time: now, cpu: start.cpu, pid: start.pid, tid: start.tid, comm: start.comm };
        ctx.emit(&DELAY, subject, &delay, start.stack);
    }
}
