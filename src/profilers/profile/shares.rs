//! How samples divide time, and the shares that are shown.

use perf_event_open_sys::bindings as b;

use crate::report::Value;
use crate::task::cpu_times::CpuShares;

/// What a CPU was doing when a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMode {
    User,
    Kernel,
    /// In the kernel, for a softirq that interrupted the task.
    Softirq,
    Guest,
    /// In the idle task: halted, or serving an interrupt.
    Idle,
}

impl CpuMode {
    /// `misc` is from the header of the sample; `idle`: the sample was taken in the idle task.
    pub fn of(misc: u16, idle: bool) -> CpuMode {
        match u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK {
            b::PERF_RECORD_MISC_USER => CpuMode::User,
            b::PERF_RECORD_MISC_GUEST_KERNEL | b::PERF_RECORD_MISC_GUEST_USER => CpuMode::Guest,
            _ if idle => CpuMode::Idle,
            _ => CpuMode::Kernel,
        }
    }
}

/// Weights of samples by mode: the ns of the CPU clock, or the cycles, that each sample stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeWeights {
    pub user: u64,
    pub kernel: u64,
    /// The part of `kernel` in softirqs.
    pub softirq: u64,
    pub guest: u64,
    pub idle: u64,
    pub samples: u64,
    pub busy_samples: u64,
}

impl ModeWeights {
    #[inline]
    pub fn add(&mut self, kind: CpuMode, weight: u64) {
        let sum = match kind {
            CpuMode::User => &mut self.user,
            CpuMode::Kernel | CpuMode::Softirq => &mut self.kernel,
            CpuMode::Guest => &mut self.guest,
            CpuMode::Idle => &mut self.idle,
        };
        *sum = sum.saturating_add(weight);
        if kind == CpuMode::Softirq {
            self.softirq = self.softirq.saturating_add(weight);
        }
        self.samples += 1;
        self.busy_samples += u64::from(kind != CpuMode::Idle);
    }

    pub fn merge(&mut self, other: &ModeWeights) {
        self.user = self.user.saturating_add(other.user);
        self.kernel = self.kernel.saturating_add(other.kernel);
        self.softirq = self.softirq.saturating_add(other.softirq);
        self.guest = self.guest.saturating_add(other.guest);
        self.idle = self.idle.saturating_add(other.idle);
        self.samples += other.samples;
        self.busy_samples += other.busy_samples;
    }

    /// The weight of all samples outside of the idle task.
    pub fn busy(&self) -> u64 {
        self.user.saturating_add(self.kernel).saturating_add(self.guest)
    }
}

/// The modes that are not sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcludedModes {
    pub user: bool,
    pub kernel: bool,
    pub guest: bool,
}

impl ExcludedModes {
    pub fn any(self) -> bool {
        self.user || self.kernel || self.guest
    }
}

/// How time was divided, in ns, or in the unit of the weights of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    pub user: u64,
    pub kernel: u64,
    pub guest: u64,
    pub idle: u64,
    /// Busy time without samples that show its mode.
    pub unsampled: u64,
    /// The whole of which all these are parts. 0: unknown.
    pub of: u64,
}

/// CpuShares of a division in hundredths of a per cent. None: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub user: Option<u32>,
    pub kernel: Option<u32>,
    pub guest: Option<u32>,
    pub idle: Option<u32>,
}

const WHOLE: u32 = 10_000;

impl Division {
    /// By all samples: used where only some tasks were sampled.
    pub fn of_samples(sums: &ModeWeights) -> Division {
        let ModeWeights { user, kernel, guest, idle, .. } = *sums;
        Division { user, kernel, guest, idle, unsampled: 0, of: sums.busy().saturating_add(idle) }
    }

