//! What a profiler reports of an interval.

use std::fmt::Debug;

use crate::report::{Basis, Rows, Schema, TypedRows, Value, Verdict};
use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::task::Comm;

/// What a profiler reports at the end of an interval: tables, totals, notes.
#[derive(Debug)]
pub struct Report {
    pub tables: Vec<Table>,
    /// Index of the profiler whose tables come next.
    pub owner: usize,
    /// False: costly snapshots should be left out this time, since the last ones are recent.
    pub takes_snapshots: bool,
    /// The interval is a part of one that is printed later: lines of text and totals are wanted only then.
    pub is_quiet: bool,
    /// Lower bound of the events of the run that the kernel has counted but that are in no record.
    pub unseen: u64,
    pub totals: Vec<(&'static str, Value)>,
    pub run_totals: Vec<(&'static str, Value)>,
    /// The keys of the run totals that may decrease.
    pub now_keys: Vec<&'static str>,
    pub top: Option<Top>,
    /// Weights of periods that still go on, which are not part of the run's weights yet.
    pub weights: Vec<Weighted>,
    pub notes: Vec<String>,
}

/// Rows, and what applies to all of them.
#[derive(Debug)]
pub struct Table {
    /// Index of the profiler that made the table.
    pub owner: usize,
    pub rows: Box<dyn Rows>,
    pub title: &'static str,
    /// Lines of text above the rows, and one below them.
    pub above: Vec<String>,
    pub below: Option<String>,
    /// Limit of the rows in text; JSON has all rows.
    pub text_rows: Option<usize>,
    /// False: in this interval the text would repeat the table above. JSON and the sums of the run still have it.
    pub in_text: bool,
    /// JSON has the table only where it was asked for.
    pub only_in_text: bool,
    /// The best verdict that a row can have.
    pub verdict: Verdict,
    /// The rows are about the present, or about the whole run so far, and replace those of the report before. Otherwise
    /// they are about their interval alone.
    pub is_snapshot: bool,
    /// Approximate size of the rows.
    pub bytes: usize,
}

impl Table {
    /// Sets a title other than that of the schema.
    pub fn titled(&mut self, title: &'static str) -> &mut Table {
        self.title = title;
        self
    }

    /// Limits the verdict of rows to this one, even if nothing was lost in the interval.
    pub fn judged(&mut self, verdict: Verdict) -> &mut Table {
        self.verdict = self.verdict.max(verdict);
        self
    }

    pub fn above(&mut self, lines: Vec<String>) -> &mut Table {
        self.above = lines;
        self
    }

    pub fn below(&mut self, line: Option<String>) -> &mut Table {
        self.below = line;
        self
    }

    /// Limits the rows that are shown in text.
    pub fn text_rows(&mut self, rows: usize) -> &mut Table {
        self.text_rows = Some(rows);
        self
    }

    /// Whether the table is shown in text.
    pub fn in_text(&mut self, in_text: bool) -> &mut Table {
        self.in_text = in_text;
        self
    }

    /// Whether the table is there for readers of text only, who did not ask for it.
    pub fn only_in_text(&mut self, only_in_text: bool) -> &mut Table {
        self.only_in_text = only_in_text;
        self
    }

    /// True if the table is printed at the end even without events since the last report.
    pub fn is_of_run(&self) -> bool {
        match self.rows.basis() {
            Basis::Run | Basis::RunByRow => true,
            Basis::Counters => !self.rows.is_empty(),
            Basis::Interval => false,
        }
    }
}

impl Default for Report {
    /// An empty report that takes snapshots.
    fn default() -> Report {
        Report {
            owner: 0,
            tables: Vec::new(),
            takes_snapshots: true,
            is_quiet: false,
            unseen: 0,
            totals: Vec::new(),
            run_totals: Vec::new(),
            now_keys: Vec::new(),
            top: None,
            weights: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Report {
    /// Adds a table of what happened since the last report.
    pub fn delta<R: Clone + Debug + Send>(&mut self, schema: &Schema<R>, rows: Vec<R>) -> &mut Table {
        self.table(schema, rows, false)
    }

    /// Adds a table of the present state. A profiler for which that is costly looks at [`Report::takes_snapshots`]
    /// first.
    pub fn snapshot<R: Clone + Debug + Send>(&mut self, schema: &Schema<R>, rows: Vec<R>) -> &mut Table {
        self.table(schema, rows, true)
    }

    fn table<R: Clone + Debug + Send>(&mut self, schema: &Schema<R>, rows: Vec<R>, is_snapshot: bool) -> &mut Table {
        debug_assert_eq!(schema.is_snapshot, is_snapshot, "{}: the documentation tells of the schema", schema.table);
        let mut rows = TypedRows::new(schema, rows);
        let (title, bytes) = (rows.title(), rows.bytes());
        let (above, below, text_rows, verdict) = (Vec::new(), None, None, Verdict::Exact);
        let (rows, in_text) = (Box::new(rows), true);
        let owner = self.owner;
        self.tables.push_mut(Table {
            owner,
            rows,
            title,
            above,
            below,
            text_rows,
            in_text,
            only_in_text: false,
            verdict,
            is_snapshot,
            bytes,
        })
    }

    /// Lists the functions, and stacks, with the greatest weights in the whole run.
    pub fn top(&mut self, top: Top) {
        self.top = Some(top);
    }

    /// Adds a period that still goes on to this report's flame graph.
    pub fn weigh(&mut self, pid: i32, comm: Comm, stack: Option<StackId>, weight: u64) {
        self.weights.push(Weighted { pid, comm, stack, weight: Weight { amount: weight, samples: 1 } });
    }

    /// Adds a line for stderr.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Adds a number that belongs to the interval as a whole.
    pub fn total(&mut self, key: &'static str, value: Value) {
        self.totals.push((key, value));
    }

    /// Adds a number of the run up to now. Its last value is reported at the end of the run too.
    pub fn run_total(&mut self, key: &'static str, value: Value) {
        self.run_totals.push((key, value));
    }

    /// As [`Report::run_total`], for a number that may decrease.
    pub fn run_now(&mut self, key: &'static str, value: Value) {
        self.run_total(key, value);
        self.now_keys.push(key);
    }
}

/// Which lists are shown of the weights of a run.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// Lists whole callchains, too, not only functions.
    pub stacks: bool,
    /// Number of frames printed of each stack in text. None: as many as distinguish it from the others.
    pub depth: Option<usize>,
    /// The weights are ns of CPU time, not samples.
    pub by_time: bool,
}
