//! System calls that the user or a profiler names, and their kernel filters.

use std::collections::BTreeSet;

use crate::cli::values;
use crate::tep::syscalls::{self, SyscallEnd};

/// No architecture has as many calls.
const MAX_CALLS: u32 = 1024;

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
        Ok(CallList::of(values::list(text)?.into_iter().map(number).collect::<Result<_, _>>()?))
    }

    /// The calls with these numbers.
    pub fn of(mut numbers: Vec<u32>) -> CallList {
        numbers.sort_unstable();
        numbers.dedup();
        CallList(numbers)
    }

    /// A kernel filter for one of the two raw events.
    pub fn filter(&self, end: SyscallEnd) -> String {
        let numbers = self.0.iter().copied().collect();
        let known: BTreeSet<u32> = (0..MAX_CALLS).filter(|number| syscalls::name((*number).into()).is_some()).collect();
        let mut filter = syscalls::numbers_filter("id", &numbers, &known).unwrap_or_else(|| "id >= 0".to_owned());
        // At the exit from rt_sigreturn the number is gone: it is then taken from the context to which the task
        // returns.
        if end == SyscallEnd::Exit && syscalls::number("rt_sigreturn").is_some_and(|number| self.0.contains(&number)) {
            filter += " || id == -1";
        }
        filter
    }

    pub fn contains(&self, number: i32) -> bool {
        u32::try_from(number).is_ok_and(|number| self.0.binary_search(&number).is_ok())
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
}
