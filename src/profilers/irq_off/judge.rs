//! What a gap was, with all that the machine tells: the other CPUs, the time that a hypervisor took, the idle task.

use std::collections::VecDeque;

use crate::profilers::irq_off::silence::{Evidence, Gap};
use crate::task::cpu_times::Reading;

/// A verdict. The order is that of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No interrupt was taken, and nothing but that explains it.
    InterruptsOff,
    /// The timer was late, and nothing tells why.
    TimerLate,
    /// All CPUs at once.
    MachineStopped,
    /// A hypervisor ran something else.
    Stolen,
    /// The CPU was idle and was woken late.
    Idle,
    /// Interrupts were on all the time.
    SamplingHole,
    /// Records are missing, or the CPU was offline.
    NotSampled,
}

pub const KINDS: usize = 7;

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::InterruptsOff => "interrupts off",
            Kind::TimerLate => "timer late",
            Kind::MachineStopped => "machine stopped",
            Kind::Stolen => "stolen",
            Kind::Idle => "idle",
            Kind::SamplingHole => "sampling hole",
            Kind::NotSampled => "not sampled",
        }
    }

    /// Worth a line whatever was asked for.
    pub fn is_suspect(self) -> bool {
        matches!(self, Kind::InterruptsOff | Kind::TimerLate)
    }
}

/// What the other CPUs have to say of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// No other CPU was watched, or heard of.
    Unknown,
    /// At least one went on.
    WentOn,
    /// All of them fell silent for the same time.
    SilentToo,
}

/// Judges `gap` of `cpu`. `stolen_ns`: what the hypervisor took of the CPU; None when the CPU was offline.
pub fn judge(gap: &Gap, others: Others, stolen_ns: Option<u64>) -> Kind {
    let Some(stolen_ns) = stolen_ns else { return Kind::NotSampled };
    match gap.evidence {
        Evidence::Missed => Kind::NotSampled,
        Evidence::Served => Kind::SamplingHole,
        _ if others == Others::SilentToo => Kind::MachineStopped,
        _ if stolen_ns > 0 && stolen_ns >= gap.late_ns / 2 => Kind::Stolen,
        Evidence::Handler => Kind::InterruptsOff,
        _ if gap.idle => Kind::Idle,
        // A lone CPU cannot tell whether the machine stopped.
        Evidence::Held if others == Others::WentOn => Kind::InterruptsOff,
        Evidence::Held | Evidence::Alone => Kind::TimerLate,
    }
}

/// Gaps kept per CPU, to be compared with those of others.
const RECENT: usize = 16;

/// The latest gaps of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Recent(VecDeque<(u64, u64)>);

impl Recent {
    pub fn add(&mut self, from: u64, to: u64) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back((from, to));
    }

    /// It was silent for nearly all the time between `from` and `to`, and ended with it.
    pub fn covers(&self, from: u64, to: u64) -> bool {
        let length = to.saturating_sub(from);
        self.0.iter().any(|&(start, end)| {
            let common = end.min(to).saturating_sub(start.max(from));
            // One that went on for long afterwards, or began long before, was another affair.
            common >= length - length / 5 && end.saturating_sub(start) <= length.saturating_add(length / 2)
        })
    }
}

/// /proc/stat now and a while ago.
#[derive(Debug, Default)]
pub struct Times(VecDeque<Reading>);

/// Readings kept.
const READINGS: usize = 64;

impl Times {
    pub fn last_ns(&self) -> u64 {
        self.0.back().map_or(0, Reading::at_ns)
    }

    pub fn add(&mut self, reading: Reading) {
        if self.0.len() == READINGS {
            self.0.pop_front();
        }
        self.0.push_back(reading);
    }

    /// What a hypervisor took of `cpu` between the last reading before `from` and the first after `to`. None: in one of
    /// them the CPU is missing, so it was offline.
    pub fn stolen_ns(&self, cpu: u32, from: u64, to: u64) -> Option<u64> {
        let first = self.0.iter().rposition(|reading| reading.at_ns() <= from).unwrap_or(0);
        let after = self.0.iter().position(|reading| reading.at_ns() > to).map_or(self.0.len(), |at| at + 1);
        let mut within = self.0.range(first.min(after)..after);
        let Some(before) = within.next() else { return Some(0) };
        let mut last = before.cpu(cpu)?;
        let start = last.steal_ns;
        for reading in within {
            last = reading.cpu(cpu)?;
        }
        Some(last.steal_ns.saturating_sub(start))
    }

