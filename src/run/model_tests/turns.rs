//! rundelay and oncpu: who waits for a CPU, and who has one.

use std::collections::BTreeMap;

use crate::report::{Value, Verdict};
use crate::run::model_tests::tasks::{FIRST, FORMATS, Scheduler, TaskActivity};
use crate::run::model_tests::{ModelTally, SeenTable, World, cell, number, play};

const MIGRATE_FORMAT: &str = "sched:sched_migrate_task
     char comm[16] 8 16 0
     pid_t pid 24 4 1
     int prio 28 4 1
     int orig_cpu 32 4 1
     int dest_cpu 36 4 1";

/// Number, sum, shortest and longest of the ended periods of one kind.
type Lengths = [u64; 4];

/// Runs `profiler`, and passes each interval to a check: the scheduler, the tables, start and end of the interval, and
/// when a record was last dropped before it.
fn run(
    profiler: &str,
    options: &[&str],
    seed: u64,
    shown: &mut ModelTally,
    check: impl Fn(&Scheduler, &[SeenTable], [u64; 3], &str) -> Vec<Verdict>,
) {
    let formats: Vec<&str> = FORMATS.into_iter().chain([MIGRATE_FORMAT]).collect();
    let mut world = World::new(profiler, options, &formats, seed);
    let mut scheduler = Scheduler::new(&mut world);
    play(&mut world, &mut scheduler, 6, shown, |scheduler, played, shown| {
        let times = [played.begin, played.report.end, played.lost_before];
        let verdicts = check(scheduler, &played.report.tables, times, &format!("{profiler}, {}", played.what));
        verdicts.into_iter().for_each(|verdict| shown.add(verdict));
        scheduler.ended.clear();
    });
}

/// The ended waits for a CPU that began after `from`.
fn waits(scheduler: &Scheduler, from: u64) -> BTreeMap<(u64, &'static str), Lengths> {
    let mut rows: BTreeMap<_, Lengths> = BTreeMap::new();
    for period in &scheduler.ended {
        let TaskActivity::Ready { woken } = period.doing else { continue };
        let Some(since) = period.since.filter(|since| *since > from) else { continue };
        let kind = if woken { "woken" } else { "preempted" };
        let (lasted, row) = (period.until - since, rows.entry((period.tid as u64, kind)).or_default());
        let least = if row[0] == 0 { lasted } else { row[2].min(lasted) };
        *row = [row[0] + 1, row[1] + lasted, least, row[3].max(lasted)];
    }
    rows
}

fn check_waits(scheduler: &Scheduler, tables: &[SeenTable], [_, _, lost]: [u64; 3], what: &str) -> Vec<Verdict> {
    let (mut truth, all, table) = (waits(scheduler, lost), waits(scheduler, 0), &tables[0]);
    let mut verdicts = Vec::new();
    for row in table.rows.iter().filter(|row| number(table, row, "count") > 0) {
        let Value::Word(kind) = *cell(table, row, "kind") else { panic!("{row:?}") };
        let key = (number(table, row, "tid"), kind);
        let told = ["count", "total_ns", "min_ns", "max_ns"].map(|key| number(table, row, key));
        let (least, most) = (truth.remove(&key).unwrap_or_default(), all.get(&key).copied().unwrap_or_default());
        match row.verdict {
            Verdict::Exact => assert_eq!(told, least, "{what}: {key:?}"),
            _ => assert!([0, 1, 3].iter().all(|&at| told[at] <= most[at]), "{what}: {key:?}: {told:?} of {most:?}"),
        }
        verdicts.push(row.verdict);
    }
    assert!(table.verdict != Verdict::Exact || truth.is_empty(), "{what}: not told: {truth:?}");
    verdicts
}

#[test]
fn rows_of_rundelay() {
    let mut shown = ModelTally::default();
    (0..300).for_each(|seed| run("rundelay", &["--perins"], seed, &mut shown, check_waits));
    shown.check(1000);
}

/// By task, for turns on a CPU that began after `from`: the CPU time in the interval, the number of ended turns, and
/// the longest turn so far.
fn turns(scheduler: &Scheduler, from: u64, begin: u64, end: u64) -> BTreeMap<u64, [u64; 3]> {
    let ended = scheduler.ended.iter().map(|period| (period.tid, period.doing, period.since, period.until, 1));
    let open = (FIRST..).zip(&scheduler.tasks).map(|(tid, task)| (tid, task.doing, task.since, end, 0));
    let mut rows: BTreeMap<_, [u64; 3]> = BTreeMap::new();
    for (tid, doing, since, until, ends) in ended.chain(open) {
        if let (TaskActivity::Runs(_), Some(since)) = (doing, since.filter(|since| *since > from)) {
            let row = rows.entry(tid as u64).or_default();
            *row = [row[0] + (until - since.max(begin)), row[1] + ends, row[2].max(until - since)];
        }
    }
    rows
}

fn check_turns(scheduler: &Scheduler, tables: &[SeenTable], [begin, end, lost]: [u64; 3], what: &str) -> Vec<Verdict> {
    let [least, most] = [lost, 0].map(|from| turns(scheduler, from, begin, end));
    let [tasks, cpus] = tables else { panic!("{what}: two tables") };
    let mut verdicts = Vec::new();
    for row in &tasks.rows {
        let tid = number(tasks, row, "tid");
        let told = ["cpu_ns", "runs", "max_ns"].map(|key| number(tasks, row, key));
        let [least, most] = [&least, &most].map(|rows| rows.get(&tid).copied().unwrap_or_default());
        assert!((0..3).all(|at| told[at] <= most[at]), "{what}: {tid}: {told:?} of {most:?}");
        // Of a turn that began during a loss, only the part after the loss counts.
        if row.verdict == Verdict::Exact {
            assert!((0..3).all(|at| told[at] >= least[at]) && told[1] == least[1], "{what}: {tid}: {least:?} {told:?}");
        }
        verdicts.push(row.verdict);
    }
    let all = |rows: &BTreeMap<u64, [u64; 3]>| rows.values().map(|row| row[0]).sum::<u64>();
    let sum = |key: &str| cpus.rows.iter().map(|row| number(cpus, row, key)).sum::<u64>();
    assert!(sum("busy_ns") <= all(&most), "{what}");
    if cpus.verdict == Verdict::Exact {
        assert!(sum("busy_ns") >= all(&least), "{what}");
        assert_eq!(sum("busy_ns"), tasks.rows.iter().map(|row| number(tasks, row, "cpu_ns")).sum::<u64>(), "{what}");
    }
    verdicts
}

#[test]
fn rows_of_oncpu() {
    let mut shown = ModelTally::default();
    (0..300).for_each(|seed| run("oncpu", &[], seed, &mut shown, check_turns));
    shown.check(1000);
}
