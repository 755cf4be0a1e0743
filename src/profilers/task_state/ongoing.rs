//! Waits that go on: they are reported while they last, and checked against /proc, since their end may have gone
//! unseen.

use crate::profiler::{Context, Report, Timestamp};
use crate::profilers::task_state::TaskState;
use crate::profilers::task_state::coverage::EventlessTask;
use crate::profilers::task_state::line::{ShownWait, WAITS};
use crate::profilers::task_state::notes::WaitNotes;
use crate::profilers::task_state::priority::PriorityMatch;
use crate::profilers::task_state::stays::MIN_WATCHED_NS;
use crate::profilers::task_state::wait_sites::{Allowance, FoundStack, Progress};
use crate::report::{Subject, Verdict};
use crate::sched::{Activity, SchedState, States, TaskEvent, TrackedTask};
use crate::stats::Began;
use crate::symbol::StackId;
use crate::task::procfs::Stat;
use crate::task::thread_reader::SeenThread;

/// Time until a wait that was checked against /proc is checked again.
const SETTLE_NS: u64 = 100_000_000;
/// How long /proc must contradict the records before it is believed.
const DOUBT_NS: u64 = 1_000_000_000;
/// Lines per second about waits that go on, after the initial allowance of [`OngoingLines::default`]. Each line costs
/// two reads of /proc.
const LINES_PER_SECOND: u64 = 128;

/// Bounds the lines about waits that go on.
#[derive(Debug)]
pub struct OngoingLines {
    allowance: Allowance,
    /// When a note last gave the number of waits without a line; 0: never.
    left_out_noted_ns: u64,
}

impl Default for OngoingLines {
    fn default() -> OngoingLines {
        const AT_ONCE: u64 = 256;
        OngoingLines { allowance: Allowance::new(AT_ONCE, LINES_PER_SECOND), left_out_noted_ns: 0 }
    }
}

/// Time to the next line of a wait that goes on, ns: 1 s for D and run delay, else as long as the wait has lasted,
/// because a service may sleep for days.
fn again_ns(state: SchedState, duration: u64) -> u64 {
    const EACH_NS: u64 = 1_000_000_000;
    if state == SchedState::DISK || state == SchedState::RUN_DELAY { EACH_NS } else { duration.max(EACH_NS) }
}

impl TaskState {
    /// How exact the number of ongoing waits is: tasks of unknown state are missing from it.
    pub(super) fn sight(&self) -> Verdict {
        let of = |task: &TrackedTask<WaitNotes>| match task.activity {
            _ if task.exited => Verdict::Exact,
            _ if !self.horizon.saw_all_since(task.since) => Verdict::LowerBound,
            Activity::Unknown => Verdict::Discarded,
            _ => Verdict::Exact,
        };
        self.machine.iter().map(|(_, task)| of(task)).max().unwrap_or_default()
    }

    /// Reports the waits that go on: each when it has exceeded the limit for a while, and then repeatedly.
    ///
    /// The wait site is asked for before the line is due by the records, which are a moment behind the clock; the line
    /// waits for the answer for a while.
    pub(super) fn report_ongoing(&mut self, now: Timestamp, ctx: &mut Context) {
        let clock = crate::sys::monotonic_ns();
        let mut due = self.due(clock).into_iter();
        while let Some(tid) = due.next() {
            let Some(task) = self.machine.get_mut(tid) else { continue };
            let (since, is_due) = (task.since, task.kept.report_at_ns <= now);
            let asks = matches!(task.activity, Activity::Blocked(_)) && !self.is_over;
            match self.wait_sites.progress(tid, since, clock) {
                Progress::Unasked if asks && self.wait_sites.ask(tid, since, clock) => continue,
                Progress::Awaited if !self.is_over => continue,
                _ if !is_due => continue,
                _ => {}
            }
            if !self.ongoing_lines.allowance.take(clock) {
                return self.note_left_out(std::iter::once(tid).chain(due), clock, ctx);
            }
            self.report_ongoing_wait(tid, now, ctx);
        }
    }

