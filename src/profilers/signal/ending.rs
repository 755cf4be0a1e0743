//! Finds the signal that ended a process. For any fatal signal, the kernel ends each thread by a separate SIGKILL.
//!
//! These SIGKILLs have no sender. They also occur when a thread calls exit_group or execve, but only in all other
//! threads. So a signal is the cause only if every thread got one.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profilers::signal::names::SIGKILL;
use crate::profilers::signal::pending::{PendingSignals, SentSignal};

/// How often /proc is read to check whether an ending process still lives.
const AGAIN_NS: u64 = 1_000_000_000;
/// Value in `spared`: the process is ending, and the reason is known.
const ENDS: u64 = u64::MAX;

/// A signal that ended a process.
#[derive(Debug)]
pub struct FatalSignal {
    pub sent: SentSignal,
    /// When the first of its threads got a SIGKILL.
    pub time: u64,
    pub tid: i32,
}

/// A process in which some threads got a SIGKILL, and the signal that may be the cause.
#[derive(Debug)]
struct EndingProcess {
    deadly: FatalSignal,
    /// Living threads that got no SIGKILL.
    left: FxHashSet<i32>,
    look_at: u64,
    /// When /proc showed no living thread.
    gone_at: Option<u64>,
}

/// The result of [`EndingProcesses::looked`].
#[derive(Debug)]
pub enum EndingLook {
    Nothing,
    /// The process still lives, and its signal was not reported yet.
    Waits(SentSignal),
    Ended(FatalSignal),
}

/// The processes that are ending.
#[derive(Debug, Default)]
pub struct EndingProcesses {
    undecided: FxHashMap<i32, EndingProcess>,
    /// By process, the time up to which no signal that was sent has ended it.
    spared: FxHashMap<i32, u64>,
}

impl EndingProcesses {
    /// Handles a SIGKILL of a thread that no task has sent. Returns the signal that caused it, if that is certain.
    pub fn told(
        &mut self,
        (pid, tid): (i32, i32),
        time: u64,
        pending: &mut PendingSignals,
        living: impl FnOnce() -> FxHashSet<i32>,
        look_at: u64,
    ) -> Option<FatalSignal> {
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
        let deadly = FatalSignal { sent, time, tid };
        let mut left = if is_kill { FxHashSet::default() } else { living() };
        left.remove(&tid);
        if left.is_empty() {
            self.spared.insert(pid, ENDS);
            return Some(deadly);
        }
        self.undecided.insert(pid, EndingProcess { deadly, left, look_at, gone_at: None });
        None
    }

    fn decide(&mut self, pid: i32) -> Option<FatalSignal> {
        self.spared.insert(pid, ENDS);
        self.undecided.remove(&pid).map(|ending| ending.deadly)
    }

    /// Handles the delivery of a SIGKILL that a task has sent: nothing else ends the process. Returns the signal that
    /// was assumed to end it, as the next two functions do.
    pub fn killed(&mut self, pid: i32) -> Option<SentSignal> {
        self.decide(pid).map(|deadly| deadly.sent)
    }

