//! What a run would cost: its events are counted without rings, and sampled for a moment before and after that.
//!
//! Counting is exact and costs next to nothing; from it come the rates and the bursts. Only samples tell how large records
//! are, what it takes to read them, and whether who raises them is slowed by that.

mod book;
mod tally;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cli::values::RingSize;
use crate::output::forecast::{EventForecast, Forecast, RingForecast};
use crate::output::sink::Sink;
use crate::perf::EventId;
use crate::perf::evlist::counters::Counters;
use crate::ringbuf::Limit;
use crate::run::forecast::book::{Book, Need, Phase, STEP_NS, rate};
use crate::run::forecast::tally::{Tally, Weighed, Weight};
use crate::run::rings::default_ring_pages;
use crate::run::{LATENCY, Run, SIGNALS, Stop, TICKER, WAKER};
use crate::sys;
use crate::sys::poll::Ticker;
use crate::sys::process::Workload;
use crate::tep::field::Kind;

/// A shorter count says little.
pub const SHORTEST: Duration = Duration::from_millis(100);
const USUAL: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(100);
const SAMPLED: Duration = Duration::from_millis(200);
/// Per CPU while it samples, unless -m says less.
const RING_BYTES: usize = 2 << 20;
/// The longest that a busy machine keeps perf-prof from a CPU, at the least.
const AWAY_NS: u64 = 50_000_000;

/// The ring of a dry run.
pub fn ring(asked: Option<RingSize>) -> RingSize {
    let page = sys::page_size();
    RingSize::Pages(asked.map_or(usize::MAX, |size| size.pages(page)).min(RING_BYTES / page))
}

/// CPU time while it sampled.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ns: u64,
    reader_ns: u64,
    all_ns: u64,
    samples: u64,
    /// The warm-up too.
    sampling_ns: u64,
    ended_ns: u64,
}

impl Run {
    /// Counts and samples, and prints the forecast. Returns the exit code.
    ///
    /// # Errors
    /// The workload cannot be executed; the events cannot be counted; stdout cannot be written.
    pub fn forecast(mut self) -> Result<u8> {
        let tally = self.weigh();
        let mut counters = self.core.evlist.open_counters()?;
        counters.enable(&self.core.evlist)?;
        self.begin()?;
        let mut book = Book::new(tally.borrow().len());
        let mut cost = Cost::default();
        let counted = self.options.duration.unwrap_or(USUAL);
        let phases =
            [(Phase::WarmUp, WARM_UP), (Phase::Sampled, SAMPLED), (Phase::Counted, counted), (Phase::Sampled, SAMPLED)];
        let mut sampling = true;
        let mut stop = None;
        for (phase, time) in phases {
            if sampling != (phase != Phase::Counted) {
                sampling = !sampling;
                self.core.evlist.sampling(sampling).context("cannot start or stop the events")?;
            }
            stop = self.look(phase, time, &mut counters, &mut book, &mut cost, &tally)?;
            if stop.is_some() {
                break;
            }
        }
        sys::perf::disable_all().context("cannot stop the events")?;
        self.round(Limit::All);
        let forecast = self.tell(&book, cost, &tally.borrow(), counters.len());
        drop(counters); // probes cannot be removed while they are counted
        let (json, mut sink) = (self.options.json, Sink::stdout()?);
        let forecast = Forecast { ended_early: stop.is_some(), ..forecast };
        self.leave(Vec::new())?;
        forecast.print(json, &mut sink.buffer);
        sink.finish()
    }

    /// Puts a scale in front of each profiler.
    fn weigh(&mut self) -> Tally {
        let tally: Tally = Rc::new(RefCell::new(vec![Weight::default(); self.core.evlist.iter().count()]));
        let profilers = std::mem::take(&mut self.core.profilers);
        let weighed =
            |profiler| -> Box<dyn crate::profiler::Profiler> { Box::new(Weighed { profiler, tally: tally.clone() }) };
        self.core.profilers = profilers.into_iter().map(weighed).collect();
        tally
    }

