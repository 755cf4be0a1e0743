//! What a run would cost: its events are counted without rings, and sampled for a moment before and after that.
//!
//! Counting is exact and costs next to nothing; from it come the rates and the bursts. Only samples tell how large records
//! are, what it takes to read them, and whether who raises them is slowed by that.

mod book;
mod delay;
mod tally;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cli::values::RingSize;
use crate::output::forecast::{EventForecast, Forecast, Pace, RingForecast};
use crate::output::sink::Sink;
use crate::perf::EventId;
use crate::perf::attr::PerCount;
use crate::perf::evlist::counters::Counters;
use crate::profiler::Profiler;
use crate::ringbuf::Limit;
use crate::run::forecast::book::{Book, Need, Phase, STEP_NS, rate};
use crate::run::forecast::delay::RunDelay;
use crate::run::forecast::tally::{Tally, Weighed, Weight};
use crate::run::rings::{default_ring_pages, most_pages};
use crate::run::{FOLLOW_UP, LATENCY, Run, SIGNALS, Stop, TICKER, WAKER};
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
const AWAY_NS: u64 = 100_000_000;

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
    /// The reader could have gone on, but others had the CPU.
    delay_ns: u64,
    all_ns: u64,
    samples: u64,
}

impl Cost {
    /// How much of a CPU others leave to the reader.
    fn share(&self) -> f64 {
        let wanted = self.reader_ns + self.delay_ns;
        if wanted == 0 { 1.0 } else { self.reader_ns as f64 / wanted as f64 }
    }
}

/// All that is found out.
struct Look {
    tally: Tally,
    counters: Counters,
    book: Book,
    cost: Cost,
    /// When it sampled, the warm-up too.
    sampling_ns: u64,
    delay: RunDelay,
    /// Of this phase.
    delay_ns: u64,
    /// The longest that perf-prof was kept from a CPU, or was busy with one round.
    away_ns: u64,
    end: Option<Stop>,
}

impl Run {
    /// Counts and samples, and prints the forecast. Returns the exit code.
    ///
    /// # Errors
    /// The workload cannot be executed; the events cannot be counted; stdout cannot be written.
    pub fn forecast(mut self) -> Result<u8> {
        let counted = self.options.duration.unwrap_or(USUAL);
        if let Some(workload) = &self.workload {
            let most = (WARM_UP + SAMPLED + counted + SAMPLED).as_secs_f64();
            let line = format!("--dry-run runs {:?} for {most:.1} s at most, then ends it", workload.name());
            self.core.output.note(line);
        }
        let tally = self.weigh();
        let counters = self.core.evlist.open_counters()?;
        counters.enable(&self.core.evlist)?;
        let events = tally.borrow().len();
        let mut look = Look {
            tally,
            counters,
            book: Book::new(events),
            cost: Cost::default(),
            sampling_ns: 0,
            delay: RunDelay::open(),
            delay_ns: 0,
            away_ns: 0,
            end: None,
        };
        self.begin()?;
        self.go_through(counted, &mut look)?;
        sys::perf::disable_all().context("cannot stop the events")?;
        self.round(Limit::All);
        let forecast = self.tell(&look);
        drop(look); // probes cannot be removed while they are counted
        let (json, mut sink) = (self.options.json, Sink::stdout()?);
        self.leave(Vec::new())?;
        forecast.print(json, &mut sink.buffer);
        sink.finish()
    }

    /// Puts a scale in front of each profiler.
    fn weigh(&mut self) -> Tally {
        let tally: Tally = Rc::new(RefCell::new(vec![Weight::default(); self.core.evlist.iter().count()]));
        let profilers = std::mem::take(&mut self.core.profilers);
        let weighed = |profiler| -> Box<dyn Profiler> { Box::new(Weighed { profiler, tally: tally.clone() }) };
        self.core.profilers = profilers.into_iter().map(weighed).collect();
        tally
    }

