//! The options of syscalls.

use crate::calls::list::CallList;
use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::tep::syscalls::SyscallEnd;

/// Latencies and errors of system calls, by name; those that hang now
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  What all tasks do, how long it takes, and what has not come back yet:
    perf-prof syscalls -i 1000
  Which calls fail, and whose:
    perf-prof syscalls --errors -i 1000
  Calls over 10 ms, with their arguments and where the time went:
    perf-prof syscalls --than 10ms -g
  The same calls of one process by thread:
    perf-prof syscalls -p nginx --perins --for 10
  Only some calls, which the kernel picks: the others cost next to nothing:
    perf-prof syscalls --calls fsync,fdatasync,openat -i 1000
  From where a command makes its calls, as wide as they are long:
    perf-prof syscalls --flame-graph calls.svg -- ./job

Calls that wait by design (futex, poll, nanosleep, wait4, ...) have a table of
their own, and lines with --than only if --calls names them. Calls that go on
when the interval ends are listed with their age, also those that have hung
since before the run.")]
pub struct SyscallsArgs {
    /// Only these calls: openat,read,fsync
    #[arg(long, value_name = "CALL,...", value_parser = CallList::parse)]
    pub calls: Option<CallList>,
    /// Which calls fail with which error in which process, and nothing else
    #[arg(long, conflicts_with_all = ["perins", "than", "only_than", "lower", "worst"])]
    pub errors: bool,
    /// Without the paths, other strings and addresses that calls are given: nothing is copied
    #[arg(long)]
    pub no_paths: bool,
    #[command(flatten)]
    pub lengths: LatencyArgs,
    /// A row per thread and call
    #[arg(long)]
    pub perins: bool,
    /// Also the longest call of each name, with its stack
    #[arg(long)]
    pub worst: bool,
    /// So many rows of each table at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    pub top: u64,
    /// Accepted: it always reads raw_syscalls:sys_enter and raw_syscalls:sys_exit
    #[arg(short = 'e', long = "event", value_name = "EVENT,...", value_parser = raw_events, hide_short_help = true)]
    pub events: Vec<()>,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Scripts for the C tool name the two events in `-e`.
fn raw_events(text: &str) -> Result<(), String> {
    let is_raw = |name: &str| SyscallEnd::BOTH.iter().any(|end| name.trim_end_matches('/') == end.raw());
    match text.split(',').find(|name| !is_raw(name)) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{other:?}: only raw_syscalls:sys_enter and raw_syscalls:sys_exit are read here; choose calls with --calls, or use trace"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_raw_events_are_accepted() {
        assert!(raw_events("raw_syscalls:sys_enter,raw_syscalls:sys_exit/").is_ok());
        assert!(raw_events("raw_syscalls:sys_enter,sched:sched_switch").is_err());
    }
}
