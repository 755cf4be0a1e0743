//! An interval's sums by CPU and task, and the rows made of them.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::attr::Sampling;
use crate::profilers::profile::accounts::Measured;
use crate::profilers::profile::shares::{Base, Kind, Left, Shares, Sums, hundredths, interrupts_in_idle};
use crate::profilers::profile::windows::WINDOW_NS;
use crate::report::{Column, Schema, Unit, Value};
use crate::stats::{KeyedSums, SumKey};
use crate::task::Comm;
use crate::task::cpu_times::Parts;

/// One CPU.
#[derive(Clone, Debug)]
pub struct CpuRow {
    cpu: u32,
    parts: Parts4,
    /// Of what they are parts.
    of: u64,
    samples: u64,
    busy_samples: u64,
    /// Time that the busy samples stand for. None: nobody knows.
    busy_ns: Option<u64>,
    wanted_hz: Option<u64>,
    period: Option<u64>,
    throttled: u64,
}

/// What was spent in user code, the kernel, guests and the idle task. None: not known.
#[derive(Clone, Copy, Debug, Default)]
struct Parts4 {
    user: Option<u64>,
    kernel: Option<u64>,
    guest: Option<u64>,
    idle: Option<u64>,
}

pub static CPUS: Schema<CpuRow> = Schema::<CpuRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::derived("user_pct", "user %", |row, _| pct(row.parts.user, row.of)),
        Column::derived("kernel_pct", "kernel %", |row, _| pct(row.parts.kernel, row.of)),
        Column::derived("guest_pct", "guest %", |row, _| pct(row.parts.guest, row.of)),
        Column::derived("idle_pct", "idle %", |row, _| pct(row.parts.idle, row.of)),
        Column::counter("samples", "samples", |row| &mut row.samples),
        Column::derived("achieved_hz", "Hz", |row, _| row.achieved_hz().map_or(Value::None, Value::Unsigned)),
        Column::<CpuRow>::gauge("wanted_hz", "", |row| &mut row.wanted_hz).in_unit(Unit::Hz).json_only(),
        Column::<CpuRow>::gauge("period", "", |row| &mut row.period).json_only(),
        Column::<CpuRow>::counter("throttled", "", |row| &mut row.throttled).json_only(),
        Column::<CpuRow>::known_counter("user", "", |row| &mut row.parts.user).hidden(),
        Column::<CpuRow>::known_counter("kernel", "", |row| &mut row.parts.kernel).hidden(),
        Column::<CpuRow>::known_counter("guest", "", |row| &mut row.parts.guest).hidden(),
        Column::<CpuRow>::known_counter("idle", "", |row| &mut row.parts.idle).hidden(),
        Column::<CpuRow>::counter("of", "", |row| &mut row.of).hidden(),
        Column::<CpuRow>::counter("busy_samples", "", |row| &mut row.busy_samples).hidden(),
        Column::<CpuRow>::known_counter("busy_ns", "", |row| &mut row.busy_ns).ns().hidden(),
    ],
);

/// One process, by a name that it had.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pid: i32,
    comm: Comm,
    /// CPU time. None: nobody knows.
    ns: Option<u64>,
    user_ns: Option<u64>,
    kernel_ns: Option<u64>,
    guest_ns: Option<u64>,
    samples: u64,
    by_account: bool,
}

