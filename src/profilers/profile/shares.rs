//! What samples say of how time was divided.

use perf_event_open_sys::bindings as b;

use crate::task::cpu_times::Parts;

/// What a CPU was doing when a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Kernel,
    Guest,
    /// In the idle task: waiting, or serving an interrupt meanwhile.
    Idle,
}

impl Kind {
    /// From the header of a sample, and whether it was taken in the idle task.
    pub fn of(misc: u16, idle: bool) -> Kind {
        match u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK {
            b::PERF_RECORD_MISC_USER => Kind::User,
            b::PERF_RECORD_MISC_GUEST_KERNEL | b::PERF_RECORD_MISC_GUEST_USER => Kind::Guest,
            _ if idle => Kind::Idle,
            _ => Kind::Kernel,
        }
    }
}

/// Weights of samples by kind: what each stands for, in ns of the CPU clock or in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub user: u64,
    pub kernel: u64,
    pub guest: u64,
    pub idle: u64,
    pub samples: u64,
    pub busy_samples: u64,
}

impl Sums {
    #[inline]
    pub fn add(&mut self, kind: Kind, weight: u64) {
        let sum = match kind {
            Kind::User => &mut self.user,
            Kind::Kernel => &mut self.kernel,
            Kind::Guest => &mut self.guest,
            Kind::Idle => &mut self.idle,
        };
        *sum = sum.saturating_add(weight);
        self.samples += 1;
        self.busy_samples += u64::from(kind != Kind::Idle);
    }

    /// All but the idle task's.
    pub fn busy(&self) -> u64 {
        self.user.saturating_add(self.kernel).saturating_add(self.guest)
    }
}

/// Which kinds are not sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub user: bool,
    pub kernel: bool,
    pub guest: bool,
}

impl Left {
    pub fn any(self) -> bool {
        self.user || self.kernel || self.guest
    }
}

/// Of what the shares are.
#[derive(Clone, Copy, Debug)]
pub enum Base {
    /// Of all samples: only some tasks were sampled, or nobody knows how long the CPU was idle.
    Samples,
    /// Of the CPU's time, as divided by /proc/stat. `seen_idle`: an idle CPU is sampled like any other.
    Cpu { parts: Parts, seen_idle: bool },
    /// Of a span of time in which every weight is ns.
    Span { ns: u64, idle: Option<f64> },
    /// No more is known than how much of its time the CPU was idle.
    Idle(f64),
}

/// Parts of the base in hundredths of a per cent. None: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub user: Option<u32>,
    pub kernel: Option<u32>,
    pub guest: Option<u32>,
    pub idle: Option<u32>,
}

const WHOLE: u32 = 10_000;

impl Shares {
    pub fn new(sums: &Sums, base: Base, left: Left) -> Shares {
        let shares = match base {
            Base::Samples => Shares::of_samples(sums),
            Base::Cpu { parts, seen_idle } => Shares::of_cpu(sums, parts, seen_idle),
            Base::Span { ns, idle } => Shares::of_span(sums, ns, idle),
            Base::Idle(idle) => Shares { idle: Some(hundredths(idle)), ..Shares::default() },
        };
        let unless = |out: bool, share: Option<u32>| share.filter(|_| !out);
        Shares {
            user: unless(left.user, shares.user),
            kernel: unless(left.kernel, shares.kernel),
            guest: unless(left.guest, shares.guest),
            idle: shares.idle,
        }
    }

    /// The kernel gets the rest, so that the sum is exact.
    fn with_rest(user: f64, guest: f64, idle: f64) -> Shares {
        let (user, guest, idle) = (hundredths(user), hundredths(guest), hundredths(idle));
        let guest = guest.min(WHOLE.saturating_sub(user));
        let idle = idle.min(WHOLE.saturating_sub(user + guest));
        let rest = WHOLE.saturating_sub(user + guest + idle);
        Shares { user: Some(user), kernel: Some(rest), guest: Some(guest), idle: Some(idle) }
    }

    fn of_samples(sums: &Sums) -> Shares {
        let all = sums.busy().saturating_add(sums.idle);
        if all == 0 {
            return Shares::default();
        }
        let part = |sum: u64| sum as f64 / all as f64;
        Shares::with_rest(part(sums.user), part(sums.guest), part(sums.idle))
    }

    fn of_cpu(sums: &Sums, parts: Parts, seen_idle: bool) -> Shares {
        let in_idle = interrupts_in_idle(sums, parts, seen_idle);
        if sums.busy() == 0 && in_idle == 0.0 {
            // Too little for a sample; or samples are missing, and nobody knows what the CPU did.
            const LITTLE: f64 = 0.05;
            return if 1.0 - parts.idle < LITTLE {
                Shares::with_rest(0.0, 0.0, 1.0)
            } else {
                Shares { idle: Some(hundredths(parts.idle)), ..Shares::default() }
            };
        }
        let tasks = (1.0 - parts.idle - in_idle).max(0.0);
        let part = |sum: u64| tasks * sum as f64 / sums.busy().max(1) as f64;
        Shares::with_rest(part(sums.user), part(sums.guest), parts.idle)
    }

    fn of_span(sums: &Sums, ns: u64, idle: Option<f64>) -> Shares {
        // The ticks of a window may be one too many.
        let ns = ns.max(sums.busy());
        let part = |sum: u64| Some(hundredths(sum as f64 / ns.max(1) as f64).min(WHOLE));
        let rest = (1.0 - sums.busy() as f64 / ns.max(1) as f64).max(0.0);
        Shares {
            user: part(sums.user),
            kernel: part(sums.kernel),
            guest: part(sums.guest),
            idle: Some(hundredths(idle.unwrap_or(rest))),
        }
    }