    /// Whether the kernel went on accounting the CPU's time after `since`: then it takes interrupts, or is idle. None: too
    /// early to tell.
    pub fn is_alive(&self, cpu: u32, since: u64) -> Option<bool> {
        const SETTLE_NS: u64 = 20_000_000; // two ticks of /proc/stat: what was accounted before may appear after
        const ENOUGH_NS: u64 = 90_000_000;
        let first = self.0.iter().find(|reading| reading.at_ns() >= since.saturating_add(SETTLE_NS))?;
        let last = self.0.back()?;
        let span = last.at_ns().saturating_sub(first.at_ns());
        if span < ENOUGH_NS {
            return None;
        }
        let (Some(before), Some(after)) = (first.cpu(cpu), last.cpu(cpu)) else { return Some(true) }; // offline
        Some(after.own_ns.saturating_sub(before.own_ns) >= span / 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn gap(evidence: Evidence) -> Gap {
        Gap { evidence, from: 0, to: 200 * MS, late_ns: 195 * MS, idle: false, function: None }
    }

    #[test]
    fn verdicts() {
        use Evidence::{Alone, Handler, Held, Missed, Served};
        use Kind::*;
        let idle = |evidence| Gap { idle: true, ..gap(evidence) };
        let cases = [
            (gap(Held), Others::WentOn, Some(0), InterruptsOff),
            (gap(Held), Others::WentOn, Some(20 * MS), InterruptsOff),
            (gap(Held), Others::WentOn, Some(150 * MS), Stolen),
            (gap(Held), Others::SilentToo, Some(0), MachineStopped),
            (gap(Held), Others::Unknown, Some(0), TimerLate),
            (gap(Held), Others::WentOn, None, NotSampled),
            (idle(Held), Others::WentOn, Some(0), Idle),
            (idle(Held), Others::WentOn, Some(190 * MS), Stolen),
            (gap(Alone), Others::WentOn, Some(0), TimerLate),
            (idle(Alone), Others::WentOn, Some(0), Idle),
            (gap(Served), Others::SilentToo, Some(150 * MS), SamplingHole),
            (gap(Missed), Others::SilentToo, Some(150 * MS), NotSampled),
            (idle(Handler), Others::WentOn, Some(0), InterruptsOff),
            (idle(Handler), Others::Unknown, Some(0), InterruptsOff),
            (idle(Handler), Others::SilentToo, Some(0), MachineStopped),
        ];
        for (gap, others, stolen_ns, want) in cases {
            assert_eq!(judge(&gap, others, stolen_ns), want, "{gap:?} {others:?} {stolen_ns:?}");
        }
    }

    #[test]
    fn silent_at_the_same_time() {
        let mut recent = Recent::default();
        recent.add(5, 10);
        recent.add(103, 298);
        for (from, to, want) in [(100, 300, true), (103, 500, false), (0, 100, false), (150, 160, false)] {
            assert_eq!(recent.covers(from, to), want, "{from}-{to}");
        }
        (0..RECENT as u64).for_each(|n| recent.add(1000 + n, 1001 + n));
        assert!(!recent.covers(100, 300), "forgotten");
    }

    fn reading(at_ms: u64, cpu0: &str) -> Reading {
        Reading::of(at_ms * MS, &format!("cpu0 {cpu0}\ncpu1 0 0 0 0 0 0 0 0\n"))
    }

    #[test]
    fn steal_is_that_around_the_gap() {
        let mut times = Times::default();
        assert_eq!(times.stolen_ns(0, 0, 10), Some(0));
        let readings = [(100, "0 0 0 0 0 0 0 3"), (200, "0 0 0 0 0 0 0 4"), (400, "0 0 0 0 0 0 0 19")];
        readings.into_iter().for_each(|(at, text)| times.add(reading(at, text)));
        times.add(reading(500, "0 0 0 0 0 0 0 50"));
        assert_eq!(times.stolen_ns(0, 210 * MS, 390 * MS), Some(150 * MS));
        assert_eq!(times.stolen_ns(0, 190 * MS, 390 * MS), Some(160 * MS));
        assert_eq!(times.stolen_ns(0, 450 * MS, 900 * MS), Some(310 * MS));
        assert_eq!(times.stolen_ns(0, 0, 50 * MS), Some(0));
        assert_eq!(times.stolen_ns(7, 210 * MS, 390 * MS), None);
        times.add(Reading::of(600 * MS, "cpu1 0 0 0 0 0 0 0 0\n"));
        times.add(reading(700, "0 0 0 0 0 0 0 50"));
        assert_eq!(times.stolen_ns(0, 550 * MS, 650 * MS), None, "offline in between");
    }

    #[test]
    fn a_cpu_whose_time_is_accounted_is_alive() {
        let mut times = Times::default();
        times.add(reading(100, "5 0 0 100 0 0 0 0"));
        times.add(reading(200, "9 0 0 100 0 0 0 0"));
        assert_eq!(times.is_alive(0, 190 * MS), None);
        times.add(reading(350, "9 0 0 115 0 0 0 0"));
        assert_eq!(times.is_alive(0, 90 * MS), Some(true));
        assert_eq!(times.is_alive(0, 190 * MS), None);
        times.add(reading(450, "9 0 0 115 0 0 0 9"));
        assert_eq!(times.is_alive(0, 290 * MS), Some(false), "steal is not its own");
        assert_eq!(times.is_alive(7, 290 * MS), Some(true), "offline");
    }
}
