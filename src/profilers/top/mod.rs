//! `top`: events by a key, with sums of their numbers.
//!
//! Events: those of `-e`, period 1, on the tasks of the answer. Cost: one record per event.

mod columns;
mod events;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashSet;

use crate::cli::values::{self, Time};
use crate::cli::{CommonArgs, usage};
use crate::event::{AMOUNT_ATTRS, EventKey, KeyText, KeyTexts, selector};
use crate::expr::{Expr, ExprValue, NoResult, NoResultCounts, Program};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{Context, Profiler, ProfilerArgs, Report, Setup, ShownKeys, Timestamp, Use};
use crate::profilers::top::columns::{AmountRow, KEYS, RowKind, TableForm};
use crate::profilers::top::events::{AmountEvent, AmountEvents, Wish};
use crate::report::{Schema, TableSchema, Value};
use crate::stats::{KeyedSums, SumKey};
use crate::symbol::StackId;
use crate::task::Comm;

/// Count any events by a key, or add up what they carry
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Which programs are started, and how often:
    perf-prof top -e sched:sched_process_exec//key=filename/
  Which system calls are made, by name:
    perf-prof top -e 'raw_syscalls:sys_enter//key=syscall_name(id)/'
  Who writes how many bytes, and how often:
    perf-prof top -e syscalls:sys_enter_write//top-by=count/top-add=1/
  Who allocates pages, in bytes, and from where:
    perf-prof top -e 'kmem:mm_page_alloc//top-by=\"4096<<order\"/' -g --for 5
  Which functions of a library are called:
    perf-prof top -e 'uprobe:ssl_*@\"/lib/libssl.so.3\"' -p nginx
  Bytes by device:
    perf-prof top -e net:net_dev_queue//key=name/top-by=len/

Rows are keys, -k EXPR or key=EXPR of each event; without one they are threads,
or the events of a pattern. Columns are what top-by=EXPR and top-add=EXPR add
up, or the number of events. Numbers are those of the interval, 1 s by default.")]
pub struct TopArgs {
    /// Events, sys:name[/FILTER/ATTR/...], or probes
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", required = true)]
    events: Vec<String>,
    /// The key of events that have no key=EXPR
    #[arg(short = 'k', long, value_name = "EXPR")]
    key: Option<String>,
    /// Rows are names: of threads, or of comm=EXPR
    #[arg(long)]
    only_comm: bool,
    /// Amounts by the second
    #[arg(long)]
    rate: bool,
    /// So many rows at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

impl ProfilerArgs for TopArgs {
    const NAME: &'static str = "top";
    const TABLES: &'static [&'static dyn TableSchema] = &[&KEYS];
    const WEIGHT: &'static str = "events";
    const TRIAL: &'static [&'static str] = &["-e", "sched:sched_process_exec"];
    const INTERVAL: Option<Time> = Some(Time(1_000_000_000));
    const NARROWINGS: &'static [&'static str] = &["-p PID", "-C CPUS", "-e EVENT/FILTER/"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let mut selectors = Vec::new();
        for text in &self.events {
            selectors.extend(selector::parse_with(text, &AMOUNT_ATTRS).map_err(|err| usage(format!("-e: {err}")))?);
        }
        let default_key =
            self.key.as_deref().map(Expr::parse).transpose().map_err(|err| usage(format!("-k: {err}")))?;
        let (only_names, shows_stacks) = (self.only_comm, self.common.stacks());
        let wish = Wish { selectors, default_key, only_names, shows_stacks };
        Ok(Box::new(TopByKey {
            wish,
            rates: self.rate,
            text_rows: self.top as usize,
            draws_stacks: self.common.draws_stacks(),
            opened: None,
            texts: KeyTexts::default(),
            sums: KeyedSums::default(),
            no_value: NoResultCounts::default(),
        }))
    }
}

/// Limit of separate rows; fewer with many columns, since an amount takes 8 bytes.
const MAX_ROWS: usize = 10_000;
const MAX_AMOUNTS: usize = 4 << 20;

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AmountKey {
    key: EventKey,
    /// The name of the thread, if threads are the key.
    comm: Comm,
    stack: Option<StackId>,
}

