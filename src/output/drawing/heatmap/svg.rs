//! A heat map as an SVG that needs no other file: time across, value up, darkness by count.

use std::fmt::Write as _;

use crate::output::drawing::heatmap::columns::{ColumnTime, Panel};
use crate::output::drawing::heatmap::scale::{CountShades, ValueScale};
use crate::output::drawing::heatmap::times::{DayTimes, time_labels};
use crate::output::drawing::heatmap::{MAX_PANELS, ValueMap};

/// The lightest shade first.
const SHADES: [&str; 6] = ["#d6e6f4", "#abd0e6", "#6aaed6", "#3787c0", "#105ba4", "#08306b"];

// In pixels.
const LEFT: f64 = 90.0;
const PLOT: f64 = 1000.0;
const WIDTH: f64 = LEFT + PLOT + 130.0;
const LINE: f64 = 18.0;
const ROW: f64 = 6.0;
const PAD: f64 = 10.0;

/// Rows of a panel: the first number that keeps the cells within `MAX_CELLS`.
const ROWS: [usize; 3] = [40, 20, 10];
/// Limit of the cells of a panel, which a browser must draw.
const MAX_CELLS: usize = 6_000;

/// The drawing of some tables, under the lines of `title`.
pub fn svg(title: &[String], maps: &[ValueMap], times: &mut DayTimes<'_>) -> String {
    let mut body = String::new();
    let mut y = PAD;
    for line in title {
        y += LINE;
        text(&mut body, (PAD, y), "", line);
    }
    for map in maps {
        let drawn = MapDrawing::new(map, times);
        y = drawn.map_or(y, |drawn| drawn.push(y + PAD, times, &mut body));
    }
    let shades = SHADES.iter().enumerate().map(|(at, colour)| format!(".s{at}{{fill:{colour}}}")).collect::<String>();
    let height = y + PAD;
    format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n<svg version=\"1.1\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n<style>text{{font:12px monospace;\
         fill:#222}}.e{{text-anchor:end}}.m{{text-anchor:middle}}.b{{fill:#fff}}.f{{fill:none;stroke:#888}}\
         .g{{stroke:#ddd}}.lost{{fill:#fbd5d5}}.mark{{fill:#d62728}}rect.c:hover{{stroke:#000}}{shades}</style>\n\
         <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
}

fn text(out: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(words));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What the panels of a table have in common.
struct MapDrawing<'a> {
    map: &'a ValueMap,
    columns: Vec<DrawnColumn>,
    start_ns: u64,
    end_ns: u64,
}

/// A column, its position in the drawing, and the text of its time.
struct DrawnColumn {
    time: ColumnTime,
    x: f64,
    width: f64,
    words: String,
}

