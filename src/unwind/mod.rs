//! User stacks from copied registers and stack bytes, by the unwind tables in the mapped files.
//!
//! The executable mappings of an address space are a [`SpaceCode`]: ranges of [`MappedCode`], which all processes that
//! map a file share. Its [`FrameTables`] are made from copies of the file's sections when they are first needed. An
//! [`Unwinder`] walks from [`UserRegs`] outward: for each address a rule (`rules`), from the cache or made from the
//! tables, says where the caller's registers are.
//!
//! Tables, registers and stack bytes come from traced programs and may be hostile: no number is trusted, and all work
//! is bounded. This room is independent of records, files and processes.

mod cache;
mod cfi;
mod chain;
#[cfg(test)]
mod fixture;
mod forms;
mod index;
mod regs;
mod rules;
mod sections;
mod space;
mod tables;
#[cfg(test)]
mod tables_tests;
mod walk;
#[cfg(test)]
mod walk_tests;

pub use chain::{UnwoundChain, UserStackSample};
pub use regs::{Arch, UserRegs};
pub use sections::{CodeLoad, FrameSection, FrameSections};
pub use space::{CodeKind, CodeRange, LoadNothing, LoadTables, MappedCode, SpaceCode};
pub use tables::FrameTables;
pub use walk::{Broken, Cut, Unwinder, UnwinderCounts, Walked};

/// Limit of the addresses of a chain.
pub const MAX_FRAMES: usize = 512;
