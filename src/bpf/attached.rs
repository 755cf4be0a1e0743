//! BPF programs that are attached to the tracepoints of a run, by other tools or by perf-prof. A program that returns 0
//! hides the event from every perf event of the machine, rings and counters alike, and no record says so. A program
//! that always returns 1 hides only the events that come while another program runs on the CPU (`trace_call_bpf`,
//! kernel/trace/bpf_trace.c): for these the kernel does not run the program, and counts them as missed.
//!
//! The kernel is queried now and then: a program that was attached and detached between two queries goes unseen.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::BorrowedFd;

use rustc_hash::FxHashSet;

use crate::bpf::exits::returns_one;
use crate::sys;
use crate::sys::bpf::LoadedProgram;

/// Event names per program in a line of text, and in a list of JSON.
const MAX_TEXT_EVENTS: usize = 3;
const MAX_JSON_EVENTS: usize = 16;
/// Lines on stderr about programs after one query.
const MAX_LINES: usize = 8;

/// A program that is attached to some events of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    pub id: u32,
    /// None: its loader gave it no name, or only its id is known.
    pub name: Option<String>,
    /// Every path through the program returns 1.
    pub returns_one: bool,
    /// Upper bound of the events that were hidden because another program ran on the CPU, in the period reported on.
    /// None: this kernel does not count them.
    pub missed: Option<u64>,
    /// The kernel refuses to describe the program to perf-prof.
    is_refused: bool,
    /// The events that it is attached to, in the order of the run.
    pub events: Vec<String>,
}

impl AttachedProgram {
    fn new(id: u32) -> AttachedProgram {
        match sys::bpf::program(id) {
            Ok(program) => AttachedProgram::loaded(id, &program),
            Err(err) => {
                let is_refused = err.kind() == io::ErrorKind::PermissionDenied; // else it has gone meanwhile
                AttachedProgram { id, name: None, returns_one: false, missed: None, is_refused, events: Vec::new() }
            }
        }
    }

    fn loaded(id: u32, program: &LoadedProgram) -> AttachedProgram {
        let name = String::from_utf8_lossy(&program.name).into_owned();
        let returns_one = program.instructions.as_deref().is_some_and(returns_one);
        let name = Some(name).filter(|name| !name.is_empty());
        let missed = program.misses.map(|_| 0);
        AttachedProgram { id, name, returns_one, missed, is_refused: false, events: Vec::new() }
    }

    /// The kernel does not count the events that this program missed.
    fn is_uncounted(&self) -> bool {
        self.returns_one && self.missed.is_none()
    }

    /// The program has hidden no event in the period reported on.
    pub fn hides_nothing(&self) -> bool {
        self.returns_one && self.missed == Some(0)
    }

    fn with_events(&self, events: Vec<String>) -> AttachedProgram {
        AttachedProgram { events, ..self.clone() }
    }

    /// Adds the events and missed events of `other`, an entry for the same program.
    pub fn join(&mut self, other: &AttachedProgram) {
        let new = without(&other.events, &self.events);
        self.events.extend(new);
        self.missed = self.missed.zip(other.missed).map(|(one, other)| one.saturating_add(other));
    }

    /// `BPF prog id 13 NAME`
    pub fn program(&self) -> String {
        let name = self.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
        format!("BPF prog id {}{name}", self.id)
    }

    /// The names of the first events, and how many more there are.
    fn named(&self) -> String {
        let named = self.events.iter().take(MAX_TEXT_EVENTS).map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.events.len().saturating_sub(MAX_TEXT_EVENTS) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    /// The events that JSON lists: only the first ones, since there may be thousands.
    pub fn listed(&self) -> &[String] {
        &self.events[..self.events.len().min(MAX_JSON_EVENTS)]
    }
}

impl std::fmt::Display for AttachedProgram {
    /// What the program means for the events.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.returns_one && self.missed.is_some() {
            return write!(f, "{}: {} looks on and hides nothing by itself", self.named(), self.program());
        }
        if self.returns_one {
            let of = (self.named(), self.program());
            return write!(
                f,
                "{}: {} looks on: events that come while another BPF program runs may be hidden",
                of.0, of.1
            );
        }
        write!(f, "{}: filtered by {}: events may be hidden from us", self.named(), self.program())?;
        if self.is_refused {
            f.write_str(" (what it is called and does is told to CAP_SYS_ADMIN only)")?;
        }
        Ok(())
    }
}

