//! CPUs that are silent now: reported during the silence, as long as another CPU can run perf-prof.

use std::sync::Arc;
use std::time::Duration;

use crate::host::Host;
use crate::profiler::{Context, Timestamp};
use crate::profilers::irq_off::{IrqOff, SILENCES, ShownSilence};
use crate::report::Subject;
use crate::task::Comm;
use crate::task::cpu_times::Reading;
use crate::task::procfs::{self, Runnable};

/// The shortest time between two reports of the same silence.
const AGAIN_NS: u64 = 1_000_000_000;

/// The time between two reports of the same silence, depending on `-i`.
pub fn again_ns(interval: Option<Duration>) -> u64 {
    interval.map_or(0, |interval| u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)).max(AGAIN_NS)
}

/// When an ongoing silence is reported next.
#[derive(Clone, Copy, Debug, Default)]
pub struct OngoingShown {
    next_ns: u64,
}

impl IrqOff {
    /// The CPUs without a record for longer than the limit, except those that are known to be alive; sorted.
    pub(super) fn suspects(&self, now: Timestamp) -> Vec<u32> {
        let is_suspect =
            |cpu: &u32| self.silent_since(*cpu, now).is_some_and(|(heard, _)| self.is_alive(*cpu, heard) != Some(true));
        self.cpus.keys().copied().filter(is_suspect).collect()
    }

    /// The time of the last record of `cpu`, and the time at which its timer was due, if both are too long ago.
    fn silent_since(&self, cpu: u32, now: Timestamp) -> Option<(u64, u64)> {
        let known = self.cpus.get(&cpu).filter(|known| known.silence.is_known() && self.scope.has_cpu(cpu))?;
        let (heard, due) = known.silence.since();
        let due = due.max(heard);
        (now.saturating_sub(due) > self.terms.limit_ns).then_some((heard, due))
    }

    /// Whether the kernel accounts the CPU's time: if so, the CPU takes interrupts, or is idle, and only records are
    /// missing.
    fn is_alive(&self, cpu: u32, heard: u64) -> Option<bool> {
        self.times.is_alive(cpu, self.is_tickless(cpu), heard)
    }

    pub(super) fn report_silent(&mut self, suspects: &[u32], now: Timestamp, ctx: &mut Context) {
        let is_due = |cpu: &u32| self.cpus.get(cpu).is_some_and(|cpu| cpu.shown.next_ns <= now);
        let silent_now = |cpu: u32| {
            let (heard, due) = self.silent_since(cpu, now)?;
            (self.is_alive(cpu, heard) == Some(false)).then_some((cpu, heard, due))
        };
        let silent: Vec<_> = suspects.iter().copied().filter(is_due).filter_map(silent_now).collect();
        if silent.is_empty() {
            return;
        }
        let candidates = Candidates::look(std::process::id() as i32, &ctx.host, MAX_LOOKS);
        // /proc is read later than the records were: checks that the silence still goes on.
        let fresh = Reading::now(&self.host);
        for (number, heard, due) in silent {
            if let Some(cpu) = self.cpus.get_mut(&number) {
                cpu.shown.next_ns = now.saturating_add(self.again_ns);
            }
            if self.times.goes_on(number, self.is_tickless(number), &fresh) {
                continue;
            }
            let nobody = Runnable { cpu: number, pid: -1, tid: -1, comm: Comm::new(b"?") };
            let Runnable { pid, tid, comm, .. } = *candidates.only(number).unwrap_or(&nobody);
            let silence = ShownSilence {
                kind: "silent",
                at_least_ns: now.saturating_sub(due),
                at_most_ns: now.saturating_sub(heard),
                still_silent: true,
                stolen_ns: None,
                runnable: candidates.names(number).map(Arc::from),
                unaccounted_ns: None,
            };
            ctx.emit(&SILENCES, Subject { time: now, cpu: number, pid, tid, comm }, &silence, None);
        }
    }
}

/// Limit of the threads looked up in /proc. The rings fill during the look-ups.
const MAX_LOOKS: usize = 10_000;
/// Limit of the tasks named per CPU.
const MAX_NAMES: usize = 8;

/// The runnable tasks according to /proc: running ones, and ones that wait for their CPU.
#[derive(Debug, Default)]
struct Candidates {
    all: Vec<Runnable>,
    /// There are more threads than were looked up.
    cut_off: bool,
}

impl Candidates {
    /// Looks up at most `most` threads, once for all CPUs.
    fn look(own: i32, host: &Host, most: usize) -> Candidates {
        let (all, cut_off) = procfs::runnable(host, own, most);
        Candidates { all, cut_off }
    }

    fn on(&self, cpu: u32) -> impl Iterator<Item = &Runnable> {
        self.all.iter().filter(move |task| task.cpu == cpu)
    }

    /// The candidate on `cpu`, if it is certainly the only one.
    fn only(&self, cpu: u32) -> Option<&Runnable> {
        let mut here = self.on(cpu);
        here.next().filter(|_| here.next().is_none() && !self.cut_off)
    }

    /// The candidates on `cpu`, if there are several, or may be.
    fn names(&self, cpu: u32) -> Option<Vec<String>> {
        if self.on(cpu).next().is_none() || self.only(cpu).is_some() {
            return None;
        }
        let name = |task: &Runnable| format!("{}:{}", String::from_utf8_lossy(task.comm.as_bytes()), task.tid);
        let more = self.cut_off.then(|| "...".to_owned());
        Some(self.on(cpu).take(MAX_NAMES).map(name).chain(more).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::task::fixture::write_stat;

    fn host(tasks: &[(i32, &str, u32)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (tid, state, cpu) in tasks {
            let task = dir.path().join(format!("{tid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            let zeros = "0 ".repeat(35);
            write_stat(&task, &format!("{tid} (task) {state} {zeros}{cpu} 0 0\n"));
        }
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        (dir, host)
    }

    #[test]
    fn one_look_finds_the_runnable_of_all_cpus() {
        let (_dir, host) = host(&[(10, "R", 1), (11, "S", 1), (12, "R", 2), (13, "R", 2), (14, "R", 3), (15, "R", 1)]);
        let found = Candidates::look(15, &host, 100);
        assert_eq!(found.only(1), Some(&Runnable { cpu: 1, pid: 10, tid: 10, comm: Comm::new(b"task") }));
        assert_eq!(found.names(1), None);
        assert_eq!(found.only(2), None);
        assert_eq!(found.names(2), Some(vec!["task:12".to_owned(), "task:13".to_owned()]));
        assert_eq!((found.only(4), found.names(4)), (None, None));
    }

    #[test]
    fn a_cut_off_look_finds_no_only_candidate() {
        let (_dir, host) = host(&[(10, "R", 1), (11, "S", 1), (12, "R", 1)]);
        let found = Candidates::look(0, &host, 2);
        assert_eq!(found.only(1), None);
        assert_eq!(found.names(1), Some(vec!["task:10".to_owned(), "...".to_owned()]));
        assert_eq!(found.names(2), None);
        let found = Candidates::look(12, &host, 2);
        assert!(found.only(1).is_some(), "all were looked at");
    }

    #[test]
    fn a_silence_is_not_told_more_often_than_each_second() {
        let again = |ms| again_ns(Some(Duration::from_millis(ms)));
        assert_eq!((again_ns(None), again(10), again(3000)), (AGAIN_NS, AGAIN_NS, 3 * AGAIN_NS));
    }
}
