//! `signal`: who sends which signal to whom, and what becomes of it.
//!
//! Events: `signal:signal_generate` and `signal:signal_deliver`, period 1, on whole CPUs: sender and receiver are two tasks.
//! Cost: two records per signal; `--filter` and `-t` are left to the kernel for the first of them.
//!
//! `pending` keeps what was sent and has not arrived, `ending` tells which of that ended a process, `names` knows the
//! kernel's numbers, `shown` is the line of a signal, `table` holds the sums, `args` the options.

mod args;
mod doubt;
mod ending;
mod names;
mod pending;
mod shown;
mod table;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::cli::CommonArgs;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Binding, EventId};
use crate::perf::{Record, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{Context, Event, LostWindow, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use};
pub use crate::profilers::signal::args::SignalArgs;
use crate::profilers::signal::args::SignalList;
use crate::profilers::signal::doubt::{Doubts, Empty};
use crate::profilers::signal::ending::{Deadly, Endings, Looked};
use crate::profilers::signal::names::{Origin, SIGKILL};
use crate::profilers::signal::pending::{Absent, Added, Key, Pending, Sender, Sent, Target};
use crate::profilers::signal::shown::{Delivery, SENT, ShownSignal};
use crate::profilers::signal::table::{Fate, SIGNALS, Sums};
use crate::report::{OccurrenceLayout, Subject, TableSchema, Value, Verdict};
use crate::stats::LossHorizon;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::procfs::SignalState;
use crate::tep::Field;
use crate::tep::context::ContextFlags;
use crate::tep::filter::Filter;

impl ProfilerArgs for SignalArgs {
    const NAME: &'static str = "signal";
    const TABLES: &'static [&'static dyn TableSchema] = &[&SIGNALS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SENT.layout());
    const WEIGHT: &'static str = "signals";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Signal::new(self)))
    }
}

/// A signal that has not arrived by then is looked for in /proc.
const SETTLE_NS: u64 = 50_000_000;
/// How often what waits is looked at again.
const AGAIN_NS: u64 = 1_000_000_000;
/// Looks at /proc in a row: the rings fill meanwhile.
const MOST_LOOKS: usize = 256;

/// `TRACE_SIGNAL_*`, include/trace/events/signal.h.
mod result {
    pub const DELIVERED: i32 = 0;
    pub const IGNORED: i32 = 1;
    pub const ALREADY_PENDING: i32 = 2;
    pub const OVERFLOW_FAIL: i32 = 3;
    pub const LOSE_INFO: i32 = 4;
}

/// What is known once the events are.
#[derive(Debug)]
struct SignalEvents {
    generate: EventId,
    deliver: EventId,
    generated: Generated,
    delivered: Delivered,
}

#[derive(Debug)]
struct Generated {
    sig: Field,
    code: Field,
    comm: Field,
    pid: Field,
    group: Field,
    result: Field,
    context: ContextFlags,
}

#[derive(Debug)]
struct Delivered {
    sig: Field,
    code: Field,
    handler: Field,
}

/// The profiler behind [`SignalArgs`].
#[derive(Debug)]
pub struct Signal {
    args: SignalArgs,
    plan: Option<SignalEvents>,
    takes_stacks: bool,
    pending: Pending,
    sums: Sums,
    endings: Endings,
    /// Signals sent before this may have arrived unseen.
    horizon: LossHorizon,
    doubts: Doubts,
    /// Delivered, and not seen when they were sent.
    unsent: u64,
}

/// How a signal was delivered.
struct Arrival {
    time: u64,
    pid: i32,
    tid: i32,
    handler: u64,
}

impl Signal {
    fn new(args: SignalArgs) -> Signal {
        Signal {
            args,
            plan: None,
            takes_stacks: false,
            pending: Pending::default(),
            sums: Sums::default(),
            endings: Endings::default(),
            horizon: LossHorizon::default(),
            doubts: Doubts::default(),
            unsent: 0,
        }
    }

    fn is_ours(&self, tid: i32, comm: &[u8], ctx: &Context) -> bool {
        ctx.is_ours(tid) && self.args.filter.as_ref().is_none_or(|filter| filter.matches(comm))
    }

    /// See `--signal`.
    fn is_asked_for(&self, signo: u8) -> bool {
        self.args.signals.as_ref().is_none_or(|SignalList(list)| list.contains(&signo))
    }

