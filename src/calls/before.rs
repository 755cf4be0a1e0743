//! Calls in progress since before the start, or since before a loss. They have no event until they end: /proc shows
//! them.

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::calls::call::CallInFlight;
use crate::calls::kinds::CallNumber;
use crate::calls::list::CallList;
use crate::profiler::{Context, Setup, Timestamp};
use crate::relation::{OpenStart, PairStart};
use crate::sched::{SchedState, States};
use crate::stats::LossHorizon;
use crate::task::thread_reader::{SeenCall, SeenThread, ThreadFacts, ThreadReader};

/// Most calls that are kept.
const LIMIT: usize = 100_000;

/// Calls that were found in /proc.
#[derive(Debug, Default)]
pub struct EarlierCalls {
    threads: ThreadReader,
    /// By thread.
    calls: FxHashMap<i32, EarlierCall>,
    /// A call that was found before this may have ended, and another call begun.
    horizon: LossHorizon,
}

/// A call in which a thread was found waiting.
#[derive(Clone, Copy, Debug)]
struct EarlierCall {
    seen_at: Timestamp,
    pair: OpenStart<CallInFlight>,
    /// CPU time that the thread had used before it was found, ns.
    ran_ns: Option<u64>,
}

/// A call that was just found in /proc.
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
        Ok(EarlierCalls { threads: ThreadReader::start(setup.host, ThreadFacts::Call)?, ..EarlierCalls::default() })
    }

    /// The tid of perf-prof's own thread that reads /proc.
    pub fn thread(&self) -> Option<i32> {
        self.threads.thread()
    }

    /// Whether it is time to read /proc: see [`EarlierCalls::look`].
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.threads.is_due(now, self.horizon.end_ns())
    }

    /// Asks in which calls those threads are whose calls are unknown, at the start and after losses, and takes the
    /// answers that have come. `is_open`: whether the call of a thread is known.
    pub fn look(
        &mut self,
        now: Timestamp,
        calls: Option<&CallList>,
        is_open: impl Fn(i32) -> bool,
        ctx: &mut Context,
    ) -> Vec<NewlyFound> {
        let lost_until = self.horizon.end_ns();
        if self.is_due(now) {
            self.threads.ask(ctx.watched_threads().filter(|&tid| !is_open(tid)), now, lost_until);
        }
        let answers = self.threads.answers(now, lost_until).into_iter();
        answers.filter(|seen| !is_open(seen.tid)).filter_map(|seen| self.add(seen, calls, ctx)).collect()
    }

    fn add(&mut self, seen: SeenThread, calls: Option<&CallList>, ctx: &mut Context) -> Option<NewlyFound> {
        let SeenThread { tid, at_ns: seen_at, stat, call } = seen;
        let SeenCall { entered, ran_ns } = call?;
        // The stacks of 32-bit programs are below 4 GiB, and those of 64-bit programs hardly ever are.
        let call = CallNumber::new(i64::try_from(entered.number).ok()?, entered.stack >> 32 == 0);
        let is_dead = matches!(stat.state, b'Z' | b'X');
        if is_dead || calls.is_some_and(|calls| !calls.contains(call.number)) {
            return None;
        }
        // A thread that has used no CPU time since it was found is still in its call.
        if let Some(known) = self.calls.get_mut(&tid).filter(|known| ran_ns.is_some() && known.ran_ns == ran_ns) {
            known.seen_at = seen_at;
            return None;
        }
        if self.calls.len() >= LIMIT {
            return None;
        }
        let state = States::of_letter(stat.state).unwrap_or(SchedState::IDLE);
        let (pid, comm, since) = (ctx.tasks.pid(tid), stat.comm, self.horizon.latest(ctx.started_ns));
        let own = CallInFlight { call, began: self.horizon.began_unseen() };
        let open = PairStart { cpu: stat.cpu, pid, tid, comm, stack: None, own };
        self.calls.insert(tid, EarlierCall { seen_at, pair: OpenStart { since, open }, ran_ns });
        Some(NewlyFound { tid, since, args: entered.args, state })
    }

    /// A thread has entered a call: what /proc said of the thread before is out of date.
    #[inline(always)]
    pub fn entered(&mut self, tid: i32) {
        self.threads.saw(tid);
    }

    /// Removes and returns the call of a thread whose end was just seen, or that ended unseen.
    pub fn take(&mut self, tid: i32) -> Option<OpenStart<CallInFlight>> {
        self.threads.saw(tid);
        self.calls.remove(&tid).filter(|found| self.horizon.saw_all_since(found.seen_at)).map(|found| found.pair)
    }

    /// Records were lost: any call may have ended, and others may have begun.
    pub fn lost(&mut self, end: Timestamp) {
        self.horizon.lost_until(end);
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.calls.retain(|tid, _| lives(*tid));
    }

    /// The calls in progress, by thread. After a loss only calls that were found since the loss.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &OpenStart<CallInFlight>)> {
        let goes_on = |found: &EarlierCall| self.horizon.saw_all_since(found.seen_at);
        self.calls.iter().filter(move |(_, found)| goes_on(found)).map(|(tid, found)| (*tid, &found.pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Began;

    #[test]
    fn a_call_goes_on_until_it_ends_or_a_loss_makes_it_doubtful() {
        let call = CallNumber { number: 0, is_compat: false };
        let own = CallInFlight { call, began: Began::BeforeStart };
        let open = PairStart { cpu: 0, pid: 7, tid: 7, comm: crate::task::Comm::default(), stack: None, own };
        let found = |seen_at| EarlierCall { seen_at, pair: OpenStart { since: 10, open }, ran_ns: None };
        let calls = FxHashMap::from_iter([(7, found(100)), (8, found(100)), (9, found(150)), (10, found(160))]);
        let mut earlier = EarlierCalls { calls, ..EarlierCalls::default() };
        assert!(earlier.take(7).is_some() && earlier.take(7).is_none() && earlier.take(11).is_none());
        earlier.retain(|tid| tid != 10);
        earlier.lost(150);
        assert_eq!(earlier.iter().map(|(tid, _)| tid).collect::<Vec<_>>(), [9], "found again since");
        assert!(earlier.take(8).is_none() && earlier.take(9).is_some());
    }
}
