//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `bound` is an event with its
//! format, filter and expressions, `filters` separates kernel filters from conditions that perf-prof evaluates;
//! `counter` has the names of counters. `selector` parses the text: the `head` names the event, the `attributes` stand
//! behind the filter. `key` is the key of a record, by which records belong together; `print_key` prints keys, with the
//! `conversion`s of a printf.

pub mod attributes;
mod bound;
mod conversion;
pub mod counter;
mod filters;
pub mod head;
pub mod key;
mod part;
pub mod print_key;
pub mod selector;

pub use attributes::{ALLOCATION_ATTRS, AMOUNT_ATTRS, NUMBER_ATTRS, ProbeArgs, RELATION_ATTRS, SelectorAttrs};
pub use bound::BoundEvent;
pub use filters::{EventFilterError, EventFilters, ExprFilter};
pub use head::{ProbePoint, SelectorHead};
pub use key::{EventKey, KeyExpr, KeyText, KeyTexts};
pub use print_key::{PrintKey, PrintedKey};
pub use selector::{Selector, SelectorError, parse, parse_with};
