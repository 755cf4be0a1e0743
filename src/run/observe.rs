//! The loop of a run: rounds through the rings, and the work between two rounds.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::outside;
use crate::profiler::Timestamp;
use crate::ringbuf::DrainLimit;
use crate::run::pace::Pace;
use crate::run::wake::WakeReasons;
use crate::run::weight::METERED_NS;
use crate::run::{EAGER, FOLLOW_UP, HOTPLUG, LATENCY, Run, SILENCE, StopReason, URGENT, live, messages};
use crate::sys;
use crate::sys::process::Workload;

/// The state that the loop keeps from round to round.
struct LoopClock {
    /// End of a run that lasts a given time.
    deadline_ns: Option<Timestamp>,
    /// The last round left records above the horizon.
    follows_up: bool,
    /// When CPUs, processes and tasks are next checked.
    next_look_ns: Timestamp,
    said_silence: bool,
}

impl LoopClock {
    fn is_over(&self, now: Timestamp) -> bool {
        self.deadline_ns.is_some_and(|deadline_ns| now >= deadline_ns)
    }
}

impl Run {
    /// Reads the rings until the run must end.
    pub(super) fn observe(&mut self) -> Result<StopReason> {
        let duration_ns = self.options.duration.map(|duration| duration.as_nanos() as u64);
        let mut clock = LoopClock {
            deadline_ns: duration_ns.map(|duration_ns| self.start_ns.saturating_add(duration_ns)),
            follows_up: false,
            next_look_ns: self.start_ns,
            said_silence: false,
        };
        loop {
            let WakeReasons { signalled, ticked, .. } = self.wait(self.timeout(&clock, sys::monotonic_ns()))?;
            self.interval.is_due |= ticked || self.missed_its_timer();
            self.wakeups += 1;
            let held = self.round(DrainLimit::Horizon);
            self.core.compare_counts(self.rings.complete_to());
            // One follow-up round delivers the records that were held back. In a flood further rounds are needed, since
            // a small ring would fill up in 100 ms.
            clock.follows_up = held && (!clock.follows_up || self.rings.is_backlogged());
            if self.core.has_enough() {
                return Ok(StopReason::Enough);
            }
            self.end_round();
            if signalled && let Some(stop) = self.take_signals()? {
                return Ok(stop);
            }
            self.report_if_due(&clock)?;
            if self.core.ctx.output.is_closed() {
                return Ok(StopReason::Closed);
            }
            let now = sys::monotonic_ns();
            if self.is_over(&clock, now) || self.look_around(&mut clock, now) {
                return Ok(StopReason::Asked);
            }
            self.say_silence(&mut clock, now);
        }
    }

    /// How long the loop may wait before the next round.
    fn timeout(&self, clock: &LoopClock, now: Timestamp) -> Duration {
        // The user waits for the first line: short rounds at first.
        let age = Duration::from_nanos(now - self.start_ns).max(EAGER);
        let mut timeout = if clock.follows_up { FOLLOW_UP } else { LATENCY.min(age) };
        if self.core.last_tick.is_urgent {
            timeout = timeout.min(URGENT);
        }
        if let Some(deadline_ns) = clock.deadline_ns {
            timeout = timeout.min(Duration::from_nanos(deadline_ns.saturating_sub(now)));
        }
        timeout
    }

