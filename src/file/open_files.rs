//! The names of files by the descriptors and mappings of living processes, for what the inode alone does not tell.
//!
//! A descriptor's inode is in its fdinfo (Linux 5.14) and its device in the line of mountinfo of its mount, so the file
//! itself is never touched: it may be on a dead server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::file::mounted::fdinfo_number;
use crate::file::{FileName, FilePath, FoundBy, InodeKey};
use crate::host::{BlockDevice, Host, processes};
use crate::outside::{self, Question, WorkerContext};
use crate::sys;
use crate::sys::monotonic_ns;

/// The CPU time that a search may take, ns.
const MAX_CPU_NS: u64 = 150_000_000;
/// The time that a search may take, ns, but for a process that does not answer.
const MAX_SEARCH_NS: u64 = 1_000_000_000;
/// Most descriptors that are looked at in one process.
const MAX_DESCRIPTORS: usize = 4096;
/// Most bytes of a list of mappings or mounts.
const MAX_BYTES: u64 = 4 << 20;

/// Asks which of the wanted files processes have open or mapped.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenFilesOf {
    pids: Vec<i32>,
    wanted: Vec<InodeKey>,
    max_cpu_ns: u64,
}

impl Question for OpenFilesOf {
    /// For each process those of the files that it has. None: there was no time for it.
    type Answer = Vec<Option<Vec<(InodeKey, FileName)>>>;

    fn answer(&self, context: &mut WorkerContext) -> Self::Answer {
        let until_ns = sys::thread_cpu_ns().saturating_add(self.max_cpu_ns);
        let of = |pid: &i32| {
            if sys::thread_cpu_ns() >= until_ns {
                return None;
            }
            context.about(*pid);
            let process = context.host.proc.join(pid.to_string());
            let mut found = FxHashMap::default();
            descriptors(*pid, &process, &self.wanted, &mut found);
            mappings(*pid, &process, &self.wanted, &mut found);
            Some(found.into_iter().collect())
        };
        self.pids.iter().map(of).collect()
    }
}

/// The names of those of `wanted` that a process has open or mapped. Processes that do not answer are left out.
pub(super) fn find(host: &Host, wanted: &[InodeKey]) -> FxHashMap<InodeKey, FileName> {
    let (start_ns, used_before_ns) = (monotonic_ns(), outside::asked_cpu_ns());
    let left_ns = || MAX_CPU_NS.saturating_sub(outside::asked_cpu_ns().saturating_sub(used_before_ns));
    let question = |pids| OpenFilesOf { pids, wanted: wanted.to_vec(), max_cpu_ns: left_ns() };
    let mut found = FxHashMap::default();
    outside::ask_each(host, &processes(host), question, |_, files: Vec<(InodeKey, FileName)>| {
        for (key, name) in files {
            found.entry(key).or_insert(name);
        }
        let is_in_time = left_ns() > 0 && monotonic_ns().saturating_sub(start_ns) < MAX_SEARCH_NS;
        found.len() < wanted.len() && is_in_time
    });
    found
}

fn name(path: Vec<u8>, found: FoundBy) -> FileName {
    FileName { path: Some(FilePath(path)), found, links: 1, is_directory: false }
}

fn descriptors(pid: i32, process: &Path, wanted: &[InodeKey], found: &mut FxHashMap<InodeKey, FileName>) {
    let mut mounts: Option<FxHashMap<u64, BlockDevice>> = None;
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten().take(MAX_DESCRIPTORS) {
        let Ok(path) = fs::read_link(entry.path()) else { continue };
        // Of a device, its driver adds lines to fdinfo, and may wait for locks of its own.
        if !path.starts_with("/") || path.starts_with("/dev") {
            continue;
        }
        let Ok(info) = fs::read_to_string(process.join("fdinfo").join(entry.file_name())) else { continue };
        let (Some(mount), Some(inode)) = (fdinfo_number(&info, "mnt_id:"), fdinfo_number(&info, "ino:")) else {
            continue;
        };
        if !wanted.iter().any(|key| key.inode == inode) {
            continue;
        }
        let device = mounts.get_or_insert_with(|| mount_devices(process)).get(&mount);
        let key = device.map(|device| InodeKey { device: *device, inode });
        if let Some(key) = key.filter(|key| wanted.contains(key)) {
            found.entry(key).or_insert_with(|| name(path.into_os_string().into_vec(), FoundBy::Descriptor(pid)));
        }
    }
}

