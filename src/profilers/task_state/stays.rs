//! What threads did lately, by their longer stays in one state: whom a task waited behind, and which threads idle.
//!
//! A stay is kept if it is at least half as long as a wait that gets a line, so that there are few.

use rustc_hash::FxHashMap;

use crate::profilers::task_state::notes::WaitWaker;
use crate::sched::{MAX_THREADS, SchedState};
use crate::stats::Began;
use crate::symbol::StackId;
use crate::task::Comm;

/// Stays kept of each thread, the latest ones.
const MAX_STAYS: usize = 4;
/// What is known of where a thread idles is of the last minute or two.
const MEMORY_NS: u64 = 60_000_000_000;
/// No thread is known to idle before it was watched for so long.
pub const MIN_WATCHED_NS: u64 = 1_000_000_000;
/// Waits at one place until a thread is known to idle there.
const MIN_WAITS: u32 = 3;

/// A stay of a thread in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    pub state: SchedState,
    pub since: u64,
    pub until: u64,
    /// Equal for equal places of one thread. None: the place is not known.
    pub place: Option<u64>,
    pub stack: Option<StackId>,
    /// The system call.
    pub call: Option<&'static str>,
}

impl Stay {
    fn length(&self) -> u64 {
        self.until.saturating_sub(self.since)
    }

    /// The part of the stay that lies in another one, ns.
    fn within(&self, other: &Stay) -> u64 {
        self.until.min(other.until).saturating_sub(self.since.max(other.since))
    }

    fn takes_most_of(&self, other: &Stay) -> bool {
        self.within(other) > other.length() / 2
    }
}

/// The task that another one waited behind, with its stay that took most of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub tid: i32,
    pub comm: Comm,
    pub stay: Stay,
    /// The part of the stay that lies in the wait, ns.
    pub held_ns: u64,
    /// It also woke the waiting task. Otherwise it woke another one that waited behind it, and so on.
    pub is_waker: bool,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitEnding {
    /// Whom the task waited behind, if it did before, too.
    pub behind: Option<Holder>,
    /// The thread idles at this place, and nobody kept it waiting.
    pub is_idle: bool,
}

#[derive(Debug, Default)]
struct ThreadStays {
    recent: Vec<EndedStay>,
    /// Since when the thread is watched, or what is known of it counts.
    watched_from: u64,
    /// The places where it waited most.
    places: [IdlePlace; 2],
    /// A line has said that it idles.
    is_told: bool,
    /// When a task last waited behind this one; 0: never.
    held_at_ns: u64,
    /// The last task that this one waited behind, and how many times in a row.
    behind: (i32, u32),
}

#[derive(Clone, Copy, Debug)]
struct EndedStay {
    stay: Stay,
    /// Whom the thread waited behind.
    behind: Option<Holder>,
    /// An interrupt ended it, so that it was no wait for a lock.
    by_interrupt: bool,
}

/// A place where a thread waited.
#[derive(Clone, Copy, Debug, Default)]
struct IdlePlace {
    /// None: it is the one where the thread waited at the start of the run.
    place: Option<u64>,
    call: Option<&'static str>,
    ns: u64,
    waits: u32,
}

/// The stays of all threads.
#[derive(Debug, Default)]
pub struct TaskStays {
    threads: FxHashMap<i32, ThreadStays>,
    started_ns: u64,
}

impl TaskStays {
    pub fn started(&mut self, now: u64) {
        self.started_ns = now;
    }

    /// A thread was born.
    pub fn born(&mut self, tid: i32, at: u64) {
        self.forget(tid);
        self.of(tid).watched_from = at;
    }

