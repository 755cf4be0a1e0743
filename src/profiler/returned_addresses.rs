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
    /// By CPU, the address whose call ends next.
    waiting: FxHashMap<u32, WaitingAddress>,
    /// The address that the call has returned whose end was read last.
    returned: Option<Arc<[u8]>>,
}

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
        Ok(event.map(|event| ReturnedAddresses { event, waiting: FxHashMap::default(), returned: None }))
    }

    /// Takes an address.
    pub fn take(&mut self, sample: &Sample<'_>) {
        let address = parse(sample.raw).map(socket_address::meaningful).filter(|address| !address.is_empty());
        let Some(address) = address.filter(|_| (sample.cpu as usize) < MAX_CPUS) else { return };
        let waiting = WaitingAddress { tid: sample.tid, time: sample.time, address: address.into() };
        self.waiting.insert(sample.cpu, waiting);
    }

    /// A call has ended.
    pub fn ended(&mut self, sample: &Sample<'_>) {
        let waiting = self.waiting.remove(&sample.cpu);
        let is_its = |waiting: &WaitingAddress| {
            waiting.tid == sample.tid && sample.time.wrapping_sub(waiting.time) <= TOGETHER_NS
        };
        self.returned = waiting.filter(is_its).map(|waiting| waiting.address);
    }

    /// The address that the call has returned which has just ended.
    pub fn returned(&mut self) -> Option<Arc<[u8]>> {
        self.returned.take()
    }

    /// Records of a CPU were lost.
    pub fn forget(&mut self, cpu: u32) {
        self.waiting.remove(&cpu);
    }
}