/// Those first that took most.
pub static TASKS: Schema<TaskRow> = Schema::<TaskRow>::new(
    "tasks",
    &[
        Column::label("pid", "pid", |row| Value::Signed(row.pid.into())),
        Column::label("comm", "comm", |row| Value::Comm(row.comm)),
        Column::derived("pct", "CPU %", |row, span_ns| pct(row.ns, span_ns)),
        Column::derived("user_pct", "user %", |row, span_ns| pct(row.user_ns, span_ns)),
        Column::derived("kernel_pct", "kernel %", |row, span_ns| pct(row.kernel_ns, span_ns)),
        Column::derived("guest_pct", "guest %", |row, span_ns| pct(row.guest_ns, span_ns)),
        Column::counter("samples", "samples", |row| &mut row.samples),
        Column::derived("pct_by", "CPU % by", |row, _| {
            Value::Word(if row.by_account { BY_ACCOUNT } else { BY_SAMPLES })
        }),
        Column::<TaskRow>::known_counter("cpu_ns", "", |row| &mut row.ns).ns().json_only(),
        Column::<TaskRow>::known_counter("user_ns", "", |row| &mut row.user_ns).ns().hidden(),
        Column::<TaskRow>::known_counter("kernel_ns", "", |row| &mut row.kernel_ns).ns().hidden(),
        Column::<TaskRow>::known_counter("guest_ns", "", |row| &mut row.guest_ns).ns().hidden(),
    ],
)
.titled("tasks, % of one CPU")
.ordered(|one, other| {
    let rank = |row: &TaskRow| (Reverse(row.ns), Reverse(row.samples), row.pid, row.comm);
    rank(one).cmp(&rank(other))
});

fn pct(part: Option<u64>, of: u64) -> Value {
    part.filter(|_| of > 0).map_or(Value::None, |part| Value::Pct(hundredths(part as f64 / of as f64)))
}

/// Tasks listed in text.
pub const LISTED: usize = 10;
/// Tasks told apart in one interval, on each CPU.
const MOST_TASKS: usize = 1 << 16;

/// How the samples are taken, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub sampling: Sampling,
    /// By the CPU clock: weights are ns, and an idle CPU is sampled too.
    pub clock: bool,
    /// Only some tasks are sampled.
    pub targeted: bool,
    pub left: Left,
}

/// One CPU in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    sums: Sums,
    throttled: u64,
    /// The part of the time for which the event counted there.
    running: Option<f64>,
}

/// Whose sample it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub pid: i32,
    pub tid: i32,
    /// Of the process.
    pub comm: Comm,
}

/// What a row of the tasks is made of.
#[derive(Clone, Copy, Debug, Default)]
struct TaskSum {
    /// User, kernel and guest: weights, and the CPUs that these stand for. Of what was never sampled that is not known.
    weights: [u64; 3],
    cpus: [f64; 3],
    /// Of all three.
    all: f64,
    samples: u64,
    /// False for weights of which nobody knows how long they are.
    known: bool,
    /// By the account of its process.
    by_account: bool,
}

/// How a part of the task table is measured.
const BY_ACCOUNT: &str = "account";
const BY_SAMPLES: &str = "samples";

/// A CPU whose samples were too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved {
    pub cpu: u32,
    pub achieved_hz: Option<u64>,
    pub throttled: u64,
}

/// A process on a CPU, by the name that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TaskOnCpu {
    pid: i32,
    comm: Comm,
    cpu: u32,
}

impl SumKey for TaskOnCpu {
    fn others(&self) -> TaskOnCpu {
        TaskOnCpu { pid: 0, comm: Comm::new(b"<others>"), cpu: self.cpu }
    }
}

/// The sums of an interval.
#[derive(Debug)]
pub struct Usage {
    cpus: FxHashMap<u32, Cpu>,
    tasks: KeyedSums<TaskOnCpu, Sums>,
    /// Threads sampled, as (pid, tid).
    threads: FxHashSet<(i32, i32)>,
}

impl Default for Usage {
    fn default() -> Usage {
        let (cpus, threads) = (FxHashMap::default(), FxHashSet::default());
        Usage { cpus, tasks: KeyedSums::new(MOST_TASKS), threads }
    }
}

impl Usage {
    #[inline]
    pub fn add(&mut self, cpu: u32, owner: Owner, kind: Kind, weight: u64) {
        self.cpus.entry(cpu).or_default().sums.add(kind, weight);
        if kind == Kind::Idle {
            return;
        }
        if self.threads.len() < MOST_TASKS {
            self.threads.insert((owner.pid, owner.tid));
        }
        self.tasks.sum(TaskOnCpu { pid: owner.pid, comm: owner.comm, cpu }).add(kind, weight);
    }

