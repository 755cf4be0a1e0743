//! The event that samples: cycles or the CPU clock, for which tasks and which code.

use anyhow::{Result, bail};

use crate::host::{Host, sysctl};
use crate::perf::attr::Sampling;
use crate::perf::opening::is_refused;
use crate::perf::target::Tasks;
use crate::perf::{Attr, Evlist, Evsel};
use crate::profiler::Setup;
use crate::profiler::sampling::{USER_ALONE, check_limit};
use crate::profilers::profile::Profile;
use crate::profilers::profile::shares::ExcludedModes;
use crate::profilers::profile::softirqs::SoftirqCode;

impl Profile {
    /// Chooses the event, and sets what depends on it.
    ///
    /// # Errors
    /// Options that this machine does not support, or that exclude each other with this event.
    pub(super) fn sampling_event(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Evsel> {
        check_limit(setup.host, "-F", self.terms.wanted_hz().unwrap_or(0), "perf_event_max_sample_rate")?;
        let depth = self.frames.depth(setup.host)?;
        let evsel = self.choose(evlist, setup)?;
        self.fall_back_to_user(&evsel, evlist, setup)?;
        self.whole_cpus = self.samples_whole_cpus(&evsel, evlist, setup)?;
        let exclude = self.exclude;
        self.terms.excluded = ExcludedModes {
            user: exclude.user || exclude.host,
            kernel: exclude.kernel || exclude.host,
            guest: exclude.guest,
        };
        if self.windows.is_some() && self.terms.excluded.any() && !self.terms.clock && !self.terms.targeted {
            bail!("--than cannot tell how busy a CPU is when its cycles are sampled in part: leave out --exclude-*");
        }
        if self.windows.is_some() && self.terms.sample_ns().is_none() && self.terms.targeted {
            bail!(
                "--than cannot tell how busy a thread is by samples of unknown length, or of over 1 s: use -F, not -c"
            );
        }
        let evsel = evsel.exclude(exclude);
        if self.sees_softirqs() {
            self.softirqs = SoftirqCode::of(setup.host);
            self.terms.tells_softirqs = self.softirqs.is_known();
        }
        Ok(match exclude.kernel && !self.terms.clock {
            // For a sample that strays into the kernel, the callchain has the user address.
            true if self.callchains => evsel.callchain(depth).user_callchain(),
            true => evsel.user_place(),
            false if self.callchains => evsel.callchain(depth),
            false if self.softirqs.is_known() => evsel.kernel_place(softirq_depth(setup.host)),
            false => evsel,
        })
    }

    /// Whether samples have callchains of the kernel: with `-g`, or where they are so rare that callchains cost little.
    fn sees_softirqs(&self) -> bool {
        /// The kernel takes some µs for each.
        const RARE_HZ: u64 = 1000;
        let clock_hz = self.terms.period().filter(|_| self.terms.clock).map(|ns| 1_000_000_000 / ns.max(1));
        let is_rare = self.terms.wanted_hz().or(clock_hz).is_some_and(|hz| hz <= RARE_HZ);
        !self.exclude.kernel && !self.exclude.host && (self.callchains || is_rare)
    }

    /// Cycles if this machine counts them, else the CPU clock.
    fn choose(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Evsel> {
        let clock = Attr::cpu_clock(self.terms.sampling);
        // Where the idle task cannot be distinguished from other tasks, it is not sampled; cycles do not count in it
        // anyway.
        let clock = if self.nested { clock.exclude_idle() } else { clock };
        // How busy a thread was in a second can only be derived from samples that stand for time.
        if self.windows.is_some() && self.terms.targeted && self.terms.wanted_hz().is_some() {
            self.terms.clock = true;
            return Ok(Evsel::new("cpu-clock", clock));
        }
        let per_s = evlist.cycles_per_s(setup.host);
        let hz = match self.terms.sampling {
            Sampling::Frequency(hz) => Some(hz),
            Sampling::Period(period) => per_s.map(|per_s| per_s / period.max(1)),
        };
        let cycles = Attr::cycles(self.period_of_frequency(per_s)).paced_at(hz);
        let unit = if self.terms.wanted_hz().is_none() { "; -c is in ns of it" } else { "" };
        let (evsel, is_clock) = setup.cycles_or_clock(evlist, [cycles, clock], self.exclude, unit)?;
        self.terms.clock = is_clock;
        if let Sampling::Period(period_ns) = self.terms.sampling
            && is_clock
        {
            check_clock_period(setup.host, period_ns)?;
        }
        Ok(evsel)
    }

    /// The period in cycles that gives the wanted frequency on a busy CPU. In frequency mode the kernel would adapt the
    /// period from one cycle on, for each new task and each CPU that was idle: samples would not stand for equal times,
    /// and each new task would begin with a burst of samples.
    fn period_of_frequency(&self, cycles_per_s: Option<u64>) -> Sampling {
        let Sampling::Frequency(hz) = self.terms.sampling else { return self.terms.sampling };
        let period = cycles_per_s.map(|per_s| (per_s / hz.max(1)).max(1));
        period.map_or(self.terms.sampling, Sampling::Period)
    }

    /// Whether whole CPUs are sampled although the run is about some tasks only. The event of a task starts with a
    /// whole period on each CPU and for each new task: a task that runs for less than a period would never be sampled.
    fn samples_whole_cpus(&self, evsel: &Evsel, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<bool> {
        if matches!(setup.target.tasks, Tasks::All | Tasks::Cgroups(_)) {
            return Ok(false);
        }
        let cpu = setup.some_cpu()?;
        let wide = evlist.probe_on_cpu(&evsel.attr().clone().exclude(self.exclude), cpu).is_ok();
        if !wide {
            setup.warn(
                "not permitted to sample whole CPUs: threads that run for a sample or less are missing".to_owned(),
            );
        }
        Ok(wide)
    }

    /// Samples user code alone where sampling the kernel is not permitted.
    fn fall_back_to_user(&mut self, evsel: &Evsel, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let cpu = setup.some_cpu()?;
        if self.exclude.kernel || self.exclude.user || !self.terms.targeted {
            return Ok(());
        }
        let is_refused = evlist.probe(evsel.attr(), cpu).is_err_and(|err| is_refused(&err));
        if is_refused && evlist.probe(&evsel.attr().clone().exclude(USER_ALONE), cpu).is_ok() {
            setup.warn(
                "not permitted to sample the kernel, as with --exclude-kernel: run as root, or give CAP_PERFMON"
                    .to_owned(),
            );
            self.exclude.kernel = true;
        }
        Ok(())
    }
}

/// Frames of a softirq's callchain: the network softirq calls some thirty functions, more where packets pass bridges.
fn softirq_depth(host: &Host) -> u16 {
    const LIMIT: u16 = 48;
    let limit = sysctl(host, "perf_event_max_stack").and_then(|limit| u16::try_from(limit).ok());
    limit.map_or(LIMIT, |limit| LIMIT.min(limit))
}

/// Refuses a period that is too short for the timer of the CPU clock.
fn check_clock_period(host: &Host, period_ns: u64) -> Result<()> {
    /// perf_swevent_start_hrtimer, kernel/events/core.c, silently replaces shorter periods by this one.
    const SHORTEST_NS: u64 = 10_000;
    if period_ns < SHORTEST_NS {
        bail!("-c {period_ns} is too short for the CPU clock: at least {SHORTEST_NS}, in ns");
    }
    let hz = 1_000_000_000 / period_ns;
    check_limit(host, &format!("-c {period_ns} asks for a frequency of"), hz, "perf_event_max_sample_rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_of_the_clock_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("sys/kernel");
        std::fs::create_dir_all(&kernel).unwrap();
        std::fs::write(kernel.join("perf_event_max_sample_rate"), "1000\n").unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        assert!(check_clock_period(&host, 1_000_000).is_ok() && check_clock_period(&host, i64::MAX as u64).is_ok());
        for (period_ns, words) in [
            (9_999, "at least 10000, in ns"),
            (10_000, "a frequency of 100000 is over kernel.perf_event_max_sample_rate"),
        ] {
            let err = check_clock_period(&host, period_ns).unwrap_err().to_string();
            assert!(err.contains(&format!("-c {period_ns} ")) && err.contains(words), "{err}");
        }
    }
}
