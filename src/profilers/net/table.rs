//! The tables of `net`, and the line of a connection.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profilers::net::connection::{ConnectionOutcome, ConnectionPhase, ConnectionsOf, Direction};
use crate::profilers::net::endpoint::{Endpoint, Ends, address_value, port_value};
use crate::report::layout::{SUBJECT, detail, text, unless, when};
use crate::report::{Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, TaskKeyRow, Unit, Value};
use crate::stats::{Latency, SumKey, TaskKey};
use crate::symbol::StackId;

/// A row about the connections of a process with a peer, or at a port.
pub trait ConnectionsRow: 'static {
    fn connections(&self) -> &ConnectionsOf;
}

impl<R: ConnectionsRow> Column<R> {
    /// Five columns: direction, process, peer and port.
    const CONNECTIONS: [Column<R>; 5] = [
        Column::label("direction", "dir", |row| row.connections().direction.value()),
        Column::<R>::label("pid", "pid", |row| match row.connections().pid {
            0 => Value::None,
            pid => Value::Signed(pid.into()),
        })
        .if_any(),
        Column::label("comm", "comm", |row| Value::Comm(row.connections().comm)),
        Column::<R>::label("peer", "peer", |row| address_value(row.connections().peer)).if_any(),
        Column::label("port", "port", |row| port_value(row.connections().port)),
    ];
}

/// The meanings of [`Column::CONNECTIONS`].
const CONNECTIONS_MEANINGS: [Meaning; 5] = [
    ("direction", "`out`: made from here; `in`: made by the peer"),
    ("pid", "who called connect or accept; none: not known, since the connection is older than the run, for example"),
    ("comm", "the name of the process"),
    ("peer", "the address of the peer; none for `in`: those of all peers are one row"),
    ("port", "the port of the peer; for `in` our own"),
];

/// What became of connections in an interval.
#[derive(Clone, Debug)]
pub struct ConnectionRow {
    pub connections: ConnectionsOf,
    /// Times to connect, or to be accepted.
    pub latency: Latency,
    /// By [`ConnectionOutcome`].
    pub outcomes: [u64; ConnectionOutcome::ALL.len()],
    pub than: u64,
    /// Those that wait as the interval ends.
    pub now: Option<u64>,
    /// How long the longest of these has waited.
    pub oldest_ns: Option<u64>,
}

impl ConnectionRow {
    pub fn new(connections: ConnectionsOf) -> ConnectionRow {
        let (latency, outcomes, than, now, oldest_ns) = Default::default();
        ConnectionRow { connections, latency, outcomes, than, now, oldest_ns }
    }

    fn failures(&self) -> u64 {
        let failures = ConnectionOutcome::ALL.iter().filter(|outcome| outcome.is_failure());
        failures.map(|outcome| self.outcomes[*outcome as usize]).sum()
    }
}

impl ConnectionsRow for ConnectionRow {
    fn connections(&self) -> &ConnectionsOf {
        &self.connections
    }
}

impl LatencyRow for ConnectionRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

const MEANINGS: [Meaning; 17] = [
    CONNECTIONS_MEANINGS[0],
    CONNECTIONS_MEANINGS[1],
    CONNECTIONS_MEANINGS[2],
    CONNECTIONS_MEANINGS[3],
    CONNECTIONS_MEANINGS[4],
    ("refused", "connects that the peer, or its machine, refused"),
    ("timed_out", "connects, and connections, that got no answer"),
    ("failed", "connects that failed in another way: the peer is unreachable, or all ports are taken, for example"),
    ("given_up", "connects that the program gave up: it closed the socket, or was killed"),
    ("never_accepted", "closed before accept took them"),
    ("resets", "connections that ended with a reset, from either side"),
    ("reset_by_peer", "connections that ended with a reset from the peer"),
    ("reset", "connections that ended with a reset from here: closed with unread data, for example"),
    ("closed", "connections that ended, and were not reset"),
    ("than", "of those opened, those that took as long as the limit of `--than` or longer"),
    ("now", "connects without an answer, or connections that wait for accept, as the interval ends"),
    ("oldest_ns", "how long the oldest of these has waited"),
];

