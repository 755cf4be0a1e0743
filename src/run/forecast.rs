//! What a run would cost: its events are counted without rings, and sampled for moments in between.
//!
//! Counting is exact and costs next to nothing; from it come the rates and the bursts. Only samples tell how large records
//! are, what it takes to read them, and whether who raises them is slowed by that.
//!
//! Reading a counter, starting and stopping an event take an answer of its CPU. A run that does without such answers is
//! foretold from its samples alone.

mod book;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::output::forecast::{EventForecast, Forecast, ForecastPace, RingAllowance, RingForecast};
use crate::output::sink::Sink;
use crate::perf::EventId;
use crate::perf::attr::SamplesPerCount;
use crate::perf::evlist::counters::EventCounters;
use crate::perf::evsel::Evsel;
use crate::ringbuf::DrainLimit;
use crate::run::forecast::book::{ForecastBook, Need, Phase, rate};
use crate::run::meter::{Meter, Metered};
use crate::run::ring_sizes::{default_ring_pages, most_pages};
use crate::run::rings::why_shrunk;
use crate::run::{FOLLOW_UP, LATENCY, Run, Stop, Woken};
use crate::sys;
use crate::sys::affinity::CpuMask;
use crate::sys::process::Workload;
use crate::task::run_delay::RunDelay;
use crate::tep::field::FieldKind;

/// A shorter count says little.
pub const SHORTEST: Duration = Duration::from_millis(100);
const USUAL: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(100);
/// All that is sampled between the counts.
const SAMPLED: Duration = Duration::from_millis(450);
/// Counts, and one time less samples between them: what the load does by itself comes to both.
const TURNS: usize = 10;
/// Between two readings of the counters, unless there are very many. Who waits for us counts each of our wake-ups.
const STEP_NS: u64 = 50_000_000;
/// The longest that a busy machine keeps perf-prof from a CPU, at the least.
const AWAY_NS: u64 = 100_000_000;

const CANNOT_TURN: &str = "cannot start or stop the events";

/// CPU time while it sampled.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ns: u64,
    reader_ns: u64,
    /// The reader could have gone on, but others had the CPU.
    delay_ns: u64,
    /// Of the other threads, which go on with it while it is counted.
    others_ns: u64,
    samples: u64,
}

impl Cost {
    /// How much of a CPU others leave to the reader.
    fn share(&self) -> f64 {
        let wanted = self.reader_ns + self.delay_ns;
        if wanted == 0 { 1.0 } else { self.reader_ns as f64 / wanted as f64 }
    }

    /// CPUs that the reader and the other threads take, where so many times as many samples come. Neither the reader nor
    /// the output can have more than one.
    fn cpus(&self, scale: f64) -> [f64; 2] {
        [self.reader_ns, self.others_ns].map(|ns| (rate(ns as f64, self.ns) / 1e9 * scale).min(1.0))
    }
}

/// All that is found out.
struct Look {
    /// By event, what a record of it may hold, as its format says.
    raw_bytes: Vec<usize>,
    /// None: the samples are counted.
    counters: Option<EventCounters>,
    /// What the events had counted when they were read last.
    before: Vec<u64>,
    book: ForecastBook,
    cost: Cost,
    /// The cost is that of samples after the warm-up.
    is_warm: bool,
    /// When it sampled, the warm-up too.
    sampling_ns: u64,
    /// CPU time of the other threads before the first sample that counts.
    others_before_ns: u64,
    delay: RunDelay,
    /// Of this phase.
    delay_ns: u64,
    /// The longest that perf-prof was kept from a CPU, or was busy with one round.
    away_ns: u64,
    end: Option<Stop>,
}

impl Look {
    fn counters(&self) -> usize {
        self.counters.as_ref().map_or(0, EventCounters::len)
    }

    /// How often it counts: to start and stop an event takes an answer of its CPU.
    fn turns(&self, counted: Duration) -> u32 {
        const LEAST: usize = 3;
        let most = TURNS.min((counted.as_nanos() / u128::from(STEP_NS)) as usize);
        (5000 / self.counters().max(1)).min(most).max(LEAST) as u32
    }
}

