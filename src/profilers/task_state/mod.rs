//! `task-state`: what tasks spend their time on, and which of them wait too long.
//!
//! Events: `sched:sched_switch` and `sched:sched_wakeup`, by mode also `sched_wakeup_new` and `sched_waking`, period 1,
//! on whole CPUs: bound to a task they would show only one half. Cost: two to four records per wait, narrowed in the
//! kernel by state (`-S`, `-D`), name (`--filter`) and tid (`-t`).
//!
//! `events` are what is opened, `machine` says what every task does and keeps it in `tasks`, `ongoing` reports waits while they last, `table` lays out
//! the sums.

mod events;
mod machine;
mod ongoing;
mod states;
mod table;
mod tasks;

use anyhow::{Result, bail};
use rustc_hash::FxHashSet;

use crate::cli::values::{self, CommList, Time};
use crate::cli::{CommonArgs, usage};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::EventId;
use crate::perf::{Record, Sample};
use crate::profiler::filters::{Match, all_of, any_of, for_kernel, note_too_long};
use crate::profiler::{Context, LostWindow, Profiler, Report, Samples, Setup, Timestamp};
use crate::profilers::ProfilerArgs;
use crate::profilers::task_state::events::{Plan, Wanted, Woken, name, waker};
use crate::profilers::task_state::machine::{Began, Doing, Machine, Period, Seen};
use crate::profilers::task_state::states::{State, SwitchedOut};
use crate::profilers::task_state::table::{ByThread, COLUMNS, Histograms, THREAD_COLUMNS, TimeTable};
use crate::stats::Histogram;
use crate::stats::value::{Part, Shape, Subject, Value};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::procfs;

/// Time spent running, sleeping, in D state, waiting for a CPU; and who waits too long
#[derive(Debug, clap::Args)]
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

A wait that goes on is shown while it lasts, and once more when it ends.

States:
  R running, S sleeping, D uninterruptible, T stopped, t traced,
  I idle kernel thread, RD runnable but not yet running (run delay).
  The column `now` counts the tasks in the state when the interval ends.")]
pub struct TaskStateArgs {
    /// Only interruptible sleep (S)
    #[arg(short = 'S', long)]
    interruptible: bool,
    /// Only uninterruptible waits (D)
    #[arg(short = 'D', long)]
    uninterruptible: bool,
    /// Show waits longer than this, in ms, or as 2s
    #[arg(long, value_name = "TIME", value_parser = values::time_ms)]
    than: Option<Time>,
    /// Only tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    /// A row per thread
    #[arg(long)]
    perins: bool,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for TaskStateArgs {
    const NAME: &'static str = "task-state";
    const WEIGHT: &'static str = "µs of waiting";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.common.stacks() && self.than.is_none() {
            return Err(usage("-g shows the stacks of waits over a limit: add the limit, as in --than 100ms"));
        }
        Ok(Box::new(TaskState::new(self)))
    }
}

/// How often a wait that goes on is reported again without `-i`.
const AGAIN_NS: u64 = 1_000_000_000;
/// A task found waiting at the start is reported when it still waits after this, at the latest after `--than`.
const SETTLE_NS: u64 = 100_000_000;

/// How long /proc must contradict the records before it is believed.
const DOUBT_NS: u64 = 1_000_000_000;

/// Threads listed apart in one interval at most: without -i every thread that ever ran would be kept.
const MOST_THREADS: usize = 50_000;

/// The profiler behind [`TaskStateArgs`].
#[derive(Debug)]
pub struct TaskState {
    args: TaskStateArgs,
    plan: Option<Plan>,
    machine: Machine,
    /// The answer is about few tasks: their sleeps are worth a line while they go on. Of all tasks they would bury the rest.
    few: bool,
    again_ns: u64,
    own: [i32; 2],
    cpus: Option<Vec<u32>>,
    /// Some periods are not counted: of other states, on other CPUs.
    narrowed: bool,
    /// Periods are of interest one by one, or by thread.
    detailed: bool,
    /// Names are matched or shown. Else the two of every switch need not be read.
    named: bool,
    /// No task is left out but our own.
    everybody: bool,
    all: Histograms,
    by_thread: ByThread,
    /// Pairs that began before this may hide a loss.
    lost_until: u64,
    /// Up to this, tasks whose wait began unseen because of a loss were looked for.
    looked_until: u64,
    next_look: u64,
    next_sweep: u64,
}

