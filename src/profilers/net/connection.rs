//! Connections as pairs by the address of their socket: connect until it is made or has failed, made until accept takes
//! it, made until it is closed. Whose a connection is.

use std::net::IpAddr;

use crate::profilers::net::endpoint::Ends;
use crate::relation::{Declaration, OpenStart, PairEnd, RowKey};
use crate::report::Value;
use crate::stats::{PairKey, SumKey};
use crate::task::Comm;

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// A process of this machine called connect.
    Out,
    /// The peer did.
    In,
}

impl Direction {
    pub fn value(self) -> Value {
        Value::Word(match self {
            Direction::Out => "out",
            Direction::In => "in",
        })
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectionPhase {
    /// The answer of the peer.
    Connect,
    /// A call of accept.
    Accept,
    /// Its end.
    Life,
}

impl ConnectionPhase {
    pub const ALL: [ConnectionPhase; 3] = [ConnectionPhase::Connect, ConnectionPhase::Accept, ConnectionPhase::Life];
}

/// The address of a socket in the kernel, which all its events have, and the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub socket: u64,
    pub phase: ConnectionPhase,
}

impl PairKey for ConnectionKey {}

/// How a phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectionOutcome {
    /// Connected or accepted.
    Opened,
    Refused,
    TimedOut,
    /// Any other error: an unreachable peer, or no port is left, for example.
    Failed,
    /// The program closed the socket before the connection was made.
    GivenUp,
    /// It was closed before accept took it.
    NeverAccepted,
    ResetByPeer,
    /// This machine has sent the reset.
    Reset,
    Closed,
}

impl ConnectionOutcome {
    /// All of them, in their order.
    pub const ALL: [ConnectionOutcome; 9] = [
        ConnectionOutcome::Opened,
        ConnectionOutcome::Refused,
        ConnectionOutcome::TimedOut,
        ConnectionOutcome::Failed,
        ConnectionOutcome::GivenUp,
        ConnectionOutcome::NeverAccepted,
        ConnectionOutcome::ResetByPeer,
        ConnectionOutcome::Reset,
        ConnectionOutcome::Closed,
    ];

    pub fn value(self, phase: ConnectionPhase) -> Value {
        Value::Word(match self {
            ConnectionOutcome::Opened if phase == ConnectionPhase::Accept => "accepted",
            ConnectionOutcome::Opened => "connected",
            ConnectionOutcome::Refused => "refused",
            ConnectionOutcome::TimedOut => "timed out",
            ConnectionOutcome::Failed => "failed",
            ConnectionOutcome::GivenUp => "given up",
            ConnectionOutcome::NeverAccepted => "never accepted",
            ConnectionOutcome::ResetByPeer => "reset by peer",
            ConnectionOutcome::Reset => "reset",
            ConnectionOutcome::Closed => "closed",
        })
    }

    /// Whether somebody would ask what went wrong.
    pub fn is_failure(self) -> bool {
        !matches!(self, ConnectionOutcome::Opened | ConnectionOutcome::Closed)
    }

    /// How a phase ended with this error of its socket.
    pub fn of_error(errno: i32, phase: ConnectionPhase) -> ConnectionOutcome {
        match (errno, phase) {
            (libc::ETIMEDOUT, _) => ConnectionOutcome::TimedOut,
            (libc::ECONNREFUSED, ConnectionPhase::Connect) => ConnectionOutcome::Refused,
            (libc::ECONNRESET | libc::EPIPE, ConnectionPhase::Accept | ConnectionPhase::Life) => {
                ConnectionOutcome::ResetByPeer
            }
            _ => ConnectionOutcome::Failed,
        }
    }

    /// How a phase ended whose socket was closed after a reset from the peer.
    pub fn of_reset(phase: ConnectionPhase) -> ConnectionOutcome {
        if phase == ConnectionPhase::Connect { ConnectionOutcome::Refused } else { ConnectionOutcome::ResetByPeer }
    }
}

/// A connection that is being made, waits or lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub direction: Direction,
    pub ends: Ends,
}