/// The programs on the events of a run, as read with `PERF_EVENT_IOC_QUERY_BPF`.
#[derive(Debug, Default)]
pub struct ProgramQuery {
    /// Each event that has programs, with their ids.
    found: Vec<(String, Vec<u32>)>,
    /// Ids of perf-prof's own programs.
    own: Vec<u32>,
    /// The kernel refused the query.
    pub is_refused: bool,
}

/// Asks which programs each of these tracepoints has.
pub fn query<'a>(tracepoints: impl IntoIterator<Item = (&'a str, BorrowedFd<'a>)>) -> ProgramQuery {
    let mut query = ProgramQuery::default();
    for (event, fd) in tracepoints {
        match sys::perf::attached_programs(fd) {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => query.found.push((event.to_owned(), ids)),
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
                query.is_refused = true; // as it would refuse all further queries
                break;
            }
            Err(_) => {} // this event, or this kernel, takes no programs
        }
    }
    query
}

impl ProgramQuery {
    /// Sets the ids of perf-prof's own programs, which get no line.
    #[must_use]
    pub fn with_own(mut self, ids: impl Iterator<Item = u32>) -> ProgramQuery {
        self.own = ids.collect();
        self
    }

    /// The attached programs, by id.
    pub fn attached(self) -> Vec<AttachedProgram> {
        self.events().into_iter().map(|(id, events)| AttachedProgram::new(id).with_events(events)).collect()
    }

    fn events(&self) -> BTreeMap<u32, Vec<String>> {
        let mut events: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (event, ids) in &self.found {
            for &id in ids {
                let of = events.entry(id).or_default();
                // The kernel lets one program be attached to an event several times.
                if of.last() != Some(event) {
                    of.push(event.clone());
                }
            }
        }
        events
    }
}

/// Programs that were attached and detached since the query before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProgramChanges {
    pub attached: Vec<AttachedProgram>,
    pub detached: Vec<AttachedProgram>,
    own: Vec<u32>,
}

impl ProgramChanges {
    /// A line for each program that may hide events; with `all` also for programs that hide none.
    pub fn lines(&self, all: bool) -> Vec<String> {
        let is_foreign = |attached: &&AttachedProgram| !self.own.contains(&attached.id);
        let told = |attached: &&AttachedProgram| is_foreign(attached) && (all || !attached.hides_nothing());
        let came = self.attached.iter().filter(told).map(AttachedProgram::to_string);
        let went = self.detached.iter().filter(told).map(|gone| match gone.returns_one {
            true => format!("{}: {} is gone", gone.named(), gone.program()),
            false => format!("{}: no longer filtered by {}", gone.named(), gone.program()),
        });
        let mut lines: Vec<String> = came.chain(went).collect();
        let more = lines.len().saturating_sub(MAX_LINES);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("and {more} more lines of the kind: `bpftool prog` lists all programs"));
        }
        lines
    }
}

/// The programs on the events of a run, as of the last query.
#[derive(Debug, Default)]
pub struct ProgramWatch {
    now: BTreeMap<u32, AttachedProgram>,
    /// By program id: the number of events missed since the program was loaded, as of the last query.
    misses: BTreeMap<u32, u64>,
    /// Programs that may hide events: those of this interval, and those of the whole run.
    in_interval: BTreeMap<u32, AttachedProgram>,
    in_run: BTreeMap<u32, AttachedProgram>,
    /// Names of the events of which a program may have hidden some, as of the last query or the query before.
    hidden: FxHashSet<String>,
    /// Some program hides, or has hidden, events that the kernel does not count: few, if any.
    is_uncounted: bool,
}

impl ProgramWatch {
    /// Takes the result of a query over.
    pub fn update(&mut self, query: ProgramQuery) -> ProgramChanges {
        self.update_with(query, AttachedProgram::new, |id| sys::bpf::misses(id).ok().flatten())
    }

