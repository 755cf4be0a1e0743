//! The forecast of a dry run as text or JSON.

use crate::escape::escape;
use crate::json::{Object, push_list};
use crate::output::json;
use crate::output::wall::WallClock;

/// What a run would see and cost.
#[derive(Debug)]
pub struct Forecast {
    pub profiler: String,
    pub time_ns: u64,
    pub counted_ns: u64,
    pub sampled_ns: u64,
    /// A signal, or the end of the target, ended the measurement early.
    pub ended_early: bool,
    pub cpus: usize,
    /// File descriptors of counters.
    pub counters: usize,
    pub events: Vec<EventForecast>,
    pub per_s: f64,
    /// Events per second while no samples are recorded, if that is more.
    pub unwatched_per_s: Option<f64>,
    pub bytes_per_s: f64,
    pub side_bytes_per_s: f64,
    /// CPU time of perf-prof, in per cent of one CPU.
    pub cpu_pct: f64,
    pub pace: ForecastPace,
    pub ring: RingForecast,
}

/// Whether the reader keeps up with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastPace {
    KeepsUp,
    /// The reader would keep up, but other tasks use the CPU.
    Crowded,
    /// The reader would keep up, but must share the only CPU allowed with the output thread.
    Alone,
    TooSlow,
}

impl ForecastPace {
    /// All are shares of one CPU: `busy` is what the reader needs, `share` what other tasks leave to it, `own` what
    /// other threads of perf-prof leave to it.
    pub fn of(busy: f64, share: f64, own: f64) -> ForecastPace {
        const LIMIT: f64 = 0.9;
        match () {
            () if busy >= LIMIT => ForecastPace::TooSlow,
            () if busy >= LIMIT * own => ForecastPace::Alone,
            () if busy >= LIMIT * share => ForecastPace::Crowded,
            () => ForecastPace::KeepsUp,
        }
    }
}

/// The forecast of one event.
#[derive(Debug)]
pub struct EventForecast {
    pub name: String,
    pub per_s: f64,
    pub unwatched_per_s: Option<f64>,
    pub busiest_per_s: f64,
    pub record_bytes: f64,
    /// No record was seen: the size follows from the layout.
    pub is_estimate: bool,
    /// Frames of a callchain, on average.
    pub frames: Option<f64>,
    /// False: the event is only counted.
    pub samples: bool,
    /// The number of samples is known from the event's counter.
    pub is_counted: bool,
    /// The event is a companion: its records are copies of user stacks for the event of the same name.
    pub is_copy_of_stack: bool,
}

/// The rings of each CPU.
#[derive(Clone, Copy, Debug)]
pub struct RingForecast {
    pub pages: u64,
    /// The run would need more pages than a ring may have.
    pub is_most: bool,
    /// Number of rings per CPU.
    pub rings: usize,
    pub page_bytes: u64,
    /// Pages given with `-m`.
    pub asked: Option<u64>,
    pub default_pages: u64,
    /// The limit, if it is below the pages that the run asks for or should ask for.
    pub allowed: Option<RingAllowance>,
}

/// The pages that a limit allows.
#[derive(Clone, Copy, Debug)]
pub struct RingAllowance {
    pub pages: u64,
    /// The limit, as the subject of a sentence: `the mlock limit allows`.
    pub who: &'static str,
    pub cure: &'static str,
}

impl RingForecast {
    fn size(&self, pages: u64) -> String {
        let kib = pages.saturating_mul(self.page_bytes) / 1024;
        if kib >= 1024 { format!("{} MiB", kib / 1024) } else { format!("{kib} KiB") }
    }

    /// The pages that the run asks for, by `-m` or by default.
    pub fn given(&self) -> u64 {
        self.asked.unwrap_or(self.default_pages)
    }

    /// The pages that the run would get if it asked for `pages`.
    fn there_is(&self, pages: u64) -> u64 {
        self.allowed.map_or(pages, |allowed| pages.min(allowed.pages))
    }

    /// The pages that the run would get, as text.
    fn gets(&self) -> String {
        let (given, gets) = (self.given(), self.there_is(self.given()));
        match (self.asked, gets < given) {
            (Some(_), false) => format!("-m {given}"),
            (Some(_), true) => format!("-m {given}, cut to {gets} ({}),", self.size(gets)),
            (None, false) => format!("the default, {given} ({}),", self.size(given)),
            (None, true) => format!("the default, {given}, cut to {gets} ({}),", self.size(gets)),
        }
    }
}

