//! Tasks: names and processes of threads ([`TaskTable`]), which process created which ([`ancestry`]), the tasks a run
//! is about ([`watched::Watched`]) and the end of those given by pid or name ([`Targets`]), /proc of a task
//! ([`procfs`]) and of the CPUs ([`cpu_times`]), the CPU time that its cgroup may use ([`cpu_quota`]), and how long a thread
//! of ours waited for a CPU ([`run_delay`]). [`call_reader`] reads in which calls threads wait; [`asker`] finds out what a thread waits in: which system [`call`], on which [`descriptor`], and behind which functions
//! of its program ([`user_snapshot`], those of [`python`] too).

pub mod ancestry;
pub mod asker;
pub mod call;
pub mod call_reader;
pub mod cpu_quota;
pub mod cpu_times;
pub mod descriptor;
#[cfg(test)]
pub(crate) mod fixture;
pub mod memory;
pub mod procfs;
pub mod python;
pub mod run_delay;
pub mod snapshot_reader;
pub mod table;
mod targets;
pub mod user_snapshot;
pub mod watched;

pub use ancestry::Ancestor;
pub use table::{Comm, TaskTable};
pub use targets::{Targets, listed};
pub use watched::Watched;
