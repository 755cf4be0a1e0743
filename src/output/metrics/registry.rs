//! The sums that are told: of each table since the start of the run, by labels and function, in bounded memory.
//!
//! A scrape compares with the one before, so a counter must never go back. A row that found no room is counted in that of
//! the others from then on, even if it had room in other readers' sums; a row that has its own keeps it.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::output::metrics::family::{
    FamilyKind, LabelSet, MetricFamily, MetricPoint, MetricUnit, MetricValue, MetricsSnapshot,
};
use crate::output::metrics::run::push_run;
use crate::output::metrics::totals::TotalSums;
use crate::output::metrics::{RunMeters, SnapshotCell, ViewMeters, names};
use crate::output::settings::ViewSettings;
use crate::report::value_text;
use crate::report::{ColumnHead, ColumnKind, RowSite, RowSums, Rows, Value, Verdict};
use crate::sys;

/// Rows of a table with series of their own.
pub const MAX_SERIES: usize = 1_000;
/// Size of their names, in bytes.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The value of all labels of the row that the others are added up in.
const OTHERS: &str = "<others>";

/// The metrics of a run.
#[derive(Debug)]
pub struct MetricsRegistry {
    snapshots: SnapshotCell,
    views: Vec<MetricView>,
    tables: Vec<MetricTable>,
    pub(super) started: Duration,
    totals: TotalSums,
}

/// What names the series of a view.
#[derive(Debug)]
pub(super) struct MetricView {
    /// None: there is but one.
    pub name: Option<Arc<str>>,
    pub profiler: &'static str,
    /// The table whose name is left out.
    main_table: &'static str,
}

#[cfg(test)]
impl MetricView {
    /// One of several views.
    pub fn of(profiler: &'static str, name: &str) -> MetricView {
        MetricView { name: Some(name.into()), profiler, main_table: "" }
    }
}

#[derive(Debug)]
pub(super) struct MetricTable {
    pub owner: usize,
    pub sums: RowSums<RowFunction>,
    /// The worst since the start, or that of the snapshot.
    pub verdict: Verdict,
    columns: Vec<MetricColumn>,
    /// Of the rows, in their order.
    labels: Vec<LabelSet>,
    used: FxHashSet<LabelSet>,
}

/// A column that is told.
#[derive(Debug)]
struct MetricColumn {
    at: usize,
    head: ColumnHead,
    name: Arc<str>,
    kind: FamilyKind,
    unit: MetricUnit,
    help: Arc<str>,
}

/// The function that a row is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowFunction {
    /// None: the table has no stacks.
    pub innermost: Option<Arc<str>>,
    /// Its callers. None: the table is about places, whatever called them.
    pub callers: Option<Arc<str>>,
}

