//! `net`: who connects to whom and how that ends, who sends again, and which packets are dropped, where and why.
//!
//! Events: `sock:inet_sock_set_state`, those of `tcp:` for resets and packets that are sent again, the errors of
//! sockets, the ends of accept with the addresses that it returns, dropped packets, and datagrams for full queues;
//! period 1, on all CPUs. Cost: some ten records per connection, one per accept, and one or two per dropped packet.
//!
//! While a connection is made its own port is not known, and most of its events come in foreign tasks. So it is followed
//! by the address of its socket, and belongs to the task that called connect, or accept.
//!
//! `events` has the events, `connection` the pairs and whose they are, `endpoint` the addresses, `accepts` who accepts,
//! `closing` how connections end, `listeners` the sockets whose queue for accept is full, `sums` what is counted of packets,
//! `flow` single connections, `older` those from before the run, `owners` the processes of sockets, `table` the other tables and the lines.

mod accepts;
mod closing;
mod connection;
mod endpoint;
mod events;
mod flow;
mod listeners;
mod older;
mod owners;
mod sums;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TaskGrouping, TickOutcome, Timestamp, Use,
};
use crate::profilers::net::accepts::Accepts;
use crate::profilers::net::closing::{ClosedSocket, ClosingCause, Closings, ResolvedClosing};
use crate::profilers::net::connection::{
    Connection, ConnectionKey, ConnectionOutcome, ConnectionPhase, Connections, ConnectionsOf, Direction, OutcomeOf,
};
use crate::profilers::net::endpoint::Ends;
use crate::profilers::net::events::{CLOSE, ESTABLISHED, LISTEN, NetEvents, NetStep, SYN_RECV, SYN_SENT};
use crate::profilers::net::flow::{FLOWS, Flow};
use crate::profilers::net::listeners::{LISTENERS, Listeners};
use crate::profilers::net::older::OlderConnections;
use crate::profilers::net::owners::SocketOwners;
use crate::profilers::net::sums::PacketSums;
use crate::profilers::net::table::{
    CONNECTIONS, ConnectionLine, ConnectionRow, DROPS, FULL_QUEUES, LINES, RESETS, RETRANSMITS, ResetsOf,
    RetransmitsOf, TRAFFIC, TrafficOf,
};
use crate::relation::{EventMoment, OpenStart, PairEnd, PairOutcome, PairStart, Relation, RelationTerms};
use crate::report::{OccurrenceLayout, Subject, TableSchema, Value};
use crate::stats::{SumKey, TaskKey};
use crate::symbol::StackId;
use crate::task::Comm;

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
  The life of the connections with one peer, with round trips and windows:
    perf-prof net --flow 10.0.0.7:5432 -i 1000
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
    /// The connections of this peer, or at this address of ours, in detail
    #[arg(long, value_name = "ADDRESS:PORT")]
    flow: Option<SocketAddr>,
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
        &[&CONNECTIONS, &LISTENERS, &RETRANSMITS, &RESETS, &DROPS, &FULL_QUEUES, &TRAFFIC, &FLOWS];
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

/// Limit of rows of connections that wait: those beyond it are one row for each direction.
const MAX_WAITING_ROWS: usize = 4096;

/// The profiler behind [`NetArgs`].
#[derive(Debug)]
struct Net {
    args: NetArgs,
    events: NetEvents,
    scope: RunScope,
    accepts: Accepts,
    relation: Relation<Connections>,
    closings: Closings,
    /// Ports at which somebody listens.
    listened: FxHashSet<u16>,
    /// None: the run is about tasks.
    listeners: Option<Listeners>,
    packets: PacketSums,
    flow: Option<Flow>,
    older: OlderConnections,
}

impl Net {
    fn new(args: NetArgs) -> Net {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation = Relation::new(Connections, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, scope, accepts, closings, listened, listeners, packets, flow, older) = Default::default();
        Net { args, events, scope, accepts, relation, closings, listened, listeners, packets, flow, older }
    }

