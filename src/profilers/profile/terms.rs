//! How the samples of a run are taken, and how much time they stand for.

use crate::perf::attr::Sampling;
use crate::profilers::profile::shares::{Division, ExcludedModes, ModeWeights};
use crate::task::cpu_times::CpuShares;

/// The span over which `--than` judges a share, and of whose running time a sample stands for a part.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// How samples are taken, and of what.
#[derive(Clone, Copy, Debug)]
pub struct SamplingTerms {
    pub sampling: Sampling,
    /// The CPU clock samples: weights are ns, and idle CPUs are sampled, too.
    pub clock: bool,
    /// Only some tasks are sampled.
    pub targeted: bool,
    /// Samples of softirqs are told from others.
    pub tells_softirqs: bool,
    pub excluded: ExcludedModes,
}

impl Default for SamplingTerms {
    fn default() -> SamplingTerms {
        SamplingTerms {
            sampling: Sampling::Frequency(99),
            clock: false,
            targeted: false,
            tells_softirqs: false,
            excluded: ExcludedModes::default(),
        }
    }
}

impl SamplingTerms {
    /// `-F`
    pub fn wanted_hz(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(hz),
            Sampling::Period(_) => None,
        }
    }

    /// `-c`
    pub fn period(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(_) => None,
            Sampling::Period(period) => Some(period),
        }
    }

    /// The running time of a task that a sample stands for, if it is known and no longer than a window.
    pub fn sample_ns(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(WINDOW_NS / hz.max(1)),
            Sampling::Period(ns) => Some(ns).filter(|&ns| self.clock && ns <= WINDOW_NS),
        }
    }

    /// Divides the time of a CPU; `parts` is its division in /proc/stat. With a target: divides only the samples on the
    /// CPU.
    pub fn divide(&self, sums: &ModeWeights, span_ns: u64, parts: Option<CpuShares>) -> Division {
        match parts {
            _ if self.targeted => Division::of_samples(sums),
            _ if self.excluded.any() && self.clock => Division::of_span(sums, span_ns, parts.map(|parts| parts.idle)),
            Some(parts) if !self.excluded.any() => Division::of_cpu(sums, span_ns, parts, self.clock),
            // It is unknown which part of the busy time the sampled cycles took.
            Some(parts) => Division::of_idle(span_ns, parts.idle),
            None if self.excluded.any() => Division::default(),
            None => Division::of_time_by_samples(sums, span_ns),
        }
    }
}
