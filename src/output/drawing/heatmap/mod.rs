//! Heat maps: the values of a distribution over time, as a self-contained SVG, or as text.
//!
//! `columns` keeps the distributions, in bounded memory; `svg` and `text` draw them, with the scales of `scale` and the
//! axis of `times`.

mod columns;
mod scale;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod times;

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io;
use std::time::Duration;

use anyhow::Result;
use rustc_hash::{FxHashSet, FxHasher};

use crate::destination::Heatmap;
use crate::digits::format_ns;
use crate::escape::escape;
use crate::output::IntervalEnd;
use crate::output::drawing::heatmap::columns::{Panel, TimeColumns};
use crate::output::drawing::heatmap::times::DayTimes;
use crate::output::drawing::{DrawingFile, DrawingSubject};
use crate::output::sink::SinkProgress;
use crate::report::value_text::cell;
use crate::report::{ColumnKind, Rows, Table, Unit, Value};

/// Interval at which tables are reported: ten stalls in a second are ten separate columns.
pub const TICK: Duration = Duration::from_millis(50);
/// Limit of the pictures of one table; the labels with fewest values share the last one.
const MAX_PANELS: usize = 8;
/// Limit of the heat maps of one profiler.
const MAX_MAPS: usize = 8;
/// Limit of the rows that are distinguished by name, to count them.
const MAX_ROWS: usize = 10_000;
/// The name of the drawing in messages.
const WHAT: &str = "heat map";

/// Checks before the run that the file can be written at its end.
///
/// # Errors
/// The file cannot be written.
pub fn check(map: &Heatmap) -> Result<()> {
    map.path().map_or(Ok(()), |path| DrawingFile::check(path, WHAT))
}

/// The values of one column of a table.
#[derive(Debug)]
pub struct ValueMap {
    table: &'static str,
    /// Key of the column.
    key: Cow<'static, str>,
    unit: Unit,
    /// Key of the label that panels stand for: `state`. None: the rows have no labels.
    label: Option<Cow<'static, str>>,
    columns: TimeColumns,
    /// Hashes of the names of the rows.
    rows: FxHashSet<u64>,
}

impl ValueMap {
    /// Adds a tick: the rows of a table that covers the `span_ns` before `end_ns`.
    fn tick(&mut self, rows: &mut dyn Rows, column: usize, end_ns: u64, span_ns: u64) {
        self.columns.tick(end_ns.saturating_sub(span_ns), end_ns);
        for at in 0..rows.len() {
            if rows.distribution(at, column).is_none_or(|values| values.is_empty()) {
                continue;
            }
            let mut labels = rows.labels(at);
            if self.rows.len() < MAX_ROWS {
                self.rows.insert(BuildHasherDefault::<FxHasher>::default().hash_one(&labels));
            }
            // The last label is the most general one: earlier ones name a task.
            let label = labels.pop().unwrap_or(Value::None);
            if let Some(values) = rows.distribution(at, column) {
                self.columns.add(label, values);
            }
        }
    }

    fn title(&self, times: &mut DayTimes<'_>) -> Vec<String> {
        let values = self.columns.panels(1).first().map_or(0, Panel::total);
        let more = if self.rows.len() < MAX_ROWS { "" } else { " or more" };
        let (rows, s) = (self.rows.len(), if self.rows.len() == 1 { "" } else { "s" });
        let what = format!("{}, {}: {} of {rows} row{s}{more}", self.table, self.key, number_of(values));
        let span = self.columns.span_ns().map(|(start_ns, end_ns)| {
            let (count, span_ns) = (self.columns.times().len(), end_ns.saturating_sub(start_ns));
            let each_ns = span_ns / (count as u64).max(1);
            let (start, end) = (times.second(start_ns), times.second(end_ns));
            format!("{start} to {end}, {}, {count} columns of about {}", format_ns(span_ns), format_ns(each_ns))
        });
        [what].into_iter().chain(span).collect()
    }

    fn panel_title(&self, panel: &Panel) -> String {
        let label = match (&panel.label, &self.label) {
            (Some(label), Some(heading)) => format!("{heading} {}: ", cell(label)),
            (None, Some(heading)) if panel.or_more => {
                format!("others, {heading} has {} values or more: ", panel.labels)
            }
            (None, Some(heading)) => format!("others, {} values of {heading}: ", panel.labels),
            (_, None) => String::new(),
        };
        format!("{label}{}", number_of(panel.total()))
    }
}

fn number_of(values: u64) -> String {
    format!("{values} value{}", if values == 1 { "" } else { "s" })
}

