//! Reads from /proc in which system calls threads wait, on a thread of its own: the file takes a lock that an exec holds, and
//! the exec may be stuck itself.

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use crate::host::Host;
use crate::sys::monotonic_ns;
use crate::sys::poll::block_signals;
use crate::task::call::{EnteredCall, entered_call};
use crate::task::procfs::{self, Stat};

/// Calls that wait to be taken.
const MOST_WAITING: usize = 4096;

/// A call in which a thread was found.
#[derive(Clone, Copy, Debug)]
pub struct FoundCall {
    pub tid: i32,
    /// When it was found, in the clock of records.
    pub seen_at: u64,
    pub entered: EnteredCall,
    pub stat: Stat,
}

/// Handle of the thread, which ends when all is read or this is dropped, unless it hangs.
#[derive(Debug)]
pub struct CallReader {
    /// Of the thread.
    pub tid: i32,
    to_read: Sender<Vec<i32>>,
    found: Receiver<FoundCall>,
}

impl CallReader {
    /// Starts the thread, which waits for [`CallReader::read`].
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host) -> Result<CallReader> {
        let (to_read, tids) = bounded::<Vec<i32>>(1);
        let (give, found) = bounded(MOST_WAITING);
        let (tell_tid, tid) = bounded::<i32>(1);
        let work = move || {
            block_signals();
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            for tid in tids.recv().into_iter().flatten() {
                let Some(entered) = entered_call(&host, tid) else { continue };
                let seen_at = monotonic_ns();
                let Some(stat) = procfs::stat(&host, tid) else { continue };
                if give.send(FoundCall { tid, seen_at, entered, stat }).is_err() {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("calls".into()).spawn(work);
        spawned.context("cannot start the thread that reads calls from /proc")?;
        let tid = tid.recv().context("the thread that reads calls from /proc ended at once")?;
        Ok(CallReader { tid, to_read, found })
    }

    /// Has the calls of these threads read, once.
    pub fn read(&self, tids: Vec<i32>) {
        let _ = self.to_read.try_send(tids); // it has ended, or been asked
    }

    /// A call that was found. `Err`: there is none yet, or all were read.
    ///
    /// # Errors
    /// As of a channel.
    pub fn found(&self) -> Result<FoundCall, TryRecvError> {
        self.found.try_recv()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::task::fixture::FixtureProcess;

    const GUARD: Duration = Duration::from_secs(60);
    const CALL: &str = "230 0x0 0x1 0x2 0x4 0x5 0x6 0x7fff81f56378 0x7f5fb3a01503\n";

    #[test]
    fn calls_are_read_until_all_are() {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5").write("syscall", CALL);
        let reader = CallReader::start(process.host()).unwrap();
        reader.read(vec![6, 5]);
        let found = reader.found.recv_timeout(GUARD).unwrap();
        assert_eq!((found.tid, found.entered.number, found.stat.state), (5, 230, b'S'));
        assert!(reader.found.recv_timeout(GUARD).is_err_and(|err| err.is_disconnected()), "there are no more");
        assert!(reader.found().is_err_and(|err| err.is_disconnected()));
    }

    #[test]
    fn the_caller_does_not_wait() {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) S 1 5");
        // The thread hangs in the FIFO as in a lock.
        mkfifo(&process.path("syscall"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let reader = CallReader::start(process.host()).unwrap();
        reader.read(vec![5]);
        assert!(reader.found().is_err_and(|err| err.is_empty()));
    }
}
