//! `profile`: who uses the CPUs, in which functions, and how much of their time is user, kernel, guest and idle.
//!
//! Events: one, hardware cycles, or the CPU clock where there is no PMU; sampled at `-F` per second, or once per `-c`
//! cycles, on the tasks of the run, or on whole CPUs where these tasks may create further tasks. Cost: one record per
//! sample, with the kernel's callchain.
//!
//! `sampler` chooses the event, and `softirqs` finds the samples of softirqs. `usage` holds the sums of an interval,
//! `shares` and `terms` divide time, `accounts` measures how long each process ran, `attribution` divides that time among
//! tasks, and `rows` has the tables. `windows` is for `--than`.

mod accounts;
mod attribution;
mod rows;
mod sampler;
mod shares;
mod softirqs;
mod terms;
mod usage;
mod windows;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::CommonArgs;
use crate::cli::values::{self, Percent};
use crate::host::{Host, online_cpus, tickless_cpus};
use crate::perf::attr::{Exclude, Sampling};
use crate::perf::evsel::Binding;
use crate::perf::{Attr, EventId, Evlist, Evsel, Record, Sample};
use crate::profiler::sampling::{ExcludeArgs, FrameArgs};
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::profile::accounts::{Accounts, ClockReading, MeasuredUsage};
use crate::profilers::profile::attribution::Attribution;
use crate::profilers::profile::rows::{CPUS, LISTED, TASKS, THREADS, TaskRow, share_a_process};
use crate::profilers::profile::shares::CpuMode;
use crate::profilers::profile::softirqs::SoftirqCode;
use crate::profilers::profile::terms::SamplingTerms;
use crate::profilers::profile::usage::{SampleOwner, SampledUsage, StarvedCpu};
use crate::profilers::profile::windows::{BUSY, WindowSample, Windows};
use crate::report::{OccurrenceLayout, TableSchema, Top, Verdict};
use crate::stats::weights::StackWeights;
use crate::symbol::StackId;
use crate::symbol::stacks::chain_words::innermost_user;
use crate::sys;
use crate::task::cpu_times::Reading;
use crate::task::{Children, Comm, procfs};

/// Where the CPU time goes: user, kernel, idle; which tasks, functions and stacks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who uses the CPUs, every second, and the functions at the end (Ctrl-C):
    perf-prof profile -i 1000
  A flame graph of one process over ten seconds:
    perf-prof profile -p nginx --for 10 --flame-graph nginx.svg
  Each second in which a CPU is over 90 % busy, with its stacks:
    perf-prof profile --than 90 -g
  Where a command spends its time:
    perf-prof profile -g -- ./job
  One sample for each ten million cycles of a process:
    perf-prof profile -c 10000000 -p nginx --for 10
  Which threads of a process use the CPUs, every second, the first twenty:
    perf-prof profile -p java --perins --top 20 -i 1000

Per cent are of each CPU's time, and of one CPU in the table of tasks.
With -p, -t, --cgroups or a command, --than is about each thread, else about
each CPU.")]
pub struct ProfileArgs {
    /// Samples per second
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "99", value_parser = values::count)]
    frequency: u64,
    /// Instead each N cycles (CPU clock: N ns)
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = values::period, conflicts_with = "frequency")]
    period: Option<u64>,
    /// Show each second that was busier, in %
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    than: Option<Percent>,
    /// A table of threads always, not only where a process has several busy ones
    #[arg(long)]
    perins: bool,
    /// So many tasks and threads at most in text
    #[arg(long, value_name = "ROWS", default_value_t = LISTED as u64, value_parser = values::count)]
    top: u64,
    #[command(flatten)]
    exclude: ExcludeArgs,
    #[command(flatten)]
    frames: FrameArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for ProfileArgs {
    const NAME: &'static str = "profile";
    const TABLES: &'static [&'static dyn TableSchema] = &[&CPUS, &TASKS, &THREADS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(BUSY.layout());

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Profile::new(self)?))
    }
}

