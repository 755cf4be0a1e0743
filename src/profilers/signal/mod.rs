//! `signal`: who sends which signal to whom, and whether it is delivered.
//!
//! Events: `signal:signal_generate` and `signal:signal_deliver`, period 1, on whole CPUs: sender and receiver are two
//! tasks. Cost: two records per signal; the kernel applies `--filter` and `-t` to the first of them.
//!
//! `pending` has the signals that were sent and not delivered yet, `doubt` the queues that may be out of step after a
//! loss. `ending` finds the signal that ended a process, `names` has the kernel's numbers, `shown` is the line of a
//! signal, `table` holds the sums, `args` the options.

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
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Record, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{
    Context, Event, ExecutedPrograms, LostWindow, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use,
};
pub use crate::profilers::signal::args::SignalArgs;
use crate::profilers::signal::args::SignalList;
use crate::profilers::signal::doubt::{EmptyQueue, QueueDoubts};
use crate::profilers::signal::ending::{EndingLook, EndingProcesses, FatalSignal};
use crate::profilers::signal::names::{SIGKILL, SignalOrigin};
use crate::profilers::signal::pending::{
    AbsentSignal, AddOutcome, PendingSignals, QueueKey, SentSignal, SignalSender, SignalTarget,
};
use crate::profilers::signal::shown::{SENT, ShownSignal, SignalDelivery};
use crate::profilers::signal::table::{SIGNALS, SignalFate, SignalSums};
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
    const NARROWINGS: &'static [&'static str] = &["--filter COMM", "-t TID"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Signal::new(self)))
    }
}

/// The age at which an undelivered signal is looked up in /proc.
const SETTLE_NS: u64 = 50_000_000;
/// How often a pending signal is looked up again.
const AGAIN_NS: u64 = 1_000_000_000;
/// Limit of the look-ups in /proc per tick, since the rings fill meanwhile.
const MAX_LOOKS: usize = 256;

/// `TRACE_SIGNAL_*`, include/trace/events/signal.h.
mod result {
    pub const DELIVERED: i32 = 0;
    pub const IGNORED: i32 = 1;
    pub const ALREADY_PENDING: i32 = 2;
    pub const OVERFLOW_FAIL: i32 = 3;
    pub const LOSE_INFO: i32 = 4;
}

/// The opened events with their fields.
#[derive(Debug)]
struct SignalEvents {
    generate: EventId,
    deliver: EventId,
    generated: GenerateFields,
    delivered: DeliverFields,
}

#[derive(Debug)]
struct GenerateFields {
    sig: Field,
    code: Field,
    comm: Field,
    pid: Field,
    group: Field,
    result: Field,
    context: ContextFlags,
}

#[derive(Debug)]
struct DeliverFields {
    sig: Field,
    code: Field,
    handler: Field,
}