static SHAPE: Shape = Shape {
    keys: &["state", "duration_ns", "still_waiting", "since", "waker.tid", "waker.comm", "waker.interrupt", "wchan"],
    line: &[
        Part::Value { key: 0, width: 2 },
        Part::Text(" "),
        Part::Value { key: 1, width: 11 },
        Part::Text(" ms  "),
        Part::Subject,
        Part::If(2, &[Part::Text(" still waiting")]),
        Part::If(3, &[Part::Text(" (at least: "), Part::Value { key: 3, width: 0 }, Part::Text(")")]),
        Part::If(4, &[Part::Text(", woken by ")]),
        Part::If(6, &[Part::Text("an interrupt of ")]),
        Part::If(4, &[Part::Value { key: 5, width: 0 }, Part::Text(" "), Part::Value { key: 4, width: 0 }]),
        Part::If(7, &[Part::Text(", in "), Part::Value { key: 7, width: 0 }]),
    ],
};

impl TaskState {
    fn new(args: TaskStateArgs) -> TaskState {
        let blocked_only = args.interruptible || args.uninterruptible;
        let detailed = args.than.is_some() || args.perins || args.common.draws_stacks();
        TaskState {
            few: args.filter.is_some(),
            again_ns: AGAIN_NS,
            machine: Machine::new(blocked_only),
            narrowed: blocked_only,
            detailed,
            named: detailed || args.filter.is_some(),
            everybody: false,
            args,
            plan: None,
            own: [0; 2],
            cpus: None,
            all: table::empty(),
            by_thread: ByThread::default(),
            lost_until: 0,
            looked_until: 0,
            next_look: 0,
            next_sweep: 0,
        }
    }

    /// `-S`, `-D` or both: only these waits.
    fn blocked_only(&self) -> bool {
        self.args.interruptible || self.args.uninterruptible
    }

    fn selects(&self, state: State) -> bool {
        if !self.blocked_only() {
            return true;
        }
        state == State::SLEEP && self.args.interruptible || state == State::DISK && self.args.uninterruptible
    }

    fn takes_stacks(&self) -> bool {
        self.args.common.stacks() || self.args.common.draws_stacks()
    }

    /// Waits over the limit that are worth a line of their own.
    fn reports(&self, state: State) -> bool {
        // Running is no wait, and an idle kernel thread waits for nothing.
        self.selects(state) && state != State::RUNNING && state != State::IDLE
    }

