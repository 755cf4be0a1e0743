//! The forecast of a dry run as text or JSON.

use crate::output::escape::escape;
use crate::output::json::{Object, push_list};
use crate::output::wall::WallClock;

/// What a run would see and cost.
#[derive(Debug)]
pub struct Forecast {
    pub profiler: &'static str,
    pub time_ns: u64,
    pub counted_ns: u64,
    pub sampled_ns: u64,
    /// A signal or the target's end came first.
    pub ended_early: bool,
    pub cpus: usize,
    /// Descriptors that were counted.
    pub counters: usize,
    pub events: Vec<EventForecast>,
    pub per_s: f64,
    /// When nobody watches, if that is more.
    pub unwatched_per_s: Option<f64>,
    pub bytes_per_s: f64,
    pub side_bytes_per_s: f64,
    /// Of perf-prof, in per cent of one CPU.
    pub cpu_pct: f64,
    pub pace: Pace,
    pub ring: RingForecast,
}

/// Whether the reader keeps up with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    KeepsUp,
    /// It would, but others have the CPU.
    Crowded,
    TooSlow,
}

impl Pace {
    /// `busy`: the CPU that it needs; `share`: what others leave to it.
    pub fn of(busy: f64, share: f64) -> Pace {
        const MOST: f64 = 0.9;
        match () {
            () if busy >= MOST => Pace::TooSlow,
            () if busy >= MOST * share => Pace::Crowded,
            () => Pace::KeepsUp,
        }
    }
}

/// One event.
#[derive(Debug)]
pub struct EventForecast {
    pub name: String,
    pub per_s: f64,
    pub unwatched_per_s: Option<f64>,
    pub busiest_per_s: f64,
    pub record_bytes: f64,
    /// None was seen: the size follows from the layout.
    pub is_estimate: bool,
    /// In a callchain.
    pub frames: Option<f64>,
    /// False: it is only counted.
    pub samples: bool,
    /// Its counter tells how many samples it makes.
    pub is_counted: bool,
}

/// The ring of each CPU.
#[derive(Clone, Copy, Debug)]
pub struct RingForecast {
    pub pages: u64,
    /// More would be needed than there may be.
    pub is_most: bool,
    pub page_bytes: u64,
    /// `-m`
    pub asked: Option<u64>,
    pub default_pages: u64,
}

impl RingForecast {
    fn size(&self, pages: u64) -> String {
        let kib = pages.saturating_mul(self.page_bytes) / 1024;
        if kib >= 1024 { format!("{} MiB", kib / 1024) } else { format!("{kib} KiB") }
    }
}

/// Rows of the text at most.
const MOST_ROWS: usize = 20;

impl Forecast {
    pub fn print(&self, json: bool, out: &mut Vec<u8>) {
        let mut wall = WallClock::now();
        if json {
            self.json(out, &mut wall);
        } else {
            wall.text(self.time_ns, out);
            out.push(b' ');
            self.lines().iter().for_each(|line| {
                out.extend_from_slice(line.as_bytes());
                out.push(b'\n');
            });
        }
    }

