//! The two raw events in place of many events of the system `syscalls`.
//!
//! The kernel takes some 35 ms to release each distinct tracepoint, and no other tracepoint can be opened meanwhile:
//! after a run with all 700 events of `syscalls` the next run would wait for half a minute. There are only two raw
//! events, whose records have the same data, with the number of the system call in place of its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::{EventSpec, SelectedTracepoint};
use crate::event::{BoundEvent, EventFilters};
use crate::json::Object;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::report::Cell;
use crate::tep::filter::Filter;
use crate::tep::format::Format;
use crate::tep::format::field::{Field, ReadError};
use crate::tep::syscalls::call_id::CallId;
use crate::tep::syscalls::{self, SyscallEnd};

/// Limit of events with the same spec that are opened themselves.
const LIMIT: usize = 16;

/// The system call of a raw event, behind its line: the kernel's text has the number alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedCall(CallId);

impl NamedCall {
    /// The field of a raw event that has the number. None: it is another event.
    pub fn number_field(format: &Format) -> Option<Field> {
        let name = format.full_name();
        let is_raw = SyscallEnd::BOTH.iter().any(|end| end.raw() == name);
        syscalls::number_field(format).filter(|_| is_raw).cloned()
    }

    /// The call of a sample with the number in this field. None: it has no name.
    pub fn of(number: &Field, sample: &Sample<'_>) -> Option<NamedCall> {
        let number = u64::try_from(number.read_i64(sample.raw).ok()?).ok()?;
        let call = CallId { number, is_compat: sample.is_compat() };
        call.name().map(|_| NamedCall(call))
    }
}

impl Cell for NamedCall {
    fn text(&self, out: &mut Vec<u8>) {
        let name = self.0.name().unwrap_or_default();
        out.extend_from_slice(name.as_bytes());
    }

    fn event_keys(&self, object: &mut Object<'_>) {
        object.text("call", &self.0.name().unwrap_or_default());
    }

    fn behind_event(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" (");
        self.text(out);
        out.push(b')');
    }
}

/// A raw event, and the system calls that it stands for.
pub struct RawEvent {
    pub calls: Vec<(u32, SelectedTracepoint)>,
    number: Field,
    /// See [`ShownCalls::filter`].
    filter: Option<Filter>,
}

/// The system calls that are shown from a raw event.
#[derive(Debug)]
pub struct ShownCalls {
    number: Field,
    /// By the number of a system call: the event that it is shown as.
    shown: Vec<Option<EventId>>,
    /// A filter that passes the calls that are shown. None: all pass.
    pub filter: Option<Filter>,
}

impl RawEvent {
    /// The part that is needed during the run. `shown`: the ids of the calls in the list of events.
    pub fn into_calls(self, shown: &[(u32, EventId)]) -> ShownCalls {
        let mut by_number = Vec::new();
        for &(number, event) in shown {
            let at = number as usize; // below 1000, from the table of system calls
            if at >= by_number.len() {
                by_number.resize(at + 1, None);
            }
            by_number[at] = Some(event);
        }
        ShownCalls { number: self.number, shown: by_number, filter: self.filter }
    }
}

impl ShownCalls {
    /// The event that a sample of a raw event is shown as. None: the call was not selected, or it has no event: a call
    /// in 32-bit mode, whose numbers mean other calls, or an unknown number.
    ///
    /// # Errors
    /// The record has no number.
    #[inline]
    pub fn event_of(&self, sample: &Sample<'_>) -> Result<Option<EventId>, ReadError> {
        let shown = self.number_of(sample)?.and_then(|number| *self.shown.get(number)?);
        // The kernel's own events leave 32-bit calls out, too: arch_trace_is_compat_syscall.
        Ok(shown.filter(|_| !sample.is_compat()))
    }

    /// The number of the call.
    ///
    /// # Errors
    /// The record has no number.
    #[inline]
    pub fn number_of(&self, sample: &Sample<'_>) -> Result<Option<usize>, ReadError> {
        Ok(usize::try_from(self.number.read_i64(sample.raw)?).ok())
    }

    /// The number of each call that is shown, and its event.
    pub fn iter(&self) -> impl Iterator<Item = (u32, EventId)> + '_ {
        let shown = self.shown.iter().enumerate();
        shown.filter_map(|(number, event)| Some((number as u32, (*event)?)))
    }
}

