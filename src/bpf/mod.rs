//! BPF programs: those that others have attached to the events of a run (`attached`), and whether their instructions
//! can hide events from us (`exits`); and our own: one copies the strings that system calls are given (`strings`), of the
//! tasks that are asked for (`tasks`), two what getsockopt tells of connections (`socket_errors`), one the records of events that happen where a hidden idle task is current (`idle`).
//! They are put together by a small assembler (`assembler`) from single instructions (`instruction`); those that copy are loaded
//! by `copier`.

use std::io;

pub mod assembler;
pub mod attached;
pub mod copier;
pub mod exits;
pub mod idle;
pub mod instruction;
pub mod socket_errors;
pub mod strings;
pub mod tasks;

/// Why one of perf-prof's programs cannot be loaded: what the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {err}")]
pub struct CopierRefusal {
    pub what: &'static str,
    pub err: io::Error,
}

impl CopierRefusal {
    fn of(what: &'static str) -> impl FnOnce(io::Error) -> CopierRefusal {
        move |err| CopierRefusal { what, err }
    }
}