    fn lines(&self) -> Vec<String> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let early = if self.ended_early { ", ended early" } else { "" };
        let cpus = if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) };
        let mut lines = vec![format!(
            "{}, forecast: counted for {:.3} s, sampled for {:.3} s, {cpus}{early}",
            self.profiler,
            seconds(self.counted_ns),
            seconds(self.sampled_ns)
        )];
        let mut events: Vec<&EventForecast> = self.events.iter().filter(|event| event.per_s > 0.0).collect();
        events.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then(a.name.cmp(&b.name)));
        let frames = events.iter().any(|event| event.frames.is_some_and(|frames| frames > 0.0));
        let frames_column = |text: &str| if frames { format!(" {text:>8}") } else { String::new() };
        lines.push(format!(
            "{:>11} {:>13} {:>9} {:>7}{}  event",
            "events/s",
            "busiest CPU/s",
            "MB/s",
            "bytes",
            frames_column("frames")
        ));
        for event in events.iter().take(MOST_ROWS) {
            let about = if event.is_estimate { "~" } else { "" };
            let frames = event.frames.map_or_else(|| "-".to_owned(), |frames| format!("{frames:.1}"));
            lines.push(format!(
                "{:>11} {:>13} {:>9.3} {:>7}{}  {}",
                number(event.per_s),
                number(event.busiest_per_s),
                event.per_s * event.record_bytes / 1e6,
                format!("{about}{:.0}", event.record_bytes),
                frames_column(&frames),
                escape(event.name.as_bytes())
            ));
        }
        if events.len() > MOST_ROWS {
            lines.push(format!("{:>11} {:>13} {:>9} {:>7}  {} events more", "", "", "", "", events.len() - MOST_ROWS));
        }
        let blank = frames_column("");
        let side = self.side_bytes_per_s / 1e6;
        lines.push(format!("{:>11} {:>13} {side:>9.3} {:>7}{blank}  names, forks, exits, mappings", "", "", ""));
        let (sum, bytes) = (number(self.per_s), self.bytes_per_s / 1e6);
        lines.push(format!("{sum:>11} {:>13} {bytes:>9.3} {:>7}{blank}  total", "", ""));
        self.add_silent(&mut lines);
        self.add_advice(&mut lines);
        lines
    }

    fn add_silent(&self, lines: &mut Vec<String>) {
        const NAMED: usize = 3;
        let silent: Vec<&EventForecast> = self.events.iter().filter(|event| event.per_s <= 0.0).collect();
        let names = |events: &[&EventForecast]| {
            let named: Vec<String> = events.iter().take(NAMED).map(|event| escape(event.name.as_bytes())).collect();
            let more = if events.len() > NAMED { format!(" and {} more", events.len() - NAMED) } else { String::new() };
            format!("{}{more}", named.join(", "))
        };
        let (sampled, counted): (Vec<&EventForecast>, Vec<&EventForecast>) =
            silent.into_iter().partition(|event| event.samples);
        if !sampled.is_empty() {
            lines.push(format!("did not happen: {}", names(&sampled)));
        }
        if !counted.is_empty() {
            lines.push(format!("only counted, no records: {}", names(&counted)));
        }
    }

    fn add_advice(&self, lines: &mut Vec<String>) {
        if let Some(unwatched) = self.unwatched_per_s {
            lines.push(format!(
                "recording slows down who raises the events: there are {}/s while nobody watches",
                number(unwatched)
            ));
        }
        let digits = if self.cpu_pct < 10.0 { 1 } else { 0 };
        lines.push(format!("perf-prof itself: about {:.digits$} % of one CPU", self.cpu_pct));
        let ring = &self.ring;
        let advice = format!("-m {} ({} per CPU)", ring.pages, ring.size(ring.pages));
        let given = ring.asked.unwrap_or(ring.default_pages);
        let name = match ring.asked {
            Some(pages) => format!("-m {pages}"),
            None => format!("the default, {} ({}),", ring.default_pages, ring.size(ring.default_pages)),
        };
        let verdict = if given >= ring.pages { "is enough" } else { "is too small" };
        if ring.is_most {
            lines.push(format!("ring buffers: even the largest, {advice}, may lose events"));
        } else {
            lines.push(format!("ring buffers: {advice} should lose nothing; {name} {verdict}"));
        }
        let why = match self.pace {
            Pace::KeepsUp => return,
            Pace::Crowded => "other tasks leave perf-prof too little of a CPU: start it with nice -n -20",
            Pace::TooSlow => "perf-prof can hardly keep up: narrow the events with a filter, -C or -p",
        };
        lines.push(format!("{why}; in a long run no ring buffer is enough"));
    }

    fn json(&self, out: &mut Vec<u8>, wall: &mut WallClock) {
        let mut object = Object::head(out, "forecast", self.profiler, self.time_ns, wall);
        object.unsigned("counted_ns", self.counted_ns);
        object.unsigned("sampled_ns", self.sampled_ns);
        object.bool("ended_early", self.ended_early);
        object.unsigned("cpus", self.cpus as u64);
        object.unsigned("counters", self.counters as u64);
        push_list(self.events.iter(), object.key("events"), EventForecast::json);
        object.decimal("events_per_s", self.per_s);
        if let Some(unwatched) = self.unwatched_per_s {
            object.decimal("unwatched_per_s", unwatched);
        }
        object.decimal("bytes_per_s", self.bytes_per_s);
        object.decimal("side_bytes_per_s", self.side_bytes_per_s);
        object.decimal("cpu_pct", self.cpu_pct);
        object.bool("keeps_up", self.pace == Pace::KeepsUp);
        object.unsigned("ring_pages", self.ring.pages);
        object.unsigned("ring_bytes", self.ring.pages.saturating_mul(self.ring.page_bytes));
        object.bool("ring_suffices", !self.ring.is_most && self.pace == Pace::KeepsUp);
        object.end();
        out.push(b'\n');
    }
}

impl EventForecast {
    fn json(&self, out: &mut Vec<u8>) {
        let mut object = Object::new(out);
        object.text("event", &escape(self.name.as_bytes()));
        object.decimal("events_per_s", self.per_s);
        if let Some(unwatched) = self.unwatched_per_s {
            object.decimal("unwatched_per_s", unwatched);
        }
        object.decimal("busiest_cpu_per_s", self.busiest_per_s);
        if self.samples {
            object.decimal("record_bytes", self.record_bytes);
            object.bool("estimated", self.is_estimate);
        }
        if let Some(frames) = self.frames {
            object.decimal("frames", frames);
        }
        object.end();
    }
}

/// Without digits that nobody needs.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