    /// One phase. Some when there is nothing more to see.
    fn look(
        &mut self,
        phase: Phase,
        time: Duration,
        counters: &mut Counters,
        book: &mut Book,
        cost: &mut Cost,
        tally: &Tally,
    ) -> Result<Option<Stop>> {
        // Each reading interrupts the CPU that it is about.
        let step = match phase {
            Phase::Counted => STEP_NS * (1 + counters.len() as u64 / 500),
            _ => LATENCY.as_nanos() as u64,
        };
        let (start, before) = (sys::monotonic_ns(), sys::cpu_ns());
        let samples = self.core.samples;
        let until = start + time.as_nanos() as u64;
        let mut next = start + step;
        let mut stop = None;
        let mut follow_up = false;
        self.count(Phase::WarmUp, counters, book, tally); // what came before is not of this phase
        while stop.is_none() {
            let now = sys::monotonic_ns();
            let mut wait = Duration::from_nanos(next.min(until).saturating_sub(now));
            if follow_up {
                wait = wait.min(crate::run::FOLLOW_UP);
            }
            stop = self.serve(wait, &mut follow_up)?;
            let now = sys::monotonic_ns();
            if now >= next || now >= until || stop.is_some() {
                if phase == Phase::Counted {
                    book.late_ns = book.late_ns.max(now.saturating_sub(next.min(until)));
                }
                self.count(phase, counters, book, tally);
                next = now + step;
            }
            if now >= until {
                break;
            }
        }
        let (ns, after) = (sys::monotonic_ns() - start, sys::cpu_ns());
        if let Some(sums) = book.sums(phase) {
            sums.ns += ns;
        }
        if phase == Phase::Sampled {
            cost.ns += ns;
            cost.reader_ns += after.0.saturating_sub(before.0);
            cost.all_ns += after.1.saturating_sub(before.1);
            cost.samples += self.core.samples - samples;
        }
        cost.sampling_ns += if phase == Phase::Counted { 0 } else { ns };
        cost.ended_ns = sys::monotonic_ns();
        Ok(stop)
    }

    /// One turn of the loop, as a run does it.
    fn serve(&mut self, wait: Duration, follow_up: &mut bool) -> Result<Option<Stop>> {
        let (mut signalled, mut ticked) = (false, false);
        for token in self.poller.wait(wait).context("cannot wait for events")? {
            match token {
                SIGNALS => signalled = true,
                TICKER => ticked = self.ticker.as_ref().is_some_and(Ticker::expired),
                WAKER => self.waker.clear(),
                _ => {} // a ring
            }
        }
        let held = self.round(Limit::Horizon);
        *follow_up = held && (!*follow_up || self.rings.is_crowded());
        self.core.tick(self.rings.complete_to());
        self.core.output.flush();
        if signalled && let Some(stop) = self.take_signals()? {
            return Ok(Some(stop));
        }
        if ticked {
            self.report()?;
        }
        let is_over = self.core.watched.is_over() || self.workload.as_mut().is_some_and(Workload::ended);
        Ok(is_over.then_some(Stop::Asked))
    }

    fn count(&mut self, phase: Phase, counters: &mut Counters, book: &mut Book, tally: &Tally) {
        let tally = tally.borrow();
        counters.take(|cpu, event, count| {
            if let Some(sums) = book.sums(phase)
                && let Some(sum) = sums.counts.get_mut(event.index())
            {
                *sum += count;
            }
            if phase == Phase::Counted {
                let per_count = self.core.evlist.evsel(event).attr().samples_per_count().unwrap_or(0.0);
                let bytes = self.record_bytes(event, &tally).0 * per_count * count as f64;
                book.count(cpu, event.index(), count, bytes);
            }
        });
        if phase == Phase::Counted {
            book.end_step();
        }
    }

    /// How large the records of an event are, and whether that is an estimate.
    fn record_bytes(&self, event: EventId, tally: &[Weight]) -> (f64, bool) {
        match tally.get(event.index()) {
            Some(weight) if weight.samples > 0 => (weight.bytes as f64 / weight.samples as f64, false),
            _ => (self.estimated_bytes(event, tally), true),
        }
    }

    /// From its layout: none has been seen.
    fn estimated_bytes(&self, event: EventId, tally: &[Weight]) -> f64 {
        const TEXT: usize = 16;
        const ADDRESSES: usize = 24;
        let evsel = self.core.evlist.evsel(event);
        let format = evsel.name().split_once(':').zip(self.tracefs.get().ok());
        let format = format.and_then(|((system, name), tracefs)| tracefs.format(system, name).ok());
        let fields = format.iter().flat_map(|format| &format.fields).map(|field| {
            let dynamic = matches!(field.kind, Kind::DataLoc { .. } | Kind::RelLoc { .. });
            (field.offset.saturating_add(field.size), if dynamic { TEXT } else { 0 })
        });
        let (end, dynamic) = fields.fold((0, 0), |(end, sum), (next, text)| (next.max(end), text + sum));
        let (samples, addresses) =
            tally.iter().fold((0, 0), |(samples, sum), weight| (samples + weight.samples, sum + weight.addresses));
        let addresses = addresses.checked_div(samples).map_or(ADDRESSES, |mean| mean as usize);
        evsel.layout().estimated_bytes(end + dynamic, addresses) as f64
    }

