//! What a row or a line has in place of a file: its path, or how that was found, as known when it is printed.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::file::known::KnownNames;
use crate::file::{FileName, FilePath, FoundBy, InodeKey};
use crate::report::{Cell, CellLookUps, Value};

/// What is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileAspect {
    /// The path; without one `inode 5308489 on vda`.
    Path,
    /// How the path was found, or why there is none.
    Found,
}

/// A file in a row: rows of one file are one row, whatever its name.
#[derive(Clone, Debug)]
pub struct FileCell {
    key: InodeKey,
    aspect: FileAspect,
    known: Arc<KnownNames>,
}

impl FileCell {
    pub(super) fn new(key: InodeKey, aspect: FileAspect, known: Arc<KnownNames>) -> FileCell {
        FileCell { key, aspect, known }
    }
}

impl PartialEq for FileCell {
    fn eq(&self, other: &FileCell) -> bool {
        (self.key, self.aspect) == (other.key, other.aspect)
    }
}

impl Eq for FileCell {}

impl Hash for FileCell {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.key, self.aspect).hash(state);
    }
}

impl Cell for FileCell {
    fn looked_up(&self, _look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let name = self.known.name(self.key);
        Some(match self.aspect {
            FileAspect::Path => Value::Path(path(self.key, &name, || self.known.device_name(self.key)).into()),
            FileAspect::Found => Value::Word(name.found.word()),
        })
    }
}

/// The path, with what is special about it; without a path the inode, with the reason.
fn path(key: InodeKey, name: &FileName, device: impl FnOnce() -> String) -> Vec<u8> {
    let Some(FilePath(path)) = &name.path else {
        let why = match name.found {
            FoundBy::Freed => " (deleted)",
            FoundBy::Reused => " (deleted, its inode reused)",
            _ => "",
        };
        return format!("inode {} on {}{why}", key.inode, device()).into_bytes();
    };
    let mut marks = String::new();
    if name.links > 1 && !name.is_directory {
        let _ = write!(marks, " ({} links)", name.links);
    }
    match name.found {
        FoundBy::Descriptor(pid) => drop(write!(marks, " (by a descriptor of {pid})")),
        FoundBy::Mapping(pid) => drop(write!(marks, " (by a mapping of {pid})")),
        _ => {}
    }
    [path, marks.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::BlockDevice;

    #[test]
    fn a_name_tells_what_is_special_about_it() {
        let named = |found, links| FileName { path: Some(FilePath(b"/a".to_vec())), found, links, is_directory: false };
        let cases = [
            (named(FoundBy::Inode, 1), "/a"),
            (named(FoundBy::Inode, 3), "/a (3 links)"),
            (named(FoundBy::Descriptor(7), 1), "/a (by a descriptor of 7)"),
            (named(FoundBy::Mapping(7), 1), "/a (by a mapping of 7)"),
            (FileName { is_directory: true, ..named(FoundBy::Inode, 3) }, "/a"),
            (FileName::unknown(FoundBy::Freed), "inode 5 on vda (deleted)"),
            (FileName::unknown(FoundBy::Reused), "inode 5 on vda (deleted, its inode reused)"),
            (FileName::unknown(FoundBy::NotInMemory), "inode 5 on vda"),
        ];
        for (name, want) in cases {
            let key = InodeKey { device: BlockDevice(254 << 20), inode: 5 };
            let got = path(key, &name, || "vda".to_owned());
            assert_eq!(String::from_utf8_lossy(&got), want, "{name:?}");
        }
    }
}