/// The profiler behind [`ProfileArgs`].
#[derive(Debug, Default)]
pub struct Profile {
    exclude: Exclude,
    frames: FrameArgs,
    /// `-g`: stacks are listed at the end.
    lists_stacks: bool,
    perins: bool,
    /// The run has a table of threads.
    has_threads: bool,
    /// Most tasks and threads in text.
    top: usize,
    /// Samples carry whole callchains.
    callchains: bool,
    /// Known where samples have callchains of the kernel.
    softirqs: SoftirqCode,
    terms: SamplingTerms,
    /// Whole CPUs are sampled, and samples of tasks that are not watched are dropped.
    whole_cpus: bool,
    /// The event that counts the running time of the watched tasks.
    running: Option<EventId>,
    scope: RunScope,
    /// perf-prof is in a nested pid namespace: tasks outside of it have the tid 0, like the idle task.
    nested: bool,
    /// `-i`: the functions are listed at the end only.
    periodic: bool,
    host: Host,
    usage: SampledUsage,
    children: Children,
    /// None where accounts do not cover exactly what is sampled: with a part of the CPUs, of the code, or of the tasks.
    accounts: Option<Accounts>,
    /// The accounts, as last read in this interval.
    measured: MeasuredUsage,
    /// By process: the sum of weights, ns, and the number of samples of this interval that have their weight.
    weighed: FxHashMap<i32, (f64, u64)>,
    windows: Option<Windows>,
    interval_start_ns: Timestamp,
    /// /proc/stat at the beginning of the interval.
    before: Reading,
    /// The sums by CPU of this interval, and of the quiet intervals before it.
    quiet: Option<QuietUsage>,
}

/// The use of CPUs in successive intervals.
#[derive(Debug, Default)]
struct QuietUsage {
    start_ns: Timestamp,
    /// /proc/stat at `start_ns`.
    before: Reading,
    usage: SampledUsage,
}

impl Profile {
    fn new(args: ProfileArgs) -> Result<Profile> {
        let sampling = args.period.map_or(Sampling::Frequency(args.frequency), Sampling::Period);
        Ok(Profile {
            exclude: args.exclude.exclude()?,
            frames: args.frames,
            lists_stacks: args.common.stacks(),
            perins: args.perins,
            top: usize::try_from(args.top).unwrap_or(usize::MAX),
            terms: SamplingTerms { sampling, ..SamplingTerms::default() },
            windows: args.than.map(|than| Windows::new(than.0)),
            ..Profile::default()
        })
    }

    #[inline]
    fn is_excluded(&self, kind: CpuMode) -> bool {
        // The CPU clock ticks for guests and host alike.
        if kind == CpuMode::Guest { self.exclude.guest } else { self.exclude.host }
    }

    fn top_of_run(&self) -> Top {
        Top { stacks: self.lists_stacks, depth: self.frames.printed(), by_time: self.accounts.is_some() }
    }

    /// Whether the accounts of processes cover exactly what is sampled.
    fn has_accounts(&self, online: &[u32]) -> bool {
        let whole = online.iter().all(|&cpu| self.scope.has_cpu(cpu));
        whole && !self.terms.targeted && !self.terms.excluded.any() && !self.nested
    }

    /// Gives the samples without a weight the ns that they stand for as weight, and adds CPU time that was not sampled.
    fn weigh(&mut self, now: Timestamp, reading: &Reading, weights: &mut StackWeights) {
        let span_ns = now.saturating_sub(self.interval_start_ns);
        let parts = |cpu| reading.since(&self.before, cpu);
        let attribution = Attribution::new(&self.usage, &self.terms, span_ns, parts, &self.measured);
        let mut each: FxHashMap<i32, f64> = FxHashMap::default();
        let mut all = (0.0, 0);
        for (pid, (cpus, samples)) in attribution.processes() {
            let ns = cpus * span_ns as f64;
            let (weighed_ns, weighed) = self.weighed.insert(pid, (ns, samples)).unwrap_or_default();
            let (ns, samples) = ((ns - weighed_ns).max(0.0), samples.saturating_sub(weighed));
            if samples > 0 {
                each.insert(pid, ns / samples as f64);
                all = (all.0 + ns, all.1 + samples);
            } else if let Some(used) = self.measured.used.get(&pid).filter(|_| ns >= 1.0) {
                weights.add_unseen(pid, used.comm, ns.round() as u64);
            }
        }
        // For samples of the idle task, and of tasks whose time is unknown.
        let average = if all.1 > 0 { all.0 / all.1 as f64 } else { 1e9 / self.terms.wanted_hz().unwrap_or(1) as f64 };
        weights.weigh(|pid| each.get(&pid).copied().unwrap_or(average));
    }

    /// Adds this interval to those whose CPU sums are judged together.
    fn add_to_quiet(&mut self, now: Timestamp) {
        let (start_ns, before) = (self.interval_start_ns, &self.before);
        let new = || QuietUsage { start_ns, before: before.clone(), usage: SampledUsage::default() };
        let quiet = self.quiet.get_or_insert_with(new);
        let earlier_ns = start_ns.saturating_sub(quiet.start_ns);
        quiet.usage.add_cpus(earlier_ns, &self.usage, now.saturating_sub(start_ns));
    }

