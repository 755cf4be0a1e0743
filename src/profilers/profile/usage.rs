//! An interval's sums by CPU and task, and the rows made of them.

use rustc_hash::FxHashMap;

use crate::perf::attr::Sampling;
use crate::profilers::profile::shares::{Base, Kind, Left, Shares, Sums, hundredths, interrupts_in_idle};
use crate::profilers::profile::windows::WINDOW_NS;
use crate::stats::value::{Column, Value};
use crate::task::Comm;
use crate::task::cpu_times::Parts;

pub static CPU_COLUMNS: [Column; 10] = [
    Column { key: "cpu", heading: "CPU" },
    Column { key: "user_pct", heading: "user %" },
    Column { key: "kernel_pct", heading: "kernel %" },
    Column { key: "guest_pct", heading: "guest %" },
    Column { key: "idle_pct", heading: "idle %" },
    Column { key: "samples", heading: "samples" },
    Column { key: "achieved_hz", heading: "Hz" },
    Column { key: "wanted_hz", heading: "" },
    Column { key: "period", heading: "" },
    Column { key: "throttled", heading: "" },
];

pub static TASK_COLUMNS: [Column; 7] = [
    Column { key: "pid", heading: "pid" },
    Column { key: "comm", heading: "comm" },
    Column { key: "pct", heading: "CPU %" },
    Column { key: "user_pct", heading: "user %" },
    Column { key: "kernel_pct", heading: "kernel %" },
    Column { key: "guest_pct", heading: "guest %" },
    Column { key: "samples", heading: "samples" },
];

/// Tasks listed.
const TASKS: usize = 10;
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
    /// How long the event counted there.
    running_ns: Option<u64>,
}

/// A CPU whose samples were too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved {
    pub cpu: u32,
    pub achieved_hz: Option<u64>,
    pub throttled: u64,
}

/// The sums of an interval.
#[derive(Debug, Default)]
pub struct Usage {
    cpus: FxHashMap<u32, Cpu>,
    tasks: FxHashMap<(i32, Comm, u32), Sums>,
}