/// Limit of the rows of events in text.
const MAX_ROWS: usize = 20;

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
        for event in events.iter().take(MAX_ROWS) {
            let about = if event.is_estimate { "~" } else { "" };
            let frames = event.frames.map_or_else(|| "-".to_owned(), |frames| format!("{frames:.1}"));
            lines.push(format!(
                "{:>11} {:>13} {:>9.3} {:>7}{}  {}",
                number(event.per_s),
                number(event.busiest_per_s),
                event.per_s * event.record_bytes / 1e6,
                format!("{about}{:.0}", event.record_bytes),
                frames_column(&frames),
                event.label()
            ));
        }
        if events.len() > MAX_ROWS {
            lines.push(format!("{:>11} {:>13} {:>9} {:>7}  {} events more", "", "", "", "", events.len() - MAX_ROWS));
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
        let silent = self.events.iter().filter(|event| event.per_s <= 0.0 && !event.is_copy_of_stack);
        let silent: Vec<&EventForecast> = silent.collect();
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
        lines.push(format!("self: about {:.digits$} % of one CPU", self.cpu_pct));
        let ring = &self.ring;
        let each = if ring.rings == 1 { "per CPU".to_owned() } else { format!("each, {} per CPU", ring.rings) };
        let advice = format!("-m {} ({} {each})", ring.pages, ring.size(ring.pages));
        let name = ring.gets();
        let verdict = if ring.there_is(ring.given()) >= ring.pages { "is enough" } else { "is too small" };
        if ring.is_most {
            lines.push(format!("ring buffers: even the largest, {advice}, may lose events"));
        } else {
            lines.push(format!("ring buffers: {advice} should lose nothing; {name} {verdict}"));
        }
        if let Some(RingAllowance { pages, who, cure }) = ring.allowed {
            lines.push(format!("{who} -m {pages} at most; cure: {cure}"));
        }
        let why = match self.pace {
            ForecastPace::KeepsUp => return,
            ForecastPace::Crowded => "other tasks leave perf-prof too little of a CPU: start it with chrt -f 1",
            ForecastPace::Alone => {
                "reading and output take more than the one CPU that perf-prof may use: allow it a second, or narrow the \
                 events with a filter, -C or -p"
            }
            ForecastPace::TooSlow => "perf-prof can hardly keep up: narrow the events with a filter, -C or -p",
        };
        lines.push(format!("{why}; in a long run no ring buffer is enough"));
    }

    fn json(&self, out: &mut Vec<u8>, wall: &mut WallClock) {
        let mut object = json::head(out, "forecast", self.profiler.as_str(), self.time_ns, wall);
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
        object.bool("keeps_up", self.pace == ForecastPace::KeepsUp);
        object.unsigned("ring_pages", self.ring.pages);
        object.unsigned("rings_per_cpu", self.ring.rings as u64);
        object.unsigned("ring_bytes", self.ring.pages.saturating_mul(self.ring.page_bytes));
        object.unsigned("run_ring_pages", self.ring.there_is(self.ring.given()));
        if let Some(allowed) = &self.ring.allowed {
            object.unsigned("allowed_ring_pages", allowed.pages);
        }
        let is_there = self.ring.there_is(self.ring.pages) == self.ring.pages;
        object.bool("ring_suffices", is_there && !self.ring.is_most && self.pace == ForecastPace::KeepsUp);
        object.end();
        out.push(b'\n');
    }
}

impl EventForecast {
    fn label(&self) -> String {
        let name = escape(self.name.as_bytes());
        if self.is_copy_of_stack { format!("copies of stacks at {name}") } else { name }
    }

    fn json(&self, out: &mut Vec<u8>) {
        let mut object = Object::new(out);
        object.text("event", &escape(self.name.as_bytes()));
        if self.is_copy_of_stack {
            object.bool("copies_of_stacks", true);
        }
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

/// A number, with one decimal below 100.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, per_s: f64) -> EventForecast {
        EventForecast {
            name: name.to_owned(),
            per_s,
            unwatched_per_s: None,
            busiest_per_s: per_s / 2.0,
            record_bytes: 100.0,
            is_estimate: false,
            frames: None,
            samples: true,
            is_counted: true,
            is_copy_of_stack: false,
        }
    }

    fn forecast() -> Forecast {
        let ring = RingForecast {
            pages: 64,
            is_most: false,
            rings: 1,
            page_bytes: 4096,
            asked: None,
            default_pages: 2048,
            allowed: None,
        };
        Forecast {
            profiler: "trace".to_owned(),
            time_ns: 1,
            counted_ns: 1_000_000_000,
            sampled_ns: 500_000_000,
            ended_early: false,
            cpus: 2,
            counters: 6,
            events: vec![event("a:rare", 0.5), event("a:often", 20_000.0), event("a:never", 0.0)],
            per_s: 20_000.5,
            unwatched_per_s: None,
            bytes_per_s: 2_001_050.0,
            side_bytes_per_s: 1000.0,
            cpu_pct: 3.1,
            pace: ForecastPace::KeepsUp,
            ring,
        }
    }

    #[test]
    fn the_table_is_aligned_and_the_rest_is_sentences() {
        let want = "\
trace, forecast: counted for 1.000 s, sampled for 0.500 s, 2 CPUs
   events/s busiest CPU/s      MB/s   bytes  event
      20000         10000     2.000     100  a:often
        0.5           0.2     0.000     100  a:rare
                              0.001          names, forks, exits, mappings
      20000                   2.001          total
did not happen: a:never
self: about 3.1 % of one CPU
ring buffers: -m 64 (256 KiB per CPU) should lose nothing; the default, 2048 (8 MiB), is enough";
        assert_eq!(forecast().lines().join("\n"), want);
    }

