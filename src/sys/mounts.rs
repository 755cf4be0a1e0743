//! The mount table of this process.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of /proc/self/mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub dir: PathBuf,
    /// Type of the file system.
    pub kind: String,
    options: String,
}

impl Mount {
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// All mounts in the mount namespace of this process; empty if `proc` is no procfs.
pub fn mounts(proc: &Path) -> Vec<Mount> {
    parse(&fs::read(proc.join("self/mounts")).unwrap_or_default())
}

/// Parses the text of /proc/self/mounts. Malformed lines are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let (_, dir, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(Mount { dir: OsString::from_vec(unescaped(dir)).into(), kind: text(kind), options: text(options) })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Undoes the octal escapes of blanks and backslashes in a path, fs/seq_file.c.
pub fn unescaped(mut path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    while let [first, rest @ ..] = path {
        path = rest;
        match (first, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                path = rest;
            }
            _ => out.push(*first),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let text = b"nodev /a\\040b\\134c tracefs rw,gid=5 0 0\nx /\xff\\011\\9\\04 t\xff ro 0 0\n\nbroken /d\n";
        let [first, second] = &parse(text)[..] else { panic!("{:?}", parse(text)) };
        assert_eq!((first.dir.as_path(), &*first.kind), (Path::new("/a b\\c"), "tracefs"));
        assert!(first.has_option("gid=5") && !first.has_option("gid"));
        assert_eq!(second.dir.as_os_str(), OsStr::from_bytes(b"/\xff\t\\9\\04"));
    }

    #[test]
    fn where_there_is_no_procfs_nothing_is_mounted() {
        assert_eq!(mounts(Path::new("/nonexistent")), []);
    }
}
