//! `blktrace`: how long requests to disks take, where in that time they wait, and who submitted them.
//!
//! Events: those of `block:` that begin, move and end requests, period 1, on all CPUs, with the kernel's filter for one
//! disk. A request may be issued and done by any CPU and in any task, so it is followed by its device and sector, and
//! belongs to the task that asked for it. Cost: five to six records per request, of 64 to 100 bytes. If files are asked
//! for, also the events in `files`.
//!
//! `request` has the stages of a request, `table` the tables and lines, `files` the file that a request is for, `by_file`
//! the table of files, `disks` that of the kernel's counters.

mod by_file;
mod disks;
mod files;
mod request;
mod table;

use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::{CommonArgs, LatencyArgs, usage, values};
use crate::host::{AskedDevice, BlockDevice, BlockDevices};
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::{
    Context, Event, Profiler, ProfilerArgs, Report, RunScope, Setup, TaskGrouping, TickOutcome, Timestamp, Use,
};
use crate::profilers::blktrace::by_file::{FILES, RequestsByFile};
use crate::profilers::blktrace::disks::{DISKS, Disks};
use crate::profilers::blktrace::files::{AskedIo, RequestFile};
use crate::profilers::blktrace::request::{BlockRequest, RequestKey, RequestKind, RequestStage, STAGES};
use crate::profilers::blktrace::table::{
    REQUESTS, RequestRow, SLOW, STAGES_OF_ALL, SUBMITTERS, SlowRequest, StageRow, SubmitterSum,
};
use crate::relation::{
    Declaration, EventMoment, OpenStart, PairEnd, PairOutcome, PairStart, Relation, RelationTerms, RowKey,
};
use crate::report::{OccurrenceLayout, Subject, TableSchema};
use crate::stats::{KeyedSums, Latency, SumKey, TaskKey, WorstCase};
use crate::symbol::StackId;
use crate::tep::{Field, drift};

/// How long requests to disks take, where they wait, and who submits them
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "block",
    after_help = "\
Examples:
  Is a disk slow, or its queue? Who uses it?
    perf-prof blktrace -i 1000
  Which files are read and written, and does anybody wait for it?
    perf-prof blktrace --by file -i 1000
  Requests to one disk that take 50 ms or more, with submitter and file:
    perf-prof blktrace -d vda --than 50ms
  What one service asks of the disk below a mount point, and in which code:
    perf-prof blktrace -d /var/lib/postgresql -p postgres --than 20ms -g

A request waits at the `entry` for a free place in the queue, in the `plug` of
its submitter for more requests, in the `queue` for its turn, then for the
`device`. Writes that nobody waits for are submitted by the kernel's writeback."
)]
pub struct BlktraceArgs {
    /// Only this disk: a name, device, partition or mount point
    #[arg(short, long, value_name = "DISK")]
    device: Option<String>,
    #[command(flatten)]
    lengths: LatencyArgs,
    /// What has a row in the last table
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = RequestGrouping::Process)]
    by: RequestGrouping,
    /// With --by directory: the first so many parts of its path
    #[arg(long, value_name = "PARTS", value_parser = values::count)]
    depth: Option<u64>,
    /// So many rows of submitters or files at most in text
    #[arg(long, value_name = "ROWS", value_parser = values::count, default_value = "20")]
    top: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// What has a row in the last table: the values of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RequestGrouping {
    Thread,
    Process,
    Comm,
    File,
    Directory,
}

impl RequestGrouping {
    /// The grouping by task. None: by file.
    fn of_tasks(self) -> Option<TaskGrouping> {
        match self {
            RequestGrouping::Thread => Some(TaskGrouping::Thread),
            RequestGrouping::Process => Some(TaskGrouping::Process),
            RequestGrouping::Comm => Some(TaskGrouping::Comm),
            RequestGrouping::File | RequestGrouping::Directory => None,
        }
    }
}

