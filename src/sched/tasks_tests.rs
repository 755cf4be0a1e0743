use std::ops::{Deref, DerefMut};

use super::*;
use crate::sched::cpus::Cpus;

const D: SwitchedOut = SwitchedOut::Blocked(SchedState::DISK);
const S: SwitchedOut = SwitchedOut::Blocked(SchedState::SLEEP);

/// The tasks, and the current task of each CPU.
struct FollowedTasks {
    states: TaskStates<()>,
    current: Cpus<(), i32>,
}

impl FollowedTasks {
    fn new(blocked_only: bool) -> FollowedTasks {
        FollowedTasks { states: TaskStates::new(blocked_only), current: Cpus::default() }
    }

    fn cpu_switched(&mut self, at: u64, cpu: u32, prev: i32, next: i32) -> Option<i32> {
        self.current.switched(at, cpu, prev, next)
    }

    fn has_come(&self, cpu: u32, tid: i32) -> bool {
        self.current.has_come(cpu, tid)
    }

    fn woken(&mut self, seen: TaskEvent, is_new: bool) -> Change<()> {
        let current = &self.current;
        self.states.woken(seen, is_new, (), |cpu| current.is_other(cpu, seen.tid))
    }
}

impl Deref for FollowedTasks {
    type Target = TaskStates<()>;

    fn deref(&self) -> &TaskStates<()> {
        &self.states
    }
}

impl DerefMut for FollowedTasks {
    fn deref_mut(&mut self) -> &mut TaskStates<()> {
        &mut self.states
    }
}

fn seen(at: u64, cpu: u32, tid: i32) -> TaskEvent {
    TaskEvent { at_ns: at, cpu, tid, comm: Comm::new(b"t") }
}

fn brief(change: Change<()>) -> Brief {
    change.ended().map(|period| (period.state, period.until - period.since))
}

type Brief = Option<(SchedState, u64)>;

fn switch(machine: &mut FollowedTasks, at: u64, cpu: u32, prev: i32, how: SwitchedOut, next: i32) -> (Brief, Brief) {
    let out = if prev > 0 { brief(machine.switched_out(seen(at, cpu, prev), how, ())) } else { None };
    if let Some(believed) = machine.cpu_switched(at, cpu, prev, next) {
        assert!(machine.replaced(believed, prev, at, cpu).is_none());
    }
    let into = if next > 0 { brief(machine.switched_in(seen(at, cpu, next), prev == 0)) } else { None };
    (out, into)
}

#[test]
fn the_worked_example() {
    let mut machine = FollowedTasks::new(false);
    assert_eq!(switch(&mut machine, 0, 0, 0, S, 7), (None, None));
    assert_eq!(switch(&mut machine, 10, 0, 7, S, 0), (Some((SchedState::RUNNING, 10)), None));
    assert_eq!(brief(machine.woken(seen(30, 0, 7), false)), Some((SchedState::SLEEP, 20)));
    assert_eq!(switch(&mut machine, 31, 0, 0, S, 7), (None, Some((SchedState::RUN_DELAY, 1))));
    assert_eq!(switch(&mut machine, 40, 0, 7, SwitchedOut::PREEMPTED, 8), (Some((SchedState::RUNNING, 9)), None));
    assert_eq!(
        switch(&mut machine, 45, 0, 8, S, 7),
        (Some((SchedState::RUNNING, 5)), Some((SchedState::RUN_DELAY, 5)))
    );
    assert_eq!(switch(&mut machine, 50, 0, 7, SwitchedOut::Dead, 0), (Some((SchedState::RUNNING, 5)), None));
    assert_eq!(machine.iter().count(), 1, "the dead one is forgotten");
    assert_eq!(machine.take_unseen(), 0);
}

