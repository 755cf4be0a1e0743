//! How waits that end are counted and shown.

use crate::profiler::{Context, Use};
use crate::profilers::rundelay::cells::ThreadProcess;
use crate::profilers::rundelay::confined::ConfinedWait;
use crate::profilers::rundelay::line::{DELAYS, ShownRunDelay};
use crate::profilers::rundelay::table::{BehindKey, LongestWaitRow, RunDelayKey};
use crate::profilers::rundelay::{DelayAccount, Showing};
use crate::report::Subject;
use crate::sched::{EndedWait, QueueWait, SchedModel, WaitUser};
use crate::stats::{Began, WorstCase};
use crate::task::Comm;

impl WaitUser for DelayAccount {
    type Kept = Showing;

    #[inline]
    fn asks_for(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool {
        self.scope.asks_for(tid, comm, &ctx.watched, self.args.filter.as_ref())
    }

    #[inline]
    fn begins(&self, since: u64) -> Showing {
        /// A wait that ends sooner gets a single line.
        const FIRST_NS: u64 = 200_000_000;
        let limit = self.args.lengths.than_ns();
        let again_at_ns = limit.map_or(u64::MAX, |limit| since.saturating_add(limit.max(FIRST_NS)));
        Showing { again_at_ns, until_ns: 0 }
    }

    fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    #[inline]
    fn waited(&mut self, ended: &EndedWait<Showing>, model: &SchedModel<Showing>, ctx: &mut Context) -> Use {
        if !self.scope.has_cpu(ended.cpu) {
            return Use::Ignored;
        }
        self.account(ended, model, ctx);
        Use::Relevant
    }
}

impl DelayAccount {
    /// A wait as its line shows it. `self.shares` belong to it.
    pub(super) fn shown(
        &self,
        tid: i32,
        wait: &QueueWait<Showing>,
        until: u64,
        model: &SchedModel<Showing>,
        ctx: &mut Context,
    ) -> ShownRunDelay {
        ShownRunDelay {
            kind: wait.kind,
            duration_ns: until.saturating_sub(wait.since),
            still_waiting: false,
            began: wait.began,
            moves: wait.moves,
            process: ThreadProcess::of(tid, &mut ctx.tasks),
            confined: ConfinedWait::of(tid, wait, until, self.shares.longest_tid(), model),
            ran: self.shares.shown(&self.policies, |tid| ThreadProcess::of(tid, &mut ctx.tasks)),
        }
    }

    /// Counts a wait that has ended, and shows it if it was long.
    #[inline]
    fn account(&mut self, ended: &EndedWait<Showing>, model: &SchedModel<Showing>, ctx: &mut Context) {
        let &EndedWait { tid, comm, cpu, until, ref wait } = ended;
        let ns = until.saturating_sub(wait.since);
        let shares = self.shares.fill(model, wait, until);
        for &(had_by, ns) in shares {
            self.policies.learn(had_by, |tid| ctx.policy(tid));
            let sum = self.behind.sum(BehindKey(Some(had_by)));
            if sum.waits == 0 {
                let process = had_by.tid().and_then(|tid| Some((tid, ThreadProcess::of(tid, &mut ctx.tasks)?)));
                self.of_threads.extend(process);
            }
            sum.waits += 1;
            sum.ns = sum.ns.saturating_add(ns);
        }
        if wait.began == Began::Exactly {
            self.throttling.ended(tid, wait, until);
            let thread = self.args.perins.then_some((tid, comm));
            let sum = self.delays.sum(RunDelayKey { kind: wait.kind, thread });
            if thread.is_some() && sum.latency.distribution.count() == 0 {
                sum.process = ThreadProcess::of(tid, &mut ctx.tasks);
            }
            sum.latency.record(ns, until, || WorstCase { ns, at_ns: until, cpu, tid, comm, stack: wait.stack });
            sum.than += u64::from(self.args.lengths.is_over(ns));
            sum.earlier += u64::from(wait.since < self.reported_until);
            self.note_longest(ended, ns, model, ctx);
        }
        let is_shown = self.args.lengths.is_over(ns) || self.args.lengths.shows(ns) && wait.began == Began::Exactly;
        if is_shown {
            self.show_ended(ended, model, ctx);
        }
        if self.args.common.draws_stacks() && (self.args.lengths.than_ns().is_none() || is_shown) {
            let pid = ctx.tasks.pid(tid);
            ctx.weigh(pid, comm, wait.stack, ns / 1000);
        }
    }

    /// Whether the wait is the longest of its kind: `self.shares` then belong to it.
    #[inline]
    fn note_longest(&mut self, ended: &EndedWait<Showing>, ns: u64, model: &SchedModel<Showing>, ctx: &mut Context) {
        let known = self.longest.iter().position(|row| row.kind == ended.wait.kind);
        if known.is_some_and(|at| self.longest[at].waited_ns >= ns) {
            return;
        }
        let ran = self.shares.shown(&self.policies, |tid| ThreadProcess::of(tid, &mut ctx.tasks));
        let row = LongestWaitRow {
            waited_ns: ns,
            until: ended.until,
            kind: ended.wait.kind,
            tid: ended.tid,
            comm: ended.comm,
            process: ThreadProcess::of(ended.tid, &mut ctx.tasks),
            cpu: ended.cpu,
            confined: ConfinedWait::of(ended.tid, &ended.wait, ended.until, self.shares.longest_tid(), model),
            ran,
        };
        match known {
            Some(at) => self.longest[at] = row,
            None => self.longest.push(row),
        }
    }

    fn show_ended(&self, ended: &EndedWait<Showing>, model: &SchedModel<Showing>, ctx: &mut Context) {
        let &EndedWait { tid, comm, cpu, until, ref wait } = ended;
        let shown = self.shown(tid, wait, until, model, ctx);
        let subject = Subject { time: until, cpu, pid: ctx.tasks.pid(tid), tid, comm };
        ctx.emit(&DELAYS, subject, &shown, wait.stack.filter(|_| self.args.common.stacks()));
    }
}
