//! What is done with a sample, and with the waits that end in it.

use std::sync::Arc;

use anyhow::Result;

use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Use};
use crate::profilers::rundelay::Rundelay;
use crate::profilers::rundelay::cells::CpuRunner;
use crate::profilers::rundelay::history::CpuUse;
use crate::profilers::rundelay::line::{DELAYS, ShownRunDelay};
use crate::profilers::rundelay::model::{EndedWait, LeftCpu, SchedSide};
use crate::profilers::rundelay::table::{BehindKey, LongestWaitRow, RunDelayKey};
use crate::report::Subject;
use crate::stats::{Began, WorstCase};
use crate::task::Comm;

fn had_by(tid: i32, comm: Comm, prio: i32) -> CpuUse {
    if tid == 0 { CpuUse::Idle } else { CpuUse::Task { tid, comm, prio } }
}

impl Rundelay {
    #[inline]
    pub(super) fn on_event(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        if event == plan.switch || Some(event) == plan.runnable {
            self.on_switch(sample, ctx)
        } else if event == plan.migrate.event {
            let (tid, cpu) = (plan.migrate.pid.read(sample.raw)?, plan.migrate.dest_cpu.read(sample.raw)?);
            self.model.migrated(sample.time, tid, cpu.cast_unsigned());
            Ok(Use::Ignored)
        } else {
            self.on_wakeup(event, sample, ctx)
        }
    }

    #[inline]
    fn on_switch(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        let (fields, raw) = (&plan.fields, sample.raw);
        let (prev, next) = (fields.prev_pid.read(raw)?, fields.next_pid.read(raw)?);
        let prev_comm = Comm::new(fields.prev_comm.bytes(raw)?);
        let next_comm = Comm::new(fields.next_comm.bytes(raw)?);
        let prev_use = had_by(prev, prev_comm, fields.prev_prio.read(raw)?);
        let next_use = had_by(next, next_comm, fields.next_prio.read(raw)?);
        let how = plan.left.of(fields.prev_state.read_u64(raw)?, sample);
        let (at, cpu) = (sample.time, sample.cpu);
        let ended = self.next_comes(at, cpu, (next, next_comm), (prev_use, next_use), ctx);
        if prev > 0 {
            let is_ours = self.is_ours(prev, &prev_comm, ctx);
            let takes_stack = is_ours && matches!(how, LeftCpu::Waits(_)) && self.takes_stacks();
            let stack = if takes_stack { ctx.stack(sample) } else { None };
            let report_at = self.report_at(at);
            self.model.left(SchedSide { at, cpu, tid: prev, comm: prev_comm, is_ours }, how, stack, report_at);
        }
        Ok(ended)
    }

    /// The switch of `cpu` from `prev_use` to the task `next`, on the side of the latter. It leaves the queue before the
    /// former enters.
    #[inline]
    fn next_comes(
        &mut self,
        at: u64,
        cpu: u32,
        (next, comm): (i32, Comm),
        (prev_use, next_use): (CpuUse, CpuUse),
        ctx: &mut Context,
    ) -> Use {
        self.model.cpu_switched(at, cpu, prev_use, next_use);
        if next <= 0 {
            return Use::Ignored;
        }
        let is_ours = self.is_ours(next, &comm, ctx);
        match self.model.came(SchedSide { at, cpu, tid: next, comm, is_ours }) {
            Some(ended) if is_ours && self.scope.has_cpu(cpu) => {
                self.account(&ended, ctx);
                Use::Relevant
            }
            _ => Use::Ignored,
        }
    }

    #[inline]
    fn on_wakeup(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        let waking = plan.waking.as_ref().filter(|waking| waking.event == event);
        let is_new = plan.wakeup_new.event == event;
        let fields = waking.unwrap_or(if is_new { &plan.wakeup_new } else { &plan.wakeup });
        if !fields.happened(sample.raw) {
            return Ok(Use::Ignored);
        }
        let tid = fields.pid.read(sample.raw)?;
        let comm = Comm::new(fields.comm.bytes(sample.raw)?);
        let cpu = fields.target_cpu.read(sample.raw)?.cast_unsigned();
        let is_waking = waking.is_some();
        let is_ours = self.is_ours(tid, &comm, ctx);
        let seen = SchedSide { at: sample.time, cpu, tid, comm, is_ours };
        if is_waking {
            self.model.waking(seen);
        } else {
            let report_at = self.report_at(sample.time);
            self.model.woken(seen, is_new, report_at);
        }
        Ok(Use::Ignored)
    }