    /// A socket has changed its state.
    fn state(&mut self, [old, new]: [u64; 2], socket: u64, ends: Ends, sample: &Sample<'_>, ctx: &mut Context) {
        let key = |phase| ConnectionKey { socket, phase };
        if new == ESTABLISHED {
            self.older.reused(&ends);
        }
        let begins = new == SYN_SENT || old == SYN_RECV && new == ESTABLISHED;
        if begins && self.phase_of(socket).is_some() {
            let before = self.closings.reused(socket);
            self.resolve(before, ctx);
        }
        match (old, new) {
            (_, LISTEN) => {
                self.listened.insert(ends.local.port);
            }
            (LISTEN, _) => {}
            (_, SYN_SENT) if ctx.is_ours(sample.tid) && self.scope.has_cpu(sample.cpu) => {
                let stack = ctx.stack(sample);
                let comm = self.process(sample, ctx).comm;
                let own = Connection { direction: Direction::Out, ends };
                self.relation.start(key(ConnectionPhase::Connect), EventMoment::of(sample), comm, stack, own);
            }
            (SYN_SENT | SYN_RECV, ESTABLISHED) if self.relation.since(key(ConnectionPhase::Connect)).is_some() => {
                self.relation.move_start(key(ConnectionPhase::Connect), key(ConnectionPhase::Connect), |start| {
                    start.own.ends = ends;
                });
                let end = PairEnd { moment: EventMoment::of(sample), own: ConnectionOutcome::Opened };
                self.end(key(ConnectionPhase::Connect), &end, ctx);
            }
            (SYN_RECV, ESTABLISHED) => {
                let moment = EventMoment { pid: 0, tid: 0, ..EventMoment::of(sample) };
                let own = Connection { direction: Direction::In, ends };
                self.relation.start(key(ConnectionPhase::Accept), moment, Comm::default(), None, own);
                self.accepts.wait(ends.peer, socket, sample.time);
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
    fn accepted(&mut self, sample: &Sample<'_>, ctx: &mut Context) -> Use {
        let sockets = self.accepts.ended(sample);
        let mut keys = sockets.map(|socket| ConnectionKey { socket, phase: ConnectionPhase::Accept });
        let Some(key) = keys.next() else { return Use::Ignored };
        if let Some(other) = keys.next() {
            [key, other].into_iter().chain(keys).for_each(|key| self.relation.hide(key));
            return Use::Relevant;
        }
        if !ctx.is_ours(sample.tid) || !self.scope.has_cpu(sample.cpu) {
            self.relation.forget(key);
            return Use::Ignored;
        }
        let TaskKey { pid, comm, .. } = self.process(sample, ctx);
        self.relation.move_start(key, key, |start| (start.pid, start.tid, start.comm) = (pid, sample.tid, comm));
        self.end(key, &PairEnd { moment: EventMoment::of(sample), own: ConnectionOutcome::Opened }, ctx);
        Use::Relevant
    }

    /// Whether a connection with this pid is one that the run is about; 0: whose it is is not known.
    fn is_wanted(&self, pid: i32) -> bool {
        self.listeners.is_some() || pid != 0
    }

    /// The phase in which the connection with this socket is.
    fn phase_of(&self, socket: u64) -> Option<ConnectionKey> {
        let mut keys = ConnectionPhase::ALL.iter().map(|phase| ConnectionKey { socket, phase: *phase });
        keys.find(|key| self.relation.get(*key).is_some())
    }

    /// Ends a phase of a connection. One that is open now begins to live.
    fn end(&mut self, key: ConnectionKey, end: &PairEnd<ConnectionOutcome>, ctx: &mut Context) {
        let PairOutcome::Ended(start) = self.relation.end(key, end, ctx) else { return };
        let start = *start;
        let ns = end.moment.time.saturating_sub(start.since);
        let is_long = key.phase != ConnectionPhase::Life && self.args.lengths.shows(ns);
        let is_of_flow = self.flow.as_ref().is_some_and(|flow| flow.is_of(&start.open.own.ends));
        let is_asked_for = is_long || is_of_flow || self.args.failures && end.own.is_failure();
        if is_asked_for && self.is_wanted(start.open.pid) {
            self.show(key.phase, &start, end.moment.time, Some(end.own), ctx);
        }
        if end.own == ConnectionOutcome::Opened {
            let life = ConnectionKey { phase: ConnectionPhase::Life, ..key };
            let open = PairStart { stack: None, ..start.open };
            self.relation.add_start(life, OpenStart { since: end.moment.time, open });
        }
    }

    /// It is known now why sockets were closed.
    fn resolve(&mut self, resolved: impl IntoIterator<Item = ResolvedClosing>, ctx: &mut Context) {
        for ResolvedClosing { closed, outcome } in resolved {
            let ClosedSocket { socket, ends, moment } = closed;
            let known = self.phase_of(socket).and_then(|key| Some((key, *self.relation.get(key)?)));
            // Another connection may have the memory of the socket by now.
            let Some((key, start)) = known.filter(|(_, start)| start.since <= moment.time) else { continue };
            if key.phase == ConnectionPhase::Accept {
                self.accepts.closed(ends.peer, socket);
            }
            let own = match outcome {
                // It has not been accepted, unless that went unseen.
                None | Some(ClosingCause::ResetSent)
                    if key.phase == ConnectionPhase::Accept && self.accepts.are_all_seen_since(start.since) =>
                {
                    ConnectionOutcome::NeverAccepted
                }
                None if key.phase != ConnectionPhase::Connect => ConnectionOutcome::Closed,
                None if has_no_port(&ends) && moment.tid == start.open.tid => ConnectionOutcome::Failed,
                None if self.events.tells_errors => ConnectionOutcome::GivenUp,
                None => ConnectionOutcome::Failed,
                Some(cause) => cause.of_phase(key.phase),
            };
            self.end(key, &PairEnd { moment, own }, ctx);
        }
    }

    /// Whose the connection with this socket is. None: it is not of the tasks that the run is about.
    fn whose(&self, socket: u64, ends: Ends, ctx: &Context) -> Option<ConnectionsOf> {
        if let Some(start) = self.phase_of(socket).and_then(|key| self.relation.get(key)) {
            return self.is_wanted(start.open.pid).then(|| ConnectionsOf::of_start(start));
        }
        // A connection that is older than the run.
        let is_in = self.listened.contains(&ends.local.port);
        let direction = if is_in { Direction::In } else { Direction::Out };
        let (pid, comm) = self.older.owner(&ends).unwrap_or_default();
        let is_wanted = self.is_wanted(pid) && (pid == 0 || ctx.is_ours(pid));
        is_wanted.then(|| ConnectionsOf::new(&Connection { direction, ends }, pid, comm))
    }

    /// The row of traffic over a socket.
    fn traffic_of(&self, socket: u64, task: TaskKey, [family, protocol]: [u16; 2]) -> TrafficOf {
        let connection = self.phase_of(socket).and_then(|key| self.relation.get(key));
        let (direction, peer, port) = connection.map_or((None, None, 0), |start| {
            let ConnectionsOf { direction, peer, port, .. } = ConnectionsOf::of_start(start);
            (Some(direction), peer, port)
        });
        TrafficOf { task, family, protocol, direction, peer, port }
    }

    fn reset(&mut self, is_sent: bool, reason: Option<u64>, socket: u64, ends: Ends, ctx: &Context) {
        let reason = reason.map(|reason| reason as u32);
        let Some(mut connections) = self.whose(socket, ends, ctx) else { return };
        let mut from = None;
        if socket == 0 {
            // The answer to a packet for which there is no socket.
            connections = ConnectionsOf { direction: Direction::In, peer: None, port: ends.local.port, ..connections };
            from = Some(ends.peer.address);
        }
        *self.packets.resets.sum(ResetsOf { connections, from, is_sent, reason }) += 1;
    }

    /// Bytes were sent or received.
    fn moved(
        &mut self,
        step: NetStep,
        [bytes, family, protocol]: [Option<u64>; 3],
        socket: u64,
        sample: &Sample<'_>,
        ctx: &mut Context,
    ) -> Use {
        if !ctx.is_ours(sample.tid) || !self.scope.has_cpu(sample.cpu) {
            return Use::Ignored;
        }
        let kind = [family, protocol].map(|number| number.unwrap_or_default() as u16);
        let of = self.traffic_of(socket, self.process(sample, ctx), kind);
        let sums = self.packets.traffic.sum(of);
        let traffic = if step == NetStep::Sent { &mut sums.sent } else { &mut sums.received };
        traffic.bytes += bytes.unwrap_or(0);
        traffic.calls += 1;
        Use::Relevant
    }

    /// Something happened to a connection.
    fn happened(
        &mut self,
        step: NetStep,
        numbers: [Option<u64>; 3],
        (socket, ends): (u64, Ends),
        sample: &Sample<'_>,
        ctx: &mut Context,
    ) {
        let [first, second, _] = numbers.map(Option::unwrap_or_default);
        match step {
            NetStep::State => self.state([first, second], socket, ends, sample, ctx),
            NetStep::ResetReceived => {
                self.closings.reset_received(sample.cpu, socket);
                self.reset(false, None, socket, ends, ctx);
            }
            NetStep::ResetSent => {
                self.reset(true, numbers[0], socket, ends, ctx);
                let resolved = self.closings.reset_sent(sample.cpu, socket);
                self.resolve(resolved, ctx);
            }
            NetStep::Error => {
                let resolved = self.closings.error(sample.cpu, ends, first as i32, sample.time);
                self.resolve(resolved, ctx);
            }
            NetStep::AnswerSentAgain if self.is_wanted(0) => {
                // The socket is the one that listens.
                let connections =
                    ConnectionsOf::new(&Connection { direction: Direction::In, ends }, 0, Comm::default());
                *self.packets.retransmits.sum(RetransmitsOf { connections, state: SYN_RECV as u8 }) += 1;
            }
            NetStep::SentAgain => {
                if let Some(connections) = self.whose(socket, ends, ctx) {
                    *self.packets.retransmits.sum(RetransmitsOf { connections, state: first as u8 }) += 1;
                }
            }
            _ => {}
        }
    }

    /// Hands over the occurrence of a connection. `outcome`: None if its phase goes on.
    fn show(
        &self,
        phase: ConnectionPhase,
        start: &OpenStart<Connection>,
        time: u64,
        outcome: Option<ConnectionOutcome>,
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
        let due = due.iter().filter(|(_, start)| self.is_wanted(start.open.pid));
        due.for_each(|(key, start)| self.show(key.phase, start, now, None, ctx));
    }

    /// The rows of the interval: what ended, and what waits.
    fn rows(&mut self, now: Timestamp) -> Vec<ConnectionRow> {
        let mut rows: FxHashMap<ConnectionsOf, ConnectionRow> = FxHashMap::default();
        for (OutcomeOf { connections, outcome, .. }, sums) in self.relation.rows.take() {
            let row = rows.entry(connections).or_insert_with(|| ConnectionRow::new(connections));
            row.outcomes[outcome as usize] += sums.latency.distribution.count();
            if outcome == ConnectionOutcome::Opened {
                row.latency.merge(&sums.latency);
                row.than += sums.than;
            }
        }
        // Of connections that nobody has accepted it is not known whose they are.
        let waiting = self.relation.waiting_by(now, |_, start| ConnectionsOf::of_start(start));
        for (connections, open) in waiting.into_iter().filter(|(connections, _)| self.is_wanted(connections.pid)) {
            let has_room = rows.len() < MAX_WAITING_ROWS || rows.contains_key(&connections);
            let connections = if has_room { connections } else { connections.others() };
            let row = rows.entry(connections).or_insert_with(|| ConnectionRow::new(connections));
            row.now = Some(row.now.unwrap_or(0) + open.count);
            row.oldest_ns = row.oldest_ns.max(Some(now.saturating_sub(open.oldest.since)));
        }
        let is_wanted = |row: &ConnectionRow| self.is_wanted(row.connections.pid) || row.connections.is_others();
        rows.into_values().filter(is_wanted).collect()
    }
}

/// A connect that ends in the call itself, before it got a port: there is none left (EADDRNOTAVAIL).
fn has_no_port(ends: &Ends) -> bool {
    ends.local.port == 0
}

impl Profiler for Net {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.scope = setup.scope.clone();
        let is_about_tasks = !setup.watched.is_all() || setup.scope.cpus().is_some();
        let is_wanted = |step| match step {
            NetStep::Dropped | NetStep::QueueFull => !is_about_tasks,
            NetStep::Sent | NetStep::Received => self.args.bytes,
            _ => true,
        };
        self.events = NetEvents::add_all(is_wanted, evlist, setup)?;
        let owners = Arc::new(SocketOwners::start(setup.host)?);
        if is_about_tasks {
            setup.inform("dropped packets and full queues belong to no task: they are left out".to_owned());
        } else {
            self.listeners = Some(Listeners::new(setup.host, owners.clone()));
        }
        // On which CPU an older connection was made is not known.
        if !evlist.is_forecast() && setup.scope.cpus().is_none() {
            self.older = OlderConnections::read(&owners);
        }
        self.accepts = Accepts::open(evlist, setup)?;
        self.flow = self.args.flow.map(|of| Flow::open(of, evlist, setup)).transpose()?;
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if self.accepts.is_end(event) {
            return Ok(self.accepted(sample, ctx));
        }
        if self.accepts.take(event, sample) {
            return Ok(Use::Ignored);
        }
        if let Some(flow) = &mut self.flow
            && flow.take(event, sample)?
        {
            return Ok(Use::Relevant);
        }
        let Some(of) = self.events.find(event) else { return Ok(Use::Ignored) };
        let (step, numbers, socket, ends) =
            (of.step, of.numbers(sample.raw)?, of.socket(sample.raw)?, of.ends(sample.raw));
        match (step, ends) {
            (NetStep::Dropped, _) => self.packets.dropped(numbers, ctx),
            (NetStep::QueueFull, ends) => self.packets.queue_full(ends, numbers),
            (NetStep::Sent | NetStep::Received, _) => return Ok(self.moved(step, numbers, socket, sample, ctx)),
            (_, None) => return Ok(Use::Ignored), // of a family that has no such addresses
            (_, Some(ends)) => {
                // A socket may become one of ours by the event, or be none any more after it.
                let is_known = self.is_wanted(0) || self.whose(socket, ends, ctx).is_some();
                self.happened(step, numbers, (socket, ends), sample, ctx);
                if !is_known && self.whose(socket, ends, ctx).is_none() {
                    return Ok(Use::Ignored);
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
                self.accepts.lost(window.cpu, window.end_ns);
                self.closings.lost(window.cpu);
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
            let (rows, counted) = listeners.take(report.is_quiet);
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
        self.packets.report(&self.events, report, top, in_text);
        if let Some(flow) = &mut self.flow {
            flow.report(report, top);
        }
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.packets.places());
    }
}
