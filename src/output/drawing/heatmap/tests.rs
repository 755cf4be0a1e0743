//! Both drawings of one map: two labels, losses, a column without values.

use super::*;
use crate::output::drawing::heatmap::times::tests::clock;
use crate::report::{Column, Report, Schema};
use crate::stats::{Distribution, LostWindow};

const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct MapRow {
    task: u64,
    kind: &'static str,
    values: Distribution,
}

static ROWS: Schema<MapRow> = Schema::<MapRow>::new(
    "rows",
    &[
        Column::label("task", "task", |row| Value::Unsigned(row.task)),
        Column::label("kind", "kind", |row| Value::Word(row.kind)),
        Column::<MapRow>::distribution("length_ns", |row| &mut row.values).ns(),
    ],
);

fn row(task: u64, kind: &'static str, values: &[u64]) -> MapRow {
    let mut distribution = Distribution::new();
    values.iter().for_each(|value| distribution.record(*value));
    MapRow { task, kind, values: distribution }
}

/// A writer with ticks of 50 ms.
fn writer(ticks: Vec<Vec<MapRow>>) -> HeatmapWriter {
    let about = DrawingSubject { profiler: "test", subject: "a <b>".to_owned(), events: "x:y".to_owned() };
    let mut writer = HeatmapWriter::new(Heatmap::Svg("a.svg".into()), "mine", about);
    for (end, rows) in (1..).zip(ticks) {
        let mut report = Report::default();
        report.delta(&ROWS, rows);
        writer.add(&mut report.tables[0], end * 50 * MS, 50 * MS);
    }
    writer
}

fn svg_of(writer: &HeatmapWriter) -> String {
    svg::svg(&writer.title(), &writer.maps, &mut DayTimes(&mut clock))
}

fn example() -> HeatmapWriter {
    let mut writer = writer(vec![
        vec![row(1, "<D>", &[20 * MS; 3]), row(2, "<D>", &[20 * MS, 300 * MS]), row(1, "R", &[1_000])],
        vec![],
        vec![row(2, "R", &[0, 2_000])],
    ]);
    let lost_windows = vec![LostWindow { cpu: 0, start_ns: 101 * MS, end_ns: 102 * MS, count: 7 }];
    writer.interval(&IntervalEnd { samples: 90, lost: 7, discarded: 2, lost_windows, ..IntervalEnd::default() });
    writer
}

#[test]
fn an_svg_has_a_panel_for_each_label() {
    let svg = svg_of(&example());
    assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"), "{svg}");
    let has = |words: &str| assert!(svg.contains(words), "{words} in {svg}");
    has(">perf-prof test (mine): a &lt;b&gt;, x:y<");
    has(">90 events, 7 lost, 2 waits discarded<");
    has(">rows, length_ns: 8 values of 4 rows<");
    has(">2026-11-20 10:00:00 to 2026-11-20 10:00:00, 150.0ms, 3 columns of about 50.0ms<");
    assert!(svg.find(">kind &lt;D&gt;: 5 values<") < svg.find(">kind R: 3 values<"), "the heaviest first: {svg}");
    assert_eq!(svg.matches("class=\"panel\"").count(), 2);
    assert_eq!(svg.matches("<g data-start-ns=\"0\" data-end-ns=\"50000000\">").count(), 2);
    assert_eq!(svg.matches("<g data-start-ns=\"100000000\" data-end-ns=\"150000000\">").count(), 1);
    assert_eq!(svg.matches("<g data-start-ns").count(), 3, "a column without values has no cells");
    assert_eq!(svg.matches("10:00:00.100 to 10:00:00.150: records were lost").count(), 2);
    assert_eq!(svg.matches("class=\"losses\"").count(), 2);
    let cells: Vec<&str> = svg.split("class=\"c s").skip(1).filter_map(|cell| cell.split('>').nth(2)).collect();
    assert_eq!(cells.len(), 5, "{svg}");
    assert!(cells[0].starts_with("10:00:00.000 to 10:00:00.050, ") && cells[0].contains("ms: 4<"), "{cells:?}");
    assert!(cells[3].starts_with("10:00:00.100 to 10:00:00.150, 0ns: 1<"), "{cells:?}");
    for label in ["10ms", "100ms", "1us", "time of day", "10:00:00.100"] {
        has(&format!(">{label}<"));
    }
    let quiet = svg_of(&writer(vec![vec![], vec![]]));
    assert!(quiet.contains("nothing was seen") && !quiet.contains("panel"), "{quiet}");
    assert!(svg_of(&writer(Vec::new())).ends_with("</svg>\n"));
}

#[test]
fn a_browser_gets_a_limited_number_of_cells() {
    let all: Vec<u64> = (0..60).flat_map(|bit| [1_u64 << bit, 3 << bit]).collect();
    let kinds = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let tick = || kinds.iter().map(|kind| row(1, kind, &all)).collect();
    let svg = svg_of(&writer((0..600).map(|_| tick()).collect()));
    assert!(svg.len() < 8 << 20, "{} bytes", svg.len());
    assert!(svg.contains(">others, 3 values of kind: "), "of the least ones");
    assert_eq!(svg.matches("class=\"panel\"").count(), 8);
}

#[test]
fn text_has_blocks() {
    let writer = example();
    let mut clock = clock;
    let lines = text::text(&writer.maps[0], 40, 8, &mut DayTimes(&mut clock));
    let grid = |title: &str| -> Vec<String> {
        let rows = lines.iter().skip_while(|line| !line.starts_with(title)).skip(1);
        let rows = rows.take_while(|line| line.contains('│'));
        rows.filter_map(|line| line.split_once('│')).map(|(_, row)| row.trim_end().to_owned()).collect()
    };
    assert_eq!(lines[0], "rows, length_ns: 8 values of 4 rows");
    let of_d: Vec<String> = grid("kind <D>: 5 values").into_iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(of_d, ["▒", "█"], "{lines:#?}");
    let of_r = grid("kind R: 3 values");
    assert_eq!(of_r.last().map(String::as_str), Some("  █"), "the lowest row is for 0: {lines:#?}");
    assert!((2..=8).contains(&of_r.len()), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "    lost   !"), "{lines:#?}");
    let all = writer.text(&mut clock);
    assert_eq!(all[0], "90 events, 7 lost, 2 waits discarded");
    for width in [0, 1, 17, 80, 1000] {
        for height in [0, 1, 2, 50] {
            let lines = text::text(&writer.maps[0], width, height, &mut DayTimes(&mut clock));
            assert!(lines.iter().filter(|line| line.contains('│')).all(|line| line.chars().count() <= width.max(16)));
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_once_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.svg");
    let about = DrawingSubject { profiler: "test", subject: String::new(), events: String::new() };
    let mut writer = HeatmapWriter::new(Heatmap::Svg(path.clone()), "test", about);
    let mut write = |last| {
        if let Some(file) = &mut writer.file {
            *file = DrawingFile::new(&path, WHAT); // a new file is due at once
        }
        writer.write(&SinkProgress::default(), &mut clock, last)
    };
    assert!(write(false).is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!([write(false), write(false), write(true)].map(|written| written.is_err()), [true, false, true]);
    std::fs::remove_dir(&path).unwrap();
    assert!(write(false).is_ok() && path.is_file());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(write(false).is_err(), "again");
}
