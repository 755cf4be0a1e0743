//! `task-state`: what tasks spend their time on, and which of them wait too long.
//!
//! Events: `sched:sched_switch` and `sched:sched_wakeup`, by mode also `sched_wakeup_new` and `sched_waking`, period 1,
//! on whole CPUs: bound to a task, they would show only one side of each switch. Cost: two to four records per wait,
//! filtered in the kernel by state (`-S`, `-D`), name (`--filter`) and tid (`-t`).
//!
//! `events` opens the events, `account` handles each of their samples, and `plain` does the same for nothing but a
//! table of all tasks. `machine` has the state of every task, `ongoing` reports waits while they last, `wait_sites`
//! finds out in which calls, `selection` filters states and `priority` tasks, `line` lays out waits, and `table` the
//! sums.

mod account;
mod cells;
mod coverage;
mod events;
mod line;
mod notes;
mod ongoing;
mod plain;
mod priority;
mod selection;
mod stays;
mod stretches;
mod table;
mod wait_sites;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::values::{self, CommList, PriorityList, Time};
use crate::cli::{CommonArgs, WaitStateArgs, usage};
use crate::perf::{EventId, Evlist, Record, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Samples, Setup, TickOutcome, Timestamp, Use,
};
use crate::profilers::task_state::coverage::{EventlessTask, TimeCoverage};
use crate::profilers::task_state::events::{TaskStateEvents, WantedEvents};
use crate::profilers::task_state::line::{ShownWait, WAITS};
use crate::profilers::task_state::notes::{WaitNotes, WaitWaker};
use crate::profilers::task_state::ongoing::OngoingLines;
use crate::profilers::task_state::priority::PriorityMatch;
use crate::profilers::task_state::table::{ByThread, STATES_OF_ALL, STATES_OF_THREADS, StateTimes, TimeTable};
use crate::profilers::task_state::wait_sites::WaitSites;
use crate::report::{OccurrenceLayout, Subject, TableSchema, Value};
use crate::sched::{Cpus, MAX_THREADS, SchedState, StatePeriod, TaskEvent, TaskStates};
use crate::stats::LossHorizon;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::thread_reader::{ThreadFacts, ThreadReader};
use crate::tep::context::ContextFlags;
use crate::tep::{Filter, Format};

/// Time spent running, sleeping, in D state, waiting for a CPU; and who waits too long
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  D waits of nginx over 100 ms with their stacks, also those that go on:
    perf-prof task-state -D --than 100 --filter nginx -g
  A table per second of what all tasks spend their time on:
    perf-prof task-state -i 1000
  The same for each thread of one process, for ten seconds:
    perf-prof task-state -p nginx --perins --for 10
  Everything that makes a command wait:
    perf-prof task-state -S -D --than 50ms -- ./job
  The same as a picture, every wait as wide as it was long:
    perf-prof task-state -S -D --flame-graph waits.svg -- ./job
  Who waits for a CPU for over 20 ms, and where it lost the one it had:
    perf-prof task-state -R --than 20 -g

A wait that goes on is shown while it lasts, and once more when it ends.

States:
  R running, S sleeping, D uninterruptible, T stopped, t traced,
  I idle kernel thread, RD runnable but not yet running (run delay).
  The column `now` counts the tasks in the state when the interval ends.")]
pub struct TaskStateArgs {
    #[command(flatten)]
    states: WaitStateArgs,
    /// Show waits longer than this, in ms, or as 2s
    #[arg(long, value_name = "TIME", value_parser = values::time_ms)]
    than: Option<Time>,
    /// With --than: also waits of idle threads on lines of their own
    #[arg(long, requires = "than")]
    all_waits: bool,
    /// Only tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    /// Only tasks of these priorities, as events have them: 0-98 real-time, 100-139
    #[arg(long, value_name = "LIST", value_parser = values::priorities)]
    prio: Option<PriorityList>,
    /// A row per thread: those first that have waited most in other states than S and I
    #[arg(long)]
    perins: bool,
    /// So many rows at most in text; without it 1000
    #[arg(long, value_name = "ROWS", value_parser = values::count)]
    top: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for TaskStateArgs {
    const NAME: &'static str = "task-state";
    const TABLES: &'static [&'static dyn TableSchema] = &[&STATES_OF_ALL, &STATES_OF_THREADS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(WAITS.layout());
    const WEIGHT: &'static str = "µs of waiting";
    const NARROWINGS: &'static [&'static str] = &["--filter COMM", "-t TID"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.common.stacks() && self.than.is_none() {
            return Err(usage("-g shows the stacks of waits over a limit: add the limit, as in --than 100ms"));
        }
        Ok(Box::new(TaskState::new(self)))
    }
}