    #[inline]
    fn is_ours(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool {
        tid > 0 && !self.own.contains(&tid) && (self.everybody || self.is_asked_for(tid, comm, ctx))
    }

    #[inline(never)]
    fn is_asked_for(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool {
        ctx.watched.contains(tid) && self.args.filter.as_ref().is_none_or(|filter| filter.matches(comm.as_bytes()))
    }

    /// When a wait that began at `since` is first reported while it goes on: one that ends soon gets a single line.
    #[inline]
    fn report_at<const DETAILS: bool>(&self, since: u64) -> u64 {
        self.args
            .than
            .filter(|_| DETAILS)
            .map_or(u64::MAX, |than| since.saturating_add(than.0.max(self.again_ns.min(AGAIN_NS))))
    }

    /// A table of all periods: needs neither names nor stacks, nor does it ask whether a period is wanted.
    #[inline]
    fn is_plain(&self) -> bool {
        !self.named && !self.narrowed
    }

    /// `DETAILS`: not [`is_plain`](TaskState::is_plain). Without, nothing is asked of an event that has one answer for all:
    /// half of the time.
    #[inline(always)]
    fn on_event<const DETAILS: bool>(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let is = |woken: &Option<Woken>| woken.as_ref().is_some_and(|woken| woken.event == event);
        if event == plan.switch || DETAILS && Some(event) == plan.other {
            self.on_switch::<DETAILS>(event, sample, ctx)?;
        } else if event == plan.fields.wakeup.event {
            self.on_wakeup::<DETAILS>(sample, false, ctx)?;
        } else if is(&plan.fields.wakeup_new) {
            self.on_wakeup::<DETAILS>(sample, true, ctx)?;
        } else if DETAILS && is(&plan.fields.waking) {
            self.on_waking(sample, ctx)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn on_switch<const DETAILS: bool>(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        let Some(plan) = &mut self.plan else { return Ok(()) };
        let is_other = DETAILS && plan.other == Some(event);
        let fields = &plan.fields;
        let prev = fields.prev_pid.read(sample.raw)?;
        let next = fields.next_pid.read(sample.raw)?;
        let prev_comm = name(DETAILS && self.named, &fields.prev_comm, sample.raw)?;
        let next_comm = name(DETAILS && self.named, &fields.next_comm, sample.raw)?;
        let how = plan.states.decode(fields.prev_state.read_u64(sample.raw)?);
        let seen = |tid, comm| Seen { at: sample.time, cpu: sample.cpu, tid, comm };
        let blocked_only = DETAILS && self.blocked_only();
        let (leaves, comes) = (self.is_ours(prev, &prev_comm, ctx), self.is_ours(next, &next_comm, ctx));
        ctx.ignored = !leaves && !comes;
        if leaves {
            let relevant = match how {
                SwitchedOut::Blocked(state) => !DETAILS || self.selects(state),
                SwitchedOut::Runnable | SwitchedOut::Dead => !blocked_only,
            };
            if relevant && is_other {
                // The switch to another of the tasks: the first event has told of this side.
            } else if relevant {
                let stack = if DETAILS && self.takes_stacks() { ctx.stack(sample) } else { None };
                let report_at = self.report_at::<DETAILS>(sample.time);
                let period = self.machine.switched_out(seen(prev, prev_comm), how, stack, report_at);
                self.account::<DETAILS>(period, ctx);
            } else {
                self.machine.discard(prev); // it waits, but not for anything that was asked for
            }
        }
        if !blocked_only {
            self.machine.changed_hands(sample.time, sample.cpu, prev, next);
        }
        if comes {
            let period = self.machine.switched_in::<DETAILS>(seen(next, next_comm));
            self.account::<DETAILS>(period, ctx);
        }
        Ok(())
    }

    #[inline(always)]
    fn on_wakeup<const DETAILS: bool>(&mut self, sample: &Sample<'_>, is_new: bool, ctx: &mut Context) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let fields = if is_new { plan.fields.wakeup_new.as_ref() } else { Some(&plan.fields.wakeup) };
        let Some(fields) = fields.filter(|fields| fields.happened(sample.raw)) else { return Ok(()) };
        let tid = fields.pid.read(sample.raw)?;
        let comm = name(DETAILS && self.named, &fields.comm, sample.raw)?;
        if !self.is_ours(tid, &comm, ctx) {
            ctx.ignored = true;
            return Ok(());
        }
        let seen = Seen { at: sample.time, cpu: sample.cpu, tid, comm };
        let ended = self.machine.woken::<DETAILS>(seen, is_new, self.report_at::<DETAILS>(sample.time));
        let period = if DETAILS { self.with_waker(ended, sample, fields, ctx) } else { ended };
        self.account::<DETAILS>(period, ctx);
        Ok(())
    }

    fn on_waking(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        let Some(fields) = self.plan.as_ref().and_then(|plan| plan.fields.waking.as_ref()) else { return Ok(()) };
        let tid = fields.pid.read(sample.raw)?;
        let comm = name(self.named, &fields.comm, sample.raw)?;
        if !self.is_ours(tid, &comm, ctx) {
            ctx.ignored = true;
            return Ok(());
        }
        let seen = Seen { at: sample.time, cpu: sample.cpu, tid, comm };
        let ended = self.machine.waking(seen, self.report_at::<true>(sample.time));
        let period = self.with_waker(ended, sample, fields, ctx);
        self.account::<true>(period, ctx);
        Ok(())
    }

    /// Who ended a wait, where that is shown.
    #[inline(always)]
    fn with_waker(
        &self,
        ended: Option<Period>,
        sample: &Sample<'_>,
        fields: &Woken,
        ctx: &mut Context,
    ) -> Option<Period> {
        if self.args.than.is_none() {
            return ended;
        }
        ended.map(|period| Period { waker: Some(waker(sample, fields, ctx)), ..period })
    }

    /// Counts a period that ended, and reports it when it was too long.
    ///
    /// In line, or half of the time goes into writing the period down and reading it again.
    #[inline(always)]
    fn account<const DETAILS: bool>(&mut self, period: Option<Period>, ctx: &mut Context) {
        let Some(period) = period else { return };
        if DETAILS && self.narrowed && !self.is_wanted(&period) {
            return;
        }
        if period.since < self.lost_until {
            return self.account_unsure(period, ctx);
        }
        if period.began == Began::Exactly {
            self.all[period.state.index()].record(period.until.saturating_sub(period.since));
        }
        if DETAILS && self.detailed {
            self.account_details(period, ctx);
        }
    }

    #[inline(never)]
    fn is_wanted(&self, period: &Period) -> bool {
        self.selects(period.state) && self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&period.cpu))
    }

    /// It may have ended, and another one begun, unseen; but what was shown of it was so, and is over now.
    #[cold]
    fn account_unsure(&mut self, period: Period, ctx: &mut Context) {
        ctx.discarded += u64::from(period.began == Began::Exactly);
        if period.shown_until > period.since {
            self.report_ended(&Period { began: Began::BeforeLoss, ..period }, period.shown_until, ctx);
        }
    }

    /// The period on its own, or in its thread's row.
    #[inline(never)]
    fn account_details(&mut self, period: Period, ctx: &mut Context) {
        let duration = period.until.saturating_sub(period.since);
        let fits = || self.by_thread.len() < MOST_THREADS || self.by_thread.contains_key(&period.tid);
        if self.args.perins && period.began == Began::Exactly && fits() {
            let fresh = || (period.comm, Box::new(table::empty()));
            let (comm, histograms) = self.by_thread.entry(period.tid).or_insert_with(fresh);
            *comm = period.comm;
            histograms[period.state.index()].record(duration);
        } else if self.args.perins && period.began == Began::Exactly {
            ctx.untracked += 1;
        }
        if let Some(us) = self.drawn(period.state, period.began, period.stack, duration) {
            let pid = ctx.tasks.pid(period.tid);
            ctx.weigh(pid, period.comm, period.stack, us);
        }
        if self.args.than.is_some() && self.reports(period.state) {
            self.report_ended(&period, period.until, ctx);
        }
    }

    /// Reports a wait that has ended, and lasted at least until `certain`.
    fn report_ended(&self, period: &Period, certain: u64, ctx: &mut Context) {
        let duration = certain.saturating_sub(period.since);
        if self.args.than.is_none_or(|than| duration < than.0) {
            return;
        }
        let waker = period.waker;
        let values = [
            self.label(period.state),
            Value::Ns(duration),
            Value::Bool(false),
            since_text(period.began),
            waker.map_or(Value::None, |waker| Value::Signed(waker.tid.into())),
            waker.map_or(Value::None, |waker| Value::Comm(waker.comm)),
            waker.map_or(Value::None, |waker| Value::Bool(waker.interrupt)),
            Value::None,
        ];
        let subject = Subject {
            time: period.until,
            cpu: period.cpu,
            pid: ctx.tasks.pid(period.tid),
            tid: period.tid,
            comm: period.comm,
        };
        ctx.emit(subject, &SHAPE, values, period.stack.filter(|_| self.args.common.stacks()));
    }

    fn label(&self, state: State) -> Value {
        self.plan.as_ref().map_or(Value::None, |plan| plan.states.label(state))
    }

    /// What goes on at `now`: tasks and time so far, by state.
    fn ongoing(&self, now: Timestamp, mut each: impl FnMut(i32, Comm, State, u64)) {
        for (tid, task) in self.machine.iter() {
            let state = match task.doing {
                Doing::Unknown => continue,
                Doing::Running => State::RUNNING,
                Doing::Runnable { .. } => State::RUN_DELAY,
                Doing::Blocked(state) => state,
            };
            // After a loss nobody knows until the next event of the task.
            if task.exited
                || task.since < self.lost_until
                || self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&task.cpu))
            {
                continue;
            }
            each(tid, task.comm, state, now.saturating_sub(task.since));
        }
    }
}