    /// A SWITCH record tells that `tid` got `cpu`: that is news where the event of the switch was not seen.
    pub(super) fn on_switch_in(&mut self, tid: i32, prev: Option<i32>, time: u64, cpu: u32, ctx: &mut Context) {
        /// That of a task whose nice value is 0: the record does not tell.
        const USUAL: i32 = 120;
        if self.model.has_come(cpu, tid) {
            return;
        }
        let comm = ctx.tasks.comm(tid);
        let prev_use = prev.map_or(CpuUse::Unseen, |prev| {
            let known = self.model.cpu(cpu).and_then(|queue| queue.history.latest_of(prev));
            known.unwrap_or_else(|| had_by(prev, ctx.tasks.comm(prev), USUAL))
        });
        self.next_comes(time, cpu, (tid, comm), (prev_use, had_by(tid, comm, USUAL)), ctx);
    }

    pub(super) fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    /// Counts a wait that has ended, and shows it if it was long.
    #[inline]
    fn account(&mut self, ended: &EndedWait, ctx: &mut Context) {
        let EndedWait { tid, comm, cpu, until, wait } = *ended;
        let ns = until.saturating_sub(wait.since);
        let shares = self.shares.fill(&self.model, &wait, until);
        for &(had_by, ns) in shares {
            self.policies.learn(had_by, |tid| ctx.policy(tid));
            let sum = self.behind.sum(BehindKey(Some(had_by)));
            sum.waits += 1;
            sum.ns = sum.ns.saturating_add(ns);
        }
        if wait.began == Began::Exactly {
            self.throttling.ended(tid, &wait, until);
            let thread = self.args.perins.then_some((tid, comm));
            let sum = self.delays.sum(RunDelayKey { kind: wait.kind, thread });
            sum.latency.record(ns, until, || WorstCase { ns, at: until, cpu, tid, comm, stack: wait.stack });
            sum.than += u64::from(self.args.lengths.is_over(ns));
            sum.earlier += u64::from(wait.since < self.reported_until);
            self.note_longest(ended, ns);
        }
        let is_shown = self.args.lengths.is_over(ns) || self.args.lengths.shows(ns) && wait.began == Began::Exactly;
        if is_shown {
            let ran = self.shares.shown(&self.policies);
            self.show_ended(ended, ns, ran, ctx);
        }
        if self.args.common.draws_stacks() && (self.args.lengths.than_ns().is_none() || is_shown) {
            let pid = ctx.tasks.pid(tid);
            ctx.weigh(pid, comm, wait.stack, ns / 1000);
        }
    }

    /// Whether the wait is the longest of its kind: `self.shares` are its.
    #[inline]
    fn note_longest(&mut self, ended: &EndedWait, ns: u64) {
        let known = self.longest.iter().position(|row| row.kind == ended.wait.kind);
        if known.is_some_and(|at| self.longest[at].waited_ns >= ns) {
            return;
        }
        let row = LongestWaitRow {
            waited_ns: ns,
            until: ended.until,
            kind: ended.wait.kind,
            tid: ended.tid,
            comm: ended.comm,
            cpu: ended.cpu,
            ran: self.shares.shown(&self.policies),
        };
        match known {
            Some(at) => self.longest[at] = row,
            None => self.longest.push(row),
        }
    }

    fn show_ended(&self, ended: &EndedWait, duration_ns: u64, ran: Arc<[CpuRunner]>, ctx: &mut Context) {
        let EndedWait { tid, comm, cpu, until, wait } = *ended;
        let (kind, began, moves) = (wait.kind, wait.began, wait.moves);
        let shown = ShownRunDelay { kind, duration_ns, still_waiting: false, began, moves, ran };
        let subject = Subject { time: until, cpu, pid: ctx.tasks.pid(tid), tid, comm };
        ctx.emit(&DELAYS, subject, &shown, wait.stack.filter(|_| self.args.common.stacks()));
    }
}
