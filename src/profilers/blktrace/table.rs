//! The tables of `blktrace`, and the line of a slow request.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::file::FileCell;
use crate::profilers::blktrace::files::RequestFile;
use crate::profilers::blktrace::request::{RequestKind, RequestStage, STAGES};
use crate::report::layout::{SUBJECT, detail, text, when};
use crate::report::{Column, Detail, GroupBy, LatencyRow, Meaning, OccurrenceSchema, Schema, Unit, Value};
use crate::stats::{Latency, TaskKey};

/// Requests of one kind to one device.
#[derive(Clone, Debug)]
pub struct RequestRow {
    pub device: Arc<str>,
    pub kind: RequestKind,
    pub latency: Latency,
    pub bytes: u64,
    pub errors: u64,
    /// Requests that began where the one before ended.
    pub sequential: u64,
    pub spent_ns: [u64; STAGES],
    pub than: u64,
    pub no_start: u64,
    /// Requests that go on.
    pub now: Option<u64>,
}

impl LatencyRow for RequestRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

const SPENT: [Column<RequestRow>; STAGES] = [
    Column::<RequestRow>::counter("entry_ns", "", |row| &mut row.spent_ns[0]).us().json_only(),
    Column::<RequestRow>::counter("plug_ns", "", |row| &mut row.spent_ns[1]).us().json_only(),
    Column::<RequestRow>::counter("queue_ns", "", |row| &mut row.spent_ns[2]).us().json_only(),
    Column::<RequestRow>::counter("device_ns", "", |row| &mut row.spent_ns[3]).us().json_only(),
];

const MEANINGS: [Meaning; 13] = [
    ("device", "the disk, or a device above disks, as of dm and md"),
    (
        "kind",
        "`read`, `readahead` (nobody waits yet), `sync write` (somebody waits), `write`, `flush`, `discard`, `other`",
    ),
    ("bytes", "their bytes"),
    ("errors", "of these, those that failed"),
    ("sequential_pct", "the share of those that began where the request before ended"),
    ("device_pct", "the share of their time that was spent in the device"),
    ("than", "of these, those as long as the limit of `--than` or longer"),
    ("entry_ns", "their time until they got a request: the queue is full, or throttles"),
    ("plug_ns", "their time in the plug of the submitter"),
    ("queue_ns", "their time in the queue, until they were issued to the device"),
    ("device_ns", "their time in the device"),
    ("no_start", "done, too, but their beginning was not seen"),
    ("now", "requests that go on as the interval ends"),
];

pub static REQUESTS: Schema<RequestRow> = Schema::<RequestRow>::new(
    "requests",
    &[
        Column::label("device", "device", |row| Value::Text(row.device.clone())),
        Column::label("kind", "kind", |row| row.kind.value()),
        Column::latency_count("count"),
        Column::<RequestRow>::counter("bytes", "bytes", |row| &mut row.bytes).in_unit(Unit::Bytes),
        Column::<RequestRow>::latency_total().json_only(),
        Column::<RequestRow>::latency_min().json_only(),
        Column::<RequestRow>::latency_mean().json_only(),
        Column::<RequestRow>::latency_stddev().json_only(),
        Column::latency_p50(),
        Column::<RequestRow>::latency_p95().json_only(),
        Column::latency_p99(),
        Column::latency_max(),
        Column::derived("device_pct", "device %", |row, _| Value::share(row.spent_ns[3], row.spent_ns.iter().sum())),
        Column::<RequestRow>::derived("sequential_pct", "seq %", |row, _| {
            Value::share(row.sequential, row.latency.distribution.count())
        })
        .json_only(),
        Column::<RequestRow>::counter("errors", "errors", |row| &mut row.errors).if_any(),
        Column::<RequestRow>::counter("than", "than", |row| &mut row.than).if_any(),
        Column::<RequestRow>::counter("no_start", "no start", |row| &mut row.no_start).if_any(),
        Column::<RequestRow>::gauge("now", "now", |row| &mut row.now).if_any(),
        SPENT[0],
        SPENT[1],
        SPENT[2],
        SPENT[3],
        Column::<RequestRow>::counter("sequential", "", |row| &mut row.sequential).hidden(),
    ],
)
.latencies()
.explained(&MEANINGS)
.titled("requests, from when they were asked for until they were done")
.settled(|rows| rows.iter_mut().for_each(|row| row.now = row.now.or(Some(0))))
.ordered(|one, other| {
    let rank = |row: &RequestRow| (Reverse(row.latency.distribution.sum()), row.device.clone(), row.kind);
    rank(one).cmp(&rank(other))
});

