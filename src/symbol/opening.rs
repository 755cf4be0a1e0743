//! Opens other users' files: only regular files, and without waiting. Workers open them for reading; this process holds
//! only their places (O_PATH), since opening, reading and even closing such a file may hang.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};

use crate::sys;

/// Opens a regular file for reading, and nothing else: a fifo would block, and opening a device may have effects.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_o_path(&OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?)
}

/// As [`open_regular`], for a `path` below the root directory of another process; no component may be a symbolic link.
///
/// # Errors
/// ELOOP where one is; InvalidInput for what is no regular file.
pub fn open_regular_below(root: &Path, path: &Path) -> io::Result<File> {
    open_o_path(&File::from(sys::below::open_below(root, path)?))
}

fn open_o_path(place: &File) -> io::Result<File> {
    if !place.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    reopen(place)
}

/// Opens the file of a place (O_PATH) for reading.
///
/// # Errors
/// As open(2).
pub fn reopen(place: &File) -> io::Result<File> {
    // Without O_NONBLOCK, the holder of a lease on the file could make open(2) wait.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

/// The place (O_PATH) of an open file: nothing can hang when it is closed.
///
/// # Errors
/// No descriptor is left.
pub fn place_of(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

pub fn is_on_overlay(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| stat.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        for path in [fifo.as_path(), dir.path(), Path::new("/dev/null")] {
            assert!(open_regular(path).is_err(), "{path:?}");
        }
    }
}
