//! The counts and samples of a dry run, and the rates and ring sizes that follow from them.

use std::collections::VecDeque;

/// Times for which perf-prof may be kept off the CPU. The longest is a guess at the worst case.
const WINDOWS_NS: [u64; 4] = [100_000_000, 200_000_000, 400_000_000, 800_000_000];

/// A kind of time slice of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are read and caches fill: not representative.
    WarmUp,
    /// Samples are taken, as in a run.
    Sampled,
    /// Events are only counted, which does not slow the load down.
    Counted,
}

/// The counts of one time slice.
#[derive(Debug)]
struct TimeSlice {
    phase: Phase,
    ns: u64,
    /// The counts, by event.
    counts: Vec<u64>,
}

impl TimeSlice {
    fn count(&self, event: usize) -> u64 {
        self.counts.get(event).copied().unwrap_or(0)
    }

    fn per_s(&self, event: usize) -> f64 {
        rate(self.count(event) as f64, self.ns)
    }
}

pub fn rate(count: f64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count * 1e9 / ns as f64 }
}

/// All counts of a dry run.
#[derive(Debug, Default)]
pub struct ForecastBook {
    events: usize,
    /// The time slices, in time order.
    slices: Vec<TimeSlice>,
    rings: Vec<CountedRing>,
    /// Lengths of the last counting steps in ns, the newest last.
    steps: VecDeque<u64>,
}

/// What would arrive in one ring.
#[derive(Debug, Default)]
struct CountedRing {
    cpu: u32,
    /// The ring's number on its CPU.
    class: usize,
    /// Bytes in each of the last steps.
    steps: VecDeque<f64>,
    /// The most bytes in a window of each length.
    peaks: [f64; WINDOWS_NS.len()],
    /// The counts, by event.
    counts: Vec<u64>,
    records: f64,
    bytes: f64,
}

impl ForecastBook {
    pub fn new(events: usize) -> ForecastBook {
        ForecastBook { events, ..ForecastBook::default() }
    }

    /// Begins a time slice.
    pub fn begin(&mut self, phase: Phase) {
        self.slices.push(TimeSlice { phase, ns: 0, counts: vec![0; self.events] });
    }

    /// Adds `count` of an event to the current slice.
    pub fn add(&mut self, event: usize, count: u64) {
        if let Some(sum) = self.slices.last_mut().and_then(|slice| slice.counts.get_mut(event)) {
            *sum += count;
        }
    }

    /// Ends the current slice, which took `ns`.
    pub fn end(&mut self, ns: u64) {
        if let Some(slice) = self.slices.last_mut() {
            slice.ns = ns;
        }
    }

    pub fn counted_ns(&self) -> u64 {
        self.slices.iter().filter(|slice| slice.phase == Phase::Counted).map(|slice| slice.ns).sum()
    }

    /// Events per second in all slices of the phases `wanted`.
    fn per_s(&self, event: usize, wanted: impl Fn(Phase) -> bool) -> f64 {
        let slices = self.slices.iter().filter(|slice| wanted(slice.phase));
        let (count, ns) = slices.fold((0, 0), |(count, ns), slice| (count + slice.count(event), ns + slice.ns));
        rate(count as f64, ns)
    }

    /// Adds to the current step the count of an event on a CPU, and the records and bytes that these events would be in
    /// a ring.
    pub fn count(&mut self, (cpu, class): (u32, usize), event: usize, count: u64, records: f64, bytes: f64) {
        let events = self.events;
        let index = self.rings.iter().position(|ring| (ring.cpu, ring.class) == (cpu, class)).unwrap_or_else(|| {
            let steps = self.steps.iter().map(|_| 0.0).chain([0.0]).collect();
            self.rings.push(CountedRing { cpu, class, steps, counts: vec![0; events], ..CountedRing::default() });
            self.rings.len() - 1
        });
        let ring = &mut self.rings[index];
        if let Some(sum) = ring.counts.get_mut(event) {
            *sum += count;
        }
        ring.records += records;
        ring.bytes += bytes;
        if let Some(last) = ring.steps.back_mut() {
            *last += bytes;
        }
    }

