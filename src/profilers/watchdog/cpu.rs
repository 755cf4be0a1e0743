//! The state of one CPU, and the findings that follow from it. Plain numbers: no clock, no file.
//!
//! The watchdog timer of a CPU expires once per period and wakes the stop task. If the timer is silent, interrupts are
//! off: a hard lockup begins. If it expires and the stop task has not run since the last expiry, no task is being
//! scheduled: a soft lockup begins.

use crate::profilers::watchdog::lockup::{LockupFinding, LockupKind, LockupPhase, SeenTask};
use crate::profilers::watchdog::settings::LockupLimits;
use crate::profilers::watchdog::signs::LifeSigns;
use crate::stats::LossHorizon;
use crate::symbol::StackId;

/// Time between two checks of the signs of life.
const LOOK_NS: u64 = 90_000_000;
/// The first pause before an ongoing lockup is reported again. The pause doubles each time.
const SHORTEST_PAUSE_NS: u64 = 200_000_000;
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// How the sampler works on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// Time between two samples, ns.
    pub period: u64,
    /// The sampler can sample a CPU whose interrupts are off.
    pub is_nmi: bool,
}

#[derive(Clone, Copy, Debug)]
struct OngoingLockup {
    kind: LockupKind,
    since: u64,
    /// When the lockup is reported next, and the pause after that.
    next: u64,
    pause: u64,
    /// The signs of life when the lockup was predicted.
    signs: LifeSigns,
    /// When the signs of life were found to have changed.
    alive_at: Option<u64>,
}

/// The state of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchedCpu {
    /// The kernel watches the CPU.
    pub on: bool,
    /// When perf-prof began to watch the CPU.
    pub from: u64,
    /// Last expiry of the watchdog timer; `armed`: its last expiry or start.
    pub timer: Option<u64>,
    armed: Option<u64>,
    /// Last run of the stop task, and the time between the last two.
    pub stop: Option<u64>,
    stop_gap: Option<u64>,
    /// First expiry of the timer since the stop task ran.
    kicked: Option<u64>,
    horizon: LossHorizon,
    pub sampled: Option<SeenTask>,
    pub seen: Option<SeenTask>,
    /// The stack of the last sample.
    pub stack: Option<StackId>,
    /// Events other than samples see the idle task.
    shows_idle: bool,
    /// The timer was not seen for two periods: the CPU is watched only by the stop task and samples.
    pub silent: bool,
    /// A note about this was printed.
    pub was_named: bool,
    /// The timer works, but its events are hidden at present.
    pub hidden: bool,
    /// When this was found out.
    alive: Option<u64>,
    /// The signs of life at the first check after the timer was late.
    doubt: Option<LifeSigns>,
    stuck: Option<OngoingLockup>,
}

impl WatchedCpu {
    /// Handles an expiry of the timer.
    pub fn expired(&mut self, at: u64, limits: &LockupLimits) -> Option<LockupFinding> {
        if self.timer.is_some_and(|timer| at <= timer) {
            return None; // a late record
        }
        self.timer = Some(at);
        self.started(at);
        if self.stuck.is_some_and(|stuck| stuck.kind == LockupKind::Hard) {
            return self.recover(at);
        }
        let Some(kicked) = self.kicked else {
            self.kicked = Some(at).filter(|at| *at >= self.from && self.horizon.saw_all_since(*at));
            return None;
        };
        // After a late expiry the next one is on time, and follows soon.
        let missed = at.saturating_sub(kicked) >= limits.period / 2;
        (missed && self.stuck.is_none() && self.on)
            .then(|| self.predict(LockupKind::Soft, self.last_stop().unwrap_or(kicked), at, limits))
    }

    /// Handles a start of the timer, by an expiry or anew.
    pub fn started(&mut self, at: u64) {
        self.armed = self.armed.max(Some(at));
        (self.silent, self.hidden, self.doubt) = (false, false, None);
    }

