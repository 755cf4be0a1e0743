//! Tasks: names ([`Comm`]) and processes of threads ([`TaskTable`]), which process created which ([`ancestry`]), the
//! tasks that a run is about ([`watched::Watched`]), their descendants ([`family`]) and the end of tasks given by pid
//! or name ([`Targets`]), processes that live for a moment ([`Children`]), the files of /proc about a task ([`procfs`])
//! and about the CPUs ([`cpu_times`]), the CPU quota of its cgroup ([`cpu_quota`]) and its memory ([`memory_cgroup`]),
//! and how long a thread of perf-prof waited for a CPU ([`run_delay`]). [`file_reader`] asks what descriptors are open
//! on, [`sockets`] which processes have a socket. [`thread_reader`] asks /proc what threads do that had no event;
//! [`asker`] finds out where a thread waits: in which system [`call`], on which [`descriptor`], and in which functions
//! of its program ([`user_snapshot`], for Python functions [`python`]).

pub mod ancestry;
pub mod asker;
pub mod call;
pub mod call_parts;
pub mod cgroup_mounts;
pub mod children;
mod comm;
pub mod cpu_quota;
pub mod cpu_times;
pub mod descriptor;
pub mod family;
pub mod file_reader;
#[cfg(test)]
pub(crate) mod fixture;
pub mod memory;
pub mod memory_cgroup;
pub mod procfs;
pub mod python;
pub mod run_delay;
mod script;
pub mod snapshots;
pub mod sockets;
pub mod table;
mod targets;
pub mod thread_reader;
pub mod user_snapshot;
pub mod watched;

use crate::outside::QuestionHandler;

/// Questions about tasks that workers answer.
pub const QUESTIONS: &[QuestionHandler] = &[
    QuestionHandler::of::<procfs::ThreadFile>(),
    QuestionHandler::of::<procfs::ThreadLink>(),
    QuestionHandler::of::<asker::KernelWait>(),
    QuestionHandler::of::<user_snapshot::WaitSnapshot>(),
    QuestionHandler::of::<call_parts::CallPartsOf>(),
    QuestionHandler::of::<descriptor::OpenFileOf>(),
    QuestionHandler::of::<file_reader::FilesOfThread>(),
    QuestionHandler::of::<thread_reader::ThreadQuestion>(),
    QuestionHandler::of::<memory::StringsAt>(),
    QuestionHandler::of::<sockets::SocketsOf>(),
];

pub use ancestry::Ancestor;
pub use children::Children;
pub use comm::Comm;
pub use script::script_of;
pub use table::TaskTable;
pub use targets::{Targets, listed};
pub use watched::Watched;
