//! Replays recorded rings to a profiler, without kernel and clock, with the same result each time.
//!
//! Used by `benches/replay.rs`, which records rings and counts the instructions of [`Replay`] with callgrind, and for
//! `tests/snapshots.rs`, which compares what a whole run prints ([`RunReplay`]).

use std::fs;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use perf_event_open_sys::bindings::PERF_RECORD_LOST;

use crate::cli::CallGraph;
use crate::host::Host;
use crate::output::metrics::SnapshotCell;
use crate::output::metrics::answers::ScrapeAnswers;
use crate::output::screen::{ScreenFrames, ScreenPort};
use crate::output::sink::Sink;
use crate::output::{Output, SettingsSender};
use crate::perf::classes::Class;
use crate::perf::evlist::Evlist;
use crate::perf::target::Target;
use crate::profiler::{Profiler, Setup, Timestamp, TracefsFinder};
use crate::ringbuf::sim::Producer;
use crate::ringbuf::{DrainLimit, Merge, RingBuf, Stamp};
use crate::run::dispatcher::{Dispatcher, RecordCounts};
use crate::run::rings::deliver;
use crate::run::{Options, Run, StopReason};
use crate::symbol::Stacks;
use crate::sys;
use crate::sys::poll::Waker;
use crate::sys::replayed::ReplayedClock;
use crate::task::Watched;
use crate::tep::tracefs::Tracefs;

/// Stands for [`Class::Side`] in place of a class number.
const SIDE: u32 = u32::MAX;

/// The records of a run, as the reader found them in the rings, round by round. Samples of event N have the identifier
/// N + 1.
///
/// All numbers have 8 bytes. The file has the number of rings; for each ring its CPU in the upper half and its class in
/// the lower half; then for each round the clock, and for each ring the length of its records and the records.
#[derive(Clone, Debug)]
pub struct Recording {
    pub places: Vec<(u32, Class)>,
    pub rounds: Vec<RecordedRound>,
}

#[derive(Clone, Debug, Default)]
pub struct RecordedRound {
    pub now_ns: Timestamp,
    /// The records by ring.
    pub records: Vec<Vec<u8>>,
}

impl Recording {
    /// # Errors
    /// The recording is incomplete.
    pub fn parse(mut bytes: &[u8]) -> Result<Recording> {
        let mut places = Vec::new();
        for _ in 0..number(&mut bytes)? {
            let place = number(&mut bytes)?;
            let class = if place as u32 == SIDE { Class::Side } else { Class::Events(place as u32 as usize) };
            places.push(((place >> 32) as u32, class));
        }
        let mut rounds = Vec::new();
        while !bytes.is_empty() {
            let mut round = RecordedRound { now_ns: number(&mut bytes)?, records: Vec::new() };
            for _ in &places {
                let length = usize::try_from(number(&mut bytes)?)?;
                let (records, rest) = bytes.split_at_checked(length).context("the recording is cut")?;
                round.records.push(records.to_vec());
                bytes = rest;
            }
            rounds.push(round);
        }
        Ok(Recording { places, rounds })
    }

    pub fn bytes(&self) -> Vec<u8> {
        let number = |number: u64| number.to_ne_bytes();
        let mut bytes = number(self.places.len() as u64).to_vec();
        for &(cpu, class) in &self.places {
            let class = if let Class::Events(class) = class { class as u32 } else { SIDE };
            bytes.extend(number(u64::from(cpu) << 32 | u64::from(class)));
        }
        for RecordedRound { now_ns, records } in &self.rounds {
            bytes.extend(number(*now_ns));
            for records in records {
                bytes.extend(number(records.len() as u64));
                bytes.extend(records);
            }
        }
        bytes
    }
}

fn number(bytes: &mut &[u8]) -> Result<u64> {
    let (number, rest) = bytes.split_first_chunk().context("the recording is cut")?;
    *bytes = rest;
    Ok(u64::from_ne_bytes(*number))
}