impl Usage {
    #[inline]
    pub fn add(&mut self, cpu: u32, task: (i32, Comm), kind: Kind, weight: u64) {
        self.cpus.entry(cpu).or_default().sums.add(kind, weight);
        if kind == Kind::Idle {
            return;
        }
        let mut key = (task.0, task.1, cpu);
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&key) {
            key = (0, Comm::new(b"<others>"), cpu);
        }
        self.tasks.entry(key).or_default().add(kind, weight);
    }

    pub fn throttled(&mut self, cpu: u32) {
        self.cpus.entry(cpu).or_default().throttled += 1;
    }

    pub fn counted(&mut self, cpu: u32, ns: u64) {
        let running = &mut self.cpus.entry(cpu).or_default().running_ns;
        *running = Some(running.unwrap_or(0).saturating_add(ns));
    }

    pub fn clear(&mut self) {
        self.cpus.clear();
        self.tasks.clear();
    }

    /// Those with samples.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().filter(|(_, cpu)| cpu.sums.samples > 0).map(|(&cpu, _)| cpu)
    }

    /// A row for each of `cpus`.
    pub fn cpu_rows(
        &self,
        cpus: &[u32],
        terms: &Terms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<Parts>,
    ) -> Vec<Vec<Value>> {
        let row = |&number: &u32| {
            let cpu = self.cpus.get(&number).copied().unwrap_or_default();
            let parts = parts(number);
            let shares = Shares::new(&cpu.sums, terms.base(span_ns, parts), terms.left);
            let mut row = vec![Value::Unsigned(number.into())];
            row.extend(shares.values());
            row.push(Value::Unsigned(cpu.sums.samples));
            row.push(cpu.achieved_hz(terms, span_ns, parts).map_or(Value::None, Value::Unsigned));
            row.push(terms.wanted_hz().map_or(Value::None, Value::Unsigned));
            row.push(terms.period().map_or(Value::None, Value::Unsigned));
            row.push(Value::Unsigned(cpu.throttled));
            row
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

    /// The tasks that took most, in per cent of one CPU.
    pub fn task_rows(&self, terms: &Terms, span_ns: u64, parts: impl Fn(u32) -> Option<Parts>) -> Vec<Vec<Value>> {
        let mut rates: FxHashMap<u32, Option<f64>> = FxHashMap::default();
        let mut tasks: FxHashMap<(i32, Comm), ([f64; 3], u64, bool)> = FxHashMap::default();
        for (&(pid, comm, number), sums) in &self.tasks {
            // What a weight of one stands for, as a part of one CPU's time.
            let rate = *rates.entry(number).or_insert_with(|| {
                let cpu = self.cpus.get(&number)?;
                let busy_ns = cpu.busy_ns(terms, span_ns, parts(number))?;
                Some(busy_ns / cpu.sums.busy().max(1) as f64 / span_ns.max(1) as f64)
            });
            let (kinds, samples, known) = tasks.entry((pid, comm)).or_insert(([0.0; 3], 0, true));
            for (kind, sum) in kinds.iter_mut().zip([sums.user, sums.kernel, sums.guest]) {
                *kind += sum as f64 * rate.unwrap_or(0.0);
            }
            *samples += sums.samples;
            *known &= rate.is_some();
        }
        let mut tasks: Vec<_> = tasks.into_iter().collect();
        let all = |kinds: &[f64; 3]| kinds.iter().sum::<f64>();
        tasks.sort_by(|((pid, _), (kinds, samples, _)), ((other, _), (others, more, _))| {
            all(others).total_cmp(&all(kinds)).then(more.cmp(samples)).then(pid.cmp(other))
        });
        let row = |((pid, comm), (kinds, samples, known)): ((i32, Comm), ([f64; 3], u64, bool))| {
            let pct = |part: f64, left: bool| if known && !left { Value::Pct(hundredths(part)) } else { Value::None };
            let comm = if comm.is_empty() { Comm::new(b"<gone>") } else { comm };
            vec![
                Value::Signed(pid.into()),
                Value::Comm(comm),
                pct(all(&kinds), false),
                pct(kinds[0], terms.left.user),
                pct(kinds[1], terms.left.kernel),
                pct(kinds[2], terms.left.guest),
                Value::Unsigned(samples),
            ]
        };
        tasks.into_iter().take(TASKS).map(row).collect()
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
    /// The time that its samples stand for, the idle task's apart.
    fn busy_ns(&self, terms: &Terms, span_ns: u64, parts: Option<Parts>) -> Option<f64> {
        let by_clock = || terms.clock.then_some(self.sums.busy() as f64);
        if terms.left.any() {
            return by_clock();
        }
        if terms.targeted {
            // A CPU runs one task at a time; of some cgroups the kernel tells more. A cgroup may hold the idle task.
            let running = self.running_ns.filter(|&ns| ns <= span_ns.saturating_add(span_ns / 20));
            let all = self.sums.busy().saturating_add(self.sums.idle).max(1);
            return running.map(|ns| ns as f64 * self.sums.busy() as f64 / all as f64).or_else(by_clock);
        }
        let of_time = |parts: Parts| {
            let in_idle = interrupts_in_idle(&self.sums, parts, terms.clock);
            (1.0 - parts.idle - in_idle).max(0.0) * span_ns as f64
        };
        parts.map(of_time).or_else(by_clock)
    }

    /// Samples per second of busy time, when that was long enough to say.
    fn achieved_hz(&self, terms: &Terms, span_ns: u64, parts: Option<Parts>) -> Option<u64> {
        const ENOUGH_NS: f64 = 300e6; // /proc/stat counts in steps of 10 ms
        let whole = !terms.left.any();
        let busy_ns = self.busy_ns(terms, span_ns, parts).filter(|&ns| whole && ns >= ENOUGH_NS)?;
        Some((self.sums.busy_samples as f64 * 1e9 / busy_ns).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Two tasks on CPU 0, the first also on CPU 1, a sample each 10 ms.
    fn usage() -> Usage {
        let mut usage = Usage::default();
        let add = |usage: &mut Usage, cpu, pid, kind, count| {
            for _ in 0..count {
                usage.add(cpu, (pid, Comm::new(b"t")), kind, 10_000_000);
            }
        };
        add(&mut usage, 0, 5, Kind::User, 30);
        add(&mut usage, 0, 6, Kind::Kernel, 20);
        add(&mut usage, 0, 0, Kind::Idle, 50);
        add(&mut usage, 1, 5, Kind::User, 80);
        usage
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
        let rows = usage().task_rows(&terms(), SECOND, parts);
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        assert_eq!(brief(&rows), [row(5, 11_000, 110), row(6, 2000, 20)]);
        // Half of the samples were throttled away: the shares stay.
        let parts = |_| Some(Parts { idle: 0.0, irq: 0.0 });
        let mut usage = Usage::default();
        (0..50).for_each(|_| usage.add(0, (5, Comm::new(b"t")), Kind::User, 10_000_000));
        usage.throttled(0);
        assert_eq!(brief(&usage.task_rows(&terms(), SECOND, parts)), [row(5, 10_000, 50)]);
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
        let rows = usage.cpu_rows(&[1], &terms, SECOND, parts);
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
        usage.counted(0, SECOND);
        usage.counted(1, SECOND / 4);
        usage.counted(1, SECOND / 4);
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        let rows = usage.task_rows(&terms, 2 * SECOND, |_| None);
        // Half of what ran on CPU 0 was the idle task.
        assert_eq!(brief(&rows), [row(5, 4000, 110), row(6, 1000, 20)]);
        let cpus = usage.cpu_rows(&[0, 1], &terms, 2 * SECOND, |_| None);
        let hz: Vec<&Value> = cpus.iter().map(|row| &row[6]).collect();
        assert_eq!(hz, [&Value::Unsigned(100), &Value::Unsigned(160)]);
        usage.counted(1, 2 * SECOND); // more than there was: the clock of the samples is asked instead
        assert_eq!(brief(&usage.task_rows(&terms, 2 * SECOND, |_| None))[0], row(5, 5500, 110));
        let cleared = {
            usage.clear();
            usage.task_rows(&terms, SECOND, |_| None)
        };
        assert!(cleared.is_empty());
    }

    #[test]
    fn what_is_left_out_has_no_share() {
        let terms = Terms { left: Left { kernel: true, ..Left::default() }, ..terms() };
        let rows = usage().cpu_rows(&[0], &terms, SECOND, |_| Some(Parts { idle: 0.5, irq: 0.0 }));
        assert_eq!(rows[0][1..5], [Value::Pct(3000), Value::None, Value::Pct(0), Value::Pct(5000)]);
        let rows = usage().task_rows(&Terms { clock: false, ..terms }, SECOND, |_| None);
        assert_eq!(rows[0][2], Value::None, "cycles are no time");
    }
}
