//! The tables of `files`, and the line of a slow call.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::calls::cells::{WaitPlace, error, part};
use crate::calls::kinds::CallNumber;
use crate::calls::where_time::TimeParts;
use crate::profilers::files::names::NamedFile;
use crate::profilers::files::operations::{FileOperation, OPERATIONS};
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, TaskNames, Unit, Value};
use crate::stats::{Began, Latency, TaskKey};
use crate::task::Comm;
use crate::task::file_reader::FileSystem;
use crate::tep::syscalls::errnos;

/// The calls of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSum {
    /// By operation.
    pub calls: [u64; OPERATIONS],
    pub spent_ns: [u64; OPERATIONS],
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub errors: u64,
    pub longest_ns: Option<u64>,
    pub cache: CacheSum,
}

/// What the page cache did for the calls of a row, and for its mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSum {
    /// Reads that it served, and reads that missed.
    pub hits: u64,
    pub misses: u64,
    pub pages_read: u64,
    pub faults: u64,
    /// Waits of writers until fewer pages were dirty.
    pub held_back: u64,
    pub held_back_ns: Option<u64>,
    /// Waits for pages that were being written back.
    pub writeback_waits: u64,
}

impl CacheSum {
    fn add(&mut self, other: &CacheSum) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.pages_read += other.pages_read;
        self.faults += other.faults;
        self.held_back += other.held_back;
        self.held_back_ns =
            self.held_back_ns.map_or(other.held_back_ns, |ns| Some(ns + other.held_back_ns.unwrap_or(0)));
        self.writeback_waits += other.writeback_waits;
    }
}

impl FileSum {
    pub fn add(&mut self, other: &FileSum) {
        let all = |sums: &mut [u64; OPERATIONS], more: &[u64; OPERATIONS]| {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        all(&mut self.calls, &other.calls);
        all(&mut self.spent_ns, &other.spent_ns);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.errors += other.errors;
        self.cache.add(&other.cache);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub fn total_ns(&self) -> u64 {
        self.spent_ns.iter().sum()
    }

    /// The operation that took longest in all.
    fn mostly(&self) -> Value {
        let longest = FileOperation::ALL.into_iter().max_by_key(|operation| self.spent_ns[*operation as usize]);
        longest.filter(|_| self.total_ns() > 0).map_or(Value::None, FileOperation::value)
    }
}

/// What the rows with the greatest numbers of come first: the values of `--sort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FileOrder {
    #[default]
    Time,
    Bytes,
    Calls,
    Errors,
}

/// A row about a file, or about a process.
#[derive(Clone, Debug, Default)]
pub struct FileRow {
    pub order: FileOrder,
    pub file: Option<NamedFile>,
    pub task: TaskKey,
    pub sum: FileSum,
    pub users: TaskNames,
}

impl FileRow {
    fn weight(&self) -> u64 {
        match self.order {
            FileOrder::Time => self.sum.total_ns(),
            FileOrder::Bytes => self.sum.read_bytes + self.sum.written_bytes,
            FileOrder::Calls => self.sum.calls.iter().sum(),
            FileOrder::Errors => self.sum.errors,
        }
    }

    fn file(&self) -> Value {
        self.file.as_ref().map_or(Value::None, path_of)
    }

