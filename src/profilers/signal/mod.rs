//! `signal`: who sends which signal to whom, and what becomes of it.
//!
//! Events: `signal:signal_generate` and `signal:signal_deliver`, period 1, on whole CPUs: sender and receiver are two tasks.
//! Cost: two records per signal; `--filter` and `-t` are left to the kernel for the first of them.
//!
//! `pending` keeps what was sent and has not arrived, `names` knows the kernel's numbers, `table` holds the sums.

mod names;
mod pending;
mod table;

use anyhow::{Result, bail};
use rustc_hash::FxHashSet;

use crate::cli::CommonArgs;
use crate::cli::values::{self, CommList};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Binding, EventId};
use crate::perf::{Record, Sample};
use crate::profiler::{Context, LostWindow, Profiler, Report, Setup, Timestamp};
use crate::profilers::ProfilerArgs;
use crate::profilers::signal::names::{DefaultAction, Origin, SIGKILL};
use crate::profilers::signal::pending::{Absent, Added, Key, Pending, Sender, Sent, Target};
use crate::profilers::signal::table::{COLUMNS, Fate, Sums};
use crate::profilers::task_state::filters::{Match, for_kernel};
use crate::stats::value::{Part, Shape, Subject, Value};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::procfs::{self, SignalState};
use crate::tep::Field;

/// Who sends which signal to whom, and whether it arrives
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who kills nginx?
    perf-prof signal --filter nginx
  Every signal to one process, with the stack of its sender:
    perf-prof signal -p nginx -g
  Only a table per second of who sends what to whom:
    perf-prof signal -i 1000 | grep -v ' -> '
  All that a command and its children get:
    perf-prof signal -- ./job

