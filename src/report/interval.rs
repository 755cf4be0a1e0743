//! What a profiler has to say of an interval.

use crate::report::{ByStack, Column, RowDoubts, Table, Value, Verdict};
use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::task::Comm;

/// Where a profiler puts its tables.
#[derive(Debug, Default)]
pub struct Report {
    pub tables: Vec<Table>,
    pub totals: Vec<(&'static str, Value)>,
    pub run_totals: Vec<(&'static str, Value)>,
    pub top: Option<Top>,
    /// What goes on, and is not in the weights of the run yet.
    pub weights: Vec<Weighted>,
    pub notes: Vec<String>,
}

impl Report {
    pub fn table(&mut self, columns: &'static [Column], rows: Vec<Vec<Value>>) {
        self.titled_table("", columns, rows);
    }

    /// One of several tables: `title` says which.
    pub fn titled_table(&mut self, title: &'static str, columns: &'static [Column], rows: Vec<Vec<Value>>) {
        self.tables.push(Table { title, columns, rows, ..Table::default() });
    }

    /// As [`Report::titled_table`], of what the kernel counts whether or not it can be told.
    pub fn counted_table(&mut self, title: &'static str, columns: &'static [Column], rows: Vec<Vec<Value>>) {
        self.tables.push(Table { title, columns, rows, counted: true, ..Table::default() });
    }

    /// The rows of the table added last are no better than this, even if nothing was lost in the interval.
    pub fn judge(&mut self, verdict: Verdict) {
        if let Some(table) = self.tables.last_mut() {
            table.verdict = verdict;
        }
    }

    /// Some rows of the table added last are no better than their columns say.
    pub fn doubt(&mut self, doubts: RowDoubts) {
        if let Some(table) = self.tables.last_mut() {
            table.doubts = Some(doubts);
        }
    }

    /// A line of text below the table added last.
    pub fn say_below(&mut self, line: Option<String>) {
        if let Some(table) = self.tables.last_mut() {
            table.below = line;
        }
    }

    /// Rows of the table added last that have 0 in `column` rest on nothing, whatever they say.
    pub fn rests_on(&mut self, column: usize) {
        if let Some(table) = self.tables.last_mut() {
            table.basis = Some(column);
        }
    }

    /// A table of places, of the whole run up to now: it is printed at the end even if nothing has happened since the last.
    pub fn stack_table(
        &mut self,
        title: &'static str,
        columns: &'static [Column],
        rows: Vec<Vec<Value>>,
        by_stack: ByStack,
    ) {
        let by_stack = Some(by_stack);
        self.tables.push(Table { title, columns, rows, by_stack, ..Table::default() });
    }

    /// Lists the functions, and stacks, that took most of the weight of the whole run.
    pub fn top(&mut self, top: Top) {
        self.top = Some(top);
    }

    /// Adds what goes on to this report's flame graph.
    pub fn weigh(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.weights.push(Weighted { pid, comm, stack, weight: Weight { amount: weight, samples: 1 } });
    }

    /// Something that everybody should hear.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// A number that belongs to the interval as a whole.
    pub fn total(&mut self, key: &'static str, value: Value) {
        self.totals.push((key, value));
    }

    /// A number of the run up to now: the last one is told at its end too.
    pub fn run_total(&mut self, key: &'static str, value: Value) {
        self.run_totals.push((key, value));
    }
}

/// What is shown of the weights of a run.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// Whole callchains, not only functions.
    pub stacks: bool,
    /// Frames printed of each stack in text. None: those that tell it from the others.
    pub depth: Option<usize>,
    /// They are weighed in ns of CPU time, not in samples.
    pub by_time: bool,
}
