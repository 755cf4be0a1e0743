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

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::file::mounted::{DiskFileSystem, DiskMount, MAX_BYTES, disk_mounts};
use crate::file::{FileName, FilePath, FoundBy, InodeKey};
use crate::host::BlockDevice;
use crate::outside::{Question, WorkerContext};
use crate::sys::file_handle::{FileHandle, open_by_handle, xfs_generation};
use crate::sys::monotonic_ns;

/// Asks for the names of files.
#[derive(Debug, Serialize, Deserialize)]
pub struct NamesOfInodes {
    /// Each with the time of an event about it, ns of CLOCK_REALTIME.
    pub files: Vec<(InodeKey, u64)>,
    /// A process of each other mount namespace that is searched.
    pub namespaces: Vec<i32>,
}

impl Question for NamesOfInodes {
    /// In the order of the question.
    type Answer = Vec<FileName>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<FileName> {
        let kept = std::mem::take(context.remembered::<MountTables>());
        let tables = kept.if_usable(&self.namespaces).unwrap_or_else(|| MountTables::read(&self.namespaces, context));
        let mut search = MountSearch { tables, open: FxHashMap::default(), context };
        let names = self.files.iter().map(|(key, seen_ns)| search.name(*key, *seen_ns)).collect();
        let tables = search.tables;
        *context.remembered() = tables;
        names
    }
}

/// The mount tables that a worker keeps for a while.
#[derive(Default)]
struct MountTables {
    read_ns: u64,
    /// A process of each other mount namespace.
    namespaces: Vec<i32>,
    own: Vec<DiskMount>,
    /// The mounts in other namespaces, with the process. None: they were not needed yet.
    others: Option<Vec<(i32, DiskMount)>>,
    /// Devices that are mounted nowhere.
    not_mounted: FxHashSet<BlockDevice>,
}

/// The tables are kept for so long.
const KEEP_NS: u64 = 2_000_000_000;
/// Most bytes of the mount tables of other namespaces, which their users fill.
const MAX_OTHER_BYTES: u64 = 16 << 20;

impl MountTables {
    fn read(namespaces: &[i32], context: &WorkerContext) -> MountTables {
        context.about(0);
        MountTables {
            read_ns: monotonic_ns(),
            namespaces: namespaces.to_vec(),
            own: disk_mounts(&context.host, "self", MAX_BYTES),
            ..MountTables::default()
        }
    }

    fn if_usable(self, namespaces: &[i32]) -> Option<MountTables> {
        let is_new = monotonic_ns().saturating_sub(self.read_ns) < KEEP_NS;
        (is_new && self.namespaces == namespaces).then_some(self)
    }

    /// The mounts of a device in other namespaces.
    fn others(&mut self, device: BlockDevice, context: &WorkerContext) -> Vec<(i32, DiskMount)> {
        let others = self.others.get_or_insert_with(|| {
            let max_bytes = MAX_OTHER_BYTES / self.namespaces.len().max(1) as u64;
            let mounts = |pid: &i32| {
                context.about(*pid);
                let mounts = disk_mounts(&context.host, &pid.to_string(), max_bytes);
                let pid = *pid;
                mounts.into_iter().map(move |mount| (pid, mount))
            };
            self.namespaces.iter().flat_map(mounts).collect()
        });
        others.iter().filter(|(_, mount)| mount.device == device).cloned().collect()
    }
}

/// The answering of one question.
struct MountSearch<'a> {
    tables: MountTables,
    /// Mounts are closed with the question, so that nothing keeps them from being unmounted for long.
    open: FxHashMap<BlockDevice, OpenMount>,
    context: &'a WorkerContext,
}

struct OpenMount {
    mount: DiskMount,
    directory: File,
}

impl MountSearch<'_> {
    fn name(&mut self, key: InodeKey, seen_ns: u64) -> FileName {
        if !self.open.contains_key(&key.device) && !self.tables.not_mounted.contains(&key.device) {
            match self.opened(key.device) {
                Some(mount) => drop(self.open.insert(key.device, mount)),
                None => drop(self.tables.not_mounted.insert(key.device)),
            }
        }
        // A disk may be slow: that is the fault of no process.
        self.context.about(0);
        match self.open.get(&key.device) {
            Some(OpenMount { mount, directory }) => name_in(mount, directory, key, seen_ns),
            None => FileName::unknown(FoundBy::NoMount),
        }
    }

    /// A mount of the device, in our namespace or another one.
    fn opened(&mut self, device: BlockDevice) -> Option<OpenMount> {
        let MountSearch { tables, context, .. } = self;
        let opened = |task: &str, mount: &DiskMount| {
            let directory = mount.open(&context.host, task)?;
            Some(OpenMount { mount: mount.clone(), directory })
        };
        context.about(0);
        let mut own = tables.own.iter().filter(|mount| mount.device == device);
        own.find_map(|mount| opened("self", mount)).or_else(|| {
            tables.others(device, context).iter().find_map(|(pid, mount)| {
                context.about(*pid);
                opened(&pid.to_string(), mount)
            })
        })
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