impl<'a> MapDrawing<'a> {
    fn new(map: &'a ValueMap, times: &mut DayTimes<'_>) -> Option<MapDrawing<'a>> {
        let (start_ns, end_ns) = map.columns.span_ns()?;
        let scale = PLOT / (end_ns - start_ns).max(1) as f64;
        let x = |ns: u64| LEFT + ns.saturating_sub(start_ns) as f64 * scale;
        let column = |time: ColumnTime| {
            let words = format!("{} to {}", times.millis(time.start_ns), times.millis(time.end_ns));
            DrawnColumn { time, x: x(time.start_ns), width: (x(time.end_ns) - x(time.start_ns)).max(1.0), words }
        };
        Some(MapDrawing { map, columns: map.columns.times().map(column).collect(), start_ns, end_ns })
    }

    /// Draws the map below `y`. Returns the lower end of the drawing.
    fn push(&self, mut y: f64, times: &mut DayTimes<'_>, out: &mut String) -> f64 {
        for line in self.map.title(times) {
            y += LINE;
            text(out, (PAD, y), "", &line);
        }
        let panels = self.map.columns.panels(MAX_PANELS);
        for panel in &panels {
            y = self.panel(panel, y + PAD, out);
        }
        if panels.is_empty() {
            y += LINE;
            text(out, (LEFT, y), "", "nothing was seen");
            return y;
        }
        for (ns, words) in time_labels(self.start_ns, self.end_ns, times) {
            let x = LEFT + (ns - self.start_ns) as f64 * PLOT / (self.end_ns - self.start_ns).max(1) as f64;
            let _ = writeln!(out, "<path class=\"f\" d=\"M{x:.1} {y:.1}v5\"/>");
            text(out, (x, y + LINE), "m", &words);
        }
        // Below the time labels, the last of which may extend beyond the plot.
        text(out, (LEFT + PLOT + PAD, y + 2.0 * LINE), "", "time of day");
        y + 3.0 * LINE
    }

    fn panel(&self, panel: &Panel, y: f64, out: &mut String) -> f64 {
        let scales = ROWS.iter().map(|rows| ValueScale::of(panel, *rows));
        let cells = |scale: &ValueScale| panel.counts.iter().map(|counts| scale.cells(counts).len()).sum::<usize>();
        let mut scales = scales.map(|scale| (cells(&scale), scale));
        let Some((_, scale)) = scales
            .find(|(cells, _)| *cells <= MAX_CELLS)
            .or_else(|| ROWS.last().map(|rows| (0, ValueScale::of(panel, *rows))))
        else {
            return y;
        };
        let top = y + LINE;
        let height = scale.rows() as f64 * ROW;
        text(out, (LEFT, y + LINE - 5.0), "", &self.map.panel_title(panel));
        let _ = writeln!(
            out,
            "<g class=\"panel\">\n<rect class=\"f\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{PLOT}\" height=\"{height:.1}\"/>"
        );
        self.losses(top, height, out);
        for (position, words) in scale.labels(self.map.unit) {
            let at = top + height - position * ROW;
            let _ = writeln!(out, "<path class=\"g\" d=\"M{LEFT} {at:.1}h{PLOT}\"/>");
            text(out, (LEFT - 5.0, at + 4.0), "e", &words);
        }
        let all = self.columns.iter().zip(&panel.counts).map(|(column, counts)| (column, scale.cells(counts)));
        let drawn: Vec<(&DrawnColumn, Vec<(usize, u64)>)> = all.filter(|(_, cells)| !cells.is_empty()).collect();
        let most = drawn.iter().flat_map(|(_, cells)| cells).map(|(_, count)| *count).max().unwrap_or(0);
        let shades = CountShades::new(most, SHADES.len());
        for (column, cells) in &drawn {
            let DrawnColumn { time, x, width, words } = column;
            let _ = writeln!(out, "<g data-start-ns=\"{}\" data-end-ns=\"{}\">", time.start_ns, time.end_ns);
            for (row, count) in cells {
                let at = top + height - (row + 1) as f64 * ROW;
                let values = scale.words(*row, self.map.unit);
                let _ = writeln!(
                    out,
                    "<rect class=\"c s{}\" x=\"{x:.1}\" y=\"{at:.1}\" width=\"{width:.1}\" height=\"{ROW}\"><title>{words}, \
                     {values}: {count}</title></rect>",
                    shades.shade(*count),
                );
            }
            out.push_str("</g>\n");
        }
        let mut at = top;
        for (shade, words) in shades.legend() {
            let x = LEFT + PLOT + PAD;
            let _ = writeln!(out, "<rect class=\"s{shade}\" x=\"{x}\" y=\"{at:.1}\" width=\"12\" height=\"12\"/>");
            text(out, (x + 18.0, at + 11.0), "", &words);
            at += 15.0;
        }
        out.push_str("</g>\n");
        top + height.max(15.0 * SHADES.len() as f64)
    }

    /// Marks the columns in which records were lost.
    fn losses(&self, top: f64, height: f64, out: &mut String) {
        for DrawnColumn { x, width, words, .. } in self.columns.iter().filter(|column| column.time.has_losses) {
            let _ = writeln!(
                out,
                "<g class=\"losses\"><title>{words}: records were lost</title><rect class=\"lost\" x=\"{x:.1}\" \
                 y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/><rect class=\"mark\" x=\"{x:.1}\" y=\"{:.1}\" \
                 width=\"{width:.1}\" height=\"4\"/></g>",
                top - 4.0,
            );
        }
    }
}