/// Removes from `chosen` the events that raw events replace: system calls with the same spec, if there are many.
/// `of_all`: a filter of all events, besides those of their specs. Returns the raw events.
///
/// # Errors
/// tracefs cannot be read.
pub fn take(
    chosen: &mut Vec<SelectedTracepoint>,
    specs: &[EventSpec],
    of_all: Option<&str>,
    setup: &Setup<'_>,
) -> Result<Vec<(BoundEvent, RawEvent)>> {
    let count = |events: &[SelectedTracepoint]| events.iter().filter(|event| call(event).is_some()).count();
    if count(chosen) <= LIMIT {
        return Ok(Vec::new());
    }
    let formats = SyscallEnd::BOTH.map(|end| setup.format(end.raw()).ok());
    let mut groups: BTreeMap<(usize, SyscallEnd), Vec<(u32, SelectedTracepoint)>> = BTreeMap::new();
    let mut filters: BTreeMap<(usize, SyscallEnd), Option<Filter>> = BTreeMap::new();
    for event in std::mem::take(chosen) {
        let place = call(&event).and_then(|(end, number)| {
            let [enter, exit] = &formats;
            let raw = if end == SyscallEnd::Enter { enter } else { exit };
            Some((
                end,
                number,
                filter_of_raw(&event.bound.format, raw.as_ref()?, [specs[event.spec].filter.as_deref(), of_all])?,
            ))
        });
        match place {
            Some((end, number, filter)) => {
                filters.entry((event.spec, end)).or_insert(filter);
                groups.entry((event.spec, end)).or_default().push((number, event));
            }
            None => chosen.push(event),
        }
    }
    let of_spec =
        |spec: usize| groups.iter().filter(|(key, _)| key.0 == spec).map(|(_, calls)| calls.len()).sum::<usize>();
    let many: BTreeSet<usize> = groups.keys().map(|key| key.0).filter(|spec| of_spec(*spec) > LIMIT).collect();
    let mut raws = Vec::new();
    for ((spec, end), calls) in groups {
        if !many.contains(&spec) {
            chosen.extend(calls.into_iter().map(|(_, event)| event));
            continue;
        }
        let (evsel, format) = setup.tracepoint(end.raw())?;
        let number = syscalls::number_field(&format).context("no number of a system call")?.clone();
        let wanted: BTreeSet<u32> = calls.iter().map(|(number, _)| *number).collect();
        let filter = syscalls::numbers_filter(&number.name, &wanted, &numbers(end, setup)?);
        let filter = filter.and_then(|text| Filter::parse(&text, &format).ok());
        let evsel = evsel.with_abi();
        let of_user = filters.remove(&(spec, end)).flatten();
        let attributes = specs[spec].attrs.clone();
        let event = BoundEvent { evsel, format, filter: of_user, expressions: Vec::new(), attributes };
        raws.push((event, RawEvent { calls, number, filter }));
    }
    note_raw_events(&raws, setup);
    Ok(raws)
}

/// The side (entry or exit) and number of a system call that was selected by name.
fn call(event: &SelectedTracepoint) -> Option<(SyscallEnd, u32)> {
    let format = &event.bound.format;
    if format.system == syscalls::SYSTEM { syscalls::end_and_number(&format.name) } else { None }
}

/// The filter of an event as a filter of the raw event. None: the event or the filter has fields that the raw event
/// lacks, or has with another meaning, or the kernel cannot evaluate the filter.
fn filter_of_raw(format: &Format, raw: &Format, texts: [Option<&str>; 2]) -> Option<Option<Filter>> {
    /// Names that are fields of some events, and have another meaning in every filter.
    const AMBIGUOUS: [&str; 4] = ["cpu", "CPU", "comm", "COMM"];
    if !syscalls::matches_raw_layout(&syscalls::without_user_text(format), raw) {
        return None;
    }
    let filters = EventFilters::parse(texts, &syscalls::shared_fields(format, raw)).ok()?;
    let filter = if filters.here.is_none() { filters.kernel } else { return None };
    let is_ambiguous = AMBIGUOUS.iter().any(|name| format.field(name).is_some());
    if filter.is_some() && is_ambiguous { None } else { Some(filter) }
}

/// The numbers of all system calls that have an event for this side.
fn numbers(end: SyscallEnd, setup: &Setup<'_>) -> Result<BTreeSet<u32>> {
    let names = setup.tracefs.get()?.matching(&format!("{}:sys_*", syscalls::SYSTEM))?;
    let calls = names.iter().filter_map(|name| syscalls::end_and_number(name.split_once(':')?.1));
    Ok(calls.filter(|(other, _)| *other == end).map(|(_, number)| number).collect())
}

