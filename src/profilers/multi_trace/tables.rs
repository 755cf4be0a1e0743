//! The rows of the tables, and the lines of waiting starts.

use crate::profiler::{Context, Report, Timestamp};
use crate::profilers::multi_trace::args::Analysis;
use crate::profilers::multi_trace::pairs::{DelayKey, DelayStart};
use crate::profilers::multi_trace::report::{
    DELAY, DELAYS, DelayRow, PAIRS, PairRow, ShownDelay, WAITING, WORST, WORST_WITH_STACKS, WaitingRow, WorstRow,
};
use crate::profilers::multi_trace::{DefaultKey, MultiTrace};
use crate::relation::{OpenStart, PairSums, RelationKey, Unpaired, WaitingStarts};
use crate::report::{Subject, Value};
use crate::stats::WorstCase;
use crate::task::Comm;

impl MultiTrace {
    fn rows(&mut self) -> Vec<DelayRow> {
        let rows = self.relation.rows.take();
        let is_thread = self.question.by_key && self.default_key == DefaultKey::Thread && !self.has_keys();
        let row = |(of, sums): (DelayKey, PairSums<Comm>)| DelayRow {
            key: of.key.map_or(Value::None, |key| self.shown_key(key)),
            comm: if is_thread { Value::Comm(sums.own) } else { Value::None },
            start: self.name(of.start),
            end: self.name(of.end),
            latency: sums.latency,
            than: sums.than,
            before: sums.before,
        };
        rows.into_iter().map(row).collect()
    }

    /// The starts that wait. `any_unseen`: events may have gone unseen.
    pub(super) fn waiting(&mut self, now: Timestamp, any_unseen: bool) -> Vec<WaitingRow> {
        let by_event = self.relation.waiting_by(now, |_, start| start.open.own.event);
        let row = |(event, WaitingStarts { count, key, oldest }): (_, WaitingStarts<RelationKey, _>)| WaitingRow {
            start: self.name(event),
            open: if any_unseen { 0 } else { count },
            unseen: if any_unseen { count } else { 0 },
            oldest_ns: now.saturating_sub(oldest.since),
            key: self.shown_key(key.event_key()),
            tid: oldest.open.tid,
            comm: oldest.open.comm,
        };
        by_event.into_iter().map(row).collect()
    }

    pub(super) fn report_tables(&mut self, waiting: Vec<WaitingRow>, unpaired: Unpaired, report: &mut Report) {
        let rows = self.rows();
        let is_shown = !self.question.lengths.only_than() || rows.iter().any(|row| row.than > 0);
        let table = if self.question.analysis == Analysis::Pair {
            let pair = |row: DelayRow| {
                let paired = row.latency.distribution.count();
                PairRow { start: row.start, end: row.end, paired }
            };
            report.delta(&PAIRS, rows.into_iter().map(pair).collect())
        } else {
            report.delta(&DELAYS, rows).text_rows(self.question.most_rows)
        };
        table.judged(unpaired.verdict(self.misses_cpus)).below(unpaired.in_words()).in_text(is_shown);
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

    /// Shows a waiting start.
    pub(super) fn show_open(&self, key: RelationKey, start: &OpenStart<DelayStart>, now: Timestamp, ctx: &mut Context) {
        let OpenStart { since, open: start } = start;
        let delay = ShownDelay {
            delay_ns: now.saturating_sub(*since),
            start: self.name(start.own.event),
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
