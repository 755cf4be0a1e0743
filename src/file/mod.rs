//! Which file an inode is: events tell of files by device and inode, users know them by their paths.
//!
//! `names` has a thread on which `asker` asks, `known` remembers, `cell` is what a row has in place of the path. In a worker
//! `by_inode` asks the file system for the inode (`mounted` finds where it is mounted), and `open_files` searches the
//! descriptors and mappings of processes for what that does not tell. Files of network file systems are not touched.

mod asker;
mod by_inode;
mod cell;
mod known;
mod mounted;
mod names;
mod open_files;

use serde::{Deserialize, Serialize};

use crate::host::BlockDevice;
use crate::outside::{QuestionHandler, as_bytes};

pub use cell::{FileAspect, FileCell};
pub use names::FileNames;

/// A file as events tell of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InodeKey {
    /// The device of its file system: a disk, a partition, or a number with major 0 that stands for no device.
    pub device: BlockDevice,
    pub inode: u64,
}

/// What is known of the name of a file. Other users choose the path, which may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileName {
    /// As the kernel tells it: of a deleted file with ` (deleted)` appended.
    pub path: Option<FilePath>,
    pub found: FoundBy,
    /// The number of its names; `path` is one of them.
    pub links: u32,
    pub is_directory: bool,
}

/// The bytes of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePath(#[serde(with = "as_bytes")] pub Vec<u8>);

/// How a name was found, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoundBy {
    /// The file system has found the inode, and its name was in memory.
    Inode,
    /// This process has the file open.
    Descriptor(i32),
    /// This process has it mapped.
    Mapping(i32),
    /// The inode was found, but its name is not in memory.
    NotInMemory,
    /// The inode is free: the file is deleted.
    Freed,
    /// The inode is another file's by now.
    Reused,
    /// The file system is mounted nowhere, or finds no inodes.
    NoMount,
    NotPermitted,
    /// The answer did not come in time, or was none.
    NoAnswer,
    /// Too many files were asked about.
    NotAsked,
}

impl FoundBy {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            FoundBy::Inode => "inode",
            FoundBy::Descriptor(_) => "descriptor",
            FoundBy::Mapping(_) => "mapping",
            FoundBy::NotInMemory => "not in memory",
            FoundBy::Freed => "deleted",
            FoundBy::Reused => "reused",
            FoundBy::NoMount => "no mount",
            FoundBy::NotPermitted => "not permitted",
            FoundBy::NoAnswer => "no answer",
            FoundBy::NotAsked => "not asked",
        }
    }

    /// Whether a process that has the file open may tell its name.
    fn may_be_open(self) -> bool {
        matches!(self, FoundBy::NotInMemory | FoundBy::NoMount | FoundBy::NotPermitted | FoundBy::NoAnswer)
    }
}

impl FileName {
    pub fn unknown(found: FoundBy) -> FileName {
        FileName { path: None, found, links: 0, is_directory: false }
    }
}

/// The questions to workers about files.
pub const QUESTIONS: &[QuestionHandler] = &[
    QuestionHandler::of::<by_inode::NamesOfInodes>(),
    QuestionHandler::of::<mounted::NamespacesOf>(),
    QuestionHandler::of::<open_files::OpenFilesOf>(),
];
