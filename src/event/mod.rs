//! The EVENT selector: the text after `-e` as a user types it, `sys:name/filter/attr,...`, and where the code is that a probe in a
//! program names.

pub mod code;
mod part;
pub mod selector;

pub use selector::{Args, Attrs, Head, Place, Selector, SelectorError, parse, parse_with};
