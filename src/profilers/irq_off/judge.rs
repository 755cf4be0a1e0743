//! Decides the cause of a gap, from the other CPUs, the time stolen by a hypervisor, and the idle task.

use std::collections::VecDeque;

use crate::profilers::irq_off::silence::{Evidence, SampleGap};
use crate::task::cpu_times::{CpuTimes, Reading};

/// The cause of a gap, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilenceKind {
    /// No interrupt was taken, and nothing else explains it.
    InterruptsOff,
    /// The timer was late, for an unknown reason.
    TimerLate,
    /// All CPUs stopped at once.
    MachineStopped,
    /// The hypervisor did not run the virtual CPU.
    Stolen,
    /// The CPU was idle and was woken late.
    Idle,
    /// Interrupts were on all the time: only samples are missing.
    SamplingHole,
    /// Records are missing, or the CPU was offline.
    NotSampled,
}

const KINDS: usize = 7;

/// Number of gaps of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SilenceCounts([u64; KINDS]);

impl SilenceCounts {
    pub fn of(&mut self, kind: SilenceKind) -> &mut u64 {
        &mut self.0[kind as usize]
    }

    #[cfg(test)]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl SilenceKind {
    pub fn name(self) -> &'static str {
        match self {
            SilenceKind::InterruptsOff => "interrupts off",
            SilenceKind::TimerLate => "timer late",
            SilenceKind::MachineStopped => "machine stopped",
            SilenceKind::Stolen => "stolen",
            SilenceKind::Idle => "idle",
            SilenceKind::SamplingHole => "sampling hole",
            SilenceKind::NotSampled => "not sampled",
        }
    }

    /// True for the kinds that get a line even without `--all`.
    pub fn is_suspect(self) -> bool {
        matches!(self, SilenceKind::InterruptsOff | SilenceKind::TimerLate)
    }
}

/// The state of the other CPUs during a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherCpus {
    /// No other CPU is watched, or none has had a record since the gap began.
    Unknown,
    /// At least one other CPU went on.
    WentOn,
    /// All other CPUs fell silent for the same time.
    SilentToo,
}

/// How the time of a CPU was spent around a gap, from /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimeAccount {
    /// Stolen time beyond the usual share.
    pub stolen_ns: u64,
    /// Some CPU has had stolen time since the machine started.
    pub can_be_stolen: bool,
    /// Time that no tick has accounted for. None: the time of this CPU is accounted without ticks.
    pub lost_ns: Option<u64>,
}

impl CpuTimeAccount {
    /// Whether ticks came during the gap. None: the gap was too short for the resolution and delays of /proc/stat.
    fn ticked(&self, gap: &SampleGap) -> Option<bool> {
        const TELLING_NS: u64 = 80_000_000;
        self.lost_ns.filter(|_| gap.late_ns >= TELLING_NS).map(|lost_ns| lost_ns < gap.late_ns / 2)
    }

    /// Whether most of the gap was stolen. None: possibly, but the gap is too short for the resolution of /proc/stat.
    fn stolen(&self, gap: &SampleGap) -> Option<bool> {
        const TELLING_NS: u64 = 20_000_000; // two steps of /proc/stat
        if gap.late_ns < TELLING_NS {
            return (!self.can_be_stolen).then_some(false);
        }
        Some(self.stolen_ns > 0 && self.stolen_ns >= gap.late_ns / 2)
    }
}

