//! A dry run, which forecasts the cost of a run: its events are counted without rings, and sampled in short phases
//! between the counted ones.
//!
//! Counting is exact and costs next to nothing; it gives the rates and the bursts. Only samples show the size of
//! records, the time to read them, and whether writing them slows the load down.
//!
//! Reading a counter, and starting or stopping an event, waits for an answer of its CPU. A paced run must not wait, so
//! its forecast comes from samples alone.

mod book;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::host::memory_bytes;
use crate::output::forecast::{EventForecast, Forecast, ForecastPace, RingAllowance, RingForecast};
use crate::output::sink::Sink;
use crate::perf::EventId;
use crate::perf::attr::SamplesPerCount;
use crate::perf::evlist::counters::EventCounters;
use crate::perf::evsel::Evsel;
use crate::ringbuf::DrainLimit;
use crate::run::forecast::book::{ForecastBook, Phase, RingDemand, rate};
use crate::run::meter::{Meter, Metered};
use crate::run::ring_sizes::{default_ring_pages, most_pages};
use crate::run::rings::why_shrunk;
use crate::run::wake::WakeReasons;
use crate::run::windows::LEAST_IN_RING;
use crate::run::{FOLLOW_UP, LATENCY, Run, StopReason};
use crate::sys;
use crate::sys::affinity::CpuMask;
use crate::sys::process::Workload;
use crate::task::run_delay::RunDelay;
use crate::tep::format::field::FieldKind;

/// Counting time without `--for`.
const DEFAULT_COUNTING: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(100);
/// Total length of the sampled phases.
const SAMPLED: Duration = Duration::from_millis(450);
/// Number of counted phases, with a sampled phase after each, so that changes of the load itself show in both kinds.
const TURNS: usize = 10;
/// Time between two readings of the counters, unless there are very many. Each wake-up of perf-prof disturbs the load.
const STEP_NS: u64 = 50_000_000;
/// Least value assumed for the longest time for which a busy machine keeps perf-prof off the CPU.
const AWAY_NS: u64 = 100_000_000;

const CANNOT_ENABLE: &str = "cannot start or stop the events";

/// CPU time that sampling took.
#[derive(Clone, Copy, Debug, Default)]
struct SamplingCost {
    /// Total length of the sampled phases.
    ns: u64,
    reader_ns: u64,
    /// Time in which the reader was runnable, but did not have a CPU.
    delay_ns: u64,
    /// CPU time of perf-prof's other threads, which process samples during the counted phases, too.
    others_ns: u64,
    samples: u64,
}

impl SamplingCost {
    /// The share of a CPU that other tasks leave to the reader.
    fn share(&self) -> f64 {
        let wanted = self.reader_ns + self.delay_ns;
        if wanted == 0 { 1.0 } else { self.reader_ns as f64 / wanted as f64 }
    }

    /// CPU use of the reader, and of perf-prof's other threads, at `scale` times as many samples. Each is 1 at most.
    fn cpus(&self, scale: f64) -> [f64; 2] {
        [self.reader_ns, self.others_ns].map(|ns| (rate(ns as f64, self.ns) / 1e9 * scale).min(1.0))
    }
}

/// The state of a dry run.
struct DryRun {
    /// By event, bytes of its tracepoint data, estimated from its format.
    raw_bytes: Vec<usize>,
    /// None: numbers come from the samples themselves.
    counters: Option<EventCounters>,
    /// Counts of the events at the last read.
    before: Vec<u64>,
    book: ForecastBook,
    cost: SamplingCost,
    /// `cost` is from phases after the warm-up.
    is_warm: bool,
    /// Total length of phases with samples, including the warm-up.
    sampling_ns: u64,
    /// CPU time of the other threads before the first sample that counts.
    others_before_ns: u64,
    delay: RunDelay,
    /// The reader's run delay in this phase.
    delay_ns: u64,
    /// The longest time for which perf-prof was kept off the CPU or was busy with one round.
    away_ns: u64,
    end: Option<StopReason>,
}

