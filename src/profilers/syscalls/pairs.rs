//! How this profiler pairs events: the start of a call with its end, by thread.

use crate::calls::call::{CallInFlight, CallingThread, EndedCall};
use crate::calls::kinds::{CallNumber, OTHERS};
use crate::profilers::syscalls::connects::is_under_way;
use crate::relation::{Declaration, OpenStart, PairEnd, RowKey};
use crate::stats::SumKey;
use crate::task::Comm;
use crate::tep::syscalls::errnos;

/// The key of a row. Without `--perins` there is no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    pub thread: Option<CallThread>,
    pub call: CallNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallThread {
    pub tid: i32,
    pub comm: Comm,
}

impl SumKey for CallKey {
    fn others(&self) -> CallKey {
        CallKey { thread: None, call: OTHERS }
    }
}

/// Native calls below this number, without a thread, have their number as index.
const MAX_INDEXED: i32 = 1024;

impl RowKey for CallKey {
    #[inline(always)]
    fn index(&self) -> Option<usize> {
        let CallNumber { number, is_compat } = self.call;
        let is_indexed = self.thread.is_none() && !is_compat && (0..MAX_INDEXED).contains(&number);
        is_indexed.then_some(number as usize)
    }

    fn at_index(index: usize) -> Option<CallKey> {
        let number = i32::try_from(index).ok()?;
        Some(CallKey { thread: None, call: CallNumber { number, is_compat: false } })
    }
}

/// Counts of a row besides the lengths of its calls.
#[derive(Clone, Debug, Default)]
pub struct CallErrors {
    pub errors: u64,
    /// Calls that a signal ended early.
    pub interrupted: u64,
}

#[derive(Debug)]
pub struct CallPairs {
    /// Rows are by call and thread.
    pub by_thread: bool,
}

impl Declaration for CallPairs {
    type Key = CallingThread;
    type Start = CallInFlight;
    type End = EndedCall;
    type Row = CallKey;
    type Sums = CallErrors;

    #[inline(always)]
    fn row(&self, _key: &CallingThread, start: &OpenStart<CallInFlight>, _end: &PairEnd<EndedCall>) -> CallKey {
        let start = &start.open;
        let thread = if self.by_thread { Some(CallThread { tid: start.tid, comm: start.comm }) } else { None };
        CallKey { thread, call: start.own.call }
    }

    // After rt_sigreturn the number is that of the context to which the task has returned: -1, no call.
    #[inline(always)]
    fn fits(&self, start: &CallInFlight, end: &EndedCall) -> bool {
        start.call == end.call || end.call.number == -1
    }

    #[inline(always)]
    fn add(&self, sums: &mut CallErrors, _start: &OpenStart<CallInFlight>, end: &PairEnd<EndedCall>) {
        if let Some(errno) = end.own.errno.filter(|errno| !is_under_way(end.own.call, *errno)) {
            *(if errnos::is_restart(errno) { &mut sums.interrupted } else { &mut sums.errors }) += 1;
        }
    }
}
