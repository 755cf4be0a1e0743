//! Addresses to names, in two halves. The reading side interns callchains ([`stacks`]) under a number per address space
//! ([`space_keys`]), and touches no file. The output side is told of new stacks and new mappings in order
//! ([`stacks::SymbolUpdate`]): it knows what each process had mapped at the moment ([`spaces`], [`mappings`], [`files`]), so that a
//! later exec or exit cannot rename a frame, and keeps its [`frames`], and gives each its text when it is first printed
//! ([`names`], [`name_cache`]): from the kernel's list ([`kallsyms`]), a file's tables ([`elf`], [`elf_file`], copied by [`tables`],
//! read by [`demangle`]) or what a process says of code that it made itself ([`perf_map`], [`perf_map_file`]), within a
//! [`budget`] of memory and one of time ([`naming`]). Of the same budget are the [`unwind_tables`] by which stacks are walked.
//! The other way, [`functions`] finds code by its name, or by what people call it ([`matching`]), in a bounded [`search`].
//! When two stacks are one for a reader is told by [`stack_key`].
//! Whether a callchain is whole is told by [`quality`], what lacks names by [`coverage`], and which interrupt a stack is of
//! by [`interrupt`].

pub mod budget;
pub mod coverage;
pub mod demangle;
pub mod elf;
pub mod elf_file;
pub mod files;
pub mod frames;
pub mod functions;
pub mod hidden;
pub mod interrupt;
pub mod kallsyms;
pub mod mappings;
pub mod matching;
pub mod name_cache;
pub mod names;
pub mod naming;
pub mod perf_map;
pub mod perf_map_file;
pub mod quality;
pub mod search;
pub mod space_keys;
pub mod spaces;
pub mod stack_key;
pub mod stacks;
pub mod tables;
pub mod unwind_tables;
pub mod unwinding;
pub mod windows;

pub use frames::Frames;
pub use mappings::{Content, Module};
pub use names::FrameNames;
pub use naming::CurrentStep;
pub use space_keys::SpaceKeys;
pub use spaces::AddressSpaces;
pub use stacks::{Frame, StackId, Stacks, SymbolUpdate};
