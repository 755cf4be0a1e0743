//! Reads from /proc what waiting threads wait in, on a thread of its own: some of these files take a lock that an exec
//! holds, and the exec may be stuck itself. The caller goes on, and gets the answer later or never.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::host::Host;
use crate::sys::monotonic_ns;
use crate::sys::poll::block_signals;
use crate::task::call::{SystemCall, call};
use crate::task::descriptor::Mounts;
use crate::task::procfs::{self, KernelFrame};
use crate::task::snapshot_reader::{SnapshotPool, SnapshotReaders};
use crate::task::user_snapshot::UserSnapshot;

/// A thread whose wait is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    pub tid: i32,
    /// When the wait began; copied into the answer to identify the wait.
    pub since: u64,
    /// Read the stack, too.
    pub stack: bool,
}

/// The answer to one question.
#[derive(Clone, Debug)]
pub struct Answer {
    pub tid: i32,
    pub since: u64,
    /// When all was read, in the clock of records.
    pub until_ns: u64,
    /// None when the thread did not wait all the time.
    pub site: Option<WaitSite>,
}

/// What a thread waits in. All fields are of the same wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSite {
    pub wchan: Option<String>,
    pub call: Option<SystemCall>,
    /// The kernel part of its stack.
    pub stack: Vec<KernelFrame>,
    /// And the user part.
    pub user: Option<Box<UserSnapshot>>,
    /// CPU time that the thread has used, ns.
    pub ran_ns: Option<u64>,
}

/// Most pending questions.
const MOST: usize = 64;

/// Handle of the thread, which ends when this is dropped, unless it hangs.
#[derive(Debug)]
pub struct Asker {
    /// Of all threads that it takes.
    tids: Vec<i32>,
    snapshots: SnapshotPool,
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    current: Arc<CurrentQuestion>,
}

/// The thread whose files are being read (0: none), and since when.
#[derive(Debug, Default)]
struct CurrentQuestion {
    tid: AtomicI32,
    since_ns: AtomicU64,
}

impl Asker {
    /// Starts the thread, and others that read user stacks if `stacks` may be asked for.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host, stacks: bool) -> Result<Asker> {
        let snapshots = SnapshotPool::default();
        let mut readers = if stacks { Some(SnapshotReaders::start(&host, snapshots.clone())?) } else { None };
        let (questions, to_ask) = bounded::<Question>(MOST);
        let (give, answers) = bounded::<Answer>(2 * MOST);
        let (tell_tid, tid) = bounded::<i32>(1);
        let reader_tids: Vec<i32> = readers.iter().flat_map(SnapshotReaders::tids).collect();
        let current = Arc::new(CurrentQuestion::default());
        let shared = current.clone();
        let work = move || {
            block_signals();
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            let mut mounts = Mounts::default();
            for question in to_ask {
                shared.since_ns.store(monotonic_ns(), Ordering::Relaxed);
                shared.tid.store(question.tid, Ordering::Release);
                let site = read_wait_site(&host, question, &mut mounts, readers.as_mut());
                shared.tid.store(0, Ordering::Release);
                let Question { tid, since, .. } = question;
                if give.send(Answer { tid, since, until_ns: monotonic_ns(), site }).is_err() {
                    return;
                }
            }
        };
        let spawned: io::Result<_> = std::thread::Builder::new().name("asker".into()).spawn(work);
        spawned.context("cannot start the thread that asks /proc")?;
        let tid = tid.recv().context("the thread that asks /proc ended at once")?;
        let tids = [tid].into_iter().chain(reader_tids).collect();
        Ok(Asker { tids, snapshots, questions, answers, current })
    }

    /// The tids of the threads.
    pub fn tids(&self) -> &[i32] {
        &self.tids
    }

    /// False while too many user stacks that were read wait for the output.
    pub fn has_room_for_stacks(&self) -> bool {
        self.snapshots.has_room()
    }

    /// Queues a question. False when too many are pending.
    pub fn ask(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// The answers since the last call.
    pub fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.try_iter()
    }

    /// The thread whose files have been read for at least `for_ns` without an end.
    pub fn hangs_at(&self, now: u64, for_ns: u64) -> Option<i32> {
        let tid = self.current.tid.load(Ordering::Acquire);
        let since = self.current.since_ns.load(Ordering::Relaxed);
        (tid != 0 && now.saturating_sub(since) >= for_ns).then_some(tid)
    }
}