pub static CONNECTIONS: Schema<ConnectionRow> = Schema::<ConnectionRow>::new(
    "connections",
    &[
        Column::CONNECTIONS[0],
        Column::CONNECTIONS[1],
        Column::CONNECTIONS[2],
        Column::CONNECTIONS[3],
        Column::CONNECTIONS[4],
        Column::latency_count("opened"),
        Column::<ConnectionRow>::counter("refused", "refused", |row| outcome(row, ConnectionOutcome::Refused)).if_any(),
        Column::<ConnectionRow>::counter("timed_out", "timeout", |row| outcome(row, ConnectionOutcome::TimedOut))
            .if_any(),
        Column::<ConnectionRow>::counter("failed", "failed", |row| outcome(row, ConnectionOutcome::Failed)).if_any(),
        Column::<ConnectionRow>::counter("given_up", "given up", |row| outcome(row, ConnectionOutcome::GivenUp))
            .if_any(),
        Column::<ConnectionRow>::counter("never_accepted", "no accept", |row| {
            outcome(row, ConnectionOutcome::NeverAccepted)
        })
        .if_any(),
        Column::<ConnectionRow>::derived("resets", "reset", |row, _| {
            Value::Unsigned(
                row.outcomes[ConnectionOutcome::ResetByPeer as usize] + row.outcomes[ConnectionOutcome::Reset as usize],
            )
        })
        .additive()
        .if_any(),
        Column::<ConnectionRow>::counter("reset_by_peer", "", |row| outcome(row, ConnectionOutcome::ResetByPeer))
            .json_only(),
        Column::<ConnectionRow>::counter("reset", "", |row| outcome(row, ConnectionOutcome::Reset)).json_only(),
        Column::<ConnectionRow>::counter("closed", "closed", |row| outcome(row, ConnectionOutcome::Closed)).json_only(),
        Column::<ConnectionRow>::latency_total().json_only(),
        Column::<ConnectionRow>::latency_min().json_only(),
        Column::<ConnectionRow>::latency_mean().json_only(),
        Column::<ConnectionRow>::latency_stddev().json_only(),
        Column::<ConnectionRow>::latency_p50().json_only(),
        Column::<ConnectionRow>::latency_p95().json_only(),
        Column::<ConnectionRow>::latency_p99().json_only(),
        Column::latency_max(),
        Column::<ConnectionRow>::counter("than", "than", |row| &mut row.than).if_any(),
        Column::<ConnectionRow>::gauge("now", "now", |row| &mut row.now).if_any(),
        Column::<ConnectionRow>::gauge("oldest_ns", "", |row| &mut row.oldest_ns).us().json_only(),
    ],
)
.latencies()
.explained(&MEANINGS)
.titled("connections, and the time to connect or to be accepted")
.settled(|rows| rows.iter_mut().for_each(|row| row.now = row.now.or(Some(0))))
.ordered(|one, other| {
    let rank = |row: &ConnectionRow| {
        (Reverse(row.failures()), Reverse(row.latency.distribution.count()), Reverse(row.now), row.connections)
    };
    rank(one).cmp(&rank(other))
});

fn outcome(row: &mut ConnectionRow, outcome: ConnectionOutcome) -> &mut u64 {
    &mut row.outcomes[outcome as usize]
}

/// Packets that were sent again, in a state of their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RetransmitsOf {
    pub connections: ConnectionsOf,
    pub state: u8,
}

impl SumKey for RetransmitsOf {
    fn others(&self) -> RetransmitsOf {
        RetransmitsOf { connections: self.connections.others(), ..*self }
    }
}

type RetransmitRow = (RetransmitsOf, u64);

impl ConnectionsRow for RetransmitRow {
    fn connections(&self) -> &ConnectionsOf {
        &self.0.connections
    }
}

pub static RETRANSMITS: Schema<RetransmitRow> = Schema::<RetransmitRow>::new(
    "retransmits",
    &[
        Column::counter("packets", "packets", |(_, count)| count),
        Column::label("state", "state", |(of, _)| state_value(of.state)),
        Column::CONNECTIONS[0],
        Column::CONNECTIONS[1],
        Column::CONNECTIONS[2],
        Column::CONNECTIONS[3],
        Column::CONNECTIONS[4],
    ],
)
.explained(&[
    ("packets", "packets that were sent again"),
    (
        "state",
        "of the connection: in `syn_sent` the peer does not answer at all, in `syn_recv` our answer to it is repeated, in \
         `established` data is lost on the way, or its acknowledgement",
    ),
    CONNECTIONS_MEANINGS[0],
    CONNECTIONS_MEANINGS[1],
    CONNECTIONS_MEANINGS[2],
    CONNECTIONS_MEANINGS[3],
    CONNECTIONS_MEANINGS[4],
])
.titled("packets that were sent again")
.ordered(|(one, few), (other, many)| many.cmp(few).then(one.cmp(other)));

