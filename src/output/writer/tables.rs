//! Tables of intervals, and their sums over the run.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::escape::escape;
use crate::output::json::{self, ViewLabel};
use crate::output::metrics::MetricEntry;
use crate::output::table::{
    PlacedRows, RowPlace, RowStack, TableLine, lines, lines_of_sums, sum_of_rows, sums_of_rest,
};
use crate::output::text;
use crate::output::text::frames;
use crate::output::writer::{Writer, name_values};
use crate::report::{BookEntry, BookTable, ColumnHead, ColumnKind, Rows, Table, Value, value_text};
use crate::symbol::StackId;
use crate::symbol::naming::named_frame::NamedFrame;

/// The headline of a block of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHeading {
    /// Index of the view.
    pub view: usize,
    pub title: &'static str,
    /// Name of the table in JSON.
    pub table: &'static str,
    /// None: the whole run.
    pub interval: Option<u64>,
    /// The table replaces the one of the interval before.
    pub is_snapshot: bool,
    /// End and length of the interval or the run.
    pub time_ns: u64,
    pub span_ns: u64,
}

/// The lines of a block, with the text above and below them.
pub(super) struct RowBlock {
    pub columns: Vec<ColumnHead>,
    pub lines: Vec<TableLine>,
    pub above: Vec<String>,
    pub below: Option<String>,
    /// Lines in text.
    pub text_rows: Option<usize>,
    /// The cells of the row that the lines beyond these add up to.
    pub rest: Vec<Value>,
}

impl Writer {
    /// Writes the table of an interval that ended at `time_ns`, and enters it in the book.
    pub fn table(&mut self, table: Table, interval: u64, time_ns: u64, span_ns: u64) -> io::Result<()> {
        if self.outlet.sink.is_over() || table.only_in_text && self.settings.json {
            return Ok(());
        }
        self.print_held()?;
        let Table { owner, mut rows, title, above, below, text_rows, in_text, verdict, is_snapshot, .. } = table;
        let (table, interval) = (rows.table(), Some(interval));
        let heading = BlockHeading { view: owner, title, table, interval, is_snapshot, time_ns, span_ns };
        self.preview(&heading, &mut *rows, in_text);
        let mut placed = if is_snapshot {
            PlacedRows::new(rows, &self.stacks.frames, &mut self.stacks.names)
        } else {
            let mut placed = self.kept_rows(rows);
            let entry = BookEntry { owner, title, verdict, span_ns, text_rows, in_text, is_quiet: false };
            self.sums.book.add(&mut *placed.rows, &placed.places, entry);
            placed
        };
        self.add_to_metrics(MetricEntry { owner, verdict, is_snapshot }, &mut placed);
        if !in_text && !self.settings.json {
            return Ok(());
        }
        let lines = lines(&mut placed, verdict, span_ns);
        let order = placed.rows.order();
        let rest = sum_of_rows(&mut *placed.rows, beyond(&order, text_rows), span_ns);
        self.block(heading, RowBlock { columns: placed.rows.columns(), lines, above, below, text_rows, rest })
    }

    /// The rows with copies of their frames, since stacks may be forgotten before the run ends. The rows that are shown
    /// come first: they get names before the budget of time is used up.
    pub(super) fn kept_rows(&mut self, rows: Box<dyn Rows>) -> PlacedRows {
        let mut placed = PlacedRows::new(rows, &self.stacks.frames, &mut self.stacks.names);
        let order = placed.rows.order();
        let stacks = order.iter().filter_map(|index| placed.places.get(*index));
        self.stacks.names_ahead(stacks.filter_map(|place| if let RowStack::Of(id) = place.stack { id } else { None }));
        for index in order {
            if let Some(place) = placed.places.get_mut(index).filter(|place| !matches!(place.stack, RowStack::Nowhere))
            {
                *place = place.kept(|id| self.stacks.name(id));
            }
        }
        placed
    }

    /// Writes the sums of tables of several intervals, of all views up to `last` that were not written yet.
    pub fn totals_of_run(&mut self, last: usize, time_ns: u64) -> io::Result<()> {
        if self.outlet.sink.is_over() {
            return Ok(());
        }
        let mut book = self.sums.book.take_up_to(last);
        let json = self.settings.json;
        for table in book.tables().filter(|table| table.intervals > 1 && (table.in_text || json)) {
            self.block_of_sums(table, None, time_ns, Vec::new(), None)?;
        }
        Ok(())
    }

    /// Writes the sums of a table: of an interval, or of the whole run.
    pub(super) fn block_of_sums(
        &mut self,
        table: &mut BookTable<RowPlace>,
        interval: Option<u64>,
        time_ns: u64,
        above: Vec<String>,
        below: Option<String>,
    ) -> io::Result<()> {
        let (span_ns, columns) = (table.span_ns, table.sums.rows().columns());
        let (title, of, is_snapshot) = (table.title, table.sums.table(), false);
        let view = table.owner();
        let heading = BlockHeading { view, title, table: of, interval, is_snapshot, time_ns, span_ns };
        let lines = lines_of_sums(&mut table.sums, table.verdict, span_ns);
        let (order, text_rows) = (table.sums.order(), table.text_rows);
        let rest = sum_of_rows(table.sums.rows(), beyond(&order, text_rows), span_ns);
        self.block(heading, RowBlock { columns, lines, above, below, text_rows, rest })
    }

