//! The events that show what threads do during a call: switches and wake-ups, on whole CPUs.

use anyhow::{Context as _, Result};

use crate::calls::where_time::CallClocks;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::{EventId, Sample};
use crate::profiler::filters::{TaskMatch, note_too_long};
use crate::profiler::{Context, Setup};
use crate::sched::{SWITCH, States, TaskEvent};
use crate::tep::{Field, Filter, Int32, drift};

/// Kernel frames that are enough to show where a thread waits.
const DEPTH: u16 = 24;

/// The open events, and their fields.
#[derive(Debug)]
pub struct SchedEvents {
    switch: EventId,
    /// The switches recorded with a stack: into D state, with `-g` into any sleep.
    with_stack: EventId,
    /// `sched_waking` and `sched_wakeup`.
    woken: [Option<(EventId, Int32)>; 2],
    prev_pid: Int32,
    next_pid: Int32,
    prev_state: Field,
    states: States,
    /// Stacks include the user part.
    whole_stacks: bool,
}

impl SchedEvents {
    /// # Errors
    /// There are no such events here, or they lack a field.
    pub fn open(whole_stacks: bool, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<SchedEvents> {
        setup.require_host_pids(
            "where the time goes is told by the scheduler, whose task numbers mean nothing in this pid namespace",
        )?;
        let (evsel, format) = setup.tracepoint(SWITCH)?;
        let switch = evlist.add(evsel.binding(Binding::Cpu))?;
        let evsel = setup.tracepoint(SWITCH)?.0.binding(Binding::Cpu);
        let with_stack = evlist.add(if whole_stacks { evsel.callchain(0) } else { evsel.kernel_place(DEPTH) })?;
        let woken = |evlist: &mut Evlist, name: &str| -> Result<(EventId, Int32)> {
            let (evsel, format) = setup.tracepoint(name)?;
            Ok((evlist.add(evsel.binding(Binding::Cpu))?, drift::require(&format, "pid")?.int32()?))
        };
        // sched_waking comes when a waker begins, sched_wakeup when the task is runnable; kernels before 4.3 lack
        // sched_waking.
        let waking = woken(evlist, "sched:sched_waking").ok();
        let woken = [waking, Some(woken(evlist, "sched:sched_wakeup")?)];
        let states = States::new(&format).context("sched:sched_switch does not tell the task states")?;
        let pid = |name| -> Result<Int32> { Ok(drift::require(&format, name)?.int32()?) };
        let (prev_pid, next_pid) = (pid("prev_pid")?, pid("next_pid")?);
        let prev_state = drift::require(&format, "prev_state")?.clone();
        evlist.watch_idle(switch);
        Ok(SchedEvents { switch, with_stack, woken, prev_pid, next_pid, prev_state, states, whole_stacks })
    }

    /// Has the kernel drop the events of other tasks.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn filter(&self, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<()> {
        let tasks = TaskMatch::new(None, setup);
        let switch = setup.format(SWITCH)?;
        let letters = if self.whole_stacks { &["D", "S"][..] } else { &["D"] };
        let stacks = letters.iter().filter_map(|letter| self.states.bit(letter)).fold(0, |bits, bit| bits | bit);
        let waits = Filter::parse(&format!("prev_state & {stacks}"), &switch).ok();
        let others = waits.clone().map(Filter::negated);
        let of_tasks = [("prev_comm", "prev_pid"), ("next_comm", "next_pid")];
        let either = Filter::any_of(of_tasks.map(|(comm, pid)| tasks.filter(comm, pid, &switch)));
        let narrowed = [(self.with_stack, waits), (self.switch, others)];
        let mut is_short = true;
        for (event, states) in narrowed {
            let full = Filter::all_of([states.clone(), either.clone()]);
            is_short &= full.as_ref().is_some_and(Filter::is_short);
            evlist.narrow(event, [full, states]);
        }
        for (event, _) in self.woken.iter().flatten() {
            let format = setup.format_of(evlist.evsel(*event))?;
            evlist.narrow(*event, [tasks.filter("comm", "pid", &format)]);
        }
        if !tasks.is_all() && !is_short {
            note_too_long(setup);
        }
        Ok(())
    }

    /// Handles a sample of one of these events. False: the sample is of another event.
    ///
    /// # Errors
    /// The record ends before its fields do.
    #[inline]
    pub fn sample(
        &mut self,
        event: EventId,
        sample: &Sample<'_>,
        clocks: &mut CallClocks,
        ctx: &mut Context,
    ) -> Result<bool> {
        let raw = sample.raw;
        let seen = |tid| TaskEvent::unnamed(sample.time, sample.cpu, tid);
        if event == self.switch || event == self.with_stack {
            let how = self.states.decode(self.prev_state.read_u64(raw)?);
            let stack = || match (event == self.with_stack, self.whole_stacks) {
                (false, _) => None,
                (true, true) => ctx.stack(sample),
                (true, false) => ctx.kernel_place(sample),
            };
            clocks.left(seen(self.prev_pid.read(raw)?), how, stack);
            clocks.came(seen(self.next_pid.read(raw)?));
            return Ok(true);
        }
        for (woken, is_waking) in self.woken.iter().zip([true, false]) {
            if let Some((_, pid)) = woken.filter(|(other, _)| *other == event) {
                clocks.woken(seen(pid.read(raw)?), is_waking);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
