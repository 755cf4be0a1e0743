//! Sampling in equal steps of time: hardware cycles where this machine counts them, else the CPU clock.

use std::io;

use anyhow::{Result, bail};

use crate::host::{Host, online_cpus, sysctl};
use crate::perf::Attr;
use crate::perf::attr::Exclude;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::opening::refused;
use crate::profiler::Setup;

/// What unprivileged users may sample: user space alone.
pub const USER_ALONE: Exclude = Exclude { user: false, kernel: true, guest: false, host: false };

impl Setup<'_> {
    /// A CPU to try an event on.
    ///
    /// # Errors
    /// The kernel does not tell which are online.
    pub fn some_cpu(&self) -> Result<u32> {
        Ok(online_cpus(self.host)?.first().copied().unwrap_or(0))
    }

    /// The event `cycles`, or `clock` where this machine has no such counter. The flag is then true, and a warning says so,
    /// followed by `consequence`. The caller still has to set `exclude`.
    ///
    /// # Errors
    /// As [`Setup::some_cpu`].
    pub fn cycles_or_clock(
        &self,
        evlist: &mut Evlist,
        [cycles, clock]: [Attr; 2],
        exclude: Exclude,
        consequence: &str,
    ) -> Result<(Evsel, bool)> {
        let cpu = self.some_cpu()?;
        let has_cycles = match evlist.probe(&cycles.clone().exclude(exclude), cpu) {
            Err(err) if is_absent(&err) => false,
            // The kernel checks permissions before it looks for the PMU.
            Err(err) if refused(&err) => evlist.probe(&cycles.clone().exclude(USER_ALONE), cpu).is_ok(),
            // There is a PMU for it, or opening the event will fail with the reason.
            _ => true,
        };
        if has_cycles {
            return Ok((Evsel::new("cycles", cycles), false));
        }
        self.warn(format!(
            "no hardware counter of cycles here (usual in virtual machines): sampling the CPU clock{consequence}"
        ));
        Ok((Evsel::new("cpu-clock", clock), true))
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(err.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV))
}

/// Refuses more than a sysctl allows: the kernel itself would only say EINVAL.
///
/// # Errors
/// `wanted` is more than the sysctl `name`.
pub fn check_limit(host: &Host, what: &str, wanted: u64, name: &str) -> Result<()> {
    match sysctl(host, name).and_then(|limit| u64::try_from(limit).ok()) {
        Some(limit) if wanted > limit => bail!(
            "{what} {wanted} is over kernel.{name}, which is {limit}: ask for less, or raise it (sysctl -w kernel.{name}={wanted})"
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("sys/kernel");
        std::fs::create_dir_all(&kernel).unwrap();
        std::fs::write(kernel.join("perf_event_max_sample_rate"), "1000\n").unwrap();
        let host = Host { proc: dir.path().into(), cpu: dir.path().into() };
        assert!(check_limit(&host, "-F", 1000, "perf_event_max_sample_rate").is_ok());
        assert!(check_limit(&host, "-F", 1001, "absent").is_ok());
        let err = check_limit(&host, "-F", 1001, "perf_event_max_sample_rate").unwrap_err().to_string();
        assert!(err.contains("-F 1001") && err.contains("kernel.perf_event_max_sample_rate, which is 1000"), "{err}");
    }
}