    /// What all that comes to.
    fn tell(&self, book: &Book, cost: Cost, tally: &[Weight], counters: usize) -> Forecast {
        let mut events: Vec<EventForecast> = Vec::new();
        let mut seen_bytes_per_s = 0.0;
        for (event, evsel) in self.core.evlist.iter().filter(|(_, evsel)| evsel.is_opened()) {
            let weight = tally.get(event.index()).copied().unwrap_or_default();
            let (expected, unwatched) = book.expected(event.index());
            let (record_bytes, is_estimate) = self.record_bytes(event, tally);
            let busiest = book.busiest(event.index());
            let (per_s, unwatched_per_s, busiest_per_s) = match evsel.attr().samples_per_count() {
                Some(each) => (expected * each, unwatched.map(|unwatched| unwatched * each), busiest * each),
                // What it counts is not what it samples.
                None => {
                    let per_s = rate(weight.samples as f64, cost.sampling_ns);
                    seen_bytes_per_s += per_s * record_bytes;
                    (per_s, None, per_s)
                }
            };
            events.push(EventForecast {
                name: evsel.name().to_owned(),
                per_s,
                unwatched_per_s,
                busiest_per_s,
                record_bytes,
                is_estimate,
                frames: (weight.samples > 0).then(|| weight.addresses as f64 / weight.samples as f64),
                samples: evsel.attr().samples(),
            });
        }
        let per_s: f64 = events.iter().map(|event| event.per_s).sum();
        let unwatched: f64 = events.iter().map(|event| event.unwatched_per_s.unwrap_or(event.per_s)).sum();
        let weighed: u64 = tally.iter().map(|weight| weight.bytes).sum();
        let lived_ns = cost.ended_ns.saturating_sub(self.start_ns);
        let side_bytes_per_s = rate(self.core.record_bytes.saturating_sub(weighed) as f64, lived_ns);
        let bytes_per_s: f64 = events.iter().map(|event| event.per_s * event.record_bytes).sum();
        let sampled_per_s = rate(cost.samples as f64, cost.ns);
        // Few samples say nothing of what one takes: then it is the waiting that costs.
        let scale = if cost.samples >= 1000 { per_s / sampled_per_s.max(1.0) } else { 1.0 };
        let busy = rate(cost.reader_ns as f64, cost.ns) / 1e9 * scale;
        let slowed = if unwatched > 0.0 { (per_s / unwatched).min(1.0) } else { 1.0 };
        let away_ns = AWAY_NS.max(2 * book.late_ns);
        let busiest: f64 = events.iter().map(|event| event.busiest_per_s * event.record_bytes).sum();
        let sampled = book.counted.ns == 0;
        let away = |bytes_per_s: f64| bytes_per_s * away_ns as f64 / 1e9;
        let counted_peak = book.peak(away_ns) * slowed + away(seen_bytes_per_s);
        let peak = if sampled { away(bytes_per_s) } else { counted_peak };
        let busiest = if sampled { bytes_per_s } else { busiest * slowed };
        let need = Need { peak_bytes: peak, bytes_per_s: busiest + side_bytes_per_s, busy };
        Forecast {
            profiler: self.options.profiler,
            time_ns: sys::monotonic_ns(),
            counted_ns: book.counted.ns,
            sampled_ns: cost.ns,
            cpus: self.rings.cpus(),
            counters,
            bytes_per_s: bytes_per_s + side_bytes_per_s,
            side_bytes_per_s,
            per_s,
            unwatched_per_s: (unwatched > per_s * 1.01).then_some(unwatched),
            cpu_pct: rate(cost.all_ns as f64, cost.ns) / 1e7 * scale,
            is_about_load: cost.samples >= 1000,
            keeps_up: busy < 0.9,
            ring: self.ring_forecast(need.ring_bytes()),
            ended_early: false,
            events,
        }
    }

    fn ring_forecast(&self, bytes: f64) -> RingForecast {
        const LEAST_PAGES: u64 = 16;
        let page_bytes = sys::page_size() as u64;
        let default_pages = default_ring_pages(self.rings.cpus()) as u64;
        let most = crate::run::rings::most_pages(self.rings.cpus()) as u64;
        let pages = ((bytes / page_bytes as f64).ceil() as u64).max(LEAST_PAGES);
        let pages = pages.checked_next_power_of_two().unwrap_or(u64::MAX);
        let asked = self.options.ring.map(|size| size.pages(page_bytes as usize) as u64);
        RingForecast { pages: pages.min(most), is_most: pages > most, page_bytes, asked, default_pages }
    }
}
