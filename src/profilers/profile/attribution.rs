//! Which tasks used the CPU time of an interval: processes by their accounts and samples, and their threads by samples.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profilers::profile::accounts::MeasuredUsage;
use crate::profilers::profile::rows::{CpuTimeOwner, TaskRow};
use crate::profilers::profile::shares::{ExcludedModes, ModeWeights};
use crate::profilers::profile::terms::SamplingTerms;
use crate::profilers::profile::usage::{OTHERS, SampledUsage, TaskOnCpu, ThreadOnCpu};
use crate::task::cpu_times::CpuShares;
use crate::task::{Children, Comm};

/// How samples divide the time of a task: user, kernel without softirqs, guest, and softirqs.
const PARTS: usize = 4;
const SOFTIRQ: usize = 3;

/// The CPU time of a task in an interval.
#[derive(Clone, Copy, Debug)]
struct TaskUsage {
    /// Weights of samples by [`PARTS`].
    weights: [u64; PARTS],
    /// The CPUs that these weights stand for: 1 is the whole time of one CPU. 0 where there is no sample.
    cpus: [f64; PARTS],
    /// The CPUs of all parts that belong to the task, including time without samples.
    all: f64,
    samples: u64,
    /// False: it is unknown how much time the weights stand for.
    known: bool,
    /// The time is taken from the account of the process.
    by_account: bool,
    /// The account leaves out softirqs: their time is no part of `all`.
    softirqs_apart: bool,
}

impl Default for TaskUsage {
    fn default() -> TaskUsage {
        TaskUsage {
            weights: [0; PARTS],
            cpus: [0.0; PARTS],
            all: 0.0,
            samples: 0,
            known: true,
            by_account: false,
            softirqs_apart: false,
        }
    }
}

/// The CPU time of a process, under all its names.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessUsage {
    /// Time by samples alone.
    sampled: TaskUsage,
    /// In CPUs.
    all: f64,
    samples: u64,
    known: bool,
    by_account: bool,
}

/// Short-lived processes of one name and parent are summed with other children of the parent if together they have used
/// less time, or have fewer samples where their time is unknown.
const LITTLE_NS: u64 = 100_000_000;
const FEW_SAMPLES: u64 = 10;

/// Short-lived processes of one name and parent.
#[derive(Debug, Default)]
struct ShortLived {
    sum: TaskUsage,
    pids: FxHashSet<i32>,
    /// The sum's parts by process, or by thread.
    parts: Vec<(CpuTimeOwner, TaskUsage)>,
}

impl ShortLived {
    fn add(&mut self, pid: i32, who: CpuTimeOwner, part: TaskUsage) {
        self.sum.join(&part);
        self.pids.insert(pid);
        self.parts.push((who, part));
    }
}

/// The CPU time of an interval, by process and name.
#[derive(Debug)]
pub struct Attribution {
    tasks: FxHashMap<(i32, Comm), TaskUsage>,
    processes: FxHashMap<i32, ProcessUsage>,
    excluded: ExcludedModes,
    tells_softirqs: bool,
    span_ns: u64,
}

impl Attribution {
    /// `measured`: the accounts of the processes.
    pub fn new(
        usage: &SampledUsage,
        terms: &SamplingTerms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<CpuShares>,
        measured: &MeasuredUsage,
    ) -> Attribution {
        let mut rates = Rates { usage, terms, span_ns, parts, of_cpus: FxHashMap::default() };
        let mut tasks: FxHashMap<(i32, Comm), TaskUsage> = FxHashMap::default();
        let mut processes: FxHashMap<i32, ProcessUsage> = FxHashMap::default();
        for (&TaskOnCpu { pid, comm, cpu }, sums) in usage.tasks() {
            let rate = rates.of(cpu);
            tasks.entry((pid, comm)).or_default().add(sums, rate);
            processes.entry(pid).or_default().sampled.add(sums, rate);
        }
        let softirqs_apart = leave_out_softirqs(&processes, measured);
        for (pid, process) in &mut processes {
            process.sampled.softirqs_apart = softirqs_apart && measured.used.contains_key(pid);
        }
        follow_accounts(&mut tasks, &processes, &most_of_threads(usage), measured);
        for process in processes.values_mut() {
            process.known = true;
        }
        for (&(pid, _), task) in &tasks {
            let process = processes.entry(pid).or_insert(ProcessUsage { known: true, ..ProcessUsage::default() });
            process.all += task.all;
            process.samples += task.samples;
            process.known &= task.known;
            process.by_account |= task.by_account;
        }
        let (excluded, tells_softirqs) = (terms.excluded, terms.tells_softirqs);
        Attribution { tasks, processes, excluded, tells_softirqs, span_ns }
    }