impl RowSite for RowFunction {
    fn heap_bytes(&self) -> usize {
        [&self.innermost, &self.callers].into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// What applies to all rows of a table.
#[derive(Clone, Copy, Debug)]
pub struct MetricEntry {
    pub owner: usize,
    pub verdict: Verdict,
    pub is_snapshot: bool,
}

impl MetricsRegistry {
    pub fn new<'a>(snapshots: SnapshotCell, views: impl ExactSizeIterator<Item = &'a ViewSettings>) -> MetricsRegistry {
        let several = views.len() > 1;
        let view = |view: &ViewSettings| MetricView {
            name: several.then(|| view.name.as_str().into()),
            profiler: view.profiler,
            main_table: view.main_table,
        };
        let views = views.map(view).collect();
        let mut registry =
            MetricsRegistry { snapshots, views, tables: Vec::new(), started: now(), totals: TotalSums::default() };
        registry
            .publish(&RunMeters { views: vec![ViewMeters::default(); registry.views.len()], ..RunMeters::default() });
        registry
    }

    /// Adds the rows of a report. `function`: that of a row.
    pub fn add(&mut self, entry: MetricEntry, rows: &mut dyn Rows, mut function: impl FnMut(usize) -> RowFunction) {
        let MetricEntry { owner, verdict, is_snapshot } = entry;
        let Some(view) = self.views.get(owner) else { return };
        let is_same = |table: &MetricTable| table.owner == owner && table.sums.table() == rows.table();
        let known = self.tables.iter().position(is_same);
        let at = match known {
            Some(at) if !is_snapshot => at,
            known => {
                let table = MetricTable::new(view, entry, rows);
                match known.and_then(|at| self.tables.get_mut(at)) {
                    Some(old) => *old = table, // the snapshot before
                    None => self.tables.push(table),
                }
                known.unwrap_or(self.tables.len() - 1)
            }
        };
        let Some(table) = self.tables.get_mut(at) else { return };
        table.verdict = table.verdict.max(verdict);
        table.sums.rows().forget_gauges();
        // The greatest first: they are the ones to have series of their own.
        for at in rows.order() {
            let site = function(at);
            table.sums.add(rows, at, site);
        }
        table.name_rows(view.name.as_ref());
    }

    /// Publishes what there is.
    pub fn publish(&mut self, meters: &RunMeters) {
        let mut snapshot = MetricsSnapshot::default();
        for (view, meters) in meters.views.iter().enumerate() {
            meters.totals.iter().for_each(|total| self.totals.add(view, total));
        }
        push_run(self, meters, &mut snapshot.families);
        self.totals.push(&self.views, &mut snapshot.families);
        for table in &mut self.tables {
            table.push(&mut snapshot.families);
        }
        self.snapshots.publish(snapshot);
    }

    pub(super) fn views(&self) -> &[MetricView] {
        &self.views
    }

    pub(super) fn tables(&self) -> &[MetricTable] {
        &self.tables
    }
}

/// Since 1970.
pub(super) fn now() -> Duration {
    Duration::from_nanos(sys::realtime_ns())
}

impl MetricTable {
    fn new(view: &MetricView, entry: MetricEntry, rows: &dyn Rows) -> MetricTable {
        let MetricEntry { owner, verdict, is_snapshot } = entry;
        let table = Some(rows.table()).filter(|table| *table != view.main_table);
        let column = |(at, head): (usize, ColumnHead)| {
            let meaning = rows.meanings().iter().find(|(key, _)| *key == head.key).map(|(_, meaning)| *meaning);
            let (kind, unit) = match names::kind(&head, is_snapshot) {
                Some(kind) => (kind, names::unit(&head)),
                // The state of something now, as a word.
                None if is_snapshot && head.kind == ColumnKind::Derived => (FamilyKind::Gauge, MetricUnit::None),
                None => return None,
            };
            // What nobody shows and nobody explains is not for users.
            if !head.in_json && !head.in_text && meaning.is_none() {
                return None;
            }
            let name = names::family(view.profiler, table, &head, unit, kind);
            let more = match head.kind {
                ColumnKind::Counter if !is_snapshot => "; since the start of the run",
                ColumnKind::Greatest if !is_snapshot => "; the greatest since the start of the run",
                ColumnKind::Least if !is_snapshot => "; the least since the start of the run",
                _ => "",
            };
            let help = format!("{}{more}", meaning.unwrap_or(&head.key));
            Some(MetricColumn { at, head, name: name.into(), kind, unit, help: help.into() })
        };
        MetricTable {
            owner,
            sums: RowSums::new(rows, MAX_SERIES, MAX_NAME_BYTES),
            verdict,
            columns: rows.columns().into_iter().enumerate().filter_map(column).collect(),
            labels: Vec::new(),
            used: FxHashSet::default(),
        }
    }

    /// Rows with series of their own.
    pub fn series(&self) -> usize {
        self.labels.len() - usize::from(self.sums.others().is_some())
    }

    /// Makes the labels of new rows.
    fn name_rows(&mut self, view: Option<&Arc<str>>) {
        let others = self.sums.others().map(|others| others.at);
        let rows = self.sums.rows();
        let columns: Vec<ColumnHead> = rows.columns();
        let label_columns: Vec<&ColumnHead> = columns.iter().filter(|head| head.kind == ColumnKind::Label).collect();
        let values: Vec<(usize, Vec<Value>)> =
            (self.labels.len()..rows.len()).map(|at| (at, rows.labels(at))).collect();
        for (at, values) in values {
            let is_others = others == Some(at);
            let mut labels: Vec<(Arc<str>, Arc<str>)> = Vec::new();
            labels.extend(view.map(|view| ("view".into(), view.clone())));
            // Text alone has columns that say the same in other words.
            for (head, value) in label_columns.iter().zip(values).filter(|(head, _)| head.in_json) {
                match value {
                    _ if is_others => labels.push((names::label(&head.key).into(), OTHERS.into())),
                    // Each moment would be a series of its own.
                    Value::None | Value::Moment(_) => {}
                    value => labels.push((names::label(&head.key).into(), value_text::cell(&value).into())),
                }
            }
            let RowFunction { innermost, callers } = self.sums.site(at).cloned().unwrap_or_default();
            for (key, text) in [("function", innermost), ("callers", callers)] {
                let told = |text| if is_others { OTHERS.into() } else { text };
                labels.extend(text.map(|text| (key.into(), told(text))));
            }
            labels.sort();
            let mut set: LabelSet = labels.as_slice().into();
            if self.used.contains(&set) {
                // The names of two rows may differ only in what text alone has.
                labels.push(("row".into(), at.to_string().into()));
                labels.sort();
                set = labels.into();
            }
            self.used.insert(set.clone());
            self.labels.push(set);
        }
    }

