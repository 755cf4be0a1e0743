//! Which signal ended a process: its threads are told with a SIGKILL each, whatever it was.
//!
//! Those SIGKILLs name no sender, and come as well when a thread calls exit_group or execve: to all but that one. So a
//! signal is behind them only if every thread had one.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profilers::signal::names::SIGKILL;
use crate::profilers::signal::pending::{Pending, Sent};

/// How often /proc is asked whether a process still lives that was told to end.
const AGAIN_NS: u64 = 1_000_000_000;
/// A process ends for a reason that is known.
const ENDS: u64 = u64::MAX;

/// A signal that ended a process.
#[derive(Debug)]
pub struct Deadly {
    pub sent: Sent,
    /// When the first of its threads was told.
    pub time: u64,
    pub tid: i32,
}

/// A process of which some threads were told to end, and the signal that may be behind it.
#[derive(Debug)]
struct Ending {
    deadly: Deadly,
    /// Threads that live and were not told.
    left: FxHashSet<i32>,
    look_at: u64,
    /// /proc knew no living thread then.
    gone_at: Option<u64>,
}

/// What a look at /proc has brought.
#[derive(Debug)]
pub enum Looked {
    Nothing,
    /// It takes long, which has not been said yet.
    Waits(Sent),
    Ended(Deadly),
}

/// The processes that end.
#[derive(Debug, Default)]
pub struct Endings {
    undecided: FxHashMap<i32, Ending>,
    /// By process: what was sent up to then has not ended it.
    spared: FxHashMap<i32, u64>,
}

impl Endings {
    /// A thread is told to end with a SIGKILL that nobody sent. Returns the signal behind it when that is certain.
    pub fn told(
        &mut self,
        (pid, tid): (i32, i32),
        time: u64,
        pending: &mut Pending,
        living: impl FnOnce() -> FxHashSet<i32>,
        look_at: u64,
    ) -> Option<Deadly> {
        if let Some(ending) = self.undecided.get_mut(&pid) {
            ending.left.remove(&tid);
            return if ending.left.is_empty() { self.decide(pid) } else { None };
        }
        let spared = self.spared.get(&pid).copied().unwrap_or(0);
        let Some(sent) = pending.take_fatal(pid, spared) else {
            self.spared.insert(pid, ENDS);
            return None;
        };
        let is_kill = sent.signo == SIGKILL;
        let deadly = Deadly { sent, time, tid };
        let mut left = if is_kill { FxHashSet::default() } else { living() };
        left.remove(&tid);
        if left.is_empty() {
            self.spared.insert(pid, ENDS);
            return Some(deadly);
        }
        self.undecided.insert(pid, Ending { deadly, left, look_at, gone_at: None });
        None
    }

    fn decide(&mut self, pid: i32) -> Option<Deadly> {
        self.spared.insert(pid, ENDS);
        self.undecided.remove(&pid).map(|ending| ending.deadly)
    }

    /// A SIGKILL that was sent arrives: nothing else ends the process. Returns what was thought to, as the next two do.
    pub fn killed(&mut self, pid: i32) -> Option<Sent> {
        self.decide(pid).map(|deadly| deadly.sent)
    }

    /// A thread exits. One that was not told has itself called exit_group, or pthread_exit.
    pub fn exited(&mut self, (pid, tid): (i32, i32), time: u64, any_pending: bool) -> Option<Sent> {
        match self.undecided.get(&pid) {
            Some(ending) if ending.left.contains(&tid) => self.killed(pid),
            Some(_) => None,
            None => {
                if any_pending {
                    let spared = self.spared.entry(pid).or_insert(time);
                    *spared = time.max(*spared);
                }
                None
            }
        }
    }

    /// The one thread that was not told lives on with another program.
    pub fn executed(&mut self, pid: i32, time: u64) -> Option<Sent> {
        let sent = self.undecided.remove(&pid).map(|ending| ending.deadly.sent);
        if sent.is_some() || self.spared.contains_key(&pid) {
            self.spared.insert(pid, time);
        }
        sent
    }

    /// Processes to be looked at in /proc, a limited number.
    pub fn due(&self, now: u64, most: usize) -> Vec<i32> {
        self.undecided.iter().filter(|(_, ending)| ending.look_at <= now).map(|(pid, _)| *pid).take(most).collect()
    }

