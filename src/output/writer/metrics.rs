//! What goes from the tables to the metrics.

use std::sync::Arc;

use crate::escape::escape;
use crate::output::metrics::names::MetricView;
use crate::output::metrics::{MetricEntry, RowFunction, RunMeters};
use crate::output::settings::ViewSettings;
use crate::output::table::PlacedRows;
use crate::output::text::frames;
use crate::output::writer::Writer;
use crate::report::ColumnKind;
use crate::symbol::naming::named_frame::NamedFrame;

/// Callers of the function that a row of a table of stacks is about. Whole stacks would be too many series.
const CALLERS: usize = 3;

/// What names the series of each view.
pub(super) fn views(views: &[ViewSettings]) -> Vec<MetricView> {
    let several = views.len() > 1;
    let view = |view: &ViewSettings| MetricView {
        name: several.then(|| view.name.as_str().into()),
        profiler: view.profiler,
        main_table: view.main_table,
    };
    views.iter().map(view).collect()
}

impl Writer {
    /// Adds the rows of a table to the metrics, if there are any.
    pub(super) fn add_to_metrics(&mut self, entry: MetricEntry, placed: &mut PlacedRows) {
        let Some(metrics) = &mut self.sums.metrics else { return };
        let PlacedRows { rows, places } = placed;
        let is_of_stacks = rows.columns().iter().any(|column| column.kind == ColumnKind::Stack);
        metrics.add(entry, &mut **rows, |index| {
            let Some(place) = places.get(index).filter(|place| place.is_somewhere()) else {
                return RowFunction::default();
            };
            let depth = if is_of_stacks { 1 + CALLERS } else { 1 };
            let frames = place.innermost(depth, |id| self.stacks.name(id));
            let (innermost, callers) = frames.split_first().map_or((None, &[][..]), |(one, rest)| (Some(one), rest));
            let callers: Vec<Arc<str>> = callers.iter().map(function).collect();
            RowFunction {
                innermost: Some(innermost.map_or("[no stack]".into(), function)),
                callers: (!callers.is_empty()).then(|| callers.join(" < ").into()),
            }
        });
    }

    /// Publishes the metrics as of the end of an interval.
    pub fn publish(&mut self, meters: &RunMeters) {
        if let Some(metrics) = &mut self.sums.metrics {
            metrics.publish(meters);
        }
    }
}

/// A function as text has it, without the offset, or the file of one without a name.
fn function(NamedFrame { symbol, module, .. }: &NamedFrame) -> Arc<str> {
    let file = module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    match symbol {
        Ok(symbol) => escape(frames::brief(symbol).as_bytes()).into(),
        Err(_) => format!("[{}]", escape(file.unwrap_or("unknown").trim_matches(['[', ']']).as_bytes())).into(),
    }
}
