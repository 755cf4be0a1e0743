//! `task-state`: what tasks spend their time on, and which of them wait too long.
//!
//! Events: `sched:sched_switch` and `sched:sched_wakeup`, by mode also `sched_wakeup_new` and `sched_waking`, period 1,
//! on whole CPUs: bound to a task they would show only one half. Cost: two to four records per wait, narrowed in the
//! kernel by state (`-S`, `-D`), name (`--filter`) and tid (`-t`).
//!
//! `events` are what is opened, `account` has what is done with each of their samples, and `plain` the same for nothing but a
//! table of all tasks. `machine` says what every task does, `ongoing` reports waits while they last,
//! `table` lays out the sums.

mod account;
mod coverage;
mod events;
mod machine;
mod ongoing;
mod plain;
mod side;
mod states;
mod table;
mod usual;

use anyhow::{Result, bail};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::values::{self, CommList, Time};
use crate::cli::{CommonArgs, usage};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::EventId;
use crate::perf::{Record, Sample};
use crate::profiler::ProfilerArgs;
use crate::profiler::filters::{Match, all_of, any_of, for_kernel, note_too_long};
use crate::profiler::{Context, LostWindow, Profiler, Report, Samples, Setup, Timestamp};
use crate::profilers::task_state::coverage::Unmet;
use crate::profilers::task_state::events::{Plan, Wanted};
use crate::profilers::task_state::machine::{Began, Doing, Machine, Period, Seen, Waker};
use crate::profilers::task_state::states::State;
use crate::profilers::task_state::table::{ByThread, COLUMNS, THREAD_COLUMNS, TimeTable, Times};
use crate::stats::value::{Grouping, Part, Shape, Subject, Value};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::procfs;
use crate::tep::context::ContextFlags;

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
  Who waits for a CPU for over 20 ms, and where it lost the one it had:
    perf-prof task-state -R --than 20 -g

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
    /// Only waits for a CPU, when ready to run (RD)
    #[arg(short = 'R', long)]
    run_delay: bool,
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

impl TaskStateArgs {
    /// `-S`, `-D` or `-R`: only these waits.
    fn selects_states(&self) -> bool {
        self.interruptible || self.uninterruptible || self.run_delay
    }

    /// Only waits of blocked tasks, `-S` or `-D`: a task that does anything else need not be followed.
    ///
    /// With `-R` all are followed. A task that has not left its CPU yet may be woken too, and then does not wait for one.
    fn blocked_only(&self) -> bool {
        self.selects_states() && !self.run_delay
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
    /// All that is wanted is one table of it, and `sum_up` takes the samples.
    plain: bool,
    all: Times,
    by_thread: ByThread,
    /// The idle task or another one was found hidden, and the wake-ups that happen while it is current with it.
    hides: bool,
    /// Pairs that began before this may hide a loss.
    lost_until: u64,
    /// Without an event since the start.
    unmet: Vec<Unmet>,
    /// The end of the last interval: what went on then was told up to here.
    told_until: u64,
    /// Up to this, tasks whose wait began unseen because of a loss were looked for.
    looked_until: u64,
    next_look: u64,
    next_sweep: u64,
}

static SHAPE: Shape = Shape {
    keys: &[
        "state",
        "duration_ns",
        "still_waiting",
        "since",
        "waker.tid",
        "waker.comm",
        "waker.interrupt",
        "waker.source",
        "wchan",
        "preempted",
    ],
    line: &[
        Part::Value { key: 0, width: 2 },
        Part::Text(" "),
        Part::Value { key: 1, width: 11 },
        Part::Text(" ms  "),
        Part::Subject,
        Part::If(2, &[Part::Text(" still waiting")]),
        Part::If(3, &[Part::Text(" (at least: "), Part::Value { key: 3, width: 0 }, Part::Text(")")]),
        Part::If(
            4,
            &[
                Part::Text(", woken by "),
                Part::Value { key: 5, width: 0 },
                Part::Text(" "),
                Part::Value { key: 4, width: 0 },
            ],
        ),
        Part::If(6, &[Part::Text(", woken by an interrupt")]),
        Part::If(7, &[Part::Text(" ("), Part::Value { key: 7, width: 0 }, Part::Text(")")]),
        Part::If(9, &[Part::Text(", preempted")]),
        Part::If(8, &[Part::Text(", in "), Part::Value { key: 8, width: 0 }]),
    ],
    grouping: Some(Grouping { noun: "wait", same: &[0, 2, 3, 8], place: 8, duration: 1, goes_on: 2 }),
};

impl TaskState {
    fn new(args: TaskStateArgs) -> TaskState {
        let detailed = args.than.is_some() || args.perins || args.common.draws_stacks();
        TaskState {
            few: args.filter.is_some(),
            again_ns: AGAIN_NS,
            machine: Machine::new(args.blocked_only()),
            narrowed: args.selects_states(),
            detailed,
            named: detailed || args.filter.is_some(),
            everybody: false,
            plain: false,
            args,
            plan: None,
            own: [0; 2],
            cpus: None,
            all: Times::new(),
            by_thread: ByThread::default(),
            hides: false,
            lost_until: 0,
            unmet: Vec::new(),
            told_until: 0,
            looked_until: 0,
            next_look: 0,
            next_sweep: 0,
        }
    }

