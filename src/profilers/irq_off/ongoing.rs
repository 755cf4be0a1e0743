//! CPUs that are silent now: shown while they are, as long as another CPU can run us.

use crate::perf::target::{Host, processes, threads};
use crate::profiler::{Context, Timestamp};
use crate::profilers::irq_off::{IrqOff, SHAPE};
use crate::stats::value::{Subject, Value};
use crate::task::Comm;
use crate::task::cpu_times::Reading;
use crate::task::procfs::{self, Stat};

/// How often a silence is reported again without `-i`.
pub const AGAIN_NS: u64 = 1_000_000_000;

/// What was shown of a silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    next_ns: u64,
}

impl IrqOff {
    /// Finds the CPUs of which nothing was heard for longer than the limit, but those that are known to be alive.
    pub(super) fn find_suspects(&mut self, now: Timestamp) {
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.clear();
        let is_suspect = |cpu: &u32| {
            self.silent_since(*cpu, now).is_some_and(|(heard, _)| self.times.is_alive(*cpu, heard) != Some(true))
        };
        suspects.extend(self.cpus.keys().copied().filter(is_suspect));
        self.suspects = suspects;
    }

    /// When `cpu` was heard of last, and when its timer was due, if both are too long ago.
    fn silent_since(&self, cpu: u32, now: Timestamp) -> Option<(u64, u64)> {
        let known = self.cpus.get(&cpu).filter(|known| known.silence.is_known() && self.is_wanted(cpu))?;
        let (heard, due) = known.silence.since();
        let due = due.max(heard);
        (now.saturating_sub(due) > self.terms.limit_ns).then_some((heard, due))
    }

    pub(super) fn report_silent(&mut self, now: Timestamp, ctx: &mut Context<'_>) {
        for index in 0..self.suspects.len() {
            let number = self.suspects[index];
            let Some((heard, due)) = self.silent_since(number, now) else { continue };
            let Some(cpu) = self.cpus.get_mut(&number).filter(|cpu| cpu.shown.next_ns <= now) else { continue };
            // A CPU whose time the kernel accounts takes interrupts, or is idle: only its records are missing.
            if self.times.is_alive(number, heard) != Some(false) {
                continue;
            }
            cpu.shown.next_ns = now.saturating_add(self.again_ns);
            let runnable = runnable_on(number, self.own, ctx.host);
            // What was read is newer than the records: it must be of the same silence.
            if self.times.goes_on(number, &Reading::now(&self.host)) {
                continue;
            }
            let (pid, tid, comm) = match runnable[..] {
                [only] => only,
                _ => (-1, -1, Comm::new(b"?")),
            };
            let names: Vec<String> = runnable
                .iter()
                .map(|(_, tid, comm)| format!("{}:{tid}", String::from_utf8_lossy(comm.as_bytes())))
                .collect();
            let values = [
                Value::Word("silent"),
                Value::Ns(now.saturating_sub(due)),
                Value::Ns(now.saturating_sub(heard)),
                Value::Bool(true),
                Value::None,
                if names.len() > 1 { Value::Words(names.into()) } else { Value::None },
                Value::None,
            ];
            ctx.emit(Subject { time: now, cpu: number, pid, tid, comm }, &SHAPE, values, None);
        }
    }
}

/// The tasks on `cpu` that do not wait, as far as /proc tells: the one that runs, and those that wait for the CPU.
fn runnable_on(cpu: u32, own: [i32; 2], host: &Host) -> Vec<(i32, i32, Comm)> {
    const MOST_LOOKS: usize = 10_000; // each takes a while, and the rings fill meanwhile
    const MOST: usize = 8;
    let all = processes(host).into_iter().flat_map(|pid| threads(host, pid).into_iter().map(move |tid| (pid, tid)));
    let runs = |(pid, tid): (i32, i32)| {
        let Stat { state, comm, cpu: on, .. } = procfs::stat(host, tid)?;
        (state == b'R' && on == cpu && !own.contains(&tid)).then_some((pid, tid, comm))
    };
    all.take(MOST_LOOKS).filter_map(runs).take(MOST).collect()
}