    pub fn throttled(&mut self, cpu: u32) {
        self.cpus.entry(cpu).or_default().throttled += 1;
    }

    /// An event counted for `ns` of `span_ns`: of one CPU it may be several, of a thread each.
    pub fn counted(&mut self, cpu: u32, ns: u64, span_ns: u64) {
        let running = &mut self.cpus.entry(cpu).or_default().running;
        *running = Some(running.unwrap_or(0.0) + ns as f64 / span_ns.max(1) as f64);
    }

    pub fn clear(&mut self) {
        self.cpus.clear();
        self.tasks.clear();
        self.threads.clear();
    }

    /// Those with samples.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().filter(|(_, cpu)| cpu.sums.samples > 0).map(|(&cpu, _)| cpu)
    }

    /// The processes that were sampled there.
    pub fn pids_on(&self, cpus: &[u32]) -> impl Iterator<Item = i32> {
        self.tasks.keys().filter(|task| cpus.contains(&task.cpu)).map(|task| task.pid)
    }

    /// A row for each of `cpus`.
    pub fn cpu_rows(
        &self,
        cpus: &[u32],
        terms: &Terms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<Parts>,
    ) -> Vec<CpuRow> {
        let row = |&number: &u32| {
            let cpu = self.cpus.get(&number).copied().unwrap_or_default();
            let parts = parts(number);
            let base = terms.base(span_ns, parts);
            let of =
                if matches!(base, Base::Samples) { cpu.sums.busy().saturating_add(cpu.sums.idle) } else { span_ns };
            let shares = Shares::new(&cpu.sums, base, terms.left);
            let part = |share: Option<u32>| share.map(|share| (f64::from(share) / 1e4 * of as f64).round() as u64);
            let [user, kernel, guest, idle] = [shares.user, shares.kernel, shares.guest, shares.idle].map(part);
            CpuRow {
                cpu: number,
                parts: Parts4 { user, kernel, guest, idle },
                of,
                samples: cpu.sums.samples,
                busy_samples: cpu.sums.busy_samples,
                busy_ns: cpu.busy_ns(terms, span_ns, parts),
                wanted_hz: terms.wanted_hz(),
                period: terms.period(),
                throttled: cpu.throttled,
            }
        };
        cpus.iter().map(row).collect()
    }

    /// CPUs with much fewer samples than were asked for, or with some held back where nobody asked for so many per second.
    pub fn starved(&self, terms: &Terms, span_ns: u64, parts: impl Fn(u32) -> Option<Parts>) -> Vec<Starved> {
        let look = |(&number, cpu): (&u32, &Cpu)| {
            let achieved_hz = cpu.achieved_hz(terms, span_ns, parts(number));
            let wanted = terms.wanted_hz();
            let few = wanted.is_some_and(|wanted| achieved_hz.is_some_and(|hz| hz < wanted / 2));
            // Held back for a moment, and right on the whole: no harm. Nor where only others were.
            let enough = wanted.is_some_and(|wanted| achieved_hz.is_some_and(|hz| hz >= wanted - wanted / 10));
            let held_back = cpu.throttled > 0 && !enough && (cpu.sums.samples > 0 || !terms.targeted);
            (few || held_back).then_some(Starved { cpu: number, achieved_hz, throttled: cpu.throttled })
        };
        let mut starved: Vec<Starved> = self.cpus.iter().filter_map(look).collect();
        starved.sort_unstable_by_key(|starved| starved.cpu);
        starved
    }

    /// The tasks, in no order. `measured`: by the accounts of processes, as far as these count.
    pub fn task_rows(
        &self,
        terms: &Terms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<Parts>,
        measured: &Measured,
    ) -> Vec<TaskRow> {
        let mut tasks = self.task_sums(terms, span_ns, parts);
        self.follow_accounts(&mut tasks, measured);
        tasks.into_iter().map(|((pid, comm), sum)| sum.row(pid, comm, terms.left, span_ns)).collect()
    }

    /// Of each process the CPUs that it had, and its samples.
    pub fn processes(
        &self,
        terms: &Terms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<Parts>,
        measured: &Measured,
    ) -> FxHashMap<i32, (f64, u64)> {
        let mut tasks = self.task_sums(terms, span_ns, parts);
        self.follow_accounts(&mut tasks, measured);
        let mut processes: FxHashMap<i32, (f64, u64)> = FxHashMap::default();
        for ((pid, _), task) in tasks.into_iter().filter(|(_, task)| task.known) {
            let (cpus, samples) = processes.entry(pid).or_default();
            *cpus += task.all;
            *samples += task.samples;
        }
        processes
    }

    /// As the samples say.
    fn task_sums(
        &self,
        terms: &Terms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<Parts>,
    ) -> FxHashMap<(i32, Comm), TaskSum> {
        let mut rates: FxHashMap<u32, Option<f64>> = FxHashMap::default();
        let mut tasks: FxHashMap<(i32, Comm), TaskSum> = FxHashMap::default();
        for (&TaskOnCpu { pid, comm, cpu: number }, sums) in self.tasks.iter() {
            // The CPUs that a weight of one stands for.
            let rate = *rates.entry(number).or_insert_with(|| {
                let cpu = self.cpus.get(&number)?;
                Some(cpu.busy_part(terms, span_ns, parts(number))? / cpu.sums.busy().max(1) as f64)
            });
            let task = tasks.entry((pid, comm)).or_insert(TaskSum { known: true, ..TaskSum::default() });
            for (at, weight) in [sums.user, sums.kernel, sums.guest].into_iter().enumerate() {
                task.weights[at] = task.weights[at].saturating_add(weight);
                task.cpus[at] += weight as f64 * rate.unwrap_or(0.0);
            }
            task.samples += sums.samples;
            task.known &= rate.is_some();
        }
        tasks.values_mut().for_each(|task| task.all = task.cpus.iter().sum());
        tasks
    }

    /// The total of a process is what its account says, where there is one, and never more than its threads and the CPUs
    /// can have run. Samples divide it among the names that it had, and among user code, the kernel and guests.
    fn follow_accounts(&self, tasks: &mut FxHashMap<(i32, Comm), TaskSum>, measured: &Measured) {
        let used = &measured.used;
        let mut totals: FxHashMap<i32, (f64, f64)> = FxHashMap::default();
        for (&(pid, _), task) in tasks.iter() {
            let (cpus, weight) = totals.entry(pid).or_default();
            *cpus += task.all;
            *weight += task.weight();
        }
        let mut threads: FxHashMap<i32, u32> = FxHashMap::default();
        if self.threads.len() < MOST_TASKS {
            self.threads.iter().for_each(|(pid, _)| *threads.entry(*pid).or_default() += 1);
        }
        for ((pid, _), task) in tasks.iter_mut() {
            let Some(&(cpus, weight)) = totals.get(pid) else { continue };
            if let Some(used) = used.get(pid) {
                let weights = task.weights.map(|weight| weight as f64);
                task.cpus = weights.map(|part| used.cpus * part / weight.max(1.0));
                (task.known, task.by_account) = (true, true);
            } else if let Some(&most) = threads.get(pid)
                && cpus > f64::from(most)
            {
                task.cpus = task.cpus.map(|part| part * f64::from(most) / cpus);
            }
            task.all = task.cpus.iter().sum();
        }
        // Those without an account have no more than the others left of the busy time.
        let sampled = tasks.values().filter(|task| !task.by_account).map(|task| task.all).sum::<f64>();
        let rest = (measured.busy - used.values().map(|used| used.cpus).sum::<f64>()).max(0.0);
        if sampled > rest {
            for task in tasks.values_mut().filter(|task| !task.by_account) {
                task.cpus = task.cpus.map(|part| part * rest / sampled);
                task.all = task.all * rest / sampled;
            }
        }
        // Never sampled: nobody knows what it did.
        for (&pid, used) in used.iter().filter(|(pid, used)| used.cpus > 0.0 && !totals.contains_key(pid)) {
            let task = TaskSum { all: used.cpus, known: true, by_account: true, ..TaskSum::default() };
            tasks.insert((pid, used.comm), task);
        }
    }
}

