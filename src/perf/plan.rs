//! How the events of a CPU are opened, settled once per run.

use std::os::fd::RawFd;

use anyhow::{Context, Result};

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
    /// Number of the ring of windows, if there is one.
    pub windows: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum BoundTo {
    Threads(Vec<i32>),
    Cgroups(Vec<RawFd>),
}

/// What a plan means for the run and its user.
#[derive(Debug, Default)]
pub struct PlanOutcome {
    /// Task-bound events had to be opened on whole CPUs: the run must drop other tasks' samples.
    pub filter_in_user: bool,
    pub notes: Vec<String>,
}

impl OpenPlan {
    /// What the owner of a ring watches, which counts nothing.
    pub fn watch_of_owner(&self, cpu: u32) -> Watch {
        if self.side_on_cpu { Watch::Cpu(cpu) } else { Watch::Task { tid: nix::unistd::gettid().as_raw(), cpu } }
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

/// The watermark of a ring in bytes: half of it.
pub(super) fn half(data_pages: usize) -> Result<u32> {
    u32::try_from(data_pages * sys::page_size() / 2).context("ring buffers are limited to 4 GiB")
}