    /// What the CPU did that was sampled.
    pub fn busy(&self) -> u32 {
        [self.user, self.kernel, self.guest].into_iter().flatten().sum()
    }
}

/// The part of a CPU's time in which interrupts were served in the idle task: /proc/stat does not count it as idle, while
/// its samples are those of the idle task.
pub fn interrupts_in_idle(sums: &Sums, parts: Parts, seen_idle: bool) -> f64 {
    let all = sums.busy().saturating_add(sums.idle);
    if sums.idle == 0 {
        return 0.0;
    }
    let in_idle_task = sums.idle as f64 / all as f64;
    let busy = 1.0 - parts.idle;
    // A clock ticks in the waiting idle task too. Cycles do not pass while the CPU is halted; but polling takes some.
    let most = if seen_idle { in_idle_task - parts.idle } else { busy * in_idle_task };
    most.min(parts.irq).clamp(0.0, busy.max(0.0))
}

/// Of a part of one.
pub fn hundredths(part: f64) -> u32 {
    (part * f64::from(WHOLE)).round().clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(user: u64, kernel: u64, guest: u64, idle: u64) -> Sums {
        Sums { user, kernel, guest, idle, ..Sums::default() }
    }

    fn shares(user: u32, kernel: u32, guest: u32, idle: u32) -> Shares {
        Shares { user: Some(user), kernel: Some(kernel), guest: Some(guest), idle: Some(idle) }
    }

    #[test]
    fn kinds_come_from_the_header() {
        let cases = [
            (b::PERF_RECORD_MISC_USER, false, Kind::User),
            (b::PERF_RECORD_MISC_USER, true, Kind::User), // the idle task has no user code
            (b::PERF_RECORD_MISC_KERNEL, false, Kind::Kernel),
            (b::PERF_RECORD_MISC_HYPERVISOR, false, Kind::Kernel),
            (b::PERF_RECORD_MISC_KERNEL, true, Kind::Idle),
            (b::PERF_RECORD_MISC_GUEST_USER, false, Kind::Guest),
            (b::PERF_RECORD_MISC_GUEST_KERNEL, false, Kind::Guest),
        ];
        for (misc, idle, want) in cases {
            let misc = misc as u16 | b::PERF_RECORD_MISC_EXACT_IP as u16;
            assert_eq!(Kind::of(misc, idle), want, "{misc:#x} {idle}");
        }
    }

    #[test]
    fn shares_of_a_cpu_follow_its_idle_time() {
        let parts = |idle, irq| Parts { idle, irq };
        let cases = [
            // Whether the idle task is seen or not makes no difference.
            (sums(30, 10, 0, 60), parts(0.6, 0.0), true, shares(3000, 1000, 0, 6000)),
            (sums(30, 10, 0, 0), parts(0.6, 0.0), true, shares(3000, 1000, 0, 6000)),
            (sums(30, 10, 0, 600), parts(0.6, 0.0), false, shares(3000, 1000, 0, 6000)),
            (sums(0, 0, 8, 0), parts(0.2, 0.0), true, shares(0, 0, 8000, 2000)),
            // A third of the time interrupts were served in the idle task.
            (sums(0, 0, 0, 90), parts(0.67, 0.33), true, shares(0, 3300, 0, 6700)),
            (sums(10, 0, 0, 90), parts(0.5, 0.4), true, shares(1000, 4000, 0, 5000)),
            // By chance one more sample in the idle task, and no interrupts to speak of.
            (sums(39, 0, 0, 61), parts(0.6, 0.001), true, shares(3990, 10, 0, 6000)),
            // Nothing but idle.
            (sums(0, 0, 0, 99), parts(0.99, 0.0), true, shares(0, 0, 0, 10_000)),
            (sums(0, 0, 0, 0), parts(1.0, 0.0), true, shares(0, 0, 0, 10_000)),
        ];
        for (sums, parts, seen_idle, want) in cases {
            let got = Shares::new(&sums, Base::Cpu { parts, seen_idle }, Left::default());
            assert_eq!(got, want, "{sums:?} {parts:?}");
        }
        let unknown =
            Shares::new(&sums(0, 0, 0, 0), Base::Cpu { parts: parts(0.1, 0.0), seen_idle: true }, Left::default());
        assert_eq!(unknown, Shares { idle: Some(1000), ..Shares::default() });
    }

    #[test]
    fn shares_of_samples_and_of_a_span() {
        assert_eq!(Shares::new(&sums(1, 1, 1, 0), Base::Samples, Left::default()), shares(3333, 3334, 3333, 0));
        assert_eq!(Shares::new(&sums(0, 0, 0, 0), Base::Samples, Left::default()), Shares::default());
        let span = Base::Span { ns: 1000, idle: None };
        assert_eq!(Shares::new(&sums(200, 100, 0, 7), span, Left::default()), shares(2000, 1000, 0, 7000));
        let kernel_alone = Left { user: true, guest: true, ..Left::default() };
        let span = Base::Span { ns: 1000, idle: Some(0.25) };
        let got = Shares::new(&sums(0, 100, 0, 0), span, kernel_alone);
        assert_eq!(got, Shares { kernel: Some(1000), idle: Some(2500), ..Shares::default() });
        assert_eq!(got.busy(), 1000);
    }

    #[test]
    fn every_sum_is_a_whole() {
        for idle in 0..=100 {
            for user in 0..30 {
                let base = Base::Cpu { parts: Parts { idle: f64::from(idle) / 100.0, irq: 0.1 }, seen_idle: true };
                let got = Shares::new(&sums(user, 7, 3, 11), base, Left::default());
                assert_eq!(got.busy() + got.idle.unwrap(), WHOLE, "{idle} {user}");
            }
        }
    }
}
