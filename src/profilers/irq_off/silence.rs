//! The samples of one CPU's timer, and other signs that the CPU took interrupts: how late the timer was, and the
//! longest time without a sign. The beat is the sequence of times at which the timer is due.

/// The least tolerance in ns: a sample up to this far behind the beat always counts as on the beat.
const BEAT_NS: u64 = 50_000;
/// The greatest tolerance in ns: a sample farther behind never counts as on the beat.
const OFF_BEAT_NS: u64 = 150_000;
/// Number of regular samples after which the beat is adjusted.
const WINDOW: u32 = 32;

/// The limits by which the samples of a CPU are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SilenceLimits {
    /// Period of the timer.
    pub period_ns: u64,
    /// The length from which on a time without samples is judged as a gap.
    pub limit_ns: u64,
}

impl SilenceLimits {
    /// The limit with a margin: punctual samples vary slightly, and every second one may be missing.
    fn least_ns(self) -> u64 {
        self.limit_ns.saturating_add(BEAT_NS.min(self.limit_ns / 64))
    }
}

/// What the CPU's own records show about a gap between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The timer was delayed, and there was no other sign of an interrupt.
    Held,
    /// The function of a single timer ran all the time, in hard interrupt context.
    Handler,
    /// The timer was delayed; there are no other events that could disprove it.
    Alone,
    /// There was no sign, but the timer is on its beat: it was not delayed, or interrupts came on exactly then by
    /// chance.
    OnBeat,
    /// Interrupts were served meanwhile: only samples are missing.
    Served,
    /// The kernel took no samples, or samples were lost.
    Missed,
}

/// A time without samples that is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleGap {
    pub evidence: Evidence,
    /// Start of the longest time without a sign of an interrupt, up to `to`.
    pub from: u64,
    pub to: u64,
    /// Lower bound of the duration: from the time at which the timer was due.
    pub late_ns: u64,
    /// The interrupt at the end of the gap found the idle task.
    pub idle: bool,
    /// The timer function of the long handler.
    pub function: Option<u64>,
}

impl SampleGap {
    /// Upper bound of the duration.
    pub fn most_ns(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// A call of a timer's function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TimerHandler {
    start: u64,
    end: u64,
    function: u64,
}

/// The state of one CPU. Times are ns, CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    /// Time of the last sample; 0: none yet.
    last: u64,
    /// The next beat: the next expiry, or a little later, since a sample comes some time after its expiry.
    due: u64,
    /// How far the most punctual sample of this window was behind the beat, in ns.
    behind: u64,
    /// Number of regular samples in this window.
    regular: u32,
    /// A moving average of how far samples are behind the beat.
    usual_behind: u64,
    /// Time of the last sign, at which interrupts were on.
    sign: u64,
    /// Number of signs other than samples since the last sample.
    signs: u32,
    /// The longest time between two signs since the last sample.
    longest: (u64, u64),
    running: Option<TimerHandler>,
    longest_handler: TimerHandler,
    /// The longest time without a sign before the latest sample; empty if that sample was on time.
    latest: (u64, u64),
    missed: bool,
    idle: bool,
    samples: u64,
}

impl Silence {
    /// Returns the number of samples since the last call.
    pub fn take_samples(&mut self) -> u64 {
        std::mem::take(&mut self.samples)
    }

    /// True once there was a sample.
    pub fn is_known(&self) -> bool {
        self.last != 0
    }

    /// The last time at which interrupts were on, and when the timer is due.
    pub fn since(&self) -> (u64, u64) {
        (self.sign.max(self.last), self.due)
    }

    /// The longest time without a sign before the latest sample, judged as a gap or not; empty if the sample was on
    /// time.
    pub fn latest(&self) -> (u64, u64) {
        self.latest
    }

    /// Notes that records are missing.
    pub fn miss(&mut self) {
        self.missed = true;
    }

    /// Handles the interrupt of any timer, which calls `function`.
    pub fn enter(&mut self, at: u64, function: u64, idle: bool) {
        self.hear(at);
        self.signs = self.signs.saturating_add(1);
        self.running = Some(TimerHandler { start: at, end: at, function });
        self.idle = idle;
    }

    /// Handles the return of the timer function.
    pub fn leave(&mut self, at: u64) {
        let Some(handler) = self.running.take().map(|handler| TimerHandler { end: at, ..handler }) else { return };
        let length = |handler: &TimerHandler| handler.end.saturating_sub(handler.start);
        if length(&handler) > length(&self.longest_handler) {
            self.longest_handler = handler;
        }
    }

