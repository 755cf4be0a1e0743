//! Addresses to names, in two halves. On the reading side [`spaces`] knows what each process has mapped and
//! [`stacks`] interns callchains as frames of (file, offset), so that a later exec or exit cannot rename them.
//! On the output side [`names`] gives a frame its text, the first time it is printed.

pub mod kallsyms;
pub mod names;
pub mod spaces;
pub mod stacks;

pub use names::Names;
pub use spaces::{Module, Spaces};
pub use stacks::{Frame, Stack, StackId, Stacks};
