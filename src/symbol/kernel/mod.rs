//! Symbols of the kernel ([`kallsyms`]), and why it hides them ([`hidden`]).

pub mod hidden;
pub mod kallsyms;
