//! Why sockets are closed. The event of a close does not tell. A reset comes just before it, or just after it where this
//! machine sends one; an error is told just before or just after it: all on the CPU of the close.

use rustc_hash::FxHashMap;

use crate::profilers::net::connection::{ConnectionOutcome, ConnectionPhase};
use crate::profilers::net::endpoint::Ends;
use crate::relation::EventMoment;

/// Limit of the time between a close and the event that explains it, which follow each other except for interrupts and a
/// preempted virtual CPU.
const TOGETHER_NS: u64 = 5_000_000;

/// Limit of closes of a CPU that wait for an explanation.
const MAX_CLOSED: usize = 64;

/// A socket that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSocket {
    pub socket: u64,
    pub ends: Ends,
    pub moment: EventMoment,
}

/// What an event told about a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingCause {
    ResetReceived,
    ResetSent,
    /// The error number of the socket.
    Error(i32),
}

impl ClosingCause {
    /// How a phase ended because of it.
    pub fn of_phase(self, phase: ConnectionPhase) -> ConnectionOutcome {
        match self {
            ClosingCause::ResetReceived => ConnectionOutcome::of_reset(phase),
            ClosingCause::ResetSent => ConnectionOutcome::Reset,
            ClosingCause::Error(errno) => ConnectionOutcome::of_error(errno, phase),
        }
    }
}

/// A close, and what explains it. None: nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedClosing {
    pub closed: ClosedSocket,
    pub outcome: Option<ClosingCause>,
}

/// What happened last on a CPU.
#[derive(Debug, Default)]
struct CpuClosing {
    /// Closes without an explanation yet, the oldest first. They are several where the peer is on this machine: its
    /// socket is closed before the event that tells of ours.
    closed: Vec<ClosedSocket>,
    /// The socket of the last reset that was received.
    reset: Option<u64>,
    /// The last error, and its time.
    error: Option<(Ends, i32, u64)>,
    /// The last close that was explained by a reset, and its time: the kernel tells the error of that socket just after it.
    reset_closed: Option<(Ends, u64)>,
}

/// The closes that may still be explained.
#[derive(Debug, Default)]
pub struct Closings(FxHashMap<u32, CpuClosing>);

impl Closings {
    /// A socket was closed.
    pub fn closed(&mut self, closed: ClosedSocket) -> impl Iterator<Item = ResolvedClosing> + use<> {
        let cpu = self.0.entry(closed.moment.cpu).or_default();
        let now = closed.moment.time;
        let is_over = cpu.closed.first().is_some_and(|first| is_late(first, now)) || cpu.closed.len() >= MAX_CLOSED;
        let before = is_over.then(|| ResolvedClosing { closed: cpu.closed.remove(0), outcome: None });
        let reset = cpu.reset.take().filter(|socket| *socket == closed.socket).map(|_| ClosingCause::ResetReceived);
        let is_its = |(ends, _, time): &(Ends, i32, u64)| {
            are_of_one_socket(ends, &closed.ends) && now.saturating_sub(*time) <= TOGETHER_NS
        };
        let error = cpu.error.take().filter(is_its).map(|(_, errno, _)| ClosingCause::Error(errno));
        cpu.reset_closed = reset.map(|_| (closed.ends, now)).or(cpu.reset_closed);
        let outcome = reset.or(error);
        if outcome.is_none() {
            cpu.closed.push(closed);
        }
        before.into_iter().chain(outcome.map(|_| ResolvedClosing { closed, outcome }))
    }

    /// A reset was received.
    pub fn reset_received(&mut self, cpu: u32, socket: u64) {
        self.0.entry(cpu).or_default().reset = Some(socket);
    }

    /// A reset was sent.
    pub fn reset_sent(&mut self, cpu: u32, socket: u64) -> Option<ResolvedClosing> {
        let closed = take_last(&mut self.0.get_mut(&cpu)?.closed, |closed| closed.socket == socket)?;
        Some(ResolvedClosing { closed, outcome: Some(ClosingCause::ResetSent) })
    }

    /// A socket has an error.
    pub fn error(&mut self, cpu: u32, ends: Ends, errno: i32, time: u64) -> Option<ResolvedClosing> {
        let cpu = self.0.entry(cpu).or_default();
        let is_told = |(closed, at_ns): &(Ends, u64)| {
            are_of_one_socket(&ends, closed) && time.saturating_sub(*at_ns) <= TOGETHER_NS
        };
        if cpu.reset_closed.take_if(|closed| is_told(closed)).is_some() {
            return None;
        }
        let closed = take_last(&mut cpu.closed, |closed| are_of_one_socket(&ends, &closed.ends));
        cpu.error = if closed.is_none() { Some((ends, errno, time)) } else { None };
        closed.map(|closed| ResolvedClosing { closed, outcome: Some(ClosingCause::Error(errno)) })
    }

    /// The close of this socket, whose memory another socket has now.
    pub fn reused(&mut self, socket: u64) -> Option<ResolvedClosing> {
        let closed =
            self.0.values_mut().find_map(|cpu| take_last(&mut cpu.closed, |closed| closed.socket == socket))?;
        Some(ResolvedClosing { closed, outcome: None })
    }

    /// The closes that nothing explains any more at `now`.
    pub fn settle(&mut self, now: u64) -> Vec<ResolvedClosing> {
        let late = |cpu: &mut CpuClosing| cpu.closed.partition_point(|closed| is_late(closed, now));
        let closed = self.0.values_mut().flat_map(|cpu| {
            let late = late(cpu);
            cpu.closed.drain(..late)
        });
        closed.map(|closed| ResolvedClosing { closed, outcome: None }).collect()
    }

    /// Records of a CPU were lost.
    pub fn lost(&mut self, cpu: u32) {
        self.0.remove(&cpu);
    }
}