/// How much of a CPU the other threads of perf-prof leave to the reader, which take `others` of the `cpus` that all may use:
/// the scheduler gives it half where there is not enough for both.
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
        let counted = self.options.duration.unwrap_or(USUAL);
        if let Some(workload) = &self.workload {
            let most = (WARM_UP + SAMPLED + counted).as_secs_f64();
            let line = format!("--dry-run runs {:?} for {most:.1} s at most, then ends it", workload.name());
            self.core.ctx.output.note(line);
        }
        let events = self.core.evlist.iter().count();
        self.core.meter = Some(Meter::new(events, self.options.paced));
        let counters = if self.options.paced { None } else { Some(self.core.evlist.open_counters()?) };
        let raw_bytes = self.core.evlist.iter().map(|(_, evsel)| self.raw_bytes(evsel)).collect();
        let mut look = Look {
            raw_bytes,
            counters,
            before: Vec::new(),
            book: ForecastBook::new(events),
            cost: Cost::default(),
            is_warm: false,
            sampling_ns: 0,
            others_before_ns: others_ns(),
            delay: RunDelay::open(),
            delay_ns: 0,
            away_ns: 0,
            end: None,
        };
        self.begin()?;
        if let Some(counters) = &look.counters {
            counters.enable(false).context(CANNOT_TURN)?; // they have begun with the rest
        }
        self.go_through(counted, &mut look)?;
        if !self.options.paced {
            sys::perf::disable_all().context("cannot stop the events")?;
        }
        self.round(DrainLimit::All);
        if let Some(hits) = self.hits_so_far() {
            let looked_ns = sys::monotonic_ns().saturating_sub(self.start_ns);
            self.core.ctx.output.note(hits.forecast(looked_ns));
        }
        let mut forecast = self.tell(&look);
        drop(look); // probes cannot be removed while they are counted
        forecast.ring.allowed = self.allowed(&forecast.ring)?;
        let (json, mut sink) = (self.options.json, Sink::stdout()?);
        self.leave(Vec::new())?;
        forecast.print(json, &mut sink.buffer);
        sink.finish()
    }

    /// By event.
    fn metered(&self) -> &[Metered] {
        self.core.meter.as_ref().map_or(&[], Meter::by_event)
    }

    /// All phases, or as many as there is something to see in.
    fn go_through(&mut self, counted: Duration, look: &mut Look) -> Result<()> {
        self.phase(Phase::WarmUp, WARM_UP, look)?;
        if look.counters.is_none() {
            if look.end.is_none() {
                look.others_before_ns = others_ns();
            }
            // It samples on and on, and looks more often when it counts.
            self.phase(Phase::Sampled, SAMPLED, look)?;
            look.cost.others_ns = others_ns().saturating_sub(look.others_before_ns);
            return self.phase(Phase::Counted, counted, look);
        }
        let turns = look.turns(counted);
        // What a busy machine makes one longer is taken from the next ones.
        let next = |turn: u32, look: &Look| {
            counted.saturating_sub(Duration::from_nanos(look.book.counted_ns())) / (turns - turn).max(1)
        };
        self.phase(Phase::Counted, next(0, look), look)?;
        if look.end.is_none() {
            look.others_before_ns = others_ns(); // they had something left of the warm-up
        }
        for turn in 1..turns {
            self.phase(Phase::Sampled, SAMPLED / (turns - 1), look)?;
            self.phase(Phase::Counted, next(turn, look), look)?;
        }
        look.cost.others_ns = others_ns().saturating_sub(look.others_before_ns);
        Ok(())
    }

    /// One phase, unless there is nothing left to see.
    fn phase(&mut self, phase: Phase, time: Duration, look: &mut Look) -> Result<()> {
        if look.end.is_some() {
            return Ok(());
        }
        let counts = phase == Phase::Counted && look.counters.is_some();
        match &look.counters {
            Some(counters) if counts => counters.enable(true).context(CANNOT_TURN)?,
            Some(_) if phase == Phase::Sampled => self.core.evlist.enable_samples(true).context(CANNOT_TURN)?,
            _ => {} // they have been on from the start
        }
        look.book.begin(phase);
        self.take(phase, look); // what came before is not of this phase
        let used = self.watch(phase, time, look)?;
        match &look.counters {
            Some(counters) if counts => return counters.enable(false).context(CANNOT_TURN),
            Some(_) => self.core.evlist.enable_samples(false).context(CANNOT_TURN)?,
            None => {}
        }
        look.sampling_ns += used.ns;
        // What is still in the rings is of this phase too.
        let (before, samples) = (sys::cpu_ns().0, self.samples_read());
        self.round(DrainLimit::All);
        self.core.ctx.output.flush();
        if phase != Phase::Counted {
            // A workload may be over before anything is warm: then there is no other.
            if !std::mem::replace(&mut look.is_warm, phase == Phase::Sampled) {
                look.cost = Cost::default();
            }
            look.cost.ns += used.ns;
            look.cost.reader_ns += used.reader_ns + sys::cpu_ns().0.saturating_sub(before);
            look.cost.delay_ns += look.delay_ns;
            look.cost.samples += used.samples + self.samples_read() - samples;
        }
        Ok(())
    }

    /// Reads, and counts, for so long. Returns what that took.
    fn watch(&mut self, phase: Phase, time: Duration, look: &mut Look) -> Result<Cost> {
        // Each reading interrupts the CPU that it is about.
        let step = STEP_NS * (1 + look.counters() as u64 / 500);
        let counts = phase == Phase::Counted;
        let step = if counts { step } else { LATENCY.as_nanos() as u64 };
        let (start, before, samples) = (sys::monotonic_ns(), sys::cpu_ns().0, self.samples_read());
        let until = start.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (mut begun, mut next) = (start, start + step);
        let mut follow_up = false;
        look.delay_ns = 0;
        while look.end.is_none() {
            let now = sys::monotonic_ns();
            let mut wait = Duration::from_nanos(next.min(until).saturating_sub(now));
            if follow_up {
                wait = wait.min(FOLLOW_UP);
            }
            look.end = self.serve(wait, &mut follow_up, look)?;
            let now = sys::monotonic_ns();
            if now >= next || now >= until || look.end.is_some() {
                if counts {
                    self.count(phase, look);
                    look.book.end_step(now - begun);
                }
                (begun, next) = (now, now + step);
            }
            if now >= until {
                break;
            }
        }
        let (ns, reader_ns) = (sys::monotonic_ns() - start, sys::cpu_ns().0.saturating_sub(before));
        look.book.end(ns);
        let samples = self.samples_read() - samples;
        if !counts {
            self.count(phase, look); // a run does not
        }
        Ok(Cost { ns, reader_ns, samples, ..Cost::default() })
    }

    /// What happened since the last time, by CPU and event.
    fn take(&mut self, phase: Phase, look: &mut Look) -> Vec<(u32, EventId, u64)> {
        match &mut look.counters {
            None => self.core.meter.as_mut().map(Meter::take_fresh).unwrap_or_default(),
            Some(counters) if phase == Phase::Counted => counters.take(),
            Some(_) => {
                let counts = self.core.evlist.read_counts();
                let before = std::mem::replace(&mut look.before, counts.iter().map(|count| count.2).collect());
                let since = |((cpu, event, count), before): (_, u64)| (cpu, event, u64::saturating_sub(count, before));
                counts.into_iter().zip(before.into_iter().chain(std::iter::repeat(0))).map(since).collect()
            }
        }
    }

    /// Whatever became of them: each has cost something.
    fn samples_read(&self) -> u64 {
        self.metered().iter().map(|metered| metered.samples).sum::<u64>() + self.core.filtered.samples
    }

    /// One turn of the loop, as a run does it.
    fn serve(&mut self, wait: Duration, follow_up: &mut bool, look: &mut Look) -> Result<Option<Stop>> {
        let Woken { signalled, ticked } = self.wait(wait)?;
        let woken = sys::monotonic_ns();
        let kept = look.delay.take();
        look.delay_ns += kept;
        let held = self.round(DrainLimit::Horizon);
        look.away_ns = look.away_ns.max(kept + (sys::monotonic_ns() - woken));
        *follow_up = held && (!*follow_up || self.rings.is_backlogged());
        self.core.tick(self.rings.complete_to());
        self.core.ctx.output.flush();
        if signalled && let Some(stop) = self.take_signals()? {
            return Ok(Some(stop));
        }
        self.report_due |= ticked;
        if self.report_due {
            self.report()?;
        }
        let is_over = self.core.ctx.watched.is_over() || self.workload.as_mut().is_some_and(Workload::ended);
        Ok(is_over.then_some(Stop::Asked))
    }

    fn count(&mut self, phase: Phase, look: &mut Look) {
        let counts = self.take(phase, look);
        let Look { raw_bytes, book, .. } = look;
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

    /// How many samples one count of an event makes. None: counts do not tell.
    fn per_count(&self, event: EventId, metered: &[Metered]) -> Option<f64> {
        if self.options.paced {
            return Some(1.0); // samples were counted
        }
        let evsel = self.core.evlist.evsel(event);
        match evsel.attr().samples_per_count() {
            SamplesPerCount::Samples(each) => Some(each),
            SamplesPerCount::Unknown => None,
            SamplesPerCount::Periods => match metered.get(event.index()) {
                Some(weight) if weight.periods > 0 => Some(weight.samples as f64 / weight.periods as f64),
                // Of all tracepoints, these count ns (include/trace/events/sched.h).
                _ => (evsel.attr().tracepoint_id().is_some() && !evsel.name().starts_with("sched:sched_stat_"))
                    .then_some(1.0),
            },
        }
    }

    /// How large the records of an event are, and whether that is an estimate.
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
        let of_probe = evsel.attr().tracepoint_id().and_then(|id| self.tracefs.format_of_probe(id));
        let by_name = || {
            let (system, name) = evsel.name().split_once(':')?;
            Some(Arc::new(self.tracefs.get().ok()?.format(system, name).ok()?))
        };
        let format = of_probe.or_else(by_name);
        let fields = format.iter().flat_map(|format| &format.fields).map(|field| {
            let dynamic = matches!(field.kind, FieldKind::DataLoc { .. } | FieldKind::RelLoc { .. });
            (field.offset.saturating_add(field.size), if dynamic { TEXT } else { 0 })
        });
        let (end, dynamic) = fields.fold((0, 0), |(end, sum), (next, text)| (next.max(end), text + sum));
        end + dynamic
    }

    /// From its layout: none has been seen.
    fn estimated_bytes(&self, event: EventId, metered: &[Metered], raw: usize) -> f64 {
        const ADDRESSES: usize = 24;
        let evsel = self.core.evlist.evsel(event);
        let (samples, addresses) =
            metered.iter().fold((0, 0), |(samples, sum), of| (samples + of.samples, sum + of.addresses));
        let addresses = addresses.checked_div(samples).map_or(ADDRESSES, |mean| mean as usize);
        evsel.layout().estimated_bytes(raw, addresses) as f64
    }

    /// What all that comes to.
    fn tell(&self, look: &Look) -> Forecast {
        let Look { book, cost, .. } = look;
        let metered = self.metered();
        let opened = self.core.evlist.iter().filter(|(_, evsel)| evsel.is_opened());
        let events: Vec<EventForecast> = opened.map(|(event, _)| self.tell_event(event, look, metered)).collect();
        let sum = |of: fn(&EventForecast) -> f64| events.iter().map(of).sum::<f64>();
        let per_s = sum(|event| event.per_s);
        let unwatched = sum(|event| event.unwatched_per_s.unwrap_or(event.per_s));
        let bytes_per_s = sum(|event| event.per_s * event.record_bytes);
        let metered_bytes: u64 = metered.iter().map(|metered| metered.bytes).sum();
        let lived_ns = sys::monotonic_ns().saturating_sub(self.start_ns);
        let side_bytes_per_s =
            rate(self.core.record_bytes.saturating_sub(metered_bytes + self.core.filtered.bytes) as f64, lived_ns);
        // Few samples say nothing of what one takes: then it is the waiting that costs.
        let scale = if cost.samples >= 1000 { per_s / rate(cost.samples as f64, cost.ns) } else { 1.0 };
        let busy = rate(cost.reader_ns as f64, cost.ns) / 1e9 * scale;
        let [reader, others] = cost.cpus(scale);
        let own = left_to_reader(CpuMask::of_self().map_or(usize::MAX, |cpus| cpus.count()), others);
        let need = Need {
            peak_bytes: self.peak_bytes(look, &events),
            bytes_per_s: sum(|event| event.busiest_per_s * event.record_bytes) + side_bytes_per_s,
            busy: busy / cost.share().min(own),
        };
        Forecast {
            profiler: self.options.profiler,
            time_ns: sys::monotonic_ns(),
            counted_ns: book.counted_ns(),
            sampled_ns: look.sampling_ns,
            ended_early: look.end.is_some(),
            cpus: self.rings.cpus(),
            counters: look.counters(),
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

    fn tell_event(&self, event: EventId, look: &Look, metered: &[Metered]) -> EventForecast {
        let evsel = self.core.evlist.evsel(event);
        let weight = metered.get(event.index()).copied().unwrap_or_default();
        let (record_bytes, is_estimate) = self.record_bytes(event, metered, &look.raw_bytes);
        let (per_s, unwatched_per_s, busiest_per_s) = match self.per_count(event, metered) {
            Some(each) => {
                let (expected, unwatched) = look.book.expected(event.index());
                let slowed = unwatched.map_or(1.0, |unwatched| expected / unwatched);
                let busiest = look.book.busiest(event.index()).map_or(expected, |busiest| busiest * slowed);
                let busiest = busiest.min(expected); // the two come from different looks
                (expected * each, unwatched.map(|unwatched| unwatched * each), busiest * each)
            }
            // What it counts is not what it samples.
            None => {
                let per_s = rate(weight.samples as f64, look.sampling_ns);
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
            frames: (weight.samples > 0).then(|| weight.addresses as f64 / weight.samples as f64),
            samples: evsel.attr().samples(),
            is_counted: self.per_count(event, metered).is_some(),
        }
    }

    /// What may come to one ring while perf-prof is kept from reading it. Not less than when nobody watches: what slows
    /// the events down may be spared.
    fn peak_bytes(&self, look: &Look, events: &[EventForecast]) -> f64 {
        let away_ns = AWAY_NS.max(2 * look.away_ns);
        let uncounted = |event: &&EventForecast| look.book.counted_ns() == 0 || !event.is_counted;
        let bytes_per_s: f64 = events.iter().filter(uncounted).map(|event| event.per_s * event.record_bytes).sum();
        look.book.peak(away_ns) + bytes_per_s * away_ns as f64 / 1e9
    }

    fn ring_forecast(&self, bytes: f64) -> RingForecast {
        const LEAST_PAGES: u64 = 16;
        let page_bytes = sys::page_size() as u64;
        let rings = self.core.evlist.rings();
        let default_pages = default_ring_pages(self.rings.cpus(), rings) as u64;
        let most = most_pages(self.rings.cpus(), rings) as u64;
        let pages = ((bytes / page_bytes as f64).ceil() as u64).max(LEAST_PAGES);
        let pages = pages.checked_next_power_of_two().unwrap_or(u64::MAX);
        let asked = self.options.ring.map(|size| size.pages(page_bytes as usize) as u64);
        let asked = asked.map(|pages| pages.min(most));
        let (pages, is_most) = (pages.min(most), pages > most);
        RingForecast { pages, is_most, rings, page_bytes, asked, default_pages, allowed: None }
    }

    /// What there is for the run's rings, if that is less than it would have, or should have. Those of the look go first.
    fn allowed(&mut self, ring: &RingForecast) -> Result<Option<RingAllowance>> {
        let wanted = usize::try_from(ring.pages.max(ring.given())).unwrap_or(usize::MAX);
        let pages = self.rings.give_way(wanted, &mut self.core.evlist, &self.host)?;
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
        let cost = Cost { ns: 1_000_000_000, reader_ns: 300_000_000, others_ns: 700_000_000, ..Cost::default() };
        assert_eq!(cost.cpus(1.0), [0.3, 0.7]);
        assert_eq!(cost.cpus(2.0), [0.6, 1.0]);
        assert_eq!(Cost::default().cpus(1.0), [0.0, 0.0]);
    }
}
