//! `irq-off`: which CPU took no interrupts for too long, as far as that can be proved.
//!
//! Events: a timer per CPU (cpu-clock, `--period`), whose samples must come in time; and as independent evidence
//! `timer:hrtimer_expire_entry` and `timer:hrtimer_expire_exit`, which the interrupt of any timer raises. Cost: one
//! record per period and two per expired timer.
//!
//! `silence` finds the gaps between the samples of one CPU, `judge` decides their causes, `ongoing` finds CPUs that are
//! silent now.

mod judge;
mod ongoing;
mod silence;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::cli::values::{self, Time};
use crate::cli::{CommonArgs, usage};
use crate::digits::format_ns;
use crate::host::{Host, online_cpus, tickless_cpus};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Binding, Evsel};
use crate::perf::record::Innermost;
use crate::perf::refusal::Reason;
use crate::perf::{Attr, EventId, Sample};
use crate::profiler::{
    Context, Event, LostWindow, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use,
};
use crate::profilers::irq_off::judge::{
    CpuTimeAccount, CpuTimesHistory, OtherCpus, RecentSilences, SilenceCounts, SilenceKind, judge,
};
use crate::profilers::irq_off::ongoing::OngoingShown;
use crate::profilers::irq_off::silence::{SampleGap, Silence, SilenceLimits};
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{Column, Detail, OccurrenceLayout, OccurrenceSchema, Schema, Subject, TableSchema, Value, Verdict};
use crate::symbol::StackId;
use crate::task::Comm;
use crate::task::cpu_times::Reading;
use crate::tep::Field;

/// CPUs that took no interrupts for too long, told from idle and stolen time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who keeps interrupts off for more than 20 ms, and where they came back:
    perf-prof irq-off -g
  More than 2 ms, to a tenth of that:
    perf-prof irq-off -L 2000 --precise -g
  One CPU, with all that made its timer late:
    perf-prof irq-off -C 3 --all
  A table per second:
    perf-prof irq-off --than 5ms -i 1000

Of a length two times are given: it was at least the first, at most the second.
A CPU that is silent now is shown while it is.

Verdicts:
  interrupts off   no interrupt was taken, and nothing else explains it
  timer late       the timer was late, nothing tells why
  machine stopped  all CPUs at once: a paused virtual machine, say
  stolen           the hypervisor ran something else
  idle             the idle task, woken late
  sampling hole    interrupts came, only the samples are missing
  not sampled      records were lost or held back, or the CPU was offline")]
pub struct IrqOffArgs {
    /// Longer than this, in us, or as 20ms [default: 20ms]
    #[arg(short = 'L', long = "latency", value_name = "TIME", value_parser = values::time_us, conflicts_with = "than")]
    latency: Option<Time>,
    /// The same, with a unit: 20ms
    #[arg(long, value_name = "TIME", value_parser = values::time_strict)]
    than: Option<Time>,
    /// Between two samples [default: half of the limit]
    #[arg(long, value_name = "TIME", value_parser = values::time_strict)]
    period: Option<Time>,
    /// A twentieth of the limit as the period
    #[arg(long, conflicts_with = "period")]
    precise: bool,
    /// Lines also for what was not interrupts off
    #[arg(long)]
    all: bool,
    /// Not those that end in user code
    #[arg(long)]
    exclude_user: bool,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for IrqOffArgs {
    const NAME: &'static str = "irq-off";
    const TABLES: &'static [&'static dyn TableSchema] = &[&CPUS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SILENCES.layout());
    const WEIGHT: &'static str = "µs with interrupts off";
    const PACED: bool = true;
    const NARROWINGS: &'static [&'static str] = &["-C CPUS"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        self.common.refuse_tasks(Self::NAME)?;
        let irq_off = IrqOff::new(self.terms()?, self.all, &self.common);
        Ok(Box::new(IrqOff { kernel_alone: self.exclude_user, ..irq_off }))
    }
}