impl ProfilerArgs for BlktraceArgs {
    const NAME: &'static str = "blktrace";
    const TABLES: &'static [&'static dyn TableSchema] = &[&REQUESTS, &STAGES_OF_ALL, &DISKS, &SUBMITTERS, &FILES];
    const OCCURRENCES: Option<&'static OccurrenceLayout> = Some(SLOW.layout());
    const WEIGHT: &'static str = "us";
    const NARROWINGS: &'static [&'static str] = &["-d DISK"];

    fn common(&mut self) -> &mut CommonArgs {
        &mut self.common
    }

    fn build(self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(Blktrace::new(self)))
    }
}

/// What an event says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockStep {
    /// Somebody asks for I/O, which becomes a request, or part of one.
    Asked,
    /// The I/O is a request now.
    Got,
    Queued,
    Issued,
    /// The device gave the request back.
    GivenBack,
    Done,
    /// I/O of a device without requests of its own is done.
    DoneBelow,
    /// The I/O joined the request that ends where the I/O begins.
    JoinedBehind,
    /// The I/O joined the request that begins where the I/O ends.
    JoinedBefore,
    Split,
    PassedOn,
}

const EVENTS: [(&str, BlockStep); 12] = [
    ("block:block_bio_queue", BlockStep::Asked),
    ("block:block_getrq", BlockStep::Got),
    ("block:block_rq_insert", BlockStep::Queued),
    ("block:block_rq_issue", BlockStep::Issued),
    ("block:block_rq_requeue", BlockStep::GivenBack),
    ("block:block_rq_complete", BlockStep::Done),
    ("block:block_bio_complete", BlockStep::DoneBelow),
    ("block:block_bio_backmerge", BlockStep::JoinedBehind),
    ("block:block_rq_merge", BlockStep::JoinedBehind),
    ("block:block_bio_frontmerge", BlockStep::JoinedBefore),
    ("block:block_split", BlockStep::Split),
    ("block:block_bio_remap", BlockStep::PassedOn),
];

/// An event, and its fields. The last two are those of some events only.
#[derive(Debug)]
struct BlockEvent {
    event: EventId,
    step: BlockStep,
    device: Field,
    sector: Field,
    sectors: Option<Field>,
    rwbs: Field,
    error: Option<Field>,
    /// Where the rest of a split begins.
    new_sector: Option<Field>,
    /// The device and sector above.
    above: Option<(Field, Field)>,
}

/// A row: a kind of requests to one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RequestsOf {
    device: BlockDevice,
    kind: RequestKind,
    is_wanted: bool,
}

impl SumKey for RequestsOf {
    fn others(&self) -> RequestsOf {
        RequestsOf { device: BlockDevice::default(), ..*self }
    }
}

