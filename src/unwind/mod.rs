//! User stacks from copied registers and stack bytes, by the unwind tables that the files carry themselves.
//!
//! What is mapped executable in an address space is a [`SpaceCode`]: ranges of [`MappedCode`], which all processes that map
//! a file share, with the [`FrameTables`] made from a copy of its sections once somebody needs them. An [`Unwinder`] walks
//! from [`UserRegs`] outward: a rule for each address (`rules`), from its cache or made from the tables, says where the
//! caller's registers are.
//!
//! Tables, registers and stack bytes are somebody else's, and may lie: nothing here trusts a number, and all work is bounded.
//! The room knows bytes and numbers only: no record, no file, no process.

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

/// Addresses of one chain at most.
pub const MAX_FRAMES: usize = 512;
