//! What a lock is, and what is kept of a wait for one.

use std::ops::Range;

use crate::file::InodeKey;
use crate::host::Host;
use crate::perf::record::Callchain;
use crate::relation::RowKey;
use crate::report::Value;
use crate::stats::{Began, PairKey, SumKey, TaskKey};
use crate::symbol::StackId;
use crate::symbol::kernel::kallsyms;
use crate::symbol::stacks::chain_words::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER};
use crate::task::Comm;

/// A kind of lock, and how it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    Spin,
    RwlockRead,
    RwlockWrite,
    Mutex,
    RwsemRead,
    RwsemWrite,
    PercpuRead,
    PercpuWrite,
    RtMutex,
    Futex,
    /// A futex that is not known to be a lock: a condition, a semaphore, a timer.
    FutexWait,
    Flock,
    Fcntl,
    Ofd,
    Lease,
}

/// The groups of kinds that `--kinds` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LockGroup {
    /// Those that are spun on
    Spin,
    /// Kernel locks that let their waiters sleep
    Sleep,
    Futex,
    /// flock, fcntl and leases
    File,
}

impl LockGroup {
    /// Threads wait for these in system calls, which /proc shows.
    pub fn is_in_calls(self) -> bool {
        matches!(self, LockGroup::Futex | LockGroup::File)
    }
}

impl LockKind {
    pub fn value(self) -> Value {
        Value::Word(match self {
            LockKind::Spin => "spin",
            LockKind::RwlockRead => "rwlock read",
            LockKind::RwlockWrite => "rwlock write",
            LockKind::Mutex => "mutex",
            LockKind::RwsemRead => "rwsem read",
            LockKind::RwsemWrite => "rwsem write",
            LockKind::PercpuRead => "percpu read",
            LockKind::PercpuWrite => "percpu write",
            LockKind::RtMutex => "rtmutex",
            LockKind::Futex => "futex",
            LockKind::FutexWait => "futex wait",
            LockKind::Flock => "flock",
            LockKind::Fcntl => "fcntl",
            LockKind::Ofd => "fcntl ofd",
            LockKind::Lease => "lease",
        })
    }

    /// The kind of a kernel lock by the flags of `contention_begin` (include/trace/events/lock.h). Kernels before 6.0
    /// mark a mutex by no flag.
    pub fn of_flags(flags: u64) -> LockKind {
        let [spin, read, write, rt, percpu, mutex] = [0, 1, 2, 3, 4, 5].map(|bit| flags >> bit & 1 == 1);
        match (read, write) {
            _ if mutex => LockKind::Mutex,
            _ if rt => LockKind::RtMutex,
            (true, _) if percpu => LockKind::PercpuRead,
            (_, true) if percpu => LockKind::PercpuWrite,
            (true, _) if spin => LockKind::RwlockRead,
            (_, true) if spin => LockKind::RwlockWrite,
            _ if spin => LockKind::Spin,
            (true, _) => LockKind::RwsemRead,
            (_, true) => LockKind::RwsemWrite,
            _ => LockKind::Mutex,
        }
    }

    pub fn group(self) -> LockGroup {
        match self {
            LockKind::Spin | LockKind::RwlockRead | LockKind::RwlockWrite => LockGroup::Spin,
            LockKind::Futex | LockKind::FutexWait => LockGroup::Futex,
            LockKind::Flock | LockKind::Fcntl | LockKind::Ofd | LockKind::Lease => LockGroup::File,
            _ => LockGroup::Sleep,
        }
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockId {
    /// One of the kernel, by its address.
    Kernel(u64),
    /// A word in the memory of a process.
    Futex { pid: i32, address: u64 },
    /// The locks of a file.
    File(InodeKey),
}

/// Who waits. A thread waits for one futex or file lock at a time; for kernel locks also while it takes another one, or
/// in an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKey {
    /// For the kernel lock at this address. `waiter`: the thread, or of an idle CPU -1 less its number.
    Kernel { waiter: i32, address: u64 },
    /// In a system call. `is_lock`: the wait is surely for a lock.
    Call { tid: i32, is_lock: bool },
}

impl PairKey for WaitKey {}

impl WaitKey {
    pub fn kernel(tid: i32, cpu: u32, address: u64) -> WaitKey {
        let idle = || (-1_i32).saturating_sub_unsigned(cpu);
        WaitKey::Kernel { waiter: if tid == 0 { idle() } else { tid }, address }
    }
}

/// A task that had a lock, or woke who waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockUser {
    pub at_ns: u64,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}

/// What is kept of a wait.
#[derive(Clone, Copy, Debug)]
pub struct LockWait {
    pub kind: LockKind,
    pub lock: LockId,
    /// The code that takes a kernel lock; with callchains the whole stack, of other locks, too.
    pub place: Option<StackId>,
    /// Number of those that wait for the lock, this one included.
    pub waiters: u32,
    /// The task that woke this one.
    pub waker: Option<LockUser>,
    pub began: Began,
}

/// A row: a lock, or the code that takes locks of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOf {
    pub kind: LockKind,
    pub lock: Option<LockId>,
    pub place: Option<StackId>,
}

impl SumKey for LockOf {
    fn others(&self) -> LockOf {
        LockOf { kind: self.kind, lock: None, place: None }
    }
}

impl RowKey for LockOf {}

/// A row, and a task that its waits were behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner {
    pub of: LockOf,
    pub owner: TaskKey,
}

impl SumKey for LockOwner {
    fn others(&self) -> LockOwner {
        LockOwner { of: self.of.others(), owner: self.owner.others() }
    }
}

