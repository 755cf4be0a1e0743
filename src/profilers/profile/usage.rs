//! The sums of an interval by CPU, task and thread, and the rows of CPUs made of these.

use rustc_hash::FxHashMap;

use crate::profilers::profile::rows::{CpuUsageRow, achieved_hz};
use crate::profilers::profile::shares::{CpuMode, ModeWeights, interrupts_in_idle};
use crate::profilers::profile::terms::SamplingTerms;
use crate::stats::{KeyedSums, SumKey};
use crate::task::Comm;
use crate::task::cpu_times::CpuShares;

/// Most tasks, and most threads, with sums of their own in one interval, counted once per CPU.
const MAX_TASKS: usize = 1 << 16;

/// One CPU in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUsage {
    pub sums: ModeWeights,
    throttled: u64,
    /// The share of the time for which the event counted on this CPU.
    running: Option<f64>,
}

/// The task of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleOwner {
    pub pid: i32,
    pub tid: i32,
    /// The name of the process.
    pub comm: Comm,
    /// The name of the thread.
    pub thread_comm: Comm,
}

/// A CPU with too few samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StarvedCpu {
    pub cpu: u32,
    pub achieved_hz: Option<u64>,
    pub throttled: u64,
}

/// A process on a CPU, by one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskOnCpu {
    pub pid: i32,
    pub comm: Comm,
    pub cpu: u32,
}

/// The name of tasks beyond [`MAX_TASKS`].
pub const OTHERS: &[u8] = b"<others>";

impl SumKey for TaskOnCpu {
    fn others(&self) -> TaskOnCpu {
        TaskOnCpu { pid: 0, comm: Comm::new(OTHERS), cpu: self.cpu }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadOnCpu {
    pub pid: i32,
    pub tid: i32,
    pub cpu: u32,
}

impl SumKey for ThreadOnCpu {
    fn others(&self) -> ThreadOnCpu {
        ThreadOnCpu { pid: 0, tid: 0, cpu: self.cpu }
    }
}

/// A thread on a CPU, by its last name there.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSums {
    pub comm: Comm,
    /// The sequence number of the last sample with this name; it grows from sample to sample.
    pub named: u64,
    pub sums: ModeWeights,
}

/// The sums of an interval.
#[derive(Debug)]
pub struct SampledUsage {
    cpus: FxHashMap<u32, CpuUsage>,
    tasks: KeyedSums<TaskOnCpu, ModeWeights>,
    threads: KeyedSums<ThreadOnCpu, ThreadSums>,
    /// Number of samples of threads.
    samples: u64,
}

impl Default for SampledUsage {
    fn default() -> SampledUsage {
        SampledUsage {
            cpus: FxHashMap::default(),
            tasks: KeyedSums::new(MAX_TASKS),
            threads: KeyedSums::new(MAX_TASKS),
            samples: 0,
        }
    }
}

impl SampledUsage {
    #[inline]
    pub fn add(&mut self, cpu: u32, owner: SampleOwner, kind: CpuMode, weight: u64) {
        self.cpus.entry(cpu).or_default().sums.add(kind, weight);
        if kind == CpuMode::Idle {
            return;
        }
        let SampleOwner { pid, tid, comm, thread_comm } = owner;
        let thread = self.threads.sum(ThreadOnCpu { pid, tid, cpu });
        self.samples += 1;
        (thread.comm, thread.named) = (thread_comm, self.samples);
        thread.sums.add(kind, weight);
        self.tasks.sum(TaskOnCpu { pid, comm, cpu }).add(kind, weight);
    }

    pub fn throttled(&mut self, cpu: u32) {
        self.cpus.entry(cpu).or_default().throttled += 1;
    }

    /// An event counted for `ns` of `span_ns`. A CPU may have several events: one for each thread.
    pub fn counted(&mut self, cpu: u32, ns: u64, span_ns: u64) {
        let running = &mut self.cpus.entry(cpu).or_default().running;
        *running = Some(running.unwrap_or(0.0) + ns as f64 / span_ns.max(1) as f64);
    }

    /// Adds the sums by CPU of a later interval. Shares of time become shares of both intervals.
    pub fn add_cpus(&mut self, span_ns: u64, later: &SampledUsage, later_span_ns: u64) {
        let part_of = |running: Option<f64>, ns: u64| running.map(|part| part * ns as f64);
        let both_ns = (span_ns + later_span_ns).max(1) as f64;
        for (&cpu, later) in &later.cpus {
            let sum = self.cpus.entry(cpu).or_default();
            sum.sums.merge(&later.sums);
            sum.throttled += later.throttled;
            let (earlier, later) = (part_of(sum.running, span_ns), part_of(later.running, later_span_ns));
            sum.running = match (earlier, later) {
                (None, None) => None,
                (earlier, later) => Some((earlier.unwrap_or(0.0) + later.unwrap_or(0.0)) / both_ns),
            };
        }
    }