const DEFAULT_LIMIT_NS: u64 = 20_000_000;
/// The kernel's own limit: `perf_swevent_start_hrtimer`, kernel/events/core.c.
const SHORTEST_PERIOD_NS: u64 = 10_000;
/// The shortest period of `--precise`.
const SHORTEST_PRECISE_NS: u64 = 100_000;

impl IrqOffArgs {
    fn terms(&self) -> Result<SilenceLimits> {
        let limit_ns = self.latency.or(self.than).map_or(DEFAULT_LIMIT_NS, |time| time.0);
        let half = limit_ns / 2;
        let usual = if self.precise { (limit_ns / 20).max(SHORTEST_PRECISE_NS).min(half) } else { half };
        let period_ns = self.period.map_or(usual, |time| time.0);
        if period_ns < SHORTEST_PERIOD_NS {
            return Err(usage(match self.period {
                Some(period) => format!("--period {} is too short: the shortest is 10us", format_ns(period.0)),
                None => format!("a limit of {} is too short: the shortest is 20us", format_ns(limit_ns)),
            }));
        }
        if period_ns >= limit_ns {
            return Err(usage(format!(
                "--period {} must be shorter than the limit, {}: half of it is usual",
                format_ns(period_ns),
                format_ns(limit_ns)
            )));
        }
        Ok(SilenceLimits { period_ns, limit_ns })
    }
}

/// Age at which a gap is judged: by then there are records of the other CPUs and readings of /proc/stat.
const SETTLE_NS: u64 = 100_000_000;
/// How often /proc/stat is read.
const LOOK_NS: u64 = 200_000_000;

/// The opened events.
#[derive(Debug)]
struct IrqOffEvents {
    timer: EventId,
    witness: Option<Witness>,
}

#[derive(Debug)]
struct Witness {
    enter: EventId,
    leave: EventId,
    function: Field,
    current: Field,
}

/// The state of one CPU.
#[derive(Debug, Default)]
struct TimedCpu {
    silence: Silence,
    recent: RecentSilences,
    counts: SilenceCounts,
    longest_ns: u64,
    shown: OngoingShown,
}

impl TimedCpu {
    /// Takes a sample of the timer. Some: the time since the previous sample was too long.
    #[inline]
    fn sample(&mut self, at: u64, tid: i32, terms: SilenceLimits) -> Option<SampleGap> {
        let gap = self.silence.sample(at, tid, terms);
        // Silences within the limit are kept, too: when the machine stops, one CPU is silent for slightly longer than
        // another.
        self.recent.add(self.silence.latest(), terms.limit_ns);
        gap
    }
}

/// A gap that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct PendingGap {
    gap: SampleGap,
    subject: Subject,
    stack: Option<StackId>,
}

/// The profiler behind [`IrqOffArgs`].
#[derive(Debug, Default)]
pub struct IrqOff {
    terms: SilenceLimits,
    all: bool,
    /// `--exclude-user`: silences that end in user code are left out.
    kernel_alone: bool,
    shows_stacks: bool,
    again_ns: u64,
    /// A sample of the timer was seen in this run.
    sampled: bool,
    plan: Option<IrqOffEvents>,
    host: Host,
    scope: RunScope,
    cpus: BTreeMap<u32, TimedCpu>,
    pending: Vec<PendingGap>,
    times: CpuTimesHistory,
    /// CPUs whose time is accounted without ticks (`nohz_full`).
    tickless: Vec<u32>,
}

/// The occurrence that reports a silence of a CPU.
#[derive(Debug)]
struct ShownSilence {
    kind: &'static str,
    at_least_ns: u64,
    at_most_ns: u64,
    still_silent: bool,
    stolen_ns: Option<u64>,
    /// The tasks of which one runs on the CPU, if it is unknown which one.
    runnable: Option<Arc<[String]>>,
    unaccounted_ns: Option<u64>,
}

