//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `bound` is what it becomes, and
//! `counter` knows the events that are only counted.

mod bound;
pub mod counter;
mod part;
pub mod selector;

pub use bound::Bound;
pub use selector::{Args, Attrs, Head, ProbePoint, Selector, SelectorError, parse, parse_with};
