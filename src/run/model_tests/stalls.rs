//! reclaim: threads that stall for memory, several at once.

use std::collections::BTreeMap;

use crate::report::{Value, Verdict};
use crate::run::model_tests::{Load, ModelTally, World, cell, common, number, play};

const BEGIN: &str = "int order 8 4 1\nunsigned long gfp_flags 16 8 0";
const END: &str = "unsigned long nr_reclaimed 8 8 0";
const THROTTLED: &str = "int nid 8 4 1\nint usec_timeout 12 4 1\nint usec_delayed 16 4 1";

/// Kinds of stalls, and the names of their events.
const KINDS: [(&str, &str); 3] = [("direct reclaim", "direct"), ("cgroup reclaim", "memcg"), ("node reclaim", "node")];

#[derive(Clone, Copy, Debug)]
struct ModelStall {
    kind: usize,
    since: u64,
    throttled_us: u64,
}

/// Number, time, bytes that were freed, and time that was slept.
type StallTotals = [u64; 4];

#[derive(Default)]
struct ModelStalls {
    going_on: BTreeMap<i32, ModelStall>,
    /// Those that have ended in this interval, by thread and kind.
    ended: BTreeMap<(i32, &'static str), StallTotals>,
    /// Time since the last check in which some thread stalled, without the one that goes on since a time.
    stalled_ns: u64,
    some_since: Option<u64>,
}

fn raise(world: &mut World, name: &str, tid: i32, number: u64) {
    let mut raw = common(tid);
    raw.extend(number.to_ne_bytes());
    raw.extend(number.to_ne_bytes());
    world.event(&format!("vmscan:mm_vmscan_{name}"), tid as u32 % world.cpus(), tid, &raw);
}

impl Load for ModelStalls {
    fn step(&mut self, world: &mut World) {
        let tid = 10 + world.random.below(5) as i32;
        let Some(stall) = self.going_on.get_mut(&tid) else {
            let kind = world.random.below(KINDS.len() as u64) as usize;
            raise(world, &format!("{}_reclaim_begin", KINDS[kind].1), tid, 3);
            let stall = ModelStall { kind, since: world.clock, throttled_us: 0 };
            self.going_on.insert(tid, stall);
            self.some_since = self.some_since.or(Some(world.clock));
            return;
        };
        let (kind, event) = KINDS[stall.kind];
        if world.random.one_in(5) {
            let us = 1 + world.random.below(100);
            stall.throttled_us += us;
            let mut raw = common(tid);
            raw.extend([0; 8]);
            raw.extend((us as u32).to_ne_bytes());
            return world.event("vmscan:mm_vmscan_throttled", tid as u32 % world.cpus(), tid, &raw);
        }
        let ModelStall { since, throttled_us, .. } = *stall;
        let pages = world.random.below(100);
        raise(world, &format!("{event}_reclaim_end"), tid, pages);
        self.going_on.remove(&tid);
        let totals = self.ended.entry((tid, kind)).or_default();
        let parts = [1, world.clock - since, pages * crate::sys::page_size() as u64, throttled_us * 1000];
        totals.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        if self.going_on.is_empty() {
            self.stalled_ns += world.clock - self.some_since.take().expect("one has stalled");
        }
    }
}

impl ModelStalls {
    /// The time in which some thread stalled up to an end, since the last call.
    fn take_stalled_ns(&mut self, end: u64) -> u64 {
        let goes_on_ns = self.some_since.as_mut().map_or(0, |since| end - std::mem::replace(since, end));
        std::mem::take(&mut self.stalled_ns) + goes_on_ns
    }
}

#[test]
fn stalls_of_several_threads() {
    let mut formats: Vec<String> = Vec::new();
    for (_, event) in KINDS {
        formats.push(format!("vmscan:mm_vmscan_{event}_reclaim_begin\n{BEGIN}"));
        formats.push(format!("vmscan:mm_vmscan_{event}_reclaim_end\n{END}"));
    }
    formats.push(format!("vmscan:mm_vmscan_throttled\n{THROTTLED}"));
    let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
    let mut shown = ModelTally::default();
    let mut unions = 0;
    for seed in 0..300 {
        let mut world = World::new("reclaim", &[], &formats, seed);
        let mut stalls = ModelStalls::default();
        play(&mut world, &mut stalls, 5, &mut shown, |model, played, shown| {
            let [stalls, pressure, ..] = &played.report.tables[..] else { panic!("{}", played.what) };
            let ended = std::mem::take(&mut model.ended);
            let stalled_ns = model.take_stalled_ns(played.report.end);
            for row in &stalls.rows {
                let told = |key| number(stalls, row, key);
                let Value::Word(kind) = *cell(stalls, row, "kind") else { panic!("a kind") };
                let truth = ended.get(&(told("pid") as i32, kind)).copied().unwrap_or_default();
                shown.add(row.verdict);
                let what = format!("{}, {kind}: {row:?}: {truth:?}", played.what);
                assert!(told("total_ns") <= truth[1] && told("throttled_ns") <= truth[3], "{what}");
                if row.verdict == Verdict::Exact && told("no_start") == 0 {
                    assert_eq!(["count", "total_ns", "reclaimed_bytes", "throttled_ns"].map(told), truth, "{what}");
                }
            }
            let [machine] = &pressure.rows[..] else { panic!("{}: there are no cgroups", played.what) };
            let told_ns = number(pressure, machine, "stalled_ns");
            assert!(told_ns <= stalled_ns, "{}: {told_ns} of {stalled_ns}", played.what);
            // What began before a loss may go on unseen.
            if played.drops == 0 {
                assert_eq!(told_ns, stalled_ns, "{}", played.what);
                unions += 1;
            }
        });
    }
    shown.check(300);
    assert!(unions > 100, "{unions} without a loss");
}
