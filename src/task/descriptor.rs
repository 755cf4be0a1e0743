//! The file behind a descriptor of a process: its path, and the device it is mounted from.
//!
//! The file itself is never opened or examined: it may be on a dead server, and the reader would hang. The link in
//! /proc/TID/fd has the path as the kernel knows it; `mnt_id` in /proc/TID/fdinfo identifies a line of
//! /proc/TID/mountinfo.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext};
use crate::sys::monotonic_ns;
use crate::sys::mounts::unescaped;
use crate::task::procfs::{file, read_start};

/// An open file. Other users choose path and device, which may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// A path, with ` (deleted)` appended if the file is deleted, or `socket:[1]`, `pipe:[2]`,
    /// `anon_inode:[eventpoll]`.
    pub path: Vec<u8>,
    /// The source of the mount: a device or a directory of a server; if the mount has none, the name of the file
    /// system.
    pub device: Option<Vec<u8>>,
}

/// The file of a descriptor of a thread.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenFileOf {
    tid: i32,
    fd: i32,
}

impl Question for OpenFileOf {
    type Answer = Option<OpenFile>;

    fn answer(&self, context: &mut WorkerContext) -> Option<OpenFile> {
        let host = context.host.clone();
        context.remembered::<Mounts>().open_file(&host, self.tid, self.fd)
    }
}

/// Asks a worker for the file that `fd` of a thread is open on.
pub fn open_file(host: &Host, tid: i32, fd: i32) -> Option<OpenFile> {
    outside::ask(host, AskedOf::process(tid), &OpenFileOf { tid, fd }).ok()?.value
}

/// Cache of the sources of mounts by mount id. Entries expire, since ids are reused.
#[derive(Debug, Default)]
pub struct Mounts(FxHashMap<u64, (u64, Vec<u8>)>);

/// How long an entry is valid, ns.
const KEEP_NS: u64 = 1_000_000_000;
/// Most entries.
const LIMIT: usize = 256;

impl Mounts {
    /// The file that `fd` of a thread is open on. None when `fd` is closed, or cannot be read.
    pub fn open_file(&mut self, host: &Host, tid: i32, fd: i32) -> Option<OpenFile> {
        let link = || fs::read_link(file(host, tid, &format!("fd/{fd}"))).ok();
        let path = link()?;
        let device = has_mount(path.as_os_str().as_encoded_bytes()).then(|| self.device(host, tid, fd)).flatten();
        // Another thread may have reopened the descriptor meanwhile.
        let device = device.filter(|_| link().as_ref() == Some(&path));
        Some(OpenFile { path: OsString::from(path).into_vec(), device })
    }

    fn device(&mut self, host: &Host, tid: i32, fd: i32) -> Option<Vec<u8>> {
        const MAX_BYTES: u32 = 4096;
        let mount = mount_id(&read_start(host, tid, &format!("fdinfo/{fd}"), MAX_BYTES)?)?;
        let now = monotonic_ns();
        if let Some((asked_ns, device)) = self.0.get(&mount)
            && now.saturating_sub(*asked_ns) < KEEP_NS
        {
            return Some(device.clone());
        }
        let device = source_of(mount, fs::File::open(file(host, tid, "mountinfo")).ok()?)?;
        if self.0.len() >= LIMIT {
            self.0.clear();
        }
        self.0.insert(mount, (now, device.clone()));
        Some(device)
    }
}

/// Whether the mount of a path may be read. Pipes and sockets are in no visible mount. For a device, its driver adds
/// lines to fdinfo, and may wait for locks of its own.
fn has_mount(path: &[u8]) -> bool {
    path.starts_with(b"/") && !path.starts_with(b"/dev/")
}

