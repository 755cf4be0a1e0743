//! The only place of system calls: each is a small safe function over libc, nix or perf-event-open-sys.
//!
//! `affinity` sets the CPUs of a thread, `below` opens files below another process's root, `bpf` reads and loads BPF
//! programs, `file_handle` opens files by their inodes, `perf` opens and controls events, `mount` mounts tracefs without
//! changing a mount table, `mounts` reads the mount table, `process` starts the workload and leaves the slow release of
//! events to a holder process, `poll` waits, `privileges` reads capabilities, `probed` has functions to be probed,
//! `split_lock` provokes split locks for a test, `memory` ends the program when memory runs out, `replayed` replaces the
//! machine in a replay, `stdio` knows whether stdout was closed, `time_offsets` how far a time namespace shifts clocks.
//! This room is independent of what is measured.

pub mod affinity;
pub mod below;
pub mod bpf;
pub mod file_handle;
pub mod memory;
pub mod mount;
pub mod mounts;
pub mod packets;
pub mod perf;
pub mod poll;
pub mod privileges;
pub mod probed;
pub mod process;
pub mod replayed;
pub mod shared_dir;
pub mod split_lock;
pub mod stdio;
pub mod terminal;
mod time_offsets;
pub mod unsealed;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::time::{ClockId, clock_gettime};

pub use time_offsets::TimeOffsets;

/// Bytes in a page, read once.
pub fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: `sysconf` has no preconditions.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = usize::try_from(size).unwrap_or(4096);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// The machine's CLOCK_MONOTONIC in ns, the clock of all records, independent of the time namespace of this process.
pub fn monotonic_ns() -> u64 {
    let real = || clock_ns(ClockId::CLOCK_MONOTONIC).saturating_sub_signed(TimeOffsets::own().monotonic_ns);
    replayed::monotonic_ns().unwrap_or_else(real)
}

/// CLOCK_REALTIME in ns since the epoch.
pub fn realtime_ns() -> u64 {
    replayed::realtime_ns().unwrap_or_else(|| clock_ns(ClockId::CLOCK_REALTIME))
}

fn clock_ns(id: ClockId) -> u64 {
    try_clock_ns(id).unwrap_or(0) // 0 only for a clock id that the kernel does not know
}

fn try_clock_ns(id: ClockId) -> Option<u64> {
    let time = clock_gettime(id).ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// CPU time that a process has used, in ns, including exited threads. None when the process has exited. Needs no
/// privilege and no file, and takes about a microsecond. The time of a running thread is as of the last tick of its CPU
/// (`cpu_clock_sample_group`, kernel/time/posix-cpu-timers.c).
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    const SCHED: libc::clockid_t = 2; // CPUCLOCK_SCHED, kernel/time/posix-timers.h: the scheduler's ns
    (pid > 0 && !replayed::is_on()).then(|| ClockId::from_raw(!pid << 3 | SCHED)).and_then(try_clock_ns)
}

/// CPU time in ns and peak resident bytes of this process.
pub fn self_usage() -> (u64, u64) {
    let Some(usage) = getrusage(UsageWho::RUSAGE_SELF).ok().filter(|_| !replayed::is_on()) else { return (0, 0) };
    let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1_000;
    // Not max_rss: it survives exec, so it includes the peak of the program that started perf-prof.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (ns(usage.user_time()) + ns(usage.system_time()), peak_rss_bytes(&status).unwrap_or(0))
}

/// CPU time of the calling thread, and of all threads of this process, in ns.
pub fn cpu_ns() -> (u64, u64) {
    (thread_cpu_ns(), cpu_clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID))
}