    /// The waits to be reported now, the longest first; D before S, and waits that were never shown before those that
    /// were.
    fn due(&mut self, clock: u64) -> Vec<i32> {
        let tids: Vec<i32> =
            self.machine.iter().filter(|(_, task)| task.kept.report_at_ns <= clock).map(|(tid, _)| tid).collect();
        let mut due = Vec::new();
        for tid in tids {
            let Some(task) = self.machine.get_mut(tid) else { continue };
            let (task, is_over) = (task.clone(), self.is_over);
            let state = match task.activity {
                Activity::Blocked(state) => state,
                Activity::Runnable { .. } if self.horizon.saw_all_since(task.since) => SchedState::RUN_DELAY,
                _ => {
                    self.machine.doubt(tid);
                    continue;
                }
            };
            let order = if task.kept.shown_until > 0 { task.kept.report_at_ns } else { task.since };
            if !self.shows_ongoing(&task, state) {
                self.machine.get_mut(tid).into_iter().for_each(|task| task.kept.report_at_ns = u64::MAX);
            } else if !is_over || task.kept.shown_until == 0 {
                due.push((task.kept.shown_until > 0, state == SchedState::SLEEP, order, tid));
            }
        }
        due.sort_unstable();
        due.into_iter().map(|(.., tid)| tid).collect()
    }

    /// Whether a wait in `state` has lines while it goes on.
    fn shows_ongoing(&self, task: &TrackedTask<WaitNotes>, state: SchedState) -> bool {
        let noise = state == SchedState::SLEEP
            && !self.few
            && (!self.args.states.interruptible || task.began == Began::BeforeStart);
        self.reports(state) && !noise && self.scope.has_cpu(task.cpu)
    }

    /// The allowance had no line left for these waits: notes how many have been due for long.
    fn note_left_out(&mut self, tids: impl Iterator<Item = i32>, clock: u64, ctx: &mut Context) {
        const PAUSE_NS: u64 = 10_000_000_000;
        const LATE_NS: u64 = 1_000_000_000;
        let is_late = |task: &TrackedTask<WaitNotes>| {
            task.kept.shown_until == 0 && task.kept.report_at_ns.saturating_add(LATE_NS) <= clock
        };
        let waits = tids.filter(|&tid| self.machine.get(tid).is_some_and(is_late)).count();
        if waits > 0 && clock >= self.ongoing_lines.left_out_noted_ns.saturating_add(PAUSE_NS) {
            self.ongoing_lines.left_out_noted_ns = clock;
            ctx.note(format!(
                "{waits} more waits go on that are not shown: of such, at most {LINES_PER_SECOND} a second are"
            ));
        }
    }

    fn report_ongoing_wait(&mut self, tid: i32, now: Timestamp, ctx: &mut Context) {
        let Some(task) = self.machine.get_mut(tid) else { return };
        let before_loss = !self.horizon.saw_all_since(task.since);
        let (state, blocked) = match task.activity {
            Activity::Blocked(state) => (state, true),
            _ => (SchedState::RUN_DELAY, false),
        };
        let task = task.clone();
        if blocked && !self.still_waits(tid, state, now, ctx) {
            return;
        }
        let ran_ns = ctx.ran_ns_from_proc(tid);
        // A task that has not run since /proc was read is still in the same wait, even if records were lost.
        let is_same = task.kept.ran_ns.is_some() && task.kept.ran_ns == ran_ns;
        if let Some(known) = self.machine.get_mut(tid) {
            known.kept.ran_ns = ran_ns;
            if before_loss && !is_same {
                // /proc says that the task waits now; since when is no longer known.
                (known.since, known.began) = (crate::sys::monotonic_ns(), Began::BeforeLoss);
                known.kept.report_at_ns = now.saturating_add(SETTLE_NS);
                return;
            }
        }
        let duration = now.saturating_sub(task.since);
        // If the beginning of the wait is unknown, the wait has a line once it is certainly over the limit.
        let least = self.args.than.map_or(0, |than| than.0);
        if duration < least {
            if let Some(task) = self.machine.get_mut(tid) {
                task.kept.report_at_ns = task.since.saturating_add(least);
            }
            return;
        }
        self.emit_ongoing(tid, &task, state, (now, duration), ran_ns, ctx);
        if let Some(task) = self.machine.get_mut(tid) {
            task.kept.shown_until = now;
            task.kept.report_at_ns = now.saturating_add(again_ns(state, duration));
        }
    }

