//! The `perf-prof` binary: parse, run, print the error, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(perf_prof::cli::main())
}
