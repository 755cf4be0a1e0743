//! Who frees memory for the machine: tasks themselves, and threads of the kernel.

use crate::host::{Host, ReclaimCounters, ReclaimedPages};
use crate::profilers::reclaim::table::{MachineFaults, ReclaimWorker, WorkerRow};
use crate::task::{Comm, procfs};

/// The counters of all of them at the end of the last interval.
#[derive(Debug, Default)]
pub struct ReclaimWorkers {
    host: Host,
    threads: Vec<WorkerThread>,
    before: Option<ReclaimCounters>,
    page_bytes: u64,
}

#[derive(Debug)]
struct WorkerThread {
    tid: i32,
    worker: ReclaimWorker,
    ran_ns: u64,
}

impl ReclaimWorkers {
    /// `named`: threads with their names. Programs may call themselves what they like, but only the kernel's threads
    /// are children of kthreadd.
    pub fn new(host: &Host, page_bytes: u64, named: impl Iterator<Item = (i32, Comm)>) -> ReclaimWorkers {
        const KTHREADD: i32 = 2;
        let thread = |(tid, comm): (i32, Comm)| {
            let worker =
                ReclaimWorker::ALL.into_iter().find(|worker| comm.as_bytes().starts_with(worker.word().as_bytes()))?;
            procfs::stat(host, tid).filter(|stat| stat.parent == KTHREADD)?;
            Some(WorkerThread { tid, worker, ran_ns: procfs::ran_ns(host, tid).unwrap_or(0) })
        };
        let before = ReclaimCounters::read(host);
        ReclaimWorkers { host: host.clone(), threads: named.filter_map(thread).collect(), before, page_bytes }
    }

    pub fn has_thread(&self, tid: i32) -> bool {
        self.threads.iter().any(|thread| thread.tid == tid)
    }

    /// What those have done that did anything since the last call, and what the machine faulted in again.
    pub fn take_rows(&mut self) -> (Vec<WorkerRow>, Option<MachineFaults>) {
        let now = ReclaimCounters::read(&self.host);
        let Some((now, before)) = now.zip(self.before) else { return Default::default() };
        self.before = Some(now);
        let refaults = now.refaults.saturating_sub(before.refaults);
        let swapped_in = now.swapped_in.saturating_sub(before.swapped_in);
        let bytes = |pages: fn(&ReclaimCounters) -> u64| {
            Some(pages(&now).saturating_sub(pages(&before)).saturating_mul(self.page_bytes))
        };
        let reclaimed = |of: fn(&ReclaimCounters) -> ReclaimedPages| {
            let (now, before) = (of(&now), of(&before));
            let bytes = |now: u64, before: u64| Some(now.saturating_sub(before).saturating_mul(self.page_bytes));
            (bytes(now.scanned, before.scanned), bytes(now.reclaimed, before.reclaimed))
        };
        let mut rows = Vec::new();
        let (scanned_bytes, reclaimed_bytes) = reclaimed(|counters| counters.direct);
        rows.push(WorkerRow { worker: None, cpu_ns: None, scanned_bytes, reclaimed_bytes, made: None });
        for worker in ReclaimWorker::ALL {
            let mut threads = self.threads.iter_mut().filter(|thread| thread.worker == worker).peekable();
            if threads.peek().is_none() {
                continue;
            }
            let ran_ns = |thread: &mut WorkerThread| {
                let now_ns = procfs::ran_ns(&self.host, thread.tid).unwrap_or(thread.ran_ns);
                now_ns.saturating_sub(std::mem::replace(&mut thread.ran_ns, now_ns))
            };
            let cpu_ns = Some(threads.map(ran_ns).sum());
            let ((scanned_bytes, reclaimed_bytes), made) = match worker {
                ReclaimWorker::Kswapd => (reclaimed(|counters| counters.kswapd), None),
                ReclaimWorker::Kcompactd => ((bytes(|counters| counters.compacted), None), None),
                ReclaimWorker::Khugepaged => {
                    (reclaimed(|counters| counters.khugepaged), Some(now.collapsed.saturating_sub(before.collapsed)))
                }
            };
            rows.push(WorkerRow { worker: Some(worker), cpu_ns, scanned_bytes, reclaimed_bytes, made });
        }
        rows.retain(|row| row.is_any() || row.cpu_ns.is_some_and(|ns| ns > 0));
        (rows, Some(MachineFaults { refaults, swapped_in }))
    }
}
