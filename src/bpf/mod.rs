//! BPF programs: those that others have attached to the events of a run (`attached`), and what their instructions say
//! about the events that they hide from us (`exits`).

pub mod attached;
pub mod exits;
