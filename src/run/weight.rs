//! What a run weighs: the CPU time of perf-prof itself, and what writing the records takes from the load. Both are told
//! once, when one of them is more than a few per cent of a CPU, with the event that weighs most and the options that
//! make the kernel write fewer of its records.

use std::collections::{BTreeMap, BTreeSet};

use crate::escape::escape;
use crate::output::{HeaviestEvent, OwnWeight, RecordingCost};
use crate::outside;
use crate::perf::EventId;
use crate::perf::target::Tasks;
use crate::profiler::Timestamp;
use crate::run::Run;
use crate::run::meter::Meter;
use crate::sys;

/// Shares of a CPU up to this one are not told, in per cent.
const LIGHT_PCT: f64 = 5.0;
/// Shortest time over which a run is weighed.
const WINDOW_NS: u64 = 1_000_000_000;
/// How long the samples of a heavy run are counted by event.
pub(super) const METERED_NS: u64 = 20_000_000;
/// Usual cost of writing one record without and with a callchain, ns: between 0.2 and 0.8 µs were measured without. To
/// measure it in the run would need an event of its own; to open that changes the kernel's code, which waits for every
/// CPU, also for one that is stuck.
const RECORD_NS: [u64; 2] = [400, 1000];
/// CPU time of perf-prof that an event may explain, with its stack. More goes to names of functions and to /proc.
const MAX_EVENT_NS: u64 = 20_000;

/// Samples that the events have written, by CPU and event.
type WrittenSamples = BTreeMap<(u32, EventId), u64>;

/// The weighing of a run.
#[derive(Debug, Default)]
pub(super) struct RunScales {
    before: ScaleReading,
    /// What was used in a heavy window, while a meter counts the samples of a moment by event.
    heavy: Option<HeavyWindow>,
    /// The weight that was told.
    pub told: Option<OwnWeight>,
}

/// What was used up to a time.
#[derive(Debug, Default)]
struct ScaleReading {
    time_ns: Timestamp,
    cpu_ns: u64,
    /// Samples read from the rings, and those that were lost there.
    samples: u64,
}

/// A time in which the run seemed heavy.
#[derive(Clone, Copy, Debug)]
struct HeavyWindow {
    cpu_pct: f64,
    span_ns: u64,
    samples: u64,
    /// It is the first one of the run.
    is_first: bool,
}

impl RunScales {
    /// A meter counts samples, which should not last.
    pub fn is_metering(&self) -> bool {
        self.heavy.is_some()
    }
}

/// The samples of the events of one name.
#[derive(Debug, Default)]
struct NamedCount {
    count: u64,
    events: BTreeSet<EventId>,
    /// The views that want them.
    views: BTreeSet<usize>,
}

impl Run {
    /// Begins the weighing, at the start of the run: no event has written a sample yet.
    pub(super) fn begin_weighing(&mut self) {
        self.scales.before = self.read_scales(self.start_ns);
    }

    /// Weighs the time since the last call, if it is long enough. Returns the lines for the user.
    ///
    /// The kernel's counters would tell which events write most, but to read one interrupts its CPU, and waits as long as
    /// that CPU is stuck. So the samples of a moment are counted as they are read.
    pub(super) fn weigh(&mut self, now: Timestamp) -> Vec<String> {
        if let Some(window) = self.scales.heavy.take() {
            let metered = self.core.meter.take().map(|mut meter| meter.take_fresh()).unwrap_or_default();
            self.scales.told = self.find_weight(&window, &scaled(&metered, window.samples));
            self.scales.before = self.read_scales(now);
            return self.scales.told.iter().flat_map(|weight| lines(&self.options.name, weight)).collect();
        }
        let span_ns = now.saturating_sub(self.scales.before.time_ns);
        if self.scales.told.is_some() || span_ns < WINDOW_NS || self.core.meter.is_some() {
            return Vec::new();
        }
        let reading = self.read_scales(now);
        let before = std::mem::replace(&mut self.scales.before, reading);
        let cpu_pct = percent(self.scales.before.cpu_ns.saturating_sub(before.cpu_ns), span_ns);
        let samples = self.scales.before.samples.saturating_sub(before.samples);
        if cpu_pct > LIGHT_PCT || percent(samples.saturating_mul(RECORD_NS[0]), span_ns) > LIGHT_PCT {
            let is_first = before.time_ns == self.start_ns;
            self.scales.heavy = Some(HeavyWindow { cpu_pct, span_ns, samples, is_first });
            self.core.meter = Some(Meter::of_moment());
        }
        Vec::new()
    }

    fn read_scales(&self, time_ns: Timestamp) -> ScaleReading {
        let cpu_ns = sys::cpu_ns().1.saturating_add(outside::cpu_ns());
        ScaleReading { time_ns, cpu_ns, samples: self.core.records.samples + self.core.loss.total() }
    }

