//! BPF programs. Programs of other tools on the events of a run: `attached` finds them, `exits` decides whether their
//! instructions can hide events. Programs of perf-prof: `strings` copies the string arguments of system calls, for the
//! tasks in `tasks`; `socket_errors` copies what getsockopt returns about connections, `returned_addresses` whom sockets are connected to; `idle` copies the records of
//! events during a hidden idle task. `assembler` makes programs from single instructions (`instruction`); `copier`
//! loads the programs that copy.

use std::io;

pub mod assembler;
pub mod attached;
pub mod copier;
pub mod exits;
pub mod idle;
pub mod instruction;
pub mod returned_addresses;
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
