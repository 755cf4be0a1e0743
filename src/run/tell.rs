//! Notes during the run: on the run itself, also for the metrics, and on the processes that it watches.

use std::collections::BTreeMap;

use crate::output::Message;
use crate::output::metrics::{MeterTotal, RunMeters, ViewMeters};
use crate::outside;
use crate::run::Run;
use crate::run::intervals::ViewInterval;
use crate::run::messages::{self, Backlog, OwnCost};
use crate::run::views::View;
use crate::symbol::functions::binary::has_mapped_inode;
use crate::sys;
use crate::task::{Comm, listed, script_of};

impl Run {
    /// Reports that tasks of the target have ended. The run ends with the last of them.
    pub(super) fn tell_ended(&mut self) {
        if self.core.ctx.watched.is_over() {
            return;
        }
        if let Some(ended) = self.targets.take_ended(&self.core.ctx.watched, &self.host) {
            self.core.ctx.output.note(format!("{}: {ended}", self.options.name));
        }
    }

    /// Watches processes that now have a wanted name.
    pub(super) fn follow_names(&mut self, now: u64) {
        let names = &self.options.names;
        if names.is_empty() {
            return;
        }
        let is_asked_for = |pid, comm: Comm| {
            names.iter().any(|name| name.matches(comm.as_bytes()))
                || script_of(&self.host, pid, comm)
                    .is_some_and(|script| names.iter().any(|name| name.matches_name(&script)))
        };
        let is_over = self.core.ctx.watched.is_over();
        let mut started = self.targets.find_started(is_asked_for, &self.host, now, is_over);
        if started.is_empty() {
            return;
        }
        // Some of these processes may be children of the target, which is known only from records still in the rings.
        self.rings.catch_up(&mut self.core);
        started.retain(|&pid| !self.core.ctx.watched.has_process(pid));
        let left_out = self.targets.leave_out(&mut started);
        if started.is_empty() && left_out == 0 {
            return;
        }
        let profiler = self.options.name.clone();
        // Many processes may start at once: equal notes become one line.
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for &pid in &started {
            let name = self.targets.add(pid, &self.host);
            let what = match self.join(pid) {
                Ok(None) => ": watched from now on".to_owned(),
                Ok(Some(but)) => format!(": watched from now on, {but}"),
                Err(err) => format!(", and cannot be watched: {err:#}"),
            };
            told.entry(what).or_default().push(name);
        }
        let line = |(what, names): (String, Vec<String>)| format!("{profiler}: {} started{what}", listed(&names));
        let mut lines: Vec<String> = told.into_iter().map(line).collect();
        if left_out > 0 {
            lines.push(format!("{profiler}: {left_out} more with such a name started, too many to be watched"));
        }
        self.core.ctx.tasks.scan();
        if self.core.any_address {
            self.core.ctx.output.send_live_pids(started);
        }
        self.tell_ended(); // before notes on new processes
        lines.into_iter().for_each(|line| self.core.ctx.output.note(line));
    }

    /// Watches a process. Returns a further remark for the user.
    fn join(&mut self, pid: i32) -> anyhow::Result<Option<&'static str>> {
        let core = &mut self.core;
        if core.loss.side_total() > 0 && core.evlist.any_inherited() {
            // A child of the target has inherited events, so its samples would come twice.
            anyhow::bail!("records were lost that tell who was started by whom");
        }
        core.evlist.bind(core.ctx.watched.now());
        core.evlist.join_process(pid, &self.host)?;
        core.ctx.watched.join(pid, &self.host);
        let is_elsewhere = |inode| has_mapped_inode(&self.host, pid, inode) == Some(false);
        let has_other_files = core.evlist.evsels.probed_inodes().any(is_elsewhere);
        Ok(has_other_files.then_some("but it has not loaded all the files that probes are in"))
    }

    /// Reports the cost of the run up to now, and the bytes that wait to be read and to be written.
    pub(super) fn tell_own_cost(&mut self) {
        let now = sys::monotonic_ns();
        let cost = self.own_cost(now);
        let (fullest_bytes, ring_bytes) = self.rings.fullest();
        let output = &self.core.ctx.output;
        let backlog =
            Backlog { fullest_bytes, ring_bytes, output_bytes: output.waiting_bytes(), dropped: output.dropped() };
        let profiler = &self.options.name;
        let lines = [
            format!("{profiler}: {}", messages::own_cost(&cost)),
            format!("{profiler}: {}", messages::backlog(&backlog)),
        ];
        lines.into_iter().for_each(|line| self.core.ctx.output.note(line));
    }

    /// The metrics of the run itself. None: metrics are off.
    pub(super) fn meters(&self, views: &[ViewInterval], now: u64) -> Option<Message> {
        self.options.metrics.filter(|_| !self.options.dry_run)?;
        let core = &self.core;
        let cost = self.own_cost(now);
        let view = |(index, (view, ended)): (usize, (&View, &ViewInterval))| {
            let sums = core.views.sums(index, &core.ctx);
            ViewMeters {
                samples: view.samples,
                lost: view.loss.total(),
                lost_side: view.loss.side_total(),
                untracked: sums.map_or(0, |sums| sums.untracked),
                discarded: sums.map_or(0, |sums| sums.discarded),
                coverage: view.loss.coverage(self.interval.start_ns, now, self.rings.cpus()),
                verdict: ended.judged.verdict,
                totals: MeterTotal::all_of(&ended.report),
            }
        };
        Some(Message::Metrics(RunMeters {
            start_ns: self.start_ns,
            time_ns: now,
            cpu_ns: cost.cpu_ns,
            rss_peak_bytes: cost.rss_peak_bytes,
            locked_bytes: cost.locked_bytes,
            wakeups: cost.wakeups,
            malformed: core.records.malformed + self.rings.undecodable(),
            late: cost.late,
            dropped_lines: core.ctx.output.dropped(),
            dropped_stacks: core.ctx.stacks.refused() + core.ctx.output.dropped_stacks(),
            waiting_bytes: core.ctx.output.waiting_bytes(),
            views: core.views.iter().zip(views).enumerate().map(view).collect(),
        }))
    }

    pub(super) fn own_cost(&self, now: u64) -> OwnCost {
        let (cpu_ns, rss_peak_bytes) = sys::self_usage();
        OwnCost {
            duration_ns: now.saturating_sub(self.start_ns),
            cpu_ns: cpu_ns.saturating_add(outside::cpu_ns()),
            rss_peak_bytes,
            locked_bytes: self.rings.locked_bytes(),
            wakeups: self.wakeups,
            samples: self.core.samples(),
            record_bytes: self.core.records.bytes,
            late: self.core.records.late,
        }
    }
}