    /// Handles a switch-in of the stop task.
    pub fn stopped(&mut self, at: u64) -> Option<LockupFinding> {
        if self.stop.is_some_and(|stop| at <= stop) {
            return None;
        }
        self.stop_gap = self.last_stop().map(|stop| at.saturating_sub(stop));
        self.stop = Some(at);
        self.kicked = None;
        self.stuck.filter(|stuck| stuck.kind == LockupKind::Soft).and_then(|_| self.recover(at))
    }

    /// Handles a sample.
    pub fn sampled(&mut self, seen: SeenTask, sampler: &Sampler, limits: &LockupLimits) -> Option<LockupFinding> {
        let SeenTask { at_ns: at, tid, .. } = seen;
        if self.sampled.is_none_or(|before| before.at_ns <= at) {
            self.sampled = Some(seen);
        }
        if !sampler.is_nmi && self.is_overdue(at, limits) && self.stuck.is_none() {
            // The sampler is an ordinary interrupt, so interrupts are on: the timer must be expiring unseen.
            (self.hidden, self.alive, self.doubt) = (true, Some(at), None);
        }
        // If the timer is not seen, only the stop task can show a lockup, provided that it has run once per period so
        // far.
        let regular = self.stop_gap.is_some_and(|gap| gap <= limits.period.saturating_mul(3) / 2);
        let stop =
            self.last_stop().filter(|_| self.silent && regular && tid != 0 && self.on && self.stuck.is_none())?;
        let missed = at.saturating_sub(stop) > limits.period.saturating_mul(2).saturating_add(limits.margin);
        missed.then(|| self.predict(LockupKind::Soft, stop, at, limits))
    }

    /// Notes the task that an event of any kind has shown. `idle`: it is the idle task, in an event other than a
    /// sample.
    pub fn see(&mut self, seen: SeenTask, idle: bool) {
        self.shows_idle |= idle;
        if self.seen.is_none_or(|before| before.at_ns <= seen.at_ns) {
            self.seen = Some(seen);
        }
    }

    /// Notes that records were lost up to `end`: only from then on is the absence of an event known.
    pub fn lost(&mut self, end: u64) {
        self.horizon.lost_until(end);
        self.kicked = None;
    }

    /// True if its timer or stop task was last seen before the end of a loss, so that a later event may be unseen.
    pub fn is_behind(&self) -> bool {
        [self.timer, self.stop].into_iter().flatten().any(|at| !self.horizon.saw_all_since(at))
    }

    /// Restarts the CPU's period, since the kernel's settings have changed.
    pub fn forgive(&mut self, now: u64) {
        self.armed = self.armed.map(|armed| armed.max(now));
        (self.kicked, self.stop_gap, self.doubt) = (None, None, None);
    }

    /// Stops watching the CPU.
    pub fn forget(&mut self) {
        *self = WatchedCpu { seen: self.seen, shows_idle: self.shows_idle, ..WatchedCpu::default() };
    }

    /// Checks the CPU from another CPU. `signs` reads its present signs of life.
    pub fn check(
        &mut self,
        now: u64,
        sampler: &Sampler,
        limits: &LockupLimits,
        signs: impl FnOnce() -> LifeSigns,
    ) -> Option<LockupFinding> {
        if !self.on {
            return None;
        }
        if let Some(stuck) = self.stuck.filter(|stuck| stuck.kind == LockupKind::Hard) {
            return match stuck.alive_at {
                Some(at) => self.is_alive(at, now),
                None if now >= stuck.next => {
                    let signs = signs();
                    if signs.show_life_since(&stuck.signs, !self.shows_idle) {
                        return self.is_alive(signs.at_ns, now);
                    }
                    self.go_on(now, stuck, sampler)
                }
                None => None,
            };
        }
        if !self.is_overdue(now, limits) {
            self.doubt = None;
            return self.stuck.and_then(|stuck| self.go_on(now, stuck, sampler));
        }
        // Two checks, since the timer's record may still be unread if perf-prof itself was not running. The signs are
        // newer than `now`, by a varying time.
        let Some(before) = self.doubt else {
            self.doubt = Some(signs());
            return None;
        };
        if now.saturating_sub(before.at_ns) < LOOK_NS {
            return None;
        }
        self.doubt = None;
        let signs = signs();
        if signs.show_life_since(&before, !self.shows_idle) {
            (self.hidden, self.alive) = (true, Some(now.max(signs.at_ns)));
            return None;
        }
        let since = self.last_sign_of_timer().unwrap_or(now);
        let mut finding = self.predict(LockupKind::Hard, since, now, limits);
        self.stuck.iter_mut().for_each(|stuck| {
            (stuck.signs, stuck.next) = (signs, stuck.next.max(signs.at_ns.saturating_add(LOOK_NS)));
        });
        finding.dark = self.is_dark(now, sampler);
        Some(finding)
    }