impl SumKey for AmountKey {
    fn others(&self) -> AmountKey {
        AmountKey { key: EventKey::OTHERS, comm: Comm::default(), stack: None }
    }
}

#[derive(Clone, Debug, Default)]
struct Amounts {
    /// The sums; empty until the first amount is added.
    sums: Box<[i64]>,
    /// The last value of `comm=`.
    name: Option<KeyText>,
}

/// What is known once the events are opened.
#[derive(Debug)]
struct OpenedEvents {
    events: Vec<AmountEvent>,
    /// Index of the first event in the list.
    first: usize,
    keys: ShownKeys,
    by: KeyOrigin,
    schema: Schema<AmountRow>,
    /// Number of amounts of a row.
    amounts: usize,
    names: Vec<Value>,
}

/// Where the key of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyOrigin {
    Expression,
    Thread,
    Event,
    Name,
}

/// The profiler behind [`TopArgs`].
#[derive(Debug)]
struct TopByKey {
    wish: Wish,
    rates: bool,
    text_rows: usize,
    draws_stacks: bool,
    opened: Option<OpenedEvents>,
    texts: KeyTexts,
    sums: KeyedSums<AmountKey, Amounts>,
    no_value: NoResultCounts,
}

impl Profiler for TopByKey {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let AmountEvents { events, columns, print, name_heading, by_event, weight } =
            AmountEvents::open(&self.wish, evlist, setup)?;
        let keys =
            ShownKeys::of(events.iter().filter_map(|event| event.key.as_ref()), print.as_ref(), "tid", setup.host)?;
        let is_keyed = events.iter().any(|event| event.key.is_some());
        let heading = name_heading.as_deref();
        let (by, rows, name) = match () {
            () if self.wish.only_names => (KeyOrigin::Name, RowKind::Names(heading.unwrap_or("comm")), None),
            () if by_event => (KeyOrigin::Event, RowKind::Events, None),
            () if is_keyed && keys.is_text() => (KeyOrigin::Expression, RowKind::Texts(keys.heading()), heading),
            () if is_keyed => (KeyOrigin::Expression, RowKind::Numbers(keys.heading()), heading),
            () => (KeyOrigin::Thread, RowKind::Threads, Some(heading.unwrap_or("comm"))),
        };
        let stacks = events.iter().any(|event| event.shown.shows_stack);
        let schema = columns::schema(TableForm { rows, name, rates: self.rates, stacks }, &columns);
        if let Some(weight) = weight {
            setup.weighs(weight);
        }
        let names = events.iter().map(|event| Value::Text(event.shown.format.full_name().into())).collect();
        let first = events.first().map_or(0, |event| event.shown.event.index());
        self.sums = KeyedSums::new(MAX_ROWS.min(MAX_AMOUNTS / columns.len().max(1)));
        self.opened = Some(OpenedEvents { events, first, keys, by, schema, amounts: columns.len(), names });
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let mut events = self.opened.iter_mut().flat_map(|opened| &mut opened.events);
        events.try_for_each(|event| event.shown.narrow(None, evlist, setup))
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let opened = self.opened.as_mut().context("no event")?;
        let at = event.index().wrapping_sub(opened.first);
        let event = opened.events.get(at).context("an event of another")?;
        let comm = ctx.tasks.comm(sample.tid);
        let is_own = matches!(opened.by, KeyOrigin::Thread | KeyOrigin::Name) && ctx.scope.is_own(sample.tid);
        if is_own || !event.shown.passes(sample, comm) {
            return Ok(Use::Ignored);
        }
        let name = match event.name.as_ref().map(|program| name(program, sample, &mut self.texts, ctx)).transpose() {
            Ok(name) => name,
            Err(reason) => return Ok(no_value(&mut self.no_value, reason)),
        };
        let key = match (opened.by, &event.key) {
            (KeyOrigin::Name, _) => Ok(EventKey::Text(name.unwrap_or_else(|| self.texts.place(comm.as_bytes())))),
            (KeyOrigin::Event, _) => Ok(EventKey::Number(at as u64)),
            (_, Some(key)) => key.key(sample, &mut self.texts),
            (_, None) => Ok(EventKey::Number(i64::from(sample.tid) as u64)),
        };
        let key = match key {
            Ok(key) => key,
            Err(reason) => return Ok(no_value(&mut self.no_value, reason)),
        };
        let is_thread = opened.by == KeyOrigin::Thread;
        opened.keys.meet(key, sample.pid, ctx);
        let stack = ctx.stack(sample);
        let row = AmountKey {
            key,
            comm: if is_thread && event.name.is_none() { comm } else { Comm::default() },
            stack: stack.filter(|_| event.shown.shows_stack),
        };
        let sum = self.sums.sum(row);
        sum.name = name.or(sum.name);
        if sum.sums.is_empty() {
            sum.sums = vec![0; opened.amounts].into();
        }
        let mut weight = 1;
        for (at, amount) in event.amounts.iter().enumerate() {
            let number = match amount.program.as_ref().map(|program| program.value(sample)).transpose() {
                Ok(value) => value.map_or(1, number),
                Err(reason) => {
                    self.no_value.add(reason, 1);
                    continue;
                }
            };
            if let Some(place) = sum.sums.get_mut(amount.place) {
                *place = place.saturating_add(number);
            }
            if event.weight == Some(at) {
                weight = u64::try_from(number).unwrap_or(0);
            }
        }
        if self.draws_stacks {
            ctx.weigh(sample.pid, comm, stack, weight);
        }
        Ok(Use::Relevant)
    }

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        let opened = self.opened.as_mut().context("no event")?;
        let texts = &self.texts;
        let rows = self.sums.drain().map(|(row, amounts)| opened.row(row, amounts, texts)).collect();
        report.delta(&opened.schema, columns::merged(rows)).text_rows(self.text_rows);
        opened.keys.end_interval(&mut self.texts, &self.no_value, report);
        Ok(())
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let total = self.no_value.total();
        if total > 0 {
            report.note(format!("no value for {total} expressions: {}", self.no_value));
        }
        self.interval(now, report)
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.sums.keys().filter_map(|row| row.stack));
        self.opened.iter().for_each(|opened| opened.keys.stacks_in_use(used));
    }
}