static SILENCES: OccurrenceSchema<ShownSilence> = OccurrenceSchema::new(
    &[
        Detail::new("kind", |silence| Value::Word(silence.kind)),
        Detail::aliased("duration_ns", "latency_ns", |silence| Value::Ns(silence.at_least_ns)),
        Detail::new("at_most_ns", |silence| Value::Ns(silence.at_most_ns)),
        Detail::new("still_silent", |silence| Value::Bool(silence.still_silent)),
        Detail::new("stolen_ns", |silence| silence.stolen_ns.map_or(Value::None, Value::Ns)),
        Detail::new("runnable", |silence| silence.runnable.clone().map_or(Value::None, Value::Words)),
        Detail::new("unaccounted_ns", |silence| silence.unaccounted_ns.map_or(Value::None, Value::Ns)),
    ],
    &[
        detail("kind").wide(15),
        text(" "),
        detail("duration_ns").wide(9),
        text(" to "),
        detail("at_most_ns").wide(9),
        text(" ms  "),
        SUBJECT,
        when("still_silent", &[text(" still silent")]),
        detail("stolen_ns").between(", stolen ", " ms"),
        detail("runnable").after(", one of "),
    ],
);

/// The row of one CPU in an interval.
#[derive(Clone, Debug)]
struct IrqOffCpuRow {
    cpu: u32,
    counts: SilenceCounts,
    longest_ns: Option<u64>,
    samples: u64,
}

static CPUS: Schema<IrqOffCpuRow> = Schema::<IrqOffCpuRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::counter("count", "off", |row| row.counts.of(SilenceKind::InterruptsOff)),
        Column::<IrqOffCpuRow>::greatest("max_ns", "max ms", |row| &mut row.longest_ns).ns(),
        Column::counter("timer_late", "late", |row| row.counts.of(SilenceKind::TimerLate)),
        Column::counter("machine_stopped", "stopped", |row| row.counts.of(SilenceKind::MachineStopped)),
        Column::counter("stolen", "stolen", |row| row.counts.of(SilenceKind::Stolen)),
        Column::counter("idle", "idle", |row| row.counts.of(SilenceKind::Idle)),
        Column::counter("sampling_holes", "holes", |row| row.counts.of(SilenceKind::SamplingHole)),
        Column::counter("not_sampled", "unsampled", |row| row.counts.of(SilenceKind::NotSampled)),
        Column::counter("samples", "samples", |row| &mut row.samples),
    ],
)
.explained(MEANINGS)
.judged(|row| if row.samples == 0 { Verdict::LowerBound } else { Verdict::Exact }); // nothing was watched

const MEANINGS: &[(&str, &str)] = &[
    ("count", "how often interrupts were off for longer than the limit"),
    ("max_ns", "the longest of these, at least; absent when there was none"),
    ("timer_late", "how often the timer was late, and nothing tells why"),
    ("machine_stopped", "how often the whole machine stood still"),
    ("stolen", "how often a hypervisor took most of a silence"),
    ("idle", "how often the idle task was woken late"),
    ("sampling_holes", "how often interrupts were taken, and only samples are missing"),
    ("not_sampled", "how often records were lost or held back, or the CPU was offline"),
    ("samples", "samples of the timer; with none the CPU was not watched at all, and the row is a lower bound"),
];

impl IrqOff {
    fn new(terms: SilenceLimits, all: bool, common: &CommonArgs) -> IrqOff {
        IrqOff { terms, all, shows_stacks: common.stacks(), ..IrqOff::default() }
    }

    /// The CPUs to watch: those of the target, and if that is only one, another one for comparison.
    fn watched(&self, online: &[u32]) -> Option<Vec<u32>> {
        let mut cpus = self.scope.cpus()?;
        if cpus.iter().filter(|cpu| online.contains(cpu)).count() == 1 {
            cpus.extend(online.iter().find(|cpu| !cpus.contains(cpu)).copied());
        }
        Some(cpus)
    }

    fn is_tickless(&self, cpu: u32) -> bool {
        self.tickless.contains(&cpu)
    }

    fn witness(&self, evlist: &mut Evlist, setup: &Setup<'_>, cpus: Option<&Vec<u32>>) -> Result<Witness> {
        let (enter, format) = setup.tracepoint("timer:hrtimer_expire_entry")?;
        let (leave, _) = setup.tracepoint("timer:hrtimer_expire_exit")?;
        let (function, current) = (format.require("function")?.clone(), format.require("common_pid")?.clone());
        let mut add = |evsel: Evsel| evlist.add(evsel.binding(Binding::Cpu).cpus(cpus.cloned()));
        Ok(Witness { enter: add(enter)?, leave: add(leave)?, function, current })
    }