    pub fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
    }

    pub fn stacks_in_use(&self) -> impl Iterator<Item = StackId> {
        let recent = self.threads.values().flat_map(|thread| &thread.recent);
        recent.flat_map(|ended| [ended.stay.stack, ended.behind.and_then(|holder| holder.stay.stack)]).flatten()
    }

    fn of(&mut self, tid: i32) -> &mut ThreadStays {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            self.threads.clear(); // ends of threads may have gone unseen; what goes on comes again
        }
        let watched_from = self.started_ns;
        self.threads.entry(tid).or_insert_with(|| ThreadStays { watched_from, ..ThreadStays::default() })
    }

    /// A stay of `tid` ended that is no wait with a line.
    pub fn record(&mut self, tid: i32, stay: Stay) {
        self.push(tid, EndedStay { stay, behind: None, by_interrupt: false });
    }

    fn push(&mut self, tid: i32, ended: EndedStay) {
        let thread = self.of(tid);
        if thread.recent.len() >= MAX_STAYS {
            thread.recent.remove(0);
        }
        thread.recent.push(ended);
    }

    /// A wait of `tid` ended that has a line. `current`: what its waker does since when, if that is known.
    pub fn record_wait(
        &mut self,
        tid: i32,
        wait: Stay,
        began: Began,
        waker: Option<WaitWaker>,
        current: Option<Stay>,
    ) -> WaitEnding {
        let (holder, is_kept_waiting) = match waker {
            Some(WaitWaker::Task { tid: waker, comm }) => {
                self.kept_waiting(&wait, began == Began::Exactly, (waker, comm), current)
            }
            _ => (None, false),
        };
        let by_interrupt = matches!(waker, Some(WaitWaker::Interrupt(..)));
        self.push(tid, EndedStay { stay: wait, behind: holder, by_interrupt });
        let thread = self.of(tid);
        let is_idle = thread.idled(&wait, began) && !is_kept_waiting;
        thread.is_told |= is_idle;
        let behind = holder.filter(|holder| {
            let times = if thread.behind.0 == holder.tid { thread.behind.1.saturating_add(1) } else { 1 };
            thread.behind = (holder.tid, times);
            times > 1
        });
        WaitEnding { behind, is_idle }
    }

    /// Who kept a task waiting that `waker` woke, and whether anybody may have.
    ///
    /// A lock is passed on: where the waker itself waited at the same place most of the time, both waited behind the one
    /// that the waker waited behind.
    fn kept_waiting(
        &mut self,
        wait: &Stay,
        is_whole: bool,
        (waker, comm): (i32, Comm),
        current: Option<Stay>,
    ) -> (Option<Holder>, bool) {
        let thread = self.of(waker);
        let current = current.map(|stay| EndedStay { stay, behind: None, by_interrupt: false });
        let stays = thread.recent.iter().copied().chain(current);
        let Some(longest) = stays.max_by_key(|ended| ended.stay.within(wait)) else { return (None, true) };
        let EndedStay { stay, behind, by_interrupt } = longest;
        if !stay.takes_most_of(wait) {
            // It came round without waking this task.
            let rounds = thread.recent.iter().filter(|ended| ended.stay.within(wait) == ended.stay.length()).count();
            return (None, rounds < 2);
        }
        if !is_whole {
            return (None, true); // the wait may have been much longer than the stay
        }
        thread.held_at_ns = wait.until;
        let is_passed_on = stay.state == wait.state
            && !by_interrupt
            && (stay.place.is_none() || wait.place.is_none() || stay.place == wait.place);
        let holder = if is_passed_on {
            behind.filter(|holder| holder.stay.takes_most_of(wait)).map(|holder| Holder { is_waker: false, ..holder })
        } else {
            Some(Holder { tid: waker, comm, stay, held_ns: 0, is_waker: true })
        };
        (holder.map(|holder| Holder { held_ns: holder.stay.within(wait), ..holder }), true)
    }

    /// Whether `tid` idles: `wait` goes on. The second value: whether a line has said so before.
    pub fn idles(&mut self, tid: i32, wait: &Stay, began: Began) -> (bool, bool) {
        let thread = self.of(tid);
        let is_idle = match began {
            // It has not run since the run began.
            Began::BeforeStart => wait.length() >= MIN_WATCHED_NS,
            Began::BeforeLoss => false,
            Began::Exactly => thread.is_idle(wait, 1),
        };
        let was_told = thread.is_told;
        thread.is_told |= is_idle;
        (is_idle, was_told)
    }
}

