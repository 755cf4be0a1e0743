//! Events that came in no record though no ring lost them: the kernel's counts, probes and programs of others tell of these.

use crate::perf::Evlist;
use crate::profiler::Timestamp;
use crate::report::Verdict;

/// What went unseen, as far as it is known.
#[derive(Debug, Default)]
pub struct UnseenEvents {
    /// Calls of probed functions that no probe saw.
    pub missed_calls: u64,
    /// BPF programs may have hidden some events that the kernel does not count.
    pub hides_uncounted: bool,
    /// Events that the kernel has counted and that came neither as samples nor as losses, at least: a task hides them.
    hidden: u64,
    /// The last reading of the kernel's counts, until all records before it were taken.
    counts_read: Option<(u64, Timestamp)>,
    /// Calls of probed functions in children of the target's processes may go unseen.
    may_miss_children: bool,
    /// Number of such children.
    children_in_doubt: u64,
}

impl UnseenEvents {
    /// In a run with these events, once it is settled how they are opened.
    pub fn of(evlist: &Evlist) -> UnseenEvents {
        UnseenEvents { may_miss_children: !evlist.in_doubt().is_empty(), ..UnseenEvents::default() }
    }

    /// Events that a task hides, at least.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The kernel's counts have been read: they will be compared with the records.
    pub fn counts_were_read(&mut self, evlist: &Evlist) {
        if self.counts_read.is_none() {
            self.counts_read = evlist.happened();
        }
    }

    /// The last reading of counts is too old to be of use.
    pub fn forget_counts(&mut self) {
        self.counts_read = None;
    }

    /// All records up to `complete_ns` were taken: compares them with the counts of before. `known`: samples and losses so far. More
    /// records may have been taken since, so that this is the least number of those that went unseen.
    pub fn compare_counts(&mut self, complete_ns: Timestamp, known: u64) {
        let Some((happened, _)) = self.counts_read.take_if(|(_, read_ns)| *read_ns <= complete_ns) else { return };
        self.hidden = self.hidden.max(happened.saturating_sub(known));
    }

    /// A watched process has started a process.
    pub fn count_child(&mut self) {
        self.children_in_doubt += u64::from(self.may_miss_children);
    }

    pub fn children_in_doubt(&self) -> u64 {
        self.children_in_doubt
    }

    /// What holds in all of the run.
    pub fn verdict_of_run(&self) -> Verdict {
        let of_children = if self.children_in_doubt > 0 { Verdict::LowerBound } else { Verdict::Exact };
        of_children.and(if self.hides_uncounted { Verdict::Unsure } else { Verdict::Exact })
    }
}
