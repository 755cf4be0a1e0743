//! How samples, and the periods that end in them, are counted. `plain` does the same for a table of all tasks.

use anyhow::Result;

use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Use};
use crate::profilers::task_state::TaskState;
use crate::profilers::task_state::events::{WakeupFields, brief_waker, name, waker};
use crate::profilers::task_state::notes::{WaitNotes, WaitWaker};
use crate::profilers::task_state::priority::{self, PriorityMatch};
use crate::profilers::task_state::stays::{Stay, WaitEnding};
use crate::profilers::task_state::table::StateTimes;
use crate::profilers::task_state::wait_sites;
use crate::sched::{Activity, MAX_THREADS, SchedState, StatePeriod, SwitchedOut, TaskEvent, TrackedTask, Wakeup};
use crate::stats::Began;
use crate::symbol::StackId;
use crate::task::Comm;

impl TaskState {
    #[inline(always)]
    pub(super) fn on_event(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Relevant) };
        let is = |woken: &Option<WakeupFields>| woken.as_ref().is_some_and(|woken| woken.event == event);
        if event == plan.switch || Some(event) == plan.other {
            self.on_switch(event, sample, ctx)
        } else if event == plan.fields.wakeup.event {
            self.on_wakeup(sample, false, ctx)
        } else if is(&plan.fields.wakeup_new) {
            self.on_wakeup(sample, true, ctx)
        } else if is(&plan.fields.waking) || plan.fields.waking_interrupt == Some(event) {
            self.on_waking(sample, ctx)
        } else {
            Ok(Use::Relevant)
        }
    }

    #[inline(always)]
    fn on_switch(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &mut self.plan else { return Ok(Use::Relevant) };
        let is_other = plan.other == Some(event);
        let fields = &plan.fields;
        let prev = fields.prev_pid.read(sample.raw)?;
        let next = fields.next_pid.read(sample.raw)?;
        let prev_comm = name(self.named, &fields.prev_comm, sample.raw)?;
        let next_comm = name(self.named, &fields.next_comm, sample.raw)?;
        let prev_prio = priority::read(fields.prev_prio.as_ref(), sample)?;
        let next_prio = priority::read(fields.next_prio.as_ref(), sample)?;
        let how = plan.states.decode(fields.prev_state.read(sample.raw)?);
        let seen = |tid, comm| TaskEvent { at_ns: sample.time, cpu: sample.cpu, tid, comm };
        [prev, next].into_iter().for_each(|tid| self.threads.saw(tid));
        let blocked_only = self.blocked_only();
        let (prev_prio, next_prio) = (self.by_priority(prev, prev_prio), self.by_priority(next, next_prio));
        let leaves = prev_prio != PriorityMatch::Outside && self.is_ours(prev, &prev_comm, ctx);
        let comes = next_prio != PriorityMatch::Outside && self.is_ours(next, &next_comm, ctx);
        if leaves {
            let relevant = match how {
                SwitchedOut::Blocked(state) => !blocked_only || self.selects(state),
                SwitchedOut::Runnable { .. } | SwitchedOut::Dead => !blocked_only,
            };
            if relevant && is_other && blocked_only {
                // A switch between two of the wanted tasks: the first event handled this task.
            } else if relevant {
                let stack = if self.takes_stacks() && !is_other { ctx.stack(sample) } else { None };
                let kept = WaitNotes::new(stack, self.report_at(sample.time));
                let change = self.machine.switched_out(seen(prev, prev_comm), how, kept);
                self.account(change.ended(), ctx);
            } else {
                self.machine.discard(prev); // it waits, but not in a state that options ask for
            }
            self.forget_if_it_leaves(prev, prev_prio);
        }
        if !blocked_only {
            self.on_cpu_switched(sample.time, sample.cpu, prev, next, ctx);
        }
        if comes {
            let change = self.machine.switched_in(seen(next, next_comm), prev == 0);
            self.account(change.ended(), ctx);
            self.forget_if_it_leaves(next, next_prio);
        }
        Ok(if leaves || comes { Use::Relevant } else { Use::Ignored })
    }

    #[inline(always)]
    fn on_wakeup(&mut self, sample: &Sample<'_>, is_new: bool, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Relevant) };
        let fields = if is_new { plan.fields.wakeup_new.as_ref() } else { Some(&plan.fields.wakeup) };
        let Some(fields) = fields.filter(|fields| fields.happened(sample.raw)) else { return Ok(Use::Relevant) };
        let tid = fields.pid.read(sample.raw)?;
        let comm = name(self.named, &fields.comm, sample.raw)?;
        let prio = self.by_priority(tid, priority::read(fields.prio.as_ref(), sample)?);
        if prio == PriorityMatch::Outside || !self.is_ours(tid, &comm, ctx) {
            return Ok(Use::Ignored);
        }
        self.threads.saw(tid);
        let seen = TaskEvent { at_ns: sample.time, cpu: sample.cpu, tid, comm };
        let change = {
            let (kept, current) = (WaitNotes::new(None, self.report_at(sample.time)), &self.current);
            self.machine.woken(seen, is_new, kept, |cpu| current.is_other(cpu, seen.tid))
        };
        let ended = change.ended();
        let (ended, waker) = self.with_waker(ended, sample, fields, ctx);
        // Where there is a `sched_waking`, that event has the waker.
        if is_new || plan.fields.waking.is_none() {
            self.note_waker(tid, sample.time, waker);
        }
        self.account(ended, ctx);
        self.forget_if_it_leaves(tid, prio);
        Ok(Use::Relevant)
    }

    fn on_waking(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(fields) = self.plan.as_ref().and_then(|plan| plan.fields.waking.as_ref()) else {
            return Ok(Use::Relevant);
        };
        let tid = fields.pid.read(sample.raw)?;
        let comm = name(self.named, &fields.comm, sample.raw)?;
        let prio = self.by_priority(tid, priority::read(fields.prio.as_ref(), sample)?);
        if prio == PriorityMatch::Outside || !self.is_ours(tid, &comm, ctx) {
            return Ok(Use::Ignored);
        }
        self.threads.saw(tid);
        let seen = TaskEvent { at_ns: sample.time, cpu: sample.cpu, tid, comm };
        let change = self.machine.waking(seen, WaitNotes::new(None, self.report_at(sample.time)));
        let (ended, waker) = self.with_waker(change.ended(), sample, fields, ctx);
        self.note_waker(tid, sample.time, waker);
        self.account(ended, ctx);
        self.forget_if_it_leaves(tid, prio);
        Ok(Use::Relevant)
    }

    /// A SWITCH record says that `tid` got `cpu`: new information only where the switch event was not seen.
    pub(super) fn on_came(&mut self, tid: i32, prev: Option<i32>, time: u64, cpu: u32, ctx: &mut Context) {
        if !self.blocked_only() {
            if self.current.has_come(cpu, tid) {
                return;
            }
            if let Some(prev) = prev.filter(|prev| *prev > 0) {
                self.on_left(prev, time, cpu, ctx);
            }
            self.on_cpu_switched(time, cpu, prev.unwrap_or(0), tid, ctx);
        }
        self.threads.saw(tid);
        let comm = if self.named { ctx.tasks.comm(tid) } else { Comm::default() };
        if self.by_priority(tid, None) == PriorityMatch::Inside && self.is_ours(tid, &comm, ctx) {
            let change = self.machine.switched_in(TaskEvent { at_ns: time, cpu, tid, comm }, prev == Some(0));
            let ended = change.ended();
            self.hides |= !self.blocked_only() || ended.is_some();
            self.account(ended, ctx);
        }
        ctx.view.discarded += self.machine.take_unseen();
    }

    #[inline(always)]
    fn on_cpu_switched(&mut self, at: u64, cpu: u32, prev: i32, next: i32, ctx: &mut Context) {
        if let Some(believed) = self.current.switched(at, cpu, prev, next) {
            let ended = self.machine.replaced(believed, prev, at, cpu);
            self.account(ended, ctx);
        }
    }

    /// A thread gets the tid of the first thread of its process.
    pub(super) fn on_take_over(&mut self, old: i32, pid: i32, at: u64, cpu: u32, ctx: &mut Context) {
        [old, pid].into_iter().for_each(|tid| self.threads.saw(tid));
        let ended = self.machine.took_over(old, at, cpu);
        self.account(ended, ctx);
        self.machine.leader_replaced(pid);
    }

    /// The current task hid its switch-out: so switches of other tasks than the idle task are hidden, too.
    fn on_left(&mut self, tid: i32, time: u64, cpu: u32, ctx: &mut Context) {
        let comm = ctx.tasks.comm(tid);
        if self.by_priority(tid, None) == PriorityMatch::Inside && self.is_ours(tid, &comm, ctx) {
            let ended = self.machine.left(TaskEvent { at_ns: time, cpu, tid, comm }).ended();
            self.hides |= ended.is_some();
            self.account(ended, ctx);
        }
    }

    /// Stores what made `tid` runnable at `at`, if it was made runnable then.
    fn note_waker(&mut self, tid: i32, at: u64, waker: Option<WaitWaker>) {
        if waker.is_some()
            && let Some(task) = self.machine.get_mut(tid)
            && task.activity == (Activity::Runnable { woken: true })
            && task.since == at
        {
            task.kept.waker = waker;
        }
    }

    /// Adds the waker to the period where it is shown. Returns the period, and the waker for the run delay that
    /// follows.
    #[inline(always)]
    fn with_waker(
        &self,
        ended: Option<StatePeriod<WaitNotes>>,
        sample: &Sample<'_>,
        fields: &WakeupFields,
        ctx: &mut Context,
    ) -> (Option<StatePeriod<WaitNotes>>, Option<WaitWaker>) {
        let Some(than) = self.args.than else { return (ended, None) };
        let is_shown = |period: &StatePeriod<WaitNotes>| {
            period.until.saturating_sub(period.since) >= than.0 && self.reports(period.state)
                || period.kept.shown_until > 0
        };
        if ended.as_ref().is_some_and(is_shown) {
            let waker = Some(waker(sample, fields, ctx));
            let with_waker =
                |period: StatePeriod<WaitNotes>| StatePeriod { kept: WaitNotes { waker, ..period.kept }, ..period };
            return (ended.map(with_waker), waker);
        }
        // The length of the coming run delay is unknown: of an interrupt, only what costs nothing is read.
        let waker = self.reports(SchedState::RUN_DELAY).then(|| brief_waker(sample, fields, ctx));
        (ended, waker)
    }

    /// Counts a period that ended, and reports it when it was longer than the limit.
    ///
    /// Inlined: otherwise half of the time is spent on copying the period.
    #[inline(always)]
    fn account(&mut self, period: Option<StatePeriod<WaitNotes>>, ctx: &mut Context) {
        let Some(period) = period else { return };
        if self.narrowed && !self.is_wanted(&period) {
            return;
        }
        if !self.horizon.saw_all_since(period.since) {
            return self.account_unsure(period, ctx);
        }
        if period.began == Began::Exactly {
            self.all.record(period.state, period.since, period.until, self.reported_until);
        } else {
            self.all.take_up(period.state, period.since, period.until, self.reported_until);
        }
        if period.wakeup != Wakeup::Seen {
            self.all.note_unwoken(period.state, period.wakeup);
        }
        if self.detailed {
            self.account_details(period, ctx);
        }
    }

    #[inline(never)]
    fn is_wanted(&self, period: &StatePeriod<WaitNotes>) -> bool {
        self.selects(period.state) && self.scope.has_cpu(period.cpu)
    }

    /// A period across a loss may have ended, and another one begun. The lines shown about it were correct, and it is
    /// over now.
    #[cold]
    fn account_unsure(&mut self, period: StatePeriod<WaitNotes>, ctx: &mut Context) {
        ctx.view.discarded += u64::from(period.began == Began::Exactly);
        self.all.take_unseen(period.state, period.since, period.until, self.reported_until);
        if period.kept.shown_until > period.since {
            let unsure = StatePeriod { began: Began::BeforeLoss, ..period };
            self.report_ended(&unsure, period.kept.shown_until, WaitEnding::default(), ctx);
        }
    }

    /// Counts the period in its thread's row, and shows its line.
    #[inline(never)]
    fn account_details(&mut self, period: StatePeriod<WaitNotes>, ctx: &mut Context) {
        let duration = period.until.saturating_sub(period.since);
        let fits = || self.by_thread.len() < MAX_THREADS || self.by_thread.contains_key(&period.tid);
        if self.args.perins && fits() {
            let fresh = || (period.comm, Box::new(StateTimes::default()));
            let (comm, times) = self.by_thread.entry(period.tid).or_insert_with(fresh);
            *comm = period.comm;
            let span = (period.since, period.until);
            let ran_ns = self.stretches.ended(period.tid, period.state, span, period.preempted);
            times.stretch_ns = times.stretch_ns.max(ran_ns.unwrap_or(0));
            if period.began == Began::Exactly {
                times.record(period.state, period.since, period.until, self.reported_until);
                times.note_unwoken(period.state, period.wakeup);
            } else {
                times.take_up(period.state, period.since, period.until, self.reported_until);
            }
        } else if self.args.perins {
            ctx.view.untracked += 1;
        }
        if let Some(us) = self.drawn(period.state, period.began, period.kept.stack, duration) {
            let pid = ctx.tasks.pid(period.tid);
            ctx.weigh(pid, period.comm, period.kept.stack, us);
        }
        if let Some(than) = self.args.than.filter(|than| duration >= than.0 / 2) {
            self.account_stay(&period, duration >= than.0 && self.reports(period.state), ctx);
        }
    }

    /// Keeps a long stay in one state in mind, and shows the line of a wait.
    fn account_stay(&mut self, period: &StatePeriod<WaitNotes>, has_line: bool, ctx: &mut Context) {
        let stay = self.stay(period.tid, period.state, (period.since, period.until), period.kept.stack, ctx);
        if !has_line {
            return self.stays.record(period.tid, stay);
        }
        let waker = period.kept.waker.filter(|_| period.state != SchedState::RUN_DELAY);
        let current = if let Some(WaitWaker::Task { tid, .. }) = waker { self.machine.get(tid) } else { None };
        let running = |task: &TrackedTask<WaitNotes>| {
            task.activity == Activity::Running && self.horizon.saw_all_since(task.since)
        };
        let current = current.filter(|task| running(task)).map(|task| {
            let (since, until) = (task.since, period.until);
            Stay { state: SchedState::RUNNING, since, until, place: None, stack: None, call: None }
        });
        let ending = self.stays.record_wait(period.tid, stay, period.began, waker, current);
        self.report_ended(period, period.until, ending, ctx);
    }

    /// A stay of `tid` from `since` on. The stack that was read while the task waited shows more than that of a record.
    pub(super) fn stay(
        &self,
        tid: i32,
        state: SchedState,
        (since, until): (u64, u64),
        stack: Option<StackId>,
        ctx: &Context,
    ) -> Stay {
        let site = self.wait_sites.of_ended(tid, since, until);
        let place = match stack.and_then(|stack| ctx.stacks.place_hash(stack)) {
            Some(place) => Some(u64::from(place.get())),
            None => site.map(wait_sites::place),
        };
        let call = site.and_then(|site| site.call.as_ref()).map(|call| call.name);
        Stay { state, since, until, place, stack: self.wait_sites.stack(tid, since).or(stack), call }
    }
}