#[test]
fn a_task_switched_out_unseen_is_no_long_run_delay() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    // 7 was switched out unseen: 8 leaves a CPU on which 7 was believed to run.
    switch(&mut machine, 1_000, 0, 8, S, 9);
    assert_eq!(brief(machine.woken(seen(2_000, 0, 7), false)), None);
    assert_eq!(switch(&mut machine, 2_001, 0, 9, S, 7).1, Some((SchedState::RUN_DELAY, 1)));
    assert_eq!(machine.take_unseen(), 1);
}

#[test]
fn a_wakeup_tells_that_a_running_task_does_not_run() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    assert_eq!(machine.cpu_switched(5, 0, 7, 9), None); // the switch-out of 7 was not visible to this profiler
    assert_eq!(brief(machine.woken(seen(2_000, 1, 7), false)), None);
    assert_eq!(switch(&mut machine, 2_003, 1, 0, S, 7).1, Some((SchedState::RUN_DELAY, 3)));
}

/// 8 executes a program: 7, the first thread, ends, and 8 gets the tid 7.
#[test]
fn a_thread_goes_on_under_the_number_of_the_first_one() {
    for is_preempted in [false, true] {
        let mut machine = FollowedTasks::new(false);
        switch(&mut machine, 0, 0, 0, S, 7);
        switch(&mut machine, 5, 1, 0, S, 8);
        machine.exited(7);
        machine.leader_exited(7, 12);
        assert_eq!(switch(&mut machine, 16, 0, 7, SwitchedOut::Dead, 0).0, Some((SchedState::RUNNING, 16)));
        if is_preempted {
            // Before the record of the exec.
            assert_eq!(brief(machine.switched_out(seen(20, 1, 7), SwitchedOut::PREEMPTED, ())), None);
            assert_eq!(machine.cpu_switched(20, 1, 7, 9), Some(8));
            let ran = machine.replaced(8, 7, 20, 1).map(|period| (period.tid, period.until - period.since));
            assert_eq!(ran, Some((8, 15)));
            assert_eq!(switch(&mut machine, 25, 1, 9, S, 7).1, Some((SchedState::RUN_DELAY, 5)));
        }
        let ran = machine.took_over(8, 30, 1).map(|period| (period.tid, period.until - period.since));
        assert_eq!(ran, (!is_preempted).then_some((8, 25)));
        machine.leader_replaced(7);
        assert_eq!(machine.get(7).is_none(), !is_preempted);
        if !is_preempted {
            machine.executes(seen(30, 1, 7));
        }
        let since = if is_preempted { 25 } else { 30 };
        assert_eq!(switch(&mut machine, 40, 1, 7, S, 0).0, Some((SchedState::RUNNING, 40 - since)));
        assert!(machine.get(8).is_none() && machine.take_unseen() == 0 && machine.ended_leaders.is_empty());
    }
}

#[test]
fn a_task_woken_unseen_waited_until_it_ran() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    switch(&mut machine, 10, 0, 7, D, 0);
    assert_eq!(switch(&mut machine, 500, 1, 0, S, 7), (None, Some((SchedState::DISK, 490))));
    assert_eq!(switch(&mut machine, 510, 1, 7, S, 0).0, Some((SchedState::RUNNING, 10)));
    let mut machine = FollowedTasks::new(true);
    machine.switched_out(seen(10, 0, 7), D, ());
    assert_eq!(brief(machine.switched_in(seen(500, 1, 7), true)), Some((SchedState::DISK, 490)));
    assert_eq!(brief(machine.switched_in(seen(900, 1, 7), true)), None);
}

#[test]
fn a_migration_unseen_counts_nothing() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    assert_eq!(switch(&mut machine, 100, 1, 7, S, 0), (None, None), "it was believed to run on CPU 0");
}

#[test]
fn late_events_do_not_turn_time_back() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 100, 0, 0, S, 7);
    assert_eq!(brief(machine.switched_out(seen(50, 0, 7), S, ())), None);
    assert_eq!(brief(machine.woken(seen(50, 0, 7), false)), None);
    assert_eq!(switch(&mut machine, 110, 0, 7, S, 0).0, Some((SchedState::RUNNING, 10)));
}