    /// It counts when it is known what became of it.
    fn on_generate(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        let fields = &plan.generated;
        let tid = fields.pid.read_i32(sample.raw)?;
        let comm = fields.comm.text(sample.raw)?;
        let signo = signo(fields.sig.read_i32(sample.raw)?);
        if !self.is_ours(tid, comm, ctx) || !self.is_asked_for(signo) {
            return Ok(Use::Ignored);
        }
        // One from elsewhere is not shown, but may stand in front of another one in the queue.
        let hidden = !ctx.scope.has_cpu(sample.cpu);
        let result = fields.result.read_i32(sample.raw)?;
        let target = Target {
            tid,
            pid: ctx.tasks.pid(tid),
            comm: Comm::new(comm),
            group: fields.group.read_i32(sample.raw)? != 0,
        };
        let stack = if self.takes_stacks && !hidden { ctx.stack(sample) } else { None };
        let sender = Sender {
            pid: sample.pid,
            tid: sample.tid,
            comm: ctx.tasks.comm(sample.tid),
            interrupt: fields.context.in_interrupt(sample.raw),
        };
        let code = fields.code.read_i32(sample.raw)?;
        // Who signals itself is known.
        let is_of_interest =
            !hidden && !sender.interrupt && Origin::of(code) == Origin::Task && sender.pid != target.pid;
        let sent = Sent {
            time: sample.time,
            cpu: sample.cpu,
            sender,
            lineage: is_of_interest.then(|| ctx.lineage(sender.pid)),
            target,
            signo,
            code,
            info_lost: result == result::LOSE_INFO,
            stack,
            shown: hidden,
            hidden,
            certain_until: 0,
        };
        if !hidden {
            if self.args.common.draws_stacks() {
                ctx.weigh(sender.pid, sender.comm, stack, 1);
            }
            self.sums.sent(&sent);
        }
        let used = match result {
            result::DELIVERED | result::LOSE_INFO => {
                self.resync(Key::of(&sent), sent.time, ctx);
                self.doubts.sent(&sent);
                match self.pending.add(sent, sample.time.saturating_add(SETTLE_NS)) {
                    Added::Alone => {}
                    Added::Displaced(before) => self.end(&before, Fate::Taken, ctx),
                    Added::Full(sent) => self.end(&sent, Fate::Untracked, ctx),
                }
                Use::Ignored
            }
            result::IGNORED => self.end_here(&sent, Fate::Ignored, ctx),
            result::ALREADY_PENDING => self.end_here(&sent, Fate::AlreadyPending, ctx),
            result::OVERFLOW_FAIL => self.end_here(&sent, Fate::Overflow, ctx),
            _ => self.end_here(&sent, Fate::Unknown, ctx),
        };
        Ok(used)
    }

    /// Its delivery may have gone unseen, or be another one's.
    fn is_uncertain(&self, sent: &Sent) -> bool {
        !self.horizon.saw_all_since(sent.time.max(sent.certain_until)) || self.doubts.covers(sent)
    }

    /// What a record says became of a signal counts as an event.
    fn end_here(&mut self, sent: &Sent, fate: Fate, ctx: &mut Context) -> Use {
        self.end(sent, fate, ctx);
        if sent.hidden { Use::Ignored } else { Use::Relevant }
    }

    /// Shows a signal of which the records tell no more.
    fn end(&mut self, sent: &Sent, fate: Fate, ctx: &mut Context) {
        if sent.hidden {
            return;
        }
        let fate = match fate {
            Fate::Taken if self.is_uncertain(sent) => Fate::Unknown,
            Fate::Taken if names::is_absolute(sent.signo) => Fate::Gone,
            _ => fate,
        };
        ctx.discarded += u64::from(fate == Fate::Unknown);
        ctx.untracked += u64::from(fate == Fate::Untracked);
        self.sums.ended(sent, fate);
        self.emit(&ShownSignal::new(sent, shown::result(fate, sent.signo)), ctx);
    }

    fn emit(&self, shown: &ShownSignal, ctx: &mut Context) {
        let sent = &shown.sent;
        let Sender { pid, tid, comm, .. } = sent.sender;
        let subject = Subject { time: sent.time, cpu: sent.cpu, pid, tid, comm };
        ctx.emit(&SENT, subject, shown, sent.stack.filter(|_| self.args.common.stacks()));
    }

