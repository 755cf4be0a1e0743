//! Handles the samples for a table of the states of all tasks: it needs neither names nor stacks, and no period is
//! excluded.
//!
//! A busy machine has a million switches and wake-ups per second, so each step counts here: an event takes some 180
//! instructions, against 305 in `account`. The usual transition is tried first (`fast_path`).

use anyhow::Result;

use crate::perf::{EventId, Sample};
use crate::profiler::{Context, Handler, Samples, Use};
use crate::profilers::task_state::TaskState;
use crate::profilers::task_state::events::{SchedFields, TaskStateEvents};
use crate::profilers::task_state::notes::WaitNotes;
use crate::profilers::task_state::table::StateTimes;
use crate::sched::{Change, Cpus, SchedState, States, SwitchedOut, TaskEvent, TaskStates, Wakeup};
use crate::stats::{Began, LossHorizon};

/// The parts of the profiler that a plain table needs.
struct PlainSums<'a> {
    switch: EventId,
    states: &'a mut States,
    machine: &'a mut TaskStates<WaitNotes>,
    current: &'a mut Cpus<(), i32>,
    all: &'a mut StateTimes,
    /// See [`TaskState::horizon`].
    horizon: LossHorizon,
    /// See [`TaskState::reported_until`].
    reported_until: u64,
    /// Periods that were discarded because of `horizon`.
    unsure: u64,
}

impl TaskState {
    /// Counts the periods that end in `samples`.
    pub(super) fn aggregate(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        let TaskState { plan: Some(plan), machine, current, all, horizon, reported_until, .. } = self else { return };
        let TaskStateEvents { switch, fields, states, .. } = plan;
        let (horizon, reported_until) = (*horizon, *reported_until);
        let sums = PlainSums { switch: *switch, states, machine, current, all, horizon, reported_until, unsure: 0 };
        let mut plainly = PlainHandler { sums, fields };
        samples.each(&mut plainly, ctx);
        ctx.view.discarded += plainly.sums.unsure + machine.take_unseen();
    }
}

/// The sums, and the fields from which they are made.
struct PlainHandler<'a> {
    sums: PlainSums<'a>,
    fields: &'a SchedFields,
}

impl Handler for PlainHandler<'_> {
    #[inline(always)]
    fn sample(&mut self, event: EventId, sample: &Sample<'_>, _: &mut Context) -> Result<Use> {
        let PlainHandler { sums, fields } = self;
        let (at, cpu, raw) = (sample.time, sample.cpu, sample.raw);
        if event == sums.switch {
            let (prev, next) = (fields.prev_pid.read(raw)?, fields.next_pid.read(raw)?);
            return Ok(sums.switched(at, cpu, prev, fields.prev_state.read(raw)?, next));
        }
        if event == fields.wakeup.event {
            if !fields.wakeup.happened(raw) {
                return Ok(Use::Relevant); // as relevant as one that woke
            }
            return Ok(sums.woken(at, cpu, fields.wakeup.pid.read(raw)?));
        }
        match fields.wakeup_new.as_ref().filter(|woken| woken.event == event) {
            Some(woken) if woken.happened(raw) => Ok(sums.awakes(at, cpu, woken.pid.read(raw)?, true)),
            Some(_) => Ok(Use::Relevant),
            None => Ok(Use::Ignored),
        }
    }
}