    /// The line about CPUs that have much fewer samples than wanted.
    fn starved_line(&self, starved: &[StarvedCpu]) -> Option<String> {
        let worst = starved.iter().min_by_key(|starved| (starved.achieved_hz.unwrap_or(u64::MAX), starved.cpu))?;
        let wanted = self.terms.wanted_hz().map_or(String::new(), |wanted| format!(" instead of {wanted}"));
        let hz = worst.achieved_hz.map_or(String::new(), |hz| format!(" at {hz} Hz{wanted}"));
        let more = if starved.len() > 1 { format!(" (and {} more CPUs)", starved.len() - 1) } else { String::new() };
        let cause = if worst.throttled > 0 {
            format!(
                "the kernel held back samples {} times: {}, or raise kernel.perf_event_max_sample_rate",
                worst.throttled,
                if wanted.is_empty() { "raise -c" } else { "lower -F" }
            )
        } else if self.terms.clock {
            "interrupts were off, or the virtual machine had no CPU".to_owned()
        } else {
            "interrupts were off, it ran slowly, or the virtual machine had no CPU".to_owned()
        };
        Some(format!("profile: CPU {}{more} was sampled{hz}; {cause}", worst.cpu))
    }
}

/// The living threads, as (tid, pid, name of the process).
fn living(ctx: &mut Context) -> Vec<(i32, i32, Comm)> {
    let living: Vec<(i32, i32)> = ctx.tasks.living().collect();
    living.into_iter().map(|(tid, pid)| (tid, pid, ctx.tasks.comm(pid))).collect()
}

impl Profiler for Profile {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.host = setup.host.clone();
        self.scope = setup.scope.clone();
        self.nested = procfs::is_nested(setup.host);
        self.periodic = setup.interval.is_some();
        self.terms.targeted = !setup.watched.is_all();
        self.callchains = setup.stacks;
        let evsel = self.sampling_event(evlist, setup)?;
        if self.has_accounts(&online_cpus(setup.host)?) {
            self.accounts = Some(Accounts::default());
            setup.weighs("ns of CPU time");
        }
        if !self.whole_cpus {
            self.running = Some(evlist.add(evsel)?);
            return Ok(());
        }
        let evsel = if self.terms.clock { evsel.exclude_idle() } else { evsel };
        evlist.add(evsel.binding(Binding::Cpu).cpus(self.scope.cpus()))?;
        self.running = Some(evlist.add(Evsel::new("task-clock", Attr::task_clock()).cpus(self.scope.cpus()))?);
        Ok(())
    }

    fn sample(&mut self, _event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if self.whole_cpus && !ctx.watched.contains(sample.tid) {
            return Ok(Use::Ignored);
        }
        let seen = CpuMode::of(sample.misc(), sample.tid == 0 && !self.nested);
        // The interrupt of a counter comes a little late: the task may have entered or left the kernel meanwhile.
        let kind = match seen {
            CpuMode::Kernel if self.exclude.kernel => CpuMode::User,
            CpuMode::User if self.exclude.user => CpuMode::Kernel,
            _ => seen,
        };
        let place = if kind == seen { Some(sample.ip()) } else { innermost_user(sample.callchain) };
        // A sample that counts as user mode but has no user address belongs to a kernel thread.
        if self.is_excluded(kind) || kind == CpuMode::User && place.is_none() {
            return Ok(Use::Ignored);
        }
        if let Some(windows) = &mut self.windows {
            windows.roll(sample.time, &self.terms, ctx);
        }
        let kind = match kind {
            CpuMode::Kernel if self.softirqs.interrupts(sample.callchain) => CpuMode::Softirq,
            _ => kind,
        };
        let stack = match kind {
            CpuMode::Guest => None,                           // guest addresses mean nothing here
            CpuMode::Kernel if seen == CpuMode::User => None, // it has already left the kernel
            _ if self.callchains => ctx.stack(sample),
            CpuMode::User => place.and_then(|addr| ctx.user_address(addr, sample.pid)),
            CpuMode::Kernel | CpuMode::Softirq | CpuMode::Idle => ctx.address(sample),
        };
        let comm = ctx.tasks.comm(sample.tid);
        let process = if sample.pid == sample.tid { comm } else { ctx.tasks.comm(sample.pid) };
        let owner = SampleOwner { pid: sample.pid, tid: sample.tid, comm: process, thread_comm: comm };
        self.usage.add(sample.cpu, owner, kind, sample.period());
        match self.accounts {
            Some(_) => ctx.weigh_later(sample.pid, comm, stack),
            None => ctx.weigh(sample.pid, comm, stack, 1),
        }
        if let Some(windows) = &mut self.windows {
            let Sample { cpu, pid, tid, .. } = *sample;
            let weight = sample.period();
            windows.add(&WindowSample { cpu, pid, tid, comm, kind, weight, stack }, &self.terms);
        }
        Ok(Use::Relevant)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx);
        TickOutcome::default()
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { .. } => self.on_start(ctx),
            Event::Task { record, time, .. } => {
                if let Some(accounts) = &mut self.accounts {
                    accounts.apply(record, time, |pid| ctx.tasks.comm(pid));
                }
                if !matches!(record, Record::Fork(fork) if !ctx.watched.contains(fork.tid)) {
                    self.children.apply(record, time, |pid| ctx.tasks.comm(pid));
                }
            }
            Event::LostSide(_) => {
                self.accounts.iter_mut().for_each(Accounts::lost);
                self.children.lost();
            }
            Event::Throttled { cpu } => self.usage.throttled(cpu),
            Event::Counted { event, cpu, counted } if self.running == Some(event) && counted.running_ns > 0 => {
                self.usage.counted(cpu, counted.running_ns, counted.span_ns);
            }
            Event::WeighSamples => self.weigh_samples(&mut ctx.view.weights),
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.windows.iter().flat_map(Windows::stacks_in_use));
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let span_ns = now.saturating_sub(self.interval_start_ns);
        let reading = Reading::now(&self.host);
        let parts = |cpu| reading.since(&self.before, cpu);
        let mut cpus: Vec<u32> = if self.terms.targeted { Vec::new() } else { reading.cpus() };
        cpus.retain(|&cpu| self.scope.has_cpu(cpu));
        cpus.extend(self.usage.cpus());
        cpus.sort_unstable();
        cpus.dedup();
        let title = if self.terms.targeted { "CPUs, % of the samples there" } else { "CPUs, % of their time" };
        let cpus = self.usage.cpu_rows(&cpus, &self.terms, span_ns, parts);
        report.delta(&CPUS, cpus).titled(title).judged(Verdict::Estimate);
        let attribution = Attribution::new(&self.usage, &self.terms, span_ns, parts, &self.measured);
        let tasks = attribution.task_rows(&self.children);
        report.delta(&TASKS, tasks).judged(Verdict::Estimate).text_rows(self.top);
        let threads = attribution.thread_rows(&self.usage, &self.terms, parts, &self.children);
        let says_more = match self.perins {
            true => threads.iter().any(TaskRow::is_other_thread),
            false => share_a_process(&threads, span_ns),
        };
        // Once there, the table stays, so that its sums are those of a span of time.
        self.has_threads |= self.perins || says_more;
        if self.has_threads {
            let table = report.delta(&THREADS, threads).judged(Verdict::Estimate).text_rows(self.top);
            table.in_text(says_more).only_in_text(!self.perins);
        }
        self.add_to_quiet(now);
        if !report.is_quiet {
            let QuietUsage { start_ns, before, usage } = self.quiet.take().unwrap_or_default();
            let starved = usage.starved(&self.terms, now.saturating_sub(start_ns), |cpu| reading.since(&before, cpu));
            report.notes.extend(self.starved_line(&starved));
            if !self.periodic {
                report.top(self.top_of_run()); // asked for by a signal
            }
        }
        self.usage.clear();
        self.children.next_interval();
        self.measured = MeasuredUsage::default();
        self.weighed.clear();
        self.accounts.iter_mut().for_each(Accounts::next_interval);
        self.interval_start_ns = now;
        self.before = reading;
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.interval(now, report)?;
        report.top(self.top_of_run());
        Ok(())
    }
}

