//! task-state: tasks that block, are woken, preempted and get a CPU.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Value, Verdict};
use crate::run::model_tests::{
    Load, ModelTally, PlayedInterval, SWITCH_FORMAT, SeenRow, SeenTable, WAKEUP_FORMAT, World, cell, common, number,
    play, text,
};

pub const FORMATS: [&str; 3] = [
    SWITCH_FORMAT,
    WAKEUP_FORMAT,
    "sched:sched_wakeup_new
     char comm[16] 8 16 0
     pid_t pid 24 4 1
     int prio 28 4 1
     int target_cpu 32 4 1",
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TaskActivity {
    Runs(u32),
    Ready { woken: bool },
    Waits(&'static str),
}

impl TaskActivity {
    fn label(self) -> &'static str {
        match self {
            TaskActivity::Runs(_) => "R",
            TaskActivity::Ready { .. } => "RD",
            TaskActivity::Waits(state) => state,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ModelTask {
    pub doing: TaskActivity,
    /// None: since before the start.
    pub since: Option<u64>,
}

/// A period that ended: task, state, start and end.
#[derive(Clone, Copy, Debug)]
pub struct EndedPeriod {
    pub tid: usize,
    pub doing: TaskActivity,
    /// None: since before the start.
    pub since: Option<u64>,
    pub until: u64,
}

/// The scheduler. Tids are indexes into `tasks`, starting at 10; 0 is idle.
pub struct Scheduler {
    pub tasks: Vec<ModelTask>,
    current: Vec<Option<usize>>,
    pub ended: Vec<EndedPeriod>,
    /// The task that hides events while it is current.
    hidden: Option<usize>,
    /// That task, or an idle task, was found to be hidden.
    hid: bool,
}

pub const FIRST: usize = 10;

fn tid(task: Option<usize>) -> i32 {
    task.map_or(0, |task| (FIRST + task) as i32)
}

impl Scheduler {
    /// A scheduler with a few waiting tasks in `world`.
    pub fn new(world: &mut World) -> Scheduler {
        let waits = ModelTask { doing: TaskActivity::Waits("S"), since: None };
        Scheduler {
            tasks: vec![waits; 1 + world.random.below(6) as usize],
            current: vec![None; world.cpus() as usize],
            ended: Vec::new(),
            hidden: None,
            hid: false,
        }
    }

    fn becomes(&mut self, task: usize, doing: TaskActivity, now: u64) {
        let before = std::mem::replace(&mut self.tasks[task], ModelTask { doing, since: Some(now) });
        self.ended.push(EndedPeriod { tid: FIRST + task, doing: before.doing, since: before.since, until: now });
    }

    fn switch(&mut self, world: &mut World, cpu: u32, prev: Option<(usize, TaskActivity, u64)>, next: Option<usize>) {
        let mut raw = common(tid(prev.map(|prev| prev.0)));
        raw.extend(text("t"));
        [tid(prev.map(|prev| prev.0)), 120].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
        raw.extend(prev.map_or(0, |prev| prev.2).to_ne_bytes());
        raw.extend(text("t"));
        [tid(next), 120].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
        let hides = match prev {
            Some((task, ..)) => self.hidden == Some(task),
            None => world.hides[cpu as usize],
        };
        if !hides {
            world.event("sched:sched_switch", cpu, tid(prev.map(|prev| prev.0)), &raw);
        } else {
            self.hid = true;
        }
        let is_hidden = |task: Option<usize>| task.is_some() && task == self.hidden;
        let tasks = [prev.map(|prev| prev.0), next];
        world.switch_records(cpu, tasks.map(tid), tasks.map(is_hidden));
        if let Some((task, doing, _)) = prev {
            self.becomes(task, doing, world.clock);
        }
        if let Some(task) = next {
            self.becomes(task, TaskActivity::Runs(cpu), world.clock);
        }
        self.current[cpu as usize] = next;
    }

    /// The truth of the interval from `begin` to `end`, by task and state, about periods that began after `from`:
    /// number of ended ones, time in the interval of ended and ongoing ones, shortest and longest ended one, number and
    /// total length of ongoing ones.
    fn truth(&self, from: u64, begin: u64, end: u64) -> BTreeMap<(usize, &'static str), [u64; 6]> {
        let mut rows: BTreeMap<_, [u64; 6]> = BTreeMap::new();
        for period in &self.ended {
            let Some(since) = period.since.filter(|since| *since > from) else { continue };
            let lasted = period.until - since;
            let row = rows.entry((period.tid, period.doing.label())).or_default();
            let least = if row[0] == 0 { lasted } else { row[2].min(lasted) };
            *row = [row[0] + 1, row[1] + (period.until - since.max(begin)), least, row[3].max(lasted), 0, 0];
        }
        for (index, task) in self.tasks.iter().enumerate() {
            if let Some(since) = task.since.filter(|since| *since > from) {
                let row = rows.entry((FIRST + index, task.doing.label())).or_default();
                (row[4], row[5]) = (1, end - since);
                (row[1], row[3]) = (row[1] + (end - since.max(begin)), row[3].max(end - since));
            }
        }
        rows
    }
}

impl Load for Scheduler {
    /// Makes a random step on a random CPU.
    fn step(&mut self, world: &mut World) {
        let cpu = world.random.below(world.cpus().into()) as u32;
        let ready: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| matches!(self.tasks[task].doing, TaskActivity::Ready { .. }))
            .collect();
        let waits: Vec<usize> =
            (0..self.tasks.len()).filter(|&task| matches!(self.tasks[task].doing, TaskActivity::Waits(_))).collect();
        let current = self.current[cpu as usize];
        match (world.random.below(3), current) {
            // A wake-up in an interrupt of a hidden idle task. That CPU runs the woken task as soon as it can, if no
            // other CPU does.
            (0, None) if !waits.is_empty() && world.hides[cpu as usize] => {
                let task = world.random.of(&waits);
                self.becomes(task, TaskActivity::Ready { woken: true }, world.clock);
                if !self.hid || !world.random.one_in(4) {
                    world.clock += 1 + world.random.below(100);
                    self.switch(world, cpu, None, Some(task));
                }
            }
            (0, Some(_)) if !waits.is_empty() && current == self.hidden => {
                let woken = self.hid.then(|| world.random.of(&waits));
                woken.into_iter().for_each(|task| self.becomes(task, TaskActivity::Ready { woken: true }, world.clock));
            }
            (0, _) if !waits.is_empty() => {
                let task = world.random.of(&waits);
                let mut raw = common(tid(current));
                raw.extend(text("t"));
                [tid(Some(task)), 120, 0].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
                world.event("sched:sched_wakeup", cpu, tid(current), &raw);
                self.becomes(task, TaskActivity::Ready { woken: true }, world.clock);
            }
            (1, Some(task)) => {
                let (state, bits) = world.random.of(&[("S", 1), ("D", 2)]);
                let next = if ready.is_empty() { None } else { Some(world.random.of(&ready)) };
                self.switch(world, cpu, Some((task, TaskActivity::Waits(state), bits)), next);
            }
            (_, Some(task)) if !ready.is_empty() => {
                let next = world.random.of(&ready);
                self.switch(world, cpu, Some((task, TaskActivity::Ready { woken: false }, 0)), Some(next));
            }
            (_, None) if !ready.is_empty() => {
                let next = world.random.of(&ready);
                self.switch(world, cpu, None, Some(next));
            }
            _ => {}
        }
    }
}

/// The same for all tasks together, under no task's number.
fn together(rows: BTreeMap<(usize, &'static str), [u64; 6]>) -> BTreeMap<(usize, &'static str), [u64; 6]> {
    let mut all: BTreeMap<_, [u64; 6]> = BTreeMap::new();
    for ((_, label), row) in rows {
        let sum = all.entry((0, label)).or_default();
        let least = if sum[0] == 0 || row[0] > 0 && row[2] < sum[2] { row[2] } else { sum[2] };
        *sum = [sum[0] + row[0], sum[1] + row[1], least, sum[3].max(row[3]), sum[4] + row[4], sum[5] + row[5]];
    }
    all
}

/// What a report says about missing time, in an interval of this length.
struct Covered<'a> {
    lasted: u64,
    apart: bool,
    known: &'a BTreeSet<u64>,
}

impl Covered<'_> {
    /// `all`: no time may be missing.
    fn check(&self, table: &SeenTable, totals: &[(&'static str, Value)], all: bool, what: &str) {
        let total = |key: &str| totals.iter().find(|(other, _)| *other == key).map(|(_, value)| value.clone());
        let has = |row: &SeenRow, key: &str| *cell(table, row, key) != Value::None;
        let sum = |rows: &[&SeenRow]| rows.iter().map(|row| number(table, row, "total_ns")).sum::<u64>();
        let rows: Vec<&SeenRow> = table.rows.iter().collect();
        match (total("seen_ns"), total("of_ns")) {
            (None, None) => assert!(!rows.iter().any(|row| has(row, "of_ns")), "{what}: {rows:?}"),
            (Some(Value::Unsigned(seen)), Some(Value::Unsigned(of))) => {
                assert!(!all, "{what}: nothing is missing: {rows:?}");
                assert!(seen < of && seen == sum(&rows), "{what}: {seen} of {of}: {rows:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
        if !self.apart {
            for row in rows.iter().filter(|row| has(row, "of_ns")) {
                let [seen, of] = ["seen_ns", "of_ns"].map(|key| number(table, row, key));
                assert!(seen == number(table, row, "total_ns") && seen < of, "{what}: {row:?}");
            }
            return;
        }
        for &tid in self.known {
            let rows: Vec<&SeenRow> = rows.iter().copied().filter(|row| number(table, row, "tid") == tid).collect();
            let said = rows.first().filter(|row| has(row, "of_ns"));
            let (seen, of) = match said {
                Some(row) => (number(table, row, "seen_ns"), number(table, row, "of_ns")),
                None => (self.lasted, self.lasted),
            };
            assert_eq!((seen, of), (sum(&rows), self.lasted), "{what}: {tid}: {rows:?}");
        }
    }
}

/// `apart`: a row per task and state, else only one per state. `hides`: some CPUs have idle tasks that are hidden.
fn run(seed: u64, apart: bool, inverts: bool, hides: bool, shown: &mut ModelTally) {
    let options: &[&str] = if apart { &["--perins"] } else { &[] };
    let mut world = World::new("task-state", options, &FORMATS, seed);
    world.inverts = inverts;
    for cpu in 0..if hides { world.cpus() as usize } else { 0 } {
        world.hides[cpu] = world.random.one_in(2);
        world.tells_switches[cpu] = world.hides[cpu] || world.random.one_in(2);
    }
    let hides_a_task = hides && !world.hides.contains(&true);
    if hides_a_task {
        world.tells_switches.fill(true);
    }
    let mut scheduler = Scheduler::new(&mut world);
    scheduler.hidden = hides_a_task.then_some(0);
    let mut known = BTreeSet::new(); // tasks that had a row before
    play(&mut world, &mut scheduler, 6, shown, |scheduler, played, shown| {
        let PlayedInterval { what: interval, begin, lost_before, drops, report } = played;
        let truth = |from| scheduler.truth(from, *begin, report.end);
        let truth = |from| if apart { truth(from) } else { together(truth(from)) };
        let (all, mut truth) = (truth(0), truth(*lost_before));
        scheduler.ended.clear();
        let [table] = &report.tables[..] else { panic!("{interval}: one table") };
        if !inverts {
            shown.partly += u64::from(report.totals.iter().any(|(key, _)| *key == "of_ns"));
            let covered = Covered { lasted: report.end - begin, apart, known: &known };
            covered.check(table, &report.totals, *drops == 0 && !hides, interval);
        }
        known.extend(table.rows.iter().filter(|_| apart).map(|row| number(table, row, "tid")));
        for row in &table.rows {
            let verdict = row.verdict;
            shown.add(verdict);
            let Value::Word(state) = *cell(table, row, "state") else { panic!("{row:?}") };
            if state == "?" {
                continue;
            }
            let key = (if apart { number(table, row, "tid") as usize } else { 0 }, state);
            let keys = ["count", "total_ns", "min_ns", "max_ns", "ongoing", "ongoing_ns"];
            let told = keys.map(|key| number(table, row, key));
            let what = format!("{interval}, {verdict:?}: {key:?} {keys:?}");
            let (least, most) = (truth.remove(&key).unwrap_or_default(), all.get(&key).copied().unwrap_or_default());
            let sums = [0, 1, 3, 4, 5];
            match verdict {
                Verdict::Exact if !inverts => assert_eq!(told, least, "{what}"),
                // After a late record, periods that began before it may or may not be missing.
                Verdict::Exact => {
                    assert!(
                        sums.iter().all(|&at| (least[at]..=most[at]).contains(&told[at])),
                        "{what}: {least:?} {told:?} {most:?}"
                    );
                }
                // The wait may have ended with an unseen wake-up, earlier than the switch-in shows.
                _ if hides && !["R", "RD"].contains(&state) => {}
                _ if !inverts => assert!(sums.iter().all(|&at| told[at] <= most[at]), "{what}: {told:?} {most:?}"),
                _ => {}
            }
        }
        if table.verdict == Verdict::Exact {
            truth.retain(|(_, label), _| *label == "R" || !scheduler.hid);
            assert!(truth.is_empty(), "{interval}: not told: {truth:?}");
        }
    });
}

#[test]
fn rows_of_task_state() {
    let mut shown = ModelTally::default();
    (0..300).for_each(|seed| run(seed, true, false, false, &mut shown));
    shown.check(1000);
    assert!(shown.partly > 100, "{shown:?}");
}

#[test]
fn rows_of_task_state_with_inverted_records() {
    let mut shown = ModelTally::default();
    (1000..1100).for_each(|seed| run(seed, true, true, false, &mut shown));
    shown.check(300);
}

#[test]
fn the_table_of_all_tasks() {
    let mut shown = ModelTally::default();
    (0..300).for_each(|seed| run(seed, false, false, false, &mut shown));
    (1000..1100).for_each(|seed| run(seed, false, true, false, &mut shown));
    shown.check(300);
    assert!(shown.partly > 100, "{shown:?}");
}

#[test]
fn rows_where_idle_tasks_are_hidden() {
    let mut shown = ModelTally::default();
    (2000..2300).for_each(|seed| run(seed, seed % 2 == 0, false, true, &mut shown));
    shown.check(1000);
}