impl PlainSums<'_> {
    #[inline(always)]
    fn switched(&mut self, at: u64, cpu: u32, prev: i32, prev_state: u64, next: i32) -> Use {
        let how = self.states.decode(prev_state);
        let leaves = match self.machine.fast_switched_out(prev, at, cpu, how) {
            Some(since) => self.sum(SchedState::RUNNING, since, at),
            None => self.leaves(at, cpu, prev, how),
        };
        self.cpu_switched(at, cpu, prev, next);
        let comes = match self.machine.fast_switched_in(next, at, cpu) {
            Some(since) => self.sum(SchedState::RUN_DELAY, since, at),
            None => self.comes(at, cpu, next, prev == 0),
        };
        if leaves || comes { Use::Relevant } else { Use::Ignored }
    }

    #[inline(always)]
    fn cpu_switched(&mut self, at: u64, cpu: u32, prev: i32, next: i32) {
        if let Some(believed) = self.current.switched(at, cpu, prev, next)
            && let Some(period) = self.machine.replaced(believed, prev, at, cpu)
        {
            self.sum_change(Change::Ended(period));
        }
    }

    #[inline(always)]
    fn woken(&mut self, at: u64, cpu: u32, tid: i32) -> Use {
        match self.machine.fast_woken(tid, at, cpu) {
            Some((state, since)) => {
                self.sum(state, since, at);
                Use::Relevant
            }
            None => self.awakes(at, cpu, tid, false),
        }
    }

    #[inline(never)]
    fn leaves(&mut self, at: u64, cpu: u32, tid: i32, how: SwitchedOut) -> bool {
        if tid < 0 {
            return false; // no task has this tid
        }
        let change = self.machine.switched_out(TaskEvent::unnamed(at, cpu, tid), how, WaitNotes::default());
        self.sum_change(change)
    }

    #[inline(never)]
    fn comes(&mut self, at: u64, cpu: u32, tid: i32, from_idle: bool) -> bool {
        if tid < 0 {
            return false;
        }
        let change = self.machine.switched_in(TaskEvent::unnamed(at, cpu, tid), from_idle);
        self.sum_change(change)
    }

    #[inline(never)]
    fn awakes(&mut self, at: u64, cpu: u32, tid: i32, is_new: bool) -> Use {
        if tid < 0 {
            return Use::Ignored;
        }
        let change = {
            let current = &self.current;
            self.machine
                .woken(TaskEvent::unnamed(at, cpu, tid), is_new, WaitNotes::default(), |cpu| current.is_other(cpu, tid))
        };
        if self.sum_change(change) { Use::Relevant } else { Use::Ignored }
    }

    /// Counts a period that began exactly at `since`.
    #[inline(always)]
    fn sum(&mut self, state: SchedState, since: u64, until: u64) -> bool {
        if !self.horizon.saw_all_since(since) {
            self.sum_unsure(state, since, until);
        } else {
            self.all.record(state, since, until, self.reported_until);
        }
        true
    }

    #[cold]
    fn sum_unsure(&mut self, state: SchedState, since: u64, until: u64) {
        self.unsure += 1;
        self.all.take_unseen(state, since, until, self.reported_until);
    }

    /// Counts the period that ended, if one did. False: the run is not about this task.
    fn sum_change(&mut self, change: Change<WaitNotes>) -> bool {
        if let Change::Ended(period) = &change
            && period.wakeup != Wakeup::Seen
            && self.horizon.saw_all_since(period.since)
        {
            self.all.note_unwoken(period.state, period.wakeup);
        }
        match change {
            Change::Ended(period) if period.began == Began::Exactly => {
                self.sum(period.state, period.since.min(period.until), period.until)
            }
            Change::Ended(period) => {
                if self.horizon.saw_all_since(period.since) {
                    self.all.take_up(period.state, period.since, period.until, self.reported_until);
                } else {
                    self.all.take_unseen(period.state, period.since, period.until, self.reported_until);
                }
                true
            }
            Change::Nothing | Change::Stale => true,
            Change::Hidden => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sched::Activity;
    use crate::sched::states_fixture::{NEW, sched_switch};
    use crate::task::Comm;

    /// Steps on a machine with few tasks and CPUs; also impossible ones, as they appear after losses.
    #[derive(Clone, Copy, Debug)]
    enum SchedStep {
        Switch { prev: i32, state: u64, next: i32 },
        Woken { tid: i32, is_new: bool },
        Found { tid: i32 },
        Exited { tid: i32 },
        Lost,
    }

    fn steps() -> impl Strategy<Value = Vec<(i64, u32, SchedStep)>> {
        let tid = || -1..6_i32; // 0 and 5 are hidden
        let switch = (tid(), prop::sample::select(&[0, 0, 1, 1, 2, 16, 64, 0x100][..]), tid());
        let step = prop_oneof![
            6 => switch.prop_map(|(prev, state, next)| SchedStep::Switch { prev, state, next }),
            4 => (tid(), prop::bool::weighted(0.1)).prop_map(|(tid, is_new)| SchedStep::Woken { tid, is_new }),
            1 => tid().prop_map(|tid| SchedStep::Found { tid }),
            1 => tid().prop_map(|tid| SchedStep::Exited { tid }),
            1 => Just(SchedStep::Lost),
        ];
        prop::collection::vec((-20..200_i64, 0..3_u32, step), 1..300)
    }

    /// Everything visible after the steps.
    fn outcome(steps: &[(i64, u32, SchedStep)], is_fast: bool) -> (Vec<String>, u64, u64) {
        let mut states = States::new(&sched_switch(NEW.0, NEW.1)).unwrap();
        let mut current = Cpus::default();
        let (mut machine, mut all) = (TaskStates::new(false), StateTimes::default());
        [0, 5].into_iter().for_each(|tid| machine.hide(tid));
        let (mut now, mut horizon, mut unsure, mut ignored) = (1_000_000_u64, LossHorizon::default(), 0, 0);
        let reported_until = now + 1_000;
        for &(later, cpu, step) in steps {
            now = now.saturating_add_signed(later);
            let (states, machine, current, all) = (&mut states, &mut machine, &mut current, &mut all);
            let mut sums = PlainSums {
                switch: EventId::default(),
                states,
                machine,
                current,
                all,
                horizon,
                reported_until,
                unsure: 0,
            };
            let used = match step {
                SchedStep::Switch { prev, state, next } if is_fast => sums.switched(now, cpu, prev, state, next),
                SchedStep::Switch { prev, state, next } => {
                    let how = sums.states.decode(state);
                    let leaves = sums.leaves(now, cpu, prev, how);
                    sums.cpu_switched(now, cpu, prev, next);
                    let comes = sums.comes(now, cpu, next, prev == 0);
                    if leaves || comes { Use::Relevant } else { Use::Ignored }
                }
                SchedStep::Woken { tid, is_new: false } if is_fast => sums.woken(now, cpu, tid),
                SchedStep::Woken { tid, is_new } => sums.awakes(now, cpu, tid, is_new),
                SchedStep::Found { tid } => {
                    let tid = tid.max(1);
                    sums.machine.found(
                        TaskEvent::unnamed(now, cpu, tid),
                        SchedState::SLEEP,
                        Began::BeforeStart,
                        WaitNotes::default(),
                    );
                    Use::Relevant
                }
                SchedStep::Exited { tid } => {
                    sums.machine.exited(tid);
                    Use::Relevant
                }
                SchedStep::Lost => {
                    horizon.lost_until(now);
                    Use::Relevant
                }
            };
            unsure += sums.unsure;
            ignored += u64::from(used == Use::Ignored);
        }
        let mut lines: Vec<String> = machine.iter().map(|(tid, task)| format!("{tid} {task:?}")).collect();
        lines.sort_unstable();
        assert!(machine.get_mut(0).is_none() && machine.get_mut(-1).is_none());
        assert!(!lines.iter().any(|line| line.contains("Hidden")));
        let sums =
            all.distributions.iter().map(|sum| format!("{:?} {:?}", sum.sum(), sum.buckets().collect::<Vec<_>>()));
        lines.extend(sums);
        lines.push(format!("{:?} {:?} {:?} {:?}", all.unwoken(), all.totals(), all.unseen, machine.unseen.time));
        (lines, unsure + machine.take_unseen(), ignored)
    }

    #[test]
    fn hidden_tasks_stay_hidden() {
        let mut machine = TaskStates::<()>::new(false);
        machine.hide(5);
        machine.exited(5);
        machine.forget(5);
        machine.renamed(5, Comm::new(b"other"));
        machine.discard(5);
        machine.executes(TaskEvent::unnamed(9, 0, 5));
        machine.expire(u64::MAX, |_| true);
        assert!(matches!(
            machine.switched_out(TaskEvent::unnamed(9, 0, 5), SwitchedOut::PREEMPTED, ()),
            Change::Hidden
        ));
        assert!(matches!(machine.switched_in(TaskEvent::unnamed(9, 0, 5), false), Change::Hidden));
        assert!(matches!(machine.woken(TaskEvent::unnamed(9, 0, 5), true, (), |_| false), Change::Hidden));
        assert_eq!(machine.iter().filter(|(_, task)| task.activity != Activity::Unknown).count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn the_fast_path_leads_where_the_long_one_does(steps in steps()) {
            prop_assert_eq!(outcome(&steps, true), outcome(&steps, false));
        }
    }
}
