//! ELF files for tests.

use proptest::prelude::*;

use crate::symbol::elf::vdso::own_vdso;

/// A small ELF file with random bytes changed, cut at a random length.
pub fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = proptest::collection::vec((0_usize..4096, any::<u8>()), 1..20);
    (damage, 0_usize..9000).prop_map(|(damage, cut)| {
        let mut bytes = own_vdso().expect("every process has one");
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        bytes.truncate(cut.max(64));
        bytes
    })
}
