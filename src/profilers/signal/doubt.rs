//! The queues that may be out of step after a loss.
//!
//! Most signals are pending only once at a time: the delivered one is the last one sent. Real-time signals and signals
//! of timers queue: once one was sent or delivered unseen, every later delivery would be paired with the wrong signal.
//! So after a loss no signal of such a queue is paired until /proc has shown that the queue was empty.

use rustc_hash::FxHashMap;

use crate::profilers::signal::names;
use crate::profilers::signal::pending::{QueueKey, SentSignal};
use crate::stats::LossHorizon;

/// Limit of the queues that are looked up in /proc; others stay in doubt.
const LIMIT: usize = 1 << 14;

/// A span of time within which a queue was empty at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyQueue {
    pub from: u64,
    pub to: u64,
}

#[derive(Debug, Default)]
pub struct QueueDoubts {
    horizon: LossHorizon,
    /// When queues were known to be empty. Times before the horizon no longer count.
    empty_at: FxHashMap<QueueKey, u64>,
    /// The horizon at which outdated entries were last dropped.
    dropped_until: LossHorizon,
    /// Queues in doubt, with the answer from /proc, which is kept until all records up to its time were read.
    asking: FxHashMap<QueueKey, Option<EmptyQueue>>,
}

impl QueueDoubts {
    /// Notes that records were lost up to `end`.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
    }

    /// True if the delivery paired with this signal may belong to another one.
    pub fn covers(&self, sent: &SentSignal) -> bool {
        let queues = self.horizon.any_loss() && !names::waits_alone(sent.signo, sent.code);
        let is_in_step = |at: &u64| sent.time >= *at && self.horizon.saw_all_since(*at);
        queues && !self.empty_at.get(&QueueKey::of(sent)).is_some_and(is_in_step)
    }

    /// Notes that a signal was put into its queue.
    pub fn sent(&mut self, sent: &SentSignal) {
        if self.covers(sent) && self.asking.len() < LIMIT {
            self.asking.entry(QueueKey::of(sent)).or_default();
        }
    }

    /// Up to `most` queues to look up in /proc.
    pub fn to_ask(&self, most: usize) -> Vec<QueueKey> {
        self.asking.iter().filter(|(_, answer)| answer.is_none()).take(most).map(|(key, _)| *key).collect()
    }

    /// Queues whose answer is older than `now`.
    pub fn answered(&self, now: u64) -> Vec<QueueKey> {
        let is_due = |answer: &Option<EmptyQueue>| answer.is_some_and(|empty| empty.to < now);
        self.asking.iter().filter(|(_, answer)| is_due(answer)).map(|(key, _)| *key).collect()
    }

    /// Takes the answer from /proc. None: the owner of the queue has ended.
    pub fn answer(&mut self, key: QueueKey, empty: Option<EmptyQueue>) {
        match self.asking.get_mut(&key).filter(|_| empty.is_some()) {
            Some(answer) => *answer = empty,
            None => drop(self.asking.remove(&key)),
        }
    }

    /// Removes and returns the answer, if all records up to its time were read.
    #[inline]
    pub fn take_answer(&mut self, key: QueueKey, now: u64) -> Option<EmptyQueue> {
        if self.asking.is_empty() {
            return None;
        }
        let answer = self.asking.get_mut(&key)?;
        answer.take_if(|empty| empty.to < now)
    }

    /// Notes that a queue was empty: signals sent later are paired correctly again.
    pub fn was_empty(&mut self, key: QueueKey, empty: EmptyQueue) {
        if self.empty_at.len() >= LIMIT && self.dropped_until != self.horizon {
            self.dropped_until = self.horizon;
            let horizon = self.horizon;
            self.empty_at.retain(|_, at| horizon.saw_all_since(*at));
        }
        if self.horizon.saw_all_since(empty.from) && self.empty_at.len() < LIMIT {
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
        let mut doubts = QueueDoubts::default();
        let (alone, queued) = (sent(50, TO, 10, 0), sent(50, TO, 40, -1));
        assert!(!doubts.covers(&queued), "nothing was lost");
        doubts.lost(40);
        assert!(doubts.covers(&queued) && !doubts.covers(&alone));
        doubts.sent(&alone);
        doubts.sent(&queued);
        assert_eq!(doubts.to_ask(9), [QueueKey::of(&queued)]);
        let (key, empty) = (QueueKey::of(&queued), EmptyQueue { from: 58, to: 60 });
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
        doubts.was_empty(key, EmptyQueue { from: 79, to: 99 }); // perhaps before the end of the loss
        assert!(doubts.covers(&later) && doubts.to_ask(9) == [key]);
        doubts.answer(key, None);
        assert!(doubts.to_ask(9).is_empty(), "its process has gone");
    }

    #[test]
    fn old_answers_make_room_for_new_ones() {
        let mut doubts = QueueDoubts::default();
        doubts.lost(10);
        let queue = |tid| sent(50, (tid, 7, false), 40, -1);
        let empty = |doubts: &mut QueueDoubts, tid, at| {
            doubts.was_empty(QueueKey::of(&queue(tid)), EmptyQueue { from: at, to: at });
        };
        let most = LIMIT as i32;
        (1..=most + 1).for_each(|tid| empty(&mut doubts, tid, 20));
        assert!(!doubts.covers(&queue(1)) && doubts.covers(&queue(most + 1)), "there is no room for it");
        doubts.lost(30);
        assert_eq!(doubts.empty_at.len(), LIMIT, "a loss goes through no queues");
        assert!(doubts.covers(&queue(1)));
        empty(&mut doubts, most + 1, 40);
        assert!(!doubts.covers(&queue(most + 1)) && doubts.covers(&queue(1)));
        assert_eq!(doubts.empty_at.len(), 1);
    }
}
