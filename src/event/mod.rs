//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `bound` is an event with its
//! format, filter and expressions, `filters` tells the filters of the kernel from those that are evaluated here; `counter`
//! has the names of counters.

mod bound;
pub mod counter;
mod filters;
mod part;
pub mod selector;

pub use bound::BoundEvent;
pub use filters::{EventFilterError, EventFilters, ExprFilter};
pub use selector::{ProbeArgs, ProbePoint, Selector, SelectorAttrs, SelectorError, SelectorHead, parse, parse_with};