    fn on_deliver(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        let fields = &plan.delivered;
        let signo = signo(fields.sig.read_i32(sample.raw)?);
        let code = fields.code.read_i32(sample.raw)?;
        let handler = fields.handler.read_u64(sample.raw)?;
        let (pid, tid) = (sample.pid, sample.tid);
        let mut arrival = Arrival { time: sample.time, pid, tid, handler };
        for (id, group) in [(tid, false), (pid, true)] {
            self.resync(Key { id, group, signo }, sample.time, ctx);
        }
        let mut sent = self.pending.take(tid, pid, signo, code);
        if signo == SIGKILL {
            match sent {
                Some(_) => {
                    let other = self.endings.killed(pid);
                    self.put_back(other, sample.time, ctx);
                }
                None => {
                    let look_at = sample.time.saturating_add(SETTLE_NS);
                    let living = || threads_of(pid, ctx);
                    let deadly = self.endings.told((pid, tid), sample.time, &mut self.pending, living, look_at);
                    sent = deadly.map(|Deadly { sent, time, tid }| {
                        (arrival.time, arrival.tid) = (time, tid);
                        sent
                    });
                }
            }
        }
        match sent {
            Some(sent) => return Ok(self.arrive(&sent, &arrival, ctx)),
            None if signo != SIGKILL && ctx.scope.cpus().is_none() && self.is_asked_for(signo) => {
                let comm = ctx.tasks.comm(tid);
                self.unsent += u64::from(self.is_ours(tid, comm.as_bytes(), ctx));
            }
            None => {}
        }
        Ok(Use::Ignored)
    }

    fn arrive(&mut self, sent: &Sent, arrival: &Arrival, ctx: &mut Context) -> Use {
        if sent.hidden {
            return Use::Ignored;
        }
        if self.is_uncertain(sent) {
            return self.end_here(sent, Fate::Unknown, ctx);
        }
        let Arrival { time, pid, tid, handler } = *arrival;
        let delay_ns = time.saturating_sub(sent.time);
        self.sums.ended(sent, Fate::Delivered { delay_ns });
        let is_named = handler > 1 && self.args.common.stacks();
        let function = if is_named { ctx.user_address(handler, pid) } else { None };
        let delivery = Some(Delivery { delay_ns, tid, handler, function });
        self.emit(&ShownSignal { delivery, ..ShownSignal::new(sent, Value::Word("delivered")) }, ctx);
        Use::Relevant
    }

    /// A signal that did not end its process after all waits again.
    fn put_back(&mut self, sent: Option<Sent>, now: Timestamp, ctx: &mut Context) {
        if let Some(gone) = sent.and_then(|sent| self.pending.put_back(sent, now.saturating_add(SETTLE_NS))) {
            self.end(&gone, Fate::Taken, ctx);
        }
    }

    /// Asks /proc whether a process still ends.
    fn look_at_ending(&mut self, pid: i32, now: Timestamp, ctx: &mut Context) {
        let lives = ctx.process_signals_from_proc(pid).is_some();
        match self.endings.looked(pid, lives, crate::sys::monotonic_ns(), now) {
            Looked::Nothing => {}
            Looked::Waits(sent) => {
                let result = Value::Phrase { word: "pending", text: "not delivered yet" };
                let why = Value::Phrase { word: "ending", text: "its process is ending" };
                self.emit(&ShownSignal { why, ..ShownSignal::new(&sent, result) }, ctx);
            }
            Looked::Ended(Deadly { sent, time, tid }) => {
                self.arrive(&sent, &Arrival { time, pid, tid, handler: 0 }, ctx);
            }
        }
    }

    /// Asks /proc whether nothing waits in a queue that may be out of step.
    fn look_whether_empty(&mut self, key: Key, ctx: &Context) {
        let from = crate::sys::monotonic_ns();
        let Some(state) = state_of(key, ctx) else { return self.doubts.answer(key, None) };
        let mask = if key.group { state.shared } else { state.pending };
        if !SignalState::has(mask, key.signo) && state.state != b't' {
            self.doubts.answer(key, Some(Empty { from, to: crate::sys::monotonic_ns() }));
        }
    }

    /// All up to `now` was seen: a queue that was empty before has nothing from then.
    #[inline]
    fn resync(&mut self, key: Key, now: Timestamp, ctx: &mut Context) {
        let Some(empty) = self.doubts.take_answer(key, now) else { return };
        for sent in self.pending.take_older(key, empty.from) {
            self.end(&sent, Fate::Taken, ctx);
        }
        // Of one that was sent meanwhile nobody knows whether it had gone by then.
        if self.pending.queue(key).is_none_or(|queue| queue.sent.iter().all(|sent| sent.time > empty.to)) {
            self.doubts.was_empty(key, empty);
        }
    }

