//! A cell of a kind that is defined only in this test, in the output of each reader.

use std::sync::Arc;

use super::settings;
use crate::json::{Object, push_list, push_unsigned};
use crate::output::metrics::names::MetricView;
use crate::output::metrics::{MetricEntry, MetricsRegistry, RowFunction, SnapshotCell};
use crate::output::screen::tables;
use crate::output::sink::Sink;
use crate::output::table::TableLine;
use crate::output::text;
use crate::output::writer::Writer;
use crate::report::layout::detail;
use crate::report::{
    Batch, Cell, CellLookUps, Column, Detail, OccurrenceSchema, Rows, Schema, Subject, TypedRows, Value, Verdict,
};
use crate::task::Comm;

/// A made-up cell: doors, of which the output thread looks up whether they are open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Doors {
    numbers: Vec<u64>,
    is_open: Option<bool>,
}

impl Cell for Doors {
    fn text(&self, out: &mut Vec<u8>) {
        let state = if self.is_open == Some(true) { "open" } else { "shut" };
        out.extend_from_slice(format!("{:?} are {state}", self.numbers).as_bytes());
    }

    fn brief(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{} doors", self.numbers.len()).as_bytes());
    }

    fn json(&self, out: &mut Vec<u8>) {
        let mut object = Object::new(out);
        push_list(self.numbers.iter(), object.key("doors"), |number, out| push_unsigned(*number, out));
        self.is_open.iter().for_each(|is_open| object.bool("open", *is_open));
        object.end();
    }

    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let is_open = look_ups.file(-1, 0).is_none();
        Some(Value::cell(Doors { is_open: Some(is_open), ..self.clone() }))
    }
}

fn doors(numbers: &[u64]) -> Value {
    Value::cell(Doors { numbers: numbers.to_vec(), is_open: None })
}

static VISITS: OccurrenceSchema<Vec<u64>> =
    OccurrenceSchema::<Vec<u64>>::new(&[Detail::new("at", |numbers| doors(numbers))], &[detail("at")]);

static HOUSES: Schema<(Vec<u64>, u64)> = Schema::<(Vec<u64>, u64)>::new(
    "houses",
    &[
        Column::label("doors", "doors", |row| doors(&row.0)),
        Column::<(Vec<u64>, u64)>::counter("visits", "visits", |row| &mut row.1),
    ],
);

fn written(json: bool) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let sink = Sink::file(file.path()).unwrap();
    let mut writer = Writer::new(settings(json), sink, Default::default(), crossbeam_channel::bounded(1).0);
    let mut batch = Batch::default();
    let subject = Subject { time: 0, cpu: 1, pid: 7, tid: 8, comm: Comm::new(b"cat") };
    batch.add(&VISITS, subject, &vec![3, 4], None);
    writer.batch(&mut batch).unwrap();
    writer.outlet.sink.flush().unwrap();
    std::fs::read_to_string(file.path()).unwrap()
}

#[test]
fn a_line_has_what_was_looked_up() {
    let line = written(false);
    assert!(line.ends_with(" [3, 4] are open\n"), "{line:?}");
    let object: serde_json::Value = serde_json::from_str(&written(true)).unwrap();
    assert_eq!(object["at"], serde_json::json!({"doors": [3, 4], "open": true}), "{object}");
}

#[test]
fn tables_have_the_brief_text() {
    let rows = vec![(vec![3, 4], 5), (vec![9], 6), (vec![3, 4], 1)];
    let mut rows = TypedRows::new(&HOUSES, rows);
    let columns = rows.columns();
    let lines: Vec<TableLine> = (0..2).map(|at| TableLine::plain(rows.cells(at, 1))).collect();
    let mut out = Vec::new();
    text::table(&columns, &lines, |_| Vec::new(), &mut Vec::new(), &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "doors   visits\n2 doors      5\n1 doors      6\n");
    let screen = tables::table(&columns, &lines, |_| None);
    assert!(screen.columns[0].is_left && &*screen.rows[0].cells[0].text == "2 doors");

    let snapshots = SnapshotCell::default();
    let mut metrics =
        MetricsRegistry::new(snapshots.clone(), vec![MetricView { name: None, profiler: "test", main_table: "all" }]);
    let entry = MetricEntry { owner: 0, verdict: Verdict::Exact, is_snapshot: false };
    metrics.add(entry, &mut rows, |_| RowFunction::default());
    metrics.publish(&Default::default());
    let family = snapshots.get();
    let family = family.families.iter().find(|family| family.name.ends_with("_visits")).unwrap();
    let labels: Vec<&Arc<str>> = family.points.iter().map(|point| &point.labels[0].1).collect();
    assert_eq!(labels, [&"2 doors".into(), &"1 doors".into()], "equal cells are one row");
}