    /// Emits the line of a wait that goes on.
    fn emit_ongoing(
        &mut self,
        tid: i32,
        task: &TrackedTask<WaitNotes>,
        state: SchedState,
        (now, duration): (Timestamp, u64),
        ran_ns: Option<u64>,
        ctx: &mut Context,
    ) {
        let site = match self.wait_sites.known(tid, task.since) {
            Some(site) if site.ran_ns == ran_ns => Some(site.clone()),
            Some(_) => {
                self.wait_sites.forget(tid); // it has run since, or is about to run
                None
            }
            None => None,
        };
        let stack = self.wait_sites.stack(tid, task.since).filter(|_| self.args.common.stacks());
        let stay = self.stay(tid, state, (task.since, now), task.kept.stack, ctx);
        let (is_idle, is_told) = match state {
            SchedState::SLEEP => self.stays.idles(tid, &stay, task.began),
            _ => (false, false),
        };
        let wait = ShownWait {
            state,
            label: self.label(state),
            duration_ns: duration,
            still_waiting: true,
            began: task.began,
            waker: None,
            preempted: task.activity == Activity::Runnable { woken: false },
            site,
            has_user_stack_of_now: stack.is_some(),
            behind: None,
            is_idle,
            is_folded: is_idle && !self.args.all_waits,
            is_again: is_told,
        };
        let subject = Subject { time: now, cpu: task.cpu, pid: ctx.tasks.pid(tid), tid, comm: task.comm };
        ctx.emit(&WAITS, subject, &wait, stack.or(task.kept.stack).filter(|_| self.args.common.stacks()));
    }

    /// Takes the answers about wait sites.
    pub(super) fn take_answers(&mut self, now: Timestamp, ctx: &mut Context) {
        self.wait_sites.collect(crate::sys::monotonic_ns());
        let machine = &self.machine;
        let goes_on = |tid, since| {
            machine.get(tid).is_some_and(|task| task.since == since && matches!(task.activity, Activity::Blocked(_)))
        };
        let halves = self.args.common.view.callchains;
        for FoundStack { tid, mut kernel, user } in self.wait_sites.believe(now, goes_on) {
            let Some(task) = self.machine.get_mut(tid) else { continue };
            let user = user.filter(|_| halves.user() != Some(false));
            if halves.kernel() == Some(false) {
                kernel.clear();
            }
            if kernel.is_empty() && user.is_none() {
                continue;
            }
            let has_none = task.kept.stack.is_none();
            let stack = match user {
                // The stack of a record is complete more often, but does not show the functions that an interpreter
                // executes.
                Some(user) if has_none || user.python.is_some() => {
                    let stack = ctx.stacks.intern_waiter(kernel, user);
                    self.wait_sites.keep_stack(tid, stack);
                    stack
                }
                _ if has_none => ctx.stacks.intern_named(kernel),
                _ => continue,
            };
            task.kept.stack = task.kept.stack.or(stack);
        }
    }

    /// The width of a wait of `ns` in the flame graph, in µs. None when the wait is not in the graph, which shows
    /// blocked tasks, with `-R` also tasks that wait for a CPU, and tasks that already waited at the start only if they
    /// have a stack: see [`TaskState::look_at_proc`].
    pub(super) fn drawn(&self, state: SchedState, began: Began, stack: Option<StackId>, ns: u64) -> Option<u64> {
        let is_drawn = self.args.common.draws_stacks()
            && self.reports(state)
            && (state != SchedState::RUN_DELAY || self.args.states.run_delay)
            && (began == Began::Exactly || stack.is_some())
            && self.args.than.is_none_or(|than| ns >= than.0);
        is_drawn.then_some(ns / 1000)
    }

