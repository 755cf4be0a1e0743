//! Which queues may be out of step after a loss.
//!
//! Of most signals one waits at a time: what arrives is what was sent last. Those of real-time signals and of timers queue:
//! once one was sent or delivered unseen, every later one would be paired with its neighbour. So after a loss none of such a
//! queue is, until /proc has said that it was empty: what is sent from then on is in step again.

use rustc_hash::FxHashMap;

use crate::profilers::signal::names;
use crate::profilers::signal::pending::{Key, Sent};
use crate::stats::LossHorizon;

/// Queues asked about at most; others stay in doubt.
const MOST: usize = 1 << 14;

/// A queue was empty at some moment of this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    pub from: u64,
    pub to: u64,
}

#[derive(Debug, Default)]
pub struct Doubts {
    horizon: LossHorizon,
    /// When a queue was known to be empty, after the last loss.
    empty_at: FxHashMap<Key, u64>,
    /// Queues in use whose state is asked of /proc, and what it said, until all records up to then were seen.
    asking: FxHashMap<Key, Option<Empty>>,
}

impl Doubts {
    /// Records were lost up to `end`.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
        let horizon = self.horizon;
        self.empty_at.retain(|_, at| horizon.saw_all_since(*at));
    }

    /// Whether another signal may arrive in the place of this one.
    pub fn covers(&self, sent: &Sent) -> bool {
        let queues = self.horizon.any_loss() && !names::waits_alone(sent.signo, sent.code);
        queues && self.empty_at.get(&Key::of(sent)).is_none_or(|at| sent.time < *at)
    }

    /// A signal was put into its queue.
    pub fn sent(&mut self, sent: &Sent) {
        if self.covers(sent) && self.asking.len() < MOST {
            self.asking.entry(Key::of(sent)).or_default();
        }
    }

    /// Some queues of which nothing is known.
    pub fn to_ask(&self, most: usize) -> Vec<Key> {
        self.asking.iter().filter(|(_, answer)| answer.is_none()).take(most).map(|(key, _)| *key).collect()
    }

    /// Queues that were empty before `now`.
    pub fn answered(&self, now: u64) -> Vec<Key> {
        let is_due = |answer: &Option<Empty>| answer.is_some_and(|empty| empty.to < now);
        self.asking.iter().filter(|(_, answer)| is_due(answer)).map(|(key, _)| *key).collect()
    }

    /// /proc has answered; None: the owner of the queue has gone.
    pub fn answer(&mut self, key: Key, empty: Option<Empty>) {
        match self.asking.get_mut(&key).filter(|_| empty.is_some()) {
            Some(answer) => *answer = empty,
            None => drop(self.asking.remove(&key)),
        }
    }

    /// The answer, when `now` is the first moment after it: it is given once.
    #[inline]
    pub fn take_answer(&mut self, key: Key, now: u64) -> Option<Empty> {
        if self.asking.is_empty() {
            return None;
        }
        let answer = self.asking.get_mut(&key)?;
        answer.take_if(|empty| empty.to < now)
    }

    /// The queue was empty: what is sent later is in step.
    pub fn was_empty(&mut self, key: Key, empty: Empty) {
        if self.horizon.saw_all_since(empty.from) && self.empty_at.len() < MOST {
            self.asking.remove(&key);
            self.empty_at.insert(key, empty.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;

    const TO: (i32, i32, bool) = (7, 7, true);

    #[test]
    fn a_queue_is_in_doubt_until_it_was_empty() {
        let mut doubts = Doubts::default();
        let (alone, queued) = (sent(50, TO, 10, 0), sent(50, TO, 40, -1));
        assert!(!doubts.covers(&queued), "nothing was lost");
        doubts.lost(40);
        assert!(doubts.covers(&queued) && !doubts.covers(&alone));
        doubts.sent(&alone);
        doubts.sent(&queued);
        assert_eq!(doubts.to_ask(9), [Key::of(&queued)]);
        let (key, empty) = (Key::of(&queued), Empty { from: 58, to: 60 });
        doubts.answer(key, Some(empty));
        assert!(doubts.to_ask(9).is_empty() && doubts.answered(60).is_empty());
        assert_eq!(doubts.answered(61), [key]);
        assert_eq!([60, 61, 62].map(|now| doubts.take_answer(key, now)), [None, Some(empty), None]);
        assert_eq!(doubts.to_ask(9), [key], "it was not good enough");
        doubts.was_empty(key, empty);
        assert!(doubts.to_ask(9).is_empty());
        assert!(doubts.covers(&queued) && !doubts.covers(&sent(61, TO, 40, -1)));
        doubts.lost(80);
        let later = sent(90, TO, 40, -1);
        assert!(doubts.covers(&later));
        doubts.sent(&later);
        doubts.was_empty(key, Empty { from: 79, to: 99 }); // that was before the loss, perhaps
        assert!(doubts.covers(&later) && doubts.to_ask(9) == [key]);
        doubts.answer(key, None);
        assert!(doubts.to_ask(9).is_empty(), "its process has gone");
    }
}
