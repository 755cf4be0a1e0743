//! Which instructions the kernel must let a program step through when a probe is on them: that takes a second trap, which is
//! dear in a virtual machine. Others it carries out itself (arch/x86/kernel/uprobes.c: `push_setup_xol_ops`,
//! `branch_setup_xol_ops`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::events::ProbeAddress;
use super::machine::Machine;

/// Bytes of an instruction that are looked at.
const LOOK: usize = 2;

/// Whether the instruction at a place in a program is stepped through. What is not known is.
pub fn is_stepped(address: &ProbeAddress) -> bool {
    let ProbeAddress::User { fd, offset } = address else { return false };
    let mut code = [0; LOOK];
    let read = File::open(format!("/proc/self/fd/{fd}")).and_then(|file| file.read_exact_at(&mut code, *offset));
    read.is_err() || Machine::of_kernel() != Machine::X86_64 || !is_carried_out(code)
}

/// A push of a register, a one-byte nop, a call or a jump.
fn is_carried_out(code: [u8; LOOK]) -> bool {
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
    fn what_begins_a_function() {
        let carried_out = [[0x55, 0x48], [0x41, 0x57], [0x53, 0x48], [0xe9, 0], [0x0f, 0x84]];
        let stepped = [[0x48, 0x89], [0xf3, 0x0f], [0x41, 0x89], [0x0f, 0x1f], [0x8d, 0x47]];
        assert!(carried_out.into_iter().all(is_carried_out) && !stepped.into_iter().any(is_carried_out));
        assert!(is_stepped(&ProbeAddress::User { fd: -1, offset: 0 }));
        assert!(!is_stepped(&ProbeAddress::Kernel { function: "f".to_owned(), offset: 0 }));
    }
}