    /// The weight, if it is worth a word. `counts`: the samples of the window.
    fn find_weight(&self, window: &HeavyWindow, counts: &WrittenSamples) -> Option<OwnWeight> {
        let HeavyWindow { cpu_pct, span_ns, samples, is_first } = *window;
        let recording = self.find_recording_cost(span_ns, counts).filter(|cost| cost.pct > LIGHT_PCT);
        let events_explain = percent(samples.saturating_mul(MAX_EVENT_NS), span_ns) >= cpu_pct;
        // Beginning takes time, once.
        let is_told = cpu_pct > LIGHT_PCT && (events_explain || !is_first);
        (is_told || recording.is_some()).then(|| OwnWeight {
            cpu_pct,
            events_per_s: per_s(samples, span_ns),
            heaviest: if events_explain { self.find_heaviest(samples, counts) } else { None },
            recording,
        })
    }

    /// What writing records takes from the CPU that writes most of them.
    fn find_recording_cost(&self, span_ns: u64, counts: &WrittenSamples) -> Option<RecordingCost> {
        let mut by_cpu: BTreeMap<u32, u64> = BTreeMap::new();
        counts.iter().for_each(|(&(cpu, _), count)| *by_cpu.entry(cpu).or_default() += count);
        let (cpu, samples) = by_cpu.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0)?;
        let of_cpu = counts.iter().filter(|((of, _), _)| *of == cpu);
        let most = of_cpu.max_by_key(|(_, count)| **count).map(|((_, event), _)| *event)?;
        let record_ns = RECORD_NS[usize::from(self.core.evlist.evsel(most).has_callchain())];
        Some(RecordingCost {
            cpu,
            pct: percent(samples.saturating_mul(record_ns), span_ns).min(100.0),
            per_s: per_s(samples, span_ns),
            record_ns,
        })
    }

    /// The event with most samples, with others of the same views that have about as many.
    fn find_heaviest(&self, samples: u64, counts: &WrittenSamples) -> Option<HeaviestEvent> {
        let mut by_name: BTreeMap<&str, NamedCount> = BTreeMap::new();
        for (&(_, event), count) in counts {
            let named = by_name.entry(self.core.evlist.evsel(event).name()).or_default();
            named.count += count;
            named.events.insert(event);
            named.views.extend(self.core.evlist.evsels.subscribers(event).map(|(view, _)| view));
            named.views.retain(|view| *view < self.options.views.len());
        }
        let of_views = by_name.values().filter(|named| !named.views.is_empty());
        let heaviest = of_views.max_by_key(|named| named.count).filter(|named| named.count > 0)?;
        let views = heaviest.views.clone();
        let is_as_heavy = |named: &NamedCount| named.count >= heaviest.count / 2 && named.views == views;
        let heavy: Vec<(&&str, &NamedCount)> = by_name.iter().filter(|(_, named)| is_as_heavy(named)).collect();
        let events = heavy.iter().flat_map(|(_, named)| &named.events);
        let filters: Vec<&str> = events.filter_map(|&event| self.core.evlist.evsel(event).filter()).collect();
        let of_view = |view: &usize| {
            let view = self.options.views.get(*view)?;
            let is_new = |option: &&&str| !self.is_given(option, &filters);
            Some((view.name.clone(), view.narrowings.iter().filter(is_new).copied().collect()))
        };
        let count: u64 = heavy.iter().map(|(_, named)| named.count).sum();
        Some(HeaviestEvent {
            names: heavy.iter().map(|(name, _)| escape(name.as_bytes())).collect(),
            pct: count as f64 * 100.0 / samples.max(1) as f64,
            views: views.iter().filter_map(of_view).collect(),
        })
    }

    /// The run is narrowed by this option already. `filters`: those of the events in the kernel.
    fn is_given(&self, option: &str, filters: &[&str]) -> bool {
        let tasks = &self.options.target.tasks;
        match option.split(' ').next() {
            Some("-p") => !matches!(tasks, Tasks::All),
            Some("-t") => matches!(tasks, Tasks::Threads(_)),
            Some("-C") => self.options.target.wanted.is_some(),
            Some("-d") => filters.iter().any(|filter| filter.contains("dev ==")),
            Some("--filter") => filters.iter().any(|filter| filter.contains("comm")),
            _ => false,
        }
    }
}

/// Samples of a moment as parts of all `samples`.
fn scaled(metered: &[(u32, EventId, u64)], samples: u64) -> WrittenSamples {
    let all: u64 = metered.iter().map(|(.., count)| count).sum();
    let part = |count: u64| (u128::from(count) * u128::from(samples) / u128::from(all.max(1))) as u64;
    metered.iter().map(|&(cpu, event, count)| ((cpu, event), part(count))).collect()
}

fn per_s(count: u64, span_ns: u64) -> f64 {
    count as f64 * 1e9 / span_ns.max(1) as f64
}

