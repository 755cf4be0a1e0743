//! One table as metrics: which columns are exported and how, the sums of the rows, and the labels of their series.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::output::metrics::family::{FamilyKind, LabelSet, MetricFamily, MetricPoint, MetricUnit, MetricValue};
use crate::output::metrics::names::{self, MetricView};
use crate::report::{ColumnHead, ColumnKind, RowSite, RowSums, Rows, Value, Verdict, value_text};

/// Limit of the rows of a table that have series of their own.
pub const MAX_SERIES: usize = 1_000;
/// Limit of the total size of their names, in bytes.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The value of all labels of the row that sums up all others.
pub const OTHERS: &str = "<others>";

/// The sums of a table since the start of the run, and how they are exported.
#[derive(Debug)]
pub struct MetricTable {
    pub owner: usize,
    pub sums: RowSums<RowFunction>,
    /// The worst verdict since the start; for a snapshot the last verdict.
    pub verdict: Verdict,
    columns: Vec<MetricColumn>,
    /// The labels of the rows, in the order of the rows.
    labels: Vec<LabelSet>,
    used: FxHashSet<LabelSet>,
}

/// A column that is exported.
#[derive(Debug)]
struct MetricColumn {
    index: usize,
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
    /// The callers of the function. None: the table is about places, without their callers.
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

impl MetricTable {
    pub fn new(view: &MetricView, entry: MetricEntry, rows: &dyn Rows) -> MetricTable {
        let MetricEntry { owner, verdict, is_snapshot } = entry;
        let table = Some(rows.table()).filter(|table| *table != view.main_table);
        let column = |(index, head): (usize, ColumnHead)| {
            let meaning = rows.meaning(&head.key);
            let (kind, unit) = match names::kind(&head, is_snapshot) {
                Some(kind) => (kind, names::unit(&head)),
                // A word in a snapshot: the present state of something.
                None if is_snapshot && head.kind == ColumnKind::Derived => (FamilyKind::Gauge, MetricUnit::None),
                None => return None,
            };
            // A column that is neither shown nor explained is internal.
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
            Some(MetricColumn { index, head, name: name.into(), kind, unit, help: help.into() })
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
    pub fn name_rows(&mut self, view: Option<&Arc<str>>) {
        let others = self.sums.others().map(|others| others.index);
        let rows = self.sums.rows();
        let columns: Vec<ColumnHead> = rows.columns();
        let label_columns: Vec<&ColumnHead> = columns.iter().filter(|head| head.kind == ColumnKind::Label).collect();
        let values: Vec<(usize, Vec<Value>)> =
            (self.labels.len()..rows.len()).map(|index| (index, rows.labels(index))).collect();
        for (index, values) in values {
            let is_others = others == Some(index);
            let mut labels: Vec<(Arc<str>, Arc<str>)> = Vec::new();
            labels.extend(view.map(|view| ("view".into(), view.clone())));
            // Columns that only text has repeat other columns in words.
            for (head, value) in label_columns.iter().zip(values).filter(|(head, _)| head.in_json) {
                match value {
                    _ if is_others => labels.push((names::label(&head.key).into(), OTHERS.into())),
                    // A time as label would make a new series for each value.
                    Value::None | Value::Moment(_) => {}
                    value => labels.push((names::label(&head.key).into(), value_text::cell(&value).into())),
                }
            }
            let RowFunction { innermost, callers } = self.sums.site(index).cloned().unwrap_or_default();
            for (key, text) in [("function", innermost), ("callers", callers)] {
                let told = |text| if is_others { OTHERS.into() } else { text };
                labels.extend(text.map(|text| (key.into(), told(text))));
            }
            labels.sort();
            let mut set: LabelSet = labels.as_slice().into();
            if self.used.contains(&set) {
                // Two rows may differ only in columns that are left out here, so a number is added.
                labels.push(("row".into(), index.to_string().into()));
                labels.sort();
                set = labels.into();
            }
            self.used.insert(set.clone());
            self.labels.push(set);
        }
    }

    pub fn push(&mut self, families: &mut Vec<MetricFamily>) {
        let others = self.sums.others().map(|others| others.index);
        for column in &self.columns {
            let rows = self.sums.rows();
            let mut points = Vec::with_capacity(rows.len());
            for (index, labels) in self.labels.iter().enumerate() {
                // A gauge keeps only the newest of several values, which is meaningless for a sum of rows.
                if others == Some(index) && column.head.kind == ColumnKind::Gauge {
                    continue;
                }
                points.extend(column.point(rows, index, labels));
            }
            if points.is_empty() && column.kind == FamilyKind::Gauge {
                continue;
            }
            // Two views of one profiler share a family.
            match families.iter_mut().find(|family| family.name == column.name) {
                Some(family) => family.points.append(&mut points),
                None => {
                    families.push(column.family(column.name.clone(), column.unit, points));
                }
            }
        }
        self.push_native(families);
    }

    /// Adds the distributions once more in their stored unit, in which they can be native histograms.
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

    /// None: the value is unknown.
    fn point(&self, rows: &mut dyn Rows, index: usize, labels: &LabelSet) -> Option<MetricPoint> {
        let labels = labels.clone();
        if self.kind == FamilyKind::Histogram {
            let values = rows.distribution(index, self.index)?.clone();
            return Some(MetricPoint { labels, value: MetricValue::Distribution(Arc::new(values)) });
        }
        let number = match rows.cell(index, self.index, 0) {
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
        // A derived number of a snapshot follows from others, or is meaningless as a number.
        (self.head.kind != ColumnKind::Derived).then_some(MetricPoint { labels, value: MetricValue::Number(number) })
    }
}
