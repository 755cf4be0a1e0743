//! Connections that are made in the background: connect returns EINPROGRESS, which is no error by itself. The program
//! queries the outcome later with getsockopt and `SO_ERROR`, and that error counts as an error of connect.

use rustc_hash::FxHashMap;

use crate::calls::kinds::CallNumber;
use crate::perf::{EventId, Sample};
use crate::profiler::SocketErrors;
use crate::profilers::syscalls::failed_call::FailedCall;
use crate::symbol::StackId;
use crate::task::Comm;

/// Most pending connections that are kept, including those that were established since.
const MAX_CONNECTIONS: usize = 16_384;

/// A process and its descriptor.
type Socket = (i32, i32);

/// A failed connect, its process, and the stack of the call, which is kept whether or not rows are by stack.
#[derive(Clone, Debug)]
pub struct FailedConnect {
    pub failed: FailedCall,
    pub pid: i32,
    pub stack: Option<StackId>,
}

/// The connections in progress.
#[derive(Debug)]
pub struct PendingConnects {
    /// The event whose samples show the results of `SO_ERROR`.
    told: EventId,
    by_socket: FxHashMap<Socket, FailedConnect>,
}

impl PendingConnects {
    pub fn new(errors: SocketErrors) -> PendingConnects {
        PendingConnects { told: errors.event, by_socket: FxHashMap::default() }
    }

    /// A call of connect has returned EINPROGRESS.
    pub fn goes_on(&mut self, descriptor: i32, connect: FailedConnect) {
        if self.by_socket.len() >= MAX_CONNECTIONS {
            self.by_socket.clear(); // their addresses will be unknown
        }
        self.by_socket.insert((connect.pid, descriptor), connect);
    }

    /// The event whose samples [`PendingConnects::told`] wants.
    pub fn event(&self) -> EventId {
        self.told
    }

    /// The failed call that this sample reports: the connect that was pending. For a socket without a pending connect
    /// (its connect may have begun before the run, or the connection was made and broke) the error counts for the call
    /// that reports it.
    pub fn told(&mut self, sample: &Sample<'_>, comm: Comm) -> Option<FailedConnect> {
        let (descriptor, errno) = SocketErrors::told(sample)?;
        let connect = self.by_socket.remove(&(sample.pid, descriptor));
        let failed = FailedCall { call: GETSOCKOPT, errno, comm, paths: Default::default(), stack: None };
        let other = FailedConnect { failed, pid: sample.pid, stack: None };
        let FailedConnect { failed, pid, stack } = connect.unwrap_or(other);
        (errno != 0).then_some(FailedConnect { failed: FailedCall { errno, ..failed }, pid, stack })
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.by_socket.values().filter_map(|connect| connect.stack)
    }

    /// Records were lost: a descriptor may have been reused for another socket.
    pub fn lost(&mut self) {
        self.by_socket.clear();
    }
}

/// The call whose error is reported later, and the call that reports it.
const CONNECT: CallNumber = CallNumber { number: libc::SYS_connect as i32, is_compat: false };
const GETSOCKOPT: CallNumber = CallNumber { number: libc::SYS_getsockopt as i32, is_compat: false };

/// Whether the connection is being made in the background: connect has returned EINPROGRESS.
pub fn is_under_way(call: CallNumber, errno: u32) -> bool {
    errno == libc::EINPROGRESS as u32 && call == CONNECT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connect_goes_on_in_the_background() {
        let other = CallNumber { number: libc::SYS_sendto as i32, is_compat: false };
        assert!(is_under_way(CONNECT, libc::EINPROGRESS as u32));
        assert!(!is_under_way(CONNECT, libc::ECONNREFUSED as u32) && !is_under_way(other, libc::EINPROGRESS as u32));
        assert!(!is_under_way(CallNumber { is_compat: true, ..CONNECT }, libc::EINPROGRESS as u32));
    }
}
