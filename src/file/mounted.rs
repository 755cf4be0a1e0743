//! Where file systems on disks are mounted, by /proc/PID/mountinfo.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::host::{BlockDevice, Host, processes};
use crate::outside::{self, Question, WorkerContext};
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
    /// The kernel's number of the mount.
    id: u64,
    pub device: BlockDevice,
    pub kind: DiskFileSystem,
    /// The directory of the file system that is mounted: `/` for all of it.
    root: Vec<u8>,
    /// Where it is mounted, as the process sees it.
    pub point: PathBuf,
}

/// Most bytes of our mount table. Hosts of containers have thousands of lines.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// The mounts of file systems on disks in a mount namespace, those of a whole file system first. `task`: a process in
/// the namespace, or `self`. Of the table `max_bytes` are read.
pub(super) fn disk_mounts(host: &Host, task: &str, max_bytes: u64) -> Vec<DiskMount> {
    let Ok(table) = File::open(host.proc.join(task).join("mountinfo")) else { return Vec::new() };
    let lines = BufReader::new(table.take(max_bytes)).split(b'\n').map_while(Result::ok);
    let mut mounts: Vec<DiskMount> = lines.filter_map(|line| parse(&line)).collect();
    mounts.sort_by_key(|mount| mount.root != b"/");
    mounts
}

/// `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard`
fn parse(line: &[u8]) -> Option<DiskMount> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let (device, root, point) = (words.nth(1)?, words.next()?, words.next()?);
    words.find(|word| *word == b"-")?;
    let kind = match words.next()? {
        b"ext2" | b"ext3" | b"ext4" => DiskFileSystem::Ext,
        b"xfs" => DiskFileSystem::Xfs,
        _ => return None,
    };
    Some(DiskMount {
        id,
        device: BlockDevice::parse(std::str::from_utf8(device).ok()?)?,
        kind,
        root: unescaped(root),
        point: OsString::from_vec(unescaped(point)).into(),
    })
}

impl DiskMount {
    /// Opens the directory of the mount, in the mount namespace of `task`. No part of the path may be a symbolic link. None,
    /// too, where another mount covers this one, or where a file is mounted: to open a FIFO or a device may wait, or do
    /// something.
    pub fn open(&self, host: &Host, task: &str) -> Option<File> {
        let root = if task == "self" { PathBuf::from("/") } else { host.proc.join(task).join("root") };
        let place = match self.point.strip_prefix("/").ok().filter(|path| !path.as_os_str().is_empty()) {
            None => opened_directory(&root, libc::O_PATH)?,
            Some(path) => File::from(open_below(&root, path).ok()?),
        };
        let fd = place.as_raw_fd();
        // The covering mount may be of a server that does not answer: its file system is not asked for anything.
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
        let is_this = fdinfo_number(&info, "mnt_id:") == Some(self.id);
        is_this.then(|| opened_directory(Path::new(&format!("/proc/self/fd/{fd}")), libc::O_RDONLY))?
    }

    /// Whether a path that the kernel tells of a file can be below this mount. It tells paths of files that are outside of
    /// the mounted directory, too.
    pub fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.point)
    }
}

fn opened_directory(path: &Path, flags: i32) -> Option<File> {
    File::options().read(true).custom_flags(flags | libc::O_DIRECTORY).open(path).ok()
}

/// The number behind `key` in the text of a file in /proc/PID/fdinfo.
pub(super) fn fdinfo_number(info: &str, key: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

/// Asks for the mount namespaces of processes: these links may hang.
#[derive(Debug, Serialize, Deserialize)]
pub struct NamespacesOf(Vec<i32>);

impl Question for NamespacesOf {
    /// For each process the number of its namespace. None: it has ended, or may not be read.
    type Answer = Vec<Option<u64>>;

    fn answer(&self, context: &mut WorkerContext) -> Vec<Option<u64>> {
        let of = |pid: &i32| {
            context.about(*pid);
            namespace(&context.host, &pid.to_string())
        };
        self.0.iter().map(of).collect()
    }
}

/// `mnt:[4026531841]`
fn namespace(host: &Host, task: &str) -> Option<u64> {
    let link = fs::read_link(host.proc.join(task).join("ns/mnt")).ok()?;
    link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?.parse().ok()
}

/// One process of each mount namespace but our own.
pub(super) fn other_namespaces(host: &Host) -> Vec<i32> {
    /// Namespaces that are searched.
    const MAX_NAMESPACES: usize = 64;
    let mut known: FxHashSet<u64> = namespace(host, "self").into_iter().collect();
    let mut found = Vec::new();
    outside::ask_each(host, &processes(host), NamespacesOf, |pid, namespace| {
        if known.insert(namespace) {
            found.push(pid);
        }
        found.len() < MAX_NAMESPACES
    });
    found
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

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
        let mounts = disk_mounts(&process.host(), "5", MAX_BYTES);
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

    /// Longer than anything but a hang.
    const GUARD: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_no_directory_of_this_mount_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        let place = File::open(dir.path()).unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_raw_fd())).unwrap();
        let id = fdinfo_number(&info, "mnt_id:").unwrap();
        let mount = |id, point: &Path| DiskMount {
            id,
            device: BlockDevice(8 << 20),
            kind: DiskFileSystem::Ext,
            root: b"/".to_vec(),
            point: point.into(),
        };
        let own = std::process::id().to_string();
        for task in ["self", &own] {
            assert!(mount(id, dir.path()).open(&Host::default(), task).is_some(), "the mount itself");
            assert!(mount(id + 1, dir.path()).open(&Host::default(), task).is_none(), "it is covered");
        }
        // Opening a FIFO would wait for a writer.
        let (tell, told) = channel();
        let of_fifo = mount(id, &fifo);
        std::thread::spawn(move || tell.send(of_fifo.open(&Host::default(), "self").is_some()));
        assert_eq!(told.recv_timeout(GUARD), Ok(false));
    }
}