impl DryRun {
    fn counters(&self) -> usize {
        self.counters.as_ref().map_or(0, EventCounters::len)
    }

    /// Number of counted phases: fewer with many counters, as starting and stopping each waits for an answer of its
    /// CPU.
    fn turns(&self, counted: Duration) -> u32 {
        const LEAST: usize = 3;
        let most = TURNS.min((counted.as_nanos() / u128::from(STEP_NS)) as usize);
        (5000 / self.counters().max(1)).min(most).max(LEAST) as u32
    }
}

/// The share of a CPU that is left to the reader if perf-prof's other threads use `others` of the `cpus` that they all
/// may use: without room for both, the scheduler gives the reader half.
fn left_to_reader(cpus: usize, others: f64) -> f64 {
    (cpus as f64 - others).clamp(0.5, 1.0)
}

/// CPU time of all threads but the calling one.
fn others_ns() -> u64 {
    let (own, all) = sys::cpu_ns();
    all.saturating_sub(own)
}

impl Run {
    /// Counts and samples, and prints the forecast. Returns the exit code.
    ///
    /// # Errors
    /// The workload cannot be executed; the events cannot be counted; stdout cannot be written.
    pub fn forecast(mut self) -> Result<u8> {
        let counted = self.options.duration.unwrap_or(DEFAULT_COUNTING);
        if let Some(workload) = &self.workload {
            let most = (WARM_UP + SAMPLED + counted).as_secs_f64();
            let line = format!("--dry-run runs {:?} for {most:.1} s at most, then ends it", workload.name());
            self.core.ctx.output.note(line);
        }
        let events = self.core.evlist.iter_with_windows().count();
        self.core.meter = Some(Meter::new(events, self.options.paced));
        let counters = if self.options.paced { None } else { Some(self.core.evlist.open_counters()?) };
        let raw_bytes = self.core.evlist.iter_with_windows().map(|(_, evsel)| self.raw_bytes(evsel)).collect();
        let mut dry_run = DryRun {
            raw_bytes,
            counters,
            before: Vec::new(),
            book: ForecastBook::new(events),
            cost: SamplingCost::default(),
            is_warm: false,
            sampling_ns: 0,
            others_before_ns: others_ns(),
            delay: RunDelay::open(),
            delay_ns: 0,
            away_ns: 0,
            end: None,
        };
        self.begin()?;
        if let Some(counters) = &dry_run.counters {
            counters.enable(false).context(CANNOT_ENABLE)?; // they were enabled with the events
        }
        self.run_phases(counted, &mut dry_run)?;
        if !self.options.paced {
            sys::perf::disable_all().context("cannot stop the events")?;
        }
        self.round(DrainLimit::All);
        if let Some(hits) = self.probes.hits_so_far() {
            let looked_ns = sys::monotonic_ns().saturating_sub(self.start_ns);
            self.core.ctx.output.note(hits.forecast(looked_ns));
        }
        let mut forecast = self.make_forecast(&mut dry_run);
        drop(dry_run); // probes cannot be removed while counters of them are open
        forecast.ring.allowed = self.allowed(&forecast.ring)?;
        let (json, mut sink) = (self.options.json, Sink::stdout()?);
        self.leave(Vec::new())?;
        forecast.print(json, &mut sink.buffer);
        sink.finish()
    }

    /// What the meter found, by event.
    fn metered(&self) -> &[Metered] {
        self.core.meter.as_ref().map_or(&[], Meter::by_event)
    }

