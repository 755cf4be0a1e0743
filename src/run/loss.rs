//! Losses per interval: their counts, their time windows, and the cheapest cure.

use crate::stats::{LostWindow, TopK};

/// Limit of the separate windows per interval; beyond it, the windows of each CPU are merged.
const MAX_WINDOWS: usize = 256;

/// Losses in this interval and in the whole run.
#[derive(Debug, Default)]
pub struct LossBook {
    windows: Vec<LostWindow>,
    interval: u64,
    total: u64,
    /// Lost samples per CPU in this interval.
    by_cpu: Vec<(u32, u64)>,
    /// Windows reported so far.
    told: u64,
    side_interval: u64,
    side_total: u64,
    switches_total: u64,
}

impl LossBook {
    /// Counts `count` lost samples of `cpu`.
    pub fn count(&mut self, cpu: u32, count: u64) {
        if count == 0 {
            return;
        }
        self.interval = self.interval.saturating_add(count);
        self.total = self.total.saturating_add(count);
        match self.by_cpu.iter_mut().find(|(other, _)| *other == cpu) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => self.by_cpu.push((cpu, count)),
        }
    }

    /// Counts `count` lost side records.
    pub fn count_side(&mut self, count: u64) {
        self.side_interval = self.side_interval.saturating_add(count);
        self.side_total = self.side_total.saturating_add(count);
    }

    /// Counts `count` lost SWITCH records.
    pub fn count_switches(&mut self, count: u64) {
        self.switches_total = self.switches_total.saturating_add(count);
    }

    pub fn switches_total(&self) -> u64 {
        self.switches_total
    }

    /// Notes a window in which only side records were lost.
    pub fn side_window(&mut self) {
        self.told += 1;
    }

    /// Adds a window in which records of a CPU were lost. Adjacent or overlapping windows of a CPU are merged.
    pub fn window(&mut self, span: LostWindow) {
        self.told += 1;
        let full = self.windows.len() >= MAX_WINDOWS;
        let last = self.windows.iter_mut().rev().find(|old| old.cpu == span.cpu);
        match last {
            Some(last) if full || span.start_ns <= last.end_ns => {
                last.end_ns = last.end_ns.max(span.end_ns);
                last.count = last.count.saturating_add(span.count);
            }
            _ => self.windows.push(span),
        }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of windows of loss. A kernel may report windows without counts.
    pub fn windows_total(&self) -> u64 {
        self.told
    }

    pub fn interval(&self) -> u64 {
        self.interval
    }

    pub fn side_interval(&self) -> u64 {
        self.side_interval
    }

    pub fn side_total(&self) -> u64 {
        self.side_total
    }

    /// The coverage of the interval so far, which began at `start_ns`.
    pub fn coverage(&self, start_ns: u64, end_ns: u64, cpus: usize) -> f64 {
        coverage(&self.windows, start_ns, end_ns, cpus)
    }

    /// Starts the next interval. Returns the windows of the interval that ended.
    pub fn next_interval(&mut self) -> Vec<LostWindow> {
        (self.interval, self.side_interval) = (0, 0);
        self.by_cpu.clear();
        std::mem::take(&mut self.windows)
    }

    /// One line with counts, CPUs and the cure. None when nothing was lost.
    pub fn line(&self, samples: u64, cure: &str) -> Option<String> {
        const NAMED: usize = 4;
        if self.interval == 0 {
            return None;
        }
        let seen = samples + self.interval;
        let cpus = TopK::of(NAMED, self.by_cpu.iter().map(|(cpu, sum)| (*sum, *cpu))).into_sorted();
        let places: Vec<String> = cpus.iter().map(|(sum, cpu)| format!("CPU {cpu}: {sum}")).collect();
        let more = if self.by_cpu.len() > NAMED { ", ..." } else { "" };
        Some(format!("lost {} of {seen} events ({}{more}); {cure}", self.interval, places.join(", ")))
    }
}

/// The fill level of one ring, for the advice.
#[derive(Clone, Copy, Debug)]
pub struct RingUse {
    pub lost: u64,
    pub backlog_peak_bytes: u64,
    pub mean_record_bytes: u64,
}

/// Data pages of a ring that would have lost nothing; None beyond `most_pages`.
pub fn sufficient_pages(rings: &[RingUse], page_bytes: u64, most_pages: u64) -> Option<u64> {
    let need = |ring: &RingUse| {
        ring.backlog_peak_bytes.saturating_add(ring.lost.saturating_mul(ring.mean_record_bytes.max(64)))
    };
    let bytes = rings.iter().filter(|ring| ring.lost > 0).map(need).max()?;
    let pages = bytes.div_ceil(page_bytes.max(1)).checked_next_power_of_two()?;
    (pages <= most_pages).then_some(pages)
}