    #[inline]
    fn on_timer(&mut self, sample: &Sample<'_>, ctx: &mut Context) {
        let terms = self.terms;
        let cpu = self.cpus.entry(sample.cpu).or_default();
        let Some(gap) = cpu.sample(sample.time, sample.tid, terms) else { return };
        cpu.shown = OngoingShown::default();
        // The event samples user code nevertheless: samples there prove that interrupts are taken.
        let is_left_out = self.kernel_alone && gap.function.is_none() && sample.is_in_user_code();
        if !self.scope.has_cpu(sample.cpu) || is_left_out {
            return;
        }
        let stack = match gap.function {
            Some(function) if !sample.callchain.is_empty() => {
                ctx.stacks.intern_address(function, false, Innermost::Executed, sample.pid, &mut ctx.spaces)
            }
            _ => ctx.stack(sample),
        };
        let comm = if gap.idle { Comm::new(b"swapper") } else { ctx.tasks.comm(sample.tid) };
        let subject = Subject { comm, ..ctx.subject(sample) };
        self.pending.push(PendingGap { gap, subject, stack });
    }

    /// Judges and reports the gaps that ended by `until`, in the order of their ends.
    fn settle(&mut self, until: Timestamp, ctx: &mut Context) {
        if self.pending.is_empty() {
            return;
        }
        let mut due: Vec<PendingGap> = self.pending.extract_if(.., |finding| finding.subject.time <= until).collect();
        due.sort_by_key(|finding| (finding.subject.time, finding.subject.cpu));
        for finding in due {
            self.report(&finding, ctx);
        }
    }

    /// Judges a gap and counts it.
    fn count(&mut self, gap: &SampleGap, number: u32) -> (SilenceKind, Option<CpuTimeAccount>) {
        let mut account = self.times.account(number, gap.from, gap.to);
        if self.is_tickless(number) {
            account = account.map(|account| CpuTimeAccount { lost_ns: None, ..account });
        }
        let kind = judge(gap, self.others(number, gap), account);
        if let Some(cpu) = self.cpus.get_mut(&number) {
            *cpu.counts.of(kind) += 1;
            if kind == SilenceKind::InterruptsOff {
                cpu.longest_ns = cpu.longest_ns.max(gap.late_ns);
            }
        }
        (kind, account)
    }

    fn report(&mut self, finding: &PendingGap, ctx: &mut Context) {
        let PendingGap { gap, subject, stack } = finding;
        let (kind, account) = self.count(gap, subject.cpu);
        if kind == SilenceKind::InterruptsOff {
            ctx.weigh(subject.pid, subject.comm, *stack, gap.late_ns / 1000);
        }
        if !self.all && !kind.is_suspect() {
            return;
        }
        let most_ns = gap.most_ns();
        let within = |ns: Option<u64>| ns.map(|ns| ns.min(most_ns));
        let silence = ShownSilence {
            kind: kind.name(),
            at_least_ns: gap.late_ns,
            at_most_ns: most_ns,
            still_silent: false,
            stolen_ns: within(account.map(|account| account.stolen_ns).filter(|&ns| ns > 0)),
            runnable: None,
            unaccounted_ns: within(account.and_then(|account| account.lost_ns)),
        };
        ctx.emit(&SILENCES, *subject, &silence, stack.filter(|_| self.shows_stacks));
    }

    /// The state of the other CPUs during a gap of `cpu`.
    fn others(&self, cpu: u32, gap: &SampleGap) -> OtherCpus {
        let mut others = OtherCpus::Unknown;
        for (_, other) in self.cpus.iter().filter(|(number, _)| **number != cpu) {
            let (heard, _) = other.silence.since();
            // A CPU without a record since the start of the gap is no evidence.
            if !other.silence.is_known() || heard <= gap.from {
                continue;
            }
            if !other.recent.covers(gap.from, gap.to) {
                return OtherCpus::WentOn;
            }
            others = OtherCpus::SilentToo;
        }
        others
    }
}

