//! Asks one thing of many threads, on a thread of its own: the answers come from a worker, part by part, while the caller goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::host::Host;
use crate::outside::{self, Question};
use crate::sys;

/// Answers that wait to be taken.
const MAX_WAITING: usize = 4096;

/// Handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct ThreadReader<A> {
    /// Of the thread.
    pub tid: i32,
    to_read: Sender<Vec<i32>>,
    found: Receiver<A>,
    is_reading: Arc<AtomicBool>,
}

impl<A: Send + 'static> ThreadReader<A> {
    /// Starts the thread, which waits for [`ThreadReader::read`].
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start<Q>(host: Host, question: fn(Vec<i32>) -> Q) -> Result<ThreadReader<A>>
    where
        Q: Question<Answer = Vec<Option<A>>>,
    {
        let (to_read, wanted) = bounded::<Vec<i32>>(1);
        let (give, found) = bounded(MAX_WAITING);
        let is_reading = Arc::new(AtomicBool::new(false));
        let shared = is_reading.clone();
        let work = move || {
            for tids in wanted {
                outside::ask_each(&host, &tids, question, |_, answer| give.send(answer).is_ok());
                shared.store(false, Ordering::Release);
            }
        };
        let tid =
            sys::start_thread("thread-reader", work).context("cannot start the thread that asks about threads")?;
        Ok(ThreadReader { tid, to_read, found, is_reading })
    }

    /// Has these threads asked. False while others are.
    pub fn read(&self, tids: Vec<i32>) -> bool {
        let is_free = self.is_idle() && self.to_read.is_empty();
        if is_free {
            self.is_reading.store(true, Ordering::Release);
            let _ = self.to_read.try_send(tids); // it has ended only in a panic
        }
        is_free
    }

    /// The answers since the last call.
    pub fn found(&self) -> Vec<A> {
        self.found.try_iter().take(MAX_WAITING).collect()
    }

    /// All that was asked for has been found and taken.
    pub fn is_idle(&self) -> bool {
        !self.is_reading.load(Ordering::Acquire) && self.found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::task::call::{CallsOf, FoundCall};
    use crate::task::fixture::FixtureProcess;

    const CALL: &str = "230 0x0 0x1 0x2 0x4 0x5 0x6 0x7fff81f56378 0x7f5fb3a01503\n";

    fn calls(process: &FixtureProcess) -> ThreadReader<FoundCall> {
        ThreadReader::start(process.host(), CallsOf).unwrap()
    }

    #[test]
    fn threads_are_read_until_all_are() {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5").write("syscall", CALL);
        let reader = calls(&process);
        assert!(reader.is_idle());
        for _ in 0..2 {
            assert!(reader.read(vec![6, 5]));
            let mut found = Vec::new();
            while !reader.is_idle() {
                found.extend(reader.found());
            }
            let [found] = found[..] else { panic!("{found:?}") };
            assert_eq!((found.tid, found.entered.number, found.stat.state), (5, 230, b'S'));
        }
    }

    #[test]
    fn the_caller_does_not_wait() {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5");
        // The thread hangs in the FIFO as in a lock.
        mkfifo(&process.path("syscall"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let reader = calls(&process);
        assert!(reader.read(vec![5]) && !reader.read(vec![5]));
        assert!(reader.found().is_empty() && !reader.is_idle());
    }
}
