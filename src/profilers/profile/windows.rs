//! `--than`: CPUs, or tasks of the answer, whose share of a second is over the limit, while it goes on.

use rustc_hash::FxHashMap;

use crate::perf::target::Host;
use crate::profiler::{Context, Timestamp};
use crate::profilers::profile::shares::{Base, Kind, Shares, Sums};
use crate::profilers::profile::usage::Terms;
use crate::stats::value::{Part, Shape, Subject, Value};
use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::cpu_times::Reading;

pub const WINDOW_NS: u64 = 1_000_000_000;

/// Tasks and stacks kept in a window; what comes beyond counts without them.
const MOST: usize = 1 << 14;

static CPU_SHAPE: Shape = Shape { keys: &KEYS, line: &line_with("% idle  ") };
static TASK_SHAPE: Shape = Shape { keys: &KEYS, line: &line_with("% off CPU  ") };

const KEYS: [&str; 5] = ["user_pct", "kernel_pct", "guest_pct", "idle_pct", "samples"];

const fn line_with(idle: &'static str) -> [Part; 6] {
    [
        Part::If(0, &[Part::Value { key: 0, width: 5 }, Part::Text("% user ")]),
        Part::If(1, &[Part::Value { key: 1, width: 5 }, Part::Text("% kernel ")]),
        Part::If(2, &[Part::Value { key: 2, width: 5 }, Part::Text("% guest ")]),
        Part::Value { key: 3, width: 5 },
        Part::Text(idle),
        Part::Subject,
    ]
}

/// What a window watches: a CPU, or a thread.
type Scope = i32;

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: i32,
    comm: Comm,
    cpu: u32,
    samples: u64,
}

/// One sample as the windows see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub cpu: u32,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub kind: Kind,
    pub weight: u64,
    pub stack: Option<StackId>,
}

/// A CPU or thread over the limit.
#[derive(Debug)]
struct Over {
    subject: Subject,
    shares: Shares,
    samples: u64,
    weights: Vec<Weighted>,
}

/// The current window.
#[derive(Debug)]
pub struct Windows {
    /// Hundredths of a per cent.
    than: u32,
    end_ns: Timestamp,
    sums: FxHashMap<Scope, Sums>,
    threads: FxHashMap<(Scope, i32), Thread>,
    stacks: FxHashMap<(Scope, i32, Comm, Option<StackId>), u64>,
    /// At its beginning.
    before: Reading,
}

impl Windows {
    pub fn new(than: u32) -> Windows {
        Windows {
            than,
            end_ns: u64::MAX,
            sums: FxHashMap::default(),
            threads: FxHashMap::default(),
            stacks: FxHashMap::default(),
            before: Reading::default(),
        }
    }

    pub fn start(&mut self, now: Timestamp, host: &Host) {
        self.end_ns = now.saturating_add(WINDOW_NS);
        self.before = Reading::now(host);
    }

    pub fn stacks_in_use(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().filter_map(|(.., stack)| *stack)
    }

    pub fn add(&mut self, seen: &Seen, terms: &Terms) {
        let scope = if terms.targeted { seen.tid } else { i32::try_from(seen.cpu).unwrap_or(i32::MAX) };
        if self.sums.len() >= MOST && !self.sums.contains_key(&scope) {
            return;
        }
        // Of single tasks the time is measured: what a sample of cycles stands for follows from their frequency.
        let weight = terms.sample_ns().filter(|_| terms.targeted && !terms.clock).unwrap_or(seen.weight);
        self.sums.entry(scope).or_default().add(seen.kind, weight);
        if seen.kind == Kind::Idle {
            return;
        }
        let task = (scope, seen.tid);
        if self.threads.len() < MOST || self.threads.contains_key(&task) {
            let fresh = Thread { pid: seen.pid, comm: seen.comm, cpu: seen.cpu, samples: 0 };
            let thread = self.threads.entry(task).or_insert(fresh);
            thread.samples += 1;
            thread.cpu = seen.cpu;
        }
        let mut stack = (scope, seen.pid, seen.comm, seen.stack);
        if self.stacks.len() >= MOST && !self.stacks.contains_key(&stack) {
            stack = (scope, 0, Comm::new(b"<others>"), None);
        }
        *self.stacks.entry(stack).or_default() += 1;
    }

