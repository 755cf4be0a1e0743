//! `bpf(2)`: reads loaded programs, and loads perf-prof's own programs with their maps.

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// enum bpf_cmd and enum bpf_prog_type, include/uapi/linux/bpf.h
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;

/// `struct bpf_insn`: eight bytes each.
pub const INSTRUCTION_BYTES: usize = 8;
/// Limit above which the instructions of a program are not read. 4,096 instructions was the kernel's own limit for most
/// of its history.
const MAX_INSTRUCTION_BYTES: usize = 16 * 4096 * INSTRUCTION_BYTES;

/// What the kernel tells about a loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedProgram {
    /// The name that the loader gave it: up to 15 arbitrary bytes, often empty.
    pub name: Vec<u8>,
    /// The instructions as the kernel runs them, with all functions behind the first. None: the kernel does not give
    /// them, or there are too many.
    pub instructions: Option<Vec<u8>>,
    /// How often, since it was loaded, the program did not run because another program ran on the CPU. None: this
    /// kernel does not count that.
    pub misses: Option<u64>,
}

/// `struct bpf_attr` of BPF_PROG_GET_FD_BY_ID. Here and below, the kernel takes omitted fields at the end as zeros.
#[repr(C)]
struct GetFdById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// `struct bpf_attr` of BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfoByFd {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// `struct bpf_prog_info`, up to the field `recursion_misses`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    xlated: u64,
    load_time: u64,
    created_by_uid: u32,
    map_ids_len: u32,
    map_ids: u64,
    name: [u8; 16],
    /// Fields that are not used here: devices, compiled code, types and lines, run time.
    others: [u64; 16],
    recursion_misses: u64,
}

/// `struct bpf_attr` of BPF_PROG_LOAD, up to the program's name.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    for_kernel: u32,
    flags: u32,
    name: [u8; 16],
}

/// `struct bpf_attr` of BPF_MAP_CREATE, up to the flags.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// `struct bpf_attr` of BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct MapUpdate {
    fd: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const _: () = {
    assert!(size_of::<MapCreate>() == 20 && size_of::<MapUpdate>() == 32 && offset_of!(MapUpdate, key) == 8);
    assert!(size_of::<GetFdById>() == 12 && size_of::<GetInfoByFd>() == 16);
    assert!(size_of::<ProgramInfo>() == 216 && offset_of!(ProgramInfo, xlated) == 32);
    assert!(offset_of!(ProgramInfo, name) == 64 && offset_of!(ProgramInfo, recursion_misses) == 208);
    assert!(size_of::<ProgramLoad>() == 64 && offset_of!(ProgramLoad, name) == 48);
};

/// The program with this id.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; ENOENT when the program was unloaded; ENOSYS in a kernel without bpf(2).
pub fn program(id: u32) -> io::Result<LoadedProgram> {
    let fd = open_program(id)?;
    let (info, misses) = info_of(fd.as_fd())?;
    let name = CStr::from_bytes_until_nul(&info.name).map_or(&info.name[..], CStr::to_bytes).to_vec();
    let len = info.xlated_len as usize;
    if len == 0 || len > MAX_INSTRUCTION_BYTES {
        return Ok(LoadedProgram { name, instructions: None, misses });
    }
    let mut instructions = vec![0_u8; len];
    let mut info =
        ProgramInfo { xlated_len: len as u32, xlated: instructions.as_mut_ptr() as u64, ..ProgramInfo::default() };
    // SAFETY: `xlated` points to `len` writable bytes that outlive the call, and the kernel stores at most as many. The
    // other lengths are 0.
    unsafe { get_info(fd.as_fd(), &mut info) }?;
    // The kernel clears the pointer if it does not give the instructions (`bpf_prog_get_info_by_fd`,
    // kernel/bpf/syscall.c).
    let told = info.xlated != 0 && info.xlated_len as usize == len;
    Ok(LoadedProgram { name, instructions: told.then_some(instructions), misses })
}

/// How often a program did not run because another program ran on the CPU: see [`LoadedProgram::misses`].
///
/// # Errors
/// As [`program`].
pub fn misses(id: u32) -> io::Result<Option<u64>> {
    Ok(info_of(open_program(id)?.as_fd())?.1)
}

fn open_program(id: u32) -> io::Result<OwnedFd> {
    let mut attr = GetFdById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the kernel reads the three numbers of `attr`, which holds no pointer.
    let fd = unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut attr) }?;
    // SAFETY: the call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The info of a program without the data behind its pointers, and the count of misses.
fn info_of(program: BorrowedFd<'_>) -> io::Result<(ProgramInfo, Option<u64>)> {
    let mut info = ProgramInfo::default();
    // SAFETY: no length is set, so that the kernel stores nothing behind the pointers of `info`: they are null.
    let bytes = unsafe { get_info(program, &mut info) }?;
    let misses = (bytes as usize >= size_of::<ProgramInfo>()).then_some(info.recursion_misses);
    Ok((info, misses))
}

