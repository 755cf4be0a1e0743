//! Each stage at which data can be lost has a counter of its own.

use crate::perf::record::{Callchain, ChainForm};
use crate::run::model_tests::{World, common, memory, signals};
use crate::symbol::Stacks;

/// The counters of the stages: ring, open pairs, stacks, output.
fn counters(world: &World) -> [u64; 4] {
    let core = &world.core;
    [core.loss.total(), core.ctx.view.untracked, core.ctx.stacks.refused(), core.ctx.output.dropped()]
}

/// Asserts that only the counter of `stage` is not 0.
fn only(world: &World, stage: usize) {
    let counters = counters(world);
    assert!(
        counters.iter().enumerate().all(|(index, count)| (*count > 0) == (index == stage)),
        "{stage}: {counters:?}"
    );
}

fn allocate(world: &mut World, number: u64, look_one_in: u64) {
    for object in 0..number {
        world.pass(look_one_in);
        let mut raw = common(10);
        [0xffff_8000 + object, 0x1000 + 64 * object, 64].iter().for_each(|word| raw.extend(word.to_ne_bytes()));
        world.event("kmem:kmalloc", 0, 10, &raw);
    }
    world.report(false);
}

fn send(world: &mut World, number: u64) {
    for _ in 0..number {
        world.pass(1);
        signals::generate(world, 0, 40, 100, 0);
    }
    world.report(false);
}

#[test]
fn a_full_ring() {
    let mut world = World::new("kmemleak", &memory::OPTIONS, &memory::FORMATS, 1);
    allocate(&mut world, 200, u64::MAX);
    only(&world, 0);
    assert_eq!(world.core.loss.total(), world.drops);
}

#[test]
fn too_much_to_follow() {
    let mut world = World::new("signal", &[], &signals::FORMATS, 1);
    send(&mut world, (1 << 16) + 10);
    only(&world, 1);
    assert_eq!(world.core.ctx.view.untracked, 10);
}

#[test]
fn a_full_table_of_stacks() {
    let mut world = World::new("kmemleak", &memory::OPTIONS, &memory::FORMATS, 1);
    world.core.ctx.stacks = Stacks::new(4096, 127);
    allocate(&mut world, 200, 1);
    only(&world, 2);
}

/// Stacks that nothing refers to, but all in flight to the output.
#[test]
fn ever_new_stacks_and_a_blocked_output() {
    const KERNEL: u64 = 0xffff_ffff_8000_0000;
    const OF_KERNEL: u64 = -128_i64 as u64; // PERF_CONTEXT_KERNEL
    let mut world = World::new("signal", &[], &signals::FORMATS, 1);
    world.core.ctx.stacks = Stacks::new(16 << 20, 127);
    for number in 0..20_000 {
        let words = std::iter::once(OF_KERNEL).chain((0..100).map(|depth| KERNEL + number * 100 + depth));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let ctx = &mut world.core.ctx;
        ctx.stacks.intern_uncounted(Callchain::from_bytes(&bytes), ChainForm::default(), 1, &mut ctx.spaces);
        world.core.send_stacks();
    }
    // Each stack takes some 5 KB in the table, and less than 1 KB in flight.
    let kept = 20_000 - world.core.ctx.stacks.refused();
    assert!((2000..9000).contains(&kept), "{kept}");
}

#[test]
fn a_blocked_output() {
    let mut world = World::new("signal", &[], &signals::FORMATS, 1);
    world.prints = true;
    for _ in 0..40_000 {
        world.pass(1);
        signals::generate(&mut world, 0, 40, 100, 0);
        signals::deliver(&mut world, 0, 40, 100);
    }
    only(&world, 3);
}