    /// All phases, or as many as there is something to see in.
    fn go_through(&mut self, counted: Duration, look: &mut Look) -> Result<()> {
        let phases =
            [(Phase::WarmUp, WARM_UP), (Phase::Sampled, SAMPLED), (Phase::Counted, counted), (Phase::Sampled, SAMPLED)];
        let mut sampling = true;
        for (phase, time) in phases {
            if sampling != (phase != Phase::Counted) {
                sampling = !sampling;
                self.core.evlist.sampling(sampling).context("cannot start or stop the events")?;
            }
            self.phase(phase, time, look)?;
            if look.end.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn phase(&mut self, phase: Phase, time: Duration, look: &mut Look) -> Result<()> {
        // Each reading interrupts the CPU that it is about.
        look.book.step_ns = STEP_NS * (1 + look.counters.len() as u64 / 500);
        let step = if phase == Phase::Counted { look.book.step_ns } else { LATENCY.as_nanos() as u64 };
        let (start, before, samples) = (sys::monotonic_ns(), sys::cpu_ns(), self.samples_read(look));
        let until = start.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let mut next = start + step;
        let mut follow_up = false;
        look.delay_ns = 0;
        look.counters.take(|_, _, _| {}); // what came before is not of this phase
        while look.end.is_none() {
            let now = sys::monotonic_ns();
            let mut wait = Duration::from_nanos(next.min(until).saturating_sub(now));
            if follow_up {
                wait = wait.min(FOLLOW_UP);
            }
            look.end = self.serve(wait, &mut follow_up, look)?;
            let now = sys::monotonic_ns();
            if now >= next || now >= until || look.end.is_some() {
                self.count(phase, look);
                next = now + step;
            }
            if now >= until {
                break;
            }
        }
        let (ns, after) = (sys::monotonic_ns() - start, sys::cpu_ns());
        look.book.sums(phase).ns += ns;
        if phase != Phase::Counted {
            look.sampling_ns += ns;
        }
        // A workload may be over before anything is warm.
        if phase == Phase::Sampled || look.end.is_some() && look.cost.ns == 0 {
            look.cost.ns += ns;
            look.cost.reader_ns += after.0.saturating_sub(before.0);
            look.cost.delay_ns += look.delay_ns;
            look.cost.all_ns += after.1.saturating_sub(before.1);
            look.cost.samples += self.samples_read(look) - samples;
        }
        Ok(())
    }

    /// Whatever became of them: each has cost something.
    fn samples_read(&self, look: &Look) -> u64 {
        look.tally.borrow().iter().map(|weight| weight.samples).sum::<u64>() + self.core.narrowed.samples
    }

    /// One turn of the loop, as a run does it.
    fn serve(&mut self, wait: Duration, follow_up: &mut bool, look: &mut Look) -> Result<Option<Stop>> {
        let (mut signalled, mut ticked) = (false, false);
        for token in self.poller.wait(wait).context("cannot wait for events")? {
            match token {
                SIGNALS => signalled = true,
                TICKER => ticked = self.ticker.as_ref().is_some_and(Ticker::expired),
                WAKER => self.waker.clear(),
                _ => {} // a ring
            }
        }
        let woken = sys::monotonic_ns();
        let kept = look.delay.take();
        look.delay_ns += kept;
        let held = self.round(Limit::Horizon);
        look.away_ns = look.away_ns.max(kept + (sys::monotonic_ns() - woken));
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

    fn count(&mut self, phase: Phase, look: &mut Look) {
        let Look { tally, counters, book, .. } = look;
        let tally = tally.borrow();
        counters.take(|cpu, event, count| {
            if let Some(sum) = book.sums(phase).counts.get_mut(event.index()) {
                *sum += count;
            }
            if phase == Phase::Counted {
                let per_count = self.per_count(event, &tally).unwrap_or(0.0);
                let bytes = self.record_bytes(event, &tally).0 * per_count * count as f64;
                book.count((cpu, self.core.evlist.ring_of(event)), event.index(), count, bytes);
            }
        });
        if phase == Phase::Counted {
            book.end_step();
        }
    }

    /// How many samples one count of an event makes. None: counts do not tell.
    fn per_count(&self, event: EventId, tally: &[Weight]) -> Option<f64> {
        let evsel = self.core.evlist.evsel(event);
        match evsel.attr().per_count() {
            PerCount::Samples(each) => Some(each),
            PerCount::Unknown => None,
            PerCount::Periods => match tally.get(event.index()) {
                Some(weight) if weight.periods > 0 => Some(weight.samples as f64 / weight.periods as f64),
                // Of all tracepoints, these count ns (include/trace/events/sched.h).
                _ => (evsel.attr().tracepoint_id().is_some() && !evsel.name().starts_with("sched:sched_stat_"))
                    .then_some(1.0),
            },
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
    fn tell(&self, look: &Look) -> Forecast {
        let Look { book, cost, .. } = look;
        let tally = look.tally.borrow();
        let opened = self.core.evlist.iter().filter(|(_, evsel)| evsel.is_opened());
        let events: Vec<EventForecast> = opened.map(|(event, _)| self.tell_event(event, look, &tally)).collect();
        let sum = |of: fn(&EventForecast) -> f64| events.iter().map(of).sum::<f64>();
        let per_s = sum(|event| event.per_s);
        let unwatched = sum(|event| event.unwatched_per_s.unwrap_or(event.per_s));
        let bytes_per_s = sum(|event| event.per_s * event.record_bytes);
        let weighed: u64 = tally.iter().map(|weight| weight.bytes).sum();
        let lived_ns = sys::monotonic_ns().saturating_sub(self.start_ns);
        let side_bytes_per_s =
            rate(self.core.record_bytes.saturating_sub(weighed + self.core.narrowed.bytes) as f64, lived_ns);
        // Few samples say nothing of what one takes: then it is the waiting that costs.
        let scale = if cost.samples >= 1000 { per_s / rate(cost.samples as f64, cost.ns) } else { 1.0 };
        let busy = rate(cost.reader_ns as f64, cost.ns) / 1e9 * scale;
        let need = Need {
            peak_bytes: self.peak_bytes(look, &events),
            bytes_per_s: sum(|event| event.busiest_per_s * event.record_bytes) + side_bytes_per_s,
            busy: busy / cost.share(),
        };
        Forecast {
            profiler: self.options.profiler,
            time_ns: sys::monotonic_ns(),
            counted_ns: book.counted.ns,
            sampled_ns: look.sampling_ns,
            ended_early: look.end.is_some(),
            cpus: self.rings.cpus(),
            counters: look.counters.len(),
            per_s,
            unwatched_per_s: (unwatched > per_s * 1.01).then_some(unwatched),
            bytes_per_s: bytes_per_s + side_bytes_per_s,
            side_bytes_per_s,
            cpu_pct: rate(cost.all_ns as f64, cost.ns) / 1e7 * scale,
            pace: Pace::of(busy, cost.share()),
            ring: self.ring_forecast(need.ring_bytes()),
            events,
        }
    }

    fn tell_event(&self, event: EventId, look: &Look, tally: &[Weight]) -> EventForecast {
        let evsel = self.core.evlist.evsel(event);
        let weight = tally.get(event.index()).copied().unwrap_or_default();
        let (record_bytes, is_estimate) = self.record_bytes(event, tally);
        let (per_s, unwatched_per_s, busiest_per_s) = match self.per_count(event, tally) {
            Some(each) => {
                let (expected, unwatched) = look.book.expected(event.index());
                let slowed = unwatched.map_or(1.0, |unwatched| expected / unwatched);
                let busiest = look.book.busiest(event.index()).map_or(expected, |busiest| busiest * slowed);
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
            is_counted: self.per_count(event, tally).is_some(),
        }
    }

    /// What may come to one ring while perf-prof is kept from reading it. Not less than when nobody watches: what slows
    /// the events down may be spared.
    fn peak_bytes(&self, look: &Look, events: &[EventForecast]) -> f64 {
        let away_ns = AWAY_NS.max(2 * look.away_ns);
        let uncounted = |event: &&EventForecast| look.book.counted.ns == 0 || !event.is_counted;
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
        RingForecast { pages: pages.min(most), is_most: pages > most, rings, page_bytes, asked, default_pages }
    }
}
