//! Names of addresses. The work is split between two threads:
//!
//! - The main thread interns callchains ([`stacks`]) under a key per address space ([`spaces::space_keys`]), and opens no file.
//! - The output thread receives new stacks and mappings in order ([`SymbolUpdate`]). It tracks what each process has mapped
//!   ([`spaces`]), so that a later exec or exit does not rename a frame. It keeps the frames ([`Frames`]), and names each when it
//!   is first printed ([`naming`]).
//!
//! Names come from the [`kernel`], from symbol tables of files ([`elf`]; [`demangle`] makes them readable), and from
//! perf maps, in which processes name code that they generate ([`perf_map`]). [`unnamed`] has the reasons why a frame
//! has no name. [`opening`] opens other users' files. The memory for their content is bounded by a [`budget`].
//!
//! In the other direction, [`functions`] finds the address of a function. [`quality`] says whether callchains are whole.
//!
//! A sub-room uses only those above it in this list: [`demangle`], [`elf`], [`perf_map`], [`spaces`], [`kernel`] and
//! [`functions`], [`stacks`], [`naming`], [`quality`]. All of them may use the other files of this room.

pub mod budget;
pub mod demangle;
pub mod elf;
pub mod functions;
pub mod kernel;
pub mod naming;
pub mod opening;
pub mod perf_map;
pub mod quality;
pub mod spaces;
pub mod stacks;
pub mod unnamed;

use crate::outside::QuestionHandler;
pub use naming::named_frame::NamedFrame;
pub use naming::names::FrameNames;
pub use naming::time::CurrentStep;
pub use spaces::address_spaces::AddressSpaces;
pub use spaces::module::{Content, Module};
pub use spaces::space_keys::SpaceKeys;
pub use stacks::frame::{Frame, StackId};
pub use stacks::frames::Frames;
pub use stacks::table::{Stacks, SymbolUpdate};

/// The questions to workers about code and files.
pub const QUESTIONS: &[QuestionHandler] = &[
    QuestionHandler::of::<spaces::files::OpenMapped>(),
    QuestionHandler::of::<spaces::files::CodeMaps>(),
    QuestionHandler::of::<spaces::mapped_files::MappingsAt>(),
    QuestionHandler::of::<elf::questions::IndexFunctions>(),
    QuestionHandler::of::<elf::questions::ReadNames>(),
    QuestionHandler::of::<spaces::remapped::FindRemapped>(),
    QuestionHandler::of::<elf::questions::UnwindSections>(),
    QuestionHandler::of::<perf_map::file::FindPerfMap>(),
    QuestionHandler::of::<perf_map::content::PerfMapPart>(),
];
