//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `bound` is what it becomes, and
//! `counter` knows the events that are only counted.

mod bound;
pub mod counter;
mod part;
pub mod selector;

pub use bound::BoundEvent;
pub use selector::{ProbeArgs, ProbePoint, Selector, SelectorAttrs, SelectorError, SelectorHead, parse, parse_with};
