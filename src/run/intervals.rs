//! The end of an interval: each view reports, and its verdict depends on what was lost.

use std::sync::{Arc, Weak};

use anyhow::Result;

use crate::output::{IntervalEnd, Message, StackReport};
use crate::profiler::Timestamp;
use crate::report::{Report, Table, Value};
use crate::run::dispatcher::JudgedInterval;
use crate::run::loss::coverage;
use crate::run::report_pace::{PacedReport, ReportPace};
use crate::run::{Run, messages};
use crate::stats::weights::Weighted;
use crate::sys;

/// How an interval ended for one view.
pub(super) struct ViewInterval {
    pub report: Report,
    pub judged: JudgedInterval,
}

/// How the reports of an interval are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntervalUse {
    /// The reports are added to those of the next printed interval.
    Quiet,
    Printed,
    /// The reports are printed, and are the last ones.
    Last,
}

/// The current interval.
#[derive(Debug, Default)]
pub(super) struct CurrentInterval {
    pub start_ns: Timestamp,
    /// The interval must be closed as soon as the output has room for its report.
    pub is_due: bool,
    /// Number of closed intervals, including one that is being closed.
    pub number: u64,
    /// Samples before this interval.
    samples_before: u64,
}

/// State that later reports need from earlier ones.
#[derive(Debug, Default)]
pub(super) struct ReportsMade {
    pub snapshots: ReportPace,
    /// View and name of each snapshot that the last interval has printed.
    printed: Vec<(usize, &'static str)>,
    /// Totals of the run as of the last interval.
    pub totals: Vec<(&'static str, Value)>,
    /// It was reported that a filter had no value for some samples.
    told_no_value: bool,
    /// The last reports of stacks, until the output thread has finished them.
    stacks: Vec<Weak<Vec<Weighted>>>,
}

impl Run {
    /// Closes an interval, or a quiet one, and reports it.
    pub(super) fn report(&mut self) -> Result<()> {
        self.quiet.is_due = false;
        let is_printed = std::mem::take(&mut self.interval.is_due);
        self.rings.catch_up(&mut self.core);
        let end_ns = self.rings.complete_to();
        let messages = if is_printed { self.close_interval(end_ns, false)? } else { self.close_quietly(end_ns)? };
        for message in messages {
            self.core.ctx.output.send(message);
        }
        Ok(())
    }

    pub(super) fn close_interval(&mut self, end_ns: u64, last: bool) -> Result<Vec<Message>> {
        self.interval.number += 1;
        let mut views = self.view_reports(end_ns, if last { IntervalUse::Last } else { IntervalUse::Printed })?;
        let samples = self.core.samples() - self.interval.samples_before;
        let span_ns = end_ns.saturating_sub(self.interval.start_ns);
        let ends_at_once = last && span_ns < self.short_ns();
        let printed = std::mem::take(&mut self.reports.printed);
        let mut tables = Vec::new();
        for view in &mut views {
            if ends_at_once && samples == 0 {
                // The run ended right after an interval: only tables of the whole run are left to report.
                view.report.tables.retain(Table::is_of_run);
            }
            for table in view.report.tables.iter_mut().filter(|table| table.is_snapshot && table.in_text) {
                let which = (table.owner, table.rows.table());
                // Text would have the same once more; a screen has gone by now.
                table.in_text = !ends_at_once || self.core.ctx.output.screen.is_some() || !printed.contains(&which);
                self.reports.printed.push(which);
            }
            tables.append(&mut view.report.tables);
        }
        let mut messages = self.table_messages(tables, end_ns);
        messages.extend(self.stack_reports(&mut views, end_ns, last));
        for view in &mut views {
            messages.extend(std::mem::take(&mut view.report.notes).into_iter().map(Message::Note));
        }
        if !last && !self.reports.told_no_value {
            // Reported once: the end of the run has the total number.
            let not_judged = self.core.evlist.evsels.not_judged();
            self.reports.told_no_value = !not_judged.is_empty();
            messages.extend(messages::of_filters(&not_judged).map(Message::Note));
        }
        let meters = self.meters(&views, end_ns);
        messages.extend(self.interval_ends(views, samples, end_ns));
        messages.extend(meters);
        self.interval.start_ns = end_ns;
        self.interval.samples_before = self.core.samples();
        self.quiet.begin_interval();
        Ok(messages)
    }

    fn snapshot_pace(&mut self, is_quiet: bool) -> &mut ReportPace {
        if is_quiet { &mut self.quiet.snapshots } else { &mut self.reports.snapshots }
    }

    /// Makes each view report, and sets the verdicts of the reports.
    pub(super) fn view_reports(&mut self, end_ns: u64, used: IntervalUse) -> Result<Vec<ViewInterval>> {
        self.look_again();
        self.rings.read_lost(&mut self.core);
        self.core.notify_counts();
        self.core.weigh_samples();
        let (is_quiet, last) = (used == IntervalUse::Quiet, used == IntervalUse::Last);
        let takes_snapshots = last || self.snapshot_pace(is_quiet).is_due(end_ns);
        let cpu_ns = sys::thread_cpu_ns();
        let mut reports = Vec::new();
        for owner in 0..self.core.views.len() {
            let mut report =
                Report { owner, takes_snapshots, is_quiet, unseen: self.core.unseen.hidden(), ..Report::default() };
            if let Some(view) = self.core.views.enter(owner, &mut self.core.ctx) {
                match last {
                    true => view.profiler.deinit(end_ns, &mut report)?,
                    false => view.profiler.interval(end_ns, &mut report)?,
                }
            }
            reports.push(report);
        }
        let tables = reports.iter().flat_map(|report| &report.tables);
        let snapshot_of = tables.filter(|table| table.is_snapshot).map(|table| table.owner).next();
        if let Some(report) = snapshot_of.and_then(|owner| reports.get_mut(owner)) {
            let took_ns = sys::thread_cpu_ns().saturating_sub(cpu_ns);
            let interval = self.options.interval.filter(|_| !is_quiet);
            let pace = self.snapshot_pace(is_quiet);
            let told = pace.made(PacedReport::Snapshots, end_ns, took_ns, interval).filter(|_| !last);
            report.notes.extend(told.map(|line| format!("{}: {line}", self.options.name)));
        }
        self.core.unseen.missed_calls = self.probes.tracefs.missed_calls().into_iter().map(|(_, calls)| calls).sum();
        let undecodable = self.rings.undecodable();
        let judged = reports.into_iter().enumerate().map(|(owner, mut report)| {
            let ended = self.core.judge(owner, &mut report, undecodable);
            ViewInterval { report, judged: self.quiet.add(owner, ended) }
        });
        Ok(judged.collect())
    }

    /// The ends of the interval, by view.
    fn interval_ends(&mut self, views: Vec<ViewInterval>, samples: u64, end_ns: u64) -> Vec<Message> {
        let cure = self.rings.cure(self.core.records.mean_bytes());
        let line = self.core.loss.line(samples, &cure);
        let mut loss_line = line.map(|line| format!("{}: {line}", self.options.name));
        self.core.loss.next_interval();
        self.reports.totals.clear();
        let (interval, start_ns, cpus) = (self.interval.number, self.interval.start_ns, self.rings.cpus());
        let filtered_by = self.onlookers.watch().take_interval_programs();
        let mut ends = Vec::new();
        for (index, (view, ViewInterval { report, judged })) in self.core.views.iter_mut().zip(views).enumerate() {
            let JudgedInterval { verdict, samples, discarded } = judged;
            let (lost, lost_side) = (view.loss.interval(), view.loss.side_interval());
            let lost_windows = view.loss.next_interval();
            ends.push(Message::Interval(IntervalEnd {
                view: index,
                interval,
                start_ns,
                end_ns,
                samples,
                lost,
                lost_side,
                coverage: coverage(&lost_windows, start_ns, end_ns, cpus),
                lost_windows,
                verdict,
                filtered_by: filtered_by.clone(),
                discarded,
                loss_line: loss_line.take(),
                totals: report.totals.into_iter().chain(report.run_totals.iter().cloned()).collect(),
            }));
            self.reports.totals.extend(report.run_totals);
        }
        ends
    }

    /// By view, the weights of stacks since the last report and, where wanted, the report of all stacks.
    fn stack_reports(&mut self, views: &mut [ViewInterval], time_ns: u64, last: bool) -> Vec<Message> {
        let options = self.options.views.iter();
        let wanted = |(view, options): (&ViewInterval, &crate::run::ViewOptions)| {
            view.report.top.is_some() || options.flame.is_some()
        };
        let wanted: Vec<bool> = views.iter().zip(options).map(wanted).collect();
        if !wanted.contains(&true) {
            return Vec::new();
        }
        // Reports may be large and must not be dropped, so during the run only one at a time is in flight.
        self.reports.stacks.retain(|sent| sent.strong_count() > 0);
        if !last && (!self.reports.stacks.is_empty() || !self.core.ctx.output.flush_all()) {
            let lists = views.iter().filter(|view| view.report.top.is_some()).count();
            self.core.ctx.output.skip(lists);
            return Vec::new();
        }
        let span_ns = time_ns.saturating_sub(self.start_ns);
        let mut messages = Vec::new();
        for (view, ended) in views.iter_mut().enumerate().filter(|(view, _)| wanted.get(*view) == Some(&true)) {
            let ongoing = Arc::new(std::mem::take(&mut ended.report.weights));
            self.reports.stacks.push(Arc::downgrade(&ongoing));
            messages.push(Message::Weights { view, rows: self.core.take_weights(view) });
            let top = ended.report.top;
            messages.push(Message::Stacks(StackReport { view, time_ns, span_ns, ongoing, top, last }));
        }
        messages
    }
}
