//! The texts about what the run's uprobes cost the probed programs: before the run, after it, and in a forecast.

use crate::digits::format_ns;
use crate::perf::target::Tasks;
use crate::profiler::TracefsFinder;
use crate::profiler::hits::HitCost;
use crate::run::Run;
use crate::tep::probe::ProbeHits;

/// The probes of a run.
pub(super) struct RunProbes {
    pub tracefs: TracefsFinder,
    /// The cost of one hit of a uprobe. None: it is unknown, or there are no uprobes.
    hit_cost: Option<HitCost>,
}

impl RunProbes {
    pub fn new(tracefs: TracefsFinder) -> RunProbes {
        RunProbes { tracefs, hit_cost: None }
    }

    /// Number of hits of the probes so far, and their approximate cost in ns.
    pub fn hits_so_far(&self) -> Option<Paid> {
        let hits = self.tracefs.hits()?;
        let count = hits.iter().map(|hits| hits.count).fold(0, u64::saturating_add);
        Some(Paid { count, cost_ns: self.hit_cost.map(|cost| cost.of(&hits)) })
    }
}

impl Run {
    /// The line about the cost of each hit, and who pays for it.
    pub(super) fn tell_hit_cost(&mut self) {
        let RunProbes { tracefs, hit_cost } = &mut self.probes;
        let probes = tracefs.probes_in_programs();
        if probes.is_empty() {
            return;
        }
        // If the cost cannot be measured, the line says so in place of a number.
        *hit_cost = tracefs.measure_hits(&self.host).ok();
        let line = format!("{}; {}", each(*hit_cost, &probes), self.who_pays());
        self.core.ctx.output.note(line);
    }

    /// The processes that hit the probes. The kernel inserts breakpoints only for the tasks that an event is bound to;
    /// for an event of a whole CPU or a cgroup it does so in every process that maps the file.
    fn who_pays(&self) -> &'static str {
        let narrow = matches!(self.options.target.tasks, Tasks::Processes(_) | Tasks::Threads(_) | Tasks::Workload(_));
        if narrow && !self.core.filter.is_on() && !self.core.evlist.evsels.any_cpu_bound() {
            "the processes that are watched pay"
        } else {
            "every process of the machine pays that has the file mapped, watched or not"
        }
    }
}

/// The line about what the uprobes have cost the programs.
#[derive(Clone, Copy, Debug)]
pub struct Paid {
    pub count: u64,
    /// None: the cost of a hit is not known.
    pub cost_ns: Option<u64>,
}

impl Paid {
    pub fn line(&self, profiler: &str) -> String {
        let hits = if self.count == 1 { "hit" } else { "hits" };
        let cost =
            self.cost_ns.map_or(String::new(), |ns| format!(", which cost these about {} of CPU time", format_ns(ns)));
        format!("{profiler}: {} {hits} of probes in programs{cost}", self.count)
    }

    /// The same line for the measured time of a forecast.
    pub fn forecast(&self, looked_ns: u64) -> String {
        let seconds = (looked_ns as f64 / 1e9).max(1e-9);
        let rate = self.count as f64 / seconds;
        let share = |ns: u64| format!(", which cost these about {:.1} % of one CPU", ns as f64 / 1e9 / seconds * 100.0);
        let cost = self.cost_ns.map_or(String::new(), share);
        format!("probes in programs: {rate:.0} hits/s{cost}")
    }
}

fn each(cost: Option<HitCost>, probes: &[ProbeHits]) -> String {
    let what = if probes.len() == 1 { "a probe in a program" } else { "probes in programs" };
    let Some(cost) = cost else {
        return format!("{what}: a hit costs its program 1 to 15 us");
    };
    let each = |probe: &ProbeHits| cost.each(probe);
    let (least, most) = (probes.iter().map(each).min().unwrap_or(0), probes.iter().map(each).max().unwrap_or(0));
    let range = if least == most { "" } else { &format!("{} to ", format_ns(least)) };
    format!("{what}: a hit costs its program about {range}{}, as measured here", format_ns(most))
}
