//! How the time of a call divides: on a CPU, waiting for a CPU, asleep, in D state. The parts add up to the length of
//! the call.
//!
//! The state of a thread during its call is a [`TrackedTask`]: each period that ends adds to a part, and time before an
//! event that contradicts the state is unseen.

use crate::sched::{Activity, Change, SchedState, SwitchedOut, TaskEvent, TrackedTask, UnseenPeriods};
use crate::stats::{LossHorizon, TidMap};
use crate::symbol::StackId;

/// The length of a call, in ns by state of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeParts {
    pub ran: u64,
    pub ready: u64,
    pub slept: u64,
    pub blocked: u64,
    pub rested: u64,
    /// Time after a wait whose end was not seen, and around losses.
    pub unseen: u64,
    /// The longest wait in D state, or with `-g` in any state, ns, and its stack.
    pub longest: u64,
    pub wait_stack: Option<StackId>,
}

/// The state of a thread during its call, with the stack of its last switch away from a CPU.
type CallingTask = TrackedTask<Option<StackId>>;

/// A call in progress, with the values that its line needs.
#[derive(Clone, Debug, Default)]
pub struct CallClock {
    pub args: [u64; 6],
    task: CallingTask,
    parts: TimeParts,
    is_open: bool,
    /// The call had a line while it was in progress.
    pub is_shown: bool,
}

impl TimeParts {
    #[cfg(test)]
    fn sum(&self) -> u64 {
        self.ran + self.ready + self.slept + self.blocked + self.rested + self.unseen
    }

    /// `stack`: the stack of the wait.
    fn add(&mut self, state: SchedState, ns: u64, stack: Option<StackId>) {
        *match state {
            SchedState::RUNNING => &mut self.ran,
            SchedState::RUN_DELAY => &mut self.ready,
            SchedState::SLEEP => &mut self.slept,
            SchedState::DISK => &mut self.blocked,
            _ => &mut self.rested,
        } += ns;
        let is_wait = ![SchedState::RUNNING, SchedState::RUN_DELAY].contains(&state);
        if is_wait && stack.is_some() && ns >= self.longest {
            (self.longest, self.wait_stack) = (ns, stack);
        }
    }
}

impl CallClock {
    /// The parts up to `at`, while the call is in progress.
    pub fn so_far(&self, at: u64) -> TimeParts {
        let (mut parts, ns) = (self.parts, at.saturating_sub(self.task.since));
        match self.task.activity.state() {
            Some(state) => parts.add(state, ns, self.task.kept),
            None => parts.unseen += ns,
        }
        parts
    }
}

/// The calls in progress, by thread.
#[derive(Debug, Default)]
pub struct CallClocks {
    clocks: TidMap<CallClock>,
    horizon: LossHorizon,
    unseen: UnseenPeriods,
}

impl CallClocks {
    pub fn entered(&mut self, seen: TaskEvent, args: [u64; 6]) {
        self.begin(seen.tid, args, Activity::Running, seen.at_ns, seen.cpu);
    }

    /// A thread was found in a call that began before `since`. If an event of the thread came after `since`, that event
    /// counts.
    pub fn found(&mut self, tid: i32, since: u64, args: [u64; 6], state: SchedState) {
        self.begin(tid, args, Activity::Blocked(state), since, 0);
    }

    fn begin(&mut self, tid: i32, args: [u64; 6], activity: Activity, since: u64, cpu: u32) {
        let task = TrackedTask { activity, since, cpu, ..CallingTask::default() };
        *self.clocks.get_or_default(tid) = CallClock { args, task, is_open: true, ..CallClock::default() };
    }

    /// The call of a thread has ended.
    pub fn exited(&mut self, tid: i32, at: u64) -> Option<(CallClock, TimeParts)> {
        let clock = self.get_mut(tid, at)?;
        if clock.task.activity != Activity::Running {
            clock.task.activity = Activity::Unknown; // the thread runs, so it got a CPU, which went unseen
        }
        clock.is_open = false;
        Some((clock.clone(), clock.so_far(at)))
    }

