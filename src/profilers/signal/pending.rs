//! Signals that were sent and have not been seen to arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profilers::signal::names::{self, DefaultAction, SI_TIMER};
use crate::report::LineageProcess;
use crate::symbol::StackId;
use crate::task::Comm;

/// A signal as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub time: u64,
    pub cpu: u32,
    pub sender: Sender,
    /// The sender and who has made it, where that is of interest.
    pub lineage: Option<Arc<[LineageProcess]>>,
    pub target: Target,
    pub signo: u8,
    pub code: i32,
    /// The kernel had no memory for its details: it arrives without its code.
    pub info_lost: bool,
    pub stack: Option<StackId>,
    /// It was reported as pending.
    pub shown: bool,
    /// Nobody asked for it: it only keeps its place in the queue.
    pub hidden: bool,
    /// What may have been lost up to here cannot have concerned it.
    pub certain_until: u64,
}

/// The task that was current when it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    /// It was only interrupted.
    pub interrupt: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub tid: i32,
    pub pid: i32,
    pub comm: Comm,
    /// Sent to the process: any of its threads may take it.
    pub group: bool,
}

/// Where a signal waits: the kernel has a queue per thread and one per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Of the thread or of the process.
    pub id: i32,
    pub group: bool,
    pub signo: u8,
}

impl Key {
    pub fn of(sent: &Sent) -> Key {
        let Target { tid, pid, group, .. } = sent.target;
        Key { id: if group { pid } else { tid }, group, signo: sent.signo }
    }
}

#[derive(Debug)]
pub struct Queue {
    pub sent: VecDeque<Sent>,
    /// When /proc is asked what has become of it.
    pub look_at: u64,
    /// /proc had no such signal waiting then, and said so of a living target or not.
    pub absent: Option<Absent>,
    /// The target blocks it, as far as is known.
    pub blocked: bool,
}