    /// Asks /proc what has become of the signals of a queue. Some are taken without an event.
    fn look(&mut self, key: Key, now: Timestamp, ctx: &mut Context) {
        let living = state_of(key, ctx);
        let looked_at = crate::sys::monotonic_ns();
        let horizon = self.horizon;
        let Some(queue) = self.pending.queue(key) else { return };
        let waits = |state: &SignalState| {
            let mask = if key.group { state.shared } else { state.pending };
            // What a tracer holds back is in no mask.
            SignalState::has(mask, key.signo) || state.state == b't'
        };
        let Some(state) = living.filter(waits) else {
            match queue.absent {
                // Records up to that moment were seen, and none told of a delivery.
                Some(Absent { at, gone }) if now >= at => {
                    let fate = if gone { Fate::TargetEnded } else { Fate::Taken };
                    queue.absent = None;
                    queue.look_at = now.saturating_add(SETTLE_NS);
                    for sent in self.pending.take_older(key, at) {
                        self.end(&sent, fate, ctx);
                    }
                }
                Some(_) => {}
                None => queue.absent = Some(Absent { at: looked_at, gone: living.is_none() }),
            }
            return;
        };
        queue.absent = None;
        queue.blocked = SignalState::has(state.blocked, key.signo);
        let why = why_pending(&state, key.signo);
        let settled = now.saturating_sub(SETTLE_NS);
        let mut fresh = Vec::new();
        for sent in &mut queue.sent {
            // Of the queued ones some may have been taken, and others have come.
            if !names::is_real_time(key.signo) && horizon.saw_all_since(sent.time.max(sent.certain_until)) {
                sent.certain_until = looked_at;
            }
            if !sent.shown && sent.time <= settled {
                sent.shown = true;
                fresh.push(sent.clone());
            }
        }
        let waits_unseen = queue.sent.iter().any(|sent| !sent.shown);
        queue.look_at = now.saturating_add(if waits_unseen { SETTLE_NS } else { AGAIN_NS });
        for sent in fresh {
            let result = Value::Phrase { word: "pending", text: "not delivered yet" };
            self.emit(&ShownSignal { why: why.clone(), ..ShownSignal::new(&sent, result) }, ctx);
        }
    }
}

/// The threads of a process that live, as far as records tell.
fn threads_of(pid: i32, ctx: &Context) -> FxHashSet<i32> {
    ctx.tasks.living().filter(|(_, process)| *process == pid).map(|(tid, _)| tid).collect()
}

/// What /proc says of the owner of a queue. None: it has gone.
fn state_of(key: Key, ctx: &Context) -> Option<SignalState> {
    if key.group {
        ctx.process_signals_from_proc(key.id)
    } else {
        ctx.signals_from_proc(key.id).filter(SignalState::is_alive)
    }
}

/// A number that is no signal's becomes 0.
fn signo(number: i32) -> u8 {
    u8::try_from(number).ok().filter(|&signo| signo <= names::LAST).unwrap_or(0)
}

/// Why a signal waits, as far as one can see from outside.
fn why_pending(state: &SignalState, signo: u8) -> Value {
    let (word, text) = match state.state {
        b't' => ("traced", "its tracer holds it"),
        b'T' => ("stopped", "it is stopped"),
        _ if SignalState::has(state.blocked, signo) => ("blocked", "it blocks the signal"),
        b'D' => ("uninterruptible", "it is in an uninterruptible wait (D)"),
        _ => ("not_scheduled", "it has not run since"),
    };
    Value::Phrase { word, text }
}

