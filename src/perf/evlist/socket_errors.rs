//! What programs are told of sockets by getsockopt and `SO_ERROR`: two BPF programs at the entry and the end of that call
//! write it through an event of ours.

use crate::bpf::socket_errors::{SocketOptionCall, load_copiers};
use crate::host::Host;
use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::event_copier::EventCopier;
use crate::perf::evlist::strings::{explain, possible_cpus};
use crate::perf::evsel::Evsel;
use crate::perf::refusal::Reason;

impl Evlist {
    /// What is told of sockets will come as samples of the returned event, which shares a ring with `beside`, an event of the
    /// same profiler. `ends`: the tracepoints of the call's entry and end.
    ///
    /// # Errors
    /// Why it cannot be copied here.
    pub fn copy_socket_errors(
        &mut self,
        beside: EventId,
        ends: [Evsel; 2],
        call: &SocketOptionCall,
        host: &Host,
    ) -> Result<EventId, Reason> {
        let tasks = self.strings.tasks.as_ref().map(|tasks| &tasks.map);
        let copiers = load_copiers(call, possible_cpus(host), tasks).map_err(|refusal| explain(&refusal, host))?;
        let output = self.add_output("errors of sockets".to_owned(), beside)?;
        for (end, copier) in ends.into_iter().zip(copiers) {
            let of = self.add(end.unopened()).map_err(|err| Reason::incurable(err.to_string()))?;
            self.strings.add(EventCopier::new(copier, of, output));
        }
        Ok(output)
    }
}