    #[test]
    fn estimates_are_marked() {
        let mut told = forecast();
        told.events = (0..25).map(|index| event(&format!("e{index:02}"), 1.0 + f64::from(index))).collect();
        told.events[24] = EventForecast { is_estimate: true, frames: Some(12.34), ..event("\x1b[e", 1e6) };
        told.events.push(EventForecast { samples: false, ..event("count", 0.0) });
        told.events.push(EventForecast { is_copy_of_stack: true, ..event("e24", 20.0) });
        told.events.push(EventForecast { is_copy_of_stack: true, ..event("silent", 0.0) });
        told.unwatched_per_s = Some(2e6);
        told.cpu_pct = 97.6;
        told.ended_early = true;
        let text = told.lines().join("\n");
        for words in [
            "2 CPUs, ended early",
            "1000000        500000   100.000    ~100     12.3  \\x1b[e",
            "      24.0          12.0     0.002     100        -  e23",
            "  6 events more",
            "  copies of stacks at e24",
            "only counted, no records: count",
            "there are 2000000/s while nobody watches",
            "about 98 % of one CPU",
        ] {
            assert!(text.contains(words), "{words:?}: {text}");
        }
    }

    #[test]
    fn the_advice_fits_the_option() {
        let ring = forecast().ring;
        let asked = |pages| RingForecast { asked: Some(pages), ..ring };
        let few = |pages, asked| {
            let allowed = Some(RingAllowance { pages, who: "the mlock limit allows", cure: "a larger one" });
            RingForecast { allowed, asked, ..ring }
        };
        let cases: [(RingForecast, ForecastPace, &str); 13] = [
            (asked(64), ForecastPace::KeepsUp, "should lose nothing; -m 64 is enough"),
            (asked(32), ForecastPace::KeepsUp, "should lose nothing; -m 32 is too small"),
            (RingForecast { pages: 4096, ..ring }, ForecastPace::KeepsUp, "the default, 2048 (8 MiB), is too small"),
            (
                RingForecast { is_most: true, ..ring },
                ForecastPace::KeepsUp,
                "even the largest, -m 64 (256 KiB per CPU), may lose",
            ),
            (
                RingForecast { rings: 2, ..ring },
                ForecastPace::KeepsUp,
                "-m 64 (256 KiB each, 2 per CPU) should lose nothing",
            ),
            (few(64, None), ForecastPace::KeepsUp, "the default, 2048, cut to 64 (256 KiB), is enough"),
            (
                few(32, None),
                ForecastPace::KeepsUp,
                "lose nothing; the default, 2048, cut to 32 (128 KiB), is too small",
            ),
            (few(32, Some(128)), ForecastPace::KeepsUp, "-m 128, cut to 32 (128 KiB), is too small"),
            (few(32, Some(16)), ForecastPace::KeepsUp, "lose nothing; -m 16 is too small"),
            (few(32, None), ForecastPace::KeepsUp, "the mlock limit allows -m 32 at most; cure: a larger one"),
            (ring, ForecastPace::of(0.95, 1.0, 0.5), "can hardly keep up: narrow the events"),
            (ring, ForecastPace::of(0.2, 0.21, 1.0), "other tasks leave perf-prof too little of a CPU"),
            (
                ring,
                ForecastPace::of(0.5, 0.5, 0.5),
                "the one CPU that perf-prof may use: allow it a second, or narrow the events",
            ),
        ];
        for (ring, pace, want) in cases {
            let lines = Forecast { ring, pace, ..forecast() }.lines();
            assert!(lines.iter().any(|line| line.contains(want)), "{want:?}: {lines:#?}");
        }
        assert_eq!(ForecastPace::of(0.2, 0.5, 0.5), ForecastPace::KeepsUp);
    }

    #[test]
    fn json_is_one_object_with_finite_numbers() {
        let mut told = forecast();
        told.events[2] = EventForecast { samples: false, frames: Some(f64::NAN), ..event("\"\n", 0.0) };
        let mut out = Vec::new();
        told.print(true, &mut out);
        let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(object["events"][1]["events_per_s"], 20_000.0);
        assert_eq!(object["events"][2]["frames"], 0.0);
        assert!(object["events"][2]["record_bytes"].is_null() && object["unwatched_per_s"].is_null());
        assert_eq!((object["ring_pages"].as_u64(), object["ring_bytes"].as_u64()), (Some(64), Some(262_144)));
        assert_eq!((&object["ring_suffices"], &object["keeps_up"]), (&true.into(), &true.into()));
        assert_eq!((object["run_ring_pages"].as_u64(), object["allowed_ring_pages"].as_u64()), (Some(2048), None));
        told.ring.allowed = Some(RingAllowance { pages: 16, who: "the mlock limit allows", cure: "a larger one" });
        out.clear();
        told.print(true, &mut out);
        let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((object["run_ring_pages"].as_u64(), object["allowed_ring_pages"].as_u64()), (Some(16), Some(16)));
        assert_eq!(object["ring_suffices"], false);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
