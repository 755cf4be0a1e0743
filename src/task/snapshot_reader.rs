//! Reads snapshots of user stacks on threads of their own: a stuck thread of the process may hold the lock of its memory, or
//! a page may be in a file on a dead server. A reader that hangs is left alone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::host::Host;
use crate::sys::poll::block_signals;
use crate::task::procfs;
use crate::task::python::PythonRuntimes;
use crate::task::user_snapshot::{self, UserSnapshot};

/// Number of threads. One that hangs does not delay others; while both hang, nothing is read.
pub const READERS: usize = 2;
/// Time after which a reader that has not answered is left alone.
const PATIENCE: Duration = Duration::from_millis(400);
/// User parts that are read and not given up yet, at most.
const MOST_SNAPSHOTS: usize = 128;

/// Bounds the number of snapshots: each holds a ticket.
#[derive(Clone, Debug, Default)]
pub struct SnapshotPool(Arc<Issued>);

/// One more reference for each snapshot.
#[derive(Debug, Default)]
struct Issued {
    tickets: Arc<()>,
}

/// See [`SnapshotPool`].
pub type SnapshotTicket = Arc<()>;

impl SnapshotPool {
    /// False while too many snapshots exist.
    pub fn has_room(&self) -> bool {
        Arc::strong_count(&self.0.tickets) <= MOST_SNAPSHOTS
    }

    pub fn ticket(&self) -> SnapshotTicket {
        self.0.tickets.clone()
    }
}

/// Handles of the threads, which end when this is dropped, unless they hang.
#[derive(Debug)]
pub struct SnapshotReaders {
    host: Host,
    readers: Vec<SnapshotReader>,
    patience: Duration,
    pool: SnapshotPool,
}

#[derive(Debug)]
struct SnapshotReader {
    tid: i32,
    questions: Sender<i32>,
    answers: Receiver<Option<Box<UserSnapshot>>>,
    /// The process that the reader was reading when it was left alone.
    left_at: Option<i32>,
}

impl SnapshotReaders {
    /// # Errors
    /// No thread can be started.
    pub fn start(host: &Host, pool: SnapshotPool) -> Result<SnapshotReaders> {
        let readers = (0..READERS).map(|_| SnapshotReader::start(host.clone(), pool.clone())).collect::<Result<_>>()?;
        Ok(SnapshotReaders { host: host.clone(), readers, patience: PATIENCE, pool })
    }

    /// The tids of the threads.
    pub fn tids(&self) -> impl Iterator<Item = i32> {
        self.readers.iter().map(|reader| reader.tid)
    }

    /// The snapshot of `tid`. None: there is none, or it did not come in time.
    pub fn read(&mut self, tid: i32) -> Option<Box<UserSnapshot>> {
        let pid = procfs::pid_of(&self.host, tid)?;
        for reader in &mut self.readers {
            if reader.left_at.is_some() && reader.answers.try_recv().is_ok() {
                reader.left_at = None;
            }
        }
        let hangs = |reader: &SnapshotReader| reader.left_at == Some(pid);
        if !self.pool.has_room() || self.readers.iter().any(hangs) {
            return None;
        }
        let reader = self.readers.iter_mut().find(|reader| reader.left_at.is_none())?;
        reader.questions.try_send(tid).ok()?;
        let answer = reader.answers.recv_timeout(self.patience);
        if answer.is_err() {
            reader.left_at = Some(pid);
        }
        answer.ok()?
    }
}

impl SnapshotReader {
    fn start(host: Host, pool: SnapshotPool) -> Result<SnapshotReader> {
        let (questions, to_read) = bounded::<i32>(1);
        let (give, answers) = bounded(1);
        let (tell_tid, tid) = bounded::<i32>(1);
        let work = move || {
            block_signals();
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            let mut runtimes = PythonRuntimes::default();
            for tid in to_read {
                let snapshot = user_snapshot::read(&host, tid, &pool, &mut runtimes).map(Box::new);
                if give.send(snapshot).is_err() {
                    return;
                }
            }
        };
        let spawned: io::Result<_> = std::thread::Builder::new().name("stack-reader".into()).spawn(work);
        spawned.context("cannot start a thread that reads stacks")?;
        let tid = tid.recv().context("a thread that reads stacks ended at once")?;
        Ok(SnapshotReader { tid, questions, answers, left_at: None })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::task::fixture::FixtureProcess;
    use crate::task::user_snapshot::tests::waiting;

    /// Instead of its memory, something that a reader hangs in.
    fn hang(process: &FixtureProcess) {
        fs::remove_file(process.path("mem")).unwrap();
        mkfifo(&process.path("mem"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    }

    /// Readers that are awaited for as long as it takes.
    fn readers(process: &FixtureProcess) -> SnapshotReaders {
        const GUARD: Duration = Duration::from_secs(60);
        let readers = SnapshotReaders::start(&process.host(), SnapshotPool::default()).unwrap();
        SnapshotReaders { patience: GUARD, ..readers }
    }

    /// Asks about one that hangs.
    fn misses(readers: &mut SnapshotReaders, tid: i32) -> bool {
        let patience = std::mem::replace(&mut readers.patience, Duration::from_millis(20));
        let is_missed = readers.read(tid).is_none();
        readers.patience = patience;
        is_missed
    }

    #[test]
    fn one_that_hangs_holds_up_nobody_else() {
        let process = waiting();
        let [one, two, three] = [6, 7, 8].map(|tid| process.another(tid));
        let mut readers = readers(&process);
        assert!(readers.tids().all(|tid| tid > 0) && readers.read(5).is_some());
        hang(&one);
        assert!(misses(&mut readers, 6), "it is not awaited for long");
        assert!(readers.read(5).is_some() && readers.read(6).is_none());
        let left = |readers: &SnapshotReaders| readers.readers.iter().filter(|reader| reader.left_at.is_some()).count();
        assert_eq!(left(&readers), 1, "who hangs is asked once");
        hang(&two);
        assert!(misses(&mut readers, 7) && readers.read(5).is_none(), "nobody is left");
        // One gets on.
        drop(OpenOptions::new().write(true).open(two.path("mem")).unwrap());
        while readers.read(8).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(left(&readers), 1);
        drop((three, OpenOptions::new().write(true).open(one.path("mem")).unwrap()));
    }

    #[test]
    fn there_are_so_many_at_most() {
        let process = waiting();
        let mut readers = readers(&process);
        let kept: Vec<Box<UserSnapshot>> = std::iter::from_fn(|| readers.read(5)).take(2 * MOST_SNAPSHOTS).collect();
        assert_eq!(kept.len(), MOST_SNAPSHOTS);
        drop(kept);
        assert!(readers.read(5).is_some());
    }
}
