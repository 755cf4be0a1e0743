//! `--than`: CPUs, or tasks that the run is about, whose share of a second is over the limit, shown while it lasts.

use crate::host::Host;
use crate::profiler::{Context, Timestamp};
use crate::profilers::profile::shares::{CpuMode, Division, ModeWeights, Shares, share_value};
use crate::profilers::profile::terms::{SamplingTerms, WINDOW_NS};
use crate::report::layout::{SUBJECT, detail};
use crate::report::{Detail, OccurrenceSchema, Subject, Value};
use crate::stats::weights::{Weight, Weighted};
use crate::stats::{KeyedSums, SumKey};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::cpu_times::Reading;

/// Most CPUs or threads, tasks and stacks that are distinguished in a window.
const LIMIT: usize = 1 << 14;

pub static BUSY: OccurrenceSchema<OverLimit> = OccurrenceSchema::new(
    &[
        Detail::new("user_pct", |over| share_value(over.shares.user)),
        Detail::new("kernel_pct", |over| share_value(over.shares.kernel)),
        Detail::new("guest_pct", |over| share_value(over.shares.guest)),
        Detail::new("idle_pct", |over| share_value(over.shares.idle)),
        Detail::new("samples", |over| Value::Unsigned(over.samples)),
        Detail::text_only("rest", |over| Value::Word(if over.is_thread { "% off CPU  " } else { "% idle  " })),
    ],
    &[
        detail("user_pct").wide(5).between("", "% user "),
        detail("kernel_pct").wide(5).between("", "% kernel "),
        detail("guest_pct").wide(5).between("", "% guest "),
        detail("idle_pct").wide(5),
        detail("rest"),
        SUBJECT,
    ],
);

/// What a window measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum WindowKey {
    Cpu(u32),
    /// The thread with this tid.
    Thread(i32),
    /// All CPUs or threads beyond [`LIMIT`].
    Others,
}

/// A thread that was sampled in a scope; tid 0 stands for all threads beyond [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ThreadIn {
    scope: WindowKey,
    tid: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackIn {
    scope: WindowKey,
    pid: i32,
    comm: Comm,
    stack: Option<StackId>,
}

impl SumKey for WindowKey {
    fn others(&self) -> WindowKey {
        WindowKey::Others
    }
}

impl SumKey for ThreadIn {
    fn others(&self) -> ThreadIn {
        ThreadIn { tid: 0, ..*self }
    }
}

