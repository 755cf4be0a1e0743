//! How the events of a CPU are opened: settled once, before the first.

use std::os::fd::RawFd;

use anyhow::{Context, Result};

use crate::sys;
use crate::sys::perf::Watch;

/// How the events of a CPU are opened, settled once per run.
#[derive(Debug, Default)]
pub(super) struct OpenPlan {
    /// Threads or cgroup descriptors for task-bound events; None opens the whole CPU.
    pub bound: Option<BoundTo>,
    pub side_on_cpu: bool,
    pub enable_on_exec: bool,
    pub inherit: bool,
    pub mappings: bool,
    /// By event, which of the rings of a CPU its records go to.
    pub classes: Vec<usize>,
    pub rings: usize,
    /// The ring of windows that have one.
    pub windows: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum BoundTo {
    Threads(Vec<i32>),
    Cgroups(Vec<RawFd>),
}

/// What the user should hear about how the events were opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// Task-bound events had to be opened on whole CPUs: the run must drop other tasks' samples.
    pub filter_in_user: bool,
    pub notes: Vec<String>,
}

impl OpenPlan {
    /// What the owner of a ring watches: it counts nothing.
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

/// How often a task-bound event is opened on each CPU.
pub(super) fn watches_of(bound: Option<&BoundTo>) -> u64 {
    match bound {
        None => 1,
        Some(BoundTo::Threads(tids)) => tids.len() as u64,
        Some(BoundTo::Cgroups(fds)) => fds.len() as u64,
    }
}

/// The watermark, in bytes.
pub(super) fn half(data_pages: usize) -> Result<u32> {
    u32::try_from(data_pages * sys::page_size() / 2).context("ring buffers are limited to 4 GiB")
}
