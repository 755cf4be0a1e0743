//! Trace event descriptions: what tracefs says of a tracepoint, and what to do with its raw bytes.
//!
//! `tracefs` finds the description, `format` parses it into fields, `print_fmt` compiles the kernel's
//! own text for a record (with the `strings` it points to), `filter` checks a filter before the kernel sees it, and
//! `check` tries all this on whole trees of descriptions. `drift` knows what differs among kernels, `syscalls` the
//! number of each system call by name, `errnos` the names of errors, `call_text` words a system call with its arguments,
//! `context` whether a record was made in an interrupt.
//! Descriptions, raw bytes and filter texts are all input from outside: nothing here panics on them.

pub mod call_text;
pub mod check;
pub mod compat_calls;
pub mod context;
pub mod drift;
mod elements;
pub mod errnos;
pub mod field;
pub mod fields_text;
pub mod filter;
#[cfg(test)]
pub(crate) mod fixture;
pub mod format;
pub mod operators;
pub mod print_fmt;
pub mod probe;
#[cfg(test)]
mod samples;
pub mod strings;
pub mod syscall_strings;
pub mod syscalls;
pub mod tracefs;
pub mod types;

pub use field::{Field, FieldKind, FieldValue, Int32, Int64, ReadError};
pub use fields_text::render_fields;
pub use filter::{Comparison, Filter, FilterError};
pub use format::{FieldError, Format, FormatError};
pub use print_fmt::{FlagTable, KernelLookup, NoNames, PrintFmt, Unsupported};
pub use strings::KernelStrings;
pub use tracefs::{EventError, Tracefs};
