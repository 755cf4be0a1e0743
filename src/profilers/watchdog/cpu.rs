//! What is known of one CPU, and what follows from it. Plain numbers: no clock, no file.
//!
//! A CPU's watchdog timer expires once per period and has the stop task run. When the timer is silent, interrupts are off:
//! a hard lockup is on its way. When it expires and the stop task has not run since, nothing is scheduled: a soft one.

use crate::profilers::watchdog::settings::Limits;
use crate::profilers::watchdog::signs::Signs;
use crate::symbol::StackId;
use crate::task::Comm;

/// Between two looks at the signs of life.
const LOOK_NS: u64 = 90_000_000;
/// A lockup that goes on is told again after this, then after twice as long, and so on.
const SHORTEST_PAUSE_NS: u64 = 200_000_000;
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Soft,
    Hard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Predicted,
    Ongoing,
    Recovered,
}

/// Something to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    pub phase: Phase,
    pub stuck_ns: u64,
    /// Nor are there samples: nothing at all comes from the CPU.
    pub dark: bool,
}

/// Who was seen on the CPU, by whatever event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub at: u64,
    pub pid: i32,
    pub tid: i32,
    pub comm: Comm,
}

/// How the sampler works here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// Between two samples, ns.
    pub period: u64,
    /// It sees a CPU whose interrupts are off.
    pub is_nmi: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stuck {
    kind: Kind,
    since: u64,
    next: u64,
    pause: u64,
    /// When it was predicted.
    signs: Signs,
}

/// One CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// The kernel watches it.
    pub on: bool,
    /// Last expiry of its timer, and of that or its start.
    pub timer: Option<u64>,
    armed: Option<u64>,
    /// Last run of the stop task, and how long after the one before.
    pub stop: Option<u64>,
    stop_gap: Option<u64>,
    /// First expiry since then.
    kicked: Option<u64>,
    pub sampled: Option<u64>,
    pub seen: Option<Seen>,
    /// Of the last sample.
    pub stack: Option<StackId>,
    /// Its idle task raises events.
    shows_idle: bool,
    /// Its timer was not seen for two periods: it is watched by what remains.
    pub silent: bool,
    /// That was said.
    pub was_named: bool,
    /// Its timer works, but does not show now.
    pub hidden: bool,
    doubt: Option<(u64, Signs)>,
    stuck: Option<Stuck>,
}

impl Cpu {
    /// Its timer expired.
    pub fn expired(&mut self, at: u64, limits: &Limits) -> Option<Finding> {
        if self.timer.is_some_and(|timer| at <= timer) {
            return None; // late
        }
        self.timer = Some(at);
        self.started(at);
        if self.stuck.is_some_and(|stuck| stuck.kind == Kind::Hard) {
            return self.recover(at);
        }
        let Some(kicked) = self.kicked else {
            self.kicked = Some(at);
            return None;
        };
        // One that came late is soon followed by the next, which is on time.
        let missed = at.saturating_sub(kicked) >= limits.period / 2;
        (missed && self.stuck.is_none() && self.on)
            .then(|| self.predict(Kind::Soft, self.stop.unwrap_or(kicked), at, limits))
    }

    /// Its timer was started, by an expiry or anew.
    pub fn started(&mut self, at: u64) {
        self.armed = self.armed.max(Some(at));
        (self.silent, self.hidden, self.doubt) = (false, false, None);
    }

    /// The stop task runs.
    pub fn stopped(&mut self, at: u64) -> Option<Finding> {
        if self.stop.is_some_and(|stop| at <= stop) {
            return None;
        }
        self.stop_gap = self.stop.map(|stop| at - stop);
        self.stop = Some(at);
        self.kicked = None;
        self.stuck.filter(|stuck| stuck.kind == Kind::Soft).and_then(|_| self.recover(at))
    }

    /// A sample came.
    pub fn sampled(&mut self, at: u64, tid: i32, sampler: &Sampler, limits: &Limits) -> Option<Finding> {
        self.sampled = self.sampled.max(Some(at));
        if !sampler.is_nmi && self.is_overdue(at, limits) && self.stuck.is_none() {
            // It came by an interrupt, so those are on: the timer expires without our seeing it.
            (self.hidden, self.doubt) = (true, None);
        }
        // Where the timer does not show, the stop task has to do: it used to run once per period.
        let regular = self.stop_gap.is_some_and(|gap| gap <= limits.period.saturating_mul(3) / 2);
        let stop = self.stop.filter(|_| self.silent && regular && tid != 0 && self.on && self.stuck.is_none())?;
        let missed = at.saturating_sub(stop) > limits.period.saturating_mul(2).saturating_add(limits.margin);
        missed.then(|| self.predict(Kind::Soft, stop, at, limits))
    }

    /// Any event shows who runs here.
    pub fn see(&mut self, seen: Seen) {
        self.shows_idle |= seen.tid == 0;
        if self.seen.is_none_or(|before| before.at <= seen.at) {
            self.seen = Some(seen);
        }
    }

