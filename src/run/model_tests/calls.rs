//! syscalls: long calls, whose ends may be lost.

use std::collections::BTreeMap;

use crate::report::{OccurrenceBody, Value};
use crate::run::model_tests::{SWITCH_FORMAT, SeenTable, WAKEUP_FORMAT, World, common};

const FORMATS: [&str; 4] = [
    "raw_syscalls:sys_enter
     long id 8 8 1
     unsigned long args[6] 16 48 0",
    "raw_syscalls:sys_exit
     long id 8 8 1
     long ret 16 8 1",
    SWITCH_FORMAT,
    WAKEUP_FORMAT,
];
const FSYNC: u64 = libc::SYS_fsync as u64;

/// Threads that make one call after another.
#[derive(Default)]
struct Threads {
    /// By thread, the start and end of each call.
    calls: BTreeMap<i32, Vec<(u64, Option<u64>)>>,
}

impl Threads {
    /// Lets a thread enter or leave a call.
    fn step(&mut self, world: &mut World) {
        let cpu = world.random.below(world.cpus().into()) as u32;
        let tid = 10 + world.random.below(4) as i32;
        self.step_of(tid, cpu, world);
    }

    fn step_of(&mut self, tid: i32, cpu: u32, world: &mut World) {
        let calls = self.calls.entry(tid).or_default();
        let (name, words) = match calls.last_mut().filter(|call| call.1.is_none()) {
            Some((_, end)) => {
                *end = Some(world.clock);
                ("raw_syscalls:sys_exit", 2)
            }
            None => {
                calls.push((world.clock, None));
                ("raw_syscalls:sys_enter", 7)
            }
        };
        let words = std::iter::once(FSYNC).chain(std::iter::repeat(0)).take(words);
        let raw = common(tid).into_iter().chain(words.flat_map(u64::to_ne_bytes)).collect::<Vec<u8>>();
        world.event(name, cpu, tid, &raw);
    }

    /// Whether a thread was at `now` in a call that began at `since`.
    fn is_in_call(&self, tid: i32, since: u64, now: u64) -> bool {
        self.calls[&tid].iter().any(|(from, end)| *from == since && end.is_none_or(|end| end >= now))
    }
}

/// Returns the number of lines about ongoing calls, and the number of dropped records.
fn run(seed: u64) -> (u64, u64) {
    let mut world = World::new("syscalls", &["--than", "1ms", "--no-paths"], &FORMATS, seed);
    let mut threads = Threads::default();
    let look_one_in = world.random.of(&[1, 4, 20]);
    let mut lines = 0;
    for _ in 0..200 {
        if world.random.one_in(8) {
            world.clock += 150_000_000;
        }
        world.pass(look_one_in);
        let batch = &mut world.core.ctx.output.batch;
        for occurrence in &batch.occurrences {
            let OccurrenceBody::Detailed { layout, values } = &occurrence.body else { panic!("{occurrence:?}") };
            let value = |key| {
                layout
                    .details()
                    .iter()
                    .position(|detail| detail.name == key)
                    .map(|index| &values.of(&batch.values)[index])
            };
            let (Some(Value::Ns(ns)), Some(Value::Bool(true))) = (value("duration_ns"), value("still_open")) else {
                panic!("seed {seed}: {occurrence:?}");
            };
            let (tid, now) = (occurrence.subject.tid, occurrence.subject.time);
            assert!(
                threads.is_in_call(tid, now - ns, now),
                "seed {seed}: {tid} for {ns} at {now}: {:?}",
                threads.calls
            );
            lines += 1;
        }
        batch.clear();
        threads.step(&mut world);
    }
    (lines, world.drops)
}

/// A thread is reported as still in a call only if it is in that call.
#[test]
fn calls_that_go_on() {
    let (lines, drops) = (0..300).map(run).fold((0, 0), |sums, run| (sums.0 + run.0, sums.1 + run.1));
    assert!(lines > 300 && drops > 1000, "{lines} lines, {drops} records lost");
}

/// The tables of a run in which threads migrate, change their names, and make calls. Also returns the number of dropped
/// records.
fn tables(seed: u64, by_ring: bool) -> (Vec<Vec<SeenTable>>, u64) {
    let mut world = World::new("syscalls", &["--perins"], &FORMATS, seed);
    world.read_by_ring(by_ring);
    world.inverts = world.random.one_in(4);
    let mut threads = Threads::default();
    let look_one_in = world.random.of(&[4, 20, 60]);
    let migrates_one_in = world.random.of(&[2, 20, 1000]);
    let mut cpus = [0; 4];
    let mut tables = Vec::new();
    for step in 0..600 {
        world.pass(look_one_in);
        let thread = world.random.below(4) as usize;
        if world.random.one_in(migrates_one_in) {
            cpus[thread] = world.random.below(world.cpus().into()) as u32;
        }
        let (tid, cpu) = (10 + thread as i32, cpus[thread]);
        if world.random.one_in(30) {
            let comm = world.random.of(&["alice", "bob", "carol"]);
            world.name(cpu, tid, comm);
        }
        threads.step_of(tid, cpu, &mut world);
        if step % 200 == 199 {
            tables.push(world.report(step == 599).tables);
        }
    }
    (tables, world.drops)
}

/// No time order is needed across threads: the tables are the same whether rings are read one after the other or
/// merged.
#[test]
fn tables_do_not_depend_on_the_order_of_threads() {
    let (mut rows, mut drops) = (0, 0);
    for seed in 0..300 {
        let [(by_ring, of_ring), (by_time, of_time)] = [true, false].map(|by_ring| tables(seed, by_ring));
        assert_eq!(of_ring, of_time, "seed {seed}");
        for (one, other) in by_ring.iter().flatten().zip(by_time.iter().flatten()) {
            assert_eq!((&one.rows, one.verdict), (&other.rows, other.verdict), "seed {seed}");
            rows += one.rows.len();
        }
        assert_eq!(by_ring.iter().flatten().count(), by_time.iter().flatten().count(), "seed {seed}");
        drops += of_ring;
    }
    assert!(rows > 5_000 && drops > 5_000, "{rows} rows, {drops} records lost");
}