fn percent(part_ns: u64, span_ns: u64) -> f64 {
    part_ns as f64 * 100.0 / span_ns.max(1) as f64
}

/// The lines about a weight.
fn lines(name: &str, weight: &OwnWeight) -> Vec<String> {
    let digits = |pct: f64| if pct < 10.0 { format!("{pct:.1} %") } else { format!("{pct:.0} %") };
    let mut parts = Vec::new();
    if weight.cpu_pct > LIGHT_PCT {
        parts.push(format!("perf-prof itself takes {} of a CPU", digits(weight.cpu_pct)));
    }
    if let Some(heaviest) = &weight.heaviest {
        let of_views = match &heaviest.views[..] {
            [_] => String::new(),
            views => format!(" for {}", views.iter().map(|(view, _)| view.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let names = heaviest.names.join(", ");
        parts.push(format!("{} of its events are {names}{of_views}", digits(heaviest.pct)));
        parts.push(cure(&heaviest.views));
    } else if weight.events_per_s > 0.0 {
        parts.push(format!("mostly for names and stacks, little for its {:.0} events/s", weight.events_per_s));
    }
    let mut lines = vec![format!("{name}: {}", parts.join("; "))];
    lines.extend(weight.recording.as_ref().map(|cost| {
        format!(
            "{name}: recording slows CPU {} down by about {}: {:.0} events/s at some {} ns each",
            cost.cpu,
            digits(cost.pct),
            cost.per_s,
            cost.record_ns
        )
    }));
    lines
}

/// What makes the event lighter: options for all of its views, or what is to be done with each of them.
fn cure(views: &[(String, Vec<&'static str>)]) -> String {
    const NAMED: usize = 2;
    let options = |options: &[&str]| options[..options.len().min(NAMED)].join(" or ");
    match views {
        [(_, none)] if none.is_empty() => "no option leaves some of them out".to_owned(),
        [(_, some)] => format!("cure: {}", options(some)),
        views => {
            let each = |(view, narrowings): &(String, Vec<&str>)| match &narrowings[..] {
                [] => format!("leave out {view}"),
                some => format!("{} for {view}", options(some)),
            };
            format!("cure: {}", views.iter().map(each).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(views: &[(&str, &[&'static str])]) -> OwnWeight {
        OwnWeight {
            cpu_pct: 22.84,
            events_per_s: 88_123.0,
            heaviest: Some(HeaviestEvent {
                names: vec!["sched:sched_switch".to_owned()],
                pct: 61.2,
                views: views.iter().map(|(view, options)| ((*view).to_owned(), options.to_vec())).collect(),
            }),
            recording: None,
        }
    }

    #[test]
    fn the_cure_is_an_option_of_each_view() {
        let state: (&str, &[&str]) = ("task-state", &["--filter COMM", "-t TID", "-C CPUS"]);
        type Case<'a> = (&'a [(&'a str, &'a [&'static str])], &'a str);
        let cases: [Case<'_>; 4] = [
            (&[state], "61 % of its events are sched:sched_switch; cure: --filter COMM or -t TID"),
            (&[("rundelay", &[])], "61 % of its events are sched:sched_switch; no option leaves some of them out"),
            (
                &[state, ("rundelay", &[])],
                "sched:sched_switch for task-state, rundelay; cure: --filter COMM or -t TID for task-state, leave out rundelay",
            ),
            (
                &[("a", &["-p PID"]), ("b", &["-p PID"]), ("c", &[])],
                "for a, b, c; cure: -p PID for a, -p PID for b, leave out c",
            ),
        ];
        for (views, want) in cases {
            let told = lines("run", &weight(views));
            assert!(told.len() == 1 && told[0].ends_with(want), "{told:#?}");
            assert!(told[0].starts_with("run: perf-prof itself takes 23 % of a CPU; "), "{told:#?}");
        }
    }

    #[test]
    fn what_is_light_is_left_out() {
        let cost = RecordingCost { cpu: 1, pct: 44.0, per_s: 543_138.0, record_ns: 810 };
        let told = OwnWeight { cpu_pct: 3.0, recording: Some(cost), ..weight(&[("trace", &["-p PID"])]) };
        let want = [
            "trace: 61 % of its events are sched:sched_switch; cure: -p PID",
            "trace: recording slows CPU 1 down by about 44 %: 543138 events/s at some 810 ns each",
        ];
        assert_eq!(lines("trace", &told), want);
        let names = OwnWeight { heaviest: None, events_per_s: 300.0, ..weight(&[]) };
        let want =
            "top: perf-prof itself takes 23 % of a CPU; mostly for names and stacks, little for its 300 events/s";
        assert_eq!(lines("top", &names), [want]);
        let alone = OwnWeight { heaviest: None, events_per_s: 0.0, ..weight(&[]) };
        assert_eq!(lines("watchdog", &alone), ["watchdog: perf-prof itself takes 23 % of a CPU"]);
    }
}
