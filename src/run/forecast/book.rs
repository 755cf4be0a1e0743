//! What was counted and sampled, and what follows from it.

use std::collections::VecDeque;

/// Between two readings of the counters, unless there are very many.
pub const STEP_NS: u64 = 10_000_000;
/// In steps: for how long perf-prof may be kept from a CPU. The longest is a guess at the worst.
const WINDOWS: [usize; 4] = [5, 10, 20, 40];

/// Of the count, in which a load that recording has slowed down is back at its pace.
const EARLY_STEPS: usize = 10;

/// A part of the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are read and caches fill: it says nothing of what follows.
    WarmUp,
    /// As in a run.
    Sampled,
    /// As if nobody watched.
    Counted,
}

/// What one kind of phase showed.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub ns: u64,
    /// By event.
    pub counts: Vec<u64>,
}

impl Sums {
    fn per_s(&self, event: usize) -> f64 {
        rate(self.counts.get(event).copied().unwrap_or(0) as f64, self.ns)
    }
}

pub fn rate(count: f64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count * 1e9 / ns as f64 }
}

/// All readings.
#[derive(Debug, Default)]
pub struct Book {
    /// Says nothing, unless there was no more.
    warm_up: Sums,
    pub counted: Sums,
    /// Of the first steps of that.
    early: Vec<u64>,
    steps: usize,
    /// Before and after that.
    sampled: [Sums; 2],
    rings: Vec<Ring>,
    /// Between two readings.
    pub step_ns: u64,
}

#[derive(Debug, Default)]
struct Ring {
    cpu: u32,
    /// Among those of its CPU.
    class: usize,
    /// Bytes of the last steps, the newest last.
    steps: VecDeque<f64>,
    /// The most in so many steps.
    peaks: [f64; WINDOWS.len()],
    counts: Vec<u64>,
}

impl Book {
    pub fn new(events: usize) -> Book {
        let sums = || Sums { ns: 0, counts: vec![0; events] };
        Book {
            warm_up: sums(),
            counted: sums(),
            early: vec![0; events],
            steps: 0,
            sampled: [sums(), sums()],
            rings: Vec::new(),
            step_ns: STEP_NS,
        }
    }

    pub fn sums(&mut self, phase: Phase) -> &mut Sums {
        match phase {
            Phase::WarmUp => &mut self.warm_up,
            Phase::Counted => &mut self.counted,
            Phase::Sampled if self.counted.ns == 0 => &mut self.sampled[0],
            Phase::Sampled => &mut self.sampled[1],
        }
    }

    /// A CPU counted so many of an event, which would have been so many bytes for one of its rings: in one step.
    pub fn count(&mut self, (cpu, class): (u32, usize), event: usize, count: u64, bytes: f64) {
        let events = self.counted.counts.len();
        if self.steps < EARLY_STEPS
            && let Some(sum) = self.early.get_mut(event)
        {
            *sum += count;
        }
        let index = self.rings.iter().position(|ring| (ring.cpu, ring.class) == (cpu, class)).unwrap_or_else(|| {
            self.rings.push(Ring { cpu, class, counts: vec![0; events], ..Ring::default() });
            self.rings.len() - 1
        });
        let ring = &mut self.rings[index];
        if let Some(sum) = ring.counts.get_mut(event) {
            *sum += count;
        }
        match ring.steps.back_mut() {
            Some(last) => *last += bytes,
            None => ring.steps.push_back(bytes),
        }
    }

    /// The step is over.
    pub fn end_step(&mut self) {
        self.steps += 1;
        for ring in &mut self.rings {
            for (peak, steps) in ring.peaks.iter_mut().zip(WINDOWS) {
                *peak = peak.max(ring.steps.iter().rev().take(steps).sum());
            }
            if ring.steps.len() >= WINDOWS[WINDOWS.len() - 1] {
                ring.steps.pop_front();
            }
            ring.steps.push_back(0.0);
        }
    }

    /// How many of an event the busiest CPU counted per second. None: nothing was counted by CPU.
    pub fn busiest(&self, event: usize) -> Option<f64> {
        let most = self.rings.iter().filter_map(|ring| ring.counts.get(event)).max();
        (self.counted.ns > 0).then(|| rate(most.copied().unwrap_or(0) as f64, self.counted.ns))
    }

    /// The most bytes for one ring in `ns`.
    pub fn peak(&self, ns: u64) -> f64 {
        let window = WINDOWS.iter().position(|steps| *steps as u64 * self.step_ns >= ns).unwrap_or(WINDOWS.len() - 1);
        self.rings.iter().map(|ring| ring.peaks[window]).fold(0.0, f64::max)
    }

