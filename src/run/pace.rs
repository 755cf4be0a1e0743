//! Keeps a run going while a CPU is stuck, for profilers that report stuck CPUs.
//!
//! A sleeping thread is woken by a timer of the CPU where it fell asleep, and may run there again. If that CPU has its
//! interrupts off, or cannot schedule, the thread is stuck too. So two small threads (keepers), each bound to its own
//! CPU, watch the reader's heartbeat: a late reader is moved off its CPU, and woken. The reader and the output thread
//! are kept off the CPUs that the profiler suspects even before there is something to report.
//!
//! The affinity of the reader and the output thread is changed while they sleep or wait for a CPU: then the kernel
//! needs no answer of the CPU that they leave (`affine_move_task`, kernel/sched/core.c). The keepers take no locks and
//! allocate no memory, since the holder of a lock may be stuck, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::host::online_cpus;
use crate::run::Run;
use crate::sys::affinity::{CpuMask, current_cpu};
use crate::sys::monotonic_ns;
use crate::sys::poll::{Waker, block_signals};

/// Time between two checks of the reader.
const BEAT: Duration = Duration::from_millis(100);
/// A heartbeat older than this is late: the reader sleeps for 100 ms at most.
const LATE_NS: u64 = 250_000_000;
/// Time for which the reader avoids the CPU on which it was late.
const AWAY_NS: u64 = 2_000_000_000;
const NONE: u32 = u32::MAX;

/// The reader's handle, with which it sends heartbeats. Dropping it ends the threads.
#[derive(Debug)]
pub struct Pace {
    shared: Arc<Shared>,
    suspects: Vec<u32>,
}

#[derive(Debug)]
struct Shared {
    /// Time and CPU of the reader's last heartbeat.
    beat_ns: AtomicU64,
    reader_cpu: AtomicU32,
    /// The CPU on which the reader was late, and until when that CPU is avoided.
    late_cpu: AtomicU32,
    late_until_ns: AtomicU64,
    /// A bit for each suspected CPU.
    suspects: Vec<AtomicU64>,
    /// The CPUs that perf-prof may run on at all.
    allowed: CpuMask,
    /// The two watching threads.
    keepers: [AtomicI32; 2],
    ended: AtomicBool,
}

impl Run {
    /// Starts the keepers for the reader and the output thread, if these have other CPUs to move to.
    pub(super) fn keep_pace(&mut self) {
        let threads = [nix::unistd::gettid().as_raw(), self.core.ctx.output.tid()];
        let cpus = online_cpus(&self.host).unwrap_or_default();
        self.pace = Pace::start(threads, &cpus, &self.wake.waker).unwrap_or(None);
        if self.pace.is_none() {
            let line = "degraded: perf-prof may run on one CPU only: while that one is stuck, nothing is told";
            self.core.ctx.output.note(line);
        }
    }
}

impl Pace {
    /// Starts the threads that watch `threads`, the reader first. None when perf-prof may run on only one CPU.
    ///
    /// # Errors
    /// A CPU number does not fit in the mask; no thread can be started.
    pub fn start(threads: [i32; 2], cpus: &[u32], waker: &Arc<Waker>) -> io::Result<Option<Pace>> {
        let allowed = CpuMask::of_self()?;
        let mut homes = cpus.iter().copied().filter(|&cpu| allowed.has(cpu));
        let (Some(first), Some(last)) = (homes.next(), homes.next_back()) else { return Ok(None) };
        let words = cpus.iter().max().map_or(0, |cpu| cpu / 64 + 1);
        let shared = Arc::new(Shared::new(allowed, words as usize));
        for (index, home) in [first, last].into_iter().enumerate() {
            let (shared, waker) = (shared.clone(), waker.clone());
            let work = move || {
                block_signals();
                shared.keepers[index].store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
                let home = CpuMask::none().with(home);
                if home.apply(0).is_ok() {
                    shared.keep(threads, home, &waker);
                }
            };
            std::thread::Builder::new().name("pace".into()).spawn(work)?;
        }
        Ok(Some(Pace { shared, suspects: Vec::new() }))
    }

    /// Sends a heartbeat.
    pub fn beat(&self) {
        self.shared.reader_cpu.store(current_cpu().unwrap_or(NONE), Ordering::Relaxed);
        self.shared.beat_ns.store(monotonic_ns(), Ordering::Release);
    }

