//! What a run tells of itself in mid-run.

use crate::run::Run;
use crate::run::words::{self, Backlog, OwnCost};
use crate::sys;

impl Run {
    /// That some of the target's tasks have ended. With the last of them the run does, too.
    pub(super) fn tell_ended(&mut self) {
        let ended = self.targets.take_ended(&self.host).filter(|_| !self.core.ctx.watched.is_over());
        if let Some(ended) = ended {
            self.core.ctx.output.note(format!("{}: {ended}", self.options.profiler));
        }
    }

    /// What the run has cost up to now, and what waits to be read and to be written.
    pub(super) fn tell_own_cost(&mut self) {
        let now = sys::monotonic_ns();
        let cost = self.own_cost(now);
        let (fullest_bytes, ring_bytes) = self.rings.fullest();
        let output = &self.core.ctx.output;
        let backlog =
            Backlog { fullest_bytes, ring_bytes, output_bytes: output.waiting_bytes(), dropped: output.dropped() };
        let profiler = self.options.profiler;
        let lines =
            [format!("{profiler}: {}", words::own_cost(&cost)), format!("{profiler}: {}", words::backlog(&backlog))];
        lines.into_iter().for_each(|line| self.core.ctx.output.note(line));
    }

    pub(super) fn own_cost(&self, now: u64) -> OwnCost {
        let (cpu_ns, rss_peak_bytes) = sys::self_usage();
        OwnCost {
            duration_ns: now.saturating_sub(self.start_ns),
            cpu_ns,
            rss_peak_bytes,
            locked_bytes: self.rings.locked_bytes(),
            wakeups: self.wakeups,
            samples: self.core.samples,
            record_bytes: self.core.record_bytes,
            late: self.core.late,
        }
    }
}
