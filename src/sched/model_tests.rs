//! The model, compared with a simulated scheduler whose state is known.

use proptest::prelude::*;

use super::*;
use crate::sched::states::SchedState;

const CPUS: u32 = 2;
const TASKS: i32 = 5;

/// What a task of the simulated scheduler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Sleeps,
    Waits { cpu: u32, since: u64 },
    Runs { cpu: u32 },
}

/// The next step, which is skipped where it is impossible.
#[derive(Clone, Copy, Debug)]
enum QueueStep {
    /// The CPU takes the task that has waited `nth` longest, or goes idle; the task that ran there stays runnable,
    /// sleeps or dies.
    Switch {
        cpu: u32,
        nth: usize,
        how: SwitchedOut,
    },
    Wake {
        tid: i32,
        cpu: u32,
    },
    Move {
        tid: i32,
        cpu: u32,
    },
    /// The records of this many steps are lost, and then the loss is reported.
    Lose(u32),
}

fn step() -> impl Strategy<Value = QueueStep> {
    let how = prop::sample::select(vec![
        SwitchedOut::PREEMPTED,
        SwitchedOut::Runnable { yields: true },
        SwitchedOut::Blocked(SchedState::SLEEP),
        SwitchedOut::Dead,
    ]);
    prop_oneof![
        6 => (0..CPUS, 0..3_usize, how).prop_map(|(cpu, nth, how)| QueueStep::Switch { cpu, nth, how }),
        4 => (1..=TASKS, 0..CPUS).prop_map(|(tid, cpu)| QueueStep::Wake { tid, cpu }),
        2 => (1..=TASKS, 0..CPUS).prop_map(|(tid, cpu)| QueueStep::Move { tid, cpu }),
        1 => (1..6_u32).prop_map(QueueStep::Lose),
    ]
}

fn side(at: u64, cpu: u32, tid: i32) -> TaskEvent {
    TaskEvent { at_ns: at, cpu, tid, comm: Comm::default() }
}

fn had_by(tid: i32) -> CpuUse {
    CpuUse::of(tid, Comm::default(), 120)
}

/// The simulated scheduler, which hands its events to the model unless they are lost.
struct TrueScheduler {
    model: SchedModel,
    now: u64,
    tasks: Vec<Truth>,
    running: Vec<i32>,
    /// The task of each CPU at each time.
    had: Vec<Vec<i32>>,
    /// Migrations of each task during its wait: time and new CPU.
    moves: Vec<Vec<(u64, u32)>>,
    lost: Option<(u64, u32)>,
    lost_until: u64,
    ended: Vec<(EndedWait, u64)>,
    true_waits: u64,
}

impl TrueScheduler {
    fn new() -> TrueScheduler {
        let mut model = SchedModel::<()>::new(1000);
        model.cpus.started(1);
        (0..CPUS).for_each(|cpu| model.cpu_switched(1, cpu, had_by(0), had_by(0)));
        TrueScheduler {
            model,
            now: 1,
            tasks: vec![Truth::Sleeps; TASKS as usize + 1],
            running: vec![0; CPUS as usize],
            had: vec![vec![0; 4000]; CPUS as usize],
            moves: vec![Vec::new(); TASKS as usize + 1],
            lost: None,
            lost_until: 0,
            ended: Vec::new(),
            true_waits: 0,
        }
    }

    fn sees(&self) -> bool {
        self.lost.is_none()
    }

