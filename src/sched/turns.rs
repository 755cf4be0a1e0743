//! Whole turns of tasks on CPUs: from switches, including hidden ones, from a clock on CPUs without switches, and
//! across new names and losses.

use anyhow::Result;

use crate::perf::evsel::Binding;
use crate::perf::{Attr, EventId, Evlist, Evsel, Record, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{Context, Event, RunScope, Setup, Timestamp, Use};
use crate::sched::cpus::{Cpus, Switch, SwitchIn, TurnBegin, USUAL_PRIO};
use crate::sched::events::{SWITCH, SwitchFields};
use crate::sched::history::CpuUse;
use crate::sys;
use crate::task::Comm;
use crate::tep::Filter;

/// The consumer of turns.
pub trait TurnUser {
    /// The value that is kept for a turn while it goes on.
    type Kept: Copy + Default;

    /// Priorities are used: before a switch has shown the priority of a task, the kernel is asked for it.
    fn uses_priority(&self) -> bool {
        false
    }

    /// Whether a turn with this value counts as missed if a switch was hidden, also where the turns of other tasks are
    /// not seen.
    fn is_wanted(&self, kept: &Self::Kept) -> bool;

    /// The turn of `of` on `cpu` begins.
    fn begins(&mut self, of: CpuUse, cpu: u32, ctx: &mut Context) -> Self::Kept;

    /// A turn, or a part of a turn, has ended.
    fn had(&mut self, turn: &CpuTurn<Self::Kept>) -> Use;
}

/// A time for which a task had a CPU, or for which the CPU was idle.
#[derive(Clone, Copy, Debug)]
pub struct CpuTurn<K> {
    pub cpu: u32,
    pub had_by: CpuUse,
    pub kept: K,
    /// From when on the task is known to have had the CPU without a break; may be before the interval.
    pub from_ns: u64,
    pub until_ns: u64,
    /// The turn is known from one switch to the next.
    pub is_whole: bool,
    /// The part of the turn that has not been reported yet.
    pub part_ns: u64,
}

/// The turns on all CPUs.
#[derive(Debug, Default)]
pub struct CpuTurns<K> {
    /// None: not open yet.
    switch: Option<(EventId, SwitchFields)>,
    cpus: Cpus<TurnState<K>>,
    /// Selects the CPUs whose switches are seen.
    scope: RunScope,
    /// Up to when turns that go on were reported.
    told_until: u64,
    /// The turns of unselected tasks are not seen.
    is_narrowed: bool,
    /// CPUs on which a switch was hidden.
    missed_on: Vec<u32>,
}

/// What is kept of each CPU.
#[derive(Clone, Copy, Debug, Default)]
struct TurnState<K> {
    own: K,
    /// When the task was last seen on its CPU.
    seen_ns: u64,
}

impl<K: Copy + Default> CpuTurns<K> {
    /// Adds the switch event, and a clock that samples the current task of each CPU ten times per second.
    ///
    /// # Errors
    /// There is no such event here, or it lacks a field; task numbers mean nothing in this namespace.
    pub fn open(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        /// Rare enough to cost nothing, and short enough for the first interval.
        const CLOCK_NS: u64 = 100_000_000;
        setup.require_scheduler_pids()?;
        let (evsel, format) = setup.tracepoint(SWITCH)?;
        self.scope = setup.scope.clone();
        let cpus = setup.scope.cpus();
        let switch = evlist.add(evsel.binding(Binding::Cpu).cpus(cpus.clone()))?;
        evlist.watch_idle(switch);
        evlist.add(Evsel::new("cpu-clock", Attr::timer(CLOCK_NS)).binding(Binding::Cpu).cpus(cpus))?;
        self.switch = Some((switch, SwitchFields::of(&format)?));
        Ok(())
    }

    /// Has the kernel drop switches between two unselected tasks. True: turns of unselected tasks are then not seen.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn narrow(&mut self, tasks: &TaskMatch<'_>, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<bool> {
        let Some((switch, _)) = self.switch.as_ref().filter(|_| !tasks.is_all()) else { return Ok(false) };
        let format = setup.format(SWITCH)?;
        let sides = [("prev_comm", "prev_pid"), ("next_comm", "next_pid")];
        let of_sides = sides.map(|(comm, pid)| tasks.filter(comm, pid, &format));
        let either = if of_sides.iter().all(Option::is_some) { Filter::any_of(of_sides) } else { None };
        self.is_narrowed = either.is_some() && evlist.narrow(*switch, [either]);
        if !self.is_narrowed {
            note_too_long(setup);
        }
        Ok(self.is_narrowed)
    }

    /// # Errors
    /// The record ends before its fields do.
    #[inline]
    pub fn sample<U: TurnUser<Kept = K>>(
        &mut self,
        event: EventId,
        sample: &Sample<'_>,
        ctx: &mut Context,
        user: &mut U,
    ) -> Result<Use> {
        match &self.switch {
            Some((switch, fields)) if *switch == event => {
                let switch = fields.read(sample)?;
                Ok(self.switched(&switch, ctx, user))
            }
            _ => {
                self.found(sample, ctx, user);
                Ok(Use::Ignored)
            }
        }
    }

    #[inline]
    fn switched<U: TurnUser<Kept = K>>(&mut self, switch: &Switch, ctx: &mut Context, user: &mut U) -> Use {
        let Switch { at_ns, cpu, prev, next, .. } = *switch;
        let begins = TurnState { own: user.begins(next, cpu, ctx), seen_ns: at_ns };
        let Some(known) = self.cpus.get_or_add(cpu, TurnState::default) else { return Use::Ignored };
        let believed = known.current();
        let begin = known.switched(at_ns, prev, next);
        let kept = std::mem::replace(&mut known.kept, begins).own;
        let (from_ns, is_whole) = match begin {
            TurnBegin::Seen(from) => (from, true),
            TurnBegin::Earlier(from) => (from, false),
            TurnBegin::Missed(..) => return self.missed(cpu, kept, ctx, user),
            TurnBegin::Unknown => return Use::Relevant,
        };
        // A task is shown with the name and priority with which it leaves the CPU.
        let kept = if believed == Some(prev) { kept } else { user.begins(prev, cpu, ctx) };
        user.had(&self.turn(cpu, prev, kept, [from_ns, at_ns], is_whole))
    }

    /// Another task was seen on `cpu` than was believed to run there: a switch was hidden.
    #[cold]
    fn missed<U: TurnUser<Kept = K>>(&mut self, cpu: u32, kept: K, ctx: &mut Context, user: &U) -> Use {
        const LIMIT: usize = 64; // it is emptied at each tick
        if self.is_narrowed && !user.is_wanted(&kept) {
            return Use::Ignored;
        }
        ctx.view.discarded += 1;
        if self.missed_on.len() < LIMIT && !self.missed_on.contains(&cpu) {
            self.missed_on.push(cpu);
        }
        Use::Relevant
    }

    /// CPUs on which a switch was hidden, since the last call.
    pub fn take_missed_on(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.missed_on)
    }

    fn turn(&self, cpu: u32, had_by: CpuUse, kept: K, [from_ns, until_ns]: [u64; 2], is_whole: bool) -> CpuTurn<K> {
        let part_ns = until_ns.saturating_sub(from_ns.max(self.told_until));
        CpuTurn { cpu, had_by, kept, from_ns, until_ns, is_whole, part_ns }
    }

    /// Reports the current use of `cpu`, up to `until`.
    fn tell_current<U: TurnUser<Kept = K>>(&self, cpu: u32, until: u64, user: &mut U) {
        if let Some(known) = self.cpus.get(cpu)
            && let Some(current) = known.current()
        {
            user.had(&self.turn(cpu, current, known.kept.own, [known.since(), until], false));
        }
    }

    /// An interval ends: reports all turns that go on.
    pub fn tell_all<U: TurnUser<Kept = K>>(&mut self, now: Timestamp, user: &mut U) {
        /// The clock samples every running task ten times per second: a CPU without such samples is offline, or its
        /// host does not run it.
        const SEEN_NS: u64 = 500_000_000;
        let numbers = 0..self.cpus.iter().count() as u32;
        for cpu in numbers {
            let Some(known) = self.cpus.get_or_add(cpu, TurnState::default) else { continue };
            let seen_ns = known.kept.seen_ns;
            let is_gone = known.current() != Some(CpuUse::Idle) && seen_ns.saturating_add(SEEN_NS) < now;
            self.tell_current(cpu, if is_gone { seen_ns } else { now }, user);
            if is_gone && let Some(known) = self.cpus.get_or_add(cpu, TurnState::default) {
                known.lost(seen_ns.max(known.since().saturating_add(1)));
            }
        }
        self.told_until = now;
    }

    /// The clock has sampled the current task of a CPU.
    fn found<U: TurnUser<Kept = K>>(&mut self, sample: &Sample<'_>, ctx: &mut Context, user: &mut U) {
        let Sample { tid, time, cpu, .. } = *sample;
        let Some(known) = self.cpus.get_or_add(cpu, TurnState::default) else { return };
        known.kept.seen_ns = known.kept.seen_ns.max(time);
        let believed = known.current_tid();
        if believed == Some(tid) || time < known.since() {
            return;
        }
        let kept = known.kept.own;
        let current = CpuUse::of(tid, ctx.tasks.comm(tid), priority(tid, user));
        let own = user.begins(current, cpu, ctx);
        if believed.is_some() {
            self.missed(cpu, kept, ctx, user);
        }
        let Some(known) = self.cpus.get_or_add(cpu, TurnState::default) else { return };
        match believed {
            Some(_) => known.becomes(time, current),
            None => {
                known.saw_current(time, current);
            }
        }
        known.kept.own = own;
    }

    /// The thread `tid`, which has `cpu`, has a new name, or the new tid `new`.
    fn becomes<U: TurnUser<Kept = K>>(
        &mut self,
        tid: i32,
        (new, comm): (i32, Comm),
        (at, cpu): (u64, u32),
        ctx: &mut Context,
        user: &mut U,
    ) {
        let known = self.cpus.get(cpu).and_then(|known| Some((known.current()?, known.kept.own)));
        let prio = match known {
            Some((CpuUse::Task { tid: known, prio, .. }, _)) if known == tid => {
                self.tell_current(cpu, at, user);
                prio
            }
            Some((_, kept)) => {
                self.missed(cpu, kept, ctx, user);
                priority(tid, user)
            }
            None => priority(tid, user),
        };
        let current = CpuUse::of(new, comm, prio);
        let kept = TurnState { own: user.begins(current, cpu, ctx), seen_ns: at };
        if let Some(cpu) = self.cpus.get_or_add(cpu, TurnState::default) {
            cpu.becomes(at, current);
            cpu.kept = kept;
        }
    }

    /// Handles the rare events.
    pub fn on<U: TurnUser<Kept = K>>(&mut self, event: &Event<'_>, ctx: &mut Context, user: &mut U) {
        // Records of names and SWITCH records come from all CPUs.
        if let Event::SwitchIn { cpu, .. } | Event::Task { cpu, .. } | Event::TookOver { cpu, .. } = event
            && !self.scope.has_cpu(*cpu)
        {
            return;
        }
        match *event {
            Event::Started { now } => {
                self.cpus.started(now);
                self.told_until = ctx.started_ns;
            }
            Event::SwitchIn { tid, prev, time: at_ns, cpu } => {
                let switch_in = SwitchIn { tid, prev, at_ns, cpu };
                let known = self.cpus.get_or_add(cpu, TurnState::default);
                if let Some(mut switch) = known.and_then(|cpu| cpu.hidden_switch(switch_in, |tid| ctx.tasks.comm(tid)))
                {
                    if let CpuUse::Task { prio, .. } = &mut switch.next {
                        *prio = priority(tid, user);
                    }
                    self.switched(&switch, ctx, user);
                }
            }
            // A task that executes a program has the CPU. Other records of names may be about a task that has none.
            Event::Task { record: Record::Comm { tid, comm, exec, .. }, time, cpu }
                if *exec || self.cpus.get(cpu).is_some_and(|cpu| cpu.current_tid() == Some(*tid)) =>
            {
                self.becomes(*tid, (*tid, Comm::new(comm)), (time, cpu), ctx, user);
            }
            Event::TookOver { old, pid, time, cpu } => {
                let comm = ctx.tasks.comm(old);
                self.becomes(old, (pid, comm), (time, cpu), ctx, user);
            }
            Event::Lost(window, kinds) if self.switch.as_ref().is_some_and(|(switch, _)| kinds.include(&[*switch])) => {
                self.tell_current(window.cpu, window.start_ns, user);
                if let Some(cpu) = self.cpus.get_or_add(window.cpu, TurnState::default) {
                    cpu.lost(window.end_ns);
                }
            }
            _ => {}
        }
    }
}

/// The priority of a task that no switch has shown yet.
fn priority<U: TurnUser>(tid: i32, user: &U) -> i32 {
    let asked = if user.uses_priority() { sys::scheduling_priority(tid) } else { None };
    asked.unwrap_or(USUAL_PRIO)
}
