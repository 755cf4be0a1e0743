//! Quiet intervals: the profilers report tables, which go to the book and to outputs that want them often, but nothing
//! is printed. The next printed interval has their sums.

use std::time::Duration;

use anyhow::Result;

use crate::output::Message;
use crate::profiler::Timestamp;
use crate::report::Table;
use crate::run::Run;
use crate::run::dispatcher::JudgedInterval;
use crate::run::intervals::{IntervalUse, ViewInterval};
use crate::run::report_pace::{PacedReport, ReportPace};
use crate::sys;

/// The quiet intervals of a run.
#[derive(Debug, Default)]
pub(super) struct QuietIntervals {
    pub is_due: bool,
    /// When the last quiet interval ended. None: there was none since the last printed interval.
    since_ns: Option<Timestamp>,
    /// The verdicts on quiet intervals since the last printed one, by view.
    judged: Vec<JudgedInterval>,
    pub snapshots: ReportPace,
    /// The pace of tables without snapshots.
    tables: ReportPace,
    /// When a quiet interval last published metrics.
    published_ns: Timestamp,
}

impl QuietIntervals {
    /// Handles a tick of the timer of quiet intervals. If the intervals are costly, some ticks are skipped.
    pub fn tick(&mut self) {
        self.is_due |= self.tables.is_due(sys::monotonic_ns());
    }

    /// Notes that a printed interval has ended.
    pub fn begin_interval(&mut self) {
        self.since_ns = None;
        self.judged.clear();
    }

    /// Whether to publish the metrics again: quiet intervals may be too short for that.
    fn is_time_to_publish(&mut self, now: Timestamp) -> bool {
        const OFTEN_NS: u64 = 500_000_000;
        let is_time = now.saturating_sub(self.published_ns) >= OFTEN_NS;
        if is_time {
            self.published_ns = now;
        }
        is_time
    }

    /// Combines the verdict on an interval of a view with the verdicts on the quiet intervals before it.
    pub fn add(&mut self, view: usize, ended: JudgedInterval) -> JudgedInterval {
        if self.judged.len() <= view {
            self.judged.resize_with(view + 1, JudgedInterval::default);
        }
        let Some(sum) = self.judged.get_mut(view) else { return ended };
        sum.verdict = sum.verdict.max(ended.verdict);
        sum.samples += ended.samples;
        sum.discarded += ended.discarded;
        *sum
    }
}

impl Run {
    /// Starts the timer of quiet intervals, unless intervals are printed as often.
    pub(super) fn begin_quiet_intervals(&mut self) -> Result<()> {
        let is_shorter = |quiet: &Duration| self.options.interval.is_none_or(|interval| *quiet < interval);
        if let Some(period) = self.options.quiet.filter(is_shorter).filter(|_| !self.options.dry_run) {
            self.wake.tick_quietly_every(period)?;
        }
        Ok(())
    }

    /// Closes a quiet interval. Losses, totals and notes, which concern the whole printed interval, wait for its end.
    pub(super) fn close_quietly(&mut self, end_ns: Timestamp) -> Result<Vec<Message>> {
        let cpu_ns = sys::thread_cpu_ns();
        let views = self.view_reports(end_ns, IntervalUse::Quiet)?;
        let told = self.pace_tables(&views, end_ns, sys::thread_cpu_ns().saturating_sub(cpu_ns));
        let meters = self.meters(&views, end_ns).filter(|_| self.quiet.is_time_to_publish(end_ns));
        let tables = views.into_iter().flat_map(|view| view.report.tables).collect();
        let mut messages = self.parts(tables, end_ns);
        messages.extend(meters);
        messages.extend(told.map(Message::Note));
        self.quiet.since_ns = Some(end_ns);
        Ok(messages)
    }

    /// Delays the next quiet interval in proportion to the cost of this one. Returns a note, once, if the delay is
    /// longer than the wanted interval.
    fn pace_tables(&mut self, views: &[ViewInterval], end_ns: Timestamp, took_ns: u64) -> Option<String> {
        // Snapshots have their own pace.
        if views.iter().flat_map(|view| &view.report.tables).any(|table| table.is_snapshot) {
            return None;
        }
        let told = self.quiet.tables.made(PacedReport::QuietTables, end_ns, took_ns, self.options.quiet);
        told.map(|line| format!("{}: {line}", self.options.name))
    }

    /// The tables of a printed interval. If parts of it were sent before, these are the last part.
    pub(super) fn table_messages(&self, tables: Vec<Table>, time_ns: Timestamp) -> Vec<Message> {
        let (interval, span_ns) = (self.interval.number, time_ns.saturating_sub(self.interval.start_ns));
        if self.quiet.since_ns.is_none() {
            let table = |table| Message::Table { table, interval, time_ns, span_ns, is_quiet: false };
            return tables.into_iter().map(table).collect();
        }
        Message::last_part(tables, interval, time_ns, self.part_ns(time_ns), span_ns)
    }

    fn parts(&self, tables: Vec<Table>, time_ns: Timestamp) -> Vec<Message> {
        let (interval, span_ns) = (self.interval.number, self.part_ns(time_ns));
        let part = |table| Message::Table { table, interval, time_ns, span_ns, is_quiet: true };
        tables.into_iter().map(part).collect()
    }

    /// Length of the part of the interval that ends at `time_ns`.
    fn part_ns(&self, time_ns: Timestamp) -> u64 {
        time_ns.saturating_sub(self.quiet.since_ns.unwrap_or(self.interval.start_ns))
    }
}