    /// Runs the phases until the end of the dry run.
    fn run_phases(&mut self, counted: Duration, dry_run: &mut DryRun) -> Result<()> {
        self.phase(Phase::WarmUp, WARM_UP, dry_run)?;
        if dry_run.counters.is_none() {
            if dry_run.end.is_none() {
                dry_run.others_before_ns = others_ns();
            }
            // The events are sampled throughout; in the counted phase the meter is read in short steps.
            self.phase(Phase::Sampled, SAMPLED, dry_run)?;
            dry_run.cost.others_ns = others_ns().saturating_sub(dry_run.others_before_ns);
            return self.phase(Phase::Counted, counted, dry_run);
        }
        let turns = dry_run.turns(counted);
        // If a busy machine prolongs a phase, the next ones are shorter.
        let next = |turn: u32, dry_run: &DryRun| {
            counted.saturating_sub(Duration::from_nanos(dry_run.book.counted_ns())) / (turns - turn).max(1)
        };
        self.phase(Phase::Counted, next(0, dry_run), dry_run)?;
        if dry_run.end.is_none() {
            dry_run.others_before_ns = others_ns(); // without the rest of the warm-up
        }
        for turn in 1..turns {
            self.phase(Phase::Sampled, SAMPLED / (turns - 1), dry_run)?;
            self.phase(Phase::Counted, next(turn, dry_run), dry_run)?;
        }
        dry_run.cost.others_ns = others_ns().saturating_sub(dry_run.others_before_ns);
        Ok(())
    }

    /// Runs one phase, unless the dry run has ended.
    fn phase(&mut self, phase: Phase, time: Duration, dry_run: &mut DryRun) -> Result<()> {
        if dry_run.end.is_some() {
            return Ok(());
        }
        let counts = phase == Phase::Counted && dry_run.counters.is_some();
        match &dry_run.counters {
            Some(counters) if counts => counters.enable(true).context(CANNOT_ENABLE)?,
            Some(_) if phase == Phase::Sampled => self.core.evlist.enable_samples(true).context(CANNOT_ENABLE)?,
            _ => {} // enabled from the start
        }
        dry_run.book.begin(phase);
        self.take(phase, dry_run); // counts before this phase do not belong to it
        let used = self.watch(phase, time, dry_run)?;
        match &dry_run.counters {
            Some(counters) if counts => return counters.enable(false).context(CANNOT_ENABLE),
            Some(_) => self.core.evlist.enable_samples(false).context(CANNOT_ENABLE)?,
            None => {}
        }
        dry_run.sampling_ns += used.ns;
        // The records still in the rings belong to this phase.
        let (before, samples) = (sys::cpu_ns().0, self.samples_read());
        self.round(DrainLimit::All);
        self.core.ctx.output.flush();
        if phase != Phase::Counted {
            // The cost of the warm-up counts only if the workload ends in it.
            if !std::mem::replace(&mut dry_run.is_warm, phase == Phase::Sampled) {
                dry_run.cost = SamplingCost::default();
            }
            dry_run.cost.ns += used.ns;
            dry_run.cost.reader_ns += used.reader_ns + sys::cpu_ns().0.saturating_sub(before);
            dry_run.cost.delay_ns += dry_run.delay_ns;
            dry_run.cost.samples += used.samples + self.samples_read() - samples;
        }
        Ok(())
    }

