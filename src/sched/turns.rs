//! Turns of tasks on CPUs, whole: from switches, hidden ones too, from the clock where nothing is switched, and across new names
//! and losses.

use anyhow::Result;

use crate::host::online_cpus;
use crate::perf::evsel::Binding;
use crate::perf::{Attr, EventId, Evlist, Evsel, Record, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{Context, Event, Setup, Timestamp, Use};
use crate::sched::cpus::{Cpu, Cpus, SwitchIn, TurnBegin, USUAL_PRIO};
use crate::sched::events::{SWITCH, Switch, SwitchFields};
use crate::sched::history::CpuUse;
use crate::task::Comm;
use crate::tep::Filter;

/// Who is told of turns.
pub trait TurnUser {
    /// What is kept of a turn while it goes on.
    type Kept: Copy + Default;
    /// Priorities matter: that of a task which no switch has shown yet is asked of /proc.
    fn uses_priority(&self) -> bool {
        false
    }

    /// `of` has `cpu` from now on.
    fn begins(&mut self, of: CpuUse, cpu: u32, ctx: &mut Context) -> Self::Kept;

    /// A turn has ended, or a part of it.
    fn had(&mut self, turn: &CpuTurn<Self::Kept>) -> Use;
}

/// A time for which a task had a CPU, or for which the CPU was idle.
#[derive(Clone, Copy, Debug)]
pub struct CpuTurn<K> {
    pub cpu: u32,
    pub had_by: CpuUse,
    pub kept: K,
    /// From when on the task is known to have had the CPU without a break, maybe since before the interval.
    pub from_ns: u64,
    pub until_ns: u64,
    /// From a switch to the next one.
    pub is_whole: bool,
    /// The part of it of which the user was not told yet.
    pub part_ns: u64,
}

/// The turns on all CPUs.
#[derive(Debug, Default)]
pub struct CpuTurns<K> {
    /// None: not open yet.
    switch: Option<(EventId, SwitchFields)>,
    cpus: Cpus<K>,
    /// Up to when the user was told of what goes on.
    told_until: u64,
}

impl<K: Copy + Default> CpuTurns<K> {
    /// Adds the switches, and a clock that tells ten times a second whose a CPU is.
    ///
    /// # Errors
    /// There is no such event here, or it lacks a field; task numbers mean nothing in this namespace.
    pub fn open(&mut self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        /// Long enough to cost nothing, and short enough for the first interval.
        const CLOCK_NS: u64 = 100_000_000;
        setup.require_host_pids(
            "the scheduler's events carry the host's task numbers, which mean nothing in this pid namespace",
        )?;
        let (evsel, format) = setup.tracepoint(SWITCH)?;
        let switch = evlist.add(evsel.binding(Binding::Cpu))?;
        evlist.watch_idle(switch);
        evlist.add(Evsel::new("cpu-clock", Attr::timer(CLOCK_NS)).binding(Binding::Cpu))?;
        for cpu in online_cpus(setup.host)? {
            self.cpus.get_or_add(cpu, K::default);
        }
        self.switch = Some((switch, SwitchFields::of(&format)?));
        Ok(())
    }

    /// Leaves to the kernel the switches between other tasks than these. True: then the turns of others are not seen.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn narrow(&self, tasks: &TaskMatch<'_>, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<bool> {
        let Some((switch, _)) = self.switch.as_ref().filter(|_| !tasks.is_all()) else { return Ok(false) };
        let format = setup.format(SWITCH)?;
        let sides = [("prev_comm", "prev_pid"), ("next_comm", "next_pid")];
        let of_sides = sides.map(|(comm, pid)| tasks.filter(comm, pid, &format));
        let either = if of_sides.iter().all(Option::is_some) { Filter::any_of(of_sides) } else { None };
        let is_narrowed = either.is_some() && evlist.narrow(*switch, [either]);
        if !is_narrowed {
            note_too_long(setup);
        }
        Ok(is_narrowed)
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
        let begins = user.begins(next, cpu, ctx);
        let Some(known) = self.cpus.get_or_add(cpu, K::default) else { return Use::Ignored };
        let is_known = known.current().is_some();
        let begin = known.switched(at_ns, prev, next);
        let kept = std::mem::replace(&mut known.kept, begins);
        let (from_ns, is_whole) = match begin {
            TurnBegin::Seen(from) => (from, true),
            TurnBegin::Earlier(from) => (from, false),
            TurnBegin::Missed(..) | TurnBegin::Unknown => return Use::Relevant,
        };
        let kept = if is_known { kept } else { user.begins(prev, cpu, ctx) };
        user.had(&self.turn(cpu, prev, kept, [from_ns, at_ns], is_whole))
    }

    fn turn(&self, cpu: u32, had_by: CpuUse, kept: K, [from_ns, until_ns]: [u64; 2], is_whole: bool) -> CpuTurn<K> {
        let part_ns = until_ns.saturating_sub(from_ns.max(self.told_until));
        CpuTurn { cpu, had_by, kept, from_ns, until_ns, is_whole, part_ns }
    }

    /// Tells of what `cpu` is used for, up to `until`.
    fn tell_current<U: TurnUser<Kept = K>>(&self, cpu: u32, until: u64, user: &mut U) {
        if let Some(known) = self.cpus.get(cpu)
            && let Some(current) = known.current()
        {
            user.had(&self.turn(cpu, current, known.kept, [known.since(), until], false));
        }
    }

    /// An interval ends: tells of all turns that go on.
    pub fn tell_all<U: TurnUser<Kept = K>>(&mut self, now: Timestamp, user: &mut U) {
        self.cpus.iter().for_each(|(cpu, _)| self.tell_current(cpu, now, user));
        self.told_until = now;
    }

    /// The clock has found a task on its CPU.
    fn found<U: TurnUser<Kept = K>>(&mut self, sample: &Sample<'_>, ctx: &mut Context, user: &mut U) {
        let Sample { tid, time, cpu, .. } = *sample;
        if self.cpus.get(cpu).is_some_and(|cpu| cpu.current().is_some()) {
            return;
        }
        let asked = if user.uses_priority() { ctx.threads_from_proc(&[tid]) } else { Vec::new() };
        let prio = asked.first().map_or(USUAL_PRIO, |seen| seen.stat.priority);
        let current = CpuUse::of(tid, ctx.tasks.comm(tid), prio);
        let begins = user.begins(current, cpu, ctx);
        if let Some(cpu) = self.cpus.get_or_add(cpu, K::default)
            && cpu.saw_current(time, current).is_some()
        {
            cpu.kept = begins;
        }
    }

    /// The thread `old`, which has `cpu`, has a new name, or goes on under another number.
    fn becomes<U: TurnUser<Kept = K>>(
        &mut self,
        old: i32,
        (tid, comm): (i32, Comm),
        (at, cpu): (u64, u32),
        ctx: &mut Context,
        user: &mut U,
    ) {
        let current = self.cpus.get(cpu).and_then(Cpu::current);
        let Some(CpuUse::Task { prio, .. }) = current.filter(|current| current.tid() == Some(old)) else { return };
        self.tell_current(cpu, at, user);
        let current = CpuUse::of(tid, comm, prio);
        let begins = user.begins(current, cpu, ctx);
        if let Some(cpu) = self.cpus.get_or_add(cpu, K::default) {
            cpu.becomes(at, current);
            cpu.kept = begins;
        }
    }

    /// Takes what is rare.
    pub fn on<U: TurnUser<Kept = K>>(&mut self, event: &Event<'_>, ctx: &mut Context, user: &mut U) {
        match *event {
            Event::Started { now } => {
                self.cpus.started(now);
                self.told_until = ctx.started_ns;
            }
            Event::SwitchIn { tid, prev, time: at_ns, cpu } => {
                let switch_in = SwitchIn { tid, prev, at_ns, cpu };
                let hidden = self.cpus.get(cpu).and_then(|cpu| cpu.hidden_switch(switch_in, |tid| ctx.tasks.comm(tid)));
                if let Some(switch) = hidden {
                    self.switched(&switch, ctx, user);
                }
            }
            Event::Task { record: Record::Comm { tid, comm, .. }, time, cpu } => {
                self.becomes(*tid, (*tid, Comm::new(comm)), (time, cpu), ctx, user);
            }
            Event::TookOver { old, pid, time, cpu } => {
                let comm = ctx.tasks.comm(old);
                self.becomes(old, (pid, comm), (time, cpu), ctx, user);
            }
            Event::Lost(window, kinds) if self.switch.as_ref().is_some_and(|(switch, _)| kinds.include(&[*switch])) => {
                self.tell_current(window.cpu, window.start_ns, user);
                if let Some(cpu) = self.cpus.get_or_add(window.cpu, K::default) {
                    cpu.lost(window.end_ns);
                }
            }
            _ => {}
        }
    }
}
