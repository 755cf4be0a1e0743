//! Periodic sampling: by hardware cycles if the machine counts them, else by the CPU clock. And options of sampling
//! profilers: which code, and how many frames.

use std::io;

use anyhow::{Result, bail};

use crate::cli::{usage, values};
use crate::host::{Host, online_cpus, sysctl};
use crate::perf::Attr;
use crate::perf::attr::Exclude;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::opening::is_refused;
use crate::profiler::Setup;

/// What unprivileged users may sample: only user mode.
pub const USER_ALONE: Exclude = Exclude { user: false, kernel: true, guest: false, host: false };

/// Which code is not sampled.
#[derive(Debug, Default, clap::Args)]
pub struct ExcludeArgs {
    /// No samples of user code
    #[arg(long)]
    exclude_user: bool,
    /// No samples of the kernel
    #[arg(long)]
    exclude_kernel: bool,
    /// No samples of virtual machines
    #[arg(long)]
    exclude_guest: bool,
    /// Only samples of virtual machines
    #[arg(short = 'G', long, alias = "guest")]
    exclude_host: bool,
}

/// Which code is not sampled, for events that virtual machines have not
#[derive(Debug, Default, clap::Args)]
pub struct ExcludeModeArgs {
    /// Not those of user code
    #[arg(long)]
    exclude_user: bool,
    /// Not those of the kernel
    #[arg(long, conflicts_with = "exclude_user")]
    exclude_kernel: bool,
}

impl ExcludeModeArgs {
    pub fn exclude(&self) -> Exclude {
        Exclude { user: self.exclude_user, kernel: self.exclude_kernel, ..Exclude::default() }
    }
}

impl ExcludeArgs {
    /// # Errors
    /// Nothing is left to sample.
    pub fn exclude(&self) -> Result<Exclude> {
        let ExcludeArgs { exclude_user: user, exclude_kernel: kernel, exclude_guest: guest, exclude_host: host } =
            *self;
        if user && kernel {
            return Err(usage("--exclude-user and --exclude-kernel together leave nothing to sample"));
        }
        if host && guest {
            return Err(usage("--exclude-host and --exclude-guest together leave nothing to sample"));
        }
        Ok(Exclude { user, kernel, guest, host })
    }
}

/// How many frames of a callchain are taken, and printed.
#[derive(Debug, Default, clap::Args)]
pub struct FrameArgs {
    /// Take so many frames of each callchain
    #[arg(long, value_name = "FRAMES", value_parser = values::count)]
    max_stack: Option<u64>,
    /// Print so many [default: what tells them apart]
    #[arg(long, value_name = "FRAMES", value_parser = values::count)]
    print_stack: Option<u64>,
    /// Print them whole
    #[arg(long, conflicts_with = "print_stack")]
    full_stacks: bool,
}

impl FrameArgs {
    /// `--max-stack`, as [`Evsel::callchain`] takes it: 0 is the kernel's own limit.
    ///
    /// # Errors
    /// The kernel takes fewer.
    pub fn depth(&self, host: &Host) -> Result<u16> {
        check_limit(host, "--max-stack", self.max_stack.unwrap_or(0), "perf_event_max_stack")?;
        Ok(self.max_stack.and_then(|frames| u16::try_from(frames).ok()).unwrap_or(0))
    }

    /// Frames of a printed stack. None: as many as distinguish it from the others.
    pub fn printed(&self) -> Option<usize> {
        match self.print_stack {
            Some(frames) => Some(usize::try_from(frames).unwrap_or(usize::MAX)),
            None => self.full_stacks.then_some(usize::MAX),
        }
    }
}

impl Setup<'_> {
    /// A CPU on which to try an event.
    ///
    /// # Errors
    /// The online CPUs cannot be read.
    pub fn some_cpu(&self) -> Result<u32> {
        Ok(online_cpus(self.host)?.first().copied().unwrap_or(0))
    }

    /// The event `cycles`, or `clock` if the machine has no such counter. In that case the flag is true, and a warning
    /// says so, followed by `consequence`. The caller still has to set `exclude`.
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
            Err(err) if is_refused(&err) => evlist.probe(&cycles.clone().exclude(USER_ALONE), cpu).is_ok(),
            // There is a PMU for cycles, or opening the event will fail with the reason.
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

/// Refuses a number above a sysctl's limit, for which the kernel would only return EINVAL.
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
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct SamplingOptions {
        #[command(flatten)]
        exclude: ExcludeArgs,
        #[command(flatten)]
        frames: FrameArgs,
    }

    fn options(args: &[&str]) -> SamplingOptions {
        SamplingOptions::try_parse_from([&["x"], args].concat()).unwrap()
    }

    #[test]
    fn something_is_left_to_sample() {
        let exclude = |args: &[&str]| options(args).exclude.exclude().map_err(|err| err.to_string());
        let kernel_of_host = Exclude { user: true, kernel: false, guest: true, host: false };
        assert_eq!(exclude(&["--exclude-user", "--exclude-guest"]), Ok(kernel_of_host));
        assert_eq!(exclude(&["--guest"]), Ok(Exclude { host: true, ..Exclude::default() }));
        for [one, other] in [["--exclude-user", "--exclude-kernel"], ["--exclude-host", "--exclude-guest"]] {
            assert_eq!(exclude(&[one, other]), Err(format!("{one} and {other} together leave nothing to sample")));
        }
    }

    #[test]
    fn frames_are_taken_and_printed() {
        let host = Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() };
        let frames = |args: &[&str]| {
            let frames = options(args).frames;
            (frames.depth(&host).unwrap(), frames.printed())
        };
        assert_eq!(frames(&[]), (0, None));
        assert_eq!(frames(&["--max-stack", "16", "--full-stacks"]), (16, Some(usize::MAX)));
        assert_eq!(frames(&["--print-stack", "3"]), (0, Some(3)));
    }

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