    /// True if the timer is late, and was not at the last check.
    pub fn begins_to_doubt(&self, now: u64, limits: &LockupLimits) -> bool {
        self.on && self.doubt.is_none() && self.stuck.is_none() && self.is_overdue(now, limits)
    }

    /// True if the kernel may be unable to run a thread on the CPU now.
    pub fn is_suspect(&self, now: u64, limits: &LockupLimits) -> bool {
        let unanswered = self.kicked.is_some_and(|kicked| now.saturating_sub(kicked) > limits.margin);
        self.on && (self.stuck.is_some() || self.doubt.is_some() || unanswered || self.is_overdue(now, limits))
    }

    /// True if its hard lockup was over at the time of `signs`, even if no record says so yet.
    pub fn is_back(&self, signs: &LifeSigns) -> bool {
        let hard = self.stuck.filter(|stuck| stuck.kind == LockupKind::Hard);
        hard.is_some_and(|stuck| signs.show_life_since(&stuck.signs, !self.shows_idle))
    }

    /// The kind of a lockup that was predicted, and has not ended yet.
    pub fn stuck(&self) -> Option<LockupKind> {
        self.stuck.map(|stuck| stuck.kind)
    }

    fn predict(&mut self, kind: LockupKind, since: u64, now: u64, limits: &LockupLimits) -> LockupFinding {
        let pause = (limits.period / 4).max(SHORTEST_PAUSE_NS);
        let next = now.saturating_add(pause);
        self.stuck = Some(OngoingLockup { kind, since, next, pause, signs: LifeSigns::default(), alive_at: None });
        LockupFinding { kind, phase: LockupPhase::Predicted, stuck_ns: now.saturating_sub(since), dark: false }
    }

    fn recover(&mut self, at: u64) -> Option<LockupFinding> {
        let stuck = self.stuck.take()?;
        let stuck_ns = at.saturating_sub(stuck.since);
        Some(LockupFinding { kind: stuck.kind, phase: LockupPhase::Recovered, stuck_ns, dark: false })
    }

    /// Handles signs of life at `at`. Until all records up to `at` were read, the record of an earlier expiry may still
    /// arrive, and end the lockup itself.
    fn is_alive(&mut self, at: u64, now: u64) -> Option<LockupFinding> {
        if now < at {
            self.stuck.iter_mut().for_each(|stuck| stuck.alive_at = Some(at));
            return None;
        }
        (self.hidden, self.alive) = (true, Some(now));
        self.recover(now)
    }

    fn go_on(&mut self, now: u64, stuck: OngoingLockup, sampler: &Sampler) -> Option<LockupFinding> {
        if now < stuck.next {
            return None;
        }
        let pause = stuck.pause.saturating_mul(2).min(LONGEST_PAUSE_NS);
        self.stuck = Some(OngoingLockup { next: now.saturating_add(pause), pause, ..stuck });
        let stuck_ns = now.saturating_sub(stuck.since);
        let dark = stuck.kind == LockupKind::Hard && self.is_dark(now, sampler);
        Some(LockupFinding { kind: stuck.kind, phase: LockupPhase::Ongoing, stuck_ns, dark })
    }

    /// The latest time at which the stop task may have run.
    fn last_stop(&self) -> Option<u64> {
        self.stop.map(|stop| self.horizon.latest(stop))
    }

    /// The latest time at which the timer may have expired. If the timer is not seen, samples and the stop task replace
    /// it.
    fn last_sign_of_timer(&self) -> Option<u64> {
        let seen = if self.silent { self.sampled.map(|seen| seen.at_ns).max(self.stop) } else { self.armed };
        seen.map(|seen| self.horizon.latest(seen))
    }