    /// Removes the rings of this number from the forecast.
    pub fn forget_rings(&mut self, class: usize) {
        self.rings.retain(|ring| ring.class != class);
    }

    /// Ends the current step, which took `ns`.
    pub fn end_step(&mut self, ns: u64) {
        const KEPT: usize = 64;
        self.steps.push_back(ns);
        for ring in &mut self.rings {
            for (peak, window) in ring.peaks.iter_mut().zip(WINDOWS_NS) {
                let (mut covered, mut bytes) = (0, 0.0);
                for (ns, more) in self.steps.iter().rev().zip(ring.steps.iter().rev()) {
                    covered += ns;
                    bytes += more;
                    if covered >= window - window / 10 {
                        *peak = peak.max(bytes);
                        break;
                    }
                }
            }
            ring.steps.push_back(0.0);
            if ring.steps.len() > KEPT {
                ring.steps.pop_front();
            }
        }
        if self.steps.len() >= KEPT {
            self.steps.pop_front();
        }
    }

    /// Counts per second of an event on its busiest CPU. None: nothing was counted by CPU.
    pub fn busiest(&self, event: usize) -> Option<f64> {
        let most = self.rings.iter().filter_map(|ring| ring.counts.get(event)).max();
        (self.counted_ns() > 0).then(|| rate(most.copied().unwrap_or(0) as f64, self.counted_ns()))
    }

    /// The most bytes that arrive in one ring in a window of at least `ns`.
    pub fn peak(&self, ns: u64) -> f64 {
        let window = WINDOWS_NS.iter().position(|window| *window >= ns).unwrap_or(WINDOWS_NS.len() - 1);
        // A short dry run may have no window of this length: then the mean is used.
        let mean = |ring: &CountedRing| rate(ring.bytes, self.counted_ns()) * WINDOWS_NS[window] as f64 / 1e9;
        self.rings.iter().map(|ring| ring.peaks[window].max(mean(ring))).fold(0.0, f64::max)
    }

    /// Records per second of the CPU that has most.
    fn records_per_s(&self) -> f64 {
        let of_cpu = |cpu: u32| self.rings.iter().filter(|ring| ring.cpu == cpu).map(|ring| ring.records).sum::<f64>();
        rate(self.rings.iter().map(|ring| of_cpu(ring.cpu)).fold(0.0, f64::max), self.counted_ns())
    }

    /// Events per second that a run will see, and events per second without sampling, if these are clearly more.
    pub fn expected(&self, event: usize) -> (f64, Option<f64>) {
        /// A slowdown to more than this share is not reported.
        const CLEARLY_SLOWER: f64 = 0.98;
        /// With less counting time the dry run has ended early.
        const MIN_COUNTED_NS: u64 = 10_000_000;
        if self.counted_ns() < MIN_COUNTED_NS {
            return (self.per_s(event, |_| true), None);
        }
        let unwatched = self.per_s(event, |phase| phase == Phase::Counted);
        let slowdown = self.slowdown(event);
        // All counts, with those of counted phases scaled down by the slowdown.
        let slices = self.slices.iter().filter(|slice| slice.phase != Phase::WarmUp);
        let (count, ns) = slices.fold((0.0, 0), |(count, ns), slice| {
            let slowed = if slice.phase == Phase::Counted { slowdown } else { 1.0 };
            (count + slice.count(event) as f64 * slowed, ns + slice.ns)
        });
        (rate(count, ns), (slowdown < CLEARLY_SLOWER).then_some(unwatched))
    }