    /// Sets the CPUs to avoid from now on.
    pub fn avoid(&mut self, suspects: &[u32]) {
        if self.suspects == suspects {
            return;
        }
        self.suspects.clear();
        self.suspects.extend_from_slice(suspects);
        for (index, word) in self.shared.suspects.iter().enumerate() {
            let here = suspects.iter().filter(|&&cpu| cpu as usize / 64 == index);
            word.store(here.fold(0, |bits, cpu| bits | 1 << (cpu % 64)), Ordering::Relaxed);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed); // not awaited: a keeper may be on a stuck CPU
        // A thread that is bound to a stuck CPU cannot even be killed, and the process would wait for it.
        let mask = self.shared.mask(monotonic_ns());
        for keeper in &self.shared.keepers {
            let tid = keeper.load(Ordering::Relaxed);
            if tid != 0 {
                let _ = mask.apply(tid); // fails if the thread has exited
            }
        }
    }
}

impl Shared {
    fn new(allowed: CpuMask, words: usize) -> Shared {
        Shared {
            beat_ns: AtomicU64::new(monotonic_ns()),
            reader_cpu: AtomicU32::new(NONE),
            late_cpu: AtomicU32::new(NONE),
            late_until_ns: AtomicU64::new(0),
            suspects: (0..words).map(|_| AtomicU64::new(0)).collect(),
            allowed,
            keepers: Default::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn keep(&self, threads: [i32; 2], home: CpuMask, waker: &Waker) {
        let mut applied = self.allowed;
        while !self.ended.load(Ordering::Relaxed) {
            std::thread::sleep(BEAT);
            let (mask, late) = self.look(monotonic_ns(), home);
            if mask != applied || late {
                applied = mask;
                for tid in threads {
                    let _ = mask.apply(tid); // fails if the thread has exited
                }
            }
            if late {
                waker.wake();
            }
        }
    }

    /// The CPUs that the watched threads may run on from now on, and whether the reader is late.
    fn look(&self, now: u64, home: CpuMask) -> (CpuMask, bool) {
        let silence = now.saturating_sub(self.beat_ns.load(Ordering::Acquire));
        let late = silence > LATE_NS;
        if late {
            self.late_cpu.store(self.reader_cpu.load(Ordering::Relaxed), Ordering::Relaxed);
            self.late_until_ns.store(now.saturating_add(AWAY_NS), Ordering::Relaxed);
        }
        // If that did not help, the reader gets the CPU of this thread, which certainly runs.
        let mask = if silence > 2 * LATE_NS { home } else { self.mask(now) };
        (mask, late)
    }

    fn mask(&self, now: u64) -> CpuMask {
        let mut mask = self.allowed;
        if now < self.late_until_ns.load(Ordering::Relaxed) {
            mask = mask.without(self.late_cpu.load(Ordering::Relaxed));
        }
        for (index, word) in self.suspects.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                mask = mask.without(index as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        if mask.is_empty() { self.allowed } else { mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(cpus: &[u32]) -> CpuMask {
        cpus.iter().fold(CpuMask::none(), |mask, &cpu| mask.with(cpu))
    }

    #[test]
    fn a_late_reader_leaves_its_cpu() {
        let shared = Arc::new(Shared::new(cpus(&[0, 1, 70]), 2));
        let mut pace = Pace { shared: shared.clone(), suspects: Vec::new() };
        shared.beat_ns.store(1000, Ordering::Relaxed);
        shared.reader_cpu.store(1, Ordering::Relaxed);
        let home = cpus(&[0]);
        assert_eq!(shared.look(1000 + LATE_NS, home), (cpus(&[0, 1, 70]), false));
        let now = 1001 + LATE_NS;
        assert_eq!(shared.look(now, home), (cpus(&[0, 70]), true));
        assert_eq!(shared.look(1001 + 2 * LATE_NS, home), (home, true), "it is somewhere else");
        // The reader is back, and avoids the CPU for a while.
        let now = 1001 + 2 * LATE_NS;
        shared.beat_ns.store(now, Ordering::Relaxed);
        assert_eq!(shared.look(now + 1, home), (cpus(&[0, 70]), false));
        shared.beat_ns.store(now + AWAY_NS, Ordering::Relaxed);
        assert_eq!(shared.look(now + AWAY_NS, home), (cpus(&[0, 1, 70]), false));
        pace.avoid(&[0, 70, 500]);
        assert_eq!(shared.look(now + AWAY_NS, home), (cpus(&[1]), false));
        pace.avoid(&[0, 1, 70]);
        assert_eq!(shared.look(now + AWAY_NS, home), (cpus(&[0, 1, 70]), false), "nowhere to go");
        pace.avoid(&[]);
        assert_eq!(shared.look(now + AWAY_NS, home), (cpus(&[0, 1, 70]), false));
    }
}
