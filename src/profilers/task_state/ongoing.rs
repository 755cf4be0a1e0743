//! Waits that go on: reported while they last, and checked against /proc, since their end may have gone unseen.

use crate::profiler::{Context, Report, Timestamp};
use crate::profilers::task_state::coverage::Unmet;
use crate::profilers::task_state::machine::{Began, Doing, Seen, Task};
use crate::profilers::task_state::states::{State, States};
use crate::profilers::task_state::{DOUBT_NS, SETTLE_NS, SHAPE, TaskState, preempted, since_text};
use crate::stats::value::{Subject, Value, Verdict};
use crate::symbol::StackId;
use crate::task::procfs::Stat;

impl TaskState {
    /// Whether all tasks were in sight. What others do now is missing from what goes on.
    pub(super) fn sight(&self) -> Verdict {
        let of = |task: &Task| match task.doing {
            _ if task.exited => Verdict::Exact,
            _ if task.since < self.lost_until => Verdict::LowerBound,
            Doing::Unknown => Verdict::Discarded,
            _ => Verdict::Exact,
        };
        self.machine.iter().map(|(_, task)| of(task)).max().unwrap_or_default()
    }

    /// Reports the waits that go on, each when it passes the limit and then once per interval.
    pub(super) fn report_ongoing(&mut self, now: Timestamp, ctx: &mut Context) {
        const MOST_AT_ONCE: usize = 256; // each costs a few looks at /proc, and the rings fill meanwhile
        let mut due: Vec<i32> =
            self.machine.iter().filter(|(_, task)| task.report_at <= now).map(|(tid, _)| tid).collect();
        due.sort_unstable();
        for tid in due.into_iter().take(MOST_AT_ONCE) {
            self.report_ongoing_wait(tid, now, ctx);
        }
    }

