//! Addresses of sockets that system calls return: BPF programs at the entries of these calls and at the end of all calls
//! write them through an event of ours.

use crate::bpf::returned_addresses::{AddressCall, CallEnd, load_copiers};
use crate::host::Host;
use crate::perf::event_id::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evlist::event_copier::EventCopier;
use crate::perf::evlist::strings::{explain, possible_cpus};
use crate::perf::evsel::Evsel;
use crate::perf::refusal::Reason;

impl Evlist {
    /// The addresses will come as samples of the returned event, each just before the record of the call's end, which is
    /// one of the event `exit`. `enters`: the tracepoint of the entry of each call.
    ///
    /// # Errors
    /// Why they cannot be copied here.
    pub fn copy_returned_addresses(
        &mut self,
        (exit, end): (EventId, CallEnd),
        enters: Vec<(Evsel, AddressCall)>,
        host: &Host,
    ) -> Result<EventId, Reason> {
        let tasks = self.strings.tasks.as_ref().map(|tasks| &tasks.map);
        let (evsels, calls): (Vec<Evsel>, Vec<AddressCall>) = enters.into_iter().unzip();
        let loaded = load_copiers(&calls, end, possible_cpus(host), tasks);
        let (at_end, at_entries) = loaded.map_err(|refusal| explain(&refusal, host))?;
        let output = self.add_output("returned addresses of sockets".to_owned(), exit)?;
        self.strings.add(EventCopier::new(at_end, exit, output));
        for (enter, copier) in evsels.into_iter().zip(at_entries) {
            let of = self.add(enter.unopened()).map_err(|err| Reason::incurable(err.to_string()))?;
            self.strings.add(EventCopier::new(copier, of, output));
        }
        Ok(output)
    }
}