/// The times of all requests to a device in one stage.
#[derive(Clone, Debug)]
pub struct StageRow {
    pub device: Arc<str>,
    pub stage: RequestStage,
    pub latency: Latency,
}

impl LatencyRow for StageRow {
    fn latency(&self) -> &Latency {
        &self.latency
    }

    fn latency_mut(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

pub static STAGES_OF_ALL: Schema<StageRow> = Schema::<StageRow>::new(
    "stages",
    &[
        Column::label("device", "device", |row| Value::Text(row.device.clone())),
        Column::label("stage", "stage", |row| row.stage.value()),
        Column::latency_count("count"),
        Column::latency_total(),
        Column::<StageRow>::latency_min().json_only(),
        Column::<StageRow>::latency_mean().json_only(),
        Column::<StageRow>::latency_stddev().json_only(),
        Column::latency_p50(),
        Column::latency_p95(),
        Column::latency_p99(),
        Column::latency_max(),
    ],
)
.latencies()
.explained(&[
    ("device", "the disk, or a device above disks"),
    (
        "stage",
        "what the requests waited for: `entry`: a free request; `plug`: more requests of their submitter; `queue`: their turn; \
         `device`: the device",
    ),
])
.titled("where that time went")
.ordered(|one, other| (&one.device, one.stage).cmp(&(&other.device, other.stage)));

/// The requests that a task submitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubmitterSum {
    pub requests: u64,
    pub bytes: u64,
    pub ns: u64,
    pub device_ns: u64,
    pub longest_ns: Option<u64>,
}

impl SubmitterSum {
    pub fn add(&mut self, other: &SubmitterSum) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.ns += other.ns;
        self.device_ns += other.device_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

type SubmitterRow = (TaskKey, SubmitterSum);

/// So many in a second, of those in a span of time.
pub fn per_second(number: u64, span_ns: u64) -> Value {
    let per_s = u128::from(number) * 1_000_000_000 / u128::from(span_ns.max(1));
    Value::Unsigned(u64::try_from(per_s).unwrap_or(u64::MAX))
}

pub static SUBMITTERS: Schema<SubmitterRow> = Schema::<SubmitterRow>::new(
    "submitters",
    &[
        Column::counter("requests", "requests", |(_, sum)| &mut sum.requests),
        Column::<SubmitterRow>::derived("requests_per_s", "req/s", |(_, sum), span_ns| {
            per_second(sum.requests, span_ns)
        })
        .additive(),
        Column::<SubmitterRow>::counter("bytes", "bytes", |(_, sum)| &mut sum.bytes).in_unit(Unit::Bytes),
        Column::<SubmitterRow>::derived("bytes_per_s", "bytes/s", |(_, sum), span_ns| per_second(sum.bytes, span_ns))
            .additive(),
        Column::<SubmitterRow>::counter("total_ns", "total us", |(_, sum)| &mut sum.ns).us(),
        Column::<SubmitterRow>::counter("device_ns", "device us", |(_, sum)| &mut sum.device_ns).us(),
        Column::<SubmitterRow>::greatest("max_ns", "max us", |(_, sum)| &mut sum.longest_ns).us(),
        Column::TASK[0],
        Column::TASK[1],
        Column::TASK[2],
    ],
)
.explained(&[
    ("requests", "requests that the task submitted and that are done"),
    ("requests_per_s", "requests per second"),
    ("bytes", "bytes that it asked for, including what went with the request of another task"),
    ("bytes_per_s", "bytes per second"),
    ("total_ns", "their time: those that go on at once count each"),
    ("device_ns", "of it, that in the device"),
    ("max_ns", "the longest"),
])
.titled("who submitted them")
.ordered(|(one, few), (other, many)| (many.bytes, many.requests).cmp(&(few.bytes, few.requests)).then(one.cmp(other)));

/// The occurrence of a request that `--than` or `--lower` selects. Its subject is the submitter.
#[derive(Debug)]
pub struct SlowRequest {
    pub ns: u64,
    pub device: Arc<str>,
    pub kind: RequestKind,
    pub sector: u64,
    pub bytes: u64,
    pub spent_ns: [u64; STAGES],
    /// Other requests to the device that had been issued and were not done.
    pub others: u64,
    pub error: i64,
    pub goes_on: bool,
    pub file: RequestFile,
    /// The path of the file, and how it was found.
    pub told_file: Option<[FileCell; 2]>,
}

pub static SLOW: OccurrenceSchema<SlowRequest> =
    OccurrenceSchema::<SlowRequest>::new(
        &[
            Detail::new("duration_ns", |slow| Value::Us(slow.ns)),
            Detail::new("device", |slow| Value::Text(slow.device.clone())),
            Detail::new("kind", |slow| slow.kind.value()),
            Detail::new("sector", |slow| {
                if slow.kind == RequestKind::Flush { Value::None } else { Value::Unsigned(slow.sector) }
            }),
            Detail::new("bytes", |slow| {
                if slow.kind == RequestKind::Flush { Value::None } else { Value::Unsigned(slow.bytes) }
            }),
            Detail::new("entry_ns", |slow| spent(slow, RequestStage::Entry)),
            Detail::new("plug_ns", |slow| spent(slow, RequestStage::Plug)),
            Detail::new("queue_ns", |slow| spent(slow, RequestStage::Queue)),
            Detail::new("device_ns", |slow| spent(slow, RequestStage::Device)),
            Detail::new("others", |slow| Value::Unsigned(slow.others)),
            Detail::new("error", |slow| if slow.error == 0 { Value::None } else { Value::Signed(slow.error) }),
            Detail::new("still_open", |slow| Value::Bool(slow.goes_on)),
            // A discard is for nothing else.
            Detail::new(
                "use",
                |slow| if slow.kind == RequestKind::Discard { Value::None } else { slow.file.purpose() },
            ),
            Detail::new("file", |slow| told(slow, 0)),
            Detail::new("file_found", |slow| told(slow, 1)),
        ],
        &[
            detail("duration_ns").wide(12),
            text(" us  "),
            SUBJECT,
            text("  "),
            detail("device"),
            detail("kind").after(" "),
            detail("bytes").between(" ", " bytes"),
            detail("sector").after(" at "),
            detail("entry_ns").between(", entry ", " us"),
            detail("plug_ns").between(", plug ", " us"),
            detail("queue_ns").between(", queue ", " us"),
            detail("device_ns").between(", device ", " us"),
            detail("others").between(", with ", " others"),
            detail("error").after(", error "),
            detail("use").after(", "),
            detail("file").after(" of "),
            when("still_open", &[text(", goes on")]),
        ],
    )
    .grouped(GroupBy {
        noun: "request",
        same: &["device", "kind", "still_open"],
        place: "device",
        duration: "duration_ns",
        goes_on: "still_open",
    });

fn told(slow: &SlowRequest, index: usize) -> Value {
    slow.told_file.as_ref().map_or(Value::None, |cells| Value::cell(cells[index].clone()))
}

fn spent(slow: &SlowRequest, stage: RequestStage) -> Value {
    match slow.spent_ns[stage as usize] {
        0 => Value::None,
        ns => Value::Us(ns),
    }
}