    /// Divides time without data from /proc/stat like the samples of the CPU.
    pub fn of_time_by_samples(sums: &ModeWeights, ns: u64) -> Division {
        let Division { user, kernel, guest, of, .. } = Division::of_samples(sums);
        if of == 0 {
            return Division::default();
        }
        let part = |weight: u64| part_of(ns, weight as f64 / of as f64);
        let (user, kernel, guest) = (part(user), part(kernel), part(guest));
        let idle = if sums.idle == 0 { 0 } else { ns.saturating_sub(user + kernel + guest) };
        // `of` is the sum of the parts, without rounding losses.
        Division { user, kernel, guest, idle, unsampled: 0, of: user + kernel + guest + idle }
    }

    /// Divides the time of a CPU into idle and busy as /proc/stat has it. `seen_idle`: an idle CPU is sampled, too.
    /// Busy time that is neither user nor guest counts as kernel time, including interrupts in the idle task: so the
    /// sum is exact.
    pub fn of_cpu(sums: &ModeWeights, ns: u64, parts: CpuShares, seen_idle: bool) -> Division {
        let in_idle = interrupts_in_idle(sums, parts, seen_idle);
        let idle = part_of(ns, parts.idle).min(ns);
        let busy = ns - idle;
        if sums.busy() == 0 && in_idle == 0.0 {
            return Division { idle, unsampled: busy, of: ns, ..Division::default() };
        }
        let tasks = (1.0 - parts.idle - in_idle).max(0.0);
        let part = |sum: u64| part_of(ns, tasks * sum as f64 / sums.busy().max(1) as f64);
        let user = part(sums.user).min(busy);
        let guest = part(sums.guest).min(busy - user);
        Division { user, kernel: busy - user - guest, guest, idle, unsampled: 0, of: ns }
    }

    /// Divides a span in which every weight is ns; `idle` is the share of the span in which nothing ran, if that is
    /// known.
    pub fn of_span(sums: &ModeWeights, ns: u64, idle: Option<f64>) -> Division {
        let ModeWeights { user, kernel, guest, .. } = *sums;
        // A window may have one tick too many.
        let of = ns.max(sums.busy());
        let idle = idle.map_or(of - sums.busy(), |idle| part_of(of, idle));
        Division { user, kernel, guest, idle, unsampled: 0, of }
    }

    /// Divides the time of a CPU for which only the idle time is known.
    pub fn of_idle(ns: u64, idle: f64) -> Division {
        let idle = part_of(ns, idle).min(ns);
        Division { idle, unsampled: ns - idle, of: ns, ..Division::default() }
    }

    /// The share of each mode. Busy time without samples is divided like busy time with samples: then several intervals
    /// have the same shares as one interval of their length.
    pub fn shares(&self, excluded: ExcludedModes) -> Shares {
        /// A CPU may be busy for this share of its time without a sample. Beyond that, samples are missing.
        const LITTLE: f64 = 0.05;
        if self.of == 0 {
            return Shares::default();
        }
        let [user, kernel, guest, idle] = [self.user, self.kernel, self.guest, self.idle].map(|part| part as f64);
        let (sampled, unsampled, of) = (user + kernel + guest, self.unsampled as f64, self.of as f64);
        let parts = if sampled > 0.0 || unsampled == 0.0 {
            let scale = if unsampled == 0.0 { 1.0 } else { (sampled + unsampled) / sampled };
            [user * scale, kernel * scale, guest * scale, idle]
        } else if unsampled < LITTLE * of && !excluded.any() {
            [0.0, 0.0, 0.0, idle + unsampled]
        } else {
            return Shares { idle: Some(hundredths(idle / of)), ..Shares::default() };
        };
        let [user, kernel, guest, idle] = rounded(parts, of);
        let unless = |is_excluded: bool, share: u32| (!is_excluded).then_some(share);
        Shares {
            user: unless(excluded.user, user),
            kernel: unless(excluded.kernel, kernel),
            guest: unless(excluded.guest, guest),
            idle: Some(idle),
        }
    }
}

impl Shares {
    /// The sum of the shares of all sampled modes.
    pub fn busy(&self) -> u32 {
        [self.user, self.kernel, self.guest].into_iter().flatten().sum()
    }
}

/// A share as a cell.
pub fn share_value(share: Option<u32>) -> Value {
    share.map_or(Value::None, Value::Pct)
}

