//! `split-lock`: locked operations that cross a cache line, how many, on which CPU, and in which code.
//!
//! Event: one raw event of the CPU, counted and sampled on the target's tasks. Cost: one record per `-T` events and a
//! reading of the counters per interval.

mod cpu;
mod sums;

use anyhow::{Result, bail};
use rustc_hash::FxHashSet;

use crate::cli::{CommonArgs, usage, values};
use crate::event::counter::{self, NamedCounter};
use crate::perf::attr::{Counter, Exclude};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::perf::target::Tasks;
use crate::perf::{Attr, EventId, Sample};
use crate::profiler::sampling::ExcludeModeArgs;
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, Setup, Timestamp, Use};
use crate::profilers::split_lock::sums::{COUNTS, CodePlace, CounterTimes, CpuCounts, Mode, PLACES, PlaceSum};
use crate::report::layout::{SUBJECT, detail, text};
use crate::report::{Detail, OccurrenceLayout, OccurrenceSchema, TableSchema, Value};
use crate::stats::KeyedSums;
use crate::symbol::StackId;
use crate::sys::split_lock::{POSSIBLE, SplitLocks};

/// Locked operations across two cache lines: how many, on which CPU, in whose code
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  How many per second on each CPU, and in which code every 1000th is:
    perf-prof split-lock -i 1000
  The same without samples:
    perf-prof split-lock -i 1000 -T 0
  Whose virtual machine does it? Each one with the stack:
    perf-prof split-lock -G -T 1 -g
  Does it work here? Provoke some:
    perf-prof split-lock --test --for 3
  The same way of counting and sampling for another event:
    perf-prof split-lock --event page-faults -T 100 -i 1000

A split lock holds up all CPUs. It needs the hardware counters of an Intel or
AMD CPU, which a virtual machine may not have.")]
pub struct SplitLockArgs {
    /// Show every so manyth with its code; 0 only counts
    #[arg(short = 'T', long, value_name = "COUNT", default_value = "1000", value_parser = trigger)]
    trigger: u64,
    /// Only those of virtual machines
    #[arg(short = 'G', long, alias = "guest")]
    exclude_host: bool,
    #[command(flatten)]
    exclude: ExcludeModeArgs,
    /// Provoke split locks with a thread of our own
    #[arg(long, conflicts_with = "event")]
    test: bool,
    /// Another event: page-faults, cycles, r10f4
    #[arg(long, value_name = "EVENT", value_parser = counter::parse)]
    event: Option<NamedCounter>,
    #[command(flatten)]
    common: CommonArgs,
}

fn trigger(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { values::period(text) }
}

impl ProfilerArgs for SplitLockArgs {
    const NAME: &'static str = "split-lock";
    const TABLES: &'static [&'static dyn TableSchema] = &[&PLACES, &COUNTS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SAMPLES.layout());
    const WEIGHT: &'static str = "events";

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        if self.trigger == 0 && (self.common.stacks() || self.common.draws_stacks()) {
            return Err(usage(
                "-T 0 takes no samples, so there are no stacks: leave out -T 0, or -g and --flame-graph",
            ));
        }
        if self.test {
            self.refuse_to_miss_the_test()?;
        }
        if let Some(NamedCounter { name, counter: Counter::Software(_) }) =
            self.event.as_ref().filter(|_| self.exclude_host)
        {
            return Err(usage(format!(
                "-G leaves out nothing of {name}, which the kernel counts itself, and on this host alone: leave out -G"
            )));
        }
        Ok(Box::new(SplitLock::new(self)))
    }
}

impl SplitLockArgs {
    /// Refuses `--test` with options that exclude its thread, which belongs to no target and to no virtual machine.
    fn refuse_to_miss_the_test(&self) -> Result<()> {
        let command = self.common.runs_command().then_some("a command");
        let host = self.exclude_host.then_some("-G");
        let user = self.exclude.exclude().user.then_some("--exclude-user");
        match self.common.names_tasks().or(command).or(host).or(user) {
            None => Ok(()),
            Some(other) => Err(usage(format!(
                "--test provokes split locks with a thread of perf-prof, which {other} leaves out: choose one of the two"
            ))),
        }
    }
}