/// Keeps the heat maps of a view, and writes them at the end of the run, and now and then during the run.
#[derive(Debug)]
pub struct HeatmapWriter {
    name: String,
    about: DrawingSubject,
    /// None: text.
    file: Option<DrawingFile>,
    maps: Vec<ValueMap>,
    events: u64,
    lost: u64,
    discarded: u64,
    /// It was reported that the file cannot be written.
    failed: bool,
}

impl HeatmapWriter {
    /// `name`: the name of the view.
    pub fn new(map: Heatmap, name: &str, about: DrawingSubject) -> HeatmapWriter {
        let file = map.path().map(|path| DrawingFile::new(path, WHAT));
        let (name, maps) = (name.to_owned(), Vec::new());
        HeatmapWriter { name, about, file, maps, events: 0, lost: 0, discarded: 0, failed: false }
    }

    pub fn is_text(&self) -> bool {
        self.file.is_none()
    }

    /// Adds the values of a table that covers the `span_ns` before `end_ns`.
    pub fn add(&mut self, table: &mut Table, end_ns: u64, span_ns: u64) {
        if table.is_snapshot {
            return;
        }
        let heads = table.rows.columns();
        let label = heads.iter().rfind(|head| head.kind == ColumnKind::Label).map(|head| head.heading.clone());
        let values = heads.iter().enumerate().filter(|(_, head)| head.kind == ColumnKind::Distribution);
        for (column, head) in values {
            let (name, key) = (table.rows.table(), &head.key);
            let known = self.maps.iter().position(|map| (map.table, &map.key) == (name, key));
            if known.is_none() && self.maps.len() >= MAX_MAPS {
                continue;
            }
            let map = match known.and_then(|at| self.maps.get_mut(at)) {
                Some(map) => map,
                None => {
                    let (columns, rows) = (TimeColumns::default(), FxHashSet::default());
                    let (key, label) = (key.clone(), label.clone());
                    self.maps.push_mut(ValueMap { table: name, key, unit: head.unit, label, columns, rows })
                }
            };
            map.tick(&mut *table.rows, column, end_ns, span_ns);
        }
    }

    /// Marks what was lost in an interval whose tables were added before.
    pub fn interval(&mut self, end: &IntervalEnd) {
        self.events = self.events.saturating_add(end.samples);
        self.lost = self.lost.saturating_add(end.lost);
        self.discarded = self.discarded.saturating_add(end.discarded);
        let windows = end.lost_windows.iter().map(|window| (window.start_ns, window.end_ns));
        // A kernel may report that records were lost, but not when.
        let whole = (end.lost > 0 && end.lost_windows.is_empty()).then_some((end.start_ns, end.end_ns));
        for (start_ns, end_ns) in windows.chain(whole) {
            self.maps.iter_mut().for_each(|map| map.columns.lose(start_ns, end_ns));
        }
    }

    fn title(&self) -> Vec<String> {
        let DrawingSubject { profiler, subject, events } = &self.about;
        let name = if self.name == *profiler { String::new() } else { format!(" ({})", escape(self.name.as_bytes())) };
        let losses = format!("{} events, {} lost, {} waits discarded", self.events, self.lost, self.discarded);
        vec![format!("perf-prof {profiler}{name}: {subject}, {events}"), losses]
    }

    /// The maps as text.
    pub fn text(&self, clock: &mut dyn FnMut(u64) -> String) -> Vec<String> {
        const WIDTH: usize = 80;
        const HEIGHT: usize = 12;
        let maps = self.maps.iter().flat_map(|map| text::text(map, WIDTH, HEIGHT, &mut DayTimes(clock)));
        self.title().into_iter().skip(1).chain(maps).collect()
    }

    /// Writes the file: at the `last` report always, at earlier ones if enough time has passed. `waits` shows the
    /// reading thread that a write is in progress.
    ///
    /// # Errors
    /// The file cannot be written. Before the last report only the first failure is an error.
    pub fn write(&mut self, waits: &SinkProgress, clock: &mut dyn FnMut(u64) -> String, last: bool) -> io::Result<()> {
        let title = self.title();
        let Some(file) = self.file.as_mut().filter(|file| last || file.is_due()) else { return Ok(()) };
        let draw = || svg::svg(&title, &self.maps, &mut DayTimes(clock)).into_bytes();
        let written = file.write(waits, draw, Ok);
        let was_told = std::mem::replace(&mut self.failed, written.is_err());
        written.or_else(|err| if was_told && !last { Ok(()) } else { Err(err) })
    }
}
