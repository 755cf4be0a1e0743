//! Asks where waiting threads wait, on a thread of its own: the answers come from a worker, which may hang in a file of
//! /proc whose lock a stuck exec holds, or in the memory of another process. The caller continues, and gets the answer
//! later.

use anyhow::{Context as _, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, WorkerContext};
use crate::sys::{self, monotonic_ns};
use crate::task::call::{SystemCall, call};
use crate::task::descriptor::Mounts;
use crate::task::procfs::{self, KernelFrame};
use crate::task::snapshots::SnapshotPool;
use crate::task::user_snapshot::{UserSnapshot, WaitSnapshot};

/// A thread whose wait is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitQuestion {
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
    /// When the last part of the answer was read, by the clock of the records, ns.
    pub until_ns: u64,
    /// None when the thread did not wait all the time while it was read.
    pub site: Option<WaitSite>,
}

/// Where a thread waits. All fields describe the same wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSite {
    pub wchan: Option<String>,
    pub call: Option<SystemCall>,
    /// The kernel part of its stack.
    pub stack: Vec<KernelFrame>,
    /// The user part of its stack.
    pub user: Option<Box<UserSnapshot>>,
    /// CPU time that the thread has used, ns.
    pub ran_ns: Option<u64>,
}

/// Most pending questions.
const LIMIT: usize = 256;

/// Handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Asker {
    tid: i32,
    snapshots: SnapshotPool,
    questions: Sender<WaitQuestion>,
    answers: Receiver<Answer>,
}

impl Asker {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host) -> Result<Asker> {
        let snapshots = SnapshotPool::default();
        let pool = snapshots.clone();
        let (questions, to_ask) = bounded::<WaitQuestion>(LIMIT);
        let (give, answers) = bounded::<Answer>(2 * LIMIT);
        let work = move || {
            for question in to_ask {
                let site = ask(&host, question, &pool);
                let WaitQuestion { tid, since, .. } = question;
                if give.send(Answer { tid, since, until_ns: monotonic_ns(), site }).is_err() {
                    return;
                }
            }
        };
        let tid = sys::start_thread("asker", work).context("cannot start the thread that asks about waits")?;
        Ok(Asker { tid, snapshots, questions, answers })
    }

    /// The tid of the thread.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// False while too many user stacks were read and not yet taken by the output.
    pub fn has_room_for_stacks(&self) -> bool {
        self.snapshots.has_room()
    }

    /// Queues a question. False when too many are pending.
    pub fn ask(&self, question: WaitQuestion) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// The answers since the last call.
    pub fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.try_iter()
    }
}

/// Asks where a thread waits. None when it does not wait all the time, or there is no answer.
fn ask(host: &Host, WaitQuestion { tid, stack, .. }: WaitQuestion, pool: &SnapshotPool) -> Option<WaitSite> {
    let mut site = outside::ask(host, AskedOf::process(tid), &KernelWait { tid, stack }).ok()?.value?;
    // The memory is read last and in a question of its own: only that question hangs where the pages of the thread do
    // not respond.
    if stack && pool.has_room() {
        let answered = outside::ask(host, AskedOf::process(tid), &WaitSnapshot { tid, ran_ns: site.ran_ns }).ok();
        let snapshot = answered.and_then(|answered| answered.value);
        site.user = snapshot.map(|snapshot| Box::new(UserSnapshot { ticket: pool.ticket(), ..snapshot }));
    }
    Some(site)
}

/// Where a thread waits, without its memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct KernelWait {
    tid: i32,
    stack: bool,
}

impl outside::Question for KernelWait {
    type Answer = Option<WaitSite>;

    /// None when the thread ran or changed its state meanwhile: the fields may then describe several waits.
    fn answer(&self, context: &mut WorkerContext) -> Option<WaitSite> {
        let host = context.host.clone();
        let wait = || {
            let state = procfs::read_stat(&host, self.tid)?.state;
            (!matches!(state, b'R' | b'X' | b'Z')).then(|| (state, procfs::ran_ns(&host, self.tid)))
        };
        let before = wait()?;
        let mounts = context.remembered::<Mounts>();
        let site = WaitSite {
            wchan: procfs::wchan(&host, self.tid),
            call: if matches!(before.0, b'S' | b'D') { call(&host, self.tid, mounts) } else { None },
            stack: if self.stack { procfs::stack(&host, self.tid) } else { Vec::new() },
            user: None,
            ran_ns: before.1,
        };
        (wait() == Some(before)).then_some(site)
    }
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

    fn question(stack: bool) -> WaitQuestion {
        WaitQuestion { tid: 5, since: 9, stack }
    }

    #[test]
    fn all_fields_are_of_one_wait() {
        let process = waiting();
        let site = |stack| ask(&process.host(), question(stack), &SnapshotPool::default());
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
        let asker = Asker::start(process.host()).unwrap();
        assert!(asker.tid() > 0 && asker.tid() != nix::unistd::gettid().as_raw());
        let fifo = process.path("syscall");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(asker.ask(question(false)));
        // The thread waits for a writer of the FIFO; more questions are queued up to the limit.
        let open = || fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
        let writer = std::iter::repeat_with(open).find_map(Result::ok).unwrap();
        let more = (0..2 * LIMIT).filter(|_| asker.ask(question(false))).count();
        assert_eq!(more, LIMIT);
        assert_eq!(asker.answers().count(), 0);
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
