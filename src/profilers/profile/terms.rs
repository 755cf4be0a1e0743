//! How the samples of a run are taken, and how much time they stand for.

use crate::perf::attr::Sampling;
use crate::profilers::profile::shares::{Division, ExcludedModes, ModeWeights};
use crate::task::cpu_times::CpuShares;

/// The span of which `--than` judges a share, and whose running time a sample stands for a part of.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// How the samples are taken, and of what.
#[derive(Clone, Copy, Debug)]
pub struct SamplingTerms {
    pub sampling: Sampling,
    /// By the CPU clock: weights are ns, and an idle CPU is sampled too.
    pub clock: bool,
    /// Only some tasks are sampled.
    pub targeted: bool,
    pub excluded: ExcludedModes,
}

impl Default for SamplingTerms {
    fn default() -> SamplingTerms {
        SamplingTerms {
            sampling: Sampling::Frequency(99),
            clock: false,
            targeted: false,
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

    /// The running time of its task that a sample stands for, if that is known and no longer than a window.
    pub fn sample_ns(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(WINDOW_NS / hz.max(1)),
            Sampling::Period(ns) => Some(ns).filter(|&ns| self.clock && ns <= WINDOW_NS),
        }
    }

    /// How a CPU divided its time; `parts` is what /proc/stat says of it. With a target: how the samples on it are divided.
    pub fn divide(&self, sums: &ModeWeights, span_ns: u64, parts: Option<CpuShares>) -> Division {
        match parts {
            _ if self.targeted => Division::of_samples(sums),
            _ if self.excluded.any() && self.clock => Division::of_span(sums, span_ns, parts.map(|parts| parts.idle)),
            Some(parts) if !self.excluded.any() => Division::of_cpu(sums, span_ns, parts, self.clock),
            // Which part of the busy time the sampled cycles took is not known.
            Some(parts) => Division::of_idle(span_ns, parts.idle),
            None if self.excluded.any() => Division::default(),
            None => Division::of_time_by_samples(sums, span_ns),
        }
    }
}
