//! Which file I/O is for: that of the event of the page cache or of the file system that the same task was in as it asked
//! for the I/O.
//!
//! An event only counts for I/O of its kind: readahead for bios of readahead, a direct access for as many bytes as it is
//! about, writeback until its end. So a bio that has no event of its own is of no file, rather than of the last one.

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::file::InodeKey;
use crate::host::{BlockDevice, BlockDevices};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::Setup;
use crate::report::Value;
use crate::sys::page_size;
use crate::tep::Field;

/// Why a file is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileUse {
    /// The program reads through the page cache, or from a mapping.
    Read,
    /// The program reads or writes with O_DIRECT.
    Direct,
    /// Somebody waits until what was written before is on the disk: fsync(2), O_SYNC, sync(2).
    Sync,
    /// The kernel writes what programs have written into the page cache. Nobody waits.
    Writeback,
}

impl FileUse {
    pub fn word(self) -> &'static str {
        match self {
            FileUse::Read => "read",
            FileUse::Direct => "direct",
            FileUse::Sync => "sync",
            FileUse::Writeback => "writeback",
        }
    }
}

/// The file that a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestFile {
    #[default]
    Unknown,
    /// What the file system keeps besides files: its journal, lists of inodes and blocks.
    Metadata,
    /// The device is told what is free.
    Discard,
    File(InodeKey, FileUse),
    Others,
}

impl RequestFile {
    pub fn key(self) -> Option<InodeKey> {
        if let RequestFile::File(key, _) = self { Some(key) } else { None }
    }

    /// The same for all files.
    #[must_use]
    pub fn of_any_inode(self) -> RequestFile {
        if let RequestFile::File(_, how) = self { RequestFile::File(InodeKey::default(), how) } else { self }
    }

    /// What the request is for, besides which file.
    pub fn purpose(self) -> Value {
        match self {
            RequestFile::File(_, how) => Value::Word(how.word()),
            RequestFile::Metadata => Value::Word("metadata"),
            RequestFile::Discard => Value::Word("discard"),
            RequestFile::Unknown | RequestFile::Others => Value::None,
        }
    }
}

/// What an event says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileStep {
    /// Readahead of the file begins.
    Ahead,
    /// A part of the file is read that was not read ahead.
    ReadPart,
    /// So many pages come into the page cache, as a power of 2.
    Added,
    /// Access to so many bytes, without the page cache.
    Direct,
    /// As [`FileStep::Direct`], of a kernel that does not tell the bytes.
    DirectPart,
    Writeback,
    WritebackEnd,
    Sync,
    SyncEnd,
}

/// An event that tells of a file.
struct FileEventSpec {
    name: &'static str,
    step: FileStep,
    /// The fields of device and inode.
    device: &'static str,
    inode: &'static str,
    /// The field of [`FileStep`]'s number: bytes, a power of 2, or whether somebody waits.
    number: &'static str,
    /// Opened only on kernels that lack that other event.
    instead_of: &'static str,
}

const fn spec(name: &'static str, step: FileStep) -> FileEventSpec {
    FileEventSpec { name, step, device: "dev", inode: "ino", number: "", instead_of: "" }
}

const fn of_pages(name: &'static str, step: FileStep) -> FileEventSpec {
    FileEventSpec { device: "s_dev", inode: "i_ino", ..spec(name, step) }
}

/// The field that has the number of the disk as text.
const DISK_NAME: &str = "name";
const AHEAD: &str = "readahead:page_cache_ra_unbounded";
const DIRECT: &str = "iomap:iomap_dio_rw_begin";
const EVENTS: [FileEventSpec; 16] = [
    of_pages(AHEAD, FileStep::Ahead),
    of_pages("readahead:page_cache_ra_order", FileStep::Ahead),
    FileEventSpec {
        number: "order",
        instead_of: AHEAD,
        ..of_pages("filemap:mm_filemap_add_to_page_cache", FileStep::Added)
    },
    spec("ext4:ext4_read_folio", FileStep::ReadPart),
    FileEventSpec { instead_of: "ext4:ext4_read_folio", ..spec("ext4:ext4_readpage", FileStep::ReadPart) },
    spec("iomap:iomap_readpage", FileStep::ReadPart),
    FileEventSpec { number: "count", ..spec(DIRECT, FileStep::Direct) },
    FileEventSpec { instead_of: DIRECT, ..spec("iomap:iomap_iter", FileStep::DirectPart) },
    FileEventSpec { instead_of: "iomap:iomap_iter", ..spec("iomap:iomap_apply", FileStep::DirectPart) },
    FileEventSpec { number: "sync_mode", ..spec("ext4:ext4_writepages", FileStep::Writeback) },
    spec("ext4:ext4_writepages_result", FileStep::WritebackEnd),
    spec("ext4:ext4_sync_file_enter", FileStep::Sync),
    spec("ext4:ext4_sync_file_exit", FileStep::SyncEnd),
    spec("xfs:xfs_file_fsync", FileStep::Sync),
    // Of all file systems, and with the name of the disk in place of a number.
    FileEventSpec { device: DISK_NAME, ..spec("writeback:writeback_single_inode_start", FileStep::Writeback) },
    FileEventSpec { device: DISK_NAME, ..spec("writeback:writeback_single_inode", FileStep::WritebackEnd) },
];