impl OpenedEvents {
    fn row(&self, AmountKey { key, comm, stack }: AmountKey, amounts: Amounts, texts: &KeyTexts) -> AmountRow {
        let text = |text: KeyText| texts.get(text).map_or(Value::Word(OTHERS), |text| Value::Path(text.clone()));
        let (shown, text_key) = match (self.by, key) {
            (KeyOrigin::Event, EventKey::Number(at)) => {
                let name = self.names.get(at as usize).cloned().unwrap_or(Value::None);
                (name.clone(), name)
            }
            (KeyOrigin::Name, EventKey::Text(name)) => (text(name), text(name)),
            _ => (self.keys.value(key, texts), self.keys.text_value(key, texts)),
        };
        let name = match amounts.name {
            _ if self.by == KeyOrigin::Name => Value::None,
            Some(name) => text(name),
            None if self.by == KeyOrigin::Thread && key != EventKey::OTHERS => Value::Comm(comm),
            None => Value::None,
        };
        AmountRow { key: shown, text_key, name, stack, amounts: amounts.sums, whole: None, of_key: None }
    }
}

const OTHERS: &str = "<others>";

/// The name that an event gives.
fn name(program: &Program, sample: &Sample<'_>, texts: &mut KeyTexts, ctx: &mut Context) -> Result<KeyText, NoResult> {
    Ok(match program.value(sample)? {
        ExprValue::Text(text) => texts.place(text),
        ExprValue::Named(_, tid) | ExprValue::Unsigned(tid) => {
            let comm = i32::try_from(tid).map(|tid| ctx.tasks.comm_if_any(tid)).unwrap_or_default();
            texts.place(comm.as_bytes())
        }
        ExprValue::Signed(_) => KeyText::OTHERS,
    })
}

/// The number that is added, saturated to the range of i64.
fn number(value: ExprValue<'_>) -> i64 {
    match value {
        ExprValue::Signed(number) => number,
        ExprValue::Unsigned(number) => i64::try_from(number).unwrap_or(i64::MAX),
        ExprValue::Text(_) | ExprValue::Named(..) => 0,
    }
}

fn no_value(counts: &mut NoResultCounts, reason: NoResult) -> Use {
    counts.add(reason, 1);
    Use::Relevant
}