#[test]
fn waking_a_preempted_task_keeps_its_delay() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 10, 0, 7, SwitchedOut::PREEMPTED, 8);
    machine.woken(seen(20, 0, 7), false);
    assert_eq!(switch(&mut machine, 30, 0, 8, S, 7).1, Some((SchedState::RUN_DELAY, 20)));
}

#[test]
fn a_task_woken_twice_ran_unseen() {
    let mut machine = FollowedTasks::new(false);
    machine.woken(seen(10, 0, 7), true);
    machine.woken(seen(1_000, 0, 7), false);
    assert_eq!(switch(&mut machine, 1_002, 0, 0, S, 7).1, Some((SchedState::RUN_DELAY, 2)));
    assert_eq!(machine.take_unseen(), 1);
}

#[test]
fn a_wait_ends_when_its_waker_asks() {
    let mut machine = FollowedTasks::new(false);
    machine.switched_out(seen(10, 0, 7), D, ());
    let period = machine.waking(seen(19, 1, 7), ()).ended().unwrap();
    assert_eq!((period.cpu, period.until - period.since), (0, 9));
    assert_eq!(brief(machine.woken(seen(21, 0, 7), false)), None, "the same once more");
    assert_eq!(switch(&mut machine, 22, 0, 0, S, 7).1, Some((SchedState::RUN_DELAY, 3)));
    // A waking before the switch wakes a task that is not asleep yet: the wake-up ends the wait.
    assert_eq!(brief(machine.waking(seen(29, 1, 7), ())), None);
    machine.switched_out(seen(30, 0, 7), D, ());
    assert_eq!(brief(machine.woken(seen(40, 1, 7), false)), Some((SchedState::DISK, 10)));
    assert_eq!(machine.take_unseen(), 0);
}

#[test]
fn a_wake_up_that_nobody_saw_is_known_by_its_waking() {
    let mut machine = FollowedTasks::new(true);
    machine.switched_out(seen(10, 0, 7), D, ());
    assert_eq!(brief(machine.waking(seen(60, 1, 7), ())), Some((SchedState::DISK, 50)));
    assert_eq!(brief(machine.woken(seen(9_000, 1, 7), false)), None);
    let mut machine = FollowedTasks::new(false);
    machine.switched_out(seen(10, 0, 7), D, ());
    machine.waking(seen(60, 1, 7), ());
    machine.waking(seen(9_000, 1, 7), ()); // it ran and slept in between, unseen
    assert_eq!(switch(&mut machine, 9_001, 0, 0, S, 7).1, Some((SchedState::RUN_DELAY, 1)));
    assert_eq!(machine.take_unseen(), 1);
}

#[test]
fn what_was_stuck_before_the_start_is_at_least_so_long() {
    let mut machine = FollowedTasks::new(false);
    machine.found(seen(100, 0, 7), SchedState::DISK, Began::BeforeStart, ());
    let period = machine.woken(seen(350, 0, 7), false).ended().unwrap();
    assert_eq!((period.began, period.until - period.since), (Began::BeforeStart, 250));
    // An event counts although it is older than the answer from /proc.
    machine.found(seen(1_000, 0, 8), SchedState::DISK, Began::BeforeStart, ());
    machine.switched_out(seen(990, 0, 8), D, ());
    assert_eq!(brief(machine.woken(seen(1_100, 0, 8), false)), Some((SchedState::DISK, 110)));
}