    /// Each process with its CPUs, and its number of samples.
    pub fn processes(&self) -> impl Iterator<Item = (i32, (f64, u64))> + '_ {
        let known = self.processes.iter().filter(|(_, process)| process.known);
        known.map(|(&pid, process)| (pid, (process.all, process.samples)))
    }

    /// Rows of processes, in no order; short-lived ones are summed by parent.
    pub fn task_rows(&self, children: &Children) -> Vec<TaskRow> {
        let tasks = self
            .tasks
            .iter()
            .map(|(&(pid, comm), part)| (pid, CpuTimeOwner::Process { pid, comm: shown(comm) }, *part));
        self.rows(tasks, children)
    }

    /// Rows of threads. Together, the threads of a process have the time of the process, divided like its samples.
    pub fn thread_rows(
        &self,
        usage: &SampledUsage,
        terms: &SamplingTerms,
        parts: impl Fn(u32) -> Option<CpuShares>,
        children: &Children,
    ) -> Vec<TaskRow> {
        let mut rates = Rates { usage, terms, span_ns: self.span_ns, parts, of_cpus: FxHashMap::default() };
        let mut threads: FxHashMap<(i32, i32), (Comm, u64, TaskUsage)> = FxHashMap::default();
        for (&ThreadOnCpu { pid, tid, cpu }, thread) in usage.threads() {
            let (comm, named, part) = threads.entry((pid, tid)).or_default();
            part.add(&thread.sums, rates.of(cpu));
            // The thread may have had another name on another CPU.
            if thread.named >= *named {
                (*comm, *named) = (thread.comm, thread.named);
            }
            if tid == 0 && usage.lacks_threads() {
                (*comm, *named) = (Comm::new(OTHERS), u64::MAX);
            }
        }
        let rows = threads.into_iter().map(|((pid, tid), (comm, _, mut part))| {
            if let Some(process) = self.processes.get(&pid) {
                part.follow(process, if is_one(pid) { 1.0 } else { f64::INFINITY });
            }
            (pid, CpuTimeOwner::Thread { pid, tid, comm: shown(comm) }, part)
        });
        self.rows(rows, children)
    }

    fn rows(&self, all: impl Iterator<Item = (i32, CpuTimeOwner, TaskUsage)>, children: &Children) -> Vec<TaskRow> {
        let mut rows = Vec::new();
        let mut short: FxHashMap<(Comm, Comm), ShortLived> = FxHashMap::default();
        for (pid, who, part) in all {
            match self.parent_of(pid, children) {
                Some(parent) => short.entry((parent, who.comm())).or_default().add(pid, who, part),
                None => rows.push(self.row(who, &part, 0)),
            }
        }
        let mut of_children: FxHashMap<Comm, TaskUsage> = FxHashMap::default();
        let mut in_rows = FxHashSet::default();
        for ((parent, comm), group) in short {
            if self.is_little(&group.sum) {
                of_children.entry(parent).or_default().join(&group.sum);
                continue;
            }
            match group.pids.len() {
                1 => rows.extend(group.parts.into_iter().map(|(who, part)| self.row(who, &part, 0))),
                count => {
                    let who = CpuTimeOwner::Children { comm: Some(comm), parent: shown(parent) };
                    rows.push(self.row(who, &group.sum, count as u64));
                }
            }
            in_rows.extend(group.pids);
        }
        let mut counts: FxHashMap<Comm, u64> = FxHashMap::default();
        for (pid, parent) in children.ended() {
            let has_row = in_rows.contains(&pid) || self.processes.get(&pid).is_some_and(|process| process.by_account);
            *counts.entry(parent).or_default() += u64::from(!has_row);
        }
        rows.extend(of_children.into_iter().map(|(parent, part)| {
            let count = counts.get(&parent).copied().unwrap_or(0);
            self.row(CpuTimeOwner::Children { comm: None, parent: shown(parent) }, &part, count)
        }));
        rows
    }

    /// The name of the parent under which a short-lived process is summed. None: the process has a row of its own.
    fn parent_of(&self, pid: i32, children: &Children) -> Option<Comm> {
        self.processes.get(&pid).filter(|process| !process.by_account)?;
        children.parent_of(pid)
    }

    fn is_little(&self, part: &TaskUsage) -> bool {
        if part.known { self.ns(part.all) < LITTLE_NS } else { part.samples < FEW_SAMPLES }
    }

    fn ns(&self, cpus: f64) -> u64 {
        (cpus * self.span_ns as f64).round() as u64
    }

    fn row(&self, who: CpuTimeOwner, part: &TaskUsage, children: u64) -> TaskRow {
        let [user, kernel, guest, softirq] = part.cpus;
        let kernel = if part.softirqs_apart { kernel } else { kernel + softirq };
        let [user_ns, kernel_ns, guest_ns, softirq_ns] = [user, kernel, guest, softirq].map(|cpus| self.ns(cpus));
        TaskRow {
            who,
            ns: part.known.then(|| self.ns(part.all)),
            user_ns,
            kernel_ns,
            guest_ns,
            softirq_ns: self.tells_softirqs.then_some(softirq_ns),
            excluded: self.excluded,
            samples: part.samples,
            children,
            by_account: part.by_account.into(),
            by_samples: (!part.by_account).into(),
            unmeasured: (!part.known).into(),
        }
    }
}

