//! The CPUs that a thread may run on.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// A set of CPUs with a fixed size in bits, so that it needs no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMask(CpuSet);

impl CpuMask {
    pub fn none() -> CpuMask {
        CpuMask(CpuSet::new())
    }

    /// The CPUs that the calling thread may run on.
    ///
    /// # Errors
    /// EINVAL on a machine with more CPUs than the set can hold.
    pub fn of_self() -> io::Result<CpuMask> {
        CpuMask::of(0)
    }

    /// The CPUs that a thread may run on, those of its cgroup's cpuset among them.
    ///
    /// # Errors
    /// As [`CpuMask::of_self`]; ESRCH when the thread has exited.
    pub fn of(tid: i32) -> io::Result<CpuMask> {
        Ok(CpuMask(sched_getaffinity(Pid::from_raw(tid))?))
    }

    /// Adds a CPU, unless its number is too large for the set.
    #[must_use]
    pub fn with(mut self, cpu: u32) -> CpuMask {
        let _ = self.0.set(cpu as usize);
        self
    }

    #[must_use]
    pub fn without(mut self, cpu: u32) -> CpuMask {
        let _ = self.0.unset(cpu as usize);
        self
    }

    pub fn has(&self, cpu: u32) -> bool {
        self.0.is_set(cpu as usize).unwrap_or(false)
    }

    /// The CPUs in the set, sorted.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        (0..CpuSet::count() as u32).filter(|cpu| self.has(*cpu))
    }

    /// Number of CPUs in the set.
    pub fn count(&self) -> usize {
        self.cpus().count()
    }

    pub fn is_empty(&self) -> bool {
        *self == CpuMask::none()
    }

    /// Lets a thread run on these CPUs only. `tid` 0 is the calling thread.
    ///
    /// # Errors
    /// ESRCH when the thread has exited, EINVAL when none of the CPUs is online.
    pub fn apply(&self, tid: i32) -> io::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(tid), &self.0)?)
    }
}

/// The CPU on which the calling thread runs, or has just run.
pub fn current_cpu() -> Option<u32> {
    sched_getcpu().ok().and_then(|cpu| u32::try_from(cpu).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_cpus() {
        let set = CpuMask::none().with(0).with(5).with(u32::MAX);
        assert!(set.has(5) && !set.has(1) && !set.has(u32::MAX));
        assert_eq!((set.count(), CpuMask::none().count()), (2, 0));
        assert_eq!(set.without(5).without(7), CpuMask::none().with(0));
        assert!(set.without(0).without(5).is_empty());
    }

    #[test]
    fn a_thread_goes_where_it_may() {
        let all = CpuMask::of_self().unwrap();
        let cpu = current_cpu().unwrap();
        let here = CpuMask::none().with(cpu);
        std::thread::spawn(move || {
            here.apply(0).unwrap();
            assert_eq!((CpuMask::of_self().unwrap(), current_cpu()), (here, Some(cpu)));
            assert!(CpuMask::none().apply(0).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(CpuMask::of_self().unwrap(), all);
    }
}
