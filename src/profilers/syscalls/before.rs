//! Calls that have gone on since before the start, or since before a loss. No event tells of them until they end: /proc does.

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::profiler::{Context, Setup, Timestamp};
use crate::profilers::syscalls::args::CallList;
use crate::profilers::syscalls::kinds::CallNumber;
use crate::profilers::syscalls::pairs::CallInFlight;
use crate::relation::{OpenStart, PairStart};
use crate::sched::{SchedState, States};
use crate::stats::Began;
use crate::task::call::{CallsOf, FoundCall};
use crate::task::thread_reader::ThreadReader;

/// Threads that are asked for, and calls that are remembered.
const LIMIT: usize = 100_000;
/// How often a thread is asked for that is found in no call.
const MAX_ROUNDS: u32 = 3;

/// Calls that were found in /proc.
#[derive(Debug, Default)]
pub struct EarlierCalls {
    reader: Option<ThreadReader<FoundCall>>,
    /// Threads that have made no call since then, as far as records were read, and were not found in one yet.
    asked: FxHashSet<i32>,
    /// How often they were asked for.
    rounds: u32,
    /// By thread.
    calls: FxHashMap<i32, EarlierCall>,
    /// When the last of them was found.
    looked_until: Timestamp,
    /// Calls that are found have gone on since then at least.
    since: Timestamp,
    began: Began,
    /// Records were lost up to then: any of the calls may have ended, and others may have begun. 0: they have been asked for.
    lost_until: Timestamp,
    /// When /proc is asked after a loss, at the earliest.
    next_look: Timestamp,
}

/// A call in which a thread was found waiting.
#[derive(Clone, Copy, Debug)]
struct EarlierCall {
    seen_at: Timestamp,
    pair: OpenStart<CallInFlight>,
    /// CPU time that the thread had used before it was found, ns.
    ran_ns: Option<u64>,
}

/// What is known of a call that was just found.
#[derive(Clone, Copy, Debug)]
pub struct NewlyFound {
    pub tid: i32,
    pub since: Timestamp,
    pub args: [u64; 6],
    pub state: SchedState,
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
    pub fn start(&mut self, tids: impl Iterator<Item = i32>, started_ns: Timestamp) {
        self.ask_all(tids, started_ns, Began::BeforeStart);
    }

    fn ask_all(&mut self, tids: impl Iterator<Item = i32>, since: Timestamp, began: Began) {
        (self.since, self.began, self.rounds) = (since, began, 0);
        self.asked.extend(tids.take(LIMIT));
        self.ask();
    }

    /// Whether /proc is to be asked after a loss: see [`EarlierCalls::ask_anew`]. Under a flood of losses that is done now and
    /// then.
    pub fn asks_anew(&self, now: Timestamp) -> bool {
        self.lost_until > 0 && now >= self.next_look && self.reader.as_ref().is_some_and(ThreadReader::is_idle)
    }

    /// Asks in which calls the threads are whose calls a loss has made doubtful: `doubtful` by events, and those that were
    /// found in /proc before.
    pub fn ask_anew(&mut self, doubtful: &[i32], now: Timestamp, ctx: &Context) {
        const PACE_NS: u64 = 1_000_000_000;
        self.next_look = now.saturating_add(PACE_NS);
        let left = self.settle(ctx);
        let asked = doubtful.iter().copied().chain(left);
        let lost_until = std::mem::take(&mut self.lost_until);
        self.ask_all(asked, lost_until, Began::BeforeLoss);
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
        if self.lost_until > 0 {
            return found; // they will be asked anew
        }
        for call in calls_found {
            // A thread that has made a call meanwhile may have left the one in which it was found.
            let is_it = self.asked.remove(&call.tid) && !is_open(call.tid);
            found.extend(is_it.then(|| self.add(call, calls, ctx)).flatten());
        }
        // One that just gets a CPU is in no call that could be told; so are those that compute, which are not asked for ever.
        if is_done && self.rounds < MAX_ROUNDS {
            self.ask();
        } else if is_done {
            self.asked = FxHashSet::default();
        }
        found
    }

    fn ask(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        self.rounds += 1;
        let tids = self.asked.iter().copied().collect();
        if let Some(reader) = &self.reader {
            reader.read(tids);
        }
    }

    /// A thread that has used no CPU time since it was found is still in its call. Returns the others.
    fn settle(&mut self, ctx: &Context) -> Vec<i32> {
        /// Each is a look at /proc.
        const MAX_LOOKS: usize = 1000;
        let (mut looks, mut left) = (0, Vec::new());
        self.calls.retain(|tid, found| {
            looks += 1;
            let stays = looks <= MAX_LOOKS && found.ran_ns.is_some() && ctx.ran_ns_from_proc(*tid) == found.ran_ns;
            left.extend((!stays).then_some(*tid));
            stays
        });
        left
    }

    fn add(&mut self, found: FoundCall, calls: Option<&CallList>, ctx: &mut Context) -> Option<NewlyFound> {
        let FoundCall { tid, seen_at, entered, stat, ran_ns } = found;
        // The stacks of 32-bit programs are below 4 GiB, those of others hardly ever.
        let call = CallNumber::new(i64::try_from(entered.number).ok()?, entered.stack >> 32 == 0);
        if calls.is_some_and(|calls| !calls.contains(call.number)) {
            return None;
        }
        let state = States::of_letter(stat.state).unwrap_or(SchedState::IDLE);
        let (pid, comm) = (ctx.tasks.pid(tid), stat.comm);
        let own = CallInFlight { call, began: self.began };
        let open = PairStart { cpu: stat.cpu, pid, tid, comm, stack: None, own };
        let pair = OpenStart { since: self.since, open };
        self.looked_until = self.looked_until.max(seen_at);
        self.calls.insert(tid, EarlierCall { seen_at, pair, ran_ns });
        Some(NewlyFound { tid, since: self.since, args: entered.args, state })
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
    pub fn take(&mut self, tid: i32) -> Option<OpenStart<CallInFlight>> {
        self.asked.remove(&tid);
        self.calls.remove(&tid).filter(|_| self.lost_until == 0).map(|found| found.pair)
    }

    /// Records were lost: any call may have ended, and others may have begun.
    pub fn lost(&mut self, end: Timestamp) {
        self.lost_until = self.lost_until.max(end);
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.calls.retain(|tid, _| lives(*tid));
    }

    /// The calls that go on, by thread. None after a loss, until [`EarlierCalls::ask_anew`].
    pub fn iter(&self) -> impl Iterator<Item = (i32, &OpenStart<CallInFlight>)> {
        self.calls.iter().filter(|_| self.lost_until == 0).map(|(tid, found)| (*tid, &found.pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that begins between the start of the run and the look at /proc has an event of its own.
    #[test]
    fn an_event_before_the_look_is_of_the_same_call() {
        let call = CallNumber { number: 0, is_compat: false };
        let own = CallInFlight { call, began: Began::BeforeStart };
        let open = PairStart { cpu: 0, pid: 7, tid: 7, comm: crate::task::Comm::default(), stack: None, own };
        let found = EarlierCall { seen_at: 100, pair: OpenStart { since: 10, open }, ran_ns: None };
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
        earlier.lost(150);
        assert!(earlier.iter().next().is_none() && earlier.take(9).is_none());
    }
}
