//! `expr`: tries an expression on live events.
//!
//! Events: the one of `-e`, period 1, on the tasks of the run. Cost: one record per event.

use anyhow::{Context as _, Result, bail};
use rustc_hash::FxHashSet;

use crate::cli::{CommonArgs, usage};
use crate::event::{Selector, selector};
use crate::expr::{Expr, ExprValue, Naming, NoResultCounts, Program};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{Context, ExprOutcome, Profiler, ProfilerArgs, Report, Setup, ShownEvent, Timestamp, Use};
use crate::report::Value;
use crate::symbol::StackId;
use crate::tep::syscalls::call_id::CallId;

/// Try an expression on live events
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  What a filter of one field against another would give:
    perf-prof expr -e sched:sched_wakeup 'pid < prio'
  Pages of an allocation, in bytes:
    perf-prof expr -e kmem:mm_page_alloc '4096 << order' -N 10
  Which programs have java in their path:
    perf-prof expr -e sched:sched_process_exec 'filename ~ \"*java*\"'
  System calls that fail, and how:
    perf-prof expr -e 'raw_syscalls:sys_exit/ret < 0/' 'ret==-ENOENT ? -1 : id'

An expression is written as in C, with the fields of the event, _cpu, _pid, _tid
and _time. The same are filters of -e, which then are evaluated here, and
attributes such as ptr= of kmemleak. Without -N it ends after 5 events.")]
pub struct ExprArgs {
    /// The event, sys:name[/FILTER/ATTR/...], or a probe
    #[arg(short = 'e', long = "event", value_name = "EVENT")]
    event: String,
    /// The expression, '4096 << order'
    #[arg(value_name = "EXPRESSION")]
    expression: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Events that are shown, unless `-N` is given.
const EVENTS: u64 = 5;

impl ProfilerArgs for ExprArgs {
    const NAME: &'static str = "expr";
    const WEIGHT: &'static str = "events";
    const TRIAL: &'static [&'static str] = &["-e", "sched:sched_process_exec", "pid"];
    const REPORTS: bool = false;

    fn common(&mut self) -> &mut CommonArgs {
        self.common.view.exit_n.get_or_insert(EVENTS);
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let selectors = selector::parse(&self.event).map_err(|err| usage(format!("-e: {err}")))?;
        let [selector] = <[Selector; 1]>::try_from(selectors).map_err(|several| {
            usage(format!("-e: one event, and not {}: an expression is about one", several.len()))
        })?;
        let expr = Expr::parse(&self.expression).map_err(usage)?;
        let (shows_stacks, draws_stacks) = (self.common.stacks(), self.common.draws_stacks());
        let no_value = NoResultCounts::default();
        Ok(Box::new(ExprTrial { selector, expr, shows_stacks, draws_stacks, tried: None, no_value }))
    }
}

/// The profiler behind [`ExprArgs`].
#[derive(Debug)]
struct ExprTrial {
    selector: Selector,
    expr: Expr,
    /// `-g`
    shows_stacks: bool,
    draws_stacks: bool,
    /// The event, and the expression that is evaluated on its records.
    tried: Option<(ShownEvent, Program)>,
    no_value: NoResultCounts,
}

impl Profiler for ExprTrial {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        setup.find_functions([(&self.selector, true)])?;
        let mut bound = setup.bind(&self.selector, None)?;
        let Some(mut only) = bound.pop().filter(|_| bound.is_empty()) else {
            bail!(
                "{} is {} events, and an expression is about one: name it in full",
                self.selector.head,
                bound.len() + 1
            );
        };
        let program = self.expr.compile(&only.format).map_err(|err| match err.is_unknown_field() {
            true => anyhow::Error::new(err),
            false => usage(err),
        })?;
        let of = if program.reads().is_empty() { "no field".to_owned() } else { program.reads().join(", ") };
        setup.inform(format!("{}: {} of {of}", self.expr.text(), program.ty()));
        if program.ty().needs_abi() {
            only.evsel.add_abi();
        }
        self.tried = Some((ShownEvent::add(only, self.shows_stacks, evlist, setup)?, program));
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.tried.as_mut().map_or(Ok(()), |(shown, _)| shown.narrow(None, evlist, setup))
    }

    fn sample(&mut self, _event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let (shown, program) = self.tried.as_ref().context("no event")?;
        let subject = ctx.subject(sample);
        if !shown.passes(sample, subject.comm) {
            return Ok(Use::Ignored);
        }
        let outcome = match program.value(sample) {
            Ok(value) => outcome(value, sample, ctx),
            Err(reason) => {
                self.no_value.add(reason, 1);
                ExprOutcome::NoValue(reason.reason())
            }
        };
        let stack = ctx.stack(sample);
        if self.draws_stacks {
            ctx.weigh(sample.pid, subject.comm, stack, 1);
        }
        let stack = stack.filter(|_| shown.shows_stack);
        ctx.emit_event(subject, shown.event, sample.raw, Some(Value::cell(outcome)), stack);
        Ok(Use::Relevant)
    }

    fn stacks_in_use(&self, _used: &mut FxHashSet<StackId>) {}

    fn interval(&mut self, _now: Timestamp, report: &mut Report) -> Result<()> {
        report.run_total("no_value", Value::Unsigned(self.no_value.total()));
        Ok(()) // every event was already shown
    }

    fn deinit(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let total = self.no_value.total();
        if total > 0 {
            let events = if total == 1 { "event" } else { "events" };
            report.note(format!("no value for {total} {events}: {}", self.no_value));
        }
        self.interval(now, report)
    }
}

/// The value, with its symbolic name where it has one.
fn outcome(value: ExprValue<'_>, sample: &Sample<'_>, ctx: &mut Context) -> ExprOutcome {
    const UNKNOWN: &str = "unknown";
    match value {
        ExprValue::Signed(value) => ExprOutcome::Signed(value),
        ExprValue::Unsigned(value) => ExprOutcome::Unsigned(value),
        ExprValue::Text(text) => ExprOutcome::Text(text.into()),
        ExprValue::Named(Naming::Kernel, address) => {
            ExprOutcome::Place(address, ctx.kernel_address(address, sample.pid))
        }
        ExprValue::Named(Naming::Syscall, bits) => {
            let call = CallId::of_bits(bits);
            ExprOutcome::Named(call.number, call.name().unwrap_or(UNKNOWN.into()).into())
        }
        ExprValue::Named(Naming::Task, tid) => {
            let comm = i32::try_from(tid).map(|tid| ctx.tasks.comm_if_any(tid)).unwrap_or_default();
            let name = if comm.is_empty() { UNKNOWN.into() } else { String::from_utf8_lossy(comm.as_bytes()) };
            ExprOutcome::Named(tid, name.into())
        }
    }
}