impl RowKey for RequestsOf {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct StageOf {
    device: BlockDevice,
    stage: RequestStage,
}

impl SumKey for StageOf {
    fn others(&self) -> StageOf {
        StageOf { device: BlockDevice::default(), ..*self }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestSums {
    bytes: u64,
    errors: u64,
    sequential: u64,
    spent_ns: [u64; STAGES],
}

/// How a request ended: with an error number of the kernel, or 0.
#[derive(Clone, Copy, Debug)]
struct RequestError(i64);

#[derive(Debug)]
struct Requests;

impl Declaration for Requests {
    type Key = RequestKey;
    type Start = BlockRequest;
    type End = RequestError;
    type Row = RequestsOf;
    type Sums = RequestSums;

    fn row(&self, key: &RequestKey, start: &OpenStart<BlockRequest>, _end: &PairEnd<RequestError>) -> RequestsOf {
        let BlockRequest { kind, is_wanted, .. } = start.open.own;
        RequestsOf { device: key.device, kind, is_wanted }
    }

    /// A request that began before the run: `no_start` of its row counts it.
    fn may_be_first(&self, _key: &RequestKey, _end: &RequestError) -> bool {
        true
    }

    fn add(&self, sums: &mut RequestSums, start: &OpenStart<BlockRequest>, end: &PairEnd<RequestError>) {
        let request = &start.open.own;
        sums.bytes += request.bytes;
        sums.errors += u64::from(end.own.0 != 0);
        sums.sequential += u64::from(request.is_sequential);
        let spent_ns = request.spent_until(end.moment.time);
        sums.spent_ns.iter_mut().zip(spent_ns).for_each(|(sum, ns)| *sum += ns);
    }
}

/// The profiler behind [`BlktraceArgs`].
#[derive(Debug)]
struct Blktrace {
    args: BlktraceArgs,
    events: Vec<BlockEvent>,
    scope: RunScope,
    devices: BlockDevices,
    names: FxHashMap<BlockDevice, Arc<str>>,
    asked: Option<AskedDevice>,
    relation: Relation<Requests>,
    stages: KeyedSums<StageOf, Latency>,
    by_task: KeyedSums<TaskKey, SubmitterSum>,
    /// None: nobody asks for files.
    files: Option<RequestsByFile>,
    /// The sector behind the request that was issued last, by device.
    next_sector: FxHashMap<BlockDevice, u64>,
    disks: Disks,
}

impl Blktrace {
    fn new(args: BlktraceArgs) -> Blktrace {
        let (lengths, draws_stacks) = (args.lengths, args.common.draws_stacks());
        let relation = Relation::new(Requests, RelationTerms { lengths, draws_stacks, ..RelationTerms::default() });
        let (events, scope, devices, names, asked) = Default::default();
        let (stages, by_task, files, next_sector, disks) = Default::default();
        Blktrace { args, events, scope, devices, names, asked, relation, stages, by_task, files, next_sector, disks }
    }

    /// Adds an event, if this kernel has it. Without the events of merges, splits and devices above disks, those of
    /// requests still tell most.
    fn add_event(&mut self, name: &str, step: BlockStep, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let is_needed = matches!(step, BlockStep::Asked | BlockStep::Issued | BlockStep::Done);
        let (evsel, format) = match setup.tracepoint(name) {
            Err(_) if !is_needed => return Ok(()),
            found => found?,
        };
        let field = |name: &str| drift::require(&format, name).cloned();
        let takes_stack = setup.stacks && step == BlockStep::Asked;
        let event = evlist.add(evsel.binding(Binding::Cpu).callchain_if(takes_stack, 0))?;
        if let Some(asked) = &self.asked {
            let is_one = |device: &BlockDevice| format!("dev == {}", device.0);
            let devices: Vec<String> = self.devices.of_disk(asked.disk).iter().map(is_one).collect();
            evlist.set_filter(event, devices.join(" || "))?;
        }
        self.events.push(BlockEvent {
            event,
            step,
            device: field("dev")?,
            sector: field("sector")?,
            sectors: field("nr_sector").ok(),
            rwbs: field("rwbs")?,
            error: field("error").ok(),
            new_sector: field("new_sector").ok(),
            above: field("old_dev").ok().zip(field("old_sector").ok()),
        });
        Ok(())
    }

    fn name(&mut self, device: BlockDevice) -> Arc<str> {
        let BlockDevice(number) = device;
        let name = || if number == 0 { "<others>".to_owned() } else { self.devices.name(device) };
        self.names.entry(device).or_insert_with(|| name().into()).clone()
    }

    /// Whether the run is about I/O that the current task asks for.
    fn wants(&self, sample: &Sample<'_>, sector: u64, ctx: &Context) -> bool {
        let is_inside = self.asked.as_ref().and_then(|asked| asked.partition).is_none_or(|partition| {
            sector.checked_sub(partition.start).is_some_and(|offset| offset < partition.sectors)
        });
        let is_ours = ctx.watched.is_all() || ctx.is_ours(sample.tid);
        is_inside && is_ours && self.scope.has_cpu(sample.cpu)
    }

    /// I/O begins that the current task asks for.
    fn start(&mut self, key: RequestKey, mut request: BlockRequest, sample: &Sample<'_>, ctx: &mut Context) {
        request.is_wanted = self.wants(sample, request.sector, ctx);
        let stack = if request.is_wanted { ctx.stack(sample) } else { None };
        let comm = ctx.tasks.comm(sample.tid);
        self.relation.start(key, EventMoment::of(sample), comm, stack, request);
    }

    /// A request goes on to its next stage. False: it is not known.
    fn enter(&mut self, from: RequestKey, to: RequestKey, stage: RequestStage, now: u64) -> bool {
        self.relation.move_start(from, to, |start| start.own.enter(stage, now))
    }

    fn asked(&mut self, key: RequestKey, request: BlockRequest, sample: &Sample<'_>, ctx: &mut Context) {
        let known = self.relation.get(key).map(|start| start.open.own);
        // Flushes that wait are one; and what comes from a device above has begun there.
        if known.is_none_or(|known| key.sector.is_some() && !known.is_passed_on) {
            self.start(key, request, sample, ctx);
        }
    }

    fn got(&mut self, key: RequestKey, request: BlockRequest, sample: &Sample<'_>, ctx: &mut Context) {
        let BlockRequest { kind, sector, .. } = request;
        self.enter(key, key, RequestStage::Plug, sample.time);
        // The flush in front of a write is a request of its own, which the kernel issues.
        if kind != RequestKind::Flush && request.asks_flush && self.relation.get(key.flush()).is_none() {
            let file = self.relation.get(key).map_or(RequestFile::Unknown, |start| start.open.own.file);
            let flush = BlockRequest::new(RequestKind::Flush, sector, 0, RequestStage::Plug, sample.time);
            let flush = BlockRequest { file, ..flush };
            self.start(key.flush(), flush, sample, ctx);
        }
    }

    fn issued(&mut self, key: RequestKey, request: BlockRequest, now: u64) {
        let BlockRequest { kind, sector, sectors_left, bytes, .. } = request;
        let is_sequential = kind != RequestKind::Flush
            && self.next_sector.insert(key.device, sector.saturating_add(sectors_left)) == Some(sector);
        let is_known = self.relation.move_start(key, key.issued(), |start| {
            start.own.enter(RequestStage::Device, now);
            start.own = BlockRequest { kind, sector, sectors_left, bytes, is_sequential, ..start.own };
        });
        if is_known {
            self.disks.issued(key.device);
        }
    }

    /// Some or all sectors of a request are done.
    fn done(&mut self, key: RequestKey, request: &BlockRequest, error: i64, sample: &Sample<'_>, ctx: &mut Context) {
        let done = request.sectors_left;
        if request.kind.is_of_flush(done) {
            return;
        }
        let left = self.relation.get(key).map_or(0, |start| start.open.own.sectors_left.saturating_sub(done));
        if left > 0 && done > 0 && error == 0 {
            let rest = key.at(request.sector.saturating_add(done));
            self.relation.move_start(key, rest, |start| start.own.sectors_left = left);
            return;
        }
        let end = PairEnd { moment: EventMoment::of(sample), own: RequestError(error) };
        match self.relation.end(key, &end, ctx) {
            PairOutcome::Ended(start) => {
                let start = *start;
                self.add(key.device, &start, sample);
                if key.is_issued {
                    self.disks.ended(key.device);
                }
                if start.open.own.is_wanted && self.args.lengths.shows(sample.time.saturating_sub(start.since)) {
                    self.show(key, &start, sample.time, Some(error), ctx);
                }
                self.submitted(&start, sample.time, ctx);
            }
            PairOutcome::NoStart if ctx.watched.is_all() => {
                let row = RequestsOf { device: key.device, kind: request.kind, is_wanted: true };
                self.relation.rows.sum(row).no_start += 1;
            }
            PairOutcome::NoStart | PairOutcome::Doubtful | PairOutcome::Unfit => {}
        }
    }

    /// Adds a request to the sums of its stages.
    fn add(&mut self, device: BlockDevice, start: &OpenStart<BlockRequest>, sample: &Sample<'_>) {
        let OpenStart { open, .. } = start;
        if !open.own.is_wanted {
            return;
        }
        let (at_ns, cpu) = (sample.time, sample.cpu);
        for (stage, ns) in RequestStage::ALL.into_iter().zip(open.own.spent_until(at_ns)).filter(|(_, ns)| *ns > 0) {
            let case = || WorstCase { ns, at_ns, cpu, tid: open.tid, comm: open.comm, stack: open.stack };
            self.stages.sum(StageOf { device, stage }).record(ns, at_ns, case);
        }
    }

    /// Adds a request to the sums of its submitter or file. What a device passed on was counted above.
    fn submitted(&mut self, start: &OpenStart<BlockRequest>, now: u64, ctx: &mut Context) {
        let [.., device_ns] = start.open.own.spent_until(now);
        let ns = now.saturating_sub(start.since);
        if let Some(sum) = self.sum_of(start, ctx) {
            sum.requests += 1;
            sum.ns += ns;
            sum.device_ns += device_ns;
            sum.longest_ns = sum.longest_ns.max(Some(ns));
        }
    }

    /// Adds the bytes that were asked for to the sums of the submitter or file, and returns these. None: they do not count.
    fn sum_of(&mut self, start: &OpenStart<BlockRequest>, ctx: &mut Context) -> Option<&mut SubmitterSum> {
        let OpenStart { open, .. } = start;
        if !open.own.is_wanted || open.own.is_passed_on {
            return None;
        }
        let sum = match (self.args.by.of_tasks(), &mut self.files) {
            (None, Some(files)) => files.sum(open.own.file),
            (by, _) => self.by_task.sum(by.unwrap_or(TaskGrouping::Process).key(open.tid, open.comm, &mut ctx.tasks)),
        };
        sum.bytes += open.own.asked_bytes;
        Some(sum)
    }

    /// I/O joins the request of another task or file, and is no request of its own.
    fn joined(&mut self, key: RequestKey, ctx: &mut Context) {
        if let Some(start) = self.relation.forget(key) {
            self.sum_of(&start, ctx);
        }
    }

    /// I/O is passed on to a device below: it still belongs to the task that asked the device above.
    fn passed_on(&mut self, above: RequestKey, key: RequestKey, request: BlockRequest, now: u64) {
        let known = self.relation.get(above).filter(|_| above.device != key.device);
        if let Some(OpenStart { open, .. }) = known.copied() {
            let BlockRequest { is_wanted, file, .. } = open.own;
            let own = BlockRequest { is_passed_on: true, is_wanted, file, ..request };
            self.relation.add_start(key, OpenStart { since: now, open: PairStart { own, ..open } });
        }
    }

    /// I/O is split in two: the rest has begun with it.
    fn split(&mut self, key: RequestKey, at_sector: u64) {
        let Some(start) = self.relation.get(key).copied() else { return };
        let sector = start.open.own.sector;
        let first = at_sector.saturating_sub(sector);
        let left = start.open.own.sectors_left.saturating_sub(first);
        self.relation.move_start(key, key, |start| start.own.set_sectors(sector, first));
        let mut rest = start;
        rest.open.own.set_sectors(at_sector, left);
        self.relation.add_start(key.at(at_sector), rest);
    }

    /// Hands over the occurrence of a request. `error`: None if it goes on.
    fn show(
        &mut self,
        key: RequestKey,
        start: &OpenStart<BlockRequest>,
        time: u64,
        error: Option<i64>,
        ctx: &mut Context,
    ) {
        let OpenStart { since, open } = start;
        let BlockRequest { kind, sector, bytes, .. } = open.own;
        let issued = self.disks.now(key.device);
        let slow = SlowRequest {
            ns: time.saturating_sub(*since),
            device: self.name(key.device),
            kind,
            sector,
            bytes,
            spent_ns: open.own.spent_until(time),
            others: issued.saturating_sub(u64::from(error.is_none() && key.is_issued)),
            error: error.unwrap_or(0),
            goes_on: error.is_none(),
            file: open.own.file,
            told_file: self.files.as_ref().and_then(|files| files.told(open.own.file)),
        };
        let subject = Subject { time, cpu: open.cpu, pid: open.pid, tid: open.tid, comm: open.comm };
        ctx.emit(&SLOW, subject, &slow, open.stack);
    }

    fn show_open(&mut self, due: &[(RequestKey, OpenStart<BlockRequest>)], now: u64, ctx: &mut Context) {
        for (key, start) in due.iter().filter(|(_, start)| start.open.own.is_wanted) {
            self.show(*key, start, now, None, ctx);
        }
    }

    /// The rows of the interval: done requests, and those that go on.
    fn rows(&mut self, now: Timestamp) -> Vec<RequestRow> {
        let waiting = self.relation.waiting_by(now, |key, start| RequestsOf {
            device: key.device,
            kind: start.open.own.kind,
            is_wanted: start.open.own.is_wanted,
        });
        let mut sums: FxHashMap<_, _> = self.relation.rows.take().into_iter().collect();
        for of in waiting.keys() {
            sums.entry(*of).or_default();
        }
        let wanted = sums.into_iter().filter(|(of, _)| of.is_wanted);
        wanted
            .map(|(of, sums)| RequestRow {
                device: self.name(of.device),
                kind: of.kind,
                latency: sums.latency,
                bytes: sums.own.bytes,
                errors: sums.own.errors,
                sequential: sums.own.sequential,
                spent_ns: sums.own.spent_ns,
                than: sums.than,
                no_start: sums.no_start,
                now: waiting.get(&of).map(|open| open.count),
            })
            .collect()
    }
}

impl Profiler for Blktrace {
    fn init(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        self.devices = BlockDevices::of_machine();
        let find = |text: &String| self.devices.find(text).map_err(|err| usage(format!("-d: {err}")));
        self.asked = self.args.device.as_ref().map(find).transpose()?;
        self.scope = setup.scope.clone();
        self.disks = Disks::start(setup.host);
        if self.args.by.of_tasks().is_none() || self.args.lengths.shows_any() {
            let disk = self.asked.as_ref().map(|asked| asked.disk);
            self.files = Some(RequestsByFile::start(evlist, setup, &self.devices, disk)?);
        }
        EVENTS.into_iter().try_for_each(|(name, step)| self.add_event(name, step, evlist, setup))
    }

    fn sample(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let Some(of) = self.events.iter().find(|of| of.event == event) else {
            return self.files.as_mut().map_or(Ok(Use::Ignored), |files| files.take(event, sample));
        };
        let (raw, now, step) = (sample.raw, sample.time, of.step);
        let number = |field: &Option<Field>| field.as_ref().map_or(Ok(0), |field| field.read_u64(raw));
        let device =
            |field: &Field| Ok::<_, anyhow::Error>(self.devices.disk(BlockDevice(field.read_u64(raw)? as u32)));
        let (sector, sectors, rwbs) = (of.sector.read_u64(raw)?, number(&of.sectors)?, of.rwbs.text(raw)?);
        let kind = RequestKind::parse(rwbs, sectors);
        let is_flush = kind == RequestKind::Flush;
        let key = RequestKey { device: device(&of.device)?, sector: (!is_flush).then_some(sector), is_issued: false };
        let mut request = BlockRequest::new(kind, sector, sectors, RequestStage::Entry, now);
        request.asks_flush = rwbs.first() == Some(&b'F');
        if let Some(files) = self.files.as_mut().filter(|_| step == BlockStep::Asked) {
            let device = BlockDevice(of.device.read_u64(raw)? as u32);
            let io = AskedIo { tid: sample.tid, time: now, device, rwbs, bytes: request.bytes };
            request.file = files.of_io(&io, &self.devices);
        }
        match step {
            BlockStep::Asked => self.asked(key, request, sample, ctx),
            BlockStep::Got => self.got(key, request, sample, ctx),
            BlockStep::Queued => {
                self.enter(key, key, RequestStage::Queue, now);
            }
            BlockStep::Issued => self.issued(key, request, now),
            BlockStep::GivenBack => {
                if self.enter(key.issued(), key, RequestStage::Queue, now) {
                    self.disks.ended(key.device);
                }
            }
            BlockStep::Done => {
                let error = of.error.as_ref().map_or(Ok(0), |field| field.read_i64(raw))?;
                self.done(key.issued(), &request, error, sample, ctx);
            }
            BlockStep::DoneBelow => {
                let error = of.error.as_ref().map_or(Ok(0), |field| field.read_i64(raw))?;
                self.done(key, &request, error, sample, ctx);
            }
            BlockStep::JoinedBehind => self.joined(key, ctx),
            BlockStep::JoinedBefore => {
                self.joined(key, ctx);
                let joined = key.at(sector.saturating_add(sectors));
                self.relation.move_start(joined, key, |start| start.own.sector = sector);
            }
            BlockStep::Split => {
                let at_sector = number(&of.new_sector)?;
                self.split(key.at(sector), at_sector);
            }
            BlockStep::PassedOn => {
                let Some((above, above_sector)) = &of.above else { return Ok(Use::Ignored) };
                let sector = (!is_flush).then_some(above_sector.read_u64(raw)?);
                let above = RequestKey { device: device(above)?, sector, is_issued: false };
                self.passed_on(above, key, request, now);
            }
        }
        Ok(Use::Relevant)
    }

    fn on(&mut self, event: Event<'_>, ctx: &mut Context) {
        self.relation.on(&event, ctx);
        match event {
            Event::Stopped { now } => {
                let due = self.relation.open_lines_at_end(now, ctx);
                self.show_open(&due, now, ctx);
            }
            Event::Lost(..) => {
                self.disks.forget();
                self.files.iter_mut().for_each(RequestsByFile::forget);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, ctx: &mut Context) -> TickOutcome {
        let due = self.relation.tick(now, ctx);
        self.show_open(&due, now, ctx);
        TickOutcome::default()
    }

    fn interval(&mut self, now: Timestamp, report: &mut Report) -> Result<()> {
        let unpaired = self.relation.end_interval(now, report);
        let rows = self.rows(now);
        let in_text = rows.iter().any(|row| row.than > 0) || !self.args.lengths.only_than();
        let stages: Vec<(StageOf, Latency)> = self.stages.drain().collect();
        let stages = stages.into_iter().map(|(StageOf { device, stage }, latency)| {
            let device = self.name(device);
            StageRow { device, stage, latency }
        });
        let stages = stages.collect();
        let verdict = unpaired.verdict(false);
        report.delta(&REQUESTS, rows).judged(verdict).below(unpaired.in_words()).in_text(in_text);
        report.delta(&STAGES_OF_ALL, stages).judged(verdict).in_text(in_text);
        let disks = self.disks.take_rows(&self.names);
        let has_disks = !disks.is_empty();
        report.delta(&DISKS, disks).in_text(in_text && has_disks);
        let last = match (self.args.by, &mut self.files) {
            (by @ (RequestGrouping::File | RequestGrouping::Directory), Some(files)) => {
                report.delta(&FILES, files.take_rows(by == RequestGrouping::Directory, self.args.depth))
            }
            _ => report.delta(&SUBMITTERS, self.by_task.drain().collect()),
        };
        last.judged(verdict).text_rows(self.args.top as usize).in_text(in_text);
        unpaired.report(report);
        Ok(())
    }

    fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.relation.stacks());
        used.extend(self.stages.iter().filter_map(|(_, latency)| latency.worst.and_then(|case| case.stack)));
    }
}
