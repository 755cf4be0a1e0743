//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`. `counter` knows the events that
//! are only counted.

pub mod counter;
mod part;
pub mod selector;

pub use selector::{Args, Attrs, Head, Place, Selector, SelectorError, parse, parse_with};
