//! `net`: who connects to whom and how that ends, who sends again, and which packets are dropped, where and why.
//!
//! Events: `sock:inet_sock_set_state`, those of `tcp:` for resets and packets that are sent again, the errors of
//! sockets, the ends of accept with the addresses that it returns, dropped packets, and datagrams for full queues;
//! period 1, on all CPUs. Cost: some ten records per connection, one per accept, and one or two per dropped packet.
//!
//! While a connection is made its own port is not known, and most of its events come in foreign tasks. So it is followed
//! by the address of its socket, and belongs to the task that called connect, or accept.
//!
//! `connection` has the pairs and whose they are, `endpoint` the addresses, `closing` how connections end, `listeners`
//! the sockets whose queue for accept is full, `table` the other tables and the lines.

mod closing;
mod connection;
mod endpoint;
mod listeners;
mod table;

use std::fmt::Debug;
use std::net::IpAddr;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, ReturnedAddresses, RunScope, Setup, TaskGrouping, TickOutcome,
    Timestamp, Use,
};
use crate::profilers::net::closing::{ClosedSocket, Closings, ResolvedClosing};
use crate::profilers::net::connection::{
    Connection, ConnectionKey, ConnectionPhase, Connections, ConnectionsOf, Direction, Outcome, OutcomeOf,
};
use crate::profilers::net::endpoint::{Endpoint, Ends, EndsFields};
use crate::profilers::net::listeners::{LISTENERS, Listeners};
use crate::profilers::net::table::{
    CONNECTIONS, ConnectionLine, ConnectionRow, DROPS, DropRow, DropsOf, FULL_QUEUES, FullQueueOf, LINES, RESETS,
    RETRANSMITS, ReasonNames, ResetRow, ResetsOf, RetransmitsOf, TRAFFIC, TrafficOf, TrafficSums, reason_value,
};
use crate::relation::{EventMoment, OpenStart, PairEnd, PairOutcome, PairStart, Relation, RelationTerms};
use crate::report::{OccurrenceLayout, Schema, Subject, TableSchema, Value};
use crate::stats::{KeyedSums, TaskKey};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::{Field, PrintFmt, drift};

/// Who connects to whom, what is refused, reset, sent again or dropped, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who connects to whom, and what fails or is dropped, every second:
    perf-prof net -i 1000
  A line for each connection that is refused, reset or gets no answer:
    perf-prof net --failures
  What each process sends and receives, and with whom, for ten seconds:
    perf-prof net --bytes --for 10
  Connects of one service that take 100 ms or more, and in which code:
    perf-prof net -p nginx --than 100ms -g

Connections are those of TCP, over IPv4 and IPv6. Those that a process accepts
are one row for each of its ports. Addresses are numbers: no name is looked up.")]
pub struct NetArgs {
    /// A line for each connection that fails or is reset
    #[arg(long)]
    failures: bool,
    /// What is sent and received, too: a record for each call
    #[arg(long)]
    bytes: bool,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for NetArgs {
    const NAME: &'static str = "net";
    const TABLES: &'static [&'static dyn TableSchema] =
        &[&CONNECTIONS, &LISTENERS, &RETRANSMITS, &RESETS, &DROPS, &FULL_QUEUES, &TRAFFIC];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(LINES.layout());
    const WEIGHT: &'static str = "us";
    const NARROWINGS: &'static [&'static str] = &["-p PID"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Net::new(self)))
    }
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetStep {
    State,
    ResetReceived,
    ResetSent,
    /// A socket has an error, which its program may ask for.
    Error,
    SentAgain,
    /// The answer to a connect of a peer was sent again.
    AnswerSentAgain,
    /// Belongs to no task: left out when the run is about tasks.
    Dropped,
    /// As `Dropped`.
    QueueFull,
    /// Only with `--bytes`.
    Sent,
    /// As `Sent`.
    Received,
}