impl TaskSum {
    fn weight(&self) -> f64 {
        self.weights.iter().map(|&weight| weight as f64).sum()
    }

    fn row(&self, pid: i32, comm: Comm, left: Left, span_ns: u64) -> TaskRow {
        let ns = |cpus: f64, there: bool| (self.known && there).then(|| (cpus * span_ns as f64).round() as u64);
        let comm = if comm.is_empty() { Comm::new(b"<gone>") } else { comm };
        let sampled = self.samples > 0;
        TaskRow {
            pid,
            comm,
            ns: ns(self.all, true),
            user_ns: ns(self.cpus[0], sampled && !left.user),
            kernel_ns: ns(self.cpus[1], sampled && !left.kernel),
            guest_ns: ns(self.cpus[2], sampled && !left.guest),
            samples: self.samples,
            by_account: self.by_account,
        }
    }
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { sampling: Sampling::Frequency(99), clock: false, targeted: false, left: Left::default() }
    }
}

impl Terms {
    /// `-F`
    pub fn wanted_hz(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(hz),
            Sampling::Period(_) => None,
        }
    }

    /// `-c`
    pub fn period(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(_) => None,
            Sampling::Period(period) => Some(period),
        }
    }

    /// The running time of its task that a sample stands for, if it does for any that is no longer than a window.
    pub fn sample_ns(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(hz) => Some(WINDOW_NS / hz.max(1)),
            Sampling::Period(ns) => Some(ns).filter(|&ns| self.clock && ns <= WINDOW_NS),
        }
    }

    /// Of what the shares of a CPU are.
    pub fn base(&self, span_ns: u64, parts: Option<Parts>) -> Base {
        match parts {
            _ if self.targeted => Base::Samples,
            _ if self.left.any() && self.clock => Base::Span { ns: span_ns, idle: parts.map(|parts| parts.idle) },
            Some(parts) if !self.left.any() => Base::Cpu { parts, seen_idle: self.clock },
            // What part of the busy time the cycles were of is not known.
            Some(parts) => Base::Idle(parts.idle),
            None => Base::Samples,
        }
    }
}