    fn is_overdue(&self, now: u64, limits: &LockupLimits) -> bool {
        let last = self.last_sign_of_timer().map(|last| last.max(self.alive.unwrap_or(0)));
        last.is_some_and(|last| now.saturating_sub(last) > limits.period.saturating_add(limits.margin))
    }

    fn is_dark(&self, now: u64, sampler: &Sampler) -> bool {
        const SLACK_NS: u64 = 200_000_000;
        let longest = sampler.period.saturating_mul(2).saturating_add(SLACK_NS);
        self.sampled.is_none_or(|seen| now.saturating_sub(seen.at_ns) > longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Comm;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;
    /// The limits for kernel.watchdog_thresh 10.
    const LIMITS: LockupLimits =
        LockupLimits { period: 4 * S, margin: 200 * MS, soft: Some(20 * S), hard: Some(10 * S) };
    const CLOCK: Sampler = Sampler { period: 100 * MS, is_nmi: false };
    const NMI: Sampler = Sampler { period: 100 * MS, is_nmi: true };

    fn seen(at: u64, tid: i32) -> SeenTask {
        SeenTask { at_ns: at, tid, comm: Comm::default() }
    }

    /// Signs of life that do not change.
    fn frozen(at: u64) -> LifeSigns {
        LifeSigns { timer_interrupts: Some(7), idle: 7, at_ns: at }
    }

    fn of(kind: LockupKind, phase: LockupPhase, stuck_ns: u64) -> Option<LockupFinding> {
        Some(LockupFinding { kind, phase, stuck_ns, dark: false })
    }

    /// A CPU whose timer, stop task and samples are normal up to 100 s.
    fn healthy() -> WatchedCpu {
        let mut cpu = WatchedCpu { on: true, ..WatchedCpu::default() };
        for period in 0..=25 {
            let at = period * 4 * S;
            assert_eq!(cpu.expired(at, &LIMITS), None);
            cpu.started(at + 1000);
            assert_eq!(cpu.stopped(at + 20_000), None);
            cpu.see(seen(at + MS, 0), true);
            assert_eq!(cpu.sampled(seen(at + MS, 0), &CLOCK, &LIMITS), None);
            assert_eq!(cpu.check(at + 4 * S, &CLOCK, &LIMITS, || panic!("no need to look")), None);
            assert!(!cpu.is_suspect(at + 4 * S, &LIMITS));
        }
        cpu
    }

    /// The findings of checks ten times a second.
    fn watch(
        cpu: &mut WatchedCpu,
        from: u64,
        to: u64,
        sampler: &Sampler,
        mut signs: impl FnMut(u64) -> LifeSigns,
    ) -> Vec<(u64, LockupFinding)> {
        let at = (0..).map(|n| from + n * 100 * MS).take_while(|at| *at <= to);
        at.filter_map(|at| Some((at, cpu.check(at, sampler, &LIMITS, || signs(at))?))).collect()
    }

    #[test]
    fn a_healthy_cpu_has_no_finding() {
        let mut cpu = healthy();
        assert_eq!(watch(&mut cpu, 100 * S, 104 * S, &CLOCK, |_| panic!("no need to look")), []);
    }

    #[test]
    fn a_soft_lockup() {
        let mut cpu = healthy();
        assert_eq!(cpu.expired(104 * S, &LIMITS), None);
        assert!(cpu.is_suspect(104 * S + 300 * MS, &LIMITS), "the stop task is late");
        let stop = 100 * S + 20_000;
        assert_eq!(cpu.expired(108 * S, &LIMITS), of(LockupKind::Soft, LockupPhase::Predicted, 108 * S - stop));
        assert_eq!(cpu.stuck(), Some(LockupKind::Soft));
        assert_eq!(cpu.expired(112 * S, &LIMITS), None);
        let again = watch(&mut cpu, 108 * S, 116 * S, &CLOCK, |_| panic!("its timer expires"));
        let want = [109 * S, 111 * S, 115 * S]; // at growing distance
        assert_eq!(again.iter().map(|(at, _)| *at).collect::<Vec<u64>>(), want);
        assert!(
            again.iter().all(|(at, finding)| Some(*finding) == of(LockupKind::Soft, LockupPhase::Ongoing, at - stop))
        );
        assert_eq!(cpu.stopped(117 * S), of(LockupKind::Soft, LockupPhase::Recovered, 117 * S - stop));
        assert_eq!((cpu.stuck(), cpu.is_suspect(117 * S, &LIMITS)), (None, true), "the timer is late now");
    }

    #[test]
    fn a_soft_lockup_that_began_before_us() {
        let mut cpu = WatchedCpu { on: true, ..WatchedCpu::default() };
        assert_eq!(cpu.expired(3 * S, &LIMITS), None);
        assert_eq!(cpu.expired(7 * S, &LIMITS), of(LockupKind::Soft, LockupPhase::Predicted, 4 * S));
    }

    #[test]
    fn a_run_before_its_event_was_on_is_not_missed() {
        let mut cpu = WatchedCpu { on: true, from: 10 * S, ..WatchedCpu::default() };
        assert_eq!(cpu.expired(9 * S, &LIMITS), None);
        assert_eq!(cpu.expired(13 * S, &LIMITS), None);
        assert_eq!(cpu.expired(17 * S, &LIMITS), of(LockupKind::Soft, LockupPhase::Predicted, 4 * S));
    }

    #[test]
    fn a_timer_that_came_late_is_no_missed_run() {
        let mut cpu = healthy();
        assert_eq!(cpu.expired(107 * S + 900 * MS, &LIMITS), None);
        assert_eq!(cpu.expired(108 * S, &LIMITS), None);
        assert_eq!(cpu.stopped(108 * S + 10_000), None);
        // Records may arrive late, too.
        assert_eq!((cpu.expired(104 * S, &LIMITS), cpu.stopped(104 * S)), (None, None));
        assert_eq!((cpu.timer, cpu.stop), (Some(108 * S), Some(108 * S + 10_000)));
    }

    #[test]
    fn a_dark_cpu() {
        let mut cpu = healthy();
        let found = watch(&mut cpu, 104 * S, 110 * S, &CLOCK, frozen);
        let dark = |phase, stuck_ns| LockupFinding { kind: LockupKind::Hard, phase, stuck_ns, dark: true };
        let since = 100 * S + 1000; // the timer was started again
        let want = [
            (104 * S + 400 * MS, dark(LockupPhase::Predicted, 4 * S + 400 * MS - 1000)),
            (105 * S + 400 * MS, dark(LockupPhase::Ongoing, 5 * S + 400 * MS - 1000)),
            (107 * S + 400 * MS, dark(LockupPhase::Ongoing, 7 * S + 400 * MS - 1000)),
        ];
        assert_eq!(found, want);
        assert!(cpu.is_suspect(110 * S, &LIMITS));
        assert_eq!(cpu.expired(111 * S, &LIMITS), of(LockupKind::Hard, LockupPhase::Recovered, 111 * S - since));
        cpu.stopped(111 * S + 1000);
        assert_eq!(watch(&mut cpu, 111 * S, 115 * S, &CLOCK, |_| panic!("no need to look")), []);
    }

    #[test]
    fn a_hard_lockup_that_an_nmi_sees() {
        let mut cpu = healthy();
        let mut found = Vec::new();
        for tick in 1..=60 {
            let at = 100 * S + tick * 100 * MS;
            assert_eq!(cpu.sampled(seen(at, 77), &NMI, &LIMITS), None);
            cpu.see(seen(at, 77), false);
            found.extend(cpu.check(at, &NMI, &LIMITS, || frozen(at)));
        }
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|finding| finding.kind == LockupKind::Hard && !finding.dark));
        assert_eq!(cpu.seen.map(|seen| seen.tid), Some(77));
    }