/// The events; each with its fields that are numbers, which not all kernels have, and the kernel's filter.
const EVENTS: [(&str, NetStep, [&str; 3], Option<&str>); 10] = [
    (
        "sock:inet_sock_set_state",
        NetStep::State,
        ["oldstate", "newstate", ""],
        Some("protocol == 6 && (newstate == 1 || newstate == 2 || newstate == 7 || newstate == 10)"),
    ),
    ("tcp:tcp_receive_reset", NetStep::ResetReceived, ["", "", ""], None),
    ("tcp:tcp_send_reset", NetStep::ResetSent, ["reason", "", ""], None),
    ("sock:inet_sk_error_report", NetStep::Error, ["error", "", ""], Some("protocol == 6 && error != 0")),
    ("tcp:tcp_retransmit_skb", NetStep::SentAgain, ["state", "", ""], None),
    ("tcp:tcp_retransmit_synack", NetStep::AnswerSentAgain, ["", "", ""], None),
    ("skb:kfree_skb", NetStep::Dropped, ["reason", "location", "protocol"], None),
    ("udp:udp_fail_queue_rcv_skb", NetStep::QueueFull, ["rc", "lport", ""], None),
    ("sock:sock_send_length", NetStep::Sent, ["ret", "family", "protocol"], Some("ret > 0")),
    // A look at what waits, MSG_PEEK, takes nothing.
    ("sock:sock_recv_length", NetStep::Received, ["ret", "family", "protocol"], Some("ret > 0 && !(flags & 2)")),
];

/// States of a connection, include/net/tcp_states.h.
const ESTABLISHED: u64 = 1;
const SYN_SENT: u64 = 2;
const SYN_RECV: u64 = 3;
const CLOSE: u64 = 7;
const LISTEN: u64 = 10;

#[derive(Debug)]
struct NetEvent {
    event: EventId,
    step: NetStep,
    socket: Option<Field>,
    ends: Option<EndsFields>,
    numbers: [Option<Field>; 3],
}

impl NetEvent {
    /// A number of the event. None: this kernel does not tell.
    fn number(&self, index: usize, raw: &[u8]) -> Result<Option<u64>> {
        Ok(self.numbers[index].as_ref().map(|field| field.read_u64(raw)).transpose()?)
    }
}

/// The profiler behind [`NetArgs`].
#[derive(Debug)]
struct Net {
    args: NetArgs,
    events: Vec<NetEvent>,
    scope: RunScope,
    accepts: Option<EventId>,
    addresses: Option<ReturnedAddresses>,
    relation: Relation<Connections>,
    /// The connections that wait for accept, by peer.
    waiting: FxHashMap<Endpoint, u64>,
    closings: Closings,
    /// Ports at which somebody listens.
    listened: FxHashSet<u16>,
    /// None: the run is about tasks.
    listeners: Option<Listeners>,
    /// The kernel tells the errors of sockets.
    tells_errors: bool,
    /// Some accept has returned no address, so connections that seem to wait may have been accepted.
    misses_accepts: bool,
    retransmits: KeyedSums<RetransmitsOf, u64>,
    resets: KeyedSums<ResetsOf, u64>,
    drops: KeyedSums<DropsOf, u64>,
    full_queues: KeyedSums<FullQueueOf, u64>,
    traffic: KeyedSums<TrafficOf, TrafficSums>,
    reset_reasons: ReasonNames,
    drop_reasons: ReasonNames,
}

/// Limit of connections that wait for accept and are known by their peer, and of ports at which somebody listens.
const MAX_WAITING: usize = 100_000;

impl Net {
    fn new(args: NetArgs) -> Net {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation = Relation::new(Connections, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, scope, accepts, addresses, waiting, closings, listened, listeners) = Default::default();
        let (retransmits, resets, drops, full_queues, traffic, reset_reasons, drop_reasons) = Default::default();
        let (tells_errors, misses_accepts) = (false, false);
        Net {
            args,
            events,
            scope,
            accepts,
            addresses,
            relation,
            waiting,
            closings,
            listened,
            listeners,
            tells_errors,
            misses_accepts,
            retransmits,
            resets,
            drops,
            full_queues,
            traffic,
            reset_reasons,
            drop_reasons,
        }
    }

