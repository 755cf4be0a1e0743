//! Calls that have gone on since before the start. No event tells of them until they end: /proc does.

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::profiler::{Context, Setup, Timestamp};
use crate::profilers::syscalls::CallInFlight;
use crate::profilers::syscalls::args::CallList;
use crate::profilers::syscalls::kinds::CallNumber;
use crate::stats::OpenPair;
use crate::task::call::{CallsOf, FoundCall};
use crate::task::thread_reader::ThreadReader;
use crate::tep::ThreadDoing;

/// Threads that are asked for, and calls that are remembered.
const MOST: usize = 100_000;
/// How often a thread is asked for that is found in no call.
const MAX_ROUNDS: u32 = 3;

/// Calls that were found in /proc.
#[derive(Debug, Default)]
pub struct EarlierCalls {
    /// None: all were read, or nobody is to be.
    reader: Option<ThreadReader<FoundCall>>,
    /// Threads that have made no call since the start, as far as records were read, and were not found in one yet.
    asked: FxHashSet<i32>,
    /// How often they were asked for.
    rounds: u32,
    /// By thread.
    calls: FxHashMap<i32, EarlierCall>,
    /// When the last of them was found.
    looked_until: Timestamp,
    /// Records were lost: any of the calls may have ended since.
    is_doubtful: bool,
}

/// A call in which a thread was found waiting.
#[derive(Clone, Copy, Debug)]
struct EarlierCall {
    seen_at: Timestamp,
    /// `since`: the start of the run.
    pair: OpenPair<CallInFlight>,
    /// CPU time that the thread had used before it was found, ns.
    ran_ns: Option<u64>,
}

/// What is known of a call that was just found.
#[derive(Clone, Copy, Debug)]
pub struct NewlyFound {
    pub tid: i32,
    pub args: [u64; 6],
    pub doing: ThreadDoing,
}

impl EarlierCalls {
    /// # Errors
    /// No thread can be started.
    pub fn new(setup: &Setup<'_>) -> Result<EarlierCalls> {
        Ok(EarlierCalls { reader: Some(ThreadReader::start(setup.host.clone(), CallsOf)?), ..EarlierCalls::default() })
    }

    /// Our thread that looks.
    pub fn thread(&self) -> Option<i32> {
        self.reader.as_ref().map(|reader| reader.tid)
    }

    /// The run has started: these threads are to be looked at.
    pub fn start(&mut self, tids: impl Iterator<Item = i32>) {
        self.asked = tids.take(MOST).collect();
        self.ask();
    }

    /// Takes what was found meanwhile. `is_open`: it is known what the thread does.
    pub fn look(
        &mut self,
        calls: Option<&CallList>,
        is_open: impl Fn(i32) -> bool,
        ctx: &mut Context,
    ) -> Vec<NewlyFound> {
        let mut found = Vec::new();
        let Some(reader) = &self.reader else { return found };
        let (calls_found, is_done) = (reader.found(), !self.asked.is_empty() && reader.is_idle());
        for call in calls_found {
            // A thread that has made a call meanwhile may have left the one in which it was found.
            let is_it = self.asked.remove(&call.tid) && !is_open(call.tid);
            found.extend(is_it.then(|| self.add(call, calls, ctx)).flatten());
        }
        // One that just gets a CPU is in no call that could be told; so are those that compute, which are not asked for ever.
        if is_done && self.rounds < MAX_ROUNDS {
            self.ask();
        } else if is_done {
            self.stop();
        }
        found
    }

    fn ask(&mut self) {
        self.rounds += 1;
        let tids = self.asked.iter().copied().collect();
        if let Some(reader) = &self.reader {
            reader.read(tids);
        }
    }