    fn report_ongoing_wait(&mut self, tid: i32, now: Timestamp, ctx: &mut Context) {
        let (lost_until, again_ns) = (self.lost_until, self.again_ns);
        let Some(task) = self.machine.get_mut(tid) else { return };
        task.report_at = now.saturating_add(again_ns);
        let before_loss = task.since < lost_until;
        let (state, blocked) = match task.doing {
            Doing::Blocked(state) => (state, true),
            Doing::Runnable { .. } if !before_loss => (State::RUN_DELAY, false),
            _ => return self.machine.doubt(tid),
        };
        let task = task.clone();
        let noise =
            state == State::SLEEP && !self.few && (!self.args.interruptible || task.began == Began::BeforeStart);
        if !self.reports(state) || noise || self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&task.cpu)) {
            return;
        }
        if blocked && !self.still_waits(tid, state, now, ctx) {
            return;
        }
        let ran_ns = ctx.ran_ns_from_proc(tid);
        // One that has not run since it was looked at last is still in the same wait, whatever was lost.
        let is_same = task.ran_ns.is_some() && task.ran_ns == ran_ns;
        if let Some(known) = self.machine.get_mut(tid) {
            known.ran_ns = ran_ns;
            if before_loss && !is_same {
                // /proc says that it waits now; since when is not known any more.
                (known.since, known.began) = (crate::sys::monotonic_ns(), Began::BeforeLoss);
                known.report_at = now.saturating_add(SETTLE_NS);
                return;
            }
        }
        let duration = now.saturating_sub(task.since);
        // What began before we could know is over the limit for all we know.
        let least = self.args.than.map_or(0, |than| than.0);
        let least = if task.began == Began::Exactly { least } else { least.min(SETTLE_NS) };
        if duration < least {
            if let Some(task) = self.machine.get_mut(tid) {
                task.report_at = task.since.saturating_add(least);
            }
            return;
        }
        let wchan = if blocked { ctx.wait_channel(tid) } else { None };
        let stack = match task.stack {
            None if self.args.common.stacks() && blocked => ctx.stack_from_proc(tid),
            stack => stack,
        };
        let values = [
            self.label(state),
            Value::Ns(duration),
            Value::Bool(true),
            since_text(task.began),
            Value::None,
            Value::None,
            Value::None,
            Value::None,
            wchan.map_or(Value::None, |wchan| Value::Text(wchan.into())),
            preempted(state, task.doing == Doing::Runnable { woken: false }),
        ];
        let subject = Subject { time: now, cpu: task.cpu, pid: ctx.tasks.pid(tid), tid, comm: task.comm };
        ctx.emit(subject, &SHAPE, values, stack.filter(|_| self.args.common.stacks()));
        if let Some(task) = self.machine.get_mut(tid) {
            task.stack = task.stack.or(stack);
            task.shown_until = now;
        }
    }

    /// How wide a wait of `ns` is in the flame graph, in µs. None when it is not in it: the graph shows blocked tasks, with
    /// `-R` those that wait for a CPU too, and of those that waited already when we came only what has a stack: see [`TaskState::look_at_proc`].
    pub(super) fn drawn(&self, state: State, began: Began, stack: Option<StackId>, ns: u64) -> Option<u64> {
        let is_drawn = self.args.common.draws_stacks()
            && self.reports(state)
            && (state != State::RUN_DELAY || self.args.run_delay)
            && (began == Began::Exactly || stack.is_some())
            && self.args.than.is_none_or(|than| ns >= than.0);
        is_drawn.then_some(ns / 1000)
    }

    /// Adds what goes on to the flame graph of this report.
    pub(super) fn draw_ongoing(&self, now: Timestamp, report: &mut Report) {
        for (tid, task) in self.machine.iter() {
            let state = match task.doing {
                Doing::Blocked(state) => state,
                Doing::Runnable { .. } => State::RUN_DELAY,
                _ => continue,
            };
            let elsewhere = self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&task.cpu));
            if task.exited || task.since < self.lost_until || elsewhere {
                continue;
            }
            if let Some(us) = self.drawn(state, task.began, task.stack, now.saturating_sub(task.since)) {
                report.weigh(tid, task.comm, task.stack, us);
            }
        }
    }

    /// Asks /proc: the end of the wait may not have been for us to see. It may also be ahead of the records, so only a
    /// contradiction that lasts is believed.
    fn still_waits(&mut self, tid: i32, state: State, now: Timestamp, ctx: &Context) -> bool {
        if ctx.state_from_proc(tid).is_some_and(|stat| States::is_letter_of(stat.state, state)) {
            return true;
        }
        if let Some(task) = self.machine.get_mut(tid) {
            if task.doubted_at != 0 && now > task.doubted_at.saturating_add(DOUBT_NS) {
                self.machine.discard(tid);
            } else {
                task.doubted_at = if task.doubted_at == 0 { now } else { task.doubted_at };
                task.report_at = now.saturating_add(SETTLE_NS);
            }
        }
        false
    }

    /// Tasks of the answer that wait already, as /proc tells.
    pub(super) fn look_at_proc(&mut self, began: Began, ctx: &mut Context) {
        let living: Vec<i32> = ctx.tasks.living().map(|(tid, _)| tid).collect();
        for tid in living {
            if !ctx.watched.contains(tid) || self.own.contains(&tid) {
                continue;
            }
            let at = crate::sys::monotonic_ns();
            let Some(Stat { state: letter, comm, cpu, .. }) = ctx.state_from_proc(tid) else { continue };
            let state = States::of_letter(letter);
            if !state.is_none_or(|state| self.selects(state)) || !self.is_ours(tid, &comm, ctx) {
                continue;
            }
            let Some(state) = state else {
                self.meet_later(Unmet { tid, comm, since: at }, letter, began);
                continue;
            };
            let lost_until = self.lost_until;
            let is_known = |task: &mut Task| task.since >= lost_until || task.doing == Doing::Blocked(state);
            if self.machine.get_mut(tid).is_some_and(is_known) {
                continue;
            }
            let settle = self.args.than.map_or(u64::MAX, |than| at.saturating_add(than.0.min(SETTLE_NS)));
            self.machine.discard(tid); // what it did before the loss
            self.machine.found(Seen { at, cpu, tid, comm }, state, began, settle);
            // Each look costs, and the sleepers of the whole machine would fill the picture.
            if self.args.common.draws_stacks() && self.reports(state) && (self.few || state != State::SLEEP) {
                let stack = ctx.stack_from_proc(tid);
                if let Some(task) = self.machine.get_mut(tid) {
                    task.stack = stack;
                }
            }
        }
    }
}
