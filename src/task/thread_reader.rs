//! What threads do that had no event: read from /proc at the start of a run, and after losses.
//!
//! A thread of its own asks workers, in several questions, while the caller continues. Records arrive a moment later
//! than answers from /proc, so an answer is returned once all records up to its time were seen, and only if no record
//! since the question was about its thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, Question, WorkerContext};
use crate::sys::{self, monotonic_ns};
use crate::task::call::{EnteredCall, entered_call};
use crate::task::procfs::{self, Stat};

/// Most answers that were not taken yet.
const MAX_WAITING: usize = 4096;
/// Threads in one question.
const MAX_ASKED: usize = 1 << 20;
/// Losses trigger at most one question in this time, ns.
const PACE_NS: u64 = 1_000_000_000;
/// Questions take at most 1 / `MAX_SHARE` of the time.
const MAX_SHARE: u64 = 20;
/// The thread is asking.
const BUSY: u64 = u64::MAX;

/// What is to be found out about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadFacts {
    State,
    /// Its state and its system call. For a thread in no call there is no answer.
    Call,
}

impl ThreadFacts {
    /// How often a thread without an answer is asked about: a thread that just gets a CPU is in no call, and may be in
    /// one soon.
    fn max_rounds(self) -> u32 {
        match self {
            ThreadFacts::State => 1,
            ThreadFacts::Call => 3,
        }
    }
}

/// The state of a thread in /proc.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SeenThread {
    pub tid: i32,
    /// When all of it had been read, by the clock of the records, ns.
    pub at_ns: u64,
    pub stat: Stat,
    pub call: Option<SeenCall>,
}

/// The call in which a thread was.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SeenCall {
    pub entered: EnteredCall,
    /// CPU time that the thread had used before the call was read, ns.
    pub ran_ns: Option<u64>,
}

/// Asks what threads do. None for a thread that has exited, or for which the wanted facts do not exist.
#[derive(Debug, Serialize, Deserialize)]
pub struct ThreadQuestion {
    tids: Vec<i32>,
    facts: ThreadFacts,
}

impl Question for ThreadQuestion {
    type Answer = Vec<Option<SeenThread>>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<Option<SeenThread>> {
        let host = &context.host;
        let read = |&tid: &i32| {
            context.about(tid);
            let call = match self.facts {
                ThreadFacts::State => None,
                ThreadFacts::Call => {
                    let ran_ns = procfs::ran_ns(host, tid);
                    Some(SeenCall { entered: entered_call(host, tid)?, ran_ns })
                }
            };
            let stat = procfs::read_stat(host, tid)?;
            Some(SeenThread { tid, at_ns: monotonic_ns(), stat, call })
        };
        self.tids.iter().map(read).collect()
    }
}

/// Asks for the states of all these threads at once. Threads without an answer are left out.
pub fn ask_states(host: &Host, tids: &[i32], mut take: impl FnMut(SeenThread)) {
    let question = |tids| ThreadQuestion { tids, facts: ThreadFacts::State };
    outside::ask_each(host, tids, question, |_, seen| {
        take(seen);
        true
    });
}

/// The pending questions and their answers. The default asks nothing.
#[derive(Debug, Default)]
pub struct ThreadReader {
    asking: Option<AskingThread>,
    /// Threads whose answer was not returned yet, and that had no record since the question.
    asked: FxHashSet<i32>,
    /// How often these threads were asked about.
    rounds: u32,
    /// Answers whose time the records have not reached yet.
    early: Vec<SeenThread>,
    /// The end of the loss that the last question followed; 0: the start of the run. None: there was no question yet.
    asked_after_ns: Option<u64>,
    /// The earliest time at which a loss may trigger the next question.
    next_ns: u64,
}

/// The asking thread, which ends when this handle is dropped.
#[derive(Debug)]
struct AskingThread {
    tid: i32,
    facts: ThreadFacts,
    to_ask: Sender<Vec<i32>>,
    found: Receiver<SeenThread>,
    /// When the thread may ask again; [`BUSY`] while it asks.
    free_at_ns: Arc<AtomicU64>,
}