impl Profiler for Signal {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.require_host_pids(
            "the kernel's signal events carry the host's task numbers, which mean nothing in this pid namespace",
        )?;
        self.takes_stacks = setup.stacks;
        let (evsel, format) = setup.tracepoint("signal:signal_generate")?;
        let field = |name: &str| format.require(name).cloned();
        let generated = Generated {
            sig: field("sig")?,
            code: field("code")?,
            comm: field("comm")?,
            pid: field("pid")?,
            group: field("group")?,
            result: field("result")?,
            context: ContextFlags::of(&format),
        };
        let generate = evlist.add(evsel.binding(Binding::Cpu).callchain_if(setup.stacks, 0))?;
        let (evsel, format) = setup.tracepoint("signal:signal_deliver")?;
        let field = |name: &str| format.require(name).cloned();
        let delivered = Delivered { sig: field("sig")?, code: field("code")?, handler: field("sa_handler")? };
        let deliver = evlist.add(evsel.binding(Binding::Cpu))?;
        self.plan = Some(SignalEvents { generate, deliver, generated, delivered });
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let tasks = TaskMatch::new(self.args.filter.as_ref(), setup);
        let format = setup.format("signal:signal_generate")?;
        let of_signal = self.args.signals.as_ref().and_then(|signals| Filter::parse(&signals.text(), &format).ok());
        let of_task = tasks.filter("comm", "pid", &format).filter(Filter::is_short);
        if of_task.is_none() && !tasks.is_all() {
            note_too_long(setup);
        }
        let both = Filter::all_of([of_task.clone(), of_signal.clone()]);
        evlist.narrow(plan.generate, [both, of_task, of_signal]);
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Ignored) };
        if event == plan.generate {
            self.on_generate(sample, ctx)
        } else if event == plan.deliver {
            self.on_deliver(sample, ctx)
        } else {
            Ok(Use::Ignored)
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx);
        TickOutcome::default()
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { .. } => ctx.tasks.follow_ancestry(),
            Event::Task { record, time, .. } => self.on_task(record, time, ctx),
            Event::Stopped { now } => self.on_stop(now, ctx),
            Event::Lost(window) | Event::LostSide(window) => self.on_loss(window),
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.pending.iter().chain(self.endings.iter()).filter_map(|sent| sent.stack));
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        for sent in self.pending.iter().chain(self.endings.iter()).filter(|sent| !sent.hidden) {
            self.sums.waits(sent);
        }
        let table = report.delta(&SIGNALS, self.sums.take_rows());
        // Their deliveries may be among what was lost.
        if self.pending.iter().any(|sent| self.is_uncertain(sent)) {
            table.judged(Verdict::Unsure);
        }
        let unsent = std::mem::take(&mut self.unsent);
        report.total("sender_unknown", Value::Unsigned(unsent));
        if unsent > 0 {
            report.note(format!(
                "signal: {unsent} more were delivered that had been sent unseen, before the start perhaps"
            ));
        }
        Ok(())
    }
}

impl Signal {
    fn on_task(&mut self, record: &Record<'_>, time: Timestamp, ctx: &mut Context) {
        if let Record::Comm { pid, exec: true, .. } = *record {
            let other = self.endings.executed(pid, time);
            self.put_back(other, time, ctx);
        }
        let Record::Exit(exit) = record else { return };
        let other = self.endings.exited((exit.pid, exit.tid), time, !self.pending.is_empty());
        self.put_back(other, time, ctx);
        let mut queues = self.pending.of(exit.tid, false);
        let of_process = self.pending.of(exit.pid, true);
        if !of_process.is_empty() && !ctx.tasks.living().any(|(_, pid)| pid == exit.pid) {
            queues.extend(of_process);
        }
        for sent in queues.into_iter().flat_map(|key| self.pending.take_older(key, u64::MAX)).collect::<Vec<_>>() {
            self.end(&sent, Fate::TargetEnded, ctx);
        }
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) {
        self.endings.purge(&self.pending);
        for pid in self.endings.due(now, MOST_LOOKS) {
            self.look_at_ending(pid, now, ctx);
        }
        for key in self.pending.due(now, MOST_LOOKS) {
            self.look(key, now, ctx);
        }
        for key in self.doubts.answered(now) {
            self.resync(key, now, ctx);
        }
        for key in self.doubts.to_ask(MOST_LOOKS) {
            self.look_whether_empty(key, ctx);
        }
    }

    fn on_stop(&mut self, now: Timestamp, ctx: &mut Context) {
        for sent in self.endings.take() {
            self.put_back(Some(sent), now, ctx);
        }
        for sent in self.pending.take_unshown() {
            let result = Value::Phrase { word: "pending", text: "not delivered when the run ended" };
            self.emit(&ShownSignal::new(&sent, result), ctx);
        }
    }

    fn on_loss(&mut self, window: &LostWindow) {
        self.horizon.lost_until(window.end_ns);
        self.doubts.lost(window.end_ns);
    }
}
