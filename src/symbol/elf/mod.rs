//! ELF files: their headers, and what is read of them to name code and to unwind stacks.
//!
//! The files belong to others, so workers read them ([`questions`]), and what comes back is a copy: of the symbol tables
//! ([`symbol_copy`]), which may be in another file ([`debug_files`]), or of the unwind tables (`unwind_sections`). [`symbols`] finds
//! the symbol of an offset in such copies. [`mod@file`] parses the headers. The [`vdso`] is an ELF file in memory.

pub mod debug_files;
pub mod file;
#[cfg(test)]
pub mod fixture;
pub mod questions;
pub mod symbol_copy;
pub mod symbols;
mod unwind_sections;
pub mod vdso;
