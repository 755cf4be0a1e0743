//! Windows of user stacks: which events of a run have windows, and when there are too many.

use anyhow::{Result, bail};

use crate::cli::CallGraph;
use crate::perf::evlist::Evlist;
use crate::perf::evsels::windows::{WindowPlan, WindowsAdded};
use crate::perf::target::Tasks;
use crate::profiler::Timestamp;
use crate::run::Options;
use crate::run::dispatcher::Dispatcher;
use crate::sys;

/// Least number of windows for which a ring must have room.
pub(super) const LEAST_IN_RING: usize = 16;

/// Adds windows to the events that need them, according to the options.
///
/// # Errors
/// The size of rings in the options is too small for the size of windows in the options.
pub(super) fn add(evlist: &mut Evlist, options: &Options) -> Result<WindowsAdded> {
    if options.paced {
        return Ok(WindowsAdded::default());
    }
    let plan = |owner: usize| {
        let view = options.views.get(owner)?;
        let is_asked_for = view.halves.user == Some(true);
        match view.call_graph {
            CallGraph::FramePointers => None,
            CallGraph::Auto => Some(WindowPlan { bytes: None, loud_too: false, is_asked_for }),
            CallGraph::Dwarf(bytes) => Some(WindowPlan { bytes, loud_too: true, is_asked_for }),
        }
    };
    let any_task =
        matches!(options.target.tasks, Tasks::All) && options.views.iter().all(|view| view.samples.is_none());
    let ring_bytes = options.ring.map(|ring| ring.pages(sys::page_size()) * sys::page_size());
    let most_bytes = evlist.evsels.most_window_bytes(plan, any_task) as usize;
    if let Some(ring_bytes) = ring_bytes.filter(|bytes| *bytes < LEAST_IN_RING * most_bytes) {
        if options.views.iter().all(|view| !matches!(view.call_graph, CallGraph::Dwarf(_))) {
            return Ok(WindowsAdded::default());
        }
        bail!(
            "rings of {} KiB hold fewer than {LEAST_IN_RING} copies of stacks of {} KiB: give -m {}K or more, or \
             --call-graph=dwarf,BYTES with fewer bytes",
            ring_bytes / 1024,
            most_bytes / 1024,
            (LEAST_IN_RING * most_bytes).next_power_of_two() / 1024,
        );
    }
    Ok(evlist.evsels.add_windows(plan, any_task))
}

/// Some view leaves the choice between frame pointers and unwind tables to the run.
pub(super) fn any_auto(options: &Options) -> bool {
    options.views.iter().any(|view| view.call_graph == CallGraph::Auto)
}

/// The line for `-v`.
pub(super) fn describe(added: &WindowsAdded, options: &Options) -> Option<String> {
    let kib = added.most_bytes / 1024;
    match added {
        WindowsAdded { own: 0, companions: 0, too_loud: 0, .. } => None,
        WindowsAdded { own: 0, companions: 0, .. } => Some(
            "user stacks by frame pointers: the events come too often for copies of stacks; -p, a filter or \
             --call-graph=dwarf has them unwound"
                .to_owned(),
        ),
        _ if any_auto(options) => Some(format!("user stacks by unwind tables, from copies of {kib} KiB at most")),
        _ => Some(format!("user stacks by unwind tables, from copies of {kib} KiB")),
    }
}

/// Turns companions off if their windows are too frequent.
#[derive(Debug, Default)]
pub(super) struct WindowPace {
    is_on: bool,
    has_ended: bool,
    most_bytes_per_s: u64,
    checked_ns: Timestamp,
}

/// A ring must have room for the windows of 74 ms: twice the longest time for which a busy machine keeps perf-prof off
/// the CPU. So 8 MiB suffice for 113 MB/s.
const HELD_NS: u64 = 74_000_000;
/// Time between two checks: shorter bursts do not count.
const CHECK_NS: u64 = 100_000_000;

impl WindowPace {
    /// `on`: some events have companions, which may be turned off. `ring_bytes`: the size of their ring.
    pub fn new(on: bool, ring_bytes: u64) -> WindowPace {
        let most_bytes_per_s = ring_bytes.saturating_mul(1_000_000_000) / HELD_NS;
        WindowPace { is_on: on, has_ended: false, most_bytes_per_s, checked_ns: sys::monotonic_ns() }
    }

    /// Windows were too frequent, and were turned off.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether this many bytes per second on one CPU are too many.
    pub fn ends_at(&self, bytes_per_s: f64) -> bool {
        self.is_on && bytes_per_s > self.most_bytes_per_s as f64
    }

    /// Checks the frequency of windows. All records up to `now` were taken.
    pub fn check(&mut self, core: &mut Dispatcher, now: Timestamp) {
        let span_ns = now.saturating_sub(self.checked_ns);
        if !self.is_on || span_ns < CHECK_NS {
            return;
        }
        self.checked_ns = now;
        let Some((cpu, bytes)) = core.ctx.user_stacks.take_fullest() else { return };
        let per_s = u128::from(bytes) * 1_000_000_000 / u128::from(span_ns);
        if per_s <= u128::from(self.most_bytes_per_s) {
            return;
        }
        (self.is_on, self.has_ended) = (false, true);
        core.evlist.turn_windows(false);
        core.ctx.output.note(format!(
            "degraded: copies of stacks on CPU {cpu} come to {} MB/s: from now on user stacks are by frame pointers; cure: \
             --call-graph=dwarf,2K, whose copies are small and go on; or a filter, or a larger -m",
            per_s / 1_000_000
        ));
    }
}
