//! The lines about the run itself, on stderr.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::bpf::attached::AttachedProgram;
use crate::escape::escape;
use crate::output::drawing::DrawingSubject;
use crate::output::{RunEnd, ViewEnd};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::SampleTest;
use crate::perf::target::Tasks;
use crate::profiler::TracefsFinder;
use crate::run::Options;
use crate::run::rings::Rings;

/// The note when the reading thread gets priority: see [`sys::precede_others`](crate::sys::precede_others).
pub const PRECEDES: &str = "events were lost: the thread that reads them runs before others from now on (nice -20)";

/// The lines of `-v` before the run.
pub fn describe(evlist: &Evlist, rings: &Rings, tracefs: &TracefsFinder, notes: Vec<String>) -> Vec<String> {
    let mut lines = vec![rings.describe()];
    lines.extend(tracefs.describe());
    lines.extend(evlist.missing().map(|feature| format!("this kernel lacks {feature}")));
    let opened = evlist.iter().filter(|(_, evsel)| evsel.is_opened_itself());
    let filtered = opened.filter_map(|(_, evsel)| Some((evsel.name(), evsel.filter()?)));
    lines.extend(filters(filtered));
    lines.extend(notes);
    lines
}

/// The line at the start for a user at a terminal: what is watched, and how the run ends. None: results appear within
/// seconds anyway.
pub fn watching(options: &Options, cpus: usize) -> Option<String> {
    const SOON: Duration = Duration::from_secs(5);
    let is_soon = options.interval.is_some() || options.duration.is_some_and(|time| time <= SOON) || options.dry_run;
    (!is_soon && io::stderr().is_terminal()).then(|| watching_line(options, cpus))
}

/// The subject of the drawings of a view.
pub fn about(options: &Options, view: usize, evlist: &Evlist) -> DrawingSubject {
    let listed = |numbers: &[i32]| names_of(numbers.iter().map(i32::to_string).collect());
    let subject = match &options.target.tasks {
        Tasks::All => "all tasks".to_owned(),
        Tasks::Threads(tids) => format!("thread {}", listed(tids)),
        Tasks::Processes(pids) => format!("process {}", listed(pids)),
        Tasks::Cgroups(groups) => {
            format!(
                "cgroup {}",
                names_of(groups.iter().map(|group| escape(group.path.as_os_str().as_bytes())).collect())
            )
        }
        Tasks::Workload(_) => {
            names_of(options.workload.first().map(|name| escape(name.as_bytes())).into_iter().collect())
        }
    };
    let opened =
        evlist.iter().filter(|(_, evsel)| evsel.is_wanted() && !evsel.is_of_program() && evsel.owner() == view);
    let mut names: Vec<String> = opened.map(|(_, evsel)| escape(evsel.name().as_bytes())).collect();
    names.dedup(); // some events are opened twice, with and without stacks
    let events = names_of(names);
    let profiler = options.views.get(view).map_or("", |view| view.profiler);
    DrawingSubject { profiler, subject, events }
}

/// The first names, and the number of further ones.
fn names_of(names: Vec<String>) -> String {
    const NAMED: usize = 3;
    match names.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

fn watching_line(options: &Options, cpus: usize) -> String {
    let number = |count: usize, one: &str, several: &str| match count {
        1 => format!("one {one}"),
        count => format!("{count} {several}"),
    };
    let cpus = number(cpus, "CPU", "CPUs");
    let tasks = match &options.target.tasks {
        Tasks::All => "all tasks".to_owned(),
        Tasks::Threads(tids) => number(tids.len(), "thread", "threads"),
        Tasks::Processes(pids) => number(pids.len(), "process", "processes"),
        Tasks::Cgroups(groups) => number(groups.len(), "cgroup", "cgroups"),
        Tasks::Workload(_) => "the command and its children".to_owned(),
    };
    // A paced run watches CPUs, not tasks.
    let what = if options.paced { cpus } else { format!("{tasks} on {cpus}") };
    let end = match (&options.target.tasks, options.duration) {
        (_, Some(_)) => "--for or Ctrl-C",
        (Tasks::Workload(_), None) => "its end or Ctrl-C",
        _ => "Ctrl-C",
    };
    let report =
        if options.views.iter().any(|view| view.reports) { " with a report, -i 1000 reports every second" } else { "" };
    format!("{}: watching {what}; {end} ends it{report}", options.name)
}

/// A line for each filter: events with the same filter share a line.
fn filters<'a>(filtered: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut names: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, filter) in filtered {
        match names.iter_mut().find(|(other, _)| *other == filter) {
            Some((_, names)) => names.push(name),
            None => names.push((filter, vec![name])),
        }
    }
    let line = |(filter, names): (&str, Vec<&str>)| format!("kernel filter of {}: {filter}", names.join(", "));
    names.into_iter().map(line).collect()
}

