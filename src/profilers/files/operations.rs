//! The system calls that are about files: what each does, and which of its arguments says to which file.

use crate::calls::kinds::CallNumber;
use crate::calls::list::CallList;
use crate::report::Value;
use crate::tep::syscalls;

/// What a call does to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileOperation {
    Read,
    Write,
    Sync,
    Open,
    Truncate,
    List,
    Metadata,
}

/// Number of operations.
pub const OPERATIONS: usize = 7;

/// Which file a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileArgument {
    /// That of the descriptor in this argument.
    Descriptor(u8),
    /// The first path.
    Path,
}

/// What a call that succeeds does to descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorEffect {
    None,
    /// It returns a new one. The argument of the flags; none for openat2, whose flags are in memory.
    Opens {
        flags: Option<u8>,
    },
    Closes,
    ClosesRange,
    Duplicates,
    DuplicatesTo,
    Controls,
    /// The current directory changes.
    ChangesDirectory,
    /// It returns the new position.
    Seeks,
    /// It reads or writes where the position is, and moves it.
    Moves,
}

/// A call that has records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCallUse {
    /// None: the call tells only of descriptors, and counts nowhere.
    pub operation: Option<FileOperation>,
    pub file: FileArgument,
    pub effect: DescriptorEffect,
    /// The argument with the position in the file.
    pub offset: Option<u8>,
}

impl FileOperation {
    pub const ALL: [FileOperation; OPERATIONS] = [
        FileOperation::Read,
        FileOperation::Write,
        FileOperation::Sync,
        FileOperation::Open,
        FileOperation::Truncate,
        FileOperation::List,
        FileOperation::Metadata,
    ];

    pub fn word(self) -> &'static str {
        match self {
            FileOperation::Read => "read",
            FileOperation::Write => "write",
            FileOperation::Sync => "sync",
            FileOperation::Open => "open",
            FileOperation::Truncate => "truncate",
            FileOperation::List => "list",
            FileOperation::Metadata => "metadata",
        }
    }

    pub fn value(self) -> Value {
        Value::Word(self.word())
    }
}

const fn of(operation: FileOperation, file: FileArgument) -> FileCallUse {
    FileCallUse { operation: Some(operation), file, effect: DescriptorEffect::None, offset: None }
}

const fn tells(effect: DescriptorEffect) -> FileCallUse {
    FileCallUse { operation: None, file: FileArgument::Descriptor(0), effect, offset: None }
}

const FIRST: FileArgument = FileArgument::Descriptor(0);
const READS: FileCallUse = of(FileOperation::Read, FIRST);
const WRITES: FileCallUse = of(FileOperation::Write, FIRST);
const METADATA: FileCallUse = of(FileOperation::Metadata, FileArgument::Path);

const fn opens(flags: Option<u8>) -> FileCallUse {
    FileCallUse { effect: DescriptorEffect::Opens { flags }, ..of(FileOperation::Open, FileArgument::Path) }
}

/// Calls that do the same, by their names.
#[rustfmt::skip]
const CALLS: [(FileCallUse, &[&str]); 23] = [
    (FileCallUse { effect: DescriptorEffect::Moves, ..READS }, &["read", "readv"]),
    (FileCallUse { effect: DescriptorEffect::Moves, ..WRITES }, &["write", "writev"]),
    (FileCallUse { offset: Some(3), ..READS }, &["pread64", "preadv", "preadv2"]),
    (FileCallUse { offset: Some(3), ..WRITES }, &["pwrite64", "pwritev", "pwritev2"]),
    (of(FileOperation::Read, FileArgument::Descriptor(1)), &["sendfile"]),
    (of(FileOperation::Write, FileArgument::Descriptor(2)), &["copy_file_range"]),
    (of(FileOperation::Sync, FIRST), &["fsync", "fdatasync", "sync_file_range", "syncfs"]),
    (opens(Some(1)), &["open"]),
    (opens(None), &["creat", "openat2"]),
    (opens(Some(2)), &["openat"]),
    (of(FileOperation::Truncate, FIRST), &["ftruncate", "fallocate"]),
    (of(FileOperation::Truncate, FileArgument::Path), &["truncate"]),
    (of(FileOperation::List, FIRST), &["getdents", "getdents64"]),
    (of(FileOperation::Metadata, FIRST), &[
        "fstat", "fstatfs", "fchmod", "fchown", "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr",
    ]),
    (METADATA, &[
        "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs",
        "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
        "symlinkat", "mknod", "mknodat", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes",
        "utimensat", "futimesat", "getxattr", "lgetxattr", "setxattr", "lsetxattr", "listxattr", "llistxattr",
        "removexattr", "lremovexattr",
    ]),
    (tells(DescriptorEffect::Closes), &["close"]),
    (tells(DescriptorEffect::ClosesRange), &["close_range"]),
    (tells(DescriptorEffect::Duplicates), &["dup"]),
    (tells(DescriptorEffect::DuplicatesTo), &["dup2", "dup3"]),
    (tells(DescriptorEffect::Controls), &["fcntl"]),
    (FileCallUse { file: FileArgument::Path, ..tells(DescriptorEffect::ChangesDirectory) }, &["chdir", "chroot"]),
    (tells(DescriptorEffect::ChangesDirectory), &["fchdir"]),
    (tells(DescriptorEffect::Seeks), &["lseek"]),
];

/// The calls by number.
#[derive(Debug, Default)]
pub struct FileCalls(Vec<Option<FileCallUse>>);

impl FileCalls {
    /// Those that this architecture has.
    pub fn known() -> FileCalls {
        let mut calls = Vec::new();
        for (used, names) in CALLS {
            for number in names.iter().filter_map(|name| syscalls::number(name)) {
                let index = number as usize;
                calls.resize(calls.len().max(index + 1), None);
                calls[index] = Some(used);
            }
        }
        FileCalls(calls)
    }

    pub fn list(&self) -> CallList {
        let numbers = (0..).zip(&self.0).filter(|(_, used)| used.is_some()).map(|(number, _)| number);
        CallList::of(numbers.collect())
    }

    /// None: the call is about no file, or of a 32-bit program.
    #[inline]
    pub fn of(&self, call: CallNumber) -> Option<FileCallUse> {
        let index = usize::try_from(call.number).ok().filter(|_| !call.is_compat)?;
        self.0.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_number() {
        let calls = FileCalls::known();
        let of = |number, is_compat| calls.of(CallNumber { number, is_compat });
        let read = of(libc::SYS_read as i32, false).unwrap();
        assert_eq!((read.operation, read.effect), (Some(FileOperation::Read), DescriptorEffect::Moves));
        assert_eq!(of(libc::SYS_sendfile as i32, false).unwrap().file, FileArgument::Descriptor(1));
        assert_eq!(of(libc::SYS_close as i32, false).unwrap().operation, None);
        for (number, is_compat) in [(libc::SYS_read as i32, true), (libc::SYS_futex as i32, false), (-1, false)] {
            assert_eq!(of(number, is_compat), None);
        }
        assert!(calls.list().contains(libc::SYS_openat as i32) && !calls.list().contains(libc::SYS_futex as i32));
    }

    #[test]
    fn each_call_is_named_once() {
        let mut names: Vec<&str> = CALLS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        if cfg!(target_arch = "x86_64") {
            let unknown: Vec<&&str> = names.iter().filter(|name| syscalls::number(name).is_none()).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
        assert!((0..).zip(FileOperation::ALL).all(|(index, operation)| operation as usize == index));
    }
}