    /// What /proc said of a process at `looked_at`. Records up to `now` were seen.
    pub fn looked(&mut self, pid: i32, lives: bool, looked_at: u64, now: u64) -> Looked {
        let Some(ending) = self.undecided.get_mut(&pid) else { return Looked::Nothing };
        if lives {
            (ending.look_at, ending.gone_at) = (now.saturating_add(AGAIN_NS), None);
            let sent = &mut ending.deadly.sent;
            return if std::mem::replace(&mut sent.shown, true) {
                Looked::Nothing
            } else {
                Looked::Waits(sent.clone())
            };
        }
        match ending.gone_at {
            // Of those that are left no exit was seen: they were gone before.
            Some(gone_at) if now >= gone_at => self.decide(pid).map_or(Looked::Nothing, Looked::Ended),
            Some(_) => Looked::Nothing,
            None => {
                ending.gone_at = Some(looked_at);
                Looked::Nothing
            }
        }
    }

    /// Forgets processes for which no signal waits.
    pub fn purge(&mut self, pending: &Pending) {
        if !self.spared.is_empty() {
            let waiting: FxHashSet<i32> = pending.iter().map(|sent| sent.target.pid).collect();
            self.spared.retain(|pid, _| waiting.contains(pid));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.undecided.values().map(|ending| &ending.deadly.sent)
    }

    /// All that is undecided as the run ends.
    pub fn take(&mut self) -> Vec<Sent> {
        self.undecided.drain().map(|(_, ending)| ending.deadly.sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;

    const PID: i32 = 7;

    /// A process to which SIGTERM was sent at 10.
    fn term() -> (Endings, Pending) {
        let mut pending = Pending::default();
        pending.add(sent(10, (PID, PID, true), 15, 0), 0);
        (Endings::default(), pending)
    }

    fn told(endings: &mut Endings, pending: &mut Pending, tid: i32, time: u64, living: &[i32]) -> Option<(u64, i32)> {
        let living = || living.iter().copied().collect();
        endings.told((PID, tid), time, pending, living, 0).map(|deadly| (deadly.time, deadly.tid))
    }

    #[test]
    fn a_signal_tells_every_thread() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8, 9]), None);
        assert!(pending.is_empty() && endings.iter().count() == 1);
        assert!(endings.exited((PID, 8), 21, true).is_none(), "it was told");
        assert_eq!(told(&mut endings, &mut pending, 7, 22, &[]), None);
        assert_eq!(told(&mut endings, &mut pending, 9, 23, &[]), Some((20, 8)), "the first one took it");
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 7, 20, &[7]), Some((20, 7)), "it has one thread");
    }

    #[test]
    fn who_calls_exit_is_not_told() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        assert_eq!(endings.exited((PID, 7), 21, true).map(|sent| sent.time), Some(10));
        // It may have exited before any other was told.
        let (mut endings, mut pending) = term();
        assert!(endings.exited((PID, 7), 15, true).is_none());
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[8]), None);
        assert!(!pending.is_empty() && endings.iter().count() == 0);
        // Long before, it has ended for itself.
        let (mut endings, mut pending) = term();
        assert!(endings.exited((PID, 7), 5, true).is_none());
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[8]), Some((20, 8)));
    }

    #[test]
    fn who_calls_exec_lives_on() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        let back = endings.executed(PID, 21).expect("it was not the signal");
        assert!(pending.put_back(back, 0).is_none());
        assert_eq!(told(&mut endings, &mut pending, 7, 30, &[7]), None, "nor is it later");
        endings.executed(PID, 31);
        pending.add(sent(40, (PID, PID, true), 1, 0), 0);
        assert_eq!(told(&mut endings, &mut pending, 7, 50, &[7]), Some((50, 7)), "the next one is");
    }

    #[test]
    fn a_kill_is_certain() {
        let (mut endings, mut pending) = term();
        endings.killed(PID);
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[8]), None, "the SIGKILL was it");
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        assert_eq!(endings.killed(PID).map(|sent| sent.signo), Some(15));
        let (mut endings, mut pending) = (Endings::default(), Pending::default());
        pending.add(sent(10, (9, PID, false), SIGKILL, 0), 0);
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8, 9]), Some((20, 8)));
    }

    #[test]
    fn threads_that_went_unseen_are_no_obstacle() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        assert_eq!(endings.due(20, 9), [PID]);
        assert!(matches!(endings.looked(PID, true, 30, 25), Looked::Waits(sent) if sent.time == 10));
        assert!(matches!(endings.looked(PID, true, 40, 35), Looked::Nothing), "said once");
        assert!(endings.due(40, 9).is_empty());
        assert!(matches!(endings.looked(PID, false, 60, 55), Looked::Nothing), "records may be on their way");
        assert!(matches!(endings.looked(PID, false, 70, 65), Looked::Ended(Deadly { time: 20, tid: 8, .. })));
        endings.purge(&pending);
        assert!(endings.spared.is_empty() && endings.undecided.is_empty());
    }
}