    /// See [`TaskStateArgs::blocked_only`].
    fn blocked_only(&self) -> bool {
        self.args.blocked_only()
    }

    fn selects(&self, state: State) -> bool {
        match state {
            _ if !self.args.selects_states() => true,
            State::SLEEP => self.args.interruptible,
            State::DISK => self.args.uninterruptible,
            State::RUN_DELAY => self.args.run_delay,
            _ => false,
        }
    }

    /// The switches out into the states that were asked for, and those that [`Plan::other`] is for.
    fn states_in_kernel(&self, plan: &Plan) -> (Option<String>, Option<String>) {
        let TaskStateArgs { interruptible, uninterruptible, .. } = self.args;
        let bit = |letter, wanted| if wanted { plan.states.bit(letter) } else { None };
        let bits = |sleep, disk| any_bit(bit("S", sleep).unwrap_or(0) | bit("D", disk).unwrap_or(0));
        let asked = bits(interruptible, uninterruptible);
        if self.blocked_only() {
            return (asked, bits(!interruptible, !uninterruptible));
        }
        if plan.other.is_none() {
            return (None, None);
        }
        let runnable = any_bit(plan.states.mask()).map(|blocked| format!("!({blocked}) && prev_pid != 0"));
        let with_stack = any_of([asked, runnable]);
        let others = with_stack.as_ref().map(|text| format!("!({text})"));
        (with_stack, others)
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
        let than = self.args.than.filter(|_| DETAILS);
        than.map_or(u64::MAX, |than| since.saturating_add(than.0.max(self.again_ns.min(AGAIN_NS))))
    }

