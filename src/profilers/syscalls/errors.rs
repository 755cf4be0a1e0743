//! Calls that fail: by error, call, name of the process, and arguments.

use std::cmp::Reverse;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::FxHashSet;

use crate::calls::cells::error;
use crate::calls::paths::PathOfCall;
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::{Setup, SocketErrors};
use crate::profilers::syscalls::connects::{FailedConnect, PendingConnects};
pub use crate::profilers::syscalls::failed_call::FailedCall;
use crate::report::{Column, LateText, Schema, TaskNames, Unit, Value};
use crate::stats::KeyedSums;
use crate::symbol::StackId;
use crate::task::Comm;
use crate::tep::syscalls::call_text::socket_address;

/// How often a call failed, in which processes, and the look-ups about its arguments, which are made soon after the
/// first failure.
#[derive(Clone, Debug, Default)]
pub struct FailedSum {
    pub count: u64,
    /// Processes of the interval.
    pids: FxHashSet<i32>,
    /// These processes as the row shows them, set when the row is made.
    processes: TaskNames,
    /// More processes than were counted may have failed.
    has_more: bool,
    late: [Option<Arc<LateText>>; 2],
}

impl FailedSum {
    fn found(&self, at: usize) -> Option<&Arc<[u8]>> {
        self.late[at].as_ref()?.found()
    }
}

/// The calls of an interval that failed.
#[derive(Debug)]
pub struct FailedCalls {
    sums: KeyedSums<FailedCall, FailedSum>,
    /// How many more processes the rows of this interval may count.
    pids_left: usize,
    /// Look-ups for the rows, to be made.
    look_ups: Vec<Arc<LateText>>,
    /// Pending connects, whose errors come later.
    connects: Option<PendingConnects>,
}

/// Most processes counted in an interval, over all rows: some 16 MiB. Further processes are not counted.
const MAX_PIDS: usize = 1 << 20;

impl Default for FailedCalls {
    fn default() -> FailedCalls {
        FailedCalls { sums: KeyedSums::default(), pids_left: MAX_PIDS, look_ups: Vec::new(), connects: None }
    }
}

impl FailedCalls {
    /// Counts a failed call of a thread.
    pub fn add(&mut self, who: FailedCall, pid: i32, tid: i32) {
        let (comm, wanted) = (who.comm, who.paths.each_ref().map(PathOfCall::to_look_up));
        let sum = self.sums.sum(who);
        sum.count += 1;
        if self.pids_left > 0 && sum.pids.insert(pid) {
            self.pids_left -= 1;
        }
        sum.has_more |= self.pids_left == 0;
        if sum.count == 1 && wanted != [None; 2] {
            sum.late = wanted.map(|source| source.map(|source| LateText::new(tid, comm, source)));
            self.look_ups.extend(sum.late.iter().flatten().cloned());
        }
    }

    /// The look-ups that were added since the last call.
    pub fn take_look_ups(&mut self) -> Vec<Arc<LateText>> {
        std::mem::take(&mut self.look_ups)
    }

    pub fn take(&mut self) -> Vec<ErrorRow> {
        self.pids_left = MAX_PIDS;
        let row = |(who, mut sum): (FailedCall, FailedSum)| {
            sum.processes = TaskNames::of_processes(std::mem::take(&mut sum.pids), who.comm);
            (who, sum)
        };
        self.sums.drain().map(row).collect()
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let pending = self.connects.iter().flat_map(PendingConnects::stacks);
        self.sums.keys().filter_map(|who| who.stack).chain(pending)
    }

    /// Follows how background connections end. `beside`: an event of the run.
    ///
    /// # Errors
    /// As [`SocketErrors::ask`].
    pub fn follow_connects(&mut self, beside: EventId, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.connects = SocketErrors::ask(beside, evlist, setup)?.map(PendingConnects::new);
        Ok(())
    }

    /// A call of connect has returned EINPROGRESS.
    pub fn goes_on(&mut self, descriptor: Option<i32>, connect: FailedConnect) {
        if let (Some(connects), Some(descriptor)) = (&mut self.connects, descriptor) {
            connects.goes_on(descriptor, connect);
        }
    }

    /// Whether the samples of this event show how connections end.
    pub fn is_told_by(&self, event: EventId) -> bool {
        self.connects.as_ref().is_some_and(|connects| connects.event() == event)
    }

    /// Counts the failed connect that the sample reports, and returns it.
    pub fn take_told(&mut self, sample: &Sample<'_>, comm: Comm) -> Option<FailedConnect> {
        let told = self.connects.as_mut()?.told(sample, comm)?;
        self.add(told.failed.clone(), told.pid, sample.tid);
        Some(told)
    }

    /// Records were lost.
    pub fn lost(&mut self) {
        self.connects.iter_mut().for_each(PendingConnects::lost);
    }
}

/// A row of the table.
pub type ErrorRow = (FailedCall, FailedSum);