/// The states of a connection by number, include/net/tcp_states.h.
fn state_value(state: u8) -> Value {
    const STATES: [&str; 13] = [
        "",
        "established",
        "syn_sent",
        "syn_recv",
        "fin_wait1",
        "fin_wait2",
        "time_wait",
        "close",
        "close_wait",
        "last_ack",
        "listen",
        "closing",
        "new_syn_recv",
    ];
    match STATES.get(usize::from(state)) {
        None => Value::Unsigned(state.into()),
        Some(&"") => Value::None,
        Some(name) => Value::Word(name),
    }
}

/// Resets of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResetsOf {
    pub connections: ConnectionsOf,
    /// Who connects to a port at which nobody listens.
    pub from: Option<IpAddr>,
    pub is_sent: bool,
    /// None: this kernel does not tell.
    pub reason: Option<u32>,
}

impl SumKey for ResetsOf {
    fn others(&self) -> ResetsOf {
        ResetsOf { connections: self.connections.others(), from: None, ..*self }
    }
}

#[derive(Clone, Debug)]
pub struct ResetRow {
    pub of: ResetsOf,
    pub reason: Value,
    pub count: u64,
}

impl ConnectionsRow for ResetRow {
    fn connections(&self) -> &ConnectionsOf {
        &self.of.connections
    }
}

pub static RESETS: Schema<ResetRow> = Schema::<ResetRow>::new(
    "resets",
    &[
        Column::counter("resets", "resets", |row| &mut row.count),
        Column::label("what", "what", |row| Value::Word(if row.of.is_sent { "sent" } else { "received" })),
        Column::<ResetRow>::label("reason", "reason", |row| row.reason.clone()).if_any(),
        Column::CONNECTIONS[0],
        Column::CONNECTIONS[1],
        Column::CONNECTIONS[2],
        Column::<ResetRow>::label("peer", "peer", |row| address_value(row.of.connections.peer.or(row.of.from)))
            .if_any(),
        Column::CONNECTIONS[4],
    ],
)
.explained(&[
    ("resets", "how many"),
    ("what", "`sent` or `received`"),
    ("reason", "why it was sent, as the kernel calls it: `NO_SOCKET`: nobody listens at that port"),
    CONNECTIONS_MEANINGS[0],
    CONNECTIONS_MEANINGS[1],
    CONNECTIONS_MEANINGS[2],
    ("peer", "the address of the peer, if the connection was made from here or nobody listens at the port"),
    CONNECTIONS_MEANINGS[4],
])
.titled("resets")
.ordered(|one, other| other.count.cmp(&one.count).then(one.of.cmp(&other.of)));

/// What a process sends and receives over sockets of one kind, with one peer and port where they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrafficOf {
    pub task: TaskKey,
    pub family: u16,
    pub protocol: u16,
    pub direction: Option<Direction>,
    pub peer: Option<IpAddr>,
    pub port: u16,
}

impl SumKey for TrafficOf {
    fn others(&self) -> TrafficOf {
        TrafficOf { task: self.task.others(), direction: None, peer: None, port: 0, ..*self }
    }
}

/// Bytes and calls of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub bytes: u64,
    pub calls: u64,
}

/// What was sent, and what was received.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrafficSums {
    pub sent: Traffic,
    pub received: Traffic,
}

type TrafficRow = (TrafficOf, TrafficSums);

impl TaskKeyRow for TrafficRow {
    fn task(&self) -> &TaskKey {
        &self.0.task
    }
}