/// The devices of the mounts that a process sees.
fn mount_devices(process: &Path) -> FxHashMap<u64, BlockDevice> {
    let line = |line: Vec<u8>| {
        let mut words = line.split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        Some((words.next()??.parse().ok()?, BlockDevice::parse(words.nth(1)??)?))
    };
    let lines =
        File::open(process.join("mountinfo")).ok().map(|file| BufReader::new(file.take(MAX_BYTES)).split(b'\n'));
    lines.into_iter().flatten().map_while(Result::ok).filter_map(line).collect()
}

fn mappings(pid: i32, process: &Path, wanted: &[InodeKey], found: &mut FxHashMap<InodeKey, FileName>) {
    let Ok(maps) = File::open(process.join("maps")) else { return };
    for line in BufReader::new(maps.take(MAX_BYTES)).split(b'\n').map_while(Result::ok) {
        let Some((key, path)) = mapped_file(&line) else { continue };
        if wanted.contains(&key) {
            found.entry(key).or_insert_with(|| name(path.to_vec(), FoundBy::Mapping(pid)));
        }
    }
}

/// `7f00-7f10 r-xp 00001000 fe:00 42     /usr/lib/a b.so`
fn mapped_file(line: &[u8]) -> Option<(InodeKey, &[u8])> {
    let mut words = line.splitn(6, |byte| *byte == b' ').skip(3);
    let (device, inode, path) = (words.next()?, words.next()?, words.next()?.trim_ascii_start());
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let device = BlockDevice(hex(major)?.checked_shl(20)? | hex(minor)?);
    let inode = std::str::from_utf8(inode).ok()?.parse().ok().filter(|inode| *inode > 0)?;
    path.starts_with(b"/").then_some((InodeKey { device, inode }, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn open_and_mapped_files_have_names() {
        let process = FixtureProcess::new(5);
        let root = process.host().proc.join("5");
        let [fd, fdinfo] = ["fd", "fdinfo"].map(|name| root.join(name));
        [&fd, &fdinfo].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        for (number, path, info) in [
            ("3", "/srv/a", "pos:\t0\nflags:\t0\nmnt_id:\t40\nino:\t11\n"),
            ("4", "/dev/x", "mnt_id:\t40\nino:\t12\n"),
            ("5", "socket:[13]", "mnt_id:\t40\nino:\t13\n"),
            ("6", "/other", "mnt_id:\t41\nino:\t11\n"),
            ("7", "/old", "mnt_id:\t40\n"),
        ] {
            std::os::unix::fs::symlink(path, fd.join(number)).unwrap();
            fs::write(fdinfo.join(number), info).unwrap();
        }
        fs::write(root.join("mountinfo"), "40 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n41 1 8:2 / / rw - ext4 x rw\n")
            .unwrap();
        fs::write(root.join("maps"), "1000-2000 r--p 0 08:01 14   /srv/m n\nx\n1-2 r--p 0 00:00 0\n").unwrap();
        let key = |inode| InodeKey { device: BlockDevice(8 << 20 | 1), inode };
        let found = find(&process.host(), &[11, 12, 13, 14].map(key));
        let path = |inode| found.get(&key(inode)).and_then(|name| name.path.clone()).map(|path| path.0);
        assert_eq!(path(11).as_deref(), Some(&b"/srv/a"[..]));
        assert_eq!(path(14).as_deref(), Some(&b"/srv/m n"[..]));
        assert_eq!(found.len(), 2);
        let question = OpenFilesOf { pids: vec![5, 6], wanted: vec![key(11)], max_cpu_ns: 0 };
        assert_eq!(question.answer(&mut WorkerContext::new(process.host())), [None, None], "no time is left");
    }

    #[test]
    fn hostile_lines_of_mappings_are_left_out() {
        for line in ["", "1-2 r--p 0", "1-2 r--p 0 zz:0 5 /a", "1-2 r--p 0 08:01 x /a", "1-2 r--p 0 08:01 5 [heap]"] {
            assert_eq!(mapped_file(line.as_bytes()), None, "{line:?}");
        }
    }
}