impl ThreadStays {
    /// Counts a wait that has ended. Whether the thread idles at its place.
    fn idled(&mut self, wait: &Stay, began: Began) -> bool {
        if wait.until.saturating_sub(self.watched_from) > MEMORY_NS {
            self.watched_from += wait.until.saturating_sub(self.watched_from) / 2;
            self.places.iter_mut().for_each(|place| place.ns /= 2);
        }
        if wait.state != SchedState::SLEEP || began == Began::BeforeLoss {
            return false;
        }
        let Stay { place, call, .. } = *wait;
        if began == Began::BeforeStart {
            // It waited there before, too.
            self.places[0] = IdlePlace { place: None, call, ns: wait.length(), waits: MIN_WAITS - 1 };
            return wait.length() >= MIN_WATCHED_NS && !self.is_waited_for(wait.until);
        }
        if place.is_none() {
            return false;
        }
        let known = self.place_of(wait);
        let at = known.unwrap_or(usize::from(self.places[1].ns < self.places[0].ns));
        if known.is_none() {
            self.places[at] = IdlePlace::default();
        }
        let known = &mut self.places[at];
        (known.place, known.call) = (place, call);
        (known.ns, known.waits) = (known.ns.saturating_add(wait.length()), known.waits.saturating_add(1));
        self.is_idle(&Stay { since: wait.until, ..*wait }, 0)
    }

    /// The index of the place of a wait.
    fn place_of(&self, wait: &Stay) -> Option<usize> {
        let is_it = |known: &IdlePlace| match known.place {
            Some(_) => known.place == wait.place,
            None => known.call.is_some() && known.call == wait.call,
        };
        self.places.iter().position(is_it)
    }

    /// Whether the thread spends most of its time at the place of `wait`, with this wait and its `more` waits.
    fn is_idle(&self, wait: &Stay, more: u32) -> bool {
        let Some(here) = self.place_of(wait).map(|at| self.places[at]) else { return false };
        let watched = wait.until.saturating_sub(self.watched_from);
        wait.state == SchedState::SLEEP
            && here.waits + more >= MIN_WAITS
            && watched >= MIN_WATCHED_NS
            && u128::from(here.ns.saturating_add(wait.length())) * 5 >= u128::from(watched) * 4
            && !self.is_waited_for(wait.until)
    }