pub static TRAFFIC: Schema<TrafficRow> = Schema::<TrafficRow>::new(
    "traffic",
    &[
        Column::<TrafficRow>::counter("sent_bytes", "sent", |(_, sums)| &mut sums.sent.bytes).in_unit(Unit::Bytes),
        Column::counter("sends", "sends", |(_, sums)| &mut sums.sent.calls),
        Column::<TrafficRow>::counter("received_bytes", "received", |(_, sums)| &mut sums.received.bytes)
            .in_unit(Unit::Bytes),
        Column::counter("receives", "receives", |(_, sums)| &mut sums.received.calls),
        Column::label("protocol", "protocol", |(of, _)| socket_kind(of.family, of.protocol)),
        Column::<TrafficRow>::label("direction", "dir", |(of, _)| of.direction.map_or(Value::None, Direction::value))
            .if_any(),
        Column::TASK[0],
        Column::TASK[2],
        Column::<TrafficRow>::label("peer", "peer", |(of, _)| address_value(of.peer)).if_any(),
        Column::<TrafficRow>::label("port", "port", |(of, _)| port_value(of.port)).if_any(),
    ],
)
.explained(&[
    ("sent_bytes", "bytes that calls have sent"),
    ("sends", "calls that have sent some: messages, where the protocol has any"),
    ("received_bytes", "bytes that calls have received"),
    ("receives", "calls that have received some"),
    ("protocol", "`TCP`, `UDP`, `unix` and others; a number where it has no name here"),
    ("direction", "of connections of TCP that were made in the run: who made it, as in the table of connections"),
    ("peer", "of these, the address of the peer"),
    ("port", "of these, the port"),
])
.titled("what was sent and received")
.ordered(|(one, few), (other, many)| {
    let bytes = |sums: &TrafficSums| sums.sent.bytes.saturating_add(sums.received.bytes);
    bytes(many).cmp(&bytes(few)).then(one.cmp(other))
});

fn socket_kind(family: u16, protocol: u16) -> Value {
    match (i32::from(family), i32::from(protocol)) {
        (libc::AF_UNIX, _) => Value::Word("unix"),
        (libc::AF_NETLINK, _) => Value::Word("netlink"),
        (libc::AF_VSOCK, _) => Value::Word("vsock"),
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_TCP) => Value::Word("TCP"),
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_UDP) => Value::Word("UDP"),
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6) => Value::Word("ICMP"),
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_SCTP) => Value::Word("SCTP"),
        (libc::AF_INET | libc::AF_INET6, libc::IPPROTO_MPTCP) => Value::Word("MPTCP"),
        (family, protocol) => Value::Text(format!("{family}/{protocol}").into()),
    }
}

/// Packets that were dropped for one reason in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DropsOf {
    /// None: this kernel does not tell.
    pub reason: Option<u32>,
    pub place: Option<StackId>,
    /// The number of the protocol above Ethernet.
    pub protocol: u16,
}

impl SumKey for DropsOf {
    fn others(&self) -> DropsOf {
        DropsOf { place: None, ..*self }
    }
}

#[derive(Clone, Debug)]
pub struct DropRow {
    pub of: DropsOf,
    pub reason: Value,
    pub count: u64,
}

pub static DROPS: Schema<DropRow> = Schema::<DropRow>::new(
    "drops",
    &[
        Column::counter("packets", "packets", |row| &mut row.count),
        Column::<DropRow>::label("reason", "reason", |row| row.reason.clone()).if_any(),
        Column::<DropRow>::label("protocol", "protocol", |row| protocol_value(row.of.protocol)).if_any(),
        Column::place("place", "function", |row| &mut row.of.place),
    ],
)
.explained(&[
    ("packets", "packets that were dropped"),
    ("reason", "why, as the kernel calls it; none on kernels that do not tell"),
    ("protocol", "`IPv4`, `IPv6`, `ARP`, or the number of another protocol above Ethernet"),
    ("place", "the function of the kernel that dropped them"),
])
.titled("packets that were dropped")
.ordered(|one, other| other.count.cmp(&one.count).then(one.of.cmp(&other.of)));

fn protocol_value(protocol: u16) -> Value {
    match i32::from(protocol) {
        0 => Value::None,
        libc::ETH_P_IP => Value::Word("IPv4"),
        libc::ETH_P_IPV6 => Value::Word("IPv6"),
        libc::ETH_P_ARP => Value::Word("ARP"),
        other => Value::Text(format!("{other:#06x}").into()),
    }
}

/// Datagrams for a socket that could not take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FullQueueOf {
    pub port: u16,
    /// None: the kernel tells the port only, or there was no room.
    pub address: Option<IpAddr>,
    pub errno: i32,
}

