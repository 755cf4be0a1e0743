//! BPF programs: those that others have attached to the events of a run (`attached`), and whether their instructions
//! can hide events from us (`exits`); and one of our own, which copies the strings that system calls are given
//! (`strings`), of the tasks that are asked for (`tasks`), put together by a small assembler (`assembler`) from single instructions (`instruction`).

pub mod assembler;
pub mod attached;
pub mod exits;
pub mod instruction;
pub mod strings;
pub mod tasks;
