//! The schema of a table: its columns, each with a key, a heading, a unit and a kind. The kind says how the cells of
//! two intervals become one, so no profiler adds up rows itself.
//!
//! Most schemas are statics, whose columns are plain functions. The schema of a table that depends on options is made
//! at run time, with owned names and closures.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::report::Verdict;
use crate::report::column::{Column, ColumnCells, ColumnHead, MadeColumn};

/// What the rows of one table have in common. `R` is the profiler's type of a row.
#[derive(Clone, Debug)]
pub struct Schema<R: 'static> {
    /// The name of the table in JSON.
    pub table: &'static str,
    /// The title in text, if a report has several tables.
    pub title: &'static str,
    columns: SchemaColumns<R>,
    /// The last columns of a static schema: those of [`Schema::latencies`].
    pub(super) last_columns: &'static [Column<R>],
    /// The meanings of the columns, by their keys, for the documentation and for metrics. A hidden column is exported
    /// as a metric if it has a meaning.
    pub meanings: &'static [Meaning],
    pub(super) last_meanings: &'static [Meaning],
    /// The order of the rows. None: as the profiler hands them over.
    pub order: Option<fn(&R, &R) -> Ordering>,
    /// Computes the fields that depend on all rows. Called again after rows were added.
    pub settle: fn(&mut [R]),
    /// Heap bytes of a row that belong to no column.
    heap_bytes: fn(&R) -> usize,
    /// The verdict that follows from a row itself.
    pub verdict: fn(&R) -> Verdict,
    pub rests_on: Basis,
    /// The rows are about the present, and replace those of the interval before.
    pub is_snapshot: bool,
}

/// The key of a column, and what the column means.
pub type Meaning = (&'static str, &'static str);

#[derive(Clone, Debug)]
enum SchemaColumns<R: 'static> {
    Static(&'static [Column<R>]),
    Made(Arc<[MadeColumn<R>]>),
}

/// The data that a table is made of, which decides what a loss means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The records of its interval.
    Interval,
    /// The records of the whole run, each with a stack.
    Run,
    /// As `Run`, but each row knows which of its own pairs were discarded; discarded pairs of other rows do not concern
    /// it.
    RunByRow,
    /// Counters of the kernel, which stay right if records are lost.
    Counters,
}

impl<R> Schema<R> {
    /// The schema of a table that is made of the records of an interval.
    pub const fn new(table: &'static str, columns: &'static [Column<R>]) -> Schema<R> {
        Schema::of(table, SchemaColumns::Static(columns))
    }

    /// As [`Schema::new`], with columns made at run time.
    pub fn made(table: &'static str, columns: Vec<MadeColumn<R>>) -> Schema<R> {
        Schema::of(table, SchemaColumns::Made(columns.into()))
    }

    const fn of(table: &'static str, columns: SchemaColumns<R>) -> Schema<R> {
        let (title, heap_bytes) = ("", (|_| 0) as fn(&R) -> usize);
        let (meanings, last_columns, last_meanings): (&[Meaning], &[_], &[Meaning]) = (&[], &[], &[]);
        let (order, settle): (_, fn(&mut [R])) = (None, |_| {});
        let (verdict, rests_on): (fn(&R) -> Verdict, _) = (|_| Verdict::Exact, Basis::Interval);
        Schema {
            table,
            title,
            columns,
            last_columns,
            meanings,
            last_meanings,
            order,
            settle,
            heap_bytes,
            verdict,
            rests_on,
            is_snapshot: false,
        }
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &dyn ColumnCells<R>> {
        let (of_static, made): (&[Column<R>], &[MadeColumn<R>]) = match &self.columns {
            SchemaColumns::Static(columns) => (columns, &[]),
            SchemaColumns::Made(columns) => (&[], columns),
        };
        let made = made.iter().map(|column| column as &dyn ColumnCells<R>);
        of_static.iter().chain(self.last_columns).map(|column| column as &dyn ColumnCells<R>).chain(made)
    }

    /// Approximate bytes of a row on the heap.
    pub(super) fn heap_bytes(&self, row: &mut R) -> usize {
        (self.heap_bytes)(row) + self.columns().map(|column| column.heap_bytes(row)).sum::<usize>()
    }

    /// Sets the meaning of each key, in a few words, for `docs/json.md`.
    #[must_use]
    pub const fn explained(mut self, meanings: &'static [Meaning]) -> Schema<R> {
        self.meanings = meanings;
        self
    }

    /// All meanings, also those of the last columns.
    pub(super) fn all_meanings(&self) -> impl Iterator<Item = &'static Meaning> {
        self.meanings.iter().chain(self.last_meanings)
    }

    #[must_use]
    pub const fn titled(mut self, title: &'static str) -> Schema<R> {
        self.title = title;
        self
    }

    /// Sets the order of the rows, for every reader.
    #[must_use]
    pub const fn ordered(mut self, order: fn(&R, &R) -> Ordering) -> Schema<R> {
        self.order = Some(order);
        self
    }

    /// Sets the heap bytes of a row that belong to no column.
    #[must_use]
    pub const fn with_heap(mut self, heap_bytes: fn(&R) -> usize) -> Schema<R> {
        self.heap_bytes = heap_bytes;
        self
    }

    #[must_use]
    pub const fn settled(mut self, settle: fn(&mut [R])) -> Schema<R> {
        self.settle = settle;
        self
    }

    /// Makes it the schema of a table for [`crate::report::Report::snapshot`].
    #[must_use]
    pub const fn snapshot(mut self) -> Schema<R> {
        self.is_snapshot = true;
        self
    }

    #[must_use]
    pub const fn judged(mut self, verdict: fn(&R) -> Verdict) -> Schema<R> {
        self.verdict = verdict;
        self
    }

    #[must_use]
    pub const fn rests_on(mut self, basis: Basis) -> Schema<R> {
        self.rests_on = basis;
        self
    }
}

/// A schema without the type of its rows, for readers.
#[derive(Clone, Debug)]
pub struct TableHead {
    pub table: &'static str,
    pub columns: Vec<ColumnHead>,
    /// The meanings of the columns, by their keys.
    pub meanings: Vec<Meaning>,
    pub is_snapshot: bool,
}

/// A schema of rows of any type.
pub trait TableSchema: Sync {
    fn head(&self) -> TableHead;
}

impl<R> TableSchema for Schema<R> {
    fn head(&self) -> TableHead {
        let columns = self.columns().map(ColumnCells::head).collect();
        let meanings = self.all_meanings().copied().collect();
        TableHead { table: self.table, columns, meanings, is_snapshot: self.is_snapshot }
    }
}