/// Why a duration is a lower bound.
fn since_text(began: Began) -> Value {
    match began {
        Began::Exactly => Value::None,
        Began::BeforeStart => Value::Phrase { word: "before_start", text: "it began before the start" },
        Began::BeforeLoss => Value::Phrase { word: "before_loss", text: "records were lost" },
    }
}

impl Profiler for TaskState {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        if procfs::is_nested(setup.host) {
            bail!(
                "the scheduler's events carry the host's task numbers, which mean nothing in this pid namespace: run on the host, or in a container with --pid=host"
            );
        }
        self.own = setup.own;
        self.cpus = setup.target.wanted.clone();
        self.narrowed |= self.cpus.is_some();
        self.few |= !setup.watched.is_all();
        self.everybody = setup.watched.is_all() && self.args.filter.is_none();
        self.again_ns = setup.interval.map_or(AGAIN_NS, |interval| interval.as_nanos() as u64);
        let blocked_only = self.blocked_only();
        let narrowed = self.args.filter.is_some() || setup.watched.fixed().is_some();
        let wanted = Wanted {
            stacks: self.takes_stacks(),
            new_tasks: !blocked_only,
            // Where single waits matter, their end is taken from where it is certain.
            wakings: self.args.than.is_some() || blocked_only,
            other: self.args.interruptible != self.args.uninterruptible || blocked_only && narrowed,
        };
        self.plan = Some(Plan::open(wanted, evlist, setup)?);
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let tasks = Match::new(self.args.filter.as_ref(), setup);
        if !setup.watched.is_all() && setup.watched.fixed().is_none() {
            setup.note("the watched tasks may grow: they are told apart here, not in the kernel".to_owned());
        }
        let (sleep, disk) = (plan.states.bit("S"), plan.states.bit("D"));
        let (asked, other) = match (self.args.interruptible, self.args.uninterruptible) {
            (true, true) => (sleep.zip(disk).map(|(sleep, disk)| sleep | disk), None),
            (true, false) => (sleep, disk),
            (false, true) => (disk, sleep),
            (false, false) => (None, None),
        };
        let into = |bits: Option<u64>| bits.map(|bits| format!("prev_state & {bits}"));
        let (states, other) = (into(asked), into(other));
        let (prev, next) = (tasks.text("prev_comm", "prev_pid"), tasks.text("next_comm", "next_pid"));
        let switch = setup.format("sched:sched_switch")?;
        let wakeup = setup.format("sched:sched_wakeup")?;
        let kernel = |text: Option<String>| text.and_then(|text| for_kernel(&text, &switch));
        let nothing = || Some("prev_pid == -1".to_owned());
        // A filter that is too long leaves the states to the kernel and the tasks to us.
        let (main, rest) = if self.blocked_only() {
            let rest = any_of([other.clone().and_then(|states| all_of([Some(states), prev.clone()])), next]);
            (kernel(all_of([states.clone(), prev])), kernel(rest))
        } else {
            (kernel(any_of([prev, next])), None)
        };
        let woken = tasks.text("comm", "pid").and_then(|text| for_kernel(&text, &wakeup));
        if !tasks.is_all() && (main.is_none() || woken.is_none()) {
            note_too_long(setup);
        }
        for (event, text) in [
            (Some(plan.switch), main.or_else(|| kernel(states))),
            (plan.other, rest.or_else(|| kernel(other.or_else(nothing)))),
        ] {
            if let (Some(event), Some(text)) = (event, text) {
                evlist.set_filter(event, text)?;
            }
        }
        if let Some(text) = woken {
            let fields = &plan.fields;
            for event in
                [Some(&fields.wakeup), fields.wakeup_new.as_ref(), fields.waking.as_ref()].into_iter().flatten()
            {
                evlist.set_filter(event.event, text.clone())?;
            }
        }
        Ok(())
    }

    fn started(&mut self, _now: Timestamp, ctx: &mut Context) {
        self.look_at_proc(Began::BeforeStart, ctx);
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        let result = if self.is_plain() {
            self.on_event::<false>(event, sample, ctx)
        } else {
            self.on_event::<true>(event, sample, ctx)
        };
        ctx.discarded += self.machine.take_unseen();
        result
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.is_plain() {
            samples.each(ctx, |event, sample, ctx| self.on_event::<false>(event, sample, ctx));
        } else {
            samples.each(ctx, |event, sample, ctx| self.on_event::<true>(event, sample, ctx));
        }
        ctx.discarded += self.machine.take_unseen();
    }

    fn task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        match record {
            Record::Comm { tid, comm, exec, .. } => {
                let comm = Comm::new(comm);
                if !self.is_ours(*tid, &comm, ctx) {
                    self.machine.forget(*tid);
                } else if *exec && !self.blocked_only() && self.machine.get_mut(*tid).is_none() {
                    self.machine.executes(Seen { at: time, cpu, tid: *tid, comm });
                } else {
                    self.machine.renamed(*tid, comm);
                }
            }
            Record::Exit(exit) => self.machine.exited(exit.tid),
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) {
        const LOOK_NS: u64 = 50_000_000;
        const SWEEP_NS: u64 = 1_000_000_000;
        const GONE_NS: u64 = 2_000_000_000;
        if self.args.than.is_some() && now >= self.next_look {
            self.next_look = now + LOOK_NS;
            self.report_ongoing(now, ctx);
        }
        if now >= self.next_sweep {
            self.next_sweep = now.saturating_add(SWEEP_NS);
            if self.args.than.is_some() && self.lost_until > self.looked_until {
                self.looked_until = self.lost_until;
                self.look_at_proc(Began::BeforeLoss, ctx); // the beginning of a wait may be lost too
            }
            let everybody = self.everybody;
            self.machine.expire(now.saturating_sub(GONE_NS), |tid| everybody || ctx.watched.contains(tid));
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.machine.iter().filter_map(|(_, task)| task.stack));
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let mut table = TimeTable::new(&plan.states, |state| self.selects(state));
        self.ongoing(now, |tid, comm, state, ns| table.goes_on(tid, comm, state, ns));
        if self.args.perins {
            report.table(&THREAD_COLUMNS, table.rows_by_thread(&self.by_thread));
            self.by_thread.clear();
        } else {
            report.table(&COLUMNS, table.rows(&self.all));
        }
        let sight = self.sight();
        report.judge(sight);
        self.all.iter_mut().for_each(Histogram::clear);
        self.draw_ongoing(now, report);
        Ok(())
    }

    fn lost(&mut self, window: &LostWindow) {
        self.lost_until = self.lost_until.max(window.end_ns);
    }
}