impl Profile {
    fn on_start(&mut self, ctx: &mut Context) {
        // The first samples may be as old as `started_ns`.
        self.interval_start_ns = ctx.started_ns;
        self.before = Reading::now(&self.host);
        if let Some(windows) = &mut self.windows {
            windows.start(ctx.started_ns, &self.host);
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.begin(ctx.started_ns, living(ctx).into_iter(), ClockReading::now);
        }
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) {
        if let Some(windows) = &mut self.windows {
            windows.roll(now, &self.terms, ctx);
        }
        if let Some(accounts) = self.accounts.as_mut().filter(|accounts| accounts.is_uncounted()) {
            accounts.count(living(ctx).into_iter());
        }
    }

    fn weigh_samples(&mut self, weights: &mut StackWeights) {
        let Some(accounts) = &mut self.accounts else { return };
        let (now, reading) = (sys::monotonic_ns(), Reading::now(&self.host));
        let online = reading.cpus();
        let used = accounts.look(online.len().max(1), ClockReading::now);
        let busy = |&cpu: &u32| reading.since(&self.before, cpu).map(|parts| 1.0 - parts.idle);
        let busy = online.iter().map(busy).sum::<Option<f64>>().unwrap_or(f64::INFINITY);
        self.measured = MeasuredUsage { used, busy };
        // On CPUs without ticks the account of the running task is updated once per second.
        let tickless = tickless_cpus(&self.host);
        self.usage.pids_on(&tickless).for_each(|pid| _ = self.measured.used.remove(&pid));
        self.weigh(now, &reading, weights);
    }
}