/// The line that says why nothing is shown yet.
pub fn waiting_for(profiler: &str, evlist: &Evlist) -> String {
    const NAMED: usize = 3;
    let events: Vec<String> = evlist
        .iter()
        .filter(|(_, evsel)| evsel.is_opened_itself())
        .map(|(_, evsel)| {
            let filters = evsel.filter().map(str::to_owned).into_iter().chain(evsel.test().map(SampleTest::text));
            filters.fold(evsel.name().to_owned(), |name, filter| format!("{name} /{filter}/"))
        })
        .collect();
    let named = events[..events.len().min(NAMED)].join(", ");
    let more = if events.len() > NAMED { format!(" and {} more", events.len() - NAMED) } else { String::new() };
    format!("{profiler}: nothing seen yet; waiting for {named}{more}")
}

/// The summary of the run. `counts_lost`: the kernel counts lost samples separately from lost side records.
pub fn summary(options: &Options, end: &RunEnd, counts_lost: bool) -> Vec<String> {
    let profiler = options.name.as_str();
    let events = if end.samples == 1 { "event" } else { "events" };
    let seconds = end.duration_ns as f64 / 1e9;
    let mut first = format!("{profiler}: {} {events} in {seconds:.1} s, {} lost", end.samples, end.lost);
    if end.lost > 0 && !counts_lost {
        first += " (side records among them: this kernel does not tell them apart)";
    }
    if end.discarded > 0 {
        let pairs = if end.discarded == 1 { "pair" } else { "pairs" };
        first += &format!(", {} {pairs} discarded because an end may have gone unseen", end.discarded);
    }
    let others = [
        (end.lost_output, "lines dropped because the output could not keep up"),
        (end.lost_side, "records of names, forks, exits or mappings lost: names may be old"),
        (end.lost_switches, "records of switches lost, where a hidden task keeps the events of them from us"),
        (end.lost_stacks, "stacks not kept: there was no room for them"),
        (end.lost_pairs, "occurrences not followed: too many are followed already"),
        (end.lost_calls, "calls of probed functions not seen"),
        (
            end.unseen,
            "events or more happened unseen: the task that was current then, such as that of an idle CPU, hides them",
        ),
        (end.malformed, "records could not be decoded"),
    ];
    let other = |(count, what): &(u64, &str)| format!("{profiler}: {count} {what}");
    let others = others.iter().filter(|(count, _)| *count > 0).map(other).chain(not_unwound(profiler, end));
    let views = options.views.iter().zip(&end.views).map(|(view, end)| of_view(&view.name, end));
    std::iter::once(first).chain(views).chain(others).chain(hidden(profiler, &end.filtered_by)).collect()
}

/// The line about one of several views.
fn of_view(name: &str, end: &ViewEnd) -> String {
    let events = if end.samples == 1 { "event" } else { "events" };
    let mut line = format!("{name}: {} {events}, {} lost", end.samples, end.lost);
    if end.discarded > 0 {
        let pairs = if end.discarded == 1 { "pair" } else { "pairs" };
        line += &format!(", {} {pairs} discarded", end.discarded);
    }
    if end.lost_pairs > 0 {
        line += &format!(", {} not followed", end.lost_pairs);
    }
    line
}

/// The line about user stacks that were not unwound: they may lack callers, but nothing else.
fn not_unwound(profiler: &str, end: &RunEnd) -> Option<String> {
    let why = match end.windows_ended {
        true => {
            "their copies had been ended because they came too often, or found no room (more do with --call-graph=dwarf,2K)"
        }
        false => "their copies found no room (more do with --call-graph=dwarf,2K), or their programs have 32 bits",
    };
    let line = || format!("{profiler}: {} user stacks by frame pointers: {why}", end.lost_unwind);
    (end.lost_unwind > 0).then(line)
}