    #[test]
    fn a_timer_that_works_unseen() {
        // Signs of life: timer interrupts go on, or idle time grows if the idle task is hidden.
        let mut cpu = healthy();
        let ticking = |at| LifeSigns { timer_interrupts: Some(at), idle: 7, at_ns: at };
        assert_eq!(watch(&mut cpu, 104 * S, 120 * S, &CLOCK, ticking), []);
        assert!(cpu.hidden);
        assert_eq!(cpu.expired(121 * S, &LIMITS), None);
        assert!(!cpu.hidden);

        let idling = |at| LifeSigns { timer_interrupts: Some(7), idle: at, at_ns: at };
        let mut visible = healthy();
        assert!(!watch(&mut visible, 104 * S, 105 * S, &CLOCK, idling).is_empty(), "stuck on its way to sleep");
        let mut hides_idle = WatchedCpu { shows_idle: false, ..healthy() };
        assert_eq!(watch(&mut hides_idle, 104 * S, 120 * S, &CLOCK, idling), []);

        // A later lockup is reported like any other.
        let found = watch(&mut cpu, 121 * S, 127 * S, &CLOCK, frozen);
        assert_eq!(found.first().map(|(_, finding)| finding.kind), Some(LockupKind::Hard));
        let mut cpu = healthy();
        let found = watch(&mut cpu, 104 * S, 130 * S, &CLOCK, |at| if at < 120 * S { ticking(at) } else { frozen(at) });
        assert_eq!(
            found.first().map(|(_, finding)| (finding.kind, finding.phase)),
            Some((LockupKind::Hard, LockupPhase::Predicted))
        );

        // A sample by an ordinary interrupt is a sign of life, too.
        let mut cpu = healthy();
        assert_eq!(cpu.sampled(seen(105 * S, 9), &CLOCK, &LIMITS), None);
        assert_eq!(watch(&mut cpu, 105 * S, 107 * S, &CLOCK, |_| panic!("no need to look")), []);
    }