    /// The rate of an event while samples are taken, relative to its rate while it is only counted: writing samples
    /// costs the tasks time in which they would cause further events.
    ///
    /// Changes of the load itself affect a sampled slice and the counted slices around it about equally. The variation
    /// between slices shows how much of the difference may be chance; the number of records limits how large the
    /// slowdown can be.
    fn slowdown(&self, event: usize) -> f64 {
        /// Upper bound of the time to write one record with a callchain.
        const RECORD_S: f64 = 1e-6;
        let of = |slices: &[TimeSlice]| {
            let [before, sampled, after] = slices else { return None };
            let turns = [before.phase, sampled.phase, after.phase];
            let rates = [before, sampled, after].map(|slice| slice.per_s(event));
            (turns == [Phase::Counted, Phase::Sampled, Phase::Counted]).then_some(rates)
        };
        let turns: Vec<[f64; 3]> = self.slices.windows(3).filter_map(of).collect();
        let sum = |of: &dyn Fn(&[f64; 3]) -> f64| turns.iter().map(of).sum::<f64>();
        let counted = sum(&|[before, _, after]| (before + after) / 2.0);
        let may_be = (self.records_per_s() * RECORD_S).min(1.0).powi(2);
        if turns.len() < 2 || counted <= 0.0 || may_be <= 0.0 {
            return 1.0;
        }
        let seen = sum(&|[_, sampled, _]| *sampled) / counted;
        let apart = sum(&|[before, sampled, after]| {
            (sampled - seen * (before + after) / 2.0).powi(2) + ((before - after) / 2.0).powi(2)
        });
        let number = turns.len() as f64;
        let chance = apart * number / (number - 1.0) / counted.powi(2);
        1.0 + (seen - 1.0) * may_be / (may_be + chance)
    }
}

/// What a ring must be able to hold.
#[derive(Clone, Copy, Debug)]
pub struct RingDemand {
    /// Bytes on the busiest CPU in the longest time for which perf-prof is kept off the CPU.
    pub peak_bytes: f64,
    /// Bytes per second on the busiest CPU.
    pub bytes_per_s: f64,
    /// The share of the reader's available CPU time that the records of all CPUs need.
    pub busy: f64,
}