    /// Reports a wait that has ended, and lasted at least until `certain`.
    fn report_ended(&self, period: &Period, certain: u64, ctx: &mut Context) {
        let duration = certain.saturating_sub(period.since);
        if self.args.than.is_none_or(|than| duration < than.0) {
            return;
        }
        let [waker_tid, waker_comm, by_interrupt, source] = waker_values(period.waker);
        let values = [
            self.label(period.state),
            Value::Ns(duration),
            Value::Bool(false),
            since_text(period.began),
            waker_tid,
            waker_comm,
            by_interrupt,
            source,
            Value::None,
            preempted(period.state, period.preempted),
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

    /// What goes on at `now`: tasks, state and since when.
    fn ongoing(&self, mut each: impl FnMut(i32, Comm, State, u64)) {
        for (tid, task) in self.machine.iter() {
            let state = match task.doing {
                Doing::Unknown | Doing::Away | Doing::Hidden => continue,
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
            each(tid, task.comm, state, task.since);
        }
    }
}

/// Tasks that leave their CPU for one of these states. None: there is no such state.
fn any_bit(bits: u64) -> Option<String> {
    (bits != 0).then(|| format!("prev_state & {bits}"))
}

/// Who ended a wait: tid, comm, whether it was an interrupt, and which.
fn waker_values(waker: Option<Waker>) -> [Value; 4] {
    let none = || Value::None;
    match waker {
        None => [none(), none(), none(), none()],
        Some(Waker::Interrupt(kind, stack)) => [none(), none(), Value::Bool(true), Value::Interrupt(kind, stack)],
        Some(Waker::Task { tid, comm }) => {
            [Value::Signed(tid.into()), Value::Comm(comm), Value::Bool(false), Value::None]
        }
    }
}

/// How a run delay began.
fn preempted(state: State, preempted: bool) -> Value {
    if state == State::RUN_DELAY { Value::Bool(preempted) } else { Value::None }
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
        self.plain = self.everybody && !self.narrowed && !self.detailed;
        if self.plain {
            [0, self.own[0], self.own[1]].into_iter().for_each(|tid| self.machine.hide(tid));
        }
        if self.args.perins && !self.narrowed {
            self.machine.lives.keep_apart();
        }
        self.again_ns = setup.interval.map_or(AGAIN_NS, |interval| interval.as_nanos() as u64);
        let blocked_only = self.blocked_only();
        let narrowed = self.args.filter.is_some() || setup.watched.fixed().is_some();
        let wanted = Wanted {
            stacks: self.takes_stacks(),
            new_tasks: !blocked_only,
            // Where single waits matter, their end is taken from where it is certain.
            wakings: self.args.than.is_some() || self.args.interruptible || self.args.uninterruptible,
            interrupts: self.args.than.is_some(),
            other: if blocked_only {
                self.args.interruptible != self.args.uninterruptible || narrowed
            } else {
                self.args.run_delay && self.takes_stacks()
            },
        };
        let plan = Plan::open(wanted, evlist, setup)?;
        evlist.watch_idle(plan.switch);
        self.plan = Some(plan);
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let tasks = Match::new(self.args.filter.as_ref(), setup);
        if !setup.watched.is_all() && setup.watched.fixed().is_none() {
            setup.note("the watched tasks may grow: they are told apart here, not in the kernel".to_owned());
        }
        let (prev, next) = (tasks.text("prev_comm", "prev_pid"), tasks.text("next_comm", "next_pid"));
        let switch = setup.format("sched:sched_switch")?;
        let wakeup = setup.format("sched:sched_wakeup")?;
        let kernel = |text: Option<String>| text.and_then(|text| for_kernel(&text, &switch));
        let nothing = || Some("prev_pid == -1".to_owned());
        let (states, other) = self.states_in_kernel(plan);
        // A filter that is too long leaves the states to the kernel and the tasks to us.
        let (main, rest) = if self.blocked_only() {
            let rest = any_of([other.clone().and_then(|states| all_of([Some(states), prev.clone()])), next]);
            (kernel(all_of([states.clone(), prev])), kernel(rest))
        } else {
            // Each switch passes one of the two: both of its sides are read there.
            let either = any_of([prev, next]);
            (kernel(all_of([states.clone(), either.clone()])), kernel(all_of([other.clone(), either])))
        };
        let woken = tasks.text("comm", "pid").and_then(|text| for_kernel(&text, &wakeup));
        if !tasks.is_all() && (main.is_none() || woken.is_none()) {
            note_too_long(setup);
        }
        for (event, text) in [
            (Some(plan.switch), main.or_else(|| kernel(states))),
            (plan.other, rest.or_else(|| kernel(other)).or_else(|| kernel(nothing()))),
        ] {
            if let (Some(event), Some(text)) = (event, text) {
                evlist.set_filter(event, text)?;
            }
        }
        let fields = &plan.fields;
        for (event, in_interrupt) in [
            (Some(fields.wakeup.event), None),
            (fields.wakeup_new.as_ref().map(|woken| woken.event), None),
            (fields.waking.as_ref().map(|woken| woken.event), fields.waking_interrupt.map(|_| false)),
            (fields.waking_interrupt, Some(true)),
        ] {
            let context = in_interrupt.map(ContextFlags::filter);
            let both = all_of([woken.clone(), context.clone()]).and_then(|text| for_kernel(&text, &wakeup));
            if let (Some(event), Some(text)) = (event, both.or(context)) {
                evlist.set_filter(event, text)?;
            }
        }
        Ok(())
    }

    fn started(&mut self, _now: Timestamp, ctx: &mut Context) {
        self.look_at_proc(Began::BeforeStart, ctx);
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<()> {
        let result = self.on_event::<true>(event, sample, ctx);
        ctx.discarded += self.machine.take_unseen();
        result
    }

    fn samples(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        if self.plain {
            return self.sum_up(samples, ctx);
        }
        if self.named || self.narrowed {
            samples.each(ctx, |event, sample, ctx| self.on_event::<true>(event, sample, ctx));
        } else {
            samples.each(ctx, |event, sample, ctx| self.on_event::<false>(event, sample, ctx));
        }
        ctx.discarded += self.machine.take_unseen();
    }

    fn task(&mut self, record: &Record<'_>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        match record {
            Record::Comm { tid, comm, exec, .. } => {
                let comm = Comm::new(comm);
                if !self.is_ours(*tid, &comm, ctx) {
                    self.machine.forget(*tid);
                    self.unmet.retain(|unmet| unmet.tid != *tid);
                } else if *exec && !self.blocked_only() && self.machine.get_mut(*tid).is_none() {
                    self.machine.executes(Seen { at: time, cpu, tid: *tid, comm });
                } else {
                    self.machine.renamed(*tid, comm);
                }
            }
            Record::Exit(exit) => {
                self.machine.exited(exit.tid);
                self.unmet.retain(|unmet| unmet.tid != exit.tid);
            }
            _ => {}
        }
    }

    fn came(&mut self, tid: i32, prev: Option<i32>, time: Timestamp, cpu: u32, ctx: &mut Context) {
        self.on_came(tid, prev, time, cpu, ctx);
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) {
        const LOOK_NS: u64 = 50_000_000;
        const SWEEP_NS: u64 = 1_000_000_000;
        const GONE_NS: u64 = 2_000_000_000;
        const AFTER_NS: u64 = 5_000_000_000; // by then /proc was asked who lives
        if self.args.than.is_some() && now >= self.next_look {
            self.next_look = now + LOOK_NS;
            self.report_ongoing(now, ctx);
        }
        let lost_until = self.lost_until;
        let missed = self.machine.take_missed_on().into_iter().filter(|(_, since)| *since >= lost_until);
        missed.for_each(|(cpu, _)| ctx.missed_switches.push(cpu));
        if now >= self.next_sweep {
            self.next_sweep = now.saturating_add(SWEEP_NS);
            if self.args.than.is_some() && self.lost_until > self.looked_until {
                self.looked_until = self.lost_until;
                self.look_at_proc(Began::BeforeLoss, ctx); // the beginning of a wait may be lost too
            }
            if self.lost_until != 0 && now < self.lost_until.saturating_add(AFTER_NS) {
                self.machine.outlived(self.lost_until, |tid| ctx.tasks.has_exited(tid));
            }
            let everybody = self.everybody;
            self.machine.expire(now.saturating_sub(GONE_NS), |tid| everybody || ctx.watched.contains(tid));
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        let of_waker = |waker| if let Some(Waker::Interrupt(_, stack)) = waker { stack } else { None };
        used.extend(self.machine.iter().flat_map(|(_, task)| [task.stack, of_waker(task.waker)]).flatten());
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let (mut coverage, lives) = self.cover(now);
        let lapses = self.machine.take_lapses();
        let Some(plan) = &self.plan else { return Ok(()) };
        let mut table = TimeTable::new(&plan.states, |state| self.selects(state), self.hides, lapses);
        let told_until = self.told_until;
        // Of some states, or some CPUs, nobody knows how much time they should have.
        let whole = !self.narrowed && self.by_thread.len() < MOST_THREADS;
        self.ongoing(|tid, comm, state, since| {
            let lasts = |since: u64| now.saturating_sub(since);
            table.goes_on(tid, comm, state, lasts(since), lasts(since.max(told_until)));
        });
        coverage.seen_ns = self.all.all_states().saturating_add(table.ongoing_ns());
        table.cover(coverage.unseen.by_state, if whole && self.args.perins { lives } else { FxHashMap::default() });
        if self.args.perins {
            report.table(&THREAD_COLUMNS, table.rows_by_thread(&self.by_thread));
            self.by_thread.clear();
        } else {
            report.table(&COLUMNS, table.rows(&self.all));
        }
        if whole && coverage.missing_ns() > 0 {
            report.say_below(coverage.line(!self.args.perins));
            report.total("seen_ns", Value::Unsigned(coverage.seen_ns));
            report.total("of_ns", Value::Unsigned(coverage.of.ns));
        }
        report.judge(self.sight());
        report.doubt(table::doubts(if self.args.perins { &THREAD_COLUMNS } else { &COLUMNS }));
        self.all.clear();
        self.told_until = now;
        self.draw_ongoing(now, report);
        Ok(())
    }

    fn lost(&mut self, window: &LostWindow) {
        self.lost_until = self.lost_until.max(window.end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::interrupt;
    use crate::tep::context::Interruption;

    /// As it is printed.
    fn line(waker: Option<Waker>) -> String {
        let [tid, comm, interrupt, source] = waker_values(waker);
        // As the output thread names it.
        let source = match source {
            Value::Interrupt(kind, _) => {
                interrupt::name(kind, &[]).map_or(Value::None, |name| Value::Text(name.into()))
            }
            source => source,
        };
        let (state, duration, no) = (Value::Word("S"), Value::Ns(3_000_000), || Value::None);
        let values = [state, duration, Value::Bool(false), no(), tid, comm, interrupt, source, no(), no()];
        let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"sleep") };
        let mut out = Vec::new();
        crate::output::text::shaped(&subject, &SHAPE, &values, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn waits_at_one_place_are_a_group() {
        let Some(grouping) = &SHAPE.grouping else { panic!("they come in floods") };
        let same: Vec<&str> = grouping.same.iter().map(|key| SHAPE.keys[*key]).collect();
        assert_eq!(same, ["state", "still_waiting", "since", "wchan"]);
        let others = [grouping.place, grouping.duration, grouping.goes_on].map(|key| SHAPE.keys[key]);
        assert_eq!(others, ["wchan", "duration_ns", "still_waiting"]);
    }

    #[test]
    fn a_waker_is_a_task_or_an_interrupt() {
        let wait = " S       3.000 ms  sleep 8 [001]";
        assert_eq!(line(None), wait);
        let interrupt = Waker::Interrupt(Interruption::Hard, None);
        assert_eq!(line(Some(interrupt)), format!("{wait}, woken by an interrupt"));
        let softirq = Waker::Interrupt(Interruption::Soft, None);
        assert_eq!(line(Some(softirq)), format!("{wait}, woken by an interrupt (softirq)"));
        let task = Waker::Task { tid: 0, comm: Comm::new(b"swapper/1") };
        assert_eq!(line(Some(task)), format!("{wait}, woken by swapper/1 0"));
    }
}