impl AskingThread {
    fn start(host: Host, facts: ThreadFacts) -> Result<AskingThread> {
        let (to_ask, wanted) = bounded::<Vec<i32>>(1);
        let (give, found) = bounded(MAX_WAITING);
        let free_at_ns = Arc::new(AtomicU64::new(0));
        let shared = free_at_ns.clone();
        let work = move || {
            for tids in wanted {
                let began = monotonic_ns();
                let question = |tids| ThreadQuestion { tids, facts };
                outside::ask_each(&host, &tids, question, |_, seen| give.send(seen).is_ok());
                let now = monotonic_ns();
                let pause_ns = now.saturating_sub(began).saturating_mul(MAX_SHARE);
                shared.store(now.saturating_add(pause_ns).min(BUSY - 1), Ordering::Release);
            }
        };
        let tid =
            sys::start_thread("thread-reader", work).context("cannot start the thread that asks about threads")?;
        Ok(AskingThread { tid, facts, to_ask, found, free_at_ns })
    }

    /// Passes a question to the thread, which must not be busy.
    fn ask(&self, tids: Vec<i32>) {
        self.free_at_ns.store(BUSY, Ordering::Release);
        let _ = self.to_ask.try_send(tids); // the send fails only if the thread has panicked
    }

    fn free_at_ns(&self) -> u64 {
        self.free_at_ns.load(Ordering::Acquire)
    }
}

