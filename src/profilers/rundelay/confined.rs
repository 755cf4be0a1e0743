//! Waits of tasks that may not use the CPU that was idle meanwhile.

use crate::host::cpu_ranges;
use crate::profilers::rundelay::Showing;
use crate::sched::{CpuUse, QueueWait, SchedModel};
use crate::sys::affinity::CpuMask;

/// Shorter waits need no explanation: at each tick the scheduler looks for tasks that another CPU could run.
const LEAST_NS: u64 = 1_000_000;

/// The CPUs that a task may use, where these explain its wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfinedWait {
    pub cpus: Vec<u32>,
    /// Another CPU, which was idle for at least half of the wait.
    pub idle_cpu: u32,
    /// The task that had the CPU is confined to the same CPUs.
    pub with_runner: bool,
}

impl ConfinedWait {
    /// None: another CPU would not have served the task sooner, or it cannot be known.
    pub fn of(
        tid: i32,
        wait: &QueueWait<Showing>,
        until: u64,
        runner: Option<i32>,
        model: &SchedModel<Showing>,
    ) -> Option<ConfinedWait> {
        let wait_ns = until.saturating_sub(wait.since);
        if wait_ns < LEAST_NS {
            return None;
        }
        let allowed = CpuMask::of(tid).ok()?;
        let idle_ns = |cpu| {
            let mut idle_ns = 0;
            if let Some(queue) = model.queue(cpu) {
                let add = |had_by, ns| idle_ns += if had_by == CpuUse::Idle { ns } else { 0 };
                queue.history.uses(wait.since, until, add);
            }
            idle_ns
        };
        let mut others = model.cpus().filter(|cpu| !allowed.has(*cpu));
        let idle_cpu = others.find(|&cpu| idle_ns(cpu) >= wait_ns / 2)?;
        let with_runner = runner.and_then(|tid| CpuMask::of(tid).ok()).is_some_and(|cpus| cpus == allowed);
        Some(ConfinedWait { cpus: allowed.cpus().collect(), idle_cpu, with_runner })
    }

    pub fn text(&self) -> String {
        let both = if self.with_runner { "both " } else { "" };
        let plural = if self.cpus.len() == 1 { "" } else { "s" };
        format!("{both}only on CPU{plural} {} while CPU {} was idle", cpu_ranges(&self.cpus), self.idle_cpu)
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::gettid;

    use super::*;
    use crate::profiler::Event;
    use crate::sched::TaskEvent;
    use crate::task::Comm;

    const MS: u64 = 1_000_000;

    /// What this thread's wait of `wait_ns` for CPU `a` is explained by, where CPU `b` was idle for `idle_ns` of it.
    fn explained([a, b]: [u32; 2], wait_ns: u64, idle_ns: u64) -> Option<ConfinedWait> {
        let task = |tid| CpuUse::Task { tid, comm: Comm::default(), prio: 120 };
        let tid = gettid().as_raw();
        let seen = |at_ns| TaskEvent { at_ns, cpu: a, tid, comm: Comm::default() };
        let mut model = SchedModel::<Showing>::new(16);
        model.on(&Event::Started { now: 1 }, &[]);
        model.cpu_switched(5, a, CpuUse::Idle, task(1));
        model.cpu_switched(5, b, task(2), CpuUse::Idle);
        model.woken(seen(10), false, true, Showing::default());
        model.cpu_switched(10 + idle_ns, b, CpuUse::Idle, task(2));
        model.cpu_switched(10 + wait_ns, a, task(1), task(tid));
        let ended = model.came(seen(10 + wait_ns), true).expect("it waited");
        ConfinedWait::of(tid, &ended.wait, ended.until, Some(tid), &model)
    }

    #[test]
    fn affinity_explains_waits_beside_an_idle_cpu() {
        let allowed: Vec<u32> = CpuMask::of_self().unwrap().cpus().collect();
        let &[a, b, ..] = &allowed[..] else { return };
        assert_eq!(explained([a, b], 10 * MS, 10 * MS), None, "it may use both");
        std::thread::spawn(move || {
            CpuMask::none().with(a).apply(0).unwrap();
            let confined = explained([a, b], 10 * MS, 5 * MS).expect("only CPU a is allowed");
            assert_eq!((&confined.cpus[..], confined.idle_cpu, confined.with_runner), (&[a][..], b, true));
            assert_eq!(confined.text(), format!("both only on CPU {a} while CPU {b} was idle"));
            let few = ConfinedWait { cpus: vec![2, 3, 7], idle_cpu: 1, with_runner: false };
            assert_eq!(few.text(), "only on CPUs 2-3,7 while CPU 1 was idle");
            assert_eq!(explained([a, b], 10 * MS, 4 * MS), None, "it was busy most of the time");
            assert_eq!(explained([a, b], MS - 1, MS - 1), None, "short");
        })
        .join()
        .unwrap();
    }
}