    /// Sleeps until a ring reaches its watermark, a signal or timer fires, or the timeout expires.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<WakeReasons> {
        self.beat();
        let woken = self.wake.wait(timeout)?;
        if woken.ticked_quietly {
            self.quiet.tick();
        }
        self.beat();
        Ok(woken)
    }

    fn beat(&self) {
        self.pace.iter().for_each(Pace::beat);
    }

    /// The interval timer is late: the timer runs on the CPU where it was last read, which may be stuck.
    fn missed_its_timer(&self) -> bool {
        const SLACK: Duration = Duration::from_millis(150);
        let interval = self.options.interval.filter(|_| self.pace.is_some());
        let age = sys::monotonic_ns().saturating_sub(self.interval.start_ns);
        interval.is_some_and(|interval| Duration::from_nanos(age) > interval + SLACK)
    }

    pub(super) fn round(&mut self, limit: DrainLimit) -> bool {
        self.rings.round(limit, &mut self.core)
    }

    /// The work after the records of a round: hidden tasks, ticks of the profilers, output.
    fn end_round(&mut self) {
        self.core.judge_idle(sys::monotonic_ns());
        self.core.tick(self.rings.complete_to());
        self.interval.is_due |= self.core.last_tick.wants_report;
        self.window_pace.check(&mut self.core, sys::monotonic_ns());
        if let Some(pace) = &mut self.pace {
            pace.avoid(&self.core.last_tick.suspects);
        }
        self.core.ctx.output.flush_round(sys::monotonic_ns());
        self.core.ctx.output.report_standstill(&self.options.name);
        self.precede_others();
    }

    /// After a loss, gives the reading thread priority: while it waits for a CPU, full rings lose more records.
    fn precede_others(&mut self) {
        if !self.precedes && self.core.loss.total() > 0 {
            self.precedes = true;
            if sys::precede_others() {
                self.core.ctx.output.note(messages::PRECEDES.to_owned());
            }
        }
    }

    /// Closes an interval that has ended, once the output has room for its report.
    fn report_if_due(&mut self, clock: &LoopClock) -> Result<()> {
        // An interval that ends together with the run is closed by `finish`.
        let ends_soon = clock.is_over(sys::monotonic_ns().saturating_add(self.short_ns()));
        if (self.interval.is_due || self.quiet.is_due) && !ends_soon && self.core.ctx.output.has_room_for_report() {
            self.report()?;
        }
        Ok(())
    }

    /// Length of an interval that is too short for a report of its own.
    pub(super) fn short_ns(&self) -> u64 {
        self.options.interval.map_or(0, |interval| interval.as_nanos() as u64 / 20)
    }

    /// The time of the run is over, or no watched task lives any more.
    fn is_over(&mut self, clock: &LoopClock, now: Timestamp) -> bool {
        let mut is_over = self.core.ctx.watched.is_over();
        if is_over || now >= clock.next_look_ns {
            self.follow_names(now);
            let is_named = !self.options.names.is_empty();
            is_over = self.core.ctx.watched.is_over() && !(is_named && self.targets.may_be_succeeded(now));
        }
        is_over || clock.is_over(now)
    }

    /// Checks CPUs, tasks and BPF programs of other tools, if it is time. True: the workload has ended.
    fn look_around(&mut self, clock: &mut LoopClock, now: Timestamp) -> bool {
        if now < clock.next_look_ns {
            return false;
        }
        clock.next_look_ns = now + HOTPLUG.as_nanos() as u64;
        self.rings.follow_hotplug(&mut self.core, &self.options.target, &self.host, &self.wake.poller);
        let notes = self.rings.take_notes().into_iter().chain(outside::take_notes());
        notes.for_each(|note| self.core.ctx.output.note(note));
        self.look_for_onlookers();
        self.weigh(now).into_iter().for_each(|line| self.core.ctx.output.note(line));
        if self.scales.is_metering() {
            clock.next_look_ns = now + METERED_NS;
        }
        self.core.idle.retest(&mut self.core.evlist, &self.host);
        self.core.check_tasks(now);
        self.core.expire(now);
        self.tell_ended();
        self.workload.as_mut().is_some_and(Workload::ended)
    }

    /// Says once what the run waits for, if no sample has come for `SILENCE`.
    fn say_silence(&mut self, clock: &mut LoopClock, now: Timestamp) {
        if !clock.said_silence
            && self.core.samples() == 0
            && !self.core.ctx.output.has_shown()
            && self.core.evlist.evsels.any_samples()
            && now - self.start_ns > SILENCE.as_nanos() as u64
        {
            clock.said_silence = true;
            let line = messages::waiting_for(&self.options.name, &self.core.evlist);
            self.core.ctx.output.note(line);
        }
    }

    pub(super) fn take_signals(&mut self) -> Result<Option<StopReason>> {
        while let Some(signal) = self.wake.take_signal() {
            match signal {
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP => {
                    self.told_to_end = true;
                    return Ok(Some(StopReason::Asked));
                }
                Signal::SIGUSR1 => {
                    self.interval.is_due = true;
                    self.reports.snapshots.ask();
                }
                Signal::SIGUSR2 => self.tell_own_cost(),
                Signal::SIGTSTP | Signal::SIGCONT | Signal::SIGWINCH => live::obey(signal, &self.core.ctx.output),
                _ => {
                    if self.workload.as_mut().is_some_and(Workload::ended) {
                        return Ok(Some(StopReason::Asked));
                    }
                }
            }
        }
        Ok(None)
    }
}
