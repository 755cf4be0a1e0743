//! Signals that were sent, and whose delivery was not seen yet.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::profiler::Lineage;
use crate::profilers::signal::names::{self, DefaultAction, SI_TIMER};
use crate::symbol::StackId;
use crate::task::Comm;

/// A signal as it was sent.
#[derive(Clone, Debug)]
pub struct SentSignal {
    pub time: u64,
    pub cpu: u32,
    pub sender: SignalSender,
    /// The sender and its ancestors, if they are shown.
    pub lineage: Option<Lineage>,
    pub target: SignalTarget,
    pub signo: u8,
    pub code: i32,
    /// The kernel had no memory for the siginfo: the signal is delivered without its code.
    pub info_lost: bool,
    pub stack: Option<StackId>,
    /// The signal was reported as pending.
    pub shown: bool,
    /// The signal is not wanted, and only keeps its place in the queue.
    pub hidden: bool,
    /// The signal was pending at this time: earlier losses do not concern it.
    pub certain_until: u64,
}

/// The task that was current when a signal was sent.
#[derive(Clone, Copy, Debug)]
pub struct SignalSender {
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    /// The task was only interrupted, and did not send the signal.
    pub interrupt: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct SignalTarget {
    pub tid: i32,
    pub pid: i32,
    pub comm: Comm,
    /// The signal was sent to the process: any of its threads may take it.
    pub group: bool,
}

/// The queue of a signal: the kernel has one per thread and one per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// The tid of the thread, or the pid of the process.
    pub id: i32,
    pub group: bool,
    pub signo: u8,
}

impl QueueKey {
    pub fn of(sent: &SentSignal) -> QueueKey {
        let SignalTarget { tid, pid, group, .. } = sent.target;
        QueueKey { id: if group { pid } else { tid }, group, signo: sent.signo }
    }
}

#[derive(Debug)]
pub struct SignalQueue {
    pub sent: VecDeque<SentSignal>,
    /// When to check in /proc whether the queue is empty.
    pub look_at: u64,
    /// /proc showed that the signal is not pending any more.
    pub absent: Option<AbsentSignal>,
    /// The target was blocking the signal at the last look-up.
    pub blocked: bool,
}

impl SignalQueue {
    fn new(sent: VecDeque<SentSignal>, look_at: u64) -> SignalQueue {
        SignalQueue { sent, look_at, absent: None, blocked: false }
    }
}

/// An answer from /proc that a signal is not pending.
#[derive(Clone, Copy, Debug)]
pub struct AbsentSignal {
    pub at_ns: u64,
    /// The target has ended.
    pub gone: bool,
}

/// Limit of the empty queues that are kept for reuse.
const SPARE: usize = 64;
/// Limit of the pending signals.
const LIMIT: usize = 1 << 16;

/// All pending signals, by queue.
#[derive(Debug, Default)]
pub struct PendingSignals {
    queues: FxHashMap<QueueKey, SignalQueue>,
    spare: Vec<VecDeque<SentSignal>>,
    len: usize,
}

/// The result of [`PendingSignals::add`].
#[derive(Debug)]
pub enum AddOutcome {
    Alone,
    /// The previous signal of this kind, which must have been taken: only one is pending at a time.
    Displaced(SentSignal),
    /// There was no room for the signal.
    Full(SentSignal),
}

impl PendingSignals {
    /// Adds a signal. Its queue will be looked up in /proc at `look_at`.
    pub fn add(&mut self, sent: SentSignal, look_at: u64) -> AddOutcome {
        if self.len >= LIMIT {
            return AddOutcome::Full(sent);
        }
        let spare = &mut self.spare;
        let new = || SignalQueue::new(spare.pop().unwrap_or_default(), look_at);
        let queue = self.queues.entry(QueueKey::of(&sent)).or_insert_with(new);
        let one_at_a_time = names::waits_alone(sent.signo, sent.code);
        let displaced = if one_at_a_time { queue.sent.pop_back_if(|before| before.code != SI_TIMER) } else { None };
        queue.sent.push_back(sent);
        match displaced {
            Some(before) => {
                (queue.look_at, queue.absent) = (look_at, None);
                AddOutcome::Displaced(before)
            }
            None => {
                self.len += 1;
                AddOutcome::Alone
            }
        }
    }

    /// The signal that a thread takes now: the oldest one in the thread's own queue, else in that of its process.
    pub fn take(&mut self, tid: i32, pid: i32, signo: u8, code: i32) -> Option<SentSignal> {
        let keys = [QueueKey { id: tid, group: false, signo }, QueueKey { id: pid, group: true, signo }];
        let first_is = |pending: &PendingSignals, key: &QueueKey| {
            pending.queues.get(key).and_then(|queue| queue.sent.front()).is_some_and(|sent| sent.code == code)
        };
        // If the siginfo was lost, the code is a different one.
        let key = keys
            .iter()
            .find(|key| first_is(self, key))
            .or_else(|| keys.iter().find(|key| self.queues.contains_key(key)))?;
        self.pop(*key)
    }

