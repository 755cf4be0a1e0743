//! What a run says of itself on stderr.

use crate::bpf::attached::Attached;
use crate::output::RunEnd;
use crate::perf::evlist::Evlist;
use crate::profiler::TracefsFinder;
use crate::run::rings::Rings;

/// What `-v` says before the run.
pub fn describe(evlist: &Evlist, rings: &Rings, tracefs: &TracefsFinder, notes: Vec<String>) -> Vec<String> {
    let mut lines = vec![rings.describe()];
    lines.extend(tracefs.describe());
    lines.extend(evlist.missing().map(|feature| format!("this kernel lacks {feature}")));
    let filtered = evlist.iter().filter_map(|(_, evsel)| Some((evsel.name(), evsel.filter()?)));
    lines.extend(filtered.map(|(name, filter)| format!("kernel filter of {name}: {filter}")));
    lines.extend(notes);
    lines
}

/// Why nothing is shown yet.
pub fn waiting_for(profiler: &str, evlist: &Evlist) -> String {
    const NAMED: usize = 3;
    let events: Vec<String> = evlist
        .iter()
        .filter(|(_, evsel)| evsel.is_opened())
        .map(|(_, evsel)| match evsel.filter() {
            Some(filter) => format!("{} /{filter}/", evsel.name()),
            None => evsel.name().to_owned(),
        })
        .collect();
    let named = events[..events.len().min(NAMED)].join(", ");
    let more = if events.len() > NAMED { format!(" and {} more", events.len() - NAMED) } else { String::new() };
    format!("{profiler}: nothing seen yet; waiting for {named}{more}")
}

/// How it ended. `counts_lost`: the kernel tells lost samples from lost side records.
pub fn summary(profiler: &str, end: &RunEnd, counts_lost: bool) -> Vec<String> {
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
        (end.malformed, "records could not be decoded"),
    ];
    let other = |(count, what): &(u64, &str)| format!("{profiler}: {count} {what}");
    let others = others.iter().filter(|(count, _)| *count > 0).map(other);
    std::iter::once(first).chain(others).chain(hidden(profiler, &end.filtered_by)).collect()
}

/// What the numbers of the whole run may lack, and nobody can tell.
fn hidden(profiler: &str, filtered_by: &[Attached]) -> Option<String> {
    const NAMED: usize = 3;
    let programs: Vec<String> = filtered_by.iter().take(NAMED).map(Attached::program).collect();
    let more = match filtered_by.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let programs = programs.join(", ");
    (!programs.is_empty()).then(|| format!("{profiler}: more events may have been hidden from us by {programs}{more}"))
}

/// That children of the target may have done more than was seen.
pub fn of_children(profiler: &str, children: u64) -> Option<String> {
    let processes = if children == 1 { "process" } else { "processes" };
    let line = format!(
        "{profiler}: calls in {children} {processes} that the target started may have gone unseen: no number is exact \
         (see the line at the start)"
    );
    (children > 0).then_some(line)
}

/// What the run itself has cost.
pub fn own_cost(end: &RunEnd) -> String {
    format!(
        "self: {:.3} s CPU, {} KiB peak memory, {} KiB rings, {} wake-ups, {:.0} events/s, {:.0} bytes/s, {} late",
        end.cpu_ns as f64 / 1e9,
        end.rss_peak_bytes / 1024,
        end.locked_bytes / 1024,
        end.wakeups,
        end.per_s(end.samples),
        end.per_s(end.record_bytes),
        end.late,
    )
}