    pub fn clear(&mut self) {
        self.cpus.clear();
        self.tasks.clear();
        self.threads.clear();
    }

    /// The CPUs with samples.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().filter(|(_, cpu)| cpu.sums.samples > 0).map(|(&cpu, _)| cpu)
    }

    /// The processes that were sampled on these CPUs.
    pub fn pids_on(&self, cpus: &[u32]) -> impl Iterator<Item = i32> {
        self.tasks.keys().filter(|task| cpus.contains(&task.cpu)).map(|task| task.pid)
    }

    pub fn tasks(&self) -> impl Iterator<Item = (&TaskOnCpu, &ModeWeights)> {
        self.tasks.iter()
    }

    pub fn threads(&self) -> impl Iterator<Item = (&ThreadOnCpu, &ThreadSums)> {
        self.threads.iter()
    }

    /// Whether some threads share a sum.
    pub fn lacks_threads(&self) -> bool {
        self.threads.len() >= MAX_TASKS
    }

    pub fn cpu(&self, cpu: u32) -> Option<&CpuUsage> {
        self.cpus.get(&cpu)
    }

    /// A row for each of `cpus`.
    pub fn cpu_rows(
        &self,
        cpus: &[u32],
        terms: &SamplingTerms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<CpuShares>,
    ) -> Vec<CpuUsageRow> {
        let row = |&number: &u32| {
            let cpu = self.cpus.get(&number).copied().unwrap_or_default();
            let parts = parts(number);
            let busy_ns = cpu.busy_ns(terms, span_ns, parts);
            let told = parts.filter(|_| !terms.targeted);
            let told_ns = |part: f64| (part * span_ns as f64).round() as u64;
            CpuUsageRow {
                cpu: number,
                division: terms.divide(&cpu.sums, span_ns, parts),
                excluded: terms.excluded,
                irq_ns: told.map_or(0, |parts| told_ns(parts.irq)),
                softirq_ns: told.map_or(0, |parts| told_ns(parts.softirq)),
                told_ns: told.map_or(0, |_| span_ns),
                samples: cpu.sums.samples,
                timed_samples: busy_ns.map_or(0, |_| cpu.sums.busy_samples),
                timed_ns: busy_ns.unwrap_or(0),
                wanted_hz: terms.wanted_hz(),
                period: terms.period(),
                throttled: cpu.throttled,
            }
        };
        cpus.iter().map(row).collect()
    }

    /// CPUs with much fewer samples than wanted, or, without a wanted frequency, with throttled samples.
    pub fn starved(
        &self,
        terms: &SamplingTerms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<CpuShares>,
    ) -> Vec<StarvedCpu> {
        let look = |(&number, cpu): (&u32, &CpuUsage)| {
            let achieved_hz = cpu.achieved_hz(terms, span_ns, parts(number));
            let wanted = terms.wanted_hz();
            let few = wanted.is_some_and(|wanted| achieved_hz.is_some_and(|hz| hz < wanted / 2));
            // Short throttling that leaves 90 % of the samples does no harm; nor does throttling of other tasks'
            // samples.
            let enough = wanted.is_some_and(|wanted| achieved_hz.is_some_and(|hz| hz >= wanted - wanted / 10));
            let held_back = cpu.throttled > 0 && !enough && (cpu.sums.samples > 0 || !terms.targeted);
            (few || held_back).then_some(StarvedCpu { cpu: number, achieved_hz, throttled: cpu.throttled })
        };
        let mut starved: Vec<StarvedCpu> = self.cpus.iter().filter_map(look).collect();
        starved.sort_unstable_by_key(|starved| starved.cpu);
        starved
    }
}

impl CpuUsage {
    /// The share of the CPU's time that its samples outside of the idle task stand for: never more than 1.
    pub fn busy_part(&self, terms: &SamplingTerms, span_ns: u64, parts: Option<CpuShares>) -> Option<f64> {
        let by_clock = || terms.clock.then(|| self.sums.busy() as f64 / span_ns.max(1) as f64);
        let part = if terms.excluded.any() {
            by_clock()
        } else if terms.targeted {
            // A CPU runs one task at a time; for some cgroups the kernel counts more. A cgroup may include the idle
            // task.
            const SLACK: f64 = 0.05;
            let running = self.running.filter(|&part| part <= 1.0 + SLACK);
            let all = self.sums.busy().saturating_add(self.sums.idle).max(1);
            running.map(|part| part * self.sums.busy() as f64 / all as f64).or_else(by_clock)
        } else {
            let of_time = |parts: CpuShares| 1.0 - parts.idle - interrupts_in_idle(&self.sums, parts, terms.clock);
            parts.map(of_time).or_else(by_clock)
        };
        part.map(|part| part.clamp(0.0, 1.0))
    }