    fn step(&mut self, step: QueueStep) {
        self.now += 3;
        match step {
            QueueStep::Switch { cpu, nth, how } => self.switch(cpu, nth, how),
            QueueStep::Wake { tid, cpu } if self.tasks[tid as usize] == Truth::Sleeps => {
                self.tasks[tid as usize] = Truth::Waits { cpu, since: self.now };
                self.moves[tid as usize] = vec![(self.now, cpu)];
                if self.sees() {
                    self.model.waking(side(self.now - 1, cpu, tid));
                    self.model.woken(side(self.now, cpu, tid), false, true, ());
                }
            }
            QueueStep::Move { tid, cpu } => {
                if let Truth::Waits { cpu: its, .. } = &mut self.tasks[tid as usize]
                    && *its != cpu
                {
                    *its = cpu;
                    self.moves[tid as usize].push((self.now, cpu));
                    if self.sees() {
                        self.model.migrated(self.now, tid, cpu);
                    }
                }
            }
            QueueStep::Lose(steps) if self.sees() => self.lost = Some((self.now, steps)),
            QueueStep::Wake { .. } | QueueStep::Lose(_) => {}
        }
        if let Some((start, steps)) = &mut self.lost {
            *steps -= 1;
            if *steps == 0 {
                let start = *start;
                self.lost = None;
                self.lost_until = self.now + 1;
                for cpu in 0..CPUS {
                    self.model.lost(cpu, start - 1, self.now + 1);
                }
            }
        }
    }

    fn switch(&mut self, cpu: u32, nth: usize, how: SwitchedOut) {
        let mut waiting: Vec<(u64, i32)> = Vec::new();
        for (tid, task) in (0..).zip(&self.tasks) {
            if let Truth::Waits { cpu: its, since } = task
                && *its == cpu
            {
                waiting.push((*since, tid));
            }
        }
        waiting.sort_unstable();
        let next = waiting.get(nth).map_or(0, |(_, tid)| *tid);
        let prev = self.running[cpu as usize];
        if prev == next {
            return;
        }
        self.running[cpu as usize] = next;
        self.had[cpu as usize][self.now as usize..].fill(next);
        if self.sees() {
            self.model.cpu_switched(self.now, cpu, had_by(prev), had_by(next));
        }
        if next > 0 {
            let Truth::Waits { since, .. } = self.tasks[next as usize] else { unreachable!("it was waiting") };
            self.tasks[next as usize] = Truth::Runs { cpu };
            let is_seen = since > self.lost_until && self.sees();
            self.true_waits += u64::from(is_seen);
            let ended = if self.sees() { self.model.came(side(self.now, cpu, next), true) } else { None };
            assert!(ended.is_some() || !is_seen, "a wait is missing");
            self.ended.extend(ended.map(|ended| (ended, since)));
        }
        if prev > 0 {
            self.tasks[prev as usize] = match how {
                SwitchedOut::Runnable { .. } => Truth::Waits { cpu, since: self.now },
                SwitchedOut::Blocked(_) | SwitchedOut::Dead => Truth::Sleeps,
            };
            self.moves[prev as usize] = vec![(self.now, cpu)];
            if self.sees() {
                self.model.left(side(self.now, cpu, prev), true, how, None, ());
            }
        }
        if let Some((ended, _)) = self.ended.last()
            && ended.until == self.now
        {
            self.check_uses(*ended);
        }
    }

    /// For each nanosecond of the wait, the model names the task that had the CPU in whose queue the wait was.
    fn check_uses(&self, ended: EndedWait) {
        let index = |had_by: CpuUse| match had_by {
            CpuUse::Task { tid, .. } => tid as usize,
            CpuUse::Idle => 0,
            CpuUse::Unseen => TASKS as usize + 1,
        };
        let mut found = vec![0; TASKS as usize + 2];
        ended.wait.queues(ended.until, |cpu, from, until| match cpu.and_then(|cpu| self.model.queue(cpu)) {
            Some(queue) => queue.history.uses(from, until, |had_by, ns| found[index(had_by)] += ns),
            None => found[TASKS as usize + 1] += until - from,
        });
        assert_eq!(found.iter().sum::<u64>(), ended.until - ended.wait.since, "{ended:?}");
        let mut want = vec![0; TASKS as usize + 2];
        for at in ended.wait.since..ended.until {
            let moves = &self.moves[ended.tid as usize];
            let cpu = moves.iter().rev().find(|(since, _)| *since <= at).map_or(0, |(_, cpu)| *cpu);
            want[self.had[cpu as usize][at as usize] as usize] += 1;
        }
        let unseen = found[TASKS as usize + 1];
        let too_few: u64 = want.iter().zip(&found).map(|(want, found)| u64::saturating_sub(*want, *found)).sum();
        assert!(too_few <= unseen, "{ended:?}: {found:?} of {want:?}");
        assert!(ended.wait.moves as usize > EARLIER || unseen == 0 || self.lost_until > 0);
    }