A line per signal, once it is known what became of it: it is delivered, ignored,
or merged into an equal one that waits already. One that does not arrive within
a moment is shown with the reason, and once more when it does.")]
pub struct SignalArgs {
    /// Only signals sent to tasks of these names: nginx,java*
    #[arg(long, value_name = "COMM,...", value_parser = values::comm_list)]
    filter: Option<CommList>,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for SignalArgs {
    const NAME: &'static str = "signal";
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
struct Plan {
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
    /// Latency flags of the record.
    flags: Option<Field>,
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
    plan: Option<Plan>,
    own: [i32; 2],
    /// `-C`
    cpus: Option<Vec<u32>>,
    takes_stacks: bool,
    pending: Pending,
    sums: Sums,
    /// Processes whose threads were told to end, since the last tick: one signal was behind that.
    ended: FxHashSet<i32>,
    /// Signals sent before this may have arrived unseen.
    lost_until: u64,
    /// Delivered, and not seen when they were sent.
    unsent: u64,
}

static SHAPE: Shape = Shape {
    keys: &[
        "signo",
        "signal",
        "code",
        "from",
        "interrupt",
        "target.tid",
        "target.pid",
        "target.comm",
        "group",
        "result",
        "why",
        "delay_ns",
        "action",
        "handler",
        "receiver_tid",
        "info_lost",
        "function",
    ],
    line: &[
        Part::Value { key: 1, width: 11 },
        Part::Text("  "),
        Part::If(4, &[Part::Text("an interrupt of ")]),
        Part::Subject,
        Part::Text(" -> "),
        Part::Value { key: 7, width: 0 },
        Part::Text(" "),
        Part::Value { key: 5, width: 0 },
        Part::IfNot(8, &[Part::Text(" (thread)")]),
        Part::Text(", "),
        Part::Value { key: 2, width: 0 },
        Part::Text(": "),
        Part::Value { key: 9, width: 0 },
        Part::If(10, &[Part::Text(": "), Part::Value { key: 10, width: 0 }]),
        Part::If(11, &[Part::Text(" after "), Part::Value { key: 11, width: 0 }, Part::Text(" ms")]),
        Part::If(14, &[Part::Text(" to thread "), Part::Value { key: 14, width: 0 }]),
        Part::If(12, &[Part::Text(", "), Part::Value { key: 12, width: 0 }]),
        Part::If(13, &[Part::Text(" "), Part::Value { key: 13, width: 0 }]),
        Part::If(16, &[Part::Text(" "), Part::Value { key: 16, width: 0 }]),
        Part::If(15, &[Part::Text(", without its details")]),
    ],
};

/// How a signal is shown.
struct Shown {
    result: Value,
    why: Value,
    delay: Value,
    action: Value,
    handler: Value,
    function: Value,
    receiver: Value,
}

impl Shown {
    fn new(result: Value) -> Shown {
        let none = || Value::None;
        let (why, delay, action, handler, function, receiver) = (none(), none(), none(), none(), none(), none());
        Shown { result, why, delay, action, handler, function, receiver }
    }
}

impl Signal {
    fn new(args: SignalArgs) -> Signal {
        Signal {
            args,
            plan: None,
            own: [0; 2],
            cpus: None,
            takes_stacks: false,
            pending: Pending::default(),
            sums: Sums::default(),
            ended: FxHashSet::default(),
            lost_until: 0,
            unsent: 0,
        }
    }

    fn is_ours(&self, tid: i32, comm: &[u8], ctx: &Context<'_>) -> bool {
        ctx.watched.contains(tid)
            && !self.own.contains(&tid)
            && self.args.filter.as_ref().is_none_or(|filter| filter.matches(comm))
    }

    fn on_generate(&mut self, sample: &Sample<'_>, ctx: &mut Context<'_>) -> Result<()> {
        const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40; // hard, soft, NMI: TRACE_FLAG_*, include/linux/trace_events.h
        ctx.ignored = true; // it counts when it is known what became of it
        let Some(plan) = &self.plan else { return Ok(()) };
        let fields = &plan.generated;
        let tid = fields.pid.read_i32(sample.raw)?;
        let comm = fields.comm.text(sample.raw)?;
        if !self.is_ours(tid, comm, ctx) || self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&sample.cpu)) {
            return Ok(());
        }
        let result = fields.result.read_i32(sample.raw)?;
        let flags = fields.flags.as_ref().and_then(|flags| flags.read_u64(sample.raw).ok()).unwrap_or(0);
        let target = Target {
            tid,
            pid: ctx.tasks.pid(tid),
            comm: Comm::new(comm),
            group: fields.group.read_i32(sample.raw)? != 0,
        };
        let stack = if self.takes_stacks { ctx.stack(sample) } else { None };
        let sender = Sender {
            pid: sample.pid,
            tid: sample.tid,
            comm: ctx.tasks.comm(sample.tid),
            interrupt: flags & IN_INTERRUPT != 0,
        };
        let sent = Sent {
            time: sample.time,
            cpu: sample.cpu,
            sender,
            target,
            signo: signo(fields.sig.read_i32(sample.raw)?),
            code: fields.code.read_i32(sample.raw)?,
            info_lost: result == result::LOSE_INFO,
            stack,
            shown: false,
            certain_until: 0,
        };
        if self.args.common.draws_stacks() {
            ctx.weigh(sender.pid, sender.comm, stack, 1);
        }
        self.sums.sent(&sent);
        match result {
            result::DELIVERED | result::LOSE_INFO => {
                match self.pending.add(sent, sample.time.saturating_add(SETTLE_NS)) {
                    Added::Alone => {}
                    Added::Displaced(before) => self.end(&before, Fate::Taken, ctx),
                    Added::Full(sent) => self.end(&sent, Fate::Unknown, ctx),
                }
            }
            result::IGNORED => self.end_here(&sent, Fate::Ignored, ctx),
            result::ALREADY_PENDING => self.end_here(&sent, Fate::AlreadyPending, ctx),
            result::OVERFLOW_FAIL => self.end_here(&sent, Fate::Overflow, ctx),
            _ => self.end_here(&sent, Fate::Unknown, ctx),
        }
        Ok(())
    }

    /// What a record says became of a signal counts as an event.
    fn end_here(&mut self, sent: &Sent, fate: Fate, ctx: &mut Context<'_>) {
        ctx.ignored = false;
        self.end(sent, fate, ctx);
    }

