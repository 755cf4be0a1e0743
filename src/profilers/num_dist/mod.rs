//! `num-dist`: the distribution of any number in events.
//!
//! Events: those of `-e`, period 1, on the tasks of the answer. Cost: one record per event.

mod rows;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashSet;

use crate::cli::{CommonArgs, usage, values};
use crate::event::{BoundEvent, EventKey, KeyExpr, KeyTexts, NUMBER_ATTRS, Selector, selector};
use crate::expr::{Expr, ExprValue, NoResultCounts, Program};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{
    Context, ExprOutcome, Profiler, ProfilerArgs, Report, Setup, ShownEvent, ShownKeys, Timestamp, Use, key_of,
};
use crate::profilers::num_dist::rows::{Instance, KeyForm, NUMBERS, NumberRow, RowForm, greatness};
use crate::report::{Schema, TableSchema, Value};
use crate::stats::{KeyedSums, SignedDistribution, SumKey, WorstCase};
use crate::symbol::StackId;

/// How large the numbers are that events carry: bytes, errors, depths
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  How many bytes programs ask to read, every second:
    perf-prof num-dist -e syscalls:sys_enter_read//num=count/ -i 1000
  The same by process, and each of 1 MiB and more with its stack:
    perf-prof num-dist -e syscalls:sys_enter_read//num=count/ --by _pid
    perf-prof num-dist -e syscalls:sys_enter_read//num=count/ --than 1048576 -g
  How much the kernel allocates at once, by the code that asks:
    perf-prof num-dist -e 'kmem:kmalloc//num=bytes_req/' -k 'ksymbol(call_site)'
  When packets are large, as a picture:
    perf-prof num-dist -e net:net_dev_queue//num=len/ --heatmap len.svg --for 10
  What calls return, errors below 0:
    perf-prof num-dist -e syscalls:sys_exit_recvfrom//num=ret/alias=recv/

num=EXPR is the number of an event, an expression over its fields. It has no
unit, and may be less than 0.")]
pub struct NumDistArgs {
    /// Events with a number, sys:name[/FILTER/num=EXPR/ATTR/...], or probes
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", required = true)]
    events: Vec<String>,
    /// Rows by this key, of events that have no key=EXPR
    #[arg(short = 'k', long = "by", visible_alias = "key", value_name = "EXPR")]
    by: Option<String>,
    /// Rows by CPU, of a target by thread
    #[arg(long)]
    perins: bool,
    /// Also show each event whose number is at least so much
    #[arg(long, value_name = "NUMBER", value_parser = whole_number, allow_hyphen_values = true)]
    than: Option<i64>,
    /// So many rows at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

fn whole_number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "write a whole number, as in 1048576 or -5: it has no unit".to_owned())
}

impl ProfilerArgs for NumDistArgs {
    const NAME: &'static str = "num-dist";
    const TABLES: &'static [&'static dyn TableSchema] = &[&NUMBERS];
    const WEIGHT: &'static str = "sum of the numbers";
    const TRIAL: &'static [&'static str] = &["-e", "sched:sched_process_exec//num=pid/"];
    const NARROWINGS: &'static [&'static str] = &["-p PID", "-C CPUS", "-e EVENT/FILTER/"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let mut selectors = Vec::new();
        for text in &self.events {
            selectors.extend(selector::parse_with(text, &NUMBER_ATTRS).map_err(|err| usage(format!("-e: {err}")))?);
        }
        let lacks = |selector: &&Selector| !selector.attrs.expressions.iter().any(|(name, _)| name == "num");
        if let Some(Selector { head, .. }) = selectors.iter().find(lacks) {
            return Err(usage(format!(
                "{head}: which number? Give it one, as in {head}//num=FIELD/; top counts events"
            )));
        }
        let by = self.by.as_deref().map(Expr::parse).transpose().map_err(|err| usage(format!("--by: {err}")))?;
        let names_tasks = self.common.names_tasks().is_some() || self.common.runs_command();
        let instance = if names_tasks { Instance::Thread } else { Instance::Cpu };
        Ok(Box::new(NumDist {
            selectors,
            by,
            instance: self.perins.then_some(instance),
            than: self.than,
            text_rows: self.top as usize,
            shows_stacks: self.common.stacks(),
            draws_stacks: self.common.draws_stacks(),
            opened: None,
            texts: KeyTexts::default(),
            sums: KeyedSums::new(MAX_ROWS),
            no_value: NoResultCounts::default(),
        }))
    }
}

