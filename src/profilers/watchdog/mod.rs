//! `watchdog`: which CPU is about to be reported, or reset, by the kernel's own lockup detectors.
//!
//! Events: `timer:hrtimer_expire_entry` and `timer:hrtimer_start` of only the watchdog's timer function, and
//! `sched:sched_switch` to only the stop task, all filtered in the kernel; and a sampler at `-F`: cycles, or the CPU
//! clock if there is no PMU. Cost per CPU: three records in each 2/5 of kernel.watchdog_thresh, and the samples.
//!
//! `cpu` judges one CPU by its records, `lockup` is the occurrence that is reported, `settings` reads the kernel's
//! limits, `signs` reads signs of life of a CPU whose records are missing.

mod cpu;
mod lockup;
mod settings;
mod signs;

use anyhow::{Context as _, Result, bail};
use rustc_hash::FxHashSet;

use crate::cli::{CommonArgs, values};
use crate::digits::format_ns;
use crate::host::{Host, online_cpus};
use crate::perf::attr::{Exclude, Sampling};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Binding, Evsel};
use crate::perf::target::Tasks;
use crate::perf::{Attr, EventId, Sample};
use crate::profiler::sampling::check_limit;
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TickOutcome, Timestamp, Use};
use crate::profilers::watchdog::cpu::{Sampler, WatchedCpu};
use crate::profilers::watchdog::lockup::{LOCKUPS, Lockup, LockupFinding, LockupKind, LockupPhase, SeenTask};
use crate::profilers::watchdog::settings::{LockupLimits, WatchdogSettings};
use crate::profilers::watchdog::signs::LifeSignReader;
use crate::report::{Column, OccurrenceLayout, Schema, Subject, TableSchema, Value, Verdict};
use crate::symbol::StackId;
use crate::symbol::kernel::kallsyms::{KallsymsError, address_of};
use crate::task::{Comm, procfs};

/// CPUs that are about to lock up, told before the kernel's own detectors strike
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Watch all CPUs, and keep what is found through a crash:
    perf-prof watchdog -g -o /var/log/watchdog.log
  One sample per second and CPU is enough to name the culprit:
    perf-prof watchdog -F 1 -g
  The state of two CPUs every ten seconds:
    perf-prof watchdog -C 0,1 -i 10000
  Everything that is checked:
    perf-prof watchdog -v

A hard lockup: a CPU takes no interrupts. A soft one: it takes them, but runs
the same task for ever. The kernel reports them after kernel.watchdog_thresh
(10 s) and twice that, and may panic; here they are told after about half the
time. A dark CPU gives no samples either: its interrupts are off, and only
a PMU whose interrupts cannot be held off (NMI) would see what it does.")]
pub struct WatchdogArgs {
    /// Samples per second of who runs where
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "10", value_parser = values::count)]
    frequency: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for WatchdogArgs {
    const NAME: &'static str = "watchdog";
    const TABLES: &'static [&'static dyn TableSchema] = &[&CPUS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(LOCKUPS.layout());
    const PACED: bool = true;
    const DURABLE: bool = true;
    const NARROWINGS: &'static [&'static str] = &["-C CPUS"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        self.common.refuse_tasks(Self::NAME)?;
        let (hz, verbose) = (self.frequency, self.common.verbose());
        Ok(Box::new(Watchdog { hz, verbose, ..Watchdog::default() }))
    }
}

/// How often the kernel's settings are read again.
const SETTINGS_NS: u64 = 1_000_000_000;
/// The function of the timer: kernel/watchdog.c.
const TIMER_FUNCTION: &str = "watchdog_timer_fn";
/// Limit of the named tasks that are runnable on a stuck CPU.
const MAX_RUNNABLE: usize = 5;

#[derive(Clone, Copy, Debug)]
struct WatchdogEvents {
    /// The address of [`TIMER_FUNCTION`].
    timer: u64,
    expire: EventId,
    start: EventId,
    stop_task: EventId,
    sampler: EventId,
}