    /// Handles the exit of a thread. Without a SIGKILL the thread itself has called exit_group, or pthread_exit.
    pub fn exited(&mut self, (pid, tid): (i32, i32), time: u64, any_pending: bool) -> Option<SentSignal> {
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

    /// Handles an exec: the thread that got no SIGKILL has executed another program.
    pub fn executed(&mut self, pid: i32, time: u64) -> Option<SentSignal> {
        let sent = self.undecided.remove(&pid).map(|ending| ending.deadly.sent);
        if sent.is_some() || self.spared.contains_key(&pid) {
            self.spared.insert(pid, time);
        }
        sent
    }

    /// Up to `most` processes to look up in /proc now.
    pub fn due(&self, now: u64, most: usize) -> Vec<i32> {
        self.undecided.iter().filter(|(_, ending)| ending.look_at <= now).map(|(pid, _)| *pid).take(most).collect()
    }

    /// Takes the answer about a process, read from /proc at `looked_at`. Records up to `now` were read.
    pub fn looked(&mut self, pid: i32, lives: bool, looked_at: u64, now: u64) -> EndingLook {
        let Some(ending) = self.undecided.get_mut(&pid) else { return EndingLook::Nothing };
        if lives {
            (ending.look_at, ending.gone_at) = (now.saturating_add(AGAIN_NS), None);
            let sent = &mut ending.deadly.sent;
            return if std::mem::replace(&mut sent.shown, true) {
                EndingLook::Nothing
            } else {
                EndingLook::Waits(sent.clone())
            };
        }
        match ending.gone_at {
            // No exit of the remaining threads was seen, so they had ended before.
            Some(gone_at) if now >= gone_at => self.decide(pid).map_or(EndingLook::Nothing, EndingLook::Ended),
            Some(_) => EndingLook::Nothing,
            None => {
                ending.gone_at = Some(looked_at);
                EndingLook::Nothing
            }
        }
    }

    /// Forgets processes without a pending signal.
    pub fn purge(&mut self, pending: &PendingSignals) {
        if !self.spared.is_empty() {
            let waiting: FxHashSet<i32> = pending.iter().map(|sent| sent.target.pid).collect();
            self.spared.retain(|pid, _| waiting.contains(pid));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &SentSignal> {
        self.undecided.values().map(|ending| &ending.deadly.sent)
    }

    /// Takes the signals of all undecided processes, at the end of the run.
    pub fn take(&mut self) -> Vec<SentSignal> {
        self.undecided.drain().map(|(_, ending)| ending.deadly.sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profilers::signal::pending::tests::sent;

    const PID: i32 = 7;

    /// State after SIGTERM was sent to a process at 10.
    fn term() -> (EndingProcesses, PendingSignals) {
        let mut pending = PendingSignals::default();
        pending.add(sent(10, (PID, PID, true), 15, 0), 0);
        (EndingProcesses::default(), pending)
    }

    fn told(
        endings: &mut EndingProcesses,
        pending: &mut PendingSignals,
        tid: i32,
        time: u64,
        living: &[i32],
    ) -> Option<(u64, i32)> {
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
    fn a_thread_that_calls_exit_gets_no_sigkill() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        assert_eq!(endings.exited((PID, 7), 21, true).map(|sent| sent.time), Some(10));
        // The thread may have exited before the other ones got a SIGKILL.
        let (mut endings, mut pending) = term();
        assert!(endings.exited((PID, 7), 15, true).is_none());
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[8]), None);
        assert!(!pending.is_empty() && endings.iter().count() == 0);
        // If it exited long before, it has ended by itself.
        let (mut endings, mut pending) = term();
        assert!(endings.exited((PID, 7), 5, true).is_none());
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[8]), Some((20, 8)));
    }

    #[test]
    fn a_thread_that_calls_exec_lives_on() {
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
        let (mut endings, mut pending) = (EndingProcesses::default(), PendingSignals::default());
        pending.add(sent(10, (9, PID, false), SIGKILL, 0), 0);
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8, 9]), Some((20, 8)));
    }

    #[test]
    fn threads_that_went_unseen_are_no_obstacle() {
        let (mut endings, mut pending) = term();
        assert_eq!(told(&mut endings, &mut pending, 8, 20, &[7, 8]), None);
        assert_eq!(endings.due(20, 9), [PID]);
        assert!(matches!(endings.looked(PID, true, 30, 25), EndingLook::Waits(sent) if sent.time == 10));
        assert!(matches!(endings.looked(PID, true, 40, 35), EndingLook::Nothing), "said once");
        assert!(endings.due(40, 9).is_empty());
        assert!(matches!(endings.looked(PID, false, 60, 55), EndingLook::Nothing), "records may be on their way");
        assert!(matches!(endings.looked(PID, false, 70, 65), EndingLook::Ended(FatalSignal { time: 20, tid: 8, .. })));
        endings.purge(&pending);
        assert!(endings.spared.is_empty() && endings.undecided.is_empty());
    }
}
