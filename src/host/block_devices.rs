//! Block devices: their names, and the partitions of disks.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use nix::sys::stat::{major, minor};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The number of a block device as its events have it: the major number, shifted by 20, and the minor number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockDevice(pub u32);

/// A part of a disk, in sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    pub disk: BlockDevice,
    pub start: u64,
    pub sectors: u64,
}

/// What a user asks for: a disk or one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedDevice {
    pub disk: BlockDevice,
    /// None: the whole disk.
    pub partition: Option<Partition>,
}

/// The block devices of the machine, as found when they were read.
#[derive(Clone, Debug, Default)]
pub struct BlockDevices {
    names: FxHashMap<BlockDevice, String>,
    partitions: FxHashMap<BlockDevice, Partition>,
}

impl BlockDevice {
    /// From the number in `st_dev` and `st_rdev`.
    pub fn of(number: u64) -> BlockDevice {
        BlockDevice((major(number) as u32) << 20 | minor(number) as u32)
    }

    /// The number of a file system that is on no disk.
    pub fn is_anonymous(self) -> bool {
        self.0 >> 20 == 0
    }

    /// `254:0`
    pub fn parse(text: &str) -> Option<BlockDevice> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(BlockDevice(
            major.parse::<u32>().ok().filter(|major| *major < 1 << 12)? << 20 | minor.parse::<u32>().ok()?,
        ))
    }
}

impl BlockDevices {
    /// The devices of this machine.
    pub fn of_machine() -> BlockDevices {
        BlockDevices::read(Path::new("/sys/dev/block"))
    }

    /// Reads the devices below `root`, which is `/sys/dev/block`.
    pub fn read(root: &Path) -> BlockDevices {
        let mut devices = BlockDevices::default();
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let Some(device) = entry.file_name().to_str().and_then(BlockDevice::parse) else { continue };
            let Ok(path) = fs::canonicalize(entry.path()) else { continue };
            if let Some(name) = path.file_name() {
                devices.names.insert(device, name.to_string_lossy().into_owned());
            }
            if let Some(partition) = partition(&path) {
                devices.partitions.insert(device, partition);
            }
        }
        devices
    }

    /// The disk of a partition. A disk is its own.
    pub fn disk(&self, device: BlockDevice) -> BlockDevice {
        self.partitions.get(&device).map_or(device, |partition| partition.disk)
    }

    /// The numbers of a disk and its partitions, sorted.
    pub fn of_disk(&self, disk: BlockDevice) -> Vec<BlockDevice> {
        let parts = self.partitions.iter().filter(|(_, partition)| partition.disk == disk);
        let mut devices: Vec<BlockDevice> = parts.map(|(device, _)| *device).chain([disk]).collect();
        devices.sort_unstable();
        devices
    }

    /// `vda`, or `254,0` where the name is not known.
    pub fn name(&self, device: BlockDevice) -> String {
        let BlockDevice(number) = device;
        self.names.get(&device).cloned().unwrap_or_else(|| format!("{},{}", number >> 20, number & 0xf_ffff))
    }

    /// The device of a name (`vda`), a path (`/dev/vda1`), a number (`254:0`) or a mount point.
    ///
    /// # Errors
    /// There is none of this name; or the path leads to something else.
    pub fn find(&self, text: &str) -> Result<AskedDevice> {
        let named = self.names.iter().find(|(_, name)| *name == text).map(|(device, _)| *device);
        if let Some(device) = named.or_else(|| BlockDevice::parse(text)) {
            return Ok(self.asked(device));
        }
        let path = PathBuf::from(text);
        let Ok(stat) = fs::metadata(&path) else { bail!("there is no disk {text}: {}", self.known()) };
        if stat.file_type().is_block_device() {
            return Ok(self.asked(BlockDevice::of(stat.rdev())));
        }
        let device = BlockDevice::of(stat.dev());
        match self.names.get(&device) {
            Some(_) if stat.is_dir() => Ok(self.asked(device)),
            Some(name) => bail!("{text} is a file on {name}: name the disk with -d {name}"),
            None => bail!("{text} is on no block device of its own: {}", self.known()),
        }
    }

    fn asked(&self, device: BlockDevice) -> AskedDevice {
        AskedDevice { disk: self.disk(device), partition: self.partitions.get(&device).copied() }
    }

    fn known(&self) -> String {
        const LISTED: usize = 12;
        let mut names: Vec<&str> = self.names.values().map(String::as_str).collect();
        names.sort_unstable();
        names.truncate(LISTED);
        format!("disks are {}", names.join(", "))
    }
}

/// What the folder of a device says of it, if it is a partition.
fn partition(path: &Path) -> Option<Partition> {
    let number = |name: &str| fs::read_to_string(path.join(name)).ok()?.trim().parse::<u64>().ok();
    number("partition")?;
    let disk = BlockDevice::parse(&fs::read_to_string(path.parent()?.join("dev")).ok()?)?;
    Some(Partition { disk, start: number("start")?, sectors: number("size")? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A disk `sda`, 8:0, with a partition `sda1`, 8:1, and `/sys/dev/block` with links to them.
    fn devices(dir: &Path) -> BlockDevices {
        let disk = dir.join("devices/sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::write(disk.join("dev"), "8:0\n").unwrap();
        for (name, text) in [("dev", "8:1\n"), ("partition", "1\n"), ("start", "2048\n"), ("size", "4096\n")] {
            fs::write(disk.join("sda1").join(name), text).unwrap();
        }
        let root = dir.join("block");
        fs::create_dir(&root).unwrap();
        symlink(&disk, root.join("8:0")).unwrap();
        symlink(disk.join("sda1"), root.join("8:1")).unwrap();
        symlink(dir.join("nowhere"), root.join("9:9")).unwrap();
        BlockDevices::read(&root)
    }

    #[test]
    fn partitions_belong_to_their_disk() {
        let dir = tempfile::tempdir().unwrap();
        let devices = devices(dir.path());
        let [sda, sda1] = [8 << 20, 8 << 20 | 1].map(BlockDevice);
        assert_eq!([devices.disk(sda1), devices.disk(sda)], [sda, sda]);
        assert_eq!(devices.of_disk(sda), [sda, sda1]);
        assert_eq!([sda, sda1].map(|device| devices.name(device)), ["sda", "sda1"]);
        assert_eq!(devices.name(BlockDevice(9 << 20 | 9)), "9,9");
        let partition = Some(Partition { disk: sda, start: 2048, sectors: 4096 });
        for text in ["sda1", "8:1"] {
            assert_eq!(devices.find(text).unwrap(), AskedDevice { disk: sda, partition }, "{text}");
        }
        assert_eq!(devices.find("sda").unwrap(), AskedDevice { disk: sda, partition: None });
    }

    #[test]
    fn what_is_no_disk_is_refused_with_the_disks() {
        let dir = tempfile::tempdir().unwrap();
        let devices = devices(dir.path());
        for text in ["sdb", "/nonexistent", "/proc"] {
            let error = devices.find(text).unwrap_err().to_string();
            assert!(error.contains("disks are sda, sda1"), "{error}");
        }
    }
}