fn part_of(ns: u64, part: f64) -> u64 {
    (ns as f64 * part).round() as u64
}

/// Shares of `of` in hundredths of a per cent. The parts of a whole sum up to the rounded whole, because running sums
/// are rounded.
pub fn rounded<const N: usize>(parts: [f64; N], of: f64) -> [u32; N] {
    let (mut sum, mut before) = (0.0, 0);
    parts.map(|part| {
        sum += part;
        let up_to = hundredths(sum / of).max(before);
        up_to - std::mem::replace(&mut before, up_to)
    })
}

/// The share of a CPU's time in which the idle task was interrupted: /proc/stat does not count this time as idle, while
/// its samples are in the idle task.
pub fn interrupts_in_idle(sums: &ModeWeights, parts: CpuShares, seen_idle: bool) -> f64 {
    let all = sums.busy().saturating_add(sums.idle);
    if sums.idle == 0 {
        return 0.0;
    }
    let in_idle_task = sums.idle as f64 / all as f64;
    let busy = 1.0 - parts.idle;
    // The CPU clock ticks in the idle task, too. Cycles do not count while the CPU is halted; but idle polling uses
    // some.
    let most = if seen_idle { in_idle_task - parts.idle } else { busy * in_idle_task };
    most.min(parts.irq + parts.softirq).clamp(0.0, busy.max(0.0))
}

