//! Where file systems on disks are mounted, by /proc/PID/mountinfo.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::host::{BlockDevice, Host, processes};
use crate::outside::WorkerContext;
use crate::sys::below::open_below;
use crate::sys::mounts::unescaped;

/// File systems that find a file by its inode without asking anybody but their disk. On btrfs the number of an inode is
/// unique in its subvolume only, of which no event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskFileSystem {
    Ext,
    Xfs,
}

/// A mount of such a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskMount {
    pub device: BlockDevice,
    pub kind: DiskFileSystem,
    /// The directory of the file system that is mounted: `/` for all of it.
    root: Vec<u8>,
    /// Where it is mounted, as the process sees it.
    pub point: PathBuf,
}

/// Most bytes of a mount table. Hosts of containers have thousands of lines.
const MAX_BYTES: u64 = 4 << 20;

/// The mounts of file systems on disks in a mount namespace, those of a whole file system first. `task`: a process in
/// the namespace, or `self`.
pub(super) fn disk_mounts(host: &Host, task: &str) -> Vec<DiskMount> {
    let Ok(table) = File::open(host.proc.join(task).join("mountinfo")) else { return Vec::new() };
    let lines = BufReader::new(table.take(MAX_BYTES)).split(b'\n').map_while(Result::ok);
    let mut mounts: Vec<DiskMount> = lines.filter_map(|line| parse(&line)).collect();
    mounts.sort_by_key(|mount| mount.root != b"/");
    mounts
}

/// `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard`
fn parse(line: &[u8]) -> Option<DiskMount> {
    let mut words = line.split(|byte| *byte == b' ');
    let (device, root, point) = (words.nth(2)?, words.next()?, words.next()?);
    words.find(|word| *word == b"-")?;
    let kind = match words.next()? {
        b"ext2" | b"ext3" | b"ext4" => DiskFileSystem::Ext,
        b"xfs" => DiskFileSystem::Xfs,
        _ => return None,
    };
    Some(DiskMount {
        device: BlockDevice::parse(std::str::from_utf8(device).ok()?)?,
        kind,
        root: unescaped(root),
        point: OsString::from_vec(unescaped(point)).into(),
    })
}

impl DiskMount {
    /// Opens the directory of the mount, in the mount namespace of `task`. No part of the path may be a symbolic link.
    pub fn open(&self, host: &Host, task: &str) -> Option<File> {
        let root = if task == "self" { PathBuf::from("/") } else { host.proc.join(task).join("root") };
        let directory = match self.point.strip_prefix("/").ok().filter(|path| !path.as_os_str().is_empty()) {
            None => File::open(root).ok()?,
            Some(path) => reopened(&File::from(open_below(&root, path).ok()?))?,
        };
        directory.metadata().is_ok_and(|meta| meta.is_dir()).then_some(directory)
    }

    /// Whether a path that the kernel tells of a file can be below this mount. It tells paths of files that are outside of
    /// the mounted directory, too.
    pub fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.point)
    }
}

fn reopened(place: &File) -> Option<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// One process of each mount namespace but our own. This reads links that may hang.
pub(super) fn other_namespaces(context: &WorkerContext) -> Vec<i32> {
    /// Namespaces that are searched.
    const MAX_NAMESPACES: usize = 64;
    let host = &context.host;
    let namespace = |task: &str| fs::read_link(host.proc.join(task).join("ns/mnt")).ok();
    let mut known: Vec<PathBuf> = namespace("self").into_iter().collect();
    let mut found = Vec::new();
    for pid in processes(host) {
        context.about(pid);
        let Some(link) = namespace(&pid.to_string()).filter(|link| !known.contains(link)) else { continue };
        known.push(link);
        found.push(pid);
        if found.len() >= MAX_NAMESPACES {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn mounts_of_disks_are_found() {
        let table = "\
            22 27 0:21 / /proc rw - proc proc rw\n\
            40 27 8:1 /a /b\\040c rw shared:3 - ext4 /dev/sda1 rw\n\
            27 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,discard\n\
            41 27 8:2 / /x rw - xfs /dev/sda2 rw\n\
            43 27 0:41 / /z rw - btrfs /dev/sdb rw\n\
            44 27 0:50 / /n rw - nfs4 filer:/vol rw\n\
            45 27 8:x / /bad rw - xfs /dev/sda2 rw\n\
            46 27 8:2 / /short rw -\n\
            \n";
        let process = FixtureProcess::new(5);
        fs::write(process.host().proc.join("5/mountinfo"), table).unwrap();
        let mounts = disk_mounts(&process.host(), "5");
        let found: Vec<(u32, DiskFileSystem, &Path)> =
            mounts.iter().map(|mount| (mount.device.0, mount.kind, mount.point.as_path())).collect();
        assert_eq!(
            found,
            [
                (8 << 20 | 1, DiskFileSystem::Ext, Path::new("/")),
                (8 << 20 | 2, DiskFileSystem::Xfs, Path::new("/x")),
                (8 << 20 | 1, DiskFileSystem::Ext, Path::new("/b c")),
            ]
        );
        assert!(mounts[2].has(Path::new("/b c/d")) && !mounts[2].has(Path::new("/b cd")));
    }
}