/// The profiler behind [`SignalArgs`].
#[derive(Debug)]
pub struct Signal {
    args: SignalArgs,
    plan: Option<SignalEvents>,
    executed: ExecutedPrograms,
    takes_stacks: bool,
    pending: PendingSignals,
    sums: SignalSums,
    endings: EndingProcesses,
    /// Signals sent before this horizon may have arrived unseen.
    horizon: LossHorizon,
    doubts: QueueDoubts,
    /// Number of delivered signals whose sending was not seen.
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
            executed: ExecutedPrograms::default(),
            takes_stacks: false,
            pending: PendingSignals::default(),
            sums: SignalSums::default(),
            endings: EndingProcesses::default(),
            horizon: LossHorizon::default(),
            doubts: QueueDoubts::default(),
            unsent: 0,
        }
    }

    fn is_ours(&self, tid: i32, comm: &[u8], ctx: &Context) -> bool {
        ctx.is_ours(tid) && self.args.filter.as_ref().is_none_or(|filter| filter.matches(comm))
    }

    /// True if `--signal` selects this signal.
    fn is_asked_for(&self, signo: u8) -> bool {
        self.args.signals.as_ref().is_none_or(|SignalList(list)| list.contains(&signo))
    }

    /// Reads a sent signal, with the kernel's result code. None: the signal is not wanted.
    fn read_generated(&self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Option<(SentSignal, i32)>> {
        let Some(plan) = &self.plan else { return Ok(None) };
        let fields = &plan.generated;
        let tid = fields.pid.read_i32(sample.raw)?;
        let comm = fields.comm.text(sample.raw)?;
        let signo = signo(fields.sig.read_i32(sample.raw)?);
        if !self.is_ours(tid, comm, ctx) || !self.is_asked_for(signo) {
            return Ok(None);
        }
        // A signal that was sent on another CPU is not shown, but may be ahead of a shown one in the queue.
        let hidden = !ctx.scope.has_cpu(sample.cpu);
        let result = fields.result.read_i32(sample.raw)?;
        let target = SignalTarget {
            tid,
            pid: ctx.tasks.pid(tid),
            comm: Comm::of_task(comm),
            group: fields.group.read_i32(sample.raw)? != 0,
        };
        let stack = if self.takes_stacks && !hidden { ctx.stack(sample) } else { None };
        let sender = SignalSender {
            pid: sample.pid,
            tid: sample.tid,
            comm: ctx.tasks.comm(sample.tid),
            interrupt: fields.context.in_interrupt(sample.raw),
        };
        let code = fields.code.read_i32(sample.raw)?;
        // The lineage of a process that signals itself is not needed.
        let is_of_interest =
            !hidden && !sender.interrupt && SignalOrigin::of(code) == SignalOrigin::Task && sender.pid != target.pid;
        let sent = SentSignal {
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
        Ok(Some((sent, result)))
    }

    /// Takes a sent signal. The signal counts as an event once its fate is known.
    fn on_generate(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some((sent, result)) = self.read_generated(sample, ctx)? else { return Ok(Use::Ignored) };
        if !sent.hidden {
            if self.args.common.draws_stacks() {
                ctx.weigh(sent.sender.pid, sent.sender.comm, sent.stack, 1);
            }
            self.sums.sent(&sent);
        }
        let used = match result {
            result::DELIVERED | result::LOSE_INFO => {
                self.resync(QueueKey::of(&sent), sent.time, ctx);
                self.doubts.sent(&sent);
                match self.pending.add(sent, sample.time.saturating_add(SETTLE_NS)) {
                    AddOutcome::Alone => {}
                    AddOutcome::Displaced(before) => self.end(&before, SignalFate::Taken, ctx),
                    AddOutcome::Full(sent) => self.end(&sent, SignalFate::Untracked, ctx),
                }
                Use::Ignored
            }
            result::IGNORED => {
                let kill = QueueKey { id: sent.target.pid, group: true, signo: SIGKILL };
                let is_killed = self.pending.queue(kill).is_some();
                self.end_here(&sent, if is_killed { SignalFate::Ending } else { SignalFate::Ignored }, ctx)
            }
            result::ALREADY_PENDING => self.end_here(&sent, SignalFate::AlreadyPending, ctx),
            result::OVERFLOW_FAIL => self.end_here(&sent, SignalFate::Overflow, ctx),
            _ => self.end_here(&sent, SignalFate::Unknown, ctx),
        };
        Ok(used)
    }

    /// True if the delivery of the signal may be unseen, or belong to another signal.
    fn is_uncertain(&self, sent: &SentSignal) -> bool {
        !self.horizon.saw_all_since(sent.time.max(sent.certain_until)) || self.doubts.covers(sent)
    }

    /// Ends a signal whose fate is known from a record, and counts it as an event.
    fn end_here(&mut self, sent: &SentSignal, fate: SignalFate, ctx: &mut Context) -> Use {
        self.end(sent, fate, ctx);
        if sent.hidden { Use::Ignored } else { Use::Relevant }
    }

    /// Counts and shows a signal that was not delivered, with its fate.
    fn end(&mut self, sent: &SentSignal, fate: SignalFate, ctx: &mut Context) {
        if sent.hidden {
            return;
        }
        let fate = match fate {
            SignalFate::Taken if self.is_uncertain(sent) => SignalFate::Unknown,
            SignalFate::Taken if names::is_absolute(sent.signo) => SignalFate::Gone,
            _ => fate,
        };
        ctx.view.discarded += u64::from(fate == SignalFate::Unknown);
        ctx.view.untracked += u64::from(fate == SignalFate::Untracked);
        self.sums.ended(sent, fate);
        self.emit(&ShownSignal::new(sent, shown::result(fate, sent.signo)), ctx);
    }

    fn emit(&self, shown: &ShownSignal, ctx: &mut Context) {
        let sent = &shown.sent;
        let SignalSender { pid, tid, comm, .. } = sent.sender;
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
            self.resync(QueueKey { id, group, signo }, sample.time, ctx);
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
                    sent = deadly.map(|FatalSignal { sent, time, tid }| {
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

    fn arrive(&mut self, sent: &SentSignal, arrival: &Arrival, ctx: &mut Context) -> Use {
        if sent.hidden {
            return Use::Ignored;
        }
        if self.is_uncertain(sent) {
            return self.end_here(sent, SignalFate::Unknown, ctx);
        }
        let Arrival { time, pid, tid, handler } = *arrival;
        let delay_ns = time.saturating_sub(sent.time);
        self.sums.ended(sent, SignalFate::Delivered { delay_ns });
        let is_named = handler > 1 && self.args.common.stacks();
        let function = if is_named { ctx.user_address(handler, pid) } else { None };
        let delivery = Some(SignalDelivery { delay_ns, tid, handler, function });
        self.emit(&ShownSignal { delivery, ..ShownSignal::new(sent, Value::Word("delivered")) }, ctx);
        Use::Relevant
    }

    /// Makes a signal pending again that did not end its process after all.
    fn put_back(&mut self, sent: Option<SentSignal>, now: Timestamp, ctx: &mut Context) {
        if let Some(gone) = sent.and_then(|sent| self.pending.put_back(sent, now.saturating_add(SETTLE_NS))) {
            self.end(&gone, SignalFate::Taken, ctx);
        }
    }

    /// Checks in /proc whether a process is still ending.
    fn look_at_ending(&mut self, pid: i32, now: Timestamp, ctx: &mut Context) {
        let lives = ctx.process_signals_from_proc(pid).is_some();
        match self.endings.looked(pid, lives, crate::sys::monotonic_ns(), now) {
            EndingLook::Nothing => {}
            EndingLook::Waits(sent) => {
                let result = Value::Phrase { word: "pending", text: "not delivered yet" };
                let why = Value::Phrase { word: "ending", text: "its process is ending" };
                self.emit(&ShownSignal { why, ..ShownSignal::new(&sent, result) }, ctx);
            }
            EndingLook::Ended(FatalSignal { sent, time, tid }) => {
                self.arrive(&sent, &Arrival { time, pid, tid, handler: 0 }, ctx);
            }
        }
    }

    /// Checks in /proc whether a queue that may be out of step is empty.
    fn look_whether_empty(&mut self, key: QueueKey, ctx: &Context) {
        let from = crate::sys::monotonic_ns();
        let Some(state) = state_of(key, ctx) else { return self.doubts.answer(key, None) };
        let mask = if key.group { state.shared } else { state.pending };
        if !SignalState::has(mask, key.signo) && state.state != b't' {
            self.doubts.answer(key, Some(EmptyQueue { from, to: crate::sys::monotonic_ns() }));
        }
    }

    /// Ends the signals that were sent before their queue was found empty. All records up to `now` were read.
    #[inline]
    fn resync(&mut self, key: QueueKey, now: Timestamp, ctx: &mut Context) {
        let Some(empty) = self.doubts.take_answer(key, now) else { return };
        for sent in self.pending.take_older(key, empty.from) {
            self.end(&sent, SignalFate::Taken, ctx);
        }
        // A signal that was sent while /proc was read may or may not have been taken by then.
        if self.pending.queue(key).is_none_or(|queue| queue.sent.iter().all(|sent| sent.time > empty.to)) {
            self.doubts.was_empty(key, empty);
        }
    }

    /// Checks in /proc whether the signals of a queue are still pending, since some are taken without an event.
    fn look(&mut self, key: QueueKey, now: Timestamp, ctx: &mut Context) {
        let living = state_of(key, ctx);
        let looked_at = crate::sys::monotonic_ns();
        let horizon = self.horizon;
        let Some(queue) = self.pending.queue(key) else { return };
        let waits = |state: &SignalState| {
            let mask = if key.group { state.shared } else { state.pending };
            // A signal that a ptrace tracer holds back is in no mask.
            SignalState::has(mask, key.signo) || state.state == b't'
        };
        let Some(state) = living.filter(waits) else {
            match queue.absent {
                // All records up to that time were read, and none was a delivery.
                Some(AbsentSignal { at_ns: at, gone }) if now >= at => {
                    let fate = if gone { SignalFate::TargetEnded } else { SignalFate::Taken };
                    queue.absent = None;
                    queue.look_at = now.saturating_add(SETTLE_NS);
                    for sent in self.pending.take_older(key, at) {
                        self.end(&sent, fate, ctx);
                    }
                }
                Some(_) => {}
                None => queue.absent = Some(AbsentSignal { at_ns: looked_at, gone: living.is_none() }),
            }
            return;
        };
        queue.absent = None;
        queue.blocked = SignalState::has(state.blocked, key.signo);
        let why = why_pending(&state, key.signo);
        let settled = now.saturating_sub(SETTLE_NS);
        let mut fresh = Vec::new();
        for sent in &mut queue.sent {
            // In a queue of real-time signals some may have been taken, and others have arrived.
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

/// The living threads of a process, as known from records.
fn threads_of(pid: i32, ctx: &Context) -> FxHashSet<i32> {
    ctx.tasks.living().filter(|(_, process)| *process == pid).map(|(tid, _)| tid).collect()
}

/// The signal masks of the owner of a queue, from /proc. None: the owner has ended.
fn state_of(key: QueueKey, ctx: &Context) -> Option<SignalState> {
    if key.group {
        ctx.process_signals_from_proc(key.id)
    } else {
        ctx.signals_from_proc(key.id).filter(SignalState::is_alive)
    }
}

/// The number of a signal; 0 for a number that no signal has.
fn signo(number: i32) -> u8 {
    u8::try_from(number).ok().filter(|&signo| signo <= names::LAST).unwrap_or(0)
}

/// Why a signal is pending, as far as /proc shows it.
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
        let generated = GenerateFields {
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
        let delivered = DeliverFields { sig: field("sig")?, code: field("code")?, handler: field("sa_handler")? };
        let deliver = evlist.add(evsel.binding(Binding::Cpu))?;
        self.plan = Some(SignalEvents { generate, deliver, generated, delivered });
        self.executed = ExecutedPrograms::ask(generate, evlist, setup);
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
            self.executed.take(event, sample, ctx);
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
            Event::TookOver { old, pid, .. } => self.pending.took_over(old, pid),
            Event::Stopped { now } => self.on_stop(now, ctx),
            Event::Lost(window, _) | Event::LostSide(window) => self.on_loss(window),
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
        // The lost records may include their deliveries.
        if self.pending.iter().any(|sent| self.is_uncertain(sent)) {
            table.judged(Verdict::Unsure);
        }
        if report.is_quiet {
            return Ok(());
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
            self.end(&sent, SignalFate::TargetEnded, ctx);
        }
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) {
        self.endings.purge(&self.pending);
        for pid in self.endings.due(now, MAX_LOOKS) {
            self.look_at_ending(pid, now, ctx);
        }
        for key in self.pending.due(now, MAX_LOOKS) {
            self.look(key, now, ctx);
        }
        for key in self.doubts.answered(now) {
            self.resync(key, now, ctx);
        }
        for key in self.doubts.to_ask(MAX_LOOKS) {
            self.look_whether_empty(key, ctx);
        }
    }

    fn on_stop(&mut self, now: Timestamp, ctx: &mut Context) {
        for sent in self.endings.take() {
            self.put_back(Some(sent), now, ctx);
        }
        for sent in self.pending.take_unshown() {
            let result = match self.is_uncertain(&sent) {
                true => shown::result(SignalFate::Unknown, sent.signo),
                false => Value::Phrase { word: "pending", text: "not delivered when the run ended" },
            };
            self.emit(&ShownSignal::new(&sent, result), ctx);
        }
    }

    fn on_loss(&mut self, window: &LostWindow) {
        self.horizon.lost_until(window.end_ns);
        self.doubts.lost(window.end_ns);
    }
}
