//! The `perf-prof` binary: parse, run, print the error, exit code.

use std::process::ExitCode;

use perf_prof::sys::memory::OrExit;

#[global_allocator]
static MEMORY: OrExit = OrExit;

fn main() -> ExitCode {
    ExitCode::from(perf_prof::app::main())
}
