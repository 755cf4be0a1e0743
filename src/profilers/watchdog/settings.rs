//! Settings of the kernel's own watchdog, from /proc/sys/kernel, and the limits that follow from them.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::digits::format_ns;
use crate::host::{Host, online_cpus, parse_cpus};

/// Settings of kernel/watchdog.c. They are read repeatedly, since they may be changed at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchdogSettings {
    /// kernel.watchdog_thresh
    pub thresh_s: u64,
    /// kernel.watchdog: some detector is on.
    pub on: bool,
    /// kernel.soft_watchdog, and kernel.nmi_watchdog, the detector of hard lockups, even if it uses no NMI.
    pub soft: bool,
    pub hard: bool,
    /// The online CPUs of kernel.watchdog_cpumask.
    pub cpus: Vec<u32>,
}

/// Times of the kernel's watchdog, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockupLimits {
    /// Time from one expiry of a CPU's watchdog timer to the next.
    pub period: u64,
    /// How late an expiry may be.
    pub margin: u64,
    /// Durations at which the kernel reports lockups. None: it does not report them.
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

impl WatchdogSettings {
    /// # Errors
    /// The kernel has no watchdog.
    pub fn read(host: &Host) -> Result<WatchdogSettings> {
        let read = |name: &str| fs::read_to_string(host.proc.join("sys/kernel").join(name));
        let is_on = |name: &str| read(name).ok().map(|text| text.trim() != "0");
        let thresh = read("watchdog_thresh").context(
            "this kernel has no watchdog (no kernel.watchdog_thresh): it was built without CONFIG_LOCKUP_DETECTOR",
        )?;
        let thresh_s = thresh.trim().parse().context("kernel.watchdog_thresh is no number")?;
        let online = online_cpus(host)?;
        let allowed = match read("watchdog_cpumask") {
            Ok(text) if text.trim().is_empty() => Vec::new(),
            Ok(text) => parse_cpus(text.trim()).map_err(anyhow::Error::msg).context("in kernel.watchdog_cpumask")?,
            Err(_) => online.clone(),
        };
        Ok(WatchdogSettings {
            thresh_s,
            on: is_on("watchdog").unwrap_or(true),
            soft: is_on("soft_watchdog").unwrap_or(true),
            hard: is_on("nmi_watchdog").unwrap_or(false),
            cpus: online.into_iter().filter(|cpu| allowed.contains(cpu)).collect(),
        })
    }

    /// # Errors
    /// There is nothing to watch.
    pub fn check(&self) -> Result<()> {
        if self.thresh_s == 0 {
            bail!("the kernel's watchdog is off (kernel.watchdog_thresh is 0): sysctl -w kernel.watchdog_thresh=10");
        }
        if !self.on {
            bail!("the kernel's watchdog is off (kernel.watchdog is 0): sysctl -w kernel.watchdog=1");
        }
        Ok(())
    }

    /// True if the timers run.
    pub fn runs(&self) -> bool {
        self.on && self.thresh_s > 0
    }

    pub fn limits(&self) -> LockupLimits {
        const LONGEST_MARGIN_NS: u64 = 200_000_000;
        // set_sample_period: five expiries until a soft lockup is reported.
        let period = self.thresh_s.saturating_mul(400_000_000);
        let seconds = |count: u64| count.saturating_mul(1_000_000_000);
        LockupLimits {
            period,
            margin: LONGEST_MARGIN_NS.min(period / 8),
            soft: self.soft.then_some(seconds(self.thresh_s.saturating_mul(2))), // get_softlockup_thresh
            hard: self.hard.then_some(seconds(self.thresh_s)),
        }
    }

