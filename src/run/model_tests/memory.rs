//! kmemleak: objects at addresses that are reused again and again.

use std::collections::BTreeMap;

use crate::report::Verdict;
use crate::run::model_tests::{ModelTally, World, common, number};

pub const FORMATS: [&str; 2] = [
    "kmem:kmalloc
     unsigned long call_site 8 8 0
     const void * ptr 16 8 0
     size_t bytes_alloc 24 8 0",
    "kmem:kfree
     unsigned long call_site 8 8 0
     const void * ptr 16 8 0",
];
pub const OPTIONS: [&str; 4] = ["--alloc", "kmem:kmalloc//ptr=ptr/size=bytes_alloc/", "--free", "kmem:kfree//ptr=ptr/"];

/// The allocated objects, by place: address and size.
#[derive(Default)]
struct ModelSlab {
    places: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl ModelSlab {
    /// Allocates or frees an object.
    fn step(&mut self, world: &mut World) {
        let cpu = world.random.below(world.cpus().into()) as u32;
        let tid = 10 + world.random.below(5) as i32;
        let ptr = 0x1000 + 64 * world.random.below(40);
        let owner = self.places.iter().find(|(_, objects)| objects.contains_key(&ptr)).map(|(&place, _)| place);
        let mut raw = common(tid);
        match owner {
            Some(place) => {
                // The freed object need not be the one whose place was drawn.
                [place, ptr].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
                self.places.get_mut(&place).unwrap().remove(&ptr);
                world.event("kmem:kfree", cpu, tid, &raw);
            }
            None => {
                let (place, bytes) = (0xffff_8000 + world.random.below(3), 8 << world.random.below(8));
                [place, ptr, bytes].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
                self.places.entry(place).or_default().insert(ptr, bytes);
                world.event("kmem:kmalloc", cpu, tid, &raw);
            }
        }
    }

    fn outstanding(&self) -> (u64, u64) {
        let all = self.places.values().flat_map(BTreeMap::values);
        all.fold((0, 0), |(allocs, bytes), size| (allocs + 1, bytes + size))
    }
}

fn run(seed: u64, formats: &[&str; 2], inverts: bool, shown: &mut ModelTally) {
    let mut world = World::new("kmemleak", &OPTIONS, formats, seed);
    world.inverts = inverts;
    let mut slab = ModelSlab::default();
    // Some runs read so often that nothing is lost.
    let look_one_in = world.random.of(&[1, 2, 20]);
    let steps = 10 + world.random.below(60);
    let intervals = 4;
    for interval in 1..=intervals {
        for _ in 0..steps {
            world.pass(look_one_in);
            slab.step(&mut world);
        }
        let report = world.report(interval == intervals);
        let [table] = &report.tables[..] else { panic!("{seed}: one table") };
        let (allocs, bytes) = slab.outstanding();
        let what = format!("seed {seed}, interval {interval}, {:?}", table.verdict);
        let (mut told, mut told_bytes, mut certain) = (0, 0, 0);
        for row in &table.rows {
            let verdict = row.verdict;
            shown.add(verdict);
            let unsure = number(table, row, "unsure");
            told += number(table, row, "allocs");
            told_bytes += number(table, row, "bytes");
            certain += number(table, row, "allocs") - unsure;
            assert_eq!(verdict == Verdict::Unsure, unsure > 0, "{what}");
        }
        match table.verdict {
            Verdict::Exact => assert_eq!((told, told_bytes), (allocs, bytes), "{what}"),
            Verdict::LowerBound if !inverts => assert!(certain <= allocs, "{what}: {certain} of {allocs}"),
            _ => {}
        }
    }
    shown.runs += 1;
    shown.drops += world.drops;
}

#[test]
fn rows_of_kmemleak() {
    let mut shown = ModelTally::default();
    (0..250).for_each(|seed| run(seed, &FORMATS, false, &mut shown));
    (1000..1050).for_each(|seed| run(seed, &FORMATS, true, &mut shown));
    shown.check(300);
}

/// If no place is wanted, events ask for samples with only address and size.
#[test]
fn rows_of_kmemleak_without_places() {
    let mut shown = ModelTally::default();
    let bare = FORMATS.map(|format| format.replace("call_site", "where"));
    let bare = bare.each_ref().map(String::as_str);
    (0..250).for_each(|seed| run(seed, &bare, false, &mut shown));
    (1000..1050).for_each(|seed| run(seed, &bare, true, &mut shown));
    shown.check(200);
}