/// Reads what a thread waits in. None when it ran or changed its state meanwhile: the fields may be of several waits.
fn read_wait_site(
    host: &Host,
    question: Question,
    mounts: &mut Mounts,
    readers: Option<&mut SnapshotReaders>,
) -> Option<WaitSite> {
    let tid = question.tid;
    let wait = || {
        let state = procfs::stat(host, tid)?.state;
        (!matches!(state, b'R' | b'X' | b'Z')).then(|| (state, procfs::ran_ns(host, tid)))
    };
    let before = wait()?;
    let user = readers.filter(|_| question.stack).and_then(|readers| readers.read(tid));
    let site = WaitSite {
        wchan: procfs::wchan(host, tid),
        call: if matches!(before.0, b'S' | b'D') { call(host, tid, mounts) } else { None },
        stack: if question.stack { procfs::stack(host, tid) } else { Vec::new() },
        user,
        ran_ns: before.1,
    };
    (wait() == Some(before)).then_some(site)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::task::fixture::FixtureProcess;

    const GUARD: Duration = Duration::from_secs(60);

    fn waiting() -> FixtureProcess {
        let process = FixtureProcess::new(5);
        process.write("stat", "5 (x) D 1 5").write("schedstat", "77 0 1\n").write("wchan", "folio_wait");
        process.write("stack", "[<0>] folio_wait+0x1/0x2\n");
        process
    }

    fn question(stack: bool) -> Question {
        Question { tid: 5, since: 9, stack }
    }

    #[test]
    fn all_fields_are_of_one_wait() {
        let process = waiting();
        let site = |stack| read_wait_site(&process.host(), question(stack), &mut Mounts::default(), None);
        let got = site(true).unwrap();
        assert_eq!((got.wchan.as_deref(), got.stack.len(), got.ran_ns), (Some("folio_wait"), 1, Some(77)));
        assert_eq!(site(false).unwrap().stack, []);
        process.write("stat", "5 (x) R 1 5");
        assert_eq!(site(true), None, "it runs");
        fs::remove_file(process.path("stat")).unwrap();
        assert_eq!(site(true), None, "it has exited");
    }

    #[test]
    fn the_caller_does_not_wait() {
        let process = waiting();
        let asker = Asker::start(process.host(), false).unwrap();
        assert!(matches!(asker.tids(), [tid] if *tid > 0 && *tid != nix::unistd::gettid().as_raw()));
        let fifo = process.path("syscall");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(asker.ask(question(false)));
        // The thread hangs in the FIFO as in a lock; more questions are queued up to the limit.
        while asker.hangs_at(monotonic_ns(), 0) != Some(5) {
            std::thread::yield_now();
        }
        assert_eq!(asker.hangs_at(0, 1), None);
        let more = (0..2 * MOST).filter(|_| asker.ask(question(false))).count();
        assert_eq!(more, MOST);
        assert_eq!(asker.answers().count(), 0);
        // The FIFO gets a writer, once it has its reader.
        let open = || fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
        let writer = std::iter::repeat_with(open).find_map(Result::ok).unwrap();
        process.write("stat", "5 (x) S 1 5");
        fs::remove_file(&fifo).unwrap();
        drop(writer);
        let first = asker.answers.recv_timeout(GUARD).unwrap();
        assert_eq!((first.tid, first.since, first.site), (5, 9, None), "its state has changed");
        let second = asker.answers.recv_timeout(GUARD).unwrap();
        assert_eq!(second.site.unwrap().wchan.as_deref(), Some("folio_wait"));
        assert!(second.until_ns >= first.until_ns);
    }
}