    /// An event shows what the thread of an open call does.
    #[inline]
    fn follow(
        &mut self,
        seen: TaskEvent,
        step: impl FnOnce(&mut CallingTask, &mut UnseenPeriods) -> Change<Option<StackId>>,
    ) {
        let Some(clock) = open_clock(&mut self.clocks, self.horizon, seen.tid, seen.at_ns) else { return };
        let since = clock.task.since;
        match step(&mut clock.task, &mut self.unseen) {
            Change::Ended(period) => clock.parts.add(period.state, seen.at_ns.saturating_sub(since), period.kept),
            Change::Nothing => clock.parts.unseen += clock.task.since.saturating_sub(since),
            Change::Stale | Change::Hidden => {}
        }
    }

    /// The thread left its CPU.
    #[inline]
    pub fn left(&mut self, seen: TaskEvent, how: SwitchedOut, stack: impl FnOnce() -> Option<StackId>) {
        match how {
            SwitchedOut::Dead => self.forget(seen.tid),
            _ => self.follow(seen, |task, unseen| task.leaves(seen, how, stack(), unseen)),
        }
    }

    /// `is_waking`: the waker has begun, and its `sched_wakeup` follows.
    #[inline]
    pub fn woken(&mut self, seen: TaskEvent, is_waking: bool) {
        self.follow(seen, |task, unseen| match is_waking {
            true => task.starts_to_wake(seen, None, unseen),
            false => task.wakes(seen, false, None, |_| false, unseen),
        });
    }

    /// The thread got a CPU.
    #[inline]
    pub fn came(&mut self, seen: TaskEvent) {
        self.follow(seen, |task, unseen| match task.activity {
            // The SWITCH record comes a moment after the switch event.
            Activity::Running if task.cpu == seen.cpu => Change::Stale,
            _ => task.comes(seen, false, unseen),
        });
    }

    pub fn forget(&mut self, tid: i32) {
        self.clocks.remove(tid);
    }

    /// A thread gets another tid.
    pub fn took_over(&mut self, old: i32, new: i32) {
        if let Some(clock) = self.clocks.remove(old) {
            *self.clocks.get_or_default(new) = clock;
        }
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.clocks.retain(|tid, _| lives(tid));
    }

    /// The clock of an open call, for an event at `at`.
    #[inline]
    pub fn get_mut(&mut self, tid: i32, at: u64) -> Option<&mut CallClock> {
        open_clock(&mut self.clocks, self.horizon, tid, at)
    }

    /// Events of threads may have been lost until `end`.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
    }

    /// The stacks that may still be shown.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.clocks.iter().flat_map(|(_, clock)| [clock.task.kept, clock.parts.wait_stack]).flatten()
    }
}

