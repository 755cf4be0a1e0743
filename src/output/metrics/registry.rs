//! The exported sums: of each table since the start of the run, by labels and function, in bounded memory.
//!
//! Clients compare a scrape with the one before, so a counter must never decrease. A row that found no room is added to
//! the `<others>` row from then on, even if other outputs had room for it; a row with its own series keeps it.

use std::time::Duration;

use crate::output::metrics::family::MetricsSnapshot;
use crate::output::metrics::names::MetricView;
use crate::output::metrics::run::{now, push_run};
use crate::output::metrics::table::{MetricEntry, MetricTable, RowFunction};
use crate::output::metrics::totals::TotalSums;
use crate::output::metrics::{RunMeters, SnapshotCell, ViewMeters};
use crate::report::Rows;

/// The metrics of a run.
#[derive(Debug)]
pub struct MetricsRegistry {
    snapshots: SnapshotCell,
    views: Vec<MetricView>,
    tables: Vec<MetricTable>,
    started: Duration,
    totals: TotalSums,
}

impl MetricsRegistry {
    pub fn new(snapshots: SnapshotCell, views: Vec<MetricView>) -> MetricsRegistry {
        let mut registry =
            MetricsRegistry { snapshots, views, tables: Vec::new(), started: now(), totals: TotalSums::default() };
        registry
            .publish(&RunMeters { views: vec![ViewMeters::default(); registry.views.len()], ..RunMeters::default() });
        registry
    }

    /// Adds the rows of a report. `function`: the function that a row is about.
    pub fn add(&mut self, entry: MetricEntry, rows: &mut dyn Rows, mut function: impl FnMut(usize) -> RowFunction) {
        let MetricEntry { owner, verdict, is_snapshot } = entry;
        let Some(view) = self.views.get(owner) else { return };
        let is_same = |table: &MetricTable| table.owner == owner && table.sums.table() == rows.table();
        let known = self.tables.iter().position(is_same);
        let index = match known {
            Some(index) if !is_snapshot => index,
            known => {
                let table = MetricTable::new(view, entry, rows);
                match known.and_then(|index| self.tables.get_mut(index)) {
                    Some(old) => *old = table, // replaces the previous snapshot
                    None => self.tables.push(table),
                }
                known.unwrap_or(self.tables.len() - 1)
            }
        };
        let Some(table) = self.tables.get_mut(index) else { return };
        table.verdict = table.verdict.max(verdict);
        table.sums.rows().forget_gauges();
        // The greatest rows first, so that they get series of their own.
        for index in rows.order() {
            let site = function(index);
            table.sums.add(rows, index, site);
        }
        table.name_rows(view.name.as_ref());
    }

    /// Publishes a snapshot of all sums.
    pub fn publish(&mut self, meters: &RunMeters) {
        let mut snapshot = MetricsSnapshot::default();
        for (view, meters) in meters.views.iter().enumerate() {
            meters.totals.iter().for_each(|total| self.totals.add(view, total));
        }
        push_run(self.started, &self.views, &self.tables, meters, &mut snapshot.families);
        self.totals.push(&self.views, &mut snapshot.families);
        for table in &mut self.tables {
            table.push(&mut snapshot.families);
        }
        self.snapshots.publish(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::output::metrics::openmetrics::{TextFormat, encode};
    use crate::output::metrics::table::{MAX_SERIES, OTHERS};
    use crate::report::{Column, Schema, TypedRows, Value, Verdict};
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

    fn registry(views: &[&str]) -> MetricsRegistry {
        let several = views.len() > 1;
        let view =
            |name: &&str| MetricView { name: several.then(|| (*name).into()), profiler: "test", main_table: "things" };
        MetricsRegistry::new(SnapshotCell::default(), views.iter().map(view).collect())
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

    /// The series of a text scrape: values by name.
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
        // A gauge that is not in the newest table is unknown.
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
        add(&mut registry, 2, &THINGS, vec![row(1, 4)]); // a view that does not exist
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
        /// No counter decreases, nothing is lost or counted twice, and no series disappears.
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
                prop_assert!(registry.tables[0].series() <= MAX_SERIES);
                before = after;
            }
        }
    }
}
