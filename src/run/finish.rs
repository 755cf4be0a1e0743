//! The end of a run: the events stop, the last interval is reported, and nothing is left behind.

use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::host::Host;
use crate::output::sink::print_to_stderr_at_once;
use crate::output::{Message, OutputClosed, RunEnd, ViewEnd};
use crate::outside;
use crate::perf::evlist::Evlist;
use crate::profiler::{Timestamp, TracefsFinder};
use crate::report::Value;
use crate::ringbuf::DrainLimit;
use crate::run::dispatcher::Dispatcher;
use crate::run::messages::OwnCost;
use crate::run::probed::Paid;
use crate::run::views::View;
use crate::run::{Outcome, Run, StopReason, messages};
use crate::sys;
use crate::task::procfs;

impl Run {
    /// Stops the events, reports the last interval, and cleans up.
    pub(super) fn finish(mut self, stop: StopReason) -> Result<Outcome> {
        outside::hurry();
        let end_ns = self.stop_events(&stop)?;
        self.weigh(end_ns).into_iter().for_each(|line| self.core.ctx.output.note(line)); // before names are looked up
        let mut messages = self.close_interval(end_ns, true)?;
        messages.extend(outside::take_notes().into_iter().map(Message::Note));
        messages.extend(self.core.idle.last_line().map(Message::Note));
        messages.extend(self.notes_on_unseen().into_iter().map(Message::Note));
        let (hits, cost) = (self.probes.hits_so_far(), self.own_cost(end_ns));
        let mut end = self.run_end(end_ns, &cost, hits);
        // The number of hidden events is unknown: it counts as 1.
        let missing = end.missing().max(u64::from(!end.filtered_by.is_empty()));
        if !self.options.json {
            let counts_lost = self.core.evlist.counts_lost();
            end.summary = messages::summary(&self.options, &end, counts_lost);
            end.summary.extend(hits.map(|hits| hits.line(&self.options.name)));
            if self.options.verbose {
                end.summary.push(messages::own_cost(&cost));
            }
        }
        let follows = self.core.filter.is_on() || self.core.evlist.evsels.any_cpu_bound();
        if self.core.ctx.watched.awaits_exec() && follows && self.core.loss.total() + self.core.loss.side_total() > 0 {
            messages.push(Message::Note(format!(
                "{}: nothing is known of the command: the record of its exec was lost; a larger -m keeps it",
                self.options.name
            )));
        }
        self.core.ctx.output.batch.push_update(self.core.ctx.stacks.take_counts());
        messages.push(Message::End(end));
        let unwritten = self.leave(messages)?;
        // Problems of the last look-ups of names.
        outside::take_notes().iter().for_each(|note| print_to_stderr_at_once(note));
        Ok(Outcome { lost: missing, unwritten })
    }

    /// Stops the events and takes their last records, if these are wanted. Returns the time up to which all records
    /// were taken.
    fn stop_events(&mut self, stop: &StopReason) -> Result<Timestamp> {
        // Disabling waits for each CPU, which a paced run must not do.
        if !self.options.paced {
            sys::perf::disable_all().context("cannot stop the events")?;
        }
        if matches!(stop, StopReason::Asked) {
            self.round(DrainLimit::All);
        }
        // Records after the last sample of -N were not read.
        let end_ns = self.core.ended_ns.unwrap_or_else(sys::monotonic_ns);
        if !matches!(stop, StopReason::Enough) {
            self.core.stopped(end_ns);
        }
        if matches!(stop, StopReason::Asked) {
            // The events are disabled, and all records were taken.
            self.core.unseen.forget_counts();
            self.rings.read_lost(&mut self.core);
            self.core.compare_counts(Timestamp::MAX);
        }
        Ok(end_ns)
    }

    /// Notes on calls that went unseen, and on samples that a filter could not judge.
    fn notes_on_unseen(&self) -> Vec<String> {
        let say = |(name, count)| {
            format!("{name}: {count} calls were not seen: they came inside of another probe, or too many were pending")
        };
        let mut notes: Vec<String> = self.probes.tracefs.missed_calls().into_iter().map(say).collect();
        notes.extend(messages::of_children(&self.options.name, self.core.unseen.children_in_doubt()));
        notes.extend(messages::of_filters(&self.core.evlist.evsels.not_judged()));
        notes
    }

    /// The counts of the whole run.
    fn run_end(&mut self, end_ns: Timestamp, cost: &OwnCost, hits: Option<Paid>) -> RunEnd {
        let mut end = RunEnd {
            time_ns: end_ns,
            duration_ns: end_ns.saturating_sub(self.start_ns),
            samples: self.core.samples(),
            lost: self.core.loss.total(),
            lost_output: self.core.ctx.output.dropped(),
            lost_side: self.core.loss.side_total(),
            lost_switches: self.core.loss.switches_total(),
            lost_stacks: self.core.ctx.stacks.refused() + self.core.ctx.output.dropped_stacks(),
            lost_pairs: self.core.views.sum(&self.core.ctx, |sums| sums.untracked),
            lost_calls: self.core.unseen.missed_calls,
            unseen: self.core.unseen.hidden(),
            lost_unwind: self.core.lost_unwind(),
            windows_ended: self.window_pace.has_ended(),
            unwinding: self.core.unwinding(),
            children_in_doubt: self.core.unseen.children_in_doubt(),
            malformed: self.core.records.malformed + self.rings.undecodable(),
            discarded: self.core.views.sum(&self.core.ctx, |sums| sums.discarded),
            late: self.core.records.late,
            intervals: self.interval.number,
            cpu_ns: cost.cpu_ns,
            rss_peak_bytes: cost.rss_peak_bytes,
            locked_bytes: cost.locked_bytes,
            wakeups: cost.wakeups,
            record_bytes: cost.record_bytes,
            weight: self.scales.told.take().map(Box::new),
            totals: std::mem::take(&mut self.reports.totals),
            filtered_by: self.onlookers.watch().run_programs(),
            views: self.view_ends(),
            summary: Vec::new(),
        };
        let not_judged = self.core.evlist.evsels.not_judged();
        if !not_judged.is_empty() {
            let total = not_judged.iter().map(|(_, count, _)| count).sum();
            end.totals.push(("filter_no_value", Value::Unsigned(total)));
        }
        if let Some(hits) = hits {
            end.totals.push(("probe_hits", Value::Unsigned(hits.count)));
            end.totals.extend(hits.cost_ns.map(|ns| ("probe_cost_ns", Value::Ns(ns))));
        }
        end
    }

