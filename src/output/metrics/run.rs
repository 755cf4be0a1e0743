//! The metrics of the run itself: what it has seen and lost, how far its tables can be trusted, and what it costs.

use std::sync::Arc;
use std::time::Duration;

use crate::output::metrics::family::{FamilyKind, LabelSet, MetricFamily, MetricUnit, MetricValue};
use crate::output::metrics::names::{self, MetricView};
use crate::output::metrics::table::MetricTable;
use crate::output::metrics::{RunMeters, ViewMeters};
use crate::report::Verdict;
use crate::sys;

const VERDICTS: [Verdict; 5] =
    [Verdict::Exact, Verdict::Estimate, Verdict::Discarded, Verdict::LowerBound, Verdict::Unsure];

/// The time since 1970.
pub fn now() -> Duration {
    Duration::from_nanos(sys::realtime_ns())
}

/// Adds the families of a run that began at `started`, the time since 1970.
pub fn push_run(
    started: Duration,
    views: &[MetricView],
    tables: &[MetricTable],
    meters: &RunMeters,
    families: &mut Vec<MetricFamily>,
) {
    push_self(started, meters, families);
    push_views(views, meters, families);
    push_tables(views, tables, families);
}

fn push_self(started: Duration, meters: &RunMeters, families: &mut Vec<MetricFamily>) {
    use FamilyKind::{Counter, Gauge};
    use MetricUnit::{Bytes, None, Seconds};
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let numbers = [
        ("start_time", Gauge, Seconds, ns(started), "when the run started, since 1970"),
        ("snapshot_time", Gauge, Seconds, ns(now()), "when these numbers were published, since 1970"),
        ("duration", Gauge, Seconds, meters.time_ns.saturating_sub(meters.start_ns), "length of the run so far"),
        ("cpu", Counter, Seconds, meters.cpu_ns, "CPU time of perf-prof itself"),
        ("resident_peak", Gauge, Bytes, meters.rss_peak_bytes, "the most memory that perf-prof had"),
        ("locked", Gauge, Bytes, meters.locked_bytes, "memory of its ring buffers"),
        ("wakeups", Counter, None, meters.wakeups, "how often its reading thread was woken"),
        ("malformed", Counter, None, meters.malformed, "records that could not be read"),
        ("late", Counter, None, meters.late, "records that came after later ones had been used"),
        ("dropped_lines", Counter, None, meters.dropped_lines, "lines that the output was too slow for"),
        ("dropped_stacks", Counter, None, meters.dropped_stacks, "stacks for which there was no room"),
        ("output_waiting", Gauge, Bytes, meters.waiting_bytes, "what waits to be written"),
    ];
    for (word, kind, unit, number, help) in numbers {
        let name = names::join(&["run", word, unit.word().unwrap_or_default()]);
        families.push(MetricFamily::new(&name, kind, unit, help).with(Arc::from([]), MetricValue::Number(number)));
    }
}

fn push_views(views: &[MetricView], meters: &RunMeters, families: &mut Vec<MetricFamily>) {
    let mut push = |word: &str, kind, unit: MetricUnit, help, value: &dyn Fn(&ViewMeters) -> MetricValue| {
        let name = names::join(&["run", word, unit.word().unwrap_or_default()]);
        let mut family = MetricFamily::new(&name, kind, unit, help);
        for (view, meters) in views.iter().zip(&meters.views) {
            family = family.with(labels_of(view, []), value(meters));
        }
        families.push(family);
    };
    let count = FamilyKind::Counter;
    push("samples", count, MetricUnit::None, "samples that were used", &|view| MetricValue::Number(view.samples));
    push("lost", count, MetricUnit::None, "samples that were lost", &|view| MetricValue::Number(view.lost));
    push("lost_side", count, MetricUnit::None, "records of names, forks, exits and mappings that were lost", &|view| {
        MetricValue::Number(view.lost_side)
    });
    push("untracked", count, MetricUnit::None, "pairs of events that were not followed, for lack of room", &|view| {
        MetricValue::Number(view.untracked)
    });
    push("discarded", count, MetricUnit::None, "pairs of events that were thrown away", &|view| {
        MetricValue::Number(view.discarded)
    });
    let help = "share of the time, over all CPUs, without losses; of the interval";
    push("coverage", FamilyKind::Gauge, MetricUnit::Ratio, help, &|view| MetricValue::Fraction(view.coverage));
    let help = "1 for the verdict on the interval";
    let mut verdicts = MetricFamily::new(&names::join(&["run", "verdict"]), FamilyKind::Gauge, MetricUnit::None, help);
    let mut info = MetricFamily::new(&names::join(&["run", "info"]), FamilyKind::Gauge, MetricUnit::None, "what runs");
    for (view, meters) in views.iter().zip(&meters.views) {
        verdicts = with_verdict(verdicts, view, None, meters.verdict);
        let about = [("profiler", view.profiler), ("version", env!("CARGO_PKG_VERSION"))];
        info = info.with(labels_of(view, about), MetricValue::Number(1));
    }
    families.extend([verdicts, info]);
}

fn push_tables(views: &[MetricView], tables: &[MetricTable], families: &mut Vec<MetricFamily>) {
    let family = |word, kind, help| MetricFamily::new(&names::join(&["run", word]), kind, MetricUnit::None, help);
    let help = "1 for the verdict on the rows of a table, the worst since the start of the run";
    let mut verdicts = family("table_verdict", FamilyKind::Gauge, help);
    let mut series = family("table_series", FamilyKind::Gauge, "rows of a table with series of their own");
    let help = "how often a row found no room and was added to <others>";
    let mut others = family("table_others", FamilyKind::Counter, help);
    for table in tables {
        let Some(view) = views.get(table.owner) else { continue };
        let labels = labels_of(view, [("table", table.sums.table())]);
        let folded = table.sums.others().map_or(0, |others| others.rows);
        verdicts = with_verdict(verdicts, view, Some(table.sums.table()), table.verdict);
        series = series.with(labels.clone(), MetricValue::Number(table.series() as u64));
        others = others.with(labels, MetricValue::Number(folded));
    }
    families.extend([verdicts, series, others].into_iter().filter(|family| !family.points.is_empty()));
}

fn with_verdict(family: MetricFamily, view: &MetricView, table: Option<&str>, verdict: Verdict) -> MetricFamily {
    VERDICTS.iter().fold(family, |family, one| {
        let labels = table.map(|table| ("table", table)).into_iter().chain([("verdict", one.word())]);
        family.with(labels_of(view, labels), MetricValue::Number(u64::from(*one == verdict)))
    })
}

/// The labels of a series of a view, sorted.
fn labels_of<'a>(view: &MetricView, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> LabelSet {
    let view = view.name.iter().map(|name| (Arc::from("view"), name.clone()));
    let more = more.into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value)));
    let mut labels: Vec<(Arc<str>, Arc<str>)> = view.chain(more).collect();
    labels.sort();
    labels.into()
}