/// The profiler behind [`WatchdogArgs`].
#[derive(Debug, Default)]
pub struct Watchdog {
    hz: u64,
    verbose: bool,
    stacks: bool,
    host: Host,
    /// perf-prof runs in a nested pid namespace, where tid 0 is not only the idle task.
    nested: bool,
    scope: RunScope,
    events: Option<WatchdogEvents>,
    sampler: Sampler,
    settings: WatchdogSettings,
    limits: LockupLimits,
    /// The watched CPUs, indexed by CPU number.
    cpus: Vec<WatchedCpu>,
    /// When the CPUs were chosen: their timers are expected to expire from then on.
    since: Timestamp,
    next_settings: Timestamp,
}

/// The present state of one CPU.
#[derive(Clone, Debug)]
struct WatchdogCpuRow {
    cpu: u32,
    state: &'static str,
    /// Age of the last expiry of the timer; `stop_ns`: age of the last run of the stop task.
    timer_ns: Option<u64>,
    stop_ns: Option<u64>,
    running: Option<SeenTask>,
}

static CPUS: Schema<WatchdogCpuRow> = Schema::<WatchdogCpuRow>::new(
    "cpus",
    &[
        Column::label("cpu", "CPU", |row| Value::Unsigned(row.cpu.into())),
        Column::derived("state", "state", |row, _| Value::Word(row.state)),
        Column::<WatchdogCpuRow>::gauge("last_timer_ns", "last timer, ms ago", |row| &mut row.timer_ns).ns(),
        Column::<WatchdogCpuRow>::gauge("last_watchdog_ns", "last stop task, ms ago", |row| &mut row.stop_ns).ns(),
        Column::derived("running.comm", "running", |row, _| {
            row.running.map_or(Value::None, |seen| Value::Comm(seen.comm))
        }),
        Column::derived("running.tid", "tid", |row, _| {
            row.running.map_or(Value::None, |seen| Value::Signed(seen.tid.into()))
        }),
    ],
)
.explained(&[
    ("state", "`ok`, `soft lockup`, `hard lockup`, `timer unseen`, `not seen yet` or `not watched`"),
    ("last_timer_ns", "how long before the end of the interval its watchdog timer was seen last"),
    ("last_watchdog_ns", "the same of its stop task"),
    ("running.comm", "name of the task of the last record"),
    ("running.tid", "its thread"),
])
.snapshot();

