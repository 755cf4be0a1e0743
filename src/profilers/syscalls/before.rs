//! Calls that have gone on since before the start. No event tells of them until they end: /proc does.

use rustc_hash::FxHashMap;

use crate::profiler::{Context, Timestamp};
use crate::profilers::syscalls::CallInFlight;
use crate::profilers::syscalls::args::CallList;
use crate::profilers::syscalls::kinds::CallNumber;
use crate::stats::OpenPair;
use crate::tep::ThreadDoing;

/// Time for looking at /proc at each tick: meanwhile nobody reads the rings.
const LOOK_NS: u64 = 3_000_000;
/// Threads that are remembered.
const MOST: usize = 100_000;

/// Calls that were found in /proc.
#[derive(Debug, Default)]
pub struct EarlierCalls {
    /// Threads that are not looked at yet.
    left: Vec<i32>,
    /// By thread.
    calls: FxHashMap<i32, FoundCall>,
    /// When the last thread was looked at.
    looked_until: Timestamp,
}

/// A call in which a thread was found waiting.
#[derive(Clone, Copy, Debug)]
struct FoundCall {
    seen_at: Timestamp,
    /// `since`: the start of the run.
    pair: OpenPair<CallInFlight>,
}

/// What is known of a call that was just found.
#[derive(Clone, Copy, Debug)]
pub struct NewlyFound {
    pub tid: i32,
    pub args: [u64; 6],
    pub doing: ThreadDoing,
}

impl EarlierCalls {
    /// The run has started: these threads are to be looked at.
    pub fn start(&mut self, tids: Vec<i32>) {
        self.left = tids;
        self.left.truncate(MOST);
    }

    /// Looks at some of the threads that are left. `is_open`: it is known what the thread does.
    pub fn look(
        &mut self,
        calls: Option<&CallList>,
        is_open: impl Fn(i32) -> bool,
        ctx: &mut Context,
    ) -> Vec<NewlyFound> {
        let (mut found, begun) = (Vec::new(), crate::sys::monotonic_ns());
        while let Some(tid) = self.left.pop() {
            // Before the look: what it shows may begin after this.
            let seen_at = crate::sys::monotonic_ns();
            if seen_at - begun > LOOK_NS {
                self.left.push(tid);
                break;
            }
            if is_open(tid) || !ctx.watched.contains(tid) || ctx.scope.is_own(tid) {
                continue;
            }
            let Some(blocked) = ctx.call_from_proc(tid) else { continue };
            let seen_at = crate::sys::monotonic_ns().max(seen_at);
            let Some(stat) = ctx.state_from_proc(tid) else { continue };
            // The stacks of 32-bit programs are below 4 GiB, those of others hardly ever.
            let is_compat = blocked.stack_pointer >> 32 == 0;
            let call = CallNumber { number: blocked.number, is_compat };
            if calls.is_some_and(|calls| !calls.contains(call.number)) {
                continue;
            }
            let doing = match stat.state {
                b'D' => ThreadDoing::Blocks,
                b'S' => ThreadDoing::Sleeps,
                _ => ThreadDoing::Rests,
            };
            let (pid, comm) = (ctx.tasks.pid(tid), stat.comm);
            let open = CallInFlight { call, pid, cpu: stat.cpu, comm, stack: None, is_earlier: true };
            let pair = OpenPair { since: ctx.started_ns, open };
            self.looked_until = seen_at;
            self.calls.insert(tid, FoundCall { seen_at, pair });
            found.push(NewlyFound { tid, args: blocked.args, doing });
        }
        found
    }

    /// A thread has begun a call: if it was found in one later, it is this one.
    #[inline(always)]
    pub fn entered(&mut self, tid: i32, time: Timestamp) {
        if time < self.looked_until {
            self.forget_before(tid, time);
        }
    }

    #[cold]
    fn forget_before(&mut self, tid: i32, time: Timestamp) {
        if self.calls.get(&tid).is_some_and(|found| time <= found.seen_at) {
            self.calls.remove(&tid);
        }
    }

    /// The call of a thread whose end was just seen, or that has ended unseen.
    pub fn take(&mut self, tid: i32) -> Option<OpenPair<CallInFlight>> {
        self.calls.remove(&tid).map(|found| found.pair)
    }

    /// Records were lost: any call may have ended.
    pub fn lost(&mut self) {
        self.left.clear();
        self.calls.clear();
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.calls.retain(|tid, _| lives(*tid));
    }

    /// The calls that go on, by thread.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &OpenPair<CallInFlight>)> {
        self.calls.iter().map(|(tid, found)| (*tid, &found.pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that begins between the start of the run and the look at /proc has an event of its own.
    #[test]
    fn an_event_before_the_look_is_of_the_same_call() {
        let open = CallInFlight {
            call: CallNumber { number: 0, is_compat: false },
            pid: 7,
            cpu: 0,
            comm: crate::task::Comm::default(),
            stack: None,
            is_earlier: true,
        };
        let found = FoundCall { seen_at: 100, pair: OpenPair { since: 10, open } };
        let calls = FxHashMap::from_iter([(7, found), (8, found), (9, found)]);
        let mut earlier = EarlierCalls { calls, looked_until: 100, left: vec![10] };
        earlier.entered(7, 50);
        earlier.entered(8, 101);
        assert!(earlier.take(7).is_none() && earlier.take(8).is_some() && earlier.take(8).is_none());
        earlier.retain(|tid| tid == 9);
        assert_eq!(earlier.iter().map(|(tid, _)| tid).collect::<Vec<_>>(), [9]);
        earlier.lost();
        assert!(earlier.iter().next().is_none() && earlier.left.is_empty());
    }
}
