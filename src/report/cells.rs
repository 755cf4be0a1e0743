//! Tables of cells.

use crate::report::{Value, Verdict};

/// A column of a table: its JSON key and its heading, with the unit. Without a heading it is in JSON only, without a key in
/// text only.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub key: &'static str,
    pub heading: &'static str,
}

/// Rows of one interval.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What the rows are and of what their percentages are, when there are several tables.
    pub title: &'static str,
    pub columns: &'static [Column],
    pub rows: Vec<Vec<Value>>,
    pub by_stack: Option<ByStack>,
    pub verdict: Verdict,
    /// Its numbers come from elsewhere than the records: these may be lost or not.
    pub counted: bool,
    /// The column of what a row rests on: with 0 there it rests on nothing.
    pub basis: Option<usize>,
    pub doubts: Option<RowDoubts>,
    /// A line of text below the rows.
    pub below: Option<String>,
}

/// Columns that tell how much of a row is not exact, though nothing was lost: with a number in `estimate` the row is an
/// [`Verdict::Estimate`], with more than 0 in `discarded` it is [`Verdict::Discarded`].
#[derive(Clone, Copy, Debug)]
pub struct RowDoubts {
    pub estimate: usize,
    pub discarded: [usize; 2],
}

impl Table {
    /// How far one of its rows can be trusted.
    pub fn verdict_of(&self, row: &[Value]) -> Verdict {
        let has = |column: Option<usize>| matches!(column.and_then(|at| row.get(at)), Some(Value::Unsigned(1..)));
        if self.basis.is_some() && !has(self.basis) {
            return self.verdict.max(Verdict::LowerBound);
        }
        if let Some(doubts) = self.doubts {
            let of_row = match () {
                () if doubts.discarded.iter().any(|&at| has(Some(at))) => Verdict::Discarded,
                () if matches!(row.get(doubts.estimate), Some(Value::Unsigned(_))) => Verdict::Estimate,
                () => Verdict::Exact,
            };
            return self.verdict.max(of_row);
        }
        let Some(by) = &self.by_stack else { return self.verdict };
        if has(by.doubt) {
            self.verdict.max(Verdict::Unsure)
        } else if has(by.discarded) {
            self.verdict.max(Verdict::Discarded)
        } else {
            self.verdict
        }
    }
}

/// Of rows that say where something is: those whose stacks have equal frames become one. The columns come as they should
/// be sorted, by the first and then by the second, the greatest first.
#[derive(Clone, Debug)]
pub struct ByStack {
    /// By column.
    pub joins: &'static [Join],
    /// Rows shown in text; JSON has all.
    pub most: usize,
    /// Lines of text between the headline and the rows.
    pub lines: Vec<String>,
    /// The column that tells how much of a row may be gone.
    pub doubt: Option<usize>,
    /// The column that tells how many pairs of a row were discarded: those of other rows are no business of its.
    pub discarded: Option<usize>,
}

/// How the cells of a column become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Sum,
    Greatest,
    Least,
    /// The name that most of the first two columns belongs to.
    Heaviest,
    /// All such names, the heaviest first.
    Names,
    Stack,
}
