//! Calls about files in progress since before the run, or since before a loss, which /proc tells.

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::calls::before::{EarlierCalls, NewlyFound};
use crate::calls::{CallInFlight, CallList, CallNumber};
use crate::profiler::{Context, Setup, Timestamp};
use crate::profilers::files::descriptors::Descriptors;
use crate::profilers::files::names::{CalledFiles, FileNumber};
use crate::profilers::files::operations::{FileArgument, FileCalls};
use crate::relation::OpenStart;

/// The earlier calls, each with its file.
#[derive(Debug, Default)]
pub struct EarlierFileCalls {
    /// None: calls on some CPUs are not seen.
    calls: Option<EarlierCalls>,
    list: Option<CallList>,
    /// By thread.
    files: FxHashMap<i32, FileNumber>,
}

impl EarlierFileCalls {
    /// # Errors
    /// No thread can be started.
    pub fn start(calls: &FileCalls, setup: &Setup<'_>) -> Result<EarlierFileCalls> {
        let (list, files) = (Some(calls.list()), FxHashMap::default());
        Ok(EarlierFileCalls { calls: Some(EarlierCalls::new(setup)?), list, files })
    }

    /// The tid of the thread that reads /proc.
    pub fn thread(&self) -> Option<i32> {
        self.calls.as_ref().and_then(EarlierCalls::thread)
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.is_due(now))
    }

    /// Looks for calls that began before the start, or before a loss. `is_open`: whether the call of a thread is known.
    pub fn look(
        &mut self,
        now: Timestamp,
        (known, is_open): (&FileCalls, impl Fn(i32) -> bool),
        descriptors: &mut Descriptors,
        names: &mut CalledFiles,
        ctx: &mut Context,
    ) {
        let EarlierFileCalls { calls: Some(calls), list, files } = self else { return };
        let found = calls.look(now, list.as_ref(), is_open, ctx);
        if found.is_empty() {
            return;
        }
        let numbers: FxHashMap<i32, CallNumber> = calls.iter().map(|(tid, start)| (tid, start.open.own.call)).collect();
        for NewlyFound { tid, args, .. } in found {
            let used = numbers.get(&tid).and_then(|call| known.of(*call));
            let file = match used.map(|used| used.file) {
                Some(FileArgument::Descriptor(index)) => {
                    descriptors.file(ctx.tasks.pid(tid), tid, args[usize::from(index)] as i32, names)
                }
                _ => FileNumber::UNREAD,
            };
            files.insert(tid, file);
        }
    }

    #[inline]
    pub fn entered(&mut self, tid: i32) {
        self.calls.iter_mut().for_each(|calls| calls.entered(tid));
    }

    /// The call of a thread has ended.
    pub fn forget(&mut self, tid: i32) {
        self.calls.as_mut().and_then(|calls| calls.take(tid));
        self.files.remove(&tid);
    }

    pub fn lost(&mut self, end_ns: u64) {
        self.calls.iter_mut().for_each(|calls| calls.lost(end_ns));
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, &OpenStart<CallInFlight>, FileNumber)> {
        let calls = self.calls.iter().flat_map(EarlierCalls::iter);
        calls.filter_map(|(tid, start)| Some((tid, start, *self.files.get(&tid)?)))
    }
}