impl SumKey for StackIn {
    fn others(&self) -> StackIn {
        StackIn { scope: self.scope, pid: 0, comm: Comm::new(b"<others>"), stack: None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowThread {
    pid: i32,
    comm: Comm,
    cpu: u32,
    samples: u64,
}

/// The parts of a sample that windows use.
#[derive(Clone, Copy, Debug)]
pub struct WindowSample {
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub kind: CpuMode,
    pub weight: u64,
    pub stack: Option<StackId>,
}

/// A CPU or thread over the limit.
#[derive(Debug)]
pub struct OverLimit {
    is_thread: bool,
    subject: Subject,
    shares: Shares,
    samples: u64,
    weights: Vec<Weighted>,
}

/// The current window.
#[derive(Debug)]
pub struct Windows {
    /// `--than` in hundredths of a per cent.
    than: u32,
    end_ns: Timestamp,
    sums: KeyedSums<WindowKey, ModeWeights>,
    threads: KeyedSums<ThreadIn, WindowThread>,
    stacks: KeyedSums<StackIn, u64>,
    /// /proc/stat at the beginning of the window.
    before: Reading,
}

impl Windows {
    pub fn new(than: u32) -> Windows {
        Windows {
            than,
            end_ns: u64::MAX,
            sums: KeyedSums::new(LIMIT),
            threads: KeyedSums::new(LIMIT),
            stacks: KeyedSums::new(LIMIT),
            before: Reading::default(),
        }
    }

    pub fn start(&mut self, now: Timestamp, host: &Host) {
        self.end_ns = now.saturating_add(WINDOW_NS);
        self.before = Reading::now(host);
    }

    pub fn stacks_in_use(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().filter_map(|key| key.stack)
    }

    pub fn add(&mut self, seen: &WindowSample, terms: &SamplingTerms) {
        let scope = if terms.targeted { WindowKey::Thread(seen.tid) } else { WindowKey::Cpu(seen.cpu) };
        // `WindowKey::Others` is never reported: its tasks and stacks are not kept.
        let fits = self.sums.len() < LIMIT || self.sums.get(&scope).is_some();
        // For single tasks: the time that a sample of cycles stands for follows from the frequency.
        let weight = terms.sample_ns().filter(|_| terms.targeted && !terms.clock).unwrap_or(seen.weight);
        self.sums.sum(scope).add(seen.kind, weight);
        if seen.kind == CpuMode::Idle || !fits {
            return;
        }
        let thread = self.threads.sum(ThreadIn { scope, tid: seen.tid });
        *thread = WindowThread { pid: seen.pid, comm: seen.comm, cpu: seen.cpu, samples: thread.samples + 1 };
        *self.stacks.sum(StackIn { scope, pid: seen.pid, comm: seen.comm, stack: seen.stack }) += 1;
    }

    /// Ends the window if it is over at `now`, reports the scopes over the limit, and begins the next window.
    pub fn roll(&mut self, now: Timestamp, terms: &SamplingTerms, ctx: &mut Context) {
        if now < self.end_ns {
            return;
        }
        let reading = if terms.targeted { Reading::default() } else { Reading::now(&ctx.host) };
        for over in self.over(terms, &reading) {
            ctx.emit_weighted(&BUSY, over.subject, &over, over.weights.iter().copied());
        }
        ctx.view.untracked += self.untracked();
        self.sums.clear();
        self.threads.clear();
        self.stacks.clear();
        self.before = reading;
        // Windows in which no sample arrived are skipped.
        let behind = now.saturating_sub(self.end_ns) / WINDOW_NS;
        self.end_ns = self.end_ns.saturating_add((behind + 1).saturating_mul(WINDOW_NS));
    }

    /// Number of samples of CPUs or threads beyond the limit.
    fn untracked(&self) -> u64 {
        self.sums.get(&WindowKey::Others).map_or(0, |others| others.samples)
    }

    /// The scopes over the limit in this window; `reading` was taken at its end.
    fn over(&self, terms: &SamplingTerms, reading: &Reading) -> Vec<OverLimit> {
        let mut scopes: Vec<WindowKey> =
            self.sums.keys().copied().filter(|scope| *scope != WindowKey::Others).collect();
        scopes.sort_unstable();
        scopes.into_iter().filter_map(|scope| self.look(scope, terms, reading)).collect()
    }

    fn look(&self, scope: WindowKey, terms: &SamplingTerms, reading: &Reading) -> Option<OverLimit> {
        let sums = self.sums.get(&scope)?;
        let division = if terms.targeted {
            Division::of_span(sums, WINDOW_NS, None)
        } else {
            let cpu = if let WindowKey::Cpu(cpu) = scope { Some(cpu) } else { None };
            terms.divide(sums, WINDOW_NS, cpu.and_then(|cpu| reading.since(&self.before, cpu)))
        };
        let shares = division.shares(terms.excluded);
        if shares.busy() <= self.than {
            return None;
        }
        // The subject is the thread with the most samples.
        let of_scope = self.threads.iter().filter(|(key, _)| key.scope == scope);
        let (&ThreadIn { tid, .. }, thread) = of_scope.max_by_key(|(key, thread)| (thread.samples, -key.tid))?;
        let subject = Subject { time: self.end_ns, cpu: thread.cpu, pid: thread.pid, tid, comm: thread.comm };
        let stacks = self.stacks.iter().filter(|(key, _)| key.scope == scope);
        let weighted = |(&StackIn { pid, comm, stack, .. }, &samples): (&StackIn, &u64)| {
            let weight = Weight { amount: samples, samples };
            Weighted { pid, comm, stack, weight }
        };
        let weights = stacks.map(weighted).collect();
        Some(OverLimit { is_thread: terms.targeted, subject, shares, samples: sums.samples, weights })
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::attr::Sampling;

    use super::*;

    fn fill(windows: &mut Windows, terms: &SamplingTerms, cpu: u32, tid: i32, count: u64) {
        let comm = Comm::new(b"t");
        for _ in 0..count {
            let kind = CpuMode::User;
            let seen = WindowSample { cpu, pid: 5, tid, comm, kind, weight: 10_000_000, stack: None };
            windows.add(&seen, terms);
        }
    }

    #[test]
    fn a_cpu_over_the_limit_names_the_thread_with_most_samples() {
        let terms = SamplingTerms { sampling: Sampling::Frequency(100), clock: true, ..SamplingTerms::default() };
        let mut windows = Windows::new(5000);
        // Without /proc/stat, only the samples count.
        fill(&mut windows, &terms, 0, 6, 30);
        fill(&mut windows, &terms, 0, 7, 40);
        let idle = WindowSample {
            cpu: 1,
            pid: 0,
            tid: 0,
            comm: Comm::default(),
            kind: CpuMode::Idle,
            weight: 10_000_000,
            stack: None,
        };
        (0..60).for_each(|_| windows.add(&idle, &terms));
        fill(&mut windows, &terms, 1, 6, 40);
        let over = windows.over(&terms, &Reading::default());
        let brief: Vec<(u32, i32, u64, u64)> = over
            .iter()
            .map(|over| {
                (over.subject.cpu, over.subject.tid, over.samples, over.weights.iter().map(|w| w.weight.samples).sum())
            })
            .collect();
        assert_eq!(brief, [(0, 7, 70, 70)]);
    }

    #[test]
    fn threads_of_the_answer_have_windows_of_their_own() {
        let terms = SamplingTerms { sampling: Sampling::Frequency(100), targeted: true, ..SamplingTerms::default() };
        let mut windows = Windows::new(5000);
        fill(&mut windows, &terms, 0, 6, 50);
        fill(&mut windows, &terms, 0, 7, 30);
        fill(&mut windows, &terms, 1, 7, 21);
        let over = windows.over(&terms, &Reading::default());
        assert_eq!(over.len(), 1, "50 % is not over 50 %");
        assert_eq!((over[0].subject.tid, over[0].shares.user, over[0].shares.idle), (7, Some(5100), Some(4900)));
    }

    #[test]
    fn threads_without_room_are_told_and_are_no_thread() {
        let terms = SamplingTerms { sampling: Sampling::Frequency(100), targeted: true, ..SamplingTerms::default() };
        let mut windows = Windows::new(5000);
        let most = i32::try_from(LIMIT).unwrap();
        (1..=most + 5).for_each(|tid| fill(&mut windows, &terms, 0, tid, 1));
        fill(&mut windows, &terms, 0, most + 9, 90);
        fill(&mut windows, &terms, 0, 3, 79);
        let over: Vec<i32> = windows.over(&terms, &Reading::default()).iter().map(|over| over.subject.tid).collect();
        assert_eq!(over, [3]);
        assert_eq!(windows.untracked(), 95);
    }
}
