//! Where the time of a call went: on a CPU, waiting for one, asleep, in D state. The parts add up to its length.

use crate::sched::{Activity, SchedState, SwitchedOut};
use crate::stats::{LossHorizon, TidMap};
use crate::symbol::StackId;

/// The length of a call, in ns by what the thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeParts {
    pub ran: u64,
    pub ready: u64,
    pub slept: u64,
    pub blocked: u64,
    pub rested: u64,
    /// After a wait whose end was not seen, and around losses.
    pub unseen: u64,
    /// The longest wait in D state, or with `-g` of any kind, and the stack in it.
    pub longest: u64,
    pub wait_stack: Option<StackId>,
}

/// A call that goes on, with what is needed to show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallClock {
    pub args: [u64; 6],
    activity: Activity,
    since: u64,
    parts: TimeParts,
    /// The stack at the last switch away from a CPU.
    stack: Option<StackId>,
    is_open: bool,
    /// It had a line while it went on.
    pub is_shown: bool,
}

impl TimeParts {
    #[cfg(test)]
    fn sum(&self) -> u64 {
        self.ran + self.ready + self.slept + self.blocked + self.rested + self.unseen
    }
}

impl CallClock {
    /// What the thread has done up to `at` counts. An event that comes late changes nothing that was counted.
    fn advance(&mut self, at: u64) {
        let ns = at.saturating_sub(self.since);
        let part = match self.activity {
            Activity::Running => &mut self.parts.ran,
            Activity::Runnable { .. } => &mut self.parts.ready,
            Activity::Blocked(SchedState::SLEEP) => &mut self.parts.slept,
            Activity::Blocked(SchedState::DISK) => &mut self.parts.blocked,
            Activity::Blocked(_) => &mut self.parts.rested,
            Activity::Unknown | Activity::Away | Activity::Hidden => &mut self.parts.unseen,
        };
        *part += ns;
        if matches!(self.activity, Activity::Blocked(_)) && self.stack.is_some() && ns >= self.parts.longest {
            (self.parts.longest, self.parts.wait_stack) = (ns, self.stack);
        }
        self.since = self.since.max(at);
    }

    /// The parts up to `at`, while it goes on.
    pub fn so_far(&self, at: u64) -> TimeParts {
        let mut clock = *self;
        clock.advance(at);
        clock.parts
    }
}

/// The calls that go on, by thread.
#[derive(Debug, Default)]
pub struct CallClocks {
    clocks: TidMap<CallClock>,
    horizon: LossHorizon,
}

impl CallClocks {
    pub fn entered(&mut self, tid: i32, at: u64, args: [u64; 6]) {
        *self.clocks.get_or_default(tid) =
            CallClock { args, since: at, activity: Activity::Running, is_open: true, ..CallClock::default() };
    }

    /// A thread was found in a call that it began before `since`. If an event has told of the thread since then, that counts.
    pub fn found(&mut self, tid: i32, since: u64, args: [u64; 6], state: SchedState) {
        *self.clocks.get_or_default(tid) =
            CallClock { args, since, activity: Activity::Blocked(state), is_open: true, ..CallClock::default() };
    }

    /// The call of a thread has ended.
    pub fn exited(&mut self, tid: i32, at: u64) -> Option<(CallClock, TimeParts)> {
        let clock = self.get_mut(tid, at)?;
        if clock.activity == Activity::Running {
            clock.advance(at);
        } else {
            // It runs, so a CPU took it: it did so unseen.
            clock.parts.unseen += at.saturating_sub(clock.since);
        }
        clock.is_open = false;
        Some((*clock, clock.parts))
    }

    /// The thread left its CPU.
    #[inline]
    pub fn left(&mut self, tid: i32, at: u64, how: SwitchedOut, stack: impl FnOnce() -> Option<StackId>) {
        if let Some(clock) = self.get_mut(tid, at).filter(|clock| at >= clock.since) {
            clock.advance(at);
            clock.stack = stack();
            clock.activity = match how {
                SwitchedOut::Runnable { .. } => Activity::Runnable { woken: false },
                SwitchedOut::Blocked(state) => Activity::Blocked(state),
                SwitchedOut::Dead => Activity::Unknown,
            };
        }
    }

    #[inline]
    pub fn woken(&mut self, tid: i32, at: u64) {
        let waits = |clock: &&mut CallClock| {
            at >= clock.since && matches!(clock.activity, Activity::Unknown | Activity::Blocked(_))
        };
        if let Some(clock) = self.get_mut(tid, at).filter(waits) {
            clock.advance(at);
            clock.activity = Activity::Runnable { woken: true };
        }
    }

