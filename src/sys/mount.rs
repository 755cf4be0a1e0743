//! A private tracefs, which no other process sees.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const FSCONFIG_CMD_CREATE: libc::c_uint = 6; // include/uapi/linux/mount.h
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A mounted tracefs, readable below `root` as long as this value lives.
#[derive(Debug)]
pub struct PrivateTracefs {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl PrivateTracefs {
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// Mounts tracefs detached from every directory, so that no mount table changes.
/// Kernels before 5.2 have no `fsopen`: there it is mounted in a new mount namespace.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENODEV when the kernel has no tracefs.
pub fn private_tracefs() -> io::Result<PrivateTracefs> {
    match detached(c"tracefs") {
        Ok(mount) => {
            let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
            Ok(PrivateTracefs { root, _mount: Some(mount) })
        }
        Err(err) if err.raw_os_error() == Some(libc::ENOSYS) => in_namespace(),
        Err(err) => Err(err),
    }
}

/// Reads a file of debugfs, which need not be mounted.
///
/// # Errors
/// As [`private_tracefs`]; there is no such file.
pub fn read_debugfs(file: &str) -> io::Result<String> {
    std::fs::read_to_string(Path::new("/sys/kernel/debug").join(file)).or_else(|_| {
        let mount = detached(c"debugfs")?;
        std::fs::read_to_string(Path::new("/proc/self/fd").join(mount.as_raw_fd().to_string()).join(file))
    })
}

fn detached(fstype: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: fsopen(2) reads the NUL-terminated name and returns a new descriptor.
    let context = fd(unsafe { libc::syscall(libc::SYS_fsopen, fstype.as_ptr(), FSOPEN_CLOEXEC) })?;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: FSCONFIG_CMD_CREATE takes no key, value or aux.
    let created = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0) };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fsmount(2) takes integers and returns a new descriptor.
    fd(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

fn in_namespace() -> io::Result<PrivateTracefs> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let root = "/sys/kernel/debug";
    mount(Some("tracefs"), root, Some("tracefs"), MsFlags::empty(), none)?;
    Ok(PrivateTracefs { root: root.into(), _mount: None })
}

fn fd(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}