/// The advice as text, if a CPU has `per_cpu` such rings.
pub fn cure(rings: &[RingUse], page_bytes: u64, per_cpu: u64, most_pages: u64) -> String {
    match sufficient_pages(rings, page_bytes, most_pages) {
        Some(pages) => {
            let kib = pages * per_cpu * page_bytes / 1024;
            let size = if kib >= 1024 { format!("{} MiB", kib / 1024) } else { format!("{kib} KiB") };
            format!("-m {pages} would have sufficed; needs {size} per CPU")
        }
        None => "no ring buffer is large enough: narrow the events with a filter, -C or -p".to_owned(),
    }
}

/// 1 - (lost-window time summed over CPUs) / (interval x CPUs).
pub fn coverage(windows: &[LostWindow], start_ns: u64, end_ns: u64, cpus: usize) -> f64 {
    let span = end_ns.saturating_sub(start_ns) as f64 * cpus as f64;
    if span <= 0.0 {
        return 1.0;
    }
    let mut sorted: Vec<LostWindow> = windows.to_vec();
    sorted.sort_by_key(|window| (window.cpu, window.start_ns));
    let mut dark = 0_u64;
    let mut covered_to = (u32::MAX, 0);
    for window in sorted {
        let from = window.start_ns.max(start_ns).max(if covered_to.0 == window.cpu { covered_to.1 } else { 0 });
        let to = window.end_ns.min(end_ns);
        dark += to.saturating_sub(from);
        covered_to = (window.cpu, to.max(if covered_to.0 == window.cpu { covered_to.1 } else { 0 }));
    }
    (1.0 - dark as f64 / span).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(cpu: u32, start_ns: u64, end_ns: u64) -> LostWindow {
        LostWindow { cpu, start_ns, end_ns, count: 1 }
    }

    #[test]
    fn coverage_is_the_share_of_time_seen() {
        let cases: [(&[LostWindow], f64); 5] = [
            (&[], 1.0),
            (&[span(0, 100, 150)], 0.75),
            (&[span(0, 100, 150), span(0, 120, 160), span(1, 0, 110)], 0.65),
            (&[span(0, 0, 1000), span(1, 0, 1000)], 0.0),
            (&[span(0, 300, 400)], 1.0),
        ];
        for (windows, want) in cases {
            let got = coverage(windows, 100, 200, 2);
            assert!((got - want).abs() < 1e-9, "{windows:?}: {got}");
        }
        assert_eq!(coverage(&[span(0, 1, 2)], 5, 5, 2), 1.0);
    }

    #[test]
    fn windows_that_touch_are_one() {
        let mut book = LossBook::default();
        for window in [span(0, 1, 5), span(1, 2, 3), span(0, 5, 9), span(0, 20, 30)] {
            book.window(window);
        }
        let joined = LostWindow { count: 2, ..span(0, 1, 9) };
        assert_eq!(book.next_interval(), [joined, span(1, 2, 3), span(0, 20, 30)]);
        assert!(book.next_interval().is_empty());
    }

    #[test]
    fn the_line_names_the_worst_cpu_first() {
        let mut book = LossBook::default();
        assert_eq!(book.line(5, ""), None);
        book.count(0, 1);
        book.count(1, 20);
        book.count(0, 2);
        assert_eq!(book.line(77, "x").as_deref(), Some("lost 23 of 100 events (CPU 1: 20, CPU 0: 3); x"));
        assert_eq!((book.interval(), book.total()), (23, 23));
        book.next_interval();
        assert_eq!((book.interval(), book.total()), (0, 23));
    }

    #[test]
    fn the_cure_is_a_power_of_two_that_holds_all() {
        let ring = |lost, backlog_peak_bytes| RingUse { lost, backlog_peak_bytes, mean_record_bytes: 100 };
        let cases = [
            (vec![ring(0, 4096)], None),
            (vec![ring(41, 4096)], Some(4)),
            (vec![ring(41, 4096), ring(1000, 4096)], Some(32)),
            (vec![ring(1 << 40, 4096)], None),
        ];
        for (rings, want) in cases {
            assert_eq!(sufficient_pages(&rings, 4096, 1024), want, "{rings:?}");
        }
        assert_eq!(cure(&[ring(41, 4096)], 4096, 1, 1024), "-m 4 would have sufficed; needs 16 KiB per CPU");
        assert_eq!(cure(&[ring(41, 4096)], 4096, 3, 1024), "-m 4 would have sufficed; needs 48 KiB per CPU");
    }
}
