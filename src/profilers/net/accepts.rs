//! Which connection a call of accept has returned: the end of the call does not tell, but the address that it returns does.

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{ReturnedAddresses, Setup};
use crate::profilers::net::endpoint::Endpoint;
use crate::stats::LossHorizon;

/// Limit of connections that wait for accept.
const MAX_WAITING: usize = 100_000;
/// Limit of connections from one port of a peer that wait for accept at the same time: each is at another port or address
/// of this machine.
const MAX_SAME_PEER: usize = 4;

/// The sockets that wait for accept with the same peer; 0: none.
type SamePeer = [u64; MAX_SAME_PEER];

/// The connections that wait for accept, and the calls that take them.
#[derive(Debug, Default)]
pub struct Accepts {
    /// The ends of the calls.
    event: Option<EventId>,
    /// None: the addresses cannot be read.
    addresses: Option<ReturnedAddresses>,
    /// The sockets of connections, by their peer.
    waiting: FxHashMap<Endpoint, SamePeer>,
    /// Until then some accept has returned no address or was not seen: connections that are older and seem to wait may
    /// have been accepted.
    incomplete: LossHorizon,
}

impl Accepts {
    /// Adds the ends of the calls, with the addresses that these return. On kernels without events of these ends nobody is
    /// seen to accept.
    ///
    /// # Errors
    /// The kernel's events lack a field.
    pub fn open(evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Accepts> {
        const ENDS: &str = "raw_syscalls:sys_exit";
        let Ok((evsel, _)) = setup.tracepoint(ENDS) else {
            setup.warn(format!("this kernel has no event {ENDS}: who accepts is left out"));
            return Ok(Accepts::default());
        };
        let calls = [libc::SYS_accept, libc::SYS_accept4];
        let event = evlist.add(evsel)?;
        evlist.set_filter(event, format!("ret >= 0 && (id == {} || id == {})", calls[0], calls[1]))?;
        let is_accept = |number: i32| calls.contains(&number.into());
        let addresses = ReturnedAddresses::ask(event, is_accept, evlist, setup)?;
        Ok(Accepts { event: Some(event), addresses, ..Accepts::default() })
    }

    pub fn is_end(&self, event: EventId) -> bool {
        self.event == Some(event)
    }

    /// Takes the sample of an address. False: the event is another one.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> bool {
        let addresses = self.addresses.as_mut().filter(|addresses| addresses.event == event);
        addresses.map(|addresses| addresses.take(sample)).is_some()
    }

    /// A connection waits since `time`.
    pub fn wait(&mut self, peer: Endpoint, socket: u64, time: u64) {
        if self.waiting.len() >= MAX_WAITING {
            self.forget_all(time);
        }
        let sockets = self.waiting.entry(peer).or_default();
        match sockets.iter_mut().find(|other| **other == 0 || **other == socket) {
            Some(free) => *free = socket,
            None => self.incomplete.lost_until(time.saturating_add(1)),
        }
    }

    /// A connection is closed.
    pub fn closed(&mut self, peer: Endpoint, socket: u64) {
        let Some(sockets) = self.waiting.get_mut(&peer) else { return };
        sockets.iter_mut().filter(|other| **other == socket).for_each(|other| *other = 0);
        if *sockets == SamePeer::default() {
            self.waiting.remove(&peer);
        }
    }

    /// A call has ended. Returns the socket of its connection; several: it is one of these, and it is not known which.
    pub fn ended(&mut self, sample: &Sample<'_>) -> impl Iterator<Item = u64> + Clone + use<> {
        let address = self.addresses.as_mut().and_then(|addresses| {
            addresses.ended(sample);
            addresses.returned()
        });
        self.accepted(address.as_deref(), sample.time)
    }

    fn accepted(&mut self, address: Option<&[u8]>, time: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        if address.is_none() {
            self.incomplete.lost_until(time);
        }
        let sockets = address.and_then(Endpoint::parse).and_then(|peer| self.waiting.remove(&peer));
        sockets.unwrap_or_default().into_iter().filter(|socket| *socket != 0)
    }

    /// What seems to wait since `since` has surely not been accepted: no accept has ended since then whose address is not
    /// known.
    pub fn are_all_seen_since(&self, since: u64) -> bool {
        self.event.is_some() && self.incomplete.saw_all_since(since)
    }

    /// Records of a CPU were lost, up to `end_ns`.
    pub fn lost(&mut self, cpu: u32, end_ns: u64) {
        self.forget_all(end_ns);
        self.addresses.iter_mut().for_each(|addresses| addresses.forget(cpu));
    }

    fn forget_all(&mut self, time: u64) {
        self.waiting.clear();
        self.incomplete.lost_until(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: [u8; 8] = [libc::AF_INET as u8, 0, 0, 80, 10, 0, 0, 7];

    fn taken(accepts: &mut Accepts, address: Option<&[u8]>, time: u64) -> Vec<u64> {
        accepts.accepted(address, time).collect()
    }

    #[test]
    fn one_port_of_a_peer_may_have_several_connections() {
        let (mut accepts, peer) = (Accepts::default(), Endpoint::parse(&PEER).unwrap());
        for socket in [1, 2, 1] {
            accepts.wait(peer, socket, 10);
        }
        assert_eq!(taken(&mut accepts, Some(&PEER), 20), [1, 2], "not known which");
        assert!(taken(&mut accepts, Some(&PEER), 20).is_empty() && accepts.incomplete.saw_all_since(0));
        (3..=7).for_each(|socket| accepts.wait(peer, socket, 30));
        assert!(!accepts.incomplete.saw_all_since(30), "no room for the last one");
        (3..=5).chain([7]).for_each(|socket| accepts.closed(peer, socket));
        assert_eq!(taken(&mut accepts, Some(&PEER), 40), [6]);
        accepts.wait(peer, 8, 50);
        accepts.closed(peer, 8);
        assert!(accepts.waiting.is_empty());
    }

    #[test]
    fn an_accept_without_an_address_concerns_what_is_older() {
        let mut accepts = Accepts::default();
        assert!(taken(&mut accepts, None, 20).is_empty());
        assert!(!accepts.incomplete.saw_all_since(19) && accepts.incomplete.saw_all_since(20));
        accepts.lost(0, 30);
        assert!(!accepts.incomplete.saw_all_since(29) && accepts.incomplete.saw_all_since(30));
        let unix = [libc::AF_UNIX as u8, 0, b'/'];
        assert!(taken(&mut accepts, Some(&unix), 40).is_empty() && accepts.incomplete.saw_all_since(30));
    }
}