fn is_late(closed: &ClosedSocket, now: u64) -> bool {
    now.saturating_sub(closed.moment.time) > TOGETHER_NS
}

fn take_last(closed: &mut Vec<ClosedSocket>, is_its: impl FnMut(&ClosedSocket) -> bool) -> Option<ClosedSocket> {
    let index = closed.iter().rposition(is_its)?;
    Some(closed.remove(index))
}

/// Once a socket is closed its own address, or the port of its peer, may be gone.
fn are_of_one_socket(one: &Ends, other: &Ends) -> bool {
    let is_gone = one.peer.port == 0 || other.peer.port == 0;
    let has_peer = one.peer.address == other.peer.address && (is_gone || one.peer.port == other.peer.port);
    one.local.port == other.local.port && has_peer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::net::endpoint::Endpoint;

    fn ends(port: u16) -> Ends {
        let end = |port| Endpoint { address: [127, 0, 0, 1].into(), port };
        Ends { local: end(port), peer: end(80) }
    }

    fn closed(socket: u64, cpu: u32, time: u64) -> ClosedSocket {
        ClosedSocket { socket, ends: ends(socket as u16), moment: EventMoment { time, cpu, pid: 1, tid: 1 } }
    }

    fn told(resolved: impl IntoIterator<Item = ResolvedClosing>) -> Vec<(u64, Option<ClosingCause>)> {
        resolved.into_iter().map(|resolved| (resolved.closed.socket, resolved.outcome)).collect()
    }

    #[test]
    fn a_close_is_explained_by_what_is_beside_it() {
        let mut closings = Closings::default();
        closings.reset_received(0, 1);
        assert_eq!(told(closings.closed(closed(1, 0, 10))), [(1, Some(ClosingCause::ResetReceived))]);
        assert!(told(closings.closed(closed(2, 0, 20))).is_empty(), "what follows may tell");
        assert_eq!(told(closings.error(0, ends(2), 110, 21)), [(2, Some(ClosingCause::Error(110)))]);
        assert!(told(closings.error(0, ends(3), 113, 30)).is_empty());
        assert_eq!(told(closings.closed(closed(3, 0, 31))), [(3, Some(ClosingCause::Error(113)))]);
        assert!(told(closings.closed(closed(4, 0, 40))).is_empty());
        assert_eq!(told(closings.reset_sent(0, 4)), [(4, Some(ClosingCause::ResetSent))]);
    }

    /// After a reset the kernel tells the error of the same socket, too.
    #[test]
    fn a_reset_explains_one_close() {
        let mut closings = Closings::default();
        let same = |socket, time| ClosedSocket { ends: ends(1), ..closed(socket, 0, time) };
        closings.reset_received(0, 1);
        assert_eq!(told(closings.closed(same(1, 10))), [(1, Some(ClosingCause::ResetReceived))]);
        assert!(told(closings.error(0, ends(1), libc::ECONNRESET, 11)).is_empty());
        assert!(told(closings.closed(same(2, 12))).is_empty(), "it was just closed");
        assert_eq!(told(closings.error(0, ends(1), libc::ETIMEDOUT, 13)), [(2, Some(ClosingCause::Error(110)))]);
        let mut other = ends(1);
        other.peer.port = 81;
        assert!(told(closings.closed(same(3, 14))).is_empty());
        assert!(told(closings.error(0, other, libc::ETIMEDOUT, 15)).is_empty(), "the peer has another port");
        other.peer.port = 0;
        assert_eq!(told(closings.error(0, other, libc::ETIMEDOUT, 16)), [(3, Some(ClosingCause::Error(110)))]);
    }

    /// The peer is on this machine, and its socket is closed within the close of ours.
    #[test]
    fn the_peer_may_be_closed_in_between() {
        let mut closings = Closings::default();
        assert!(told(closings.closed(closed(1, 0, 10))).is_empty());
        closings.reset_received(0, 2);
        assert_eq!(told(closings.closed(closed(2, 0, 11))), [(2, Some(ClosingCause::ResetReceived))]);
        assert!(told(closings.closed(closed(3, 0, 12))).is_empty());
        assert_eq!(told(closings.reset_sent(0, 1)), [(1, Some(ClosingCause::ResetSent))]);
        for socket in 4..3 + MAX_CLOSED as u64 {
            assert!(told(closings.closed(closed(socket, 0, 13))).is_empty());
        }
        assert_eq!(told(closings.closed(closed(1000, 0, 14))), [(3, None)], "no more room");
    }

    #[test]
    fn what_is_elsewhere_explains_nothing() {
        let mut closings = Closings::default();
        closings.reset_received(0, 9);
        closings.error(0, ends(9), 110, 5);
        assert!(told(closings.closed(closed(1, 0, 10))).is_empty());
        assert!(told(closings.reset_sent(0, 9)).is_empty() && told(closings.reset_sent(1, 1)).is_empty());
        assert!(told(closings.error(1, ends(1), 110, 11)).is_empty());
        assert!(told(closings.closed(closed(2, 0, 20))).is_empty());
        assert_eq!(told(closings.settle(11 + TOGETHER_NS)), [(1, None)]);
        assert_eq!(told(closings.settle(21 + TOGETHER_NS)), [(2, None)]);
        closings.error(0, ends(3), 110, 30);
        assert!(told(closings.closed(closed(3, 0, 31 + TOGETHER_NS))).is_empty(), "an old error");
        assert_eq!(told(closings.closed(closed(4, 0, 40 + 2 * TOGETHER_NS))), [(3, None)]);
        assert_eq!((told(closings.reused(3)), told(closings.reused(4))), (vec![], vec![(4, None)]));
        closings.lost(0);
        assert!(told(closings.settle(u64::MAX)).is_empty());
    }
}
