//! `irqs`: what interrupts cost: hard interrupts by their handlers, softirqs, and work items in kernel threads.
//!
//! Events: of `irq:` for handlers and softirqs, of `workqueue:` for work items, period 1, on all CPUs. Cost: two
//! records per handler, three per softirq and per work item.
//!
//! Each handler, softirq or work item is a pair of events, and so is the wait before it.

use std::cmp::{Ordering, Reverse};

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::event::{KeyText, KeyTexts};
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{Context, Event, Profiler, ProfilerArgs, Report, Setup, TickOutcome, Timestamp, Use};
use crate::relation::{
    Declaration, EventMoment, OpenStart, PairEnd, PairOutcome, PairSums, Relation, RelationTerms, RowKey,
};
use crate::report::layout::{SUBJECT, detail, text, unless, when};
use crate::report::{
    Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceLayout, OccurrenceSchema, Schema, Subject, TableSchema,
    Value,
};
use crate::stats::{Latency, PairKey, SumKey};
use crate::symbol::StackId;
use crate::tep::{Field, PrintFmt, drift};

/// What hard interrupts, softirqs and work items cost, and how long they wait
#[derive(Debug, clap::Args)]
#[command(visible_aliases = ["hardirqs", "softirqs"], after_help = "\
Examples:
  What interrupts cost on each CPU, by handler, softirq and function:
    perf-prof irqs -i 1000
  Softirqs that take or wait for more than 1 ms, and whom they interrupt:
    perf-prof irqs --kinds softirqs --than 1ms
  The handlers of one CPU, and in which code they come:
    perf-prof irqs --kinds hardirqs -C 3 --than 100us -g
  Work items that wait long for a kernel thread, or hang in one:
    perf-prof irqs --kinds work --than 100ms -i 1000

