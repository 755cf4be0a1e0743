//! Results as data, for whoever reads them: tables of typed rows, single occurrences ([`Batch`]), and how far each number
//! can be trusted ([`Verdict`]). Nothing here is text yet.

mod batch;
mod cells;
mod interval;
mod shape;
mod value;
mod verdict;

pub use batch::{Batch, Occurrence, Span, What};
pub use cells::{ByStack, Column, Join, RowDoubts, Table};
pub use interval::{Report, Top};
pub use shape::{Grouping, Part, Shape, Subject};
pub use value::{Command, Kin, OVERHEAD_BYTES, Value};
pub use verdict::Verdict;
