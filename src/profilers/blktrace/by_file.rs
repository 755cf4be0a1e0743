//! The table of files and directories: how much of the disk's work is for each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustc_hash::FxHashMap;

use crate::file::{FileAspect, FileCell, FileName, FileNames, FilePath};
use crate::host::{BlockDevice, BlockDevices};
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{Setup, Use};
use crate::profilers::blktrace::files::{AskedIo, FileUse, FilesInUse, RequestFile};
use crate::profilers::blktrace::table::{SubmitterSum, per_second};
use crate::report::{Column, Schema, Unit, Value};
use crate::stats::{KeyedSums, SumKey};

/// How long an interval waits for the names of files that were seen a moment ago. The rings are not read meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);

impl SumKey for RequestFile {
    fn others(&self) -> RequestFile {
        RequestFile::Others
    }
}

/// What has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FilePlace {
    File {
        path: FileCell,
        found: FileCell,
    },
    Directory(Arc<[u8]>),
    Word(&'static str),
    /// The use says it.
    None,
}

/// A directory, if it is known, and what its files are used for.
type DirectoryUse = (Option<Arc<[u8]>>, RequestFile);

/// The requests for a file, or for the files of a directory, of one use.
#[derive(Clone, Debug)]
pub struct RequestedFileRow {
    place: FilePlace,
    file: RequestFile,
    sum: SubmitterSum,
    /// None: nobody waits for them.
    ns: Option<u64>,
}

pub static FILES: Schema<RequestedFileRow> = Schema::<RequestedFileRow>::new(
    "files",
    &[
        Column::counter("requests", "requests", |row| &mut row.sum.requests),
        Column::<RequestedFileRow>::derived("requests_per_s", "req/s", |row, span_ns| per_second(row.sum.requests, span_ns)).additive(),
        Column::<RequestedFileRow>::counter("bytes", "bytes", |row| &mut row.sum.bytes).in_unit(Unit::Bytes),
        Column::<RequestedFileRow>::derived("bytes_per_s", "bytes/s", |row, span_ns| per_second(row.sum.bytes, span_ns)).additive(),
        Column::<RequestedFileRow>::known_counter("total_ns", "total us", |row| &mut row.ns).us(),
        Column::<RequestedFileRow>::counter("device_ns", "device us", |row| &mut row.sum.device_ns).us().json_only(),
        Column::<RequestedFileRow>::greatest("max_ns", "max us", |row| &mut row.sum.longest_ns).us(),
        Column::label("use", "use", |row| row.file.purpose()),
        Column::label("file", "file", |row| match &row.place {
            FilePlace::File { path, .. } => Value::cell(path.clone()),
            FilePlace::Directory(path) => Value::Path(path.clone()),
            FilePlace::Word(word) => Value::Word(word),
            FilePlace::None => Value::None,
        }),
        Column::<RequestedFileRow>::label("file_found", "", |row| match &row.place {
            FilePlace::File { found, .. } => Value::cell(found.clone()),
            _ => Value::None,
        })
        .json_only(),
    ],
)
.explained(&[
    ("requests", "requests for the file that are done"),
    ("requests_per_s", "requests per second"),
    ("bytes", "bytes of I/O for it, including what went with the request of another file"),
    ("bytes_per_s", "bytes per second"),
    ("total_ns", "their time; those that go on at once count each. Of writeback it is nobody's, and left out"),
    ("device_ns", "of it, that in the device"),
    ("max_ns", "the longest; not of writeback"),
    (
        "use",
        "`read`: through the page cache; `direct`: O_DIRECT; `sync`: somebody waits until it is on the disk; `writeback`: \
         by the kernel, nobody waits; `metadata`: the file system's own; `discard`: the device is told of free blocks",
    ),
    (
        "file",
        "the path, or with `--by directory` that of the folder; `<unknown>`: no event tells; an inode without a name is \
         `inode 7 on vda`",
    ),
    (
        "file_found",
        "how the path was found: `inode`: the file system knows it; `descriptor`, `mapping`: a process has it; else why there \
         is none",
    ),
])
.titled("the files they are for")
.ordered(|one, other| {
    let rank = |row: &RequestedFileRow| (row.sum.bytes, row.sum.requests);
    rank(other).cmp(&rank(one)).then(one.file.cmp(&other.file))
});

/// The requests by file.
#[derive(Debug)]
pub struct RequestsByFile {
    in_use: FilesInUse,
    names: FileNames,
    sums: KeyedSums<RequestFile, SubmitterSum>,
}

impl RequestsByFile {
    /// Adds the events that tell of files on one disk, or on all.
    ///
    /// # Errors
    /// An event cannot be added, or no thread be started.
    pub fn start(
        evlist: &mut Evlist,
        setup: &Setup<'_>,
        devices: &BlockDevices,
        disk: Option<BlockDevice>,
    ) -> Result<RequestsByFile> {
        let of_disk = disk.map_or_else(Vec::new, |disk| devices.of_disk(disk));
        Ok(RequestsByFile {
            in_use: FilesInUse::add_events(evlist, setup, &of_disk)?,
            names: FileNames::start(setup.host, devices.clone())?,
            sums: KeyedSums::default(),
        })
    }