#[derive(Debug)]
struct FileEvent {
    event: EventId,
    step: FileStep,
    device: Field,
    is_disk_name: bool,
    inode: Field,
    number: Option<Field>,
}

/// A file that a task works on.
#[derive(Clone, Copy, Debug)]
struct FileInUse {
    key: InodeKey,
    how: FileUse,
    step: FileStep,
    /// Bytes of I/O that may follow.
    bytes_left: u64,
    /// When the file was told or I/O for it was asked for last.
    used_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct TaskFiles {
    now: Option<FileInUse>,
    /// The file that is being synced. Other events come within it.
    synced: Option<InodeKey>,
}

/// The files that tasks work on, by thread.
#[derive(Debug, Default)]
pub struct FilesInUse {
    events: Vec<FileEvent>,
    tasks: FxHashMap<i32, TaskFiles>,
    page_bytes: u64,
}

/// I/O that a task asks for.
#[derive(Clone, Copy, Debug)]
pub struct AskedIo<'a> {
    pub tid: i32,
    pub time: u64,
    /// The device that is asked: of a partition its own number.
    pub device: BlockDevice,
    pub rwbs: &'a [u8],
    pub bytes: u64,
}

/// Limit of the tasks whose files are remembered.
const MAX_TASKS: usize = 1 << 14;
/// I/O follows the event of its file at once, unless the task waits for a free request.
const MAX_APART_NS: u64 = 1_000_000_000;

impl FilesInUse {
    /// Adds the events that this kernel has, of files on `disk` if that is not empty: on its partitions, or in a file system
    /// that has no device.
    ///
    /// # Errors
    /// An event cannot be added.
    pub fn add_events(evlist: &mut Evlist, setup: &Setup<'_>, disk: &[BlockDevice]) -> Result<FilesInUse> {
        let mut events = Vec::new();
        for spec in EVENTS {
            let is_needed = spec.instead_of.is_empty() || setup.tracepoint(spec.instead_of).is_err();
            let Ok((evsel, format)) = setup.tracepoint(spec.name) else { continue };
            let field = |name: &str| format.field(name).cloned();
            let (Some(device), Some(inode)) = (field(spec.device), field(spec.inode)) else { continue };
            if is_needed {
                let event = evlist.add(evsel)?;
                if !disk.is_empty() && spec.device != DISK_NAME {
                    let of_disk = disk.iter().map(|device| format!("{} == {}", spec.device, device.0));
                    let of_no_device = format!("{} < {}", spec.device, 1 << 20);
                    evlist.set_filter(event, of_disk.chain([of_no_device]).collect::<Vec<_>>().join(" || "))?;
                }
                let (step, is_disk_name) = (spec.step, spec.device == DISK_NAME);
                events.push(FileEvent { event, step, device, is_disk_name, inode, number: field(spec.number) });
            }
        }
        Ok(FilesInUse { events, tasks: FxHashMap::default(), page_bytes: page_size() as u64 })
    }