    /// Reads records or counters for `time`. Returns the cost.
    fn watch(&mut self, phase: Phase, time: Duration, dry_run: &mut DryRun) -> Result<SamplingCost> {
        // Reading a counter interrupts its CPU.
        let step = STEP_NS * (1 + dry_run.counters() as u64 / 500);
        let counts = phase == Phase::Counted;
        let step = if counts { step } else { LATENCY.as_nanos() as u64 };
        let (start, before, samples) = (sys::monotonic_ns(), sys::cpu_ns().0, self.samples_read());
        let until = start.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (mut begun, mut next) = (start, start + step);
        let mut follow_up = false;
        dry_run.delay_ns = 0;
        while dry_run.end.is_none() {
            let now = sys::monotonic_ns();
            let mut wait = Duration::from_nanos(next.min(until).saturating_sub(now));
            if follow_up {
                wait = wait.min(FOLLOW_UP);
            }
            dry_run.end = self.serve(wait, &mut follow_up, dry_run)?;
            let now = sys::monotonic_ns();
            if now >= next || now >= until || dry_run.end.is_some() {
                if counts {
                    self.count(phase, dry_run);
                    dry_run.book.end_step(now - begun);
                }
                (begun, next) = (now, now + step);
            }
            if now >= until {
                break;
            }
        }
        let (ns, reader_ns) = (sys::monotonic_ns() - start, sys::cpu_ns().0.saturating_sub(before));
        dry_run.book.end(ns);
        let samples = self.samples_read() - samples;
        if !counts {
            self.count(phase, dry_run); // not part of the cost: a run does not count
        }
        Ok(SamplingCost { ns, reader_ns, samples, ..SamplingCost::default() })
    }

    /// The counts since the last call, by CPU and event.
    fn take(&mut self, phase: Phase, dry_run: &mut DryRun) -> Vec<(u32, EventId, u64)> {
        match &mut dry_run.counters {
            None => self.core.meter.as_mut().map(Meter::take_fresh).unwrap_or_default(),
            Some(counters) if phase == Phase::Counted => counters.take(),
            Some(_) => {
                let counts = self.core.evlist.read_counts();
                let before = std::mem::replace(&mut dry_run.before, counts.iter().map(|count| count.2).collect());
                let since = |((cpu, event, count), before): (_, u64)| (cpu, event, u64::saturating_sub(count, before));
                counts.into_iter().zip(before.into_iter().chain(std::iter::repeat(0))).map(since).collect()
            }
        }
    }

    /// Samples that were read, including dropped ones: each has its cost.
    fn samples_read(&self) -> u64 {
        self.metered().iter().map(|metered| metered.samples).sum::<u64>() + self.core.filter.samples()
    }

    /// One turn of the loop, as in a run.
    fn serve(&mut self, wait: Duration, follow_up: &mut bool, dry_run: &mut DryRun) -> Result<Option<StopReason>> {
        let WakeReasons { signalled, ticked, .. } = self.wait(wait)?;
        let woken = sys::monotonic_ns();
        let kept = dry_run.delay.take();
        dry_run.delay_ns += kept;
        let held = self.round(DrainLimit::Horizon);
        dry_run.away_ns = dry_run.away_ns.max(kept + (sys::monotonic_ns() - woken));
        *follow_up = held && (!*follow_up || self.rings.is_backlogged());
        self.core.tick(self.rings.complete_to());
        self.core.ctx.output.flush();
        if signalled && let Some(stop) = self.take_signals()? {
            return Ok(Some(stop));
        }
        self.interval.is_due |= ticked;
        if self.interval.is_due {
            self.report()?;
        }
        let is_over = self.core.ctx.watched.is_over() || self.workload.as_mut().is_some_and(Workload::ended);
        Ok(is_over.then_some(StopReason::Asked))
    }

    fn count(&mut self, phase: Phase, dry_run: &mut DryRun) {
        let counts = self.take(phase, dry_run);
        let DryRun { raw_bytes, book, .. } = dry_run;
        let metered = self.metered();
        for (cpu, event, count) in counts {
            book.add(event.index(), count);
            if phase == Phase::Counted {
                let per_count = self.per_count(event, metered).unwrap_or(0.0);
                let records = per_count * count as f64;
                let bytes = records * self.record_bytes(event, metered, raw_bytes).0;
                book.count((cpu, self.core.evlist.ring_of(event)), event.index(), count, records, bytes);
            }
        }
    }