/// The kind of `gap`. `account`: None if the CPU was offline.
pub fn judge(gap: &SampleGap, others: OtherCpus, account: Option<CpuTimeAccount>) -> SilenceKind {
    let Some(account) = account else { return SilenceKind::NotSampled };
    let (stolen, ticked) = (account.stolen(gap), account.ticked(gap));
    match gap.evidence {
        Evidence::Missed => SilenceKind::NotSampled,
        Evidence::Served => SilenceKind::SamplingHole,
        Evidence::OnBeat if ticked != Some(false) => SilenceKind::SamplingHole,
        _ if others == OtherCpus::SilentToo => SilenceKind::MachineStopped,
        _ if stolen == Some(true) => SilenceKind::Stolen,
        Evidence::Handler => SilenceKind::InterruptsOff,
        _ if gap.idle => SilenceKind::Idle,
        _ if ticked == Some(true) => SilenceKind::SamplingHole,
        _ if stolen.is_none() => SilenceKind::TimerLate,
        // Without other CPUs it is unknown whether the whole machine stopped.
        Evidence::Held | Evidence::OnBeat if others == OtherCpus::WentOn => SilenceKind::InterruptsOff,
        Evidence::Held | Evidence::OnBeat | Evidence::Alone => SilenceKind::TimerLate,
    }
}

/// Limit of the silences that are kept per CPU for comparison with gaps of other CPUs.
const MAX_RECENT: usize = 1024;
/// How long silences are kept: until every gap that they could cover is judged.
const RECENT_NS: u64 = 1_000_000_000;

/// The shortest silence that can cover a gap of `gap_ns`.
fn covering_ns(gap_ns: u64) -> u64 {
    gap_ns - gap_ns / 5
}

/// The latest silences of one CPU.
#[derive(Clone, Debug, Default)]
pub struct RecentSilences(VecDeque<(u64, u64)>);

impl RecentSilences {
    /// Adds a silence, if it is long enough to cover a gap of more than `limit_ns`.
    pub fn add(&mut self, (from, to): (u64, u64), limit_ns: u64) {
        if to.saturating_sub(from) < covering_ns(limit_ns) {
            return;
        }
        let is_old = |&(_, end): &(u64, u64)| end.saturating_add(RECENT_NS) < to;
        while self.0.len() >= MAX_RECENT || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.push_back((from, to));
    }

    /// True if a silence lasted for nearly all the time between `from` and `to`, and not much longer.
    pub fn covers(&self, from: u64, to: u64) -> bool {
        let length = to.saturating_sub(from);
        self.0.iter().any(|&(start, end)| {
            let common = end.min(to).saturating_sub(start.max(from));
            // A silence that began long before the gap, or ended long after it, had another cause.
            common >= covering_ns(length) && end.saturating_sub(start) <= length.saturating_add(length / 2)
        })
    }
}

/// The latest readings of /proc/stat.
#[derive(Debug, Default)]
pub struct CpuTimesHistory {
    readings: VecDeque<Reading>,
    /// Some CPU has had stolen time since the machine started.
    any_stolen: bool,
}

/// Limit of the readings kept.
const MAX_READINGS: usize = 64;

impl CpuTimesHistory {
    pub fn last_ns(&self) -> u64 {
        self.readings.back().map_or(0, Reading::at_ns)
    }

    pub fn add(&mut self, reading: Reading) {
        if self.readings.len() == MAX_READINGS {
            self.readings.pop_front();
        }
        self.any_stolen |= reading.any_stolen();
        self.readings.push_back(reading);
    }

    /// How the time of `cpu` was spent between the last reading before `from` and the first after `to`. None: the CPU
    /// is missing in one of them, so it was offline.
    pub fn account(&self, cpu: u32, from: u64, to: u64) -> Option<CpuTimeAccount> {
        let readings = &self.readings;
        let first = readings.iter().rposition(|reading| reading.at_ns() <= from).unwrap_or(0);
        let after = readings.iter().position(|reading| reading.at_ns() > to).map_or(readings.len(), |at| at + 1);
        let mut within = readings.range(first.min(after)..after);
        let can_be_stolen = self.any_stolen;
        let Some(before) = within.next() else {
            return Some(CpuTimeAccount { can_be_stolen, ..CpuTimeAccount::default() });
        };
        let start = before.cpu(cpu)?;
        let (mut end, mut end_ns) = (start, before.at_ns());
        for reading in within {
            (end, end_ns) = (reading.cpu(cpu)?, reading.at_ns());
        }
        let stolen_ns = end.steal_ns.saturating_sub(start.steal_ns);
        let own_ns = end.own_ns.saturating_sub(start.own_ns);
        let span_ns = end_ns.saturating_sub(before.at_ns());
        let lost_ns = span_ns.saturating_sub(own_ns).saturating_sub(stolen_ns);
        // A steady share of stolen time explains no gap.
        let usual_ns = (self.usual_steal(cpu, before) * span_ns as f64) as u64;
        Some(CpuTimeAccount { stolen_ns: stolen_ns.saturating_sub(usual_ns), can_be_stolen, lost_ns: Some(lost_ns) })
    }