    fn block(&mut self, heading: BlockHeading, mut block: RowBlock) -> io::Result<()> {
        self.name_cells(&mut block);
        if self.outlet.screen.is_some() {
            self.show_block(&heading, &block);
            return Ok(());
        }
        let start = self.outlet.sink.buffer.len();
        let out = &mut self.outlet.sink.buffer;
        let mut name = |id| self.stacks.name(id);
        let label = ViewLabel::of(&self.views, heading.view);
        if self.settings.json {
            let BlockHeading { table, interval, is_snapshot, time_ns, .. } = heading;
            for line in &block.lines {
                let kind = if interval.is_some() { "row" } else { "total" };
                let mut object = json::head(out, kind, label, time_ns, &mut self.outlet.wall);
                object.text("table", table);
                interval.iter().for_each(|interval| object.unsigned("interval", *interval));
                if is_snapshot {
                    object.value("snapshot", &Value::Bool(true));
                }
                object.value("verdict", &Value::Word(line.verdict.word()));
                json::row(&mut object, &block.columns, line, &mut name);
                object.end();
                out.push(b'\n');
            }
        } else {
            self.outlet.wall.text(heading.time_ns, out);
            heading.push(label, out);
            block.push(name, self.above.explained.below(&heading), out);
            self.above.stack_numbers.passed(&self.outlet.sink.buffer[start..]);
        }
        self.outlet.sink.flush_large()
    }

    /// Replaces cells of places, interrupts, ancestors and times by their text.
    fn name_cells(&mut self, block: &mut RowBlock) {
        let moments = block.lines.iter_mut().flat_map(|line| &mut line.cells).filter(|_| !self.settings.json);
        for cell in moments {
            if let Value::Moment(time_ns) = *cell {
                *cell = Value::Text(self.outlet.wall.time_of_day(time_ns).into());
            }
        }
        let place = block.columns.iter().position(|column| column.kind == ColumnKind::Place);
        for line in &mut block.lines {
            if let Cow::Owned(cells) = name_values(&mut self.stacks, &mut self.look_ups, &line.cells) {
                line.cells = cells;
            }
            if let Some(cell) = place.and_then(|index| line.cells.get_mut(index)) {
                let frames = line.place.named(|id| self.stacks.name(id)).unwrap_or_default();
                *cell = frames.first().map_or(Value::None, |frame| Value::Text(frames::place(frame)));
                if frames.len() < 2 && !self.settings.json {
                    line.place = RowPlace::nowhere(); // the cell says it all
                }
            }
        }
    }
}

/// The places of the rows that text leaves out.
fn beyond(order: &[usize], most: Option<usize>) -> &[usize] {
    most.and_then(|most| order.get(most..)).unwrap_or_default()
}

/// The marks that the tables of a report have explained so far.
#[derive(Debug, Default)]
pub(super) struct ExplainedMarks {
    /// View, interval and time of the report.
    report: (usize, Option<u64>, u64),
    marks: Vec<&'static str>,
}

impl ExplainedMarks {
    /// The marks that are explained above the table of this heading.
    fn below(&mut self, heading: &BlockHeading) -> &mut Vec<&'static str> {
        let report = (heading.view, heading.interval, heading.time_ns);
        if self.report != report {
            (self.report, self.marks) = (report, Vec::new());
        }
        &mut self.marks
    }
}

impl BlockHeading {
    fn push(&self, label: ViewLabel<'_>, out: &mut Vec<u8>) {
        let _ = write!(out, " {}, ", escape(label.view.as_bytes()));
        let _ = match self.interval {
            Some(interval) => write!(out, "interval {interval}"),
            None => write!(out, "whole run"),
        };
        let (seconds, millis) = (self.span_ns / 1_000_000_000, self.span_ns / 1_000_000 % 1000);
        let _ = write!(out, ", {seconds}.{millis:03} s");
        let _ = if self.title.is_empty() { writeln!(out) } else { writeln!(out, ": {}", self.title) };
    }
}

impl RowBlock {
    /// Appends the lines as text.
    fn push(&self, name: impl FnMut(StackId) -> Vec<NamedFrame>, explained: &mut Vec<&'static str>, out: &mut Vec<u8>) {
        let RowBlock { columns, lines, above, below, text_rows, rest: sum } = self;
        above.iter().for_each(|line| drop(writeln!(out, "{line}")));
        let (shown, rest) = lines.split_at(text_rows.map_or(lines.len(), |most| most.min(lines.len())));
        match (shown, &above[..]) {
            ([], []) => out.extend_from_slice(b"nothing seen\n"),
            ([], _) => {}
            _ => text::table(columns, shown, name, explained, out),
        }
        if !rest.is_empty() {
            let sums = sums_of_rest(columns, lines, rest, sum);
            let sums: Vec<String> = sums.map(|(sum, heading)| format!("{} {heading}", value_text::cell(sum))).collect();
            let sums = if sums.is_empty() { String::new() } else { format!(": {}", sums.join(", ")) };
            let _ = writeln!(out, "and {} more{sums}", rest.len());
        }
        below.iter().for_each(|line| drop(writeln!(out, "{line}")));
    }
}
