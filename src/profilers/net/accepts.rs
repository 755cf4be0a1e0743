//! Which connection a call of accept has returned: the end of the call does not tell, but the address that it returns does.

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{ReturnedAddresses, Setup};
use crate::profilers::net::endpoint::Endpoint;

/// Limit of connections that wait for accept.
const MAX_WAITING: usize = 100_000;

/// The connections that wait for accept, and the calls that take them.
#[derive(Debug, Default)]
pub struct Accepts {
    /// The ends of the calls.
    event: Option<EventId>,
    /// None: the addresses cannot be read.
    addresses: Option<ReturnedAddresses>,
    /// The socket of a connection, by its peer.
    waiting: FxHashMap<Endpoint, u64>,
    /// Some accept has returned no address or was not seen: connections that seem to wait may have been accepted.
    is_incomplete: bool,
}

impl Accepts {
    /// Adds the ends of the calls, with the addresses that these return.
    ///
    /// # Errors
    /// The kernel has no event of the ends of system calls.
    pub fn open(evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Accepts> {
        let calls = [libc::SYS_accept, libc::SYS_accept4];
        let event = evlist.add(setup.tracepoint("raw_syscalls:sys_exit")?.0)?;
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

    /// A connection waits from now on.
    pub fn wait(&mut self, peer: Endpoint, socket: u64) {
        if self.waiting.len() >= MAX_WAITING {
            self.forget_all();
        }
        self.waiting.insert(peer, socket);
    }

    /// A connection is closed.
    pub fn closed(&mut self, peer: Endpoint, socket: u64) {
        if self.waiting.get(&peer) == Some(&socket) {
            self.waiting.remove(&peer);
        }
    }

    /// A call has ended. Returns the socket of its connection.
    pub fn ended(&mut self, sample: &Sample<'_>) -> Option<u64> {
        let addresses = self.addresses.as_mut()?;
        addresses.ended(sample);
        let address = addresses.returned();
        self.is_incomplete |= address.is_none();
        self.waiting.remove(&Endpoint::parse(&address?)?)
    }

    /// What seems to wait has surely not been accepted.
    pub fn are_all_seen(&self) -> bool {
        self.addresses.is_some() && !self.is_incomplete
    }

    /// Records of a CPU were lost.
    pub fn lost(&mut self, cpu: u32) {
        self.forget_all();
        self.addresses.iter_mut().for_each(|addresses| addresses.forget(cpu));
    }

    fn forget_all(&mut self) {
        self.waiting.clear();
        self.is_incomplete = true;
    }
}