    /// The signal that may have ended a process: the newest fatal one that was sent after `spared`.
    pub fn take_fatal(&mut self, pid: i32, spared: u64) -> Option<SentSignal> {
        let is_fatal = |(key, queue): &(&QueueKey, &SignalQueue)| {
            DefaultAction::of(key.signo) == DefaultAction::Terminates
                && !queue.blocked
                && queue.sent.back().is_some_and(|sent| sent.target.pid == pid && sent.time > spared)
        };
        let newest = |(_, queue): &(&QueueKey, &SignalQueue)| queue.sent.back().map(|sent| sent.time);
        let key = *self.queues.iter().filter(is_fatal).max_by_key(newest)?.0;
        let queue = self.queues.get_mut(&key)?;
        let sent = queue.sent.pop_back();
        self.len -= usize::from(sent.is_some());
        self.settle(key);
        sent
    }

    /// Puts back a signal of [`take_fatal`](PendingSignals::take_fatal). Returns the signal if another one of its kind
    /// has arrived meanwhile: then it had been taken.
    pub fn put_back(&mut self, sent: SentSignal, look_at: u64) -> Option<SentSignal> {
        let key = QueueKey::of(&sent);
        let one_at_a_time = names::waits_alone(sent.signo, sent.code);
        let queue = self.queues.entry(key).or_insert_with(|| SignalQueue::new(VecDeque::new(), look_at));
        if one_at_a_time && queue.sent.iter().any(|other| other.code != SI_TIMER) {
            return Some(sent);
        }
        let place = queue.sent.partition_point(|other| other.time <= sent.time);
        queue.sent.insert(place, sent);
        self.len += 1;
        None
    }

    fn pop(&mut self, key: QueueKey) -> Option<SentSignal> {
        let sent = self.queues.get_mut(&key)?.sent.pop_front();
        self.len -= usize::from(sent.is_some());
        self.settle(key);
        sent
    }

    /// Takes the signals of a queue that were sent before `before`.
    pub fn take_older(&mut self, key: QueueKey, before: u64) -> Vec<SentSignal> {
        let mut taken = Vec::new();
        let Some(queue) = self.queues.get_mut(&key) else { return taken };
        while let Some(sent) = queue.sent.pop_front_if(|sent| sent.time < before) {
            taken.push(sent);
        }
        self.len -= taken.len();
        self.settle(key);
        taken
    }

    /// Removes the queue, if it is empty.
    fn settle(&mut self, key: QueueKey) {
        let is_empty = self.queues.get(&key).is_some_and(|queue| queue.sent.is_empty());
        if is_empty
            && let Some(queue) = self.queues.remove(&key)
            && self.spare.len() < SPARE
        {
            self.spare.push(queue.sent);
        }
    }

    /// Up to `most` queues to look up in /proc now.
    pub fn due(&self, now: u64, most: usize) -> Vec<QueueKey> {
        self.queues.iter().filter(|(_, queue)| queue.look_at <= now).map(|(key, _)| *key).take(most).collect()
    }

    /// The queues of a thread or of a process.
    pub fn of(&self, id: i32, group: bool) -> Vec<QueueKey> {
        if self.len == 0 {
            return Vec::new();
        }
        let keys = (0..=names::LAST).map(|signo| QueueKey { id, group, signo });
        keys.filter(|key| self.queues.contains_key(key)).collect()
    }

    pub fn queue(&mut self, key: QueueKey) -> Option<&mut SignalQueue> {
        self.queues.get_mut(&key)
    }

    /// The signals that were not reported yet, in time order. They stay pending.
    pub fn take_unshown(&mut self) -> Vec<SentSignal> {
        let all = self.queues.values_mut().flat_map(|queue| &mut queue.sent);
        let mut unshown = Vec::new();
        for sent in all.filter(|sent| !sent.shown) {
            sent.shown = true;
            unshown.push(sent.clone());
        }
        unshown.sort_by_key(|sent| sent.time);
        unshown
    }