/// See [`CallClocks::get_mut`].
#[inline]
fn open_clock(clocks: &mut TidMap<CallClock>, horizon: LossHorizon, tid: i32, at: u64) -> Option<&mut CallClock> {
    let clock = clocks.find(tid).filter(|clock| clock.is_open)?;
    let CallClock { task, parts, .. } = clock;
    if !horizon.saw_all_since(task.since) {
        let until = horizon.end_ns().min(at);
        parts.unseen += until.saturating_sub(task.since);
        (task.activity, task.since) = (Activity::Unknown, task.since.max(until));
    }
    Some(clock)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLEEPS: SwitchedOut = SwitchedOut::Blocked(SchedState::SLEEP);
    const BLOCKS: SwitchedOut = SwitchedOut::Blocked(SchedState::DISK);
    const RESTS: SwitchedOut = SwitchedOut::Blocked(SchedState::STOPPED);

    fn seen(tid: i32, at_ns: u64) -> TaskEvent {
        TaskEvent::unnamed(at_ns, 0, tid)
    }

    #[test]
    fn parts_are_what_the_thread_did() {
        let mut clocks = CallClocks::default();
        clocks.entered(seen(7, 100), [1, 2, 3, 4, 5, 6]);
        clocks.left(seen(7, 110), BLOCKS, || None);
        clocks.woken(seen(7, 150), true);
        clocks.woken(seen(7, 151), false); // the wake-up follows
        clocks.came(seen(7, 153));
        clocks.woken(seen(7, 154), false); // awake already
        clocks.left(seen(7, 160), SwitchedOut::PREEMPTED, || None);
        clocks.came(seen(7, 165));
        clocks.left(seen(7, 166), SLEEPS, || None);
        clocks.came(seen(7, 176)); // the wake-up went unseen
        let so_far = clocks.get_mut(7, 178).unwrap().so_far(178);
        let (clock, parts) = clocks.exited(7, 180).unwrap();
        let want = TimeParts { ran: 10 + 7 + 1 + 4, ready: 3 + 5, slept: 10, blocked: 40, ..TimeParts::default() };
        assert_eq!((parts, so_far.ran, clock.args[5]), (want, want.ran - 2, 6));
        assert!(clocks.exited(7, 190).is_none() && clocks.get_mut(7, 190).is_none());
        clocks.left(seen(8, 5), SLEEPS, || panic!("the thread is in no call"));
        // A CPU took the thread unseen.
        clocks.entered(seen(7, 200), [0; 6]);
        clocks.left(seen(7, 210), SLEEPS, || None);
        assert_eq!(clocks.exited(7, 250).unwrap().1, TimeParts { ran: 10, unseen: 40, ..TimeParts::default() });
        // The state up to the end of a loss is unknown, and so is the state from there to the next event of the thread.
        clocks.entered(seen(7, 300), [0; 6]);
        clocks.left(seen(7, 310), SLEEPS, || None);
        clocks.lost(330);
        clocks.came(seen(7, 340));
        assert_eq!(clocks.exited(7, 341).unwrap().1, TimeParts { ran: 11, unseen: 30, ..TimeParts::default() });
    }

    /// An event contradicts the believed state of a thread: how long the believed state had lasted is not known.
    #[test]
    fn hidden_switches_are_unseen() {
        let elsewhere = |at_ns| TaskEvent { cpu: 1, ..seen(7, at_ns) };
        let mut clocks = CallClocks::default();
        clocks.entered(seen(7, 100), [0; 6]);
        clocks.came(seen(7, 105)); // the SWITCH record of the switch that was seen
        clocks.came(elsewhere(110)); // the thread left the other CPU unseen
        clocks.left(elsewhere(120), SwitchedOut::PREEMPTED, || None);
        clocks.left(elsewhere(150), SLEEPS, || None); // the thread came back unseen
        clocks.woken(seen(7, 160), false);
        clocks.woken(seen(7, 190), false); // the thread ran, and slept again
        clocks.came(seen(7, 195));
        let want = TimeParts { ran: 10 + 5, ready: 5, slept: 10, unseen: 10 + 30 + 30, ..TimeParts::default() };
        assert_eq!(clocks.exited(7, 200).unwrap().1, want);
    }

    proptest! {
        /// Parts add up whatever events are seen, late or never.
        #[test]
        fn parts_add_up(steps in prop::collection::vec((0_u8..10, 0_u64..50), 0..60)) {
            let mut clocks = CallClocks::default();
            clocks.entered(seen(1, 100), [0; 6]);
            let mut now = 100;
            for (step, at) in steps {
                let at = now + at - 10.min(at);
                now = now.max(at);
                match step {
                    0 => clocks.left(seen(1, at), SLEEPS, || None),
                    1 => clocks.left(seen(1, at), BLOCKS, || None),
                    2 => clocks.left(seen(1, at), SwitchedOut::PREEMPTED, || None),
                    3 => clocks.left(seen(1, at), RESTS, || None),
                    4 => clocks.woken(seen(1, at), false),
                    6 => clocks.woken(seen(1, at), true),
                    7 => clocks.came(TaskEvent { cpu: 1, ..seen(1, at) }),
                    5 => clocks.lost(at + 3),
                    _ => clocks.came(seen(1, at)),
                }
            }
            prop_assert_eq!(clocks.get_mut(1, now + 5).unwrap().so_far(now + 5).sum(), now + 5 - 100);
            let (_, parts) = clocks.exited(1, now + 9).unwrap();
            prop_assert_eq!(parts.sum(), now + 9 - 100);
        }
    }
}