pub static ERRORS: Schema<ErrorRow> = Schema::<ErrorRow>::new(
    "errors",
    &[
        Column::label("comm", "comm", |(who, _)| Value::Comm(who.comm)),
        Column::<ErrorRow>::derived("pid", "pid", |(_, sum), _| {
            sum.processes.only_pid().map_or(Value::None, |pid| Value::Signed(pid.into()))
        })
        .if_any(),
        Column::<ErrorRow>::derived("processes", "procs", |(_, sum), _| {
            Some(sum.processes.count()).filter(|count| *count > 1).map_or(Value::None, Value::Unsigned)
        })
        .if_any(),
        Column::<ErrorRow>::derived("processes_least", "", |(_, sum), _| {
            if sum.has_more { Value::Word("at least") } else { Value::None }
        })
        .if_any(),
        Column::label("call", "call", |(who, _)| who.call.value()),
        Column::label("error", "error", |(who, _)| error(who.errno)),
        Column::counter("count", "count", |(_, sum)| &mut sum.count),
        Column::<ErrorRow>::derived("per_s", "per s", |(_, sum), span_ns| per_second(sum.count, span_ns))
            .in_unit(Unit::Hz),
        Column::<ErrorRow>::label("address", "address", address).if_any(),
        Column::<ErrorRow>::label("path", "path", |row| path(row, 0)).if_any(),
        Column::<ErrorRow>::label("directory", "in", |row| directory(row, 0)).if_any(),
        Column::<ErrorRow>::label("path2", "second path", |row| path(row, 1)).if_any(),
        Column::<ErrorRow>::label("directory2", "in", |row| directory(row, 1)).if_any(),
        Column::<ErrorRow>::label("path_unread", "path unread", unread).if_any(),
        Column::<ErrorRow>::place("place", "function", |(who, _)| &mut who.stack).if_any(),
        Column::<ErrorRow>::names("names", "", |(_, sum)| &mut sum.processes).hidden(),
    ],
)
.explained(&[
    ("pid", "the process, if all calls were of one"),
    (
        "processes",
        "processes of that name with such calls, if they are several; of more than 64, in the sums of a run, one counts in each interval \
         again",
    ),
    ("call", "its name; `sys_N` for a number without a known name, `32-bit NAME` for one of 32-bit mode"),
    ("error", "the name of the error, or its number"),
    ("processes_least", "`at least`: there may be more than a million processes in all rows, of which no more are told apart"),
    ("count", "calls that failed with it"),
    ("per_s", "the same in a second"),
    ("address", "the address of a socket that connect, bind, sendto or sendmsg was given"),
    ("path", "the path, or other string, that the call was given, as the program wrote it"),
    (
        "directory",
        "of a relative path, the directory that it began at, as it was a moment after the first of these calls",
    ),
    ("path2", "the second one, of calls such as rename"),
    ("directory2", "the directory of that, if it is another one"),
    ("path_unread", "why it is not known; `read late, once`: it was read from the memory of the process a moment after the first of these calls, and the others had the same address"),
    ("place", "the function that made the call, with `-g`; in JSON `stack` has all frames"),
])
.ordered(|(one, few), (other, many)| (Reverse(few.count), one).cmp(&(Reverse(many.count), other)));

// Runs on the output thread, which has finished the look-ups before it makes the cells of a table.

fn path((who, sum): &ErrorRow, at: usize) -> Value {
    let text = match &who.paths[at] {
        PathOfCall::Read { text, .. } => Some(text),
        PathOfCall::Unread { .. } => sum.found(at),
        PathOfCall::None | PathOfCall::Socket(_) | PathOfCall::Words(_) | PathOfCall::UnreadData { .. } => None,
    };
    text.map_or(Value::None, |text| Value::Path(text.clone()))
}

fn address((who, _): &ErrorRow) -> Value {
    let PathOfCall::Socket(address) = &who.paths[0] else { return Value::None };
    let mut text = String::new();
    socket_address::push(address, &mut text);
    Value::Text(text.into())
}

fn directory((who, sum): &ErrorRow, at: usize) -> Value {
    let of = |at: usize| match who.paths[at] {
        PathOfCall::Read { directory: Some(_), .. } => sum.found(at),
        _ => None,
    };
    let directory = of(at).filter(|directory| at == 0 || of(0) != Some(directory));
    directory.map_or(Value::None, |directory| Value::Path(directory.clone()))
}

fn unread((who, sum): &ErrorRow) -> Value {
    match who.paths[0] {
        PathOfCall::Unread { .. } if sum.found(0).is_some() => Value::Word("read late, once"),
        PathOfCall::Unread { reason, .. } | PathOfCall::UnreadData { reason } => Value::Word(reason),
        _ => Value::None,
    }
}

fn per_second(count: u64, span_ns: u64) -> Value {
    const SECOND_NS: u128 = 1_000_000_000;
    if span_ns == 0 {
        return Value::None;
    }
    let per_s = (u128::from(count) * SECOND_NS + u128::from(span_ns) / 2) / u128::from(span_ns);
    Value::Unsigned(u64::try_from(per_s).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_rates() {
        assert_eq!(per_second(5, 0), Value::None);
        assert_eq!(per_second(5, 2_000_000_000), Value::Unsigned(3));
        assert_eq!(per_second(u64::MAX, 1), Value::Unsigned(u64::MAX));
    }
}
