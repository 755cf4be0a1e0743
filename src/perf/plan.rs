//! How the events of a CPU are opened, decided once per run.

use std::os::fd::RawFd;

use anyhow::{Context, Result};

use crate::host::{Host, threads};
use crate::perf::target::{Target, Tasks};
use crate::sys;
use crate::sys::perf::Watch;

/// How the events of a CPU are opened.
#[derive(Debug, Default)]
pub(super) struct OpenPlan {
    /// Threads or cgroup descriptors for task-bound events; None opens the whole CPU.
    pub bound: Option<BoundTo>,
    /// Side records are opened on the whole CPU.
    pub side_on_cpu: bool,
    pub enable_on_exec: bool,
    pub inherit: bool,
    /// Side records include mappings.
    pub mappings: bool,
    /// By event, the number of the ring of a CPU that its records go to.
    pub classes: Vec<usize>,
    /// Number of rings of a CPU.
    pub rings: usize,
    /// By ring, the limit of its data pages. A ring without an entry has no limit.
    pub most_pages: Vec<usize>,
    /// Number of the ring of windows, if there is one.
    pub windows: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum BoundTo {
    Threads(Vec<i32>),
    Cgroups(Vec<RawFd>),
}

impl BoundTo {
    /// None: all tasks.
    pub fn of(target: &Target, host: &Host) -> Option<BoundTo> {
        match &target.tasks {
            Tasks::All => None,
            Tasks::Threads(tids) => Some(BoundTo::Threads(tids.clone())),
            Tasks::Processes(pids) => Some(BoundTo::Threads(pids.iter().flat_map(|&pid| threads(host, pid)).collect())),
            Tasks::Cgroups(groups) => Some(BoundTo::Cgroups(groups.iter().map(|group| group.fd()).collect())),
            Tasks::Workload(pid) => Some(BoundTo::Threads(vec![*pid])),
        }
    }
}

/// What a plan means for the run and its user.
#[derive(Debug, Default)]
pub struct PlanOutcome {
    /// Task-bound events had to be opened on whole CPUs: the run must drop the samples of other tasks itself.
    pub filter_in_user: bool,
    pub notes: Vec<String>,
}

impl OpenPlan {
    /// What the dummy event that owns a ring is opened on.
    pub fn watch_of_owner(&self, cpu: u32) -> Watch {
        if self.side_on_cpu { Watch::Cpu(cpu) } else { Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu } }
    }

    /// The data pages of a ring, if the largest rings have `data_pages`.
    pub fn pages(&self, ring: usize, data_pages: usize) -> usize {
        self.most_pages.get(ring).map_or(data_pages, |most| data_pages.min(*most))
    }

    pub fn watches(&self, cpu: u32) -> Vec<Watch> {
        match &self.bound {
            None => vec![Watch::Cpu(cpu)],
            Some(BoundTo::Threads(tids)) => tids.iter().map(|&tid| Watch::Task { tid, cpu }).collect(),
            Some(BoundTo::Cgroups(dirs)) => dirs.iter().map(|&dir| Watch::Cgroup { dir, cpu }).collect(),
        }
    }
}

/// Number of descriptors of a task-bound event on each CPU.
pub(super) fn watches_of(bound: Option<&BoundTo>) -> u64 {
    match bound {
        None => 1,
        Some(BoundTo::Threads(tids)) => tids.len() as u64,
        Some(BoundTo::Cgroups(fds)) => fds.len() as u64,
    }
}

/// How full a ring is when the reader is woken, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark(pub u8);

impl Default for Watermark {
    fn default() -> Watermark {
        Watermark(50)
    }
}

impl Watermark {
    /// The watermark in bytes. 0 % is 1 byte: every record is larger, so each wakes the reader.
    ///
    /// # Errors
    /// The watermark does not fit in the kernel's 32 bits.
    pub(super) fn bytes(self, data_pages: usize) -> Result<u32> {
        let bytes = data_pages * sys::page_size();
        let part = u128::from(self.0) * bytes as u128 / 100;
        u32::try_from(part).map(|part| part.max(1)).context("ring buffers are limited to 4 GiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_parts_of_a_ring() {
        let page = sys::page_size() as u32;
        let bytes = |percent| Watermark(percent).bytes(4).unwrap();
        assert_eq!([0, 25, 50, 100].map(bytes), [1, page, 2 * page, 4 * page]);
        assert_eq!(Watermark::default().bytes(4).unwrap(), 2 * page);
        assert_eq!(Watermark(1).bytes(1).unwrap(), page / 100);
        assert!(Watermark(100).bytes((8 << 30) / page as usize).is_err());
    }
}