/// The lines about BPF programs that may have hidden events: an unknown number, or at most as many as the kernel
/// counted.
fn hidden(profiler: &str, filtered_by: &[AttachedProgram]) -> Vec<String> {
    let (counted, others): (Vec<_>, Vec<_>) =
        filtered_by.iter().partition(|program| program.returns_one && program.missed.is_some());
    let missed: u64 = counted.iter().filter_map(|program| program.missed).sum();
    let named = |programs: &[&AttachedProgram]| {
        const NAMED: usize = 3;
        let names: Vec<String> = programs.iter().take(NAMED).map(|program| program.program()).collect();
        let more = match programs.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}", names.join(", "))
    };
    let by_others = || format!("{profiler}: more events may have been hidden from us by {}", named(&others));
    let by_counted = || {
        let by = named(&counted);
        format!("{profiler}: up to {missed} events were dropped: they came while another BPF program ran than {by}")
    };
    let lines = [(!others.is_empty()).then(by_others), (missed > 0).then(by_counted)];
    lines.into_iter().flatten().collect()
}

/// The line about calls in children of the target that may have gone unseen.
pub fn of_children(profiler: &str, children: u64) -> Option<String> {
    let processes = if children == 1 { "process" } else { "processes" };
    let line = format!(
        "{profiler}: calls in {children} {processes} that the target started may have gone unseen: no number is exact \
         (see the line at the start)"
    );
    (children > 0).then_some(line)
}

/// The resources that a run has used.
#[derive(Clone, Copy, Debug)]
pub struct OwnCost {
    pub duration_ns: u64,
    pub cpu_ns: u64,
    pub rss_peak_bytes: u64,
    pub locked_bytes: u64,
    pub wakeups: u64,
    pub samples: u64,
    pub record_bytes: u64,
    pub late: u64,
}

/// The line about the cost of the run itself.
pub fn own_cost(cost: &OwnCost) -> String {
    let per_s = |number: u64| number as f64 / (cost.duration_ns as f64 / 1e9).max(1e-9);
    format!(
        "self: {:.3} s CPU, {} KiB peak memory, {} KiB rings, {} wake-ups, {:.0} events/s, {:.0} bytes/s, {} late",
        cost.cpu_ns as f64 / 1e9,
        cost.rss_peak_bytes / 1024,
        cost.locked_bytes / 1024,
        cost.wakeups,
        per_s(cost.samples),
        per_s(cost.record_bytes),
        cost.late,
    )
}

/// Unread bytes of the rings, and unwritten bytes of the output.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// The most bytes that a ring has held since the start.
    pub fullest_bytes: u64,
    /// Size of that ring.
    pub ring_bytes: u64,
    pub output_bytes: u64,
    /// Lines dropped because the output could not take them.
    pub dropped: u64,
}

pub fn backlog(backlog: &Backlog) -> String {
    format!(
        "backlog: the fullest ring has held {} of {} KiB, {} KiB wait for the output, {} lines were dropped there",
        backlog.fullest_bytes.div_ceil(1024),
        backlog.ring_bytes / 1024,
        backlog.output_bytes.div_ceil(1024),
        backlog.dropped,
    )
}

