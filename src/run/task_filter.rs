//! Drops samples of tasks outside of the target, which task-bound events have if they had to be opened on whole CPUs.

use crate::perf::{Evsel, Sample};
use crate::task::Watched;

/// Drops the samples of other tasks, and counts them.
#[derive(Debug, Default)]
pub struct TaskFilter {
    is_on: bool,
    /// Number of dropped samples.
    samples: u64,
    bytes: u64,
}

impl TaskFilter {
    /// Turns the filter on or off.
    pub fn turn(&mut self, on: bool) {
        self.is_on = on;
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the sample is one of the target's.
    pub fn wants(&self, evsel: &Evsel, sample: &Sample<'_>, watched: &Watched) -> bool {
        !self.is_on || !evsel.is_task_bound() || watched.contains(sample.tid)
    }

    /// As [`TaskFilter::wants`]. Counts a sample that is dropped.
    pub fn admits(&mut self, evsel: &Evsel, sample: &Sample<'_>, watched: &Watched) -> bool {
        let is_wanted = self.wants(evsel, sample, watched);
        if !is_wanted {
            self.samples += 1;
            self.bytes += sample.record().len() as u64;
        }
        is_wanted
    }

    /// Number of samples that were dropped.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