    /// Takes an event about a file. False: the sample is of another event.
    ///
    /// # Errors
    /// The sample is too short.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> Result<bool> {
        let Some(of) = self.events.iter().find(|of| of.event == event) else { return Ok(false) };
        let raw = sample.raw;
        let number = of.number.as_ref().map_or(Ok(0), |field| field.read_u64(raw))?;
        let inode = of.inode.read_u64(raw)?;
        let device = if of.is_disk_name {
            std::str::from_utf8(of.device.text(raw)?).ok().and_then(BlockDevice::parse).unwrap_or_default()
        } else {
            BlockDevice(of.device.read_u64(raw)? as u32)
        };
        let step = of.step;
        if self.tasks.len() >= MAX_TASKS && !self.tasks.contains_key(&sample.tid) {
            self.tasks.clear();
        }
        let page_bytes = self.page_bytes;
        let task = self.tasks.entry(sample.tid).or_default();
        task.enter(step, InodeKey { device, inode }, number, page_bytes, sample.time);
        Ok(true)
    }

    /// The file of I/O that a task asks for.
    pub fn of_io(&mut self, io: &AskedIo<'_>, devices: &BlockDevices) -> RequestFile {
        let has = |letter: u8| io.rwbs.contains(&letter);
        if io.rwbs.first() == Some(&b'D') {
            return RequestFile::Discard;
        }
        let Some(task) = self.tasks.get_mut(&io.tid) else {
            return if has(b'M') { RequestFile::Metadata } else { RequestFile::Unknown };
        };
        let found = if has(b'M') || io.bytes == 0 {
            task.synced.map(|key| (key, FileUse::Sync))
        } else if has(b'W') {
            let synced = task.synced.map(|key| (key, FileUse::Sync));
            task.take(io, |step| !matches!(step, FileStep::Ahead | FileStep::ReadPart | FileStep::Added)).or(synced)
        } else if has(b'A') {
            task.take(io, |step| matches!(step, FileStep::Ahead | FileStep::Added))
        } else {
            task.take(io, |step| !matches!(step, FileStep::Ahead | FileStep::Writeback | FileStep::Sync))
        };
        let of_disk = found.and_then(|(key, how)| Some((on_device(key, io.device, devices)?, how)));
        match of_disk {
            Some((key, how)) => RequestFile::File(key, how),
            None if has(b'M') => RequestFile::Metadata,
            None => RequestFile::Unknown,
        }
    }

    pub fn forget(&mut self) {
        self.tasks.clear();
    }
}

/// The file, if it can be on the asked device. A file system on several disks has a number of its own, and writeback
/// tells the disk instead of the partition.
fn on_device(key: InodeKey, device: BlockDevice, devices: &BlockDevices) -> Option<InodeKey> {
    let is_of_partition = devices.disk(device) == key.device;
    let key = if is_of_partition { InodeKey { device, ..key } } else { key };
    (is_of_partition || key.device.0 >> 20 == 0 || devices.disk(key.device) == devices.disk(device)).then_some(key)
}

impl TaskFiles {
    fn enter(&mut self, step: FileStep, key: InodeKey, number: u64, page_bytes: u64, now: u64) {
        let (how, bytes_left) = match step {
            FileStep::Ahead | FileStep::ReadPart => (FileUse::Read, u64::MAX),
            FileStep::Added => {
                let known =
                    self.now.filter(|file| file.step == step && file.key == key).map_or(0, |file| file.bytes_left);
                (FileUse::Read, known.saturating_add(page_bytes << number.min(32)))
            }
            FileStep::Direct => (FileUse::Direct, number),
            FileStep::DirectPart => (FileUse::Direct, u64::MAX),
            FileStep::Writeback if self.synced.is_some() || number != 0 => (FileUse::Sync, u64::MAX),
            FileStep::Writeback => (FileUse::Writeback, u64::MAX),
            FileStep::Sync => {
                (self.synced, self.now) = (Some(key), None);
                return;
            }
            FileStep::WritebackEnd | FileStep::SyncEnd => {
                self.now = None;
                self.synced = self.synced.filter(|_| step == FileStep::WritebackEnd);
                return;
            }
        };
        self.now = Some(FileInUse { key, how, step, bytes_left, used_ns: now });
    }

