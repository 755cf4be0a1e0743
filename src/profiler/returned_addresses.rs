//! The addresses of sockets that system calls return, such as who has connected (accept), joined to the ends of the calls.
//!
//! A BPF program writes each address just before the record of the call's end, on the same CPU: it belongs to the next
//! end there, of the same thread.

use std::sync::Arc;

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::bpf::returned_addresses::{AddressCall, CallEnd, parse};
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::profiler::call_strings::limit;
use crate::tep::drift;
use crate::tep::syscalls::call_text::socket_address;
use crate::tep::syscalls::syscall_strings::returned_address_argument;
use crate::tep::syscalls::{SyscallEnd, end_and_number};

/// The calls that return an address.
const CALLS: [&str; 5] = ["accept", "accept4", "recvfrom", "getsockname", "getpeername"];
/// Limit of the time between an address and the end of its call, which follow each other except for interrupts and a
/// preempted virtual CPU.
const TOGETHER_NS: u64 = 5_000_000;
const MAX_CPUS: usize = 1 << 16;

/// The addresses of the calls of a run.
#[derive(Debug)]
pub struct ReturnedAddresses {
    /// The event whose samples are the addresses.
    pub event: EventId,
    waiting: WaitingAddresses,
    /// The address that the call has returned whose end was read last.
    returned: Option<Arc<[u8]>>,
}

/// By CPU, the address whose call ends next.
#[derive(Debug, Default)]
struct WaitingAddresses(FxHashMap<u32, WaitingAddress>);

#[derive(Debug)]
struct WaitingAddress {
    tid: i32,
    time: u64,
    address: Arc<[u8]>,
}

impl ReturnedAddresses {
    /// Asks for the addresses of those calls whose number is `wanted`; `exit`: the event of the end of all calls. None: no
    /// such call is wanted, or the kernel refuses to copy, and a line says why.
    ///
    /// # Errors
    /// The kernel's events lack a field.
    pub fn ask(
        exit: EventId,
        wanted: impl Fn(i32) -> bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<Option<ReturnedAddresses>> {
        let mut enters = Vec::new();
        for name in CALLS.map(|call| SyscallEnd::Enter.event(call)) {
            let Ok((evsel, format)) = setup.tracepoint(&name) else { continue }; // not on this architecture
            let number = end_and_number(&format.name).map(|(_, number)| number);
            let number = number.filter(|number| i32::try_from(*number).is_ok_and(&wanted));
            if let (Some(number), Some((buffer, length))) = (number, returned_address_argument(&format)) {
                enters.push((evsel, AddressCall { number, buffer, length }));
            }
        }
        if enters.is_empty() || evlist.is_forecast() {
            return Ok(None);
        }
        let format = setup.format(SyscallEnd::Exit.raw())?;
        let offset = |name| Ok::<u16, anyhow::Error>(drift::require(&format, name)?.offset.try_into()?);
        let end = CallEnd { number: offset("id")?, result: offset("ret")? };
        limit(evlist, setup);
        let event = evlist.copy_returned_addresses((exit, end), enters, setup.host);
        let event = event.map_err(|reason| setup.degrade_strings(reason)).ok();
        Ok(event.map(|event| ReturnedAddresses { event, waiting: WaitingAddresses::default(), returned: None }))
    }

    /// Takes an address.
    pub fn take(&mut self, sample: &Sample<'_>) {
        self.waiting.add(sample.cpu, sample.tid, sample.time, parse(sample.raw).unwrap_or_default());
    }

    /// A call has ended.
    pub fn ended(&mut self, sample: &Sample<'_>) {
        self.returned = self.waiting.take(sample.cpu, sample.tid, sample.time);
    }

    /// The address that the call has returned which has just ended.
    pub fn returned(&mut self) -> Option<Arc<[u8]>> {
        self.returned.take()
    }

    /// Records of a CPU were lost.
    pub fn forget(&mut self, cpu: u32) {
        self.waiting.0.remove(&cpu);
    }
}

impl WaitingAddresses {
    fn add(&mut self, cpu: u32, tid: i32, time: u64, address: &[u8]) {
        let address = socket_address::meaningful(address);
        if address.is_empty() || cpu as usize >= MAX_CPUS {
            return;
        }
        self.0.insert(cpu, WaitingAddress { tid, time, address: address.into() });
    }

    /// The address of the call that ends.
    fn take(&mut self, cpu: u32, tid: i32, time: u64) -> Option<Arc<[u8]>> {
        let is_its = |waiting: &WaitingAddress| waiting.tid == tid && time.wrapping_sub(waiting.time) <= TOGETHER_NS;
        self.0.remove(&cpu).filter(is_its).map(|waiting| waiting.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_next_end_of_its_thread() {
        let unix = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], b"/x"].concat();
        let mut waiting = WaitingAddresses::default();
        let add = |waiting: &mut WaitingAddresses| waiting.add(1, 7, 100, &unix);
        let cases: [((u32, i32, u64), bool); 6] = [
            ((1, 7, 100), true),
            ((1, 7, 100 + TOGETHER_NS), true),
            ((1, 7, 101 + TOGETHER_NS), false), // its own end was lost
            ((1, 7, 99), false),
            ((1, 8, 100), false),
            ((2, 7, 100), false),
        ];
        for ((cpu, tid, time), is_its) in cases {
            add(&mut waiting);
            assert_eq!(waiting.take(cpu, tid, time).is_some(), is_its, "{cpu} {tid} {time}");
            assert!(cpu != 1 || waiting.take(1, 7, 100).is_none(), "it waits for one end");
        }
        waiting.0.clear();
        waiting.add(1, 7, 100, b"");
        waiting.add(MAX_CPUS as u32, 7, 100, &unix);
        assert!(waiting.0.is_empty(), "the socket has no address; no machine has such a CPU");
    }
}
