//! CPUs that are silent now: shown while they are, as long as another CPU can run us.

use crate::perf::target::{Host, processes, threads};
use crate::profiler::{Context, Timestamp};
use crate::profilers::irq_off::{IrqOff, SHAPE};
use crate::stats::value::{Subject, Value};
use crate::task::Comm;
use crate::task::procfs::{self, Stat};

/// How often a silence is reported again without `-i`.
pub const AGAIN_NS: u64 = 1_000_000_000;

/// What was shown of a silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    next_ns: u64,
}

impl IrqOff {
    /// Nothing was heard of some CPU for longer than the limit.
    pub(super) fn is_any_silent(&self, now: Timestamp) -> bool {
        self.cpus.keys().any(|&cpu| self.silent_since(cpu, now).is_some())
    }

    /// When `cpu` was heard of last, and when its timer was due, if both are too long ago.
    fn silent_since(&self, cpu: u32, now: Timestamp) -> Option<(u64, u64)> {
        let known = self.cpus.get(&cpu).filter(|known| known.silence.is_known() && self.is_wanted(cpu))?;
        let (heard, due) = known.silence.since();
        let due = due.max(heard);
        (now.saturating_sub(due) > self.terms.limit_ns).then_some((heard, due))
    }

    pub(super) fn report_silent(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        let numbers: Vec<u32> = self.cpus.keys().copied().collect();
        for number in numbers {
            let Some((heard, due)) = self.silent_since(number, now) else { continue };
            let Some(cpu) = self.cpus.get_mut(&number).filter(|cpu| cpu.shown.next_ns <= now) else { continue };
            // A CPU whose time the kernel accounts takes interrupts, or is idle: only its records are missing.
            if self.times.is_alive(number, heard) != Some(false) {
                continue;
            }
            cpu.shown.next_ns = now.saturating_add(self.again_ns);
            let values = [
                Value::Word("silent"),
                Value::Ns(now.saturating_sub(due)),
                Value::Ns(now.saturating_sub(heard)),
                Value::Bool(true),
                Value::None,
            ];
            let (pid, tid, comm) = running_on(number, self.own, ctx.host).unwrap_or((-1, -1, Comm::new(b"?")));
            ctx.emit(Subject { time: now, cpu: number, pid, tid, comm }, &SHAPE, values, None);
        }
    }
}

/// The task that runs on `cpu`, as far as /proc tells: the only one there that does not wait.
fn running_on(cpu: u32, own: [i32; 2], host: &Host) -> Option<(i32, i32, Comm)> {
    const MOST: usize = 10_000; // each costs a look at /proc, and the rings fill meanwhile
    let all = processes(host).into_iter().flat_map(|pid| threads(host, pid).into_iter().map(move |tid| (pid, tid)));
    let runs = |(pid, tid): (i32, i32)| {
        let Stat { state, comm, cpu: on, .. } = procfs::stat(host, tid)?;
        (state == b'R' && on == cpu && !own.contains(&tid)).then_some((pid, tid, comm))
    };
    let mut running = all.take(MOST).filter_map(runs);
    let found = running.next()?;
    running.next().is_none().then_some(found)
}