/// CPU time of the calling thread in ns.
pub fn thread_cpu_ns() -> u64 {
    cpu_clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu_clock_ns(id: ClockId) -> u64 {
    if replayed::is_on() { 0 } else { clock_ns(id) }
}

/// The tid of the calling thread.
pub fn thread_id() -> i32 {
    if replayed::is_on() { replayed::THREAD_ID } else { nix::unistd::gettid().as_raw() }
}

/// Starts a thread that handles no signals. Returns its tid.
///
/// # Errors
/// No thread can be started.
pub fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<i32> {
    let (tell_tid, tid) = mpsc::channel();
    let run = move || {
        poll::block_signals();
        let _ = tell_tid.send(thread_id());
        work();
    };
    std::thread::Builder::new().name(name.into()).spawn(run)?;
    tid.recv().map_err(|_| io::Error::other("it ended at once"))
}

/// `VmHWM:     5140 kB` of /proc/PID/status, proc(5).
fn peak_rss_bytes(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    kib.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Sets the name of the calling thread, of which the kernel keeps 15 bytes.
pub fn set_thread_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // SAFETY: the text ends with a NUL; the kernel copies it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// The scheduling policy of a thread, `SCHED_*`. None when the thread has exited.
pub fn scheduling_policy(tid: i32) -> Option<u32> {
    if replayed::is_on() {
        return None;
    }
    const RESET_ON_FORK: i32 = 0x4000_0000; // SCHED_RESET_ON_FORK
    // SAFETY: takes and returns an integer.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    u32::try_from(policy).ok().map(|policy| policy & !RESET_ON_FORK.cast_unsigned())
}

/// The priority of a thread as the kernel's events have it: 0 to 98 real-time, 100 to 139 nice -20 to 19, -1 deadline.
/// None when the thread has exited.
pub fn scheduling_priority(tid: i32) -> Option<i32> {
    const SIZE: usize = 48; // SCHED_ATTR_SIZE_VER0: size, policy, flags, nice, priority, three times
    if replayed::is_on() {
        return None;
    }
    let mut attr = [0_u8; SIZE];
    // SAFETY: the kernel writes no more than `SIZE` bytes.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, attr.as_mut_ptr(), SIZE, 0) };
    let word = |at: usize| attr[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let (policy, nice, priority) = (word(4).cast_signed(), word(16).cast_signed(), word(20).cast_signed());
    (rc == 0).then_some(match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => 99 - priority,
        libc::SCHED_DEADLINE => -1,
        _ => 120 + nice,
    })
}

/// Gives this thread the highest priority of nice values, if it has the default one. False: it has another one, or this
/// is not permitted.
pub fn precede_others() -> bool {
    const USUAL_PRIORITY: i32 = 120;
    // SAFETY: the call takes numbers only.
    scheduling_priority(0) == Some(USUAL_PRIORITY) && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0
}

/// The soft limit of descriptors that this process was given; 0: it was not raised.
static GIVEN_OPEN_FILES: AtomicU64 = AtomicU64::new(0);

/// The soft limit of descriptors that this process was given, before [`raise_open_files`].
pub fn given_open_files() -> u64 {
    match GIVEN_OPEN_FILES.load(Ordering::Relaxed) {
        0 => open_files().0,
        given => given,
    }
}

/// Raises RLIMIT_NOFILE to its hard limit and returns how many descriptors this process may have.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let _ = GIVEN_OPEN_FILES.compare_exchange(0, soft, Ordering::Relaxed, Ordering::Relaxed);
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard;
    }
    soft
}

/// RLIMIT_NOFILE, soft and hard.
pub fn open_files() -> (u64, u64) {
    getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0))
}

/// Whether the error means that this process, or the machine, has no descriptors left.
pub fn lacks_descriptors(err: &io::Error) -> bool {
    matches!(err.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The soft RLIMIT_MEMLOCK in bytes.
pub fn locked_memory() -> u64 {
    getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft)
}

/// The soft RLIMIT_AS in bytes. None: there is no limit.
pub fn address_space_bytes() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (soft != nix::sys::resource::RLIM_INFINITY).then_some(soft)
}

/// True when the effective user is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Ignores SIGPIPE: a closed pipe is an error of `write`, and does not end the process.
///
/// # Errors
/// None are expected; `sigaction` refuses only signals that cannot be caught.
pub fn ignore_sigpipe() -> io::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: SIG_IGN installs no handler, so no code runs in signal context.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }.map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_our_own() {
        let cases = [
            ("Name:\tx\nVmPeak:\t 9999 kB\nVmHWM:\t    5140 kB\nVmRSS:\t 12 kB\n", Some(5140 * 1024)),
            ("Name:\tkthreadd\n", None), // a kernel thread, which has no memory of its own
            ("VmHWM:\tx kB", None),
            ("VmHWM:\t18446744073709551615 kB", None),
        ];
        for (status, want) in cases {
            assert_eq!(peak_rss_bytes(status), want, "{status:?}");
        }
        assert!(self_usage().1 > 0);
    }
}