    /// Adds an event, if this kernel has it.
    fn add_event(
        &mut self,
        (name, step, numbers, filter): (&str, NetStep, [&str; 3], Option<&str>),
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        let is_needed = step == NetStep::State;
        let (evsel, format) = match setup.tracepoint(name) {
            Err(_) if !is_needed => {
                setup.warn(format!("this kernel has no event {name}: what only it tells is left out"));
                return Ok(());
            }
            found => found?,
        };
        let field = |name: &str| format.field(name).cloned();
        let takes_stack = setup.stacks && step == NetStep::State;
        let event = evlist.add(evsel.binding(Binding::Cpu).callchain_if(takes_stack, 0))?;
        if let Some(filter) = filter {
            evlist.set_filter(event, filter)?;
        }
        let reasons = match step {
            NetStep::ResetSent => Some(&mut self.reset_reasons),
            NetStep::Dropped => Some(&mut self.drop_reasons),
            _ => None,
        };
        if let Some(reasons) = reasons {
            let table = PrintFmt::compile(&format).ok().and_then(|print| print.flag_table("reason"));
            let names = table.into_iter().flat_map(|table| table.entries);
            reasons.extend(names.map(|(number, name)| (number, name.into())));
        }
        self.tells_errors |= step == NetStep::Error;
        let socket = field("skaddr").or_else(|| field("sk"));
        let (ends, numbers) = (EndsFields::find(&format).ok(), numbers.map(field));
        if is_needed {
            drift::require(&format, "skaddr")?;
            EndsFields::find(&format)?;
        }
        self.events.push(NetEvent { event, step, socket, ends, numbers });
        Ok(())
    }

    /// Adds the ends of accept, with the addresses that it returns.
    fn add_accepts(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let calls = [libc::SYS_accept, libc::SYS_accept4];
        let event = evlist.add(setup.tracepoint("raw_syscalls:sys_exit")?.0)?;
        evlist.set_filter(event, format!("ret >= 0 && (id == {} || id == {})", calls[0], calls[1]))?;
        self.accepts = Some(event);
        let is_accept = |number: i32| calls.contains(&number.into());
        self.addresses = ReturnedAddresses::ask(event, is_accept, evlist, setup)?;
        Ok(())
    }

    /// A socket has changed its state.
    fn state(&mut self, [old, new]: [u64; 2], socket: u64, ends: Ends, sample: &Sample<'_>, ctx: &mut Context) {
        let key = |phase| ConnectionKey { socket, phase };
        if new == SYN_SENT || old == SYN_RECV && new == ESTABLISHED {
            let before = self.closings.reused(socket);
            self.resolve(before, ctx);
        }
        match (old, new) {
            (_, LISTEN) if self.listened.len() < MAX_WAITING => {
                self.listened.insert(ends.local.port);
            }
            (LISTEN, _) | (_, LISTEN) => {}
            (_, SYN_SENT) => {
                let is_ours = ctx.watched.is_all() || ctx.is_ours(sample.tid);
                if is_ours && self.scope.has_cpu(sample.cpu) {
                    let stack = ctx.stack(sample);
                    let comm = self.process(sample, ctx).comm;
                    let own = Connection { direction: Direction::Out, ends };
                    self.relation.start(key(ConnectionPhase::Connect), EventMoment::of(sample), comm, stack, own);
                }
            }
            (SYN_SENT | SYN_RECV, ESTABLISHED) if self.relation.since(key(ConnectionPhase::Connect)).is_some() => {
                self.relation.move_start(key(ConnectionPhase::Connect), key(ConnectionPhase::Connect), |start| {
                    start.own.ends = ends;
                });
                let end = PairEnd { moment: EventMoment::of(sample), own: Outcome::Opened };
                self.end(key(ConnectionPhase::Connect), &end, ctx);
            }
            (SYN_RECV, ESTABLISHED) => {
                let moment = EventMoment { pid: 0, tid: 0, ..EventMoment::of(sample) };
                let own = Connection { direction: Direction::In, ends };
                self.relation.start(key(ConnectionPhase::Accept), moment, Comm::default(), None, own);
                if self.waiting.len() >= MAX_WAITING {
                    self.waiting.clear(); // who accepts them will be unknown
                }
                self.waiting.insert(ends.peer, socket);
            }
            (_, CLOSE) => {
                let closed = ClosedSocket { socket, ends, moment: EventMoment::of(sample) };
                let resolved = self.closings.closed(closed);
                self.resolve(resolved, ctx);
            }
            _ => {}
        }
    }