impl ThreadReader {
    /// Starts the thread, which waits for [`ThreadReader::ask`].
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host, facts: ThreadFacts) -> Result<ThreadReader> {
        Ok(ThreadReader { asking: Some(AskingThread::start(host.clone(), facts)?), ..ThreadReader::default() })
    }

    /// The tid of the thread that asks.
    pub fn thread(&self) -> Option<i32> {
        self.asking.as_ref().map(|asking| asking.tid)
    }

    /// Whether threads are to be asked about now: at the start, and after a loss. `lost_until`: the end of the last
    /// loss, 0 without a loss. When losses come in a flood, questions are paced.
    pub fn is_due(&self, now: u64, lost_until: u64) -> bool {
        let Some(asking) = &self.asking else { return false };
        match self.asked_after_ns {
            None => true,
            Some(asked_after_ns) => {
                asked_after_ns < lost_until
                    && now >= self.next_ns
                    && self.asked.is_empty()
                    && asking.free_at_ns() <= monotonic_ns()
            }
        }
    }

    /// Asks about these threads, after [`is_due`](ThreadReader::is_due) returned true.
    pub fn ask(&mut self, tids: impl Iterator<Item = i32>, now: u64, lost_until: u64) {
        // Answers to the previous question are older than records that were seen.
        self.asking.iter().for_each(|asking| asking.found.try_iter().for_each(drop));
        (self.asked_after_ns, self.next_ns) = (Some(lost_until), now.saturating_add(PACE_NS));
        (self.asked, self.rounds) = (tids.take(MAX_ASKED).collect(), 0);
        self.early.clear();
        self.ask_on();
    }

    /// Asks again about the threads without an answer.
    fn ask_on(&mut self) {
        let Some(asking) = &self.asking else { return };
        if self.rounds >= asking.facts.max_rounds() {
            self.asked = FxHashSet::default();
        }
        if !self.asked.is_empty() {
            self.rounds += 1;
            asking.ask(self.asked.iter().copied().collect());
        }
    }

    /// A record is about this thread: earlier answers about it are out of date.
    #[inline(always)]
    pub fn saw(&mut self, tid: i32) {
        if !self.asked.is_empty() {
            self.forget(tid);
        }
    }

    #[cold]
    fn forget(&mut self, tid: i32) {
        self.asked.remove(&tid);
    }

    /// The valid answers since the last call. All records up to `now` were seen. `lost_until`: see
    /// [`ThreadReader::is_due`].
    pub fn answers(&mut self, now: u64, lost_until: u64) -> Vec<SeenThread> {
        let Some(asking) = &self.asking else { return Vec::new() };
        let is_done = asking.free_at_ns() != BUSY;
        self.early.extend(asking.found.try_iter().take(MAX_WAITING));
        let is_done = is_done && asking.found.is_empty();
        let asked = &mut self.asked;
        let in_time = self.early.extract_if(.., |seen| seen.at_ns <= now);
        // Threads whose later records a loss has hidden are asked about again.
        let counts = in_time.filter(|seen| seen.at_ns >= lost_until && asked.remove(&seen.tid)).collect();
        if is_done && self.early.is_empty() {
            self.ask_on();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::task::fixture::FixtureProcess;

    const CALL: &str = "230 0x0 0x1 0x2 0x4 0x5 0x6 0x7fff81f56378 0x7f5fb3a01503\n";

    fn sleeping() -> FixtureProcess {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5").write("syscall", CALL).write("schedstat", "77 0 1\n");
        process
    }

    /// All answers to what was asked.
    fn answers(reader: &mut ThreadReader, now: u64, lost_until: u64) -> Vec<SeenThread> {
        let mut found = Vec::new();
        while !reader.asked.is_empty() {
            found.extend(reader.answers(now, lost_until));
        }
        found
    }

    #[test]
    fn threads_are_asked_until_all_are() {
        let process = sleeping();
        for (facts, want) in [(ThreadFacts::Call, Some((230, Some(77)))), (ThreadFacts::State, None)] {
            let mut reader = ThreadReader::start(&process.host(), facts).unwrap();
            assert!(reader.is_due(1, 0) && reader.thread().is_some());
            reader.ask([6, 5].into_iter(), 1, 0);
            let found = answers(&mut reader, u64::MAX, 0);
            let [found] = found[..] else { panic!("{found:?}") };
            let call = found.call.map(|call| (call.entered.number, call.ran_ns));
            assert_eq!(
                (found.tid, found.stat.state, call, reader.rounds),
                (5, b'S', want, facts.max_rounds()),
                "6 has gone"
            );
            assert!(!reader.is_due(u64::MAX, 0), "once, at the start");
        }
    }

    #[test]
    fn an_answer_counts_if_nothing_was_seen_since_the_question() {
        let process = sleeping();
        let mut reader = ThreadReader::start(&process.host(), ThreadFacts::State).unwrap();
        reader.ask([5].into_iter(), 1, 0);
        reader.saw(5);
        assert!(answers(&mut reader, u64::MAX, 0).is_empty(), "a record tells what it does");
        while reader.asking.as_ref().unwrap().found.is_empty() {
            std::thread::yield_now();
        }
        assert!(reader.answers(u64::MAX, 0).is_empty());
    }

    #[test]
    fn an_answer_waits_for_the_records_up_to_it() {
        let process = sleeping();
        let mut reader = ThreadReader::start(&process.host(), ThreadFacts::State).unwrap();
        let before = monotonic_ns();
        reader.ask([5].into_iter(), before, 0);
        while reader.early.is_empty() {
            assert!(reader.answers(before, 0).is_empty());
        }
        assert!(!reader.asked.is_empty());
        let found = answers(&mut reader, u64::MAX, 0);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn losses_have_threads_asked_about_at_a_pace() {
        let process = sleeping();
        let mut reader = ThreadReader::start(&process.host(), ThreadFacts::State).unwrap();
        let now = monotonic_ns();
        reader.ask([5].into_iter(), now, 0);
        assert!(
            answers(&mut reader, u64::MAX, now + (1 << 50)).is_empty(),
            "each answer is in a loss that comes later"
        );
        assert!(!reader.is_due(now + PACE_NS - 1, now));
        while !reader.is_due(now + PACE_NS, now) {
            std::thread::yield_now(); // the thread pauses
        }
        assert!(!reader.is_due(now + PACE_NS, 0), "nothing was lost");
        reader.ask([5].into_iter(), now + PACE_NS, now);
        assert!(!reader.is_due(u64::MAX, now + 1), "the last question has no answer yet");
        assert_eq!(answers(&mut reader, u64::MAX, now).len(), 1);
        assert!(!reader.is_due(u64::MAX, now), "the loss was asked about");
    }

    #[test]
    fn the_caller_does_not_wait() {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5");
        // The thread hangs in the FIFO like in a lock.
        mkfifo(&process.path("syscall"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let mut reader = ThreadReader::start(&process.host(), ThreadFacts::Call).unwrap();
        reader.ask([5].into_iter(), 1, 0);
        assert!(reader.answers(u64::MAX, 0).is_empty() && !reader.is_due(u64::MAX, 1) && !reader.asked.is_empty());
        assert!(ThreadReader::default().answers(u64::MAX, 0).is_empty() && !ThreadReader::default().is_due(1, 1));
    }
}