/// A wait over the limit that goes on is not reported before it has lasted this long, ns: a wait that ends soon gets a
/// single line.
const FIRST_NS: u64 = 200_000_000;

/// Rows in text without `--top`: nobody reads more of them, and those that waited most come first.
const MAX_TEXT_ROWS: usize = 1000;

/// The profiler behind [`TaskStateArgs`].
#[derive(Debug, Default)]
pub struct TaskState {
    args: TaskStateArgs,
    plan: Option<TaskStateEvents>,
    machine: TaskStates<WaitNotes>,
    /// The last task that each CPU was seen to take.
    current: Cpus<(), i32>,
    /// The run is about some tasks only: their sleeps have lines while they go on. The sleeps of all tasks would hide
    /// the other lines.
    few: bool,
    /// The last own thread in this list is the one that reads /proc.
    scope: RunScope,
    /// Some periods are not counted: periods in other states, or on other CPUs.
    narrowed: bool,
    /// Periods are wanted one by one, or by thread.
    detailed: bool,
    /// Names are matched or shown. Otherwise the two names of every switch need not be read.
    named: bool,
    /// No task is excluded but those of perf-prof.
    everybody: bool,
    /// Only one table of all tasks is wanted, and `aggregate` handles the samples.
    plain: bool,
    all: StateTimes,
    by_thread: ByThread,
    /// With `--perins`: the time on CPUs of the stretches that go on.
    stretches: stretches::CpuStretches,
    /// The switches of the idle task or of another task were found hidden, and with them wake-ups that happen while
    /// that task is current.
    hides: bool,
    /// A period that began before the horizon may in fact be several periods.
    horizon: LossHorizon,
    /// Tasks without an event since the start.
    eventless: Vec<EventlessTask>,
    /// The end of the last interval: periods that went on then are reported up to it.
    reported_until: u64,
    /// The coverage of quiet intervals since the last interval that was not quiet.
    quiet_coverage: TimeCoverage,
    /// Reads from /proc what tasks do that had no event.
    threads: ThreadReader,
    next_look: u64,
    last_sweep: u64,
    next_sweep: u64,
    /// Where tasks wait whose waits go on.
    wait_sites: WaitSites,
    ongoing_lines: OngoingLines,
    /// What threads did lately.
    stays: stays::TaskStays,
    /// No more events will come.
    is_over: bool,
}

impl TaskState {
    fn new(args: TaskStateArgs) -> TaskState {
        let detailed = args.than.is_some() || args.perins || args.common.draws_stacks();
        TaskState {
            machine: TaskStates::new(args.states.blocked_only()),
            narrowed: args.states.leaves_out_any() || args.prio.is_some(),
            detailed,
            named: detailed || args.filter.is_some(),
            args,
            ..TaskState::default()
        }
    }

    /// See [`WaitStateArgs::blocked_only`].
    fn blocked_only(&self) -> bool {
        self.args.states.blocked_only()
    }

    fn selects(&self, state: SchedState) -> bool {
        selection::selects(self.args.states, state)
    }

    /// Filters for the switches into the states that options ask for, and for those of [`TaskStateEvents::other`].
    fn states_in_kernel(&self, plan: &TaskStateEvents, switch: &Format) -> (Option<Filter>, Option<Filter>) {
        let WaitStateArgs { interruptible, uninterruptible, .. } = self.args.states;
        let bit = |letter, wanted| if wanted { plan.states.bit(letter) } else { None };
        let bits = |sleep, disk| any_bit(bit("S", sleep).unwrap_or(0) | bit("D", disk).unwrap_or(0), switch);
        let asked = bits(interruptible, uninterruptible);
        if self.blocked_only() {
            return (asked, bits(!interruptible, !uninterruptible));
        }
        if plan.other.is_none() {
            return (None, None);
        }
        let not_idle = || Filter::parse("prev_pid != 0", switch).ok();
        let runnable = any_bit(plan.states.mask(), switch)
            .and_then(|blocked| Filter::all_of([Some(blocked.negated()), not_idle()]));
        let with_stack = Filter::any_of([asked, runnable]);
        let others = with_stack.clone().map(Filter::negated);
        (with_stack, others)
    }

    fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    /// Whether waits in `state` that are over the limit get a line.
    fn reports(&self, state: SchedState) -> bool {
        // A running task does not wait, and an idle kernel thread waits for nothing.
        self.selects(state) && state != SchedState::RUNNING && state != SchedState::IDLE
    }