/// The connections of a process with a peer and its port, or those that it has accepted at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionsOf {
    pub direction: Direction,
    /// 0: not known.
    pub pid: i32,
    pub comm: Comm,
    /// Of connections that were made from here.
    pub peer: Option<IpAddr>,
    /// The peer's port, or our own one at which the connection was accepted; 0 without room.
    pub port: u16,
}

impl SumKey for ConnectionsOf {
    fn others(&self) -> ConnectionsOf {
        ConnectionsOf { pid: 0, comm: Comm::new(b"<others>"), peer: None, port: 0, ..*self }
    }
}

impl ConnectionsOf {
    /// Those without a row of their own.
    pub fn is_others(&self) -> bool {
        *self == self.others()
    }

    pub fn new(connection: &Connection, pid: i32, comm: Comm) -> ConnectionsOf {
        let Connection { direction, ends } = *connection;
        let (peer, port) = match direction {
            Direction::Out => (Some(ends.peer.address), ends.peer.port),
            Direction::In => (None, ends.local.port),
        };
        ConnectionsOf { direction, pid, comm, peer, port }
    }

    pub fn of_start(start: &OpenStart<Connection>) -> ConnectionsOf {
        ConnectionsOf::new(&start.open.own, start.open.pid, start.open.comm)
    }
}

/// A phase that ended so, of these connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutcomeOf {
    pub connections: ConnectionsOf,
    pub phase: ConnectionPhase,
    pub outcome: ConnectionOutcome,
}

impl SumKey for OutcomeOf {
    fn others(&self) -> OutcomeOf {
        OutcomeOf { connections: self.connections.others(), ..*self }
    }
}

impl RowKey for OutcomeOf {}

#[derive(Debug)]
pub struct Connections;

impl Declaration for Connections {
    type Key = ConnectionKey;
    type Start = Connection;
    type End = ConnectionOutcome;
    type Row = OutcomeOf;
    type Sums = ();

    fn row(&self, key: &ConnectionKey, start: &OpenStart<Connection>, end: &PairEnd<ConnectionOutcome>) -> OutcomeOf {
        OutcomeOf { connections: ConnectionsOf::of_start(start), phase: key.phase, outcome: end.own }
    }

    fn waits_on(&self, key: &ConnectionKey) -> bool {
        key.phase != ConnectionPhase::Life
    }

    fn is_drawn(&self, key: &ConnectionKey) -> bool {
        key.phase == ConnectionPhase::Connect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::net::endpoint::Endpoint;

    #[test]
    fn a_row_is_a_peer_and_its_port_or_our_own_port() {
        let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
        let ends = Ends { local: end("10.0.0.1", 80), peer: end("10.0.0.7", 4000) };
        let row = |direction| ConnectionsOf::new(&Connection { direction, ends }, 7, Comm::default());
        let [out, accepted] = [row(Direction::Out), row(Direction::In)];
        assert_eq!((out.peer, out.port), (Some(ends.peer.address), 4000));
        assert_eq!((accepted.peer, accepted.port), (None, 80));
        assert_ne!(out.others(), accepted.others());
        assert_eq!(out.others(), ConnectionsOf { port: 0, peer: None, ..out }.others());
    }

    #[test]
    fn errors_mean_what_the_phase_says() {
        use ConnectionPhase::{Connect, Life};
        let cases = [
            (libc::ECONNREFUSED, Connect, ConnectionOutcome::Refused),
            (libc::ETIMEDOUT, Connect, ConnectionOutcome::TimedOut),
            (libc::ETIMEDOUT, Life, ConnectionOutcome::TimedOut),
            (libc::EHOSTUNREACH, Connect, ConnectionOutcome::Failed),
            (libc::ECONNRESET, Life, ConnectionOutcome::ResetByPeer),
            (libc::ECONNRESET, Connect, ConnectionOutcome::Failed),
        ];
        for (errno, phase, want) in cases {
            assert_eq!(ConnectionOutcome::of_error(errno, phase), want, "{errno} {phase:?}");
        }
        assert_eq!(
            [Connect, Life].map(ConnectionOutcome::of_reset),
            [ConnectionOutcome::Refused, ConnectionOutcome::ResetByPeer]
        );
    }
}
