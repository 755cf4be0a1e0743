//! A call that fails, as the key of a row.

use crate::calls::kinds::{CallNumber, OTHERS};
use crate::calls::paths::PathOfCall;
use crate::stats::SumKey;
use crate::symbol::StackId;
use crate::task::Comm;

/// Which call failed, with which error and arguments, and in which task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FailedCall {
    pub call: CallNumber,
    pub errno: u32,
    pub comm: Comm,
    /// The paths or other strings of the call.
    pub paths: [PathOfCall; 2],
    /// Where the program makes the call, with `-g`.
    pub stack: Option<StackId>,
}

impl SumKey for FailedCall {
    fn others(&self) -> FailedCall {
        FailedCall {
            call: OTHERS,
            errno: self.errno,
            comm: Comm::new(b"<others>"),
            paths: Default::default(),
            stack: None,
        }
    }
}