    #[inline]
    fn is_ours(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool {
        self.scope.asks_for(tid, comm, &ctx.watched, self.args.filter.as_ref())
    }

    /// When a wait that began at `since` is first reported while it goes on.
    #[inline]
    fn report_at(&self, since: u64) -> u64 {
        self.args.than.map_or(u64::MAX, |than| since.saturating_add(than.0.max(FIRST_NS)))
    }

    /// Reports a wait that has ended; it certainly lasted until `certain`.
    fn report_ended(
        &self,
        period: &StatePeriod<WaitNotes>,
        certain: u64,
        ending: stays::WaitEnding,
        ctx: &mut Context,
    ) {
        let duration = certain.saturating_sub(period.since);
        if self.args.than.is_none_or(|than| duration < than.0) {
            return;
        }
        let wait = ShownWait {
            state: period.state,
            label: self.label(period.state),
            duration_ns: duration,
            still_waiting: false,
            began: period.began,
            waker: period.kept.waker,
            preempted: period.preempted,
            site: self.wait_sites.of_ended(period.tid, period.since, certain).cloned(),
            has_user_stack_of_now: false,
            behind: ending.behind,
            is_idle: ending.is_idle,
            is_folded: ending.is_idle && !self.args.all_waits,
            is_again: false,
        };
        let subject = Subject {
            time: period.until,
            cpu: period.cpu,
            pid: ctx.tasks.pid(period.tid),
            tid: period.tid,
            comm: period.comm,
        };
        ctx.emit(&WAITS, subject, &wait, period.kept.stack.filter(|_| self.args.common.stacks()));
    }

    fn label(&self, state: SchedState) -> Value {
        self.plan.as_ref().map_or(Value::None, |plan| plan.states.label(state))
    }

    /// Calls `each` for each period that goes on: task, name, state, and since when.
    fn ongoing(&self, mut each: impl FnMut(i32, Comm, SchedState, u64)) {
        for (tid, task) in self.machine.iter() {
            let Some(state) = task.activity.state() else { continue };
            // After a loss the state is not known until the next event of the task.
            if task.exited || !self.horizon.saw_all_since(task.since) || !self.scope.has_cpu(task.cpu) {
                continue;
            }
            each(tid, task.comm, state, task.since);
        }
    }
}

/// A filter for switches out into one of these states. None: there is no such state.
fn any_bit(bits: u64, switch: &Format) -> Option<Filter> {
    Filter::parse(&format!("prev_state & {bits}"), switch).ok().filter(|_| bits != 0)
}

impl Profiler for TaskState {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.require_scheduler_pids()?;
        if self.args.than.is_some() || self.args.common.draws_stacks() {
            self.wait_sites = WaitSites::asked_of(setup.host, self.takes_stacks())?;
        }
        self.threads = ThreadReader::start(setup.host, ThreadFacts::State)?;
        let own: Vec<i32> = self.threads.thread().into_iter().chain(self.wait_sites.thread()).collect();
        self.scope = setup.scope.clone().without(&own);
        self.narrowed |= self.scope.cpus().is_some();
        self.few = self.args.filter.is_some() || self.args.prio.is_some() || !setup.watched.is_all();
        self.everybody = setup.watched.is_all() && self.args.filter.is_none() && self.args.prio.is_none();
        self.plain = self.everybody && !self.narrowed && !self.detailed;
        if self.plain {
            [0].into_iter().chain(self.scope.own()).for_each(|tid| self.machine.hide(tid));
        }
        if self.args.perins && !self.narrowed {
            self.machine.unseen.lives.keep_apart();
        }
        let blocked_only = self.blocked_only();
        let narrowed = self.args.filter.is_some() || setup.watched.fixed().is_some();
        let wanted = WantedEvents {
            stacks: self.takes_stacks(),
            new_tasks: !blocked_only,
            // Where single waits matter, their end is taken from `sched_waking`, where it is certain.
            wakings: self.args.than.is_some() || self.args.states.interruptible || self.args.states.uninterruptible,
            interrupts: self.args.than.is_some(),
            priorities: self.args.prio.is_some(),
            other: if blocked_only {
                self.args.states.interruptible != self.args.states.uninterruptible || narrowed
            } else {
                self.args.states.run_delay && self.takes_stacks()
            },
        };
        if self.args.prio.is_some() {
            setup.note(
                "--prio is evaluated here, not in the kernel: a task's priority may change while it waits".to_owned(),
            );
        }
        let plan = TaskStateEvents::open(wanted, evlist, setup)?;
        evlist.watch_idle(plan.switch);
        self.plan = Some(plan);
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let tasks = TaskMatch::new(self.args.filter.as_ref(), setup);
        if !setup.watched.is_all() && setup.watched.fixed().is_none() {
            setup.note("the watched tasks may grow: they are told apart here, not in the kernel".to_owned());
        }
        let switch = setup.format("sched:sched_switch")?;
        let wakeup = setup.format("sched:sched_wakeup")?;
        let prev = tasks.filter("prev_comm", "prev_pid", &switch);
        let next = tasks.filter("next_comm", "next_pid", &switch);
        let nothing = Filter::parse("prev_pid == -1", &switch).ok();
        let (states, other) = self.states_in_kernel(plan, &switch);
        // If the filter would be too long, the kernel filters states only, and perf-prof the tasks.
        let (main, rest) = if self.blocked_only() {
            let rest = other.clone().and_then(|states| Filter::all_of([Some(states), prev.clone()]));
            (Filter::all_of([states.clone(), prev]), Filter::any_of([rest, next]))
        } else {
            // Each switch passes one of the two filters: both tasks of the switch are read there.
            let either = Filter::any_of([prev, next]);
            (Filter::all_of([states.clone(), either.clone()]), Filter::all_of([other.clone(), either]))
        };
        let woken = tasks.filter("comm", "pid", &wakeup).filter(Filter::is_short);
        if !tasks.is_all() && (woken.is_none() || !main.as_ref().is_some_and(Filter::is_short)) {
            note_too_long(setup);
        }
        evlist.narrow(plan.switch, [main, states]);
        if let Some(event) = plan.other {
            evlist.narrow(event, [rest, other, nothing]);
        }
        let fields = &plan.fields;
        for (event, in_interrupt) in [
            (Some(fields.wakeup.event), None),
            (fields.wakeup_new.as_ref().map(|woken| woken.event), None),
            (fields.waking.as_ref().map(|woken| woken.event), fields.waking_interrupt.map(|_| false)),
            (fields.waking_interrupt, Some(true)),
        ] {
            let context = in_interrupt.and_then(|is| Filter::parse(&ContextFlags::filter(is), &wakeup).ok());
            if let Some(event) = event {
                evlist.narrow(event, [Filter::all_of([woken.clone(), context.clone()]), context]);
            }
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let used = self.on_event(event, sample, ctx);
        ctx.view.discarded += self.machine.take_unseen();
        used
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.plain { self.aggregate(samples, ctx) } else { samples.each(self, ctx) }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { now } => {
                self.stays.started(now);
                self.look_at_proc(now, ctx);
            }
            Event::Task { record, time, cpu } => self.on_task(record, time, cpu, ctx),
            Event::TookOver { old, pid, time, cpu } => self.on_take_over(old, pid, time, cpu, ctx),
            Event::SwitchIn { tid, prev, time, cpu } => self.on_came(tid, prev, time, cpu, ctx),
            Event::Stopped { now } => self.on_stop(now, ctx),
            // An unseen wake-up shows at the next switch.
            Event::Lost(_, kinds) if !self.plan.as_ref().is_some_and(|plan| kinds.include(&plan.switches())) => {}
            Event::Lost(window, _) | Event::LostSide(window) => self.horizon.lost_until(window.end_ns),
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        let of_waker = |waker| if let Some(WaitWaker::Interrupt(_, stack)) = waker { stack } else { None };
        used.extend(self.machine.iter().flat_map(|(_, task)| [task.kept.stack, of_waker(task.kept.waker)]).flatten());
        used.extend(self.wait_sites.stacks_in_use());
        used.extend(self.stays.stacks_in_use());
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let is_quiet = report.is_quiet;
        let (mut coverage, lives) = self.cover(now);
        let lapses = self.machine.take_lapses();
        // The whole time that some states, or some CPUs, should have is not known.
        let whole = !self.narrowed && self.by_thread.len() < MAX_THREADS;
        let mut all = std::mem::take(&mut self.all);
        let mut by_thread = std::mem::take(&mut self.by_thread);
        let Some(plan) = &self.plan else { return Ok(()) };
        let mut table = TimeTable::new(&plan.states, |state| self.selects(state), self.hides, lapses);
        let reported_until = self.reported_until;
        self.ongoing(|tid, comm, state, since| {
            let lasts = |since: u64| now.saturating_sub(since);
            table.goes_on(tid, comm, state, lasts(since), lasts(since.max(reported_until)));
            if state == SchedState::RUNNING && self.args.perins {
                let times = &mut by_thread.entry(tid).or_insert_with(|| (comm, Box::default())).1;
                times.stretch_ns = times.stretch_ns.max(self.stretches.ongoing(tid, since, now));
            }
        });
        coverage.seen_ns = all.all_states().saturating_add(table.ongoing_ns());
        table.cover(coverage.unseen.by_state, if whole && self.args.perins { lives } else { FxHashMap::default() });
        let sight = self.sight();
        let table = if self.args.perins {
            report.delta(&STATES_OF_THREADS, table.rows_by_thread(&mut by_thread))
        } else {
            report.delta(&STATES_OF_ALL, table.rows(&mut all))
        };
        table.judged(sight).text_rows(self.args.top.map_or(MAX_TEXT_ROWS, |top| top as usize));
        self.reported_until = now;
        let coverage = std::mem::take(&mut self.quiet_coverage).then(&coverage);
        if is_quiet {
            self.quiet_coverage = coverage;
            return Ok(());
        }
        if whole && coverage.missing_ns() > 0 {
            table.below(coverage.line(!self.args.perins));
            report.total("seen_ns", Value::Unsigned(coverage.seen_ns));
            report.total("of_ns", Value::Unsigned(coverage.of.ns));
        }
        self.draw_ongoing(now, report);
        Ok(())
    }
}

impl TaskState {
    fn on_task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &Context) {
        match record {
            Record::Comm { tid, comm, exec, .. } => {
                let comm = Comm::new(comm);
                if !self.is_ours(*tid, &comm, ctx) || self.by_priority(*tid, None) == PriorityMatch::Outside {
                    self.machine.forget(*tid);
                    self.eventless.retain(|eventless| eventless.tid != *tid);
                } else if *exec && !self.blocked_only() && self.machine.get_mut(*tid).is_none() {
                    self.machine.executes(TaskEvent { at_ns: time, cpu, tid: *tid, comm });
                } else {
                    self.machine.renamed(*tid, comm);
                }
            }
            Record::Fork(fork) if self.args.than.is_some() => self.stays.born(fork.tid, time),
            Record::Exit(exit) => {
                self.stays.forget(exit.tid);
                self.stretches.forget(exit.tid);
                self.threads.saw(exit.tid);
                self.machine.exited(exit.tid);
                if exit.pid == exit.tid {
                    self.machine.leader_exited(exit.pid, time);
                }
                self.eventless.retain(|eventless| eventless.tid != exit.tid);
            }
            _ => {}
        }
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        const LOOK_NS: u64 = 50_000_000;
        const SWEEP_NS: u64 = 1_000_000_000;
        const GONE_NS: u64 = 2_000_000_000;
        const AFTER_NS: u64 = 5_000_000_000; // /proc has been asked by then which tasks live
        /// Passes over all tasks take at most 1 / `MAX_SHARE` of the time, however many tasks there are.
        const MAX_SHARE: u64 = 20;
        self.take_answers(now, ctx);
        self.look_at_proc(now, ctx);
        let began = crate::sys::monotonic_ns();
        let pause_ns = || crate::sys::monotonic_ns().saturating_sub(began).saturating_mul(MAX_SHARE);
        if self.args.than.is_some() && now >= self.next_look {
            self.report_ongoing(now, ctx);
            self.next_look = now.saturating_add(LOOK_NS.max(pause_ns()));
        }
        let clock = crate::sys::monotonic_ns();
        let is_urgent = self.wait_sites.awaits(clock);
        if is_urgent {
            self.next_look = now;
        }
        let horizon = self.horizon;
        let missed = self.machine.take_missed_on().into_iter().filter(|(_, since)| horizon.saw_all_since(*since));
        let missed_switches = missed.map(|(cpu, _)| cpu).collect();
        if now >= self.next_sweep {
            if horizon.any_loss() && self.last_sweep < horizon.end_ns().saturating_add(AFTER_NS) {
                self.machine.outlived(horizon.end_ns(), |tid| ctx.tasks.has_exited(tid));
            }
            let machine = &self.machine;
            self.wait_sites.retain(|tid, since| machine.get(tid).is_some_and(|task| task.since == since));
            let everybody = self.everybody;
            self.machine.expire(now.saturating_sub(GONE_NS), |tid| everybody || ctx.watched.contains(tid));
            (self.last_sweep, self.next_sweep) = (now, now.saturating_add(SWEEP_NS.max(pause_ns())));
        }
        TickOutcome { is_urgent, missed_switches, ..TickOutcome::default() }
    }

    fn on_stop(&mut self, now: Timestamp, ctx: &mut Context) {
        self.is_over = true;
        self.take_answers(now, ctx);
        self.look_at_proc(now, ctx);
        if self.args.than.is_some() {
            self.report_ongoing(now, ctx); // reports waits that were not shown yet
        }
    }
}