    /// The time that the busy samples stand for, ns.
    fn busy_ns(&self, terms: &SamplingTerms, span_ns: u64, parts: Option<CpuShares>) -> Option<u64> {
        let part = self.busy_part(terms, span_ns, parts).filter(|_| !terms.excluded.any())?;
        Some((part * span_ns as f64).round() as u64)
    }

    fn achieved_hz(&self, terms: &SamplingTerms, span_ns: u64, parts: Option<CpuShares>) -> Option<u64> {
        achieved_hz(self.sums.busy_samples, self.busy_ns(terms, span_ns, parts)?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::perf::attr::Sampling;
    use crate::profilers::profile::rows::CPUS;
    use crate::profilers::profile::shares::ExcludedModes;
    use crate::profilers::profile::terms::WINDOW_NS;
    use crate::report::{Book, BookEntry, Rows, Schema, TypedRows, Value, Verdict};

    pub const SECOND: u64 = 1_000_000_000;

    pub fn owner(pid: i32) -> SampleOwner {
        SampleOwner { pid, tid: pid, comm: Comm::new(b"t"), thread_comm: Comm::new(b"t") }
    }

    /// Two tasks on CPU 0, the first also on CPU 1, with a sample every 10 ms.
    pub fn usage() -> SampledUsage {
        let mut usage = SampledUsage::default();
        let add = |usage: &mut SampledUsage, cpu, pid, kind, count| {
            for _ in 0..count {
                usage.add(cpu, owner(pid), kind, 10_000_000);
            }
        };
        add(&mut usage, 0, 5, CpuMode::User, 30);
        add(&mut usage, 0, 6, CpuMode::Kernel, 20);
        add(&mut usage, 0, 0, CpuMode::Idle, 50);
        (0..80).for_each(|_| usage.add(1, SampleOwner { tid: 55, ..owner(5) }, CpuMode::User, 10_000_000));
        usage
    }

    /// The cells of rows in their order, for an interval of `span_ns`.
    pub fn cells<R: Clone + std::fmt::Debug + Send>(
        schema: &'static Schema<R>,
        rows: Vec<R>,
        span_ns: u64,
    ) -> Vec<Vec<Value>> {
        let mut rows = TypedRows::new(schema, rows);
        rows.order().into_iter().map(|at| rows.cells(at, span_ns)).collect()
    }

    /// The rows of the whole run, from intervals with their rows and lengths.
    pub fn whole_run<R: Clone + std::fmt::Debug + Send>(
        schema: &'static Schema<R>,
        intervals: Vec<(Vec<R>, u64)>,
    ) -> Vec<Vec<Value>> {
        let mut book: Book<()> = Book::default();
        for (rows, span_ns) in intervals {
            let places = vec![(); rows.len()];
            let entry = BookEntry {
                owner: 0,
                title: "",
                verdict: Verdict::Exact,
                span_ns,
                text_rows: None,
                in_text: true,
                is_quiet: false,
            };
            book.add(&mut TypedRows::new(schema, rows), &places, entry);
        }
        let mut tables = book.tables();
        let table = tables.next().expect("a table");
        let (order, span_ns) = (table.sums.order(), table.span_ns);
        order.into_iter().map(|at| table.sums.rows().cells(at, span_ns)).collect()
    }

    pub fn terms() -> SamplingTerms {
        SamplingTerms { sampling: Sampling::Frequency(100), clock: true, ..SamplingTerms::default() }
    }

    pub fn parts(idle: f64) -> Option<CpuShares> {
        Some(CpuShares { idle, irq: 0.0, softirq: 0.0 })
    }

    #[test]
    fn a_period_wants_no_frequency() {
        let by = |sampling| SamplingTerms { sampling, ..terms() };
        let parts = |_| parts(0.0);
        let mut usage = usage();
        assert_eq!(usage.starved(&by(Sampling::Frequency(1000)), SECOND, parts).len(), 2);
        let terms = by(Sampling::Period(1_000_000));
        assert_eq!(usage.starved(&terms, SECOND, parts), []);
        usage.throttled(1);
        let held_back = StarvedCpu { cpu: 1, achieved_hz: Some(80), throttled: 1 };
        assert_eq!(usage.starved(&terms, SECOND, parts), [held_back]);
        let rows = cells(&CPUS, usage.cpu_rows(&[1], &terms, SECOND, parts), SECOND);
        assert_eq!(rows[0][8..11], [Value::Unsigned(80), Value::None, Value::Unsigned(1_000_000)]);
        // Only weights in ns, and no greater than a window, show how busy a thread was.
        assert_eq!(terms.sample_ns(), Some(1_000_000));
        assert_eq!(by(Sampling::Period(WINDOW_NS + 1)).sample_ns(), None);
        assert_eq!(SamplingTerms { clock: false, ..terms }.sample_ns(), None);
        assert_eq!(SamplingTerms { clock: false, ..by(Sampling::Frequency(100)) }.sample_ns(), Some(10_000_000));
    }

    /// Quiet intervals together have the same CPU rows as one interval of their total length.
    #[test]
    fn cpus_of_successive_intervals_add_up() {
        let (mut sum, mut one) = (SampledUsage::default(), usage());
        one.throttled(1);
        one.counted(0, SECOND / 2, SECOND);
        sum.add_cpus(0, &one, SECOND);
        sum.add_cpus(SECOND, &usage(), 3 * SECOND);
        let cpu = |usage: &SampledUsage, cpu| usage.cpus[&cpu];
        let (both, once) = (cpu(&sum, 0), cpu(&one, 0));
        assert_eq!((both.sums.samples, both.sums.user), (2 * once.sums.samples, 2 * once.sums.user));
        assert_eq!((both.running, cpu(&sum, 1).running, cpu(&sum, 1).throttled), (Some(0.125), None, 1));
        let starved = sum.starved(&terms(), 4 * SECOND, |_| parts(0.0));
        assert_eq!(starved.iter().map(|starved| starved.cpu).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn throttled_cpus_are_starved() {
        let mut usage = SampledUsage::default();
        (0..50).for_each(|_| usage.add(0, owner(5), CpuMode::User, 10_000_000));
        usage.throttled(0);
        let starved = usage.starved(&terms(), SECOND, |_| parts(0.0));
        assert_eq!(starved, [StarvedCpu { cpu: 0, achieved_hz: Some(50), throttled: 1 }]);
    }

    #[test]
    fn kinds_that_are_left_out_have_no_share() {
        let terms = SamplingTerms { excluded: ExcludedModes { kernel: true, ..ExcludedModes::default() }, ..terms() };
        let of = |terms: &SamplingTerms, stat: Option<CpuShares>| {
            cells(&CPUS, usage().cpu_rows(&[0], terms, SECOND, |_| stat), SECOND)[0][1..5].to_vec()
        };
        assert_eq!(of(&terms, parts(0.5)), [Value::Pct(3000), Value::None, Value::Pct(0), Value::Pct(5000)]);
        let cycles = SamplingTerms { clock: false, ..terms };
        assert_eq!(of(&cycles, parts(0.5)), [Value::None, Value::None, Value::None, Value::Pct(5000)]);
        assert_eq!(of(&cycles, None), [Value::None, Value::None, Value::None, Value::None]);
    }

    /// A second as sampled, one without samples, and two without data from /proc/stat.
    #[test]
    fn the_whole_run_of_a_cpu_rests_on_what_is_known_of_it() {
        let busy = Some(CpuShares { idle: 0.4, irq: 0.06, softirq: 0.1 });
        let row = |usage: &SampledUsage, span_ns, parts| (usage.cpu_rows(&[0], &terms(), span_ns, |_| parts), span_ns);
        let (mut sampled, empty) = (SampledUsage::default(), SampledUsage::default());
        (0..45)
            .for_each(|at| sampled.add(0, owner(5), if at < 30 { CpuMode::User } else { CpuMode::Kernel }, 10_000_000));
        let intervals = vec![row(&sampled, SECOND, busy), row(&empty, SECOND, parts(0.2))];
        let [cells] = &whole_run(&CPUS, intervals)[..] else { panic!("one CPU") };
        // 1.4 s, of which two thirds are user code.
        assert_eq!(cells[1..5], [4667, 2333, 0, 3000].map(Value::Pct));
        assert_eq!(cells[5..7], [300, 500].map(Value::Pct), "of both seconds");
        assert_eq!(cells[7..9], [Value::Unsigned(45), Value::Unsigned(32)], "45 busy samples in 1.4 s");
        let unknown = row(&sampled, 2 * SECOND, None);
        let [cells] = &whole_run(&CPUS, vec![row(&sampled, SECOND, busy), unknown])[..] else { panic!("one CPU") };
        let shares = cells[1..5].iter().map(|cell| if let Value::Pct(share) = cell { *share } else { 0 });
        assert_eq!(shares.sum::<u32>(), 10_000, "{cells:?}");
        assert_eq!(cells[5..7], [600, 1000].map(Value::Pct), "of the second that is told of");
        // With a target, interrupts are not shown.
        let targeted = SamplingTerms { targeted: true, ..terms() };
        let cells = &cells_of(sampled.cpu_rows(&[0], &targeted, SECOND, |_| busy))[0];
        assert_eq!(cells[5..7], [Value::None, Value::None]);
    }

    fn cells_of(rows: Vec<CpuUsageRow>) -> Vec<Vec<Value>> {
        cells(&CPUS, rows, SECOND)
    }
}