    /// Shows a signal of which the records tell no more.
    fn end(&mut self, sent: &Sent, fate: Fate, ctx: &mut Context<'_>) {
        let unseen = sent.time.max(sent.certain_until) < self.lost_until && fate == Fate::Taken;
        let fate = if unseen { Fate::Unknown } else { fate };
        *ctx.discarded += u64::from(fate == Fate::Unknown);
        self.sums.ended(sent, fate);
        let phrase = |word, text| Value::Phrase { word, text };
        let result = match fate {
            Fate::Ignored if DefaultAction::of(sent.signo) == DefaultAction::Continues => {
                phrase("ignored", "ignored, but resumed if it was stopped")
            }
            Fate::Ignored => Value::Word("ignored"),
            Fate::AlreadyPending => phrase("already_pending", "merged into an equal one that waits already"),
            Fate::Overflow => phrase("overflow", "refused, the queue of the target's user is full"),
            Fate::Taken => phrase("taken", "taken by sigwait or a signalfd"),
            Fate::TargetEnded => phrase("target_ended", "not seen to arrive, the target has ended"),
            Fate::Unknown | Fate::Delivered { .. } => phrase("unknown", "nobody knows, records were lost"),
        };
        self.emit(sent, Shown::new(result), ctx);
    }

    fn emit(&self, sent: &Sent, shown: Shown, ctx: &mut Context<'_>) {
        let code = names::code(sent.signo, sent.code);
        let values = [
            Value::Unsigned(sent.signo.into()),
            Value::Word(names::signal(sent.signo)),
            code.map_or(Value::Signed(sent.code.into()), Value::Word),
            Value::Word(Origin::of(sent.code).word()),
            Value::Bool(sent.sender.interrupt),
            Value::Signed(sent.target.tid.into()),
            Value::Signed(sent.target.pid.into()),
            Value::Comm(sent.target.comm),
            Value::Bool(sent.target.group),
            shown.result,
            shown.why,
            shown.delay,
            shown.action,
            shown.handler,
            shown.receiver,
            if sent.info_lost { Value::Bool(true) } else { Value::None },
            shown.function,
        ];
        let Sender { pid, tid, comm, .. } = sent.sender;
        let subject = Subject { time: sent.time, cpu: sent.cpu, pid, tid, comm };
        ctx.emit(subject, &SHAPE, values, sent.stack.filter(|_| self.args.common.stacks()));
    }

    fn on_deliver(&mut self, sample: &Sample<'_>, ctx: &mut Context<'_>) -> Result<()> {
        ctx.ignored = true;
        let Some(plan) = &self.plan else { return Ok(()) };
        let fields = &plan.delivered;
        let signo = signo(fields.sig.read_i32(sample.raw)?);
        let code = fields.code.read_i32(sample.raw)?;
        let handler = fields.handler.read_u64(sample.raw)?;
        let (pid, tid) = (sample.pid, sample.tid);
        let mut sent = self.pending.take(tid, pid, signo, code);
        // Every thread of a process that ends is told so with a SIGKILL of its own (get_signal, kernel/signal.c).
        if signo == SIGKILL && self.ended.insert(pid) && sent.is_none() {
            sent = self.pending.take_fatal(pid);
        }
        let Some(sent) = sent else {
            if signo != SIGKILL && self.cpus.is_none() {
                let comm = ctx.tasks.comm(tid);
                self.unsent += u64::from(self.is_ours(tid, comm.as_bytes(), ctx));
            }
            return Ok(());
        };
        if sent.time.max(sent.certain_until) < self.lost_until {
            self.end_here(&sent, Fate::Unknown, ctx);
            return Ok(());
        }
        ctx.ignored = false;
        let delay_ns = sample.time.saturating_sub(sent.time);
        self.sums.ended(&sent, Fate::Delivered { delay_ns });
        let (action, address) = match handler {
            0 => (Value::Phrase { word: "default", text: DefaultAction::of(sent.signo).text() }, Value::None),
            1 => (Value::Phrase { word: "ignore", text: "ignored there" }, Value::None),
            address => (Value::Word("handler"), Value::Address(address)),
        };
        let receiver = if sent.target.tid == tid { Value::None } else { Value::Signed(tid.into()) };
        let place = if handler > 1 && self.args.common.stacks() { ctx.user_address(handler, pid) } else { None };
        let arrived = Shown {
            delay: Value::Ns(delay_ns),
            action,
            handler: address,
            function: place.map_or(Value::None, Value::Place),
            receiver,
            ..Shown::new(Value::Word("delivered"))
        };
        self.emit(&sent, arrived, ctx);
        Ok(())
    }

