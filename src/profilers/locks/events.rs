//! The events of locks, and what each says of a wait.

use anyhow::Result;

use crate::file::InodeKey;
use crate::host::{BlockDevice, FileLockKind};
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::Setup;
use crate::profilers::locks::lock::{FUTEX_PRIVATE, LockGroup, LockId, LockKind, WaitKey};
use crate::tep::{Field, drift};

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockStep {
    Begins {
        key: WaitKey,
        kind: LockKind,
        lock: LockId,
    },
    Ends {
        key: WaitKey,
        lock: LockId,
        /// The task has the lock now.
        took: bool,
    },
    /// The call in which the thread waits, if it does, has ended with this result.
    CallEnds {
        result: i64,
    },
    /// The task has taken, or given back, locks of a file.
    Uses {
        lock: LockId,
        took: bool,
    },
    /// The task wakes those that wait for the futex.
    Wakes {
        lock: LockId,
    },
    /// The task wakes this thread.
    WakesTask {
        tid: i32,
    },
    Nothing,
}

impl LockStep {
    /// Whether it tells in which call the thread is.
    pub fn is_of_call(self) -> bool {
        match self {
            LockStep::Begins { key, .. } | LockStep::Ends { key, .. } => matches!(key, WaitKey::Call { .. }),
            LockStep::CallEnds { .. } | LockStep::Wakes { .. } | LockStep::Uses { .. } => true,
            LockStep::WakesTask { .. } | LockStep::Nothing => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventOf {
    ContentionBegins,
    ContentionEnds,
    Futex,
    FutexWait,
    FutexWake,
    CallExit,
    Flock,
    Posix,
    SetPosix,
    LeaseBlocks,
    LeaseUnblocks,
    Waking,
}

/// An event, and the fields of it that are read.
type LockEventSpec = (&'static str, EventOf, &'static [&'static str]);

const KERNEL: [LockEventSpec; 2] = [
    ("lock:contention_begin", EventOf::ContentionBegins, &["lock_addr", "flags"]),
    ("lock:contention_end", EventOf::ContentionEnds, &["lock_addr", "ret"]),
];

const FUTEX: [LockEventSpec; 2] = [
    ("syscalls:sys_enter_futex", EventOf::Futex, &["uaddr", "op", "val"]),
    ("syscalls:sys_exit_futex", EventOf::CallExit, &["ret"]),
];

/// Of Linux 6.7.
const NEW_FUTEX: [LockEventSpec; 3] = [
    ("syscalls:sys_enter_futex_wait", EventOf::FutexWait, &["uaddr", "val", "flags"]),
    ("syscalls:sys_exit_futex_wait", EventOf::CallExit, &["ret"]),
    ("syscalls:sys_enter_futex_wake", EventOf::FutexWake, &["uaddr", "flags"]),
];

const FILE: [LockEventSpec; 6] = [
    ("filelock:flock_lock_inode", EventOf::Flock, &["s_dev", "i_ino", "type", "ret"]),
    ("filelock:posix_lock_inode", EventOf::Posix, &["s_dev", "i_ino", "type", "ret", "flags"]),
    ("filelock:fcntl_setlk", EventOf::SetPosix, &["ret"]),
    ("syscalls:sys_exit_flock", EventOf::CallExit, &["ret"]),
    ("filelock:break_lease_block", EventOf::LeaseBlocks, &["s_dev", "i_ino"]),
    ("filelock:break_lease_unblock", EventOf::LeaseUnblocks, &["s_dev", "i_ino"]),
];

const WAKING: LockEventSpec = ("sched:sched_waking", EventOf::Waking, &["pid"]);

/// An open event.
#[derive(Debug)]
struct LockEvent {
    event: EventId,
    event_of: EventOf,
    fields: Vec<Field>,
}

/// Which events are wanted.
#[derive(Debug)]
pub struct WantedLocks<'a> {
    /// Empty: all.
    pub groups: &'a [LockGroup],
    pub wakers: bool,
}

impl WantedLocks<'_> {
    fn has(&self, group: LockGroup) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }
}

/// The open events.
#[derive(Debug, Default)]
pub struct LockEvents {
    events: Vec<LockEvent>,
}

impl LockEvents {
    /// Opens the events of the wanted locks. Those that this kernel lacks are told, unless the locks are asked for by
    /// name.
    ///
    /// # Errors
    /// No wanted event exists, or one lacks a field.
    pub fn open(&mut self, wanted: &WantedLocks<'_>, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let in_kernel = wanted.has(LockGroup::Spin) || wanted.has(LockGroup::Sleep);
        let families: [(bool, &[LockEventSpec], &str); 3] = [
            (in_kernel, &KERNEL, "locks of the kernel (Linux 5.19 and later tell them)"),
            (wanted.has(LockGroup::Futex), &FUTEX, "futexes"),
            (wanted.has(LockGroup::File), &FILE, "locks of files"),
        ];
        let mut left_out = None;
        for (_, specs, what) in families.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
            let missing = specs.iter().find_map(|(name, ..)| setup.tracepoint(name).err());
            match missing {
                Some(err) if !wanted.groups.is_empty() => return Err(err),
                Some(err) => {
                    setup.warn(format!("this kernel has no events of {what}: they are left out"));
                    left_out = left_out.or(Some(err));
                }
                None => specs.iter().try_for_each(|spec| self.add(spec, evlist, setup))?,
            }
        }
        // None can be opened: tracefs may not be readable.
        if let Some(err) = left_out.filter(|_| self.events.is_empty()) {
            return Err(err);
        }
        let has_new = |(name, ..): &LockEventSpec| setup.tracepoint(name).is_ok();
        if self.has(EventOf::Futex) && NEW_FUTEX.iter().all(has_new) {
            NEW_FUTEX.iter().try_for_each(|spec| self.add(spec, evlist, setup))?;
        }
        if wanted.wakers && self.has(EventOf::ContentionBegins) && wanted.has(LockGroup::Sleep) {
            self.add(&WAKING, evlist, setup)?;
        }
        self.choose_kinds(wanted, evlist)
    }

    /// Has the kernel drop waits for unwanted locks.
    fn choose_kinds(&self, wanted: &WantedLocks<'_>, evlist: &mut Evlist) -> Result<()> {
        const SPINS: &str = "flags == 1 || flags == 3 || flags == 5";
        const SLEEPS: &str = "flags != 1 && flags != 3 && flags != 5";
        let filter = match (wanted.has(LockGroup::Spin), wanted.has(LockGroup::Sleep)) {
            (true, false) => SPINS,
            (false, true) => SLEEPS,
            _ => return Ok(()),
        };
        let begins = self.events.iter().find(|event| event.event_of == EventOf::ContentionBegins);
        begins.map_or(Ok(()), |begins| evlist.set_filter(begins.event, filter))
    }

    fn has(&self, event_of: EventOf) -> bool {
        self.events.iter().any(|event| event.event_of == event_of)
    }

    fn add(&mut self, (name, of, fields): &LockEventSpec, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        /// The frames of a lock, and one more: a spin lock in a tracepoint in an mmap lock needs most.
        const PLACE_DEPTH: u16 = 12;
        let (evsel, format) = setup.tracepoint(name)?;
        let evsel = match of {
            EventOf::ContentionBegins if setup.stacks => evsel.callchain(0),
            EventOf::ContentionBegins => evsel.kernel_place(PLACE_DEPTH),
            EventOf::Futex | EventOf::FutexWait => evsel.callchain_if(setup.stacks, 0),
            EventOf::Flock | EventOf::Posix | EventOf::LeaseBlocks => evsel.callchain_if(setup.stacks, 0),
            _ => evsel,
        };
        // Who had the lock, or woke a waiter, may be none of the target's tasks. Threads wait in calls of their own.
        let is_of_task = matches!(of, EventOf::Futex | EventOf::FutexWait | EventOf::FutexWake | EventOf::CallExit);
        let evsel = if is_of_task { evsel } else { evsel.binding(Binding::Cpu) };
        let fields: Result<Vec<Field>> =
            fields.iter().map(|field| Ok(drift::require(&format, field)?.clone())).collect();
        self.events.push(LockEvent { event: evlist.add(evsel)?, event_of: *of, fields: fields? });
        Ok(())
    }

    /// What a sample says.
    ///
    /// # Errors
    /// The record ends before a field.
    #[inline]
    pub fn step(&self, event: EventId, sample: &Sample<'_>) -> Result<LockStep> {
        let Some(lock_event) = self.events.iter().find(|known| known.event == event) else {
            return Ok(LockStep::Nothing);
        };
        let number = |index: usize| lock_event.fields.get(index).map_or(Ok(0), |field| field.read_u64(sample.raw));
        let signed = |index: usize| lock_event.fields.get(index).map_or(Ok(0), |field| field.read_i64(sample.raw));
        let file = |kind| -> Result<LockId> {
            Ok(LockId::File(kind, InodeKey { device: BlockDevice(number(0)? as u32), inode: number(1)? }))
        };
        let futex = |flags: u64| -> Result<LockId> { Ok(LockId::futex(number(0)?, sample.pid, flags as u32)) };
        let call = |is_lock| WaitKey::Call { tid: sample.tid, is_lock };
        Ok(match lock_event.event_of {
            EventOf::ContentionBegins => {
                let (address, kind) = (number(0)?, LockKind::of_flags(number(1)?));
                let key = WaitKey::kernel(sample.tid, sample.cpu, address);
                LockStep::Begins { key, kind, lock: LockId::Kernel(address) }
            }
            EventOf::ContentionEnds => {
                let address = number(0)?;
                let key = WaitKey::kernel(sample.tid, sample.cpu, address);
                LockStep::Ends { key, lock: LockId::Kernel(address), took: signed(1)? == 0 }
            }
            EventOf::Futex => match FutexUse::of(number(1)? as u32, number(2)? as u32) {
                FutexUse::Lock => LockStep::Begins { key: call(true), kind: LockKind::Futex, lock: futex(number(1)?)? },
                FutexUse::Wait => {
                    LockStep::Begins { key: call(false), kind: LockKind::FutexWait, lock: futex(number(1)?)? }
                }
                FutexUse::Wakes => LockStep::Wakes { lock: futex(number(1)?)? },
                FutexUse::Other => LockStep::Nothing,
            },
            EventOf::FutexWait => {
                let is_lock = is_locked(number(1)? as u32);
                let kind = if is_lock { LockKind::Futex } else { LockKind::FutexWait };
                LockStep::Begins { key: call(is_lock), kind, lock: futex(number(2)?)? }
            }
            EventOf::FutexWake => LockStep::Wakes { lock: futex(number(1)?)? },
            EventOf::CallExit | EventOf::SetPosix => LockStep::CallEnds { result: signed(0)? },
            EventOf::Flock => {
                file_step(call(true), LockKind::Flock, file(FileLockKind::Flock)?, number(2)?, signed(3)?)
            }
            EventOf::Posix => {
                const OFD: u64 = 1024; // FL_OFDLCK, include/linux/filelock.h
                let kind = if number(4)? & OFD == 0 { LockKind::Fcntl } else { LockKind::Ofd };
                file_step(call(true), kind, file(FileLockKind::Range)?, number(2)?, signed(3)?)
            }
            EventOf::LeaseBlocks => {
                LockStep::Begins { key: call(true), kind: LockKind::Lease, lock: file(FileLockKind::Lease)? }
            }
            EventOf::LeaseUnblocks => LockStep::Ends { key: call(true), lock: file(FileLockKind::Lease)?, took: false },
            EventOf::Waking => LockStep::WakesTask { tid: signed(0)? as i32 },
        })
    }
}

/// What an attempt to lock a file, or to unlock it, says. `lock_type` is `F_UNLCK` or another one.
fn file_step(key: WaitKey, kind: LockKind, lock: LockId, lock_type: u64, result: i64) -> LockStep {
    const UNLOCK: u64 = 2; // F_UNLCK, include/uapi/asm-generic/fcntl.h
    const DEFERRED: i64 = 1; // FILE_LOCK_DEFERRED, include/linux/filelock.h
    match result {
        DEFERRED => LockStep::Begins { key, kind, lock },
        0 if lock_type == UNLOCK => LockStep::Uses { lock, took: false },
        0 => LockStep::Ends { key, lock, took: true },
        _ => LockStep::Nothing,
    }
}

/// What a futex call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexUse {
    /// A wait for what is surely a lock.
    Lock,
    /// Another wait.
    Wait,
    Wakes,
    Other,
}

