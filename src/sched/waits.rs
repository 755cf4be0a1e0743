//! Whole waits of tasks for a CPU: from all scheduler events, including hidden switches, and across losses.

use anyhow::Result;

use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::filters::TaskMatch;
use crate::profiler::{Context, Event, Setup, Timestamp, Use};
use crate::sched::cpus::{Switch, SwitchIn};
use crate::sched::events::{RunnableStacks, SchedRecord, SchedulerEvents};
use crate::sched::history::CpuUse;
use crate::sched::model::{EndedWait, SchedModel};
use crate::sched::states::SwitchedOut;
use crate::task::Comm;

/// The consumer of waits.
pub trait WaitUser {
    /// The value that is kept for a wait while it goes on.
    type Kept: Copy + Default;

    /// Whether the run is about this task.
    fn asks_for(&self, tid: i32, comm: &Comm, ctx: &Context) -> bool;

    /// A wait begins.
    fn begins(&self, _since_ns: u64) -> Self::Kept {
        Self::Kept::default()
    }

    /// Whether the stacks of preempted and yielding tasks are wanted.
    fn takes_stacks(&self) -> bool {
        false
    }

    /// A task that the run is about got its CPU, after this wait.
    fn waited(&mut self, wait: &EndedWait<Self::Kept>, model: &SchedModel<Self::Kept>, ctx: &mut Context) -> Use;

    /// A task that the run is about got its CPU, and no wait for it was seen.
    fn came(&mut self, _tid: i32) {}

    /// Some task goes from one CPU to another.
    fn migrated(&mut self, _migration: Migration, _sample: &Sample<'_>, _ctx: &mut Context) -> Use {
        Use::Ignored
    }
}

/// A task goes to another CPU.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub tid: i32,
    pub from: u32,
    pub to: u32,
}

/// The waits of all tasks.
#[derive(Debug, Default)]
pub struct TaskWaits<K = ()> {
    /// None: not open yet.
    events: Option<SchedulerEvents>,
    pub model: SchedModel<K>,
}

impl<K: Copy + Default> TaskWaits<K> {
    /// Keeps this many of the latest switches of each CPU.
    pub fn new(history_limit: usize) -> TaskWaits<K> {
        TaskWaits { events: None, model: SchedModel::new(history_limit) }
    }

    /// Adds the events. `of_migrations`: migrations are recorded with stacks.
    ///
    /// # Errors
    /// There is no such event here, or it lacks a field; task numbers mean nothing in this namespace.
    pub fn open(
        &mut self,
        stacks: RunnableStacks,
        of_migrations: bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        setup.require_scheduler_pids()?;
        let events = SchedulerEvents::open(stacks, of_migrations, evlist, setup)?;
        evlist.watch_idle(events.switch);
        self.events = Some(events);
        Ok(())
    }

    /// Whether yields can be distinguished from preemptions.
    pub fn tells_yields(&self) -> bool {
        self.events.as_ref().is_some_and(SchedulerEvents::tells_yields)
    }

    /// See [`SchedulerEvents::narrow`].
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn narrow(
        &self,
        tasks: &TaskMatch<'_>,
        without_queues: bool,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        self.events.as_ref().map_or(Ok(()), |events| events.narrow(tasks, without_queues, evlist, setup))
    }

    /// # Errors
    /// The record ends before its fields do.
    #[inline(always)]
    pub fn sample<U: WaitUser<Kept = K>>(
        &mut self,
        event: EventId,
        sample: &Sample<'_>,
        ctx: &mut Context,
        user: &mut U,
    ) -> Result<Use> {
        let Some(events) = &mut self.events else { return Ok(Use::Ignored) };
        let used = match events.read(event, sample)? {
            SchedRecord::Switch(switch) => {
                let how = events.left(&switch, sample);
                self.switched(&switch, Some((how, sample)), ctx, user)
            }
            SchedRecord::Migrated { tid, from, to } => {
                self.model.migrated(sample.time, tid, to);
                user.migrated(Migration { tid, from, to }, sample, ctx)
            }
            SchedRecord::Waking(seen) => {
                self.model.waking(seen);
                Use::Ignored
            }
            SchedRecord::Woken { seen, is_new } => {
                let is_ours = user.asks_for(seen.tid, &seen.comm, ctx);
                self.model.woken(seen, is_new, is_ours, user.begins(seen.at_ns));
                Use::Ignored
            }
            SchedRecord::Nothing => Use::Ignored,
        };
        ctx.view.discarded += self.model.take_discarded();
        Ok(used)
    }

    /// `left`: how the previous task left its CPU, and the sample that shows it.
    #[inline(always)]
    fn switched<U: WaitUser<Kept = K>>(
        &mut self,
        switch: &Switch,
        left: Option<(SwitchedOut, &Sample<'_>)>,
        ctx: &mut Context,
        user: &mut U,
    ) -> Use {
        // No `map` over the two: it is not inlined, and takes 5 % of the time of an event.
        let is_asked = |side: &CpuUse| match side {
            CpuUse::Task { tid, comm, .. } => user.asks_for(*tid, comm, ctx),
            CpuUse::Idle | CpuUse::Unseen => false,
        };
        let is_ours = [is_asked(&switch.prev), is_asked(&switch.next)];
        let left = left.map(|(how, sample)| {
            let takes_stack = is_ours[0] && matches!(how, SwitchedOut::Runnable { .. }) && user.takes_stacks();
            (how, if takes_stack { ctx.stack(sample) } else { None }, user.begins(switch.at_ns))
        });
        match self.model.switched(switch, is_ours, left) {
            Some(ended) if is_ours[1] => user.waited(&ended, &self.model, ctx),
            None if is_ours[1] => {
                user.came(switch.next.tid().unwrap_or(0));
                Use::Ignored
            }
            _ => Use::Ignored,
        }
    }

    /// Handles the rare events.
    pub fn on<U: WaitUser<Kept = K>>(&mut self, event: &Event<'_>, ctx: &mut Context, user: &mut U) {
        let Some(events) = &self.events else { return };
        self.model.on(event, &events.switches());
        if let Event::SwitchIn { tid, prev, time: at_ns, cpu } = *event {
            let switch_in = SwitchIn { tid, prev, at_ns, cpu };
            // A SWITCH record is new information only where the sample of the switch was not seen.
            if let Some(switch) = self.model.hidden_switch(switch_in, |tid| ctx.tasks.comm(tid)) {
                self.switched(&switch, None, ctx, user);
            }
        }
    }

    /// Once per second at most, passes over all tasks. True if it did.
    pub fn sweep(&mut self, now: Timestamp, ctx: &mut Context) -> bool {
        let is_swept = self.model.sweep(now, ctx);
        ctx.view.discarded += self.model.take_discarded();
        is_swept
    }
}