    fn update_with(
        &mut self,
        query: ProgramQuery,
        describe: impl Fn(u32) -> AttachedProgram,
        misses: impl Fn(u32) -> Option<u64>,
    ) -> ProgramChanges {
        let mut changes = ProgramChanges { own: query.own.clone(), ..ProgramChanges::default() };
        let mut before = std::mem::take(&mut self.now);
        let may_hide = |attached: &AttachedProgram| !attached.hides_nothing() && !attached.is_uncounted();
        let before_hid: Vec<AttachedProgram> = before.values().filter(|attached| may_hide(attached)).cloned().collect();
        for (id, events) in query.events() {
            let known = before.remove(&id);
            let mut attached = known.as_ref().map_or_else(|| describe(id), AttachedProgram::clone).with_events(events);
            attached.missed = self.missed(id, &attached, &misses);
            let old = known.map_or_else(Vec::new, |known| known.events);
            let (new, gone) = (without(&attached.events, &old), without(&old, &attached.events));
            changes.attached.extend((!new.is_empty()).then(|| attached.with_events(new)));
            changes.detached.extend((!gone.is_empty()).then(|| attached.with_events(gone)));
            self.now.insert(id, attached);
        }
        changes.detached.extend(before.into_values());
        let hides = self.now.values().filter(|attached| !attached.hides_nothing());
        for attached in hides {
            for seen in [&mut self.in_interval, &mut self.in_run] {
                match seen.entry(attached.id) {
                    Entry::Vacant(new) => drop(new.insert(attached.clone())),
                    Entry::Occupied(mut known) => known.get_mut().join(attached),
                }
            }
        }
        let hid = before_hid.iter().chain(self.now.values().filter(|attached| may_hide(attached)));
        let events: FxHashSet<&String> = hid.flat_map(|attached| &attached.events).collect();
        self.hidden = events.into_iter().cloned().collect();
        self.is_uncounted |= self.now.values().any(AttachedProgram::is_uncounted);
        changes
    }

    /// The number of events that a program has missed since the last query. Events missed before the first query do not
    /// count.
    fn missed(&mut self, id: u32, attached: &AttachedProgram, misses: impl Fn(u32) -> Option<u64>) -> Option<u64> {
        if !attached.returns_one {
            return attached.missed; // it may hide any event
        }
        let now = misses(id)?;
        let before = self.misses.insert(id, now).unwrap_or(now);
        Some(now.saturating_sub(before))
    }