    fn hear(&mut self, at: u64) {
        if at.saturating_sub(self.sign) > self.longest.1.saturating_sub(self.longest.0) {
            self.longest = (self.sign, at);
        }
        self.sign = self.sign.max(at);
    }

    /// Takes a sample of the timer. Some: the time since the previous sample was too long.
    pub fn sample(&mut self, at: u64, tid: i32, terms: SilenceLimits) -> Option<SampleGap> {
        self.samples += 1;
        self.latest = (at, at);
        if self.last == 0 {
            self.restart(at, terms);
            return None;
        }
        if at < self.last {
            return None; // delivered late
        }
        if self.signs == 0 {
            self.idle = tid == 0;
        }
        self.hear(at);
        // A timer that is on time was not delayed, even if there was no other sign for long.
        let on_time = at.saturating_sub(self.due) <= self.tolerance(terms);
        self.latest = if on_time { (at, at) } else { self.longest };
        let gap = (at - self.last > terms.least_ns()).then(|| self.gap(at, terms));
        self.keep_beat(at, terms, gap.is_none());
        self.last = at;
        self.sign = at;
        self.longest = (at, at);
        self.longest_handler = TimerHandler::default();
        (self.signs, self.missed) = (0, false);
        gap
    }

    fn restart(&mut self, at: u64, terms: SilenceLimits) {
        (self.last, self.sign, self.longest) = (at, at, (at, at));
        self.due = at.saturating_add(terms.period_ns);
        (self.behind, self.signs, self.missed) = (u64::MAX, 0, false);
    }

    fn gap(&self, at: u64, terms: SilenceLimits) -> SampleGap {
        let (from, to) = self.longest;
        let late_ns = to.saturating_sub(self.due_after(from, terms));
        let handler = self.longest_handler;
        let busy_ns = handler.end.saturating_sub(handler.start);
        let gap = SampleGap { evidence: Evidence::Held, from, to, late_ns, idle: self.idle, function: None };
        if self.missed {
            return SampleGap { evidence: Evidence::Missed, ..gap };
        }
        if busy_ns > terms.limit_ns && busy_ns > gap.most_ns() / 2 {
            let function = Some(handler.function);
            return SampleGap {
                evidence: Evidence::Handler,
                from: handler.start,
                to: handler.end,
                late_ns: busy_ns,
                function,
                ..gap
            };
        }
        if gap.most_ns() <= terms.limit_ns || late_ns == 0 {
            // For a missing sample only the time of the next one is known.
            let late_ns = at.saturating_sub(self.due);
            return SampleGap { evidence: Evidence::Served, from: self.last, to: at, late_ns, ..gap };
        }
        // A delayed timer fires as soon as interrupts are on, at a time unrelated to the beat.
        let on_beat = self.beside_the_beat(at, terms) <= self.tolerance(terms);
        let evidence = match self.signs {
            _ if on_beat => Evidence::OnBeat,
            0 => Evidence::Alone,
            _ => Evidence::Held,
        };
        SampleGap { evidence, ..gap }
    }

    /// The first expiry at or after `from`.
    fn due_after(&self, from: u64, terms: SilenceLimits) -> u64 {
        let beats = from.saturating_sub(self.due).div_ceil(terms.period_ns.max(1));
        self.due.saturating_add(beats.saturating_mul(terms.period_ns))
    }

    fn beside_the_beat(&self, at: u64, terms: SilenceLimits) -> u64 {
        at.saturating_sub(self.due) % terms.period_ns.max(1)
    }

    /// How far behind the beat an undelayed sample can be.
    fn tolerance(&self, terms: SilenceLimits) -> u64 {
        let least = BEAT_NS.min(terms.period_ns / 64);
        let most = OFF_BEAT_NS.min(terms.period_ns / 16).max(least);
        self.usual_behind.saturating_mul(2).clamp(least, most)
    }

