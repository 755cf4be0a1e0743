//! A mangled name: its text is bounded, does not depend on the platform's underscore, and the text of a clone is that
//! of the function.

use std::str;

use perf_prof::symbol::demangle::{demangled, function_name};

const MAX_NAME_BYTES: usize = 4096;

pub fn run(data: &[u8]) {
    let Ok(name) = str::from_utf8(data) else { return };
    for name in [name.to_owned(), format!("_Z{name}"), format!("_R{name}")] {
        let function = function_name(&name);
        assert!(function.is_none_or(|function| function.len() <= MAX_NAME_BYTES));
        let Some(text) = demangled(&name) else { continue };
        assert!(text.len() <= MAX_NAME_BYTES);
        assert_eq!(demangled(&name).as_deref(), Some(text.as_str()));
        let may_be_rust = name.starts_with("_R") || name.contains("17h"); // shown without their suffixes
        let has_version = name.contains('@');
        if may_be_rust || has_version || !name.starts_with("_Z") || text.len() > MAX_NAME_BYTES / 2 {
            continue;
        }
        if let Some(same) = demangled(&format!("_{name}")) {
            assert_eq!(same, text);
        }
        if let Some(clone) = demangled(&format!("{name}.cold")) {
            assert_eq!(clone, format!("{text} [clone .cold]"));
        }
    }
}
