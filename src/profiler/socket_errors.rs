//! What programs are told of their sockets with getsockopt and `SO_ERROR`, as samples of an event of the run.

use anyhow::Result;

use crate::bpf::socket_errors::{SocketError, SocketOptionCall};
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::tep::drift;
use crate::tep::syscalls::SyscallEnd;

/// The event whose samples tell it.
#[derive(Clone, Copy, Debug)]
pub struct SocketErrors {
    pub event: EventId,
}

impl SocketErrors {
    /// `beside`: an event of the same profiler. None: the kernel does not let us know, and a line says why.
    ///
    /// # Errors
    /// The kernel's events lack a field.
    pub fn ask(beside: EventId, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Option<SocketErrors>> {
        if evlist.is_forecast() {
            return Ok(None);
        }
        let of = |end: SyscallEnd| setup.tracepoint(&end.event("getsockopt"));
        let (Ok((enter, entered)), Ok((exit, exited))) = (of(SyscallEnd::Enter), of(SyscallEnd::Exit)) else {
            return Ok(None); // a kernel without events of single calls
        };
        let entered = |name| Ok::<u16, anyhow::Error>(drift::require(&entered, name)?.offset.try_into()?);
        let call = SocketOptionCall {
            descriptor: entered("fd")?,
            level: entered("level")?,
            option: entered("optname")?,
            value: entered("optval")?,
            result: drift::require(&exited, "ret")?.offset.try_into()?,
        };
        let event = evlist.copy_socket_errors(beside, [enter, exit], &call, setup.host);
        Ok(event.map_err(|reason| setup.degrade_socket_errors(reason)).ok().map(|event| SocketErrors { event }))
    }

    /// The descriptor, and the error of its socket; 0: it has none. None: the bytes of the sample are of no such call.
    pub fn told(sample: &Sample<'_>) -> Option<(i32, u32)> {
        SocketError::parse(sample.raw).map(|SocketError { descriptor, errno }| (descriptor, errno))
    }
}