/// The code of locks, by which a callchain tells who takes one.
#[derive(Debug, Default)]
pub struct LockCode {
    /// Empty: unknown.
    spins: Range<u64>,
    /// The scheduler and all that calls it for a wait.
    sleeps: Range<u64>,
    /// Parts of locks elsewhere.
    parts: Vec<Range<u64>>,
}

impl LockCode {
    /// Reads the addresses of the code. The linker puts locks into sections of their own, whose bounds are symbols
    /// (include/asm-generic/vmlinux.lds.h).
    pub fn of(host: &Host) -> LockCode {
        let path = host.proc.join("kallsyms");
        let mut bounds = [0; 4];
        const BOUNDS: [&str; 4] = ["__lock_text_start", "__lock_text_end", "__sched_text_start", "__sched_text_end"];
        kallsyms::each_function(&path, |name, address| {
            if let Some(index) = BOUNDS.iter().position(|bound| *bound == name) {
                bounds[index] = address;
            }
        });
        let [lock, lock_end, sched, sched_end] = bounds;
        let parts = kallsyms::ranges_of(&path, is_part_of_locks);
        LockCode { spins: lock..lock_end, sleeps: sched..sched_end, parts }
    }

    pub fn is_known(&self) -> bool {
        !self.spins.is_empty()
    }

    /// The callchain from the innermost function on that is no part of the lock. Empty: there is none in the kernel.
    pub fn callers<'w>(&self, chain: Callchain<'_>, kind: LockKind, words: &'w mut Vec<[u8; 8]>) -> Callchain<'w> {
        let sleeps = kind.group() != LockGroup::Spin;
        let is_inside = |address| {
            self.spins.contains(&address)
                || sleeps && self.sleeps.contains(&address)
                || self.parts.iter().any(|part| part.contains(&address))
        };
        words.clear();
        let mut kernel = chain.iter().take_while(|word| *word != PERF_CONTEXT_USER);
        if let Some(skipped) = kernel.position(|word| word < PERF_CONTEXT_MAX && !is_inside(word)) {
            words.push(PERF_CONTEXT_KERNEL.to_ne_bytes());
            words.extend_from_slice(chain.words().get(skipped..).unwrap_or_default());
        }
        Callchain::from_bytes(words.as_flattened())
    }
}

/// Functions of locks, and of their tracepoints, that are in no section of locks on some kernels.
fn is_part_of_locks(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "__traceiter_contention_begin",
        "trace_contention_begin",
        "queued_spin_lock_slowpath",
        "native_queued_spin_lock_slowpath",
        "__pv_queued_spin_lock_slowpath",
        "queued_read_lock_slowpath",
        "queued_write_lock_slowpath",
        "percpu_rwsem_wait",
        "__percpu_down_read",
    ];
    PARTS.contains(&name.split('.').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_the_kind() {
        let kinds = [
            (1, LockKind::Spin),
            (1 | 2, LockKind::RwlockRead),
            (1 | 4, LockKind::RwlockWrite),
            (2, LockKind::RwsemRead),
            (4, LockKind::RwsemWrite),
            (8 | 2, LockKind::RtMutex),
            (16 | 2, LockKind::PercpuRead),
            (16 | 4, LockKind::PercpuWrite),
            (32, LockKind::Mutex),
            (32 | 1, LockKind::Mutex),
            (0, LockKind::Mutex),
            (1 << 40, LockKind::Mutex),
        ];
        for (flags, kind) in kinds {
            assert_eq!(LockKind::of_flags(flags), kind, "{flags:#x}");
        }
    }

    #[test]
    fn the_place_is_outside_of_locks() {
        const BASE: u64 = 0xffff_ffff_8100_0000;
        let code = LockCode {
            spins: BASE..BASE + 0x100,
            sleeps: BASE + 0x100..BASE + 0x200,
            parts: vec![BASE + 0x800..BASE + 0x810, BASE + 0x820..BASE + 0x830],
        };
        let callers = |words: &[u64], kind| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            code.callers(Callchain::from_bytes(&bytes), kind, &mut vec![[7; 8]]).iter().collect::<Vec<_>>()
        };
        const KERNEL: u64 = PERF_CONTEXT_KERNEL;
        let chain = [KERNEL, BASE + 0x801, BASE + 0x10, BASE + 0x110, BASE + 0x900, BASE + 0x20, PERF_CONTEXT_USER, 7];
        let from = |index: usize| [&[KERNEL], &chain[index..]].concat();
        assert_eq!(callers(&chain, LockKind::Spin), from(3), "the scheduler takes its own lock");
        assert_eq!(callers(&chain, LockKind::Mutex), from(4));
        assert!(callers(&[KERNEL, BASE + 0x10, PERF_CONTEXT_USER, 0x5555], LockKind::Mutex).is_empty());
        assert!(callers(&[], LockKind::Mutex).is_empty());
        let unknown = LockCode::default();
        assert_eq!(unknown.callers(Callchain::empty(), LockKind::Spin, &mut Vec::new()).len(), 0);
    }

    #[test]
    fn idle_cpus_wait_each_for_itself() {
        assert_eq!(WaitKey::kernel(0, 0, 7), WaitKey::Kernel { waiter: -1, address: 7 });
        assert_eq!(WaitKey::kernel(0, 3, 7), WaitKey::Kernel { waiter: -4, address: 7 });
        assert_eq!(WaitKey::kernel(9, 3, 7), WaitKey::Kernel { waiter: 9, address: 7 });
    }
}