    /// The differences from `before`, as a line of text. None: there are none.
    pub fn changes(&self, before: &WatchdogSettings) -> Option<String> {
        let mut changes = Vec::new();
        let mut changed = |name: &str, old: u64, new: u64| {
            if old != new {
                changes.push(format!("kernel.{name} {old} -> {new}"));
            }
        };
        changed("watchdog_thresh", before.thresh_s, self.thresh_s);
        changed("watchdog", before.on.into(), self.on.into());
        changed("soft_watchdog", before.soft.into(), self.soft.into());
        changed("nmi_watchdog", before.hard.into(), self.hard.into());
        let gone: Vec<String> = before.cpus.iter().filter(|cpu| !self.cpus.contains(cpu)).map(u32::to_string).collect();
        let new: Vec<String> = self.cpus.iter().filter(|cpu| !before.cpus.contains(cpu)).map(u32::to_string).collect();
        if !gone.is_empty() {
            changes.push(format!("no longer on CPU {} (offline, or not in watchdog_cpumask)", gone.join(" ")));
        }
        if !new.is_empty() {
            changes.push(format!("now on CPU {}", new.join(" ")));
        }
        if changes.is_empty() {
            return None;
        }
        let off =
            if self.runs() { "" } else { ": the kernel's watchdog is off, nothing is watched until it is on again" };
        Some(format!("watchdog: {}{off}", changes.join(", ")))
    }
}

impl LockupLimits {
    /// For `-v`.
    pub fn describe(&self) -> String {
        let kernel = |limit: Option<u64>| {
            limit.map_or("does not report".to_owned(), |ns| format!("reports at {}", format_ns(ns)))
        };
        format!(
            "each CPU's watchdog timer is due every {}, {} late at most; of hard lockups the kernel {}, of soft ones it {}",
            format_ns(self.period),
            format_ns(self.margin),
            kernel(self.hard),
            kernel(self.soft)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        fs::write(dir.path().join("online"), "0-3\n").unwrap();
        for (name, text) in files {
            fs::write(dir.path().join("sys/kernel").join(name), text).unwrap();
        }
        let host = Host { proc: dir.path().to_owned(), cpu: dir.path().to_owned() };
        (dir, host)
    }

    #[test]
    fn limits_follow_the_threshold() {
        let of = |thresh_s| WatchdogSettings { thresh_s, on: true, soft: true, ..WatchdogSettings::default() }.limits();
        let (s, ms) = (1_000_000_000, 1_000_000);
        assert_eq!(of(10), LockupLimits { period: 4 * s, margin: 200 * ms, soft: Some(20 * s), hard: None });
        assert_eq!(of(1), LockupLimits { period: 400 * ms, margin: 50 * ms, soft: Some(2 * s), hard: None });
        of(u64::MAX);
    }

    #[test]
    fn reads_what_the_kernel_says() {
        let (_dir, host) = host(&[
            ("watchdog_thresh", "10\n"),
            ("watchdog", "1\n"),
            ("nmi_watchdog", "0\n"),
            ("watchdog_cpumask", "1-7\n"),
        ]);
        let settings = WatchdogSettings::read(&host).unwrap();
        let want = WatchdogSettings { thresh_s: 10, on: true, soft: true, hard: false, cpus: vec![1, 2, 3] };
        assert_eq!(settings, want);
        assert!(settings.check().is_ok() && settings.changes(&want).is_none());
        fs::write(host.proc.join("sys/kernel/watchdog_cpumask"), "\n").unwrap();
        fs::write(host.proc.join("sys/kernel/watchdog"), "0\n").unwrap();
        let off = WatchdogSettings::read(&host).unwrap();
        assert!(off.check().is_err() && off.cpus.is_empty());
        let text = off.changes(&settings).unwrap();
        assert!(text.contains("kernel.watchdog 1 -> 0, no longer on CPU 1 2 3") && text.contains("is off"), "{text}");
        fs::write(host.proc.join("sys/kernel/watchdog_thresh"), "0\n").unwrap();
        assert!(
            WatchdogSettings::read(&host).unwrap().check().unwrap_err().to_string().contains("watchdog_thresh is 0")
        );
        for hostile in ["", "-1", "x", "99999999999999999999"] {
            fs::write(host.proc.join("sys/kernel/watchdog_thresh"), hostile).unwrap();
            assert!(WatchdogSettings::read(&host).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn a_kernel_without_it() {
        let (_dir, host) = host(&[]);
        assert!(WatchdogSettings::read(&host).unwrap_err().to_string().contains("CONFIG_LOCKUP_DETECTOR"));
    }
}