    #[test]
    fn life_is_not_seen_before_its_time() {
        // perf-prof did not run when the lockup ended, so the signs are newer than the records. The record of the
        // expiry has the time of the end.
        let later = || LifeSigns { timer_interrupts: Some(9), idle: 7, at_ns: 130 * S };
        let locked_up = || {
            let mut cpu = healthy();
            let found = watch(&mut cpu, 104 * S, 107 * S, &CLOCK, frozen);
            assert_eq!(found.first().map(|(_, finding)| finding.phase), Some(LockupPhase::Predicted));
            assert!(!cpu.is_back(&frozen(115 * S)) && cpu.is_back(&later()));
            assert_eq!(watch(&mut cpu, 115 * S, 117 * S, &CLOCK, |_| later()), []);
            cpu
        };
        let since = locked_up().last_sign_of_timer().expect("a timer");
        let mut cpu = locked_up();
        let recovered = |at| LockupFinding {
            kind: LockupKind::Hard,
            phase: LockupPhase::Recovered,
            stuck_ns: at - since,
            dark: false,
        };
        assert_eq!(cpu.expired(129 * S, &LIMITS), Some(recovered(129 * S)));
        // Without an expiry the timer is hidden.
        let mut cpu = locked_up();
        assert_eq!(cpu.check(131 * S, &CLOCK, &LIMITS, later), Some(recovered(131 * S)));
        assert!(cpu.hidden);
    }

    #[test]
    fn we_were_not_running() {
        let mut cpu = healthy();
        // The first check finds the timer late; before the second one its record has arrived.
        assert_eq!(cpu.check(130 * S, &CLOCK, &LIMITS, || frozen(130 * S)), None);
        assert!(cpu.is_suspect(130 * S, &LIMITS));
        assert_eq!(cpu.expired(129 * S, &LIMITS), None);
        assert_eq!(cpu.check(130 * S + 100 * MS, &CLOCK, &LIMITS, || frozen(130 * S)), None);
        assert_eq!(cpu.stuck(), None);
    }

    #[test]
    fn looks_are_apart_in_time() {
        // In a round without waiting, the records cover 100 ms more although hardly any time has passed.
        let mut cpu = WatchedCpu { shows_idle: false, ..healthy() };
        let idling = |at: u64| LifeSigns { idle: at / (10 * MS), ..frozen(at) };
        assert_eq!(cpu.check(105 * S, &CLOCK, &LIMITS, || idling(105 * S + 101 * MS)), None);
        for now in [105 * S + 100 * MS, 105 * S + 190 * MS] {
            assert_eq!(cpu.check(now, &CLOCK, &LIMITS, || panic!("too early")), None);
        }
        let now = 105 * S + 200 * MS;
        assert_eq!(cpu.check(now, &CLOCK, &LIMITS, || idling(now)), None);
        assert!(cpu.hidden);
    }