impl SumKey for FullQueueOf {
    fn others(&self) -> FullQueueOf {
        FullQueueOf { port: 0, address: None, ..*self }
    }
}

pub static FULL_QUEUES: Schema<(FullQueueOf, u64)> = Schema::<(FullQueueOf, u64)>::new(
    "full_queues",
    &[
        Column::counter("datagrams", "datagrams", |(_, count)| count),
        Column::<(FullQueueOf, u64)>::label("address", "address", |(of, _)| address_value(of.address)).if_any(),
        Column::label("port", "port", |(of, _)| port_value(of.port)),
        Column::label("cause", "cause", |(of, _)| match -of.errno {
            libc::ENOMEM => Value::Phrase { word: "full", text: "the queue is full" },
            libc::ENOBUFS => Value::Phrase { word: "memory", text: "the limit of the protocol's memory" },
            errno => Value::Signed(errno.into()),
        }),
    ],
)
.explained(&[
    ("datagrams", "datagrams that were dropped since the queue of their socket could not take them"),
    ("address", "the local address they were sent to"),
    ("port", "the local port"),
    ("cause", "`full`: the program reads too slowly, or its receive buffer is small; `memory`: `net.ipv4.udp_mem`"),
])
.titled("receive queues of UDP sockets that were full")
.ordered(|(one, few), (other, many)| many.cmp(few).then(one.cmp(other)));

/// The occurrence of a connect, an accept or the end of a connection that `--than`, `--lower` or `--failures` selects.
/// Its subject is the task that called connect or accept.
#[derive(Debug)]
pub struct ConnectionLine {
    pub ns: u64,
    pub direction: Direction,
    pub ends: Ends,
    pub phase: ConnectionPhase,
    /// False: nobody has accepted it.
    pub has_task: bool,
    /// None: it goes on.
    pub outcome: Option<ConnectionOutcome>,
}

pub static LINES: OccurrenceSchema<ConnectionLine> = OccurrenceSchema::<ConnectionLine>::new(
    &[
        Detail::new("duration_ns", |line| Value::Us(line.ns)),
        Detail::new("direction", |line| line.direction.value()),
        Detail::new("peer", |line| address_value(Some(line.ends.peer.address))),
        Detail::new("peer_port", |line| port_value(line.ends.peer.port)),
        Detail::new("local", |line| address_value(Some(line.ends.local.address))),
        Detail::new("local_port", |line| port_value(line.ends.local.port)),
        Detail::new("outcome", |line| {
            let waits = Value::Word(match line.phase {
                ConnectionPhase::Connect => "connecting",
                ConnectionPhase::Accept => "not accepted yet",
                ConnectionPhase::Life => "open",
            });
            line.outcome.map_or(waits, |outcome| outcome.value(line.phase))
        }),
        Detail::text_only("peer_text", |line| endpoint_value(line.ends.peer)),
        Detail::text_only("is_out", |line| Value::Bool(line.direction == Direction::Out)),
        Detail::text_only("has_task", |line| Value::Bool(line.has_task)),
        Detail::new("still_open", |line| Value::Bool(line.outcome.is_none())),
    ],
    &[
        detail("duration_ns").wide(12),
        text(" us  "),
        when("has_task", &[SUBJECT]),
        unless("has_task", &[text("nobody")]),
        when("is_out", &[detail("peer_text").after("  to ")]),
        unless("is_out", &[detail("local_port").after("  at port "), detail("peer_text").after(" from ")]),
        detail("outcome").after(" "),
        when("still_open", &[text(", goes on")]),
    ],
)
.grouped(GroupBy {
    noun: "connection",
    same: &["direction", "peer", "outcome", "still_open"],
    place: "peer",
    duration: "duration_ns",
    goes_on: "still_open",
});

fn endpoint_value(end: Endpoint) -> Value {
    Value::Text(SocketAddr::new(end.address, end.port).to_string().into())
}

/// Names by number, out of the print format of an event.
pub type ReasonNames = FxHashMap<u64, Arc<str>>;

/// The reason as a cell.
pub fn reason_value(reason: Option<u32>, names: &ReasonNames) -> Value {
    let Some(reason) = reason else { return Value::None };
    names.get(&reason.into()).map_or(Value::Unsigned(reason.into()), |name| Value::Text(name.clone()))
}