fn shown(comm: Comm) -> Comm {
    if comm.is_empty() { Comm::new(b"<gone>") } else { comm }
}

/// Whether a pid stands for one process: pid 0 stands for all tasks outside of this pid namespace.
fn is_one(pid: i32) -> bool {
    pid > 0
}

/// The CPUs that a weight of one stands for, by the CPU of the sample.
struct Rates<'a, P> {
    usage: &'a SampledUsage,
    terms: &'a SamplingTerms,
    span_ns: u64,
    parts: P,
    of_cpus: FxHashMap<u32, Option<f64>>,
}

impl<P: Fn(u32) -> Option<CpuShares>> Rates<'_, P> {
    fn of(&mut self, cpu: u32) -> Option<f64> {
        let Rates { usage, terms, span_ns, parts, of_cpus } = self;
        *of_cpus.entry(cpu).or_insert_with(|| {
            let sampled = usage.cpu(cpu)?;
            Some(sampled.busy_part(terms, *span_ns, parts(cpu))? / sampled.sums.busy().max(1) as f64)
        })
    }
}

impl TaskUsage {
    fn add(&mut self, sums: &ModeWeights, rate: Option<f64>) {
        let kernel = sums.kernel.saturating_sub(sums.softirq);
        for (at, weight) in [sums.user, kernel, sums.guest, sums.softirq].into_iter().enumerate() {
            self.weights[at] = self.weights[at].saturating_add(weight);
            self.cpus[at] += weight as f64 * rate.unwrap_or(0.0);
        }
        self.all = self.cpus.iter().sum();
        self.samples += sums.samples;
        self.known &= rate.is_some();
    }

    fn join(&mut self, other: &TaskUsage) {
        for at in 0..self.cpus.len() {
            self.weights[at] = self.weights[at].saturating_add(other.weights[at]);
            self.cpus[at] += other.cpus[at];
        }
        self.all += other.all;
        self.samples += other.samples;
        self.known &= other.known;
    }

    /// The weights of the parts of `all`.
    fn weight(&self) -> f64 {
        let parts = if self.softirqs_apart { SOFTIRQ } else { PARTS };
        self.weights.iter().take(parts).map(|&weight| weight as f64).sum()
    }

    /// The part that `self` is of `whole`.
    fn part_of(&self, whole: &TaskUsage) -> f64 {
        match whole.weight() {
            0.0 => self.samples as f64 / whole.samples.max(1) as f64,
            weight => self.weight() / weight,
        }
    }

    /// Sets the time to this many CPUs, divided like the samples.
    fn by_weights(&mut self, cpus: f64) {
        let (weight, softirq) = (self.weight().max(1.0), self.cpus[SOFTIRQ]);
        self.cpus = self.weights.map(|part| cpus * part as f64 / weight);
        if self.softirqs_apart {
            self.cpus[SOFTIRQ] = softirq;
        }
        self.all = cpus;
    }

    fn scale(&mut self, factor: f64) {
        self.cpus = self.cpus.map(|part| part * factor);
        self.all *= factor;
    }

    /// Sets the time of a thread to its part of the process, but at most to `most` CPUs.
    fn follow(&mut self, process: &ProcessUsage, most: f64) {
        (self.known, self.by_account) = (process.known, process.by_account);
        if process.by_account {
            self.softirqs_apart = process.sampled.softirqs_apart;
            self.by_weights(process.all * self.part_of(&process.sampled));
        } else if process.sampled.all > 0.0 {
            self.scale(process.all / process.sampled.all);
        }
        if self.all > most {
            self.scale(most / self.all);
        }
    }
}

/// The most CPUs that each process can have used: one for each sampled thread.
fn most_of_threads(usage: &SampledUsage) -> FxHashMap<i32, f64> {
    let mut most = FxHashMap::default();
    if usage.lacks_threads() {
        return most;
    }
    let mut threads: Vec<(i32, i32)> = usage.threads().map(|(thread, _)| (thread.pid, thread.tid)).collect();
    threads.sort_unstable();
    threads.dedup();
    threads.into_iter().filter(|&(pid, _)| is_one(pid)).for_each(|(pid, _)| *most.entry(pid).or_insert(0.0) += 1.0);
    most
}

