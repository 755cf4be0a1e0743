//! What the answer covers besides the watched tasks: the CPUs of `-C`, and not our own threads.

use std::ops::Range;
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

/// Most tasks of ours: two threads that every run has, those of a profiler, the processes that ask about others, the thread that reads
/// keys, and the server of the metrics.
const OWN: usize = OF_PROFILER.end + WORKERS + 2;
const OF_PROFILER: Range<usize> = 2..5;
const WORKERS: usize = 4;
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
        let mut own = [NOBODY; OWN];
        (own[0], own[1]) = (reader, output);
        RunScope { cpus: cpus.map(Arc::from), own }
    }

    /// Leaves out threads of the profiler, too.
    #[must_use]
    pub fn without(mut self, tids: &[i32]) -> RunScope {
        assert!(tids.len() <= OF_PROFILER.len(), "there are more threads than places");
        self.own[OF_PROFILER].iter_mut().zip(tids).for_each(|(own, tid)| *own = *tid);
        self
    }

    /// Leaves out the processes that ask about others, too. One that replaces another later is not among them.
    #[must_use]
    pub fn with_workers(mut self, pids: &[i32]) -> RunScope {
        self.own[OF_PROFILER.end..][..WORKERS].iter_mut().zip(pids).for_each(|(own, pid)| *own = *pid);
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
        Filter::parse(&not_these(self.own().collect()), format).ok()
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

/// A filter without these tids: those that follow each other, as processes do that were forked one after another, are one test.
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