/// The id of a program that perf-prof has loaded.
///
/// # Errors
/// ENOSYS or EINVAL in a kernel before 4.13, where programs have no ids.
pub fn id_of(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(info_of(program)?.0.id)
}

/// The kind of a map. Keys are numbers below the number of entries, except in a map `ByNumber`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// An array of values.
    Array,
    /// Descriptors of BPF output events, to which a program writes records.
    PerfEvents,
    /// One buffer per CPU.
    CpuBuffers,
    /// A hash map: values that exist once they are set, under any numbers.
    ByNumber,
}

/// A map of BPF programs.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    kind: MapKind,
    value_bytes: u32,
}

impl BpfMap {
    /// A map with room for `entries` values of `value_bytes`, all 0.
    ///
    /// # Errors
    /// EPERM without CAP_BPF, or when the limit of locked memory is reached (before 5.11); E2BIG or ENOMEM for a map
    /// that is too large.
    pub fn new(kind: MapKind, value_bytes: u32, entries: u32) -> io::Result<BpfMap> {
        // enum bpf_map_type
        let number = match kind {
            MapKind::ByNumber => 1,
            MapKind::Array => 2,
            MapKind::PerfEvents => 4,
            MapKind::CpuBuffers => 6,
        };
        let mut attr = MapCreate { kind: number, key_size: 4, value_size: value_bytes, max_entries: entries, flags: 0 };
        // SAFETY: the kernel reads the five numbers of `attr`, which holds no pointer.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &mut attr) }?;
        // SAFETY: the call just returned this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(BpfMap { fd, kind, value_bytes })
    }

    /// Sets the value of `key`: in a map of perf events, the event's descriptor.
    ///
    /// # Errors
    /// E2BIG for a key beyond the last entry, or when the map is full; EBADF or EINVAL for a descriptor that is no
    /// event; EINVAL for a value of the wrong size, or for a map of buffers, whose values user space never sets.
    pub fn set(&self, key: u32, value: &[u8]) -> io::Result<()> {
        // For a map of buffers the kernel would read one value per CPU.
        if self.kind == MapKind::CpuBuffers || value.len() != self.value_bytes as usize {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let fd = u32::try_from(self.fd.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut attr = MapUpdate { fd, key: std::ptr::from_ref(&key) as u64, value: value.as_ptr() as u64, flags: 0 };
        // SAFETY: the map has keys of four bytes, which is what `key` points to, and values of `value_bytes`, as many as `value` has.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Removes the value of `key`: in a map of perf events, the event with that number.
    ///
    /// # Errors
    /// ENOENT when there is no such value; EINVAL for an array, whose values always exist.
    pub fn remove(&self, key: u32) -> io::Result<()> {
        let fd = u32::try_from(self.fd.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut attr = MapUpdate { fd, key: std::ptr::from_ref(&key) as u64, value: 0, flags: 0 };
        // SAFETY: the map has keys of four bytes, which is what `key` points to; the kernel reads no value.
        unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr) }.map(drop)
    }
}

impl AsFd for BpfMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns how many bytes of `info` the kernel knows.
///
/// # Safety
/// The memory behind each pointer in `info` must be writable for the length given with the pointer.
unsafe fn get_info(fd: BorrowedFd<'_>, info: &mut ProgramInfo) -> io::Result<u32> {
    let fd = u32::try_from(fd.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let info_len = size_of::<ProgramInfo>() as u32;
    let mut attr = GetInfoByFd { fd, info_len, info: std::ptr::from_mut(info) as u64 };
    // SAFETY: the kernel reads and stores at most `info_len` bytes at `info`, a struct of that size in which any bits
    // are valid, and the caller guarantees the memory behind the pointers.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(attr.info_len) // the kernel has set the length
}

/// Loads a program for tracepoints: `instructions`: an array of the kernel's `struct bpf_insn`.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_PERFMON; EINVAL or EACCES for a program that the kernel's verifier refuses.
pub fn load_tracepoint_program(name: &str, instructions: &[u8]) -> io::Result<OwnedFd> {
    const LICENSE: &CStr = c"GPL";
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let instruction_count = u32::try_from(instructions.len() / INSTRUCTION_BYTES).map_err(|_| invalid())?;
    let mut attr = ProgramLoad {
        kind: BPF_PROG_TYPE_TRACEPOINT,
        instruction_count,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..ProgramLoad::default()
    };
    let name_most = attr.name.len() - 1;
    attr.name.iter_mut().zip(name.bytes().take(name_most)).for_each(|(to, from)| *to = from);
    // SAFETY: the kernel reads `instruction_count` instructions of eight bytes from `instructions`, which has at least
    // that length, and `license` up to its NUL byte; it keeps pointers to neither. No log buffer is given.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attr) }?;
    // SAFETY: the call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `attr` must be the struct that `command` takes, and its pointers valid for the command's accesses.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the bytes of `attr`, and may store to it; the caller guarantees the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