/// Parses `mnt_id` of fdinfo, which is before the lines that a file system adds.
fn mount_id(fdinfo: &[u8]) -> Option<u64> {
    let value = fdinfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The source of the first mount of a device, given by its major and minor number, in the mount namespace of a thread.
/// For workers only.
pub fn device_source(host: &Host, tid: i32, (major, minor): (u32, u32)) -> Option<Vec<u8>> {
    let device = format!("{major}:{minor}");
    let mountinfo = fs::File::open(file(host, tid, "mountinfo")).ok()?;
    source_where(mountinfo, |_, number| number == device.as_bytes())
}

/// The source of a mount, from mountinfo.
fn source_of(mount: u64, mountinfo: impl Read) -> Option<Vec<u8>> {
    source_where(mountinfo, |id, _| std::str::from_utf8(id).is_ok_and(|id| id.parse() == Ok(mount)))
}

/// The source of the first mount whose id and device are the wanted ones.
fn source_where(mountinfo: impl Read, is_wanted: impl Fn(&[u8], &[u8]) -> bool) -> Option<Vec<u8>> {
    const MAX_BYTES: u64 = 4 << 20; // containers have thousands of lines
    BufReader::new(mountinfo.take(MAX_BYTES)).split(b'\n').map_while(Result::ok).find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let (id, _parent, device) = (words.next()?, words.next()?, words.next()?);
        if !is_wanted(id, device) {
            return None;
        }
        // A dash ends the optional fields: `- ext4 /dev/vdb rw`.
        words.by_ref().skip(3).find(|word| *word == b"-")?;
        let (kind, source) = (words.next()?, words.next()?);
        Some(unescaped(if matches!(source, b"" | b"none") { kind } else { source }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    const MOUNTINFO: &str = "\
        22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n\
        40 27 7:0 / /mnt/a\\040-\\040b\\012c rw - ext4 /dev/loop0 rw\n\
        41 27 0:50 / /srv rw - nfs4 filer:/vol\\0401 rw,vers=4.2\n\
        42 27 0:51 / /tmp rw - tmpfs none rw\n\
        43 27 0:52 / /e rw - tmpfs  rw\n\
        44 27 0:53 / /h rw - fuse.x \\033[2J\\012D\\011 rw\n\
        45 27 0:54 / /odd - 46 rw - tmpfs\n\
        x y\n\
        \n\
        47 27 0:55 / /last rw - btrfs /dev/vdc rw";

    #[test]
    fn finds_the_source_of_a_mount() {
        let cases: [(u64, Option<&[u8]>); 11] = [
            (22, Some(b"proc")),
            (27, Some(b"/dev/vda")),
            (40, Some(b"/dev/loop0")),
            (41, Some(b"filer:/vol 1")),
            (42, Some(b"tmpfs")),
            (43, Some(b"tmpfs")),
            (44, Some(b"\x1b[2J\nD\t")), // raw bytes: they are escaped when printed
            (45, None),
            (46, None),
            (47, Some(b"/dev/vdc")),
            (0, None),
        ];
        for (mount, want) in cases {
            assert_eq!(source_of(mount, MOUNTINFO.as_bytes()).as_deref(), want, "{mount}");
        }
        for cut in 0..MOUNTINFO.len() {
            let got = source_of(47, &MOUNTINFO.as_bytes()[..cut]);
            assert!(got.is_none_or(|source| b"/dev/vdc".starts_with(&source[..]) || source == b"btrfs"), "{cut}");
        }
    }

    #[test]
    fn parses_mount_ids() {
        let cases: [(&[u8], Option<u64>); 6] = [
            (b"pos:\t0\nflags:\t0100000\nmnt_id:\t27\nino:\t5\n", Some(27)),
            (b"pos:\t0\nmnt_id:\t27\nmnt_id:\t28\n", Some(27)),
            (b"pos:\t0\n", None),
            (b"mnt_id:\t-1\n", None),
            (b"mnt_id:\t\xff\n", None),
            (b"", None),
        ];
        for (text, want) in cases {
            assert_eq!(mount_id(text), want, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn finds_path_and_device_of_a_descriptor() {
        let process = FixtureProcess::new(5);
        process.write("mountinfo", MOUNTINFO);
        let cases: [(&str, &str, Option<&[u8]>); 7] = [
            ("/mnt/log (deleted)", "mnt_id:\t40\n", Some(b"/dev/loop0")),
            ("/mnt/\x1b[31m\nD 9 ms", "mnt_id:\t40\n", Some(b"/dev/loop0")),
            ("/mnt/detached", "mnt_id:\t99\n", None),
            ("/dev/dri/card0", "mnt_id:\t27\n", None),
            ("socket:[123]", "mnt_id:\t27\n", None),
            ("pipe:[4]", "", None),
            ("anon_inode:[eventpoll]", "mnt_id:\t27\n", None),
        ];
        let mut mounts = Mounts::default();
        for (index, (path, info, device)) in cases.into_iter().enumerate() {
            let fd = index as i32;
            process.descriptor(fd, path, info);
            let got = mounts.open_file(&process.host(), 5, fd).unwrap();
            assert_eq!((&got.path[..], got.device.as_deref()), (path.as_bytes(), device), "{path:?}");
        }
        assert_eq!(mounts.open_file(&process.host(), 5, 99), None);
        assert_eq!(mounts.open_file(&process.host(), 6, 0), None);
    }

    #[test]
    fn mounts_are_read_once_a_second() {
        let process = FixtureProcess::new(5);
        process.write("mountinfo", MOUNTINFO).descriptor(1, "/x", "mnt_id:\t40\n");
        let mut mounts = Mounts::default();
        let device = |mounts: &mut Mounts| mounts.open_file(&process.host(), 5, 1).and_then(|file| file.device);
        assert_eq!(device(&mut mounts).as_deref(), Some(&b"/dev/loop0"[..]));
        process.write("mountinfo", "");
        assert_eq!(device(&mut mounts).as_deref(), Some(&b"/dev/loop0"[..]));
        mounts.0.values_mut().for_each(|(asked_ns, _)| *asked_ns -= KEEP_NS);
        assert_eq!(device(&mut mounts), None);
        for mount in 0..3 * LIMIT as u64 {
            process.write("mountinfo", &format!("{mount} 1 0:1 / / rw - tmpfs t rw\n"));
            process.descriptor(1, "/x", &format!("mnt_id:\t{mount}\n"));
            device(&mut mounts);
        }
        assert!(mounts.0.len() <= LIMIT);
    }
}