    /// Asks /proc what has become of the signals of a queue. Some are taken without an event.
    fn look(&mut self, key: Key, now: Timestamp, ctx: &mut Context<'_>) {
        let state = ctx.signals_from_proc(key.id);
        let looked_at = crate::sys::monotonic_ns();
        let lost_until = self.lost_until;
        let Some(queue) = self.pending.queue(key) else { return };
        let living = state.filter(|state| !matches!(state.state, b'Z' | b'X'));
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
            if !names::is_real_time(key.signo) && sent.time.max(sent.certain_until) >= lost_until {
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
            self.emit(&sent, Shown { why: why.clone(), ..Shown::new(result) }, ctx);
        }
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
        if procfs::is_nested(setup.host) {
            bail!(
                "the kernel's signal events carry the host's task numbers, which mean nothing in this pid namespace: run on the host, or in a container with --pid=host"
            );
        }
        self.own = setup.own;
        self.cpus = setup.target.wanted.clone();
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
            flags: format.field("common_flags").cloned(),
        };
        let evsel = evsel.binding(Binding::Cpu);
        let generate = evlist.add(if setup.stacks { evsel.callchain(0) } else { evsel })?;
        let (evsel, format) = setup.tracepoint("signal:signal_deliver")?;
        let field = |name: &str| format.require(name).cloned();
        let delivered = Delivered { sig: field("sig")?, code: field("code")?, handler: field("sa_handler")? };
        let deliver = evlist.add(evsel.binding(Binding::Cpu))?;
        self.plan = Some(Plan { generate, deliver, generated, delivered });
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        for cut in self.args.filter.iter().flat_map(CommList::iter).filter(|pattern| pattern.is_cut()) {
            setup.warn(format!("{:?} is cut to the 15 bytes that the kernel keeps of a name", cut.typed()));
        }
        let fixed = setup.watched.fixed();
        let tasks = Match { comms: self.args.filter.as_ref(), tids: fixed.as_deref() };
        let format = setup.format("signal:signal_generate")?;
        match tasks.text("comm", "pid").and_then(|text| for_kernel(&text, &format)) {
            Some(text) => evlist.set_filter(plan.generate, text)?,
            None if tasks.is_all() => {}
            None => setup.note("the task filter is too long for the kernel: it is evaluated here".to_owned()),
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context<'_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Ok(()) };
        if event == plan.generate {
            self.on_generate(sample, ctx)
        } else if event == plan.deliver {
            self.on_deliver(sample, ctx)
        } else {
            Ok(())
        }
    }

    fn task(&mut self, record: &Record<'_>, _time: Timestamp, _cpu: u32, ctx: &mut Context<'_>) {
        let Record::Exit(exit) = record else { return };
        let mut queues = self.pending.of(exit.tid, false);
        let of_process = self.pending.of(exit.pid, true);
        if !of_process.is_empty() && !ctx.tasks.living().any(|(_, pid)| pid == exit.pid) {
            queues.extend(of_process);
        }
        for sent in queues.into_iter().flat_map(|key| self.pending.take_older(key, u64::MAX)).collect::<Vec<_>>() {
            self.end(&sent, Fate::TargetEnded, ctx);
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        self.ended.clear();
        for key in self.pending.due(now, MOST_LOOKS) {
            self.look(key, now, ctx);
        }
    }

    fn stopped(&mut self, _now: Timestamp, ctx: &mut Context<'_>) {
        for sent in self.pending.take_unshown() {
            let result = Value::Phrase { word: "pending", text: "not delivered when the run ended" };
            self.emit(&sent, Shown::new(result), ctx);
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.pending.iter().filter_map(|sent| sent.stack));
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        for sent in self.pending.iter() {
            self.sums.waits(sent);
        }
        report.table(&COLUMNS, self.sums.take_rows());
        let unsent = std::mem::take(&mut self.unsent);
        report.total("sender_unknown", Value::Unsigned(unsent));
        if unsent > 0 {
            report.note(format!(
                "signal: {unsent} more were delivered that had been sent unseen, before the start perhaps"
            ));
        }
        Ok(())
    }

    fn lost(&mut self, window: &LostWindow) {
        self.lost_until = self.lost_until.max(window.end_ns);
    }
}
