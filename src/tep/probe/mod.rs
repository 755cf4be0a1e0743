//! Probes: events that a run defines in the kernel or in a program, for as long as it lasts.
//!
//! `fetch` checks what a probe shall record, and knows from `machine` where arguments are. `events` adds definitions to
//! the kernel's lists and removes them, `step` tells which probes are expensive, `error_log` why the kernel refused
//! one. Functions are looked up elsewhere: a definition is of a kernel function or of a byte of a file.

pub mod address;
pub mod error_log;
pub mod events;
pub mod fetch;
pub mod machine;
pub mod step;

pub use address::ProbeAddress;
pub use events::{ProbeDefinition, ProbeHits, ProbeRefusal, Probes};
pub use fetch::{ArgFault, FetchArg, ProbeSite};
pub use machine::Machine;