    fn process(&self, sample: &Sample<'_>, ctx: &mut Context) -> TaskKey {
        let comm = ctx.tasks.comm(sample.tid);
        TaskGrouping::Process.key(sample.tid, comm, &mut ctx.tasks)
    }

    /// A call of accept has returned a connection.
    fn accepted(&mut self, sample: &Sample<'_>, ctx: &mut Context) {
        let Some(addresses) = &mut self.addresses else { return };
        addresses.ended(sample);
        let address = addresses.returned();
        let Some(peer) = address.as_ref().and_then(|address| Endpoint::parse(address)) else {
            self.misses_accepts |= address.is_none();
            return;
        };
        let Some(socket) = self.waiting.remove(&peer) else { return };
        let key = ConnectionKey { socket, phase: ConnectionPhase::Accept };
        if !(ctx.watched.is_all() || ctx.is_ours(sample.tid)) || !self.scope.has_cpu(sample.cpu) {
            self.relation.forget(key);
            return;
        }
        let TaskKey { pid, comm, .. } = self.process(sample, ctx);
        self.relation.move_start(key, key, |start| (start.pid, start.tid, start.comm) = (pid, sample.tid, comm));
        self.end(key, &PairEnd { moment: EventMoment::of(sample), own: Outcome::Opened }, ctx);
    }

    /// Ends a phase of a connection. One that is open now begins to live.
    fn end(&mut self, key: ConnectionKey, end: &PairEnd<Outcome>, ctx: &mut Context) {
        let PairOutcome::Ended(start) = self.relation.end(key, end, ctx) else { return };
        let start = *start;
        let ns = end.moment.time.saturating_sub(start.since);
        let is_long = key.phase != ConnectionPhase::Life && self.args.lengths.shows(ns);
        if is_long || self.args.failures && end.own.is_failure() {
            self.show(key.phase, &start, end.moment.time, Some(end.own), ctx);
        }
        if end.own == Outcome::Opened {
            let life = ConnectionKey { phase: ConnectionPhase::Life, ..key };
            let open = PairStart { stack: None, ..start.open };
            self.relation.add_start(life, OpenStart { since: end.moment.time, open });
        }
    }

    /// It is known now why sockets were closed.
    fn resolve(&mut self, resolved: impl IntoIterator<Item = ResolvedClosing>, ctx: &mut Context) {
        for ResolvedClosing { closed, outcome } in resolved {
            let ClosedSocket { socket, ends, moment } = closed;
            let key = |phase: &ConnectionPhase| ConnectionKey { socket, phase: *phase };
            let known = ConnectionPhase::ALL.iter().map(key).find(|key| self.relation.since(*key).is_some());
            let Some(key) = known else { continue };
            if key.phase == ConnectionPhase::Accept && self.waiting.get(&ends.peer) == Some(&socket) {
                self.waiting.remove(&ends.peer);
            }
            let own = outcome.map_or_else(|| self.unexplained(key.phase), |outcome| outcome.of_phase(key.phase));
            self.end(key, &PairEnd { moment, own }, ctx);
        }
    }

    /// How a phase ended after which no event told an error or a reset.
    fn unexplained(&self, phase: ConnectionPhase) -> Outcome {
        match phase {
            ConnectionPhase::Connect if self.tells_errors => Outcome::GivenUp,
            ConnectionPhase::Connect => Outcome::Failed,
            ConnectionPhase::Accept if !self.misses_accepts && self.addresses.is_some() => Outcome::NeverAccepted,
            ConnectionPhase::Accept | ConnectionPhase::Life => Outcome::Closed,
        }
    }