    /// Adjusts the beat to the most punctual samples. The kernel keeps the beat even after a late expiry:
    /// `hrtimer_forward_now` in `perf_swevent_hrtimer`, kernel/events/core.c.
    fn keep_beat(&mut self, at: u64, terms: SilenceLimits, regular: bool) {
        if at < self.due {
            // The sample was more punctual than any before, or the timer was restarted.
            self.due = at.saturating_add(terms.period_ns);
            (self.behind, self.regular) = (u64::MAX, 0);
            return;
        }
        let behind = self.beside_the_beat(at, terms);
        self.due = self.due_after(at.saturating_add(1), terms);
        if !regular {
            return;
        }
        self.usual_behind = self.usual_behind - self.usual_behind / 16 + behind / 16;
        self.behind = self.behind.min(behind);
        self.regular += 1;
        if self.regular == WINDOW {
            self.due = self.due.saturating_add(self.behind);
            (self.behind, self.regular) = (u64::MAX, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TERMS: SilenceLimits = SilenceLimits { period_ns: 10 * MS, limit_ns: 20 * MS };

    /// A CPU whose timer was on time for a second; its last sample was at 1 s.
    fn punctual() -> Silence {
        let mut cpu = Silence::default();
        for at in (10..=1000).step_by(10) {
            assert_eq!(expire(&mut cpu, at * MS, 7), None);
        }
        cpu
    }

    /// The interrupt of the timer, and its sample.
    fn expire(cpu: &mut Silence, at: u64, tid: i32) -> Option<SampleGap> {
        cpu.enter(at, 0xaa, tid == 0);
        let gap = cpu.sample(at + 1000, tid, TERMS);
        cpu.leave(at + 2000);
        gap
    }

    fn tick(cpu: &mut Silence, at: u64) {
        cpu.enter(at, 0xbb, false);
        cpu.leave(at + 1000);
    }

    #[test]
    fn held_back_with_nothing_else_heard() {
        let mut cpu = punctual();
        tick(&mut cpu, 1_004 * MS);
        // Interrupts are off from 1,005 to 1,205 ms.
        let gap = expire(&mut cpu, 1_205 * MS, 7).unwrap();
        assert_eq!((gap.evidence, gap.idle, gap.function), (Evidence::Held, false, None));
        assert_eq!((gap.from, gap.to), (1_004 * MS, 1_205 * MS));
        assert!(gap.late_ns <= 200 * MS && gap.most_ns() >= 200 * MS, "{gap:?}");
        assert!(gap.late_ns >= 194 * MS && gap.most_ns() <= 201 * MS, "{gap:?}");
        // The beat is kept.
        assert_eq!(expire(&mut cpu, 1_210 * MS, 7), None);
        assert_eq!(expire(&mut cpu, 1_220 * MS, 7), None);
    }

    #[test]
    fn every_gap_over_the_limit_is_found() {
        for start in 0..10 {
            let mut cpu = punctual();
            let off = 21 * MS;
            let end = 1_000 * MS + start * MS + 300_000 + off; // not on the beat
            let gap = expire(&mut cpu, end, 7).unwrap();
            assert_eq!(gap.evidence, Evidence::Held, "{start}");
            assert!(gap.late_ns <= off && gap.most_ns() >= off, "{start}: {gap:?}");
        }
    }

    #[test]
    fn a_small_limit_is_kept_too() {
        let terms = SilenceLimits { period_ns: 10_000, limit_ns: 20_000 };
        let found = |late: u64| {
            let mut cpu = Silence::default();
            (1..=100).for_each(|n| assert_eq!(cpu.sample(n * 10_000, 7, terms), None));
            cpu.sample(1_000_000 + late, 7, terms).is_some()
        };
        assert_eq!((found(20_312), found(20_313), found(69_000)), (false, true, true));
        assert_eq!(TERMS.least_ns(), 20 * MS + BEAT_NS);
    }

    #[test]
    fn silences_within_the_limit_are_told_too() {
        let mut cpu = punctual();
        tick(&mut cpu, 1_002 * MS);
        assert_eq!(expire(&mut cpu, 1_019 * MS, 7), None);
        assert_eq!(cpu.latest(), (1_002 * MS, 1_019 * MS));
        assert_eq!(expire(&mut cpu, 1_020 * MS, 7), None);
        assert_eq!(cpu.latest(), (1_020 * MS + 1000, 1_020 * MS + 1000), "on time");
        assert_eq!(cpu.sample(900 * MS, 7, TERMS), None);
        assert_eq!(cpu.latest(), (900 * MS, 900 * MS), "delivered late");
        cpu.miss();
        assert_eq!(expire(&mut cpu, 1_093 * MS, 7).unwrap().evidence, Evidence::Missed);
        assert_eq!(cpu.latest(), (1_020 * MS + 1000, 1_093 * MS));
    }

    #[test]
    fn an_idle_cpu_is_told() {
        let mut cpu = punctual();
        let gap = expire(&mut cpu, 1_093 * MS, 0).unwrap();
        assert_eq!((gap.evidence, gap.idle), (Evidence::Held, true));
    }

    #[test]
    fn a_long_handler_is_exact() {
        let mut cpu = punctual();
        cpu.enter(1_003 * MS, 0xcc, true);
        cpu.leave(1_103 * MS);
        let gap = expire(&mut cpu, 1_103 * MS + 500, 0).unwrap();
        assert_eq!((gap.evidence, gap.function), (Evidence::Handler, Some(0xcc)));
        assert_eq!((gap.late_ns, gap.most_ns()), (100 * MS, 100 * MS));
    }

    #[test]
    fn samples_may_be_missing_while_interrupts_are_served() {
        let mut cpu = punctual();
        (1..20).for_each(|n| tick(&mut cpu, (1_000 + 4 * n) * MS));
        let gap = expire(&mut cpu, 1_083 * MS, 7).unwrap();
        assert_eq!(gap.evidence, Evidence::Served, "ticks were heard");
        let mut cpu = punctual();
        let gap = expire(&mut cpu, 1_120 * MS, 7).unwrap();
        assert_eq!(gap.evidence, Evidence::OnBeat, "so it may have fired all the time");
        assert_eq!((gap.from, gap.late_ns), (1_000 * MS + 1000, 110 * MS - 1000));
    }

    #[test]
    fn a_hole_may_end_in_interrupts_off() {
        let mut cpu = punctual();
        (1..20).for_each(|n| tick(&mut cpu, (1_000 + 4 * n) * MS));
        let gap = expire(&mut cpu, 1_153 * MS, 7).unwrap();
        assert_eq!((gap.evidence, gap.from), (Evidence::Held, 1_076 * MS));
        assert!(gap.late_ns <= 77 * MS && gap.late_ns >= 67 * MS, "{gap:?}");
    }

    #[test]
    fn without_a_witness_it_is_only_late() {
        let mut cpu = Silence::default();
        (1..=100).for_each(|n| assert_eq!(cpu.sample(n * 10 * MS, 7, TERMS), None));
        let gap = cpu.sample(1_093 * MS, 7, TERMS).unwrap();
        assert_eq!((gap.evidence, gap.late_ns, gap.most_ns()), (Evidence::Alone, 83 * MS, 93 * MS));
        assert!(!gap.idle);
        assert!(cpu.sample(1_300 * MS + 5 * MS, 0, TERMS).unwrap().idle);
    }

    #[test]
    fn after_a_loss_nothing_is_known() {
        let mut cpu = punctual();
        cpu.miss();
        assert_eq!(expire(&mut cpu, 1_093 * MS, 7).unwrap().evidence, Evidence::Missed);
        assert_eq!(expire(&mut cpu, 1_193 * MS, 7).unwrap().evidence, Evidence::Held);
    }

    #[test]
    fn the_beat_is_found_among_samples_that_come_late() {
        let mut cpu = Silence::default();
        // Each sample is behind by up to 300 us, the first one by most.
        for n in 1..=200 {
            let behind = if n == 1 { 300_000 } else { (n * 37 % 100) * 1000 };
            assert_eq!(expire(&mut cpu, n * 10 * MS + behind, 7), None);
        }
        assert!(cpu.due >= 2_010 * MS && cpu.due < 2_010 * MS + 50_000, "{}", cpu.due);
        // A missing sample is not taken for interrupts off, even if the others vary a lot.
        let gap = expire(&mut cpu, 2_090 * MS + 90_000, 7).unwrap();
        assert_eq!(gap.evidence, Evidence::OnBeat);
    }

    #[test]
    fn records_out_of_order_change_nothing() {
        let mut cpu = punctual();
        tick(&mut cpu, 1_004 * MS);
        tick(&mut cpu, 900 * MS);
        assert_eq!(cpu.sample(900 * MS, 7, TERMS), None);
        assert_eq!(cpu.since().0, 1_004 * MS);
        cpu.leave(0);
        assert_eq!(cpu.sample(u64::MAX, 7, TERMS).map(|gap| gap.to), Some(u64::MAX));
        cpu.enter(0, 0, false);
        assert_eq!(cpu.sample(u64::MAX, 7, SilenceLimits { period_ns: 0, limit_ns: 0 }), None);
    }
}
