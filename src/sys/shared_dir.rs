//! Directories in which every user may create files, such as /tmp. A file or link that another user has put there under
//! the name of our output would redirect the output.
//!
//! The kernel refuses such files, too, with `fs.protected_symlinks` and `fs.protected_regular`, which may be 0.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The directory of `path`, if every user may create files there, but only remove their own (sticky bit).
fn shared_dir_of(path: &Path) -> Option<Metadata> {
    const STICKY_AND_WRITABLE: u32 = 0o1002;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(dir).ok().filter(|dir| dir.mode() & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE)
}

/// Whether a file in the shared directory `dir` belongs neither to the present user nor to the owner of the directory.
fn is_strangers(file: &Metadata, dir: &Metadata) -> bool {
    ![nix::unistd::geteuid().as_raw(), dir.uid()].contains(&file.uid())
}

/// Whether another user has made the file `path`, or a link that it leads through.
pub fn is_of_stranger(path: &Path) -> bool {
    path.ancestors().enumerate().any(|(depth, path)| {
        let known = fs::symlink_metadata(path).ok().filter(|file| depth == 0 || file.is_symlink());
        known.zip(shared_dir_of(path)).is_some_and(|(file, dir)| is_strangers(&file, &dir))
    })
}

/// Opens `path` to append to it, and creates it with `mode`.
///
/// # Errors
/// The file cannot be opened, or another user has made it.
pub fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    let refused = || {
        let why = "somebody else has put it there, where everybody may create files";
        Err(io::Error::new(ErrorKind::PermissionDenied, why))
    };
    if is_of_stranger(path) {
        return refused();
    }
    let dir = shared_dir_of(path);
    // The user's own link may be followed: no other user can replace it.
    let follows = dir.is_none() || fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink());
    let flags = if follows { 0 } else { libc::O_NOFOLLOW };
    let file = OpenOptions::new().create(true).append(true).mode(mode).custom_flags(flags).open(path)?;
    // Another user's file may have appeared since the check.
    match dir.filter(|_| !follows) {
        Some(dir) if is_strangers(&file.metadata()?, &dir) => refused(),
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const NOBODY: u32 = 65534;

    /// A directory like /tmp.
    fn shared() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        dir
    }

    #[test]
    fn our_own_files_and_links_are_written_to() {
        let dir = shared();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        symlink(&file, &link).unwrap();
        for path in [&file, &file, &link] {
            assert!(!is_of_stranger(path));
            append_to(path, 0o600).unwrap();
        }
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn those_of_others_are_not() {
        let dir = shared();
        let [file, link, inside, own] = ["file", "link", "inside", "own"].map(|name| dir.path().join(name));
        fs::write(&file, "").unwrap();
        symlink(&own, &link).unwrap();
        symlink(dir.path(), &inside).unwrap();
        for path in [&file, &link, &inside] {
            if let Err(err) = std::os::unix::fs::lchown(path, Some(NOBODY), None) {
                return eprintln!("skipped: {err}");
            }
        }
        let inside = inside.join("own");
        for path in [&file, &link, &inside] {
            assert!(is_of_stranger(path));
            assert_eq!(append_to(path, 0o600).unwrap_err().kind(), ErrorKind::PermissionDenied, "{}", path.display());
        }
        assert!(!own.exists());
        // The owner of the directory can replace any file in it anyway; in a directory that is not shared only the
        // owner can create files.
        chown(dir.path(), Some(NOBODY), None).unwrap();
        append_to(&file, 0o600).unwrap();
        chown(dir.path(), Some(0), None).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        append_to(&link, 0o600).unwrap();
    }
}
