//! Waits that began before the run, or before a loss, and who has which file locked: no event tells, /proc does.

use anyhow::Result;

use crate::file::InodeKey;
use crate::host::{FileLock, file_locks};
use crate::profiler::{Context, Setup, Timestamp};
use crate::profilers::locks::events::FutexUse;
use crate::profilers::locks::lock::{LockId, LockKind, LockUser, LockWait, WaitKey};
use crate::relation::{OpenStart, PairStart};
use crate::stats::LossHorizon;
use crate::task::thread_reader::{SeenThread, ThreadFacts, ThreadReader};
use crate::tep::syscalls;

/// What /proc tells of waits for locks.
#[derive(Debug, Default)]
pub struct EarlierWaits {
    threads: ThreadReader,
    horizon: LossHorizon,
}

impl EarlierWaits {
    /// # Errors
    /// No thread can be started.
    pub fn new(setup: &Setup<'_>) -> Result<EarlierWaits> {
        let threads = ThreadReader::start(setup.host, ThreadFacts::Call)?;
        Ok(EarlierWaits { threads, horizon: LossHorizon::default() })
    }

    /// The thread has had a record: what /proc said of it before is out of date.
    #[inline(always)]
    pub fn saw(&mut self, tid: i32) {
        self.threads.saw(tid);
    }

    /// Records were lost: any wait may have ended, and others may have begun.
    pub fn lost(&mut self, end: Timestamp) {
        self.horizon.lost_until(end);
    }

    /// The owners of locks of files.
    pub fn owners(&self, now: Timestamp, ctx: &mut Context) -> Vec<(LockId, LockUser)> {
        let owners = file_locks(&ctx.host).into_iter().filter(|lock| !lock.is_waiter);
        let owner = |FileLock { pid, device, inode, .. }| {
            (
                LockId::File(InodeKey { device, inode }),
                LockUser { at_ns: now, pid, tid: pid, comm: ctx.tasks.comm(pid) },
            )
        };
        owners.map(owner).collect()
    }

    /// Asks about threads whose waits are unknown, at the start and after losses, and returns the waits that the
    /// answers show.
    pub fn look(
        &mut self,
        now: Timestamp,
        is_open: impl Fn(i32) -> bool,
        ctx: &mut Context,
    ) -> Vec<(WaitKey, OpenStart<LockWait>)> {
        let lost_until = self.horizon.end_ns();
        if self.threads.is_due(now, lost_until) {
            self.threads.ask(ctx.watched_threads().filter(|&tid| !is_open(tid)), now, lost_until);
        }
        let seen = self.threads.answers(now, lost_until);
        let mut files = None;
        let seen = seen.into_iter().filter(|seen| !is_open(seen.tid));
        seen.filter_map(|seen| self.wait(&seen, &mut files, ctx)).collect()
    }

    fn wait(
        &self,
        seen: &SeenThread,
        files: &mut Option<Vec<FileLock>>,
        ctx: &mut Context,
    ) -> Option<(WaitKey, OpenStart<LockWait>)> {
        let &SeenThread { tid, stat, call, .. } = seen;
        let entered = call?.entered;
        let [address, op, value, ..] = entered.args;
        let pid = ctx.tasks.pid(tid);
        let mut file = |kind| {
            let listed = files.get_or_insert_with(|| file_locks(&ctx.host));
            let FileLock { device, inode, .. } = *listed.iter().find(|lock| lock.is_waiter && lock.pid == pid)?;
            Some((kind, LockId::File(InodeKey { device, inode })))
        };
        const SET_AND_WAIT: u64 = 7; // F_SETLKW, include/uapi/asm-generic/fcntl.h
        let (kind, lock) = match syscalls::name(entered.number)? {
            "futex" => match FutexUse::of(op as u32, value as u32) {
                FutexUse::Lock => (LockKind::Futex, LockId::Futex { pid, address }),
                FutexUse::Wait => (LockKind::FutexWait, LockId::Futex { pid, address }),
                FutexUse::Wakes | FutexUse::Other => return None,
            },
            "flock" => file(LockKind::Flock)?,
            "fcntl" if op == SET_AND_WAIT => file(LockKind::Fcntl)?,
            _ => return None,
        };
        let key = WaitKey::Call { tid, is_lock: kind != LockKind::FutexWait };
        let own = LockWait { kind, lock, place: None, waiters: 0, waker: None, began: self.horizon.began_unseen() };
        let open = PairStart { cpu: stat.cpu, pid, tid, comm: stat.comm, stack: None, own };
        Some((key, OpenStart { since: self.horizon.latest(ctx.started_ns), open }))
    }

    /// The thread of perf-prof that reads /proc.
    pub fn thread(&self) -> Option<i32> {
        self.threads.thread()
    }
}