/// For `-v`: which events are replaced, why, and what they lack.
fn note_raw_events(raws: &[(BoundEvent, RawEvent)], setup: &Setup<'_>) {
    if raws.is_empty() {
        return;
    }
    let calls = || raws.iter().flat_map(|(_, raw)| &raw.calls);
    let mut names: Vec<String> = raws.iter().map(|(event, _)| event.format.full_name()).collect();
    names.dedup();
    setup.note(format!(
        "{} events of the system {} are told by {}: the kernel would take some 35 ms to release each of them",
        calls().count(),
        syscalls::SYSTEM,
        names.join(" and "),
    ));
    let with_text = |format: &Arc<Format>| syscalls::without_user_text(format).fields.len() < format.fields.len();
    let cut = calls().filter(|(_, event)| with_text(&event.bound.format)).count();
    if cut > 0 {
        setup.note(format!(
            "{cut} of these lack the text that the kernel copies from user space: the raw events have the addresses only"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SelectorAttrs;
    use crate::perf::Attr;
    use crate::perf::evsel::Evsel;

    const COMMON: &str = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    fn format(system: &str, name: &str, fields: &[(&str, usize, usize)]) -> Format {
        let field = |(declaration, offset, size): &(&str, usize, usize)| {
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:1;\n")
        };
        let fields: String = fields.iter().map(field).collect();
        let text = format!("name: {name}\nID: 1\nformat:\n{COMMON}{fields}\nprint fmt: \"\"\n");
        Format::parse(system, &text).unwrap()
    }

    fn chosen(name: &str, fields: &[(&str, usize, usize)]) -> SelectedTracepoint {
        let format = Arc::new(format("syscalls", name, &[&[("int __syscall_nr", 8, 4)], fields].concat()));
        let evsel = Evsel::new(format.full_name(), Attr::tracepoint(1));
        let bound =
            BoundEvent { evsel, format, filter: None, expressions: Vec::new(), attributes: SelectorAttrs::default() };
        SelectedTracepoint { bound, spec: 0 }
    }

    #[test]
    fn filters_that_mean_the_same() {
        let enter = format("raw_syscalls", "sys_enter", &[("long id", 8, 8), ("unsigned long args[6]", 16, 48)]);
        let exit = format("raw_syscalls", "sys_exit", &[("long id", 8, 8), ("long ret", 16, 8)]);
        let close = chosen("sys_enter_close", &[("unsigned int fd", 16, 8)]);
        let quota = chosen("sys_enter_quotactl", &[("int id", 16, 8)]);
        let open = chosen("sys_enter_perf_event_open", &[("int cpu", 16, 8)]);
        let closed = chosen("sys_exit_close", &[("long ret", 16, 8)]);
        let odd = chosen("sys_enter_odd", &[("int fd", 16, 4)]);
        let cases: [(&SelectedTracepoint, &Format, Option<&str>, bool); 9] = [
            (&close, &enter, None, true),
            (&close, &enter, Some("common_pid == 7"), true),
            (&close, &enter, Some("CPU == 0 && comm ~ \"a*\""), true),
            (&close, &enter, Some("fd == 3"), false),
            (&close, &enter, Some("common_pid == 7 && fd == 3"), false),
            (&quota, &enter, Some("id == 3"), false),
            (&open, &enter, Some("cpu == 3"), false),
            (&closed, &exit, Some("ret < 0"), true),
            (&odd, &enter, None, false),
        ];
        for (event, raw, filter, want) in cases {
            let event = &event.bound.format;
            let got = filter_of_raw(event, raw, [filter, None]);
            assert_eq!(got.is_some(), want, "{} {filter:?}", event.name);
            assert_eq!(got.flatten().map(|filter| filter.text().to_owned()).as_deref(), filter.filter(|_| want));
        }
        let of_closed = |text| Some(filter_of_raw(&closed.bound.format, &exit, [Some(text), None])??.text().to_owned());
        assert_eq!(of_closed("ret == -ENOENT").as_deref(), Some("ret == -2"));
        assert_eq!(of_closed("ret == common_pid"), None, "the kernel cannot compare fields");
    }

    #[test]
    fn calls_by_number() {
        assert_eq!(call(&chosen("sys_exit_openat", &[])), Some((SyscallEnd::Exit, libc::SYS_openat as u32)));
        assert_eq!(call(&chosen("sys_exit_nosuch", &[])), None);
        let mut other = chosen("sys_enter_openat", &[]);
        other.bound.format = Arc::new(format("mine", "sys_enter_openat", &[]));
        assert_eq!(call(&other), None);
    }
}
