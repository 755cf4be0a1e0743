//! `perf_event_open` and the ioctls of its descriptors.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, PERF_FLAG_PID_CGROUP, perf_event_attr};
use perf_event_open_sys::ioctls;

use crate::sys::replayed;

/// What one event descriptor watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Every task on one CPU.
    Cpu(u32),
    /// One thread while it runs on one CPU.
    Task { tid: i32, cpu: u32 },
    /// One thread, wherever it runs. A ring cannot be mapped from such an event when it is inherited.
    Thread { tid: i32 },
    /// The tasks of a cgroup (its directory's descriptor) on one CPU.
    Cgroup { dir: RawFd, cpu: u32 },
}

impl Watch {
    /// The CPU that is watched. None: all CPUs.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Watch::Cpu(cpu) | Watch::Task { cpu, .. } | Watch::Cgroup { cpu, .. } => Some(cpu),
            Watch::Thread { .. } => None,
        }
    }
}

/// Opens an event, disabled or not as `attr` says, close-on-exec.
///
/// # Errors
/// The kernel's errno; on E2BIG the kernel has written its own struct size into `attr.size`.
pub fn open(attr: &mut perf_event_attr, watch: Watch) -> io::Result<OwnedFd> {
    if replayed::is_on() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let (pid, flags) = match watch {
        Watch::Cpu(_) => (-1, 0),
        Watch::Task { tid, .. } | Watch::Thread { tid } => (tid, 0),
        Watch::Cgroup { dir, .. } => (dir, PERF_FLAG_PID_CGROUP),
    };
    let flags = libc::c_ulong::from(flags | PERF_FLAG_FD_CLOEXEC);
    let cpu = watch.cpu().map_or(Ok(-1), i32::try_from);
    let cpu = cpu.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `attr` is a live, initialised struct whose `size` says how long it is; it asks for no signal
    // delivery and no user memory but the attr itself.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, pid, cpu, -1, flags) };
    check(fd)?;
    // SAFETY: the call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The id that the kernel writes into this event's samples.
///
/// # Errors
/// The ioctl's errno.
pub fn id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel stores eight bytes to `id`, which outlives the call.
    check(unsafe { ioctls::ID(fd.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Sends the records of `fd` into the ring buffer of `owner`.
///
/// # Errors
/// EINVAL when CPU, task or clock do not match the ring's.
pub fn set_output(fd: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open descriptors; the ioctl takes an integer.
    check(unsafe { ioctls::SET_OUTPUT(fd.as_raw_fd(), owner.as_raw_fd()) })
}

/// Attaches an ftrace filter. The kernel accepts one per descriptor.
///
/// # Errors
/// EINVAL for a text that the kernel does not parse (without a position); EEXIST the second time.
pub fn set_filter(fd: BorrowedFd<'_>, text: &str) -> io::Result<()> {
    let text = CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel reads the NUL-terminated text and keeps no pointer to it.
    check(unsafe { ioctls::SET_FILTER(fd.as_raw_fd(), text.as_ptr().cast_mut()) })
}

/// `BPF_TRACE_MAX_PROGS`, kernel/trace/bpf_trace.c: limit of the programs on a tracepoint.
const MAX_PROGRAMS: usize = 64;

/// `struct perf_event_query_bpf` with room for all programs.
#[repr(C)]
struct QueryBpf {
    ids_len: u32,
    count: u32,
    ids: [u32; MAX_PROGRAMS],
}

/// The ids of all BPF programs that are attached to the tracepoint of `fd`, by any process. They run on each event of
/// the tracepoint.
///
/// # Errors
/// EINVAL for an event that is no tracepoint, EPERM without CAP_PERFMON, EOPNOTSUPP or ENOTTY in a kernel without this
/// query.
pub fn attached_programs(fd: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut query = QueryBpf { ids_len: MAX_PROGRAMS as u32, count: 0, ids: [0; MAX_PROGRAMS] };
    // SAFETY: the kernel reads `ids_len` and stores the count and at most as many ids, for which there is room in `query`.
    let result = unsafe { ioctls::QUERY_BPF(fd.as_raw_fd(), (&raw mut query).cast()) };
    match check(result) {
        Err(err) if err.raw_os_error() != Some(libc::ENOSPC) => return Err(err), // with ENOSPC, the ids that fit are there
        _ => {}
    }
    Ok(query.ids.iter().copied().take(query.count as usize).filter(|id| *id != 0).collect())
}

/// Attaches a BPF program to the tracepoint of `fd`. Until `fd` is closed the program runs on all events of the
/// tracepoint, on every CPU, and hides the events for which it returns 0 from the perf events of all processes.
///
/// # Errors
/// EEXIST when `fd` has a program, EINVAL for an event that is no tracepoint.
pub fn attach_program(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = u32::try_from(program.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: both are open descriptors; the ioctl takes an integer.
    check(unsafe { ioctls::SET_BPF(fd.as_raw_fd(), program) })
}

/// Starts one event.
///
/// # Errors
/// The ioctl's errno.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an ioctl on an open descriptor with an integer argument.
    check(unsafe { ioctls::ENABLE(fd.as_raw_fd(), 0) })
}

/// Stops one event.
///
/// # Errors
/// The ioctl's errno.
pub fn disable(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an ioctl on an open descriptor with an integer argument.
    check(unsafe { ioctls::DISABLE(fd.as_raw_fd(), 0) })
}

/// Starts every event that the calling thread opened: one call instead of one per descriptor.
///
/// # Errors
/// None known; the call walks a list in the kernel.
pub fn enable_all() -> io::Result<()> {
    // SAFETY: this prctl takes no arguments.
    check(unsafe { libc::prctl(libc::PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0) })
}

/// Stops every event that the calling thread opened.
///
/// # Errors
/// As [`enable_all`].
pub fn disable_all() -> io::Result<()> {
    // SAFETY: this prctl takes no arguments.
    check(unsafe { libc::prctl(libc::PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0) })
}

/// Reads a counter: as many u64 as `read_format` asks for. Returns how many were read.
///
/// # Errors
/// ENOSPC when `values` is too short for the format.
pub fn read(fd: BorrowedFd<'_>, values: &mut [u64]) -> io::Result<usize> {
    let len = size_of_val(values);
    // SAFETY: the kernel writes at most `len` bytes into `values`; any bit pattern is a valid u64.
    let got = unsafe { libc::read(fd.as_raw_fd(), values.as_mut_ptr().cast(), len) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize / size_of::<u64>()) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