/// The first record of several, and the rest.
///
/// # Errors
/// The first record is incomplete.
pub fn split_record(records: &[u8]) -> Result<(&[u8], &[u8])> {
    let header = records.first_chunk::<8>().context("a record is cut")?;
    let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    let parts = records.split_at_checked(size).filter(|_| size >= header.len());
    parts.with_context(|| format!("a record of {size} bytes is cut"))
}

/// What replaces parts of the machine in a replay. The default replaces nothing.
#[derive(Default)]
pub(super) struct ReplayedMachine {
    pub host: Host,
    pub tracefs: TracefsFinder,
    pub sink: Option<Sink>,
    pub screen: Option<ScreenPort>,
    pub metrics: Option<SnapshotCell>,
    pub rings: Option<Vec<(u32, Class, RingBuf)>>,
}

/// A replay of a whole run.
#[derive(Clone, Copy, Debug)]
pub struct RunReplay<'a> {
    pub recording: &'a Recording,
    /// The directory of the recording: formats of the events in `events`, and optionally `proc` and `cpu`, which
    /// replace /proc and the CPUs in /sys. From round N on, /proc/stat is `stat/N`, if there is such a file. The replay
    /// writes to `proc`.
    pub directory: &'a Path,
    /// Size of a ring of events: the replay drops records that do not fit, as the kernel does.
    pub ring_bytes: usize,
    /// The columns and lines of a screen, on which tables are shown.
    pub screen: Option<(u16, u16)>,
}

/// The output of a replayed run.
#[derive(Clone, Debug, Default)]
pub struct ReplayOutput {
    /// Results and lines for stderr.
    pub printed: String,
    /// The screen before the run ended.
    pub screen: Vec<String>,
    /// The last metrics page, if metrics were asked for.
    pub metrics: String,
}

/// Size of the ring of side records.
const SIDE_RING_BYTES: usize = 1 << 20;

impl RunReplay<'_> {
    /// Plays the recording to profilers.
    ///
    /// # Errors
    /// An event is not in `directory`; a record is larger than a ring; the run fails.
    pub fn play(&self, mut options: Options, profilers: Vec<Box<dyn Profiler>>) -> Result<ReplayOutput> {
        let first = self.recording.rounds.first().context("a recording without rounds")?;
        let clock = ReplayedClock::start(first.now_ns);
        // Copies of stacks are not recorded.
        options.views.iter_mut().for_each(|view| view.call_graph = CallGraph::FramePointers);
        let bytes = |class| if class == Class::Side { SIDE_RING_BYTES } else { self.ring_bytes };
        let producer =
            |&(_, class): &(u32, Class)| Ok(Producer::of_bytes(bytes(class))?.with_lost_records(lost_record));
        let mut producers: Vec<Producer> = self.recording.places.iter().map(producer).collect::<io::Result<_>>()?;
        let places = self.recording.places.iter().zip(&producers);
        let rings =
            places.map(|(&(cpu, class), producer)| Ok((cpu, class, producer.ring()?))).collect::<io::Result<_>>()?;
        let (sink, mut written) = Sink::memory()?;
        let (frames, port) = self.screen.map(|_| ScreenFrames::open()).transpose()?.unzip();
        let metrics = options.metrics.map(|_| SnapshotCell::default());
        let machine = ReplayedMachine {
            host: Host { proc: self.directory.join("proc"), cpu: self.directory.join("cpu") },
            tracefs: TracefsFinder::at(Tracefs::at(self.directory)),
            sink: Some(sink),
            screen: port,
            metrics: metrics.clone(),
            rings: Some(rings),
        };
        self.set_cpu_times(0)?;
        let mut run = Run::over(options, profilers, Some(machine))?;
        run.begin_replay();
        for (number, round) in self.recording.rounds.iter().enumerate() {
            clock.set(round.now_ns);
            self.set_cpu_times(number)?;
            for (index, (records, producer)) in round.records.iter().zip(&mut producers).enumerate() {
                run.fill(index, self.recording.places[index].1, records, producer)?;
            }
            run.play_round()?;
            if run.core.has_enough() {
                break;
            }
        }
        let screen = frames.zip(self.screen).map(|(frames, (columns, lines))| frames.lines(columns, lines));
        let stop = if run.core.has_enough() { StopReason::Enough } else { StopReason::Asked };
        run.finish(stop)?;
        let mut printed = String::new();
        written.rewind()?;
        written.read_to_string(&mut printed)?;
        Ok(ReplayOutput {
            printed,
            screen: screen.unwrap_or_default(),
            metrics: metrics.map_or_else(String::new, page),
        })
    }

    /// Installs /proc/stat as it was in a round.
    fn set_cpu_times(&self, round: usize) -> io::Result<()> {
        let recorded = self.directory.join("stat").join(round.to_string());
        if recorded.exists() { fs::copy(recorded, self.directory.join("proc/stat")).map(drop) } else { Ok(()) }
    }
}