    fn push(&mut self, families: &mut Vec<MetricFamily>) {
        let others = self.sums.others().map(|others| others.at);
        for column in &self.columns {
            let rows = self.sums.rows();
            let mut points = Vec::with_capacity(rows.len());
            for (at, labels) in self.labels.iter().enumerate() {
                // Of several rows a gauge has but the newest.
                if others == Some(at) && column.head.kind == ColumnKind::Gauge {
                    continue;
                }
                points.extend(column.point(rows, at, labels));
            }
            if points.is_empty() && column.kind == FamilyKind::Gauge {
                continue;
            }
            // Two views of one profiler tell of one family.
            match families.iter_mut().find(|family| family.name == column.name) {
                Some(family) => family.points.append(&mut points),
                None => {
                    families.push(column.family(column.name.clone(), column.unit, points));
                }
            }
        }
        self.push_native(families);
    }

    /// The distributions once more, in the unit in which their buckets are those of native histograms.
    fn push_native(&mut self, families: &mut Vec<MetricFamily>) {
        let is_native =
            |column: &&MetricColumn| column.kind == FamilyKind::Histogram && column.unit == MetricUnit::Seconds;
        for column in self.columns.iter().filter(is_native) {
            let name: Arc<str> = column.name.replace("_seconds", "_nanoseconds").into();
            let Some(classic) = families.iter().find(|family| family.name == column.name) else { continue };
            let points = classic.points.clone();
            match families.iter_mut().find(|family| family.name == name) {
                Some(family) => family.points = points,
                None => families.push(column.family(name, MetricUnit::Nanoseconds, points)),
            }
        }
    }
}

impl MetricColumn {
    fn family(&self, name: Arc<str>, unit: MetricUnit, points: Vec<MetricPoint>) -> MetricFamily {
        MetricFamily { name, kind: self.kind, unit, help: self.help.clone(), points }
    }

