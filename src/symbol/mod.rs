//! Names of addresses. The work is split between two threads:
//!
//! - The main thread interns callchains ([`stacks`]) under a key per address space ([`space_keys`]), and opens no file.
//! - The output thread receives new stacks and mappings in order ([`stacks::SymbolUpdate`]). It tracks what each
//!   process has mapped ([`spaces`], [`mappings`], `shared_maps`, [`files`]), so that a later exec or exit does not rename a frame. It
//!   keeps the [`frames`], and names each when it is first printed ([`names`], [`name_cache`]).
//!
//! Names come from kallsyms ([`kallsyms`]), from symbol tables of files ([`elf`], [`elf_file`]; copied by [`tables`],
//! names read by [`demangle`]), and from perf maps, in which processes name code that they generate ([`perf_map`],
//! [`perf_map_file`]). The memory for these and for
//! [`unwind_tables`] is bounded by a [`budget`], the time for names by [`naming`].
//!
//! In the other direction, [`functions`] finds the address of a function by its name or a pattern ([`matching`]), in a
//! bounded [`search`].
//!
//! A function that has no name is known by its start, of which the unwind tables tell ([`unnamed`]).
//!
//! What is known about stacks: [`stack_key`] says which two are equal for a reader, [`quality`] whether a callchain is
//! whole ([`quality_counts`] how many are), [`coverage`] what has no name, [`hidden`] why the kernel hides addresses, and [`interrupt`] which interrupt a
//! stack belongs to.

pub mod budget;
pub mod coverage;
pub mod demangle;
pub mod elf;
pub mod elf_file;
mod file_tables;
pub mod files;
pub mod frames;
pub mod functions;
pub mod hidden;
pub mod interrupt;
pub mod kallsyms;
pub mod mappings;
pub mod matching;
pub mod name_cache;
mod named_frame;
pub mod names;
pub mod naming;
pub mod new_stack;
pub mod perf_map;
pub mod perf_map_file;
pub mod quality;
pub mod quality_counts;
pub mod search;
mod shared_maps;
pub mod space_keys;
pub mod spaces;
pub mod stack_key;
pub mod stacks;
pub mod tables;
pub mod unnamed;
pub mod unwind_tables;
pub mod unwinding;
mod vdso;
pub mod waiters;
pub mod windows;

use crate::outside::QuestionHandler;
pub use frames::Frames;
pub use mappings::{Content, Module};
pub use names::FrameNames;

/// What is asked of workers about code and files.
pub const QUESTIONS: &[QuestionHandler] = &[
    QuestionHandler::of::<files::OpenMapped>(),
    QuestionHandler::of::<files::CodeMaps>(),
    QuestionHandler::of::<file_tables::SymbolTables>(),
    QuestionHandler::of::<file_tables::UnwindSections>(),
    QuestionHandler::of::<perf_map_file::FindPerfMap>(),
    QuestionHandler::of::<perf_map::PerfMapPart>(),
];

pub use naming::CurrentStep;
pub use space_keys::SpaceKeys;
pub use spaces::AddressSpaces;
pub use stacks::{Frame, StackId, Stacks, SymbolUpdate};