`hardirqs` and `softirqs` are `irqs --kinds hardirqs` and `--kinds softirqs`.
A softirq waits from its raise to its entry, a work item from when it is queued.
Work items may sleep: the time that they take is not that of a CPU.")]
pub struct IrqsArgs {
    /// Only these: hardirqs, softirqs, work
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kinds: Vec<IrqKind>,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for IrqsArgs {
    const NAME: &'static str = "irqs";
    const TABLES: &'static [&'static dyn TableSchema] = &[&TIMES, &DELAYS];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(LONG.layout());
    const WEIGHT: &'static str = "us";
    const NARROWINGS: &'static [&'static str] = &["-C CPUS"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        self.common.refuse_tasks(Self::NAME)?;
        Ok(Box::new(Irqs::new(self)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
enum IrqKind {
    Hardirqs,
    Softirqs,
    Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IrqStep {
    Waits,
    Begins,
    Ends,
}

/// The events, each with the field that identifies the interrupt or work item, and the field that names it.
const EVENTS: [(&str, IrqKind, IrqStep, &str, Option<&str>); 8] = [
    ("irq:irq_handler_entry", IrqKind::Hardirqs, IrqStep::Begins, "irq", Some("name")),
    ("irq:irq_handler_exit", IrqKind::Hardirqs, IrqStep::Ends, "irq", None),
    ("irq:softirq_raise", IrqKind::Softirqs, IrqStep::Waits, "vec", None),
    ("irq:softirq_entry", IrqKind::Softirqs, IrqStep::Begins, "vec", None),
    ("irq:softirq_exit", IrqKind::Softirqs, IrqStep::Ends, "vec", None),
    ("workqueue:workqueue_queue_work", IrqKind::Work, IrqStep::Waits, "work", Some("function")),
    ("workqueue:workqueue_execute_start", IrqKind::Work, IrqStep::Begins, "work", Some("function")),
    ("workqueue:workqueue_execute_end", IrqKind::Work, IrqStep::Ends, "work", None),
];

#[derive(Debug)]
struct IrqEvent {
    event: EventId,
    kind: IrqKind,
    step: IrqStep,
    id: Field,
    name: Option<Field>,
}

/// A row: a kind of interrupt or work that runs or waits on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct IrqPart {
    waits: bool,
    kind: IrqKind,
    cpu: u32,
    /// Number of a hard interrupt or softirq.
    irq: Option<u64>,
    /// Name of a softirq or a handler: devices may share an interrupt.
    name: Option<KeyText>,
    /// Function of a work item.
    function: Option<StackId>,
}

impl SumKey for IrqPart {
    fn others(&self) -> IrqPart {
        IrqPart { irq: None, name: Some(KeyText::OTHERS), function: None, ..*self }
    }
}

impl RowKey for IrqPart {}

impl IrqPart {
    fn kind(&self) -> Value {
        Value::Word(match self.kind {
            IrqKind::Hardirqs => "hardirq",
            IrqKind::Softirqs => "softirq",
            IrqKind::Work => "work",
        })
    }

    fn irq(&self) -> Value {
        self.irq.map_or(Value::None, Value::Unsigned)
    }
}

/// Kind; whether it waits; the CPU of an interrupt, or the thread of a running work item; and the number of the
/// interrupt, or the address of the work item. The thread is needed because a work item may free itself while it runs,
/// and another one at the same address may run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct IrqKey(IrqKind, bool, u32, u64);

impl IrqKey {
    /// The key of the wait before this run.
    fn waiting(self) -> IrqKey {
        IrqKey(self.0, true, if self.0 == IrqKind::Work { 0 } else { self.2 }, self.3)
    }
}

impl PairKey for IrqKey {
    fn cpu(&self) -> Option<u32> {
        (self.0 != IrqKind::Work).then_some(self.2)
    }
}

#[derive(Clone, Copy, Debug)]
struct IrqStart {
    part: IrqPart,
    /// Total time of hard interrupts that had ended on the CPU at the start.
    taken_ns: u64,
}

#[derive(Debug)]
struct IrqPairs;

impl Declaration for IrqPairs {
    type Key = IrqKey;
    type Start = IrqStart;
    /// Total time of hard interrupts that have ended on the CPU.
    type End = u64;
    type Row = IrqPart;
    /// Time without the hard interrupts in between.
    type Sums = u64;

    fn row(&self, _key: &IrqKey, start: &OpenStart<IrqStart>, end: &PairEnd<u64>) -> IrqPart {
        IrqPart { cpu: end.moment.cpu, ..start.open.own.part }
    }

    /// Some kinds may begin without an event of their wait.
    fn may_be_first(&self, IrqKey(_, waits, ..): &IrqKey, _taken_ns: &u64) -> bool {
        *waits
    }

    fn add(&self, sum_ns: &mut u64, start: &OpenStart<IrqStart>, end: &PairEnd<u64>) {
        *sum_ns += own_ns(start, end);
    }

    /// No event shows that a waiting work item is cancelled. The end of an interrupt may be unseen because a BPF
    /// program runs.
    fn waits_on(&self, IrqKey(kind, waits, ..): &IrqKey) -> bool {
        *kind == IrqKind::Work && !waits
    }
}

/// The length of a pair without the hard interrupts in it.
fn own_ns(start: &OpenStart<IrqStart>, end: &PairEnd<u64>) -> u64 {
    let in_between_ns = end.own.saturating_sub(start.open.own.taken_ns);
    end.moment.time.saturating_sub(start.since).saturating_sub(in_between_ns)
}

/// The profiler behind [`IrqsArgs`].
#[derive(Debug)]
struct Irqs {
    args: IrqsArgs,
    events: Vec<IrqEvent>,
    relation: Relation<IrqPairs>,
    /// The names of handlers and softirqs.
    texts: KeyTexts,
    softirqs: FxHashMap<u64, KeyText>,
    /// Total time of ended hard interrupts, by CPU: see [`IrqStart::taken_ns`].
    taken_ns: FxHashMap<u32, u64>,
    /// Work may be queued or run on CPUs whose events are not seen.
    misses_cpus: bool,
}

impl Irqs {
    fn new(args: IrqsArgs) -> Irqs {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation = Relation::new(IrqPairs, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, texts, softirqs, taken_ns, misses_cpus) = Default::default();
        Irqs { args, events, relation, texts, softirqs, taken_ns, misses_cpus }
    }

    fn start(&mut self, key: IrqKey, part: IrqPart, sample: &Sample<'_>, ctx: &mut Context) {
        let (comm, stack) = (ctx.tasks.comm(sample.tid), ctx.stack(sample));
        let taken_ns = self.taken_ns.get(&sample.cpu).copied().unwrap_or(0);
        self.relation.start(key, EventMoment::of(sample), comm, stack, IrqStart { part, taken_ns });
    }

    fn end(&mut self, key: IrqKey, part: IrqPart, sample: &Sample<'_>, ctx: &mut Context) {
        let taken_ns = self.taken_ns.entry(sample.cpu).or_default();
        let end = PairEnd { moment: EventMoment::of(sample), own: *taken_ns };
        match self.relation.end(key, &end, ctx) {
            PairOutcome::Ended(start) => {
                let start = *start;
                if key.0 == IrqKind::Hardirqs {
                    *taken_ns += own_ns(&start, &end);
                }
                if self.args.lengths.shows(sample.time.saturating_sub(start.since)) {
                    self.show(&start, sample.time, false, ctx);
                }
            }
            PairOutcome::NoStart if part.waits => self.relation.rows.sum(part).no_start += 1,
            // The start was not seen, so the wait is over.
            PairOutcome::NoStart => self.relation.hide(key.waiting()),
            PairOutcome::Doubtful | PairOutcome::Unfit => {}
        }
    }

    fn name(&self, part: IrqPart) -> Value {
        let text = |name| self.texts.get(name).map_or("<others>".into(), |text| String::from_utf8_lossy(text));
        part.name.map_or(Value::None, |name| Value::Text(text(name).into()))
    }

    /// Hands over the occurrence of a pair, or of a start that still goes on.
    fn show(&self, start: &OpenStart<IrqStart>, time: u64, goes_on: bool, ctx: &mut Context) {
        let OpenStart { since, open: start } = start;
        let (part, name) = (start.own.part, self.name(start.own.part));
        let subject = Subject { time, cpu: start.cpu, pid: start.pid, tid: start.tid, comm: start.comm };
        ctx.emit(&LONG, subject, &LongIrq { ns: time.saturating_sub(*since), part, name, goes_on }, start.stack);
    }
}

impl Profiler for Irqs {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let is_wanted = |kind: IrqKind| self.args.kinds.is_empty() || self.args.kinds.contains(&kind);
        // Some kernels lack the events of work items. Only a user who asks for them gets the error.
        let is_there =
            |of: IrqKind| EVENTS.iter().all(|(event, kind, ..)| *kind != of || setup.tracepoint(event).is_ok());
        let has_work = !self.args.kinds.is_empty() || is_there(IrqKind::Work);
        if !has_work {
            setup.warn("this kernel has no events of work items: they are left out".to_owned());
        }
        let is_wanted = |kind: IrqKind| is_wanted(kind) && (has_work || kind != IrqKind::Work);
        for (event, kind, step, id, name) in EVENTS.into_iter().filter(|(_, kind, ..)| is_wanted(*kind)) {
            let (evsel, format) = setup.tracepoint(event)?;
            let id = drift::require(&format, id)?.clone();
            let name = name.map(|name| drift::require(&format, name).cloned()).transpose()?;
            if kind == IrqKind::Softirqs {
                let table = PrintFmt::compile(&format).ok().and_then(|print| print.flag_table("vec"));
                let names = table.into_iter().flat_map(|table| table.entries);
                self.softirqs.extend(names.map(|(vec, name)| (vec, self.texts.place(name.as_bytes()))));
            }
            let evsel = evsel
                .binding(Binding::Cpu)
                .cpus(setup.scope.cpus())
                .callchain_if(setup.stacks && step != IrqStep::Ends, 0);
            self.events.push(IrqEvent { event: evlist.add(evsel)?, kind, step, id, name });
        }
        self.misses_cpus = setup.scope.cpus().is_some() && is_wanted(IrqKind::Work);
        if self.misses_cpus {
            setup.degrade_pairs();
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(irq) = self.events.iter().find(|irq| irq.event == event) else { return Ok(Use::Ignored) };
        let IrqEvent { kind, step, .. } = *irq;
        let id = irq.id.read_u64(sample.raw)?;
        let mut part = IrqPart { waits: true, kind, cpu: sample.cpu, irq: Some(id), name: None, function: None };
        match (kind, &irq.name) {
            (IrqKind::Hardirqs, Some(name)) => part.name = Some(self.texts.place(name.text(sample.raw)?)),
            (IrqKind::Softirqs, _) => part.name = self.softirqs.get(&id).copied(),
            (IrqKind::Work, Some(name)) => {
                (part.irq, part.function) = (None, ctx.kernel_address(name.read_u64(sample.raw)?, 0));
            }
            (_, None) => {}
        }
        let is_work = kind == IrqKind::Work;
        let runs = IrqKey(kind, false, if is_work { sample.tid.cast_unsigned() } else { sample.cpu }, id);
        let waits = runs.waiting();
        match step {
            // A softirq that is raised again has waited since the first time. A work item that is queued again was
            // cancelled before.
            IrqStep::Waits if is_work || self.relation.since(waits).is_none() => self.start(waits, part, sample, ctx),
            IrqStep::Waits => {}
            IrqStep::Begins => {
                if kind != IrqKind::Hardirqs {
                    self.end(waits, part, sample, ctx);
                }
                self.start(runs, IrqPart { waits: false, ..part }, sample, ctx);
            }
            IrqStep::Ends => self.end(runs, IrqPart { waits: false, ..part }, sample, ctx),
        }
        Ok(Use::Relevant)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        if let Event::Stopped { now } = event {
            let due = self.relation.open_lines_at_end(now, ctx);
            due.iter().for_each(|(_, start)| self.show(start, now, true, ctx));
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let due = self.relation.tick(now, ctx);
        due.iter().for_each(|(_, start)| self.show(start, now, true, ctx));
        TickOutcome::default()
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let unpaired = self.relation.end_interval(now, report);
        let rows = self.relation.rows.take().into_iter();
        let rows = rows.map(|(part, sums)| IrqRow { part, name: self.name(part), sums });
        let (delays, times): (Vec<_>, Vec<_>) = rows.partition(|row| row.part.waits);
        let is_over = times.iter().chain(&delays).any(|row| row.sums.than > 0);
        let in_text = is_over || !self.args.lengths.only_than();
        let any_delays = !delays.is_empty();
        for (schema, rows, below, is_any) in
            [(&TIMES, times, unpaired.in_words(), true), (&DELAYS, delays, None, any_delays)]
        {
            let table = report.delta(schema, rows).judged(unpaired.verdict(self.misses_cpus)).below(below);
            table.text_rows(self.args.top as usize).in_text(in_text && is_any);
        }
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.relation.rows.iter().filter_map(|(part, _)| part.function));
        used.extend(self.relation.iter().filter_map(|(_, start)| start.open.own.part.function));
    }
}

#[derive(Clone, Debug)]
struct IrqRow {
    part: IrqPart,
    name: Value,
    sums: PairSums<u64>,
}

impl LatencyRow for IrqRow {
    fn latency(&self) -> &Latency {
        &self.sums.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.sums.latency
    }
}

impl IrqRow {
    /// The share of the CPU's time. Work items have none, since they may sleep, nor have waits.
    fn share(&self, span_ns: u64) -> Value {
        match self.part {
            IrqPart { waits: true, .. } | IrqPart { kind: IrqKind::Work, .. } => Value::None,
            _ => Value::share(self.sums.own, span_ns),
        }
    }

    fn whose(&self) -> Value {
        self.sums.latency.worst.map_or(Value::None, |case| Value::Comm(case.comm))
    }

    fn rank(&self) -> (Reverse<u128>, IrqPart) {
        (Reverse(self.sums.latency.distribution.sum()), self.part)
    }
}

const COLUMNS: [Column<IrqRow>; 19] = [
    Column::label("cpu", "CPU", |row| Value::Unsigned(row.part.cpu.into())),
    Column::label("kind", "kind", |row| row.part.kind()),
    Column::<IrqRow>::label("irq", "irq", |row| row.part.irq()).if_any(),
    Column::<IrqRow>::label("name", "name", |row| row.name.clone()).if_any(),
    Column::<IrqRow>::place("function", "function", |row| &mut row.part.function).if_any(),
    Column::latency_count("count"),
    Column::latency_total(),
    Column::<IrqRow>::derived("cpu_pct", "CPU %", IrqRow::share).if_any().additive(),
    Column::<IrqRow>::latency_min().json_only(),
    Column::<IrqRow>::latency_mean().json_only(),
    Column::<IrqRow>::latency_stddev().json_only(),
    Column::latency_p50(),
    Column::latency_p95(),
    Column::latency_p99(),
    Column::latency_max(),
    Column::<IrqRow>::derived("max_in", "max in", |row, _| row.whose()).text_only(),
    Column::<IrqRow>::counter("than", "than", |row| &mut row.sums.than).if_any(),
    Column::<IrqRow>::counter("no_start", "no start", |row| &mut row.sums.no_start).if_any(),
    Column::<IrqRow>::counter("own_ns", "", |row| &mut row.sums.own).ns().hidden(),
];

const MEANINGS: [Meaning; 9] = [
    ("cpu", "the CPU; of a wait that on which it ended"),
    ("kind", "`hardirq`, `softirq` or `work`"),
    ("irq", "the number of the hard interrupt or softirq"),
    ("name", "the name of the handler or softirq"),
    ("function", "the function of the work item"),
    ("cpu_pct", "the share of the CPU's time, without hard interrupts in between; work has none, since it may sleep"),
    ("max_in", "the task that the longest interrupted, or that was current as its wait began"),
    ("than", "those as long as the limit of `--than` or longer"),
    ("no_start", "waits that ended, too, but whose beginning was not seen"),
];

fn longest_first(one: &IrqRow, other: &IrqRow) -> Ordering {
    one.rank().cmp(&other.rank())
}

static TIMES: Schema<IrqRow> =
    Schema::<IrqRow>::new("times", &COLUMNS).latencies().titled("what ran").explained(&MEANINGS).ordered(longest_first);
static DELAYS: Schema<IrqRow> = Schema::<IrqRow>::new("delays", &COLUMNS)
    .latencies()
    .titled("what waited")
    .explained(&MEANINGS)
    .ordered(longest_first);

/// The occurrence of a run or wait that `--than` or `--lower` selects. Its subject is the interrupted task, or the task
/// that was current when the wait began.
#[derive(Debug)]
struct LongIrq {
    ns: u64,
    part: IrqPart,
    name: Value,
    goes_on: bool,
}

static LONG: OccurrenceSchema<LongIrq> = OccurrenceSchema::<LongIrq>::new(
    &[
        Detail::new("duration_ns", |long| Value::Us(long.ns)),
        Detail::new("kind", |long| long.part.kind()),
        Detail::new("irq", |long| long.part.irq()),
        Detail::new("name", |long| long.name.clone()),
        Detail::new("function", |long| long.part.function.map_or(Value::None, Value::Place)),
        Detail::new("waited", |long| Value::Bool(long.part.waits)),
        Detail::new("still_open", |long| Value::Bool(long.goes_on)),
    ],
    &[
        detail("duration_ns").wide(12),
        text(" us  "),
        SUBJECT,
        text("  "),
        detail("kind"),
        detail("irq").after(" "),
        detail("name").after(" "),
        detail("function").after(" "),
        when("waited", &[text(" waited")]),
        when("still_open", &[text(" goes on")]),
        unless("waited", &[unless("still_open", &[text(" ran")])]),
    ],
)
.grouped(GroupBy {
    noun: "interrupt",
    same: &["kind", "irq", "name", "waited", "still_open"],
    place: "function",
    duration: "duration_ns",
    goes_on: "still_open",
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relation::PairStart;
    use crate::task::Comm;

    const PART: IrqPart =
        IrqPart { waits: false, kind: IrqKind::Softirqs, cpu: 0, irq: Some(3), name: None, function: None };

    #[test]
    fn an_interrupt_in_another_one_counts_once() {
        let own = IrqStart { part: PART, taken_ns: 500 };
        let open = PairStart { cpu: 0, pid: 1, tid: 1, comm: Comm::default(), stack: None, own };
        let start = OpenStart { since: 1000, open };
        let at = EventMoment { time: 1100, cpu: 0, pid: 1, tid: 1 };
        for (taken_ns, want) in [(500, 100), (530, 70), (700, 0)] {
            assert_eq!(own_ns(&start, &PairEnd { moment: at, own: taken_ns }), want, "{taken_ns}");
        }
    }

    #[test]
    fn losses_elsewhere_concern_work_alone() {
        let cpu = |kind| IrqKey(kind, false, 3, 7).cpu();
        assert_eq!([IrqKind::Hardirqs, IrqKind::Softirqs, IrqKind::Work].map(cpu), [Some(3), Some(3), None]);
    }

    #[test]
    fn work_alone_is_told_to_go_on() {
        let keys = [IrqKind::Hardirqs, IrqKind::Softirqs, IrqKind::Work].map(|kind| IrqKey(kind, false, 3, 7));
        assert_eq!(keys.map(|key| IrqPairs.waits_on(&key)), [false, false, true]);
        assert!(keys.iter().all(|key| !IrqPairs.waits_on(&key.waiting())));
        assert_eq!(keys[1].waiting(), IrqKey(IrqKind::Softirqs, true, 3, 7));
        assert_eq!(keys[2].waiting(), IrqKey(IrqKind::Work, true, 0, 7), "any thread may take it");
    }

    #[test]
    fn rows_without_room_are_those_of_their_kind_and_cpu() {
        let row = |cpu, irq| IrqPart { cpu, irq: Some(irq), ..PART };
        assert_eq!(row(1, 2).others(), row(1, 3).others());
        assert_ne!(row(1, 2).others(), row(2, 2).others());
    }

    #[test]
    fn a_share_is_that_of_a_cpu() {
        let row = |part| IrqRow { part, name: Value::None, sums: PairSums { own: 25, ..PairSums::default() } };
        assert_eq!(row(PART).share(1000), Value::Pct(250));
        assert_eq!(row(IrqPart { waits: true, ..PART }).share(1000), Value::None);
        assert_eq!(row(IrqPart { kind: IrqKind::Work, ..PART }).share(1000), Value::None);
    }
}