    /// Adds the periods that go on to the flame graph of this report.
    pub(super) fn draw_ongoing(&self, now: Timestamp, report: &mut Report) {
        for (tid, task) in self.machine.iter() {
            let state = match task.activity {
                Activity::Blocked(state) => state,
                Activity::Runnable { .. } => SchedState::RUN_DELAY,
                _ => continue,
            };
            if task.exited || !self.horizon.saw_all_since(task.since) || !self.scope.has_cpu(task.cpu) {
                continue;
            }
            if let Some(us) = self.drawn(state, task.began, task.kept.stack, now.saturating_sub(task.since)) {
                report.weigh(tid, task.comm, task.kept.stack, us);
            }
        }
    }

    /// Whether the wait goes on according to /proc: its end may have been hidden. /proc may also be ahead of the
    /// records, so only a lasting contradiction counts.
    fn still_waits(&mut self, tid: i32, state: SchedState, now: Timestamp, ctx: &Context) -> bool {
        if ctx.state_from_proc(tid).is_some_and(|stat| States::is_letter_of(stat.state, state)) {
            return true;
        }
        if let Some(task) = self.machine.get_mut(tid) {
            if task.kept.doubted_at_ns != 0 && now > task.kept.doubted_at_ns.saturating_add(DOUBT_NS) {
                self.machine.discard(tid);
            } else {
                task.kept.doubted_at_ns = if task.kept.doubted_at_ns == 0 { now } else { task.kept.doubted_at_ns };
                task.kept.report_at_ns = now.saturating_add(SETTLE_NS);
            }
        }
        false
    }

    /// Asks /proc which of the tasks that the run is about wait: at the start, and where single waits are shown also
    /// after losses, since the beginning of a wait may be lost. Takes the answers.
    pub(super) fn look_at_proc(&mut self, now: Timestamp, ctx: &mut Context) {
        let lost_until = if self.args.than.is_some() { self.horizon.end_ns() } else { 0 };
        if self.threads.is_due(now, lost_until) {
            self.threads.ask(ctx.watched_threads(), now, lost_until);
        }
        let began = self.horizon.began_unseen();
        // In a flood of losses each answer is older than the last loss: /proc confirms the wait again before it has a
        // line.
        for SeenThread { tid, at_ns: at, stat, .. } in self.threads.answers(now, 0) {
            let Stat { state: letter, comm, cpu, priority, .. } = stat;
            if self.by_priority(tid, Some(priority)) == PriorityMatch::Outside {
                continue;
            }
            let state = States::of_letter(letter);
            if !state.is_none_or(|state| self.selects(state)) || !self.is_ours(tid, &comm, ctx) {
                continue;
            }
            let Some(state) = state else {
                self.add_eventless(EventlessTask { tid, comm, since: at }, letter, began);
                continue;
            };
            let horizon = self.horizon;
            let is_known = |task: &mut TrackedTask<WaitNotes>| {
                horizon.saw_all_since(task.since) || task.activity == Activity::Blocked(state)
            };
            if self.machine.get_mut(tid).is_some_and(is_known) {
                continue;
            }
            // After a second, a sleeping thread is known to idle.
            let least = if state == SchedState::SLEEP { MIN_WATCHED_NS } else { 0 };
            let report_at = self.args.than.map_or(u64::MAX, |than| at.saturating_add(than.0.max(least)));
            self.machine.discard(tid); // its state before the loss
            self.machine.found(TaskEvent { at_ns: at, cpu, tid, comm }, state, began, WaitNotes::new(None, report_at));
            // Each question costs CPU time, and the sleeping tasks of the whole machine would fill the graph.
            if self.args.common.draws_stacks() && self.reports(state) && (self.few || state != SchedState::SLEEP) {
                self.wait_sites.ask_later(tid, at);
            }
        }
    }
}