    /// Samples per count of an event. None: unknown.
    pub(super) fn per_count(&self, event: EventId, metered: &[Metered]) -> Option<f64> {
        if self.options.paced {
            return Some(1.0); // the counts are samples
        }
        let evsel = self.core.evlist.evsel(event);
        match evsel.attr().samples_per_count() {
            SamplesPerCount::Samples(each) => Some(each),
            SamplesPerCount::Unknown => None,
            SamplesPerCount::Periods => match metered.get(event.index()) {
                Some(weight) if weight.periods > 0 => Some(weight.samples as f64 / weight.periods as f64),
                // Only these tracepoints count more than 1 each time: ns (include/trace/events/sched.h).
                _ => (evsel.attr().tracepoint_id().is_some() && !evsel.name().starts_with("sched:sched_stat_"))
                    .then_some(1.0),
            },
        }
    }

    /// Mean size of the records of an event, and whether that is an estimate.
    fn record_bytes(&self, event: EventId, metered: &[Metered], raw_bytes: &[usize]) -> (f64, bool) {
        match metered.get(event.index()) {
            Some(weight) if weight.samples > 0 => (weight.bytes as f64 / weight.samples as f64, false),
            _ => {
                let raw = raw_bytes.get(event.index()).copied().unwrap_or(0);
                (self.estimated_bytes(event, metered, raw), true)
            }
        }
    }

    fn raw_bytes(&self, evsel: &Evsel) -> usize {
        const TEXT: usize = 16;
        let of_probe = evsel.attr().tracepoint_id().and_then(|id| self.probes.tracefs.format_of_probe(id));
        let by_name = || {
            let (system, name) = evsel.name().split_once(':')?;
            Some(Arc::new(self.probes.tracefs.get().ok()?.format(system, name).ok()?))
        };
        let format = of_probe.or_else(by_name);
        let fields = format.iter().flat_map(|format| &format.fields).map(|field| {
            let dynamic = matches!(field.kind, FieldKind::DataLoc { .. } | FieldKind::RelLoc { .. });
            (field.offset.saturating_add(field.size), if dynamic { TEXT } else { 0 })
        });
        let (end, dynamic) = fields.fold((0, 0), |(end, sum), (next, text)| (next.max(end), text + sum));
        end + dynamic
    }

    /// Estimates the size of a record from its layout, as no sample was seen.
    fn estimated_bytes(&self, event: EventId, metered: &[Metered], raw: usize) -> f64 {
        const ADDRESSES: usize = 24;
        let evsel = self.core.evlist.evsel(event);
        let (samples, addresses) =
            metered.iter().fold((0, 0), |(samples, sum), of| (samples + of.samples, sum + of.addresses));
        let addresses = addresses.checked_div(samples).map_or(ADDRESSES, |mean| mean as usize);
        let window = evsel.attr().user_window_bytes() as usize;
        (self.core.evlist.layout(event).estimated_bytes(raw, addresses) + window) as f64
    }