impl Run {
    fn begin_replay(&mut self) {
        let now_ns = sys::monotonic_ns();
        (self.start_ns, self.interval.start_ns, self.core.ctx.started_ns) = (now_ns, now_ns, now_ns);
        self.core.ctx.tasks.scan();
        self.core.started(now_ns);
    }

    /// Writes records into a ring.
    fn fill(&mut self, index: usize, class: Class, mut records: &[u8], producer: &mut Producer) -> Result<()> {
        let layout = if let Class::Events(class) = class { class } else { 0 };
        let (layouts, before) = (&self.core.layouts, producer.dropped());
        while !records.is_empty() {
            let (record, rest) = split_record(records)?;
            let time_ns = match layouts.get(layout).map(|layout| Dispatcher::stamp(layout, record)) {
                Some(Stamp::At(time_ns) | Stamp::Here(time_ns)) => time_ns,
                _ => sys::monotonic_ns(),
            };
            let is_lost = !producer.write(record, time_ns);
            ensure!(!is_lost || class != Class::Side, "there are too many records of tasks");
            records = rest;
        }
        self.rings.lose_in_replay(index, producer.dropped() - before);
        Ok(())
    }

    /// Runs one round, as in a run.
    fn play_round(&mut self) -> Result<()> {
        self.wakeups += 1;
        self.round(DrainLimit::Horizon);
        self.core.compare_counts(self.rings.complete_to());
        self.core.judge_idle(sys::monotonic_ns());
        self.core.tick(self.rings.complete_to());
        let now_ns = sys::monotonic_ns();
        self.core.ctx.output.flush_round(now_ns);
        let interval_ns = self.options.interval.map_or(u64::MAX, |interval| interval.as_nanos() as u64);
        self.interval.is_due |= self.core.last_tick.wants_report;
        self.interval.is_due |= now_ns.saturating_sub(self.interval.start_ns) >= interval_ns;
        if self.interval.is_due {
            self.report()?;
        }
        self.core.check_tasks(now_ns);
        self.core.expire(now_ns);
        self.core.ctx.output.settle();
        Ok(())
    }
}

