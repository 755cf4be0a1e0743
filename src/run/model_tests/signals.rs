//! signal: signals that queue, merge, wait and are delivered.

use std::collections::{BTreeMap, VecDeque};

use crate::report::{Value, Verdict};
use crate::run::model_tests::{Load, ModelTally, World, cell, common, number, play, text};

pub const FORMATS: [&str; 2] = [
    "signal:signal_generate
     int sig 8 4 1
     int errno 12 4 1
     int code 16 4 1
     char comm[16] 20 16 0
     pid_t pid 36 4 1
     int group 40 4 1
     int result 44 4 1",
    "signal:signal_deliver
     int sig 8 4 1
     int errno 12 4 1
     int code 16 4 1
     unsigned long sa_handler 24 8 0
     unsigned long sa_flags 32 8 0",
];

/// SIGUSR1 waits alone, SIGRTMIN+6 queues.
const SIGNALS: [i32; 2] = [10, 40];
const TASKS: u64 = 3;
const SI_QUEUE: i32 = -1;
/// `enum` in include/trace/events/signal.h.
const DELIVERED: i32 = 0;
const ALREADY_PENDING: i32 = 2;

/// Signal and target.
type ModelTarget = (i32, i32);

/// The true sums of an interval for a signal and target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ModelSignalSums {
    count: u64,
    merged: u64,
    delivered: u64,
    max_delay_ns: u64,
    waits: u64,
}

#[derive(Default)]
struct Kernel {
    waiting: BTreeMap<ModelTarget, VecDeque<u64>>,
    sums: BTreeMap<ModelTarget, ModelSignalSums>,
    /// Target, send time and arrival time of the signals that arrived in this interval.
    arrived: Vec<(ModelTarget, u64, u64)>,
}

impl Load for Kernel {
    fn step(&mut self, world: &mut World) {
        let cpu = world.random.below(world.cpus().into()) as u32;
        let tid = 100 + world.random.below(TASKS) as i32;
        let signal = world.random.of(&SIGNALS);
        let key = (signal, tid);
        let waiting = self.waiting.entry(key).or_default();
        let sums = self.sums.entry(key).or_default();
        if world.random.one_in(2) {
            let merges = signal < 32 && !waiting.is_empty();
            sums.count += 1;
            sums.merged += u64::from(merges);
            if !merges {
                waiting.push_back(world.clock);
            }
            generate(world, cpu, signal, tid, if merges { ALREADY_PENDING } else { DELIVERED });
        } else if let Some(sent) = waiting.pop_front() {
            self.arrived.push((key, sent, world.clock));
            deliver(world, cpu, signal, tid);
        }
    }
}

impl Kernel {
    /// The truth of an interval, as far as it was sent after `from`: what came before a loss is followed no more.
    fn truth(&self, from: u64) -> BTreeMap<ModelTarget, ModelSignalSums> {
        let mut truth = self.sums.clone();
        for (key, sent, at) in self.arrived.iter().filter(|(_, sent, _)| *sent > from) {
            let sums = truth.entry(*key).or_default();
            sums.delivered += 1;
            sums.max_delay_ns = sums.max_delay_ns.max(at - sent);
        }
        for (key, waiting) in &self.waiting {
            truth.entry(*key).or_default().waits = waiting.iter().filter(|sent| **sent > from).count() as u64;
        }
        truth.retain(|_, sums| *sums != ModelSignalSums::default());
        truth
    }
}

/// Sends `signal` to the process `tid`.
pub fn generate(world: &mut World, cpu: u32, signal: i32, tid: i32, result: i32) {
    let sender = 50 + world.random.below(2) as i32;
    let mut raw = common(sender);
    [signal, 0, SI_QUEUE].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
    raw.extend(text(&format!("t{tid}")));
    [tid, 1, result].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
    world.event("signal:signal_generate", cpu, sender, &raw);
}

/// Delivers `signal` to `tid`.
pub fn deliver(world: &mut World, cpu: u32, signal: i32, tid: i32) {
    let mut raw = common(tid);
    [signal, 0, SI_QUEUE, 0].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
    [0x4000_u64, 0].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
    world.event("signal:signal_deliver", cpu, tid, &raw);
}

fn run(seed: u64, inverts: bool, shown: &mut ModelTally) {
    let mut world = World::new("signal", &[], &FORMATS, seed);
    world.inverts = inverts;
    for tid in 50..52 {
        world.name(0, tid, "sender");
    }
    play(&mut world, &mut Kernel::default(), 5, shown, |kernel, played, shown| {
        let all = kernel.truth(0);
        let mut truth = kernel.truth(played.lost_before);
        (kernel.sums, kernel.arrived) = Default::default();
        let [table] = &played.report.tables[..] else { panic!("{seed}: one table") };
        for row in &table.rows {
            let verdict = row.verdict;
            shown.add(verdict);
            let (Value::Word(name), Value::Comm(comm)) = (cell(table, row, "signal"), cell(table, row, "target"))
            else {
                panic!("{row:?}")
            };
            let tid = String::from_utf8_lossy(&comm.as_bytes()[1..]).parse().unwrap();
            let key = (if *name == "SIGUSR1" { 10 } else { 40 }, tid);
            let told = ModelSignalSums {
                count: number(table, row, "count"),
                merged: number(table, row, "merged"),
                delivered: number(table, row, "delivered"),
                max_delay_ns: number(table, row, "max_delay_ns"),
                waits: number(table, row, "pending"),
            };
            let what = format!("{}, {verdict:?}: {key:?}", played.what);
            let (least, most) = (truth.remove(&key).unwrap_or_default(), all.get(&key).copied().unwrap_or_default());
            match verdict {
                Verdict::Exact if !inverts => assert_eq!(told, least, "{what}"),
                Verdict::Exact => assert_eq!((told.count, told.merged), (least.count, least.merged), "{what}"),
                _ => {
                    let within = told.count <= most.count && told.merged <= most.merged;
                    assert!(within && told.delivered <= most.delivered, "{what}: {told:?} {most:?}");
                    assert!(inverts || told.max_delay_ns <= most.max_delay_ns, "{what}: {told:?} {most:?}");
                }
            }
        }
        if table.verdict == Verdict::Exact {
            assert!(truth.is_empty(), "{}: not told: {truth:?}", played.what);
        }
    });
}

#[test]
fn rows_of_signal() {
    let mut shown = ModelTally::default();
    (0..250).for_each(|seed| run(seed, false, &mut shown));
    (1000..1050).for_each(|seed| run(seed, true, &mut shown));
    shown.check(500);
}
