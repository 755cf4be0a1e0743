//! How long each process ran, by the kernel's own accounting.
//!
//! A process that timers wake may run in step with the sampling clock, or between its ticks: then it has far too many
//! samples, or none. The kernel accounts every ns of the process, and samples only divide that time.
//!
//! The account is the CPU clock of the process (`sys::process_cpu_ns`): in ns, including exited threads, by one system
//! call that never blocks. `utime` and `stime` of /proc/PID/stat have the same time in ticks of 10 ms, at twenty times
//! the cost; /proc/PID/task/*/schedstat lacks exited threads.

use rustc_hash::FxHashMap;

use crate::perf::Record;
use crate::profiler::Timestamp;
use crate::sys;
use crate::task::Comm;

/// Most processes whose clocks are read at the end of an interval: that takes some 25 ms, and the ring buffers hold
/// seconds.
const LIMIT: usize = 1 << 15;

/// The CPU clock of a process, read between two readings of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    pub cpu_ns: u64,
    pub asked_ns: Timestamp,
    pub told_ns: Timestamp,
}

impl ClockReading {
    /// None: the process has ended.
    pub fn now(pid: i32) -> Option<ClockReading> {
        /// If the two times are further apart, this thread had to wait for a CPU: the clock is read again.
        const CLOSE_NS: u64 = 100_000;
        const TRIES: usize = 3;
        let mut best: Option<ClockReading> = None;
        for _ in 0..TRIES {
            let asked_ns = sys::monotonic_ns();
            let cpu_ns = sys::process_cpu_ns(pid)?;
            let reading = ClockReading { cpu_ns, asked_ns, told_ns: sys::monotonic_ns() };
            if best.is_none_or(|best| reading.took_ns() < best.took_ns()) {
                best = Some(reading);
            }
            if reading.took_ns() <= CLOSE_NS {
                break;
            }
        }
        best
    }

    fn took_ns(&self) -> u64 {
        self.told_ns.saturating_sub(self.asked_ns)
    }
}

/// The CPU time that a process used in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessCpuTime {
    /// The name of the process now.
    pub comm: Comm,
    /// In CPUs: 1 is the whole time of one CPU.
    pub cpus: f64,
}

/// Measurements of an interval besides its samples.
#[derive(Clone, Debug)]
pub struct MeasuredUsage {
    pub used: FxHashMap<i32, ProcessCpuTime>,
    /// The busy time of all CPUs, in CPUs; infinite when unknown.
    pub busy: f64,
}

impl Default for MeasuredUsage {
    fn default() -> MeasuredUsage {
        MeasuredUsage { used: FxHashMap::default(), busy: f64::INFINITY }
    }
}

#[derive(Clone, Copy, Debug)]
struct AccountedProcess {
    comm: Comm,
    /// The reading at the beginning of the interval, or of the process. None: unknown.
    before: Option<ClockReading>,
    /// Living threads, and threads that lived at some time of the interval.
    threads: u32,
    lived: u32,
    /// The last reading.
    now: Option<ClockReading>,
}

/// The accounts of all processes.
#[derive(Debug, Default)]
pub struct Accounts {
    processes: FxHashMap<i32, AccountedProcess>,
    /// When the interval began.
    start_ns: Timestamp,
    /// Records of births and exits may be missing: the number of threads is unknown.
    uncounted: bool,
    looked_ns: Timestamp,
}

impl Accounts {
    /// Begins with the living threads, as (tid, pid, name).
    pub fn begin(
        &mut self,
        start_ns: Timestamp,
        living: impl Iterator<Item = (i32, i32, Comm)>,
        clock: impl Fn(i32) -> Option<ClockReading>,
    ) {
        self.start_ns = start_ns;
        self.count(living);
        for (&pid, process) in &mut self.processes {
            process.before = clock(pid);
        }
    }

    /// Recounts processes and their threads.
    pub fn count(&mut self, living: impl Iterator<Item = (i32, i32, Comm)>) {
        self.processes.values_mut().for_each(|process| process.threads = 0);
        for (tid, pid, comm) in living.filter(|(tid, ..)| *tid > 0) {
            let Some(process) = self.process(pid) else { continue };
            process.threads += 1;
            process.lived = process.lived.max(process.threads);
            if tid == pid {
                process.comm = comm;
            }
        }
    }

