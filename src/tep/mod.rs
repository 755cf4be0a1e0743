//! Trace event descriptions: what tracefs says of a tracepoint, and what to do with its raw bytes.
//!
//! `tracefs` finds the description, `format` parses it into fields, `print_fmt` compiles the kernel's
//! own text for a record, `filter` checks a filter before the kernel sees it. `drift` knows what differs among kernels,
//! `syscalls` the numbers, arguments and errors of system calls, `probe` how probes are defined,
//! `context` whether a record was made in an interrupt.
//! Descriptions, raw bytes and filter texts are all input from outside: nothing here panics on them.

pub mod context;
pub mod drift;
pub mod filter;
#[cfg(test)]
pub(crate) mod fixture;
pub mod format;
pub mod operators;
pub mod print_fmt;
pub mod probe;
#[cfg(test)]
mod samples;
pub mod syscalls;
pub mod tracefs;
pub mod types;

pub use filter::{Comparison, Filter, FilterError};
pub use format::field::{Field, FieldKind, FieldValue, Int32, Int64, ReadError};
pub use format::fields_text::render_fields;
pub use format::{FieldError, Format, FormatError};
pub use print_fmt::{FieldForm, FieldText, FlagTable, KernelLookup, NoNames, PrintFmt, Unsupported};
pub use tracefs::strings::KernelStrings;
pub use tracefs::{EventError, Tracefs};