/// Converts a share between 0 and 1.
pub fn hundredths(part: f64) -> u32 {
    (part * f64::from(WHOLE)).round().clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(user: u64, kernel: u64, guest: u64, idle: u64) -> ModeWeights {
        ModeWeights { user, kernel, guest, idle, ..ModeWeights::default() }
    }

    fn shares(user: u32, kernel: u32, guest: u32, idle: u32) -> Shares {
        Shares { user: Some(user), kernel: Some(kernel), guest: Some(guest), idle: Some(idle) }
    }

    #[test]
    fn kinds_come_from_the_header() {
        let cases = [
            (b::PERF_RECORD_MISC_USER, false, CpuMode::User),
            (b::PERF_RECORD_MISC_USER, true, CpuMode::User), // the idle task never runs user code
            (b::PERF_RECORD_MISC_KERNEL, false, CpuMode::Kernel),
            (b::PERF_RECORD_MISC_HYPERVISOR, false, CpuMode::Kernel),
            (b::PERF_RECORD_MISC_KERNEL, true, CpuMode::Idle),
            (b::PERF_RECORD_MISC_GUEST_USER, false, CpuMode::Guest),
            (b::PERF_RECORD_MISC_GUEST_KERNEL, false, CpuMode::Guest),
        ];
        for (misc, idle, want) in cases {
            let misc = misc as u16 | b::PERF_RECORD_MISC_EXACT_IP as u16;
            assert_eq!(CpuMode::of(misc, idle), want, "{misc:#x} {idle}");
        }
    }

    fn all(division: Division) -> Shares {
        division.shares(ExcludedModes::default())
    }

    #[test]
    fn shares_of_a_cpu_follow_its_idle_time() {
        let parts = |idle, irq| CpuShares { idle, irq, softirq: 0.0 };
        let cases = [
            // The shares are equal whether the idle task is sampled or not.
            (sums(30, 10, 0, 60), parts(0.6, 0.0), true, shares(3000, 1000, 0, 6000)),
            (sums(30, 10, 0, 0), parts(0.6, 0.0), true, shares(3000, 1000, 0, 6000)),
            (sums(30, 10, 0, 600), parts(0.6, 0.0), false, shares(3000, 1000, 0, 6000)),
            (sums(0, 0, 8, 0), parts(0.2, 0.0), true, shares(0, 0, 8000, 2000)),
            // Interrupts took a third of the time, in the idle task.
            (sums(0, 0, 0, 90), parts(0.67, 0.33), true, shares(0, 3300, 0, 6700)),
            (sums(0, 0, 0, 90), CpuShares { idle: 0.67, irq: 0.03, softirq: 0.3 }, true, shares(0, 3300, 0, 6700)),
            (sums(10, 0, 0, 90), parts(0.5, 0.4), true, shares(1000, 4000, 0, 5000)),
            // One sample too many in the idle task by chance, and hardly any interrupt time.
            (sums(39, 0, 0, 61), parts(0.6, 0.001), true, shares(3990, 10, 0, 6000)),
            // Only idle time.
            (sums(0, 0, 0, 99), parts(0.99, 0.0), true, shares(0, 0, 0, 10_000)),
            (sums(0, 0, 0, 0), parts(1.0, 0.0), true, shares(0, 0, 0, 10_000)),
        ];
        for (sums, parts, seen_idle, want) in cases {
            assert_eq!(all(Division::of_cpu(&sums, 1_000_000, parts, seen_idle)), want, "{sums:?} {parts:?}");
        }
        let unknown = all(Division::of_cpu(&sums(0, 0, 0, 0), 1_000_000, parts(0.1, 0.0), true));
        assert_eq!(unknown, Shares { idle: Some(1000), ..Shares::default() });
    }

    #[test]
    fn shares_of_samples_and_of_a_span() {
        assert_eq!(all(Division::of_samples(&sums(1, 1, 1, 0))), shares(3333, 3334, 3333, 0));
        assert_eq!(all(Division::of_samples(&ModeWeights::default())), Shares::default());
        let by_samples = |sums: &ModeWeights| Division::of_time_by_samples(sums, 1_000_000_000);
        assert_eq!(all(by_samples(&sums(1, 1, 1, 0))), shares(3333, 3334, 3333, 0));
        assert_eq!(all(by_samples(&sums(1, 0, 0, 3))), shares(2500, 0, 0, 7500));
        assert_eq!(by_samples(&ModeWeights::default()), Division::default());
        assert_eq!(all(Division::of_span(&sums(200, 100, 0, 7), 1000, None)), shares(2000, 1000, 0, 7000));
        let kernel_alone = ExcludedModes { user: true, guest: true, ..ExcludedModes::default() };
        let got = Division::of_span(&sums(0, 100, 0, 0), 1000, Some(0.25)).shares(kernel_alone);
        assert_eq!(got, Shares { kernel: Some(1000), idle: Some(2500), ..Shares::default() });
        assert_eq!(got.busy(), 1000);
        let got = Division::of_idle(1000, 0.99).shares(kernel_alone);
        assert_eq!(got, Shares { idle: Some(9900), ..Shares::default() }, "a little of something unknown");
    }

    #[test]
    fn every_sum_is_a_whole() {
        for idle in 0..=100 {
            for user in 0..30 {
                let parts = CpuShares { idle: f64::from(idle) / 100.0, irq: 0.1, softirq: 0.0 };
                let division = Division::of_cpu(&sums(user, 7, 3, 11), 999_999_937, parts, true);
                assert_eq!(division.user + division.kernel + division.guest + division.idle, division.of);
                let got = all(division);
                assert_eq!(got.busy() + got.idle.unwrap(), WHOLE, "{idle} {user}");
            }
        }
    }

    /// A CPU without samples in its second interval has the same shares as if both intervals were one.
    #[test]
    fn intervals_add_up_to_what_one_of_the_same_length_would_say() {
        let parts = |idle| CpuShares { idle, irq: 0.0, softirq: 0.0 };
        let one = Division::of_cpu(&sums(30, 10, 0, 0), 1_000_000, parts(0.6), true);
        let other = Division::of_cpu(&ModeWeights::default(), 1_000_000, parts(0.2), true);
        let both = Division { idle: one.idle + other.idle, unsampled: other.unsampled, of: one.of + other.of, ..one };
        let whole = Division::of_cpu(&sums(30, 10, 0, 0), 2_000_000, parts(0.4), true);
        assert_eq!((all(both), all(whole)), (shares(4500, 1500, 0, 4000), shares(4500, 1500, 0, 4000)));
    }
}