    fn waiting(&self, cpu: u32) -> u32 {
        self.tasks.iter().filter(|task| matches!(task, Truth::Waits { cpu: its, .. } if *its == cpu)).count() as u32
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Waits that end without a loss are counted with their exact length; no counted wait is longer than the real one.
    #[test]
    fn waits_are_those_of_the_scheduler(steps in prop::collection::vec(step(), 1..300)) {
        let mut truth = TrueScheduler::new();
        let mut any_loss = false;
        for step in steps {
            any_loss |= matches!(step, QueueStep::Lose(_));
            truth.step(step);
            if !any_loss {
                for cpu in 0..CPUS {
                    prop_assert_eq!(truth.model.queue(cpu).map_or(0, |queue| queue.waiting), truth.waiting(cpu));
                }
            }
        }
        for (ended, since) in &truth.ended {
            prop_assert_eq!(ended.wait.since, *since, "{:?}", ended);
            prop_assert!(ended.wait.kind != RunDelayKind::Found);
        }
        prop_assert!(truth.ended.len() as u64 >= truth.true_waits);
        prop_assert!(any_loss || truth.model.take_discarded() == 0);
    }
}

#[test]
fn a_queue_has_its_length_over_time() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    model.cpu_switched(100, 0, had_by(0), had_by(1));
    for tid in 2..=4 {
        model.left(side(90, 1, tid), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
        model.woken(side(100, 0, tid), false, true, ());
    }
    let queue = model.queues_mut().next().unwrap().1;
    assert_eq!((queue.waiting, queue.take(200)), (3, (300, 3)));
    // A task takes the CPU of another one: at no time do four wait.
    model.cpu_switched(250, 0, had_by(1), had_by(2));
    assert!(model.came(side(250, 0, 2), true).is_some());
    model.left(side(250, 0, 1), true, SwitchedOut::PREEMPTED, None, ());
    let queue = model.queues_mut().next().unwrap().1;
    assert_eq!((queue.waiting, queue.take(300)), (3, (300, 3)));
}

#[test]
fn a_wait_goes_with_its_task() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    model.cpu_switched(10, 0, had_by(0), had_by(1));
    model.cpu_switched(10, 1, had_by(0), had_by(2));
    model.left(side(5, 0, 3), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
    model.woken(side(20, 0, 3), false, true, ());
    model.migrated(50, 3, 1);
    let queues = |model: &SchedModel| [0, 1].map(|cpu| model.queue(cpu).unwrap().waiting);
    assert_eq!(queues(&model), [0, 1]);
    model.cpu_switched(60, 1, had_by(2), had_by(3));
    let ended = model.came(side(60, 1, 3), true).unwrap();
    let mut parts = Vec::new();
    ended.wait.queues(ended.until, |cpu, from, until| parts.push((cpu, from, until)));
    assert_eq!((parts, queues(&model)), (vec![(Some(1), 50, 60), (Some(0), 20, 50)], [0, 0]));
}

#[test]
fn a_thread_that_gets_another_number_is_not_missed() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    model.left(side(5, 0, 2), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
    model.woken(side(10, 0, 2), false, true, ());
    model.cpu_switched(20, 0, had_by(0), had_by(2));
    assert!(model.came(side(20, 0, 2), true).is_some());
    model.took_over(2, 1, 30, 0);
    model.states.exited(2);
    // It is preempted under its new number.
    model.cpu_switched(40, 0, had_by(1), had_by(3));
    model.left(side(40, 0, 1), true, SwitchedOut::PREEMPTED, None, ());
    model.cpu_switched(50, 0, had_by(3), had_by(1));
    assert_eq!(model.came(side(50, 0, 1), true).map(|ended| ended.wait.since), Some(40));
    assert!(model.states.get(2).is_none() && model.take_missed_on().is_empty());
    assert_eq!((model.take_unwoken(), model.take_discarded()), (0, 0));
}

#[test]
fn a_task_that_was_found_waits_if_another_one_runs() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    for tid in [1, 2] {
        model.found(side(10, 0, tid), true, Began::BeforeStart);
    }
    model.settle_found(|_| ());
    assert_eq!(model.waits().count(), 0, "one of them runs");
    model.saw_current(20, 0, had_by(1));
    model.settle_found(|_| ());
    let waiting: Vec<i32> = model.waits().map(|(tid, ..)| tid).collect();
    assert_eq!((waiting, model.queue(0).unwrap().waiting), (vec![2], 1));
    model.cpu_switched(90, 0, had_by(1), had_by(2));
    let ended = model.came(side(90, 0, 2), true).unwrap();
    assert_eq!((ended.wait.kind, ended.wait.since, ended.wait.began), (RunDelayKind::Found, 10, Began::BeforeStart));
    assert_eq!(model.queue(0).unwrap().waiting, 0);
}

