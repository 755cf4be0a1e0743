//! BPF programs of other tools on the events of the run, which may hide events from perf-prof.
//!
//! The run looks for such programs at the start, every half second and at the end of an interval. Each tracepoint costs
//! a system call of 1 to 2 us.

use crate::bpf::attached::{self, ProgramQuery, ProgramWatch};
use crate::perf::refusal::Reason;
use crate::run::Run;
use crate::sys;

/// Number of tracepoints above which not every end of an interval looks for programs, since intervals may be a few ms
/// long.
const FEW: usize = 256;

/// The programs found so far.
#[derive(Debug, Default)]
pub struct Onlookers {
    watch: ProgramWatch,
    looked_ns: u64,
    is_refused: bool,
}

impl Onlookers {
    pub fn watch(&mut self) -> &mut ProgramWatch {
        &mut self.watch
    }

    /// Notes that events are enabled: events hidden before this are no loss.
    pub fn begin(&mut self, now: u64) {
        self.looked_ns = now;
    }
}

impl Run {
    /// Looks for programs, and reports changes. If events may have been hidden, the time since the last look counts as
    /// a loss of these events: pairs that span it are dropped.
    pub(super) fn look_for_onlookers(&mut self) {
        if self.onlookers.is_refused {
            return;
        }
        // A thread that opens an event on a CPU that does not answer holds the lock that the query needs.
        let evlist = &self.core.evlist;
        let query = attached::query(evlist.tracepoints(&self.core.last_tick.suspects)).with_own(evlist.own_programs());
        let now = sys::monotonic_ns();
        let before_ns = std::mem::replace(&mut self.onlookers.looked_ns, now);
        self.take_look(query);
        let watch = &self.onlookers.watch;
        if watch.may_hide() && self.start_ns > 0 {
            self.core.hidden(|event| watch.may_hide_of(event), &self.rings.unknown_loss(before_ns, now));
        }
    }

    /// Looks for programs at the end of an interval, unless the last look is recent and there are many tracepoints.
    pub(super) fn look_again(&mut self) {
        let age_ns = sys::monotonic_ns().saturating_sub(self.onlookers.looked_ns);
        let many = self.core.evlist.iter().filter(|(_, evsel)| evsel.is_opened()).count() > FEW;
        if !many || age_ns >= super::HOTPLUG.as_nanos() as u64 {
            self.look_for_onlookers();
        }
    }

    fn take_look(&mut self, query: ProgramQuery) {
        if query.is_refused {
            self.onlookers.is_refused = true;
            let reason = Reason::new("whether BPF programs hide events from us cannot be asked", "CAP_PERFMON");
            self.core.ctx.output.note(format!("degraded: {reason}"));
        }
        let changes = self.onlookers.watch.update(query);
        self.core.unseen.hides_uncounted = self.onlookers.watch.is_uncounted();
        for line in changes.lines(self.options.verbose) {
            self.core.ctx.output.note(line);
        }
    }
}
