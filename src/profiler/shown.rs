//! Events whose records are shown as they happen: which records pass, and how kernel filters limit them.

use std::sync::Arc;

use anyhow::{Result, bail};

use crate::event::{BoundEvent, SelectorAttrs};
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::task::Comm;
use crate::tep::context::ContextFlags;
use crate::tep::filter::Filter;
use crate::tep::format::Format;

/// Events that are about two tasks. If such an event is bound to a task, it shows only records in which that task is
/// current.
const TWO_TASKS: [&str; 4] =
    ["sched:sched_switch", "sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_waking"];

/// An event in the list whose records are shown.
#[derive(Debug)]
pub struct ShownEvent {
    pub event: EventId,
    pub format: Arc<Format>,
    /// The event's callchain is shown.
    pub shows_stack: bool,
    /// The filter as typed, without the condition that leaves out perf-prof's own threads.
    filter: Option<Filter>,
    /// The filter that perf-prof evaluates because the kernel does not take it.
    filter_in_user: Option<Filter>,
}

impl ShownEvent {
    /// Adds an event to the list. `shows_stacks`: the stacks of all events are shown.
    ///
    /// # Errors
    /// The run has more events than an [`EventId`] can number.
    pub fn add(bound: BoundEvent, shows_stacks: bool, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<ShownEvent> {
        let name = bound.evsel.name();
        if TWO_TASKS.contains(&name) && !setup.watched.is_all() {
            setup.warn(format!(
                "{name} is shown where a watched task is the current one: for its other half use task-state, \
                 or a filter on a pid field without -p"
            ));
        }
        ShownEvent::add_as(bound, shows_stacks, setup.stacks, false, evlist)
    }

    /// As [`ShownEvent::add`], for an event whose records are paired with those of others.
    ///
    /// # Errors
    /// The run has more events than an [`EventId`] can number.
    pub fn add_related(bound: BoundEvent, shows_stacks: bool, evlist: &mut Evlist) -> Result<ShownEvent> {
        ShownEvent::add_as(bound, shows_stacks, shows_stacks, true, evlist)
    }

    /// `takes_stacks`: stacks are taken, even if they are not shown. `is_paired`: the event's records must come in
    /// order with those of other events.
    fn add_as(
        bound: BoundEvent,
        shows_stacks: bool,
        takes_stacks: bool,
        is_paired: bool,
        evlist: &mut Evlist,
    ) -> Result<ShownEvent> {
        let (format, filter) = (bound.format.clone(), bound.filter.clone());
        let SelectorAttrs { stack, alias, .. } = bound.attributes.clone();
        let evsel = bound.into_evsel(takes_stacks || stack).printed(alias);
        let evsel = if is_paired { evsel } else { evsel.unpaired(filter.is_some()) };
        let event = evlist.add(evsel)?;
        Ok(ShownEvent { event, format, shows_stack: shows_stacks || stack, filter, filter_in_user: None })
    }

    /// Makes the kernel drop records that are not shown. `more`: a further filter, which the caller evaluates, too.
    ///
    /// # Errors
    /// A filter that neither the kernel nor perf-prof can evaluate.
    pub fn narrow(&mut self, more: Option<Filter>, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let ours = if has_second_party(&self.format) { None } else { setup.not_ourselves(&self.format) };
        let ours = ours.map(|ours| or_in_interrupts(ours, &self.format));
        let is_cut = self.filter.as_ref().is_some_and(Filter::tests_limited_text);
        // perf-prof evaluates a filter that is too long for the kernel.
        let without_more = Filter::all_of([self.filter.clone(), ours.clone()]);
        let all = Filter::all_of([without_more.clone(), more]);
        if !is_cut && evlist.narrow(self.event, [all, without_more]) {
            return Ok(());
        }
        if self.filter.is_some() {
            let name = self.format.full_name();
            if is_cut && self.filter.as_ref().is_some_and(Filter::needs_kernel) {
                bail!("{name}: a filter is either for text with a length or for what only the kernel knows");
            }
            let why = if is_cut { "of text with a length" } else { "too long for the kernel" };
            setup.note(format!("{name}: the filter is {why}, it is evaluated here"));
        }
        self.filter_in_user = self.filter.take();
        evlist.narrow(self.event, [ours]);
        Ok(())
    }

    /// Whether all samples pass: perf-prof evaluates no filter.
    #[inline]
    pub fn passes_all(&self) -> bool {
        self.filter_in_user.is_none()
    }

    /// Whether a sample passes the filter that the kernel does not take. `comm`: name of the current task.
    #[inline]
    pub fn passes(&self, sample: &Sample<'_>, comm: Comm) -> bool {
        let Some(filter) = &self.filter_in_user else { return true };
        filter.matches(sample.raw, comm.as_bytes(), sample.cpu) != Some(false)
    }
}

/// True if an event may be about a task other than the current one: then it must be seen even if perf-prof causes it.
fn has_second_party(format: &Format) -> bool {
    // The fields of a probe are named by its user.
    !format.is_probe_event()
        && format.user_fields().any(|field| {
            field.name == "pid" || field.name.ends_with("_pid") || field.name == "tid" || field.name == "comm"
        })
}

/// `ours` leaves out perf-prof's own threads. Events in an interrupt of such a thread, such as the end of a disk
/// request, are not caused by it, and pass.
fn or_in_interrupts(ours: Filter, format: &Format) -> Filter {
    let is_call = matches!(&*format.system, "syscalls" | "raw_syscalls");
    let in_interrupts = Filter::parse(&ContextFlags::filter(true), format).ok().filter(|_| !is_call);
    match in_interrupts {
        Some(in_interrupts) => ours.or(in_interrupts),
        None => ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_hits_us_is_not_ours() {
        let fields = "field:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                      \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                      \tfield:int nr;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        let text = format!("name: y\nID: 1\nformat:\n\t{fields}");
        for (system, passes) in [("block", [true, false, true, true]), ("syscalls", [true, false, false, false])] {
            let format = Format::parse(system, &text).unwrap();
            let ours = Filter::parse("common_pid != 7 && common_pid != 9", &format).unwrap();
            let filter = or_in_interrupts(ours, &format);
            for ((pid, flags), passes) in [(8, 0), (7, 0x81), (9, 0x08), (7, 0x11)].into_iter().zip(passes) {
                let raw = [0, 0, flags, 0, pid, 0, 0, 0, 0, 0, 0, 0];
                assert_eq!(filter.matches(&raw, b"", 0), Some(passes), "{system}, {pid}, {flags:#x}");
            }
        }
    }

    #[test]
    fn knows_events_about_others() {
        let parse = |field: &str| {
            Format::parse(
                "x",
                &format!(
                    "name: y\nID: 1\nformat:\n\tfield:int {field};\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n"
                ),
            )
            .unwrap()
        };
        for (field, want) in [("pid", true), ("next_pid", true), ("nr", false)] {
            assert_eq!(has_second_party(&parse(field)), want, "{field}");
        }
    }
}