    /// The usual share of stolen time of the CPU before `until`, 0 to 1: from the readings up to it or, if there are
    /// none, since the CPU came online.
    fn usual_steal(&self, cpu: u32, until: &Reading) -> f64 {
        let Some(now) = until.cpu(cpu) else { return 0.0 };
        let mut earlier = self.readings.iter().take_while(|reading| reading.at_ns() < until.at_ns());
        let (stolen_ns, span_ns) = match earlier.find_map(|reading| Some((reading.at_ns(), reading.cpu(cpu)?))) {
            Some((at_ns, then)) => (now.steal_ns.saturating_sub(then.steal_ns), until.at_ns().saturating_sub(at_ns)),
            None => (now.steal_ns, now.own_ns.saturating_add(now.steal_ns)),
        };
        if span_ns == 0 { 0.0 } else { (stolen_ns as f64 / span_ns as f64).min(1.0) }
    }

    /// True if the kernel has accounted some time of the CPU since the last reading: then its silence is over.
    pub fn goes_on(&self, cpu: u32, tickless: bool, fresh: &Reading) -> bool {
        let lived = |reading: &Reading| reading.cpu(cpu).map(|times| lived_ns(times, tickless));
        self.readings.back().and_then(lived) < lived(fresh)
    }

    /// Whether the kernel went on accounting the CPU's time after `since`: if so, the CPU takes interrupts, or is idle.
    /// None: it is too early to know.
    pub fn is_alive(&self, cpu: u32, tickless: bool, since: u64) -> Option<bool> {
        const SETTLE_NS: u64 = 20_000_000; // two ticks of /proc/stat: earlier time may show up this late
        const ENOUGH_NS: u64 = 90_000_000;
        let first = self.readings.iter().find(|reading| reading.at_ns() >= since.saturating_add(SETTLE_NS))?;
        let last = self.readings.back()?;
        let span = last.at_ns().saturating_sub(first.at_ns());
        if span < ENOUGH_NS {
            return None;
        }
        let (Some(before), Some(after)) = (first.cpu(cpu), last.cpu(cpu)) else { return Some(true) }; // offline
        Some(lived_ns(after, tickless).saturating_sub(lived_ns(before, tickless)) >= span / 3)
    }
}

