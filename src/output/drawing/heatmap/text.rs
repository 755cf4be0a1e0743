//! A heat map as lines of text.

use crate::output::drawing::heatmap::columns::{Panel, SparseCounts};
use crate::output::drawing::heatmap::scale::{CountShades, ValueScale};
use crate::output::drawing::heatmap::times::DayTimes;
use crate::output::drawing::heatmap::{MAX_PANELS, ValueMap};

/// The lightest shade first.
const BLOCKS: [char; 4] = ['░', '▒', '▓', '█'];
/// Width of the labels of the value axis, in characters.
const LABEL: usize = 8;
const LEAST_WIDTH: usize = 2 * LABEL;

/// The map in lines of up to `width` characters, each panel with up to `height` rows. A column whose time had losses has
/// a `!` below it.
pub fn text(map: &ValueMap, width: usize, height: usize, times: &mut DayTimes<'_>) -> Vec<String> {
    let mut lines = map.title(times);
    let Some((start_ns, end_ns)) = map.columns.span_ns() else { return lines };
    let plot = width.max(LEAST_WIDTH) - LABEL - 1;
    let joined = map.columns.times().len().div_ceil(plot).max(1);
    let losses: Vec<bool> = map.columns.times().map(|time| time.has_losses).collect();
    let losses: String = losses.chunks(joined).map(|some| if some.contains(&true) { '!' } else { ' ' }).collect();
    let panels = map.columns.panels(MAX_PANELS);
    for panel in &panels {
        lines.push(map.panel_title(panel));
        lines.extend(rows(map, panel, joined, height));
    }
    if panels.is_empty() {
        lines.push("nothing was seen".to_owned());
        return lines;
    }
    if losses.contains('!') {
        lines.push(format!("{:>LABEL$} {losses}", "lost").trim_end().to_owned());
    }
    let (start, end) = (times.millis(start_ns), times.millis(end_ns));
    let gap = losses.chars().count().saturating_sub(start.len() + end.len()).max(1);
    lines.push(format!("{:LABEL$} {start}{:gap$}{end}", "", ""));
    lines
}

/// The rows of a panel, from above.
fn rows(map: &ValueMap, panel: &Panel, joined: usize, height: usize) -> Vec<String> {
    let counts = panel.counts.chunks(joined).map(|some| {
        let mut sum = SparseCounts::default();
        some.iter().for_each(|counts| sum.add(counts));
        sum
    });
    let scale = ValueScale::of(panel, height.max(2));
    let columns: Vec<Vec<(usize, u64)>> = counts.map(|counts| scale.cells(&counts)).collect();
    let most = columns.iter().flatten().map(|(_, count)| *count).max().unwrap_or(0);
    let shades = CountShades::new(most, BLOCKS.len());
    let mut grid = vec![vec![' '; columns.len()]; scale.rows()];
    for (at, cells) in columns.iter().enumerate() {
        for (row, count) in cells {
            if let Some(place) = grid.get_mut(*row).and_then(|row| row.get_mut(at)) {
                *place = BLOCKS.get(shades.shade(*count)).copied().unwrap_or(' ');
            }
        }
    }
    let mut labels = vec![String::new(); scale.rows()];
    for (position, text) in scale.labels(map.unit) {
        if let Some(label) = labels.get_mut(position as usize) {
            *label = text;
        }
    }
    let line = |(label, row): (String, Vec<char>)| {
        let row: String = row.into_iter().collect();
        format!("{label:>LABEL$}│{row}").trim_end().to_owned()
    };
    let mut lines: Vec<String> = labels.into_iter().zip(grid).map(line).rev().collect();
    let legend: Vec<String> = shades
        .legend()
        .map(|(shade, words)| format!("{} {words}", BLOCKS.get(shade).copied().unwrap_or(' ')))
        .collect();
    lines.push(format!("{:>LABEL$} values: {}", "", legend.join("  ")));
    lines
}
