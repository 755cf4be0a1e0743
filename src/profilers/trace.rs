//! `trace`: selected events, one line each, as they happen.
//!
//! Events: those of `-e`, period 1, on the tasks of the answer. Cost: one record per event. If many system calls are
//! selected by name, the two raw events replace them: see `system_calls`.

mod system_calls;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, usage};
use crate::event::{BoundEvent, Selector, SelectorAttrs, selector};
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::call_strings::CallStrings;
use crate::profiler::{
    Context, Event, ExecutedPrograms, Profiler, ProfilerArgs, Report, Setup, ShownEvent, Timestamp, Use,
};
use crate::profilers::trace::system_calls::{NamedCall, RawEvent, ShownCalls};
use crate::report::{ArgumentTextWriter, Value};
use crate::symbol::StackId;
use crate::tep::context::ContextFlags;
use crate::tep::format::Format;
use crate::tep::format::field::Field;
use crate::tep::syscalls::{self, SyscallEnd};

/// Show events as they happen, with their fields
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Who starts what, and who has started that:
    perf-prof trace -e sched:sched_process_exec --ancestors
  Who sends SIGKILL, with the stack:
    perf-prof trace -e 'signal:signal_generate/sig==9/' -g
  Several events of one process, a stack for one of them only:
    perf-prof trace -e 'block:*,sched:sched_wakeup//stack/' -p nginx
  From where the kernel allocates pages, as a picture:
    perf-prof trace -e kmem:mm_page_alloc --flame-graph pages.svg --for 5
  The first ten D waits of a command:
    perf-prof trace -e 'sched:sched_switch/prev_state==2/' -N 10 -- ./job
  Large allocations of a process, and a kernel function with its arguments:
    perf-prof trace -e 'uprobe:malloc/n>65536/args=n=$arg1:u64/' -p nginx
    perf-prof trace -e 'kprobe:do_sys_openat2//args=path=$arg2:ustring/'

An event is sys:name[/FILTER/ATTR/...], name may be a pattern, commas separate
several; `perf-prof list` shows what there is. The name alone will do where it
is that of one event, or of a system call: openat is syscalls:sys_enter_openat.
Attributes: stack, max-stack=N, alias=NAME, cpus=LIST.
A probe is kprobe:FUNC, kretprobe:FUNC, uprobe:FUNC@\"FILE\" or
uretprobe:FUNC@\"FILE\"; the attribute args says what it records.")]
pub struct TraceArgs {
    /// Events, sys:name[/FILTER/ATTR/...], or probes
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", required = true)]
    events: Vec<String>,
    /// A condition for all of them, 'pid==1'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Also which process it is, and who started that
    #[arg(long)]
    ancestors: bool,
    /// Only the addresses of paths and other strings of system calls: nothing is copied
    #[arg(long)]
    no_paths: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// The user's options for an event besides its name.
#[derive(Debug, PartialEq)]
struct EventSpec {
    /// The filter as typed.
    filter: Option<String>,
    attrs: SelectorAttrs,
}

/// An event that was selected, not yet in the list.
struct SelectedTracepoint {
    bound: BoundEvent,
    /// Index in [`Trace::specs`].
    spec: usize,
}

/// The selected events, each once per spec.
#[derive(Default)]
struct Selection {
    events: Vec<SelectedTracepoint>,
    /// Indexes in `events`, by event id and spec.
    places: FxHashMap<(u32, usize), usize>,
}

/// An event in the list.
#[derive(Debug)]
struct Traced {
    shown: ShownEvent,
    /// The system calls that a raw event stands for.
    calls: Option<ShownCalls>,
    /// Of a raw event that is shown as it is, the field with the number of the call.
    call_number: Option<Field>,
    /// The strings of a system call.
    strings: Option<CallStrings>,
    context: ContextFlags,
}

/// The profiler behind [`TraceArgs`].
#[derive(Debug)]
pub struct Trace {
    selectors: Vec<Selector>,
    filter: Option<String>,
    specs: Vec<EventSpec>,
    /// `-g`
    shows_stacks: bool,
    draws_stacks: bool,
    /// `--ancestors`
    shows_lineage: bool,
    /// Only a flame graph is wanted, and no event is printed.
    only_draws: bool,
    /// `--no-paths`
    leaves_strings: bool,
    traced: Vec<Traced>,
    /// With `--ancestors`.
    executed: ExecutedPrograms,
    /// Events whose samples are strings, with the indexes of their calls in `traced`.
    copies: Vec<(EventId, usize)>,
    /// A record with its strings.
    record: Vec<u8>,
}

impl ProfilerArgs for TraceArgs {
    const NAME: &'static str = "trace";
    const WEIGHT: &'static str = "events";
    const TRIAL: &'static [&'static str] = &["-e", "sched:sched_process_exec"];
    const REPORTS: bool = false;
    const NARROWINGS: &'static [&'static str] = &["-p PID", "-C CPUS", "--filter FILTER"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        let mut selectors = Vec::new();
        for text in &self.events {
            selectors.extend(selector::parse(text).map_err(|err| usage(format!("-e: {err}")))?);
        }
        Ok(Box::new(Trace {
            selectors,
            filter: self.filter,
            specs: Vec::new(),
            shows_stacks: self.common.stacks(),
            draws_stacks: false,
            shows_lineage: self.ancestors,
            leaves_strings: self.no_paths,
            only_draws: self.common.only_draws() && !self.ancestors,
            traced: Vec::new(),
            executed: ExecutedPrograms::default(),
            copies: Vec::new(),
            record: Vec::new(),
        }))
    }
}

