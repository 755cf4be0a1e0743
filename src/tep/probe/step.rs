//! Which instructions the kernel must let a program single-step when a probe is on them. That takes a second trap,
//! which is expensive in a virtual machine. Other instructions it emulates (arch/x86/kernel/uprobes.c:
//! `push_setup_xol_ops`, `branch_setup_xol_ops`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::address::ProbeAddress;
use super::machine::Machine;

/// Bytes of an instruction that tell whether it is emulated.
const CODE_BYTES: usize = 2;

/// Whether the instruction at an address of a program is single-stepped; true when that is not known.
pub fn is_stepped(address: &ProbeAddress) -> bool {
    let ProbeAddress::User { fd, offset } = address else { return false };
    let mut code = [0; CODE_BYTES];
    let read = File::open(format!("/proc/self/fd/{fd}")).and_then(|file| file.read_exact_at(&mut code, *offset));
    read.is_err() || Machine::of_kernel() != Machine::X86_64 || !is_emulated(code)
}

/// A push of a register, a one-byte nop, a call or a jump.
fn is_emulated(code: [u8; CODE_BYTES]) -> bool {
    let [first, second] = code;
    match first {
        0x50..=0x57 | 0x90 | 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb => true,
        0x41 => matches!(second, 0x50..=0x57),
        0x0f => matches!(second, 0x80..=0x8f),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_instructions_of_functions() {
        let emulated = [[0x55, 0x48], [0x41, 0x57], [0x53, 0x48], [0xe9, 0], [0x0f, 0x84]];
        let stepped = [[0x48, 0x89], [0xf3, 0x0f], [0x41, 0x89], [0x0f, 0x1f], [0x8d, 0x47]];
        assert!(emulated.into_iter().all(is_emulated) && !stepped.into_iter().any(is_emulated));
        assert!(is_stepped(&ProbeAddress::User { fd: -1, offset: 0 }));
        assert!(!is_stepped(&ProbeAddress::Kernel { function: "f".to_owned(), offset: 0 }));
    }
}