impl Cpu {
    /// The part of its time that its samples stand for, the idle task's apart: never more than all of it.
    fn busy_part(&self, terms: &Terms, span_ns: u64, parts: Option<Parts>) -> Option<f64> {
        let by_clock = || terms.clock.then(|| self.sums.busy() as f64 / span_ns.max(1) as f64);
        let part = if terms.left.any() {
            by_clock()
        } else if terms.targeted {
            // A CPU runs one task at a time; of some cgroups the kernel tells more. A cgroup may hold the idle task.
            const SLACK: f64 = 0.05;
            let running = self.running.filter(|&part| part <= 1.0 + SLACK);
            let all = self.sums.busy().saturating_add(self.sums.idle).max(1);
            running.map(|part| part * self.sums.busy() as f64 / all as f64).or_else(by_clock)
        } else {
            let of_time = |parts: Parts| 1.0 - parts.idle - interrupts_in_idle(&self.sums, parts, terms.clock);
            parts.map(of_time).or_else(by_clock)
        };
        part.map(|part| part.clamp(0.0, 1.0))
    }

    /// The time that its busy samples stand for.
    fn busy_ns(&self, terms: &Terms, span_ns: u64, parts: Option<Parts>) -> Option<u64> {
        let part = self.busy_part(terms, span_ns, parts).filter(|_| !terms.left.any())?;
        Some((part * span_ns as f64).round() as u64)
    }

