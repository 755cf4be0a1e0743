//! The two ends of a system call, which are paired by thread.

use crate::calls::kinds::CallNumber;
use crate::stats::{Began, PairKey};
use crate::tep::syscalls::errnos;

/// A thread as the key of its call: a thread is in one call at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallingThread(pub i32);

impl PairKey for CallingThread {}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub struct CallInFlight {
    pub call: CallNumber,
    pub began: Began,
}

/// A call that has ended, by its exit record.
#[derive(Clone, Copy, Debug)]
pub struct EndedCall {
    pub call: CallNumber,
    pub ret: i64,
    /// None: the call did not fail.
    pub errno: Option<u32>,
}

impl EndedCall {
    #[inline(always)]
    pub fn of(id: i64, is_compat: bool, ret: i64) -> EndedCall {
        EndedCall { call: CallNumber::new(id, is_compat), ret, errno: errnos::of_return(ret) }
    }
}
