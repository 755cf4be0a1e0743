//! The name of a file by its inode: the file system opens it, and the kernel tells the path while it is in memory.
//!
//! An inode may have been given to another file since its event: that one was created later, which file systems
//! remember.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use rustc_hash::FxHashMap;

use crate::file::mounted::{DiskFileSystem, DiskMount, disk_mounts, other_namespaces};
use crate::file::{FileName, FilePath, FoundBy, InodeKey};
use crate::host::{BlockDevice, Host};
use crate::outside::WorkerContext;
use crate::sys::file_handle::{FileHandle, open_by_handle, xfs_generation};
use crate::sys::monotonic_ns;

/// The mount tables of one question.
pub(super) struct MountTables {
    /// Mounts by mount namespace, which a process stands for.
    tables: Vec<(String, Vec<DiskMount>)>,
    /// The mount namespaces of other processes were read, too.
    has_others: bool,
    open: FxHashMap<BlockDevice, Option<OpenMount>>,
}

struct OpenMount {
    mount: DiskMount,
    directory: File,
}

/// A process of each other mount namespace, and when a worker last searched for them, ns.
#[derive(Default)]
struct LastSearch {
    searched_ns: Option<u64>,
    pids: Vec<i32>,
}

/// Other mount namespaces are searched that often at most.
const SEARCH_NS: u64 = 2_000_000_000;

impl MountTables {
    pub fn read(host: &Host) -> MountTables {
        let own = ("self".to_owned(), disk_mounts(host, "self"));
        MountTables { tables: vec![own], has_others: false, open: FxHashMap::default() }
    }

    /// The mount of a file system, opened. It is closed with the question, so that nothing keeps it from being unmounted for
    /// long.
    fn mount_of(&mut self, device: BlockDevice, context: &mut WorkerContext) -> Option<&OpenMount> {
        if !self.open.contains_key(&device) {
            let mut opened = self.opened(device, &context.host);
            if opened.is_none() && self.read_others(context) {
                opened = self.opened(device, &context.host);
            }
            self.open.insert(device, opened);
        }
        self.open.get(&device)?.as_ref()
    }

    fn opened(&self, device: BlockDevice, host: &Host) -> Option<OpenMount> {
        let mounts = self.tables.iter().flat_map(|(task, table)| table.iter().map(move |mount| (task, mount)));
        mounts.filter(|(_, mount)| mount.device == device).find_map(|(task, mount)| {
            let directory = mount.open(host, task)?;
            Some(OpenMount { mount: mount.clone(), directory })
        })
    }

    /// False: they were read before.
    fn read_others(&mut self, context: &mut WorkerContext) -> bool {
        if std::mem::replace(&mut self.has_others, true) {
            return false;
        }
        let now = monotonic_ns();
        let last = context.remembered::<LastSearch>();
        if last.searched_ns.is_none_or(|last| now.saturating_sub(last) > SEARCH_NS) {
            let pids = other_namespaces(context);
            *context.remembered() = LastSearch { searched_ns: Some(now), pids };
        }
        for pid in context.remembered::<LastSearch>().pids.clone() {
            context.about(pid);
            let task = pid.to_string();
            let mounts = disk_mounts(&context.host, &task);
            self.tables.push((task, mounts));
        }
        true
    }

    /// The name of a file. `seen_ns`: when an event told of it, CLOCK_REALTIME.
    pub fn name(&mut self, key: InodeKey, seen_ns: u64, context: &mut WorkerContext) -> FileName {
        match self.mount_of(key.device, context) {
            Some(OpenMount { mount, directory }) => name_in(mount, directory, key, seen_ns),
            None => FileName::unknown(FoundBy::NoMount),
        }
    }
}

/// The name of a file in a mounted file system.
fn name_in(mount: &DiskMount, directory: &File, key: InodeKey, seen_ns: u64) -> FileName {
    let InodeKey { inode, .. } = key;
    let handle = match mount.kind {
        DiskFileSystem::Ext => u32::try_from(inode).ok().map(|inode| FileHandle::Inode32 { inode, generation: 0 }),
        DiskFileSystem::Xfs => match xfs_generation(directory, inode) {
            Ok(generation) => generation.map(|generation| FileHandle::Xfs { inode, generation }),
            Err(err) => return FileName::unknown(refusal(&err)),
        },
    };
    let Some(handle) = handle else { return FileName::unknown(FoundBy::Freed) };
    let file = match open_by_handle(directory, handle) {
        Ok(fd) => File::from(fd),
        Err(err) => return FileName::unknown(refusal(&err)),
    };
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let (Ok(meta), Ok(path)) = (file.metadata(), link) else { return FileName::unknown(FoundBy::NoAnswer) };
    judged(mount, path, &meta, key, seen_ns)
}

fn judged(mount: &DiskMount, path: PathBuf, meta: &Metadata, key: InodeKey, seen_ns: u64) -> FileName {
    if (BlockDevice::of(meta.dev()), meta.ino()) != (key.device, key.inode) {
        return FileName::unknown(FoundBy::NoAnswer);
    }
    let born = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    if born.is_some_and(|born| born.as_nanos() > u128::from(seen_ns)) {
        return FileName::unknown(FoundBy::Reused);
    }
    // Of a file whose name is not in memory the kernel tells the root of the file system, or of the mount.
    let is_root = path == mount.point || path.as_os_str() == "/";
    if is_root && !meta.is_dir() || !mount.has(&path) {
        return FileName::unknown(FoundBy::NotInMemory);
    }
    FileName {
        path: Some(FilePath(path.as_os_str().as_bytes().to_vec())),
        found: FoundBy::Inode,
        links: meta.nlink().try_into().unwrap_or(u32::MAX),
        is_directory: meta.is_dir(),
    }
}

fn refusal(err: &io::Error) -> FoundBy {
    match err.raw_os_error() {
        Some(libc::ESTALE | libc::ENOENT) => FoundBy::Freed,
        Some(libc::EPERM | libc::EACCES) => FoundBy::NotPermitted,
        _ => FoundBy::NoAnswer,
    }
}