impl Profiler for IrqOff {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.require_host_pids(
            "the idle task and tasks outside of this pid namespace look alike in it, so that a late timer cannot be told from interrupts off",
        )?;
        self.host = setup.host.clone();
        self.scope = setup.scope.clone();
        self.again_ns = ongoing::again_ns(setup.interval);
        self.tickless = tickless_cpus(setup.host);
        let online = online_cpus(setup.host)?;
        let cpus = self.watched(&online);
        let attr = Attr::timer(self.terms.period_ns).kernel_callchain();
        let timer = Evsel::new("cpu-clock", attr).binding(Binding::Cpu).cpus(cpus.clone());
        let timer = evlist.add(timer.callchain_if(setup.stacks, 0))?;
        let witness = match self.witness(evlist, setup, cpus.as_ref()) {
            Ok(witness) => Some(witness),
            Err(err) => {
                let Reason { why, cure } = setup.tracefs.reason(&err);
                let why = format!("no second witness, a late timer is not called interrupts off: {why}");
                setup.degrade(Reason { why, cure });
                None
            }
        };
        self.cpus =
            online.iter().filter(|cpu| self.scope.has_cpu(**cpu)).map(|cpu| (*cpu, TimedCpu::default())).collect();
        if online.len() == 1 {
            setup.warn(
                "only one CPU is online: it cannot tell interrupts off from a machine that was stopped".to_owned(),
            );
        }
        self.plan = Some(IrqOffEvents { timer, witness });
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(plan) = &self.plan else { return Ok(Use::Relevant) };
        if event == plan.timer {
            self.on_timer(sample, ctx);
            return Ok(Use::Relevant);
        }
        let Some(witness) = &plan.witness else { return Ok(Use::Ignored) };
        let Some(cpu) = self.cpus.get_mut(&sample.cpu) else { return Ok(Use::Ignored) };
        if event == witness.enter {
            let idle = witness.current.read_i32(sample.raw)? == 0;
            cpu.silence.enter(sample.time, witness.function.read_u64(sample.raw)?, idle);
        } else if event == witness.leave {
            cpu.silence.leave(sample.time);
        }
        Ok(Use::Ignored)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { .. } => self.times.add(Reading::now(&self.host)),
            Event::Stopped { .. } => {
                self.times.add(Reading::now(&self.host));
                self.settle(u64::MAX, ctx);
            }
            Event::Throttled { cpu } | Event::Lost(&LostWindow { cpu, .. }, _) => {
                if let Some(cpu) = self.cpus.get_mut(&cpu) {
                    cpu.silence.miss();
                }
            }
            _ => {} // lost side records do not matter: no sample is missing
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.pending.iter().filter_map(|finding| finding.stack));
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        let (mut rows, mut unsampled) = (Vec::new(), false);
        for (&number, cpu) in &mut self.cpus {
            let samples = cpu.silence.take_samples();
            self.sampled |= samples > 0;
            let mut counts = std::mem::take(&mut cpu.counts);
            let longest_ns = std::mem::take(&mut cpu.longest_ns);
            if !self.scope.has_cpu(number) {
                continue;
            }
            unsampled |= *counts.of(SilenceKind::NotSampled) > 0;
            let longest_ns = (*counts.of(SilenceKind::InterruptsOff) > 0).then_some(longest_ns);
            rows.push(IrqOffCpuRow { cpu: number, counts, longest_ns, samples });
        }
        let table = report.delta(&CPUS, rows);
        if unsampled {
            table.judged(Verdict::Discarded); // there may have been more silences
        }
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        // After -N no more lines are printed: pending gaps are only counted.
        for finding in std::mem::take(&mut self.pending) {
            self.count(&finding.gap, finding.subject.cpu);
        }
        self.interval(now, report)?;
        if !self.sampled {
            report.note(format!(
                "irq-off: no CPU was watched: the run ended before the first sample, they are {} apart (see --period)",
                format_ns(self.terms.period_ns)
            ));
        }
        Ok(())
    }
}

