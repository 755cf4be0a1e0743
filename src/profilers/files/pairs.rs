//! How this profiler pairs events: the start of a call with its end, by thread; and the keys of its rows.

use crate::calls::{CallNumber, CallingThread, EndedCall};
use crate::file::InodeKey;
use crate::perf::Sample;
use crate::profiler::Context;
use crate::profilers::files::names::{FileKind, FileNumber};
use crate::profilers::files::operations::{FileCallUse, FileOperation, OPERATIONS};
use crate::profilers::files::table::failure;
use crate::relation::{Declaration, OpenStart, PairEnd, PairSums, RowKey};
use crate::stats::SumKey;
use crate::task::Comm;

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub struct FileCall {
    pub call: CallNumber,
    pub used: FileCallUse,
    pub file: FileNumber,
    pub args: [u64; 4],
    /// It bypasses the page cache.
    pub is_direct: bool,
    /// The page cache lacked a page.
    pub misses: bool,
    /// The last file whose mapping had a fault during the call.
    pub faulted: Option<InodeKey>,
}

/// The row of a call. Without an operation it counts nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationOf {
    pub operation: Option<FileOperation>,
    /// The file of a descriptor that may be no file.
    pub untold: Option<FileNumber>,
}

impl SumKey for OperationOf {
    fn others(&self) -> OperationOf {
        OperationOf { untold: None, ..*self }
    }
}

impl RowKey for OperationOf {
    #[inline]
    fn index(&self) -> Option<usize> {
        let index = self.operation.map_or(OPERATIONS, |operation| operation as usize);
        self.untold.is_none().then_some(index)
    }

    fn at_index(index: usize) -> Option<OperationOf> {
        (index <= OPERATIONS).then(|| OperationOf { operation: FileOperation::ALL.get(index).copied(), untold: None })
    }
}

/// Sums of an operation besides lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationSums {
    pub bytes: u64,
    pub errors: u64,
}

#[derive(Debug)]
pub struct FileCallPairs;

impl Declaration for FileCallPairs {
    type Key = CallingThread;
    type Start = FileCall;
    type End = (EndedCall, Option<FileKind>);
    type Row = OperationOf;
    type Sums = OperationSums;

    fn row(&self, _: &CallingThread, start: &OpenStart<FileCall>, end: &PairEnd<Self::End>) -> OperationOf {
        let FileCall { used, file, .. } = start.open.own;
        let (_, kind) = end.own;
        OperationOf { operation: used.operation, untold: (kind != Some(FileKind::Path)).then_some(file) }
    }

    /// The thread was in the call as the run began: `no_start` of its row counts it.
    fn may_be_first(&self, _: &CallingThread, _: &Self::End) -> bool {
        true
    }

    fn fits(&self, start: &FileCall, end: &Self::End) -> bool {
        start.call == end.0.call
    }

    fn add(&self, sums: &mut OperationSums, start: &OpenStart<FileCall>, end: &PairEnd<Self::End>) {
        let ret = end.own.0.ret;
        sums.bytes += start.open.own.bytes(ret).unwrap_or(0);
        sums.errors += u64::from(failure(ret).is_some());
    }
}

impl FileCall {
    /// The bytes that the call has read or written.
    pub fn bytes(&self, ret: i64) -> Option<u64> {
        let moves = matches!(self.used.operation, Some(FileOperation::Read | FileOperation::Write));
        u64::try_from(ret).ok().filter(|_| moves)
    }

    pub fn arg(&self, index: u8) -> u64 {
        self.args.get(usize::from(index)).copied().unwrap_or(0)
    }
}

/// A file as the threads of one name in one process use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileUser {
    pub file: FileNumber,
    pub pid: i32,
    pub comm: Comm,
    /// The name of the process.
    pub process: Comm,
}

impl SumKey for FileUser {
    fn others(&self) -> FileUser {
        let others = Comm::new(b"<others>");
        FileUser { file: FileNumber::OTHERS, pid: 0, comm: others, process: others }
    }
}

impl FileUser {
    /// `comm`: the name of the thread.
    pub fn of(file: FileNumber, comm: Comm, sample: &Sample<'_>, ctx: &mut Context) -> FileUser {
        let process = if sample.pid == sample.tid { comm } else { ctx.tasks.comm(sample.pid) };
        FileUser { file, pid: sample.pid, comm, process }
    }
}

/// Adds the sums of one row to those of another.
pub fn merge(sums: &mut PairSums<OperationSums>, more: &PairSums<OperationSums>) {
    sums.latency.merge(&more.latency);
    sums.than += more.than;
    sums.before += more.before;
    sums.no_start += more.no_start;
    sums.own.bytes += more.own.bytes;
    sums.own.errors += more.own.errors;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_known_files_have_an_index() {
        for index in 0..=OPERATIONS {
            assert_eq!(OperationOf::at_index(index).and_then(|of| of.index()), Some(index));
        }
        assert_eq!(OperationOf::at_index(OPERATIONS + 1), None);
        let untold = OperationOf { operation: None, untold: Some(FileNumber::UNREAD) };
        assert_eq!((untold.index(), untold.others().index()), (None, Some(OPERATIONS)));
    }
}
