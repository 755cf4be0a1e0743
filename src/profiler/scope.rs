//! The scope of a run besides the watched tasks: the CPUs of `-C`, without perf-prof's own threads.

use std::ops::Range;
use std::sync::Arc;

use crate::cli::values::CommList;
use crate::task::{Comm, Watched};
use crate::tep::{Filter, Format};

/// The CPUs that the run covers, and perf-prof's own threads, which it leaves out.
#[derive(Clone, Debug)]
pub struct RunScope {
    /// `-C`. None: all.
    cpus: Option<Arc<[u32]>>,
    own: [i32; OWN],
}

/// Limit of perf-prof's own tasks: the two threads of every run, a profiler's threads, the worker processes, the screen
/// thread, and the metrics server.
const OWN: usize = OF_PROFILER.end + WORKERS + 2;
const OF_PROFILER: Range<usize> = 2..5;
const WORKERS: usize = 4;
/// A tid that no task has. Not -1, which is the tid in the last records of an exiting task.
const NOBODY: i32 = i32::MIN;

impl Default for RunScope {
    /// A scope of all CPUs, without own threads.
    fn default() -> RunScope {
        RunScope { cpus: None, own: [NOBODY; OWN] }
    }
}

impl RunScope {
    /// The last argument: the reading thread and the output thread.
    pub fn new(cpus: Option<&[u32]>, [reader, output]: [i32; 2]) -> RunScope {
        let mut own = [NOBODY; OWN];
        (own[0], own[1]) = (reader, output);
        RunScope { cpus: cpus.map(Arc::from), own }
    }

    /// Also leaves out these threads of the profiler.
    #[must_use]
    pub fn without(mut self, tids: &[i32]) -> RunScope {
        assert!(tids.len() <= OF_PROFILER.len(), "there are more threads than places");
        self.own[OF_PROFILER].iter_mut().zip(tids).for_each(|(own, tid)| *own = *tid);
        self
    }

    /// Also leaves out the worker processes. A worker that replaces another one later is not included.
    #[must_use]
    pub fn with_workers(mut self, pids: &[i32]) -> RunScope {
        self.own[OF_PROFILER.end..][..WORKERS].iter_mut().zip(pids).for_each(|(own, pid)| *own = *pid);
        self
    }

    /// Also leaves out the metrics server thread.
    #[must_use]
    pub fn with_server(mut self, tid: i32) -> RunScope {
        self.own[OWN - 1] = tid;
        self
    }

    /// Also leaves out the screen thread.
    #[must_use]
    pub fn with_keyboard(mut self, tid: i32) -> RunScope {
        self.own[OWN - 2] = tid;
        self
    }

    /// True for one of perf-prof's own threads.
    #[inline(always)]
    pub fn is_own(&self, tid: i32) -> bool {
        self.own.contains(&tid)
    }

    /// True for a wanted task: it is watched, has a name of `--filter`, and is none of perf-prof's own.
    #[inline]
    pub fn asks_for(&self, tid: i32, comm: &Comm, watched: &Watched, names: Option<&CommList>) -> bool {
        let has_name = || names.is_none_or(|names| names.matches(comm.as_bytes()));
        tid > 0 && !self.is_own(tid) && watched.contains(tid) && has_name()
    }

    /// A filter that leaves out perf-prof's own threads, for events that concern only the current task.
    pub fn not_own(&self, format: &Format) -> Option<Filter> {
        Filter::parse(&not_these(self.own().collect()), format).ok()
    }

    /// The tids of perf-prof's own threads.
    pub fn own(&self) -> impl Iterator<Item = i32> {
        self.own.into_iter().filter(|&tid| tid != NOBODY)
    }

    /// True for a CPU that the run covers.
    #[inline]
    pub fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// The CPUs of `-C`. None: all.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        self.cpus.as_ref().map(|cpus| cpus.to_vec())
    }
}

/// The text of a filter without these tids. Consecutive tids, as of processes forked one after another, make one test.
fn not_these(mut tids: Vec<i32>) -> String {
    tids.sort_unstable();
    let runs = tids.chunk_by(|tid, next| tid.checked_add(1) == Some(*next));
    let tests = runs.map(|run| match run {
        [first, _, .., last] => format!("(common_pid < {first} || common_pid > {last})"),
        few => few.iter().map(|tid| format!("common_pid != {tid}")).collect::<Vec<_>>().join(" && "),
    });
    tests.collect::<Vec<_>>().join(" && ")
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
        let served = scope.clone().with_server(77).with_workers(&[80, 81, 82, 83]).with_keyboard(78);
        assert!([77, 78, 80, 83, 10, 12].into_iter().all(|tid| served.is_own(tid)) && !scope.is_own(77));
        let everything = RunScope::default();
        assert!(everything.has_cpu(7) && everything.cpus().is_none() && everything.own().next().is_none());
    }

    #[test]
    fn tids_in_a_row_are_one_test() {
        let cases: [(&[i32], &str); 4] = [
            (&[], ""),
            (&[8, 7], "common_pid != 7 && common_pid != 8"),
            (&[9, 7, 8], "(common_pid < 7 || common_pid > 9)"),
            (&[3, 11, 10, 12, 13], "common_pid != 3 && (common_pid < 10 || common_pid > 13)"),
        ];
        for (tids, want) in cases {
            assert_eq!(not_these(tids.to_vec()), want);
        }
    }
}
