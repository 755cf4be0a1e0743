//! The options of syscalls.

use crate::cli::{CommonArgs, LatencyArgs, values};
use crate::tep::syscalls::{self, SyscallEnd};

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

/// System calls by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallList(Vec<u32>);

impl CallList {
    /// # Errors
    /// An unknown name.
    pub fn parse(text: &str) -> Result<CallList, String> {
        let number = |name: String| {
            let known = syscalls::number(&name).or_else(|| name.strip_prefix("sys_")?.parse().ok());
            known.ok_or_else(|| format!("there is no system call {name:?} here; an unknown one is sys_NUMBER"))
        };
        let mut numbers: Vec<u32> = values::list(text)?.into_iter().map(number).collect::<Result<_, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(CallList(numbers))
    }

    /// A kernel filter for one of the two raw events.
    pub fn filter(&self, end: SyscallEnd) -> String {
        let mut tests: Vec<String> = self.0.iter().map(|number| format!("id == {number}")).collect();
        // At the exit from rt_sigreturn the number is gone: it is then taken from the context to which the task
        // returns.
        if end == SyscallEnd::Exit && syscalls::number("rt_sigreturn").is_some_and(|number| self.0.contains(&number)) {
            tests.push("id == -1".to_owned());
        }
        tests.join(" || ")
    }

    pub fn contains(&self, number: i32) -> bool {
        u32::try_from(number).is_ok_and(|number| self.0.binary_search(&number).is_ok())
    }
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
    fn calls_become_filters() {
        let list = CallList::parse("read,openat,read,sys_999").unwrap();
        let [read, openat] = [libc::SYS_read, libc::SYS_openat];
        assert!(list.contains(read as i32) && list.contains(999) && !list.contains(-1));
        let text = list.filter(SyscallEnd::Exit);
        assert!(text.contains(&format!("id == {read}")) && text.contains(&format!("id == {openat}")), "{text}");
        assert_eq!(text.matches("id").count(), 3);
        let returns = CallList::parse("rt_sigreturn").unwrap();
        assert!(returns.filter(SyscallEnd::Exit).ends_with("id == -1"));
        assert!(!returns.filter(SyscallEnd::Enter).contains("-1"));
        for text in ["nosuch", "sys_", "", "read,,"] {
            assert!(CallList::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_the_raw_events_are_accepted() {
        assert!(raw_events("raw_syscalls:sys_enter,raw_syscalls:sys_exit/").is_ok());
        assert!(raw_events("raw_syscalls:sys_enter,sched:sched_switch").is_err());
    }
}