    /// Takes an event about a file.
    ///
    /// # Errors
    /// The sample is too short.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> Result<Use> {
        Ok(if self.in_use.take(event, sample)? { Use::Relevant } else { Use::Ignored })
    }

    /// The file of I/O that a task asks for.
    pub fn of_io(&mut self, io: &AskedIo<'_>, devices: &BlockDevices) -> RequestFile {
        let file = self.in_use.of_io(io, devices);
        if let Some(key) = file.key() {
            self.names.seen(key, io.time);
        }
        file
    }

    pub fn sum(&mut self, file: RequestFile) -> &mut SubmitterSum {
        self.sums.sum(file)
    }

    /// The path of a file and how it was found.
    pub fn told(&self, file: RequestFile) -> Option<[FileCell; 2]> {
        let key = file.key()?;
        Some([FileAspect::Path, FileAspect::Found].map(|aspect| self.names.cell(key, aspect)))
    }

    /// Records were lost.
    pub fn forget(&mut self) {
        self.in_use.forget();
    }

    /// The rows since the last call: of directories if `by_directory`, with `depth` parts of the path at most.
    pub fn take_rows(&mut self, by_directory: bool, depth: Option<u64>) -> Vec<RequestedFileRow> {
        if by_directory { self.take_directories(depth) } else { self.take_files() }
    }

    /// The rows since the last call, of files.
    fn take_files(&mut self) -> Vec<RequestedFileRow> {
        let RequestsByFile { names, sums, .. } = self;
        let place = |file: RequestFile| match file.key() {
            Some(key) => {
                let [path, found] = [FileAspect::Path, FileAspect::Found].map(|aspect| names.cell(key, aspect));
                FilePlace::File { path, found }
            }
            None => without_file(file),
        };
        sums.drain().map(|(file, sum)| row(place(file), file, sum)).collect()
    }

    /// The rows since the last call, of directories: `depth` parts of the path, or all but the last.
    fn take_directories(&mut self, depth: Option<u64>) -> Vec<RequestedFileRow> {
        let RequestsByFile { names, sums, .. } = self;
        let deadline = names.deadline(PATIENCE);
        let mut rows: FxHashMap<DirectoryUse, SubmitterSum> = FxHashMap::default();
        for (file, sum) in sums.drain() {
            let path = file.key().and_then(|key| directory(&names.name_by(key, deadline), depth));
            rows.entry((path, file.of_any_inode())).or_default().add(&sum);
        }
        let place = |path: Option<Arc<[u8]>>, file: RequestFile| match (path, file) {
            (Some(path), _) => FilePlace::Directory(path),
            (None, RequestFile::File(..)) => FilePlace::Word("<no name>"),
            (None, _) => without_file(file),
        };
        rows.into_iter().map(|((path, file), sum)| row(place(path, file), file, sum)).collect()
    }
}

/// In place of the file of what is for none.
fn without_file(file: RequestFile) -> FilePlace {
    match file {
        RequestFile::Metadata | RequestFile::Discard => FilePlace::None,
        RequestFile::Others => FilePlace::Word("<others>"),
        RequestFile::Unknown | RequestFile::File(..) => FilePlace::Word("<unknown>"),
    }
}

fn row(place: FilePlace, file: RequestFile, mut sum: SubmitterSum) -> RequestedFileRow {
    let is_waited_for = !matches!(file, RequestFile::File(_, FileUse::Writeback));
    sum.longest_ns = sum.longest_ns.filter(|_| is_waited_for);
    RequestedFileRow { place, file, ns: is_waited_for.then_some(sum.ns), sum }
}

/// The directory of a file, or the first `depth` parts of its path.
fn directory(name: &FileName, depth: Option<u64>) -> Option<Arc<[u8]>> {
    let FilePath(path) = name.path.as_ref()?;
    let is_slash = |byte: &u8| *byte == b'/';
    let end = if name.is_directory { path.len() } else { path.iter().rposition(is_slash)? };
    let mut slashes = path[..end].iter().enumerate().filter(|(_, byte)| is_slash(byte)).map(|(index, _)| index);
    let end = depth.and_then(|depth| slashes.nth(usize::try_from(depth).ok()?)).unwrap_or(end);
    Some(path[..end.max(1)].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FoundBy;

    #[test]
    fn files_are_in_directories() {
        let cases = [
            ("/a/b/c", None, false, "/a/b"),
            ("/a/b/c", None, true, "/a/b/c"),
            ("/a/b/c", Some(1), false, "/a"),
            ("/a/b/c", Some(2), false, "/a/b"),
            ("/a/b/c", Some(9), false, "/a/b"),
            ("/a", None, false, "/"),
            ("/a", Some(1), false, "/"),
            ("/", None, true, "/"),
        ];
        for (path, depth, is_directory, want) in cases {
            let path_bytes = Some(FilePath(path.as_bytes().to_vec()));
            let name = FileName { path: path_bytes, found: FoundBy::Inode, links: 1, is_directory };
            assert_eq!(directory(&name, depth).as_deref(), Some(want.as_bytes()), "{path}, {depth:?}");
        }
        assert_eq!(directory(&FileName::unknown(FoundBy::Freed), None), None);
    }
}
