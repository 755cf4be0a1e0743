//! Results on the screen in place of text.

use std::io;

use crate::output::StackReport;
use crate::output::screen::Screen;
use crate::output::screen::tables::{self, PageKey, ScreenTable};
use crate::output::stack_weights::fold::Folded;
use crate::output::stack_weights::top;
use crate::output::table::TableLine;
use crate::output::text::stack_numbers::StackNumbers;
use crate::output::wall::WallClock;
use crate::output::writer::Writer;
use crate::output::writer::tables::{BlockHeading, RowBlock};
use crate::report::{ColumnKind, Rows, Top};

/// Most rows of a table without names.
const PREVIEW_ROWS: usize = 200;

impl Writer {
    /// Restores the terminal. From now on results are text.
    pub fn end_screen(&mut self) -> io::Result<()> {
        let Some(screen) = self.outlet.screen.take() else { return Ok(()) };
        let lines = screen.end();
        self.outlet.sink.end_diversion();
        self.above.stack_numbers = StackNumbers::default(); // nothing is above
        lines.iter().try_for_each(|line| self.outlet.tell(line))
    }

    /// Shows the first table of a page at once, without names of places. A later one only if the lookup takes long.
    pub(super) fn preview(&mut self, heading: &BlockHeading, rows: &mut dyn Rows, in_text: bool) {
        let columns = rows.columns();
        let has_places = columns.iter().any(|column| matches!(column.kind, ColumnKind::Stack | ColumnKind::Place));
        let Some(screen) = self.outlet.screen.as_ref().filter(|_| in_text && has_places) else { return };
        let mut order = rows.order();
        order.truncate(PREVIEW_ROWS);
        let line = |index: usize| TableLine::plain(rows.cells(index, heading.span_ns));
        let lines: Vec<TableLine> = order.into_iter().map(line).collect();
        let table = tables::table(&columns, &lines, |_| None);
        let (key, table) = heading.on_screen(table, &mut self.outlet.wall);
        screen.preview(key, table);
    }

    /// Shows a table with all its names.
    pub(super) fn show_block(&mut self, heading: &BlockHeading, block: &RowBlock) {
        let frames = |line: &TableLine| line.place.named(|id| self.stacks.name(id));
        let table = tables::table(&block.columns, &block.lines, frames);
        let table = ScreenTable { above: block.above.clone(), below: block.below.clone(), ..table };
        let (key, table) = heading.on_screen(table, &mut self.outlet.wall);
        if let Some(screen) = &self.outlet.screen {
            screen.table(key, table);
        }
    }
}

impl BlockHeading {
    /// The table with its time, and its page.
    fn on_screen(&self, table: ScreenTable, wall: &mut WallClock) -> (PageKey, ScreenTable) {
        let BlockHeading { view, title, table: name, interval, time_ns, span_ns, .. } = *self;
        let (wall, interval) = (seconds_of_day(time_ns, wall), interval.unwrap_or(0));
        let table = ScreenTable { interval, time_ns, span_ns, wall, title: title.to_owned(), ..table };
        (PageKey { view, table: name }, table)
    }
}

/// Hours, minutes and seconds.
fn seconds_of_day(time_ns: u64, wall: &mut WallClock) -> String {
    let mut time = wall.time_of_day(time_ns);
    time.truncate("20:46:39".len());
    time
}

/// Shows the functions and stacks that took most of the time.
pub(super) fn show_lists(folded: &Folded, top: Top, report: &StackReport, screen: &Screen, wall: &mut WallClock) {
    let mut show = |table: &'static str, text: &[u8]| {
        let key = PageKey { view: report.view, table };
        let (time_ns, span_ns) = (report.time_ns, report.span_ns);
        let (interval, wall) = (screen.interval_of(report.view), seconds_of_day(time_ns, wall));
        screen.table(key, ScreenTable { interval, time_ns, span_ns, wall, ..tables::of_text(text) });
    };
    let mut text = Vec::new();
    top::functions(folded, top, &mut text);
    show("functions", &text);
    if top.stacks && folded.total().amount > 0 {
        text.clear();
        top::stacks(folded, top, &mut text);
        show("stacks", &text);
    }
}