    /// Whose the connection with this socket is. None: it is not of the tasks that the run is about.
    fn whose(&self, socket: u64, ends: Ends, ctx: &Context) -> Option<ConnectionsOf> {
        let key = |phase: &ConnectionPhase| ConnectionKey { socket, phase: *phase };
        let start = ConnectionPhase::ALL.iter().find_map(|phase| self.relation.get(key(phase)));
        if let Some(start) = start {
            let is_known = ctx.watched.is_all() || start.open.pid != 0;
            return is_known.then(|| ConnectionsOf::of_start(start));
        }
        // A connection that is older than the run.
        let is_in = self.listened.contains(&ends.local.port);
        let direction = if is_in { Direction::In } else { Direction::Out };
        ctx.watched.is_all().then(|| ConnectionsOf::new(&Connection { direction, ends }, 0, Comm::default()))
    }

    /// The row of traffic over a socket.
    fn traffic_of(&self, socket: u64, task: TaskKey, [family, protocol]: [u16; 2]) -> TrafficOf {
        let key = |phase: &ConnectionPhase| ConnectionKey { socket, phase: *phase };
        let connection = ConnectionPhase::ALL.iter().find_map(|phase| self.relation.get(key(phase)));
        let (direction, peer, port) = connection.map_or((None, None, 0), |start| {
            let ConnectionsOf { direction, peer, port, .. } = ConnectionsOf::of_start(start);
            (Some(direction), peer, port)
        });
        TrafficOf { task, family, protocol, direction, peer, port }
    }

    fn reset(&mut self, is_sent: bool, reason: Option<u64>, socket: u64, ends: Ends, ctx: &Context) {
        let reason = reason.map(|reason| reason as u32);
        let Some(mut connections) = self.whose(socket, ends, ctx) else { return };
        let mut from: Option<IpAddr> = None;
        if socket == 0 {
            // The answer to a packet for which there is no socket.
            connections = ConnectionsOf { direction: Direction::In, peer: None, port: ends.local.port, ..connections };
            from = Some(ends.peer.address);
        }
        *self.resets.sum(ResetsOf { connections, from, is_sent, reason }) += 1;
    }

    fn dropped(&mut self, [reason, location, protocol]: [Option<u64>; 3], ctx: &mut Context) {
        let place = location.and_then(|location| ctx.kernel_address(location, 0));
        let (reason, protocol) = (reason.map(|reason| reason as u32), protocol.unwrap_or(0) as u16);
        *self.drops.sum(DropsOf { reason, place, protocol }) += 1;
    }

    /// Hands over the occurrence of a connection. `outcome`: None if its phase goes on.
    fn show(
        &self,
        phase: ConnectionPhase,
        start: &OpenStart<Connection>,
        time: u64,
        outcome: Option<Outcome>,
        ctx: &mut Context,
    ) {
        let OpenStart { since, open } = start;
        let Connection { direction, ends } = open.own;
        let (ns, has_task) = (time.saturating_sub(*since), open.pid != 0);
        let line = ConnectionLine { ns, direction, ends, phase, has_task, outcome };
        let subject = Subject { time, cpu: open.cpu, pid: open.pid, tid: open.tid, comm: open.comm };
        ctx.emit(&LINES, subject, &line, open.stack);
    }

    fn show_open(&self, due: &[(ConnectionKey, OpenStart<Connection>)], now: u64, ctx: &mut Context) {
        let is_wanted = |open: &PairStart<Connection>| ctx.watched.is_all() || open.pid != 0;
        let due: Vec<_> = due.iter().filter(|(_, start)| is_wanted(&start.open)).collect();
        due.into_iter().for_each(|(key, start)| self.show(key.phase, start, now, None, ctx));
    }

