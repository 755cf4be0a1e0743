//! Events that are in no record although no ring lost them: known from the kernel's counts, from missed probes, and
//! from BPF programs of other tools.

use crate::perf::Evlist;
use crate::profiler::Timestamp;
use crate::report::Verdict;

/// What is known of unseen events.
#[derive(Debug, Default)]
pub struct UnseenEvents {
    /// Calls of probed functions that no probe saw.
    pub missed_calls: u64,
    /// BPF programs may have hidden some events that the kernel does not count.
    pub hides_uncounted: bool,
    /// Lower bound of the events that the kernel has counted but that were neither sampled nor lost: a task hides them.
    hidden: u64,
    /// The last reading of the kernel's counts, kept until all records from before it were taken.
    counts_read: Option<(u64, Timestamp)>,
    /// Calls of probed functions in children of the target's processes may go unseen.
    may_miss_children: bool,
    /// Number of such children.
    children_in_doubt: u64,
}

impl UnseenEvents {
    /// The state for a run with these events, once it is decided how they are opened.
    pub fn of(evlist: &Evlist) -> UnseenEvents {
        UnseenEvents { may_miss_children: !evlist.in_doubt().is_empty(), ..UnseenEvents::default() }
    }

    /// Lower bound of the events that a task hides.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Keeps the kernel's counts, which have just been read, for the comparison with the records.
    pub fn counts_were_read(&mut self, evlist: &Evlist) {
        if self.counts_read.is_none() {
            self.counts_read = evlist.happened();
        }
    }

    /// Drops the last reading of counts, which is too old to be of use.
    pub fn forget_counts(&mut self) {
        self.counts_read = None;
    }

    /// Compares counts read before `complete_ns` with the records, of which all up to `complete_ns` were taken.
    /// `known`: samples and losses so far. These may include later records, so the difference is a lower bound of the
    /// unseen events.
    pub fn compare_counts(&mut self, complete_ns: Timestamp, known: u64) {
        let Some((happened, _)) = self.counts_read.take_if(|(_, read_ns)| *read_ns <= complete_ns) else { return };
        self.hidden = self.hidden.max(happened.saturating_sub(known));
    }

    /// Counts a process that a watched process has started.
    pub fn count_child(&mut self) {
        self.children_in_doubt += u64::from(self.may_miss_children);
    }

    pub fn children_in_doubt(&self) -> u64 {
        self.children_in_doubt
    }

    /// The verdict that applies to the whole run.
    pub fn verdict_of_run(&self) -> Verdict {
        let of_children = if self.children_in_doubt > 0 { Verdict::LowerBound } else { Verdict::Exact };
        of_children.and(if self.hides_uncounted { Verdict::Unsure } else { Verdict::Exact })
    }
}
