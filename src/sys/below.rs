//! Opens files below the root directory of another process, whose directory tree may be hostile.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};

/// An `O_PATH` descriptor of a file below `root`, which is taken as the root directory, without following links in `path`. The
/// descriptor can be asked for the file's type, and opened through /proc/self/fd.
///
/// # Errors
/// ELOOP when a part of `path` is a link; EINVAL for a path that leads upwards.
pub fn open_below(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(is_plain) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Links in `root` are followed: `/proc/PID/root` is one.
    let root = open(root, PATH_ONLY | OFlag::O_DIRECTORY, Mode::empty())?;
    let how = OpenHow::new().flags(PATH_ONLY).resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(&root, path, how) {
        // Kernels before 5.6, or a seccomp filter that does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => part_by_part(root, path),
        opened => Ok(opened?),
    }
}

const PATH_ONLY: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

fn part_by_part(root: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut at = root;
    for part in path.components() {
        at = openat(&at, part.as_os_str(), PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty())?;
        let kind = SFlag::from_bits_truncate(fstat(&at)?.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFLNK {
            return Err(Errno::ELOOP.into());
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_and_nothing_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("tmp/sub")).unwrap();
        fs::write(root.join("tmp/file"), "x").unwrap();
        fs::write(dir.path().join("outside"), "x").unwrap();
        symlink("file", root.join("tmp/link")).unwrap();
        symlink("/tmp", root.join("linked")).unwrap();
        symlink(&root, dir.path().join("magic")).unwrap();
        let cases = [
            ("tmp/file", None),
            ("tmp/sub", None),
            ("tmp/link", Some(libc::ELOOP)),
            ("linked/file", Some(libc::ELOOP)),
            ("tmp/none", Some(libc::ENOENT)),
            ("tmp/file/x", Some(libc::ENOTDIR)),
            ("../outside", None),
            ("/tmp/file", None),
            ("", None),
        ];
        for root in [root.clone(), dir.path().join("magic")] {
            for (path, errno) in cases {
                let is_plain = !path.starts_with(['.', '/']) && !path.is_empty();
                let by_parts = |path| part_by_part(File::open(&root)?.into(), Path::new(path));
                let opened = [Some(open_below(&root, Path::new(path))), is_plain.then(|| by_parts(path))];
                for opened in opened.into_iter().flatten() {
                    let got = opened.map_err(|err| err.raw_os_error());
                    assert_eq!(got.is_ok(), is_plain && errno.is_none(), "{path}");
                    assert_eq!(got.err().flatten(), errno, "{path}");
                }
            }
        }
    }
}