    /// True when events may have been hidden since the query before the last one.
    pub fn may_hide(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether a program may have hidden events of this name.
    pub fn may_hide_of(&self, event: &str) -> bool {
        self.hidden.contains(event)
    }

    /// True once some program may have hidden events that the kernel does not count.
    pub fn is_uncounted(&self) -> bool {
        self.is_uncounted
    }

    /// Takes the programs that may have hidden events in the interval that ends.
    pub fn take_interval_programs(&mut self) -> Vec<AttachedProgram> {
        let next = self.now.iter().filter(|(_, attached)| !attached.returns_one || attached.is_uncounted());
        let next = next.map(|(id, attached)| (*id, attached.clone())).collect();
        std::mem::replace(&mut self.in_interval, next).into_values().collect()
    }

    /// The programs that may have hidden events in the whole run.
    pub fn run_programs(&self) -> Vec<AttachedProgram> {
        self.in_run.values().cloned().collect()
    }
}

fn without(these: &[String], those: &[String]) -> Vec<String> {
    if these == those {
        return Vec::new(); // as nearly always, and there may be thousands
    }
    let those: FxHashSet<&str> = those.iter().map(String::as_str).collect();
    these.iter().filter(|event| !those.contains(event.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(events: &[(&str, &[u32])]) -> ProgramQuery {
        let found = events.iter().map(|(event, ids)| ((*event).to_owned(), ids.to_vec())).collect();
        ProgramQuery { found, ..ProgramQuery::default() }
    }

    /// Program 1 always returns 1; the kernel refuses to describe program 2; program 3 has no name.
    fn describe(id: u32) -> AttachedProgram {
        let name = (id == 1).then(|| "one".to_owned()).or((id > 3).then(|| format!("p{id}")));
        AttachedProgram { id, name, returns_one: id == 1, missed: Some(0), is_refused: id == 2, events: Vec::new() }
    }

    #[test]
    fn each_change_is_reported_once() {
        let mut watch = ProgramWatch::default();
        let mut lines =
            |events: &[(&str, &[u32])], all| watch.update_with(found(events), describe, |_| Some(0)).lines(all);
        let nothing: [&str; 0] = [];
        assert_eq!(lines(&[], false), nothing);
        let told = ["a:b, a:c: filtered by BPF prog id 13 p13: events may be hidden from us"];
        assert_eq!(lines(&[("a:b", &[13, 13]), ("a:c", &[13])], false), told);
        assert_eq!(lines(&[("a:b", &[13]), ("a:c", &[13])], false), nothing);
        let told = ["a:d: filtered by BPF prog id 13 p13: events may be hidden from us"];
        assert_eq!(lines(&[("a:b", &[13]), ("a:c", &[13]), ("a:d", &[13])], false), told);
        assert_eq!(lines(&[("a:d", &[13])], false), ["a:b, a:c: no longer filtered by BPF prog id 13 p13"]);
        assert_eq!(lines(&[], false), ["a:d: no longer filtered by BPF prog id 13 p13"]);
        assert_eq!(lines(&[("a:b", &[1])], false), nothing);
        assert_eq!(lines(&[], true), ["a:b: BPF prog id 1 one is gone"]);
        assert_eq!(lines(&[("a:b", &[1])], true), ["a:b: BPF prog id 1 one looks on and hides nothing by itself"]);
        let refused = lines(&[("a:b", &[1, 2, 3])], false);
        assert!(refused[0].starts_with("a:b: filtered by BPF prog id 2: ") && refused[0].contains("CAP_SYS_ADMIN"));
        assert_eq!(refused[1], "a:b: filtered by BPF prog id 3: events may be hidden from us");
    }

    #[test]
    fn many_programs_take_few_lines() {
        let ids: Vec<u32> = (100..150).collect();
        let events: Vec<String> = (0..2000).map(|number| format!("a:e{number}")).collect();
        let all: Vec<(&str, &[u32])> = events.iter().map(|event| (event.as_str(), &ids[..])).collect();
        let mut watch = ProgramWatch::default();
        let lines = watch.update_with(found(&all), describe, |_| Some(0)).lines(false);
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert!(
            lines[0].starts_with("a:e0, a:e1, a:e2 and 1997 more: filtered by BPF prog id 100 p100: "),
            "{lines:?}"
        );
        assert!(lines[MAX_LINES].starts_with("and 42 more "), "{lines:?}");
        assert!(watch.run_programs().iter().all(|attached| attached.listed().len() == MAX_JSON_EVENTS));
    }

    #[test]
    fn the_time_before_a_query_is_in_doubt_if_either_end_is() {
        let mut watch = ProgramWatch::default();
        let mut doubt = |events: &[(&str, &[u32])]| {
            watch.update_with(found(events), describe, |_| Some(0));
            watch.may_hide()
        };
        assert!(!doubt(&[]));
        assert!(!doubt(&[("a:b", &[1])]));
        assert!(doubt(&[("a:b", &[1, 13])]));
        assert!(doubt(&[("a:b", &[13])]));
        assert!(doubt(&[]));
        assert!(!doubt(&[]));
        watch.update_with(found(&[("a:b", &[13]), ("a:c", &[1])]), describe, |_| Some(0));
        assert!(watch.may_hide_of("a:b") && !watch.may_hide_of("a:c"), "the others are certain");
    }

    #[test]
    fn an_interval_has_the_programs_of_any_part_of_it() {
        let mut watch = ProgramWatch::default();
        let ids =
            |attached: Vec<AttachedProgram>| attached.into_iter().map(|attached| attached.id).collect::<Vec<u32>>();
        watch.update_with(found(&[("a:b", &[13])]), describe, |_| Some(0));
        watch.update_with(found(&[("a:b", &[14, 1])]), describe, |_| Some(0));
        assert_eq!(ids(watch.take_interval_programs()), [13, 14]);
        watch.update_with(found(&[]), describe, |_| Some(0));
        assert_eq!(ids(watch.take_interval_programs()), [14]); // it was there when the interval began
        watch.update_with(found(&[]), describe, |_| Some(0));
        assert!(watch.take_interval_programs().is_empty());
        assert_eq!(ids(watch.run_programs()), [13, 14]);
    }
}
