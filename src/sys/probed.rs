//! Functions of our own that do nothing: with a probe in them, what that costs whoever runs into it can be measured.

use crate::sys;

/// How a function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// With what the kernel can carry out itself, where it knows how.
    Simply,
    /// With what a program must be let step through.
    Stepped,
}

/// Where it is in memory. None on a machine for which there is none.
pub fn address(begins: Begins) -> Option<u64> {
    function(begins).map(|function| function as usize as u64)
}

/// CPU time of one call of it, in ns, as of the fastest of a few rounds: others may interrupt the slower ones.
pub fn call_ns(begins: Begins) -> Option<u64> {
    const ROUNDS: usize = 5;
    const CALLS: u64 = 40;
    let function = function(begins)?;
    let round = || {
        let start = sys::cpu_ns().0;
        (0..CALLS).for_each(|_| function());
        sys::cpu_ns().0.saturating_sub(start)
    };
    (0..ROUNDS).map(|_| round() / CALLS).min()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn function(begins: Begins) -> Option<extern "C" fn()> {
    Some(if begins == Begins::Stepped { stepped } else { simple })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn function(_: Begins) -> Option<extern "C" fn()> {
    None
}

// SAFETY, of all four: the instructions are a whole function of the C ABI, which keeps every register that its caller
// relies on.

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
        for begins in [Begins::Simply, Begins::Stepped] {
            if let Some(ns) = call_ns(begins) {
                assert!(address(begins).is_some_and(|address| address > 0) && ns < 1_000_000, "{begins:?}: {ns}");
            }
        }
    }
}