impl Watchdog {
    /// Samples cycles if this machine counts them, else the CPU clock.
    fn choose_sampler(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Evsel> {
        self.sampler.period = 1_000_000_000 / self.hz.max(1);
        let sampling = Sampling::Frequency(self.hz);
        let (evsel, is_clock) = setup.cycles_or_clock(
            evlist,
            [Attr::cycles(sampling), Attr::cpu_clock(sampling)],
            Exclude::default(),
            "; a CPU with interrupts off cannot be sampled",
        )?;
        if is_clock {
            return Ok(evsel);
        }
        self.sampler.is_nmi = counters_interrupt_always(setup.host);
        if !self.sampler.is_nmi {
            setup.warn(
                "the PMU interrupts like any device here: a CPU with interrupts off cannot be sampled".to_owned(),
            );
        }
        Ok(evsel)
    }

    /// Reads the kernel's settings again, and notes how they have changed.
    fn follow_settings(&mut self, now: Timestamp, ctx: &mut Context) {
        self.next_settings = now.saturating_add(SETTINGS_NS);
        let Ok(settings) = WatchdogSettings::read(&self.host) else { return };
        let Some(changes) = settings.changes(&self.settings) else { return };
        ctx.note(changes);
        let retimed = (settings.thresh_s, settings.on) != (self.settings.thresh_s, self.settings.on);
        self.settings = settings;
        self.limits = self.settings.limits();
        self.choose_cpus(now, retimed);
    }

    /// Chooses the CPUs that the kernel watches.
    fn choose_cpus(&mut self, now: Timestamp, retimed: bool) {
        let Watchdog { settings, cpus, scope, .. } = self;
        let is_chosen = |cpu: &u32| settings.runs() && scope.has_cpu(*cpu);
        let chosen: Vec<u32> = settings.cpus.iter().copied().filter(is_chosen).collect();
        let most = chosen.iter().max().map_or(0, |&cpu| cpu as usize + 1);
        cpus.resize(most.max(cpus.len()), WatchedCpu::default());
        for (number, cpu) in cpus.iter_mut().enumerate() {
            let on = chosen.iter().any(|&chosen| chosen as usize == number);
            match (cpu.on, on) {
                (true, false) => cpu.forget(),
                (true, true) if retimed => cpu.forgive(now),
                (false, true) => cpu.from = now,
                _ => {}
            }
            cpu.on = on;
        }
        self.since = now; // every timer gets two periods to be seen
    }

    /// Notes, once, the CPUs whose timer is not seen.
    fn name_silent(&mut self, now: Timestamp, ctx: &mut Context) {
        let patience = self.limits.period.saturating_mul(2).saturating_add(self.limits.margin);
        if now.saturating_sub(self.since) <= patience {
            return;
        }
        let mut silent = Vec::new();
        for (number, cpu) in self.cpus.iter_mut().enumerate().filter(|(_, cpu)| cpu.on) {
            if cpu.timer.is_none() && !cpu.silent && !cpu.was_named {
                (cpu.silent, cpu.was_named) = (true, true);
                silent.push(number.to_string());
            }
        }
        if !silent.is_empty() {
            let (list, waited) = (silent.join(" "), format_ns(self.limits.period.saturating_mul(2)));
            ctx.note(format!(
                "watchdog: CPU {list}: no watchdog timer seen for two periods ({waited}); watched by stop task and samples alone"
            ));
        }
    }

    fn explain(&self, number: u32, at: Timestamp, ctx: &mut Context) {
        let Some(cpu) = self.cpus.get(number as usize).filter(|_| self.verbose) else { return };
        let since = |then: Option<u64>| then.map(|then| format_ns(at.saturating_sub(then)));
        let timer = since(cpu.timer).map_or("for the first time".to_owned(), |age| format!("after {age}"));
        let stop = since(cpu.stop).map_or("not seen yet".to_owned(), |age| format!("ran {age} ago"));
        let limit = format_ns(self.limits.period.saturating_add(self.limits.margin));
        ctx.note(format!("watchdog: CPU {number}: timer expired {timer}, stop task {stop} (limit {limit})"));
    }

    /// Hands over a finding on a CPU. `runnable`: the tasks that run there or wait for it, from /proc.
    fn report_lockup(
        &self,
        number: u32,
        finding: LockupFinding,
        runnable: &[(i32, Comm)],
        at: Timestamp,
        ctx: &mut Context,
    ) {
        let Some(cpu) = self.cpus.get(number as usize) else { return };
        let age = |then: Option<u64>| then.map(|then| at.saturating_sub(then));
        // Without records of the CPU, the task seen last may have been switched out unseen.
        let blind = finding.dark || !self.sampler.is_nmi;
        let (tid, comm) = match (runnable.first(), cpu.seen) {
            (Some(first), _) if blind => *first,
            (_, Some(seen)) => (seen.tid, seen.comm),
            (Some(first), None) => *first,
            (None, None) => (0, ctx.tasks.comm(0)),
        };
        let pid = ctx.tasks.pid(tid);
        let limit_ns = match finding.kind {
            LockupKind::Soft => self.limits.soft,
            LockupKind::Hard => self.limits.hard,
        };
        let name = |(tid, comm): &(i32, Comm)| format!("{}({tid})", String::from_utf8_lossy(comm.as_bytes()));
        let lockup = Lockup {
            finding,
            limit_ns,
            running: (tid, comm),
            timer_ns: age(cpu.timer),
            stop_ns: age(cpu.stop),
            sampled: cpu.sampled,
            sampled_ns: age(cpu.sampled.map(|seen| seen.at_ns)),
            runnable: runnable.iter().take(MAX_RUNNABLE).map(name).collect(),
        };
        let stack = cpu.stack.filter(|_| lockup.goes_on());
        ctx.emit(&LOCKUPS, Subject { time: at, cpu: number, pid, tid, comm }, &lockup, stack);
    }

    fn on_sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Option<LockupFinding> {
        let events = self.events?;
        let at = sample.time;
        if event == events.expire && self.verbose {
            self.explain(sample.cpu, at, ctx);
        }
        let (limits, sampler, stacks) = (self.limits, self.sampler, self.stacks);
        let cpu = self.cpus.get_mut(sample.cpu as usize).filter(|cpu| cpu.on)?;
        let seen = SeenTask { at_ns: at, tid: sample.tid, comm: ctx.tasks.comm(sample.tid) };
        // Samples of the PMU find the idle task even if tracepoints during it, and so the timer, are hidden.
        cpu.see(seen, event != events.sampler && sample.tid == 0 && !self.nested);
        if event == events.expire {
            return cpu.expired(at, &limits);
        } else if event == events.start {
            cpu.started(at);
        } else if event == events.stop_task {
            return cpu.stopped(at);
        } else if event == events.sampler {
            if stacks {
                cpu.stack = ctx.stack(sample);
            }
            let finding = cpu.sampled(seen, &sampler, &limits);
            if cpu.stuck().is_some() {
                ctx.weigh(sample.pid, seen.comm, cpu.stack, 1);
            }
            return finding;
        }
        None
    }
}

/// True if the PMU's interrupts are not masked when interrupts are off.
fn counters_interrupt_always(host: &Host) -> bool {
    // On arm64 only with pseudo NMIs, an option of the boot command line: arch/arm64/kernel/cpufeature.c.
    let command_line = || std::fs::read_to_string(host.proc.join("cmdline")).unwrap_or_default();
    let pseudo = |word: &str| matches!(word.strip_prefix("irqchip.gicv3_pseudo_nmi="), Some("1" | "y" | "Y" | "on"));
    cfg!(target_arch = "x86_64") || command_line().split_ascii_whitespace().any(pseudo)
}

impl Profiler for Watchdog {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        check_limit(setup.host, "-F", self.hz, "perf_event_max_sample_rate")?;
        self.host = setup.host.clone();
        self.nested = procfs::is_nested(setup.host);
        self.scope = setup.scope.clone();
        self.stacks = setup.stacks;
        self.settings = WatchdogSettings::read(setup.host)?;
        self.settings.check()?;
        self.limits = self.settings.limits();
        if self.scope.cpus().is_some() && !self.settings.cpus.iter().any(|&cpu| self.scope.has_cpu(cpu)) {
            bail!("the kernel watches none of these CPUs (see kernel.watchdog_cpumask, and which are online)");
        }
        setup.note(self.limits.describe());
        let timer = address_of(&setup.host.proc.join("kallsyms"), TIMER_FUNCTION);
        if let Err(KallsymsError::Restricted) = timer {
            setup.tracefs.get_as_root("kernel addresses are hidden")?;
        }
        let timer = timer.context("the watchdog's timer cannot be told from others")?.with_context(|| {
            format!(
                "this kernel has no {TIMER_FUNCTION} (see /proc/kallsyms): without it the watchdog's timer cannot be told from others"
            )
        })?;
        // With a command, the CPUs are watched while it runs.
        let is_all = matches!(setup.target.tasks, Tasks::All);
        let sampler = self.choose_sampler(evlist, setup)?;
        let mut add = |evsel: Evsel| {
            let evsel = if is_all { evsel } else { evsel.binding(Binding::Cpu).cpus(setup.scope.cpus()) };
            evlist.add(evsel)
        };
        let expire = add(setup.tracepoint("timer:hrtimer_expire_entry")?.0)?;
        let start = add(setup.tracepoint("timer:hrtimer_start")?.0)?;
        let stop_task = add(setup.tracepoint("sched:sched_switch")?.0)?;
        let sampler = add(if self.stacks { sampler.callchain(0).kernel_callchain() } else { sampler })?;
        self.events = Some(WatchdogEvents { timer, expire, start, stop_task, sampler });
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, _setup: &Setup<'_>) -> Result<()> {
        let events = self.events.context("no events")?;
        let of_timer = format!("function == {:#x}", events.timer);
        evlist.set_filter(events.expire, of_timer.clone())?;
        evlist.set_filter(events.start, of_timer)?;
        // migration/N is the stop task; before Linux 4.19 the watchdog had threads of its own.
        evlist.set_filter(events.stop_task, "next_comm ~ \"migration/*\" || next_comm ~ \"watchdog/*\"")
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if let Some(finding) = self.on_sample(event, sample, ctx) {
            self.report_lockup(sample.cpu, finding, &[], sample.time, ctx);
        }
        Ok(Use::Relevant)
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        self.on_tick(now, ctx)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { now } => self.on_start(now, ctx),
            Event::Lost(window, _) => {
                if let Some(cpu) = self.cpus.get_mut(window.cpu as usize) {
                    cpu.lost(window.end_ns);
                }
            }
            _ => {} // lost side records do not matter: no sample is missing
        }
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let age = |then: Option<u64>| then.map(|then| now.saturating_sub(then));
        let row = |(number, cpu): (usize, &WatchedCpu)| {
            let state = match cpu.stuck() {
                _ if !cpu.on => "not watched",
                Some(LockupKind::Soft) => "soft lockup",
                Some(LockupKind::Hard) => "hard lockup",
                None if cpu.silent || cpu.hidden => "timer unseen",
                None if cpu.timer.is_none() && cpu.stop.is_none() => "not seen yet",
                None => "ok",
            };
            let (timer_ns, stop_ns) = (age(cpu.timer), age(cpu.stop));
            WatchdogCpuRow { cpu: number as u32, state, timer_ns, stop_ns, running: cpu.seen }
        };
        let wanted = self.cpus.iter().enumerate().filter(|(number, _)| self.scope.has_cpu(*number as u32));
        let is_behind = wanted.clone().any(|(_, cpu)| cpu.on && cpu.is_behind());
        let table = report.snapshot(&CPUS, wanted.map(row).collect());
        if is_behind {
            table.judged(Verdict::Unsure);
        }
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.cpus.iter().filter_map(|cpu| cpu.stack));
    }
}