    /// What a run will see of an event per second, and what there is when nobody watches, if that is more. Recording costs
    /// those who raise the events; only what was slow before and after the counting was slowed by that.
    pub fn expected(&self, event: usize) -> (f64, Option<f64>) {
        const SLOWED: f64 = 0.9;
        const ENOUGH: u64 = 100;
        // A record costs who raises it some us: fewer in a second cannot be felt.
        const FELT_PER_S: f64 = 10_000.0;
        let of_all = |sums: &[Sums]| Sums {
            ns: sums.iter().map(|sums| sums.ns).sum(),
            counts: vec![sums.iter().filter_map(|sums| sums.counts.get(event)).sum()],
        };
        let sampled = of_all(&self.sampled);
        if self.counted.ns == 0 {
            let all = if sampled.ns > 0 { sampled } else { of_all(std::slice::from_ref(&self.warm_up)) };
            return (all.per_s(0), None);
        }
        let unwatched = self.counted.per_s(event);
        let of = |sums: &Sums| sums.ns > 0 && sums.per_s(event) < unwatched * SLOWED;
        // What came later, all of a sudden, is a burst, and was slowed by nobody before.
        let early = rate(self.early.get(event).copied().unwrap_or(0) as f64, EARLY_STEPS as u64 * self.step_ns);
        let is_steady = early > unwatched / 2.0;
        if is_steady && unwatched >= FELT_PER_S && self.sampled.iter().all(of) && sampled.counts[0] >= ENOUGH {
            return (sampled.per_s(0), Some(unwatched));
        }
        let (ns, count) = (sampled.ns + self.counted.ns, sampled.counts[0] + self.counted.counts[event]);
        // A load that is slowed by less, or in fits, is told by all that was seen of it.
        (rate(count as f64, ns), None)
    }
}

/// What a ring must hold.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// On the busiest CPU: in the longest that perf-prof is kept from a CPU, and per second.
    pub peak_bytes: f64,
    pub bytes_per_s: f64,
    /// The share of the reader's CPU time, as far as others leave it any, that the records of all CPUs take.
    pub busy: f64,
}

impl Need {
    /// Bytes of the ring of each CPU that loses nothing.
    pub fn ring_bytes(&self) -> f64 {
        const SAFETY: f64 = 1.5;
        // How long it is kept that the reader falls behind.
        const SECONDS_BEHIND: f64 = 10.0;
        const EASY: f64 = 0.7;
        // The reader is woken when half is full: the other half is for while it waits for a CPU.
        let halves = 2.0 * self.peak_bytes * SAFETY;
        let behind = if self.busy > EASY { (1.0 - EASY / self.busy) * SECONDS_BEHIND * self.bytes_per_s } else { 0.0 };
        halves + behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(counted: u64, before: u64, after: u64) -> Book {
        let mut book = Book::new(1);
        for (phase, ns, count) in [
            (Phase::Sampled, 200_000_000, before),
            (Phase::Counted, 1_000_000_000, counted),
            (Phase::Sampled, 200_000_000, after),
        ] {
            let sums = book.sums(phase);
            sums.counts[0] += count;
            sums.ns += ns;
        }
        book.early[0] = counted / 10;
        book
    }

    #[test]
    fn a_load_that_is_slowed_by_being_watched_is_told_as_it_is_then() {
        let cases = [
            ((1000, 200, 200), (1000.0, None)),
            ((100_000, 5000, 6000), (27_500.0, Some(100_000.0))),
            ((100_000, 5000, 25_000), (130_000.0 / 1.4, None)), // it varies by itself
            ((1000, 190, 185), (1375.0 / 1.4, None)),
            ((1000, 100, 100), (1200.0 / 1.4, None)), // nor are so few felt
            ((10, 0, 0), (10.0 / 1.4, None)),         // few come by chance
            ((0, 0, 0), (0.0, None)),
        ];
        for ((counted, before, after), want) in cases {
            let got = book(counted, before, after).expected(0);
            assert!((got.0 - want.0).abs() < 1e-6 && got.1 == want.1, "{counted} {before} {after}: {got:?}");
        }
        let mut burst = book(100_000, 5000, 6000);
        burst.early[0] = 4000;
        assert_eq!(burst.expected(0).1, None, "it came in mid-count");
        let mut short = Book::new(1);
        *short.sums(Phase::WarmUp) = Sums { ns: 100_000_000, counts: vec![2] };
        assert_eq!(short.expected(0), (20.0, None), "it ended before it was warm");
        *short.sums(Phase::Sampled) = Sums { ns: 500_000_000, counts: vec![5] };
        assert_eq!(short.expected(0), (10.0, None), "it ended before it was counted");
    }

    #[test]
    fn the_peak_is_that_of_a_window_on_one_cpu() {
        let mut book = Book::new(1);
        for step in 0..100 {
            for cpu in [3, 7] {
                let burst = cpu == 7 && (40..45).contains(&step);
                book.count((cpu, 0), 0, 1, if burst { 1000.0 } else { 10.0 });
            }
            book.end_step();
        }
        book.counted.ns = 1_000_000_000;
        assert_eq!(book.peak(50_000_000), 5000.0);
        assert_eq!(book.peak(60_000_000), 5050.0, "the next larger window");
        assert_eq!(book.peak(400_000_000), 5350.0);
        assert_eq!(book.peak(u64::MAX), 5350.0);
        assert_eq!(book.busiest(0), Some(100.0));
    }

    #[test]
    fn a_ring_holds_twice_what_comes_while_nobody_reads() {
        let easy = Need { peak_bytes: 1000.0, bytes_per_s: 20_000.0, busy: 0.1 };
        assert_eq!(easy.ring_bytes(), 3000.0);
        let behind = Need { busy: 1.4, ..easy };
        assert_eq!(behind.ring_bytes(), 3000.0 + 100_000.0);
    }
}
