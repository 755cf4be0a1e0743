//! What a profiler has to say of an interval.

use std::fmt::Debug;

use crate::report::{Basis, Rows, Schema, TypedRows, Value, Verdict};
use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::task::Comm;

/// Where a profiler puts its tables.
#[derive(Debug)]
pub struct Report {
    pub tables: Vec<Table>,
    /// False: it is too early for another snapshot, which takes long.
    pub takes_snapshots: bool,
    pub totals: Vec<(&'static str, Value)>,
    pub run_totals: Vec<(&'static str, Value)>,
    pub top: Option<Top>,
    /// What goes on, and is not in the weights of the run yet.
    pub weights: Vec<Weighted>,
    pub notes: Vec<String>,
}

/// Rows, and what is said of all of them.
#[derive(Debug)]
pub struct Table {
    pub rows: Box<dyn Rows>,
    pub title: &'static str,
    /// Lines of text above the rows, and one below them.
    pub above: Vec<String>,
    pub below: Option<String>,
    /// Rows in text; JSON has all.
    pub most: Option<usize>,
    /// False: in this interval text would but say again what stands above. JSON has it, and the whole run adds it up.
    pub in_text: bool,
    /// No row is better than this.
    pub verdict: Verdict,
    /// It is about what is now, or about the whole run up to now: it replaces the one before. Else it is about its interval
    /// alone.
    pub is_snapshot: bool,
    /// About as much memory as the rows take.
    pub bytes: usize,
}

impl Table {
    /// Instead of the title of the schema.
    pub fn titled(&mut self, title: &'static str) -> &mut Table {
        self.title = title;
        self
    }

    /// No row is better than this, even if nothing was lost in the interval.
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

    /// Rows shown in text.
    pub fn most(&mut self, rows: usize) -> &mut Table {
        self.most = Some(rows);
        self
    }

    /// Whether text has it.
    pub fn in_text(&mut self, in_text: bool) -> &mut Table {
        self.in_text = in_text;
        self
    }

    /// It is printed at the end even if nothing has happened since the last one.
    pub fn is_of_run(&self) -> bool {
        match self.rows.basis() {
            Basis::Run | Basis::RunByRow => true,
            Basis::Counters => !self.rows.is_empty(),
            Basis::Interval => false,
        }
    }
}

impl Default for Report {
    /// Of a profiler that may say whatever it has to say.
    fn default() -> Report {
        Report {
            tables: Vec::new(),
            takes_snapshots: true,
            totals: Vec::new(),
            run_totals: Vec::new(),
            top: None,
            weights: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Report {
    /// What happened since the last report.
    pub fn delta<R: Clone + Debug + Send>(&mut self, schema: &'static Schema<R>, rows: Vec<R>) -> &mut Table {
        self.table(schema, rows, false)
    }

    /// What is now. Who must go through much to know asks for [`Report::takes_snapshots`] before.
    pub fn snapshot<R: Clone + Debug + Send>(&mut self, schema: &'static Schema<R>, rows: Vec<R>) -> &mut Table {
        self.table(schema, rows, true)
    }

    fn table<R: Clone + Debug + Send>(
        &mut self,
        schema: &'static Schema<R>,
        rows: Vec<R>,
        is_snapshot: bool,
    ) -> &mut Table {
        debug_assert_eq!(schema.is_snapshot, is_snapshot, "{}: the documentation tells of the schema", schema.table);
        let mut rows = TypedRows::new(schema, rows);
        let (title, bytes) = (rows.title(), rows.bytes());
        let (above, below, most, verdict) = (Vec::new(), None, None, Verdict::Exact);
        let (rows, in_text) = (Box::new(rows), true);
        self.tables.push_mut(Table { rows, title, above, below, most, in_text, verdict, is_snapshot, bytes })
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