impl FutexUse {
    /// By the operation, and the value that a waiter expects in the word (include/uapi/linux/futex.h).
    pub fn of(op: u32, value: u32) -> FutexUse {
        const REALTIME: u32 = 256;
        match op & !(FUTEX_PRIVATE | REALTIME) {
            0 | 9 if is_locked(value) => FutexUse::Lock,    // WAIT, WAIT_BITSET
            0 | 9 | 11 => FutexUse::Wait,                   // and WAIT_REQUEUE_PI
            6 | 13 => FutexUse::Lock,                       // LOCK_PI, LOCK_PI2
            1 | 3 | 4 | 5 | 7 | 10 | 12 => FutexUse::Wakes, // WAKE, REQUEUE, WAKE_OP, UNLOCK_PI, WAKE_BITSET
            _ => FutexUse::Other,
        }
    }
}

/// Whether the word of a futex has a value that means "locked, with waiters": 2 of glibc, Rust and Go; 3 of glibc's
/// locks for readers and writers; bits 30 and 31 of robust mutexes, musl, and Rust's locks for readers and writers. A
/// parked thread of Rust waits for -1. Conditions count, and may by chance have such a value.
fn is_locked(value: u32) -> bool {
    matches!(value, 2 | 3) || value >> 30 != 0 && value != u32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_tells_locks_from_conditions() {
        let uses = [
            (128, 2, FutexUse::Lock),
            (0, 2, FutexUse::Lock),
            (128, 0, FutexUse::Wait),
            (9 | 128, 2, FutexUse::Lock),
            (9 | 128, 3, FutexUse::Lock),
            (9 | 128, 4, FutexUse::Wait),
            (9 | 128 | 256, 0, FutexUse::Wait),
            (9 | 128, u32::MAX, FutexUse::Wait),
            (9 | 128, 1 << 31 | 777, FutexUse::Lock),
            (128, 0x8000_0010, FutexUse::Lock),
            (6 | 128, 0, FutexUse::Lock),
            (13, 0, FutexUse::Lock),
            (11 | 128, 2, FutexUse::Wait),
            (1 | 128, 1, FutexUse::Wakes),
            (7 | 128, 0, FutexUse::Wakes),
            (10 | 128, 1, FutexUse::Wakes),
            (8, 0, FutexUse::Other),
            (77, 2, FutexUse::Other),
        ];
        for (op, value, want) in uses {
            assert_eq!(FutexUse::of(op, value), want, "{op} {value:#x}");
        }
    }

    #[test]
    fn an_attempt_waits_takes_or_frees() {
        let (key, lock) =
            (WaitKey::Call { tid: 7, is_lock: true }, LockId::File(FileLockKind::Flock, InodeKey::default()));
        let step = |lock_type, result| file_step(key, LockKind::Flock, lock, lock_type, result);
        assert_eq!(step(1, 1), LockStep::Begins { key, kind: LockKind::Flock, lock });
        assert_eq!(step(1, 0), LockStep::Ends { key, lock, took: true });
        assert_eq!(step(2, 0), LockStep::Uses { lock, took: false });
        assert_eq!(step(1, -11), LockStep::Nothing, "refused at once");
    }
}
