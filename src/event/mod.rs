//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `bound` is an event with its
//! format, filter and expressions, `filters` tells the filters of the kernel from those that are evaluated here; `counter`
//! has the names of counters. `selector` parses the text: its `head` names the event, its `attributes` stand behind the
//! filter. `key` is what the records of events have in common by an expression, `print_key` how it is shown, with the
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
