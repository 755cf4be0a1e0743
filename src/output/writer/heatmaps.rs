//! Heat maps: they get the values of each table, and are drawn with the reports.

use std::io::{self, Write};

use crate::escape::escape;
use crate::output::IntervalEnd;
use crate::output::wall::WallClock;
use crate::output::writer::Writer;
use crate::report::Table;

impl Writer {
    /// Adds the values of a table that tells of a time of `span_ns` up to `end_ns`.
    pub fn map_values(&mut self, table: &mut Table, end_ns: u64, span_ns: u64) {
        if let Some(map) = self.views.get_mut(table.owner).and_then(|view| view.settings.heatmap.as_mut()) {
            map.add(table, end_ns, span_ns);
        }
    }

    /// Marks what was lost in an interval, and draws the map again if it is time. The run goes on if that fails.
    pub fn map_interval(&mut self, end: &IntervalEnd) -> io::Result<()> {
        let (waits, wall) = (self.outlet.sink.waits(), &mut self.outlet.wall);
        let Some(view) = self.views.get_mut(end.view) else { return Ok(()) };
        let Some(map) = &mut view.settings.heatmap else { return Ok(()) };
        map.interval(end);
        match map.write(&waits, &mut |ns| time_text(wall, ns), false) {
            Ok(()) => Ok(()),
            Err(err) => {
                let line = format!("{}: {err}; it is tried again", view.settings.name);
                self.note(&line)
            }
        }
    }

    /// Prints the maps that are text.
    pub(super) fn print_heatmaps(&mut self, time_ns: u64) -> io::Result<()> {
        let (out, wall) = (&mut self.outlet.sink.buffer, &mut self.outlet.wall);
        for view in &self.views {
            let Some(map) = view.settings.heatmap.as_ref().filter(|map| map.is_text()) else { continue };
            wall.text(time_ns, out);
            let _ = writeln!(out, " {}, heat map", escape(view.settings.name.as_bytes()));
            map.text(&mut |ns| time_text(wall, ns)).iter().for_each(|line| drop(writeln!(out, "{line}")));
        }
        self.outlet.sink.flush_large()
    }

    /// Draws the maps for the last time.
    ///
    /// # Errors
    /// A file cannot be written: that of the first map that could not.
    pub fn draw_heatmaps(&mut self) -> io::Result<()> {
        let (waits, wall) = (self.outlet.sink.waits(), &mut self.outlet.wall);
        let mut drawn = Ok(());
        for map in self.views.iter_mut().filter_map(|view| view.settings.heatmap.as_mut()) {
            drawn = drawn.and(map.write(&waits, &mut |ns| time_text(wall, ns), true));
        }
        drawn
    }
}

fn time_text(wall: &mut WallClock, ns: u64) -> String {
    let mut text = Vec::new();
    wall.text(ns, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