    /// Records were lost up to `end`: what did not happen since then did not happen, as far as we know.
    pub fn lost(&mut self, end: u64) {
        self.armed = self.armed.map(|armed| armed.max(end));
        self.stop = self.stop.map(|stop| stop.max(end));
        self.kicked = None;
    }

    /// The kernel's settings have changed, or the CPU is watched from now on: it gets a whole period.
    pub fn forgive(&mut self, now: u64) {
        self.armed = self.armed.map(|armed| armed.max(now));
        (self.kicked, self.stop_gap, self.doubt) = (None, None, None);
    }

    /// It is not watched any more.
    pub fn forget(&mut self) {
        *self = Cpu { seen: self.seen, shows_idle: self.shows_idle, ..Cpu::default() };
    }

    /// Looks at the CPU from elsewhere. `signs` are those of now.
    pub fn check(
        &mut self,
        now: u64,
        sampler: &Sampler,
        limits: &Limits,
        signs: impl FnOnce() -> Signs,
    ) -> Option<Finding> {
        if !self.on {
            return None;
        }
        if let Some(stuck) = self.stuck.filter(|stuck| stuck.kind == Kind::Hard) {
            let life = || signs().show_life_since(&stuck.signs, !self.shows_idle);
            if now >= stuck.next && life() {
                self.hidden = true;
                return self.recover(now);
            }
            return self.go_on(now, stuck, sampler);
        }
        if !self.is_overdue(now, limits) {
            self.doubt = None;
            return self.stuck.and_then(|stuck| self.go_on(now, stuck, sampler));
        }
        // Two looks, since it may be we who were not running: then the timer's record is on its way.
        let Some((at, before)) = self.doubt else {
            self.doubt = Some((now, signs()));
            return None;
        };
        if now.saturating_sub(at) < LOOK_NS {
            return None;
        }
        self.doubt = None;
        let signs = signs();
        if signs.show_life_since(&before, !self.shows_idle) {
            self.hidden = true;
            return None;
        }
        let since = self.last_sign_of_timer().unwrap_or(now);
        let mut finding = self.predict(Kind::Hard, since, now, limits);
        self.stuck.iter_mut().for_each(|stuck| stuck.signs = signs);
        finding.dark = self.is_dark(now, sampler);
        Some(finding)
    }

    /// Its timer is late, which was not so at the last look.
    pub fn begins_to_doubt(&self, now: u64, limits: &Limits) -> bool {
        self.on && self.doubt.is_none() && self.stuck.is_none() && self.is_overdue(now, limits)
    }

    /// The kernel may not be able to run a thread there now.
    pub fn is_suspect(&self, now: u64, limits: &Limits) -> bool {
        let unanswered = self.kicked.is_some_and(|kicked| now.saturating_sub(kicked) > limits.margin);
        self.on && (self.stuck.is_some() || self.doubt.is_some() || unanswered || self.is_overdue(now, limits))
    }

    /// The lockup that is predicted, and has not ended yet.
    pub fn stuck(&self) -> Option<Kind> {
        self.stuck.map(|stuck| stuck.kind)
    }

    fn predict(&mut self, kind: Kind, since: u64, now: u64, limits: &Limits) -> Finding {
        let pause = (limits.period / 4).max(SHORTEST_PAUSE_NS);
        let next = now.saturating_add(pause);
        self.stuck = Some(Stuck { kind, since, next, pause, signs: Signs::default() });
        Finding { kind, phase: Phase::Predicted, stuck_ns: now.saturating_sub(since), dark: false }
    }

    fn recover(&mut self, at: u64) -> Option<Finding> {
        let stuck = self.stuck.take()?;
        let stuck_ns = at.saturating_sub(stuck.since);
        Some(Finding { kind: stuck.kind, phase: Phase::Recovered, stuck_ns, dark: false })
    }

    fn go_on(&mut self, now: u64, stuck: Stuck, sampler: &Sampler) -> Option<Finding> {
        if now < stuck.next {
            return None;
        }
        let pause = stuck.pause.saturating_mul(2).min(LONGEST_PAUSE_NS);
        self.stuck = Some(Stuck { next: now.saturating_add(pause), pause, ..stuck });
        let stuck_ns = now.saturating_sub(stuck.since);
        let dark = stuck.kind == Kind::Hard && self.is_dark(now, sampler);
        Some(Finding { kind: stuck.kind, phase: Phase::Ongoing, stuck_ns, dark })
    }

    /// The timer; where it does not show, whatever else there is.
    fn last_sign_of_timer(&self) -> Option<u64> {
        if self.silent { self.sampled.max(self.stop) } else { self.armed }
    }

    fn is_overdue(&self, now: u64, limits: &Limits) -> bool {
        let last = self.last_sign_of_timer().filter(|_| !self.hidden);
        last.is_some_and(|last| now.saturating_sub(last) > limits.period.saturating_add(limits.margin))
    }

    fn is_dark(&self, now: u64, sampler: &Sampler) -> bool {
        const SLACK_NS: u64 = 200_000_000;
        let longest = sampler.period.saturating_mul(2).saturating_add(SLACK_NS);
        self.sampled.is_none_or(|sampled| now.saturating_sub(sampled) > longest)
    }
}
