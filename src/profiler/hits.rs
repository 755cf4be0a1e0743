//! What a uprobe costs the probed program: each call of the function enters the kernel, even if the event is then
//! filtered out. The time of an entry is measured with a uprobe in perf-prof itself; the kernel counts the calls.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashSet;

use crate::host::{Host, online_cpus};
use crate::perf::Attr;
use crate::perf::attr::MissingFeatures;
use crate::profiler::TracefsFinder;
use crate::symbol::spaces::maps_line::offset_in_file;
use crate::sys;
use crate::sys::perf::Watch;
use crate::sys::probed::FirstInstruction;
use crate::tep::probe::{ProbeAddress, ProbeDefinition, ProbeHits, Probes};

/// CPU time that a probe adds to a call of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCost {
    /// ns per hit of an instruction that the kernel emulates.
    pub simple_ns: u64,
    /// ns per hit of an instruction that must be single-stepped.
    pub stepped_ns: u64,
    /// ns per hit of a return probe, in addition to the entry.
    pub return_ns: u64,
}

const ENTRY: &str = "uprobe:";
const RETURN: &str = "uretprobe:";

impl HitCost {
    /// The cost of all hits. Probes of the entry and of the return of a function share one entry into the kernel; the
    /// return enters the kernel once more.
    pub fn of(&self, hits: &[ProbeHits]) -> u64 {
        let entries: FxHashSet<&str> = hits.iter().filter_map(|hits| hits.shown.strip_prefix(ENTRY)).collect();
        let cost = |hits: &ProbeHits| {
            let shares = hits.shown.strip_prefix(RETURN).is_some_and(|place| entries.contains(place));
            let each = if shares { self.return_ns } else { self.each(hits) };
            each.saturating_mul(hits.count)
        };
        hits.iter().map(cost).fold(0, u64::saturating_add)
    }

    /// The cost of one hit of a probe that shares no entry with another probe.
    pub fn each(&self, probe: &ProbeHits) -> u64 {
        let entry_ns = if probe.is_stepped { self.stepped_ns } else { self.simple_ns };
        entry_ns + if probe.shown.starts_with(RETURN) { self.return_ns } else { 0 }
    }
}

impl TracefsFinder {
    /// The run's own probes in programs.
    pub fn probes_in_programs(&self) -> Vec<ProbeHits> {
        self.probes.get().map(Probes::in_programs).unwrap_or_default()
    }

    /// The hits of these probes so far, by any process. None: there are no probes, or the counts cannot be read.
    pub fn hits(&self) -> Option<Vec<ProbeHits>> {
        self.probes.get().and_then(Probes::hits).filter(|hits| !hits.is_empty())
    }

    /// Measures what a hit of the run's probes costs on this machine. The probes for the measurement are removed with
    /// those of the run.
    ///
    /// # Errors
    /// The kernel refuses a probe in perf-prof itself, or the probe's event.
    pub fn measure_hits(&self, host: &Host) -> Result<HitCost> {
        let call_ns = |first| sys::probed::call_ns(first).context("no function for it");
        let measure = |first, ret| -> Result<u64> {
            let before_ns = call_ns(first)?;
            self.probe_ourselves(host, first, ret)?;
            Ok(call_ns(first)?.saturating_sub(before_ns))
        };
        // Measures only the kinds of probes that the run has, since removing a probe takes the kernel some 65 ms. For
        // returns, the entry must be measured, too.
        let probes = self.probes_in_programs();
        let mut cost = HitCost::default();
        let mut entered = None;
        for (first, ns) in
            [(FirstInstruction::Emulated, &mut cost.simple_ns), (FirstInstruction::Stepped, &mut cost.stepped_ns)]
        {
            if probes.iter().any(|probe| probe.is_stepped == (first == FirstInstruction::Stepped)) {
                *ns = measure(first, false)?;
                entered = entered.or(Some(first));
            }
        }
        if let Some(first) = entered.filter(|_| probes.iter().any(|probe| probe.shown.starts_with(RETURN))) {
            cost.return_ns = measure(first, true)?;
        }
        Ok(cost)
    }

    /// Puts a probe into a function of perf-prof, only in the memory of this process.
    fn probe_ourselves(&self, host: &Host, first: FirstInstruction, ret: bool) -> Result<()> {
        let probes = self.probes.get().context("no probe is defined yet")?;
        let address = sys::probed::address(first).context("no function for it")?;
        let maps = fs::read(host.proc.join("self/maps"))?;
        let offset = offset_in_file(&maps, address).context("it is in no file")?;
        let file = File::open(host.proc.join("self/exe"))?;
        let address = ProbeAddress::User { fd: file.as_raw_fd(), offset };
        let definition = ProbeDefinition { address, ret, name: "cost_of_a_hit".to_owned(), args: Vec::new() };
        let (system, name) = probes.define(&definition, "").map_err(|refusal| refusal.error)?;
        let format = self.get()?.format(&system, &name)?;
        let cpu = online_cpus(host)?.first().copied().context("no CPU is online")?;
        let watch = Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu };
        probes.hold(MissingFeatures::default().open(&mut Attr::tracepoint(format.id), watch)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_shares_its_entry() {
        let cost = HitCost { simple_ns: 1000, stepped_ns: 7000, return_ns: 800 };
        let hits = |shown: &str, count, is_stepped| ProbeHits { shown: shown.to_owned(), count, is_stepped };
        let all = |all: &[ProbeHits]| cost.of(all);
        assert_eq!(all(&[hits("uprobe:a", 2, false), hits("uprobe:b", 3, true)]), 23_000);
        assert_eq!(all(&[hits("uretprobe:a", 2, false), hits("uprobe:b", 3, false)]), 6600);
        assert_eq!(all(&[hits("uprobe:a", 10, true), hits("uretprobe:a", 10, true)]), 78_000);
        assert_eq!(all(&[hits("uprobe:a", u64::MAX, false)]), u64::MAX);
        assert_eq!(all(&[]), 0);
    }
}