impl RingDemand {
    /// Size in bytes of a ring, one per CPU, that loses nothing.
    pub fn ring_bytes(&self) -> f64 {
        const SAFETY: f64 = 1.5;
        /// For how long the ring can absorb records of a reader that is too slow.
        const SECONDS_BEHIND: f64 = 10.0;
        /// Up to this share the reader keeps up.
        const EASY: f64 = 0.7;
        // The reader is woken when the ring is half full; the other half is for the time in which the reader waits for
        // a CPU.
        let halves = 2.0 * self.peak_bytes * SAFETY;
        let behind = if self.busy > EASY { (1.0 - EASY / self.busy) * SECONDS_BEHIND * self.bytes_per_s } else { 0.0 };
        halves + behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of alternating counted and sampled events per second.
    fn book(turns: &[(u64, u64)]) -> ForecastBook {
        let mut book = ForecastBook::new(1);
        let mut phase = |phase, ns, per_s| {
            let count = per_s * ns / 1_000_000_000;
            book.begin(phase);
            book.add(0, count);
            if phase == Phase::Counted {
                book.count((0, 0), 0, count, count as f64, 0.0);
                book.end_step(ns);
            }
            book.end(ns);
        };
        for (turn, &(counted, sampled)) in turns.iter().enumerate() {
            phase(Phase::Counted, 100_000_000, counted);
            if turn + 1 < turns.len() {
                phase(Phase::Sampled, 50_000_000, sampled);
            }
        }
        book
    }

    #[test]
    fn a_load_that_is_slowed_by_being_watched_is_told_as_it_is_then() {
        let ten = |counted, sampled| [(counted, sampled); 10];
        let varies = |high: u64| {
            let mut turns = ten(1_000_000, 600_000);
            turns.iter_mut().enumerate().for_each(|(turn, of)| of.1 = 600_000 - high + 2 * high * (turn as u64 % 2));
            turns
        };
        type Case<'a> = (&'a [(u64, u64)], f64, Option<f64>);
        let cases: [Case<'_>; 7] = [
            (&ten(1_000_000, 600_000), 600_000.0, Some(1_000_000.0)),
            (&ten(1_000_000, 960_000), 960_000.0, Some(1_000_000.0)),
            (&ten(1_000_000, 1_050_000), 1_050_000.0, None), // caches are warm, idle states not deep
            (&varies(100_000), 600_000.0, Some(1_000_000.0)),
            (&ten(20_000, 19_900), 19_900.0, None),
            (&[(1_000_000, 600_000); 3], 600_000.0, Some(1_000_000.0)),
            (&ten(0, 0), 0.0, None),
        ];
        for (turns, want, unwatched) in cases {
            let got = book(turns).expected(0);
            assert!((got.0 - want).abs() <= want * 0.03 && got.1 == unwatched, "{turns:?}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn what_a_load_does_by_itself_is_not_laid_to_recording() {
        // Few events, in bursts: the sampled number is mere chance.
        let mut fits = [(1000, 0); 10];
        fits[2] = (0, 20_000);
        let (per_s, unwatched) = book(&fits).expected(0);
        assert!((per_s - 1900.0 / 1.45).abs() < 20.0 && unwatched.is_none(), "{per_s} {unwatched:?}");
        // The load begins in the middle, and is slowed down from then on.
        let mut half = [(0, 0); 10];
        half[5..].fill((1_000_000, 600_000));
        let (per_s, _) = book(&half).expected(0);
        assert!((250_000.0..350_000.0).contains(&per_s), "{per_s}");
        // One burst that only the counters saw.
        let mut burst = [(0, 0); 10];
        burst[4] = (500_000, 0);
        let (per_s, _) = book(&burst).expected(0);
        assert!(per_s > 50_000.0 / 1.45 * 0.9, "{per_s}");
    }

    #[test]
    fn what_ends_early_is_told_by_what_there_was() {
        let mut book = ForecastBook::new(1);
        for (phase, ns, count, want) in [
            (Phase::WarmUp, 100_000_000, 2, 20.0),
            (Phase::Counted, 0, 0, 20.0),
            (Phase::Counted, 100_000_000, 5, 50.0),
            (Phase::Sampled, 100_000_000, 3, 40.0),
        ] {
            book.begin(phase);
            book.add(0, count);
            book.end(ns);
            assert_eq!(book.expected(0), (want, None), "{phase:?}");
        }
    }

    #[test]
    fn the_peak_is_that_of_a_window_on_one_cpu() {
        let mut book = ForecastBook::new(1);
        book.begin(Phase::Counted);
        for step in 0..20 {
            for cpu in [3, 7] {
                let burst = cpu == 7 && (8..10).contains(&step);
                book.count((cpu, 0), 0, 1, 1.0, if burst { 5000.0 } else { 50.0 });
            }
            book.end_step(50_000_000);
        }
        book.end(1_000_000_000);
        assert_eq!(book.peak(50_000_000), 10_000.0);
        assert_eq!(book.peak(100_000_001), 10_100.0, "the next larger window");
        assert_eq!(book.peak(800_000_000), 10_650.0, "as many steps as are about as long");
        assert_eq!(book.peak(u64::MAX), 10_650.0);
        assert_eq!(book.busiest(0), Some(20.0));
    }

    #[test]
    fn a_short_count_tells_of_a_longer_time_too() {
        let mut book = ForecastBook::new(1);
        book.begin(Phase::Counted);
        for _ in 0..2 {
            book.count((0, 0), 0, 1, 1.0, 100.0);
            book.end_step(10_000_000);
        }
        book.count((1, 0), 0, 1, 1.0, 400.0); // this CPU comes online later
        book.end_step(10_000_000);
        book.end(30_000_000);
        assert!((book.peak(100_000_000) - 400.0 * 10.0 / 3.0).abs() < 0.1);
    }

    #[test]
    fn a_ring_holds_twice_what_comes_while_nobody_reads() {
        let easy = RingDemand { peak_bytes: 1000.0, bytes_per_s: 20_000.0, busy: 0.1 };
        assert_eq!(easy.ring_bytes(), 3000.0);
        let behind = RingDemand { busy: 1.4, ..easy };
        assert_eq!(behind.ring_bytes(), 3000.0 + 100_000.0);
    }
}
