//! Results as data, for whoever reads them: tables of typed rows, single occurrences ([`Batch`]), and how far each number
//! can be trusted ([`Verdict`]). Nothing here is text yet.
//!
//! A profiler says once what its tables are ([`Schema`]) and hands over rows of its own type ([`Report`]). Readers know them
//! as [`Rows`]: cells, names, and how two rows become one. The [`Book`] adds up what each interval has told. What single
//! occurrences are it says in an [`OccurrenceSchema`]; readers know their values, and how to tell them ([`OccurrenceLayout`]).

mod batch;
mod book;
mod interval;
pub mod layout;
mod names;
mod occurrence_schema;
mod rows;
mod schema;
mod sums;
mod value;
mod verdict;

pub use batch::{Batch, Occurrence, Span, Subject, What};
pub use book::{Book, BookEntry, BookTable};
pub use interval::{Report, Table, Top};
pub use layout::{GroupBy, Grouping, OccurrenceLayout};
pub use names::{NamedTask, Names};
pub use occurrence_schema::{Detail, DetailHead, OccurrenceSchema};
pub use rows::{Rows, TypedRows};
pub use schema::{Basis, Column, ColumnHead, Kind, Schema, TableHead, TableSchema, Unit};
pub use sums::{Others, RowSite, RowSums};
pub use value::{Command, Kin, OVERHEAD_BYTES, Value};
pub use verdict::Verdict;