    /// The rows of the interval: what ended, and what waits.
    fn rows(&mut self, now: Timestamp) -> Vec<ConnectionRow> {
        let mut rows: FxHashMap<ConnectionsOf, ConnectionRow> = FxHashMap::default();
        for (OutcomeOf { connections, outcome, .. }, sums) in self.relation.rows.take() {
            let row = rows.entry(connections).or_insert_with(|| ConnectionRow::new(connections));
            row.outcomes[outcome as usize] += sums.latency.distribution.count();
            if outcome == Outcome::Opened {
                row.latency.merge(&sums.latency);
                row.than += sums.than;
            }
        }
        for (connections, open) in self.relation.waiting_by(now, |_, start| ConnectionsOf::of_start(start)) {
            let row = rows.entry(connections).or_insert_with(|| ConnectionRow::new(connections));
            row.now = Some(open.count);
            row.oldest_ns = Some(now.saturating_sub(open.oldest.since));
        }
        // Of connections that nobody has accepted it is not known whose they are.
        let is_wanted = |row: &ConnectionRow| self.listeners.is_some() || row.connections.comm != Comm::default();
        rows.into_values().filter(is_wanted).collect()
    }
}

impl Profiler for Net {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.scope = setup.scope.clone();
        let is_about_tasks = !setup.watched.is_all();
        let is_wanted = |step| match step {
            NetStep::Dropped | NetStep::QueueFull => !is_about_tasks,
            NetStep::Sent | NetStep::Received => self.args.bytes,
            _ => true,
        };
        for event in EVENTS.into_iter().filter(|(_, step, ..)| is_wanted(*step)).collect::<Vec<_>>() {
            self.add_event(event, evlist, setup)?;
        }
        if is_about_tasks {
            setup.inform("dropped packets and full queues belong to no task: they are left out".to_owned());
        } else {
            self.listeners = Some(Listeners::new(setup.host));
        }
        self.add_accepts(evlist, setup)
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if self.accepts == Some(event) {
            self.accepted(sample, ctx);
            return Ok(Use::Relevant);
        }
        if let Some(addresses) = self.addresses.as_mut().filter(|addresses| addresses.event == event) {
            addresses.take(sample);
            return Ok(Use::Ignored);
        }
        let Some(of) = self.events.iter().find(|of| of.event == event) else { return Ok(Use::Ignored) };
        let (raw, step) = (sample.raw, of.step);
        let numbers = [of.number(0, raw)?, of.number(1, raw)?, of.number(2, raw)?];
        let socket = of.socket.as_ref().map_or(Ok(0), |field| field.read_u64(raw))?;
        let ends = of.ends.as_ref().and_then(|fields| fields.read(raw));
        let [first, second] = [numbers[0], numbers[1]].map(Option::unwrap_or_default);
        match (step, ends) {
            (NetStep::Dropped, _) => self.dropped(numbers, ctx),
            (NetStep::QueueFull, ends) => {
                let port = ends.map_or(second as u16, |ends| ends.peer.port);
                let of = FullQueueOf { port, address: ends.map(|ends| ends.peer.address), errno: first as i32 };
                *self.full_queues.sum(of) += 1;
            }
            (NetStep::Sent | NetStep::Received, _) => {
                if !ctx.is_ours(sample.tid) || !self.scope.has_cpu(sample.cpu) {
                    return Ok(Use::Ignored);
                }
                let kind = [numbers[1], numbers[2]].map(|number| number.unwrap_or_default() as u16);
                let of = self.traffic_of(socket, self.process(sample, ctx), kind);
                let sums = self.traffic.sum(of);
                let traffic = if step == NetStep::Sent { &mut sums.sent } else { &mut sums.received };
                traffic.bytes += first;
                traffic.calls += 1;
            }
            (_, None) => return Ok(Use::Ignored), // of a family that has no such addresses
            (NetStep::State, Some(ends)) => self.state([first, second], socket, ends, sample, ctx),
            (NetStep::ResetReceived, Some(ends)) => {
                self.closings.reset_received(sample.cpu, socket);
                self.reset(false, None, socket, ends, ctx);
            }
            (NetStep::ResetSent, Some(ends)) => {
                self.reset(true, numbers[0], socket, ends, ctx);
                let resolved = self.closings.reset_sent(sample.cpu, socket);
                self.resolve(resolved, ctx);
            }
            (NetStep::Error, Some(ends)) => {
                let resolved = self.closings.error(sample.cpu, ends, first as i32, sample.time);
                self.resolve(resolved, ctx);
            }
            (NetStep::SentAgain | NetStep::AnswerSentAgain, Some(ends)) => {
                let is_answer = step == NetStep::AnswerSentAgain;
                let connections = if is_answer {
                    // The socket is the one that listens.
                    let connection = Connection { direction: Direction::In, ends };
                    ctx.watched.is_all().then(|| ConnectionsOf::new(&connection, 0, Comm::default()))
                } else {
                    self.whose(socket, ends, ctx)
                };
                let state = if is_answer { SYN_RECV as u8 } else { first as u8 };
                if let Some(connections) = connections {
                    *self.retransmits.sum(RetransmitsOf { connections, state }) += 1;
                }
            }
        }
        Ok(Use::Relevant)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        match event {
            Event::Started { .. } => {
                self.listened = self.listeners.as_mut().map(Listeners::begin).unwrap_or_default();
            }
            Event::Stopped { now } => {
                let resolved = self.closings.settle(u64::MAX);
                self.resolve(resolved, ctx);
                let due = self.relation.open_lines_at_end(now, ctx);
                self.show_open(&due, now, ctx);
            }
            Event::Lost(window, _) => {
                self.waiting.clear();
                self.closings.lost(window.cpu);
                self.addresses.iter_mut().for_each(|addresses| addresses.forget(window.cpu));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let resolved = self.closings.settle(now);
        self.resolve(resolved, ctx);
        let due = self.relation.tick(now, ctx);
        self.show_open(&due, now, ctx);
        TickOutcome::default()
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let unpaired = self.relation.end_interval(now, report);
        let rows = self.rows(now);
        let in_text = rows.iter().any(|row| row.than > 0) || !self.args.lengths.only_than();
        let top = self.args.top as usize;
        let verdict = unpaired.verdict(false);
        let connections = report.delta(&CONNECTIONS, rows).judged(verdict).below(unpaired.in_words());
        connections.text_rows(top).in_text(in_text);
        if let Some(listeners) = &mut self.listeners {
            let (rows, counted) = listeners.take();
            let dropped = counted.filter(|[_, drops]| *drops > 0).map(|[overflows, drops]| {
                format!("the kernel has dropped {drops} packets that ask for connections, {overflows} for a full queue")
            });
            let is_any = !rows.is_empty() || dropped.is_some();
            report.delta(&LISTENERS, rows).below(dropped).text_rows(top).in_text(in_text && is_any);
            if let Some([overflows, drops]) = counted {
                report.total("listen_overflows", Value::Unsigned(overflows));
                report.total("listen_drops", Value::Unsigned(drops));
            }
        }
        let reason = |of: &ResetsOf| reason_value(of.reason, &self.reset_reasons);
        let resets = self.resets.drain().map(|(of, count)| ResetRow { of, reason: reason(&of), count });
        let reason = |of: &DropsOf| reason_value(of.reason, &self.drop_reasons);
        let drops = self.drops.drain().map(|(of, count)| DropRow { of, reason: reason(&of), count });
        add_table(report, &RETRANSMITS, self.retransmits.drain(), top, in_text);
        add_table(report, &RESETS, resets, top, in_text);
        add_table(report, &DROPS, drops, top, in_text);
        add_table(report, &FULL_QUEUES, self.full_queues.drain(), top, in_text);
        if self.args.bytes {
            add_table(report, &TRAFFIC, self.traffic.drain(), top, in_text);
        }
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.drops.keys().filter_map(|of| of.place));
    }
}

/// Adds a table that text shows only if it has rows.
fn add_table<R: Clone + Debug + Send>(
    report: &mut Report,
    schema: &'static Schema<R>,
    rows: impl Iterator<Item = R>,
    top: usize,
    in_text: bool,
) {
    let rows: Vec<R> = rows.collect();
    let is_any = !rows.is_empty();
    report.delta(schema, rows).text_rows(top).in_text(in_text && is_any);
}
