//! BPF programs: those that others have attached to the events of a run (`attached`), and whether their instructions
//! can hide events from us (`exits`).

pub mod attached;
pub mod exits;