impl Trace {
    /// Adds the events that a selector stands for, except those that are selected already with the same spec.
    fn choose(&mut self, selector: &Selector, selection: &mut Selection, setup: &Setup<'_>) -> Result<()> {
        let spec = EventSpec { filter: selector.filter.clone(), attrs: selector.attrs.clone() };
        let spec = self.specs.iter().position(|other| *other == spec).unwrap_or_else(|| {
            self.specs.push(spec);
            self.specs.len() - 1
        });
        for bound in setup.bind(selector, self.filter.as_deref())? {
            let place = (bound.format.id, spec);
            match selection.places.get(&place) {
                // An event that is named in full is not optional, unlike one of a pattern.
                Some(&at) if !selector.has_wildcard() => selection.events[at].bound = bound,
                Some(_) => {}
                None => {
                    selection.places.insert(place, selection.events.len());
                    selection.events.push(SelectedTracepoint { bound, spec });
                }
            }
        }
        Ok(())
    }

    /// Adds an event to the list.
    fn add(&mut self, mut bound: BoundEvent, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let context = ContextFlags::of(&bound.format);
        let call_number = NamedCall::number_field(&bound.format);
        if call_number.is_some() {
            bound.evsel.add_abi(); // numbers of 32-bit mode are those of other calls
        }
        let shown = ShownEvent::add(bound, self.shows_stacks, evlist, setup)?;
        self.traced.push(Traced { shown, calls: None, call_number, strings: None, context });
        Ok(())
    }

    /// Adds raw events to the list, and after them the events as which their records are shown, which are not opened.
    fn add_raw(&mut self, raws: Vec<(BoundEvent, RawEvent)>, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let first = self.traced.len();
        let mut told = Vec::new();
        for (event, raw) in raws {
            self.add(event, evlist, setup)?;
            told.push(raw);
        }
        for (traced, mut raw) in self.traced[first..].iter_mut().zip(told) {
            let mut shown = Vec::new();
            for (number, call) in raw.calls.drain(..) {
                let BoundEvent { evsel, attributes, .. } = call.bound;
                shown.push((number, evlist.add(evsel.unopened().printed(attributes.alias))?));
            }
            traced.calls = Some(raw.into_calls(&shown));
            traced.call_number = None;
        }
        Ok(())
    }

    /// Asks for the strings of system calls, after all events that are shown are in the list.
    fn ask_for_strings(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) {
        for (at, traced) in self.traced.iter_mut().enumerate() {
            let ShownEvent { event, format, shows_stack, .. } = &traced.shown;
            if self.only_draws && !shows_stack {
                continue;
            }
            let shown: Vec<(u32, EventId)> = traced.calls.iter().flat_map(ShownCalls::iter).collect();
            traced.strings = match traced.calls {
                Some(_) if format.full_name() == SyscallEnd::Enter.raw() => {
                    let call =
                        |(number, event): &(u32, EventId)| Some((*number, setup.format_of(evlist.evsel(*event)).ok()?));
                    let formats: Vec<(u32, Arc<Format>)> = shown.iter().filter_map(call).collect();
                    let calls = formats.iter().map(|(number, format)| (*number, &**format));
                    CallStrings::ask_by_number(*event, format, calls, evlist, setup)
                }
                None if format.system == syscalls::SYSTEM => CallStrings::ask(*event, format, evlist, setup),
                _ => None,
            };
            for event in shown.into_iter().map(|(_, event)| event).chain([*event]) {
                evlist.show_strings(event, traced.strings.is_some());
            }
            self.copies.extend(traced.strings.as_ref().and_then(CallStrings::copies).map(|copies| (copies, at)));
        }
    }