/// Whether the accounts of all processes together are nearer to the sampled time without softirqs than to all of it. The
/// kernel does not tell whether it counts the time of interrupts apart (irqtime_enabled(), kernel/sched/sched.h); where it
/// does, accounts lack it (update_rq_clock_task(), kernel/sched/core.c).
fn leave_out_softirqs(processes: &FxHashMap<i32, ProcessUsage>, measured: &MeasuredUsage) -> bool {
    let (mut sampled, mut softirqs, mut accounted) = (0.0, 0.0, 0.0);
    for (pid, process) in processes.iter().filter(|(_, process)| process.sampled.known) {
        if let Some(used) = measured.used.get(pid) {
            sampled += process.sampled.all;
            softirqs += process.sampled.cpus[SOFTIRQ];
            accounted += used.cpus;
        }
    }
    accounted < sampled - softirqs / 2.0
}

/// The total of a process is taken from its account, where there is one, but is limited by the number of its threads
/// and of CPUs. Samples divide the total among the names of the process, and among user, kernel and guest mode.
fn follow_accounts(
    tasks: &mut FxHashMap<(i32, Comm), TaskUsage>,
    processes: &FxHashMap<i32, ProcessUsage>,
    most: &FxHashMap<i32, f64>,
    measured: &MeasuredUsage,
) {
    let used = &measured.used;
    for ((pid, _), task) in tasks.iter_mut() {
        let Some(ProcessUsage { sampled, .. }) = processes.get(pid) else { continue };
        if let Some(used) = used.get(pid) {
            (task.known, task.by_account, task.softirqs_apart) = (true, true, sampled.softirqs_apart);
            task.by_weights(used.cpus * task.part_of(sampled));
        } else if let Some(&most) = most.get(pid)
            && sampled.all > most
        {
            task.scale(most / sampled.all);
        }
    }
    // Processes without an account share at most the busy time that accounted processes leave.
    let sampled = tasks.values().filter(|task| !task.by_account).map(|task| task.all).sum::<f64>();
    let rest = (measured.busy - used.values().map(|used| used.cpus).sum::<f64>()).max(0.0);
    if sampled > rest {
        tasks.values_mut().filter(|task| !task.by_account).for_each(|task| task.scale(rest / sampled));
    }
    // Processes without a sample: how their time divides is unknown.
    for (&pid, used) in used.iter().filter(|(pid, used)| used.cpus > 0.0 && !processes.contains_key(pid)) {
        tasks.insert((pid, used.comm), TaskUsage { all: used.cpus, by_account: true, ..TaskUsage::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Record;
    use crate::perf::record::TaskRecord;
    use crate::profilers::profile::accounts::ProcessCpuTime;
    use crate::profilers::profile::rows::{CPUS, TASKS, THREADS};
    use crate::profilers::profile::shares::CpuMode;
    use crate::profilers::profile::usage::SampleOwner;
    use crate::profilers::profile::usage::tests::{SECOND, cells, owner, parts, terms, usage, whole_run};
    use crate::report::{Rows, TypedRows, Value, Verdict};

    type Cells = Vec<Vec<Value>>;

    /// The rows of tasks.
    fn tasks(
        usage: &SampledUsage,
        terms: &SamplingTerms,
        span_ns: u64,
        parts: impl Fn(u32) -> Option<CpuShares>,
        measured: &MeasuredUsage,
    ) -> Cells {
        let rows = Attribution::new(usage, terms, span_ns, parts, measured).task_rows(&Children::default());
        cells(&TASKS, rows, span_ns)
    }

    fn nobody() -> MeasuredUsage {
        MeasuredUsage::default()
    }

    /// An account in which process 5 used this many CPUs.
    fn account(cpus: f64) -> MeasuredUsage {
        let used = ProcessCpuTime { comm: Comm::new(b"main"), cpus };
        MeasuredUsage { used: [(5, used)].into_iter().collect(), busy: f64::INFINITY }
    }

    /// pid, share, samples.
    fn brief(rows: &[Vec<Value>]) -> Vec<(Value, Value, Value)> {
        rows.iter().map(|row| (row[0].clone(), row[3].clone(), row[7].clone())).collect()
    }

    #[test]
    fn tasks_are_in_per_cent_of_one_cpu() {
        // The idle time of CPU 1 was never sampled, but /proc/stat has it.
        let parts = |cpu| Some(CpuShares { idle: [0.5, 0.2][cpu as usize], irq: 0.0, softirq: 0.0 });
        let rows = tasks(&usage(), &terms(), SECOND, parts, &nobody());
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        assert_eq!(brief(&rows), [row(5, 11_000, 110), row(6, 2000, 20)]);
        // Half of the samples were throttled away: the shares stay.
        let parts = |_| Some(CpuShares { idle: 0.0, irq: 0.0, softirq: 0.0 });
        let mut usage = SampledUsage::default();
        (0..50).for_each(|_| usage.add(0, owner(5), CpuMode::User, 10_000_000));
        assert_eq!(brief(&tasks(&usage, &terms(), SECOND, parts, &nobody())), [row(5, 10_000, 50)]);
    }

    #[test]
    fn tasks_of_the_answer_are_measured_by_how_long_they_ran() {
        let mut usage = usage();
        let terms = SamplingTerms { targeted: true, ..terms() };
        usage.counted(0, SECOND, 2 * SECOND);
        usage.counted(1, SECOND / 4, 2 * SECOND);
        usage.counted(1, SECOND / 4, 2 * SECOND);
        let row = |pid, pct, samples| (Value::Signed(pid), Value::Pct(pct), Value::Unsigned(samples));
        let rows = tasks(&usage, &terms, 2 * SECOND, |_| None, &nobody());
        // Half of the samples on CPU 0 were in the idle task.
        assert_eq!(brief(&rows), [row(5, 4000, 110), row(6, 1000, 20)]);
        let cpus = cells(&CPUS, usage.cpu_rows(&[0, 1], &terms, 2 * SECOND, |_| None), 2 * SECOND);
        let hz: Vec<&Value> = cpus.iter().map(|row| &row[8]).collect();
        assert_eq!(hz, [&Value::Unsigned(100), &Value::Unsigned(160)]);
        usage.counted(1, 2 * SECOND, 2 * SECOND); // more than the interval has: so the clock of the samples counts
        assert_eq!(brief(&tasks(&usage, &terms, 2 * SECOND, |_| None, &nobody()))[0], row(5, 5500, 110));
        let cleared = {
            usage.clear();
            tasks(&usage, &terms, SECOND, |_| None, &nobody())
        };
        assert!(cleared.is_empty());
    }

    /// A reader that had no CPU: the interval seems to be 1 ms long, while samples and counts cover three seconds.
    #[test]
    fn no_share_is_more_than_can_be() {
        let ms = SECOND / 1000;
        let samples = |usage: &mut SampledUsage, cpu, tid, count| {
            (0..count).for_each(|_| usage.add(cpu, SampleOwner { tid, ..owner(5) }, CpuMode::User, 10 * ms));
        };
        let mut usage = SampledUsage::default();
        samples(&mut usage, 0, 5, 300);
        let of = |rows: &[Vec<Value>]| brief(rows).into_iter().map(|(_, pct, _)| pct).collect::<Vec<Value>>();
        for targeted in [false, true] {
            let terms = SamplingTerms { targeted, ..terms() };
            assert_eq!(of(&tasks(&usage, &terms, ms, |_| None, &nobody())), [Value::Pct(10_000)], "{targeted}");
        }
        // A thread is on one CPU at a time, however many samples it has on two CPUs.
        samples(&mut usage, 1, 5, 300);
        assert_eq!(of(&tasks(&usage, &terms(), ms, |_| None, &nobody())), [Value::Pct(10_000)]);
        samples(&mut usage, 1, 6, 300);
        assert_eq!(of(&tasks(&usage, &terms(), ms, |_| None, &nobody())), [Value::Pct(20_000)]);
        // The count covers three seconds, however long the interval seems to be.
        let mut usage = SampledUsage::default();
        samples(&mut usage, 0, 5, 300);
        usage.counted(0, 3 * SECOND / 2, 3 * SECOND);
        let terms = SamplingTerms { targeted: true, ..terms() };
        assert_eq!(of(&tasks(&usage, &terms, ms, |_| None, &nobody())), [Value::Pct(5000)]);
    }

    #[test]
    fn accounts_say_how_much_and_samples_of_what() {
        let used = |cpus| ProcessCpuTime { comm: Comm::new(b"now"), cpus };
        // In step with the sampling clock, 5 has all samples and 7 has none.
        let mut usage = SampledUsage::default();
        (0..30).for_each(|_| usage.add(0, owner(5), CpuMode::User, 10_000_000));
        (0..10).for_each(|_| usage.add(0, owner(5), CpuMode::Kernel, 10_000_000));
        (0..20).for_each(|_| {
            usage.add(0, SampleOwner { comm: Comm::new(b"then"), ..owner(5) }, CpuMode::User, 10_000_000);
        });
        (0..40).for_each(|_| usage.add(0, owner(6), CpuMode::User, 10_000_000));
        let known = [(5, used(0.3)), (7, used(0.25)), (8, used(0.0))].into_iter().collect();
        let mut accounts = MeasuredUsage { used: known, busy: 1.0 };
        let parts = |_| Some(CpuShares { idle: 0.0, irq: 0.0, softirq: 0.0 });
        let rows = tasks(&usage, &terms(), SECOND, parts, &accounts);
        let brief = |row: &Vec<Value>| (row[0].clone(), row[1].clone(), row[3..6].to_vec(), row[8].clone());
        let pct = |all, user, kernel| vec![Value::Pct(all), Value::Pct(user), Value::Pct(kernel)];
        let name = |name: &[u8]| Value::Comm(Comm::new(name));
        let (account, samples) = (Value::Word("account"), Value::Word("samples"));
        let want = [
            (Value::Signed(6), name(b"t"), pct(4000, 4000, 0), samples),
            (Value::Signed(7), name(b"now"), vec![Value::Pct(2500), Value::None, Value::None], account.clone()),
            (Value::Signed(5), name(b"t"), pct(2000, 1500, 500), account.clone()),
            (Value::Signed(5), name(b"then"), pct(1000, 1000, 0), account),
        ];
        assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), want);
        // The CPU was not busy for that long.
        accounts.busy = 0.65;
        let rows = tasks(&usage, &terms(), SECOND, parts, &accounts);
        let of_6 = rows.iter().find(|row| row[0] == Value::Signed(6)).expect("its row");
        assert_eq!(of_6[3..5], [Value::Pct(1000), Value::Pct(1000)]);
    }

    /// Two threads on two CPUs, one with three times the samples of the other.
    #[test]
    fn threads_have_their_part_of_their_process() {
        let mut usage = SampledUsage::default();
        let add = |usage: &mut SampledUsage, cpu, tid: i32, name: &[u8], kind, count| {
            let owner = SampleOwner { pid: 5, tid, comm: Comm::new(b"main"), thread_comm: Comm::new(name) };
            (0..count).for_each(|_| usage.add(cpu, owner, kind, 10_000_000));
        };
        add(&mut usage, 0, 5, b"before", CpuMode::User, 20); // its name until it migrates
        add(&mut usage, 1, 5, b"main", CpuMode::Kernel, 10);
        add(&mut usage, 1, 6, b"worker", CpuMode::User, 10);
        usage.add(0, owner(7), CpuMode::User, 10_000_000);
        let threads = |measured: &MeasuredUsage| {
            let attribution = Attribution::new(&usage, &terms(), SECOND, |_| parts(0.0), measured);
            let rows = attribution.thread_rows(&usage, &terms(), |_| parts(0.0), &Children::default());
            assert!(rows.iter().any(TaskRow::is_other_thread));
            cells(&THREADS, rows, SECOND)
        };
        let row = |tid, pid, name: &[u8], shares: [u32; 4], samples| {
            let name = Value::Comm(Comm::new(name));
            let labels = [Value::Signed(tid), Value::Signed(pid), name.clone(), name];
            labels.into_iter().chain(shares.map(Value::Pct)).chain([Value::Unsigned(samples)]).collect::<Vec<Value>>()
        };
        let got: Cells = threads(&account(0.8)).into_iter().map(|row| row[..9].to_vec()).collect();
        let want = [
            row(5, 5, b"main", [6000, 4000, 2000, 0], 30),
            row(6, 5, b"worker", [2000, 2000, 0, 0], 10),
            row(7, 7, b"t", [476, 476, 0, 0], 1),
        ];
        assert_eq!(got, want);
        // By samples alone: those on CPU 0 stand for 1/21 s each, those on CPU 1 for 50 ms. No thread has more than one
        // CPU.
        let got: Vec<Value> = threads(&nobody()).iter().map(|row| row[4].clone()).collect();
        assert_eq!(got, [10_000, 5000, 476].map(Value::Pct));
        // An account in one interval, and no account in another.
        let intervals = [account(0.8), nobody()].map(|measured| {
            let attribution = Attribution::new(&usage, &terms(), SECOND, |_| parts(0.0), &measured);
            (attribution.task_rows(&Children::default()), SECOND)
        });
        let of_run = whole_run(&TASKS, intervals.into());
        assert_eq!((&of_run[0][3], &of_run[0][8]), (&Value::Pct((8000 + 19_524) / 2), &Value::Word("both")));
    }

    /// Tasks outside of the namespace, which all have the tid 0, are not one thread.
    #[test]
    fn tasks_outside_of_the_namespace_may_have_several_cpus() {
        let mut usage = SampledUsage::default();
        for cpu in [0, 1] {
            (0..100).for_each(|_| usage.add(cpu, owner(0), CpuMode::User, 10_000_000));
        }
        let attribution = Attribution::new(&usage, &terms(), SECOND, |_| parts(0.0), &nobody());
        assert_eq!(cells(&TASKS, attribution.task_rows(&Children::default()), SECOND)[0][3], Value::Pct(20_000));
        let threads = attribution.thread_rows(&usage, &terms(), |_| parts(0.0), &Children::default());
        assert_eq!(cells(&THREADS, threads, SECOND)[0][4], Value::Pct(20_000));
    }

    /// In an interval without samples the account has the time that a process used; samples of other intervals divide
    /// it.
    #[test]
    fn the_whole_run_of_a_task_is_divided_as_its_samples_are() {
        let mut usage = SampledUsage::default();
        (0..3).for_each(|_| usage.add(0, owner(5), CpuMode::User, 10_000_000));
        usage.add(0, owner(5), CpuMode::Kernel, 10_000_000);
        let rows = |usage: &SampledUsage, cpus| {
            let attribution = Attribution::new(usage, &terms(), SECOND, |_| parts(0.0), &account(cpus));
            let mut rows = attribution.task_rows(&Children::default());
            rows.iter_mut().for_each(|row| row.who = CpuTimeOwner::Process { pid: 5, comm: Comm::new(b"t") });
            (rows, SECOND)
        };
        let of_run = whole_run(&TASKS, vec![rows(&usage, 0.2), rows(&SampledUsage::default(), 0.1), rows(&usage, 0.0)]);
        assert_eq!(of_run.len(), 1);
        assert_eq!(of_run[0][3..7], [1000, 750, 250, 0].map(Value::Pct));
        assert_eq!((&of_run[0][7], &of_run[0][8]), (&Value::Unsigned(8), &Value::Word("account")));
        // The time of the only interval with samples is not in the account yet.
        let of_run = whole_run(&TASKS, vec![rows(&usage, 0.0), rows(&SampledUsage::default(), 0.1)]);
        assert_eq!(of_run[0][3..7], [Value::Pct(500), Value::None, Value::None, Value::None]);
        let of_interval = cells(&TASKS, rows(&usage, 0.0).0, SECOND);
        assert_eq!(of_interval[0][3..7], [0, 0, 0, 0].map(Value::Pct));
    }

    /// A second in which samples only stand for cycles, and one in which /proc/stat has the busy time of the CPU.
    #[test]
    fn the_whole_run_is_a_lower_bound_where_time_is_unknown() {
        let mut usage = SampledUsage::default();
        (0..4).for_each(|_| usage.add(0, owner(5), CpuMode::User, 10_000_000));
        let terms = SamplingTerms { clock: false, ..terms() };
        let rows = |parts| {
            let attribution = Attribution::new(&usage, &terms, SECOND, |_| parts, &nobody());
            attribution.task_rows(&Children::default())
        };
        let table = |rows: Vec<TaskRow>| {
            let mut rows = TypedRows::new(&TASKS, rows);
            (rows.cells(0, 2 * SECOND)[3].clone(), rows.verdict(0))
        };
        assert_eq!(table(rows(None)), (Value::None, Verdict::Exact));
        assert_eq!(table(rows(parts(0.5))), (Value::Pct(2500), Verdict::Exact));
        let mut of_run = TypedRows::new(&TASKS, rows(None));
        of_run.add(0, &mut TypedRows::new(&TASKS, rows(parts(0.5))), 0);
        assert_eq!(table(of_run.rows().to_vec()), (Value::Pct(2500), Verdict::LowerBound));
    }

    /// 50 samples in user mode, 20 in the kernel, 30 in softirqs, of a process that had a CPU for itself.
    #[test]
    fn softirqs_are_told_apart_whether_accounts_have_them_or_not() {
        let mut usage = SampledUsage::default();
        for (kind, count) in [(CpuMode::User, 50), (CpuMode::Kernel, 20), (CpuMode::Softirq, 30)] {
            (0..count).for_each(|_| usage.add(0, owner(5), kind, 10_000_000));
        }
        let terms = SamplingTerms { tells_softirqs: true, ..terms() };
        let shares = |terms: &SamplingTerms, measured: &MeasuredUsage| {
            let row = tasks(&usage, terms, SECOND, |_| parts(0.0), measured).remove(0);
            [3, 4, 5, 10].map(|at| row[at].clone())
        };
        let pct = |pct: [u32; 4]| pct.map(Value::Pct);
        assert_eq!(shares(&terms, &nobody()), pct([10_000, 5000, 2000 + 3000, 3000]));
        assert_eq!(shares(&terms, &account(0.98)), pct([9800, 4900, 4900, 2940]), "up to the last tick");
        // The kernel counts interrupts apart: what the account has is the process's own.
        assert_eq!(shares(&terms, &account(0.7)), pct([7000, 5000, 2000, 3000]));
        let untold = SamplingTerms { tells_softirqs: false, ..terms };
        assert_eq!(shares(&untold, &account(0.98))[3], Value::None);
        let attribution = Attribution::new(&usage, &terms, SECOND, |_| parts(0.0), &account(0.7));
        let threads = attribution.thread_rows(&usage, &terms, |_| parts(0.0), &Children::default());
        let threads = cells(&THREADS, threads, SECOND);
        assert_eq!([4, 5, 6, 11].map(|at| threads[0][at].clone()), pct([7000, 5000, 2000, 3000]));
        // All of its samples are in softirqs: nobody knows what else it did in the time of its account.
        let mut usage = SampledUsage::default();
        (0..30).for_each(|_| usage.add(0, owner(5), CpuMode::Softirq, 10_000_000));
        let row = tasks(&usage, &terms, SECOND, |_| parts(0.6), &account(0.1)).remove(0);
        assert_eq!(row[3..6], [Value::Pct(1000), Value::None, Value::None]);
    }

    #[test]
    fn short_lived_children_are_one_row() {
        let mut children = Children::default();
        let task = |pid| TaskRecord { pid, ppid: 2, tid: pid, ptid: 2, time: 0 };
        let name = |_| Comm::new(b"make");
        (10..=16).for_each(|pid| children.apply(&Record::Fork(task(pid)), 0, name));
        [10, 11, 12, 13, 15, 16].into_iter().for_each(|pid| children.apply(&Record::Exit(task(pid)), SECOND / 2, name));
        let mut usage = SampledUsage::default();
        let add = |usage: &mut SampledUsage, pid, comm: &[u8], count| {
            let comm = Comm::new(comm);
            let owner = SampleOwner { pid, tid: pid, comm, thread_comm: comm };
            (0..count).for_each(|_| usage.add(0, owner, CpuMode::User, 10_000_000));
        };
        add(&mut usage, 10, b"sh", 1);
        add(&mut usage, 10, b"cc1", 2);
        add(&mut usage, 11, b"cc1", 3);
        add(&mut usage, 13, b"ld", 20); // enough time for a row of its own
        add(&mut usage, 14, b"cc1", 1); // it still lives
        // Together these have enough time for a row.
        add(&mut usage, 15, b"gzip", 6);
        add(&mut usage, 16, b"gzip", 14);
        add(&mut usage, 2, b"make", 1);
        let stat = |_| parts(0.52);
        let attribution = Attribution::new(&usage, &terms(), SECOND, stat, &nobody());
        let row = |pid: Option<i64>, comm: &[u8], share, samples, children: Option<u64>| {
            let (pid, children) =
                (pid.map_or(Value::None, Value::Signed), children.map_or(Value::None, Value::Unsigned));
            [pid, Value::Comm(Comm::new(comm)), Value::Pct(share), Value::Unsigned(samples), children]
        };
        let shown = |cells: &Cells, at: usize| -> Vec<[Value; 5]> {
            cells.iter().map(|row| [0, 1, 3, 7, 9].map(|column| row[at + column].clone())).collect()
        };
        // 12 was never sampled.
        let want = [
            row(Some(13), b"ld", 2000, 20, None),
            row(None, b"gzip", 2000, 20, Some(2)),
            row(None, b"make", 600, 6, Some(3)),
            row(Some(2), b"make", 100, 1, None),
            row(Some(14), b"cc1", 100, 1, None),
        ];
        let tasks = cells(&TASKS, attribution.task_rows(&children), SECOND);
        assert_eq!(shown(&tasks, 0), want);
        assert_eq!(tasks[1][2], Value::Text("gzip, of make".into()));
        assert_eq!(tasks[2][2], Value::Text("children of make".into()));
        let threads = attribution.thread_rows(&usage, &terms(), stat, &children);
        assert_eq!(shown(&cells(&THREADS, threads, SECOND), 1), want);
    }

    #[test]
    fn cycles_are_no_time() {
        let excluded = ExcludedModes { kernel: true, ..ExcludedModes::default() };
        let rows = tasks(&usage(), &SamplingTerms { clock: false, excluded, ..terms() }, SECOND, |_| None, &nobody());
        assert_eq!(rows[0][3..7], [Value::None, Value::None, Value::None, Value::None]);
    }
}