/// Limit of separate rows: a distribution takes up to 8 KiB.
const MAX_ROWS: usize = 5_000;

/// An event, with its number.
#[derive(Debug)]
struct NumberedEvent {
    shown: ShownEvent,
    number: Program,
    key: Option<KeyExpr>,
    name: Value,
}

/// What is known once the events are opened.
#[derive(Debug)]
struct OpenedNumbers {
    events: Vec<NumberedEvent>,
    /// Index of the first event in the list.
    first: usize,
    keys: ShownKeys,
    schema: Schema<NumberRow>,
    /// Rows have stacks.
    by_stack: bool,
}

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NumberKey {
    index: usize,
    key: Option<EventKey>,
    instance: Option<i32>,
    stack: Option<StackId>,
}

impl SumKey for NumberKey {
    fn others(&self) -> NumberKey {
        NumberKey { index: self.index, key: Some(EventKey::OTHERS), instance: None, stack: None }
    }
}

#[derive(Clone, Debug, Default)]
struct NumberSum {
    numbers: SignedDistribution,
    greatest: Option<WorstCase>,
}

/// The profiler behind [`NumDistArgs`].
#[derive(Debug)]
struct NumDist {
    selectors: Vec<Selector>,
    by: Option<Expr>,
    instance: Option<Instance>,
    than: Option<i64>,
    text_rows: usize,
    shows_stacks: bool,
    draws_stacks: bool,
    opened: Option<OpenedNumbers>,
    texts: KeyTexts,
    sums: KeyedSums<NumberKey, NumberSum>,
    no_value: NoResultCounts,
}