    fn process(&mut self, pid: i32) -> Option<&mut AccountedProcess> {
        if self.processes.len() >= LIMIT && !self.processes.contains_key(&pid) {
            return None; // samples measure this process
        }
        let new = AccountedProcess { comm: Comm::default(), before: None, threads: 0, lived: 0, now: None };
        Some(self.processes.entry(pid).or_insert(new))
    }

    /// A task was born, renamed or ended at `time`. `name` gives the name of a process.
    pub fn apply(&mut self, record: &Record<'_>, time: Timestamp, name: impl FnOnce(i32) -> Comm) {
        match *record {
            Record::Fork(fork) if fork.tid > 0 => {
                let start_ns = self.start_ns;
                let Some(process) = self.process(fork.pid) else { return };
                process.threads += 1;
                process.lived += 1;
                if fork.tid != fork.pid {
                    return;
                }
                // The clock of a process begins at 0. For a pid that two processes had in this interval, the time is
                // unknown.
                let had = process.before.is_some_and(|before| before.told_ns < time);
                let newborn = ClockReading { cpu_ns: 0, asked_ns: start_ns.min(time), told_ns: time };
                *process = AccountedProcess {
                    comm: name(fork.pid),
                    before: (!had).then_some(newborn),
                    threads: 1,
                    lived: process.lived,
                    now: None,
                };
            }
            Record::Exit(exit) => {
                if let Some(process) = self.processes.get_mut(&exit.pid) {
                    process.threads = process.threads.saturating_sub(1);
                }
            }
            Record::Comm { pid, tid, comm, exec } if pid == tid => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.comm = Comm::of_task(comm);
                    process.threads = if exec { 1 } else { process.threads };
                }
            }
            _ => {}
        }
    }

    /// Records of births and exits may be missing.
    pub fn lost(&mut self) {
        self.uncounted = true;
    }

    pub fn is_uncounted(&self) -> bool {
        self.uncounted
    }

    /// The CPU time that each living process has used in the interval so far, if it lived at the beginning or was born
    /// in the interval.
    pub fn look(&mut self, cpus: usize, clock: impl Fn(i32) -> Option<ClockReading>) -> FxHashMap<i32, ProcessCpuTime> {
        self.looked_ns = sys::monotonic_ns();
        let mut used = FxHashMap::default();
        for (&pid, process) in &mut self.processes {
            process.now = clock(pid);
            let most = if self.uncounted { cpus } else { cpus.min(process.lived.max(1) as usize) };
            // A clock that went back belongs to another process.
            if let (Some(before), Some(now)) = (process.before, process.now)
                && let Some(ns) = now.cpu_ns.checked_sub(before.cpu_ns)
            {
                let span_ns = now.told_ns.saturating_sub(before.asked_ns).max(1);
                // The kernel accounts a running task only up to the last tick: a process may seem to have run a little
                // longer than the interval.
                let cpus = (ns as f64 / span_ns as f64).min(most as f64);
                used.insert(pid, ProcessCpuTime { comm: process.comm, cpus });
            }
        }
        used
    }

    /// Ends the interval with the last readings.
    pub fn next_interval(&mut self) {
        self.processes.retain(|_, process| {
            process.before = process.now.take();
            process.lived = process.threads.max(1);
            process.before.is_some()
        });
        self.start_ns = self.looked_ns;
        self.uncounted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::TaskRecord;

    const SECOND: u64 = 1_000_000_000;

    fn at(ns: u64, cpu_ns: u64) -> Option<ClockReading> {
        Some(ClockReading { cpu_ns, asked_ns: ns, told_ns: ns })
    }

    fn born(tid: i32, pid: i32) -> Record<'static> {
        Record::Fork(TaskRecord { pid, ppid: 1, tid, ptid: 1, time: 0 })
    }

    fn name(_: i32) -> Comm {
        Comm::new(b"child")
    }

    /// Process 5 with one thread, process 6 with two.
    fn accounts(clock: impl Fn(i32) -> Option<ClockReading>) -> Accounts {
        let comm = Comm::new(b"t");
        let mut accounts = Accounts::default();
        accounts.begin(SECOND, [(5, 5, comm), (6, 6, comm), (7, 6, comm), (0, 0, comm)].into_iter(), clock);
        accounts
    }

    impl Accounts {
        fn take(&mut self, cpus: usize, clock: impl Fn(i32) -> Option<ClockReading>) -> FxHashMap<i32, ProcessCpuTime> {
            let used = self.look(cpus, clock);
            self.next_interval();
            used
        }
    }

    fn cpus(used: &FxHashMap<i32, ProcessCpuTime>) -> Vec<(i32, f64)> {
        let mut cpus: Vec<(i32, f64)> = used.iter().map(|(pid, used)| (*pid, used.cpus)).collect();
        cpus.sort_by_key(|(pid, _)| *pid);
        cpus
    }

    #[test]
    fn a_process_that_lives_at_both_ends_is_measured() {
        let mut accounts = accounts(|pid| at(SECOND, pid as u64 * SECOND));
        let used = accounts.take(8, |pid| at(3 * SECOND, pid as u64 * SECOND + SECOND / 2));
        assert_eq!(cpus(&used), [(5, 0.25), (6, 0.25)]);
        assert_eq!(used[&5].comm, Comm::new(b"t"));
        // The process has ended, or another process has its pid.
        let used = accounts.take(8, |pid| if pid == 5 { None } else { at(4 * SECOND, 1) });
        assert!(used.is_empty(), "{used:?}");
        let used = accounts.take(8, |_| at(5 * SECOND, SECOND / 2 + 1));
        assert_eq!(cpus(&used), [(6, 0.5)]);
    }

    #[test]
    fn a_newborn_begins_with_no_cpu_time() {
        let mut accounts = accounts(|_| at(SECOND, 0));
        accounts.apply(&born(8, 8), 2 * SECOND, name);
        let used = accounts.take(8, |pid| at(3 * SECOND, if pid == 8 { SECOND } else { 0 }));
        assert_eq!(cpus(&used), [(5, 0.0), (6, 0.0), (8, 0.5)]);
        assert_eq!(used[&8].comm, Comm::new(b"child"));
        // Another process had this pid earlier in the same interval.
        accounts.apply(&born(8, 8), 4 * SECOND, name);
        let used = accounts.take(8, |_| at(5 * SECOND, 2 * SECOND));
        assert!(!used.contains_key(&8), "{used:?}");
        // The birth record is older than the first reading of the clock.
        let comm = Comm::new(b"t");
        let mut accounts = Accounts::default();
        accounts.begin(SECOND, std::iter::once((9, 9, comm)), |_| at(2 * SECOND, SECOND / 2));
        accounts.apply(&born(9, 9), 3 * SECOND / 2, name);
        assert_eq!(cpus(&accounts.take(8, |_| at(3 * SECOND, SECOND))), [(9, 0.5)]);
    }

    #[test]
    fn a_process_uses_no_more_than_its_threads_can() {
        let mut accounts = accounts(|_| at(SECOND, 0));
        // Time used before the first reading of the clock counts in this interval.
        let used = accounts.take(8, |_| at(2 * SECOND, 4 * SECOND));
        assert_eq!(cpus(&used), [(5, 1.0), (6, 2.0)]);
        accounts.apply(&born(55, 5), 5 * SECOND / 2, name);
        accounts.apply(&Record::Exit(TaskRecord { pid: 5, ppid: 1, tid: 55, ptid: 5, time: 0 }), 5 * SECOND / 2, name);
        let used = accounts.take(8, |_| at(3 * SECOND, 9 * SECOND));
        assert_eq!(cpus(&used), [(5, 2.0), (6, 2.0)]);
        assert_eq!(cpus(&accounts.take(1, |_| at(4 * SECOND, 19 * SECOND))), [(5, 1.0), (6, 1.0)]);
        // The number of threads is unknown.
        accounts.lost();
        assert_eq!(cpus(&accounts.take(4, |_| at(5 * SECOND, 29 * SECOND))), [(5, 4.0), (6, 4.0)]);
    }

    /// The reader had no CPU between reading the time and the clock: the clock does not cover that time.
    #[test]
    fn a_slow_look_makes_no_share_larger() {
        let mut accounts = accounts(|_| Some(ClockReading { cpu_ns: 0, asked_ns: SECOND, told_ns: 3 * SECOND }));
        let late = ClockReading { cpu_ns: 2 * SECOND, asked_ns: 4 * SECOND, told_ns: 5 * SECOND };
        assert_eq!(cpus(&accounts.take(8, |_| Some(late))), [(5, 0.5), (6, 0.5)]);
    }

    #[test]
    fn our_own_clock_is_that_of_the_kernel() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = sys::cpu_ns().1;
        let reading = ClockReading::now(own).unwrap();
        assert!((before..=sys::cpu_ns().1).contains(&reading.cpu_ns), "{reading:?}");
        assert_eq!((ClockReading::now(0), ClockReading::now(-1), ClockReading::now(i32::MAX >> 8)), (None, None, None));
    }
}