    /// Whether a task has waited behind this one lately.
    fn is_waited_for(&self, now: u64) -> bool {
        self.held_at_ns > 0 && now.saturating_sub(self.held_at_ns) < MEMORY_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::context::Interruption;

    const MS: u64 = 1_000_000;
    const TIMER: Option<WaitWaker> = Some(WaitWaker::Interrupt(Interruption::Hard, None));
    const LOCK: u64 = 1;
    const SLEEP: u64 = 2;

    fn by(tid: i32) -> Option<WaitWaker> {
        Some(WaitWaker::Task { tid, comm: Comm::new(b"waker") })
    }

    /// A stay in S, from and to these ms.
    fn stay(place: u64, since: u64, until: u64) -> Stay {
        let (since, until) = (since * MS, until * MS);
        Stay { state: SchedState::SLEEP, since, until, place: Some(place), stack: None, call: None }
    }

    fn ended(stays: &mut TaskStays, tid: i32, wait: Stay, waker: Option<WaitWaker>) -> WaitEnding {
        stays.record_wait(tid, wait, Began::Exactly, waker, None)
    }

    /// Thread 1 sleeps for 300 ms of 310 with a lock, 2 and 3 wait for it, and 2 wakes 3.
    #[test]
    fn waiters_of_a_lock_wait_behind_its_holder() {
        let mut stays = TaskStays::default();
        for turn in 0..20 {
            let at = turn * 310;
            let holder = ended(&mut stays, 1, stay(SLEEP, at, at + 300), TIMER);
            let first = ended(&mut stays, 2, stay(LOCK, at + 5, at + 301), by(1));
            let second = ended(&mut stays, 3, stay(LOCK, at + 7, at + 302), by(2));
            assert!([holder, first, second].iter().all(|ending| !ending.is_idle), "turn {turn}");
            let behind = [first, second].map(|ending| ending.behind.map(|of| (of.tid, of.held_ns / MS, of.is_waker)));
            let want = [Some((1, 295, true)), Some((1, 293, false))];
            assert_eq!(behind, if turn == 0 { [None; 2] } else { want }, "turn {turn}");
        }
    }

    #[test]
    fn a_holder_that_runs_keeps_others_waiting() {
        let mut stays = TaskStays::default();
        for turn in 0..10 {
            let at = turn * 400;
            let ran = Stay { state: SchedState::RUNNING, place: None, ..stay(0, at, at + 390) };
            let ending = stays.record_wait(2, stay(LOCK, at + 10, at + 390), Began::Exactly, by(1), Some(ran));
            assert!(!ending.is_idle);
            assert_eq!(
                ending.behind.map(|of| (of.stay.state, of.held_ns)),
                (turn > 0).then_some((ran.state, 380 * MS))
            );
        }
    }

    /// Thread 1 sleeps for half a second, and then gives work to one of the threads 2 to 7.
    #[test]
    fn a_pool_and_who_feeds_it_idle() {
        let mut stays = TaskStays::default();
        let mut idle = [0; 8];
        for turn in 0..60_u64 {
            let (at, tid) = (turn * 500, 2 + (turn % 6) as i32);
            idle[1] += u32::from(ended(&mut stays, 1, stay(SLEEP, at, at + 499), TIMER).is_idle);
            let since = at.saturating_sub(2500);
            idle[tid as usize] += u32::from(ended(&mut stays, tid, stay(LOCK, since, at + 499), by(1)).is_idle);
        }
        // The first wait of the first thread of the pool was behind the first sleep of the feeder, and that is forgotten
        // after a minute.
        assert_eq!(idle[1], 0);
        assert!(idle[3..].iter().all(|times| *times >= 7), "{idle:?}");
    }

    #[test]
    fn a_poller_idles_after_some_waits_and_at_one_place() {
        let mut stays = TaskStays::default();
        let idle: Vec<bool> =
            (0..10).map(|n| ended(&mut stays, 1, stay(1, n * 400, n * 400 + 390), TIMER).is_idle).collect();
        assert_eq!(idle, [false, false, true, true, true, true, true, true, true, true]);
        let (wait, told) = (stay(1, 4000, 4200), (true, true));
        assert_eq!(stays.idles(1, &wait, Began::Exactly), told);
        assert!(!stays.idles(1, &stay(2, 4000, 4200), Began::Exactly).0, "another place");
        assert!(!ended(&mut stays, 1, stay(2, 4000, 4200), TIMER).is_idle);
        let disk = Stay { state: SchedState::DISK, ..stay(1, 4200, 4600) };
        assert!(!ended(&mut stays, 1, disk, TIMER).is_idle, "D is no idling");
        assert!(!stays.record_wait(1, stay(1, 4600, 5000), Began::BeforeLoss, TIMER, None).is_idle);
        // A thread that works for a third of the time.
        let busy = (0..30).any(|n| ended(&mut stays, 2, stay(1, n * 300, n * 300 + 200), TIMER).is_idle);
        assert!(!busy);
        // Its waker is not watched: it may have kept the thread waiting.
        assert!(!(0..30).any(|n| ended(&mut stays, 3, stay(1, n * 300, n * 300 + 290), by(99)).is_idle));
    }

    #[test]
    fn a_thread_that_slept_at_the_start_idles() {
        let mut stays = TaskStays::default();
        stays.started(1000 * MS);
        let at_start = |until| Stay { place: None, call: Some("futex"), ..stay(0, 1000, until) };
        assert!(!stays.idles(1, &at_start(1900), Began::BeforeStart).0);
        assert_eq!(stays.idles(1, &at_start(2000), Began::BeforeStart), (true, false));
        assert_eq!(stays.idles(1, &at_start(4000), Began::BeforeStart), (true, true));
        assert!(stays.record_wait(1, at_start(4000), Began::BeforeStart, TIMER, None).is_idle);
        let later = Stay { call: Some("futex"), ..stay(7, 4000, 4300) };
        assert!(stays.idles(1, &later, Began::Exactly).0, "in the same call");
        assert!(!stays.idles(1, &Stay { call: Some("recvfrom"), ..later }, Began::Exactly).0);
        assert!(ended(&mut stays, 1, later, TIMER).is_idle);
    }

    #[test]
    fn threads_are_bounded() {
        let mut stays = TaskStays::default();
        (0..MAX_THREADS as i32 + 10).for_each(|tid| stays.record(tid, stay(1, 0, 10)));
        assert_eq!(stays.threads.len(), 10, "room is made at the limit");
        (0..10).for_each(|_| stays.record(1, stay(1, 0, 10)));
        assert_eq!(stays.threads.len(), 11);
        assert_eq!(stays.threads[&1].recent.len(), MAX_STAYS);
        stays.born(1, 5);
        assert!(stays.threads[&1].recent.is_empty() && stays.threads[&1].watched_from == 5);
    }
}
