//! Weights of stacks: lists of functions and stacks, and flame graphs.

use std::io::{self, Write};

use crate::escape::escape;
use crate::output::StackReport;
use crate::output::json::{self, ViewLabel};
use crate::output::stack_weights::fold::Folded;
use crate::output::stack_weights::top;
use crate::output::wall::WallClock;
use crate::output::writer::Writer;
use crate::output::writer::named_stacks::NamedStacks;
use crate::output::writer::screen::show_lists;
use crate::output::writer::views::WriterView;
use crate::report::{Top, Value, Verdict};
use crate::stats::weights::Weighted;
use crate::symbol::naming::named_frame::NamedFrame;

impl WriterView {
    /// Adds weights of stacks. Those of a stack whose names were given up are kept for a later report.
    fn weigh(&mut self, rows: &[Weighted], stacks: &mut NamedStacks) {
        stacks.names_ahead(rows.iter().filter_map(|row| row.stack));
        for row in rows {
            let frames = row.stack.map_or_else(Vec::new, |id| stacks.name(id));
            if !frames.iter().any(NamedFrame::may_get_name) || !self.unsettled.add(row) {
                self.folded.extend(std::slice::from_ref(row), |_| frames.clone());
            }
        }
    }
}

impl Writer {
    /// Adds weights of stacks of a view.
    pub fn weights(&mut self, view: usize, rows: &[Weighted]) {
        if let Some(view) = self.views.get_mut(view) {
            view.weigh(rows, &mut self.stacks);
        }
    }

    /// Prints the functions and stacks that took most of the time, and updates the flame graph.
    pub fn stacks(&mut self, report: &StackReport) -> io::Result<()> {
        self.print_held()?;
        let Some(view) = self.views.get(report.view) else { return Ok(()) };
        let draws = view.settings.flame.as_ref().is_some_and(|flame| flame.is_due(report.last));
        let lists = report.top.is_some() && !self.outlet.sink.is_over();
        if !lists && !draws {
            return Ok(());
        }
        if lists && report.last {
            // The lists are of the whole run, too, and stand below its tables.
            self.totals_of_run(report.view, report.time_ns)?;
        }
        let Some(view) = self.views.get_mut(report.view) else { return Ok(()) };
        let stacks = &mut self.stacks;
        // Where the time ends the others stay.
        for row in view.unsettled.take(|_| true) {
            if !stacks.names.has_no_time() || !view.unsettled.add(&row) {
                view.weigh(&[row], stacks);
            }
        }
        let mut ongoing = view.unsettled.rows();
        ongoing.extend_from_slice(&report.ongoing);
        let with_ongoing = (!ongoing.is_empty()).then(|| {
            let mut folded = view.folded.clone();
            folded.extend(&ongoing, |id| stacks.name(id));
            folded
        });
        let folded = with_ongoing.as_ref().unwrap_or(&view.folded);
        if let Some((top, screen)) = report.top.filter(|_| lists).zip(self.outlet.screen.as_ref()) {
            show_lists(folded, top, report, screen, &mut self.outlet.wall);
        } else if let Some(top) = report.top.filter(|_| lists) {
            list(
                folded,
                top,
                report,
                self.settings.json,
                view.label(),
                &mut self.outlet.wall,
                &mut self.outlet.sink.buffer,
            );
            self.outlet.sink.flush_large()?;
        }
        match &mut view.settings.flame {
            Some(flame) if draws => flame.write(&self.outlet.sink.waits(), || folded.lines()),
            _ => Ok(()),
        }
    }
}

/// Appends the lists of functions and stacks.
fn list(
    folded: &Folded,
    top: Top,
    report: &StackReport,
    json: bool,
    label: ViewLabel<'_>,
    wall: &mut WallClock,
    out: &mut Vec<u8>,
) {
    if json {
        return top::json_rows(folded, top, out, |table, out| {
            let mut object = json::head(out, "total", label, report.time_ns, wall);
            object.text("table", table);
            object.value("verdict", &Value::Word(Verdict::Estimate.word()));
            object
        });
    }
    let mut head = |out: &mut Vec<u8>| {
        wall.text(report.time_ns, out);
        let (seconds, millis) = (report.span_ns / 1_000_000_000, report.span_ns / 1_000_000 % 1000);
        let _ = write!(out, " {}, whole run, {seconds}.{millis:03} s", escape(label.view.as_bytes()));
    };
    head(out);
    top::functions(folded, top, out);
    if top.stacks && folded.total().amount > 0 {
        head(out);
        top::stacks(folded, top, out);
    }
}