    /// Takes a string of the next system call.
    fn take_string(&mut self, event: EventId, sample: &Sample<'_>) -> Result<Use> {
        let at = self.copies.iter().find(|(copies, _)| *copies == event).map(|(_, at)| *at);
        let traced = at.and_then(|at| self.traced.get_mut(at)).context("an event of another profiler")?;
        let is_string = traced.strings.as_mut().is_some_and(|strings| strings.take(sample));
        Ok(if is_string { Use::Ignored } else { Use::Malformed })
    }
}

impl Profiler for Trace {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.draws_stacks = setup.flame_graph;
        if self.shows_lineage {
            evlist.watch_all_tasks(); // the ancestors of a watched task may not be watched
        }
        let mut selection = Selection::default();
        setup.find_functions(self.selectors.iter().map(|selector| (selector, true)))?;
        for selector in std::mem::take(&mut self.selectors) {
            self.choose(&selector, &mut selection, setup)?;
        }
        let mut chosen = selection.events;
        let raws = system_calls::take(&mut chosen, &self.specs, self.filter.as_deref(), setup)?;
        for event in chosen {
            self.add(event.bound, evlist, setup)?;
        }
        self.add_raw(raws, evlist, setup)?;
        if !self.leaves_strings {
            self.ask_for_strings(evlist, setup);
        }
        if let Some(first) = self.traced.first().filter(|_| self.shows_lineage) {
            self.executed = ExecutedPrograms::ask(first.shown.event, evlist, setup);
        }
        Ok(())
    }

    fn filter(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        for traced in &mut self.traced {
            let numbers = traced.calls.as_ref().and_then(|calls| calls.filter.clone());
            traced.shown.narrow(numbers, evlist, setup)?;
        }
        Ok(())
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        if self.executed.take(event, sample, ctx) {
            return Ok(Use::Ignored);
        }
        let first = self.traced.first().map_or(0, |traced| traced.shown.event.index());
        let at = event.index().checked_sub(first).context("an event of another profiler")?;
        let Some(traced) = self.traced.get_mut(at) else { return self.take_string(event, sample) };
        let subject = ctx.subject(sample);
        let shown = match &traced.calls {
            Some(calls) => calls.event_of(sample)?,
            None => Some(event),
        };
        let Some(shown) = shown else { return Ok(Use::Ignored) };
        if !traced.shown.passes(sample, subject.comm) {
            return Ok(Use::Ignored);
        }
        let stack = ctx.stack(sample);
        if self.draws_stacks {
            ctx.weigh(sample.pid, subject.comm, stack, 1);
        }
        if self.only_draws && !traced.shown.shows_stack {
            return Ok(Use::Relevant);
        }
        let stack = stack.filter(|_| traced.shown.shows_stack);
        // An interrupted task has nothing to do with the event.
        let lineage = (self.shows_lineage && !traced.context.in_interrupt(sample.raw)).then(|| ctx.lineage(sample.pid));
        let lineage = lineage.filter(|lineage| !lineage.0.is_empty());
        let named = traced.call_number.as_ref().and_then(|number| NamedCall::of(number, sample));
        let beside = lineage.map(Value::cell).or_else(|| named.map(Value::cell));
        let raw = match &mut traced.strings {
            None => sample.raw,
            Some(strings) => {
                let mut record = ArgumentTextWriter::new(&mut self.record, sample.raw);
                let number = traced.calls.as_ref().and_then(|calls| calls.number_of(sample).ok()?);
                strings.of(sample, number).for_each(|(offset, text)| record.push(offset, text));
                record.finish()
            }
        };
        ctx.emit_event(subject, shown, raw, beside, stack);
        Ok(Use::Relevant)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        if let Event::Started { .. } = event
            && self.shows_lineage
        {
            ctx.tasks.follow_ancestry();
        }
        if let Event::Lost(window, _) = event {
            let strings = self.traced.iter_mut().filter_map(|traced| traced.strings.as_mut());
            strings.for_each(|strings| strings.forget(window.cpu));
        }
    }

    fn stacks_in_use(&self, _used: &mut FxHashSet<StackId>) {}

    fn interval(&mut self, _now: Timestamp, _report: &mut Report) -> Result<()> {
        Ok(()) // every event was shown at once
    }
}