#[test]
fn with_blocked_periods_only_a_woken_task_is_forgotten() {
    let mut machine = FollowedTasks::new(true);
    machine.switched_out(seen(10, 0, 7), D, ());
    assert_eq!(brief(machine.woken(seen(30, 1, 7), false)), Some((SchedState::DISK, 20)));
    assert_eq!(brief(machine.woken(seen(40, 1, 7), false)), None);
    // Woken unseen, blocked again: only the second wait is known.
    machine.switched_out(seen(50, 0, 7), D, ());
    machine.switched_out(seen(90, 0, 7), D, ());
    assert_eq!(brief(machine.woken(seen(95, 0, 7), false)), Some((SchedState::DISK, 5)));
    assert_eq!((machine.iter().count(), machine.take_unseen()), (0, 1));
    // Woken unseen, asleep since: not a long D wait.
    machine.switched_out(seen(100, 0, 7), D, ());
    machine.discard(7);
    assert_eq!(brief(machine.woken(seen(9_000, 0, 7), false)), None);
    assert_eq!((machine.iter().count(), machine.take_unseen()), (0, 1));
}

#[test]
fn a_wait_whose_wake_up_was_hidden_says_who_took_the_task_up() {
    for (from_idle, want) in [(true, Wakeup::TakenUp), (false, Wakeup::Unseen)] {
        for blocked_only in [false, true] {
            let mut machine = FollowedTasks::new(blocked_only);
            machine.switched_out(seen(10, 0, 7), D, ());
            let period = machine.switched_in(seen(500, 1, 7), from_idle).ended().unwrap();
            assert_eq!((period.until - period.since, period.wakeup), (490, want));
        }
        let mut machine = FollowedTasks::new(false);
        machine.switched_out(seen(10, 0, 7), D, ());
        machine.woken(seen(20, 0, 7), false);
        let period = machine.switched_in(seen(500, 1, 7), from_idle).ended().unwrap();
        assert_eq!((period.state, period.wakeup), (SchedState::RUN_DELAY, Wakeup::Seen));
    }
}

#[test]
fn a_switch_is_told_once_whoever_tells_it() {
    let mut machine = FollowedTasks::new(false);
    assert!(!machine.has_come(0, 7), "nothing was told");
    switch(&mut machine, 0, 0, 0, S, 7);
    assert!(machine.has_come(0, 7) && !machine.has_come(1, 7));
    switch(&mut machine, 10, 0, 7, S, 0);
    assert!(!machine.has_come(0, 7), "it comes again, and no event says so");
}

#[test]
fn a_task_that_left_unseen_ran_until_the_next_one_came() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    assert_eq!(brief(machine.left(seen(30, 1, 7))), None, "it runs elsewhere");
    assert_eq!(brief(machine.left(seen(30, 0, 7))), Some((SchedState::RUNNING, 30)));
    assert_eq!(brief(machine.left(seen(40, 0, 7))), None, "once");
    assert_eq!(machine.take_lapses().into_iter().collect::<Vec<_>>(), [(7, 1)], "nobody knows what it does");
    machine.woken(seen(90, 0, 7), false);
    assert_eq!(switch(&mut machine, 95, 0, 0, S, 7).1, Some((SchedState::RUN_DELAY, 5)));
    assert_eq!(machine.take_lapses().get(&7), Some(&1), "whatever it was is over");
    machine.left(seen(100, 0, 7));
    // Preempted, perhaps: it comes back by itself.
    assert_eq!(switch(&mut machine, 120, 0, 0, S, 7).1, None);
    assert_eq!(switch(&mut machine, 125, 0, 7, S, 0).0, Some((SchedState::RUNNING, 5)));
    assert_eq!((machine.take_lapses().get(&7), machine.take_unseen()), (Some(&1), 0));
    assert!(machine.take_lapses().is_empty());
}

#[test]
fn a_cpu_on_which_a_switch_went_unseen_is_named() {
    let mut machine = FollowedTasks::new(false);
    switch(&mut machine, 0, 0, 0, S, 7);
    assert!(machine.take_missed_on().is_empty());
    switch(&mut machine, 50, 0, 8, S, 9); // 7 left unseen
    switch(&mut machine, 60, 1, 9, S, 0); // 9 came to CPU 1 unseen
    assert_eq!(machine.take_missed_on(), [(0, 0), (1, 50)]);
    assert!(machine.take_missed_on().is_empty());
}