    /// The ends of the views, if there are several.
    fn view_ends(&self) -> Vec<ViewEnd> {
        let Dispatcher { views, ctx, .. } = &self.core;
        let end = |(index, view): (usize, &View)| {
            let sums = views.sums(index, ctx);
            let (lost_pairs, discarded) = sums.map_or((0, 0), |sums| (sums.untracked, sums.discarded));
            ViewEnd { samples: view.samples, lost: view.loss.total(), lost_pairs, discarded }
        };
        if views.len() == 1 { Vec::new() } else { views.iter().enumerate().map(end).collect() }
    }

    /// Writes the rest of the output and removes the run's probes. True when not everything was written in time.
    pub(super) fn leave(self, messages: Vec<Message>) -> Result<bool> {
        let Run { core, wake, workload, host, told_to_end, probes, options, .. } = self;
        let Dispatcher { evlist, ctx, .. } = core;
        let removal = remove_probes(evlist, probes.tracefs);
        if let Some(mut workload) = workload {
            workload.end(&descendants(&host, workload.pid())); // if the workload still runs
        }
        let mut told = usize::from(told_to_end);
        let is_end = |signal: &Signal| matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP);
        let closed = ctx.output.finish(messages, || {
            told += std::iter::from_fn(|| wake.take_signal()).filter(is_end).count();
            told
        });
        removal.wait()?;
        match closed {
            Some(OutputClosed::Drawing(err)) => return Err(err.into()),
            Some(OutputClosed::Failed(err)) => {
                let place =
                    options.output.as_ref().map_or_else(|| "stdout".to_owned(), |path| path.display().to_string());
                return Err(anyhow::Error::new(err).context(format!("cannot write to {place}")));
            }
            Some(OutputClosed::GivenUp(step)) => {
                let again = if told > 1 { "told to end again: " } else { "" };
                let what = match step {
                    None => "results that nobody had read yet are dropped, the last ones among them".to_owned(),
                    Some(step) => format!("results are dropped, the last ones among them: the output {step}"),
                };
                print_to_stderr_at_once(&format!("{}: {again}{what}", options.name));
                return Ok(true);
            }
            Some(OutputClosed::Pipe) | None => {}
        }
        Ok(false)
    }
}

/// The removal of the run's own probes, in parallel with the end of the output: a probe slows programs down as long as
/// it exists.
struct Removal {
    thread: Option<JoinHandle<Result<Evlist>>>,
    /// The other events, which are only held until the output is done.
    events: Result<Option<Evlist>>,
}

/// Removes the probes on a thread, so that the last report need not wait.
fn remove_probes(evlist: Evlist, tracefs: TracefsFinder) -> Removal {
    if !tracefs.has_probes() {
        return Removal { thread: None, events: Ok(Some(evlist)) };
    }
    fn remove((mut evlist, tracefs): (Evlist, TracefsFinder)) -> Result<Evlist> {
        tracefs.end_probes(|| evlist.close_probes())?;
        Ok(evlist) // releasing the remaining events takes long, too
    }
    let (give, take) = sync_channel(1);
    let spawned = thread::Builder::new().spawn(move || take.recv().map_err(Into::into).and_then(remove));
    let probes = (evlist, tracefs);
    match spawned {
        Ok(thread) => {
            let _ = give.send(probes); // the thread waits for the probes
            Removal { thread: Some(thread), events: Ok(None) }
        }
        // The thread cannot be started.
        Err(_) => Removal { thread: None, events: remove(probes).map(Some) },
    }
}

impl Removal {
    fn wait(self) -> Result<()> {
        match self.thread.map(JoinHandle::join) {
            Some(Ok(Err(err))) => Err(err),
            _ => self.events.map(drop),
        }
    }
}

/// Descriptors of the processes that a workload has started. Each was checked to be a descendant after its descriptor was
/// opened, as pids are reused.
fn descendants(host: &Host, pid: i32) -> Vec<OwnedFd> {
    let open = |pid: i32| Some((pid, sys::poll::pidfd(pid).ok()?));
    let opened: Vec<(i32, OwnedFd)> = procfs::descendants(host, pid).into_iter().filter_map(open).collect();
    let family = procfs::descendants(host, pid);
    opened.into_iter().filter(|(pid, _)| family.contains(pid)).map(|(_, fd)| fd).collect()
}