impl NumDist {
    fn event(&self, mut bound: BoundEvent, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<NumberedEvent> {
        let full_name = bound.format.full_name();
        let (_, number) =
            bound.expressions.iter().find(|(name, _)| name == "num").context("an event without a number")?;
        if !number.ty().is_number() {
            return Err(usage(format!("num of {full_name} is {}, and a number is needed", number.ty())));
        }
        let (number, key) = (number.clone(), key_of(&mut bound, self.by.as_ref())?);
        let name = Value::Text(bound.attributes.alias.clone().unwrap_or(full_name).into());
        let shown = ShownEvent::add(bound, self.shows_stacks, evlist, setup)?;
        Ok(NumberedEvent { shown, number, key, name })
    }
}

impl Profiler for NumDist {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.find_functions(self.selectors.iter().map(|selector| (selector, true)))?;
        let (mut events, mut print) = (Vec::new(), None);
        for selector in &self.selectors {
            print = print.or_else(|| selector.attrs.print_key.clone());
            for bound in setup.bind(selector, None)? {
                events.push(self.event(bound, evlist, setup)?);
            }
        }
        let keys = ShownKeys::of(events.iter().filter_map(|event| event.key.as_ref()), print.as_ref(), "", setup.host)?;
        let key = match events.iter().any(|event| event.key.is_some()) {
            false => None,
            true if keys.is_text() => Some(KeyForm::Text(keys.heading())),
            true => Some(KeyForm::Number(keys.heading())),
        };
        let by_stack = self.than.is_none() && events.iter().any(|event| event.shown.shows_stack);
        let schema = rows::schema(RowForm { key, instance: self.instance, stacks: by_stack });
        let first = events.first().map_or(0, |event| event.shown.event.index());
        self.opened = Some(OpenedNumbers { events, first, keys, schema, by_stack });
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let mut events = self.opened.iter_mut().flat_map(|opened| &mut opened.events);
        events.try_for_each(|event| event.shown.narrow(None, evlist, setup))
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let opened = self.opened.as_mut().context("no event")?;
        let at = event.index().wrapping_sub(opened.first);
        let numbered = opened.events.get(at).context("an event of another")?;
        let subject = ctx.subject(sample);
        if !numbered.shown.passes(sample, subject.comm) {
            return Ok(Use::Ignored);
        }
        let value = numbered.number.value(sample);
        let key = numbered.key.as_ref().map(|key| key.key(sample, &mut self.texts)).transpose();
        let (value, key) = match (value, key) {
            (Ok(value), Ok(key)) => (value, key),
            (Err(reason), _) | (_, Err(reason)) => {
                self.no_value.add(reason, 1);
                return Ok(Use::Relevant);
            }
        };
        if let Some(key) = key {
            opened.keys.meet(key, sample.pid, ctx);
        }
        let stack = ctx.stack(sample);
        let instance = self.instance.map(|by| if by == Instance::Cpu { sample.cpu as i32 } else { sample.tid });
        let row = NumberKey {
            index: at,
            key,
            instance,
            stack: stack.filter(|_| opened.by_stack && numbered.shown.shows_stack),
        };
        let sum = self.sums.sum(row);
        let number = match value {
            ExprValue::Unsigned(number) => {
                sum.numbers.record_unsigned(number);
                i128::from(number)
            }
            ExprValue::Signed(number) => {
                sum.numbers.record(number);
                i128::from(number)
            }
            ExprValue::Text(_) | ExprValue::Named(..) => return Ok(Use::Malformed), // `event` has refused it
        };
        let ns = greatness(number);
        if sum.greatest.is_none_or(|greatest| ns > greatest.ns) {
            let (at, cpu, tid, comm) = (sample.time, sample.cpu, sample.tid, subject.comm);
            sum.greatest = Some(WorstCase { ns, at_ns: at, cpu, tid, comm, stack });
        }
        if self.draws_stacks {
            ctx.weigh(sample.pid, subject.comm, stack, u64::try_from(number).unwrap_or(0));
        }
        if self.than.is_some_and(|than| number >= i128::from(than)) {
            let outcome = match value {
                ExprValue::Unsigned(number) => ExprOutcome::Unsigned(number),
                _ => ExprOutcome::Signed(number as i64), // the number was an i64
            };
            let stack = stack.filter(|_| numbered.shown.shows_stack);
            ctx.emit_event(subject, numbered.shown.event, sample.raw, Some(Value::cell(outcome)), stack);
        }
        Ok(Use::Relevant)
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        let opened = self.opened.as_mut().context("no event")?;
        let (sums, texts) = (&mut self.sums, &self.texts);
        let rows = sums.drain().map(|(row, sum)| opened.row(row, sum, texts)).collect();
        report.delta(&opened.schema, rows::merged(rows)).text_rows(self.text_rows);
        opened.keys.end_interval(&mut self.texts, &self.no_value, report);
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let total = self.no_value.total();
        if total > 0 {
            let events = if total == 1 { "event" } else { "events" };
            report.note(format!("no value for {total} {events}: {}", self.no_value));
        }
        self.interval(now, report)
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.sums.keys().filter_map(|row| row.stack));
        self.opened.iter().for_each(|opened| opened.keys.stacks_in_use(used));
    }
}

impl OpenedNumbers {
    fn row(&self, key: NumberKey, sum: NumberSum, texts: &KeyTexts) -> NumberRow {
        let NumberKey { index: at, key, instance, stack } = key;
        let NumberSum { numbers, greatest } = sum;
        let event = self.events.get(at).map_or(Value::None, |event| event.name.clone());
        NumberRow {
            index: at,
            event,
            key: key.map_or(Value::None, |key| self.keys.value(key, texts)),
            text_key: key.map_or(Value::None, |key| self.keys.text_value(key, texts)),
            instance,
            numbers,
            greatest,
            stack,
        }
    }
}