    /// The file in use, if an event of it may be followed by such I/O.
    fn take(&mut self, io: &AskedIo<'_>, is_of: impl Fn(FileStep) -> bool) -> Option<(InodeKey, FileUse)> {
        let file = self.now.as_mut().filter(|file| is_of(file.step) && file.bytes_left > 0)?;
        let waits_long = io.time.saturating_sub(file.used_ns) > MAX_APART_NS;
        if waits_long && file.step != FileStep::Writeback {
            return None;
        }
        file.bytes_left = file.bytes_left.saturating_sub(if file.bytes_left == u64::MAX { 0 } else { io.bytes });
        file.used_ns = io.time;
        Some((file.key, file.how))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: BlockDevice = BlockDevice(254 << 20);
    const FILE: InodeKey = InodeKey { device: DISK, inode: 7 };
    const OTHER: InodeKey = InodeKey { device: DISK, inode: 8 };

    fn io(files: &mut FilesInUse, time: u64, rwbs: &[u8], bytes: u64) -> RequestFile {
        files.of_io(&AskedIo { tid: 5, time, device: DISK, rwbs, bytes }, &BlockDevices::default())
    }

    fn enter(files: &mut FilesInUse, step: FileStep, key: InodeKey, number: u64) {
        files.tasks.entry(5).or_default().enter(step, key, number, 4096, 0);
    }

    #[test]
    fn io_is_of_the_file_of_its_kind_of_event() {
        let of = |key, how| RequestFile::File(key, how);
        let cases: [(FileStep, u64, &[u8], RequestFile); 12] = [
            (FileStep::Ahead, 0, b"RA", of(FILE, FileUse::Read)),
            (FileStep::Ahead, 0, b"R", RequestFile::Unknown),
            (FileStep::Ahead, 0, b"WS", RequestFile::Unknown),
            (FileStep::ReadPart, 0, b"R", of(FILE, FileUse::Read)),
            (FileStep::ReadPart, 0, b"RM", RequestFile::Metadata),
            (FileStep::Direct, 4096, b"RS", of(FILE, FileUse::Direct)),
            (FileStep::Direct, 4096, b"WS", of(FILE, FileUse::Direct)),
            (FileStep::Writeback, 0, b"W", of(FILE, FileUse::Writeback)),
            (FileStep::Writeback, 1, b"WS", of(FILE, FileUse::Sync)),
            (FileStep::Sync, 0, b"WSM", of(FILE, FileUse::Sync)),
            (FileStep::Sync, 0, b"R", RequestFile::Unknown),
            (FileStep::WritebackEnd, 0, b"W", RequestFile::Unknown),
        ];
        for (step, number, rwbs, want) in cases {
            let mut files = FilesInUse::default();
            enter(&mut files, step, FILE, number);
            assert_eq!(io(&mut files, 10, rwbs, 4096), want, "{step:?}, {}", rwbs.escape_ascii());
        }
    }

    /// A direct access, or pages that came into the cache, explain only as many bytes.
    #[test]
    fn more_bytes_than_were_told_are_of_no_file() {
        for (step, number) in [(FileStep::Direct, 8192), (FileStep::Added, 1)] {
            let mut files = FilesInUse::default();
            enter(&mut files, step, FILE, number);
            let got = [0; 3].map(|_| io(&mut files, 10, b"R", 4096).key());
            assert_eq!(got, [Some(FILE), Some(FILE), None], "{step:?}");
        }
    }

    #[test]
    fn a_sync_covers_writeback_and_what_else_it_asks_for() {
        let mut files = FilesInUse::default();
        enter(&mut files, FileStep::Sync, FILE, 0);
        enter(&mut files, FileStep::Writeback, OTHER, 0);
        assert_eq!(
            io(&mut files, 10, b"WS", 4096),
            RequestFile::File(OTHER, FileUse::Sync),
            "another file's journalled data"
        );
        enter(&mut files, FileStep::WritebackEnd, OTHER, 0);
        assert_eq!(io(&mut files, 10, b"FWS", 0), RequestFile::File(FILE, FileUse::Sync));
        enter(&mut files, FileStep::SyncEnd, FILE, 0);
        assert_eq!(io(&mut files, 10, b"FWS", 0), RequestFile::Unknown);
    }

    #[test]
    fn an_old_event_explains_nothing_and_neither_does_one_of_another_disk() {
        let mut files = FilesInUse::default();
        enter(&mut files, FileStep::Ahead, FILE, 0);
        assert_eq!(io(&mut files, MAX_APART_NS + 1, b"RA", 4096), RequestFile::Unknown);
        enter(&mut files, FileStep::Ahead, InodeKey { device: BlockDevice(8 << 20), inode: 7 }, 0);
        assert_eq!(io(&mut files, 10, b"RA", 4096), RequestFile::Unknown);
        let anonymous = InodeKey { device: BlockDevice(40), inode: 7 };
        enter(&mut files, FileStep::Ahead, anonymous, 0);
        assert_eq!(io(&mut files, 10, b"RA", 4096).key(), Some(anonymous));
    }
}