impl Queue {
    fn new(sent: VecDeque<Sent>, look_at: u64) -> Queue {
        Queue { sent, look_at, absent: None, blocked: false }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Absent {
    pub at: u64,
    pub gone: bool,
}

/// Empty queues kept for use again.
const SPARE: usize = 64;
/// Signals at most.
const MOST: usize = 1 << 16;

/// All of them, by queue.
#[derive(Debug, Default)]
pub struct Pending {
    queues: FxHashMap<Key, Queue>,
    spare: Vec<VecDeque<Sent>>,
    len: usize,
}

/// What became of a signal that was added.
#[derive(Debug)]
pub enum Added {
    Alone,
    /// The one before it must have been taken: of its kind only one waits at a time.
    Displaced(Sent),
    /// Too many wait.
    Full(Sent),
}

impl Pending {
    /// Adds a signal, whose fate is asked of /proc at `look_at`.
    pub fn add(&mut self, sent: Sent, look_at: u64) -> Added {
        if self.len >= MOST {
            return Added::Full(sent);
        }
        let spare = &mut self.spare;
        let new = || Queue::new(spare.pop().unwrap_or_default(), look_at);
        let queue = self.queues.entry(Key::of(&sent)).or_insert_with(new);
        let one_at_a_time = names::waits_alone(sent.signo, sent.code);
        let displaced = if one_at_a_time { queue.sent.pop_back_if(|before| before.code != SI_TIMER) } else { None };
        queue.sent.push_back(sent);
        match displaced {
            Some(before) => {
                (queue.look_at, queue.absent) = (look_at, None);
                Added::Displaced(before)
            }
            None => {
                self.len += 1;
                Added::Alone
            }
        }
    }

    /// The signal that a thread takes now: its own queue goes first, and what waits longest.
    pub fn take(&mut self, tid: i32, pid: i32, signo: u8, code: i32) -> Option<Sent> {
        let keys = [Key { id: tid, group: false, signo }, Key { id: pid, group: true, signo }];
        let first_is = |pending: &Pending, key: &Key| {
            pending.queues.get(key).and_then(|queue| queue.sent.front()).is_some_and(|sent| sent.code == code)
        };
        // Details that were lost make the code another one.
        let key = keys
            .iter()
            .find(|key| first_is(self, key))
            .or_else(|| keys.iter().find(|key| self.queues.contains_key(key)))?;
        self.pop(*key)
    }

    /// The signal that may have ended a process, sent after `spared`: the newest of those that would.
    pub fn take_fatal(&mut self, pid: i32, spared: u64) -> Option<Sent> {
        let is_fatal = |(key, queue): &(&Key, &Queue)| {
            DefaultAction::of(key.signo) == DefaultAction::Terminates
                && !queue.blocked
                && queue.sent.back().is_some_and(|sent| sent.target.pid == pid && sent.time > spared)
        };
        let newest = |(_, queue): &(&Key, &Queue)| queue.sent.back().map(|sent| sent.time);
        let key = *self.queues.iter().filter(is_fatal).max_by_key(newest)?.0;
        let queue = self.queues.get_mut(&key)?;
        let sent = queue.sent.pop_back();
        self.len -= usize::from(sent.is_some());
        self.settle(key);
        sent
    }

    /// Puts back what [`take_fatal`](Pending::take_fatal) took, unless one of its kind has come meanwhile: then the kernel
    /// had let go of it.
    pub fn put_back(&mut self, sent: Sent, look_at: u64) -> Option<Sent> {
        let key = Key::of(&sent);
        let one_at_a_time = names::waits_alone(sent.signo, sent.code);
        let queue = self.queues.entry(key).or_insert_with(|| Queue::new(VecDeque::new(), look_at));
        if one_at_a_time && queue.sent.iter().any(|other| other.code != SI_TIMER) {
            return Some(sent);
        }
        let place = queue.sent.partition_point(|other| other.time <= sent.time);
        queue.sent.insert(place, sent);
        self.len += 1;
        None
    }

    fn pop(&mut self, key: Key) -> Option<Sent> {
        let sent = self.queues.get_mut(&key)?.sent.pop_front();
        self.len -= usize::from(sent.is_some());
        self.settle(key);
        sent
    }

    /// Takes the signals of a queue that were sent before `before`.
    pub fn take_older(&mut self, key: Key, before: u64) -> Vec<Sent> {
        let mut taken = Vec::new();
        let Some(queue) = self.queues.get_mut(&key) else { return taken };
        while let Some(sent) = queue.sent.pop_front_if(|sent| sent.time < before) {
            taken.push(sent);
        }
        self.len -= taken.len();
        self.settle(key);
        taken
    }

    /// Lets go of a queue that is empty.
    fn settle(&mut self, key: Key) {
        let is_empty = self.queues.get(&key).is_some_and(|queue| queue.sent.is_empty());
        if is_empty
            && let Some(queue) = self.queues.remove(&key)
            && self.spare.len() < SPARE
        {
            self.spare.push(queue.sent);
        }
    }

    /// The queues whose time for a look at /proc has come, a limited number.
    pub fn due(&self, now: u64, most: usize) -> Vec<Key> {
        self.queues.iter().filter(|(_, queue)| queue.look_at <= now).map(|(key, _)| *key).take(most).collect()
    }

    /// The queues of a thread or of a process.
    pub fn of(&self, id: i32, group: bool) -> Vec<Key> {
        if self.len == 0 {
            return Vec::new();
        }
        let keys = (0..=names::LAST).map(|signo| Key { id, group, signo });
        keys.filter(|key| self.queues.contains_key(key)).collect()
    }

    pub fn queue(&mut self, key: Key) -> Option<&mut Queue> {
        self.queues.get_mut(&key)
    }

    /// What was not reported yet, in the order of time. It stays.
    pub fn take_unshown(&mut self) -> Vec<Sent> {
        let all = self.queues.values_mut().flat_map(|queue| &mut queue.sent);
        let mut unshown = Vec::new();
        for sent in all.filter(|sent| !sent.shown) {
            sent.shown = true;
            unshown.push(sent.clone());
        }
        unshown.sort_by_key(|sent| sent.time);
        unshown
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.queues.values().flat_map(|queue| &queue.sent)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sent(time: u64, target: (i32, i32, bool), signo: u8, code: i32) -> Sent {
        let (tid, pid, group) = target;
        Sent {
            time,
            cpu: 0,
            sender: Sender { pid: 1, tid: 1, comm: Comm::new(b"from"), interrupt: false },
            lineage: None,
            target: Target { tid, pid, comm: Comm::new(b"to"), group },
            signo,
            code,
            info_lost: false,
            stack: None,
            shown: false,
            hidden: false,
            certain_until: 0,
        }
    }

    fn pending(all: &[Sent]) -> Pending {
        let mut pending = Pending::default();
        for sent in all {
            assert!(matches!(pending.add(sent.clone(), 0), Added::Alone), "{sent:?}");
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
        assert!(matches!(pending.add(sent(4, GROUP, 14, SI_TIMER), 0), Added::Alone));
        assert!(matches!(pending.add(sent(5, GROUP, 10, 0), 0), Added::Alone));
        assert!(matches!(pending.add(sent(6, GROUP, 10, 0), 0), Added::Displaced(before) if before.time == 5));
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
        pending.queue(Key { id: 7, group: true, signo: 10 }).unwrap().blocked = true;
        assert!(pending.take_fatal(7, 0).is_none());
        assert!(pending.put_back(deadly.clone(), 0).is_none());
        assert_eq!(pending.put_back(deadly, 0).map(|sent| sent.time), Some(2), "of its kind one waits");
        assert_eq!(pending.take(8, 7, 15, 0).map(|sent| sent.time), Some(2));
    }

    #[test]
    fn hidden_ones_keep_their_place_and_are_not_shown() {
        let hidden = Sent { hidden: true, shown: true, ..sent(1, GROUP, 40, -1) };
        let mut pending = pending(&[hidden, sent(2, GROUP, 40, -1)]);
        assert_eq!(pending.take_unshown().iter().map(|sent| sent.time).collect::<Vec<_>>(), [2]);
        for want in [(1, true), (2, false)] {
            assert_eq!(pending.take(7, 7, 40, -1).map(|sent| (sent.time, sent.hidden)), Some(want));
        }
    }

    #[test]
    fn keeps_a_limited_number() {
        let mut pending = Pending::default();
        for time in 0..MOST as u64 {
            assert!(matches!(pending.add(sent(time, GROUP, 40, -1), 0), Added::Alone));
        }
        assert!(matches!(pending.add(sent(0, GROUP, 41, -1), 0), Added::Full(_)));
        let key = Key { id: 7, group: true, signo: 40 };
        assert_eq!(pending.take_older(key, 10).len(), 10);
        assert_eq!(pending.take_older(key, u64::MAX).len(), MOST - 10);
        assert!(pending.is_empty());
    }
}
