//! How the samples of a run are taken, and what follows from that for what they stand for.

use crate::perf::attr::Sampling;
use crate::profilers::profile::shares::{Division, Left, Sums};
use crate::profilers::profile::windows::WINDOW_NS;
use crate::task::cpu_times::CpuShares;

/// How the samples are taken, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub sampling: Sampling,
    /// By the CPU clock: weights are ns, and an idle CPU is sampled too.
    pub clock: bool,
    /// Only some tasks are sampled.
    pub targeted: bool,
    pub left: Left,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { sampling: Sampling::Frequency(99), clock: false, targeted: false, left: Left::default() }
    }
}

impl Terms {
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

    /// The running time of its task that a sample stands for, if it does for any that is no longer than a window.
    pub fn sample_ns(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(WINDOW_NS / hz.max(1)),
            Sampling::Period(ns) => Some(ns).filter(|&ns| self.clock && ns <= WINDOW_NS),
        }
    }

    /// How a CPU divided its time, `parts` being what /proc/stat says of it. With a target: how the samples of its tasks are
    /// divided there.
    pub fn divide(&self, sums: &Sums, span_ns: u64, parts: Option<CpuShares>) -> Division {
        match parts {
            _ if self.targeted => Division::of_samples(sums),
            _ if self.left.any() && self.clock => Division::of_span(sums, span_ns, parts.map(|parts| parts.idle)),
            Some(parts) if !self.left.any() => Division::of_cpu(sums, span_ns, parts, self.clock),
            // What part of the busy time the cycles were of is not known.
            Some(parts) => Division::of_idle(span_ns, parts.idle),
            None if self.left.any() => Division::default(),
            None => Division::of_time_by_samples(sums, span_ns),
        }
    }
}