    /// Moves the signals of a thread whose tid has changed by an exec.
    pub fn took_over(&mut self, old: i32, new: i32) {
        let keys: Vec<QueueKey> = self.queues.keys().copied().filter(|key| !key.group && key.id == old).collect();
        for key in keys {
            let Some(mut queue) = self.queues.remove(&key) else { continue };
            queue.sent.iter_mut().for_each(|sent| sent.target.tid = new);
            self.queues.insert(QueueKey { id: new, ..key }, queue);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &SentSignal> {
        self.queues.values().flat_map(|queue| &queue.sent)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sent(time: u64, target: (i32, i32, bool), signo: u8, code: i32) -> SentSignal {
        let (tid, pid, group) = target;
        SentSignal {
            time,
            cpu: 0,
            sender: SignalSender { pid: 1, tid: 1, comm: Comm::new(b"from"), interrupt: false },
            lineage: None,
            target: SignalTarget { tid, pid, comm: Comm::new(b"to"), group },
            signo,
            code,
            info_lost: false,
            stack: None,
            shown: false,
            hidden: false,
            certain_until: 0,
        }
    }

    fn pending(all: &[SentSignal]) -> PendingSignals {
        let mut pending = PendingSignals::default();
        for sent in all {
            assert!(matches!(pending.add(sent.clone(), 0), AddOutcome::Alone), "{sent:?}");
        }
        pending
    }

    const GROUP: (i32, i32, bool) = (7, 7, true);
    const THREAD: (i32, i32, bool) = (8, 7, false);

    #[test]
    fn any_thread_takes_what_was_sent_to_its_process() {
        let mut pending = pending(&[sent(1, GROUP, 10, 0), sent(2, THREAD, 10, -6)]);
        let times = [(9, Some(1)), (9, None), (8, Some(2)), (8, None)];
        for (tid, want) in times {
            assert_eq!(pending.take(tid, 7, 10, 0).map(|sent| sent.time), want, "{tid}");
        }
        assert!(pending.is_empty() && pending.queues.is_empty());
    }

    #[test]
    fn a_thread_takes_its_own_first_unless_the_code_tells() {
        let all = [sent(1, GROUP, 10, 0), sent(2, THREAD, 10, -6)];
        let cases = [(0, 1), (-6, 2), (5, 2)];
        for (code, want) in cases {
            assert_eq!(pending(&all).take(8, 7, 10, code).map(|sent| sent.time), Some(want), "{code}");
        }
    }

    #[test]
    fn real_time_signals_queue_and_others_do_not() {
        let mut pending = pending(&[sent(1, GROUP, 40, -1), sent(2, GROUP, 40, -1), sent(3, GROUP, 14, SI_TIMER)]);
        assert!(matches!(pending.add(sent(4, GROUP, 14, SI_TIMER), 0), AddOutcome::Alone));
        assert!(matches!(pending.add(sent(5, GROUP, 10, 0), 0), AddOutcome::Alone));
        assert!(matches!(pending.add(sent(6, GROUP, 10, 0), 0), AddOutcome::Displaced(before) if before.time == 5));
        for (signo, code, want) in [(40, -1, 1), (40, -1, 2), (14, SI_TIMER, 3), (14, SI_TIMER, 4), (10, 0, 6)] {
            assert_eq!(pending.take(7, 7, signo, code).map(|sent| sent.time), Some(want));
        }
        assert!(pending.is_empty());
    }

    #[test]
    fn the_newest_deadly_signal_ends_a_process() {
        let all = [sent(1, GROUP, 10, 0), sent(2, THREAD, 15, 0), sent(3, GROUP, 11, 1), sent(4, (9, 9, true), 15, 0)];
        let mut pending = pending(&all);
        assert!(pending.take_fatal(7, 2).is_none(), "the process outlived it");
        let deadly = pending.take_fatal(7, 1).expect("11 dumps core, 4 is another's");
        assert_eq!(deadly.time, 2);
        pending.queue(QueueKey { id: 7, group: true, signo: 10 }).unwrap().blocked = true;
        assert!(pending.take_fatal(7, 0).is_none());
        assert!(pending.put_back(deadly.clone(), 0).is_none());
        assert_eq!(pending.put_back(deadly, 0).map(|sent| sent.time), Some(2), "of its kind one waits");
        assert_eq!(pending.take(8, 7, 15, 0).map(|sent| sent.time), Some(2));
    }

    #[test]
    fn hidden_ones_keep_their_place_and_are_not_shown() {
        let hidden = SentSignal { hidden: true, shown: true, ..sent(1, GROUP, 40, -1) };
        let mut pending = pending(&[hidden, sent(2, GROUP, 40, -1)]);
        assert_eq!(pending.take_unshown().iter().map(|sent| sent.time).collect::<Vec<_>>(), [2]);
        for want in [(1, true), (2, false)] {
            assert_eq!(pending.take(7, 7, 40, -1).map(|sent| (sent.time, sent.hidden)), Some(want));
        }
    }

    #[test]
    fn signals_stay_with_a_thread_that_gets_another_number() {
        let mut pending = PendingSignals::default();
        pending.add(sent(1, (8, 7, false), 40, -1), 0);
        pending.add(sent(2, (7, 7, true), 40, -1), 0);
        pending.took_over(8, 7);
        let key = |id, group| QueueKey { id, group, signo: 40 };
        assert!(pending.queue(key(8, false)).is_none() && pending.queue(key(7, true)).is_some());
        assert_eq!(pending.take(7, 7, 40, -1).map(|sent| (sent.time, sent.target.tid)), Some((1, 7)));
        assert_eq!(pending.take(7, 7, 40, -1).map(|sent| sent.time), Some(2));
    }

    #[test]
    fn keeps_a_limited_number() {
        let mut pending = PendingSignals::default();
        for time in 0..LIMIT as u64 {
            assert!(matches!(pending.add(sent(time, GROUP, 40, -1), 0), AddOutcome::Alone));
        }
        assert!(matches!(pending.add(sent(0, GROUP, 41, -1), 0), AddOutcome::Full(_)));
        let key = QueueKey { id: 7, group: true, signo: 40 };
        assert_eq!(pending.take_older(key, 10).len(), 10);
        assert_eq!(pending.take_older(key, u64::MAX).len(), LIMIT - 10);
        assert!(pending.is_empty());
    }
}
