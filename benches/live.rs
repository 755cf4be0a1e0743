//! The cost of live allocations in kmemleak: memory of five million, and time per allocation and free.

mod common;

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use perf_prof::profilers::kmemleak::flows::CacheTag;
use perf_prof::profilers::kmemleak::ledger::{Ledger, PointerSpace};
use perf_prof::profilers::kmemleak::pointers::LiveAllocation;

const LIVE: u64 = 5_000_000;
const MAX_KIB: u64 = 256 << 10;
/// Pairs of a free and an allocation that are timed.
const PAIRS: u64 = 5_000_000;

fn main() -> Result<()> {
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("skipped: run it with `cargo bench`");
        return Ok(());
    }
    let mut ledger = Ledger::new(0);
    let before = common::peak_kib(std::process::id()).context("no /proc")?;
    let start = Instant::now();
    (0..LIVE).for_each(|number| allocate(&mut ledger, number));
    println!("{LIVE} allocations: {:.0} ns each", start.elapsed().as_nanos() as f64 / LIVE as f64);
    let kib = common::peak_kib(std::process::id()).context("no /proc")? - before;
    println!("memory: {kib} KiB, {:.1} bytes each", kib as f64 * 1024.0 / LIVE as f64);
    ensure!(kib < MAX_KIB, "more than {MAX_KIB} KiB");
    let start = Instant::now();
    for number in 0..PAIRS {
        black_box(ledger.freed(PointerSpace::Kernel, address(number), u64::MAX));
        allocate(&mut ledger, number + LIVE);
    }
    println!("{PAIRS} pairs among them: {:.0} ns each", start.elapsed().as_nanos() as f64 / PAIRS as f64);
    let start = Instant::now();
    black_box(ledger.sums(u64::MAX));
    println!("one report: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn allocate(ledger: &mut Ledger, number: u64) {
    let record =
        LiveAllocation { ptr: address(number), time: number, bytes: 64, stack: None, owner: 1 + (number % 100) as u32 };
    black_box(ledger.allocated(PointerSpace::Kernel, record, CacheTag::default()));
}

/// Addresses as an allocator returns them: over a whole range, in no order.
fn address(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    0xffff_8880_0000_0000 + mixed * 64
}
