//! Many events of the system `syscalls`, told by the two raw ones.
//!
//! The kernel takes some 35 ms to release each distinct tracepoint, and nobody opens others meanwhile: after a run with
//! all 700 events of `syscalls` the next one would wait for half a minute. The raw events are two, and their records
//! hold the same, with the number of the system call in place of its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::{Chosen, EventSpec};
use crate::event::BoundEvent;
use crate::perf::Sample;
use crate::perf::evsel::EventId;
use crate::profiler::Setup;
use crate::tep::field::{Field, ReadError};
use crate::tep::filter::Filter;
use crate::tep::format::Format;
use crate::tep::syscalls::{self, SyscallEnd};

/// Up to so many events that are wanted in one spec are opened as they are.
const MOST: usize = 16;

/// What a raw event tells.
pub struct Raw {
    pub calls: Vec<(u32, Chosen)>,
    number: Field,
    /// See [`Calls::filter`].
    filter: Option<Filter>,
}

/// Which system calls are shown of a raw event.
#[derive(Debug)]
pub struct Calls {
    number: Field,
    /// By number: what it is shown as.
    shown: Vec<Option<EventId>>,
    /// Passes the numbers that are shown. None: all pass.
    pub filter: Option<Filter>,
}

impl Raw {
    /// What is needed in mid-run; `shown` says under which ids the calls are in the list.
    pub fn into_calls(self, shown: &[(u32, EventId)]) -> Calls {
        let mut by_number = Vec::new();
        for &(number, event) in shown {
            let at = number as usize; // of the table: below 1000
            if at >= by_number.len() {
                by_number.resize(at + 1, None);
            }
            by_number[at] = Some(event);
        }
        Calls { number: self.number, shown: by_number, filter: self.filter }
    }
}

impl Calls {
    /// What a raw event's sample is shown as. None: it is a call that was not chosen, or that has no event: one of a task
    /// in 32-bit mode, whose numbers mean other calls, or of no call at all.
    ///
    /// # Errors
    /// The record has no number.
    #[inline]
    pub fn event_of(&self, sample: &Sample<'_>) -> Result<Option<EventId>, ReadError> {
        let number = usize::try_from(self.number.read_i64(sample.raw)?).ok();
        let shown = number.and_then(|number| *self.shown.get(number)?);
        // arch_trace_is_compat_syscall: the kernel's own events leave them out, too.
        Ok(shown.filter(|_| !sample.is_compat()))
    }
}

/// Takes out of `chosen` what raw events will tell: the calls that are wanted in one spec, if they are many. `of_all`: a filter
/// of all events, beside those of their ways. Returns the raw events, and what they tell.
///
/// # Errors
/// tracefs cannot be read.
pub fn take(
    chosen: &mut Vec<Chosen>,
    ways: &[EventSpec],
    of_all: Option<&str>,
    setup: &Setup<'_>,
) -> Result<Vec<(BoundEvent, Raw)>> {
    let count = |events: &[Chosen]| events.iter().filter(|event| call(event).is_some()).count();
    if count(chosen) <= MOST {
        return Ok(Vec::new());
    }
    let formats = SyscallEnd::BOTH.map(|end| setup.format(end.raw()).ok());
    let mut groups: BTreeMap<(usize, SyscallEnd), Vec<(u32, Chosen)>> = BTreeMap::new();
    let mut filters: BTreeMap<(usize, SyscallEnd), Option<Filter>> = BTreeMap::new();
    for event in std::mem::take(chosen) {
        let place = call(&event).and_then(|(end, number)| {
            let [enter, exit] = &formats;
            let raw = if end == SyscallEnd::Enter { enter } else { exit };
            Some((
                end,
                number,
                filter_of_raw(&event.bound.format, raw.as_ref()?, [ways[event.spec].filter.as_deref(), of_all])?,
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
    let of_way =
        |spec: usize| groups.iter().filter(|(key, _)| key.0 == spec).map(|(_, calls)| calls.len()).sum::<usize>();
    let many: BTreeSet<usize> = groups.keys().map(|key| key.0).filter(|spec| of_way(*spec) > MOST).collect();
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
        let attributes = ways[spec].attrs.clone();
        let event = BoundEvent { evsel, format, filter: of_user, expressions: Vec::new(), attributes };
        raws.push((event, Raw { calls, number, filter }));
    }
    tell(&raws, setup);
    Ok(raws)
}

/// The end and number of a system call that is chosen by name.
fn call(event: &Chosen) -> Option<(SyscallEnd, u32)> {
    let format = &event.bound.format;
    if format.system == syscalls::SYSTEM { syscalls::end_and_number(&format.name) } else { None }
}

/// The event's filter as a filter of the raw event. None: its records, or the filter, are of fields that the raw event
/// has not, or has with another meaning.
fn filter_of_raw(format: &Format, raw: &Format, texts: [Option<&str>; 2]) -> Option<Option<Filter>> {
    /// Fields of some events, and of every event something else.
    const AMBIGUOUS: [&str; 4] = ["cpu", "CPU", "comm", "COMM"];
    if !syscalls::matches_raw_layout(&syscalls::without_user_text(format), raw) {
        return None;
    }
    let filter = Filter::parse_all(texts, &syscalls::shared_fields(format, raw)).ok()?;
    let is_ambiguous = AMBIGUOUS.iter().any(|name| format.field(name).is_some());
    if filter.is_some() && is_ambiguous { None } else { Some(filter) }
}

/// All system calls that have an event at this end.
fn numbers(end: SyscallEnd, setup: &Setup<'_>) -> Result<BTreeSet<u32>> {
    let names = setup.tracefs.get()?.matching(&format!("{}:sys_*", syscalls::SYSTEM))?;
    let calls = names.iter().filter_map(|name| syscalls::end_and_number(name.split_once(':')?.1));
    Ok(calls.filter(|(other, _)| *other == end).map(|(_, number)| number).collect())
}

/// For `-v`: what was done, and what it costs.
fn tell(raws: &[(BoundEvent, Raw)], setup: &Setup<'_>) {
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

    fn chosen(name: &str, fields: &[(&str, usize, usize)]) -> Chosen {
        let format = Arc::new(format("syscalls", name, &[&[("int __syscall_nr", 8, 4)], fields].concat()));
        let evsel = Evsel::new(format.full_name(), Attr::tracepoint(1));
        let bound =
            BoundEvent { evsel, format, filter: None, expressions: Vec::new(), attributes: SelectorAttrs::default() };
        Chosen { bound, spec: 0 }
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
        let cases: [(&Chosen, &Format, Option<&str>, bool); 9] = [
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