    #[test]
    fn changed_settings_and_losses_give_time() {
        let mut cpu = healthy();
        assert!(cpu.begins_to_doubt(104 * S + 300 * MS, &LIMITS));
        cpu.forgive(104 * S);
        assert_eq!(watch(&mut cpu, 104 * S, 108 * S, &CLOCK, |_| panic!("no need to look")), []);
        let mut cpu = healthy();
        cpu.expired(104 * S, &LIMITS);
        cpu.lost(107 * S); // a run of the stop task may be among the losses
        assert_eq!(cpu.expired(108 * S, &LIMITS), None);
        assert_eq!(watch(&mut cpu, 108 * S, 112 * S, &CLOCK, |_| panic!("no need to look")), []);
    }

    #[test]
    fn what_was_seen_stays_so_when_records_are_lost() {
        let mut cpu = healthy();
        assert!(!cpu.is_behind());
        cpu.lost(107 * S);
        assert_eq!((cpu.timer, cpu.stop), (Some(100 * S), Some(100 * S + 20_000)));
        assert!(cpu.is_behind());
        assert_eq!(cpu.expired(108 * S, &LIMITS), None);
        assert!(cpu.is_behind(), "the stop task was not seen since");
        // The stop task may have run until the end of the loss: the CPU is stuck since then at least.
        assert_eq!(cpu.expired(112 * S, &LIMITS), of(LockupKind::Soft, LockupPhase::Predicted, 5 * S));
        assert_eq!(cpu.stopped(113 * S), of(LockupKind::Soft, LockupPhase::Recovered, 6 * S));
        assert!(!cpu.is_behind());
        let mut cpu = healthy();
        cpu.lost(107 * S);
        let found = watch(&mut cpu, 107 * S, 112 * S, &CLOCK, frozen);
        let (at, finding) = found[0];
        assert_eq!((at, finding.stuck_ns), (111 * S + 400 * MS, 4 * S + 400 * MS), "since the end of the loss");
    }

    #[test]
    fn an_offline_cpu_is_not_watched() {
        let mut cpu = healthy();
        cpu.forget();
        assert_eq!(watch(&mut cpu, 104 * S, 120 * S, &CLOCK, |_| panic!("no need to look")), []);
        cpu.on = true; // watched again: the CPU must show its timer first
        assert_eq!(watch(&mut cpu, 120 * S, 140 * S, &CLOCK, |_| panic!("no need to look")), []);
        cpu.started(141 * S);
        assert!(cpu.begins_to_doubt(146 * S, &LIMITS));
    }

    #[test]
    fn stop_task_and_samples_where_the_timer_is_silent() {
        let mut cpu = WatchedCpu { on: true, silent: true, ..WatchedCpu::default() };
        assert_eq!((cpu.stopped(4 * S), cpu.stopped(8 * S)), (None, None));
        for tenth in 80..=162 {
            assert_eq!(cpu.sampled(seen(tenth * 100 * MS, 5), &CLOCK, &LIMITS), None);
        }
        assert_eq!(
            cpu.sampled(seen(16 * S + 300 * MS, 5), &CLOCK, &LIMITS),
            of(LockupKind::Soft, LockupPhase::Predicted, 8 * S + 300 * MS)
        );
        assert_eq!(cpu.stopped(17 * S), of(LockupKind::Soft, LockupPhase::Recovered, 9 * S));
        // Neither samples nor the stop task nor signs of life.
        let found = watch(&mut cpu, 18 * S, 22 * S, &CLOCK, frozen);
        assert!(
            matches!(found[..], [(at, LockupFinding { kind: LockupKind::Hard, phase: LockupPhase::Predicted, dark: true, .. })] if at == 21 * S + 400 * MS),
            "{found:?}"
        );
    }
}
