//! An ELF file that a process has mapped, from sampled addresses to their names: whatever it contains, memory and
//! time are bounded.

use std::sync::Arc;

use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf::symbols::SymbolOptions;
use perf_prof::symbol::{Content, Frame, FrameNames, Module};
use perf_prof::sys;

use super::input::file_of;

/// Budget for symbols and their names, in bytes.
const BUDGET_BYTES: u64 = 4 << 20;
/// Limit of CPU time for all frames. Time of other tasks does not count.
const MAX_CPU_NS: u64 = 5_000_000_000;
const MAX_NAME_BYTES: usize = 4096;
const USER: u32 = 1000;

pub fn run(data: &[u8]) {
    let budget = Budget::new(BUDGET_BYTES);
    let room = budget.room(&[USER]);
    let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: budget.clone() };
    let module = Arc::new(Module::new("/hostile", Content::File(file_of(data))));
    module.used_by(USER);
    let offsets = (0..data.len() as u64 + 64).step_by(16).chain([u64::MAX - 1, u64::MAX]);
    let frames: Vec<Frame> = offsets
        .map(|offset| Frame::User {
            addr: offset,
            behind_call: offset & 16 == 0,
            guessed: false,
            place: Ok((module.clone(), offset)),
        })
        .collect();
    let mut names = FrameNames::new("/nonexistent", options);
    let (before_ns, _) = sys::cpu_ns();
    for named in names.stack(&frames) {
        assert!(named.symbol.map_or(0, |name| name.len()) <= MAX_NAME_BYTES);
    }
    let took_ns = sys::cpu_ns().0 - before_ns;
    assert!(took_ns < MAX_CPU_NS, "{took_ns} ns");
    drop((names, frames, module)); // the module keeps the tables that name functions without a symbol
    assert_eq!(budget.room(&[USER]), room);
}
