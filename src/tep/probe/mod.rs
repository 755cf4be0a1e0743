//! Probes: events that a run defines in the kernel or in a program, for as long as it lasts.
//!
//! `fetch` checks what a probe shall record, and knows from `machine` where arguments are; `events` hands definitions to the
//! kernel and takes them back; `step` tells the dear ones from the cheap; `error_log` is what the kernel says of those it refuses. What a definition is of, a function
//! or a byte of a file, is found out elsewhere.

pub mod error_log;
pub mod events;
pub mod fetch;
pub mod machine;
pub mod step;

pub use events::{ProbeAddress, ProbeDefinition, ProbeHits, ProbeRefusal, Probes};
pub use fetch::{ArgFault, FetchArg, ProbeSite};
pub use machine::Machine;