    /// None: nothing is known there.
    fn point(&self, rows: &mut dyn Rows, at: usize, labels: &LabelSet) -> Option<MetricPoint> {
        let labels = labels.clone();
        if self.kind == FamilyKind::Histogram {
            let values = rows.distribution(at, self.at)?.clone();
            return Some(MetricPoint { labels, value: MetricValue::Distribution(Arc::new(values)) });
        }
        let number = match rows.cell(at, self.at, 0) {
            Value::Unsigned(number) | Value::Ns(number) | Value::Us(number) | Value::Age(number) => number,
            Value::Signed(number) if self.kind == FamilyKind::Counter => u64::try_from(number).ok()?,
            Value::Word(word) => {
                let mut labels = labels.to_vec();
                labels.push((names::label(&self.head.key).into(), word.into()));
                labels.sort();
                return Some(MetricPoint { labels: labels.into(), value: MetricValue::Number(1) });
            }
            _ => return None,
        };
        // A derived number of a snapshot follows from others, or has no sense as a number.
        (self.head.kind != ColumnKind::Derived).then_some(MetricPoint { labels, value: MetricValue::Number(number) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::output::metrics::openmetrics::{TextFormat, encode};
    use crate::report::{Column, Schema, TypedRows};
    use crate::stats::Distribution;

    #[derive(Clone, Debug)]
    struct MetricRow {
        name: u64,
        count: u64,
        now: Option<u64>,
        greatest: Option<u64>,
        ns: Distribution,
        inner: u64,
    }

    static THINGS: Schema<MetricRow> = Schema::<MetricRow>::new(
        "things",
        &[
            Column::label("thing.name", "thing", |row| Value::Unsigned(row.name)),
            Column::counter("count", "count", |row| &mut row.count),
            Column::gauge("now", "now", |row| &mut row.now),
            Column::<MetricRow>::greatest("max_ns", "max ms", |row| &mut row.greatest).ns(),
            Column::<MetricRow>::distribution("duration_ns", |row| &mut row.ns).ns(),
            Column::<MetricRow>::counter("inner", "", |row| &mut row.inner).hidden(),
        ],
    )
    .explained(&[("count", "how many"), ("max_ns", "the longest"), ("duration_ns", "how long")])
    .ordered(|one, other| other.count.cmp(&one.count).then(one.name.cmp(&other.name)));

    static STATES: Schema<(u64, &'static str)> = Schema::<(u64, &'static str)>::new(
        "states",
        &[
            Column::label("cpu", "CPU", |row| Value::Unsigned(row.0)),
            Column::derived("state", "state", |row, _| Value::Word(row.1)),
            Column::counter("cpus", "", |row| &mut row.0),
        ],
    )
    .snapshot();

    fn row(name: u64, count: u64) -> MetricRow {
        let mut ns = Distribution::new();
        (0..count).for_each(|n| ns.record(n * 1000));
        MetricRow { name, count, now: Some(count), greatest: Some(count), ns, inner: 1 }
    }

    fn settings(name: &str) -> ViewSettings {
        ViewSettings {
            name: name.to_owned(),
            profiler: "test",
            stacks: false,
            flame: None,
            heatmap: None,
            main_table: "things",
        }
    }

    fn registry(views: &[&str]) -> MetricsRegistry {
        let views: Vec<ViewSettings> = views.iter().map(|name| settings(name)).collect();
        MetricsRegistry::new(SnapshotCell::default(), views.iter())
    }

    fn add<R: Clone + std::fmt::Debug + Send>(
        registry: &mut MetricsRegistry,
        owner: usize,
        schema: &'static Schema<R>,
        rows: Vec<R>,
    ) {
        let entry = MetricEntry { owner, verdict: Verdict::Exact, is_snapshot: schema.is_snapshot };
        registry.add(entry, &mut TypedRows::new(schema, rows), |_| RowFunction::default());
    }

    /// Series by their names, with their values, of a scrape as text.
    fn scraped(registry: &mut MetricsRegistry) -> BTreeMap<String, f64> {
        registry.publish(&RunMeters { views: vec![ViewMeters::default(); registry.views.len()], ..Default::default() });
        let text = String::from_utf8(encode(&registry.snapshots.get(), TextFormat::OpenMetrics)).unwrap();
        let mut series = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let before = series.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "twice: {name}");
        }
        series
    }

    #[test]
    fn a_table_is_told_by_kind() {
        let mut registry = registry(&["test"]);
        add(&mut registry, 0, &THINGS, vec![row(1, 3), row(2, 5)]);
        add(&mut registry, 0, &THINGS, vec![row(1, 4)]);
        let series = scraped(&mut registry);
        let value = |name: &str| series.get(name).copied();
        assert_eq!(value("perf_prof_test_total{thing_name=\"1\"}"), Some(7.0));
        assert_eq!(value("perf_prof_test_total{thing_name=\"2\"}"), Some(5.0));
        // A gauge that the newest table does not have is not known.
        assert_eq!(value("perf_prof_test_now{thing_name=\"1\"}"), Some(4.0));
        assert_eq!(value("perf_prof_test_now{thing_name=\"2\"}"), None);
        assert_eq!(value("perf_prof_test_max_seconds{thing_name=\"2\"}"), Some(0.000_000_005));
        assert_eq!(value("perf_prof_test_seconds_count{thing_name=\"1\"}"), Some(7.0));
        assert_eq!(value("perf_prof_test_seconds_sum{thing_name=\"1\"}"), Some(0.000_009));
        assert_eq!(value("perf_prof_test_seconds_bucket{thing_name=\"1\",le=\"1.024e-06\"}"), Some(4.0));
        assert!(series.keys().all(|name| !name.contains("inner") && !name.contains("view=")));
        assert_eq!(value("perf_prof_run_table_verdict{table=\"things\",verdict=\"exact\"}"), Some(1.0));
        assert_eq!(value("perf_prof_run_table_series{table=\"things\"}"), Some(2.0));
        let snapshot = registry.snapshots.get();
        let native = snapshot.families.iter().find(|family| &*family.name == "perf_prof_test_nanoseconds");
        assert!(native.is_some_and(|family| family.is_native() && family.points.len() == 2));
    }

    #[test]
    fn a_snapshot_replaces_the_one_before() {
        let mut registry = registry(&["test"]);
        add(&mut registry, 0, &STATES, vec![(1, "ok"), (2, "stuck")]);
        add(&mut registry, 0, &STATES, vec![(1, "stuck")]);
        let series = scraped(&mut registry);
        let of_table: Vec<&str> =
            series.keys().map(String::as_str).filter(|name| name.starts_with("perf_prof_test_")).collect();
        let want = ["perf_prof_test_states_cpus{cpu=\"1\"}", "perf_prof_test_states_state{cpu=\"1\",state=\"stuck\"}"];
        assert_eq!(of_table, want);
    }

    #[test]
    fn views_are_told_apart() {
        let mut registry = registry(&["one", "two"]);
        add(&mut registry, 0, &THINGS, vec![row(1, 3)]);
        add(&mut registry, 1, &THINGS, vec![row(1, 4)]);
        add(&mut registry, 2, &THINGS, vec![row(1, 4)]); // no such view
        let series = scraped(&mut registry);
        let counts =
            ["one", "two"].map(|view| series[&format!("perf_prof_test_total{{thing_name=\"1\",view=\"{view}\"}}")]);
        assert_eq!(counts, [3.0, 4.0]);
        assert!(series.contains_key("perf_prof_run_samples_total{view=\"two\"}"));
        let mut names: Vec<_> = registry.snapshots.get().families.iter().map(|family| family.name.clone()).collect();
        names.sort();
        assert!(names.is_sorted_by(|one, other| one != other), "each family once: {names:?}");
    }

    #[test]
    fn rows_beyond_the_cap_are_the_others_for_ever() {
        let mut registry = registry(&["test"]);
        let rows = |from: u64| (from..from + 600).map(|name| row(name, 1)).collect::<Vec<_>>();
        add(&mut registry, 0, &THINGS, rows(0));
        add(&mut registry, 0, &THINGS, rows(300));
        add(&mut registry, 0, &THINGS, rows(900)); // 900 to 999 find room
        add(&mut registry, 0, &THINGS, vec![row(1200, 7), row(999, 2)]);
        let series = scraped(&mut registry);
        let count = |name: &str| series.get(&format!("perf_prof_test_total{{thing_name=\"{name}\"}}")).copied();
        assert_eq!((count("299"), count("300"), count("999")), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!((count("1200"), count(OTHERS)), (None, Some(507.0)));
        assert_eq!(series.get("perf_prof_test_now{thing_name=\"<others>\"}"), None, "of which of them?");
        assert_eq!(series["perf_prof_run_table_others_total{table=\"things\"}"], 501.0);
        assert_eq!(series["perf_prof_run_table_series{table=\"things\"}"], 1000.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// No counter goes back, nothing is lost or counted twice, and no series disappears.
        #[test]
        fn counters_only_grow(
            intervals in prop::collection::vec(prop::collection::vec((0_u64..3000, 0_u64..5), 0..700), 1..8),
        ) {
            let mut registry = registry(&["test"]);
            let mut before: BTreeMap<String, f64> = BTreeMap::new();
            let mut all = 0;
            for interval in intervals {
                all += interval.iter().map(|(_, count)| count).sum::<u64>();
                add(&mut registry, 0, &THINGS, interval.into_iter().map(|(name, count)| row(name, count)).collect());
                let after = scraped(&mut registry);
                let only_grows = |name: &&String| name.contains("_total") || name.contains("_seconds_");
                for name in before.keys().filter(only_grows) {
                    prop_assert!(after.get(name) >= before.get(name), "{}", name);
                }
                let sum = |start: &str| after.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, n)| n).sum::<f64>();
                prop_assert_eq!(sum("perf_prof_test_total"), all as f64);
                prop_assert_eq!(sum("perf_prof_test_seconds_count"), all as f64);
                prop_assert!(registry.tables[0].labels.len() <= MAX_SERIES + 1);
                before = after;
            }
        }
    }
}