    /// The forecast.
    fn make_forecast(&mut self, dry_run: &mut DryRun) -> Forecast {
        let opened = self.core.evlist.iter_with_windows().filter(|(_, evsel)| evsel.is_opened());
        let mut events: Vec<EventForecast> =
            opened.map(|(event, _)| self.forecast_event(event, dry_run, self.metered())).collect();
        if let Some(note) = self.leave_out_copies(&mut events, dry_run) {
            self.core.ctx.output.note(note);
        }
        let DryRun { book, cost, .. } = &*dry_run;
        let metered = self.metered();
        let sum = |of: fn(&EventForecast) -> f64| events.iter().map(of).sum::<f64>();
        let sum_of_events =
            |of: fn(&EventForecast) -> f64| events.iter().filter(|event| !event.is_copy_of_stack).map(of).sum::<f64>();
        let per_s = sum_of_events(|event| event.per_s);
        let unwatched = sum_of_events(|event| event.unwatched_per_s.unwrap_or(event.per_s));
        let records_per_s = sum(|event| event.per_s);
        let bytes_per_s = sum(|event| event.per_s * event.record_bytes);
        let metered_bytes: u64 = metered.iter().map(|metered| metered.bytes).sum();
        let lived_ns = sys::monotonic_ns().saturating_sub(self.start_ns);
        let side_bytes_per_s =
            rate(self.core.records.bytes.saturating_sub(metered_bytes + self.core.filter.bytes()) as f64, lived_ns);
        // With few samples most of the cost is waiting, so the cost does not scale with their number.
        let scale = if cost.samples >= 1000 { records_per_s / rate(cost.samples as f64, cost.ns) } else { 1.0 };
        let busy = rate(cost.reader_ns as f64, cost.ns) / 1e9 * scale;
        let [reader, others] = cost.cpus(scale);
        let own = left_to_reader(CpuMask::of_self().map_or(usize::MAX, |cpus| cpus.count()), others);
        let need = RingDemand {
            peak_bytes: self.peak_bytes(dry_run, &events),
            bytes_per_s: sum(|event| event.busiest_per_s * event.record_bytes) + side_bytes_per_s,
            busy: busy / cost.share().min(own),
        };
        Forecast {
            profiler: self.options.name.clone(),
            time_ns: sys::monotonic_ns(),
            counted_ns: book.counted_ns(),
            sampled_ns: dry_run.sampling_ns,
            ended_early: dry_run.end.is_some(),
            cpus: self.rings.cpus(),
            counters: dry_run.counters(),
            per_s,
            unwatched_per_s: (unwatched > per_s * 1.01).then_some(unwatched),
            bytes_per_s: bytes_per_s + side_bytes_per_s,
            side_bytes_per_s,
            cpu_pct: (reader + others) * 100.0,
            pace: ForecastPace::of(busy, cost.share(), own),
            ring: self.ring_forecast(need.ring_bytes()),
            events,
        }
    }

    /// Leaves out copies of stacks that a run would turn off, since they are too frequent.
    fn leave_out_copies(&self, events: &mut Vec<EventForecast>, dry_run: &mut DryRun) -> Option<String> {
        let copies = events.iter().filter(|event| event.is_copy_of_stack);
        let bytes_per_s: f64 = copies.map(|event| event.busiest_per_s * event.record_bytes).sum();
        if !self.window_pace.ends_at(bytes_per_s) && !self.window_pace.has_ended() {
            return None;
        }
        events.retain(|event| !event.is_copy_of_stack);
        self.core.evlist.window_rings().into_iter().for_each(|class| dry_run.book.forget_rings(class));
        Some(format!(
            "copies of stacks come to {:.0} MB/s on one CPU: a run ends them, and has user stacks by frame pointers; cure: \
             --call-graph=dwarf,2K, whose copies are small; or a filter, or a larger -m",
            bytes_per_s / 1e6
        ))
    }

    fn forecast_event(&self, event: EventId, dry_run: &DryRun, metered: &[Metered]) -> EventForecast {
        let evsel = self.core.evlist.evsel(event);
        let weight = metered.get(event.index()).copied().unwrap_or_default();
        let (record_bytes, is_estimate) = self.record_bytes(event, metered, &dry_run.raw_bytes);
        let (per_s, unwatched_per_s, busiest_per_s) = match self.per_count(event, metered) {
            Some(each) => {
                let (expected, unwatched) = dry_run.book.expected(event.index());
                let slowed = unwatched.map_or(1.0, |unwatched| expected / unwatched);
                let busiest = dry_run.book.busiest(event.index()).map_or(expected, |busiest| busiest * slowed);
                let busiest = busiest.min(expected); // the two numbers come from different phases
                (expected * each, unwatched.map(|unwatched| unwatched * each), busiest * each)
            }
            // The counts of this event do not give the number of samples.
            None => {
                let per_s = rate(weight.samples as f64, dry_run.sampling_ns);
                (per_s, None, per_s)
            }
        };
        EventForecast {
            name: evsel.name().to_owned(),
            per_s,
            unwatched_per_s,
            busiest_per_s,
            record_bytes,
            is_estimate,
            frames: (weight.samples > 0 && !evsel.is_window()).then(|| weight.addresses as f64 / weight.samples as f64),
            is_copy_of_stack: evsel.is_window(),
            samples: evsel.attr().samples(),
            is_counted: self.per_count(event, metered).is_some(),
        }
    }

