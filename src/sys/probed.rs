//! Empty functions, to measure what a uprobe in them costs their callers.

use crate::sys;

/// The first instruction of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstInstruction {
    /// The kernel can emulate it.
    Emulated,
    /// The kernel must let the program single-step it.
    Stepped,
}

/// Address of the function. None: there is no such function for this architecture.
pub fn address(first: FirstInstruction) -> Option<u64> {
    function(first).map(|function| function as usize as u64)
}

/// CPU time of one call of the function, in ns, from the fastest of a few rounds: slower ones may have been
/// interrupted.
pub fn call_ns(first: FirstInstruction) -> Option<u64> {
    const ROUNDS: usize = 5;
    const CALLS: u64 = 40;
    let function = function(first)?;
    let round = || {
        let start = sys::cpu_ns().0;
        (0..CALLS).for_each(|_| function());
        sys::cpu_ns().0.saturating_sub(start)
    };
    (0..ROUNDS).map(|_| round() / CALLS).min()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn function(first: FirstInstruction) -> Option<extern "C" fn()> {
    Some(if first == FirstInstruction::Stepped { stepped } else { simple })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn function(_: FirstInstruction) -> Option<extern "C" fn()> {
    None
}

// SAFETY, for all four: the instructions are a complete function of the C ABI, which preserves every register that its
// caller relies on.

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn simple() {
    std::arch::naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn stepped() {
    std::arch::naked_asm!("lea rax, [rdi + 1]", "ret")
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn simple() {
    std::arch::naked_asm!("nop", "ret")
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn stepped() {
    std::arch::naked_asm!("add x0, x0, #1", "ret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_probe_it_costs_next_to_nothing() {
        for first in [FirstInstruction::Emulated, FirstInstruction::Stepped] {
            if let Some(ns) = call_ns(first) {
                assert!(address(first).is_some_and(|address| address > 0) && ns < 1_000_000, "{first:?}: {ns}");
            }
        }
    }
}
