//! Waits that go on, the tables, and information that only /proc has.

use rustc_hash::FxHashMap;

use crate::profiler::{Context, Report, Timestamp};
use crate::profilers::rundelay::cells::{RunnerKind, ThreadProcess};
use crate::profilers::rundelay::line::{DELAYS, ShownRunDelay};
use crate::profilers::rundelay::runners::WaitShares;
use crate::profilers::rundelay::table::{
    BEHIND, BehindKey, BehindRow, DELAYS_OF_ALL, DELAYS_OF_THREADS, DelaySum, LONGEST, QUEUES, QUOTAS, QueueRow,
    RunDelayKey, RunDelayRow, WAITING, WaitingTaskRow, fold_short_lived,
};
use crate::profilers::rundelay::{DelayAccount, Rundelay, Showing};
use crate::report::Subject;
use crate::sched::{CpuUse, QueueWait, RunDelayKind, RunQueue, TaskEvent, WaitUser as _};
use crate::task::Comm;
use crate::task::thread_reader::SeenThread;

/// Time to the next line of a wait that goes on, ns.
const AGAIN_NS: u64 = 1_000_000_000;

impl Rundelay {
    pub(super) fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) {
        const LOOK_NS: u64 = 50_000_000;
        /// Passes over all tasks take at most 1 / `MAX_SHARE` of the time, however many tasks there are.
        const MAX_SHARE: u64 = 20;
        self.account.throttling.tick(&self.waits.model);
        ctx.view.untracked += self.account.throttling.take_left_out();
        let began = crate::sys::monotonic_ns();
        let pause_ns = || crate::sys::monotonic_ns().saturating_sub(began).saturating_mul(MAX_SHARE);
        if now >= self.next_look {
            let limit = self.account.args.lengths.than_ns();
            self.waits.model.settle_found(|since| {
                let again_at_ns = limit.map_or(u64::MAX, |limit| since.saturating_add(limit));
                Showing { again_at_ns, until_ns: 0 }
            });
            self.learn_tasks(now, ctx);
            self.show_ongoing(now, false, ctx);
            self.next_look = now.saturating_add(LOOK_NS.max(pause_ns()));
        }
        self.waits.sweep(now, ctx);
        self.look_at_proc(now, ctx);
    }

    /// Looks up the processes of tasks that have waited long, and of those that they wait for; of the latter, if they
    /// are real-time tasks, the policies, too, while they live.
    fn learn_tasks(&mut self, now: Timestamp, ctx: &mut Context) {
        const LONG_NS: u64 = 10_000_000;
        const LIMIT: usize = 16;
        let DelayAccount { shares, policies, processes, .. } = &mut self.account;
        processes.clear();
        let mut learn = |tid: i32, ctx: &mut Context| {
            processes.extend(ThreadProcess::of(tid, &mut ctx.tasks).map(|process| (tid, process)));
        };
        let waits = self.waits.model.waits();
        for (tid, _, wait) in waits.filter(|(.., wait)| wait.since.saturating_add(LONG_NS) <= now).take(LIMIT) {
            learn(tid, ctx);
            for &(had_by, _) in shares.fill(&self.waits.model, wait, now) {
                policies.learn(had_by, |tid| ctx.policy(tid));
                had_by.tid().into_iter().for_each(|tid| learn(tid, ctx));
            }
        }
    }

    /// Asks /proc which tasks are runnable, at the start and after losses, and takes the answers: a task without an
    /// event for long is in no record.
    pub(super) fn look_at_proc(&mut self, now: Timestamp, ctx: &mut Context) {
        let horizon = self.waits.model.horizon();
        if self.threads.is_due(now, horizon.end_ns()) {
            self.threads.ask(ctx.tasks.living().map(|(tid, _)| tid), now, horizon.end_ns());
        }
        let answers = self.threads.answers(now, horizon.end_ns());
        for SeenThread { tid, at_ns, stat, .. } in answers.into_iter().filter(|seen| seen.stat.state == b'R') {
            let is_ours = self.account.asks_for(tid, &stat.comm, ctx);
            let seen = TaskEvent { at_ns, cpu: stat.cpu, tid, comm: stat.comm };
            self.waits.model.found(seen, is_ours, horizon.began_unseen());
        }
    }

    /// Shows the waits that have lasted long and go on; at the end of the run, those that were not shown yet.
    pub(super) fn show_ongoing(&mut self, now: Timestamp, is_over: bool, ctx: &mut Context) {
        /// Each line costs a read of /proc.
        const LIMIT: usize = 16;
        const MAX_AT_END: usize = 1000;
        if self.account.args.lengths.than_ns().is_none() {
            return;
        }
        let least = self.account.args.lengths.than_ns().unwrap_or(u64::MAX);
        let is_due = |wait: &QueueWait<Showing>| match is_over {
            true => wait.kept.until_ns == 0 && now.saturating_sub(wait.since) >= least,
            false => wait.kept.again_at_ns <= now,
        };
        let due = self.waits.model.waits();
        let due = due.filter(|(.., wait)| wait.is_ours && is_due(wait) && self.account.scope.has_cpu(wait.cpu));
        let mut due: Vec<(u64, i32)> = due.map(|(tid, _, wait)| (wait.since, tid)).collect();
        due.sort_unstable();
        for (_, tid) in due.into_iter().take(if is_over { MAX_AT_END } else { LIMIT }) {
            self.show_ongoing_wait(tid, now, is_over, ctx);
        }
    }

    fn show_ongoing_wait(&mut self, tid: i32, now: Timestamp, is_over: bool, ctx: &mut Context) {
        // The end of the wait may be hidden; at the end of the run its record may not come any more.
        let is_runnable = ctx.state_from_proc(tid).is_some_and(|stat| stat.state == b'R');
        if !is_runnable && !is_over {
            return self.waits.model.discard(tid, now);
        }
        let Some((comm, wait)) = self.waits.model.wait(tid).map(|(comm, wait)| (comm, *wait)) else { return };
        for &(had_by, _) in self.account.shares.fill(&self.waits.model, &wait, now) {
            self.account.policies.learn(had_by, |tid| ctx.policy(tid));
        }
        let shown =
            ShownRunDelay { still_waiting: true, ..self.account.shown(tid, &wait, now, &self.waits.model, ctx) };
        let subject = Subject { time: now, cpu: wait.cpu, pid: ctx.tasks.pid(tid), tid, comm };
        ctx.emit(&DELAYS, subject, &shown, wait.stack.filter(|_| self.account.args.common.stacks()));
        if let Some(wait) = self.waits.model.wait_mut(tid) {
            wait.kept = Showing { again_at_ns: now.saturating_add(AGAIN_NS), until_ns: now };
        }
    }

    pub(super) fn report_tables(&mut self, now: Timestamp, report: &mut Report) {
        let waiting = self.waiting(now);
        let is_suppressed =
            self.account.args.lengths.only_than() && self.account.delays.values().all(|sum| sum.than == 0);
        let (top, in_text) = (self.account.args.top as usize, !is_suppressed);
        let unwoken = unwoken(self.waits.model.take_unwoken());
        let rows = self.delay_rows(&waiting);
        if self.account.args.perins {
            report.delta(&DELAYS_OF_THREADS, rows).text_rows(top).in_text(in_text).below(unwoken);
        } else {
            report.delta(&DELAYS_OF_ALL, rows).in_text(in_text).below(unwoken);
        }
        let DelayAccount { behind, policies, of_threads, .. } = &mut self.account;
        let behind = behind.drain().map(|(BehindKey(had_by), sum)| {
            let process = |had_by: CpuUse| of_threads.get(&had_by.tid()?).copied();
            let who = had_by.map_or(RunnerKind::Others(0), |had_by| policies.runner(had_by, process(had_by)));
            BehindRow { who, sum, parent: None, children: 0 }
        });
        let behind = fold_short_lived(behind, &self.children);
        of_threads.clear();
        self.children.next_interval();
        report.delta(&BEHIND, behind).text_rows(top).in_text(in_text);
        self.account.throttling.tick(&self.waits.model);
        let quotas = self.account.throttling.take_rows();
        let has_quotas = !quotas.is_empty();
        report.delta(&QUOTAS, quotas).text_rows(top).in_text(in_text && has_quotas);
        if !self.account.args.no_queues {
            report.delta(&QUEUES, self.queues(now)).in_text(in_text);
        }
        if report.takes_snapshots {
            report
                .snapshot(&LONGEST, self.account.longest.clone())
                .in_text(in_text && !self.account.longest.is_empty());
            let in_text = in_text && !waiting.is_empty();
            report.snapshot(&WAITING, waiting).text_rows(top).in_text(in_text);
        }
    }

    /// Rows of the waits that have ended, and the number of waits that go on.
    fn delay_rows(&mut self, waiting: &[WaitingTaskRow]) -> Vec<RunDelayRow> {
        let key = |row: &WaitingTaskRow| RunDelayKey {
            kind: row.kind,
            thread: self.account.args.perins.then_some((row.tid, row.comm)),
        };
        let mut now: FxHashMap<RunDelayKey, u64> = FxHashMap::default();
        for row in waiting.iter().filter(|row| row.kind != RunDelayKind::Found) {
            *now.entry(key(row)).or_default() += 1;
        }
        let ended = self.account.delays.drain();
        let mut rows: Vec<RunDelayRow> =
            ended.map(|(key, sum)| RunDelayRow { key, sum, now: Some(now.remove(&key).unwrap_or(0)) }).collect();
        let without_end = now.into_iter();
        rows.extend(without_end.map(|(key, now)| RunDelayRow { key, sum: DelaySum::default(), now: Some(now) }));
        rows
    }

    fn queues(&mut self, now: Timestamp) -> Vec<QueueRow> {
        let scope = &self.account.scope;
        let queues = self.waits.model.queues_mut().filter(|(cpu, _)| scope.has_cpu(*cpu));
        let row = |(cpu, queue): (u32, &mut RunQueue)| {
            let (waited_ns, most) = queue.take(now);
            QueueRow { cpu, now: Some(queue.waiting.into()), most: Some(most.into()), waited_ns }
        };
        queues.map(row).collect()
    }

    fn waiting(&self, now: Timestamp) -> Vec<WaitingTaskRow> {
        const LIMIT: usize = 1000;
        let ours = self.waits.model.waits();
        let ours =
            ours.filter(|(_, _, wait)| wait.is_ours && wait.since <= now && self.account.scope.has_cpu(wait.cpu));
        let mut ours: Vec<(i32, Comm, &QueueWait<Showing>)> = ours.collect();
        ours.sort_unstable_by_key(|(tid, _, wait)| (wait.since, *tid));
        let mut shares = WaitShares::default();
        let row = |(tid, comm, wait): (i32, Comm, &QueueWait<Showing>)| {
            shares.fill(&self.waits.model, wait, now);
            let (cpu, kind, began) = (wait.cpu, wait.kind, wait.began);
            let process = |tid| self.account.processes.get(&tid).copied();
            let (waited_ns, ran) = (now.saturating_sub(wait.since), shares.shown(&self.account.policies, process));
            WaitingTaskRow { tid, comm, process: process(tid), cpu, kind, began, waited_ns, ran }
        };
        ours.into_iter().take(LIMIT).map(row).collect()
    }
}

/// The line below the table of waits.
fn unwoken(times: u64) -> Option<String> {
    match times {
        0 => None,
        1 => Some("once a task got a CPU, and its wake-up was not seen: this wait is not counted".to_owned()),
        times => {
            Some(format!("{times} times a task got a CPU, and its wake-up was not seen: these waits are not counted"))
        }
    }
}
