//! What the answer covers besides the watched tasks: the CPUs of `-C`, and not our own threads.

use std::sync::Arc;

use crate::cli::values::CommList;
use crate::task::{Comm, Watched};
use crate::tep::{Filter, Format};

/// The CPUs that the answer covers, and our own threads, which it leaves out.
#[derive(Clone, Debug)]
pub struct RunScope {
    /// `-C`. None: all.
    cpus: Option<Arc<[u32]>>,
    own: [i32; OWN],
}

/// Most threads of ours: two that every run has, those of a profiler, one that reads keys, and the server of the metrics.
const OWN: usize = 7;
/// A tid that no task has. Not -1, which a task that has exited has in its last records.
const NOBODY: i32 = i32::MIN;

impl Default for RunScope {
    /// Everything.
    fn default() -> RunScope {
        RunScope { cpus: None, own: [NOBODY; OWN] }
    }
}

impl RunScope {
    /// The last argument: the two threads that every run has.
    pub fn new(cpus: Option<&[u32]>, [reader, output]: [i32; 2]) -> RunScope {
        RunScope { cpus: cpus.map(Arc::from), own: [reader, output, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY] }
    }

    /// Leaves out threads of the profiler, too.
    #[must_use]
    pub fn without(mut self, tids: &[i32]) -> RunScope {
        assert!(tids.len() <= OWN - 4, "there are more threads than places");
        self.own.iter_mut().skip(2).zip(tids).for_each(|(own, tid)| *own = *tid);
        self
    }

    /// Leaves out the thread that serves the metrics, too.
    #[must_use]
    pub fn with_server(mut self, tid: i32) -> RunScope {
        self.own[OWN - 1] = tid;
        self
    }

    /// Leaves out the thread that reads keys, too.
    #[must_use]
    pub fn with_keyboard(mut self, tid: i32) -> RunScope {
        self.own[OWN - 2] = tid;
        self
    }

    /// True for a thread of ours.
    #[inline(always)]
    pub fn is_own(&self, tid: i32) -> bool {
        self.own.contains(&tid)
    }

    /// True for a task that the answer is about: one that is watched, has a name of `--filter`, and is not ours.
    #[inline]
    pub fn asks_for(&self, tid: i32, comm: &Comm, watched: &Watched, names: Option<&CommList>) -> bool {
        let has_name = || names.is_none_or(|names| names.matches(comm.as_bytes()));
        tid > 0 && !self.is_own(tid) && watched.contains(tid) && has_name()
    }

    /// A filter that leaves our own threads out, for events that are about the current task only.
    pub fn not_own(&self, format: &Format) -> Option<Filter> {
        let others: Vec<String> = self.own().map(|tid| format!("common_pid != {tid}")).collect();
        Filter::parse(&others.join(" && "), format).ok()
    }

    /// Our own threads.
    pub fn own(&self) -> impl Iterator<Item = i32> {
        self.own.into_iter().filter(|&tid| tid != NOBODY)
    }

    /// True for a CPU that the answer covers.
    #[inline]
    pub fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// The CPUs that were asked for. None: all.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        self.cpus.as_ref().map(|cpus| cpus.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_what_is_ours_or_elsewhere() {
        let scope = RunScope::new(Some(&[1, 3]), [10, 11]).without(&[12, 14]);
        assert_eq!([0, 1, 2, 3].map(|cpu| scope.has_cpu(cpu)), [false, true, false, true]);
        let is_own = [10, 11, 12, 14, 13, 0, -1].map(|tid| scope.is_own(tid));
        assert_eq!(is_own, [true, true, true, true, false, false, false]);
        let served = scope.clone().with_server(77);
        assert!(served.is_own(77) && served.is_own(12) && !scope.is_own(77));
        let everything = RunScope::default();
        assert!(everything.has_cpu(7) && everything.cpus().is_none() && everything.own().next().is_none());
    }
}
