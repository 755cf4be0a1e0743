//! Results as data, for any reader: tables of typed rows, single occurrences ([`Batch`]), and how far each number can
//! be trusted ([`Verdict`]). Nothing here is text yet.
//!
//! A profiler describes its tables once ([`Schema`]) and hands over rows of its own type ([`Report`]). Readers know
//! them as [`Rows`]: cells, names, and how two rows become one. The [`Book`] adds up the rows of all intervals. Single
//! occurrences are described by an [`OccurrenceSchema`]; readers know their values and their line of text
//! ([`OccurrenceLayout`]).

mod argument_text;
mod batch;
mod book;
mod column;
mod interval;
mod late_text;
mod latency;
pub mod layout;
mod names;
mod occurrence_schema;
mod rows;
mod schema;
mod sums;
mod task_columns;
mod value;
mod value_json;
pub mod value_text;
mod verdict;
mod words;

pub use argument_text::{ArgumentText, ArgumentTextWriter, ArgumentTexts, UnreadText};
pub use batch::{Batch, Occurrence, OccurrenceBody, Span, Subject};
pub use book::{Book, BookEntry, BookTable};
pub use column::{Column, ColumnHead, ColumnKind, ColumnName, MadeColumn, Unit};
pub use interval::{Report, Table, Top};
pub use late_text::{LateSource, LateText};
pub use latency::LatencyRow;
pub use layout::{DetailHead, GroupBy, Grouping, OccurrenceLayout};
pub use names::{NamedTask, TaskNames, TaskOfRow};
pub use occurrence_schema::{Detail, OccurrenceSchema};
pub use rows::{Rows, TypedRows};
pub use schema::{Basis, Meaning, Schema, TableHead, TableSchema};
pub use sums::{OthersRow, RowSite, RowSums};
pub use task_columns::TaskKeyRow;
pub use value::cell::{AnyCell, Cell, CellIdentity, CellLookUps, Command};
pub use value::{OVERHEAD_BYTES, Value, hundredths_of};
pub use verdict::Verdict;
pub use words::WordSet;