/// The metrics page that a client gets.
fn page(snapshots: SnapshotCell) -> String {
    let answer = ScrapeAnswers::new(snapshots).respond(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
    let answer = String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned();
    answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// A LOST record about `lost` records: the id of the ring's event, their number, and the sample_id trailer.
fn lost_record(lost: u64, time_ns: u64) -> Vec<u8> {
    const SIZE: u16 = 56;
    let header = u64::from(PERF_RECORD_LOST) | u64::from(SIZE) << 48;
    let words = [header, 0, lost, 0, time_ns, 0, 0];
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Pages of a ring of events, as many as in the recorded run.
pub const RING_PAGES: usize = 2048;

/// A run of one profiler over rings that the caller fills.
pub struct Replay {
    core: Dispatcher,
    merge: Merge,
    rings: Vec<Producer>,
    /// CPU and class of each ring.
    places: Vec<(u32, Class)>,
    loaded_ns: u64,
    _settle: SettingsSender,
}

/// Numbers of samples: all, malformed, late, discarded, and lost on the way to the output.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    pub samples: u64,
    pub malformed: u64,
    pub late: u64,
    pub discarded: u64,
    pub lost_output: u64,
}

impl Replay {
    /// `tracefs` has the formats of the profiler's events; samples of event N have the identifier N + 1. `stacks`: as
    /// in [`Setup`].
    ///
    /// # Errors
    /// An event is not in `directory`, or there is no memory for the rings.
    pub fn new(
        mut profiler: Box<dyn Profiler>,
        directory: &Path,
        stacks: bool,
        places: Vec<(u32, Class)>,
    ) -> Result<Replay> {
        let host = Host { proc: directory.join("proc"), cpu: directory.join("cpu") };
        let (target, tracefs) = (Target::everything(), TracefsFinder::at(Tracefs::at(directory)));
        let watched = Watched::new(&target, &host);
        let mut setup = Setup::new(&tracefs, &target, &host, &watched, [i32::MAX - 1, i32::MAX]);
        setup.stacks = stacks;
        let mut evlist = Evlist::new();
        profiler.init(&mut evlist, &setup)?;
        profiler.filter(&mut evlist, &setup)?;
        evlist.assign_ids();
        let scope = setup.scope;
        // The output thread waits for settings that never come, so it prints nothing.
        let (output, settle) = Output::start(Sink::file("/dev/null".as_ref())?, Arc::new(Waker::new()?))?;
        let core = Dispatcher::new(evlist, vec![profiler], watched, scope, Stacks::new(64 << 20, 127), host, output);
        let mut merge = Merge::new();
        let rings: Vec<Producer> = places.iter().map(|_| Producer::new(RING_PAGES)).collect::<io::Result<_>>()?;
        for ring in &rings {
            merge.add(ring.ring()?);
        }
        Ok(Replay { core, merge, rings, places, loaded_ns: 0, _settle: settle })
    }

    /// Notifies the profiler that its events are enabled.
    pub fn start(&mut self, now: u64) {
        self.core.ctx.started_ns = now;
        self.core.started(now);
    }

    /// Writes complete records into a ring.
    ///
    /// # Errors
    /// The records are incomplete, or the ring has no room for them.
    pub fn write(&mut self, ring: usize, mut records: &[u8]) -> Result<()> {
        while !records.is_empty() {
            let (record, rest) = split_record(records)?;
            let written = self.rings.get_mut(ring).is_some_and(|ring| ring.write(record, 0));
            ensure!(written, "a record of {} bytes does not fit into ring {ring}", record.len());
            records = rest;
        }
        Ok(())
    }

    /// One round, as in a run: the part whose instructions are counted.
    #[inline(never)]
    pub fn replay_round(&mut self, now: u64, is_last: bool) {
        self.merge.load(now);
        let limit = if is_last { DrainLimit::All } else { DrainLimit::Horizon };
        let Replay { core, merge, places, .. } = self;
        deliver(merge, limit, core, |ring| places.get(ring).copied().unwrap_or((0, Class::Side)));
    }

    /// The work between rounds, as in a run.
    pub fn tick(&mut self, now: u64) {
        self.core.tick(self.loaded_ns);
        self.core.ctx.output.flush();
        self.loaded_ns = now;
    }

    pub fn played(&self) -> Played {
        let RecordCounts { malformed, late, .. } = self.core.records;
        let samples = self.core.samples();
        let lost_output = self.core.ctx.output.dropped();
        Played { samples, malformed, late, discarded: self.core.ctx.view.discarded, lost_output }
    }
}