    /// Ends the window when it is over at `now`, reports those over the limit, and begins the next.
    pub fn roll(&mut self, now: Timestamp, terms: &Terms, ctx: &mut Context) {
        if now < self.end_ns {
            return;
        }
        let reading = if terms.targeted { Reading::default() } else { Reading::now(&ctx.host) };
        let shape = if terms.targeted { &TASK_SHAPE } else { &CPU_SHAPE };
        for over in self.over(terms, &reading) {
            let [user, kernel, guest, idle] = over.shares.values();
            let values = [user, kernel, guest, idle, Value::Unsigned(over.samples)];
            ctx.emit_weighted(over.subject, shape, values, over.weights.into_iter());
        }
        self.sums.clear();
        self.threads.clear();
        self.stacks.clear();
        self.before = reading;
        // Windows in which nothing was delivered are skipped.
        let behind = now.saturating_sub(self.end_ns) / WINDOW_NS;
        self.end_ns = self.end_ns.saturating_add((behind + 1).saturating_mul(WINDOW_NS));
    }

    /// What is over the limit in this window, `reading` being taken at its end.
    fn over(&self, terms: &Terms, reading: &Reading) -> Vec<Over> {
        let mut scopes: Vec<Scope> = self.sums.keys().copied().collect();
        scopes.sort_unstable();
        scopes.into_iter().filter_map(|scope| self.look(scope, terms, reading)).collect()
    }

    fn look(&self, scope: Scope, terms: &Terms, reading: &Reading) -> Option<Over> {
        let sums = self.sums.get(&scope)?;
        let base = if terms.targeted {
            Base::Span { ns: WINDOW_NS, idle: None }
        } else {
            terms.base(WINDOW_NS, u32::try_from(scope).ok().and_then(|cpu| reading.since(&self.before, cpu)))
        };
        let shares = Shares::new(sums, base, terms.left);
        if shares.busy() <= self.than {
            return None;
        }
        // The subject is who took most of it.
        let of_scope = self.threads.iter().filter(|((of, _), _)| *of == scope);
        let (&(_, tid), thread) = of_scope.max_by_key(|((_, tid), thread)| (thread.samples, -tid))?;
        let subject = Subject { time: self.end_ns, cpu: thread.cpu, pid: thread.pid, tid, comm: thread.comm };
        let stacks = self.stacks.iter().filter(|((of, ..), _)| *of == scope);
        let weighted = |(&(_, pid, comm, stack), &samples): (&(Scope, i32, Comm, Option<StackId>), &u64)| {
            let weight = Weight { amount: samples, samples };
            Weighted { pid, comm, stack, weight }
        };
        let weights = stacks.map(weighted).collect();
        Some(Over { subject, shares, samples: sums.samples, weights })
    }
}

#[cfg(test)]
mod tests {
    use crate::perf::attr::Sampling;

    use super::*;

    fn fill(windows: &mut Windows, terms: &Terms, cpu: u32, tid: i32, count: u64) {
        let comm = Comm::new(b"t");
        for _ in 0..count {
            let kind = Kind::User;
            let seen = Seen { cpu, pid: 5, tid, comm, kind, weight: 10_000_000, stack: None };
            windows.add(&seen, terms);
        }
    }

    #[test]
    fn a_cpu_over_the_limit_names_who_was_there_most() {
        let terms = Terms { sampling: Sampling::Frequency(100), clock: true, ..Terms::default() };
        let mut windows = Windows::new(5000);
        // No /proc/stat: the samples alone speak.
        fill(&mut windows, &terms, 0, 6, 30);
        fill(&mut windows, &terms, 0, 7, 40);
        let idle =
            Seen { cpu: 1, pid: 0, tid: 0, comm: Comm::default(), kind: Kind::Idle, weight: 10_000_000, stack: None };
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
        let terms = Terms { sampling: Sampling::Frequency(100), targeted: true, ..Terms::default() };
        let mut windows = Windows::new(5000);
        fill(&mut windows, &terms, 0, 6, 50);
        fill(&mut windows, &terms, 0, 7, 30);
        fill(&mut windows, &terms, 1, 7, 21);
        let over = windows.over(&terms, &Reading::default());
        assert_eq!(over.len(), 1, "50 % is not over 50 %");
        assert_eq!((over[0].subject.tid, over[0].shares.user, over[0].shares.idle), (7, Some(5100), Some(4900)));
    }
}