/// The time that is accounted only while a CPU is alive. Without ticks the time of the running task is accounted as it
/// passes, even with interrupts off, so only idle time is proof.
fn lived_ns(times: &CpuTimes, tickless: bool) -> u64 {
    if tickless { times.idle_ns } else { times.own_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn gap(evidence: Evidence) -> SampleGap {
        SampleGap { evidence, from: 0, to: 200 * MS, late_ns: 195 * MS, idle: false, function: None }
    }

    #[test]
    fn verdicts() {
        use Evidence::{Alone, Handler, Held, Missed, OnBeat, Served};
        use SilenceKind::*;
        let idle = |evidence| SampleGap { idle: true, ..gap(evidence) };
        let cases = [
            (gap(Held), OtherCpus::WentOn, Some(0), InterruptsOff),
            (gap(Held), OtherCpus::WentOn, Some(20 * MS), InterruptsOff),
            (gap(Held), OtherCpus::WentOn, Some(150 * MS), Stolen),
            (gap(Held), OtherCpus::SilentToo, Some(0), MachineStopped),
            (gap(Held), OtherCpus::Unknown, Some(0), TimerLate),
            (gap(Held), OtherCpus::WentOn, None, NotSampled),
            (idle(Held), OtherCpus::WentOn, Some(0), Idle),
            (idle(Held), OtherCpus::WentOn, Some(190 * MS), Stolen),
            (gap(Alone), OtherCpus::WentOn, Some(0), TimerLate),
            (idle(Alone), OtherCpus::WentOn, Some(0), Idle),
            (gap(Served), OtherCpus::SilentToo, Some(150 * MS), SamplingHole),
            (gap(Missed), OtherCpus::SilentToo, Some(150 * MS), NotSampled),
            (idle(Handler), OtherCpus::WentOn, Some(0), InterruptsOff),
            (idle(Handler), OtherCpus::Unknown, Some(0), InterruptsOff),
            (idle(Handler), OtherCpus::SilentToo, Some(0), MachineStopped),
            (gap(OnBeat), OtherCpus::WentOn, Some(0), SamplingHole),
            (gap(OnBeat), OtherCpus::SilentToo, Some(0), SamplingHole),
        ];
        for (gap, others, stolen_ns, want) in cases {
            // In a gap that ends on the beat, ticks are missing for less than half of it.
            let lost_ns = if gap.evidence == OnBeat { 90 * MS } else { 190 * MS };
            let account = stolen_ns.map(|stolen_ns| CpuTimeAccount {
                stolen_ns,
                can_be_stolen: stolen_ns > 0,
                lost_ns: Some(lost_ns),
            });
            assert_eq!(judge(&gap, others, account), want, "{gap:?} {others:?} {stolen_ns:?}");
        }
        // Interrupts came on exactly on the beat by chance: ticks are missing, too.
        let account = Some(CpuTimeAccount { lost_ns: Some(180 * MS), ..CpuTimeAccount::default() });
        assert_eq!(judge(&gap(OnBeat), OtherCpus::WentOn, account), InterruptsOff);
        assert_eq!(judge(&gap(OnBeat), OtherCpus::Unknown, account), TimerLate);
        assert_eq!(judge(&gap(Served), OtherCpus::WentOn, account), SamplingHole);
        // Ticks came, so interrupts were on, even if other signs are missing.
        let account = Some(CpuTimeAccount { lost_ns: Some(10 * MS), ..CpuTimeAccount::default() });
        assert_eq!(judge(&gap(Held), OtherCpus::WentOn, account), SamplingHole);
        assert_eq!(judge(&gap(Alone), OtherCpus::WentOn, account), SamplingHole);
        assert_eq!(judge(&gap(Handler), OtherCpus::WentOn, account), InterruptsOff);
        let account = account.map(|account| CpuTimeAccount { lost_ns: None, ..account });
        assert_eq!(judge(&gap(Held), OtherCpus::WentOn, account), InterruptsOff);
        // /proc/stat does not resolve a short time.
        let short = |evidence| SampleGap { late_ns: 15 * MS, ..gap(evidence) };
        assert_eq!(judge(&short(Held), OtherCpus::WentOn, account), InterruptsOff);
        assert_eq!(judge(&short(OnBeat), OtherCpus::WentOn, account), SamplingHole);
    }

    #[test]
    fn where_time_is_stolen_a_short_gap_is_only_late() {
        use Evidence::{Alone, Handler, Held, OnBeat, Served};
        let judged = |evidence, late_ms: u64, stolen_ms: u64, can_be_stolen| {
            let gap = SampleGap { late_ns: late_ms * MS, ..gap(evidence) };
            judge(
                &gap,
                OtherCpus::WentOn,
                Some(CpuTimeAccount { stolen_ns: stolen_ms * MS, can_be_stolen, lost_ns: None }),
            )
        };
        let cases = [
            // For 3 ms, neither 0 nor 1 step of /proc/stat means anything.
            (Held, 3, 0, true, SilenceKind::TimerLate),
            (Held, 3, 10, true, SilenceKind::TimerLate),
            (Held, 19, 20, true, SilenceKind::TimerLate),
            (Held, 3, 0, false, SilenceKind::InterruptsOff),
            (Alone, 3, 10, true, SilenceKind::TimerLate),
            (Handler, 3, 10, true, SilenceKind::InterruptsOff),
            (OnBeat, 3, 10, true, SilenceKind::SamplingHole),
            (Served, 3, 10, true, SilenceKind::SamplingHole),
            (Held, 20, 10, true, SilenceKind::Stolen),
            (Held, 22, 10, true, SilenceKind::InterruptsOff),
            (Handler, 22, 20, true, SilenceKind::Stolen),
        ];
        for (evidence, late_ms, stolen_ms, can_be_stolen, want) in cases {
            let got = judged(evidence, late_ms, stolen_ms, can_be_stolen);
            assert_eq!(got, want, "{evidence:?} {late_ms} {stolen_ms} {can_be_stolen}");
        }
        let idle = SampleGap { idle: true, late_ns: 3 * MS, ..gap(Held) };
        let account = CpuTimeAccount { can_be_stolen: true, ..CpuTimeAccount::default() };
        assert_eq!(judge(&idle, OtherCpus::WentOn, Some(account)), SilenceKind::Idle);
    }

    #[test]
    fn steady_steal_hides_no_gap() {
        // 7 % of each second are stolen, in steps of 10 ms; then follows a gap of 25 ms that was stolen, or one that
        // was not.
        let judged = |own_ms: u64| {
            let mut times = CpuTimesHistory::default();
            let mut add = |at_ms: u64, stolen_ms: u64| {
                times.add(reading(at_ms, &format!("0 0 0 {} 0 0 0 {}", (at_ms - stolen_ms) / 10, stolen_ms / 10)));
            };
            (0..=20).for_each(|n| add(1_000 + n * 200, n * 14));
            add(5_200, 20 * 14 + 14 + own_ms);
            let gap = SampleGap { from: 5_050 * MS, to: 5_075 * MS, late_ns: 24 * MS, ..gap(Evidence::Held) };
            judge(&gap, OtherCpus::WentOn, times.account(0, gap.from, gap.to))
        };
        assert_eq!((judged(0), judged(25)), (SilenceKind::InterruptsOff, SilenceKind::Stolen));
    }

    #[test]
    fn steal_is_known_of_any_cpu() {
        let mut times = CpuTimesHistory::default();
        times.add(Reading::of(100 * MS, "cpu0 0 0 0 9 0 0 0 0\ncpu1 0 0 0 9 0 0 0 0\n"));
        let can_be_stolen = |times: &CpuTimesHistory| times.account(0, 0, 50 * MS).map(|account| account.can_be_stolen);
        assert_eq!(can_be_stolen(&times), Some(false));
        times.add(Reading::of(200 * MS, "cpu0 0 0 0 9 0 0 0 0\ncpu1 0 0 0 9 0 0 0 1\n"));
        assert_eq!(can_be_stolen(&times), Some(true));
    }

    #[test]
    fn silent_at_the_same_time() {
        let mut recent = RecentSilences::default();
        let limit = 200;
        recent.add((5, 10), limit);
        recent.add((103, 298), limit);
        for (from, to, want) in [(100, 300, true), (103, 500, false), (0, 100, false), (150, 160, false)] {
            assert_eq!(recent.covers(from, to), want, "{from}-{to}");
        }
        // Silences that are too short to cover a gap displace no others.
        (0..MAX_RECENT as u64).for_each(|n| recent.add((1000 + n, 1159 + n), limit));
        assert!(recent.covers(100, 300));
        (0..MAX_RECENT as u64).for_each(|n| recent.add((1000 + n, 1160 + n), limit));
        assert!(!recent.covers(100, 300), "forgotten");
        recent.add((0, u64::MAX), limit);
        assert_eq!(recent.0.len(), 1, "old ones are");
    }

    fn reading(at_ms: u64, cpu0: &str) -> Reading {
        Reading::of(at_ms * MS, &format!("cpu0 {cpu0}\ncpu1 0 0 0 0 0 0 0 0\n"))
    }

    #[test]
    fn steal_is_that_around_the_gap() {
        let mut times = CpuTimesHistory::default();
        let stolen = |times: &CpuTimesHistory, from, to| {
            times.account(0, from * MS, to * MS).map(|account| account.stolen_ns / MS)
        };
        assert_eq!(stolen(&times, 0, 10), Some(0));
        let readings = [(100, "0 0 0 96 0 0 0 4"), (200, "0 0 0 0 0 0 0 4"), (400, "0 0 0 0 0 0 0 19")];
        readings.into_iter().for_each(|(at, text)| times.add(reading(at, text)));
        times.add(reading(500, "0 0 0 0 0 0 0 50"));
        // The usual share is 4 % since the CPU came online, 0 up to 200 ms, and half of the time up to 400 ms.
        let cases = [(210, 390, 150), (190, 390, 138), (450, 900, 260), (0, 50, 0)];
        for (from, to, want) in cases {
            assert_eq!(stolen(&times, from, to), Some(want), "{from}-{to}");
        }
        assert_eq!(times.account(7, 210 * MS, 390 * MS), None);
        times.add(Reading::of(600 * MS, "cpu1 0 0 0 0 0 0 0 0\n"));
        times.add(reading(700, "0 0 0 0 0 0 0 50"));
        assert_eq!(stolen(&times, 550, 650), None, "offline in between");
    }

    #[test]
    fn time_that_no_tick_accounted_for_is_lost() {
        let mut times = CpuTimesHistory::default();
        for (at, text) in [(100, "0 0 0 10 0 0 0 0"), (300, "2 1 3 10 2 1 1 4"), (500, "2 1 3 11 2 1 1 5")] {
            times.add(reading(at, text));
        }
        let lost =
            |from, to| times.account(0, from * MS, to * MS).and_then(|account| account.lost_ns).map(|ns| ns / MS);
        assert_eq!((lost(110, 290), lost(310, 490), lost(110, 490)), (Some(60), Some(180), Some(240)));
    }

    #[test]
    fn a_cpu_whose_time_is_accounted_is_alive() {
        let mut times = CpuTimesHistory::default();
        times.add(reading(100, "5 0 0 100 0 0 0 0"));
        times.add(reading(200, "9 0 0 100 0 0 0 0"));
        assert_eq!(times.is_alive(0, false, 190 * MS), None);
        times.add(reading(350, "9 0 0 115 0 0 0 0"));
        assert_eq!(times.is_alive(0, false, 90 * MS), Some(true));
        assert_eq!(times.is_alive(0, false, 190 * MS), None);
        times.add(reading(450, "9 0 0 115 0 0 0 9"));
        assert_eq!(times.is_alive(0, false, 290 * MS), Some(false), "steal is not its own");
        assert_eq!(times.is_alive(7, false, 290 * MS), Some(true), "offline");
        assert!(!times.goes_on(0, false, &reading(500, "9 0 0 115 0 0 0 20")));
        assert!(times.goes_on(0, false, &reading(500, "9 0 0 116 0 0 0 9")));
    }

    #[test]
    fn without_ticks_only_idle_time_is_a_sign_of_life() {
        let mut times = CpuTimesHistory::default();
        times.add(reading(100, "5 0 0 100 0 0 0 0"));
        times.add(reading(300, "5 0 20 100 0 0 0 0"));
        let alive = |times: &CpuTimesHistory, tickless| times.is_alive(0, tickless, 80 * MS);
        assert_eq!((alive(&times, false), alive(&times, true)), (Some(true), Some(false)));
        let busy = reading(400, "5 0 30 100 0 0 0 0");
        assert!(times.goes_on(0, false, &busy) && !times.goes_on(0, true, &busy));
        let idle = reading(400, "5 0 20 110 0 0 0 0");
        assert!(times.goes_on(0, true, &idle));
        times.add(idle);
        assert_eq!(alive(&times, true), Some(true));
    }
}