    fn file_system(&self) -> Value {
        self.file.as_ref().and_then(|file| file.file_system.as_ref()).map_or(Value::None, file_system)
    }
}

fn path_of(file: &NamedFile) -> Value {
    match (&file.path, &file.inode) {
        (Some(path), _) => Value::Path(path.clone()),
        (None, Some(inode)) => Value::cell(inode.clone()),
        (None, None) => Value::Word("<unknown>"),
    }
}

/// A file system in words: `ext4 on /dev/vda`.
fn file_system(FileSystem { kind, source }: &FileSystem) -> Value {
    let words: [&[u8]; 2] = [kind, source];
    let words: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Value::Path(words.join(&b" on "[..]).into())
}

macro_rules! of_operations {
    ($($calls:literal, $ns:literal, $index:literal;)*) => {
        [$(
            Column::<FileRow>::counter($calls, "", |row| &mut row.sum.calls[$index]).json_only(),
            Column::<FileRow>::counter($ns, "", |row| &mut row.sum.spent_ns[$index]).us().json_only(),
        )*]
    };
}

const BY_OPERATION: [Column<FileRow>; 2 * OPERATIONS] = of_operations!(
    "reads", "read_ns", 0;
    "writes", "write_ns", 1;
    "syncs", "sync_ns", 2;
    "opens", "open_ns", 3;
    "truncates", "truncate_ns", 4;
    "lists", "list_ns", 5;
    "metadata", "metadata_ns", 6;
);

const COLUMNS: [Column<FileRow>; 35] = [
    Column::<FileRow>::derived("total_ns", "total us", |row, _| Value::Us(row.sum.total_ns())).us().additive(),
    Column::<FileRow>::greatest("max_ns", "max us", |row| &mut row.sum.longest_ns).us(),
    Column::<FileRow>::derived("calls", "calls", |row, _| Value::Unsigned(row.sum.calls.iter().sum())).additive(),
    Column::<FileRow>::counter("read_bytes", "read bytes", |row| &mut row.sum.read_bytes).in_unit(Unit::Bytes),
    Column::<FileRow>::counter("written_bytes", "written bytes", |row| &mut row.sum.written_bytes).in_unit(Unit::Bytes),
    Column::<FileRow>::derived("cache_hit_pct", "hit %", |row, _| {
        Value::share(row.sum.cache.hits, row.sum.cache.hits + row.sum.cache.misses)
    })
    .if_any(),
    Column::<FileRow>::counter("pages_read", "pages read", |row| &mut row.sum.cache.pages_read).if_any(),
    Column::<FileRow>::counter("faults", "faults", |row| &mut row.sum.cache.faults).if_any(),
    Column::<FileRow>::known_counter("held_back_ns", "held back us", |row| &mut row.sum.cache.held_back_ns)
        .us()
        .if_any(),
    Column::<FileRow>::counter("errors", "errors", |row| &mut row.sum.errors).if_any(),
    Column::<FileRow>::counter("cache_hits", "", |row| &mut row.sum.cache.hits).json_only(),
    Column::<FileRow>::counter("cache_misses", "", |row| &mut row.sum.cache.misses).json_only(),
    Column::<FileRow>::counter("held_back", "", |row| &mut row.sum.cache.held_back).json_only(),
    Column::<FileRow>::counter("writeback_waits", "", |row| &mut row.sum.cache.writeback_waits).json_only(),
    Column::derived("mostly", "mostly", |row, _| row.sum.mostly()),
    BY_OPERATION[0],
    BY_OPERATION[1],
    BY_OPERATION[2],
    BY_OPERATION[3],
    BY_OPERATION[4],
    BY_OPERATION[5],
    BY_OPERATION[6],
    BY_OPERATION[7],
    BY_OPERATION[8],
    BY_OPERATION[9],
    BY_OPERATION[10],
    BY_OPERATION[11],
    BY_OPERATION[12],
    BY_OPERATION[13],
    Column::<FileRow>::label("pid", "pid", |row| match row.task.pid {
        0 => Value::None,
        pid => Value::Signed(pid.into()),
    })
    .if_any(),
    Column::<FileRow>::label("comm", "comm", |row| match row.task.comm.is_empty() {
        true => Value::None,
        false => Value::Comm(row.task.comm),
    })
    .if_any(),
    Column::<FileRow>::names("users", "", |row| &mut row.users).json_only(),
    Column::<FileRow>::derived("by", "by", |row, _| match row.users.count() {
        0 => Value::None,
        _ => Value::Text(row.users.with_process().into()),
    })
    .if_any(),
    Column::<FileRow>::label("file_system", "on", FileRow::file_system).if_any(),
    Column::<FileRow>::label("file", "file", FileRow::file).if_any(),
];

const MEANINGS: [Meaning; 33] = [
    ("total_ns", "the time of calls: those that go on at once count each"),
    ("max_ns", "the longest call"),
    ("calls", "calls about the file that have ended"),
    ("read_bytes", "bytes that calls read"),
    ("written_bytes", "bytes that calls wrote"),
    (
        "cache_hit_pct",
        "the share of reads that the page cache served, of those that use it; blank where no event of this kernel tells",
    ),
    ("cache_hits", "reads that found all of their pages in the page cache"),
    ("cache_misses", "reads that had to read pages from the file system"),
    ("pages_read", "pages that were read into the page cache for reads and faults, readahead included, with `--cache`"),
    ("faults", "faults of mappings of the file that the pages mapped around did not spare, with `--cache`"),
    ("held_back_ns", "how long writers had to sleep until fewer pages were dirty"),
    ("held_back", "how often they had to"),
    ("writeback_waits", "waits for pages that were being written back"),
    ("errors", "calls that failed"),
    ("mostly", "the operation that took longest in all"),
    ("reads", "calls that read"),
    ("read_ns", "their time"),
    ("writes", "calls that write"),
    ("write_ns", "their time"),
    ("syncs", "fsync, fdatasync, syncfs, sync_file_range"),
    ("sync_ns", "their time"),
    ("opens", "calls that open"),
    ("open_ns", "their time"),
    ("truncates", "truncate, ftruncate, fallocate"),
    ("truncate_ns", "their time"),
    ("lists", "calls that list a directory"),
    ("list_ns", "their time"),
    ("metadata", "calls such as stat, access, rename, unlink, chmod"),
    ("metadata_ns", "their time"),
    ("users", "the names of the threads that made the calls, those of the longest time first"),
    ("by", "that of the longest time with its process, and the number of others"),
    (
        "file",
        "the path as the program gave it, from the root; `<unknown>`: the descriptor was closed before /proc told",
    ),
    ("file_system", "the file system there, and the device or server it is mounted from"),
];

fn heaviest_first(one: &FileRow, other: &FileRow) -> std::cmp::Ordering {
    let path = |row: &FileRow| row.file.as_ref().and_then(|file| file.path.clone());
    let rank = |row: &FileRow| (Reverse((row.weight(), row.sum.total_ns())), row.task, path(row));
    rank(one).cmp(&rank(other))
}

pub static FILES: Schema<FileRow> =
    Schema::<FileRow>::new("files", &COLUMNS).titled("files").explained(&MEANINGS).ordered(heaviest_first);
pub static PROCESSES: Schema<FileRow> =
    Schema::<FileRow>::new("processes", &COLUMNS).titled("processes").explained(&MEANINGS).ordered(heaviest_first);

/// The calls of one operation.
#[derive(Clone, Debug)]
pub struct OperationRow {
    pub operation: FileOperation,
    /// Of descriptors that were closed before it was known what they are open on.
    pub is_unknown: bool,
    pub latency: Latency,
    pub bytes: u64,
    pub errors: u64,
    pub than: u64,
    pub no_start: u64,
    /// Calls that go on.
    pub now: Option<u64>,
}

impl LatencyRow for OperationRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

pub static CALLS: Schema<OperationRow> =
    Schema::<OperationRow>::new(
        "operations",
        &[
            Column::label("operation", "operation", |row| row.operation.value()),
            Column::<OperationRow>::label("of", "of", |row| {
                if row.is_unknown { Value::Word("unknown") } else { Value::None }
            })
            .if_any(),
            Column::latency_count("calls"),
            Column::<OperationRow>::counter("bytes", "bytes", |row| &mut row.bytes).in_unit(Unit::Bytes),
            Column::latency_total(),
            Column::<OperationRow>::latency_min().json_only(),
            Column::<OperationRow>::latency_mean().json_only(),
            Column::<OperationRow>::latency_stddev().json_only(),
            Column::latency_p50(),
            Column::<OperationRow>::latency_p95().json_only(),
            Column::latency_p99(),
            Column::latency_max(),
            Column::counter("errors", "errors", |row| &mut row.errors),
            Column::<OperationRow>::counter("than", "than", |row| &mut row.than).if_any(),
            Column::<OperationRow>::counter("no_start", "no start", |row| &mut row.no_start).if_any(),
            Column::<OperationRow>::gauge("now", "now", |row| &mut row.now).if_any(),
        ],
    )
    .latencies()
    .titled("calls about files")
    .explained(&[
        ("operation", "what the calls do: `read`, `write`, `sync`, `open`, `truncate`, `list` a directory, `metadata`"),
        ("of", "`unknown`: calls on descriptors that were closed before /proc told what they were open on"),
        ("bytes", "bytes that they read or wrote"),
        ("errors", "of these, those that failed"),
        ("than", "of these, those as long as the limit of `--than` or longer"),
        ("no_start", "ended, too, but their start was not seen"),
        ("now", "calls that go on as the interval ends"),
    ])
    .ordered(|one, other| {
        let rank = |row: &OperationRow| (Reverse(row.latency.distribution.sum()), row.operation, row.is_unknown);
        rank(one).cmp(&rank(other))
    });

/// A call in progress.
#[derive(Clone, Debug)]
pub struct OpenFileRow {
    pub call: CallNumber,
    pub file: NamedFile,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
    pub age_ns: Option<u64>,
    /// Unless the beginning is known exactly, the call has lasted at least this long.
    pub began: Began,
}

pub static OPEN: Schema<OpenFileRow> = Schema::<OpenFileRow>::new(
    "open",
    &[
        Column::label("call", "call", |row| row.call.value()),
        Column::<OpenFileRow>::gauge("age_ns", "age", |row| &mut row.age_ns).in_unit(Unit::Age),
        Column::label("pid", "pid", |row| Value::Signed(row.pid.into())),
        Column::label("tid", "tid", |row| Value::Signed(row.tid.into())),
        Column::label("comm", "comm", |row| Value::Comm(row.comm)),
        Column::<OpenFileRow>::label("since", "", |row| Value::beginning(row.began)).if_any(),
        Column::<OpenFileRow>::label("file_system", "on", |row| {
            row.file.file_system.as_ref().map_or(Value::None, file_system)
        })
        .if_any(),
        Column::label("file", "file", |row| path_of(&row.file)),
    ],
)
.titled("calls that go on")
.explained(&[
    ("call", "its name"),
    ("age_ns", "how long it has lasted when the interval ends"),
    ("since", "`before_start` or `before_loss`: `age_ns` is a lower bound"),
    ("file", "its file"),
    ("file_system", "the file system there, and the device or server it is mounted from"),
])
.snapshot()
.ordered(|one, other| (Reverse(one.age_ns), one.tid).cmp(&(Reverse(other.age_ns), other.tid)));

/// A call that `--than` or `--lower` selects.
#[derive(Clone, Debug)]
pub struct SlowFileCall {
    pub ns: u64,
    pub call: CallNumber,
    pub operation: FileOperation,
    pub file: NamedFile,
    pub offset: Option<u64>,
    /// Bytes that it read or wrote.
    pub bytes: Option<u64>,
    pub errno: Option<u32>,
    pub parts: TimeParts,
    pub goes_on: bool,
}

pub static SLOW: OccurrenceSchema<SlowFileCall> = OccurrenceSchema::<SlowFileCall>::new(
    &[
        Detail::new("duration_ns", |slow| Value::Ns(slow.ns)),
        Detail::new("operation", |slow| slow.operation.value()),
        Detail::new("call", |slow| slow.call.value()),
        Detail::new("file", |slow| path_of(&slow.file)),
        Detail::new("file_system", |slow| slow.file.file_system.as_ref().map_or(Value::None, file_system)),
        Detail::new("offset", |slow| slow.offset.map_or(Value::None, Value::Unsigned)),
        Detail::new("bytes", |slow| slow.bytes.map_or(Value::None, Value::Unsigned)),
        Detail::new("error", |slow| slow.errno.map_or(Value::None, error)),
        Detail::new("still_open", |slow| Value::Bool(slow.goes_on)),
        Detail::new("run_ns", |slow| part(slow.parts.ran)),
        Detail::new("ready_ns", |slow| part(slow.parts.ready)),
        Detail::new("sleep_ns", |slow| part(slow.parts.slept)),
        Detail::new("disk_ns", |slow| part(slow.parts.blocked)),
        Detail::new("other_ns", |slow| part(slow.parts.rested)),
        Detail::new("unseen_ns", |slow| part(slow.parts.unseen)),
        Detail::new("waits_at", |slow| {
            slow.parts.wait_stack.map_or(Value::None, |stack| Value::cell(WaitPlace(stack)))
        }),
    ],
    &[
        detail("duration_ns").wide(11),
        text(" ms  "),
        SUBJECT,
        text("  "),
        detail("call"),
        detail("bytes").between(" ", " bytes"),
        detail("offset").after(" at "),
        text(" of "),
        detail("file"),
        detail("file_system").between(" (", ")"),
        detail("error").after(" = "),
        when("still_open", &[text(" goes on")]),
        detail("disk_ns").between(", D ", " ms"),
        detail("sleep_ns").between(", S ", " ms"),
        detail("waits_at").after(" at "),
        detail("run_ns").between(", run ", " ms"),
        detail("ready_ns").between(", ready ", " ms"),
        detail("other_ns").between(", other ", " ms"),
        detail("unseen_ns").between(", unseen ", " ms"),
    ],
)
.grouped(GroupBy {
    noun: "call",
    same: &["call", "file", "still_open", "error"],
    place: "waits_at",
    duration: "duration_ns",
    goes_on: "still_open",
});

/// The error of a return value, unless the call is made once more.
pub fn failure(ret: i64) -> Option<u32> {
    errnos::of_return(ret).filter(|errno| !errnos::is_restart(*errno))
}

/// The directory that a file is in, as a row.
pub fn directory_of(file: NamedFile) -> NamedFile {
    let directory = |path: Arc<[u8]>| match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => Arc::from(&b"/"[..]),
        Some(slash) => Arc::from(&path[..slash]),
        None => path,
    };
    NamedFile { path: file.path.map(directory), ..file }
}

/// The file system that a file is on, as a row.
pub fn file_system_of(file: NamedFile) -> NamedFile {
    let NamedFile { file_system, .. } = file;
    let path = file_system.as_ref().map(|system| system.kind.as_slice().into());
    NamedFile { path, file_system, inode: None }
}