    /// After a loss: a thread that has used no CPU time since it was found is still in its call.
    pub fn settle(&mut self, ctx: &Context) {
        /// Each is a look at /proc.
        const MAX_LOOKS: usize = 1000;
        if !std::mem::take(&mut self.is_doubtful) {
            return;
        }
        let mut looks = 0;
        self.calls.retain(|tid, found| {
            looks += 1;
            looks <= MAX_LOOKS && found.ran_ns.is_some() && ctx.ran_ns_from_proc(*tid) == found.ran_ns
        });
    }

    fn add(&mut self, found: FoundCall, calls: Option<&CallList>, ctx: &mut Context) -> Option<NewlyFound> {
        let FoundCall { tid, seen_at, entered, stat, ran_ns } = found;
        // The stacks of 32-bit programs are below 4 GiB, those of others hardly ever.
        let call = CallNumber::new(i64::try_from(entered.number).ok()?, entered.stack >> 32 == 0);
        if calls.is_some_and(|calls| !calls.contains(call.number)) {
            return None;
        }
        let doing = match stat.state {
            b'D' => ThreadDoing::Blocks,
            b'S' => ThreadDoing::Sleeps,
            _ => ThreadDoing::Rests,
        };
        let (pid, comm) = (ctx.tasks.pid(tid), stat.comm);
        let open = CallInFlight { call, pid, cpu: stat.cpu, comm, stack: None, is_earlier: true };
        let pair = OpenPair { since: ctx.started_ns, open };
        self.looked_until = self.looked_until.max(seen_at);
        self.calls.insert(tid, EarlierCall { seen_at, pair, ran_ns });
        Some(NewlyFound { tid, args: entered.args, doing })
    }

    fn stop(&mut self) {
        self.reader = None;
        self.asked = FxHashSet::default();
    }

    /// A thread has begun a call: if it was found in one later, it is this one.
    #[inline(always)]
    pub fn entered(&mut self, tid: i32, time: Timestamp) {
        if time < self.looked_until || !self.asked.is_empty() {
            self.forget_before(tid, time);
        }
    }

    #[cold]
    fn forget_before(&mut self, tid: i32, time: Timestamp) {
        self.asked.remove(&tid);
        if self.calls.get(&tid).is_some_and(|found| time <= found.seen_at) {
            self.calls.remove(&tid);
        }
    }

    /// The call of a thread whose end was just seen, or that has ended unseen.
    pub fn take(&mut self, tid: i32) -> Option<OpenPair<CallInFlight>> {
        self.asked.remove(&tid);
        self.calls.remove(&tid).filter(|_| !self.is_doubtful).map(|found| found.pair)
    }

    /// Records were lost: any call may have ended, and others may have begun.
    pub fn lost(&mut self) {
        self.asked.clear();
        self.is_doubtful = true;
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.calls.retain(|tid, _| lives(*tid));
    }

    /// The calls that go on, by thread. None after a loss, until [`EarlierCalls::settle`].
    pub fn iter(&self) -> impl Iterator<Item = (i32, &OpenPair<CallInFlight>)> {
        self.calls.iter().filter(|_| !self.is_doubtful).map(|(tid, found)| (*tid, &found.pair))
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
        let found = EarlierCall { seen_at: 100, pair: OpenPair { since: 10, open }, ran_ns: None };
        let calls = FxHashMap::from_iter([(7, found), (8, found), (9, found)]);
        let asked = FxHashSet::from_iter([10, 11, 12]);
        let mut earlier = EarlierCalls { calls, looked_until: 100, asked, ..EarlierCalls::default() };
        earlier.entered(7, 50);
        earlier.entered(8, 101);
        earlier.entered(10, 200);
        assert!(earlier.take(11).is_none());
        assert_eq!(earlier.asked, FxHashSet::from_iter([12]), "what the others do is known");
        assert!(earlier.take(7).is_none() && earlier.take(8).is_some() && earlier.take(8).is_none());
        earlier.retain(|tid| tid == 9);
        assert_eq!(earlier.iter().map(|(tid, _)| tid).collect::<Vec<_>>(), [9]);
        earlier.lost();
        assert!(earlier.iter().next().is_none() && earlier.take(9).is_none());
    }
}
