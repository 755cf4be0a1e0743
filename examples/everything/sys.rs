//! Raw system calls. Most of the program uses these, above all calls that no library wraps.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process;

use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

/// A bad file descriptor, pointer, size and flag at once.
pub const BAD: usize = usize::MAX;

/// A system call; -1 when it fails. Callers pass pointers to memory that lives through the call, or pointers that the
/// kernel refuses.
pub fn call<const N: usize>(number: libc::c_long, args: [usize; N]) -> isize {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&args);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the caller keeps pointers valid, see above; a call that the kernel refuses accesses no memory.
    unsafe { libc::syscall(number, a, b, c, d, e, f) as isize }
}

/// Starts a process that runs `run`, and that ends when its parent ends. The caller must have one thread.
pub fn child(run: impl FnOnce()) -> Option<Pid> {
    let parent = getpid();
    // SAFETY: one thread, see above.
    match unsafe { fork() }.ok()? {
        ForkResult::Parent { child } => Some(child),
        ForkResult::Child => {
            call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize]);
            let is_alone = getppid() != parent; // the parent had already ended
            let ended = catch_unwind(AssertUnwindSafe(|| {
                if !is_alone {
                    run();
                }
            }));
            process::exit(ended.is_err().into());
        }
    }
}

/// Address of a value.
pub fn at<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>() as usize
}

/// Address of a value that the kernel writes to.
pub fn at_mut<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>() as usize
}

pub fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL in a path")
}

/// Address of a C string, which must live as long as it is used.
pub fn text(text: &std::ffi::CStr) -> usize {
    text.as_ptr() as usize
}

/// open(2) with the working directory; -1 when it fails.
pub fn open(name: &Path, flags: libc::c_int) -> isize {
    let name = path(name);
    call(libc::SYS_openat, [libc::AT_FDCWD as usize, text(&name), flags as usize, 0o600])
}

pub fn close(fd: isize) {
    call(libc::SYS_close, [fd as usize]);
}

/// mmap(2); None when it fails.
pub fn map(len: usize, protection: i32, flags: i32, fd: isize) -> Option<usize> {
    let at = call(libc::SYS_mmap, [0, len, protection as usize, flags as usize, fd as usize, 0]);
    (at != -1).then_some(at as usize)
}

/// Private memory.
pub fn pages(len: usize) -> Option<usize> {
    map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

pub fn unmap(at: usize, len: usize) {
    call(libc::SYS_munmap, [at, len]);
}

/// Writes a byte into each page.
pub fn touch(at: usize, len: usize) {
    for page in (at..at + len).step_by(4096) {
        // SAFETY: the caller has just mapped these bytes for writing.
        unsafe { std::ptr::write_volatile(page as *mut u8, 1) };
    }
}