    /// The thread got a CPU.
    #[inline]
    pub fn came(&mut self, tid: i32, at: u64) {
        if let Some(clock) = self.get_mut(tid, at).filter(|clock| at >= clock.since) {
            clock.advance(at);
            clock.activity = Activity::Running;
        }
    }

    pub fn forget(&mut self, tid: i32) {
        self.clocks.remove(tid);
    }

    /// A thread goes on under another number.
    pub fn took_over(&mut self, old: i32, new: i32) {
        if let Some(clock) = self.clocks.remove(old) {
            *self.clocks.get_or_default(new) = clock;
        }
    }

    pub fn retain(&mut self, mut lives: impl FnMut(i32) -> bool) {
        self.clocks.retain(|tid, _| lives(tid));
    }

    /// The clock of an open call, for what happens at `at`.
    #[inline]
    pub fn get_mut(&mut self, tid: i32, at: u64) -> Option<&mut CallClock> {
        let horizon = self.horizon;
        let clock = self.clocks.get_mut(tid).filter(|clock| clock.is_open)?;
        if !horizon.saw_all_since(clock.since) {
            clock.activity = Activity::Unknown;
            clock.advance(horizon.end_ns().min(at));
        }
        Some(clock)
    }

    /// Events of threads may have been lost until `end`.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
    }

    /// The stacks that may still be shown.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.clocks.iter().flat_map(|(_, clock)| [clock.stack, clock.parts.wait_stack]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLEEPS: SwitchedOut = SwitchedOut::Blocked(SchedState::SLEEP);
    const BLOCKS: SwitchedOut = SwitchedOut::Blocked(SchedState::DISK);
    const RESTS: SwitchedOut = SwitchedOut::Blocked(SchedState::STOPPED);

    #[test]
    fn parts_are_what_the_thread_did() {
        let mut clocks = CallClocks::default();
        clocks.entered(7, 100, [1, 2, 3, 4, 5, 6]);
        clocks.left(7, 110, BLOCKS, || None);
        clocks.woken(7, 150);
        clocks.came(7, 153);
        clocks.woken(7, 154); // awake already
        clocks.left(7, 160, SwitchedOut::PREEMPTED, || None);
        clocks.came(7, 165);
        clocks.left(7, 166, SLEEPS, || None);
        clocks.came(7, 176); // the wake-up went unseen
        let so_far = clocks.get_mut(7, 178).unwrap().so_far(178);
        let (clock, parts) = clocks.exited(7, 180).unwrap();
        let want = TimeParts { ran: 10 + 7 + 1 + 4, ready: 3 + 5, slept: 10, blocked: 40, ..TimeParts::default() };
        assert_eq!((parts, so_far.ran, clock.args[5]), (want, want.ran - 2, 6));
        assert!(clocks.exited(7, 190).is_none() && clocks.get_mut(7, 190).is_none());
        clocks.left(8, 5, SLEEPS, || panic!("the thread is in no call"));
        // A CPU took it unseen.
        clocks.entered(7, 200, [0; 6]);
        clocks.left(7, 210, SLEEPS, || None);
        assert_eq!(clocks.exited(7, 250).unwrap().1, TimeParts { ran: 10, unseen: 40, ..TimeParts::default() });
        // What it did up to the end of a loss is unknown, and then up to its next event.
        clocks.entered(7, 300, [0; 6]);
        clocks.left(7, 310, SLEEPS, || None);
        clocks.lost(330);
        clocks.came(7, 340);
        assert_eq!(clocks.exited(7, 341).unwrap().1, TimeParts { ran: 11, unseen: 30, ..TimeParts::default() });
    }

    proptest! {
        /// Whatever is seen, late or never.
        #[test]
        fn parts_add_up(steps in prop::collection::vec((0_u8..8, 0_u64..50), 0..60)) {
            let mut clocks = CallClocks::default();
            clocks.entered(1, 100, [0; 6]);
            let mut now = 100;
            for (step, at) in steps {
                let at = now + at - 10.min(at);
                now = now.max(at);
                match step {
                    0 => clocks.left(1, at, SLEEPS, || None),
                    1 => clocks.left(1, at, BLOCKS, || None),
                    2 => clocks.left(1, at, SwitchedOut::PREEMPTED, || None),
                    3 => clocks.left(1, at, RESTS, || None),
                    4 => clocks.woken(1, at),
                    5 => clocks.lost(at + 3),
                    _ => clocks.came(1, at),
                }
            }
            prop_assert_eq!(clocks.get_mut(1, now + 5).unwrap().so_far(now + 5).sum(), now + 5 - 100);
            let (_, parts) = clocks.exited(1, now + 9).unwrap();
            prop_assert_eq!(parts.sum(), now + 9 - 100);
        }
    }
}