    fn achieved_hz(&self, terms: &Terms, span_ns: u64, parts: Option<Parts>) -> Option<u64> {
        achieved_hz(self.sums.busy_samples, self.busy_ns(terms, span_ns, parts))
    }
}

impl CpuRow {
    fn achieved_hz(&self) -> Option<u64> {
        achieved_hz(self.busy_samples, self.busy_ns)
    }
}

/// Samples per second of busy time, when that was long enough to say.
fn achieved_hz(busy_samples: u64, busy_ns: Option<u64>) -> Option<u64> {
    const ENOUGH_NS: u64 = 300_000_000; // /proc/stat counts in steps of 10 ms
    let busy_ns = busy_ns.filter(|&ns| ns >= ENOUGH_NS)?;
    Some((busy_samples as f64 * 1e9 / busy_ns as f64).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::profile::accounts::Used;
    use crate::report::{Rows, TypedRows};

    const SECOND: u64 = 1_000_000_000;

    fn owner(pid: i32) -> Owner {
        Owner { pid, tid: pid, comm: Comm::new(b"t") }
    }

    fn nobody() -> Measured {
        Measured::default()
    }

    /// Two tasks on CPU 0, the first also on CPU 1, a sample each 10 ms.
    fn usage() -> Usage {
        let mut usage = Usage::default();
        let add = |usage: &mut Usage, cpu, pid, kind, count| {
            for _ in 0..count {
                usage.add(cpu, owner(pid), kind, 10_000_000);
            }
        };
        add(&mut usage, 0, 5, Kind::User, 30);
        add(&mut usage, 0, 6, Kind::Kernel, 20);
        add(&mut usage, 0, 0, Kind::Idle, 50);
        (0..80).for_each(|_| usage.add(1, Owner { tid: 55, ..owner(5) }, Kind::User, 10_000_000));
        usage
    }

    /// The cells of rows in their order, about an interval of `span_ns`.
    fn cells<R: Clone + std::fmt::Debug + Send>(
        schema: &'static Schema<R>,
        rows: Vec<R>,
        span_ns: u64,
    ) -> Vec<Vec<Value>> {
        let mut rows = TypedRows::new(schema, rows);
        rows.order().into_iter().map(|at| rows.cells(at, span_ns)).collect()
    }

    fn terms() -> Terms {
        Terms { sampling: Sampling::Frequency(100), clock: true, ..Terms::default() }
    }

    fn brief(rows: &[Vec<Value>]) -> Vec<(Value, Value, Value)> {
        rows.iter().map(|row| (row[0].clone(), row[2].clone(), row[6].clone())).collect()
    }

    #[test]
    fn tasks_are_in_per_cent_of_one_cpu() {
        // The idle time of CPU 1 was never sampled, but /proc/stat knows of it.
        let parts = |cpu| Some(Parts { idle: [0.5, 0.2][cpu as usize], irq: 0.0 });
        let rows = cells(&TASKS, usage().task_rows(&terms(), SECOND, parts, &nobody()), SECOND);
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        assert_eq!(brief(&rows), [row(5, 11_000, 110), row(6, 2000, 20)]);
        // Half of the samples were throttled away: the shares stay.
        let parts = |_| Some(Parts { idle: 0.0, irq: 0.0 });
        let mut usage = Usage::default();
        (0..50).for_each(|_| usage.add(0, owner(5), Kind::User, 10_000_000));
        usage.throttled(0);
        assert_eq!(
            brief(&cells(&TASKS, usage.task_rows(&terms(), SECOND, parts, &nobody()), SECOND)),
            [row(5, 10_000, 50)]
        );
        let starved = usage.starved(&terms(), SECOND, parts);
        assert_eq!(starved, [Starved { cpu: 0, achieved_hz: Some(50), throttled: 1 }]);
    }

    #[test]
    fn a_period_wants_no_frequency() {
        let by = |sampling| Terms { sampling, ..terms() };
        let parts = |_| Some(Parts { idle: 0.0, irq: 0.0 });
        let mut usage = usage();
        assert_eq!(usage.starved(&by(Sampling::Frequency(1000)), SECOND, parts).len(), 2);
        let terms = by(Sampling::Period(1_000_000));
        assert_eq!(usage.starved(&terms, SECOND, parts), []);
        usage.throttled(1);
        let held_back = Starved { cpu: 1, achieved_hz: Some(80), throttled: 1 };
        assert_eq!(usage.starved(&terms, SECOND, parts), [held_back]);
        let rows = cells(&CPUS, usage.cpu_rows(&[1], &terms, SECOND, parts), SECOND);
        assert_eq!(rows[0][6..9], [Value::Unsigned(80), Value::None, Value::Unsigned(1_000_000)]);
        // Only ns, no more than a window of them, say how busy a thread was.
        assert_eq!(terms.sample_ns(), Some(1_000_000));
        assert_eq!(by(Sampling::Period(WINDOW_NS + 1)).sample_ns(), None);
        assert_eq!(Terms { clock: false, ..terms }.sample_ns(), None);
        assert_eq!(Terms { clock: false, ..by(Sampling::Frequency(100)) }.sample_ns(), Some(10_000_000));
    }

    #[test]
    fn tasks_of_the_answer_are_measured_by_how_long_they_ran() {
        let mut usage = usage();
        let terms = Terms { targeted: true, ..terms() };
        usage.counted(0, SECOND, 2 * SECOND);
        usage.counted(1, SECOND / 4, 2 * SECOND);
        usage.counted(1, SECOND / 4, 2 * SECOND);
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        let rows = cells(&TASKS, usage.task_rows(&terms, 2 * SECOND, |_| None, &nobody()), 2 * SECOND);
        // Half of what ran on CPU 0 was the idle task.
        assert_eq!(brief(&rows), [row(5, 4000, 110), row(6, 1000, 20)]);
        let cpus = cells(&CPUS, usage.cpu_rows(&[0, 1], &terms, 2 * SECOND, |_| None), 2 * SECOND);
        let hz: Vec<&Value> = cpus.iter().map(|row| &row[6]).collect();
        assert_eq!(hz, [&Value::Unsigned(100), &Value::Unsigned(160)]);
        usage.counted(1, 2 * SECOND, 2 * SECOND); // more than there was: the clock of the samples is asked instead
        assert_eq!(
            brief(&cells(&TASKS, usage.task_rows(&terms, 2 * SECOND, |_| None, &nobody()), 2 * SECOND))[0],
            row(5, 5500, 110)
        );
        let cleared = {
            usage.clear();
            cells(&TASKS, usage.task_rows(&terms, SECOND, |_| None, &nobody()), SECOND)
        };
        assert!(cleared.is_empty());
    }

    /// A reader that had no CPU: the interval seems to be a ms long, and what was sampled and counted is of three seconds.
    #[test]
    fn no_share_is_more_than_can_be() {
        let ms = SECOND / 1000;
        let samples = |usage: &mut Usage, cpu, tid, count| {
            (0..count).for_each(|_| usage.add(cpu, Owner { tid, ..owner(5) }, Kind::User, 10 * ms));
        };
        let mut usage = Usage::default();
        samples(&mut usage, 0, 5, 300);
        let of = |rows: &[Vec<Value>]| brief(rows).into_iter().map(|(_, pct, _)| pct).collect::<Vec<Value>>();
        for targeted in [false, true] {
            let terms = Terms { targeted, ..terms() };
            assert_eq!(
                of(&cells(&TASKS, usage.task_rows(&terms, ms, |_| None, &nobody()), ms)),
                [Value::Pct(10_000)],
                "{targeted}"
            );
        }
        // One thread is on one CPU at a time, whatever samples there are of it on two.
        samples(&mut usage, 1, 5, 300);
        assert_eq!(of(&cells(&TASKS, usage.task_rows(&terms(), ms, |_| None, &nobody()), ms)), [Value::Pct(10_000)]);
        samples(&mut usage, 1, 6, 300);
        assert_eq!(of(&cells(&TASKS, usage.task_rows(&terms(), ms, |_| None, &nobody()), ms)), [Value::Pct(20_000)]);
        // Counted in three seconds of its own, however long the interval seems to be.
        let mut usage = Usage::default();
        samples(&mut usage, 0, 5, 300);
        usage.counted(0, 3 * SECOND / 2, 3 * SECOND);
        let terms = Terms { targeted: true, ..terms() };
        assert_eq!(of(&cells(&TASKS, usage.task_rows(&terms, ms, |_| None, &nobody()), ms)), [Value::Pct(5000)]);
    }

    #[test]
    fn accounts_say_how_much_and_samples_of_what() {
        let used = |cpus| Used { comm: Comm::new(b"now"), cpus };
        // In step with the samples 5 has all of them, 7 none.
        let mut usage = Usage::default();
        (0..30).for_each(|_| usage.add(0, owner(5), Kind::User, 10_000_000));
        (0..10).for_each(|_| usage.add(0, owner(5), Kind::Kernel, 10_000_000));
        (0..20).for_each(|_| usage.add(0, Owner { comm: Comm::new(b"then"), ..owner(5) }, Kind::User, 10_000_000));
        (0..40).for_each(|_| usage.add(0, owner(6), Kind::User, 10_000_000));
        let known = [(5, used(0.3)), (7, used(0.25)), (8, used(0.0))].into_iter().collect();
        let mut accounts = Measured { used: known, busy: 1.0 };
        let parts = |_| Some(Parts { idle: 0.0, irq: 0.0 });
        let rows = cells(&TASKS, usage.task_rows(&terms(), SECOND, parts, &accounts), SECOND);
        let brief = |row: &Vec<Value>| (row[0].clone(), row[1].clone(), row[2..5].to_vec(), row[7].clone());
        let pct = |all, user, kernel| vec![Value::Pct(all), Value::Pct(user), Value::Pct(kernel)];
        let name = |name: &[u8]| Value::Comm(Comm::new(name));
        let (account, samples) = (Value::Word(BY_ACCOUNT), Value::Word(BY_SAMPLES));
        let want = [
            (Value::Signed(6), name(b"t"), pct(4000, 4000, 0), samples),
            (Value::Signed(7), name(b"now"), vec![Value::Pct(2500), Value::None, Value::None], account.clone()),
            (Value::Signed(5), name(b"t"), pct(2000, 1500, 500), account.clone()),
            (Value::Signed(5), name(b"then"), pct(1000, 1000, 0), account),
        ];
        assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), want);
        // The CPU was not busy for so long.
        accounts.busy = 0.65;
        let rows = cells(&TASKS, usage.task_rows(&terms(), SECOND, parts, &accounts), SECOND);
        let of_6 = rows.iter().find(|row| row[0] == Value::Signed(6)).expect("its row");
        assert_eq!(of_6[2..4], [Value::Pct(1000), Value::Pct(1000)]);
    }

    #[test]
    fn what_is_left_out_has_no_share() {
        let terms = Terms { left: Left { kernel: true, ..Left::default() }, ..terms() };
        let rows =
            cells(&CPUS, usage().cpu_rows(&[0], &terms, SECOND, |_| Some(Parts { idle: 0.5, irq: 0.0 })), SECOND);
        assert_eq!(rows[0][1..5], [Value::Pct(3000), Value::None, Value::Pct(0), Value::Pct(5000)]);
        let rows =
            cells(&TASKS, usage().task_rows(&Terms { clock: false, ..terms }, SECOND, |_| None, &nobody()), SECOND);
        assert_eq!(rows[0][2], Value::None, "cycles are no time");
    }
}