impl IrqOff {
    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let suspects = self.suspects(now);
        let pause = if suspects.is_empty() { LOOK_NS } else { LOOK_NS / 4 };
        let time = crate::sys::monotonic_ns();
        if time >= self.times.last_ns().saturating_add(pause) {
            self.times.add(Reading::now(&self.host));
        }
        self.settle(now.min(self.times.last_ns()).saturating_sub(SETTLE_NS), ctx);
        self.report_silent(&suspects, now, ctx);
        TickOutcome { suspects, ..TickOutcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::report::TypedRows;

    const MS: u64 = 1_000_000;

    fn profiler(options: &[&str]) -> IrqOff {
        let command = IrqOffArgs::augment_args(clap::Command::new("irq-off").no_binary_name(true));
        let args = IrqOffArgs::from_arg_matches(&command.try_get_matches_from(options).unwrap()).unwrap();
        IrqOff::new(args.terms().unwrap(), args.all, &args.common)
    }

    /// CPU 0 is silent for 20.5 ms until 1,020.5 ms; CPU 1 has samples at `times` after 1 s.
    fn others(options: &[&str], times: &[u64]) -> OtherCpus {
        let mut irq_off = profiler(options);
        let terms = irq_off.terms;
        let start = |cpu: &mut TimedCpu| {
            (1..=50).for_each(|n| assert_eq!(cpu.sample(1_000 * MS - (50 - n) * terms.period_ns, 7, terms), None));
        };
        start(irq_off.cpus.entry(0).or_default());
        let gap = irq_off.cpus.entry(0).or_default().sample(1_020 * MS + 500_000, 7, terms).unwrap();
        let other = irq_off.cpus.entry(1).or_default();
        start(other);
        times.iter().for_each(|at| assert_eq!(other.sample(1_000 * MS + at, 7, terms), None));
        irq_off.others(0, &gap)
    }

    /// As the docs say, a silence counts in the row of the interval in which it is judged, and in no other.
    #[test]
    fn a_silence_counts_once_where_it_is_judged() {
        let mut irq_off = profiler(&["--than", "20ms"]);
        let terms = irq_off.terms;
        let cpu = irq_off.cpus.entry(0).or_default();
        (1..=50).for_each(|n| assert_eq!(cpu.sample(500 * MS + n * terms.period_ns, 7, terms), None));
        let gap = cpu.sample(1_500 * MS, 7, terms).unwrap();
        let subject = Subject { time: 1_500 * MS, cpu: 0, pid: 7, tid: 7, comm: Comm::default() };
        irq_off.pending.push(PendingGap { gap, subject, stack: None });
        let counted = |report: &Report| -> u64 {
            let rows = report.tables[0].rows.as_any().downcast_ref::<TypedRows<IrqOffCpuRow>>().unwrap();
            rows.rows()[0].counts.all()
        };
        let mut reports: [Report; 3] = std::array::from_fn(|_| Report::default());
        irq_off.interval(1_550 * MS, &mut reports[0]).unwrap();
        irq_off.deinit(1_600 * MS, &mut reports[1]).unwrap();
        irq_off.deinit(1_700 * MS, &mut reports[2]).unwrap();
        assert_eq!(reports.each_ref().map(counted), [0, 1, 0]);
    }

    #[test]
    fn a_machine_may_stop_for_a_little_less_than_the_limit() {
        let usual = ["--than", "20ms"];
        assert_eq!(others(&usual, &[10 * MS, 20 * MS]), OtherCpus::WentOn);
        assert_eq!(others(&usual, &[19_500_000]), OtherCpus::SilentToo, "within the limit");
        assert_eq!(others(&usual, &[]), OtherCpus::Unknown);
        let slow = ["--than", "20ms", "--period", "18ms"];
        assert_eq!(others(&slow, &[18 * MS]), OtherCpus::WentOn, "its timer was on time");
        assert_eq!(others(&slow, &[19 * MS + 500_000]), OtherCpus::SilentToo);
    }
}
