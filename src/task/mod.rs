//! Who is who: names and processes of threads ([`TaskTable`]), which process has made which ([`ancestry`]), the tasks a run
//! is about ([`watched::Watched`]), which of those it was asked about have ended ([`Targets`]), what /proc says of a task
//! right now ([`procfs`]) and of the CPUs ([`cpu_times`]), how long a thread of ours was kept from one ([`run_delay`]).
//! [`asker`] finds out what a thread waits in: which system [`call`], on which [`descriptor`].

pub mod ancestry;
pub mod asker;
pub mod call;
pub mod cpu_times;
pub mod descriptor;
#[cfg(test)]
pub(crate) mod fixture;
pub mod procfs;
pub mod run_delay;
pub mod table;
mod targets;
pub mod watched;

pub use ancestry::Ancestor;
pub use table::{Comm, TaskTable};
pub use targets::{Targets, listed};
pub use watched::Watched;