/// With many tasks, a pass over them at each loss would cause the next loss.
#[test]
fn a_loss_goes_through_no_tasks() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    for tid in 1..=3 {
        model.left(side(10, 0, tid), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
        model.woken(side(20, 0, tid), false, true, ());
    }
    model.lost(1, 25, 30);
    model.left(side(40, 0, 4), true, SwitchedOut::PREEMPTED, None, ());
    let in_table =
        |model: &SchedModel, tid| matches!(model.states.get(tid).unwrap().activity, Activity::Runnable { .. });
    assert!((1..=4).all(|tid| in_table(&model, tid)));
    let waiting = |model: &SchedModel| model.waits().map(|(tid, ..)| tid).collect::<Vec<_>>();
    assert_eq!((waiting(&model), model.take_discarded()), (vec![4], 0));
    assert!(model.wait(1).is_none() && model.wait_mut(2).is_none());
    let queue = model.queues_mut().next().unwrap().1;
    assert_eq!((queue.waiting, queue.take(50)), (1, (3 * 5 + 10, 3)));
    assert!(model.came(side(60, 1, 1), true).is_none(), "it may have waited twice");
    assert_eq!(model.take_discarded(), 1);
    model.migrated(70, 2, 1);
    assert_eq!([0, 1].map(|cpu| model.queue(cpu).unwrap().waiting), [1, 0]);
    model.drop_doubtful(80);
    assert_eq!((waiting(&model), model.take_discarded()), (vec![4], 2));
    assert!(!in_table(&model, 3) && in_table(&model, 4));
    assert_eq!(model.queue(0).unwrap().waiting, 1);
}

/// A loss that is reported late does not discard waits that began after it.
#[test]
fn a_wait_that_began_after_a_loss_stays() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    model.left(side(50, 0, 1), true, SwitchedOut::PREEMPTED, None, ());
    model.lost(1, 25, 30);
    model.drop_doubtful(60);
    assert_eq!((model.waits().count(), model.queue(0).unwrap().waiting), (1, 1));
    assert!(model.came(side(70, 0, 1), true).is_some());
    assert_eq!((model.queue(0).unwrap().waiting, model.take_discarded()), (0, 0));
}

#[test]
fn a_wake_up_that_was_not_seen_is_told_by_its_waker() {
    let mut model = SchedModel::<()>::new(8);
    model.cpus.started(1);
    model.left(side(10, 0, 1), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
    model.waking(side(20, 1, 1));
    let ended = model.came(side(25, 1, 1), true).unwrap();
    assert_eq!((ended.wait.kind, ended.wait.since, ended.cpu), (RunDelayKind::Woken, 20, 1));
    model.left(side(30, 1, 1), true, SwitchedOut::Blocked(SchedState::SLEEP), None, ());
    assert!(model.came(side(40, 1, 1), true).is_none());
    assert_eq!((model.take_unwoken(), model.take_discarded()), (1, 0));
}