impl Watchdog {
    fn on_start(&mut self, now: Timestamp, ctx: &mut Context) {
        self.choose_cpus(now, false);
        self.next_settings = now.saturating_add(SETTINGS_NS);
        let online = online_cpus(&self.host).unwrap_or_default();
        let unwatched = |cpu: &&u32| online.contains(cpu) && !self.settings.cpus.contains(cpu);
        let left_out: Vec<String> = self.scope.cpus().iter().flatten().filter(unwatched).map(u32::to_string).collect();
        if !left_out.is_empty() {
            let list = left_out.join(" ");
            ctx.note(format!("watchdog: CPU {list}: not watched by the kernel (see kernel.watchdog_cpumask)"));
        }
    }

    fn on_tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let limits = self.limits;
        if now >= self.next_settings || self.cpus.iter().any(|cpu| cpu.begins_to_doubt(now, &limits)) {
            self.follow_settings(now, ctx);
        }
        self.name_silent(now, ctx);
        let (limits, sampler) = (self.limits, self.sampler);
        let (mut signs, mut runnable) = (LifeSignReader::default(), None);
        let own = std::process::id() as i32;
        let mut outcome = TickOutcome::default();
        for number in 0..self.cpus.len() {
            let (host, cpu) = (&self.host, &mut self.cpus[number]);
            let number = number as u32;
            let finding = cpu.check(now, &sampler, &limits, || signs.of(host, number));
            if cpu.is_suspect(now, &limits) {
                outcome.suspects.push(number);
            }
            if let Some(finding) = finding {
                let looks = finding.kind == LockupKind::Hard && finding.phase != LockupPhase::Recovered;
                let all =
                    looks.then(|| runnable.get_or_insert_with(|| procfs::runnable(&self.host, own, usize::MAX).0));
                let mut here = all.map_or_else(Vec::new, |all| procfs::latest_run_first(&self.host, all, number));
                // The tasks from /proc belong to the lockup only if it is not over by now; its end will be reported
                // soon.
                if looks && self.cpus[number as usize].is_back(&LifeSignReader::default().of(&self.host, number)) {
                    if finding.phase == LockupPhase::Ongoing {
                        continue;
                    }
                    here.clear();
                }
                self.report_lockup(number, finding, &here, now, ctx);
            }
        }
        outcome
    }
}