/// The profiler behind [`SplitLockArgs`].
#[derive(Debug)]
pub struct SplitLock {
    args: SplitLockArgs,
    event: Option<EventId>,
    counts: CpuCounts,
    times: CounterTimes,
    places: KeyedSums<CodePlace, PlaceSum>,
    test: Option<SplitLocks>,
}

/// The occurrence that reports a sample.
#[derive(Debug)]
struct ShownSample {
    count: u64,
    mode: Mode,
    addr: u64,
}

static SAMPLES: OccurrenceSchema<ShownSample> = OccurrenceSchema::new(
    &[
        Detail::new("count", |sample| Value::Unsigned(sample.count)),
        Detail::new("mode", |sample| Value::Word(sample.mode.word())),
        Detail::new("addr", |sample| Value::Address(sample.addr)),
    ],
    &[detail("count").wide(11), text("  "), SUBJECT, text(" "), detail("mode"), text(" "), detail("addr")],
);

impl SplitLock {
    fn new(args: SplitLockArgs) -> SplitLock {
        SplitLock {
            args,
            event: None,
            counts: CpuCounts::default(),
            times: CounterTimes::default(),
            places: KeyedSums::default(),
            test: None,
        }
    }
}

impl Profiler for SplitLock {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.times = match (&setup.target.tasks, &setup.target.wanted) {
            (Tasks::All | Tasks::Cgroups(_), _) => CounterTimes::Cpus,
            (_, None) => CounterTimes::Tasks,
            _ => CounterTimes::Unknown,
        };
        let named = match &self.args.event {
            Some(named) => named.clone(),
            None => NamedCounter { name: "split-locks".to_owned(), counter: cpu::split_locks(setup.host)? },
        };
        if self.args.test {
            if !POSSIBLE {
                bail!("this CPU knows no split locks that --test could provoke");
            }
            cpu::refuse_if_fatal(setup.host)?;
            if cpu::slows_down(setup.host) {
                setup.warn(
                    "the kernel holds back who makes split locks (kernel.split_lock_mitigate=1): --test makes a hundred per second at most"
                        .to_owned(),
                );
            }
        }
        let exclude = Exclude { host: self.args.exclude_host, ..self.args.exclude.exclude() };
        let evsel = Evsel::new(named.name, Attr::counter(named.counter, self.args.trigger)).exclude(exclude).counted();
        self.event = Some(evlist.add(evsel.callchain_if(setup.stacks, 0))?);
        Ok(())
    }

    fn sample(&mut self, _event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if ctx.scope.is_own(sample.tid) {
            return Ok(Use::Ignored);
        }
        let mode = Mode::of(sample.misc());
        let count = self.args.trigger;
        let subject = ctx.subject(sample);
        let place = ctx.address(sample);
        let stack = if mode.is_here() && self.args.common.stacks() { ctx.stack(sample) } else { place };
        let addr = sample.ip();
        self.places.sum(CodePlace { mode, comm: subject.comm, addr, stack: place }).add(count);
        if self.args.common.draws_stacks() {
            let stack = if mode.is_here() { ctx.stack(sample) } else { None };
            ctx.weigh(subject.pid, subject.comm, stack, count);
        }
        ctx.emit(&SAMPLES, subject, &ShownSample { count, mode, addr }, stack);
        Ok(Use::Relevant)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        match event {
            Event::Started { .. } if self.args.test => match SplitLocks::provoke() {
                Ok(test) => self.test = Some(test),
                Err(err) => ctx.note(format!("--test provokes nothing: cannot start its thread: {err}")),
            },
            Event::Counted { event, cpu, counted } if self.event == Some(event) => self.counts.add(cpu, counted),
            _ => {}
        }
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.places.keys().filter_map(|place| place.stack));
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        if !self.places.is_empty() {
            report.delta(&PLACES, self.places.drain().collect());
        }
        report.delta(&COUNTS, self.counts.take_rows(self.times));
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        self.test = None;
        self.interval(now, report)
    }
}