    /// The most bytes that may arrive in one ring while perf-prof is kept from reading it, at the event rates without
    /// sampling, since the slowdown may not occur.
    fn peak_bytes(&self, dry_run: &DryRun, events: &[EventForecast]) -> f64 {
        let away_ns = AWAY_NS.max(2 * dry_run.away_ns);
        let uncounted = |event: &&EventForecast| dry_run.book.counted_ns() == 0 || !event.is_counted;
        let bytes_per_s: f64 = events.iter().filter(uncounted).map(|event| event.per_s * event.record_bytes).sum();
        dry_run.book.peak(away_ns) + bytes_per_s * away_ns as f64 / 1e9
    }

    fn ring_forecast(&self, bytes: f64) -> RingForecast {
        const LEAST_PAGES: u64 = 16;
        let page_bytes = sys::page_size() as u64;
        let rings = self.core.evlist.rings();
        let demands = self.core.evlist.ring_demands();
        let default_pages =
            default_ring_pages(self.rings.cpus(), &demands, memory_bytes(&self.host)).into_iter().max().unwrap_or(1)
                as u64;
        let most = most_pages(self.rings.cpus(), rings) as u64;
        let evsels = self.core.evlist.iter_with_windows().map(|(_, evsel)| u64::from(evsel.attr().user_window_bytes()));
        let least_pages = (evsels.max().unwrap_or(0) * LEAST_IN_RING as u64).div_ceil(page_bytes).max(LEAST_PAGES);
        let pages = ((bytes / page_bytes as f64).ceil() as u64).max(least_pages);
        let pages = pages.checked_next_power_of_two().unwrap_or(u64::MAX);
        let asked = self.options.ring.map(|size| size.pages(page_bytes as usize) as u64);
        let asked = asked.map(|pages| pages.min(most));
        let (pages, is_most) = (pages.min(most), pages > most);
        RingForecast { pages, is_most, rings, page_bytes, asked, default_pages, allowed: None }
    }

    /// The ring size that the limits allow, if it is less than the run would ask for or should ask for. The rings of
    /// the dry run are unmapped first.
    fn allowed(&mut self, ring: &RingForecast) -> Result<Option<RingAllowance>> {
        let wanted = usize::try_from(ring.pages.max(ring.given())).unwrap_or(usize::MAX);
        let pages = self.rings.unmap_for(wanted, &mut self.core.evlist, &self.host)?;
        let (who, cure) = why_shrunk(&self.core.evlist);
        Ok((pages < wanted).then_some(RingAllowance { pages: pages as u64, who, cure }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_threads_take_from_the_reader_only_where_they_must_share() {
        for (cpus, others, want) in [(1, 0.0, 1.0), (1, 0.3, 0.7), (1, 1.0, 0.5), (2, 1.0, 1.0), (usize::MAX, 1.0, 1.0)]
        {
            assert_eq!(left_to_reader(cpus, others), want, "{cpus} {others}");
        }
    }

    #[test]
    fn the_reader_and_the_output_take_a_cpu_each_at_most() {
        let cost = SamplingCost {
            ns: 1_000_000_000,
            reader_ns: 300_000_000,
            others_ns: 700_000_000,
            ..SamplingCost::default()
        };
        assert_eq!(cost.cpus(1.0), [0.3, 0.7]);
        assert_eq!(cost.cpus(2.0), [0.6, 1.0]);
        assert_eq!(SamplingCost::default().cpus(1.0), [0.0, 0.0]);
    }
}
