//! Results as data, for whoever reads them: tables of typed rows, single occurrences ([`Batch`]), and how far each number
//! can be trusted ([`Verdict`]). Nothing here is text yet.
//!
//! A profiler says once what its tables are ([`Schema`]) and hands over rows of its own type ([`Report`]). Readers know them
//! as [`Rows`]: cells, names, and how two rows become one. The [`Book`] adds up what each interval has told.

mod batch;
mod book;
mod interval;
mod names;
mod rows;
mod schema;
mod shape;
mod sums;
mod value;
mod verdict;

pub use batch::{Batch, Occurrence, Span, What};
pub use book::{Book, BookEntry, BookTable};
pub use interval::{Report, Table, Top};
pub use names::{NamedTask, Names};
pub use rows::{Rows, TypedRows};
pub use schema::{Basis, Column, ColumnHead, Kind, Schema, Unit};
pub use shape::{Grouping, Part, Shape, Subject};
pub use sums::{Others, RowSums};
pub use value::{Command, Kin, OVERHEAD_BYTES, Value};
pub use verdict::Verdict;