/// Lines about samples for which a filter evaluated by perf-prof had no value: event, number, reasons.
pub fn of_filters(not_judged: &[(&str, u64, String)]) -> impl Iterator<Item = String> {
    let line = |(event, count, why): &(&str, u64, String)| {
        format!("{event}: the filter had no value for {count} events, which were dropped: {why}")
    };
    not_judged.iter().map(line)
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::cli::{CommonArgs, RunArgs, ViewArgs};
    use crate::perf::target::Target;
    use crate::run::ViewOptions;

    #[test]
    fn equal_filters_share_a_line() {
        let filtered = [("a:b", "x==1"), ("a:c", "y"), ("a:d", "x==1")];
        assert_eq!(filters(filtered.into_iter()), ["kernel filter of a:b, a:d: x==1", "kernel filter of a:c: y"]);
        assert!(filters(std::iter::empty()).is_empty());
    }

    #[test]
    fn a_terminal_is_told_what_goes_on() {
        let args = |args: &[&str]| {
            let command = CommonArgs::augment_args(clap::Command::new("x").no_binary_name(true));
            CommonArgs::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
        };
        let options = |given: &[&str]| {
            let args = args(given);
            Options::new(args.run, vec![ViewOptions::new(&args.view, "x", "samples")]).unwrap()
        };
        let line = |given: &[&str], reports: bool, paced: bool| {
            let mut options = options(given);
            options.views.iter_mut().for_each(|view| view.reports = reports);
            let tasks = if given.contains(&"--") { Tasks::Workload(7) } else { options.target.tasks };
            let target = Target { tasks, ..options.target };
            watching_line(&Options { target, paced, ..options }, 2)
        };
        let own = std::process::id().to_string();
        let with_report = "ends it with a report, -i 1000 reports every second";
        let cases: [(&[&str], &str); 4] = [
            (&[], "all tasks on 2 CPUs; Ctrl-C"),
            (&["-p", &own], "one process on 2 CPUs; Ctrl-C"),
            (&["--for", "10"], "all tasks on 2 CPUs; --for or Ctrl-C"),
            (&["--", "make"], "the command and its children on 2 CPUs; its end or Ctrl-C"),
        ];
        for (given, want) in cases {
            assert_eq!(line(given, true, false), format!("x: watching {want} {with_report}"), "{given:?}");
        }
        assert_eq!(line(&[], false, false), "x: watching all tasks on 2 CPUs; Ctrl-C ends it");
        assert_eq!(line(&[], true, true), format!("x: watching 2 CPUs; Ctrl-C {with_report}"));
        for soon in [&["-i", "1000"][..], &["--for", "5"], &["--dry-run"]] {
            assert_eq!(watching(&options(soon), 2), None, "{soon:?}");
        }
    }

    #[test]
    fn stacks_that_were_not_unwound_are_said_to_be_and_nothing_is_lost() {
        let end = |lost_unwind, windows_ended| RunEnd { lost_unwind, windows_ended, ..RunEnd::default() };
        let view = |name| ViewOptions::new(&ViewArgs::default(), name, "samples");
        let options = |views| Options::new(RunArgs::default(), views).unwrap();
        let one = options(vec![view("x")]);
        let summary = |end: &RunEnd| summary(&one, end, true);
        assert_eq!(summary(&end(0, true)).len(), 1);
        let lines = summary(&end(7, false));
        assert!(lines[1].starts_with("x: 7 user stacks by frame pointers: their copies found no room"), "{lines:?}");
        assert!(summary(&end(7, true))[1].contains("ended because they came too often"));
        assert_eq!(end(7, true).missing(), 0);
    }

    #[test]
    fn each_of_several_views_has_a_line() {
        let view = |name| ViewOptions::new(&ViewArgs::default(), name, "samples");
        let options = Options::new(RunArgs::default(), vec![view("a"), view("b")]).unwrap();
        let of_view = |samples, discarded| ViewEnd { samples, discarded, ..ViewEnd::default() };
        let end = RunEnd {
            samples: 4,
            duration_ns: 2_000_000_000,
            views: vec![of_view(1, 0), of_view(3, 2)],
            ..RunEnd::default()
        };
        let want = ["run: 4 events in 2.0 s, 0 lost", "a: 1 event, 0 lost", "b: 3 events, 0 lost, 2 pairs discarded"];
        assert_eq!(summary(&options, &end, true), want);
    }

    #[test]
    fn rates_are_those_of_the_time_that_has_passed() {
        let cost = OwnCost {
            duration_ns: 2_000_000_000,
            cpu_ns: 10_000_000,
            rss_peak_bytes: 5 << 20,
            locked_bytes: 16 << 20,
            wakeups: 25,
            samples: 400,
            record_bytes: 20_000,
            late: 1,
        };
        let want = "self: 0.010 s CPU, 5120 KiB peak memory, 16384 KiB rings, 25 wake-ups, 200 events/s, 10000 bytes/s, 1 late";
        assert_eq!(own_cost(&cost), want);
        assert!(own_cost(&OwnCost { duration_ns: 0, samples: 0, record_bytes: 0, ..cost }).contains(" 0 events/s"));
    }

    #[test]
    fn a_backlog_is_rounded_up() {
        let held = Backlog { fullest_bytes: 1, ring_bytes: 8 << 20, output_bytes: 2048, dropped: 3 };
        let want =
            "backlog: the fullest ring has held 1 of 8192 KiB, 2 KiB wait for the output, 3 lines were dropped there";
        assert_eq!(backlog(&held), want);
    }
}
