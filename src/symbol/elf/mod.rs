//! ELF files: their headers, and what is read of them to name code and to unwind stacks.
//!
//! The files belong to other users, so workers read them ([`questions`]). A worker returns an index of the functions
//! ([`function_index`]) by the symbol tables, which may be in another file ([`debug_files`]), or a copy of the unwind
//! tables (`unwind_sections`). [`symbols`] names an offset by such indexes. [`mod@file`] parses the headers. The
//! [`vdso`] is an ELF file in memory.

pub mod debug_files;
pub mod file;
#[cfg(test)]
pub mod fixture;
pub mod function_index;
pub mod questions;
pub mod symbols;
mod unwind_sections;
pub mod vdso;
